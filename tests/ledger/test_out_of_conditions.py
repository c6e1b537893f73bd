"""Ledgers that are asked for an event out of its proof's conditions: priced as what it is then,
everywhere alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.errors import BudgetExceeded, UnknownEvent
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.joint import Joint
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.accountants import lifetime_accountant, make_accountant
from sottovoce.privacy.events import (
    CarriedGaussianMechanism,
    Event,
    GatedRelease,
    GaussianMechanism,
    SummedGaussianMechanism,
)
from sottovoce.privacy.gaussian import gaussian_epsilon

T, DELTA = 10, 1e-5


def carried(index: int, rounds: int = T, total: float = 1.0) -> CarriedGaussianMechanism:
    """Of a run whose shifts over sigma add up to `total`."""
    sigma = math.sqrt(rounds / total * (rounds + index) / (2.0 * (rounds + index - 1.0)))
    one = np.ones(1)
    return CarriedGaussianMechanism("test", "replace-one", sigma * one, one, 3, index, rounds)


def gaussian(index: int, rounds: int = T) -> GaussianMechanism:
    return GaussianMechanism("test", "replace-one", carried(index, rounds).sigma, np.ones(1), 3)


def gate(index: int) -> GatedRelease:
    one = np.ones(1)
    return GatedRelease(
        "test", "replace-one", 20.0 * one, one, 3, 0.1 * one, 0.2 * one, positives=2, index=index
    )


def summed(alpha: float, sites_per_row: int, nodes: int = 5) -> SummedGaussianMechanism:
    shape = np.ones(nodes)
    return SummedGaussianMechanism(
        "test", "replace-one", alpha * shape, shape, 3, nodes, 4, 1, sites_per_row, 40
    )


RUN = [carried(t) for t in range(1, T + 1)]
GATE = [gate(t) for t in range(1, 6)]
CASES: dict[str, tuple[list[Event], list[Event]]] = {  # what is asked for, and what it costs
    "in order": ([*RUN], [*RUN]),
    "the last alone": ([RUN[9]], [gaussian(10)]),
    "the last, ten times": ([RUN[9]] * 10, [gaussian(10)] * 10),
    "one twice": ([*RUN[:3], RUN[2], RUN[3]], [*RUN[:3], gaussian(3), RUN[3]]),
    "one left out": ([RUN[0], RUN[2], RUN[3]], [RUN[0], gaussian(3), gaussian(4)]),
    "backwards": ([RUN[2], RUN[1], RUN[0]], [gaussian(3), gaussian(2), RUN[0]]),
    "other noise": ([RUN[0], carried(2, total=2.0)], [RUN[0], carried(2, total=2.0).alone()]),
    "of another length": ([RUN[0], carried(2, 11)], [RUN[0], gaussian(2, 11)]),
    "a gate": ([*GATE], [*GATE]),
    "free rounds of a gate": ([GATE[4]] * 3, [GATE[0]] * 3),
    "a gate without its tests": (GATE[1:4], [GATE[0]] * 3),
}


def charged(book: Any, asked: Sequence[Event]) -> float:
    for event in asked:
        book.record_event(event)
    return float(book.total())


def in_memory(path: Path, asked: Sequence[Event]) -> list[float]:
    return [
        charged(Ledger("rdp", 1e3, DELTA), asked),
        charged(Ledger("rdp", 1e3, DELTA).trial(), asked),
    ]


def restored(path: Path, asked: Sequence[Event]) -> list[float]:
    """From the rows of a checkpoint in the midst."""
    book, plain = Ledger("rdp", 1e3, DELTA), [event.to_dict() for event in asked]
    book.restore(plain[:2])
    return [charged(book, asked[2:])]


def settled(path: Path, asked: Sequence[Event]) -> list[float]:
    """By an accountant whose order is fixed after half of it."""
    book = Ledger(make_accountant("rdp"), 1e3, DELTA)
    charged(book, asked[:2])
    book.settle()
    return [charged(book, asked[2:])]


def shared(path: Path, asked: Sequence[Event]) -> list[float]:
    """A run's reservation, and what it has charged."""
    book, own = Ledger("rdp", 1e3, DELTA), Ledger("rdp", 1e3, DELTA)
    with Joint(own, book, asked) as joint:
        charged_all = [joint.record_event(event) for event in asked]
    assert len(charged_all) == len(book.rows) == len(own.rows)
    return [book.total(), own.total()]


def on_disk(path: Path, asked: Sequence[Event]) -> list[float]:
    with DurableLedger.create(path / "a", epsilon=1e3, delta=DELTA, accountant="rdp") as book:
        before = charged(book, asked)
    with DurableLedger.open(path / "a") as again:
        again.file.verify()
        return [before, again.total()]


def reserved(path: Path, asked: Sequence[Event]) -> list[float]:
    with DurableLedger.create(path / "b", epsilon=1e3, delta=DELTA, accountant="rdp") as book:
        found = [float(book.account.epsilon_added_by_run(asked)[0])]
        run = book.reserve("run", "plan", asked)
        found.append(float(book.account.committed_epsilon()[0]))
        for event in asked[:2]:
            run.charge_once(event, lambda: b"release")
        found.append(float(book.account.committed_epsilon()[0]))
    with DurableLedger.open(path / "b") as again:
        run = again.resume("run", "plan")
        for event in asked:
            run.charge_once(event, lambda: b"release")
        return [*found, float(run.per_node()[0]), again.total()]


WAYS: dict[str, Callable[[Path, Sequence[Event]], list[float]]] = {
    "in memory": in_memory,
    "restored": restored,
    "settled": settled,
    "shared": shared,
    "on disk": on_disk,
    "reserved": reserved,
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("way", WAYS)
def test_event_out_of_its_conditions_costs_more(way: str, case: str, tmp_path: Path) -> None:
    asked, costs = CASES[case]
    accountant = lifetime_accountant("rdp", np.array(1e3), DELTA)
    spent = accountant.zero_spending()
    for event in costs:
        spent = accountant.add_event(spent, event)
    for found in WAYS[way](tmp_path, asked):
        assert found == pytest.approx(float(np.max(accountant.epsilon(spent, DELTA))), rel=1e-12)


def test_the_last_round_alone_costs_what_it_reveals() -> None:
    """Total shift 1 over ten rounds: the tenth alone is a Gaussian mechanism of epsilon 1.711,
    ten of them of 6.38.
    """
    for many, true in ((1, 1.711), (10, 6.38)):
        exact = gaussian_epsilon(DELTA, math.sqrt(many) / float(carried(10).sigma[0]))
        assert exact == pytest.approx(true, rel=1e-3)
        for name in ("pld", "rdp", "zcdp", "best"):
            book = Ledger(make_accountant(name), math.inf, DELTA)
            assert charged(book, [carried(10)] * many) >= exact * (1 - 1e-9)
            assert make_accountant(name).epsilon_of_events([carried(10)] * many, DELTA)[
                0
            ] >= exact * (1 - 1e-9)


def test_a_budget_that_would_hold_the_false_price_refuses_the_true_one(tmp_path: Path) -> None:
    """At charge and at reservation, in memory and on disk; a run in order fits it."""
    fits = charged(Ledger("zcdp", 6.0, DELTA), RUN)
    with DurableLedger.create(tmp_path / "a", epsilon=6.0, delta=DELTA, accountant="zcdp") as disk:
        for refused in (
            lambda: charged(Ledger("zcdp", 6.0, DELTA), [RUN[9]] * 10),
            lambda: Joint(Ledger("zcdp", 1e3, DELTA), Ledger("zcdp", 6.0, DELTA), [RUN[9]] * 10),
            lambda: disk.reserve("run", "plan", [RUN[9]] * 10),
            lambda: disk.account.epsilon_added_by_run([RUN[9]] * 10),
            lambda: charged(disk, [RUN[9]] * 10),
        ):
            with pytest.raises(BudgetExceeded):
                refused()
        assert len(disk.rows) < 10 and not disk.runs
    assert fits < 6.0
    with Joint(Ledger("zcdp", 1e3, DELTA), Ledger("zcdp", 6.0, DELTA), RUN):
        pass


def test_round_numbers_beyond_the_plan_have_no_price() -> None:
    for wrong in (replace(RUN[0], index=0), replace(RUN[0], index=11)):
        with pytest.raises(UnknownEvent, match=r"^index"):
            Ledger("rdp", 9.0, DELTA).record_event(wrong)


def test_each_run_pays_for_its_own_rounds_however_runs_take_turns(tmp_path: Path) -> None:
    """What was reserved is what is charged: no run goes on from the rounds of another, and none
    takes them away.
    """
    first, second, third = RUN[:4], RUN[3:5], RUN
    whole = Ledger("rdp", 1e3, DELTA)
    wanted = charged(whole, [*first, gaussian(4), gaussian(5), *third])
    book = Ledger("rdp", 1e3, DELTA)
    runs = [Joint(Ledger("rdp", 1e3, DELTA), book, events) for events in (first, second, third)]
    with DurableLedger.create(tmp_path / "a", epsilon=1e3, delta=DELTA, accountant="rdp") as disk:
        kept = [
            disk.reserve(str(i), "plan", events) for i, events in enumerate((first, second, third))
        ]
        assert disk.account.committed_epsilon()[0] == pytest.approx(wanted, rel=1e-12)
        turns = [1, 0, 2, 0, 2, 0, 1, 2, 0, *[2] * 7]
        steps = [iter(first), iter(second), iter(third)]
        for who in turns:
            event = next(steps[who])
            runs[who].record_event(event)
            kept[who].record_event(event)
        assert disk.total() == pytest.approx(wanted, rel=1e-12) == book.total()


def test_rounds_under_another_partition_have_no_predecessor() -> None:
    """A row that was at one node in round 1 may be at another in round 2."""
    book = Ledger("rdp", 1e3, DELTA)
    book.record_event(RUN[0], deal=b"one")
    book.record_event(RUN[1], deal=b"other")
    assert book.total() == pytest.approx(
        charged(Ledger("rdp", 1e3, DELTA), [RUN[0], gaussian(2)]), rel=1e-12
    )


def test_runs_that_alternate_outside_of_reservations_are_told_apart_by_numbers(
    tmp_path: Path,
) -> None:
    turns = [event for pair in zip(RUN, RUN, strict=True) for event in pair]
    with DurableLedger.create(tmp_path / "a", epsilon=1e3, delta=DELTA, accountant="rdp") as disk:
        assert charged(disk, turns) == pytest.approx(
            charged(Ledger("rdp", 1e3, DELTA), [*RUN, *RUN]), rel=1e-12
        )


@pytest.mark.parametrize("name", ["zcdp", "rdp", "pld"])
def test_a_sum_for_fewer_sites_a_person_is_priced_for_those_of_the_ledger(name: str) -> None:
    """Seen: 1.061 printed where people with rows at two sites had spent 1.555."""
    alpha = 0.2
    found = {}
    for stated in (1, 2):
        book = Ledger(make_accountant(name), math.inf, DELTA, sites_per_row=2)
        book.record_event(summed(alpha, stated))
        found[stated] = book.total(), book.account.against([0])
        with Joint(
            Ledger(make_accountant(name), math.inf, DELTA, 2), book, [summed(alpha, stated)]
        ) as joint:
            joint.record_event(summed(alpha, stated))
        found[stated] += (book.total(),)
    assert found[1] == found[2]
    both = gaussian_epsilon(DELTA, 2.0 * alpha)  # one sum, moved by two rows
    assert found[1][0] >= both * (1 - 1e-9) and both == pytest.approx(1.555, rel=1e-3)
    assert gaussian_epsilon(DELTA, math.sqrt(2.0) * alpha) == pytest.approx(1.061, rel=1e-3)


def test_a_sum_for_more_sites_a_person_keeps_its_price(tmp_path: Path) -> None:
    small = Ledger("zcdp", math.inf, DELTA)
    with DurableLedger.create(
        tmp_path / "a", epsilon=9.0, delta=DELTA, accountant="zcdp", n_nodes=5
    ) as disk:
        for book in (small, disk):
            book.record_event(summed(0.1, 2))
        assert disk.total() == pytest.approx(gaussian_total(0.1 * math.sqrt(2.0), disk), rel=1e-9)
    assert small.total() == pytest.approx(gaussian_total(0.1 * math.sqrt(2.0), small), rel=1e-9)


def gaussian_total(mu: float, book: Any) -> float:
    alone = GaussianMechanism("test", "replace-one", np.ones(1), np.full(1, mu), 3)
    return float(book.accountant.epsilon_of_events([alone], DELTA)[0])
