"""Column blocks of a schema: each maps raw columns to a few features of Euclidean norm at most
`reach`.

The *reach* is the largest norm that the features of a block can have, the *span* the largest one
of values within their typical ranges.  Both are 1 for most kinds: a one-hot row has at most a
single 1; a number is clipped before it is scaled; a vector is divided by its own norm or by a
declared norm that is larger.  A number with a typical range may be larger than 1 beyond it, up to
its reach; :class:`sottovoce.data.schema.Schema` then clips the row.  Curved features and dates are
kinds of their own (:mod:`sottovoce.data.curved`, :mod:`sottovoce.data.dates`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import SchemaError
from ..util.typing import Array
from .entries import check_distinct_in_frames, convert_entry
from .meant import suggest_spelling
from .values import (
    MISSING,
    MISSING_MARKS,
    Column,
    Declared,
    column_as_numbers,
    mask_of_missing,
    value_as_number,
    value_as_text,
)

Mask = NDArray[np.bool_]
# Bounds beyond it would overflow when squared.
LIMIT = 1e100
# Smallest width of a typical range, as a share of the width of the bounds.
NARROWEST = 1e-6
# Smallest entry that an indicator of missing values may have: the value that replaces a missing
# one must leave it that much room in the unit ball.
_LEAST_MARK = 0.25
# Norms below it have lost digits to underflow.
_COARSE = 1e-290
# Largest number of features of a schema, or of synthetic rows.
MOST_FEATURES = 1_000_000


class Block(Protocol):
    """A column block: `Bins`, `Category`, `Number`, `Date`, `Vector`, or one of
    :mod:`sottovoce.data.curved`.

    `weight` multiplies its k features (n, k); `reach` is their largest norm before that.
    """

    kind: ClassVar[str]

    @property
    def name(self) -> str: ...
    @property
    def weight(self) -> float: ...
    @property
    def reach(self) -> float: ...
    @property
    def span(self) -> float:
        """Largest norm of the features of numbers within their typical ranges; 1 for a block of
        one column.
        """

    @property
    def feature_names(self) -> list[str]: ...
    def source_columns(self, columns: Mapping[str, Column]) -> tuple[str, ...]:
        """Return the raw columns to read, of a table with these."""

    def encode(self, columns: Mapping[str, Column], na: frozenset[str]) -> tuple[Array, Mask]:
        """Encode raw columns as features (n, k), with a mask of rows clipped to the declaration."""

    def draw_features(self, n: int, rng: np.random.Generator) -> Array:
        """Draw features (n, k) of synthetic rows, from the declaration alone.

        See :mod:`sottovoce.data.expected`.
        """


def _numbers_with_replacement(
    field: str, values: Column, na: frozenset[str], missing: float | None
) -> Array:
    return _replace_missing_values(field, *_read_as_numbers(field, values, na), missing)


def _read_as_numbers(field: str, values: Column, na: frozenset[str]) -> tuple[Array, Mask]:
    """Return a column's numbers, 0 where a value is missing, and the mask of missing values."""
    remedy = "repair the rows, or list the marks of missing values in na"
    if values.dtype.kind == "M":
        remedy = 'declare it with kind = "date"'
    try:
        return column_as_numbers(values, na)
    except ValueError as error:
        rule = f"every value must be a finite number, and some are {error}"
        raise SchemaError(field, None, rule, remedy) from None


def _replace_missing_values(
    field: str, numbers: Array, absent: Mask, missing: float | None
) -> Array:
    """Return numbers (n,) with `missing` where `absent`, or refuse missing values if it is None."""
    if not absent.any():
        return numbers
    if missing is None:
        rule = "has missing values, and the schema declares no replacement for them"
        raise SchemaError(field, None, rule, f"declare missing = VALUE under [columns.{field}]")
    return np.where(absent, missing, numbers)


def _one_dimensional_column(name: str, columns: Mapping[str, Column]) -> Column:
    if columns[name].ndim != 1:
        raise SchemaError(
            name, None, "must hold one value a row", 'declare it with kind = "vector"'
        )
    return columns[name]


def _name_of_missing_level(name: str) -> str:
    return f"{name}=missing"


def _check_missing_level(field: str, indicator: bool, missing: object) -> None:
    """Refuse a level of its own for missing values beside a value that replaces them."""
    if indicator and missing is not None:
        rule = (
            "makes a missing value a level of its own, so it cannot be combined with a fill value"
        )
        raise SchemaError(f"{field}.indicator", True, rule, "leave out indicator or missing")


def check_number_of_features(field: str, n: int) -> None:
    """Refuse more than `MOST_FEATURES` features with a SchemaError."""
    if n > MOST_FEATURES:
        raise SchemaError(field, n, f"must be at most {MOST_FEATURES:,} features", "declare fewer")


class OneColumn:
    """The part shared by kinds that read a single raw column, called `column` or else `name`."""

    reach: ClassVar[float] = 1.0
    span: ClassVar[float] = 1.0
    name: str
    column: str | None

    @property
    def source_column(self) -> str:
        return self.column or self.name

    def source_columns(self, columns: Mapping[str, Column]) -> tuple[str, ...]:
        return (self.source_column,)

    def read_numbers(
        self, columns: Mapping[str, Column], na: frozenset[str], missing: float | None
    ) -> Array:
        """Read the raw column as numbers.

        Parameters
        ----------
        columns : mapping of str to column
            Of the table.
        na : frozenset of str
            Declared marks of missing values.
        missing : float or None
            Stands for a missing value.

        Returns
        -------
        ndarray of shape (n,)

        Raises
        ------
        SchemaError
            If a value is no finite number, or missing while `missing` is None, or the column has
            several values a row.  No value is shown.
        """
        return _numbers_with_replacement(
            self.source_column, _one_dimensional_column(self.source_column, columns), na, missing
        )


def _check_bounds(field: str, lo: float, hi: float) -> None:
    """Refuse bounds that are not finite and increasing."""
    if not -LIMIT <= lo < hi <= LIMIT:
        raise SchemaError(
            f"{field}.lo, hi",
            (lo, hi),
            f"must be finite with lo < hi, within {LIMIT:g}",
            "declare both",
        )


def check_replacement_value(field: str, missing: float | None) -> None:
    """Refuse a replacement for missing values that is not a finite number."""
    if missing is not None and not np.isfinite(missing):
        raise SchemaError(
            f"{field}.missing", missing, "must be a finite number", "declare a number"
        )


@dataclass(frozen=True)
class Bins(OneColumn):
    """One-hot of the interval that holds the value.

    Parameters
    ----------
    edges : tuple of float
        ``m + 1`` increasing public edges make ``m`` bins ``[a, b)``, the last one closed.  The
        outer edges may be infinite; beyond finite ones a value counts as clipped and goes into the
        nearest bin.
    base : int, optional
        The reference level: a bin without a feature of its own (a block of zeros).
    missing : float, optional
        Replaces a missing value.
    indicator : bool
        Instead, a missing value is a level of its own.
    """

    kind: ClassVar[str] = "bins"
    name: str
    edges: tuple[float, ...]
    column: str | None = None
    base: int | None = None
    missing: float | None = None
    weight: float = 1.0
    indicator: bool = False

    def __post_init__(self) -> None:
        check_number_of_features(f"{self.name}.edges", len(self.edges) - 1)
        edges = np.asarray(self.edges)
        increasing = len(edges) >= 2 and bool(np.all(edges[:-1] < edges[1:]))  # False with a NaN
        if not increasing or np.isinf(edges[1:-1]).any():
            rule = "must be at least two increasing numbers, only the outer ones infinite"
            raise SchemaError(
                f"{self.name}.edges", self.edges, rule, "declare public edges such as [0, 10, 20]"
            )
        if self.base is not None and not 0 <= self.base < len(edges) - 1:
            raise SchemaError(
                f"{self.name}.base", self.base, f"must be from 0 to {len(edges) - 2}", "name a bin"
            )
        if len(self.feature_names) == 0:
            raise SchemaError(
                f"{self.name}.base", self.base, "leaves no feature", "declare more edges or no base"
            )
        check_replacement_value(self.name, self.missing)
        _check_missing_level(self.name, self.indicator, self.missing)

    @cached_property
    def feature_names(self) -> list[str]:
        bins = [f"{self.name}[{a},{b})" for a, b in pairwise(map(value_as_text, self.edges))]
        # The last bin is closed at both ends.
        bins[-1] = bins[-1][:-1] + "]"
        names = [name for k, name in enumerate(bins) if k != self.base]
        if self.indicator:
            names.append(_name_of_missing_level(self.name))
        return names

    def encode(self, columns: Mapping[str, Column], na: frozenset[str]) -> tuple[Array, Mask]:
        """One-hot of the bin of every value, with a mask of values outside the outer edges."""
        x, absent = _read_as_numbers(
            self.source_column, _one_dimensional_column(self.source_column, columns), na
        )
        edges = np.asarray(self.edges)
        m = len(edges) - 1
        # With a level for missing values any number may stand for them, as it is overwritten below.
        missing = self.edges[0] if self.indicator else self.missing
        x = _replace_missing_values(self.source_column, x, absent, missing)
        outside = (x < edges[0]) | (x > edges[-1])
        bins = np.searchsorted(edges[1:-1], x, side="right")
        if not self.indicator:
            return _one_hot_features(bins, m, self.base), outside
        return _one_hot_features(np.where(absent, m, bins), m + 1, self.base), outside & ~absent

    def draw_features(self, n: int, rng: np.random.Generator) -> Array:
        """Bins are equally likely."""
        m = len(self.edges) - 1
        return _one_hot_features(rng.integers(m, size=n), m + self.indicator, self.base)


@dataclass(frozen=True)
class Category(OneColumn):
    """One-hot of a listed value or of a group of listed values.

    Parameters
    ----------
    values : tuple of (name, members)
        Groups of public values.  In TOML a list ``["a", "b"]`` makes one group a value, a table
        ``{low = ["a", "b"], high = ["c"]}`` names the groups.
    other : bool
        Adds a feature for values that are not listed, missing ones included.  Without it such a row
        is a block of zeros and counts as clipped.
    base : str, optional
        The reference level: a group without a feature of its own (a block of zeros).
    missing : str, optional
        The listed value that replaces a missing one.
    indicator : bool
        Instead, a missing value is a level of its own, called "missing".
    """

    kind: ClassVar[str] = "category"
    name: str
    values: tuple[tuple[str, tuple[str, ...]], ...]
    column: str | None = None
    other: bool = False
    base: str | None = None
    missing: str | None = None
    weight: float = 1.0
    indicator: bool = False

    def __post_init__(self) -> None:
        check_number_of_features(f"{self.name}.values", len(self.values))
        _check_missing_level(self.name, self.indicator, self.missing)
        members = [value for _, group in self.values for value in group]
        groups = self.level_names
        if not members or len(set(members)) != len(members) or len(set(groups)) != len(groups):
            rule = "must list at least one value, each value and each group once"
            raise SchemaError(f"{self.name}.values", None, rule, 'declare values = ["a", "b"]')
        for key, value, known in (("base", self.base, groups), ("missing", self.missing, members)):
            if value is not None and value not in known:
                raise SchemaError(
                    f"{self.name}.{key}", value, "must be one of the declared values", "name one"
                )
        check_distinct_in_frames(f"{self.name}.values", members)
        if len(self.feature_names) == 0:
            raise SchemaError(
                f"{self.name}.base",
                self.base,
                "leaves no feature",
                "declare more values or no base",
            )

    @property
    def level_names(self) -> list[str]:
        """The names of all levels, with "other" and "missing" where they are levels."""
        groups = [name for name, _ in self.values]
        if self.other:
            groups.append("other")
        if self.indicator:
            groups.append("missing")
        return groups

    @cached_property
    def feature_names(self) -> list[str]:
        return [f"{self.name}={group}" for group in self.level_names if group != self.base]

    @cached_property
    def level_of_listed_value(self) -> Declared[int]:
        """The number of the group of every listed value."""
        return Declared({value: k for k, (_, group) in enumerate(self.values) for value in group})

    def level_of_value(self, na: frozenset[str]) -> Declared[int]:
        """Return the number of the group of every value, and of a missing one if it has a level.

        A missing value has the level that the declaration names for it.  A level of its own has the
        number of groups plus one: the number of groups is for what is not listed.  A mark in `na`
        is missing even if it is listed, one of :data:`sottovoce.data.values.MISSING_MARKS` unless
        it is.
        """
        if self.missing is None and not self.indicator:
            return self.level_of_listed_value
        if self.missing is None:
            level = len(self.values) + 1
        else:
            level = self.level_of_listed_value.meaning_of_text(self.missing)
        common = [mark for mark in sorted(MISSING_MARKS) if mark not in self.level_of_listed_value]
        declared = sorted(na | MISSING)
        with_common = self.level_of_listed_value.extended_by(dict.fromkeys(common, level))
        return with_common.overridden_by(dict.fromkeys(declared, level))

    def level_by_spelling(self, na: frozenset[str]) -> dict[str, int]:
        """Return :meth:`level_of_value` by the common spellings of every value.

        It is for what can only compare texts as written.
        """
        return self.level_of_value(na).meanings_by_spelling()

    def unlisted_and_missing(
        self, columns: Mapping[str, Column], na: frozenset[str]
    ) -> tuple[Mask, Mask]:
        """Return masks of unlisted and of missing values, whatever stands for them."""
        column = _one_dimensional_column(self.source_column, columns)
        strange = self.level_of_listed_value.meanings_of_column(column, -1) < 0
        gone = mask_of_missing(column, na, MISSING_MARKS)
        return strange & ~gone, strange & gone

    def encode(self, columns: Mapping[str, Column], na: frozenset[str]) -> tuple[Array, Mask]:
        """One-hot of the level of every value, with a mask of rows that no level stands for."""
        # Numbers of levels: 0 .. rest - 1 are listed groups, `rest` is an unlisted value and
        # rest + 1 a missing one that is a level of its own.
        rest = len(self.values)
        group = self.level_of_value(na).meanings_of_column(
            _one_dimensional_column(self.source_column, columns), rest
        )
        names = [name for name, _ in self.values]
        if self.other:
            names.append("other")
            outside = np.zeros(len(group), dtype=bool)
        else:
            outside = group == rest
        names.append("missing")
        # One-hot over all levels and one more column, for rows that have none; then the columns
        # that are features are kept.
        level_or_none = np.where(outside, len(names), group)
        hot = np.where(group > rest, len(names) - 1, level_or_none)
        features = _one_hot_features(hot, len(names) + 1, None)
        kept = [k for k, name in enumerate(names) if name in self.level_names and name != self.base]
        return features[:, kept], outside

    def draw_features(self, n: int, rng: np.random.Generator) -> Array:
        """Groups, ``other`` included, are equally likely; nothing is missing."""
        m = len(self.level_names)
        base = None if self.base is None else self.level_names.index(self.base)
        return _one_hot_features(rng.integers(m - self.indicator, size=n), m, base)


@dataclass(frozen=True)
class Number(OneColumn):
    """One feature: the value clipped to public bounds and scaled linearly.

    Parameters
    ----------
    lo, hi : float
        Public bounds; values beyond them are clipped and counted.
    to : {"[-1,1]", "[0,1]"}
        The interval that the typical range is mapped to, or the bounds if none is declared.
    transform : {None, "log1p"}
        Applied to the clipped value, to the bounds and to the typical range.
    missing : float, optional
        Replaces a missing value.
    typical : tuple of (float, float), optional
        A public range that holds most values (nine in ten, say), known from the field and never
        computed from the rows. Values beyond it are mapped by the same line to numbers beyond `to`;
        the schema clips rows that become too long.
    indicator : bool
        Adds a feature beside it, 0 except where the value is missing.  There it is as large as the
        value that stands for it leaves room in the ball: 1 for the middle of the range.
    """

    kind: ClassVar[str] = "number"
    name: str
    lo: float
    hi: float
    column: str | None = None
    to: str = "[-1,1]"
    transform: str | None = None
    missing: float | None = None
    weight: float = 1.0
    typical: tuple[float, float] | None = None
    indicator: bool = False

    def __post_init__(self) -> None:
        _check_bounds(self.name, self.lo, self.hi)
        check_replacement_value(self.name, self.missing)
        if self.indicator and self.missing is None:
            rule = "marks missing values, and the schema declares no replacement for them"
            raise SchemaError(f"{self.name}.indicator", True, rule, "declare missing = VALUE too")
        if self.to not in ("[-1,1]", "[0,1]"):
            raise SchemaError(
                f"{self.name}.to", self.to, "must be '[-1,1]' or '[0,1]'", "declare one of the two"
            )
        if self.transform not in (None, "log1p"):
            raise SchemaError(
                f"{self.name}.transform",
                self.transform,
                "must be 'log1p'",
                "correct it or leave it out",
            )
        # Bounds that are apart may have one logarithm in floating point.
        if self.transform == "log1p" and not (
            self.lo > -1 and np.log1p(self.lo) < np.log1p(self.hi)
        ):
            raise SchemaError(
                f"{self.name}.lo",
                self.lo,
                "log1p needs lo > -1 and bounds that stay distinct",
                "raise lo",
            )
        self._check_typical_range()
        if self.indicator and not self.indicator_value >= _LEAST_MARK:
            rule = (
                "is too close to an end of the range, "
                "which leaves the indicator no room in the unit ball"
            )
            raise SchemaError(
                f"{self.name}.missing", self.missing, rule, "use a value nearer the middle"
            )

    def _check_typical_range(self) -> None:
        """Refuse a typical range that is not within the bounds, or that is too narrow."""
        if self.typical is None:
            return
        field = f"{self.name}.typical"
        remedy = "declare the range of most values, such as typical = [2, 5]"
        if len(self.typical) != 2 or not self.lo <= self.typical[0] < self.typical[1] <= self.hi:
            raise SchemaError(
                field, self.typical, "must be two increasing numbers within lo and hi", remedy
            )
        a, b, lo, hi = self._transformed_ends
        if not b - a >= NARROWEST * (hi - lo):
            rule = f"must be at least {NARROWEST:g} as wide as the bounds, after any transform"
            raise SchemaError(field, self.typical, rule, "widen it, or declare narrower bounds")

    @cached_property
    def _transformed_ends(self) -> tuple[float, float, float, float]:
        """``(a, b, lo, hi)``: the ends of the range that is mapped to `to`, and the bounds, all
        after the transform.
        """
        lo, hi = self.lo, self.hi
        a, b = lo, hi
        if self.typical is not None:
            a, b = self.typical
        if self.transform == "log1p":
            lo, hi, a, b = (float(np.log1p(x)) for x in (lo, hi, a, b))
        return a, b, lo, hi

    @property
    def mapped_range(self) -> tuple[float, float]:
        """The ends of the range that is mapped to `to`, after the transform."""
        a, b, _, _ = self._transformed_ends
        return a, b

    @property
    def scaled_bounds(self) -> tuple[float, float]:
        """The bounds on the scale where the mapped range goes from -1 to 1, whatever `to` is."""
        a, b, lo, hi = self._transformed_ends
        return 2.0 * (lo - a) / (b - a) - 1.0, 2.0 * (hi - a) / (b - a) - 1.0

    @property
    def reach(self) -> float:  # type: ignore[override]
        """Largest absolute value of the feature; 1 without a typical range."""
        a, b, lo, hi = self._transformed_ends
        # The bounds where a is 0 and b is 1, so low <= 0 and high >= 1.
        low, high = (lo - a) / (b - a), (hi - a) / (b - a)
        if self.to == "[0,1]":
            return max(-low, high)
        return max(1 - 2 * low, 2 * high - 1)

    @cached_property
    def indicator_value(self) -> float:
        """The indicator's entry where the value is missing: both features together are not
        longer than 1.
        """
        stands = float(self._clip_and_scale(np.array(self.missing, dtype=float)))
        return math.sqrt(max(0.0, 1.0 - stands**2))

    @cached_property
    def feature_names(self) -> list[str]:
        if self.indicator:
            return [self.name, _name_of_missing_level(self.name)]
        return [self.name]

    def _clip_and_scale(self, raw: Array) -> Array:
        """Return the feature (n,) of numbers (n,) in the column's unit."""
        a, b, lo, hi = self._transformed_ends
        x = np.clip(raw, self.lo, self.hi)
        if self.transform == "log1p":
            x = np.log1p(x)
        # Clipped once more, as rounding may pass the ends, and `reach` is computed from these.
        x = np.clip((x - a) / (b - a), (lo - a) / (b - a), (hi - a) / (b - a))
        if self.to == "[0,1]":
            return x
        return 2 * x - 1

    def number_from_value(self, value: object) -> float:
        """Read one value in the column's unit, whatever other rows hold.

        A ValueError or OverflowError if it is none.
        """
        return value_as_number(value)

    def _numbers_and_missing(self, column: Column, na: frozenset[str]) -> tuple[Array, Mask]:
        """Return the numbers in the column's unit, and the mask of missing values."""
        return _read_as_numbers(self.source_column, column, na)

    def numbers_and_missing(
        self, columns: Mapping[str, Column], na: frozenset[str]
    ) -> tuple[Array, Mask]:
        """Return the numbers in the column's unit, 0 where missing, and the mask of missing ones.

        A SchemaError for other values; none is shown.
        """
        return self._numbers_and_missing(_one_dimensional_column(self.source_column, columns), na)

    def encode(self, columns: Mapping[str, Column], na: frozenset[str]) -> tuple[Array, Mask]:
        """The clipped and scaled number, with a mask of numbers beyond the bounds."""
        numbers, absent = self.numbers_and_missing(columns, na)
        raw = _replace_missing_values(self.source_column, numbers, absent, self.missing)
        features = self._clip_and_scale(raw)[:, None]
        if self.indicator:
            features = np.column_stack([features, self.indicator_value * absent])
        return features, (raw < self.lo) | (raw > self.hi)

    def draw_features(self, n: int, rng: np.random.Generator) -> Array:
        """Uniform in the typical range or the bounds, after any transform; nothing is missing."""
        x = rng.random((n, 1))
        if self.to != "[0,1]":
            x = 2 * x - 1
        if self.indicator:
            return np.hstack([x, np.zeros((n, 1))])
        return x


@dataclass(frozen=True)
class Vector:
    """Many numeric columns as one block, such as the pixels of an image.

    Entries are clipped to public bounds; then each row is divided by its own norm (``norm =
    "unit"``; a zero row stays zero), or by the declared norm, and rows beyond it are shrunk to it
    and counted.  Declare the norm of a typical row.

    Parameters
    ----------
    lo, hi : float
        Public bounds of every entry.
    norm : "unit" or float
        In the units of the entries.
    columns : tuple of str, optional
        The raw columns.  Without it, either one 2-D column called `name`, or ``size`` columns
        called ``prefix`` followed by ``0, 1, ...``.
    size : int, optional
        Number of entries.
    prefix : str, optional
        Default: the name of the block.
    missing : float, optional
        Replaces a missing entry.
    """

    kind: ClassVar[str] = "vector"
    reach: ClassVar[float] = 1.0
    span: ClassVar[float] = 1.0
    name: str
    lo: float
    hi: float
    norm: str | float = "unit"
    columns: tuple[str, ...] = ()
    size: int = 0
    prefix: str | None = None
    missing: float | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        _check_bounds(self.name, self.lo, self.hi)
        check_replacement_value(self.name, self.missing)
        remedy = "declare 'unit', or the norm of a typical row"
        if isinstance(self.norm, str) and self.norm != "unit":
            raise SchemaError(f"{self.name}.norm", self.norm, "must be 'unit' or a number", remedy)
        if not isinstance(self.norm, str) and not 1 / LIMIT <= self.norm <= LIMIT:
            raise SchemaError(f"{self.name}.norm", self.norm, "must be positive and finite", remedy)
        both_or_neither_given = (len(self.columns) > 0) == (self.size > 0)
        if both_or_neither_given or len(set(self.columns)) != len(self.columns):
            rule = "needs either columns = [...] (each once) or size = NUMBER"
            raise SchemaError(self.name, None, rule, "declare one of them")
        check_number_of_features(f"{self.name}.size", self.size)

    @cached_property
    def feature_names(self) -> list[str]:
        return list(self.columns) or [f"{self.prefix or self.name}{k}" for k in range(self.size)]

    def source_columns(self, columns: Mapping[str, Column]) -> tuple[str, ...]:
        if self._is_single_column(columns):
            return (self.name,)
        return tuple(self.feature_names)

    def _is_single_column(self, columns: Mapping[str, Column]) -> bool:
        """Whether the entries stand in one 2-D column, called as the block is."""
        if self.columns or self.name not in columns:
            return False
        return columns[self.name].ndim == 2 or not set(self.feature_names) <= set(columns)

    def encode(self, columns: Mapping[str, Column], na: frozenset[str]) -> tuple[Array, Mask]:
        """The clipped and divided entries, with a mask of rows clipped or beyond the norm."""
        if self._is_single_column(columns):
            if columns[self.name].ndim != 2:
                raise SchemaError(
                    self.name,
                    None,
                    f"must hold a list of {self.size} numbers in every row",
                    "repair it",
                )
            raw = _numbers_with_replacement(self.name, columns[self.name], na, self.missing)
        else:
            entries = [
                _numbers_with_replacement(
                    source, _one_dimensional_column(source, columns), na, self.missing
                )
                for source in self.source_columns(columns)
            ]
            raw = np.stack(entries, axis=1)
        if raw.shape[1] != len(self.feature_names):
            raise SchemaError(
                f"{self.name}.size",
                self.size,
                "must be the width of the column",
                "correct the size",
            )
        x = np.clip(raw, self.lo, self.hi)
        clipped = np.any(x != raw, axis=1)
        if isinstance(self.norm, str):
            return unit_rows(x), clipped
        norms = row_norms(x)
        return x / np.maximum(norms, self.norm)[:, None], clipped | (norms > self.norm)

    def draw_features(self, n: int, rng: np.random.Generator) -> Array:
        """Entries uniform in the bounds, then normed as in `encode`."""
        x = rng.random((n, len(self.feature_names)))
        x *= self.hi - self.lo
        x += self.lo
        if isinstance(self.norm, str):
            return unit_rows(x)
        x /= np.maximum(row_norms(x), self.norm)[:, None]
        return x


def row_norms(x: Array) -> Array:
    """Compute the Euclidean norm of each row; squares neither under- nor overflow."""
    top = np.max(np.abs(x), axis=1, initial=0.0)
    safe = np.where(top > 0, top, 1.0)
    norms: Array = top * np.sqrt(np.sum((x / safe[:, None]) ** 2, axis=1))
    return norms


def unit_rows(x: Array) -> Array:
    """Divide each row by its own norm; a zero row stays zero."""
    norms = row_norms(x)
    coarse = (norms > 0) & (norms < _COARSE)
    if coarse.any():
        # Such numbers have few digits, and so had their norm; the product with a power of 2 is
        # exact.
        x = np.where(coarse[:, None], x * 2.0**600, x)
        norms = row_norms(x)
    out: Array = x / np.where(norms > 0, norms, 1.0)[:, None]
    return out


def _one_hot_features(index: NDArray[np.int64], width: int, base: int | None) -> Array:
    """Return ones at `index` (n,) among `width` levels, without the column of the level `base`."""
    features = np.zeros((len(index), width))
    features[np.arange(len(index)), index] = 1.0
    if base is None:
        return features
    return np.delete(features, base, axis=1)


_REQUIRED_ENTRIES = {
    "bins": "edges",
    "category": "values",
    "number": "lo and hi",
    "vector": "lo, hi and size",
    "date": "epoch, lo and hi",
    "spline": "knots",
    "fourier": "of, features and bandwidth",
}


def block_from_dict(name: str, given: Mapping[str, Any]) -> Block:
    """Build the block ``[columns.NAME]`` of a schema file; a SchemaError for unfit entries."""
    entries = dict(given)
    kind = _validated_kind(name, entries.pop("kind", None))
    cls = KINDS[kind]
    known = {field.name: field for field in fields(cls) if field.name != "name"}
    _refuse_unknown_entries(name, kind, entries, known)
    try:
        # Dates are declared as days and kept as numbers of units since their epoch.
        if hasattr(cls, "convert_days_to_units"):
            entries = cls.convert_days_to_units(name, entries)
        for key, value in entries.items():
            if value is not None or known[key].default is not None:
                entries[key] = convert_entry(kind, key, value)
        block: Block = cls(name=name, **entries)
    except SchemaError:
        raise
    except (TypeError, ValueError, OverflowError):
        required = _REQUIRED_ENTRIES.get(kind, "of")
        rule = f"kind {kind!r} needs {required}, and each entry must have the right type"
        raise SchemaError(f"[columns.{name}]", None, rule, "correct the declaration") from None
    return block


def _validated_kind(name: str, kind: object) -> str:
    """Return the kind of a block; a SchemaError if it is unknown."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise SchemaError(
            f"{name}.kind",
            kind,
            f"must be one of {', '.join(KINDS)}",
            "declare the kind of the column",
        )
    return kind


def _refuse_unknown_entries(
    name: str, kind: str, entries: Mapping[str, Any], known: Mapping[str, Any]
) -> None:
    """Refuse entries that the kind does not have, with a suggestion for a misspelled one."""
    for key in entries:
        if key not in known:
            rule = f"is unknown; {kind} accepts {', '.join(known)}"
            raise SchemaError(
                f"{name}.{key}", None, rule, suggest_spelling(key, known) or "remove it"
            )


def block_to_dict(block: Block) -> dict[str, Any]:
    """Return a block's entries of JSON types, without those at their default.

    The inverse of :func:`block_from_dict`.
    """
    entries: dict[str, Any] = {"kind": block.kind}
    for field in fields(block):  # type: ignore[arg-type]
        value = getattr(block, field.name)
        if field.name != "name" and value != field.default:
            entries[field.name] = value
    if isinstance(block, Bins):
        # JSON has no infinite numbers.
        entries["edges"] = [edge if np.isfinite(edge) else str(edge) for edge in block.edges]
    if isinstance(block, Category):
        entries["values"] = {name: list(members) for name, members in block.values}
    for key in ("columns", "knots", "of", "typical"):
        # `of` holds the blocks that a derived block is made from; they are written by name.
        if key in entries:
            entries[key] = [getattr(value, "name", value) for value in entries[key]]
    return entries


KINDS: dict[str, Any] = {cls.kind: cls for cls in (Bins, Category, Number, Vector)}
