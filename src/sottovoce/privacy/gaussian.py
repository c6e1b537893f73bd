"""Prices of Gaussian noise on an answer (U7), in an objective (U3) and on an inexact answer (U4).

The standard deviation is ``sigma`` in every coordinate, in sum scale inside an objective; ``mu`` is
sensitivity over sigma.  ``phi = t^2 / (2 sigma^2)`` is minus the noise's log density along the row,
at t; ``kappa = c1 / K``; orders are ``alpha > 1``.  The proofs of U3, U4 and U7 are in
``docs/privacy/tight.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from ..util.bisection import bisect_unbounded
from ..util.later import Later
from ..util.normal import normal_log_cdf
from ..util.typing import Array, ArrayLike
from .spherical import Within

special = Later("scipy.special")

# --- the Gaussian mechanism ---


def gaussian_delta(epsilon: ArrayLike, mu: ArrayLike) -> Array:
    """Return the ``delta`` of Gaussian noise at `epsilon`, from above.

    Parameters
    ----------
    epsilon : array
        Of any sign.
    mu : array
        Sensitivity over sigma, >= 0; T releases have ``mu = sqrt(sum mu_t^2)``.  It broadcasts with
        `epsilon`.

    Returns
    -------
    array

    Notes
    -----
    ``Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)`` (Balle and Wang 2018, Theorem 8):
    the loss is ``N(mu^2/2, mu^2)`` under the first law and ``N(-mu^2/2, mu^2)`` under the second;
    delta is the probability that it exceeds eps under the first, less ``e^eps`` times that under
    the second.  How rounding is covered: :func:`_delta`.

    Examples
    --------
    >>> round(float(gaussian_delta(1.0, 0.5)), 4)
    0.0068
    """
    eps, mu = np.broadcast_arrays(np.asarray(epsilon, dtype=float), np.asarray(mu, dtype=float))
    none = np.maximum(0.0, -np.expm1(np.minimum(eps, 0.0)))  # without a shift
    pairs = zip(np.ravel(eps).tolist(), np.ravel(mu).tolist(), np.ravel(none).tolist(), strict=True)
    found: list[float] = []
    for e, shift, least in pairs:
        if shift > 0.0:
            found.append(_delta(e, shift))
        else:
            found.append(least)
    return np.array(found, dtype=float).reshape(eps.shape)


# Up to here delta is next to 1.
_NEAR = -8.0
# From here on delta is below 1e-299.
_FAR = 37.0
# Smaller deltas lose digits, and are given as this.
_LEAST = 1e-307
_ROUNDED = 4e-15
"""Relative error of ``normal_log_cdf``, exponentials and a few products, at least doubled."""
_LOG_ROOT = 0.5 * math.log(2.0 * math.pi)


def _delta(eps: float, mu: float) -> float:
    """Return :func:`gaussian_delta` of two numbers, ``mu > 0``, from above and without SciPy.

    Notes
    -----
    With ``a = eps/mu - mu/2`` and Mills's ratio ``R = Phi(-.)/phi``, delta is ``phi(a)
    (R(a) - R(a + mu))``, and falls in a, so that a is rounded down.  The difference is computed by
    logarithms, with a bound on their errors, which is loose where `mu` is small.  It is also at
    most ``mu`` times ``-R'(a) = 1 - a R(a)``, as R is convex, which is sharp where `mu` is small.
    For ``a > 0`` this is at most ``1 / (a^2 + 1)`` (Gordon 1941), and R at most ``1 / a``.
    """
    if eps == math.inf:
        return 0.0
    quotient = eps / mu
    half = 0.5 * mu
    # Rounded down by the errors of both terms.
    a = quotient - half - 2.0**-51 * (abs(quotient) + half)
    if math.isnan(a) or mu == math.inf:
        return 1.0
    if a > _FAR:
        density = math.exp(max(-0.5 * a * a * (1.0 - _ROUNDED), -1e4) - _LOG_ROOT)
        return max(density * min(mu / (a * a + 1.0), 1.0 / a) * (1.0 + 2.0 * _ROUNDED), _LEAST)
    # By logarithms: Phi(-a) (1 - e^gap), with a bound `lost` on the error of the difference.
    before = max(a, 0.0) * a
    after = max(a + mu, 0.0) * (a + mu)
    high = normal_log_cdf(-a)
    low = normal_log_cdf(-(a + mu))
    top = math.exp(min(high + _ROUNDED * (1.0 + before), 0.0))
    exponent = mu * (a + half)
    gap = exponent + low - high
    lost = _ROUNDED * (2.0 + before + after) + 2.0**-50 * (abs(exponent) + abs(low) + abs(high))
    share = -math.expm1(min(gap, 0.0)) + lost
    found = top * min(share, 1.0) * (1.0 + _ROUNDED)
    # By the slope of Mills's ratio, which is sharper where mu is small.
    if mu < 1.0 and a > _NEAR:
        ratio = math.exp(high + 0.5 * a * a + _LOG_ROOT)
        slope = 1.0 - a * ratio + _ROUNDED * (1.0 + before) * (1.0 + abs(a) * ratio)
        if a > 0.0:
            slope = min(slope, 1.0 / (a * a + 1.0))
        density = math.exp(-0.5 * a * a * (1.0 - _ROUNDED) - _LOG_ROOT)
        found = min(found, density * mu * slope * (1.0 + 2.0 * _ROUNDED))
    return min(max(found, _LEAST), 1.0)


@lru_cache(maxsize=4096)
def gaussian_epsilon(delta: float, mu: float) -> float:
    """Return the least epsilon >= 0 at which :func:`gaussian_delta` is at most `delta`, from above.

    Infinite where doubles cannot tell that one is enough: of a `delta` below 1e-307, or a `mu`
    whose square overflows.
    """
    if math.isnan(mu):
        return math.nan
    if mu <= 0.0 or _delta(0.0, mu) <= delta:
        return 0.0

    def too_small(epsilon: float) -> bool:
        # For a NaN delta every epsilon is too small.
        return not _delta(epsilon, mu) <= delta

    return bisect_unbounded(too_small, mu * mu / 2 + mu, 1e-12)[1]


@lru_cache(maxsize=4096)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest ``mu`` that keeps (`epsilon`, `delta`), from below.

    It inverts :func:`gaussian_delta`.  0 for a `delta` below 1e-307, of which doubles cannot tell
    that a shift is small enough.
    """
    if math.isnan(epsilon):
        return math.nan
    if delta < _LEAST:
        return 0.0
    return _largest_mu(_delta, epsilon, delta)


def _largest_mu(delta_of: Callable[[float, float], float], epsilon: float, delta: float) -> float:
    """Return the largest ``mu`` with ``delta_of(epsilon, mu) <= delta``, from below."""
    return bisect_unbounded(lambda mu: delta_of(epsilon, mu) <= delta, 1.0, 1e-13)[0]


def _nominal_delta(eps: float, mu: float) -> float:
    """Return :func:`gaussian_delta` of two numbers, ``mu > 0``, up to rounding."""
    high = normal_log_cdf(mu / 2 - eps / mu)
    low = normal_log_cdf(-mu / 2 - eps / mu)
    gap = eps + low - high
    # Rounding may put it above 0; written as a branch so that a NaN stays one.
    if gap > 0.0:
        gap = 0.0
    return min(float(np.exp(high) * (-np.expm1(gap) + 1e-15)), 1.0)


@lru_cache(maxsize=4096)
def nominal_mu(epsilon: float, delta: float) -> float:
    """Return about the largest ``mu`` that keeps (`epsilon`, `delta`), for public choices.

    Notes
    -----
    No guarantee rests on it: regularisers and shares of a budget are chosen by it, and what they
    lead to is priced from above.  Its digits do not cover rounding, and must not change: a reserved
    run is continued only with the very numbers that it was planned by.
    """
    return _largest_mu(_nominal_delta, epsilon, delta)


def gaussian_zcdp(mu: ArrayLike) -> Array:
    """Return rho of Gaussian noise, ``mu^2 / 2``: the Renyi divergence is exactly rho alpha."""
    return 0.5 * np.asarray(mu, dtype=float) ** 2


def inexact_rdp(orders: ArrayLike, error: float, sigma_release: float) -> Array:
    """Return what U4 adds to the price of an exact minimiser, for Gaussian noise on the answer.

    Parameters
    ----------
    orders : array
        Renyi orders alpha, > 1.
    error : float
        Largest distance between the answer and the exact minimiser.
    sigma_release : float
        Standard deviation of the noise on each entry of the answer, > 0.

    Returns
    -------
    array of the shape of `orders`

    Notes
    -----
    ``alpha (2 error)^2 / (2 sigma_o^2)``: release the pair of ``w*`` and the noisy
    answer.  Given ``w*``, the answer is Gaussian around a point within ``error`` of it in either
    world, and Renyi divergences of the parts add.  The factor 2 is attained.
    """
    return np.asarray(orders, dtype=float) * (2.0 * error) ** 2 / (2.0 * sigma_release**2)


# --- Gaussian noise inside an objective ---


def objective_dominating(sigma: float, kappa: float, *, relation: str) -> Within:
    """Return a dominating pair for one release of objective perturbation with Gaussian noise.

    It is the loss of a shift of normal noise, plus a constant, plus a multiple of a chi^2.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise in sum scale, > 0.
    kappa : float
        ``c1 / K``, largest curvature of a row's loss over the strong convexity of all but the loss.
    relation : {"replace-one", "add", "remove"}
        "add": from the data with the row to those without; "remove": the other way.

    Returns
    -------
    Within
        Its shift is the sensitivity of one row, or of two, over sigma.  The chi^2 is the square of
        the noise over sigma in the span of these rows: of 1 degree of freedom, or of 2.  The slack
        is infinite where there is no such pair.

    Raises
    ------
    ValueError
        If the relation is another.

    Notes
    -----
    ``docs/privacy/tight.md``, Theorem 3 and U3: the excess over a shift by the
    derivative's value at ``t = 0`` is a quadratic in ``t``, whose linear term is split into a share
    of the square and a constant.  The claim on shifts needs ``phi`` less the slack to grow with
    ``|t|``: ``slack <= 1/2``.  The log-determinant of the map from classifiers to noise adds at
    most ``ln(1 + kappa)`` to the loss; where the row is removed it only lowers it, and is left out.
    """
    if relation == "add":
        # The excess is positive on an interval of t only, so a constant bounds it.
        return Within(
            1.0 / sigma, float(np.log1p(kappa)) + kappa / (1.0 + kappa) / (4.0 * sigma**2), 0.0, 1
        )
    # The share g of the square that pays for the linear term, 2 c m <= g m^2 + c^2 / g (U3).
    share = min(1.0, 2.0 / sigma)
    if relation == "remove":
        slack = kappa * (1.0 + share)
        fixed = kappa / (4.0 * share * sigma**2)
        if not slack <= 0.5:  # NaN too
            slack = np.inf
        return Within(1.0 / sigma, fixed, slack, 1)
    if relation == "replace-one":
        slack = 2.0 * kappa * (1.0 + share)
        fixed = float(np.log1p(kappa)) + 2.0 * kappa / (share * sigma**2)
        if not slack <= 0.5:  # NaN too
            slack = np.inf
        return Within(2.0 / sigma, fixed, slack, 2)
    raise ValueError("relation must be 'replace-one', 'add' or 'remove'")


def objective_rdp(orders: ArrayLike, sigma: float, kappa: float, *, relation: str) -> Array:
    """Return U3's Renyi bound of one release of objective perturbation with Gaussian noise.

    The loss has derivatives in [-1, 0].

    Parameters
    ----------
    orders : array
        Renyi orders, > 1.
    sigma : float
        Standard deviation of the noise in sum scale, > 0.
    kappa : float
        ``c1 / K``, as for :func:`objective_dominating`.
    relation : {"replace-one", "add", "remove", "zero-out"}
        "zero-out" is the larger of "add" and "remove".

    Returns
    -------
    array of the shape of `orders`

    Raises
    ------
    ValueError
        If the relation is another.

    Notes
    -----
    ``docs/privacy/tight.md``, Theorem 2 and U3: the first term is the Gaussian's own
    moment, the tail a closed normal integral.  The bound is cut at the loss's larger end, 0 or its
    value at derivative -1, and replace-one also at the moment of :func:`objective_dominating`.
    """
    a = np.asarray(orders, dtype=float)
    if relation == "zero-out":
        both = [objective_rdp(a, sigma, kappa, relation=one) for one in ("add", "remove")]
        return np.maximum(both[0], both[1])
    if relation == "replace-one":
        return _replace_one_rdp(a, sigma, kappa)
    if relation not in ("add", "remove"):
        raise ValueError("relation must be 'replace-one', 'zero-out', 'add' or 'remove'")
    gauss = a / (2.0 * sigma**2)
    log_det = 0.0
    if relation == "add":
        log_det = float(np.log1p(kappa))
    # U3: the loss is convex in the derivative, so that its positive part is largest at an end.
    ends = np.logaddexp(
        special.log_ndtr(-0.5 / sigma),
        a * (a - 1.0) / (2.0 * sigma**2) + special.log_ndtr((2.0 * a - 1.0) / (2.0 * sigma)),
    ) / (a - 1.0)
    # Without curvature the minimiser is a shift of the noise: the Gaussian mechanism itself.
    if kappa <= 0.0:
        return gauss
    if relation == "add":
        size, tilt, least = _tail_of_add(a, kappa, a * log_det)
    else:
        size, tilt, least = _tail_of_remove(a, sigma, kappa)
    # The closed integral E[y e^(l y / sigma^2); y > A] / sigma^2 at the end of U3, with l = tilt
    # and A = least, in logarithms: its factors overflow at high orders.
    at = (least - tilt) / sigma
    tail = np.logaddexp(
        -0.5 * at**2 - 0.5 * np.log(2.0 * np.pi) - np.log(sigma),
        np.where(
            tilt > 0,
            np.log(np.maximum(tilt, 1e-300)) - 2.0 * np.log(sigma) + special.log_ndtr(-at),
            -np.inf,
        ),
    ) + tilt**2 / (2.0 * sigma**2)
    bound = np.logaddexp((a - 1.0) * gauss, size + tail) / (a - 1.0)
    if relation == "add":
        # The pair of Theorem 3 has no random part here: a shift and a constant.
        bound = np.minimum(bound, gauss + objective_dominating(sigma, kappa, relation="add").fixed)
    return np.minimum(bound, ends + log_det)


def _replace_one_rdp(a: Array, sigma: float, kappa: float) -> Array:
    """Return the smaller of two bounds for replace-one: through the data without the row (Mironov
    2017, Proposition 11), and the moment of the dominating pair.
    """
    add = objective_rdp(2.0 * a, sigma, kappa, relation="add")
    remove = objective_rdp(2.0 * a - 1.0, sigma, kappa, relation="remove")
    within = objective_dominating(sigma, kappa, relation="replace-one")
    theta = np.full_like(a, np.inf)
    if np.isfinite(within.slack):
        theta = (a - 1.0) * within.slack
    # The moment of a chi^2 of two degrees, (1 - 2 theta)^-1, exists for theta < 1/2 alone.
    left = np.maximum(1.0 - 2.0 * np.minimum(theta, 0.5), 1e-300)
    direct = within.fixed + 2 / sigma**2 + 2 * (a - 1) / (sigma**2 * left) - np.log(left) / (a - 1)
    direct = np.where(theta < 0.4999, direct, np.inf)
    return np.minimum((a - 0.5) / (a - 1.0) * add + remove, direct)


def _tail_of_add(a: Array, kappa: float, grown: Array) -> tuple[Array, Array, Array]:
    """Return the tail of "add" in Theorem 2: its factor, its tilt l and its start A.

    Parameters
    ----------
    a : array
        Renyi orders, > 1.
    kappa : float
        > 0.
    grown : array of the shape of `a`
        ``alpha ln(1 + kappa)``.

    Returns
    -------
    tuple of array
        ``ln(theta (alpha - 1) omega)``, ``l = alpha`` and ``A = 1 / (2 omega)``.
    """
    # Beyond e^700 doubles overflow: the tail is infinite there, and other bounds are taken.
    log_theta = np.where(grown < 700.0, np.log(np.expm1(np.minimum(grown, 700.0)) / kappa), np.inf)
    omega = np.full_like(a, 0.5 * kappa)
    return log_theta + np.log((a - 1.0) * omega), a, 1.0 / (2.0 * omega)


def _tail_of_remove(a: Array, sigma: float, kappa: float) -> tuple[Array, Array, Array]:
    """Return the tail of "remove" in Theorem 2, as :func:`_tail_of_add`.

    Its factor is ``ln(theta alpha omega)``, it has no tilt, and A solves
    ``omega A (2 + (alpha - 1) A / sigma^2) = 1``.
    """
    omega = np.minimum(kappa, 0.5 * kappa + a * kappa**2 / 12.0)
    size = np.log(-np.expm1((1.0 - a) * np.log1p(kappa)) / kappa * a * omega)
    p = (a - 1.0) / sigma**2
    # The positive root, written without a difference of nearly equal numbers.
    least = 1.0 / (omega + np.sqrt(omega**2 + omega * p))
    return size, np.zeros_like(a), least
