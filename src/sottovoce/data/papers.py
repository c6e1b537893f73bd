"""The encoding of Adult in paper 002 (section VIII: "the same pre-processing steps as in [22]").

[22] is Chaudhuri, Monteleoni and Sarwate (2011): drop rows with missing values, one-hot every
categorical column, divide each numeric column by its maximum, then every row by the largest row
norm.  With a constant column Adult has 6 + 98 + 1 = 105 features and 45,222 complete rows (the
paper prints 45,223).

**Data-dependent.**  Categories, maxima and the largest norm are computed from the rows, which no
guarantee covers.  The schema says so (`Schema.data_dependent`), and so must every privacy
statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .columns import Block, Category, Number, row_norms
from .labels import Label
from .schema import Schema
from .table import Table, column_as_numbers, column_as_text

ADULT_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
ADULT_CATEGORIES = (
    "workclass",
    "education",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "native-country",
)


def complete_cases(table: Table, columns: Sequence[str] | None = None) -> Table:
    """Return the rows of a table without a missing value in the given columns (default: all).

    Examples
    --------
    >>> complete_cases(Table("t", {"a": np.array(["x", "", "y"])})).n_rows
    2
    """
    complete = np.ones(table.n_rows, dtype=bool)
    for name in columns if columns is not None else table.columns:
        if table.columns[name].dtype.kind not in "biuf":
            complete &= column_as_text(table.columns[name]) != ""
    return table.take(complete)


def schema_from_rows(
    table: Table,
    *,
    numbers: Sequence[str],
    categories: Sequence[str],
    label: Label,
    ignore: Sequence[str] = (),
    name: str = "from-rows",
) -> Schema:
    """Build the papers' encoding: a schema whose facts are computed from the rows.

    Its `data_dependent` is True: no guarantee covers that, and every statement about such rows says
    so.

    Parameters
    ----------
    table : Table
        Rows without missing values, numeric columns non-negative.
    numbers : sequence of str
        Columns mapped from ``[0, max]`` to ``[0, 1]``.
    categories : sequence of str
        Columns that are one-hot encoded, a level for each value that occurs.
    label : Label
        Two classes.
    ignore : sequence of str
        Columns left out.
    name : str
        Of the schema.

    Returns
    -------
    Schema
        With a constant of 1, and the largest norm of a row as its scale.

    Examples
    --------
    >>> table = Table("t", {"age": np.array([20, 60]), "ill": np.array(["yes", "no"])})
    >>> schema = schema_from_rows(table, numbers=["age"], categories=[], label=Label("ill", "yes"))
    >>> schema.feature_names, schema.data_dependent
    (['age', 'intercept'], True)
    """
    blocks: list[Block] = []
    for column in numbers:
        values, _ = column_as_numbers(table.columns[column])
        blocks.append(Number(column, lo=0.0, hi=float(values.max()), to="[0,1]"))
    for column in categories:
        found = np.unique(column_as_text(table.columns[column])).tolist()
        blocks.append(Category(column, tuple((value, (value,)) for value in found)))
    note = (
        "categories, maxima and the largest row norm are computed from the rows: not covered "
        "by privacy"
    )
    schema = Schema(
        name,
        tuple(blocks),
        label,
        intercept=1.0,
        ignore=tuple(ignore),
        data_dependent=True,
        note=note,
    )
    largest = float(row_norms(schema.encode(table, labels=False).X).max())
    return replace(schema, scale=min(largest * schema.bound, schema.bound))


def adult_002(table: Table) -> tuple[Table, Schema]:
    """Return the complete rows of the raw Adult table and the 105-feature schema of paper 002."""
    kept = complete_cases(table, (*ADULT_NUMBERS, *ADULT_CATEGORIES))
    schema = schema_from_rows(
        kept,
        numbers=ADULT_NUMBERS,
        categories=ADULT_CATEGORIES,
        label=Label("income", positive=">50K", negative="<=50K"),
        ignore=("split",),
        name="adult-002",
    )
    return kept, schema
