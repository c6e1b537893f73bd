"""Surveys: counts and their sensitivity, thresholds with stated error rates, hidden rare levels,
and proposals.
"""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doors import DOORS, TEXTS, through

from sottovoce import ConsensusClassifier, RunConfig, TrainConfig, train
from sottovoce.algorithms.items import Answer
from sottovoce.answers.survey import (
    RARE,
    UNSEEN,
    Noise,
    apply_proposals,
    findings_by_column,
    survey_from_schema,
)
from sottovoce.answers.surveyed import Question, Surveyed, price_survey, survey
from sottovoce.data import Schema, Table
from sottovoce.data.columns import Category, Number
from sottovoce.data.grids import LABEL, OCTAVES, Dyadic, grids_from_schema
from sottovoce.data.rows import Rows
from sottovoce.errors import BudgetExceeded, HolderNote, InvalidInput, LedgerMismatch, SchemaError
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.facts import Among, Facts
from sottovoce.problem.losses import Logistic
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.queries import Cells, NoisyBounded
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import simulate

WIDE: dict[str, Any] = {
    "intercept": True,
    "na": ["?"],
    "site": "hospital",
    "label": {"column": "y", "positive": "1"},
    "columns": {
        "age": {"kind": "number", "lo": 0, "hi": 10_000},
        "bmi": {"kind": "number", "lo": -3000, "hi": 3000},
        "ward": {"kind": "category", "values": ["icu", "surgery", "burns", "empty"]},
        "day": {"kind": "date", "epoch": "2020-01-01", "lo": -40_000, "hi": 40_000},
        "pixels": {"kind": "vector", "columns": ["p", "q"], "lo": -1000, "hi": 1000, "norm": 1400},
        "bin": {"kind": "bins", "edges": [0, 1, 2]},
    },
}
N, BURNS = 4000, 8


def config(**more: Any) -> RunConfig:
    return RunConfig.from_dict({"method": "auto", "epsilon": 1.0, "delta": 1e-5} | more)


RUN = config()


def table(n: int = N, seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    age, bmi = rng.normal(60, 12, n).round(1), rng.normal(27, 4, n).round(1).astype(object)
    bmi[: n // 8] = "?"
    age_text = age.astype(str).astype(object)
    age_text[-n // 5 :] = "sixty"
    ward = rng.choice(["icu", "surgery"], n).astype(object)
    ward[:BURNS] = "burns"
    ward[BURNS : n // 4] = "genral"
    day = (np.datetime64("2020-01-01") + rng.integers(0, 300, n)).astype(str).astype(object)
    p, q = rng.normal(30, 3, n), rng.normal(40, 3, n)
    hospital = rng.choice(["a", "b", "c"], n)
    return Table(
        "t",
        {
            "age": age_text,
            "bmi": bmi,
            "ward": ward,
            "day": day,
            "p": p,
            "q": q,
            "bin": rng.integers(0, 2, n),
            "y": rng.integers(0, 2, n),
            "hospital": hospital,
        },
    )


def schema(**changes: Any) -> Schema:
    return Schema.from_dict({"name": "wide"} | WIDE | changes)


class TestCells:
    def facts(self, n: int, relation: str = "replace-one", d: int = 2) -> Facts:
        return Facts(
            Weighted(Logistic()), np.array([[float(n)]]), d, 1.0, 1.0, 1, relation, pure=False
        )

    def exact(self, what: Cells, rows: Rows, relation: str = "replace-one") -> np.ndarray:
        of = self.facts(int(rows.n[0, 0]), relation, rows.d)
        guard = RowGuard(rows, of, KeyedNoise(0, range(1), range(1)), Ledger("zcdp", delta=1e-5))
        return guard.charge_and_answer(NoisyBounded.of_statistic(what, None, "test"))[0, 0]

    def test_rows_are_counted_in_every_column_by_weight(self) -> None:
        X = np.array([[1, 3], [1, 0], [2, 1], [9, -4], [2, 1.2]], dtype=float)
        what = Cells(np.zeros((1, 1, 2)), (2, 3))
        rows = Rows.build_with_any_norm([(X, np.ones(5))])
        np.testing.assert_allclose(self.exact(what, rows) * 5 * math.sqrt(2), [2, 2, 2, 0, 1])
        weighted = rows.with_weight([np.array([0.5, 1, 0.25, 1, 1])])
        np.testing.assert_allclose(
            self.exact(what, weighted) * 5 * math.sqrt(2), [1.5, 1.25, 1.25, 0, 0.5]
        )

    @pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
    def test_sensitivity_of_counts_holds_and_is_attained(self, relation: str) -> None:
        """Over all pairs of rows, including rows in no cell."""
        widths, still = (2, 3), [1.0, 1.0]
        what = Cells(np.zeros((1, 1, 2)), widths)
        means = {}
        for row in product(range(4), range(5)):
            rows = Rows.build_with_any_norm([(np.array([row, still], dtype=float), np.ones(2))])
            means[row] = self.exact(what, rows, relation)
        firsts = means if relation == "replace-one" else {(0, 0): means[0, 0]}
        far = max(float(np.linalg.norm(a - b)) for a in firsts.values() for b in means.values())
        stated = float(what.mean_sensitivity(self.facts(2, relation), np.array([2.0]))[0])
        assert 0.999 * stated < far <= stated

    def test_a_count_of_one_column_alone_would_understate_it(self) -> None:
        """Planted fault: without the factor of one over the root of the number of columns a row
        would change the counts further.
        """
        first, other = (
            Rows.build_with_any_norm([(np.array([[c, c]], dtype=float), np.ones(1))])
            for c in (1, 2)
        )
        what = Cells(np.zeros((1, 1, 2)), (2, 2))
        far = np.linalg.norm(self.exact(what, first) - self.exact(what, other))
        assert far * math.sqrt(2) > 1.4 * float(
            what.mean_sensitivity(self.facts(1), np.array([1.0]))[0]
        )


class TestGrids:
    def test_every_row_is_in_one_cell_of_every_grid(self) -> None:
        rows, na = table(), frozenset({"?"})
        for grid in grids_from_schema(schema()):
            cells = grid.cell_of_each_row(rows.columns, na)
            assert cells.shape == (N,) and cells.min() >= 1 and cells.max() <= grid.width

    def test_numbers_lie_between_powers_of_two(self) -> None:
        age = grids_from_schema(schema(), ["age"])[0]
        assert isinstance(age, Dyadic)
        assert (
            age.edges[0] == 0 and age.edges[-1] == 10_000 and age.smallest == 2.0 ** (14 - OCTAVES)
        )
        np.testing.assert_array_equal(age.edges[1:-1], 2.0 ** np.arange(14 - OCTAVES, 14))
        values = np.array([0.0, -5.0, 1.0, 1.99, 2.0, 9_999.0, 1e9, np.nan])
        texts = np.array(["0", "-5", "1", "1.99", " 2 ", "9999", "1e9", "nan"], dtype=object)
        for column in (values, texts):
            found = age.cell_of_each_row({"age": column}, frozenset())
            one = int(np.searchsorted(age.edges, 1.0)) + 1
            assert found.tolist() == [1, 1, one, one, one + 1, age.cells, age.cells, age.cells + 1]
        gone = age.cell_of_each_row(
            {"age": np.array(["", None, "x", "7"], dtype=object)}, frozenset()
        )
        assert gone.tolist()[:3] == [age.cells + 2, age.cells + 2, age.cells + 1]

    def test_a_stray_text_changes_no_other_row(self) -> None:
        for grid in grids_from_schema(schema(), ["age", "day", "pixels"]):
            fine = {
                "age": np.array(["1", "200"], dtype=object),
                "day": np.array(["2020-01-09", "2021-01-01"], dtype=object),
                "p": np.array(["3", "300"], dtype=object),
                "q": np.array(["4", "400"], dtype=object),
            }
            first = grid.cell_of_each_row(fine, frozenset())[0]
            strange = {
                name: np.array([column[0], "?!"], dtype=object) for name, column in fine.items()
            }
            assert grid.cell_of_each_row(strange, frozenset()).tolist() == [first, grid.cells + 1]

    def test_levels_unknown_and_missing(self) -> None:
        ward = grids_from_schema(schema(), ["ward"])[0]
        values = np.array(["icu", "empty", "genral", "", "?", None], dtype=object)
        assert ward.cell_of_each_row({"ward": values}, frozenset({"?"})).tolist() == [
            1,
            4,
            5,
            6,
            6,
            6,
        ]

    @pytest.mark.parametrize(
        ("columns", "rule"), [(["bin"], "have a grid"), (["agee"], "did you mean age")]
    )
    def test_only_columns_that_have_a_grid(self, columns: list[str], rule: str) -> None:
        with pytest.raises(InvalidInput, match=rule):
            grids_from_schema(schema(), columns)

    def test_a_number_to_predict_has_one(self) -> None:
        numbers = schema(label={"column": "y", "lo": 0, "hi": 4000})
        assert grids_from_schema(numbers)[-1].name == LABEL and LABEL not in [
            grid.name for grid in grids_from_schema(schema())
        ]


def told(
    counts: dict[str, dict[int, float]],
    of: Schema,
    sigma: float,
    seed: int = 0,
    rows: float = 1000.0,
) -> Any:
    """Return columns read from noisy counts by grid and cell."""
    grids = grids_from_schema(of, list(counts))
    rng, values = np.random.default_rng(seed), list[float]()
    for grid in grids:
        own = np.zeros(grid.width)
        for cell, count in counts[grid.name].items():
            own[cell - 1] = count
        values += (own + sigma * rng.normal(size=grid.width)).tolist()
    scale = rows * math.sqrt(len(grids))
    answer = Answer(np.array([values]) / scale, Among(rows, 1), sigma / scale)
    return findings_by_column(grids, answer, Noise.from_error_rate(grids, rows, sigma), of)


class TestRareLevelsAreNotShown:
    TIMES = 2000

    def shown(self, sigma: float, count: float, rare: float = RARE) -> int:
        """Return in how many surveys of four levels the one with a given number of rows was shown."""
        of = schema()
        grids = grids_from_schema(of, ["ward"])
        noise, scale = Noise.from_error_rate(grids, 1000.0, sigma, rare), 1000.0
        rng, kept = np.random.default_rng(1), 0
        for _ in range(self.TIMES):
            own = np.array([500.0, 490.0, count, 0.0, 0.0, 0.0]) + sigma * rng.normal(size=6)
            answer = Answer(own[None] / scale, Among(1000.0, 1), sigma / scale)
            (column,) = findings_by_column(grids, answer, noise, of)
            kept += "burns" in column.kept or "empty" in column.kept
        return kept

    @pytest.mark.parametrize("sigma", [0.0, 1.0, 20.0])
    def test_rare_levels_are_hidden_with_the_stated_error_rate(self, sigma: float) -> None:
        """Ten rows, and none: a binomial test at one in 10^6 for a rate of .05, which thresholds
        that ignore noise fail.
        """
        most = 0.05 * self.TIMES + 4.9 * math.sqrt(0.05 * 0.95 * self.TIMES)
        assert self.shown(sigma, RARE) <= most
        if sigma:  # planted: a threshold that does not know the noise
            loose = Noise(1000.0, sigma, RARE, 0.0)
            assert loose.threshold() == RARE
            own = np.array([RARE, 0.0])[:, None] + sigma * np.random.default_rng(2).normal(
                size=(2, self.TIMES)
            )
            assert np.sum((own > loose.threshold()).any(axis=0)) > most

    def test_frequent_level_is_shown(self) -> None:
        sigma = 20.0
        surely = Noise.from_error_rate(
            grids_from_schema(schema(), ["ward"]), 1000.0, sigma
        ).surely_seen_rows
        assert self.shown(sigma, surely) >= 0.95 * self.TIMES - 4.9 * math.sqrt(
            0.05 * 0.95 * self.TIMES
        )

    def test_rare_level_is_in_no_written_file(self) -> None:
        """A real table at a budget at which hardly anything is hidden: eight rows stay hidden, and
        a typo too.
        """
        found = survey(schema(), [table()], config(epsilon=200.0))
        (ward,) = (one for one in found.columns if one.name == "ward")
        assert (
            ward.kept == ("icu", "surgery")
            and ward.dropped == ("burns", "empty")
            and ward.unread is not None
        )
        assert tomllib.loads(found.toml)["columns"]["ward"] == {
            "kind": "category",
            "values": ["icu", "surgery"],
            "other": True,
        }
        assert (
            "genral" not in str(found.to_dict()) + found.toml
            and "sixty" not in str(found.to_dict()) + found.toml
        )


class TestThresholds:
    def test_no_empty_run_of_cells_is_seen_more_often_than_stated(self) -> None:
        """All columns have only missing values, so every proposal is an error: in at most .05 of
        the surveys.
        """
        of = schema()
        missing = {grid.name: {grid.width: 1000.0} for grid in grids_from_schema(of)}
        wrong = sum(
            any(
                one.proposed.keys() & {"lo", "norm", "values"}
                for one in told(missing, of, 30.0, seed)
            )
            for seed in range(600)
        )
        assert wrong <= 0.05 * 600 + 4.9 * math.sqrt(0.05 * 0.95 * 600)

    def test_share_beyond_the_bounds_is_bounded_as_stated(self) -> None:
        of, errors = schema(), 0
        (age,) = grids_from_schema(of, ["age"])
        assert isinstance(age, Dyadic)
        first = int(np.searchsorted(age.edges, 16.0)) + 1
        counts = {
            first + k: share for k, share in enumerate([200.0, 400.0, 250.0, 100.0, 30.0, 20.0])
        }
        for seed in range(600):
            (one,) = told({"age": counts}, of, 30.0, seed)
            inside = [
                c
                for c in counts
                if one.proposed["lo"] <= age.edges[c - 1] and age.edges[c] <= one.proposed["hi"]
            ]
            errors += one.beyond < 1.0 - sum(counts[c] for c in inside) / 1000.0
        assert errors <= 0.05 * 600 + 4.9 * math.sqrt(0.05 * 0.95 * 600)

    def test_a_survey_that_could_see_nothing_is_refused_before_anything_is_spent(self) -> None:
        with pytest.raises(InvalidInput, match=r"^epsilon: .* 300 in all"):
            survey(schema(), [table(300)], config(epsilon=0.05))
        for name, value in (("error", 0.0), ("error", 0.6), ("rare", -1.0), ("rare", math.inf)):
            with pytest.raises(InvalidInput, match=name):
                price_survey(schema(), [4000], RUN, Question(**{name: value}))


@pytest.fixture(scope="module")
def found() -> Surveyed:
    return survey(schema(), [table()], RUN)


class TestProposals:
    def test_bounds_and_typical_ranges(self, found: Surveyed) -> None:
        of = {block.name: block for block in found.proposed.blocks}
        assert (of["age"].lo, of["age"].hi) == (32.0, 128.0) and 32 <= of["age"].typical[0] < 48
        assert of["age"].typical[1] > 70
        assert (of["bmi"].lo, of["bmi"].hi) == (16.0, 64.0)
        assert (
            of["bmi"].indicator and of["bmi"].typical[0] < of["bmi"].missing < of["bmi"].typical[1]
        )
        assert of["day"].lo <= 16 and of["day"].hi == 512.0
        assert 45 < of["pixels"].norm < 64
        assert of["bin"] == schema().blocks[-1]
        assert found.proposed.scale is not None

    def test_proposed_schema_is_read_back_unchanged(self, found: Surveyed) -> None:
        again = Schema.from_dict({"name": "wide"} | tomllib.loads(found.toml))
        assert (
            again == found.proposed
            and again.caveat is not None
            and "epsilon = 1.000" in again.caveat
        )
        assert "Protects one row" in found.toml and "probability 0.95" in found.toml
        rows = table()
        # what cannot be read is refused, as it says
        columns = dict(rows.columns) | {"age": np.full(N, 50.0)}
        X = found.proposed.encode(columns).X
        assert 0.5 < np.median(np.linalg.norm(X, axis=1)) <= 1.0
        said = {one.name: one.says for one in found.columns}
        assert "cannot be read" in said["age"] and "declare them" in said["ward"]

    def test_shares_are_those_of_the_rows_up_to_noise(self, found: Surveyed) -> None:
        of = {one.name: one for one in found.columns}
        assert of["bmi"].missing == pytest.approx(1 / 8, abs=0.03) and of["bmi"].unread is None
        assert of["age"].unread == pytest.approx(1 / 5, abs=0.03) and of["age"].missing is None
        assert of["ward"].unread == pytest.approx(1 / 4, abs=0.03)

    def test_zeros_alone_become_a_sign(self) -> None:
        of = schema(columns={"a": {"kind": "number", "lo": -1000, "hi": 1000}})
        (grid,) = grids_from_schema(of)
        assert isinstance(grid, Dyadic)
        zero = int(np.searchsorted(grid.edges, 0.0))
        (one,) = told({"a": {zero: 900.0, **{zero + k: 5.0 for k in range(3, 23)}}}, of, 20.0)
        block = apply_proposals(of, [one], "priced").blocks[0]
        X = replace(apply_proposals(of, [one], "p"), scale=None, intercept=0.0).encode(
            {"a": np.array([-7.0, 0.0, 3.0])}, labels=False
        )
        assert (
            np.sign(X.X[:, 0]).tolist() == [-1, 0, 1]
            and block.typical is None
            and "nearly all" in one.says
        )

    def test_where_noise_may_hide_many_rows_bounds_take_in_a_cell_more(self) -> None:
        """One cell more on each side, and down to zero if that is near; with little noise the seen
        cells suffice.
        """
        rng = np.random.default_rng(0)
        age = np.where(np.arange(N) % 8, rng.uniform(33, 63, N), rng.uniform(65, 120, N))
        rows = Table("t", dict(table().columns) | {"age": age})
        for epsilon, bounds in ((1.0, (32.0, 128.0)), (0.1, (0.0, 256.0))):
            found = survey(schema(), [rows], replace(RUN, epsilon=epsilon), Question(["age"]))
            noise = found.expected.noise
            assert (noise.threshold() > UNSEEN * N) == (epsilon < 1.0)
            block = found.proposed.blocks[0]
            assert (block.lo, block.hi) == bounds  # type: ignore[union-attr]

    def test_a_number_to_predict_gets_bounds(self) -> None:
        of = schema(label={"column": "y", "lo": 0, "hi": 4000, "unit": "days"})
        rows = dict(table().columns) | {"y": np.random.default_rng(0).uniform(0, 30, N)}
        found = survey(of, [Table("t", rows)], RUN, Question([LABEL]))
        assert found.proposed.label.hi == 32.0 and found.proposed.label.lo == 0.0  # type: ignore[union-attr]

    def test_runs_of_cells_are_seen_where_no_cell_is(self) -> None:
        of = schema()
        (age,) = grids_from_schema(of, ["age"])
        assert isinstance(age, Dyadic)
        first = int(np.searchsorted(age.edges, 16.0)) + 1
        spread = {first + k: 240.0 for k in range(4)}
        sigma = 72.0
        assert (
            240
            < Noise.from_error_rate([age], 1000.0, sigma).threshold()
            < Noise.from_error_rate([age], 1000.0, sigma).threshold(4)
            < 960
        )
        (one,) = told({"age": spread}, of, sigma, seed=3)
        assert one.proposed["lo"] <= 32 and one.proposed["hi"] >= 128

    def test_few_wrong_units_stretch_nothing(self) -> None:
        rng = np.random.default_rng(0)
        value = np.where(rng.random(20_000) < 0.001, 88.4, 1.0) * np.exp(rng.normal(0, 0.4, 20_000))
        of = Schema.from_dict({"columns": {"a": {"kind": "number", "lo": 0, "hi": 1e5}}})
        found = survey(of, [Table("t", {"a": value})], config(epsilon=100.0))
        assert found.proposed.blocks[0].hi <= 8  # type: ignore[attr-defined]


class TestAskedAsOtherAnswersAre:
    def test_every_trust_gives_the_same_survey_without_noise(self) -> None:
        parts = [table().take(np.arange(k, N, 3)) for k in range(3)]

        def told(tables: list[Table], trust: str) -> Any:
            """Sums of other parts are rounded otherwise."""
            found = survey(schema(), tables, config(epsilon=math.inf, trust=trust)).to_dict()[
                "columns"
            ]
            return json.loads(json.dumps(found), parse_float=lambda text: round(float(text), 9))

        plain = told([table()], "nobody")
        for tables, trust in product(([table()], parts), ("nobody", "sum", "curator")):
            assert told(tables, trust) == plain

    @pytest.mark.parametrize("trust", ["nobody", "sum", "curator"])
    def test_planned_cost_equals_charged_cost(self, trust: str) -> None:
        run, parts = config(trust=trust), [table(1000, k) for k in range(3)]
        plan, found = price_survey(schema(), [1000] * 3, run), survey(schema(), parts, run)
        assert plan.statement == found.statement and 0.99 < plan.statement.epsilon <= 1.0
        assert plan.noise == pytest.approx(found.expected.noise)
        assert plan.asked == [{"release": "coarse counts", "share": 1.0}]

    @pytest.mark.parametrize("trust", ["nobody", "sum", "curator"])
    def test_noise_has_the_scale_that_thresholds_use(self, trust: str) -> None:
        """A chi-squared test at one in 10^4; two thirds and three halves of the scale fail."""
        from scipy import stats

        sizes, of = [500, 300, 700], schema()
        parts = [table(n, k) for k, n in enumerate(sizes)]
        grids = grids_from_schema(of)
        plan = price_survey(of, sizes, config(epsilon=2.0, trust=trust))
        cells = [
            np.stack(
                [g.cell_of_each_row(p.columns, frozenset({"?"})) for g in grids], axis=1
            ).astype(float)
            for p in parts
        ]
        rows = Rows.build_with_any_norm([(c, np.ones(len(c))) for c in cells])
        recipe, loss = survey_from_schema(of, grids), Weighted(Logistic())
        noisy = simulate(
            config(epsilon=2.0, trust=trust, replicates=40), rows, method=recipe, loss=loss
        ).outcome
        clean = simulate(
            config(epsilon=math.inf, trust=trust), rows, method=recipe, loss=loss
        ).outcome
        off = (noisy.value - clean.value) * 1500 * math.sqrt(len(grids))
        for factor, fine in ((1.0, True), (1.5, False), (2 / 3, False)):
            p = stats.chi2.sf(float(np.sum((off / (factor * plan.noise.sigma)) ** 2)), off.size)
            assert (1e-4 < p < 1 - 1e-4) == fine

    def test_survey_is_reserved_stored_and_resumed_in_a_ledger(self, tmp_path: Path) -> None:
        DurableLedger.create(
            tmp_path / "l", epsilon=3.0, delta=1e-5, accountant="rdp", n_nodes=3
        ).close()
        released = config(seed=None)
        with DurableLedger.open(tmp_path / "l") as book:
            first = survey(schema(), [table()], released, ledger=book)
            spent = book.total()
            assert survey(schema(), [table()], released, ledger=book) == first
            assert book.total() == spent > 0 and not first.statement.simulated
            other = schema(
                columns=WIDE["columns"] | {"age": {"kind": "number", "lo": 0, "hi": 20_000}}
            )
            survey(other, [table()], released, ledger=book)  # another grid is another release
            assert book.total() > spent
            with pytest.raises(BudgetExceeded):
                survey(schema(), [table()], config(seed=None, epsilon=5.0), ledger=book)
            rows = Table("t", dict(table().columns) | {"age": np.full(N, "61", dtype=object)})
            with pytest.raises(LedgerMismatch):
                survey(schema(), [rows], released, ledger=book)

    @pytest.mark.parametrize("trust", ["sum", "curator"])
    def test_survey_and_training_share_a_ledger(self, tmp_path: Path, trust: str) -> None:
        """An estimator and a command identify the table by its raw rows, under any schema."""
        pd, rows = pytest.importorskip("pandas"), table()
        rows = Table("t", dict(rows.columns) | {"age": np.arange(N) % 90})
        pd.DataFrame(rows.columns).to_csv(tmp_path / "t.csv", index=False)
        # 27.0 is written so, as in the file
        frame, book = (
            pd.read_csv(tmp_path / "t.csv", dtype=str),
            tmp_path / "l",
        )
        nodes = 1 if trust == "curator" else 3
        DurableLedger.create(book, epsilon=9.0, delta=1e-4, accountant="rdp", n_nodes=nodes).close()
        with DurableLedger.open(book) as opened:
            found = survey(schema(), [frame], config(seed=None, trust=trust), ledger=opened)
            spent = opened.total()
            more = {"epsilon": 0.5, "method": "momentum", "rounds": 3, "trust": trust}
            with pytest.warns(HolderNote):
                model = ConsensusClassifier(schema=found.proposed, ledger=opened, **more).fit(frame)
            again = opened.total()
            assert again > spent and "survey" in model.summary()
            other = frame.assign(age="50")
            with pytest.raises(LedgerMismatch), pytest.warns(HolderNote):
                ConsensusClassifier(schema=found.proposed, ledger=opened, **more).fit(other)
        (tmp_path / "s.toml").write_text(found.toml)
        asked = RunConfig("momentum", 0.5, 1e-5, rounds=3, trust=trust, seed=None)
        told = TrainConfig(
            asked, str(tmp_path / "t.csv"), str(tmp_path / "s.toml"), test_share=None
        )
        with DurableLedger.open(book) as opened:
            train(told, ledger=opened)
            assert opened.total() > again

    def test_one_table_is_dealt_by_the_site_column(self) -> None:
        found = survey(schema(), [table()], config(trust="sum"))
        assert len(found.statement.per_node) == 3
        with pytest.raises(InvalidInput, match="hospital"):
            survey(
                schema(),
                [Table("t", {k: v for k, v in table().columns.items() if k != "hospital"})],
                RUN,
            )
        with pytest.raises(InvalidInput, match="bmi"):
            survey(
                schema(),
                [Table("t", {k: v for k, v in table().columns.items() if k != "bmi"})],
                RUN,
            )
        with pytest.raises(InvalidInput, match="method"):
            survey(schema(), [table()], RunConfig("prox_admm", delta=1e-5))


ALL_KINDS: dict[str, Any] = {
    "number": {"kind": "number", "lo": -5, "hi": 100, "missing": 0},
    "level": {
        "kind": "category",
        "values": ["x", "1", "2.5", "true", str(2**53 + 1)],
        "other": True,
    },
    "day": {"kind": "date", "epoch": "2020-01-01", "lo": 0, "hi": 4000},
    "pair": {"kind": "vector", "lo": -1, "hi": 1, "columns": ["first", "second"], "norm": 1.0},
    "block": {"kind": "vector", "lo": -1, "hi": 1, "size": 2, "norm": 1.0},
}


@pytest.mark.parametrize("door", list(DOORS))
def test_a_row_moves_no_cell_of_another(door: str, tmp_path: Path) -> None:
    """The sensitivity rests on this: whatever a value is, and however it is given, other rows are
    read as before.
    """
    schema = Schema.from_dict({"columns": ALL_KINDS, "na": ["-9", "NA"]})
    grids, pool, rng = grids_from_schema(schema), DOORS[door], np.random.default_rng(3)
    names = ("number", "level", "day", "first", "second", "block")

    def drawn() -> Any:
        return pool[int(rng.integers(len(pool)))]

    for _ in range(50):
        i = int(rng.integers(4))
        columns = {name: [drawn() for _ in range(4)] for name in names}
        others = {
            name: [drawn() if k == i else value for k, value in enumerate(some)]
            for name, some in columns.items()
        }
        before, after = (through(door, some, tmp_path).columns for some in (columns, others))
        for grid in grids:
            a, b = (grid.cell_of_each_row(some, frozenset(schema.na)) for some in (before, after))
            assert np.array_equal(np.delete(a, i), np.delete(b, i)), (grid.name, columns, others)
            assert min(a.min(), b.min()) >= 1 and max(a.max(), b.max()) <= grid.width


def test_survey_and_training_read_values_alike() -> None:
    """A single value is in its cell if training accepts it, and else in the cell of missing or
    unreadable ones.
    """
    schema = Schema.from_dict({"columns": ALL_KINDS, "na": ["-9", "NA"]})
    na = frozenset(schema.na)
    for name in ("number", "level", "day"):
        (grid,), (block,) = (
            grids_from_schema(schema, [name]),
            (one for one in schema.blocks if one.name == name),
        )
        if isinstance(block, Number):
            block = replace(block, missing=None, indicator=False)
        for value in [*TEXTS, None, 1, 2.5, math.inf, math.nan, 10**400, np.float32(0.5)]:
            column = np.empty(1, dtype=object)
            column[0] = value
            cell = int(grid.cell_of_each_row({name: column}, na)[0])
            if isinstance(block, Category):
                strange, gone = block.unlisted_and_missing({name: column}, na)
                if gone[0]:
                    assert cell == grid.width
                elif strange[0]:
                    assert cell == grid.cells + 1
                else:
                    assert cell <= grid.cells
                continue
            refusal = ""
            try:
                block.encode({name: column}, na)
            except SchemaError as error:
                refusal = str(error)
            if "has missing values" in refusal:
                assert cell == grid.width, (name, value)
            elif refusal:
                assert cell == grid.cells + 1, (name, value)
            else:
                assert cell <= grid.cells, (name, value)
