"""Public grids over the columns of a schema, and in which cell of them each value of a table lies.

A grid follows from the declarations alone.  A value outside the declared bounds lies in the last cell before them; one
that is missing, or cannot be read, has a cell of its own, so that no row is refused.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import InvalidInput, SchemaError
from ..util.typing import Array, BoolArray, IntArray
from .columns import Category, Number, Vector, row_norms
from .labels import NumberLabel
from .meant import meant
from .schema import Schema
from .table import MISSING, Column, as_numbers, distinct

OCTAVES = 24
"""Powers of two between the largest absolute value of a grid and what it takes for zero."""
LABEL = "(label)"


@dataclass(frozen=True)
class Grid(ABC):
    """Cells of one column, numbered from 1; the last two are those of unreadable and of missing values."""

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

    def locate(self, columns: Mapping[str, Column], na: frozenset[str]) -> IntArray:
        """The cell of every row, (n,)."""
        found, strange, gone = self._place(columns, na)
        return np.where(gone, self.cells + 2, np.where(strange, self.cells + 1, found + 1)).astype(np.int64)

    @abstractmethod
    def _place(self, columns: Mapping[str, Column], na: frozenset[str]) -> tuple[IntArray, BoolArray, BoolArray]:
        """Cells from 0, which values cannot be read, and which are missing."""


@dataclass(frozen=True)
class Dyadic(Grid):
    """Powers of two to both sides of zero, within public bounds; what is nearer to zero has one cell.

    Parameters
    ----------
    lo, hi : float
    read : callable
        From a column and marks of missing values to numbers and which are missing; a ValueError or SchemaError if some
        cannot be read.
    """

    lo: float
    hi: float
    read: Callable[[Column, frozenset[str]], tuple[Array, BoolArray]]

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

    def _place(self, columns: Mapping[str, Column], na: frozenset[str]) -> tuple[IntArray, BoolArray, BoolArray]:
        if columns[self.source].ndim != 1:
            raise SchemaError(self.source, None, "must hold one value a row", 'declare it with kind = "vector"')
        x, gone = _numbers(columns[self.source], na, self.read)
        strange = ~np.isfinite(x) & ~gone
        return self._cell(np.where(strange | gone, self.lo, x)), strange, gone

    def _cell(self, x: Array) -> IntArray:
        return np.searchsorted(self.edges[1:-1], x, side="right")


@dataclass(frozen=True)
class Norms(Dyadic):
    """Norms of the rows of a vector, from 0 to the largest that its bounds allow."""

    block: Vector

    def _place(self, columns: Mapping[str, Column], na: frozenset[str]) -> tuple[IntArray, BoolArray, BoolArray]:
        parts = [columns[name] for name in self.block.sources(columns)]
        whole = parts[0] if len(parts) == 1 and parts[0].ndim == 2 else np.stack(parts, axis=1)
        read = [_numbers(np.asarray(part), na, as_numbers) for part in whole.T]
        x, gone = (np.stack(some, axis=1) for some in zip(*read, strict=True))
        lost: BoolArray = np.asarray(gone.any(axis=1))
        strange = ~np.isfinite(x).all(axis=1) & ~lost
        norms = row_norms(np.clip(np.where((strange | lost)[:, None], 0.0, x), self.block.lo, self.block.hi))
        return self._cell(norms), strange, lost


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

    def _place(self, columns: Mapping[str, Column], na: frozenset[str]) -> tuple[IntArray, BoolArray, BoolArray]:
        strange, gone = self.block.unlisted(columns, na)
        texts, which = distinct(columns[self.source])
        codes = self.block.codes(frozenset())
        group = np.array([codes.get(text, 0) for text in texts.tolist()], dtype=np.int64)[which]
        return np.where(strange | gone, 0, group), strange, gone


def _numbers(
    column: Column, na: frozenset[str], read: Callable[[Column, frozenset[str]], tuple[Array, BoolArray]]
) -> tuple[Array, BoolArray]:
    """Numbers, NaN where a value cannot be read, and which are missing.

    What a value is must not depend on others, or one row would move others' cells: so values are read as texts, and a
    text that cannot be read leaves the reading of the others as it is.
    """
    levels, which = distinct(column)
    numbers, gone = np.full(len(levels), np.nan), np.isin(levels, sorted(na | MISSING))
    try:
        numbers = np.where(gone, np.nan, read(levels, na)[0])
    except ValueError:  # SchemaError is one
        for k in np.flatnonzero(~gone).tolist():
            with suppress(ValueError):
                numbers[k] = read(levels[k : k + 1], na)[0][0]
    return numbers[which], gone[which]


def grids_of(schema: Schema, columns: Sequence[str] | None = None) -> tuple[Grid, ...]:
    """The grids of a schema's numbers, dates, categories, vectors with a norm, and of a number to predict.

    `columns` names some of them, ``"(label)"`` among them.  InvalidInput for one that has none.
    """
    found: dict[str, Grid] = {}
    for block in schema.blocks:
        if isinstance(block, Number):
            found[block.name] = Dyadic(block.name, block.source, block.lo, block.hi, block.read)
        elif isinstance(block, Category):
            found[block.name] = Levels(block.name, block.source, block)
        elif isinstance(block, Vector) and not isinstance(block.norm, str):
            most = math.sqrt(len(block.names)) * max(abs(block.lo), abs(block.hi))
            found[block.name] = Norms(block.name, block.name, 0.0, most, as_numbers, block)
    if isinstance(schema.label, NumberLabel):
        found[LABEL] = Dyadic(LABEL, schema.label.column, schema.label.lo, schema.label.hi, as_numbers)
    for name in columns or ():
        if name not in found:
            rule = f"is none of the columns that have a grid: {', '.join(list(found)[:8]) or 'there is none'}"
            raise InvalidInput("columns", name, rule, meant(name, found) or "leave it out")
    kept = tuple(grid for name, grid in found.items() if columns is None or name in columns)
    if not kept:
        rule = "there is no number, category or vector with a norm, and bins are what they are declared to be"
        raise InvalidInput("columns", None, rule, "declare one")
    return kept


__all__ = ["LABEL", "OCTAVES", "Dyadic", "Grid", "Levels", "Norms", "grids_of"]
