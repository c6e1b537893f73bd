"""Reading a table from a file, for every command.

The file's ending selects the reader; the reader refuses a file whose first bytes are of another
format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidInput
from .csv_files import csv_header, read_csv
from .excel_files import ENDINGS as EXCEL
from .excel_files import excel_header, read_excel
from .file_kinds import kind_of_file
from .headers import Header
from .parquet_files import parquet_types, read_parquet
from .sql import read_sql, sql_names
from .statistics_files import ENDINGS as STATISTICS
from .statistics_files import read_statistics, statistics_types
from .table import Table

_TEXT = (".csv", ".tsv", ".tab")
_PACKED = (".gz", ".xz", ".bz2")


@dataclass(frozen=True)
class Format:
    """A reader of files with certain endings, and of the names of their columns.

    Parameters
    ----------
    read : callable
        From a path to a table.
    header : callable, optional
        From a path to its first row, which names the columns, and might be a row of data.
    names : callable, optional
        From a path to the names of its columns, where they are not in a row of the file.
    types : callable, optional
        From a path to the names of its columns with their declared types, in words.  One of
        `header`, `names` and `types` is given; it reads no value of a row.
    """

    read: Callable[[str | Path], Table]
    header: Callable[[str | Path], Header] | None = None
    names: Callable[[str | Path], list[str]] | None = None
    types: Callable[[str | Path], dict[str, str]] | None = None


FORMATS: dict[str, Format] = {
    **dict.fromkeys(
        (*_TEXT, *(text + packed for text in _TEXT for packed in _PACKED)),
        Format(read_csv, csv_header),
    ),
    ".parquet": Format(read_parquet, types=parquet_types),
    ".sql": Format(read_sql, names=sql_names),
    **dict.fromkeys(EXCEL, Format(read_excel, excel_header)),
    **dict.fromkeys(STATISTICS, Format(read_statistics, types=statistics_types)),
}
"""By the ending of a file's name, in lower case."""
READ = (
    ".csv or .tsv (also packed: .gz, .xz, .bz2), .parquet, .sql, .xlsx, .dta, .sav, .zsav, "
    ".por, .sas7bdat or .xpt"
)
"""The endings in words."""


def table_file_ending(path: str | Path) -> str:
    """Return the ending that says how a file is read, such as ``".csv.gz"``; empty for none."""
    name = Path(path).name.lower()
    return max((ending for ending in FORMATS if name.endswith(ending)), key=len, default="")


def format_of_file(path: str | Path) -> Format:
    """Return the format that a file's ending names.

    InvalidInput for an unknown ending, with the name of what the file is if that is known.
    """
    if ending := table_file_ending(path):
        return FORMATS[ending]
    place, found = Path(path), kind_of_file(path)
    if found is None:
        rule = (
            f"must end in {READ}, because the ending says how to read it, "
            "such as what separates its fields"
        )
        raise InvalidInput(
            "path",
            place,
            rule,
            "rename it: comma-separated text ends in .csv, tab-separated text in .tsv",
        )
    remedy = found.remedy
    if found.endings:
        remedy = f"give it a name that ends in {' or '.join(found.endings)}"
    raise InvalidInput(
        "path", place, f"cannot be read: it is {found.name}; a table ends in {READ}", remedy
    )


def read_table(path: str | Path) -> Table:
    """Read a table from a file by its ending.

    Its `notes` say what the holder of the rows should know of how it was read.

    Raises
    ------
    InvalidInput
        If the file is of no known format, or of another than its ending says, or cannot be read.
        No value is shown.
    """
    return format_of_file(path).read(path)


def header_notes(path: str | Path) -> tuple[str, ...]:
    """Return notes for the holder of a table on its first row, where that names the columns."""
    form = format_of_file(path)
    if form.header is None:
        return ()
    return form.header(path).notes


def column_types(path: str | Path) -> dict[str, str]:
    """Return the names of a file's columns and their declared types, without reading a row.

    In words: ``"number"``, ``"truth"``, ``"text"``, ``"date"``, ``"vector N"`` of a fixed size, or
    ``"?"``, as for all columns of a format that declares none.
    """
    form = format_of_file(path)
    if form.types is not None:
        return form.types(path)
    if form.header is not None:
        return dict.fromkeys(form.header(path).names, "?")
    assert form.names is not None
    return dict.fromkeys(form.names(path), "?")


__all__ = [
    "FORMATS",
    "READ",
    "Format",
    "column_types",
    "format_of_file",
    "header_notes",
    "read_table",
    "table_file_ending",
]
