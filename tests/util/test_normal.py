"""The normal law from the standard library, against mpmath and SciPy."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import special

from sottovoce.util.normal import normal_log_cdf, normal_quantile, two_sided_tail

POINTS = [
    *np.linspace(-60.0, 40.0, 401).tolist(),
    -37.0,
    math.nextafter(-37.0, -38.0),
    -1e-300,
    1e-9,
    -300.0,
    -1e5,
]


@pytest.mark.parametrize("x", POINTS)
def test_the_logarithm_of_the_distribution_function_has_the_stated_error(x: float) -> None:
    with mpmath.workdps(60):
        z = mpmath.mpf(x)
        exact = mpmath.log(mpmath.erfc(-z / mpmath.sqrt(2)) / 2)
        error = float(abs(normal_log_cdf(x) - exact))
    assert error <= 1e-15 * (1.0 + x * x)
    assert normal_log_cdf(x) == pytest.approx(float(special.log_ndtr(x)), rel=1e-12)


def test_far_below_zero_the_log_cdf_is_laplaces_series() -> None:
    """A series with one term fewer is wrong by more than rounding where it is first used."""
    x = math.nextafter(-37.0, -38.0)
    term = 13 * 11 * 9 * 7 * 5 * 3 / x**14
    assert 13.0 * 15.0 / x**4 * abs(term) < 2e-16
    assert abs(normal_log_cdf(x) - normal_log_cdf(-37.0)) < 1e-12


def test_infinities_and_nan() -> None:
    assert (
        normal_log_cdf(math.inf) == 0.0
        and normal_log_cdf(-math.inf) == -math.inf
        and normal_log_cdf(-1e200) == -math.inf
    )
    assert math.isnan(normal_log_cdf(math.nan))
    assert normal_log_cdf(0.0) == math.log(0.5)


def test_quantiles_and_both_sides_are_scipys() -> None:
    p = np.concatenate([np.geomspace(1e-12, 0.5, 60), 1.0 - np.geomspace(1e-9, 0.4, 20)])
    np.testing.assert_allclose(
        [normal_quantile(x) for x in p.tolist()], special.ndtri(p), rtol=1e-12, atol=1e-15
    )
    z = np.linspace(-12.0, 12.0, 97)
    np.testing.assert_allclose(
        [two_sided_tail(x) for x in z.tolist()], 2.0 * special.ndtr(-np.abs(z)), rtol=1e-13
    )
