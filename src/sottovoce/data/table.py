"""Raw tables: named columns exactly as the file holds them.

Text stays text: whether ``"01"`` is a number or a category is the schema's decision.  A missing
value is ``""`` or ``None``; a NaN is never a missing value but an error that the schema reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput
from ..util.files import machine_memory_bytes
from ..util.typing import IntArray
from .values import MISSING as MISSING
from .values import Column as Column
from .values import column_as_numbers as column_as_numbers
from .values import column_as_text as column_as_text
from .values import distinct_texts as distinct_texts
from .values import is_masked_array, masked_as_none, objects_or_rows
from .values import mask_of_marked_numbers as mask_of_marked_numbers
from .values import value_as_number as value_as_number
from .values import value_as_text as value_as_text
from .values import values_one_by_one as values_one_by_one


@dataclass(frozen=True)
class Table:
    """Raw columns of equal length: shape ``(n_rows,)``, or ``(n_rows, width)`` for a block such as
    an image.

    `name` is for messages; `notes` say how a file was read, to the holder of the rows.
    """

    name: str
    columns: Mapping[str, Column]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        columns = {name: _column_as_array(values) for name, values in self.columns.items()}
        if not columns:
            raise InvalidInput(
                self.name, None, "must have at least one column", "give a table with named columns"
            )
        if any(values.ndim not in (1, 2) for values in columns.values()):
            raise InvalidInput(
                self.name, None, "every column must be 1-D or 2-D", "flatten the other axes"
            )
        if len({len(values) for values in columns.values()}) != 1:
            raise InvalidInput(
                self.name, None, "all columns must have the same length", "repair the table"
            )
        object.__setattr__(self, "columns", columns)

    @property
    def n_rows(self) -> int:
        return len(next(iter(self.columns.values())))

    def take(self, rows: IntArray | NDArray[np.bool_]) -> Table:
        return Table(
            self.name, {name: values[rows] for name, values in self.columns.items()}, self.notes
        )


def _column_as_array(values: Any) -> Column:
    """Convert a column to an array.

    A list with values of several types becomes an array of objects: NumPy would convert them all
    to one type, so that one value would change how the others are read.
    """
    if is_masked_array(values):
        return masked_as_none(values)
    if not isinstance(values, list | tuple):
        return np.asarray(values)
    if len(set(map(type, values))) == 1:
        kinds = {bool: "b", int: "iu", float: "f"}.get(type(values[0]), "")
        if kinds:
            found = np.asarray(values)
            # Whole numbers beyond 64 bits become objects or floats in NumPy.
            if found.dtype.kind in kinds:
                return found
    return objects_or_rows(values)


def table_from_columns(table: Table | Mapping[str, Any]) -> Table:
    """Return a `Table` from a table or a mapping of names to columns."""
    if isinstance(table, Table):
        return table
    return Table("table", table)


def check_memory_fits(name: str, size: float) -> None:
    """Refuse what needs `size` bytes if this machine has less memory."""
    if size > machine_memory_bytes():
        rule = (
            f"takes {size / 2**30:,.1f} GiB, and this machine has "
            f"{machine_memory_bytes() / 2**30:,.1f} GiB "
            "of memory"
        )
        raise InvalidInput(name, None, rule, "use sottovoce.data.memmap, or fewer rows or features")
