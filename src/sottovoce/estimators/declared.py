"""Reading frames by a schema: labels, sites, persons and weights in, coefficients by name out.

A schema declares public facts about columns (``docs/reference/data.md``).  These functions are the
estimators' side of it: they find the columns that a schema names, read labels into
:class:`Labelled`, and convert models of encoded rows to the units of the columns and back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import NamedTuple, Self

import numpy as np

from ..answers.terms import CONSTANT, into_units
from ..data.frames import read_frame
from ..data.labels import ClassLabel, NumberLabel
from ..data.schema import Schema, errors_of_columns
from ..data.table import Table
from ..data.validation import run_without_data_in_errors
from ..data.values import MISSING_MARKS, Column, column_as_text, mask_of_missing, value_as_text
from ..errors import InvalidInput, SchemaError
from ..problem.task import BoundedNumber, Classification
from ..reports.notebook import ColumnTable
from ..util.typing import Any, Array, IntArray


def read_schema_argument(given: Any) -> Schema | None:
    """Return the schema that a user gave as a path, as a dict of entries, or as a Schema.

    None stays None; InvalidInput for anything else.
    """
    if given is None or isinstance(given, Schema):
        return given
    if isinstance(given, Mapping):
        return Schema.from_dict(given)
    if isinstance(given, str | PathLike):
        return Schema.from_toml(given)  # type: ignore[arg-type]
    raise InvalidInput(
        "schema", type(given), "must be a path, a dict or a Schema", "give the path of a TOML file"
    )


def read_label_column(y: Any, n: int) -> Column:
    """Return the labels as a column (n,); InvalidInput if they have another shape."""
    column = run_without_data_in_errors("y", lambda: read_frame({"y": y}).columns["y"])
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.shape != (n,):
        rule = f"must have one label for each of the {n} rows, but has shape {column.shape}"
        raise InvalidInput("y", None, rule, "give one label for each row")
    return column


class Labelled(NamedTuple):
    """Labels of rows, as positions in the list of class names.

    Parameters
    ----------
    names : array (K,)
        Class names, in the schema's order or sorted.
    number : array of int (n,)
        Position of each row's label in `names`; -1 for an undeclared or missing one.
    order : array of int (K,)
        Positions that sort the names, as scikit-learn wants `classes_`.
    """

    names: Array
    number: IntArray
    order: IntArray

    @classmethod
    def from_sorted_names(cls, names: Array, number: IntArray) -> Self:
        """Build from class names that are sorted already, and each row's position among them."""
        return cls(names, number, np.arange(len(names)))

    def to_sorted_classes(self, coefficients: Array, axis: int = 0) -> Array:
        """Reorder per-class arrays along `axis` to the order of `classes_`.

        Two classes have a single model, for the second of `names`: its sign changes if that class
        is not the second one when sorted.
        """
        if len(self.order) != 2:
            return np.take(coefficients, self.order, axis=axis)
        names_are_sorted = self.order[0] == 0
        if names_are_sorted:
            return coefficients
        return -coefficients

    def from_sorted_classes(self, coefficients: Array) -> Array:
        """Undo :meth:`to_sorted_classes`."""
        # A change of sign undoes itself.
        if len(self.order) == 2:
            return self.to_sorted_classes(coefficients)
        return coefficients[np.argsort(self.order)]


def read_declared_labels(schema: Schema, column: Any) -> Labelled:
    """Read a column (n,) of the labels that the schema declares; others get the position -1.

    SchemaError if the schema's label has no classes.
    """
    label = schema.label
    if label is None or not isinstance(label.task, Classification):
        rule = "must declare its classes, because a classifier predicts them"
        raise SchemaError("label", None, rule, "add positive = ..., or values = [...]")
    names = np.array(label.task.names)
    number = label.task.number(label.encode(column, schema.na))
    return Labelled(names, number, np.argsort(names))


def open_table_of_schema(schema: Schema, X: Any, columns: Sequence[str] | None) -> Table:
    """Open X as a table that has the columns of the schema.

    Parameters
    ----------
    schema : Schema
    X
        A frame, or an array whose columns are named by `columns`.
    columns : sequence of str or None
        Names of the columns of an array that has none.

    Returns
    -------
    Table

    Raises
    ------
    SchemaError
        If X lacks a column that the schema declares, or has one that nothing declares.
    """
    table = read_frame(X, columns)
    errors = errors_of_columns(schema, table.columns, labels=False)
    if errors:
        raise errors[0]
    return table


def source_columns(schema: Schema, columns: Mapping[str, Any]) -> list[str]:
    """Return the names of the columns that a schema reads as features, each once."""
    sources = [source for block in schema.blocks for source in block.source_columns(columns)]
    return list(dict.fromkeys(sources))


def declared_site_column(schema: Schema | None, table: Any) -> Any:
    """Return each row's site, (n,) texts, from the schema's site column; None without one.

    SchemaError if a row has no site.
    """
    if schema is None or schema.site is None or schema.site not in table.columns:
        return None
    column = table.columns[schema.site]
    # As `sites_named_in_column` reads the column: without the schema's own marks.
    if mask_of_missing(column, (), MISSING_MARKS).any():
        raise SchemaError(
            schema.site, None, "has rows without a site", "fill in the site of every row"
        )
    return column_as_text(column)


def person_numbers(schema: Schema | None, table: Any) -> IntArray | None:
    """Return each row's person as a number from 0 on, (n,); None if the privacy unit is a row."""
    if schema is None or schema.person is None:
        return None
    return schema.person.number_people_of_table(table.columns, frozenset(schema.na))


def find_label_column(schema: Schema | None, table: Any, y: Any) -> Any:
    """Return the labels: `y` if it is given, or the column that the schema declares.

    Parameters
    ----------
    schema : Schema or None
    table : Table
    y : array-like or None

    Returns
    -------
    array-like or None
        None if neither says what the labels are.

    Raises
    ------
    SchemaError
        If the table lacks the label column that the schema declares.
    """
    if y is not None:
        return y
    if schema is None or schema.label is None:
        return None
    if schema.label.column not in table.columns:
        rule = "is the label column that the schema declares, but the frame has no such column"
        raise SchemaError(schema.label.column, None, rule, "add the column, or give y")
    return table.columns[schema.label.column]


def declared_weights(schema: Schema | None, table: Any) -> tuple[Array, int] | None:
    """Return the schema's weights of rows, (n,) in [0, 1], and how many rows were capped.

    None if the schema declares no weight.
    """
    if schema is None or schema.weight is None:
        return None
    if schema.weight.column not in table.columns:
        rule = "is the weight column that the schema declares, but the frame has no such column"
        raise SchemaError(schema.weight.column, None, rule, "add the column")
    found: tuple[Array, int] = schema.weight.encode_weights(
        table.columns[schema.weight.column], frozenset(schema.na)
    )
    return found


def columns_of_array(width: int) -> list[str]:
    """Return names for the columns of an array that has none."""
    return [f"x{j}" for j in range(width)]


def coefficients_in_units(schema: Schema, vectors: Array) -> tuple[Array, Array]:
    """Convert models of encoded rows to the units of the columns.

    Parameters
    ----------
    schema : Schema
    vectors : array (..., d)
        Models of encoded rows.

    Returns
    -------
    coef : array (..., features)
        Per unit of each column.
    constant : array (...)
        The constant term in these units.
    """
    found = vectors @ into_units(schema).T
    return found[..., :-1], found[..., -1]


def encoded_model_from_units(schema: Schema, coef: Array, intercept: Array) -> Array:
    """Convert coefficients per unit of the columns to models of encoded rows.

    Parameters
    ----------
    schema : Schema
    coef : array (models, features)
        Per unit of each column.
    intercept : array (models,)

    Returns
    -------
    array (models, features + 1)
        Models of encoded rows: the inverse of :func:`coefficients_in_units`.

    Raises
    ------
    InvalidInput
        For a schema without a constant.
    """
    if not schema.intercept:
        rule = "cannot be used, because the schema declares no constant"
        raise InvalidInput("intercept_init", None, rule, "add intercept = true to the schema")
    with_constant = np.concatenate([coef, intercept[..., None]], axis=-1)
    return np.linalg.solve(into_units(schema), with_constant.T).T


def with_class_label(schema: Schema, names: Array) -> Schema:
    """Return the schema with a label of these classes, for labels given separately as y."""
    label = ClassLabel(
        _unused_label_name(schema), tuple(value_as_text(name) for name in names.tolist())
    )
    return replace(schema, label=label)


def with_number_label(schema: Schema, task: BoundedNumber) -> Schema:
    """Return the schema with a label of these bounds, for a target given separately as y."""
    label = schema.label
    if isinstance(label, NumberLabel) and (label.lo, label.hi) == (task.low, task.high):
        return schema
    return replace(schema, label=NumberLabel(_unused_label_name(schema), task.low, task.high))


def _unused_label_name(schema: Schema) -> str:
    """Return a name for a label column: the schema's own, or one that no feature has."""
    taken = {source for block in schema.blocks for source in block.source_columns({})}
    candidates = ["label", "y", "(label)"]
    if schema.label is not None:
        candidates.insert(0, schema.label.column)
    return next(name for name in candidates if name not in taken)


def positive_class_name(model: Any) -> str | None:
    """Return the class whose log-odds the table of coefficients is for.

    Of two classes it is the schema's positive one, or without a schema the second in order; None
    for more classes and for other models.
    """
    classes, answered = getattr(model, "classes_", None), getattr(model, "_answered", None)
    if classes is None or len(classes) != 2:
        return None
    if answered is None or answered.schema is None:
        return str(classes[1])
    return str(answered.schema.task.names[1])


def coefficient_columns(model: Any) -> ColumnTable:
    """Return coefficients by name, as columns for ``pandas.DataFrame``; the constant is last.

    A regressor in which every site has a constant has a line for each.  (A classifier with such
    constants has a table with intervals instead.)  With two classes the coefficients are for
    :func:`positive_class_name`, and there are odds ratios if the loss is logistic and gradients
    were not clipped.  With more classes there is a column for each.
    """
    names = list(map(str, model.get_feature_names_out()))
    answered = model._answered
    if answered is not None and answered.naming is not None and answered.naming.sites:
        constants = [f"{CONSTANT}: {site}" for site in answered.naming.sites]
        every = [*np.ravel(model.coef_).tolist(), *np.ravel(model.site_intercept_).tolist()]
        return ColumnTable({"name": [*names, *constants], "coefficient": every})
    names.append(CONSTANT)
    values = np.column_stack([np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)])
    classes, positive = getattr(model, "classes_", None), positive_class_name(model)
    if positive is None and classes is not None:
        by_class = {str(name): line.tolist() for name, line in zip(classes, values, strict=True)}
        return ColumnTable({"name": names} | by_class)
    values = values[0]
    # Coefficients are for the second class in order, which need not be the schema's positive one.
    if classes is not None and positive != str(classes[1]):
        values = -values
    found = ColumnTable({"name": names, "coefficient": values.tolist()})
    if positive is not None and model.loss_ == "logistic" and math.isinf(model.max_grad_norm_):
        with np.errstate(over="ignore"):
            found["odds_ratio"] = np.exp(values).tolist()
    return found
