"""Lower confidence bounds on epsilon from how often an attack is right and wrong.

An (epsilon, delta) claim says ``P1(S) <= e^epsilon P0(S) + delta`` for every set S of
transcripts.  An attack is a score; S is a half-line of scores.  Which half-line is decided on one
half of the replicates, and its two probabilities are bounded on the other half (Clopper and Pearson
1934), each at half of the error that the confidence leaves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from ..errors import InvalidInput
from ..util.typing import Array, ArrayLike


def probability_lower_limit(hits: ArrayLike, trials: ArrayLike, error: float) -> Array:
    """Return the one-sided lower confidence limit of a binomial probability (Clopper and Pearson).

    Parameters
    ----------
    hits : array_like of int
        Number of successes.
    trials : array_like of int
        Number of independent trials, at least `hits`; broadcast against it.
    error : float
        Probability, in (0, 1), that the limit exceeds the true probability, at most.

    Returns
    -------
    array
        Limits in the broadcast shape; 0 where nothing succeeded.
    """
    hits, trials = np.asarray(hits, dtype=float), np.asarray(trials, dtype=float)
    with np.errstate(invalid="ignore"):
        return np.where(hits > 0, betaincinv(hits, trials - hits + 1.0, error), 0.0)


def probability_upper_limit(hits: ArrayLike, trials: ArrayLike, error: float) -> Array:
    """Return the one-sided upper confidence limit of a binomial probability (Clopper and Pearson).

    Parameters
    ----------
    hits : array_like of int
        Number of successes.
    trials : array_like of int
        Number of independent trials, at least `hits`; broadcast against it.
    error : float
        Probability, in (0, 1), that the limit is below the true probability, at most.

    Returns
    -------
    array
        Limits in the broadcast shape; 1 where every trial succeeded.
    """
    hits, trials = np.asarray(hits, dtype=float), np.asarray(trials, dtype=float)
    with np.errstate(invalid="ignore"):
        return np.where(hits < trials, betaincinv(hits + 1.0, trials - hits, 1.0 - error), 1.0)


def epsilon_bound(
    true: ArrayLike,
    positives: ArrayLike,
    false: ArrayLike,
    negatives: ArrayLike,
    delta: float,
    confidence: float,
) -> Array:
    """Return a lower confidence bound on epsilon, ``ln((P1(S) - delta) / P0(S))``, from counts.

    Parameters
    ----------
    true : array_like of int
        Runs on one table whose transcript is in the set S, of `positives` runs.
    positives : array_like of int
        Runs on that table, on which S is claimed to be the more likely.
    false : array_like of int
        Runs on the other table whose transcript is in S, of `negatives` runs.
    negatives : array_like of int
        Runs on the other table.
    delta : float
        Delta of the claim.
    confidence : float
        Probability that the bound is true, at least; each of the two probabilities gets half of the
        remaining error.

    Returns
    -------
    array
        Bounds in the broadcast shape, at least 0.

    Examples
    --------
    >>> from sottovoce.audit import epsilon_bound
    >>> round(float(epsilon_bound(900, 1000, 100, 1000, delta=0.0, confidence=0.95)), 2)
    1.99
    """
    error = 0.5 * (1.0 - confidence)
    # The numerator is bounded from below and the denominator from above, so the ratio is bounded
    # from below (docs/explanation/audit.md, "The game").
    over = probability_lower_limit(true, positives, error) - delta
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.log(over) - np.log(probability_upper_limit(false, negatives, error))
    return np.where(over > 0, np.maximum(bound, 0.0), 0.0)


LEAST_SCORES = 20
"""Scores on each table without which :func:`choose_test` has nothing to choose from."""


def check_replicates(replicates: int, share: float = 0.5) -> None:
    """Check that there are enough runs of each table to choose a test on a share of them.

    Parameters
    ----------
    replicates : int
        Runs of each table.
    share : float
        Share of them that chooses the test, in (0, 1].

    Raises
    ------
    InvalidInput
        If that share is of fewer than :data:`LEAST_SCORES` runs.
    """
    if int(share * replicates) < LEAST_SCORES:
        rule = f"must be at least {math.ceil(LEAST_SCORES / share)} for each table"
        raise InvalidInput("replicates", replicates, rule, "use --replicates 2000")


@dataclass(frozen=True)
class Test:
    """A set S of scores, ``sign * score >= threshold``, that is more likely on one of the tables.

    Attributes
    ----------
    sign : float
        1 or -1.
    threshold : float
        Least value of ``sign * score`` in S.
    table : int
        The table, 0 or 1, on which S is the more likely.
    bound : float
        Lower bound on epsilon from the scores that chose S, which is optimistic.
    """

    # Not a test of pytest, which collects classes by this name.
    __test__ = False
    sign: float
    threshold: float
    table: int
    bound: float

    def epsilon_lower_bound(
        self, scores: tuple[Array, Array], delta: float, confidence: float
    ) -> float:
        """Return the lower bound on epsilon that this region gives on fresh scores.

        Parameters
        ----------
        scores : pair of array (m,)
            Scores of the runs on table 0 and on table 1; none of them may have chosen this test.
        delta : float
            Delta of the claim.
        confidence : float
            Probability that the bound is true, at least.

        Returns
        -------
        float
        """
        hits = [int(np.sum(self.sign * x >= self.threshold)) for x in scores]
        a, b = self.table, 1 - self.table
        bound = epsilon_bound(hits[a], len(scores[a]), hits[b], len(scores[b]), delta, confidence)
        return float(bound)


def choose_test(scores: tuple[Array, Array], delta: float, confidence: float) -> Test:
    """Choose the rejection region with the largest lower bound on epsilon.

    All thresholds, both signs and both tables compete.

    Parameters
    ----------
    scores : pair of array (m,)
        Scores of the runs on table 0 and on table 1; the verdict must use other runs.
    delta : float
        Delta of the claim.
    confidence : float
        Confidence of the verdict; the choice uses a higher one.

    Returns
    -------
    Test
        Its `bound` is the one of the choice, which is optimistic.

    Raises
    ------
    InvalidInput
        If a table has fewer than :data:`LEAST_SCORES` scores.
    """
    sizes = [len(x) for x in scores]
    if min(sizes) < LEAST_SCORES:
        rule = f"each table needs at least {LEAST_SCORES} to choose a test"
        raise InvalidInput("scores", min(sizes), rule, "use more replicates, such as 2000")
    # At a fiftieth of the error, the best of thousands of thresholds is not merely the luckiest.
    # Its bound need not be valid: the verdict rests on fresh runs.
    careful = 1.0 - (1.0 - confidence) / 50.0
    best = Test(1.0, np.inf, 1, -1.0)
    for sign in (1.0, -1.0):
        sides = [np.sort(sign * x) for x in scores]
        cuts = np.unique(np.concatenate(sides))
        # Keep the 1,000 largest thresholds, and 3,000 spread evenly by rank: the set that needs all
        # of epsilon may be rare, so the tail is not thinned.
        if len(cuts) > 4000:
            tail = np.arange(-1000, 0) % len(cuts)
            spread = np.linspace(0, len(cuts) - 1, 3000).astype(int)
            cuts = cuts[np.unique(np.concatenate([tail, spread]))]
        hits = [
            size - np.searchsorted(side, cuts, side="left")
            for side, size in zip(sides, sizes, strict=True)
        ]
        for a in (0, 1):
            bounds = epsilon_bound(hits[a], sizes[a], hits[1 - a], sizes[1 - a], delta, careful)
            k = int(np.argmax(bounds))
            if bounds[k] > best.bound:
                best = Test(sign, float(cuts[k]), a, float(bounds[k]))
    return best
