"""Second-order bias of a Newton step, from released moments alone (docs/privacy/answers.md, "Inference").

A step d from w misses the minimiser by ``H^-1 t / 2`` with ``t = E[l'''(z) u^2 x]``, z = w'x and u = d'x.  Rows are
taken as if normal with the released second moments.  A column x that marks a level adds its third cumulants, with any
other column v ``cum(x, x, v) = a (1 - 2 q) cov(x, v)``, if it holds a in a share q of the rows and 0 in the others.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from ..util.typing import Array

_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_LEAST = 1e-3
"""Least share of the rows that a level is taken to have."""


def missed(w: Array, d: Array, S: Array, center: Array, moved: Array, marks: Array) -> Array:
    """t, shape (R, d).

    Parameters
    ----------
    w, d : array (R, d)
        Start of the step, and the step.
    S : array (R, d, d)
        Second moments of rows, positive semidefinite.
    center : array (R, d)
        Mean of rows.
    moved : array (R,)
        ``E[l''(z) u^2]`` as it was released, less the part of the noise in d: t is scaled to agree.
    marks : array (d,)
        Entry of a column that marks a level, in rows of that level; 0 for other columns.
    """
    covariance = S - center[:, :, None] * center[:, None, :]
    with_z, with_u = (np.einsum("rij,rj->ri", covariance, x) for x in (w, d))
    zz, zu, uu = (np.einsum("ri,ri->r", *pair) for pair in ((w, with_z), (w, with_u), (d, with_u)))
    zz = np.maximum(zz, 1e-12)
    rest = np.maximum(uu - zu**2 / zz, 0.0)
    t = np.sqrt(zz)[:, None] * _POINTS  # z less its mean
    curvature, third = _derivatives(np.einsum("ri,ri->r", w, center), zz)
    u = np.einsum("ri,ri->r", d, center)[:, None] + (zu / zz)[:, None] * t
    squares = u**2 + rest[:, None]
    slope = with_z / zz[:, None]  # of x in z
    both = with_u - slope * zu[:, None]  # covariance of x and u, given z
    parts = ((third * squares).sum(axis=1), (third * squares * t).sum(axis=1), 2.0 * (third * u).sum(axis=1))
    normal = sum(part[:, None] * x for part, x in zip(parts, (center, slope, both), strict=True))
    scale = moved / np.maximum((curvature * squares).sum(axis=1), 1e-300)
    out = np.asarray(normal * scale[:, None])
    for j in np.flatnonzero(marks):
        share = np.clip(S[:, j, j] / marks[j] ** 2, _LEAST, 1.0)
        row = S[:, :, j] / (share * marks[j])[:, None]  # the mean one of the level
        spread = np.maximum(covariance[:, j, j], _LEAST * marks[j] ** 2)
        own = _derivatives(np.einsum("ri,ri->r", w, row), np.maximum(zz - with_z[:, j] ** 2 / spread, 0.0))[1]
        weight = own.sum(axis=1) * marks[j] * (1.0 - 2.0 * share) * scale * d[:, j] ** 2
        out += weight[:, None] * covariance[:, :, j]
    return out


def _derivatives(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Second and third derivatives of the logistic loss at the points of the quadrature, times its weights."""
    p = expit(mean[:, None] + np.sqrt(variance)[:, None] * _POINTS)
    curvature = _WEIGHTS * p * (1.0 - p)
    return curvature, curvature * (1.0 - 2.0 * p)
