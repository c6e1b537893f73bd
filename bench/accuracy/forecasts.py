"""How true are the row counts that are told beforehand, and with a refusal?  The tables chose two constants.

``scripts/bench forecasts [--draws N] [--tables a;b] [--epsilon E] [--quick] [--json FILE] [--write FILE]``

*Truth* is the number of rows at which half of the draws print every coefficient (merged levels apart), found by halving
on a grid of factors of 2^(1/4).  Rows are drawn with replacement from a real table, or anew from a design; five sites,
sums, one colluder.  The two constants are what real tables need over made-up rows, and what hidden eigenvalues are
taken for.  *Told before* is the forecast of a plan with that many rows, from the schema alone, over the
truth.  *Told with a refusal* is the median over refused draws at half and at a quarter of the true number of rows, over
the truth, with the share of them that say "more than".
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _tables_data import default_folder
from coverage import lognormal, numbers
from intervals import DELTA, SITES, asked_of, hospitals, percent, ratio, read

from sottovoce.answers.coefficients import Coefficients, forecast
from sottovoce.answers.terms import Naming, columns_of
from sottovoce.privacy.gaussian import gaussian_mu
from sottovoce.util import files

TABLES = (
    "cps91",
    "fair",
    "loanapp",
    "crime1",
    "magic",
    "anes96",
    "hospitals-like",
    "lognormal",
    "correlated",
    "randhie",
    "phishing",
    "approval",
    "star98",
)
DESIGNS = {"hospitals-like": hospitals, "lognormal": lognormal, "correlated": partial(numbers, k=10, rho=0.9)}
FEWEST, MOST = 500, 1_200_000
Drawer = Callable[[int, int], tuple[Naming, list[tuple[Any, np.ndarray]]]]


def drawer(folder: Path, name: str) -> Drawer:
    """Rows of a table or design, by their number and a seed."""
    if name in DESIGNS:

        def anew(n: int, seed: int) -> tuple[Naming, list[tuple[Any, np.ndarray]]]:
            found = DESIGNS[name](n, np.random.default_rng([36, seed]))
            return found.naming, found.parts

        return anew
    one = read(folder, name)
    whole = {key: np.concatenate([columns[key] for columns, _ in one.parts]) for key in one.parts[0][0]}
    y = np.concatenate([labels for _, labels in one.parts])

    def again(n: int, seed: int) -> tuple[Naming, list[tuple[Any, np.ndarray]]]:
        picked = np.random.default_rng([36, seed]).integers(len(y), size=n)
        return one.naming, [(columns_of(whole, p), y[p]) for p in np.array_split(picked, SITES)]

    return again


def whole(one: Coefficients) -> bool:
    """Whether everything is printed but for levels that were merged."""
    return all(line.refused is None or "merged" in line.refused for line in one.lines)


def tables(draw: Drawer, n: int, epsilon: float, draws: int) -> list[Coefficients]:
    return [asked_of(*draw(n, seed), "sum", epsilon, seed, 1)[0] for seed in range(draws)]


def truth(draw: Drawer, epsilon: float, draws: int) -> float | None:
    """The least number of rows of the grid at which half of the draws are whole; None if it is beyond the grid."""
    grid = FEWEST * 2.0 ** (np.arange(0, 45) / 4.0)
    grid = grid[grid <= MOST]
    few, many = -1, len(grid)
    while many - few > 1:
        middle = (few + many) // 2
        enough = np.mean([whole(one) for one in tables(draw, int(grid[middle]), epsilon, draws)]) >= 0.5
        few, many = (few, middle) if enough else (middle, many)
    return float(grid[many]) if 0 < many < len(grid) else None


def told(name: str, draw: Drawer, epsilon: float, draws: int) -> dict[str, Any]:
    """A line: the truth, and what is told over it."""
    true = truth(draw, epsilon, draws)
    line: dict[str, Any] = {"table": name, "epsilon": epsilon, "truth": true, "before": None}
    if true is None:
        return line
    naming = draw(FEWEST, 0)[0]
    line["before"] = forecast(naming, true, gaussian_mu(epsilon, DELTA), sites=SITES)["rows_needed"] / true
    for part, key in ((2, "half"), (4, "quarter")):
        needs = [one.needs for one in tables(draw, int(true / part), epsilon, draws) if one.needs is not None]
        rows = float(np.median([one.get("rows", np.inf) for one in needs] or [np.inf]))
        line[key] = rows / true if np.isfinite(rows) else None  # where most name no number
        line[f"{key}_more"] = float(np.mean(["more" in one or not one for one in needs])) if needs else None
    return line


def page(lines: list[dict[str, Any]]) -> str:
    """A table of Markdown."""
    text = [
        "| table | epsilon | true rows | told before | told at half of these (more than) | at a quarter (more than) |",
        "|---|---|---|---|---|---|",
    ]
    for x in lines:
        if x["truth"] is None:
            text.append(f"| {x['table']} | {x['epsilon']:g} | not from {FEWEST} to {MOST:,} | – | – | – |")
            continue
        cells = [f"{ratio(x[key])} ({percent(x[f'{key}_more'])})" for key in ("half", "quarter")]
        rows = f"{x['truth']:,.0f}"
        text.append(f"| {x['table']} | {x['epsilon']:g} | {rows} | {ratio(x['before'])} | {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=48, help="of rows and noise")
    parser.add_argument("--tables", default=";".join(TABLES), help="separated by semicolons")
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--quick", action="store_true", help="four draws")
    parser.add_argument("--folder", type=Path, default=default_folder(), help="where tables are kept")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--write", type=Path, help="write the table here, as Markdown")
    args = parser.parse_args()
    draws, lines = 4 if args.quick else args.draws, []
    for name in args.tables.split(";"):
        lines.append(told(name, drawer(args.folder, name), args.epsilon, draws))
        print(lines[-1], flush=True)
    text = page(lines)
    print(text)
    if args.json:
        args.json.write_text(json.dumps({"draws": draws, "lines": lines}, indent=1) + "\n")
    if args.write:
        files.write("page", args.write, text)


if __name__ == "__main__":
    main()
