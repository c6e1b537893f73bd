"""A fitted classifier as an object of scikit-learn."""

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


def as_sklearn(model: Any) -> LogisticRegression | Pipeline:
    """A fitted ``LogisticRegression`` with a classifier's coefficients; under a schema behind its
    transformer.

    Raises
    ------
    InvalidInput
        If the loss is another than the logistic one, classes were trained against the rest, or
        coefficients are those of inference under a schema.
    """
    check_is_fitted(model, "coef_")
    loss = str(getattr(model, "loss_", model.loss))
    if not (loss == "logistic" and len(model.coef_) == 1) and loss != "softmax":
        rule = (
            "scikit-learn's LogisticRegression has the logistic loss, or softmax for several "
            "classes"
        )
        raise InvalidInput("loss", loss, rule, "use loss='softmax' for several classes")
    plain = LogisticRegression()
    if model.schema_ is not None:
        return _of_columns(model, plain)
    plain.coef_, plain.intercept_, plain.classes_ = (
        model.coef_.copy(),
        model.intercept_.copy(),
        model.classes_.copy(),
    )
    plain.n_features_in_, plain.n_iter_ = model.n_features_in_, np.array([model.n_iter_])
    if hasattr(model, "feature_names_in_"):
        plain.feature_names_in_ = model.feature_names_in_.copy()
    return plain


def _of_columns(model: Any, plain: LogisticRegression) -> Pipeline:
    """The pipeline from raw columns."""
    answered: SavedModel = model._answered
    if answered.naming is not None or answered.schema is None:
        rule = "with inference, rows are encoded in another way than a transformer does"
        raise InvalidInput("inference", True, rule, "use sottovoce export, or leave inference out")
    vectors = np.atleast_2d(answered.schema.task.vectors(answered.model))
    plain.coef_ = Labelled(model.classes_, model._order, model._order).sorted(vectors)
    plain.intercept_, plain.classes_ = np.zeros(len(plain.coef_)), model.classes_.copy()
    plain.n_features_in_, plain.n_iter_ = plain.coef_.shape[1], np.array([model.n_iter_])
    encode = SchemaTransformer(model.schema_, model.columns)
    encode.schema_, encode.n_features_in_ = model.schema_, model.n_features_in_
    encode.feature_names_in_ = model.feature_names_in_.copy()
    return Pipeline([("encode", encode), ("classify", plain)])


__all__ = ["as_sklearn"]
