"""Charging many releases together spends what charging them one by one spends, whatever was
charged before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from sottovoce.errors import BudgetExceeded, InvalidInput
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.accountants import make_accountant
from sottovoce.privacy.events import (
    CarriedGaussianMechanism,
    Event,
    ExactSphericalMechanism,
    GatedRelease,
    GaussianMechanism,
    GaussianObjectivePerturbation,
    LaplaceMechanism,
    MinimiserGateRelease,
    RedrawnGateRelease,
    SummedGaussianMechanism,
)

RELATION = "replace-one"


def carried(index: int, rounds: int = 4, sigma: float = 4.0) -> Event:
    """Round `index` of a run whose noise falls as the theorem has it."""
    for t in range(2, index + 1):
        sigma *= np.sqrt((rounds + t) * (rounds + t - 2.0)) / (rounds + t - 1.0)
    return CarriedGaussianMechanism(
        "test", RELATION, np.array([sigma]), np.array([2.0]), 3, index, rounds
    )


def gated(index: int, sigma: float = 3.0) -> Event:
    """Round `index` of a sparse vector that lets two releases pass."""
    one = np.array([1.0])
    return GatedRelease(
        "test", RELATION, np.array([sigma]), 2.0 * one, 3, 0.1 * one, 0.2 * one, 2, index
    )


def redrawn(index: int) -> Event:
    one = np.array([1.0])
    return RedrawnGateRelease(
        "test", RELATION, 6.0 * one, 50.0 * one, 0.25, 3, 0.0 * one, 0.1 * one, 0.05 * one, 2, index
    )


def read(index: int) -> Event:
    one = np.array([1.0])
    return MinimiserGateRelease(
        "test",
        RELATION,
        6.0 * one,
        50.0 * one,
        0.25,
        3,
        0.01 * one,
        0.1 * one,
        0.05 * one,
        2,
        index,
    )


def gaussian(sigma: float = 4.0) -> Event:
    return GaussianMechanism("test", RELATION, np.array([sigma]), np.array([2.0]), 3)


def objective() -> Event:
    one = np.array([1.0])
    return GaussianObjectivePerturbation(
        "test", RELATION, 6.0 * one, 50.0 * one, 0.25, 3, 0.0 * one, 0.1 * one
    )


def summed() -> Event:
    one = np.array([1.0])
    return SummedGaussianMechanism("test", RELATION, 0.3 * one, 2.0 * one, 3, 5, 4, 1, 1, 20)


SPHERICAL = ExactSphericalMechanism("test", RELATION, np.array([0.05]), np.array([2.0]), 3)
LAPLACE = LaplaceMechanism("test", RELATION, np.array([20.0]), np.array([1.0]))

Case = tuple[list[Event], list[Event]]
CASES: dict[str, Callable[[], Case]] = {
    "the second of two carried rounds, again": lambda: ([carried(1)], [carried(2)]),
    "the rest of a carried run, again": lambda: (
        [carried(1)],
        [carried(2), carried(3), carried(4)],
    ),
    "a whole carried run, again": lambda: ([], [carried(k) for k in (1, 2, 3, 4)]),
    "a whole carried run after one": lambda: (
        [carried(k) for k in (1, 2, 3, 4)],
        [carried(k) for k in (1, 2, 3, 4)],
    ),
    "a carried round of which two could follow": lambda: ([carried(1), carried(1)], [carried(2)]),
    "carried rounds in the wrong order": lambda: ([carried(1)], [carried(3), carried(2)]),
    "the second round of a gate, again": lambda: ([gated(1)], [gated(2)]),
    "a later round of a gate, which costs nothing once": lambda: ([gated(1), gated(2)], [gated(3)]),
    "a whole gate, again": lambda: ([], [gated(1), gated(2), gated(3)]),
    "a redrawn gate's second round, again": lambda: ([redrawn(1)], [redrawn(2)]),
    "the second round of a gate that reads the minimiser, again": lambda: ([read(1)], [read(2)]),
    "Gaussian noise between carried rounds": lambda: (
        [carried(1)],
        [gaussian(), carried(2), gaussian(5.0)],
    ),
    "events that need no rounds": lambda: (
        [gaussian()],
        [gaussian(), objective(), SPHERICAL, LAPLACE],
    ),
    "sums between carried rounds": lambda: ([carried(1), summed()], [summed(), carried(2)]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("accountant", ["rdp", "pld", "best"])
def test_charging_together_spends_what_charging_one_by_one_spends(
    case: Callable[[], Case], accountant: str
) -> None:
    """To the last bit, for every number of times, and for what is charged afterwards."""
    before, events = case()
    for times in (1, 2, 3):
        together, single = (
            Ledger(make_accountant(accountant), np.inf, 1e-5, sites_per_row=2) for _ in range(2)
        )
        for event in before:
            together.record_event(event)
            single.record_event(event)
        together.charge_all(events, times)
        for event in events * times:
            single.record_event(event)
        assert together.total() == single.total()
        for event in [*events, carried(2), gated(2)]:
            together.record_event(event)
            single.record_event(event)
        assert together.total() == single.total()
        assert together.to_list() == single.to_list()


def test_a_carried_round_cannot_follow_the_same_round_twice() -> None:
    """Two second rounds after one first round: the other one is priced alone, and costs more."""
    ledger = Ledger(make_accountant("zcdp"), np.inf, 1e-5)
    ledger.record_event(carried(1))
    ledger.charge_all([carried(2)], times=2)
    prices = [row.priced for row in ledger.account.book]
    assert [type(price) for price in prices] == [
        CarriedGaussianMechanism,
        CarriedGaussianMechanism,
        GaussianMechanism,
    ]


def test_a_count_of_equal_events_is_charged_as_they_are_one_by_one() -> None:
    for first, event in itertools.product(
        ([], [carried(1)], [gated(1)]), (carried(2), gated(2), gaussian())
    ):
        together, single = (Ledger(make_accountant("rdp"), np.inf, 1e-5) for _ in range(2))
        for each in first:
            together.record_event(each)
            single.record_event(each)
        together.record_event(event, count=3)
        for _ in range(3):
            single.record_event(event)
        assert together.total() == single.total()


def test_a_budget_refuses_all_or_none() -> None:
    ledger = Ledger(make_accountant("zcdp"), 2.0, 1e-5)
    ledger.record_event(carried(1, sigma=8.0))
    spent = ledger.total()
    with pytest.raises(BudgetExceeded):
        ledger.charge_all([carried(2, sigma=8.0)], times=1000)
    assert ledger.total() == spent and len(ledger.rows) == 1


@pytest.mark.parametrize("times", [0, -1, 1.5, "2", True, None])
def test_charge_all_refuses_an_invalid_number_of_times(times: object) -> None:
    ledger = Ledger(make_accountant("zcdp"), np.inf, 1e-5)
    with pytest.raises(InvalidInput, match="times"):
        ledger.charge_all([gaussian()], times=times)  # type: ignore[arg-type]
    assert ledger.rows == ()
