"""Do 95% intervals cover?  Data sets of known coefficients, the whole recipe of ``--inference``,
and its own rule.

``scripts/bench coverage [--quick] [--json FILE] [--svg FILE] [--cells NAME;...] [--sets N] [--out
FILE [--minutes M]]``

With ``--out`` data sets are kept, one a line, and a later call adds those that are missing: a run
of 1,000 data sets a cell can be done in pieces.  A data set depends on its cell and its number
alone.

A cell is a design, a number of rows, a budget and a trust.  For each data set the table of
coefficients is computed as ``train --inference`` does it; an interval counts only if the rule
prints it.  *Widths* are those of printed intervals over the intervals without privacy, at the
median.  *one end* is the share of lines of which one end of an interval is printed, which are no
part of *printed*, and *holds* how many of these ends are on the right side of the truth.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _coverage_picture import clopper_pearson, draw
from scipy.special import expit, ndtr

import sottovoce
from sottovoce.answers.coefficients import build_coefficient_table
from sottovoce.answers.inference import newton_from_naming
from sottovoce.answers.terms import Naming, naming_from_columns, naming_from_schema
from sottovoce.data.schema import Schema
from sottovoce.problem.losses import Logistic
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate

SITES = 5
SETS, QUICK = 1000, 24


class Drawn(NamedTuple):
    """A data set: rows and labels of every site, the truth in the table's order, and the columns
    of the truth.
    """

    naming: Naming
    parts: list[tuple[Any, np.ndarray]]
    truth: np.ndarray
    X: np.ndarray


def split(n: int, sites: int = SITES) -> list[np.ndarray]:
    return list(np.array_split(np.arange(n), sites))


def numbers(
    n: int,
    rng: np.random.Generator,
    *,
    k: int = 5,
    rho: float = 0.0,
    constant: float = -0.8,
    norm: float | None = None,
    tail: bool = False,
    sites: int = SITES,
) -> Drawn:
    """Normal columns, equally correlated; with `tail` of Student's law with 4 degrees of
    freedom.
    """
    X = np.sqrt(1 - rho) * rng.normal(size=(n, k)) + np.sqrt(rho) * rng.normal(size=(n, 1))
    if tail:
        X /= np.sqrt(rng.chisquare(4, size=(n, 1)) / 4.0)
    beta = np.array([(0.6, -0.4, 0.0, 0.3, -0.2)[j % 5] for j in range(k)]) / np.sqrt(
        max(1.0, k / 5.0)
    )
    y = np.where(rng.random(n) < expit(X @ beta + constant), 1.0, -1.0)
    naming = naming_from_columns([f"x{j}" for j in range(k)], norm or 1.35 * np.sqrt(k))
    return Drawn(naming, [(X[p], y[p]) for p in split(n, sites)], np.append(beta, constant), X)


def probit(X: np.ndarray) -> np.ndarray:
    return np.asarray(ndtr(X @ (0.6, -0.4, 0.0, 0.3, -0.2) - 0.8))


def saturation(X: np.ndarray) -> np.ndarray:
    return np.asarray(expit(1.5 * np.tanh(X[:, 0]) + X @ (0.0, -0.4, 0.0, 0.3, -0.2) - 0.8))


def interaction(X: np.ndarray) -> np.ndarray:
    return np.asarray(expit(0.5 * X[:, 0] * X[:, 1] + X @ (0.6, -0.4, 0.0, 0.3, -0.2) - 0.8))


def closest(naming: Naming, X: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """The coefficients that fit rows with chances for labels best, if rows are weighed as the
    table weighs them.
    """
    E = naming.encode_rows(X)
    weight, w = 1.0 / np.maximum(1.0, np.sum(E**2, axis=1)), np.zeros(naming.d)
    for _ in range(12):
        p = expit(E @ w)
        w = w + np.linalg.solve((E.T * (weight * p * (1.0 - p))) @ E, E.T @ (weight * (chance - p)))
    return np.asarray(naming.into_units @ w)


@lru_cache
def best(chance: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The coefficients that fit best, of a million rows with chances for labels, weighed as the
    table weighs rows.
    """
    X = np.random.default_rng(35).normal(size=(1_000_000, 5))
    return closest(
        naming_from_columns([f"x{j}" for j in range(5)], 1.35 * np.sqrt(5)), X, chance(X)
    )


def wrong(n: int, rng: np.random.Generator, chance: Callable[[np.ndarray], np.ndarray]) -> Drawn:
    """Normal columns with chances that no logistic model has; the truth is the model that fits
    best.
    """
    X = rng.normal(size=(n, 5))
    y = np.where(rng.random(n) < chance(X), 1.0, -1.0)
    naming = naming_from_columns([f"x{j}" for j in range(5)], 1.35 * np.sqrt(5))
    return Drawn(naming, [(X[p], y[p]) for p in split(n)], best(chance), X)


def lognormal(n: int, rng: np.random.Generator) -> Drawn:
    """Eight columns of median 20 under bounds of 0 and 10,000, with a logistic truth in their
    logarithms.
    """
    column = {"kind": "number", "lo": 0, "hi": 10_000, "transform": "log1p"}
    schema = Schema.from_dict(
        {"columns": {f"x{j}": column for j in range(8)}, "name": "lognormal", "intercept": True}
    )
    raw = np.exp(3.0 + 0.8 * rng.normal(size=(n, 8)))
    X, beta = np.log1p(raw), np.array([0.6, -0.4, 0.0, 0.3, -0.2, 0.5, -0.3, 0.2])
    constant = -0.8 - 3.0 * float(beta.sum())
    y = np.where(rng.random(n) < expit(X @ beta + constant), 1.0, -1.0)
    parts = [({f"x{j}": raw[p, j] for j in range(8)}, y[p]) for p in split(n)]
    return Drawn(naming_from_schema(schema), parts, np.append(beta, constant), X)


SHARES = (0.5, 0.25, 0.15, 0.08, 0.02)
EFFECTS = (0.5, -0.4, 0.8, 0.3)


def levels(
    n: int,
    rng: np.random.Generator,
    *,
    blocks: int = 3,
    constant: float = -0.5,
    rarest: float = SHARES[-1],
) -> Drawn:
    """Columns of five levels, the rarest with 2% of rows unless said; the commonest is the
    reference.
    """
    names = [chr(ord("a") + k) for k in range(5)]
    schema = Schema.from_dict(
        {
            "columns": {f"c{j}": {"kind": "category", "values": names} for j in range(blocks)},
            "name": "levels",
        }
    )
    shares = (SHARES[0] + SHARES[-1] - rarest, *SHARES[1:-1], rarest)
    codes = rng.choice(5, p=shares, size=(n, blocks))
    X = np.concatenate(
        [codes[:, j : j + 1] == np.arange(1, 5) for j in range(blocks)], axis=1
    ).astype(float)
    beta = np.concatenate([np.array(EFFECTS) * (-1) ** j for j in range(blocks)])
    y = np.where(rng.random(n) < expit(X @ beta + constant), 1.0, -1.0)
    text = np.array(names, dtype=object)[codes]
    parts = [({f"c{j}": text[p, j] for j in range(blocks)}, y[p]) for p in split(n)]
    return Drawn(naming_from_schema(schema), parts, np.append(beta, constant), X)


def unlike(n: int, rng: np.random.Generator) -> Drawn:
    """Sites with other base rates and other means of one column; every site has a constant of
    its own.
    """
    found = numbers(n, rng)
    names, beta = [f"site {i}" for i in range(SITES)], found.truth[:-1]
    naming = naming_from_columns([f"x{j}" for j in range(5)], found.naming.data_norm, names)
    own = np.linspace(-1.8, 0.4, SITES)
    parts, where = [], []
    for i, p in enumerate(split(n)):
        X = found.X[p].copy()
        X[:, 0] += np.linspace(-0.8, 0.8, SITES)[i]
        parts.append((X, np.where(rng.random(len(p)) < expit(X @ beta + own[i]), 1.0, -1.0)))
        where.append(np.hstack([X, np.eye(SITES)[np.full(len(p), i)]]))
    return Drawn(naming, parts, np.concatenate([beta, own]), np.concatenate(where))


DESIGNS = {
    "numbers": numbers,
    "levels": levels,
    "rare events": lambda n, rng: levels(n, rng, constant=-3.8),
    "correlated": lambda n, rng: numbers(n, rng, k=10, rho=0.9),
    "40 columns": lambda n, rng: levels(n, rng, blocks=10),
    "unlike sites": unlike,
    "half long": lambda n, rng: numbers(n, rng, norm=2.1, tail=True),
    "probit truth": lambda n, rng: wrong(n, rng, probit),
    "saturation": lambda n, rng: wrong(n, rng, saturation),
    "interaction": lambda n, rng: wrong(n, rng, interaction),
    "lognormal": lognormal,
    "2% events": lambda n, rng: numbers(n, rng, constant=-4.13),
    "collinear": lambda n, rng: numbers(n, rng, rho=0.99),
    "20 sites": lambda n, rng: numbers(n, rng, sites=20),
    "50 sites": lambda n, rng: numbers(n, rng, sites=50),
    "levels of .3%": lambda n, rng: levels(n, rng, rarest=0.003),
}


@dataclass(frozen=True)
class Setting:
    design: str
    n: int
    epsilon: float

    @property
    def name(self) -> str:
        return f"{self.design}, n = {self.n:,}, epsilon {self.epsilon:g}"


@dataclass(frozen=True)
class Cell(Setting):
    trust: str = "sum"

    @property
    def name(self) -> str:
        return f"{super().name}, {self.trust}"


CELLS = (
    *(Cell("numbers", n, e) for n in (8_000, 40_000) for e in (1.0, 3.0)),
    *(Cell("numbers", 40_000, e, "nobody") for e in (1.0, 3.0)),
    *(Cell("levels", n, e) for n in (8_000, 40_000) for e in (1.0, 3.0)),
    *(Cell("levels", 40_000, e, "nobody") for e in (3.0,)),
    *(Cell("rare events", 40_000, e) for e in (1.0, 3.0)),
    *(Cell("correlated", 40_000, e) for e in (1.0, 3.0)),
    *(Cell("40 columns", 40_000, e) for e in (1.0, 3.0)),
    Cell("40 columns", 2_000, 3.0),
    *(Cell("unlike sites", 40_000, e) for e in (1.0, 3.0)),
    *(Cell("half long", 40_000, e) for e in (1.0, 3.0)),
    *(Cell(design, 40_000, e) for design in list(DESIGNS)[7:] for e in (1.0, 3.0)),
)


def exact_errors(found: Drawn) -> np.ndarray:
    """Standard errors of the maximum likelihood estimate without privacy, by Fisher's
    information at the truth.
    """
    X = found.X if found.naming.sites else np.hstack([found.X, np.ones((len(found.X), 1))])
    p = expit(X @ found.truth)
    return np.sqrt(np.diag(np.linalg.inv((X.T * (p * (1 - p))) @ X)))


def one(cell: Cell, seed: int) -> dict[str, Any]:
    """A data set of the cell, and :func:`told` of it."""
    rng = np.random.default_rng([seed, cell.n, round(100 * cell.epsilon)])
    return told(DESIGNS[cell.design](cell.n, rng), cell, seed)


def told(found: Drawn, cell: Cell, seed: int) -> dict[str, Any]:
    """Of each line whether its interval holds the truth, and its width; None if it is refused.

    Also whether the end of a line with one end is on the right side of the truth; None of all
    others.
    """
    loss = Weighted(Logistic()) if found.naming.long else Logistic()
    config = RunConfig(method="auto", trust=cell.trust, epsilon=cell.epsilon, delta=1e-5, seed=seed)
    result = simulate(
        config,
        found.naming.rows_of_sites(found.parts),
        method=newton_from_naming(found.naming),
        loss=loss,
    )
    lines = build_coefficient_table(result.outcome, found.naming, delta=1e-5).lines
    inside, width, holds = [], [], []
    for line, truth, error in zip(lines, found.truth, exact_errors(found), strict=True):
        printed = line.refused is None
        inside.append(bool(line.low <= truth <= line.high) if printed else None)  # type: ignore[operator]
        width.append(line.standard_error / error if printed else None)  # type: ignore[operator]
        above, below = (
            line.low is None or line.low <= truth,
            line.high is None or truth <= line.high,
        )
        holds.append(None if line.one_sided is None else bool(above and below))
    return {
        "inside": inside,
        "width": [None if x is None else round(x, 4) for x in width],
        "holds": holds,
    }


def summary(cell: Cell, sets: list[dict[str, Any]]) -> dict[str, Any]:
    """Coverage of printed intervals, pooled and of the worst coefficient that is printed in a
    tenth of the sets.
    """
    columns = list(zip(*(one["inside"] for one in sets), strict=True))
    known = [[x for x in column if x is not None] for column in columns]
    printed = [x for column in known for x in column]
    often = [column for column in known if len(column) >= max(5, len(sets) // 10)]
    widths = [x for one in sets for x in one["width"] if x is not None]
    ends = [x for one in sets for x in one.get("holds", ()) if x is not None]
    worst = min(often, key=np.mean, default=None)
    return {
        "cell": cell.name,
        "sets": len(sets),
        "coefficients": len(columns),
        "printed": len(printed) / max(1, sum(map(len, columns))),
        "intervals": len(printed),
        "coverage": float(np.mean(printed)) if printed else None,
        "worst": None if worst is None else float(np.mean(worst)),
        "worst_ends": None if worst is None else clopper_pearson(sum(worst), len(worst)),
        "width": float(np.median(widths)) if widths else None,
        "one_end": len(ends) / max(1, sum(map(len, columns))),
        "holds": float(np.mean(ends)) if ends else None,
    }


_ANSWERS = (
    "coefficients",
    "directions",
    "frames",
    "hidden_groups",
    "inference",
    "merged_levels",
    "normal_rows",
    "one_sided",
    "references",
    "second_order",
    "separate_sites",
    "separation",
    "terms",
)
FILES = (
    *(f"answers/{name}.py" for name in _ANSWERS),
    "algorithms/recipe.py",
    "queries/bounded.py",
    "queries/framed.py",
    "problem/weighted_loss.py",
)


@lru_cache
def version(bench: str, files: Sequence[str]) -> str:
    """Of the code that makes a data set and its table: a benchmark down to its summary, and
    files of the package.
    """
    texts = [Path(bench).read_text().split("\ndef summary")[0]]
    texts += [(Path(sottovoce.__file__).parent / file).read_text() for file in files]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


class Kept:
    """Data sets of earlier pieces of a run, one JSON object a line; a line that was cut off is
    dropped.

    Parameters
    ----------
    path : Path, optional
    version : str
        Of the code that makes them.

    Raises
    ------
    SystemExit
        If other code made the file.
    """

    def __init__(self, path: Path | None, version: str) -> None:
        self.path, self.version, self.sets = path, version, dict[str, dict[int, dict[str, Any]]]()
        whole = b"" if path is None or not path.exists() else path.read_bytes()
        for line in whole[: whole.rfind(b"\n") + 1].splitlines():
            row = json.loads(line)
            if row.pop("version") != version:
                raise SystemExit(f"{path}: was made by other code; give another file to --out")
            self.sets.setdefault(row.pop("cell"), {})[row.pop("seed")] = row
        if path is not None and len(whole) > whole.rfind(b"\n") + 1:
            path.write_bytes(whole[: whole.rfind(b"\n") + 1])

    def add(self, cell: Any, seed: int, found: dict[str, Any]) -> None:
        """Write a data set down."""
        self.sets.setdefault(cell.name, {})[seed] = found
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(
                    json.dumps({"cell": cell.name, "seed": seed, "version": self.version} | found)
                    + "\n"
                )

    def first(self, cell: Any, sets: int) -> list[dict[str, Any]]:
        """The first data sets of a cell, by their seeds."""
        own = self.sets.get(cell.name, {})
        return [own[seed] for seed in sorted(own) if seed < sets]


def fill(
    kept: Kept,
    cells: Sequence[Any],
    sets: int,
    jobs: int,
    minutes: float,
    one: Callable[[Any, int], dict[str, Any]],
) -> None:
    """Draw the data sets that are missing, all cells alike, until there are enough or time is
    up.
    """
    until = time.monotonic() + 60.0 * minutes
    missing = [
        (cell, seed)
        for seed in range(sets)
        for cell in cells
        if seed not in kept.sets.get(cell.name, {})
    ]
    with ProcessPoolExecutor(jobs) as pool:
        for first in range(0, len(missing), 4 * jobs):
            if time.monotonic() > until:
                return
            some = missing[first : first + 4 * jobs]
            for (cell, seed), found in zip(
                some, pool.map(one, *zip(*some, strict=True)), strict=True
            ):
                kept.add(cell, seed, found)


def show(done: list[dict[str, Any]], more: tuple[str, ...] = ()) -> None:
    """The table of intervals, with more columns of shares, and what is said of all intervals
    together.
    """
    heads = " ".join(
        f"{head:>7}" for head in ("cover", "worst", "width", "one end", "holds", *more)
    )
    print(f"{'cell':<54} {'sets':>5} {'printed':>8} {heads}")
    for row in done:
        text = [f"{row['cell']:<54} {row['sets']:5d} {100 * row['printed']:7.1f}%"]
        for key in ("coverage", "worst", "width", "one_end", "holds", *more):
            if row[key] is None:
                text.append(f"{'-':>7}")
            elif key == "width":
                text.append(f"{row[key]:7.2f}")
            else:
                text.append(f"{100 * row[key]:7.1f}")
        print(" ".join(text))
    intervals = sum(row["intervals"] for row in done)
    if intervals:
        inside = sum(row["intervals"] * (row["coverage"] or 0.0) for row in done)
        print(f"pooled over {intervals:,} printed intervals: {100 * inside / intervals:.2f}%")


def page(done: list[dict[str, Any]]) -> str:
    """The table in Markdown."""
    heads = ["cell", "sets", "printed", "coverage", "worst (95% interval)", "width", "one end"]
    text = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in done:
        name = row["cell"].removesuffix(", sum").replace(", nobody", ", local trust")
        one_end = f"{100 * row['one_end']:.1f}%"
        cells = [name, f"{row['sets']:,}", f"{100 * row['printed']:.1f}%", "–", "–", "–", one_end]
        if row["worst"] is not None:
            low, high = row["worst_ends"]
            worst = f"{100 * row['worst']:.1f}% ({100 * low:.0f} to {100 * high:.0f})"
            cells[3:6] = f"{100 * row['coverage']:.1f}%", worst, f"{row['width']:.2f}"
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


def main(
    bench: Any,
    show: Callable[[list[dict[str, Any]]], None],
    draw: Callable[[Sequence[Any]], bytes] | None = None,
    page: Callable[[list[dict[str, Any]]], str] | None = None,
) -> None:
    """The command of a benchmark of coverage: a module with CELLS, SETS, FILES, `one` and
    `summary`.

    `show` prints the table; `draw` makes a picture of it, and `page` the table of a page, where
    there is one.
    """
    parser = argparse.ArgumentParser(
        description=bench.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} data sets a cell")
    parser.add_argument(
        "--sets", type=int, help=f"data sets a cell; {bench.SETS} if nothing is said"
    )
    parser.add_argument(
        "--cells",
        default="",
        help="only cells whose names hold one of these, separated by semicolons",
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--out", type=Path, help="keep data sets here, and add to those that it holds"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=math.inf,
        help="stop after about as many; --out goes on later",
    )
    parser.add_argument("--json", type=Path, help="write the table here")
    parser.add_argument("--from-json", type=Path, help="take this table, and measure nothing")
    if draw is not None:
        parser.add_argument("--svg", type=Path, help="draw the table here")
    if page is not None:
        parser.add_argument("--write", type=Path, help="write the table here, as Markdown")
    args = parser.parse_args()
    if args.from_json is not None:
        done = json.loads(args.from_json.read_text(encoding="utf-8"))
    else:
        sets = args.sets or (QUICK if args.quick else bench.SETS)
        wanted = [c for c in bench.CELLS if any(part in c.name for part in args.cells.split(";"))]
        kept = Kept(args.out, version(bench.__file__, bench.FILES))
        fill(kept, wanted, sets, args.jobs, args.minutes, bench.one)
        done = [bench.summary(cell, found) for cell in wanted if (found := kept.first(cell, sets))]
    show(done)
    if args.json:
        args.json.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
    if draw is not None and args.svg:
        args.svg.write_bytes(draw(done))
    if page is not None and args.write:
        args.write.write_text(page(done), encoding="utf-8")


if __name__ == "__main__":
    main(sys.modules[__name__], show, draw, page)
