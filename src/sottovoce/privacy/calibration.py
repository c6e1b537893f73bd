"""Calibration: the least noise whose privacy loss stays within a target epsilon.

One search serves every event, method and accountant.  Its unknown is a *scale* for each node, by
which the noise's precision (one over its standard deviation) is multiplied: the larger the scale,
the less noise and the larger epsilon.  What a scale costs is a function that the caller gives,
since callers read the same accountants in different ways: each node's total, the worst node's, that
of several sites together, or a paper's own claim.

Searches that invert one closed form to its last digits stay beside that form and use
:mod:`sottovoce.util.bisection`: :func:`sottovoce.privacy.gaussian.gaussian_mu` and
:func:`sottovoce.privacy.bounds.objective_perturbation_rate`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..util.typing import Any, Array, ArrayLike, BoolArray
from .accountants import Accountant

CLOSED_FORM_TOLERANCE = 1e-9
"""Share of a target that may be left unspent, where prices have a closed form."""
CONVOLUTION_TOLERANCE = 1e-4
"""The same where a price may convolve distributions."""

# Scales are searched from exp(-40) to exp(40).
_LOG_SPAN = 40.0
# Largest step towards a side of which nothing is known yet.
_LOG_REACH = 4.0
# A bracket this narrow ends the search, at a price that jumps.
_LOG_RESOLUTION = 1e-12
# Halvings alone, every third step, need 3 * log2(2 * span / resolution) = 139.
_MOST_TRIALS = 200

PriceOfScale = Callable[[Array], Array]
"""From a scale for each node, (N,), to the epsilon of each node, which broadcasts to (N,)."""


@dataclass(frozen=True)
class Calibration:
    """The result of :func:`calibrate`; arrays have shape (N,), an entry for each node.

    Parameters
    ----------
    scale : array
        The largest scale tried that keeps the target, where there is one.
    epsilon : array
        What that scale costs, as the price function gave it.
    met : array of bool
        Whether there is such a scale, and noise at it is finite.
    too_large : array
        The smallest scale tried that costs more than the target.
    """

    scale: Array
    epsilon: Array
    met: BoolArray
    too_large: Array


def tolerance_for(accountant: Accountant[Any]) -> float:
    """Return the share of a target that a calibration by this accountant may leave unspent."""
    if accountant.name == "pure":
        return CLOSED_FORM_TOLERANCE
    return CONVOLUTION_TOLERANCE


def calibrate(price: PriceOfScale, epsilon: ArrayLike, *, tolerance: float) -> Calibration:
    """Find the least noise that keeps a target epsilon, for all nodes at once.

    Parameters
    ----------
    price : callable
        The epsilon of each node by the scale of each node's noise, (N,) to (N,) or to one number
        for all.  A node's epsilon grows with its scale.  ``-inf`` says that a node's noise would
        have to be infinite at this scale, so that a larger scale is needed; NaN that nothing is
        known of a node now.
    epsilon : array_like
        The target of each node, (N,), positive.
    tolerance : float
        Share of the target that may be left unspent: see :func:`tolerance_for`.

    Returns
    -------
    Calibration
        ``met`` is False for nodes whose target no scale from ``exp(-40)`` to ``exp(40)`` keeps.

    Guarantee
    ---------
    Where ``met`` holds, ``price`` was evaluated at ``scale`` itself and gave ``epsilon``, which is
    positive and at most the target.  So the result never costs more than the target by the price
    that is given, however a price is rounded and whether or not it is monotone.  ``-inf`` is never
    the price of a result, nor is NaN, which is neither within a target nor beyond it.

    Notes
    -----
    That prices grow with the scale is needed for the other side only: it makes the lower end of the
    bracket the largest scale within the target, so that at least ``(1 - tolerance)`` of the target
    is spent where the price is continuous, and it makes a target that the search did not meet one
    that cannot be met.  Where a price jumps over the target, the search ends below the jump.

    Prices grow nearly as a power of the scale, so steps are secants between the logarithms of scale
    and price.  Every third step halves the bracket, so that the search ends for every monotone
    price.  A NaN leaves its node's bracket as it is; a node that is never priced is not met.
    """
    target = np.asarray(epsilon, dtype=float)
    aim = target * (1.0 - 0.5 * tolerance)
    bracket = _Bracket.initial_bracket(target.size)
    log_scale = np.zeros(target.size)
    for trial in range(_MOST_TRIALS):
        cost = np.broadcast_to(price(np.exp(log_scale)), target.shape)
        bracket = bracket.narrowed_bracket(log_scale, cost, target)
        nearly_all_spent = target * (1.0 - tolerance) <= bracket.cost_at_low
        finished = nearly_all_spent | (bracket.high - bracket.low < _LOG_RESOLUTION)
        if np.all(finished):
            break
        # Secants are fast on smooth prices; every third step halves, so that the search always
        # ends.
        if trial % 3 == 2:
            proposal = bracket.next_trial_scale()
        else:
            proposal = bracket.secant_scale(aim)
        log_scale = np.where(finished, bracket.low, proposal)
    any_within = bracket.low > -_LOG_SPAN
    met = any_within & (bracket.cost_at_low > 0.0) & (bracket.cost_at_low <= target)
    return Calibration(np.exp(bracket.low), bracket.cost_at_low, met, np.exp(bracket.high))


@dataclass(frozen=True)
class _Bracket:
    """Logarithms of scales within the target and beyond it, with what they cost; (N,) each."""

    low: Array
    high: Array
    cost_at_low: Array  # -inf before a scale within the target was priced
    cost_at_high: Array  # inf before a scale beyond the target was priced

    @classmethod
    def initial_bracket(cls, nodes: int) -> _Bracket:
        """Return the bracket before the first trial."""
        return cls(
            np.full(nodes, -_LOG_SPAN),
            np.full(nodes, _LOG_SPAN),
            np.full(nodes, -np.inf),
            np.full(nodes, np.inf),
        )

    def narrowed_bracket(self, log_scale: Array, cost: Array, target: Array) -> _Bracket:
        """Return the bracket after a trial.

        Parameters
        ----------
        log_scale : array of shape (N,)
            Logarithms of the scales that were tried.
        cost : array of shape (N,)
            Their epsilon; NaN is neither within the target nor beyond it.
        target : array of shape (N,)
            The target epsilon.

        Returns
        -------
        _Bracket
        """
        within = cost <= target
        beyond = cost > target
        return _Bracket(
            low=np.where(within, log_scale, self.low),
            high=np.where(beyond, log_scale, self.high),
            cost_at_low=np.where(within, cost, self.cost_at_low),
            cost_at_high=np.where(beyond, cost, self.cost_at_high),
        )

    def next_trial_scale(self) -> Array:
        """Return the middle, or a limited step towards a side on which no scale was priced yet."""
        middle = 0.5 * (self.low + self.high)
        nothing_above = self.high >= _LOG_SPAN
        nothing_below = (self.low <= -_LOG_SPAN) & ~nothing_above
        upwards = np.minimum(self.low + _LOG_REACH, middle)
        downwards = np.maximum(self.high - _LOG_REACH, middle)
        return np.where(nothing_above, upwards, np.where(nothing_below, downwards, middle))

    def secant_scale(self, aim: Array) -> Array:
        """Return where the cost would be `aim` if its logarithm were linear in that of the scale.

        Its slope is that between both ends, or 1 if only one of them was priced.  A step out of the
        bracket is replaced by the middle.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            log_low, log_high, log_aim = (
                np.log(self.cost_at_low),
                np.log(self.cost_at_high),
                np.log(aim),
            )
            both = self.low + (log_aim - log_low) * (self.high - self.low) / (log_high - log_low)
            from_low = self.low + log_aim - log_low
            from_high = self.high + log_aim - log_high
        low_priced, high_priced = np.isfinite(log_low), np.isfinite(log_high)
        one_end = np.where(low_priced, from_low, from_high)
        step = np.where(low_priced & high_priced, both, one_end)
        inside = (self.low < step) & (step < self.high)
        return np.where(inside, step, self.next_trial_scale())
