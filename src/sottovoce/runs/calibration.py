"""How much noise a price needs: one search for every event, method and accountant.

Its unknown is a *scale* per node, by which the noise's precision is multiplied.  Prices grow nearly as a power of
it, so the search takes secant steps in logarithms; every third halves the interval, so that it always ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..privacy.accountants import Accountant
from ..privacy.events import Event
from ..util.typing import Any, Array, ArrayLike, BoolArray

CLOSE = 1e-9
"""Share of a target that may be left unspent, where prices have a closed form."""
CLOSE_CONVOLVED = 1e-4
"""The same where a price may convolve distributions."""

_SPAN = 40.0  # of the logarithm of the scale
_REACH = 4.0  # while nothing is known on one side
_STEPS = 200


@dataclass(frozen=True)
class Scale:
    """What a search found, arrays of shape (N,)."""

    value: Array  # the scale, where the target was met
    spent: Array  # what it costs, never above the target there
    met: BoolArray  # whether any scale costs no more than the target
    dear: Array  # the smallest scale tried that costs more


def closeness(accountant: Accountant[Any]) -> float:
    """Share of a target that a search may leave unspent."""
    return CLOSE if accountant.name == "pure" else CLOSE_CONVOLVED


def largest_scale(price: Callable[[Array], Array], target: ArrayLike, close: float) -> Scale:
    """The scale, per node, whose price is at most `target` and at least ``(1 - close) target``.

    `price` maps scales (N,) to prices (N,), each growing with its node's scale: ``-inf`` where the noise would have to
    be infinite, below every target, and NaN where nothing is known of a node.
    """
    aims = np.asarray(target, dtype=float)
    low, high = np.full(aims.size, -_SPAN), np.full(aims.size, _SPAN)
    spent, over = np.full(aims.size, -np.inf), np.full(aims.size, np.inf)
    guess = np.zeros(aims.size)
    for trial in range(_STEPS):
        total = price(np.exp(guess))
        fits, fails = total <= aims, total > aims
        low, spent = np.where(fits, guess, low), np.where(fits, total, spent)
        high, over = np.where(fails, guess, high), np.where(fails, total, over)
        done = (aims * (1.0 - close) <= spent) | (high - low < 1e-12)
        if np.all(done):
            break
        guess = np.where(done, low, _next(low, high, spent, over, aims * (1.0 - 0.5 * close), trial % 3 == 2))
    met = (spent > 0.0) & (spent <= aims) & (low > -_SPAN)
    return Scale(np.exp(low), spent, met, np.exp(high))


def scale_for(
    events: Callable[[Array], Sequence[Event]], target: ArrayLike, accountant: Accountant[Any], delta: float
) -> Scale:
    """The scale at which ``events(scale)`` together cost each node at most its target, and not much less."""
    aims = np.asarray(target, dtype=float)

    def price(scale: Array) -> Array:
        return np.broadcast_to(accountant.total(events(scale), delta), aims.shape)

    return largest_scale(price, aims, closeness(accountant))


def _next(low: Array, high: Array, spent: Array, over: Array, aim: Array, halve: bool) -> Array:
    """The next guess, in logarithms of the scale."""
    middle = np.where(high >= _SPAN, np.minimum(low + _REACH, 0.5 * (low + high)), 0.5 * (low + high))
    middle = np.where((low <= -_SPAN) & (high < _SPAN), np.maximum(high - _REACH, 0.5 * (low + high)), middle)
    if halve:
        return middle
    with np.errstate(invalid="ignore", divide="ignore"):
        below, above, goal = np.log(spent), np.log(over), np.log(aim)
        both = low + (goal - below) * (high - low) / (above - below)
        one = np.where(np.isfinite(below), low + goal - below, high + goal - above)
        step = np.where(np.isfinite(below) & np.isfinite(above), both, one)
    return np.where((low < step) & (step < high), step, middle)
