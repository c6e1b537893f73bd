"""Least squares from bounded sums: second moments, then Huber steps (docs/privacy/answers.md, "Least squares").

The first step, from zero with ``h = 1``, is that of least squares, as targets are within 1; a histogram of residuals
then tells how small h may be, and later gradients have noise in proportion to it.  With second moments S a gradient g
at w says that ``S w - g`` is the products c of rows and targets.  The coefficients are their posterior mean given all
such c (empirical Bayes): few rows and much noise shrink them to zero.  For intervals see
:mod:`sottovoce.answers.least_squares`.
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
from ..queries.moments import square
from ..util.typing import Array, BoolArray

SQUARED = "squared"
"""Users' name of the loss."""
EDGES = 2.0 ** np.arange(-8.0, 0.0, 0.5)
"""Public cells of residuals, in half widths of the target's bounds."""
_BEYOND, _MOST = 6.0, 0.2
"""Share of residuals to clip: this many noise deviations of a gradient's entry, at most the second number.

Clipping biases the coefficients and spares noise, so it ends where there is little noise.
"""
_LATER = (0.16, 0.18, 0.22)
_SPREADS = np.logspace(-3.0, 3.0, 61)
"""Prior variances of a coefficient, over one by the trace of the moments, which is about that of a target."""
_EXACT = 1e-24


@dataclass(frozen=True)
class LeastSquares(Recipe):
    """Coefficients of encoded columns for targets in [-1, 1]; the outcome is an array (R, d), of one replicate.

    Parameters
    ----------
    constant : array (d,)
        1 in the columns that hold constants.
    free : array (d,)
        1 in the columns that have a coefficient; others keep 0.
    """

    constant: Array = field(kw_only=True)
    free: Array = field(kw_only=True)

    name: ClassVar[str] = "least_squares"
    summary: ClassVar[str] = "least squares, shrunken by what noise hides"

    @property
    def items(self) -> tuple[Item, ...]:
        return (
            Item("second moments", SecondMoments, 0.20),
            Item("first gradient", HuberGradient, 0.20),
            Item("residuals", lambda at: Residuals(at, self.constant, EDGES), 0.04),
            *(Item(f"gradient {k + 2}", HuberGradient, share) for k, share in enumerate(_LATER)),
        )

    def script(self, facts: Facts, replicates: int) -> Script:
        R, d, free, constant = replicates, facts.d, self.free > 0, self.constant > 0
        zero = np.zeros((R, d))
        moments = yield SecondMoments(zero)
        noise = moments.spread
        S = shrunk(square(moments.value, d), free, free & ~constant, noise)
        gradient = yield HuberGradient(zero)
        found, spreads, errors = [-gradient.value], [gradient.spread], list[Array]()

        def fit(w: Array) -> tuple[Array, Array]:
            """Mean and mean squared error of the coefficients given all gradients, if they are about `w`."""
            away = [np.sum(w**2, axis=1), *errors]  # noise in S moves c by the distance of the gradient's point
            weight = 1.0 / np.stack([s**2 + noise**2 / 2.0 * e + _EXACT for s, e in zip(spreads, away, strict=True)])
            c = np.einsum("kr,krd->rd", weight, np.stack(found)) / weight.sum(axis=0)[:, None]
            return mean_given(S, c * free, 1.0 / weight.sum(axis=0), free & ~constant, free & constant)

        w, error = fit(fit(zero)[0])
        inside = 1.0 - min(_BEYOND * spreads[0], _MOST)
        cells = yield Residuals(w, self.constant, EDGES)
        h = _width(cells.value.mean(axis=0), inside)
        for _ in _LATER:
            gradient = yield HuberGradient(w, h)
            scale = h if h == 1.0 else h / inside
            found.append(np.einsum("rij,rj->ri", S, w) - scale * gradient.value)
            spreads.append(scale * gradient.spread)
            errors.append(error)
            w, error = fit(fit(w)[0])
        return w


def shrunk(S: Array, free: BoolArray, columns: BoolArray, noise: float) -> Array:
    """Moments shrunk to a multiple of the identity by the share of their distance that is noise (Ledoit and Wolf 2004).

    The constant keeps its own moment.
    """
    S = S * free[:, None] * free[None, :] + np.diag((~free).astype(float))
    diagonal = np.einsum("rii->ri", S)
    alike = np.where(columns, (diagonal @ columns / max(1, columns.sum()))[:, None], diagonal)
    target, k = alike[:, :, None] * np.eye(len(free)), int(free.sum())
    share = noise**2 * k * (k + 1) / 2.0 / np.maximum(np.sum((S - target) ** 2, axis=(1, 2)), 1e-300)
    share = np.minimum(share, 1.0)[:, None, None]
    return np.asarray((1.0 - share) * S + share * target)


def mean_given(S: Array, c: Array, variance: Array, columns: BoolArray, constants: BoolArray) -> tuple[Array, Array]:
    """Posterior mean of coefficients given noisy products c with this `variance`, and their mean squared error.

    Columns are centred by the constants, which are not shrunk; no row has two.  The mean is over :data:`_SPREADS` by
    their likelihood.
    """
    w = np.zeros_like(c)
    own, ones = np.flatnonzero(columns), np.flatnonzero(constants)
    alone = np.maximum(S[:, ones, ones], 1e-6)
    across = S[:, own[:, None], ones] / alone[:, None, :]
    C = S[:, own[:, None], own] - np.einsum("rik,rjk,rk->rij", across, across, alone)
    products = c[:, own] - np.einsum("rik,rk->ri", across, c[:, ones])
    values, vectors = np.linalg.eigh(C)
    values = np.maximum(values, 0.0)
    z = np.einsum("rji,rj->ri", vectors, products)
    gain, left = posterior_gain(values, z, variance)
    w[:, own] = np.einsum("rij,rj->ri", vectors, gain * z)
    w[:, ones] = c[:, ones] / alone - np.einsum("rik,ri->rk", across, w[:, own])
    return w, left


def posterior_gain(values: Array, z: Array, variance: Array) -> tuple[Array, Array]:
    """What z is multiplied by to get the mean of x given ``z = values x + noise``, and the mean squared error of all x.

    x is normal with one variance for all, averaged over :data:`_SPREADS` by their likelihood.

    Parameters
    ----------
    values, z : array (R, k)
    variance : array (R,)
        Of the noise in an entry of z.
    """
    spread = (_SPREADS / np.maximum(values.sum(axis=1), 1e-12)[:, None])[:, :, None]
    seen = values[:, None, :] ** 2 * spread + np.maximum(variance, _EXACT)[:, None, None]
    likely = -0.5 * np.sum(np.log(seen) + z[:, None, :] ** 2 / seen, axis=2)
    likely = np.exp(likely - likely.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    gain = np.einsum("rt,rti->ri", likely, values[:, None, :] * spread / seen)
    return gain, variance * np.einsum("rt,rti->r", likely, spread / seen)


def _width(cells: Array, inside: float) -> float:
    """The least edge within which a share `inside` of the residuals lies, or 1.

    Shares are counted from below and from above, as they add up to one; fewer cells have less noise.
    """
    k, below = np.arange(len(EDGES)), np.cumsum(cells)[:-1]
    above = 1.0 - np.cumsum(cells[::-1])[::-1][1:]
    held = ((len(EDGES) - k) * below + (k + 1) * above) / (len(EDGES) + 1)
    enough = np.flatnonzero(held >= inside)
    return float(EDGES[enough[0]]) if len(enough) and math.isfinite(float(held.sum())) else 1.0
