"""A survey, then training: test errors where bounds are a hundred times too wide, the survey's
price included.

    python bench/accuracy/survey.py [--quick] [--tables a,b] [--epsilons 1,3] [--write FILE]
    [--json]

Tables of tables.py and centring.py, and Adult with its numbers as numbers.  *Good* bounds are those
of the schemas, written from the columns' documentation, without typical ranges.  *Wide* ones are a
hundred times as far from zero, and a category has twenty levels more that nobody has.  *Surveyed*
starts from the wide ones: `sottovoce schema survey` on the training rows has a share of the budget,
training under what it proposes the rest; both together cost what the other two arms have for
training alone.

Five sites, rows dealt at random, delta 1e-5, replace-one.  Every deal has rows, survey and noise of
its own, and `auto` chooses anew for each schema.  An error bar is that of the mean of the deals'
differences.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # cells run side by side

import argparse
import json
import time
import tomllib
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import Any

import _tables_data as tables
import numpy as np
from centring import measure_all
from rich.console import Console
from rich.table import Table as Shown
from tables import listed

from sottovoce import TrainConfig, data, train
from sottovoce.answers.surveyed import survey
from sottovoce.data import Schema, Table
from sottovoce.data.draft import toml_of
from sottovoce.privacy.gaussian import gaussian_epsilon, gaussian_mu
from sottovoce.runs.simulate import RunConfig
from sottovoce.runs.training import deal_rows_to_nodes
from sottovoce.util import files

SITES, DELTA, SHARE, FACTOR, LEVELS = 5, 1e-5, 0.1, 100.0, 20
"""`SHARE` is the survey's, of the squared shift of a Gaussian mechanism with the whole budget."""
FIRST_DEAL, DEALS, REPLICATES, NOISE_SEED = tables.DEALS, 3, 5, 9000
EPSILONS, TRUSTS = (0.5, 1.0, 3.0), ("nobody", "sum")
NAMES = (
    "adult",
    "fair",
    "randhie",
    "phishing",
    "segments",
    "diamonds",
    "cps91",
    "magic",
    "spambase",
    "crime1",
    "loanapp",
    "made-lognormal",
    "made-levels",
)
"""With a thousand rows or more: of fewer, a share of such a budget tells nothing, and the survey
refuses.
"""
QUICK = ("made-lognormal",)
NUMBERS = {
    "age": (17, 90),
    "education-num": (1, 16),
    "capital-gain": (0, 99_999),
    "capital-loss": (0, 5_000),
    "hours-per-week": (1, 99),
}
"""Of Adult: adults' ages, years of school, and what the form has room for."""


@dataclass(frozen=True)
class Job:
    """A table, a trust and a budget."""

    table: str
    trust: str
    epsilon: float

    @property
    def key(self) -> str:
        return f"{self.table} {self.trust} {self.epsilon:g}"


def good(name: str) -> dict[str, Any]:
    """The entries of a schema with bounds alone."""
    if name == "adult":
        plain = data.builtin_schema("adult").to_dict()
        levels = {
            key: one
            for key, one in plain["columns"].items()
            if one["kind"] == "category" and key != "education"
        }
        numbers = {key: {"kind": "number", "lo": lo, "hi": hi} for key, (lo, hi) in NUMBERS.items()}
        return {
            "intercept": True,
            "ignore": ["*"],
            "label": plain["label"],
            "columns": numbers | levels,
        }
    text = tables.bounds_only((tables.SCHEMAS / f"{name}.toml").read_text(encoding="utf-8"))
    return Schema.from_dict({"name": name} | tomllib.loads(text)).to_dict()


def wide(plain: dict[str, Any]) -> dict[str, Any]:
    """The same, as somebody writes it who knows little of the columns."""

    def one(block: dict[str, Any]) -> dict[str, Any]:
        if block["kind"] == "number":
            return block | {
                "lo": FACTOR * min(block["lo"], 0.0),
                "hi": FACTOR * max(block["hi"], 0.0),
            }
        if block["kind"] == "category":
            more = [f"another {k}" for k in range(LEVELS)]
            values = block["values"]
            return block | {
                "values": [*values, *more]
                if isinstance(values, list)
                else values | {m: [m] for m in more}
            }
        return block

    return plain | {"columns": {name: one(block) for name, block in plain["columns"].items()}}


def written(folder: Path, name: str, schema: Schema) -> str:
    """The path of a schema's file."""
    path = folder / "surveyed" / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    files.write_atomically("schema", path, toml_of(schema, []))
    return str(path)


def shared(epsilon: float, share: float) -> float:
    """The epsilon of a share of the squared shift."""
    return gaussian_epsilon(DELTA, gaussian_mu(epsilon, DELTA) * sqrt(share))


def surveyed(config: TrainConfig, schema: Schema) -> tuple[Schema, str]:
    """What a survey of the training rows, at their sites, proposes, and what it could see."""
    dataset = data.load(config.data, schema=schema, test_share=config.test_share)
    parts = deal_rows_to_nodes(config, dataset)
    rows = [
        Table("t", {name: x[part] for name, x in dataset.train_columns.items()}) for part in parts
    ]
    found = survey(
        schema, rows, replace(config.run, epsilon=shared(config.run.epsilon, SHARE), replicates=1)
    )
    return replace(found.proposed, survey=None), found.expected.says


def measure(folder: Path, job: Job) -> dict[str, Any]:
    """Test errors in percent of the three arms, (deals, replicates), and that of the commonest
    class.
    """
    started, plain = time.perf_counter(), good(job.table)
    schemas = {"good": Schema.from_dict(plain), "wide": Schema.from_dict(wide(plain))}
    arms: dict[str, list[list[float]]] = {"good": [], "wide": [], "surveyed": []}
    chosen: dict[str, RunConfig] = {}
    commonest, says = [], ""
    for k in range(FIRST_DEAL, FIRST_DEAL + DEALS):
        file = "adult" if job.table == "adult" else str(tables.path(folder, job.table, k))
        run = RunConfig(
            "auto", job.epsilon, DELTA, trust=job.trust, seed=NOISE_SEED + k, replicates=REPLICATES
        )
        whole = TrainConfig(run, file, nodes=SITES, partition="iid", test_share=tables.TEST_SHARE)
        for arm, errors in arms.items():
            schema, mine = schemas.get(arm), replace(chosen.get(arm, run), seed=run.seed)
            if schema is None:
                schema, says = surveyed(whole, schemas["wide"])
                mine = replace(run, epsilon=shared(job.epsilon, 1.0 - SHARE))
            path = written(folder, f"{job.key.replace(' ', '-')}-{arm}", schema)
            report = train(replace(whole, run=mine, schema=path))
            errors.append(np.round(100.0 * report.test_errors, 3).tolist())
            if arm in schemas:
                chosen[arm] = replace(report.config.run, auto=False, centre=None)
        commonest.append(
            round(
                100.0
                * float(
                    min(np.mean(report.dataset.y_test > 0), np.mean(report.dataset.y_test < 0))
                ),
                3,
            )
        )
    return {
        "arms": arms,
        "commonest": commonest,
        "says": says,
        "seconds": round(time.perf_counter() - started, 1),
    }


def difference(cell: dict[str, Any], arm: str) -> tuple[float, float]:
    """Error of an arm less that of good bounds, in points, with its standard error over deals."""
    by_deal = np.mean(cell["arms"][arm], axis=1) - np.mean(cell["arms"]["good"], axis=1)
    return float(by_deal.mean()), float(by_deal.std(ddof=1) / sqrt(len(by_deal)))


def line(cell: dict[str, Any]) -> str:
    """Errors of the arms, and the change by the survey."""
    means = " / ".join(f"{np.mean(errors):.1f}" for errors in cell["arms"].values())
    return (
        f"{means}  {difference(cell, 'surveyed')[0]:+.1f} ± {difference(cell, 'surveyed')[1]:.1f}"
    )


def show(jobs: list[Job], cells: dict[str, dict[str, Any]]) -> None:
    """A table for each trust, a line a table; and the means over tables."""
    console = Console(width=120)
    for trust in dict.fromkeys(job.trust for job in jobs):
        mine = [job for job in jobs if job.trust == trust]
        epsilons = list(dict.fromkeys(job.epsilon for job in mine))
        shown = Shown(
            title=f"trust: {trust}; error with good / wide / surveyed bounds, surveyed less good, "
            "in points"
        )
        for title in ("table", "commonest", *(f"epsilon {epsilon:g}" for epsilon in epsilons)):
            shown.add_column(title, justify="left" if title == "table" else "right")
        for name in dict.fromkeys(job.table for job in mine):
            found = [cells[job.key] for job in mine if job.table == name]
            shown.add_row(name, f"{np.mean(found[0]['commonest']):.1f}", *map(line, found))
        console.print(shown)
        for epsilon in epsilons:
            found = [cells[job.key] for job in mine if job.epsilon == epsilon]
            for arm in ("wide", "surveyed"):
                change = np.array([difference(cell, arm)[0] for cell in found])
                error = change.std(ddof=1) / sqrt(change.size) if change.size > 1 else 0.0
                console.print(
                    f"epsilon {epsilon:g}, {arm}: mean {change.mean():+.2f} ± {error:.2f}, median "
                    f"{np.median(change):+.2f}, worst {change.max():+.2f}; within a point on "
                    f"{np.sum(change <= 1.0)} "
                    f"of {change.size} tables"
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", default="", help="names between commas; all if left out")
    parser.add_argument(
        "--epsilons", default=",".join(f"{e:g}" for e in EPSILONS), help="budgets between commas"
    )
    parser.add_argument(
        "--trusts", default=",".join(TRUSTS), help="whom people trust, between commas"
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK[0]} at epsilon 3 alone")
    parser.add_argument(
        "--write", type=Path, help="where cells are kept; by default survey.json under --env"
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
    names = listed(given.tables or ",".join(QUICK if given.quick else NAMES), NAMES, "--tables")
    folder = given.env.expanduser().resolve()
    folder.mkdir(parents=True, exist_ok=True)
    tables.make(
        folder, [name for name in names if name != "adult"], range(FIRST_DEAL, FIRST_DEAL + DEALS)
    )
    epsilons = EPSILONS[-1:] if given.quick else tuple(map(float, given.epsilons.split(",")))
    trusts = listed(given.trusts, TRUSTS, "--trusts")
    jobs = [Job(name, trust, epsilon) for trust in trusts for name in names for epsilon in epsilons]
    cells = measure_all(
        folder, jobs, given.write or folder / "survey.json", given.workers, measure, line
    )
    if given.json:
        print(json.dumps(cells))
    else:
        show(jobs, cells)


if __name__ == "__main__":
    main()
