"""A survey of a table: coarse noisy counts from which bounds and levels for a schema are proposed.

Each column has a public *grid* of cells that the declared schema determines: powers of two between
a number's bounds, the levels of a category, powers of two up to a vector's largest norm; the last
two cells of a grid hold unreadable and missing values.  All grids are counted in one release
(:class:`sottovoce.queries.Cells`).  A cell or a *run* of neighbouring cells is *seen* if its noisy
count passes a threshold that noise alone hardly reaches.  Proposals follow from the noisy counts
and public facts, so they cost nothing more (docs/privacy/survey.md).
:mod:`sottovoce.answers.surveyed` runs a survey.
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
from ..util.plain import digest_public_values
from ..util.typing import Array, BoolArray

RUNS = (1, 2, 4)
"""Lengths of the runs of neighbouring cells that are compared with a threshold: values that are
spread out may be seen only in several cells together.
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
"""If more than this share of the rows may lie beyond proposed bounds, the finding says so."""
RARE = 10.0
"""Default of `rare`: a level or a run of cells with no more rows than this is not shown."""
ERROR = 0.05
"""Default of `error`: probability that noise shows any such level or run all the same."""


@dataclass(frozen=True)
class Survey(Once):
    """Noisy counts of rows by cell of every column's grid, in one release.

    The outcome is an answer: the counts of all grids, one after the other, divided by the number of
    rows and by the square root of the number of grids.

    Parameters
    ----------
    cells : tuple of int
        Number of cells of each grid.
    grids : bytes
        Digest of the declarations that determine the grids: the identity of the question.

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
        """The one release: the counts of all grids, with the whole budget."""

        def counts(at: Array) -> Cells:
            return Cells(at, self.cells)

        return (Item("coarse counts", counts, 1.0),)

    def point_of_release(self, d: int) -> Array:
        """Return zeros (d,): counts depend on no model."""
        return np.zeros(d)


def survey_from_schema(schema: Schema, grids: Sequence[Grid]) -> Survey:
    """Construct the survey that counts rows in these grids of the schema's columns."""
    entries = schema.to_dict()
    label = entries.get("label")
    declared = {grid.name: entries["columns"].get(grid.name, label) for grid in grids}
    cells = tuple(grid.width for grid in grids)
    return Survey(cells=cells, grids=digest_public_values(declared, list(schema.na)))


class Noise(NamedTuple):
    """Public facts that determine the thresholds of a survey.

    Parameters
    ----------
    rows : float
        Rows of all sites.
    sigma : float
        Standard deviation of the noise on each count.
    rare : float
        A category, or a run of cells, with no more rows than this is not shown.
    z : float
        Normal quantile that noise exceeds in any of the runs with probability `error` at most.
    """

    rows: float
    sigma: float
    rare: float
    z: float

    @classmethod
    def from_error_rate(
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
        # Bonferroni's inequality over all comparisons with a threshold.
        comparisons = sum(map(_number_of_comparisons, grids))
        return cls(rows, sigma, rare, -normal.normal_quantile(error / comparisons))

    def threshold(self, cells: int = 1) -> float:
        """Return the noisy count above which a run of this many cells counts as seen."""
        return self.rare + self.z * self.sigma * math.sqrt(cells)

    @property
    def surely_seen_rows(self) -> float:
        """Number of rows from which on a cell is seen, but for the stated error rate."""
        # Twice z: the count must pass the threshold even if noise takes z deviations away.
        return self.rare + 2.0 * self.z * self.sigma

    def upper_bound_on_share(self, count: float, cells: int) -> float:
        """Compute an upper confidence bound on the share of all rows in some cells.

        `count` is the sum of the noisy counts of that many `cells`.
        """
        rows = max(0.0, count + self.z * self.sigma * math.sqrt(cells))
        return min(1.0, rows / self.rows)

    def check_visibility(self) -> None:
        """Check, from public facts, that a survey could see anything; InvalidInput."""
        if self.threshold() >= self.rows / 2.0:
            rule = (
                f"is too small: only a cell of more than {self.threshold():,.0f} rows would stand "
                f"out from the noise, and there are {self.rows:,.0f} in all"
            )
            raise InvalidInput(
                "epsilon", None, rule, "raise it, survey fewer columns, or join more sites"
            )


def _number_of_comparisons(grid: Grid) -> int:
    """Return how many noisy sums of a grid are compared with a threshold or bound."""
    if isinstance(grid, Dyadic):
        runs = sum(max(0, grid.cells - run + 1) for run in RUNS)
        # Further: unreadable and missing values, and the two bounds of `_share_beyond`.
        return runs + 4
    return grid.width


@dataclass(frozen=True)
class Column:
    """Findings on a column, all from noisy counts, so they may be shown.

    Parameters
    ----------
    name : str
    proposed : dict
        New entries of the column's declaration in the schema.
    beyond : float, optional
        At most this share of the rows lies outside the proposed bounds, but for the stated error
        rate.
    missing, unread : float, optional
        Shares of missing values, and of values that are no number or no declared level; None where
        noise may hide all of them.
    kept, dropped : tuple of str
        Levels that were seen, and those that were not: they have few rows or none.
    says : str
        Further remarks in words; empty for none.
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
        """Return plain data."""
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
    """Return a value with lists in place of tuples, at every depth."""
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value


def findings_by_column(
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
    # A row is in one cell of each grid, so its entries are scaled by 1 / sqrt(grids) to norm 1.
    counts = answer.value[replicate] * answer.rows * math.sqrt(len(grids))
    blocks = {block.name: block for block in schema.blocks}
    found: list[Column] = []
    start = 0
    for grid in grids:
        own = counts[start : start + grid.width]
        start += grid.width
        block = blocks.get(grid.name)
        if isinstance(grid, Levels):
            assert isinstance(block, Category)
            column = _propose_levels(grid, block, own, noise)
        elif isinstance(grid, Norms):
            column = _propose_norm(grid, own, noise)
        else:
            assert isinstance(grid, Dyadic)
            column = _propose_bounds(grid, block, own, noise)
        found.append(column)
    return found


def noise_of_count(answer: Answer, columns: int) -> float:
    """Return the noise deviation of a count, from that of an entry of the answer."""
    return answer.spread * answer.rows * math.sqrt(columns)


class _Others(NamedTuple):
    """Shares of the rows with unreadable and with missing values; None where none were seen."""

    unread: float | None
    missing: float | None

    @classmethod
    def from_counts(cls, own: Array, noise: Noise) -> Self:
        """Take them from the last two noisy counts of a column's cells."""
        unread, missing = own[-2:].tolist()
        return cls(_seen_share(unread, noise), _seen_share(missing, noise))

    def with_shares(self, name: str, proposed: dict[str, Any], **more: Any) -> Column:
        """Construct the findings on a column with these shares.

        `proposed` and `more` are further fields of :class:`Column`.
        """
        return Column(name, proposed, missing=self.missing, unread=self.unread, **more)


def _seen_share(count: float, noise: Noise) -> float | None:
    """Return the share of the rows that a noisy count tells; None if noise may hide them all."""
    if count > noise.threshold():
        return min(1.0, count / noise.rows)
    return None


def _changed_levels(
    block: Category, others: _Others, kept: Sequence[str], dropped: Sequence[str]
) -> dict[str, Any]:
    """Return the new entries of a category's declaration, in which only these levels are kept."""
    changed: dict[str, Any] = {}
    if dropped:
        changed["values"] = tuple(pair for pair in block.values if pair[0] in kept)
        if block.base in dropped:
            changed["base"] = None
    if (dropped or others.unread is not None) and not block.other:
        changed["other"] = True
    # A missing value needs a place only where it has none: no level, no indicator, no other.
    has_place = block.missing is not None or block.indicator or block.other
    if others.missing is not None and not has_place:
        changed["indicator"] = True
    return changed


def _propose_levels(grid: Levels, block: Category, own: Array, noise: Noise) -> Column:
    """Propose to keep the levels of a category that were seen, and the one for missing values.

    Rows of all other levels would be read as the category's `other` level.

    Parameters
    ----------
    grid : Levels
        The column's cells: one for each of the levels that `block` declares, in their order.
    block : Category
    own : array (levels + 2,)
        Noisy counts of the cells: the levels, unreadable, missing.
    noise : Noise

    Returns
    -------
    Column
        If no level was seen, it proposes nothing.
    """
    others = _Others.from_counts(own, noise)
    seen = own[:-2] > noise.threshold()
    kept = tuple(
        name
        for name, (_, members), yes in zip(grid.levels, block.values, seen, strict=True)
        if yes or block.missing in members
    )
    dropped = tuple(name for name in grid.levels if name not in kept)
    if not kept:
        says = "no level stands out from the noise: the declaration is unchanged"
        return others.with_shares(block.name, {}, dropped=dropped, says=says)
    changed = _changed_levels(block, others, kept, dropped)
    says = ""
    if others.unread:
        says = "values that are not declared as levels count as other: declare them"
    return others.with_shares(block.name, changed, kept=kept, dropped=dropped, says=says)


def _cells_that_are_seen(counts: Array, noise: Noise) -> tuple[Array, BoolArray]:
    """Find the cells that were seen, alone or in a run with neighbours.

    Runs are taken from short to long, of each length the largest count first.

    Parameters
    ----------
    counts : array (cells,)
        Noisy counts of a number's or a vector's cells, in their order.
    noise : Noise

    Returns
    -------
    mass : array (cells,)
        Rows in each seen cell; the count of a run is spread evenly over its cells.
    seen : bool array (cells,)
    """
    mass = np.zeros(len(counts))
    free = np.ones(len(counts), dtype=bool)
    for run in RUNS:
        if run > len(counts):
            continue
        ones = np.ones(run)
        sums = np.convolve(counts, ones, "valid")
        least = max(noise.threshold(run), LEAST * noise.rows)
        while True:
            # Starts of runs of which no cell was seen yet: all `run` cells are free, where a half
            # allows for rounding in the sum.
            all_free = np.convolve(free, ones, "valid") > run - 0.5
            start = int(np.argmax(np.where(all_free, sums, -np.inf)))
            if not all_free[start] or not sums[start] > least:
                break
            mass[start : start + run] = sums[start] / run
            free[start : start + run] = False
    return mass, ~free


class Ladder(NamedTuple):
    """The distribution of a column's values, from the mass of its cells.

    Values are uniform inside a cell, between `low` and `high`, (cells,) each; the cell around zero
    holds zeros only.
    """

    low: Array
    high: Array
    mass: Array

    @classmethod
    def from_mass(cls, grid: Dyadic, mass: Array) -> Ladder:
        """Construct it from the rows in each cell of a grid, (cells,)."""
        low, high = grid.edges[:-1].copy(), grid.edges[1:].copy()
        zero = np.maximum(-low, high) <= grid.smallest * (1.0 + 1e-9)
        low[zero] = high[zero] = 0.0
        return cls(low, high, mass)

    def quantile(self, share: float, where: BoolArray | None = None) -> float:
        """Compute the value below which this share of the mass lies; `where` selects cells."""
        mass = self.mass
        if where is not None:
            mass = mass * where
        below = np.cumsum(mass)
        target = share * below[-1]
        k = min(int(np.searchsorted(below, target)), len(mass) - 1)
        if mass[k] <= 0.0:
            return float(self.high[k])
        inside = (target - (below[k] - mass[k])) / mass[k]
        return float(self.low[k] + (self.high[k] - self.low[k]) * np.clip(inside, 0.0, 1.0))


def _propose_bounds(grid: Dyadic, block: Block | None, own: Array, noise: Noise) -> Column:
    """Propose bounds of a number from the cells that were seen, and its typical range."""
    counts, others = own[:-2], _Others.from_counts(own, noise)
    mass, seen = _cells_that_are_seen(counts, noise)
    if not seen.any():
        return others.with_shares(
            grid.name, {}, says="too few rows for this noise: the declaration is unchanged"
        )
    where = np.flatnonzero(seen)
    first, last = int(where[0]), int(where[-1])
    if noise.threshold() > UNSEEN * noise.rows:
        first, last = _widen_by_one_cell(grid, first, last)
    first, last = _extend_to_zero(grid, first, last)
    lo, hi = float(grid.edges[first]), float(grid.edges[last + 1])
    beyond = _share_beyond(own, first, last, noise)
    more: dict[str, Any] = {"lo": lo, "hi": hi}
    if grid.name == LABEL:
        return others.with_shares(LABEL, more, beyond=beyond)
    assert isinstance(block, Number)
    says: list[str] = []
    low, high = _typical_range(Ladder.from_mass(grid, mass))
    if high - low <= 0.0:
        # All values seen are zero: the narrowest bounds still tell other values from zero.
        low, high = max(-grid.smallest, grid.lo), min(grid.smallest, grid.hi)
        more |= {"lo": low, "hi": high, "typical": None}
        says.append(
            "nearly all values are 0, as far as this noise can tell: other values are clipped to "
            f"{low:.3g} or {high:.3g}"
        )
    else:
        low, high = (
            max(_round_to_three_digits(low, -1), lo),
            min(_round_to_three_digits(high, 1), hi),
        )
        more["typical"] = (low, high)
    if others.missing is not None and block.missing is None:
        more |= {"missing": _round_to_three_digits((low + high) / 2.0, 0), "indicator": True}
    if beyond > UNSURE:
        says.append(
            "the noise hides where the remaining values lie: a larger epsilon would show it"
        )
    if others.unread is not None:
        says.append("some values cannot be read as numbers: training will refuse them")
    fitting = _fitting_entries(block, more)
    return others.with_shares(grid.name, fitting, beyond=beyond, says="; ".join(says))


def _share_beyond(own: Array, first: int, last: int, noise: Noise) -> float:
    """Bound the share of the rows that lie outside of the cells from `first` to `last`.

    There are two bounds, and the smaller one is returned: from the counts outside, and from the
    known number of rows less the counts inside, where unreadable and missing values count as
    inside. `own` are the noisy counts of all cells of the column.
    """
    counts = own[:-2]
    outside = np.concatenate([counts[:first], counts[last + 1 :]])
    inside = np.concatenate([counts[first : last + 1], own[-2:]])
    by_outside = noise.upper_bound_on_share(float(outside.sum()), len(outside))
    by_inside = noise.upper_bound_on_share(noise.rows - float(inside.sum()), len(inside))
    return min(by_outside, by_inside)


def _widen_by_one_cell(grid: Dyadic, first: int, last: int) -> tuple[int, int]:
    """Extend the range of cells by one at each end, but not across zero.

    For much noise: a cell there may hold many rows and still not be seen.
    """
    zero = int(np.searchsorted(grid.edges, 0.0, side="right")) - 1
    if first != zero:
        first = max(0, first - 1)
    if last != zero:
        last = min(grid.cells - 1, last + 1)
    return first, last


def _extend_to_zero(grid: Dyadic, first: int, last: int) -> tuple[int, int]:
    """Extend the range of cells to zero if zero is near: a tighter bound would gain nothing."""
    zero = int(np.searchsorted(grid.edges, 0.0, side="right")) - 1
    if 0.0 < grid.edges[first] <= NEAR * grid.edges[last + 1]:
        first = max(0, zero)
    if 0.0 > grid.edges[last + 1] >= NEAR * grid.edges[first]:
        last = min(zero, grid.cells - 1)
    return first, last


def _typical_range(ladder: Ladder) -> tuple[float, float]:
    """Return the range of the middle `INSIDE` of the values seen.

    It reaches to the median of the positive values and to that of the negative ones at least,
    because with many zeros the middle of all values would be zero alone.
    """
    half = (1.0 - INSIDE) / 2.0
    low, high = ladder.quantile(half), ladder.quantile(1.0 - half)
    above = (ladder.low >= 0) & (ladder.high > 0)
    below = (ladder.high <= 0) & (ladder.low < 0)
    if np.any(ladder.mass * above > 0):
        high = max(high, ladder.quantile(0.5, above))
    if np.any(ladder.mass * below > 0):
        low = min(low, ladder.quantile(0.5, below))
    return low, high


def _round_to_three_digits(x: float, way: int) -> float:
    """Round to three digits: `way` is -1 for down, 1 for up and 0 for the nearest."""
    if x == 0.0 or not math.isfinite(x):
        return x
    unit = 10.0 ** (math.floor(math.log10(abs(x))) - 2)
    if way == 0:
        steps = round(x / unit)
    elif way < 0:
        steps = math.floor(x / unit)
    else:
        steps = math.ceil(x / unit)
    # By text: the product has digits of the unit's own rounding, such as 1.2300000000000002.
    return float(f"{steps * unit:.3g}")


def _fitting_entries(block: Number, more: dict[str, Any]) -> dict[str, Any]:
    """Return proposed entries that the schema accepts, with defaults for some if need be.

    The schema may refuse a typical range as too narrow, or the indicator of missing values beside a
    fill value at an end of the range; these entries are then left at their defaults.
    """
    for without in ((), ("indicator",), ("typical", "indicator")):
        defaults = {key: Number.__dataclass_fields__[key].default for key in without if key in more}
        some = more | defaults
        try:
            replace(block, **some)
        except SchemaError:
            continue
        return some
    return {}


def _propose_norm(grid: Norms, own: Array, noise: Noise) -> Column:
    """Propose the norm of a vector: the `FILLED` quantile of the norms seen."""
    others = _Others.from_counts(own, noise)
    mass, seen = _cells_that_are_seen(own[:-2], noise)
    if not seen.any():
        return others.with_shares(
            grid.name, {}, says="too few rows for this noise: the declaration is unchanged"
        )
    norm = _round_to_three_digits(Ladder.from_mass(grid, mass).quantile(FILLED), 1)
    return others.with_shares(grid.name, {"norm": max(norm, grid.smallest)})


def apply_proposals(schema: Schema, columns: Sequence[Column], survey: str) -> Schema:
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
    if told.scale is not None:
        changed = replace(changed, scale=told.scale)
    return changed


__all__ = [
    "ERROR",
    "RARE",
    "Column",
    "Noise",
    "Survey",
    "apply_proposals",
    "findings_by_column",
    "noise_of_count",
    "survey_from_schema",
]
