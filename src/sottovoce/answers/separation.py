"""Separation: coefficients that the data do not determine, because a group has one outcome only.

It decides which lines of a table of log-odds are refused, from released sums alone
(docs/privacy/answers.md, "Separation"); its caller is
:func:`sottovoce.answers.coefficients.build_coefficient_table`, through the outcome's
`undetermined`.

Where all rows of a level have the same outcome the likelihood has no maximum: the level's log-odds
run to infinity ("quasi-separation", Albert and Anderson 1984).  A *group* is the rows of a level,
of the reference of a block, or of a constant, and the rows of a number by how far it is from one of
its declared bounds.  It is a public direction v for which ``u = v'x`` is never negative: 1 in the
group and 0 elsewhere, or the distance from the bound.  If all rows with u > 0 have the same
outcome, adding v to the coefficients makes every row's likelihood larger, without end.  With
weights u, released means over rows tell

    v'S c = mean of u, the group's size (c'x is 1 for every row),
    v'g = mean of u (chance of a positive - 1 if the row is positive),
    v'H v = mean of u^2 chance (1 - chance),

with second moments S, the gradient g and the Hessian H of the mean loss, and so how many of its
rows are positive and how many negative, but for noise of a known size: at the start, where all rows
have the same chance, and at every later point, where v'H v tells the chance.  Nothing is asked for
it.

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
"""Noise deviations by which a number's count of rows with the rarer outcome must exceed 0."""
CLEAR = 4.0
"""The same for a level, a reference, a constant or a site: more, so that hardly any of them without
the rarer outcome gets a two-sided interval by chance.
"""
LEAST, DOUBT = 5.0, 2.0
"""A two-sided interval of such a group needs a count of `LEAST` rows with the rarer outcome, and
`DOUBT` noise deviations more.
"""
FEW = 0.05
"""Separation is certain if the group has less than this part of the rows with the rarer outcome
that it would have if it were like all others.
"""
# Part of `LEAST` by which rounding may lower a count.
_COUNTED = 1e-6
# A count below this part of the expected rows is a rounding error.
_ROUNDING = 1e-9
# Keeps divisors of empty groups above 0.
_NEXT_TO_NONE = 1e-300


class Point(NamedTuple):
    """A point of the Newton steps, with the Hessian and the gradient that were released there.

    Noise deviations are those of one entry.
    """

    at: Array  # coefficients, (R, d)
    hessian: Array  # in the frame of the Hessians, (R, d, d)
    hessian_spread: float  # deviation of its noise
    gradient: Array  # (R, d)
    gradient_spread: float  # deviation of its noise


class Shortened(NamedTuple):
    """Second moments of rows clipped to norm 1 in a frame, as Hessians have them.

    A *frame* is a public linear map of rows, a whitening transform; in it a row a has the weight
    ``min(1, 1 / |a|^2)``.
    """

    moments: Array  # of encoded columns, positive semidefinite, (R, d, d)
    spread: Array  # deviation of noise in an entry in the frame, (R,)
    back: Array  # map from coefficients v of columns to the frame, v @ back, (R, d, d)


class Evidence(NamedTuple):
    """Released sums of R replicates by which rows with the rarer outcome are counted.

    Functions below take that of a single replicate, without the first axis (:meth:`of`).
    """

    rows: float  # of all sites
    chance: Array  # of a positive at the start, where it is the same for all rows, (R,)
    moments: Array  # S of whole rows, (R, d, d)
    moments_spread: float  # deviation of noise in an entry of it
    gradient: Array  # at the start, (R, d)
    gradient_spread: float  # deviation of noise in an entry of it
    sharp_moments: Array  # S from all frames together, positive semidefinite, (R, d, d)
    shortened: Shortened
    back: Array  # as `Shortened.back`, for the frame of the Hessians, (R, d, d)
    points: tuple[Point, ...]  # later points of the steps

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
    rare_ends : bool array (groups,)
        Whether it is the rare end of a number (:mod:`sottovoce.answers.concentrated`).
    """

    directions: Array
    decides: BoolArray
    columns: IntArray
    blocks: Array
    all_rows: BoolArray
    rare_ends: BoolArray

    @property
    def whole(self) -> BoolArray:
        """Groups whose u is 1 in their rows and 0 elsewhere, (groups,).

        Not those of numbers, or of merged levels.
        """
        return ~np.isnan(self.blocks) & np.any(self.directions != 0.0, axis=1)

    def at(self, places: IntArray) -> Groups:
        """Select the groups at these positions."""
        return Groups(
            self.directions[places],
            self.decides[places],
            self.columns[places],
            self.blocks[places],
            self.all_rows[places],
            self.rare_ends[places],
        )

    def decided(self, into_lines: Array) -> BoolArray:
        """Return which lines each group decides, (groups, lines): those that its direction moves.

        `into_lines` (lines, d) maps coefficients to lines.
        """
        moved = np.abs(self.directions @ into_lines.T)
        # Smaller moves are rounding errors.
        found = moved > 1e-9 * moved.max(axis=1, keepdims=True)
        # If all rows have one outcome, nothing is determined.
        found[self.all_rows] = True
        return found & np.any(self.directions != 0.0, axis=1)[:, None]


class RarerOutcome(NamedTuple):
    """Noisy number of rows with the rarer outcome in each group, (groups,) each.

    `noise` is its standard deviation; `common` the part of that which counts at all later points
    share, because all of them use the same estimate of the group's size.
    """

    rows: Array
    noise: Array
    common: Array


def groups_of(naming: Naming, kept: BoolArray) -> Groups:
    """Return the groups of an encoding: constants, levels, references, and numbers' two bounds.

    `kept` (d,) are the columns that were not merged with their reference.
    """
    marks, blocks, ends = naming.marks, naming.blocks, naming.encoded_bounds
    every = naming.constant / naming.value  # c
    directions, columns, block_numbers = list[Array](), list[int](), list[float]()

    def add(direction: Array, column: int | np.integer[Any], block: float) -> None:
        directions.append(direction)
        columns.append(int(column))
        block_numbers.append(block)

    # All rows, or those of each site with a constant of its own.
    for column in np.flatnonzero(naming.constant > 0.0):
        add(_unit(naming.d, column) / naming.value * kept[column], column, 0.0)
    one_constant = len(directions) == 1
    # The rows of each level: the mark of its column is scaled to 1.
    for column in np.flatnonzero(marks > 0.0):
        add(_unit(naming.d, column) / marks[column] * kept[column], column, blocks[column])
    # The rows of each reference: all that are in no other level of the block.
    for block in sorted(set(blocks[blocks > 0.0].tolist())):
        own = (blocks == block) & kept
        add(every - np.divide(1.0, marks, out=np.zeros(naming.d), where=own), -1, block)
    # A number's distance from its lower and from its upper bound, in [0, 1].
    for column in np.flatnonzero(np.isfinite(ends[:, 0])):
        low, high = ends[column]
        add((_unit(naming.d, column) - low * every) / (high - low), column, np.nan)
        add((high * every - _unit(naming.d, column)) / (high - low), column, np.nan)
    v, all_rows = np.array(directions), np.zeros(len(directions), dtype=bool)
    all_rows[0] = one_constant
    found = Groups(
        directions=v,
        decides=np.zeros((len(v), 0), dtype=bool),
        columns=np.array(columns, dtype=int),
        blocks=np.array(block_numbers),
        all_rows=all_rows,
        rare_ends=np.zeros(len(v), dtype=bool),
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
    # Deviation of v'E c, with the symmetric noise E in the moments.
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

    The sign of the group's mean margin says which outcome is the rarer one under the model there.
    The count is rather too small: rows of unequal chances have more of the rarer outcome than their
    curvature tells, and the group's size is taken from a lower bound.

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
    # By v'g = mean of u (chance - 1 if positive), with the sign of the rarer outcome.
    count = size * chance - side * (v @ point.gradient)
    # Noise of the count by that of v'H v, through the chance p: d p / d (p (1 - p)) = 1 / (1 - 2
    # p).
    of_curvature = (
        point.hessian_spread
        * np.sum((v @ evidence.back) ** 2, axis=1)
        * size
        / _squares_in_hessians(v, evidence)
    )
    of_chance = of_curvature / np.maximum(1.0 - 2.0 * chance, 0.5)
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
    curvature = np.einsum("gi,ij,gj->g", inside, point.hessian, inside)
    curvature = np.clip(curvature, 0.0, squares / 4.0)
    return np.asarray(0.5 * (1.0 - np.sqrt(1.0 - 4.0 * curvature / squares)))


def _squares_in_hessians(v: Array, evidence: Evidence) -> Array:
    """Compute v'M v for directions v (groups, d), with moments M of the rows as Hessians have them.

    Rows of rare levels are long in a frame and are clipped there.  Divided by second moments of
    whole rows, their curvature would look like that of a group with hardly any of the rarer
    outcome.
    """
    return np.asarray(
        np.maximum(np.sum((v @ evidence.shortened.moments) * v, axis=1), _NEXT_TO_NONE)
    )


def _least_size(groups: Groups, every: Array, evidence: Evidence) -> tuple[Array, Array]:
    """Compute a lower bound of each group's share of the rows, weighted by u, and its noise.

    Both are (groups,).  The share by second moments of whole rows would not do: noise that makes a
    group look larger raises its expected number of the rarer outcome above what its gradient says,
    as if it had that outcome.  A row x of a whole group has ``v'x = 1``, so it is at least ``1 /
    |back v|`` long in the frame, and weighs ``|back v|^2`` at most.
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
    """Average the counts of all points by their precision, group by group.

    Where a count has no noise the first one is taken: without privacy noise it is exact, and for a
    merged level, which has no rows of its own, all are 0.
    """
    noise = np.array([one.noise for one in counts])
    noisy = np.all(noise > 0.0, axis=0)
    weight = np.where(noisy, noise, 1.0) ** -2.0
    weight /= weight.sum(axis=0)
    rows = np.sum(weight * np.array([one.rows for one in counts]), axis=0)
    of_all = np.where(noisy, pooled_noise(weight, counts), counts[0].noise)
    return RarerOutcome(np.where(noisy, rows, counts[0].rows), of_all, counts[0].common)


def pooled_noise(weight: Array, counts: Sequence[RarerOutcome]) -> Array:
    """Compute the noise deviation of weighted counts, (groups,), for weights (counts, groups).

    Common parts of the noise add up, the others are independent.
    """
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
        Groups without the rarer outcome as far as is known, or with too few rows of it for a
        two-sided interval.
    present : bool array
        Those of them in which it surely occurs, though in too few rows.
    certain : bool array
        Those of them in which hardly any row has it, in spite of the noise.
    rarer, rows : array
        Noisy number of rows with the rarer outcome, and of all rows of the group.
    noise : array
        Standard deviation of the noise in `rarer`.
    printed : array
        The least `rarer` with which a level, reference, constant or site has a two-sided interval.
    side : array
        1 where the rarer outcome is the positive one, -1 where it is not.
    missing : array
        Of a number's rare end the variance of its log-odds by sampling that the Hessian does not
        promise (:mod:`sottovoce.answers.concentrated`); 0 for other groups.
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
    missing: Array

    def lines(self, into_lines: Array) -> tuple[BoolArray, BoolArray]:
        """Return which lines are decided by a group that is `none`, and by one that is `certain`.

        `into_lines` (lines, d) maps coefficients to lines; both results are (lines,).
        """
        decides = self.groups.decided(into_lines)
        none = np.any(self.none[:, None] & decides, axis=0)
        certain = np.any(self.certain[:, None] & decides, axis=0)
        return np.asarray(none), np.asarray(certain)

    def cause(self, into_lines: Array, line: int) -> Cause:
        """Return why a line that a `none` group decides has no two-sided interval."""
        decides = self.groups.decided(into_lines)[:, line] & self.none
        if np.any(decides & self.certain):
            return Cause.SEPARATION
        if np.all(self.present[decides]):
            return Cause.FEW
        return Cause.HIDDEN

    @property
    def counts(self) -> dict[str, Array]:
        """All fields but `groups`, by name."""
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
    """Find undetermined groups where each site was asked separately and has its own constant.

    The sums of all sites count the groups of levels and numbers; each site's own sums tell whether
    its rows, the group of its constant, have one outcome.

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
    # The first group is that of all rows; of a site's own sums it is all rows of the site.
    all_rows = found.groups.at(np.zeros(1, dtype=int))
    alone = [_of_one_outcome(all_rows, one, site) for site in of_sites]
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
        np.append(found.groups.rare_ends, np.zeros(sites, dtype=bool)),
    )
    groups = groups._replace(decides=groups.decided(naming.into_units))
    parts = [
        np.append(whole, [getattr(site, name)[0] for site in alone])
        for name, whole in found.counts.items()
    ]
    return Undetermined(groups, *parts)


def _of_one_outcome(groups: Groups, naming: Naming, evidence: Evidence) -> Undetermined:
    """Find the groups whose rows may all have one outcome, by the rules of :func:`undetermined`."""
    every = naming.constant / naming.value
    start, expected = at_the_start(groups, every, evidence)
    counted = together(
        [start, *(at_a_point(groups, every, evidence, point) for point in evidence.points)]
    )
    count, noise = counted.rows, counted.noise
    rounding = _ROUNDING * np.maximum(expected, 1.0)
    # More deviations for whole groups, so that few without the outcome get two ends by chance.
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
        missing=np.zeros(len(count)),
    )


def _unit(d: int, column: np.integer[Any]) -> Array:
    """Return a vector (d,) of zeros with 1 at `column`."""
    return np.eye(d)[column]
