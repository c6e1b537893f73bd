"""Certificates matched to noise: the noise grows by at most a thousandth, and what is recorded
keeps its meaning.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from problems import make_rows

from sottovoce import RunConfig
from sottovoce.problem.facts import EXACT, Facts
from sottovoce.problem.losses import Logistic
from sottovoce.queries.objective import PerturbedObjective
from sottovoce.queries.objective_noise import GaussianLaw, SphericalLaw
from sottovoce.queries.reach import INFLATION
from sottovoce.queries.statistic import NoisyMinimiser
from sottovoce.runs.prepare import prepare
from sottovoce.runs.simulate import simulate

D = 20


def facts(n: float, *, pure: bool, tol: float | None = None, C: float = 1.0) -> Facts:
    return Facts(Logistic(), np.array([[n], [2.0 * n]]), D, C, 0.01, 2, tol=tol, pure=pure)


@pytest.mark.parametrize("n", [5.0, 300.0, 8000.0, 40_000.0])
@pytest.mark.parametrize("q", [1e-3, 1.0])
def test_the_sensitivity_of_a_minimiser_grows_by_at_most_a_thousandth(n: float, q: float) -> None:
    start = np.zeros((2, D))
    query = NoisyMinimiser(start, np.ones((2, 1)), "", linear=start, curvature=q)
    public = facts(n, pure=True)
    exact = public.gradients_changed / public.strong_convexity_of(q)
    grown, before = (
        query.exact_sensitivity(one) / exact for one in (public, facts(n, pure=True, tol=EXACT))
    )
    assert np.all(grown > 1.0)
    assert np.all(grown <= np.maximum(1.0 + INFLATION, before) * (1 + 1e-12))
    assert np.all(grown >= before)  # never stricter
    assert np.all(grown[public.n <= INFLATION / (2 * EXACT)] <= 1.0 + INFLATION * (1 + 1e-9))


@pytest.mark.parametrize(
    ("pure", "gaussian"), [(False, False), (False, True), (True, False)]
)  # Gaussian: no pure price
@pytest.mark.parametrize(("n", "C", "q"), [(300.0, 1.0, 0.05), (2000.0, 1750.0, 4.0)])
def test_noise_on_the_answer_enlarges_a_release_by_at_most_a_thousandth(
    pure: bool, gaussian: bool, n: float, C: float, q: float
) -> None:
    """For every spectrum of the data term that the loss allows: drawn at random, flat, and all
    on one axis.
    """
    public, start, rng = facts(n, pure=pure, C=C), np.zeros((2, D)), np.random.default_rng(0)
    law = GaussianLaw(np.full((2, 1), 8.0)) if gaussian else SphericalLaw(np.full((2, 1), 0.3))
    query = PerturbedObjective(start, np.full((2, 1), q), start, law, "")
    polish, before = (
        sigma if gaussian or not pure else np.sqrt(D + 1) / rate  # deviation in a coordinate
        for rate, sigma in (
            query.noise_at(one).release for one in (public, replace(public, tol=EXACT))
        )
    )
    assert np.all(polish >= before)
    assert np.any(polish > 1.5 * before)
    inside = 8.0 if gaussian else np.sqrt(D + 1) / 0.3
    ones = np.zeros(D)
    ones[0] = 1.0
    for share in (
        np.full(D, 1 / D),
        ones,
        rng.dirichlet(np.ones(D)),
        rng.dirichlet(np.full(D, 0.05)),
    ):
        spectrum = C * public.loss.curvature_bound * share
        moved = np.sqrt(
            np.mean(
                (C / public.n * inside / (public.mu + q + spectrum)) ** 2, axis=1, keepdims=True
            )
        )
        assert np.all(
            (np.hypot(moved, polish) <= moved * (1.0 + 1.01 * INFLATION)) | (polish == before)
        )
    assert np.all(query.noise_at(public).solver_tolerance >= EXACT)


def test_answers_without_noise_for_the_solver_keep_the_exact_certificate() -> None:
    start, public = np.zeros((2, D)), facts(300.0, pure=True)
    assert NoisyMinimiser(start, None, "", curvature=1.0)._tol(public) == EXACT
    for law in (None, SphericalLaw(np.ones((2, 1)), polish=False)):
        assert (
            PerturbedObjective(start, np.ones((2, 1)), start, law, "")
            .noise_at(public)
            .solver_tolerance
            == EXACT
        )
    released = GaussianLaw(np.ones((2, 1)), release=np.ones((2, 1)))
    query = PerturbedObjective(start, np.ones((2, 1)), start, released, "")
    assert np.all(query.noise_at(facts(300.0, pure=False)).solver_tolerance == EXACT)
    assert (
        PerturbedObjective(start, np.ones((2, 1)), start, None, "", 1e-3)
        .noise_at(public)
        .solver_tolerance
        == 1e-3
    )


@pytest.mark.parametrize("method", ["prox_admm", "mr_admm"])
def test_a_given_tol_is_kept_and_records_say_which(method: str) -> None:
    run = RunConfig(method=method, epsilon=1.0, delta=1e-5, rounds=4)
    assert run.tol == EXACT  # what a record means that leaves it out
    assert RunConfig.from_dict({k: v for k, v in run.to_dict().items() if k != "tol"}) == run
    open_ = RunConfig(method=method, epsilon=1.0, delta=1e-5, rounds=4, tol=None)
    assert RunConfig.from_dict(open_.to_dict()) == open_
    n = np.full((5, 1), 500.0)
    for config, tol in ((run, EXACT), (open_, None)):
        prepared = prepare(config, n, D)
        assert prepared.facts.tol == tol
        assert Facts.from_dict(prepared.facts.to_dict()).tol == tol


@pytest.mark.parametrize("method", ["prox_admm", "mr_admm", "r_admm"])
@pytest.mark.parametrize("delta", [None, 1e-5])
def test_runs_cost_the_same_and_end_within_the_noise(method: str, delta: float | None) -> None:
    rows = make_rows([400, 300, 500], 5)
    found = [
        simulate(RunConfig(method=method, epsilon=2.0, delta=delta, rounds=4, tol=tol), rows)
        for tol in (None, 1e-8)
    ]
    loose, tight = (one.privacy["epsilon"] for one in found)
    assert loose <= 2.0
    assert math.isclose(loose, tight, rel_tol=1e-4)
    spread = np.linalg.norm(found[1].models[0])
    assert np.linalg.norm(found[0].models[0] - found[1].models[0]) <= 0.2 * spread
