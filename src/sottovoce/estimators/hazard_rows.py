"""People as rows of intervals, with all of a person's rows protected together.

A person becomes one row for each interval entered: did the event come in it?  The rows are those of
a logistic regression with a constant for each interval.  An interval that a person leaves without
the event counts by the part that was seen.  One more row, of weight 0, holds the cell of the life
table in which the person leaves.  The weights are so small that together the rows count as one at
most, so the price of a row is the price of a person (docs/privacy/survival.md).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..answers.hazards import number_of_cells
from ..data.validation import run_without_data_in_errors
from ..data.values import (
    MISSING_MARKS,
    canonical_text,
    identities_of_marks,
    is_masked_array,
    objects_or_rows,
    value_as_number,
    value_as_text,
)
from ..errors import InvalidInput
from ..util.typing import Any, Array, BoolArray, IntArray
from .encoding import SLACK

SHARE = 0.5
"""Share of a row's squared norm that the interval's constant takes."""
FINE, COARSE = 1024, 8
"""Cells of the life table in each interval, without noise and with it: each cell adds noise to
those at risk.
"""
TRUTHS = {"1": "1", "true": "1", "0": "0", "false": "0"}
"""Texts of truth values, in lower case, as the number that they stand for."""


def person_weight(m: int, share: float = SHARE) -> float:
    """Compute the weight of each of a person's m rows: ``1 / sqrt(m (m s^2 + t^2))``.

    Here ``t^2 = share = 1 - s^2``.

    Rows are ``a_j = (x, t e_j)`` with ``|x| <= s``, and slopes are in [-1, 1].  Unweighted, the
    person's gradient has norm at most ``sqrt((m s)^2 + m t^2)``, attained by equal slopes, and the
    largest eigenvalue of the sum of ``a_j a_j'`` is at most ``m s^2 + t^2 <= sqrt(m (m s^2 +
    t^2))``.  Weighted, both are at most 1, as for one row in the unit ball.
    """
    return 1.0 / (math.sqrt(m * (m * (1.0 - share) + share)) * SLACK)


class Expanded(NamedTuple):
    """Rows with their weights and labels: 1 for the event, -1 for none, 0 for a row of zeros."""

    rows: Array
    label: Array
    weight: Array


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
        """Return the same of some of the people."""
        return Leaving(
            self.last[people], self.event[people], self.exposed[people], self.cell[people]
        )


def find_leaving_intervals(
    time: Array, event: BoolArray, known: BoolArray, edges: Array, cells: int
) -> Leaving:
    """Compute how each person leaves follow-up, by their own time and event alone.

    A person without a known event, or whose time is no number or not above the first edge, enters
    no interval.  An event after the last edge survives all of them, and so does a person who was
    seen until the last edge or longer.

    Parameters
    ----------
    time : array (n,)
    event, known : array of bool (n,)
    edges : array (m + 1,)
    cells : int
        Cells of the life table in an interval.

    Returns
    -------
    Leaving
        Arrays of shape (n,).
    """
    m = len(edges) - 1
    # A time that is no number is above nothing.
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


def expand_to_interval_rows(X: Array, leaves: Leaving, m: int, cells: int) -> Expanded:
    """Make rows of all people, m + 1 of each together.

    There is one for each interval, and one that holds a cell of the life table.

    Parameters
    ----------
    X : array (n, d)
        Columns, of norm at most 1.
    leaves : Leaving
    m, cells : int
        Intervals, and cells of the life table in each.

    Returns
    -------
    Expanded
        ``n (m + 1)`` rows of norm at most 1, with d + m + 1 columns.
    """
    n, d = X.shape
    interval = np.arange(m)
    last = leaves.last[:, None]
    label = np.where(interval <= last, -1.0, 0.0)
    label[(interval == last) & leaves.event[:, None]] = 1.0
    # Of the interval left last only a part was seen.
    part = np.where(interval == last, leaves.exposed[:, None], 1.0)
    weight = person_weight(m) * part * np.abs(label)
    rows = np.zeros((n, m + 1, d + m + 1))
    rows[:, :m, :d] = math.sqrt(1.0 - SHARE) / SLACK * X[:, None, :]
    rows[:, :m, d : d + m] = math.sqrt(SHARE) / SLACK * np.eye(m)
    rows[:, :m] *= np.abs(label)[:, :, None]
    rows[:, m, -1] = (leaves.cell + 1.0) / number_of_cells(m, cells)
    size = n * (m + 1)
    return Expanded(
        rows.reshape(size, d + m + 1),
        np.hstack([label, np.ones((n, 1))]).reshape(size),
        np.hstack([weight, np.zeros((n, 1))]).reshape(size),
    )


def read_survival_times(given: Any) -> Array:
    """Read times as numbers, each by itself; NaN for what is none."""
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
        The value that means the event; every other one that is not missing means that it did not
        come.  None for 1 and 0, and for "true" and "false" in any spelling: whatever else is not
        known.

    Returns
    -------
    array (n,)
    """
    texts = [_canonical_text(one) for one in _values_of_column("event", given)]
    if code is None:
        known = {"1": 1.0, "0": 0.0}
        return np.array([known.get(text, math.nan) for text in texts], dtype=np.float64)
    own = _canonical_text(code)
    # A code that looks like a missing value is declared, so it is none.
    missing = identities_of_marks(MISSING_MARKS) - {own}

    def coded(text: str) -> float:
        if text in missing:
            return math.nan
        return float(text == own)

    return np.array([coded(text) for text in texts], dtype=np.float64)


def _canonical_text(value: Any) -> str:
    """Return the text that stands for all values of one meaning: 1, 1.0, "1" and True are one."""
    text = canonical_text(value_as_text(value))
    return TRUTHS.get(text.casefold(), text)


def _number_or_nan(value: Any) -> float:
    """Read a number; NaN for what is none."""
    try:
        return value_as_number(value)
    except (ValueError, OverflowError):
        return math.nan


def _values_of_column(name: str, given: Any) -> list[Any]:
    """Return the values of a column, one a person; None for what a mask hides.

    Values of mixed types are not made one type first: one of them would change how the others are
    read.
    """
    if is_masked_array(given):
        hidden: Any = given.astype(object)
        given = hidden.filled(None)
    # What has a type already keeps it.
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


__all__ = [
    "Expanded",
    "Leaving",
    "expand_to_interval_rows",
    "find_leaving_intervals",
    "person_weight",
    "read_event_marks",
    "read_survival_times",
]
