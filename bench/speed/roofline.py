"""What this machine can do, and the least that any exact method must spend on each workload.

    python bench/speed/roofline.py [--json] [--quick]

Rates are the best of several runs on all threads that the process may use (OMP_NUM_THREADS, 2 if it
is not set): matrix products at each workload's own shapes, whole and cut into blocks of several
sizes, by the library's threads and by threads of our own, in both layouts, in both precisions;
exponentials; a stream of memory; normal variates.

The floor of a local solve is what it takes to prove the answer, and to have come from elsewhere:
the gradient once in double precision at the answer (the certificate), and once in single precision
at another point.  A gradient is two products of the node's rows with one vector a replicate, and
one exponential a margin.  Noise adds its variates. Nothing else counts: no direction, no line
search, no Python.  Products include reading the rows, so a floor is the larger of that sum and of
the rows' bytes over the stream's rate.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")

import argparse
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import numpy as np
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from sottovoce.data.sweep import number_of_cores
from sottovoce.util.typing import Any

ASSUMPTIONS = (
    "each local solve evaluates its gradient once in double precision (the certificate) and once "
    "in single",
    "a gradient is two products with the rows, 4 n d operations a replicate, and n exponentials; "
    "nothing else counts",
    "a release draws 2 d normal variates and 2 gamma variates a node and replicate (in the "
    "objective, on the answer)",
    "every rate is the best seen on this machine, at the workload's own shapes; rows are read "
    "once an evaluation",
    "of rows that repeat, the distinct ones are multiplied, with their counts",
    "one-hot rows (a floor of its own): entries that are not zero only, at the rate of dense "
    "products, two bytes each",
)


@dataclass(frozen=True)
class Workload:
    """Local solves with n rows of d features at each of N nodes, R replicates of each, `solves`
    in a row.
    """

    name: str
    nodes: int
    n: int
    d: int
    replicates: int
    solves: int
    noisy: bool = True
    distinct: int | None = None
    """Distinct rows of a node; None if all are."""
    ones: float | None = None
    """Entries of a row that are not zero; None for dense rows."""


# Adult in 002's encoding: 5 nodes, 30 rounds of R-ADMM, which releases in every second round.
ADULT = Workload("Adult x 50", 5, 8000, 105, 50, 15)
ADULT_ONE = Workload("Adult x 1", 5, 8000, 105, 1, 15)
# 100 rounds of R-ADMM.
MANY = Workload("1,000 nodes", 1000, 200, 50, 1, 50)
# 002's Fig. 5, 100 rounds: four private methods at 3 levels, 10 replicates, two of which release in
# every round; admm draws no noise, so it runs once.
STUDY_ADMM = Workload("study, admm", 5, 8000, 105, 1, 100, noisy=False)
STUDY = Workload("study, others", 5, 8000, 105, 10, 3 * (100 + 100 + 50 + 50))
# The shipped schema of bins and categories: of a node's 8,000 rows about 2,680 are distinct, and
# 6.1 of 36 entries are not zero.
SCHEMA = Workload("schema x 50", 5, 8000, 36, 50, 15, distinct=2680, ones=6.1)
SCHEMA_ONE = Workload("schema x 1", 5, 8000, 36, 1, 15, distinct=2680, ones=6.1)
WORKLOADS = (ADULT, ADULT_ONE, SCHEMA, SCHEMA_ONE, MANY, STUDY_ADMM, STUDY)


def best(task: Callable[[], Any], budget: float) -> float:
    """Seconds of the fastest of at least three calls, as many as fit the budget."""
    task()
    taken, least, calls = 0.0, np.inf, 0
    while calls < 3 or taken < budget:
        start = time.perf_counter()
        task()
        once = time.perf_counter() - start
        taken, least, calls = taken + once, min(least, once), calls + 1
    return float(least)


def shared(work: Callable[[int], Any], parts: int) -> Callable[[], Any]:
    """`work` on parts 0, 1, ..., shared out to threads of our own, the library held to one each."""
    return lambda: list(_pool().map(work, range(parts)))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number_of_cores())


def products(load: Workload, dtype: type, budget: float) -> tuple[float, float]:
    """Least seconds of ``margins = w rows'`` and of ``slopes rows``, over all nodes' rows."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((load.nodes, load.n, load.d)).astype(dtype)
    w = rng.standard_normal((load.nodes, load.replicates, load.d)).astype(dtype)
    z = rng.standard_normal((load.nodes, load.replicates, load.n)).astype(dtype)
    tall_w, tall_z = (np.ascontiguousarray(x.transpose(0, 2, 1)) for x in (w, z))
    forward, backward = [], []

    def try_all(
        one: Callable[[Callable[[int], Any], int], Callable[[], Any]],
        cut: list[tuple[slice, slice]],
    ) -> None:
        margins = (
            lambda k: np.matmul(w[cut[k][0]], a[cut[k]].transpose(0, 2, 1)),
            lambda k: np.matmul(a[cut[k]], tall_w[cut[k][0]]),
        )
        sums = (
            lambda k: np.matmul(z[cut[k][0], :, cut[k][1]], a[cut[k]]),
            lambda k: np.matmul(a[cut[k]].transpose(0, 2, 1), tall_z[cut[k]]),
        )
        forward.extend(best(one(task, len(cut)), budget) for task in margins)
        backward.extend(best(one(task, len(cut)), budget) for task in sums)

    try_all(lambda task, parts: lambda: [task(k) for k in range(parts)], _cut(load, 1, load.n))
    with threadpool_limits(1, user_api="blas"):
        for block in (512, 4096):
            if block <= load.n:
                try_all(shared, _cut(load, 1, block))
        if load.nodes > 2 * number_of_cores():
            for together in (1, 10, 100):
                try_all(shared, _cut(load, min(together, load.nodes), load.n))
    return min(forward), min(backward)


def _cut(load: Workload, nodes: int, rows: int) -> list[tuple[slice, slice]]:
    starts = range(0, load.nodes, nodes)
    edges = np.linspace(0, load.n, max(1, round(load.n / rows)) + 1).astype(int).tolist()
    return [
        (slice(i, i + nodes), slice(first, last)) for i in starts for first, last in pairwise(edges)
    ]


@cache
def exponentials(dtype: type, budget: float) -> float:
    """Exponentials a second, in cache, on all threads."""
    parts, size = 4 * number_of_cores(), 2**14
    blocks = [np.random.default_rng(k).standard_normal(size).astype(dtype) for k in range(parts)]
    outs = [np.empty_like(block) for block in blocks]

    def work(k: int) -> None:
        for _ in range(16):
            np.exp(blocks[k], out=outs[k])

    return 16 * parts * size / best(shared(work, parts), budget)


@cache
def stream(budget: float) -> float:
    """Bytes a second that all threads together read from memory, far beyond the caches."""
    parts = number_of_cores()
    blocks = np.ones((parts, 2**24))
    return blocks.nbytes / best(shared(lambda k: blocks[k].max(), parts), budget)


@cache
def variates(budget: float) -> float:
    """Normal variates a second, on all threads."""
    parts = number_of_cores()
    rngs = [np.random.Generator(np.random.Philox(k)) for k in range(parts)]
    return parts * 2**16 / best(shared(lambda k: rngs[k].standard_normal(2**16), parts), budget)


def floor(load: Workload, budget: float = 0.05) -> dict[str, Any]:
    """Least operations, bytes and seconds of a workload, and the rates behind them."""
    load = replace(load, n=load.n if load.distinct is None else load.distinct)
    margins = load.nodes * load.n * load.replicates
    one = 2.0 * margins * load.d  # operations of one product
    parts: dict[str, float] = {}
    rates: dict[str, float] = {}
    for name, dtype in (("single", np.float32), ("double", np.float64)):
        forward, backward = products(load, dtype, budget)
        rate = exponentials(dtype, budget)
        rates |= {
            f"margins_{name}_gflops": one / forward / 1e9,
            f"sums_{name}_gflops": one / backward / 1e9,
            f"exponentials_{name}_per_ns": rate / 1e9,
        }
        parts[f"products_{name}"] = load.solves * (forward + backward)
        parts[f"exponentials_{name}"] = load.solves * margins / rate
    drawn = load.solves * load.nodes * load.replicates * 2 * (load.d + 1) if load.noisy else 0
    rates |= {"stream_gb_per_s": stream(budget) / 1e9, "normals_per_ns": variates(budget) / 1e9}
    parts["noise"] = drawn / variates(budget)
    read = load.solves * load.nodes * load.n * load.d * (4 + 8)
    touched = 1.0 if load.ones is None else load.ones / load.d
    sparse = sum(
        seconds * (touched if name.startswith("products") else 1.0)
        for name, seconds in parts.items()
    )
    few = read if load.ones is None else 2.0 * 2 * load.solves * load.nodes * load.n * load.ones
    return {
        "name": load.name,
        "operations": 4.0 * one * load.solves,
        "exponentials": 2.0 * margins * load.solves,
        "bytes": float(read),
        "variates": drawn,
        "seconds_bytes": read / stream(budget),
        "parts": parts,
        "seconds": max(sum(parts.values()), read / stream(budget)),
        "rates": rates,
        "seconds_one_hot": max(sparse, few / stream(budget)),
        "operations_one_hot": touched * 4.0 * one * load.solves,
    }


def small(load: Workload) -> Workload:
    """The same in little, for tests."""
    fewer = None if load.distinct is None else 20
    ones = None if load.ones is None else 2.0
    return Workload(
        load.name, min(load.nodes, 5), 60, 4, min(load.replicates, 2), 1, load.noisy, fewer, ones
    )


def measure(quick: bool) -> dict[str, Any]:
    """Floors of all workloads."""
    found = [floor(small(load) if quick else load, 0.001 if quick else 0.05) for load in WORKLOADS]
    return {"threads": number_of_cores(), "assumptions": list(ASSUMPTIONS), "workloads": found}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--quick", action="store_true", help="tiny workloads: shows that it runs, measures nothing"
    )
    arguments = parser.parse_args()
    answer = measure(arguments.quick)
    if arguments.json:
        print(json.dumps(answer))
        return
    console = Console(width=120)
    console.print(
        f"{answer['threads']} threads.  " + ".  ".join(ASSUMPTIONS) + ".", highlight=False
    )
    table = Table(title="Floors", title_justify="left", box=None)
    names = (
        "operations",
        "exponentials",
        "bytes",
        "seconds",
        "of which products",
        "exponentials",
        "one-hot",
    )
    for name in ("workload", *names):
        table.add_column(name, justify="left" if name == "workload" else "right")
    for load in answer["workloads"]:
        shares = [
            sum(v for k, v in load["parts"].items() if k.startswith(x))
            for x in ("products", "exponentials")
        ]
        whole = (load["operations"], load["exponentials"], load["bytes"], load["seconds"])
        numbers = (*whole, *shares, load["seconds_one_hot"])
        table.add_row(load["name"], *(f"{x:.3g}" for x in numbers))
    console.print(table)
    rates = Table(title="Rates", title_justify="left", box=None)
    rates.add_column("rate")
    for k in range(len(answer["workloads"])):
        rates.add_column(f"workload {k + 1}", justify="right")
    for name in answer["workloads"][0]["rates"]:
        rates.add_row(
            name.replace("_", " "), *(f"{load['rates'][name]:.3g}" for load in answer["workloads"])
        )
    console.print(rates)


if __name__ == "__main__":
    main()
