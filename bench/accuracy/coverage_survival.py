"""Do bands, medians and restricted means cover, and has the log-rank test its size?  Laws of known
survival.

``scripts/bench coverage_survival [--quick] [--sets N] [--cells NAME;...] [--json FILE]``

A cell is a design, a number of people and a budget.  A design has the law of times in each of two
groups, the share of people in the first, and the law of censoring.  People of one site are counted
on the usual grid of twelve cells (cuts at 30, 90, 180 and 365), and normal noise of the deviation
that the engine plans is added: what the engine draws is tested in ``tests/``.  Truths are those of
continuous times.  *Bands* is the share of points of curves that are told and covered, *worst* the
least over times, *ends* the share of curves that noise ended before the last time.  *Size* is how
often p is below .05 where both groups have the law of the first, *refused* how often there is no p,
*power* that of the design.  ``--quick`` has few sets.
"""

from __future__ import annotations

import argparse
import json
import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sottovoce.answers.kaplan_meier import CurveTable, log_rank
from sottovoce.answers.survival_curves import FollowUp, plan_curves
from sottovoce.data.follow_up import find_leaving_intervals
from sottovoce.data.schema import Schema
from sottovoce.runs.config import RunConfig

SETS, QUICK = 2_000, 200
SCHEMA = Schema.from_dict(
    {
        "label": {"event": "died", "time": "days", "cuts": [30, 90, 180, 365]},
        "columns": {"arm": {"kind": "category", "values": ["a", "b"]}},
    }
)
ROWS, EPSILONS = (2_000, 6_000, 20_000), (1.0, 3.0, 10.0)


class Law(NamedTuple):
    """Weibull times: survival is ``exp(-(t / scale)^shape)``."""

    scale: float
    shape: float = 1.0

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return np.asarray(self.scale * rng.weibull(self.shape, n))

    def survival(self, t: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(-((t / self.scale) ** self.shape)))

    @property
    def median(self) -> float:
        return float(self.scale * math.log(2.0) ** (1.0 / self.shape))

    def restricted_mean(self, end: float) -> float:
        t = np.linspace(0.0, end, 20_001)
        return float(np.trapezoid(self.survival(t), t))


class Design(NamedTuple):
    """Two laws of times, the share of the first group, and the law of censoring."""

    first: Law
    second: Law
    share: float
    censored: Callable[[np.random.Generator, int], np.ndarray]


def uniform(low: float, high: float) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, n: rng.uniform(low, high, n)


def early(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.asarray(rng.exponential(250.0, n))


DESIGNS = {
    "trial": Design(Law(300.0), Law(420.0), 0.5, uniform(100.0, 900.0)),
    "early deaths": Design(Law(260.0, 0.6), Law(400.0, 0.6), 0.5, uniform(100.0, 900.0)),
    "late deaths": Design(Law(300.0, 2.0), Law(340.0, 2.0), 0.5, uniform(100.0, 900.0)),
    "few deaths": Design(Law(5_000.0), Law(9_000.0), 0.5, uniform(200.0, 900.0)),
    "many censored": Design(Law(300.0), Law(420.0), 0.5, early),
    "one in five": Design(Law(300.0), Law(420.0), 0.2, uniform(100.0, 900.0)),
}


def counts_of_sets(
    design: Design, n: int, sets: int, asked: FollowUp, rng: np.random.Generator, *, null: bool
) -> np.ndarray:
    """Counts of every set and group, (sets, 2, counts); rows of a set are n in all."""
    edges, width = np.array(asked.edges), asked.counts_of_group
    found = np.empty((sets, 2, width))
    for one in range(sets):
        first = rng.random(n) < design.share
        other = design.first if null else design.second
        time = np.where(first, design.first.draw(rng, n), other.draw(rng, n))
        seen = design.censored(rng, n)
        leaves = find_leaving_intervals(
            np.minimum(time, seen), time <= seen, np.ones(n, dtype=bool), edges, 1
        )
        for group in (0, 1):
            own = leaves.cell[first == (group == 0)]
            found[one, group] = np.bincount(own, minlength=width)
    return found


def measure(name: str, n: int, epsilon: float, sets: int) -> dict[str, Any]:
    """Coverage and size of one cell."""
    design = DESIGNS[name]
    options = dict.fromkeys(("time", "event", "event_code", "grid"))
    asked = FollowUp.from_options(SCHEMA, options | {"by": "arm"})
    sigma = 0.0
    if math.isfinite(epsilon):
        run = RunConfig.from_dict({"method": "auto", "delta": 1e-5, "epsilon": epsilon})
        _, sigma = plan_curves(asked, [float(n)], run)
    seed = zlib.crc32(f"{name} {n} {epsilon}".encode())
    rng = np.random.default_rng(seed)
    edges = np.array(asked.edges)

    def release(null: bool) -> CurveTable:
        counts = counts_of_sets(design, n, sets, asked, rng, null=null)
        return CurveTable(counts + sigma * rng.normal(size=counts.shape), sigma, edges)

    table = release(null=False)
    told = table.survival()
    laws = (design.first, design.second)
    truth = np.stack([law.survival(edges[1:]) for law in laws])
    shown = ~np.isnan(told.value)
    covered = shown & (told.low <= truth) & (truth <= told.high)
    by_time = covered.sum(axis=0) / np.maximum(shown.sum(axis=0), 1)
    found = {"design": name, "n": n, "epsilon": epsilon, "sets": sets, "sigma": sigma}
    found |= {
        "bands": float(covered.sum() / shown.sum()),
        "worst": float(by_time[shown.sum(axis=0) >= 0.1 * sets].min()),
        "ends": float(1.0 - shown[..., -1].mean()),
        "width": float(np.nanmedian((told.high - told.low)[..., -1])),
    }
    medians, means = table.medians(told), table.restricted_means()
    for key, has, true in (
        ("median", medians, [law.median for law in laws]),
        ("mean", means, [law.restricted_mean(edges[-1]) for law in laws]),
    ):
        reached = ~np.isnan(has.low) & ~np.isnan(has.value)
        high = np.where(np.isnan(has.high), np.inf, has.high)
        inside = reached & (has.low <= np.array(true)) & (np.array(true) <= high)
        found[key] = float(inside.sum() / reached.sum()) if reached.sum() > 50 else None
    test = log_rank(table)
    null = log_rank(release(null=True))
    found["size"] = float(np.mean(null.p < 0.05) / max(1.0 - null.hidden.mean(), 1e-9))
    found["refused"] = float(null.hidden.mean())
    found["power"] = float(np.mean(test.p < 0.05))
    found["noise_share"] = float(null.noise_share.mean())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sets", type=int)
    parser.add_argument("--cells", help="designs, separated by ;")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    sets = given.sets or (QUICK if given.quick else SETS)
    names = given.cells.split(";") if given.cells else list(DESIGNS)
    results = []
    heads = ["bands", "worst", "ends", "width", "median", "mean"]
    heads += ["size", "refused", "power", "noise_share"]
    print(f"{'design':<15}{'n':>7}{'eps':>5}", *(f"{head:>9}" for head in heads))
    for name in names:
        for n in ROWS:
            for epsilon in EPSILONS:
                one = measure(name, n, epsilon, sets)
                results.append(one)
                cells = ("-" if one[h] is None else f"{one[h]:.3f}" for h in heads)
                print(f"{name:<15}{n:>7}{epsilon:>5g}", *(f"{c:>9}" for c in cells), flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
