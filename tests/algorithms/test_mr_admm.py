"""mr_admm: what even rounds need (002, Lemma 2), and noise on answers (section VII-B)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from cases import CASES
from parents import gradient
from problems import make_rows
from scipy.stats import kstest

from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.network.graphs import make_graph
from sottovoce.runs.simulate import RunConfig, simulate
from sottovoce.util.typing import Array

CASE = CASES["mr_admm"]


SITES: dict[str, Any] = {
    "epsilon": math.inf,
    "rounds": 6,
    "eta": 0.05,
    "seed": 0,
    "perturbation": "output",
    "method": "mr_admm",
}


def test_output_perturbation_is_priced_by_odd_rounds_and_moves_nothing_without_noise() -> None:
    rows = make_rows([60, 45, 80], 4)
    quiet = [
        simulate(RunConfig.from_dict(SITES | {"perturbation": where}), rows).models
        for where in ("output", "objective")
    ]
    np.testing.assert_array_equal(*quiet)
    noisy = simulate(RunConfig.from_dict(SITES | {"epsilon": 3.0, "noise": 1.0}), rows)
    assert [event["event"] for event in noisy.ledger] == ["ExactSphericalMechanism"] * 3
    # three odd rounds at epsilon 1 each
    assert noisy.privacy["epsilon"] == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (1.25, False), (0.8, False)])
def test_the_noise_of_output_perturbation_has_the_scale_that_is_priced(
    factor: float, passes: bool
) -> None:
    rows = make_rows([60, 45, 80], 4)
    run = RunConfig.from_dict(SITES | {"rounds": 1, "noise": 2.0, "replicates": 300})
    exact = simulate(RunConfig.from_dict(SITES | {"rounds": 1}), rows).models
    # (R, N), a sum of d exponentials
    length = np.linalg.norm(simulate(run, rows).models - exact, axis=-1)
    q = RunConfig().rho / 3 + 2 * 0.05 * 2  # a ring of three: two neighbours
    rate = 2.0 / (2.0 / (rows.n[:, 0] * q))
    assert (kstest((length * rate * factor).ravel(), "gamma", args=(4,)).pvalue > 1e-4) == passes


def test_several_classes_need_the_noise_on_the_answer() -> None:
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(50, 3)) / 4, rng.integers(3, size=50)) for _ in range(3)]
    parts = [(X / np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True)), y) for X, y in parts]
    rows = Rows.build_with_classes(parts, 3)
    config: dict[str, Any] = {**SITES, "loss": "softmax:3", "epsilon": 5.0}
    assert simulate(RunConfig.from_dict(config), rows).privacy["epsilon"] <= 5.0
    with pytest.raises(InvalidInput, match="loss"):
        simulate(RunConfig.from_dict(config | {"perturbation": "objective"}), rows)


@pytest.mark.parametrize("noise", [None, (300.0, 100.0, 200.0)])
def test_even_rounds_are_a_function_of_what_was_sent(noise: tuple[float, ...] | None) -> None:
    """Lemma 2, with penalties and noise of each node's own: (15) and (19) again, from the sent
    vectors alone.

    A gradient that is stored at an inexact minimiser is no such function: it differs by the
    solver's residual.
    """
    rows, net = make_rows([60, 45, 80], 4), make_graph("ring", 3)
    eta, growth, gamma, rounds = (0.05, 0.08, 0.06), (1.1, 1.2, 1.0), 0.02, 6
    sent: list[Array] = []
    config = RunConfig.from_dict(
        {
            "method": "mr_admm",
            "epsilon": math.inf,
            "noise": noise,
            "eta": eta,
            "eta_growth": growth,
            "gamma": gamma,
            "rounds": rounds,
            "tol": 1e-2,
            "seed": 0,
        }
    )
    simulate(
        config, rows, observers=[lambda k, state: sent.append(np.array(state.f).reshape(3, 4))]
    )
    V, A, facts = net.degree, net.adjacency, RunConfig()
    f, lam, residuals = np.zeros((3, 4)), np.zeros((3, 4)), []
    for k in range(1, rounds, 2):
        e = (np.array(eta) * np.array(growth) ** ((k - 1) // 2))[:, None]  # eta_i(2k-1)
        odd, even = sent[k - 1], sent[k]
        public = -2 * lam - e * (2 * V * odd - V * f - A @ f)  # the KKT condition of (18)
        stored = gradient(rows, facts.C, odd) + facts.rho / 3 * odd
        lam = lam + e / 2 * (V * odd - A @ odd)  # (15)
        step = [
            odd - (g + 2 * lam + e * (V * odd - A @ odd)) / (2 * e * V + gamma)
            for g in (public, stored)
        ]
        np.testing.assert_allclose(step[0], even, atol=1e-12)
        residuals.append(np.abs(step[1] - even).max())
        f = even
    assert min(residuals) > 1e-6


def test_what_is_sent_shows_every_penalty_of_a_node() -> None:
    """002, III-B1 calls them a node's private information: three messages and gamma > 0 give
    eta_i(2k-1), noise or not.

    In (19) with the KKT gradient lambda_i cancels: f_i(2k) - f_i(2k-1) is - eta / (2 eta V + gamma)
    times a sum of what was sent.
    """
    rows, net = make_rows([60, 45, 80], 4), make_graph("ring", 3)
    eta, growth, gamma, rounds = (0.05, 0.08, 0.06), (1.1, 1.2, 1.0), 0.02, 6
    sent: list[Array] = [np.zeros((3, 4))]
    config = RunConfig.from_dict(
        {
            "method": "mr_admm",
            "epsilon": math.inf,
            "noise": 300.0,
            "eta": eta,
            "eta_growth": growth,
            "gamma": gamma,
            "rounds": rounds,
            "seed": 0,
        }
    )
    simulate(
        config, rows, observers=[lambda k, state: sent.append(np.array(state.f).reshape(3, 4))]
    )
    for k in range(1, rounds, 2):
        before, odd, even = sent[k - 1 : k + 2]
        known = net.degree * before + net.adjacency @ before - 2 * net.adjacency @ odd
        # eta / (2 eta V + gamma)
        share = -np.sum((even - odd) * known, axis=1) / np.sum(known**2, axis=1)
        found = gamma * share / (1 - 2 * net.degree[:, 0] * share)
        np.testing.assert_allclose(
            found, np.array(eta) * np.array(growth) ** ((k - 1) // 2), rtol=1e-6
        )
