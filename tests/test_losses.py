"""Losses: derivatives by finite differences, bounds on grids, identities."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate

from sottovoce.errors import InvalidInput
from sottovoce.losses import HuberResidual, HuberSVM, LogCosh, Logistic, Loss, make_loss

RESIDUAL = [HuberResidual(0.25), HuberResidual(0.05), HuberResidual(3.0), LogCosh(0.25), LogCosh(0.1), LogCosh(3.0)]
LOSSES = [Logistic(), HuberSVM(0.5), HuberSVM(0.05), HuberSVM(3.0), *RESIDUAL]


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
        if isinstance(loss, HuberResidual):
            smooth = np.abs(np.abs(self.grid) - loss.h) > 1e-5
        np.testing.assert_allclose(numeric[smooth], loss.bend(self.grid)[smooth], atol=1e-4)

    def test_value_is_the_integral_of_the_slope(self, loss: Loss) -> None:
        rise = integrate.trapezoid(loss.slope(self.grid), self.grid)
        assert rise == pytest.approx(float(loss.value(self.grid[-1]) - loss.value(self.grid[0])), abs=1e-3)

    def test_bounds_hold_and_are_attained(self, loss: Loss) -> None:
        slope, bend = loss.slope(self.grid), loss.bend(self.grid)
        assert np.all((slope <= 0) | (not loss.monotone)) and np.all(np.abs(slope) <= loss.slope_bound)
        assert slope.min() < -0.99 * loss.slope_bound
        assert loss.monotone or slope.max() > 0.99 * loss.slope_bound
        assert np.all((bend >= 0) & (bend <= loss.bend_bound))
        assert bend.max() == pytest.approx(loss.bend_bound, rel=1e-4)

    def test_extreme_margins_do_not_overflow(self, loss: Loss) -> None:
        far = np.array([-1e6, 1e6])
        assert np.all(np.isfinite(loss.value(far)))
        np.testing.assert_allclose(loss.slope(far), [-1.0, 0.0 if loss.monotone else 1.0], atol=1e-12)

    def test_spec_rebuilds_the_loss(self, loss: Loss) -> None:
        assert make_loss(loss.spec) == loss


def test_logistic_identity() -> None:
    z = np.linspace(-30, 30, 601)
    a = np.abs(Logistic().slope(z))
    np.testing.assert_allclose(Logistic().bend(z), a * (1 - a), atol=1e-15)


@pytest.mark.parametrize("loss", RESIDUAL, ids=lambda loss: loss.spec)
def test_losses_of_residuals_are_even_and_near_one_another(loss: Loss) -> None:
    r = np.linspace(0, 12, 2001)
    np.testing.assert_array_equal(loss.value(r), loss.value(-r))
    np.testing.assert_array_equal(loss.slope(r), -loss.slope(-r))
    assert loss.value(np.zeros(1)) == loss.slope(np.zeros(1)) == 0.0 and not loss.monotone and loss.offset_bound == 1.0
    h = 1.0 / loss.bend_bound
    assert np.all((r - loss.value(r) >= 0) & (r - loss.value(r) <= h * np.log(2) + 1e-12))
    assert loss.typical_bend(np.zeros(1))[0] >= 0.25 * loss.bend_bound


def test_log_cosh_identity() -> None:
    r = np.linspace(-4, 4, 601)
    np.testing.assert_allclose(LogCosh(0.2).bend(r), (1 - LogCosh(0.2).slope(r) ** 2) / 0.2, atol=1e-14)


def test_specs_keep_every_digit() -> None:
    h = 0.1 + 0.2
    assert make_loss(HuberResidual(h).spec) == HuberResidual(h) and make_loss(LogCosh(np.float64(h)).spec) == LogCosh(h)
    assert make_loss("huber-residual") == HuberResidual(0.25) and make_loss("log-cosh") == LogCosh(0.25)


UNKNOWN = ["hinge", "huber:0", "huber:-1", "huber:x", "logistic:2", "huber:nan"]


@pytest.mark.parametrize("spec", [*UNKNOWN, "log-cosh:0", "log-cosh:nan", "huber-residual:inf", "huber-residual:x"])
def test_unknown_losses_are_refused(spec: str) -> None:
    with pytest.raises(InvalidInput):
        make_loss(spec)
