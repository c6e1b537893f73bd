"""Moved rows: the same products as with rows that are written down, for every kind of rows, and
never longer than 1.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from sottovoce.data.cluster import ClusterRows
from sottovoce.data.design import Dense, Sparse
from sottovoce.data.memmap import write_rows
from sottovoce.data.move import Move, Moved, stretch_bound
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.problem.clipped import clip_gradients
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import HuberResidual, LogCosh, Logistic, Loss, Softmax
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.queries import Curvature, Gradient, Products, SecondMoments, SlopeMoments
from sottovoce.solvers.local import DataTerm, Solver, rounding_bound
from sottovoce.solvers.local_rows import LocalRows

P, SIZES, K = 5, (60, 43), 0.4
MEAN = np.array([0.5, -0.3, 0.1, 0.4, 0.0])
MOVE = Move(MEAN, (P - 1,), K, 2.0)
MATRIX = np.diag([2.0] * (P - 1) + [1.0]) - np.outer(2.0 * MEAN / K, np.eye(P)[-1])


def tables(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows around the mean with a constant; some are long and were clipped, and some are zero."""
    rng, parts = np.random.default_rng(seed), []
    for n in sizes:
        X = np.hstack([MEAN[:-1] + rng.normal(scale=0.2, size=(n, P - 1)), np.full((n, 1), K)])
        X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True) * (1.0 + 1e-12))
        y = rng.choice([-1.0, 1.0], n)
        X[::11], y[::11] = 0.0, 0.0
        parts.append((X, y))
    return parts


def moved(X: np.ndarray, *, short: bool = True) -> np.ndarray:
    """The rows written down, a hair shorter, as no row may be longer than 1."""
    found = X @ MATRIX.T
    return (
        found / np.maximum(1.0, np.linalg.norm(found, axis=1, keepdims=True) * (1.0 + 1e-15))
        if short
        else found
    )


def kinds(where: Path) -> dict[str, tuple[Rows, Rows, Loss]]:
    parts = tables()
    rng = np.random.default_rng(1)
    written = [(moved(X) * (1.0 - 1e-15), y) for X, y in parts]
    labels = [np.where(y == 0.0, -1, rng.integers(3, size=len(y))) for _, y in parts]
    numbers = [rng.uniform(-1, 1, len(y)) for _, y in parts]
    weights = [rng.random(len(y)) for _, y in parts]

    def classes(rows: Any) -> Rows:
        return Rows.build_with_classes(
            [(X, own) for (X, _), own in zip(rows, labels, strict=True)], 3
        )

    def offsets(rows: Any) -> Rows:
        return Rows.build_from_parts([(X, np.abs(y)) for X, y in rows], numbers)

    dense = Rows.build_from_parts(parts), Rows.build_from_parts(written)
    sparse = Rows.build_from_parts([(csr_array(X), y) for X, y in parts])
    blocks = [
        (i, X[part], np.where(y == 0, 1.0, y)[part])
        for i, (X, y) in enumerate(parts)
        for part in np.array_split(np.arange(len(y)), 3)
    ]
    long = [(2.0 * X, y) for X, y in parts]
    far = Rows.build_with_any_norm([(2.0 * moved(X, short=False), y) for X, y in parts])
    return {
        "dense": (*dense, Logistic()),
        "capped": (*dense, clip_gradients(Logistic(), 0.1)),
        "sparse": (sparse, dense[1], Logistic()),
        "numbers": (offsets(parts), offsets(written), HuberResidual(0.5)),
        "classes": (classes(parts), classes(written), Softmax(3)),
        "capped classes": (classes(parts), classes(written), clip_gradients(Softmax(3), 0.2)),
        "weights": (dense[0].with_weight(weights), dense[1].with_weight(weights), Logistic()),
        "torch": (dense[0].with_backend("array_api_strict"), dense[1], Logistic()),
        "mapped": (write_rows(where / "rows", blocks), dense[1], Logistic()),
        "long": (Rows.build_with_any_norm(long), far, Weighted(Logistic())),
        "long numbers": (
            *(
                one.with_offset(
                    [np.where(y == 0.0, 0.0, t) for t, (_, y) in zip(numbers, parts, strict=True)]
                )
                for one in (
                    Rows.build_with_any_norm([(X, np.abs(y)) for X, y in long]),
                    Rows.build_with_any_norm(
                        [(2.0 * moved(X, short=False), np.abs(y)) for X, y in parts]
                    ),
                )
            ),
            Weighted(HuberResidual(0.5)),
        ),
        "pooled": (dense[0].pool_at_one_node(), dense[1].pool_at_one_node(), Logistic()),
    }


NAMES = (
    "dense",
    "capped",
    "sparse",
    "numbers",
    "classes",
    "capped classes",
    "weights",
    "torch",
    "mapped",
    "long",
    "long numbers",
    "pooled",
)


@pytest.mark.parametrize("name", NAMES)
def test_products_equal_those_of_explicitly_moved_rows(name: str, tmp_path: Path) -> None:
    plain, written, loss = kinds(tmp_path)[name]
    rows, d, nodes = replace(plain, move=MOVE), plain.d, len(plain.n)
    ours, theirs = Solver(rows, loss, 1.0), Solver(written, loss, 1.0)
    rng = np.random.default_rng(2)
    w = rng.normal(size=(2, nodes, d))
    close = {"rtol": 1e-11, "atol": 1e-12}
    np.testing.assert_allclose(ours.gradient(w), theirs.gradient(w), **close)
    np.testing.assert_allclose(ours.gradient(w, 1, 3), theirs.gradient(w, 1, 3), **close)
    np.testing.assert_allclose(
        ours.clipped_objective(w, 2.0), theirs.clipped_objective(w, 2.0), **close
    )
    what = [Gradient, SecondMoments, SlopeMoments, Curvature] if plain.classes == 1 else [Gradient]
    what += [Products] if plain.has_offset else []
    for kind in what:
        asked = kind(w)
        np.testing.assert_allclose(
            ours.total_over_rows(w, asked.sum_over_block),
            theirs.total_over_rows(w, asked.sum_over_block),
            **close,
        )
    linear, q = 0.1 * rng.normal(size=w.shape), np.full((2, nodes, 1), 0.3)
    found, wanted = (one.minimise(linear, q, w, 1e-9) for one in (ours, theirs))
    np.testing.assert_allclose(found.w, wanted.w, atol=1e-7)
    point = rng.normal(size=(nodes, 1, d))
    mine, same_rows = (LocalRows.prepare_rows(one, loss, 1.0) for one in (rows, written))
    for sweep, same in zip(
        (mine.given, mine.distinct), (same_rows.given, same_rows.distinct), strict=True
    ):
        for diagonal in (False, True):
            pair = [one.sum_curvatures(loss, point, diagonal) for one in (sweep, same)]
            np.testing.assert_allclose(*pair, **close)
        np.testing.assert_allclose(
            *(one.hessian_vector_product(loss, point, 2.0 * point + 1.0) for one in (sweep, same)),
            **close,
        )


def test_a_cluster_multiplies_moved_rows_where_they_lie() -> None:
    dask = pytest.importorskip("dask.array")
    ((X, y),) = tables(sizes=(90,))
    y = np.where(y == 0.0, 1.0, y)
    rows = replace(
        ClusterRows.rows_from_dask(
            dask.from_array(X, chunks=(30, P)), dask.from_array(y, chunks=30)
        ),
        move=MOVE,
    )  # type: ignore[arg-type]
    w = np.random.default_rng(0).normal(size=(1, 1, P))
    written = Rows.build_from_parts([(moved(X) * (1.0 - 1e-15), y)])
    ours, theirs = (Solver(one, Logistic(), 1.0) for one in (rows, written))
    np.testing.assert_allclose(ours.gradient(w), theirs.gradient(w), rtol=1e-11, atol=1e-14)


def test_repeated_rows_are_merged_and_single_precision_is_single() -> None:
    parts = tables(sizes=(40,))
    X, y = (np.repeat(x, 700, axis=0) for x in parts[0])
    rows, written = (
        replace(Rows.build_from_parts([(X, y)]), move=MOVE),
        Rows.build_from_parts([(moved(X) * (1.0 - 1e-15), y)]),
    )
    ours, theirs = (Solver(one, Logistic(), 1.0) for one in (rows, written))
    local = LocalRows.prepare_rows(rows, Logistic(), 1.0)
    design = local.distinct.batches[0].design
    # zero rows are alike
    assert isinstance(design.storage, Moved) and design.n == 37 and design.counts is not None
    short = local.single_precision_rows()
    assert short is not None
    storage: Any = short.batches[0].design.storage
    assert storage.factors.dtype == storage.base.a.dtype == np.float32
    w = np.random.default_rng(3).normal(size=(2, 1, P))
    found = ours.minimise(0.1 * w, np.full((2, 1, 1), 0.3), w, 1e-10)
    np.testing.assert_allclose(
        found.w, theirs.minimise(0.1 * w, np.full((2, 1, 1), 0.3), w, 1e-10).w, atol=1e-8
    )


def test_constants_of_sites_are_one_constant_together() -> None:
    rng = np.random.default_rng(5)
    parts, wanted = [], []
    for i, n in enumerate((30, 40)):
        X = np.hstack([rng.uniform(0.0, 0.4, (n, 3)), np.zeros((n, 2))])
        X[:, 3 + i] = 0.5
        parts.append((X, rng.choice([-1.0, 1.0], n)))
        wanted.append((np.hstack([1.5 * (X[:, :3] - 0.2), X[:, 3:]]) * (1.0 - 1e-15), parts[-1][1]))
    move = Move(np.array([0.2, 0.2, 0.2, 0.0, 0.0]), (3, 4), 0.5, 1.5)
    w = rng.normal(size=(1, 2, 5))
    rows, written = replace(Rows.build_from_parts(parts), move=move), Rows.build_from_parts(wanted)
    pair = [Solver(one, Logistic(), 1.0).gradient(w) for one in (rows, written)]
    np.testing.assert_allclose(*pair, rtol=1e-12)


def fractions(x: Any) -> list[Fraction]:
    return [Fraction(float(one)) for one in x]


def exactly(X: np.ndarray, c: np.ndarray, move: Move) -> list[Fraction]:
    """Squared norms of the rows that are meant, ``c A a``, in rational numbers."""
    m, k, g = fractions(move.mean), Fraction(move.k), Fraction(move.gain)
    found = []
    for row, factor in zip(X, c, strict=True):
        a = fractions(row)
        x = sum((a[j] for j in move.constants), Fraction(0))
        parts = [a[j] if j in move.constants else g * (a[j] - m[j] * x / k) for j in range(len(a))]
        found.append(sum(one * one for one in parts) * Fraction(float(factor)) ** 2)
    return found


@pytest.mark.parametrize("k", [0.01, 0.3, 0.999])
def test_moved_rows_have_norm_at_most_one_in_exact_arithmetic(k: float) -> None:
    """Rows of norm 1 to the last bit, means of norm 1, and rows that the map brings to the
    sphere's edge.
    """
    rng = np.random.default_rng(int(1000 * k))
    z = rng.normal(size=(300, 6))
    z *= np.sqrt(1.0 - k * k) / np.linalg.norm(z, axis=1, keepdims=True)
    X = np.hstack([z, np.full((300, 1), k)])
    X[100:200] *= rng.random((100, 1))
    while np.any(far := np.einsum("nd,nd->n", X, X) > 1.0):
        X[far] *= 1.0 - 2.0**-53
    mean = rng.normal(size=6)
    for gain in (1.0, 2.0, 1.7):
        move = Move(np.append(mean / np.linalg.norm(mean) * (1 - 1e-12), 0.0), (6,), k, gain)
        edge = X[200:].copy()
        scale = 1.0 / np.sqrt(np.array([float(s) for s in exactly(edge, np.ones(100), move)]))
        edge *= np.minimum(1.0, scale)[:, None]  # moved to norm 1, about
        rows = np.vstack([X, edge])
        for storage in (Dense(rows[None]), Sparse((csr_array(rows),))):
            found = Moved.move_storage(storage, move)
            squares = exactly(rows, found.factors[0], move)
            assert max(squares) <= 1
            assert all(
                s <= Fraction(float(x)) ** 2 for s, x in zip(squares, found.lengths[0], strict=True)
            )
            short = (
                np.array([float(s) for s in exactly(rows, np.ones(len(rows)), move)]) < 1.0 - 1e-9
            )
            assert np.all(found.factors[0][short] == 1.0) and short.any()


def test_zero_rows_stay_zero_and_no_row_depends_on_another() -> None:
    ((X, _),) = tables(sizes=(50,))
    found = Moved.move_storage(Dense(X[None]), MOVE)
    assert np.all(found.lengths[0][::11] == 0.0) and np.all(found.factors[0][::11] == 1.0)
    other = X.copy()
    other[7] = -X[8]
    again = Moved.move_storage(Dense(other[None]), MOVE)
    same = np.arange(50) != 7
    assert np.array_equal(found.factors[0][same], again.factors[0][same])


def test_models_fold_back_and_unfold_again() -> None:
    rng = np.random.default_rng(0)
    w = rng.normal(size=(4, P))
    np.testing.assert_allclose(MOVE.fold_into_models(w), w @ MATRIX, rtol=1e-14)
    np.testing.assert_allclose(MOVE.apply_to_row_sums(w), w @ MATRIX.T, rtol=1e-14)
    np.testing.assert_allclose(MOVE.unfold_from_models(MOVE.fold_into_models(w)), w, rtol=1e-13)
    both = Move(np.stack([MEAN, 0.5 * MEAN]), (P - 1,), K, 2.0)
    blocks = rng.normal(size=(2, 3, 4 * P))  # replicates, nodes, classes
    for r, one in enumerate(both.split_by_replicate()):
        folded = one.fold_into_models(blocks[r].reshape(-1, P)).reshape(blocks[r].shape)
        assert np.array_equal(
            both.fold_into_models(blocks)[r], folded
        ) and one == both.for_replicate(r)
    np.testing.assert_allclose(
        both.unfold_from_models(both.fold_into_models(blocks)), blocks, rtol=1e-12
    )
    assert both != both.for_replicate(0)
    ((X, _),) = tables(sizes=(50,))
    for rows in (X, csr_array(X)):
        margins = both.for_replicate(1).shorten_rows(rows) @ both.for_replicate(1).fold_into_models(
            w[0]
        )
        c = both.shortening_factors(rows)[1]
        np.testing.assert_allclose(
            margins, c * (rows @ both.for_replicate(1).fold_into_models(w[0])), rtol=1e-13
        )


def test_invalid_moves_are_refused() -> None:
    good: dict[str, Any] = {"mean": MEAN, "constants": (P - 1,), "k": K, "gain": 2.0}
    wrong: list[dict[str, Any]] = [
        {"mean": MEAN * 10},
        {"mean": MEAN + np.nan},
        {"mean": MEAN + 0.1},
        {"constants": ()},
        {"constants": (P,)},
        {"constants": (4, 4)},
        {"k": 0.0},
        {"k": 1.1},
        {"gain": 0.5},
        {"gain": np.inf},
    ]
    for change in wrong:
        with pytest.raises(InvalidInput, match="centre"):
            Move(**(good | change))


@pytest.mark.parametrize("gain", [1.0, 2.0])
@pytest.mark.parametrize("kind", ["classes", "capped", "numbers"])
def test_rounding_is_within_what_is_charged(gain: float, kind: str) -> None:
    """Against extended precision, whose own rounding is 2000 times finer; the bound is far from
    what happens.
    """
    rng = np.random.default_rng(7)
    n, p, k = 4000, 12, 0.05
    z = rng.normal(size=p - 1)
    z *= 0.95 / np.linalg.norm(z)
    X = np.hstack([z + 0.05 * rng.normal(size=(n, p - 1)), np.full((n, 1), k)])
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-12))
    y, t = rng.choice([-1.0, 1.0], n), np.zeros(n)
    mean = np.append(X[:, :-1].mean(axis=0), 0.0)
    move = Move(mean, (p - 1,), k, gain)
    loss: Loss = {
        "classes": Logistic(),
        "capped": clip_gradients(Logistic(), 0.2),
        "numbers": LogCosh(0.1),
    }[kind]
    rows = Rows.build_from_parts([(X, y)])
    if kind == "numbers":
        y, t = np.ones(n), rng.uniform(-1.0, 1.0, n)
        rows = Rows.build_from_parts([(X, y)], [t])
    rows = replace(rows, move=move)
    w = 3.0 * rng.normal(size=(1, 1, p))
    c = Moved.move_storage(Dense(X[None]), move).factors[0].astype(np.longdouble)
    long = (X * y[:, None]).astype(np.longdouble)
    moved = gain * (long - long[:, -1:] * mean.astype(np.longdouble) / np.longdouble(k))
    moved[:, -1] = long[:, -1]
    moved *= c[:, None]
    z = moved @ w[0, 0].astype(np.longdouble) - t.astype(np.longdouble)
    slopes = np.tanh(z / np.longdouble(0.1)) if kind == "numbers" else -1.0 / (1.0 + np.exp(z))
    if kind == "capped":
        most = 0.2 / Moved.move_storage(Dense(X[None]), move).lengths[0]
        slopes = np.clip(slopes, -most, most)
    wanted = (slopes @ moved) / n
    error = float(
        np.linalg.norm((Solver(rows, loss, 1.0).gradient(w)[0, 0] - wanted).astype(float))
    )
    size = np.linalg.norm(w, axis=-1, keepdims=True)
    none, count = np.zeros_like(size), np.full_like(size, n)
    bound = rounding_bound(DataTerm(1.0, count, loss, p, move.stretch_bound), size, none, none)
    assert 0.0 < error <= float(bound[0, 0, 0])
    facts = Facts(
        loss, np.array([[float(n)]]), p, 1.0, 1.0, 1, pure=False, stretch=move.stretch_bound
    )
    G = np.asarray(Solver(rows, loss, 1.0).total_over_rows(w, SecondMoments(w).sum_over_block) / n)[
        0, 0
    ]
    i, j = np.triu_indices(p)
    exact = (moved.T @ moved / n)[i, j] * np.where(i == j, 1.0, np.sqrt(2.0))
    assert np.linalg.norm((G - exact).astype(float)) <= float(
        SecondMoments(w).rounding_error_bound(facts, facts.n)[0, 0]
    )


def test_stretch_bound_holds_for_every_mean() -> None:
    rng = np.random.default_rng(0)
    for constants in (1, 3):
        for k in (0.05, 0.7):
            for gain in (1.0, 2.0):
                worst = 0.0
                for _ in range(50):
                    p = 6 + constants
                    m = np.zeros(p)
                    m[:6] = rng.normal(size=6)
                    m /= np.linalg.norm(m)
                    columns = tuple(range(6, p))
                    A = np.stack(
                        [Move(m, columns, k, gain).apply_to_row_sums(e) for e in np.eye(p)], axis=1
                    )
                    worst = max(
                        worst, 1.0 + np.linalg.norm(A, 2), 1.0 + np.linalg.norm(np.linalg.inv(A), 2)
                    )
                assert worst <= stretch_bound(gain, k, constants)


@pytest.mark.parametrize("order", ["C", "F"])
def test_clipping_factor_of_a_row_does_not_depend_on_other_rows(order: Any) -> None:
    """To the last bit: scores of clipped rows are counted in cells."""
    rng = np.random.default_rng(0)
    for d in (3, 9, 33):
        X = rng.normal(size=(70, d))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        mean = rng.normal(size=d)
        mean[-1] = 0.0
        move = Move(mean / (2.0 * np.linalg.norm(mean)), (d - 1,), 0.3, 1.3)
        alone = np.concatenate([move.shortening_factors(row[None]) for row in X])
        assert np.any(alone < 1.0)
        for n in range(1, 71):
            np.testing.assert_array_equal(
                move.shortening_factors(np.asarray(X[:n], order=order)), alone[:n]
            )
            np.testing.assert_array_equal(
                move.shortening_factors(np.asarray(X[70 - n :], order=order)), alone[70 - n :]
            )
