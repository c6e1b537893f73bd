"""The label of a schema: two classes, several, a bounded number or events; and labelled rows.

Which labels occur is private, so a label that does not fit the declaration refuses nothing: its row
is encoded as zeros and still counts as a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ..errors import InvalidInput, SchemaError
from ..problem.task import BoundedNumber, EventRate, ManyClasses, Task, TwoClasses
from ..util.constraints import real_number_or_none
from ..util.typing import Array, BoolArray
from .entries import check_distinct_in_frames, declared_text
from .follow_up import read_event_marks
from .rows import Rows
from .values import (
    MISSING_MARKS,
    Column,
    Declared,
    canonical_text,
    identities_of_marks,
    mask_of_marked_numbers,
    mask_of_missing,
    numbers_at_once,
    value_as_number,
    value_as_text,
    values_one_by_one,
)

_WRITE = (
    'write label = {column = "NAME", positive = "VALUE"}, or with values = ["A", "B", "C"], '
    'or with lo = 0 and hi = 60, and with family = "poisson" for counts; for survival write '
    'label = {event = "died", time = "days", cuts = [30, 90, 365]}'
)
_WRITE_OFFSET = 'write offset = {column = "years", lo = 0.1, hi = 5}'
_MOST_CUTS, _MOST_EVENTS = 50, 10_000
# Largest time of an edge, or of a bound.
_LONGEST = 1e12


class _Classes:
    """What labels of two and of several classes share."""

    def clipped_labels(self, column: Column, na: tuple[str, ...]) -> BoolArray:
        """Return a mask of the labels that were clipped to bounds: none of a class."""
        return np.zeros(len(column), dtype=bool)


@dataclass(frozen=True)
class Label(_Classes):
    """Two classes.  Without `negative` every value but `positive` and marks of missing values is
    negative.

    A row whose label is missing, or is neither of two declared labels, is encoded as zeros: neither
    an error nor a model may disclose whether such a label occurs.  Without `negative`, missing are
    the marks that a schema lists and :data:`sottovoce.data.values.MISSING_MARKS`, such as R's
    ``NA``; where one of them is a class, declare `negative`.
    """

    column: str
    positive: str
    negative: str | None = None

    def __post_init__(self) -> None:
        if self.positive == self.negative:
            raise SchemaError(
                "label", None, "positive and negative must differ", "correct the declaration"
            )
        declared = [self.positive]
        if self.negative is not None:
            declared.append(self.negative)
        check_distinct_in_frames("label", declared)

    @property
    def task(self) -> Task:
        return TwoClasses((self.negative or f"not {self.positive}", self.positive))

    def encode(self, column: Column, na: tuple[str, ...]) -> Array:
        """Encode labels as `task` does; `na` are further marks of missing values."""
        if self.negative is not None:
            classes = Declared({self.negative: 0, self.positive: 1})
            return self.task.encode(classes.meanings_of_column(column, -1))
        gone = mask_of_missing(column, na, MISSING_MARKS)
        positive = Declared({self.positive: 1}).meanings_of_column(column, -1) == 1
        # A declared value is never read as missing, even if it is a mark such as NA.
        negative_or_none = np.where(gone, -1, 0)
        return self.task.encode(np.where(positive, 1, negative_or_none))


@dataclass(frozen=True)
class ClassLabel(_Classes):
    """One of several declared values.  Of two, the second is the positive one.

    A row with another value, or with none, is encoded as zeros.
    """

    column: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        _require_texts(self.column, *self.values)
        if not 2 <= len(set(self.values)) == len(self.values):
            raise SchemaError(
                "label", None, "values must be two or more, all different", "name every class once"
            )
        check_distinct_in_frames("label", self.values)

    @property
    def task(self) -> Task:
        if len(self.values) == 2:
            return TwoClasses(self.values)
        return ManyClasses(self.values)

    def encode(self, column: Column, na: tuple[str, ...]) -> Array:
        """Encode labels as `task` does; a declared value is never read as missing."""
        classes = Declared({value: k for k, value in enumerate(self.values)})
        return self.task.encode(classes.meanings_of_column(column, -1))


@dataclass(frozen=True)
class NumberLabel:
    """A number, clipped to public bounds `lo` and `hi`, never read off rows; `unit`, such as
    "days", is for reports.
    """

    column: str
    lo: float
    hi: float
    unit: str = ""

    def __post_init__(self) -> None:
        _require_texts(self.column, self.unit or "-")
        try:
            BoundedNumber(self.lo, self.hi, self.unit)
        except InvalidInput as error:
            raise SchemaError(
                "label", (self.lo, self.hi), error.rule, "correct lo, hi or unit"
            ) from None

    @property
    def task(self) -> Task:
        return BoundedNumber(self.lo, self.hi, self.unit)

    def encode(self, column: Column, na: tuple[str, ...]) -> Array:
        """Encode labels as `task` does: NaN where a value is missing or no number."""
        return self.task.encode(parse_number_labels(column, na))

    def clipped_labels(self, column: Column, na: tuple[str, ...]) -> BoolArray:
        number = parse_number_labels(column, na)
        return np.asarray((number < self.lo) | (number > self.hi))


@dataclass(frozen=True)
class EventLabel:
    """An event with its time, for hazards in the intervals between 0 and the public `cuts`.

    `time` is the column with the time of the event, or until which the person was seen without it;
    `event_code` is as for :func:`sottovoce.data.follow_up.read_event_marks`.
    """

    event: str
    time: str
    cuts: tuple[float, ...]
    event_code: str | None = None

    def __post_init__(self) -> None:
        _require_texts(self.event, self.time, self.event_code or "-")
        edges = (0.0, *self.cuts)
        ordered = all(low < high < _LONGEST for low, high in pairwise(edges))
        if not (1 <= len(self.cuts) <= _MOST_CUTS and ordered):
            rule = f"must be 1 to {_MOST_CUTS} increasing times above 0"
            raise SchemaError("label.cuts", None, rule, "write cuts = [30, 90, 365]")

    @property
    def column(self) -> str:
        """The column of the event."""
        return self.event

    @property
    def further_columns(self) -> dict[str, str]:
        """The other columns that are read, each with its role."""
        return {self.time: "time"}

    @property
    def task(self) -> EventRate:
        return EventRate((0.0, *self.cuts), 1.0, True)

    def encode_columns(self, columns: Mapping[str, Column], na: tuple[str, ...]) -> Array:
        """Encode labels as `task` does: NaN without a known event, or a time above 0."""
        event = read_event_marks(columns[self.event], self.event_code)
        time = parse_number_labels(columns[self.time], na)
        return self.task.encode(np.column_stack([event, time]))

    def clipped_columns(self, columns: Mapping[str, Column], na: tuple[str, ...]) -> BoolArray:
        """Return a mask of the labels that were clipped to bounds: none, as follow-up may go on."""
        return np.zeros(len(columns[self.event]), dtype=bool)


@dataclass(frozen=True)
class TimeSeen:
    """The column of the time in which events were counted, clipped to public bounds."""

    column: str
    lo: float
    hi: float

    def __post_init__(self) -> None:
        _require_texts(self.column)
        if not 0.0 < self.lo < self.hi < _LONGEST:
            rule = "must have 0 < lo < hi, the public bounds of the time"
            raise SchemaError("offset", (self.lo, self.hi), rule, _WRITE_OFFSET)


@dataclass(frozen=True)
class CountLabel:
    """A count of events, clipped to public bounds, for Poisson regression; `family` says so.

    `offset` is the schema's entry of the same name: the time in which the events were counted.
    """

    column: str
    lo: float
    hi: float
    family: str
    offset: TimeSeen | None = None

    def __post_init__(self) -> None:
        _require_texts(self.column)
        if self.family != "poisson":
            raise SchemaError("label.family", self.family, "must be 'poisson'", "correct it")
        if not (self.lo == 0.0 and 1.0 <= self.hi <= _MOST_EVENTS):
            rule = f"counts need lo = 0 and hi from 1 to {_MOST_EVENTS:,}"
            raise SchemaError("label", (self.lo, self.hi), rule, "correct lo or hi")

    @property
    def further_columns(self) -> dict[str, str]:
        """The other columns that are read, each with its role."""
        if self.offset is None:
            return {}
        return {self.offset.column: "offset"}

    @property
    def task(self) -> EventRate:
        longest = 1.0
        if self.offset is not None:
            longest = float(self.offset.hi)
        return EventRate((0.0, longest), float(self.hi), False)

    def encode_columns(self, columns: Mapping[str, Column], na: tuple[str, ...]) -> Array:
        """Encode labels as `task` does: NaN without a number of events or a time."""
        events = parse_number_labels(columns[self.column], na)
        time = np.ones(len(events))
        if self.offset is not None:
            time = parse_number_labels(columns[self.offset.column], na)
            time = np.clip(time, self.offset.lo, self.offset.hi)
        return self.task.encode(np.column_stack([events, time]))

    def clipped_columns(self, columns: Mapping[str, Column], na: tuple[str, ...]) -> BoolArray:
        """Return a mask of the labels that were clipped to bounds: of the count, or of the time."""
        number = parse_number_labels(columns[self.column], na)
        outside = (number < self.lo) | (number > self.hi)
        if self.offset is not None:
            time = parse_number_labels(columns[self.offset.column], na)
            outside |= (time < self.offset.lo) | (time > self.offset.hi)
        return np.asarray(outside)


ColumnLabel = Label | ClassLabel | NumberLabel
RateLabel = EventLabel | CountLabel
AnyLabel = ColumnLabel | RateLabel
_KINDS: tuple[type[AnyLabel], ...] = (Label, ClassLabel, NumberLabel, EventLabel, CountLabel)
_OPTIONAL = ("negative", "unit", "event_code", "offset")


def _require_texts(*given: object) -> None:
    if not all(isinstance(text, str) and text for text in given):
        raise SchemaError("label", None, "names and values of a label must be texts", _WRITE)


def parse_number_labels(column: Column, na: tuple[str, ...]) -> Array:
    """Parse each value by itself as a number, NaN where it is none.

    A stray text in one row must not change how other rows are read.
    """
    if column.dtype.kind in "iuf":
        with np.errstate(over="ignore"):
            # Adding 0.0 gives zero one sign.
            return (
                np.where(mask_of_marked_numbers(column, na), np.nan, column.astype(np.float64))
                + 0.0
            )
    marks = identities_of_marks(na)
    if (at_once := numbers_at_once(column, marks)) is not None:
        many, missing = at_once
        return np.where(missing, np.nan, many) + 0.0
    numbers = np.full(len(column), np.nan)
    for k, value in enumerate(values_one_by_one(column)):
        with suppress(ValueError, OverflowError):
            if canonical_text(value_as_text(value)) not in marks:
                numbers[k] = value_as_number(value)
    return numbers


def label_from_entry(given: object, offset: object = None) -> AnyLabel | None:
    """Read the label of a schema's ``label`` entry, or raise a SchemaError.

    The inverse of :func:`label_to_entries`.  `offset` is the schema's entry of that name, which
    counts of events may have.
    """
    label = _label_without_offset(given)
    if offset is None:
        return label
    if not isinstance(label, CountLabel):
        rule = "is the time in which events were counted, and needs a label with family"
        raise SchemaError("offset", None, rule, 'write family = "poisson" in the label')
    if not isinstance(offset, Mapping) or set(offset) != {"column", "lo", "hi"}:
        raise SchemaError("offset", None, "must have column, lo and hi", _WRITE_OFFSET)
    seen = TimeSeen(*(_convert_label_entry(key, offset[key]) for key in ("column", "lo", "hi")))
    return replace(label, offset=seen)


def _label_without_offset(given: object) -> AnyLabel | None:
    """Read the ``label`` entry alone."""
    if given is None:
        return None
    for kind in _KINDS:
        names = [field.name for field in fields(kind) if field.name != "offset"]
        needed = [name for name in names if name not in _OPTIONAL]
        if isinstance(given, Mapping) and set(needed) <= set(given) <= set(names):
            return kind(**{key: _convert_label_entry(key, value) for key, value in given.items()})
    rule = (
        "must have column and positive (negative is optional), or column and values, or column, "
        "lo and hi (with family for counts), or event, time and cuts"
    )
    raise SchemaError("label", None, rule, _WRITE)


def _convert_label_entry(key: str, value: Any) -> Any:
    """Convert one entry of a label's declaration: texts to texts, bounds as they are."""
    try:
        if key == "values":
            if isinstance(value, str):
                raise TypeError
            return tuple(map(declared_text, value))
        if key == "cuts":
            return tuple(map(_bound_number, value))
        if key in ("lo", "hi"):
            return value
        return declared_text(value)
    except TypeError:
        what = {"values": "a list of texts", "cuts": "a list of numbers"}.get(key, "text")
        raise SchemaError("label", None, f"{key} must be {what}", _WRITE) from None


def _bound_number(value: object) -> float:
    """Return a declared number; a TypeError for anything else."""
    number = real_number_or_none(value)
    if number is None:
        raise TypeError("a number is needed")
    return float(number)


def label_to_entries(label: AnyLabel) -> dict[str, Any]:
    """Return a label's declaration as plain data of JSON and TOML types."""
    entries: dict[str, Any] = {}
    for key, value in asdict(label).items():
        # The offset is an entry of the schema.
        if key == "offset":
            continue
        if isinstance(value, tuple):
            entries[key] = list(value)
        elif value is not None and (key, value) != ("unit", ""):
            entries[key] = value
    return entries


def offset_to_entries(label: AnyLabel | None) -> dict[str, Any] | None:
    """Return the schema's ``offset`` entry as plain data; None without one."""
    if isinstance(label, CountLabel) and label.offset is not None:
        return asdict(label.offset)
    return None


def refuse_rates(task: Task) -> None:
    """Refuse labels of events with times, or of counts, where only inference fits them.

    Raises
    ------
    InvalidInput
        If `task` is of events.
    """
    if isinstance(task, EventRate):
        rule = "of events with times, or of counts, has rates with intervals alone"
        raise InvalidInput("label", None, rule, "use `sottovoce train --inference`")


def build_rows_for_task(
    task: Task, parts: Sequence[tuple[Any, Array]], weights: Sequence[Array] | None = None
) -> Rows:
    """Stack the encoded rows and labels of every site, as the learning task asks.

    Parameters
    ----------
    task : Task
        By which labels were encoded.
    parts : sequence of (X of shape (n_i, d), y of shape (n_i,))
        Rows in the unit ball and labels of every site.  A row without a known label must be a row
        of zeros.
    weights : sequence of ndarray of shape (n_i,), optional
        Sample weights of every site's rows, in [0, 1].

    Returns
    -------
    Rows
        Of two classes, of several, or with numbers to predict.

    Raises
    ------
    InvalidInput
        On all that :meth:`Rows.build_from_parts` and :meth:`Rows.with_weight` refuse, and for
        labels of events (:func:`refuse_rates`).
    """
    refuse_rates(task)
    if isinstance(task, ManyClasses):
        rows = Rows.build_with_classes([(X, y.astype(np.intp)) for X, y in parts], task.outputs)
    elif isinstance(task, BoundedNumber):
        rows = Rows.build_from_parts(
            [(X, task.has_known_label(y).astype(float)) for X, y in parts],
            numbers_to_predict(parts),
        )
    else:
        rows = Rows.build_from_parts(parts)
    if weights is None:
        return rows
    return rows.with_weight(weights)


def require_two_classes(task: Task, field: str, *, weighs: bool = False) -> None:
    """Refuse labels of another kind than two classes, and weighted rows, for what supports neither.

    Parameters
    ----------
    task : Task
        The learning task of a schema.
    field : str
        Named by the error: the function or option that supports two classes only.
    weighs : bool
        Whether the schema declares weights.

    Raises
    ------
    InvalidInput
        If `weighs`, or `task` is no task of two classes.
    """
    if weighs:
        rule = "counts every row once, but this schema declares weights"
        raise InvalidInput(
            field, None, rule, "leave weight and class_weight out, or use `sottovoce train`"
        )
    if not isinstance(task, TwoClasses):
        rule = "needs labels of two classes, but this schema declares another kind"
        raise InvalidInput(field, None, rule, "declare two classes, or use `sottovoce train`")


def numbers_to_predict(parts: Sequence[tuple[Any, Array]]) -> list[Array]:
    """Return the numbers to predict of every site, 0 where there is none."""
    return [np.nan_to_num(y, nan=0.0) for _, y in parts]
