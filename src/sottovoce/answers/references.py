"""Comparisons of levels with the most frequent level of their column, in place of the reference.

A table compares each level of a column with the reference that the user names.  If the reference
has few rows, or one outcome only, its own large error is in every line of the *block* (the column's
levels), and in the constant.  Yet other levels may still be compared with each other.  So *pivots*
compare each level, and the named reference, with the block's most frequent level by released second
moments, and take the constant at that level and at mean numbers.  Pivots are a linear map of the
table's lines, so they cost no budget; every weighted sum of lines that the data determine follows
from them (:mod:`sottovoce.answers.known_sums`; docs/privacy/answers.md, "References").

A *mark* is the entry of a level's encoded column in rows of that level; a *merged* level is counted
with its reference, because noise hides too much of it.  `every` is the vector c whose product with
each row is 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..util.typing import Any, Array, BoolArray, IntArray
from .one_sided import largest_log_odds
from .terms import Naming

_NEXT_TO_NONE = 1e-9
"""A weight that is smaller than this times the largest one of a sum is a rounding error."""


class Block(NamedTuple):
    """The levels of one column, and their shares of all rows as released second moments tell them.

    Parameters
    ----------
    columns : int array (levels,)
        Positions of the levels' columns among all encoded columns; the reference has none.
    shares : array (levels,)
        Noisy, so they may be below 0.
    reference : float
        Share of the reference, which is the rest.
    deviations : array (levels + 1,)
        Standard deviations of the noise in the shares and, last, in that of the reference, if an
        entry of the second moments has noise of standard deviation 1.
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
    # The share of all rows together: 1, but for noise and for rows of smaller weight.
    whole = float(every @ moments @ every)
    with_constant = moments @ every
    found = []
    for number in sorted(set(blocks[blocks > 0.0].tolist())):
        columns = np.flatnonzero(blocks == number)
        mark = marks[columns]
        # Precisions (1 / variance) of the two estimates of a share.
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
    """Return, for each block, its columns and linear forms of a row that indicate its levels.

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

    That is the block's most frequent level, whose column is then left out.  None if the reference
    was not merged.
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
        Released second moments of the rows.
    one_outcome : bool array (d,)
        Columns of levels whose rows may all have one outcome; they are not chosen as pivots.
    references : bool array (blocks,)
        The blocks whose reference may have rows of one outcome only.

    Returns
    -------
    map : array (lines, lines)
        From coefficients in the user's units to pivots.
    pivot_of : list of int or None
        Column of each block's most frequent level; None where that is the reference itself.
    """
    T = np.eye(naming.d)
    constants = np.flatnonzero(naming.constant > 0.0)
    every = naming.constant / naming.value
    # The mean weight of a row: about 1, but for noise and for rows of norm above 1.  At least a
    # thousandth, as it divides.
    weight = max(float(every @ moments @ every), 1e-3)
    # The mean row, as weights of the lines; constants are taken at mean numbers.
    middle = np.linalg.solve(naming.into_units.T, moments @ every / weight)
    numbers = (naming.marks == 0.0) & (naming.constant == 0.0)
    T[np.ix_(constants, np.flatnonzero(numbers))] = middle[numbers]
    blocks = blocks_of(naming.marks, naming.blocks, naming.constant, naming.value, moments)
    found = list[int | None]()
    for block, without in zip(blocks, references, strict=True):
        pivot = merged_reference(block, kept)
        if pivot is None:
            # Levels that may not become the pivot have the share -1.
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
        # Level less pivot; the reference less the pivot; the constant at the pivot's level.
        T[block.columns, pivot] -= 1.0
        T[pivot, pivot] = -1.0
        T[constants, pivot] += 1.0
    return T, found


class HiddenGroups(NamedTuple):
    """Groups of rows whose rarer outcome was not seen, so that one end of an interval is known.

    A group is the rows of a level, of a reference or of a site
    (:mod:`sottovoce.answers.separation`); its margin is the mean log-odds of its rows.

    Parameters
    ----------
    directions : array (groups, lines)
        The change of lines that raises the margins of the group's rows by 1, and of no others.
    means : array (groups, lines)
        Weights of lines in the margin of the group's mean row.
    mean_variance : array (groups,)
        Variance of that margin by noise in the mean row, the part along the group's own direction
        left out.
    side : array (groups,)
        1 where the rarer outcome is the positive one, -1 where it is not.
    rarer, noise, rows : array (groups,)
        Noisy number of rows with the rarer outcome, standard deviation of that noise, and a lower
        bound on the number of all rows.
    printed : array (groups,)
        Smallest such number with which a group has an interval of two ends.
    """

    directions: Array
    means: Array
    mean_variance: Array
    side: Array
    rarer: Array
    noise: Array
    rows: Array
    printed: Array

    def bounds(self, alpha: float) -> Array:
        """Compute upper bounds of the groups' margins towards the rarer outcome, (groups,).

        Each holds with probability ``1 - alpha`` among the counts that have such a bound, unless
        these are seldom; infinite where nothing is known.
        """
        numbers = (self.rarer, self.noise, self.rows, self.printed)
        found = zip(*(part.tolist() for part in numbers), strict=True)
        return np.array(
            [
                largest_log_odds(rarer, noise, rows, alpha, printed)
                for rarer, noise, rows, printed in found
            ]
        )

    def shares_of(self, weights: Array) -> tuple[Array, BoolArray]:
        """Split weighted sums of lines (n, lines) into parts of the groups' margins.

        Groups may depend on each other, as a level and its reference do; then some sums change
        along their directions and still are no combination of their margins.

        Returns
        -------
        shares : array (n, groups)
            Weight of each group's margin in each sum.
        beyond : bool array (n,)
            Sums that are no such combination.
        """
        # Changes of the groups' margins, and of the sums, along the groups' directions.
        effects, asked = self.directions @ self.means.T, self.directions @ weights.T
        shared = (np.linalg.pinv(effects, rcond=_NEXT_TO_NONE) @ asked).T
        off = np.abs(effects @ shared.T - asked).max(axis=0)
        beyond = off > _NEXT_TO_NONE * np.maximum(1.0, np.abs(asked).max(axis=0))
        return np.where(np.abs(shared) > _NEXT_TO_NONE, shared, 0.0), beyond

    def widen(self, ends: Array, parts: Array, alpha: float) -> None:
        """Widen intervals of sums, in place, by what the groups' margins may add.

        A group's margin is bounded towards the rarer outcome and unbounded away from it.  Half of
        `alpha` is for the errors of all groups of one sum together.

        Parameters
        ----------
        ends : array (n, 2)
            Intervals of the rest of each sum, without the groups' margins; changed.
        parts : array (n, groups)
            Weights of the groups' margins in the sums, from :meth:`shares_of`.
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
        """Construct from lists by field, for a table with this number of lines."""
        # Files of earlier versions have no threshold: their bounds are those of all counts.
        whole = {"printed": [math.inf] * len(plain["rows"])} | dict(plain)
        found = {name: np.array(whole[name], dtype=float) for name in cls._fields}
        for name in ("directions", "means"):
            found[name] = found[name].reshape(-1, lines)
        return cls(**found)


def no_groups(lines: int) -> HiddenGroups:
    """Return no groups, for a table with this number of lines."""
    return HiddenGroups(
        np.zeros((0, lines)), np.zeros((0, lines)), *(np.zeros(0) for _ in range(6))
    )
