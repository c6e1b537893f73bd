"""Rows with weights: sums that count them, every kind of rows below them, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from sottovoce.data.cluster import ClusterRows
from sottovoce.data.rows import Rows
from sottovoce.data.weights import shares_of_classes, weights_below_cap
from sottovoce.errors import InvalidInput
from sottovoce.ledger.durable import rows_digest
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import HuberResidual, Logistic, Loss, Softmax
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.queries import SecondMoments
from sottovoce.solvers.local import DataTerm, Solver, rounding_bound

D, SIZES = 4, (40, 33)


def tables(seed: int = 0) -> tuple[list[tuple[np.ndarray, np.ndarray]], list[np.ndarray]]:
    rng, parts = np.random.default_rng(seed), []
    for n in SIZES:
        X = rng.normal(size=(n, D))
        parts.append(
            (
                X / (1.001 * np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))),
                rng.choice([-1.0, 1.0], n),
            )
        )
    weights = [rng.integers(0, 4, size=n) / 3.0 for n in SIZES]
    return parts, weights


def repeated(parts: list[Any], weights: list[np.ndarray]) -> list[Any]:
    """Each row three times its weight often."""
    return [
        tuple(np.repeat(x, np.rint(3 * w).astype(int), axis=0) for x in part)
        for part, w in zip(parts, weights, strict=True)
    ]


def kinds(weights: list[np.ndarray] | None, repeat: bool) -> dict[str, tuple[Rows, Loss]]:
    parts, own = tables()
    rng = np.random.default_rng(1)
    labels = [rng.integers(3, size=n) for n in SIZES]
    numbers = [rng.uniform(-1, 1, n) for n in SIZES]
    long = [(3.0 * X, y) for X, y in parts]
    if repeat:
        labels, numbers = (
            [np.repeat(x, np.rint(3 * w).astype(int)) for x, w in zip(given, own, strict=True)]
            for given in (labels, numbers)
        )
        parts, long = repeated(parts, own), repeated(long, own)
    ones = [(X, np.ones(len(X))) for X, _ in parts]
    made: dict[str, tuple[Rows, Loss]] = {
        "dense": (Rows.build_from_parts(parts), Logistic()),
        "sparse": (Rows.build_from_parts([(csr_array(X), y) for X, y in parts]), Logistic()),
        "numbers": (Rows.build_from_parts(ones, numbers), HuberResidual(0.5)),
        "classes": (
            Rows.build_with_classes([(X, y) for (X, _), y in zip(parts, labels, strict=True)], 3),
            Softmax(3),
        ),
        "long": (Rows.build_with_any_norm(long), Weighted(Logistic())),
        "strict": (Rows.build_from_parts(parts).with_backend("array_api_strict"), Logistic()),
    }
    return (
        made
        if weights is None
        else {name: (rows.with_weight(weights), loss) for name, (rows, loss) in made.items()}
    )


@pytest.mark.parametrize("kind", ["dense", "sparse", "numbers", "classes", "long", "strict"])
def test_sums_and_minimisers_are_those_of_rows_that_repeat(kind: str) -> None:
    _, weights = tables()
    rows, loss = kinds(weights, False)[kind]
    copies, _ = kinds(None, True)[kind]
    rng = np.random.default_rng(2)
    w = rng.normal(size=(1, 2, rows.d))
    n = copies.n / rows.n / 3.0  # Solver divides by the number of rows
    mine, theirs = Solver(rows, loss, 1.0), Solver(copies, loss, 1.0)
    clip = 0.8
    np.testing.assert_allclose(
        mine.clipped_objective(w, clip), theirs.clipped_objective(w, clip) * n, rtol=1e-12
    )
    q, zero = np.full((2, 1), 0.1), np.zeros((1, 2, rows.d))
    found = mine.minimise(zero, q, zero, 1e-10).w
    want = theirs.minimise(zero, q / n, zero, 1e-10).w
    np.testing.assert_allclose(found, want, atol=1e-7)
    assert float(np.abs(found).max()) > 0.05


def test_weights_are_kept_by_single_nodes_and_pooled_rows() -> None:
    parts, weights = tables()
    rows = Rows.build_from_parts(parts).with_weight(weights)
    assert rows.weight is not None and rows.weight.shape == (2, 40)
    alone, whole = rows.rows_of_node(1), rows.pool_at_one_node()
    assert alone.weight is not None and whole.weight is not None
    np.testing.assert_array_equal(alone.weight[0], weights[1])
    np.testing.assert_array_equal(whole.weight[0], np.concatenate(weights))
    assert (
        len(rows.fingerprint_arrays()) == len(Rows.build_from_parts(parts).fingerprint_arrays()) + 1
    )
    numbers = Rows.build_from_parts(
        [(X, np.ones(len(X))) for X, _ in parts], [np.zeros(n) for n in SIZES]
    ).with_weight(weights)
    first = numbers.rows_of_node(0)
    assert first.offset is not None and first.weight is not None
    np.testing.assert_array_equal(first.weight[0], weights[0])


@pytest.mark.parametrize("number", [False, True], ids=["classes", "numbers"])
def test_weights_on_rows_of_a_cluster_count_as_in_memory(number: bool) -> None:
    """Such sums were exact zeros: products looked for the rows here, and found none."""
    array = pytest.importorskip("dask.array")
    (X, y), weight = tables()[0][0], tables()[1][0]
    y = np.ones(len(y)) if number else y
    rows: list[Rows] = [
        Rows.build_from_parts([(X, y)]),
        ClusterRows.rows_from_dask(
            array.from_array(X, chunks=(9, D)), array.from_array(y, chunks=9)
        ),
    ]
    if number:
        rows = [one.with_offset([np.linspace(-1, 1, len(y))]) for one in rows]
    loss: Loss = HuberResidual(0.5) if number else Logistic()
    plain, rows = rows, [one.with_weight([weight]) for one in rows]
    rng = np.random.default_rng(4)
    w, along = rng.normal(size=(2, 1, 2, D))
    here, there = (one.sweep_over_rows() for one in rows)
    for part in (lambda x: x, lambda x: x.every_nth_row(3, 7)):
        for what in (
            lambda x: x.sum_gradients(loss, w),
            lambda x: x.sum_clipped_losses(loss, w, 0.5, rows[0].n),
            lambda x: x.sum_curvatures(loss, w, False),
            lambda x: x.sum_curvatures(loss, w, True),
            lambda x: x.hessian_vector_product(loss, w, along),
        ):
            one, other = what(part(here)), what(part(there))
            assert np.all(np.any(one != 0.0, axis=-1))
            np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-13)
    zero, q = np.zeros((1, 1, D)), np.full((1, 1), 0.1)
    found = [
        Solver(one, loss, 1.0).minimise(zero, q, zero, 1e-9).w
        for one in (*rows, rows[1].rows_of_node(0), plain[0])
    ]
    np.testing.assert_allclose(found[1], found[0], atol=1e-7)
    np.testing.assert_allclose(found[2], found[0], atol=1e-7)
    assert np.abs(found[3] - found[0]).max() > 1e-3
    assert rows_digest(*rows[1].fingerprint_arrays()) != rows_digest(*plain[1].fingerprint_arrays())


def test_deduplicated_rows_count_by_their_weights() -> None:
    rng = np.random.default_rng(0)
    X = rng.choice([0.0, 0.4], size=(20_000, D))
    y, w = np.where(X[:, 0] > 0, 1.0, -1.0), rng.choice([0.25, 1.0], 20_000)
    rows = Rows.build_from_parts([(X, y)]).with_weight([w])
    sweep, point = rows.sweep_over_rows(), rng.normal(size=(1, 2, D))
    distinct = sweep.with_distinct_rows()
    assert distinct.batches[0].design.n < 100
    np.testing.assert_allclose(
        distinct.sum_gradients(Logistic(), point),
        sweep.sum_gradients(Logistic(), point),
        rtol=1e-10,
    )
    np.testing.assert_allclose(
        distinct.sum_curvatures(Logistic(), point, False),
        sweep.sum_curvatures(Logistic(), point, False),
        rtol=1e-10,
    )


def test_second_moments_of_weighted_rows() -> None:
    parts, weights = tables()
    rows = Rows.build_from_parts(parts[:1]).with_weight(weights[:1])
    what = SecondMoments(np.zeros((1, 1, D)))
    X, w = parts[0][0], weights[0]
    found = what.sum_over_block(rows.design_of_nodes(np.array([0])), Logistic(), what.at)[0, 0]
    i, j = np.triu_indices(D)
    want = ((X * w[:, None]).T @ X)[i, j] * np.where(i == j, 1.0, np.sqrt(2.0))
    np.testing.assert_allclose(found, want, rtol=1e-12)
    assert what.largest_row_norm(Facts(Logistic(), rows.n, D, 1.0, 1.0, 1)) == 1.0


def test_the_rounding_of_a_weighted_gradient_is_within_its_bound() -> None:
    """Against extended precision."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(4000, D))
    X /= 1.001 * np.linalg.norm(X, axis=1, keepdims=True)
    weight, w = rng.random(4000), rng.normal(size=D) * 20
    rows = Rows.build_from_parts([(X, np.ones(4000))]).with_weight([weight])
    found = rows.sweep_over_rows().sum_gradients(Logistic(), w[None, None])[0, 0] / 4000
    long = X.astype(np.longdouble)
    slopes = -1 / (1 + np.exp(long @ w.astype(np.longdouble)))
    exact = (slopes * weight.astype(np.longdouble)) @ long / 4000
    zero, n = np.zeros(1), np.array([4000.0])
    bound = rounding_bound(
        DataTerm(1.0, n, Logistic(), D), np.array([np.linalg.norm(w)]), zero, zero
    )
    assert 0 < float(np.linalg.norm(found - exact)) <= float(bound[0])


def test_weights_are_capped_and_counted() -> None:
    found, beyond = weights_below_cap("weight", [0.0, 1.5, 3.0, 12.0], 3.0)
    np.testing.assert_array_equal(found, [0.0, 0.5, 1.0, 1.0])
    assert beyond == 1
    for weights in ([-0.1, 1.0], [np.nan, 1.0], [np.inf, 1.0]):
        with pytest.raises(InvalidInput, match="finite numbers") as caught:
            weights_below_cap("weight", weights, 3.0)
        assert "0.1" not in str(caught.value)
    for cap in (0.0, -1.0, np.inf, np.nan, True, "3"):
        with pytest.raises(InvalidInput, match="number above 0"):
            weights_below_cap("weight", [1.0], cap)  # type: ignore[arg-type]


def test_weights_of_classes_are_public_numbers() -> None:
    np.testing.assert_array_equal(
        shares_of_classes("class_weight", {"b": 4, "a": 2}, ["a", "b", "c"]), [0.5, 1.0, 0.25]
    )
    np.testing.assert_array_equal(shares_of_classes("class_weight", {1: 0.5}, [0, 1]), [1.0, 0.5])
    for given, said in (
        ("balanced", "without charging"),
        ({"d": 1}, "declared class"),
        ({"a": -1}, "0 or more"),
        ([1], "must map"),
        ({"a": 0, "b": 0, "c": 0}, "must be positive"),
        ({"a": True}, "0 or more"),
        ({"a": np.nan}, "0 or more"),
    ):
        with pytest.raises(InvalidInput, match=said):
            shares_of_classes("class_weight", given, ["a", "b", "c"])


@pytest.mark.parametrize(
    "wrong", [[np.ones(40)], [np.ones(40), np.ones(34)], [np.ones(40), np.full(33, 1.01)]]
)
def test_weights_of_wrong_shape_or_above_one_are_refused(wrong: list[np.ndarray]) -> None:
    with pytest.raises(InvalidInput):
        Rows.build_from_parts(tables()[0]).with_weight(wrong)
