"""Which coefficients the data do not determine: groups of rows that may all have the same outcome.

Where all rows of a level have the same outcome the likelihood has no maximum: the level's log-odds run to infinity
("quasi-separation", Albert and Anderson 1984).  A *group* is the rows of a level, of the reference of a block, or of a
constant, and the rows of a number by how far it is from one of its declared bounds.  It is a public direction v for
which ``u = v'x`` is never negative: 1 in the group and 0 elsewhere, or the distance from the bound.  If all rows with
u > 0 have the same outcome, adding v to the coefficients makes every row's likelihood larger, without end.  With
weights u, released means over rows tell

    v'S c = the group's size (c'x is 1 for every row),    v'g = mean of u (chance of a positive - positive),
    v'H v = mean of u^2 chance (1 - chance),

and so how many of its rows are positive and how many negative, but for noise of a known size: at the start, where all
rows have the same chance, and at every later point, where v'H v tells the chance.  Nothing is asked for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..util.typing import Any, Array, BoolArray
from .terms import Naming

SURE = 3.0
"""Noise deviations by which the number of rows with the rarer outcome must stand out from none."""
FEW = 0.05
"""So small a part of the expected rows with the rarer outcome is next to none of them."""
_ROUNDING = 1e-9  # of the rows that are expected: a count below it is none


class Point(NamedTuple):
    """A point of the steps with the Hessian there, in the frame, and the gradient; spreads are of their noise."""

    at: Array  # (R, d)
    hessian: Array  # (R, d, d)
    hessian_spread: float
    gradient: Array  # (R, d)
    gradient_spread: float


class Evidence(NamedTuple):
    """What was released of R replicates on the way, as far as groups are counted by it."""

    rows: float
    chance: Array  # of a positive, the same for all rows at the start  (R,)
    moments: Array  # S of rows as they are                             (R, d, d)
    moments_spread: float
    gradient: Array  # at the start                                     (R, d)
    gradient_spread: float
    sharp_moments: Array  # S by all frames, positive semidefinite      (R, d, d)
    back: Array  # from the frame of the Hessians                       (R, d, d)
    points: tuple[Point, ...]

    def of(self, replicate: int) -> Evidence:
        """Of one replicate, without the first axis."""
        points = tuple(Point(*_of(point, replicate)) for point in self.points)
        return Evidence(*_of(self, replicate))._replace(points=points)


def _of(fields: Iterable[Any], replicate: int) -> list[Any]:
    return [x[replicate] if isinstance(x, np.ndarray) else x for x in fields]


class Groups(NamedTuple):
    """Directions of groups of rows, and the lines of the table that each of them decides.

    Parameters
    ----------
    directions : array (groups, d)
        v of each group; zeros for a level that was merged with its reference.
    decides : bool array (groups, lines)
        The lines that are undetermined where a group's rows have one outcome.
    """

    directions: Array
    decides: BoolArray


class RarerOutcome(NamedTuple):
    """Rows of each group with its rarer outcome, weighted by u, and the deviation of the noise in it, (groups,)."""

    rows: Array
    noise: Array


def groups_of(naming: Naming, kept: BoolArray) -> Groups:
    """The groups of an encoding, of which the columns `kept`, (d,), were not merged with their reference."""
    marks, blocks, ends = naming.marks, naming.blocks, naming.ends
    every = naming.constant / naming.value  # c
    directions = []
    for column in np.flatnonzero(naming.constant > 0.0):
        directions.append(_unit(naming.d, column) / naming.value)
    whole = len(directions) == 1  # the group of the only constant is all rows
    for column in np.flatnonzero(marks > 0.0):
        directions.append(_unit(naming.d, column) / marks[column] * kept[column])
    for block in sorted(set(blocks[blocks > 0.0].tolist())):
        own = (blocks == block) & kept
        directions.append(every - np.divide(1.0, marks, out=np.zeros(naming.d), where=own))
    for column in np.flatnonzero(np.isfinite(ends[:, 0])):
        low, high = ends[column]
        directions.append((_unit(naming.d, column) - low * every) / (high - low))
        directions.append((high * every - _unit(naming.d, column)) / (high - low))
    v = np.array(directions)
    moved = np.abs(v @ naming.into_units.T)
    decides = moved > 1e-9 * moved.max(axis=1, keepdims=True)
    decides[0] |= whole  # if all rows have one outcome, nothing is determined
    return Groups(v, decides & np.any(v != 0.0, axis=1)[:, None])


def at_the_start(groups: Groups, every: Array, seen: Evidence) -> tuple[RarerOutcome, Array]:
    """Counted where all rows have the same chance; and how many are expected in a group that is like all others."""
    v, chance = groups.directions, float(seen.chance)
    size = v @ seen.moments @ every
    positives = chance * size - v @ seen.gradient
    rare = positives < size / 2.0
    length = np.sum(v**2, axis=1)
    # of v'E c, with noise E in the moments
    of_size = seen.moments_spread * np.sqrt(0.5 * (length * np.sum(every**2) + (v @ every) ** 2))
    noise = np.hypot(seen.gradient_spread * np.sqrt(length), np.where(rare, chance, 1.0 - chance) * of_size)
    expected = seen.rows * np.maximum(v @ seen.sharp_moments @ every, 0.0) * min(chance, 1.0 - chance)
    return RarerOutcome(seen.rows * np.where(rare, positives, size - positives), seen.rows * noise), expected


def at_a_point(groups: Groups, every: Array, seen: Evidence, point: Point) -> RarerOutcome:
    """Counted at a later point, where the Hessian tells a group's chance of the rarer outcome.

    The mean margin of the group tells which outcome the model has as the rarer one.  Rows of unlike chances have more
    of it than is taken here, so the count is rather too small.
    """
    v = groups.directions
    inside = v @ seen.back
    along = v @ seen.sharp_moments
    size, squares = np.maximum(along @ every, 0.0), np.maximum(np.sum(along * v, axis=1), 1e-300)
    bends = np.clip(np.einsum("gi,ij,gj->g", inside, point.hessian, inside), 0.0, squares / 4.0)
    chance = 0.5 * (1.0 - np.sqrt(1.0 - 4.0 * bends / squares))
    side = np.where(along @ point.at > 0.0, -1.0, 1.0)
    count = size * chance - side * (v @ point.gradient)
    of_bends = point.hessian_spread * np.sum(inside**2, axis=1) * size / squares
    of_chance = of_bends / np.maximum(1.0 - 2.0 * chance, 0.5)
    noise = np.hypot(point.gradient_spread * np.sqrt(np.sum(v**2, axis=1)), of_chance)
    return RarerOutcome(seen.rows * count, seen.rows * noise)


def together(counts: Sequence[RarerOutcome]) -> RarerOutcome:
    """All counts as one by their precision; without noise the first, which is exact."""
    noise = np.array([one.noise for one in counts])
    if not np.all(noise > 0.0):
        return counts[0]
    precision = noise**-2.0
    total = precision.sum(axis=0)
    rows = np.sum(precision * np.array([one.rows for one in counts]), axis=0) / total
    return RarerOutcome(rows, 1.0 / np.sqrt(total))


def undetermined(naming: Naming, kept: BoolArray, seen: Evidence) -> tuple[BoolArray, BoolArray]:
    """Which lines the data may not determine, and of which noise does not hide that, (lines,) each.

    A group's lines are not determined unless the count of its rarer outcome stands out from none by `SURE` deviations.
    Noise does not hide it if that count leaves no room for a small part, `FEW`, of the rows that would have the outcome
    if the group were like all others.

    Parameters
    ----------
    kept : bool array (d,)
        The columns that were not merged with their reference.
    seen : Evidence
        Of one replicate.
    """
    groups = groups_of(naming, kept)
    none, certain = _of_one_outcome(groups, naming, seen)
    return np.any(none[:, None] & groups.decides, axis=0), np.any(certain[:, None] & groups.decides, axis=0)


def undetermined_by_site(
    naming: Naming, kept: BoolArray, seen: Evidence, of_sites: Sequence[Evidence]
) -> tuple[BoolArray, BoolArray]:
    """:func:`undetermined` where each site was asked of its own rows, and has a constant of its own.

    All sites together tell what decides the columns' lines, and each site whether its own rows have one outcome.

    Parameters
    ----------
    kept : bool array (slopes + 1,)
        As for :func:`undetermined`, of rows with one constant.
    seen : Evidence
        Of all sites together, as rows with one constant.
    of_sites : sequence of Evidence
        The same of each site alone.
    """
    one = naming.with_one_constant()
    none, certain = undetermined(one, kept, seen)
    groups = groups_of(one, kept)
    whole = Groups(groups.directions[:1], groups.decides[:1])  # all rows of a site
    alone = [_of_one_outcome(whole, one, site) for site in of_sites]
    of_constants = [np.array([x[part][0] for x in alone]) for part in (0, 1)]
    return tuple(  # type: ignore[return-value]
        np.concatenate([lines[:-1], own | lines[-1]]) for lines, own in zip((none, certain), of_constants, strict=True)
    )


def _of_one_outcome(groups: Groups, naming: Naming, seen: Evidence) -> tuple[BoolArray, BoolArray]:
    """Groups whose rows may all have one outcome, and those of which noise does not hide it, (groups,) each."""
    every = naming.constant / naming.value
    start, expected = at_the_start(groups, every, seen)
    count, noise = together([start, *(at_a_point(groups, every, seen, point) for point in seen.points)])
    none = (count - SURE * noise <= _ROUNDING * np.maximum(expected, 1.0)) & np.any(groups.decides, axis=1)
    return none, none & (count + SURE * noise <= FEW * expected)


def _unit(d: int, column: np.integer[Any]) -> Array:
    """A vector of zeros with 1 at `column`."""
    return np.eye(d)[column]
