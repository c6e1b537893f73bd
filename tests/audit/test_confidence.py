"""Lower bounds from guesses: closed forms, coverage, and the choice of a test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from sottovoce.audit.confidence import (
    check_replicates,
    choose_test,
    epsilon_bound,
    probability_lower_limit,
    probability_upper_limit,
)
from sottovoce.errors import InvalidInput


@pytest.mark.parametrize(("hits", "trials"), [(0, 50), (1, 50), (37, 50), (50, 50)])
def test_probabilities_are_bounded_as_scipy_bounds_them(hits: int, trials: int) -> None:
    known = binomtest(hits, trials)
    low = known.proportion_ci(0.95, "exact")
    assert probability_lower_limit(hits, trials, 0.025) == pytest.approx(low.low, abs=1e-12)
    assert probability_upper_limit(hits, trials, 0.025) == pytest.approx(low.high, abs=1e-12)


def test_all_hits_against_none_matches_the_closed_form() -> None:
    least, most = 0.025 ** (1 / 100), 1 - 0.025 ** (1 / 100)
    assert epsilon_bound(100, 100, 0, 100, 0.0, 0.95) == pytest.approx(math.log(least / most))
    assert epsilon_bound(0, 100, 0, 100, 0.0, 0.95) == 0.0
    assert epsilon_bound(3, 100, 3, 100, 0.5, 0.95) == 0.0


def test_the_bound_is_below_the_truth_as_often_as_it_says() -> None:
    """Randomised response at epsilon 1: of 4,000 bounds at 90% at most 10% are above; 6 standard
    errors allowed.
    """
    rng = np.random.default_rng(0)
    p = math.e / (1 + math.e)
    true, false = rng.binomial(400, p, 4000), rng.binomial(400, 1 - p, 4000)
    above = np.mean(epsilon_bound(true, 400, false, 400, 0.0, 0.9) > 1.0)
    assert above <= 0.1 + 6 * math.sqrt(0.1 * 0.9 / 4000)
    assert np.mean(epsilon_bound(true, 400, false, 400, 0.0, 0.9)) > 0.6


def test_epsilon_bound_subtracts_delta() -> None:
    """A mechanism that tells all with probability 0.1 and nothing otherwise is (0, 0.1)-private."""
    rng = np.random.default_rng(1)
    scores = tuple(np.where(rng.random(20_000) < 0.1, w, 0.5) for w in (0.0, 1.0))
    test = choose_test((scores[0][:10_000], scores[1][:10_000]), 0.1, 0.95)
    assert test.epsilon_lower_bound((scores[0][10_000:], scores[1][10_000:]), 0.1, 0.95) < 0.05
    sharp = choose_test((scores[0][:10_000], scores[1][:10_000]), 0.0, 0.95)
    assert sharp.epsilon_lower_bound((scores[0][10_000:], scores[1][10_000:]), 0.0, 0.95) > 4


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_choose_test_finds_the_informative_tail(sign: float) -> None:
    """Table 1 alone reaches beyond 1, on either side."""
    rng = np.random.default_rng(2)
    first, second = rng.random(4000), rng.random(4000) * 1.5
    test = choose_test((sign * first, sign * second), 0.0, 0.95)
    assert test.table == 1 and test.sign == sign and 0.95 < test.threshold < 1.2


def test_uninformative_scores_give_a_bound_of_zero() -> None:
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(2, 4000))
    test = choose_test((scores[0, :2000], scores[1, :2000]), 0.0, 0.95)
    assert test.epsilon_lower_bound((scores[0, 2000:], scores[1, 2000:]), 0.0, 0.95) < 0.1


def test_too_few_scores_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^scores=10.* 20 "):
        choose_test((np.zeros(10), np.zeros(10)), 0.0, 0.95)


@pytest.mark.parametrize(("share", "least"), [(0.5, 40), (0.25, 80)])
def test_replicates_are_refused_by_their_own_number(share: float, least: int) -> None:
    check_replicates(least, share)
    with pytest.raises(InvalidInput, match=rf"^replicates={least - 2}.* {least} "):
        check_replicates(least - 2, share)
