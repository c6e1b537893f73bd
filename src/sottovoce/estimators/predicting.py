"""Margins of rows under a fitted classifier."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..answers.saved import SavedModel
from ..util.typing import Any, Array, IntArray


@dataclass(frozen=True)
class LinearModel:
    """A linear model of classes in the units of the columns, and of encoded rows where it has one.

    Parameters
    ----------
    coef : array (K, p), or (1, p) for two classes
    intercept : array (K,), or (1,)
    answered : SavedModel or None
        The model of raw columns or encoded rows, by the names of the classes.
    order : array of int or None
        Sorts the names of its classes; None without it.
    """

    coef: Array
    intercept: Array
    answered: SavedModel | None = None
    order: IntArray | None = None

    def margins(self, rows: Any, where: IntArray | None) -> Array:
        """Compute margins of rows, (n,) or (n, K), by the sorted classes.

        `where` holds the places of the rows' sites in the model.
        """
        if self.answered is None or self.order is None:
            return self.linear_margins(rows)
        margins = self.answered.margins(rows, where=where).T
        if len(self.order) != 2:
            return np.asarray(margins[:, self.order])
        # The one margin of two classes is for the second of them.
        if self.order[0] == 0:
            return margins
        return -margins

    def linear_margins(self, rows: Any) -> Array:
        """Return ``rows @ coef.T + intercept``, (n,) or (n, K)."""
        margins = np.asarray(rows @ self.coef.T + self.intercept)
        if len(self.coef) == 1:
            return margins[:, 0]
        return margins


__all__ = ["LinearModel"]
