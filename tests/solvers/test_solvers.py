"""The solver against scipy, its certificate against finite differences, and the ragged-rows
contract.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import make_rows
from scipy.optimize import minimize
from scipy.sparse import csr_array

from sottovoce.data.design import Columns, Dense
from sottovoce.data.rows import Rows
from sottovoce.data.sweep import Sweep, group_nodes_by_size
from sottovoce.errors import SolverError
from sottovoce.problem.clipped import clip_gradients
from sottovoce.problem.losses import HuberSVM, Logistic, Loss, Softmax
from sottovoce.solvers import preconditioner
from sottovoce.solvers.local import DataTerm, Solver, certified_error, rounding_bound

SIZES = [60, 7, 33]


def objective(loss: Loss, C: float, rows, i: int, linear, q: float):
    a = rows.signed[i, : int(rows.n[i, 0])]

    def value(w: np.ndarray) -> float:
        return float(C / len(a) * loss.value(a @ w).sum() + linear @ w + q / 2 * w @ w)

    def gradient(w: np.ndarray) -> np.ndarray:
        return C / len(a) * a.T @ loss.derivative(a @ w) + linear + q * w

    return value, gradient


@pytest.mark.parametrize(
    "loss", [Logistic(), HuberSVM(0.5), HuberSVM(0.05)], ids=lambda loss: loss.spec
)
@pytest.mark.parametrize(("C", "q"), [(1.0, 0.02), (1750.0, 4.0)])
def test_minimisers_of_all_nodes_and_replicates(loss: Loss, C: float, q: float) -> None:
    rows = make_rows(SIZES, 5)
    rng = np.random.default_rng(2)
    linear = C * 0.2 * rng.standard_normal((4, 3, 5))
    curvature = q * np.array([[1.0], [2.0], [3.0]])
    solution = Solver(rows, loss, C).minimise(linear, curvature, np.zeros((4, 3, 5)), 1e-10)
    assert np.all(solution.gradient_norm <= 1e-10 * C)
    for r in range(4):
        for i in range(3):
            value, gradient = objective(loss, C, rows, i, linear[r, i], curvature[i, 0])
            w = solution.w[r, i]
            assert np.linalg.norm(gradient(w)) <= 1.001e-10 * C + 1e-13 * C
            numeric = [(value(w + 1e-4 * e) - value(w - 1e-4 * e)) / 2e-4 for e in np.eye(5)]
            np.testing.assert_allclose(numeric, 0, atol=1e-5 * C)
            reference = minimize(
                value, np.zeros(5), jac=gradient, method="BFGS", options={"gtol": 1e-6 * C}
            )
            np.testing.assert_allclose(w, reference.x, atol=1e-3)
            assert value(w) <= reference.fun + 1e-9 * C


def test_one_node_alone_agrees_with_the_batch() -> None:
    rows = make_rows(SIZES, 5)
    linear = np.random.default_rng(3).standard_normal((3, 5))
    q = np.full((3, 1), 0.1)
    together = Solver(rows, Logistic(), 1.0).minimise(linear, q, np.zeros((3, 5)), 1e-12).w
    for i in range(3):
        alone = (
            Solver(rows.rows_of_node(i), Logistic(), 1.0)
            .minimise(linear[i], q[i], np.zeros(5), 1e-12)
            .w
        )
        assert alone.shape == (5,)
        np.testing.assert_allclose(alone, together[i], atol=1e-10)


def test_certificate_bounds_the_distance() -> None:
    """||w - w*|| <= ||grad|| / q, checked with a loose and a tight solve."""
    rows = make_rows(SIZES, 5)
    linear, q = np.ones((3, 5)), np.full((3, 1), 0.05)
    exact = Solver(rows, Logistic(), 1.0).minimise(linear, q, np.zeros((3, 5)), 1e-13).w
    loose = Solver(rows, Logistic(), 1.0).minimise(linear, q, np.zeros((3, 5)), 1e-2)
    distance = np.linalg.norm(loose.w - exact, axis=1, keepdims=True)
    assert np.all(distance <= loose.gradient_norm / q)
    assert np.all(distance <= certified_error(1.0, 1e-2, q))


def test_restored_solver_repeats_every_bit() -> None:
    rows = make_rows(SIZES, 5)
    rng = np.random.default_rng(4)
    problems = [rng.standard_normal((2, 3, 5)) for _ in range(7)]
    q = np.full((3, 1), 0.1)
    whole, w, answers = Solver(rows, Logistic(), 1.0), np.zeros((2, 3, 5)), []
    states = []
    for linear in problems:
        w = 0.5 * whole.minimise(linear, q, w, 1e-8).w  # a public start that is not the last answer
        answers.append(w)
        states.append((whole.state(), whole.secret_state()))
    for cut in (1, 3, 4):
        again, forgetful = Solver(rows, Logistic(), 1.0), Solver(rows, Logistic(), 1.0)
        again.restore(states[cut - 1][0] | states[cut - 1][1])
        forgetful.restore(states[cut - 1][0])
        w = answers[cut - 1]
        other = 0.5 * forgetful.minimise(problems[cut], q, w, 1e-8).w
        assert not np.array_equal(other, answers[cut])
        np.testing.assert_allclose(other, answers[cut], atol=1e-6)
        for linear, expected in zip(problems[cut:], answers[cut:], strict=True):
            w = 0.5 * again.minimise(linear, q, w, 1e-8).w
            assert np.array_equal(w, expected)


def count_sweeps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by one with every sweep."""
    seen: list[int] = []
    sweep = Sweep.sum_gradients

    def counted(self: Sweep, loss: Loss, w: np.ndarray) -> np.ndarray:
        seen.append(w.shape[1])
        return sweep(self, loss, w)

    monkeypatch.setattr(Sweep, "sum_gradients", counted)
    return seen


def test_a_solve_starts_at_the_last_answer_unless_its_own_start_is_far_nearer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, rng, zero = make_rows([60], 5), np.random.default_rng(12), np.zeros((3, 1, 5))
    first, second = 0.2 * rng.standard_normal((2, 3, 1, 5))
    q = np.full((1, 1), 0.5)
    exact = Solver(rows, Logistic(), 1.0).minimise(second, q, zero, 1e-12).w
    seen, taken = count_sweeps(monkeypatch), {}
    for name, known, start in (("fresh", False, zero), ("last", True, zero), ("told", True, exact)):
        solver = Solver(rows, Logistic(), 1.0)
        before = solver.minimise(first, q, zero, 1e-10).w
        if not known:
            solver.restore(solver.state())
        seen.clear()
        solution = solver.minimise(second, q, start if name == "told" else before, 1e-10)
        taken[name] = len(seen)
        np.testing.assert_allclose(solution.w, exact, atol=1e-9)
    assert taken["last"] == taken["fresh"] - 1 and taken["told"] <= 2


def test_no_certificate_rests_on_a_remembered_gradient() -> None:
    """Here it is wrong, and says that the last answer is the minimiser."""
    rows, q, zero = make_rows(SIZES, 5), np.full((3, 1), 0.1), np.zeros((3, 5))
    linear = np.random.default_rng(13).standard_normal((3, 5))
    exact = Solver(rows, Logistic(), 1.0).minimise(linear, q, zero, 1e-12)
    solver = Solver(rows, Logistic(), 1.0)
    wrong = solver._rows.stack_replicates(np.ones((3, 5)), (3,))
    solver.restore(
        solver.state()
        | {"answer": wrong, "gradient": -solver._rows.stack_replicates(linear + q * 1.0, (3,))}
    )
    solution = solver.minimise(linear, q, zero, 1e-9)
    np.testing.assert_allclose(solution.w, exact.w, atol=1e-7)
    assert np.all(solution.gradient_norm <= 1e-9)


def test_single_precision_by_column_multiplies_like_rows() -> None:
    rng = np.random.default_rng(14)
    a, w, kept = (
        rng.standard_normal((3, 300, 7)),
        rng.standard_normal((3, 6, 7)),
        np.array([True, False, True]),
    )
    rows, columns = Dense(a), Dense(a).in_single_precision()
    assert (
        isinstance(columns, Columns)
        and columns.n == rows.n == 300
        and columns.in_single_precision() is columns
    )
    changes = (
        lambda x: x,
        lambda x: x.slice_rows(20, 80),
        lambda x: x.every_nth_row(1, 3),
        lambda x: x.select_nodes(kept),
        lambda x: x.select_nodes(~kept).slice_rows(0, 9),
    )
    for change in changes:
        one, other = change(rows), change(columns)
        for many in (1, 6):
            v = w[: len(one.a), :many]
            z = one.margins_at(v)
            np.testing.assert_allclose(other.margins_at(v), z, atol=1e-5)
            np.testing.assert_allclose(
                other.weighted_row_sum(z), one.weighted_row_sum(z), rtol=1e-4, atol=1e-3
            )
        weights = np.abs(one.margins_at(w[: len(one.a)])[:, 0])
        np.testing.assert_allclose(
            other.weighted_gram(weights), one.weighted_gram(weights), rtol=1e-4, atol=1e-3
        )
        np.testing.assert_allclose(
            other.gram_diagonal(weights), one.gram_diagonal(weights), rtol=1e-4, atol=1e-3
        )
        np.testing.assert_allclose(other.row_norm_bounds(), one.row_norm_bounds(), rtol=1e-5)


def test_an_impossible_certificate_raises_without_a_data_value() -> None:
    rows = make_rows(SIZES, 5)
    with pytest.raises(SolverError, match="certified"):
        Solver(rows, Logistic(), 1.0).minimise(
            np.ones((3, 5)), np.full((3, 1), 0.1), np.zeros((3, 5)), 1e-30
        )


def test_rounding_bound_holds_against_exact_arithmetic() -> None:
    """The gradient in doubles against the same sums in 80-bit extended precision."""
    rows = make_rows([400, 300, 50], 5)
    rng = np.random.default_rng(8)
    for size in (0.1, 30.0, 1e3):
        w, linear, q = (
            size * rng.standard_normal((3, 1, 5)),
            rng.standard_normal((3, 1, 5)),
            np.full((3, 1, 1), 0.3),
        )
        computed = (
            Solver(rows, Logistic(), 2.0).gradient(w[:, 0]) + linear[:, 0] + q[:, 0] * w[:, 0]
        )[:, None]
        norms = (np.linalg.norm(x, axis=-1, keepdims=True) for x in (w, linear))
        bound = rounding_bound(DataTerm(2.0, rows.n[:, :, None], Logistic(), 5), *norms, q)
        for i in range(3):
            a = rows.signed[i, : int(rows.n[i, 0])].astype(np.longdouble)
            x = w[i, 0].astype(np.longdouble)
            slope = -1 / (1 + np.exp(a @ x))
            exact = (
                2 / np.longdouble(len(a)) * (a.T @ slope)
                + linear[i, 0]
                + np.longdouble(q[i, 0, 0]) * x
            )
            assert np.linalg.norm((computed[i, 0] - exact).astype(float)) <= bound[i, 0, 0]


def test_replicates_are_solved_in_chunks_of_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = make_rows(SIZES, 5)
    rng = np.random.default_rng(9)
    linear, q = rng.standard_normal((7, 3, 5)), np.full((3, 1), 0.1)
    whole = Solver(rows, Logistic(), 1.0).minimise(linear, q, np.zeros((7, 3, 5)), 1e-11)
    seen: list[int] = []
    solve = Solver._solve
    monkeypatch.setattr(
        Solver, "_solve", lambda self, w, *more: (seen.append(w.shape[1]), solve(self, w, *more))[1]
    )
    monkeypatch.setattr("sottovoce.solvers.local.CHUNK", 2 * 3 * 5)
    parts = Solver(rows, Logistic(), 1.0).minimise(linear, q, np.zeros((7, 3, 5)), 1e-11)
    assert seen == [2, 2, 2, 1]
    np.testing.assert_allclose(parts.w, whole.w, atol=1e-9)


@pytest.mark.parametrize("loss", [Logistic(), HuberSVM(0.5)], ids=lambda loss: loss.spec)
def test_single_precision_first_ends_at_the_same_certificate(
    loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = make_rows([300, 7, 133], 5)
    linear, q = np.random.default_rng(10).standard_normal((4, 3, 5)), np.full((3, 1), 0.1)
    double = Solver(rows, loss, 1.0).minimise(linear, q, np.zeros((4, 3, 5)), 1e-11)
    monkeypatch.setattr("sottovoce.solvers.local.SINGLE_WORTH", 0)
    both = Solver(rows, loss, 1.0).minimise(linear, q, np.zeros((4, 3, 5)), 1e-11)
    assert np.all(both.gradient_norm <= 1e-11)
    np.testing.assert_allclose(both.w, double.w, atol=2e-10)


def test_threads_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sottovoce.data.sweep.INLINE", 0)
    rows = make_rows([9000, 60, 5000], 5)
    w = np.random.default_rng(11).standard_normal((4, 3, 5))
    answers = []
    for threads in (1, 3):
        monkeypatch.setattr("sottovoce.data.sweep.number_of_cores", lambda threads=threads: threads)
        answers.append(Solver(rows, Logistic(), 1.0).gradient(w))
    np.testing.assert_array_equal(answers[0], answers[1])


@given(st.lists(st.integers(1, 400), min_size=1, max_size=30))
def test_batches_hold_every_node_once_with_little_padding(sizes: list[int]) -> None:
    n = np.array(sizes)
    batches = list(group_nodes_by_size(n, 3))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(n)))
    for batch in batches:
        assert n[batch].max() <= 1.1 * n[batch].min()


@pytest.mark.parametrize("C", [1.0, 3.0, 1750.0])
def test_parts_are_weighed_by_the_number_of_rows_itself(C: float) -> None:
    """C / (C / n) rounds below n for one size in sixteen; a weight of C / (n - 1) would exceed
    every sensitivity.
    """
    for n in range(1, 500):
        solver = Solver(
            Rows.build_from_parts([(np.full((n, 1), 1.0), np.ones(n))]), HuberSVM(0.5), C
        )
        np.testing.assert_allclose(solver.gradient(np.zeros((1, 1))), -C, rtol=1e-12)
        for parts in {1, 2, max(1, n // 2), n}:
            one = solver.gradient(np.zeros((1, 1)), 0, parts)
            np.testing.assert_allclose(
                one, -C / max(n // parts, 1) * len(range(0, n, parts)), rtol=1e-12
            )


@pytest.mark.parametrize("kind", ["weights", "classes", "a cap"])
def test_sparse_sites_of_unlike_sizes_are_solved_as_dense_ones(kind: str) -> None:
    """Sites of one batch are ready at different times: what is left of it is as long as its own
    longest site.
    """
    rng, sizes, d = np.random.default_rng(0), (300, 301, 310), 4
    parts, weights, labels = (
        [],
        [rng.random(n) for n in sizes],
        [rng.integers(0, 3, n) for n in sizes],
    )
    for n in sizes:
        X = rng.normal(size=(n, d))
        X /= 1.0001 * np.linalg.norm(X, axis=1, keepdims=True)
        parts.append((np.where(np.abs(X) > 0.2, X, 0.0), rng.choice([-1.0, 1.0], n)))

    def made(table: Any) -> Rows:
        if kind == "classes":
            given = zip(parts, labels, strict=True)
            return Rows.build_with_classes([(table(X), label) for (X, _), label in given], 3)
        rows = Rows.build_from_parts([(table(X), y) for X, y in parts])
        return rows.with_weight(weights) if kind == "weights" else rows

    loss = (
        Softmax(3)
        if kind == "classes"
        else clip_gradients(Logistic(), 0.3 if kind == "a cap" else math.inf)
    )
    width = d * loss.outputs
    linear, start = np.zeros((1, 3, width)), np.zeros((1, 3, width))
    linear[:, :2], q, found = rng.normal(size=(1, 2, width)) / 5.0, np.full((3, 1), 0.1), []
    for table in (np.asarray, csr_array):
        solver = Solver(made(table), loss, 1.0)
        start = start if not found else np.zeros_like(start)
        # the longest is ready at once
        start[:, 2] = solver.minimise(linear, q, np.zeros_like(start), 1e-10).w[:, 2]
        found.append(solver.minimise(linear, q, start, 1e-9).w)
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


@pytest.mark.parametrize("kind", ["dense", "sparse", "classes", "twice", "weighted"])
def test_subsampled_preconditioner_changes_no_answer(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every seventh row or so; the certificate says how far answers may differ."""
    sizes, d, loss = [400, 380, 90], 5, Softmax(3) if kind == "classes" else Logistic()
    rng, given = np.random.default_rng(0), []
    for n in sizes:
        X = rng.standard_normal((n, d)) / 10.0
        given.append(
            (
                np.vstack([X[: n // 2]] * 2) if kind == "twice" else X,
                np.where(X[:, 0] > 0, 1.0, -1.0),
            )
        )
    if kind == "classes":
        rows = Rows.build_with_classes([(X, rng.integers(3, size=len(X))) for X, _ in given], 3)
    else:
        rows = Rows.build_from_parts(
            [(csr_array(X) if kind == "sparse" else X, y) for X, y in given]
        )
    if kind == "weighted":
        rows = rows.with_weight([rng.random(len(X)) for X, _ in given])
    w = np.zeros((2, 3, rows.d))
    linear = 0.1 * rng.standard_normal(w.shape)

    def answer() -> tuple[Any, Any]:
        solver = Solver(rows, loss, 1.0)
        return solver.minimise(
            linear, np.full((2, 3, 1), 0.05), w, 1e-10
        ).w, solver._preconditioner.spectrum

    whole, spectrum = answer()
    monkeypatch.setattr(preconditioner, "ENOUGH", 2)
    part, other = answer()
    assert not np.array_equal(spectrum, other)
    np.testing.assert_allclose(other, spectrum, rtol=0.7, atol=0.01)
    np.testing.assert_allclose(part, whole, atol=2e-10 / 0.05)
