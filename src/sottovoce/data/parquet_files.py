"""Tables in Parquet files (the extra ``sottovoce[parquet]``) and in Arrow's record batches.

Anybody may have made a file: one that would unpack to far more than its size, or than this
machine's memory, is refused while it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidInput
from .file_kinds import PARQUET, require_file_kind
from .table import Column, Table, check_memory_fits

REPEATED = 1000
"""Bytes that a Parquet file may unpack to, per byte of the file, at eight bytes a value; 256 MiB
are always allowed.
"""
_ALWAYS = 256 * 2**20
_ROWS = 8192  # read at a time


def parquet_types(path: str | Path) -> dict[str, str]:
    """Return the types that a Parquet file declares, by column, without reading a row.

    In words: ``"number"``, ``"truth"``, ``"text"``, ``"date"``, ``"vector N"`` of a fixed size, or
    ``"?"``.
    """
    pa, pq = _import_pyarrow(path)
    place = require_file_kind(path, PARQUET)
    try:
        schema = pq.read_schema(place)
    except (OSError, pa.ArrowException):
        raise InvalidInput(
            "path", place, "cannot be read: not a Parquet file", "check the path and the file"
        ) from None
    if len(set(schema.names)) != len(schema.names):
        raise InvalidInput(place.name, None, "must name every column once", "rename one")
    known = pa.types

    def word(kind: Any) -> str:
        if known.is_fixed_size_list(kind):
            return f"vector {kind.list_size}"
        for name, tests in (
            ("truth", (known.is_boolean,)),
            ("number", (known.is_integer, known.is_floating, known.is_decimal)),
            ("date", (known.is_date, known.is_timestamp)),
            (
                "text",
                (known.is_string, known.is_large_string, known.is_string_view, known.is_dictionary),
            ),
        ):
            if any(test(kind) for test in tests):
                return name
        return "?"

    return {field.name: word(field.type) for field in schema}


def read_parquet(path: str | Path) -> Table:
    """Read a Parquet file (needs the extra ``sottovoce[parquet]``); nulls are missing values."""
    pa, _ = _import_pyarrow(path)
    batches, size = [], 0
    for batch in _open_record_batches(path, _ROWS):
        batches.append(batch)
        size += batch.nbytes
        check_memory_fits(Path(path).name, size)
    return _table_from_arrow(pa.Table.from_batches(batches), path)


def parquet_batches(path: str | Path, rows: int) -> Iterator[Table]:
    """Read a Parquet file as tables of at most `rows` rows, one in memory at a time."""
    pa, _ = _import_pyarrow(path)
    for batch in _open_record_batches(path, rows):
        yield _table_from_arrow(pa.Table.from_batches([batch]), path)


def _open_record_batches(path: str | Path, rows: int) -> Iterator[Any]:
    """Yield the record batches of a Parquet file, of at most `rows` rows each."""
    pa, pq = _import_pyarrow(path)
    place = require_file_kind(path, PARQUET)
    try:
        with pq.ParquetFile(place) as file:
            yield from _bounded_batches(file, place, rows)
    except (OSError, MemoryError, pa.ArrowException) as error:
        reason = "not a Parquet file"
        if isinstance(error, MemoryError):
            reason = "it does not fit into memory"
        raise InvalidInput(
            "path", place, f"cannot be read: {reason}", "check the path and the file"
        ) from None


def _bounded_batches(file: Any, place: Path, rows: int) -> Iterator[Any]:
    """Yield record batches of an open file; InvalidInput if it unpacks to more than it may."""
    names = file.schema_arrow.names
    total = file.metadata.num_rows
    if len(set(names)) != len(names):
        raise InvalidInput(place.name, None, "must name every column once", "rename one")
    most = max(_ALWAYS, REPEATED * place.stat().st_size)
    rule = f"unpacks to more than {most:,} bytes, {REPEATED} times its size"
    bomb = InvalidInput(place.name, None, rule, "if the content is right, convert it to CSV")
    groups = [file.metadata.row_group(k) for k in range(file.metadata.num_row_groups)]
    unpacked, longest = _declared_sizes(file, groups)
    if unpacked > most:
        raise bomb
    # A chunk may hold a long text once and refer to it in every row.
    rows = min(rows, max(1, most // max(1, longest)))
    if total < 1:
        raise InvalidInput(place.name, None, "must hold at least one row", "give a file with rows")
    read = size = 0
    for some in _read_all_batches([group.num_rows for group in groups], rows):
        for batch in file.iter_batches(batch_size=rows, row_groups=some):
            read += batch.num_rows
            size += batch.nbytes
            if size > most:
                raise bomb
            yield batch
    if read != total:
        raise InvalidInput(
            "path", place, "cannot be read: not a Parquet file", "check the path and the file"
        )


def _declared_sizes(file: Any, groups: Sequence[Any]) -> tuple[int, int]:
    """Return the bytes that a file declares to unpack to, and those of its longest chunk."""
    chunks = [group.column(k) for group in groups for k in range(group.num_columns)]
    sizes = [chunk.total_uncompressed_size for chunk in chunks]
    in_cells = file.metadata.num_rows * len(file.schema_arrow.names)
    # Lists hold more values than cells.
    in_chunks = sum(chunk.num_values for chunk in chunks)
    return max(8 * in_cells, 8 * in_chunks, sum(sizes)), max(sizes, default=0)


def _read_all_batches(sizes: Iterable[int], rows: int) -> Iterator[list[int]]:
    """Yield lists of row groups (of these `sizes`) that hold just enough for a batch of `rows`.

    Each list gets a reader of its own, because a reader keeps in memory all that it has read.
    """
    some, held = list[int](), 0
    for k, size in enumerate(sizes):
        some, held = [*some, k], held + size
        if held >= rows:
            yield some
            some, held = [], 0
    if some:
        yield some


def _import_pyarrow(path: str | Path) -> tuple[Any, Any]:
    """Import pyarrow and its Parquet module; an InvalidInput if it is not installed."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        rule, remedy = "reading Parquet needs pyarrow", "run: pip install 'sottovoce[parquet]'"
        raise InvalidInput("path", Path(path), rule, remedy) from None
    return pa, pq


def table_from_batches(batches: list[Any], path: str | Path) -> Table:
    """Build a table from Arrow's record batches; nulls are missing values."""
    pa, _ = _import_pyarrow(path)
    return _table_from_arrow(pa.Table.from_batches(batches), path)


def _table_from_arrow(frame: Any, path: str | Path) -> Table:
    """Convert an Arrow table column by column; nulls become None."""
    pa, _ = _import_pyarrow(path)
    columns = {}
    try:
        for name, column in zip(frame.column_names, frame.columns, strict=True):
            if (block := _block_from_lists(pa, column)) is not None:
                columns[name] = block
                continue
            plain = column.null_count == 0 and (
                pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
            )
            if plain:
                columns[name] = column.to_numpy()
            else:
                # A typed array would turn a null into NaN, and a missing value could no longer be
                # told from a NaN.
                values = _values_of_column(pa, column)
                columns[name] = np.fromiter(values, dtype=object, count=len(column))
    except (ValueError, OverflowError, pa.ArrowException):
        # Some cell holds what is no value of its type.
        rule = "cannot be read: a column holds a value that is invalid for its type"
        raise InvalidInput("path", Path(path), rule, "write the file again") from None
    return Table(Path(path).name, columns)


def _block_from_lists(pa: Any, column: Any) -> Column | None:
    """Return a column of lists of numbers of one length, such as images, as an array (n, length).

    None for a column of another type.
    """
    if not pa.types.is_fixed_size_list(column.type) or column.null_count:
        return None
    kind, parts = column.type.value_type, [chunk.flatten() for chunk in column.chunks]
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)) or any(
        part.null_count for part in parts
    ):
        return None
    return np.concatenate([part.to_numpy() for part in parts]).reshape(
        len(column), column.type.list_size
    )


def _values_of_column(pa: Any, column: Any) -> list[object]:
    """Return the values of a column; each value of a dictionary column is converted once."""
    if not pa.types.is_dictionary(column.type):
        return values_as_python(pa, column)
    found: list[object] = []
    for chunk in column.chunks:
        known = values_as_python(pa, chunk.dictionary)
        found += [None if k is None else known[k] for k in chunk.indices.to_pylist()]
    return found


def values_as_python(pa: Any, values: Any) -> list[object]:
    """Convert values to Python's own types.

    Where one of them is beyond Python's, each is read by itself.
    """
    try:
        return list(values.to_pylist())
    except (ValueError, OverflowError, pa.ArrowException):
        return [_scalar_as_python(pa, scalar) for scalar in values]


def _scalar_as_python(pa: Any, scalar: Any) -> object:
    """Return one value as Python's own; NumPy's for a point in time that Python cannot represent.

    So a typing error in one year does not make a table unreadable, and bytes that are no text spoil
    one row alone.
    """
    kind = scalar.type
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, pa.ArrowException):
        if pa.types.is_timestamp(kind):
            return np.datetime64(scalar.value, kind.unit)
        if pa.types.is_date(kind):
            return np.datetime64(scalar.value, "D" if pa.types.is_date32(kind) else "ms")
        if pa.types.is_duration(kind):
            return np.timedelta64(scalar.value, kind.unit)
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return scalar.as_buffer().to_pybytes().decode("utf-8", "replace")
        raise


__all__ = [
    "REPEATED",
    "parquet_batches",
    "parquet_types",
    "read_parquet",
    "table_from_batches",
    "values_as_python",
]
