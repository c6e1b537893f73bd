"""What events need of others and of the ledger: every class says it, and rounds are matched as
the proofs allow.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms import REGISTRY
from sottovoce.privacy import conditions, events
from sottovoce.privacy.conditions import Conditions, pricing_events
from sottovoce.privacy.events import (
    NEEDS,
    CarriedGaussianMechanism,
    Event,
    GatedRelease,
    MinimiserGateRelease,
    RedrawnGateRelease,
    SummedGaussianMechanism,
)
from sottovoce.runs.config import RunConfig
from sottovoce.runs.prepare import prepare

CLASSES = [
    cls
    for cls in vars(events).values()
    if isinstance(cls, type) and issubclass(cls, Event) and cls is not Event
]


def carried(
    index: int, rounds: int = 6, sigma: float = 8.0, **changes: Any
) -> CarriedGaussianMechanism:
    own = sigma * np.sqrt((rounds + index) / (2.0 * (rounds + index - 1.0)))
    more = {"source": "test", "sensitivity": np.ones(2), "dimension": 3} | changes
    return CarriedGaussianMechanism(
        relation="replace-one", sigma=np.full(2, own), index=index, rounds=rounds, **more
    )


def gate(index: int, positives: int = 2, **changes: Any) -> GatedRelease:
    one = np.ones(2)
    usual = {
        "sigma": 20.0 * one,
        "sensitivity": one,
        "epsilon_threshold": 0.1 * one,
        "epsilon_queries": 0.2 * one,
    }
    return GatedRelease(
        "test", "replace-one", **(usual | changes), dimension=3, positives=positives, index=index
    )


def redrawn(index: int, K: float = 1e4, shown: float = 0.0) -> RedrawnGateRelease:
    one = np.ones(2)
    return RedrawnGateRelease(
        "test",
        "replace-one",
        50.0 * one,
        K * one,
        0.25,
        3,
        one / K,
        shown * one / K,
        0.1 * one,
        2,
        index,
    )


def read(index: int, K: float = 1e4) -> MinimiserGateRelease:
    one = np.ones(2)
    return MinimiserGateRelease(
        "test",
        "replace-one",
        50.0 * one,
        K * one,
        0.25,
        3,
        one / K,
        10.0 * one / K,
        0.1 * one,
        2,
        index,
    )


def own(asked: list[Event]) -> list[bool]:
    """Which of these rounds price themselves."""
    return [one is event for one, event in zip(pricing_events(asked), asked, strict=True)]


def test_every_class_says_what_it_needs_and_what_it_costs_without() -> None:
    """One with a round's or a person's field and not the need is one whose author has forgotten
    it.
    """
    assert CLASSES
    for cls in CLASSES:
        names = {field.name for field in fields(cls)}
        assert vars(cls)["needs"] in NEEDS
        assert (cls.needs == "rounds") == ("alone" in vars(cls)) == ("index" in names)
        assert (
            (cls.needs == "people")
            == ("event_for_people" in vars(cls))
            == ("sites_per_row" in names)
        )


def test_event_classes_without_needs_are_refused() -> None:
    for wrong in ({}, {"needs": "luck"}):
        with pytest.raises(TypeError, match=r"^Careless: needs "):
            dataclass(type("Careless", (Event,), wrong))
    with pytest.raises(TypeError):  # nor by inheritance
        type("Heir", (CarriedGaussianMechanism,), {})


@pytest.mark.parametrize("make", [carried, gate, redrawn, read])
def test_rounds_in_order_price_themselves_and_others_are_priced_alone(make: Any) -> None:
    rounds = [make(t) for t in range(1, 7)]
    assert all(own(rounds))
    assert own([rounds[4]]) == own([rounds[4], rounds[5]])[:1] == [False]
    # what follows one out of order is out of order, too
    assert own([rounds[4], rounds[5]]) == [
        False,
        False,
    ]
    assert own([*rounds[:2], rounds[1], rounds[2]]) == [True, True, False, True]
    assert own([rounds[0], rounds[2], rounds[1], rounds[2]]) == [True, False, True, True]
    assert all(own(rounds * 3)) and all(own([each for each in rounds for _ in range(3)]))
    assert all(own([*rounds[:3], *rounds]))  # a run that stopped, and another
    for change in ({"source": "else"}, {"dimension": 4}, {"relation": "zero-out"}):
        assert own([rounds[0], replace(rounds[1], **change)]) == [True, False]
    assert own([rounds[0], (gate if make is not gate else carried)(2)]) == [True, False]


def test_terms_of_a_carried_round_are_equal_but_for_the_last_bits() -> None:
    first = carried(1)
    for factor, follows in (
        (1.0, True),
        (1.0 + 2.0**-51, True),
        (1.0 + 1e-9, False),
        (1.0 - 1e-9, False),
        (0.5, False),
    ):
        assert own([first, replace(carried(2), sigma=factor * carried(2).sigma)]) == [True, follows]
    for wrong in (
        carried(2, sensitivity=np.full(2, 0.9)),
        carried(2, rounds=7),
        carried(2, sigma=8.1),
        replace(carried(2), sigma=first.sigma),
        replace(carried(2), sigma=carried(2).sigma * [1.0, 2.0]),
        replace(carried(2), sigma=carried(2).sigma[:1]),
    ):
        assert own([first, wrong]) == [True, False]
    whole = [carried(t, rounds=2) for t in (1, 2)]
    # no such round: left as it is
    assert own([*whole, replace(carried(3, rounds=3), rounds=2)]) == [
        True,
        True,
        True,
    ]
    # so that accountants refuse it
    assert Conditions().pricing_event(replace(carried(3), rounds=2)).needs == "rounds"


def test_rounds_of_a_gate_cost_alike() -> None:
    """Later ones cost nothing, as as many as may follow were charged; at another price those
    would not pay for them.
    """
    twice = {"sigma": np.full(2, 40.0), "sensitivity": np.full(2, 2.0)}
    assert own([gate(1), gate(2), gate(3, **twice), gate(4)]) == [True] * 4
    for sigma in (30.0, 10.0):
        assert own([gate(1), gate(2), gate(3, sigma=np.full(2, sigma))]) == [True, True, False]
    assert (
        own([gate(1), gate(2, epsilon_queries=np.ones(2))])
        == own([gate(1), gate(2, positives=3)])
        == [True, False]
    )
    assert (
        own([redrawn(1, 2e4), redrawn(2)])
        == own([redrawn(1, shown=5.0), redrawn(2, shown=2.0)])
        == [True, False]
    )
    assert own([read(1), read(2)]) == [True, True] and own([read(1, 2e4), read(2)]) == [True, False]


def test_gate_pays_again_when_its_rounds_cost_more() -> None:
    """It may have sent nothing while it was charged, and send all that it may when rounds cost
    nothing.
    """
    cheap = {"sigma": np.full(2, 40.0)}
    assert own([gate(1, **cheap), gate(2, **cheap), gate(3), gate(4)]) == [True, True, False, False]


def test_alternating_sequences_are_a_matter_of_numbers() -> None:
    """Of rounds on equal terms in any order, a round is proved while fewer of it were than of
    the one before it.
    """
    rng = np.random.default_rng(4)
    for _ in range(40):
        asked = [
            carried(int(rng.integers(1, 5)), sigma=float(rng.choice([7.0, 8.0]))) for _ in range(40)
        ]
        proved: Counter[tuple[float, int]] = Counter()
        for event, itself in zip(asked, own(list(asked)), strict=True):
            terms = round(float(event.sigma[0] ** 2 * (5.0 + event.index) / (6.0 + event.index)), 6)
            count = proved[terms, event.index - 1] > proved[terms, event.index] or event.index == 1
            assert itself == count
            proved[terms, event.index] += itself


def test_pricing_event_changes_nothing_and_copies_are_independent() -> None:
    one = Conditions()
    one.charge_event(carried(1))
    assert one.pricing_event(second := carried(2)) is one.pricing_event(second) is second
    twin = one.copy()
    assert (
        twin.charge_event(second) is second
        and twin.pricing_event(second) is not second
        and one.pricing_event(second) is second
    )


def test_thousands_of_rounds_are_compared_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = conditions._follows_round
    monkeypatch.setattr(
        conditions, "_follows_round", lambda *both: bool(calls.append(1)) or real(*both)
    )
    T = 3200
    for _ in range(2):
        assert all(own([carried(t, rounds=T) for t in range(1, T + 1)]))
    assert len(calls) <= 2 * 2 * T  # as it is looked up, and as it is noted


def test_sums_are_priced_for_the_people_that_are_counted() -> None:
    def summed(m: int) -> SummedGaussianMechanism:
        one = np.full(3, 0.3)
        return SummedGaussianMechanism("test", "replace-one", one, one, 4, 3, 3, 1, m, 40)

    for stated, counted in ((1, 1), (1, 2), (2, 1), (2, 3), (3, 3)):
        priced = Conditions(counted).charge_event(summed(stated))
        assert isinstance(priced, SummedGaussianMechanism) and priced.sites_per_row == max(
            stated, counted
        )
    assert (
        Conditions(2).pricing_event(wrong := summed(0)) is wrong
    )  # of no number: refused by accountants


@pytest.mark.parametrize("form", ["corrected", "printed"])
def test_all_runs_of_all_methods_meet_the_conditions(form: str) -> None:
    checked = 0
    for name, cls in REGISTRY.items():
        if not cls.private or form not in cls.forms:
            continue
        for more in (
            [{}, {"eta_growth": 1.3}] if form == "corrected" and name == "ipp_admm" else [{}]
        ):
            delta = 1e-5 if cls.needs_delta or form == "corrected" else None
            rho = 1.0 if form == "printed" else 0.001  # line 3 of 004
            config = RunConfig.from_dict(
                {
                    "method": name,
                    "form": form,
                    "epsilon": 3.0,
                    "delta": delta,
                    "rounds": 14,
                    "eta": 0.5,
                    "rho": rho,
                    **more,
                }
            )
            rows = prepare(config, np.full((5, 1), 8000.0), 36).plan_ledger().rows
            assert all(own(list(rows)))
            checked += any(row.needs == "rounds" for row in rows)
    assert checked == {"corrected": 4, "printed": 1}[form]


@pytest.mark.parametrize("growth", [0.9, 1.1])
def test_a_printed_gate_whose_penalty_changes_pays_for_a_release_in_every_round(
    growth: float,
) -> None:
    """Nothing says which of its releases are those that it may send, and they do not cost the
    same.
    """
    config = RunConfig.from_dict(
        {
            "method": "ipp_admm",
            "form": "printed",
            "noise": 0.5,
            "epsilon": np.inf,
            "delta": 1e-5,
            "rounds": 6,
            "eta_growth": growth,
            "positives": 2,
            "rho": 1.0,
        }
    )
    rows = prepare(config, np.full((5, 1), 8000.0), 36).plan_ledger().rows
    priced = [one for one in pricing_events(rows) if isinstance(one, MinimiserGateRelease)]
    assert [bool(np.all(one.sensitivity_over_sigma() > 0)) for one in priced] == [True] * 6


IN_ORDER = [carried(1), carried(2), carried(3)]


@pytest.mark.parametrize(
    "run",
    [
        IN_ORDER,
        [carried(1), carried(1), carried(2), gate(1), gate(2), carried(3)],
        [carried(2), carried(1), carried(3)],
        [carried(1), carried(2), carried(2)],
        [],
    ],
)
@pytest.mark.parametrize("before", [[], [carried(1)], [carried(1), carried(2)], [gate(1)]])
def test_repeated_charges_are_priced_as_charges_one_by_one(
    run: list[Event], before: list[Event]
) -> None:
    """Repeated charges have the prices of single ones, and leave the same rounds behind."""
    together, single = Conditions(), Conditions()
    for event in before:
        together.charge_event(event)
        single.charge_event(event)
    expected = [single.charge_event(event).terms for _ in range(3) for event in run]
    assert [price.terms for price in together.charge_repeatedly(run, 3)] == expected
    for event in [carried(index) for index in (2, 2, 2, 3, 3, 3, 4, 4, 4)] + [gate(2), gate(3)]:
        assert together.charge_event(event).terms == single.charge_event(event).terms


def test_repeated_rounds_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times the same rounds ask for preceding rounds as often as one time."""
    asked = []
    follows = conditions._follows_round

    def counted(event: Event, before: Event) -> bool:
        asked.append(event)
        return follows(event, before)

    monkeypatch.setattr(conditions, "_follows_round", counted)
    Conditions().charge_repeatedly(IN_ORDER, 10)
    assert len(asked) == len(IN_ORDER) - 1
