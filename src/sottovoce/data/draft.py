"""Schema files as text: a first draft from the names of a table's columns, and the TOML of a
schema.

A draft has "?" wherever its author must declare a public fact (:data:`.mistakes.OPEN`);
``sottovoce schema check`` then lists what is still open.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import InvalidInput
from .file_formats import FORMATS, column_types, format_of_file
from .headers import Header, check_declared_names
from .listed import split_column_names
from .meant import suggest_spelling
from .mistakes import OPEN
from .schema import Schema

_KINDS = (
    "number (lo, hi, typical), category (values), bins (edges), date (epoch, lo, hi); or "
    'name it in "ignore"'
)
_TITLED = (
    "# The column names are the first row of the file. If one of them is a data value, "
    "the file has no header: add one."
)
_NA_LINE = 'na = ["NA"]  # marks of missing values besides the empty field: add yours, such as "-9"'
"""R writes NA for every missing value; the line is drafted for files that have no missing value
of their own.
"""
_UNDECLARED_NA_LINE = '# na = ["NA", "-9"]  # marks of missing values besides the empty field'
_ROW_NAMES = re.compile(
    r"Unnamed: 0(\.\d+)?|__index_level_\d+__|rownames|row\.names", re.IGNORECASE
)
"""What pandas, pyarrow and R call a column of row names that was written with a name."""
_TYPED: dict[str, dict[str, Any]] = {
    "number": {"kind": "number", "lo": OPEN, "hi": OPEN},
    "truth": {"kind": "category", "values": ["false", "true"]},
    "text": {"kind": "category", "values": [OPEN]},
    "date": {"kind": "date", "epoch": OPEN, "lo": OPEN, "hi": OPEN},
}
"""The block of a declared type."""
_HINTS = {
    "number": "# public bounds; add typical = [LO, HI], the range of most values; missing = "
    "VALUE, indicator = true",
    "text": "# every value that matters; add other = true for the rest, indicator = true for "
    "missing ones",
    "date": '# epoch, lo and hi are public days, such as "2020-01-01"',
}


def draft(
    path: str | Path,
    *,
    types: bool = False,
    label: str | None = None,
    site: str | None = None,
    person: str | None = None,
    ignore: Iterable[str] = (),
) -> str:
    """Draft a schema file for a table, with "?" wherever a public fact has to be declared.

    Only the names of columns are read; with `types` also what types the file declares, never a
    value of a row.  Row names that R, pandas or pyarrow wrote are drafted as ignored.

    Parameters
    ----------
    path : path
        A file of a table; see :mod:`sottovoce.data.file_formats`.
    types : bool
        Whether to draft kinds from declared types, which CSV and Excel files have not.
    label, site, person : str, optional
        Columns that are no features: what is predicted, who holds a row, whose row it is.
    ignore : iterable of str
        Columns that are not used: each a name, or several names with commas between them.

    Returns
    -------
    str
        The text of a schema file, in TOML.
    """
    if types:
        _check_types_are_declared(path)
    known = column_types(path)
    header = _read_checked_header(path, known)
    ignored = [name for given in ignore for name in split_column_names(given, known)]
    roles = [("label", label), ("site", site), ("person", person)]
    _check_column_names([*roles, *(("ignore", name) for name in ignored)], known)
    reserved = {label, site, person, *ignored}
    ignored += [name for name in known if _ROW_NAMES.fullmatch(name) and name not in reserved]
    kept = [name for name in known if name not in {*reserved, *ignored}]
    lines = [
        *_opening_comments(header, types),
        "intercept = true",
        *_lines_for_roles(site, person),
        _UNDECLARED_NA_LINE if header is None else _NA_LINE,
        f"ignore = {_toml_value(ignored)}  # identifiers, free text, what is known only afterwards",
        *_lines_for_label(label),
    ]
    for name in kept:
        kind = known[name] if types else "?"
        lines += ["", *_lines_for_block(name, kind)]
    return "\n".join([*lines, ""])


def _check_types_are_declared(path: str | Path) -> None:
    """Refuse a file whose format declares no types of columns."""
    if format_of_file(path).types is not None:
        return
    typed = ", ".join(ending for ending, one in FORMATS.items() if one.types is not None)
    rule = (
        f"only files that end in {typed} declare column types, "
        "and types are never guessed from values"
    )
    raise InvalidInput("types", True, rule, "leave it out, or give such a file")


def _read_checked_header(path: str | Path, known: Mapping[str, str]) -> Header | None:
    """Return the checked first row of a file, or None where its format declares the names.

    InvalidInput if the names look like values of a row, or are of a single column.
    """
    header_in = format_of_file(path).header
    header = None if header_in is None else header_in(path)
    if header is None:
        check_declared_names(list(known), Path(path).name)
    elif header.width < 2:
        rule = (
            "the first row names only one column, and a table needs a label and at least one "
            "feature"
        )
        raise InvalidInput(Path(path).name, None, rule, "give a table with a header row")
    return header


def _check_column_names(asked: Iterable[tuple[str, str | None]], known: Mapping[str, str]) -> None:
    """Refuse a (field, name) whose name is not one of the table's columns."""
    for field, name in asked:
        if name is not None and name not in known:
            raise InvalidInput(
                field,
                name,
                "is not a column of the table",
                suggest_spelling(name, known) or "correct the name",
            )


def _opening_comments(header: Header | None, types: bool) -> list[str]:
    """Return the draft's first lines: what was read, notes on the header, and what to do next."""
    read = "names of the columns and their declared types" if types else "names of the columns"
    notes = []
    if header is not None:
        notes = [_TITLED, *(f"# {note[0].upper()}{note[1:]}." for note in header.notes)]
    return [
        f"# A draft from the {read}: no value of a row was read.",
        *notes,
        '# Replace every "?" by a public fact: from a code book, a textbook, a reference range, '
        "never from the rows.",
        "# Then `sottovoce schema check` this file, without the table and with it.",
    ]


def _lines_for_roles(site: str | None, person: str | None) -> list[str]:
    """Return the lines that declare the site and person columns, or show in a comment how to."""
    site_line = '# site = "COLUMN"  # the site that holds the row'
    if site:
        site_line = f"site = {_toml_value(site)}"
    person_line = '# person = "COLUMN"  # identifies the person, if people have several rows'
    if person:
        person_line = f"person = {_toml_value(person)}"
    return [site_line, person_line]


def _lines_for_label(label: str | None) -> list[str]:
    """Return the lines that declare the label, with comments that show its three kinds."""
    column = _toml_value("COLUMN" if label is None else label)
    declared = _toml_value(OPEN)
    if label is not None:
        declared = f'{{ column = {column}, positive = "{OPEN}", negative = "{OPEN}" }}'
    return [
        "# What is predicted.  Two classes; one of several; or a number between public bounds:",
        f'#   label = {{ column = {column}, positive = "VALUE", negative = "VALUE" }}',
        f'#   label = {{ column = {column}, values = ["A", "B", "C"] }}',
        f'#   label = {{ column = {column}, lo = 0, hi = 60, unit = "days" }}',
        f"label = {declared}",
    ]


def _lines_for_block(name: str, kind: str) -> list[str]:
    """Return the lines of a column's declaration; `kind` is its declared type, or "?"."""
    title = f"[columns.{_toml_key(name)}]"
    if kind.startswith("vector "):
        size = int(kind.removeprefix("vector "))
        entries: dict[str, Any] = {"kind": "vector", "size": size, "lo": OPEN, "hi": OPEN}
        return [title, *toml_entries(entries)]
    lines = toml_entries(_TYPED.get(kind, {"kind": OPEN}))
    if kind not in _TYPED:
        lines[0] += f"  # {_KINDS}"
    if kind in _HINTS:
        lines.append(_HINTS[kind])
    return [title, *lines]


def toml_of(schema: Schema, comments: Iterable[str] = ()) -> str:
    """Write a schema as the text of a schema file, under lines of comments.

    The inverse of :meth:`Schema.from_toml`.
    """
    entries = schema.to_dict()
    columns = entries.pop("columns")
    lines = [f"# {line}".rstrip() for text in comments for line in text.split("\n")]
    lines += toml_entries(entries)
    for name, block in columns.items():
        values = block.get("values")
        # Groups of one value each, of their own name, are written as a plain list.
        if isinstance(values, Mapping) and all(
            members == [group] for group, members in values.items()
        ):
            block = block | {"values": list(values)}
        lines += ["", f"[columns.{_toml_key(name)}]", *toml_entries(block)]
    return "\n".join([*lines, ""])


def toml_entries(entries: Mapping[str, Any]) -> list[str]:
    """Write entries as lines of TOML."""
    return [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in entries.items()]


def _toml_key(name: str) -> str:
    """Write a key in TOML: bare where it can be."""
    if re.fullmatch(r"[A-Za-z0-9_-]+", name):
        return name
    return _toml_value(name)


def _toml_value(value: Any) -> str:
    """Write a value in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        # Up to 1e15 every whole number is exact as a float; larger ones are written as floats.
        if float(value).is_integer() and abs(value) < 1e15:
            return repr(int(value))
        return repr(float(value))
    if isinstance(value, Mapping):
        return "{ " + ", ".join(toml_entries(value)).replace("\n", " ") + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return _ascii_where_unseen(json.dumps(str(value), ensure_ascii=False))


def _ascii_where_unseen(text: str) -> str:
    """Escape characters of a TOML text that a reader cannot see or that a terminal obeys, such as
    control characters and blanks of no width.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escaped_character(one) for one in text)


def _escaped_character(character: str) -> str:
    code = ord(character)
    if code < 2**16:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"


__all__ = ["draft", "toml_of"]
