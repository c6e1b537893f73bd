"""Levels against the most frequent one of their block, from which every comparison that is
determined follows.

A table compares levels with the reference that a user names.  If that has few rows, or one outcome
only, noise of its own is in every line of the block, and in the constant.  What the data say does
not depend on it: these *pivots* compare each level, the named reference too, with the block's most
frequent level (by released moments), and the constant is that of a row with this level and mean
numbers.  They are a linear map of the table's lines, so nothing is asked for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..util.typing import Any, Array, BoolArray, IntArray
from .one_sided import largest_log_odds
from .terms import Naming

_NEXT_TO_NONE = 1e-9
"""A weight that is so small beside the largest of a sum is one of rounding."""


class Block(NamedTuple):
    """A block of levels: the positions of their columns, and shares of the rows.

    Parameters
    ----------
    columns : int array (levels,)
    shares : array (levels,)
        As released second moments tell them; of the reference the rest.
    reference : float
    deviations : array (levels + 1,)
        Of the noise in the shares and, last, in that of the reference, for noise of deviation 1 in
        an entry.
    """

    columns: IntArray
    shares: Array
    reference: float
    deviations: Array


def blocks_of(
    marks: Array, blocks: Array, constant: Array, value: float, moments: Array
) -> list[Block]:
    """Estimate the levels' shares of the rows in each block, from released second moments.

    A level's share follows from its column's own moment, and from the column's moment with the
    constant; the noise in the two is independent, and they are averaged by their precision.

    Parameters
    ----------
    marks : array (d,)
        Entry of a column that marks a level, in rows of that level; 0 for other columns.
    blocks : array (d,)
        Number of the block of a column that marks a level; 0 for other columns.
    constant : array (d,)
        1 in the columns that hold constants.
    value : float
        Entry of a row in its constant column.
    moments : array (d, d)
        Released second moments.

    Returns
    -------
    list of Block
    """
    every = constant / value
    length = float(every @ every)
    whole = float(every @ moments @ every)
    with_constant = moments @ every
    found = []
    for number in sorted(set(blocks[blocks > 0.0].tolist())):
        columns = np.flatnonzero(blocks == number)
        mark = marks[columns]
        own_precision, other_precision = mark**4, 2.0 * mark**2 / length
        own, other = np.diag(moments)[columns] / mark**2, with_constant[columns] / mark
        precision = own_precision + other_precision
        shares = (own_precision * own + other_precision * other) / precision
        of_reference = np.sqrt(length**2 + np.sum(1.0 / precision))
        deviations = np.append(1.0 / np.sqrt(precision), of_reference)
        found.append(Block(columns, shares, whole - float(shares.sum()), deviations))
    return found


def directions_of(
    marks: Array, blocks: Array, constant: Array, value: float
) -> list[tuple[IntArray, Array]]:
    """Return the columns of each block, and the indicators of its levels as linear forms.

    Parameters
    ----------
    marks, blocks, constant : array (d,)
        As for :func:`blocks_of`.
    value : float
        As for :func:`blocks_of`.

    Returns
    -------
    list of (columns, forms)
        Columns (levels,), and forms (levels + 1, d) that are 1 in the rows of a level or, last, of
        the reference, and 0 in other rows.
    """
    found = []
    for number in sorted(set(blocks[blocks > 0.0].tolist())):
        columns = np.flatnonzero(blocks == number)
        levels = np.eye(len(marks))[columns] / marks[columns][:, None]
        found.append((columns, np.vstack([levels, constant / value - levels.sum(axis=0)])))
    return found


def comparisons_of(
    marks: Array, blocks: Array, constant: Array, value: float, moments: Array, kept: BoolArray
) -> Array:
    """Return weights that compare each kept level with its block's most frequent one.

    Parameters
    ----------
    marks, blocks, constant : array (d,)
        As for :func:`blocks_of`.
    value : float
        As for :func:`blocks_of`.
    moments : array (d, d)
        Second moments, for the levels' shares.
    kept : bool array (d,)
        Columns that were not merged.

    Returns
    -------
    array (m, d)
        Weights of encoded coefficients, one row for each kept column.
    """
    lines = np.eye(len(marks))
    for block in blocks_of(marks, blocks, constant, value, moments):
        most = int(np.argmax(block.shares))
        pivot = int(block.columns[most])
        if block.shares[most] > block.reference and kept[pivot]:
            lines[block.columns] *= marks[block.columns][:, None]
            lines[block.columns, pivot] -= marks[pivot]
            lines[pivot] = marks[pivot] * np.eye(len(marks))[pivot]
    return lines[kept]


def merged_reference(block: Block, kept: BoolArray) -> int | None:
    """Return the column of the level with which a rare reference was merged.

    None if the reference stands alone.
    """
    most = int(np.argmax(block.shares))
    column = int(block.columns[most])
    if kept[column] or block.shares[most] <= block.reference:
        return None
    return column


def pivots(
    naming: Naming, kept: BoolArray, moments: Array, one_outcome: BoolArray, references: BoolArray
) -> tuple[Array, list[int | None]]:
    """Return the map from the table's lines to comparisons with the most frequent levels.

    The line of a block's most frequent level becomes that of the named reference against it.

    Parameters
    ----------
    naming : Naming
    kept : bool array (d,)
        The columns that were not merged.
    moments : array (d, d)
        Second moments of the rows.
    one_outcome : bool array (d,)
        Columns of levels whose rows may all have one outcome: others are taken before them.
    references : bool array (blocks,)
        Blocks of which the same holds for the reference.

    Returns
    -------
    map : array (lines, lines)
    pivot_of : list of int or None
        Column of each block's most frequent level; None where the reference is the level.
    """
    T = np.eye(naming.d)
    constants = np.flatnonzero(naming.constant > 0.0)
    every = naming.constant / naming.value
    # About 1, but for noise and long rows.
    weight = max(float(every @ moments @ every), 1e-3)
    middle = np.linalg.solve(naming.into_units.T, moments @ every / weight)
    numbers = (naming.marks == 0.0) & (naming.constant == 0.0)
    T[np.ix_(constants, np.flatnonzero(numbers))] = middle[numbers]
    blocks = blocks_of(naming.marks, naming.blocks, naming.constant, naming.value, moments)
    found = list[int | None]()
    for block, without in zip(blocks, references, strict=True):
        pivot = merged_reference(block, kept)
        if pivot is None:
            shares = np.where(one_outcome[block.columns] | ~kept[block.columns], -1.0, block.shares)
            most = int(np.argmax(shares))
            least = block.reference
            if without:
                # The reference's rows may all have one outcome: any other level is taken before it.
                least = 0.0
            if shares[most] > least:
                pivot = int(block.columns[most])
        found.append(pivot)
        if pivot is None:
            continue
        T[block.columns, pivot] -= 1.0
        T[pivot, pivot] = -1.0
        T[constants, pivot] += 1.0
    return T, found


class HiddenGroups(NamedTuple):
    """Groups of rows whose rarer outcome was not seen, so that their log-odds have one end only.

    Parameters
    ----------
    directions : array (groups, lines)
        What moves the margins of a group's rows by one, and of no others.
    means : array (groups, lines)
        Weights of lines in the margin of the group's mean row.
    mean_variance : array (groups,)
        Variance of that margin by noise in the mean row, the part of the group's own direction left
        out.
    side : array (groups,)
        1 where the rarer outcome is the positive one, -1 where it is not.
    rarer, noise, rows : array (groups,)
        Rows with the rarer outcome, the noise in their number, and all of them, at least.
    """

    directions: Array
    means: Array
    mean_variance: Array
    side: Array
    rarer: Array
    noise: Array
    rows: Array

    def bounds(self, alpha: float) -> Array:
        """Upper bounds of groups' mean margins towards the rarer outcome, (groups,).

        Each holds with probability ``1 - alpha``.
        """
        found = zip(self.rarer.tolist(), self.noise.tolist(), self.rows.tolist(), strict=True)
        return np.array(
            [largest_log_odds(rarer, noise, rows, alpha) for rarer, noise, rows in found]
        )

    def shares_of(self, weights: Array) -> tuple[Array, BoolArray]:
        """The groups' shares of sums of lines, (n, groups), and the sums that are not theirs.

        Groups may depend on each other, as a level and its reference do: then only some sums are
        theirs.
        """
        effects, asked = self.directions @ self.means.T, self.directions @ weights.T
        shared = (np.linalg.pinv(effects, rcond=_NEXT_TO_NONE) @ asked).T
        off = np.abs(effects @ shared.T - asked).max(axis=0)
        beyond = off > _NEXT_TO_NONE * np.maximum(1.0, np.abs(asked).max(axis=0))
        return np.where(np.abs(shared) > _NEXT_TO_NONE, shared, 0.0), beyond

    def widen(self, ends: Array, parts: Array, alpha: float) -> None:
        """Widen intervals of sums, in place, by what the groups' shares may add.

        Half of `alpha` is for the error of the groups of one sum together.

        Parameters
        ----------
        ends : array (n, 2)
            Intervals of the rest of each sum; changed.
        parts : array (n, groups)
            The groups' shares in the sums, of :meth:`shares_of`.
        alpha : float
            One minus the confidence level.
        """
        groups_in = np.count_nonzero(parts, axis=1)
        for several in sorted(set(groups_in[groups_in > 0].tolist())):
            these = groups_in == several
            for k, bound in enumerate(self.bounds(0.5 * alpha / several)):
                part = np.abs(parts[these, k])
                towards = np.sign(parts[these, k]) * self.side[k]
                farthest = np.full_like(part, np.inf)
                if np.isfinite(bound):
                    farthest = part * bound
                reach = np.where(part > 0.0, farthest, 0.0)
                ends[these, 1] += np.where(towards >= 0.0, reach, np.inf)
                ends[these, 0] -= np.where(towards <= 0.0, reach, np.inf)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], lines: int) -> HiddenGroups:
        """Construct from lists, for a table with this number of lines."""
        found = {name: np.array(plain[name], dtype=float) for name in cls._fields}
        for name in ("directions", "means"):
            found[name] = found[name].reshape(-1, lines)
        return cls(**found)


def no_groups(lines: int) -> HiddenGroups:
    """Return no groups, for a table with this number of lines."""
    return HiddenGroups(
        np.zeros((0, lines)), np.zeros((0, lines)), *(np.zeros(0) for _ in range(5))
    )
