"""A method that another module brings is run, priced, audited and offered as those of the
package.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module, reload
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import warm
from click.testing import CliRunner
from problems import unlike_sites

import sottovoce
from sottovoce.algorithms import KNOWN, METHODS, NAMES, REGISTRY, Node
from sottovoce.algorithms.gradient import DGD
from sottovoce.algorithms.knobs import MethodOptions, knob
from sottovoce.audit import ADVERSARIES, densities, make_case
from sottovoce.audit.game import record_transcripts
from sottovoce.cli import cli
from sottovoce.data.rows import Rows
from sottovoce.deploy import run_sites
from sottovoce.errors import InvalidInput
from sottovoce.privacy.gaussian import gaussian_mu
from sottovoce.problem.trust import Trust
from sottovoce.queries import NoisyGradient, NoisyMinimiser, PerturbedObjective
from sottovoce.runs.prepare import prepare
from sottovoce.runs.pricing import RunSetting, plan_ledger
from sottovoce.runs.registering import AUDITED, unregister
from sottovoce.runs.simulate import RunConfig, pooled_minimiser, simulate
from sottovoce.util.constraints import Interval


@pytest.fixture
def extra() -> Iterator[str]:
    """The name of the method of `outside`, for one test."""
    sys.modules.pop("outside", None)
    import_module("outside")
    yield "extra"
    unregister("extra")


def test_it_ends_at_the_pooled_minimiser(extra: str) -> None:
    rows, config = unlike_sites(), RunConfig(method=extra, epsilon=math.inf, rounds=2000, rho=0.1)
    wanted = pooled_minimiser(rows, config, l2=0.1 / 5)
    np.testing.assert_allclose(
        simulate(config, rows).models[0], np.broadcast_to(wanted, (5, 3)), atol=1e-6
    )


def test_its_price_is_that_of_its_releases_and_meets_the_budget(extra: str, rows: Rows) -> None:
    config = RunConfig(method=extra, epsilon=1.0, delta=1e-5, rounds=6)
    ledger = prepare(config, rows.n, rows.d).plan_ledger().rows
    mu = np.sqrt(sum((row.sensitivity / row.sigma) ** 2 for row in ledger))  # type: ignore[attr-defined]
    assert np.all(mu <= gaussian_mu(1.0, 1e-5)) and np.all(mu > 0.999 * gaussian_mu(1.0, 1e-5))
    result = simulate(config, rows)
    assert (
        result.ledger == [row.to_dict() for row in ledger]
        and 0.999 < result.statement.epsilon <= 1.0
    )
    for i, (outcome, own) in enumerate(run_sites(config, rows)):
        np.testing.assert_allclose(outcome.state.f, result.models[0, i], atol=1e-9)
        assert float(np.max(own.per_node())) == pytest.approx(
            result.privacy["per_node"][i], rel=1e-12
        )


@pytest.mark.parametrize("delta", [None, 1e-5])
def test_its_worst_pair_comes_near_the_price_and_never_above(
    extra: str, delta: float | None
) -> None:
    case = make_case(extra, rounds=1, delta=delta)
    exact, proved = (
        densities(case).epsilon_at_delta(delta or 0.0),
        record_transcripts(case, 0, 2, 0).proved,
    )
    assert 0.9 * proved <= exact <= proved * (1 + 1e-6)


def test_command_line_offers_registered_method(extra: str) -> None:
    planned = CliRunner().invoke(
        cli, ["plan", "--method", extra, "--epsilon", "2", "--rounds", "3", "--json"]
    )
    assert json.loads(planned.output)["algorithm"]["name"] == extra
    listed = json.loads(CliRunner().invoke(cli, ["methods", "--json"]).output)
    assert extra in [one["name"] for one in listed]
    audited = CliRunner().invoke(cli, ["audit", extra, "--replicates", "500", "--json"])
    assert audited.exit_code == 0, audited.output


def test_a_new_process_trains_with_it(tmp_path: Path) -> None:
    words = [
        "train",
        "--data",
        "synthetic:n=400,d=3",
        "--nodes",
        "3",
        "--method",
        "extra",
        "--rounds",
        "2",
        "--json",
    ]
    code = f"import outside; from sottovoce.cli import main; main({words!r})"
    ran = warm.run(["-c", code], cwd=Path(__file__).parent)
    assert json.loads(ran.stdout)["algorithm"]["name"] == "extra"


def test_unregistering_leaves_no_trace() -> None:
    before = list(METHODS), list(NAMES), dict(REGISTRY), dict(KNOWN)
    sys.modules.pop("outside", None)
    first = import_module("outside").Extra
    found = reload(import_module("outside")).Extra  # as a cell of a notebook that runs again
    assert first is not found is REGISTRY["extra"]
    assert sottovoce.register(found) is found and [one.name for one in METHODS].count("extra") == 1
    unregister("extra")
    assert before == (METHODS, NAMES, REGISTRY, KNOWN)
    with pytest.raises(InvalidInput, match=r"^method='extra'"):
        RunConfig(method="extra")


def test_registering_refuses_non_methods_and_clashes() -> None:
    def another() -> type:
        @dataclass(frozen=True)
        class Other(DGD):
            name: ClassVar[str] = "other_steps"

        return Other

    @dataclass(frozen=True)
    class Twin(DGD):
        name: ClassVar[str] = "momentum"

    @dataclass(frozen=True)
    class OwnOptions(MethodOptions):
        own: float = knob(0.5, "Something of its own.", Interval(low=0, closed="neither"))

    @dataclass(frozen=True)
    class Knobbed(DGD):
        options: OwnOptions = OwnOptions()  # type: ignore[assignment]
        name: ClassVar[str] = "knobbed"

    @dataclass(frozen=True)
    class Silent(DGD):
        name: ClassVar[str] = None  # type: ignore[assignment]

    sottovoce.register(another())
    clash = another()
    clash.__qualname__ = "elsewhere"
    with pytest.raises(InvalidInput, match=r"^method='other_steps': .*taken"):
        sottovoce.register(clash)
    unregister("other_steps")
    refused = {
        "taken": Twin,
        "new options own": Knobbed,
        "lacks": Silent,
        "must be a subclass": dict,
    }
    for rule, wrong in refused.items():
        with pytest.raises(InvalidInput, match=rule):
            sottovoce.register(wrong)  # type: ignore[type-var]
    for name in ("dgd", "nothing"):
        with pytest.raises(InvalidInput, match=rf"^method='{name}': .*registered"):
            unregister(name)


def test_a_trust_of_its_own_is_refused() -> None:
    """A statement would say of the adversary what nobody has proved."""

    @dataclass(frozen=True)
    class Trusting(DGD):
        name: ClassVar[str] = "trusting"
        trust: ClassVar[Trust] = Trust("nobody", sees="only the final answer")

    with pytest.raises(InvalidInput, match="trust of its") as refused:
        sottovoce.register(Trusting)
    assert refused.value.value == "trusting" and "trusting" not in REGISTRY


def test_names_that_audits_have_are_refused() -> None:
    assert set(AUDITED) == {"all", *ADVERSARIES}
    for taken in AUDITED:

        @dataclass(frozen=True)
        class Named(DGD):
            name: ClassVar[str] = taken

        with pytest.raises(InvalidInput, match=f"^method='{taken}': .*another meaning"):
            sottovoce.register(Named)


def test_options_that_are_no_knobs_are_refused() -> None:
    @dataclass(frozen=True)
    class Undeclared(MethodOptions):
        pull: float = 0.5

    @dataclass(frozen=True)
    class Unreadable(MethodOptions):
        pull: float | None = knob(0.5, "Something of its own.", Interval(low=0))

    for own in (Undeclared(), Unreadable(), 5):

        @dataclass(frozen=True)
        class Optional(DGD):
            options: Any = own
            name: ClassVar[str] = "optional"

        with pytest.raises(InvalidInput, match="options") as refused:
            sottovoce.register(Optional)
        assert refused.value.field == "method"


CELLS = """
import json, sys
from dataclasses import dataclass, make_dataclass
import sottovoce
from sottovoce import RunConfig
from sottovoce.algorithms import KNOBS
from sottovoce.algorithms.gradient import DGD
from sottovoce.algorithms.knobs import CappedOptions, knob
from sottovoce.errors import InvalidInput
from sottovoce.runs.registering import unregister
from sottovoce.util.constraints import Interval

def cell(high, **knobs):
    made = [(name, float, knob(value, "x", Interval(0, high))) for name, value in knobs.items()]
    options = make_dataclass("Options", made, bases=(CappedOptions,), frozen=True)
    method = dataclass(frozen=True)(type("Mine", (DGD,), {"options": options(), "name": "mine"}))
    method.__qualname__ = "Mine"
    return sottovoce.register(method)

before, said = set(KNOBS), {}
cell(1.0, pull=0.9)
cell(10.0, pull=0.5)
config = RunConfig.from_dict({"method": "mine", "delta": 1e-5, "pull": 5.0})
said["second"] = RunConfig.from_dict({"method": "mine", "delta": 1e-5}).options.pull
said["kept"] = RunConfig.from_record(config.to_dict()) == config == config.but(rounds=config.rounds)
try:
    cell(1.0, copies=0.5)
except InvalidInput:
    said["still there"] = RunConfig.from_dict({"method": "mine", "delta": 1e-5}).options.pull
cell(1.0, push=0.5)
said["dropped"] = "pull" not in KNOBS and "push" in KNOBS
unregister("mine")
said["none left"] = set(KNOBS) == before
cell(1.0, push=0.5)
import sottovoce.cli.run_options
unregister("mine")
said["offered"] = "push" in KNOBS  # by the commands, which have read it
said["plans"] = RunConfig.from_dict({"method": "dgd", "delta": 1e-5, "push": 0.5}).method
try:
    cell(1.0, push=0.7)
except InvalidInput as error:
    said["late"] = error.field
print(json.dumps(said))
"""


def test_a_class_that_is_defined_again_brings_its_own_knobs_and_takes_the_old_ones_away() -> None:
    ran = warm.run(["-c", CELLS])
    assert json.loads(ran.stdout) == {
        "second": 0.5,
        "kept": True,
        "still there": 0.5,
        "dropped": True,
        "none left": True,
        "offered": True,
        "plans": "dgd",
        "late": "method",
    }


def test_a_knob_of_its_own_is_taken_before_configurations_are_made() -> None:
    code = """
import sottovoce
from dataclasses import dataclass
from typing import ClassVar
from sottovoce.algorithms.gradient import DGD
from sottovoce.algorithms.knobs import MethodOptions, knob
from sottovoce.util.constraints import Interval

@dataclass(frozen=True)
class OwnOptions(MethodOptions):
    own: float = knob(0.5, "Something of its own.", Interval(low=0, closed="neither"))

@sottovoce.register
@dataclass(frozen=True)
class Knobbed(DGD):
    options: OwnOptions = OwnOptions()
    name: ClassVar[str] = "knobbed"

from sottovoce.cli import main
main(["plan", "--method", "knobbed", "--set", "own=0.75", "--json"])
"""
    ran = warm.run(["-c", code])
    assert json.loads(ran.stdout)["algorithm"]["own"] == 0.75


def test_a_message_of_two_vectors_is_refused_in_the_plan(rows: Rows) -> None:
    """Between sites it was refused after the first release was paid for."""

    class Pair(DGD):
        name = "pair"

        def round(self, k: int, state: Any, node: Node) -> Any:
            answer = node.ask(NoisyGradient(state.f, None, "noisy gradient"))
            both = node.mix(np.concatenate([state.f, answer], axis=-1))
            return state._replace(f=both[..., : answer.shape[-1]])

    config = RunConfig("dgd", math.inf, rounds=2)
    prepared = prepare(config, rows.n, rows.d)
    method = Pair(prepared.algorithm.penalty, None)
    setting = RunSetting(prepared.facts, prepared.graph, 2, prepared.ledger.accountant)
    with pytest.raises(InvalidInput, match=r"^method='pair': sends 2 .* one vector"):
        plan_ledger(method, setting)


def test_the_variant_of_the_guide_is_a_method_that_is_audited_on_its_parents_pair() -> None:
    """The Python of docs/howto/extend.md on a variant, as it stands there, and both signatures."""
    page = Path(__file__).parents[2] / "docs" / "howto" / "extend.md"
    text = page.read_text(encoding="utf-8")
    _, _, guide = text.partition("A variant derives from its method")
    (code,) = re.findall(r"```python\n(.*?)```", guide.partition("\n## ")[0], re.S)
    exec(compile(code, "a variant", "exec"), {"__name__": "a_module_of_ones_own"})
    try:
        config = RunConfig(method="firm_pp_admm", epsilon=1.0, delta=1e-5, rounds=2)
        assert simulate(config, unlike_sites()).statement.epsilon <= 1.0
        assert "that of pp_admm" in make_case("firm_pp_admm", "printed").why
    finally:
        unregister("firm_pp_admm")
    for query in (NoisyMinimiser, PerturbedObjective):
        (fields,) = re.findall(rf"`{query.__name__}\((.*?)\)`", text)
        assert fields.split(", ") == list(signature(query).parameters)[: fields.count(",") + 1]
