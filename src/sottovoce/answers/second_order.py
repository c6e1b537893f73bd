"""Second-order bias of a Newton step, from released moments alone (docs/privacy/answers.md,
"Inference").

A Newton step d from w misses the minimiser by ``H^-1 t / 2``, where ``t = E[l'''(z) u^2 x]`` with
the loss l, margins ``z = w'x`` and shifts ``u = d'x`` of rows x.  For the expectation rows are
taken to be normal with the released second moments.  If columns have levels, rows are taken to be
normal within each level of one of these columns: the one between whose levels u differs most.  The
reference counts as a level, with the rows that have no mark in the column.
"""

from __future__ import annotations

import numpy as np

from ..problem.losses import Logistic
from ..util.typing import Array, IntArray

_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_LEAST = 1e-3
"""Smallest share of the rows that a level is taken to have: noise may leave less."""


def missed(
    w: Array, d: Array, S: Array, center: Array, moved: Array, marks: Array, blocks: Array
) -> Array:
    """Compute t, by which a Newton step misses the minimiser: ``H^-1 t / 2``.

    Parameters
    ----------
    w, d : array (R, d)
        Start of the step, and the step.
    S : array (R, d, d)
        Second moments of rows, positive semidefinite.
    center : array (R, d)
        Mean of rows.
    moved : array (R,)
        ``E[l''(z) u^2]`` from the released Hessian, less the part of noise in d: t is scaled so
        that the normal law agrees with it.
    marks : array (d,)
        Entry of a column that marks a level, in rows of that level; 0 for other columns.
    blocks : array (d,)
        Number of the block of a column that marks a level; 0 for other columns.

    Returns
    -------
    array (R, d)
    """
    covariance = S - center[:, :, None] * center[:, None, :]
    t, length = _normal(w, d, center, covariance)
    most = np.zeros(len(w))
    # Of all columns with levels, the one between whose levels u differs most.
    for block in sorted(set(blocks[blocks > 0].tolist())):
        shares, rows = _levels(S, center, np.flatnonzero(blocks == block), marks)
        off = rows - center[:, None, :]
        apart = np.sum(shares * np.einsum("rli,ri->rl", off, d) ** 2, axis=1)
        if not np.any(apart > most):
            continue
        # Covariance within levels: all of it, less that between the levels' mean rows.
        inside = covariance - np.einsum("rl,rli,rlj->rij", shares, off, off)
        found = [_normal(w, d, rows[:, k], inside) for k in range(shares.shape[1])]
        # Means over the levels of t and of E[l''(z) u^2].
        own = sum(shares[:, k, None] * one[0] for k, one in enumerate(found))
        its = sum(shares[:, k] * one[1] for k, one in enumerate(found))
        t, length = np.where((apart > most)[:, None], own, t), np.where(apart > most, its, length)
        most = np.maximum(most, apart)
    # Scaled so that E[l''(z) u^2] of the same law is the released one.
    return np.asarray(t * (moved / np.maximum(length, 1e-300))[:, None])


def _levels(S: Array, center: Array, own: IntArray, marks: Array) -> tuple[Array, Array]:
    """Return the shares of a column's levels, (R, levels), and their mean rows, (R, levels, d).

    The reference is the last level.  `own` are the encoded columns that mark the levels.
    """
    shares = np.clip(np.einsum("rjj->rj", S[:, own][:, :, own]) / marks[own] ** 2, _LEAST, 1.0)
    rest = np.maximum(1.0 - shares.sum(axis=1, keepdims=True), _LEAST)
    rows = S[:, own] / (shares * marks[own])[:, :, None]
    left = (center - np.einsum("rj,rji->ri", shares, rows)) / rest
    shares = np.hstack([shares, rest])
    return shares / shares.sum(axis=1, keepdims=True), np.concatenate([rows, left[:, None]], axis=1)


def _normal(w: Array, d: Array, center: Array, covariance: Array) -> tuple[Array, Array]:
    """Compute t, (R, d), and ``E[l''(z) u^2]``, (R,), for normal rows.

    The rows have the mean `center`, (R, d), and the `covariance`, (R, d, d); w and d are as for
    :func:`missed`.
    """
    with_z, with_u = (np.einsum("rij,rj->ri", covariance, x) for x in (w, d))
    zz, zu, uu = (np.einsum("ri,ri->r", *pair) for pair in ((w, with_z), (w, with_u), (d, with_u)))
    zz = np.maximum(zz, 1e-12)
    # Given z, the shift u is normal with the variance `rest`.
    rest = np.maximum(uu - zu**2 / zz, 0.0)
    z = np.sqrt(zz)[:, None] * _POINTS  # less its mean
    curvature, third = _derivatives(np.einsum("ri,ri->r", w, center), zz)
    u = np.einsum("ri,ri->r", d, center)[:, None] + (zu / zz)[:, None] * z
    squares = u**2 + rest[:, None]
    slope = with_z / zz[:, None]  # of x in z
    # Covariance of x and u, given z.
    both = with_u - slope * zu[:, None]
    # t = E[l'''(z) u^2 x], with x = center + slope z + a rest whose covariance with u is `both`.
    parts = (
        (third * squares).sum(axis=1),
        (third * squares * z).sum(axis=1),
        2.0 * (third * u).sum(axis=1),
    )
    found = sum(part[:, None] * x for part, x in zip(parts, (center, slope, both), strict=True))
    return np.asarray(found), np.asarray((curvature * squares).sum(axis=1))


def _derivatives(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Compute second and third derivatives of the logistic loss for normal margins.

    At the points of a Gauss-Hermite quadrature, (R, points), times its weights.
    """
    p = -Logistic().derivative(-(mean[:, None] + np.sqrt(variance)[:, None] * _POINTS))
    curvature = _WEIGHTS * p * (1.0 - p)
    return curvature, curvature * (1.0 - 2.0 * p)
