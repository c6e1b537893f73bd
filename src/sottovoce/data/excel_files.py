"""Tables in Excel workbooks (``.xlsx``), read by openpyxl (the extra ``sottovoce[files]``).

Every cell is read by itself, by its own type: a text among dates changes none of them.  A formula
is read as the value that Excel saved with it.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidInput
from . import file_kinds
from .headers import Header, header_from_fields
from .table import Table, check_memory_fits

UNPACKED = 100
"""Bytes that a workbook may unpack to, per byte of the file; 256 MiB are always allowed."""
_ALWAYS = 256 * 2**20
# About how many bytes a value takes in memory.
_VALUE = 64.0
_ROWS = 8192  # read at a time
ENDINGS = (".xlsx", ".xlsm")


def read_excel(path: str | Path) -> Table:
    """Read the one sheet of a workbook, whose first row names the columns; an empty cell is a
    missing value.

    Raises
    ------
    InvalidInput
        If openpyxl is not installed, the file is no workbook of one sheet, or its first row is no
        header.  No cell is shown.
    """
    place = Path(path)
    with _open_rows_of_sheet(path) as rows:
        header = _header_of_first_row(rows, place.name)
        columns: list[list[Any]] = [[] for _ in range(header.width)]
        filled = (
            (number, row)
            for number, row in enumerate(rows, 2)
            if any(cell is not None for cell in row)
        )
        while part := list(islice(filled, _ROWS)):
            for number, row in part:
                _append_cells(columns, row, number, place.name)
            check_memory_fits(place.name, _VALUE * header.width * len(columns[0]))
    if not columns[0]:
        raise InvalidInput(
            place.name,
            None,
            "must hold a header row and at least one row below it",
            "give a file that holds the rows of a table",
        )
    if header.index:
        del columns[0]
    arrays = (np.fromiter(values, dtype=object, count=len(values)) for values in columns)
    return Table(place.name, dict(zip(header.names, arrays, strict=True)), header.notes)


def excel_header(path: str | Path) -> Header:
    """Read the first row of the one sheet of a workbook, without reading another.

    It names the columns.
    """
    with _open_rows_of_sheet(path) as rows:
        return _header_of_first_row(rows, Path(path).name)


def _header_of_first_row(rows: Iterator[Sequence[Any]], name: str) -> Header:
    """Read the names of the columns from the first row, without empty cells at its end."""
    cells = ["" if cell is None else str(cell) for cell in next(rows, ())]
    while cells and not cells[-1].strip():
        del cells[-1]
    if not cells:
        rule = "the first row of its sheet must name the columns, and is empty"
        raise InvalidInput(name, None, rule, "delete what stands above the table")
    return header_from_fields(cells, name)


def _append_cells(columns: list[list[Any]], row: Sequence[Any], number: int, name: str) -> None:
    """Add the cells of a row to their columns."""
    width = len(columns)
    if any(cell is not None for cell in row[width:]):
        rule = f"row {number} of its sheet has more cells than the first row has names"
        raise InvalidInput(
            name, None, rule, "delete what stands right of the table, or name its column"
        )
    cells = [*row[:width], *[None] * (width - len(row))]
    for column, cell in zip(columns, cells, strict=True):
        column.append(_value_of_cell(cell))


def _value_of_cell(cell: Any) -> Any:
    """Return the cell's value; a point in time at midnight, as Excel writes a day, as a date."""
    if isinstance(cell, datetime) and cell.time() == time():
        return cell.date()
    return cell


@contextmanager
def _open_rows_of_sheet(path: str | Path) -> Iterator[Iterator[Sequence[Any]]]:
    """Yield an iterator of the rows of a workbook's one visible sheet, one in memory at a time."""
    place = file_kinds.require_file_kind(path, file_kinds.EXCEL)
    try:
        from openpyxl import load_workbook
    except ImportError:
        rule, remedy = (
            "reading an Excel workbook needs openpyxl",
            "run: pip install 'sottovoce[files]'",
        )
        raise InvalidInput("path", place, rule, remedy) from None
    try:
        _check_unpacked_size(place)
        with place.open("rb") as file, warnings.catch_warnings():
            # openpyxl warns of parts of a workbook that it does not read, such as formats.
            warnings.simplefilter("ignore")
            book = load_workbook(file, read_only=True, data_only=True)
            try:
                sheets = [sheet for sheet in book.worksheets if sheet.sheet_state == "visible"]
                if len(sheets) != 1:
                    rule = f"has {len(sheets)} visible sheets, and must have exactly one"
                    raise InvalidInput(
                        place.name,
                        None,
                        rule,
                        "save the sheet of the table as a workbook of its own",
                    )
                # The size of the sheet that a workbook declares may be wrong.
                sheets[0].reset_dimensions()
                yield sheets[0].iter_rows(values_only=True)
            finally:
                book.close()
    except InvalidInput:
        raise
    except MemoryError:
        rule = "cannot be read: it does not fit into memory"
        raise InvalidInput("path", place, rule, "save fewer rows or columns") from None
    except Exception:
        # Foreign bytes can make the reader raise anything, and its message may hold a value.
        raise InvalidInput(
            "path", place, "cannot be read: a damaged Excel workbook", "save it again"
        ) from None


def _check_unpacked_size(place: Path) -> None:
    """Refuse a workbook that says of itself that it unpacks to far more than its size."""
    most = max(_ALWAYS, UNPACKED * place.stat().st_size)
    with zipfile.ZipFile(place) as packed:
        size = sum(entry.file_size for entry in packed.infolist())
    if size > most:
        rule = f"unpacks to more than {most:,} bytes, {UNPACKED} times its size"
        raise InvalidInput(place.name, None, rule, "if the content is right, save it as CSV")


__all__ = ["ENDINGS", "UNPACKED", "excel_header", "read_excel"]
