"""All mistakes of a schema at once, each with the entry it names; drafts; what is unknown and
what is missing.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.data import Schema, Table, builtin_schema, read_parquet, review
from sottovoce.data.draft import draft, toml_of
from sottovoce.data.meant import suggest_spelling
from sottovoce.data.mistakes import check, check_file
from sottovoce.data.schema import describe_unfit_rows
from sottovoce.errors import InvalidInput, SchemaError

MANY = """
intercep = true
ignore = "id"
scale = "2"
label = { name = "income", positive = 1 }

[columns.age]
kind = "number"
min = 0
max = 120

[columns.bmi]
kind = "number"
lo = 50
hi = 10
weight = -1

[columns.ward]
kind = "categorical"

[columns.sex]
kind = "category"
values = ["a", "a"]

[columns.stay]
kind = "number"
lo = 0
hi = 1
typical = [2, 3]
missing = "x"
to = "[0,2]"

[columns.day]
kind = "date"
epoch = "2020-01-01"
lo = "?"
hi = "2021-01-01"
"""
WRONG = {
    "intercep": "did you mean intercept?",
    "ignore": "",
    "scale": "",
    "label.name": "did you mean column?",
    "age.min": "did you mean lo?",
    "age.max": "did you mean hi?",
    "bmi.lo, hi": "",
    "bmi.weight": "",
    "ward.kind": "did you mean category?",
    "ward.values": "is missing",
    "sex.values": "",
    "stay.typical": "",
    "stay.missing": "",
    "stay.to": "",
    "day.lo": "not filled in",
}


class TestMistakes:
    def test_every_mistake_names_its_entry_and_suggests_the_spelling(self, tmp_path: Path) -> None:
        (tmp_path / "s.toml").write_text(MANY)
        found = check_file(tmp_path / "s.toml")
        assert found.schema is None
        fields = {line.partition(":")[0].partition("=")[0]: line for line in found.mistakes}
        assert fields.keys() == WRONG.keys()
        for field, told in WRONG.items():
            assert told in fields[field], field

    def test_valid_schema_has_no_mistakes_and_is_returned_unchanged(self, tmp_path: Path) -> None:
        for name in ("adult", "mnist37", "covertype", "census-us", "census-brazil"):
            schema = builtin_schema(name)
            (tmp_path / f"{name}.toml").write_text(toml_of(schema, ["one line", "two\nlines"]))
            assert check_file(tmp_path / f"{name}.toml") == (schema, ())

    @pytest.mark.parametrize(
        "given",
        [
            {},
            {"columns": 3},
            {"columns": {"a": 3}},
            {"columns": {"a": {}}},
            {"columns": {"a": {"kind": 3}}},
            {"columns": {"a": {"kind": "number", "lo": [], "hi": {}}}},
            {"label": 3, "weight": []},
            {
                "columns": {"a": {"kind": "number", "lo": 0, "hi": 1}},
                "label": {"column": "a", "positive": "x"},
            },
            {"columns": {"a": {"kind": "number", "lo": 0, "hi": 1}}, "scale": 9},
            {"columns": {"a": {"kind": "number", "lo": 0, "hi": 1}}, "class_weight": "balanced"},
        ],
    )
    def test_it_finds_a_mistake_exactly_where_a_schema_is_refused(
        self, given: dict[str, Any]
    ) -> None:
        with pytest.raises(SchemaError):
            Schema.from_dict(given)
        assert check(given).mistakes and check(given).schema is None

    def test_a_block_that_is_wrong_causes_no_other_mistake(self) -> None:
        fine = {"kind": "number", "lo": 0, "hi": 1}
        found = check({"columns": {"a": fine, "b": {"kind": "?"}}, "scale": 1.3, "intercept": True})
        assert [line.partition(":")[0] for line in found.mistakes] == ["b.kind"]
        labelled = {
            "label": {"column": "y", "positve": "x"},
            "class_weight": {"x": 2},
            "columns": {"a": fine},
        }
        assert [line.partition(":")[0] for line in check(labelled).mistakes] == ["label.positve"]

    @pytest.mark.parametrize(
        ("key", "known", "name"),
        [
            ("min", ["lo", "hi"], "lo"),
            ("Upper", ["lo", "hi"], "hi"),
            ("levels", ["values"], "values"),
            ("typicl", ["typical", "lo"], "typical"),
            ("reference", ["base"], "base"),
        ],
    )
    def test_misspelled_and_renamed_entries_get_suggestions(
        self, key: str, known: list[str], name: str
    ) -> None:
        assert suggest_spelling(key, known) == f"did you mean {name}?"
        assert suggest_spelling("zebra", known) == ""

    def test_training_names_the_right_entry_too(self) -> None:
        with pytest.raises(SchemaError, match=r"^age\.min: .*mean lo\?"):
            Schema.from_dict({"columns": {"age": {"kind": "number", "min": 0, "hi": 1}}})


class TestUnknownAndMissing:
    VALUES = ("u", "v", "typo", "", "typo", "?", "u")

    @pytest.mark.parametrize(
        ("more", "counts", "missing"),
        [
            ({"other": True}, {"(other) a": 2}, "missing: counts as other"),
            ({}, {"a": 2, "(missing) a": 2}, "missing: encoded without a level"),
            ({"indicator": True}, {"a": 2}, "missing: counts as a level of its own"),
            (
                {"other": True, "indicator": True},
                {"(other) a": 2},
                "missing: counts as a level of its own",
            ),
            ({"missing": "u"}, {"a": 2}, "missing: counts as u"),
        ],
    )
    def test_unknown_and_missing_values_are_counted_separately(
        self, more: dict[str, Any], counts: dict[str, int], missing: str
    ) -> None:
        block = {"kind": "category", "values": ["u", "v"]} | more
        schema = Schema.from_dict(
            {"na": ["?"], "columns": {"a": block}, "label": {"column": "y", "positive": "1"}}
        )
        table = Table(
            "t", {"a": np.array(self.VALUES, dtype=object), "y": np.arange(len(self.VALUES)) % 2}
        )
        assert schema.encode(table).clipped == counts
        told = {one.what: one.rows for one in review(schema, table).counts}
        unknown = "undeclared value: " + (
            "counts as other" if "other" in more else "encoded without a level"
        )
        assert told == {unknown: 2, missing: 2}
        notes = describe_unfit_rows(schema.encode(table).clipped)
        count_as_other = [note for note in notes if "count as other: " in note]
        assert len(count_as_other) == ("other" in more)
        assert all("'a' in 2" in note for note in count_as_other)
        assert "typo" not in " ".join(notes)

    def test_old_files_keep_their_encoding(self) -> None:
        block = {"kind": "category", "values": ["u", "v"], "other": True}
        schema = Schema.from_dict({"columns": {"a": block}})
        X = schema.encode({"a": np.array(self.VALUES, dtype=object)}, labels=False).X
        assert (X > 0).astype(int).tolist() == [
            [1, 0, 0],
            [0, 1, 0],
            [0, 0, 1],
            [0, 0, 1],
            [0, 0, 1],
            [0, 0, 1],
            [1, 0, 0],
        ]
        assert (
            schema.fingerprint == "373523ebd96fa9aad49bcbe1ab3186592c49c20b6a677cbe94e2ed8117a6e0c4"
        )


class TestDrafts:
    def test_draft_reads_only_the_column_names_of_a_csv_file(self, tmp_path: Path) -> None:
        rows = tmp_path / "rows.csv"
        rows.write_bytes(b'age,"blood pressure",ward,outcome\n' + b"\xff\xfe not CSV at all\n" * 3)
        text = draft(rows, label="outcome", ignore=["ward"])
        given = tomllib.loads(text)
        assert list(given["columns"]) == ["age", "blood pressure"] and given["ignore"] == ["ward"]
        assert given["label"] == {"column": "outcome", "positive": "?", "negative": "?"}
        of_people = tomllib.loads(draft(rows, person="ward", site="age"))
        assert (of_people["person"], of_people["site"]) == (
            "ward",
            "age",
        ) and "ward" not in of_people["columns"]
        fields = [line.partition("=")[0].partition(":")[0] for line in check(given).mistakes]
        assert fields == ["age.kind", "blood pressure.kind", "label.positive", "label.negative"]

    def test_draft_from_declared_types_reads_no_value(self, tmp_path: Path) -> None:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        table = pa.table(
            {
                "age": pa.array([41, None]),
                "dose": pa.array([7.25, 8.5]),
                "ill": pa.array([True, None]),
                "ward": pa.array(["quarzberg", None]).dictionary_encode(),
                "name": ["tannfels", "ulmenau"],
                "day": pa.array([18262, None], pa.date32()),
                "at": pa.array([1, None], pa.timestamp("us", "UTC")),
                "pixels": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64(), 2)),
                "odd": pa.array([[1.0], [3.0, 4.0]]),
            }
        )
        pq.write_table(table, tmp_path / "t.parquet")
        text = draft(tmp_path / "t.parquet", types=True)
        kinds = {name: block["kind"] for name, block in tomllib.loads(text)["columns"].items()}
        assert kinds == {
            "age": "number",
            "dose": "number",
            "ill": "category",
            "ward": "category",
            "name": "category",
            "day": "date",
            "at": "date",
            "pixels": "vector",
            "odd": "?",
        }
        assert tomllib.loads(text)["columns"]["ill"]["values"] == ["false", "true"]
        for value in ("quarzberg", "tannfels", "ulmenau", "41", "7.25", "2020-01-01\n"):
            assert value not in text.replace('such as "2020-01-01"', "")
        plain = tomllib.loads(draft(tmp_path / "t.parquet"))["columns"]
        assert {block["kind"] for block in plain.values()} == {"?"}

    @pytest.mark.parametrize(
        "first", [b"41,2020-01-01,quarzberg\n", b"a,a\n", b"a,,b\n", b"", b'"a\n']
    )
    def test_draft_does_not_contain_a_first_row_of_data(self, tmp_path: Path, first: bytes) -> None:
        (tmp_path / "rows.csv").write_bytes(first + b"1,2,3\n")
        with pytest.raises(InvalidInput) as refused:
            draft(tmp_path / "rows.csv")
        assert "quarzberg" not in str(refused.value) and "41" not in str(refused.value)

    def test_draft_quotes_names_as_toml_requires(self, tmp_path: Path) -> None:
        names = ['say "hi"', "back\\slash", "a.b", "umläut", "x\x7fy", "#"]
        block = {"kind": "number", "lo": 0, "hi": 1e90, "missing": 0.1}
        schema = Schema.from_dict(
            {"name": names[0], "na": names, "columns": dict.fromkeys(names, block)}
        )
        (tmp_path / "s.toml").write_text(toml_of(schema))
        assert Schema.from_toml(tmp_path / "s.toml") == schema

    def test_types_are_not_guessed_from_a_csv_file(self, tmp_path: Path) -> None:
        (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
        with pytest.raises(InvalidInput, match=r"^types=True: .*\.parquet, \.dta, "):
            draft(tmp_path / "rows.csv", types=True)
        with pytest.raises(InvalidInput, match=r"^label.*mean a"):
            draft(tmp_path / "rows.csv", label="A")


def test_parquet_types_are_read_as_what_they_are(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table(
        {
            "age": pa.array([41, None, 60], pa.int32()),
            "ill": pa.array([True, None, False]),
            "ward": pa.array(["north", None, "south"]).dictionary_encode(),
            "day": pa.array([18262, None, 18628], pa.date32()),
            "at": pa.array([0, None, 86_400_000_000], pa.timestamp("us", "Europe/Paris")),
            "pixels": pa.array([[3.0, 4.0], [0.0, 1.0], [6.0, 8.0]], pa.list_(pa.float32(), 2)),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    day = {"kind": "date", "epoch": "2020-01-01", "lo": 0, "hi": 366, "missing": 0, "to": "[0,1]"}
    schema = Schema.from_dict(
        {
            "columns": {
                "age": {"kind": "number", "lo": 0, "hi": 100, "missing": 50},
                "ill": {"kind": "category", "values": ["false", "true"], "indicator": True},
                "ward": {"kind": "category", "values": ["north", "south"], "indicator": True},
                "day": day,
                "at": day | {"epoch": "1970-01-01", "hi": 2},
                "pixels": {"kind": "vector", "size": 2, "lo": 0, "hi": 10, "norm": 10},
            }
        }
    )
    X = schema.encode(read_parquet(tmp_path / "t.parquet"), labels=False).X * schema.divisor
    np.testing.assert_allclose(
        X,
        [
            [-0.18, 0, 1, 0, 1, 0, 0, 0, 0, 0.3, 0.4],
            [0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0.1],
            [0.2, 1, 0, 0, 0, 1, 0, 1, 0.5, 0.6, 0.8],
        ],
        rtol=1e-6,
        atol=1e-12,
    )


def test_derived_columns_are_checked_after_their_sources():
    number = {"kind": "number", "lo": 0, "hi": 1}
    both = {"kind": "pairs", "of": ["a", "b"]}
    assert check({"columns": {"ab": both, "a": number, "b": number}}).schema is not None
    told = check({"columns": {"ab": both, "a": {"kind": "number", "lo": 0}, "b": number}}).mistakes
    assert len(told) == 1 and told[0].startswith("a.hi")  # one mistake, told once
    (told_of,) = check(
        {"columns": {"ab": {"kind": "pairs", "of": ["a", "z"]}, "a": number}}
    ).mistakes
    assert told_of.startswith("ab.of='z'")
    twice = {
        "a": number,
        "s": {"kind": "squares", "of": ["a"]},
        "q": {"kind": "squares", "of": ["s"]},
    }
    (told_of,) = check({"columns": twice}).mistakes
    assert told_of.startswith("q.of='s'")
