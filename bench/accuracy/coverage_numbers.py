"""Do 95% intervals of least squares cover?  Data sets of known coefficients, and what
``--inference`` asks of a number.

``scripts/bench coverage_numbers [--quick] [--sets N] [--cells NAME;...] [--out FILE [--minutes M]]
[--json FILE] [--write FILE]``

Targets are between 0 and 60, and declared so unless a design says that bounds are wider.  An
interval counts only if the rule prints it.  *Width* is that of printed intervals over the robust
ones without privacy, at the median; *equal* is the worst coefficient's coverage by intervals that
take all residuals to have the same spread, with the same noise in them.  ``--out`` goes on as that
of ``coverage`` does.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import coverage
import numpy as np
from coverage import EFFECTS, SHARES, SITES, Cell, split

from sottovoce.answers import least_squares
from sottovoce.answers.inference import Estimates
from sottovoce.answers.terms import Naming, naming_from_columns, naming_from_schema
from sottovoce.data.schema import Schema
from sottovoce.problem.losses import HuberResidual
from sottovoce.problem.task import BoundedNumber
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate

SETS = 400
TASK = BoundedNumber(0.0, 60.0)
_ANSWERS = (
    "clipped_sites",
    "clipped_tails",
    "coefficients",
    "directions",
    "frames",
    "inference",
    "least_squares",
    "references",
    "regression",
    "row_frames",
    "separate_sites",
    "slope_moments",
    "terms",
)
FILES = (
    *(f"answers/{name}.py" for name in _ANSWERS),
    "algorithms/recipe.py",
    "queries/bounded.py",
    "queries/framed.py",
    "problem/weighted_loss.py",
)


class Drawn(NamedTuple):
    """Raw columns, targets, true coefficients in the table's order, and the columns that these
    belong to.

    `parts` are the rows of every site; by default :data:`coverage.SITES` sites have as many as each
    other.
    """

    naming: Naming
    columns: Any
    y: np.ndarray
    truth: np.ndarray
    X: np.ndarray
    task: BoundedNumber = TASK
    parts: list[np.ndarray] | None = None

    @property
    def rows_of_sites(self) -> list[np.ndarray]:
        return split(len(self.y), SITES) if self.parts is None else self.parts


def numbers(
    n: int,
    rng: np.random.Generator,
    *,
    k: int = 5,
    rho: float = 0.0,
    law: str = "normal",
    norm: float = 1.35,
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
    elif law == "costs":  # a tail that grows with a column, of which 0.1% is beyond the bounds
        middle = 15.0
        e = 1.5 * np.exp(0.5 * X[:, 0] - 0.25) * (rng.lognormal(0.0, 0.9, size=n) - np.exp(0.405))
    else:
        e = 5.0 * rng.normal(size=n)
    naming = naming_from_columns([f"x{j}" for j in range(k)], norm * np.sqrt(k))
    return Drawn(naming, X, middle + X @ beta + e, np.append(beta, middle), X)


def wide(n: int, rng: np.random.Generator, times: float) -> Drawn:
    """Targets under bounds that are so many times too wide."""
    return numbers(n, rng)._replace(task=BoundedNumber(TASK.low, times * TASK.high))


def close(n: int, rng: np.random.Generator, r: float = 0.99) -> Drawn:
    """Five normal columns, of which the first two are correlated by r."""
    found = numbers(n, rng)
    X = found.X.copy()
    X[:, 1] = r * X[:, 0] + np.sqrt(1.0 - r**2) * X[:, 1]
    beta = found.truth[:-1]
    y = found.truth[-1] + X @ beta + (found.y - found.truth[-1] - found.X @ beta)
    return found._replace(columns=X, X=X, y=y)


def curved(n: int, rng: np.random.Generator) -> Drawn:
    """A skewed column with an effect that is no line, and hardly a row that is long: the truth
    is what fits best.
    """
    X = rng.normal(size=(n, 5))
    X[:, 0] = rng.exponential(size=n)
    y = curve(X) + 4.0 * rng.normal(size=n)
    return Drawn(
        naming_from_columns([f"x{j}" for j in range(5)], 3.0 * np.sqrt(5)),
        X,
        y,
        best_of_curved(),
        X,
    )


@lru_cache
def best_of_curved() -> np.ndarray:
    """The coefficients that fit best, of a million rows that are weighed as the table weighs
    rows.
    """
    rng = np.random.default_rng(35)
    X = rng.normal(size=(1_000_000, 5))
    X[:, 0] = rng.exponential(size=len(X))
    E = naming_from_columns([f"x{j}" for j in range(5)], 3.0 * np.sqrt(5)).encode_rows(X)
    weight = 1.0 / np.maximum(1.0, np.sum(E**2, axis=1))
    A = np.column_stack([X, np.ones(len(X))])
    return np.linalg.solve((A.T * weight) @ A, (A.T * weight) @ curve(X))


def curve(X: np.ndarray) -> np.ndarray:
    """Means of targets of the curved design."""
    return 15.0 + X @ (2.0, -2.0, 0.0, 1.5, -1.0) + 0.4 * X[:, 0] ** 2


def unlike(n: int, rng: np.random.Generator, sites: int = 6) -> Drawn:
    """Sites with other levels of the target and other means of a column; every site has a
    constant of its own.
    """
    found, parts = numbers(n, rng), split(n, sites)
    where = marks_of(parts)
    X = found.X.copy()
    X[:, 0] += where @ np.linspace(-0.8, 0.8, sites)
    beta, own = found.truth[:-1], np.linspace(15.0, 35.0, sites)
    y = X @ beta + where @ own + 5.0 * rng.normal(size=n)
    naming = naming_from_columns(
        [f"x{j}" for j in range(5)], found.naming.data_norm, [f"site {i}" for i in range(sites)]
    )
    return Drawn(naming, X, y, np.append(beta, own), np.hstack([X, where]), parts=parts)


def marks_of(parts: list[np.ndarray]) -> np.ndarray:
    """1 in the column of a row's site, (n, sites)."""
    marks = np.zeros((sum(map(len, parts)), len(parts)))
    for i, part in enumerate(parts):
        marks[part, i] = 1.0
    return marks


def rare_tails(n: int, rng: np.random.Generator) -> Drawn:
    """A column of two values, one of them in 3% of the rows, whose residuals have five times the
    spread of others.
    """
    rare = rng.random(n) < 0.03
    X = np.column_stack([rare, rng.normal(size=(n, 4))])
    beta, middle = np.array([3.0, -2.0, 0.0, 1.5, -1.0]), 25.0
    residuals = 2.0 * np.where(rare, 5.0, 1.0) * rng.standard_t(3, size=n) / np.sqrt(3.0)
    naming = naming_from_columns([f"x{j}" for j in range(5)], 1.35 * np.sqrt(5))
    return Drawn(naming, X, middle + X @ beta + residuals, np.append(beta, middle), X)


def far_level(n: int, rng: np.random.Generator) -> Drawn:
    """A column of two values, one of them in 2% of the rows, with an effect of nearly half of
    the bounds' width.
    """
    X = np.column_stack([rng.random(n) < 0.02, rng.normal(size=(n, 4))])
    beta, middle = np.array([28.0, -2.0, 0.0, 1.5, -1.0]), 15.0
    naming = naming_from_columns([f"x{j}" for j in range(5)], 1.35 * np.sqrt(5))
    return Drawn(
        naming, X, middle + X @ beta + 3.0 * rng.normal(size=n), np.append(beta, middle), X
    )


def small_site(n: int, rng: np.random.Generator) -> Drawn:
    """Six sites, one of which has 2% of the rows and a constant that is half of the bounds'
    width from the others'.
    """
    found, sites = numbers(n, rng), 6
    few = n // 50
    parts = [np.arange(few), *np.array_split(np.arange(few, n), sites - 1)]
    where = marks_of(parts)
    beta, own = found.truth[:-1] / 2.0, np.array([45.0, *np.full(sites - 1, 15.0)])
    y = found.X @ beta + where @ own + 3.0 * rng.normal(size=n)
    naming = naming_from_columns(
        [f"x{j}" for j in range(5)], found.naming.data_norm, [f"site {i}" for i in range(sites)]
    )
    return Drawn(naming, found.X, y, np.append(beta, own), np.hstack([found.X, where]), parts=parts)


def levels(n: int, rng: np.random.Generator, rarest: float = SHARES[-1]) -> Drawn:
    """Three columns of five levels, the rarest with 2% of rows unless said."""
    names = [chr(ord("a") + k) for k in range(5)]
    plain = {f"c{j}": {"kind": "category", "values": names} for j in range(3)}
    shares = (SHARES[0] + SHARES[-1] - rarest, *SHARES[1:-1], rarest)
    codes = rng.choice(5, p=shares, size=(n, 3))
    X = np.concatenate([codes[:, j : j + 1] == np.arange(1, 5) for j in range(3)], axis=1).astype(
        float
    )
    beta, text = 10.0 * np.tile(EFFECTS, 3), np.array(names, dtype=object)[codes]
    y = 25.0 + X @ beta + 5.0 * rng.normal(size=n)
    naming = naming_from_schema(Schema.from_dict({"columns": plain, "name": "levels"}))
    return Drawn(naming, {f"c{j}": text[:, j] for j in range(3)}, y, np.append(beta, 25.0), X)


DESIGNS: dict[str, Any] = {
    "normal": numbers,
    "heavy tails": partial(numbers, law="heavy"),
    "unequal spread": partial(numbers, law="unequal"),
    "skewed": partial(numbers, law="skewed"),
    "costs": partial(numbers, law="costs"),
    "correlated": partial(numbers, k=8, rho=0.9),
    "half long": partial(numbers, norm=0.95),
    "levels": levels,
    "levels of .3%": partial(levels, rarest=0.003),
    "r = .99": close,
    "collinear": partial(numbers, rho=0.99),
    "bounds 10 times": partial(wide, times=10.0),
    "bounds 40 times": partial(wide, times=40.0),
    "curved": curved,
    "unlike sites": unlike,
    "rare tails": rare_tails,
    "far level": far_level,
    "site of 2%": small_site,
}
MORE = {"r = .99": ((20_000, 1.0), (20_000, 3.0)), "collinear": ((40_000, 1.0), (40_000, 3.0))}
"""Rows and epsilon of designs that have others."""
USUAL = tuple((n, e) for n in (2_000, 8_000, 40_000) for e in (1.0, 3.0))
LOCAL = ("normal", "rare tails", "far level", "site of 2%")
"""Designs that run under local trust, too."""
CELLS = (
    *(Cell(design, n, e) for design in DESIGNS for n, e in MORE.get(design, USUAL)),
    *(Cell(design, n, e, "nobody") for design in LOCAL for n, e in USUAL),
)


def robust_errors(found: Drawn, t: np.ndarray) -> np.ndarray:
    """White's standard errors without privacy, of unweighted least squares.

    NaN for a level of which a data set has no row: nothing is known of its coefficient.
    """
    everything = found.X if found.naming.sites else np.column_stack([found.X, np.ones(len(t))])
    known = np.any(everything != 0.0, axis=0)
    A = everything[:, known]
    H = np.linalg.inv(A.T @ A)
    r = t - A @ (H @ A.T @ t)
    errors = np.full(len(known), np.nan)
    errors[known] = np.sqrt(np.diag(H @ (A.T * r**2) @ A @ H))
    return errors


def equal(found: Estimates) -> Estimates:
    """The same with residuals of one spread: what the constant's moment says of it."""
    if found.strain[0] > 0.0:  # no inverse
        return found
    own = np.ix_(found.kept[0], found.kept[0])
    if np.linalg.matrix_rank(found.frame[0][own]) < np.count_nonzero(found.kept[0]):
        return found  # a site that has no constant of its own
    back = np.linalg.inv(found.frame[0][own])
    S = back @ found.hessian[0][own] @ back
    J = S @ found.sampling[0][own] @ S
    covariance = found.noise.copy()
    covariance[0][own] += J[-1, -1] / S[-1, -1] * np.linalg.inv(S)
    return replace(found, covariance=covariance)


def one(cell: Cell, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([seed, cell.n, round(100 * cell.epsilon)])
    found = DESIGNS[cell.design](cell.n, rng)
    task = found.task
    y, parts = np.clip(found.y, task.low, task.high), found.rows_of_sites
    columns = found.columns
    tables = [
        ({k: v[p] for k, v in columns.items()} if isinstance(columns, dict) else columns[p])
        for p in parts
    ]
    rows = found.naming.rows_of_sites(
        [(table, np.ones(len(p))) for table, p in zip(tables, parts, strict=True)]
    )
    rows = rows.with_offset([task.encode(y[p]) for p in parts])
    loss = Weighted(HuberResidual(1.0)) if found.naming.long else HuberResidual(1.0)
    config = RunConfig(method="auto", trust=cell.trust, epsilon=cell.epsilon, delta=1e-5, seed=seed)
    estimates: Estimates = simulate(
        config, rows, method=least_squares.slopes_from_naming(found.naming), loss=loss
    ).outcome

    def inside(made: Estimates) -> list[bool | None]:
        lines = least_squares.table_in_target_units(made, found.naming, task, 1e-5).lines
        return [
            None if line.low is None or line.high is None else bool(line.low <= truth <= line.high)
            for line, truth in zip(lines, found.truth, strict=True)
        ]

    lines = least_squares.table_in_target_units(estimates, found.naming, task, 1e-5).lines
    width = [
        None if line.standard_error is None or np.isnan(error) else line.standard_error / error
        for line, error in zip(lines, robust_errors(found, y), strict=True)
    ]
    return {"inside": inside(estimates), "width": width, "equal": inside(equal(estimates))}


def page(done: list[dict[str, Any]]) -> str:
    """The table in Markdown: a line a design and trust, and a column for each number of rows and
    epsilon.
    """
    found = {row["cell"]: row for row in done}
    text = ["| residuals and columns |", "|---|"]
    for n, epsilon in USUAL:
        text[0] += f" {n:,} rows, epsilon {epsilon:g} |"
        text[1] += "---|"
    for design, trust in [
        *((d, "sum") for d in DESIGNS if d not in MORE),
        *((d, "nobody") for d in LOCAL),
    ]:
        line = f"| {design}{', local trust' if trust == 'nobody' else ''} |"
        for n, epsilon in USUAL:
            row = found.get(Cell(design, n, epsilon, trust).name)
            line += f" {page_entry(row)} |"
        text.append(line)
    return "\n".join(text) + "\n"


def page_entry(row: dict[str, Any] | None) -> str:
    """Coverage, that of the worst coefficient, the width, and the share printed where that is
    not all.
    """
    if row is None or row["worst"] is None:
        return "–"
    entry = f"{100 * row['coverage']:.1f} ({100 * row['worst']:.0f}), {row['width']:.1f}"
    if row["printed"] < 0.995:
        entry += f", {100 * row['printed']:.0f}% printed"
    return entry


def summary(cell: Any, sets: list[dict[str, Any]]) -> dict[str, Any]:
    alike = coverage.summary(cell, [one | {"inside": one["equal"]} for one in sets])
    return coverage.summary(cell, sets) | {"equal": alike["worst"]}


if __name__ == "__main__":
    coverage.main(sys.modules[__name__], partial(coverage.show, more=("equal",)), page=page)
