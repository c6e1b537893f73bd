"""Choice of the threshold h at which least squares clips residuals, and the error that it causes
(docs/privacy/answers.md, "What h does").

Used by :mod:`sottovoce.answers.least_squares`; residuals are in half widths of the target's bounds,
and noisy histograms of their size tell how many lie beyond a threshold.

Clipping residuals by c on average, in rows with the mean u, moves the least squares estimate by
``M^-1 u c``, with second moments M.  If these rows are like all others, that moves the constant
alone.  If some rows have larger residuals than others, as with costs, they are the ones that are
clipped, and u differs from the mean row.  The released moments of rows times squared residuals tell
in which direction.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..util.typing import Array
from .frames import compose_from_eigenvalues

FARTHER = 1.5
"""Distance of the mean row of clipped residuals from the mean of all rows, divided by the distance
of the mean row weighted by squared residuals.

If the logarithm of a spread is linear in normal columns, weights by the power a of residuals move
the mean row in proportion to a, and the chance of a residual beyond an edge grows with the power a
of the spread if the tail falls as its power -a.  Mean excesses need a above 1; with a = 3 the
shift is 3/2 of that by squares (a = 2).
"""
MARGIN = math.sqrt(2.0)
"""h over the smallest edge of the histogram beyond which no residuals show."""
POWER = 2.6
"""Where noise hides the tail, the share of residuals beyond x is taken to fall as ``x^-POWER``."""
_PARTS = np.arange(4) / 4.0
"""Positions between an edge and the next one, on a logarithmic scale, at which an h is tried."""
_ROUNDED = 1.0 + 1e-9
"""Tolerance for rounding in comparisons of edges."""
_SEEN = 2.0
"""Noise deviations by which the share of residuals beyond an edge must exceed 0 to be seen."""
_CLEAR = 3.0
"""Noise deviations by which the mean square of residuals must exceed 0 to be used."""


def choose_clipping_width(cells: Array, noise: float, edges: Array) -> float:
    """Choose the clipping threshold h: `MARGIN` times the smallest edge beyond which none show.

    Parameters
    ----------
    cells : array (edges + 1,)
        Noisy shares of residuals by size.
    noise : float
        Standard deviation of the noise on a share.
    edges : array (edges,)
        Inner edges of the cells, in half widths of the target's bounds.

    Returns
    -------
    float
        At most the last edge.
    """
    for k, edge in enumerate(edges):
        beyond = cells[k + 1 :]
        # a sum of that many noisy shares
        if float(beyond.sum()) <= _SEEN * noise * math.sqrt(len(beyond)):
            return min(float(edge) * MARGIN, float(edges[-1]))
    return float(edges[-1])


class Costs(NamedTuple):
    """Parts of the variances of m coefficients, (m,), as functions of the threshold h."""

    sampling: Array  # does not depend on h
    noise: Array  # to be multiplied by h^2
    clipped: Array  # to be multiplied by the square of the mean amount of clipping
    weights: Array  # of the coefficients, in the mean of the logarithms of their variances

    def variances_at_width(self, h: float, clipped: float) -> Array:
        """Compute the variances, (m,), where residuals are clipped at h by `clipped` on average."""
        return np.asarray(self.sampling + h**2 * self.noise + clipped**2 * self.clipped)


def choose_cheapest_width(cells: Array, noise: float, edges: Array, costs: Costs) -> float:
    """Choose the threshold h with the least mean log variance of the coefficients.

    :func:`choose_clipping_width` is the largest that is tried.  With little noise in the histogram
    it is so large that a smaller h is better: the few residuals in between move coefficients by
    less than the additional noise.

    Parameters
    ----------
    cells, noise, edges
        As for :func:`choose_clipping_width`.
    costs : Costs
        How the variances depend on h.

    Returns
    -------
    float
    """
    # Four to a cell of the histogram, evenly by their logarithm.
    ratios = (edges[1:] / edges[:-1])[:, None]
    within_cells = edges[:-1, None] * ratios**_PARTS
    tried = np.append(within_cells.ravel(), edges[-1])
    tried = tried[tried <= choose_clipping_width(cells, noise, edges) * _ROUNDED]
    variances = []
    for h in tried.tolist():
        # Two noise deviations are added, so that a tail which noise hides is not taken for none.
        clipped = estimate_mean_clipping(cells, noise, edges, h, doubt=_SEEN)
        variances.append(costs.variances_at_width(h, clipped))
    mean_logarithms = np.log(variances) @ costs.weights
    return float(tried[int(np.argmin(mean_logarithms))])


def estimate_mean_clipping(
    cells: Array, noise: float, edges: Array, h: float, doubt: float = 1.0
) -> float:
    """Estimate the mean amount by which residuals are clipped at h, from a noisy histogram.

    That is the integral, from h on, of the share of residuals beyond x.  The share is interpolated
    as an exponential between edges beyond which residuals show, and extrapolated as ``x^-POWER``
    where none show.

    Parameters
    ----------
    cells, noise, edges
        As for :func:`choose_clipping_width`.
    h : float
        Where residuals are clipped.
    doubt : float
        Noise deviations that are added to the shares.

    Returns
    -------
    float
    """
    # Shares of rows beyond each edge; each is a sum of the cells there, with their noise.
    beyond = np.maximum(np.cumsum(cells[::-1])[::-1][1:], 0.0)
    deviations = noise * np.sqrt(np.arange(len(beyond), 0, -1))
    shares = beyond + doubt * deviations
    # The first edge beyond which no rows are seen, or the last one.
    none_seen = np.flatnonzero(beyond <= _SEEN * deviations)
    unseen = int(np.append(none_seen, len(edges) - 1)[0])
    before = max(0, int(np.searchsorted(edges, h * _ROUNDED)) - 1)
    start, seen = h, 0.0
    for k in range(before, unseen):
        share, after = float(beyond[k]), float(shares[k + 1])
        width = float(edges[k + 1] - edges[k])
        part = float(edges[k + 1]) - start
        # In the cell where h is only the part beyond it counts.
        if 0.0 < after < share:
            share *= (after / share) ** (1.0 - part / width)
        seen += _mean_of_exponential(share, after) * part
        start = float(edges[k + 1])
    # Edges from the first that shows no rows up to the start: a nearer one may give a smaller
    # bound than the last.
    nearer = slice(unseen, max(unseen, before) + 1)
    share = float(np.min(shares[nearer] * (edges[nearer] / start) ** POWER))
    # The integral of (x / start)^-POWER from the start on is start / (POWER - 1).
    return seen + start * share / (POWER - 1.0)


def _mean_of_exponential(start: float, end: float) -> float:
    """Compute the mean of an exponential function over an interval, from its values at both ends.

    It is `start` if the function does not fall to a positive `end`.
    """
    if not 0.0 < end < start:
        return start
    return (start - end) / math.log(start / end)


def tail_second_moments(M: Array, J: Array, noise: Array, constant: Array) -> Array:
    """Estimate ``E[u u']`` for the mean row u of those with clipped residuals, in a frame.

    A priori the distance of u from the mean of all rows is distributed like that of a single row.
    The mean row weighted by squared residuals, which has noise, gives the posterior
    (docs/privacy/answers.md, "What a clipped tail does").

    Parameters
    ----------
    M : array (R, d, d)
        Second moments of rows.
    J : array (R, d, d)
        Second moments of rows times residuals.
    noise : array (R,)
        Standard deviation of the errors on an entry of J.
    constant : array (R, d)
        A vector whose product with every row is the same number.

    Returns
    -------
    array (R, d, d)
    """
    mean = np.einsum("rij,rj->ri", M, constant)
    entry = np.sqrt(np.maximum(np.sum(mean * constant, axis=1, keepdims=True), 1e-12))
    constant, mean = constant / entry, mean / entry  # now the product is 1
    # u_J = J k / k'J k: the mean row by squared residuals, with k the constant.
    weighted = np.einsum("rij,rj->ri", J, constant)
    square = np.sum(weighted * constant, axis=1, keepdims=True)  # the mean square of residuals
    length = np.sum(constant**2, axis=1, keepdims=True)
    told = square > _CLEAR * noise[:, None] * length
    square = np.where(told, square, 1.0)
    # Variance of an entry of u_J by noise in J; infinite where noise hides the residuals.
    variance = np.where(told, 0.5 * noise[:, None] ** 2 * length / square**2, np.inf)
    values, vectors = np.linalg.eigh(M)
    values = np.maximum(values, 1e-300)
    # Along an eigenvector the prior variance is the eigenvalue: the posterior weight of u_J.
    share = values / (values + variance)
    away = np.where(told, weighted / square - mean, 0.0)
    # The mean row of a tail that falls as the power 3, from that by squared residuals.
    known = FARTHER * share * np.einsum("rji,rj->ri", vectors, away)
    tail = mean + np.einsum("rij,rj->ri", vectors, known)
    unknown = values * (1.0 - share)  # posterior variance
    return np.asarray(
        tail[:, :, None] * tail[:, None, :] + compose_from_eigenvalues(vectors, unknown)
    )
