"""Do 95% intervals cover where effects are strong?  The recipe of ``--inference`` beside maximum
likelihood.

``scripts/bench strong [--quick] [--cells NAME;...] [--sets N] [--out FILE [--minutes M]] [--json
FILE]``

As ``scripts/bench coverage``, with designs in which columns tell nearly all of the outcome, though
maximum likelihood is unremarkable.  *off* is, at the 99th percentile of printed lines, how far a
coefficient is from the weighted maximum likelihood of the same rows, in its standard errors:
without noise it is what the steps have left, with noise also noise.  *width* is over that maximum
likelihood's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import coverage
import numpy as np
from coverage import SETS, Drawn, Setting, split
from scipy.special import expit

from sottovoce.answers.coefficients import build_coefficient_table
from sottovoce.answers.inference import newton_from_naming
from sottovoce.answers.terms import Naming, naming_from_columns, naming_from_schema
from sottovoce.data.schema import Schema
from sottovoce.problem.losses import Logistic
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate

SLOPES = np.array([3.0, -2.0, 0.0, 1.0])
SETS = SETS  # as many as there, unless --sets says less
FILES = (*coverage.FILES, "answers/normal_rows.py")


def of_numbers(
    X: np.ndarray, rng: np.random.Generator, slopes: np.ndarray, constant: float, norm: float
) -> Drawn:
    """Labels of a logistic model of the columns X."""
    y = np.where(rng.random(len(X)) < expit(X @ slopes + constant), 1.0, -1.0)
    naming = naming_from_columns([f"x{j}" for j in range(X.shape[1])], norm)
    return Drawn(naming, [(X[p], y[p]) for p in split(len(X))], np.append(slopes, constant), X)


def normal(
    n: int, rng: np.random.Generator, times: float = 1.0, constant: float = 0.0, rho: float = 0.0
) -> Drawn:
    X = np.sqrt(1.0 - rho) * rng.normal(size=(n, 4)) + np.sqrt(rho) * rng.normal(size=(n, 1))
    return of_numbers(X, rng, times * SLOPES, constant, 1.35 * 2.0)


def skewed(n: int, rng: np.random.Generator, times: float = 1.0) -> Drawn:
    """Lognormal columns, standardised: the third moment is 3.7, and a tenth of the rows or so
    are long.
    """
    X = np.exp(0.7 * rng.normal(size=(n, 4)))
    mean, deviation = np.exp(0.245), np.sqrt((np.exp(0.49) - 1.0) * np.exp(0.49))
    return of_numbers((X - mean) / deviation, rng, times * SLOPES, 0.0, 1.35 * 2.0)


def binary(n: int, rng: np.random.Generator, times: float = 1.0) -> Drawn:
    """Four columns that are 0 or 1, of 50, 30, 20 and 10% ones, as columns of a schema."""
    schema = Schema.from_dict(
        {"columns": {f"x{j}": {"kind": "category", "values": ["no", "yes"]} for j in range(4)}}
    )
    X = (rng.random((n, 4)) < (0.5, 0.3, 0.2, 0.1)).astype(float)
    slopes, constant = times * np.array([3.0, -2.0, 0.0, 1.0]), -1.0 * times
    y = np.where(rng.random(n) < expit(X @ slopes + constant), 1.0, -1.0)
    text = np.where(X > 0.0, "yes", "no").astype(object)
    parts = [({f"x{j}": text[p, j] for j in range(4)}, y[p]) for p in split(n)]
    return Drawn(naming_from_schema(schema), parts, np.append(slopes, constant), X)


def strong_levels(n: int, rng: np.random.Generator) -> Drawn:
    """Two columns of five levels, odds ratios of 50 up and down, and a number."""
    names = list("abcde")
    columns: dict[str, Any] = {f"c{j}": {"kind": "category", "values": names} for j in range(2)}
    columns["age"] = {"kind": "number", "lo": -3.0, "hi": 3.0}
    schema = Schema.from_dict({"columns": columns, "intercept": True})
    codes = rng.choice(5, p=(0.4, 0.25, 0.2, 0.1, 0.05), size=(n, 2))
    age = np.clip(rng.normal(size=n), -3.0, 3.0)
    marks = np.concatenate(
        [codes[:, j : j + 1] == np.arange(1, 5) for j in range(2)], axis=1
    ).astype(float)
    X = np.column_stack([marks, age])
    ratio = np.log(50.0)
    truth = np.array([ratio, -0.4, 0.8, -ratio, 0.5, -0.4, ratio, 0.3, 1.0, -0.5])
    y = np.where(rng.random(n) < expit(X @ truth[:-1] + truth[-1]), 1.0, -1.0)
    text = np.array(names, dtype=object)[codes]
    parts = [({"c0": text[p, 0], "c1": text[p, 1], "age": age[p]}, y[p]) for p in split(n)]
    return Drawn(naming_from_schema(schema), parts, truth, X)


def two_groups(n: int, rng: np.random.Generator) -> Drawn:
    """A mixture: the first column is near -2 or near 2, so margins are far from normal."""
    X = rng.normal(size=(n, 4))
    X[:, 0] = np.where(rng.random(n) < 0.5, -1.0, 1.0) + 0.3 * X[:, 0]
    return of_numbers(X, rng, SLOPES, 0.0, 1.35 * 2.0)


def heavy(n: int, rng: np.random.Generator) -> Drawn:
    """Student's law with 4 degrees of freedom in all columns at once; a third of the rows are
    long.
    """
    X = rng.normal(size=(n, 4)) / np.sqrt(rng.chisquare(4, size=(n, 1)) / 4.0)
    return of_numbers(X, rng, SLOPES, 0.0, 1.35 * 2.0)


def wide_and_weak(n: int, rng: np.random.Generator) -> Drawn:
    """One strong column among ten."""
    X = rng.normal(size=(n, 10))
    slopes = np.array([4.0, 0.3, -0.3, 0.0, 0.2, 0.0, -0.2, 0.1, 0.0, 0.5])
    return of_numbers(X, rng, slopes, 0.0, 1.35 * np.sqrt(10.0))


DESIGNS: dict[str, Callable[[int, np.random.Generator], Drawn]] = {
    "slopes": normal,
    "slopes x 1.5": lambda n, rng: normal(n, rng, 1.5),
    "slopes x 3": lambda n, rng: normal(n, rng, 3.0),
    "slopes, 7% events": lambda n, rng: normal(n, rng, constant=-6.0),
    "slopes, correlated": lambda n, rng: normal(n, rng, rho=0.5),
    "skewed": skewed,
    "skewed x 1.5": lambda n, rng: skewed(n, rng, 1.5),
    "binary": binary,
    "binary x 1.5": lambda n, rng: binary(n, rng, 1.5),
    "levels, odds ratio 50": strong_levels,
    "two groups": two_groups,
    "heavy tails": heavy,
    "one of ten": wide_and_weak,
}


CELLS = tuple(
    Setting(design, 20_000, epsilon) for design in DESIGNS for epsilon in (np.inf, 10.0, 3.0, 1.0)
)


def likeliest(naming: Naming, rows: Drawn) -> tuple[np.ndarray, np.ndarray]:
    """The weighted maximum likelihood of the rows, and its sandwich standard errors, in the
    user's units.
    """
    E = np.concatenate([naming.encode_rows(part[0]) for part in rows.parts])
    positive = np.concatenate([part[1] for part in rows.parts]) > 0.0
    weight, w = 1.0 / np.maximum(1.0, np.sum(E**2, axis=1)), np.zeros(E.shape[1])
    for _ in range(40):
        p = expit(E @ w)
        H = (E.T * (weight * p * (1.0 - p))) @ E
        w = w + np.linalg.solve(H, E.T @ (weight * (positive - p)))
    inverse = np.linalg.inv(H)
    J = (E.T * (weight * (positive - p)) ** 2) @ E
    M = naming.into_units
    return M @ w, np.sqrt(np.diag(M @ inverse @ J @ inverse @ M.T))


def one(cell: Setting, seed: int) -> dict[str, Any]:
    noise = 0 if np.isinf(cell.epsilon) else round(100 * cell.epsilon)
    found = DESIGNS[cell.design](cell.n, np.random.default_rng([seed, cell.n, noise]))
    loss = Weighted(Logistic()) if found.naming.long else Logistic()
    config = RunConfig(method="auto", trust="sum", epsilon=cell.epsilon, delta=1e-5, seed=seed)
    result = simulate(
        config,
        found.naming.rows_of_sites(found.parts),
        method=newton_from_naming(found.naming),
        loss=loss,
    )
    lines = build_coefficient_table(result.outcome, found.naming, delta=1e-5).lines
    best, errors = likeliest(found.naming, found)
    inside, width, off = [], [], []
    for k, line in enumerate(lines):
        printed = line.refused is None
        inside.append(bool(line.low <= found.truth[k] <= line.high) if printed else None)  # type: ignore[operator]
        width.append(round(line.standard_error / errors[k], 4) if printed else None)  # type: ignore[operator]
        off.append(round(abs(line.estimate - best[k]) / errors[k], 4) if printed else None)  # type: ignore[operator]
    return {"inside": inside, "width": width, "off": off, "causes": [line.cause for line in lines]}


def summary(cell: Setting, sets: list[dict[str, Any]]) -> dict[str, Any]:
    """As :func:`coverage.summary`, with how far estimates are from maximum likelihood, and
    causes of refusals.
    """
    off = [x for one in sets for x in one["off"] if x is not None]
    causes = [cause for one in sets for cause in one["causes"] if cause is not None]
    counted = {cause: causes.count(cause) for cause in sorted(set(causes))}
    return coverage.summary(cell, sets) | {
        "off": float(np.quantile(off, 0.99)) if off else None,
        "causes": counted,
    }


def show(done: list[dict[str, Any]]) -> None:
    coverage.show(done)
    for row in done:
        off = "-" if row["off"] is None else f"{row['off']:.3f}"
        print(f"{row['cell']:<48} off by {off} standard errors; {row['causes'] or ''}")


if __name__ == "__main__":
    coverage.main(sys.modules[__name__], show)
