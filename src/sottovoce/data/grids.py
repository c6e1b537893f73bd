"""Public grids over the columns of a schema, and the cell in which each value of a table lies.

The private survey (:mod:`sottovoce.answers.survey`) counts the rows in each cell.  A grid follows
from the declarations alone.  A value outside the declared bounds lies in the outermost cell on
that side; a missing or unreadable value has a cell of its own, so that no row is
refused.  Every value is read by itself, so no row changes the cell of another.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import InvalidInput
from ..util.typing import Any, Array, IntArray
from .columns import Block, Category, Number, Vector, row_norms
from .labels import NumberLabel
from .meant import suggest_spelling
from .schema import Schema
from .values import (
    MISSING_MARKS,
    Column,
    as_python_value,
    canonical_text,
    identities_of_marks,
    value_as_number,
    value_as_text,
    values_one_by_one,
)

OCTAVES = 24
"""Powers of two between the largest absolute value of a grid and the end of its cell around 0."""
LABEL = "(label)"


@dataclass(frozen=True)
class Grid(ABC):
    """Cells of one column, numbered from 1; the last two are those of unreadable and of missing
    values.
    """

    name: str
    source: str

    @property
    @abstractmethod
    def cells(self) -> int:
        """Number of cells without the last two."""

    @property
    def width(self) -> int:
        """Number of cells."""
        return self.cells + 2

    def sources(self, columns: Mapping[str, Column]) -> tuple[str, ...]:
        """Return the names of the raw columns to read from a table."""
        return (self.source,)

    def cell_of_each_row(self, columns: Mapping[str, Column], na: frozenset[str]) -> IntArray:
        """Find the number of every row's cell, (n,), from 1; `na` are marks of missing values."""
        marks = identities_of_marks(na)
        return np.array(
            [self._cell_number_of_row(row, marks) for row in self._iterate_raw_rows(columns)],
            dtype=np.int64,
        )

    def _iterate_raw_rows(self, columns: Mapping[str, Column]) -> Iterable[Any]:
        """Yield the value of each row that is placed in the grid."""
        return values_one_by_one(columns[self.source])

    def _cell_number_of_row(self, row: Any, marks: frozenset[str]) -> int:
        """Return the number of one row's cell, from 1; the last two are unreadable and missing."""
        try:
            found = self._place_in_grid(row, marks)
        except (ValueError, OverflowError):
            return self.cells + 1
        if found is None:
            return self.cells + 2
        return found + 1

    @abstractmethod
    def _place_in_grid(self, row: Any, marks: frozenset[str]) -> int | None:
        """Return a value's cell, counted from 0, or None for a missing value.

        A ValueError or OverflowError if it cannot be read.
        """


@dataclass(frozen=True)
class Dyadic(Grid):
    """Cells between powers of two on both sides of zero, within public bounds; one cell around zero
    for all smaller values.

    Parameters
    ----------
    lo, hi : float
        Public bounds, the outer ends of the first and the last cell.
    number : callable
        From a value to a number; a ValueError or OverflowError if it is none.
    """

    lo: float
    hi: float
    number: Callable[[object], float]

    @cached_property
    def smallest(self) -> float:
        """Half of the width of the cell of zero."""
        return 2.0 ** (math.ceil(math.log2(max(abs(self.lo), abs(self.hi)))) - OCTAVES)

    @cached_property
    def edges(self) -> Array:
        """Ends of the cells, from lo to hi."""
        sizes = self.smallest * 2.0 ** np.arange(OCTAVES + 1)
        inner = np.concatenate([-sizes[::-1], sizes])
        return np.concatenate([[self.lo], inner[(inner > self.lo) & (inner < self.hi)], [self.hi]])

    @property
    def cells(self) -> int:
        return len(self.edges) - 1

    def _place_in_grid(self, row: Any, marks: frozenset[str]) -> int | None:
        if canonical_text(value_as_text(row)) in marks:
            return None
        return self._cell_between_edges(_finite_or_error(self.number(row)))

    def _cell_between_edges(self, x: float) -> int:
        return bisect_right(self._inner_edges, x)

    @cached_property
    def _inner_edges(self) -> list[float]:
        return list(self.edges[1:-1].tolist())


def _finite_or_error(x: float) -> float:
    if not math.isfinite(x):
        raise ValueError("not finite")
    return x


@dataclass(frozen=True)
class Norms(Dyadic):
    """Norms of the rows of a vector, from 0 to the largest that its bounds allow."""

    block: Vector

    def sources(self, columns: Mapping[str, Column]) -> tuple[str, ...]:
        return self.block.source_columns(columns)

    def _iterate_raw_rows(self, columns: Mapping[str, Column]) -> Iterable[Any]:
        sources = self.sources(columns)
        parts = [values_one_by_one(columns[name]) for name in sources]
        # Either one column for each entry, or a single column of lists.
        if sources == tuple(self.block.feature_names):
            return zip(*parts, strict=True)
        return parts[0]

    def _place_in_grid(self, row: Any, marks: frozenset[str]) -> int | None:
        """Return the cell of the norm of a row's clipped entries; None if an entry is missing."""
        row = as_python_value(row)
        if not isinstance(row, list | tuple):
            if canonical_text(value_as_text(row)) in marks:
                return None
            raise ValueError("no vector")
        if len(row) != len(self.block.feature_names):
            raise ValueError("another length")
        if any(canonical_text(value_as_text(value)) in marks for value in row):
            return None
        x = np.array([[_finite_or_error(self.number(value)) for value in row]])
        return self._cell_between_edges(
            float(row_norms(np.clip(x, self.block.lo, self.block.hi))[0])
        )


@dataclass(frozen=True)
class Levels(Grid):
    """The declared levels of a category."""

    block: Category

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the declared levels."""
        return tuple(name for name, _ in self.block.values)

    @property
    def cells(self) -> int:
        return len(self.block.values)

    def _place_in_grid(self, row: Any, marks: frozenset[str]) -> int | None:
        text = value_as_text(row)
        found: int | None = self.block.level_of_listed_value.meaning_of_text(text)
        if found is None and canonical_text(text) not in marks | MISSING_MARKS:
            raise ValueError("not declared")
        return found


def grids_from_schema(schema: Schema, columns: Sequence[str] | None = None) -> tuple[Grid, ...]:
    """Return the grids of a schema's numbers, dates, categories, vectors with a norm, and label.

    The label has a grid if it is a number to predict; it is called ``"(label)"``.  With `columns`
    only the grids of these names are returned; InvalidInput for a name without a grid.
    """
    found = {
        block.name: grid for block in schema.blocks if (grid := _grid_from_block(block)) is not None
    }
    if isinstance(schema.label, NumberLabel):
        found[LABEL] = Dyadic(
            LABEL, schema.label.column, schema.label.lo, schema.label.hi, value_as_number
        )
    for name in columns or ():
        if name not in found:
            rule = (
                "must be one of the columns that have a grid: "
                f"{', '.join(list(found)[:8]) or 'there is none'}"
            )
            raise InvalidInput(
                "columns", name, rule, suggest_spelling(name, found) or "leave it out"
            )
    kept = tuple(grid for name, grid in found.items() if columns is None or name in columns)
    if not kept:
        rule = (
            "the survey needs at least one numeric or categorical column, "
            "or a vector with a norm (bins do not count)"
        )
        raise InvalidInput("columns", None, rule, "declare one")
    return kept


def _grid_from_block(block: Block) -> Grid | None:
    """Return the grid of one block; None for a kind without one."""
    if isinstance(block, Number):
        return Dyadic(block.name, block.source_column, block.lo, block.hi, block.number_from_value)
    if isinstance(block, Category):
        return Levels(block.name, block.source_column, block)
    if isinstance(block, Vector) and not isinstance(block.norm, str):
        most = math.sqrt(len(block.feature_names)) * max(abs(block.lo), abs(block.hi))
        return Norms(block.name, block.name, 0.0, most, value_as_number, block)
    return None


__all__ = ["LABEL", "OCTAVES", "Dyadic", "Grid", "Levels", "Norms", "grids_from_schema"]
