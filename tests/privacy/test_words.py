"""The privacy statement in words: the sentence that is printed is the one that is proved."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from sottovoce.privacy.gaussian import gaussian_mu
from sottovoce.runs.config import RunConfig
from sottovoce.runs.prepare import outline_run

N = np.full((5, 1), 8000.0)
SENTENCE = re.compile(
    r"whatever set of outcomes one looks at, its probability with (the row|these rows) is at most "
    r"(\S+) times its "
    r"probability with (another|an empty one|others|empty ones) in (its|their) place(?:, plus "
    r"([0-9.e-]+))?"
    r"(, and the other way round)?\."
)


def said(**knobs: Any) -> tuple[float, float, str]:
    """The factor and the addend of a run's sentence, and all of its words."""
    words = outline_run(RunConfig.from_dict(knobs), N, 36)["privacy"]["says"]
    found = SENTENCE.search(words)
    assert found is not None, words
    return float(found[2].replace("10^", "1e")), float(found[5] or 0.0), words


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-5), (4.0, 1e-6)])
def test_what_is_printed_holds_for_the_gaussian_mechanism_and_what_was_printed_does_not(
    epsilon: float, delta: float
) -> None:
    """The pair that needs all of (epsilon, delta): normals whose means are ``mu`` apart, one
    release.
    """
    factor, plus, words = said(method="prox_admm", epsilon=epsilon, delta=delta, rounds=1)
    mu = gaussian_mu(epsilon, delta)
    assert factor >= np.exp(epsilon) * (1 - 1e-9) and plus == delta
    # The worst sets are those where the loss is above a bar (Neyman and Pearson).
    bars = np.linspace(-12.0, 12.0, 48001)
    assert np.max(norm.sf(bars - mu) - factor * norm.sf(bars)) <= plus
    sharp = np.max(norm.sf(bars - mu) - np.exp(epsilon) * norm.sf(bars))
    assert 0.999 * plus < sharp <= plus * (1 + 1e-6)  # so nothing smaller could be said
    # Until now: "no outcome more than FACTOR times as likely, but for a probability of DELTA".
    likelier = norm.sf(np.log(factor) / mu - mu / 2)  # the probability of outcomes that are
    assert likelier > 5 * delta
    assert "times as likely" not in words and "but for" not in words


def test_likelier_outcomes_exceed_delta_16_times_at_epsilon_1_and_111_at_0_1() -> None:
    """The numbers of docs/privacy/index.md."""
    for epsilon, times in ((1.0, 16), (0.1, 111)):
        mu = gaussian_mu(epsilon, 1e-5)
        assert norm.sf(epsilon / mu - mu / 2) / 1e-5 == pytest.approx(times, abs=1.0)


def test_a_pure_run_adds_nothing() -> None:
    factor, plus, words = said(epsilon=1.0)
    assert (factor, plus) == (2.72, 0.0) and "plus" not in words


def test_wording_of_zero_out_says_both_directions() -> None:
    found = SENTENCE.search(said(epsilon=1.0, relation="zero-out")[2])
    assert found is not None and found[3] == "an empty one" and found[6] is not None
    # two rows in one place: either may be called the row
    assert "other way round" not in said(epsilon=1.0)[2]


def test_wording_of_rows_at_several_sites() -> None:
    words = said(epsilon=1.0, sites_per_row=2)[2]
    found = SENTENCE.search(words)
    assert found is not None
    assert (found[1], found[3], found[4]) == ("these rows", "others", "their")
    assert "2 sites" in words


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_wording_of_the_plain_sentences_claims_a_limit_and_refers_to_the_exact_one(
    relation: str,
) -> None:
    """Plain words promise no more than (epsilon, delta): a limit, which weakens as they grow."""
    plain, limit, exact, accountant, *_ = said(epsilon=1.0, relation=relation)[2].split("\n")
    assert (
        plain == f"epsilon = 1.000, delta = 0 (pure), proved for one row of one site ({relation})."
    )
    other = {"replace-one": "another", "zero-out": "an empty one"}[relation]
    assert limit == (
        "This limits how well the adversary described below can tell data with the row from data "
        f"with {other} in its place; the larger epsilon and delta, the weaker the limit."
    )
    assert SENTENCE.search(exact) and exact.startswith("Protects")
    assert accountant.startswith("Accountant: ")


def test_a_delta_is_not_rounded() -> None:
    """Six digits would print 1e-05 for a little more."""
    delta = 1.00000049e-5
    words = said(method="prox_admm", epsilon=1.0, delta=delta)[2]
    assert words.count("1.00000049e-05") == 2
