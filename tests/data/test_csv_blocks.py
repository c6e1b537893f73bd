"""Large text files are read by pyarrow as the plain reader reads them: the same texts, notes and
errors, on generated files with every oddity, whatever blocks they fall into; and texts become the
same numbers.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, seed, settings
from hypothesis import strategies as st

from sottovoce.data import csv_blocks, csv_files, values
from sottovoce.data.csv_files import read_csv
from sottovoce.data.labels import parse_number_labels
from sottovoce.errors import InvalidInput

pytest.importorskip("pyarrow")

TEXTS = [
    "",
    "1",
    "-9",
    "-9.0",
    "+1",
    " 7 ",
    "007",
    "1.50",
    "1e400",
    "1e-400",
    "-0",
    "0x10",
    "1_000",
    "1 000",
    "1.000,5",
    "nan",
    "NaN",
    "nan(12)",
    "inf",
    "NA",
    "null",
    "true",
    "TRUE",
    "１２",
    "größe",
    "e\u0301",
    "\u2028",
    "\x85",
    "\x1c1",
    "\ufeff",
    "a'b",
    "😀",
    "#N/A",
    "x" * 90,
]
QUOTED = ["a,b", "a;b", "two\nlines", "two\r\nlines", 'he said "no"', '"', '""', "\n", ",", "\r"]


@pytest.fixture(params=[7, 40, 1 << 20])
def small_blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Every file is large, and a block holds so many bytes."""
    monkeypatch.setattr(csv_files, "LEAST", 0)
    monkeypatch.setattr(csv_blocks, "BLOCK", request.param)
    return int(request.param)


def outcome(read: Callable[[], Any]) -> Any:
    """What a reader returns, or what it says."""
    try:
        table = read()
    except InvalidInput as error:
        return str(error)
    assert all(column.dtype == object for column in table.columns.values())
    return (
        table.name,
        {name: column.tolist() for name, column in table.columns.items()},
        table.notes,
    )


def plain_outcome(path: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_files, "LEAST", sys.maxsize)
        return outcome(lambda: read_csv(path))


def by_blocks(path: Path) -> bool:
    """Whether the plain reader is not needed."""
    text = csv_files._TextFile.open_text_file(path)
    return text.read_columns_by_blocks(text.read_header_row()) is not None


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    """The bytes of a text file; now and then they are damaged."""
    width = draw(st.integers(1, 3))
    separator = draw(st.sampled_from([",", ",", ";", "\t"]))
    feed = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    quotes = draw(st.booleans())
    text = st.sampled_from(TEXTS)
    if quotes:
        text = st.one_of(text, st.sampled_from(QUOTED), st.text(max_size=3))

    def written(field: str) -> str:
        special = any(mark in field for mark in (separator, '"', "\n", "\r"))
        if quotes and (special or draw(st.booleans())):
            return '"' + field.replace('"', '""') + '"'
        return field

    lines = [separator.join(["alpha", "beta", "gamma"][:width])]
    if separator == ";":
        lines.insert(0, "sep=;")
    if separator == "\t":
        lines.insert(0, "sep=\t")
    for _ in range(draw(st.integers(0, 6))):
        lines.append(separator.join(written(draw(text)) for _ in range(width)))
        if draw(st.integers(0, 9)) == 0:
            lines.append("")
    data = feed.join(lines).encode("utf-8", "surrogatepass")
    if draw(st.booleans()):
        data += feed.encode()
    if draw(st.integers(0, 4)) == 0:
        data = b"\xef\xbb\xbf" + data
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(data)))
        odd = draw(
            st.sampled_from(
                [b'"', b'""', b",", b"\n", b"\r", b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf"]
            )
        )
        data = data[:at] + odd + data[at + draw(st.integers(0, 1)) :]
    return data


@seed(20261128)
@settings(max_examples=400, deadline=None, database=None)
@given(data=tables(), block=st.sampled_from([5, 23, 64, 1 << 20]))
@example(data=b'alpha,beta\n"a"x,1\n', block=64)
@example(data=b'alpha,beta\na"b,1\n', block=64)
@example(data=b'alpha,beta\n"a ""b""",1\n"",""\n', block=13)
@example(data=b"alpha,beta\n\xef\xbb\xbf1,2\n\xef\xbb\xbf3,4\n", block=9)
@example(data=b"alpha\n\n1\n\n\n2\n", block=5)
def test_both_readers_return_the_same_table_or_the_same_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, block: int
) -> None:
    path = tmp_path_factory.mktemp("blocks") / "t.csv"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_files, "LEAST", 0)
        patch.setattr(csv_blocks, "BLOCK", block)
        found = outcome(lambda: read_csv(path))
    assert found == plain_outcome(path)


@pytest.mark.parametrize(
    "content",
    [
        b"alpha,beta\n1,x\n2,y\n",
        b"alpha,beta\r\n1,x\r\n\r\n2,\r\n",
        b'"alpha","beta"\n"1","x, y"\n"2","he ""said"""\n',
        b'alpha,beta\n1,"two\nlines"\n2,"three\r\n\nlines"\n',
        b"\xef\xbb\xbfalpha,beta\n1,gr\xc3\xb6\xc3\x9fe",
        b"sep=;\nalpha;beta\n1;2,5\n",
        b",alpha\n0,1\n1,2\n",
    ],
)
def test_well_formed_files_are_read_by_blocks(
    tmp_path: Path, small_blocks: int, content: bytes
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    assert by_blocks(path)
    assert outcome(lambda: read_csv(path)) == plain_outcome(path)


@pytest.mark.parametrize(
    "content",
    [
        b"alpha,beta\r1,2\r",
        b'alpha,beta\n1,"x"y\n',
        b'alpha,beta\n1,x"y\n',
        b'alpha,beta\n1,"x\n',
        b"alpha,beta\n1,2\n3\n",
        b"alpha,beta\n1,2\n3,4,5\n",
        b"alpha,beta\n1,\xff\n",
        b"alpha,beta\n1,\xed\xa0\x80\n",
        b"alpha,beta\n1,\xc0\xaf\n",
        b"alpha,beta\n1,\0\n",
        b"alpha,beta\n\xef\xbb\xbf1,2\n",
        b"alpha\n\n\n",
        b"alpha,beta\n1," + b"x" * 131_073 + b"\n",
        b"alpha,beta\n",
    ],
)
def test_odd_files_are_left_to_the_plain_reader(
    tmp_path: Path, small_blocks: int, content: bytes
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    assert not by_blocks(path)
    assert outcome(lambda: read_csv(path)) == plain_outcome(path)


def test_fields_at_the_limit_of_characters_are_read_by_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_files, "LEAST", 0)
    path = tmp_path / "t.csv"
    path.write_text("alpha,beta\n1," + "ö" * 131_072 + "\n")
    assert by_blocks(path)
    assert outcome(lambda: read_csv(path)) == plain_outcome(path)


def test_files_that_do_not_fit_into_memory_are_refused_in_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"alpha,beta\n" + b"1,2\n" * 30)
    monkeypatch.setattr(csv_files, "LEAST", 0)
    monkeypatch.setattr(csv_files, "machine_memory_bytes", lambda: 100)
    monkeypatch.setattr("sottovoce.data.table.machine_memory_bytes", lambda: 100)
    found = outcome(lambda: read_csv(path))
    assert "memory" in found
    assert found == plain_outcome(path)


def test_columns_of_many_distinct_texts_are_read_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_files, "LEAST", 0)
    monkeypatch.setattr(csv_blocks, "BLOCK", 500)
    rng = np.random.default_rng(3)
    lines = [f"{x!r},{x > 0.5},{k}" for k, x in enumerate(rng.random(300).tolist())]
    path = tmp_path / "t.csv"
    path.write_text("alpha,beta,gamma\n" + "\n".join(lines))
    assert by_blocks(path)
    assert outcome(lambda: read_csv(path)) == plain_outcome(path)


def test_small_files_and_short_columns_do_not_load_pyarrow(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"alpha,beta\n" + b"1,2\n" * 5000)
    code = (
        "import sys; from sottovoce.data import read_table, Schema\n"
        f"table = read_table({str(path)!r})\n"
        "columns = {name: {'kind': 'number', 'lo': 0, 'hi': 3} for name in table.columns}\n"
        "Schema.from_dict({'columns': columns}).encode(table, labels=False)\n"
        "assert 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def number_outcome(
    read: Callable[[np.ndarray, frozenset[str]], Any], texts: list[Any], na: frozenset[str]
) -> Any:
    """Bits of the numbers and the mask of missing values, or what is said."""
    column = np.array([None, *texts], dtype=object)[1:]
    try:
        numbers, missing = read(column, na)
    except ValueError as error:
        return str(error)
    return numbers.view(np.int64).tolist(), missing.tolist()


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers().map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.from_regex(r"[+-]?[0-9]{0,22}\.?[0-9]{0,22}(e[+-]?[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(["-9", "-9.0", "-9.00", " -9 ", "7", "0", "-0", "", "NA", " 7\t", None]),
)


@seed(20261128)
@settings(max_examples=400, deadline=None, database=None)
@given(
    texts=st.lists(NUMBERS, min_size=1, max_size=6),
    odd=st.lists(st.sampled_from([*TEXTS, True, 3, 1.5, "\ud800", "7\0"]), max_size=1),
    na=st.frozensets(st.sampled_from(["-9", "NA", "7.0", "nan", "0", "true"]), max_size=2),
)
def test_texts_become_the_samenumbers_at_once_and_one_by_one(
    texts: list[Any], odd: list[Any], na: frozenset[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "_MANY", 0)
        patch.setattr(values, "_VERY_MANY", 0)
        at_once = number_outcome(values.column_as_numbers, texts + odd, na)
        patch.setattr(values, "_MANY", sys.maxsize)
        patch.setattr(values, "_VERY_MANY", sys.maxsize)
        assert at_once == number_outcome(values.column_as_numbers, texts + odd, na)


def labels_and_missing(column: np.ndarray, na: frozenset[str]) -> tuple[Any, Any]:
    found = parse_number_labels(column, tuple(na))
    return found, np.isnan(found)


@seed(20261128)
@settings(max_examples=200, deadline=None, database=None)
@given(
    texts=st.lists(NUMBERS, min_size=1, max_size=6),
    odd=st.lists(st.sampled_from([*TEXTS, True, 3]), max_size=1),
    na=st.frozensets(st.sampled_from(["-9", "NA", "0"]), max_size=2),
)
def test_number_labels_are_the_same_at_once_and_one_by_one(
    texts: list[Any], odd: list[Any], na: frozenset[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "_MANY", 0)
        patch.setattr(values, "_VERY_MANY", 0)
        at_once = number_outcome(labels_and_missing, texts + odd, na)
        patch.setattr(values, "_MANY", sys.maxsize)
        patch.setattr(values, "_VERY_MANY", sys.maxsize)
        assert at_once == number_outcome(labels_and_missing, texts + odd, na)


def test_plain_decimals_are_converted_at_once() -> None:
    column = np.array(["1", " 2.5", "", None, "-9.0", "1e3"] * 30_000, dtype=object)
    pytest.importorskip("pyarrow.compute")
    found = values.numbers_at_once(column, values.identities_of_marks(["-9"]))
    assert found is not None
    assert found[0][:6].tolist() == [1.0, 2.5, 0.0, 0.0, -9.0, 1000.0]
    assert found[1][:6].tolist() == [False, False, True, True, True, False]
