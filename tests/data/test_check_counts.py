"""Counts of every declared column: exact, located, without values, and in step with what
encoding does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sottovoce.data import Schema, Table, fill, review
from sottovoce.data.check import Review
from sottovoce.data.column_counts import ColumnCounts, classify_unreadable_text, fold_text

AGE = {"age": {"kind": "number", "lo": 0, "hi": 120}}
LABEL = {"column": "y", "positive": "yes", "negative": "no"}


def texts(*values: object) -> Any:
    return np.array(values, dtype=object)


def checked(columns: dict[str, Any], table: dict[str, Any], **more: Any) -> Review:
    n = len(next(iter(table.values())))
    own = {"label": LABEL} | more
    table = {"y": texts(*(["yes", "no"] * n)[:n])} | table
    return review(Schema.from_dict({"columns": columns} | own), Table("t", table))


def of(found: Review, column: str) -> ColumnCounts:
    return next(one for one in found.columns if one.column == column)


class TestNumbers:
    @pytest.mark.parametrize(
        ("odd", "kind"),
        [
            ("<0.5", "a limit (< or >)"),
            ("> 300", "a limit (< or >)"),
            ("≤4", "a limit (< or >)"),
            ("41,5", "a comma (decimal, or of thousands)"),
            ("1,234,567.5", "a comma (decimal, or of thousands)"),
            ("1 234 567", "other separators of thousands"),
            ("1.234.567,5", "other separators of thousands"),
            ("12 kg", "a number with a unit or a sign"),
            ("$12", "a number with a unit or a sign"),
            ("5%", "a number with a unit or a sign"),
            ("nan", "NaN or infinite"),
            ("-inf", "NaN or infinite"),
            ("NA", "a usual mark of missing values"),
            ("N/A", "a usual mark of missing values"),
            ("?", "a usual mark of missing values"),
            ("#N/A", "a usual mark of missing values"),
            ("old", "other text"),
        ],
    )
    def test_unreadable_numbers_are_counted_located_and_described(
        self, odd: str, kind: str
    ) -> None:
        assert classify_unreadable_text(odd) == kind
        found = checked(AGE, {"age": texts("4", odd, "5", odd, "300", "-1")})
        counts = of(found, "age")
        assert counts.counts["not a number"] == 2 and counts.rows["not a number"] == (2, 4)
        assert counts.counts[f"as {kind}"] == 2
        assert (counts.counts["below"], counts.counts["above"]) == (1, 1)
        assert len(found.refused) == 1 and found.refused[0].startswith("age: ")
        [unread] = [one for one in found.counts if one.what.startswith("not a number")]
        assert (unread.rows, unread.where, unread.fits) == (2, (2, 4), False)

    @pytest.mark.parametrize(
        "block",
        [
            {"kind": "number", "lo": 0, "hi": 10},
            {"kind": "number", "lo": 0, "hi": 10, "missing": 3},
            {
                "kind": "number",
                "lo": 0,
                "hi": 10,
                "transform": "log1p",
                "typical": [2, 5],
                "missing": 3,
            },
            {"kind": "bins", "edges": [0, 5, 10], "missing": 2},
            {"kind": "bins", "edges": [0, 5, 10], "indicator": True},
            {"kind": "spline", "knots": [0, 4, 10], "missing": 2},
        ],
    )
    def test_counts_are_those_of_the_encoding(self, block: dict[str, Any]) -> None:
        rng = np.random.default_rng(0)
        stands = "missing" in block or "indicator" in block
        for _ in range(20):
            values = [str(x) for x in np.round(rng.normal(5, 6, 40), 2)]
            if stands:
                values[int(rng.integers(40))] = rng.choice(["", "?"])
            if rng.random() < 0.3:
                values[int(rng.integers(40))] = rng.choice(["x", "1e999", "inf", "--"])
            schema = Schema.from_dict({"columns": {"a": block}, "na": ["?"], "label": LABEL})
            table = Table("t", {"a": texts(*values), "y": texts(*["yes", "no"] * 20)})
            found = review(schema, table)
            counts = of(found, "a").counts
            assert bool(found.refused) == bool(counts["not a number"])
            if not found.refused:
                assert counts["below"] + counts["above"] == schema.encode(table).clipped.get("a", 0)

    @pytest.mark.parametrize("kind", [np.float64, np.float32])
    def test_typed_columns_are_counted_too(self, kind: type) -> None:
        found = checked(AGE, {"age": np.array([1, np.nan, np.inf, 500, -3], dtype=kind)})
        assert of(found, "age").rows == {"not a number": (2, 3), "below": (5,), "above": (4,)}
        whole = checked(AGE, {"age": np.array([1, 999, 500], dtype=np.int32)}, na=["999"])
        assert of(whole, "age").rows == {"missing": (2,), "above": (3,)} and len(whole.refused) == 1

    def test_days_and_vectors_are_counted(self) -> None:
        day = {"d": {"kind": "date", "epoch": "2020-01-01", "lo": "2020-01-01", "hi": "2020-12-31"}}
        days = of(
            checked(day, {"d": texts("2020-03-01", "1.2.2020", "2019-01-01", "2021-05-05", "")}),
            "d",
        )
        assert days.rows == {"missing": (5,), "not a date": (2,), "below": (3,), "above": (4,)}
        vector = {"v": {"kind": "vector", "columns": ["a", "b"], "lo": 0, "hi": 1, "norm": 0.5}}
        pair = {"a": texts("0.1", "x", "0.1", "0.4"), "b": texts("0.1", "7", "-1", "0.4")}
        found = of(checked(vector, pair), "v")
        assert found.rows == {
            "not a number": (2,),
            "below": (3,),
            "above": (2,),
            "beyond the norm": (2, 4),
        }

    def test_only_the_first_rows_are_named(self) -> None:
        found = checked(AGE, {"age": texts(*["x"] * 50)})
        [one] = [one for one in found.counts if one.rows == 50]
        shown, others = one.located.split(" and ")
        assert one.where == (1, 2, 3, 4, 5) and others == "45 more"
        assert shown == f"rows {', '.join(map(str, one.where))}"


class TestClipped:
    @pytest.mark.parametrize(
        ("block", "value"),
        [
            ({"kind": "number", "lo": 0, "hi": 1}, "50"),
            ({"kind": "number", "lo": 100, "hi": 200}, "50"),
            ({"kind": "bins", "edges": [60, 70, 80]}, "50"),
            ({"kind": "spline", "knots": [0, 1, 2]}, "50"),
            ({"kind": "number", "lo": 0, "hi": 120, "scale": None}, "1e9"),
            ({"kind": "category", "values": ["a", "b"]}, "50"),
        ],
    )
    def test_column_clipped_in_most_rows_gets_a_note(
        self, block: dict[str, Any], value: str
    ) -> None:
        block = {key: entry for key, entry in block.items() if entry is not None}
        found = checked({"a": block}, {"a": texts(*[value] * 8)})
        assert not found.fine and not found.refused
        assert [note.partition(":")[0] for note in found.notes] == [
            "a"
        ] and "a: all of" in found.notes[0]
        assert found.counts[0].rows == 8

    def test_a_few_clipped_rows_are_counted_and_need_no_note(self) -> None:
        found = checked(AGE, {"age": texts("130", *["5"] * 19)})
        assert found.notes == () and not found.fine and found.counts[0].where == (1,)

    def test_clipped_or_missing_numeric_labels_get_a_note(self) -> None:
        label = {"column": "y", "lo": 100, "hi": 200}
        found = checked(
            AGE, {"age": texts("1", "2", "3"), "y": texts("10", "11", "x")}, label=label
        )
        assert of(found, "y").rows == {"not a number": (3,), "below": (1, 2)}
        assert any("clipped" in note for note in found.notes) and not found.fine
        none = checked(AGE, {"age": texts("1", "2"), "y": texts("long", "")}, label=label)
        assert of(none, "y").counts["missing"] == of(none, "y").counts["not a number"] == 1
        assert any("number to predict" in note for note in none.notes) and none.refused == ()

    @pytest.mark.parametrize(
        ("scale", "fine"), [(0.01, False), (0.2, False), (0.9, True), (None, True)]
    )
    def test_scale_that_clips_most_rows_gets_a_note(self, scale: float | None, fine: bool) -> None:
        more = {} if scale is None else {"scale": scale}
        found = checked(AGE, {"age": texts(*map(str, range(0, 120, 3)))}, **more)
        assert found.fine is fine
        assert bool(found.notes) is not fine

    @pytest.mark.parametrize("share", [0.05, 0.5, 0.8, 0.9, 0.99, 0.9999])
    @pytest.mark.parametrize("intercept", [0.0, 0.5])
    def test_schema_that_clips_all_synthetic_rows_is_not_fine(
        self, share: float, intercept: float
    ) -> None:
        levels = {
            "a": {"kind": "category", "values": ["u", "v", "w"]},
            "b": {"kind": "bins", "edges": [0, 1, 2]},
        }
        plain = Schema.from_dict({"columns": levels, "intercept": intercept})
        found = fill(replace(plain, scale=share * plain.bound))
        assert found.shortened == 1.0 and not found.fine
        assert found.scale == pytest.approx(plain.bound)
        assert any(line.startswith("leave scale out") for line in found.changes)
        assert fill(plain).fine


class TestLabels:
    @pytest.mark.parametrize(
        ("label", "values", "levels", "missing", "undeclared"),
        [
            (LABEL, ["yes", "no", "", "maybe", "Yes"], {"no": 1, "yes": 1}, 1, 2),
            (
                {"column": "y", "positive": "yes"},
                ["yes", "no", "", "maybe"],
                {"not yes": 2, "yes": 1},
                1,
                0,
            ),
            (
                {"column": "y", "values": ["a", "b", "c"]},
                ["a", "b", "b", "d", ""],
                {"a": 1, "b": 2, "c": 0},
                1,
                1,
            ),
            (
                {"column": "y", "values": ["missing", "b"]},
                ["missing", "b", ""],
                {"missing": 1, "b": 1},
                1,
                0,
            ),
        ],
    )
    def test_rows_of_every_declared_label_are_counted(
        self,
        label: dict[str, Any],
        values: list[str],
        levels: dict[str, int],
        missing: int,
        undeclared: int,
    ) -> None:
        found = checked(AGE, {"age": texts(*["5"] * len(values)), "y": texts(*values)}, label=label)
        mine = of(found, "y")
        assert mine.levels == levels
        assert (mine.counts["missing"], mine.counts["undeclared"]) == (missing, undeclared)
        assert found.refused == ()

    @pytest.mark.parametrize(
        ("label", "value", "told"),
        [
            (LABEL, "no", "no row is positive ('yes')"),
            (LABEL, "yes", "no row is negative ('no')"),
            (LABEL, "", "all of the rows have no declared label"),
            (LABEL, "YES", "rows differ from the declared 'yes'"),
            ({"column": "y", "positive": "yes"}, "Yes", "row differs from the declared 'yes'"),
            ({"column": "y", "positive": "yes"}, "yes", "no row is negative"),
            ({"column": "y", "values": ["a", "b", "c"]}, "a", "no row is of the class 'b'"),
        ],
    )
    def test_declared_class_without_rows_gets_a_note(
        self, label: dict[str, Any], value: str, told: str
    ) -> None:
        n = 1 if "row differs" in told else 6
        found = checked(AGE, {"age": texts(*["5"] * n), "y": texts(*[value] * n)}, label=label)
        assert any(told in note for note in found.notes) and not found.fine and found.refused == ()

    @pytest.mark.parametrize("mark", ["NA", "n/a", "?", "None", "unknown", "-", "."])
    def test_missing_marks_that_would_train_as_negative_get_a_note(self, mark: str) -> None:
        values = ["yes", "no", mark, mark, "yes", "no"]
        found = checked(
            AGE,
            {"age": texts(*["5"] * 6), "y": texts(*values)},
            label={"column": "y", "positive": "yes"},
        )
        assert not found.fine


class TestSpelling:
    @pytest.mark.parametrize(
        "odd", ["Basic", "BASIC ", "basic\u00a0", "ｂａｓｉｃ", "\tBasic\n", "baſic"]
    )
    def test_a_level_in_other_letters_is_hinted_at_by_the_declared_one(self, odd: str) -> None:
        block = {"plan": {"kind": "category", "values": ["basic", "premium"]}}
        found = checked(block, {"plan": texts("basic", odd, "premium", "gold")})
        assert fold_text(odd) == "basic"
        counts = of(found, "plan").counts
        if counts["undeclared"] == 1:  # read as the declared one
            assert counts["near"] == 0
            return
        assert (counts["undeclared"], counts["near"], counts["undeclared texts"]) == (2, 1, 2)
        hints = [note for note in found.notes if "'basic'" in note]
        declared_mapping = 'values = { basic = ["basic", ...] }'
        assert len(hints) == 1 and declared_mapping in hints[0]
        assert odd.strip() not in " ".join(found.notes).replace("basic", "")
        assert "gold" not in str(found.to_dict())

    def test_the_mapping_form_takes_all_spellings(self) -> None:
        block = {
            "plan": {
                "kind": "category",
                "values": {"basic": ["basic", "Basic"], "premium": ["premium"]},
            }
        }
        found = checked(block, {"plan": texts("basic", "Basic ", "premium", "basic")})
        assert found.fine and of(found, "plan").levels == {"basic": 3, "premium": 1}

    @pytest.mark.parametrize(("key", "column"), [("site", "where"), ("person", "who")])
    def test_site_and_person_names_differing_in_case_get_a_note(
        self, key: str, column: str
    ) -> None:
        found = checked(
            AGE, {"age": texts("1", "2", "3"), column: texts("P1", "p1", "P2")}, **{key: column}
        )
        assert found.refused == () and not found.fine
        assert found.notes[0].startswith(f"{column}: 1 name")


class TestRoles:
    def test_sites(self) -> None:
        n = 40
        where = ["a"] * 20 + ["b"] * 12 + ["c"] * 5 + [""] * 3
        y = ["yes", "no"] * 10 + ["yes"] * 12 + [""] * 5 + ["no"] * 3
        found = checked(
            AGE, {"age": texts(*["5"] * n), "where": texts(*where), "y": texts(*y)}, site="where"
        )
        mine = of(found, "where")
        assert (mine.counts["sites"], mine.counts["smallest"], mine.counts["largest"]) == (3, 5, 20)
        assert mine.counts["missing"] == 3 and mine.rows["missing"] == (38, 39, 40)
        small, one_class, unlabelled = (
            "sites of fewer than 10 rows",
            "sites of one class",
            "sites without a label",
        )
        assert [mine.counts[key] for key in (small, one_class, unlabelled)] == [1, 1, 1]
        assert len(found.refused) == 1 and "site" in found.refused[0]

    def test_people(self) -> None:
        who = ["p1"] * 5 + ["p2"] * 2 + ["p3", "", ""]
        where = ["a", "a", "a", "b", "b", "a", "a", "a", "a", "a"]
        table = {"age": texts(*["5"] * 10), "who": texts(*who), "where": texts(*where)}
        found = checked(AGE, table, site="where", person={"column": "who", "rows": 2})
        mine = of(found, "who")
        expected_counts = {
            "people": 3,
            "most rows of a person": 5,
            "most sites of a person": 2,
            "left out": 1,
        }
        assert expected_counts.items() <= mine.counts.items()
        assert mine.rows == {"missing": (9, 10), "left out": (3,)} and len(found.refused) == 1
        del table["where"]
        assert checked(AGE, table, person="who").refused == found.refused

    def test_weights(self) -> None:
        table = {"age": texts(*["5"] * 6), "w": texts("1", "-2", "x", "", "9", "0")}
        found = checked(AGE, table, weight={"column": "w", "max": 3})
        assert of(found, "w").rows == {
            "missing": (4,),
            "not a number": (3,),
            "negative": (2,),
            "above": (5,),
            "zero": (6,),
        }
        assert len(found.refused) == 1
        idle = checked(AGE, table | {"w": texts(*["0"] * 6)}, weight={"column": "w", "max": 3})
        assert any("weight is 0" in note for note in idle.notes) and idle.refused == ()

    def test_every_declared_column_has_its_counts(self) -> None:
        columns = AGE | {
            "b": {"kind": "category", "values": ["u"]},
            "c": {"kind": "squares", "of": ["age"]},
        }
        table = {
            "age": texts("1", "2"),
            "b": texts("u", "u"),
            "who": texts("1", "2"),
            "w": texts("1", "1"),
        }
        found = checked(columns, table, person="who", weight={"column": "w", "max": 1})
        assert [(one.column, one.role) for one in found.columns] == [
            ("y", "label"),
            ("who", "person"),
            ("w", "weight"),
            ("age", "feature"),
            ("b", "feature"),
        ]
        assert found.fine

    def test_columns_are_counted_although_another_column_is_refused(self) -> None:
        table = {
            "age": texts("x", "2"),
            "who": texts("", "2"),
            "w": texts("-1", "1"),
            "where": texts("", "a"),
        }
        found = checked(AGE, table, person="who", weight={"column": "w", "max": 1}, site="where")
        assert len(found.refused) == 4
        assert {one.column for one in found.columns} == {"y", "who", "w", "where", "age"}

    def test_frames_are_read_as_training_reads_them(self) -> None:
        pd = pytest.importorskip("pandas")
        frame = pd.DataFrame(
            {
                "age": [4.0, np.nan, 500.0, 7.0],
                "b": pd.Categorical(["u", None, "U", "u"]),
                "y": ["yes", None, "no", "yes"],
                "where": ["n", "n", None, "s"],
            }
        )
        columns = {"age": AGE["age"] | {"missing": 40}, "b": {"kind": "category", "values": ["u"]}}
        found = review(
            Schema.from_dict({"columns": columns, "label": LABEL, "site": "where"}), frame
        )
        assert of(found, "age").rows == {"missing": (2,), "above": (3,)}
        assert of(found, "b").rows == {"missing": (2,), "undeclared": (3,), "near": (3,)}
        assert of(found, "y").rows == {"missing": (2,)} and of(found, "y").levels == {
            "no": 1,
            "yes": 2,
        }
        assert of(found, "where").rows == {"missing": (3,)} and len(found.refused) == 1

    def test_no_value_is_shown(self) -> None:
        odd = [f"quarz{k}berg" for k in range(12)]
        columns = AGE | {"b": {"kind": "category", "values": ["u"]}}
        table = {name: texts(*odd) for name in ("age", "b", "who", "w", "where", "y")}
        found = checked(
            columns, table, person="who", weight={"column": "w", "max": 1}, site="where"
        )
        assert "quarz" not in str(found.to_dict())
