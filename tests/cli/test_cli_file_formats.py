"""Every command gives the same verdict on the same file, and says how it read one."""

from __future__ import annotations

import bz2
import gzip
import io
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from command_line import Call, Clinic

from sottovoce.data.headers import INDEX_NOTE

# the same bytes in every process, and so the same names of tests
gzipped = partial(gzip.compress, mtime=0)


@pytest.fixture
def saved(ok: Call, clinic: Clinic) -> Path:
    """A run on the clinic's rows."""
    path = clinic.csv.parent / "run.npz"
    ok(*clinic.train, "--save", path)
    return path


def commands(clinic: Clinic, saved: Path, table: Path) -> list[tuple[object, ...]]:
    """All commands that read a table's rows."""
    train = [table if part == clinic.csv else part for part in clinic.train]
    return [
        ("schema", "check", clinic.schema, table),
        ("data", table, "--schema", clinic.schema),
        ("schema", "survey", clinic.schema, table, "--epsilon", "1"),
        tuple(train),
        ("predict", saved, table),
        ("evaluate", saved, table, "--epsilon", "1"),
    ]


def zipped(content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("rows.csv", content)
    return packed.getvalue()


def with_index(content: bytes) -> bytes:
    lines = content.splitlines()
    return (
        b"\n".join([b"," + lines[0], *(b"%d,%s" % (k, line) for k, line in enumerate(lines[1:]))])
        + b"\n"
    )


Remake = Callable[[bytes], bytes]
GOOD: list[tuple[str, Remake]] = [
    ("r.csv", with_index),
    ("t.tsv", lambda content: content.replace(b",", b"\t")),
    ("t.csv", lambda content: b"sep=;\n" + content.replace(b",", b";")),
    ("t.csv", lambda content: b"\xef\xbb\xbf" + content),
    ("t.csv.gz", gzipped),
    ("t.csv.bz2", bz2.compress),
]
BAD: list[tuple[str, Remake, str]] = [
    ("t.txt", lambda content: content, "must end in .csv"),
    ("t.csv", lambda content: content.replace(b",", b";"), "separated by semicolons"),
    ("t.csv", lambda content: content.replace(b",", b"\t"), "separated by tabs"),
    ("t.csv", lambda content: content.partition(b"\n")[2], "is a number"),
    ("t.csv", lambda content: content.decode().encode("utf-16"), "UTF-16"),
    ("t.csv.zip", zipped, "zip archive"),
    ("t.csv", zipped, "zip archive"),
    ("t.csv", gzipped, "packed by gzip"),
    ("t.dta", lambda content: content, "not a Stata file"),
    ("t.csv", lambda content: b"r\x02\x01\0" + content, "Stata file"),
]


@pytest.mark.parametrize(("name", "remake"), GOOD)
def test_every_command_reads_every_file_format(
    run: Call, clinic: Clinic, saved: Path, name: str, remake: Remake
) -> None:
    table = clinic.csv.parent / name
    table.write_bytes(remake(clinic.csv.read_bytes()))
    for command in commands(clinic, saved, table):
        mine, plain = (
            run(*command),
            run(*(clinic.csv if part == table else part for part in command)),
        )
        assert (mine.code, plain.code) == (0, 0), (command, mine)
        if name == "r.csv":
            assert INDEX_NOTE.split(":")[0] in " ".join((mine.out + mine.err).split())
        if command[0] == "predict":
            assert mine.out == plain.out
    mine, plain = (run("schema", "init", path).out for path in (table, clinic.csv))
    assert mine.replace(f"# {INDEX_NOTE[0].upper()}{INDEX_NOTE[1:]}.\n", "") == plain


@pytest.mark.parametrize(("name", "remake", "says"), BAD)
def test_every_command_refuses_a_file_with_the_same_message(
    refused: Callable[..., str], clinic: Clinic, saved: Path, name: str, remake: Remake, says: str
) -> None:
    table = clinic.csv.parent / name
    table.write_bytes(remake(clinic.csv.read_bytes()))
    told = {refused(*command) for command in commands(clinic, saved, table)}
    told.add(refused("schema", "init", table))
    message = told.pop()
    assert not told and says in message
    clinic.says_nothing_private(message)


def test_faults_of_rows_are_told_by_line(
    refused: Callable[..., str], clinic: Clinic, saved: Path
) -> None:
    table = clinic.csv.parent / "t.csv"
    table.write_bytes(clinic.csv.read_bytes() + b"1,2\n")
    told = {refused(*command) for command in commands(clinic, saved, table)}
    (message,) = told
    assert "line 402 has" in message and "has 2 " in message
