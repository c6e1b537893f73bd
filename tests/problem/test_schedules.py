"""Schedules: closed forms, per-node shapes, round trips."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from sottovoce.errors import InvalidInput
from sottovoce.problem.schedules import Schedule

SCHEDULES = [
    Schedule(2.0, 1.5),
    Schedule((1.0, 2.0, 4.0), (1.01, 1.0, 1.2)),
    Schedule(table=(1.0, 2.0, 2.0)),
    Schedule(table=((1.0, 3.0, 2.0), (2.0, 3.0, 2.0))).scaled(0.25),
]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_round_trip_through_json(schedule: Schedule) -> None:
    assert Schedule.from_dict(json.loads(json.dumps(schedule.to_dict()))) == schedule


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedule_of_node_holds_its_own_values(schedule: Schedule) -> None:
    for k in (1, 2, 5):
        everyone = np.broadcast_to(schedule(k), (3, 1))
        for i in range(3):
            assert schedule.schedule_of_node(i)(k) == everyone[i, 0]


def test_values() -> None:
    assert Schedule(2.0, 1.5)(3) == 2.0 * 1.5**2
    assert Schedule(table=(1.0, 2.0))(7) == 2.0
    assert Schedule((1.0, 2.0)).scaled(3.0)(1).shape == (2, 1)
    assert Schedule.from_value([1.0, 2.0])(1)[1, 0] == 2.0


def test_properties() -> None:
    assert (
        Schedule(2.0).is_constant
        and not Schedule(2.0, 1.1).is_constant
        and not Schedule((1.0, 2.0)).is_constant
    )
    assert Schedule(table=(1.0, 1.0)).is_constant
    assert Schedule(1.0, 1.01).non_decreasing and not Schedule(1.0, (1.0, 0.9)).non_decreasing
    assert not Schedule(table=((1.0, 2.0), (2.0, 1.9))).non_decreasing


@pytest.mark.parametrize(
    "bad",
    [
        {"start": True},
        {"start": "1"},
        {"growth": None},
        {"factor": (1.0, False)},
        {"table": ((1.0, "2"),)},
        {"start": Fraction(1, 2)},
        {"table": "12"},
    ],
)
def test_values_that_are_no_numbers_are_refused(bad: dict) -> None:
    with pytest.raises(InvalidInput, match="a number") as refused:
        Schedule(**bad)
    assert refused.value.field == next(iter(bad))


@pytest.mark.parametrize(
    "good", [1, np.float32(0.5), np.int64(2), (1, np.float64(0.5)), np.array([1.0, 2.0])]
)
def test_numbers_of_all_kinds_are_taken(good: object) -> None:
    assert np.all(Schedule(good)(1) > 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad", [{"start": 0.0}, {"start": (1.0, -1.0)}, {"growth": np.nan}, {"table": ()}]
)
def test_non_positive_values_are_refused(bad: dict) -> None:
    with pytest.raises(InvalidInput):
        Schedule(**bad)
