"""Which coefficients the data do not determine: groups of rows that may all have the same outcome.

Where all rows of a level have the same outcome the likelihood has no maximum: the level's log-odds
run to infinity ("quasi-separation", Albert and Anderson 1984).  A *group* is the rows of a level,
of the reference of a block, or of a constant, and the rows of a number by how far it is from one of
its declared bounds.  It is a public direction v for which ``u = v'x`` is never negative: 1 in the
group and 0 elsewhere, or the distance from the bound.  If all rows with u > 0 have the same
outcome, adding v to the coefficients makes every row's likelihood larger, without end.  With
weights u, released means over rows tell

    v'S c = the group's size (c'x is 1 for every row),    v'g = mean of u (chance of a positive -
    positive), v'H v = mean of u^2 chance (1 - chance),

and so how many of its rows are positive and how many negative, but for noise of a known size: at
the start, where all rows have the same chance, and at every later point, where v'H v tells the
chance.  Nothing is asked for it.

A level is *merged* with its reference where noise hides too much of it (docs/privacy/answers.md):
its column is left out, and its rows are taken for rows of the reference.  So is a site's constant
with those of other sites.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..reports.causes import Cause
from ..util.typing import Any, Array, BoolArray, IntArray
from .terms import Naming

SURE = 3.0
"""Noise deviations by which the number of rows with the rarer outcome must stand out from none."""
CLEAR = 4.0
"""The same of a level, so that next to none of those without the outcome has an interval of two
ends by chance.
"""
LEAST = 5.0
"""Rows with the rarer outcome that a level must have, beyond `DOUBT` noise deviations, for an
interval of two ends.
"""
DOUBT = 2.0
FEW = 0.05
"""So small a part of the expected rows with the rarer outcome is next to none of them."""
# A count may be off by so small a part through rounding.
_COUNTED = 1e-6
# Of the rows that are expected: a count below it is none.
_ROUNDING = 1e-9
_NEXT_TO_NONE = 1e-300


class Point(NamedTuple):
    """A point of the steps, its Hessian and gradient, and their noise deviations."""

    at: Array  # (R, d)
    hessian: Array  # (R, d, d)
    hessian_spread: float
    gradient: Array  # (R, d)
    gradient_spread: float


class Shortened(NamedTuple):
    """Second moments of rows as short as Hessians have them, and the frame in which they are.

    There a row a has the weight ``min(1, 1 / |a|^2)``.
    """

    moments: Array  # of columns, positive semidefinite     (R, d, d)
    spread: Array  # deviation of noise in an entry, in the frame  (R,)
    back: Array  # from the frame                                (R, d, d)


class Evidence(NamedTuple):
    """Releases of R replicates by which groups with one outcome are counted."""

    rows: float
    chance: Array  # of a positive, the same for all rows at the start  (R,)
    moments: Array  # S of rows as they are                             (R, d, d)
    moments_spread: float
    gradient: Array  # at the start                                     (R, d)
    gradient_spread: float
    sharp_moments: Array  # S by all frames, positive semidefinite      (R, d, d)
    shortened: Shortened
    back: Array  # from the frame of the Hessians                       (R, d, d)
    points: tuple[Point, ...]

    def of(self, replicate: int) -> Evidence:
        """Return one replicate, without the first axis."""
        points = tuple(Point(*_fields_of_replicate(point, replicate)) for point in self.points)
        shortened = Shortened(*_fields_of_replicate(self.shortened, replicate))
        return Evidence(*_fields_of_replicate(self, replicate))._replace(
            points=points, shortened=shortened
        )


def _fields_of_replicate(fields: Iterable[Any], replicate: int) -> list[Any]:
    """Take one replicate of every array among the fields of a tuple; others stay as they are."""
    return [x[replicate] if isinstance(x, np.ndarray) else x for x in fields]


class Groups(NamedTuple):
    """Directions of groups of rows, and the lines of the table that each of them decides.

    Parameters
    ----------
    directions : array (groups, d)
        v of each group; zeros for a level that was merged with its reference, and for a site that
        was merged with others.
    decides : bool array (groups, lines)
        The lines that are undetermined where a group's rows have one outcome.
    columns : int array (groups,)
        The column of a group's level, constant or number; -1 for a reference.
    blocks : array (groups,)
        The number of the block of a level or a reference; 0 for a constant, NaN for a number.
    all_rows : bool array (groups,)
        Whether it is the group of all rows: that of the only constant.
    """

    directions: Array
    decides: BoolArray
    columns: IntArray
    blocks: Array
    all_rows: BoolArray

    @property
    def whole(self) -> BoolArray:
        """Groups whose u is 1 in their rows and 0 elsewhere, (groups,).

        Not those of numbers, or of merged levels.
        """
        return ~np.isnan(self.blocks) & np.any(self.directions != 0.0, axis=1)

    def at(self, places: IntArray) -> Groups:
        """Select some groups."""
        return Groups(
            self.directions[places],
            self.decides[places],
            self.columns[places],
            self.blocks[places],
            self.all_rows[places],
        )

    def decided(self, into_lines: Array) -> BoolArray:
        """Return the lines (lines, d) that each group decides, (groups, lines)."""
        moved = np.abs(self.directions @ into_lines.T)
        found = moved > 1e-9 * moved.max(axis=1, keepdims=True)
        # If all rows have one outcome, nothing is determined.
        found[self.all_rows] = True
        return found & np.any(self.directions != 0.0, axis=1)[:, None]


class RarerOutcome(NamedTuple):
    """Rows of each group with its rarer outcome, and the noise in that, (groups,).

    `common` is the part of that noise which counts at all later points have in common, as all need
    the group's size.
    """

    rows: Array
    noise: Array
    common: Array


def groups_of(naming: Naming, kept: BoolArray) -> Groups:
    """Return the groups of an encoding.

    `kept` (d,) are the columns that were not merged with their reference.
    """
    marks, blocks, ends = naming.marks, naming.blocks, naming.encoded_bounds
    every = naming.constant / naming.value  # c
    directions, columns, numbers = list[Array](), list[int](), list[float]()

    def add(direction: Array, column: int | np.integer[Any], block: float) -> None:
        directions.append(direction)
        columns.append(int(column))
        numbers.append(block)

    for column in np.flatnonzero(naming.constant > 0.0):
        add(_unit(naming.d, column) / naming.value * kept[column], column, 0.0)
    one_constant = len(directions) == 1
    for column in np.flatnonzero(marks > 0.0):
        add(_unit(naming.d, column) / marks[column] * kept[column], column, blocks[column])
    for block in sorted(set(blocks[blocks > 0.0].tolist())):
        own = (blocks == block) & kept
        add(every - np.divide(1.0, marks, out=np.zeros(naming.d), where=own), -1, block)
    for column in np.flatnonzero(np.isfinite(ends[:, 0])):
        low, high = ends[column]
        add((_unit(naming.d, column) - low * every) / (high - low), column, np.nan)
        add((high * every - _unit(naming.d, column)) / (high - low), column, np.nan)
    v, all_rows = np.array(directions), np.zeros(len(directions), dtype=bool)
    all_rows[0] = one_constant
    found = Groups(
        v,
        np.zeros((len(v), 0), dtype=bool),
        np.array(columns, dtype=int),
        np.array(numbers),
        all_rows,
    )
    return found._replace(decides=found.decided(naming.into_units))


def at_the_start(groups: Groups, every: Array, evidence: Evidence) -> tuple[RarerOutcome, Array]:
    """Count each group's rarer outcome at the start, where all rows have the same chance.

    Parameters
    ----------
    groups : Groups
    every : array (d,)
        Its product with every row is 1.
    evidence : Evidence
        Of one replicate.

    Returns
    -------
    counted : RarerOutcome
    expected : array (groups,)
        Rows with the rarer outcome in a group that is like all others.
    """
    v, chance = groups.directions, float(evidence.chance)
    size = v @ evidence.moments @ every
    # v'g is the mean of u (chance of a positive - positive).
    positives = chance * size - v @ evidence.gradient
    rare = positives < size / 2.0
    length = np.sum(v**2, axis=1)
    # of v'E c, with noise E in the moments
    of_size = evidence.moments_spread * np.sqrt(
        0.5 * (length * np.sum(every**2) + (v @ every) ** 2)
    )
    noise = np.hypot(
        evidence.gradient_spread * np.sqrt(length), np.where(rare, chance, 1.0 - chance) * of_size
    )
    expected = (
        evidence.rows
        * np.maximum(v @ evidence.sharp_moments @ every, 0.0)
        * min(chance, 1.0 - chance)
    )
    count = np.where(rare, positives, size - positives)
    return RarerOutcome(evidence.rows * count, evidence.rows * noise, np.zeros(len(v))), expected


def rarer_side(groups: Groups, every: Array, evidence: Evidence) -> Array:
    """Return which outcome is the rarer one of each group, by the counts at the start.

    Parameters
    ----------
    groups : Groups
    every : array (d,)
        Its product with every row is 1.
    evidence : Evidence
        Of one replicate.

    Returns
    -------
    array (groups,)
        1 for the positive outcome, -1 for the negative one.
    """
    size = groups.directions @ evidence.moments @ every
    positives = float(evidence.chance) * size - groups.directions @ evidence.gradient
    return np.where(positives < 0.5 * size, 1.0, -1.0)


def at_a_point(groups: Groups, every: Array, evidence: Evidence, point: Point) -> RarerOutcome:
    """Count each group's rarer outcome at a later point, where the Hessian tells its chance.

    The mean margin of the group tells which outcome the model has as the rarer one.  Rows of unlike
    chances have more of it than is taken here, and a group may have more rows, so the count is
    rather too small.

    Parameters
    ----------
    groups : Groups
    every : array (d,)
        Its product with every row is 1.
    evidence : Evidence
        Of one replicate.
    point : Point
        Of the same replicate.

    Returns
    -------
    RarerOutcome
    """
    v = groups.directions
    chance = rarer_chance(groups, evidence, point)
    side = np.where(v @ evidence.sharp_moments @ point.at > 0.0, -1.0, 1.0)
    size, of_size = _least_size(groups, every, evidence)
    count = size * chance - side * (v @ point.gradient)
    of_bends = (
        point.hessian_spread
        * np.sum((v @ evidence.back) ** 2, axis=1)
        * size
        / _squares_in_hessians(v, evidence)
    )
    of_chance = of_bends / np.maximum(1.0 - 2.0 * chance, 0.5)
    common = chance * of_size
    parts = [point.gradient_spread * np.sqrt(np.sum(v**2, axis=1)), of_chance, common]
    noise = np.sqrt(np.sum(np.square(parts), axis=0))
    return RarerOutcome(evidence.rows * count, evidence.rows * noise, evidence.rows * common)


def rarer_chance(groups: Groups, evidence: Evidence, point: Point) -> Array:
    """Compute the chance of the rarer outcome that the Hessian at a point implies for equal rows.

    Parameters
    ----------
    groups : Groups
    evidence : Evidence
        Of one replicate.
    point : Point
        Of the same replicate.

    Returns
    -------
    array (groups,)
        In [0, 1/2].
    """
    v = groups.directions
    inside, squares = v @ evidence.back, _squares_in_hessians(v, evidence)
    # v'H v = mean of u^2 p (1 - p): solved for the smaller chance p.
    bends = np.clip(np.einsum("gi,ij,gj->g", inside, point.hessian, inside), 0.0, squares / 4.0)
    return np.asarray(0.5 * (1.0 - np.sqrt(1.0 - 4.0 * bends / squares)))


def _squares_in_hessians(v: Array, evidence: Evidence) -> Array:
    """Second moments along groups, of the rows as Hessians have them, (groups,).

    Rows of rare levels are long in a frame and are shortened there.  Beside second moments of whole
    rows their Hessian would look like that of a group in which the rarer outcome is next to none.
    """
    return np.asarray(
        np.maximum(np.sum((v @ evidence.shortened.moments) * v, axis=1), _NEXT_TO_NONE)
    )


def _least_size(groups: Groups, every: Array, evidence: Evidence) -> tuple[Array, Array]:
    """Lower bound of a group's share of the rows, weighted by u, and its noise, (groups,).

    Second moments of whole rows are no help: noise that makes a group look large makes its rows
    times their chance of the rarer outcome more than its gradient says, as if it had that outcome.
    A row x of a whole group has ``v'x = 1``, so it is at least ``1 / |back v|`` long in the frame,
    and weighs ``|back v|^2`` at most.
    """
    v = groups.directions
    weight = np.sum((v @ evidence.shortened.back) ** 2, axis=1)
    most = np.where(weight > 0.0, np.minimum(weight, 1.0), 1.0)  # merged levels have no rows
    shortened = _squares_in_hessians(v, evidence)
    along = v @ evidence.sharp_moments
    squares = np.maximum(np.sum(along * v, axis=1), _NEXT_TO_NONE)
    of_number = np.maximum(along @ every, 0.0) * np.minimum(1.0, shortened / squares)
    size = np.where(groups.whole, shortened / most, of_number)
    return size, np.where(groups.whole, float(evidence.shortened.spread) * weight / most, 0.0)


def together(counts: Sequence[RarerOutcome]) -> RarerOutcome:
    """Average counts by their precision; without noise the first is taken, which is exact.

    A level that was merged has no rows of its own, so its counts are none without noise: others
    have theirs.
    """
    noise = np.array([one.noise for one in counts])
    noisy = np.all(noise > 0.0, axis=0)
    weight = np.where(noisy, noise, 1.0) ** -2.0
    weight /= weight.sum(axis=0)
    rows = np.sum(weight * np.array([one.rows for one in counts]), axis=0)
    of_all = np.where(noisy, pooled_noise(weight, counts), counts[0].noise)
    return RarerOutcome(np.where(noisy, rows, counts[0].rows), of_all, counts[0].common)


def pooled_noise(weight: Array, counts: Sequence[RarerOutcome]) -> Array:
    """Noise deviation of weighted counts, (groups,), for weights (counts, groups)."""
    noise, common = (
        np.array([getattr(one, name) for one in counts]) for name in ("noise", "common")
    )
    alone = np.maximum(noise**2 - common**2, 0.0)
    return np.asarray(
        np.sqrt(np.sum(weight**2 * alone, axis=0) + np.sum(weight * common, axis=0) ** 2)
    )


class Undetermined(NamedTuple):
    """Groups whose rarer outcome may be missing, with their counts, (groups,) each.

    Parameters
    ----------
    none : bool array
        Whether the rarer outcome may not be there, or in too few rows for an interval of two ends.
    present : bool array
        Whether it is there, though in too few rows.
    certain : bool array
        Whether noise does not hide that there are next to none.
    rarer, rows : array
        Rows with the rarer outcome as they are counted, and all rows of the group.
    noise : array
        Deviation of the noise in the count.
    printed : array
        The least count with which a group of whole rows has two ends.
    side : array
        1 where the rarer outcome is the positive one, -1 where it is not.
    """

    groups: Groups
    none: BoolArray
    present: BoolArray
    certain: BoolArray
    rarer: Array
    rows: Array
    noise: Array
    printed: Array
    side: Array

    def lines(self, into_lines: Array) -> tuple[BoolArray, BoolArray]:
        """Return which lines (lines, d) have a group that is `none`, or one that is `certain`."""
        decides = self.groups.decided(into_lines)
        none = np.any(self.none[:, None] & decides, axis=0)
        certain = np.any(self.certain[:, None] & decides, axis=0)
        return np.asarray(none), np.asarray(certain)

    def cause(self, into_lines: Array, line: int) -> Cause:
        """Return why a line of which some group is `none` has no interval of two ends."""
        decides = self.groups.decided(into_lines)[:, line] & self.none
        if np.any(decides & self.certain):
            return Cause.SEPARATION
        if np.all(self.present[decides]):
            return Cause.FEW
        return Cause.HIDDEN

    @property
    def counts(self) -> dict[str, Array]:
        """All but the groups, by name."""
        return {name: part for name, part in self._asdict().items() if name != "groups"}

    @property
    def one_outcome(self) -> BoolArray:
        """Groups of levels and references that are `none`, (groups,)."""
        return np.asarray(self.none & self.groups.whole & (self.groups.blocks > 0.0))


def undetermined(naming: Naming, kept: BoolArray, evidence: Evidence) -> Undetermined:
    """Find the groups whose coefficients the data may not determine (quasi-separation).

    The rows of a group with its rarer outcome are counted, with the deviation of the noise in that
    count.

    - *A number's* group is determined if the count is more than `SURE` deviations above 0.
    - *A level's, a reference's, a constant's or a site's* is determined if the count is more than
      `CLEAR` deviations above 0, and at least `LEAST` rows more than `DOUBT` deviations.
    - A group that is not determined is *present* if only that least count is missing: its rarer
      outcome is there, though in too few rows.
    - It is *certain* that next to no rows have the rarer outcome if the count plus `SURE`
      deviations is at most the part `FEW` of the rows that would have it if the group were like all
      others.

    Parameters
    ----------
    naming : Naming
    kept : bool array (d,)
        The columns that were not merged with their reference.
    evidence : Evidence
        Of one replicate.

    Returns
    -------
    Undetermined
    """
    return _of_one_outcome(groups_of(naming, kept), naming, evidence)


def undetermined_by_site(
    naming: Naming, kept: BoolArray, evidence: Evidence, of_sites: Sequence[Evidence]
) -> Undetermined:
    """Find undetermined groups where each site was asked of its own rows and has its own constant.

    All sites together tell what decides the columns' lines, and each site whether its own rows have
    one outcome.

    Parameters
    ----------
    naming : Naming
    kept : bool array (slopes + 1,)
        As for :func:`undetermined`, of rows with one constant.
    evidence : Evidence
        Of all sites together, as rows with one constant.
    of_sites : sequence of Evidence
        The same of each site alone.

    Returns
    -------
    Undetermined
    """
    one = naming.with_one_constant()
    sites, slopes = len(of_sites), one.d - 1
    found = undetermined(one, kept, evidence)
    first = found.groups.at(np.zeros(1, dtype=int))
    alone = [_of_one_outcome(first, one, site) for site in of_sites]
    every = np.concatenate(
        [found.groups.directions[:, :-1], np.repeat(found.groups.directions[:, -1:], sites, 1)], 1
    )
    own = np.eye(naming.d)[slopes:] / naming.value
    groups = Groups(
        np.vstack([every, own]),
        np.zeros((len(every) + sites, 0), dtype=bool),
        np.append(found.groups.columns, slopes + np.arange(sites)),
        np.append(found.groups.blocks, np.zeros(sites)),
        np.append(found.groups.all_rows, np.zeros(sites, dtype=bool)),
    )
    groups = groups._replace(decides=groups.decided(naming.into_units))
    parts = [
        np.append(whole, [getattr(site, name)[0] for site in alone])
        for name, whole in found.counts.items()
    ]
    return Undetermined(groups, *parts)


def _of_one_outcome(groups: Groups, naming: Naming, evidence: Evidence) -> Undetermined:
    """Find groups whose rows may all have one outcome, and whether noise hides that."""
    every = naming.constant / naming.value
    start, expected = at_the_start(groups, every, evidence)
    counted = together(
        [start, *(at_a_point(groups, every, evidence, point) for point in evidence.points)]
    )
    count, noise = counted.rows, counted.noise
    rounding = _ROUNDING * np.maximum(expected, 1.0)
    # By more deviations for whole groups: without the outcome few have two ends by chance.
    stands_out = count - np.where(groups.whole, CLEAR, SURE) * noise > rounding
    enough = LEAST + DOUBT * noise
    too_few_rows = groups.whole & (count < enough - _COUNTED * LEAST)
    none = (too_few_rows | ~stands_out) & np.any(groups.decides, axis=1)
    certain = none & (count + SURE * noise <= FEW * expected)
    rows = evidence.rows * np.maximum(groups.directions @ evidence.sharp_moments @ every, 0.0)
    printed = np.maximum(enough, CLEAR * noise)
    side = rarer_side(groups, every, evidence)
    return Undetermined(
        groups=groups,
        none=none,
        present=none & stands_out,
        certain=certain,
        rarer=count,
        rows=rows,
        noise=noise,
        printed=printed,
        side=side,
    )


def _unit(d: int, column: np.integer[Any]) -> Array:
    """A vector of zeros with 1 at `column`."""
    return np.eye(d)[column]
