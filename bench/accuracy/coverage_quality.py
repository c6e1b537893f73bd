"""Do 95% intervals of accuracy and of the area under the ROC curve cover?  Models and rows of known
quality.

``scripts/bench coverage_quality [--quick] [--sets N] [--cells NAME;...] [--out FILE [--minutes M]]
[--json FILE]``

A cell is a design, a number of held-out rows and a budget.  A design is a law of scores and the
chance of a positive label given the score, so that accuracy and area on all rows that there could
be are known; of several classes, the joint law of class and answer.  For each data set held-out
rows of five sites are asked as ``--evaluation`` asks them. *Width* is the median length of the
printed intervals.  ``--out`` goes on as that of ``coverage`` does.
"""

from __future__ import annotations

import math
import sys
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import coverage
import numpy as np
from coverage import SITES, Setting
from scipy import stats
from scipy.special import expit

from sottovoce.answers.evaluation import Held
from sottovoce.answers.judging import Scored, judge_for_task
from sottovoce.answers.metrics import Estimate
from sottovoce.problem.task import ManyClasses, TwoClasses
from sottovoce.runs.config import RunConfig
from sottovoce.util.plain import digest_public_values

SETS = 500
GRID = 400_000
FILES = (
    "answers/judging.py",
    "answers/classes.py",
    "answers/evaluation.py",
    "answers/metrics.py",
    "answers/recalibration.py",
    "queries/bounded.py",
    "queries/corrections.py",
)


class Design(NamedTuple):
    """Scores by their quantile, and the chance of a positive label by the score."""

    score: Callable[[np.ndarray], np.ndarray]
    chance: Callable[[np.ndarray], np.ndarray] = expit


def normal(middle: float, spread: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda u: stats.norm.ppf(u, middle, spread)


def points(scores: list[float], shares: list[float]) -> Callable[[np.ndarray], np.ndarray]:
    """A few scores, with their shares of the rows."""
    return lambda u: np.asarray(scores)[np.searchsorted(np.cumsum(shares)[:-1], u)]


def stepped(low: float, high: float, at: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda s: np.where(s > at, high, low)


def teeth(period: float, low: float, high: float) -> Callable[[np.ndarray], np.ndarray]:
    """Chances that rise with the score, and fall back after every period."""
    return lambda s: low + (high - low) * (s / period % 1.0)


DESIGNS = {
    "calibrated": Design(normal(-1.0, 1.3)),
    "one binary column": Design(points([-1.2, 0.1], [0.6, 0.4])),
    "two binary columns": Design(points([-1.7, -1.0, -0.8, -0.1], [0.15, 0.35, 0.15, 0.35])),
    "four levels": Design(points([-2.0, -1.1, -0.4, 0.6], [0.4, 0.3, 0.2, 0.1])),
    "two far groups": Design(
        lambda u: np.where(u < 0.5, -3.0, 2.0) + stats.norm.ppf(2.0 * u % 1.0, 0.0, 0.05)
    ),
    "a step": Design(normal(-1.0, 1.3), stepped(0.1, 0.55, -0.8)),
    "a high step": Design(normal(-1.0, 1.3), stepped(0.12, 0.8, 0.7)),
    "a sharp step": Design(normal(-1.0, 1.3), stepped(0.05, 0.9, -0.8)),
    "too sure": Design(normal(-1.0, 2.6), lambda s: expit((s + 1.0) / 2.0 - 0.5)),
    "probit": Design(normal(-0.85, 2.0), lambda s: stats.norm.cdf(s / 1.7)),
    "very good": Design(normal(-1.0, 4.0)),
    "rare events": Design(normal(-4.0, 1.2)),
    "far off": Design(normal(5.0, 1.5), lambda s: expit(s - 5.0)),
    "shrunk": Design(normal(0.0, 0.1), lambda s: expit(10.0 * s)),
    "a U": Design(
        normal(-1.0, 1.3), lambda s: 0.08 + 0.7 * np.minimum(np.abs(s + 1.0) / 2.5, 1.0) ** 2
    ),
    "a steep U, off the middle": Design(
        normal(-1.0, 1.3), lambda s: expit(2.5 * np.abs(s + 0.2) - 3.0)
    ),
    "a sawtooth": Design(normal(-1.0, 1.3), teeth(1.5, 0.05, 0.7)),
    "a fine sawtooth": Design(normal(-1.0, 1.3), teeth(0.4, 0.1, 0.6)),
}
JOINT = np.array([[0.45, 0.1, 0.05], [0.05, 0.15, 0.05], [0.02, 0.03, 0.1]])
CLASSES = {"three classes": JOINT, "five classes": np.full((5, 5), 0.01) + 0.15 * np.eye(5)}


SIZES = ((2_000, 1.0), (8_000, 0.5), (8_000, math.inf), (40_000, 1.0))
CELLS = tuple(Setting(design, n, e) for design in (*DESIGNS, *CLASSES) for n, e in SIZES)


@lru_cache
def truth(name: str) -> dict[str, float]:
    """Accuracy at one half and area, of all rows that there could be; ties count half."""
    if name in CLASSES:
        return {"accuracy": float(np.trace(CLASSES[name]))}
    score = DESIGNS[name].score((np.arange(GRID) + 0.5) / GRID)
    p = DESIGNS[name].chance(score)
    _, where = np.unique(score, return_inverse=True)
    ones, none = np.bincount(where, p) / p.sum(), np.bincount(where, 1.0 - p) / (1.0 - p).sum()
    right = np.where(score >= 0.0, p, 1.0 - p)
    area, squares = (
        float(ones @ (np.cumsum(none) - 0.5 * none)),
        p * (1.0 - p) + (p - expit(score)) ** 2,
    )
    return {"accuracy": float(right.mean()), "auc": area, "brier": float(squares.mean())}


def released(cell: Setting, rng: np.random.Generator) -> dict[str, Estimate]:
    config = RunConfig(
        method="auto", trust="sum", epsilon=cell.epsilon, delta=1e-5, seed=int(rng.integers(2**31))
    )
    if cell.design in CLASSES:
        joint = CLASSES[cell.design]
        K = len(joint)
        drawn = rng.choice(K * K, p=joint.ravel(), size=cell.n)
        task = ManyClasses(tuple("abcdefgh"[:K]))
        scored = Scored(np.eye(K)[:, drawn % K], digest_public_values(np.eye(K)), drawn // K)
        return {
            "accuracy": judge_for_task(task, Held(cell.epsilon), None)
            .run_evaluation(scored, config, SITES)
            .accuracy
        }
    score = DESIGNS[cell.design].score(rng.random(cell.n))
    y = np.where(rng.random(cell.n) < DESIGNS[cell.design].chance(score), 1.0, -1.0)
    scored = Scored(score, digest_public_values(np.ones(1)), y)
    found = (
        judge_for_task(TwoClasses(), Held(cell.epsilon), None)
        .run_evaluation(scored, config, SITES)
        .quality[""]
    )
    return {"accuracy": found.rates["accuracy"], "auc": found.auc, "brier": found.brier}


def one(cell: Setting, seed: int) -> dict[str, Any]:
    """Of each interval low end, number and high end; None if it is refused."""
    found = released(cell, np.random.default_rng([seed, zlib.crc32(cell.name.encode())]))
    return {name: None if x.low is None else [x.low, x.value, x.high] for name, x in found.items()}


def summary(cell: Setting, sets: list[dict[str, Any]]) -> dict[str, Any]:
    """Coverage, median width, and root mean square error of the number, for each interval."""
    row: dict[str, Any] = {"cell": cell.name, "sets": len(sets)}
    for name, true in truth(cell.design).items():
        ends = np.array([one[name] for one in sets if one[name] is not None]).reshape(-1, 3)
        low, middle, high = ends.T
        row[name] = {
            "truth": true,
            "printed": len(ends) / len(sets),
            "coverage": float(np.mean((low <= true) & (true <= high))) if len(ends) else None,
            "width": float(np.median(high - low)) if len(ends) else None,
            "error": float(np.sqrt(np.mean((middle - true) ** 2))) if len(ends) else None,
        }
    return row


def show(done: list[dict[str, Any]]) -> None:
    print(f"{'':<44} {'':>5}   {'accuracy':^26}   {'area':^26}   {'Brier score':^26}")
    heads = " ".join(f"{head:>6}" for head in ("truth", "cover", "width", "error"))
    print(f"{'cell':<44} {'sets':>5}   {heads}   {heads}   {heads}  area printed")
    for row in done:
        told = [f"{row['cell']:<44} {row['sets']:5d}"]
        for name in ("accuracy", "auc", "brier"):
            found = row.get(name)
            if found is None or found["coverage"] is None:
                told.append(f"{'-':>6} " * 4)
                continue
            told.append(
                f"{found['truth']:6.3f} {100 * found['coverage']:6.1f} {found['width']:6.4f} "
                f"{found['error']:6.4f}"
            )
        told.append(f"{100 * row['auc']['printed']:6.1f}%" if "auc" in row else "")
        print("  ".join(told).rstrip())


if __name__ == "__main__":
    coverage.main(sys.modules[__name__], show)
