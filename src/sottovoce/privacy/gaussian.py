"""Prices of Gaussian noise on an answer (U7), in an objective (U3) and on an inexact answer (U4).

The standard deviation is ``sigma`` in every coordinate, in sum scale inside an objective; ``mu`` is shift over sigma.
``phi = t^2 / (2 sigma^2)``, ``kappa = c1 / K``, orders ``alpha > 1``.  See ``docs/privacy/tight.md``.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..util.later import Later
from ..util.typing import Array, ArrayLike
from .spherical import Within, objective_surplus

special = Later("scipy.special")

# --- the Gaussian mechanism -----------------------------------------------------------------------------------------


def gaussian_delta(epsilon: ArrayLike, mu: ArrayLike) -> Array:
    """The exact ``delta`` of Gaussian noise at `epsilon` (any sign); T releases have ``mu = sqrt(sum mu_t^2)``.

    Notes
    -----
    ``Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)`` (Balle and Wang 2018, Theorem 8): the loss is ``N(mu^2/2, mu^2)``
    under the first law and ``N(-mu^2/2, mu^2)`` under the second; delta is the probability that it exceeds eps under
    the first, less ``e^eps`` times that under the second.
    """
    eps, mu = np.broadcast_arrays(np.asarray(epsilon, dtype=float), np.asarray(mu, dtype=float))
    safe = np.where(mu > 0, mu, 1.0)
    high, low = special.log_ndtr(safe / 2 - eps / safe), special.log_ndtr(-safe / 2 - eps / safe)
    gap = np.minimum(eps + low - high, 0.0)
    value = np.exp(high) * (-np.expm1(gap) + 1e-15)  # upwards: the gap of tiny mu has few digits
    return np.where(mu > 0, np.minimum(value, 1.0), np.maximum(0.0, -np.expm1(np.minimum(eps, 0.0))))


@lru_cache(maxsize=4096)
def gaussian_epsilon(delta: float, mu: float) -> float:
    """The least epsilon >= 0 at which :func:`gaussian_delta` is at most `delta`, from above."""
    if mu <= 0.0 or float(gaussian_delta(0.0, mu)) <= delta:
        return 0.0
    low, high = 0.0, mu * mu / 2 + mu
    while float(gaussian_delta(high, mu)) > delta:
        low, high = high, 2.0 * high
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if float(gaussian_delta(middle, mu)) <= delta else (middle, high)
    return high


@lru_cache(maxsize=4096)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest ``mu`` whose :func:`gaussian_delta` at `epsilon` is at most `delta`, from below."""
    low, high = 0.0, 1.0
    while float(gaussian_delta(epsilon, high)) <= delta:
        low, high = high, 2.0 * high
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if float(gaussian_delta(epsilon, middle)) <= delta else (low, middle)
    return low


def gaussian_zcdp(mu: ArrayLike) -> Array:
    """``mu^2 / 2``: the Renyi divergence is exactly this times alpha."""
    return 0.5 * np.asarray(mu, dtype=float) ** 2


def inexact_rdp(orders: ArrayLike, error: float, sigma_release: float) -> Array:
    """U4: what to add to a price of the exact minimiser's release if an answer within `error` of it is released.

    Notes
    -----
    ``alpha (2 error)^2 / (2 sigma_o^2)``.  *Proof.*  Release the pair of the exact ``w*`` and the noisy answer: the
    first costs what it costs; given it, the second is Gaussian around a point within ``error`` of ``w*`` in either
    world, so the points differ by at most ``2 error``.  Renyi divergences of the parts add (adaptive composition), and
    the answer alone is post-processing of the pair.  The factor 2 is attained.
    """
    return np.asarray(orders, dtype=float) * (2.0 * error) ** 2 / (2.0 * sigma_release**2)


# --- Gaussian noise inside an objective ------------------------------------------------------------------------------


def objective_dominating(sigma: float, kappa: float, *, relation: str) -> Within:
    """Hockey-stick domination of one release, ``s`` being ``mu``: Gaussian loss + fixed + slack chi^2.

    Parameters
    ----------
    sigma, kappa : float
    relation : {"replace-one", "add", "remove"}

    Notes
    -----
    As :func:`sottovoce.privacy.spherical.objective_dominating`, with ``phi = |.|^2 / (2 sigma^2)`` and a
    derivative in [-1, 0].

    *Add.*  For ``t < 0`` the loss only falls when c is replaced by ``a <= c``; for ``t > 0`` the excess over c's is
    ``(a - c)(a + c - 2t) / (2 sigma^2)``, positive only if ``t < a <= 1``, and at most ``k t (1 - t) / sigma^2`` with
    ``k = kappa / (1+kappa)``: at most ``k / (4 sigma^2)``. *Remove.*
    ``(a - c)(a + c + 2t) / (2 sigma^2) <= kappa |t| (|t| + 1) / sigma^2`` (for t < 0 without the 1). *Replace-one.*
    ``-(v - v_0).(b - (v + v_0)/2) / sigma^2 <= 2 kappa m (m + 2) / sigma^2``. With ``2 c m <= g m^2 + c^2 / g`` the
    linear term splits into a share g of the square and a constant; ``m / sigma`` is chi of 1 or 2 degrees.  The claim
    on shifts needs ``phi - X`` to grow with ``|t|``: ``slack <= 1/2``.
    """
    if relation == "add":
        return Within(1.0 / sigma, float(np.log1p(kappa)) + kappa / (1.0 + kappa) / (4.0 * sigma**2), 0.0, 1)
    share = min(1.0, 2.0 / sigma)  # of the square, to pay for the linear term
    if relation == "remove":
        slack, fixed = kappa * (1.0 + share), kappa / (4.0 * share * sigma**2)
        return Within(1.0 / sigma, fixed, slack if slack <= 0.5 else np.inf, 1)
    if relation == "replace-one":
        slack, fixed = 2.0 * kappa * (1.0 + share), float(np.log1p(kappa)) + 2.0 * kappa / (share * sigma**2)
        return Within(2.0 / sigma, fixed, slack if slack <= 0.5 else np.inf, 2)
    raise ValueError("relation must be 'replace-one', 'add' or 'remove'")


def objective_delta(epsilon: float, sigma: float, kappa: float, *, relation: str, releases: int = 1) -> float:
    """An upper bound of delta at ``epsilon >= 0`` of equal releases, derivative in [-1, 0].

    Notes
    -----
    *One release.*  The loss is convex in a (the determinant's logarithm apart), hence at most the larger of its values
    at ``a = 0``, which is 0, and ``a = 1``.  For ``epsilon >= 0`` the zero does not count: remove is
    ``delta_G(eps; 1/sigma)``, and add, whose determinant adds at most ``ln(1 + kappa)``, is
    ``delta_G(eps - ln(1+kappa); 1/sigma)`` for ``eps >= ln(1+kappa)``.
    *Any number, and replace-one.*  :func:`objective_dominating`: with x of
    :func:`sottovoce.privacy.spherical.objective_surplus` at ``delta'``, delta is ``delta_G(eps - x; mu) + delta'``.
    """
    within = objective_dominating(sigma, kappa, relation=relation)
    mu = within.s * np.sqrt(releases)
    best = 1.0
    for small in 10.0 ** -np.arange(2.0, 31.0, 2.0) if within.slack > 0 else np.zeros(1):
        x = objective_surplus([(within, releases)], float(small))
        if np.isfinite(x):
            best = min(best, float(gaussian_delta(epsilon - x, mu)) + float(small))
    if releases == 1 and relation != "replace-one" and epsilon >= 0.0:
        log_det = float(np.log1p(kappa)) if relation == "add" else 0.0
        if epsilon >= log_det:
            best = min(best, float(gaussian_delta(epsilon - log_det, 1.0 / sigma)))
    return best


def objective_rdp(orders: ArrayLike, sigma: float, kappa: float, *, relation: str) -> Array:
    """U3: Renyi bound of one release, derivative in [-1, 0]: a Gaussian's plus a tail vanishing with ``kappa sigma``.

    Parameters
    ----------
    orders : array
    sigma, kappa : float
    relation : {"replace-one", "add", "remove", "zero-out"}

    Notes
    -----
    The proof of :func:`sottovoce.privacy.spherical.objective_rdp` uses of phi that it is even and convex, with
    ``phi''`` not growing in ``|t|``; here ``phi'' = 1 / sigma^2`` and no orthogonal part enters.  The first term is the
    Gaussian's own moment.  A positive tail needs, with ``y = |t|`` and ``t < 0``,
    ``omega y (2 + (alpha-1) y / sigma^2) > 1`` (remove) or ``2 omega y > 1`` (add), i.e. ``y > A``, and there it is at
    most ``theta alpha omega y / sigma^2`` (remove) or ``theta (alpha-1) omega e^{alpha y / sigma^2} y / sigma^2`` (add)
    times the density; both integrals are closed: ``E [y e^{l y / sigma^2}; y > A] / sigma^2`` is
    ``e^{l^2 / (2 sigma^2)}`` times ``pdf((A - l)/sigma) / sigma + l Phi((l - A)/sigma) / sigma^2``.

    *Ends.*  Also, the loss being at most the larger of 0 and its value at ``a = 1``,
    ``ln [Phi(-1/(2 sigma)) + e^{alpha (alpha-1) / (2 sigma^2)} Phi((2 alpha - 1)/(2 sigma))] / (alpha - 1)``, plus
    ``ln(1 + kappa)`` for add.

    *Replace-one.*  The least of the way through the data without the row
    (:func:`sottovoce.privacy.spherical.objective_rdp`) and the moment of :func:`objective_dominating`: with
    ``Theta = (alpha-1) slack < 1/2``,
    ``fixed + 2/sigma^2 + 2 (alpha-1) / (sigma^2 (1 - 2 Theta)) - ln(1 - 2 Theta)/(alpha-1)``, an expectation over two
    normal coordinates.
    """
    a = np.asarray(orders, dtype=float)
    if relation == "zero-out":
        both = [objective_rdp(a, sigma, kappa, relation=one) for one in ("add", "remove")]
        return np.maximum(both[0], both[1])
    if relation == "replace-one":
        add = objective_rdp(2.0 * a, sigma, kappa, relation="add")
        remove = objective_rdp(2.0 * a - 1.0, sigma, kappa, relation="remove")
        within = objective_dominating(sigma, kappa, relation=relation)
        theta = (a - 1.0) * within.slack if np.isfinite(within.slack) else np.full_like(a, np.inf)
        left = np.maximum(1.0 - 2.0 * np.minimum(theta, 0.5), 1e-300)
        direct = within.fixed + 2 / sigma**2 + 2 * (a - 1) / (sigma**2 * left) - np.log(left) / (a - 1)
        direct = np.where(theta < 0.4999, direct, np.inf)
        return np.minimum((a - 0.5) / (a - 1.0) * add + remove, direct)
    if relation not in ("add", "remove"):
        raise ValueError("relation must be 'replace-one', 'zero-out', 'add' or 'remove'")
    gauss = a / (2.0 * sigma**2)
    log_det = float(np.log1p(kappa)) if relation == "add" else 0.0
    ends = np.logaddexp(
        special.log_ndtr(-0.5 / sigma),
        a * (a - 1.0) / (2.0 * sigma**2) + special.log_ndtr((2.0 * a - 1.0) / (2.0 * sigma)),
    ) / (a - 1.0)
    if kappa <= 0.0:
        return gauss
    if relation == "add":
        grown = np.minimum(a * log_det, 700.0)
        log_theta = np.where(a * log_det < 700.0, np.log(np.expm1(grown) / kappa), np.inf)
        omega = np.full_like(a, 0.5 * kappa)
        size, tilt, least = log_theta + np.log((a - 1.0) * omega), a, 1.0 / (2.0 * omega)
    else:
        omega = np.minimum(kappa, 0.5 * kappa + a * kappa**2 / 12.0)
        size = np.log(-np.expm1((1.0 - a) * np.log1p(kappa)) / kappa * a * omega)
        tilt, p = np.zeros_like(a), (a - 1.0) / sigma**2
        least = 1.0 / (omega + np.sqrt(omega**2 + omega * p))
    at = (least - tilt) / sigma
    tail = np.logaddexp(
        -0.5 * at**2 - 0.5 * np.log(2.0 * np.pi) - np.log(sigma),
        np.where(tilt > 0, np.log(np.maximum(tilt, 1e-300)) - 2.0 * np.log(sigma) + special.log_ndtr(-at), -np.inf),
    ) + tilt**2 / (2.0 * sigma**2)
    bound = np.logaddexp((a - 1.0) * gauss, size + tail) / (a - 1.0)
    if relation == "add":
        bound = np.minimum(bound, gauss + objective_dominating(sigma, kappa, relation="add").fixed)
    return np.minimum(bound, ends + log_det)


def objective_rdp_any_derivative(orders: ArrayLike, sigma: float, kappa: float) -> Array:
    """Zero-out Renyi bound for derivatives of either sign, in [-1, 1] (Redberg, Koskela and Wang 2023).

    No event is priced by it.

    Notes
    -----
    The loss is at most ``ln(1 + kappa) + (2 |t| + 1) / (2 sigma^2)`` for ``|a| <= 1``, in both directions, and ``t`` is
    ``N(0, sigma^2)``: with ``X = t / sigma^2``,
    ``E e^{(alpha-1)|X|} = 2 e^{(alpha-1)^2 / (2 sigma^2)} Phi((alpha-1)/sigma)``.
    """
    a = np.asarray(orders, dtype=float)
    moment = np.log(2.0) + (a - 1.0) ** 2 / (2.0 * sigma**2) + special.log_ndtr((a - 1.0) / sigma)
    return float(np.log1p(kappa)) + 0.5 / sigma**2 + moment / (a - 1.0)


# --- the sparse vector ----------------------------------------------------------------------------------------------


def above_threshold_split(epsilon: float, positives: int) -> tuple[float, float]:
    """U5: shares ``(e1, e2)`` of `epsilon` for threshold and queries, ``1 : (2 c)^{2/3}`` (Lyu, Su and Li 2017)."""
    ratio = (2.0 * positives) ** (2.0 / 3.0)
    return epsilon / (1.0 + ratio), epsilon * ratio / (1.0 + ratio)
