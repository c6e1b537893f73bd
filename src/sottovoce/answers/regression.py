"""Least squares from bounded sums: second moments once, then Huber steps at public points.

The slope of a squared loss has no bound, but that of Huber's has, and its gradient in units of h has the sensitivity of
a sum of unit rows.  The first step, from zero, takes ``h = 1``, the bound of a target: its gradient is that of least
squares.  A histogram of residuals then tells how small h may be, and every later gradient has so much less noise.
Estimates of all steps are combined by their precision.  Standard errors are not given: see docs/privacy/answers.md.
"""

from __future__ import annotations

import math

import numpy as np

from ..queries import HuberGradient, Residuals, SecondMoments
from ..queries.moments import square
from ..typing import Array, BoolArray
from .asking import Desk, Item

SQUARED = "squared"
"""What users call the loss."""
EDGES = 2.0 ** np.arange(-9.0, 0.0)
"""Public cells of residuals, in half widths of the target's bounds."""
_INSIDE = 0.97
"""Share of residuals that h is to hold: Huber's estimate is then close to that of least squares."""
_LATER = (0.16, 0.18, 0.22)


def recipe(constant: Array) -> tuple[Item, ...]:
    """What is asked, with shares of the budget; `constant` marks the column of ones."""
    return (
        Item("second moments", SecondMoments, 0.20),
        Item("first gradient", HuberGradient, 0.20),
        Item("residuals", lambda at: Residuals(at, constant, EDGES), 0.04),
        *(Item(f"gradient {k + 2}", HuberGradient, share) for k, share in enumerate(_LATER)),
    )


def least_squares(desk: Desk, free: BoolArray) -> Array:
    """Coefficients of encoded columns, (R, d), for targets in [-1, 1].

    Parameters
    ----------
    desk : Desk
        Of :func:`recipe`, with one replicate.
    free : array of bool (d,)
        Columns that have a coefficient; others keep 0.
    """
    R, d = desk.replicates, len(free)
    zero = np.zeros((R, d))
    S = square(desk.ask("second moments", zero), d)
    S = S * free[:, None] * free[None, :] + np.diag((~free).astype(float))
    values, vectors = np.linalg.eigh(S)
    noise = desk.spread("second moments") * math.sqrt(2.0 * d)
    n = desk.rows
    known = desk.spread("first gradient")

    def solve(g: Array, spread: float) -> Array:
        """``S^-1 g``, without directions in which S or g is noise alone."""
        ridge = np.maximum(noise / 2.0, spread / math.sqrt(d)) if noise > 0 else 1e-12
        along = np.einsum("rji,rj->ri", vectors, g * free) * np.maximum(values, 0.0)
        return np.asarray(np.einsum("rij,rj->ri", vectors, along / (values**2 + ridge**2 / 4.0 + 1.0 / n**2)))

    g = desk.ask("first gradient", zero)
    w = -solve(g, known)
    cells = desk.ask("residuals", w).mean(axis=0)
    total, sigma = 0.0, desk.spread("residuals")
    h = 1.0
    for k, edge in enumerate(EDGES):
        total += float(cells[k])
        if total >= _INSIDE * float(cells.sum()) + sigma * math.sqrt(k + 1.0):
            h = float(edge)
            break
    inside = _INSIDE if h < 1.0 else 1.0
    best, weight = w, known**-2 if known > 0 else 0.0
    for k in range(len(_LATER)):
        name = f"gradient {k + 2}"
        g = h * desk.ask(name, best, HuberGradient(best, h)) / inside
        spread = h * desk.spread(name) / inside
        found = best - solve(g, spread)
        more = spread**-2 if spread > 0 else math.inf
        share = 1.0 if math.isinf(more) else more / (weight + more)
        best, weight = best + share * (found - best), weight + more
    return np.asarray(best)
