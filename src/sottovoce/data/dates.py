"""Dates as numbers: units of time since a public day, the *epoch*, which the schema declares.

:class:`Date` is a kind of block (:mod:`sottovoce.data.columns`); everything about numbers (bounds,
typical range, missing values) holds for it after the conversion.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import ClassVar

import numpy as np

from ..errors import SchemaError
from ..util.typing import Any, Array
from .columns import KINDS, Mask, Number
from .values import (
    MISSING,
    Column,
    as_python_value,
    canonical_text,
    identities_of_marks,
    mask_of_missing,
    points_in_microseconds,
    value_as_text,
    values_one_by_one,
)

UNITS = {
    "minutes": 60.0,
    "hours": 3600.0,
    "days": 86400.0,
    "weeks": 7 * 86400.0,
    "years": 365.25 * 86400.0,
}
"""Seconds of a unit of time; a year is the mean one of the Julian calendar."""
_MICRO = 1e6


def parse_day(value: object) -> datetime:
    """Read a declared day or point in time, without a zone.

    A ValueError or a TypeError if it is none.
    """
    if isinstance(value, str):
        value = datetime.fromisoformat(value.strip())
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    raise TypeError("a date is needed")


def time_since_epoch(value: object, epoch: str, unit: str) -> float:
    """Compute the time from a public day to a day or point in time.

    Parameters
    ----------
    value : object
        A text in ISO 8601, or a day or point in time of any library.
    epoch : str
        The public day, in ISO 8601.
    unit : str
        A key of `UNITS`, such as ``"days"``.

    Returns
    -------
    float
        In the unit; negative before `epoch`.

    Raises
    ------
    ValueError, OverflowError or TypeError
        If `value` is no day or point in time.
    """
    value = as_python_value(value)
    # Points beyond the range of Python's own are NumPy's already.
    if not isinstance(value, np.datetime64):
        value = np.datetime64(parse_day(value), "us")
    return float(_units_since_epoch(value, epoch, unit))


def _units_since_epoch(points: Any, epoch: str, unit: str) -> Any:
    """Compute the units from `epoch` to points in time, which are datetime64 in microseconds."""
    micros = points - np.datetime64(parse_day(epoch), "us")
    return micros.astype(np.int64) / (_MICRO * UNITS[unit])


def dates_as_units(values: Column, na: frozenset[str], epoch: str, unit: str) -> tuple[Array, Mask]:
    """Read a column of days or points in time as numbers of units since a public day.

    Texts are read as ISO 8601 ("2024-01-31", or with a time of day), those with a zone as of UTC.

    Parameters
    ----------
    values : ndarray of shape (n,)
        The raw column.
    na : frozenset of str
        Declared marks of missing values.
    epoch : str
        The public day, in ISO 8601.
    unit : str
        A key of `UNITS`, such as ``"days"``.

    Returns
    -------
    numbers : ndarray of shape (n,)
        0 where a value is missing.
    missing : ndarray of bool, shape (n,)

    Raises
    ------
    ValueError
        If any other value is no date; it shows no value.
    """
    marks = identities_of_marks(na)
    if values.dtype.kind == "M":
        points = points_in_microseconds(values)
        missing = np.isnat(points)
        # A mark such as 1900-01-01 stands for a missing value in an array of points, too.
        if marks != MISSING:
            missing |= mask_of_missing(values, na)
    else:
        known = dict[str, Any]()
        read = [_parse_point_in_time(value, marks, known) for value in values_one_by_one(values)]
        points = np.array(read, dtype="datetime64[us]")
        missing = np.isnat(points)
    filled = np.where(missing, np.datetime64(parse_day(epoch), "us"), points)
    return _units_since_epoch(filled, epoch, unit), missing


def _parse_point_in_time(value: object, marks: frozenset[str], known: dict[str, Any]) -> Any:
    """Return a value's point in time, or None for a mark of a missing value.

    `known` holds the points of texts that were parsed before, as texts of a column repeat.
    """
    value = as_python_value(value)
    if isinstance(value, str) and value in known:
        return known[value]
    text = value_as_text(value)
    point = value
    if canonical_text(text) in marks:
        point = None
    elif not isinstance(value, datetime | np.datetime64):
        try:
            point = parse_day(text)
        except (ValueError, OverflowError):
            raise ValueError("not a date") from None
    if isinstance(value, str):
        known[value] = point
    return point


def _check_epoch_and_unit(name: str, epoch: object, unit: object) -> datetime:
    """Return the epoch as a point in time; a SchemaError if it is no day or the unit is unknown."""
    if unit not in UNITS:
        raise SchemaError(f"{name}.unit", None, f"must be one of {', '.join(UNITS)}", "use 'days'")
    try:
        return parse_day(epoch)
    except (ValueError, TypeError):
        rule = "must be a public day from which time is counted"
        raise SchemaError(f"{name}.epoch", None, rule, "declare epoch = 2020-01-01") from None


@dataclass(frozen=True)
class Date(Number):
    """A day or a point in time, as a number: units since a public day.

    Parameters
    ----------
    lo, hi, typical, missing
        As for :class:`Number`, in units since `epoch`; a schema may give them as dates, too.
    epoch : str
        A public day, "2020-01-01" say.
    unit : {"days", "minutes", "hours", "weeks", "years"}
    """

    kind: ClassVar[str] = "date"
    epoch: str = ""
    unit: str = "days"

    def __post_init__(self) -> None:
        _check_epoch_and_unit(self.name, self.epoch, self.unit)
        super().__post_init__()

    @classmethod
    def convert_days_to_units(cls, name: str, entries: dict[str, Any]) -> dict[str, Any]:
        """Return the entries of a declaration, with days replaced by numbers of units since its
        epoch.
        """
        unit = entries.get("unit", "days")
        epoch = (
            _check_epoch_and_unit(name, entries.get("epoch", ""), unit)
            .isoformat()
            .removesuffix("T00:00:00")
        )

        def number(value: object) -> object:
            if isinstance(value, str | date):
                return time_since_epoch(value, epoch, unit)
            return value

        found: dict[str, object] = {
            key: number(entries[key]) for key in ("lo", "hi", "missing") if key in entries
        }
        if isinstance(entries.get("typical"), list | tuple):
            found["typical"] = [number(value) for value in entries["typical"]]
        return entries | found | {"epoch": epoch}

    def day_from_units(self, value: float) -> str:
        """Return the day, or point in time, of a number of units."""
        point = parse_day(self.epoch) + timedelta(seconds=round(value * UNITS[self.unit]))
        return point.isoformat().removesuffix("T00:00:00")

    def number_from_value(self, value: object) -> float:
        value = as_python_value(value)
        if not isinstance(value, datetime | np.datetime64):
            value = value_as_text(value)
        return time_since_epoch(value, self.epoch, self.unit)

    def _numbers_and_missing(self, column: Column, na: frozenset[str]) -> tuple[Array, Mask]:
        """Return the units since the epoch, and the mask of missing values."""
        try:
            return dates_as_units(column, na, self.epoch, self.unit)
        except ValueError as error:
            rule = f"every value must be a date, and some are {error}"
            raise SchemaError(
                self.source_column, None, rule, "write days as 2024-01-31, or repair them"
            ) from None


KINDS[Date.kind] = Date
