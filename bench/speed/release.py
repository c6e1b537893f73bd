"""What exact noise costs: microseconds a coordinate, and a whole release against the simulation of
the same run.

    python bench/speed/release.py [--json] [--quick] [--repeats 5]

A release draws its noise from the operating system, exactly on a grid; a simulation draws it from a
seed, in double precision.  A run is 10 rounds of momentum at two sites of 2,000 rows each, with
Gaussian noise or, without a delta, with spherical noise; there are so few rows that noise is a
large part of a round.  Release and simulation take turns; medians of processor seconds.  Last, what
a new process takes until its first number, after its imports.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp

from sottovoce import RunConfig
from sottovoce.data.rows import Rows
from sottovoce.privacy.noise import SystemNoise
from sottovoce.runs.simulate import simulate

SITES, ROWS, ONES = 2, 2000, 30
COLUMNS = {"dense": (100,), "sparse": (2_000, 20_000, 200_000)}
LAWS = {"gaussian": 1e-5, "pure": None}
"""Of each law of noise, the delta for which a run takes it."""
FIRST = """
import time, numpy, sottovoce.runs.simulate
from sottovoce.privacy.noise import SystemNoise
start = time.process_time()
SystemNoise().add_gaussian(numpy.zeros(1), numpy.ones(1), numpy.ones(1), 0)
print(time.process_time() - start)
"""


def rows(kind: str, d: int) -> Rows:
    """Two sites' rows: dense normals, or 30 columns a row that are not zero."""
    rng, parts = np.random.default_rng(0), []
    for _ in range(SITES):
        if kind == "dense":
            X = rng.normal(size=(ROWS, d))
            X /= 1.001 * np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
            parts.append((X, np.where(X[:, 0] > 0, 1.0, -1.0)))
            continue
        at = rng.integers(d, size=(ROWS, ONES))
        where = (np.repeat(np.arange(ROWS), ONES), at.ravel())
        S = sp.csr_array((np.full(at.size, 0.5 / np.sqrt(ONES)), where), (ROWS, d))
        S.sum_duplicates()
        parts.append((S, np.where(at[:, 0] < d // 3, 1.0, -1.0)))
    return Rows.build_from_parts(parts)


def processor(task: Callable[[], object]) -> float:
    """Processor seconds of a task."""
    start = time.process_time()
    task()
    return time.process_time() - start


def coordinates(law: str, d: int, repeats: int) -> float:
    """Microseconds a coordinate that a vector of noise takes, with its grid."""
    noise, w = SystemNoise(), np.random.default_rng(1).normal(size=d)
    add, scale = (noise.add_gaussian, 1e-3) if law == "gaussian" else (noise.add_spherical, 1e3)
    times = max(1, 1000 // d)
    return 1e6 * median(
        processor(lambda: [add(w, np.array([scale]), np.array([1e-10]), k) for k in range(times)])
        / (times * d)
        for _ in range(repeats)
    )


def measure(repeats: int, quick: bool) -> list[dict[str, Any]]:
    found = []
    for kind, columns in COLUMNS.items():
        for d in columns[:1] if quick else columns:
            own = rows(kind, d)
            for law, delta in LAWS.items():
                seconds: dict[str, list[float]] = {"release": [], "simulation": []}
                for _ in range(repeats + 1):  # the first warms caches
                    for name, seed in (("release", None), ("simulation", 0)):
                        run = RunConfig(
                            method="momentum",
                            epsilon=1.0,
                            delta=delta,
                            rounds=10,
                            tol=None,
                            seed=seed,
                        )
                        seconds[name].append(processor(partial(simulate, run, own)))
                each = {name: median(values[1:]) for name, values in seconds.items()}
                found.append(
                    {
                        "rows": kind,
                        "columns": d,
                        "law": law,
                        "microseconds": coordinates(law, d, repeats),
                    }
                    | each
                    | {"ratio": each["release"] / each["simulation"]}
                )
    return found


def first(repeats: int) -> float:
    """Processor seconds of a new process until its first number."""
    runs = (
        subprocess.run([sys.executable, "-c", FIRST], check=True, capture_output=True)
        for _ in range(repeats)
    )
    return median(float(run.stdout) for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="pairs of runs; medians are reported"
    )
    parser.add_argument("--quick", action="store_true", help="few columns, one pair")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    repeats = 1 if given.quick else given.repeats
    answer, start = measure(repeats, given.quick), first(repeats)
    if given.json:
        print(json.dumps({"runs": answer, "first": start}))
        return
    print(
        f"{'rows':8}{'columns':>9}  "
        f"{'law':10}{'us a number':>12}{'release, s':>12}{'simulation, s':>15}{'ratio':>7}"
    )
    for one in answer:
        print(
            f"{one['rows']:8}{one['columns']:>9,}  {one['law']:10}{one['microseconds']:12.3f}"
            f"{one['release']:12.3f}{one['simulation']:15.3f}{one['ratio']:7.2f}"
        )
    print(f"a new process until its first number: {start:.3f} s")


if __name__ == "__main__":
    main()
