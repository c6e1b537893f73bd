"""Merged rows: the same sums over rows, from distinct rows only."""

from __future__ import annotations

import numpy as np
import pytest

from sottovoce.data import deduplicated as module
from sottovoce.data.deduplicated import deduplicate_design
from sottovoce.data.design import Dense
from sottovoce.data.rows import Rows
from sottovoce.problem.losses import HuberResidual, Logistic, Loss, Softmax
from sottovoce.solvers.local import Solver

N, D, DISTINCT = 9000, 8, 300


def table(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    kinds = np.round(rng.uniform(-1, 1, (DISTINCT, D)), 1) / np.sqrt(D) / 1.001
    return kinds[rng.integers(DISTINCT, size=N)], np.where(rng.random(N) < 0.4, 1.0, -1.0)


def rows_of(kind: str) -> tuple[Rows, Loss]:
    X, y = table()
    if kind == "signed":
        return Rows.build_from_parts([(X, y)]), Logistic()
    if kind == "offsets":
        return Rows.build_from_parts(
            [(X, np.ones(N))], [np.round(0.3 * X.sum(axis=1) + 0.1 * y, 1)]
        ), HuberResidual(0.25)
    return Rows.build_with_classes([(X, np.where(y > 0, 2, X[:, 0] > 0).astype(int))], 3), Softmax(
        3
    )


@pytest.mark.parametrize("kind", ["signed", "offsets", "classes"])
@pytest.mark.parametrize("single", [False, True])
def test_sums_are_those_of_the_rows_as_they_come(kind: str, single: bool) -> None:
    rows, loss = rows_of(kind)
    plain = rows.sweep_over_rows()
    short = plain.with_distinct_rows()
    assert short.batches[0].design.n < 3 * 2 * DISTINCT < plain.batches[0].design.n
    if single:
        short = short.in_single_precision()
        assert short is not None
    rng, tol = np.random.default_rng(1), 2e-6 if single else 1e-12
    w, along = rng.standard_normal((2, 1, 3, rows.d))
    for one, other in (
        (plain.sum_gradients(loss, w), short.sum_gradients(loss, w)),
        (plain.sum_curvatures(loss, w, False), short.sum_curvatures(loss, w, False)),
        (plain.sum_curvatures(loss, w, True), short.sum_curvatures(loss, w, True)),
        (
            plain.hessian_vector_product(loss, w, along),
            short.hessian_vector_product(loss, w, along),
        ),
    ):
        np.testing.assert_allclose(other, one, rtol=tol, atol=tol * np.abs(one).max())


def test_counts_and_rows_are_those_of_the_table() -> None:
    X, y = table()
    signed = X * y[:, None]  # with negative zeros
    assert np.any(np.signbit(signed) & (signed == 0))
    (design,) = (
        g.design
        for g in Rows.build_from_parts([(X, y)]).sweep_over_rows().with_distinct_rows().batches
    )
    assert isinstance(design.storage, Dense) and design.counts is not None
    expected, counts = np.unique(signed, axis=0, return_counts=True)
    order = np.lexsort(design.storage.a[0].T[::-1])
    np.testing.assert_array_equal(design.storage.a[0][order], expected)
    np.testing.assert_array_equal(design.counts[0][order], counts)


def test_rows_are_left_alone_where_merging_does_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    different = rng.uniform(-0.3, 0.3, (1, N, D))
    few = np.repeat(different[:, : N // 10], 10, axis=1)
    assert module.find_distinct_rows(different) is None
    assert module.find_distinct_rows(few) is not None
    # something else tells all of them apart
    assert module.find_distinct_rows(few, np.arange(N)[None]) is None
    assert module.find_distinct_rows(few[:, :500]) is None  # small
    assert module.find_distinct_rows(np.concatenate([few, few])) is None  # two nodes
    monkeypatch.setattr(
        module, "_digests_of_rows", lambda rows, more, factors: np.zeros(len(rows), dtype=np.uint64)
    )
    assert module.find_distinct_rows(few) is None  # different rows of one digest are not merged


def test_other_kinds_of_rows_are_left_alone() -> None:
    X, y = table()
    sweep = Rows.build_from_parts([(X, y)]).sweep_over_rows()
    for done in (sweep.with_known_norms(), sweep.with_distinct_rows()):
        assert deduplicate_design(done.batches[0].design) is done.batches[0].design


def test_merged_rows_have_no_order() -> None:
    X, y = table()
    with pytest.raises(TypeError, match="no order"):
        Rows.build_from_parts([(X, y)]).sweep_over_rows().with_distinct_rows().every_nth_row(0, 2)


@pytest.mark.parametrize("kind", ["signed", "offsets", "classes"])
def test_solver_deduplicates_rows_and_gradients_do_not(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gradient's sensitivity needs equal bits of unchanged rows, so it takes rows as they
    come.
    """
    rows, loss = rows_of(kind)
    rng = np.random.default_rng(3)
    linear, w = 0.1 * rng.standard_normal((2, 1, rows.d)), rng.standard_normal((2, 1, rows.d))
    q, zero = np.full((1, 1), 0.05), np.zeros((2, 1, rows.d))
    solver = Solver(rows, loss, 1.0)
    found = solver.minimise(linear, q, zero, 1e-10)
    assert np.all(found.gradient_norm <= 1e-10)
    gradient, part = solver.gradient(w), solver.gradient(w, 1, 4)
    monkeypatch.setattr(module, "LEAST", 2**60)
    plain = Solver(rows, loss, 1.0)
    assert plain.minimise(linear, q, zero, 1e-10).w == pytest.approx(found.w, abs=2 * 1e-10 / 0.05)
    np.testing.assert_array_equal(plain.gradient(w), gradient)
    np.testing.assert_array_equal(plain.gradient(w, 1, 4), part)
    residual = solver.gradient(found.w) + linear + 0.05 * found.w
    assert np.all(np.linalg.norm(residual, axis=-1) <= 1.01e-10)
