"""Tables in files of Stata, SPSS and SAS, read by pyreadstat (the extra ``sottovoce[files]``).

How a column is read depends on the file's declarations and never on its rows: dates are known by
their format, codes by their value labels.  Missing values of every kind are missing: Stata's ``.``
and
``.a`` to ``.z``, SAS's, and those that a user of SPSS declared.

These programs keep points in time as numbers, which are converted here, each by itself: a date
beyond those of Python, such as a typing error in the year, must not make the file unreadable.
Times of day and durations stay numbers of seconds, which may be more than a day.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidInput
from . import file_kinds
from .table import Table, check_memory_fits
from .values import MOST_MICROS, as_python_value

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
# About how many bytes a value takes in memory.
_VALUE = 64.0
_NAMED = 6  # columns that a note names


@dataclass(frozen=True)
class _Clock:
    """How a format counts time: in units of `seconds` since `epoch`.

    `day` is True for formats that show no time of day.
    """

    epoch: np.datetime64
    seconds: float
    day: bool

    def point_in_time(self, value: float) -> Any:
        """Return the point in time that a number stands for; a date if the format is of days.

        Beyond the dates of Python it is a :class:`numpy.datetime64`, clipped to `MOST_MICROS`.
        """
        micros = min(max(value * self.seconds * 1e6, -MOST_MICROS), MOST_MICROS)
        found = as_python_value(self.epoch + np.timedelta64(round(micros), "us"))
        if self.day and isinstance(found, datetime):
            return found.date()
        return found


_OF_1960, _OF_1582 = np.datetime64("1960-01-01", "us"), np.datetime64("1582-10-14", "us")
_DAY = 86400.0
_STATA = (
    (re.compile(r"%-?(td|d)"), _Clock(_OF_1960, _DAY, True)),
    (re.compile(r"%-?t[cC]"), _Clock(_OF_1960, 1e-3, False)),
)
_SPSS = (
    (re.compile(r"DATETIME|YMDHMS", re.IGNORECASE), _Clock(_OF_1582, 1.0, False)),
    (re.compile(r"([AEJS]?DATE|MOYR|QYR|WKYR)\d*$", re.IGNORECASE), _Clock(_OF_1582, 1.0, True)),
)
_SAS = (
    (
        re.compile(
            r"DATETIME|DATEAMPM|MDYAMPM|YMDDTTM|NLDATM|(E8601|B8601|IS8601)D[NTXZ]", re.IGNORECASE
        ),
        _Clock(_OF_1960, 1.0, False),
    ),
    (re.compile(r"DT(DATE|MONYY|WKDATX|YEAR|YYQC)", re.IGNORECASE), _Clock(_OF_1960, 1.0, True)),
    (
        re.compile(
            r"DATE|(DDMMYY|MMDDYY|YYMMDD)[BCDNPS]?|WEEKDAT[EX]|WORDDAT[EX]|JULIAN|MONYY|NLDATE|(E8601|B8601|IS8601)DA",
            re.IGNORECASE,
        ),
        _Clock(_OF_1960, _DAY, True),
    ),
)
_CLOCKS = {
    ".dta": _STATA,
    ".sav": _SPSS,
    ".zsav": _SPSS,
    ".por": _SPSS,
    ".sas7bdat": _SAS,
    ".xpt": _SAS,
}
"""By a file's ending: beginnings of the formats of days and points in time, and how they count."""


def read_statistics(path: str | Path) -> Table:
    """Read a file of Stata, SPSS or SAS by its ending.

    A column with value labels is read as its labels, unless SPSS calls its measure a scale; a code
    without a label stays a number.  The table's `notes` name such columns.

    Raises
    ------
    InvalidInput
        If pyreadstat is not installed, or the file is of another kind, damaged, or larger than
        memory.  No value is shown.
    """
    place = Path(path)
    about = _read_metadata(path)
    if not about.column_names:
        raise InvalidInput(
            place.name, None, "must have at least one column", "give a table with columns"
        )
    check_memory_fits(place.name, _VALUE * (about.number_rows or 0) * len(about.column_names))
    columns, _ = _read_with_pyreadstat(path)
    if not columns or not len(next(iter(columns.values()))):
        raise InvalidInput(place.name, None, "must hold at least one row", "give a file with rows")
    labels, clocks = _declared_value_labels(about), _clocks_of_columns(about, place)
    found = dict[str, Any]()
    for name, values in columns.items():
        if name in labels:
            found[name] = _column_of_objects(values, partial(_label_or_code, labels[name]))
        elif name in clocks:
            found[name] = _column_of_objects(values, clocks[name].point_in_time)
        else:
            found[name] = _column_of_objects(values, _unchanged_value)
    return Table(place.name, found, _notes_on_labels(labels))


def statistics_types(path: str | Path) -> dict[str, str]:
    """Return the types that a file of Stata, SPSS or SAS declares, without reading a row.

    By column, in words: ``"number"``, ``"text"`` or ``"date"``.  A column with value labels is a
    text.
    """
    about = _read_metadata(path)
    labels = _declared_value_labels(about)
    clocks = _clocks_of_columns(about, Path(path))
    types = dict[str, str]()
    for name in about.column_names:
        if about.readstat_variable_types.get(name) == "string" or name in labels:
            types[name] = "text"
        elif name in clocks:
            types[name] = "date"
        else:
            types[name] = "number"
    return types


def _clocks_of_columns(about: Any, place: Path) -> dict[str, _Clock]:
    """Return, for each column whose format is of days or points in time, how it counts time."""
    found = dict[str, _Clock]()
    known = _CLOCKS[place.suffix.lower()]
    for name, form in about.original_variable_types.items():
        if about.readstat_variable_types.get(name) == "string":
            continue
        clock = next((clock for start, clock in known if start.match(form or "")), None)
        if clock is not None:
            found[name] = clock
    return found


def _read_metadata(path: str | Path) -> Any:
    """Read what the file declares of its columns; InvalidInput if two share a name."""
    _, about = _read_with_pyreadstat(path, metadataonly=True)
    names = about.column_names
    if len(set(names)) != len(names):
        raise InvalidInput(Path(path).name, None, "must name every column once", "rename one")
    return about


def _read_with_pyreadstat(path: str | Path, **options: Any) -> tuple[Mapping[str, list[Any]], Any]:
    """Read columns as lists, None where a value is missing, and the file's metadata."""
    function, kind = _READERS[Path(path).suffix.lower()]
    place = file_kinds.require_file_kind(path, kind)
    try:
        reader = getattr(import_module("pyreadstat"), function)
    except ImportError:
        rule, remedy = (
            f"reading {kind.name} needs pyreadstat",
            "run: pip install 'sottovoce[files]'",
        )
        raise InvalidInput("path", place, rule, remedy) from None
    try:
        columns, about = reader(
            place, output_format="dict", disable_datetime_conversion=True, **options
        )
    except MemoryError:
        rule = "cannot be read: it does not fit into memory"
        raise InvalidInput("path", place, rule, "save fewer rows or columns") from None
    except Exception:
        # Foreign bytes can make the reader raise anything, and its message may hold a value.
        rule, remedy = (
            f"cannot be read: {kind.name} that is damaged or uses unsupported features",
            "save it again",
        )
        raise InvalidInput("path", place, rule, remedy) from None
    return columns, about


def _declared_value_labels(about: Any) -> dict[str, Mapping[Any, str]]:
    """Return the value labels of the columns that are read as labels, by column."""
    measures = about.variable_measure
    return {
        name: labels
        for name, labels in about.variable_value_labels.items()
        if labels and measures.get(name) != "scale"
    }


def _label_or_code(labels: Mapping[Any, str], value: Any) -> Any:
    return labels.get(value, value)


def _unchanged_value(value: Any) -> Any:
    return value


def _column_of_objects(values: list[Any], read: Callable[[Any], Any]) -> Any:
    """Return an array of objects with ``read(value)``, or None where a value is missing.

    Each value is read by itself, so that a missing one does not change how others are read.
    """
    column = np.empty(len(values), dtype=object)
    for k, value in enumerate(values):
        missing = value is None or (isinstance(value, float) and math.isnan(value))
        column[k] = None if missing else read(value)
    return column


def _notes_on_labels(labels: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note that names the columns read as value labels, or nothing."""
    if not labels:
        return ()
    more = ""
    if len(labels) > _NAMED:
        more = f", and {len(labels) - _NAMED} more"
    return (
        f"coded values are read as their value labels: {', '.join(list(labels)[:_NAMED])}{more}",
    )


__all__ = ["ENDINGS", "read_statistics", "statistics_types"]
