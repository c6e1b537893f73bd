"""When people leave the follow-up of a survival study: counts of people by public cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..data.design import Design
from ..problem.facts import Facts
from ..problem.losses import Loss
from ..util.typing import Array
from .bounded import Bounded, counts_by_cell


@dataclass(frozen=True)
class Exits(Bounded):
    """A histogram of the times at which people leave follow-up: shares of rows by public cell.

    Of a person's rows one holds a cell
    (:func:`sottovoce.estimators.hazard_rows.expand_to_interval_rows`), so a person adds at most 1.

    Parameters
    ----------
    at : array of shape (..., d)
        Only its shape is used.
    cells : int
        Number of cells.
    """

    cone: ClassVar[bool] = True  # counts
    cells: int = 1

    def number_of_entries(self, facts: Facts) -> int:
        return self.cells

    def largest_row_norm(self, facts: Facts) -> float:
        return 1.0

    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Count the rows of a block by cell.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`; of `at` only the shape is used.

        Returns
        -------
        array of shape (M, R, cells)
        """
        # The product with a unit vector reads the last column, which holds cell / cells.
        last = np.zeros((len(at), 1, at.shape[-1]))
        last[..., -1] = 1.0
        held = np.asarray(block.to_numpy_array(block.change_of_margins(last)))
        cell = np.clip(np.rint(held * self.cells), 0.0, self.cells).astype(np.int64)
        found = counts_by_cell(cell, cell > 0, self.cells + 1)[..., 1:]
        return np.broadcast_to(found, (*at.shape[:2], self.cells))
