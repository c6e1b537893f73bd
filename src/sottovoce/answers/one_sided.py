"""A one-sided bound on the log-odds of a group of rows in which the rarer outcome was not seen.

It is the one end of an interval that a table still prints for such a group
(docs/privacy/answers.md, "Separation", "One end").  :func:`probability_at_least` is of use for the
lower end of groups with few such rows, too (:mod:`sottovoce.answers.few_outcomes`).

A group has n rows with mean margin (log-odds) ``mu``.  R of them have the rarer outcome, with the
expectation ``lambda``, the sum of the rows' chances of it.  Released is the count ``R + noise``.
The largest lambda that is compatible with the count is found from the exact distribution of a
Poisson number plus normal noise: a sum of independent events is no more often as small as k than a
Poisson number of the same mean, for every k up to the mean less one (Hoeffding 1956).  The mean
chance of rows whose chances are mostly below one half is at least the chance at their mean margin
(Jensen), so

    ``n expit(mu) <= lambda``,    mu <= logit(lambda / n),

and for rows that are mostly positive the same with signs exchanged.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from ..util import normal
from ..util.later import Later
from ..util.typing import Array

special = Later("scipy.special")

SELDOM = 0.1
"""Least probability of an interval's kind, of one end or of two, for which coverage is promised
among the intervals of that kind.
"""
# Steps of the search for a mean: upper limits up to 2^60, then bisection to full precision.
_DOUBLINGS = 60
_HALVINGS = 60
# Sums over a Poisson distribution end this many deviations above its mean.
_REACH = 12.0
# Above this mean a Poisson number with noise is taken to be normal.
_MANY = 1000.0
# All numbers that such a sum can need, and the logarithms of their factorials.
_NUMBERS = np.arange(math.ceil(_MANY + _REACH * math.sqrt(_MANY) + _REACH) + 1.0)
_LOG_FACTORIALS = np.cumsum(np.log(np.maximum(_NUMBERS, 1.0)))


def largest_mean(count: float, noise: float, alpha: float, printed: float = math.inf) -> float:
    """Compute the upper bound of a Poisson mean, given its number plus normal noise.

    It is exact for means up to `_MANY`, where the law of both is summed.  Given that only a count
    below `printed` has such a bound, it holds for means at which that happens with a probability of
    `SELDOM` or more.

    Parameters
    ----------
    count : float
        The released number.  A negative one counts as 0, so that lucky noise cannot make the bound
        sharper than that of a table without the outcome.
    noise : float
        Standard deviation of the normal noise in it.
    alpha : float
        One minus the confidence level of the bound.
    printed : float
        Threshold: larger counts get an interval of two ends.

    Returns
    -------
    float
        The mean at which the noisy number is at most `count` with probability `alpha`, among
        numbers below `printed`.
    """
    count = max(count, 0.0)

    def is_likely(mean: float) -> bool:
        one_end = 1.0
        if math.isfinite(printed):
            one_end = 1.0 - probability_at_least(printed, noise, mean, whole=True)
        return _probability_at_most(count, noise, mean) > alpha * max(one_end, SELDOM)

    high = 1.0
    for _ in range(_DOUBLINGS):
        if not is_likely(high):
            break
        high *= 2.0
    low = 0.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if is_likely(middle):
            low = middle
        else:
            high = middle
    return high


def largest_log_odds(
    count: float, noise: float, rows: float, alpha: float, printed: float = math.inf
) -> float:
    """Compute the upper bound of a group's mean margin towards its rarer outcome.

    Parameters
    ----------
    count : float
        Released number of rows with the rarer outcome.
    noise : float
        Standard deviation of the noise in it.
    rows : float
        Rows of the group.
    alpha : float
        One minus the confidence level of the bound.
    printed : float
        As for :func:`largest_mean`.

    Returns
    -------
    float
        Log-odds; infinite if half of the rows or more may have the rarer outcome.
    """
    if rows <= 0.0:
        return math.inf
    # n expit(mu) <= lambda (Jensen), so mu <= logit(lambda / n).
    chance = largest_mean(count, noise, alpha, printed) / rows
    if chance < 0.5:
        return math.log(chance / (1.0 - chance))
    # Jensen's inequality holds where chances are below a half.
    return math.inf


def probability_at_least(count: float, noise: float, mean: float, *, whole: bool = False) -> float:
    """Compute the probability that a Poisson number plus normal noise is `count` or more.

    Parameters
    ----------
    count : float
        The threshold.
    noise : float
        Standard deviation of the noise; 0 for none.
    mean : float
        Mean of the Poisson number.
    whole : bool
        Without noise, whether the probability of exactly `count` is added in full; else half of it
        is, as in a mid-p value.

    Returns
    -------
    float
    """
    if noise > 0.0:
        return 1.0 - _probability_at_most(count, noise, mean)
    more = 1.0 - _probability_at_most(count, 0.0, mean)
    with_count = 1.0 - _probability_at_most(count - 1.0, 0.0, mean)
    if whole:
        return with_count
    return 0.5 * (more + with_count)


def _probability_at_most(count: float, noise: float, mean: float) -> float:
    """Compute the probability that a Poisson number, plus noise, is `count` or less."""
    if noise == 0.0:
        # Without noise a count is a whole number but for rounding.
        most = math.floor(count + 1e-6)
        if most < 0:
            return 0.0
        return float(special.pdtr(most, mean))
    if mean > _MANY:
        return normal.normal_cdf((count - mean) / math.hypot(noise, math.sqrt(mean)))
    most = math.ceil(mean + _REACH * math.sqrt(mean) + _REACH)
    log_chances = _NUMBERS[: most + 1] * math.log(mean) - mean - _LOG_FACTORIALS[: most + 1]
    # Up to a power of two, so that nearby means find the same numbers.
    below = _noise_below(count, noise, 1 << most.bit_length())
    return float(np.exp(log_chances) @ below[: most + 1])


@lru_cache(maxsize=64)
def _noise_below(count: float, noise: float, numbers: int) -> Array:
    """Compute P(noise <= count - k) for each of the first `numbers` numbers k of `_NUMBERS`.

    Cached, because a search asks for the same count and noise at many means.
    """
    some = _NUMBERS[:numbers].tolist()
    return np.array([normal.normal_cdf((count - number) / noise) for number in some])
