"""A run from a public point: the same prices, the same bits without one, and a record that
nobody can mix up.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problems import make_rows

from sottovoce.algorithms import REGISTRY
from sottovoce.errors import CheckpointError, InvalidInput, LedgerMismatch
from sottovoce.ledger.durable import DurableLedger
from sottovoce.network.net import DenseNet, Net
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.queries import Query, Sum
from sottovoce.runs.engine import Place, run_rounds
from sottovoce.runs.prepare import prepare, rows_on_backend
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import (
    Result,
    RunConfig,
    Start,
    pooled_minimiser,
    simulate,
    simulate_many,
)
from sottovoce.util.typing import Array

ROWS = make_rows([90, 110, 100], 4, seed=3)
POINT = np.array([1.5, -0.75, 0.5, 2.0])


def config_of(method: str, **changes: Any) -> RunConfig:
    private = REGISTRY[method].private
    return RunConfig.from_dict(
        {
            "method": method,
            "epsilon": 3.0 if private else math.inf,
            "delta": 1e-5 if private else None,
        }
        | {"rounds": 5, "replicates": 2}
        | {"graph": "complete" if REGISTRY[method].trust.kind == "sum" else "path"}
        | changes
    )


@pytest.mark.parametrize("method", REGISTRY)
def test_a_start_at_zero_is_none_and_no_start_changes_a_price(method: str) -> None:
    config = config_of(method)
    none = simulate(config, ROWS)
    zero, away = (simulate(config, ROWS, start=Start(x)) for x in (np.zeros(4), POINT))
    assert np.array_equal(zero.models, none.models)
    for result in (zero, away):
        assert result.ledger == none.ledger
        assert replace(result.statement, caveat=None) == none.statement
    assert not np.array_equal(away.models, none.models)
    assert none.config == config and none.start is None and "start" not in config.to_dict()


@pytest.mark.parametrize("method", REGISTRY)
def test_start_moves_the_centre_of_the_regulariser(method: str) -> None:
    """An overwhelming regulariser keeps the model at the start; the round's own formulas are
    those of the method.
    """
    heavy = {
        "epsilon": math.inf,
        "delta": None,
        "rho": 3e4,
        "rounds": 3,
        "eta": 1e4,
        "replicates": 1,
    }
    far = simulate(config_of(method, **heavy), ROWS, start=Start(POINT)).models
    assert np.abs(far - POINT).max() < 1e-3
    assert np.abs(simulate(config_of(method, **heavy), ROWS).models).max() < 1e-3


@pytest.mark.parametrize(
    ("method", "rounds"), [("admm", 300), ("prox_admm", 300), ("dgd", 3000), ("central_gd", 3000)]
)
def test_run_converges_to_the_minimiser_around_the_start(method: str, rounds: int) -> None:
    config = config_of(
        method, epsilon=math.inf, delta=None, rho=0.3, rounds=rounds, eta=0.3, replicates=1
    )
    if method.endswith("gd"):
        config = replace(config, eta=0.5)
    model = simulate(config, ROWS, start=Start(POINT)).consensus[0]
    slope = np.zeros(4)
    for i in range(1 if method == "central_gd" else 3):
        rows = ROWS.pool_at_one_node() if method == "central_gd" else ROWS.rows_of_node(i)
        a = rows.signed[0]
        slope += (-a / (1 + np.exp(a @ model))[:, None]).mean(axis=0) + 0.1 * (model - POINT)
    # dgd with a constant step ends nearby
    assert np.linalg.norm(slope) < (0.02 if method == "dgd" else 1e-4)
    assert np.linalg.norm(slope - 0.3 * POINT) > 0.1  # around zero it would not vanish


@pytest.mark.parametrize("method", [name for name in REGISTRY if "gd" not in name])
def test_a_query_around_the_start_is_one_of_the_same_class_with_other_public_vectors(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first query minimises data + linear.w + q ||w||^2 / 2 as if it were written for v = w
    - start.
    """
    seen: list[tuple[Query | Sum, Array]] = []

    class Spy(RowGuard):
        def charge_and_answer(self, query: Query) -> Array:
            seen.append((query, super().charge_and_answer(query)))
            return seen[-1][1]

        def charge_and_open_sum(self, query: Sum, net: Net) -> Array:
            seen.append((query, super().charge_and_open_sum(query, net)))
            return seen[-1][1]

    monkeypatch.setattr("sottovoce.runs.simulate.RowGuard", Spy)
    config = config_of(method, rounds=1)
    result = simulate(config, ROWS, start=Start(POINT))
    ((query, answer),) = seen
    simulate(config, ROWS)
    (_, (plain, _)) = seen
    assert (
        type(query) is type(plain) and answer.shape == query.placeholder_answer(result.facts).shape
    )
    assert query.event(result.facts).to_dict() == plain.event(result.facts).to_dict()
    if isinstance(query, Sum) and isinstance(plain, Sum):
        query, plain = query.what, plain.what
    moved, mine = vars(query), vars(plain)
    assert np.array_equal(moved["start"], mine["start"] + POINT)
    if "linear" in mine:
        q = result.facts.mu + np.asarray(mine["curvature"], dtype=float)
        assert np.all(moved["linear"] == mine["linear"] - q * POINT)
    rest = {name for name in mine if name not in ("start", "linear", "origin")}
    assert all(np.array_equal(moved[name], mine[name]) for name in rest - {"noise"})


def test_the_record_names_the_start_and_survives_the_file(tmp_path: Path) -> None:
    start = Start(POINT, "run", 0.5, 1e-6)
    result = simulate(config_of("prox_admm"), ROWS, start=start)
    assert result.config.start == start.digest
    cost = "epsilon = 0.500, delta = 1e-06"
    assert cost in (result.statement.caveat or "")
    result.save(tmp_path / "run.npz")
    again = Result.load(tmp_path / "run.npz")
    assert again.config == result.config and again.start is not None
    assert again.start.digest == start.digest and again.start.vector.tobytes() == POINT.tobytes()
    assert np.array_equal(simulate(again.config, ROWS, start=again.start).models, result.models)
    assert RunConfig.from_dict(json.loads(json.dumps(result.config.to_dict()))) == result.config


def test_a_file_with_another_start_is_no_saved_run(tmp_path: Path) -> None:
    result = simulate(config_of("prox_admm"), ROWS, start=Start(POINT))
    for other in (Start(-POINT), Start(POINT, "public"), None):
        replace(result, start=other).save(tmp_path / "run.npz")
        with pytest.raises(CheckpointError, match="not a saved"):
            Result.load(tmp_path / "run.npz")


def test_a_checkpoint_and_a_ledger_of_another_start_are_refused(tmp_path: Path) -> None:
    config, path = config_of("mr_admm", replicates=1), tmp_path / "half.npz"
    whole = simulate(config, ROWS, start=Start(POINT))

    def stop(k: int, state: Any) -> None:
        if k == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(config, ROWS, start=Start(POINT), checkpoint=path, observers=[stop])
    for other in (None, Start(-POINT)):
        with pytest.raises(CheckpointError, match="another configuration"):
            simulate(config, ROWS, start=other, checkpoint=path)
    assert (
        simulate(config, ROWS, start=Start(POINT), checkpoint=path).models.tobytes()
        == whole.models.tobytes()
    )

    with DurableLedger.create(
        tmp_path / "a.ledger", epsilon=9.0, delta=1e-4, accountant="rdp", n_nodes=3
    ) as ledger:
        first = simulate(config, ROWS, start=Start(POINT), ledger=ledger, run_name="r")
        spent = ledger.total()
        for other in (None, Start(-POINT)):
            with pytest.raises(LedgerMismatch):
                simulate(config, ROWS, start=other, ledger=ledger, run_name="r")
        replayed = simulate(config, ROWS, start=Start(POINT), ledger=ledger, run_name="r")
        assert replayed.models.tobytes() == first.models.tobytes() == whole.models.tobytes()
        assert ledger.total() == spent


def test_starts_that_do_not_fit_are_refused() -> None:
    config = config_of("prox_admm", replicates=1)
    named = replace(config, start=Start(POINT).digest)
    for bad, start, rule in (
        (named, None, "^start='.*no starting point"),
        (named, Start(-POINT), "^start='.*is not the digest"),
        (config, Start(POINT[:3]), r"^start: .*\b3\b.*\b4\b"),
        (replace(config, seed=None), Start(POINT, "run", 1.0, 0.0, True), "protects nothing"),
        (replace(config, seed=None), Start(POINT, "run"), "protects nothing"),
        (config_of("dvp", form="printed"), Start(POINT), "a printed form starts at zero"),
    ):
        with pytest.raises(InvalidInput, match=rule):
            simulate(bad, ROWS, start=start)
    for vector in (np.array([np.nan, 1.0]), np.zeros((2, 2)), np.zeros(0)):
        with pytest.raises(InvalidInput, match="finite numbers"):
            Start(vector)
    for record in (
        {"kind": "rows"},
        {"epsilon": math.inf},
        {"delta": -1.0},
        {"simulated": 1},
        {"epsilon": "1"},
    ):
        with pytest.raises(InvalidInput, match=r"record.*starting point"):
            Start.from_record(POINT, Start(POINT).record | record)
    with pytest.raises(InvalidInput, match=r"digest.*starting point"):
        RunConfig(start="here")


def test_a_release_may_start_from_a_release_and_from_public_rows() -> None:
    config = config_of("prox_admm", replicates=1, seed=None, rounds=1)
    for start in (Start(POINT, "run", 1.0, 1e-6), Start(POINT, "public"), Start(POINT)):
        result = simulate(config, ROWS, start=start)
        assert not result.statement.simulated and result.statement.caveat == start.caveat


def test_a_start_from_an_earlier_run_lowers_the_error_at_a_small_budget() -> None:
    """Thirty replicates from zero and from one run at epsilon 1 on other rows of the same law;
    the gain is far beyond its standard error (the test's own, three of them, has an error rate
    below 1e-3)."""
    everything = make_rows([800] * 8, 8, seed=1)
    earlier, now = (replace_nodes(everything, part) for part in (slice(0, 4), slice(4, 8)))
    truth = pooled_minimiser(make_rows([40_000], 8, seed=1), RunConfig())
    before = simulate(RunConfig("prox_admm", 1.0, 1e-5, rounds=10, seed=5), earlier)
    config = RunConfig("prox_admm", 0.1, 1e-5, rounds=10, replicates=30)
    start = Start(before.consensus[0], "run", 1.0, 1e-5, True)
    errors = []
    for result in (simulate(config, now), simulate(config, now, start=start)):
        w = result.consensus
        errors.append(np.arccos(w @ truth / np.linalg.norm(w, axis=1) / np.linalg.norm(truth)))
    gain = errors[0] - errors[1]
    assert gain.mean() > 3 * gain.std(ddof=1) / math.sqrt(30) and gain.mean() > 0.05


def replace_nodes(rows: Any, part: slice) -> Any:
    return replace(rows, signed=rows.signed[part], n=rows.n[part])


@pytest.mark.parametrize("method", ["prox_admm", "mr_admm", "ipp_admm", "central_sgd"])
def test_replicates_may_start_at_different_points(method: str) -> None:
    """As a rehearsal needs it, where every world has a start of its own."""
    config, points = config_of(method), np.stack([POINT, -POINT])
    apart = [simulate(config, ROWS, start=Start(point)).models[r] for r, point in enumerate(points)]
    ready, rows = prepare(config, ROWS.n, 4), rows_on_backend(config, ROWS)
    nodes = len(rows.n)
    guard = RowGuard(rows, ready.facts, KeyedNoise(0, range(2), range(nodes)), ready.ledger)
    place = Place(ready.facts, DenseNet(ready.graph), guard, (2, nodes), 4, points[:, None, :])
    outcome = run_rounds(ready.algorithm, place, config.rounds)
    together = np.broadcast_to(
        place.fold_to_original_rows(ready.algorithm.model(outcome.state)), (2, nodes, 4)
    )
    np.testing.assert_allclose(together, np.stack(apart), rtol=1e-6, atol=1e-6)


def test_many_runs_share_a_start() -> None:
    config = config_of("prox_admm")
    (result,) = simulate_many([config], ROWS, start=Start(POINT))
    assert np.array_equal(result.models, simulate(config, ROWS, start=Start(POINT)).models)
