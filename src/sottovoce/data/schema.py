"""The schema: public facts about the columns, and the map from raw records into the unit ball.

Nothing in it may be computed from private rows.  It is published with the model, and every site
must use the same one; `Schema.fingerprint` lets sites compare.

A *block* (:mod:`sottovoce.data.columns`) is one declared column, or several, with its features.
The weighted features of a row are divided by one public number, the *divisor*; a row that is then
longer than 1 is clipped to norm 1.  `sottovoce.estimators` and the commands encode tables here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidInput, SchemaError, format_declared_value
from ..problem.task import Classification, Task, TwoClasses
from ..util.constraints import (
    Each,
    Flag,
    Instance,
    Interval,
    Rule,
    Text,
    constrained_field,
    constraint_metadata,
    optional_constraint,
    real_number_or_none,
    validate_fields_and_rules,
)
from ..util.files import parse_bounded_toml, read_bounded_text
from ..util.typing import Array, BoolArray
from . import dates  # noqa: F401  # adds a kind of column
from .columns import Block, Category, block_to_dict, check_number_of_features, row_norms, unit_rows
from .curved import Derived, blocks_from_entries
from .entries import declared_text
from .frames import read_frame
from .labels import (
    AnyLabel,
    RateLabel,
    label_from_entry,
    label_to_entries,
    offset_to_entries,
)
from .meant import suggest_spelling
from .person import Person
from .table import Table, check_memory_fits, table_from_columns
from .values import Column, value_as_text
from .weights import CaseWeight, shares_of_classes

EXAMPLE = (
    'label = {column = "income", positive = ">50K"} and, on a second line, '
    'columns = {age = {kind = "bins", edges = [17, 30, 45, 60, 90]}, '
    'sex = {kind = "category", values = ["Female", "Male"]}}'
)
FROM_ROWS = "the encoding was computed from the rows, and epsilon does not cover that"
SURVEYED = (
    "the schema was proposed by a private survey of the rows, whose budget is not included here; "
    "if these are the same rows, add it"
)
LARGEST_NORM = "the largest norm that a row can have"
LEAST_WEIGHT, MOST_WEIGHT = 1e-6, 1e6
"""Bounds of a block's weight and of the intercept: beyond them the squares of some features would
be lost to rounding when they are added to those of the others."""
_NAMED = 6  # columns that a note names
# What stands before a category's name in keys of `Encoded.clipped`: values that are not declared
# and count as other, missing ones without a level.
OTHER = "(other) "
ABSENT = "(missing) "
# Keys of `Encoded.clipped`: rows longer than the divisor, undeclared labels, clipped numbers,
# capped weights.
ROW = "(row)"
LABEL = "(label)"
BEYOND = "(label beyond its bounds)"
HEAVY = "(weight beyond its cap)"


@dataclass(frozen=True)
class Encoded:
    """Encoded rows.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows of Euclidean norm at most 1.
    y : ndarray of shape (n,), optional
        Labels as the schema's task encodes them: -1.0 and 1.0 for two classes; 0.0 for an
        undeclared label (-1 of several classes, NaN of a number), whose X is zero, the constant
        included.  ``None`` if labels were not asked for.
    clipped : dict of str to int
        For each block, the number of rows that did not fit the declaration; ``"(label)"`` counts
        rows whose label did not fit, ``"(label beyond its bounds)"`` clipped numbers, ``"(other)
        NAME"`` unknown values that count as other, ``"(missing) NAME"`` missing ones without a
        level.  Exact counts, for the holder of the data only.
    weight : ndarray of shape (n,), optional
        Sample weights in [0, 1].
    """

    X: Array
    y: Array | None
    clipped: dict[str, int]
    weight: Array | None = None


def describe_unfit_rows(
    clipped: Mapping[str, int], *, shortened: bool = True, weighed: bool = False
) -> list[str]:
    """Describe which rows did not fit a schema, with exact counts for the holder of the rows.

    Parameters
    ----------
    clipped : mapping of str to int
        Numbers of rows, as in :attr:`Encoded.clipped`.
    shortened : bool
        With False, rows longer than the divisor are not reported.
    weighed : bool
        Whether the fit lowers the weight of such rows instead of clipping them to norm 1; the
        sentence about them says so.

    Returns
    -------
    list of str
        One sentence for each reason; it names at most six columns.  Empty if every row fits.
    """
    left = dict(clipped)
    only = "(for the data's holder only)"
    fate = "count for less" if weighed else "were clipped to norm 1"
    n_rows_beyond = left.pop(ROW, 0)
    counts = [
        (left.pop(LABEL, 0), "rows have a missing or undeclared label and count as rows of zeros"),
        (left.pop(BEYOND, 0), "labels outside their declared bounds were clipped to them"),
        (left.pop(HEAVY, 0), "weights above their cap were lowered to it"),
    ]
    if shortened:
        counts.append((n_rows_beyond, f"rows are longer than the schema's scale and {fate}"))
    notes = [f"{n} {what} {only}" for n, what in counts if n]
    # The empty mark comes last: it takes all that the marks before it left.
    for mark, rule in (
        (OTHER, "undeclared values, other than missing ones, count as other"),
        (ABSENT, "missing values have no level, declare indicator = true or missing = VALUE"),
        ("", "values outside the declared bounds or levels, compare the schema with the table"),
    ):
        own = {name: left.pop(name) for name in list(left) if name.startswith(mark)}
        columns = sorted(
            ((n, name.removeprefix(mark)) for name, n in own.items() if n), reverse=True
        )
        if columns:
            notes.append(f"{rule}: {_named_columns(columns)} {only}")
    return notes


def _named_columns(columns: list[tuple[int, str]]) -> str:
    """Name the first few of the columns (number of rows, name), and say how many more there are."""
    named = ", ".join(f"{format_declared_value(name)} in {n} rows" for n, name in columns[:_NAMED])
    if len(columns) > _NAMED:
        return f"{named}, and {len(columns) - _NAMED} more columns"
    return named


@dataclass(frozen=True)
class Schema:
    """Declared public facts, and the encoding that follows from them.

    The features of a row are the concatenated blocks, each times its weight, and a constant
    `intercept`.  A block has norm at most its weight, so the row, divided by ``sqrt(intercept^2 +
    sum of weight^2)``, has norm at most 1 whatever the raw values are.  A row that is longer,
    because of a number beyond its typical range, is divided by its own norm.

    Parameters
    ----------
    name : str
        For messages and records.
    blocks : tuple of Block
        `Bins`, `Category`, `Number`, `Vector`, and what :mod:`sottovoce.data.curved` adds; features
        come in this order.
    label : Label, ClassLabel, NumberLabel, EventLabel or CountLabel, optional
        Needed to encode labels only: two classes, several, a bounded number, or events.
    intercept : float
        Value of the constant last feature before the division; 0 for none.
    ignore : tuple of str
        Columns that a table may have but the schema does not read; ``"*"`` stands for all
        undeclared columns.
    site : str, optional
        The column that says which site holds a row; never a feature.
    na : tuple of str
        Marks of missing values besides the empty field.
    scale : float, optional
        Another divisor, at most `bound`; longer rows are shrunk to norm 1 and counted under
        ``"(row)"``.  Noise is sized for rows of norm 1, so the norm of a typical row is a good
        divisor.
    data_dependent : bool
        Whether some of the facts were computed from the rows.  No guarantee covers that, so every
        statement about such rows carries :attr:`caveat`.
    note : str
        One line for reports.
    unit : bool
        Divide each row by its own norm, the constant included; a row of zeros stays zero.
    weight : CaseWeight, optional
        The column of sample weights, with its public cap.
    class_weight : tuple of (str, float)
        Public weights of classes; 1 for the others.
    person : Person, optional
        The column that says whose row it is: a person's rows at a site are bounded together; never
        a feature.
    survey : str
        What the survey of rows cost from which some of the facts were proposed; part of
        :attr:`caveat`.

    Guarantee
    ---------
    Every row that `encode` returns has Euclidean norm at most 1, for every table, also in
    floating-point arithmetic.

    Examples
    --------
    >>> schema = Schema.from_dict({"columns": {"age": {"kind": "number", "lo": 0, "hi": 120}}})
    >>> schema.encode({"age": np.array([30, 150])}, labels=False).X
    array([[-0.5],
           [ 1. ]])
    """

    name: str = field(metadata=constraint_metadata(Text(), remedy="give it a name"))
    blocks: tuple[Block, ...]
    label: AnyLabel | None = None
    intercept: float = constrained_field(0.0, Interval(0, MOST_WEIGHT), remedy="use true or false")
    ignore: tuple[str, ...] = constrained_field((), Each(Text()), remedy="list names of columns")
    site: str | None = constrained_field(
        None, optional_constraint(Text()), remedy="give the name of a column"
    )
    na: tuple[str, ...] = constrained_field((), Each(Text()), remedy="list texts")
    scale: float | None = constrained_field(
        None, optional_constraint(Interval()), remedy="leave it out"
    )
    data_dependent: bool = constrained_field(False, Flag())
    note: str = constrained_field("", Text())
    unit: bool = constrained_field(False, Flag())
    weight: CaseWeight | None = None
    class_weight: tuple[tuple[str, float], ...] = constrained_field(
        (),
        Instance(
            tuple, "a table of classes and numbers: 'balanced' would read counts off private rows"
        ),
        remedy="give public numbers, such as {died = 5}",
    )
    person: Person | None = None
    survey: str = constrained_field("", Text())

    def __post_init__(self) -> None:
        validate_fields_and_rules(self, error=SchemaError)
        if not self.blocks:
            raise SchemaError(
                "columns", None, "must declare at least one column", f"for example: {EXAMPLE}"
            )
        check_number_of_features("columns", self.n_features)
        validate_fields_and_rules(self, RULES, error=SchemaError)

    def reserved_columns(self) -> dict[str, str]:
        """Return the columns that are read but are no feature, each with its role."""
        declared = {"label": self.label, "weight": self.weight, "person": self.person}
        reserved = {one.column: use for use, one in declared.items() if one is not None}
        if isinstance(self.label, RateLabel):
            reserved = self.label.further_columns | reserved
        if self.site is None:
            return reserved
        return {self.site: "site"} | reserved

    @property
    def task(self) -> Task:
        """The learning task that the label declares; two classes, -1 and 1, if none is."""
        if self.label is None:
            return TwoClasses()
        return self.label.task

    @property
    def caveat(self) -> str | None:
        """The caveat that every privacy statement about such rows must carry, or None."""
        caveats = []
        if self.data_dependent:
            caveats.append(FROM_ROWS)
        if self.survey:
            caveats.append(f"{SURVEYED}: {self.survey}")
        return "; ".join(caveats) or None

    @property
    def weighs(self) -> bool:
        """Whether rows have sample weights: of a weight column, of their classes, or both."""
        return bool(self.weight or self.class_weight)

    @property
    def bound(self) -> float:
        """Largest possible norm of a row before the division."""
        blocks = sum((block.weight * block.reach) ** 2 for block in self.blocks)
        return math.sqrt(self.intercept**2 + blocks)

    @property
    def divisor(self) -> float:
        """The number that rows are divided by, unless they are longer or `unit` is set.

        It is `scale` if that is declared, and otherwise the norm of a row whose blocks all reach
        their span.
        """
        if self.scale is not None:
            return self.scale
        blocks = sum((block.weight * block.span) ** 2 for block in self.blocks)
        return math.sqrt(self.intercept**2 + blocks)

    @property
    def shortens(self) -> bool:
        """Whether rows may be longer than the divisor, and are then clipped; true of unit rows."""
        return (
            self.unit
            or self.scale is not None
            or any(block.reach > block.span for block in self.blocks)
        )

    @property
    def feature_names(self) -> list[str]:
        """Names of the features, in order."""
        names = [name for block in self.blocks for name in block.feature_names]
        if self.intercept > 0:
            names.append("intercept")
        return names

    @property
    def n_features(self) -> int:
        """Number of features d."""
        n_constants = int(self.intercept > 0)
        return sum(len(block.feature_names) for block in self.blocks) + n_constants

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical JSON form: equal for equal encodings, the order of features
        included.
        """
        facts = {key: value for key, value in self.to_dict().items() if key not in ("name", "note")}
        facts["features"] = self.feature_names
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def encode(self, table: Any, *, labels: bool = True, whole: bool = False) -> Encoded:
        """Map raw rows into the unit ball.

        Parameters
        ----------
        table : Table, mapping of str to array, or frame of pandas, polars or pyarrow
            The raw columns, each of shape (n,), or (n, width) for a vector.  In a frame a NaN is a
            missing value.
        labels : bool
            With False (for prediction) the label and site columns may be absent and are not read.
        whole : bool
            Leave rows longer than the divisor as they are, outside the unit ball: for
            :class:`sottovoce.problem.weighted_loss.Weighted` losses alone.

        Returns
        -------
        Encoded
            Rows (n, d) of norm at most 1 (unless `whole`), with labels and sample weights (n,), and
            exact counts of rows that did not fit, for the holder of the data only.

        Raises
        ------
        SchemaError
            If columns or values do not fit the declarations.  No data value is shown.
        InvalidInput
            If `table` is no table of columns of one length, or memory does not hold the encoded
            rows.
        """
        table = (
            table_from_columns(table) if isinstance(table, Table | Mapping) else read_frame(table)
        )
        errors = errors_of_columns(self, table.columns, labels)
        if errors:
            raise errors[0]
        check_memory_fits(table.name, 8.0 * table.n_rows * self.n_features)
        na = frozenset(self.na)
        clipped = dict[str, int]()

        def features_of(block: Block) -> Array:
            features, outside = block.encode(table.columns, na)
            clipped.update(count_unfit_rows(block, outside, table.columns, na))
            return features

        X = assemble_weighted_features(self, table.n_rows, features_of)
        if whole:
            X, beyond = X / (self.divisor * self.slack), 0
        else:
            X, beyond = divide_into_unit_ball(self, X)
        if beyond:
            clipped[ROW] = beyond
        if not labels:
            return Encoded(X, None, clipped)
        y, beyond_bounds = _encode_labels(self, table.columns)
        undeclared = ~self.task.has_known_label(y)
        # Which labels occur is private, so such a row is not refused: it becomes a row of zeros,
        # which counts in n and adds nothing to a gradient.
        X[undeclared] = 0.0
        if undeclared.any():
            clipped[LABEL] = int(undeclared.sum())
        if beyond_bounds:
            clipped[BEYOND] = beyond_bounds
        if not self.weighs:
            return Encoded(X, y, clipped)
        weight, heavy = _encode_sample_weights(self, table.columns, y)
        if heavy:
            clipped[HEAVY] = heavy
        return Encoded(X, y, clipped, weight)

    @property
    def slack(self) -> float:
        """A factor above 1 that covers the rounding of norms, divisions and sums over d entries.

        With it no test for norm <= 1 can fail.
        """
        return 1 + max(1e-12, 4 * self.n_features * float(np.finfo(float).eps))

    @classmethod
    def from_toml(cls, path: str | Path) -> Schema:
        """Read a schema file; a SchemaError if it is none."""
        path = Path(path)
        text = read_bounded_text("schema", path)
        try:
            given = parse_bounded_toml(text)
        except ValueError as error:
            raise SchemaError(
                "schema", path, f"must be TOML: {error}", f"for example: {EXAMPLE}"
            ) from None
        return cls.from_dict({"name": path.stem} | given)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Schema:
        """Build a schema from the entries of a schema file; the inverse of `to_dict`."""
        if not isinstance(given, Mapping):
            raise SchemaError("schema", type(given), "must be a mapping", f"for example: {EXAMPLE}")
        entries = dict(given)
        columns = entries.pop("columns", {})
        label = entries.pop("label", None)
        offset = entries.pop("offset", None)
        entries = _read_nested_tables(entries)
        _check_schema_keys(entries, columns)
        for key in ("ignore", "na"):
            if isinstance(entries.get(key), list | tuple):
                entries[key] = texts_from_entries(key, entries[key])
        intercept = entries.get("intercept")
        # What is neither a number nor a truth value stays as it is, for `validate_fields_and_rules`
        # to refuse.
        if real_number_or_none(intercept) is not None or isinstance(intercept, bool):
            entries["intercept"] = float(entries["intercept"])
        entries = {"name": "schema"} | entries
        read_label = label_from_entry(label, offset)
        return cls(**entries, blocks=blocks_from_entries(columns), label=read_label)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data of JSON and TOML types; `from_dict` is the inverse."""
        entries: dict[str, Any] = {"name": self.name, "intercept": self.intercept}
        for key in ("ignore", "na"):
            values = getattr(self, key)
            if values:
                entries[key] = list(values)
        for key in ("site", "scale", "unit", "data_dependent", "note", "survey"):
            value = getattr(self, key)
            if value:
                entries[key] = value
        if self.label is not None:
            entries["label"] = label_to_entries(self.label)
            offset = offset_to_entries(self.label)
            if offset is not None:
                entries["offset"] = offset
        if self.person is not None:
            entries["person"] = self.person.to_entry()
        if self.weight is not None:
            entries["weight"] = dataclasses.asdict(self.weight)
        if self.class_weight:
            entries["class_weight"] = dict(self.class_weight)
        return entries | {"columns": {block.name: block_to_dict(block) for block in self.blocks}}


def errors_of_columns(
    schema: Schema, columns: Mapping[str, Column], labels: bool = True
) -> list[SchemaError]:
    """Return errors for declared columns that a table lacks, or else for undeclared ones.

    Undeclared columns are reported only where no declared one is missing: the names in the table
    might otherwise be the first row of a file without a header.

    Parameters
    ----------
    schema : Schema
    columns : mapping of str to column
        Of the table.
    labels : bool
        With False, columns that are no features may be absent.

    Returns
    -------
    list of SchemaError
        Empty if the columns fit.
    """
    sources = {source for block in schema.blocks for source in block.source_columns(columns)}
    roles = list(schema.reserved_columns())
    # Declared columns first: when all of them are there, the names in the table are names and not
    # the first row of a file without a header, so only then may an unknown one be shown.
    wanted = sorted(sources)
    if labels:
        wanted += roles
    lost = [name for name in wanted if name not in columns]
    if lost:
        return [_missing_column_error(schema, name, columns) for name in lost]
    return _undeclared_column_errors(schema, columns, sources | set(roles))


def _missing_column_error(schema: Schema, name: str, columns: Mapping[str, Column]) -> SchemaError:
    """Return the error for a declared column that the table lacks."""
    rule = f"the schema {schema.name!r} declares this column and the table does not have it"
    remedy = "add the column, or remove its declaration; a CSV file needs a header row"
    if name.strip().casefold() in {written.strip().casefold() for written in columns}:
        remedy = (
            "write the column name as the schema does: "
            "the table's name differs in upper or lower case"
        )
    return SchemaError(name, None, rule, remedy)


def _undeclared_column_errors(
    schema: Schema, columns: Mapping[str, Column], declared: set[str]
) -> list[SchemaError]:
    """Return the errors for columns of the table that the schema neither declares nor ignores."""
    if "*" in schema.ignore:
        return []
    rule = f"the schema {schema.name!r} does not declare this column of the table"
    remedy = 'declare it under [columns.{0}], or write ignore = ["{0}"], or ["*"] for all'
    known = declared | set(schema.ignore)
    return [
        SchemaError(name, None, rule, remedy.format(name)) for name in columns if name not in known
    ]


def assemble_weighted_features(
    schema: Schema, n: int, features_of: Callable[[Block], Array]
) -> Array:
    """Assemble the features of all blocks, each times its weight, before rows are divided.

    Parameters
    ----------
    schema : Schema
    n : int
        Number of rows.
    features_of : callable
        Gives the features (n, m) of a block that reads raw columns.  Blocks that are derived from
        others are computed from these.

    Returns
    -------
    ndarray of shape (n, d)
        Rows of any norm up to :attr:`Schema.bound`, the constant last.
    """
    X = np.empty((n, schema.n_features))
    features = dict[str, Array]()
    derived = [block for block in schema.blocks if isinstance(block, Derived)]
    bases = {one.name for block in derived for one in block.of}
    start = 0
    for block in schema.blocks:
        end = start + len(block.feature_names)
        if not isinstance(block, Derived):
            found = features_of(block)
            X[:, start:end] = block.weight * found
            if block.name in bases:
                features[block.name] = found
        start = end
    X[:, start:] = schema.intercept
    # Derived blocks come second: they may stand before the blocks that they are made from.
    start = 0
    for block in schema.blocks:
        end = start + len(block.feature_names)
        if isinstance(block, Derived):
            X[:, start:end] = block.weight * block.derive_features(
                [features[one.name] for one in block.of]
            )
        start = end
    return X


def divide_into_unit_ball(schema: Schema, X: Array) -> tuple[Array, int]:
    """Divide rows of weighted features (n, d) into the unit ball, in place.

    Also returns the number of rows longer than the divisor.

    Guarantee
    ---------
    Every row that is returned has Euclidean norm at most 1, also in floating-point arithmetic:
    divisors are larger than the norms by the factor :attr:`Schema.slack`.
    """
    slack = schema.slack
    if schema.unit:
        X = unit_rows(X)
        X /= slack
        return X, 0
    if not schema.shortens:
        X /= schema.divisor * slack
        return X, 0
    norms = row_norms(X)
    divisor = schema.divisor
    X /= np.maximum(norms, divisor)[:, None] * slack
    # Rows at the divisor itself may be longer by rounding; only longer ones count as clipped.
    return X, int(np.sum(norms > divisor * slack))


def _encode_labels(schema: Schema, columns: Mapping[str, Column]) -> tuple[Array, int]:
    """Return the encoded labels (n,), and how many numbers were clipped to their bounds."""
    if schema.label is None:
        remedy = 'add label = {column = "NAME", positive = "VALUE"}'
        raise SchemaError("label", None, f"the schema {schema.name!r} declares no label", remedy)
    read = [schema.label.column]
    if isinstance(schema.label, RateLabel):
        read += schema.label.further_columns
    for name in read:
        if columns[name].ndim != 1:
            raise InvalidInput(name, None, "must be one value a row", "give a 1-D label column")
    if isinstance(schema.label, RateLabel):
        labels = schema.label.encode_columns(columns, schema.na)
        return labels, int(schema.label.clipped_columns(columns, schema.na).sum())
    column = columns[schema.label.column]
    labels = schema.label.encode(column, schema.na)
    outside = schema.label.clipped_labels(column, schema.na)
    return labels, int(outside.sum())


def _encode_sample_weights(
    schema: Schema, columns: Mapping[str, Column], y: Array
) -> tuple[Array, int]:
    """Return the sample weights (n,) in [0, 1], and how many were lowered to their cap.

    `y` are the encoded labels (n,): a row's weight is multiplied by the public one of its class.
    """
    weight, heavy = np.ones(len(y)), 0
    if schema.weight is not None:
        weight, heavy = schema.weight.encode_weights(
            columns[schema.weight.column], frozenset(schema.na)
        )
    if schema.class_weight and isinstance(schema.task, Classification):
        own = shares_of_classes("class_weight", dict(schema.class_weight), schema.task.names)
        # An undeclared label has a negative number.  Its row is zeros, whatever the row weighs.
        weight = weight * own[np.maximum(schema.task.number(y), 0)]
    return weight, heavy


def _read_nested_tables(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a schema file, with the tables `weight`, `person` and `class_weight`
    as the objects that they declare.
    """
    read = dict(entries)
    if "weight" in entries:
        read["weight"] = CaseWeight.case_weight_from_entry(entries["weight"])
    if "person" in entries:
        read["person"] = Person.person_from_entry(entries["person"])
    if isinstance(entries.get("class_weight"), Mapping):
        # Sorted, so that schemas are equal whatever the order in their files.
        pairs = ((value_as_text(name), weight) for name, weight in entries["class_weight"].items())
        read["class_weight"] = tuple(sorted(pairs))
    return read


def _check_schema_keys(entries: Mapping[str, Any], columns: object) -> None:
    """Refuse entries that no schema has, and columns that are no tables."""
    for key in entries:
        if key not in KEYS:
            rule = f"is unknown; a schema knows {', '.join(KEYS)}"
            raise SchemaError(key, None, rule, suggest_spelling(key, KEYS) or "remove it")
    if not isinstance(columns, Mapping) or not all(
        isinstance(block, Mapping) for block in columns.values()
    ):
        raise SchemaError(
            "columns", None, "must be tables [columns.NAME]", f"for example: {EXAMPLE}"
        )


def texts_from_entries(key: str, values: Iterable[object]) -> tuple[str, ...]:
    """Convert declared texts, numbers and truth values to texts.

    A SchemaError for a table or list among them.
    """
    try:
        return tuple(map(declared_text, values))
    except TypeError:
        raise SchemaError(key, None, "must be a list of texts", "correct the declaration") from None


def check_block_names(schema: Schema) -> Iterator[InvalidInput]:
    """Every block must have a name of its own."""
    if len({block.name for block in schema.blocks}) != len(schema.blocks):
        yield SchemaError("columns", None, "every block must have its own name", "rename one")


def check_block_weights(schema: Schema) -> Iterator[InvalidInput]:
    """Weights of blocks, by which their features are multiplied, must be within bounds."""
    for block in schema.blocks:
        if not LEAST_WEIGHT <= block.weight <= MOST_WEIGHT:
            rule = "must be from 1e-6 to 1e6"
            yield SchemaError(
                f"{block.name}.weight", block.weight, rule, "leave it out for a weight of 1"
            )


def check_derived_sources(schema: Schema) -> Iterator[InvalidInput]:
    """Blocks that derived blocks are made from must be in the schema."""
    derived = [block for block in schema.blocks if isinstance(block, Derived)]
    for block in derived:
        for source in block.of:
            if source not in schema.blocks:
                yield SchemaError(
                    f"{block.name}.of", source.name, "must be a column of this schema", "add it"
                )


def check_intercept_size(schema: Schema) -> Iterator[InvalidInput]:
    """The constant feature must be 0, or within the bounds of the weights of blocks."""
    if 0 < schema.intercept < LEAST_WEIGHT:
        yield SchemaError(
            "intercept", schema.intercept, "must be 0 or from 1e-6 to 1e6", "use true or false"
        )


def check_row_divisor(schema: Schema) -> Iterator[InvalidInput]:
    """A declared divisor must be at most the bound by construction.

    A larger one would only add noise.  With unit rows it has no meaning.
    """
    if schema.scale is None:
        return
    if not LEAST_WEIGHT <= schema.scale <= schema.bound:
        rule = f"must be positive and at most {schema.bound:.6g}, {LARGEST_NORM}"
        yield SchemaError("scale", schema.scale, rule, "lower it or leave it out")
    if schema.unit:
        yield SchemaError(
            "scale", schema.scale, "cannot be combined with unit rows", "leave out scale or unit"
        )


def check_class_weights(schema: Schema) -> Iterator[InvalidInput]:
    """Weights of classes must be of declared classes."""
    if not schema.class_weight:
        return
    try:
        shares_of_classes("class_weight", dict(schema.class_weight), schema.task.names)
    except InvalidInput as wrong:
        yield wrong


def check_person_column(schema: Schema) -> Iterator[InvalidInput]:
    """The person's column must not be the label or the weight too."""
    if schema.person is None:
        return
    others = [one.column for one in (schema.label, schema.weight) if one is not None]
    if schema.person.column in others:
        rule = "is the person column and cannot be the label or weight"
        yield SchemaError(schema.person.column, None, rule, "name a column of identifiers")


def check_feature_columns(schema: Schema) -> Iterator[InvalidInput]:
    """No feature may be read from the label, site, person or weight column."""
    reserved = schema.reserved_columns()
    for block in schema.blocks:
        for source in block.source_columns({}):
            if source in reserved:
                rule = f"is the {reserved[source]} column and cannot be a feature"
                yield SchemaError(source, None, rule, "remove it from one of the two")


RULES: tuple[Rule, ...] = (
    check_block_names,
    check_block_weights,
    check_derived_sources,
    check_intercept_size,
    check_row_divisor,
    check_class_weights,
    check_person_column,
    check_feature_columns,
)
"""Checks of several entries of a schema together; single entries are checked beside the fields."""

KEYS = (
    "columns",
    "label",
    "offset",
    *(field.name for field in dataclasses.fields(Schema) if field.name not in ("blocks", "label")),
)
"""Entries of a schema file."""


def count_unfit_rows(
    block: Block, outside: BoolArray, columns: Mapping[str, Column], na: frozenset[str]
) -> dict[str, int]:
    """Count the rows that do not fit a block; a category's unlisted and missing values separately.

    Parameters
    ----------
    block : Block
    outside : ndarray of bool, shape (n,)
        Rows that the block's encoding clipped, or encoded as zeros.
    columns : mapping of str to column
        Of the table, each with n rows.
    na : frozenset of str
        Declared marks of missing values.

    Returns
    -------
    dict of str to int
        Entries of :attr:`Encoded.clipped`: positive counts only.
    """
    if not isinstance(block, Category):
        counts = {block.name: outside}
    elif block.other or outside.any():
        unlisted, missing = block.unlisted_and_missing(columns, na)
        key = OTHER + block.name if block.other else block.name
        # A missing value is outside only where no level and no other value stands for it.
        counts = {key: unlisted, ABSENT + block.name: missing & outside}
    else:
        # Without `other`, every unlisted value is marked in `outside`, and here no row is.
        return {}
    return {name: int(mask.sum()) for name, mask in counts.items() if mask.any()}
