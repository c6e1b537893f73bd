"""Shrinkage of J, the second moments of the rows' gradients in the sandwich covariance ``H^-1 J
H^-1``, where noise hides most of it (docs/privacy/answers.md, "What J tells").

If the model holds, J is a multiple of the Hessian H: for least squares ``sigma^2 M``, with the
variance sigma^2 of residuals and second moments M.  All entries of a noisy J together determine the
multiple well, but how far J differs from it along a single direction is mostly noise.
"""

from __future__ import annotations

import numpy as np

from ..util.typing import Array

OF_RESIDUALS = 3.0
"""Prior standard deviation of the difference between J and a multiple of H along a direction, over
that multiple, for residuals of least squares.

A binary column whose rare rows hold most of the tail of the residuals has about 4.  Intervals of
columns like the others are at most a twentieth wider for it.
"""
OF_CLASSES = 0.25
"""The same for the gradients of a logistic loss."""


def drawn_to_multiple(J: Array, noise: Array, H: Array, unlike: float) -> tuple[Array, Array]:
    """Shrink J to a multiple of H by the share of noise in their difference.

    The prior standard deviation of the difference is `unlike` times the multiple, or the difference
    that J shows beyond noise if that is larger.  So J is kept where the model clearly does not
    hold.

    Parameters
    ----------
    J : array (R, d, d)
        Released second moments of gradients.
    noise : array (R,)
        Standard deviation of the noise on an entry of J.
    H : array (R, d, d)
        Hessian for the same rows, of which noise hides much less.
    unlike : float
        `OF_RESIDUALS` or `OF_CLASSES`.

    Returns
    -------
    drawn : array (R, d, d)
        J after shrinkage.
    deviation : array (R,)
        Standard deviation of its error on an entry.
    """
    d = H.shape[-1]
    size = np.maximum(np.einsum("rij,rij->r", H, H), 1e-300)
    # phi = tr(H J) / tr(H^2): all entries of J together determine it well.
    multiple = np.einsum("rij,rij->r", H, J) / size
    # One deviation of its own noise, at least: noise may leave nothing of it.
    multiple = np.maximum(multiple, noise / np.sqrt(size))
    by_model = multiple[:, None, None] * H
    typical = unlike * multiple * np.sqrt(size / d)
    apart = np.abs(np.linalg.eigvalsh(J - by_model)).max(axis=1) ** 2
    off = np.maximum(apart - 2.0 * d * noise**2, typical**2)
    share = np.divide(noise**2, noise**2 + off, out=np.zeros_like(off), where=noise > 0.0)
    drawn = (1.0 - share)[:, None, None] * J + share[:, None, None] * by_model
    return drawn, np.sqrt(share * off)
