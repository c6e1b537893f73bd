"""A survey of a table: coarse counts on public grids, released once, from which bounds and levels
are proposed.

All columns are counted in one release (:class:`sottovoce.queries.Cells`).  What is proposed is
post-processing of noisy counts and of public facts, by thresholds that know the noise
(docs/privacy/survey.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from ..algorithms.items import Answer, Item
from ..algorithms.once import Once
from ..data.columns import Block, Category, Number, Vector
from ..data.expected import fill
from ..data.grids import LABEL, Dyadic, Grid, Levels, Norms
from ..data.labels import NumberLabel
from ..data.schema import Schema
from ..errors import InvalidInput, SchemaError
from ..queries import Cells
from ..util import normal
from ..util.plain import digest_of
from ..util.typing import Array, BoolArray

RUNS = (1, 2, 4)
"""How many neighbouring cells are looked at together: mass that is spread out is seen in several
cells at once.
"""
INSIDE = 0.8
"""Share of the values seen that a typical range holds."""
FILLED = 0.75
"""Share of the norms seen that are at most the norm proposed for a vector."""
LEAST = 0.002
"""Cells with a smaller share of the rows stretch no bounds: a wrong unit in few rows is no
reason for wide ones.
"""
UNSEEN = 0.05
"""Where a cell may hold a larger share of the rows without being seen, bounds take in one more
cell at each end.
"""
NEAR = 0.125
"""A bound on one side of zero that is a smaller share of the other bound is put at zero."""
UNSURE = 0.3
"""Share of the rows that may lie beyond proposed bounds without a word."""
RARE, ERROR = 10.0, 0.05


@dataclass(frozen=True)
class Survey(Once):
    """Noisy counts of rows by cell of every column's grid, in one release.

    The outcome is an answer, whose entries :class:`Cells` scales.

    Parameters
    ----------
    cells : tuple of int
        Of each grid.
    grids : bytes
        Digest of the declarations of which the grids are: identity of what was asked.

    Guarantee
    ---------
    Rows enter through `items` alone: Gaussian mechanisms on bounded sums over rows, each priced by
    :meth:`sottovoce.queries.NoisyBounded.event` under the relation and the unit of the run.
    Proposals are post-processing.
    """

    cells: tuple[int, ...] = field(kw_only=True)
    grids: bytes = field(kw_only=True)

    name: ClassVar[str] = "survey"
    summary: ClassVar[str] = "coarse counts on public grids, from which a schema is proposed"

    @property
    def items(self) -> tuple[Item, ...]:
        return (Item("coarse counts", lambda at: Cells(at, self.cells), 1.0),)

    def point(self, d: int) -> Array:
        return np.zeros(d)


def survey_of(schema: Schema, grids: Sequence[Grid]) -> Survey:
    """Construct the recipe that counts rows in these grids of the schema."""
    entries = schema.to_dict()
    declared = {
        grid.name: entries["columns"].get(grid.name, entries.get("label")) for grid in grids
    }
    return Survey(
        cells=tuple(grid.width for grid in grids), grids=digest_of(declared, list(schema.na))
    )


class Noise(NamedTuple):
    """Public facts that determine the thresholds of a survey.

    Parameters
    ----------
    rows : float
    sigma : float
        Standard deviation of the noise on each count.
    rare : float
        A category, or a run of cells, with no more rows than this is not shown.
    z : float
        Quantile of the normal law that noise on none of the runs passes, but for the stated error
        rate.
    """

    rows: float
    sigma: float
    rare: float
    z: float

    @classmethod
    def of(
        cls,
        grids: Sequence[Grid],
        rows: float,
        sigma: float,
        rare: float = RARE,
        error: float = ERROR,
    ) -> Noise:
        """Set the thresholds for all runs of cells of these grids together.

        Parameters
        ----------
        grids : sequence of Grid
        rows : float
            Rows of all sites.
        sigma : float
            Standard deviation of the noise on each count.
        rare : float
            Number of rows, 0 or more: a category or a run of cells with no more is not shown.
        error : float
            Probability, in (0, 0.5), that noise exceeds the quantile ``z`` in any of the runs.

        Returns
        -------
        Noise

        Raises
        ------
        InvalidInput
            If `rare` or `error` is outside its range.
        """
        if not 0.0 < error < 0.5:
            raise InvalidInput("error", error, "must be a rate above 0 and below 0.5", "use 0.05")
        if not 0.0 <= rare < math.inf:
            raise InvalidInput("rare", rare, "must be a number of rows, 0 or more", "use 10")
        return cls(rows, sigma, rare, -normal.quantile(error / sum(map(_looks, grids))))

    def threshold(self, cells: int = 1) -> float:
        """Return the noisy count from which on a run of cells is seen."""
        return self.rare + self.z * self.sigma * math.sqrt(cells)

    @property
    def surely(self) -> float:
        """Rows from which on a cell is seen, but for the stated error rate."""
        return self.rare + 2.0 * self.z * self.sigma

    def most(self, count: float, cells: int) -> float:
        """Upper confidence bound on the share of rows in cells with this noisy count."""
        return min(1.0, max(0.0, count + self.z * self.sigma * math.sqrt(cells)) / self.rows)

    def check(self) -> None:
        """Check, from public facts, that a survey could see anything; InvalidInput."""
        if self.threshold() >= self.rows / 2.0:
            rule = (
                f"a cell would be seen from {self.threshold():,.0f} rows on, and there are "
                f"{self.rows:,.0f}"
            )
            raise InvalidInput(
                "epsilon", None, rule, "raise it, survey fewer columns, or join more sites"
            )


def _looks(grid: Grid) -> int:
    """Return how many runs of a grid are compared with a threshold, in both directions."""
    if isinstance(grid, Dyadic):
        return sum(max(0, grid.cells - run + 1) for run in RUNS) + 4
    return grid.width


@dataclass(frozen=True)
class Column:
    """Findings on a column; `share`, `missing` and `unread` are noisy, so they may be shown.

    Parameters
    ----------
    name : str
    proposed : dict
        New entries of its block.
    beyond : float, optional
        At most this share of the rows lies outside the proposed bounds, but for the stated error
        rate.
    missing, unread : float, optional
        Shares of missing values, and of those that are no number or no declared level; None where
        none were seen.
    kept, dropped : tuple of str
        Levels that were seen, and those that were not: they have few rows or none.
    says : str
        What is left to say.
    """

    name: str
    proposed: dict[str, Any]
    beyond: float | None = None
    missing: float | None = None
    unread: float | None = None
    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    says: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "column": self.name,
            "proposed": {key: _plain(value) for key, value in self.proposed.items()},
            "beyond": self.beyond,
            "missing": self.missing,
            "unread": self.unread,
            "kept": list(self.kept),
            "dropped": list(self.dropped),
            "says": self.says,
        }


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value


def columns_of(
    grids: Sequence[Grid], answer: Answer, noise: Noise, schema: Schema, replicate: int = 0
) -> list[Column]:
    """Derive what was seen of every column from the noisy counts of one replicate.

    Parameters
    ----------
    grids : sequence of Grid
        In the order in which the survey asked for them.
    answer : Answer
        That of :class:`Survey`: scaled counts (R, cells of all grids).
    noise : Noise
    schema : Schema
        As it was declared.
    replicate : int
        From 0 on.

    Returns
    -------
    list of Column
        One for each grid.
    """
    counts = answer.value[replicate] * answer.rows * math.sqrt(len(grids))
    blocks, found, start = {block.name: block for block in schema.blocks}, [], 0
    for grid in grids:
        own = counts[start : start + grid.width]
        start += grid.width
        block = blocks.get(grid.name)
        if isinstance(grid, Levels):
            assert isinstance(block, Category)
            column = _levels(grid, block, own, noise)
        elif isinstance(grid, Norms):
            column = _norm(grid, own, noise)
        else:
            assert isinstance(grid, Dyadic)
            column = _number(grid, block, own, noise)
        found.append(column)
    return found


def spread_of(answer: Answer, columns: int) -> float:
    """Standard deviation of the noise on a count, from that on an entry of the answer."""
    return answer.spread * answer.rows * math.sqrt(columns)


class _Others(NamedTuple):
    """Shares of unreadable and of missing values; None where none were seen."""

    unread: float | None
    missing: float | None

    @classmethod
    def of(cls, own: Array, noise: Noise) -> Self:
        """From the counts of a column, of which they are the last two."""
        return cls(
            *(
                min(1.0, n / noise.rows) if n > noise.threshold() else None
                for n in own[-2:].tolist()
            )
        )

    def column(self, name: str, proposed: dict[str, Any], **more: Any) -> Column:
        """Construct the findings on the column."""
        return Column(name, proposed, missing=self.missing, unread=self.unread, **more)


def _changed_levels(
    block: Category, others: _Others, kept: Sequence[str], dropped: Sequence[str]
) -> dict[str, Any]:
    """Return the changed entries of a category's declaration if only these levels are kept."""
    more: dict[str, Any] = {}
    if dropped:
        more["values"] = tuple(pair for pair in block.values if pair[0] in kept)
        if block.base in dropped:
            more["base"] = None
    if (dropped or others.unread is not None) and not block.other:
        more["other"] = True
    if (
        others.missing is not None
        and block.missing is None
        and not (block.indicator or block.other)
    ):
        more["indicator"] = True
    return more


def _levels(grid: Levels, block: Category, own: Array, noise: Noise) -> Column:
    others = _Others.of(own, noise)
    seen = own[:-2] > noise.threshold()
    kept = tuple(
        name
        for name, (_, members), yes in zip(grid.levels, block.values, seen, strict=True)
        if yes or block.missing in members
    )
    dropped = tuple(name for name in grid.levels if name not in kept)
    if not kept:
        return others.column(
            block.name, {}, dropped=dropped, says="no level was seen: it stays as it is"
        )
    more = _changed_levels(block, others, kept, dropped)
    says = (
        "values that are none of the declared levels count as other: declare them"
        if others.unread
        else ""
    )
    return others.column(block.name, more, kept=kept, dropped=dropped, says=says)


def _seen(counts: Array, noise: Noise) -> tuple[Array, BoolArray]:
    """Mass of the cells that were seen, alone or in a run with neighbours, and which these are.

    Runs are taken from short to long, of each length the largest first.  The mass of a run is
    spread evenly over it.
    """
    mass, free = np.zeros(len(counts)), np.ones(len(counts), dtype=bool)
    for run in (run for run in RUNS if run <= len(counts)):
        ones = np.ones(run)
        sums = np.convolve(counts, ones, "valid")
        while True:
            open_ = np.convolve(free, ones, "valid") > run - 0.5
            k = int(np.argmax(np.where(open_, sums, -np.inf)))
            if not (open_[k] and sums[k] > max(noise.threshold(run), LEAST * noise.rows)):
                break
            mass[k : k + run], free[k : k + run] = sums[k] / run, False
    return mass, ~free


class Ladder(NamedTuple):
    """Cells with their mass, as a distribution: uniform inside a cell, and a point in that of
    zero.
    """

    low: Array
    high: Array
    mass: Array

    @classmethod
    def of(cls, grid: Dyadic, mass: Array) -> Ladder:
        low, high = grid.edges[:-1].copy(), grid.edges[1:].copy()
        zero = np.maximum(-low, high) <= grid.smallest * (1.0 + 1e-9)
        low[zero] = high[zero] = 0.0
        return cls(low, high, mass)

    def quantile(self, share: float, where: BoolArray | None = None) -> float:
        """The value below which this share of the mass lies, of the cells `where`."""
        mass = self.mass if where is None else self.mass * where
        below = np.cumsum(mass)
        target = share * below[-1]
        k = min(int(np.searchsorted(below, target)), len(mass) - 1)
        if mass[k] <= 0.0:
            return float(self.high[k])
        inside = (target - (below[k] - mass[k])) / mass[k]
        return float(self.low[k] + (self.high[k] - self.low[k]) * np.clip(inside, 0.0, 1.0))


def _number(grid: Dyadic, block: Block | None, own: Array, noise: Noise) -> Column:
    counts, others = own[:-2], _Others.of(own, noise)
    mass, seen = _seen(counts, noise)
    if not seen.any():
        return others.column(grid.name, {}, says="too few rows for this noise: it stays as it is")
    first, last = int(np.flatnonzero(seen)[0]), int(np.flatnonzero(seen)[-1])
    if noise.threshold() > UNSEEN * noise.rows:
        first, last = _one_more(grid, first, last)
    first, last = _near_zero(grid, first, last)
    lo, hi = float(grid.edges[first]), float(grid.edges[last + 1])
    outside = np.concatenate([counts[:first], counts[last + 1 :]])
    # the number of rows is known, and all are somewhere
    inside = np.concatenate([counts[first : last + 1], own[-2:]])
    beyond = min(
        noise.most(float(outside.sum()), len(outside)),
        noise.most(noise.rows - float(inside.sum()), len(inside)),
    )
    more: dict[str, Any] = {"lo": lo, "hi": hi}
    if grid.name == LABEL:
        return others.column(LABEL, more, beyond=beyond)
    assert isinstance(block, Number)
    low, high = _typical(Ladder.of(grid, mass))
    if high - low <= 0.0:  # all at zero: what is left to tell is whether a value is another one
        low, high = max(-grid.smallest, grid.lo), min(grid.smallest, grid.hi)
        more |= {"lo": low, "hi": high, "typical": None}
        says = (
            "nearly all values are 0, as far as this noise can tell: others count as "
            f"{low:.3g} or {high:.3g}"
        )
    else:
        low, high = max(_rounded(low, -1), lo), min(_rounded(high, 1), hi)
        more["typical"], says = (low, high), ""
    if others.missing is not None and block.missing is None:
        more |= {"missing": _rounded((low + high) / 2.0, 0), "indicator": True}
    if beyond > UNSURE:
        says = "; ".join(
            filter(None, (says, "where the others lie is not known: a larger epsilon would tell"))
        )
    if others.unread is not None:
        says = "; ".join(
            filter(None, (says, "some values cannot be read: training will refuse them"))
        )
    return others.column(grid.name, _that_fit(block, more), beyond=beyond, says=says)


def _one_more(grid: Dyadic, first: int, last: int) -> tuple[int, int]:
    """One more cell at each end, but not beyond zero: many rows may lie there, and be too few
    for this noise.
    """
    zero = int(np.searchsorted(grid.edges, 0.0, side="right")) - 1
    first = first if first == zero else max(0, first - 1)
    return first, last if last == zero else min(grid.cells - 1, last + 1)


def _near_zero(grid: Dyadic, first: int, last: int) -> tuple[int, int]:
    """The cells between bounds, and those down to zero if that is near: a bound there would gain
    nothing.
    """
    zero = int(np.searchsorted(grid.edges, 0.0, side="right")) - 1
    if 0.0 < grid.edges[first] <= NEAR * grid.edges[last + 1]:
        first = max(0, zero)
    if 0.0 > grid.edges[last + 1] >= NEAR * grid.edges[first]:
        last = min(zero, grid.cells - 1)
    return first, last


def _typical(ladder: Ladder) -> tuple[float, float]:
    """The middle of the values seen; at a spike of zeros, at least the inner half of the others."""
    half = (1.0 - INSIDE) / 2.0
    low, high = ladder.quantile(half), ladder.quantile(1.0 - half)
    above, below = (ladder.low >= 0) & (ladder.high > 0), (ladder.high <= 0) & (ladder.low < 0)
    if np.any(ladder.mass * above > 0):
        high = max(high, ladder.quantile(0.5, above))
    if np.any(ladder.mass * below > 0):
        low = min(low, ladder.quantile(0.5, below))
    return low, high


def _rounded(x: float, way: int) -> float:
    """Three digits, down (-1), up (1) or to the nearest (0)."""
    if x == 0.0 or not math.isfinite(x):
        return x
    unit = 10.0 ** (math.floor(math.log10(abs(x))) - 2)
    steps = (
        round(x / unit) if way == 0 else math.floor(x / unit) if way < 0 else math.ceil(x / unit)
    )
    return float(f"{steps * unit:.3g}")


def _that_fit(block: Number, more: dict[str, Any]) -> dict[str, Any]:
    """The entries with which the block can be declared: a typical range may be too narrow, a
    stand-in at an end.
    """
    for without in ((), ("indicator",), ("typical", "indicator")):
        some = more | {
            key: Number.__dataclass_fields__[key].default for key in without if key in more
        }
        try:
            replace(block, **some)
        except SchemaError:
            continue
        return some
    return {}


def _norm(grid: Norms, own: Array, noise: Noise) -> Column:
    others = _Others.of(own, noise)
    mass, seen = _seen(own[:-2], noise)
    if not seen.any():
        return others.column(grid.name, {}, says="too few rows for this noise: it stays as it is")
    norm = _rounded(Ladder.of(grid, mass).quantile(FILLED), 1)
    return others.column(grid.name, {"norm": max(norm, grid.smallest)})


def proposed(schema: Schema, columns: Sequence[Column], survey: str) -> Schema:
    """Apply the proposals of a survey to its schema.

    The scale is derived anew by :func:`sottovoce.data.expected.fill`.

    Parameters
    ----------
    schema : Schema
        As it was declared.
    columns : sequence of Column
    survey : str
        The survey's own price, in words, for statements about the schema's rows.

    Returns
    -------
    Schema
    """
    more = {column.name: column.proposed for column in columns if column.proposed}
    blocks: list[Block] = []
    for block in schema.blocks:
        assert isinstance(block, Number | Category | Vector) or block.name not in more
        blocks.append(replace(block, **more.get(block.name, {})))  # type: ignore[type-var]
    label = schema.label
    if LABEL in more and isinstance(label, NumberLabel):
        label = replace(label, **more[LABEL])
    changed = replace(schema, blocks=tuple(blocks), label=label, scale=None, survey=survey)
    told = fill(changed)
    if told.intercept is not None:
        changed = replace(changed, intercept=told.intercept)
    return changed if told.scale is None else replace(changed, scale=told.scale)


__all__ = [
    "ERROR",
    "RARE",
    "Column",
    "Noise",
    "Survey",
    "columns_of",
    "proposed",
    "spread_of",
    "survey_of",
]
