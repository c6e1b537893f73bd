"""Simulations that lose sites do what separate sites do, and rosters follow the deployment's
rules.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from problems import make_rows

from sottovoce.deploy import run_sites
from sottovoce.errors import InvalidInput
from sottovoce.network import dropout
from sottovoce.network.graphs import make_graph
from sottovoce.runs import simulate as simulations
from sottovoce.runs.config import RunConfig
from sottovoce.runs.engine import FEW

ROWS = make_rows([60, 45, 80, 50, 40], 4)


@pytest.mark.parametrize(
    "method", ["prox_admm", "mr_admm", "momentum", "dgd", "gradient_tracking", "dp_admm", "output"]
)
def test_a_simulation_that_loses_sites_is_the_run_of_separate_ones(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    since = {2: 3, 4: 5}
    lost = np.array([float(since.get(i, math.inf)) for i in range(5)])
    monkeypatch.setattr(simulations, "draw_loss_rounds", lambda *_: lost)
    config = RunConfig(method, 2.0, 1e-5, 8, "complete", seed=3, rho=0.02)
    result = simulations.simulate(config, ROWS, dropout=0.1)
    apart = run_sites(config, ROWS, lost=since)
    algorithm = simulations.prepare(config, ROWS.n, ROWS.d).algorithm
    for i in (0, 1, 3):
        model = algorithm.method_of_node(i).model(apart[i][0].state)
        np.testing.assert_allclose(result.models[0, i], model, rtol=1e-6, atol=1e-8)
    assert result.rounds == 8 and result.extra["dropout"]["since"] == {"2": 3, "4": 5}
    np.testing.assert_allclose(result.consensus[0], result.models[0, [0, 1, 3]].mean(axis=0))
    whole = simulations.simulate(config, ROWS)
    assert result.ledger == whole.ledger and result.statement.epsilon == whole.statement.epsilon


def test_sums_lose_the_attempt_in_which_a_site_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = np.array([math.inf, math.inf, 3.0, math.inf, math.inf])
    monkeypatch.setattr(simulations, "draw_loss_rounds", lambda *_: lost)
    config = RunConfig("sum_momentum", 2.0, 1e-5, 5, seed=3, rho=0.02)
    result = simulations.simulate(config, ROWS, dropout=0.1)
    stay = [0, 1, 3, 4]
    told = [(range(5), True), (range(5), True), (range(5), False), (stay, True), (stay, True)]
    apart = run_sites(config, ROWS, attempts=told)
    algorithm = simulations.prepare(config, ROWS.n, ROWS.d).algorithm
    for i in stay:
        model = algorithm.method_of_node(i).model(apart[i][0].state)
        np.testing.assert_allclose(result.models[0, i], model, rtol=1e-6, atol=1e-8)


def test_run_ends_with_too_few_sites(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        simulations, "draw_loss_rounds", lambda *_: np.array([math.inf, math.inf, 3.0, 3.0, 4.0])
    )
    config = RunConfig("prox_admm", 2.0, 1e-5, 8, "complete", seed=3, rho=0.02)
    result = simulations.simulate(config, ROWS, dropout=0.1)
    assert (result.rounds, result.stopped) == (3, FEW)


def test_remaining_sites_follow_roster_rules() -> None:
    path, since = make_graph("path", 5), np.array([math.inf, math.inf, 2.0, math.inf, math.inf])
    graph = {"least": 0, "summed": False}
    assert dropout.left(path, since, 1, induced=True, **graph) == [0, 1, 2, 3, 4]
    assert dropout.left(path, since, 2, induced=True, **graph) is None  # falls apart
    complete = make_graph("complete", 5)
    assert dropout.left(complete, since, 2, induced=True, **graph) == [0, 1, 3, 4]
    assert dropout.left(complete, since, 2, induced=False, **graph) is None
    sums = {"least": 4, "summed": True, "induced": False}
    assert dropout.left(complete, since, 2, **sums) == [0, 1, 2, 3, 4]
    assert dropout.left(complete, since, 3, **sums) == [0, 1, 3, 4]
    assert dropout.left(complete, np.minimum(since, [9, 9, 9, 9, 2]), 3, **sums) is None


def test_expected_losses_follow_geometric_law() -> None:
    """Two sites end with the first loss: they come through T rounds with probability (1 - p)^(2
    T).
    """
    found = dropout.simulate_dropout(
        0.02, make_graph("complete", 2), 10, least=0, summed=False, induced=True, draws=4000
    )
    expected = 0.98**20
    assert abs(found["finishes"] - expected) < 4 * math.sqrt(expected * (1 - expected) / 4000)
    assert abs(found["finishes"] - 0.98**10) > 0.1 and found["sites_left"] == 2.0


@pytest.mark.parametrize("rate", [-0.1, 1.0, math.nan])
def test_dropout_rate_must_be_probability(rate: float) -> None:
    with pytest.raises(InvalidInput, match="dropout"):
        simulations.simulate(
            RunConfig("prox_admm", 2.0, 1e-5, 2, "ring", seed=3), ROWS, dropout=rate
        )


def test_single_release_has_no_dropout() -> None:
    with pytest.raises(InvalidInput, match=r"^dropout=0\.1: .*a seed"):
        simulations.simulate(
            RunConfig("prox_admm", 2.0, 1e-5, 2, "ring", seed=None), ROWS, dropout=0.1
        )
