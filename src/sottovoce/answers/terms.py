"""Names and units of coefficients: from encoded columns back to the user's columns.

A *term* names one line of a table of coefficients: a number's column, a level of a column against
its reference level, or a constant.  A :class:`Naming` is an encoding of rows together with the
terms of its coefficients and the linear map to the user's units.  Intervals need an encoding with a
constant and a reference level in every *block* (a column's declaration with its features);
:func:`naming_from_schema` derives it from a schema, :func:`naming_from_columns` without one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..data.columns import Bins, Block, Category, Number
from ..data.dates import Date
from ..data.expected import MANY, share_of_long_rows
from ..data.rows import Rows
from ..data.schema import Schema
from ..data.table import Table
from ..errors import InvalidInput
from ..problem.task import TwoClasses
from ..util.typing import Any, Array, IntArray

CONSTANT = "(constant)"
# Keeps rounding from carrying a row of norm 1 outside the unit ball.
_SLACK = 1.0 + 1e-12
# Numbers are clipped to this size, so that no overflow reveals a long row.
_FAR = 1e300
SHARE = 0.25
"""The constant's share of the squared norm of a row of numbers: columns with less of it have
more noise.
"""
# Norm of the columns of a row of numbers of norm `data_norm`; the constant has the rest.
_COLUMNS = math.sqrt(1.0 - SHARE) / _SLACK
# data_norm over the root mean square norm of synthetic rows of numbers.
_SPREAD = 1.35


@dataclass(frozen=True)
class Term:
    """Name of one line of a table of coefficients."""

    name: str  # of the column
    level: str | None = None  # of the column; the site, for a site's constant; None for a number
    reference: str | None = None  # level to which it is compared
    unit: str | None = None  # of a number's coefficient, if it is not one of the column's own unit
    typical: tuple[float, float] | None = None  # declared range of most values of a number
    steps: float = 1.0  # length of that range, in the coefficient's unit

    @property
    def text(self) -> str:
        """The name on one line: "age", or "ward: icu" for a level."""
        if self.level is None:
            return self.name
        return f"{self.name}: {self.level}"


@dataclass(frozen=True)
class Naming:
    """An encoding with the names and units of its coefficients.

    Encoded columns are the features of the schema's blocks in their order, then the constant, or
    one constant for every site; d counts them all.

    Parameters
    ----------
    terms : tuple of Term
        One for each encoded column.
    into_units : array (terms, d)
        Linear map from coefficients of encoded columns to those of `terms`, in the user's units.
    constant : array (d,)
        1 in the columns that hold constants: one, or one for every site.
    value : float
        Entry of a row in its constant column.
    long : bool
        Whether rows may have a norm above 1; they then get smaller weights.
    schema : Schema, optional
        None for columns of numbers, divided by `data_norm`.
    sites : tuple of str
        Names of the sites, if each has a constant of its own.
    data_norm : float
        Without a schema, the norm that most rows do not exceed.
    """

    terms: tuple[Term, ...]
    into_units: Array
    constant: Array
    value: float
    long: bool
    schema: Schema | None = None
    sites: tuple[str, ...] = ()
    data_norm: float = 1.0

    @property
    def d(self) -> int:
        """Number of encoded columns."""
        return len(self.constant)

    @property
    def marks(self) -> Array:
        """Entry of each level's column in rows of that level; 0 for other columns, (d,).

        A level's coefficient in user's units is this entry times that of the encoded column.
        """
        marks = np.diag(self.into_units).copy()
        marks[[term.reference is None for term in self.terms]] = 0.0
        return marks

    @property
    def numbers(self) -> int:
        """Number of columns that are numbers."""
        if self.schema is None:
            return self.d - max(1, len(self.sites))
        return sum(isinstance(block, Number) for block in self.schema.blocks)

    @property
    def blocks(self) -> Array:
        """Number, from 1, of the block of each level's column, (d,); 0 for other columns."""
        names = list(dict.fromkeys(t.name for t in self.terms if t.reference is not None))
        numbers = np.zeros(len(self.terms))
        for place, term in enumerate(self.terms):
            if term.reference is not None:
                numbers[place] = 1.0 + names.index(term.name)
        return numbers

    @property
    def encoded_bounds(self) -> Array:
        """Declared bounds of the numbers' columns, encoded; NaN for other columns, (d, 2)."""
        found = np.full((self.d, 2), np.nan)
        if self.schema is None:
            return found
        diagonal, shift = np.diag(self.into_units), self.into_units[-1]
        column = 0
        for block in self.schema.blocks:
            if isinstance(block, Number):
                bounds = np.array([block.lo, block.hi])
                if block.transform is not None:
                    bounds = np.log1p(bounds)
                found[column] = bounds * diagonal[column] + shift[column]
            column += len(block.feature_names)
        return found

    @property
    def weighed(self) -> str:
        """Sentence on the smaller weight of rows of norm above 1; empty if there are none."""
        if not self.long:
            return ""
        scale, many = "data_norm", ""
        if self.schema is not None:
            scale = "the schema's scale"
            share = share_of_long_rows(self.schema)
            if share >= MANY:
                many = f" (about {share:.0%} of all, from the schema alone)"
        return (
            f"Rows longer than {scale}{many} count for less: unless the model is right, these are "
            "the coefficients of "
            "rows so weighted, not of all rows alike."
        )

    @property
    def clusters(self) -> str:
        """Sentence on the independence that intervals assume of rows of a site.

        Empty if sites have no constants of their own.
        """
        if not self.sites:
            return ""
        return (
            "Intervals take rows as independent, but for the constant of their site: where rows "
            "of a ward or a family "
            "are alike beyond that, intervals are too narrow."
        )

    def with_one_constant(self) -> Naming:
        """Return the encoding with one constant in place of each site's own."""
        if not self.sites:
            return self
        k = self.d - len(self.sites)
        return dataclasses.replace(
            self,
            terms=(*self.terms[:k], Term(CONSTANT)),
            into_units=self.into_units[: k + 1, : k + 1],
            constant=np.eye(k + 1)[-1],
            sites=(),
        )

    def encode_with_one_constant(self, table: Any) -> Array:
        """Encode rows as if all sites shared one constant, the last column: (n, columns + 1)."""
        if self.schema is not None:
            return self.schema.encode(table, labels=False, whole=True).X
        with np.errstate(over="ignore"):
            X = np.asarray(table, dtype=float) / (self.data_norm / _COLUMNS)
        # Overflow means a long row; a refusal would reveal it, so its entries are clipped.
        X = np.clip(X, -_FAR, _FAR)
        return np.hstack([X, np.full((len(X), 1), self.value)])

    def encode_rows(self, table: Any, site: int | None = None) -> Array:
        """Encode rows, (n, d), with the constant of the site of index `site`.

        Where sites have constants and `site` is None, all of these are 0.
        """
        X = self.encode_with_one_constant(table)
        if not self.sites:
            return X
        own = np.zeros((len(X), len(self.sites)))
        if site is not None:
            own[:, site] = self.value
        return np.hstack([X[:, :-1], own])

    def rows_of_sites(self, parts: Sequence[tuple[Any, Array]], first: int = 0) -> Rows:
        """Encode the rows of the sites from number `first` on.

        `parts` are each site's table and labels (n_i,): 1 or -1, or 0 for none, which makes a row
        of zeros.
        """
        encoded = [
            (self.encode_rows(table, i) * np.abs(y)[:, None], y)
            for i, (table, y) in enumerate(parts, first)
        ]
        if self.long:
            return Rows.build_with_any_norm(encoded)
        return Rows.build_from_parts(encoded)


def typical_entry(columns: int) -> float:
    """Return the root mean square entry of an encoded column, for numbers without a schema.

    `columns` is their number; most rows are taken to have norm `data_norm` at most.
    """
    return _COLUMNS / (_SPREAD * math.sqrt(max(1, columns)))


def naming_from_columns(
    names: Sequence[str], data_norm: float, sites: Sequence[str] = ()
) -> Naming:
    """Construct the encoding of numbers without a schema: scaled columns and a constant.

    Parameters
    ----------
    names : sequence of str
        Names of the columns.
    data_norm : float
        Norm that most rows do not exceed; longer ones are weighted down.
    sites : sequence of str
        Names of the sites with a constant of their own; empty for one constant.

    Returns
    -------
    Naming

    Raises
    ------
    InvalidInput
        If `data_norm` is not finite and positive.
    """
    if not (math.isfinite(data_norm) and data_norm > 0):
        raise InvalidInput(
            "data_norm",
            data_norm,
            "must be finite and > 0",
            "declare a public bound on a row's norm",
        )
    d, scale = len(names), _COLUMNS / data_norm
    value = math.sqrt(SHARE) / _SLACK
    M = np.diag([*([scale] * d), value])
    terms = (*(Term(str(name)) for name in names), Term(CONSTANT))
    return _with_site_constants(
        Naming(terms, M, np.eye(d + 1)[-1], value, True, data_norm=data_norm), sites
    )


def naming_from_schema(schema: Schema, sites: Sequence[str] = ()) -> Naming:
    """Construct the encoding of a schema, with reference levels and a constant.

    The reference of a block is the declared one (`base`), or its first level.

    Raises
    ------
    InvalidInput
        For unit rows, vectors and curved features, which have no coefficients in the user's units.
    """
    if schema.unit:
        rule = "rows of unit norm have no coefficients in the columns' units"
        raise InvalidInput("unit", True, rule, "leave unit out of the schema")
    blocks = tuple(_with_reference_level(block) for block in schema.blocks)
    based = dataclasses.replace(schema, blocks=blocks, intercept=1.0, scale=None)
    if schema.scale is not None:
        based = dataclasses.replace(based, scale=min(schema.scale, based.bound))
    value = 1.0 / (based.divisor * based.slack)
    terms: list[Term] = []
    for block in based.blocks:
        if isinstance(block, Number):
            terms += _terms_of_number(block)
        else:
            levels, reference = _levels_and_reference(block)
            terms += [Term(block.name, level, reference) for level in levels]
    M = into_units(based)
    long = based.bound > based.divisor * (1.0 + 1e-9)
    naming = Naming((*terms, Term(CONSTANT)), M, np.eye(based.n_features)[-1], value, long, based)
    return _with_site_constants(naming, sites)


def _terms_of_number(block: Number) -> list[Term]:
    """Return the terms of a number, and of its indicator of missing values if it has one."""
    unit = None
    if isinstance(block, Date):
        unit = f"{block.name}, in {block.unit} since {block.epoch}"
    elif block.transform is not None:
        unit = f"{block.transform}({block.name})"
    steps = 1.0
    if block.typical is not None:
        low, high = block.mapped_range
        steps = high - low
    terms = [Term(block.name, unit=unit, typical=block.typical, steps=steps)]
    if block.indicator:
        terms.append(Term(block.name, "missing", f"known to be {block.missing:g}"))
    return terms


def into_units(schema: Schema) -> Array:
    """Return the linear map from a model of encoded rows to coefficients in the columns' units.

    Parameters
    ----------
    schema : Schema

    Returns
    -------
    array (features + 1, d)
        The last row gives the constant.  A level's coefficient is for a row of that level, a
        number's for one more of its unit (after any transform), an indicator's for a missing value.
        Under a schema of unit rows there are no such units, and coefficients are those of the
        encoded row.
    """
    norm = 1.0
    if not schema.unit:
        norm = schema.divisor * schema.slack
    entries: list[float] = []
    shift = np.zeros(schema.n_features)
    for block in schema.blocks:
        scale = block.weight / norm
        if not isinstance(block, Number) or schema.unit:
            entries += [scale] * len(block.feature_names)
            continue
        a, b = block.mapped_range
        # A number in [a, b] becomes scale (x - a) / (b - a), or one from -scale to scale.
        if block.to == "[0,1]":
            per_unit = 1.0 / (b - a) * scale
            shift[len(entries)] = -a * per_unit
        else:
            per_unit = 2.0 / (b - a) * scale
            shift[len(entries)] = -a * per_unit - scale
        entries.append(per_unit)
        if block.indicator:
            entries.append(scale * block.indicator_value)
    found = np.zeros((len(entries) + 1, schema.n_features))
    np.fill_diagonal(found[:-1], entries)
    if schema.intercept:
        shift[-1] = schema.intercept / norm
    found[-1] = shift
    return found


def naming_from_any(
    schema: Schema | None, columns: Sequence[str], data_norm: float, sites: Sequence[str]
) -> Naming:
    """Construct the encoding of a schema, or of numbers without one.

    Parameters
    ----------
    schema : Schema or None
    columns : sequence of str
        Names of the numbers' columns; used without a schema only.
    data_norm : float
        As for :func:`naming_from_columns`; used without a schema only.
    sites : sequence of str
        Names of the sites with a constant of their own; empty for one constant.

    Returns
    -------
    Naming

    Raises
    ------
    InvalidInput
        As :func:`naming_from_columns` and :func:`naming_from_schema`.
    """
    if schema is None:
        return naming_from_columns(columns, data_norm, sites)
    return naming_from_schema(schema, sites)


def _with_site_constants(naming: Naming, sites: Sequence[str]) -> Naming:
    """Return the naming with a constant for every site in place of its last column, if any."""
    if not sites:
        return naming
    d, N = naming.d - 1, len(sites)
    M = np.zeros((d + N, d + N))
    M[:d, :d] = naming.into_units[:d, :d]
    M[d:, :d] = naming.into_units[-1, :d]
    M[d:, d:] = naming.value * np.eye(N)
    terms = (*naming.terms[:-1], *(Term(CONSTANT, str(site)) for site in sites))
    constant = np.concatenate([np.zeros(d), np.ones(N)])
    return dataclasses.replace(
        naming, terms=terms, into_units=M, constant=constant, sites=tuple(map(str, sites))
    )


def _with_reference_level(block: Block) -> Block:
    """Return the block with a reference level: the declared one, or the first."""
    if isinstance(block, Number):
        return block
    if isinstance(block, Bins):
        if block.base is None:
            return dataclasses.replace(block, base=0)
        return block
    if isinstance(block, Category):
        if block.base is None:
            return dataclasses.replace(block, base=block.values[0][0])
        return block
    rule = f"features of kind {block.kind!r} have no coefficients in the columns' units"
    remedy = "train without inference; for a number, name a loss such as huber-residual:0.25"
    raise InvalidInput(block.name, None, rule, remedy)


def _levels_and_reference(block: Block) -> tuple[list[str], str]:
    """Return the names of the levels with a column, and of the reference."""
    if isinstance(block, Category):
        return [name.removeprefix(f"{block.name}=") for name in block.feature_names], str(
            block.base
        )
    assert isinstance(block, Bins)
    every = dataclasses.replace(block, base=None).feature_names
    assert block.base is not None
    # Names of bins are such as "age[20,30)", and that of missing values is "age=missing".
    levels = [name.removeprefix(block.name).removeprefix("=") for name in block.feature_names]
    return levels, every[block.base].removeprefix(block.name)


def name_of_reference(block: Bins | Category) -> str:
    """Return the name of a block's reference level, in the style of its other levels."""
    if isinstance(block, Category):
        return f"{block.name}={block.base}"
    assert block.base is not None
    return dataclasses.replace(block, base=None).feature_names[block.base]


def rows_of_columns(table: Table | Mapping[str, Any], part: IntArray) -> dict[str, Any]:
    """Return the rows of raw columns whose numbers are in `part`."""
    if isinstance(table, Table):
        table = table.columns
    return {name: values[part] for name, values in table.items()}


def label_in_words(schema: Schema | None) -> dict[str, str] | None:
    """Return the label's column and its positive class; None without a schema."""
    if schema is None or schema.label is None:
        return None
    plain = {"column": schema.label.column}
    if isinstance(schema.task, TwoClasses):
        plain["positive"] = schema.task.names[1]
    return plain
