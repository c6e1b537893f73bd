"""Which coefficients the data do not determine: groups of rows that may all have the same outcome.

Where all rows of a level have the same outcome the likelihood has no maximum: the level's log-odds run to infinity
("quasi-separation", Albert and Anderson 1984).  A *group* is the rows of a level, of the reference of a block, or of a
constant: those in which ``v'x`` is 1 for a public direction v, and 0 in all others.  Then, of released means over rows,

    v'S v = the group's share of the rows,    v'g = mean over rows of (chance of a positive - positive) in the group,
    v'H v = mean over rows of chance (1 - chance) in the group,

so that the number of its positives is known twice, but for noise of a known size: at the start, where all rows have the
same chance, and at the last point, where the share and v'H v tell the chance.  Nothing is asked for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..util.typing import Array, BoolArray, IntArray

SURE = 2.0
"""Noise deviations by which the number of rows with the rarer outcome must stand out from none."""
FEW = 0.05
"""So small a part of the rows with the rarer outcome that are expected is next to none of them."""
_ROUNDING = 1e-9  # of the rows: a count below it is none


class Groups(NamedTuple):
    """Directions of groups of rows, and the coefficients that each of them decides.

    Parameters
    ----------
    directions : array (R, groups, d)
        v of each group; zeros for a level that was merged with its reference.
    decides : bool array (groups, d)
        The coefficients that are undetermined where a group's rows have one outcome.
    """

    directions: Array
    decides: BoolArray


class RarerOutcome(NamedTuple):
    """Rows of a group with its rarer outcome, as counted at one point, and the deviation of the noise in it."""

    rows: Array  # (R, groups)
    noise: Array  # (R, groups)
    expected: Array  # if all rows had the same chance of a positive; 0 where that was not computed  (R, groups)


def groups_of(constant: Array, value: float, marks: Array, blocks: Array, kept: BoolArray) -> Groups:
    """The groups of an encoding; arguments are those of :class:`sottovoce.answers.inference.Newton`."""
    R, d = kept.shape
    levels, constants = np.flatnonzero(marks > 0.0), np.flatnonzero(constant > 0.0)
    numbers = sorted(set(blocks[blocks > 0.0].tolist()))
    unit = 1.0 / np.where(marks > 0.0, marks, value)  # of a column, in rows in which it is not 0
    directions = np.zeros((R, len(levels) + len(constants) + len(numbers), d))
    decides = np.zeros(directions.shape[1:], dtype=bool)
    for group, column in enumerate([*levels, *constants]):
        directions[:, group, column] = unit[column] * kept[:, column]
        decides[group, column] = True
    if len(constants) == 1:  # its group is all rows: if these have one outcome, nothing is determined
        decides[len(levels)] = True
    for group, number in enumerate(numbers, len(levels) + len(constants)):
        own: IntArray = np.flatnonzero(blocks == number)
        directions[:, group] = constant / value
        directions[:, group, own] = -unit[own] * kept[:, own]
        decides[group, own] = decides[group, constants] = True
    return Groups(directions, decides)


def at_the_start(
    groups: Groups, rows: float, chance: Array, S: Array, s_S: float, gradient: Array, s_g: float
) -> RarerOutcome:
    """Counted where all rows have the same chance of a positive, (R,), from moments S and the gradient there."""
    v = groups.directions
    length = np.sum(v**2, axis=2)
    size = np.einsum("rgi,rij,rgj->rg", v, S, v)
    positives = chance[:, None] * size - np.einsum("rgi,ri->rg", v, gradient)
    few = positives < size / 2.0
    part = np.where(few, chance[:, None], 1.0 - chance[:, None])  # of an error in the size
    noise = np.hypot(s_g * np.sqrt(length), part * s_S * length)
    expected = rows * np.maximum(size, 0.0) * np.minimum(chance, 1.0 - chance)[:, None]
    return RarerOutcome(rows * np.where(few, positives, size - positives), rows * noise, expected)


def at_the_end(
    groups: Groups, rows: float, at: Array, S: Array, back: Array, H: Array, s_H: Array, gradient: Array, s_g: Array
) -> RarerOutcome:
    """Counted at the last point, where moments S and the Hessian H tell the group's chance of the rarer outcome.

    H is in the frame to which `back` leads.  The mean margin of the group tells which outcome the model has as the
    rarer one.  Rows of unlike chances have more of it than is taken here, so the count is rather too small.
    """
    v = groups.directions
    inside = np.einsum("rij,rgj->rgi", back, v)
    along = np.einsum("rgi,rij->rgj", v, S)
    size = np.maximum(np.sum(along * v, axis=2), 1e-300)
    bends = np.clip(np.einsum("rgi,rij,rgj->rg", inside, H, inside), 0.0, size / 4.0)
    chance = 0.5 * (1.0 - np.sqrt(1.0 - 4.0 * bends / size))
    side = np.where(np.einsum("rgi,ri->rg", along, at) > 0.0, -1.0, 1.0)
    count = size * chance - side * np.einsum("rgi,ri->rg", v, gradient)
    of_chance = (s_H[:, None] * np.sum(inside**2, axis=2)) / np.maximum(1.0 - 2.0 * chance, 0.5)
    noise = np.hypot(s_g[:, None] * np.sqrt(np.sum(v**2, axis=2)), of_chance)
    return RarerOutcome(rows * count, rows * noise, np.zeros_like(count))


def undetermined(groups: Groups, counts: Sequence[RarerOutcome]) -> tuple[BoolArray, BoolArray]:
    """Which coefficients the data may not determine, and of which noise does not hide that, (R, d) each.

    A group's coefficients are not determined unless one of the counts of its rarer outcome stands out from none by
    `SURE` deviations.  Noise does not hide it if a count leaves no room for a twentieth of the rows that have it if a
    group is like all others.
    """
    expected = np.max([one.expected for one in counts], axis=0)
    there = np.any(groups.directions != 0.0, axis=2)
    shown = [one.rows - SURE * one.noise > _ROUNDING * np.maximum(expected, 1.0) for one in counts]
    none = there & ~np.any(shown, axis=0)
    most = np.min([one.rows + SURE * one.noise for one in counts], axis=0)
    certain = none & (most <= FEW * expected)
    decides = groups.decides[None]
    return np.any(none[:, :, None] & decides, axis=1), np.any(certain[:, :, None] & decides, axis=1)
