"""Data: from files and frames to rows in the unit ball that a solver can sweep over.

A raw :mod:`.table` is read from a file (:mod:`.file_formats`) or a frame (:mod:`.frames`), encoded
by a :mod:`.schema` of public facts with one block of features for each declared column
(:mod:`.columns`), partitioned over sites (:mod:`.partition`), and stacked as :mod:`.rows`.
:mod:`.design` multiplies rows by vectors, and :mod:`.sweep` passes over all of them.  Synthetic
rows come from the schema alone (:mod:`.expected`).
"""

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
from .partition import partition
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
