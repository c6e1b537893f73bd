"""Noise in the means and shares of a descriptive table, beside diffprivlib's and OpenDP's.

    python bench/accuracy/describe_noise.py [--quick] [--repeats N] [--rows N] [--peers PYTHON]
    [--json]

Twelve columns: six normal numbers in bounds of four standard deviations to both sides, and six
columns of two to five levels; two groups of equal size, three sites.  Error is the root mean square
of what noise adds to means, over the column's standard deviation, and to shares, in points.
*describe* releases by group and overall, with standard deviations, quartiles, missing values and
counts, from one budget; diffprivlib (Laplace) and OpenDP (Gaussian) release twelve overall means or
histograms alone, with a trusted curator and an equal share of the same total for each column.
diffprivlib counts for a row that is added or removed, which is *zero-out* here; the others for a
replaced row.
``--peers`` is an interpreter that has both; without it their rows are left out.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import math
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table as Shown

from sottovoce import Schema, describe

DELTA, EPSILONS, WIDE = 1e-5, (0.5, 2.0), 4.0
WAYS = (
    ("sum", "replace-one"),
    ("curator", "replace-one"),
    ("curator", "zero-out"),
    ("nobody", "replace-one"),
)
LEVELS = (2, 2, 3, 3, 4, 5)
PEERS = Path(__file__).with_name("_describe_peers.py")


def schema() -> Schema:
    columns: dict[str, Any] = {
        f"number{k}": {"kind": "number", "lo": -WIDE, "hi": WIDE} for k in range(6)
    }
    columns |= {
        f"level{k}": {"kind": "category", "values": [str(j) for j in range(many)]}
        for k, many in enumerate(LEVELS)
    }
    return Schema.from_dict(
        {"columns": columns | {"arm": {"kind": "category", "values": ["a", "b"]}}}
    )


def table(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    found: dict[str, np.ndarray] = {f"number{k}": rng.normal(size=n) for k in range(6)}
    found |= {f"level{k}": rng.integers(many, size=n) for k, many in enumerate(LEVELS)}
    return found | {"arm": np.array(["a", "b"])[np.arange(n) % 2]}


def errors_of(
    data: dict[str, np.ndarray], way: tuple[str, str], epsilon: float, repeats: int
) -> dict[str, float]:
    """Root mean square noise of statistics, by what they are and whose."""
    off: dict[str, list[float]] = defaultdict(list)
    told: dict[str, list[float]] = defaultdict(list)
    asked: dict[str, Any] = {
        "schema": schema(),
        "by": "arm",
        "delta": DELTA,
        "nodes": 3,
        "trust": way[0],
        "relation": way[1],
    }
    exact = {one[:4]: one.value for one in describe(data, epsilon=math.inf, **asked).table}
    for seed in range(repeats):
        for one in describe(data, epsilon=epsilon, seed=seed, **asked).table:
            if one.value is None or one.statistic not in ("mean", "sd", "median", "share"):
                continue
            if one.group not in ("overall", "a", "b"):
                continue
            whose = "overall" if one.group == "overall" else "by group"
            off[f"{one.statistic}, {whose}"].append(one.value - exact[one[:4]])
            told[f"{one.statistic}, {whose}"].append(one.noise)
    found = {name: float(np.sqrt(np.mean(np.square(x)))) for name, x in off.items()}
    return found | {
        f"{name}, told": float(np.sqrt(np.mean(np.square(x)))) for name, x in told.items()
    }


def errors_of_peers(
    python: str, data: dict[str, np.ndarray], repeats: int
) -> dict[str, list[float]]:
    columns = [
        {
            "values": values.tolist(),
            "levels": None if name.startswith("number") else LEVELS[int(name[-1])],
            "lo": -WIDE,
            "hi": WIDE,
            "sd": float(np.std(values)),
        }
        for name, values in data.items()
        if name != "arm"
    ]
    job = {"columns": columns, "epsilons": EPSILONS, "delta": DELTA, "repeats": repeats}
    ran = subprocess.run(
        [python, str(PEERS)], input=json.dumps(job), capture_output=True, text=True, check=True
    )
    return json.loads(ran.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--rows", type=int, default=6_000)
    parser.add_argument("--peers")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    repeats = 3 if asked.quick else asked.repeats
    data = table(asked.rows)
    found: dict[str, Any] = {}
    shown = Shown(
        "who", "epsilon", "mean / SD", "share, points", "mean / SD, group", "share, group",
        "SD / SD", "median / SD",
        title=f"noise, root mean square; {asked.rows:,} rows, {repeats} repeats",
    )  # fmt: skip
    for way in WAYS:
        for epsilon in EPSILONS:
            one = found[f"{' '.join(way)} {epsilon:g}"] = errors_of(data, way, epsilon, repeats)
            shown.add_row(
                f"describe, {way[0]}, {way[1]}",
                f"{epsilon:g}",
                f"{one['mean, overall']:.3f}",
                f"{100 * one['share, overall']:.2f}",
                f"{one['mean, by group']:.3f}",
                f"{100 * one['share, by group']:.2f}",
                f"{one['sd, overall']:.3f}",
                f"{one['median, overall']:.3f}",
            )
    if asked.peers is not None:
        for name, (mean, share) in errors_of_peers(asked.peers, data, repeats).items():
            found[name] = [mean, share]
            who, epsilon = name.split()
            shown.add_row(
                f"{who}, curator", epsilon, f"{mean:.3f}", f"{100 * share:.2f}", *["-"] * 4
            )
    if asked.json:
        print(json.dumps(found))
    else:
        Console(width=140).print(shown)


if __name__ == "__main__":
    main()
