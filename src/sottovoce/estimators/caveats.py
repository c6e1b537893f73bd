"""What an estimator's epsilon assumes about the steps before it, and signs that it does not hold.

A step that learns from the rows before a fit (a scaler, an imputer) makes each row depend on
others, and no epsilon covers that.  An estimator sees only the numbers, so its privacy statement
names the assumption (:func:`assumptions_of_fit`, called by :mod:`sottovoce.estimators.terms`);
:func:`learning_steps` lists such steps of a pipeline for the user; and columns that look scaled by
the rows are told to the data owner only (:func:`learned_columns_note`), because that is read off
private rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import issparse
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from ..data.schema import Schema
from ..errors import HolderNote, InvalidInput, PublicNote
from ..util.typing import Any
from .notices import Note

ASSUMED = (
    "epsilon holds only if each row of X was computed from that row and public constants alone; a "
    "step that learned from the rows, by scaling or imputing for example, breaks the guarantee, "
    "and an estimator without a schema cannot detect one"
)
ASSUMED_OF_TABLES = (
    "epsilon holds only if no step before the schema learned from the rows, for example by filling "
    "missing values in with a mean; an estimator cannot detect such a step"
)
"""The assumption for a table under a schema, whose declared bounds do the scaling."""
ADD_UP = (
    "this estimator is a clone, as scikit-learn makes in a grid search or a cross-validation: the "
    "epsilons of all fits on the same rows add up, and choosing a model by its scores is not "
    "covered"
)
INSTEAD = (
    "use schema=, SchemaTransformer, or steps of public constants: FunctionTransformer, "
    "Normalizer, HashingVectorizer, "
    "OneHotEncoder(categories=[...]), SimpleImputer(strategy='constant', fill_value=...)"
)
"""What to use in place of a step that learns: these learn nothing from rows."""
DIVIDED = (
    "each fit protects the people of its own table only: a split by rows puts one person's rows "
    "into several parts, and their number moves other people's rows to other parts; then scores "
    "are too good, and no epsilon is proved for all fits together: split by people "
    "(GroupShuffleSplit)"
)
"""What parts of a table mean for a schema whose privacy unit is a person."""
# A mean this near to 0, or a deviation this near to 1, comes from a scaler and not from chance.
_EXACT = 1e-9


def learning_steps(pipeline: Any) -> list[str]:
    """Return names of the steps of a pipeline, before its last, that learn from the rows.

    No epsilon covers what they learn.

    Parameters
    ----------
    pipeline : sklearn.pipeline.Pipeline
        It need not be fitted.  Which steps learn follows from scikit-learn's tags and from
        parameters, not from rows.

    Returns
    -------
    list of str
        Each name once, in the order of the steps.

    Raises
    ------
    InvalidInput
        If `pipeline` is not a scikit-learn Pipeline.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import Normalizer, StandardScaler
    >>> from sottovoce import ConsensusClassifier
    >>> from sottovoce.estimators import learning_steps
    >>> learning_steps(make_pipeline(StandardScaler(), Normalizer(), ConsensusClassifier()))
    ['StandardScaler']
    """
    if not isinstance(pipeline, Pipeline):
        rule = "must be a scikit-learn Pipeline"
        raise InvalidInput("pipeline", type(pipeline), rule, "use make_pipeline(step, ..., model)")
    found = [
        learner for name, step in pipeline.steps[:-1] for learner in learning_parts(step, name)
    ]
    return list(dict.fromkeys(found))


def learning_parts(step: Any, name: str = "") -> Iterator[str]:
    """Yield names of the parts of a step that learn from rows.

    Parameters
    ----------
    step
        A transformer, a nested Pipeline, FeatureUnion or ColumnTransformer, "passthrough", "drop"
        or None.
    name : str
        Its name in the pipeline.

    Yields
    ------
    str
        The class of a part, behind its name where that says more: "scale (StandardScaler)".
    """
    # "passthrough" and "drop" are texts.
    if step is None or isinstance(step, str):
        return
    if isinstance(step, Pipeline):
        for inner, part in step.steps:
            yield from learning_parts(part, inner)
        return
    if isinstance(step, FeatureUnion):
        for inner, part in step.transformer_list:
            yield from learning_parts(part, inner)
        return
    # A ColumnTransformer: each group of columns has a step of its own.
    if hasattr(step, "transformers") and hasattr(step, "remainder"):
        for inner, part, _ in step.transformers:
            yield from learning_parts(part, inner)
        return
    kind = type(step).__name__
    if _learns_nothing(step, kind):
        return
    # `make_pipeline` names a step by its class in lower case.
    if name in ("", kind.lower()):
        yield kind
    else:
        yield f"{name} ({kind})"


def _learns_nothing(step: Any, kind: str) -> bool:
    """Return true if a transformer of class name `kind` learns nothing from rows."""
    if kind in ("OneHotEncoder", "OrdinalEncoder"):
        # Declared categories are public, but merging the rare ones counts rows.
        by_frequency = getattr(step, "min_frequency", None) is not None
        by_number = getattr(step, "max_categories", None) is not None
        return not isinstance(step.categories, str) and not by_frequency and not by_number
    if kind == "SimpleImputer":
        return step.strategy == "constant" and step.fill_value is not None
    try:
        return not get_tags(step).requires_fit
    except Exception:
        # A step of another library that says nothing of itself may learn.
        return False


def assumptions_of_fit(
    schema: Schema | None, *, cloned: bool, many_fits: bool
) -> tuple[tuple[str, ...], tuple[Note, ...]]:
    """Return the assumptions on which a fit's epsilon rests, and notes to warn of before the fit.

    Parameters
    ----------
    schema : Schema or None
    cloned : bool
        Whether scikit-learn made the estimator, so that it may be fitted on part of a table.
    many_fits : bool
        Whether another clone of the same estimator was fitted before: then a note says that the
        epsilons of fits add up.

    Returns
    -------
    rests : tuple of str
        Assumptions, for the statement.
    notes : tuple of Note
    """
    rests = [ASSUMED_OF_TABLES]
    if schema is None:
        rests = [ASSUMED]
    notes: tuple[Note, ...] = ()
    if cloned:
        many = [ADD_UP]
        if schema is not None and schema.person is not None:
            many.append(DIVIDED)
        rests += many
        if many_fits:
            notes = (Note("clones", "; ".join(many), PublicNote),)
    return tuple(rests), notes


def learned_columns_note(X: Any) -> Note | None:
    """Return a note, for the data owner only, if X (n, p) seems scaled by its own rows."""
    why = sign_of_learned_columns(X)
    if why is None:
        return None
    what = f"{why}: if it was computed from the rows, the guarantee does not hold"
    return Note("learned", f"{what} (for the data's holder only).  Instead, {INSTEAD}", HolderNote)


def sign_of_learned_columns(X: Any) -> str | None:
    """Return a sign that columns of X (n, p) were scaled by their own rows; None without one.

    With fewer than three rows such numbers arise by chance; sparse X is not looked at.
    """
    if issparse(X) or len(X) < 3:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation, low, high = X.mean(axis=0), X.std(axis=0), X.min(axis=0), X.max(axis=0)
    varied = deviation > 0
    standard = varied & (np.abs(mean) < _EXACT) & (np.abs(deviation - 1.0) < _EXACT)
    if standard.any():
        return (
            "a column has mean 0 and standard deviation 1 to the last digit, as after a "
            "StandardScaler"
        )
    # Indicators of categories span [0, 1] without a scaler, so columns of few values do not count.
    # At most 50 columns are looked at, to bound the time.
    continuous = [len(np.unique(X[:, k])) > 10 for k in np.flatnonzero(varied)[:50]]
    spans = ((low == 0.0) & (high == 1.0))[varied][:50]
    if len(spans) > 1 and np.all(spans & np.array(continuous)):
        return "every column has minimum 0 and maximum 1, as after a MinMaxScaler"
    return None
