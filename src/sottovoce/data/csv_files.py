"""Tables in text files: fields separated by commas (``.csv``) or tabs (``.tsv``), plain or packed.

The separator is never guessed from rows.  The file's ending says it, or a first line ``sep=;`` as
Excel writes it; a header row that another separator would split into more fields is refused, and
the message names that separator.

A refusal may say in which line the fault is and how many fields it has: it is for the holder of the
file, and never shows what a field holds.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import InvalidInput
from ..util.files import machine_memory_bytes, require_regular_file
from . import file_kinds
from .csv_blocks import LEAST, columns_by_blocks
from .headers import Header, header_from_fields
from .table import Column, Table, check_memory_fits

UNPACKED = 100
"""Bytes that a packed file may unpack to, per byte of the file; 64 MiB are always allowed."""
_ALWAYS = 64 * 2**20
_PACKINGS: dict[str, tuple[Callable[..., Any], file_kinds.Kind]] = {
    ".gz": (gzip.open, file_kinds.GZIP),
    ".xz": (lzma.open, file_kinds.XZ),
    ".bz2": (bz2.open, file_kinds.BZIP2),
}
_COMMA, _TAB = ",", "\t"
_SEPARATORS = {_COMMA: "commas", ";": "semicolons", _TAB: "tabs", "|": "vertical bars"}
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*', re.DOTALL)  # Excel's, before the header row
_COMMENT = re.compile(r"#(?=[\s#!]|$)|//|--|/\*|%\s")
_SUFFIXES = {".csv": _COMMA, ".tsv": _TAB, ".tab": _TAB}
# About how many bytes a value takes in memory, as a Python text in a list.
_VALUE = 64.0
_ROWS = 8192  # read at a time
_LONGEST_HEADER = 2**24  # bytes
_BLOCK = 2**20  # bytes read at a time
_DAMAGED = (OSError, EOFError, lzma.LZMAError, zlib.error)


def read_csv(path: str | Path) -> Table:
    """Read a text file with a header row, unpacking ``.gz``, ``.xz`` and ``.bz2``.

    All columns are text; an empty field is a missing value.  A first column without a name, of row
    names as R and pandas write them, is left out, and the table's `notes` say so.

    Parameters
    ----------
    path : path
        Fields are separated by tabs if it ends in ``.tsv`` or ``.tab``, before the packing; else by
        commas, or by what a first line such as ``sep=;`` says.

    Returns
    -------
    Table

    Raises
    ------
    InvalidInput
        If it cannot be read: what it is, the line at fault, or what speaks against its header row.
        No field is shown.
    """
    text = _TextFile.open_text_file(path)
    start = text.read_header_row()
    columns = text.read_columns_by_blocks(start)
    if columns is None:
        columns = _read_columns_plainly(text, start)
    if start.header.index:
        del columns[0]
    notes = (*start.notes, *start.header.notes)
    return Table(text.name, dict(zip(start.header.names, columns, strict=True)), notes)


def _read_columns_plainly(text: _TextFile, start: _Start) -> list[Column]:
    """Read all columns by Python's own reader, or say what is wrong with the file."""
    text.check_unpacked_bytes()
    rows = text.iterate_rows(start)
    try:
        first = list(islice(rows, 1))
        if not first:
            raise InvalidInput(
                text.name,
                None,
                "must hold a header row and at least one row below it",
                "give a file that holds the rows of a table",
            )
        columns = _transpose_records(start.header.width, first, rows, text.name)
    except (UnicodeDecodeError, csv.Error, _Ragged):
        raise text.first_faulty_line(start) from None
    except _DAMAGED as error:
        raise text.damaged_file_error(error) from None
    return [np.fromiter(values, dtype=object, count=len(values)) for values in columns]


def csv_header(path: str | Path) -> Header:
    """Read the header row of a text file, without reading a row after it; see :func:`read_csv`."""
    return _TextFile.open_text_file(path).read_header_row().header


class _CutOff(Exception):
    """The header row goes on after the bytes that were read."""


class _Ragged(Exception):
    """A row has another number of fields than the header."""


@dataclass(frozen=True)
class _Start:
    """What the beginning of a file says: `lines` are those up to the end of the header row."""

    header: Header
    separator: str
    lines: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _TextFile:
    """A text file, plain or packed; `separator` is what its ending says."""

    path: Path
    opened: Callable[..., Any]
    packed: bool
    separator: str

    @property
    def name(self) -> str:
        """For messages."""
        return self.path.name

    @classmethod
    def open_text_file(cls, path: str | Path) -> _TextFile:
        """Return the text file at a path; InvalidInput if its content is not text, packed as its
        ending says.
        """
        place = require_regular_file("path", path)
        ending = place.suffix.lower()
        opened, packing = _PACKINGS.get(ending, (open, None))
        # The ending before the packing says what separates fields, as in table.tsv.gz.
        inner = ending if packing is None else Path(place.stem).suffix.lower()
        text = cls(place, opened, packing is not None, _SUFFIXES.get(inner, _COMMA))
        outer = _first_bytes_of_file(place, open)
        found = file_kinds.detect_file_kind(outer)
        if packing is not None:
            if found != packing:
                rule = f"cannot be read: its name ends in {ending}, and it is not {packing.name}"
                if found is not None:
                    rule += f" but {found.name}"
                raise InvalidInput(
                    "path", place, rule, "rename it to the ending of its actual format"
                )
            try:
                found = file_kinds.detect_file_kind(_first_bytes_of_file(place, opened))
            except _DAMAGED as error:
                raise text.damaged_file_error(error) from None
            if found is not None:
                rule = f"cannot be read: its packed content is {found.name}"
                raise InvalidInput("path", place, rule, found.remedy)
        if found is not None:
            raise file_kinds.unexpected_kind_error(place, found)
        return text

    def damaged_file_error(self, error: Exception) -> InvalidInput:
        """Return the error for a file that cannot be read to its end."""
        reason = error.strerror if isinstance(error, OSError) else None
        if not reason:
            reason = "disk error"
            if self.packed:
                reason = "its packed content is damaged or cut off"
        rule = f"cannot be read: {reason}"
        return InvalidInput("path", self.path, rule, "check the path and the file")

    def _most_unpacked_bytes(self) -> int:
        return max(_ALWAYS, UNPACKED * self.path.stat().st_size)

    def check_unpacked_bytes(self) -> None:
        """Refuse a packed file that unpacks to far more than its size, and a file with NUL bytes.

        This reads the whole file once, which is quick compared with parsing it.
        """
        most = self._most_unpacked_bytes()
        size = lines = 0
        try:
            with self.opened(self.path, "rb") as file:
                while block := file.read(_BLOCK):
                    size += len(block)
                    if self.packed and size > most:
                        rule = f"unpacks to more than {most:,} bytes, {UNPACKED} times its size"
                        raise InvalidInput(
                            self.name, None, rule, "if the content is right, unpack it yourself"
                        )
                    if b"\0" in block:
                        line = lines + block[: block.index(b"\0")].count(b"\n") + 1
                        rule = f"line {line} holds a NUL byte, so the file is not text"
                        raise InvalidInput(
                            self.name, None, rule, "save the table as CSV in UTF-8 again"
                        )
                    lines += block.count(b"\n")
        except _DAMAGED as error:
            raise self.damaged_file_error(error) from None

    def read_header_row(self) -> _Start:
        """Read the header row and the lines before it; no other line is decoded."""
        # Few headers are longer than a block, so more is read only if one is cut off.
        for most in (_BLOCK, _LONGEST_HEADER):
            try:
                with self.opened(self.path, "rb") as file:
                    data = file.read(most)
            except _DAMAGED as error:
                raise self.damaged_file_error(error) from None
            with suppress(_CutOff):
                return _parse_first_lines(
                    data.splitlines(keepends=True), self, whole=len(data) < most
                )
        rule = f"the first row has more than {_LONGEST_HEADER:,} bytes, so it is not a header row"
        raise InvalidInput(self.name, None, rule, "name the columns in the first row")

    def read_columns_by_blocks(self, start: _Start) -> list[Column] | None:
        """Read a large file by pyarrow if it is installed; None if the plain reader must."""
        if self.path.stat().st_size < LEAST:
            return None
        most = self._most_unpacked_bytes()
        memory = machine_memory_bytes()
        width = start.header.width

        def fits(size: int, rows: int) -> bool:
            return (not self.packed or size <= most) and _VALUE * width * rows <= memory

        with self.opened(self.path, "rb") as file:
            return columns_by_blocks(file, start.lines, start.separator, width, fits)

    def iterate_rows(self, start: _Start) -> Iterator[list[str]]:
        """Yield the rows after the header, whatever their number of fields, without blank lines."""
        with (
            self.opened(self.path, "rb") as file,
            io.TextIOWrapper(file, "utf-8-sig", newline="") as text,
        ):
            for _ in range(start.lines):
                text.readline()
            yield from filter(None, csv.reader(text, delimiter=start.separator, strict=True))

    def first_faulty_line(self, start: _Start) -> InvalidInput:
        """Return the error of the first faulty row, with the number of its line.

        It is called only for a file in which parsing has failed.
        """
        with self.opened(self.path, "rb") as file:
            lines = _Decoded(file)
            for _ in range(start.lines):
                next(lines)
            reader = csv.reader(lines, delimiter=start.separator, strict=True)
            begins = lines.number + 1
            try:
                for row in reader:
                    if row and len(row) != start.header.width:
                        return _ragged_line_error(self.name, len(row), begins, start)
                    begins = lines.number + 1
            except UnicodeDecodeError:
                return _encoding_error(self.name, lines.number)
            except csv.Error as error:
                return _quoting_error(self.name, str(error), begins, lines.number)
        raise AssertionError("no fault was found in a refused file")


class _Decoded:
    """The lines of a binary file as text, each decoded by itself; `number` counts those that
    were read.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.number = 0
        self._lines = _split_lines(file)

    def __iter__(self) -> _Decoded:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.number += 1
        return line.decode("utf-8-sig" if self.number == 1 else "utf-8")


def _split_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file, which may end in a line feed, a carriage return, or both."""
    for line in file:
        yield from line.splitlines(keepends=True)


def _first_bytes_of_file(place: Path, opened: Callable[..., Any]) -> bytes:
    with opened(place, "rb") as file:
        return bytes(file.read(file_kinds.HEAD))


def _parse_first_lines(lines: list[bytes], text: _TextFile, whole: bool) -> _Start:
    """Parse the header row from the first lines of a file; `whole` is True if it has no more."""
    decoded = _FirstLines(lines, text.name, whole)
    separator, notes, before = _declared_separator(decoded.decoded_line(0) if lines else "", text)
    while before < len(lines) and not lines[before].strip(b"\r\n\xef\xbb\xbf"):
        before += 1
    try:
        fields, end = _parse_first_record(decoded.decoded_lines(before), before, separator)
    except csv.Error as error:
        # Quotes may be at fault only because another separator stands between them.
        better = _better_separator(decoded, before, before + 1, separator, 0)
        if better:
            raise _wrong_separator_error(text.name, better, separator) from None
        raise _quoting_error(text.name, str(error), before + 1, before + 1) from None
    _check_header_record(fields, decoded.decoded_line(before) if fields else "", text.name)
    better = _better_separator(decoded, before, end, separator, len(fields))
    if better:
        raise _wrong_separator_error(text.name, better, separator)
    return _Start(header_from_fields(fields, text.name), separator, end, notes)


def _declared_separator(first_line: str, text: _TextFile) -> tuple[str, tuple[str, ...], int]:
    """Return the declared separator, notes about it, and how many lines to skip: 1 for ``sep=``.

    Without a line ``sep=`` it is the separator of the file's ending.
    """
    said = _SEPARATOR_LINE.fullmatch(first_line)
    if said is None:
        if text.separator == _TAB:
            return text.separator, ("fields are separated by tabs, as its ending says",), 0
        return text.separator, (), 0
    separator = said[1]
    if separator not in _SEPARATORS:
        rule = f"its line sep= names a separator other than {', '.join(_SEPARATORS.values())}"
        raise InvalidInput(text.name, None, rule, "save it with commas")
    note = f"fields are separated by {_SEPARATORS[separator]}, as its first line says"
    return separator, (note,), 1


def _check_header_record(fields: list[str], line: str, name: str) -> None:
    """Refuse a first record that cannot be a header row, such as a comment."""
    if not fields:
        raise InvalidInput(
            name,
            None,
            "must hold a header row and at least one row below it",
            "give a file that holds the rows of a table",
        )
    if _COMMENT.match(line) or (len(fields) == 1 and fields[0].startswith("#")):
        rule = "its first line is a comment, and must name the columns"
        raise InvalidInput(name, None, rule, "delete what stands above the header row")


class _FirstLines:
    """First lines of a file, each decoded when it is asked for, so that no row of data is."""

    def __init__(self, lines: list[bytes], name: str, whole: bool) -> None:
        self._lines = lines
        self._name = name
        self._whole = whole

    def decoded_line(self, number: int) -> str:
        """Decode a line, by its number from 0."""
        # The last line of a part may go on after it.
        if not self._whole and number == len(self._lines) - 1:
            raise _CutOff
        line = self._lines[number]
        if file_kinds.control_characters(line):
            rule = (
                "the first row holds characters that are not text, so the file is not a text table"
            )
            raise InvalidInput(self._name, None, rule, "save the table as CSV in UTF-8")
        try:
            return line.decode("utf-8-sig" if number == 0 else "utf-8")
        except UnicodeDecodeError:
            raise _encoding_error(self._name, number + 1) from None

    def decoded_lines(self, first: int, end: int | None = None) -> Iterator[str]:
        """Yield the decoded lines ``first .. end - 1``, or all from `first` on."""
        if end is None:
            end = len(self._lines)
        for number in range(first, end):
            yield self.decoded_line(number)


def _parse_first_record(lines: Iterator[str], before: int, separator: str) -> tuple[list[str], int]:
    """Return the fields of the first record, and the number of file lines up to its end.

    `before` is the number of file lines that precede `lines`.
    """
    reader = csv.reader(lines, delimiter=separator, strict=True)
    fields = next(reader, [])
    return fields, before + reader.line_num


def _better_separator(lines: _FirstLines, first: int, end: int, separator: str, fields: int) -> str:
    """Return the separator, in words, that splits the first row into the most fields.

    It is empty if none gives more than the `fields` that `separator` gives.  The first row is in
    lines `first` to `end`.  Names of columns may hold blanks and commas, so these are tried only
    where there is one field.
    """
    found = dict[str, int]()
    for other, words in {**_SEPARATORS, " ": "blanks"}.items():
        if other == separator or (other in (" ", _COMMA) and fields > 1):
            continue
        try:
            record, _ = _parse_first_record(lines.decoded_lines(first, end), first, other)
        except csv.Error:
            continue
        if other == " ":
            # Several blanks may stand in a row, and are one separator.
            record = list(filter(None, record))
        found[words] = len(record)
    best = max(found, key=lambda words: found[words], default="")
    if best and found[best] > max(fields, 1):
        return best
    return ""


def _wrong_separator_error(name: str, better: str, separator: str) -> InvalidInput:
    """Return the error of a header row with another separator, which `better` names in words."""
    rule = (
        f"fields are separated by {better} in its header row, and {_SEPARATORS[separator]} are "
        "expected"
    )
    remedies = {
        "tabs": "give it a name that ends in .tsv",
        "commas": "give it a name that ends in .csv",
        "semicolons": "if its numbers have decimal points write the line sep=; above the header; "
        "with decimal commas: "
        "pandas.read_csv(FILE, sep=';', decimal=',').to_csv(NEW, index=False)",
        "vertical bars": "write the line sep=| above the header",
        "blanks": "separate them by commas; delete a title above the header row; quote the name "
        "of a single column",
    }
    return InvalidInput(name, None, rule, remedies[better])


def _ragged_line_error(name: str, fields: int, line: int, start: _Start) -> InvalidInput:
    """Return the error of a line whose number of fields is not that of the header row."""
    width = start.header.width
    word = "field" if fields == 1 else "fields"
    rule = f"line {line} has {fields} {word}, and the header row has {width}"
    remedy = "repair the line"
    if fields > width:
        remedy = "look for a decimal comma or a text with a comma and no quotes there"
        if start.separator != _COMMA:
            remedy = "look for a separator in a text without quotes there"
    if fields == width + 1 and line == start.lines + 1 and not start.header.index:
        remedy = (
            "delete separators at the ends of lines; if the first column holds row names, give it "
            "a name, as write.csv of R does, or leave it out"
        )
    return InvalidInput(name, None, rule, remedy)


def _encoding_error(name: str, line: int) -> InvalidInput:
    rule = f"line {line} is not in UTF-8; older programs write Windows-1252 or Latin-1"
    remedy = (
        "save it in UTF-8: in Excel as 'CSV UTF-8', or run: iconv -f WINDOWS-1252 -t UTF-8 FILE"
    )
    return InvalidInput(name, None, rule, remedy)


def _quoting_error(name: str, error: str, begins: int, reached: int) -> InvalidInput:
    """Return the error for a record with a wrong quote.

    `error` is the text of Python's reader, which is compared and not shown; `begins` and `reached`
    are the numbers of the lines where the record begins and where reading stopped.
    """
    if "unexpected end" in error:
        rule, remedy = f"a quote that opens in line {begins} is never closed", "close or remove it"
    elif "limit" in error:
        most = csv.field_size_limit()
        rule = f"the row that begins in line {begins} has a field of more than {most:,} characters"
        remedy = "look for a quote that is not closed there"
    else:
        rule = (
            f"a quote is followed by text in line {reached}, in the row that begins in line "
            f"{begins}"
        )
        remedy = "write a quote inside quotes twice, and close every quote that opens"
    return InvalidInput(name, None, rule, remedy)


def _transpose_records(
    width: int, first: list[list[str]], rest: Iterable[list[str]], name: str
) -> list[list[str]]:
    """Collect records of `width` fields into columns; `first` are those that were read already.

    Raises `_Ragged` for a record of another width, and InvalidInput if memory does not hold them.
    """
    columns: list[list[str]] = [[] for _ in range(width)]
    rows = iter(rest)
    part = first
    while part:
        if set(map(len, part)) != {width}:
            raise _Ragged
        for column, values in zip(columns, zip(*part, strict=True), strict=True):
            column.extend(values)
        check_memory_fits(name, _VALUE * width * len(columns[0]))
        part = list(islice(rows, _ROWS))
    return columns


__all__ = ["UNPACKED", "csv_header", "read_csv"]
