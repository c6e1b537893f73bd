"""Weighted rows keep the prices of rows: exact densities under U1, and the whole way of a
weighted minimiser.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate

from sottovoce.privacy.bounds import objective_perturbation_epsilon
from sottovoce.problem.losses import HuberSVM, Logistic, Loss
from sottovoce.util.typing import Array

Row = tuple[float, float]  # a signed feature, and a weight
PAIRS: list[tuple[Row, Row]] = [
    ((1, 1), (-1, 1)),
    ((1, 0.5), (-1, 1)),
    ((1, 0.2), (-1, 0.1)),
    ((1, 0), (-1, 0.7)),
]
OTHERS: list[list[Row]] = [[], [(1, 0.3), (-1, 1), (0.4, 0.8)]]


def log_density(loss: Loss, rows: list[Row], beta: float, K: float, w: Array) -> Array:
    gradient = K * w + sum(v * x * loss.derivative(x * w) for x, v in rows)
    hessian = K + sum(v * x * x * loss.curvature(x * w) for x, v in rows)
    return np.asarray(-beta * np.abs(gradient) + np.log(hessian + 0 * w) + np.log(beta / 2))


@pytest.mark.parametrize("loss", [Logistic(), HuberSVM(0.5)], ids=lambda loss: loss.spec)
@pytest.mark.parametrize("K", [0.05, 0.3, 2.0])
@pytest.mark.parametrize("beta", [0.2, 1.0, 4.0])
def test_u1_holds_for_every_weight_and_a_weight_of_two_would_break_it(
    loss: Loss, K: float, beta: float
) -> None:
    w = np.linspace(-1, 1, 160001) * (8 + 16 / (beta * K))
    most = float(
        objective_perturbation_epsilon(
            beta,
            K,
            delta_gradient=2.0,
            curvature_bound=loss.curvature_bound,
            logistic=loss.logistic_identity,
        )
    )

    def worst(pairs: list[tuple[Row, Row]]) -> float:
        found = 0.0
        for rows in OTHERS:
            for one, two in pairs:
                a, b = (log_density(loss, [*rows, row], beta, K, w) for row in (one, two))
                assert integrate.trapezoid(np.exp(a), w) == pytest.approx(1.0, abs=2e-3)
                found = max(found, float(np.max(np.abs(a - b))))
        return found

    assert worst(PAIRS) <= most + 1e-9
    if (
        beta * K > 0.5
    ):  # the noise's part is all of the price, and two rows in one weigh twice as much
        assert worst([((1, 2), (-1, 2))]) > most


def test_the_sharper_form_needs_only_an_upper_bound_on_the_bend() -> None:
    """At slope s = v a a weighted logistic row bends v a (1 - a), which is at most s (1 - s)."""
    a, v = np.meshgrid(np.linspace(0, 1, 201), np.linspace(0, 1, 201))
    s = v * a
    assert np.all(v * a * (1 - a) <= s * (1 - s) + 1e-15)
