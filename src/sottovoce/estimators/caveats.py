"""What an estimator can tell of how its rows were made: by row, or from other rows, which no epsilon covers.

An estimator sees numbers.  Whether a step before it learned from the rows follows from who called :meth:`fit`: a
pipeline of scikit-learn holds its steps, whose tags say which of them learn, and those are public.  Numbers that give
it away, such as columns of mean zero and variance one, are told to the holder of the rows only.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.sparse import issparse
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from ..data.schema import Schema
from ..errors import HolderNote, PublicNote
from ..privacy.statement import Statement
from ..util.typing import Any

ASSUMED = "epsilon holds if X was made row by row from public constants: an estimator without a schema cannot see that"
INSTEAD = (
    "use schema=, SchemaTransformer, or steps of public constants: FunctionTransformer, Normalizer, HashingVectorizer, "
    "OneHotEncoder(categories=[...]), SimpleImputer(strategy='constant', fill_value=...)"
)
"""Encoders that learn nothing from rows."""
DIVIDED = (
    "each fit is about the people of its own table: whoever splits rows divides people, and how many rows one of them "
    "has moves rows of others to other parts, so split by people (GroupShuffleSplit), or scores are too good and no "
    "sum over fits is proved"
)
"""Of a schema's people, if parts of a table are fitted."""
_DEPTH = 200  # callers to look at
_EXACT = 1e-9  # of means and variances that are no chance


def learners(step: Any, name: str = "") -> Iterator[str]:
    """Names of the parts of a step that learn from rows."""
    if step is None or isinstance(step, str):  # "passthrough", "drop"
        return
    if isinstance(step, Pipeline):
        for inner, part in step.steps:
            yield from learners(part, inner)
        return
    if isinstance(step, FeatureUnion):
        for inner, part in step.transformer_list:
            yield from learners(part, inner)
        return
    if hasattr(step, "transformers") and hasattr(step, "remainder"):  # of columns, each with steps of its own
        for inner, part, _ in step.transformers:
            yield from learners(part, inner)
        return
    kind = type(step).__name__
    if not _public(step, kind):
        yield kind if name in ("", kind.lower()) else f"{name} ({kind})"


def _public(step: Any, kind: str) -> bool:
    """Whether a step learns nothing."""
    if kind in ("OneHotEncoder", "OrdinalEncoder"):
        counted = getattr(step, "min_frequency", None) is not None or getattr(step, "max_categories", None) is not None
        return not isinstance(step.categories, str) and not counted
    if kind == "SimpleImputer":
        return step.strategy == "constant" and step.fill_value is not None
    try:
        return not get_tags(step).requires_fit
    except Exception:  # of another library's step, which says nothing
        return False


def before(estimator: Any) -> tuple[list[str], list[str]]:
    """Steps that learned from the rows on their way to `estimator`, and searches that fit it many times.

    Found among the callers of its fit: a pipeline whose last step it is, and a search or a cross-validation.
    """
    steps: list[str] = []
    searches: list[str] = []
    frame: Any = sys._getframe(1)
    for _ in range(_DEPTH):
        if frame is None:
            break
        code = frame.f_code
        caller = frame.f_locals.get("self") if code.co_varnames[:1] == ("self",) else None
        if isinstance(caller, Pipeline) and caller.steps and caller.steps[-1][1] is estimator:
            for name, step in caller.steps[:-1]:
                steps += learners(step, name)
            estimator = caller
        elif any(kind.__name__ == "BaseSearchCV" for kind in type(caller).__mro__):
            searches.append(type(caller).__name__)
        elif code.co_name == "cross_validate" and frame.f_globals.get("__name__", "").startswith("sklearn."):
            searches.append("cross-validation")
        frame = frame.f_back
    return list(dict.fromkeys(steps)), list(dict.fromkeys(searches))


@dataclass(frozen=True)
class Caveats:
    """What epsilon does not cover, or rests on, beside what a statement says by itself."""

    void: str | None = None
    """Why the guarantee does not hold."""
    rests: tuple[str, ...] = ()
    """On what it rests that the estimator cannot see."""

    @classmethod
    def of(cls, estimator: Any, schema: Schema | None, *, cloned: bool, stacklevel: int) -> Self:
        """The caveats of a fit, with one warning of those that a user is not expected to know."""
        steps, searches = before(estimator)
        void, rests, said = None, [] if schema is not None else [ASSUMED], []
        if steps:
            void = f"the guarantee does not hold: {', '.join(steps)} learned from the rows before, without noise"
            said += [void, ASSUMED]
        if searches or cloned:
            who = " and ".join(searches) or "what cloned this model"
            rests.append(
                f"{who} may fit it many times on the same rows: fits add up, and no choice by scores is covered"
            )
            if schema is not None and schema.person is not None:
                rests.append(DIVIDED)
            said += [one for one in rests if one != ASSUMED] if searches else []
        if said:
            text = "; ".join(said)
            warnings.warn(f"{text}.  Instead, {INSTEAD}" if steps else text, PublicNote, stacklevel=stacklevel + 1)
        return cls(void, tuple(rests))

    def on(self, statement: Statement) -> Statement:
        """The statement, with what it rests on."""
        return statement.resting_on(self.rests)


def tell_values(X: Any, stacklevel: int) -> None:
    """Tell the holder of rows whose columns were computed from the rows."""
    if why := learned(X):
        what = f"{why}: the rows made it so, and then the guarantee does not hold"
        warnings.warn(
            f"{what} (for the data's holder only).  Instead, {INSTEAD}", HolderNote, stacklevel=stacklevel + 1
        )


def learned(X: Any) -> str | None:
    """What gives away that columns of numbers were computed from the rows; None if nothing does."""
    if issparse(X) or len(X) < 3:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation, low, high = X.mean(axis=0), X.std(axis=0), X.min(axis=0), X.max(axis=0)
    varied = deviation > 0
    standard = varied & (np.abs(mean) < _EXACT) & (np.abs(deviation - 1.0) < _EXACT)
    if standard.any():
        return "a column has mean 0 and standard deviation 1 to the last digit, as after a StandardScaler"
    continuous = [len(np.unique(X[:, k])) > 10 for k in np.flatnonzero(varied)[:50]]
    spans = ((low == 0.0) & (high == 1.0))[varied][:50]
    if len(spans) > 1 and np.all(spans & np.array(continuous)):
        return "every column has least value 0 and largest value 1, as after a MinMaxScaler"
    return None
