"""Values of all kinds, through every door by which a table comes in."""

from __future__ import annotations

import csv
import math
import sqlite3
from contextlib import closing
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.data import Table, read_table
from sottovoce.data.frames import read_frame
from sottovoce.data.sql import DATABASE

TEXTS = [
    "",
    "NA",
    "-9",
    "-9.0",
    "nan",
    "inf",
    "-Infinity",
    "1",
    "1.0",
    " 2.50 ",
    "x",
    "true",
    "1e308",
    "1e400",
    "-0.0",
    "2020-05-01",
    "2020-13-01",
    "0001-01-01T00:00:00+14:00",
    "None",
    "x\u00a0",
    "\u0661",
    "1_0",
    "\U0001f33b",
    "9" * 5000,
]
DOORS: dict[str, list[Any]] = {
    "csv": TEXTS,
    "list": [
        *TEXTS,
        None,
        1,
        2.5,
        True,
        False,
        math.inf,
        math.nan,
        10**400,
        10**5000,
        np.float32(2.5),
        b"x",
        [1.0],
        {},
    ],
    "object": [
        *TEXTS,
        None,
        1,
        2.5,
        True,
        math.nan,
        10**400,
        np.float32(0.1),
        np.datetime64("NaT"),
        (1.0, 2.0),
    ],
    "floats": [math.nan, math.inf, -math.inf, 1.0, 2.5, -9.0, -0.0, 1e308, 99.0],
    "parquet floats": [None, math.nan, math.inf, 1.0, 2.5, -9.0, -0.0, 1e308, 99.0],
    "parquet integers": [None, 1, 0, -9, 99, 2**63 - 1],
    "parquet truth": [None, True, False],
    "parquet dates": [None, date(2020, 5, 1), date(1, 1, 1), date(9999, 12, 31)],
    "parquet lists": [None, [1.0, 2.5], [-9.0, math.nan], [math.inf, 0.0]],
    "pandas": [
        *TEXTS,
        None,
        1,
        2.5,
        True,
        False,
        math.inf,
        math.nan,
        10**400,
        datetime(2020, 5, 1),
    ],
    "polars floats": [None, math.nan, math.inf, 1.0, 2.5, -9.0, 1e308],
    "polars truth": [None, True, False],
    "polars texts": [None, *TEXTS],
    "polars dates": [None, date(2020, 5, 1), date(1, 1, 1), date(9999, 12, 31)],
    "polars times": [
        None,
        datetime(2020, 5, 1, 12),
        datetime(1, 1, 1),
        datetime(9999, 12, 31, 23, 59, 59, 999999),
    ],
    "polars levels": [None, "x", "1", "2.5", "NA", ""],
    "polars lists": [None, [1.0, 2.5], [-9.0, math.nan], [math.inf], [], [None, 1.0]],
    "pandas integers": [None, 1, 0, -9, 99, 2**63 - 1],
    "pandas truth": [None, True, False],
    "pandas levels": [None, "x", "1", "2.5", "NA", ""],
    "pandas times": [None, datetime(2020, 5, 1, 12), datetime(1700, 1, 1), datetime(2200, 12, 31)],
    "arrow floats": [None, math.nan, math.inf, 1.0, 2.5, -9.0, -0.0, 1e308],
    "arrow texts": [None, *TEXTS],
    "arrow dates": [None, date(2020, 5, 1), date(1, 1, 1), date(9999, 12, 31)],
    "arrow times": [
        None,
        datetime(2020, 5, 1, 12),
        datetime(1, 1, 1),
        datetime(9999, 12, 31, 23, 59),
    ],
    "arrow lists": [None, [1.0, 2.5], [-9.0, math.nan], [math.inf], [], [None, 1.0]],
    "whole": [2**53 + 1, -1, 2**63],
    "words": ["x\0", "x", 1, "1\0"],
    "nested": [[-9.0, 1.0], ["x", 1.0], [2.0, 1.0]],
    "sql": [None, 1, 0, -9, 0.1 + 0.2, 2.5, -9.0, 1e308, math.inf, b"x", 2**63 - 1, *TEXTS],
}


def through(door: str, columns: dict[str, list[Any]], folder: Path) -> Table:
    """A table of these values, as it comes in."""
    if door == "csv":
        with (folder / "t.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])
        return read_table(folder / "t.csv")
    if door.startswith("parquet"):
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        kinds = {
            "floats": pa.float64(),
            "integers": pa.int64(),
            "truth": pa.bool_(),
            "dates": pa.date32(),
            "lists": pa.list_(pa.float64(), 2),
        }
        kind = kinds[door.split()[1]]
        pq.write_table(
            pa.table({name: pa.array(some, type=kind) for name, some in columns.items()}),
            folder / "t.parquet",
        )
        return read_table(folder / "t.parquet")
    if door == "pandas":
        pd = pytest.importorskip("pandas")
        try:
            return read_frame(pd.DataFrame(columns))
        except OverflowError:  # of pandas, which makes no float of an integer beyond all of them
            return read_frame(
                pd.DataFrame(
                    {name: pd.Series(some, dtype=object) for name, some in columns.items()}
                )
            )
    if door.startswith("polars"):
        pl = pytest.importorskip("polars")
        kinds = {
            "floats": pl.Float64,
            "truth": pl.Boolean,
            "texts": pl.String,
            "dates": pl.Date,
            "levels": pl.Categorical,
            "times": pl.Datetime("us"),
            "lists": pl.List(pl.Float64),
        }
        return read_frame(
            pl.DataFrame(columns, schema=dict.fromkeys(columns, kinds[door.split()[1]]))
        )
    if door.startswith("pandas"):
        pd = pytest.importorskip("pandas")
        kind = {
            "integers": "Int64",
            "truth": "boolean",
            "levels": "category",
            "times": "datetime64[us]",
        }[door.split()[1]]
        return read_frame(
            pd.DataFrame({name: pd.array(some, dtype=kind) for name, some in columns.items()})
        )
    if door.startswith("arrow"):
        pa = pytest.importorskip("pyarrow")
        kinds = {
            "floats": pa.float64(),
            "texts": pa.string(),
            "dates": pa.date32(),
            "times": pa.timestamp("us"),
            "lists": pa.list_(pa.float64()),
        }
        kind = kinds[door.split()[1]]
        return read_frame(
            pa.table({name: pa.array(some, type=kind) for name, some in columns.items()})
        )
    if door == "sql":
        with closing(sqlite3.connect(folder / "t.db")) as database, database:
            database.execute("DROP TABLE IF EXISTS t")
            database.execute(f"CREATE TABLE t ({', '.join(columns)})")
            marks = ", ".join("?" * len(columns))
            database.executemany(
                f"INSERT INTO t VALUES ({marks})", zip(*columns.values(), strict=True)
            )
        (folder / "t.sql").write_text("SELECT * FROM t ORDER BY rowid")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(DATABASE, f"sqlite:///{folder / 't.db'}")
            return read_table(folder / "t.sql")
    if door in ("list", "whole", "words", "nested"):
        return Table("t", columns)
    made = {}
    for name, some in columns.items():
        made[name] = np.empty(len(some), dtype=float if door == "floats" else object)
        for k, value in enumerate(some):
            made[name][k] = value
    return Table("t", made)
