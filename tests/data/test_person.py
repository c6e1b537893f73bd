"""A person's rows: who they are, that they move nothing further than one row would, and what
runs then promise.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from sottovoce import RunConfig, TrainConfig, train
from sottovoce.algorithms import REGISTRY
from sottovoce.answers.evaluation import Held
from sottovoce.answers.training import ONE_EACH, infer
from sottovoce.cli import cli
from sottovoce.data import Schema, load
from sottovoce.data.frames import read_frame
from sottovoce.data.move import Move
from sottovoce.data.person import (
    MOST,
    Person,
    first_rows_of_each,
    group_rows_by_person,
    most_parts_of_a_person,
    rows_of_dealt_people,
    weights_within_person,
)
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput, SchemaError
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.clipped import clip_gradients
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import Logistic, Loss, make_loss
from sottovoce.queries import Gradient as Slopes
from sottovoce.queries import NoisyBounded, NoisyGradient, NoisyMinimiser, RowMean
from sottovoce.runs.prepare import prepare
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import simulate
from sottovoce.runs.training import deal_rows_to_nodes, with_partition
from sottovoce.solvers.local import Solver, elsewhere_bound

SCHEMA = """
intercept = true
site = "hospital"
person = { column = "patient", rows = 5 }
label = { column = "ill", positive = "yes", negative = "no" }

[columns.age]
kind = "number"
lo = -3
hi = 3

[columns.dose]
kind = "number"
lo = -3
hi = 3
"""
PEOPLE, MOST_ROWS = 400, 7
NOT_PROVED = ("ipp_admm", "central_sgd")
"""Methods with noise outside the objective that are refused for a person with several rows."""
PROVED = {
    "dp_admm",
    "gradient_tracking",
    "prox_admm",
    "pvp",
    "prox_average",
    "momentum",
    "dgd",
    "output",
    "central_gd",
    "central_prox",
    "central_momentum",
    "sum_momentum",
    "sum_prox",
}


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Visits of people with one to seven rows, in any order."""
    place, rng = tmp_path_factory.mktemp("people"), np.random.default_rng(0)
    visits = rng.integers(1, MOST_ROWS + 1, PEOPLE)
    patient = np.repeat(np.arange(PEOPLE), visits)
    hospital = rng.integers(3, size=PEOPLE)[patient]
    age, dose = rng.normal(size=PEOPLE)[patient], rng.normal(size=len(patient))
    ill = np.where(2.0 * age + dose + rng.logistic(size=len(patient)) > 0, "yes", "no")
    order = rng.permutation(len(patient))
    lines = [
        f"{age[k]:.4f},{dose[k]:.4f},{'abc'[hospital[k]]},p{patient[k]},{ill[k]}" for k in order
    ]
    (place / "rows.csv").write_text("\n".join(["age,dose,hospital,patient,ill", *lines, ""]))
    (place / "s.toml").write_text(SCHEMA)
    return str(place / "rows.csv"), str(place / "s.toml")


class TestWhoTheyAre:
    def test_people_are_numbered_in_order_of_first_appearance(self) -> None:
        column = np.array(["b", "a", " b", "c", "a"], dtype=object)
        assert Person("id").number_people(column, frozenset()).tolist() == [0, 1, 0, 2, 1]
        assert Person("id").number_people(np.array([7, 7, 3]), frozenset()).tolist() == [0, 0, 1]
        with pytest.raises(SchemaError, match="no person identifier") as refused:
            Person("id").number_people(np.array(["b", "", "?"], dtype=object), frozenset({"?"}))
        assert "'b'" not in str(refused.value)

    def test_the_first_rows_are_read_and_weigh_one_together(self) -> None:
        people = np.array([0, 1, 0, 0, 2, 1, 0])
        assert first_rows_of_each(people, 2).tolist() == [
            True,
            True,
            True,
            False,
            True,
            True,
            False,
        ]
        assert first_rows_of_each(people, 9).all()
        for codes in (
            people,
            np.random.default_rng(0).integers(0, 9, 500),
            np.zeros(3000, dtype=int),
        ):
            totals = np.bincount(codes, weights_within_person(codes))
            assert np.all(totals <= 1.0) and np.all(totals[np.bincount(codes) > 0] > 1.0 - 1e-9)

    def test_one_identifier_in_several_types_is_one_person(self) -> None:
        mixed = np.array(
            [1, "1", 1.0, "1.0", " 01 ", "+1.00", "1a", "1A", "-1", "0x1"], dtype=object
        )
        assert Person("id").number_people(mixed, frozenset()).tolist() == [
            0,
            0,
            0,
            0,
            0,
            0,
            1,
            2,
            3,
            4,
        ]
        for column in (
            np.array([1, 2, 1]),
            np.array([1.0, 2.0, 1.0]),
            np.array(["1", "2.0", "1.0"]),
        ):
            assert Person("id").number_people(column, frozenset()).tolist() == [0, 1, 0]
        large = np.array([str(2**70), f"{2**70}.0", str(2**70 + 1)])
        assert Person("id").number_people(large, frozenset()).tolist() == [0, 0, 1]
        frame = read_frame({"id": np.array([1.0, np.nan, 1.0])})
        with pytest.raises(SchemaError, match="no person identifier"):
            Person("id").number_people(frame.columns["id"], frozenset())

    def test_number_of_sites_per_person_is_counted(self) -> None:
        people = np.array([0, 1, 0, 2, 2, 2])
        assert most_parts_of_a_person(people, [np.array([0, 1]), np.array([2, 3, 4, 5])]) == 2
        assert most_parts_of_a_person(people, [np.array([0, 2]), np.array([1, 3, 4, 5])]) == 1

    def test_split_and_partition_keep_the_rows_of_a_person_together(self) -> None:
        people = np.array([2, 0, 2, 1, 0])
        assert [rows.tolist() for rows in group_rows_by_person(people, np.arange(5))] == [
            [1, 4],
            [3],
            [0, 2],
        ]
        assert [
            rows.tolist()
            for rows in rows_of_dealt_people(people, [np.array([0, 1]), np.array([2])])
        ] == [
            [1, 3, 4],
            [0, 2],
        ]

    @pytest.mark.parametrize(
        "entry", [3, "", {"rows": 3}, {"column": "a", "rows": 0}, {"column": "a", "most": 3}, True]
    )
    def test_the_entry_is_checked(self, entry: object) -> None:
        with pytest.raises(SchemaError, match="person"):
            Schema.from_dict(
                {"person": entry, "columns": {"a": {"kind": "number", "lo": 0, "hi": 1}}}
            )

    def test_the_column_is_no_feature_and_the_entry_is_kept(self) -> None:
        plain = {"columns": {"a": {"kind": "number", "lo": 0, "hi": 1}}, "person": "id"}
        schema = Schema.from_dict(plain)
        assert schema.person == Person("id", MOST) and schema.to_dict()["person"] == "id"
        assert Schema.from_dict(schema.to_dict()) == schema
        assert schema.fingerprint != Schema.from_dict({"columns": plain["columns"]}).fingerprint
        with pytest.raises(SchemaError, match=r"^a: is the person"):
            Schema.from_dict(plain | {"person": "a"})
        with pytest.raises(SchemaError, match="label or weight"):
            Schema.from_dict(plain | {"label": {"column": "id", "positive": "x"}})


def guard(rows: Rows, of: Facts) -> RowGuard:
    return RowGuard(
        rows, of, KeyedNoise(0, range(1), range(len(rows.n))), Ledger("zcdp", delta=1e-5)
    )


class TestHowFarTheyMoveThings:
    """A search over two people with up to `MOST` rows each: what is stated is never passed, and
    nearly reached.
    """

    MOST, D = 4, 3

    MOVE = Move(np.array([0.5, -0.5, 0.0]), (2,), 0.6, 2.0)

    def facts(self, loss: Loss, relation: str, moved: bool = False) -> Facts:
        of = Facts(
            loss,
            np.array([[2.0]]),
            self.D,
            1.0,
            0.5,
            1,
            relation,
            pure=False,
            rows_per_person=self.MOST,
        )
        return replace(of, stretch=self.MOVE.stretch_bound) if moved else of

    def rows(self, own: np.ndarray, weigh: bool = True, moved: bool = False) -> Rows:
        still = np.full((2, self.D), 0.3)
        X = np.concatenate([own, still])
        rows = Rows(X[None], np.array([[float(len(X))]]), move=self.MOVE if moved else None)
        people = np.array([0] * len(own) + [1, 1])
        found = rows.with_people([people], self.MOST)
        return found if weigh else replace(found, weight=np.ones_like(found.weight))  # planted

    @pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
    @pytest.mark.parametrize("kind", ["gradient", "minimiser"])
    @pytest.mark.parametrize(
        ("loss", "moved"), [("logistic", False), ("huber:0.5", False), ("huber:0.5", True)]
    )
    def test_person_moves_a_release_at_most_by_the_stated_sensitivity(
        self, kind: str, relation: str, loss: str, moved: bool
    ) -> None:
        """`moved` rows are centred and clipped again, each by itself: what a person may add
        stays one row.
        """
        of, rng, best, planted = (
            self.facts(make_loss(loss), relation, moved),
            np.random.default_rng(0),
            0.0,
            0.0,
        )
        for trial in range(150):
            w = rng.normal(size=self.D) * 10.0 ** rng.uniform(-2, 2)
            query: Any = NoisyGradient(w[None, None], None, "test")
            if kind == "minimiser":
                query = NoisyMinimiser(
                    w[None, None], None, "test", linear=w[None, None], curvature=20.0
                )
            stated = float(query.exact_sensitivity(of).ravel()[0])
            ends, plain = [], []
            for sign in (1.0, -1.0):
                own = rng.normal(size=(int(rng.integers(1, self.MOST + 1)), self.D))
                if trial % 2:  # all along one line, on the steep side
                    own = np.tile(-sign * w, (self.MOST, 1))
                own /= np.linalg.norm(own, axis=1, keepdims=True) * (1.0 + 1e-12)
                if relation == "zero-out" and sign < 0:
                    own[:] = 0.0
                ends.append(guard(self.rows(own, moved=moved), of).charge_and_answer(query)[0, 0])
                plain.append(
                    guard(self.rows(own, weigh=False, moved=moved), of).charge_and_answer(query)[
                        0, 0
                    ]
                )
            far = float(np.linalg.norm(ends[0] - ends[1]))
            assert far <= stated
            best, planted = (
                max(best, far / stated),
                max(planted, float(np.linalg.norm(plain[0] - plain[1])) / stated),
            )
        assert best > (0.45 if kind == "minimiser" or loss == "logistic" else 0.9)
        assert planted > 1.5  # rows that are not bounded together pass it

    @pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
    def test_person_moves_the_centring_mean_at_most_by_its_sensitivity(self, relation: str) -> None:
        """A person of four rows and another of one, on opposite sides: as stated, and further if
        planted.
        """
        of, query = (
            self.facts(Logistic(), relation),
            NoisyBounded.of_statistic(RowMean(np.zeros((1, 1, 3)), (2,)), None, "test"),
        )
        stated = float(query.exact_sensitivity(of).ravel()[0])
        end = np.array([[0.999, 0.0, 0.01]])
        other = -end * [1, 1, -1] if relation == "replace-one" else 0.0 * end
        for weigh in (True, False):
            found = [
                guard(self.rows(own, weigh), of).charge_and_answer(query)[0, 0]
                for own in (np.tile(end, (4, 1)), other)
            ]
            far = float(np.linalg.norm(found[0] - found[1]))
            assert 0.99 * stated < far <= stated if weigh else far > 2.0 * stated
        with pytest.raises(InvalidInput, match="row a person"):
            guard(self.rows(end), of).charge_and_answer(
                NoisyBounded.of_statistic(Slopes(np.zeros((1, 1, 3))), None, "test")
            )

    @pytest.mark.parametrize("most", [math.inf, 0.2])
    def test_gradient_of_a_clipped_row_depends_on_its_place_by_rounding_only(
        self, most: float
    ) -> None:
        """Gradients of moved rows, each by itself and among others, are closer than what
        sensitivities add.
        """
        rng, d, many = np.random.default_rng(0), 7, 50
        X = np.concatenate([rng.normal(size=(many, d - 1)), np.full((many, 1), 2.0)], axis=1)
        X /= np.linalg.norm(X, axis=1, keepdims=True) * (1.0 + 1e-12)
        mean = np.append(rng.normal(size=d - 1), 0.0)
        move, loss = (
            Move(0.9 * mean / np.linalg.norm(mean), (d - 1,), 0.4, 2.0),
            clip_gradients(Logistic(), most),
        )
        w = 3.0 * rng.normal(size=(1, 1, d))
        share = float(elsewhere_bound(1.0, loss, d, float(np.linalg.norm(w)), move.stretch_bound))

        def gradient(own: np.ndarray, at: int) -> np.ndarray:
            n, weight = len(own), np.zeros((1, len(own)))
            weight[0, at] = 1.0
            rows = Rows(own[None], np.array([[float(n)]]), move=move, weight=weight)
            return np.asarray(n * Solver(rows, loss, 1.0).gradient(w)[0, 0])

        far = [np.linalg.norm(gradient(X[k : k + 1], 0) - gradient(X, k)) for k in range(many)]
        assert max(far) <= 2.0 * share < 1e-6

    def test_rounding_counts_every_row_a_person_may_have(self) -> None:
        one = self.facts(Logistic(), "replace-one")
        many = replace(one, rows_per_person=10_000, n=np.array([[1e6]]))
        alone = replace(many, rows_per_person=None)
        query = NoisyGradient(np.zeros((1, 1, self.D)), None, "test")
        more, less = (float(query.exact_sensitivity(of).ravel()[0]) for of in (many, alone))
        assert more > 1.5 * less and less < 2.1e-6

    def test_points_at_which_rounding_would_show_are_refused(self) -> None:
        of = replace(self.facts(Logistic(), "replace-one"), n=np.array([[1e6]]))
        NoisyGradient(np.full((1, 1, self.D), 10.0), None, "test").check_before_charge(of)
        with pytest.raises(InvalidInput, match="hides the gradients"):
            NoisyGradient(np.full((1, 1, self.D), 1e8), None, "test").check_before_charge(of)


def test_correlated_noise_covers_people_whose_rows_alternate_in_sign() -> None:
    """The left side of the theorem (docs/privacy/correlated_noise.md), by all ways in which two
    rows can pull.

    Weights that add up to one keep it, and reach it.  Two opposite rows of weight one that never
    pull at once are no longer than one row in any round, and still pass it: a bound on the gradient
    of each round would not do.
    """
    T = 4
    M = 2.0 * np.eye(T) - 1.0 / T * np.ones((T, T))
    bound = T * 2.0**2  # two people, each in the other's place: gradients change by 2
    pulls = np.array(list(np.ndindex(*[2] * T)), dtype=float)
    worst = {"weighted": 0.0, "in turns": 0.0}
    for first in pulls:
        for other in pulls:
            for sign in (1.0, -1.0):
                moved = 0.5 * (first + sign * other)
                worst["weighted"] = max(worst["weighted"], 4.0 * float(moved @ M @ moved))
        turns = first - (1.0 - first)
        worst["in turns"] = max(worst["in turns"], 4.0 * float(turns @ M @ turns))
    assert worst["weighted"] == pytest.approx(bound) and worst["in turns"] == pytest.approx(
        2.0 * bound
    )


class TestRuns:
    def test_sites_count_people_and_the_statement_names_them(self, clinic: tuple[str, str]) -> None:
        table, schema = clinic
        report = train(TrainConfig(RunConfig("prox_admm", 5.0, 1e-5, rounds=3), table, schema))
        said = report.result.statement
        assert said.unit.startswith("one person") and said.unit.endswith("5 are read")
        assert "with the person" in said.text
        assert "numbers of people" in said.public and "row counts" not in said.public
        assert report.result.facts.n.sum() == round(
            0.8 * PEOPLE
        ) and report.result.facts.n.shape == (3, 1)
        assert any("were left out" in note for note in report.notes)
        # people's rows are centred too
        assert report.decision is not None and report.decision.centring is not None
        again = prepare(
            report.result.config, report.result.facts.n, 3, centre=report.decision.centring
        )
        assert again.facts.rows_per_person == 5
        assert report.test_errors[0] < 0.35

    def test_what_is_printed_counts_people(self, clinic: tuple[str, str], tmp_path: Path) -> None:
        table, schema = clinic
        page = tmp_path / "page.html"
        few = ["--epsilon", "5", "--method", "prox_admm", "--rounds", "2", "--report", str(page)]
        asked: list[list[str]] = [
            ["train", "--data", table, "--schema", schema, *few],
            ["train", "--data", table, "--schema", schema, "--inference", "--epsilon", "200"],
            [
                "plan",
                "--schema",
                schema,
                "--sizes",
                "90,110,120",
                "--epsilon",
                "5",
                "--method",
                "prox_admm",
            ],
        ]
        for words in asked:
            shown = CliRunner().invoke(cli, words, catch_exceptions=False).stdout
            assert re.search(r"3\s+sites\s+of\s+\d+\s+to\s+\d+\s+people", shown), shown
            assert "--inference" in words or re.search(r"site +people", shown)
        text = page.read_text()
        assert "training people" in text and "of each person" in text and " people at 3" in text

    def test_nobody_is_split_between_training_test_or_sites(self, clinic: tuple[str, str]) -> None:
        table, schema = clinic
        dataset = load(table, schema=schema)
        assert dataset.people is not None and dataset.held_people is not None
        assert not set(dataset.people) & set(dataset.held_people)
        for partition, nodes in (("iid", 4), (None, None)):
            config = with_partition(
                TrainConfig(RunConfig(seed=3), table, schema, nodes, partition), dataset
            )
            parts = deal_rows_to_nodes(config, dataset)
            found = [set(dataset.people[part]) for part in parts]
            assert sum(map(len, found)) == len(set(dataset.people)) == len(set.union(*found))
            assert (
                max(np.unique(dataset.people[part], return_counts=True)[1].max() for part in parts)
                == 5
            )
        with pytest.raises(InvalidInput, match="stay together"):
            deal_rows_to_nodes(TrainConfig(RunConfig(), table, schema, 3, "label"), dataset)

    @pytest.mark.parametrize("trust", ["nobody", "sum", "curator"])
    def test_auto_chooses_a_method_proved_for_people(
        self, clinic: tuple[str, str], trust: str
    ) -> None:
        table, schema = clinic
        report = train(TrainConfig(RunConfig("auto", 4.0, 1e-5, trust=trust), table, schema))
        assert report.config.run.method in PROVED
        assert report.result.statement.unit.endswith("5 are read")
        assert 3.9 < report.result.statement.epsilon <= 4.0

    @pytest.mark.parametrize("method", [name for name, cls in REGISTRY.items() if cls.private])
    def test_other_methods_are_refused_before_anything_is_spent(self, method: str) -> None:
        cls = REGISTRY[method]
        config = RunConfig(method, 4.0, 1e-5, rounds=2, rows_per_person=5)
        n = np.full((3, 1), 500.0)
        if method in PROVED:
            assert prepare(config, n, 4).plan_ledger().rows
            return
        with pytest.raises(InvalidInput, match=r"^person: .*proved for"):
            prepare(config, n, 4)
        assert prepare(replace(config, rows_per_person=1), n, 4).plan_ledger().rows
        assert cls.objective_noise or method in NOT_PROVED, (
            f"{method}: in neither list of this file"
        )

    def test_run_with_another_privacy_unit_than_its_rows_is_refused(self) -> None:
        X = np.full((6, 2), 0.5)
        rows = Rows.build_from_parts([(X, np.array([1.0, -1.0] * 3))])
        people = rows.with_people([np.array([0, 0, 1, 1, 2, 3])], 2)
        run = RunConfig("prox_admm", 4.0, 1e-5, rounds=2, graph="complete")
        for config, of in ((run, people), (replace(run, rows_per_person=2), rows)):
            with pytest.raises(InvalidInput, match="rows_per_person"):
                simulate(config, of)
        simulate(replace(run, rows_per_person=3), people)
        with pytest.raises(InvalidInput, match="more than 1"):
            rows.with_people([np.array([0, 0, 1, 1, 2, 3])], 1)

    def test_people_with_one_row_each_train_the_same_model(self) -> None:
        rng = np.random.default_rng(0)
        X, y = rng.uniform(-0.5, 0.5, size=(60, 3)), np.where(rng.random(60) < 0.5, 1.0, -1.0)
        rows = Rows.build_from_parts([(X[:30], y[:30]), (X[30:], y[30:])])
        run = RunConfig("prox_admm", math.inf, rounds=3, graph="complete", tol=1e-10)
        plain = simulate(run, rows).models
        alone = simulate(
            replace(run, rows_per_person=1), rows.with_people([np.arange(30)] * 2, 1)
        ).models
        np.testing.assert_allclose(alone, plain, rtol=1e-9, atol=1e-10)
        twice = Rows.build_from_parts(
            [(np.repeat(X[k : k + 30], 2, axis=0), np.repeat(y[k : k + 30], 2)) for k in (0, 30)]
        )
        two = twice.with_people([np.repeat(np.arange(30), 2)] * 2, 2)
        again = simulate(replace(run, rows_per_person=2), two).models
        np.testing.assert_allclose(again, plain, rtol=1e-9, atol=1e-10)
        assert two.pool_at_one_node().n.tolist() == [
            [60.0]
        ] and two.pool_at_one_node().rows_per_node.tolist() == [120]
        assert two.rows_of_node(1).n.tolist() == [[30.0]] and two.rows_of_node(
            1
        ).rows_per_node.tolist() == [60]

    def test_other_weights_are_kept(self) -> None:
        rows = Rows.build_from_parts(
            [(np.full((3, 2), 0.5), np.array([1.0, -1.0, 1.0]))]
        ).with_weight([np.array([1.0, 0.5, 0.2])])
        found = rows.with_people([np.array([0, 0, 1])], 2).weight
        assert found is not None
        np.testing.assert_allclose(found, [[0.5, 0.25, 0.2]])


class TestAnswers:
    def test_answers_use_one_row_of_each_person(self, clinic: tuple[str, str]) -> None:
        table, schema = clinic
        run = RunConfig("auto", 200.0, 1e-5)
        found = infer(TrainConfig(run, table, schema), held=Held(100.0))
        assert found.sizes.sum() == round(0.8 * PEOPLE) and ONE_EACH in found.notes
        assert found.statement.unit.endswith("one is read")
        assert found.evaluation.quality[""].to_dict()["rows"] == round(0.2 * PEOPLE)
        assert found.evaluation.statement.unit == found.statement.unit


def test_missing_person_column_is_refused_first(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("age,dose,hospital,ill\n0,0,a,yes\n")
    schema = tmp_path / "s.toml"
    schema.write_text(SCHEMA)
    with pytest.raises(SchemaError, match="patient"):
        load(tmp_path / "rows.csv", schema=schema, test_share=None)
