"""No row changes how another is read: 22 types of scalars, 28 odd values, every door, every reader,
bit for bit.

A table of five rows of one type is read, and then with one row replaced by an odd value, which may
make another type of the whole column.  Either the whole is refused, by an error of this package, or
the other four rows are read as before. The commonest odd values meet every type at every door, and
each of the rarer ones every type and every door.
"""

from __future__ import annotations

import csv
import datetime as dt
import math
import pickle
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce import SchemaTransformer
from sottovoce.data import Schema, Table, read_table
from sottovoce.data.frames import read_frame
from sottovoce.data.grids import grids_from_schema
from sottovoce.data.partition import partition
from sottovoce.data.sql import DATABASE
from sottovoce.data.table import column_as_text
from sottovoce.data.validation import (
    class_index_of_labels,
    sites_from_groups,
    validate_declared_classes,
)
from sottovoce.errors import SottovoceError

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

BERLIN = dt.timezone(dt.timedelta(hours=2))
TIMES = ["2020-05-01", "2020-05-02", "2020-05-01", "2020-05-03T10:30", "2021-01-01"]
TYPES: dict[str, list[Any]] = {
    "bool": [True, False, True, True, False],
    "numpy bool": [np.bool_(x) for x in (1, 0, 1, 1, 0)],
    "int": [0, 1, 1, 3, 2],
    "int8": [np.int8(x) for x in (0, 1, 1, 3, 2)],
    "int64": [np.int64(x) for x in (0, 1, 10, 3, 2)],
    "uint64": [np.uint64(x) for x in (0, 1, 1, 3, 2)],
    "large int": [2**53 + 1, 2**60 + 3, 2**53 + 1, 2**61 + 5, 7],
    "float": [0.1, 1.0, -2.5, 1e-7, 3.0],
    "float16": [np.float16(x) for x in (0.1, 1.0, 2.5, 0.1, 3.0)],
    "float32": [np.float32(x) for x in (0.7, 1.0, 2.5, 0.7, 3.0)],
    "float64": [np.float64(x) for x in (0.7, 1.0, 2.5, -0.0, 3.0)],
    "str": ["icu", "1", "true", "1.0", "NA"],
    "numpy str": [np.str_(x) for x in ("icu", "1", "True", "01", "e\u0301")],
    "bytes": [b"icu", b"1", b"true", b"2", b" icu "],
    "date": [dt.date.fromisoformat(x[:10]) for x in TIMES],
    "datetime": [dt.datetime.fromisoformat(x) for x in TIMES],
    "datetime with a zone": [dt.datetime.fromisoformat(x).replace(tzinfo=BERLIN) for x in TIMES],
    "datetime64": [np.datetime64(x, "ns") for x in TIMES],
    "Timestamp": [pd.Timestamp(x) for x in TIMES],
    "Decimal": [Decimal(x) for x in ("0.10", "1.00", "2.5", "1", "3")],
    "Fraction": [Fraction(1, 3), Fraction(2, 1), Fraction(5, 2), Fraction(2, 1), Fraction(0, 1)],
    "timedelta": [dt.timedelta(hours=x) for x in (1, 24, 1, 36, 0)],
}
ODD: dict[str, Any] = {
    "None": None,
    "nan": math.nan,
    "NaT": pd.NaT,
    "NA": pd.NA,
    "datetime64 NaT": np.datetime64("NaT", "us"),
    "text": "unknown",
    "empty": "",
    "a mark": "NA",
    "a whole number as text": "1.0",
    "a surrogate": "\ud800",
    "huge": 2**70,
    "beyond floats": 10**400,
    "inf": math.inf,
    "minus zero": -0.0,
    "int": 7,
    "float": 1.5,
    "bool": True,
    "numpy bool": np.True_,
    "float32": np.float32(0.1),
    "int8": np.int8(3),
    "float16": np.float16(2),
    "bytes": b"x\xff",
    "tuple": (1, 2),
    "dict": {"a": 1},
    "nested list": [[1.0]],
    "date": dt.date(2020, 5, 1),
    "with a zone": dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=14))),
    "Decimal": Decimal("1.10"),
}
COMMON = {"None", "nan", "NaT", "text", "int", "float", "bool"}
RARE = [what for what in ODD if what not in COMMON]
LEVELS = [
    "true",
    "false",
    "1",
    "3",
    "0.1",
    "0.699999988079071",
    "2.5",
    "icu",
    "2020-05-01",
    "2020-04-30T22:00:00.000000",
    "\u00e9",
    str(2**53 + 1),
]
SCHEMA = Schema.from_dict(
    {
        "na": ["-9", "?"],
        "site": "site",
        "person": "person",
        "weight": {"column": "w", "max": 3},
        "label": {"column": "label", "positive": "1"},
        "columns": {
            "bins": {"kind": "bins", "column": "v", "edges": [-5, 0, 1, 3, 100], "indicator": True},
            "level": {"kind": "category", "column": "v", "values": LEVELS, "other": True},
            "filled": {"kind": "category", "column": "v", "values": LEVELS, "missing": "icu"},
            "marked": {"kind": "category", "column": "v", "values": LEVELS, "indicator": True},
            "number": {
                "kind": "number",
                "column": "v",
                "lo": -5,
                "hi": 100,
                "missing": 4,
                "indicator": True,
            },
            "date": {
                "kind": "date",
                "column": "v",
                "epoch": "2020-01-01",
                "lo": 0,
                "hi": 999,
                "missing": 5,
            },
            "vector": {
                "kind": "vector",
                "columns": ["v"],
                "lo": -5,
                "hi": 100,
                "norm": 9.0,
                "missing": 4,
            },
            "spline": {"kind": "spline", "column": "v", "knots": [-5, 0, 1, 100], "missing": 4},
            "squares": {"kind": "squares", "of": ["number"]},
            "pairs": {"kind": "pairs", "of": ["number", "level"]},
            "waves": {"kind": "fourier", "of": ["number"], "features": 4, "bandwidth": 1.0},
        },
    }
)
LABELS: dict[str, dict[str, Any]] = {
    "positive only": {"positive": "1"},
    "of truth": {"positive": True},
    "two": {"positive": "true", "negative": "false"},
    "several": {"values": LEVELS},
    "number": {"lo": -1, "hi": 50},
}
OTHER_COLUMN = {"x": {"kind": "number", "lo": 0, "hi": 1}}


def together(people: Any) -> Any:
    """Which pairs of rows are of one person."""
    return people[:, None] == people[None, :]


def sites(parts: list[Any], n: int) -> Any:
    """Which pairs of rows are at one site, and of others which site comes first."""
    site = np.zeros(n)
    for k, part in enumerate(parts):
        site[part] = k
    return np.sign(site[:, None] - site[None, :])


def readers() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Everything that reads a column, by name: a result has a line a row, or for pairs of rows a
    matrix.
    """
    na = frozenset(SCHEMA.na)
    for block in SCHEMA.blocks:
        yield (
            f"block {block.name}",
            lambda v, block=block: np.column_stack(block.encode({"v": v}, na)),
        )
    for name, entries in LABELS.items():
        label = Schema.from_dict(
            {"label": {"column": "v", **entries}, "columns": OTHER_COLUMN}
        ).label
        yield f"label {name}", lambda v, label=label: label.encode(v, ())
    for classes in map(
        validate_declared_classes, ([0, 1], ["false", "true"], [False, True], ["icu", "1"])
    ):
        yield (
            f"classes {classes}",
            lambda v, classes=classes: class_index_of_labels(v, classes, len(v)),
        )
    for grid in grids_from_schema(SCHEMA, ["level", "number", "date", "vector"]):
        yield f"grid {grid.name}", lambda v, grid=grid: grid.cell_of_each_row({"v": v}, na)
    yield "weight", lambda v: SCHEMA.weight.encode_weights(v, na)[0]
    yield "pairs persons", lambda v: together(SCHEMA.person.number_people(v, na))
    yield (
        "pairs sites",
        lambda v: sites(partition("site:v", np.ones(len(v)), None, columns={"v": v}), len(v)),
    )
    yield "pairs groups", lambda v: sites(sites_from_groups(v, len(v))[1], len(v))
    yield "text", lambda v: np.array(column_as_text(v), dtype="U80")


READERS = dict(readers())
LOSSY = {"pairs persons", "pairs sites", "pairs groups", "text"}
"""Readers that tell whole numbers beyond 2^53 apart, which a frame rounds before it is read."""
ROUNDS = {"pandas", "nullable", "arrow backend", "category", "polars"}


READ: dict[bytes, dict[str, Any]] = {}
"""What was read of columns, by all of their bits: many doors make the same column of the same
values.
"""


def read_all(table: Table) -> dict[str, Any]:
    """What every reader makes of the table's column, None where it refuses."""
    column = table.columns["v"]
    bits = pickle.dumps(column)
    if bits not in READ:
        READ[bits] = {}
        for name, read in READERS.items():
            try:
                READ[bits][name] = read(column)
            except SottovoceError:
                READ[bits][name] = None
    return READ[bits]


def others(name: str, found: Any, row: int) -> bytes:
    """The bits of all other rows."""
    kept = np.delete(found, row, axis=0)
    return bytes(
        np.ascontiguousarray(
            np.delete(kept, row, axis=1) if name.startswith("pairs ") else kept
        ).tobytes()
    )


def array(values: list[Any]) -> Any:
    """Values of one type in an array of that type, others in one of objects."""
    if len({type(value) for value in values}) == 1 and isinstance(
        values[0], np.generic | bool | int | float | str
    ):
        return np.array(values)
    found = np.empty(len(values), dtype=object)
    for k, value in enumerate(values):
        found[k] = value
    return found


def in_objects(values: list[Any]) -> Any:
    return pd.DataFrame({"v": pd.Series(values, dtype=object)})


def structured(values: list[Any]) -> Any:
    column = array(values)
    found = np.empty(len(values), dtype=[("v", column.dtype)])
    found["v"] = column
    return found


def arrow(values: list[Any]) -> Any:
    """A column of the type that most values have: pyarrow, left to itself, ends the process over
    some mixtures.
    """
    types = [type(value) for value in values]
    commonest = max(types, key=types.count)
    return pa.table(
        {"v": pa.array(values, type=pa.array([v for v in values if type(v) is commonest]).type)}
    )


def parquet(values: list[Any], folder: Path) -> Table:
    pq.write_table(arrow(values), folder / "t.parquet")
    return read_table(folder / "t.parquet")


def csv_file(values: list[Any], folder: Path) -> Table:
    with (folder / "t.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["v", "w"], *([value, 1] for value in values)])
    return read_table(folder / "t.csv")


def sql(values: list[Any], folder: Path) -> Table:
    with closing(sqlite3.connect(folder / "t.db")) as database, database:
        database.executescript(
            "PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY; DROP TABLE IF EXISTS t"
        )
        database.execute("CREATE TABLE t (v)")
        database.executemany("INSERT INTO t VALUES (?)", [(value,) for value in values])
    (folder / "t.sql").write_text("SELECT * FROM t ORDER BY rowid")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DATABASE, f"sqlite:///{folder / 't.db'}")
        return read_table(folder / "t.sql")


def kind_of(value: Any) -> str:
    """What a value is, however many bits or whatever zone it has."""
    for name, types in (
        ("truth", (bool, np.bool_)),
        ("number", (int, float, np.number, Decimal, Fraction)),
        ("text", (str,)),
        ("time", (dt.date, np.datetime64)),
    ):
        if isinstance(value, types):
            return name
    if isinstance(value, pa.DataType | pl.DataType):
        return (
            "number" if "float" in str(value).lower() or "int" in str(value).lower() else str(value)
        )
    return type(value).__name__


def held(given: Any) -> list[Any]:
    """What a library holds of the values that it was given."""
    if isinstance(given, Table):
        return list(given.columns["v"].tolist())
    if isinstance(given, pa.Table):
        return [given.schema.field("v").type] * len(given)
    if isinstance(given, pl.DataFrame) and given.schema["v"] != pl.Object:
        return [given.schema["v"]] * len(given)
    return list(given["v"])


DOORS: dict[str, Callable[[list[Any], Path], Any]] = {
    "array": lambda values, _: Table("t", {"v": array(values)}),
    "list": lambda values, _: Table("t", {"v": values}),
    "mapping": lambda values, _: {"v": values},
    "mapping of arrays": lambda values, _: {"v": array(values)},
    "structured": lambda values, _: structured(values),
    "pandas": lambda values, _: pd.DataFrame({"v": values}),
    "pandas objects": lambda values, _: in_objects(values),
    "nullable": lambda values, _: pd.DataFrame({"v": values}).convert_dtypes(),
    "arrow backend": lambda values, _: pd.DataFrame({"v": values}).convert_dtypes(
        dtype_backend="pyarrow"
    ),
    "category": lambda values, _: pd.DataFrame({"v": pd.Series(values).astype("category")}),
    "polars": lambda values, _: pl.DataFrame({"v": values}),
    "polars objects": lambda values, _: pl.DataFrame({"v": pl.Series(values, dtype=pl.Object)}),
    "arrow": lambda values, _: arrow(values),
    "parquet": parquet,
    "csv": csv_file,
    "sql": sql,
}


def rounded(given: Any, k: int) -> str:
    """The number that a frame of polars holds for row k: it rounds all rows to the bits of the
    first one's number.
    """
    if not isinstance(given, pl.DataFrame) or not given.schema["v"].is_float():
        return ""
    return f" {given['v'][k]}"


def through(door: str, values: list[Any], folder: Path) -> tuple[Table, list[str]] | None:
    """A table of the values, and what each is to the library; None if it has no such column."""
    with warnings.catch_warnings():
        # of the frames' libraries, on values that they would rather not hold
        warnings.simplefilter("ignore")
        try:
            given = DOORS[door](values, folder)
        except Exception:  # of the library, or a refusal of a file
            return None
    try:
        kinds = [f"{kind_of(one)}{rounded(given, k)}" for k, one in enumerate(held(given))]
        return given if isinstance(given, Table) else read_frame(given), kinds
    except SottovoceError:
        return None


def odd_values(kind: str, door: str) -> dict[str, Any]:
    """The common ones and a third of the rare ones: another third at the next door, and for the
    next type.

    So each rare value meets each type at one of pandas' doors at least, as five of those follow
    each other.
    """
    turn = list(TYPES).index(kind) + list(DOORS).index(door)
    chosen = {what for k, what in enumerate(RARE) if (k + turn) % 3 == 0}
    return {what: odd for what, odd in ODD.items() if what in COMMON | chosen}


def test_every_odd_value_meets_every_type_and_every_door() -> None:
    met = [
        (what, kind, door) for kind in TYPES for door in DOORS for what in odd_values(kind, door)
    ]
    assert {(what, kind) for what, kind, _ in met} == {
        (what, kind) for what in ODD for kind in TYPES
    }
    assert {(what, door) for what, _, door in met} == {
        (what, door) for what in ODD for door in DOORS
    }
    assert {
        (what, kind) for what, kind, door in met if door in ROUNDS - {"polars"} | {"pandas objects"}
    } == {(what, kind) for what in ODD for kind in TYPES}


@pytest.mark.parametrize("door", list(DOORS))
@pytest.mark.parametrize("kind", list(TYPES))
def test_odd_row_does_not_change_how_other_rows_are_read(
    kind: str, door: str, tmp_path: Path
) -> None:
    ordinary, row, changed, compared = TYPES[kind], 1, [], 0
    found = through(door, ordinary, tmp_path)
    if found is None:
        return  # the library has no such column
    table, kinds = found
    before = read_all(table)
    for what, odd in odd_values(kind, door).items():
        row = (row + 2) % len(ordinary)
        found = through(
            door, [odd if k == row else value for k, value in enumerate(ordinary)], tmp_path
        )
        if found is None:
            continue
        odd_table, odd_kinds = found
        if kinds[:row] + kinds[row + 1 :] != odd_kinds[:row] + odd_kinds[row + 1 :]:
            # the library itself has made numbers of truth values, or truth values of numbers
            continue
        for name, after in read_all(odd_table).items():
            if (
                before[name] is None
                or after is None
                or (kind == "large int" and door in ROUNDS and name in LOSSY)
            ):
                continue
            compared += 1
            if others(name, before[name], row) != others(name, after, row):
                changed.append(f"{what}: {name}")
    assert not changed
    assert compared


def test_every_type_is_read_in_arrays_lists_and_frames_alike(tmp_path: Path) -> None:
    """So that it does not matter which of them a library chooses."""
    differ = []
    for kind, values in TYPES.items():
        expected = read_all(Table("t", {"v": values}))
        for door in (
            "array",
            "mapping",
            "structured",
            "pandas",
            "pandas objects",
            "nullable",
            "polars",
        ):
            if (door_found := through(door, values, tmp_path)) is None:
                continue
            for name, found in read_all(door_found[0]).items():
                if expected[name] is not None and not np.array_equal(
                    expected[name], found, equal_nan=name != "text"
                ):
                    differ.append(f"{kind}, {door}: {name}")
    assert not differ


@pytest.mark.filterwarnings("ignore::sottovoce.errors.HolderNote")
@pytest.mark.parametrize(
    "kind", ["numpy bool", "float32", "Timestamp", "datetime with a zone", "Decimal", "int8"]
)
def test_dataframe_transformer_reads_rows_independently(kind: str) -> None:
    levels = {"kind": "category", "column": "v", "values": LEVELS, "other": True}
    encode = SchemaTransformer({"columns": {"v": levels}, "intercept": True})
    ordinary = TYPES[kind]
    before = encode.fit_transform(pd.DataFrame({"v": ordinary}))
    for odd in ("unknown", None, np.True_, (1, 2), 2**70, math.nan):
        after = encode.fit_transform(pd.DataFrame({"v": [odd, *ordinary[1:]]}))
        assert before[1:].tobytes() == after[1:].tobytes()
    assert len({line.tobytes() for line in before}) > 1
