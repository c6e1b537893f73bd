"""Saving and loading fitted estimators, in the formats of ``sottovoce train --save``.

A file holds the run (or the model with named coefficients) and, as its ``estimator`` entry, the
estimator's class, parameters and fitted attributes as plain JSON: no file can make a loader run
code.  Numbers are kept to the last bit.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..algorithms import ANSWERS
from ..answers.coefficients import Coefficients
from ..answers.saved import SavedModel, public_record, starts_like_json
from ..data.schema import Schema
from ..errors import CheckpointError, InvalidInput, format_declared_value
from ..privacy.statement import Statement
from ..reports.notebook import ColumnTable
from ..runs.config import refusal_of_method
from ..runs.engine import UNREADABLE
from ..runs.registering import AUTO
from ..runs.simulate import Result
from ..util.compatibility import Refusal
from ..util.typing import Any

FITTED = (
    "coef_",
    "intercept_",
    "classes_",
    "sites_",
    "site_coef_",
    "site_intercept_",
    "y_bounds_",
    "edges_",
    "loss_",
    "n_iter_",
    "stopped_",
    "max_grad_norm_",
    "n_features_in_",
    "feature_names_in_",
    "coefficients_",
    "components_",
    "explained_variance_",
    "explained_variance_ratio_",
    "mean_",
    "noise_",
    "clear_",
    "correction_",
    "converged_",
    "_order",
    "_vector",
)
"""Fitted attributes that are saved; a file with any other one is refused."""
# Kinds of NumPy arrays that are read: numbers, truth values and texts, but no Python objects.
_KINDS = "fiubU"


def to_plain_json(value: Any) -> Any:
    """Convert a value for JSON, numbers to the last bit; TypeError for what is no plain data.

    JSON has neither tuples nor arrays, so these become dicts that :func:`from_plain_json` knows.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return {"number": value.hex()}
    if isinstance(value, np.ndarray):
        return _array_to_plain_json(value)
    if isinstance(value, tuple):
        return {"tuple": [to_plain_json(one) for one in value]}
    if isinstance(value, list):
        return [to_plain_json(one) for one in value]
    if isinstance(value, dict):
        return {"dict": [[to_plain_json(key), to_plain_json(one)] for key, one in value.items()]}
    raise TypeError(type(value).__name__)


def _array_to_plain_json(value: Any) -> dict[str, Any]:
    """Convert an array for JSON: its bytes in base64, or its texts."""
    if value.dtype == np.object_:
        return {"texts": [str(one) for one in value]}
    if value.dtype.kind not in _KINDS:
        raise TypeError(type(value).__name__)
    data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode("ascii")
    return {"array": data, "dtype": value.dtype.str, "shape": list(value.shape)}


def from_plain_json(value: Any) -> Any:
    """Undo :func:`to_plain_json`; a ValueError, TypeError or KeyError for what it did not write."""
    if isinstance(value, list):
        return [from_plain_json(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "number" in value:
        return float.fromhex(value["number"])
    if "texts" in value:
        return np.array([str(one) for one in value["texts"]], dtype=np.object_)
    if "tuple" in value:
        return tuple(from_plain_json(one) for one in value["tuple"])
    if "dict" in value:
        return {from_plain_json(key): from_plain_json(one) for key, one in value["dict"]}
    return _array_from_plain_json(value)


def _array_from_plain_json(value: dict[str, Any]) -> Any:
    """Undo :func:`_array_to_plain_json`."""
    kind = np.dtype(value["dtype"])
    if kind.kind not in _KINDS:
        raise ValueError("an array of another kind")
    array = np.frombuffer(base64.b64decode(value["array"]), dtype=kind)
    return array.reshape([int(n) for n in value["shape"]]).copy()


def save_fitted_estimator(model: Any, path: str | Path) -> None:
    """Write a fitted estimator to a file, which appears whole or not at all.

    Raises
    ------
    InvalidInput
        For one model of each class against the rest, which are several runs.
    NotWritten
        If the file cannot be written.
    """
    check_is_fitted(model, "privacy_spent_")
    result, answered = model._result, model._answered
    record = {
        "estimator": _record_of_estimator(model),
        "sites": [str(site) for site in np.ravel(model.sites_)],
    }
    schema = None
    if answered is not None and answered.schema is not None:
        schema = answered.schema.to_dict()
    if result is not None:
        result = replace(result, extra={"data": "a frame", "schema": schema} | record)
    # A model with named coefficients is one JSON file; any other is the file of its run.
    if answered is not None and answered.naming is not None:
        told = answered.record
        if result is not None:
            told = told | public_record(result)
        replace(answered, record=told | record).save(path)
        return
    if result is None:
        rule = "a file holds one run, and this model has one run for each class against the rest"
        raise InvalidInput(
            "loss", getattr(model, "loss_", None), rule, "fit with loss='softmax', or pickle it"
        )
    result.save(path)


def _record_of_estimator(model: Any) -> dict[str, Any]:
    """Return the estimator's class, parameters and fitted attributes, as JSON holds them."""
    # A ledger stays in its process, and a seed would make later fits simulations.
    parameters = model.get_params(deep=False) | {"ledger": None, "random_state": None}
    parameters["schema"] = None
    if model.schema_ is not None:
        parameters["schema"] = model.schema_.to_dict()
    kept = {name: value for name, value in parameters.items() if name in model._get_param_names()}
    fitted = {name: getattr(model, name) for name in FITTED if name in vars(model)}
    table = fitted.get("coefficients_")
    if isinstance(table, Coefficients):
        fitted["coefficients_"] = table.to_plain_data()
    return {
        "class": type(model).__name__,
        "parameters": to_plain_json(kept),
        "fitted": to_plain_json(fitted),
    }


def load_fitted_estimator(kind: Any, path: str | Path) -> Any:
    """Load a fitted estimator of the class `kind` from a file, which is not trusted.

    Raises
    ------
    CheckpointError
        If it is no saved estimator of this class.
    """
    place = Path(path)
    answered: SavedModel | None
    result: Result | None
    refused: Refusal | None = None
    try:
        if starts_like_json(place):
            named = SavedModel.load(place)
            answered, result = named, None
            record = named.record
            statement = Statement.from_dict(record["privacy"])
        else:
            result = Result.load(place)
            record, statement = result.extra, result.statement
            answered = None
            if record.get("schema") is not None and result.config.method not in ANSWERS:
                answered = SavedModel.from_result(result)
        refused = _refusal_of_method(record["estimator"])
        # A later fit would load the package of the method, which a file must not choose.
        if refused is not None:
            raise ValueError("a method that is not known")
        model = _estimator_from_record(kind, record["estimator"])
    except UNREADABLE as error:
        rule = refused or "not a saved estimator of this class; use a file that its save() wrote"
        raise CheckpointError(f"run={format_declared_value(place)}: {rule}") from error
    model._answered = answered
    model._result = result
    model.privacy_spent_ = statement.to_dict()
    return model


def _refusal_of_method(told: Any) -> Refusal | None:
    """Return why the method of a record is refused; None if it is known or "auto"."""
    parameters = from_plain_json(told["parameters"])
    if parameters.get("method") == AUTO:
        return None
    return refusal_of_method(parameters)


def _estimator_from_record(kind: Any, told: Any) -> Any:
    """Construct an estimator of the class `kind` with its fitted attributes, from a record.

    Raises one of :data:`sottovoce.runs.engine.UNREADABLE` for any other record.
    """
    parameters, fitted = from_plain_json(told["parameters"]), from_plain_json(told["fitted"])
    if told["class"] != kind.__name__ or not set(parameters) <= set(kind._get_param_names()):
        raise ValueError("another estimator")
    model = kind(**parameters)
    if not set(fitted) <= set(FITTED):
        raise ValueError("another attribute")
    table = fitted.get("coefficients_")
    if isinstance(table, dict) and "covariance" in table:
        fitted["coefficients_"] = Coefficients.from_plain_data(table)
    elif isinstance(table, dict):
        fitted["coefficients_"] = ColumnTable(table)
    vars(model).update(fitted)
    if parameters["schema"] is not None:
        model.schema_ = Schema.from_dict(parameters["schema"])
    return model
