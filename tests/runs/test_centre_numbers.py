"""Centred rows with a number to predict: the guarantee, the price, sites, and models that come
back.

No command centres such rows by itself (docs/privacy/centring.md, "Numbers to predict"); a
centring that is given is used.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_centre import CASES, MEAN, ROWS, SIZES, K, N, P, Shifted, centring, config_of, tables

from sottovoce.answers.regression import LeastSquares
from sottovoce.answers.saved import SavedModel
from sottovoce.data import Schema
from sottovoce.data.rows import Rows
from sottovoce.deploy.local import run_sites
from sottovoce.ledger.durable import DurableLedger, rows_digest
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import HuberResidual, make_loss
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.queries import Gradient
from sottovoce.runs.centre import decide_centring, frame_of_schema
from sottovoce.runs.prepare import prepare
from sottovoce.runs.simulate import Result, RunConfig, simulate
from sottovoce.solvers.local import Solver
from sottovoce.util import files

TARGETS = tuple(np.random.default_rng(9).uniform(-1.0, 1.0, n) for n in SIZES)
SPEC = "log-cosh:0.25"


def rows_of(parts: Any = None, targets: Any = None) -> Rows:
    given = tables() if parts is None else parts
    return Rows.build_from_parts(
        [(X, np.ones(len(X))) for X, _ in given], TARGETS if targets is None else targets
    )


def run(config: RunConfig, **more: Any) -> Result:
    return simulate(replace(config, loss=SPEC), rows_of(), centre=centring(config), **more)


@pytest.mark.parametrize(
    ("method", "trust"), [c for c in CASES if c[0] in ("momentum", "prox_admm", "output")]
)
def test_centred_run_equals_run_on_explicitly_moved_rows(
    method: str, trust: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(method, trust)
    found = run(config)
    assert found.move is not None and found.centring is not None
    config, made = replace(config, loss=SPEC), found.centring
    assert found.ledger == prepare(config, N, P, centre=made).plan_ledger().to_list()
    assert [row["source"] for row in found.ledger].count("mean of rows") == 1
    assert found.ledger[0]["source"] == "mean of rows" and found.statement.epsilon <= 1.0
    noise, move, parts = (
        prepare(config, N, P, centre=made).algorithm.noise,
        found.move.for_replicate(0),
        [],
    )
    for X, y in tables():
        moved = 2.0 * (X - move.mean * (X[:, -1:] / move.k))
        moved[:, -1] = X[:, -1]
        parts.append(
            (moved / np.maximum(1.0, np.linalg.norm(moved, axis=1, keepdims=True)) * (1 - 1e-15), y)
        )
    eta = prepare(config, N, P).algorithm.penalty
    monkeypatch.setattr("sottovoce.runs.simulate.KeyedNoise", Shifted)
    written = simulate(replace(config, noise=noise, epsilon=5.0, eta=eta), rows_of(parts))
    again = found.move.unfold_from_models(found.models)
    np.testing.assert_allclose(
        again, written.models, atol=2e-4 * max(1.0, np.abs(written.models).max())
    )


def test_the_mean_does_not_read_the_numbers() -> None:
    config = replace(config_of("momentum"), loss=SPEC)
    other = rows_of(targets=[-t for t in TARGETS])
    first, second = (
        simulate(config, rows, centre=centring(config_of())) for rows in (rows_of(), other)
    )
    classes = simulate(config_of("momentum"), ROWS, centre=centring(config_of()))
    assert first.move == second.move == classes.move and not np.array_equal(
        first.models, second.models
    )


def test_no_row_moves_a_mean_gradient_by_more_than_its_sensitivity() -> None:
    """Pairs of opposite rows, both far below their number; the largest change is near the bound."""
    rng, loss = np.random.default_rng(2), make_loss("log-cosh:0.01")
    made = centring(config_of())
    move, n, most = made.map_for_mean(np.append(MEAN, 0.0)), 20, 0.0
    facts = Facts(
        loss, np.array([[float(n)]]), P, 1.0, 1.0, 1, pure=False, stretch=move.stretch_bound
    )
    base = np.tile(np.append(MEAN, K), (n, 1)) * 0.9
    for _ in range(200):
        a = rng.normal(size=P)
        a *= 0.999 / np.linalg.norm(a)
        w, pair = 0.1 * rng.normal(size=(1, 1, P)), []
        for row in (a, -a):
            X = base.copy()
            X[0] = row
            rows = Rows.build_from_parts([(X, np.ones(n))], [np.append(1.0, np.zeros(n - 1))])
            pair.append(Solver(replace(rows, move=move), loss, 1.0).gradient(w)[0, 0])
        most = max(most, float(np.linalg.norm(pair[0] - pair[1])))
    bound = float(Gradient(np.zeros((1, P))).mean_sensitivity(facts, facts.n)[0, 0])
    assert 0.9 * bound < most <= bound


@pytest.mark.parametrize("trust", ["nobody", "sum"])
def test_separate_sites_reach_the_models_of_the_simulation(trust: str) -> None:
    config = config_of("momentum", trust, rounds=3)
    whole = run(config)
    assert whole.centring is not None and whole.move is not None
    sites = run_sites(replace(config, loss=SPEC), rows_of(), centre=whole.centring)
    algorithm = prepare(whole.config, N, P, centre=whole.centring).algorithm
    for i, (outcome, ledger) in enumerate(sites):
        model = np.broadcast_to(algorithm.method_of_node(i).model(outcome.state), (P,))
        np.testing.assert_allclose(
            whole.move.for_replicate(0).fold_into_models(model), whole.models[0, i], atol=1e-9
        )
        assert [row["source"] for row in ledger.to_list()].count("mean of rows") == 1


def test_resumed_run_reuses_the_released_mean(tmp_path: Path) -> None:
    """Noise of a release comes from the system: the same mean can only be the stored one."""
    config, path, means = (
        config_of("prox_admm", seed=None, accountant="rdp"),
        tmp_path / "half.npz",
        list[Any](),
    )

    def stop(k: int, state: Any) -> None:
        if k == 4:
            raise KeyboardInterrupt

    options = {
        "fingerprint": rows_digest(*rows_of().fingerprint_arrays()),
        "n_nodes": 3,
        "epsilon": 20.0,
        "delta": 1e-5,
    }
    with DurableLedger.create(tmp_path / "a.ledger", accountant="rdp", **options) as book:
        with pytest.raises(KeyboardInterrupt):
            run(config, checkpoint=path, ledger=book, observers=[stop])
        means.append(files.read_packed_arrays(path)["curator.mean"])
        ends = [run(config, checkpoint=path, ledger=book) for _ in range(2)]
        path.unlink()
        ends.append(run(config, ledger=book))
        assert len(book.rows) == config.rounds + 1
    for end in ends:
        assert end.move is not None and np.array_equal(end.move.mean, means[0])
        assert np.array_equal(end.models, ends[0].models) and end.ledger == ends[0].ledger


def test_prediction_clips_rows_as_training_did(tmp_path: Path) -> None:
    columns = {f"x{j}": {"kind": "number", "lo": 0, "hi": 1} for j in range(4)}
    label = {"column": "y", "lo": 0, "hi": 10}
    schema = Schema.from_dict({"columns": columns, "label": label, "intercept": 1.0})
    rng = np.random.default_rng(0)
    raw = {f"x{j}": rng.beta(1.0, 8.0, size=900) for j in range(4)}
    raw["x0"][:5] = 1.0
    raw["y"] = 10.0 * raw["x0"]
    encoded = schema.encode(raw)
    assert encoded.y is not None
    rows = Rows.build_from_parts([(encoded.X, np.ones(900))], [encoded.y])
    config = RunConfig("momentum", epsilon=1.0, delta=1e-5, rounds=5, seed=1)
    made = decide_centring(config, rows.n, 5, frame_of_schema(schema)).centring
    result = simulate(replace(config, loss=SPEC), rows, centre=made)
    replace(result, extra={"data": "t", "schema": schema.to_dict()}).save(tmp_path / "run.npz")
    saved, move = (
        SavedModel.load(tmp_path / "run.npz"),
        result.move.for_replicate(0) if result.move is not None else None,
    )
    assert move is not None and saved.move == move
    moved = 2.0 * (encoded.X - move.mean * (encoded.X[:, -1:] / move.k))
    moved[:, -1] = encoded.X[:, -1]
    lengths = np.linalg.norm(moved, axis=1)
    wanted = (
        moved / np.maximum(1.0, lengths[:, None]) @ move.unfold_from_models(result.consensus[0])
    )
    assert lengths.max() > 1.3
    np.testing.assert_allclose(saved.margins(raw), wanted, atol=1e-12)
    assert np.abs(encoded.X @ result.consensus[0] - wanted).max() > 1e-3


def test_least_squares_model_is_folded_to_original_rows() -> None:
    """Rows of any norm are not shortened: the folded coefficients need no map, and are those
    without noise.
    """
    rng, wide = np.random.default_rng(3), list[np.ndarray]()
    truth = np.linspace(-0.3, 0.3, P)
    for n in SIZES:
        wide.append(1.5 * np.hstack([MEAN + 0.2 * rng.normal(size=(n, P - 1)), np.full((n, 1), K)]))
    rows = Rows.build_with_any_norm([(X, np.ones(len(X))) for X in wide]).with_offset(
        [X @ truth for X in wide]
    )
    config = RunConfig("auto", epsilon=1e7, delta=1e-5, seed=0)
    made = replace(centring(config_of()), k=1.5 * K)
    last = np.eye(P)[-1]
    more: dict[str, Any] = {"loss": Weighted(HuberResidual(1.0)), "centre": made}
    found = simulate(config, rows, method=LeastSquares(constant=last, free=np.ones(P)), **more)
    assert found.move is not None and np.linalg.norm(found.move.mean) > 0.3
    np.testing.assert_allclose(
        found.move.for_replicate(0).fold_into_models(found.outcome[0]), truth, atol=0.02
    )
    assert np.abs(found.outcome[0] - truth).max() > 0.1
