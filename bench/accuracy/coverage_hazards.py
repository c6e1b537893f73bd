"""Do 95% intervals of hazard ratios and rate ratios cover?  Data sets of known coefficients, the
whole recipe of ``--inference``, and its own rule of what is printed.

``scripts/bench coverage_hazards [--quick] [--sets N] [--cells NAME;...] [--out FILE [--minutes M]]
[--json FILE]``

With ``--out`` data sets are kept, one a line, and a later call adds those that are missing.  A data
set depends on its cell and its number alone.  Slopes are counted, constants are not.

Designs: *hazards* (Weibull times of shape .8, uniform censoring, four intervals, about 40% with the
event), *rare* (the same with about 5%), *counts* (Poisson, about .6 a person, at most 10, .5 to 5
years) and *spread* (the same rates with gamma heterogeneity of variance 1).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sottovoce.answers.fits import Layout, LogRates
from sottovoce.data.schema import Schema
from sottovoce.problem.task import EventRate
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate

SITES = 3
SETS, QUICK = 500, 4
EDGES = (0.0, 30.0, 90.0, 180.0, 365.0)
COUNTED = EventRate((0.0, 5.0), 10.0, False)
TIMED = EventRate(EDGES, 1.0, True)
SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"kind": "number", "lo": 20, "hi": 90},
            "bmi": {"kind": "number", "lo": 15, "hi": 45},
            "treated": {"kind": "category", "values": ["no", "yes"]},
            "stage": {"kind": "category", "values": ["1", "2", "3"]},
        }
    }
)
TRUTH = np.array([0.03, -0.03, -0.4, 0.3, 0.8])
"""Log ratios of age, bmi, treated, and stages 2 and 3 against 1."""


class Cell(NamedTuple):
    design: str
    rows: int
    epsilon: float
    trust: str

    @property
    def name(self) -> str:
        return f"{self.design} {self.rows} {self.epsilon:g} {self.trust}"


CELLS = tuple(
    Cell(design, rows, epsilon, trust)
    for design in ("hazards", "rare", "counts", "spread")
    for rows in (5000, 20000)
    for epsilon in (1.0, 3.0, 10.0)
    for trust in ("sum", "curator")
)


def people(n: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Columns of n people, and the logarithm of their relative rate."""
    age = np.clip(rng.normal(55, 15, n), 20, 90)
    bmi = np.clip(rng.normal(27, 5, n), 15, 45)
    treated = rng.random(n) < 0.5
    stage = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    columns = np.column_stack([age - 55, bmi - 27, treated, stage == 1, stage == 2])
    table = {
        "age": age,
        "bmi": bmi,
        "treated": np.where(treated, "yes", "no"),
        "stage": (stage + 1).astype(str),
    }
    return table, columns @ TRUTH


def outcomes(design: str, log_rate: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Encoded labels of people with these relative rates."""
    n = len(log_rate)
    if design in ("hazards", "rare"):
        scale = 600.0 if design == "hazards" else 12_000.0
        event = scale * (rng.exponential(size=n) / np.exp(log_rate)) ** (1 / 0.8)
        left = rng.uniform(30.0, 800.0, n)
        return TIMED.encode(np.column_stack([event <= left, np.minimum(event, left)]))
    years = rng.uniform(0.5, 5.0, n)
    mean = 0.2 * years * np.exp(log_rate)
    if design == "spread":
        mean = mean * rng.gamma(1.0, 1.0, n)
    return COUNTED.encode(np.column_stack([rng.poisson(mean), years]))


def one_set(cell: Cell, number: int) -> dict[str, Any]:
    """What one data set prints: for each slope, hit or miss, error over standard error, noise."""
    rng = np.random.default_rng([sum(map(ord, cell.name)), number])
    table, log_rate = people(cell.rows, rng)
    y = outcomes(cell.design, log_rate, rng)
    parts = np.array_split(np.arange(cell.rows), SITES)
    layout = Layout.from_schema(SCHEMA, [], 1.0, [len(part) for part in parts], ())
    task = TIMED if cell.design in ("hazards", "rare") else COUNTED
    fit = LogRates(layout, task=task, noisy=True)
    tables = [{name: column[part] for name, column in table.items()} for part in parts]
    rows = fit.encode_rows(tables, [y[part] for part in parts])
    config = RunConfig(
        method="auto", epsilon=cell.epsilon, delta=1e-5, trust=cell.trust, seed=number
    )
    outcome = simulate(config, rows, method=fit.recipe, loss=fit.loss).outcome
    lines = fit.read_outcome(outcome, 1e-5).plain["coefficients"][: len(TRUTH)]
    found: dict[str, Any] = {"cell": cell.name, "set": number, "lines": []}
    for line, truth in zip(lines, TRUTH.tolist(), strict=True):
        if line["estimate"] is None:
            found["lines"].append(None)
            continue
        off = (line["estimate"] - truth) / line["standard_error"]
        held = line["low"] <= truth <= line["high"]
        found["lines"].append([int(held), round(off, 4), round(line["times_wider"] or 1.0, 3)])
    return found


def summarise(kept: dict[str, list[list[Any]]]) -> list[dict[str, Any]]:
    """One entry for each cell, and one of all together."""
    rows = []
    pooled: list[list[float]] = []
    for name, sets in kept.items():
        lines = [line for one in sets for line in one if line is not None]
        pooled += lines
        every = sum(len(one) for one in sets)
        held = np.array([line[0] for line in lines])
        rows.append(
            {
                "cell": name,
                "sets": len(sets),
                "printed": len(lines) / every,
                "cover": float(held.mean()) if len(held) else None,
                "z": float(np.std([line[1] for line in lines])) if lines else None,
                "wider": float(np.median([line[2] for line in lines])) if lines else None,
            }
        )
    rows.append({"cell": "all", "sets": sum(len(s) for s in kept.values()), "printed": 1.0})
    rows[-1]["cover"] = float(np.mean([line[0] for line in pooled])) if pooled else None
    rows[-1]["printed"] = len(pooled) / (len(TRUTH) * max(1, rows[-1]["sets"]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sets", type=int, default=SETS)
    parser.add_argument("--cells", default="", help="beginnings of names, separated by ;")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    many = QUICK if asked.quick else asked.sets
    begin = tuple(asked.cells.split(";"))
    cells = [cell for cell in CELLS if cell.name.startswith(begin)]
    kept: dict[str, dict[int, list[Any]]] = defaultdict(dict)
    if asked.out and asked.out.exists():
        for text in asked.out.read_text().splitlines():
            one = json.loads(text)
            kept[one["cell"]][one["set"]] = one["lines"]
    until = time.monotonic() + 60.0 * asked.minutes
    # All cells advance together, so that a run that ends early has some of each.
    for number in range(many):
        for cell in cells:
            if number in kept[cell.name] or time.monotonic() > until:
                continue
            one = one_set(cell, number)
            kept[cell.name][number] = one["lines"]
            if asked.out:
                with asked.out.open("a") as file:
                    file.write(json.dumps(one) + "\n")
    rows = summarise({cell.name: list(kept[cell.name].values()) for cell in cells})
    for row in rows:
        shown = {key: "-" if value is None else value for key, value in row.items()}
        sys.stdout.write(
            "  ".join(
                f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in shown.items()
            )
            + "\n"
        )
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
