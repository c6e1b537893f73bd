"""Of a ledger on disk: one budget for all runs, and one draw a row.  What every ledger does is
in test_contract.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ledgers import DATA, again, price, release

from sottovoce.errors import (
    BudgetExceeded,
    InvalidInput,
    LedgerCorrupt,
    LedgerError,
    LedgerMismatch,
)
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.history import RunHistory
from sottovoce.ledger.memory import Ledger
from sottovoce.network.net import DenseNet
from sottovoce.privacy.accountants import PureAccountant
from sottovoce.privacy.events import Unprotected
from sottovoce.privacy.noise import KeyedNoise, SystemNoise
from sottovoce.runs.engine import Place, run_rounds
from sottovoce.runs.pricing import RunSetting, plan_ledger
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import RunConfig, prepare, simulate
from sottovoce.util.compatibility import FORMAT


@pytest.mark.parametrize(
    ("version", "former"), [(None, True), (FORMAT - 1, True), (FORMAT, False), (FORMAT + 1, True)]
)
def test_only_a_run_of_the_present_format_goes_on(version: int | None, former: bool) -> None:
    run = RunHistory(plan="p", planned=[], texts=[], priced=[], since="2026-01-01", version=version)
    assert run.has_other_format == former


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sub" / "data.ledger"


@pytest.fixture
def ledger(path: Path) -> Iterator[DurableLedger]:
    with DurableLedger.create(path, epsilon=3.2 * price(), n_nodes=2, fingerprint=DATA) as opened:
        yield opened


# One budget for all runs


def test_a_reservation_holds_what_it_may_spend(ledger: DurableLedger, path: Path) -> None:
    first = ledger.reserve("first", "p1", [release()] * 2)
    assert ledger.total() == 0.0 and ledger.account.committed_epsilon()[0] == 2 * price()
    with (
        again(path) as other,
        pytest.raises(BudgetExceeded, match=r"^epsilon=.*nothing was reserved") as refusal,
    ):
        other.reserve("second", "p2", [release()] * 2)
    assert "\n" not in str(refusal.value)
    with pytest.raises(BudgetExceeded, match="open runs"):
        ledger.record_event(release(1.0))
    first.record_event(release())
    first.close()  # gives one back
    assert ledger.account.committed_epsilon()[0] == ledger.total() == price()
    ledger.reserve("second", "p2", [release()] * 2)
    assert [r["held"] for r in ledger.show()["runs"]] == [0, 2]


def test_a_run_reads_like_a_ledger_in_memory(ledger: DurableLedger) -> None:
    events, memory = [release(0.5, claimed=0.1), release(0.2, claimed=0.1)], Ledger()
    ledger.record_event(release(0.1))
    reserved = ledger.reserve("run", "plan", events)
    for event in events:
        reserved.record_event(event)
        memory.record_event(event)
    assert reserved.to_list() == memory.to_list() and reserved.claimed() == memory.claimed()
    np.testing.assert_array_equal(reserved.per_node(), memory.per_node())
    assert reserved.total() == memory.total() < ledger.total()
    assert (reserved.release, reserved.delta, reserved.accountant.name) == (2, 0.0, "pure")


def test_only_what_was_planned_is_charged(ledger: DurableLedger) -> None:
    reserved = ledger.reserve("run", "plan", [release(0.5), release(0.2)])
    with pytest.raises(LedgerMismatch, match="differs in beta"):
        reserved.record_event(release(0.2))
    reserved.record_event(release(0.5))
    with pytest.raises(LedgerMismatch, match=r"not the next"):
        ledger.runs.records_of_run("run").charge_release(3, release(0.2), kept=True)
    reserved.record_event(release(0.2))
    with pytest.raises(BudgetExceeded, match="all 2 reserved"):
        reserved.record_event(release(0.2))
    assert len(ledger.rows) == 2


def test_a_run_belongs_to_its_plan(ledger: DurableLedger) -> None:
    ledger.reserve("run", "plan", [release()])
    for plan_digest, events in (("other", [release()]), ("plan", [release(0.2)])):
        with pytest.raises(LedgerMismatch, match="another plan"):
            ledger.reserve("run", plan_digest, events)
    with pytest.raises(LedgerMismatch, match="another plan"):
        ledger.resume("run", "other")
    with pytest.raises(LedgerError, match=r"^run='runs'"):
        ledger.resume("runs", "plan")
    with pytest.raises(InvalidInput, match=r"^run='empty'"):
        ledger.reserve("empty", "plan", [])
    with pytest.raises(InvalidInput, match=r"^event=.* 2 nodes"):
        ledger.reserve("wide", "plan", [Unprotected(source="t", rows=np.ones(3))])


def test_an_abandoned_run_holds_its_budget_until_somebody_closes_it(
    path: Path, ledger: DurableLedger
) -> None:
    living = ledger.reserve("run", "plan", [release()] * 3)
    living.record_event(release(), kept=True)
    with again(path) as other:
        with pytest.raises(LedgerError, match=r"2 of 3"):
            other.close_run("run")
        other.close_run("run", reclaim=True)
        assert other.account.committed_epsilon()[0] == price()
    with pytest.raises(LedgerError, match="is closed"):  # it lives, and cannot pass the budget
        living.record_event(release())
    living.store_payload(b"was being drawn")  # its row is spent, so what it drew may still be kept
    with pytest.raises(LedgerMismatch, match="is closed"):
        ledger.reserve("run", "plan", [release()] * 3)
    assert ledger.resume("run", "plan").charge_once(release(), pytest.fail) == b"was being drawn"


def test_leaving_a_run_by_an_exception_keeps_it_open(ledger: DurableLedger) -> None:
    with pytest.raises(KeyboardInterrupt), ledger.reserve("run", "plan", [release()] * 2):
        raise KeyboardInterrupt
    assert ledger.show()["runs"][0]["state"] == "open"
    with ledger.resume("run", "plan"):
        pass
    assert ledger.show()["runs"][0]["state"] == "closed"


def test_a_price_that_is_no_number_is_refused(
    ledger: DurableLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PureAccountant, "price_of_event", lambda self, event: np.full(2, np.nan))
    with pytest.raises(BudgetExceeded):
        ledger.record_event(release())


def test_spending_is_summed_in_whole_numbers(path: Path) -> None:
    with DurableLedger.create(path, epsilon=np.inf, n_nodes=2) as ledger:
        for _ in range(300):
            ledger.record_event(release(0.1))
        exact = 300 * Fraction(price(0.1))
        assert (
            0
            <= Fraction(float(ledger.per_node()[0])) - exact
            <= 2 * Fraction(np.spacing(float(exact)))
        )


def test_threads_share_a_ledger(path: Path) -> None:
    with DurableLedger.create(path, epsilon=20.5 * price(0.1), n_nodes=2) as shared:
        refused: list[BudgetExceeded] = []

        def spend() -> None:
            for _ in range(6):
                try:
                    shared.record_event(release(0.1))
                except BudgetExceeded as error:
                    refused.append(error)

        threads = [threading.Thread(target=spend) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(shared.rows), len(refused)) == (20, 4)
        shared.file.verify()


# One draw a row


def test_a_release_is_drawn_once_and_handed_out_as_often_as_asked(
    ledger: DurableLedger, path: Path
) -> None:
    first = ledger.reserve("run", "plan", [release(0.1)] * 3)
    drawn = [first.charge_once(release(0.1), lambda: os.urandom(8)) for _ in range(2)]
    with again(path) as other:
        resumed = other.reserve("run", "plan", [release(0.1)] * 3)
        assert [resumed.charge_once(release(0.1), pytest.fail) for _ in range(2)] == drawn
        assert resumed.charge_once(release(0.1), lambda: b"third") == b"third"
        assert len(other.rows) == 3
    assert first.charge_once(release(0.1), pytest.fail) == b"third"


def test_the_first_stored_bytes_win(ledger: DurableLedger) -> None:
    slow, fast = (ledger.reserve("run", "plan", [release()]) for _ in range(2))
    assert (
        slow.charge_once(
            release(), lambda: (fast.charge_once(release(), lambda: b"fast"), b"slow")[1]
        )
        == b"fast"
    )
    with pytest.raises(LedgerMismatch, match="different bytes"):
        slow.store_payload(b"slow")
    slow.store_payload(b"fast")
    assert len(ledger.rows) == 1


def test_failed_draw_that_others_saw_is_never_repeated(ledger: DurableLedger, path: Path) -> None:
    def fails() -> bytes:
        raise ZeroDivisionError

    first = ledger.reserve("run", "plan", [release()] * 2)
    with pytest.raises(ZeroDivisionError):
        first.charge_once(release(), fails)
    with again(path) as other, pytest.raises(LedgerError, match="others may have seen its error"):
        other.resume("run", "plan").charge_once(release(), pytest.fail)
    assert ledger.total() == price() and ledger.show()["runs"][0]["failed"] == 1


def test_failed_draw_returns_the_bytes_that_another_process_stored(ledger: DurableLedger) -> None:
    slow, fast = (ledger.reserve("run", "plan", [release()] * 2) for _ in range(2))

    def fails() -> bytes:
        fast.charge_once(release(), lambda: b"fast")
        raise ZeroDivisionError

    # the error would have been a second release of the row
    assert slow.charge_once(release(), fails) == b"fast"
    assert ledger.show()["runs"][0]["failed"] == 0

    def fails_first() -> bytes:
        with pytest.raises(ZeroDivisionError):
            slow.charge_once(release(), lambda: bytes(1 // 0))
        return b"too late"

    with pytest.raises(LedgerError, match="others may have seen its error"):
        fast.charge_once(release(), fails_first)


def test_release_without_stored_bytes_cannot_be_drawn_again(ledger: DurableLedger) -> None:
    ledger.reserve("run", "plan", [release(0.1)] * 2).record_event(release(0.1))
    resumed = ledger.resume("run", "plan")
    for attempt in (
        lambda: resumed.record_event(release(0.1)),
        lambda: resumed.charge_once(release(0.1), pytest.fail),
    ):
        with pytest.raises(LedgerError, match="not kept"):
            attempt()
    with pytest.raises(LedgerError, match="bytes are unknown"):
        ledger.runs.records_of_run("run").store_payload(1, b"x")
    with pytest.raises(LedgerError, match=r"is not charged"):
        ledger.runs.records_of_run("run").payload(2)
    resumed.restore([release(0.1).to_dict()])  # a checkpoint behind that row
    resumed.record_event(release(0.1))
    with pytest.raises(LedgerCorrupt, match="lacks rows"):
        resumed.restore([release(0.1).to_dict()] * 3)


def test_a_run_of_the_engine_spends_its_plan(rows: Any, path: Path) -> None:
    """Both ways to use it: the row guard of today, and one that keeps what it hands out."""
    config = RunConfig(rounds=4, epsilon=2.0, seed=3)
    prepared = prepare(config, rows.n, rows.d)
    facts, nodes = prepared.facts, prepared.facts.n_nodes
    events = plan_ledger(
        prepared.algorithm, RunSetting(facts, prepared.graph, 4, prepared.ledger.accountant)
    ).rows

    class Keeping(RowGuard):
        def charge_and_answer(self, query: Any) -> np.ndarray:
            def draw() -> bytes:
                return np.asarray(
                    query.answer(self._vault, self.facts, kept.release), "<f8"
                ).tobytes()

            return np.frombuffer(kept.charge_once(query.event(self.facts), draw), "<f8").reshape(
                1, nodes, rows.d
            )

    def models(guard: RowGuard) -> np.ndarray:
        place = Place(facts, DenseNet(prepared.graph), guard, (1, nodes), rows.d)
        outcome = run_rounds(prepared.algorithm, place, config.rounds)
        assert outcome.rounds == 4
        return prepared.algorithm.model(outcome.state)

    expected = simulate(config, rows)
    with DurableLedger.create(path, epsilon=4.0, n_nodes=nodes) as ledger:
        with ledger.reserve("plain", "digest", events) as plain:
            got = models(RowGuard(rows, facts, KeyedNoise(3, range(1), range(nodes)), plain))
        np.testing.assert_array_equal(got, expected.models)
        assert plain.to_list() == expected.ledger and plain.total() == expected.privacy["epsilon"]
        kept = ledger.reserve("kept", "digest", events)
        first = models(Keeping(rows, facts, SystemNoise((1, nodes)), kept))
        kept = ledger.resume("kept", "digest")
        np.testing.assert_array_equal(
            models(Keeping(rows, facts, SystemNoise((1, nodes)), kept)), first
        )
        assert len(ledger.rows) == 2 * len(events) and 3.99 < ledger.total() <= 4.0
