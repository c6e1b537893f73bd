"""Names of columns that are taken from the first row of a file, and what speaks against taking it for names.

In a file without a header the first row is somebody's data, and a schema is published.  So a first row is refused if
one of its fields looks like a value.  A refusal says which field and why, and shows nothing of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InvalidInput

LONGEST_NAME = 1000
"""Most characters of a column's name."""
INDEX_NOTE = "the first column has no name: it is taken for row names, as R and pandas write them, and ignored"
_INVISIBLE = "\ufeff\u200b"  # a second mark of the byte order, and a blank of no width
_MISSING_MARKS = frozenset({"NA", "N/A", "n/a", "#N/A", "NaN", "nan", "None", "null", "NULL", "Null", "<NA>", "NaT"})
_TRUTH = frozenset({"true", "false"})
_ANSWERS = frozenset({
    "yes", "no", "male", "female", "man", "woman", "alive", "dead", "died", "lived", "survived", "positive", "negative",
    "unknown", "never", "always", "none", "missing",
})  # fmt: skip
"""Words that are a value more often than a name: one is no reason to refuse a row, two that are half of it are."""
_NUMBER = re.compile(r"[+-]?(\d[\d\s.,'’_]*|[.,]\d+)([eE][+-]?\d+)?")
_COMPARED = re.compile(r"[<>≤≥=~≈]")
_QUANTITY = re.compile(r"[+-]?\d[\d.,]*\s*[A-Za-zµ°%/]{1,4}")
_CODE = re.compile(r"([A-Za-z]{1,4}[-_]?)(0\d{2,}|\d{5,})")
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
    """Names of the columns in order.  `index` says that an unnamed first column stands before them, to be ignored."""

    names: tuple[str, ...]
    index: bool

    @property
    def width(self) -> int:
        """Fields of a row."""
        return len(self.names) + self.index

    @property
    def notes(self) -> tuple[str, ...]:
        """What the holder of the rows should know."""
        return (INDEX_NOTE,) if self.index else ()


def header_of(fields: Sequence[str], name: str) -> Header:
    """The header that the fields of a first row are.

    Raises
    ------
    InvalidInput
        If a field is empty (but for the first, of row names) or repeated, or looks like a value of a row.  Nothing of
        the row is shown.
    """
    found = [field.strip().strip(_INVISIBLE).strip() for field in fields]
    index = len(found) > 1 and not found[0]
    names = found[1:] if index else found
    first = 2 if index else 1
    for number, field in enumerate(names, first):
        if why := _no_name(field):
            remedy = "give every column a name; if the file has no header row, add one"
            raise InvalidInput(name, None, f"field {number} of the first row {why}, and is no name of a column", remedy)
    if len(set(names)) != len(names):
        rule = "the first row must name every column once, and a field of it occurs twice"
        raise InvalidInput(name, None, rule, "rename one column; if the file has no header row, add one")
    if _values_among(names) >= max(2, len(names) / 2):
        rule = "the first row looks like data: half of its fields or more are such as values are"
        raise InvalidInput(name, None, rule, "add a header row that names the columns, or choose other names")
    return Header(tuple(names), index)


def _no_name(field: str) -> str:
    """Why a field of a first row is no name of a column; empty if it may be one."""
    if not field:
        return "is empty"
    if field in _MISSING_MARKS:
        return "is a mark of missing values"
    if field.lower() in _TRUTH:
        return "is a truth value"
    if len(field) > LONGEST_NAME:
        return f"has more than {LONGEST_NAME:,} characters"
    if _DAY.fullmatch(field) or _NAMED_DAY.fullmatch(field):
        return "is a date"
    if _NUMBER.fullmatch(field):
        return "is a number"
    if not any(map(str.isalpha, field)):
        return "has no letter"
    if _COMPARED.match(field):
        return "begins with a comparison"
    if _MAIL.fullmatch(field) or _ADDRESS.fullmatch(field):
        return "is an address"
    if _UUID.fullmatch(field) or _HASH.fullmatch(field):
        return "is an identifier"
    if any(ord(one) < 32 and one not in "\t\r\n" for one in field):
        return "holds control characters"
    return ""


def _values_among(names: Sequence[str]) -> int:
    """How many fields that may be names are more often values: answers, quantities, and codes of people.

    Codes with the same letters, such as V001 and V002, are names of a series of columns.
    """
    answers = sum(name.lower() in _ANSWERS or _QUANTITY.fullmatch(name) is not None for name in names)
    letters = Counter(found[1] for found in map(_CODE.fullmatch, names) if found is not None)
    return answers + sum(times == 1 for times in letters.values())


__all__ = ["INDEX_NOTE", "LONGEST_NAME", "Header", "header_of"]
