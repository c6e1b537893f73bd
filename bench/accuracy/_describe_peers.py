"""Means and shares of columns by diffprivlib and OpenDP, for describe_noise.py; runs in an
environment that has them, reads the job from standard input and prints errors as JSON.
"""

from __future__ import annotations

import json
import math
import sys
import warnings

import numpy as np


def by_diffprivlib(
    columns: list[dict], epsilon: float, rng: np.random.Generator
) -> list[list[float]]:
    """Laplace noise, an equal share of epsilon for each column (diffprivlib.tools)."""
    import diffprivlib

    each, found = epsilon / len(columns), []
    for one in columns:
        x = np.array(one["values"])
        state = int(rng.integers(2**31))
        if one["levels"] is None:
            bounds = (one["lo"], one["hi"])
            found.append(
                [float(diffprivlib.tools.mean(x, epsilon=each, bounds=bounds, random_state=state))]
            )
        else:
            counts, _ = diffprivlib.tools.histogram(
                x,
                epsilon=each,
                bins=one["levels"],
                range=(-0.5, one["levels"] - 0.5),
                random_state=state,
            )
            found.append([float(c) / len(x) for c in counts])
    return found


def scale_of_gaussian(epsilon: float, delta: float, columns: list[dict]) -> float:
    """rho of zero-concentrated privacy that OpenDP converts to (epsilon, delta)."""
    import opendp.prelude as dp

    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)

    def epsilon_of(rho: float) -> float:
        one = space >> dp.m.then_gaussian(scale=1.0 / math.sqrt(2.0 * rho))
        return float(dp.c.make_zCDP_to_approxDP(one).map(1.0).epsilon(delta))

    low, high = 1e-8, 100.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if epsilon_of(middle) <= epsilon else (low, middle)
    return low


def by_opendp(columns: list[dict], rho: float) -> list[list[float]]:
    """Gaussian noise, an equal share of rho for each column (OpenDP's measurements).

    A replaced row is two changes of its symmetric distance; its sensitivities are its own.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    each, found = rho / len(columns), []
    for one in columns:
        n = len(one["values"])
        if one["levels"] is None:
            bounds = (float(one["lo"]), float(one["hi"]))
            space = (
                dp.vector_domain(dp.atom_domain(bounds=bounds, nan=False), size=n),
                dp.symmetric_distance(),
            )
            sums = space >> dp.t.then_mean()
            values = [min(max(float(x), bounds[0]), bounds[1]) for x in one["values"]]
        else:
            names = [str(k) for k in range(one["levels"])]
            space = dp.vector_domain(dp.atom_domain(T=str)), dp.symmetric_distance()
            sums = space >> dp.t.then_count_by_categories(
                names, null_category=False, MO=dp.L2Distance[float], TOA=float
            )
            values = [str(x) for x in one["values"]]
        scale = dp.binary_search_param(
            lambda s, sums=sums: sums >> dp.m.then_gaussian(scale=s), d_in=2, d_out=each, T=float
        )
        told = (sums >> dp.m.then_gaussian(scale=scale))(values)
        found.append([float(told)] if one["levels"] is None else [float(c) / n for c in told])
    return found


def main() -> None:
    warnings.filterwarnings("ignore")
    job = json.load(sys.stdin)
    columns = job["columns"]
    exact = [
        [float(np.mean(np.clip(one["values"], one["lo"], one["hi"])))]
        if one["levels"] is None
        else (np.bincount(one["values"], minlength=one["levels"]) / len(one["values"])).tolist()
        for one in columns
    ]
    rng, out = np.random.default_rng(0), {}
    for epsilon in job["epsilons"]:
        rho = None
        for name in ("diffprivlib", "OpenDP"):
            means, shares = [], []
            for _ in range(job["repeats"]):
                if name == "diffprivlib":
                    told = by_diffprivlib(columns, epsilon, rng)
                else:
                    if rho is None:
                        import opendp.prelude as dp

                        dp.enable_features("contrib")
                        rho = scale_of_gaussian(epsilon, job["delta"], columns)
                    told = by_opendp(columns, rho)
                for one, a, b in zip(columns, told, exact, strict=True):
                    off = np.subtract(a, b)
                    if one["levels"] is None:
                        means.append(float(off[0] / one["sd"]))
                    else:
                        shares += off.tolist()
            out[f"{name} {epsilon:g}"] = [
                float(np.sqrt(np.mean(np.square(means)))),
                float(np.sqrt(np.mean(np.square(shares)))),
            ]
    print(json.dumps(out))


if __name__ == "__main__":
    main()
