"""Tight prices of spherical noise: Renyi curves, profiles and dominating pairs.

The noise has density ``exp(-beta ||b||)``.  U2 prices it on an answer, exactly.  Inside an
objective the price is U2's plus terms that vanish with ``kappa = c1 / K``.
``docs/privacy/tight.md`` has the proofs.

Notation: ``s = beta times the shift``, ``z = s / 2``, ``nu = d / 2 - 1``, ``I`` and ``K`` modified
Bessel functions, orders ``alpha > 1``.  All numbers are upper bounds: losses are rounded up, mass
that is cut off counts as an infinite loss, and results carry a relative margin of 1e-12 for
rounding.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..util.later import Later
from ..util.typing import Array, ArrayLike

special = Later("scipy.special")

ORDERS: Array = np.concatenate([1 + np.geomspace(0.05, 1.0, 12), np.geomspace(2.1, 8192.0, 110)])
"""Orders at which Renyi curves are kept; with fewer of them epsilon is larger, and valid."""
ORDERS.setflags(write=False)

# Relative margin for rounding.
_MARGIN = 1e-12
_FEW, _FEW_WEIGHTS = np.polynomial.legendre.leggauss(8)
# Number of steps of a recurrence at argument x: the root of this times x, after which a bracket has
# shrunk by about e^-45.
_STEPS = 45.0
# Arguments are split into so many groups, in each of which the recurrence begins at one order.
_GROUPS = 6


def epsilon_from_rdp(orders: ArrayLike, rdp: ArrayLike, delta: float) -> float:
    """Return the least epsilon at `delta` that a Renyi curve proves.

    Parameters
    ----------
    orders : array of shape (k,)
        Renyi orders alpha, > 1.
    rdp : array of shape (k,)
        Bounds on the divergence at these orders; NaN and infinite entries prove nothing.
    delta : float
        In (0, 1); elsewhere nothing is proved.

    Returns
    -------
    float
        Epsilon >= 0, at the best of the orders; infinite if nothing is proved.

    Notes
    -----
    ``delta <= e^{(alpha-1)(D - eps)} (1 - 1/alpha)^alpha / (alpha - 1)`` for every
    order.  *Proof.*  With ``x = e^L``, ``(1 - e^eps / x)_+ <= x^{alpha-1} e^{-(alpha-1) eps} m``
    where ``m = max_{y>=1} y^{1-alpha} - y^{-alpha}``, attained at ``y = alpha / (alpha-1)``; take
    expectations and solve for ``eps``.
    """
    a, r = np.asarray(orders, dtype=float), np.asarray(rdp, dtype=float)
    if not 0.0 < delta < 1.0:
        return float(np.inf)
    with np.errstate(invalid="ignore"):
        each = r + np.log1p(-1.0 / a) - (np.log(delta) + np.log(a)) / (a - 1.0)
    return max(0.0, float(np.min(np.where(np.isfinite(r), each, np.inf))))


# --- Bessel ratios with certified upper and lower ends ---


class Ratios(NamedTuple):
    """Bessel ratios: ``R_m`` from below and above, and ``R_{m+1}`` from above."""

    low: Array
    high: Array
    next: Array


def _bessel_ratio_bounds(m: float, x: Array) -> Ratios:
    """Bound ``R_m(x) = I_{m+1}(x) / I_m(x)`` from both sides at increasing ``x > 0``.

    Notes
    -----
    For ``m >= -1/2``, ``1 / R_m = 2 (m+1) / x + R_{m+1}`` turns a bracket of ``R_{m+1}`` into a
    narrower one of ``R_m``.  To start it: ``R_{m+1} <= R_m`` (Turan), so ``R_m^2 + 2 (m+1) R_m / x
    >= 1``, i.e. ``R_m >= (sqrt((m+1)^2 + x^2) - m - 1) / x``, and this at ``m+1`` in the recurrence
    gives ``R_m <= x / (m + sqrt(x^2 + (m+2)^2))``.  Each step of the recurrence makes a lower end
    of an upper one and an upper end of a lower one.  A larger x needs more steps, so the larger
    ones begin earlier.
    """
    # An even number of steps above m, the upper one first.
    ends = np.empty((2, x.size))
    groups = np.array_split(np.arange(x.size), min(x.size, _GROUPS))
    tops = [2 * (7 + int(np.sqrt(_STEPS * x[group[-1]]) / 2.0)) for group in groups]
    for group, top, last in reversed(list(zip(groups, tops, [1, *tops], strict=False))):
        own, first = x[group], int(group[0])
        ends[0, group] = own / (m + top + np.hypot(own, m + top + 2.0))
        ends[1, group] = own / (m + top + 1.0 + np.hypot(own, m + top + 1.0))
        # Numbers of this group and of all larger x, which began at a greater height, go down
        # together.
        active, at = ends[:, first:], x[first:]
        for k in range(top - 1, last - 1, -1):
            np.multiply(at, active, out=active)
            np.add(2.0 * (m + k + 1.0), active, out=active)
            np.divide(at, active, out=active)
    # They are of R_{m+1}, as the number of steps was odd.
    low, high = ends
    return Ratios(x / (2.0 * (m + 1.0) + x * high), x / (2.0 * (m + 1.0) + x * low), high)


def _bessel_log_growth(m: float, start: float, ends: Array) -> Ratios:
    """Bound ``ln [y^-m I_m(y)] - ln [start^-m I_m(start)]`` at increasing `ends` y.

    It is the integral of ``R_m``.  Pieces are at most 30 % long.  The poles of R are imaginary, so
    that the Bernstein ellipse of a piece with parameter 15 has none inside, and 8 nodes, whose
    error falls with its 16th power, are exact to rounding.
    """
    edges = [start]
    for end in ends.tolist():
        # The first piece, from 0: the poles are further away than 3 (m + 1).
        if edges[-1] == 0.0:
            edges.append(min(end, 0.5 * (m + 1.0)))
        low = edges[-1]
        steps = int(np.ceil(np.log(end / low) / 0.26))
        if steps > 1:
            edges.extend(low * (end / low) ** (np.arange(1, steps) / steps))
        edges.append(end)
    grid = np.asarray(edges)
    half = 0.5 * np.diff(grid)
    x = grid[:-1, None] + half[:, None] * (1.0 + _FEW)
    place = np.searchsorted(grid, ends, side="right") - 1

    def integral(ratio: Array) -> Array:
        return np.concatenate([[0.0], np.cumsum(half * (ratio.reshape(x.shape) @ _FEW_WEIGHTS))])[
            place
        ]

    return Ratios(*map(integral, _bessel_ratio_bounds(m, x.ravel())))


@lru_cache(maxsize=4096)
def _bessel_share(d: int, z: float) -> tuple[float, float]:
    """Return ``w = z K_{nu+1}(z) I_nu(z)``, rounded up, and ``K_nu(z) / K_{nu+1}(z)``.

    ``1 / w = 1 + R_nu(z) S`` with ``S_nu = K_nu / K_{nu+1} = 1 / (2 nu / z + S_{nu-1})`` by the
    Wronskian and the recurrence, which is stable upwards; from a start far below, ``0 <= S <= 1``
    is bracket enough.
    """
    nu = d / 2.0 - 1.0
    if d % 2:
        first = -0.5
        low = high = 1.0  # K_{-1/2} = K_{1/2}
    else:
        first = 0.0
        low = high = float(special.k0e(z) / special.k1e(z))
    skip = max(0, int(nu - first) - 400 - int(4 * z))
    if skip:
        first, low, high = first + skip, 0.0, 1.0
    # The upper end makes the lower one, and the other way round.
    for k in range(1, round(nu - first) + 1):
        low, high = 1.0 / (2.0 * (first + k) / z + high), 1.0 / (2.0 * (first + k) / z + low)
    smallest = float(_bessel_ratio_bounds(nu, np.array([z])).low[0])
    return 1.0 / (1.0 + smallest * low), low


# --- U2: noise added to an answer ---


def log_density(eta: ArrayLike, d: int, s: float) -> Array:
    """Return the log density of ``eta = loss / s`` for spherical noise on an answer.

    Parameters
    ----------
    eta : array
        In (-1, 1).
    d : int
        Entries of the answer.
    s : float
        Rate of the noise times the shift, ``beta ||shift||``, > 0.

    Returns
    -------
    array of the shape of `eta`
        For ``d = 1`` of the continuous part, of mass ``(1 - e^-s) / 2``.

    Notes
    -----
    ``eta`` is a mixture, with weights ``w = z K_{nu+1}(z) I_nu(z)`` and ``1 - w``, of
    the laws ``V_nu`` and ``V_{nu+1}`` of density proportional to ``e^{z eta} (1 - eta^2)^{m -
    1/2}``: in prolate spheroidal coordinates the density factorises (``docs/privacy/tight.md``,
    Theorem 1).  For ``d = 1``, ``V_{-1/2}`` is two atoms: loss ``s`` with probability 1/2 and
    ``-s`` with ``e^-s / 2``.  Under the shifted law ``eta`` is ``-eta``.
    """
    eta = np.asarray(eta, dtype=float)
    z, nu = s / 2.0, d / 2.0 - 1.0
    share, ratio = _bessel_share(d, z)
    shape = np.log1p(-(eta**2))
    upper = _log_vmf(nu + 1.0, z) + z * eta + (nu + 0.5) * shape
    # 1 - w without cancellation.
    rest = share * ratio * float(_bessel_ratio_bounds(nu, np.array([z])).high[0])
    if d == 1:
        return np.asarray(np.log(rest) + upper)
    return np.logaddexp(
        np.log(share) + _log_vmf(nu, z) + z * eta + (nu - 0.5) * shape, np.log(rest) + upper
    )


def _log_vmf(m: float, z: float) -> float:
    """Return the log of the normaliser of ``e^{z eta} (1 - eta^2)^{m-1/2}``."""
    return -float(special.betaln(m + 0.5, 0.5)) - float(
        _bessel_log_growth(m, 0.0, np.array([z])).low[0]
    )


def spherical_rho(d: int, s: float) -> float:
    """Return ``rho = s^2 / (2 d)`` of spherical noise: ``D_alpha <= rho alpha`` at every order.

    Notes
    -----
    ``docs/privacy/tight.md``, Theorem 1: integrate ``I_{m+1}(y) / I_m(y) <= y / (2m +
    2) <= y / d`` from z to ``(2 alpha - 1) z``.
    """
    return s * s / (2.0 * d)


def spherical_rdp(orders: ArrayLike, d: int, s: float) -> Array:
    """Return the Renyi divergence of spherical noise on an answer, at each order, by U2.

    Parameters
    ----------
    orders : array
        Renyi orders alpha, > 1.
    d : int
        Entries of the answer.
    s : float
        Rate of the noise times the shift, ``beta ||shift||``, >= 0.

    Returns
    -------
    array of the shape of `orders`
        With a relative margin of 1e-12, and never above ``min(s, spherical_rho alpha)``.

    Raises
    ------
    ValueError
        If an order is at most 1.

    Notes
    -----
    ``exp((alpha-1) D) = w g_nu(y) / g_nu(z) + (1-w) g_{nu+1}(y) / g_{nu+1}(z)``,
    ``g_m(y) = y^-m I_m(y)``, ``y = (2 alpha - 1) z``: each part of :func:`log_density`'s mixture is
    tilted from ``z`` to ``y`` (``docs/privacy/tight.md``, Theorem 1).  All terms are positive and
    ``ln g_m`` is computed as an integral of a positive ratio, so small prices keep their digits.
    """
    a = np.asarray(orders, dtype=float)
    flat, place = np.unique(a, return_inverse=True)
    if s <= 0.0:
        return np.zeros_like(a)
    if np.any(flat <= 1.0):
        raise ValueError("orders must be > 1")
    z, nu = s / 2.0, d / 2.0 - 1.0
    y = (2.0 * flat - 1.0) * z
    # w is rounded up: the first part of the mixture grows faster.
    share = _bessel_share(d, z)[0]
    growth = _bessel_log_growth(nu, z, y)
    first, second = growth.high, growth.next
    # ln(w e^first + (1 - w) e^second) by the gap; beyond 30 the larger one alone is the bound.
    gap = np.maximum(first - second, 0.0)
    with np.errstate(over="ignore"):
        mixed = np.where(
            gap < 30.0, second + np.log1p(share * np.expm1(np.minimum(gap, 30.0))), first
        )
    exact = mixed / (flat - 1.0) * (1.0 + _MARGIN)
    # Theorem 1's plain bounds: s, and alpha s^2 / (2 d).
    value = np.minimum(exact, np.minimum(s, spherical_rho(d, s) * flat))
    return np.asarray(value[place].reshape(a.shape))


def loss_support(d: int, s: float) -> tuple[float, float]:
    """Return an interval (low, high) of eta; above it lies a probability of at most 1e-25.

    `d` and `s` are as for :func:`log_density`.

    :func:`spherical_rho` gives the tail bound: ``E e^{l eta} <= exp(l s/(2d) + l^2/(2d))`` for l >
    0. Nothing is proved about the mass below the interval; a caller that cuts it off must count it
    as an infinite loss.
    """
    if d == 1:
        return -1.0, 1.0
    reach = float(np.sqrt(2.0 * 58.0 / d))
    return max(-1.0, s / (2.0 * d) - reach), min(1.0, s / (2.0 * d) + reach)


# --- U2 inside an objective -----------------------------------------------------------------------


class Within(NamedTuple):
    """A dominating pair of a release inside an objective: the loss of a shift, plus two terms.

    Parameters
    ----------
    s : float
        The shift: of U2's loss, or of a Gaussian loss.
    fixed : float
        Constant that is added to the loss.
    slack : float
        Factor of a chi^2 that is added, in the sense of :func:`objective_surplus`; infinite if
        there is no pair.
    degrees : int
        Degrees of freedom of the chi^2.
    """

    s: float
    fixed: float
    slack: float
    degrees: int


def objective_dominating(beta: float, kappa: float, d: int, *, relation: str) -> Within:
    """Return a dominating pair for one release of objective perturbation with spherical noise.

    Parameters
    ----------
    beta : float
        Rate of the noise in sum scale, > 0.
    kappa : float
        ``c1 / K``, largest curvature of a row's loss over the strong convexity of all but the loss.
    d : int
        Entries of the classifier.
    relation : {"replace-one", "add", "remove"}
        "add": from the data with the row to those without; "remove": the other way.  Zero-out is
        the worse of both.

    Returns
    -------
    Within
        Its slack is infinite where there is no such pair.

    Raises
    ------
    ValueError
        If the relation is another.

    Notes
    -----
    ``docs/privacy/tight.md``, Theorem 3.  With ``o = -grad F_0(w)``, ``F_0`` the
    objective without the row, the noise is ``b = o + a u`` for a row ``u`` of derivative ``-a``.
    Along ``u``, a grows at a rate in [0, kappa].  So up to `fixed` and `slack` the loss is that of
    a shift by a's value at ``o.u = 0``, and the longest such shift is the worst.  For that the loss
    less the slack must grow with ``|o.u|``: ``kappa <= 1/2``, and ``2 kappa <= 1/2`` for two rows.
    """
    # Largest x h'(x) of h(x) = x / sqrt(r^2 + x^2): bounds what the slack leaves of the excess.
    remainder = 2.0 / (3.0 * np.sqrt(3.0))
    slack = np.inf
    if relation == "add":
        return Within(beta, float(np.log1p(kappa)) + beta * kappa / (1.0 + kappa), 0.0, 1)
    if relation == "remove":
        if kappa <= 0.5:
            slack = kappa
        return Within(beta, beta * kappa * remainder, slack, 1)
    if relation == "replace-one":
        if kappa <= 0.25:
            slack = 2.0 * kappa
        return Within(
            2.0 * beta, float(np.log1p(kappa)) + 4.0 * beta * kappa * remainder, slack, min(2, d)
        )
    raise ValueError("relation must be 'replace-one', 'add' or 'remove'")


def objective_surplus(releases: Iterable[tuple[Within, int]], delta: float) -> float:
    """Return epsilon that covers the fixed and the random terms of a composition.

    Added to the composed loss of the shifts, with `delta` added to its delta, it covers all of
    them.

    Parameters
    ----------
    releases : iterable of pairs
        Dominating pairs with how often each comes.
    delta : float
        Share of delta for the random terms.

    Returns
    -------
    float
        Infinite if a slack is, or if there is no `delta` for it.

    Notes
    -----
    ``docs/privacy/tight.md``, Lemma 4: each slack's moments are at most those of a
    chi^2, so its moment generating function is at most ``(1 - 2 tau slack)^{-k/2}``, and the sum
    has an exponential tail.  Any tau is valid.
    """
    kept = [(within, count) for within, count in releases if count > 0]
    fixed = sum(within.fixed * count for within, count in kept)
    top = max((within.slack for within, _ in kept), default=0.0)
    if top == 0.0:
        return float(fixed)
    if not np.isfinite(top) or delta <= 0.0:
        return float(np.inf)
    # Lemma 4 holds for every tau up to 1 / (2 slack), so that the best of a grid is valid.
    tau = np.linspace(0.01, 0.99, 197) / (2.0 * top)
    log_moment = sum(-0.5 * w.degrees * count * np.log1p(-2.0 * tau * w.slack) for w, count in kept)
    # Lemma 4 solved for x: min(1, 1 / (e tau)) e^(-tau x) E e^(tau Y) = delta.
    each = (log_moment - np.log(delta) - np.log(np.maximum(1.0, np.e * tau))) / tau
    return float(fixed + max(0.0, float(np.min(each))))


# --- Renyi: kappa costs only in the tail ---


def objective_rdp(orders: ArrayLike, beta: float, kappa: float, d: int, *, relation: str) -> Array:
    """Return a Renyi bound of one release of objective perturbation with spherical noise.

    It is U2's plus a tail that vanishes with ``kappa``.

    Parameters
    ----------
    orders : array
        Renyi orders, > 1.
    beta, kappa, d
        As for :func:`objective_dominating`.
    relation : {"replace-one", "add", "remove", "zero-out"}
        "zero-out" is the larger of "add" and "remove"; whole compositions may take the larger of
        the two sums.

    Returns
    -------
    array of the shape of `orders`

    Raises
    ------
    ValueError
        If the relation is another.

    Notes
    -----
    ``docs/privacy/tight.md``, Theorem 2, has the proof and the letters.  The
    determinant's power is at most a chord, linear in a's derivative; integrated by parts, that
    derivative is gone, and a may be chosen point by point.  The worst choice gives U2's moment, and
    the rest is the tail.

    Replace-one goes through the data without the row: ``D_alpha <= (alpha - 1/2)/(alpha-1) D^add_{2
    alpha} + D^remove_{2 alpha - 1}`` (Mironov 2017, Proposition 11).  Each bound is cut at the pure
    one, ``Delta beta + ln(1 + kappa)``, and add also at :func:`objective_dominating`'s.
    """
    a = np.asarray(orders, dtype=float)
    if relation == "replace-one":
        both = np.stack([2.0 * a, 2.0 * a - 1.0])
        shift = spherical_rdp(both, d, beta)
        add = _one_row_rdp(both[0], shift[0], beta, kappa, d, "add")
        remove = _one_row_rdp(both[1], shift[1], beta, kappa, d, "remove")
        return np.minimum((a - 0.5) / (a - 1.0) * add + remove, 2.0 * beta + np.log1p(kappa))
    if relation == "zero-out":
        shift = spherical_rdp(a, d, beta)
        return np.maximum(
            *(_one_row_rdp(a, shift, beta, kappa, d, one) for one in ("add", "remove"))
        )
    if relation not in ("add", "remove"):
        raise ValueError("relation must be 'replace-one', 'zero-out', 'add' or 'remove'")
    return _one_row_rdp(a, spherical_rdp(a, d, beta), beta, kappa, d, relation)


def _one_row_rdp(a: Array, shift: Array, beta: float, kappa: float, d: int, relation: str) -> Array:
    """Return :func:`objective_rdp` of "add" or "remove", given U2's divergences `shift`."""
    if kappa <= 0.0:
        return shift
    flat = a.ravel()
    with np.errstate(over="ignore", invalid="ignore"):
        if relation == "add":
            log_theta = np.log(np.expm1(np.minimum(flat * np.log1p(kappa), 700.0)) / kappa)
            omega = np.full_like(flat, 0.5 * kappa)
            size = np.log(flat - 1.0) + log_theta + np.log(beta * omega)
            # Theorem 2, add: the condition has no alpha, and the factor e^(alpha beta q) is the
            # tilt.
            tail = _log_tail_bound(omega, np.zeros_like(flat), flat * beta, beta, d)
            size = np.where(flat * np.log1p(kappa) < 700.0, size, np.inf)
        else:
            theta = -np.expm1((1.0 - flat) * np.log1p(kappa)) / kappa
            omega = np.minimum(kappa, 0.5 * kappa + flat * kappa**2 / 12.0)
            size = np.log(flat * theta * beta * omega)
            # Theorem 2, remove: (alpha - 1) beta q is in the condition, and there is no tilt.
            tail = _log_tail_bound(omega, (flat - 1.0) * beta, np.zeros_like(flat), beta, d)
        moment = (flat - 1.0) * shift.ravel()
        bound = np.logaddexp(moment, size + tail) / (flat - 1.0)
    bound = np.where(np.isnan(bound), np.inf, bound)
    # U1 per direction: the determinant costs something for add alone.
    pure = beta
    if relation == "add":
        pure = beta + np.log1p(kappa)
    bound = np.minimum(bound, pure)
    if relation == "add":
        bound = np.minimum(
            bound, shift.ravel() + objective_dominating(beta, kappa, d, relation="add").fixed
        )
    return bound.reshape(a.shape)


# Cells of the grid for the cosine's absolute value.
_PARTS = 2000
_GRID = np.linspace(0.0, 1.0, _PARTS + 1)


@lru_cache(maxsize=64)
def _log_cosine_cells(d: int) -> Array:
    """Return logs of upper bounds of the probabilities of `_GRID`'s cells, for ``|cosine|``.

    Where the exact ones underflow: ``P(|cos| > q) <= (1-q^2)^{(d-1)/2} / (q (d-1)/2 B(1/2,
    (d-1)/2))``, the integral of ``x^{-1/2} (1-x)^{(d-3)/2} / B`` from ``q^2`` with ``x^{-1/2} <=
    1/q``.
    """
    if d == 1:
        out = np.full(_PARTS, -np.inf)
        out[-1] = 0.0
    else:
        half = (d - 1.0) / 2.0
        beyond = special.betainc(half, 0.5, 1.0 - _GRID**2)
        cells = np.maximum(beyond[:-1] - beyond[1:], 0.0)
        q = np.maximum(_GRID[:-1], 0.5 / _PARTS)
        bound = half * np.log1p(-(_GRID[:-1] ** 2)) - np.log(q * half) - special.betaln(0.5, half)
        with np.errstate(divide="ignore"):
            out = np.where(cells > 1e-280, np.log(cells) + 1e-9, bound)
    out.setflags(write=False)
    return np.asarray(out)


def _log_tail_bound(omega: Array, derivative: Array, tilt: Array, beta: float, d: int) -> Array:
    """Return the log of an upper bound on the tail of :func:`_one_row_rdp`, one per order.

    It is ``E [q e^{tilt q}; t < 0, omega rho q (2 + derivative q) > 1 - q^2]``.

    In many dimensions neither cells near ``q = 1`` nor their weights fit double precision: sums are
    told by their logarithms, and where one is below e^-600 of all cells, it is at most as many
    times its largest cell.
    """
    reach = np.sqrt(np.arange(0.0, 40.5, 0.25) * 2.0)
    scaled = np.concatenate([d - reach[::-1] * np.sqrt(d), d + reach * np.sqrt(d) + reach**2])
    scaled = np.maximum(scaled, 0.0)
    scaled = scaled[np.diff(scaled, prepend=-1.0) > 0.0]
    with np.errstate(divide="ignore"):
        log_survival = np.log(special.gammaincc(d, scaled))
    # q at each cell's upper end.
    cells = _log_cosine_cells(d) + np.log(_GRID[1:])
    # omega ||o|| at grid points of beta ||o||, which is Gamma(d).
    rho = omega[:, None] * scaled / beta
    # The least q of Theorem 2's tail: the root of omega rho q (2 + derivative q) = 1 - q^2, without
    # cancellation.
    least = 1.0 / (rho + np.sqrt(rho**2 + 1.0 + rho * derivative[:, None]))
    # Rounded down to a cell's lower end: the tail counts the whole cell.
    at = np.clip(np.floor(least * _PARTS).astype(int), 0, _PARTS - 1)
    # Without a tilt the weights are the same at every order.
    tilts, which = np.unique(tilt, return_inverse=True)
    tilted = tilts[:, None] * _GRID[:0:-1]
    tilted += cells[::-1]
    top = tilted.max(axis=1, keepdims=True)
    tilted -= top
    sums = np.exp(tilted)
    place = which[:, None], _PARTS - 1 - np.pad(at, ((0, 0), (0, 1)))
    found = np.cumsum(sums, axis=1, out=sums)[place]
    if np.any(small := found < np.exp(-600.0)):
        bound = np.maximum.accumulate(tilted, axis=1)[place] + np.log(place[1] + 1.0)
        value = np.where(small, bound, np.log(np.maximum(found, 1e-300)))
    else:
        value = np.log(found)
    value += top[which]
    # With g the sum of cells from `least` on, which grows with the length X: E g(X) <= g(x_0) + sum
    # of (g(x_{j+1}) - g(x_j)) P(X > x_j).
    with np.errstate(divide="ignore"):
        steps = (
            value[:, 1:]
            + np.log(-np.expm1(np.minimum(value[:, :-1] - value[:, 1:], 0.0)))
            + log_survival
        )
    whole = np.concatenate([steps, value[:, :1]], axis=1)
    most = whole.max(axis=1)
    return np.asarray(most + np.log(np.exp(whole - most[:, None]).sum(axis=1)) - np.log(2.0) + 1e-9)


def inexact_rdp(orders: ArrayLike, beta_release: float, error: float) -> Array:
    """Return what U4 adds to the price of an exact minimiser, for spherical noise on the answer.

    Parameters
    ----------
    orders : array
        Renyi orders alpha, > 1.
    beta_release : float
        Rate of the noise on the answer.
    error : float
        Largest distance between the answer and the exact minimiser.

    Returns
    -------
    array of the shape of `orders`

    Notes
    -----
    ``(2 alpha - 1) / (alpha - 1) beta_release error``: noise around the answer instead
    of the minimiser changes the density by a factor in ``[e^-x, e^x]``, ``x = beta_release error``,
    which is raised to ``alpha`` and ``1 - alpha``.  Over a run they turn a profile ``delta(eps)``
    into ``e^X delta(eps - 2 X)``, X being the sum of the x.
    """
    a = np.asarray(orders, dtype=float)
    return (2.0 * a - 1.0) / (a - 1.0) * beta_release * error
