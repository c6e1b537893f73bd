"""Column names from the first row of a file, and the checks that this row is a header and no data.

In a file without a header the first row is somebody's data, and a schema is published.  So a first
row is refused if one of its fields looks like a value.  A refusal says which field and why, and
shows nothing of it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InvalidInput

LONGEST_NAME = 1000
"""Most characters of a column's name."""
INDEX_NOTE = (
    "the first column has no name: it is taken for row names, as R and pandas write "
    "them, and ignored"
)
# A second byte-order mark, and a blank of no width: both are invisible in an editor.
_INVISIBLE = "\ufeff\u200b"
_MISSING_MARKS = frozenset(
    {"NA", "N/A", "n/a", "#N/A", "NaN", "nan", "None", "null", "NULL", "Null", "<NA>", "NaT"}
)
_TRUTH = frozenset({"true", "false"})
_ANSWERS = frozenset(
    {
        "yes",
        "no",
        "male",
        "female",
        "man",
        "woman",
        "alive",
        "dead",
        "died",
        "lived",
        "survived",
        "positive",
        "negative",
        "unknown",
        "never",
        "always",
        "none",
        "missing",
    }
)
"""Words that are a value more often than a name.  One of them is no reason to refuse a first row;
two or more are, if they are at least half of it.
"""
_NUMBER = re.compile(r"[+-]?(\d[\d\s.,'’_]*|[.,]\d+)([eE][+-]?\d+)?")
_COMPARED = re.compile(r"[<>≤≥=~≈]")
_QUANTITY = re.compile(r"[+-]?\d[\d.,]*\s*[A-Za-zµ°%/]{1,4}")
_EXACT_QUANTITY = re.compile(r"[+-]?\d+[.,]\d+\s*[A-Za-zµ°%/]{1,4}")
_CODE = re.compile(r"([A-Za-z]{1,4}[-_]?)(0\d{2,}|\d{5,})")
_PERSON_CODE = re.compile(r"([A-Za-z]{1,4})([-_ ]0\d{2,}|[-_ ]?0\d{4,})")
_ACCOUNT = re.compile(r"[A-Z]{2}\d{2}( ?[A-Z0-9]{4}){3,}( ?[A-Z0-9]{1,4})?")
_QUOTES = {
    '"': '"',
    "'": "'",
    "`": "`",
    "\u201c": "\u201d",
    "\u201e": "\u201c",
    "\u2018": "\u2019",
    "«": "»",
}
_DAY = re.compile(r"\d{4}-?\d{2}-?\d{2}([T ].*)?|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}\b.*")
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mär|mai|okt|dez"
_NAMED_DAY = re.compile(
    rf"(\d{{1,2}}[\s.-]*({_MONTHS})[a-z]*[\s.,-]*\d{{2,4}}|({_MONTHS})[a-z]*[\s.-]+\d{{1,2}}[\s.,]+\d{{4}})\b.*",
    re.IGNORECASE,
)
_MAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_ADDRESS = re.compile(r"[a-z]+://.*", re.IGNORECASE)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_HASH = re.compile(r"(?=.*\d)[0-9a-f]{16,}", re.IGNORECASE)


@dataclass(frozen=True)
class Header:
    """Names of the columns in order.

    `index` is True if an unnamed first column of row names stands before them, to be ignored.
    """

    names: tuple[str, ...]
    index: bool

    @property
    def width(self) -> int:
        """Fields of a row."""
        return len(self.names) + self.index

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the holder of the rows."""
        return (INDEX_NOTE,) if self.index else ()


def header_from_fields(fields: Sequence[str], name: str) -> Header:
    """Read the fields of a first row as the names of columns.

    Raises
    ------
    InvalidInput
        If a field is empty (but for the first, of row names) or repeated, or looks like a value of
        a row.  Nothing of the row is shown.
    """
    found = [field.strip().strip(_INVISIBLE).strip() for field in fields]
    index = len(found) > 1 and not found[0]
    names, first = found, 1
    if index:
        # The first column holds row names, and its own name is empty.
        names, first = found[1:], 2
    _check_stray_quotes(found, name)
    for number, field in enumerate(names, first):
        if why := _reason_against_name(field):
            rule = f"field {number} of the first row {why}, so it is not a column name"
            raise InvalidInput(name, None, rule, _remedy_for_header(names, field))
    if len(set(names)) != len(names):
        rule = "the first row must name every column once, and a name occurs twice"
        raise InvalidInput(
            name, None, rule, "rename one column; if the file has no header row, add one"
        )
    if why := _looks_like_data(names):
        rule = f"the first row looks like data: {why}"
        raise InvalidInput(
            name, None, rule, "add a header row that names the columns, or choose other names"
        )
    return Header(tuple(names), index)


def check_declared_names(names: Sequence[str], name: str) -> None:
    """Refuse the names that a file declares of its columns if they look like values of a row.

    A table that was read without its header row, and then saved, has values for names.  Whole
    numbers in order from 0 are the names that frames give columns which have none.

    Raises
    ------
    InvalidInput
        If names are missing or repeated, or look like values.  None is shown.
    """
    if not names:
        raise InvalidInput(name, None, "must have at least one column", "give a table with columns")
    if len(set(names)) != len(names):
        raise InvalidInput(name, None, "must name every column once", "rename one")
    numbered = [field for field in names if field.isascii() and field.isdigit()]
    in_order = numbered == [str(k) for k in range(len(numbered))]
    remedy = (
        "if the table was read without its header row, read it again; else give the column "
        "another name"
    )
    for number, field in enumerate(names, 1):
        if field in numbered and in_order:
            continue
        if why := _reason_against_name(field):
            raise InvalidInput(
                name, None, f"the name of column {number} {why}, like a data value", remedy
            )
    if why := _looks_like_data(names):
        raise InvalidInput(name, None, f"the names of columns look like data: {why}", remedy)


def _check_stray_quotes(fields: Sequence[str], name: str) -> None:
    """Refuse fields in quotes that a CSV reader does not remove, such as single quotes: they would
    become part of the names and of all values.
    """
    quoted = [len(field) > 1 and _QUOTES.get(field[0]) == field[-1] for field in fields]
    if all(quoted) or any(
        one and field[0] == '"' for one, field in zip(quoted, fields, strict=True)
    ):
        rule = "fields of its first row are in quotes that are read as part of the names"
        remedy = 'write the plain quote " right after the separator, or no quotes at all'
        raise InvalidInput(name, None, rule, remedy)


def _remedy_for_header(names: Sequence[str], field: str) -> str:
    """Return what to do about a field of the first row that is no name."""
    named = sum(map(bool, names))
    if not field and named == 1 and names[0]:
        return "delete the title above the header row"
    if not field and not any(names[named:]):
        return "delete the separators at the ends of lines"
    return "give every column a name; if the file has no header row, add one"


_NUMBERS = (("is a date", (_DAY, _NAMED_DAY)), ("is a number", (_NUMBER,)))
_VALUES_WITH_LETTERS = (
    ("is an address", (_MAIL, _ADDRESS)),
    ("is an identifier", (_UUID, _HASH, _ACCOUNT)),
    ("is a quantity", (_EXACT_QUANTITY,)),
)
"""Reasons why a whole field is no name, each with the patterns that show it."""


def _reason_against_name(field: str) -> str:
    """Return why a field of a first row is no column name; empty if it may be one."""
    if not field:
        return "is empty"
    if field in _MISSING_MARKS:
        return "is a mark of missing values"
    if field.lower() in _TRUTH:
        return "is a truth value"
    if len(field) > LONGEST_NAME:
        return f"has more than {LONGEST_NAME:,} characters"
    if why := _first_matching_reason(field, _NUMBERS):
        return why
    if not any(map(str.isalpha, field)):
        return "has no letter"
    if _COMPARED.match(field):
        return "begins with a comparison"
    why = _first_matching_reason(field, _VALUES_WITH_LETTERS)
    if why:
        return why
    if _has_control_characters(field):
        return "holds control characters"
    return ""


def _first_matching_reason(
    field: str, kinds: Sequence[tuple[str, Sequence[re.Pattern[str]]]]
) -> str:
    """Return the first reason with a pattern that the whole field matches; empty if none does."""
    for why, patterns in kinds:
        if any(pattern.fullmatch(field) for pattern in patterns):
            return why
    return ""


def _has_control_characters(field: str) -> bool:
    return any(unicodedata.category(one) == "Cc" and one not in "\t\r\n" for one in field)


def _looks_like_data(names: Sequence[str]) -> str:
    """Return why the fields together look like a row of data, though each may be a name; or ""."""
    if _values_among_names(names) >= max(2, len(names) / 2):
        return "at least half of its fields look like data values"
    letters = Counter(found[1] for found in map(_PERSON_CODE.fullmatch, names) if found is not None)
    if 1 in letters.values():
        return "a field looks like the code of a person"
    return ""


def _values_among_names(names: Sequence[str]) -> int:
    """Count the fields that are more often values than names: answers, quantities, and codes of
    people.

    Codes with the same letters, such as V001 and V002, are names of a series of columns.
    """
    answers = sum(
        name.lower() in _ANSWERS or _QUANTITY.fullmatch(name) is not None for name in names
    )
    letters = Counter(found[1] for found in map(_CODE.fullmatch, names) if found is not None)
    return answers + sum(times == 1 for times in letters.values())


__all__ = ["INDEX_NOTE", "LONGEST_NAME", "Header", "check_declared_names", "header_from_fields"]
