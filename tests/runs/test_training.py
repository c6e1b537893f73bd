"""From rows to a result: scores, records, budgets, and the in-process twin of a deployment."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problems import make_rows
from threadpoolctl import threadpool_limits

from sottovoce.algorithms import REGISTRY
from sottovoce.data.rows import Rows
from sottovoce.data.sweep import number_of_cores
from sottovoce.deploy import run_sites
from sottovoce.errors import InvalidInput
from sottovoce.privacy import events
from sottovoce.privacy.accountants import PureAccountant
from sottovoce.privacy.events import SphericalObjectivePerturbation
from sottovoce.problem.schedules import Schedule
from sottovoce.queries.objective_noise import POLISH
from sottovoce.runs.simulate import Result, RunConfig, prepare, simulate
from sottovoce.runs.training import TrainConfig, deal_rows_to_nodes, train

METHODS = list(REGISTRY)
PRIVATE = ["dvp", "r_admm", "mr_admm"]  # whose price has the curvature in it
KNOBS: dict[str, Any] = {"rho": 0.02, "eta": 0.05, "gamma": 0.2}


def config_of(method: str, **changes: Any) -> RunConfig:
    epsilon = 3.0 if REGISTRY[method].private else math.inf
    delta = 1e-5 if REGISTRY[method].needs_delta else None
    return RunConfig.from_dict(
        {"method": method, "epsilon": epsilon, "delta": delta} | KNOBS | changes
    )


# Scores


@pytest.mark.parametrize("change", [{"replicates": 2}, {"form": "printed"}])
def test_release_without_a_seed_refuses_simulation_settings(change: dict[str, Any]) -> None:
    RunConfig(seed=None)
    with pytest.raises(InvalidInput, match=next(iter(change))):
        RunConfig.from_dict({"seed": None, **change})


def test_a_schedule_of_penalties_survives_the_configuration() -> None:
    table = Schedule(table=((0.1, 0.2), (0.2, 0.2)))
    config = RunConfig(eta=table, noise=Schedule(3.0, 1.1))
    assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_report_scores_the_average_and_every_site() -> None:
    config = TrainConfig(
        config_of("mr_admm", replicates=3, rounds=4), "synthetic:n=400,d=4,seed=2", nodes=3
    )
    report = train(config)
    X, y, models = report.dataset.X_test, report.dataset.y_test, report.result.models
    assert report.test_errors.shape == (3,) and report.site_test_errors.shape == (3, 3)
    for r in range(3):
        assert report.test_errors[r] == np.mean(np.sign(X @ models[r].mean(axis=0)) != y)
        for i in range(3):
            assert report.site_test_errors[r, i] == np.mean(np.sign(X @ models[r, i]) != y)
    plain = report.to_dict()
    assert plain["test_error"] == np.mean(report.test_errors)
    assert plain["test_error_sd"] == pytest.approx(np.std(report.test_errors, ddof=1))
    classes, counts = np.unique(report.dataset.y_train, return_counts=True)
    assert plain["majority_test_error"] == np.mean(y != classes[counts.argmax()])
    assert report.baseline_test_errors == {"majority": plain["majority_test_error"]}
    parts = deal_rows_to_nodes(config, report.dataset)
    assert np.array_equal(
        report.site_labels, [np.mean(report.dataset.y_train[part] > 0) for part in parts]
    )


def test_adult_by_the_default_method() -> None:
    report = train(TrainConfig(RunConfig(epsilon=5, replicates=3)))
    assert report.config.run.method == "mr_admm"
    assert report.result.privacy["epsilon"] <= 5
    assert report.test_errors.mean() <= 0.18
    assert (
        report.nonprivate_test_error is not None
        and report.nonprivate_test_error <= report.test_errors.mean()
    )


# Records


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_result_loads_as_it_was(method: str, rows: Rows, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"eta": (0.05, 0.06, 0.05, 0.07, 0.05)} if method == "mr_admm" else {}
    result = simulate(config_of(method, rounds=4, replicates=2, **changes), rows)
    result = replace(result, extra={"schema": None, "scores": [0.25, 1e-17], "text": "ü"})
    path = tmp_path / "run"
    result.save(path)
    # exactly the name that was asked for
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    loaded = Result.load(path)
    assert loaded.models.dtype == float and np.array_equal(loaded.models, result.models)
    assert loaded.config == result.config
    assert (
        np.array_equal(loaded.facts.n, result.facts.n)
        and loaded.facts.n.shape == result.facts.n.shape
    )
    for one in fields(loaded.facts):
        if one.name != "n":
            assert getattr(loaded.facts, one.name) == getattr(result.facts, one.name)
    for one in fields(Result):
        if one.name not in ("models", "config", "facts", "seconds", "statement", "prepared"):
            assert getattr(loaded, one.name) == json.loads(json.dumps(getattr(result, one.name))), (
                one.name
            )
    assert len(loaded.ledger) > 0 and loaded.extra == result.extra
    assert loaded.statement == result.statement and loaded.privacy == result.privacy
    events_of = [
        [events.from_dict(row).to_dict() for row in run.ledger] for run in (loaded, result)
    ]
    assert events_of[0] == events_of[1]
    assert np.array_equal(loaded.consensus, result.consensus)


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(),
        RunConfig(method="admm", epsilon=math.inf),
        RunConfig(epsilon=math.inf, noise=2.5, noise_growth=1.5, seed=None),
        RunConfig(
            eta=(0.1, 0.2, 0.3), eta_growth=(1.0, 1.5, 2.0), noise=(1.0, 2.0, 3.0), delta=1e-5
        ),
        RunConfig.from_dict(
            {
                "method": "dvp",
                "form": "printed",
                "phi": 0.5,
                "loss": "huber:0.25",
                "relation": "zero-out",
                "replicates": 7,
            }
        ),
        RunConfig.from_dict(
            {"method": "pp_admm", "form": "printed", "delta": 1e-5, "split": 0.1, "tolerance": 1e-6}
        ),
    ],
    ids=["default", "infinite", "infinite-noise", "tuples", "dvp", "pp_admm"],
)
def test_run_config_survives_json(config: RunConfig) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    plain = config.to_dict()
    later = {
        "auto",
        "start",
        "trust",
        "colluders",
        "participants",
        "clip",
        "max_grad_norm",
        "momentum",
        "delta1",
    }
    later |= {
        "perturbation",
        "correlation",
        "test_sensitivity",
        "centre",
        "rows_per_person",
        "zeta",
    } | (set() if config.method == "pp_admm" else {"split", "tolerance"})
    assert set(plain) == RunConfig.defaults().keys() - later  # keys of ledgers stay as they were
    back = RunConfig.from_dict(json.loads(json.dumps(plain), parse_constant=refuse))
    assert back == config and back.to_dict() == plain
    assert all(type(value) is type(config.flat()[name]) for name, value in back.flat().items())


# Budgets


def prices(result: Result) -> np.ndarray[Any, Any]:
    """Price of every release, shape (releases, N)."""
    return np.array(
        [PureAccountant().price_of_event(events.from_dict(row)) for row in result.ledger]
    )


@pytest.mark.parametrize("share", [0.15, 0.5, 0.97])
@pytest.mark.parametrize("method", PRIVATE)
def test_a_run_stops_before_the_release_that_would_pass_its_budget(
    method: str, share: float, rows: Rows
) -> None:
    base = config_of(method, rounds=9, noise=2.0, noise_growth=1.3, replicates=2, epsilon=math.inf)
    spent = prices(simulate(base, rows)).cumsum(axis=0).max(axis=1)  # the worst node decides
    budget = share * spent[-1]
    kept = int(np.sum(spent <= budget))
    assert 0 < kept < len(spent)
    result = simulate(replace(base, epsilon=budget), rows)
    assert result.stopped == "budget spent"
    assert len(result.ledger) == result.privacy["releases"] == kept
    rounds = kept if method == "dvp" else 2 * kept  # even rounds of (M)R-ADMM cost nothing
    assert result.rounds == rounds
    assert (
        result.privacy["epsilon"] == pytest.approx(spent[kept - 1], rel=1e-12)
        and spent[kept - 1] <= budget
    )
    assert result.privacy["epsilon"] <= budget < spent[kept]
    # Everything before is kept: the models are those of a run that was never meant to go further.
    shorter = simulate(replace(base, rounds=rounds), rows)
    assert shorter.stopped == "finished" and np.array_equal(result.models, shorter.models)


@pytest.mark.parametrize("method", PRIVATE)
def test_a_budget_of_exactly_the_price_is_enough(method: str, rows: Rows) -> None:
    base = config_of(method, rounds=5, noise=2.0, epsilon=math.inf)
    whole = simulate(base, rows)
    total = whole.privacy["epsilon"]
    enough = simulate(replace(base, epsilon=total), rows)
    assert (enough.stopped, enough.rounds) == ("finished", 5)
    less = simulate(replace(base, epsilon=math.nextafter(total, 0)), rows)
    assert (
        less.stopped == "budget spent"
        and less.rounds == 4
        and len(less.ledger) == len(whole.ledger) - 1
    )


@pytest.mark.parametrize("method", PRIVATE)
def test_a_budget_below_one_release_is_refused_before_anything_is_spent(
    method: str, rows: Rows
) -> None:
    base = config_of(method, rounds=5, noise=2.0, epsilon=math.inf)
    first = float(prices(simulate(base, rows))[0].max())
    with pytest.raises(InvalidInput, match="one round costs") as caught:
        simulate(replace(base, epsilon=0.99 * first), rows)
    assert caught.value.field == "epsilon" and f"{first:.4g}" in caught.value.rule


FLAT: dict[str, Any] = {"rho": 0.001, "eta": 0.001, "rounds": 10}


def least_epsilon(method: str, n: int, rounds: int) -> float:
    """What `rounds` rounds of :data:`FLAT` cost on a ring of five with unbounded noise: the
    curvature's price.

    A release costs max_a ln(1 + a(1-a)/K) = ln(1 + 1/(4K)) then (U1 at beta = 0), and the solver's
    share on top.
    """
    K = n * (0.001 / 5 + 2 * 0.001 * 2)  # two neighbours
    releases = rounds if method == "dvp" else (rounds + 1) // 2
    return releases * math.log1p(1 / (4 * K)) * (1 + POLISH)


@pytest.mark.parametrize("share", [0.005, 0.3, 0.5, 0.98, 0.999])
@pytest.mark.parametrize("method", PRIVATE)
def test_no_amount_of_noise_pays_for_the_curvature(method: str, share: float) -> None:
    least = least_epsilon(method, 120, 10)
    with pytest.raises(InvalidInput, match="cost at least") as caught:
        prepare(
            RunConfig.from_dict({"method": method, "epsilon": share * least, **FLAT}),
            np.full((5, 1), 120.0),
            5,
        )
    assert caught.value.field == "epsilon"
    stated = float(re.search(r"at least (\S+)", caught.value.rule)[1])  # type: ignore[index]
    assert stated == pytest.approx(least, rel=1e-3)


@pytest.mark.parametrize("excess", [1.001, 1.003, 1.02, 1.1])
@pytest.mark.parametrize("method", PRIVATE)
def test_target_just_above_the_smallest_is_met(method: str, excess: float) -> None:
    epsilon = excess * least_epsilon(method, 120, 10)
    result = simulate(
        RunConfig.from_dict({"method": method, "epsilon": epsilon, **FLAT}), make_rows([120] * 5, 5)
    )
    assert 0.999 * epsilon <= result.privacy["epsilon"] <= epsilon


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("method", PRIVATE)
def test_a_calibrated_run_spends_its_epsilon_and_no_more(method: str, epsilon: float) -> None:
    result = simulate(config_of(method, epsilon=epsilon, rounds=6), make_rows([400, 700, 500], 3))
    assert epsilon * 0.999 <= result.privacy["epsilon"] <= epsilon
    assert result.privacy["epsilon"] == pytest.approx(prices(result).sum(axis=0).max(), rel=1e-12)
    for row in map(events.from_dict, result.ledger):
        assert isinstance(row, SphericalObjectivePerturbation)
        price = PureAccountant().price_of_event(row)
        # Two lower bounds of U1: the log-determinant at a = 1/2, and Delta beta at a = 1.
        assert np.all(price >= np.log1p(0.25 / row.K) + 1.5 * row.beta)
        assert np.all(price >= 2.0 * row.beta)


# The in-process twin


@pytest.mark.parametrize(
    ("method", "graph"),
    [*((name, "ring") for name in METHODS), ("mr_admm", "star"), ("mr_admm", "erdos-renyi:p=0.5")],
)
def test_sites_and_simulation_agree(method: str, graph: str, rows: Rows) -> None:
    """Every method on other graphs: tests/algorithms/test_conformance.py."""
    changes = (
        {"eta": (0.05, 0.08, 0.06, 0.05, 0.07), "eta_growth": 1.1} if method == "mr_admm" else {}
    )
    config = config_of(method, graph=graph, rounds=6, tol=1e-12, replicates=2, seed=5, **changes)
    assert len(set(rows.n[:, 0])) > 1
    batched = simulate(config, rows)
    # noise is on
    assert np.max(np.abs(batched.models[0] - batched.models[1])) > 1e-3 or method == "admm"
    algorithm = prepare(config, rows.n, rows.d).algorithm
    for replicate in range(2):
        for i, (outcome, ledger) in enumerate(run_sites(config, rows, replicate)):
            assert (outcome.rounds, outcome.stopped) == (6, "finished")
            assert outcome.state.f.shape == (rows.d,)
            model = algorithm.model(outcome.state)
            assert np.max(np.abs(model - batched.models[replicate, i])) <= 1e-9
            assert ledger.total() == pytest.approx(batched.privacy["per_node"][i], rel=1e-12)
            assert len(ledger.rows) == len(batched.ledger)


def test_sites_compute_the_same_bits_on_any_number_of_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if number_of_cores() == 1:
        pytest.skip("one core")
    # large enough for the linear algebra library to use threads
    rows = make_rows([3000, 2500, 4000], 90)
    config = config_of("dvp", rounds=3, seed=1)
    states = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            states.append([outcome.state.f for outcome, _ in run_sites(config, rows)])
    np.testing.assert_array_equal(states[0], states[1])


@pytest.mark.parametrize("partition", ["label", "dirichlet:0.5", "column:age"])
def test_a_release_does_not_deal_rows_by_what_is_in_them(partition: str) -> None:
    with pytest.raises(InvalidInput, match="can move others"):
        train(TrainConfig(run=RunConfig(seed=None), partition=partition))
