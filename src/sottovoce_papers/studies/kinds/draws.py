"""Draws of the random graph and of the rows: a cell runs on each, and tells them apart by the
column `draw`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sottovoce.errors import InvalidInput
from sottovoce.util.typing import Any

from . import Row

APART = 1000
"""Between the seeds of two draws.  A random graph that is not connected is drawn again with the
next seed.
"""


def each_draw(p: Mapping[str, Any]) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """(draw, its first replicate, parameters of its run) of each of `draws` draws; the replicates
    are shared out.

    A draw has a random graph of its own (by its seed) and rows of its own (`row_draw`): those that
    `limit` leaves, and which site has which.  The first one is that of a cell without `draws`.  At
    most as many as replicates are made.
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
    """The rows of `cell` on every draw, with the column `draw`; without `draws` those of the
    cell itself.
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
