"""What public vectors may do to an answer: nothing that depends on rows, and nothing after a
charge.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.accountants import BestAccountant, PureAccountant
from sottovoce.privacy.events import RELATIONS, GaussianObjectivePerturbation
from sottovoce.privacy.noise import KeyedNoise, SystemNoise
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import HuberSVM, Logistic, Loss, Softmax
from sottovoce.queries import (
    GatedMinimiser,
    GaussianLaw,
    NoisyGradient,
    NoisyMinimiser,
    PerturbedObjective,
    SphericalLaw,
)
from sottovoce.queries.objective_noise import noise_of_law
from sottovoce.queries.reach import check_solve, minimiser_norm_bound, project_to_ball
from sottovoce.queries.statistic import gradient_sensitivity
from sottovoce.runs.row_guard import RowGuard
from sottovoce.solvers import descent
from sottovoce.solvers.local import Solver, certified_error

N, D, Q = 40, 3, 0.05


def facts(loss: Loss | None = None, *, pure: bool = False, tol: float = 1e-8) -> Facts:
    return Facts(loss or Logistic(), np.array([float(N)]), D, 1.0, 0.01, 1, tol=tol, pure=pure)


def endless_ledger(pure: bool) -> Ledger:
    """A ledger whose budget is never spent, by the accountant of the law."""
    if pure:
        return Ledger(PureAccountant(), math.inf, 0.0)
    return Ledger(BestAccountant(), math.inf, 1e-5)


def neighbours() -> tuple[Rows, Rows]:
    """Two tables that differ in one row."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, D))
    X /= 1.01 * np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    other = X.copy()
    other[0] = [-0.99, 0.0, 0.0]
    return Rows.build_from_parts([(X, y)]), Rows.build_from_parts([(other, y)])


def queries(linear: np.ndarray, start: np.ndarray, pure: bool) -> dict[str, Any]:
    a = np.array([0.5])
    law = SphericalLaw(np.array([0.3])) if pure else GaussianLaw(np.array([4.0]))
    gate = {
        "threshold": 0.1,
        "epsilon_threshold": a,
        "epsilon_queries": a,
        "positives": 2,
        "index": 1,
    }
    whole: dict[str, Any] = {
        "minimiser": NoisyMinimiser(start, a, "test", linear=linear, curvature=np.array([Q])),
        "gradient": NoisyGradient(start, a, "test"),
        "objective": PerturbedObjective(linear, np.array([Q]), start, law, "test"),
    }
    if not pure:
        whole["gate"] = GatedMinimiser(
            start, a, "test", linear=linear, curvature=np.array([Q]), **gate
        )
    return whole


SIZES = [0.0, 1.0, 1e3, 1e6, 3e6, 1e7, 1e9, 1e14, 1e30, 1e100, 1e200, 1e308, math.inf, math.nan]


@pytest.mark.parametrize("pure", [True, False])
@pytest.mark.parametrize("where", ["linear", "start"])
@pytest.mark.parametrize("kind", ["minimiser", "gradient", "objective", "gate"])
def test_refusals_are_the_same_for_neighbours_and_come_before_the_charge(
    kind: str, where: str, pure: bool
) -> None:
    """Growing vectors, along and across a row: each is answered on both tables, or refused on
    both and not charged.
    """
    if kind == "gate" and pure:
        return
    refused = []
    for size in SIZES:
        for sign in (1.0, -1.0):
            vector = np.array([sign * size, 0.0, 0.0])
            linear, start = (vector, np.zeros(D)) if where == "linear" else (np.zeros(D), vector)
            outcomes = []
            for rows in neighbours():
                ledger = endless_ledger(pure)
                guard = RowGuard(rows, facts(pure=pure), SystemNoise(), ledger)
                try:
                    answer = guard.charge_and_answer(queries(linear, start, pure)[kind])
                    assert np.all(np.isfinite(answer))
                    outcomes.append("answered")
                except InvalidInput as error:
                    assert not ledger.rows
                    outcomes.append(str(error))
            assert outcomes[0] == outcomes[1]
            refused.append(outcomes[0] != "answered")
    assert not refused[0]
    assert refused[-1] == ((kind, where) != ("gradient", "linear"))  # which has no linear term


@pytest.mark.parametrize("limit", [3, descent.MAX_ITERATIONS])
def test_every_solve_that_is_not_refused_reaches_its_certificate(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Random problems over twelve orders of magnitude, degenerate rows and jumping curvatures,
    from far starts.
    """
    monkeypatch.setattr(descent, "MAX_ITERATIONS", limit)
    rng, solved, newton = np.random.default_rng(1), 0, 0
    while solved < 150:
        n, d = int(rng.choice([1, 2, 10, 200])), int(rng.choice([1, 2, 8]))
        X = rng.normal(size=(n, d))
        X /= 1.01 * np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
        X *= 10.0 ** (rng.uniform(-6, 0) * (rng.random() < 0.3))
        X = np.tile(X[:1], (n, 1)) if rng.random() < 0.3 else X
        y = np.ones(n) if rng.random() < 0.3 else rng.choice([-1.0, 1.0], size=n)
        loss = [Logistic(), HuberSVM(0.5), HuberSVM(1e-3), HuberSVM(1e-5)][rng.integers(4)]
        q, C, tol = (
            10.0 ** rng.uniform(-6, 1),
            10.0 ** rng.uniform(-1, 3),
            10.0 ** rng.uniform(-9, -5),
        )
        f = Facts(loss, np.array([float(n)]), d, C, 1.0, 1, tol=tol)
        linear = rng.normal(size=d) * 10.0 ** rng.uniform(-3, 8)
        start = (
            rng.normal(size=d) * 10.0 ** rng.uniform(-3, 9) if rng.random() < 0.5 else -linear / q
        )
        curvature, pull = np.array([q]), np.linalg.norm(linear, keepdims=True)
        try:
            check_solve(f, tol, linear, start, curvature)
        except InvalidInput:
            continue
        near = project_to_ball(start, f, tol, pull, curvature)
        solution = Solver(Rows.build_from_parts([(X, y)]), loss, C).minimise(
            linear, curvature, near, tol
        )
        assert np.all(solution.gradient_norm <= tol * C)
        assert np.linalg.norm(solution.w) <= minimiser_norm_bound(
            f, pull, curvature
        ) + certified_error(C, tol, curvature)
        solved, newton = solved + 1, newton + (solution.iterations > limit)
    assert newton > 20 or limit > 3  # the way out was taken


def test_the_projection_moves_no_two_answers_apart_and_no_certified_one_at_all() -> None:
    f, rng, q, pull = facts(), np.random.default_rng(0), np.array([Q]), np.array([0.3])
    most = (minimiser_norm_bound(f, pull, q) + certified_error(f.C, f.tol, q)).item()
    x, y = rng.normal(size=(2, 500, D)) * 10.0 ** rng.uniform(-2, 4, size=(2, 500, 1))
    px, py = (project_to_ball(w, f, f.tol, pull, q) for w in (x, y))
    assert np.all(np.linalg.norm(px - py, axis=1) <= np.linalg.norm(x - y, axis=1) * (1 + 1e-12))
    assert np.all(np.linalg.norm(px, axis=1) <= most * (1 + 1e-12))
    short = x[np.linalg.norm(x, axis=1) <= most]
    assert len(short) > 20
    assert np.array_equal(project_to_ball(short, f, f.tol, pull, q), short)


def test_far_answers_are_as_noisy_as_near_ones() -> None:
    """A linear term of 1e5 moves the minimiser to 1e6 noise scales; what leaves is still the
    answer plus the noise.
    """
    rows, _ = neighbours()
    f, linear = facts(), np.array([1e5, 0.0, 0.0])
    query = queries(linear, np.zeros(D), False)["minimiser"]
    sigma = float(query.event(f).sigma[0])
    exact = Solver(rows, f.loss, f.C).minimise(linear, np.array([f.mu + Q]), np.zeros(D), f.tol).w
    for noise in (SystemNoise(), KeyedNoise(1, [0], [0], lead=())):
        ledger = Ledger(BestAccountant(), math.inf, 1e-5)
        errors = [
            (RowGuard(rows, f, noise, ledger).charge_and_answer(query) - exact) / sigma
            for _ in range(3)
        ]
        assert np.all(np.abs(errors) < 8.0)
        assert np.all(np.abs(errors) > 1e-6)


# --- Slopes ---------------------------------------------------------------------------------------


class Steep(HuberSVM):
    """Huber's hinge, five times as steep: 5 loss(z)."""

    derivative_bound = 5.0

    @property
    def curvature_bound(self) -> float:
        return 5.0 * super().curvature_bound


class TwoSided(Logistic):
    """A loss that does not say that its slope has one sign."""

    monotone = False


@pytest.mark.parametrize("loss", [Steep(), TwoSided(), Softmax(3)])
@pytest.mark.parametrize("law", [SphericalLaw(np.array([0.1])), GaussianLaw(np.array([10.0]))])
def test_noise_inside_an_objective_refuses_losses_whose_slopes_its_events_do_not_carry(
    loss: Loss, law: Any
) -> None:
    """At rate 0.1 and K -> infinity the event reads 2 x 0.1 = 0.2, and a slope of 5 costs 1.0."""
    f = facts(loss, pure=isinstance(law, SphericalLaw))
    query = PerturbedObjective(np.zeros(D), np.array([Q]), np.zeros(D), law, "test")
    with pytest.raises(InvalidInput, match="objective perturbation"):
        query.event(f)
    alone = NoisyMinimiser(np.zeros(D), np.array([0.5]), "test", curvature=np.array([Q]))
    assert float(alone.exact_sensitivity(f)[0]) >= 2 * loss.derivative_bound / (N * (f.mu + Q))


class Flat(HuberSVM):
    """Huber's hinge, a quarter as steep: loss(z) / 4."""

    monotone = True
    derivative_bound = 0.25

    @property
    def curvature_bound(self) -> float:
        return 0.25 * super().curvature_bound


@pytest.mark.parametrize("loss", [Logistic(), HuberSVM(0.5), Flat(0.5)])
@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_noise_inside_an_objective_is_scaled_for_the_slope_that_its_event_is_priced_for(
    loss: Loss, relation: str
):
    """Events state no slope bound below 1: noise for a flatter loss that used it would cost more
    than was asked for.
    """
    f, curvature, zero = (
        replace(facts(loss, pure=True), relation=relation),
        np.array([Q]),
        np.zeros(D),
    )
    query = PerturbedObjective(
        zero, curvature, zero, noise_of_law("spherical", np.array([0.5]), curvature, f), "test"
    )
    assert PureAccountant().epsilon_of_events([query.event(f)])[0] == pytest.approx(0.5, rel=1e-9)
    f = replace(f, pure=False)
    whole = noise_of_law("gaussian", np.array([0.5]), curvature, f)
    assert isinstance(whole, GaussianLaw)
    np.testing.assert_allclose(whole.sigma, RELATIONS[relation] / 0.5)


def test_losses_with_slopes_in_minus_one_to_zero_are_taken() -> None:
    for loss in (Logistic(), HuberSVM(0.5)):
        query = PerturbedObjective(
            np.zeros(D), np.array([Q]), np.zeros(D), GaussianLaw(np.array([10.0])), "test"
        )
        assert isinstance(query.event(replace(facts(), loss=loss)), GaussianObjectivePerturbation)


def test_a_gradient_as_computed_moves_no_further_than_its_sensitivity() -> None:
    """Its rounding is a share rows^2 u of what a row moves: covered, and nothing for tables of
    ordinary size.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(0.3, 0.99, size=(200_000, 1))
    solver = Solver(Rows.build_from_parts([(X, np.ones(len(X)))]), Logistic(), 1.0)
    exact = math.fsum(-0.5 * X[:, 0]) / len(X)
    some = replace(facts(), n=np.array([float(len(X))]), d=1)
    whole = gradient_sensitivity(some, some.n)
    assert abs(solver.gradient(np.zeros(1))[0] - exact) <= (whole - 2.0 / some.n)[0] / 2.0
    for rows, share in ((1e3, 1e-9), (3e7, 0.11)):
        n = np.array([rows])
        assert 0.0 < gradient_sensitivity(some, n)[0] * rows / 2.0 - 1.0 <= share
    assert gradient_sensitivity(some, np.array([1e9]))[0] > 10.0 * 2.0 / 1e9


def test_floating_point_traps_do_not_tell_neighbours_apart() -> None:
    """Under ``np.seterr(all="raise")``, or with warnings as errors, an underflow was an abort
    after the charge.
    """
    start, flat = np.array([-3000.0, 0.0, 0.0]), np.zeros((N, D))
    steep = flat.copy()
    steep[0, 0] = 0.99
    for X in (flat, steep):
        some, book = facts(), Ledger("zcdp", delta=1e-5)
        guard = RowGuard(
            Rows.build_from_parts([(X, np.ones(N))]), some, KeyedNoise(0, [0], [0], lead=()), book
        )
        with np.errstate(all="raise"):
            assert np.all(
                np.isfinite(guard.charge_and_answer(NoisyGradient(start, np.array([0.5]), "test")))
            )


@pytest.mark.parametrize(
    ("pure", "strange"), [(False, 1e200), (False, 1e305), (False, 1e-160), (True, 1e200)]
)
def test_noise_of_a_size_that_doubles_lose_is_refused_before_the_charge(
    pure: bool, strange: float
) -> None:
    """An answer over the grid's step passed 1e308, and the draw of a release that was charged
    failed.
    """
    book = endless_ledger(pure)
    guard = RowGuard(neighbours()[0], facts(pure=pure), SystemNoise(), book)
    with pytest.raises(InvalidInput, match=r"^(sigma|beta)=.*1e-150 and 1e\+150"):
        guard.charge_and_answer(NoisyGradient(np.zeros(D), np.array([strange]), "test"))
    assert not book.rows
    for least in (1e100, 1e-100):
        assert np.all(
            np.isfinite(
                guard.charge_and_answer(NoisyGradient(np.zeros(D), np.array([least]), "test"))
            )
        )
