"""Centring of rows with a number to predict, with and without: test errors on the tables of
regression.py.

    python bench/accuracy/centring_numbers.py [--quick] [--tables a,b] [--losses squared,...]
    [--write FILE] [--json]

Schemas once have the bounds of regression.toml alone, and once its ranges of most values too.
`squared` is the least squares of ``ConsensusRegressor`` and ``sottovoce train``; a loss of
residuals trains by rounds, as "auto" has it. Neither centres by itself: centring is decided as if
labels were classes, and the mean is paid within the same epsilon.

Five sites, rows dealt at random, delta 1e-5, replace-one, three budgets, nobody trusted or sums.
Each deal is a shuffle of up to 7,500 rows, of which a fifth is held out, with noise of its own.
Errors are root mean squares, in percent of that of the training rows' mean, which needs no columns:
100 and more is useless.  An error bar of a table is that of the mean of its deals' differences; of
the mean over tables, that of the tables.  The recipe was chosen on tables with classes and on none
of these.  Cells are kept in a file: an interrupted run goes on where it was.  About two minutes on
2 cores.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # cells run side by side

import argparse
import csv
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import _tables_data as tables
import numpy as np
from centring import DELTA, EPSILONS, SCHEMAS, SITES, TRUSTS, changed, measure_all, summed_up
from regression import TABLES, columns_of
from rich.console import Console
from rich.table import Table
from tables import listed

from sottovoce import data
from sottovoce.answers.regression import SQUARED, LeastSquares
from sottovoce.answers.terms import naming_from_schema
from sottovoce.data.labels import numbers_to_predict
from sottovoce.data.rows import Rows
from sottovoce.data.schema import Schema
from sottovoce.problem.losses import HuberResidual
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.runs.auto_search import choose_method
from sottovoce.runs.centre import decide_centring, frame_of_schema
from sottovoce.runs.simulate import RunConfig, simulate
from sottovoce.runs.training import TrainConfig, deal_rows_to_nodes

LOSSES = (SQUARED, "huber-residual:0.25")
DEALS, NOISE_SEED, DEAL_SEED = 10, 7000, 20_261_126
QUICK = ("twoyear",)


@dataclass(frozen=True)
class Job:
    """A table, a loss, what the schema says, a trust and a budget, with and without."""

    table: str
    loss: str
    schema: str
    trust: str
    epsilon: float

    @property
    def key(self) -> str:
        return f"{self.table} {self.loss} {self.schema} {self.trust} {self.epsilon:g}"


def schema_of(job: Job) -> Schema:
    """The table's schema."""
    about, columns = TABLES[job.table], {}
    for name, (lo, hi, *typical) in about["columns"].items():
        more = {"typical": typical} if typical and job.schema == "typical" else {}
        columns[name] = {"kind": "number", "lo": lo, "hi": hi} | more
    target, lo, hi = about["target"]
    label = {"column": target, "lo": lo, "hi": hi}
    return Schema.from_dict(
        {"name": job.table, "intercept": True, "ignore": ["*"], "label": label, "columns": columns}
    )


def dealt(folder: Path, name: str, k: int) -> str:
    """The path of a deal's CSV file, written if it is missing."""
    path = folder / "deals" / f"number-{name}-{k}.csv"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        columns = columns_of(folder, name)
        kept = np.random.default_rng(0).permutation(len(next(iter(columns.values()))))[
            : tables.MOST_ROWS
        ]
        order = np.random.default_rng([DEAL_SEED, k]).permutation(kept)
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(
                zip(*(values[order].tolist() for values in columns.values()), strict=True)
            )
    return str(path)


def errors(folder: Path, job: Job, k: int) -> tuple[dict[str, float], str]:
    """Errors of both arms on one deal, and what was decided."""
    dataset = data.load(
        dealt(folder, job.table, k), schema=schema_of(job), test_share=tables.TEST_SHARE
    )
    run = RunConfig("auto", job.epsilon, DELTA, trust=job.trust, seed=NOISE_SEED + k)
    parts = deal_rows_to_nodes(TrainConfig(run, nodes=SITES, partition="iid"), dataset)
    assert dataset.schema is not None
    naming = naming_from_schema(dataset.schema)  # of least squares: long rows are not clipped
    squared, short = job.loss == SQUARED, (dataset.X_train, dataset.X_test)
    X, test = (
        (naming.encode_rows(t) for t in (dataset.train_columns, dataset.test_columns))
        if squared
        else short
    )
    known = [np.ones(len(part)) for part in parts]
    rows = (Rows.build_with_any_norm if squared else Rows.build_from_parts)(
        [(X[p], one) for p, one in zip(parts, known, strict=True)]
    )
    rows = rows.with_offset(
        numbers_to_predict([(one, dataset.y_train[p]) for p, one in zip(parts, known, strict=True)])
    )
    frame = frame_of_schema(
        naming.schema if squared and naming.schema is not None else dataset.schema
    )
    decision = decide_centring(run, rows.n, rows.d, frame)
    more: dict[str, Any] = {}
    if squared:
        method = LeastSquares(constant=naming.constant, free=np.ones(naming.d))
        more = {"method": method, "loss": Weighted(HuberResidual(1.0))}
    else:
        run = choose_method(replace(run, loss=job.loss), rows.n[:, 0], rows.d).config
    found = {}
    for arm, centring in (("without", None), ("with", decision.centring)):
        result = simulate(run, rows, centre=centring, **more)
        move = None if result.move is None else result.move.for_replicate(0)
        model = result.outcome[0] if squared else result.consensus[0]
        model = model if move is None or not squared else move.fold_into_models(model)
        margins = (test if move is None or squared else move.shorten_rows(test)) @ model
        plain = dataset.task.baseline_margins(dataset.y_train)["mean"]
        error, usual = (float(dataset.task.error(z, dataset.y_test)) for z in (margins, plain))
        found[arm] = 100.0 * error / usual
    return found, decision.says


def measure(folder: Path, job: Job) -> dict[str, Any]:
    """Errors of both arms, (deals, 1)."""
    started, says = time.perf_counter(), ""
    arms: dict[str, list[list[float]]] = {"without": [], "with": []}
    for k in range(DEALS):
        found, says = errors(folder, job, k)
        for arm, error in found.items():
            arms[arm].append([round(error, 3)])
    return {"arms": arms, "says": says, "seconds": round(time.perf_counter() - started, 1)}


def show(jobs: list[Job], cells: dict[str, dict[str, Any]]) -> None:
    """A table for each loss, schema and trust, a line a table; and the means over tables."""
    console = Console(width=120)
    for kind in dict.fromkeys((job.loss, job.schema, job.trust) for job in jobs):
        mine = [job for job in jobs if (job.loss, job.schema, job.trust) == kind]
        epsilons, names = (
            list(dict.fromkeys(getattr(job, key) for job in mine)) for key in ("epsilon", "table")
        )
        shown = Table(
            title=f"{kind[0]}; {SCHEMAS[kind[1]]}; trust: {kind[2]}; error without -> with, and "
            "change"
        )
        for title in ("table", *(f"epsilon {epsilon:g}" for epsilon in epsilons)):
            shown.add_column(title, justify="left" if title == "table" else "right")
        for name in names:
            shown.add_row(name, *(changed(cells[job.key]) for job in mine if job.table == name))
        console.print(shown)
        for epsilon in epsilons:
            found = [cells[job.key] for job in mine if job.epsilon == epsilon]
            if len(found) > 1:
                console.print(f"epsilon {epsilon:g}: {summed_up(names, found)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", default="", help="names between commas; all if left out")
    parser.add_argument("--losses", default=",".join(LOSSES), help="losses between commas")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK[0]} at epsilon 1 alone")
    parser.add_argument(
        "--write",
        type=Path,
        help="where cells are kept; by default centring-numbers.json under --env",
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
    given = parser.parse_args()
    names = listed(
        given.tables or ",".join(QUICK if given.quick else TABLES), tuple(TABLES), "--tables"
    )
    folder = given.env.expanduser().resolve()
    for name in names:
        for k in range(DEALS):
            dealt(folder, name, k)
    epsilons = EPSILONS[-1:] if given.quick else EPSILONS
    jobs = [
        Job(name, loss, schema, trust, epsilon)
        for loss in given.losses.split(",")
        for schema in SCHEMAS
        for trust in TRUSTS
        for name in names
        for epsilon in epsilons
    ]
    cells = measure_all(
        folder,
        jobs,
        given.write or folder / "centring-numbers.json",
        given.workers,
        measure,
        changed,
    )
    if given.json:
        print(json.dumps(cells))
    else:
        show(jobs, cells)


if __name__ == "__main__":
    main()
