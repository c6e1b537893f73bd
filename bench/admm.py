"""Consensus ADMM on Adult: this engine beside a plain loop with scipy's L-BFGS-B per node and round.

    python bench/admm.py [--json] [--replicates 50] [--rounds 30] [--repeats 1]

One process, one call.  Both sides solve every local problem to the same gradient norm.  `ratio` is the loop's time
over one replicate's share of the engine's time with private replicates (dual variable perturbation, the same number of
local solves) run together; `ratio_single` is the loop's time over the engine's for the same noise-free run;
`difference` is the largest difference between the noise-free results.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize

from sottovoce import data
from sottovoce.data.rows import Rows
from sottovoce.graphs import make as make_graph
from sottovoce.losses import Logistic
from sottovoce.simulate import RunConfig, simulate
from sottovoce.typing import Array

C, RHO, ETA, NODES, TOL = 1750.0, 0.22, 1.0, 5, 1e-9


def scipy_loop(rows: Rows, rounds: int) -> tuple[Array, float]:
    """000, Algorithm 1, as one would write it; returns the nodes' models and the worst gradient norm reached."""
    graph, loss = make_graph("ring", NODES), Logistic()
    f, lam, worst = np.zeros((NODES, rows.d)), np.zeros((NODES, rows.d)), 0.0
    signed = [rows.node(i).signed[0] for i in range(NODES)]
    for _ in range(rounds):
        S, new = graph.adjacency @ f, np.empty_like(f)
        for i, a in enumerate(signed):
            V = graph.degree[i, 0]
            linear, q = 2 * lam[i] - ETA * (V * f[i] + S[i]), RHO / NODES + 2 * ETA * V

            def objective(w: Array, a: Array = a, linear: Array = linear, q: float = q) -> tuple[float, Array]:
                z = a @ w
                value = C / len(a) * float(loss.value(z).sum()) + float(linear @ w) + q / 2 * float(w @ w)
                return value, C / len(a) * (loss.slope(z) @ a) + linear + q * w

            x, goal = f[i], C * TOL
            for _ in range(20):  # its stopping rule bounds the largest entry; ask until the norm is reached
                answer = minimize(
                    objective, x, jac=True, method="L-BFGS-B",
                    options={"gtol": goal / math.sqrt(rows.d), "ftol": 0.0, "maxiter": 1000, "maxls": 50},
                )  # fmt: skip
                x, reached = answer.x, float(np.linalg.norm(answer.jac))
                if reached <= goal:
                    break
            worst, new[i] = max(worst, reached), x
        f = new
        lam = lam + ETA / 2 * (graph.degree * f - graph.adjacency @ f)
    return f, worst


def bench(rounds: int, replicates: int, repeats: int) -> dict[str, Any]:
    """Time both sides in turn."""
    dataset = data.load("adult-002")
    parts = data.partition("iid", dataset.y_train, NODES, 0)
    rows = Rows.build([(dataset.X_train[p], dataset.y_train[p]) for p in parts])
    common: dict[str, Any] = {"rounds": rounds, "C": C, "rho": RHO, "eta": ETA, "tol": TOL}
    plain = RunConfig(method="admm", epsilon=math.inf, **common)
    private = RunConfig(method="dvp", epsilon=30.0, replicates=replicates, **common)
    simulate(RunConfig(method="admm", epsilon=math.inf, **common | {"rounds": 1}), rows)  # warm the libraries
    loop, single, batch, worst = [], [], [], 0.0
    for _ in range(repeats):
        start = time.perf_counter()
        reference, worst = scipy_loop(rows, rounds)
        loop.append(time.perf_counter() - start)
        start = time.perf_counter()
        ours = simulate(plain, rows)
        single.append(time.perf_counter() - start)
        start = time.perf_counter()
        result = simulate(private, rows)
        batch.append(time.perf_counter() - start)
    share = [b / replicates for b in batch]
    return {
        "rows": int(rows.n.sum()), "features": rows.d, "rounds": rounds, "replicates": replicates, "repeats": repeats,
        "seconds_scipy": float(np.median(loop)), "seconds_single": float(np.median(single)),
        "seconds_replicates": float(np.median(batch)),
        "ratio": float(np.median(np.divide(loop, share))), "ratio_single": float(np.median(np.divide(loop, single))),
        "difference": float(np.abs(ours.models[0] - reference).max()),
        "gradient_norm_scipy": worst / C, "gradient_norm_asked": TOL, "epsilon": result.privacy["epsilon"],
        "peak_memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }  # fmt: skip


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--replicates", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=1, help="paired runs; medians are reported")
    arguments = parser.parse_args()
    answer = bench(arguments.rounds, arguments.replicates, arguments.repeats)
    if arguments.json:
        print(json.dumps(answer))
        return
    table = Table(title="Consensus ADMM, Adult in 002's encoding", title_justify="left", box=None)
    table.add_column("figure")
    table.add_column("value", justify="right")
    for key, value in answer.items():
        table.add_row(key.replace("_", " "), f"{value:.3g}" if isinstance(value, float) else str(value))
    Console().print(table)


if __name__ == "__main__":
    main()
