"""Where residuals are clipped, and which rows that concerns (docs/privacy/answers.md, "What h does").

Residuals that are clipped by c on average in rows whose mean is u move least squares by ``M^-1 u c``.  If these rows
are like all others, that moves the constant alone.  Where residuals are larger for some rows than for others, as costs
are, large ones are there; squares of residuals tell where, and were released.
"""

from __future__ import annotations

import math

import numpy as np

from ..util.typing import Array

FARTHER = 1.5
"""How much farther out than rows weighed by squared residuals those in a tail are, from the mean of all rows.

If the logarithm of a spread is linear in normal columns, weights by the power a of residuals move the mean row in
proportion to a, and the chance of a residual beyond an edge grows with the power a of the spread if the tail falls as
its power -a.  Mean excesses need a above 1; at 3 it is 3/2 of what squares tell.
"""
MARGIN = math.sqrt(2.0)
"""Residuals are kept up to this many times the edge beyond which none are seen."""
_SEEN = 2.0  # noise deviations by which residuals beyond an edge are taken to be there
_CLEAR = 3.0  # noise deviations by which the mean square of residuals must be above 0 to tell anything


def width(cells: Array, noise: float, edges: Array) -> float:
    """The h at which residuals are clipped: above the least edge beyond which a noisy histogram shows none."""
    for k, edge in enumerate(edges):
        beyond = cells[k + 1 :]
        if float(beyond.sum()) <= _SEEN * noise * math.sqrt(len(beyond)):
            return min(float(edge) * MARGIN, float(edges[-1]))
    return float(edges[-1])


def second_moments(M: Array, J: Array, noise: Array, constant: Array) -> Array:
    """Second moments of the mean row u of those whose residuals are clipped, in a frame, (R, d, d).

    Beforehand u less the mean of all rows is like one row.  Rows weighed by squared residuals tell u but for noise, by
    which what is known beforehand is drawn to it.

    Parameters
    ----------
    M : array (R, d, d)
        Second moments of rows.
    J : array (R, d, d)
        Second moments of rows times residuals, with errors of deviation `noise` on an entry, (R,).
    constant : array (R, d)
        Its product with every row is the same.
    """
    mean = np.einsum("rij,rj->ri", M, constant)
    entry = np.sqrt(np.maximum(np.sum(mean * constant, axis=1, keepdims=True), 1e-12))
    constant, mean = constant / entry, mean / entry  # now the product is 1
    weighed = np.einsum("rij,rj->ri", J, constant)
    square = np.sum(weighed * constant, axis=1, keepdims=True)  # the mean square of residuals
    length = np.sum(constant**2, axis=1, keepdims=True)
    told = square > _CLEAR * noise[:, None] * length
    square = np.where(told, square, 1.0)
    variance = np.where(told, 0.5 * noise[:, None] ** 2 * length / square**2, np.inf)
    values, vectors = np.linalg.eigh(M)
    values = np.maximum(values, 1e-300)
    share = values / (values + variance)
    away = np.where(told, weighed / square - mean, 0.0)
    known = FARTHER * share * np.einsum("rji,rj->ri", vectors, away)
    tail = mean + np.einsum("rij,rj->ri", vectors, known)
    unknown = values * (1.0 - share)
    return np.asarray(
        tail[:, :, None] * tail[:, None, :] + (vectors * unknown[:, None, :]) @ vectors.transpose(0, 2, 1)
    )
