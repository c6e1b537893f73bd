"""Large text files by pyarrow's reader (the extra ``sottovoce[parquet]``), a block at a time.

Contract
--------
The plain reader of :mod:`sottovoce.data.csv_files` says what a file means.  This one either returns
the very same columns, or None, and then the plain reader reads the whole file and says what is
wrong with it.  So it refuses nothing by itself, and which of the two has read a file shows nowhere
but in the time: what a row is read as depends on no other row.

It returns columns only of a file where both readers must agree:

* lines end in a line feed, or in a carriage return and a line feed;
* a quote opens at the beginning of a field alone, closes at its end alone, and stands twice within
  quotes;
* there is no NUL byte, no byte-order mark at the beginning of a block, no field beyond the limit of
  :mod:`csv`, and every row has the header's number of fields.

Fields are read as texts and nothing else: no type is guessed, and no text stands for a missing
value.
"""

from __future__ import annotations

import csv
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np

from ..util.typing import IntArray
from .values import Column

LEAST = 4 * 2**20
"""Bytes of a file from which loading pyarrow pays."""
BLOCK = 8 * 2**20
"""Bytes that are read at a time."""
# Bytes; a longer row is a quote that does not close more often than a row.
_LONGEST_ROW = 32 * 2**20
_QUOTE, _LINE_FEED, _RETURN = b'"', b"\n", b"\r"
_MARK = b"\xef\xbb\xbf"


class _NotShownEqual(Exception):
    """The plain reader must read the file."""


def columns_by_blocks(
    file: IO[bytes], lines: int, separator: str, width: int, fits: Callable[[int, int], bool]
) -> list[Column] | None:
    """Read the fields below a header row, as columns of texts.

    Parameters
    ----------
    file : binary file
        At its beginning.
    lines : int
        Number of lines up to the end of the header row; they are skipped.
    separator : str
        Of fields.
    width : int
        Number of fields of a row.
    fits : callable
        Whether a file of so many bytes, up to here, and so many rows may be read on.

    Returns
    -------
    list of ndarray of object, or None
        None if the file must be read by the plain reader.
    """
    try:
        import pyarrow as pa
        import pyarrow.csv
    except ImportError:
        return None
    parts: list[list[Column]] = [[] for _ in range(width)]
    reader = _BlockReader(pa, separator, width)
    rows = 0
    try:
        for data, size in _whole_rows(file, lines, separator.encode()):
            if not fits(size, rows):
                return None
            block = reader.read_block(data)
            rows += len(block[0])
            for part, column in zip(parts, block, strict=True):
                part.append(column)
            if not fits(size, rows):
                return None
    except (_NotShownEqual, UnicodeDecodeError, pa.ArrowException):
        return None
    except (OSError, EOFError, lzma.LZMAError, zlib.error):
        # The plain reader says what is wrong with the file.
        return None
    if not rows:
        return None
    return [_join_and_empty(part) for part in parts]


def _join_and_empty(parts: list[Column]) -> Column:
    """Return the parts of a column as one, and let go of them."""
    column = np.concatenate(parts)
    parts.clear()
    return column


class _BlockReader:
    """Reads blocks of whole rows as columns of texts, where both readers agree."""

    def __init__(self, pa: Any, separator: str, width: int) -> None:
        self._pa = pa
        self._separator = separator
        self._names = [str(k) for k in range(width)]
        self._longest = csv.field_size_limit()
        self._texts = pa.string()
        self._levels = pa.dictionary(pa.int32(), pa.string())
        # Columns whose texts repeat are read faster with each distinct text once.
        self._kinds = dict.fromkeys(self._names, self._levels)

    def read_block(self, data: bytes) -> list[Column]:
        """Return the columns of a block; `_NotShownEqual` or an error of pyarrow if it is odd."""
        quoted = _QUOTE in data
        table = self._pa.csv.read_csv(
            self._pa.BufferReader(data),
            read_options=self._pa.csv.ReadOptions(
                use_threads=False, block_size=len(data) + 1, column_names=self._names
            ),
            parse_options=self._pa.csv.ParseOptions(
                delimiter=self._separator,
                quote_char='"' if quoted else False,
                newlines_in_values=quoted,
            ),
            convert_options=self._pa.csv.ConvertOptions(
                column_types=self._kinds, check_utf8=True, strings_can_be_null=False
            ),
        )
        columns = []
        for name, column in zip(self._names, table.columns, strict=True):
            columns.append(np.concatenate([self._texts_of(name, one) for one in column.chunks]))
        return columns

    def _texts_of(self, name: str, values: Any) -> Column:
        """Return values of the column `name` as an array of Python's texts."""
        levels, which = values, None
        if self._pa.types.is_dictionary(values.type):
            levels = values.dictionary
            # Its own `to_numpy` would load pandas.
            numbers = np.frombuffer(values.indices.buffers()[1], dtype=np.int32)
            which = numbers[values.offset : values.offset + len(values)]
        # By Python's own decoder, which refuses what the plain reader would.
        texts = levels.to_pylist()
        if max(map(len, texts), default=0) > self._longest:
            raise _NotShownEqual
        found = np.fromiter(texts, dtype=object, count=len(texts))
        if which is None:
            return found
        if 2 * len(texts) > len(which):
            self._kinds[name] = self._texts
        return found[which]


def _whole_rows(file: IO[bytes], lines: int, separator: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the bytes below the first `lines` lines, cut between rows, each with the number of all
    bytes that were read; `_NotShownEqual` where readers may differ.
    """
    header = b"".join(file.readline() for _ in range(lines))
    _check_line_ends(header)
    size, rest = len(header), b""
    while True:
        block = file.read(BLOCK)
        size += len(block)
        data = rest + block
        quotes = _positions_of_quotes(data)
        end = len(data)
        if block:
            end = _end_of_last_row(data, quotes)
        whole, rest = data[:end], data[end:]
        if len(rest) > max(BLOCK, _LONGEST_ROW):
            raise _NotShownEqual
        if whole:
            _check_bytes(whole)
            _check_quotes(whole, quotes[quotes < end], separator)
            yield whole, size
        if not block:
            return


def _positions_of_quotes(data: bytes) -> IntArray:
    if _QUOTE not in data:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord(_QUOTE))


def _end_of_last_row(data: bytes, quotes: IntArray) -> int:
    """Return the position after the last line feed outside quotes; 0 if there is none."""
    end = len(data)
    while True:
        feed = data.rfind(_LINE_FEED, 0, end)
        if feed < 0:
            return 0
        before = int(np.searchsorted(quotes, feed))
        if before % 2 == 0:
            return feed + 1
        # The last quote before it is open there.
        end = int(quotes[before - 1])


def _check_bytes(data: bytes) -> None:
    if b"\0" in data or data.startswith(_MARK):
        raise _NotShownEqual
    _check_line_ends(data)


def _check_line_ends(data: bytes) -> None:
    """Refuse carriage returns without a line feed."""
    if _RETURN in data and data.count(_RETURN) != data.count(_RETURN + _LINE_FEED):
        raise _NotShownEqual


def _check_quotes(data: bytes, quotes: IntArray, separator: bytes) -> None:
    """Refuse quotes other than those around a whole field, and pairs of them inside.

    Counted from the beginning of a row, every other quote opens.  If each of these follows a
    separator, a line or a closing quote, and each closing quote comes before a separator, the end
    of a line or an opening quote, then no field without quotes holds one, and nothing stands
    between a closing quote and the end of its field.
    """
    if not len(quotes):
        return
    if len(quotes) % 2:
        raise _NotShownEqual
    # A line feed at both ends stands for the beginning and the end of the file.
    padded = np.frombuffer(_LINE_FEED + data + _LINE_FEED, dtype=np.uint8)
    before = padded[quotes[::2]]
    after = padded[quotes[1::2] + 2]
    ends = [ord(separator), ord(_LINE_FEED), ord(_QUOTE)]
    if not (np.isin(before, ends).all() and np.isin(after, [*ends, ord(_RETURN)]).all()):
        raise _NotShownEqual


__all__ = ["BLOCK", "LEAST", "columns_by_blocks"]
