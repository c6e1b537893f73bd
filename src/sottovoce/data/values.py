"""How a single value is read: its text, its number, its point in time, and which texts are one.

Contract
--------
What a value is read as is a function of that value alone: never of the type of the array that holds
it, of a gap, or of what another row holds.  Frame libraries choose the type of a column by looking
at all of its rows, so that one odd row can turn ``numpy.float64`` into ``object``, dates into
``Timestamp`` and whole numbers into floats.  So every scalar is made Python's own by
:func:`as_python_value` before anything reads it, and a typed array is read as its values would be
one by one.

* A number's text is that of the 64-bit number that it equals: ``numpy.float32(0.7)`` is
  0.699999988079071, as it is in a frame where another row holds a wider number.  A whole number has
  the text of an integer.
* A point in time is in UTC, without a zone, to the microsecond.  At midnight its text is the day
  alone.
* Texts that :func:`canonical_text` maps to one text are one label, level, site or person; see
  there.
"""

from __future__ import annotations

import math
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput
from ..util.files import machine_memory_bytes
from ..util.typing import Array, BoolArray, IntArray

Column = NDArray[Any]
T = TypeVar("T")

MISSING = frozenset({""})
"""Texts that are a missing value in every column."""
MISSING_MARKS = frozenset(
    {
        "",
        "#N/A",
        "#N/A N/A",
        "#NA",
        "-1.#IND",
        "-1.#QNAN",
        "-NaN",
        "-nan",
        "1.#IND",
        "1.#QNAN",
        "<NA>",
        "N/A",
        "NA",
        "NULL",
        "NaN",
        "None",
        "n/a",
        "nan",
        "null",
        "NaT",
        ".",
        "\\N",
    }
)
"""Common marks of missing values, of labels, levels, sites and persons, unless a schema declares
them as values.

They are those of :func:`pandas.read_csv`, with ``NaT``, the full stop of SAS and Stata, and the
``\\N`` of databases.
"""

_WORDS = {str, bytes, type(None)}
_TRAILING = re.compile(r"[\s\0]+\Z")
_WHOLE_NUMBER = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.0*)?", re.ASCII)
_NUMBER = re.compile(
    r"[+-]?(inf|([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?)", re.ASCII | re.IGNORECASE
)
# In characters; longer texts are never taken for numbers where texts are compared.
_LONGEST_NUMBER = 1000
# Numbers of values from which pyarrow pays: where it is loaded already, and where it is not.
_MANY, _VERY_MANY = 32_768, 131_072
_TRUTH_VALUES = {
    spelled: name
    for name in ("true", "false")
    for spelled in (name, name.capitalize(), name.upper())
}


def as_python_value(value: object) -> Any:
    """Convert one value to Python's own type, whatever library it comes from.

    The markers of missing values of all libraries become None; a floating-point NaN stays NaN.
    Points in time become a :class:`datetime.datetime` in UTC without a zone, or a
    :class:`numpy.datetime64` beyond its range.
    """
    kind = type(value)
    if kind is str or kind is int or kind is float or kind is bool or value is None:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, np.generic | datetime | date | timedelta):
        return _from_point_or_scalar(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Decimal | Fraction):
        return _number_from_exact(value)
    if isinstance(value, complex):
        return _drop_zero_imaginary(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    return _value_from_library(value, kind.__module__.partition(".")[0])


def _drop_zero_imaginary(value: complex) -> float | complex:
    """Return the real part if the imaginary one is 0: a frame makes all numbers complex if one
    is.
    """
    if value.imag == 0:
        return value.real
    return value


def _value_from_library(value: object, library: str) -> Any:
    """Convert a value of pandas or pyarrow to Python's own type; others stay as they are."""
    if library == "pandas" and type(value).__name__ == "NAType":
        return None
    as_py = getattr(value, "as_py", None)  # of a scalar of pyarrow
    if library == "pyarrow" and callable(as_py):
        return as_python_value(as_py())
    return value


def _from_point_or_scalar(value: np.generic | date | timedelta) -> Any:
    """Convert a scalar of NumPy, a point in time or a time span; None for pandas' NaT."""
    if isinstance(value, np.generic):
        return _value_from_numpy(value)
    if isinstance(value, datetime):
        return _datetime_in_utc(value)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    # pandas' NaT, which no value equals.
    if value != value:
        return None
    return timedelta(value.days, value.seconds, value.microseconds)


def _value_from_numpy(value: np.generic) -> Any:
    """Convert a scalar of NumPy to Python's own type."""
    if isinstance(value, np.datetime64):
        return _from_datetime64(value)
    if isinstance(value, np.timedelta64):
        return _from_timedelta64(value)
    if isinstance(value, np.floating):
        # `item` would leave those that are wider than 64 bits as they are.
        with np.errstate(over="ignore"):
            return float(value)
    if isinstance(value, np.str_):
        return str.__str__(value)
    item = value.item()
    if isinstance(item, complex):
        return _drop_zero_imaginary(item)
    return item


def _from_datetime64(value: np.datetime64) -> Any:
    """Convert a datetime64 to a datetime, or keep it if Python has no such date; None for NaT."""
    point = points_in_microseconds(np.array([value]))[0]
    if np.isnat(point):
        return None
    moment = point.item()
    # Of points beyond the range of Python's own, `item` returns a number.
    if isinstance(moment, datetime):
        return moment
    return point


def _from_timedelta64(value: np.timedelta64) -> Any:
    if np.isnat(value):
        return None
    span = value.astype("timedelta64[us]").item()
    if isinstance(span, timedelta):
        return span
    return str(value)


def _datetime_in_utc(value: datetime) -> Any:
    """Return a point in time in UTC, without a zone; None for pandas' NaT.

    Where UTC would lie outside the years that Python has, it is the text in ISO 8601.
    """
    if value != value:
        return None
    if value.tzinfo is not None:
        try:
            value = value.astimezone(UTC)
        except (OverflowError, ValueError):
            return value.isoformat()
    return datetime(
        value.year,
        value.month,
        value.day,
        value.hour,
        value.minute,
        value.second,
        value.microsecond,
    )


def _number_from_exact(value: Decimal | Fraction) -> Any:
    """Convert an exact number to an int if it is whole, or else to a float.

    A decimal with more digits than a float keeps stays a decimal, without zeros at its end.
    """
    if isinstance(value, Decimal) and not value.is_finite():
        # A signalling NaN cannot be converted.
        return math.nan if value.is_nan() else float(value)
    if isinstance(value, Decimal) and abs(value.adjusted()) > _LONGEST_NUMBER:
        return value
    if value == int(value):
        return int(value)
    number = float(value)
    if isinstance(value, Fraction) or Decimal(repr(number)) == value:
        return number
    return value.normalize()


def value_as_text(value: object) -> str:
    """Return one value as text, without blanks at its ends; a missing one as ``""``."""
    value = as_python_value(value)
    if isinstance(value, str):
        return _strip_blanks_and_nul(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _text_of_whole(value)
    if isinstance(value, float):
        if value.is_integer():
            return _text_of_whole(int(value))
        return str(value)
    if isinstance(value, bytes):
        return _strip_blanks_and_nul(value.decode("utf-8", "replace"))
    if isinstance(value, datetime):
        return _text_of_time(value)
    if isinstance(value, np.datetime64):
        return str(_texts_of_times(np.array([value]))[0])
    try:
        return _strip_blanks_and_nul(str(value))
    except Exception:
        # Whatever object stands there concerns this row only.
        return f"<{type(value).__name__}>"


def _strip_blanks_and_nul(text: str) -> str:
    """Strip blanks at both ends, and NUL characters at the end, which NumPy's texts cannot keep."""
    if "\0" in text:
        return _TRAILING.sub("", text).lstrip()
    return text.strip()


def _text_of_whole(value: int) -> str:
    try:
        return str(value)
    except ValueError:
        # More digits than Python writes in decimal.
        return hex(value)


def _text_of_time(value: datetime) -> str:
    if value.time() == time(0):
        return value.date().isoformat()
    return value.isoformat(timespec="microseconds")


def _texts_of_times(points: Column) -> Column:
    day = points.astype("datetime64[D]")
    days = np.datetime_as_string(day)
    moments = np.datetime_as_string(points, unit="us")
    # At midnight the text is the day alone.
    texts = np.where(day == points, days, moments)
    return np.where(np.isnat(points), "", texts)


def points_in_microseconds(values: Column) -> Column:
    """Convert an array of datetime64 to microseconds; points beyond 2^62 of them are clipped."""
    unit, _ = np.datetime_data(values.dtype)
    # Finer units cannot hold a point that microseconds cannot; "generic" is NaT without a unit.
    if unit in ("ns", "ps", "fs", "as", "generic"):
        return values.astype("datetime64[us]")
    ends = np.array([-MOST_MICROS, MOST_MICROS], dtype="datetime64[us]").astype(values.dtype)
    inside = np.where(np.isnat(values), values, np.clip(values, ends[0], ends[1]))
    return inside.astype("datetime64[us]")


MOST_MICROS = 2**62
"""Largest distance of a point in time from 1970, in microseconds; points farther away are clipped
to it, so that conversions cannot overflow 64 bits.
"""


def value_as_number(value: object) -> float:
    """Read one value as a number, whatever other rows hold.

    A ValueError or OverflowError if it is none.
    """
    value = as_python_value(value)
    # Adding 0.0 gives zero one sign.
    if isinstance(value, bool | int | float):
        return float(value) + 0.0
    text = value_as_text(value)
    # Python allows an underscore among digits, and no program that writes tables does.
    if "_" in text:
        raise ValueError("not a number")
    return float(text) + 0.0


def values_one_by_one(column: Column) -> list[Any]:
    """Return the values one by one; of an array of points in time, each such a point."""
    if column.dtype.kind == "M":
        return list(points_in_microseconds(column))
    if column.dtype.kind == "m" and column.ndim == 1:
        # `tolist` would make whole numbers of spans of nanoseconds.
        return [as_python_value(value) for value in column.ravel()]
    return list(column.tolist())


def objects_or_rows(values: Iterable[Any]) -> Column:
    """Return values as an array of objects (n,); if all are lists of one length, as its rows
    (n, width).
    """
    some = list(values)
    if some and all(map(_is_row_of_values, some)):
        lengths = {len(row) for row in some}
        if len(lengths) == 1:
            return _rows_of_objects(some, lengths.pop())
    return array_of_objects(some)


def array_of_objects(values: Iterable[Any]) -> Column:
    """Return values in an array of objects of shape (n,), also if they are lists."""
    some = list(values)
    found = np.empty(len(some), dtype=object)
    for k, one in enumerate(some):
        found[k] = one
    return found


def is_masked_array(values: object) -> bool:
    """Return True for a masked array of NumPy, whose module is not loaded to find that out."""
    # The module is absent as long as nobody has made a masked array.
    module = sys.modules.get("numpy.ma")
    return module is not None and isinstance(values, module.MaskedArray)


def masked_as_none(values: Any) -> Column:
    """Return a masked array as a plain one: of objects, with None for masked values, if any is."""
    gone = np.ma.getmaskarray(values)
    if not gone.any():
        return np.asarray(values)
    found = np.asarray(values).astype(object)
    found[gone] = None
    return found


def _is_row_of_values(value: object) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _rows_of_objects(some: list[Any], width: int) -> Column:
    found = np.empty((len(some), width), dtype=object)
    for k, row in enumerate(some):
        for j, one in enumerate(row):
            found[k, j] = one
    return found


def column_as_text(values: Column) -> Column:
    """Convert every value to text, so that ``1``, ``1.0`` and ``numpy.float32(1)`` are one.

    Missing values become ``""``.
    """
    if values.dtype.kind == "U":
        return np.char.strip(values)
    if values.dtype.kind in "iu":
        return values.astype(np.str_)
    if values.dtype.kind == "M":
        return _texts_of_times(points_in_microseconds(values))
    levels, which = distinct_texts(values)
    _check_texts_fit_memory(len(which), levels.dtype.itemsize)
    return levels[which]


def distinct_texts(values: Column) -> tuple[Column, IntArray]:
    """Return the distinct texts of a column, and the index of each value's text.

    So repeated values are parsed once.  Texts may repeat, as for ``"a"`` and ``"a "``, or for
    columns of numbers, which are not searched for duplicates.
    """
    if values.dtype.kind in "UiuM":
        return column_as_text(values), np.arange(len(values))
    distinct, which = _distinct_values(values)
    return _array_of_texts(distinct), which


def _distinct_values(values: Column) -> tuple[list[Any], IntArray]:
    """Return the values of a column, each text once, and the index of each value.

    Other values are not searched for duplicates: 1 and True are one key of a dict, and two texts.
    """
    given = values_one_by_one(values)
    if values.dtype.kind not in "OU":
        return given, np.arange(len(given))
    keys = given
    if not set(map(type, given)) <= _WORDS:
        # A value that is no word stands for itself under its place, which equals no word.
        keys = [value if type(value) in _WORDS else k for k, value in enumerate(given)]
    number_of_key = {key: k for k, key in enumerate(dict.fromkeys(keys))}
    which = np.fromiter(map(number_of_key.__getitem__, keys), dtype=np.int64, count=len(keys))
    distinct = [given[key] if type(key) is int else key for key in number_of_key]
    return distinct, which


def _array_of_texts(values: Iterable[object]) -> Column:
    texts = [value_as_text(value) for value in values]
    _check_texts_fit_memory(len(texts), 4 * max(map(len, texts), default=0))
    return np.array(texts, dtype=np.str_)


def _check_texts_fit_memory(texts: int, size: int) -> None:
    """Refuse more texts than memory holds: NumPy makes all as long as the longest, here of
    `size` bytes.
    """
    if 1.0 * texts * size > machine_memory_bytes():
        rule = "does not fit into memory, because every text is stored at the length of the longest"
        raise InvalidInput(
            "column", None, rule, "look for a quote that is not closed, or shorten its texts"
        )


def column_as_numbers(values: Column, na: frozenset[str] = MISSING) -> tuple[Array, BoolArray]:
    """Convert values to float64, with a mask of the missing ones (set to 0).

    A mark stands for a missing value wherever it is that value's text, among numbers too.  A
    ValueError, which shows no value, if any other value is not a finite number.
    """
    if values.dtype.kind in "iuf":
        with np.errstate(over="ignore"):
            numbers = values.astype(np.float64)
            missing = mask_of_marked_numbers(values, na)
    else:
        marks = identities_of_marks(na)
        numbers, missing = numbers_at_once(values, marks) or _numbers_one_by_one(values, marks)
    # Adding 0.0 gives zero one sign.
    numbers = np.where(missing, 0.0, numbers) + 0.0
    if not np.all(np.isfinite(numbers)):
        raise ValueError("not finite")
    return numbers, missing


def numbers_at_once(values: Column, marks: frozenset[str]) -> tuple[Array, BoolArray] | None:
    """Convert many texts to numbers by pyarrow; None where each must be read by itself.

    Where pyarrow reads all texts of a column as finite numbers, :func:`value_as_number` reads each
    as the same one: both round to the nearest, and pyarrow knows fewer spellings.  So which of the
    two has read a column shows nowhere but in the time.

    Parameters
    ----------
    values : ndarray
        Raw values.
    marks : frozenset of str
        Texts that are a missing value, as :func:`identities_of_marks` returns them.

    Returns
    -------
    tuple of ndarrays, or None
        The numbers, and the mask of missing values, of the shape of `values`.
    """
    pa = _pyarrow_for(values.size)
    if pa is None or values.dtype.kind != "O":
        return None
    given = values.ravel().tolist()
    kinds = set(map(type, given))
    if not kinds <= {str, type(None)}:
        return None
    if type(None) in kinds:
        # Both are missing values.
        given = [text or "" for text in given]
    # Other spellings of these marks are found below if they are numbers; pyarrow refuses the rest.
    exact = [mark for mark in marks if canonical_text(mark) in marks]
    try:
        texts = pa.compute.ascii_trim_whitespace(_texts_in_arrow(pa, given))
        gone = pa.compute.is_in(texts, _texts_in_arrow(pa, exact))
        kept = pa.compute.replace_with_mask(texts, gone, _texts_in_arrow(pa, ["0"])[0])
        read = kept.cast(pa.float64())
    except (UnicodeEncodeError, pa.ArrowException):
        return None
    missing = _array_from_arrow(gone.cast(pa.uint8()), np.uint8).astype(bool)
    numbers = _array_from_arrow(read, np.float64)
    if not np.isfinite(numbers).all():
        return None
    for number in _numbers_among(marks):
        for k in np.flatnonzero((numbers == number) & ~missing).tolist():
            missing[k] = canonical_text(given[k]) in marks
    return numbers.reshape(values.shape), missing.reshape(values.shape)


def _texts_in_arrow(pa: Any, texts: list[str]) -> Any:
    """Return texts as an array of pyarrow, whose own conversion would load pandas."""
    joined = "".join(texts)
    lengths: Iterable[int] = map(len, texts)
    if not joined.isascii():
        lengths = [len(text.encode()) for text in texts]
    ends = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(lengths, dtype=np.int64, count=len(texts)), out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(joined.encode())]
    return pa.Array.from_buffers(pa.large_string(), len(texts), buffers)


def _array_from_arrow(values: Any, dtype: Any) -> Column:
    """Return an array of pyarrow without nulls as one of NumPy; `to_numpy` would load pandas."""
    found = np.frombuffer(values.buffers()[1], dtype=dtype)
    return found[values.offset : values.offset + len(values)]


def _numbers_among(marks: Iterable[str]) -> Iterator[float]:
    """Yield the numbers among marks of missing values."""
    for mark in marks:
        with suppress(ValueError):
            yield float(mark)


def _pyarrow_for(size: int) -> Any:
    """Return pyarrow if it is installed and pays for so many values; else None."""
    if size < (_MANY if "pyarrow" in sys.modules else _VERY_MANY):
        return None
    try:
        import pyarrow as pa
        import pyarrow.compute
    except ImportError:
        return None
    return pa


def _numbers_one_by_one(values: Column, marks: frozenset[str]) -> tuple[Array, BoolArray]:
    """Return the numbers of values, 0 where one is missing, and the mask of the missing ones.

    A ValueError if a value is no number; `marks` are :func:`identities_of_marks`.
    """
    given, which = _distinct_values(values.ravel())
    read = [_parse_number_or_missing(value, marks) for value in given]
    absent = np.array([number is None for number in read], dtype=bool)
    filled = np.array([0.0 if number is None else number for number in read])
    return filled[which].reshape(values.shape), absent[which].reshape(values.shape)


def _parse_number_or_missing(value: object, marks: frozenset[str]) -> float | None:
    """Return a value's number, or None for a mark of a missing value."""
    text = value_as_text(value)
    if text in MISSING or canonical_text(text) in marks:
        return None
    # Errors of Python repeat the value, and are not kept as a cause.
    try:
        return value_as_number(value)
    except OverflowError:
        raise ValueError("not finite") from None
    except ValueError:
        raise ValueError("not a number") from None


def identities_of_marks(na: Iterable[str]) -> frozenset[str]:
    """Return the declared marks of missing values and the empty text, in their
    :func:`canonical_text`.
    """
    return frozenset(map(canonical_text, na)) | MISSING


def mask_of_marked_numbers(values: Column, na: Iterable[str]) -> BoolArray:
    """Return a mask of the numbers in an array whose text is a mark of missing values."""
    found = np.zeros(values.shape, dtype=bool)
    marks = identities_of_marks(na)
    for number in _numbers_among(marks):
        if math.isnan(number):
            near = np.isnan(values)
        else:
            # A mark that is beyond a narrow type equals none of its finite numbers.
            with np.errstate(over="ignore"):
                near = values == number
        # Equal numbers are only candidates: a value is missing if its text is the mark.
        texts = [value_as_text(value) for value in values[near].tolist()]
        found[near] |= np.array([canonical_text(text) in marks for text in texts], dtype=bool)
    return found


def mask_of_missing(column: Column, na: Iterable[str], marks: Iterable[str] = MISSING) -> BoolArray:
    """Return a mask of the missing values of a column.

    Parameters
    ----------
    column : ndarray of shape (n,)
        Raw values.
    na : iterable of str
        Declared marks; the empty text is one without being declared.
    marks : iterable of str
        Further marks.  All are compared by :func:`canonical_text`.

    Returns
    -------
    ndarray of bool, shape (n,)
    """
    levels, which = distinct_texts(column)
    known = identities_of_marks(na) | frozenset(map(canonical_text, marks))
    missing = _map_each_text_once(levels, lambda level: canonical_text(level) in known)
    return np.array(missing, dtype=bool)[which]


def _map_each_text_once(levels: Column, read: Callable[[str], T]) -> list[T]:
    """Return ``read(text)`` for every text, computed once for texts that repeat."""
    texts = levels.tolist()
    found = {text: read(text) for text in dict.fromkeys(texts)}
    return [found[text] for text in texts]


def canonical_text(text: str) -> str:
    """Return the text that stands for all spellings of one label, level, site, person or declared
    value.

    Blanks at the ends are dropped and characters are in Unicode's form NFC.  ``True`` and ``TRUE``
    are ``true``, and so for ``false``.  A whole number that is written with a point, such as
    ``1.0``, is the whole number: a frame makes floating-point numbers of whole ones where a row has
    a gap.  ``-0`` is ``0``.  But ``01`` and ``+1`` stay texts, as a code may begin with a zero.
    """
    text = _strip_blanks_and_nul(text)
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    if text in _TRUTH_VALUES:
        return _TRUTH_VALUES[text]
    if len(text) > _LONGEST_NUMBER:
        return text
    whole = _WHOLE_NUMBER.fullmatch(text)
    if whole is None:
        return text
    sign, digits = whole[1], whole[2]
    if digits == "0":
        return "0"
    return sign + digits


def canonical_texts(column: Column) -> Column:
    """Return the :func:`canonical_text` of every value's text, as an array of objects."""
    levels, which = distinct_texts(column)
    found = np.empty(len(levels), dtype=object)
    found[:] = _map_each_text_once(levels, canonical_text)
    return found[which]


def sites_named_in_column(column: Column) -> tuple[list[str], IntArray, BoolArray]:
    """Find the sites that a column names.

    Returns their names, sorted; the number of each row's site, (n,); and a mask of rows without
    one.
    """
    # Of distinct texts, as rows are many and sites are few.
    levels, which = distinct_texts(column)
    names = _map_each_text_once(levels, canonical_text)
    marks = frozenset(map(canonical_text, MISSING_MARKS))
    sites = sorted({name for name in names if name not in marks}, key=natural_sort_key)
    number = {name: k for k, name in enumerate(sites)}
    numbers = np.array([number.get(name, -1) for name in names], dtype=np.int64)
    none = np.array([name in marks for name in names], dtype=bool)
    return sites, numbers[which], none[which]


def natural_sort_key(text: str) -> tuple[bool, float, str]:
    """Return a key to sort texts by: numbers by value, then other texts."""
    if len(text) <= _LONGEST_NUMBER and _NUMBER.fullmatch(text):
        return False, float(text), text
    return True, 0.0, text


def _identity_in_a_frame(text: str) -> str:
    """Return the :func:`canonical_text` of a text; of a long whole number, that of the nearest
    floating-point number.

    A frame converts whole numbers to floating point as soon as another row has a gap, and beyond
    2^53 that rounds them.
    """
    text = canonical_text(text)
    # Floating-point numbers hold every whole number of 15 digits, and not every longer one.
    if len(text) <= 15 or not _WHOLE_NUMBER.fullmatch(text):
        return text
    number = float(text)
    if math.isfinite(number):
        return value_as_text(number)
    return text


class Declared(Generic[T]):
    """A lookup of declared texts and their meanings, such as the numbers of levels.

    A value is looked up as it is written, and then by its :func:`canonical_text`.  Where two
    declared texts have one canonical text and different meanings, such as ``true`` beside
    ``True``, only the exact spelling counts.

    Parameters
    ----------
    entries : mapping of str to object
        The meaning of every declared text.
    """

    def __init__(self, entries: Mapping[str, T]) -> None:
        self._written = dict(entries)
        self._alike = dict[str, T]()
        ambiguous = set[str]()
        for text, meaning in entries.items():
            key = _identity_in_a_frame(text)
            if self._alike.setdefault(key, meaning) != meaning:
                ambiguous.add(key)
        for key in ambiguous:
            del self._alike[key]

    def meaning_of_text(self, text: str, otherwise: Any = None) -> Any:
        """Return the meaning of a value's text, or `otherwise`."""
        if text in self._written:
            return self._written[text]
        return self._alike.get(_identity_in_a_frame(text), otherwise)

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and self.meaning_of_text(text, self) is not self

    def extended_by(self, entries: Mapping[str, T]) -> Declared[T]:
        """Return these, extended by the meanings of other texts.

        Where both declare a text, the meaning in these counts.
        """
        return _Joined(self, Declared(entries))

    def overridden_by(self, entries: Mapping[str, T]) -> Declared[T]:
        """Return these, overridden by the meanings of other texts."""
        return _Joined(Declared(entries), self)

    def meanings_by_spelling(self) -> dict[str, T]:
        """Return the meanings of declared texts and of the other common spellings of each.

        It is for databases and other programs that compare texts only as they are written.
        """
        found = dict[str, T]()
        for text, meaning in self._alike.items():
            spelled = [one for one, name in _TRUTH_VALUES.items() if name == text]
            if _WHOLE_NUMBER.fullmatch(text):
                spelled.append(f"{text}.0")
            for one in (text, *spelled, unicodedata.normalize("NFD", text)):
                found[one] = meaning
        return found | self._written

    def meanings_of_column(self, column: Column, otherwise: int) -> IntArray:
        """Return the meaning of every value of a column, where meanings are whole numbers.

        `otherwise` is for values that are not declared.
        """
        levels, which = distinct_texts(column)
        meanings = _map_each_text_once(levels, lambda level: self.meaning_of_text(level, otherwise))
        return np.array(meanings, dtype=np.int64)[which]


class _Joined(Declared[T]):
    """A lookup in two declarations: in `first`, and in `second` for texts that it lacks."""

    def __init__(self, first: Declared[T], second: Declared[T]) -> None:
        self._first = first
        self._second = second

    def meaning_of_text(self, text: str, otherwise: Any = None) -> Any:
        return self._first.meaning_of_text(text, self._second.meaning_of_text(text, otherwise))

    def meanings_by_spelling(self) -> dict[str, T]:
        return self._second.meanings_by_spelling() | self._first.meanings_by_spelling()


def collide_in_a_frame(texts: Iterable[str]) -> bool:
    """Return True if a frame may round two declared whole numbers to one.

    It rounds those beyond 2^53 if another row has a gap.
    """
    own = map(canonical_text, texts)
    large = {text for text in own if len(text) > 15 and _WHOLE_NUMBER.fullmatch(text)}
    return len(set(map(_identity_in_a_frame, large))) < len(large)
