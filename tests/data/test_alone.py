"""A row is encoded alone: whatever another row holds, and whatever a gap makes of a column's
type.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doors import DOORS, through

from sottovoce.data import Schema, Table

COLUMNS: dict[str, dict[str, Any]] = {
    "number": {"kind": "number", "lo": -20, "hi": 100, "missing": 1, "indicator": True},
    "level": {"kind": "category", "values": ["x", "1", "2.5", "true"], "other": True},
    "bin": {"kind": "bins", "edges": [-20, 0, 3, 100], "indicator": True},
    "day": {
        "kind": "date",
        "epoch": "2020-01-01",
        "lo": 0,
        "hi": 4000,
        "missing": 2000,
        "indicator": True,
    },
    "pair": {
        "kind": "vector",
        "lo": -1,
        "hi": 1,
        "columns": ["first", "second"],
        "norm": 1.0,
        "missing": 0.5,
    },
    "block": {"kind": "vector", "lo": -1, "hi": 1, "size": 2, "norm": 1.0, "missing": 0.5},
}
LABELS: list[dict[str, Any]] = [
    {"column": "label", "positive": "1"},
    {"column": "label", "positive": "true", "negative": "false"},
    {"column": "label", "values": ["1", "2.5", "true"]},
    {"column": "label", "lo": -20, "hi": 50},
]


def encoded(schema: Schema, table: Table) -> Any:
    try:
        found = schema.encode(table)
    except ValueError:  # refusals are such
        return None
    return np.column_stack([found.X, np.nan_to_num(np.asarray(found.y, dtype=float), nan=-77.0)])


@pytest.mark.parametrize("door", list(DOORS))
def test_encoding_of_a_row_does_not_depend_on_other_rows(door: str, tmp_path: Path) -> None:
    """Column by column, so that a refusal of one, which stops a run, hides nothing of the others.

    A random search; tests/data/test_no_row_changes_another.py has every odd value at every door.
    """
    rng, compared = np.random.default_rng(5), 0
    for turn in range(120):
        name = list(COLUMNS)[turn % len(COLUMNS)]
        pool = DOORS[door]
        if rng.random() < 0.7:  # refusals are rarer from few kinds of values
            pool = [pool[k] for k in rng.integers(len(pool), size=3)]
        label = LABELS[int(rng.integers(len(LABELS)))]
        schema = Schema.from_dict(
            {"columns": {name: COLUMNS[name]}, "label": label, "na": ["-9", "NA"]}
        )
        i, names = int(rng.integers(4)), [*(COLUMNS[name].get("columns") or [name]), "label"]
        columns = {one: [pool[int(rng.integers(len(pool)))] for _ in range(4)] for one in names}
        others = {
            one: [
                pool[int(rng.integers(len(pool)))] if k == i else old for k, old in enumerate(some)
            ]
            for one, some in columns.items()
        }
        before, after = (
            encoded(schema, through(door, some, tmp_path)) for some in (columns, others)
        )
        if before is not None and after is not None:
            np.testing.assert_array_equal(
                np.delete(before, i, axis=0), np.delete(after, i, axis=0), f"{name}, row {i}"
            )
            compared += 1
    # a list is no value: it is always refused
    assert compared == 0 if door == "nested" else compared >= 5


def test_number_is_not_read_as_missing_because_another_row_is() -> None:
    schema = Schema.from_dict({"columns": {"number": COLUMNS["number"]}, "na": ["-9"]})
    full = schema.encode({"number": np.array([-9.0, 4.0, 5.0])}, labels=False).X
    gap = schema.encode({"number": np.array([-9.0, 4.0, None], dtype=object)}, labels=False).X
    text = schema.encode({"number": np.array(["-9", "4", "5"])}, labels=False).X
    np.testing.assert_array_equal(full[:2], gap[:2])
    np.testing.assert_array_equal(full, text)
    assert full[0, 1] > 0 == full[1, 1]
