"""Exact counts of a table's declared columns: what is missing, cannot be read, is clipped or is
undeclared.

Every count is exact and no epsilon covers it, so it is for the holder of the rows only.  Row
numbers may be shown to the holder; a value of a row never is.  Nothing here decides what training
does: values are read by the functions that encode them, and a count only says in how many rows, and
where.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ..errors import InvalidInput
from ..problem.task import Classification
from ..util.typing import Array, BoolArray, IntArray
from .columns import Bins, Block, Category, Number, Vector, row_norms
from .curved import Spline
from .dates import Date, dates_as_units
from .labels import (
    AnyLabel,
    ClassLabel,
    ColumnLabel,
    Label,
    NumberLabel,
    RateLabel,
    parse_number_labels,
)
from .partition import partition
from .person import Person, first_rows_of_each
from .values import (
    MISSING_MARKS,
    Column,
    Declared,
    column_as_numbers,
    column_as_text,
    mask_of_marked_numbers,
    mask_of_missing,
)
from .weights import CaseWeight

SHOWN_ROWS = 5
"""Row numbers that are named for a finding; the first row below the header is row 1."""

FEW_ROWS = 10
"""A site with fewer rows is counted as small."""

_NUMBER = r"[+-]?(\d+([.,]\d*)?|[.,]\d+)"
_NOT_FINITE = "NaN or infinite"
_MONTH = r"[^\W\d]{3,9}"
_A_DATE = (
    r"\d{4}-\d{1,2}(-\d{1,2}.*)?",
    rf"\d{{1,2}}[./-](\d{{1,2}}|{_MONTH})[./-]\d{{2,4}}.*",
    rf"\d{{1,2}}[. ]*{_MONTH}[. ]*\d{{4}}.*",
    r"\d+:\d{2}(:\d{2})?(\.\d+)?",
)
_KINDS_OF_TEXT: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("a limit (< or >)", re.compile(rf"[<>≤≥]=?\s*{_NUMBER}")),
    ("a comma (decimal, or of thousands)", re.compile(r"[+-]?\d*(,\d+)+(\.\d*)?")),
    ("other separators of thousands", re.compile(r"[+-]?\d{1,3}([.'’_\s]\d{3})+([.,]\d+)?")),
    ("an error of a spreadsheet", re.compile(r"#(REF|DIV/0|VALUE|NAME\?|NUM|NULL|SPILL|CALC)!?")),
    ("a date or a time", re.compile("|".join(_A_DATE))),
    ("a truth value", re.compile(r"true|false", re.IGNORECASE)),
    ("a number with a unit or a sign", re.compile(rf"[$€£−–]\s*{_NUMBER}|{_NUMBER}\s*[^\d\s.,].*")),
)
_MORE_MARKS = ("n.a.", "nil", "missing", "unknown", "not known", "?", "-", "--")


@dataclass(frozen=True)
class ColumnCounts:
    """Exact counts of one declared column, for the holder of the rows only.

    Parameters
    ----------
    column : str
        Name in the table, or of the block that is made from several.
    role : {"label", "site", "person", "weight", "feature"}
    kind : str
        Of a feature or a label, as the schema declares it.
    counts : dict of str to int
        Numbers of rows by what is wrong with them (``missing``, ``not a number``, ``below``,
        ``above``, ``undeclared``, ``near``, ...), zeros included; for sites and people also how
        many there are.  Two keys count different texts, not rows: ``undeclared texts``, and, of a
        label without a declared negative text, ``negative texts``, as all of them are negative.
    levels : dict of str to int
        Rows of every declared value, of labels and categories; of two classes the negative one is
        first.
    rows : dict of str to tuple of int
        The first few row numbers of a count, from 1.
    """

    column: str
    role: str
    kind: str
    counts: Mapping[str, int]
    levels: Mapping[str, int] = field(default_factory=dict)
    rows: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as plain data of JSON types."""
        return {
            "column": self.column,
            "role": self.role,
            "kind": self.kind,
            "counts": dict(self.counts),
            "levels": dict(self.levels),
            "first_rows": {key: list(rows) for key, rows in self.rows.items()},
        }


@dataclass(frozen=True)
class Reading:
    """A column as numbers, value by value: NaN where a value is missing or is no number.

    `why` counts the values that are no numbers by what they look like.
    """

    numbers: Array
    missing: BoolArray
    unread: BoolArray
    why: Mapping[str, int] = field(default_factory=dict)


def first_row_numbers(where: BoolArray) -> tuple[int, ...]:
    """Return the first few row numbers of a mask, from 1."""
    return tuple((np.flatnonzero(where)[:SHOWN_ROWS] + 1).tolist())


def fold_text(text: str) -> str:
    """Return a text without differences in case, blanks, marks of no width, and Unicode's forms."""
    if not text.isprintable():
        # "Cf" are format characters: marks of no width, of the direction of writing and of order.
        text = "".join(one for one in text if unicodedata.category(one) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


LIKELY_GAPS = frozenset(map(fold_text, (*MISSING_MARKS, *_MORE_MARKS)))
"""Texts, folded, that tools and people write for a missing value; not all of them are read as
one.
"""


def is_likely_gap(text: str) -> bool:
    """Return True for a text that tools and people write for a missing value."""
    return fold_text(text) in LIKELY_GAPS


def find_near_matches(texts: Column, declared: Collection[str]) -> dict[str, BoolArray]:
    """Find texts that differ from a declared value in case, blanks or Unicode form alone.

    Returns, for each declared value, a mask (n,) of the texts that look like it and are not read as
    it.
    """
    by_fold = {fold_text(value): value for value in declared}
    read_alike = Declared({value: value for value in declared})
    nothing = np.zeros(len(texts), dtype=bool)
    found: dict[str, BoolArray] = {}
    for text in dict.fromkeys(texts.tolist()):
        value = by_fold.get(fold_text(text))
        if value is not None and text not in read_alike:
            found[value] = found.get(value, nothing) | (texts == text)
    return found


def read_numbers(column: Column, na: frozenset[str], read: Reader | None = None) -> Reading:
    """Read every value of a column as training reads it.

    Where training refuses the column, it is read in parts, down to the values that are refused.

    Parameters
    ----------
    column : array (n,)
    na : frozenset of str
        Declared marks of missing values.
    read : callable, optional
        How training reads the column: it returns numbers and a mask of missing values, or raises
        a ValueError.  None for
        :func:`sottovoce.data.table.column_as_numbers`.

    Returns
    -------
    Reading
    """
    if column.dtype.kind in "iuf":
        missing = mask_of_marked_numbers(column, na)
        unread = ~np.isfinite(column) & ~missing
        numbers = np.where(missing | unread, np.nan, column.astype(np.float64))
        return Reading(numbers, missing, unread, {_NOT_FINITE: int(unread.sum())})
    numbers, missing, unread = _read_in_halves(column, read or partial(column_as_numbers, na=na))
    why: dict[str, int] = {}
    if unread.any():
        for text in column_as_text(column[unread]).tolist():
            kind = classify_unreadable_text(text)
            why[kind] = why.get(kind, 0) + 1
    return Reading(np.where(missing | unread, np.nan, numbers), missing, unread, why)


Reader = Callable[[Column], tuple[Array, BoolArray]]


def _read_in_halves(column: Column, read: Reader) -> tuple[Array, BoolArray, BoolArray]:
    """Return numbers (n,), a mask of missing values and a mask of values that `read` refuses.

    A part that is refused is halved until single values are left.
    """
    numbers = np.zeros(len(column))
    missing = np.zeros(len(column), dtype=bool)
    unread = np.zeros(len(column), dtype=bool)
    left = [(0, len(column))]
    while left:
        start, end = left.pop()
        try:
            numbers[start:end], missing[start:end] = read(column[start:end])
        except (ValueError, OverflowError):
            if end - start == 1:
                unread[start] = True
            else:
                middle = (start + end) // 2
                left += [(start, middle), (middle, end)]
    return numbers, missing, unread


def classify_unreadable_text(text: str) -> str:
    """Classify a text that is no number, in words that do not show it."""
    with suppress(ValueError):
        if not math.isfinite(float(text)):
            return _NOT_FINITE
    for kind, pattern in _KINDS_OF_TEXT:
        if pattern.fullmatch(text):
            return kind
    if is_likely_gap(text):
        return "a usual mark of missing values"
    return "other text"


def count_block(block: Block, columns: Mapping[str, Column], na: frozenset[str]) -> ColumnCounts:
    """Count the rows of a feature block that are missing, unreadable, clipped or undeclared.

    Parameters
    ----------
    block : Block
        One that reads raw columns, not one derived from other blocks.
    columns : mapping of str to column
        Of the table; those that the block reads must be there.
    na : frozenset of str
        Declared marks of missing values.

    Returns
    -------
    ColumnCounts
        Of a vector, counts of rows with such an entry, not of entries.
    """
    if isinstance(block, Category):
        return _count_category(block, columns, na)
    if isinstance(block, Vector):
        return _count_vector(block, columns, na)
    return _count_numbers(block, columns, na)


def _count_numbers(block: Any, columns: Mapping[str, Column], na: frozenset[str]) -> ColumnCounts:
    """Count a block of one numeric column: numbers, dates, bins and splines."""
    reading = read_numbers(columns[block.source_column], na, _column_reader(block, na))
    lo, hi = _clipping_bounds(block)
    masks = {
        "missing": reading.missing,
        _name_of_unreadable(block): reading.unread,
        "below": reading.numbers < lo,
        "above": reading.numbers > hi,
    }
    return _column_counts_from_masks(
        block.name, "feature", block.kind, masks, _unreadable_by_kind(reading)
    )


def _unreadable_by_kind(reading: Reading) -> dict[str, int]:
    """Return entries of `ColumnCounts.counts` for unreadable values, by what they look like."""
    return {f"as {kind}": n for kind, n in reading.why.items()}


def _column_reader(block: object, na: frozenset[str]) -> Reader | None:
    """Return the function that reads a block's column; None for :func:`column_as_numbers`."""
    if not isinstance(block, Date):
        return None
    return lambda some: dates_as_units(some, na, block.epoch, block.unit)


def _name_of_unreadable(block: object) -> str:
    return "not a date" if isinstance(block, Date) else "not a number"


def _clipping_bounds(block: Bins | Number | Spline) -> tuple[float, float]:
    """Return the bounds beyond which the block's encoding clips a number."""
    if isinstance(block, Bins):
        return block.edges[0], block.edges[-1]
    if isinstance(block, Spline):
        return block.knots[0], block.knots[-1]
    return block.lo, block.hi


def _count_vector(block: Vector, columns: Mapping[str, Column], na: frozenset[str]) -> ColumnCounts:
    """Count the rows of a vector with a missing, unreadable or clipped entry, not the entries."""
    entries = [columns[name] for name in block.source_columns(columns)]
    if len(entries) == 1 and entries[0].ndim == 2:
        entries = list(entries[0].T)
    readings = [read_numbers(entry, na) for entry in entries]
    numbers = np.stack([reading.numbers for reading in readings], axis=1)
    masks = {
        "missing": np.any([reading.missing for reading in readings], axis=0),
        "not a number": np.any([reading.unread for reading in readings], axis=0),
        "below": np.any(numbers < block.lo, axis=1),
        "above": np.any(numbers > block.hi, axis=1),
    }
    if not isinstance(block.norm, str):
        # As the encoding does, which clips entries before it computes the norm.
        inside = np.clip(np.nan_to_num(numbers, nan=0.0), block.lo, block.hi)
        masks["beyond the norm"] = row_norms(inside) > block.norm
    return _column_counts_from_masks(block.name, "feature", block.kind, masks)


def _count_category(
    block: Category, columns: Mapping[str, Column], na: frozenset[str]
) -> ColumnCounts:
    """Count a category, with the rows of every declared level."""
    texts = column_as_text(columns[block.source_column])
    listed = [value for _, members in block.values for value in members]
    strange, gone = block.unlisted_and_missing(columns, na)
    near = find_near_matches(np.where(strange, texts, ""), listed)
    masks = {
        "missing": gone,
        "undeclared": strange,
        "near": _union_of_masks(near.values(), len(texts)),
    }
    more = {"undeclared texts": len(set(texts[strange].tolist()))}
    # Without a reference level and levels for the rest, each feature is one declared value.
    plain = replace(block, base=None, missing=None, other=False, indicator=False)
    rows = plain.encode(columns, na)[0].sum(axis=0)
    levels = {name: int(count) for (name, _), count in zip(block.values, rows, strict=True)}
    return _column_counts_from_masks(block.name, "feature", block.kind, masks, more, levels)


def count_label(label: ColumnLabel, column: Column, na: tuple[str, ...]) -> ColumnCounts:
    """Count the rows of every declared label, and those that train as rows of zeros.

    Parameters
    ----------
    label : Label, ClassLabel or NumberLabel
    column : ndarray of shape (n,)
        The raw labels.
    na : tuple of str
        Declared marks of missing values.

    Returns
    -------
    ColumnCounts
    """
    task = label.task
    y = label.encode(column, na)
    lost = ~task.has_known_label(y)
    if isinstance(label, NumberLabel):
        return _count_number_label(label, column, na, lost)
    texts = column_as_text(column)
    missing = lost & mask_of_missing(column, na, MISSING_MARKS)
    undeclared = lost & ~missing
    near = find_near_matches(np.where(undeclared | (y < 0), texts, ""), declared_labels(label))
    masks = {
        "missing": missing,
        "undeclared": undeclared,
        "near": _union_of_masks(near.values(), len(texts)),
    }
    more = {"undeclared texts": len(set(texts[undeclared].tolist()))}
    assert isinstance(task, Classification)
    number = task.number(y)
    levels = {name: int(np.sum(number == k)) for k, name in enumerate(task.names)}
    if isinstance(label, Label) and label.negative is None:
        # Any other value than the positive one is negative, so a missing value may be taken for it.
        negatives = set(texts[(number == 0) & ~lost].tolist())
        more["negative texts"] = len(negatives)
        gaps = np.isin(texts, [text for text in negatives if is_likely_gap(text)])
        masks["negative, and a usual mark of missing values"] = gaps & ~lost
    kind = "classes" if isinstance(label, ClassLabel) else "two classes"
    return _column_counts_from_masks(label.column, "label", kind, masks, more, levels)


def count_events(
    label: RateLabel, columns: Mapping[str, Column], na: tuple[str, ...]
) -> ColumnCounts:
    """Count the rows of a label of events: those without a known event or time, and with events.

    Parameters
    ----------
    label : EventLabel or CountLabel
    columns : mapping of str to column
        Of the table.
    na : tuple of str
        Declared marks of missing values.

    Returns
    -------
    ColumnCounts
    """
    task = label.task
    y = label.encode_columns(columns, na)
    some, others = task.rows_by_label(y)
    lost = np.isnan(y)
    masks = {"missing": lost, "clipped": label.clipped_columns(columns, na)}
    levels = {"with events": len(some), "without": len(others) - int(lost.sum())}
    return _column_counts_from_masks(label.column, "label", "events", masks, {}, levels)


def _count_number_label(
    label: NumberLabel, column: Column, na: tuple[str, ...], lost: BoolArray
) -> ColumnCounts:
    """Count a numeric label; `lost` (n,) marks the rows without a number to predict."""
    reading = read_numbers(column, frozenset(na))
    numbers = parse_number_labels(column, na)
    masks = {
        "missing": lost & ~reading.unread,
        "not a number": lost & reading.unread,
        "below": numbers < label.lo,
        "above": numbers > label.hi,
    }
    return _column_counts_from_masks(
        label.column, "label", "number", masks, _unreadable_by_kind(reading)
    )


def declared_labels(label: AnyLabel) -> tuple[str, ...]:
    """Return the texts that a label's declaration names."""
    if isinstance(label, ClassLabel):
        return label.values
    if isinstance(label, NumberLabel | RateLabel):
        return ()
    if label.negative is None:
        return (label.positive,)
    return label.negative, label.positive


def count_sites(name: str, column: Column, classes: IntArray | None) -> ColumnCounts:
    """Count the sites that a column names, their sizes, and sites whose rows are all of one class.

    Parameters
    ----------
    name : str
        Of the column.
    column : ndarray of shape (n,)
        The raw sites.
    classes : ndarray of int, shape (n,), or None
        The number of each row's class, negative for no known label; None for labels that are no
        classes.

    Returns
    -------
    ColumnCounts
    """
    site = number_sites_of_rows(name, column)
    missing = site < 0
    size = np.bincount(site[~missing])
    first = np.unique(site[~missing], return_index=True)[1]
    names = column_as_text(column[~missing])[first].tolist()
    more = {
        "sites": len(size),
        "smallest": int(size.min()) if len(size) else 0,
        "largest": int(size.max(initial=0)),
        f"sites of fewer than {FEW_ROWS} rows": int(np.sum(size < FEW_ROWS)),
        "sites whose names differ in case or blanks alone": _count_alike_names(names),
    }
    if classes is not None:
        known = ~missing & (classes >= 0)
        pairs = np.unique(np.stack([site[known], classes[known]], axis=1), axis=0)
        kinds = np.bincount(pairs[:, 0], minlength=len(size))
        more["sites of one class"] = int(np.sum(kinds == 1))
        more["sites without a label"] = int(np.sum(kinds == 0))
    return _column_counts_from_masks(name, "site", "site", {"missing": missing}, more)


def number_sites_of_rows(name: str, column: Column) -> IntArray:
    """Number each row's site as training partitions rows; -1 for a row without one."""

    def parts_of(some: Column) -> list[IntArray]:
        return partition(f"site:{name}", np.zeros(len(some)), None, columns={name: some})

    number = np.full(len(column), -1, dtype=np.int64)
    named = np.flatnonzero(~find_refused_rows(column, parts_of))
    if len(named) == 0:
        return number
    for k, part in enumerate(parts_of(column[named])):
        number[named[part]] = k
    return number


def find_refused_rows(column: Column, attempt: Callable[[Column], object]) -> BoolArray:
    """Find the rows whose value is refused by itself, if the whole column is: a mask (n,)."""
    try:
        attempt(column)
    except InvalidInput:
        pass
    else:
        return np.zeros(len(column), dtype=bool)
    # Values of one text are refused alike, so each text is tried once, at its first row.
    texts, first, number = np.unique(column_as_text(column), return_index=True, return_inverse=True)
    refused = np.zeros(len(texts), dtype=bool)
    for k, row in enumerate(first.tolist()):
        try:
            attempt(column[row : row + 1])
        except InvalidInput:
            refused[k] = True
    found: BoolArray = refused[number.reshape(-1)]
    return found


def count_people(
    person: Person, column: Column, na: frozenset[str], site: IntArray | None
) -> ColumnCounts:
    """Count the people that a column tells apart, rows without one, and rows that are left out.

    Parameters
    ----------
    person : Person
    column : ndarray of shape (n,)
        The raw identifiers.
    na : frozenset of str
        Declared marks of missing values.
    site : ndarray of int, shape (n,), or None
        The number of each row's site, as up to ``person.rows`` of a person are read at each; None
        for a single site.

    Returns
    -------
    ColumnCounts
    """
    missing = find_refused_rows(column, lambda some: person.number_people(some, na))
    people = person.number_people(column[~missing], na)
    own_site = np.zeros(len(people), dtype=np.int64)
    if site is not None:
        own_site = site[~missing]
    # Rows are left out by person and site, as the limit on rows holds at each site.
    pairs, pair = np.unique(np.stack([people, own_site], axis=1), axis=0, return_inverse=True)
    left = np.zeros(len(column), dtype=bool)
    left[~missing] = ~first_rows_of_each(pair.reshape(-1).astype(np.int64), person.rows)
    first = np.unique(people, return_index=True)[1]
    identifiers = column_as_text(column[~missing])[first].tolist()
    more = {
        "people": len(first),
        "most rows of a person": int(np.bincount(people).max(initial=0)),
        "most sites of a person": int(np.bincount(pairs[:, 0]).max(initial=0)),
        "identifiers that differ in case or blanks alone": _count_alike_names(identifiers),
    }
    return _column_counts_from_masks(
        person.column, "person", "person", {"missing": missing, "left out": left}, more
    )


def count_weights(weight: CaseWeight, column: Column, na: frozenset[str]) -> ColumnCounts:
    """Count the weights that training refuses, and those above their cap or zero.

    Parameters
    ----------
    weight : CaseWeight
    column : ndarray of shape (n,)
        The raw weights.
    na : frozenset of str
        Declared marks of missing values.

    Returns
    -------
    ColumnCounts
    """
    reading = read_numbers(column, na)
    masks = {
        "missing": reading.missing,
        "not a number": reading.unread,
        "negative": reading.numbers < 0.0,
        "above": reading.numbers > weight.max,
        "zero": reading.numbers == 0.0,
    }
    return _column_counts_from_masks(weight.column, "weight", "weight", masks)


def _count_alike_names(names: Collection[str]) -> int:
    """Count the names that differ from another one only in case, blanks or Unicode form."""
    return len(names) - len({fold_text(name) for name in names})


def _union_of_masks(masks: Iterable[BoolArray], n: int) -> BoolArray:
    found = np.zeros(n, dtype=bool)
    for mask in masks:
        found |= mask
    return found


def _column_counts_from_masks(
    column: str,
    role: str,
    kind: str,
    masks: Mapping[str, BoolArray],
    more: Mapping[str, int] | None = None,
    levels: Mapping[str, int] | None = None,
) -> ColumnCounts:
    """Build the counts of a column from masks (n,) by what is wrong, and from `more` numbers."""
    counts = {key: int(mask.sum()) for key, mask in masks.items()} | dict(more or {})
    rows = {key: first_row_numbers(mask) for key, mask in masks.items() if mask.any()}
    return ColumnCounts(column, role, kind, counts, dict(levels or {}), rows)
