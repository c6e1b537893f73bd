"""People as rows of intervals, with all of a person's rows protected together.

A person becomes one row for each interval that they enter, labelled by whether the event came in
it. A logistic regression of these rows, with a constant for each interval, is the discrete-time
hazard model.  An interval that a person leaves without the event counts by the part that was seen.
One more row, of weight 0, holds the cell of the life table in which the person leaves.  The weights
are so small that a person's rows together count as one row at most, so the privacy loss for a row
is that for a person (docs/privacy/survival.md).

A person *leaves* follow-up with the event, or is censored.  A *cell* is a part of an interval in
which people who leave are counted, for the Kaplan-Meier curve.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..answers.hazards import number_of_cells
from ..data.follow_up import Leaving
from ..util.typing import Array
from .encoding import SLACK

SHARE = 0.5
"""Share of a row's squared norm that the interval's constant takes (s^2 = t^2 = 1/2 in
docs/privacy/survival.md).
"""
FINE, COARSE = 1024, 8
"""Cells of the life table in each interval, without noise and with it: with noise, each more cell
adds noise to the number at risk.
"""


def person_weight(m: int, share: float = SHARE) -> float:
    """Compute the weight of each of a person's m rows: ``1 / sqrt(m (m s^2 + t^2))``.

    Here ``t^2 = share = 1 - s^2``; the theorem is in docs/privacy/survival.md, "One person, up to m
    rows".

    Rows are ``a_j = (x, t e_j)`` with ``|x| <= s``, and slopes are in [-1, 1].  Unweighted, the
    person's gradient has norm at most ``sqrt((m s)^2 + m t^2)``, attained by equal slopes, and the
    largest eigenvalue of the sum of ``a_j a_j'`` is at most ``m s^2 + t^2 <= sqrt(m (m s^2 +
    t^2))``.  Weighted, both are at most 1, as for one row in the unit ball.
    """
    return 1.0 / (math.sqrt(m * (m * (1.0 - share) + share)) * SLACK)


class Expanded(NamedTuple):
    """Rows of all people, (rows, columns), with one label and one weight in [0, 1] for each row.

    Labels are 1 for the event, -1 for no event, 0 for an interval not entered (a row of zeros).
    """

    rows: Array
    label: Array
    weight: Array


def expand_to_interval_rows(X: Array, leaves: Leaving, m: int, cells: int) -> Expanded:
    """Make the rows of all people, m + 1 for each person, one person after the other.

    A person's first m rows are ``(s x, t e_j, 0)`` for the intervals j, zeros where it was not
    entered; the last one holds the cell of the life table in its last column.

    Parameters
    ----------
    X : array (n, d)
        A row of norm at most 1 for each person.
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


__all__ = [
    "Expanded",
    "expand_to_interval_rows",
    "person_weight",
]
