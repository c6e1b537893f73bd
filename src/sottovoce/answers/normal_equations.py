"""Normal equations of least squares from noisy sums, with shrinkage by empirical Bayes.

With second moments M of rows and mean products c of rows and targets, the coefficients x solve ``M
x = c``.  A gradient g at a point t gives c as ``M t - g``.  Both M and g have noise of known
deviation.  Nothing in this module reads rows: it is post-processing for the recipes of
:mod:`sottovoce.answers.least_squares` and :mod:`sottovoce.answers.regression`.

All arrays have R replicates in front; d is the number of columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..util.typing import Array

_SPREADS = np.logspace(-3.0, 3.0, 61)
"""Grid of prior variances of a coefficient, times the trace of the second moments: at 1 the
coefficients explain scores of variance about 1, that of a target.
"""
_EXACT = 1e-24
"""Variance that is added where noise may be 0, so that no division fails."""


class Mean(NamedTuple):
    """Average of the products of several gradients, weighted by precision."""

    c: Array
    """The mean of the products, (R, d)."""
    center: Array
    """The average of the gradients' points with the same weights, (R, d)."""
    of_gradients: Array
    """Variance of an entry of c by noise in gradients alone, (R,)."""
    of_all: Array
    """Variance of an entry of c by noise in gradients and in M, (R,)."""
    shares: Array
    """The weight of every gradient, (gradients, R)."""


class Products:
    """Mean products c of rows and targets, from gradients at several points.

    Parameters
    ----------
    M : array (R, d, d)
        Second moments.
    s_M : float or array (R,)
        Deviation of the noise on an entry of M.
    """

    def __init__(self, M: Array, s_M: float | Array) -> None:
        self.M, self.s_M = M, s_M
        self.points, self._found, self._spreads = (
            list[Array](),
            list[Array](),
            list[float | Array](),
        )

    def add(self, point: Array, gradient: Array, spread: float | Array) -> None:
        """Add the products ``M point - gradient`` of a gradient at a point.

        Parameters
        ----------
        point : array (R, d)
        gradient : array (R, d)
        spread : float or array (R,)
            Standard deviation of the noise on an entry of the gradient.
        """
        self.points.append(point)
        self._found.append(np.einsum("rij,rj->ri", self.M, point) - gradient)
        self._spreads.append(spread)

    def distances(self, target: Array) -> list[Array]:
        """The squared distance of each point from the `target`, (R, d)."""
        return [np.sum((target - point) ** 2, axis=1) for point in self.points]

    def together(self, distances: Sequence[Array]) -> Mean:
        """Average all products by their precisions.

        Parameters
        ----------
        distances : sequence of array (R,)
            Squared distance of each point from the solution, about, in the order of the points:
            the variance that noise in M adds to c is in proportion to it.

        Returns
        -------
        Mean
        """
        variances = [
            spread**2 + self.s_M**2 / 2.0 * distance + _EXACT
            for spread, distance in zip(self._spreads, distances, strict=True)
        ]
        share = 1.0 / np.stack(variances)
        precision = share.sum(axis=0)
        share /= precision
        c, center = (
            np.einsum("kr,krd->rd", share, np.stack(x)) for x in (self._found, self.points)
        )
        squares = (
            np.stack([np.broadcast_to(spread, precision.shape) for spread in self._spreads]) ** 2
        )
        return Mean(c, center, np.einsum("kr,kr->r", share**2, squares), 1.0 / precision, share)


class Posterior(NamedTuple):
    """Posterior mean of coefficients (R, d), and mean squared error (R,) of shrunken ones."""

    mean: Array
    error: Array


def posterior(M: Array, c: Array, variance: Array, free: int) -> Posterior:
    """Estimate coefficients x from noisy products c of ``M x = c``, by empirical Bayes.

    The first `free` coordinates have a flat prior.  The others have a normal prior with one
    variance for all, as in :func:`posterior_gain`; the free ones are eliminated first, as a
    constant is by centring the columns.

    Parameters
    ----------
    M : array (R, d, d)
        Symmetric, and invertible in the first `free` coordinates.
    c : array (R, d)
        Noisy products.
    variance : array (R,)
        Of the noise in an entry of c.
    free : int
        Number of coordinates, the first ones, that are not shrunken.

    Returns
    -------
    Posterior
    """
    of_free, between = M[:, :free, :free], M[:, :free, free:]
    # How the free coordinates move for one of each other coordinate.
    across = np.linalg.solve(of_free, between)
    alone = np.linalg.solve(of_free, c[:, :free, None])[:, :, 0]
    centred = M[:, free:, free:] - M[:, free:, :free] @ across
    products = c[:, free:] - np.einsum("rij,rj->ri", M[:, free:, :free], alone)
    values, vectors = np.linalg.eigh(centred)
    values = np.maximum(values, 0.0)
    z = np.einsum("rji,rj->ri", vectors, products)
    gain, error = posterior_gain(values, z, variance)
    others = np.einsum("rij,rj->ri", vectors, gain * z)
    mean = np.concatenate([alone - np.einsum("rij,rj->ri", across, others), others], axis=1)
    return Posterior(mean, error)


def posterior_gain(values: Array, z: Array, variance: Array) -> tuple[Array, Array]:
    """Compute the posterior gain of x given ``z = values x + noise``, by empirical Bayes.

    The entries of x have a normal prior with one variance for all.  Gain and error are averaged
    over the grid of variances :data:`_SPREADS`, weighted by likelihood; the error leaves out the
    differences between the means at different variances.

    Parameters
    ----------
    values : array (R, k)
        Nonnegative factors of the entries.
    z : array (R, k)
    variance : array (R,)
        Of the noise in an entry of z.

    Returns
    -------
    gain : array (R, k)
        The posterior mean of x is ``gain * z``.
    error : array (R,)
        Mean squared error of all x together.
    """
    spread = (_SPREADS / np.maximum(values.sum(axis=1), 1e-12)[:, None])[:, :, None]
    seen = values[:, None, :] ** 2 * spread + np.maximum(variance, _EXACT)[:, None, None]
    likely = -0.5 * np.sum(np.log(seen) + z[:, None, :] ** 2 / seen, axis=2)
    likely = np.exp(likely - likely.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    gain = np.einsum("rt,rti->ri", likely, values[:, None, :] * spread / seen)
    return gain, variance * np.einsum("rt,rti->r", likely, spread / seen)
