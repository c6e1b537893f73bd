"""Whole runs against the durable ledger: resume, replay, budgets over runs, other rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problems import make_rows

from sottovoce.data.rows import Rows
from sottovoce.errors import BudgetExceeded, InvalidInput, LedgerMismatch
from sottovoce.ledger.durable import DurableLedger
from sottovoce.runs.simulate import RunConfig, simulate

PRIVATE = ["dvp", "r_admm", "mr_admm"]


class Interrupted(Exception):
    """Stands for a crash."""


def config(method: str = "dvp", **changes: Any) -> RunConfig:
    knobs: dict[str, Any] = {"rho": 0.02, "eta": 0.05, "rounds": 7, "epsilon": 3.0, "seed": 5}
    return RunConfig.from_dict({"method": method, **(knobs | changes)})


@pytest.fixture
def ledger(tmp_path: Path) -> DurableLedger:
    return DurableLedger.create(tmp_path / "rows.ledger", epsilon=7.0, n_nodes=5)


@pytest.mark.parametrize("method", PRIVATE)
@pytest.mark.parametrize("seed", [5, None])
def test_an_interrupted_run_goes_on_and_draws_nothing_twice(
    rows: Rows, ledger: DurableLedger, method: str, seed: int | None
) -> None:
    """With keyed noise the end is that of an undisturbed run; with the system's, what was seen
    is never redrawn.
    """
    settings = config(method, seed=seed)
    seen: dict[int, np.ndarray] = {}

    def crash_after(last: int) -> Any:
        def watch(k: int, state: Any) -> None:
            assert np.array_equal(seen.setdefault(k, state.f.copy()), state.f)
            if k == last:
                raise Interrupted

        return watch

    for last in (1, 2, 4, 5):
        with pytest.raises(Interrupted):
            simulate(settings, rows, observers=[crash_after(last)], ledger=ledger, run_name="a")
    result = simulate(settings, rows, observers=[crash_after(99)], ledger=ledger, run_name="a")
    assert 3.0 * (1 - 1e-6) < ledger.total() <= 3.0
    assert result.privacy["ledger"]["spent"] == ledger.total() == result.privacy["epsilon"]
    if seed is not None:
        assert np.array_equal(result.models, simulate(settings, rows).models)
    again = simulate(settings, rows, ledger=ledger, run_name="a")
    assert np.array_equal(again.models, result.models)
    assert ledger.total() <= 3.0


def test_a_lifetime_budget_holds_over_runs(rows: Rows, ledger: DurableLedger) -> None:
    for name in ("one", "two"):
        simulate(config(seed=None), rows, ledger=ledger, run_name=name)
    before = ledger.total()
    with pytest.raises(BudgetExceeded, match="nothing was reserved"):
        simulate(config(seed=None), rows, ledger=ledger, run_name="three")
    assert ledger.total() == before
    simulate(config(seed=None, epsilon=0.9), rows, ledger=ledger, run_name="what is left")
    assert ledger.total() <= 7.0


def test_a_run_that_stops_at_its_own_budget_reserves_no_more(
    rows: Rows, ledger: DurableLedger
) -> None:
    result = simulate(config(noise=1.0, epsilon=2.5), rows, ledger=ledger, run_name="two releases")
    assert (result.stopped, result.rounds) == ("budget spent", 2)
    assert ledger.total() == result.privacy["epsilon"] <= 2.5


def test_another_configuration_is_not_the_same_run(rows: Rows, ledger: DurableLedger) -> None:
    simulate(config(), rows, ledger=ledger, run_name="a")
    with pytest.raises(LedgerMismatch, match="another plan"):
        simulate(config(eta=0.06), rows, ledger=ledger, run_name="a")


def test_a_bound_ledger_refuses_other_rows(rows: Rows, ledger: DurableLedger) -> None:
    simulate(config(), rows, ledger=ledger)
    with pytest.raises(LedgerMismatch, match="other rows"):
        simulate(config(), make_rows([60, 45, 80, 60, 51], 4, seed=1), ledger=ledger)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"replicates": 2}, "^replicates=2"),
        ({"delta": 1e-5}, "^delta=1e-05: the ledger counts pure epsilon"),
    ],
)
def test_releases_that_a_ledger_cannot_count_are_refused(
    rows: Rows, ledger: DurableLedger, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        simulate(config(**changes), rows, ledger=ledger)
    assert not ledger.runs


def test_a_checkpoint_and_a_ledger_agree(rows: Rows, ledger: DurableLedger, tmp_path: Path) -> None:
    """System noise may be checkpointed once its bytes are kept."""
    settings, path = config(seed=None), tmp_path / "run.npz"

    def crash(k: int, state: Any) -> None:
        if k == 4:
            raise Interrupted

    with pytest.raises(Interrupted):
        simulate(settings, rows, observers=[crash], checkpoint=path, ledger=ledger, run_name="a")
    result = simulate(settings, rows, checkpoint=path, ledger=ledger, run_name="a")
    replayed = simulate(settings, rows, ledger=ledger, run_name="a")
    assert np.array_equal(replayed.models, result.models)
    assert len(ledger.rows) == 7


SPELLED = {"sum": ("sum_momentum", "momentum"), "curator": ("central_momentum", "momentum")}


def spelled(trust: str, way: int) -> RunConfig:
    """One run by the name of method and trust together, or by both."""
    by = {"trust": trust} if way else {}
    return RunConfig.from_dict(
        {
            "method": SPELLED[trust][way],
            "epsilon": 2.0,
            "delta": 1e-5,
            "rounds": 4,
            "accountant": "zcdp",
            **by,
        }
    )


def stop(k: int, state: Any) -> None:
    if k == 2:
        raise Interrupted


@pytest.mark.parametrize("trust", SPELLED)
@pytest.mark.parametrize("ways", [(0, 1), (1, 0)])
def test_two_spellings_of_a_method_are_one_run(
    tmp_path: Path, trust: str, ways: tuple[int, int]
) -> None:
    """It is paid once, and goes on in ledgers and from checkpoints."""
    rows, first, second = (
        make_rows([12, 9, 15], 3, seed=3),
        spelled(trust, ways[0]),
        spelled(trust, ways[1]),
    )
    path, nodes = tmp_path / "half.npz", 1 if trust == "curator" else 3

    assert first.to_dict() != second.to_dict()
    with DurableLedger.create(
        tmp_path / "a.ledger", epsilon=7.0, delta=1e-4, accountant="zcdp", n_nodes=nodes
    ) as book:
        with pytest.raises(Interrupted):
            simulate(first, rows, ledger=book, observers=[stop])
        with pytest.raises(Interrupted):
            simulate(first, rows, checkpoint=path, observers=[stop])
        committed, seen = book.account.committed_epsilon(), list[int]()
        resumed = simulate(second, rows, ledger=book)
        assert (
            len(book.runs) == 1
            and len(book.rows) == 4
            and np.array_equal(book.account.committed_epsilon(), committed)
        )
        simulate(first, rows, ledger=book)
        assert len(book.runs) == 1 and len(book.rows) == 4
        simulate(replace(second, seed=1), rows, ledger=book)
        assert len(book.runs) == 2
    ended = simulate(second, rows, checkpoint=path, observers=[lambda k, _: seen.append(k)])
    assert seen == [2, 3, 4] and ended.models.tobytes() == resumed.models.tobytes()


def test_a_checkpoint_of_another_ledger_is_refused(tmp_path: Path) -> None:
    """Both have paid for the same run, and drew other noise: a model is of the ledger that its
    statement names.
    """
    rows, path = make_rows([12, 9, 15], 3, seed=3), tmp_path / "half.npz"
    config = RunConfig("prox_admm", epsilon=2.0, delta=1e-5, rounds=4, accountant="zcdp", seed=None)
    first, second = (
        DurableLedger.create(tmp_path / name, epsilon=7.0, delta=1e-4, accountant="zcdp", n_nodes=3)
        for name in "ab"
    )
    with first, second:
        with pytest.raises(Interrupted):
            simulate(config, rows, ledger=first, checkpoint=path, observers=[stop])
        own = simulate(config, rows, ledger=second)
        with pytest.raises(LedgerMismatch, match="answers"):
            simulate(config, rows, ledger=second, checkpoint=path)
        assert len(second.rows) == 4 and len(first.rows) == 2
        resumed = simulate(config, rows, ledger=first, checkpoint=path)
        assert len(first.rows) == 4 and not np.array_equal(resumed.models, own.models)
