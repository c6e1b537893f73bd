"""Lower bounds on epsilon from right and wrong guesses, at a stated confidence.

An (epsilon, delta) claim says ``P1(S) <= e^epsilon P0(S) + delta`` for every set S of transcripts.  An attack is a
score; S is a half-line of scores.  Which half-line is decided on one half of the replicates, and its two probabilities
are bounded on the other half (Clopper and Pearson 1934), each at half of the error that the confidence leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from ..errors import InvalidInput
from ..util.typing import Array, ArrayLike


def least_probability(hits: ArrayLike, trials: ArrayLike, error: float) -> Array:
    """Lower confidence limit of a probability, false with probability `error` (Clopper and Pearson)."""
    hits, trials = np.asarray(hits, dtype=float), np.asarray(trials, dtype=float)
    with np.errstate(invalid="ignore"):
        return np.where(hits > 0, betaincinv(hits, trials - hits + 1.0, error), 0.0)


def most_probability(hits: ArrayLike, trials: ArrayLike, error: float) -> Array:
    """Upper confidence limit of a probability, false with probability `error`."""
    hits, trials = np.asarray(hits, dtype=float), np.asarray(trials, dtype=float)
    with np.errstate(invalid="ignore"):
        return np.where(hits < trials, betaincinv(hits + 1.0, trials - hits, 1.0 - error), 1.0)


def epsilon_bound(
    true: ArrayLike, positives: ArrayLike, false: ArrayLike, negatives: ArrayLike, delta: float, confidence: float
) -> Array:
    """Lower bound on ``ln((P1(S) - delta) / P0(S))``, for `true` of `positives` and `false` of `negatives` in S."""
    error = 0.5 * (1.0 - confidence)
    over = least_probability(true, positives, error) - delta
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.log(over) - np.log(most_probability(false, negatives, error))
    return np.where(over > 0, np.maximum(bound, 0.0), 0.0)


@dataclass(frozen=True)
class Test:
    """The half-line ``sign * score >= threshold`` as the set S, more likely on table `table`."""

    __test__ = False  # not a test of pytest
    sign: float
    threshold: float
    table: int
    bound: float

    def verdict(self, scores: tuple[Array, Array], delta: float, confidence: float) -> float:
        """The bound from fresh scores of both tables."""
        hits = [int(np.sum(self.sign * x >= self.threshold)) for x in scores]
        a, b = self.table, 1 - self.table
        return float(epsilon_bound(hits[a], len(scores[a]), hits[b], len(scores[b]), delta, confidence))


def choose_test(scores: tuple[Array, Array], delta: float, confidence: float) -> Test:
    """The half-line with the largest bound, over all thresholds, both signs and both tables.

    The choice asks for more confidence, so that the best of thousands of thresholds is not merely the luckiest.
    InvalidInput if replicates are too few to see anything.
    """
    sizes = [len(x) for x in scores]
    if min(sizes) < 20:
        raise InvalidInput("replicates", min(sizes), "an audit needs at least 40 a table", "use --replicates 2000")
    careful = 1.0 - (1.0 - confidence) / 50.0
    best = Test(1.0, np.inf, 1, -1.0)
    for sign in (1.0, -1.0):
        sides = [np.sort(sign * x) for x in scores]
        cuts = np.unique(np.concatenate(sides))
        if len(cuts) > 4000:
            cuts = cuts[
                np.unique(
                    np.concatenate([np.arange(-1000, 0) % len(cuts), np.linspace(0, len(cuts) - 1, 3000).astype(int)])
                )
            ]
        hits = [size - np.searchsorted(side, cuts, side="left") for side, size in zip(sides, sizes, strict=True)]
        for a in (0, 1):
            bounds = epsilon_bound(hits[a], sizes[a], hits[1 - a], sizes[1 - a], delta, careful)
            k = int(np.argmax(bounds))
            if bounds[k] > best.bound:
                best = Test(sign, float(cuts[k]), a, float(bounds[k]))
    return best
