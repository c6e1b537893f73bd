"""Numbers to predict: our regressors beside diffprivlib, OpenDP and scikit-learn, at the same
budgets and bounds.

``scripts/bench regression [--quick] [--json FILE] [--tables NAME,...]``

Tables and their public bounds are in regression.toml.  Columns are mapped to [-1, 1] by the range
of most values, those of 0 and 1 to -1/2 and 1/2, and the target to [-1, 1] by its bounds; everybody
gets them.  Each replicate deals the rows anew, holds out a fifth, and has its own noise.  All
predictions are clipped to the bounds of the target.

What each claims, for one row replaced by another:

- `sites`: ConsensusRegressor, five sites that send sums of which nobody sees an addend, (epsilon,
  1e-5).
- `curator`: PrivateRegressor, one site that holds all rows, (epsilon, 1e-5), and (epsilon, 1e-9).
- `diffprivlib`: LinearRegression of 0.6.6, the functional mechanism, pure epsilon, which is a
  stronger claim.  It needs bounds of every column: it gets the declared ones or the range of most
  values, whichever is better on the test rows.
- `opendp`: LinearRegression of its extras, a Theil-Sen estimate of one column, pure epsilon.
  Install `opendp` for it.
- `OLS`, `ridge`, `Huber`: scikit-learn, without privacy.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import csv
import json
import subprocess
import tempfile
import tomllib
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _tables_data import HERE, default_folder, environment
from sklearn.linear_model import HuberRegressor, LinearRegression, Ridge

from sottovoce import ConsensusRegressor, PrivateRegressor

EPSILONS, DELTA, SITES, REPLICATES, QUICK = (1.0, 3.0), 1e-5, 5, 20, 5
TABLES: dict[str, dict[str, Any]] = tomllib.loads(
    (HERE / "regression.toml").read_text(encoding="utf-8")
)
PRIVATE = ("sites", "curator", "curator 1e-9", "diffprivlib", "opendp")
EXACT = ("OLS", "ridge", "Huber")


class Numbers(NamedTuple):
    """Encoded rows and targets of a table, with public facts of every column: bounds, and those
    of most values.
    """

    X: np.ndarray
    y: np.ndarray
    bounds: np.ndarray
    most: np.ndarray
    norm: float
    one: int


def columns_of(folder: Path, name: str) -> dict[str, np.ndarray]:
    """Raw columns of a table."""
    if TABLES[name]["package"] == "scikit-learn":
        from sklearn.datasets import load_diabetes

        table = load_diabetes(scaled=False)
        found = {str(column): table.data[:, k] for k, column in enumerate(table.feature_names)}
        return found | {"progression": table.target}
    path = folder / "raw" / f"{name}-whole.csv"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        theirs = [one for one in TABLES if TABLES[one]["package"] != "scikit-learn"]
        subprocess.run(
            [environment(folder, "tables"), HERE / "_tables_export.py", path.parent, *theirs],
            check=True,
        )
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {key: np.array([float(row[key]) for row in rows]) for key in rows[0]}


@lru_cache
def load(folder: Path, name: str) -> Numbers:
    about, raw = TABLES[name], columns_of(folder, name)
    X, bounds, most, squares = [], [], [], 0.0
    for column, (lo, hi, *typical) in about["columns"].items():
        a, b = typical or (-0.5, 1.5)  # columns of 0 and 1 become -1/2 and 1/2
        ends = (np.array([lo, hi, a, b]) - (a + b) / 2.0) / ((b - a) / 2.0)
        X.append((np.clip(raw[column], lo, hi) - (a + b) / 2.0) / ((b - a) / 2.0))
        bounds.append(ends[:2])
        most.append(ends[2:] if typical else ends[:2])
        # of numbers spread evenly over their range, and of 0 and 1
        squares += 1.0 / 3.0 if typical else 0.25
    target, low, high = about["target"]
    y = 2.0 * (np.clip(raw[target], low, high) - low) / (high - low) - 1.0
    one = list(about["columns"]).index(about["one"])
    return Numbers(
        np.stack(X, axis=1), y, np.array(bounds), np.array(most), float(np.sqrt(1.5 * squares)), one
    )


@lru_cache(maxsize=1)
def _server(folder: Path) -> subprocess.Popen[str]:
    command = [str(environment(folder, "diffprivlib")), str(HERE / "_regression_diffprivlib.py")]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def diffprivlib(
    folder: Path, X: np.ndarray, y: np.ndarray, bounds: np.ndarray, epsilon: float, seed: int
) -> np.ndarray:
    server = _server(folder)
    assert server.stdin is not None and server.stdout is not None
    with tempfile.TemporaryDirectory() as home:
        np.savez(f"{home}/rows.npz", X=np.clip(X, *bounds.T), y=y)
        job = {"rows": f"{home}/rows.npz", "epsilon": epsilon, "seed": seed}
        ends = {"low": bounds[:, 0].tolist(), "high": bounds[:, 1].tolist()}
        server.stdin.write(json.dumps(job | ends) + "\n")
        server.stdin.flush()
        return np.array(json.loads(server.stdout.readline()))


def opendp(x: np.ndarray, y: np.ndarray, bounds: np.ndarray, epsilon: float) -> np.ndarray:
    """Slope and intercept; a row that is replaced is a symmetric distance of two."""
    import opendp.prelude as dp
    from opendp.extras.sklearn.linear_model import LinearRegression as TheilSen

    dp.enable_features("contrib", "idealized-numerics", "floating-point", "honest-but-curious")

    def at(scale: float) -> Any:
        return TheilSen(
            dp.max_divergence(), x_bounds=[tuple(bounds)], y_bounds=(-1.0, 1.0), scale=scale
        )

    model = at(at(1.0).measurement.map(2) / epsilon)
    assert model.measurement.map(2) <= epsilon * (1.0 + 1e-9)
    found = model.fit(x[:, None], y)
    return np.array([found.coef_[0], found.intercept_])


def linear(X: np.ndarray, model: np.ndarray) -> np.ndarray:
    return np.clip(X @ model[:-1] + model[-1], -1.0, 1.0)


def predictions(
    folder: Path,
    who: str,
    of: Numbers,
    train: np.ndarray,
    test: np.ndarray,
    epsilon: float,
    seed: int,
) -> list[np.ndarray]:
    """Predictions for the test rows; of several settings, where the best may be taken."""
    X, y, more = (
        of.X[train],
        of.y[train],
        {"epsilon": epsilon, "data_norm": of.norm, "random_state": seed},
    )
    if who == "sites":
        return [
            ConsensusRegressor((-1, 1), trust="sum", n_sites=SITES, delta=DELTA, **more)
            .fit(X, y)
            .predict(of.X[test])
        ]
    if who.startswith("curator"):
        delta = 1e-9 if who.endswith("9") else DELTA
        return [PrivateRegressor((-1, 1), delta=delta, **more).fit(X, y).predict(of.X[test])]
    if who == "diffprivlib":
        both = [diffprivlib(folder, X, y, ends, epsilon, seed) for ends in (of.bounds, of.most)]
        return [
            linear(np.clip(of.X[test], *ends.T), w)
            for w, ends in zip(both, (of.bounds, of.most), strict=True)
        ]
    if who == "opendp":
        k = of.one
        x = np.clip(of.X[:, k : k + 1], *of.most[k])
        return [linear(x[test], opendp(x[train, 0], y, of.most[k], epsilon))]
    model = {"OLS": LinearRegression(), "ridge": Ridge(), "Huber": HuberRegressor(max_iter=1000)}[
        who
    ]
    return [np.clip(model.fit(X, y).predict(of.X[test]), -1.0, 1.0)]


def cell(folder: Path, name: str, who: str, epsilon: float, replicates: int) -> dict[str, Any]:
    """Mean and standard deviation of R2 and of the mean absolute error, in the target's unit,
    over replicates.
    """
    of, (_, low, high) = load(folder, name), TABLES[name]["target"]
    found = []
    for seed in range(replicates):
        order = np.random.default_rng([seed, 7]).permutation(len(of.y))
        test, train = order[: len(order) // 5], order[len(order) // 5 :]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # notes for the holder of rows
            guesses = predictions(folder, who, of, train, test, epsilon, seed)
        y = of.y[test]
        found.append(
            [
                (
                    1.0 - np.mean((y - g) ** 2) / np.var(y),
                    np.mean(np.abs(y - g)) * (high - low) / 2.0,
                )
                for g in guesses
            ]
        )
    settings = np.array(found)
    best = settings[:, int(np.argmax(settings[:, :, 0].mean(axis=0)))]
    (r2, mae), (r2_sd, mae_sd) = best.mean(axis=0), best.std(axis=0, ddof=1)
    numbers = {"r2": float(r2), "r2_sd": float(r2_sd), "mae": float(mae), "mae_sd": float(mae_sd)}
    return {
        "table": name,
        "who": who,
        "epsilon": epsilon if who in PRIVATE else None,
        "rows": len(of.y),
    } | numbers


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} replicates")
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--who", default=",".join((*PRIVATE, *EXACT)))
    parser.add_argument(
        "--env", type=Path, default=default_folder(), help="where tables and environments are kept"
    )
    parser.add_argument("--json", help="write the cells here")
    args = parser.parse_args()
    replicates, done = QUICK if args.quick else REPLICATES, []
    print(
        f"{'table':<10} {'rows':>6} {'epsilon':>7}  {'who':<14} {'R2':>7} {'sd':>6} {'MAE':>10} "
        f"{'sd':>9}"
    )
    for name in args.tables.split(","):
        for epsilon in EPSILONS:
            for who in args.who.split(","):
                if who in EXACT and epsilon != EPSILONS[0]:
                    continue
                one = cell(args.env, name, who, epsilon, replicates)
                done.append(one)
                shown = "" if one["epsilon"] is None else f"{epsilon:g}"
                print(
                    f"{name:<10} {one['rows']:>6} {shown:>7}  {who:<14} {one['r2']:7.3f} "
                    f"{one['r2_sd']:6.3f} "
                    f"{one['mae']:10.4g} {one['mae_sd']:9.3g}",
                    flush=True,
                )
    if args.json:
        Path(args.json).write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
