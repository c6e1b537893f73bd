"""Values of all kinds, through every door by which a table comes in."""

from __future__ import annotations

import csv
import math
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.data import Table, read_table
from sottovoce.data.frames import read_frame

TEXTS = [
    "", "NA", "-9", "-9.0", "nan", "inf", "-Infinity", "1", "1.0", " 2.50 ", "x", "true", "1e308", "1e400", "-0.0",
    "2020-05-01", "2020-13-01", "0001-01-01T00:00:00+14:00", "None", "x\u00a0", "\u0661", "1_0", "\U0001f33b",
    "9" * 5000,
]  # fmt: skip
DOORS: dict[str, list[Any]] = {
    "csv": TEXTS,
    "list": [
        *TEXTS, None, 1, 2.5, True, False, math.inf, math.nan, 10**400, 10**5000, np.float32(2.5), b"x", [1.0], {},
    ],
    "object": [*TEXTS, None, 1, 2.5, True, math.nan, 10**400, np.float32(0.1), np.datetime64("NaT"), (1.0, 2.0)],
    "floats": [math.nan, math.inf, -math.inf, 1.0, 2.5, -9.0, -0.0, 1e308, 99.0],
    "parquet floats": [None, math.nan, math.inf, 1.0, 2.5, -9.0, -0.0, 1e308, 99.0],
    "parquet integers": [None, 1, 0, -9, 99, 2**63 - 1],
    "parquet truth": [None, True, False],
    "parquet dates": [None, date(2020, 5, 1), date(1, 1, 1), date(9999, 12, 31)],
    "parquet lists": [None, [1.0, 2.5], [-9.0, math.nan], [math.inf, 0.0]],
    "pandas": [*TEXTS, None, 1, 2.5, True, False, math.inf, math.nan, 10**400, datetime(2020, 5, 1)],
    "polars floats": [None, math.nan, math.inf, 1.0, 2.5, -9.0, 1e308],
    "polars truth": [None, True, False],
}  # fmt: skip


def through(door: str, columns: dict[str, list[Any]], folder: Path) -> Table:
    """A table of these values, as it comes in."""
    if door == "csv":
        with (folder / "t.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])
        return read_table(folder / "t.csv")
    if door.startswith("parquet"):
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        kinds = {"floats": pa.float64(), "integers": pa.int64(), "truth": pa.bool_(), "dates": pa.date32(),
                 "lists": pa.list_(pa.float64(), 2)}  # fmt: skip
        kind = kinds[door.split()[1]]
        pq.write_table(
            pa.table({name: pa.array(some, type=kind) for name, some in columns.items()}), folder / "t.parquet"
        )
        return read_table(folder / "t.parquet")
    if door == "pandas":
        return read_frame(pytest.importorskip("pandas").DataFrame(columns))
    if door.startswith("polars"):
        return read_frame(pytest.importorskip("polars").DataFrame(columns))
    if door == "list":
        return Table("t", columns)
    made = {}
    for name, some in columns.items():
        made[name] = np.empty(len(some), dtype=float if door == "floats" else object)
        for k, value in enumerate(some):
            made[name][k] = value
    return Table("t", made)
