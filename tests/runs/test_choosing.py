"""``method="auto"``: a choice sees public facts only, can be repeated, keeps what it is given, and says why."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sottovoce import ConsensusClassifier, PrivateClassifier
from sottovoce.algorithms import REGISTRY
from sottovoce.cli import cli
from sottovoce.data import lifelike
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.runs import choosing
from sottovoce.runs.choosing import KNOBS, Choice, choose, declared, open_knobs
from sottovoce.runs.planner import plan
from sottovoce.runs.prepare import prepare
from sottovoce.runs.rehearsal import Rehearsal
from sottovoce.runs.simulate import RunConfig, simulate
from sottovoce.runs.training import TrainConfig, train
from sottovoce.schedules import Schedule
from sottovoce.typing import Any

AUTO = RunConfig(method="auto", epsilon=1.0, delta=1e-5, accountant="zcdp")  # quick to calibrate
SMALL = (300, 200, 300)


def fresh(config: RunConfig = AUTO, n: Any = SMALL, d: int = 4, **more: Any) -> Choice:
    """A choice that no earlier one has left behind."""
    choosing._choose.cache_clear()
    return choose(config, n, d, **more)


def timeless(choice: Choice) -> Any:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in choice.table]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer rounds and rows."""
    monkeypatch.setattr(choosing, "ROUNDS", (2, 10))
    monkeypatch.setattr(choosing, "REPLICATES", 2)
    monkeypatch.setattr(choosing, "_CELLS", 2_000)
    choosing._choose.cache_clear()


# What a choice sees


def test_no_argument_can_carry_rows() -> None:
    assert list(inspect.signature(choose).parameters) == ["config", "n", "d", "heterogeneity", "free"]


def test_rows_and_the_users_seed_do_not_matter() -> None:
    runs = [
        train(TrainConfig(replace(AUTO, seed=seed), data=f"synthetic:n=900,d=4,seed={seed}", nodes=3), free=("rho",))
        for seed in (1, 2)
    ]
    first, second = (run.choice for run in runs)
    assert first is not None and second is not None
    assert (first.says, timeless(first)) == (second.says, timeless(second))
    assert replace(first.config, seed=None) == replace(second.config, seed=None)
    assert not np.array_equal(runs[0].result.models, runs[1].result.models)


def test_a_choice_can_be_repeated() -> None:
    first, second = fresh(), fresh()
    assert first.config == second.config
    assert first.says == second.says
    assert timeless(first) == timeless(second)


def test_public_facts_do_matter() -> None:
    alike = fresh(free=())
    assert timeless(alike) != timeless(fresh(free=(), heterogeneity="label"))
    assert timeless(alike) != timeless(fresh(free=(), n=(300, 200, 301)))
    ring = fresh(free=(), n=(200,) * 4)
    assert timeless(ring) != timeless(fresh(replace(AUTO, graph="complete"), free=(), n=(200,) * 4))


# What it leaves alone


def test_given_knobs_stay_as_given() -> None:
    config = replace(AUTO, rounds=7, rho=0.02, eta=0.05, noise_growth=1.1)
    assert open_knobs(config) == () and open_knobs(AUTO) == KNOBS
    found = fresh(config)
    assert (found.config.rounds, found.config.rho, found.config.eta) == (7, 0.02, 0.05)
    assert found.config.noise_growth == 1.1
    assert {row["stage"] for row in found.table} <= {"rule", "method", "check"}


def test_a_default_can_be_given_too() -> None:
    found = fresh(free=("rho",))
    assert (found.config.rounds, found.config.eta, found.config.noise_growth) == (10, None, 1.0)
    assert {row["rounds"] for row in found.table} == {10}
    assert len({row["rho"] for row in found.table}) > 1


def test_the_rest_of_the_configuration_is_kept() -> None:
    config = replace(AUTO, seed=None, relation="zero-out", C=2.0, sites_per_row=2)
    found = fresh(config).config
    assert (found.seed, found.relation, found.C, found.sites_per_row, found.auto) == (None, "zero-out", 2.0, 2, False)
    prepare(found, np.array(SMALL, dtype=float)[:, None], 4)


def test_the_first_guess_wins_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.setattr(Rehearsal, "errors", lambda self, prepared: 0.2 + 1e-3 * rng.normal(size=(4, 4)))
    found = fresh()
    assert (found.config.method, found.config.rounds, found.config.rho) == ("prox_admm", 10, 0.001)
    assert "first guess" in found.says


def test_a_clear_gain_beats_the_first_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    def errors(self: Rehearsal, prepared: Any) -> Any:
        better = prepared.config.method == "prox_average" and prepared.config.rounds == 2
        return np.full((4, 4), 0.1 if better else 0.2)

    monkeypatch.setattr(Rehearsal, "errors", errors)
    found = fresh()
    assert (found.config.method, found.config.rounds) == ("prox_average", 2)
    assert found.says.startswith("prox_average, 2 rounds") and "prox_admm, 10 rounds" in found.says


def test_a_gain_that_new_rows_do_not_show_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    def errors(self: Rehearsal, prepared: Any) -> Any:
        lucky = self.seed == choosing._SEED and prepared.config.method == "prox_average"
        return np.full((4, 4), 0.1 if lucky else 0.2)

    monkeypatch.setattr(Rehearsal, "errors", errors)
    assert fresh().config.method == "prox_admm"


@pytest.mark.parametrize(
    ("config", "d", "why"),
    [
        (replace(AUTO, epsilon=np.inf), 4, "budget"),
        (replace(AUTO, noise=0.1), 4, "noise is given"),
        (AUTO, 4000, "too many"),
    ],
)
def test_where_nothing_can_be_tried_the_first_guess_is_taken(config: RunConfig, d: int, why: str) -> None:
    found = fresh(config, d=d)
    assert found.config == replace(config, auto=False)
    assert why in found.says and found.table == ()


def test_a_first_guess_that_breaks_a_rule_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "ROUNDS", (1,))
    strange = replace(
        AUTO, delta=None, accountant=None, method="mr_admm", eta=Schedule(0.05, growth=0.9), eta_growth=1.0
    )
    found = fresh(replace(strange, auto=True))
    assert found.config.method != "mr_admm" and "breaks a rule" in found.says
    json.dumps(found.to_dict())


def test_what_no_method_can_do_is_refused() -> None:
    with pytest.raises(InvalidInput, match="sites_per_row"):
        fresh(replace(AUTO, sites_per_row=9))
    with pytest.raises(InvalidInput, match="heterogeneity"):
        fresh(heterogeneity="some")
    with pytest.raises(InvalidInput, match="free"):
        fresh(free=("epsilon",))


# What it says


def test_it_explains_itself() -> None:
    found = fresh()
    assert found.says.startswith(found.config.method)
    assert "3 sites of 200 to 300 rows, 4 features" in found.says and "no private row was read" in found.says
    rule = found.table[0]
    assert (rule["stage"], rule["method"], rule["rounds"]) == ("rule", "prox_admm", 10)
    assert all(0 < row["error"] < 1 and row["noise"] > 0 and row["spread"] >= 0 for row in found.table)
    assert {"prox_admm", "prox_average"} <= {row["method"] for row in found.table}
    json.dumps(found.to_dict(), allow_nan=False)


def test_without_a_delta_or_with_one_site_more_methods_are_tried() -> None:
    wanted = {"mr_admm", "objective", "output"}
    assert wanted <= {
        row["method"] for row in fresh(replace(AUTO, delta=None, accountant=None, method="mr_admm")).table
    }
    assert wanted <= {row["method"] for row in fresh(n=(500,), free=()).table}


def test_declared_heterogeneity() -> None:
    assert [declared(how) for how in ("iid", "label", "dirichlet:0.5", "site:branch")] == [
        "iid",
        "label",
        "label",
        "label",
    ]
    assert declared("label", 0.0) == "iid"


# The rehearsal is the real run, on other rows


@pytest.mark.parametrize("method", ["prox_admm", "mr_admm", "objective"])
def test_a_rehearsal_computes_what_a_run_computes(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (60, 50, 40)
    worlds = tuple(lifelike.make_world(kind, sizes, 5, seed=3) for kind in lifelike.KINDS)
    config = RunConfig(method=method, epsilon=1.0, rounds=6, replicates=2)
    prepared = prepare(config, np.array(sizes, dtype=float)[:, None], 5)
    noise = np.random.default_rng(5).normal(size=(40, 4, 3, 5))  # of (release, worlds x replicates, node)
    taken = {"at": slice(None)}
    monkeypatch.setattr(KeyedNoise, "spherical", lambda self, d, release, use=0: noise[release][taken["at"]])
    monkeypatch.setattr("sottovoce.runs.rehearsal._Stream.spherical", KeyedNoise.spherical)
    monkeypatch.setattr("sottovoce.runs.rehearsal.TOL", 1e-8)
    heard: list[Any] = []
    monkeypatch.setattr(lifelike.World, "error", lambda self, W: heard.append(W) or W[..., 0])
    Rehearsal(worlds, 2, 0).errors(prepared)
    for k, world in enumerate(worlds):
        taken["at"] = slice(2 * k, 2 * k + 2)
        rows = Rows.build([(X, 2.0 * y - 1.0) for X, y in world.parts])
        assert np.allclose(heard[k], simulate(config, rows).consensus, atol=1e-5)


def test_fewer_made_up_rows_leave_the_noise_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise follows the true sizes: with rows that say nothing, models of small and of large worlds agree."""
    prepared = prepare(replace(AUTO, rounds=2), np.full((3, 1), 4000.0), 4)
    heard: list[Any] = []
    monkeypatch.setattr(lifelike.World, "error", lambda self, W: heard.append(W) or W[..., 0])
    for m in (50, 400):
        X, y = np.zeros((m, 4)), np.arange(m) % 2
        world = lifelike.World([(X, y)] * 3, np.zeros((5, 4)), np.full((5, 2), 0.5))
        Rehearsal((world,), 3, 1).errors(prepared)
    assert np.allclose(heard[0], heard[1]) and np.abs(heard[0]).max() > 0


@pytest.mark.parametrize("kind", lifelike.KINDS)
@pytest.mark.parametrize(("d", "classes"), [(1, 2), (2, 2), (30, 2), (30, 4)])
def test_made_up_rows_are_valid(kind: str, d: int, classes: int) -> None:
    sizes = (1, 700, 300)
    world = lifelike.make_world(kind, sizes, d, 0, classes=classes, tilt=1.0)
    assert [len(y) for _, y in world.parts] == list(sizes)
    labels = np.concatenate([y for _, y in world.parts])
    assert set(np.unique(labels)) <= set(range(classes))
    assert all(np.linalg.norm(X, axis=1).max() < 1.0 for X, _ in world.parts)
    assert np.allclose(world.chances.sum(axis=1), 1.0)
    if d == 30:
        shares = [np.mean(y == classes - 1) for _, y in world.parts[1:]]
        assert shares[1] > shares[0] + 0.2
        best = float(1.0 - world.chances.max(axis=1).mean())
        assert 0.05 < best < 0.5


# Where it is asked for


def test_train_end_to_end() -> None:
    report = train(TrainConfig(replace(AUTO, epsilon=4.0), data="synthetic:n=3000,d=5", nodes=3))
    assert report.choice is not None and report.config.run == report.choice.config
    assert not report.config.run.auto and report.result.privacy["epsilon"] <= 4.0
    assert report.test_errors.mean() < 0.35
    again = train(replace(report.config))
    assert again.choice is None and np.array_equal(again.result.models, report.result.models)


def test_a_checkpoint_goes_on_with_the_same_choice(tmp_path: Any) -> None:
    config = TrainConfig(replace(AUTO, rounds=6, rho=0.01, noise_growth=1.1), data="synthetic:n=900,d=4", nodes=3)
    first = train(config, checkpoint=tmp_path / "run.ckpt")
    choosing._choose.cache_clear()
    rounds: list[int] = []
    second = train(config, checkpoint=tmp_path / "run.ckpt", observers=[lambda k, state: rounds.append(k)])
    assert rounds == [] and np.array_equal(first.result.models, second.result.models)


def test_simulate_alone_takes_the_first_guess() -> None:
    rng = np.random.default_rng(0)
    rows = Rows.build([(rng.normal(size=(50, 3)) / 10, np.where(rng.normal(size=50) > 0, 1.0, -1.0))] * 3)
    assert AUTO.auto and AUTO.method == "prox_admm"
    assert np.array_equal(simulate(AUTO, rows).models, simulate(replace(AUTO, auto=False), rows).models)
    assert RunConfig.from_dict(AUTO.to_dict()) == AUTO
    assert "auto" not in RunConfig().to_dict()


def test_the_estimators_choose() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3))
    y = X[:, 0] > 0
    model = ConsensusClassifier(
        "auto", epsilon=3.0, delta=1e-5, n_sites=3, rounds=4, eta=0.01, data_norm=3.0, accountant="zcdp", random_state=0
    )
    model.fit(X, y)
    assert model.choice_ is not None and model.choice_.config.rounds == 4 and model.score(X, y) > 0.8
    one = PrivateClassifier("auto", epsilon=3.0, data_norm=3.0, random_state=0).fit(X, y)
    assert one.choice_ is not None and one.n_iter_ == 1 and one.score(X, y) > 0.8
    assert PrivateClassifier("objective", epsilon=3.0, random_state=0).fit(X, y).choice_ is None


def test_softmax_is_rehearsed_too() -> None:
    found = fresh(replace(AUTO, loss="softmax:3", epsilon=3.0), n=(200, 200), d=9, free=())
    assert all(0.1 < row["error"] < 0.9 for row in found.table) and len(found.table) >= 2


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    base = ["--method", "auto", "--delta", "1e-5", "--accountant", "zcdp", "--rounds", "10", "--json"]
    cli.main(["train", "--data", "synthetic:n=900,d=4", "--nodes", "3", *base], standalone_mode=False)
    trained = json.loads(capsys.readouterr().out)
    assert trained["choice"]["chosen"]["method"] == trained["method"] == trained["config"]["method"]
    assert trained["rounds_asked"] == 10 and trained["choice"]["says"] and "auto" not in trained["config"]
    assert {row["rounds"] for row in trained["choice"]["table"]} == {10}
    sizes = ",".join(map(str, trained["n_train"]))
    cli.main(["plan", "--sizes", sizes, "--features", str(trained["features"]), *base], standalone_mode=False)
    planned = json.loads(capsys.readouterr().out)
    assert planned["choice"]["chosen"] == trained["choice"]["chosen"]
    cli.main(["plan", "--sizes", sizes, "--features", str(trained["features"]), *base[:-1]], standalone_mode=False)
    assert "no private row was read" in " ".join(capsys.readouterr().out.split())


# What is said of the methods


def test_every_method_says_what_it_releases_and_the_page_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["methods", "--all", "--json"], standalone_mode=False)
    listed = json.loads(capsys.readouterr().out)
    page = (Path(__file__).parents[2] / "docs" / "choosing.md").read_text(encoding="utf-8")
    for entry in listed:
        assert all(isinstance(entry[key], str) and entry[key] for key in ("releases", "noise", "good for", "trusts"))
        assert entry["relations"] == (["replace-one", "zero-out"] if entry["private"] else [])
    assert "```{methods}\n```" in page  # printed from the registry
    assert "| method |" not in page


@pytest.mark.parametrize("name", [name for name, cls in REGISTRY.items() if cls.private])
def test_what_a_method_says_of_its_releases_holds(name: str) -> None:
    cls, rounds = REGISTRY[name], 6
    for relation in cls.relations:
        config = RunConfig(method=name, delta=1e-5, accountant="zcdp", relation=relation, rounds=rounds)
        ready = prepare(config, np.full((3, 1), 400.0), 4)
        book = ready.ledger
        released = len(plan(ready.algorithm, ready.facts, ready.graph, rounds, book.accountant, book.delta).rows)
        times = {"once": 1, "every second round": 3}
        assert released == next((count for word, count in times.items() if cls.releases == word), rounds)
