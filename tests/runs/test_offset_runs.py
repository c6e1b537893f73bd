"""Whole runs on rows with a number to predict: where they end, what they charge, and what they
refuse first.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from problems import make_rows, make_targets
from scipy.optimize import minimize

from sottovoce.algorithms import REGISTRY
from sottovoce.data.rows import Rows
from sottovoce.deploy.local import run_sites
from sottovoce.errors import InvalidInput
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import Loss, make_loss
from sottovoce.queries import (
    GatedMinimiser,
    GaussianLaw,
    NoisyEpoch,
    NoisyGradient,
    NoisyMinimiser,
    PerturbedObjective,
    Query,
    RedrawnGate,
    SecretMinimiser,
    SecretStartObjective,
    SphericalLaw,
    Vault,
)
from sottovoce.queries.statistic import NoisyValue
from sottovoce.runs.auto_search import choose_method
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import RunConfig, pooled_minimiser, simulate
from sottovoce.runs.training import TrainConfig, train
from sottovoce.solvers.local import Solver
from sottovoce.util.typing import Any, Array

RHO, D = 0.3, 4
SPECS = ["huber-residual:0.25", "log-cosh:0.1"]
Parts = list[tuple[Array, Array]]


def build(parts: Parts) -> Rows:
    return Rows.build_from_parts([(X, np.ones(len(X))) for X, _ in parts], [t for _, t in parts])


def minimiser(parts: Parts, loss: Loss, weights: list[float]) -> Array:
    """SciPy's minimiser of ``sum_i weight_i sum_k loss(x_k.w - t_k) + rho/2 ||w||^2``."""

    def objective(w: Array) -> tuple[float, Array]:
        value, gradient = RHO / 2 * w @ w, RHO * w
        for (X, t), weight in zip(parts, weights, strict=True):
            value = value + weight * loss.value(X @ w - t).sum()
            gradient = gradient + weight * X.T @ loss.derivative(X @ w - t)
        return value, gradient

    options = {"ftol": 1e-16, "gtol": 1e-11, "maxiter": 5000}
    return np.asarray(
        minimize(objective, np.zeros(D), jac=True, method="L-BFGS-B", options=options).x
    )


# --- without noise --------------------------------------------------------------------------------

CONSENSUS = [
    "admm",
    "dvp",
    "pvp",
    "m_admm",
    "r_admm",
    "mr_admm",
    "pp_admm",
    "ipp_admm",
    "prox_admm",
]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("method", CONSENSUS)
def test_every_node_ends_at_the_pooled_minimiser(method: str, spec: str) -> None:
    parts = make_targets([200, 150, 260], D)
    run = RunConfig(
        method=method, epsilon=math.inf, rounds=200, rho=RHO, loss=spec, tol=1e-10, eta=0.15
    )
    expected = minimiser(parts, make_loss(spec), [1 / len(t) for _, t in parts])
    assert np.abs(simulate(run, build(parts)).models - expected).max() < 1e-6
    assert np.abs(expected).max() > 0.2


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("method", ["central", "central_gd"])
def test_a_curator_ends_at_the_minimiser_of_all_rows(method: str, spec: str) -> None:
    parts = make_targets([200, 150, 260], D)
    run = RunConfig(
        method=method,
        epsilon=math.inf,
        rounds=200,
        rho=RHO,
        loss=spec,
        tol=1e-10,
        eta=1e-9 if method == "central" else None,
    )
    expected = minimiser(parts, make_loss(spec), [3 / 610] * 3)
    assert np.abs(simulate(run, build(parts)).models - expected).max() < 2e-5
    np.testing.assert_allclose(pooled_minimiser(build(parts), run, l2=RHO / 3), expected, atol=1e-7)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("method", ["output", "prox_average", "dgd", "central_sgd"])
def test_averaging_methods_end_at_the_minimiser_if_sites_are_alike(method: str, spec: str) -> None:
    """Passes of `central_sgd` end near it, as far as the parts of the rows differ; on equal
    parts they are steps.
    """
    parts = make_targets([120], D) * 3
    knobs: dict[str, Any] = {
        "output": {"eta": 1e-9},
        "prox_average": {"eta": 1.0},
        "central_sgd": {"batches": 1},
    }
    run = RunConfig.from_dict(
        {
            "method": method,
            "epsilon": math.inf,
            "rounds": 300,
            "rho": RHO,
            "loss": spec,
            "tol": 1e-10,
            **knobs.get(method, {}),
        }
    )
    expected = minimiser(parts, make_loss(spec), [1 / 120] * 3)
    assert np.abs(simulate(run, build(parts)).models - expected).max() < 2e-5


# --- with noise -----------------------------------------------------------------------------------

ON_ANSWERS = [
    "prox_admm",
    "prox_average",
    "pvp",
    "output",
    "dgd",
    "central_gd",
    "central_sgd",
    "ipp_admm",
]


@pytest.mark.parametrize(
    ("method", "delta"),
    [
        (name, delta)
        for name in ON_ANSWERS
        for delta in (None, 1e-5)
        if delta or not REGISTRY[name].needs_delta
    ],
)
def test_methods_with_noise_on_answers_run_within_their_budget(
    method: str, delta: float | None
) -> None:
    rows = build(make_targets([200, 150, 260], D))
    result = simulate(
        RunConfig(method=method, epsilon=1.0, delta=delta, rounds=4, loss=SPECS[0]), rows
    )
    assert result.ledger and 0.9 < result.privacy["epsilon"] <= 1.0
    assert np.all(np.isfinite(result.models))


def test_real_sites_run_what_the_simulation_runs() -> None:
    rows = build(make_targets([60, 45], D))
    run = RunConfig(
        method="prox_admm", epsilon=1.0, delta=1e-5, rounds=3, loss=SPECS[1], replicates=2
    )
    result = simulate(run, rows)
    for i, (outcome, _) in enumerate(run_sites(run, rows, replicate=1)):
        np.testing.assert_allclose(outcome.state.mean, result.models[1, i], atol=1e-12)


def test_a_checkpoint_goes_on_bit_by_bit(tmp_path: Path) -> None:
    rows = build(make_targets([60, 45], D))
    run = RunConfig(method="prox_admm", epsilon=1.0, delta=1e-5, rounds=4, loss=SPECS[1])
    whole = simulate(run, rows)

    class Killed(Exception):
        pass

    def die(k: int, state: Any) -> None:
        if k == 3:
            raise Killed

    with pytest.raises(Killed):
        simulate(run, rows, checkpoint=tmp_path / "run.npz", observers=[die])
    np.testing.assert_array_equal(
        simulate(run, rows, checkpoint=tmp_path / "run.npz").models, whole.models
    )


# --- sensitivities, by search over pairs of tables ------------------------------------------------

N, Q = 6, 0.7


def facts_of(spec: str, relation: str = "replace-one") -> Facts:
    return Facts(make_loss(spec), np.array([float(N)]), 2, 1.0, 0.1, 1, relation, pure=False)


def statistics() -> dict[str, NoisyValue]:
    zero, alpha = np.zeros(2), np.array([1.0])
    return {
        "minimiser": NoisyMinimiser(zero, alpha, "test", None, 0.0, np.array([Q])),
        "gradient": NoisyGradient(zero, alpha, "test"),
        "secret": SecretMinimiser(
            zero, alpha, "test", None, 0.0, np.array([Q]), np.array([Q]), (np.array([Q]),)
        ),
    }


def neighbours(rng: np.random.Generator, relation: str) -> tuple[Rows, Rows]:
    """Random pairs, and pairs whose rows pull as hard as they can: along one axis, with targets
    at both ends.
    """
    X = rng.normal(size=(N, 2)) * 10.0 ** rng.uniform(-2, 0)
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True)) * (1 + 1e-12)
    t = rng.choice([-1.0, 1.0, 0.0], size=N) if rng.random() < 0.5 else rng.uniform(-1, 1, size=N)
    if rng.random() < 0.5:
        X[1:] = 0.0
    other, s, y = X.copy(), t.copy(), np.ones(N)
    if rng.random() < 0.5:
        X[0] = other[0] = [1.0, 0.0]
        t[0], s[0] = 1.0, -1.0
    else:
        other[0], s[0] = rng.uniform(-0.7, 0.7, size=2), rng.uniform(-1, 1)
    if relation == "zero-out":
        y[0] = 0.0
    return Rows.build_from_parts([(X, np.ones(N))], [t]), Rows.build_from_parts([(other, y)], [s])


@pytest.mark.parametrize("name", ["minimiser", "gradient", "secret"])
@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize("spec", ["huber-residual:0.05", "log-cosh:0.01"])
def test_no_pair_of_tables_passes_the_sensitivity_and_some_attain_it(
    spec: str, relation: str, name: str
) -> None:
    """Rows at 1 and at -1 on one axis pull with slopes -1 and 1: twice the slope bound, as with
    opposite classes.
    """
    facts, query, rng = facts_of(spec, relation), statistics()[name], np.random.default_rng(0)
    worst = 0.0
    for _ in range(300):
        answers = []
        for rows in neighbours(rng, relation):
            vault = Vault(Solver(rows, facts.loss, facts.C), KeyedNoise(0, [0], [0], lead=()))
            answers.append(query.exact_statistic(vault, facts))
        worst = max(worst, float(np.linalg.norm(answers[0] - answers[1])))
    most = float(query.exact_sensitivity(facts)[0])
    assert 0.99 * most < worst <= most


def test_one_pass_moves_one_gradient_only() -> None:
    facts = facts_of(SPECS[1])
    query = NoisyEpoch(np.zeros(2), np.array([1.0]), "test", batches=3, step=0.5)
    X, t = np.tile([1.0, 0.0], (N, 1)), np.ones(N)
    s = t.copy()
    s[4] = -1.0
    moved = []
    for part in range(3):
        pair = [
            Solver(Rows.build_from_parts([(X, np.ones(N))], [one]), facts.loss, 1.0)
            for one in (t, s)
        ]
        moved.append(
            float(
                np.linalg.norm(np.subtract(*(each.gradient(np.zeros(2), part, 3) for each in pair)))
            )
        )
    assert moved[0] == moved[2] == 0.0
    assert (
        0.99 * float(query.exact_sensitivity(facts)[0])
        < moved[1]
        <= float(query.exact_sensitivity(facts)[0])
    )


def test_the_gates_question_moves_no_more_than_a_gradient() -> None:
    """The gate asks how long the gradient at a public point is; both signs of slope, same bound."""
    facts, rng, worst = facts_of(SPECS[1]), np.random.default_rng(3), 0.0
    most = float(NoisyGradient(np.zeros(2), None, "test").exact_sensitivity(facts)[0])
    for trial in range(200):
        pair = neighbours(rng, "replace-one")
        w = rng.normal(size=2) * (trial > 0)
        rest = np.array([0.2, 0.0])
        lengths = [
            np.linalg.norm(Solver(rows, facts.loss, 1.0).gradient(w) + rest) for rows in pair
        ]
        worst = max(worst, float(abs(lengths[0] - lengths[1])))
    assert 0.5 * most < worst <= most
    gate = GatedMinimiser(
        np.zeros(2),
        np.array([0.5]),
        "test",
        None,
        0.0,
        np.array([Q]),
        0.1,
        np.array([0.1]),
        np.array([0.1]),
        2,
    )
    book = Ledger("zcdp", delta=1e-5)
    RowGuard(pair[0], facts, KeyedNoise(0, [0], [0], lead=()), book).charge_and_answer(gate)
    assert len(book.rows) == 1


# --- refusals -------------------------------------------------------------------------------------


def inside() -> dict[str, Query]:
    """Every query with noise inside an objective."""
    zero, q, alpha = np.zeros(2), np.array([Q]), np.array([0.1])
    spherical, gaussian = SphericalLaw(alpha), GaussianLaw(10 * alpha, release=alpha)
    before = statistics()["secret"]
    assert isinstance(before, SecretMinimiser)
    return {
        "spherical": PerturbedObjective(zero, q, zero, spherical, "test"),
        "gaussian": PerturbedObjective(zero, q, zero, gaussian, "test"),
        "secret start": SecretStartObjective(
            zero, q, zero, SphericalLaw(alpha, False), "test", None, Q, before
        ),
        "redrawn gate": RedrawnGate(
            zero, q, zero, gaussian, "test", None, 1.0, 0.1, alpha, alpha, 1, 1
        ),
    }


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", ["spherical", "gaussian", "secret start", "redrawn gate"])
def test_noise_inside_an_objective_is_refused_before_anything_is_charged(
    name: str, spec: str
) -> None:
    rows, _ = neighbours(np.random.default_rng(0), "replace-one")
    book = Ledger("rdp", delta=1e-5)
    guard = RowGuard(rows, facts_of(spec), KeyedNoise(0, [0], [0], lead=()), book)
    with pytest.raises(InvalidInput, match=r"objective perturbation.*derivatives"):
        guard.charge_and_answer(inside()[name])
    assert not book.rows


@pytest.mark.parametrize(
    "method", [name for name, cls in REGISTRY.items() if cls.objective_noise or name == "central"]
)
def test_methods_with_noise_inside_an_objective_refuse_residuals_and_spend_nothing(
    method: str, tmp_path: Path
) -> None:
    rows = build(make_targets([20, 15], D))
    delta = 1e-5 if REGISTRY[method].needs_delta else None
    run = RunConfig(method=method, epsilon=1.0, delta=delta, rounds=4, loss=SPECS[0])
    nodes = 1 if REGISTRY[method].trust.pools_rows else 2
    terms: dict[str, Any] = {} if delta is None else {"delta": delta, "accountant": "rdp"}
    with DurableLedger.create(tmp_path / "book", epsilon=5.0, n_nodes=nodes, **terms) as ledger:
        with pytest.raises(InvalidInput, match=r"objective perturbation.*derivatives"):
            simulate(run, rows, ledger=ledger)
        assert not ledger.runs


def test_class_labels_are_refused_in_one_sentence() -> None:
    run = RunConfig(epsilon=1.0, method="prox_admm", loss=SPECS[0])
    for call in (
        lambda: simulate(run, make_rows([20, 15], D)),
        lambda: train(TrainConfig(run=run, data="adult")),
        lambda: simulate(
            RunConfig(epsilon=1.0, method="prox_admm"), build(make_targets([20, 15], D))
        ),
    ):
        with pytest.raises(InvalidInput, match=r"^loss='.*': .*; use ") as error:
            call()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("delta", [None, 1e-5])
def test_auto_takes_momentum_where_it_has_a_delta_and_says_why_it_tries_nothing(
    delta: float | None,
) -> None:
    run = RunConfig(method="auto", epsilon=1.0, delta=delta, loss=SPECS[1])
    assert run.method == "prox_admm"
    chosen = choose_method(run, [200, 100], D)
    assert chosen.config.method == ("prox_admm" if delta is None else "momentum")
    assert "are numbers" in chosen.says
