"""Labels of a schema beside two classes: several classes and bounded numbers, and what does not
fit them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.data import ClassLabel, NumberLabel, Schema
from sottovoce.data.labels import build_rows_for_task, require_two_classes
from sottovoce.data.memmap import map_parquet
from sottovoce.data.schema import BEYOND
from sottovoce.data.schema import LABEL as UNKNOWN
from sottovoce.deploy.asks import Asks
from sottovoce.deploy.recipes import price_recipes
from sottovoce.deploy.settings import load_rows
from sottovoce.errors import InvalidInput, SchemaError
from sottovoce.problem.losses import Logistic
from sottovoce.problem.task import BoundedNumber, ManyClasses, TwoClasses
from sottovoce.runs.config import RunConfig

COLUMNS = {"a": {"kind": "number", "lo": 0, "hi": 1}}
KINDS = {"column": "y", "values": ["home", "ward", 3]}
DAYS = {"column": "y", "lo": 0, "hi": 60, "unit": "days"}


def schema(label: Any, **more: Any) -> Schema:
    return Schema.from_dict({"label": label, "columns": COLUMNS, "intercept": True} | more)


def encoded(label: Any, values: Any, **more: Any) -> Any:
    return schema(label, **more).encode(
        {"a": [0.5] * len(values), "y": np.array(values, dtype=object)}
    )


def test_several_classes_are_numbered_as_declared_and_others_are_rows_of_zeros() -> None:
    rows = encoded(KINDS, ["ward", "home", 3.0, "3", "elsewhere", "", None])
    assert rows.y.tolist() == [1, 0, 2, 2, -1, -1, -1]
    assert not rows.X[4:].any() and np.all(rows.X[:4, -1] > 0)
    assert rows.clipped == {UNKNOWN: 3}
    assert schema(KINDS).task == ManyClasses(("home", "ward", "3"))


def test_of_two_values_the_second_is_the_positive_one() -> None:
    assert schema({"column": "y", "values": ["no", "yes"]}).task == TwoClasses(("no", "yes"))
    assert encoded({"column": "y", "values": ["no", "yes"]}, ["yes", "no", "?"]).y.tolist() == [
        1.0,
        -1.0,
        0.0,
    ]


def test_numbers_are_scaled_by_the_bounds_clipped_and_counted() -> None:
    rows = encoded(DAYS, ["30", 60, "0", "90", -5, "1e400", "-", "", "many", "nan"], na=["-"])
    np.testing.assert_array_equal(rows.y, [0, 1, -1, 1, -1, 1, np.nan, np.nan, np.nan, np.nan])
    assert not rows.X[6:].any() and np.all(rows.X[:6, -1] > 0)
    assert rows.clipped == {UNKNOWN: 4, BEYOND: 3}
    assert schema(DAYS).task == BoundedNumber(0, 60, "days")


def test_stray_text_in_a_numeric_label_affects_only_its_row() -> None:
    typed = schema(DAYS).encode({"a": [0.5] * 3, "y": np.array([1.0, 2.5, 70.0])})
    text = encoded(DAYS, ["1.0", "2.5", "70", "?"])
    np.testing.assert_array_equal(typed.y, text.y[:3])


@pytest.mark.parametrize("label", [KINDS, DAYS, {"column": "y", "lo": -1.5, "hi": 2}])
def test_a_schema_with_such_a_label_survives_json(label: dict[str, Any]) -> None:
    given = schema(label)
    assert Schema.from_dict(json.loads(json.dumps(given.to_dict(), allow_nan=False))) == given
    assert given.fingerprint != schema({"column": "y", "positive": "home"}).fingerprint


@pytest.mark.parametrize(
    "label",
    [
        {"column": "y", "values": ["a"]},
        {"column": "y", "values": ["a", "a"]},
        {"column": "y", "values": "ab"},
        {"column": "y", "values": ["a", ["b"]]},
        {"column": "y", "values": ["a", ""]},
        {"values": ["a", "b"]},
        {"column": "y", "lo": 0},
        {"column": "y", "lo": 1, "hi": 1},
        {"column": "y", "lo": "0", "hi": 1},
        {"column": "y", "lo": 0, "hi": float("inf")},
        {"column": "y", "lo": 0, "hi": 1, "unit": "a\nb"},
        {"column": "y", "lo": 0, "hi": 1, "positive": "yes"},
        {"column": "y", "values": 3},
        "y",
        {"column": "y", "positive": "a", "negative": "a"},
        {"column": "y", "lo": True, "hi": 3},
    ],
)
def test_bad_labels_are_refused_in_one_line(label: Any) -> None:
    with pytest.raises(SchemaError) as caught:
        schema(label)
    assert caught.value.field == "label" and "\n" not in str(caught.value)


def test_labels_can_be_declared_in_python_too() -> None:
    assert schema(KINDS).label == ClassLabel("y", ("home", "ward", "3"))
    assert schema(DAYS).label == NumberLabel("y", 0, 60, "days")


def test_rows_are_those_that_losses_of_the_kind_take() -> None:
    X = np.full((3, 2), 0.5)
    two = build_rows_for_task(TwoClasses(), [(X, np.array([1.0, -1.0, 0.0]))])
    assert (two.outputs, two.has_offset) == (1, False)
    many = build_rows_for_task(ManyClasses(("a", "b", "c")), [(X, np.array([2, 0, -1]))])
    assert many.labels is not None and many.outputs == 3
    numbers = build_rows_for_task(BoundedNumber(0, 1), [(X, np.array([-1.0, 0.5, np.nan]))])
    assert numbers.offset is not None
    np.testing.assert_array_equal(numbers.offset, [[-1.0, 0.5, 0.0]])
    np.testing.assert_array_equal(numbers.signed[0, 2], 0.0)


def test_functions_for_two_classes_refuse_other_labels(tmp_path: Path) -> None:
    require_two_classes(TwoClasses(), "compare")
    for task in (ManyClasses(("a", "b", "c")), BoundedNumber(0, 1)):
        with pytest.raises(InvalidInput, match="two classes"):
            require_two_classes(task, "compare")
    with pytest.raises(InvalidInput, match="two classes"):
        map_parquet(tmp_path / "none.parquet", schema(DAYS), tmp_path / "rows")


@pytest.mark.parametrize(
    ("label", "values", "outputs"),
    [
        (KINDS, ["home", "ward", "home", "home", "3"], 3),
        (DAYS, [3, 90, "", 8, 9], 1),
        (None, ["s", "w", "w", "s", "w"], 1),
    ],
)
def test_single_site_reads_labels_of_every_kind(
    label: dict[str, Any] | None, values: list[Any], outputs: int, tmp_path: Path
) -> None:
    """Rows for which a loss of two classes would be wrong say so, instead of passing for such
    rows.
    """
    declared = label or {"column": "y", "values": ["w", "s"]}
    table = tmp_path / "rows.csv"
    table.write_text("a,y,w\n" + "".join(f"0.5,{value},{k}\n" for k, value in enumerate(values)))
    found = load_rows(table, schema(declared, weight={"column": "w", "max": 4}))
    assert found.outputs == outputs and found.has_offset == (label is DAYS)
    assert found.weight is not None
    np.testing.assert_array_equal(found.weight, [[0.0, 0.25, 0.5, 0.75, 1.0]])
    if label is not None:
        with pytest.raises(InvalidInput):
            found.check_loss_fits(Logistic())


@pytest.mark.parametrize(
    ("label", "more", "said"),
    [
        (KINDS, {}, "two classes"),
        (DAYS, {}, "two classes"),
        (
            {"column": "y", "positive": "s"},
            {"weight": {"column": "w", "max": 3}},
            "row weights",
        ),
        ({"column": "y", "positive": "s"}, {"class_weight": {"s": 2}}, "row weights"),
    ],
)
def test_plans_that_ask_for_answers_take_two_classes_that_count_alike(
    label: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    given, asks = schema(label, **more), Asks(evaluation=4.0, holdout=0.3)
    run = RunConfig(method="sum_momentum", trust="sum", epsilon=4.0, delta=1e-5)
    with pytest.raises(InvalidInput, match=said):
        price_recipes(asks, run, [4000] * 4, given.n_features, given, ["a", "b", "c", "d"])
