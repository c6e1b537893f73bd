"""Recipes are methods: planned, priced, kept, resumed and lost as these are, all of their rounds
or none.
"""

from __future__ import annotations

import math
import pkgutil
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import sottovoce.answers
from sottovoce.algorithms import ANSWERS, REGISTRY, Recipe
from sottovoce.algorithms.items import Item, Script
from sottovoce.answers.inference import newton_from_naming
from sottovoce.answers.terms import naming_from_columns
from sottovoce.data.rows import Rows
from sottovoce.errors import AttemptLost, BudgetExceeded, CheckpointError, InvalidInput
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.memory import Ledger
from sottovoce.network.graphs import make_graph
from sottovoce.network.net import DenseNet
from sottovoce.privacy.accountants import make_accountant
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.facts import Among, Facts
from sottovoce.problem.losses import Logistic
from sottovoce.problem.schedules import Schedule
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.queries import Gradient, SecondMoments
from sottovoce.runs import calibration, engine
from sottovoce.runs.config import RunConfig
from sottovoce.runs.engine import Place
from sottovoce.runs.prepare import prepare
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import Result, simulate

N, D = 4, 3


@dataclass(frozen=True)
class Descent(Recipe):
    """Second moments, then gradients at points that follow from the gradients before."""

    step: float = field(kw_only=True)
    name: ClassVar[str] = "once"
    summary: ClassVar[str] = "a recipe of this test"

    @property
    def items(self) -> tuple[Item, ...]:
        return (
            Item("second moments", SecondMoments, 0.1),
            *(Item(f"gradient {k}", Gradient, 0.3) for k in range(3)),
        )

    def script(self, facts: Facts, replicates: int) -> Script:
        w = np.zeros((replicates, facts.d))
        moments = yield SecondMoments(w)
        for _ in range(3):
            gradient = yield Gradient(w)
            w = w - self.step / moments.value[:, :1] * gradient.value
        return w


METHOD = Descent(step=0.5)


def rows(sizes: tuple[int, ...] = (60, 40, 50, 70)) -> Rows:
    rng = np.random.default_rng(0)
    parts = []
    for n in sizes:
        X = rng.normal(size=(n, D))
        X /= np.linalg.norm(X, axis=1, keepdims=True) * (1.0 + 1e-9)
        parts.append((X, np.where(X[:, 0] > 0, 1.0, -1.0)))
    return Rows.build_from_parts(parts)


def config(**more: Any) -> RunConfig:
    return RunConfig.from_dict(
        {"method": "auto", "epsilon": 2.0, "delta": 1e-5, "trust": "sum", "seed": 1} | more
    )


def asked(of: RunConfig, method: Recipe = METHOD, **more: Any) -> Result:
    return simulate(of, rows(), method=method, **more)


def test_every_recipe_has_a_name_that_records_know() -> None:
    names = [module.name for module in pkgutil.iter_modules(sottovoce.answers.__path__)]
    modules = [import_module(f"sottovoce.answers.{name}") for name in names]
    modules += [
        import_module("sottovoce.estimators.components"),
        import_module("sottovoce.algorithms.once"),
    ]
    found = {
        one
        for module in modules
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Recipe)
    }
    named = {cls.name for cls in found if hasattr(cls, "name")}
    assert sorted(named) == sorted(ANSWERS) and not REGISTRY.keys() & set(ANSWERS)


@pytest.mark.parametrize("trust", ["nobody", "sum", "curator"])
def test_the_plan_is_the_ledger_that_the_run_leaves(trust: str) -> None:
    of = config(trust=trust)
    prepared, result = prepare(of, rows().n, D, method=METHOD), asked(of)
    assert [event.to_dict() for event in prepared.plan_ledger().rows] == result.ledger and len(
        result.ledger
    ) == 4
    assert 1.999 < result.statement.epsilon <= 2.0 and result.statement.trust.kind == trust
    assert (
        result.config.method == "once"
        and result.config.rounds == 4
        and result.stopped == "finished"
    )
    for i in range(len(prepared.facts.n)):
        for whole, own in zip(
            prepared.plan_ledger().rows, prepared.plan_ledger(node=i).rows, strict=True
        ):
            np.testing.assert_array_equal(
                np.asarray(whole.noise_standard_deviation())[i],
                np.asarray(own.noise_standard_deviation()).ravel()[0],
            )


def test_without_noise_it_is_the_script_on_exact_sums() -> None:
    result, held = asked(config(epsilon=math.inf)), rows()
    signed = np.concatenate([np.asarray(held.signed)[i, : int(held.n[i, 0])] for i in range(N)])
    S, w = signed.T @ signed / len(signed), np.zeros(D)
    for _ in range(3):
        w = w + 0.5 / S[0, 0] * (signed.T @ (1.0 / (1.0 + np.exp(signed @ w)))) / len(signed)
    np.testing.assert_allclose(result.outcome[0], w, rtol=1e-9)


def test_all_rounds_are_affordable_or_none_is_begun() -> None:
    """Noise that was calibrated before: a budget that covers three of four rounds is refused
    before the first.
    """
    given = METHOD.with_noise(prepare(config(), rows().n, D, method=METHOD).algorithm.noise)
    assert asked(config(), given).ledger == asked(config()).ledger
    with pytest.raises(InvalidInput, match=r"^epsilon=1\.8: .*run costs 2"):
        asked(config(epsilon=1.8), given)
    three = Ledger(make_accountant("best"), math.inf, 1e-5)
    for event in prepare(config(), rows().n, D, method=given).plan_ledger(3).rows:
        three.record_event(event)
    assert three.total() < 1.8


def test_a_scale_that_was_found_is_not_searched_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    of = config(epsilon=1.234, seed=2)
    first = asked(of)
    monkeypatch.setattr(calibration, "calibrate", lambda *_, **__: pytest.fail("searched again"))
    again = asked(replace(of, seed=3))
    assert again.algorithm["noise"] == first.algorithm["noise"]
    with pytest.raises(pytest.fail.Exception):
        asked(replace(of, epsilon=1.235))


class Killed(Exception):
    """An interrupted process."""


def after(round: int) -> Any:
    def observe(k: int, state: Any) -> None:
        if k == round:
            raise Killed

    return observe


@pytest.mark.parametrize("trust", ["nobody", "sum"])
def test_a_checkpoint_goes_on_with_the_same_bits(tmp_path: Path, trust: str) -> None:
    of, path = config(trust=trust, replicates=3), tmp_path / "c"
    whole = asked(of)
    with pytest.raises(Killed):
        asked(of, observers=[after(2)], checkpoint=path)
    np.testing.assert_array_equal(asked(of, checkpoint=path).outcome, whole.outcome)
    with pytest.raises(CheckpointError, match="another configuration"):
        asked(of, Descent(step=0.25), checkpoint=path)


@pytest.mark.parametrize("trust", ["nobody", "sum"])
def test_a_killed_run_goes_on_from_its_ledger(tmp_path: Path, trust: str) -> None:
    of = config(trust=trust)
    with DurableLedger.create(
        tmp_path / "l", epsilon=9.0, delta=1e-5, accountant="zcdp", n_nodes=N
    ) as book:
        with pytest.raises(Killed):
            asked(of, ledger=book, observers=[after(2)])
        assert len(book.rows) == 2
        result = asked(of, ledger=book)
        assert len(book.rows) == 4 and len(book.runs) == 1 and result.statement.ledger is not None
        np.testing.assert_array_equal(result.outcome, asked(of).outcome)


def test_shared_budget_pays_for_the_whole_recipe_or_refuses_it() -> None:
    shared = Ledger("zcdp", 3.0, 1e-5)
    asked(config(), ledger=shared)
    before = shared.total()
    with pytest.raises(BudgetExceeded):
        asked(config(seed=2), ledger=shared)
    assert shared.total() == before > 1.0


class Loses(DenseNet):
    """A net in which the share of one site is missing in the third attempt."""

    opened = 0

    def total(self, sealed: Any) -> Any:
        self.opened += 1
        if self.opened == 3:
            raise AttemptLost("attempt 3: a share is missing")
        return super().total(sealed)


def test_a_lost_attempt_ends_a_run_that_needs_all_rounds() -> None:
    prepared, held = prepare(config(), rows().n, D, method=METHOD), rows()
    guard = RowGuard(held, prepared.facts, KeyedNoise(1, range(1), range(N)), prepared.ledger)
    place = Place(prepared.facts, Loses(make_graph("complete", N)), guard, (1, N), D)
    ended = engine.run_rounds(prepared.algorithm, place, 4)
    assert (ended.stopped, ended.rounds) == (engine.FEW, 2) and len(prepared.ledger.rows) == 3


def test_a_saved_run_is_read_again(tmp_path: Path) -> None:
    naming = naming_from_columns(["a", "b"], 1.0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    held = naming.rows_of_sites(
        [(X[p], np.where(X[p, 0] > 0, 1.0, -1.0)) for p in np.array_split(np.arange(300), 3)]
    )
    result = simulate(config(), held, method=newton_from_naming(naming), loss=Weighted(Logistic()))
    result.save(tmp_path / "run.npz")
    again = Result.load(tmp_path / "run.npz")
    assert (
        again.config == result.config
        and again.facts.loss == Weighted(Logistic())
        and again.outcome is None
    )
    assert (
        again.statement == result.statement
        and again.algorithm["public"] == result.algorithm["public"]
    )
    with pytest.raises(InvalidInput, match="trained no model"):
        _ = again.consensus


def test_a_site_knows_the_noise_of_the_whole() -> None:
    """In local trust the noise of a mean depends on all sites' sizes, and in a sum on who took
    part.
    """
    for trust in ("nobody", "sum"):
        prepared = prepare(config(trust=trust), rows().n, D, method=METHOD)
        facts, method = prepared.facts, prepared.algorithm
        assert isinstance(method, Recipe)
        some = [Among.all_sites(facts), Among(160.0, 3)][: 1 + (trust == "sum")]
        for among in some:
            assert (
                method.method_of_node(2).releases_with_noise.noise_deviation(
                    1, facts.facts_of_node(2), among
                )
                == method.releases_with_noise.noise_deviation(1, facts, among)
                > 0.0
            )


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"noise": 0.5}, r"^noise=0\.5"),
        ({"delta": None, "epsilon": 1.0}, "^delta: .*no pure epsilon"),
        ({"epsilon": (1.0,) * N, "trust": "nobody"}, "^epsilon=.*one epsilon"),
        (
            {"method": "dvp", "form": "printed", "delta": None, "trust": "nobody"},
            "^form='printed'",
        ),
    ],
)
def test_fields_that_recipes_cannot_have_are_refused(more: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        asked(config(**more))


def test_a_recipe_s_name_is_no_method_to_run() -> None:
    with pytest.raises(InvalidInput, match=r"^method='newton'"):
        simulate(RunConfig(method="newton", delta=1e-5, rounds=9), rows())


def test_only_what_answers_use_is_kept_of_a_configuration() -> None:
    run = RunConfig.from_dict(
        {
            "method": "sum_momentum",
            "epsilon": 1.0,
            "delta": 1e-5,
            "rounds": 77,
            "rho": 0.5,
            "C": 3.0,
            "eta": 0.1,
            "max_grad_norm": 0.2,
            "momentum": 0.5,
            "noise": Schedule(0.1),
            "colluders": 2,
            "relation": "zero-out",
            "sites_per_row": 2,
            "accountant": "zcdp",
            "seed": 8,
        }
    )
    own = run.for_recipe(METHOD)
    kept = RunConfig(
        method="once",
        epsilon=1.0,
        delta=1e-5,
        rounds=4,
        graph="complete",
        trust="sum",
        colluders=2,
        relation="zero-out",
        sites_per_row=2,
        accountant="zcdp",
        seed=8,
    )
    assert own == kept == own.for_recipe(METHOD) and RunConfig.from_dict(own.to_dict()) == own


def test_script_is_replayed_only_after_a_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began, script = [], Descent.script

    def counting(self: Descent, facts: Facts, replicates: int) -> Script:
        began.append(1)
        return (yield from script(self, facts, replicates))

    monkeypatch.setattr(Descent, "script", counting)
    states: list[Any] = []
    whole = asked(config(), observers=[lambda k, state: states.append(state)])
    assert len(began) == 1
    prepared = prepare(config(), rows().n, D, method=METHOD)
    for _ in range(2):  # the state alone is enough, as often as one likes
        np.testing.assert_array_equal(
            prepared.algorithm.outcome(states[-1], prepared.facts), whole.outcome
        )
    assert len(began) == 3
