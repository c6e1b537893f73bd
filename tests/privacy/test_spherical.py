"""Spherical noise: prices against integrals that share nothing with the closed forms, and exact
output densities.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import mpmath
import numpy as np
import pytest
from profiles import spherical_delta
from scipy import integrate, special, stats

from sottovoce.privacy import pld, spherical
from sottovoce.privacy.accountants import composed_epsilon
from sottovoce.privacy.prices import Bill
from sottovoce.problem.losses import HuberSVM, Logistic, Loss

ORDERS = np.array([1.01, 1.5, 2.0, 4.0, 16.0, 64.0])
Weights = tuple[np.ndarray, np.ndarray]
leggauss = lru_cache(np.polynomial.legendre.leggauss)


@lru_cache
def ball(d: int, beta: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Norms, cosines and weights of noise of rate beta: quantiles of Gamma x Gauss-Jacobi, for
    integrals over both.
    """
    x, w = leggauss(160)
    low, high = stats.gamma.ppf(1e-17, d), stats.gamma.isf(1e-17, d)
    norm = low + (high - low) * (x + 1) / 2
    radial = w / 2 * (high - low) * stats.gamma.pdf(norm, d)
    if d == 1:
        cosine, angular = np.array([-1.0, 1.0]), np.array([0.5, 0.5])
    else:
        theta, tw = leggauss(400)
        theta = np.pi * (theta + 1) / 2
        cosine, angular = np.cos(theta), tw * np.sin(theta) ** (d - 2)
        angular /= angular.sum()
    return norm[:, None] / beta, cosine[None, :], radial[:, None] / radial.sum() * angular[None, :]


def additive_loss(norm: np.ndarray, cosine: np.ndarray, beta: float, shift: float) -> np.ndarray:
    return beta * (np.sqrt(norm**2 - 2 * shift * norm * cosine + shift**2) - norm)


@pytest.mark.parametrize(
    ("d", "s"), [(1, 0.3), (2, 0.2), (2, 4.0), (3, 1.0), (8, 2.5), (105, 0.1), (105, 6.0)]
)
def test_rdp_is_the_moment_of_the_loss(d: int, s: float) -> None:
    norm, cosine, weight = ball(d, s)
    loss = additive_loss(norm, cosine, s, 1.0)
    for order in (1.5, 2.0, 8.0, 40.0):
        moment = np.sum(weight * np.exp((order - 1) * loss))
        price = float(spherical.spherical_rdp(order, d, s))
        # the loss has a cusp at the shift itself, which counts in low dimension
        tight = 1e-3 if d <= 2 else 1e-6
        assert np.log(moment) / (order - 1) == pytest.approx(price, rel=tight, abs=1e-12)
        # two thirds of the sensitivity would not do
        assert price > float(spherical.spherical_rdp(order, d, 2 * s / 3)) * 1.05


def test_rdp_is_the_laplace_formula_in_one_dimension() -> None:
    for s in (1e-4, 0.1, 2.0, 30.0):
        a = np.array([1.1, 2.0, 10.0, 300.0])
        laplace = np.logaddexp(
            np.log(a / (2 * a - 1)) + (a - 1) * s, np.log((a - 1) / (2 * a - 1)) - a * s
        ) / (a - 1)
        np.testing.assert_allclose(spherical.spherical_rdp(a, 1, s), laplace, rtol=1e-9, atol=1e-15)


def test_rdp_is_the_closed_form_in_bessel_functions() -> None:
    for d in (2, 3, 10, 60):
        for s in (0.5, 5.0, 40.0):
            nu, z, a = d / 2 - 1, s / 2, np.array([1.5, 4.0, 9.0])
            y = (2 * a - 1) * z
            bracket = special.kve(nu + 1, z) * special.ive(nu, y) + z / y * special.kve(
                nu, z
            ) * special.ive(nu + 1, y)
            moment = np.log(z) + nu * np.log(z / y) + np.log(bracket) + y - z
            np.testing.assert_allclose(
                spherical.spherical_rdp(a, d, s), moment / (a - 1), rtol=1e-9
            )


@pytest.mark.parametrize("d", [1, 2, 17, 105, 1000, 100_000])
def test_rdp_is_robust_over_the_whole_range(d: int) -> None:
    orders = np.array([1.0001, 1.1, 2.0, 10.0, 1e2, 1e3, 1e4])
    before = np.zeros_like(orders)
    for s in (1e-4, 1e-2, 0.1, 1.0, 10.0, 50.0):
        price = spherical.spherical_rdp(orders, d, s)
        assert np.all(np.isfinite(price)) and np.all(price > before) and np.all(np.diff(price) > 0)
        assert np.all(price <= np.minimum(s, spherical.spherical_rho(d, s) * orders))
        if s * 1e4 / d < 0.1:  # there the Gaussian law is exact to (y / d)^2
            np.testing.assert_allclose(price, spherical.spherical_rho(d, s) * orders, rtol=0.01)
        if s * 1e4 > 1e3 * d:
            assert price[-1] > 0.99 * s
        before = price


def test_orders_below_one_are_refused_and_no_shift_is_free() -> None:
    with pytest.raises(ValueError, match="orders"):
        spherical.spherical_rdp([0.5, 2.0], 3, 1.0)
    assert np.array_equal(spherical.spherical_rdp(ORDERS, 3, 0.0), np.zeros(6))


def exact_cdf(loss: np.ndarray, d: int, s: float) -> np.ndarray:
    """P(loss <= l) by the cosine's law given the norm; no spheroidal coordinates."""
    if d == 1:
        return np.where(loss >= s, 1.0, np.where(loss < -s, 0.0, 0.5 * np.exp((loss - s) / 2)))
    x, w = leggauss(600)
    low, high = stats.gamma.ppf(1e-18, d), stats.gamma.isf(1e-18, d)
    norm = low + (high - low) * (x + 1) / 2
    weight = w * stats.gamma.pdf(norm, d)
    norm, weight = norm / s, weight / weight.sum()
    l = np.clip(loss, -s, s)[:, None] / s  # noqa: E741
    with np.errstate(divide="ignore", invalid="ignore"):
        c = np.clip((1 - 2 * norm * l - l**2) / (2 * norm), -1, 1)
    half = 0.5 * special.betainc((d - 1) / 2, 0.5, 1 - c**2)
    out = np.where(c >= 0, half, 1 - half) @ weight
    return np.where(loss >= s, 1.0, np.where(loss < -s, 0.0, out))


@pytest.mark.parametrize(("d", "s"), [(2, 0.5), (3, 3.0), (105, 0.1), (105, 5.0)])
def test_density_and_profile_agree_with_the_law_of_the_cosine(d: int, s: float) -> None:
    theta = (np.arange(4000) + 0.5) * np.pi / 4000
    mass = np.exp(spherical.log_density(np.cos(theta), d, s)) * np.sin(theta) * np.pi / 4000
    assert mass.sum() == pytest.approx(1.0, abs=1e-6)
    reflected = np.exp(spherical.log_density(-np.cos(theta), d, s)) * np.sin(theta) * np.pi / 4000
    # the other law's density
    np.testing.assert_allclose(reflected, mass * np.exp(-s * np.cos(theta)), rtol=1e-9)
    for epsilon in (-0.2 * s, 0.0, 0.1 * s, 0.25 * s):
        grid = np.linspace(epsilon, s, 1501)
        # E (1 - e^{eps - L})_+ is the integral of e^{eps - l} P(L > l)
        survival = 1 - exact_cdf(grid, d, s)
        delta = integrate.trapezoid(np.exp(epsilon - grid) * survival, grid)
        assert spherical_delta(epsilon, d, s) == pytest.approx(delta, rel=2e-3, abs=2e-6)
        if epsilon >= 0:
            assert spherical_delta(epsilon, d, 2 * s / 3) < 0.9 * delta or delta < 1e-7


def test_profile_of_one_dimension_is_laplace() -> None:
    for epsilon in (0.0, 0.2, 0.7):
        assert spherical_delta(epsilon, 1, 0.7) == pytest.approx(
            max(0.0, 1 - np.exp((epsilon - 0.7) / 2)), abs=1e-12
        )
    assert spherical_delta(-0.9, 1, 0.7) == pytest.approx(1 - np.exp(-0.9), abs=1e-12)


@pytest.mark.parametrize("d", [1, 2, 105])
def test_thirty_releases_match_an_independent_convolution(d: int) -> None:
    """Brackets: losses from the cosine's law, rounded up and rounded down, convolved thirty
    times directly.
    """
    s, count, delta = 0.4, 30, 1e-5
    ours = pld.compose_losses([(pld.shifted_ball(d, s, s / 4000), count)]).epsilon(delta)
    step = s / 300
    grid = np.linspace(-s, s, 601)
    mass = np.diff(exact_cdf(grid, d, s), prepend=0.0)
    total = np.ones(1)
    for _ in range(count):
        total = np.convolve(total, mass)

    def epsilon(offset: float) -> float:
        loss = (np.arange(len(total)) - 300 * count) * step + offset
        low, high = 0.0, count * s
        for _ in range(60):
            middle = (low + high) / 2
            found = total @ np.clip(-np.expm1(middle - loss), 0, None)
            low, high = (low, middle) if found <= delta else (middle, high)
        return high

    assert epsilon(-count * step) < ours < epsilon(0.0) + 1e-6
    assert ours < epsilon(0.0) < 1.01 * ours + count * step
    less = pld.compose_losses([(pld.shifted_ball(d, 2 * s / 3, s / 4000), count)]).epsilon(delta)
    assert less < epsilon(-count * step)


def test_tight_totals_of_thirty_releases() -> None:
    """d = 105, shift 0.5 a release, delta 1e-5: basic composition says 15, and so does s^2/2 in
    place of s^2/(2d).
    """
    rdp = spherical.epsilon_from_rdp(
        spherical.ORDERS, 30 * spherical.spherical_rdp(spherical.ORDERS, 105, 0.5), 1e-5
    )
    zcdp = spherical.epsilon_from_rdp(
        spherical.ORDERS, 30 * spherical.spherical_rho(105, 0.5) * spherical.ORDERS, 1e-5
    )
    exact = pld.compose_losses([(pld.shifted_ball(105, 0.5, 2.5e-4), 30)]).epsilon(1e-5)
    assert 0.98 < exact < 1.01 < 1.07 < rdp < zcdp < 1.12


def test_composition_of_unlike_releases() -> None:
    one, two = pld.shifted_ball(5, 0.3, 1e-3), pld.shifted_ball(5, 0.5, 1e-3)
    both = pld.compose_losses([(one, 2), (two, 1)])
    direct = np.convolve(np.convolve(one.mass, one.mass), two.mass)
    np.testing.assert_allclose(both.mass, direct, atol=1e-14)
    assert both.first == 2 * one.first + two.first
    assert both.infinite < 1e-9
    assert pld.compose_losses([]).epsilon(1e-9) == 0.0
    assert both.epsilon(0.0) == np.inf  # rounding is never certified away
    with pytest.raises(ValueError, match="step"):
        pld.compose_losses([(one, 1), (pld.shifted_ball(5, 0.3, 2e-3), 1)])


# --- inside an objective --------------------------------------------------------------------------


def dominating_delta(epsilon: float, within: spherical.Within, beta: float, d: int) -> float:
    """E (1 - e^{eps - L - X - fixed})_+ with X itself, for d <= 2 (the plane is the whole space)
    or one degree.
    """
    norm, cosine, weight = ball(d, beta)
    square = 1.0 if within.degrees == d else cosine**2
    loss = (
        additive_loss(norm, cosine, beta, within.s / beta)
        + within.fixed
        + within.slack * beta * norm * square
    )
    return float(np.sum(weight * np.clip(-np.expm1(epsilon - loss), 0, None)))


def check(
    p: np.ndarray,
    q: np.ndarray,
    cell: np.ndarray | float,
    beta: float,
    kappa: float,
    d: int,
    relation: str,
) -> float:
    """Every bound against two densities on a grid; returns the closest Renyi ratio."""
    closest = 0.0
    with np.errstate(divide="ignore"):
        log_p, log_q = np.log(p), np.log(q)
    for order in (1.2, 3.0, 30.0):
        with np.errstate(divide="ignore"):
            truth = np.log(np.sum(np.exp(order * log_p + (1 - order) * log_q) * cell)) / (order - 1)
        bound = float(spherical.objective_rdp(order, beta, kappa, d, relation=relation))
        assert truth <= bound + 1e-4
        closest = max(closest, truth / bound)
    within = spherical.objective_dominating(beta, kappa, d, relation=relation)
    if np.isfinite(within.slack):
        for epsilon in within.s * np.array([-1.0, -0.6, -0.2, 0.0, 0.2, 0.6, 0.9]):
            truth = np.sum(np.clip(p - np.exp(epsilon) * q, 0, None) * cell)
            assert truth <= dominating_delta(epsilon, within, beta, d) + 2e-4
    return closest


def line_density(w: np.ndarray, loss: Loss, rows: np.ndarray, beta: float, K: float) -> np.ndarray:
    gradient = K * w + sum((r * loss.derivative(r * w) for r in rows), np.zeros_like(w))
    hessian = K + sum((r * r * loss.curvature(r * w) for r in rows), np.zeros_like(w))
    return beta / 2 * np.exp(-beta * np.abs(gradient)) * hessian


@pytest.mark.parametrize(
    "loss", [HuberSVM(0.5), HuberSVM(0.05), Logistic()], ids=lambda loss: loss.spec
)
@pytest.mark.parametrize(("beta", "K"), [(0.3, 0.8), (0.5, 5.0), (1.0, 40.0), (0.05, 300.0)])
def test_objective_bounds_hold_in_one_dimension(loss: Loss, beta: float, K: float) -> None:
    rng = np.random.default_rng(3)
    kappa, attained = loss.curvature_bound / K, 0.0
    w = np.linspace(-1, 1, 60001) ** 3 * (60 / beta + 30) / K
    cell = np.gradient(w)
    for rows in (np.zeros(0), np.ones(20), np.array([1.0, -1.0, 0.4]), rng.uniform(-1, 1, 6)):
        null = line_density(w, loss, rows, beta, K)
        # the narrowest kink has few cells
        assert np.sum(null * cell) == pytest.approx(1.0, abs=2e-2)
        for one, two in [(1.0, -1.0), (1.0, 0.7), (-1.0, -0.2)]:
            p, q = (line_density(w, loss, np.append(rows, r), beta, K) for r in (one, two))
            attained = max(attained, check(p, q, cell, beta, kappa, 1, "replace-one"))
            check(q, p, cell, beta, kappa, 1, "replace-one")
            check(p, null, cell, beta, kappa, 1, "add")
            check(null, p, cell, beta, kappa, 1, "remove")
    assert attained < 1.0 and (loss.name == "logistic" or K < 1 or attained > 0.5)


def test_two_thirds_of_the_sensitivity_are_violated() -> None:
    """Huber's linear zone has slope one on both sides: a bound at 2/3 of the shift is broken."""
    loss, beta, K = HuberSVM(0.5), 0.5, 400.0
    w = np.linspace(-1, 1, 200001) * 120 / K
    p, q = (line_density(w, loss, np.array([r]), beta, K) for r in (1.0, -1.0))
    cell = float(w[1] - w[0])
    for order in (2.0, 8.0):
        truth = np.log(np.sum(p**order * q ** (1 - order)) * cell) / (order - 1)
        whole = float(spherical.objective_rdp(order, beta, 1 / K, 1, relation="replace-one"))
        less = float(spherical.objective_rdp(order, 2 * beta / 3, 1 / K, 1, relation="replace-one"))
        assert less < truth <= whole
    within = spherical.objective_dominating(2 * beta / 3, 1 / K, 1, relation="replace-one")
    truth = np.sum(np.clip(p - q, 0, None)) * cell
    assert truth > spherical_delta(-within.fixed, 1, within.s)


@pytest.mark.parametrize("loss", [HuberSVM(0.3), Logistic()], ids=lambda loss: loss.spec)
@pytest.mark.parametrize(("beta", "K"), [(0.8, 0.7), (0.6, 8.0)])
def test_objective_bounds_hold_in_two_dimensions(loss: Loss, beta: float, K: float) -> None:
    axis = (np.arange(1200) + 0.5) / 600 - 1
    w = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2) * (28 / beta + 3) / K
    cell = (axis[1] - axis[0]) ** 2 * ((28 / beta + 3) / K) ** 2
    base = np.array([[0.8, 0.6], [-0.5, 0.1]])

    def density(rows: np.ndarray) -> np.ndarray:
        z = w @ rows.T
        gradient = K * w + loss.derivative(z) @ rows
        bend = loss.curvature(z)
        xx, yy, xy = (bend @ (rows[:, i] * rows[:, j]) for i, j in ((0, 0), (1, 1), (0, 1)))
        norm = np.hypot(gradient[:, 0], gradient[:, 1])
        return beta**2 / (2 * np.pi) * np.exp(-beta * norm) * ((K + xx) * (K + yy) - xy**2)

    null = density(base)
    assert null.sum() * cell == pytest.approx(1.0, abs=2e-3)
    kappa = loss.curvature_bound / K
    first = density(np.vstack([base, [1.0, 0.0]]))
    check(first, null, cell, beta, kappa, 2, "add")
    check(null, first, cell, beta, kappa, 2, "remove")
    for angle in (0.6, 2.0, np.pi):
        second = density(np.vstack([base, [np.cos(angle), np.sin(angle)]]))
        check(first, second, cell, beta, kappa, 2, "replace-one")
        check(second, first, cell, beta, kappa, 2, "replace-one")


@pytest.mark.parametrize(
    ("d", "kappa", "order"), [(3, 0.05, 2.0), (3, 0.05, 12.0), (12, 0.04, 3.0), (12, 0.02, 20.0)]
)
def test_no_admissible_slope_beats_the_renyi_bound(d: int, kappa: float, order: float) -> None:
    """Optimal control: given the rest of o, the best slope as a function of o.u, whether or not
    data produce it.
    """
    beta, step = 0.3, 0.25
    reach = stats.gamma.isf(1e-9, d) / beta
    x, w = leggauss(24)
    rest, w = reach * (x + 1) / 2, w * (reach * (x + 1) / 2) ** (d - 2)
    a = np.linspace(0, 1, 1 + round(1 / (kappa * step)))  # one step at full bend climbs one level
    for relation in ("add", "remove"):
        best, additive, mass = 0.0, 0.0, 0.0
        for r, weight in zip(rest, w, strict=True):
            value = np.zeros_like(a)
            for t in np.arange(
                reach, -reach, -step
            ):  # backwards: value[i] is the best from t on if a(t) = a[i]
                middle = beta * np.hypot(r, t - step / 2)

                def gain(
                    a: np.ndarray,
                    bend: float,
                    t: float = t,
                    middle: float = middle,
                    r: float = r,
                    relation: str = relation,
                ) -> np.ndarray:
                    shifted = beta * np.hypot(r, t - step / 2 + a) - np.log1p(bend)
                    n, m = (shifted, middle) if relation == "add" else (middle, shifted)
                    return step * np.exp(-order * n + (order - 1) * m)

                flat = gain(a, 0.0) + value
                steep = np.append(gain((a[:-1] + a[1:]) / 2, kappa) + value[1:], -np.inf)
                additive += weight * float(gain(np.ones(1), 0.0)[0])
                mass += weight * step * float(np.exp(-middle))
                value = np.maximum(flat, steep)
            best += weight * float(value.max())
        truth, free = (np.log(total / mass) / (order - 1) for total in (best, additive))
        assert free == pytest.approx(float(spherical.spherical_rdp(order, d, beta)), rel=0.01)
        assert (
            truth
            <= float(spherical.objective_rdp(order, beta, kappa, d, relation=relation)) * 1.002
        )


@pytest.mark.parametrize("d", [1, 2, 105])
def test_objective_prices_tend_to_the_additive_ones(d: int) -> None:
    beta = 0.1
    for relation, s in (("add", 0.1), ("remove", 0.1), ("replace-one", 0.2)):
        limit = spherical.spherical_rdp(ORDERS, d, s)
        previous = np.full(6, np.inf)
        for kappa in (1e-2, 1e-4, 1e-6, 1e-9):
            price = spherical.objective_rdp(ORDERS, beta, kappa, d, relation=relation)
            assert np.all(price <= previous * (1 + 1e-9))
            previous = price
        if relation != "replace-one":
            np.testing.assert_allclose(previous, limit, rtol=1e-4)
        assert np.all(previous >= limit * (1 - 1e-9))
        within = spherical.objective_dominating(beta, 1e-9, d, relation=relation)
        assert within.s == pytest.approx(s) and within.fixed < 2e-9 and within.slack <= 2e-9
    assert np.array_equal(
        spherical.objective_rdp(ORDERS, beta, 0.0, d, relation="add"),
        spherical.spherical_rdp(ORDERS, d, beta),
    )


def test_thirty_releases_in_an_objective() -> None:
    """Replace-one, 105 features, 0.1 a release: basic composition says 3."""
    delta, rates = 1e-5, spherical.ORDERS
    for kappa, high in ((1e-6, 0.173), (1e-5, 0.176), (1e-4, 0.2)):
        within = spherical.objective_dominating(0.05, kappa, 105, relation="replace-one")
        bill = Bill(
            ball=(105, within.s), fixed=within.fixed, slack=within.slack, degrees=within.degrees
        )
        assert 0.1719 < composed_epsilon(Counter({bill: 30}), delta) < high
    for kappa, high in ((1e-4, 0.1908), (1e-3, 0.1912), (1e-2, 0.3)):
        curve = 30 * spherical.objective_rdp(rates, 0.05, kappa, 105, relation="replace-one")
        assert 0.19 < spherical.epsilon_from_rdp(rates, curve, delta) < high


@pytest.mark.parametrize(("d", "degrees"), [(1, 1), (2, 2), (2, 1), (105, 2), (105, 1)])
def test_surplus_covers_the_random_part(d: int, degrees: int) -> None:
    rng = np.random.default_rng(5)
    slack, count, delta = 1e-3, 30, 1e-3
    normal = rng.standard_normal((20000, count, d)) if d < 105 else None
    if normal is None:
        share = rng.beta(degrees / 2, (d - degrees) / 2, (20000, count))
    else:
        share = np.sum(normal[..., :degrees] ** 2, axis=-1) / np.sum(normal**2, axis=-1)
    total = slack * np.sum(rng.gamma(d, 1.0, (20000, count)) * share, axis=1)
    within = spherical.Within(0.1, 1e-4, slack, degrees)
    x = spherical.objective_surplus([(within, count)], delta) - count * 1e-4
    excess = -np.expm1(-np.clip(total - x, 0, None))
    assert excess.mean() < delta
    assert x < 6 * slack * count * degrees
    assert (
        spherical.objective_surplus([(spherical.Within(0.1, 0.0, np.inf, 2), 1)], delta) == np.inf
    )
    assert spherical.objective_surplus(
        [(spherical.Within(0.1, 0.2, 0.0, 1), 3)], 0.0
    ) == pytest.approx(0.6)


def test_inexact_answers_cost_what_the_ratio_of_densities_says() -> None:
    """Answers off by +-error, Laplace noise on top; in one dimension the moment has a closed
    form.
    """
    error, beta, order = 0.02, 3.0, 4.0
    truth = float(spherical.spherical_rdp(order, 1, 2 * error * beta))
    assert truth <= float(spherical.inexact_rdp(order, beta, error))
    assert float(spherical.inexact_rdp(1e9, beta, error)) == pytest.approx(2 * error * beta)


def test_unknown_relations_are_refused() -> None:
    for call in (spherical.objective_rdp, spherical.objective_dominating):
        arguments = (2.0, 0.1, 0.1, 3) if call is spherical.objective_rdp else (0.1, 0.1, 3)
        with pytest.raises(ValueError, match="relation"):
            call(*arguments, relation="zero")  # type: ignore[operator]


def test_conversion_from_renyi_is_never_below_the_exact_profile() -> None:
    for s in (0.2, 1.0):
        for delta in (1e-2, 1e-5):
            epsilon = spherical.epsilon_from_rdp(
                spherical.ORDERS, spherical.spherical_rdp(spherical.ORDERS, 20, s), delta
            )
            assert spherical_delta(epsilon, 20, s) <= delta
    assert spherical.epsilon_from_rdp([2.0, 3.0], [np.nan, np.inf], 1e-5) == np.inf
    assert spherical.epsilon_from_rdp([2.0], [0.1], 0.0) == np.inf


# Many dimensions: one ramp of slope kappa over [T - 1/kappa, T], integrated outside this code,
# attains at least this
RAMPS = [
    (784, 1.0, 8192.0, 0.08, 0.914542),
    (784, 1.0, 4000.0, 0.1, 0.830526),
    (784, 10.0, 1500.0, 0.1, 9.05667),
    (784, 0.3, 8192.0, 0.05, 0.241297),
    (2000, 1.0, 2000.0, 0.1, 0.468145),
    (500, 1.0, 8192.0, 0.05, 0.931425),
]


@pytest.mark.parametrize(("d", "beta", "order", "kappa", "attained"), RAMPS)
def test_the_tail_survives_many_dimensions(
    d: int, beta: float, order: float, kappa: float, attained: float
) -> None:
    bound = float(spherical.objective_rdp(np.array([order]), beta, kappa, d, relation="add")[0])
    assert attained <= bound < np.inf
    assert bound > float(spherical.spherical_rdp(order, d, beta))


@pytest.mark.parametrize(
    ("order", "kappa", "attained"), [(4000.0, 0.08, 1.746860), (2000.0, 0.1, 1.566232)]
)
def test_replaced_rows_in_many_dimensions(order: float, kappa: float, attained: float) -> None:
    assert (
        float(
            spherical.objective_rdp(np.array([order]), 1.0, kappa, 784, relation="replace-one")[0]
        )
        >= attained
    )


@pytest.mark.parametrize(
    ("d", "beta", "kappa", "delta", "refuted"),
    [
        (1500, 0.3, 0.2, 1e-5, 0.0902),
        (1500, 0.3, 0.1, 1e-5, 0.0902),
        (1000, 1.0, 0.5, 1e-9, 0.4739),
        (10000, 0.3, 0.1, 1e-5, 0.0128),
    ],
)
def test_totals_in_many_dimensions_are_not_what_a_ramp_refutes(
    d: int, beta: float, kappa: float, delta: float, refuted: float
) -> None:
    """At `refuted` the exact delta of a ramp is a hundred times `delta` (quadrature and
    simulation agree).
    """
    curve = spherical.objective_rdp(spherical.ORDERS, beta, kappa, d, relation="zero-out")
    assert spherical.epsilon_from_rdp(spherical.ORDERS, curve, delta) > 1.05 * refuted


@pytest.mark.parametrize(("d", "s"), [(2, 50.0), (3, 50.0), (10, 1000.0), (105, 400.0)])
def test_profile_of_small_noise_has_delta_near_one(d: int, s: float) -> None:
    assert spherical_delta(0.0, d, s) > 0.999


def test_a_part_that_is_lost_altogether_loses_the_product_in_silence() -> None:
    lost = pld.LossDistribution(1.0, 0, np.zeros(1), 1.0)
    half = pld.LossDistribution(1.0, 0, np.array([0.5]), 0.5)
    assert pld.compose_losses([(lost, 2), (half, 1)]).infinite >= 1.0
    np.testing.assert_allclose(pld.compose_losses([(half, 2)]).infinite, 0.75, rtol=1e-9)


@pytest.mark.parametrize("tilted", [True, False])
@pytest.mark.parametrize(
    ("d", "kappa"), [(1, 0.3), (7, 0.01), (101, 0.01), (101, 1e-6), (20_000, 1e-3), (20_000, 0.2)]
)
def test_the_tail_is_that_of_sums_in_logarithms(d: int, kappa: float, tilted: bool) -> None:
    """Sums below e^-600 of all are told from above, by at most the number of cells; others are
    the same.
    """
    orders, beta = np.array([1.5, 2.0, 30.0, 4000.0]), 0.7
    omega, tilt = np.full(4, 0.5 * kappa), orders * beta * tilted
    found = spherical._log_tail_bound(omega, np.zeros(4), tilt, beta, d)
    reach = np.sqrt(np.arange(0.0, 40.5, 0.25) * 2.0)
    scaled = np.unique(
        np.maximum(np.concatenate([d - reach * np.sqrt(d), d + reach * np.sqrt(d) + reach**2]), 0.0)
    )
    with np.errstate(divide="ignore"):
        survival = np.log(special.gammaincc(d, scaled))
    cells = spherical._log_cosine_cells(d) + np.log(spherical._GRID[1:])
    for k in range(4):
        above = np.logaddexp.accumulate((cells + tilt[k] * spherical._GRID[1:])[::-1])[::-1]
        rho = omega[k] * scaled / beta
        at = np.clip(
            (spherical._PARTS / (rho + np.sqrt(rho**2 + 1.0))).astype(int), 0, spherical._PARTS - 1
        )
        value = np.append(above[at], above[0])
        with np.errstate(divide="ignore"):
            steps = (
                value[1:] + np.log(-np.expm1(np.minimum(value[:-1] - value[1:], 0.0))) + survival
            )
        exact = special.logsumexp(np.append(steps, value[0])) - np.log(2.0)
        slack = 1e-8 if exact > above[0] - 550.0 else 1e-8 + np.log(spherical._PARTS)
        assert 0.0 <= found[k] - exact <= slack


def test_growth_is_that_of_bessel_functions_from_both_sides() -> None:
    """Eight nodes a piece and groups of arguments, against 40 digits."""
    for m in (-0.5, 0.0, 3.5, 49.5, 4000.0):
        start, ends = 0.3, np.geomspace(0.31, 3000.0, 40)
        found = spherical._bessel_log_growth(m, start, ends)
        with mpmath.workdps(40):

            def log_g(order: float, y: float) -> mpmath.mpf:
                return mpmath.log(mpmath.besseli(order, y)) - order * mpmath.log(y)

            own, following = (
                [float(log_g(k, y) - log_g(k, start)) for y in ends] for k in (m, m + 1.0)
            )
        np.testing.assert_allclose(found.low, own, rtol=2e-14)
        np.testing.assert_allclose(found.high, own, rtol=2e-14)
        np.testing.assert_allclose(found.next, following, rtol=2e-14)
        assert np.all(found.low <= found.high * (1.0 + 4e-16))


def test_bessel_ratios_are_bracketed_from_the_sides_that_are_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With so few steps that the ends are apart."""
    monkeypatch.setattr(spherical, "_STEPS", 0.0)
    x = np.geomspace(100.0, 1e5, 20)
    for m in (-0.5, 0.0, 3.5, 49.5):
        found = spherical._bessel_ratio_bounds(m, x)
        with mpmath.workdps(40):
            own, following = (
                [float(mpmath.besseli(k + 1, y) / mpmath.besseli(k, y)) for y in x]
                for k in (m, m + 1.0)
            )
        assert (
            np.all(found.low < own) and np.all(own < found.high) and np.all(following < found.next)
        )
