"""The game of sums: the claim stands at t colluders and falls at t + 1, and planted faults are
refuted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from planting import planted

from sottovoce.algorithms import REGISTRY
from sottovoce.audit import attack, make_case
from sottovoce.audit.game import Case, Options, play, record_transcripts
from sottovoce.audit.one_run import audit_one_run
from sottovoce.audit.sums import TWICE, summing_cases
from sottovoce.audit.sums import play as play_sums
from sottovoce.errors import InvalidInput
from sottovoce.privacy.gaussian import gaussian_epsilon, gaussian_mu
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.runs.config import RunConfig
from sottovoce.util.typing import Array, IntArray

METHODS = [name for name, cls in REGISTRY.items() if cls.trust.kind == "sum"]
RUNS = 12_000


def test_every_method_of_sums_is_played_for_one_row_and_for_two() -> None:
    assert METHODS == ["sum_momentum", "sum_prox"]
    assert set(summing_cases()) == {name + mark for name in METHODS for mark in ("", TWICE)}
    for name, case in summing_cases().items():
        first, second = case.tables
        apart = np.flatnonzero(np.any(first.signed != second.signed, axis=(1, 2)))
        assert len(apart) == case.config.sites_per_row == (2 if TWICE in name else 1)
        # one honest site beside the person's and the colluding one
        assert len(first.n) == len(apart) + 2
        facts = record_transcripts(case, 0, 2, 0).facts
        assert facts.colluders == case.colluding_sites == 1 and len(set(facts.n[:, 0])) == 2


def test_the_claims_stand_against_as_many_colluders_as_they_allow_and_are_tight() -> None:
    verdict = attack("sums", replicates=RUNS)
    assert not verdict.refuted and 0.75 < verdict.lower_bound < verdict.claimed_epsilon
    assert verdict.claimed_epsilon == verdict.proved_epsilon == pytest.approx(1.0, abs=1e-4)
    assert verdict.releases == 2 and verdict.method == "sums"


@pytest.mark.parametrize("name", METHODS)
def test_one_colluder_more_refutes_the_claim(name: str) -> None:
    """Half of the noise is left: the epsilon of that many is above the claim, and the bound is
    below it.
    """
    verdict = play_sums(Options(replicates=RUNS, colluders=2), {name: summing_cases()[name]})
    true = gaussian_epsilon(verdict.delta, np.sqrt(2) * gaussian_mu(1.0, verdict.delta))
    assert verdict.refuted and 1.3 < verdict.lower_bound < true == pytest.approx(1.84, abs=0.01)


def test_fewer_colluders_give_a_smaller_bound() -> None:
    name = "sum_momentum"
    bounds = [
        play_sums(Options(replicates=RUNS, colluders=t), {name: summing_cases()[name]}).lower_bound
        for t in (0, 1)
    ]
    assert bounds[0] < 0.9 * bounds[1]


def test_a_person_at_two_sites_is_refuted_with_one_colluder_more() -> None:
    name = "sum_momentum" + TWICE
    assert play_sums(Options(replicates=RUNS, colluders=2), {name: summing_cases()[name]}).refuted


def test_more_colluders_than_other_sites_are_refused() -> None:
    for wrong in (-1, 3):
        with pytest.raises(InvalidInput, match=f"^colluders={wrong}: must be from 0 to 2"):
            play_sums(
                Options(replicates=100, colluders=wrong), {"one": summing_cases()["sum_prox"]}
            )


@pytest.mark.parametrize("method", METHODS)
def test_the_game_of_every_method_sees_sums_and_stands(method: str) -> None:
    verdict = play(make_case(method), 2000)
    assert not verdict.refuted and verdict.releases == 2
    case = make_case(method)
    seen = record_transcripts(case, 0, 3, 0)
    assert seen.asked == [] and len(seen.opened) == 2
    # of every sum the total, and the one colluding site's share
    assert seen.messages.shape == (
        3,
        2 * 2,
    )
    with pytest.raises(InvalidInput, match=r"^method='sum_"):
        audit_one_run(RunConfig(method=method, delta=1e-5), [(np.zeros((20, 30)), np.ones(20))] * 5)


# --- Planted faults -------------------------------------------------------------------------------


class Missing(KeyedNoise):
    """Site 1 adds no noise."""

    def draw_rounded_gaussian(self, d: int, tau: Array, release: int, use: int = 1) -> IntArray:
        drawn = super().draw_rounded_gaussian(d, tau, release, use)
        drawn[:, 1] = 0
        return drawn


class Common(KeyedNoise):
    """All sites draw the same noise, which whoever colludes knows."""

    def __init__(self, seed: int, replicates: Sequence[int], nodes: Sequence[int]) -> None:
        super().__init__(seed, replicates, nodes)
        self._streams = [(r, 0) for r, _ in self._streams]


class Again(KeyedNoise):
    """The noise of an attempt is that of the one before."""

    def draw_rounded_gaussian(self, d: int, tau: Array, release: int, use: int = 1) -> IntArray:
        return super().draw_rounded_gaussian(d, tau, 1, use)


@pytest.mark.parametrize("noise", [Missing, Common])
def test_a_missing_share_and_shares_that_others_know_are_refuted(noise: type[KeyedNoise]) -> None:
    case = summing_cases()["sum_momentum"]
    assert play(replace(case, noise=noise), RUNS).refuted


def test_noise_that_is_used_for_two_attempts_is_refuted() -> None:
    """With noise that grows from attempt to attempt: the two totals together give the row away."""

    def grown(case: Case) -> Case:
        return replace(case, config=replace(case.config, noise_growth=1.5))

    case = grown(summing_cases()["sum_momentum"])
    assert not play(case, 4000).refuted
    assert play(replace(case, noise=Again), 4000).refuted


GAME = """
import json
from sottovoce.audit.game import Options
from sottovoce.audit.sums import summing_cases, play
verdict = play(Options(replicates={runs}), {{"one": summing_cases()[{name!r}]}})
print(json.dumps([verdict.claimed_epsilon, verdict.lower_bound]))
"""
REFUTED = {
    "noise for all sites, as if none colluded": (
        "queries/sum_attempt.py",
        {"        return sites - self.facts.colluders": "        return sites"},
        "sum_momentum",
    ),
    "a small site weighs as much as a large one": (
        "queries/sum_attempt.py",
        {"self.facts.n / self.among.rows": "1.0 / self.among.sites"},
        "sum_momentum",
    ),
    "half the sensitivity of a gradient": (
        "queries/statistic.py",
        {
            "return gradient_sensitivity(facts, rows)": "return 0.5 * "
            "gradient_sensitivity(facts, rows)"
        },
        "sum_momentum",
    ),
    "a minimiser priced for a row that is added": (
        "queries/statistic.py",
        {
            "facts.gradients_changed * facts.C / (rows": "facts.loss.derivative_bound * facts.C "
            "/ (rows"
        },
        "sum_prox",
    ),
    "a person at two sites priced as two releases": (
        "privacy/events.py",
        {"self.alpha * np.sqrt(float(self.sites_per_row))": "1.0 * self.alpha"},
        "sum_momentum, two sites",
    ),
}
"""Faults with which a claim is false."""


@pytest.mark.parametrize("fault", REFUTED)
def test_a_fault_that_breaks_a_claim_is_refuted_by_the_audit(fault: str, tmp_path: Path) -> None:
    file, edits, name = REFUTED[fault]
    claimed, bound = planted(tmp_path, file, edits, GAME.format(runs=20_000, name=name))
    assert claimed == pytest.approx(1.0, abs=1e-4) and bound > claimed
