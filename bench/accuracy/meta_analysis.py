"""Under trust nobody: is the joint table anywhere wider than a meta-analysis of each site's own
private table?

``scripts/bench meta_analysis [--sets N] [--draws N] [--cells NAME;...] [--out FILE] [--json FILE]``

Sites hold disjoint rows, so a table by a site alone costs each of its rows as much as its part in
the joint table. Three answers are compared at the same epsilon: *joint* is what ``--inference
--trust nobody`` prints; *lines* pools the sites' own printed lines by inverse variance, line by
line, as a fixed-effect meta-analysis of published tables does; *matrix* pools them by inverse
covariance, which takes all of what the sites' tables hold.

A cell is a kind of outcome (classes or numbers), a design, the sites' shares of the rows, a number
of rows and a budget.  *Printed* is a share of all lines.  All else is of lines that all three
answers print, over the standard error without privacy: *width* is the median one, *error* the root
mean square of estimates less the truth, *cover* the share of intervals that hold the truth.
*Ratio* is the median of joint's width over that of lines, and of matrix.  A ratio tells something
where both cover: an answer whose error is larger than its width is too narrow.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from sottovoce.answers import coefficients, inference, least_squares
from sottovoce.answers.coefficients import Coefficients
from sottovoce.answers.terms import Naming, naming_from_columns, naming_from_schema
from sottovoce.data.schema import Schema
from sottovoce.problem.losses import HuberResidual, Logistic
from sottovoce.problem.task import BoundedNumber
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate

TASK = BoundedNumber(0.0, 60.0)
DELTA = 1e-5
Z = 1.959963984540054
ANSWERS = ("joint", "lines", "matrix")
LAYOUTS = {
    "alone": (1.0,),
    "2 equal": (0.5, 0.5),
    "5 equal": (0.2,) * 5,
    "20 equal": (0.05,) * 20,
    "70/10/10/5/5": (0.7, 0.1, 0.1, 0.05, 0.05),
    "90/10": (0.9, 0.1),
    "one of 20": (0.43,) + (0.03,) * 19,
}


class Drawn(NamedTuple):
    """A data set: a naming for any names of sites, each site's table, columns of the truth, and
    the truth itself.
    """

    naming: Callable[[Sequence[str]], Naming]
    tables: list[Any]
    X: list[np.ndarray]
    effects: np.ndarray  # of the columns, as log-odds
    constants: np.ndarray  # of every site


def cut(shares: Sequence[float], n: int) -> list[np.ndarray]:
    """Positions of the sites' rows."""
    ends = np.rint(np.cumsum(shares)[:-1] * n).astype(int)
    return list(np.split(np.arange(n), ends))


def numbers(
    shares: Sequence[float], n: int, rng: np.random.Generator, k: int = 5, rho: float = 0.0
) -> Drawn:
    """Normal columns, equally correlated."""
    X = np.sqrt(1 - rho) * rng.normal(size=(n, k)) + np.sqrt(rho) * rng.normal(size=(n, 1))
    effects = np.array([(0.6, -0.4, 0.0, 0.3, -0.2)[j % 5] for j in range(k)]) / np.sqrt(
        max(1.0, k / 5.0)
    )
    parts, names = cut(shares, n), [f"x{j}" for j in range(k)]

    def naming(sites: Sequence[str]) -> Naming:
        return naming_from_columns(names, 1.35 * np.sqrt(k), sites)

    return Drawn(
        naming, [X[p] for p in parts], [X[p] for p in parts], effects, np.full(len(parts), -0.8)
    )


def unlike(shares: Sequence[float], n: int, rng: np.random.Generator) -> Drawn:
    """Sites with other base rates, and other means and spreads of two columns."""
    found = numbers(shares, n, rng)
    sites = len(found.X)
    own = np.linspace(-0.8, 0.8, sites)
    spread = np.where(np.arange(sites) % 2 == 0, 1.0, 0.4)
    X = [
        x * [1.0, s, 1.0, 1.0, 1.0] + [m, 0.0, 0.0, 0.0, 0.0]
        for x, m, s in zip(found.X, own, spread, strict=True)
    ]
    return found._replace(tables=X, X=X, constants=np.linspace(-1.8, 0.4, sites))


def levels(shares: Sequence[float], n: int, rng: np.random.Generator) -> Drawn:
    """Two columns of four levels."""
    names = ["a", "b", "c", "d"]
    plain = {f"c{j}": {"kind": "category", "values": names} for j in range(2)}
    schema = Schema.from_dict({"columns": plain, "name": "levels"})
    codes = rng.choice(4, p=(0.5, 0.25, 0.15, 0.1), size=(n, 2))
    X = np.concatenate([codes[:, j : j + 1] == np.arange(1, 4) for j in range(2)], axis=1).astype(
        float
    )
    text, parts = np.array(names, dtype=object)[codes], cut(shares, n)

    def naming(sites: Sequence[str]) -> Naming:
        return naming_from_schema(schema, sites)

    tables = [{f"c{j}": text[p, j] for j in range(2)} for p in parts]
    effects = np.array([0.5, -0.4, 0.8, -0.5, 0.4, -0.8])
    return Drawn(naming, tables, [X[p] for p in parts], effects, np.full(len(parts), -0.5))


DESIGNS: dict[str, Callable[..., Drawn]] = {
    "numbers": numbers,
    "correlated": lambda shares, n, rng: numbers(shares, n, rng, rho=0.8),
    "levels": levels,
    "unlike": unlike,
}


@dataclass(frozen=True)
class Cell:
    kind: str  # of the outcome
    design: str
    layout: str
    n: int
    epsilon: float
    apart: bool = True  # every site has a constant of its own

    @property
    def name(self) -> str:
        constants = "" if self.apart else ", one constant"
        return (
            f"{self.kind}, {self.design}, {self.layout}, n = {self.n:,}, epsilon "
            f"{self.epsilon:g}{constants}"
        )


CELLS = (
    *(
        Cell(kind, design, layout, 8_000, epsilon, apart)
        for kind in ("classes", "numbers")
        for design in ("numbers", "levels")
        for layout in ("5 equal", "70/10/10/5/5")
        for epsilon in (1.0, 3.0, 10.0)
        for apart in (True, False)
    ),
    *(
        Cell(kind, design, layout, 8_000, 3.0)
        for kind in ("classes", "numbers")
        for design, layout in (
            ("numbers", "2 equal"),
            ("numbers", "90/10"),
            ("numbers", "20 equal"),
            ("numbers", "one of 20"),
            ("levels", "20 equal"),
            ("correlated", "5 equal"),
            ("correlated", "70/10/10/5/5"),
            ("unlike", "5 equal"),
            ("unlike", "70/10/10/5/5"),
            ("unlike", "20 equal"),
        )
    ),
    *(
        Cell(kind, "numbers", layout, n, epsilon)
        for kind in ("classes", "numbers")
        for layout in ("2 equal", "5 equal", "70/10/10/5/5")
        for n, epsilon in ((1_000, 3.0), (2_000, 1.0), (2_000, 3.0), (40_000, 1.0))
    ),
)


class Pooled(NamedTuple):
    """Estimates and standard errors of all lines; NaN where nothing is printed."""

    estimate: np.ndarray
    error: np.ndarray


def asked(
    cell: Cell,
    naming: Naming,
    tables: Sequence[Any],
    y: Sequence[np.ndarray],
    seed: int,
    draws: int,
) -> list[Coefficients]:
    """Tables of these sites together, for every draw of the noise."""
    run = RunConfig(
        method="auto",
        trust="nobody",
        epsilon=cell.epsilon,
        delta=DELTA,
        seed=seed,
        replicates=draws,
    )
    if cell.kind == "classes":
        rows = naming.rows_of_sites(list(zip(tables, y, strict=True)))
        loss = Weighted(Logistic()) if naming.long else Logistic()
        found = simulate(run, rows, method=inference.newton_from_naming(naming), loss=loss).outcome
        return [coefficients.build_coefficient_table(found, naming, r, DELTA) for r in range(draws)]
    rows = naming.rows_of_sites(
        [(table, np.ones(len(part))) for table, part in zip(tables, y, strict=True)]
    )
    rows = rows.with_offset([TASK.encode(part) for part in y])
    loss = Weighted(HuberResidual(1.0)) if naming.long else HuberResidual(1.0)
    found = simulate(run, rows, method=least_squares.slopes_from_naming(naming), loss=loss).outcome
    return [
        least_squares.table_in_target_units(each(found, r), naming, TASK, DELTA)
        for r in range(draws)
    ]


def each(found: inference.Estimates, r: int) -> inference.Estimates:
    """One draw of the noise."""
    plain = {
        name: value[r : r + 1] if isinstance(value, np.ndarray) else value
        for name, value in vars(found).items()
    }
    return inference.Estimates(**plain)


def printed(table: Coefficients) -> tuple[np.ndarray, np.ndarray]:
    """Estimates, NaN where refused, and the covariance."""
    return np.array(
        [np.nan if x.refused else x.estimate for x in table.lines], dtype=float
    ), table.covariance


def by_lines(tables: Sequence[Coefficients], places: Sequence[np.ndarray], lines: int) -> Pooled:
    """Every line by inverse variance; `places` say which lines of all those of a site's table
    are.
    """
    weight, total = np.zeros(lines), np.zeros(lines)
    for table, where in zip(tables, places, strict=True):
        b, covariance = printed(table)
        known = np.isfinite(b)
        sure = 1.0 / np.diag(covariance)[known]
        weight[where[known]] += sure
        total[where[known]] += sure * b[known]
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(weight > 0.0, weight**-0.5, np.nan)
        return Pooled(total / np.where(weight > 0.0, weight, np.nan), error)


def by_matrices(tables: Sequence[Coefficients], places: Sequence[np.ndarray], lines: int) -> Pooled:
    """All lines by inverse covariance of those that a site prints."""
    weight, total = np.zeros((lines, lines)), np.zeros(lines)
    for table, where in zip(tables, places, strict=True):
        b, covariance = printed(table)
        known = np.isfinite(b)
        if known.any():
            sure = np.linalg.inv(covariance[np.ix_(known, known)])
            weight[np.ix_(where[known], where[known])] += sure
            total[where[known]] += sure @ b[known]
    some = np.diag(weight) > 0.0
    estimate, error = np.full(lines, np.nan), np.full(lines, np.nan)
    if some.any():
        covariance = np.linalg.inv(weight[np.ix_(some, some)])
        estimate[some], error[some] = covariance @ total[some], np.sqrt(np.diag(covariance))
    return Pooled(estimate, error)


def one(cell: Cell, seed: int, draws: int) -> dict[str, Any]:
    """A data set, and for every draw of the noise and kind of answer whether lines hold the
    truth, and how wide.
    """
    rng = np.random.default_rng([seed, cell.n, round(100 * cell.epsilon)])
    found = DESIGNS[cell.design](LAYOUTS[cell.layout], cell.n, rng)
    sites, k = [f"site {i}" for i in range(len(found.X))], len(found.effects)
    own = found.constants if cell.apart else np.full(len(sites), found.constants[0])
    scale = 1.0 if cell.kind == "classes" else 5.0
    scores = [x @ found.effects + c for x, c in zip(found.X, own, strict=True)]
    if cell.kind == "classes":
        y = [np.where(rng.random(len(s)) < expit(s), 1.0, -1.0) for s in scores]
        middle = 0.0
    else:
        y = [
            np.clip(30.0 + scale * (s + rng.normal(size=len(s))), TASK.low, TASK.high)
            for s in scores
        ]
        middle = 30.0
    apart = cell.apart and len(sites) > 1
    truth = np.concatenate([scale * found.effects, middle + scale * (own if apart else own[:1])])
    tables = asked(cell, found.naming(sites if apart else []), found.tables, y, seed, draws)
    places = [np.append(np.arange(k), k + (i if apart else 0)) for i in range(len(sites))]
    alone = [
        asked(cell, found.naming([]), [table], [part], 1000 * (seed + 1) + i, draws)
        for i, (table, part) in enumerate(zip(found.tables, y, strict=True))
    ]
    design = np.concatenate(found.X)
    own_column = np.repeat(np.arange(len(sites)), [len(x) for x in found.X])
    marks = np.eye(len(sites))[own_column] if apart else np.ones((len(design), 1))
    design = np.hstack([design, marks])
    p = expit(np.concatenate(scores))
    weight = p * (1.0 - p) if cell.kind == "classes" else np.full(len(design), scale**-2.0)
    exact = np.sqrt(np.diag(np.linalg.inv((design.T * weight) @ design)))
    rows = []
    for r in range(draws):
        b, covariance = printed(tables[r])
        ours = Pooled(b, np.sqrt(np.diag(covariance)))
        per_site = [table[r] for table in alone]
        answers = {
            "joint": ours,
            "lines": by_lines(per_site, places, len(truth)),
            "matrix": by_matrices(per_site, places, len(truth)),
        }
        rows.append(
            {
                name: {
                    "off": [float(v) for v in (x.estimate - truth) / exact],
                    "width": [float(v) for v in x.error / exact],
                }
                for name, x in answers.items()
            }
        )
    return {"slopes": k, "draws": rows}


def summary(cell: Cell, sets: list[dict[str, Any]]) -> dict[str, Any]:
    """Of slopes and of constants: the printed share of each answer, and all else of lines that
    all of them print.
    """
    rows = [draw for one in sets for draw in one["draws"]]
    k = sets[0]["slopes"]
    plain: dict[str, Any] = {"cell": cell.name, "sets": len(sets), "draws": len(rows)}
    for part, of in (("slopes", slice(0, k)), ("constants", slice(k, None))):
        off = {name: np.array([row[name]["off"][of] for row in rows]) for name in ANSWERS}
        width = {name: np.array([row[name]["width"][of] for row in rows]) for name in ANSWERS}
        common = np.all([np.isfinite(w) for w in width.values()], axis=0)
        for name in ANSWERS:
            found = {"printed": float(np.mean(np.isfinite(width[name])))}
            if common.any():
                e, w = off[name][common], width[name][common]
                found["width"] = float(np.median(w))
                found["error"] = float(np.sqrt(np.mean(e**2)))
                found["cover"] = float(np.mean(np.abs(e) <= Z * w))
            plain[f"{part} {name}"] = found
        for other in ANSWERS[1:]:
            ratios = width["joint"][common] / width[other][common]
            plain[f"{part} over {other}"] = float(np.median(ratios)) if len(ratios) else None
    return plain


def show(done: list[dict[str, Any]]) -> None:
    """The table, of joint, lines and matrix."""
    titles = f"{'printed %':>17} {'width':>20} {'error':>20} {'cover %':>20} {'ratio to both':>15}"
    print(f"{'cell':<72} {'':9} {titles}")
    for row in done:
        for part in ("slopes", "constants"):
            found = [row[f"{part} {name}"] for name in ANSWERS]
            text = [f"{100 * x['printed']:5.0f}" for x in found]
            for what, times, form in (
                ("width", 1, "6.2f"),
                ("error", 1, "6.2f"),
                ("cover", 100, "6.1f"),
            ):
                text += [format(times * x[what], form) if what in x else "     -" for x in found]
            for other in ANSWERS[1:]:
                ratio = row[f"{part} over {other}"]
                text.append("      -" if ratio is None else f"{ratio:7.3f}")
            print(f"{row['cell'] if part == 'slopes' else '':<72} {part:9} {' '.join(text)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=int, default=25, help="data sets a cell")
    parser.add_argument("--draws", type=int, default=4, help="draws of the noise a data set")
    parser.add_argument(
        "--cells",
        default="",
        help="only cells whose names hold one of these, separated by semicolons",
    )
    parser.add_argument("--json", type=Path, help="write the table here")
    args = parser.parse_args()
    wanted = [c for c in CELLS if any(part in c.name for part in args.cells.split(";"))]
    done = []
    for cell in wanted:
        done.append(summary(cell, [one(cell, seed, args.draws) for seed in range(args.sets)]))
        show(done[-1:])
        sys.stdout.flush()
    if args.json:
        args.json.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
