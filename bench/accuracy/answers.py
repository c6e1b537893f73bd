"""Adult's coefficients with intervals beside statsmodels' Logit on all rows, and the error of a
released AUC.

``scripts/bench answers [--quick] [--json FILE]``

The shipped schema has 31 encoded columns, many of them rare: at these budgets a table needs fewer.
Here: age, hours and years of schooling as numbers, sex, marriage, and whether there is a capital
gain.  Intervals should hold the population's coefficients; those of maximum likelihood on the
40,000 training rows stand for them.  The intervals allow for sampling, which these do not have
here, so more than 95% should hold them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _tables_data import HERE, default_folder, environment
from scipy.special import expit

from sottovoce import data
from sottovoce.answers import evaluation as ev
from sottovoce.answers.coefficients import build_coefficient_table
from sottovoce.answers.inference import newton_from_naming
from sottovoce.answers.terms import naming_from_schema, rows_of_columns
from sottovoce.data.rows import Rows
from sottovoce.data.schema import Schema
from sottovoce.deploy.demonstration import FEW
from sottovoce.problem.losses import Logistic
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import pooled_minimiser, simulate
from sottovoce.util.plain import digest_public_values

SITES = 5


def maximum_likelihood(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and their covariance on encoded rows, by Newton's method."""
    b = np.zeros(X.shape[1])
    for _ in range(40):
        p = expit(X @ b)
        H = (X.T * (p * (1 - p))) @ X
        b = b + np.linalg.solve(H, X.T @ ((y > 0) - p))
    return b, np.linalg.inv(H)


def logit(folder: Path, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """statsmodels' coefficients and standard errors of the same pooled rows, in an environment
    that has it.
    """
    with tempfile.TemporaryDirectory() as home:
        np.savez(f"{home}/rows.npz", X=X, y=(y > 0).astype(float))
        command = [
            str(environment(folder, "tables")),
            str(HERE / "_answers_logit.py"),
            f"{home}/rows.npz",
        ]
        found = json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )
    return np.array(found["params"]), np.array(found["errors"])


def coefficients(epsilon: float, runs: int, folder: Path) -> dict[str, Any]:
    dataset = data.load("adult", schema=FEW)
    naming = naming_from_schema(Schema.from_dict(FEW))
    y = dataset.y_train
    X = naming.encode_rows(dataset.train_columns)
    w, covariance = maximum_likelihood(X, y)
    M = naming.into_units
    exact, errors = M @ w, np.sqrt(np.einsum("ij,jk,ik->i", M, covariance, M))
    theirs, their_errors = logit(folder, X @ np.linalg.inv(M), y)  # the columns in their own units
    assert np.allclose(exact, theirs, rtol=1e-4, atol=1e-6) and np.allclose(
        errors, their_errors, rtol=1e-3
    )
    parts = [
        (rows_of_columns(dataset.train_columns, p), y[p])
        for p in np.array_split(np.arange(len(y)), SITES)
    ]
    rows = naming.rows_of_sites(parts)
    loss = Weighted(Logistic()) if naming.long else Logistic()
    config = RunConfig(
        method="auto", trust="sum", epsilon=epsilon, delta=1e-5, seed=0, replicates=runs
    )
    found = simulate(config, rows, method=newton_from_naming(naming), loss=loss).outcome
    tables = [build_coefficient_table(found, naming, r, 1e-5).lines for r in range(runs)]
    lines = []
    for k, term in enumerate(naming.terms):
        mine = [one[k] for one in tables if one[k].refused is None]
        inside = [bool(x.low <= theirs[k] <= x.high) for x in mine]  # type: ignore[operator]
        lines.append(
            {
                "name": term.text,
                "exact": float(theirs[k]),
                "exact_error": float(their_errors[k]),
                "first": tables[0][k].to_dict(),
                "printed": len(mine) / runs,
                "held": float(np.mean(inside)) if mine else None,
                "width": float(np.median([x.standard_error for x in mine]) / their_errors[k])
                if mine
                else None,  # type: ignore[type-var]
            }
        )
    return {"epsilon": epsilon, "lines": lines}


def areas(epsilon: float, runs: int) -> dict[str, Any]:
    dataset = data.load("adult")
    w = pooled_minimiser(Rows.build_from_parts([(dataset.X_train, dataset.y_train)]), RunConfig())
    cut = np.array_split(np.arange(len(dataset.y_test)), SITES)
    rows = ev.build_scored_rows([(dataset.X_test[p], dataset.y_test[p]) for p in cut])
    config = RunConfig(
        method="auto", trust="sum", epsilon=epsilon, delta=1e-5, seed=0, replicates=runs
    )
    method = ev.Histogram(judged=digest_public_values(w), weights=w)
    found = [
        one[""].auc
        for one in ev.qualities(simulate(config, rows, method=method, loss=ev.LOSS).outcome)
    ]
    exact = ev.exact_metrics(dataset.X_test @ w, dataset.y_test)["auc"]
    error = np.array([float(one.value or np.nan) - exact for one in found])
    held = np.mean([float(one.low or 0) <= exact <= float(one.high or 0) for one in found])
    return {
        "epsilon": epsilon,
        "exact": exact,
        "rms": float(np.sqrt(np.mean(error**2))),
        "held": float(held),
    }


def shown(one: dict[str, Any], runs: int) -> None:
    """The table of the first repetition beside statsmodels', and how all of them fare."""
    print(
        f"Adult, summed, epsilon {one['epsilon']:g}; {runs} repetitions of the noise, the first of "
        "which is shown"
    )
    head = f"{'coefficient':>11} {'error':>8} {'95% interval':>20} {'Logit':>9} {'error':>8}"
    print(f"  {'':<30} {head}  held  printed  width")
    for line in one["lines"]:
        first, held = line["first"], line["held"]
        mine = f"{'refused':>11} {'':>8} {'':>20}"
        if first["refused"] is None:
            ends = f"[{first['low']:.4f}, {first['high']:.4f}]"
            mine = f"{first['estimate']:11.4f} {first['standard_error']:8.4f} {ends:>20}"
        rest = (
            "    -        0%"
            if held is None
            else f"{held:5.0%} {line['printed']:8.0%} {line['width']:6.2f}"
        )
        print(f"  {line['name']:<30} {mine} {line['exact']:9.4f} {line['exact_error']:8.4f} {rest}")
    inside = [
        line["first"]["low"] <= line["exact"] <= line["first"]["high"]
        for line in one["lines"]
        if line["first"]["refused"] is None
    ]
    print(f"  {sum(inside)} of {len(inside)} printed intervals hold Logit's coefficient")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--env",
        type=Path,
        default=default_folder(),
        help="where the environment with statsmodels is",
    )
    parser.add_argument("--json", help="write the numbers here")
    args = parser.parse_args()
    runs, draws = (10, 10) if args.quick else (100, 20)
    done: dict[str, Any] = {"coefficients": [coefficients(e, draws, args.env) for e in (1.0, 3.0)]}
    for one in done["coefficients"]:
        shown(one, draws)
    done["auc"] = [areas(e, 4 * runs) for e in (0.2, 0.5, 1.0)]
    for row in done["auc"]:
        print(
            f"AUC at epsilon {row['epsilon']:g}: off by {row['rms']:.4f} (rms), "
            f"{100 * row['held']:.1f}% hold it"
        )
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(done, file, indent=1)


if __name__ == "__main__":
    main()
