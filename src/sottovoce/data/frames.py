"""Tables from data in memory: frames of pandas, polars or pyarrow, mappings of names to columns,
and NumPy arrays with names.

A gap (NaN, None, NaT, NA or null) becomes a missing value, categories become texts, truth values
stay what they are, and points in time become UTC.  Frames are read through narwhals, which newer
versions of scikit-learn bring along.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput, InvalidKind, escape_unprintable
from ..util.later import Later
from ..util.typing import Any
from .parquet_files import values_as_python
from .table import Table, check_memory_fits
from .values import (
    Column,
    array_of_objects,
    as_python_value,
    is_masked_array,
    masked_as_none,
    objects_or_rows,
    points_in_microseconds,
)

nw = Later("narwhals")
LONGEST_NAME = 40
"""Characters of a column's name in a message."""
_NAMED = 5  # names in a message
_READ = "a frame of pandas, polars or pyarrow, a dict of columns, or an array with names"


def read_frame(X: Any, columns: Sequence[str] | None = None, name: str = "X") -> Table:
    """Read the columns of a frame, a mapping or an array with names as a :class:`Table`.

    Parameters
    ----------
    X : frame, mapping, structured array, array of shape (n, k), or Table
    columns : sequence of str, optional
        Names for an array of shape (n, k), which has none of its own.
    name : str
        For messages.

    Returns
    -------
    Table
        Missing values are None, and points in time are in microseconds of UTC.

    Raises
    ------
    InvalidInput
        For anything else; no data value is shown.
    """
    if isinstance(X, Table):
        return X
    if isinstance(X, np.ndarray):
        return _table_from_array(X, columns, name)
    if isinstance(X, Mapping):
        check_unique_names(name, list(X))
        return Table(
            name, {str(key): _column_without_gaps(key, values) for key, values in X.items()}
        )
    if not hasattr(type(X), "columns"):
        if columns is not None and isinstance(X, Sequence):
            return _table_from_array(objects_or_rows(X), columns, name)
        rule = f"must be {_READ}, because a schema refers to columns by name"
        raise InvalidKind(name, type(X), rule, "give a frame, or an array and columns=[...]")
    return _table_from_frame(X, name)


def _table_from_array(X: NDArray[Any], columns: Sequence[str] | None, name: str) -> Table:
    """Read an array with named columns, or one of shape (n, k) with `columns` as their names."""
    if X.dtype.names:
        return Table(name, {key: _column_without_gaps(key, X[key]) for key in X.dtype.names})
    if columns is None:
        rule = "is an array without column names, and a schema refers to columns by name"
        raise InvalidKind(name, type(X), rule, "give a frame, a structured array, or columns=[...]")
    if X.ndim != 2 or X.shape[1] != len(columns):
        rule = (
            f"must have shape (n, {len(columns)}), one column for each of columns=[...], "
            f"but has shape {X.shape}"
        )
        raise InvalidInput(name, None, rule, "give the names of all its columns, in order")
    check_unique_names("columns", columns)
    return Table(
        name, {str(key): _column_without_gaps(key, X[:, k]) for k, key in enumerate(columns)}
    )


def _column_without_gaps(name: object, values: Any) -> Column:
    """Return one column of an array or a mapping; missing values become None, in an array of
    objects, or NaT.
    """
    if not isinstance(values, np.ndarray):
        # A series of a frame's library.
        if hasattr(values, "dtype") or hasattr(values, "type"):
            return _column_from_series(str(name), values)
        # NumPy would make texts of numbers where one value of a list is a text.
        if isinstance(values, list | tuple):
            values = objects_or_rows(values)
        else:
            values = np.asarray(values)
    if is_masked_array(values):
        values = masked_as_none(values)
    kind = values.dtype.kind
    if kind == "f":
        return _objects_with_none(values, np.isnan(values))
    if kind == "M":
        return points_in_microseconds(values)
    if kind == "O":
        gone = np.asarray(np.frompyfunc(_is_missing_scalar, 1, 1)(values), dtype=bool)
        return _objects_with_none(values, gone)
    return values


def _is_missing_scalar(value: object) -> bool:
    """Return True for None, NaN, NaT and NA of any library."""
    value = as_python_value(value)
    return value is None or (isinstance(value, float) and math.isnan(value))


def _objects_with_none(values: NDArray[Any], gone: NDArray[np.bool_]) -> Column:
    """Return the values as they are, or as objects with None where `gone` (n,) is True."""
    if not gone.any():
        return values
    kept = values.astype(object)
    kept[gone] = None
    return kept


def check_unique_names(field: str, names: Sequence[object]) -> None:
    """Refuse columns that share a name, and names of several levels.

    Raises
    ------
    InvalidInput
        It names the columns, except for names that read as numbers: in a table without a header
        the names are its first row, and so values.
    """
    if any(isinstance(name, tuple) for name in names):
        rule = "has names of several levels, as a frame with a MultiIndex of columns"
        raise InvalidInput(
            field, None, rule, "give each column one name: X.columns = X.columns.map('_'.join)"
        )
    counted = Counter(map(str, names))
    shared = [name for name, times in counted.items() if times > 1]
    if not shared:
        return
    which = _describe_shared_names(shared)
    rule = f"must name every column once, and {which}"
    raise InvalidInput(field, None, rule, "rename or drop all but one of them")


def _describe_shared_names(shared: list[str]) -> str:
    """Describe the names that several columns share; names that may be values are not shown."""
    told = [
        repr(escape_unprintable(name, LONGEST_NAME))
        for name in shared[:_NAMED]
        if not reads_as_number(name)
    ]
    if not told:
        return f"several columns have names that read as the same number ({len(shared)} such names)"
    names = ", ".join(told)
    if len(shared) > len(told):
        names += f" and {len(shared) - len(told)} more"
    verb = "is the name" if len(shared) == 1 else "are names"
    return f"{names} {verb} of several columns"


def frame_column_names(X: Any) -> list[object]:
    """Return a frame's own column names; empty for a lazy frame, which would have to be read."""
    if hasattr(X, "collect"):
        return []
    # In pyarrow `columns` are the values, and the names are apart.
    names = X.column_names if hasattr(type(X), "column_names") else X.columns
    if isinstance(names, Iterable):
        return list(names)
    return []


def reads_as_number(name: str) -> bool:
    """Return True if a column's name reads as a number.

    It may then be a value, from a table without a header.
    """
    try:
        float(name)
    except ValueError:
        return False
    return True


def _table_from_frame(X: Any, name: str) -> Table:
    """Read a frame of pandas, polars or pyarrow through narwhals."""
    # pyarrow's batches are no frames to narwhals, and its tables are.
    if type(X).__name__ == "RecordBatch" and hasattr(X, "to_struct_array"):
        X = import_module("pyarrow").Table.from_batches([X])
    check_unique_names(name, frame_column_names(X))
    try:
        frame = nw.from_native(X, eager_only=True)
    except ImportError:
        rule = "frames are read through narwhals, which is not installed"
        raise InvalidInput(name, type(X), rule, "run: pip install 'sottovoce[frames]'") from None
    except Exception:
        # Messages of narwhals may show the frame, so its error is left behind here.
        frame = None
    if frame is None:
        rule = f"must be {_READ}, and in memory"
        raise InvalidKind(name, type(X), rule, "call its collect() or to_arrow() first")
    names = [str(key) for key in frame.columns]
    check_memory_fits(name, 8.0 * len(frame) * len(names))
    pairs = zip(names, frame.iter_columns(), strict=True)
    return Table(name, {column: _convert_column(column, series) for column, series in pairs})


def _column_from_series(name: str, values: Any) -> Column:
    """Read a series of a frame's library, or any other array, as a column."""
    try:
        series = nw.from_native(values, series_only=True)
    except Exception:
        # An array of another kind.  It is read where nothing is being handled: a traceback would
        # show what narwhals said of it.
        series = None
    if series is None:
        return _column_without_gaps(name, np.asarray(values))
    return _convert_column(name, series)


def _block_from_lists(values: list[Any]) -> Column:
    """Return lists of numbers of one length as an array (n, length), such as images.

    If a value is no such list, all stay lists, in an array of objects.
    """

    def like_the_first(one: Any) -> bool:
        return isinstance(one, list) and len(one) == len(values[0]) and None not in one

    if all(map(like_the_first, values)):
        return np.array(values, dtype=np.float64)
    if any(isinstance(one, dict) for one in values):
        raise TypeError("records cannot form a block")
    return array_of_objects(values)


def _days_as_datetime64(series: Any) -> Column:
    """Return a column of days as datetime64, which also has days beyond those of Python's date."""
    gone = np.asarray(series.is_null().to_numpy(), dtype=bool)
    try:
        days = np.asarray(series.cast(nw.Int32).fill_null(0).to_numpy()).astype("datetime64[D]")
    except Exception:
        # Days that Arrow counts in milliseconds.
        days = np.array(
            [as_python_value(day) for day in _values_of_series(series)], dtype="datetime64[us]"
        )
    days[gone] = np.datetime64("NaT")
    return days


def _values_of_series(series: Any) -> list[Any]:
    """Return the values of a column, read one by one if the library cannot convert one of them."""
    try:
        return list(series.to_list())
    except Exception:  # of whatever library
        return values_as_python(import_module("pyarrow"), series.to_arrow())


def _convert_column(name: str, series: Any) -> Column:
    """Convert a column of a frame to a NumPy array; a refusal shows no value."""
    try:
        return _convert_series(name, series)
    except (InvalidInput, MemoryError):
        raise
    except Exception:
        refusal = InvalidInput(
            name, None, "is a column that cannot be read", "convert it to numbers, texts or dates"
        )
    # Raised here, where nothing is being handled: a traceback would show values.
    raise refusal


def _convert_series(name: str, series: Any) -> Column:
    """Convert as :func:`_convert_column` does, but let errors of the frame's library through."""
    kind = series.dtype
    if kind == nw.Datetime:
        if kind.time_zone is not None:
            series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return points_in_microseconds(np.asarray(series.to_numpy()))
    if kind == nw.Date:
        return points_in_microseconds(_days_as_datetime64(series))
    if kind.is_nested():
        return _block_from_lists(series.to_list())
    gone = np.asarray(series.is_null().to_numpy(), dtype=bool)
    if kind == nw.Boolean or (kind.is_numeric() and not kind.is_decimal()):
        # NaN is a gap, whether or not another row is null.
        if kind.is_float():
            return _column_without_gaps(name, np.asarray(series.to_numpy(), dtype=np.float64))
        # NumPy has no integers of 128 bits.
        if not gone.any() and kind not in (nw.Int128, nw.UInt128):
            return _column_without_gaps(name, np.asarray(series.to_numpy()))
    values = objects_or_rows(_values_of_series(series))
    values[gone] = None
    return _column_without_gaps(name, values)
