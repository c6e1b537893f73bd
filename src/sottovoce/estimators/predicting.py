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
        """Margins (n,) or (n, K) of rows, of the sites in these places, by the sorted classes."""
        if self.answered is None or self.order is None:
            return self.linear(rows)
        margins = self.answered.margins(rows, where=where).T
        if len(self.order) == 2:
            return margins if self.order[0] == 0 else -margins
        return np.asarray(margins[:, self.order])

    def linear(self, rows: Any) -> Array:
        """``rows @ coef.T + intercept``, (n,) or (n, K)."""
        margins = np.asarray(rows @ self.coef.T + self.intercept)
        return margins[:, 0] if len(self.coef) == 1 else margins


__all__ = ["LinearModel"]
