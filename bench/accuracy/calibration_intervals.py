"""Do 95% intervals of calibration slope, intercepts and O/E cover, without bias?  Models whose
calibration is known.

``scripts/bench calibration_intervals [--quick] [--sets N] [--cells NAME;...] [--out FILE [--minutes
M]] [--json FILE] [--write FILE]``

A cell is a law of the model's log-odds z, labels with ``logit P(y = 1) = a + b z``, a number of
held-out rows and a budget.  *Bias* is that of the printed numbers, in mean standard errors that are
printed with them.  For each data set held-out rows of five sites are asked as ``--evaluation`` asks
them.  ``--out`` goes on as that of ``coverage`` does.
"""

from __future__ import annotations

import sys
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import coverage
import numpy as np
from coverage import SITES, Setting
from scipy import optimize, stats
from scipy.special import expit

from sottovoce.answers.evaluation import Held
from sottovoce.answers.judging import Scored, judge_for_task
from sottovoce.answers.metrics import Estimate
from sottovoce.problem.task import TwoClasses
from sottovoce.runs.config import RunConfig
from sottovoce.util.plain import digest_public_values

SETS = 500
GRID = 400_000
FILES = (
    "answers/evaluation.py",
    "answers/metrics.py",
    "answers/recalibration.py",
    "queries/bounded.py",
    "queries/corrections.py",
)
NAMES = ("slope", "intercept", "in_the_large", "observed_expected")


class Design(NamedTuple):
    """Mean and spread of normal log-odds z, and the line of the label's log-odds in z.

    With an `other` mean every second row has that one: scores of two lumps, far from the middle.
    """

    middle: float
    spread: float
    intercept: float = 0.0
    slope: float = 1.0
    other: float | None = None


DESIGNS = {
    "calibrated": Design(-1.0, 1.3),
    "overconfident": Design(-1.0, 2.6, -0.2, 0.5),
    "underconfident": Design(-1.0, 0.6, 0.3, 2.0),
    "2% events": Design(-4.4, 1.1),
    "2% events, overconfident": Design(-6.0, 2.2, -1.4, 0.5),
    "98% events": Design(4.4, 1.1),
    "98% events, underconfident": Design(2.2, 0.55, 0.0, 2.0),
    "area .6": Design(-0.5, 0.36),
    "area .6, overconfident": Design(-1.0, 0.72, 0.0, 0.5),
    "area .6, underconfident": Design(-0.25, 0.18, 0.0, 2.0),
    "area .98": Design(-1.0, 6.0),
    "area .98, overconfident": Design(-2.0, 12.0, 0.0, 0.5),
    "two ends": Design(-6.0, 0.5, other=5.0),
    "two ends, overconfident": Design(-6.0, 0.5, 0.3, 0.5, other=5.0),
    "two ends, one flat": Design(-9.0, 0.5, other=4.0),
    "two ends, rare events": Design(-7.0, 0.5, other=-3.0),
    "two wide ends": Design(-5.0, 1.5, other=5.0),
    "two ends, steep": Design(-4.0, 0.5, 0.0, 1.5, other=4.0),
}


@dataclass(frozen=True)
class Cell(Setting):
    """A design with its rows and budget."""


CELLS = (
    Cell("calibrated", 2_000, 3.0),
    Cell("calibrated", 20_000, 0.5),
    Cell("calibrated", 200_000, 10.0),
    Cell("overconfident", 2_000, 10.0),
    Cell("overconfident", 20_000, 1.0),
    Cell("overconfident", 200_000, 3.0),
    Cell("underconfident", 8_000, 1.0),
    Cell("underconfident", 200_000, 0.5),
    Cell("2% events", 20_000, 3.0),
    Cell("2% events, overconfident", 200_000, 1.0),
    Cell("98% events", 20_000, 10.0),
    Cell("area .6", 20_000, 3.0),
    Cell("area .98", 8_000, 3.0),
    Cell("area .98", 200_000, 10.0),
    # where noise is large and slopes are refused
    Cell("calibrated", 2_000, 0.5),
    Cell("underconfident", 2_000, 0.5),
    Cell("underconfident", 2_000, 1.0),
    Cell("2% events", 2_000, 3.0),
    Cell("area .98", 2_000, 0.5),
    # models that are too sure or not sure enough at both ends
    Cell("98% events, underconfident", 20_000, 1.0),
    Cell("area .6", 2_000, 2.0),
    Cell("area .6, overconfident", 20_000, 1.0),
    Cell("area .6, underconfident", 8_000, 3.0),
    Cell("area .98, overconfident", 8_000, 1.0),
    # scores that are nearly all in the open cells of the histogram, where nothing says how far
    Cell("two ends", 5_000, 1.0),
    Cell("two ends", 8_000, 1.0),
    Cell("two ends", 20_000, 1.0),
    Cell("two ends", 40_000, 3.0),
    Cell("two ends, overconfident", 8_000, 1.0),
    Cell("two ends, one flat", 20_000, 1.0),
    Cell("two ends, rare events", 20_000, 1.0),
    Cell("two wide ends", 8_000, 1.0),
    Cell("two ends, steep", 8_000, 3.0),
)


@lru_cache
def truth(name: str) -> dict[str, float]:
    """The four numbers of all rows that there could be."""
    design = DESIGNS[name]
    even = stats.norm.ppf((np.arange(GRID) + 0.5) / GRID)
    z = np.concatenate([middle + design.spread * even for middle in _middles(design)])
    positives = float(expit(design.intercept + design.slope * z).mean())
    shift = optimize.brentq(lambda a: float(expit(z + a).mean()) - positives, -20.0, 20.0)
    return {
        "slope": design.slope,
        "intercept": design.intercept,
        "in_the_large": float(shift),
        "observed_expected": positives / float(expit(z).mean()),
    }


def _middles(design: Design) -> tuple[float, ...]:
    return (design.middle,) if design.other is None else (design.middle, design.other)


def one(cell: Cell, seed: int) -> dict[str, Any]:
    """Of each interval low end, number and high end; None if it is refused."""
    rng = np.random.default_rng([seed, zlib.crc32(cell.name.encode())])
    design = DESIGNS[cell.design]
    middles = np.resize(_middles(design), cell.n)
    z = rng.normal(middles, design.spread)
    y = np.where(rng.random(cell.n) < expit(design.intercept + design.slope * z), 1.0, -1.0)
    config = RunConfig(
        method="auto", trust="sum", epsilon=cell.epsilon, delta=1e-5, seed=int(rng.integers(2**31))
    )
    scored = Scored(z, digest_public_values(np.ones(1)), y)
    found = (
        judge_for_task(TwoClasses(), Held(cell.epsilon), None)
        .run_evaluation(scored, config, SITES)
        .quality[""]
        .recalibration
    )
    return {name: _ends(getattr(found, name)) for name in NAMES}


def _ends(found: Estimate) -> list[float | None] | None:
    return None if found.value is None else [found.low, found.value, found.high]


def summary(cell: Cell, sets: list[dict[str, Any]]) -> dict[str, Any]:
    """Share that is printed, coverage, bias over the standard error, median width."""
    row: dict[str, Any] = {"cell": cell.name, "sets": len(sets)}
    for name, true in truth(cell.design).items():
        ends = np.array([found[name] for found in sets if found[name] is not None]).reshape(-1, 3)
        low, middle, high = ends.T
        printed = len(ends) / len(sets)
        row[name] = {
            "truth": true,
            "printed": printed,
            "coverage": None,
            "bias": None,
            "width": None,
        }
        if len(ends):
            errors = (high - low) / (2.0 * stats.norm.isf(0.025))
            row[name] |= {
                "coverage": float(np.mean((low <= true) & (true <= high))),
                "bias": float(np.mean(middle - true) / np.mean(errors)),
                "spread": float(np.std(middle) / np.mean(errors)),
                "width": float(np.median(high - low)),
            }
    return row


def show(done: list[dict[str, Any]]) -> None:
    heads = " ".join(f"{head:>7}" for head in ("printed", "cover", "bias", "spread", "width"))
    print(f"{'cell':<44} {'sets':>5} {'':<18} {'truth':>7} {heads}")
    for row in done:
        for name in NAMES:
            found = row[name]
            told = [f"{row['cell']:<44} {row['sets']:5d} {name:<18} {found['truth']:7.3f}"]
            told.append(f"{100 * found['printed']:6.1f}%")
            if found["coverage"] is not None:
                told.append(
                    f"{100 * found['coverage']:7.1f} {found['bias']:7.2f} {found['spread']:7.2f}"
                )
                told.append(f"{found['width']:7.3f}")
            print(" ".join(told))


def page(done: list[dict[str, Any]]) -> str:
    """The table in Markdown: coverage in percent, in brackets the bias in printed standard
    errors.
    """
    text = [
        "| model, rows, epsilon | slope | width | intercept | in the large | O/E |",
        "|---|---|---|---|---|---|",
    ]
    for row in done:
        name = row["cell"].replace("n = ", "").replace("epsilon ", "")
        width = (
            "–"
            if row["slope"]["width"] is None
            else f"{row['slope']['width']:.2f}".removeprefix("0")
        )
        told = [_in_words(row[what]) for what in NAMES]
        text.append(f"| {' | '.join([name, told[0], width, *told[1:]])} |")
    return "\n".join(text) + "\n"


def _in_words(found: dict[str, Any]) -> str:
    if found["coverage"] is None:
        return "–"
    bias = f"{found['bias']:+.2f}".replace("0.", ".")
    if found["printed"] < 0.985:
        bias += f", {100 * found['printed']:.0f}% printed"
    return f"{100 * found['coverage']:.0f} ({bias})"


if __name__ == "__main__":
    coverage.main(sys.modules[__name__], show, page=page)
