"""Asymmetric intervals for groups of rows in which the rarer outcome was counted only a few times.

A *group* is the rows of one level, reference or site.  If its rarer outcome was counted x times in
n rows, its log-odds are about ``log(x / n)``, with a variance of ``1 / x + s^2 / x^2`` for noise of
deviation s in x.  A symmetric interval is too short towards fewer outcomes, for two reasons: the
distribution of the logarithm of a small count is skewed, and the interval has two ends only because
x was at least a threshold t (with a smaller x it has one end).  So the end on this side follows
from the distribution of the count itself, given that x >= t: it is at the least mean ``m`` at which

    ``P(X + noise >= x) <= alpha / 2 * max(P(X + noise >= t), SELDOM)``

fails, where X is a Poisson number of mean m, and without noise P(X = x) counts by half.  Among
groups that get two ends with a probability of `SELDOM` or more, an interval with two ends misses
the truth on this side with probability alpha / 2; for other groups the probability is smaller.

In a sum of lines a group takes part with a factor.  Its own squared distance to the end replaces
the group's normal variance in the variance of the sum ("recovery of variance estimates", Zou and
Donner 2008).  A binomial number is symmetric at a share of one half: what is added falls to 0
there.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..util import normal
from ..util.typing import Any, Array
from .one_sided import SELDOM, probability_at_least
from .separation import Undetermined

_FEW = 0.07
"""Relative error of a count up to which its logarithm is taken to be normal: 200 outcomes without
noise.
"""
# A smaller factor of a group in a sum is a rounding error.
_NONE = 1e-9
_HALVINGS = 30


def lower_end_of_mean(count: float, noise: float, printed: float, alpha: float) -> float:
    """Compute the lower end of an interval for the mean of a noisy count that was printed.

    Parameters
    ----------
    count : float
        The released number.
    noise : float
        Standard deviation of the normal noise in it.
    printed : float
        Threshold t: smaller counts are printed with one end only.
    alpha : float
        Twice the probability, over draws of the count, that the mean lies below the end.

    Returns
    -------
    float
        0 if there is no such end.
    """
    # The chance of such a count grows with the mean, so the end is found by bisection.
    low, high = 0.0, count
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        # A count of exactly `printed` gets two ends too: `whole` adds its probability in full.
        chance = max(SELDOM, probability_at_least(printed, noise, middle, whole=True))
        if probability_at_least(count, noise, middle) > 0.5 * alpha * chance:
            high = middle
        else:
            low = middle
    return low


class FewOutcomes(NamedTuple):
    """Groups of rows with few of the rarer outcome, but enough for intervals with two ends.

    Parameters
    ----------
    directions : array (groups, lines)
        Change of the lines that moves the margins of a group's rows by 1, and of no others.
    side : array (groups,)
        1 where the rarer outcome is the positive one, -1 where it is the negative one.
    rarer, noise : array (groups,)
        Noisy number of rows with the rarer outcome, and the standard deviation of its noise.
    printed : array (groups,)
        Smallest such number that gets two ends.
    rows : array (groups,)
        Number of rows of the group.
    """

    directions: Array
    side: Array
    rarer: Array
    noise: Array
    printed: Array
    rows: Array

    def squared_length_gains(self, weights: Array, alpha: float) -> Array:
        """Compute what is added to the squared half-widths of intervals about n sums of lines.

        Parameters
        ----------
        weights : array (n, lines)
            Weights of the lines in the sums.
        alpha : float
            One minus the confidence level, in (0, 1).

        Returns
        -------
        array (n, 2)
            At the low and at the high end.
        """
        gained = np.zeros((len(weights), 2))
        factors = weights @ self.directions.T
        for k in np.flatnonzero(np.any(np.abs(factors) > _NONE, axis=0)):
            own = self._gain_of_group(int(k), alpha)
            towards = factors[:, k] * self.side[k]
            # The group's own end takes the place of its normal law (Zou and Donner 2008): the low
            # end of a sum that grows with the rarer outcome, else the high one.
            for end, these in enumerate((towards > _NONE, towards < -_NONE)):
                gained[these, end] += towards[these] ** 2 * own
        return gained

    def _gain_of_group(self, k: int, alpha: float) -> float:
        """Return what the k-th group adds to a squared half-width, for a factor of 1.

        On the side of fewer outcomes; infinite if the count allows a mean of 0.
        """
        count, noise = float(self.rarer[k]), float(self.noise[k])
        least = lower_end_of_mean(count, noise, float(self.printed[k]), alpha)
        if least <= 0.0:
            return math.inf
        even = (normal.normal_quantile(alpha / 2.0) * _relative_error(count, noise)) ** 2
        # A binomial number is even to both sides at a share of one half: nothing is added there.
        uneven = 0.0
        if self.rows[k] > 0.0:
            uneven = max(0.0, 1.0 - 2.0 * count / float(self.rows[k]))
        return uneven * max(0.0, math.log(count / least) ** 2 - even)

    def to_plain(self) -> dict[str, Any]:
        """Return plain data, one list for each field."""
        return {name: array.tolist() for name, array in self._asdict().items()}

    @classmethod
    def from_plain_data(cls, plain: dict[str, Any], lines: int) -> FewOutcomes:
        """Construct from plain data of :meth:`to_plain`, for a table with this number of lines."""
        arrays = {name: np.array(plain[name], dtype=float) for name in cls._fields}
        # An empty list does not have the number of lines.
        arrays["directions"] = arrays["directions"].reshape(-1, lines)
        return cls(**arrays)


def ends_of_intervals(
    middle: Array, variance: Array, weights: Array, alpha: float, few: FewOutcomes | None
) -> tuple[Array, Array]:
    """Compute both ends of intervals about weighted sums of lines.

    Parameters
    ----------
    middle : array (n,)
        Estimates of the sums.
    variance : array (n,)
        Their variances.
    weights : array (n, lines)
        Weights of the lines in each sum.
    alpha : float
        One minus the confidence level, in (0, 1).
    few : FewOutcomes or None
        Groups with few outcomes, for which intervals are asymmetric.

    Returns
    -------
    low, high : array (n,)
    """
    squares = normal.normal_quantile(alpha / 2.0) ** 2 * np.maximum(variance, 0.0)
    gained = np.zeros((len(weights), 2))
    if few is not None:
        gained = few.squared_length_gains(weights, alpha)
    low = middle - np.sqrt(squares + gained[:, 0])
    high = middle + np.sqrt(squares + gained[:, 1])
    return low, high


def select_few_outcomes(found: Undetermined, into_lines: Array) -> FewOutcomes:
    """Select the groups of one replicate that have few of the rarer outcome.

    `into_lines`, (lines, d), maps encoded columns to the lines of the table.
    """
    # Groups that are `none` have one end; for those with many outcomes the normal law suffices.
    counted = found.groups.whole | found.groups.rare_ends
    few = counted & ~found.none & (found.rarer > 0.0)
    for k in np.flatnonzero(few):
        few[k] = _relative_error(float(found.rarer[k]), float(found.noise[k])) > _FEW
    return FewOutcomes(
        directions=found.groups.directions[few] @ into_lines.T,
        side=found.side[few],
        rarer=found.rarer[few],
        noise=found.noise[few],
        printed=found.printed[few],
        rows=found.rows[few],
    )


def _relative_error(count: float, noise: float) -> float:
    """Compute the relative error of a count, by sampling and noise together."""
    return math.sqrt(1.0 / count + (noise / count) ** 2)
