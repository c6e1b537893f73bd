"""Gaussian noise: exact profiles, objective perturbation against exact densities and optimal
control, sparse vector.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from profiles import objective_delta
from scipy import integrate, special, stats

from sottovoce.algorithms.ipp_admm import above_threshold_split
from sottovoce.privacy import events, gaussian, pld, prices, spherical
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import HuberSVM, Logistic, Loss
from sottovoce.queries import NoisyMinimiser
from sottovoce.solvers.local import certified_error

RELATIONS = ("add", "remove", "replace-one")


@pytest.mark.parametrize("mu", [0.05, 0.5, 2.0, 9.0])
def test_profile_is_the_integral_of_the_densities(mu: float) -> None:
    x = np.linspace(-12, 12 + mu, 400001)
    p, q = stats.norm.pdf(x), stats.norm.pdf(x - mu)
    for epsilon in (-1.0, 0.0, 0.3, 2.0):
        delta = integrate.trapezoid(np.clip(q - np.exp(epsilon) * p, 0, None), x)
        assert float(gaussian.gaussian_delta(epsilon, mu)) == pytest.approx(delta, abs=1e-9)
    for order in (1.5, 6.0):
        with np.errstate(divide="ignore"):
            moment = integrate.trapezoid(
                np.exp(order * stats.norm.logpdf(x, mu) + (1 - order) * stats.norm.logpdf(x)), x
            )
        if order * mu < 8:
            assert np.log(moment) / (order - 1) == pytest.approx(
                order * float(gaussian.gaussian_zcdp(mu)), rel=1e-6
            )


def test_inverses_meet_their_targets_from_the_safe_side() -> None:
    for epsilon in (0.1, 1.0, 10.0):
        for delta in (1e-3, 1e-5, 1e-10):
            mu = gaussian.gaussian_mu(epsilon, delta)
            assert float(gaussian.gaussian_delta(epsilon, mu)) <= delta
            assert gaussian.gaussian_epsilon(delta, mu) == pytest.approx(epsilon, rel=1e-6)
            # two thirds of the sensitivity
            assert float(gaussian.gaussian_delta(epsilon, 1.5 * mu)) > delta
    assert gaussian.gaussian_epsilon(0.5, 0.1) == 0.0
    assert gaussian.gaussian_mu(1.0, 1e-5) == pytest.approx(0.26805, rel=1e-4)
    assert (
        float(gaussian.gaussian_delta(0.1, 0.0)) == 0.0
        and float(gaussian.gaussian_delta(-1.0, 0.0)) > 0.6
    )


def test_sensitivity_of_an_argmin_is_attained_and_not_passed() -> None:
    """Opposite rows in Huber's linear zone move the minimiser by 2 C / (n q)."""
    C, n, q = 2.0, 50.0, 4.0
    w = np.linspace(-0.4, 0.4, 800001)
    loss = HuberSVM(0.5)
    at = [w[np.argmin(C / n * loss.value(r * w) + q * w**2 / 2)] for r in (1.0, -1.0)]
    moved = abs(at[0] - at[1])
    query = NoisyMinimiser(np.zeros((1, 1)), np.ones((1, 1)), "test", curvature=q - 0.5)
    facts = Facts(loss, np.array([[n]]), 1, C, 0.5, 1, tol=1e-9)
    bound = query.exact_sensitivity(facts).item()
    assert moved == pytest.approx(bound, rel=1e-4)
    assert moved > 2 / 3 * bound
    assert bound >= 2 * C / (n * q)
    one = query.exact_sensitivity(replace(facts, relation="zero-out", tol=0.0025)).item()
    assert one == pytest.approx(C / (n * q) + 2 * float(certified_error(C, 0.0025, np.array(q))))


def test_inexact_answers_need_the_factor_two() -> None:
    """Answers off by +-error: two Gaussians 2 error apart."""
    error, sigma = 0.3, 0.8
    x = np.linspace(-9, 9, 200001)
    p, q = stats.norm.pdf(x, error, sigma), stats.norm.pdf(x, -error, sigma)
    moment = np.log(integrate.trapezoid(p**3 / q**2, x)) / 2
    assert moment == pytest.approx(float(gaussian.inexact_rdp(3.0, error, sigma)), rel=1e-6)


def densities(loss: Loss, rows: np.ndarray, sigma: float, K: float, w: np.ndarray) -> np.ndarray:
    gradient = K * w + sum((r * loss.derivative(r * w) for r in rows), np.zeros_like(w))
    hessian = K + sum((r * r * loss.curvature(r * w) for r in rows), np.zeros_like(w))
    return stats.norm.pdf(gradient, scale=sigma) * hessian


@pytest.mark.parametrize(
    "loss", [HuberSVM(0.5), HuberSVM(0.05), Logistic()], ids=lambda loss: loss.spec
)
@pytest.mark.parametrize(("sigma", "K"), [(1.0, 0.7), (3.0, 5.0), (3.0, 60.0), (20.0, 400.0)])
def test_objective_bounds_hold_in_one_dimension(loss: Loss, sigma: float, K: float) -> None:
    kappa = loss.curvature_bound / K
    w = np.linspace(-1, 1, 60001) ** 3 * (9 * sigma + 30) / K
    cell = np.gradient(w)
    rng = np.random.default_rng(2)
    for rows in (np.zeros(0), np.ones(20), rng.uniform(-1, 1, 6)):
        null = densities(loss, rows, sigma, K, w)
        assert np.sum(null * cell) == pytest.approx(1.0, abs=5e-3)
        one, two = (densities(loss, np.append(rows, r), sigma, K, w) for r in (1.0, -1.0))
        for relation, p, q in (
            ("add", one, null),
            ("remove", null, one),
            ("replace-one", one, two),
        ):
            with np.errstate(divide="ignore", invalid="ignore"):
                log_p, log_q = np.log(p), np.log(q)
            keep = (p > 1e-290) & (q > 1e-290)
            for order in (1.2, 3.0, 10.0):
                logs = order * log_p[keep] + (1 - order) * log_q[keep]
                truth = np.log(np.sum(np.exp(logs) * cell[keep])) / (order - 1)
                assert (
                    truth
                    <= float(gaussian.objective_rdp(order, sigma, kappa, relation=relation)) * 1.001
                    + 1e-4
                )
            for epsilon in (0.0, 0.2, 1.0):
                truth = np.sum(np.clip(p - np.exp(epsilon) * q, 0, None) * cell)
                assert truth <= objective_delta(epsilon, sigma, kappa, relation=relation) + 5e-4


def test_two_thirds_of_the_sensitivity_are_violated() -> None:
    loss, sigma, K = HuberSVM(0.5), 2.0, 500.0
    w = np.linspace(-1, 1, 100001) * (9 * sigma + 3) / K
    cell = float(w[1] - w[0])
    one, two = (densities(loss, np.array([r]), sigma, K, w) for r in (1.0, -1.0))
    truth = np.log(np.sum(one**4 / two**3) * cell) / 3
    assert truth <= float(gaussian.objective_rdp(4.0, sigma, 1 / K, relation="replace-one"))
    assert truth > float(gaussian.objective_rdp(4.0, 1.5 * sigma, 1 / K, relation="replace-one"))
    delta = np.sum(np.clip(one - np.exp(0.2) * two, 0, None)) * cell
    assert delta <= objective_delta(0.2, sigma, 1 / K, relation="replace-one")
    assert delta > objective_delta(0.2, 1.5 * sigma, 1 / K, relation="replace-one")


@pytest.mark.parametrize(
    ("sigma", "kappa", "order"), [(2.0, 0.05, 2.0), (4.0, 0.1, 6.0), (1.0, 0.3, 10.0)]
)
@pytest.mark.parametrize("relation", ["add", "remove"])
def test_no_admissible_slope_beats_the_renyi_bound(
    sigma: float, kappa: float, order: float, relation: str
) -> None:
    """Optimal control over all slopes in [0, 1] with bend at most kappa; attained by slope one."""
    step = 0.01 * sigma
    a = np.linspace(0, 1, 1 + max(1, round(1 / (kappa * step))))
    bend = float(a[1]) / step  # kappa to within the grid
    reach = sigma * 10 + order
    value, middle = np.zeros_like(a), 0.0
    for t in np.arange(reach, -reach, -step):
        middle = (t - step / 2) ** 2 / (2 * sigma**2)

        def gain(a: np.ndarray, bend: float, t: float = t, middle: float = middle) -> np.ndarray:
            shifted = (t - step / 2 + a) ** 2 / (2 * sigma**2) - np.log1p(bend)
            n, m = (shifted, middle) if relation == "add" else (middle, shifted)
            return step * np.exp(-order * n + (order - 1) * m)

        steep = np.append(gain((a[:-1] + a[1:]) / 2, bend) + value[1:], -np.inf)
        value = np.maximum(gain(a, 0.0) + value, steep)
    truth = np.log(value.max() / (sigma * np.sqrt(2 * np.pi))) / (order - 1)
    bound = float(gaussian.objective_rdp(order, sigma, bend, relation=relation))
    assert order / (2 * sigma**2) * 0.999 <= truth <= bound * 1.001


def test_prices_tend_to_the_gaussian_mechanism() -> None:
    orders, sigma = np.array([1.5, 4.0, 64.0]), 22.0
    for relation, shift in zip(RELATIONS, (1.0, 1.0, 2.0), strict=True):
        gauss = orders * shift**2 / (2 * sigma**2)
        price = gaussian.objective_rdp(orders, sigma, 1e-9, relation=relation)
        np.testing.assert_allclose(price, gauss, rtol=2e-6 if relation != "replace-one" else 2e-2)
        assert np.all(price >= gauss * (1 - 1e-12))
        exact = gaussian.gaussian_epsilon(1e-5, shift * np.sqrt(30) / sigma)
        profile = partial(objective_delta, sigma=sigma, kappa=1e-9, relation=relation, releases=30)
        assert profile(exact) > 1e-5 >= profile(exact * 1.001 + 1e-5)
    assert np.array_equal(
        gaussian.objective_rdp(orders, sigma, 0.0, relation="zero-out"), orders / (2 * sigma**2)
    )


def test_the_determinant_is_free_over_thirty_releases() -> None:
    """sigma 22, delta 1e-5: the Gaussian's own Renyi bound is 1.0078."""
    orders, free = spherical.ORDERS, 30 * spherical.ORDERS / (2 * 22.0**2)
    ideal = spherical.epsilon_from_rdp(orders, free, 1e-5)
    for kappa in (1.8e-5, 1e-3):
        price = 30 * gaussian.objective_rdp(orders, 22.0, kappa, relation="zero-out")
        assert spherical.epsilon_from_rdp(orders, price, 1e-5) == pytest.approx(ideal, rel=1e-6)


def test_unknown_relations_are_refused() -> None:
    with pytest.raises(ValueError, match="relation"):
        gaussian.objective_rdp(2.0, 1.0, 0.1, relation="zero")
    with pytest.raises(ValueError, match="relation"):
        gaussian.objective_dominating(1.0, 0.1, relation="zero-out")


def test_above_threshold_holds_exactly_for_two_queries() -> None:
    """One positive allowed, opposite moves of two queries: exact probabilities of all outputs by
    quadrature.
    """
    e1, e2 = map(float, above_threshold_split(np.array(1.0), 1))
    assert e1 + e2 == pytest.approx(1.0) and e2 / e1 == pytest.approx(2 ** (2 / 3))
    scale_t, scale_q = 1.0 / e1, 2.0 / e2
    r = np.linspace(-80, 80, 160001)
    law = np.exp(-np.abs(r) / scale_t) / (2 * scale_t)

    def outputs(q1: float, q2: float) -> np.ndarray:
        below1, below2 = (stats.laplace.cdf(r - q, scale=scale_q) for q in (q1, q2))
        parts = (1 - below1, below1 * (1 - below2), below1 * below2)
        return np.array([integrate.trapezoid(law * part, r) for part in parts])

    worst = 0.0
    for one, two in [
        ((0, 0), (1, 1)),
        ((0, 0), (-1, 1)),
        ((-6, 3), (-5, 2)),
        ((-9, -9), (-8, -10)),
        ((5, 5), (4, 6)),
    ]:
        worst = max(worst, float(np.max(np.abs(np.log(outputs(*one) / outputs(*two))))))
    assert 0.3 < worst <= 1.0
    event = events.SparseVector("test", "replace-one", np.array([e1]), np.array([e2]), 1)
    assert prices.renyi_divergences(event, (1.5, 50.0)).ravel() == pytest.approx([0.75, 1.0])


def test_agreement_with_dp_accounting() -> None:
    """Where that library is installed: 30 Gaussian and 30 Laplace releases."""
    oracle = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    theirs = oracle.from_gaussian_mechanism(22.0).self_compose(30).get_epsilon_for_delta(1e-5)
    assert gaussian.gaussian_epsilon(1e-5, np.sqrt(30) / 22.0) == pytest.approx(theirs, rel=1e-3)
    theirs = oracle.from_laplace_mechanism(10.0, value_discretization_interval=1e-5).self_compose(
        30
    )
    ours = pld.compose_losses([(pld.shifted_ball(1, 0.1, 1e-4), 30)])
    assert ours.epsilon(1e-5) == pytest.approx(theirs.get_epsilon_for_delta(1e-5), rel=1e-4)


def test_normal_tail_in_closed_form() -> None:
    """The tail integral of the add direction, as used inside the Renyi bound."""
    sigma, tilt, least = 1.7, 3.0, 2.2
    y = np.linspace(least, 60, 400001)
    direct = integrate.trapezoid(
        y / sigma**2 * np.exp(tilt * y / sigma**2) * stats.norm.pdf(y, scale=sigma), y
    )
    at = (least - tilt) / sigma
    closed = np.exp(tilt**2 / (2 * sigma**2)) * (
        stats.norm.pdf(at) / sigma + tilt / sigma**2 * special.ndtr(-at)
    )
    assert direct == pytest.approx(closed, rel=1e-8)
