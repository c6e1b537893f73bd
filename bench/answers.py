"""Adult's coefficients with intervals beside those of all rows without noise, and the error of a released AUC.

``scripts/bench answers [--quick] [--json FILE]``

The shipped schema has 31 encoded columns, many of them rare: at these budgets a table needs fewer.  Here: age, hours
and years of schooling as numbers, sex, marriage, and whether there is a capital gain.  Intervals should hold the
population's coefficients; those of maximum likelihood on the 40,000 training rows stand for them.  The intervals allow
for sampling, which these do not have here, so more than 95% should hold them.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from scipy.special import expit

from sottovoce import data
from sottovoce.answers import evaluation as ev
from sottovoce.answers.asking import Desk
from sottovoce.answers.inference import estimate, recipe, table
from sottovoce.answers.naming import columns_of, of_schema
from sottovoce.data.rows import Rows
from sottovoce.data.schema import Schema
from sottovoce.deploy.demonstration import FEW
from sottovoce.losses import Logistic
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import pooled_minimiser
from sottovoce.weighted import Weighted

SITES = 5


def maximum_likelihood(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and standard errors, by Newton's method: what statsmodels' Logit gives."""
    b = np.zeros(X.shape[1])
    for _ in range(40):
        p = expit(X @ b)
        H = (X.T * (p * (1 - p))) @ X
        b = b + np.linalg.solve(H, X.T @ ((y > 0) - p))
    return b, np.linalg.inv(H)


def coefficients(epsilon: float, runs: int) -> dict[str, Any]:
    dataset = data.load("adult", schema=FEW)
    naming = of_schema(Schema.from_dict(FEW))
    y = dataset.y_train
    X = naming.encoded(dataset.train_columns)
    w, covariance = maximum_likelihood(X, y)
    M = naming.into_units
    exact, errors = M @ w, np.sqrt(np.einsum("ij,jk,ik->i", M, covariance, M))
    parts = [(columns_of(dataset.train_columns, p), y[p]) for p in np.array_split(np.arange(len(y)), SITES)]
    rows = naming.rows(parts)
    loss = Weighted(Logistic()) if naming.long else Logistic()
    config = RunConfig(method="auto", trust="sum", epsilon=epsilon, delta=1e-5, seed=0, replicates=runs)
    desk = Desk.open(config, rows, loss, recipe(naming.constant))
    found = estimate(desk, naming)
    tables = [table(found, naming, r, 1e-5).lines for r in range(runs)]
    lines = []
    for k, term in enumerate(naming.terms):
        mine = [one[k] for one in tables if one[k].refused is None]
        inside = [bool(x.low <= exact[k] <= x.high) for x in mine]  # type: ignore[operator]
        lines.append(
            {
                "name": term.text, "exact": float(exact[k]), "exact_error": float(errors[k]),
                "first": tables[0][k].to_dict(), "printed": len(mine) / runs,
                "held": float(np.mean(inside)) if mine else None,
                "width": float(np.median([x.standard_error for x in mine]) / errors[k]) if mine else None,  # type: ignore[type-var]
            }
        )  # fmt: skip
    return {"epsilon": epsilon, "lines": lines}


def areas(epsilon: float, runs: int) -> dict[str, Any]:
    dataset = data.load("adult")
    w = pooled_minimiser(Rows.build([(dataset.X_train, dataset.y_train)]), RunConfig())
    cut = np.array_split(np.arange(len(dataset.y_test)), SITES)
    rows = ev.rows_of([(dataset.X_test[p], dataset.y_test[p]) for p in cut])
    config = RunConfig(method="auto", trust="sum", epsilon=epsilon, delta=1e-5, seed=0, replicates=runs)
    desk = Desk.open(config, rows, ev.LOSS, ev.recipe(rows.d))
    found = [one[""].auc for one in ev.evaluate(desk, np.repeat(w[None], runs, axis=0))]
    exact = ev.exact(dataset.X_test @ w, dataset.y_test)["auc"]
    error = np.array([float(one.value or np.nan) - exact for one in found])
    held = np.mean([float(one.low or 0) <= exact <= float(one.high or 0) for one in found])
    return {"epsilon": epsilon, "exact": exact, "rms": float(np.sqrt(np.mean(error**2))), "held": float(held)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", help="write the numbers here")
    args = parser.parse_args()
    runs = 10 if args.quick else 100
    done: dict[str, Any] = {"coefficients": [coefficients(e, runs) for e in (1.0, 3.0)]}
    for one in done["coefficients"]:
        print(f"Adult, summed, epsilon {one['epsilon']:g}, {runs} repetitions of the noise")
        for line in one["lines"]:
            held = "-" if line["held"] is None else f"{100 * line['held']:.1f}% hold it, width {line['width']:.2f}"
            print(f"  {line['name']:<28} exact {line['exact']:8.4f} printed {100 * line['printed']:5.1f}%  {held}")
    done["auc"] = [areas(e, 4 * runs) for e in (0.2, 0.5, 1.0)]
    for row in done["auc"]:
        print(f"AUC at epsilon {row['epsilon']:g}: off by {row['rms']:.4f} (rms), {100 * row['held']:.1f}% hold it")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(done, file, indent=1)


if __name__ == "__main__":
    main()
