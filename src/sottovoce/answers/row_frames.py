"""Frames for sums of rows and of their gradients: how far directions are stretched, and how long rows may be there.

With ``A = S^(-p/2) / e`` rows ``u = A a`` are shorter than 1 if e is the largest of their lengths before.  Noise of
deviation s in a gradient of the u then moves the coefficients by a noise of covariance ``s^2 e^2 S^(p - 2)``: p = 0 are
rows as they are, with e = 1, and p = 1 the frame in which second moments are the identity.  Normal columns that are
related to each other have little noise at p = 1, and rare levels, whose rows are long there, below it.
"""

from __future__ import annotations

import numpy as np

from ..util.typing import Array, BoolArray
from .frames import Frame

ROUGH = 2.0 ** np.arange(-1.0, 6.25, 0.5)
"""Public cells of a row's length, over the root mean square that it has at p = 1."""
FINE = 2.0 ** np.arange(-3.0, 3.25, 0.25)
"""Public cells of a row's length, over the largest that was expected."""
POWERS = np.linspace(0.0, 1.0, 9)
_SEEN = 2.0  # noise deviations by which rows beyond an edge are taken to be there


def reach(cells: Array, spread: float, edges: Array) -> Array:
    """The least edges beyond which a noisy histogram of lengths shows no row, (R,).

    `cells` is the answer of :class:`sottovoce.queries.Lengths`, (R, cells), with noise of deviation `spread` an entry.
    """
    beyond = np.cumsum(cells[:, ::-1], axis=1)[:, ::-1][:, 1:]
    doubt = _SEEN * spread * np.sqrt(np.arange(beyond.shape[1], 0, -1))
    none = beyond <= doubt
    return np.asarray(edges[np.where(none.any(axis=1), none.argmax(axis=1), len(edges) - 1)])


def best_power(S: Array, length: Array, kept: BoolArray) -> Frame:
    """The frame of the p with the least mean, over columns, of a coefficient's noise over its sampling.

    A row is at most 1 long at p = 0, and `length` (R,) at p = 1; so it is at most ``length^p`` long in between, as
    ``log |S^(-p/2) a|`` is convex in p.  The sampling of a coefficient is that of residuals of one spread.

    Parameters
    ----------
    S : array (R, d, d)
        Second moments, positive definite, without products of columns that are `kept` and others.
    """
    values, vectors = np.linalg.eigh(S)
    sampling = np.einsum("rji,ri,rji->rj", vectors, 1.0 / values, vectors)
    costs = []
    for p in POWERS:
        noise = np.einsum("rji,ri,rji->rj", vectors, values ** (p - 2.0), vectors)
        costs.append(length ** (2.0 * p) * np.mean((noise / sampling)[:, kept], axis=1))
    power = POWERS[np.argmin(costs, axis=0)]
    root, size = values ** (power / 2.0)[:, None], (length**power)[:, None, None]
    both, turned = kept[:, None] & kept, vectors.transpose(0, 2, 1)
    A = (vectors / root[:, None, :]) @ turned * both / size
    return Frame(A, (vectors * root[:, None, :]) @ turned * both * size)
