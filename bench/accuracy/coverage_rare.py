"""Do intervals hold where few rows tell a coefficient, however its column is declared?

``scripts/bench coverage_rare [--quick] [--sets N] [--cells NAME;...] [--out FILE [--minutes M]]
[--json FILE] [--write FILE]``

A *rare column* has one value in 95% of 20,000 rows and others in the rest, and next to none of
these rows have the rarer outcome: the name of a cell has the expected number.  The same rows are
declared as a number, as a category, or not at all (columns without a schema, as an estimator takes
them), under several codes.  *Controls* are columns whose information is spread over many rows, and
must stay printed.  Beside the rare column, or *line*, stands a normal column; other designs are a
level of which one end is printed now and then, rare events, and constants alone.

For the line: the share of data sets that print two ends and one end, and how many of either hold
the truth.  Where no row of the rare column has the rarer outcome its truth is infinite, and no
interval of two ends holds.  The last columns are those of all other lines.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import coverage
import numpy as np
from coverage import split
from scipy.optimize import brentq
from scipy.special import expit, logit

from sottovoce.answers.coefficients import build_coefficient_table
from sottovoce.answers.inference import newton_from_naming
from sottovoce.answers.terms import Naming, naming_from_columns, naming_from_schema
from sottovoce.data.schema import Schema
from sottovoce.problem.losses import Logistic
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate

SETS = 150
ROWS = 20_000
SHARE = 0.05
"""Of the rows that do not have the common value of the rare column."""
CONSTANT, SLOPE = -1.2, 0.4
FILES = coverage.FILES


class Drawn(NamedTuple):
    """A data set: rows and labels of every site, the truth in the table's order, and the number
    of the line that a cell is about.
    """

    naming: Naming
    parts: list[tuple[Any, np.ndarray]]
    truth: np.ndarray
    line: int


class Code(NamedTuple):
    """The values of a rare column.

    Parameters
    ----------
    common : float
        Value of most rows.
    others : callable
        Draws the values of the other rows.
    bounds : (low, high), optional
        Declared bounds; None for a column without a schema.
    """

    common: float
    others: Callable[[int, np.random.Generator], np.ndarray]
    bounds: tuple[float, float] | None = None


def _always(value: float) -> Callable[[int, np.random.Generator], np.ndarray]:
    return lambda n, rng: np.full(n, value)


def _one_or_two(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(1, 3, size=n).astype(float)


def _amounts(n: int, rng: np.random.Generator) -> np.ndarray:
    """Amounts around 2, of a number that is zero in most rows."""
    return np.minimum(2.0 * np.exp(0.5 * rng.normal(size=n) - 0.125), 8.0)


CODES = {
    "0 and 1, number": Code(0.0, _always(1.0), (0.0, 1.0)),
    "0 and 1, no schema": Code(0.0, _always(1.0)),
    "0 and 1 within -5 and 5": Code(0.0, _always(1.0), (-5.0, 5.0)),
    "1 and 2, number": Code(1.0, _always(2.0), (1.0, 2.0)),
    "1 and 2, no schema": Code(1.0, _always(2.0)),
    "1 and -1, no schema": Code(1.0, _always(-1.0)),
    "0, 1 and 2, no schema": Code(0.0, _one_or_two),
    "mostly zero, number": Code(0.0, _amounts, (0.0, 10.0)),
    "mostly zero, no schema": Code(0.0, _amounts),
}


def labels(rng: np.random.Generator, margins: np.ndarray) -> np.ndarray:
    return np.where(rng.random(len(margins)) < expit(margins), 1.0, -1.0)


def table_of_numbers(
    columns: dict[str, np.ndarray], bounds: dict[str, tuple[float, float]] | None, y: np.ndarray
) -> tuple[Naming, list[tuple[Any, np.ndarray]]]:
    """Encode columns of numbers, under a schema with these bounds or without one."""
    parts = split(len(y))
    X = np.column_stack(list(columns.values()))
    if bounds is None:
        # Nine in ten rows are about as short; rows with a rare value are not all long.
        norm = 1.35 * float(np.sqrt(np.mean(np.sum(X**2, axis=1)) + SHARE * X.shape[1]))
        return naming_from_columns(list(columns), norm), [(X[p], y[p]) for p in parts]
    declared = {
        name: {"kind": "number", "lo": bounds[name][0], "hi": bounds[name][1]} for name in columns
    }
    schema = Schema.from_dict({"columns": declared, "name": "rare"})
    rows = [({name: values[p] for name, values in columns.items()}, y[p]) for p in parts]
    return naming_from_schema(schema), rows


def _with_expected(z: np.ndarray, shift: np.ndarray, expected: float) -> float:
    """Find the slope of values `shift` at which so many rows are expected to be positive."""
    margins = CONSTANT + SLOPE * z
    if expected <= 0.0:
        return -np.inf if shift.mean() > 0.0 else np.inf
    return float(brentq(lambda slope: expit(margins + slope * shift).sum() - expected, -40.0, 40.0))


def rare_column(rng: np.random.Generator, expected: float, code: Code) -> Drawn:
    """A rare column of numbers and a normal one."""
    z, rare = rng.normal(size=ROWS), rng.random(ROWS) < SHARE
    values = np.full(ROWS, code.common)
    values[rare] = code.others(int(rare.sum()), rng)
    shift = values - code.common
    slope = _with_expected(z[rare], shift[rare], expected)
    margins = CONSTANT + SLOPE * z
    margins[rare] += np.where(np.isinf(slope), -np.inf, slope * shift[rare])
    y = labels(rng, margins)
    bounds = None
    if code.bounds is not None:
        bounds = {"x": code.bounds, "z": (-5.0, 5.0)}
    naming, parts = table_of_numbers({"x": values, "z": z}, bounds, y)
    constant = CONSTANT
    if code.common != 0.0:
        constant = CONSTANT - slope * code.common
    return Drawn(naming, parts, np.array([slope, SLOPE, constant]), 0)


def rare_level(rng: np.random.Generator, expected: float) -> Drawn:
    """The same rows with the rare column declared as a category."""
    z, rare = rng.normal(size=ROWS), rng.random(ROWS) < SHARE
    slope = _with_expected(z[rare], np.ones(int(rare.sum())), expected)
    y = labels(rng, np.where(rare, slope, 0.0) + CONSTANT + SLOPE * z)
    schema = Schema.from_dict(
        {
            "columns": {
                "x": {"kind": "category", "values": ["no", "yes"]},
                "z": {"kind": "number", "lo": -5.0, "hi": 5.0},
            },
            "name": "rare",
        }
    )
    text = np.array(["no", "yes"], dtype=object)[rare.astype(int)]
    parts = [({"x": text[p], "z": z[p]}, y[p]) for p in split(ROWS)]
    return Drawn(naming_from_schema(schema), parts, np.array([slope, SLOPE, CONSTANT]), 0)


def spread_column(
    rng: np.random.Generator,
    slope: float,
    draw: Callable[[int, np.random.Generator], np.ndarray],
    bounds: tuple[float, float] | None = None,
    constant: float = CONSTANT,
) -> Drawn:
    """A control: a column whose values are spread, and a normal one."""
    x, z = draw(ROWS, rng), rng.normal(size=ROWS)
    y = labels(rng, constant + SLOPE * z + slope * x)
    both = None if bounds is None else {"x": bounds, "z": (-5.0, 5.0)}
    naming, parts = table_of_numbers({"x": x, "z": z}, both, y)
    return Drawn(naming, parts, np.array([slope, SLOPE, constant]), 0)


def _mixed(share: float) -> Callable[[int, np.random.Generator], np.ndarray]:
    return lambda n, rng: (rng.random(n) < share).astype(float)


def constants_alone(rng: np.random.Generator, expected: float) -> Drawn:
    """No column at all: with so many positive rows expected."""
    chance = expected / ROWS
    y = np.where(rng.random(ROWS) < chance, 1.0, -1.0)
    parts = [(np.empty((len(p), 0)), y[p]) for p in split(ROWS)]
    return Drawn(naming_from_columns([], 1.0), parts, np.array([logit(chance)]), 0)


DESIGNS: dict[str, Callable[[np.random.Generator, float], Drawn]] = {
    "category": rare_level,
    **{
        name: (lambda rng, expected, code=code: rare_column(rng, expected, code))
        for name, code in CODES.items()
    },
    "control: normal": lambda rng, slope: spread_column(
        rng, slope, lambda n, rng: rng.normal(size=n)
    ),
    "control: lognormal": lambda rng, slope: spread_column(
        rng, slope, lambda n, rng: np.exp(0.8 * rng.normal(size=n) - 0.32)
    ),
    "control: exponential within 0 and 30": lambda rng, slope: spread_column(
        rng, slope, lambda n, rng: np.minimum(rng.exponential(size=n), 30.0), (0.0, 30.0)
    ),
    "control: a fifth": lambda rng, slope: spread_column(rng, slope, _mixed(0.2)),
    "control: a twentieth": lambda rng, slope: spread_column(rng, slope, _mixed(SHARE)),
    "2% events, a twentieth": lambda rng, slope: spread_column(
        rng, slope, _mixed(SHARE), constant=-4.0
    ),
    "2% events, a hundredth": lambda rng, slope: spread_column(
        rng, slope, _mixed(0.01), constant=-4.0
    ),
    "constants alone": constants_alone,
}
EXPECTED = (0.0, 8.0, 30.0, 200.0)
BUDGETS = (1.0, 3.0, 10.0, np.inf)
SLOPES = (0.0, -0.7)
ONE_END = (15.0, 60.0, 90.0)
"""Expected numbers at which a level has one end in few data sets."""


@dataclass(frozen=True)
class Cell:
    design: str
    expected: float
    epsilon: float

    @property
    def name(self) -> str:
        what = "slope" if self.design.startswith(("control", "2%")) else "expected"
        return f"{self.design}, {what} {self.expected:g}, epsilon {self.epsilon:g}"


def _cells() -> tuple[Cell, ...]:
    rare = ["category", *CODES]
    spread = [name for name in DESIGNS if name.startswith(("control", "2%"))]
    return (
        *(Cell(name, e, budget) for name in rare for e in EXPECTED for budget in BUDGETS),
        *(Cell("category", e, budget) for e in ONE_END for budget in BUDGETS),
        *(Cell(name, slope, budget) for name in spread for slope in SLOPES for budget in BUDGETS),
        *(Cell("constants alone", e, budget) for e in (30.0, 4_000.0) for budget in BUDGETS),
    )


CELLS = _cells()


def one(cell: Cell, seed: int) -> dict[str, Any]:
    """Of each line of a data set: how many ends are printed, and whether they hold the truth."""
    budget = 0 if np.isinf(cell.epsilon) else round(100 * cell.epsilon)
    rng = np.random.default_rng([seed, round(cell.expected * 10) % 2**31, budget, 71])
    drawn = DESIGNS[cell.design](rng, cell.expected)
    loss = Weighted(Logistic()) if drawn.naming.long else Logistic()
    config = RunConfig(method="auto", trust="sum", epsilon=cell.epsilon, delta=1e-5, seed=seed)
    result = simulate(
        config,
        drawn.naming.rows_of_sites(drawn.parts),
        method=newton_from_naming(drawn.naming),
        loss=loss,
    )
    lines = build_coefficient_table(result.outcome, drawn.naming, delta=1e-5).lines
    ends, holds = [], []
    for line, truth in zip(lines, drawn.truth, strict=True):
        ends.append((line.low is not None) + (line.high is not None))
        above = line.low is None or line.low <= truth
        below = line.high is None or truth <= line.high
        holds.append(bool(above and below))
    return {"line": drawn.line, "ends": ends, "holds": holds}


def summary(cell: Cell, sets: list[dict[str, Any]]) -> dict[str, Any]:
    """Shares of two ends and of one end of the line, and how many hold; the same of others."""
    own: dict[int, list[bool]] = {0: [], 1: [], 2: []}
    others: list[bool] = []
    of_others = 0
    for found in sets:
        for k, (ends, holds) in enumerate(zip(found["ends"], found["holds"], strict=True)):
            if k == found["line"]:
                own[ends].append(holds)
            else:
                of_others += 1
                if ends == 2:
                    others.append(holds)
    return {
        "cell": cell.name,
        "sets": len(sets),
        "two": len(own[2]) / len(sets),
        "two_hold": float(np.mean(own[2])) if own[2] else None,
        "one": len(own[1]) / len(sets),
        "one_hold": float(np.mean(own[1])) if own[1] else None,
        "others": len(others) / of_others if of_others else None,
        "others_hold": float(np.mean(others)) if others else None,
    }


_HEADS = ("two ends", "hold", "one end", "hold", "other lines", "hold")
_KEYS = ("two", "two_hold", "one", "one_hold", "others", "others_hold")


def show(done: list[dict[str, Any]]) -> None:
    """The table in the terminal."""
    print(f"{'cell':<58} {'sets':>5} " + " ".join(f"{head:>11}" for head in _HEADS))
    for row in done:
        cells = ["-" if row[key] is None else f"{100 * row[key]:.1f}" for key in _KEYS]
        print(f"{row['cell']:<58} {row['sets']:5d} " + " ".join(f"{text:>11}" for text in cells))
    for what, share, hold in (("two ends", "two", "two_hold"), ("one end", "one", "one_hold")):
        counts = [round(row[share] * row["sets"]) for row in done]
        held = sum(
            n * row[hold] for n, row in zip(counts, done, strict=True) if row[hold] is not None
        )
        if sum(counts):
            print(f"{what}: {sum(counts):,} printed, {100 * held / sum(counts):.1f}% hold")


def page(done: list[dict[str, Any]]) -> str:
    """The table in Markdown."""
    text = [f"| cell | sets | {' | '.join(_HEADS)} |", "|---" * (2 + len(_HEADS)) + "|"]
    for row in done:
        cells = ["–" if row[key] is None else f"{100 * row[key]:.1f}%" for key in _KEYS]
        text.append(f"| {row['cell']} | {row['sets']} | {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    coverage.main(sys.modules[__name__], show, page=page)
