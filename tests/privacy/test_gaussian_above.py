"""Prices of Gaussian noise are upper bounds at extreme arguments too: against 60 digits and
more.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from sottovoce.privacy.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu

SHIFTS = [
    1e-150,
    1e-20,
    1e-12,
    1e-9,
    1e-8,
    1e-6,
    1e-4,
    1e-3,
    0.01,
    0.1,
    0.5,
    1.0,
    3.0,
    10.0,
    40.0,
    1e3,
    1e6,
    1e100,
]
DELTAS = [1e-300, 1e-100, 1e-30, 1e-12, 1e-9, 1e-7, 1e-5, 1e-3, 0.1, 0.5, 0.9, 1.0 - 1e-12]


def exact_delta(epsilon: float, mu: float) -> mpmath.mpf:
    """With enough digits for what cancels."""
    digits = 60 + int(2 * abs(math.log10(mu))) + (int(math.log10(epsilon)) if epsilon > 1.0 else 0)
    with mpmath.workdps(min(digits, 500)):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("mu", SHIFTS)
def test_epsilon_is_never_below_the_exact_one_and_close_to_it(mu: float) -> None:
    for delta in DELTAS:
        epsilon = gaussian_epsilon(delta, mu)
        assert exact_delta(epsilon, mu) <= delta
        if epsilon > 0.0 and 1e-290 < delta < 0.95:  # a little less is not enough
            assert exact_delta(epsilon * (1.0 - 1e-6), mu) > delta


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 1e-3, 0.1, 1.0, 10.0, 100.0, 1e6])
def test_the_shift_that_a_budget_allows_is_never_above_the_exact_one(epsilon: float) -> None:
    for delta in DELTAS:
        mu = gaussian_mu(epsilon, delta)
        assert exact_delta(epsilon, mu) <= delta
        if 1e-290 < delta < 0.95:
            assert exact_delta(epsilon, mu * (1.0 + 1e-6)) > delta


def test_delta_is_never_below_the_exact_one() -> None:
    rng = np.random.default_rng(0)
    for k in range(800):
        mu = 10.0 ** (rng.uniform(-12.0, 3.0) if k % 3 else rng.uniform(-2.0, 1.5))
        a = rng.uniform(-5.0, 45.0) if k % 2 else rng.uniform(-1.0, 8.0)
        epsilon = float(mu * (a + mu / 2.0))
        found, exact = float(gaussian_delta(epsilon, mu)), exact_delta(epsilon, mu)
        assert found >= exact
        if exact > 1e-290 and a < 37.0:
            assert found / exact - 1.0 < 1e-5


@pytest.mark.parametrize(
    ("delta", "mu"), [(1e-5, 1e160), (1e-5, math.inf), (0.0, 1.0), (1e-308, 1e-3), (5e-324, 1e100)]
)
def test_where_doubles_cannot_tell_epsilon_is_infinite(delta: float, mu: float) -> None:
    assert gaussian_epsilon(delta, mu) == math.inf


def test_without_a_shift_nothing_is_lost() -> None:
    np.testing.assert_array_equal(
        gaussian_delta([0.0, 1.0, -1.0], 0.0), [0.0, 0.0, -np.expm1(-1.0)]
    )
    assert gaussian_epsilon(1e-5, 0.0) == 0.0
    assert math.isnan(gaussian_epsilon(1e-5, math.nan)) and math.isnan(gaussian_mu(math.nan, 1e-5))
    assert gaussian_mu(1.0, 0.0) == 0.0 and gaussian_mu(math.inf, 1e-5) == math.inf
    assert float(gaussian_delta(math.inf, 1.0)) == 0.0
