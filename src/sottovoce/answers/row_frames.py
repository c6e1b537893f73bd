"""Choice of the frame of least squares: a matrix A by which all rows are multiplied before they are
summed (:mod:`sottovoce.answers.least_squares`).

With second moments S of the rows a, frames ``A = S^(-p/2) / e`` with p from 0 to 1 are compared.  e
is the largest length of a row ``S^(-p/2) a``, so that rows ``u = A a`` are no longer than 1.  Noise
of deviation s in a gradient of the u moves the coefficients by a noise of covariance ``s^2 e^2
S^(p - 2)``.  At p = 0 rows are unchanged, with e = 1; at p = 1 second moments are the identity
(full whitening).  Correlated normal columns have the least noise at p = 1; rare levels, whose rows
are long there, have less at a smaller p.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..util.typing import Array, BoolArray
from .frames import Frame
from .inference import TAU, second_order_share

ROUGH = 2.0 ** np.arange(-0.5, 4.25, 0.5)
"""Edges of public cells of a row's length, over its root mean square at p = 1."""
FINE = 2.0 ** np.arange(-2.0, 1.75, 0.25)
"""Edges of public cells of a row's length, over the largest expected one.

Few cells lie beyond 1: now and then noise alone makes rows appear in a far cell, and with a frame
that is scaled for them all other rows would drown in noise.
"""
POWERS = np.linspace(0.0, 1.0, 9)
"""Values of p that are compared."""
# A refused coefficient counts as one with 4 times the standard error: added to its log variance.
_REFUSED = 2.0 * math.log(4.0)
# Noise deviations by which the share of rows beyond an edge must exceed 0 to count as some.
_SEEN = 2.5


def reach(cells: Array, spread: float, edges: Array) -> Array:
    """Find the smallest clipping thresholds beyond which a noisy histogram of norms shows no row.

    Parameters
    ----------
    cells : array (R, cells)
        The answer of :class:`sottovoce.queries.Lengths`.
    spread : float
        Standard deviation of the noise on an entry.
    edges : array (cells - 1,)
        Public edges of the cells.

    Returns
    -------
    array (R,)
    """
    beyond = np.cumsum(cells[:, ::-1], axis=1)[:, ::-1][:, 1:]
    doubt = _SEEN * spread * np.sqrt(np.arange(beyond.shape[1], 0, -1))
    none = beyond <= doubt
    return np.asarray(edges[np.where(none.any(axis=1), none.argmax(axis=1), len(edges) - 1)])


class Ahead(NamedTuple):
    """Standard deviations of the noise in the answers that will be asked in a frame."""

    of_moments: float  # on an entry of second moments
    # on an entry of all gradients together, over the standard deviation of residuals
    of_gradients: float


def best_power(
    S: Array, length: Array, kept: BoolArray, rows: float, ahead: Ahead, comparisons: Array
) -> Frame:
    """Choose the frame ``S^(-p/2)`` in which coefficients have the least mean log standard error.

    A coefficient that would be refused for the noise in the moments
    (:func:`sottovoce.answers.inference.second_order_share`) counts with four times its standard
    error.

    A row is at most 1 long at p = 0, and `length` at p = 1; so it is at most ``length^p`` long in
    between, as ``log |S^(-p/2) a|`` is convex in p.  Residuals are taken to have the same variance
    in all rows.

    Parameters
    ----------
    S : array (R, d, d)
        Second moments, positive definite, with zeros between `kept` columns and others.
    length : array (R,)
        Largest length of a row at p = 1.
    kept : bool array (d,)
        Columns that take part.
    rows : float
        Number of rows.
    ahead : Ahead
        Noise of the answers to come.
    comparisons : array (m, d)
        Weights of the sums of coefficients whose standard errors are compared.

    Returns
    -------
    Frame
    """
    values, vectors = np.linalg.eigh(S)
    turned = vectors.transpose(0, 2, 1)
    every, along = np.tile(kept, (len(S), 1)), (comparisons @ vectors) ** 2
    sampling = np.einsum("rmi,ri->rm", along, 1.0 / values) / rows
    costs = []
    for p in POWERS:
        size = length**p
        # Variance s^2 e^2 c' S^(p - 2) c with e <= length^p; sampling does not depend on the frame.
        noise = np.einsum("rmi,ri->rm", along, values ** (p - 2.0))
        noise = noise * (ahead.of_gradients * size[:, None]) ** 2
        A = (vectors * (values ** (-p / 2.0) / size[:, None])[:, None, :]) @ turned
        noises = np.full(len(S), ahead.of_moments)
        refused = second_order_share(A, A @ S @ A, every, noises, comparisons) > TAU
        costs.append(np.mean(np.log1p(noise / sampling) + _REFUSED * refused, axis=1))
    power = POWERS[np.argmin(costs, axis=0)]
    root, size = values ** (power / 2.0)[:, None], (length**power)[:, None, None]
    both = kept[:, None] & kept
    A = (vectors / root[:, None, :]) @ turned * both / size
    return Frame(A, (vectors * root[:, None, :]) @ turned * both * size)


def length_of_levels(S: Array, marks: Array) -> Array:
    """Estimate the length of the rarest level's rows at p = 1, (R,).

    It is about ``s^-1/2`` for a level with the share s of the rows.  `S`, (R, d, d), are second
    moments, and `marks`, (d,), as in :class:`sottovoce.answers.least_squares.Stepped`.
    """
    inverse = np.einsum("rii->ri", np.linalg.inv(S))
    return np.asarray(np.sqrt(np.max(marks**2 * inverse, axis=1)))
