"""Raw tables: named columns exactly as the file holds them.

Text stays text: whether ``"01"`` is a number or a category is the schema's decision.  A missing value is ``""`` or
``None``; a NaN is never a missing value but an error that the schema reports.

Anybody may have made a file: one that would unpack to far more than its size, or than this machine's memory, is refused
while it is read.
"""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput
from ..util.files import memory, regular
from ..util.typing import IntArray
from .values import MISSING as MISSING
from .values import Column as Column
from .values import as_numbers as as_numbers
from .values import as_text as as_text
from .values import distinct as distinct
from .values import marked as marked
from .values import number_of as number_of
from .values import objects
from .values import text_of as text_of
from .values import values_of as values_of

UNPACKED = 100
"""Bytes that a compressed CSV file may unpack to, per byte of the file; 64 MiB are always allowed."""
REPEATED = 1000
"""The same for a Parquet file, at eight bytes per value; 256 MiB are always allowed."""
_ALWAYS = {"csv": 64 * 2**20, "parquet": 256 * 2**20}
_VALUE = 64.0  # bytes that a value of a CSV file takes in memory, about
_ROWS = 8192  # read at a time
_LONGEST_HEADER = 2**20  # bytes


@dataclass(frozen=True)
class Table:
    """Raw columns of equal length: shape ``(n_rows,)``, or ``(n_rows, width)`` for a block such as an image.

    `name` is for messages.
    """

    name: str
    columns: Mapping[str, Column]

    def __post_init__(self) -> None:
        columns = {name: _array(values) for name, values in self.columns.items()}
        if not columns:
            raise InvalidInput(self.name, None, "must have at least one column", "give a table with named columns")
        if any(values.ndim not in (1, 2) for values in columns.values()):
            raise InvalidInput(self.name, None, "every column must be 1-D or 2-D", "flatten the other axes")
        if len({len(values) for values in columns.values()}) != 1:
            raise InvalidInput(self.name, None, "all columns must have the same length", "repair the table")
        object.__setattr__(self, "columns", columns)

    @property
    def n_rows(self) -> int:
        return len(next(iter(self.columns.values())))

    def take(self, rows: IntArray | NDArray[np.bool_]) -> Table:
        return Table(self.name, {name: values[rows] for name, values in self.columns.items()})


def _array(values: Any) -> Column:
    """A column as an array; in lists values stay what they are, or one of them would change the others."""
    if not isinstance(values, list | tuple):
        return np.asarray(values)
    kinds = {bool: "b", int: "iu", float: "f"}.get(type(values[0]), "") if len(set(map(type, values))) == 1 else ""
    found = np.asarray(values) if kinds else None
    return found if found is not None and found.dtype.kind in kinds else objects(values)


def as_table(table: Table | Mapping[str, Any]) -> Table:
    """A `Table` from a table or a mapping of names to columns."""
    return table if isinstance(table, Table) else Table("table", table)


def fits(name: str, size: float) -> None:
    """Refuse what needs `size` bytes if this machine has less memory."""
    if size > memory():
        rule = f"takes {size / 2**30:,.1f} GiB, and this machine has {memory() / 2**30:,.1f} GiB of memory"
        raise InvalidInput(name, None, rule, "use sottovoce.data.memmap, or fewer rows or features")


def read_csv(path: str | Path) -> Table:
    """Read a CSV file with a header row, unpacking ``.gz`` and ``.xz``.

    All columns are text; an empty field is a missing value.  InvalidInput if it cannot be read.
    """
    path = regular("path", path)
    packed: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
    opened = packed.get(path.suffix.lower(), open)
    try:
        if opened is not open:
            _check_unpacked(path, opened)
        with opened(path, "rb") as file:
            return parse_csv(file, path.name)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "not a file of this format"
        raise InvalidInput("path", path, f"cannot be read: {reason}", "check the path and the file") from None


def _check_unpacked(path: Path, opened: Callable[..., Any]) -> None:
    """Unpack a file once only to learn its length, which is quick compared with parsing it."""
    most = max(_ALWAYS["csv"], UNPACKED * path.stat().st_size)
    left = most
    with opened(path, "rb") as file:
        while data := file.read(2**20):
            left -= len(data)
            if left < 0:
                rule = f"unpacks to more than {most:,} bytes, {UNPACKED} times its size"
                raise InvalidInput(path.name, None, rule, "unpack it yourself if it is what it should be")


def parse_csv(file: IO[bytes], name: str) -> Table:
    """Read the CSV text of an open binary file, and close it; see `read_csv`."""
    try:
        with io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
            rows = filter(None, csv.reader(text, strict=True))
            header = _header(next(rows, []), name)
            first = list(islice(rows, 1))
            if not first:
                raise InvalidInput(name, None, "must hold a header row and at least one row", "check the file")
            columns = _columns(len(header), first, rows, name)
    except (UnicodeDecodeError, csv.Error):
        raise InvalidInput(name, None, "must be CSV text in UTF-8", "convert the file") from None
    filled = (np.fromiter(values, dtype=object, count=len(values)) for values in columns)
    return Table(name, dict(zip(header, filled, strict=True)))


def _header(row: list[str], name: str) -> list[str]:
    """Names of columns, not shown in a refusal: in a file without a header they are a row of data."""
    header = [field.strip() for field in row]
    if len(set(header)) != len(header) or "" in header:
        raise InvalidInput(name, None, "the first row must name every column once", "add or repair the header row")
    return header


def csv_names(path: str | Path) -> list[str]:
    """The names of a CSV file's columns, from its first row alone.

    InvalidInput if that looks like a row of data: a name is no number, and no date.
    """
    path = regular("path", path)
    packed: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
    try:
        with packed.get(path.suffix.lower(), open)(path, "rb") as file:
            line = file.read(_LONGEST_HEADER).decode("utf-8-sig", "ignore")
        names = _header(next(filter(None, csv.reader(io.StringIO(line, newline=""), strict=True)), []), path.name)
    except (OSError, EOFError, lzma.LZMAError, zlib.error, csv.Error):
        raise InvalidInput("path", path, "cannot be read as CSV text in UTF-8", "check the file") from None
    if not names or any(name[:1].isdigit() and not any(map(str.isalpha, name)) for name in names):
        rule = "the first row looks like data, and a schema is published"
        raise InvalidInput(path.name, None, rule, "add a header row that names the columns")
    return names


def parquet_types(path: str | Path) -> dict[str, str]:
    """The types that a Parquet file declares, by column, without reading a value of a row.

    In words: ``"number"``, ``"truth"``, ``"text"``, ``"date"``, ``"vector N"`` of a fixed size, or ``"?"``.
    """
    pa, pq = _arrow(path)
    place = regular("path", path)
    try:
        schema = pq.read_schema(place)
    except (OSError, pa.ArrowException):
        raise InvalidInput("path", place, "cannot be read: not a Parquet file", "check the path and the file") from None
    known = pa.types

    def word(kind: Any) -> str:
        if known.is_fixed_size_list(kind):
            return f"vector {kind.list_size}"
        for name, tests in (
            ("truth", (known.is_boolean,)),
            ("number", (known.is_integer, known.is_floating, known.is_decimal)),
            ("date", (known.is_date, known.is_timestamp)),
            ("text", (known.is_dictionary, known.is_string, known.is_large_string)),
        ):
            if any(test(kind) for test in tests):
                return name
        return "?"

    return {field.name: word(field.type) for field in schema}


def _columns(width: int, first: list[list[str]], rest: Iterable[list[str]], name: str) -> list[list[str]]:
    columns: list[list[str]] = [[] for _ in range(width)]
    rows, part = iter(rest), first
    while part:
        if set(map(len, part)) != {width}:
            raise InvalidInput(name, None, "every row must have as many fields as the header", "repair the file")
        for column, values in zip(columns, zip(*part, strict=True), strict=True):
            column.extend(values)
        fits(name, _VALUE * width * len(columns[0]))
        part = list(islice(rows, _ROWS))
    return columns


def read_parquet(path: str | Path) -> Table:
    """Read a Parquet file (needs the extra ``sottovoce[parquet]``); nulls are missing values."""
    pa, _ = _arrow(path)
    batches, size = [], 0
    for batch in _batches(path, _ROWS):
        batches.append(batch)
        size += batch.nbytes
        fits(Path(path).name, size)
    return _from_arrow(pa.Table.from_batches(batches), path)


def parquet_batches(path: str | Path, rows: int) -> Iterator[Table]:
    """A Parquet file in tables of at most `rows` rows, one in memory at a time."""
    pa, _ = _arrow(path)
    for batch in _batches(path, rows):
        yield _from_arrow(pa.Table.from_batches([batch]), path)


def _batches(path: str | Path, rows: int) -> Iterator[Any]:
    """Record batches of a Parquet file, of at most `rows` rows each."""
    pa, pq = _arrow(path)
    place = regular("path", path)
    try:
        with pq.ParquetFile(place) as file:
            names = file.schema_arrow.names
            if len(set(names)) != len(names):
                raise InvalidInput(place.name, None, "must name every column once", "rename one")
            most = max(_ALWAYS["parquet"], REPEATED * place.stat().st_size)
            rule = f"unpacks to more than {most:,} bytes, {REPEATED} times its size"
            bomb = InvalidInput(place.name, None, rule, "convert it to CSV if it is what it should be")
            groups = [file.metadata.row_group(k) for k in range(file.metadata.num_row_groups)]
            chunks = [group.column(k) for group in groups for k in range(group.num_columns)]
            values = max(file.metadata.num_rows * len(names), sum(chunk.num_values for chunk in chunks))
            if max(8 * values, sum(chunk.total_uncompressed_size for chunk in chunks)) > most:  # lists hold more values
                raise bomb
            # A long text may stand in a chunk once and be meant in every row.
            longest = max((chunk.total_uncompressed_size for chunk in chunks), default=0)
            rows = min(rows, max(1, most // max(1, longest)))
            if file.metadata.num_rows < 1:
                raise InvalidInput(place.name, None, "must hold at least one row", "check the file")
            left, size = file.metadata.num_rows, 0
            some = _together([group.num_rows for group in groups], rows)
            for batch in chain.from_iterable(file.iter_batches(batch_size=rows, row_groups=one) for one in some):
                left -= batch.num_rows
                size += batch.nbytes
                if size > most:
                    raise bomb
                yield batch
            if left:
                raise pa.ArrowInvalid("another number of rows")
    except (OSError, MemoryError, pa.ArrowException) as error:
        reason = "it does not fit into memory" if isinstance(error, MemoryError) else "not a Parquet file"
        raise InvalidInput("path", place, f"cannot be read: {reason}", "check the path and the file") from None


def _together(sizes: Iterable[int], rows: int) -> Iterator[list[int]]:
    """Row groups to read with one reader, which keeps all that it has read: just enough for a batch of `rows`."""
    some, held = list[int](), 0
    for k, size in enumerate(sizes):
        some, held = [*some, k], held + size
        if held >= rows:
            yield some
            some, held = [], 0
    if some:
        yield some


def _arrow(path: str | Path) -> tuple[Any, Any]:
    """pyarrow and its Parquet module."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        rule, remedy = "reading Parquet needs pyarrow", "run: pip install 'sottovoce[parquet]'"
        raise InvalidInput("path", Path(path), rule, remedy) from None
    return pa, pq


def from_batches(batches: list[Any], path: str | Path) -> Table:
    """A table from Arrow's record batches; nulls are missing values."""
    pa, _ = _arrow(path)
    return _from_arrow(pa.Table.from_batches(batches), path)


def _from_arrow(frame: Any, path: str | Path) -> Table:
    pa, _ = _arrow(path)
    columns = {}
    try:
        for name, column in zip(frame.column_names, frame.columns, strict=True):
            if (block := _block(pa, column)) is not None:
                columns[name] = block
                continue
            plain = column.null_count == 0 and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type))
            # A typed array would turn a null into NaN, and a missing value could no longer be told from a NaN.
            filled = column.to_numpy() if plain else np.fromiter(_values(pa, column), dtype=object, count=len(column))
            columns[name] = filled
    except (ValueError, OverflowError, pa.ArrowException):  # a date beyond Python's, a text that is none
        rule = "cannot be read: a column holds what is no value of its type"
        raise InvalidInput("path", Path(path), rule, "write the file again") from None
    return Table(Path(path).name, columns)


def _block(pa: Any, column: Any) -> Column | None:
    """A column of numbers in lists of one length, such as images, as an array (n, length); None for another."""
    if not pa.types.is_fixed_size_list(column.type) or column.null_count:
        return None
    kind, parts = column.type.value_type, [chunk.flatten() for chunk in column.chunks]
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)) or any(part.null_count for part in parts):
        return None
    return np.concatenate([part.to_numpy() for part in parts]).reshape(len(column), column.type.list_size)


def _values(pa: Any, column: Any) -> list[object]:
    """Values of a column; those of a dictionary column are made once."""
    if not pa.types.is_dictionary(column.type):
        return list(column.to_pylist())
    found: list[object] = []
    for chunk in column.chunks:
        known = chunk.dictionary.to_pylist()
        found += [None if k is None else known[k] for k in chunk.indices.to_pylist()]
    return found
