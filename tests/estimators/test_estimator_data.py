"""What fit and predict say of X, y and groups that they cannot take: one line, no data value, no
bad advice.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array
from sklearn.exceptions import DataConversionWarning

from sottovoce import ConsensusClassifier
from sottovoce.errors import InvalidInput
from sottovoce.runs.row_guard import RowGuard

SECRET, NUMBER = "Alice Smith", 31337.25
rng = np.random.default_rng(0)
X = rng.normal(size=(30, 3))
Y = np.array(["no", "yes"])[np.arange(30) % 2]


def with_entry(value: object) -> np.ndarray[Any, Any]:
    table = X.astype(object)
    table[4, 1] = value
    return table


def holed(value: float) -> np.ndarray[Any, Any]:
    table = X.copy()
    table[4, 1] = value
    return table


class Odd:
    """A container whose own error shows a value."""

    def __array__(self, *_: object, **__: object) -> np.ndarray[Any, Any]:
        raise RuntimeError(f"no array: {SECRET}")


BAD_TABLES: dict[str, tuple[Any, str]] = {
    "text": (with_entry(SECRET), "text that is not a number"),
    "text-array": (np.full((30, 3), SECRET), "text that is not a number"),
    "text-list": ([[1.0, SECRET, 2.0]] * 30, "text that is not a number"),
    "bytes": (with_entry(SECRET.encode()), "X: "),
    "nan": (holed(np.nan), "NaN or infinite"),
    "inf": (holed(np.inf), "NaN or infinite"),
    "object-nan": (with_entry(np.nan), "NaN or infinite"),
    "none": (with_entry(None), "NaN or infinite|no numbers"),
    "sparse-nan": (csr_array(holed(np.nan)), "NaN or infinite"),
    "huge": (with_entry(10**400), "NaN or infinite"),
    "dict": (with_entry({SECRET: NUMBER}), "argument must be a string or a real number"),
    "list-entry": (with_entry([NUMBER]), "X: "),
    "complex": (X + 1j, "Complex data not supported"),
    "complex-entry": (with_entry(NUMBER + 1j), "X: "),
    "ragged": ([[1.0, NUMBER], [NUMBER]] * 15, "several lengths"),
    "1-d": (X[0], "Reshape your data"),
    "0-d": (np.array(NUMBER), "Reshape your data"),
    "3-d": (X[None], "Reshape your data"),
    "no-rows": (X[:0], r"0 sample\(s\)"),
    "no-columns": (X[:, :0], r"0 feature\(s\)"),
    "string": (SECRET, "X: "),
    "none-at-all": (None, "X: "),
    "odd": (Odd(), "cannot be read"),
}


def refusal(
    action: Callable[[], object], secret: tuple[str, ...] = (SECRET, "Alice", "31337")
) -> InvalidInput:
    """The error of `action`, which has no other behind it and shows no data value, not in its
    traceback either.
    """
    with pytest.raises(InvalidInput) as caught:
        action()
    error = caught.value
    shown = "".join(traceback.format_exception_only(error)) + str(error) + repr(error)
    for value in (*secret, "mpute", "sklearn", "http"):
        assert value not in shown, value
    assert isinstance(error, ValueError)
    assert error.__cause__ is None and error.__context__ is None
    return error


@pytest.fixture
def unspent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No question may reach the rows."""

    def asked(*_: object) -> None:
        raise AssertionError("a query was answered")

    monkeypatch.setattr(RowGuard, "_charge_and_draw", asked)


@pytest.fixture(scope="module")
def fitted() -> ConsensusClassifier:
    return ConsensusClassifier(classes=["no", "yes"], n_sites=2, rounds=1, random_state=0).fit(X, Y)


@pytest.mark.parametrize("kind", BAD_TABLES)
@pytest.mark.parametrize("release", [True, False])
def test_fit_on_a_bad_table(unspent: None, kind: str, release: bool) -> None:
    table, words = BAD_TABLES[kind]
    model = (
        ConsensusClassifier(classes=["no", "yes"])
        if release
        else ConsensusClassifier(random_state=0)
    )
    error = refusal(lambda: model.fit(table, Y))
    assert "\n" not in str(error) and str(error).startswith("X: ")
    assert pytest.raises(InvalidInput, match=words).matches(error)
    if kind == "nan":
        assert "public constant" in str(error)


@pytest.mark.parametrize(
    "method", ["predict", "decision_function", "predict_proba", "predict_log_proba"]
)
@pytest.mark.parametrize("kind", BAD_TABLES)
def test_predict_on_a_bad_table(fitted: ConsensusClassifier, kind: str, method: str) -> None:
    table, words = BAD_TABLES[kind]
    error = refusal(lambda: getattr(fitted, method)(table))
    assert "\n" not in str(error) and str(error).startswith("X: ")
    assert pytest.raises(InvalidInput, match=words).matches(error)


def test_a_kind_that_scikit_learn_calls_a_type_error_is_one_too(unspent: None) -> None:
    with pytest.raises(TypeError):
        ConsensusClassifier(random_state=0).fit(BAD_TABLES["dict"][0], Y)


def test_predict_refuses_another_number_of_columns(fitted: ConsensusClassifier) -> None:
    error = refusal(lambda: fitted.predict(X[:, :2]))
    # words that scikit-learn's own checks look for
    mismatch = "X has 2 features, but ConsensusClassifier is expecting 3 features as input"
    assert mismatch in str(error)


BAD_LABELS: dict[str, tuple[Any, str]] = {
    "none": (None, "requires y to be passed, but the target y is None"),
    "short": (Y[:-1], "a label for each of the 30 rows"),
    "two-columns": (np.column_stack([Y, Y]), "1d array|has shape"),
    "scalar": (np.array(SECRET), "y: "),
    "text": (SECRET, "y: "),
    "sparse": (csr_array(np.eye(30)), "y: "),
    "odd": (Odd(), "cannot be read"),
}
BAD_LABELS_TO_READ: dict[str, tuple[Any, str]] = {
    "continuous": (np.linspace(0.5, NUMBER, 30), "Unknown label type: continuous"),
    "nan": (np.where(np.arange(30) == 3, np.nan, 1.0), "NaN or infinite"),
    "inf": (np.where(np.arange(30) == 3, np.inf, 1.0), "NaN or infinite"),
    "object-nan": (np.array([np.nan, *Y[1:]], dtype=object), "y: "),
    "missing": (np.array([None, *Y[1:]], dtype=object), "y: "),
    "mixed": (np.array([NUMBER, SECRET, *Y[2:]], dtype=object), "y: "),
    "objects": (np.array([{SECRET: 1}] * 30, dtype=object), "y: "),
    "bytes": (np.array([SECRET.encode()] * 30), "y: "),
    "lists": ([[SECRET], [SECRET, "b"]] * 15, "y: "),
    "complex": (np.arange(30) + 1j, "y: "),
    "one": (np.full(30, SECRET), "only one class"),
}


@pytest.mark.parametrize("kind", [*BAD_LABELS, *BAD_LABELS_TO_READ])
def test_fit_on_bad_labels(unspent: None, kind: str) -> None:
    labels, words = (BAD_LABELS | BAD_LABELS_TO_READ)[kind]
    error = refusal(lambda: ConsensusClassifier(random_state=0).fit(X, labels))
    assert "\n" not in str(error) and str(error).startswith("y: ")
    assert pytest.raises(InvalidInput, match=words).matches(error)


@pytest.mark.parametrize("kind", BAD_LABELS)
def test_a_release_refuses_the_shape_of_labels_only(unspent: None, kind: str) -> None:
    labels, words = BAD_LABELS[kind]
    error = refusal(lambda: ConsensusClassifier(classes=["no", "yes"]).fit(X, labels))
    assert "\n" not in str(error) and str(error).startswith("y: ")
    assert pytest.raises(InvalidInput, match=words.replace("1d array|", "")).matches(error)


def test_a_column_of_labels_is_taken(unspent: None) -> None:
    with (
        pytest.warns(DataConversionWarning),
        pytest.raises(AssertionError, match="was answered"),
    ):
        ConsensusClassifier(random_state=0).fit(X, Y[:, None])
    with pytest.raises(AssertionError, match="was answered"):
        ConsensusClassifier(classes=["no", "yes"]).fit(X, Y[:, None])


@pytest.mark.parametrize(
    "groups",
    [
        ["north"] * 29,
        [["north", SECRET]] * 30,
        [[SECRET], [SECRET, "b"]] * 15,
        SECRET,
        {SECRET: 1},
        [None, *["north"] * 29],
        [np.nan, *[1.0] * 29],
        Odd(),
    ],
    ids=["short", "two", "ragged", "text", "dict", "none", "nan", "odd"],
)
def test_invalid_groups_are_refused(unspent: None, groups: Any) -> None:
    error = refusal(lambda: ConsensusClassifier(classes=["no", "yes"]).fit(X, Y, groups=groups))
    assert "\n" not in str(error) and str(error).startswith("groups: ")


def test_sparse_formats_are_taken() -> None:
    knobs = {"classes": ["no", "yes"], "n_sites": 2, "rounds": 1, "random_state": 0}
    models = [ConsensusClassifier(**knobs).fit(kind(X), Y) for kind in (csr_array, coo_array)]
    assert np.array_equal(models[0].coef_, models[1].coef_)


def frame(names: list[str], values: np.ndarray[Any, Any] = X) -> Any:
    pa = pytest.importorskip("pyarrow")
    return pa.Table.from_arrays([pa.array(column) for column in values.T], names=names)


def test_names_of_columns_cannot_reach_a_terminal_as_commands() -> None:
    escape = "\x1b[2J\x07dose"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ConsensusClassifier(classes=["no", "yes"], n_sites=2, rounds=1, random_state=0)
        model.fit(frame(["age", "weight", escape]), Y)
        assert model.predict(frame(["age", "weight", escape])).shape == (30,)
    for names in (
        ["age", "weight", "dose"],
        ["age", escape, "weight"],
        ["age", "weight", f"other{escape}"],
    ):
        error = refusal(lambda names=names: model.predict(frame(names)))  # type: ignore[misc]
        assert error.field == "X" and "feature names should" in str(error)
        assert all(c.isprintable() or c == "\n" for c in str(error))
    assert r"\x1b[2J\x07dose" in str(error)


def test_names_that_read_as_numbers_may_be_a_row_of_a_file_without_a_header() -> None:
    model = ConsensusClassifier(classes=["no", "yes"], n_sites=2, rounds=1, random_state=0)
    model.fit(frame(["age", "weight", "dose"]), Y)
    error = refusal(lambda: model.predict(frame(["31337.25", SECRET, "70"])))
    assert "header" in str(error) and "- dose" in str(error)
