"""Least squares for predictions, without intervals: noisy second moments, then noisy gradients with
clipped residuals (docs/privacy/answers.md, "Least squares").

Targets are scaled to [-1, 1] and residuals are clipped to [-h, h] (Huber's loss).  The first
gradient, at zero with ``h = 1``, is that of least squares, as no residual is clipped.  A histogram
of residuals then shows how small h may be; later gradients have noise in proportion to h.  With
second moments S a gradient g at w gives the mean products of rows and targets as ``c = S w - g``.
The coefficients are their posterior mean given all such c (empirical Bayes), so with few rows and
much noise they are shrunk to zero.  For intervals see :mod:`sottovoce.answers.least_squares`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ..algorithms.items import Item, Script
from ..algorithms.recipe import Recipe
from ..problem.facts import Facts
from ..queries import HuberGradient, Residuals, SecondMoments
from ..queries.moments import unflatten_symmetric
from ..util.typing import Array, BoolArray
from .normal_equations import Posterior, Products, posterior

SQUARED = "squared"
"""Users' name of the squared loss."""
EDGES = 2.0 ** np.arange(-8.0, 0.0, 0.5)
"""Inner edges of public cells of residuals, in half widths of the target's bounds."""
_BEYOND = 6.0
"""Share of residuals to clip, over the noise deviation on an entry of the first gradient.

Clipping reduces noise and biases the coefficients, so with little noise little is clipped.
"""
_MOST = 0.2
"""Largest share of residuals to clip."""
_LATER = (0.16, 0.18, 0.22)
"""Shares of the budget of the gradients with clipped residuals."""


@dataclass(frozen=True)
class LeastSquares(Recipe):
    """Least squares without intervals, for targets in [-1, 1]; the outcome is an array (R, d).

    Parameters
    ----------
    constant : array (d,)
        1 in the columns that hold constants.
    free : array (d,)
        1 in the columns that have a coefficient; others keep 0.

    Guarantee
    ---------
    Rows enter through `items` alone: Gaussian mechanisms on bounded sums over rows, each priced by
    :meth:`sottovoce.queries.NoisyBounded.event` under the relation and the unit of the run.
    The h at which residuals are clipped and the outcome are post-processing.
    """

    constant: Array = field(kw_only=True)
    free: Array = field(kw_only=True)

    name: ClassVar[str] = "least_squares"
    summary: ClassVar[str] = "least squares with shrinkage, without intervals"

    @property
    def items(self) -> tuple[Item, ...]:
        """Releases in the order of :meth:`script`: name, query, and share of the budget."""

        def residuals(at: Array) -> Residuals:
            return Residuals(at, self.constant, EDGES)

        return (
            Item("second moments", SecondMoments, 0.20),
            Item("first gradient", HuberGradient, 0.20),
            Item("residuals", residuals, 0.04),
            *(Item(f"gradient {k}", HuberGradient, share) for k, share in enumerate(_LATER, 2)),
        )

    def script(self, facts: Facts, replicates: int) -> Script:
        """Ask for the releases in order, and return the coefficients, (R, d).

        The steps: shrink the second moments, estimate coefficients from the first gradient, choose
        h by a histogram of residuals, and update the estimate with each further gradient.
        """
        d, free, constant = facts.d, self.free > 0, self.constant > 0
        zero = np.zeros((replicates, d))
        moments = yield SecondMoments(zero)
        S = shrink_moments(
            unflatten_symmetric(moments.value, d), free, free & ~constant, moments.spread
        )
        products = Products(S, moments.spread)
        gradient = yield HuberGradient(zero)
        products.add(zero, gradient.value, gradient.spread)
        first_spread = gradient.spread
        errors: list[Array] = []

        def fit(w: Array) -> Posterior:
            """Estimate the coefficients given all gradients, with errors for coefficients `w`."""
            mean = products.together([np.sum(w**2, axis=1), *errors])
            return posterior_mean_given_products(
                S, mean.c * free, mean.of_all, free & ~constant, free & constant
            )

        w, error = fit(fit(zero).mean)
        inside = 1.0 - min(_BEYOND * first_spread, _MOST)
        cells = yield Residuals(w, self.constant, EDGES)
        h = _clipping_width(cells.value.mean(axis=0), inside)
        for _ in _LATER:
            gradient = yield HuberGradient(w, h)
            # Clipped residuals do not move with w: the gradient has only the share `inside` of S.
            scale = h if h == 1.0 else h / inside
            products.add(w, scale * gradient.value, scale * gradient.spread)
            errors.append(error)
            w, error = fit(fit(w).mean)
        return w


def shrink_moments(S: Array, free: BoolArray, columns: BoolArray, noise: float) -> Array:
    """Shrink second moments to a multiple of the identity (Ledoit and Wolf 2004).

    The weight is the share of noise in the squared distance between the two.  Constants keep their
    own moments.

    Parameters
    ----------
    S : array (R, d, d)
        Released second moments.
    free : bool array (d,)
        Columns that have a coefficient; the others get the identity.
    columns : bool array (d,)
        The free columns that are no constants.
    noise : float
        Standard deviation of the noise on a diagonal entry of S; those off it, of which each pair
        is one release, have half the variance.

    Returns
    -------
    array (R, d, d)
    """
    S = S * free[:, None] * free[None, :] + np.diag((~free).astype(float))
    diagonal = np.einsum("rii->ri", S)
    alike = np.where(columns, (diagonal @ columns / max(1, columns.sum()))[:, None], diagonal)
    target = alike[:, :, None] * np.eye(len(free))
    distance = np.maximum(np.sum((S - target) ** 2, axis=(1, 2)), 1e-300)
    # Squared noise in all of S: k entries of noise^2, and k (k - 1) of noise^2 / 2.
    k = int(free.sum())
    share = noise**2 * k * (k + 1) / 2.0 / distance
    share = np.minimum(share, 1.0)[:, None, None]
    return np.asarray((1.0 - share) * S + share * target)


def posterior_mean_given_products(
    S: Array, c: Array, variance: Array, columns: BoolArray, constants: BoolArray
) -> Posterior:
    """Estimate coefficients by their posterior mean given noisy products c.

    Columns are centred by the constants, which are not shrunken. No row has two constants, so their
    moments are diagonal.

    Parameters
    ----------
    S : array (R, d, d)
        Second moments.
    c : array (R, d)
        Products of rows and targets.
    variance : array (R,)
        Of the noise in an entry of c.
    columns : bool array (d,)
        Columns with a coefficient that is shrunken.
    constants : bool array (d,)
        Constants with a coefficient.

    Returns
    -------
    Posterior
        Coefficients (R, d), and their mean squared error (R,).
    """
    own, ones = np.flatnonzero(columns), np.flatnonzero(constants)
    order = np.concatenate([ones, own])
    M = S[:, order[:, None], order]
    of_constants = np.maximum(S[:, ones, ones], 1e-6)
    M[:, : len(ones), : len(ones)] = of_constants[:, :, None] * np.eye(len(ones))
    found, error = posterior(M, c[:, order], variance, free=len(ones))
    w = np.zeros_like(c)
    w[:, order] = found
    return Posterior(w, error)


def _clipping_width(cells: Array, inside: float) -> float:
    """Return the smallest edge within which a share `inside` of the residuals lies, or 1.

    `cells`, (edges + 1,), are noisy shares of residuals by size.  The share below an edge is
    estimated from the cells below it and from those above it, as all shares sum to 1; the two
    estimates are averaged with weights by their numbers of cells, as fewer cells have less noise.
    """
    k = np.arange(len(EDGES))
    below = np.cumsum(cells)[:-1]
    above = 1.0 - np.cumsum(cells[::-1])[::-1][1:]
    held = ((len(EDGES) - k) * below + (k + 1) * above) / (len(EDGES) + 1)
    enough = np.flatnonzero(held >= inside)
    if len(enough) and math.isfinite(float(held.sum())):
        return float(EDGES[enough[0]])
    return 1.0
