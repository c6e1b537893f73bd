"""What version 0.1.0 wrote is read: a saved run, a ledger with three runs, and a plan for sites.

The files in ``old/`` were written by 0.1.0 from ``table.csv`` and ``schema.toml`` there, which is made-up data.  Later
versions wrote two ledgers of answers, without digests of models and without stamps: ``answers.ledger`` of two
inferences that were interrupted, ``evaluated.ledger`` of two evaluations of ``run.npz``, one of them called ``first``;
and, before trust was an argument, runs of `ROWS` by methods under another trust, which broke off in the second of four
rounds; and two plans with answers, ``inferred.json`` in sums and ``evaluated.json`` without.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problems import make_rows

from sottovoce.algorithms.items import Answer, Script
from sottovoce.answers import fits
from sottovoce.answers.evaluation import Counts, Held, Histogram
from sottovoce.answers.frames import Frame, Sight, sharper
from sottovoce.answers.inference import Newton, OneFrame, PlainSteps, newton_of
from sottovoce.answers.judging import Scored, TwoClassesJudge, judge_of
from sottovoce.answers.least_squares import slopes_of
from sottovoce.answers.rehearsal import facts_of, priced
from sottovoce.answers.saved import SavedModel
from sottovoce.answers.terms import naming_of, of_columns
from sottovoce.answers.training import infer
from sottovoce.cli import main
from sottovoce.data import Schema
from sottovoce.deploy.asks import Asks
from sottovoce.deploy.plan import Plan
from sottovoce.errors import InvalidInput, LedgerMismatch
from sottovoce.ledger.durable import DurableLedger
from sottovoce.problem.facts import Among, Facts
from sottovoce.problem.losses import HuberResidual, Logistic
from sottovoce.problem.task import BoundedNumber, TwoClasses
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.queries.moments import flat
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import Result, simulate
from sottovoce.runs.training import TrainConfig, train
from sottovoce.util.plain import canonical, digest_of

OLD = Path(__file__).parent / "old"
SPENT = 7.067163311672127
"""What 0.1.0 said of its ledger, by the order that is best at that moment."""
EPSILON = 1.9998972094905056
P = "probability of 1e-05"
RUN = RunConfig(method="prox_admm", epsilon=2.0, delta=1e-5, rounds=3)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are told apart by what was typed, and these were made in this folder."""
    monkeypatch.chdir(OLD)


def asked(run: RunConfig) -> TrainConfig:
    return TrainConfig(run, data="table.csv", schema="schema.toml", partition="site:site")


def test_a_saved_run_is_read_and_saved_again_with_the_sentence_that_is_true(tmp_path: Path) -> None:
    run = Result.load(OLD / "run.npz")
    assert run.config == RUN and run.models.shape == (1, 3, 2)
    run.save(tmp_path / "again.npz")
    again = Result.load(tmp_path / "again.npz")
    assert np.array_equal(again.models, run.models) and again.facts.to_dict() == run.facts.to_dict()
    with np.load(OLD / "run.npz") as before, np.load(tmp_path / "again.npz") as after:
        first, second = (json.loads(str(file["meta"])) for file in (before, after))
    assert first.pop("seconds") > 0.0 and first["privacy"]["epsilon"] == EPSILON
    old, new = first["privacy"].pop("says"), second["privacy"].pop("says")
    wrong = f"finds no outcome more than 7.39 times as likely with the row as with another in its place, but for a {P}"
    assert wrong in old and P not in new and "times its probability with another in its place, plus 1e-05" in new
    assert first == second


def test_the_same_configuration_makes_the_same_models() -> None:
    old, new = Result.load(OLD / "run.npz"), train(asked(RUN)).result
    assert np.allclose(new.models, old.models, rtol=1e-5)


def test_a_ledger_opens_and_its_total_only_went_up(tmp_path: Path) -> None:
    path = tmp_path / "book.ledger"
    shutil.copyfile(OLD / "book.ledger", path)
    with DurableLedger.open(path) as ledger:
        ledger.verify()
        assert len(ledger.rows) == 8 and set(ledger.runs) == {"prox_admm", "mr_admm", "ipp_admm"}
        assert SPENT <= ledger.total() <= 9.0


@pytest.mark.parametrize("method", ["mr_admm", "ipp_admm"])
def test_a_run_of_the_same_name_and_configuration_is_replayed_and_costs_nothing(tmp_path: Path, method: str) -> None:
    path = tmp_path / "book.ledger"
    shutil.copyfile(OLD / "book.ledger", path)
    config = asked(RunConfig(method=method, epsilon=2.0, delta=1e-5, rounds=3))
    with DurableLedger.open(path) as ledger:
        before = ledger.total()
        replayed = train(config, ledger=ledger, run_name=method).result
        assert ledger.total() == before and len(ledger.rows) == 8
    assert np.allclose(replayed.models, train(config).result.models, rtol=1e-5)


def test_a_run_whose_noise_was_sized_by_older_digits_of_a_price_is_refused_before_anything_is_drawn(
    tmp_path: Path,
) -> None:
    """Prices of Gaussian noise cover rounding now, so that noise found by a search differs in its last digits."""
    path = tmp_path / "book.ledger"
    shutil.copyfile(OLD / "book.ledger", path)
    with DurableLedger.open(path) as ledger:
        before = ledger.total()
        with pytest.raises(LedgerMismatch, match="sigma"):
            train(
                asked(RunConfig(method="prox_admm", epsilon=2.0, delta=1e-5, rounds=3)),
                ledger=ledger,
                run_name="prox_admm",
            )
        assert ledger.total() == before and len(ledger.rows) == 8


def test_a_plan_is_read_and_has_the_digest_that_sites_compared() -> None:
    plan = Plan.read(OLD / "plan.json")
    assert plan.digest == "7d912c72657c8512efb1bed4465a5890c48dee2c2725e86e18d3251505f90e7f"
    assert plan.names == ("north", "east", "south") and plan.config.method == "prox_admm"
    assert Schema.from_toml(OLD / "schema.toml").to_dict() == Schema.from_dict(plan.schema).to_dict()


@pytest.mark.parametrize(("trust", "name"), [("nobody", None), ("sum", "sums")])
def test_an_interrupted_inference_goes_on(tmp_path: Path, trust: str, name: str | None) -> None:
    path = tmp_path / "answers.ledger"
    shutil.copyfile(OLD / "answers.ledger", path)
    """With the list of releases that it was begun with; a run that begins now has another."""
    config = asked(RunConfig(method="auto", epsilon=2.0, delta=1e-5, trust=trust))
    with DurableLedger.open(path) as ledger:
        ledger.verify()
        runs, committed, before = ledger.runs, ledger.committed(), len(ledger.rows)
        resumed = infer(config, ledger=ledger, run_name=name)
        assert ledger.runs == runs and np.array_equal(ledger.committed(), committed)
        assert len(ledger.rows) == before + (6 if name is None else 7)
    assert len(resumed.asked) == 9 and len(infer(config).asked) == 21
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fits, "newton_of", lambda naming: newton_of(naming, frames=0))
        assert np.allclose(resumed.answered.model, infer(config).answered.model, rtol=1e-4, atol=1e-6)


def test_an_inference_of_version_0_2_goes_on_with_its_one_frame(tmp_path: Path) -> None:
    config = asked(RunConfig(method="auto", epsilon=2.0, delta=1e-5, trust="sum"))
    with DurableLedger.create(tmp_path / "a.ledger", epsilon=9.0, delta=1e-5, accountant="rdp", n_nodes=3) as ledger:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fits, "newton_of", lambda naming: newton_of(naming, frames=1))
            patch.setattr(OneFrame, "_slopes", stop)
            with pytest.raises(KeyboardInterrupt):
                infer(config, ledger=ledger)
        before, runs = len(ledger.rows), ledger.runs
        resumed = infer(config, ledger=ledger)
        assert ledger.runs == runs and len(resumed.asked) == 13 == len(ledger.rows) and before == 11


def test_an_inference_that_was_begun_with_plain_steps_goes_on_with_them(tmp_path: Path) -> None:
    """Of the list before steps were stretched; what begins now asks at other points, under another list."""
    config = asked(RunConfig(method="auto", epsilon=2.0, delta=1e-5, trust="sum"))
    with DurableLedger.create(tmp_path / "a.ledger", epsilon=9.0, delta=1e-5, accountant="rdp", n_nodes=3) as ledger:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fits, "newton_of", lambda naming: newton_of(naming, stretches=False))
            whole = infer(config)
            patch.setattr(PlainSteps, "_slopes", stop)
            with pytest.raises(KeyboardInterrupt):
                infer(config, ledger=ledger)
        before, runs = len(ledger.rows), ledger.runs
        resumed = infer(config, ledger=ledger)
        assert ledger.runs == runs and len(resumed.asked) == 21 == len(ledger.rows) and before == 19
    assert resumed.asked == whole.asked != infer(config).asked
    assert np.allclose(resumed.answered.model, whole.answered.model, rtol=1e-4, atol=1e-6)


def test_least_squares_with_intervals_of_version_0_2_goes_on_with_rows_as_they_are(tmp_path: Path) -> None:
    """A run that broke off in its list of five releases asks for the rest of them, and has their answer."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = np.clip(20.0 + X @ (3.0, -2.0) + 4.0 * rng.normal(size=600), 0.0, 60.0)
    parts = np.array_split(np.arange(600), 3)
    naming, target = of_columns(["age", "dose"], 2.4), BoundedNumber(0.0, 60.0)
    rows = naming.rows([(X[p], np.ones(200)) for p in parts]).with_offset([target.encode(y[p]) for p in parts])
    new = slopes_of(naming)
    (old,) = new.older()
    config = RunConfig(method="auto", epsilon=2.0, delta=1e-5, trust="sum")
    loss = Weighted(HuberResidual(1.0))

    class Interrupted(type(old)):  # type: ignore[misc]
        def script(self, facts: Facts, replicates: int) -> Script:
            script = super().script(facts, replicates)
            moments = yield next(script)
            yield script.send(moments)
            stop()

    begun = Interrupted(constant=naming.constant, marks=naming.marks)
    with DurableLedger.create(tmp_path / "a.ledger", epsilon=9.0, delta=1e-5, accountant="rdp", n_nodes=3) as ledger:
        with pytest.raises(KeyboardInterrupt):
            simulate(config, rows, method=begun, loss=loss, ledger=ledger)
        assert len(ledger.rows) == 2
        resumed = simulate(config, rows, method=new, loss=loss, ledger=ledger)
        assert len(ledger.runs) == 1 and len(ledger.rows) == 5
    whole = simulate(config, rows, method=old, loss=loss)
    assert np.allclose(resumed.outcome.estimate, whole.outcome.estimate, rtol=1e-9)
    assert len(simulate(config, rows, method=new, loss=loss).ledger) == len(new.items) == 12


WARDS = """
[label]
column = "event"
positive = "yes"
negative = "no"
[columns.age]
kind = "number"
lo = 0
hi = 100
[columns.ward]
kind = "category"
values = ["a", "b", "c", "d"]
base = "a"
"""


def test_lists_of_before_ask_in_the_frames_that_they_asked_in(tmp_path: Path) -> None:
    """A rare level was merged with its reference, however rare that is, and a column of which nothing was seen left.

    What begins now merges a rare reference.  In other frames the stored answers of an old run would be refused.
    """
    (tmp_path / "schema.toml").write_text(WARDS)
    naming = naming_of(Schema.from_toml(tmp_path / "schema.toml"), [], 1.0, [])
    shares = np.array([0.5, 0.494, 0.003])  # and .003 of the reference
    columns = np.flatnonzero(naming.marks)
    S = np.diag(naming.constant * naming.value**2)
    S[columns, columns] = shares * naming.marks[columns] ** 2
    S[columns, -1] = S[-1, columns] = shares * naming.marks[columns] * naming.value
    S[0, 0] = -1e-3  # noise
    kept = {}
    for frames, stretches in ((5, True), (5, False), (1, False), (0, False)):
        recipe = priced(newton_of(naming, frames, stretches), 0.5)
        facts = facts_of(Logistic(), naming.d, 4000.0, "replace-one")
        script, among = recipe.script(facts, 1), Among.all(facts)
        next(script)
        script.send(Answer(np.array([[0.3]]), among, recipe.spread(0, facts, among)))
        said: Any = script.send(Answer(flat(S)[None], among, recipe.spread(1, facts, among)))
        if frames == 0:
            said = script.send(Answer(np.zeros((1, naming.d)), among, recipe.spread(2, facts, among)))
            assert said.at[0, 0] == said.at[0, 3] == 0.0  # no step was taken in them
            continue
        kept[frames, stretches] = np.any(said.frame[0] != 0.0, axis=1).tolist()
        assert recipe.doubts == stretches
    assert kept[5, False] == kept[1, False] == [False, True, True, False, True]
    assert kept[5, True] == [True, False, True, False, True]


def test_lists_of_before_take_what_was_seen_in_part_as_seen() -> None:
    frame = Frame(np.eye(2)[None], np.eye(2)[None])
    sight = Sight(frame, np.diag([0.3, 0.0])[None], np.zeros((1, 2, 2)))
    M, noise, kept = np.diag([0.01, 1.0])[None], np.array([0.02]), np.ones((1, 2), dtype=bool)
    before, now = (sharper(sight, M, noise, kept, doubts=doubts) for doubts in (False, True))
    np.testing.assert_allclose(before.moments[0], np.eye(2), atol=1e-12)
    assert now.moments[0, 0, 0] < 0.1 and not before.unseen.any() and now.unseen[0, 0, 0] > 0.0


def test_a_model_that_no_column_tells_the_sites_of_is_judged_under_the_name_that_it_had() -> None:
    """Its rows get the average of the constants as before, so that an evaluation that broke off goes on."""
    naming = of_columns(["age"], 1.0, ["a", "b"])
    saved = SavedModel(naming, np.array([1.0, 0.5, -0.5]), np.array([0.5, 0.5]))
    former = {name: value for name, value in saved.to_dict().items() if name not in ("record", "site")}
    assert saved.digest == digest_of(former)
    assert len({one.digest for one in (saved, replace(saved, site="ward"), replace(saved, only=0))}) == 3


def stop(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_evaluation_that_does_not_say_of_which_model_it_is_is_handed_to_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "evaluated.ledger"
    shutil.copyfile(OLD / "evaluated.ledger", path)
    evaluate = ["evaluate", "run.npz", "table.csv", "--epsilon", "2", "--ledger", str(path)]
    with pytest.raises(SystemExit) as stopped:
        main([*evaluate, "--run", "first"])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert "run='first': is in this ledger with another plan; go on with that one" in said
    assert "give this run another name, such as 'first-2'" in said
    main(evaluate)
    with DurableLedger.open(path) as ledger:
        ledger.verify()
        assert len(ledger.runs) == 3 and len(ledger.rows) == 8 and 4.56 < ledger.total() <= 9.0


ROWS = make_rows([12, 9, 15], 3, seed=3)


def under_way(method: str) -> RunConfig:
    return RunConfig(method=method, epsilon=2.0, delta=1e-5, rounds=4, accountant="zcdp")


@pytest.mark.parametrize("method", ["sum_momentum", "sum_prox", "momentum", "prox_average", "central_momentum"])
def test_a_checkpoint_of_methods_that_had_other_states_goes_on(tmp_path: Path, method: str) -> None:
    """Their states have new fields: what was opened so far, and of sums what only single sites need."""
    path = tmp_path / "checkpoint.npz"
    shutil.copyfile(OLD / f"{method}.npz", path)
    rounds: list[int] = []
    resumed = simulate(under_way(method), ROWS, checkpoint=path, observers=[lambda k, _: rounds.append(k)])
    assert rounds == [2, 3, 4] and len(resumed.ledger) == 4
    assert np.allclose(resumed.models, simulate(under_way(method), ROWS).models, rtol=1e-9)


@pytest.mark.parametrize("method", ["sum_momentum", "sum_prox"])
def test_a_run_of_sums_in_an_old_ledger_goes_on(tmp_path: Path, method: str) -> None:
    path = tmp_path / "trusts.ledger"
    shutil.copyfile(OLD / "trusts.ledger", path)
    with DurableLedger.open(path) as ledger:
        resumed = simulate(under_way(method), ROWS, ledger=ledger, run_name=method)
        assert set(ledger.runs) == {"sum_momentum", "sum_prox"} and resumed.statement.ledger is not None
    assert np.allclose(resumed.models, simulate(under_way(method), ROWS).models, rtol=1e-9)


ASKED = {
    "inferred.json": ("1c21dbb08c4cb6ae6c316fad03ad039ad5d9183a8e26e639cd96cda77e5ccd42", "7f7b07d09384f9e1", 11),
    "evaluated.json": ("1e3cd34e9a249212ee09cf7da6f62f81bef5b15e78b8231c1b91ea1408022c55", "5ac47d61276325a7", 7),
}
"""Of plans with answers, in sums and without: digest, hash of what their recipes charge, exchanges."""


def test_a_plan_says_of_how_many_frames_its_inference_is() -> None:
    """Those of version 0.2 said that there is one."""
    new = Asks(inference=True)
    assert new.to_dict()["frames"] == 1 + len(Newton.sharper) == Asks.from_dict(new.to_dict()).frames
    old = {name: value for name, value in new.to_dict().items() if name not in ("frames", "stretches")}
    for told, frames in ((old, 0), (old | {"framed": True}, 1), (old | {"frames": 5}, 5)):
        assert Asks.from_dict(told).frames == frames and Asks.from_dict(told).to_dict() == told
        assert not Asks.from_dict(told).stretches
    for wrong in (2, -1, 7):
        with pytest.raises(InvalidInput, match="this version does not know"):
            Asks.from_dict(old | {"frames": wrong})
    with pytest.raises(TypeError, match="other fields"):
        Asks.from_dict(old | {"framed": True, "frames": 5})


@pytest.mark.parametrize("name", ASKED)
def test_a_plan_with_answers_has_the_exchanges_and_the_events_that_it_had(name: str) -> None:
    """So that sites in the middle of it go on: ledgers hold these events, and journals messages of these widths."""
    plan, (digest, events, exchanges) = Plan.read(OLD / name), ASKED[name]
    assert plan.digest == digest and len(plan.widths) == exchanges and plan.widths[-2:] == (1, 24)
    asked = [event.to_dict() for site in plan.names for event in plan.events(site)[0 if plan.infers else 4 :]]
    assert hashlib.sha256(canonical(asked).encode()).hexdigest()[:16] == events
    assert [stage.before for stage in plan.stages] == ([0, 9] if plan.infers else [0, 4])
    assert plan.stages[-1].held and plan.stages[-1].shown == (0 if plan.infers else 3)
    assert plan.counts(1)["north"] == 294 and plan.counts(exchanges)["north"] == 126


def test_an_evaluation_of_version_0_2_goes_on_with_its_list(tmp_path: Path) -> None:
    """It has a histogram alone, of which no calibration slope is told; one that begins now has corrections, too."""

    def begun(judge: TwoClassesJudge, model: bytes, d: int) -> Counts:
        return Counts(judged=model, weights=np.eye(d - 1)[-1], threshold=judge.held.threshold)

    rng = np.random.default_rng(0)
    z = rng.normal(size=3000)
    scored = Scored(z, b"model", np.where(rng.random(3000) < 1.0 / (1.0 + np.exp(-z)), 1.0, -1.0))
    judge, run = judge_of(TwoClasses(), Held(2.0), None), RunConfig(method="auto", delta=1e-5, seed=0)
    with DurableLedger.create(tmp_path / "a.ledger", epsilon=9.0, delta=1e-5, accountant="rdp", n_nodes=1) as ledger:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TwoClassesJudge, "recipe", begun)
            patch.setattr("sottovoce.queries.bounded.Scores.terms", stop)
            with pytest.raises(KeyboardInterrupt):
                judge.ask(scored, run, ledger=ledger)
        runs = ledger.runs
        resumed = judge.ask(scored, run, ledger=ledger)
        assert ledger.runs == runs and len(ledger.rows) == 2
    assert len(Histogram(judged=b"").items) == 4
    whole = resumed.quality[""]
    assert whole.slope is None and whole.recalibration.slope.refused and whole.auc.value is not None
