"""How sites differ, from a constant for each of them: a random-effects form, at no cost (docs/reference/answers.md).

Sites i = 1 ... K have effects t_i that are independent draws of N(m, tau^2), and their estimates are N(t, V) given
these, with the covariance V that the table knows, noise and what all sites have in common included.  Then at the true
tau, with ``W = (V + tau^2 I)^-1`` and the residuals r from the mean weighted by W, ``Q(tau^2) = r' W r`` is chi squared
with K - 1 degrees of freedom, and falls in tau^2 (Viechtbauer 2007, "Confidence intervals for the amount of
heterogeneity in meta-analysis").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..util.later import Later
from ..util.typing import Array

special = Later("scipy.special")

FEWEST = 3
"""Sites below which nothing is told of how they differ."""
_HALVINGS = 60


class Between(NamedTuple):
    """Effects of sites as draws of a normal population: its mean and spread, and what one more site may have.

    Ends of intervals are pairs.  `sites` are best predictions, drawn towards the mean, with their standard errors.
    """

    mean: float
    mean_ends: tuple[float, float]
    sd: float
    sd_ends: tuple[float, float]
    p: float  # of no difference at all
    next_ends: tuple[float, float]
    sites: tuple[tuple[float, float], ...]


def between(effects: Array, V: Array, alpha: float) -> Between:
    """Of K estimates (K,) and their covariance (K, K); intervals of level ``1 - alpha``.

    `sd` solves ``Q = K - 1`` (Paule and Mandel), and its interval holds all at which Q is no surprise: if no sd does,
    both ends are 0.  Intervals of the mean and of one more site are Student's with K - 1 degrees of freedom.
    """
    df, one = len(effects) - 1, np.ones(len(effects))

    def weighted(square: float) -> tuple[Array, float, float]:
        """W, the mean and the variance of the mean."""
        W = np.asarray(np.linalg.inv(V + square * np.eye(len(V))), dtype=float)
        variance = 1.0 / float(one @ W @ one)
        return W, variance * float(one @ W @ effects), variance

    def Q(square: float) -> float:
        W, mean, _ = weighted(square)
        return float((effects - mean) @ W @ (effects - mean))

    surprises = (special.chdtri(df, p) for p in (alpha / 2.0, 1.0 - alpha / 2.0))
    low, high, square = (_falls_to(Q, float(x)) for x in (*surprises, df))
    W, mean, variance = weighted(square)
    t = float(special.stdtrit(df, 1.0 - alpha / 2.0))
    drawn = mean + square * (W @ (effects - mean))
    # of t_i given the estimates, and what the mean's own error adds
    left = square * (1.0 - square * np.diag(W)) + (1.0 - square * (W @ one)) ** 2 * variance
    errors = np.sqrt(np.maximum(left, 0.0))

    def around(x: float) -> tuple[float, float]:
        return mean - t * x**0.5, mean + t * x**0.5

    return Between(
        mean, around(variance), square**0.5, (low**0.5, high**0.5), float(special.chdtrc(df, Q(0.0))),
        around(variance + square), tuple(zip(drawn.tolist(), errors.tolist(), strict=True)),
    )  # fmt: skip


def _falls_to(Q: Callable[[float], float], target: float) -> float:
    """The least square at which the falling Q is at most `target`."""
    if Q(0.0) <= target:
        return 0.0
    low, high = 0.0, 1.0
    while Q(high) > target:
        low, high = high, 4.0 * high
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if Q(middle) > target else (low, middle)
    return high
