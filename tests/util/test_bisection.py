"""Bisection: both ends are on their sides of where the property ends, and as close as was asked."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sottovoce.util.bisection import bisect_elementwise, bisect_unbounded


@pytest.mark.parametrize("end", [1e-200, 0.3, 1.0, 7.0, 1e200])
@pytest.mark.parametrize("start", [1e-3, 1.0, 50.0])
def test_both_ends_enclose_where_the_property_ends(end: float, start: float) -> None:
    low, high = bisect_unbounded(lambda x: x <= end, start, 1e-12)
    assert low <= end < high
    assert high - low <= 1e-12 * high


def test_a_property_that_never_fails_has_no_end() -> None:
    assert bisect_unbounded(lambda x: True, 1.0, 1e-12) == (math.inf, math.inf)


def test_a_property_that_holds_for_finite_numbers_alone_ends_at_infinity() -> None:
    low, high = bisect_unbounded(math.isfinite, 1.0, 1e-12)
    assert math.isfinite(low) and high == math.inf


def test_elements_are_halved_by_themselves() -> None:
    ends = np.array([0.1, 0.5, 0.9])
    low, high = bisect_elementwise(lambda x: x <= ends, np.zeros(3), np.ones(3), 40)
    assert np.all(low <= ends) and np.all(ends < high)
    assert np.allclose(high - low, 2.0**-40)
