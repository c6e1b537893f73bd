"""Bisection of a property that holds for small arguments and fails for large ones."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .typing import Array, BoolArray


def bisect_unbounded(
    holds: Callable[[float], bool], start: float, relative_width: float
) -> tuple[float, float]:
    """Bracket the end of a property of positive numbers, by doubling and then bisection.

    Parameters
    ----------
    holds : callable
        Whether the property holds at a number; it is taken to hold at 0.
    start : float
        The first number tried; it is doubled as long as the property holds.
    relative_width : float
        The width of the result, as a share of its upper end.

    Returns
    -------
    tuple of float
        ``low`` and ``high``: the property holds at ``low`` (or ``low`` is 0) and fails at ``high``,
        both tried.  Both are infinite if the property holds at infinity.
    """
    low, high = 0.0, start
    while holds(high):
        if high == math.inf:
            return math.inf, math.inf
        # Doubling ends at infinity by overflow, so the loop ends for every property.
        low, high = high, 2.0 * high
    while high - low > relative_width * high:
        middle = 0.5 * (low + high)
        if holds(middle):
            low = middle
        else:
            high = middle
    return low, high


def bisect_elementwise(
    holds: Callable[[Array], BoolArray], low: Array, high: Array, halvings: int
) -> tuple[Array, Array]:
    """Bisect the end of a property between two arrays, element by element.

    Parameters
    ----------
    holds : callable
        From numbers of the arrays' shape to whether the property holds at each.
    low, high : array
        The property is taken to hold at ``low`` and to fail at ``high``.
    halvings : int
        Number of times the interval is halved.

    Returns
    -------
    tuple of arrays
        The last ``low`` and ``high``.
    """
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        at_middle = holds(middle)
        low = np.where(at_middle, middle, low)
        high = np.where(at_middle, high, middle)
    return low, high
