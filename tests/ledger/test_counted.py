"""Charges that were tested together, charges by the count, in memory and on disk, and totals
that have no number.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ledgers import release

from sottovoce.errors import BudgetExceeded, InvalidInput, LedgerVersion
from sottovoce.ledger import chain
from sottovoce.ledger.account import Account
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.file import ChainFile
from sottovoce.ledger.history import packed, unpack_events
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.accountants import (
    BestAccountant,
    PLDAccountant,
    PureAccountant,
    RDPAccountant,
    ZCDPAccountant,
)
from sottovoce.privacy.events import CarriedGaussianMechanism, GaussianMechanism
from sottovoce.util.compatibility import FORMAT

ACCOUNTANTS: list[Any] = [ZCDPAccountant, RDPAccountant, PLDAccountant, BestAccountant]


def noisy(sigma: float = 20.0, nodes: int = 2) -> GaussianMechanism:
    each = np.full(nodes, sigma)
    return GaussianMechanism(
        source="s",
        relation="replace-one",
        sigma=each,
        sensitivity=np.arange(1.0, nodes + 1.0),
        dimension=3,
    )


def carried(rounds: int) -> list[CarriedGaussianMechanism]:
    one = np.array([1.0])
    return [
        CarriedGaussianMechanism("s", "replace-one", 9.0 * one, one, 3, index=i, rounds=rounds)
        for i in range(1, rounds + 1)
    ]


class Counting(Account):
    """Counts how often it is asked whether something is affordable."""

    asked = 0

    def check_affordable(self, priced: Any, deal: Any) -> Any:
        self.asked += 1
        return super().check_affordable(priced, deal)


def counted() -> tuple[Ledger, Counting]:
    ledger = Ledger(epsilon=9.0)
    ledger.account = account = Counting(ledger.accountant, 9.0, 0.0, 1)
    return ledger, account


def test_a_run_that_was_expected_is_tested_once_and_ends_at_the_same_total() -> None:
    (once, of_once), (each, of_each) = counted(), counted()
    plan = [release(0.1), release(0.2), release(0.2)]
    once.expect(plan)
    for event in plan:
        once.record_event(event)
        each.record_event(event)
    assert (of_once.asked, of_each.asked) == (1, 3)
    np.testing.assert_array_equal(once.per_node(), each.per_node())
    once.record_event(plan[0])
    assert of_once.asked == 2


def _another(ledger: Ledger) -> None:
    ledger.record_event(release(0.7))


def _of_a_deal(ledger: Ledger) -> None:
    ledger.record_event(release(0.7), deal=b"x" * 32)


def _by_a_thread(ledger: Ledger) -> None:
    thread = threading.Thread(target=_another, args=(ledger,))
    thread.start()
    thread.join()


@pytest.mark.parametrize("between", [_another, _of_a_deal, _by_a_thread])
def test_expectation_ends_with_any_unexpected_charge(between: Any) -> None:
    ledger = Ledger(epsilon=4.0)  # each of these is 1.2 and .03, the other one 1.4
    ledger.expect([release(0.6)] * 3)
    ledger.record_event(release(0.6))
    between(ledger)
    before = ledger.total()

    def go_on() -> None:
        for _ in range(2):
            ledger.record_event(release(0.6))

    with pytest.raises(BudgetExceeded):
        go_on()
    assert before <= ledger.total() <= 4.0


def test_where_not_all_is_affordable_the_run_ends_where_the_budget_does() -> None:
    ledger = Ledger(epsilon=2.0)
    ledger.expect([release(0.6)] * 3)
    ledger.record_event(release(0.6))
    with pytest.raises(BudgetExceeded, match="release 2 "):
        ledger.record_event(release(0.6))


@pytest.mark.parametrize("accountant", [PureAccountant, *ACCOUNTANTS])
def test_a_count_is_so_many_charges_to_the_last_bit(accountant: Any) -> None:
    event = release(0.01) if accountant is PureAccountant else noisy()
    delta = 0.0 if accountant is PureAccountant else 1e-5
    many, one = Ledger(accountant(), np.inf, delta), Ledger(accountant(), np.inf, delta)
    many.record_event(event, count=7)
    for _ in range(7):
        one.record_event(event)
    np.testing.assert_array_equal(many.per_node(), one.per_node())
    assert many.to_list() == one.to_list() and len(many.rows) == 7


def test_a_count_is_charged_whole_or_not_at_all_and_is_a_number() -> None:
    ledger = Ledger(epsilon=2.0)
    with pytest.raises(BudgetExceeded, match="run of 3"):
        ledger.record_event(release(0.6), count=3)
    assert ledger.rows == () and ledger.total() == 0.0
    for wrong in (0, -1, 1.0):
        with pytest.raises(InvalidInput, match="count"):
            ledger.record_event(release(0.1), count=wrong)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize("rounds", [1, 2, 5, 40])
def test_what_is_paid_for_a_part_of_a_run_is_no_more_than_for_the_whole(
    accountant: Any, rounds: int
) -> None:
    """So a test of the whole run holds for every charge of it; at most by the rounding of a
    total.
    """
    ledger, totals = Ledger(accountant(), np.inf, 1e-5), [0.0]
    for event in carried(rounds):
        ledger.record_event(event)
        totals.append(ledger.total())
    assert np.all(np.diff(totals) >= -1e-9 * totals[-1]) and totals[-1] > 0.0


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_an_event_of_one_node_counts_for_all(accountant: Any) -> None:
    one, two = Ledger(accountant(), np.inf, 1e-5), Ledger(accountant(), np.inf, 1e-5)
    one.record_event(noisy(nodes=1))
    one.record_event(noisy(nodes=2))
    two.record_event(noisy(nodes=2))
    two.record_event(noisy(nodes=1))
    assert one.total() == pytest.approx(two.total(), rel=1e-9)
    assert one.per_node()[1] > one.per_node()[0]


@pytest.mark.parametrize("accountant", [ZCDPAccountant, RDPAccountant, PLDAccountant])
def test_a_total_without_a_number_is_infinite(accountant: Any) -> None:
    one = np.array([np.inf])
    event = GaussianMechanism(
        source="s", relation="replace-one", sigma=one, sensitivity=one, dimension=3
    )
    with np.errstate(all="ignore"):
        assert np.all(
            np.isinf(
                accountant().epsilon(
                    accountant().add_event(accountant().zero_spending(), event), 1e-5
                )
            )
        )


# On disk


def _on_disk(path: Path, epsilon: float = 90.0) -> DurableLedger:
    DurableLedger.create(path, epsilon=epsilon, delta=1e-5, accountant="rdp", n_nodes=1).close()
    return DurableLedger.open(path)


def _bodies(path: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as db:
        return [json.loads(body) for (body,) in db.execute("SELECT body FROM log ORDER BY id")]


def test_packed_events_are_the_same_again() -> None:
    """Equal ones counted, of one class what differs, of another class whole; 1 and 1.0 are not
    the same text.
    """
    plain = [
        event.to_dict()
        for event in [noisy(), noisy(), *carried(3), noisy(), noisy(3.0), noisy(3.0)]
    ]
    plain += [plain[-1] | {"dimension": 3.0}, plain[0] | {"source": "t"}]
    packs = json.loads(json.dumps(packed(plain)))
    assert [count for _, count in packs] == [2, 1, 1, 1, 1, 2, 1, 1]
    assert (
        set(packs[2][0]) == {"index"}
        and "event" in packs[4][0]
        and packs[6][0] == {"dimension": 3.0}
    )
    again = [event for event, count in unpack_events(packs) for _ in range(count)]
    assert [json.dumps(event, sort_keys=True) for event in again] == [
        json.dumps(e, sort_keys=True) for e in plain
    ]
    for wrong in (
        [[{}, 1]],
        [[plain[0], 0]],
        [[plain[0], True]],
        [[plain[0], 6_000_000], [{}, 6_000_000]],
        [[[], 1]],
    ):
        with pytest.raises(ValueError):
            list(unpack_events(wrong))


@pytest.mark.parametrize("events", [[noisy(nodes=1)], carried(3), [noisy(nodes=1), noisy(9.0, 1)]])
def test_a_count_on_disk_is_so_many_charges(tmp_path: Path, events: list[Any]) -> None:
    """One record; same rows and same total, to the last bit, now and when it is read again."""
    with _on_disk(tmp_path / "many") as many, _on_disk(tmp_path / "one") as one:
        for event in events * 2:
            many.record_event(event, count=4)
            for _ in range(4):
                one.record_event(event)
        totals = [ledger.per_node() for ledger in (many, one)]
        assert many.to_list() == one.to_list() and len(many.rows) == 8 * len(events)
        assert many.file.verify() != one.file.verify()
    for name in ("many", "one"):
        with DurableLedger.open(tmp_path / name) as ledger:
            totals.append(ledger.per_node())
            assert ledger.show()["releases"] == 8 * len(events)
    assert len({total.tobytes() for total in totals}) == 1
    assert len(_bodies(tmp_path / "many")) == 1 + 2 * len(events)
    if len(events) == 1:  # an event is written once, and known from then on
        assert ["event" in body for body in _bodies(tmp_path / "one")] == [False, True] + [
            False
        ] * 7


def test_a_count_on_disk_is_charged_whole_or_not_at_all(tmp_path: Path) -> None:
    with _on_disk(tmp_path / "a", epsilon=3.0) as ledger:
        head = ledger.file.head()
        with pytest.raises(BudgetExceeded, match="run of 900"):
            ledger.record_event(noisy(nodes=1), count=900)
        for wrong in (0, -1, 1.0, 10**9):
            with pytest.raises(InvalidInput, match="count"):
                ledger.record_event(noisy(nodes=1), count=wrong)  # type: ignore[arg-type]
        assert ledger.file.head() == head and ledger.total() == 0.0


def test_a_run_writes_each_event_once_and_charges_outside_do_not_mix_with_it(
    tmp_path: Path,
) -> None:
    """What a charge leaves out is of its own run, or of the charges outside runs."""
    path, one, other = tmp_path / "a", noisy(nodes=1), noisy(9.0, 1)
    with _on_disk(path) as ledger:
        ledger.record_event(one)
        with ledger.reserve("run", "plan", [other] * 3 + carried(2)) as run:
            run.record_event(other)
            ledger.record_event(one)
            run.record_event(other)
            ledger.record_event(other)
        expected, rows = ledger.per_node(), ledger.to_list()
        assert ledger.show()["runs"][0]["charged"] == 2
    assert rows == [event.to_dict() for event in (one, other, one, other, other)]
    assert [set(body) & {"event", "releases"} for body in _bodies(path)] == [
        set(),
        {"event"},
        {"releases"},
        set(),
        set(),
        set(),
        {"event"},
        set(),
    ]
    with DurableLedger.open(path) as ledger:
        assert ledger.to_list() == rows and np.array_equal(ledger.per_node(), expected)


def test_records_of_schema_4_cost_the_same_and_a_reader_of_it_refuses_those_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals = []
    for old in (True, False):
        path, events = tmp_path / str(old), [noisy(nodes=1)] * 2 + carried(2)
        with _on_disk(path) as ledger:
            if old:  # as it was written
                plain = [event.to_dict() for event in events]
                records: list[dict[str, Any]] = [
                    {
                        "kind": "reserve",
                        "run": "run",
                        "plan": "plan",
                        "events": plain,
                        "at": "then",
                        "version": FORMAT,
                    },
                    {"kind": "charge", "run": "run", "release": 1, "event": plain[0], "kept": True},
                    {"kind": "charge", "run": None, "release": None, "event": plain[0]},
                ]
                for record in records:
                    with ledger.file.transaction():
                        ledger.file.append_record(record)
            run = ledger.resume("run", "plan") if old else ledger.reserve("run", "plan", events)
            for event in events[: 3 if old else 1]:
                run.record_event(event, kept=True)
            for event in [] if old else [events[0]]:
                ledger.record_event(event)
            for event in [] if old else events[1:3]:
                run.record_event(event, kept=True)
            committed = ledger.account.committed_epsilon().tobytes()
            totals.append((ledger.per_node().tobytes(), committed, json.dumps(ledger.to_list())))
    assert totals[0] == totals[1]
    with closing(sqlite3.connect(tmp_path / "True")) as db:
        db.execute("PRAGMA user_version = 4")
    with DurableLedger.open(tmp_path / "True") as ledger:
        assert ledger.per_node().tobytes() == totals[0][0]
    with monkeypatch.context() as earlier:
        earlier.setattr(chain, "_READS", (3, 4))
        DurableLedger.open(tmp_path / "True").close()  # only its first new record says so
    with DurableLedger.open(tmp_path / "True") as ledger:
        ledger.record_event(events[0])
    monkeypatch.setattr(chain, "_READS", (3, 4))
    monkeypatch.setattr(chain, "SCHEMA_VERSION", 4)
    for name in ("True", "False"):
        with pytest.raises(LedgerVersion, match=r"schema 5,.*4"):
            DurableLedger.open(tmp_path / name)


@pytest.mark.parametrize("point", ["in the commit", "after it"])
def test_a_count_is_there_whole_or_not_at_all_after_a_kill(tmp_path: Path, point: str) -> None:
    path = tmp_path / "a"
    _on_disk(path).close()
    pid = os.fork()
    if not pid:
        append = ChainFile.append_record

        def dying(
            file: ChainFile[Any], record: dict[str, Any], payload: bytes | None = None
        ) -> None:
            append(file, record, payload)
            if point == "in the commit":
                os.kill(os.getpid(), signal.SIGKILL)

        ChainFile.append_record = dying  # type: ignore[method-assign]
        DurableLedger.open(path).record_event(noisy(nodes=1), count=50)
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    with DurableLedger.open(path) as ledger:
        ledger.file.verify()
        assert len(ledger.rows) == (0 if point == "in the commit" else 50)


@pytest.mark.parametrize(
    "change",
    [
        {"count": 2},
        {"count": 0},
        {"release": 3},
        {"event": noisy(9.0, 1).to_dict()},
        {"run": "none"},
    ],
)
def test_a_charge_that_is_not_the_next_reserved_is_no_record(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    with _on_disk(tmp_path / "a") as ledger:
        ledger.reserve("run", "plan", [noisy(nodes=1)] * 3).record_event(noisy(nodes=1))
        record = {"kind": "charge", "run": "run", "release": 2, "kept": True} | change
        state = ledger.file.read()
        with pytest.raises((ValueError, KeyError)):
            state.apply_record(9, record)
    with _on_disk(tmp_path / "b") as ledger, pytest.raises(KeyError):  # nothing to repeat
        ledger.file.read().apply_record(2, {"kind": "charge", "run": None, "release": None})
