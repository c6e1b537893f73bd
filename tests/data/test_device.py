"""Other array libraries multiply the same rows: same noise, same ledger, models equal to the
certificate.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from problems import make_rows
from scipy.sparse import csr_array

from sottovoce.data.device import backend_from_spec, backend_spec_of
from sottovoce.data.rows import Rows
from sottovoce.deploy.local import run_sites
from sottovoce.errors import InvalidInput
from sottovoce.problem.losses import REGISTRY, Loss
from sottovoce.runs.simulate import RunConfig, simulate
from sottovoce.solvers import local as solvers
from sottovoce.solvers.local import Solver

INSTALLED = [name for name in ("array_api_strict", "torch", "jax") if find_spec(name)]
LOSSES = [kind() for kind in REGISTRY.values() if not kind.offset_bound]


def rows_for(loss: Loss) -> Rows:
    rows = make_rows([60, 45, 7], 4)
    if loss.outputs == 1:
        return rows
    n = rows.n[:, 0].astype(int)
    rng = np.random.default_rng(0)
    return Rows.build_with_classes(
        [(rows.signed[i, :m], rng.integers(3, size=m)) for i, m in enumerate(n)], 3
    )


def test_a_library_is_installed_to_test_with() -> None:
    assert "array_api_strict" in INSTALLED


@pytest.mark.parametrize("name", INSTALLED)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_sweeps_agree_with_numpy(name: str, loss: Loss) -> None:
    rows = rows_for(loss)
    here, there = Solver(rows, loss, 2.0), Solver(rows.with_backend(name), loss, 2.0)
    w = np.random.default_rng(1).standard_normal((5, 3, rows.d))
    np.testing.assert_allclose(there.gradient(w), here.gradient(w), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        there.gradient(w, 1, 2), here.gradient(w, 1, 2), rtol=1e-12, atol=1e-14
    )
    np.testing.assert_allclose(
        there.clipped_objective(w, 0.7), here.clipped_objective(w, 0.7), rtol=1e-12
    )
    for diagonal in (True, False):
        pair = [
            r.sweep_over_rows().sum_curvatures(loss, w.transpose(1, 0, 2), diagonal)
            for r in (rows, rows.with_backend(name))
        ]
        np.testing.assert_allclose(pair[1], pair[0], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("worth", [np.inf, 0.0], ids=["double", "single first"])
@pytest.mark.parametrize("name", INSTALLED)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_runs_agree_with_numpy(
    name: str, loss: Loss, worth: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solvers, "SINGLE_WORTH", worth)
    rows = rows_for(loss)
    knobs: dict[str, Any] = {
        "method": "prox_admm",
        "loss": loss.spec,
        "epsilon": 3.0,
        "delta": 1e-5,
        "rounds": 4,
        "eta": 0.1,
        "replicates": 3,
    }
    here, there = (
        simulate(RunConfig.from_dict({"backend": b, **knobs}), rows) for b in ("numpy", name)
    )
    assert there.ledger == here.ledger
    np.testing.assert_allclose(there.models, here.models, atol=2e-6)
    assert there.config.backend == name
    for i, (outcome, _) in enumerate(
        run_sites(RunConfig.from_dict({"backend": name, **knobs}), rows, replicate=2)
    ):
        np.testing.assert_allclose(outcome.state.mean, here.models[2, i], atol=2e-6)


@pytest.mark.parametrize("name", INSTALLED)
def test_backend_is_found_from_the_array(name: str) -> None:
    assert (
        backend_spec_of(backend_from_spec(name).copy_to_device(np.zeros(2))) == name
        and backend_spec_of(np.zeros(2)) == backend_spec_of([0.0]) == "numpy"
    )


def test_arrays_passed_in_choose_the_backend() -> None:
    home = backend_from_spec("array_api_strict")
    rng = np.random.default_rng(2)
    parts = [
        (rng.uniform(-0.4, 0.4, size=(20, 3)), np.where(rng.random(20) < 0.5, -1.0, 1.0))
        for _ in range(2)
    ]
    rows = Rows.build_from_parts(
        [(home.copy_to_device(X), home.copy_to_device(y)) for X, y in parts]
    )
    assert (
        rows.backend == "array_api_strict"
        and rows.rows_of_node(1).backend == rows.pool_at_one_node().backend == rows.backend
    )
    np.testing.assert_array_equal(rows.signed, Rows.build_from_parts(parts).signed)
    run = RunConfig(method="output", epsilon=1.0, eta=0.1, graph="path")
    np.testing.assert_allclose(
        simulate(run, rows).models, simulate(run, Rows.build_from_parts(parts)).models, atol=1e-6
    )


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        ("tensorflow", "must be one of numpy, torch"),
        ("torch:abacus", "abacus|not installed"),
        ("cupy", "not installed|no such"),
    ],
)
def test_bad_backends_are_refused_before_anything_is_spent(spec: str, rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        simulate(RunConfig(backend=spec, epsilon=30.0), make_rows([60, 45, 50, 60, 60], 4))


def test_sparse_rows_stay_on_the_host() -> None:
    X = csr_array(np.eye(4)[:3] * 0.5)
    with pytest.raises(InvalidInput, match="sparse"):
        Rows.build_from_parts([(X, np.array([1.0, -1.0, 1.0]))]).with_backend("array_api_strict")
