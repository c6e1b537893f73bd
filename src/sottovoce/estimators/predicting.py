"""Margins of rows under a fitted classifier.

A margin is the linear score of a class: log-odds under the logistic loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..answers.saved import SavedModel
from ..util.typing import Any, Array, IntArray


@dataclass(frozen=True)
class LinearModel:
    """A linear model of K classes, in the units of the columns and, under a schema, as it encodes.

    Parameters
    ----------
    coef : array (K, p), or (1, p) for two classes
    intercept : array (K,), or (1,)
    answered : SavedModel or None
        The model with its encoding, in the schema's order of classes; used in place of `coef`.
    order : array of int (K,) or None
        Positions that sort its class names; None without it.
    """

    coef: Array
    intercept: Array
    answered: SavedModel | None = None
    order: IntArray | None = None

    def margins(self, rows: Any, where: IntArray | None) -> Array:
        """Compute margins of rows: (n,) for two classes, else (n, K) by sorted class.

        `rows` are raw columns for a model under a schema, else an array (n, p); `where` (n,) are
        the indices of the rows' sites in the model, or None.
        """
        if self.answered is None or self.order is None:
            return self.linear_margins(rows)
        margins = self.answered.margins(rows, where=where).T
        if len(self.order) != 2:
            return np.asarray(margins[:, self.order])
        # Two classes have one margin, for the second in the schema's order.
        schema_order_is_sorted = self.order[0] == 0
        if schema_order_is_sorted:
            return margins
        return -margins

    def linear_margins(self, rows: Any) -> Array:
        """Return ``rows @ coef.T + intercept``, (n,) or (n, K)."""
        margins = np.asarray(rows @ self.coef.T + self.intercept)
        if len(self.coef) == 1:
            return margins[:, 0]
        return margins


__all__ = ["LinearModel"]
