"""Do 95% intervals cover on designs that set no constant of the recipe?  Twenty designs at three
budgets.

``scripts/bench coverage_strangers [--quick] [--sets N] [--cells NAME;...] [--out FILE [--minutes
M]] [--json FILE] [--write FILE]``

The designs of ``coverage`` were at hand when the recipe's shares and limits were chosen; these were
written afterwards, and nothing was chosen by them.  They are what a study brings: wards,
case-control sampling, 97% positives, sites of very unequal size, thirty sites of two hundred rows,
a product of columns, a column and its square, declared bounds that are far too wide.  Columns,
options and output are those of ``coverage``.

One design is outside what the intervals promise, and is told beside the others: in "ward column" a
column has one value a ward, and rows of a ward are alike, so that rows are not independent.  No
table of a logistic regression covers then that does not know the wards.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import coverage
import numpy as np
from coverage import Cell, Drawn, numbers, split
from scipy.special import expit

from sottovoce.answers.terms import naming_from_columns, naming_from_schema
from sottovoce.data.schema import Schema

SETS = 500
BETA = np.array([0.6, -0.4, 0.0, 0.3, -0.2])
CONSTANT = -0.8
NORM = 1.35 * np.sqrt(5.0)
"""The norm that ninety in a hundred rows of five standard normal columns do not reach, about."""
FILES = coverage.FILES


def labels(rng: np.random.Generator, chance: np.ndarray) -> np.ndarray:
    """One of -1 and 1 for each chance of a positive."""
    return np.where(rng.random(len(chance)) < chance, 1.0, -1.0)


def plain(
    X: np.ndarray, y: np.ndarray, truth: np.ndarray, norm: float = NORM, sites: int = 5
) -> Drawn:
    """Numbers without a schema, dealt to sites of equal size."""
    naming = naming_from_columns([f"x{j}" for j in range(X.shape[1])], norm)
    return Drawn(naming, [(X[part], y[part]) for part in split(len(y), sites)], truth, X)


def declared(
    schema: Schema, columns: dict[str, np.ndarray], X: np.ndarray, y: np.ndarray, truth: np.ndarray
) -> Drawn:
    """Raw columns under a schema; X are the columns that the true coefficients belong to."""
    parts = [
        ({name: values[part] for name, values in columns.items()}, y[part])
        for part in split(len(y))
    ]
    return Drawn(naming_from_schema(schema), parts, truth, X)


def number(lo: float, hi: float) -> dict[str, object]:
    return {"kind": "number", "lo": lo, "hi": hi}


@lru_cache
def best_of(
    draw: Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:
    """The coefficients that fit best, of a million rows with chances for labels, weighed as the
    table weighs rows.
    """
    X, chance = draw(1_000_000, np.random.default_rng(61))
    return coverage.closest(
        naming_from_columns([f"x{j}" for j in range(X.shape[1])], NORM), X, chance
    )


_WARD = 25
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_SPREAD = 0.5  # of wards' log-odds


def _marginal(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Five normal columns, and the chance of a positive in a ward that nobody knows."""
    X = rng.normal(size=(n, 5))
    margin = X @ BETA + CONSTANT
    return X, np.sum(
        [w * expit(margin + _SPREAD * x) for x, w in zip(_POINTS, _WEIGHTS, strict=True)], axis=0
    )


def wards(n: int, rng: np.random.Generator, *, shared: int | None = None) -> Drawn:
    """Wards of 25 rows with log-odds of their own; the column `shared`, if any, has one value a
    ward.
    """
    ward = np.arange(n) // _WARD
    X = rng.normal(size=(n, 5))
    if shared is not None:
        X[:, shared] = rng.normal(size=ward[-1] + 1)[ward]
    own = _SPREAD * rng.normal(size=ward[-1] + 1)[ward]
    y = labels(rng, expit(X @ BETA + CONSTANT + own))
    return plain(X, y, best_of(_marginal))


_RARE = -3.6
_POPULATION = 30


@lru_cache
def prevalence() -> float:
    """Share of cases in the population of :func:`case_control`."""
    spread = float(np.sqrt(BETA @ BETA))
    return float(np.sum(_WEIGHTS * expit(_RARE + spread * _POINTS)))


def case_control(n: int, rng: np.random.Generator) -> Drawn:
    """As many cases as controls, of a population with 3% of cases: slopes are the population's,
    the constant is not.
    """
    X = rng.normal(size=(_POPULATION * n, 5))
    y = labels(rng, expit(X @ BETA + _RARE))
    cases, controls = np.flatnonzero(y > 0)[: n // 2], np.flatnonzero(y < 0)[: n - n // 2]
    chosen = rng.permutation(np.concatenate([cases, controls]))
    odds = prevalence() / (1.0 - prevalence())
    return plain(X[chosen], y[chosen], np.append(BETA, _RARE - np.log(odds)))


def unequal_sites(n: int, rng: np.random.Generator) -> Drawn:
    """Five sites that hold 75, 15, 5, 3 and 2 in a hundred rows."""
    found = numbers(n, rng)
    ends = np.rint(n * np.cumsum([0.75, 0.15, 0.05, 0.03])).astype(int)
    X, y = found.X, np.concatenate([label for _, label in found.parts])
    parts = [(X[part], y[part]) for part in np.split(np.arange(n), ends)]
    return found._replace(parts=parts)


def own_constants(n: int, rng: np.random.Generator, *, sites: int) -> Drawn:
    """Sites of equal size with log-odds of their own, and a constant for each."""
    X = rng.normal(size=(n, 5))
    own = np.linspace(-1.6, 0.2, sites)
    parts, where = [], []
    for i, part in enumerate(split(n, sites)):
        parts.append((X[part], labels(rng, expit(X[part] @ BETA + own[i]))))
        where.append(np.hstack([X[part], np.eye(sites)[np.full(len(part), i)]]))
    naming = naming_from_columns(
        [f"x{j}" for j in range(5)], NORM, [f"site {i}" for i in range(sites)]
    )
    return Drawn(naming, parts, np.concatenate([BETA, own]), np.concatenate(where))


def of_chance(
    n: int,
    rng: np.random.Generator,
    draw: Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]],
) -> Drawn:
    """Chances that no logistic model has; the truth is the model that fits best."""
    X, chance = draw(n, rng)
    return plain(X, labels(rng, chance), best_of(draw))


def _complementary(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A complementary log-log model, as a proportional hazard has in one interval."""
    X = rng.normal(size=(n, 5))
    return X, 1.0 - np.exp(-np.exp(X @ BETA - 1.0))


def of_margins(
    n: int,
    rng: np.random.Generator,
    X: np.ndarray,
    beta: Sequence[float],
    constant: float,
    norm: float,
) -> Drawn:
    """Numbers with a logistic truth."""
    y = labels(rng, expit(X @ np.asarray(beta) + constant))
    return plain(X, y, np.append(beta, constant), norm)


def binary(n: int, rng: np.random.Generator) -> Drawn:
    """Columns of zeros and ones, of which 5, 20, 50 and 80 in a hundred are ones."""
    X = (rng.random((n, 4)) < [0.05, 0.2, 0.5, 0.8]).astype(float)
    return of_margins(n, rng, X, (0.9, -0.5, 0.4, 0.0), -0.7, 1.8)


def product(n: int, rng: np.random.Generator) -> Drawn:
    """Two columns and their product."""
    x, z = rng.normal(size=(2, n))
    return of_margins(n, rng, np.column_stack([x, z, x * z]), (0.5, -0.4, 0.3), -0.5, 2.6)


def curved(n: int, rng: np.random.Generator) -> Drawn:
    """A column and its square, which is skewed."""
    x, z = rng.normal(0.5, 1.0, size=(2, n))
    return of_margins(n, rng, np.column_stack([x, x**2, z]), (0.5, -0.25, 0.4), -0.3, 4.0)


def heavy(n: int, rng: np.random.Generator) -> Drawn:
    """Student's law with three degrees of freedom."""
    X = rng.standard_t(3, size=(n, 4)) / np.sqrt(3.0)
    return of_margins(n, rng, X, (0.7, -0.5, 0.0, 0.3), -0.6, 2.5)


def wide_bounds(n: int, rng: np.random.Generator) -> Drawn:
    """Ages and values of blood under declared bounds far beyond what there is."""
    columns = {"age": number(0, 1_000), "pressure": number(0, 2_000), "bmi": number(0, 500)}
    raw = {
        "age": rng.normal(55.0, 12.0, n),
        "pressure": rng.normal(130.0, 18.0, n),
        "bmi": rng.normal(27.0, 4.0, n),
    }
    X, beta = np.column_stack(list(raw.values())), np.array([0.04, 0.015, -0.05])
    constant = -1.0 - float(beta @ [55.0, 130.0, 27.0])
    y = labels(rng, expit(X @ beta + constant))
    return declared(
        Schema.from_dict({"columns": columns, "name": "wide"}), raw, X, y, np.append(beta, constant)
    )


def cohort(n: int, rng: np.random.Generator) -> Drawn:
    """Age, a skewed count, sex and smoking in three levels."""
    smoking = ["never", "former", "current"]
    columns = {
        "age": number(18, 100),
        "visits": number(0, 40),
        "sex": {"kind": "category", "values": ["f", "m"]},
        "smoking": {"kind": "category", "values": smoking},
    }
    codes, male = rng.choice(3, p=(0.55, 0.3, 0.15), size=n), rng.random(n) < 0.5
    age, visits = (
        np.clip(rng.normal(58.0, 14.0, n), 18.0, 100.0),
        np.minimum(rng.geometric(0.25, n), 40),
    )
    raw = {
        "age": age,
        "visits": visits.astype(float),
        "sex": np.array(["f", "m"], dtype=object)[male.astype(int)],
        "smoking": np.array(smoking, dtype=object)[codes],
    }
    X = np.column_stack([age, visits, male, codes == 1, codes == 2]).astype(float)
    beta = np.array([0.05, 0.06, 0.35, 0.3, 0.8])
    constant = -1.8 - 58.0 * beta[0] - 4.0 * beta[1]
    y = labels(rng, expit(X @ beta + constant))
    return declared(
        Schema.from_dict({"columns": columns, "name": "cohort"}),
        raw,
        X,
        y,
        np.append(beta, constant),
    )


def likert(n: int, rng: np.random.Generator) -> Drawn:
    """Six answers from 1 to 7 that share a common factor."""
    factor = rng.normal(size=(n, 1))
    answers = np.clip(np.rint(4.0 + 1.1 * factor + 1.1 * rng.normal(size=(n, 6))), 1, 7)
    beta = np.array([0.3, -0.2, 0.0, 0.15, 0.0, -0.1])
    constant = -0.6 - 4.0 * float(beta.sum())
    schema = Schema.from_dict(
        {"columns": {f"q{j}": number(1, 7) for j in range(6)}, "name": "answers"}
    )
    raw = {f"q{j}": answers[:, j] for j in range(6)}
    return declared(
        schema,
        raw,
        answers,
        labels(rng, expit(answers @ beta + constant)),
        np.append(beta, constant),
    )


def ten_levels(n: int, rng: np.random.Generator) -> Drawn:
    """One column of ten levels, all as frequent, and a number."""
    names = [f"region {k}" for k in range(10)]
    columns = {"region": {"kind": "category", "values": names}, "dose": number(0, 10)}
    codes, dose = rng.integers(10, size=n), rng.uniform(0.0, 10.0, n)
    X = np.column_stack([codes[:, None] == np.arange(1, 10), dose]).astype(float)
    beta = np.append(np.linspace(-0.8, 0.8, 9), 0.12)
    raw = {"region": np.array(names, dtype=object)[codes], "dose": dose}
    schema = Schema.from_dict({"columns": columns, "name": "regions"})
    return declared(schema, raw, X, labels(rng, expit(X @ beta - 1.0)), np.append(beta, -1.0))


def strong(n: int, rng: np.random.Generator) -> Drawn:
    """Slopes of 3, -2, 0 and 1: an area under the curve of .97."""
    return of_margins(n, rng, rng.normal(size=(n, 4)), (3.0, -2.0, 0.0, 1.0), -0.5, 1.35 * 2.0)


def null(n: int, rng: np.random.Generator) -> Drawn:
    """No column matters."""
    return of_margins(n, rng, rng.normal(size=(n, 5)), (0.0,) * 5, -0.4, NORM)


def pair(n: int, rng: np.random.Generator) -> Drawn:
    """Two columns with a correlation of .95, and three others."""
    X = rng.normal(size=(n, 5))
    X[:, 1] = 0.95 * X[:, 0] + np.sqrt(1.0 - 0.95**2) * X[:, 1]
    return of_margins(n, rng, X, BETA.tolist(), CONSTANT, NORM)


DESIGNS: dict[str, tuple[Callable[[int, np.random.Generator], Drawn], int]] = {
    "wards": (wards, 10_000),
    "ward column": (lambda n, rng: wards(n, rng, shared=0), 10_000),
    "case-control": (case_control, 6_000),
    "97% positives": (lambda n, rng: numbers(n, rng, constant=4.0), 20_000),
    "unequal sites": (unequal_sites, 10_000),
    "30 sites of 200": (lambda n, rng: numbers(n, rng, sites=30), 6_000),
    "30 sites of 200, own constants": (lambda n, rng: own_constants(n, rng, sites=30), 6_000),
    "six unlike sites": (lambda n, rng: own_constants(n, rng, sites=6), 12_000),
    "binary columns": (binary, 10_000),
    "a product": (product, 10_000),
    "a square": (curved, 10_000),
    "heavy tails": (heavy, 10_000),
    "wide bounds": (wide_bounds, 10_000),
    "cohort": (cohort, 10_000),
    "answers 1 to 7": (likert, 10_000),
    "ten levels": (ten_levels, 10_000),
    "strong effects": (strong, 20_000),
    "no effects": (null, 5_000),
    "correlation .95": (pair, 20_000),
    "complementary log-log": (lambda n, rng: of_chance(n, rng, _complementary), 10_000),
}
"""Of each the rows and how they are drawn."""
BUDGETS = (1.0, 3.0, 10.0)
CELLS = tuple(Cell(design, n, epsilon) for design, (_, n) in DESIGNS.items() for epsilon in BUDGETS)


def one(cell: Cell, seed: int) -> dict[str, object]:
    """Of each line whether its interval holds the truth, and its width; None if it is refused."""
    draw, _ = DESIGNS[cell.design]
    rng = np.random.default_rng([seed, cell.n, round(100 * cell.epsilon), 61])
    return coverage.told(draw(cell.n, rng), cell, seed)


summary = coverage.summary


def page(done: list[dict[str, Any]]) -> str:
    """A design a line, in Markdown: in a cell what is printed, covered (with the worst
    coefficient) and how wide.
    """
    cells = {row["cell"]: row for row in done}
    text = ["| design, rows | epsilon 1 | epsilon 3 | epsilon 10 |", "|---|---|---|---|"]
    for design, (_, n) in DESIGNS.items():
        line = [f"{design}, {n:,}"]
        for epsilon in BUDGETS:
            line.append(_in_words(cells[Cell(design, n, epsilon).name]))
        text.append(f"| {' | '.join(line)} |")
    return "\n".join(text) + "\n"


def _in_words(row: dict[str, Any]) -> str:
    if not row["intervals"]:
        return "–"
    covered = f"{100 * row['coverage']:.1f}%"
    if row["worst"] is not None:
        covered += f" ({100 * row['worst']:.0f}%)"
    return f"{100 * row['printed']:.0f}%, {covered}, {row['width']:.2f}"


if __name__ == "__main__":
    coverage.main(sys.modules[__name__], coverage.show, page=page)
