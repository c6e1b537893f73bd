"""Corrections to sums of smooth statistics that are computed from a histogram of scores.

A histogram tells the sum of any statistic of score and label up to where scores lie within their
cells.  What a row adds to these corrections is the difference, which is small, so that noise in
them is too.  Every statistic here depends on the row's own score, label and group, and on public
numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np

from ..data.design import Design
from ..problem.facts import Facts
from ..problem.losses import Loss
from ..util.later import Later
from ..util.typing import Array, IntArray
from .bounded import Bounded, labels_of, score_cells

special = Later("scipy.special")

STATISTICS = 9
"""Number of statistics of a row, in the order of :func:`added_statistics`."""
# Places of the statistics in that order.
SCORE: slice = slice(0, 2)
INFORMATION: slice = slice(2, 5)
IN_THE_LARGE, OBSERVED_LESS_EXPECTED, ORDER, BENT = 5, 6, 7, 8
_FLOOR = 1e-300


@dataclass(frozen=True)
class Curves:
    """Public numbers that statistics of rows depend on, of R replicates and B blocks of rows.

    Scores u are log-odds of the judged model, less those at the middle of the cells.
    """

    level: Array  # recalibrated log-odds at u = 0                              (R, B)
    slope: Array  # of recalibrated log-odds in u                               (R, B)
    base: Array  # log-odds of the judged model at u = 0                        (R, B)
    shift: Array  # that is added to the model's log-odds, in the large         (R, B)
    reach: Array  # distance from u = 0 beyond which rows count less            (R, B)
    worth: Array  # of a row in the recalibration, by cell                      (R, B, cells)
    order: Array  # what a row adds to the area, in its place in the cell       (R, B, 2, cells)
    tails: Array  # mean distances of rows in the open cells from the edges     (R, B, 2)

    def curve_of_block(self, replicate: int, block: int) -> Self:
        """Return the numbers of one replicate's block."""
        return type(self)(**{name: value[replicate, block] for name, value in vars(self).items()})


def added_statistics(
    curve: Curves, u: Array, positive: Array, cell: IntArray, place: Array
) -> Array:
    """Compute what rows add to each sum, before the part of their cell is taken away.

    With w the worth of a row, ``p = expit(level + slope u)`` and y its label, 0 or 1: the score ``w
    (y - p) (1, u)`` of a logistic regression of y on u, its information ``w p (1 - p) (1, u,
    u^2)``, ``y`` less the shifted model's probability, ``y`` less the model's, the place in the
    cell less one half times `order`, and how the shifted model's probability grows with the shift.

    Rows beyond the reach count by its square over theirs: in a regression that holds, weights by u
    move no coefficient.

    Parameters
    ----------
    curve : Curves
        Of one block; several reaches (...), each with worths (..., cells), are tried at once.
    u : array of shape (n,) or (..., n)
        Scores, as log-odds less those at the middle of the cells.
    positive : array of shape (n,)
        Labels, 0 or 1.
    cell : integer array of shape (n,)
        Numbers of the scores' cells.
    place : array of shape (n,) or (..., n)
        Places within the cells, from 0 to 1 (:func:`places_within_cells`).

    Returns
    -------
    array of shape (..., n, STATISTICS)
    """
    line = line_statistics(curve, u, positive, curve.worth[..., cell], curve.reach[..., None])
    own = bounded_log_odds(curve.base + u)
    shifted, unlikely = special.expit(own + curve.shift), special.expit(-own - curve.shift)
    found = np.empty((*line.shape[:-1], STATISTICS))
    found[..., : INFORMATION.stop] = line
    found[..., IN_THE_LARGE] = positive - shifted
    found[..., OBSERVED_LESS_EXPECTED] = positive - special.expit(own)
    found[..., ORDER] = curve.order[positive.astype(np.int64), cell] * (place - 0.5)
    found[..., BENT] = shifted * unlikely
    return found


def bounded_log_odds(log_odds: Array) -> Array:
    """Return log-odds whose probabilities are neither 0 nor 1; faster than ``np.clip``."""
    return np.asarray(np.minimum(np.maximum(log_odds, -700.0), 700.0))


def line_statistics(curve: Curves, u: Array, positive: Array, worth: Array, reach: Array) -> Array:
    """Compute score and information of a logistic regression on u, as in :func:`added_statistics`.

    Parameters
    ----------
    curve : Curves
        Of one block.
    u : array
        Scores, as log-odds.  All arrays broadcast.
    positive : array
        Labels, 0 or 1.
    worth : array
        Weights of rows in the regression.
    reach : array
        Distance from u = 0 up to which rows count in full, > 0.

    Returns
    -------
    array of shape (..., 5)
        Two entries of the score, then three of the information.
    """
    near = share_in_reach(u, reach)
    bent = near * u
    log_odds = bounded_log_odds(curve.level + curve.slope * u)
    p, other = special.expit(log_odds), special.expit(-log_odds)
    slope = worth * np.where(positive > 0, other, -p)
    information = worth * p * other
    columns = [
        slope * near**2,
        slope * near * bent,
        information * near**2,
        information * near * bent,
        information * bent**2,
    ]
    found = np.empty((*np.broadcast_shapes(slope.shape, near.shape), len(columns)))
    for entry, column in enumerate(columns):
        found[..., entry] = column
    return found


def share_in_reach(u: Array, reach: Array) -> Array:
    """Return the root of rows' weights: 1 within the reach, and ``reach / |u|`` beyond it."""
    return np.asarray(reach / np.maximum(np.abs(u), reach))


def places_within_cells(edges: Array, u: Array, cell: IntArray, tails: Array) -> Array:
    """Compute where scores lie within their cells.

    Parameters
    ----------
    edges : array of shape (cells - 1,)
        Even edges of the cells; below the first and above the last the cells are open.
    u : array of shape (n,)
        Scores.
    cell : integer array of shape (n,)
        Numbers of their cells, from 0.
    tails : array of shape (2,)
        Mean distances of scores in the two open cells from their edges.

    Returns
    -------
    array of shape (n,)
        From 0 to 1.  In the open cells places are uniform if distances from the edge are
        exponential with these means.
    """
    width = edges[1] - edges[0]
    inner = (u - edges[np.clip(cell - 1, 0, len(edges) - 2)]) / width
    below = np.exp(-np.maximum(edges[0] - u, 0.0) / tails[0])
    above = -np.expm1(-np.maximum(u - edges[-1], 0.0) / tails[1])
    return np.where(cell == 0, below, np.where(cell == len(edges), above, np.clip(inner, 0.0, 1.0)))


@dataclass(frozen=True)
class Corrections(Bounded):
    """Means of :func:`added_statistics` less their values by cell, for all rows and for each group.

    A row's contribution is clipped to norm 1; if there are groups, to norm ``sqrt(1/2)`` in each of
    the two blocks that the row is in.  Units that follow from earlier releases leave nothing to
    clip.  So the bound holds whatever the public numbers are.  A row without a known label adds
    nothing.

    Parameters
    ----------
    at : array of shape (..., d)
        Public point w of the scores.
    constant, edges, groups : arrays
        As for :class:`sottovoce.queries.Scores`; edges are even.
    curves : Curves, optional
        Public numbers of the statistics; a plan needs none.
    values : array of shape (R, B, 2, cells, STATISTICS)
        Value of each label and cell, which is taken from the statistics of its rows.
    units : array of shape (R, B, STATISTICS)
        By which differences are divided, > 0.
    """

    constant: Array | None = None
    edges: Array | None = None
    groups: Array | None = None
    curves: Curves | None = field(default=None, metadata={"whole": True})
    values: Array | None = field(default=None, metadata={"whole": True})
    units: Array | None = field(default=None, metadata={"whole": True})

    cone: ClassVar[bool] = False

    @property
    def blocks(self) -> int:
        """Number of blocks of rows: all rows, and each group if there are several."""
        if self.groups is None:
            return 1
        return 2 + len(self.groups)

    def number_of_entries(self, facts: Facts) -> int:
        return self.blocks * STATISTICS

    def largest_row_norm(self, facts: Facts) -> float:
        return 1.0

    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Compute the sum of clipped differences over a block of rows.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`.

        Returns
        -------
        array of shape (M, R, blocks * STATISTICS)
        """
        assert self.edges is not None and self.units is not None
        sign = labels_of(block, self.constant, at)
        score, group, cell = score_cells(block, at, sign, self.edges, self.groups)
        found = np.zeros((*at.shape[:2], self.blocks, STATISTICS))
        for m, r in np.ndindex(at.shape[:2]):
            known = sign[m, r] != 0.0
            u, positive = score[m, r][known], (sign[m, r][known] > 0).astype(float)
            own, mine = cell[m, r][known], group[m, r][known]
            for b in range(self.blocks):
                inside = np.ones(len(u), dtype=bool)
                # Block 0 has all rows, block b those of group b - 1.
                if b > 0:
                    inside = mine == b - 1
                found[m, r, b] = self._sum(r, b, u[inside], positive[inside], own[inside])
        return found.reshape(*at.shape[:2], -1)

    def _sum(self, replicate: int, block: int, u: Array, positive: Array, cell: IntArray) -> Array:
        """Return the sum of clipped differences over rows of one block, of shape (STATISTICS,).

        `u`, `positive` and `cell` are as for :func:`added_statistics`, of rows of that block.
        """
        assert self.curves is not None and self.values is not None and self.units is not None
        assert self.edges is not None
        r = min(replicate, len(self.units) - 1)
        curve = self.curves.curve_of_block(r, block)
        found = added_statistics(
            curve, u, positive, cell, places_within_cells(self.edges, u, cell, curve.tails)
        )
        missed = (found - self.values[r, block][positive.astype(np.int64), cell]) / self.units[
            r, block
        ]
        # Whatever the public numbers are, what is clipped must be finite.
        if not np.isfinite(missed).all():
            missed = np.nan_to_num(missed, nan=0.0, posinf=1e150, neginf=-1e150)
        # Norms in units of the largest entry, whose squares do not overflow, rounded up.
        largest = np.maximum(np.max(np.abs(missed), axis=1, initial=_FLOOR), 1.0)[:, None]
        length = (
            largest * np.linalg.norm(missed / largest, axis=1, keepdims=True) * (1.0 + 2.0**-40)
        )
        share = 1.0
        # A row is in two blocks, that of all rows and its group's.
        if self.blocks > 1:
            share = np.sqrt(0.5)
        return np.asarray(np.sum(missed / np.maximum(length, 1.0), axis=0) * share)
