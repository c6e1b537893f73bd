"""How true is what is told before a run and with a refusal: numbers of rows, and standard errors to
expect?

``scripts/bench forecasts [--draws N] [--tables a;b] [--epsilon E] [--quick] [--refusals] [--shares]
[--json FILE] [--write FILE]``

*Truth* is the number of rows at which half of the draws print half of the coefficients (or all of
those that can be printed), found by halving on a grid of factors of 2^(1/4).  Rows are drawn with
replacement from a real table; five sites, sums, one colluder; every draw of rows has several of the
noise.  *Told* is the forecast of a plan, from the schema and the expected share of positives alone,
over the truth, with the range that is told.  Columns of the tables of `SETTING` set the habits of
synthetic rows (habits.py measures them); nothing was set by those of `TESTED`.  *Errors* are the
standard errors that a plan tells over the mean of printed ones, at five times the true number of
rows: the median line, and between which ratios nine in ten lines lie.  The same for designs whose
rows are as their schemas declare.  With ``--refusals``, what refusals say at half and at a quarter
of the rows that print all, over the truth, with the share of them that say "more than".
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _forecast_tables import BY_HAND, FRESH, STRANGERS, SURVEYED, declared
from _tables_data import default_folder
from intervals import DELTA, SITES, asked_of, percent, ratio, read
from scipy.special import expit

from sottovoce.answers.assumed import Assumed
from sottovoce.answers.coefficients import Coefficients
from sottovoce.answers.forecast import (
    LogOdds,
    Study,
    forecast_coefficients,
    is_complete,
    is_half_complete,
)
from sottovoce.answers.terms import Naming, naming_from_schema, rows_of_columns
from sottovoce.data.columns import Category
from sottovoce.data.schema import Schema
from sottovoce.privacy.gaussian import gaussian_mu
from sottovoce.util import files

CACHED = (
    "cps91",
    "fair",
    "loanapp",
    "crime1",
    "magic",
    "anes96",
    "randhie",
    "phishing",
    "approval",
    "star98",
)
"""Tables of tables.py."""
SETTING = (*CACHED, *BY_HAND, *STRANGERS, *SURVEYED)
"""Tables whose columns set the habits of real tables."""
TESTED = tuple(FRESH)
"""Tables that set nothing."""
FEWEST, MOST = 250, 130_000
ROW_DRAWS = 3
Drawer = Callable[[int, int], tuple[Naming, list[tuple[Any, np.ndarray]]]]


def drawer(folder: Path, name: str) -> Drawer:
    """Rows of a table or design, by their number and a seed."""
    if name in DESIGNS:

        def anew(n: int, seed: int) -> tuple[Naming, list[tuple[Any, np.ndarray]]]:
            return DESIGNS[name](n, np.random.default_rng([36, seed]))

        return anew
    if name in CACHED:
        one = read(folder, name)
        naming = one.naming
        whole = {
            key: np.concatenate([columns[key] for columns, _ in one.parts])
            for key in one.parts[0][0]
        }
        y = np.concatenate([labels for _, labels in one.parts])
    else:
        naming, whole, y = declared(name)

    def again(n: int, seed: int) -> tuple[Naming, list[tuple[Any, np.ndarray]]]:
        picked = np.random.default_rng([36, seed]).integers(len(y), size=n)
        return naming, [(rows_of_columns(whole, p), y[p]) for p in np.array_split(picked, SITES)]

    return again


def as_declared(n: int, rng: np.random.Generator, *, correlation: float, positives: float) -> Any:
    """Five numbers and two columns of levels, of which the schema's declarations are true."""
    columns = {
        f"x{j}": {"kind": "number", "lo": 0, "hi": 100, "typical": [20, 60]} for j in range(5)
    }
    names = ["a", "b", "c"]
    columns |= {f"c{j}": {"kind": "category", "values": names} for j in range(2)}
    naming = naming_from_schema(Schema.from_dict({"columns": columns, "name": "as declared"}))
    Z = rng.normal(size=(n, 5))
    for j in range(1, 5):
        Z[:, j] = correlation * Z[:, j - 1] + np.sqrt(1.0 - correlation**2) * Z[:, j]
    raw: dict[str, np.ndarray] = {
        f"x{j}": np.clip(40.0 + 20.0 * Z[:, j] / 1.645, 0.0, 100.0) for j in range(5)
    }
    codes = rng.integers(3, size=(n, 2))
    raw |= {f"c{j}": np.array(names)[codes[:, j]] for j in range(2)}
    score = (
        Z @ np.array([0.5, -0.4, 0.0, 0.3, -0.2])
        + 0.4 * (codes[:, 0] == 1)
        - 0.3 * (codes[:, 1] == 2)
    )
    shift = float(np.log(positives / (1.0 - positives))) * 1.15
    y = np.where(rng.random(n) < expit(score + shift), 1.0, -1.0)
    return naming, [(rows_of_columns(raw, p), y[p]) for p in np.array_split(np.arange(n), SITES)]


def _unrelated(n: int, rng: np.random.Generator) -> Any:
    return as_declared(n, rng, correlation=0.0, positives=0.3)


def _related(n: int, rng: np.random.Generator) -> Any:
    return as_declared(n, rng, correlation=0.5, positives=0.3)


def _few_positive(n: int, rng: np.random.Generator) -> Any:
    return as_declared(n, rng, correlation=0.3, positives=0.1)


DESIGNS: dict[str, Callable[[int, np.random.Generator], Any]] = {
    "as declared": _unrelated,
    "as declared, correlated": _related,
    "as declared, one in ten": _few_positive,
}
"""Made tables for standard errors: what is declared and expected of them is true."""
EXPECTED = {
    "as declared": (0.3, 0.0),
    "as declared, correlated": (0.3, 0.5),
    "as declared, one in ten": (0.1, 0.3),
}
"""Their share of positives, and correlation."""


def positives_of(draw: Drawer) -> float:
    """The share of positives that whoever plans expects: to two digits it is right."""
    labels = np.concatenate([y for _, y in draw(4000, 0)[1]])
    return round(float(np.mean(labels > 0)), 2)


def tables(draw: Drawer, n: int, epsilon: float, draws: int) -> list[Coefficients]:
    """Tables of coefficients: rows and noise anew for each of a few seeds, and the noise alone
    for the others.
    """
    each = -(-draws // ROW_DRAWS)
    found = [asked_of(*draw(n, seed), "sum", epsilon, seed, each) for seed in range(ROW_DRAWS)]
    return [one for tables in found for one in tables][:draws]


def truth(
    draw: Drawer,
    epsilon: float,
    draws: int,
    enough: Callable[[Coefficients], bool] = is_half_complete,
) -> float | None:
    """The least number of rows of the grid at which half of the draws print `enough`; None if it
    is beyond the grid.
    """
    grid = FEWEST * 2.0 ** (np.arange(0, 45) / 4.0)
    grid = grid[grid <= MOST]
    few, many = -1, len(grid)
    while many - few > 1:
        middle = (few + many) // 2
        shown = np.mean([enough(one) for one in tables(draw, int(grid[middle]), epsilon, draws)])
        few, many = (few, middle) if shown >= 0.5 else (middle, many)
    return float(grid[many]) if 0 < many < len(grid) else None


def errors(told: dict[str, Any], found: list[Coefficients]) -> dict[str, float | None]:
    """Standard errors that are told over the mean of printed ones, of lines that most draws
    print.
    """
    ratios = []
    for k, line in enumerate(told["standard_errors"]):
        shown = [one.lines[k].standard_error for one in found if one.lines[k].refused is None]
        if line["standard_error"] is not None and len(shown) >= 0.5 * len(found):
            ratios.append(line["standard_error"] / np.mean(np.array(shown, dtype=float)))
    if not ratios:
        return {"middle": None, "low": None, "high": None}
    low, middle, high = np.quantile(ratios, (0.05, 0.5, 0.95))
    return {"middle": float(middle), "low": float(low), "high": float(high)}


def shares_of_levels(draw: Drawer) -> tuple[str, ...]:
    """The share of every level but the commonest of its column, as somebody who knows the field
    would tell it: to two digits.
    """
    naming, parts = draw(4000, 0)
    columns = {
        key: np.concatenate([table[key] for table, _ in parts]).astype(str) for key in parts[0][0]
    }
    said = []
    for block in naming.schema.blocks:
        if not isinstance(block, Category):
            continue
        found = {level: float(np.mean(columns[block.name] == level)) for level, _ in block.values}
        commonest = max(found, key=lambda level: found[level])
        said += [
            f"{block.name}: {level}={share:.2g}"
            for level, share in found.items()
            if level != commonest and share > 0.0
        ]
    return tuple(said)


def told(
    name: str, draw: Drawer, epsilon: float, draws: int, *, refusals: bool, shares: bool
) -> dict[str, Any]:
    """A line: the truth, and what is told over it."""
    naming, expected = draw(FEWEST, 0)[0], EXPECTED.get(name) or (positives_of(draw), 0.3)
    study = Study.from_sites(LogOdds(naming, expected[0]), gaussian_mu(epsilon, DELTA), sites=SITES)
    true = {"half": truth(draw, epsilon, draws), "all": truth(draw, epsilon, draws, is_complete)}
    rows = 5.0 * (true["half"] or 1000.0)
    known = shares_of_levels(draw) if shares and name in TESTED else ()
    assumed = Assumed(correlation=expected[1], shares=known)
    ahead = forecast_coefficients(study, rows, assumed)
    line: dict[str, Any] = {
        "table": name,
        "epsilon": epsilon,
        "columns": naming.d,
        "set": name in SETTING,
        "truth": true,
        "told_half": None if true["half"] is None else ahead["rows_half"] / true["half"],
        "told_all": None if true["all"] is None else ahead["rows_needed"] / true["all"],
        "range_half": None
        if true["half"] is None
        else [rows / true["half"] for rows in ahead["rows_half_range"]],
        "errors": errors(ahead, tables(draw, int(rows), epsilon, draws)),
    }
    if refusals and true["all"] is not None:
        for part, key in ((2, "refused_half"), (4, "refused_quarter")):
            needs = [one.needs for one in tables(draw, int(true["all"] / part), epsilon, draws)]
            said = [one for one in needs if one is not None]
            middle = float(np.median([one.get("rows", np.inf) for one in said] or [np.inf]))
            # where most name no number
            line[key] = middle / true["all"] if np.isfinite(middle) else None
            line[f"{key}_more"] = (
                float(np.mean(["more" in one or not one for one in said])) if said else None
            )
    return line


def _within(lines: list[dict[str, Any]], key: str) -> str:
    """How many of the numbers are within a factor of 1.5."""
    own = [line[key] for line in lines if not line["set"] and line["table"] not in DESIGNS]
    near = sum(1.0 / 1.5 <= x <= 1.5 for x in own if x is not None)
    return f"{near} of {len(own)}"


def _in_range(lines: list[dict[str, Any]]) -> str:
    """How many truths are in the range that is told."""
    ranges = [
        x["range_half"]
        for x in lines
        if not x["set"] and x["table"] not in DESIGNS and x["range_half"]
    ]
    return f"{sum(low <= 1.0 <= high for low, high in ranges)} of {len(ranges)}"


def page(lines: list[dict[str, Any]]) -> str:
    """A table of Markdown."""
    text = [
        "| table (columns) | set a constant | rows for half, true | told | rows for all, true | "
        "told | errors told |",
        "|---|---|---|---|---|---|---|",
    ]
    for x in lines:
        cells = [f"{x['table']} ({x['columns']})", "yes" if x["set"] else "no"]
        for key in ("half", "all"):
            true = x["truth"][key]
            cells += [
                f"not to {MOST:,}" if true is None else f"{true:,.0f}",
                ratio(x[f"told_{key}"]),
            ]
            if key == "half" and x["range_half"] is not None:
                low, high = x["range_half"]
                cells[-1] += f" ({ratio(low)} to {ratio(high)})"
        spread = x["errors"]
        cells.append(
            f"{ratio(spread['middle'])} ({ratio(spread['low'])} to {ratio(spread['high'])})"
        )
        text.append(f"| {' | '.join(cells)} |")
    text += [
        "",
        f"Within a factor of 1.5, of tables that set nothing: {_within(lines, 'told_half')} for "
        "half, "
        f"{_within(lines, 'told_all')} for all; the true number for half is in the range that is "
        "told for "
        f"{_in_range(lines)}.",
    ]
    if any("refused_half" in x for x in lines):
        text += [
            "",
            "| table | told at half of all's rows (more than) | at a quarter (more than) |",
            "|---|---|---|",
        ]
        for x in lines:
            if "refused_half" in x:
                cells = [
                    f"{ratio(x[k])} ({percent(x[f'{k}_more'])})"
                    for k in ("refused_half", "refused_quarter")
                ]
                text.append(f"| {x['table']} | {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=36, help="of noise, and a few of rows")
    parser.add_argument(
        "--shares", action="store_true", help="tell the share of every level, of tables of TESTED"
    )
    parser.add_argument("--refusals", action="store_true", help="also what refusals tell")
    parser.add_argument(
        "--tables", default=";".join((*SETTING, *TESTED, *DESIGNS)), help="separated by semicolons"
    )
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--quick", action="store_true", help="four draws")
    parser.add_argument(
        "--folder", type=Path, default=default_folder(), help="where tables are kept"
    )
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--write", type=Path, help="write the table here, as Markdown")
    args = parser.parse_args()
    draws, lines = 6 if args.quick else args.draws, list[dict[str, Any]]()
    for name in args.tables.split(";"):
        draw = drawer(args.folder, name)
        lines.append(
            told(name, draw, args.epsilon, draws, refusals=args.refusals, shares=args.shares)
        )
        print(lines[-1], flush=True)
    text = page(lines)
    print(text)
    if args.json:
        args.json.write_text(json.dumps({"draws": draws, "lines": lines}, indent=1) + "\n")
    if args.write:
        files.write_atomically("page", args.write, text)


if __name__ == "__main__":
    main()
