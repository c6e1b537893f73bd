"""Events, the pure accountant and targets: exact sums and round trips.  What every ledger does
is in test_contract.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
from ledgers import release

from sottovoce.errors import InvalidInput, UnknownEvent
from sottovoce.ledger.memory import Ledger, validate_target
from sottovoce.privacy import accountants, events
from sottovoce.privacy.accountants import PureAccountant
from sottovoce.privacy.events import Event, Unprotected


def price(beta: float = 0.5) -> np.ndarray:
    return 2 * beta + np.log1p(0.25 / np.array([10.0, 40.0])) + 2 * 100.0 * 1e-6


def test_total_is_the_sum_and_the_network_is_the_worst_node() -> None:
    ledger = Ledger()
    for beta in (0.5, 0.25, 1.0):
        ledger.record_event(release(beta))
    expected = price(0.5) + price(0.25) + price(1.0)
    np.testing.assert_allclose(ledger.per_node(), expected, rtol=1e-14)
    assert ledger.total() == ledger.per_node()[0] > ledger.per_node()[1]
    np.testing.assert_array_equal(
        PureAccountant().epsilon_of_events(ledger.rows), ledger.per_node()
    )


def test_events_survive_json_and_are_frozen() -> None:
    for event in (release(claimed=0.3), release(), Unprotected(source="s", rows=np.array([[3.0]]))):
        plain = json.loads(json.dumps(event.to_dict(), allow_nan=False))
        assert events.from_dict(plain).to_dict() == event.to_dict()
    with pytest.raises(ValueError, match="read-only"):
        release().beta[0] = 0.0


def test_unknown_events_are_refused_by_name() -> None:
    @dataclass(frozen=True, eq=False)
    class Novel(Event):
        needs = "nothing"

    with pytest.raises(UnknownEvent, match="Novel"):
        PureAccountant().price_of_event(Novel(source="test"))
    with pytest.raises(UnknownEvent, match="Unheard"):
        events.from_dict({"event": "Unheard", "source": "test"})


def test_an_event_of_another_module_takes_the_place_of_none_of_ours() -> None:
    stored = release(0.3).to_dict()
    with pytest.raises(TypeError, match="of this name"):

        class SphericalObjectivePerturbation(Event):
            needs = "nothing"

    with pytest.raises(TypeError, match="derive from Event"):

        class Bolder(type(release())):  # type: ignore[misc]
            needs = "nothing"

    assert (
        type(events.from_dict(stored)) is type(release()) is events.SphericalObjectivePerturbation
    )

    @dataclass(frozen=True, eq=False)
    class Unpriced(Event):
        needs = "nothing"

    ledger = Ledger()
    with pytest.raises(UnknownEvent, match="Unpriced"):
        ledger.record_event(Unpriced(source="test"))
    with pytest.raises(
        UnknownEvent, match="Unpriced"
    ):  # no ledger that holds one opens, whoever has defined it
        events.from_dict({"event": "Unpriced", "source": "test"})
    assert ledger.rows == ()


def test_restored_ledger_goes_on_with_the_same_total() -> None:
    one, two = Ledger(epsilon=9.0), Ledger(epsilon=9.0)
    one.record_event(release(0.3))
    one.record_event(release(0.2))
    two.restore(one.to_list())
    np.testing.assert_array_equal(one.per_node(), two.per_node())


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, [1.0, 0.0], "1"])
def test_invalid_epsilons_are_refused(epsilon: float) -> None:
    with pytest.raises(InvalidInput, match=r"^epsilon="):
        validate_target(epsilon, None)


@pytest.mark.parametrize("delta", [0.0, 1.0, 1.5, -1e-5, math.nan])
def test_invalid_deltas_are_refused(delta: float) -> None:
    with pytest.raises(InvalidInput, match=r"^delta="):
        validate_target(1.0, delta)


def test_accountants_by_name() -> None:
    assert accountants.make_accountant("pure").name == "pure"
    with pytest.raises(InvalidInput, match="accountant='nope'"):
        accountants.make_accountant("nope")


def test_an_event_with_other_fields_is_not_guessed_at() -> None:
    plain = release().to_dict() | {"delta_gradient": 2.0}
    with pytest.raises(UnknownEvent, match=r"^event=.* fields"):
        events.from_dict(plain)
