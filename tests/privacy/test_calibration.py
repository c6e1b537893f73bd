"""The one search for noise: targets are met from below, per node, whatever the price, and
refused where none is.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from sottovoce.errors import InvalidInput
from sottovoce.privacy import accountants
from sottovoce.privacy.calibration import (
    CLOSED_FORM_TOLERANCE,
    CONVOLUTION_TOLERANCE,
    calibrate,
    tolerance_for,
)
from sottovoce.privacy.events import ExactSphericalMechanism, GaussianMechanism
from sottovoce.privacy.gaussian import gaussian_mu
from sottovoce.util.typing import Array
from sottovoce_papers import aggregation
from sottovoce_papers.aggregation import Terms
from sottovoce_papers.studies.kinds.thesis_components import _least_noise

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

    found = calibrate(price, target, tolerance=1e-9)
    assert found.met.all() and np.array_equal(found.epsilon, price(found.scale))
    assert np.all(found.epsilon <= target) and np.all(found.epsilon >= (1.0 - 1e-9) * target)
    assert len(asked) < 60


def test_each_node_is_searched_by_itself() -> None:
    """A node's scale does not depend on who else is searched for."""
    powers, target = np.array([1.0, 2.0, 0.5]), np.array([3.0, 0.1, 20.0])
    together = calibrate(lambda scale: scale**powers, target, tolerance=1e-6)
    for i in range(3):
        alone = calibrate(lambda scale, i=i: scale ** powers[i], target[i : i + 1], tolerance=1e-6)  # type: ignore[misc]
        assert alone.scale[0] == together.scale[i]


def test_a_price_with_a_jump_ends_below_it() -> None:
    found = calibrate(
        lambda scale: np.where(scale < 2.5, scale, scale + 10.0), np.array([5.0]), tolerance=1e-9
    )
    assert (
        found.met.all()
        and found.epsilon[0] < 2.5
        and found.scale[0] == pytest.approx(2.5, rel=1e-9)
    )


def test_an_unreachable_target_is_reported_for_its_node() -> None:
    floor = np.array([0.0, 2.0])
    found = calibrate(lambda scale: floor + scale, np.array([1.0, 1.0]), tolerance=1e-9)
    assert found.met.tolist() == [True, False]
    assert found.too_large[1] < 1e-15  # the least scale that was tried still costs too much


def test_noise_that_would_have_to_be_infinite_counts_as_cheap_and_the_unseen_as_nothing() -> None:
    def price(scale: Array) -> Array:
        none = scale < np.array([10.0, 0.0])
        return np.where(none, -np.inf, np.nan) if none.any() else scale

    found = calibrate(price, np.array([40.0, 40.0]), tolerance=1e-9)
    assert found.met.all() and np.allclose(found.epsilon, 40.0, rtol=1e-9)


def test_a_price_that_is_not_monotone_is_never_above_the_target() -> None:
    """Waves of a tenth about a line: the price of the result is the price that was computed for
    it.
    """

    def price(scale: Array) -> Array:
        return np.asarray(scale * (1.0 + 0.1 * np.sin(40.0 * np.log(scale))))

    target = 10.0 ** np.linspace(-4.0, 4.0, 60)
    found = calibrate(price, target, tolerance=1e-9)
    assert found.met.all() and np.all(found.epsilon <= target)
    assert np.array_equal(price(found.scale), found.epsilon)


@pytest.mark.parametrize("nothing", [np.nan, -np.inf, np.inf])
def test_a_node_without_a_price_is_not_met_and_the_others_are(nothing: float) -> None:
    found = calibrate(
        lambda scale: np.array([scale[0], nothing]), np.array([3.0, 3.0]), tolerance=1e-9
    )
    assert found.met.tolist() == [True, False]
    assert found.epsilon[0] == pytest.approx(3.0, rel=1e-9)


def test_one_price_may_stand_for_all_nodes() -> None:
    found = calibrate(lambda scale: np.array(2.0 * scale[0]), np.array([3.0, 3.0]), tolerance=1e-9)
    assert found.met.all() and found.epsilon.shape == found.scale.shape == (2,)
    assert found.scale == pytest.approx(1.5, rel=1e-9)


def test_one_spherical_release_has_a_closed_form() -> None:
    target, pure = np.array([0.1, 1.0, 2.0, 8.0]), accountants.make_accountant("pure")

    def price(rate: Array) -> Array:
        return pure.epsilon_of_events(
            [ExactSphericalMechanism("test", "replace-one", rate, SENSITIVITY, 5)]
        )

    found = calibrate(price, target, tolerance=tolerance_for(pure))
    assert tolerance_for(pure) == CLOSED_FORM_TOLERANCE
    assert np.all(found.scale * SENSITIVITY <= target)
    assert np.allclose(found.scale * SENSITIVITY, target, rtol=2.0 * CLOSED_FORM_TOLERANCE)


@pytest.mark.parametrize("name", ["pld", "best"])
def test_several_gaussian_releases_have_a_closed_form(name: str) -> None:
    accountant, target = accountants.make_accountant(name), np.array([0.2, 0.5, 1.0, 4.0])

    def price(scale: Array) -> Array:
        release = GaussianMechanism("test", "replace-one", 1.0 / scale, SENSITIVITY, 5)
        return accountant.epsilon_of_events([release] * 3, 1e-5)

    found = calibrate(price, target, tolerance=tolerance_for(accountant))
    assert tolerance_for(accountant) == CONVOLUTION_TOLERANCE
    mu = np.array([gaussian_mu(epsilon, 1e-5) for epsilon in target])
    shift = math.sqrt(3.0) * found.scale * SENSITIVITY
    assert np.all(shift <= mu * (1.0 + 1e-9)) and np.allclose(shift, mu, rtol=2e-4)
    assert np.all(found.epsilon <= target) and np.all(
        found.epsilon >= (1.0 - CONVOLUTION_TOLERANCE) * target
    )


def test_aggregators_and_the_thesis_calibrate_to_their_targets() -> None:
    terms = Terms(1.0, 1e-5, Lambda=0.05)
    n = np.array([[60.0], [45.0], [60.0]])
    facts, build = terms.facts(n, 4), aggregation._objective(np.zeros((1, 3, 4)), terms)
    rate = aggregation.rate_for(build, facts, terms)
    accountant = accountants.make_accountant(terms.accountant)
    spent = accountant.epsilon_of_events([build(rate, facts).event(facts)], 1e-5)
    assert rate.shape == (3, 1) and rate[0, 0] == rate[2, 0] != rate[1, 0]
    assert np.all(spent <= 1.0) and np.all(spent >= 1.0 - CONVOLUTION_TOLERANCE)

    def moments(sigma: float) -> list[GaussianMechanism]:
        return [GaussianMechanism("test", "replace-one", np.full(2, sigma), np.full(2, 0.02), 5)]

    sigma = _least_noise(moments, terms)
    assert 0.02 / sigma <= gaussian_mu(1.0, 1e-5) * (1.0 + 1e-9)
    assert 0.02 / sigma == pytest.approx(gaussian_mu(1.0, 1e-5), rel=2e-4)
    paid = moments(0.01)  # alone above the target
    with pytest.raises(InvalidInput, match="used up before"):
        _least_noise(lambda s: [*paid, *moments(s)], terms)
