"""Data: from files and frames to rows in the unit ball that a solver can sweep over.

A raw :mod:`.table` is read from a file (:mod:`.file_formats`) or a frame (:mod:`.frames`), encoded
by a :mod:`.schema` of public facts with one block of features for each declared column
(:mod:`.columns`), partitioned over sites (:mod:`.partition`), and stacked as :mod:`.rows`.
:mod:`.design` multiplies rows by vectors, and :mod:`.sweep` passes over all of them.  Synthetic
rows come from the schema alone (:mod:`.expected`).
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

# A submodule has its name, and would hide it once it is imported.
from .partition import partition

if TYPE_CHECKING:
    from .check import Review, review
    from .csv_files import read_csv
    from .expected import Fill, fill, sketch, typical_norms
    from .file_formats import read_table
    from .labels import ClassLabel, Label, NumberLabel
    from .loaders import (
        Dataset,
        builtin_schema,
        builtin_table,
        describe,
        file_digest,
        load,
        table_digest,
    )
    from .papers import complete_cases, schema_from_rows
    from .parquet_files import read_parquet
    from .schema import Encoded, Schema
    from .sql import read_sql
    from .synthetic import Synthetic, make_synthetic
    from .table import Table

__all__ = [
    "ClassLabel",
    "Dataset",
    "Encoded",
    "Fill",
    "Label",
    "NumberLabel",
    "Review",
    "Schema",
    "Synthetic",
    "Table",
    "builtin_schema",
    "builtin_table",
    "complete_cases",
    "describe",
    "file_digest",
    "fill",
    "load",
    "make_synthetic",
    "partition",
    "read_csv",
    "read_parquet",
    "read_sql",
    "read_table",
    "review",
    "schema_from_rows",
    "sketch",
    "table_digest",
    "typical_norms",
]

# The module of each name, from which it is imported on first use: few commands read all kinds of
# files, or check a table.
_HOMES = {
    "ClassLabel": "labels",
    "Dataset": "loaders",
    "Encoded": "schema",
    "Fill": "expected",
    "Label": "labels",
    "NumberLabel": "labels",
    "Review": "check",
    "Schema": "schema",
    "Synthetic": "synthetic",
    "Table": "table",
    "builtin_schema": "loaders",
    "builtin_table": "loaders",
    "complete_cases": "papers",
    "describe": "loaders",
    "file_digest": "loaders",
    "fill": "expected",
    "load": "loaders",
    "make_synthetic": "synthetic",
    "read_csv": "csv_files",
    "read_parquet": "parquet_files",
    "read_sql": "sql",
    "read_table": "file_formats",
    "review": "check",
    "schema_from_rows": "papers",
    "sketch": "expected",
    "table_digest": "loaders",
    "typical_norms": "expected",
}

# For a type checker every name would exist.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name on its first use."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(_import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    """Return all public names, also those that are not imported yet."""
    return sorted({*globals(), *__all__})
