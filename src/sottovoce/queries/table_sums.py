"""Sums of a descriptive table: of every group of rows the number of rows, counts of levels, and
moments and histograms of numbers, in one vector.

A row is one *code* a column: the number of its group, from 1, and for each block the number of its
level, from 1, or its number on a scale from -1 to 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..data.design import Design
from ..problem.facts import Facts
from ..problem.losses import Loss
from ..problem.trust import RELATIONS
from ..util.typing import Array, IntArray
from .bounded import Bounded

MISSING = 2.0
"""Code of a missing number; any code outside [-1, 1] has the same meaning."""


@dataclass(frozen=True)
class LevelSums:
    """Counts of the levels of a column: a row adds `scale` to the cell of its level.

    Parameters
    ----------
    cells : int
        How many levels.  A row with another code is in no cell.
    scale : float
        Public factor, which is the norm of what a row adds.
    """

    cells: int
    scale: float

    @property
    def entries(self) -> int:
        """Number of entries for each group."""
        return self.cells

    def sums_of_groups(self, codes: Array, group: IntArray, weight: Array, groups: int) -> Array:
        """Compute the sums of a node's rows with these codes, by group.

        Parameters
        ----------
        codes : array of shape (n,)
            Numbers of levels, from 1.
        group : integer array of shape (n,)
            Number of each row's group, from 1; 0 for none.
        weight : array of shape (n,)
        groups : int
            How many groups there are.

        Returns
        -------
        array of shape (groups, entries)
        """
        inside = (codes >= 0.5) & (codes < self.cells + 0.5)
        cell = np.rint(np.where(inside, codes, 0.0)).astype(np.int64) - 1
        return self.scale * _counts(cell, group, weight, (groups, self.cells))


@dataclass(frozen=True)
class NumberSums:
    """Moments of a number t in [-1, 1] and its histogram on a public grid, by group.

    A row adds ``scale (sqrt(p) t, sqrt(p) t^2, sqrt(h) e_cell)``, and with offsets ``scale sqrt(o)
    r`` in its cell, with ``2 p + h + o = 1`` and r in [0, 1] its place within the cell.  A missing
    number has moments 0 and a cell of its own, the last one.

    Parameters
    ----------
    edges : array of shape (cells - 1,)
        Public inner ends of the cells on the scale of t, increasing and inside (-1, 1).
    scale : float
        Public factor, at least the norm of what a row adds.
    moments : float
        The share p of each of the two moments in the squared norm, in [0, 1/2).
    offsets : float
        The share o of places within cells, 0 for none.
    """

    edges: Array
    scale: float
    moments: float = 0.35
    offsets: float = 0.0

    @property
    def cells(self) -> int:
        """Number of cells, that of missing numbers included."""
        return len(self.edges) + 2

    @property
    def entries(self) -> int:
        """Number of entries for each group: two moments, the cells, and places within them."""
        return 2 + self.cells + (self.cells - 1 if self.offsets else 0)

    @property
    def moment_factor(self) -> float:
        """What a row with ``t = 1`` adds to each of the two moments."""
        return self.scale * math.sqrt(self.moments)

    @property
    def cell_factor(self) -> float:
        """What a row adds to its cell."""
        return self.scale * math.sqrt(1.0 - 2.0 * self.moments - self.offsets)

    @property
    def offset_factor(self) -> float:
        """What a row at the upper end of its cell adds to the places."""
        return self.scale * math.sqrt(self.offsets)

    def sums_of_groups(self, codes: Array, group: IntArray, weight: Array, groups: int) -> Array:
        """Compute the sums of a node's rows with these codes, by group.

        Parameters
        ----------
        codes, group, weight, groups
            As for :meth:`LevelSums.sums_of_groups`; codes are numbers on the scale from -1 to 1.

        Returns
        -------
        array of shape (groups, entries)
        """
        known = np.abs(codes) <= 1.0
        t = np.where(known, codes, 0.0)
        inner = self.cells - 1
        cell = np.where(known, np.searchsorted(self.edges, t, side="right"), inner)
        everyone = np.zeros(len(t), dtype=np.int64)
        found = [
            self.moment_factor * _counts(everyone, group, weight * t, (groups, 1)),
            self.moment_factor * _counts(everyone, group, weight * t**2, (groups, 1)),
            self.cell_factor * _counts(cell, group, weight, (groups, self.cells)),
        ]
        if self.offsets:
            ends = np.concatenate([[-1.0], self.edges, [1.0]])
            own = np.where(known, cell, 0)
            place = np.clip((t - ends[own]) / np.diff(ends)[own], 0.0, 1.0)
            of_known = np.where(known, cell, -1)
            places = _counts(of_known, group, weight * place, (groups, inner))
            found.append(self.offset_factor * places)
        return np.concatenate(found, axis=1)


def _counts(cell: IntArray, group: IntArray, weight: Array, shape: tuple[int, int]) -> Array:
    """Add up weights by group, from 1, and cell, from 0; others are in none."""
    groups, cells = shape
    counted = (group > 0) & (cell >= 0)
    index = (group[counted] - 1) * cells + cell[counted]
    return np.asarray(np.bincount(index, weight[counted], groups * cells).reshape(shape), float)


@dataclass(frozen=True)
class TableSums(Bounded):
    """All sums of a descriptive table in one vector: the blocks' entries of group 1, then of 2, ...

    Parameters
    ----------
    at : array of shape (..., d)
        Only its shape is used.
    groups : int
        How many groups there are.  A row with another code adds nothing at all.
    blocks : tuple of LevelSums or NumberSums
        Block j is read from column `first` + j.
    by : int
        The column that holds the group's code.
    first : int
        The column of the first block.

    Guarantee
    ---------
    Let u and v be what two rows add, with blocks u_j and v_j, and s the squared sum of scales.  A
    block of levels adds ``scale`` to one cell; a block of a number has squared norm ``scale^2 (p
    t^2 + p t^4 + h + o r^2)``, at most ``scale^2``.  So ``||u||^2 <= s``, which is the sensitivity
    to a zeroed row.  For a replaced row ``||u - v||^2 <= 2 s``: if the groups differ, u and v have
    no entry in common.  In one group it holds block by block.  Levels and cells that differ move by
    ``2 scale^2`` times their shares; places within the same cell by ``o`` at most.  Moments move by
    ``p d^2 (1 + e^2)`` with ``d = t - t'`` and ``e = t + t'``, and as ``|d| + |e| <= 2`` that is at
    most ``p d^2 (1 + (2 - d)^2) <= 4 p``, with equality at ``d = 2``: up to 2 the left side has its
    maximum there.  The sum of these is ``2 (2 p + h + o) scale^2``.

    Rows count by their weights.  So what several rows of total weight at most 1 add lies in the
    convex hull of 0 and the vectors of single rows, whose diameter is that of its corners: a person
    moves the sum no further than one row.
    """

    of_people: ClassVar[bool] = True
    groups: int = 1
    blocks: tuple[LevelSums | NumberSums, ...] = ()
    by: int = 0
    first: int = 1

    @property
    def entries_of_group(self) -> int:
        """Number of entries for each group."""
        return sum(block.entries for block in self.blocks)

    def number_of_entries(self, facts: Facts) -> int:
        return self.groups * self.entries_of_group

    def largest_row_norm(self, facts: Facts) -> float:
        return math.sqrt(math.fsum(block.scale**2 for block in self.blocks))

    def exact_sum_sensitivity(self, facts: Facts) -> float:
        """Return the norm of a row, times sqrt 2 for a replaced row (proof: the class)."""
        return self.largest_row_norm(facts) * math.sqrt(RELATIONS[facts.relation])

    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Compute the sums over a block of rows.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`; of `at` only the shape is used.

        Returns
        -------
        array of shape (M, R, groups * entries of a group)
        """
        d = at.shape[-1]

        def read_column(number: int) -> Array:
            # The product with a unit vector reads one column.
            axis = np.broadcast_to(np.eye(d)[number], (len(at), 1, d))
            return np.asarray(block.to_numpy_array(block.change_of_margins(axis)))[:, 0]

        codes = read_column(self.by)
        inside = (codes >= 0.5) & (codes < self.groups + 0.5)
        group = np.rint(np.where(inside, codes, 0.0)).astype(np.int64)
        weight = np.ones(group.shape)
        if block.weight is not None:
            weight = np.asarray(block.to_numpy_array(block.weight))
        columns = [read_column(self.first + j) for j in range(len(self.blocks))]
        total = np.stack(
            [
                np.concatenate(
                    [
                        one.sums_of_groups(column[i], group[i], weight[i], self.groups)
                        for one, column in zip(self.blocks, columns, strict=True)
                    ],
                    axis=1,
                )
                for i in range(len(at))
            ]
        )
        return np.repeat(total.reshape(len(at), 1, -1), at.shape[1], axis=1)
