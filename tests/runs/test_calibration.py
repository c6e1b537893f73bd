"""The one search for noise: targets are met from below, per node, whatever the price, and refused where none is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sottovoce import aggregation
from sottovoce.aggregation import Terms
from sottovoce.errors import InvalidInput
from sottovoce.privacy import accountants
from sottovoce.privacy.events import ExactSphericalMechanism, GaussianMechanism
from sottovoce.privacy.gaussian import gaussian_mu
from sottovoce.runs.calibration import CLOSE, CLOSE_CONVOLVED, closeness, largest_scale, scale_for
from sottovoce.studies.kinds.thesis_components import _least_noise
from sottovoce.util.typing import Array

SENSITIVITY = np.array([1e-6, 0.02, 3.0, 500.0])


@pytest.mark.parametrize("seed", range(20))
def test_targets_are_met_from_below_for_powers_and_their_sums(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = 7
    factors, powers = 10.0 ** rng.uniform(-6, 6, (3, size)), rng.uniform(0.5, 3.0, (3, size))
    target = 10.0 ** rng.uniform(-3, 3, size)
    asked: list[Array] = []

    def price(scale: Array) -> Array:
        asked.append(scale)
        return np.asarray((factors * scale**powers).sum(axis=0))

    found = largest_scale(price, target, 1e-9)
    assert found.met.all() and np.array_equal(found.spent, price(found.value))
    assert np.all(found.spent <= target) and np.all(found.spent >= (1.0 - 1e-9) * target)
    assert len(asked) < 60


def test_each_node_is_searched_by_itself() -> None:
    """A node's scale does not depend on who else is searched for."""
    powers, target = np.array([1.0, 2.0, 0.5]), np.array([3.0, 0.1, 20.0])
    together = largest_scale(lambda scale: scale**powers, target, 1e-6)
    for i in range(3):
        alone = largest_scale(lambda scale, i=i: scale ** powers[i], target[i : i + 1], 1e-6)  # type: ignore[misc]
        assert alone.value[0] == together.value[i]


def test_a_price_with_a_jump_ends_below_it() -> None:
    found = largest_scale(lambda scale: np.where(scale < 2.5, scale, scale + 10.0), np.array([5.0]), 1e-9)
    assert found.met.all() and found.spent[0] < 2.5 and found.value[0] == pytest.approx(2.5, rel=1e-9)


def test_what_no_scale_can_meet_is_said_for_its_node() -> None:
    floor = np.array([0.0, 2.0])
    found = largest_scale(lambda scale: floor + scale, np.array([1.0, 1.0]), 1e-9)
    assert found.met.tolist() == [True, False]
    assert found.dear[1] < 1e-15  # the least scale that was tried still costs too much


def test_noise_that_would_have_to_be_infinite_counts_as_cheap_and_the_unseen_as_nothing() -> None:
    def price(scale: Array) -> Array:
        none = scale < np.array([10.0, 0.0])
        return np.where(none, -np.inf, np.nan) if none.any() else scale

    found = largest_scale(price, np.array([40.0, 40.0]), 1e-9)
    assert found.met.all() and np.allclose(found.spent, 40.0, rtol=1e-9)


def test_one_spherical_release_has_a_closed_form() -> None:
    target, pure = np.array([0.1, 1.0, 2.0, 8.0]), accountants.make_accountant("pure")
    found = scale_for(
        lambda rate: [ExactSphericalMechanism("test", "replace-one", rate, SENSITIVITY, 5)], target, pure, 0.0
    )
    assert closeness(pure) == CLOSE
    assert np.all(found.value * SENSITIVITY <= target)
    assert np.allclose(found.value * SENSITIVITY, target, rtol=2.0 * CLOSE)


@pytest.mark.parametrize("name", ["pld", "best"])
def test_several_gaussian_releases_have_a_closed_form(name: str) -> None:
    accountant, target = accountants.make_accountant(name), np.array([0.2, 0.5, 1.0, 4.0])

    def events(scale: Array) -> list[GaussianMechanism]:
        return [GaussianMechanism("test", "replace-one", 1.0 / scale, SENSITIVITY, 5) for _ in range(3)]

    found = scale_for(events, target, accountant, 1e-5)
    assert closeness(accountant) == CLOSE_CONVOLVED
    mu = np.array([gaussian_mu(epsilon, 1e-5) for epsilon in target])
    shift = math.sqrt(3.0) * found.value * SENSITIVITY
    assert np.all(shift <= mu * (1.0 + 1e-9)) and np.allclose(shift, mu, rtol=2e-4)
    assert np.all(found.spent <= target) and np.all(found.spent >= (1.0 - CLOSE_CONVOLVED) * target)


def test_aggregators_and_the_thesis_use_it() -> None:
    terms = Terms(1.0, 1e-5, Lambda=0.05)
    n = np.array([[60.0], [45.0], [60.0]])
    facts, build = terms.facts(n, 4), aggregation._objective(np.zeros((1, 3, 4)), terms)
    rate = aggregation.rate_for(build, facts, terms)
    accountant = accountants.make_accountant(terms.accountant)
    spent = accountant.total([build(rate, facts).event(facts)], 1e-5)
    assert rate.shape == (3, 1) and rate[0, 0] == rate[2, 0] != rate[1, 0]
    assert np.all(spent <= 1.0) and np.all(spent >= 1.0 - CLOSE_CONVOLVED)

    def moments(sigma: float) -> list[GaussianMechanism]:
        return [GaussianMechanism("test", "replace-one", np.full(2, sigma), np.full(2, 0.02), 5)]

    sigma = _least_noise(moments, terms)
    assert 0.02 / sigma <= gaussian_mu(1.0, 1e-5) * (1.0 + 1e-9)
    assert 0.02 / sigma == pytest.approx(gaussian_mu(1.0, 1e-5), rel=2e-4)
    paid = moments(0.01)  # alone above the target
    with pytest.raises(InvalidInput, match="is spent before the models"):
        _least_noise(lambda s: [*paid, *moments(s)], terms)
