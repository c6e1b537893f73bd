"""Times and events of people, read value by value: the outcome of a survival study.

A person *leaves* follow-up with the event, or is censored.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..errors import InvalidInput
from ..util.typing import Any, Array, BoolArray, IntArray
from .values import (
    MISSING_MARKS,
    canonical_text,
    identities_of_marks,
    is_masked_array,
    objects_or_rows,
    value_as_number,
    value_as_text,
)

TRUTHS = {"1": "1", "true": "1", "0": "0", "false": "0"}
"""Texts of truth values, in lower case, with the text of the number that they stand for."""


class Leaving(NamedTuple):
    """The interval, kind and time at which each of n people leaves follow-up."""

    # (n,): the interval (edges[j], edges[j + 1]] entered last; -1 for none.
    last: IntArray
    # (n,): whether the event came in it.
    event: BoolArray
    # (n,): the part of it that was seen; 1 where the event came.
    exposed: Array
    # (n,): the cell of the life table, from 0.
    cell: IntArray

    def select_people(self, people: IntArray) -> Leaving:
        """Select the people of these indices."""
        return Leaving(
            self.last[people], self.event[people], self.exposed[people], self.cell[people]
        )


def find_leaving_intervals(
    time: Array, event: BoolArray, known: BoolArray, edges: Array, cells: int
) -> Leaving:
    """Compute how each person leaves follow-up, from that person's time and event alone.

    A person without a known event, or whose time is no number or not above the first edge, enters
    no interval.  A person with the event after the last edge, or seen until the last edge or
    longer, survives all intervals.

    Parameters
    ----------
    time : array (n,)
        Of the event or of the end of follow-up; NaN if unknown.
    event, known : array of bool (n,)
        Whether the event came, and whether that is known.
    edges : array (m + 1,)
    cells : int
        Cells of the life table in an interval.

    Returns
    -------
    Leaving
        Arrays of shape (n,).
    """
    m = len(edges) - 1
    # NaN compares as false, so a person without a time is not inside.
    inside = known & (time > edges[0])
    ends = np.where(inside, time, edges[-1])
    entered = np.minimum(np.searchsorted(edges[1:], ends, side="left"), m - 1)
    came = inside & event & (ends <= edges[-1])
    start, end = edges[entered], edges[entered + 1]
    part = np.minimum((np.minimum(ends, end) - start) / (end - start), 1.0)
    fine = np.clip(np.ceil(part * cells) - 1.0, 0.0, cells - 1.0).astype(np.intp)
    # Cells are numbered: m * cells with the event, m * cells left without it, the m ends of
    # intervals, and one for those who enter none.
    within = entered * cells + fine
    without = np.where(part >= 1.0, 2 * m * cells + entered, m * cells + within)
    return Leaving(
        last=np.where(inside, entered, -1),
        event=came,
        exposed=np.where(came, 1.0, part),
        cell=np.where(inside, np.where(came, within, without), 2 * m * cells + m),
    )


def read_survival_times(given: Any) -> Array:
    """Read times as numbers, (n,), each value by itself; NaN for what is no number."""
    return np.array(
        [_number_or_nan(one) for one in _values_of_column("time", given)], dtype=np.float64
    )


def read_event_marks(given: Any, code: Any = None) -> Array:
    """Read events, each by itself: 1 where one came, 0 where not, NaN where that is not known.

    Parameters
    ----------
    given : sequence
        Numbers, truth values, texts, or a mixture.
    code : optional
        The value that means the event; every other value that is not missing means no event.  None
        for 1 and 0, and "true" and "false" in any spelling; every other value is then unknown.

    Returns
    -------
    array (n,)
    """
    texts = [_canonical_text(one) for one in _values_of_column("event", given)]
    if code is None:
        known = {"1": 1.0, "0": 0.0}
        return np.array([known.get(text, math.nan) for text in texts], dtype=np.float64)
    own = _canonical_text(code)
    # A code such as "none", which would mark a missing value, means the event if it is declared.
    missing = identities_of_marks(MISSING_MARKS) - {own}

    def coded(text: str) -> float:
        if text in missing:
            return math.nan
        return float(text == own)

    return np.array([coded(text) for text in texts], dtype=np.float64)


def _canonical_text(value: Any) -> str:
    """Return one text for all spellings of a value: 1, 1.0, "1" and True all become "1"."""
    text = canonical_text(value_as_text(value))
    return TRUTHS.get(text.casefold(), text)


def _number_or_nan(value: Any) -> float:
    """Read one value as a number; NaN if it is not one."""
    try:
        return value_as_number(value)
    except (ValueError, OverflowError):
        return math.nan


def _values_of_column(name: str, given: Any) -> list[Any]:
    """Return the values of a column, one a person; None for what a mask hides.

    Values of mixed types are not made one type first: one of them would change how the others are
    read.
    """
    # Loads scikit-learn, which a command without such a column does not need.
    from .validation import run_without_data_in_errors

    if is_masked_array(given):
        hidden: Any = given.astype(object)
        given = hidden.filled(None)
    # Arrays and columns of frames have a type already, and keep it.
    convert: Any = objects_or_rows
    if hasattr(given, "dtype") or hasattr(given, "__array__"):
        convert = np.asarray
    column = run_without_data_in_errors(name, lambda: convert(given))
    if column.ndim != 1 or column.dtype.kind not in "biufOUST":
        rule = (
            f"must be one column of numbers, truth values or texts, but is {column.dtype} of "
            f"shape {column.shape}"
        )
        raise InvalidInput(name, None, rule, "give one value for each row of X")
    return list(column.tolist())


__all__ = ["Leaving", "find_leaving_intervals", "read_event_marks", "read_survival_times"]
