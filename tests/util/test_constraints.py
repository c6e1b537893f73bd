"""Constraints of fields: what they hold for, and that everything wrong is told at once."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from sottovoce import RunConfig, TrainConfig
from sottovoce.algorithms.momentum import MomentumOptions
from sottovoce.algorithms.mr_admm import MRADMMOptions
from sottovoce.errors import InvalidInput, SchemaError
from sottovoce.util.constraints import (
    AnyOf,
    Both,
    Constraint,
    Count,
    Each,
    Flag,
    Instance,
    Interval,
    Nothing,
    OneOf,
    Pattern,
    PerNode,
    Text,
    UsableSize,
    constrained_field,
    optional_constraint,
    validate_fields_and_rules,
)


@pytest.mark.parametrize(
    ("constraint", "kept", "broken"),
    [
        (Text(), ("", "ring"), (1, None, b"ring")),
        (Pattern("[0-9a-f]{2}", "two digits"), ("0f",), ("0F", "0f0", 15)),
        (Flag(), (True, False), (1, "yes", None)),
        (Nothing(), (None,), (0, "")),
        (Instance(list), ([],), ((), "a")),
        (OneOf("a", "b"), ("a", "b"), ("c", ["a"], 1)),
        (Count(), (1, np.int64(3), 10**20), (0, True, 1.0, 10**200, math.nan)),
        (Count(least=0, most=5), (0, 5), (-1, 6)),
        (Interval(), (0, -1e300, math.inf), (math.nan, "0", True, None, 10**400)),
        (Interval(0, 1), (0, 1, np.float32(0.5)), (-0.1, 1.1)),
        (Interval(0, 1, closed="low"), (0, 0.5), (1,)),
        (Interval(0, 1, closed="high"), (1, 0.5), (0,)),
        (Interval(0, 1, closed="neither"), (0.5,), (0, 1)),
        (Interval(closed="neither"), (0.0,), (math.inf, -math.inf)),
        (AnyOf(Count(), Text()), (1, "a"), (0, None)),
        (Both(Interval(), UsableSize()), (0, 1e-100, 1e100, math.inf), (1e-101, -1e101, math.nan)),
        (PerNode(Interval(low=0)), (1.0, (1.0, 0.0)), (-1.0, (1.0, -1.0), [1.0])),
        (Each(Count()), ((), (1, 2)), (1, (1, 0), [1])),
    ],
    ids=str,
)
def test_constraint_accepts_valid_values_and_rejects_others(
    constraint: Constraint, kept: tuple[object, ...], broken: tuple[object, ...]
) -> None:
    assert all(constraint.is_satisfied_by(value) for value in kept)
    assert not any(constraint.is_satisfied_by(value) for value in broken)
    assert all(constraint.broken_rule_text(value).startswith("must ") for value in broken)
    assert constraint == pickle.loads(pickle.dumps(constraint))


def test_broken_rule_names_the_option_that_concerns_the_value() -> None:
    weight = optional_constraint(
        PerNode(Interval(low=0, closed="neither", why="it weighs the data"))
    )
    bounds, reason = weight.broken_rule_text(-1.0).split(", because ")
    assert bounds.endswith("finite and > 0") and reason == "it weighs the data"
    assert weight.broken_rule_text((1.0, -1.0)) == weight.broken_rule_text(-1.0)
    assert "tuple" in weight.broken_rule_text("heavy") and "None" in weight.broken_rule_text(
        "heavy"
    )


def low_is_below_high(pair: Pair) -> Iterator[InvalidInput]:
    if pair.low > pair.high:
        yield InvalidInput("low", pair.low, "must not be above high", "lower it")


def names_differ(pair: Pair) -> Iterator[InvalidInput]:
    if pair.name == "low":
        yield InvalidInput("name", pair.name, "is the name of a field", "use another")


@dataclass(frozen=True)
class Pair:
    low: float = constrained_field(0.0, Interval(closed="neither"))
    high: float = constrained_field(1.0, Interval(closed="neither"), remedy="give a number")
    name: str = constrained_field("pair", Text())

    def __post_init__(self) -> None:
        validate_fields_and_rules(self, (low_is_below_high, names_differ))


def test_everything_wrong_is_in_one_error() -> None:
    with pytest.raises(InvalidInput) as caught:
        Pair(low=math.inf, high="much", name="low")  # type: ignore[arg-type]
    error = caught.value
    assert (error.field, error.value) == ("low", math.inf) and error.remedy.endswith(" 0.0")
    assert [(other.field, other.remedy) for other in error.others] == [("high", "give a number")]
    assert str(error).count("\n") == 0 and all(
        text in str(error) for text in ("low=inf", "high='much'")
    )
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and again.others[0].field == "high"


def test_rules_over_several_fields_are_collected_once_each_field_is_sound() -> None:
    with pytest.raises(InvalidInput) as caught:
        Pair(low=2.0, high=1.0, name="low")
    assert [caught.value.field, *(other.field for other in caught.value.others)] == ["low", "name"]


def test_broken_constraint_raises_the_given_class_of_error() -> None:
    with pytest.raises(SchemaError) as caught:
        validate_fields_and_rules(Unchecked("a"), error=SchemaError)
    assert caught.value.field == "rows"


@dataclass(frozen=True)
class Unchecked:
    rows: object = constrained_field(1, Count())


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"rounds": 0, "seed": -1, "rho": 0.0}, {"rounds", "seed", "rho"}),
        ({"method": "admm", "epsilon": 1.0, "noise": 1.0}, {"epsilon", "noise"}),
        (
            {"method": "dvp", "form": "printed", "seed": None, "replicates": 2},
            {"form", "replicates"},
        ),
        (
            {"method": "sum_momentum", "graph": "star", "epsilon": (1.0, 2.0)},
            {"graph", "epsilon", "delta"},
        ),
    ],
)
def test_a_configuration_names_all_that_is_wrong(wrong: dict[str, object], named: set[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        RunConfig.from_dict(wrong)
    assert {caught.value.field, *(other.field for other in caught.value.others)} == named


def test_the_configuration_of_a_training_names_all_that_is_wrong() -> None:
    with pytest.raises(InvalidInput) as caught:
        TrainConfig(strength=-1.0, dropout=1.0, nodes=0)
    assert {caught.value.field, *(other.field for other in caught.value.others)} == {
        "strength",
        "dropout",
        "nodes",
    }


def test_options_of_the_method_are_taken_by_name_and_others_are_kept_for_another_method() -> None:
    config = RunConfig.from_dict(
        {"method": "momentum", "delta": 1e-5, "momentum": 0.9, "gamma": 0.3}
    )
    assert config.options == MomentumOptions(momentum=0.9) and config.other_options == (
        ("gamma", 0.3),
    )
    other = config.but(method="mr_admm", delta=None, gamma=0.4)
    assert other.options == MRADMMOptions(gamma=0.4) and other.other_options == (("momentum", 0.9),)
    assert RunConfig.from_dict(other.to_dict()) == other
    assert RunConfig("momentum", delta=1e-5, options=MomentumOptions(momentum=0.9)) == config.but(
        gamma=0.1
    )


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"momentum": 1.0, "gamma": -1.0, "rounds": 0}, {"momentum", "gamma", "rounds"}),
        ({"gama": 0.1, "rond": 3}, {"gama", "rond"}),
        ({"method": "mr_admm", "max_grad_norm": 0.5}, {"max_grad_norm"}),
        ({"method": "dvp", "clip": 2.0}, {"clip"}),
    ],
)
def test_unknown_options_are_refused_immediately(wrong: dict[str, object], named: set[str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        RunConfig.from_dict(wrong)
    assert {caught.value.field, *(other.field for other in caught.value.others)} == named


def test_options_of_another_method_are_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        RunConfig("momentum", delta=1e-5, options=MRADMMOptions())
    assert caught.value.field == "options"
