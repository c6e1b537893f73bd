"""Methods from other work, gradient tracking and DP-ADMM: where they end without noise, what
they cost, their steps.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import CASES
from problems import unlike_sites

from sottovoce.algorithms.dp_admm import RADIUS, TIED
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.privacy.gaussian import gaussian_mu
from sottovoce.runs.prepare import prepare
from sottovoce.runs.simulate import RunConfig, pooled_minimiser, simulate

BOTH = ("gradient_tracking", "dp_admm")


@pytest.mark.parametrize("graph", ["ring", "complete"])
@pytest.mark.parametrize("method", BOTH)
def test_without_noise_sites_that_differ_end_at_the_pooled_minimiser(
    method: str, graph: str
) -> None:
    """`dgd` with these rounds ends farther than 0.05 from it (test_momentum.py)."""
    rows = unlike_sites()
    config = RunConfig(method=method, epsilon=math.inf, graph=graph, rounds=4000, rho=0.1, eta=0.3)
    wanted = pooled_minimiser(rows, config, l2=0.1 / 5)
    np.testing.assert_allclose(
        simulate(config, rows).models[0], np.broadcast_to(wanted, (5, 3)), atol=1e-6
    )


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize("method", BOTH)
def test_a_run_costs_what_gaussian_releases_of_its_sensitivity_cost(
    method: str, relation: str, rows: Rows
) -> None:
    config = CASES[method].make(delta=1e-5, epsilon=1.0, relation=relation)
    ledger = prepare(config, rows.n, rows.d).plan_ledger().rows
    mu = np.sqrt(sum((row.sensitivity / row.sigma) ** 2 for row in ledger))  # type: ignore[attr-defined]
    assert np.all(mu <= gaussian_mu(1.0, 1e-5))
    np.testing.assert_allclose(mu, gaussian_mu(1.0, 1e-5), rtol=1e-3)
    moved = {"replace-one": 2.0, "zero-out": 1.0}[relation]
    np.testing.assert_allclose(ledger[0].sensitivity, moved / rows.n[:, 0], rtol=1e-5)  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", BOTH)
def test_no_two_rows_move_a_released_gradient_by_more_than_its_sensitivity(method: str) -> None:
    """The worst pair, found by search: a row and its opposite at a point that is far along both."""
    rng, others = np.random.default_rng(0), np.zeros((3, 2))
    config = RunConfig(method=method, epsilon=1.0, delta=1e-5, graph="complete")
    (event, *_), n = prepare(config, np.full((2, 1), 4.0), 2).plan_ledger().rows, 4
    worst = 0.0
    for _ in range(2000):
        point = rng.normal(size=2) * 10.0 ** rng.uniform(-1, 2)
        first, second = (v / np.linalg.norm(v) for v in rng.normal(size=(2, 2)))
        pulls = [np.vstack([others, row]) for row in (first, second)]
        slopes = [-(1 / (1 + np.exp(np.clip(a @ point, -700, 700)))) @ a / n for a in pulls]
        worst = max(worst, float(np.linalg.norm(slopes[0] - slopes[1])))
    stated = float(np.max(event.sensitivity))  # type: ignore[attr-defined]
    assert 0.95 * stated < worst <= stated


def test_tracked_gradients_average_to_the_last_gradients(rows: Rows) -> None:
    """So noise of earlier gradients leaves no trace in the mean, whatever the nodes drew."""
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    config = CASES["gradient_tracking"].make(delta=1e-5, rounds=9)
    simulate(config, rows, observers=[lambda k, state: seen.append((state.track, state.slope))])
    for track, slope in seen:
        np.testing.assert_allclose(track.mean(axis=-2), slope.mean(axis=-2), atol=1e-12)
    assert np.max(np.abs(seen[-1][0] - seen[-1][1])) > 1e-3


def test_dp_admm_sends_less_noise_in_later_rounds(rows: Rows) -> None:
    """Of equal prices: noise on what is sent is that on the gradient, over a curvature that
    grows with the round.
    """
    config = CASES["dp_admm"].make(delta=1e-5, rounds=8)
    prepared = prepare(config, rows.n, rows.d)
    ledger, edge = prepared.plan_ledger().rows, TIED * prepared.facts.mixing_weight * config.eta
    sigma = np.asarray(ledger[0].noise_standard_deviation())  # type: ignore[attr-defined]
    assert all(np.array_equal(sigma, np.asarray(row.noise_standard_deviation())) for row in ledger)  # type: ignore[attr-defined]
    sent = [
        sigma / (4 * edge + config.eta + sigma * math.sqrt(2 * k) / RADIUS) for k in range(1, 9)
    ]
    assert np.all(np.diff(sent, axis=0) < 0)
    noisy = simulate(
        CASES["dp_admm"].make(
            delta=1e-5, rounds=1, noise=prepared.algorithm.noise, replicates=4000
        ),
        rows,
    )
    # from one start: all that differs is the noise of round 1
    found = noisy.models.std(axis=0).mean(axis=-1)
    np.testing.assert_allclose(found, sent[0], rtol=6 / math.sqrt(2 * 4000 * rows.d))


def test_dp_admm_has_one_penalty() -> None:
    with pytest.raises(InvalidInput, match=r"one penalty.*all nodes"):
        simulate(CASES["dp_admm"].make(eta=(0.1, 0.2, 0.1, 0.1, 0.1)), unlike_sites())
