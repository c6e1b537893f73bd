"""Frames of pandas, polars and pyarrow, dicts and arrays with names: the same table, and
refusals without values.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from sottovoce.data import Schema, frames
from sottovoce.data.frames import read_frame
from sottovoce.data.table import Table, column_as_text
from sottovoce.errors import InvalidInput
from sottovoce.util.later import Later

SECRET = "Alice Smith"
COLUMNS: dict[str, list[Any]] = {
    "age": [30, None, 50],
    "dose": [1.5, None, 2.0],
    "ward": ["icu", None, "general"],
    "smoker": [True, None, False],
    "known": [True, False, True],
    "seen": [dt.datetime(2020, 1, 1, 5), None, dt.datetime(2021, 1, 1)],
    "born": [dt.date(1950, 1, 1), None, dt.date(1960, 2, 3)],
}
SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"kind": "number", "lo": 0, "hi": 100, "missing": 40},
            "dose": {"kind": "bins", "edges": [0, 1, 2, 3], "indicator": True},
            "ward": {"kind": "category", "values": ["general", "icu"], "indicator": True},
            "smoker": {"kind": "category", "values": ["false", "true"], "missing": "false"},
            "known": {"kind": "number", "lo": 0, "hi": 1, "to": "[0,1]"},
            "seen": {
                "kind": "date",
                "epoch": "2020-01-01",
                "lo": 0,
                "hi": 1000,
                "missing": 500,
                "indicator": True,
            },
            "born": {
                "kind": "date",
                "epoch": "1900-01-01",
                "unit": "years",
                "lo": 0,
                "hi": 120,
                "missing": 60,
            },
        }
    }
)


VECTOR = {"kind": "vector", "lo": -1, "hi": 1, "size": 2, "norm": 1.0}


def framed(library: str, columns: dict[str, list[Any]] = COLUMNS) -> Any:
    if library == "pyarrow":
        return pytest.importorskip("pyarrow").table(columns)
    if library == "dict":
        return columns
    module = pytest.importorskip(library)
    return module.DataFrame(columns)


LIBRARIES = ("pandas", "polars", "pyarrow", "dict")


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_library_gives_the_same_rows(library: str) -> None:
    expected = [
        [-0.4, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, -1.0 + 2 * 5 / 24 / 1000, 0.0],
        [-0.2, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        [0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, -1.0 + 2 * 366 / 1000, 0.0],
    ]
    found = SCHEMA.encode(read_frame(framed(library)), labels=False)
    np.testing.assert_allclose(found.X[:, :-1] * SCHEMA.divisor, expected, atol=1e-6)
    assert found.clipped == {} and np.linalg.norm(found.X, axis=1).max() <= 1.0
    assert list(read_frame(framed(library)).columns) == list(COLUMNS)


@pytest.mark.parametrize("library", LIBRARIES[:3])
def test_a_schema_encodes_a_frame_as_it_is(library: str) -> None:
    frame = framed(library)
    assert np.array_equal(
        SCHEMA.encode(frame, labels=False).X, SCHEMA.encode(read_frame(frame), labels=False).X
    )


def test_pandas_own_kinds_of_columns() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "category": pd.Categorical(["a", None, "b"]),
            "whole": pd.array([2**53 + 1, None, 3], dtype="Int64"),
            "truth": pd.array([True, None, False], dtype="boolean"),
            "zone": pd.to_datetime(["2020-01-01 05:00", None, "2020-07-01 00:00"]).tz_localize(
                "Europe/Berlin"
            ),
            "mixed": np.array([1, pd.NA, "x"], dtype=object),
            "day": pd.to_datetime(["2020-01-01", None, "2020-07-01"]),
            7: [1.0, np.nan, 3.0],
        }
    )
    table = read_frame(frame)
    assert table.columns["category"].tolist() == ["a", None, "b"]
    assert table.columns["whole"].tolist() == [2**53 + 1, None, 3]  # no digit is lost to a gap
    assert table.columns["truth"].tolist() == [True, None, False]
    assert table.columns["mixed"].tolist() == [1, None, "x"]
    assert column_as_text(table.columns["zone"]).tolist() == [
        "2020-01-01T04:00:00.000000",
        "",
        "2020-06-30T22:00:00.000000",
    ]
    assert column_as_text(table.columns["day"]).tolist() == ["2020-01-01", "", "2020-07-01"]
    assert table.columns["7"].tolist() == [1.0, None, 3.0]


def test_polars_own_kinds_of_columns() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(
        {
            "text": ["a", None, "b"],
            "n": ["1.50", None, "2"],
            "v": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
        }
    )
    frame = frame.with_columns(
        pl.col("text").cast(pl.Categorical), pl.col("n").cast(pl.Decimal(10, 2))
    )
    table = read_frame(frame)
    assert table.columns["text"].tolist() == ["a", None, "b"]
    assert table.columns["n"].tolist() == [Decimal("1.50"), None, Decimal("2.00")]
    assert table.columns["v"].shape == (3, 2)
    with pytest.raises(InvalidInput, match=r"^X=<LazyFrame>: .*in memory"):
        read_frame(frame.lazy())


def test_arrays_with_column_names_are_read() -> None:
    records = np.array(
        [(1, 2.5, "a"), (2, np.nan, "b")], dtype=[("n", int), ("x", float), ("t", "U3")]
    )
    assert {k: v.tolist() for k, v in read_frame(records).columns.items()} == {
        "n": [1, 2],
        "x": [2.5, None],
        "t": ["a", "b"],
    }
    X = np.array([[1.0, np.nan], [2.0, 3.0]])
    table = read_frame(X, ["u", "v"])
    assert table.columns["v"].tolist() == [None, 3.0] and list(table.columns) == ["u", "v"]
    assert read_frame(X.tolist(), ["u", "v"]).columns["u"].tolist() == [1.0, 2.0]
    assert read_frame(table) is table
    with pytest.raises(InvalidInput) as refusal:
        read_frame(X, ["u", "v", "w"])
    assert refusal.value.field == "X"
    assert "(n, 3)" in refusal.value.rule and "(2, 2)" in refusal.value.rule


@pytest.mark.parametrize("given", [np.ones((2, 2)), [[SECRET]], 5, SECRET, None])
def test_data_without_column_names_is_refused_and_not_shown(given: Any) -> None:
    with pytest.raises(InvalidInput) as refusal:
        read_frame(given)
    said = str(refusal.value)
    assert said.startswith("X=<") or said.startswith("X: ")
    assert SECRET not in said and "\n" not in said and isinstance(refusal.value, TypeError)


def test_a_column_that_cannot_be_read_is_named_and_its_values_are_not() -> None:
    pl = pytest.importorskip("polars")
    with pytest.raises(InvalidInput, match="cannot be read") as refusal:
        read_frame(pl.DataFrame({"v": [{"a": 31337.0}, {"a": 1.0}]}))
    assert refusal.value.field == "v"
    assert refusal.value.__context__ is None and "31337" not in str(refusal.value)
    for ragged in ([[31337.0], [1.0, 2.0]], [[31337.0, 1.0], None], [[31337.0, 1.0], [None, 2.0]]):
        frame = pl.DataFrame({"v": pl.Series(ragged, dtype=pl.List(pl.Float64))})
        # a survey counts those that are fine
        assert read_frame(frame).columns["v"].tolist() == ragged
        with pytest.raises(InvalidInput, match=r"list of 2") as refusal:
            Schema.from_dict({"columns": {"v": VECTOR}}).encode(read_frame(frame), labels=False)
        assert refusal.value.field == "v"
    pd = pytest.importorskip("pandas")
    twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(InvalidInput, match="column once"):
        read_frame(twice)


def test_one_row_does_not_change_how_another_is_read() -> None:
    """A time of day in one row leaves the text of the others; a gap leaves their numbers."""
    days = np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[us]")
    times = np.array(["2020-01-01", "2020-01-02T10:00"], dtype="datetime64[us]")
    assert column_as_text(days)[0] == column_as_text(times)[0] == "2020-01-01"
    whole, gap = (read_frame({"a": np.array([1.0, x])}).columns["a"] for x in (2.0, np.nan))
    assert column_as_text(whole)[0] == column_as_text(gap)[0] == "1"


def test_truth_values_are_one_in_frames_and_in_files() -> None:
    schema = Schema.from_dict({"columns": {"s": {"kind": "category", "values": ["false", "true"]}}})
    for values in (
        np.array([True, False]),
        ["True", "False"],
        ["true", "false"],
        ["TRUE", "FALSE"],
    ):
        found = schema.encode(Table("t", {"s": np.asarray(values)}), labels=False)
        assert np.array_equal(found.X > 0, [[False, True], [True, False]]) and not found.clipped


def test_without_narwhals_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = framed("pandas")
    monkeypatch.setattr(frames, "nw", Later("narwhals_that_is_not_there"))
    with pytest.raises(InvalidInput, match=r"pip install 'sottovoce\[frames\]'"):
        read_frame(frame)
    assert read_frame(framed("dict")).n_rows == 3  # needs none
