"""What a file is and how it is read: what is no table is refused by name, and nothing of it is
shown or drafted.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import re
import sys
import tomllib
import zipfile
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.data import Schema, Table, load, read_table
from sottovoce.data.draft import draft
from sottovoce.data.file_formats import FORMATS, column_types
from sottovoce.data.headers import INDEX_NOTE, header_from_fields
from sottovoce.errors import InvalidInput

# the same bytes in every process, and so the same names of tests
gzipped = partial(gzip.compress, mtime=0)

CSV = b"age,sex,bp\n53,quarzberg,83.8\n55,tannfels,124.6\n"
COLUMNS = {"age": ["53", "55"], "sex": ["quarzberg", "tannfels"], "bp": ["83.8", "124.6"]}
TABS = CSV.replace(b",", b"\t")
SEMICOLONS = CSV.replace(b",", b";")
PRIVATE = ("quarzberg", "tannfels", "83.8", "124.6", "53", "55")


def columns_of(table: Table) -> dict[str, list[Any]]:
    return {name: values.tolist() for name, values in table.columns.items()}


def refusal(path: Path) -> InvalidInput:
    """The refusal of a file, which shows nothing of it."""
    with pytest.raises(InvalidInput) as caught:
        read_table(path)
    told = f"{caught.value.rule} {caught.value.remedy}"
    assert not [value for value in PRIVATE if value in told]
    return caught.value


def zipped() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("base.csv", CSV)
    return packed.getvalue()


class TestRightFiles:
    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("t.csv", CSV),
            ("T.CSV", CSV),
            ("t.csv", b"\xef\xbb\xbf" + CSV),
            ("t.csv", CSV.replace(b"\n", b"\r\n")),
            ("t.csv", CSV.replace(b"\n", b"\r")),
            ("t.csv", b"\n\n" + CSV.replace(b"\n", b"\n\n")),
            ("t.csv", CSV.rstrip(b"\n")),
            ("t.csv", CSV.replace(b"age,sex", b'"age","sex"')),
            ("t.csv.gz", gzipped(CSV)),
            ("t.csv.xz", lzma.compress(CSV)),
            ("t.csv.bz2", bz2.compress(CSV)),
            ("t.tsv", TABS),
            ("t.tab", TABS),
            ("t.tsv.gz", gzipped(TABS)),
            ("t.csv", b"sep=;\r\n" + SEMICOLONS),
            ("t.csv", b"sep=\t\n" + TABS),
            ("t.csv", b"sep=|\n" + CSV.replace(b",", b"|")),
        ],
    )
    def test_same_table_in_every_text_format_is_read_alike(
        self, tmp_path: Path, name: str, content: bytes
    ) -> None:
        path = tmp_path / name
        path.write_bytes(content)
        assert columns_of(read_table(path)) == COLUMNS
        assert list(tomllib.loads(draft(path))["columns"]) == list(COLUMNS)

    def test_unnamed_row_names_are_left_out_with_a_note(self, tmp_path: Path) -> None:
        pd = pytest.importorskip("pandas")
        frame = pd.DataFrame(COLUMNS)
        frame.to_csv(tmp_path / "pandas.csv")
        (tmp_path / "r.csv").write_bytes(
            b'"","age","sex","bp"\n"1","53","quarzberg","83.8"\n"2","55","tannfels","124.6"\n'
        )
        frame.set_index("age", drop=False).rename_axis(None).to_csv(tmp_path / "named.csv")
        for name in ("pandas.csv", "r.csv", "named.csv"):
            table = read_table(tmp_path / name)
            assert columns_of(table) == COLUMNS
            assert table.notes == (INDEX_NOTE,)
            text = draft(tmp_path / name)
            assert list(tomllib.loads(text)["columns"]) == list(COLUMNS) and INDEX_NOTE[1:] in text

    def test_notes_of_reading_are_notes_of_the_data_set(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_bytes(b",a,y\n0,1,u\n1,2,v\n")
        schema = {
            "columns": {"a": {"kind": "number", "lo": 0, "hi": 2}},
            "label": {"column": "y", "positive": "u", "negative": "v"},
        }
        assert (
            f"t.csv: {INDEX_NOTE}" in load(tmp_path / "t.csv", schema=schema, test_share=None).notes
        )

    def test_header_rows_longer_than_a_block_are_read(self, tmp_path: Path) -> None:
        names = [f"größe{k:06d}" for k in range(90_000)]
        (tmp_path / "t.csv").write_text(
            ",".join(names) + "\n" + ",".join(["1"] * len(names)) + "\n"
        )
        assert list(read_table(tmp_path / "t.csv").columns) == names

    def test_quoted_fields_may_hold_separators_and_line_feeds(self, tmp_path: Path) -> None:
        path = tmp_path / "t.csv"
        path.write_bytes(b'"term\n(months)","a;b;c",d\n1,"x,y\nz","he said ""no"""\n')
        assert columns_of(read_table(path)) == {
            "term\n(months)": ["1"],
            "a;b;c": ["x,y\nz"],
            "d": ['he said "no"'],
        }


class TestWhatIsNoTable:
    @pytest.mark.parametrize(
        ("content", "kind"),
        [
            (b"\x73\x02\x01\x00" + b"\0" * 40 + b"quarzberg" * 90, "Stata"),
            (b"r\x01\x01\0abc", "Stata"),
            (b"<stata_dta><header>", "Stata"),
            (b"$FL2@(#) SPSS DATA FILE", "SPSS"),
            (b"$FL3@(#) SPSS DATA FILE", "SPSS"),
            (b"\0" * 12 + b"\xc2\xea\x81\x60\xb3\x14\x11\xcf", "SAS"),
            (b"HEADER RECORD*******LIBRARY HEADER RECORD!!!!!!!", "SAS transport"),
            (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 500, "Excel workbook of before 2007"),
            (zipped(), "zip"),
            (gzipped(CSV), "gzip"),
            (bz2.compress(CSV), "bzip2"),
            (lzma.compress(CSV), "xz"),
            (b"\x28\xb5\x2f\xfdquarzberg", "Zstandard"),
            (b"7z\xbc\xaf\x27\x1cquarzberg", "7-Zip"),
            (b"PAR1quarzberg", "Parquet"),
            (b"ARROW1\0\0quarzberg", "Arrow"),
            (b"\x89HDF\r\n\x1a\nquarzberg", "HDF5"),
            (b"SQLite format 3\0quarzberg", "SQLite"),
            (b"RDX3\nX\nquarzberg", "R data"),
            (b"%PDF-1.7\nquarzberg", "PDF"),
            (b"<!DOCTYPE html>\n<td>quarzberg", "HTML"),
            (b'<?xml version="1.0"?>\n<a>quarzberg</a>', "XML"),
            (b'[{"age": "quarzberg"}]', "JSON"),
            (b'{"age": ["quarzberg"]}', "JSON"),
            (b"@RELATION quarzberg\n", "ARFF"),
            (pickle.dumps(["quarzberg"]), "pickle"),
            (b"\x93NUMPY\x01\0quarzberg", "NumPy"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:quarzberg\n", "Git LFS"),
            (CSV.decode().encode("utf-16"), "UTF-16"),
            (CSV.decode().encode("utf-16-le"), "UTF-16"),
            (CSV.decode().encode("utf-16-be"), "UTF-16"),
            (CSV.decode().encode("utf-32"), "UTF-32"),
            (b"\x01\x02\0\x03quarzberg\0", "binary"),
            (b"quarz\x01berg,tannfels\n1,2\n", "characters that are"),
            ("größe,b\nquarzberg,2\n".encode("cp1252"), "line 1 is not in UTF-8"),
        ],
    )
    def test_file_of_another_kind_with_a_text_ending_is_refused_by_its_kind(
        self, tmp_path: Path, content: bytes, kind: str
    ) -> None:
        path = tmp_path / "t.csv"
        path.write_bytes(content)
        assert kind in refusal(path).rule
        with pytest.raises(InvalidInput) as drafted:
            draft(path)
        assert str(drafted.value) == str(refusal(path))

    @pytest.mark.parametrize(
        ("name", "content", "kind"),
        [
            ("t.csv.zip", zipped(), "zip"),
            ("t.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "before 2007"),
            ("t.rds", gzipped(b"X\n"), "R data"),
            ("t.RData", gzipped(b"RDX3\n"), "R data"),
            ("t.feather", b"ARROW1\0\0", "Arrow"),
            ("t.json", b'{"a": 1}', "JSON"),
            ("t.npz", zipped(), "NumPy"),
            ("t.txt", CSV, "must end in .csv"),
            ("t", CSV, "must end in .csv"),
            ("t.dat", TABS, "must end in .csv"),
            ("t.csv.gz", CSV, "not a file packed by gzip"),
            ("t.csv.gz", bz2.compress(CSV), "packed by bzip2"),
            ("t.csv.gz", gzipped(gzipped(CSV)), "content is a file"),
            ("t.csv.gz", gzipped(b"X\n\0\0\0\2"), "content is R data"),
            ("t.csv.gz", gzipped(CSV * 100)[:-30], "damaged or"),
            ("t.parquet", CSV, "not a Parquet file"),
            ("t.dta", CSV, "not a Stata file"),
            ("t.xlsx", zipped(), "zip archive"),
            ("t.sav", b"$FL2 quarzberg", "damaged"),
        ],
    )
    def test_content_that_does_not_fit_the_ending_is_refused_everywhere_alike(
        self, tmp_path: Path, name: str, content: bytes, kind: str
    ) -> None:
        pytest.importorskip("pyreadstat")
        path = tmp_path / name
        path.write_bytes(content)
        assert kind in refusal(path).rule
        with pytest.raises(InvalidInput) as drafted:
            draft(path)
        with pytest.raises(InvalidInput) as loaded:
            load(path, schema={"columns": {"a": {"kind": "number", "lo": 0, "hi": 1}}})
        assert str(drafted.value) == str(loaded.value) == str(refusal(path))

    def test_a_packed_file_that_unpacks_to_too_much_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sottovoce.data.csv_files._ALWAYS", 2**20)
        for ending, pack in ((".gz", gzipped), (".bz2", bz2.compress), (".xz", lzma.compress)):
            path = tmp_path / f"t.csv{ending}"
            path.write_bytes(pack(b"a,b\n" + b"1,2\n" * 2**19))
            assert "1,048,576 bytes" in refusal(path).rule


class TestSeparators:
    @pytest.mark.parametrize(
        ("name", "content", "named"),
        [
            ("t.csv", SEMICOLONS, "semicolons"),
            ("t.csv", SEMICOLONS.replace(b".", b","), "semicolons"),
            ("t.csv", b'"age";"sex"\n"53";"x"\n', "semicolons"),
            ("t.csv", b'"";"age";"sex"\n"1";"53";"x"\n', "semicolons"),
            ("t.csv", b"age;bp, mmHg;sex;ward\n53;83,8;x;y\n", "semicolons"),
            ("t.csv", TABS, "tabs"),
            ("t.csv", CSV.replace(b",", b"|"), "vertical bars"),
            ("t.csv", CSV.replace(b",", b" "), "blanks"),
            ("t.csv", CSV.replace(b",", b"   "), "blanks"),
            ("t.tsv", CSV, "commas"),
            ("t.tsv", SEMICOLONS, "semicolons"),
            ("t.csv.gz", gzipped(SEMICOLONS), "semicolons"),
        ],
    )
    def test_other_separator_is_named_from_the_header_row_alone(
        self, tmp_path: Path, name: str, content: bytes, named: str
    ) -> None:
        path = tmp_path / name
        path.write_bytes(content)
        assert f"separated by {named}" in refusal(path).rule
        with pytest.raises(InvalidInput, match=f"separated by {named}"):
            draft(path)

    def test_unknown_separator_in_a_sep_line_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_bytes(b"sep=:\nage:sex\n53:x\n")
        assert "sep=" in refusal(tmp_path / "t.csv").rule


class TestLines:
    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (CSV + b"53,quarzberg\n", "line 4 has 2 fields, and the header row has 3"),
            (CSV + b"\n\n53\n", "line 6 has 1 field, and the header row has 3"),
            (b"age,sex\n53,f\n60,5,m\n", "line 3 has 3 fields, and the header row has 2"),
            (b'a,b\n1,"x\ny"\n2\n', "line 4 has 1 field"),
            (b"a,b\n" + b"1,2\n" * 20_000 + b"3\n", "line 20002 has 1 field"),
            (CSV.replace(b"\n", b"\r\n") + b"1\r\n", "line 4 has 1 field"),
            (CSV.replace(b"\n", b"\r") + b"1\r", "line 4 has 1 field"),
            (b"sep=;\na;b\n1;2\n3\n", "line 4 has 1 field"),
            (CSV + "1,ä,2\n".encode("latin-1"), "line 4 is not in UTF-8"),
            (CSV * 1 + b"1,\0,2\n", "line 4 holds a NUL byte"),
            (CSV + b'1,"quarzberg,3\n4,5,6\n', "a quote that opens in line 4 is never closed"),
            (b'"a,b\n1,2\n', "a quote that opens in line 1 is never closed"),
            (CSV + b'1,"x" y,3\n', "a quote is followed by text in line 4"),
            (CSV + b'1,"x\ny" z,3\n', "in line 5, in the row that begins in line 4"),
            (
                CSV + b'1,"' + b"x" * 200_000 + b'",3\n',
                "line 4 has a field of more than 131,072 characters",
            ),
        ],
    )
    def test_line_of_a_fault_is_named(self, tmp_path: Path, content: bytes, says: str) -> None:
        (tmp_path / "t.csv").write_bytes(content)
        assert says in refusal(tmp_path / "t.csv").rule

    def test_row_names_of_r_without_a_field_in_the_header_are_explained(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "t.csv").write_bytes(b'"a","b"\n"1",2,3\n"2",4,5\n')
        assert "row names" in refusal(tmp_path / "t.csv").remedy


FIRST_ROWS = [
    ["53", "f", "83.8"],
    ["north", "2020-01-31", "f"],
    ["north", "31/01/2020", "f"],
    ["north", "12 Jan 2020", "f"],
    ["x", "2020-01-31T12:00:00Z", "f"],
    ["north", "TRUE", "died"],
    ["north", "false", "died"],
    ["north", "NA", "died"],
    ["NaN", "north", "died"],
    ["a", "", "b"],
    ["a", "b", ""],
    ["a", "b", "a"],
    ["a ", "b", "a"],
    ["a", "<0.5", "b"],
    [">50K", "State-gov", "Bachelors"],
    ["a", "5%", "b"],
    ["a", "-", "b"],
    ["?", "a", "b"],
    ["a", "1e-5", "b"],
    ["a", "1 234,50", "b"],
    ["a", "1,234.50", "b"],
    ["anna@example.org", "a", "b"],
    ["a", "https://example.org/1", "b"],
    ["a", "123e4567-e89b-12d3-a456-426614174000", "b"],
    ["a", "d41d8cd98f00b204", "b"],
    ["male", "died", "north"],
    ["Yes", "No", "north"],
    ["12mg", "3 kg", "north"],
    ["alive", "unknown", "ward", "f"],
    ["P0001", "north", "F", "died"],
    ["\ufeff53", "a"],
    ["a", "x" * 2000, "b"],
    ["a", "1990", "1991"],
    ["", "0", "1"],
]
HEADERS = [
    ["age", "sex", "bp"],
    ["id", "1stFlrSF", "2ndFlrSF"],
    ["Na", "K", "Ca"],
    ["x1", "x2", "X1990"],
    ["T", "F", "n"],
    ["low", "high", "male"],
    ["4.Letter.Words", "y"],
    ["", "a", "b"],
    ["größe", "年齢", "возраст"],
    ["No", "Time"],
    ["Term (months)", "What is your age, in years?"],
    ["rs123456", "pixel_0_0"],
    ["a", "A"],
    ["dead", "is_male", "id"],
    ["CDU/CSU", "SPD"],
    ["24h", "age", "sex"],
    ["V001", "V002", "V003"],
    ["id", "X1990", "died"],
    ["year", "male", "total", "rate", "n"],
]


class TestFirstRows:
    @pytest.mark.parametrize("row", FIRST_ROWS)
    def test_first_row_that_looks_like_data_is_refused_and_not_shown(
        self, tmp_path: Path, row: list[str]
    ) -> None:
        path = tmp_path / "t.csv"
        path.write_text(
            ",".join(f'"{field}"' for field in row) + "\n" + ",".join("xyz"[: len(row)]) + "\n"
        )
        told = re.sub(r"[Ff]ield \d+", "", str(refusal(path)))
        assert not [field for field in row if len(field.strip()) > 2 and field in told]
        with pytest.raises(InvalidInput) as drafted:
            draft(path)
        assert str(drafted.value) == str(refusal(path))

    @pytest.mark.parametrize("row", HEADERS)
    def test_first_row_of_names_is_read(self, row: list[str]) -> None:
        header = header_from_fields(row, "t.csv")
        assert header.index == (not row[0]) and list(header.names) == list(filter(None, row))

    def test_first_row_with_a_single_column_is_refused_for_a_draft(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_text("Quarzberg\ntannfels\n")
        with pytest.raises(InvalidInput) as refused:
            draft(tmp_path / "t.csv")
        assert "Quarzberg" not in str(refused.value)
        assert read_table(tmp_path / "t.csv").n_rows == 1  # rows to predict may have one feature

    def test_draft_says_that_the_first_row_was_taken_for_names(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_bytes(CSV)
        text = draft(tmp_path / "t.csv")
        assert "first row" in text and not [value for value in PRIVATE if value in text]

    def test_draft_ignores_columns_of_row_names(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_text("Unnamed: 0,rownames,age,ward\n1,2,3,4\n")
        given = tomllib.loads(draft(tmp_path / "t.csv", ignore=["ward"]))
        assert given["ignore"] == ["ward", "Unnamed: 0", "rownames"] and list(given["columns"]) == [
            "age"
        ]

    def test_rows_are_not_read_for_a_draft(self, tmp_path: Path) -> None:
        texts = set()
        for rows in (b"1,2\n", b"\xff\xfe\n", b'"\n', b"1\n2,3,4\n", b"a,b\n", b"x" * 2**21):
            (tmp_path / "t.csv").write_bytes(b"age,sex\n" + rows)
            texts.add(draft(tmp_path / "t.csv"))
        assert len(texts) == 1


def statistics_frame() -> Any:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyreadstat")
    return pd.DataFrame(
        {
            "age": [41.0, np.nan, 60.5],
            "sex": [1.0, 2.0, 1.0],
            "name": ["quarzberg", "", "tannfels"],
            "day": [date(2020, 1, 31), None, date(1999, 12, 31)],
            "at": [datetime(2020, 1, 31, 12, 30), None, datetime(1999, 12, 31)],
        }
    )


STATISTICS = {
    "age": [41.0, None, 60.5],
    "sex": ["m", "f", "m"],
    "name": ["quarzberg", "", "tannfels"],
    "day": [date(2020, 1, 31), None, date(1999, 12, 31)],
    "at": [datetime(2020, 1, 31, 12, 30), None, datetime(1999, 12, 31)],
}
LABELS = {"sex": {1: "m", 2: "f"}}


class TestStatisticsFiles:
    @pytest.mark.parametrize("version", [8, 10, 12, 13, 14, 15])
    def test_stata_files_of_every_version_are_read(self, tmp_path: Path, version: int) -> None:
        frame = statistics_frame()
        import pyreadstat

        path = tmp_path / "t.dta"
        pyreadstat.write_dta(frame, path, version=version, variable_value_labels=LABELS)
        self.check(path, STATISTICS)
        assert "sex" in read_table(path).notes[0]

    @pytest.mark.parametrize("name", ["t.sav", "t.zsav"])
    def test_spss_files_are_read_with_labels_dates_and_missing_values(
        self, tmp_path: Path, name: str
    ) -> None:
        frame = statistics_frame()
        import pyreadstat

        path = tmp_path / name
        pyreadstat.write_sav(frame, path, compress=name == "t.zsav", variable_value_labels=LABELS)
        self.check(path, STATISTICS)

    def test_spss_portable_and_sas_transport_have_codes(self, tmp_path: Path) -> None:
        frame = statistics_frame()
        import pyreadstat

        codes = STATISTICS | {"sex": [1.0, 2.0, 1.0]}
        for version in (5, 8):
            pyreadstat.write_xport(frame, tmp_path / "t.xpt", file_format_version=version)
            self.check(tmp_path / "t.xpt", codes, sex="number")
        pyreadstat.write_por(frame, tmp_path / "t.por")
        assert columns_of(read_table(tmp_path / "t.por")) == {
            name.upper(): values for name, values in codes.items()
        }

    def check(self, path: Path, columns: dict[str, list[Any]], sex: str = "text") -> None:
        """The file is read so, its types are declared so, and its draft has nothing of its rows
        or value labels.
        """
        assert columns_of(read_table(path)) == columns
        assert column_types(path) == {
            "age": "number",
            "sex": sex,
            "name": "text",
            "day": "date",
            "at": "date",
        }
        for text in (draft(path), draft(path, types=True)):
            assert not [
                value
                for value in ("quarzberg", "tannfels", "41", "60.5", '"m"', "1999")
                if value in text
            ]

    def test_missing_values_of_every_kind_are_missing(self, tmp_path: Path) -> None:
        pd, pyreadstat = pytest.importorskip("pandas"), pytest.importorskip("pyreadstat")
        frame = pd.DataFrame({"a": [1.0, "a", np.nan], "b": [1, 2, 3]})
        pyreadstat.write_dta(frame, tmp_path / "t.dta", missing_user_values={"a": ["a"]})
        pyreadstat.write_sav(
            pd.DataFrame({"a": [1.0, -9.0, np.nan], "b": [1, 2, 3]}),
            tmp_path / "t.sav",
            missing_ranges={"a": [-9.0], "b": [{"lo": 2, "hi": 2}]},
        )
        assert columns_of(read_table(tmp_path / "t.dta"))["a"] == [1.0, None, None]
        assert columns_of(read_table(tmp_path / "t.sav")) == {
            "a": [1.0, None, None],
            "b": [1.0, None, 3.0],
        }

    def test_a_scale_of_spss_keeps_its_numbers(self, tmp_path: Path) -> None:
        frame = statistics_frame()
        import pyreadstat

        pyreadstat.write_sav(
            frame,
            tmp_path / "t.sav",
            variable_value_labels=LABELS,
            variable_measure={"sex": "scale"},
        )
        assert columns_of(read_table(tmp_path / "t.sav"))["sex"] == [1.0, 2.0, 1.0]

    def test_stata_days_in_a_user_defined_format_are_dates(self, tmp_path: Path) -> None:
        pd, pyreadstat = pytest.importorskip("pandas"), pytest.importorskip("pyreadstat")
        frame = pd.DataFrame({"day": [21945.0, 0.0], "b": [1, 2]})
        pyreadstat.write_dta(frame, tmp_path / "t.dta", variable_format={"day": "%tdDD/NN/CCYY"})
        assert columns_of(read_table(tmp_path / "t.dta"))["day"] == [
            date(2020, 1, 31),
            date(1960, 1, 1),
        ]

    def test_reading_a_row_does_not_depend_on_other_rows(self, tmp_path: Path) -> None:
        frame = statistics_frame()
        import pyreadstat

        whole, part = tmp_path / "t.dta", tmp_path / "u.dta"
        pyreadstat.write_dta(frame, whole, variable_value_labels=LABELS)
        pyreadstat.write_dta(frame.iloc[[0, 2]], part, variable_value_labels=LABELS)
        kept = {
            name: [values[0], values[2]] for name, values in columns_of(read_table(whole)).items()
        }
        assert columns_of(read_table(part)) == kept

    def test_missing_reader_package_is_named_with_its_installation(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "pyreadstat", None)
        monkeypatch.setitem(sys.modules, "openpyxl", None)
        (tmp_path / "t.dta").write_bytes(b"<stata_dta>")
        (tmp_path / "t.xlsx").write_bytes(b"PK\x03\x04" + b"\0" * 26 + b"[Content_Types].xml")
        for name in ("t.dta", "t.xlsx"):
            assert "pip install 'sottovoce[files]'" in refusal(tmp_path / name).remedy

    def test_a_whole_damaged_file_is_refused(self, tmp_path: Path) -> None:
        frame = statistics_frame()
        import pyreadstat

        pyreadstat.write_sav(frame, tmp_path / "t.sav")
        content = (tmp_path / "t.sav").read_bytes()
        (tmp_path / "t.sav").write_bytes(content[:200])
        assert "damaged" in refusal(tmp_path / "t.sav").rule


def write_excel(path: Path, rows: list[list[Any]], sheets: int = 1) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for _ in range(sheets - 1):
        book.create_sheet()
    book.save(path)
    return path


class TestExcel:
    def test_cells_are_read_by_themselves(self, tmp_path: Path) -> None:
        rows: list[list[Any]] = [
            ["age", "sex", "day", "ill"],
            [41, "m", datetime(2020, 1, 31), True],
            [60.5, None, "unknown", False],
            [None, None, None, None],
            ["<5", "f", datetime(2020, 1, 31, 12, 30), None],
        ]
        path = write_excel(tmp_path / "t.xlsx", rows)
        expected = {
            "age": [41, 60.5, "<5"],
            "sex": ["m", None, "f"],
            "day": [date(2020, 1, 31), "unknown", datetime(2020, 1, 31, 12, 30)],
            "ill": [True, False, None],
        }
        assert columns_of(read_table(path)) == expected
        assert list(tomllib.loads(draft(path))["columns"]) == list(expected)
        without = read_table(write_excel(tmp_path / "u.xlsx", [rows[0], rows[1]]))
        assert columns_of(without) == {name: values[:1] for name, values in expected.items()}

    def test_row_names_of_pandas_are_left_out(self, tmp_path: Path) -> None:
        path = write_excel(tmp_path / "t.xlsx", [[None, "a", "b"], [0, 1, 2]])
        table = read_table(path)
        assert columns_of(table) == {"a": [1], "b": [2]} and table.notes == (INDEX_NOTE,)

    @pytest.mark.parametrize(
        ("rows", "sheets", "says"),
        [
            ([["a", "b"], [1, 2]], 2, "has 2 visible sheets"),
            ([[53, "quarzberg"], [1, 2]], 1, "field 1 of the first row is a number"),
            ([["a", datetime(2020, 1, 31)], [1, 2]], 1, "field 2 of the first row is a date"),
            ([["a", True], [1, 2]], 1, "is a truth value"),
            ([["a", "a"], [1, 2]], 1, "name every column once"),
            ([["a", None, "b"], [1, 2, 3]], 1, "field 2 of the first row is empty"),
            ([["a", "b"], [1, 2, "quarzberg"]], 1, "row 2 of its sheet has more cells"),
            ([["a", "b"]], 1, "at least one row"),
            ([], 1, "is empty"),
        ],
    )
    def test_workbook_with_several_visible_sheets_is_refused(
        self, tmp_path: Path, rows: list[list[Any]], sheets: int, says: str
    ) -> None:
        assert says in refusal(write_excel(tmp_path / "t.xlsx", rows, sheets)).rule

    def test_workbook_that_unpacks_to_too_much_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sottovoce.data.excel_files._ALWAYS", 1000)
        monkeypatch.setattr("sottovoce.data.excel_files.UNPACKED", 1)
        path = write_excel(tmp_path / "t.xlsx", [["a", "b"], *([1, 2] for _ in range(2000))])
        assert "unpacks to" in refusal(path).rule

    def test_damaged_workbook_is_refused(self, tmp_path: Path) -> None:
        path = write_excel(tmp_path / "t.xlsx", [["a", "b"], [1, 2]])
        path.write_bytes(path.read_bytes()[:-60])
        assert "damaged" in refusal(path).rule


def test_the_same_rows_of_every_format_are_encoded_alike(tmp_path: Path) -> None:
    pd, pyreadstat = pytest.importorskip("pandas"), pytest.importorskip("pyreadstat")
    pytest.importorskip("openpyxl")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(
        {
            "age": [41.0, 50.0, 60.5],
            "sex": ["m", "f", "m"],
            "day": [date(2020, 1, 31), date(2020, 3, 1), date(1999, 1, 1)],
            "ill": ["yes", "no", "yes"],
        }
    )
    frame.to_csv(tmp_path / "t.csv")
    frame.to_csv(tmp_path / "t.tsv.bz2", sep="\t", index=False)
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    pyreadstat.write_dta(frame, tmp_path / "t.dta")
    pyreadstat.write_sav(frame, tmp_path / "t.sav")
    pyreadstat.write_xport(frame, tmp_path / "t.xpt", file_format_version=8)
    schema = Schema.from_dict(
        {
            "columns": {
                "age": {"kind": "number", "lo": 0, "hi": 100},
                "sex": {"kind": "category", "values": ["f", "m"]},
                "day": {
                    "kind": "date",
                    "epoch": "1990-01-01",
                    "lo": "1990-01-01",
                    "hi": "2030-01-01",
                },
            },
            "label": {"column": "ill", "positive": "yes", "negative": "no"},
        }
    )
    encoded = {path.name: schema.encode(read_table(path)) for path in sorted(tmp_path.iterdir())}
    assert len(encoded) == 7
    for one in encoded.values():
        np.testing.assert_array_equal(one.X, encoded["t.csv"].X)
        np.testing.assert_array_equal(one.y, [1.0, -1.0, 1.0])


def test_every_known_ending_is_read_by_one_table_of_formats() -> None:
    assert {
        ".csv",
        ".csv.gz",
        ".csv.bz2",
        ".csv.xz",
        ".tsv",
        ".parquet",
        ".sql",
        ".xlsx",
        ".dta",
    } <= set(FORMATS)
    assert all([form.header, form.names, form.types].count(None) == 2 for form in FORMATS.values())
