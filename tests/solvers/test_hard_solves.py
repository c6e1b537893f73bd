"""Solves that secants do not finish: each is finished, whatever the rows, because an abort would
tell of them.
"""

from __future__ import annotations

import numpy as np
import pytest
from array_api_compat import array_namespace
from scipy.sparse import csr_array

from sottovoce.data.cluster import ClusterRows
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.clipped import clip_gradients
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import (
    REGISTRY,
    HuberResidual,
    HuberSVM,
    LogCosh,
    Logistic,
    Loss,
    Softmax,
    make_loss,
)
from sottovoce.queries import NoisyMinimiser
from sottovoce.runs.row_guard import RowGuard
from sottovoce.solvers import preconditioner


def table(rng: np.random.Generator, loss: Loss) -> tuple[Rows, int]:
    """Rows of very unequal columns."""
    n, d = int(rng.choice([30, 100, 300])), int(rng.choice([5, 20]))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-4.0, 0.0, size=d)
    X /= 1.000001 * np.linalg.norm(X, axis=1, keepdims=True)
    if loss.outputs > 1:
        return Rows.build_with_classes(
            [(X, rng.integers(-1, loss.outputs, size=n))], loss.outputs
        ), d * loss.outputs
    if loss.offset_bound:
        targets = rng.uniform(-1.0, 1.0, size=n) * 10.0 ** -rng.integers(6)
        return Rows.build_from_parts([(X, np.ones(n))], [targets]), d
    return Rows.build_from_parts([(X, rng.choice([-1.0, 1.0], size=n))]), d


STEEP = ["huber:0.0001", "huber:0.00001", "huber-residual:1e-5", "log-cosh:1e-5"]
HARD = [*STEEP, *(kind().spec for kind in REGISTRY.values())]


@pytest.mark.parametrize("spec", HARD)
@pytest.mark.parametrize("widest", [2000, 3], ids=["whole", "diagonal"])
def test_ill_conditioned_problems_that_are_charged_are_answered(
    spec: str, widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preconditioner, "WIDEST", widest)
    loss = make_loss(spec)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows, d = table(rng, loss)
        q = 10.0 ** rng.uniform(-7.0, -5.0)
        facts = Facts(loss, rows.n[0], d, 1.0, q, 1, pure=False)
        linear = -q * rng.normal(size=d) * 10.0 ** rng.uniform(-2.0, 2.0)
        query = NoisyMinimiser(rng.normal(size=d), np.array([1.0]), "test", linear=linear)
        book = Ledger("zcdp", delta=1e-5)
        answer = RowGuard(rows, facts, KeyedNoise(0, [0], [0], lead=()), book).charge_and_answer(
            query
        )
        assert len(book.rows) == 1 and np.all(np.isfinite(answer))


@pytest.mark.parametrize(
    "spec", [spec for spec in HARD if not spec.startswith("quantile")]
)  # it has no capped form
@pytest.mark.parametrize(("c", "widest"), [(0.3, 2000), (1e-2, 2000), (1e-4, 3), (1e-6, 2000)])
def test_capped_problems_that_are_charged_are_answered(
    spec: str, c: float, widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small caps allow small curvatures: the answers lie nearer, and rounding hides less."""
    monkeypatch.setattr(preconditioner, "WIDEST", widest)
    loss, answered = clip_gradients(make_loss(spec), c), 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        rows, d = table(rng, loss)
        q = 10.0 ** rng.uniform(-7.0, -5.0) * (c if seed % 2 else 1.0)
        facts = Facts(loss, rows.n[0], d, 1.0, q, 1, pure=False)
        linear = -q * rng.normal(size=d) * 10.0 ** rng.uniform(-2.0, 2.0)
        query = NoisyMinimiser(rng.normal(size=d), np.array([1.0]), "test", linear=linear)
        book = Ledger("zcdp", delta=1e-5)
        guard = RowGuard(rows, facts, KeyedNoise(0, [0], [0], lead=()), book)
        try:
            query.check_before_charge(facts)
        except InvalidInput:
            continue
        assert np.all(np.isfinite(guard.charge_and_answer(query))) and len(book.rows) == 1
        answered += 1
    assert answered >= 2


@pytest.mark.parametrize("seed", [18, 44])
def test_neither_of_two_neighbours_aborts_after_the_charge(seed: int) -> None:
    loss, n, d = Softmax(3), 100, 5
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-4.0, 0.0, size=d)
    X /= 1.000001 * np.linalg.norm(X, axis=1, keepdims=True)
    y, other = rng.integers(3, size=n), X.copy()
    other[0] = -X[0]
    q = 10.0 ** rng.uniform(-7.0, -5.0)
    linear = -q * rng.normal(size=3 * d) * 10.0 ** rng.uniform(-2.0, 2.0)
    query = NoisyMinimiser(rng.normal(size=3 * d), np.array([1.0]), "test", linear=linear)
    facts = Facts(loss, np.array([float(n)]), 3 * d, 1.0, q, 1, pure=False)
    for rows in (Rows.build_with_classes([(X, y)], 3), Rows.build_with_classes([(other, y)], 3)):
        guard = RowGuard(rows, facts, KeyedNoise(0, [0], [0], lead=()), Ledger("zcdp", delta=1e-5))
        assert np.all(np.isfinite(guard.charge_and_answer(query)))


@pytest.mark.parametrize("h", [2.0, 0.5, 1e-3, 1e-6])
@pytest.mark.parametrize("width", [3.0, 1e-2, 1e-5])
def test_a_softened_loss_is_near_its_own_and_consistent(h: float, width: float) -> None:
    loss, soft = HuberSVM(h), HuberSVM(h).softened(width)
    z = np.concatenate(
        [1.0 + np.linspace(-5.0, 5.0, 401) * max(h, width), np.linspace(-1e6, 1e6, 101)]
    )
    slope, step = soft.derivative(z), 1e-2 * width
    assert np.all(np.abs(slope - loss.derivative(z)) <= width * loss.curvature_bound * (1.0 + 1e-9))
    assert np.all((slope >= -1.0) & (slope <= 0.0)) and np.all(soft.curvature(z) >= 0.0)
    near = z[:401]
    told = (soft.derivative(near + step) - soft.derivative(near - step)) / (2.0 * step)
    np.testing.assert_allclose(
        soft.curvature(near), told, rtol=1e-2, atol=1e-4 * soft.curvature(near).max()
    )
    told = (soft.value(near + step) - soft.value(near - step)) / (2.0 * step)
    np.testing.assert_allclose(
        soft.derivative(near), told, atol=1e-3 + 1e-14 * max(1.0, width) ** 2 / step / h
    )


@pytest.mark.parametrize("h", [2.0, 0.25, 1e-3])
@pytest.mark.parametrize("width", [3.0, 1e-2, 1e-5])
def test_a_softened_loss_of_residuals_is_near_its_own_and_consistent(
    h: float, width: float
) -> None:
    loss, soft = HuberResidual(h), HuberResidual(h).softened(width)
    z = np.linspace(-5.0, 5.0, 401) * max(h, width)
    slope, step = soft.derivative(z), 1e-2 * width
    assert np.all(np.abs(slope - loss.derivative(z)) <= width * loss.curvature_bound * (1.0 + 1e-9))
    assert np.all(np.abs(slope) <= 1.0) and np.all(soft.curvature(z) >= 0.0)
    told = (soft.derivative(z + step) - soft.derivative(z - step)) / (2.0 * step)
    np.testing.assert_allclose(
        soft.curvature(z), told, rtol=1e-2, atol=1e-4 * soft.curvature(z).max()
    )
    told = (soft.value(z + step) - soft.value(z - step)) / (2.0 * step)
    np.testing.assert_allclose(slope, told, atol=2e-3 + 1e-14 * max(1.0, width) ** 2 / step / h)


def test_smooth_losses_are_their_own_softened_ones() -> None:
    for loss in (Logistic(), Softmax(3), LogCosh()):
        assert loss.softened(1.0) is loss


SMOOTH = [
    Logistic(),
    HuberSVM(0.5),
    HuberSVM(0.5).softened(0.1),
    Softmax(4),
    HuberResidual(2.0),
    LogCosh(0.3),
]


@pytest.mark.parametrize("loss", [*SMOOTH, HuberResidual(0.5).softened(0.1)])
@pytest.mark.parametrize("library", ["numpy", "array_api_strict"])
def test_gradient_derivative_is_that_of_the_derivative(loss: Loss, library: str) -> None:
    rng = np.random.default_rng(0)
    z, along, t = rng.normal(size=(2, 3, 12)), rng.normal(size=(2, 3, 12)), 1e-6
    told = (loss.derivative(z + t * along) - loss.derivative(z - t * along)) / (2.0 * t)
    xp = pytest.importorskip(library)
    turned = loss.gradient_derivative(xp.asarray(z), xp.asarray(along))
    assert array_namespace(turned) is array_namespace(xp.asarray(z))
    np.testing.assert_allclose(np.asarray(turned), told, atol=1e-8)


@pytest.mark.parametrize("kind", ["dense", "sparse", "array_api_strict", "cluster"])
def test_every_kind_of_rows_turns_alike(kind: str) -> None:
    rng = np.random.default_rng(1)
    X, w, along = rng.uniform(-0.5, 0.5, size=(40, 3)), rng.normal(size=3), rng.normal(size=3)
    y = rng.choice([-1.0, 1.0], size=40)
    if kind == "cluster":
        array = pytest.importorskip("dask.array")
        rows: Rows = ClusterRows.rows_from_dask(
            array.from_array(X, chunks=(16, 3)), array.from_array(y, chunks=16)
        )
    else:
        rows = Rows.build_from_parts([(csr_array(X) if kind == "sparse" else X, y)])
        if kind == "array_api_strict":
            pytest.importorskip(kind)
            rows = rows.with_backend(kind)
    turned = rows.sweep_over_rows().hessian_vector_product(
        Logistic(), w[None, None], along[None, None]
    )
    bends = Logistic().curvature(y * (X @ w))
    np.testing.assert_allclose(turned[0, 0], X.T @ (bends * (X @ along)), rtol=1e-12)
