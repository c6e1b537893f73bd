"""Slopes of both signs, against exact output densities: what holds for them, and which prices
would be false.
"""

from __future__ import annotations

import numpy as np
import pytest
from profiles import objective_delta
from scipy import integrate, stats

from sottovoce.privacy import gaussian, spherical
from sottovoce.privacy.bounds import objective_perturbation_epsilon
from sottovoce.problem.losses import HuberResidual, LogCosh, Residual
from sottovoce.util.typing import Array

LOSSES = [HuberResidual(0.5), LogCosh(0.3), LogCosh(2.0)]
Row = tuple[float, float]


def gradient_and_hessian(
    loss: Residual, rows: list[Row], K: float, w: Array
) -> tuple[Array, Array]:
    """Of the objective without noise, one feature: rows are (x, t), margins x w - t."""
    gradient = K * w + sum(x * loss.derivative(x * w - t) for x, t in rows)
    hessian = K + sum(x * x * loss.curvature(x * w - t) for x, t in rows)
    return gradient, np.asarray(hessian + 0 * w)


PAIRS: list[tuple[Row, Row]] = [
    ((1, 1), (1, -1)),
    ((1, 0), (-1, 0.4)),
    ((1, 1), (0, 0)),
    ((0.6, -0.3), (-1, 1)),
]
OTHERS: list[list[Row]] = [[], [(1, 0.9), (-1, 0.2), (0.4, -1)], [(1, -1)] * 3]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.spec)
@pytest.mark.parametrize("K", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("beta", [0.2, 0.7, 2.0])
def test_the_general_form_of_u1_needs_no_sign(loss: Residual, K: float, beta: float) -> None:
    w = np.linspace(-1, 1, 80001) * (10 + 16 / (beta * K))

    def log_density(rows: list[Row]) -> Array:
        gradient, hessian = gradient_and_hessian(loss, rows, K, w)
        return -beta * np.abs(gradient) + np.log(hessian) + np.log(beta / 2)

    worst = 0.0
    for rows in OTHERS:
        for one, two in PAIRS:
            a, b = log_density([*rows, one]), log_density([*rows, two])
            assert integrate.trapezoid(np.exp(a), w) == pytest.approx(1.0, abs=2e-3)
            worst = max(worst, float(np.max(np.abs(a - b))))
    bound = objective_perturbation_epsilon(
        beta, K, delta_gradient=2.0, curvature_bound=loss.curvature_bound, logistic=False
    )
    assert worst <= float(bound) + 1e-9
    # two slopes of one, unless the bend is too small to reach them
    assert worst > 1.7 * beta or loss.h == 2.0


def test_the_general_form_of_u1_holds_in_two_dimensions() -> None:
    loss, beta, K = LogCosh(0.5), 0.6, 0.8
    axis = np.linspace(-14, 14, 281)
    W = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)

    def log_density(u: Array, t: float) -> Array:
        z = W @ u - t
        gradient = K * W + loss.derivative(z)[:, None] * u
        return np.asarray(
            -beta * np.linalg.norm(gradient, axis=1) + np.log1p(loss.curvature(z) / K)
        )

    bound = float(
        objective_perturbation_epsilon(
            beta, K, delta_gradient=2.0, curvature_bound=2.0, logistic=False
        )
    )
    worst = 0.0
    for angle in np.linspace(0.0, np.pi, 8):
        other = np.array([np.cos(angle), np.sin(angle)])
        for s in (-1.0, 0.3):
            gap = log_density(np.array([1.0, 0.0]), 1.0) - log_density(other, s)
            worst = max(worst, float(np.max(np.abs(gap))))
    assert 2 * beta < worst <= bound + 1e-9


def test_the_sharper_form_for_the_logistic_loss_would_be_false() -> None:
    """It is for ``bend = a (1 - a)``; log-cosh has ``(1 - a^2) / h``, and bends most where its
    slope is 0.
    """
    loss, beta, K = LogCosh(0.05), 0.05, 1.0
    w = np.linspace(-40, 40, 800001)
    logs = []
    for rows in ([(1.0, 0.0)], [(0.0, 0.0)]):
        gradient, hessian = gradient_and_hessian(loss, rows, K, w)
        logs.append(-beta * np.abs(gradient) + np.log(hessian))
    exact = float(np.max(np.abs(logs[0] - logs[1])))
    sharper = float(
        objective_perturbation_epsilon(
            beta, K, delta_gradient=2.0, curvature_bound=20.0, logistic=True
        )
    )
    general = float(
        objective_perturbation_epsilon(
            beta, K, delta_gradient=2.0, curvature_bound=20.0, logistic=False
        )
    )
    assert 5 * sharper < exact <= general


# --- Gaussian noise inside an objective -----------------------------------------------------------


def pair_of_densities(
    loss: Residual, rows: list[Row], sigma: float, K: float
) -> tuple[Array, Array, Array]:
    """Densities without and with the row (1, 0), and the cells of the grid."""
    w = np.linspace(-1, 1, 120001) ** 3 * (9 * sigma + 30) / K
    out = []
    for some in (rows, [*rows, (1.0, 0.0)]):
        gradient, hessian = gradient_and_hessian(loss, some, K, w)
        out.append(stats.norm.pdf(gradient, scale=sigma) * hessian)
    cell = np.gradient(w)
    assert all(np.sum(p * cell) == pytest.approx(1.0, abs=5e-3) for p in out)
    return out[0], out[1], cell


def moment(p: Array, q: Array, cell: Array, order: float) -> float:
    keep = (p > 1e-290) & (q > 1e-290)
    logs = order * np.log(p[keep]) + (1 - order) * np.log(q[keep])
    return float(np.log(np.sum(np.exp(logs) * cell[keep])) / (order - 1))


def test_prices_for_slopes_of_one_sign_would_be_false() -> None:
    """With both signs the row pulls away from the middle on either side: twice the tail, when
    curvature is steep.
    """
    loss, sigma, K = LogCosh(0.01), 2.0, 0.05
    kappa = loss.curvature_bound / K
    null, one, cell = pair_of_densities(loss, [], sigma, K)
    epsilon = 0.3
    delta = float(np.sum(np.clip(null - np.exp(epsilon) * one, 0, None) * cell))
    assert delta > 1.5 * objective_delta(epsilon, sigma, kappa, relation="remove")
    truth, priced = (
        moment(null, one, cell, 3.0),
        float(gaussian.objective_rdp(3.0, sigma, kappa, relation="remove")),
    )
    assert truth > 1.3 * priced


def test_spherical_prices_for_slopes_of_one_sign_would_be_false() -> None:
    loss, beta, K = LogCosh(0.01), 0.4, 0.05
    w = np.linspace(-1, 1, 400001) ** 3 * (40 / beta) / K
    cell, logs = np.gradient(w), []
    for rows in ([], [(1.0, 0.0)]):
        gradient, hessian = gradient_and_hessian(loss, rows, K, w)
        logs.append(-beta * np.abs(gradient) + np.log(hessian) + np.log(beta / 2))
    null, one = np.exp(logs[0]), np.exp(logs[1])
    truth = moment(null, one, cell, 3.0)
    assert truth > 1.1 * float(
        spherical.objective_rdp(3.0, beta, loss.curvature_bound / K, 1, relation="remove")
    )
