"""Do 95% intervals of least squares cover?  Data sets of known coefficients, and what ``--inference`` asks of a number.

``scripts/bench coverage_numbers [--quick] [--sets N] [--cells NAME;...] [--out FILE [--minutes M]] [--json FILE]``

Targets are between 0 and 60.  An interval counts only if the rule prints it.  *Width* is that of printed intervals over
the robust ones without privacy, at the median; *equal* is the worst coefficient's coverage by intervals that take all
residuals to have the same spread, with the same noise in them.  ``--out`` goes on as that of ``coverage`` does.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import coverage
import numpy as np
from coverage import EFFECTS, SHARES, Setting, split

from sottovoce.answers import least_squares
from sottovoce.answers.inference import Estimates
from sottovoce.answers.terms import Naming, of_columns, of_schema
from sottovoce.data.schema import Schema
from sottovoce.problem.losses import HuberResidual
from sottovoce.problem.task import BoundedNumber
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate

SETS = 400
TASK = BoundedNumber(0.0, 60.0)
FILES = (*(f"answers/{name}.py" for name in ("inference", "least_squares", "terms")), "algorithms/recipe.py",
         "queries/bounded.py", "problem/weighted_loss.py")  # fmt: skip


class Drawn(NamedTuple):
    """Raw columns, targets, true coefficients in the table's order, and the columns that these belong to."""

    naming: Naming
    columns: Any
    y: np.ndarray
    truth: np.ndarray
    X: np.ndarray


def numbers(
    n: int, rng: np.random.Generator, *, k: int = 5, rho: float = 0.0, law: str = "normal", norm: float = 1.35
) -> Drawn:
    """Normal columns, equally correlated, with residuals of a law."""
    X = np.sqrt(1 - rho) * rng.normal(size=(n, k)) + np.sqrt(rho) * rng.normal(size=(n, 1))
    beta, middle = np.array([(3.0, -2.0, 0.0, 1.5, -1.0)[j % 5] for j in range(k)]), 25.0
    if law == "heavy":
        e = 4.0 * rng.standard_t(3, size=n) / np.sqrt(3.0)
    elif law == "unequal":
        e = 1.5 * np.exp(0.6 * X[:, 0]) * rng.normal(size=n)
    elif law == "skewed":
        beta, middle = beta / 3.0, 9.0
        e = 2.5 * (rng.lognormal(0.0, 0.8, size=n) - np.exp(0.32)) * np.exp(0.25 * X[:, 0])
    else:
        e = 5.0 * rng.normal(size=n)
    naming = of_columns([f"x{j}" for j in range(k)], norm * np.sqrt(k))
    return Drawn(naming, X, middle + X @ beta + e, np.append(beta, middle), X)


def levels(n: int, rng: np.random.Generator) -> Drawn:
    """Three columns of five levels, the rarest with 2% of rows."""
    names = [chr(ord("a") + k) for k in range(5)]
    plain = {f"c{j}": {"kind": "category", "values": names} for j in range(3)}
    codes = rng.choice(5, p=SHARES, size=(n, 3))
    X = np.concatenate([codes[:, j : j + 1] == np.arange(1, 5) for j in range(3)], axis=1).astype(float)
    beta, text = 10.0 * np.tile(EFFECTS, 3), np.array(names, dtype=object)[codes]
    y = 25.0 + X @ beta + 5.0 * rng.normal(size=n)
    naming = of_schema(Schema.from_dict({"columns": plain, "name": "levels"}))
    return Drawn(naming, {f"c{j}": text[:, j] for j in range(3)}, y, np.append(beta, 25.0), X)


DESIGNS: dict[str, Any] = {
    "normal": numbers,
    "heavy tails": lambda n, rng: numbers(n, rng, law="heavy"),
    "unequal spread": lambda n, rng: numbers(n, rng, law="unequal"),
    "skewed": lambda n, rng: numbers(n, rng, law="skewed"),
    "correlated": lambda n, rng: numbers(n, rng, k=8, rho=0.9),
    "half long": lambda n, rng: numbers(n, rng, norm=0.95),
    "levels": levels,
}


CELLS = tuple(Setting(design, n, e) for design in DESIGNS for n in (2_000, 8_000, 40_000) for e in (1.0, 3.0))


def robust_errors(found: Drawn, t: np.ndarray) -> np.ndarray:
    """White's standard errors without privacy, of unweighted least squares."""
    A = np.column_stack([found.X, np.ones(len(t))])
    H = np.linalg.inv(A.T @ A)
    r = t - A @ (H @ A.T @ t)
    return np.sqrt(np.diag(H @ (A.T * r**2) @ A @ H))


def equal(found: Estimates) -> Estimates:
    """The same with residuals of one spread: what the constant's moment says of it."""
    if found.strain[0] > 0.0:  # no inverse
        return found
    S = found.hessian[0]
    J = S @ (found.covariance - found.noise)[0] @ S
    return replace(found, covariance=(J[-1, -1] / S[-1, -1] * np.linalg.pinv(S) + found.noise[0])[None])


def one(cell: Setting, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([seed, cell.n, round(100 * cell.epsilon)])
    found = DESIGNS[cell.design](cell.n, rng)
    y, parts = np.clip(found.y, TASK.low, TASK.high), split(cell.n)
    columns = found.columns
    tables = [({k: v[p] for k, v in columns.items()} if isinstance(columns, dict) else columns[p]) for p in parts]
    rows = found.naming.rows([(table, np.ones(len(p))) for table, p in zip(tables, parts, strict=True)])
    rows = rows.with_offset([TASK.encode(y[p]) for p in parts])
    loss = Weighted(HuberResidual(1.0)) if found.naming.long else HuberResidual(1.0)
    config = RunConfig(method="auto", trust="sum", epsilon=cell.epsilon, delta=1e-5, seed=seed)
    estimates: Estimates = simulate(config, rows, method=least_squares.slopes_of(found.naming), loss=loss).outcome

    def inside(made: Estimates) -> list[bool | None]:
        lines = least_squares.table_of(made, found.naming, TASK, 1e-5).lines
        return [
            None if line.low is None or line.high is None else bool(line.low <= truth <= line.high)
            for line, truth in zip(lines, found.truth, strict=True)
        ]

    lines = least_squares.table_of(estimates, found.naming, TASK, 1e-5).lines
    width = [
        None if line.standard_error is None else line.standard_error / error
        for line, error in zip(lines, robust_errors(found, y), strict=True)
    ]
    return {"inside": inside(estimates), "width": width, "equal": inside(equal(estimates))}


def summary(cell: Any, sets: list[dict[str, Any]]) -> dict[str, Any]:
    alike = coverage.summary(cell, [one | {"inside": one["equal"]} for one in sets])
    return coverage.summary(cell, sets) | {"equal": alike["worst"]}


if __name__ == "__main__":
    coverage.main(sys.modules[__name__], partial(coverage.show, more=("equal",)))
