"""What curved columns buy, and where they cost: prints the table of docs/howto/curved.md.

``python bench/accuracy/curved.py [--tables a,b] [--write FILE] [--workers 2] [--quick] [--json]``

Two synthetic tables whose classes no line tells apart: two crescents that cross (two numbers), and a
ring as Breiman's (1996: 20 numbers, one class with twice the spread of the other, so the truth is a
quadratic).  One for which a line is best: two normals (20 numbers).  Three of tables.py, with the
typical ranges of their schemas.  To each schema is added, for all of its numbers, what a row of the
table names:

- squares; pairs; a spline for each number instead of it, with knots at the bounds and at the ends
  and the middle of the typical range; 50 or 100 random Fourier features with a bandwidth of half
  the root of the number of numbers.

None of this was tuned.  Every schema has the scale that ``sottovoce data --schema`` proposes.
`auto`, with centring where it pays; 5 sites, nobody trusted, delta 1e-5; three deals of at most
7,500 rows, a fifth of them held out, and 10 replicates of the noise in each.  A cell is the mean
test error in percent, and after it the mean change against the schema as it is, with its standard
error over deals.  Finished cells are kept in the file given by ``--write``.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # cells run side by side

import argparse
import dataclasses
import json
import math
import tomllib
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import _tables_data as tables
import numpy as np
from _encodings import EPSILONS, Job, Raw, Sizes, change, errors, measure_all
from rich.console import Console
from rich.table import Table

from sottovoce.data import Schema, fill, read_table

Columns = dict[str, Any]
MADE = ("crescents", "ring", "normals")
PLAIN = "as it is"
WAYS: dict[str, tuple[str, ...]] = {
    "crescents": ("squares, pairs", "splines", "50 waves"),
    "ring": ("squares", "100 waves"),
    "normals": ("squares", "pairs", "splines", "100 waves"),
    "magic": ("squares", "splines", "100 waves"),
    "spambase": ("squares",),
    "wine": ("squares", "50 waves"),
}


def number(lo: float, hi: float, typical: tuple[float, float]) -> Columns:
    return {"kind": "number", "lo": lo, "hi": hi, "typical": list(typical)}


def added(columns: Columns, way: str) -> Columns:
    """The columns of a schema with what `way` says."""
    numbers = [name for name, block in columns.items() if block["kind"] == "number"]
    if way == "splines":
        knots = {name: _knots(columns[name]) for name in numbers}
        return columns | {name: {"kind": "spline", "knots": knots[name]} for name in numbers}
    more: Columns = {}
    if "squares" in way:
        more["squares"] = {"kind": "squares", "of": numbers}
    if "pairs" in way:
        more["pairs"] = {"kind": "pairs", "of": numbers}
    if "waves" in way:
        wide = round(math.sqrt(len(numbers)) / 2, 1)
        more["waves"] = {
            "kind": "fourier",
            "of": numbers,
            "features": int(way.split()[0]),
            "bandwidth": wide,
        }
    return columns | more


def _knots(block: Columns) -> list[float]:
    a, b = block["typical"]
    return sorted({block["lo"], a, (a + b) / 2, b, block["hi"]})


@lru_cache(maxsize=2)
def table_of(folder: Path, name: str) -> tuple[Columns, Raw]:
    """The entries of a table's schema, and its rows."""
    if name in MADE:
        return crescents() if name == "crescents" else normals(2.0 if name == "ring" else 1.0)
    given = tomllib.loads(tables.SOURCES[name].schema.read_text(encoding="utf-8"))
    schema, table = (
        Schema.from_dict({"name": name} | given),
        read_table(tables.path(folder, name, 0)),
    )
    y = schema.encode(table).y
    assert y is not None
    return given, Raw(dict(table.columns), y)


def crescents() -> tuple[Columns, Raw]:
    """Two parabolas that open to the left and to the right, and cross."""
    rng, n = np.random.default_rng(0), 5000
    label, height = rng.choice([-1.0, 1.0], n), rng.uniform(-1.8, 1.8, n)
    across = label * (1 - height**2) + 0.3 * rng.normal(size=n)
    columns = {"across": number(-5, 5, (-2.5, 2.5)), "height": number(-5, 5, (-2, 2))}
    return {"columns": columns, "intercept": 0.5}, Raw({"across": across, "height": height}, label)


def normals(spread: float) -> tuple[Columns, Raw]:
    """Two normal classes of 20 numbers, 2 apart, one of them with its own `spread`."""
    rng, n, d = np.random.default_rng(1), 7400, 20
    label = rng.choice([-1.0, 1.0], n)
    X = np.where(label[:, None] > 0, spread, 1.0) * rng.normal(size=(n, d)) - label[
        :, None
    ] / math.sqrt(d)
    columns = {f"x{k}": number(-10, 10, (-3, 3)) for k in range(d)}
    return {"columns": columns, "intercept": 0.5}, Raw({f"x{k}": X[:, k] for k in range(d)}, label)


def schema_of(given: Columns, way: str) -> Schema:
    """The schema with what `way` adds, and the scale that is proposed for it."""
    entries = {"name": way} | given | {"ignore": ["*"], "columns": added(given["columns"], way)}
    schema = Schema.from_dict(
        {key: value for key, value in entries.items() if key not in ("scale", "label")}
    )
    scale = fill(schema).scale
    return schema if scale is None else dataclasses.replace(schema, scale=scale)


def cell(folder: Path, sizes: Sizes, job: Job) -> dict[str, Any]:
    given, raw = table_of(folder, job.table)
    return errors(schema_of(given, job.way), raw, job.epsilon, sizes)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tables", default=",".join(WAYS), help="names between commas; all if left out"
    )
    parser.add_argument("--write", type=Path, help="where cells are kept")
    parser.add_argument(
        "--env",
        type=Path,
        default=tables.default_folder(),
        help="tables and environments of packages",
    )
    parser.add_argument("--workers", type=int, default=2, help="processes side by side")
    parser.add_argument(
        "--quick", action="store_true", help="crescents, two deals, epsilon 1: for the tests"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    names = ["crescents"] if arguments.quick else arguments.tables.split(",")
    sizes, epsilons = (
        (Sizes(2, 2, 8000), EPSILONS[-1:]) if arguments.quick else (Sizes(3, 10, 8000), EPSILONS)
    )
    folder = arguments.env.expanduser().resolve()
    if theirs := [name for name in names if name not in MADE]:
        folder.mkdir(parents=True, exist_ok=True)
        tables.make(folder, theirs)
    ways = {name: ("50 waves",) if arguments.quick else WAYS[name] for name in names}
    jobs = [
        Job(name, way, epsilon)
        for name in names
        for way in (PLAIN, *ways[name])
        for epsilon in epsilons
    ]
    cells = measure_all(jobs, partial(cell, folder, sizes), arguments.write, arguments.workers)
    if arguments.json:
        print(json.dumps(cells))
        return
    listing = Table()
    for column in (
        "table",
        "columns",
        "features",
        *(f"epsilon {epsilon:g}" for epsilon in epsilons),
        "no privacy",
    ):
        listing.add_column(column)
    for name in names:
        for way in (PLAIN, *ways[name]):
            found = [cells[Job(name, way, epsilon).key] for epsilon in epsilons]
            said = [f"{np.mean(one['errors']):.1f}" for one in found]
            if way != PLAIN:
                gaps = [change(cells, name, way, PLAIN, epsilon) for epsilon in epsilons]
                said = [
                    f"{text} ({gap:+.1f} ± {error:.1f})"
                    for text, (gap, error) in zip(said, gaps, strict=True)
                ]
            listing.add_row(name, way, str(found[0]["d"]), *said, f"{found[-1]['plain']:.1f}")
    Console(width=130).print(listing)


if __name__ == "__main__":
    main()
