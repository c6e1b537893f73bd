"""Odd files and frames as people have them: one odd value changes no other row, no value of a
row gets into a draft or a message, what is wrong is named, and drafts are TOML."""

from __future__ import annotations

import gzip
import re
import tomllib
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce import ConsensusClassifier
from sottovoce.data import Schema, read_table
from sottovoce.data.check import review
from sottovoce.data.column_counts import classify_unreadable_text, fold_text
from sottovoce.data.draft import draft
from sottovoce.data.file_formats import column_types
from sottovoce.data.frames import read_frame
from sottovoce.data.headers import check_declared_names
from sottovoce.data.values import column_as_numbers, value_as_number
from sottovoce.errors import InvalidInput, SchemaError

# the same bytes in every process, and so the same names of tests
gzipped = partial(gzip.compress, mtime=0)

ROWS = "53.238,quarzberg,83.81\n55.608,tannfels,124.61\n"
PRIVATE = re.compile(r"quarzberg|tannfels|53\.238|83\.81|55\.608|124\.61")
FAR = 2**31 - 1  # days: the year 5881580


def written(folder: Path, content: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def told(path: Path) -> str:
    """What a draft of a refused file says, which is nothing of its rows."""
    with pytest.raises(InvalidInput) as caught:
        draft(path)
    text = f"{caught.value.rule} {caught.value.remedy}"
    assert not PRIVATE.search(text)
    return text


class TestWhatIsNoHeader:
    """A schema is public, so what may be data is refused rather than drafted."""

    @pytest.mark.parametrize(
        "first",
        [
            "# made by LIMS, on Monday, by quarzberg",
            "## quarzberg, tannfels",
            "// made, by quarzberg",
            "-- made, by quarzberg",
            "/* made, by quarzberg */",
            "% made, by quarzberg",
        ],
    )
    def test_comment_lines_are_recognised_whatever_separators_they_hold(
        self, tmp_path: Path, first: str
    ) -> None:
        assert "comment" in told(written(tmp_path, f"{first}\nage,sex,bp\n{ROWS}"))

    @pytest.mark.parametrize(
        "first",
        [
            "MRN00001,quarzberg,sick",
            "P-001,quarzberg,sick",
            "PT_0012,quarzberg,sick",
            "12.5kg,quarzberg,sick",
            "quarzberg,72,5 kg",
            "DE89 3704 0044 0532 0130 00,quarzberg,sick",
            "GB82WEST12345698765432,quarzberg,x",
            "52.5N,quarzberg,sick",
        ],
    )
    def test_rows_with_a_code_or_a_quantity_are_refused(self, tmp_path: Path, first: str) -> None:
        told(written(tmp_path, f"{first}\n" * 3))

    @pytest.mark.parametrize(
        "first",
        [
            "age,rs123456,y",
            "V00001,V00002,y",
            "24h,age,sex,y",
            "X1990,y",
            "#CHROM,POS,ID",
            "HbA1c,CO2,IL6,y",
        ],
    )
    def test_names_that_look_a_little_like_values_are_read(
        self, tmp_path: Path, first: str
    ) -> None:
        names = first.split(",")
        path = written(tmp_path, f"{first}\n" + ",".join("1" for _ in names) + "\n")
        assert list(tomllib.loads(draft(path))["columns"]) == names

    @pytest.mark.parametrize("quotes", ["''", "\u201c\u201d", "\u201e\u201c", "``"])
    def test_typographic_and_single_quotes_are_refused(self, tmp_path: Path, quotes: str) -> None:
        first = ",".join(f"{quotes[0]}{name}{quotes[1]}" for name in ("age", "sex", "bp"))
        assert "quotes" in told(written(tmp_path, f"{first}\n{ROWS}"))

    def test_quotes_after_a_blank_are_refused(self, tmp_path: Path) -> None:
        assert "quotes" in told(written(tmp_path, f'"age", "sex", "bp"\n{ROWS}'))

    @pytest.mark.parametrize(
        "content",
        [
            "INSERT INTO t VALUES (53.238,'quarzberg');\n",
            "-- dump\ncreate table t (a int, b text);\n",
            "/* 1 */ DROP TABLE t;\nx,y\n",
        ],
    )
    def test_sql_statements_are_recognised(self, tmp_path: Path, content: str) -> None:
        assert "SQL" in told(written(tmp_path, content))

    def test_a_section_in_brackets_is_no_json(self, tmp_path: Path) -> None:
        assert "JSON" not in told(written(tmp_path, "[table]\nage=53.238\n"))
        assert "JSON" in told(written(tmp_path, "[true, 53.238]\n", "j.csv"))

    @pytest.mark.parametrize(
        ("first", "remedy"),
        [
            ("age,sex,bp,", "ends of lines"),
            ("age,sex,bp,,", "ends of lines"),
            ("Study 12,,", "title"),
            ("age,,bp", "name"),
        ],
    )
    def test_empty_header_fields_get_the_fitting_remedy(
        self, tmp_path: Path, first: str, remedy: str
    ) -> None:
        assert remedy in told(written(tmp_path, f"{first}\n{ROWS}"))

    @pytest.mark.parametrize("line", ["sep=;\n", '"sep=;"\r\n'])
    def test_sep_line_of_excel_may_be_quoted(self, tmp_path: Path, line: str) -> None:
        path = written(tmp_path, line + "age;bp\n53;83\n")
        assert list(read_table(path).columns) == ["age", "bp"]


class TestDeclaredNames:
    """Names of a Parquet file may be the first row of a table that was read without its header."""

    @pytest.mark.parametrize(
        "names",
        [
            ["53.238", "quarzberg", "sick"],
            ["a", "2020-01-01"],
            ["a", "nan"],
            ["", "a"],
            ["a", "true"],
            ["a", "a"],
            ["P-001", "b"],
            ["a", "x\x1b[31m"],
            [],
            ["a", "17"],
        ],
    )
    def test_declared_names_that_look_like_values_are_refused_and_not_shown(
        self, names: list[str]
    ) -> None:
        with pytest.raises(InvalidInput) as caught:
            check_declared_names(names, "t.parquet")
        assert not PRIVATE.search(str(caught.value)) and "\x1b" not in str(caught.value)

    @pytest.mark.parametrize(
        "names", [["0", "1", "2"], ["0", "1", "y"], ["age", "sex"], ["größe", "y"]]
    )
    def test_declared_names_and_numbers_in_order_are_accepted(self, names: list[str]) -> None:
        check_declared_names(names, "t.parquet")

    def test_declared_names_of_parquet_files_are_checked(self, tmp_path: Path) -> None:
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        for names in (["53.238", "quarzberg"], ["a", "a"]):
            pq.write_table(
                pa.Table.from_arrays([pa.array([1]), pa.array([2])], names), tmp_path / "t.parquet"
            )
            told(tmp_path / "t.parquet")


class TestDrafts:
    @pytest.mark.parametrize(
        "name",
        [
            "columns",
            "label",
            "a.b.c",
            'a"b',
            "a\nb",
            "a\tb",
            "a\\b",
            "a]",
            "# c",
            "a=1",
            "se\u200bx",
            "\u202esex",
            "a\u2028b",
            "a\u00a0b",
            "größe",
            "gro\u0308\u00dfe",
            "kind",
            "na",
            "__proto__",
            "a,b",
            "x😀",
        ],
    )
    def test_draft_is_valid_toml_and_escapes_invisible_characters(
        self, tmp_path: Path, name: str
    ) -> None:
        quoted = '"' + name.replace('"', '""') + '"'
        text = draft(written(tmp_path, f"{quoted},y\n1,2\n"), label="y")
        assert list(tomllib.loads(text)["columns"]) == [name]
        assert not [one for one in text if not one.isprintable() and one != "\n"]

    def test_control_characters_beyond_ascii_are_refused(self, tmp_path: Path) -> None:
        assert "control" in told(written(tmp_path, "a\x9b31m,y\n1,2\n"))


class TestOneOddValue:
    """The others are read as without it."""

    @pytest.mark.parametrize(
        "text",
        [
            "1_000",
            "1__0",
            "0x1F",
            "1e400",
            "12%",
            "<0.5",
            "1,5",
            "1 2",
            "--1",
            "−5",
            "12kg",
            "#REF!",
            "=1+1",
        ],
    )
    def test_odd_value_that_is_no_number_is_refused_as_such(self, text: str) -> None:
        with pytest.raises(ValueError, match="not"):
            column_as_numbers(np.array(["1", text], dtype=object))

    @pytest.mark.parametrize(
        ("text", "number"), [("１２", 12.0), ("+12", 12.0), (" 7 ", 7.0), ("1E+01", 10.0)]
    )
    def test_other_spellings_of_a_number_are_read(self, text: str, number: float) -> None:
        assert value_as_number(text) == number

    def test_a_complex_number_leaves_the_others_what_they_are(self) -> None:
        pd = pytest.importorskip("pandas")
        values = {"c": {"kind": "category", "values": ["1", "2"], "other": True}}
        schema = Schema.from_dict({"columns": values})
        for odd in (1 + 2j, np.complex128(1 + 2j)):
            rows = schema.encode(pd.DataFrame({"c": [1, 2, odd]}), labels=False).X
            assert rows.argmax(axis=1).tolist() == [0, 1, 2]
        with pytest.raises(ValueError, match="not"):
            column_as_numbers(np.array([1, 1 + 2j]))

    def test_masked_entries_are_missing(self) -> None:
        masked = np.ma.masked_array([1.0, 99.0, 3.0], [False, True, False])
        assert read_frame({"a": masked}).columns["a"].tolist() == [1.0, None, 3.0]
        schema = Schema.from_dict(
            {"columns": {"a": {"kind": "number", "lo": 0, "hi": 4, "missing": 2}}}
        )
        rows = schema.encode({"a": masked}, labels=False).X
        assert (
            rows[:, 0].tolist()
            == schema.encode({"a": [1.0, 2.0, 3.0]}, labels=False).X[:, 0].tolist()
        )

    def test_masked_entries_and_times_are_no_rows_without_a_schema(self) -> None:
        y = ["a", "b"] * 4
        given: list[Any] = [
            np.ma.masked_array(np.ones((8, 2)), np.eye(8, 2)),
            np.zeros((8, 2), dtype="M8[s]"),
            np.zeros((8, 2), dtype="m8[s]"),
        ]
        for X in given:
            with pytest.raises(InvalidInput) as caught:
                ConsensusClassifier("momentum", epsilon=3, data_norm=1.0, random_state=0).fit(X, y)
            assert caught.value.field == "X"

    @pytest.mark.parametrize("given", [{1, 2}, iter([1, 2]), 5.0])
    def test_data_that_is_no_column_is_refused_in_one_line(self, given: object) -> None:
        with pytest.raises(InvalidInput):
            read_frame({"a": given})

    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    def test_parquet_time_beyond_python_dates_is_read(self, tmp_path: Path, unit: str) -> None:
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        far = {"s": 10**15, "ms": 10**17, "us": 10**18, "ns": 10**18 + 1}[unit]
        pq.write_table(
            pa.table({"t": pa.array([far, 0, None], pa.timestamp(unit))}), tmp_path / "t.parquet"
        )
        found = read_table(tmp_path / "t.parquet").columns["t"].tolist()
        assert found[1] == datetime(1970, 1, 1) and found[2] is None
        schema = dated()
        assert (
            schema.encode({"t": found}, labels=False).X[0, 0]
            > schema.encode({"t": found}, labels=False).X[1, 0]
        )

    def test_parquet_day_beyond_python_dates_and_invalid_text_are_read(
        self, tmp_path: Path
    ) -> None:
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        days = pa.array([FAR, 0, None], pa.int32()).cast(pa.date32())
        spans = pa.array([2**60, 60, None], pa.duration("s"))
        pq.write_table(pa.table({"t": days, "d": spans}), tmp_path / "t.parquet")
        columns = read_table(tmp_path / "t.parquet").columns
        assert columns["t"].tolist()[1:] == [date(1970, 1, 1), None]
        assert columns["d"].tolist()[1:] == [timedelta(seconds=60), None]

    def test_frame_day_beyond_python_dates_is_read(self) -> None:
        pa, pl, pd = (pytest.importorskip(name) for name in ("pyarrow", "polars", "pandas"))
        days = pa.array([0, None, FAR], pa.int32()).cast(pa.date32())
        frames = [
            pa.table({"t": days}),
            pa.RecordBatch.from_arrays([days], ["t"]),
            pl.DataFrame({"t": pl.Series([0, None, FAR], dtype=pl.Int32).cast(pl.Date)}),
            pd.DataFrame({"t": pd.Series(days, dtype=pd.ArrowDtype(pa.date32()))}),
        ]
        for frame in frames:
            found = read_frame(frame).columns["t"]
            assert found[0] == np.datetime64("1970-01-01") and np.isnat(found[1])
            assert found[2] > np.datetime64("9999-12-31")

    def test_wide_integers_are_read_with_and_without_a_gap(self) -> None:
        pl = pytest.importorskip("polars")
        for values in ([1, 2], [1, None]):
            frame = pl.DataFrame({"a": pl.Series(values, dtype=pl.Int128)})
            assert read_frame(frame).columns["a"].tolist() == values


def dated() -> Schema:
    block = {
        "kind": "date",
        "epoch": "1960-01-01",
        "lo": "1900-01-01",
        "hi": "2030-01-01",
        "missing": "1960-01-01",
    }
    return Schema.from_dict({"columns": {"t": block}, "ignore": ["*"]})


class TestFilesOfStatistics:
    @pytest.mark.parametrize(
        ("name", "form", "values", "second"),
        [
            ("t.dta", "%td", [3e6, 14000.0, -3e5], date(1998, 5, 1)),
            ("t.dta", "%tdD_m_Y", [3e6, 14000.5, 0.0], date(1998, 5, 1)),
            ("t.dta", "%tc", [1e17, 1.2e12, 0.0], datetime(1998, 1, 9, 21, 20)),
            ("t.sav", "DATE11", [1e13, 13.3e9, -1e10], date(2004, 3, 30)),
            ("t.sav", "ADATE10", [1e13, 13.3e9, 0.0], date(2004, 3, 30)),
            ("t.sav", "DATETIME20", [1e13, 13.3e9, 0.0], datetime(2004, 3, 30, 4, 26, 40)),
            ("t.xpt", "DATE9.", [3e6, 14000.0, -3e5], date(1998, 5, 1)),
            ("t.xpt", "DATETIME20.", [1e13, 1e9, 0.0], datetime(1991, 9, 9, 1, 46, 40)),
            ("t.xpt", "E8601DT", [1e13, 1e9, 0.0], datetime(1991, 9, 9, 1, 46, 40)),
        ],
    )
    def test_date_beyond_python_dates_does_not_affect_other_rows(
        self, tmp_path: Path, name: str, form: str, values: list[float], second: date
    ) -> None:
        path = stored(tmp_path / name, values, form)
        found = read_table(path).columns["t"].tolist()
        assert found[1] == second
        assert column_types(path)["t"] == "date"
        rows = dated().encode(read_table(path), labels=False)
        alone = dated().encode(read_table(stored(tmp_path / name, values[1:], form)), labels=False)
        assert rows.X[1:].tolist() == alone.X.tolist()

    @pytest.mark.parametrize(
        ("name", "form"),
        [("t.sav", "TIME8"), ("t.sav", "DTIME12"), ("t.xpt", "TIME8."), ("t.xpt", "HHMM5.")],
    )
    def test_times_beyond_a_day_are_read_as_seconds(
        self, tmp_path: Path, name: str, form: str
    ) -> None:
        path = stored(tmp_path / name, [3600.0, 90000.0, -5.0], form)
        assert read_table(path).columns["t"].tolist() == [3600.0, 90000.0, -5.0]
        assert column_types(path)["t"] == "number"


def stored(path: Path, values: list[float], form: str) -> Path:
    """A file of Stata, SPSS or SAS, with the column `t` under a format."""
    pyreadstat, pd = pytest.importorskip("pyreadstat"), pytest.importorskip("pandas")
    write = {
        ".dta": pyreadstat.write_dta,
        ".sav": pyreadstat.write_sav,
        ".xpt": pyreadstat.write_xport,
    }[path.suffix]
    write(
        pd.DataFrame({"t": values, "y": ["a"] * len(values)}),
        str(path),
        variable_format={"t": form},
    )
    return path


class TestWords:
    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("1e400", "NaN or infinite"),
            ("-Infinity", "NaN or infinite"),
            ("#REF!", "an error of a spreadsheet"),
            ("#DIV/0!", "an error of a spreadsheet"),
            ("2020-01-31", "a date or a time"),
            ("31.12.2020", "a date or a time"),
            ("12/31/2020", "a date or a time"),
            ("01JAN2020", "a date or a time"),
            ("1 Jan 2020", "a date or a time"),
            ("10:30", "a date or a time"),
            ("TRUE", "a truth value"),
            ("1_000", "other separators of thousands"),
            ("−5", "a number with a unit or a sign"),
            ("12%", "a number with a unit or a sign"),
            ("12 kg", "a number with a unit or a sign"),
            ("<0.5", "a limit (< or >)"),
            ("some text", "other text"),
        ],
    )
    def test_unreadable_texts_are_classified_in_words(self, text: str, kind: str) -> None:
        assert classify_unreadable_text(text) == kind

    @pytest.mark.parametrize(
        "text", ["si\u200bck", "\u200fsick", "\ufeffsick", "si\u00adck", "SICK ", "ｓｉｃｋ"]
    )
    def test_text_that_looks_like_a_declared_one_gets_a_note(self, text: str) -> None:
        assert fold_text(text) == "sick"
        schema = Schema.from_dict(
            {
                "columns": {"a": {"kind": "number", "lo": 0, "hi": 1}},
                "label": {"column": "y", "positive": "sick", "negative": "well"},
            }
        )
        found = review(schema, {"a": ["0", "1", "0"], "y": ["sick", "well", text]})
        assert any("'sick'" in note for note in found.notes) == (text.strip() != "sick")

    @pytest.mark.parametrize(
        ("declared", "texts"),
        [
            (("true", "false"), ["TRUE", "FALSE", "True", "False"]),
            (("1", "0"), ["1.0", "0.0", "1", "0"]),
            (("\u00e9", "0"), ["e\u0301", "0", "\u00e9 ", "0.0"]),
            (("TRUE", "FALSE"), ["true", "false", True, False]),
        ],
    )
    def test_text_read_as_a_declared_label_or_level_gets_no_note(
        self, declared: tuple[str, str], texts: list[Any]
    ) -> None:
        positive, negative = declared
        schema = Schema.from_dict(
            {
                "columns": {"a": {"kind": "category", "values": list(declared)}},
                "label": {"column": "y", "positive": positive, "negative": negative},
            }
        )
        found = review(schema, {"a": texts, "y": texts})
        assert found.fine and not found.notes

    def test_column_name_differing_in_case_gets_a_remedy(self) -> None:
        schema = Schema.from_dict({"columns": {"age": {"kind": "number", "lo": 0, "hi": 1}}})
        with pytest.raises(SchemaError) as other:
            schema.encode({"AGE": ["1"]}, labels=False)
        with pytest.raises(SchemaError) as lost:
            schema.encode({"bp": ["1"]}, labels=False)
        assert "lower case" in other.value.remedy and "lower case" not in lost.value.remedy


class TestWhatPeopleHave:
    """Files that are fine in other programs, and are read alike."""

    BASE = "age,sex,y\n53,a,u\n55,b,v\n"

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("t.csv", BASE.replace("\n", "\r")),
            ("t.csv", BASE.replace("\n", "\r\n", 1)),
            ("t.csv", BASE.replace("\n", "\r", 1)),
            ("t.csv", BASE + "\n\n"),
            ("t.csv", "\ufeff" + BASE),
            ("t.csv", "\ufeff\ufeff" + BASE),
            ("t.csv", BASE.replace("age,sex", " age , sex ")),
            ("t.csv", BASE.replace("53,a", '"53","a"')),
            ("t.CSV", BASE),
            ("t.csv.gz", gzipped(BASE[:15].encode()) + gzipped(BASE[15:].encode())),
        ],
    )
    def test_odd_line_ends_marks_blanks_and_quotes_are_read(
        self, tmp_path: Path, name: str, content: str | bytes
    ) -> None:
        table = read_table(written(tmp_path, content, name))
        assert {key: values.tolist() for key, values in table.columns.items()} == {
            "age": ["53", "55"],
            "sex": ["a", "b"],
            "y": ["u", "v"],
        }

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("t.csv", ""),
            ("t.csv", "\n\n"),
            ("t.csv", "   \n "),
            ("t.csv", "age,y"),
            ("t.csv", BASE + "Total: 2\n"),
            ("t.csv", BASE + "\x1a"),
            ("t.csv", BASE + '57,"quarzberg,u\n'),
            ("t.csv", BASE.replace("a,u", "\0,u")),
            ("t.csv", BASE.replace("a", "é").encode("cp1252")),
            ("t.csv", BASE.encode("utf-16")),
            ("t.csv.gz", gzipped(gzipped(BASE.encode()))),
            ("t.csv.gz", gzipped(BASE.encode())[:-9]),
            ("t.csv.gz", gzipped(b"a,y\n" + b"0" * 70_000_000, 1)),
            ("t.xlsx", BASE),
            ("t.parquet", BASE),
        ],
    )
    def test_unreadable_variants_are_refused_in_one_line_without_a_value(
        self, tmp_path: Path, name: str, content: str | bytes
    ) -> None:
        with pytest.raises(InvalidInput) as caught:
            read_table(written(tmp_path, content, name))
        assert "\n" not in str(caught.value) and not PRIVATE.search(str(caught.value))
