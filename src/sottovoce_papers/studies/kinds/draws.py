"""Repetition of a cell over random draws of the graph and of the rows, which the column `draw`
numbers.

Replicates of one draw differ in noise only; only several draws show how much results depend on the
graph and the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sottovoce.errors import InvalidInput
from sottovoce.util.typing import Any

from . import Row

APART = 1000
"""Distance between the seeds of two draws: a random graph that is not connected is drawn again with
the next seed, which must not be that of another draw.
"""


def each_draw(p: Mapping[str, Any]) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield (number, first replicate, parameters of the run) of each of a cell's `draws` draws.

    The cell's replicates are divided among the draws, so there are at most as many draws as
    replicates.  A draw has a random graph of its own (by its seed) and rows of its own
    (`row_draw`): which rows are used, and at which site.  The first draw is that of a cell without
    `draws`.
    """
    wanted = p.get("draws", 1)
    if type(wanted) is not int or wanted < 1:
        raise InvalidInput(
            "draws", wanted, "must be a whole number, at least 1", "correct it, or leave it out"
        )
    replicates = int(p["replicates"])
    many = min(wanted, replicates)
    plain = {key: value for key, value in p.items() if key != "draws"}
    first = 0
    for draw in range(many):
        own = replicates // many + (draw < replicates % many)
        seed = int(p["seed"]) + APART * draw
        yield draw, first, {**plain, "seed": seed, "replicates": own, "row_draw": draw}
        first += own


def over_draws(cell: Callable[[Mapping[str, Any]], list[Row]], p: Mapping[str, Any]) -> list[Row]:
    """Run `cell` on every draw, and add the column `draw`; without the parameter `draws` run it
    once.
    """
    if "draws" not in p:
        return cell(p)
    rows: list[Row] = []
    for draw, first, own in each_draw(p):
        for row in cell(own):
            # a note has no replicate
            if "replicate" in row:
                row = row | {"replicate": first + row["replicate"], "draw": draw}
            rows.append(row)
    return rows
