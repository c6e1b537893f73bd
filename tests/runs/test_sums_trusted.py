"""Runs that trust sums: who is needed, what is promised, what `auto` picks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from problems import make_rows

from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.network.net import DenseNet
from sottovoce.privacy.gaussian import gaussian_epsilon, gaussian_mu
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.privacy.statement import Statement
from sottovoce.problem.schedules import Schedule
from sottovoce.queries import NoisyGradient, Sum, Vault
from sottovoce.runs.auto_search import choose_method
from sottovoce.runs.config import RunConfig
from sottovoce.runs.prepare import prepare, quorum_of_sums
from sottovoce.runs.pricing import trust_with_numbers
from sottovoce.runs.row_guard import RowGuard, make_solver
from sottovoce.runs.simulate import Result, simulate

ROWS = make_rows((40, 55, 60, 45, 50), 4, seed=3)


def config(**changes: Any) -> RunConfig:
    return RunConfig.from_dict(
        {"method": "sum_momentum", "epsilon": 1.0, "delta": 1e-5, "rounds": 8} | changes
    )


@pytest.mark.parametrize(
    ("nodes", "t", "least"),
    [(3, 1, 3), (4, 1, 3), (5, 1, 4), (5, 2, 4), (6, 1, 4), (7, 3, 6), (100, 1, 51)],
)
def test_the_least_number_of_sites_of_a_sum(nodes: int, t: int, least: int) -> None:
    """The smallest K with two honest sites, ``K - t >= 2``, and no two histories, ``2 K > N +
    t``.
    """
    assert least == min(K for K in range(1, nodes + 1) if K - t >= 2 and nodes + t < 2 * K)
    assert quorum_of_sums(config(colluders=t), nodes) == (least, t)
    for wrong in (least - 1, nodes + 1):
        with pytest.raises(InvalidInput, match="participants"):
            quorum_of_sums(config(colluders=t, participants=wrong), nodes)
    assert quorum_of_sums(config(colluders=t, participants=nodes), nodes) == (nodes, t)
    prepared = prepare(config(colluders=t), np.full((nodes, 1), 50.0), 4)
    trust = trust_with_numbers(prepared.config, prepared.facts)
    assert (trust.kind, trust.honest, trust.colluding) == ("sum", least - t, t)


@pytest.mark.parametrize(("nodes", "t"), [(1, 1), (2, 1), (3, 2), (4, 3), (5, 4)])
def test_too_few_sites_are_refused(nodes: int, t: int) -> None:
    with pytest.raises(InvalidInput, match=rf"^colluders={t}: .*\b{nodes} sites") as refused:
        prepare(config(colluders=t), np.full((nodes, 1), 50.0), 4)
    assert "trust='nobody'" in str(refused.value)
    assert ("own share" in str(refused.value)) == (nodes == 2)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"colluders": 0}, "colluders"),
        ({"epsilon": (1.0, 2.0, 1.0, 1.0, 1.0)}, "epsilon"),
        ({"eta": (1.0, 2.0, 1.0, 1.0, 1.0)}, "eta"),
        ({"noise": Schedule((1.0, 2.0))}, "noise"),
        ({"graph": "star"}, "graph"),
        ({"delta": None}, "delta"),
        ({"method": "prox_admm", "colluders": 2}, "colluders"),
        ({"method": "prox_admm", "participants": 4}, "participants"),
        ({"trust": "curator"}, "trust"),
        ({"method": "prox_admm", "trust": "sum"}, "trust"),
    ],
)
def test_fields_that_sums_cannot_have_are_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        config(**changes)
    assert refused.value.field == field


def test_records_of_sums_keep_their_meaning() -> None:
    known = config(colluders=2, participants=4)
    assert RunConfig.from_dict(known.to_dict()) == known
    assert "colluders" not in config().to_dict()
    assert RunConfig.from_dict(config().to_dict()) == config()
    assert "participants" not in RunConfig().to_dict()


def test_statement_names_epsilon_if_all_others_collude(tmp_path: Any) -> None:
    """With one of five sites the shift over sigma doubles: four honest shares become one."""
    result = simulate(config(rounds=1), ROWS)
    said = result.statement
    mu = gaussian_mu(said.epsilon, 1e-5)
    assert said.epsilon == pytest.approx(1.0, rel=1e-3)
    assert said.alone == pytest.approx(gaussian_epsilon(1e-5, 2.0 * mu), rel=1e-6)
    rounded_up = f"{math.ceil(1000 * said.alone) / 1000:.3f}"
    assert f"collude: epsilon = {rounded_up}" in said.text
    assert "of the sites" in said.text and "3 other sites" in said.text
    result.save(tmp_path / "run.npz")
    again = Result.load(tmp_path / "run.npz")
    assert again.statement == said == Statement.from_dict(said.to_dict())
    assert again.facts.to_dict() == result.facts.to_dict()
    assert simulate(config(method="momentum", rounds=1), ROWS).statement.alone is None


@pytest.mark.parametrize("method", ["sum_momentum", "sum_prox"])
def test_noise_is_that_of_a_curator_but_for_the_colluders(method: str) -> None:
    """Over many replicates: the first sum's noise has N / (N - t) times the variance of one release
    of all rows.

    The mean of M squared normals is within six standard errors, sqrt(2 / M), of 1; 4/5 and 1 times
    it are not.
    """
    some = {"rounds": 1, "replicates": 3000, "eta": 1.0}
    result = simulate(config(method=method, **some), ROWS)
    quiet = simulate(config(method=method, **(some | {"epsilon": math.inf, "replicates": 1})), ROWS)
    noise = result.models[:, 0] - quiet.models[0, 0]
    event = result.ledger[0]
    sigma = event["sensitivity"][0] / event["alpha"][0]
    ratio, band = float((noise**2).mean()) / sigma**2, 6 * math.sqrt(2 / noise.size)
    assert abs(ratio / (5 / 4) - 1) < band
    assert abs(ratio - 1) > band
    for node in range(1, 5):
        assert np.array_equal(result.models[:, node], result.models[:, 0])


def test_auto_picks_a_method_of_sums() -> None:
    asked = RunConfig(method="auto", trust="sum", epsilon=0.5, delta=1e-5)
    sizes, tried = (300,) * 8, {}
    for heterogeneity in ("iid", "label"):
        choice = choose_method(asked, sizes, 6, heterogeneity=heterogeneity)
        assert choice.config.method in ("sum_momentum", "sum_prox")
        assert (choice.config.trust, choice.config.graph, choice.config.auto) == (
            "sum",
            "complete",
            False,
        )
        tried[heterogeneity] = {row["method"] for row in choice.table}
    assert tried == {"iid": {"sum_momentum", "sum_prox"}, "label": {"sum_momentum"}}
    local = choose_method(asked.but(trust="nobody", method="auto"), sizes, 6)
    least = min(row["error"] for row in choice.table if row["stage"] == "check")
    assert least < min(row["error"] for row in local.table if row["stage"] == "check")


def test_many_sites_are_tried_out_as_one() -> None:
    """Local trust with 500 sites keeps its first guess; what is summed, or held by one party,
    has one site's size.
    """
    sizes = (60,) * 500
    for trust in ("nobody", "sum", "curator"):
        choice = choose_method(
            RunConfig(method="auto", trust=trust, epsilon=0.5, delta=1e-5), sizes, 6
        )
        assert (len(choice.table) == 0) == (trust == "nobody")


def test_a_rehearsal_has_the_noise_of_the_run() -> None:
    """`Sum.answer_of_pooled_rows`, of which rehearsals are made, against shares that are drawn,
    rounded, added and opened.
    """

    ready = prepare(config(rounds=4, epsilon=5.0), ROWS.n, ROWS.d)
    point, alpha = np.zeros((400, 5, ROWS.d)), np.array([[0.3]])
    guard = RowGuard(ROWS, ready.facts, KeyedNoise(1, range(400), range(5)), ready.ledger)
    opened = guard.charge_and_open_sum(
        Sum.sum_of_query(NoisyGradient(point, alpha, "test")), DenseNet(ready.graph)
    )[:, 0]
    pooled: Rows = ROWS.pool_at_one_node()
    one = replace(ready.facts, n=pooled.n)
    vault = Vault(make_solver(pooled, one), KeyedNoise(2, range(400), range(1)))
    at_once = Sum.sum_of_query(NoisyGradient(point[:, :1], alpha, "test")).answer_of_pooled_rows(
        vault, one, 1
    )[:, 0]
    band = 6 * math.sqrt(2 / opened.size) * math.sqrt(2)
    assert abs(np.log(opened.std() / at_once.std()) * 2) < band
    np.testing.assert_allclose(
        opened.mean(axis=0), at_once.mean(axis=0), atol=6 * opened.std() / math.sqrt(200)
    )
