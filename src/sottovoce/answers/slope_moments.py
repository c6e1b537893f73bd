"""Second moments J of slopes, where noise hides most of them (docs/privacy/answers.md, "What J
tells").

If the model holds, J is a multiple of the Hessian H: of least squares with residuals of one spread
sigma, sigma^2 M. J tells the multiple well, as all of its entries do so together, and badly how far
it differs along a direction.
"""

from __future__ import annotations

import numpy as np

from ..util.typing import Array

OF_RESIDUALS = 3.0
"""How far variances of residuals along a direction may be apart, over their mean, as is taken for
granted.

A column of two values whose rare rows hold most of the tail has about 4.  Intervals of columns that
are like the others are a twentieth wider for it at most.
"""
OF_CLASSES = 0.25
"""The same of the slopes of a logistic loss."""


def drawn_to_multiple(J: Array, noise: Array, H: Array, unlike: float) -> tuple[Array, Array]:
    """Shrink J to a multiple of H by the share of noise in their difference.

    Beforehand an entry of the difference has the deviation `unlike` in units of that multiple, or
    that which J shows beyond noise, if it is larger. So where the model does not hold J stays,
    unless noise is larger than what it tells.

    Parameters
    ----------
    J : array (R, d, d)
        Released, with errors of deviation `noise` on an entry.
    noise : array (R,)
    H : array (R, d, d)
        Hessian for the same rows, of which noise hides much less.
    unlike : float
        `OF_RESIDUALS` or `OF_CLASSES`.

    Returns
    -------
    drawn : array (R, d, d)
    deviation : array (R,)
        Standard deviation of its error on an entry.
    """
    d = H.shape[-1]
    size = np.maximum(np.einsum("rij,rij->r", H, H), 1e-300)
    # phi = tr(H J) / tr(H^2): all entries of J together tell it well.
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
