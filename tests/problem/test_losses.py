"""What every registered loss must do: derivatives by finite differences, bounds on grids, what
it says of itself.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate

from sottovoce.errors import InvalidInput
from sottovoce.problem import losses
from sottovoce.problem.losses import (
    REGISTRY,
    HuberResidual,
    LogCosh,
    Logistic,
    Loss,
    Quantile,
    loss_texts,
    make_loss,
)
from sottovoce.runs.config import RunConfig
from sottovoce.runs.prepare import prepare
from sottovoce.util.typing import Array

EXAMPLES = {
    "logistic": [""],
    "huber": ["0.5", "0.05", "3"],
    "huber-residual": ["0.25", "0.05", "3"],
    "log-cosh": ["0.25", "0.1", "3"],
    "quantile": ["0.5", "0.1", "0.9"],
    "softmax": ["3", "5"],
}
"""Arguments of every registered loss: gentle, steep and flat where it has one.  A new loss needs
a line here.
"""
EVERY = [
    REGISTRY[name].read(argument) for name, arguments in EXAMPLES.items() for argument in arguments
]
LOSSES = [loss for loss in EVERY if loss.outputs == 1]
RESIDUAL = [loss for loss in LOSSES if loss.offset_bound]
EVEN = [loss for loss in RESIDUAL if not isinstance(loss, Quantile)]
JUMPING = [loss for loss in LOSSES if loss.curvature_jumps]


def test_every_loss_is_registered_once_and_has_examples() -> None:
    """A class that states a name of its own is one that users may type; two of one name would
    hide each other.
    """
    here = (
        kind for kind in vars(losses).values() if isinstance(kind, type) and issubclass(kind, Loss)
    )
    assert {kind for kind in here if "name" in vars(kind)} == set(REGISTRY.values())
    assert set(EXAMPLES) == set(REGISTRY) and all(EXAMPLES.values())
    typed = [*loss_texts(), *loss_texts(classes=True), *loss_texts(numbers=True)]
    assert {text.partition(":")[0]: bool(text.partition(":")[2]) for text in typed} == {
        name: bool(kind.argument) for name, kind in REGISTRY.items()
    }


@pytest.mark.parametrize("loss", EVERY, ids=lambda loss: loss.spec)
class TestEvery:
    def test_spec_rebuilds_the_loss(self, loss: Loss) -> None:
        assert make_loss(loss.spec) == loss and loss.spec.partition(":")[0] == loss.name

    def test_every_loss_has_a_default_and_refuses_bad_arguments(self, loss: Loss) -> None:
        assert isinstance(type(loss)(), type(loss)) and loss.about
        for wrong in ("x", "nan", "inf", "-1", "1:1"):
            with pytest.raises(InvalidInput):
                make_loss(f"{loss.name}:{wrong}")

    @pytest.mark.parametrize("delta", [None, 1e-5])
    def test_auto_starts_from_a_method_that_accepts_the_loss(
        self, loss: Loss, delta: float | None
    ) -> None:
        config = RunConfig(method="auto", loss=loss.spec, delta=delta, rounds=2, rho=0.1)
        spent = prepare(config, np.full((3, 1), 500.0), 4 * loss.outputs).algorithm.noise
        assert spent is not None and np.all(spent(1) > 0)

    def test_noise_inside_an_objective_is_priced_or_refused_before_anything_is_spent(
        self, loss: Loss
    ) -> None:
        config = RunConfig(method="objective", loss=loss.spec, rho=0.1)
        if loss.unproved_inside is None:
            assert loss.outputs == 1 and loss.monotone and loss.derivative_bound <= 1.0
            prepare(config, np.full((3, 1), 500.0), 4)
        else:
            with pytest.raises(InvalidInput, match="objective perturbation"):
                prepare(config, np.full((3, 1), 500.0), 4 * loss.outputs)

    def test_no_proof_is_inherited(self, loss: Loss) -> None:
        further = type("Further", (type(loss),), {})
        assert not further.monotone and not further.logistic_identity
        assert further().unproved_inside is not None


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.spec)
class TestLoss:
    """Losses of one margin."""

    grid = np.linspace(-12, 12, 4001) + 1e-4

    def near(self, loss: Loss) -> Array:
        """The grid, and both sides of every jump."""
        jumps = np.array(loss.curvature_jumps)
        return np.sort(np.concatenate([self.grid, jumps - 1e-9, jumps + 1e-9]))

    def test_derivative_is_that_of_the_value(self, loss: Loss) -> None:
        h = 1e-5
        numeric = (loss.value(self.grid + h) - loss.value(self.grid - h)) / (2 * h)
        np.testing.assert_allclose(numeric, loss.derivative(self.grid), atol=2e-4)

    def test_curvature_is_the_derivative_of_the_derivative(self, loss: Loss) -> None:
        h = 1e-6
        numeric = (loss.derivative(self.grid + h) - loss.derivative(self.grid - h)) / (2 * h)
        smooth = np.all(
            [np.abs(self.grid - jump) > 1e-5 for jump in loss.curvature_jumps]
            or [self.grid == self.grid],
            axis=0,
        )
        np.testing.assert_allclose(numeric[smooth], loss.curvature(self.grid)[smooth], atol=1e-4)
        np.testing.assert_array_equal(
            loss.gradient_derivative(self.grid, 0.5 * self.grid),
            loss.curvature(self.grid) * 0.5 * self.grid,
        )

    def test_the_bend_jumps_where_it_says_and_nowhere_else(self, loss: Loss) -> None:
        """Over a step without a jump, trapezoids of the bend give the slope to a far higher
        order.
        """
        left, right = self.grid[:-1], self.grid[1:]
        told = (loss.derivative(right) - loss.derivative(left)) / (right - left)
        wrong = (
            np.abs(told - 0.5 * (loss.curvature(left) + loss.curvature(right)))
            > 0.01 * loss.curvature_bound
        )
        within = np.zeros(len(left), dtype=bool)
        for jump in loss.curvature_jumps:
            within |= (left <= jump) & (jump <= right)
            sides = loss.curvature(np.array([jump - 1e-9, jump + 1e-9]))
            assert np.abs(sides[1] - sides[0]) > 1e-3 * loss.curvature_bound
        assert not np.any(wrong & ~within)

    def test_value_is_the_integral_of_the_derivative(self, loss: Loss) -> None:
        rise = integrate.trapezoid(loss.derivative(self.grid), self.grid)
        assert rise == pytest.approx(
            float(loss.value(self.grid[-1]) - loss.value(self.grid[0])), abs=1e-3
        )

    def test_bounds_hold_and_are_attained(self, loss: Loss) -> None:
        z = self.near(loss)
        slope, bend = loss.derivative(z), loss.curvature(z)
        assert np.all((slope <= 0) | (not loss.monotone)) and np.all(
            np.abs(slope) <= loss.derivative_bound
        )
        assert np.all(np.diff(slope) >= -1e-14)  # convex
        assert np.abs(slope).max() > 0.99 * loss.derivative_bound
        top = 1.0 - loss.q if isinstance(loss, Quantile) else loss.derivative_bound
        assert loss.monotone or slope.max() > 0.99 * top
        assert np.all((bend >= 0) & (bend <= loss.curvature_bound))
        assert bend.max() == pytest.approx(loss.curvature_bound, rel=1e-4)

    def test_typical_curvature_is_within_the_bounds(self, loss: Loss) -> None:
        typical = loss.typical_curvature(self.grid)
        assert np.all((typical >= 0) & (typical <= loss.curvature_bound * (1 + 1e-12)))
        # where every solve starts
        assert loss.typical_curvature(np.zeros(1))[0] > 0.05 * min(1.0, loss.curvature_bound)

    def test_only_the_logistic_loss_says_that_it_obeys_the_logistic_identity(
        self, loss: Loss
    ) -> None:
        a = np.abs(loss.derivative(self.grid))
        obeys = np.allclose(loss.curvature(self.grid), a * (1 - a), rtol=0, atol=1e-14)
        assert obeys == loss.logistic_identity == (loss.name == "logistic")

    def test_extreme_margins_do_not_overflow(self, loss: Loss) -> None:
        far, most = np.array([-1e6, 1e6]), loss.derivative_bound
        ends = [-most, 0.0 if loss.monotone else most]
        ends = [-loss.q, 1.0 - loss.q] if isinstance(loss, Quantile) else ends
        assert np.all(np.isfinite(loss.value(far)))
        np.testing.assert_allclose(loss.derivative(far), ends, atol=1e-12)

    def test_other_array_libraries_give_equal_losses(self, loss: Loss) -> None:
        xp = pytest.importorskip("array_api_strict")
        for told in (loss.value, loss.derivative, loss.curvature, loss.typical_curvature):
            np.testing.assert_allclose(
                np.asarray(told(xp.asarray(self.grid))), told(self.grid), rtol=1e-12, atol=1e-14
            )

    def test_a_loss_without_jumps_is_its_own_softened_one(self, loss: Loss) -> None:
        assert (loss.softened(1.0) is loss) == (not loss.curvature_jumps)


@pytest.mark.parametrize("loss", JUMPING, ids=lambda loss: loss.spec)
@pytest.mark.parametrize("width", [1.0, 0.1, 1e-3])
def test_a_softened_loss_is_near_its_own_and_consistent(loss: Loss, width: float) -> None:
    soft, h = loss.softened(width), 1e-3 * width
    assert not soft.curvature_jumps
    for centre in loss.curvature_jumps:
        z = centre + np.linspace(-6.0, 6.0, 241) * width
        slope, bend = soft.derivative(z), soft.curvature(z)
        assert np.all(
            np.abs(slope - loss.derivative(z)) <= width * loss.curvature_bound * (1 + 1e-9)
        )
        assert np.all(bend >= 0)
        told = (soft.derivative(z + h) - soft.derivative(z - h)) / (2 * h)
        np.testing.assert_allclose(bend, told, atol=1e-4 * loss.curvature_bound)


def test_logistic_identity() -> None:
    z = np.linspace(-30, 30, 601)
    a = np.abs(Logistic().derivative(z))
    np.testing.assert_allclose(Logistic().curvature(z), a * (1 - a), atol=1e-15)


@pytest.mark.parametrize("q", [0.1, 0.5, 0.8])
def test_the_minimiser_of_the_quantile_loss_is_the_quantile(q: float) -> None:
    t = np.random.default_rng(0).uniform(-1.0, 1.0, 20_001)
    w = np.linspace(-0.9, 0.9, 181)
    totals = [float(Quantile(q).value(one - t).mean()) for one in w]
    assert w[int(np.argmin(totals))] == pytest.approx(2.0 * q - 1.0, abs=0.03)


@pytest.mark.parametrize("loss", EVEN, ids=lambda loss: loss.spec)
def test_losses_of_residuals_are_even_and_near_one_another(loss: Loss) -> None:
    r = np.linspace(0, 12, 2001)
    np.testing.assert_array_equal(loss.value(r), loss.value(-r))
    np.testing.assert_array_equal(loss.derivative(r), -loss.derivative(-r))
    assert (
        loss.value(np.zeros(1)) == loss.derivative(np.zeros(1)) == 0.0
        and not loss.monotone
        and loss.offset_bound == 1.0
    )
    h = 1.0 / loss.curvature_bound
    assert np.all((r - loss.value(r) >= 0) & (r - loss.value(r) <= h * np.log(2) + 1e-12))
    assert loss.typical_curvature(np.zeros(1))[0] >= 0.25 * loss.curvature_bound


def test_log_cosh_identity() -> None:
    r = np.linspace(-4, 4, 601)
    np.testing.assert_allclose(
        LogCosh(0.2).curvature(r), (1 - LogCosh(0.2).derivative(r) ** 2) / 0.2, atol=1e-14
    )


def test_specs_keep_every_digit() -> None:
    h = 0.1 + 0.2
    assert make_loss(HuberResidual(h).spec) == HuberResidual(h) and make_loss(
        LogCosh(np.float64(h)).spec
    ) == LogCosh(h)
    assert make_loss("huber-residual") == HuberResidual(0.25) and make_loss("log-cosh") == LogCosh(
        0.25
    )


UNKNOWN = ["hinge", "huber:0", "huber:-1", "huber:x", "logistic:2", "huber:nan"]


@pytest.mark.parametrize(
    "spec", [*UNKNOWN, "log-cosh:0", "log-cosh:nan", "huber-residual:inf", "huber-residual:x"]
)
def test_unknown_losses_are_refused(spec: str) -> None:
    with pytest.raises(InvalidInput):
        make_loss(spec)
