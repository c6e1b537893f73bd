"""What the rows of merged levels may do to the level that they are counted with.

A level that noise hides is counted with its reference, and a rare reference with the most frequent
level (:meth:`sottovoce.answers.inference.Newton`).  These rows then pull the log-odds of that
group: an error in one direction, that of the group's mean row, and in every contrast with it.  See
docs/privacy/answers.md, "What merged rows may do to other lines".
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..util.typing import Array, BoolArray
from .references import Block, blocks_of, directions_of

UNLIKE = 1.25
"""Standard deviation, taken beforehand, of the log-odds of a merged level about those of the group
that it is counted with.

Noise hides a level that is unlike its group by less than about 2, which is 1.6 of these deviations.
"""
BEYOND = 2.0
"""Noise deviations by which the gradient of the merged rows must exceed 0 to show how unlike they
are.
"""


class MergedLevels(NamedTuple):
    """The merged levels of each block, of R replicates and B blocks of levels.

    Parameters
    ----------
    shares : array (R, B)
        Shares of all rows that are of merged levels, at least one deviation of their noise where a
        level is merged; 0 where none is.
    forms : array (R, B, d)
        Linear forms of a row that are 1 in these rows, and 0 in others.
    columns : bool array (B, d)
        The columns of each block.
    """

    shares: Array
    forms: Array
    columns: BoolArray

    @classmethod
    def of(
        cls, blocks: tuple[Array, Array, Array, float], S: Array, spread: float, kept: BoolArray
    ) -> MergedLevels:
        """Find the merged levels.

        Parameters
        ----------
        blocks : (marks, blocks, constant, value)
            As for :func:`sottovoce.answers.references.blocks_of`.
        S : array (R, d, d)
            Released second moments.
        spread : float
            Standard deviation of the noise on an entry of S.
        kept : bool array (R, d)
            Columns that were not merged.
        """
        directions = directions_of(*blocks)
        columns = np.zeros((len(directions), S.shape[-1]), dtype=bool)
        for b, (own, _) in enumerate(directions):
            columns[b, own] = True
        shares = np.zeros((len(S), len(directions)))
        forms = np.zeros((len(S), len(directions), S.shape[-1]))
        for r in range(len(S)):
            found = zip(blocks_of(*blocks, S[r]), directions, strict=True)
            for b, (block, (_, indicators)) in enumerate(found):
                merged = levels_merged(block, kept[r])
                if not np.any(merged):
                    continue
                seen = np.append(block.shares, block.reference)[merged].sum()
                noise = spread * math.sqrt(float(np.sum(block.deviations[merged] ** 2)))
                shares[r, b] = max(float(seen), noise)
                forms[r, b] = indicators[merged].sum(axis=0)
        return cls(shares, forms, columns)

    def covariance(
        self,
        step: Array,
        mean: Array,
        curvature: Array,
        positives: Array,
        seen: tuple[Array, float],
    ) -> Array:
        """Compute what they may add to the covariance of the estimate, (R, d, d).

        Their rows change the mean gradient by an error along the mean row of their group, whose
        columns of the block are 0.

        Parameters
        ----------
        step : array (R, d, d)
            The estimate's change for a change of the mean gradient: the inverse Hessian.
        mean : array (R, d)
            The mean row, without merged columns.
        curvature : array (R,)
            Mean curvature of the rows.
        positives : array (R,)
            Share of positives.
        seen : (gradient, spread)
            The mean gradient at the last point, (R, d), and the deviation of its noise.
        """
        gradient, spread = seen
        likely = (UNLIKE * self.shares * curvature[:, None]) ** 2
        # What the rows' own gradient shows beyond its noise, and what it may be at most.
        shown = np.einsum("rbd,rd->rb", self.forms, gradient)
        noise = spread * np.linalg.norm(self.forms, axis=2)
        most = self.shares * np.maximum(positives, 1.0 - positives)[:, None]
        squares = np.clip(shown**2 - (BEYOND * noise) ** 2, likely, np.maximum(likely, most**2))
        rows = np.where(self.columns, 0.0, mean[:, None, :])
        moved = np.einsum("rij,rbj->rbi", step, rows) * np.sqrt(squares)[:, :, None]
        moved = np.where(self.shares[:, :, None] > 0.0, moved, 0.0)
        return np.asarray(np.einsum("rbi,rbj->rij", moved, moved))


def levels_merged(block: Block, kept: BoolArray) -> BoolArray:
    """Return which levels of a block, and last its reference, are counted with another."""
    hidden = np.append(~kept[block.columns], False)
    most = int(np.argmax(block.shares))
    if hidden[most] and block.shares[most] >= block.reference:
        # It has no column because the rare reference was merged with it.
        hidden[most] = False
        hidden[-1] = True
    return hidden
