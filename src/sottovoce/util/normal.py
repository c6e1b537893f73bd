"""The standard normal law, number by number, from the standard library.

SciPy's special functions take longer to load than a site takes to start.
"""

from __future__ import annotations

import math
from statistics import NormalDist

# Below it erfc is soon too small for a double.
_FAR = -37.0
_LOG_ROOT = 0.5 * math.log(2.0 * math.pi)


def normal_cdf(x: float) -> float:
    """Compute ``Phi(x)``, the distribution function of the standard normal law."""
    return 0.5 * math.erfc(-x * math.sqrt(0.5))


def normal_log_cdf(x: float) -> float:
    """Compute ``ln Phi(x)`` with an error of at most ``1e-15 (1 + x^2)``, that of rounding x.

    Far below zero by Laplace's series, ``Phi(x) = phi(x) / -x (1 - 1/x^2 + 3/x^4 - ...)``: the
    first term that is left out is below 2e-16.
    """
    # Near 1 the logarithm of Phi(x) would lose the digits of 1 - Phi(x).
    if x > 0.0:
        return math.log1p(-0.5 * math.erfc(x * math.sqrt(0.5)))
    # Not `x >= _FAR`, so that NaN gives NaN.
    if not x < _FAR:
        return math.log(normal_cdf(x))
    # Horner's scheme: 1 - 1/x^2 (1 - 3/x^2 (1 - 5/x^2 (...))).
    square = x * x
    series = 1.0
    for odd in (13, 11, 9, 7, 5, 3, 1):
        series = 1.0 - odd / square * series
    return math.log(series) - 0.5 * square - math.log(-x) - _LOG_ROOT


def normal_quantile(p: float) -> float:
    """Compute the quantile of the standard normal law at `p`, in (0, 1)."""
    return NormalDist().inv_cdf(p)


def two_sided_tail(z: float) -> float:
    """Compute the probability of a standard normal number at least as far from zero as `z`."""
    return math.erfc(abs(z) * math.sqrt(0.5))
