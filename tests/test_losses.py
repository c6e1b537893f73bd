"""Losses: derivatives by finite differences, bounds on grids, identities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate

from sottovoce.errors import InvalidInput
from sottovoce.losses import HuberSVM, Logistic, Loss, make

LOSSES = [Logistic(), HuberSVM(0.5), HuberSVM(0.05), HuberSVM(3.0)]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.spec)
class TestLoss:
    grid = np.linspace(-12, 12, 4001) + 1e-4

    def test_slope_is_the_derivative_of_the_value(self, loss: Loss) -> None:
        h = 1e-5
        numeric = (loss.value(self.grid + h) - loss.value(self.grid - h)) / (2 * h)
        np.testing.assert_allclose(numeric, loss.slope(self.grid), atol=2e-4)

    def test_bend_is_the_derivative_of_the_slope(self, loss: Loss) -> None:
        h = 1e-6
        numeric = (loss.slope(self.grid + h) - loss.slope(self.grid - h)) / (2 * h)
        smooth = np.ones_like(self.grid, dtype=bool)
        if isinstance(loss, HuberSVM):
            smooth = np.abs(np.abs(1 - self.grid) - loss.h) > 1e-5
        np.testing.assert_allclose(numeric[smooth], loss.bend(self.grid)[smooth], atol=1e-4)

    def test_value_is_the_integral_of_the_slope(self, loss: Loss) -> None:
        rise = integrate.trapezoid(loss.slope(self.grid), self.grid)
        assert rise == pytest.approx(float(loss.value(self.grid[-1]) - loss.value(self.grid[0])), abs=1e-3)

    def test_bounds_hold_and_are_attained(self, loss: Loss) -> None:
        slope, bend = loss.slope(self.grid), loss.bend(self.grid)
        assert np.all((slope <= 0) & (slope >= -loss.slope_bound))
        assert slope.min() < -0.99 * loss.slope_bound
        assert np.all((bend >= 0) & (bend <= loss.bend_bound))
        assert bend.max() == pytest.approx(loss.bend_bound, rel=1e-4)

    def test_extreme_margins_do_not_overflow(self, loss: Loss) -> None:
        far = np.array([-1e6, 1e6])
        assert np.all(np.isfinite(loss.value(far)))
        np.testing.assert_allclose(loss.slope(far), [-1.0, 0.0], atol=1e-12)

    def test_spec_rebuilds_the_loss(self, loss: Loss) -> None:
        assert make(loss.spec) == loss


def test_logistic_identity() -> None:
    z = np.linspace(-30, 30, 601)
    a = np.abs(Logistic().slope(z))
    np.testing.assert_allclose(Logistic().bend(z), a * (1 - a), atol=1e-15)


@pytest.mark.parametrize("spec", ["hinge", "huber:0", "huber:-1", "huber:x", "logistic:2", "huber:nan"])
def test_unknown_losses_are_refused(spec: str) -> None:
    with pytest.raises(InvalidInput):
        make(spec)
