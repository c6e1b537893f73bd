"""momentum: the minimiser that it reaches, and the default penalty."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import CASES, FACTORS, LEVEL
from problems import unlike_sites
from scipy import special, stats

from sottovoce.algorithms.momentum import DRIFT, LATE, tail_average_noise
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.network.graphs import make_graph
from sottovoce.privacy.gaussian import gaussian_mu
from sottovoce.runs.prepare import default_penalty, prepare
from sottovoce.runs.simulate import RunConfig, pooled_minimiser, simulate
from sottovoce.util.typing import Array

CASE = CASES["momentum"]


@pytest.mark.parametrize("graph", ["ring", "star", "complete"])
@pytest.mark.parametrize("eta", [None, 2.0])
def test_sites_that_differ_agree_on_the_pooled_minimiser(graph: str, eta: float | None) -> None:
    config = CASE.make(epsilon=math.inf, graph=graph, rounds=3000, eta=eta, rho=0.1)
    rows = unlike_sites()
    wanted = pooled_minimiser(rows, config, l2=0.1 / 5)
    np.testing.assert_allclose(
        simulate(config, rows).models[0], np.broadcast_to(wanted, (5, 3)), atol=5e-4
    )


def test_uncorrected_gradient_descent_misses_the_pooled_minimiser() -> None:
    """So the test above can fail: `dgd` with the same step ends elsewhere."""
    config = CASE.make(epsilon=math.inf, method="dgd", rounds=800, eta=2.0, rho=0.1)
    rows = unlike_sites()
    assert (
        np.max(
            np.abs(simulate(config, rows).models[0] - pooled_minimiser(rows, config, l2=0.1 / 5))
        )
        > 0.05
    )


def test_a_run_costs_what_gaussian_releases_of_its_sensitivity_cost(rows: Rows) -> None:
    config = CASE.make(delta=1e-5, epsilon=1.0, relation="zero-out")
    ledger = prepare(config, rows.n, rows.d).plan_ledger().rows
    mu = np.sqrt(sum(row.sensitivity_over_sigma() ** 2 for row in ledger))  # type: ignore[attr-defined]
    assert np.all(mu <= gaussian_mu(1.0, 1e-5))
    np.testing.assert_allclose(mu, gaussian_mu(1.0, 1e-5), rtol=1e-3)
    np.testing.assert_allclose(ledger[0].sensitivity, 1.0 / rows.n[:, 0], rtol=1e-5)  # type: ignore[attr-defined]


def test_momentum_is_a_share() -> None:
    for wrong in (-0.1, 1.0):
        with pytest.raises(InvalidInput, match=r"^momentum="):
            RunConfig.from_dict({"method": "momentum", "momentum": wrong})


def _average(gradients: Array, momentum: float) -> Array:
    """The tail average of heavy-ball steps of length one."""
    velocity, path = np.zeros_like(gradients[0]), [np.zeros_like(gradients[0])]
    for gradient in gradients:
        velocity = momentum * velocity + gradient
        path.append(path[-1] + velocity)
    # j (j + 1) ... (j + LATE - 1)
    weights = special.poch(np.arange(1.0, len(gradients) + 1.0), LATE)
    return np.asarray(np.tensordot(weights / weights.sum(), path[1:], axes=1))


@pytest.mark.parametrize(("rounds", "momentum"), [(1, 0.9), (4, 0.0), (12, 0.9), (30, 0.5)])
def test_tail_average_noise_equals_matrix_norm_and_drawn_noise(
    rounds: int, momentum: float
) -> None:
    """Exactly, as a matrix; and on drawn noise, by a chi-square test that two thirds and three
    halves of it fail.
    """
    effects = _average(np.eye(rounds), momentum)
    assert tail_average_noise(rounds, momentum) == pytest.approx(np.linalg.norm(effects), rel=1e-12)
    drawn = _average(np.random.default_rng(0).standard_normal((rounds, 400)), momentum)

    def accepts(factor: float) -> bool:
        total = float(np.sum((drawn / tail_average_noise(rounds, momentum) / factor) ** 2))
        return 2 * min(stats.chi2.cdf(total, drawn.size), stats.chi2.sf(total, drawn.size)) > LEVEL

    assert [accepts(factor) for factor in FACTORS] == [True, False, False]


@pytest.mark.parametrize("C", [1.0, 7.0])
def test_the_default_penalty_is_the_larger_of_its_two_bounds(C: float) -> None:
    n = np.array([[300.0], [200.0]])

    def penalty(epsilon: float, n: np.ndarray = n, **more: object) -> float:
        config = RunConfig.from_dict(
            {"method": "momentum", "epsilon": epsilon, "delta": 1e-5, "rounds": 20, "C": C, **more}
        )
        facts = prepare(config, n, 6).facts
        return default_penalty(config, facts, make_graph("complete", len(n)))

    least = C / 4 + 0.001 / 2
    assert penalty(math.inf) == pytest.approx(least / 1.8)
    assert penalty(math.inf, momentum=0.0) == pytest.approx(least)
    sigma = 2 * C / 200 * math.sqrt(20) / gaussian_mu(0.1, 1e-5)
    assert penalty(0.1) == pytest.approx(sigma / math.sqrt(2) * tail_average_noise(20, 0.8) / DRIFT)
    assert penalty(0.1, n=1e6 * n) == pytest.approx(least / 1.8)
    assert penalty(math.inf, max_grad_norm=0.1) == pytest.approx((0.09 * C + 0.0005) / 1.8)
    assert penalty(0.1, max_grad_norm=0.1) == pytest.approx(penalty(0.1) / 10)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("slow", [-0.9, 0.0, 0.5, 0.99])
def test_the_shortest_default_penalty_is_stable_at_every_curvature(
    momentum: float, slow: float
) -> None:
    """On quadratics up to the steepest, whatever an eigenvalue of the mixing matrix, no mode
    grows.
    """
    mixed = (1.0 + slow) / 2  # half a step of mixing; eigenvalues of a whole one are above -1
    for steep in np.linspace(0.001, 1.0, 40):
        h = steep * (1.0 + momentum)  # step length times curvature
        turn = np.array(
            [
                [mixed * (2 - h), -mixed * momentum, -mixed],
                [h, momentum, 0.0],
                [1 - h, -momentum, 0.0],
            ]
        )
        assert np.max(np.abs(np.linalg.eigvals(turn))) < 1.0
