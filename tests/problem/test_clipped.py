"""Capped losses: derivatives, the cap itself, all kinds of rows, solves, sensitivities, and who
refuses them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array

from sottovoce.algorithms import REGISTRY, knobs_of
from sottovoce.data.cluster import ClusterRows
from sottovoce.data.memmap import write_rows
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.clipped import LEAST, Capped, clip_gradients, read_loss
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import REGISTRY as LOSSES
from sottovoce.problem.losses import Loss, Softmax, make_loss
from sottovoce.queries import GaussianLaw, NoisyGradient, NoisyMinimiser, PerturbedObjective
from sottovoce.runs.config import RunConfig
from sottovoce.runs.prepare import prepare
from sottovoce.runs.row_guard import RowGuard
from sottovoce.solvers import local as solvers
from sottovoce.solvers.local import Solver
from sottovoce.util.typing import Array

D, K = 3, 4
ONE = [
    "logistic",
    "huber:0.5",
    "huber:0.001",
    "huber-residual:0.25",
    "log-cosh:0.25",
    "log-cosh:0.001",
]
"""Losses of one margin, gentle and steep."""
UNCAPPED = ["quantile:0.9"]
"""Losses that have no capped form."""
CAPS = [1e-6, 1e-3, 0.2, 0.7, 1.0, 5.0]
NORMS = np.array([0.0, 1e-200, 1e-9, 1e-3, 0.03, 0.2, 0.5, 0.9, 1.0])
TAKING = {
    *(
        "prox_admm",
        "prox_average",
        "momentum",
        "pvp",
        "output",
        "dgd",
        "gradient_tracking",
        "dp_admm",
    ),
    *("central_gd", "central_sgd", "central_prox", "central_momentum", "sum_momentum", "sum_prox"),
}
U = 2.0**-53


def test_the_examples_cover_every_registered_loss() -> None:
    assert {spec.partition(":")[0] for spec in [*ONE, "softmax", *UNCAPPED]} == set(LOSSES)


@pytest.mark.parametrize("spec", UNCAPPED)
def test_losses_without_a_capped_form_refuse_a_cap(spec: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be clipped"):
        clip_gradients(make_loss(spec), 0.5)
    assert clip_gradients(make_loss(spec), math.inf) == make_loss(spec)


def margins(base: Loss, seed: int = 0) -> Array:
    """Margins (400, 9) around where the base bends, and far from it."""
    rng, wide = np.random.default_rng(seed), 1.0 / base.curvature_bound
    centre = 1.0 if base.name == "huber" else 0.0
    return centre + wide * rng.normal(size=(400, 9)) * 10.0 ** rng.uniform(-2.0, 2.0, size=(400, 1))


def table(
    base: Loss, n: int = 60, seed: int = 0, lengths: Array | None = None
) -> list[tuple[Array, Array]]:
    """One site: rows of very different norms, zero and one among them, and labels or numbers to
    predict.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    wanted = rng.choice([0.0, 1e-9, 1e-3, 0.1, 0.5, 0.999], size=n) if lengths is None else lengths
    X *= (wanted / np.linalg.norm(X, axis=1))[:, None]
    if base.outputs > 1:
        return [(X, rng.integers(base.outputs, size=n))]
    return [
        (
            X,
            rng.uniform(-1.0, 1.0, size=n)
            if base.offset_bound
            else rng.choice([-1.0, 1.0], size=n),
        )
    ]


def build(base: Loss, parts: list[tuple[Any, Array]]) -> Rows:
    if base.outputs > 1:
        return Rows.build_with_classes(parts, base.outputs)
    if base.offset_bound:
        return Rows.build_from_parts(
            [(X, np.ones(X.shape[0])) for X, _ in parts], [y for _, y in parts]
        )
    return Rows.build_from_parts(parts)


def by_definition(base: Loss, c: float, X: Array, y: Array, w: Array) -> Array:
    """The rows' gradients (n, width) at w, one by one: from the definition, in plain words."""
    out = []
    for x, label in zip(X, y, strict=True):
        norm = math.sqrt(math.fsum(x * x))
        if base.outputs > 1:
            scores = x @ w.reshape(-1, D).T
            p = np.exp(scores - scores.max())
            p /= p.sum()
            own = np.eye(base.outputs)[label]
            far = np.delete(p, label).sum()
            share = 1.0 if norm * far * math.sqrt(2.0) <= c else c / (norm * far * math.sqrt(2.0))
            out.append(np.outer((p - own) * share, x).ravel())
            continue
        a, z = (x, x @ w - label) if base.offset_bound else (label * x, label * x @ w)
        slope = float(base.derivative(np.array([z]))[0])
        most = math.inf if norm == 0.0 else c / norm
        out.append(min(max(slope, -most), most) * a)
    return np.array(out)


# --- The loss in its margin -----------------------------------------------------------------------


@pytest.mark.parametrize("c", CAPS)
@pytest.mark.parametrize("spec", ONE)
def test_a_margin_loss_is_convex_and_consistent(spec: str, c: float) -> None:
    base = make_loss(spec)
    own, z, wide = (
        clip_gradients(base, c).for_row_norms(lambda: NORMS),
        margins(base),
        1.0 / base.curvature_bound,
    )
    slope, bend, h = own.derivative(z), own.curvature(z), 1e-5 * wide
    k = np.minimum(c / np.maximum(NORMS, c / 2.0), 2.0)
    np.testing.assert_array_equal(slope, np.clip(base.derivative(z), -k, k))
    told = (own.value(z + h) - own.value(z - h)) / (2.0 * h)
    np.testing.assert_allclose(told, slope, atol=2e-5 + 4.0 * U * np.abs(own.value(z)).max() / h)
    assert np.all(np.diff(own.derivative(np.sort(z, axis=0)), axis=0) >= -4.0 * U)
    assert np.all((bend >= 0.0) & (bend <= base.curvature_bound))
    # not at the edge, nor where the base itself jumps
    away = np.abs(np.abs(base.derivative(z)) - k) > 1e-4
    for jump in base.curvature_jumps:
        away &= np.abs(z - jump) > 2.0 * h
    told = (own.derivative(z + h) - own.derivative(z - h)) / (2.0 * h)
    np.testing.assert_allclose(told[away], bend[away], atol=1e-4 * base.curvature_bound)
    np.testing.assert_array_equal(own.gradient_derivative(z, 0.5 * z), bend * 0.5 * z)
    typical = own.typical_curvature(z)
    assert np.all((typical >= 0.0) & (typical <= base.curvature_bound * (1.0 + 1e-12)))
    assert np.all(own.value(z) <= base.value(z) * (1.0 + 1e-9) + 1e-9) and np.all(
        own.value(z) >= 0.0
    )
    assert np.all(np.isfinite(own.value(np.full((1, 9), -1e6)))) and np.all(
        np.isfinite(own.derivative(1e6 + z))
    )


@pytest.mark.parametrize("c", [1e-6, 1e-3, 0.2, 5.0])
@pytest.mark.parametrize("width", [3.0, 0.1, 1e-3])
@pytest.mark.parametrize("spec", ONE)
def test_a_softened_margin_loss_is_near_its_own_convex_and_consistent(
    spec: str, width: float, c: float
) -> None:
    base = make_loss(spec)
    wide = 1.0 / base.curvature_bound
    own, z = clip_gradients(base, c).for_row_norms(lambda: NORMS), margins(base)
    soft = own.softened(width * wide)
    # the width times the bend's bound
    assert np.all(np.abs(soft.derivative(z) - own.derivative(z)) <= width * (1.0 + 1e-9))
    assert np.all(np.diff(soft.derivative(np.sort(z, axis=0)), axis=0) >= -1e-12) and np.all(
        soft.curvature(z) >= 0.0
    )
    h = 1e-3 * min(width, 1.0) * wide
    told = (soft.derivative(z + h) - soft.derivative(z - h)) / (2.0 * h)
    np.testing.assert_allclose(soft.curvature(z), told, atol=2e-3 * base.curvature_bound)


@pytest.mark.parametrize("spec", [*ONE, f"softmax:{K}"])
@pytest.mark.parametrize(
    "library", [name for name in ("array_api_strict", "torch") if find_spec(name)]
)
def test_other_array_libraries_give_equal_capped_losses(spec: str, library: str) -> None:
    home = pytest.importorskip(f"array_api_compat.{library}" if library == "torch" else library)
    base = make_loss(spec)
    z = (
        margins(base)[:5, :4]
        if base.outputs == 1
        else np.random.default_rng(0).normal(size=(5, 16))
    )
    for norms in (np.array([0.0, 1e-3, 0.4, 1.0]), None):
        for soft in (False, True):
            here = there = clip_gradients(base, 0.2)
            if norms is not None:
                here = here.for_row_norms(lambda norms=norms: norms)
                there = there.for_row_norms(lambda norms=norms: home.asarray(norms))
            pair = [one.softened(0.1) if soft else one for one in (here, there)]
            for name in (
                "derivative",
                "curvature",
                "typical_curvature",
                *(() if soft else ("value",)),
            ):
                told = np.asarray(getattr(pair[1], name)(home.asarray(z)))
                np.testing.assert_allclose(told, getattr(pair[0], name)(z), rtol=1e-11, atol=1e-13)
            told = np.asarray(pair[1].gradient_derivative(home.asarray(z), home.asarray(z)))
            np.testing.assert_allclose(
                told, pair[0].gradient_derivative(z, z), rtol=1e-10, atol=1e-12
            )


@pytest.mark.parametrize("spec", ["logistic", "huber-residual:0.25", f"softmax:{K}"])
def test_without_norms_every_row_counts_as_one_of_norm_one(spec: str) -> None:
    loss = clip_gradients(make_loss(spec), 0.3)
    for lead in ((), (2,), (2, 3)):
        z = np.random.default_rng(1).normal(size=(*lead, 5 * loss.outputs))
        normed = loss.for_row_norms(lambda lead=lead: np.ones((*lead[:1], 5)))
        for name in ("value", "derivative", "curvature"):
            plain, same = getattr(loss, name)(z), getattr(normed, name)(z)
            assert plain.shape == same.shape == ((*lead, 5) if name == "value" else z.shape)
            np.testing.assert_array_equal(plain, same)


# --- The cap --------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", CAPS)
@pytest.mark.parametrize("spec", [*ONE, "softmax:2", f"softmax:{K}", "softmax:30"])
def test_no_rows_gradient_is_longer_than_the_cap(spec: str, c: float) -> None:
    """Every site has one row, so the solver's gradient is the row's, as it is computed."""
    base = make_loss(spec)
    (X, y), rng = table(base, 40)[0], np.random.default_rng(2)
    rows = build(base, [(X[i : i + 1], y[i : i + 1]) for i in range(len(X))])
    solver, most, longest = (
        Solver(rows, clip_gradients(base, c), 1.0),
        min(c, base.derivative_bound),
        0.0,
    )
    for size in (0.0, 0.1, 1.0, 30.0, 1e3, 1e6):
        g = np.linalg.norm(solver.gradient(size * rng.normal(size=(8, len(X), rows.d))), axis=-1)
        # of this norm; of 1 - p
        slack = 8.0 * U * c if base.outputs == 1 else 32.0 * base.outputs * U
        assert g.max() <= most + slack
        longest = max(longest, float(g.max()))
    assert longest >= 0.9 * most  # the bound is attained


def test_norms_are_upper_bounds_and_close() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 30)) * 10.0 ** rng.uniform(-6.0, 0.0, size=(200, 30))
    X /= 1.001 * np.linalg.norm(X, axis=1, keepdims=True)
    X[0] = 0.0
    kinds = [
        Rows.build_from_parts([(X, np.ones(200))]),
        Rows.build_from_parts([(csr_array(X), np.ones(200))]),
    ]
    kinds += [kinds[0].with_backend("array_api_strict")] if find_spec("array_api_strict") else []
    for rows in kinds:
        design = rows.sweep_over_rows().batches[0].design
        found = design.to_numpy_array(design.row_norm_bounds())[0]
        assert found[0] == 0.0
        for x, norm in zip(X[1:], found[1:], strict=True):
            exact = sum(Fraction(float(v)) ** 2 for v in x)
            assert exact <= Fraction(float(norm)) ** 2 <= exact * (1 + Fraction(1, 10**13))


# --- Softmax --------------------------------------------------------------------------------------


def hessian(gradient: Callable[[Array], Array], w: Array, h: float = 1e-5) -> Array:
    eye = h * np.eye(len(w))
    return np.stack([(gradient(w + e) - gradient(w - e)) / (2.0 * h) for e in eye])


@pytest.mark.parametrize("c", [0.05, 0.3, 0.8, 1.5])
def test_capped_softmax_has_a_symmetric_hessian_between_zero_and_a_half(c: float) -> None:
    rng, most, clipped = np.random.default_rng(4), 0.0, 0
    for _ in range(40):
        x = rng.normal(size=(1, D))
        x /= np.linalg.norm(x) * (1.0 + 1e-12) * rng.choice([1.0, 3.0])
        solver = Solver(
            Rows.build_with_classes([(x, rng.integers(K, size=1))], K),
            clip_gradients(Softmax(K), c),
            1.0,
        )
        w = 2.0 * rng.normal(size=K * D)
        H = hessian(solver.gradient, w)
        clipped += bool(np.linalg.norm(solver.gradient(w)) > 0.9 * c)
        np.testing.assert_allclose(H, H.T, atol=1e-8)
        values = np.linalg.eigvalsh(0.5 * (H + H.T))
        assert values[0] >= -1e-8 and values[-1] <= 0.5 * np.sum(x * x) + 1e-8
        most = max(most, float(values[-1]))
    assert most > 0.2 * min(c, 0.5) and (clipped > 2 or c > 2**0.5)


def test_softmax_clipped_by_the_norm_of_its_gradient_would_be_no_gradient() -> None:
    """Why the cap acts on the probability of the row's own class, and not on the gradient's
    norm.
    """

    def clipped(u: Array) -> Array:
        p = np.exp(u) / np.exp(u).sum()
        g = p - np.array([1.0, 0.0, 0.0])
        return g * min(1.0, 0.3 / np.linalg.norm(g))

    H = hessian(clipped, np.array([0.2, 1.0, -0.4]))
    assert np.abs(H - H.T).max() > 1e-3


@pytest.mark.parametrize("c", [1e-3, 0.3])
def test_softmax_turns_by_its_hessian_and_softened_ones_too(c: float) -> None:
    rows = build(Softmax(K), table(Softmax(K)))
    sweep, rng = rows.sweep_over_rows().with_known_norms(), np.random.default_rng(5)
    w, along, h = rng.normal(size=(1, 1, K * D)), rng.normal(size=(1, 1, K * D)), 1e-6
    for loss in (
        clip_gradients(Softmax(K), c),
        clip_gradients(Softmax(K), c).softened(0.1),
        clip_gradients(Softmax(K), c).softened(1e-3),
    ):
        told = (
            sweep.sum_gradients(loss, w + h * along) - sweep.sum_gradients(loss, w - h * along)
        ) / (2.0 * h)
        np.testing.assert_allclose(sweep.hessian_vector_product(loss, w, along), told, atol=1e-6)
        near = sweep.sum_gradients(loss, w) - sweep.sum_gradients(clip_gradients(Softmax(K), c), w)
        assert np.linalg.norm(near) <= 60 * 2**0.5 * loss.width * (1.0 + 1e-9)  # type: ignore[attr-defined]


# --- Rows of every kind ---------------------------------------------------------------------------


def every_kind(base: Loss, parts: list[tuple[Array, Array]], folder: Path) -> dict[str, Rows]:
    X, y = parts[0]
    found = {"dense": build(base, parts), "sparse": build(base, [(csr_array(X), y)])}
    found |= {
        name: found["dense"].with_backend(name)
        for name in ("array_api_strict", "torch")
        if find_spec(name)
    }
    if base.outputs == 1 and not base.offset_bound:
        found["mapped"] = write_rows(folder / "rows", [(0, X[:25], y[:25]), (0, X[25:], y[25:])])
        if find_spec("dask"):
            array = pytest.importorskip("dask.array")
            found["cluster"] = ClusterRows.rows_from_dask(
                array.from_array(X, chunks=(25, D)), array.from_array(y, chunks=25)
            )
    return found


@pytest.mark.parametrize(
    "spec", ["logistic", "huber:0.5", "huber-residual:0.25", "log-cosh:0.25", f"softmax:{K}"]
)
def test_rows_of_every_kind_have_the_gradients_of_the_definition(spec: str, tmp_path: Path) -> None:
    base, c = make_loss(spec), 0.15
    parts = table(base)
    (X, y), rng = parts[0], np.random.default_rng(6)
    width = D * base.outputs
    points = [rng.normal(size=width) * size for size in (0.1, 3.0, 50.0)]
    for name, rows in every_kind(base, parts, tmp_path).items():
        solver = Solver(rows, clip_gradients(base, c), 1.0)
        for w in points:
            exact = by_definition(base, c, X, y, w)
            np.testing.assert_allclose(
                solver.gradient(w), exact.mean(axis=0), rtol=1e-11, atol=1e-14, err_msg=name
            )
            np.testing.assert_allclose(
                solver.gradient(w, 1, 2), exact[1::2].mean(axis=0), rtol=1e-11, atol=1e-14
            )
            p, h = rng.normal(size=width), 1e-6
            rise = (
                solver.clipped_objective(w + h * p, np.inf)
                - solver.clipped_objective(w - h * p, np.inf)
            ) / (2.0 * h)
            np.testing.assert_allclose(rise[0], exact.mean(axis=0) @ p, atol=1e-6)
    # there is something to cap
    assert np.any(np.linalg.norm(by_definition(base, 9.0, X, y, points[1]), axis=1) > 2.0 * c)


@pytest.mark.parametrize("spec", ["logistic", "huber:0.5", "huber-residual:0.25", f"softmax:{K}"])
def test_sweeps_in_single_precision_are_those_in_double_but_for_rounding(
    spec: str, tmp_path: Path
) -> None:
    base, c = make_loss(spec), 0.15
    w = np.random.default_rng(7).normal(size=(1, 2, D * base.outputs))
    for name, rows in every_kind(base, table(base), tmp_path).items():
        sweep = rows.sweep_over_rows().with_known_norms()
        short = sweep.in_single_precision()
        if name in ("sparse", "cluster"):
            assert short is None or name == "cluster"
            continue
        assert short is not None
        double, single = (one.sum_gradients(clip_gradients(base, c), w) for one in (sweep, short))
        np.testing.assert_allclose(single, double, atol=60 * 32 * 2.0**-24)
        assert (
            np.abs(single - double).max() > 0.0
            and np.linalg.norm(double - sweep.sum_gradients(base, w)) > 0.1
        )
        for typical in (True, False):
            pair = [
                one.sum_curvatures(clip_gradients(base, c), w, False, typical)
                for one in (sweep, short)
            ]
            np.testing.assert_allclose(
                pair[1], pair[0], atol=60 * 64 * 2.0**-24 * base.curvature_bound
            )


def test_sites_of_different_sizes_are_capped_row_by_row() -> None:
    """Norms are computed in blocks, and small sites are filled up with rows of zeros."""
    base, c = make_loss("logistic"), 0.1
    parts = [table(base, n, seed=n)[0] for n in (7, 60, 61, 5000)]
    w = np.random.default_rng(8).normal(size=(4, D))
    got = Solver(Rows.build_from_parts(parts), clip_gradients(base, c), 1.0).gradient(w)
    for g, (X, y), x in zip(got, parts, w, strict=True):
        np.testing.assert_allclose(
            g, by_definition(base, c, X, y, x).mean(axis=0), rtol=1e-11, atol=1e-14
        )


# --- Solves ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("worth", [np.inf, 0.0], ids=["double", "single first"])
@pytest.mark.parametrize(
    "spec", ["logistic", "huber:0.5", "huber-residual:0.25", "log-cosh:0.25", f"softmax:{K}"]
)
def test_the_solver_finds_the_minimiser_of_the_capped_objective(
    spec: str, worth: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solvers, "SINGLE_WORTH", worth)
    base, q = make_loss(spec), 0.01
    X, y = table(base, seed=9)[0]
    for c in (0.03, 0.3):
        rows = build(base, [(X, y)])
        solver, width = Solver(rows, clip_gradients(base, c), 1.0), D * base.outputs
        linear = 0.01 * np.random.default_rng(9).normal(size=width)

        def objective(
            w: Array, solver: Solver = solver, linear: Array = linear
        ) -> tuple[float, Array]:
            value = float(solver.clipped_objective(w, np.inf)[0]) + linear @ w + 0.5 * q * w @ w
            return value, solver.gradient(w) + linear + q * w

        found = solver.minimise(linear, np.array([q]), np.zeros(width), 1e-10)
        assert found.gradient_norm <= 1e-10
        own = minimize(
            objective,
            np.zeros(width),
            jac=True,
            method="BFGS",
            options={"gtol": 1e-9, "maxiter": 2000},
        )
        assert np.linalg.norm(own.x - found.w) <= (np.linalg.norm(own.jac) + 1e-10) / q * (
            1.0 + 1e-6
        )
        assert np.linalg.norm(own.jac) < 1e-5


# --- Sensitivities --------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
@pytest.mark.parametrize("spec", ["logistic", "huber:0.5", "huber-residual:0.25", f"softmax:{K}"])
def test_a_row_moves_gradients_and_minimisers_by_what_is_stated_and_hardly_less(
    spec: str, relation: str
) -> None:
    """Random rows and points, and two adversarial rows that face each other across a steep
    point.
    """
    base, n, c = make_loss(spec), 5, 0.2
    rng, width, zero = np.random.default_rng(10), D * base.outputs, relation == "zero-out"
    facts = Facts(
        clip_gradients(base, c),
        np.array([float(n)]),
        width,
        1.0,
        1e-4,
        1,
        relation=relation,
        pure=False,
    )
    query = NoisyMinimiser(np.zeros(width), np.array([1.0]), "test", curvature=np.array([40.0]))
    q = np.array([40.0 + facts.mu])
    gradient = NoisyGradient(np.zeros(width), np.array([1.0]), "test")
    stated = np.array([one.exact_sensitivity(facts)[0] for one in (gradient, query)])
    assert stated[0] == pytest.approx((1.0 if zero else 2.0) * c / n, rel=1e-9)
    most = np.zeros(2)
    for trial in range(60):
        X, y = table(base, n, seed=trial)[0]
        other, its, at = X.copy(), y.copy(), 10.0 ** rng.uniform(-1.0, 2.0) * rng.normal(size=width)
        fresh, labels = table(base, n, seed=1000 + trial)[0]
        other[0], its[0] = fresh[0], labels[0]
        if trial == 0:  # two rows that point away from each other, where all slopes are capped
            X[0], other[0], at = [0.98, 0.15, 0.0], [-0.392, 0.06, 0.0], np.zeros(width)
            y[0] = its[0] = 0 if base.outputs > 1 else 1.0
            if base.offset_bound:
                other[0], its[0] = X[0], -1.0
            if base.outputs > 1:
                at[D + 1] = 1e3  # both are taken for class 1
        if zero:
            other[0], its[0] = 0.0, 0.0 if base.offset_bound else y[0]
        pair = [Solver(build(base, [part]), facts.loss, 1.0) for part in ((X, y), (other, its))]
        moved = pair[0].gradient(at) - pair[1].gradient(at)
        solved = [one.minimise(-q * at, q, at, 1e-8).w for one in pair]
        found = np.array([np.linalg.norm(moved), np.linalg.norm(solved[0] - solved[1])])
        assert np.all(found <= stated * (1.0 + 1e-12))
        most = np.maximum(most, found)
    assert np.all(most >= 0.9 * stated)


def test_the_sensitivity_is_the_cap_or_the_bound_of_the_loss() -> None:
    for spec in [*ONE, f"softmax:{K}"]:
        base = make_loss(spec)
        for c in CAPS:
            loss = clip_gradients(base, c)
            assert (
                loss.derivative_bound == min(c, base.derivative_bound)
                and loss.curvature_bound == base.curvature_bound
            )
            assert loss.outputs == base.outputs and loss.offset_bound == base.offset_bound


@pytest.mark.parametrize("method", sorted(TAKING))
def test_the_noise_of_a_run_shrinks_with_the_cap(method: str) -> None:
    n, spreads = np.full((3, 1), 500.0), []
    for c in (math.inf, 0.25):
        config = RunConfig.from_dict(
            {
                "method": method,
                "epsilon": 1.0,
                "delta": 1e-5,
                "rounds": 2,
                "eta": 0.1,
                "max_grad_norm": c,
            }
        )
        ready = prepare(config, n, 4)
        spreads.append(float(np.max(ready.plan_ledger().rows[0].noise_standard_deviation())))
        assert ready.facts.loss.derivative_bound == min(c, 1.0)
    assert spreads[1] / spreads[0] == pytest.approx(0.25, rel=1e-3)


# --- What is refused, and what is written ---------------------------------------------------------


def test_methods_take_a_cap_or_refuse_it_in_one_line_before_anything_is_spent() -> None:
    assert {
        name for name, cls in REGISTRY.items() if "max_grad_norm" in knobs_of(cls.options)
    } == TAKING
    for name, cls in REGISTRY.items():
        for form in cls.forms:
            given = {
                "method": name,
                "form": form,
                "epsilon": 1.0 if cls.private else math.inf,
                "delta": 1e-5,
            }
            if name in TAKING and form == "corrected":
                assert RunConfig.from_dict({**given, "max_grad_norm": 0.2}).gradient_cap == 0.2
                continue
            with pytest.raises(
                InvalidInput, match=rf"^max_grad_norm=0\.2: {name} in the {form} form"
            ) as error:
                RunConfig.from_dict({**given, "max_grad_norm": 0.2})
            assert "\n" not in str(error.value)


@pytest.mark.parametrize("spec", ["logistic", "huber:0.5"])
def test_noise_inside_an_objective_refuses_a_capped_loss_before_the_charge(spec: str) -> None:
    base = make_loss(spec)
    rows = build(base, table(base))
    facts = Facts(clip_gradients(base, 0.2), rows.n[0], D, 1.0, 0.1, 1, pure=False)
    query = PerturbedObjective(
        np.zeros(D), np.array([0.1]), np.zeros(D), GaussianLaw(np.array([9.0])), "test"
    )
    book = Ledger("zcdp", delta=1e-5)
    with pytest.raises(InvalidInput, match="gradient clipping"):
        RowGuard(rows, facts, KeyedNoise(0, [0], [0], lead=()), book).charge_and_answer(query)
    assert not book.rows


@pytest.mark.parametrize("wrong", [0.0, LEAST / 2.0, -1.0, math.nan, "a", True])
def test_caps_out_of_range_are_refused(wrong: object) -> None:
    with pytest.raises(InvalidInput, match=r"^max_grad_norm"):
        RunConfig.from_dict({"method": "dgd", "max_grad_norm": wrong})
    if not isinstance(wrong, str | bool):
        with pytest.raises(InvalidInput, match=r"^max_grad_norm"):
            clip_gradients(make_loss("logistic"), float(wrong))  # type: ignore[arg-type]


def test_a_loss_without_a_capped_form_is_refused() -> None:
    class Bare(type(make_loss("logistic"))):  # type: ignore[misc]
        def margin_of_derivative(self, s: Any) -> None:
            return None

    with pytest.raises(InvalidInput, match="cannot be clipped"):
        clip_gradients(Bare(), 0.2)


@pytest.mark.parametrize("spec", [*ONE, f"softmax:{K}"])
def test_a_capped_loss_is_written_and_read_with_every_digit(spec: str) -> None:
    base = make_loss(spec)
    for c in (0.1 + 0.2, 1e-6, np.float64(2.5)):
        loss = clip_gradients(base, c)
        assert (
            isinstance(loss, Capped)
            and read_loss(loss.spec) == loss
            and loss != clip_gradients(base, 0.9)
            and loss != base
        )
        facts = Facts(loss, np.full((2, 1), 5.0), 3 * base.outputs, 1.0, 0.1, 2)
        again = Facts.from_dict(facts.to_dict())
        assert again.loss == loss and again.gradients_changed == facts.gradients_changed
        assert (
            hash(loss) == hash(again.loss)
            and replace(facts, loss=again.loss).facts_of_node(0).loss == loss
        )
    assert read_loss(base.spec) == base and clip_gradients(base, math.inf) is base


def test_configurations_keep_the_cap_and_say_nothing_where_there_is_none() -> None:
    config = RunConfig.from_dict({"method": "prox_admm", "delta": 1e-5, "max_grad_norm": 0.1 + 0.2})
    assert (
        RunConfig.from_dict(config.to_dict()) == config
        and config.to_dict()["max_grad_norm"] == 0.1 + 0.2
    )
    assert "max_grad_norm" not in RunConfig(method="prox_admm").to_dict()
    ready = prepare(config, np.full((3, 1), 500.0), 4)
    assert ready.algorithm.to_dict()["max_grad_norm"] == 0.1 + 0.2
    bare = prepare(RunConfig(method="prox_admm"), np.full((3, 1), 500.0), 4)
    assert (
        "max_grad_norm" not in bare.algorithm.to_dict() and "@" not in bare.facts.to_dict()["loss"]
    )
