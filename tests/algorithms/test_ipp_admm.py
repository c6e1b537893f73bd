"""ipp_admm: what is particular to a gate."""

from __future__ import annotations

import math

import numpy as np
import parents
import pytest
from cases import CASES, FACTORS, LEVEL, accepts
from scipy import stats

from sottovoce.data.rows import Rows
from sottovoce.privacy.accountants import RDPAccountant
from sottovoce.privacy.events import GatedRelease
from sottovoce.runs.simulate import simulate
from sottovoce.solvers.local import Solver

CASE = CASES["ipp_admm"]


def test_without_noise_it_is_consensus_admm(rows: Rows) -> None:
    """Every round passes the gate: the same bits."""
    quiet = simulate(CASE.make(epsilon=math.inf), rows)
    parent = simulate(CASE.make(method="admm", epsilon=math.inf, delta=None), rows)
    assert np.array_equal(quiet.models, parent.models)


def test_no_more_is_sent_than_was_paid_for(rows: Rows) -> None:
    for positives, threshold in ((3, 0.0), (3, 50.0), (20, 0.0)):
        config = CASE.make(
            positives=positives, threshold=threshold, epsilon=100.0, replicates=4, rounds=12
        )
        recorder, _, _, ledger = CASE.spied(config, rows)
        sent = np.array([answer[..., -1] for _, answer in recorder.asked])
        assert set(np.unique(sent)) <= {0.0, 1.0}
        assert np.all(sent.sum(axis=0) <= positives)
        assert (sent.sum() > 0) == (threshold == 0.0)
        priced = [
            event.sensitivity_over_sigma().max() > 0
            for event in ledger.rows
            if isinstance(event, GatedRelease)
        ]
        assert priced == [k < positives for k in range(12)]
        assert [event.pure_epsilon_of_tests().max() > 0 for event in ledger.rows] == [True] + [
            False
        ] * 11  # type: ignore[attr-defined]


def test_the_gate_costs_its_tests_and_its_releases(rows: Rows) -> None:
    recorder, _, _, ledger = CASE.spied(CASE.make(positives=4), rows)
    event = ledger.rows[0]
    assert isinstance(event, GatedRelease)
    mu, tests = event.sensitivity_over_sigma(), event.pure_epsilon_of_tests()
    a, curve = np.array([2.0, 8.0]), RDPAccountant()
    curve._orders = (2.0, 8.0)
    spent = curve.zero_spending()
    for row in ledger.rows:
        spent = curve.add_event(spent, row)
    expected = 4 * a * mu[0] ** 2 / 2 + np.minimum(tests[0], a * tests[0] ** 2 / 2)
    np.testing.assert_allclose(spent[0, 0], expected)
    assert len(recorder.asked) == 10


@pytest.mark.parametrize("factor", FACTORS)
def test_noise_on_what_was_sent_has_the_law_of_the_event(rows: Rows, factor: float) -> None:
    """Answers of rounds that passed, less the exact minimiser; the gate does not look at their
    noise.
    """
    recorder, _, ledger = CASE.rescaled(CASE.make(rounds=3, replicates=200), rows, factor, [1])
    facts, found = recorder.facts, []
    for (query, answer), event in zip(recorder.asked, ledger.rows, strict=True):
        assert isinstance(event, GatedRelease)
        q = facts.mu + query.curvature  # type: ignore[attr-defined]
        exact = Solver(rows, facts.loss, facts.C).minimise(query.linear, q, query.start, 1e-12).w  # type: ignore[attr-defined]
        found.append(((answer[..., :-1] - exact) / event.sigma[:, None])[answer[..., -1] > 0])
    noise = np.concatenate(found)
    assert len(noise) > 1000
    assert accepts(noise, "gaussian") == (factor == 1)


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("place", ["threshold", "queries"])
def test_the_gate_passes_as_often_as_its_noise_says(rows: Rows, place: str, factor: float) -> None:
    """Two rounds against U5's ``Lap(D / e1)`` on a threshold drawn once and fresh ``Lap(2 c D /
    e2)`` on queries.

    Given the keyed noise of one of the two, a test passes if a Laplace variable of unit scale stays
    below a known margin.  Too much noise moves the chance towards 1/2 and too little away from it:
    the sum over tests of what happened less its chance, signed by the margin, is normal in the
    limit, and Bernoulli by Bernoulli of known variance.  Two-sided at level 1e-6.
    """
    positives, use = 2, {"threshold": 2, "queries": 3}[place]
    config = CASE.make(rounds=2, replicates=1000, positives=positives)
    recorder, noise, ledger = CASE.rescaled(config, rows, factor, [use])
    facts, event = recorder.facts, ledger.rows[0]
    assert isinstance(event, GatedRelease)
    D = facts.gradients_changed * facts.C / facts.n
    b_bar = D / event.epsilon_threshold[:, None]
    b_query = 2 * positives * D / event.epsilon_queries[:, None]
    bar = config.options.threshold * facts.C
    total = variance = 0.0
    for k, (query, answer) in enumerate(recorder.asked, start=1):
        w, terms = query.start, query
        whole = parents.gradient(rows, facts.C, w) + terms.linear + (facts.mu + terms.curvature) * w  # type: ignore[attr-defined]
        quality = np.linalg.norm(whole, axis=-1, keepdims=True)
        if place == "queries":
            margin = (quality - bar - b_bar * noise.draw_spherical(1, 1, use=2)) / b_query
        elif k == 1:
            margin = (quality - bar + b_query * noise.draw_spherical(1, k, use=3)) / b_bar
        else:
            break  # the same threshold again: nothing independent
        chance = stats.laplace.cdf(margin)
        total += float(np.sum(np.sign(margin) * (answer[..., -1:] - chance)))
        variance += float(np.sum(chance * (1 - chance)))
    z = total / math.sqrt(variance)
    assert (2 * stats.norm.sf(abs(z)) > LEVEL) == (factor == 1)
