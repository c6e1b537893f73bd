"""Share of a numeric label's values at or beyond its declared bounds, from two released shares.

Values beyond the bounds are clipped to them, which biases least squares: tables warn if many are
(:func:`sottovoce.answers.least_squares.table_in_target_units`).
"""

from __future__ import annotations

import math

import numpy as np

from ..util import normal
from ..util.typing import Any, Array

SEEN = 3.0
"""Noise deviations by which a share must exceed 0 to count as clearly above it."""
LEAST = 0.005
"""Least share that counts as clearly above 0: fewer clipped targets move coefficients little."""


def estimate_targets_at_bounds(
    shares: Array, spread: float, rows: float, level: float = 0.95
) -> dict[str, Any]:
    """Estimate the share of targets at or beyond the bounds, from two released shares.

    Parameters
    ----------
    shares : array (2,)
        The answer of :class:`sottovoce.queries.AtBounds`: at the lower and at the upper bound.
    spread : float
        Standard deviation of the noise in either.
    rows : float
        Number of rows.
    level : float
        Confidence level, in (0, 1).

    Returns
    -------
    dict
        ``share`` with its ends ``low`` and ``high``, of both bounds together, with sampling and
        privacy noise; ``at_lower`` and ``at_upper``; and ``clear``, whether the share is clearly
        above 0.
    """
    lower, upper = (float(x) for x in np.clip(shares, 0.0, 1.0))
    whole = float(np.sum(shares))
    # Noise of a difference of two independent shares.
    noise = math.sqrt(2.0) * spread
    inside = min(max(whole, 0.0), 1.0)
    # Rows at a bound are a binomial number: its deviation as a share, and that of the noise.
    sampling = math.sqrt(inside * (1.0 - inside) / rows)
    half = -normal.normal_quantile((1.0 - level) / 2.0) * math.hypot(sampling, noise)
    return {
        "share": inside,
        "low": max(0.0, whole - half),
        "high": min(1.0, whole + half),
        "at_lower": lower,
        "at_upper": upper,
        "clear": whole > SEEN * noise and whole >= LEAST,
    }
