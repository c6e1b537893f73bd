"""Targets for whole runs: met from below within a tenth of a percent, per node, for every shape
of schedule.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import REGISTRY
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.problem.schedules import Schedule
from sottovoce.runs import pricing
from sottovoce.runs.config import RunConfig
from sottovoce.runs.planned import plan_run
from sottovoce.runs.prepare import outline_run, prepare
from sottovoce.runs.pricing import RunSetting, plan_ledger
from sottovoce.runs.simulate import run_planned

PRIVATE = [name for name, cls in REGISTRY.items() if cls.private]
N = np.full((5, 1), 8000.0)


def total(config: RunConfig, n: np.ndarray = N, d: int = 36) -> tuple[float, np.ndarray]:
    prepared = prepare(config, n, d)
    book = prepared.ledger
    ledger = plan_ledger(
        prepared.algorithm,
        RunSetting(
            prepared.facts,
            prepared.graph,
            config.rounds,
            book.accountant,
            book.delta,
            config.sites_per_row,
        ),
    )
    return ledger.total(), np.broadcast_to(ledger.per_node(), (len(n),))


# Even, growing and falling noise, with and without a delta, by turns: a search for a scale does not
# know the method, and the method's noise does not know the delta.
SHAPES = [
    (method, growth, 1e-5 if REGISTRY[method].needs_delta or (m + k) % 2 else None)
    for m, method in enumerate(PRIVATE)
    for k, growth in enumerate([1.0, 1.15, 0.85])
]


@pytest.mark.parametrize(("method", "growth", "delta"), SHAPES)
def test_a_target_is_met_from_below_within_a_tenth_of_a_percent(
    method: str, growth: float, delta: float | None
) -> None:
    for epsilon in (0.3, 4.0):
        spent, _ = total(
            RunConfig(method=method, epsilon=epsilon, delta=delta, noise_growth=growth, rounds=8)
        )
        assert 0.999 * epsilon <= spent <= epsilon


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize("accountant", ["zcdp", "rdp", "pld", "best"])
def test_every_accountant_meets_its_target(accountant: str, relation: str) -> None:
    config = RunConfig(
        method="dvp", epsilon=1.0, delta=1e-5, accountant=accountant, relation=relation, rounds=6
    )
    assert 0.999 <= total(config)[0] <= 1.0


def test_best_needs_the_least_noise() -> None:
    def noise(accountant: str) -> float:
        config = RunConfig(
            method="dvp", epsilon=1.0, delta=1e-5, accountant=accountant, rounds=20, eta=0.1
        )
        schedule = prepare(config, N, 36).algorithm.noise
        assert schedule is not None
        return float(schedule(1))

    found = {name: noise(name) for name in ("zcdp", "rdp", "pld", "best")}
    assert found["best"] == pytest.approx(max(found.values()), rel=1e-3)
    assert found["best"] > 2.5 * noise("zcdp")


def test_every_site_spends_its_own_budget_whatever_its_size() -> None:
    n = np.array([[500.0], [4000.0], [40000.0], [4000.0], [900.0]])
    for delta in (None, 1e-5):
        for epsilon in (2.0, (2.0, 1.0, 0.5, 4.0, 2.0)):
            _, spent = total(RunConfig(epsilon=epsilon, delta=delta), n)
            assert np.all(spent <= epsilon) and np.all(spent >= 0.999 * np.asarray(epsilon))


def test_rows_at_several_sites_are_planned_for() -> None:
    one, several = (RunConfig(epsilon=1.0, delta=1e-5, sites_per_row=m, rounds=4) for m in (1, 3))
    spent, per_node = total(several)
    assert 0.999 <= spent <= 1.0
    assert np.all(per_node < 0.7) and np.all(total(one)[1] > 0.999)
    assert "3 sites" in outline_run(several, N, 36)["privacy"]["unit"]


def test_a_plan_in_both_directions_agrees() -> None:
    forward = outline_run(RunConfig(method="dvp", epsilon=1.0, delta=1e-5, eta=0.01), N, 36)
    noise = Schedule.from_dict(forward["algorithm"]["noise"])
    back = outline_run(
        RunConfig(method="dvp", epsilon=math.inf, delta=1e-5, eta=0.01, noise=noise), N, 36
    )
    assert back["privacy"]["epsilon"] == pytest.approx(forward["privacy"]["epsilon"], rel=1e-9)
    assert len(forward["releases"]) == 10
    assert all(one["spread"][0] > 0 and 0 < one["epsilon"][0] < 1 for one in forward["releases"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accountant": "rdp"}, "^delta"),
        ({"accountant": "rdpp", "delta": 1e-5}, "^accountant"),
        ({"sites_per_row": 0}, "^sites_per_row"),
        ({"sites_per_row": 6}, "^sites_per_row=6"),
        ({"epsilon": (1.0, 2.0)}, "^epsilon"),
        ({"epsilon": (1.0, math.inf, 1.0, 1.0, 1.0)}, "^epsilon"),
    ],
)
def test_bad_targets(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        prepare(RunConfig.from_dict(changes), N, 36)


def test_the_least_that_can_be_met_is_told_for_the_smallest_site() -> None:
    n = np.array([[50.0], [8000.0], [8000.0], [8000.0], [8000.0]])
    with pytest.raises(InvalidInput, match="cost at least"):
        prepare(RunConfig(epsilon=0.01, rho=1e-4, eta=1e-4), n, 36)


def test_plan_of_one_site_equals_its_part_of_the_network_plan() -> None:
    """The price of the whole network holds a node's price, event by event, and a budget ends
    both where a run would.
    """
    n = np.array([[500.0], [4000.0], [40000.0], [4000.0], [900.0]])
    for method in PRIVATE:
        if REGISTRY[method].trust.pools_rows:
            continue
        ready = prepare(RunConfig(method=method, epsilon=2.0, delta=1e-5, rounds=4), n, 6)
        known = (
            ready.algorithm,
            RunSetting(ready.facts, ready.graph, 4, ready.ledger.accountant, 1e-5),
        )
        whole = plan_ledger(*known)
        for i in (0, 2):
            alone = plan_ledger(*known, node=i)
            assert len(alone.rows) == len(whole.rows)
            assert alone.per_node() == pytest.approx(whole.per_node()[i], rel=1e-12)
            few = plan_ledger(*known, node=i, budget=0.6 * alone.total())
            assert few.total() <= 0.6 * alone.total() and len(few.rows) <= len(alone.rows)
            assert [row.to_dict() for row in few.rows] == [
                row.to_dict() for row in alone.rows[: len(few.rows)]
            ]


def test_a_plan_can_be_watched_round_by_round() -> None:
    ready = prepare(RunConfig(method="prox_admm", epsilon=2.0, rounds=5), N, 6)
    totals: dict[int, float] = {}
    book = plan_ledger(
        ready.algorithm,
        RunSetting(ready.facts, ready.graph, 5, ready.ledger.accountant),
        after=lambda k, ledger: totals.update({k: ledger.total()}),
    )
    assert list(totals) == [1, 2, 3, 4, 5] and totals[5] == book.total()
    for k in (1, 3):
        part = plan_ledger(
            ready.algorithm, RunSetting(ready.facts, ready.graph, k, ready.ledger.accountant)
        )
        assert part.total() == totals[k]


@pytest.mark.parametrize("method", ["momentum", "dvp", "mr_admm", "prox_admm"])
def test_a_run_that_was_priced_is_not_planned_again(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A simulation plans no run whose price ended a calibration, and none that another seed has."""
    X = np.random.default_rng(0).normal(size=(4, 30, 2)) / 5.0
    rows = Rows.build_from_parts([(x, np.where(x[:, 0] > 0, 1.0, -1.0)) for x in X])
    config = RunConfig(method=method, epsilon=1.0, delta=1e-5, rounds=4, seed=0)
    runs = [plan_run(replace(config, seed=seed), rows.n, rows.d) for seed in range(3)]
    planned = []
    collect = pricing._collect_dry_queries

    def counted(dry: Any) -> Any:
        planned.append(dry)
        return collect(dry)

    monkeypatch.setattr(pricing, "_collect_dry_queries", counted)
    found = [run_planned(run, rows) for run in runs]
    assert len(planned) <= 1
    for run, result in zip(runs, found, strict=True):
        assert result.ledger == run.prepared.plan_ledger().to_list()


def test_a_plan_is_known_by_all_that_its_events_depend_on() -> None:
    """Another noise, relation, number of rounds or graph has a plan of its own."""
    config = RunConfig(method="dvp", epsilon=1.0, delta=1e-5, rounds=4)
    runs = [
        prepare(config, N, 36),
        prepare(replace(config, epsilon=2.0), N, 36),
        prepare(replace(config, relation="zero-out"), N, 36),
        prepare(replace(config, rounds=5), N, 36),
        prepare(replace(config, graph="complete"), N, 36),
        prepare(config, N + 1.0, 36),
    ]
    assert len({pricing.key_of_plan(run.algorithm, run._setting(4)) for run in runs}) == len(runs)
    assert pricing.key_of_plan(runs[0].algorithm, runs[0]._setting(4)) == pricing.key_of_plan(
        prepare(replace(config, seed=7), N, 36).algorithm, runs[0]._setting(4)
    )
