"""Descriptive tables: sums and their sensitivity, agreement with pandas without noise, intervals,
ledgers, people, sites, and what is refused.
"""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce import DurableLedger, Schema, describe
from sottovoce.answers.describing import Described, Question, plan_description
from sottovoce.answers.description import GONE, Contents, Quantity, blocks_of_table
from sottovoce.data.rows import Rows
from sottovoce.data.table import Table
from sottovoce.errors import BudgetExceeded, InvalidInput, LedgerMismatch, SchemaError
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import Logistic
from sottovoce.problem.trust import RELATIONS
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.queries import LevelSums, NoisyBounded, NumberSums, TableSums
from sottovoce.runs.config import RunConfig
from sottovoce.runs.row_guard import RowGuard

pd = pytest.importorskip("pandas")

TRIAL: dict[str, Any] = {
    "site": "hospital",
    "na": ["?"],
    "label": {"column": "died", "positive": "yes", "negative": "no"},
    "columns": {
        "age": {"kind": "number", "lo": 0, "hi": 120},
        "bmi": {"kind": "number", "lo": 10, "hi": 70, "typical": [18, 40], "missing": 25},
        "cost": {"kind": "number", "lo": 0, "hi": 5000, "transform": "log1p"},
        "day": {"kind": "date", "epoch": "2020-01-01", "lo": 0, "hi": 400},
        "stage": {"kind": "bins", "edges": [0, 1, 2, 3], "base": 0, "indicator": True},
        "smoker": {"kind": "category", "values": ["never", "now", "before"], "base": "never"},
        "arm": {"kind": "category", "values": ["placebo", "drug"], "base": "placebo"},
    },
}
N = 1200


def schema(**changes: Any) -> Schema:
    return Schema.from_dict({"name": "trial"} | TRIAL | changes)


def frame(n: int = N, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    arm = rng.choice(["placebo", "drug"], n)
    found = pd.DataFrame(
        {
            "age": rng.integers(25, 95, n) + (arm == "drug") * 2,
            "bmi": rng.normal(27, 4, n).round(2),
            "cost": np.exp(rng.normal(5, 1, n)).round(),
            "day": (
                np.datetime64("2020-01-01") + rng.integers(0, 300, n).astype("timedelta64[D]")
            ).astype(str),
            "stage": rng.integers(0, 3, n).astype(float),
            "smoker": rng.choice(["never", "now", "before"], n, p=[0.5, 0.3, 0.2]).astype(object),
            "arm": arm,
            "died": rng.choice(["yes", "no"], n, p=[0.2, 0.8]),
            "hospital": rng.choice(["a", "b", "c"], n),
        }
    )
    found.loc[: n // 20, "bmi"] = np.nan
    found.loc[n // 30 : n // 15, "smoker"] = "?"
    found.loc[: n // 40, "stage"] = np.nan
    return found


FRAME = frame()


def described(**more: Any) -> Described:
    settings: dict[str, Any] = {"schema": schema(), "by": "arm", "epsilon": 2.0, "trust": "sum"}
    return describe(more.pop("data", FRAME), **(settings | more))


class TestSums:
    BLOCKS = (
        LevelSums(1, 0.3),
        LevelSums(2, 0.5),
        NumberSums(np.array([-0.5, 0.2]), 0.6, 0.35),
        NumberSums(np.array([0.0]), 0.4, 0.25, 0.25),
    )

    def facts(self, n: int, relation: str = "replace-one") -> Facts:
        loss = Weighted(Logistic())
        return Facts(loss, np.array([[float(n)]]), 5, 1.0, 1.0, 1, relation, pure=False)

    def what(self) -> TableSums:
        return TableSums(np.zeros((1, 1, 5)), 2, self.BLOCKS)

    def sums(self, X: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        rows, of = Rows.build_with_any_norm([(X, np.ones(len(X)))]), self.facts(len(X))
        if weight is not None:
            rows = rows.with_weight([weight])
        guard = RowGuard(rows, of, KeyedNoise(0, range(1), range(1)), Ledger("zcdp", delta=1e-5))
        query = NoisyBounded.of_statistic(self.what(), None, "test")
        return np.asarray(guard.charge_and_answer(query)[0, 0] * len(X))

    def test_sums_are_those_of_each_group(self) -> None:
        X = np.array(
            [
                [1, 1, 2, 0.5, -0.4],
                [1, 1, 1, 2.0, 0.25],
                [2, 1, 3, -1.0, 1.0],
                [0, 1, 1, 0.1, 0.1],
                [9, 1, 1, 0.1, 0.1],
            ]
        )
        found = self.sums(X).reshape(2, -1)
        root = math.sqrt
        one = [
            0.6 * root(0.35) * 0.5,
            0.6 * root(0.35) * 0.25,
            *(0.6 * root(0.3) * x for x in (0, 0, 1, 1)),
        ]
        np.testing.assert_allclose(found[0, :9], [0.6, 0.5, 0.5, *one], atol=1e-12)
        two = [-0.15, 0.16 + 0.0625, 1, 1, 0, 0.6, 0.25]
        factors = [0.4 * 0.5] * 7
        np.testing.assert_allclose(found[0, 9:], np.multiply(two, factors), atol=1e-12)
        # a level that is not declared is in no cell
        np.testing.assert_allclose(found[1, :3], [0.3, 0.0, 0.0], atol=1e-12)
        weighed = self.sums(X, np.array([0.5, 0.25, 1.0, 1.0, 1.0])).reshape(2, -1)
        np.testing.assert_allclose(weighed[0, :3], [0.3 * 0.75, 0.125, 0.25], atol=1e-12)

    @pytest.mark.parametrize("relation", list(RELATIONS))
    def test_no_row_moves_the_sums_further_than_they_say_and_some_row_does(
        self, relation: str
    ) -> None:
        """Over pairs of codes on a grid, those outside included; rows of a person lie between."""
        t = [-1.0, -0.6, -0.1, 0.0, 0.3, 0.999, 1.0, 2.0]
        codes = [
            [g, 1, level, a, b]
            for g, level in product((0, 1, 2), (0, 1, 2))
            for a, b in [*zip(t, t, strict=True), *zip(t, reversed(t), strict=True)]
        ]
        added = np.array([self.sums(np.array([row], dtype=float)) for row in codes])
        firsts = added if relation == "replace-one" else np.zeros_like(added[:1])
        far = np.linalg.norm(firsts[:, None] - added[None], axis=-1)
        stated = float(self.what().mean_sensitivity(self.facts(1, relation), np.array([1.0]))[0])
        assert 0.99 * stated < far.max() <= stated
        rng = np.random.default_rng(0)
        for _ in range(200):
            weight = rng.dirichlet(np.ones(4)) * rng.random()
            one = weight @ added[rng.integers(len(added), size=4)]
            other = rng.dirichlet(np.ones(4)) @ added[rng.integers(len(added), size=4)]
            end = other if relation == "replace-one" else np.zeros_like(one)
            assert np.linalg.norm(one - end) <= stated

    def test_opposite_numbers_move_a_block_as_far_as_other_cells_do(self) -> None:
        block = NumberSums(np.array([0.0]), 1.0, 0.35)
        one, other = (
            block.sums_of_groups(np.array([t]), np.array([1]), np.ones(1), 1)[0]
            for t in (-1.0, 1.0)
        )
        assert np.sum((one - other) ** 2) == pytest.approx(2.0)


class TestWithoutNoise:
    def test_numbers_are_those_of_pandas(self) -> None:
        found = described(epsilon=math.inf, trust="nobody")
        of = FRAME.replace("?", np.nan)
        of["day"] = (pd.to_datetime(of["day"]) - pd.Timestamp("2020-01-01")).dt.days
        parts = {"overall": of} | dict(list(of.groupby("arm")))
        parts |= {f"site: {name}": part for name, part in of.groupby("hospital")}
        for group, part in parts.items():
            assert found.line("", "n", group).value == pytest.approx(len(part), abs=1e-6)
            for name in ("age", "bmi", "cost", "day"):
                shown = "day, days since 2020-01-01" if name == "day" else name
                x = part[name]
                want = {
                    "mean": x.mean(),
                    "sd": x.std(),
                    "q1": x.quantile(0.25),
                    "median": x.median(),
                    "q3": x.quantile(0.75),
                    "missing": x.isna().sum(),
                }
                for statistic, value in want.items():
                    line = found.line(shown, statistic, group)
                    assert line.value == pytest.approx(value, rel=1e-6, abs=1e-6), (name, statistic)
                    assert line.low <= line.value <= line.high  # type: ignore[operator]
            for level, value in part["smoker"].value_counts().items():
                count = found.line("smoker", "count", group, level)
                assert count.value == count.low == count.high == pytest.approx(value, abs=1e-6)
                share = found.line("smoker", "share", group, level).value
                assert share == pytest.approx(value / part["smoker"].notna().sum(), abs=1e-9)
            gone = found.line("smoker", "missing", group).value
            assert gone == pytest.approx(part["smoker"].isna().sum(), abs=1e-6)

    def test_standardised_differences(self) -> None:
        found = described(epsilon=math.inf)
        one, other = (FRAME.age[FRAME.arm == name] for name in ("drug", "placebo"))
        want = (one.mean() - other.mean()) / math.sqrt((one.var() + other.var()) / 2.0)
        assert found.line("age", "smd", "drug - placebo").value == pytest.approx(want, rel=1e-6)
        p, q = ((FRAME.died[FRAME.arm == name] == "yes").mean() for name in ("drug", "placebo"))
        want = (p - q) / math.sqrt((p * (1 - p) + q * (1 - q)) / 2.0)
        line = found.line("died", "smd", "drug - placebo", "yes")
        assert line.value == pytest.approx(want, rel=1e-6)

    def test_a_table_by_the_outcome_or_of_all_rows(self) -> None:
        died = described(by="died", epsilon=math.inf)
        assert died.groups == ("no", "yes")
        assert died.line("", "n", "yes").value == pytest.approx((FRAME.died == "yes").sum())
        whole = described(by=None, epsilon=1.0)
        assert whole.groups == () and whole.differences == ()
        # the number of all rows is public
        n = whole.line("", "n")
        assert n.value == n.low == n.high == N
        assert whole.line("arm", "share", "overall", "drug").value == pytest.approx(0.5, abs=0.1)


class TestNoise:
    @pytest.mark.parametrize("trust", ["nobody", "sum", "curator"])
    def test_the_budget_is_met_and_intervals_hold(self, trust: str) -> None:
        """Coverage of several hundred intervals of a table, by noise alone and with sampling."""
        exact = {one[:4]: one.value for one in described(epsilon=math.inf, trust=trust).table}
        held = []
        for seed in range(6):
            found = described(epsilon=3.0, trust=trust, seed=seed)
            assert 2.99 < found.statement.epsilon <= 3.0 and found.statement.simulated
            held += [
                one.low <= exact[one[:4]] <= one.high
                for one in found.table
                if one.low is not None and one.high is not None
            ]
        assert len(held) > 450 and np.mean(held) > 0.93

    def test_noise_errors_are_those_of_the_noise(self) -> None:
        """z scores of means and counts over seeds have variance 1, by a chi-squared test."""
        from scipy import stats

        exact = {one[:4]: one.value for one in described(epsilon=math.inf).table}
        z: dict[str, list[float]] = {"mean": [], "count": [], "n": [], "share": []}
        for seed in range(25):
            for one in described(epsilon=4.0, seed=seed).table:
                if one.statistic in z and one.group == "drug" and one.name in ("age", "died", ""):
                    assert one.value is not None and one.noise
                    z[one.statistic].append((one.value - exact[one[:4]]) / one.noise)
        for name, scores in z.items():
            # the two levels of a column tell the same
            own = np.array(scores)[:: 2 if name in ("share", "count") else 1]
            p = stats.chi2.sf(np.sum(own**2), len(own))
            assert 1e-4 < p < 1 - 1e-4, name

    def test_quartiles_of_whole_numbers_are_in_their_intervals(self) -> None:
        """Rows that heap at few places within a cell: the least interval still has them."""
        rng = np.random.default_rng(0)
        columns = {"years": {"kind": "number", "lo": 0, "hi": 110}}
        for seed in range(10):
            x = np.rint(rng.normal(60, 12, 20_000))
            found = describe(
                {"years": x}, schema=Schema.from_dict({"columns": columns}), epsilon=8.0, seed=seed
            )
            for statistic, value in (("q1", 52.0), ("median", 60.0), ("q3", 68.0)):
                line = found.line("years", statistic)
                assert line.low <= value <= line.high  # type: ignore[operator]
                assert line.high - line.low < 2.0  # type: ignore[operator]

    def test_what_noise_hides_is_not_printed(self) -> None:
        found = described(epsilon=0.3, trust="nobody", data=frame(300))
        hidden = [one for one in found.table if one.value is None]
        assert {one.statistic for one in hidden} >= {"median", "sd", "smd"}
        assert all(one.says and one.low is None and one.noise is None for one in hidden)
        assert "hidden by noise" in found.to_markdown() or "too few rows" in found.to_markdown()
        with pytest.raises(InvalidInput, match=r"^epsilon: is too small: a group's"):
            described(epsilon=0.001, trust="nobody", data=frame(300))

    def test_balance_of_means_and_shares(self) -> None:
        """Numbers with a narrow typical range get more of a row's norm than broad ones."""
        contents = Contents.from_schema(schema(), "arm")
        blocks = blocks_of_table(contents, [16] * len(contents.variables), known_rows=False)
        assert math.fsum(block.scale**2 for block in blocks) == pytest.approx(1.0)
        scale = {
            one.name: block.scale for one, block in zip(contents.variables, blocks[1:], strict=True)
        }
        assert scale["bmi"] < scale["smoker"] and scale["age"] < scale["smoker"]
        many = [len(block.edges) + 1 for block in blocks if isinstance(block, NumberSums)]
        assert many == [16, 16, 16, 16]
        bmi = next(one for one in contents.variables if one.name == "bmi")
        assert isinstance(bmi, Quantity)
        inside = bmi.middle + bmi.half * bmi.grid_edges(32)
        assert np.sum((inside >= 18) & (inside <= 40)) == 25  # 24 cells in the typical range
        cost = next(one for one in contents.variables if one.name == "cost")
        assert isinstance(cost, Quantity)
        ends = cost.middle + cost.half * cost.grid_edges(16)
        np.testing.assert_allclose(np.diff(np.log1p(ends)), np.log1p(5000) / 16, rtol=1e-6)

    def test_grids_are_as_fine_as_the_noise_allows(self) -> None:
        def cells(epsilon: float, n: int) -> int:
            run = RunConfig("auto", epsilon, 1e-5, trust="curator")
            recipe, _ = plan_description(Question(schema(), "arm"), [n], run)
            return max(block.cells for block in recipe.blocks if isinstance(block, NumberSums))

        assert cells(0.5, 2000) <= cells(3.0, 2000) <= cells(10.0, 100_000) == 257


class TestSites:
    def test_sites_that_answer_for_themselves_are_described_for_free(self) -> None:
        found = described(trust="nobody")
        assert found.sites == ("a", "b", "c") and len(found.asked) == 1
        for name, n in FRAME.hospital.value_counts().items():
            line = found.line("", "n", f"site: {name}")
            assert line.low < n + 40 and line.high > n - 40 and line.sampling == 0.0  # type: ignore[operator]

    @pytest.mark.parametrize("trust", ["sum", "curator"])
    def test_sums_by_site_take_half_of_the_budget(self, trust: str) -> None:
        if trust == "sum":
            assert described().sites == ()
        found = described(by_site=True, trust=trust, epsilon=math.inf)
        assert [one["share"] for one in found.asked] == [0.5, 0.5]
        for name, part in FRAME.groupby("hospital"):
            line = found.line("age", "mean", f"site: {name}")
            assert line.value == pytest.approx(part.age.mean(), rel=1e-6)

    def test_one_site(self) -> None:
        alone = described(data=FRAME.assign(hospital="a"), trust="nobody")
        assert alone.sites == () and alone.statement.per_node is not None
        dealt = described(partition="iid", nodes=4, trust="nobody")
        assert dealt.sites == ("site 0", "site 1", "site 2", "site 3")
        with pytest.raises(InvalidInput, match="partition"):
            described(partition="label", nodes=4)


class TestPeople:
    def test_of_every_person_the_first_row_is_read(self) -> None:
        people = FRAME.assign(who=np.arange(N) % 500)
        own = schema(person="who", site=None, ignore=["hospital"])
        found = described(data=people, schema=own, epsilon=math.inf, trust="curator")
        first = people[:500]
        assert found.line("age", "mean").value == pytest.approx(first.age.mean(), rel=1e-9)
        assert found.line("", "n").value == pytest.approx(500)
        private = described(data=people, schema=own, trust="curator")
        assert "person" in private.statement.unit
        assert any("first row of each person" in note for note in private.notes)
        other = people.copy()
        other.loc[600:, "age"] = 25
        again = described(data=other, schema=own, trust="curator")
        assert [one.value for one in again.table] == [one.value for one in private.table]


class TestLedger:
    def test_a_table_is_charged_stored_and_replayed(self, tmp_path: Path) -> None:
        DurableLedger.create(
            tmp_path / "l", epsilon=3.0, delta=1e-4, accountant="rdp", n_nodes=3
        ).close()
        with DurableLedger.open(tmp_path / "l") as book:
            first = described(ledger=book, seed=None)
            spent = book.total()
            assert 0.0 < spent <= 2.1 and not first.statement.simulated
            assert described(ledger=book, seed=None) == first and book.total() == spent
            with pytest.raises(BudgetExceeded):
                described(ledger=book, seed=None, by="died", epsilon=2.9)
            assert book.total() == spent
            with pytest.raises(LedgerMismatch):
                described(ledger=book, seed=None, epsilon=0.1, data=FRAME.assign(age=50))

    def test_the_charge_is_made_before_noise_is_drawn(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        DurableLedger.create(
            tmp_path / "l", epsilon=3.0, delta=1e-4, accountant="rdp", n_nodes=3
        ).close()

        def broken(*_: Any, **__: Any) -> None:
            raise OSError("no noise today")

        from sottovoce.privacy.noise import SystemNoise

        monkeypatch.setattr(SystemNoise, "add_gaussian", broken)
        with DurableLedger.open(tmp_path / "l") as book:
            with pytest.raises(OSError, match="no noise"):
                described(ledger=book, seed=None, trust="nobody")
            assert book.total() > 0.0

    def test_an_interrupted_run_goes_on_from_its_checkpoint(self, tmp_path: Path) -> None:
        path = tmp_path / "run.checkpoint"
        first = described(checkpoint=path, by_site=True)
        assert path.exists() and described(checkpoint=path, by_site=True) == first


class TestDegenerate:
    def test_a_column_that_is_empty_and_a_group_of_no_rows(self) -> None:
        data = FRAME.assign(bmi=np.nan, arm="drug")
        for epsilon in (2.0, math.inf):
            found = described(data=data, epsilon=epsilon)
            assert found.line("bmi", "mean").says == "too few rows for this noise"
            missing = found.line("bmi", "missing")
            assert missing.value == pytest.approx(N, abs=150)
            assert found.line("age", "mean", "placebo").value is None
            assert found.line("smoker", "share", "placebo", "now").value is None
            assert found.line("", "n", "placebo").value == pytest.approx(0.0, abs=60)
            difference = found.line("died", "smd", "drug - placebo", "yes")
            assert difference.value is None and difference.says

    def test_values_outside_bounds_are_clipped_and_told_to_the_holder(self) -> None:
        data = FRAME.assign(age=np.where(np.arange(N) < 7, 500, FRAME.age))
        found = described(data=data, epsilon=math.inf)
        want = data.age.clip(0, 120).mean()
        assert found.line("age", "mean").value == pytest.approx(want, rel=1e-9)
        said = [note for note in found.holder_notes if "'age' in 7 rows" in note]
        assert said and said[0] not in found.released()["notes"]

    def test_rows_in_no_group_are_in_no_number(self) -> None:
        data = FRAME.assign(arm=np.where(np.arange(N) < 100, "other", FRAME.arm))
        found = described(data=data, epsilon=math.inf)
        assert found.line("", "n").value == pytest.approx(N - 100)
        assert found.line("age", "mean").value == pytest.approx(data.age[100:].mean(), rel=1e-9)
        assert any("no group" in note for note in found.notes)
        columns = TRIAL["columns"] | {
            "arm": {"kind": "category", "values": ["placebo", "drug"], "other": True}
        }
        found = described(data=data, epsilon=math.inf, schema=schema(columns=columns))
        assert found.groups == ("placebo", "drug", "other")
        assert found.line("", "n", "other").value == pytest.approx(100)

    def test_a_level_called_overall_is_told_from_all_rows(self) -> None:
        data = {"x": np.arange(8.0), "arm": np.array(["overall", "b"] * 4)}
        columns = {
            "x": {"kind": "number", "lo": 0, "hi": 9},
            "arm": {"kind": "category", "values": ["overall", "b"]},
        }
        own = Schema.from_dict({"columns": columns})
        found = describe(data, schema=own, by="arm", epsilon=math.inf)
        assert found.groups == ("arm=overall", "b")
        assert found.line("", "n", "arm=overall").value == pytest.approx(4)

    def test_all_values_alike(self) -> None:
        found = described(data=FRAME.assign(age=40), epsilon=math.inf)
        assert found.line("age", "sd").value == pytest.approx(0.0, abs=1e-6)
        assert found.line("age", "median").value == pytest.approx(40.0, rel=1e-9)

    def test_what_cannot_be_described_is_refused_by_name(self) -> None:
        with pytest.raises(InvalidInput, match=r"by='age'.*use one of stage, smoker, arm, died"):
            described(by="age")
        with pytest.raises(InvalidInput, match=r"by='ward'"):
            described(by="ward")
        with pytest.raises(InvalidInput, match=r"^rounds_per_day: is no option"):
            described(rounds_per_day=3)
        with pytest.raises(InvalidInput, match="trains no model"):
            described(method="momentum")
        with pytest.raises(SchemaError, match="smoker"):
            described(data=FRAME.drop(columns="smoker"))
        with pytest.raises(InvalidInput, match="has no rows"):
            described(data=Table("t", {name: FRAME[name].to_numpy()[:0] for name in FRAME}))
        alone = {"columns": {"arm": TRIAL["columns"]["arm"]}}
        with pytest.raises(InvalidInput, match="leaves nothing"):
            describe(FRAME[["arm"]], schema=Schema.from_dict(alone), by="arm")

    def test_vectors_are_left_out_and_said(self) -> None:
        columns = TRIAL["columns"] | {
            "v": {"kind": "vector", "columns": ["p", "q"], "lo": 0, "hi": 1}
        }
        found = described(data=FRAME.assign(p=0.5, q=0.1), schema=schema(columns=columns))
        assert any("vectors" in note and "v" in note for note in found.notes)


class TestShown:
    def test_frames_markdown_and_pages_have_every_line(self) -> None:
        found = described()
        table = found.to_frame()
        assert list(table.columns) == [
            "name", "level", "group", "statistic", "value", "low", "high", "noise", "sampling", "says",
        ]  # fmt: skip
        assert len(table) == len(found.table)
        counts = table[table.statistic.isin(["n", "count", "missing"])]
        assert (counts.sampling.dropna() == 0).all()
        text = found.to_markdown()
        assert "| age, mean |" in text and "epsilon = 2.000" in text
        for page in (found._repr_html_(), found.to_html()):
            assert "age, mean" in page and "epsilon" in page
        assert "overall" in repr(found)
        plain = json.loads(json.dumps(found.to_dict()))
        assert plain["privacy"]["epsilon"] == pytest.approx(2.0, abs=0.01)
        assert plain["table"][0] == found.table[0].to_dict()

    def test_a_missing_value_is_missing_whatever_stands_for_it(self) -> None:
        found = described(epsilon=math.inf)
        assert found.line("bmi", "missing").value == pytest.approx(FRAME.bmi.isna().sum())
        assert found.line("stage", "missing").value == pytest.approx(FRAME.stage.isna().sum())
        assert GONE not in {one.level for one in found.table}

    def test_a_file_gives_the_table_of_its_frame(self, tmp_path: Path) -> None:
        FRAME.to_csv(tmp_path / "t.csv", index=False)
        one = describe(tmp_path / "t.csv", schema=schema(), by="arm", epsilon=2.0, trust="sum")
        other = described()
        for a, b in zip(one.table, other.table, strict=True):
            assert a[:4] == b[:4] and a.says == b.says
            assert a.says or a.value == pytest.approx(b.value, rel=1e-9)


OUTCOMES = {
    "event": (
        {"label": {"event": "died", "time": "days", "cuts": [30, 90]}},
        {"died": [1, 0, 0, 1], "days": [10.0, 90.0, 40.0, 80.0]},
        {"days": 55.0},
        {("died", "yes"): 2.0, ("died", "no"): 2.0},
    ),
    "count": (
        {
            "label": {"column": "falls", "lo": 0, "hi": 10, "family": "poisson"},
            "offset": {"column": "years", "lo": 0.5, "hi": 4},
        },
        {"falls": [0, 2, 1, 3], "years": [1.0, 2.0, 2.0, 4.0]},
        {"falls": 1.5, "years": 2.25},
        {},
    ),
}


@pytest.mark.parametrize("label", OUTCOMES)
def test_events_with_times_and_counts_are_described(label: str) -> None:
    declared, columns, means, counts = OUTCOMES[label]
    age = {"kind": "number", "lo": 0, "hi": 90}
    schema = Schema.from_dict(declared | {"name": "outcomes", "columns": {"age": age}})
    frame = columns | {"age": [20.0, 30.0, 40.0, 50.0]}
    found = describe(frame, schema=schema, epsilon=math.inf, trust="curator", nodes=1, seed=0)
    values = {(line.name, line.level, line.statistic): line.value for line in found.table}
    for name, mean in means.items():
        assert values[name, "", "mean"] == pytest.approx(mean)
    for (name, level), count in counts.items():
        assert values[name, level, "count"] == pytest.approx(count)
