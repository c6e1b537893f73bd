"""Do the 95% intervals of `sottovoce describe` cover?  Tables whose population is known.

    python bench/accuracy/coverage_describe.py [--quick] [--sets N] [--rows 2000,10000]
    [--epsilons 1,3] [--trusts sum] [--json]

A cell is a number of rows, a budget and a trust.  For each of its data sets rows of five sites are
drawn anew and described with noise of their own: two groups, four numbers (normal within four
standard deviations; whole years; a gamma, bounds wide and ``log1p``; a mixture of two normals with
5% missing),
two columns of levels (one with a level of 2%, one with 4% missing).  Intervals of means, standard
deviations, quartiles, shares and differences are held against the population, those of counts and
missing values against the table itself.  Coverage is of the printed intervals; *printed* is their
share.  An interval of the coverage of a cell is Clopper and Pearson's over sets, as if its lines
were one.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import math
import time
import zlib
from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table as Shown

from sottovoce import Schema, describe

SITES, DELTA, SETS = 5, 1e-5, 500
ROWS, EPSILONS, TRUSTS = (2_000, 10_000, 40_000), (1.0, 3.0, 10.0), ("sum", "curator", "nobody")
GROUPS, SHARE_OF_B = ("a", "b"), 0.4
KNOWN = 4_000_000
SCHEMA = Schema.from_dict(
    {
        "na": ["NA"],
        "columns": {
            "normal": {"kind": "number", "lo": 12, "hi": 108},
            "years": {"kind": "number", "lo": 0, "hi": 110},
            "skewed": {"kind": "number", "lo": 0, "hi": 80, "transform": "log1p"},
            "mixed": {"kind": "number", "lo": -20, "hi": 20, "missing": 0},
            "stage": {"kind": "category", "values": ["1", "2", "3", "4"]},
            "smoker": {"kind": "category", "values": ["no", "yes"], "missing": "no"},
            "arm": {"kind": "category", "values": list(GROUPS)},
        },
    }
)
STAGES = {"a": (0.40, 0.33, 0.25, 0.02), "b": (0.36, 0.35, 0.27, 0.02)}
SMOKERS = {"a": 0.30, "b": 0.38}
NUMBERS = ("normal", "years", "skewed", "mixed")
OF_TABLE = ("n", "count", "missing")


def numbers(group: str, n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Numbers of rows of a group."""
    shift = 1.5 if group == "b" else 0.0
    far = rng.random(n) < 0.3
    mixed = np.where(far, rng.normal(6.0, 2.0, n), rng.normal(-4.0, 2.5, n))
    return {
        "normal": np.clip(rng.normal(60.0 + shift, 12.0, n), 12.0, 108.0),
        "years": np.clip(np.rint(rng.normal(60.0 + shift, 12.0, n)), 0.0, 110.0),
        "skewed": np.clip(rng.gamma(2.0, 4.0 + 0.3 * shift, n), 0.0, 80.0),
        "mixed": np.clip(mixed + 0.4 * shift, -20.0, 20.0),
    }


def drawn(n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The columns of a table."""
    arm = rng.random(n) < SHARE_OF_B
    table: dict[str, np.ndarray] = {"arm": np.where(arm, "b", "a")}
    found = {group: numbers(group, n, rng) for group in GROUPS}
    for name in NUMBERS:
        table[name] = np.where(arm, found["b"][name], found["a"][name])
    gone = rng.random(n) < 0.05
    table["mixed"] = np.where(gone, "NA", table["mixed"].astype(str)).astype(object)
    stage = {group: rng.choice(4, n, p=STAGES[group]) + 1 for group in GROUPS}
    table["stage"] = np.where(arm, stage["b"], stage["a"])
    chance = np.where(arm, SMOKERS["b"], SMOKERS["a"])
    smoker = np.where(rng.random(n) < chance, "yes", "no")
    table["smoker"] = np.where(rng.random(n) < 0.04, "", smoker)
    return table


@cache
def population() -> dict[tuple[str, str, str, str], float]:
    """What every line estimates, by name, level, group and statistic."""
    rng = np.random.default_rng(1)
    own = {group: numbers(group, KNOWN, rng) for group in GROUPS}
    weight = {"a": 1.0 - SHARE_OF_B, "b": SHARE_OF_B}
    take = rng.random(KNOWN) < SHARE_OF_B
    found: dict[tuple[str, str, str, str], float] = {}
    moments: dict[tuple[str, str], tuple[float, float]] = {}
    for name in NUMBERS:
        samples = {group: own[group][name] for group in GROUPS}
        samples["overall"] = np.where(take, own["b"][name], own["a"][name])
        for group, x in samples.items():
            moments[name, group] = (float(x.mean()), float(x.var()))
            found[name, "", group, "mean"] = float(x.mean())
            found[name, "", group, "sd"] = float(x.std())
            for key, q in (("q1", 25), ("median", 50), ("q3", 75)):
                found[name, "", group, key] = float(np.percentile(x, q))
        (one, v1), (other, v0) = moments[name, "b"], moments[name, "a"]
        found[name, "", "b - a", "smd"] = (one - other) / math.sqrt((v1 + v0) / 2.0)
    shares = {("stage", str(k + 1)): {g: STAGES[g][k] for g in GROUPS} for k in range(4)}
    shares |= {("smoker", "yes"): SMOKERS, ("smoker", "no"): {g: 1 - SMOKERS[g] for g in GROUPS}}
    for (name, level), of in shares.items():
        for group in GROUPS:
            found[name, level, group, "share"] = of[group]
        found[name, level, "overall", "share"] = sum(weight[g] * of[g] for g in GROUPS)
        variance = sum(p * (1 - p) for p in of.values()) / 2.0
        found[name, level, "b - a", "smd"] = (of["b"] - of["a"]) / math.sqrt(variance)
    for name, share in (("mixed", 0.05), ("smoker", 0.04)):
        for group in (*GROUPS, "overall"):
            found[name, "", group, "missing share"] = share
    return found


def counts_of(table: dict[str, np.ndarray]) -> dict[tuple[str, str, str, str], float]:
    """The counts of a table, which lines of counts are about."""
    found: dict[tuple[str, str, str, str], float] = {}
    for group in ("overall", *GROUPS):
        of = np.ones(len(table["arm"]), bool) if group == "overall" else table["arm"] == group
        found["", "", group, "n"] = float(of.sum())
        for name, gone in (("mixed", "NA"), ("smoker", "")):
            found[name, "", group, "missing"] = float((of & (table[name] == gone)).sum())
        for k in range(1, 5):
            found["stage", str(k), group, "count"] = float((of & (table["stage"] == k)).sum())
        for level in ("no", "yes"):
            found["smoker", level, group, "count"] = float((of & (table["smoker"] == level)).sum())
    return found


def measure(n: int, epsilon: float, trust: str, sets: int) -> dict[str, Any]:
    """Count the intervals of a cell that hold what they are about, by statistic."""
    held: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    started = time.perf_counter()
    for k in range(sets):
        rng = np.random.default_rng(zlib.crc32(f"{n} {epsilon} {trust} {k}".encode()))
        table = drawn(n, rng)
        about = population() | counts_of(table)
        found = describe(
            table,
            schema=SCHEMA,
            by="arm",
            epsilon=epsilon,
            delta=DELTA,
            trust=trust,
            nodes=SITES,
            seed=int(rng.integers(2**31)),
        )
        for line in found.table:
            truth = about.get((line.name, line.level, line.group, line.statistic))
            if truth is None:
                continue
            one = held[line.statistic]
            one[0] += 1
            if line.low is not None and line.high is not None:
                one[1] += 1
                one[2] += line.low <= truth <= line.high
    return {
        "rows": n,
        "epsilon": epsilon,
        "trust": trust,
        "sets": sets,
        "seconds": time.perf_counter() - started,
        "statistics": {
            name: {"lines": a, "printed": b / a, "coverage": c / b if b else None, "held": [b, c]}
            for name, (a, b, c) in held.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sets", type=int, default=SETS)
    parser.add_argument("--rows", default=",".join(map(str, ROWS)))
    parser.add_argument("--epsilons", default=",".join(f"{e:g}" for e in EPSILONS))
    parser.add_argument("--trusts", default=",".join(TRUSTS))
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    sets = 5 if asked.quick else asked.sets
    names = ("mean", "sd", "q1", "median", "q3", "share", "missing share", "smd", *OF_TABLE)
    shown = Shown("cell", *names, "all", title="coverage in %, and share printed where not all")
    cells = []
    total: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for trust in asked.trusts.split(","):
        for n in map(int, asked.rows.split(",")):
            for epsilon in map(float, asked.epsilons.split(",")):
                cell = measure(n, epsilon, trust, sets)
                cells.append(cell)
                texts, all_held = [], [0, 0]
                for name in names:
                    one = cell["statistics"][name]
                    part = "" if one["printed"] == 1.0 else f" ({100 * one['printed']:.0f}%)"
                    texts.append(
                        "-" if one["coverage"] is None else f"{100 * one['coverage']:.1f}{part}"
                    )
                    for sums in (total[name], all_held, total["all"]):
                        sums[0] += one["held"][0]
                        sums[1] += one["held"][1]
                texts.append(f"{100 * all_held[1] / all_held[0]:.1f}")
                shown.add_row(f"{trust}, {n:,}, {epsilon:g}", *texts)
                if not asked.json:
                    print(
                        shown.rows
                        and f"{trust} {n} {epsilon:g}: {' '.join(texts)} ({cell['seconds']:.0f} s)",
                        flush=True,
                    )
    shown.add_row(
        "pooled",
        *(f"{100 * total[name][1] / max(total[name][0], 1):.1f}" for name in (*names, "all")),
    )
    if asked.json:
        print(json.dumps(cells))
    else:
        Console(width=180).print(shown)


if __name__ == "__main__":
    main()
