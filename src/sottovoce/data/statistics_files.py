"""Tables in files of Stata, SPSS and SAS, read by pyreadstat (the extra ``sottovoce[files]``).

How a column is read is what the file declares of it, and never what its rows hold: dates by their format, codes by
their value labels.  Missing values of every kind are missing: Stata's ``.`` and ``.a`` to ``.z``, SAS's, and those that
a user of SPSS declared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidInput
from . import file_kinds
from .table import Table, fits

_READERS: dict[str, tuple[str, file_kinds.Kind]] = {
    ".dta": ("read_dta", file_kinds.STATA),
    ".sav": ("read_sav", file_kinds.SPSS),
    ".zsav": ("read_sav", file_kinds.SPSS),
    ".por": ("read_por", file_kinds.SPSS_PORTABLE),
    ".sas7bdat": ("read_sas7bdat", file_kinds.SAS),
    ".xpt": ("read_xport", file_kinds.SAS_TRANSPORT),
}
"""By a file's ending: the function that reads it, and what it has to be."""
ENDINGS = tuple(_READERS)
_VALUE = 64.0  # bytes that a value takes in memory, about
_NAMED = 6  # columns that a note names
_DATE_FORMATS = (
    "DATE", "DDMMYY", "MMDDYY", "YYMMDD", "WEEKDATE", "WORDDATE", "ADATE", "EDATE", "JDATE", "SDATE", "YMDHMS",
    "E8601D", "IS8601D", "B8601D", "MDYAMPM", "DATEAMPM", "JULIAN", "YYMMDDS", "NLDATE",
)  # fmt: skip
"""Beginnings of the formats of SAS and SPSS that are days, with or without a time."""


def read_statistics(path: str | Path) -> Table:
    """Read a file of Stata, SPSS or SAS by its ending.

    A column with value labels is read as its labels, unless SPSS calls its measure a scale; a code without a label
    stays a number.  The table's `notes` name such columns.

    Raises
    ------
    InvalidInput
        If pyreadstat is not installed, or the file is of another kind, damaged, or larger than memory.  No value is
        shown.
    """
    place = Path(path)
    about = _metadata(path)
    if not about.column_names:
        raise InvalidInput(place.name, None, "must have at least one column", "check the file")
    fits(place.name, _VALUE * (about.number_rows or 0) * len(about.column_names))
    formats = set(filter(None, about.original_variable_types.values()))
    dates = [text for text in formats if text.startswith(("%td", "%-td", "%d"))]
    times = [text for text in formats if text.startswith(("%tc", "%-tc", "%tC", "%-tC"))]
    more = {"extra_date_formats": dates, "extra_datetime_formats": times} if place.suffix.lower() == ".dta" else {}
    columns, _ = _read(path, **more)
    if not columns or not len(next(iter(columns.values()))):
        raise InvalidInput(place.name, None, "must hold at least one row", "check the file")
    labels = _labels(about)
    found = {name: _column(values, labels.get(name, {})) for name, values in columns.items()}
    return Table(place.name, found, _notes(labels))


def statistics_types(path: str | Path) -> dict[str, str]:
    """The types that a file of Stata, SPSS or SAS declares, by column, without reading a value of a row.

    In words: ``"number"``, ``"text"`` or ``"date"``.  A column with value labels is a text.
    """
    about = _metadata(path)
    labels = _labels(about)
    types = dict[str, str]()
    for name in about.column_names:
        kind, form = about.readstat_variable_types.get(name), about.original_variable_types.get(name) or ""
        if kind == "string" or name in labels:
            types[name] = "text"
        elif form.startswith(("%td", "%-td", "%d", "%tc", "%-tc", "%tC", "%-tC")) or _is_date(form):
            types[name] = "date"
        else:
            types[name] = "number"
    return types


def _is_date(form: str) -> bool:
    return not form.startswith("%") and form.upper().startswith(_DATE_FORMATS)


def _metadata(path: str | Path) -> Any:
    """What the file says of its columns; every column must have a name of its own."""
    _, about = _read(path, metadataonly=True)
    names = about.column_names
    if len(set(names)) != len(names):
        raise InvalidInput(Path(path).name, None, "must name every column once", "rename one")
    return about


def _read(path: str | Path, **options: Any) -> tuple[Mapping[str, list[Any]], Any]:
    """Columns as lists, None where a value is missing, and what the file says of them."""
    function, kind = _READERS[Path(path).suffix.lower()]
    place = file_kinds.check_kind(path, kind)
    try:
        reader = getattr(import_module("pyreadstat"), function)
    except ImportError:
        rule, remedy = f"reading {kind.name} needs pyreadstat", "run: pip install 'sottovoce[files]'"
        raise InvalidInput("path", place, rule, remedy) from None
    try:
        columns, about = reader(place, output_format="dict", **options)
    except MemoryError:
        rule = "cannot be read: it does not fit into memory"
        raise InvalidInput("path", place, rule, "save fewer rows or columns") from None
    except Exception:  # foreign bytes can make the reader raise anything, and its message may hold a value
        rule, remedy = f"cannot be read: {kind.name} that is damaged or has features that are not read", "save it again"
        raise InvalidInput("path", place, rule, remedy) from None
    return columns, about


def _labels(about: Any) -> dict[str, Mapping[Any, str]]:
    """Value labels of the columns that are read as labels."""
    measures = about.variable_measure
    return {
        name: labels for name, labels in about.variable_value_labels.items() if labels and measures.get(name) != "scale"
    }


def _column(values: list[Any], labels: Mapping[Any, str]) -> Any:
    """Values as objects, so that a missing one changes nothing about the others."""
    column = np.empty(len(values), dtype=object)
    for k, value in enumerate(values):
        missing = value is None or (isinstance(value, float) and math.isnan(value))
        column[k] = None if missing else labels.get(value, value)
    return column


def _notes(labels: Mapping[str, Any]) -> tuple[str, ...]:
    if not labels:
        return ()
    more = f", and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
    return (f"read as their value labels, where the file has codes: {', '.join(list(labels)[:_NAMED])}{more}",)


__all__ = ["ENDINGS", "read_statistics", "statistics_types"]
