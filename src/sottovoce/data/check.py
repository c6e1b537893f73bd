"""Validation of a table against a schema, before any budget is spent.

Counts are exact and no epsilon covers them: only the holder of the rows can run this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InvalidInput
from .columns import Block, Category, Vector
from .curved import Derived
from .dates import Date
from .schema import ABSENT, BEYOND, HEAVY, LABEL, OTHER, ROW, Schema, count_unfit
from .table import MISSING, Column, Table, as_table, distinct
from .table import marked as gaps_in

CAVEAT = "Exact counts, without noise, which no epsilon covers: for the holder of the rows only."
_SPECIAL = {
    LABEL: "another label than the declared, or none: rows of zeros",
    BEYOND: "labels beyond their bounds: clipped",
    HEAVY: "weights beyond their cap: they count as much as the cap",
    ROW: "longer than the scale: shortened; with --inference and least squares they count for less",
}


@dataclass(frozen=True)
class Finding:
    """What happens to some rows of a column: clipped, encoded as zeros, and so on.

    `column` is one of the schema, or ``"(label)"``, ``"(row)"`` as in :class:`sottovoce.data.Encoded`; `rows` an exact
    count.  `fits` is True if the schema declares it: a replacement for missing values, or a scale that shortens rows.
    """

    column: str
    rows: int
    what: str
    fits: bool = False


@dataclass(frozen=True)
class Review:
    """A schema compared with a table.

    `refused` has every error that training would raise, one line each, without values; `counts` are exact, for the
    holder only, and of the columns that can be read.
    """

    table: str
    schema: str
    rows: int
    refused: tuple[str, ...]
    counts: tuple[Finding, ...] = ()

    @property
    def fine(self) -> bool:
        """Whether every value fits."""
        return not self.refused and all(count.fits for count in self.counts)

    def to_dict(self) -> dict[str, Any]:
        """One JSON object."""
        counts = [
            {"column": one.column, "rows": one.rows, "share": one.rows / self.rows, "what": one.what, "fits": one.fits}
            for one in self.counts
        ]
        return {
            "table": self.table, "schema": self.schema, "rows": self.rows, "refused": list(self.refused),
            "counts": counts, "fine": self.fine, "caveat": CAVEAT,
        }  # fmt: skip


def review(schema: Schema, table: Table | Mapping[str, Any]) -> Review:
    """Compare a table with a schema; nothing is released, charged or written.

    Counts are those of :meth:`Schema.encode`.
    """
    table = as_table(table)
    refused = [str(error) for error in schema.column_errors(table.columns)]
    na, clipped, absent = frozenset(schema.na), dict[str, int](), dict[str, Finding]()
    blocks = {block.name: block for block in schema.blocks}
    for block in schema.blocks:
        if isinstance(block, Derived) or not set(block.sources(table.columns)) <= set(table.columns):
            continue
        try:
            clipped |= count_unfit(block, block.encode(table.columns, na)[1], table.columns, na)
        except InvalidInput as error:
            refused.append(str(error))
        else:
            absent |= _absent(block, table.columns, na)
    if not refused:
        try:
            clipped = schema.encode(table).clipped
        except InvalidInput as error:  # of the label or of weights
            refused.append(str(error))
    found = [_finding(name, n, blocks) for name, n in clipped.items() if n]
    return Review(table.name, schema.name, table.n_rows, tuple(refused), (*found, *absent.values()))


def _finding(key: str, rows: int, blocks: Mapping[str, Block]) -> Finding:
    """What a count of :attr:`Encoded.clipped` means."""
    for mark, what in ((OTHER, "none of the declared values: counts as other"), (ABSENT, "missing: no level at all")):
        if key not in blocks and key.startswith(mark):
            return Finding(key.removeprefix(mark), rows, what, fits=mark == OTHER)
    return Finding(key, rows, _SPECIAL.get(key) or _outside(blocks[key]), fits=key == ROW)


def _outside(block: Block) -> str:
    if isinstance(block, Category):
        return "none of the declared values: no level at all"
    return "beyond the bounds: clipped" if not isinstance(block, Vector) else "entries beyond the bounds: clipped"


def _absent(block: Block, columns: Mapping[str, Column], na: frozenset[str]) -> dict[str, Finding]:
    """Rows with a missing value that the block replaces."""
    value, marked = getattr(block, "missing", None), getattr(block, "indicator", False)
    if value is not None:
        plain = block.day(value) if isinstance(block, Date) else value if isinstance(value, str) else f"{value:g}"
        stands = plain + ", and is marked" * marked
    elif marked:
        stands = "a level of its own"
    elif isinstance(block, Category) and block.other:
        stands = "other"
    else:
        return {}
    lost: Any = False
    for source in block.sources(columns):
        values = columns[source]
        if values.dtype.kind in "iuf":
            gone = gaps_in(values, na)
        else:
            levels, which = distinct(values.ravel())
            gone = np.isin(levels, sorted(na | MISSING))[which].reshape(values.shape)
        lost = lost | (gone.any(axis=1) if gone.ndim > 1 else gone)
    rows = int(np.sum(lost))
    return {block.name: Finding(block.name, rows, f"missing: counts as {stands}", fits=True)} if rows else {}
