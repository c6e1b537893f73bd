"""What columns of real tables are like: the habits that forecasts give to synthetic rows, measured
one by one.

``scripts/bench habits [--tables a;b]``

Only columns and labels of the tables of `SETTING` (forecasts.py) are looked at; no recipe is run,
and no number of rows that a table needs is used.  Printed are

- *levels*: the deviation of the logarithms of levels' shares, of two levels and of more
  (`Habits.uneven`);
- *skewness* of numbers with a typical range, as the deviation of the normal number whose
  exponential has it (`skewed`, `skewed_varied`);
- *related*: the share of a column's variance that the other columns explain, of real rows and of
  synthetic ones with the habits of real rows (`related`);
- *scores*: the median deviation of the log-odds of rows by a logistic fit, and that of its
  logarithm (`effect`, `effect_varied`);
- *effects*: the median size of a level's coefficient, by how many rows it has, and that of a
  number's for two of its standard deviations
  (:func:`sottovoce.answers.rehearsal.draw_linear_scores`).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from _tables_data import default_folder
from forecasts import SETTING, drawer
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import skew

from sottovoce.answers.rehearsal import REAL, draw_synthetic_rows
from sottovoce.answers.terms import Naming
from sottovoce.data.columns import Category, Number

ROWS, MADE, RIDGE = 12_000, 1500, 2e-3
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass
class Seen:
    """What was measured, of all tables."""

    # logarithm of the second share over the first
    two_levels: list[float] = field(default_factory=list)
    # deviation of the logarithms of the shares of a column
    more_levels: list[float] = field(default_factory=list)
    skewness: list[float] = field(default_factory=list)
    explained: list[float] = field(default_factory=list)
    explained_made: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    # deviation of its mark, and its log-odds
    levels: list[tuple[float, float]] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)  # log-odds of two standard deviations


def explained(X: np.ndarray) -> list[float]:
    """Shares of the variances of columns that the other columns explain."""
    X = X[:, X.std(axis=0) > 1e-9]
    if X.shape[1] < 2:
        return []
    inverse = np.linalg.pinv(np.corrcoef(X.T), hermitian=True)
    return [float(share) for share in 1.0 - 1.0 / np.maximum(1.0, np.diag(inverse))]


def slopes(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Coefficients of a logistic fit with a small ridge, so that separated levels stay finite."""
    weight = 1.0 / np.maximum(1.0, np.sum(X**2, axis=1))
    spread = X.std(axis=0)
    unit = np.where(spread > 1e-6, spread, 1.0)
    U = X / unit
    w = np.zeros(U.shape[1])
    for _ in range(60):
        p = expit(U @ w)
        H = (U.T * (weight * p * (1.0 - p))) @ U / len(U) + RIDGE * np.eye(len(w))
        step = np.linalg.solve(H, U.T @ (weight * (p - (y > 0))) / len(U) + RIDGE * w)
        w = w - step * min(1.0, 2.0 / max(1e-9, float(np.abs(U @ step).max())))
    return np.asarray(w / unit)


def look(seen: Seen, naming: Naming, X: np.ndarray, y: np.ndarray) -> None:
    """Measure the encoded rows of a table."""
    assert naming.schema is not None
    w, spread, column = slopes(X, y), X.std(axis=0), 0
    seen.scores.append(float((X @ w).std()))
    seen.explained += explained(X[:, :-1])
    seen.explained_made += explained(
        draw_synthetic_rows(naming, MADE, np.random.default_rng(len(seen.scores)), REAL)[:, :-1]
    )
    for block in naming.schema.blocks:
        own = slice(column, column + len(block.feature_names))
        column = own.stop
        if isinstance(block, Number) and spread[own.start] > 1e-6:
            seen.numbers.append(2.0 * float(w[own.start] * spread[own.start]))
            if block.typical is not None:
                seen.skewness.append(float(skew(X[:, own.start])))
        elif isinstance(block, Category):
            look_at_levels(seen, X[:, own], w[own])


def look_at_levels(seen: Seen, X: np.ndarray, w: np.ndarray) -> None:
    """Measure the levels of a column, of which the reference has no mark."""
    mark = np.maximum(np.abs(X).max(axis=0), 1e-12)
    found = np.mean(X != 0.0, axis=0)
    shares = np.log(np.maximum(1e-3, [1.0 - found.sum(), *found]))
    if len(shares) == 2:
        seen.two_levels.append(float(shares[1] - shares[0]))
    else:
        seen.more_levels.append(float(np.std(shares, ddof=1)))
    seen.levels += [
        (float(s), float(b))
        for s, b in zip((X / mark).std(axis=0), w * mark, strict=True)
        if s > 1e-6
    ]


def exponent(skewness: float) -> float:
    """The deviation of a normal number whose exponential has this skewness; it has the same
    sign.
    """

    def too_much(deviation: float) -> float:
        grown = float(np.exp(deviation**2))
        return (grown + 2.0) * float(np.sqrt(grown - 1.0)) - abs(skewness)

    return float(np.sign(skewness)) * float(brentq(too_much, 0.0, 3.0))


def told(seen: Seen) -> str:
    """All of it in lines of text."""
    bent = np.array([exponent(x) for x in seen.skewness])
    scores, levels = np.log(seen.scores), np.abs(np.array(seen.levels))
    low, middle, high = np.quantile(bent, (0.05, 0.5, 0.95))
    lines = [
        f"levels: {np.sqrt(np.mean(np.square(seen.two_levels)) / 2.0):.2f} of "
        f"{len(seen.two_levels)} columns of two, "
        f"{np.median(seen.more_levels):.2f} of {len(seen.more_levels)} of more",
        f"skewness: {middle:.2f}, deviation {(high - low) / 3.29:.2f}, of {len(bent)} numbers",
        f"related: {np.quantile(seen.explained, QUANTILES).round(2)} real, "
        f"{np.quantile(seen.explained_made, QUANTILES).round(2)} made up",
        f"scores: {np.exp(scores.mean()):.2f}, deviation of logarithms {scores.std():.2f}",
        f"effects: numbers {np.median(np.abs(seen.numbers)):.2f}",
    ]
    for few, many in ((0.0, 0.15), (0.15, 0.25), (0.25, 0.35), (0.35, 0.51)):
        own = levels[(levels[:, 0] >= few) & (levels[:, 0] < many), 1]
        lines.append(
            f"effects: levels with a deviation of {few} to {many} {np.median(own):.2f} ({len(own)})"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", default=";".join(SETTING), help="separated by semicolons")
    parser.add_argument(
        "--folder", type=Path, default=default_folder(), help="where tables are kept"
    )
    args = parser.parse_args()
    seen = Seen()
    for name in args.tables.split(";"):
        naming, parts = drawer(args.folder, name)(ROWS, 0)
        columns = {key: np.concatenate([one[key] for one, _ in parts]) for key in parts[0][0]}
        look(
            seen,
            naming,
            naming.encode_with_one_constant(columns),
            np.concatenate([y for _, y in parts]),
        )
    print(told(seen))


if __name__ == "__main__":
    main()
