"""Accountants against closed forms, against each other, and against dp-accounting."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as oracle
from profiles import spherical_delta
from scipy import integrate, optimize

from sottovoce.errors import BudgetExceeded, InvalidInput, UnknownEvent
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy import accountants, pld, prices
from sottovoce.privacy.accountants import (
    BestAccountant,
    PLDAccountant,
    PureAccountant,
    RDPAccountant,
    ZCDPAccountant,
)
from sottovoce.privacy.events import (
    Event,
    ExactSphericalMechanism,
    GaussianMechanism,
    GaussianObjectivePerturbation,
    LaplaceMechanism,
    SparseVector,
    SphericalMechanism,
    SphericalObjectivePerturbation,
    Unprotected,
    from_dict,
)
from sottovoce.privacy.gaussian import gaussian_delta, gaussian_epsilon
from sottovoce.privacy.prices import Bill

TIGHT = (ZCDPAccountant(), RDPAccountant(), PLDAccountant(), BestAccountant())


def vector(*values: float) -> np.ndarray:
    return np.array(values)


def gauss(mu: float, relation: str = "replace-one", nodes: int = 1) -> GaussianMechanism:
    sensitivity = 2.0 if relation == "replace-one" else 1.0
    return GaussianMechanism(
        "test", relation, np.full(nodes, sensitivity / mu), np.full(nodes, sensitivity), 5
    )


def objective(
    beta: float = 0.05,
    K: float = 1e4,
    d: int = 105,
    relation: str = "replace-one",
    sigma_release: float = 0.0,
) -> SphericalObjectivePerturbation:
    return SphericalObjectivePerturbation(
        "test",
        relation,
        vector(beta),
        vector(K),
        0.25,
        True,
        d,
        vector(1e-6),
        vector(0.0),
        vector(sigma_release),
    )


def gop(sigma: float, K: float, relation: str = "replace-one") -> GaussianObjectivePerturbation:
    return GaussianObjectivePerturbation(
        "test", relation, vector(sigma), vector(K), 0.25, 100, vector(1e-9), vector(0.0)
    )


EVENTS: list[Event] = [
    gauss(0.1),
    ExactSphericalMechanism("test", "replace-one", vector(0.2), vector(0.7), 12),
    SphericalMechanism("test", "replace-one", vector(0.2), vector(0.7), 12),
    LaplaceMechanism("test", "replace-one", vector(3.0), vector(0.5)),
    SparseVector("test", "replace-one", vector(0.05), vector(0.1), 3),
    objective(sigma_release=0.01),
    objective(),
    gop(40.0, 1e5),
]


# --- Gaussian noise: closed forms -----------------------------------------------------------------


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize("count", [1, 30])
@pytest.mark.parametrize("mu", [0.01, 0.1, 1.0])
def test_gaussian_releases_are_priced_exactly(mu: float, count: int, relation: str) -> None:
    events = [gauss(mu, relation)] * count
    exact = gaussian_epsilon(1e-5, mu * math.sqrt(count))
    # the grid's share of delta grows with e^epsilon
    assert float(PLDAccountant().epsilon_of_events(events, 1e-5)[0]) == pytest.approx(
        exact, rel=1e-6 if exact < 20 else 5e-3
    )
    rdp = float(RDPAccountant().epsilon_of_events(events, 1e-5)[0])
    assert exact <= rdp <= 1.15 * exact + 0.01
    assert float(ZCDPAccountant().epsilon_of_events(events, 1e-5)[0]) == pytest.approx(
        rdp, rel=1e-12
    )


def test_the_two_relations_differ_by_the_sensitivity_and_dp_accounting_agrees() -> None:
    """dp-accounting 0.6's Renyi accountant prices replace-one like add/remove; its loss
    distributions do not.
    """
    sigma, count, delta = 40.0, 30, 1e-5
    for sensitivity, relation in ((1.0, "zero-out"), (2.0, "replace-one")):
        events = [
            GaussianMechanism("test", relation, vector(sigma), vector(sensitivity), 3)
        ] * count
        theirs = oracle.from_gaussian_mechanism(
            sigma, sensitivity=sensitivity, value_discretization_interval=1e-4
        )
        expected = theirs.self_compose(count).get_epsilon_for_delta(delta)
        assert float(PLDAccountant().epsilon_of_events(events, delta)[0]) == pytest.approx(
            expected, rel=2e-3
        )
        assert float(RDPAccountant().epsilon_of_events(events, delta)[0]) >= expected * (1 - 2e-3)


def test_laplace_noise_as_dp_accounting_prices_it() -> None:
    for scale, count, delta in ((10.0, 40, 1e-6), (0.7, 3, 1e-5), (2.0, 1, 1e-3)):
        theirs = oracle.from_laplace_mechanism(
            scale, value_discretization_interval=1e-4
        ).self_compose(count)
        events = [LaplaceMechanism("test", "zero-out", vector(scale), vector(1.0))] * count
        ours = float(PLDAccountant().epsilon_of_events(events, delta)[0])
        assert ours == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-3)


def test_unlike_releases_compose_as_in_dp_accounting() -> None:
    events = [gauss(0.3)] * 3 + [
        LaplaceMechanism("test", "replace-one", vector(4.0), vector(2.0))
    ] * 5
    theirs = oracle.from_gaussian_mechanism(
        1 / 0.3, value_discretization_interval=1e-4
    ).self_compose(3)
    theirs = theirs.compose(
        oracle.from_laplace_mechanism(2.0, value_discretization_interval=1e-4).self_compose(5)
    )
    assert float(PLDAccountant().epsilon_of_events(events, 1e-5)[0]) == pytest.approx(
        theirs.get_epsilon_for_delta(1e-5), rel=1e-3
    )


# --- distributions on a grid ----------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.05, 1.0, 4.0])
def test_a_grid_never_undercuts_a_gaussian(mu: float) -> None:
    for step in (0.3 * mu, 0.03 * mu):
        grid = pld.gaussian_loss(mu, step)
        assert grid.mass.sum() == pytest.approx(1.0, abs=1e-12)
        for epsilon in np.linspace(-2 * mu, 5 * mu, 30):
            exact = float(gaussian_delta(epsilon, mu))
            assert grid.delta(epsilon) >= exact * (1 - 1e-9) - 1e-15
            assert grid.delta(epsilon) <= exact + 0.2 * step


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2, 0.3])
def test_epsilon_inverts_delta_from_above(delta: float) -> None:
    for grid in (
        pld.gaussian_loss(1.3, 0.01),
        pld.randomised_response_loss(0.8, 0.01),
        pld.shifted_ball(7, 2.0, 0.01),
    ):
        epsilon = grid.epsilon(delta)
        assert grid.delta(epsilon) <= delta * (1 + 1e-9)
        if epsilon > 0:
            assert grid.delta(epsilon - 1e-6) > delta * (1 - 1e-3)


def test_randomised_response_is_its_own_worst_case() -> None:
    grid = pld.randomised_response_loss(0.5, 0.25)
    assert grid.delta(0.5) == 0.0
    assert grid.delta(0.0) == pytest.approx((math.exp(0.5) - 1) / (math.exp(0.5) + 1))
    assert pld.compose_losses([(grid, 4)]).epsilon(1e-12) == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("d", [1, 2, 105])
def test_a_grid_never_undercuts_spherical_noise(d: int) -> None:
    for cells in (7.3, 60.0, 400.0):
        grid = pld.shifted_ball(d, 0.8, 0.8 / cells)
        for epsilon in (-0.3, 0.0, 0.05, 0.2, 0.5):
            exact = spherical_delta(epsilon, d, 0.8)
            assert exact * (1 - 1e-10) <= grid.delta(epsilon) <= exact + 0.05 / cells + 1e-20


# --- the accountants beside each other ------------------------------------------------------------


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_best_accountant_is_the_smallest_of_all(event: Event) -> None:
    best = BestAccountant()
    spent = best.zero_spending()
    for _ in range(4):
        spent = best.add_event(spent, event)
    report = best.epsilon_by_notion(spent, 1e-5)
    known = []
    for name, value in report.items():
        try:
            alone = float(
                np.max(accountants.make_accountant(name).epsilon_of_events([event] * 4, 1e-5))
            )
        except UnknownEvent:
            assert math.isinf(value)
            continue
        assert value == pytest.approx(alone)
        known.append(alone)
    assert best.network_epsilon(spent, 1e-5) == min(known) == float(best.epsilon(spent, 1e-5)[0])


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("accountant", TIGHT, ids=lambda a: a.name)
def test_totals_grow_with_every_release_and_fall_with_delta(
    accountant: accountants.Accountant, event: Event
) -> None:
    try:
        spent, totals = accountant.zero_spending(), [0.0]
        for _ in range(5):
            spent = accountant.add_event(spent, event)
            totals.append(float(accountant.epsilon(spent, 1e-5)[0]))
    except UnknownEvent:
        assert accountant.name == "zcdp"
        return
    assert all(b >= a for a, b in itertools.pairwise(totals))
    assert float(accountant.epsilon(spent, 1e-8)[0]) >= totals[-1]
    if accountant.name != "best":  # which has the pure sum to fall back on
        assert math.isinf(float(accountant.epsilon(spent, 0.0)[0]))


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_events_survive_the_way_to_disk(event: Event) -> None:
    again = from_dict(event.to_dict())
    assert again.to_dict() == event.to_dict()
    assert float(BestAccountant().epsilon_of_events([again], 1e-5)[0]) == float(
        BestAccountant().epsilon_of_events([event], 1e-5)[0]
    )
    assert np.all(event.noise_standard_deviation() >= 0)


def test_no_noise_has_no_price_anywhere() -> None:
    for accountant in (PureAccountant(), *TIGHT):
        assert np.all(
            np.isinf(accountant.epsilon_of_events([Unprotected("test", vector(3.0, 4.0))], 1e-5))
        )


def test_pure_refuses_gaussian_noise_by_name() -> None:
    with pytest.raises(UnknownEvent, match="GaussianMechanism"):
        PureAccountant().price_of_event(gauss(0.1))
    with pytest.raises(UnknownEvent, match="SphericalObjectivePerturbation"):
        PureAccountant().price_of_event(objective(sigma_release=0.1))


def test_zero_out_takes_the_worse_of_the_whole_directions() -> None:
    event = objective(0.05, 200.0, relation="zero-out")
    rdp, replaced = RDPAccountant(), objective(0.05, 200.0)
    curves = rdp.add_event(rdp.zero_spending(), event)
    assert curves.shape[0] == 2
    assert np.all(
        curves.max(axis=0)[0] <= rdp.add_event(rdp.zero_spending(), replaced)[0, 0] * (1 + 1e-12)
    )


def test_spherical_releases_cost_what_a_gaussian_of_the_same_variance_does() -> None:
    """105 features, 30 releases of pure epsilon 0.1, delta 1e-5."""
    events = [ExactSphericalMechanism("test", "replace-one", vector(0.05), vector(2.0), 105)] * 30
    s, d = 0.1, 105
    # E v_j^2 = (d + 1) / beta^2
    twin = gaussian_epsilon(1e-5, s / math.sqrt(d + 1) * math.sqrt(30))
    tight = float(PLDAccountant().epsilon_of_events(events, 1e-5)[0])
    assert twin < tight < 1.05 * twin
    assert float(PureAccountant().epsilon_of_events(events)[0]) == pytest.approx(3.0)


# --- Gaussian objective perturbation, against an integrated hockey stick --------------------------


def integrated_delta(epsilon: float, mu: float) -> float:
    """``int (p - e^eps q)_+`` of N(mu, 1) and N(0, 1) on a fine grid: no closed form."""
    x = np.linspace(-14.0, 14.0 + mu, 400001)
    gap = (np.exp(-0.5 * (x - mu) ** 2) - math.exp(epsilon) * np.exp(-0.5 * x**2)) / math.sqrt(
        2 * math.pi
    )
    return float(integrate.trapezoid(np.maximum(gap, 0.0), x))


@lru_cache
def integrated_mu(epsilon: float) -> float:
    """The largest mu at which the integral is at most 1e-5, to the last digits."""
    mu = optimize.brentq(
        lambda mu: integrated_delta(epsilon, mu) - 1e-5, 1e-4, 10.0, xtol=1e-14, rtol=1e-14
    )
    return float(mu) * (1 - 1e-12)


@pytest.mark.parametrize("epsilon", [0.05, 0.2, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("releases", [1, 30])
def test_gaussian_noise_in_an_objective_within_two_percent_of_the_integral(
    epsilon: float, releases: int
) -> None:
    """Opposite rows whose slopes stay at -1 shift the noise by 2: an attained hockey stick, so
    nothing proves less.

    The determinant's price vanishes with K; it is within the two percent at K = 2e5, i.e. kappa =
    1.25e-6.
    """
    sigma = 2.0 * math.sqrt(releases) / integrated_mu(epsilon)
    ours = float(BestAccountant().epsilon_of_events([gop(sigma, 2e5)] * releases, 1e-5)[0])
    assert epsilon * (1 - 1e-6) <= ours <= 1.02 * epsilon


# --- the ledger's part ----------------------------------------------------------------------------


def test_a_ledger_holds_one_relation() -> None:
    ledger = Ledger(BestAccountant(), math.inf, 1e-5)
    ledger.record_event(gauss(0.1))
    ledger.record_event(Unprotected("test", vector(1.0)))
    with pytest.raises(InvalidInput, match="replace-one"):
        ledger.record_event(gauss(0.1, "zero-out"))
    assert len(ledger.rows) == 2


def test_a_budget_of_best_is_the_least_accountants() -> None:
    """The Renyi sum passes the budget at the 29th release, the exact Gaussian sum only later."""
    budget = float(RDPAccountant().epsilon_of_events([gauss(0.05)] * 28, 1e-5)[0])
    ledger = Ledger(BestAccountant(), budget, 1e-5)
    for _ in range(100):
        try:
            ledger.record_event(gauss(0.05))
        except BudgetExceeded:
            break
    count = len(ledger.rows)
    assert count > 28
    assert ledger.total() <= budget < gaussian_epsilon(1e-5, 0.05 * math.sqrt(count + 1))


def test_a_person_with_rows_at_several_sites_pays_for_the_worst_of_them_together() -> None:
    event = GaussianMechanism("test", "replace-one", vector(10.0, 20.0, 40.0), np.full(3, 2.0), 4)
    for accountant in (PLDAccountant(), RDPAccountant(), ZCDPAccountant(), BestAccountant()):
        ledger = Ledger(accountant, math.inf, 1e-5, sites_per_row=2)
        ledger.record_event(event)
        merged = GaussianMechanism(
            "test", "replace-one", vector(2.0 / math.hypot(0.2, 0.1)), vector(2.0), 4
        )
        assert ledger.total() == pytest.approx(
            float(accountant.epsilon_of_events([merged], 1e-5)[0]), rel=1e-6
        )
    pure = Ledger(sites_per_row=2)
    pure.record_event(LaplaceMechanism("test", "replace-one", vector(1.0, 2.0, 4.0), np.ones(3)))
    assert pure.total() == 1.5
    assert pure.account.against([0]) == 0.75  # a person outside has rows at two sites, too
    assert pure.account.against([0, 1]) == 0.25 and pure.account.against([0, 1, 2]) == 0.0
    for accountant in (PLDAccountant(), RDPAccountant(), ZCDPAccountant(), BestAccountant()):
        ledger = Ledger(accountant, math.inf, 1e-5, sites_per_row=2)
        ledger.record_event(event)
        merged = GaussianMechanism(
            "test", "replace-one", vector(2.0 / math.hypot(0.1, 0.05)), vector(2.0), 4
        )
        assert ledger.account.against([0]) == pytest.approx(
            float(accountant.epsilon_of_events([merged], 1e-5)[0]), rel=1e-6
        )
        assert ledger.account.against([0]) < ledger.total() == ledger.account.against([])
    with pytest.raises(InvalidInput, match=r"^coalition=3: .*to 2"):
        pure.account.against([0, 3])


def test_accountants_are_found_by_name() -> None:
    assert accountants.make_accountant("rdp:20.5").label == "rdp:20.5"
    assert accountants.make_accountant("rdp").label == "rdp"
    assert (
        accountants.make_accountant("zcdp:7.5").label == "zcdp:7.5"
        and accountants.make_accountant("zcdp").label == "zcdp"
    )
    for wrong in ("renyi", "rdp:x", "rdp:0.5", "rdp:1.000001", "zcdp:x", "zcdp:0.5", "pure:2"):
        with pytest.raises(InvalidInput, match="accountant"):
            accountants.make_accountant(wrong)


@pytest.mark.parametrize("name", ["pld", "best"])
def test_accountants_that_are_no_filters_are_refused_for_lifetime_budgets(name: str) -> None:
    with pytest.raises(InvalidInput, match=r"^accountant=.*adaptively"):
        accountants.lifetime_accountant(name, vector(1.0), 1e-5)


def test_one_order_is_nearly_as_good_as_all_where_the_budget_is_spent() -> None:
    for epsilon in (0.3, 1.0, 5.0):
        life = accountants.lifetime_accountant("rdp", vector(epsilon), 1e-5)
        assert life.is_filter
        mu = 0.02
        spent, free, count = life.zero_spending(), RDPAccountant(), 0
        while float(np.max(life.epsilon(life.add_event(spent, gauss(mu)), 1e-5))) <= epsilon:
            spent, count = life.add_event(spent, gauss(mu)), count + 1
        assert float(free.epsilon_of_events([gauss(mu)] * count, 1e-5)[0]) > 0.98 * epsilon


def test_composition_of_bills_needs_a_delta() -> None:
    assert math.isinf(accountants.composed_epsilon(Counter({Bill(mu=0.1): 1}), 0.0))
    assert math.isinf(accountants.composed_epsilon(Counter({Bill(epsilon=np.inf): 1}), 1e-5))
    assert accountants.composed_epsilon(Counter({Bill(): 3}), 1e-5) == 0.0


def test_tiny_shifts_are_not_rounded_down() -> None:
    for mu in (1e-12, 1e-9, 1e-6):
        assert float(gaussian_delta(0.0, mu)) >= mu / math.sqrt(2 * math.pi) * (1 - 1e-12)


@pytest.mark.parametrize(
    "price",
    [prices.pure_epsilon, partial(prices.renyi_divergences, orders=(2.0, 8.0))],
    ids=["pure", "rdp"],
)
@pytest.mark.parametrize("size", [2, 3, 6])
def test_an_objective_with_fields_of_unlike_sizes_has_no_price(
    price: Callable[[Event], object], size: int
) -> None:
    event = replace(
        objective(),
        **{k: np.full(5, v) for k, v in {"beta": 0.05, "K": 1e4, "beta_release": 0.0}.items()},
    )
    with pytest.raises(ValueError, match="broadcast"):
        price(replace(event, error=np.full(size, 1e-6), sigma_release=np.zeros(5)))
