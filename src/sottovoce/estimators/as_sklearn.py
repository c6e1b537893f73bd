"""A fitted classifier as a ``LogisticRegression`` of scikit-learn with the same coefficients.

It is what :meth:`sottovoce.ConsensusClassifier.to_sklearn` returns.  Under a schema, coefficients
belong to encoded rows (rows as :class:`sottovoce.SchemaTransformer` makes them), so the result is a
pipeline from raw columns.
"""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ..answers.saved import SavedModel
from ..errors import InvalidInput
from ..util.typing import Any
from .declared import Labelled
from .transformer import SchemaTransformer


def to_logistic_regression(model: Any) -> LogisticRegression | Pipeline:
    """Make a fitted ``LogisticRegression`` with a classifier's coefficients.

    Parameters
    ----------
    model : ConsensusClassifier
        Fitted, without inference under a schema.

    Returns
    -------
    LogisticRegression or Pipeline
        Under a schema a pipeline of two steps: "encode", the schema's transformer, and "classify".

    Raises
    ------
    InvalidInput
        If the loss is another than the logistic one, classes were trained against the rest, or
        coefficients are those of inference under a schema.
    """
    check_is_fitted(model, "coef_")
    loss = str(getattr(model, "loss_", model.loss))
    of_two_classes = loss == "logistic" and len(model.coef_) == 1
    if not of_two_classes and loss != "softmax":
        rule = (
            "scikit-learn's LogisticRegression has the logistic loss for two classes, and softmax "
            "for more"
        )
        remedy = "use loss='logistic' for two classes, or loss='softmax' for more"
        raise InvalidInput("loss", loss, rule, remedy)
    plain = LogisticRegression()
    if model.schema_ is not None:
        return _pipeline_of_raw_columns(model, plain)
    plain.coef_ = model.coef_.copy()
    plain.intercept_ = model.intercept_.copy()
    plain.classes_ = model.classes_.copy()
    plain.n_features_in_ = model.n_features_in_
    plain.n_iter_ = np.array([model.n_iter_])
    if hasattr(model, "feature_names_in_"):
        plain.feature_names_in_ = model.feature_names_in_.copy()
    return plain


def _pipeline_of_raw_columns(model: Any, plain: LogisticRegression) -> Pipeline:
    """Make the pipeline from raw columns; `plain` is its unfitted last step, which this fits."""
    answered: SavedModel = model._answered
    if answered.naming is not None or answered.schema is None:
        rule = (
            "inference encodes rows unlike SchemaTransformer does, so no pipeline can represent it"
        )
        raise InvalidInput("inference", True, rule, "use `sottovoce export`, or inference=False")
    vectors = np.atleast_2d(answered.schema.task.vectors_by_margin(answered.model))
    # The saved model has the schema's order of classes, scikit-learn wants them sorted.
    plain.coef_ = Labelled(model.classes_, model._order, model._order).to_sorted_classes(vectors)
    # Encoded rows have a constant column if the schema has one.
    plain.intercept_ = np.zeros(len(plain.coef_))
    plain.classes_ = model.classes_.copy()
    plain.n_features_in_ = plain.coef_.shape[1]
    plain.n_iter_ = np.array([model.n_iter_])
    encode = SchemaTransformer(model.schema_, model.columns)
    encode.schema_ = model.schema_
    encode.n_features_in_ = model.n_features_in_
    encode.feature_names_in_ = model.feature_names_in_.copy()
    return Pipeline([("encode", encode), ("classify", plain)])


__all__ = ["to_logistic_regression"]
