"""Rows with a number to predict: every kind of storage, padding, digests, and what is refused."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from problems import make_targets
from scipy.sparse import csr_array

from sottovoce.data.device import backend_from_spec
from sottovoce.data.memmap import write_rows
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.ledger.durable import rows_digest
from sottovoce.problem.losses import HuberResidual, LogCosh, Logistic, Residual, Softmax
from sottovoce.solvers import local as solvers
from sottovoce.solvers.local import DataTerm, Solver, rounding_bound
from sottovoce.util.typing import Array

SIZES, D = [60, 45, 7], 4
LOSSES = [HuberResidual(0.3), LogCosh(0.2)]
KINDS = [
    "dense",
    "sparse",
    "mapped",
    *(name for name in ("array_api_strict", "torch", "jax") if find_spec(name)),
]


def rows_of(kind: str, folder: Path) -> tuple[Rows, list[tuple[Array, Array]]]:
    """The same rows in storage of that kind, and (X, t) of every node."""
    parts = make_targets(SIZES, D)
    targets = [t for _, t in parts]
    if kind == "mapped":
        base: Rows = write_rows(folder, ((i, X, np.ones(len(X))) for i, (X, _) in enumerate(parts)))
        return base.with_offset(targets), parts
    rows = Rows.build_from_parts(
        [(csr_array(X) if kind == "sparse" else X, np.ones(len(X))) for X, _ in parts], targets
    )
    return (rows if kind in ("dense", "sparse") else rows.with_backend(kind)), parts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.spec)
def test_every_storage_gives_the_sums_of_the_definition(
    kind: str, loss: Residual, tmp_path: Path
) -> None:
    rows, parts = rows_of(kind, tmp_path / "rows")
    w, along = np.random.default_rng(1).standard_normal((2, 3, 5, D))
    solver, sweep = Solver(rows, loss, 2.0), rows.sweep_over_rows()
    point = w.transpose(1, 0, 2)
    values, gradients, halves = (
        solver.clipped_objective(point, np.inf),
        solver.gradient(point),
        solver.gradient(point, 1, 2),
    )
    clipped, turned = (
        solver.clipped_objective(point, 0.2),
        sweep.hessian_vector_product(loss, w, along),
    )
    whole, diagonal = (sweep.sum_curvatures(loss, w, flat) for flat in (False, True))
    for i, (X, t) in enumerate(parts):
        z = w[i] @ X.T - t
        np.testing.assert_allclose(values[:, i, 0], 2.0 * loss.value(z).mean(axis=1), rtol=1e-12)
        np.testing.assert_allclose(
            clipped[:, i, 0], 2.0 * np.minimum(loss.value(z), 0.2).mean(axis=1), rtol=1e-12
        )
        np.testing.assert_allclose(
            gradients[:, i], 2.0 / len(t) * loss.derivative(z) @ X, rtol=1e-12, atol=1e-14
        )
        half = 2.0 / (len(t) // 2) * loss.derivative(z[:, 1::2]) @ X[1::2]
        np.testing.assert_allclose(halves[:, i], half, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(
            turned[i], (loss.curvature(z) * (along[i] @ X.T)) @ X, rtol=1e-12, atol=1e-12
        )
        hessian = np.einsum("n,nd,ne->de", loss.curvature(z).mean(axis=0), X, X)
        np.testing.assert_allclose(whole[i], hessian, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(diagonal[i], np.diag(hessian), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("worth", [np.inf, 0.0], ids=["double", "single first"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_storage_has_the_same_minimisers(
    kind: str, worth: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solvers, "SINGLE_WORTH", worth)
    rows, parts = rows_of(kind, tmp_path / "rows")
    loss, q, zero = HuberResidual(0.3), np.full((3, 1), 0.1), np.zeros((3, D))
    found = Solver(rows, loss, 2.0).minimise(zero, q, zero, 1e-9).w
    alone = np.stack(
        [
            Solver(rows.rows_of_node(i), loss, 2.0).minimise(zero[0], q[0], zero[0], 1e-9).w
            for i in range(3)
        ]
    )
    for i, (X, t) in enumerate(parts):
        for w in (found[i], alone[i]):
            assert np.linalg.norm(2.0 / len(t) * X.T @ loss.derivative(X @ w - t) + 0.1 * w) <= 3e-9


def test_padding_rows_add_nothing_whatever_the_offset() -> None:
    rows, _ = rows_of("dense", Path())
    assert rows.offset is not None and not rows.offset[2, 7:].any()
    design = rows.design_of_nodes(np.array([0, 1, 2]))
    margins = design.margins_at(np.ones((3, 1, D)))
    assert not margins[2, 0, 7:].any() and design.n == 60
    whole, alone = Solver(rows, LOSSES[0], 1.0), Solver(rows.rows_of_node(2), LOSSES[0], 1.0)
    w = np.full(D, 0.3)
    np.testing.assert_allclose(
        whole.clipped_objective(np.tile(w, (3, 1)), np.inf)[2],
        alone.clipped_objective(w, np.inf),
        rtol=1e-14,
    )
    np.testing.assert_allclose(whole.gradient(np.tile(w, (3, 1)))[2], alone.gradient(w), rtol=1e-13)


def test_a_row_of_zeros_loses_its_offset() -> None:
    X, t = make_targets([5], D)[0]
    y = np.array([1.0, 0.0, 1.0, 1.0, 1.0])
    rows = Rows.build_from_parts([(X, y)], [t])
    assert rows.offset is not None and rows.offset[0, 1] == 0.0 and rows.offset[0, 0] == t[0]
    w, kept = np.full(D, 0.4), y > 0
    expected = X[kept].T @ LOSSES[1].derivative(X[kept] @ w - t[kept]) / 5
    np.testing.assert_allclose(
        Solver(rows, LOSSES[1], 1.0).gradient(w[None])[0], expected, rtol=1e-13
    )
    value = LOSSES[1].value(X[kept] @ w - t[kept]).sum() / 5
    np.testing.assert_allclose(
        Solver(rows, LOSSES[1], 1.0).clipped_objective(w[None], np.inf)[0, 0], value, rtol=1e-13
    )


def test_fingerprint_includes_offsets_and_is_unchanged_without_them() -> None:
    parts = make_targets(SIZES, D)
    plain = Rows.build_from_parts([(X, np.ones(len(X))) for X, _ in parts])
    first = plain.with_offset([t for _, t in parts])
    parts[1][1][3] += 1e-9
    second = plain.with_offset([t for _, t in parts])
    digests = {rows_digest(*rows.fingerprint_arrays()) for rows in (plain, first, second)}
    assert len(digests) == 3
    known = Rows.build_from_parts(
        [
            (np.array([[0.5, -0.25], [0.125, 0.0]]), np.array([1.0, -1.0])),
            (np.array([[0.75, 0.5]]), np.ones(1)),
        ]
    )
    # ledgers of version 0.1 are bound to it
    assert rows_digest(*known.fingerprint_arrays()).hex()[:16] == "28ff4601f4daae31"
    assert rows_digest(*first.rows_of_node(1).fingerprint_arrays()) != rows_digest(
        *second.rows_of_node(1).fingerprint_arrays()
    )
    assert rows_digest(*first.rows_of_node(0).fingerprint_arrays()) == rows_digest(
        *second.rows_of_node(0).fingerprint_arrays()
    )


def test_pooled_rows_keep_their_numbers() -> None:
    rows, parts = rows_of("dense", Path())
    pooled = rows.pool_at_one_node()
    assert pooled.offset is not None and pooled.one_class == () and pooled.d == D
    np.testing.assert_array_equal(pooled.offset[0], np.concatenate([t for _, t in parts]))
    np.testing.assert_array_equal(pooled.signed[0], np.concatenate([X for X, _ in parts]))


def test_offsets_of_another_array_library_are_accepted() -> None:
    home, (X, t) = backend_from_spec("array_api_strict"), make_targets([9], D)[0]
    there = Rows.build_from_parts(
        [(home.copy_to_device(X), home.copy_to_device(np.ones(9)))], [home.copy_to_device(t)]
    )
    assert there.backend == "array_api_strict"
    for a, b in zip(
        there.fingerprint_arrays(),
        Rows.build_from_parts([(X, np.ones(9))], [t]).fingerprint_arrays(),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


BAD = {
    "NaN": np.array([0.0, np.nan, 0.5]),
    "infinite": np.array([0.0, np.inf, 0.5]),
    "too large": np.array([0.0, 1.0000001, 0.5]),
    "too few": np.array([0.0, 0.5]),
    "a column": np.zeros((3, 1)),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_numbers_are_refused_without_showing_one(what: str) -> None:
    X = np.eye(3)
    parts = [(X, np.ones(3))]
    for build in (
        lambda t: Rows.build_from_parts(parts, t),
        Rows.build_from_parts(parts).with_offset,
    ):
        with pytest.raises(InvalidInput) as error:
            build([BAD[what]])
        assert not any(text in str(error.value) for text in ("1.0000001", "nan", "inf,", "0.5"))


def test_classes_and_numbers_do_not_mix() -> None:
    X, y = np.eye(3), np.array([1.0, -1.0, 1.0])
    with pytest.raises(InvalidInput, match="have no class"):
        Rows.build_from_parts([(X, y)], [np.zeros(3)])
    with pytest.raises(InvalidInput, match="1 sites"):
        Rows.build_from_parts([(X, np.ones(3))], [np.zeros(3), np.zeros(3)])
    with pytest.raises(InvalidInput, match=r"^offsets"):
        Rows.build_with_classes([(X, np.array([0, 1, 2]))], 3).with_offset([np.zeros(3)])
    numbers = Rows.build_from_parts([(X, np.ones(3))], [np.zeros(3)])
    with pytest.raises(InvalidInput, match="numeric labels"):
        Solver(numbers, Logistic(), 1.0)
    with pytest.raises(InvalidInput, match="numeric labels"):
        Solver(numbers, Softmax(3), 1.0)
    for loss in LOSSES:
        with pytest.raises(InvalidInput, match="class labels"):
            Solver(Rows.build_from_parts([(X, y)]), loss, 1.0)
        with pytest.raises(InvalidInput, match="class labels"):
            Solver(Rows.build_with_classes([(X, np.array([0, 1, 2]))], 3), loss, 1.0)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.spec)
def test_rounding_bound_holds_with_offsets_against_exact_arithmetic(loss: Residual) -> None:
    rows, parts = rows_of("dense", Path())
    rng = np.random.default_rng(8)
    for size in (0.0, 0.1, 30.0, 1e3):
        w, linear, q = (
            size * rng.standard_normal((3, 1, D)),
            rng.standard_normal((3, 1, D)),
            np.full((3, 1, 1), 0.3),
        )
        computed = Solver(rows, loss, 2.0).gradient(w[:, 0]) + linear[:, 0] + q[:, 0] * w[:, 0]
        norms = [np.linalg.norm(x, axis=-1, keepdims=True) for x in (w, linear)]
        without = type("Plain", (type(loss),), {"offset_bound": 0.0})(loss.h)
        bound, plain = (
            rounding_bound(DataTerm(2.0, rows.n[:, :, None], one, D), *norms, q)
            for one in (loss, without)
        )
        assert np.all(bound > plain)
        for i, (X, t) in enumerate(parts):
            a, x = X.astype(np.longdouble), w[i, 0].astype(np.longdouble)
            r = (a @ x - t.astype(np.longdouble)) / np.longdouble(loss.h)
            slope = np.tanh(r) if isinstance(loss, LogCosh) else np.clip(r, -1, 1)
            exact = (
                2 / np.longdouble(len(a)) * (a.T @ slope)
                + linear[i, 0]
                + np.longdouble(q[i, 0, 0]) * x
            )
            assert np.linalg.norm((computed[i] - exact).astype(float)) <= bound[i, 0, 0]
