"""Dates in a schema, and indicators of missing values: norms, names, refusals, round trips."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import numpy as np
import pytest

from sottovoce.answers.terms import into_units, naming_from_schema
from sottovoce.data import Schema
from sottovoce.data.check import review
from sottovoce.data.columns import Number
from sottovoce.data.dates import UNITS, Date
from sottovoce.data.expected import sketch
from sottovoce.errors import SchemaError

DAY = {"kind": "date", "epoch": "2020-01-01", "lo": "2019-01-01", "hi": "2024-12-31"}


def one(block: dict[str, Any], **more: Any) -> Schema:
    return Schema.from_dict({"columns": {"a": block}} | more)


def test_bounds_may_be_dates_and_are_kept_as_units() -> None:
    text = (
        'columns.a = {kind = "date", epoch = 2020-01-01, lo = 2019-01-01, hi = 2024-12-31, '
        "typical = [2020-01-01, 400]}"
    )
    schema = Schema.from_dict(tomllib.loads(text))
    (block,) = schema.blocks
    assert isinstance(block, Date) and (block.lo, block.hi, block.typical) == (
        -365.0,
        1826.0,
        (0.0, 400.0),
    )
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    years = one(DAY | {"unit": "years"}).blocks[0]
    assert isinstance(years, Date) and years.hi == pytest.approx(1826 / 365.25)


def test_one_day_as_text_point_in_time_or_zoned_time_is_encoded_alike() -> None:
    schema = one(DAY)
    for values in (
        ["2020-01-01", "2021-01-01"],
        ["2020-01-01T00:00:00Z", "2021-01-01T02:00:00+02:00"],
        np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]"),
        np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[ns]"),
    ):
        found = schema.encode({"a": np.asarray(values)}, labels=False).X[:, 0]
        np.testing.assert_allclose(found, 2 * (np.array([0.0, 366.0]) + 365) / 2191 - 1, atol=1e-9)


@pytest.mark.parametrize("unit", UNITS)
def test_dates_are_scaled_by_the_unit_of_time(unit: str) -> None:
    schema = one(
        {"kind": "date", "epoch": "2020-01-01", "unit": unit, "lo": 0, "hi": 10, "to": "[0,1]"}
    )
    later = np.datetime64("2020-01-01", "us") + np.timedelta64(round(5 * UNITS[unit] * 1e6), "us")
    assert schema.encode({"a": np.array([later])}, labels=False).X[0, 0] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epoch": "soon"}, "epoch"),
        ({"unit": "moons"}, "unit"),
        ({"lo": "soon"}, "right type"),
        ({"lo": "2025-01-01"}, "lo, hi"),
        ({"epoch": None}, "epoch"),
    ],
)
def test_invalid_date_declarations_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        one({k: v for k, v in (DAY | change).items() if v is not None})


@pytest.mark.parametrize("bad", [["Alice", "2020-01-01"], [1.0, 2.0], ["2020-13-01", ""]])
def test_value_that_is_no_date_is_refused_and_not_shown(bad: list[Any]) -> None:
    with pytest.raises(SchemaError, match="not a date") as refusal:
        one(DAY).encode({"a": np.array(bad)}, labels=False)
    assert refusal.value.field == "a"
    assert "Alice" not in str(refusal.value) and "13" not in str(refusal.value)


def test_date_declared_as_a_number_is_refused_with_kind_date_as_remedy() -> None:
    points = np.array(["2020-01-01"], dtype="datetime64[us]")
    with pytest.raises(SchemaError, match='kind = "date"'):
        one({"kind": "number", "lo": 0, "hi": 1}).encode({"a": points}, labels=False)


MARKED: list[dict[str, Any]] = [
    {"kind": "number", "lo": 0, "hi": 10, "missing": 5, "indicator": True},
    {"kind": "number", "lo": 0, "hi": 10, "missing": 2, "indicator": True, "typical": [1, 4]},
    {"kind": "number", "lo": 0, "hi": 10, "missing": 0.5, "indicator": True, "transform": "log1p"},
    DAY | {"missing": "2020-06-01", "indicator": True},
    {"kind": "bins", "edges": [0, 1, 2], "indicator": True},
    {"kind": "bins", "edges": [0, 1, 2], "indicator": True, "base": 0},
    {"kind": "category", "values": ["x", "y"], "indicator": True},
    {"kind": "category", "values": ["x", "y"], "indicator": True, "other": True, "base": "x"},
]


@pytest.mark.parametrize("block", MARKED, ids=lambda block: f"{block['kind']}-{len(block)}")
def test_a_missing_value_is_marked_and_rows_stay_in_the_ball(block: dict[str, Any]) -> None:
    schema = one(block, intercept=True)
    known = {"date": "2020-03-04", "category": "y"}.get(block["kind"], "1.5")
    X = (
        schema.encode({"a": np.array([known, "", "?"])}, labels=False).X
        if "?" in schema.na
        else None
    )
    X = schema.encode({"a": np.array([known, ""])}, labels=False).X if X is None else X
    mark = schema.feature_names.index("a=missing")
    assert X[0, mark] == 0.0 and X[1, mark] > 0.0
    assert np.linalg.norm(X, axis=1).max() <= 1.0 and schema.blocks[0].reach >= 1.0
    assert X.shape[1] == schema.n_features == sketch(schema, 5, np.random.default_rng(0)).shape[1]
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    counts = {one.column: one.what for one in review(schema, {"a": np.array([known, ""])}).counts}
    assert (
        "missing: counts as" in counts["a"]
        if review(schema, {"a": np.array([known, ""])}).counts
        else True
    )


def test_value_and_missing_indicator_have_norm_at_most_one() -> None:
    for missing in (0.7, 5.0, 9.3):
        block = Number("a", 0.0, 10.0, missing=missing, indicator=True)
        features, _ = block.encode({"a": np.array([""])}, frozenset())
        assert float(np.linalg.norm(features)) == pytest.approx(1.0) and block.reach == 1.0
    with pytest.raises(SchemaError, match=r"^a.missing.*no room"):
        Number("a", 0.0, 10.0, missing=0.0, indicator=True)
    with pytest.raises(SchemaError, match=r"^a.indicator.*declare missing"):
        Number("a", 0.0, 10.0, indicator=True)
    for kind in (
        {"kind": "bins", "edges": [0, 1, 2], "missing": 1},
        {"kind": "category", "values": ["x"], "missing": "x"},
    ):
        with pytest.raises(SchemaError, match=r"^a\.indicator"):
            one(kind | {"indicator": True})


def test_unknown_and_missing_categories_are_told_apart() -> None:
    schema = one(
        {"kind": "category", "values": ["x", "y"], "other": True, "indicator": True}, na=["?"]
    )
    assert schema.feature_names == ["a=x", "a=y", "a=other", "a=missing"]
    X = schema.encode({"a": np.array(["x", "z", "", "?", None], dtype=object)}, labels=False).X
    assert (X > 0).argmax(axis=1).tolist() == [0, 2, 3, 3, 3] and np.all((X > 0).sum(axis=1) == 1)


def test_coefficients_are_per_unit_of_each_column() -> None:
    """A model's margin is that of its coefficients in the columns' units, marks and dates
    included.
    """
    schema = Schema.from_dict(
        {"intercept": True, "columns": {f"c{k}": block for k, block in enumerate(MARKED)}}
    )
    w = np.random.default_rng(0).normal(size=schema.n_features)
    coefficients = into_units(schema) @ w
    row = {
        "c0": "7",
        "c1": "",
        "c2": "3",
        "c3": "2021-01-01",
        "c4": "1.5",
        "c5": "",
        "c6": "",
        "c7": "z",
    }
    X = schema.encode({k: np.array([v]) for k, v in row.items()}, labels=False).X
    days = float((np.datetime64("2021-01-01") - np.datetime64("2020-01-01")).astype(int))
    values = {
        "c0": 7,
        "c1": 2,
        "c1=missing": 1,
        "c2": np.log1p(3),
        "c3": days,
        "c4[1,2]": 1,
        "c5=missing": 1,
    }
    values |= {"c6=missing": 1, "c7=other": 1}
    shown = (
        sum(coefficients[schema.feature_names.index(name)] * x for name, x in values.items())
        + coefficients[-1]
    )
    length = np.linalg.norm(X[0])
    assert length < 0.999  # not shortened
    assert float(X[0] @ w) == pytest.approx(shown, rel=1e-9)
    named = [term.text for term in naming_from_schema(schema).terms]
    assert "c3: missing" in named and "c5: missing" in named and "c7: missing" in named
