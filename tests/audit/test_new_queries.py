"""A query that the audit was never told of: audited by what it says of itself, and refused where
it says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from sottovoce.algorithms.gradient import DGD, DescentState
from sottovoce.audit.exact import densities
from sottovoce.audit.game import Case, Transcripts, candidates, record_transcripts
from sottovoce.audit.likelihood import log_likelihood_ratio
from sottovoce.audit.one_run import plant_canaries, scores
from sottovoce.audit.worst_cases import make_case
from sottovoce.errors import InvalidInput
from sottovoce.privacy.events import Event, GaussianMechanism
from sottovoce.problem.facts import Facts
from sottovoce.queries import NoisyGradient, Query, Vault
from sottovoce.queries.audit_hooks import Canaries, Leaning, Supposed
from sottovoce.runs.config import RunConfig
from sottovoce.util.typing import Array

RUNS = 400


@dataclass(frozen=True)
class Silent(Query):
    """A noisy gradient, written as somebody would who adds a query and leaves the audit for
    later.
    """

    start: Array
    alpha: Array

    def _sigma(self, facts: Facts) -> Array:
        return np.asarray(
            facts.gradients_changed * facts.C / facts.n * (1.0 + 2.0**-20) / self.alpha
        )

    def event(self, facts: Facts) -> Event:
        sensitivity = self._sigma(facts) * self.alpha
        return GaussianMechanism("test", facts.relation, self._sigma(facts), sensitivity, facts.d)

    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        exact, sigma = vault.solver.gradient(self.start), self._sigma(facts)
        return vault.noise.add_gaussian(exact, sigma, 1e-9 * sigma, release, 1)

    def placeholder_answer(self, facts: Facts) -> Array:
        return np.zeros_like(self.start)


@dataclass(frozen=True)
class Told(Silent):
    """The same with all that the audit asks."""

    def log_density(self, supposed: Supposed, answer: Array) -> Array | None:
        residual = (answer - supposed.vault.solver.gradient(self.start)) / self._sigma(
            supposed.facts
        )
        return np.asarray(-0.5 * np.sum(residual**2, axis=(1, 2)))

    def canary_dependence(self, canaries: Canaries, answer: Array) -> Leaning | None:
        middle, lean = canaries.gradients(np.zeros(canaries.facts.d) + self.start.reshape(-1))
        sigma = float(np.max(self._sigma(canaries.facts)))
        return Leaning(canaries.sums * answer - middle, lean, (canaries.sums * sigma) ** 2)


def known(start: Array, alpha: Array) -> Query:
    """What the audit has always understood."""
    return NoisyGradient(start, alpha, "test")


def asking(query: Any) -> Any:
    """Gradient descent that asks `query`."""

    @dataclass(frozen=True)
    class Asks(DGD):
        def round(self, k: int, state: DescentState, site: Any) -> DescentState:
            assert self.noise is not None
            g = site.ask(query(state.f, self.noise(k)))
            f = state.f - (g + site.facts.mu * state.f) / self.penalty(k)
            return DescentState(f, site.net.neighbour_sum(f), f)

    return lambda algorithm: Asks(algorithm.penalty, algorithm.noise)


def case_of(query: Any, rounds: int) -> Case:
    return replace(make_case("dgd", delta=1e-5, rounds=rounds), algorithm=asking(query))


def played(query: Any, rounds: int = 2) -> Array:
    case = case_of(query, rounds)
    seen = [record_transcripts(case, table, RUNS, table) for table in (0, 1)]
    return np.concatenate(
        [log_likelihood_ratio(one.asked, candidates(case, one.facts)) for one in seen]
    )


def test_a_game_scores_a_query_by_its_own_density() -> None:
    told = played(Told)
    assert np.allclose(told, played(known), rtol=1e-4) and told.std() > 0.0


def test_a_query_without_a_density_is_scored_along_the_line_of_its_answers() -> None:
    """For one Gaussian release that is the likelihood ratio up to a factor."""
    assert np.corrcoef(played(Silent, 1), played(Told, 1))[0, 1] == pytest.approx(1.0, abs=1e-9)


def test_quadrature_takes_a_density_that_is_stated_and_refuses_without_one() -> None:
    at = densities(case_of(Told, 1)).epsilon_at_delta(1e-5)
    assert at == pytest.approx(densities(case_of(known, 1)).epsilon_at_delta(1e-5), rel=1e-3)
    with pytest.raises(InvalidInput, match=r"^method='dgd': .*closed form"):
        densities(case_of(Silent, 1))


def one_run(query: Any) -> tuple[Any, Transcripts]:
    rng, parts = np.random.default_rng(3), []
    for _ in range(3):
        X = rng.standard_normal((80, 10))
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0) * 1.01
        parts.append((X, np.where(X[:, 0] > 0, 1.0, -1.0)))
    planted = plant_canaries(parts, 30, seed=1)
    config = RunConfig(method="dgd", epsilon=8.0, delta=1e-5, rounds=2, loss="huber:0.5")
    case = Case(config, (planted.rows, planted.rows), 0, "", asking(query))
    return planted, record_transcripts(case, 0, 1, 1)


def test_canaries_are_read_by_what_a_query_says_of_them() -> None:
    odds = scores(*one_run(Told))
    assert np.allclose(odds, scores(*one_run(known)), rtol=1e-3) and np.abs(odds).max() > 0.5


def test_canaries_behind_a_query_that_says_nothing_are_refused_in_a_sentence() -> None:
    with pytest.raises(InvalidInput, match=r"^method='Silent': .*canaries"):
        scores(*one_run(Silent))
