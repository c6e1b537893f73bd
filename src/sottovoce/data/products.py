"""Products of rows with public vectors in which every result depends on its own row alone, to the
last bit.

How a linear algebra library rounds a row's product depends on where the row stands: the last one
to three rows of a matrix go through another kernel than those before.  So the number of one
person's rows may change the last bits of other people's scores.  Where scores are then counted in
cells, that could move other people into another cell, which no sensitivity covers.
"""

from __future__ import annotations

import numpy as np

from ..util.typing import Array

# A block of so many rows stays in cache while its columns are added.
_ROWS_AT_ONCE = 4096


def products_by_row(X: Array, W: Array) -> Array:
    """Compute ``X @ W.T``, transposed, so that each result depends on its own row alone.

    Products are added up column after column.

    Parameters
    ----------
    X : array (n, d)
        Rows.
    W : array (d,) or (K, d)
        One public vector, or K of them.

    Returns
    -------
    array (n,) or (K, n)

    Guarantee
    ---------
    Entry k is a function of row k and of `W`: neither the number of rows, nor the other rows, nor
    the place of a row among them, nor the arrays' order in memory changes a bit of it.  Each is one
    elementwise product and one elementwise sum a column, in the order of the columns, each
    correctly rounded.  What overflows is infinite or NaN.

    Examples
    --------
    >>> products_by_row(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 10.0]))
    array([21., 43.])
    """
    X = np.asarray(X, dtype=float)
    W = np.asarray(W, dtype=float)
    vectors = W[None] if W.ndim == 1 else W
    found = np.zeros((len(vectors), len(X)))
    for first in range(0, len(X), _ROWS_AT_ONCE):
        some = slice(first, first + _ROWS_AT_ONCE)
        columns = np.ascontiguousarray(X[some].T)
        for vector, total in zip(vectors, found[:, some], strict=True):
            # Column by column, not as one product, whose rounding depends on where a row stands.
            for weight, column in zip(vector.tolist(), columns, strict=True):
                # A warning would tell of a row.
                with np.errstate(over="ignore", invalid="ignore"):
                    total += weight * column
    if W.ndim == 1:
        return found[0]
    return found
