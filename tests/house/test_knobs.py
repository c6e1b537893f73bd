"""A knob is declared on one field of one method, and everything that takes knobs takes it."""

from __future__ import annotations

from dataclasses import dataclass, fields, make_dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from planting import planted_apart

import sottovoce
from sottovoce import ConsensusClassifier, PrivateClassifier, RunConfig, TrainConfig
from sottovoce.algorithms import KNOBS, REGISTRY, Algorithm, knobs_of, reserved_names
from sottovoce.algorithms.gradient import DGD
from sottovoce.algorithms.knobs import MethodOptions, gather_knobs, knob, knob_paragraphs
from sottovoce.cli.plan import plan
from sottovoce.cli.train import train
from sottovoce.errors import InvalidInput
from sottovoce.util.constraints import Interval

PLANTED = """    decay_rate: float = knob(0.25, "How fast the step decays.", Interval(low=0))
    batches: int ="""
USES = """
import inspect, json
from click.testing import CliRunner
from sottovoce import ConsensusClassifier, PrivateClassifier, RunConfig
from sottovoce.cli import cli
from sottovoce.data.rows import Rows
from sottovoce.runs.simulate import simulate
from sottovoce_papers.studies.kinds import training
import numpy as np

X = np.eye(4)[np.arange(40) % 4] / 2
rows = Rows.build_from_parts([(X, np.where(np.arange(40) % 2, 1.0, -1.0))] * 3)
config = RunConfig.from_dict({"method": "central_sgd", "rounds": 2, "delta": 1e-5, "decay_rate": 0.5})
run = simulate(config, rows)
try:
    RunConfig.from_dict({"method": "central_sgd", "decay_rate": -1.0})
except ValueError as error:
    refused = str(error)
helps = {name: CliRunner().invoke(cli, [name, "--set", "help"]).output for name in ("train", "plan")}
said = CliRunner().invoke(cli, ["plan", "--method", "central_sgd", "--set", "decay_rate=0.75", "--json"]).output
print(json.dumps({
    "algorithm": run.algorithm["decay_rate"],
    "kept": RunConfig.from_dict(config.to_dict()).options.decay_rate,
    "silent": "decay_rate" in RunConfig().to_dict(),
    "refused": refused,
    "helps": ["How fast the step decays" in " ".join(text.split()) for text in helps.values()],
    "plan": json.loads(said)["algorithm"]["decay_rate"],
    "estimators": [
        each(knobs={"decay_rate": 0.125})._collect_run_fields()["decay_rate"]
        for each in (ConsensusClassifier, PrivateClassifier)
    ],
    "study": training._config({"method": "central_sgd", "delta": 1e-5, "decay_rate": 0.5}, rows).options.decay_rate,
    "documented": "decay_rate : float" in ConsensusClassifier.__doc__,
}))
"""


def test_a_planted_knob_is_everywhere_and_one_file_was_touched(tmp_path: Path) -> None:
    old = "    batches: int ="
    imported = "import Count\n"
    edits = {old: PLANTED, imported: "import Count, Interval\n"}
    refusal = "decay_rate=-1.0: must be >= 0; use decay_rate=0.25"  # as PLANTED declares it
    assert planted_apart(tmp_path, "algorithms/gradient.py", edits, USES) == {
        "algorithm": 0.5,
        "kept": 0.5,
        "silent": False,
        "helps": [True, True],
        "plan": 0.75,
        "study": 0.5,
        "refused": refusal,
        "estimators": [0.125, 0.125],
        "documented": True,
    }


def test_two_declarations_of_one_name_that_differ_are_refused() -> None:
    @dataclass(frozen=True)
    class OtherOptions(MethodOptions):
        gamma: float = knob(0.5, "Something else.", Interval(low=0, closed="neither"))

    @dataclass(frozen=True)
    class Other(DGD):
        options: OtherOptions = OtherOptions()  # type: ignore[assignment]

        name: ClassVar[str] = "other"

    with pytest.raises(InvalidInput, match=r"^method='other': .*'gamma'") as refused:
        gather_knobs([*REGISTRY.values(), Other])
    assert refused.value.field == "method" and refused.value.value == "other"


def fields_of(kind: Any) -> set[str]:
    return {one.name for one in fields(kind)}


def test_reserved_names_are_those_of_fields_commands_and_estimators() -> None:
    assert set(reserved_names.FIELDS_OF_RUNS) == fields_of(RunConfig)
    assert set(reserved_names.FIELDS_OF_TRAININGS) == fields_of(TrainConfig)
    assert set(reserved_names.FIELDS_OF_METHODS) == fields_of(Algorithm) | {"name"}
    of_commands = {str(one.name) for command in (train, plan) for one in command.params}
    of_commands |= {key for command in (train, plan) for key in command.parameters_by_key()}
    of_commands |= {
        word.lstrip("-").replace("-", "_")
        for command in (train, plan)
        for one in command.params
        for word in one.opts
    }
    assert set(reserved_names.PARAMETERS_OF_COMMANDS) == of_commands - KNOBS.keys()
    of_estimators: set[str] = set()
    for name in sottovoce.__all__:
        kind = getattr(sottovoce, name)
        if hasattr(kind, "_get_param_names"):
            of_estimators |= {*kind._get_param_names(), *getattr(kind, "own_knobs", {})}
    assert set(reserved_names.PARAMETERS_OF_ESTIMATORS) == of_estimators - KNOBS.keys()


def test_no_knob_has_a_reserved_name() -> None:
    assert not KNOBS.keys() & reserved_names.RESERVED_NAMES


def with_knob(name: str) -> type[Algorithm[Any]]:
    """A method with a knob of this name."""
    made = [(name, float, knob(0.5, "Something else.", Interval(low=0)))]
    own_options: Any = make_dataclass("OwnOptions", made, bases=(MethodOptions,), frozen=True)
    return dataclass(frozen=True)(
        type("Other", (DGD,), {"options": own_options(), "name": "other"})
    )


def test_a_knob_with_a_reserved_name_is_refused() -> None:
    for name in sorted(reserved_names.RESERVED_NAMES):
        with pytest.raises(InvalidInput, match=f"'{name}'") as refused:
            gather_knobs([with_knob(name)])
        assert refused.value.field == "method" and refused.value.value == "other"
    assert "pull" in gather_knobs([with_knob("pull")])


def test_a_knob_of_the_name_of_a_field_takes_no_field_even_where_it_got_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second lock: what a run is priced by stays a field, whatever names the table of knobs
    holds.
    """
    for name in ("copies", "epsilon", "seed", "sites_per_row", "relation"):
        monkeypatch.setitem(KNOBS, name, replace(KNOBS["momentum"], name=name))
    asked = {
        "method": "dgd",
        "epsilon": 0.2,
        "delta": 1e-6,
        "seed": 3,
        "copies": 5,
        "sites_per_row": 3,
        "relation": "zero-out",
    }
    config = RunConfig.from_dict(asked)
    assert config.other_options == () and {name: getattr(config, name) for name in asked} == asked
    assert config.but(rounds=3) == replace(config, rounds=3)
    assert RunConfig.from_record(config.to_dict()) == config
    assert RunConfig.defaults()["copies"] == 1


@pytest.mark.parametrize(
    "epsilon", [Fraction(1, 2), np.array([1.0, 2.0]), [Fraction(1, 2)]], ids=str
)
def test_an_epsilon_that_no_record_can_hold_is_refused(epsilon: Any) -> None:
    for make in (
        lambda: RunConfig("dgd", epsilon),
        lambda: RunConfig.from_dict({"method": "dgd", "epsilon": epsilon}),
    ):
        with pytest.raises(InvalidInput) as refused:
            make()
        assert refused.value.field == "epsilon"


def test_an_option_that_no_method_has_is_refused_where_it_is_given_as_one() -> None:
    with pytest.raises(InvalidInput, match="neither a parameter") as refused:
        RunConfig("dgd", delta=1e-5, other_options=(("momentun", 0.5),))
    assert refused.value.field == "momentun"


@pytest.mark.parametrize("name", sorted(KNOBS))
def test_every_default_obeys_its_rule_and_is_the_one_that_methods_have(name: str) -> None:
    one = KNOBS[name]
    assert one.constraint.is_satisfied_by(one.default)
    assert RunConfig.defaults()[name] == one.default
    for method in (cls for cls in REGISTRY.values() if name in knobs_of(cls.options)):
        assert getattr(method.options, name) == one.default
    for estimator in (ConsensusClassifier, PrivateClassifier):
        assert (name in estimator.own_knobs) == one.offered
    assert (knob_paragraphs([one]) in (ConsensusClassifier.__doc__ or "")) == one.offered


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("gamma", (-1.0, np.nan, np.inf, "a", True)),
        ("phi", (-0.1, np.nan)),
        ("law", ("laplace", 1.0)),
        ("batches", (0, 251, 2.5)),
        ("positives", (0, 1.5, True)),
        ("threshold", (np.nan, np.inf)),
        ("clip", (0.0, 1e9)),
        ("test_sensitivity", ("other", 1.0)),
        ("zeta", ("half", 1.0)),
        ("split", (0.0, 1.0)),
        ("tolerance", (0.0, 1e9)),
    ],
)
def test_values_that_break_the_rule_are_refused_by_methods_and_configurations(
    name: str, wrong: tuple[object]
) -> None:
    method = next(m for m, cls in REGISTRY.items() if name in knobs_of(cls.options))
    form = {"form": "printed"} if KNOBS[name].form == "printed" else {}
    for value in wrong:
        with pytest.raises(InvalidInput, match=f"^{name}="):
            replace(REGISTRY[method].options, **{name: value})
        with pytest.raises(InvalidInput, match=f"^{name}="):
            RunConfig.from_dict({"method": method, "delta": 1e-5, **form, **{name: value}})


def test_an_unknown_knob_is_refused_as_python_does() -> None:
    for kind in (ConsensusClassifier, PrivateClassifier, RunConfig):
        with pytest.raises(TypeError, match="gama"):
            kind(gama=0.1)
