"""Charges that were tested together, charges by the count, and totals that have no number."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from ledgers import release

from sottovoce.errors import BudgetExceeded, InvalidInput
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.accountants import BestAccountant, PLDAccountant, PureAccountant, RDPAccountant, ZCDPAccountant
from sottovoce.privacy.events import CarriedGaussianMechanism, GaussianMechanism

ACCOUNTANTS: list[Any] = [ZCDPAccountant, RDPAccountant, PLDAccountant, BestAccountant]


def noisy(sigma: float = 20.0, nodes: int = 2) -> GaussianMechanism:
    each = np.full(nodes, sigma)
    return GaussianMechanism(
        source="s", relation="replace-one", sigma=each, sensitivity=np.arange(1.0, nodes + 1.0), dimension=3
    )


def carried(rounds: int) -> list[CarriedGaussianMechanism]:
    one = np.array([1.0])
    return [
        CarriedGaussianMechanism("s", "replace-one", 9.0 * one, one, 3, index=i, rounds=rounds)
        for i in range(1, rounds + 1)
    ]


class Counting(Ledger):
    """Counts how often it is asked whether something is affordable."""

    asked = 0

    def _afford(self, *args: Any) -> Any:
        self.asked += 1
        return super()._afford(*args)


def test_a_run_that_was_expected_is_tested_once_and_ends_at_the_same_total() -> None:
    once, each = Counting(epsilon=9.0), Counting(epsilon=9.0)
    plan = [release(0.1), release(0.2), release(0.2)]
    once.expect(plan)
    for event in plan:
        once.charge(event)
        each.charge(event)
    assert (once.asked, each.asked) == (1, 3)
    np.testing.assert_array_equal(once.per_node(), each.per_node())
    once.charge(plan[0])
    assert once.asked == 2


def _another(ledger: Ledger) -> None:
    ledger.charge(release(0.7))


def _of_a_deal(ledger: Ledger) -> None:
    ledger.charge(release(0.7), deal=b"x" * 32)


def _by_a_thread(ledger: Ledger) -> None:
    thread = threading.Thread(target=_another, args=(ledger,))
    thread.start()
    thread.join()


@pytest.mark.parametrize("between", [_another, _of_a_deal, _by_a_thread])
def test_any_other_charge_ends_what_was_tested(between: Any) -> None:
    ledger = Ledger(epsilon=4.0)  # each of these is 1.2 and .03, the other one 1.4
    ledger.expect([release(0.6)] * 3)
    ledger.charge(release(0.6))
    between(ledger)
    before = ledger.total()

    def go_on() -> None:
        for _ in range(2):
            ledger.charge(release(0.6))

    with pytest.raises(BudgetExceeded):
        go_on()
    assert before <= ledger.total() <= 4.0


def test_where_not_all_is_affordable_the_run_ends_where_the_budget_does() -> None:
    ledger = Ledger(epsilon=2.0)
    ledger.expect([release(0.6)] * 3)
    ledger.charge(release(0.6))
    with pytest.raises(BudgetExceeded, match="release 2 would bring"):
        ledger.charge(release(0.6))


@pytest.mark.parametrize("accountant", [PureAccountant, *ACCOUNTANTS])
def test_a_count_is_so_many_charges_to_the_last_bit(accountant: Any) -> None:
    event = release(0.01) if accountant is PureAccountant else noisy()
    delta = 0.0 if accountant is PureAccountant else 1e-5
    many, one = Ledger(accountant(), np.inf, delta), Ledger(accountant(), np.inf, delta)
    many.charge(event, count=7)
    for _ in range(7):
        one.charge(event)
    np.testing.assert_array_equal(many.per_node(), one.per_node())
    assert many.to_list() == one.to_list() and len(many.rows) == 7


def test_a_count_is_charged_whole_or_not_at_all_and_is_a_number() -> None:
    ledger = Ledger(epsilon=2.0)
    with pytest.raises(BudgetExceeded, match="a run of 3 releases"):
        ledger.charge(release(0.6), count=3)
    assert ledger.rows == () and ledger.total() == 0.0
    for wrong in (0, -1, 1.0):
        with pytest.raises(InvalidInput, match="count"):
            ledger.charge(release(0.1), count=wrong)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize("rounds", [1, 2, 5, 40])
def test_what_is_paid_for_a_part_of_a_run_is_no_more_than_for_the_whole(accountant: Any, rounds: int) -> None:
    """So a test of the whole run holds for every charge of it; at most by the rounding of a total."""
    ledger, totals = Ledger(accountant(), np.inf, 1e-5), [0.0]
    for event in carried(rounds):
        ledger.charge(event)
        totals.append(ledger.total())
    assert np.all(np.diff(totals) >= -1e-9 * totals[-1]) and totals[-1] > 0.0


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_an_event_of_one_node_counts_for_all(accountant: Any) -> None:
    one, two = Ledger(accountant(), np.inf, 1e-5), Ledger(accountant(), np.inf, 1e-5)
    one.charge(noisy(nodes=1))
    one.charge(noisy(nodes=2))
    two.charge(noisy(nodes=2))
    two.charge(noisy(nodes=1))
    assert one.total() == pytest.approx(two.total(), rel=1e-9)
    assert one.per_node()[1] > one.per_node()[0]


@pytest.mark.parametrize("accountant", [ZCDPAccountant, RDPAccountant, PLDAccountant])
def test_a_total_without_a_number_is_infinite(accountant: Any) -> None:
    one = np.array([np.inf])
    event = GaussianMechanism(source="s", relation="replace-one", sigma=one, sensitivity=one, dimension=3)
    with np.errstate(all="ignore"):
        assert np.all(np.isinf(accountant().epsilon(accountant().add(accountant().nothing(), event), 1e-5)))
