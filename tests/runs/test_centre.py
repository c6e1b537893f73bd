"""Centring: the mean is charged first and asked once, rows are moved by it, and models come
back.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sottovoce.algorithms.items import Answer
from sottovoce.answers.saved import SavedModel
from sottovoce.data import Schema
from sottovoce.data import move as move_module
from sottovoce.data.rows import Rows
from sottovoce.errors import BudgetExceeded, CheckpointError, InvalidInput, LedgerMismatch
from sottovoce.ledger.durable import DurableLedger, rows_digest
from sottovoce.ledger.memory import Ledger
from sottovoce.network.graphs import make_graph
from sottovoce.network.net import DenseNet, QueueNet
from sottovoce.privacy.gaussian import gaussian_mu
from sottovoce.privacy.noise import KeyedNoise, Noise
from sottovoce.problem.facts import Among
from sottovoce.runs import engine
from sottovoce.runs.centre import (
    LEAST,
    MOST,
    Centring,
    Decision,
    Frame,
    decide_centring,
    frame_of_schema,
)
from sottovoce.runs.engine import Place
from sottovoce.runs.prepare import prepare
from sottovoce.runs.pricing import Prepared
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import Result, RunConfig, Start, pooled_minimiser, simulate
from sottovoce.util import files

P, K = 9, 0.4
SIZES = (300, 420, 380)
MEAN = np.array([0.3, 0.25, -0.2, 0.3, 0.35, -0.3, 0.2, 0.3])
FRAME = Frame((P - 1,), K, 2.0, ((0, 1, 3),))


def tables(seed: int = 0, sizes: tuple[int, ...] = SIZES) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    truth, parts = rng.normal(size=P - 1), []
    for n in sizes:
        z = 0.12 * rng.normal(size=(n, P - 1))
        X = np.hstack([MEAN + z, np.full((n, 1), K)])
        X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True) * (1 + 1e-12))
        parts.append((X, np.where(z @ truth + 0.05 * rng.normal(size=n) > 0, 1.0, -1.0)))
    return parts


ROWS = Rows.build_from_parts(tables())
N = ROWS.n


def config_of(method: str = "momentum", trust: str = "nobody", **changes: Any) -> RunConfig:
    graph = {"nobody": "path"}.get(trust, "complete")
    known = {"epsilon": 1.0, "delta": 1e-5, "rounds": 6, "seed": 4, "graph": graph, "trust": trust}
    return RunConfig.from_dict({"method": method, **(known | changes)})


def centring(config: RunConfig, n: Any = N) -> Centring:
    found = decide_centring(config, n, P, FRAME).centring
    assert found is not None
    return found


def run(config: RunConfig, rows: Rows = ROWS, **more: Any) -> Result:
    return simulate(config, rows, centre=centring(config, rows.n), **more)


CASES = [
    ("momentum", "nobody"),
    ("prox_admm", "nobody"),
    ("mr_admm", "nobody"),
    ("dvp", "nobody"),
    ("dgd", "nobody"),
    ("output", "nobody"),
    ("objective", "nobody"),
    ("momentum", "sum"),
    ("prox_average", "sum"),
    ("momentum", "curator"),
    ("objective", "curator"),
]


class TestPrices:
    @pytest.mark.parametrize(("method", "trust"), CASES)
    def test_the_mean_is_planned_charged_first_and_within_epsilon(
        self, method: str, trust: str
    ) -> None:
        config = config_of(method, trust)
        made, result = centring(config), run(config)
        prepared = prepare(config, N, P, centre=made)
        assert result.ledger == prepared.plan_ledger().to_list()
        assert [row["source"] for row in result.ledger].index("mean of rows") == 0
        assert sum(row["source"] == "mean of rows" for row in result.ledger) == 1
        plain = prepare(config, N, P)
        assert len(result.ledger) == len(plain.plan_ledger().rows) + 1
        spent, before = result.statement.epsilon, plain.plan_ledger().total()
        assert 0.98 < spent <= 1.0 and abs(spent - before) < 0.01
        assert result.statement.releases == len(result.ledger)
        assert "means of all" in result.statement.text and result.config.centre == made.digest
        for node in range(1 if trust == "curator" else 3):
            assert prepared.plan_ledger(node=node).to_list()[0]["source"] == "mean of rows"

    @pytest.mark.parametrize("accountant", ["zcdp", "rdp", "pld", "best"])
    @pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
    def test_every_accountant_prices_the_whole(self, accountant: str, relation: str) -> None:
        config = config_of(accountant=accountant, relation=relation, copies=2)
        result = run(config)
        assert 0.97 < result.statement.epsilon <= 1.0
        alone = prepare(config, N, P, centre=centring(config)).plan_ledger(rounds=0)
        assert len(alone.rows) == 1 and 0.0 < alone.total() < 0.5

    def test_a_person_at_two_sites_and_one_budget_a_site(self) -> None:
        for change in ({"sites_per_row": 2}, {"epsilon": (1.0, 2.0, 1.5)}):
            config = config_of("prox_admm", **change)
            result = run(config)
            budget = np.asarray(config.epsilon, dtype=float)
            assert (
                np.all(np.asarray(result.statement.per_node) <= budget)
                and result.statement.epsilon <= budget.max()
            )

    def test_a_shared_ledger_pays_for_the_mean_or_refuses_the_run(self) -> None:
        config = config_of(accountant="rdp")
        book = Ledger("rdp", 3.0, 1e-5)
        run(config, ledger=book)
        assert len(book.rows) == config.rounds + 1 and "mean of rows" in str(book.to_list()[0])
        spent = book.total()
        run(config, ledger=book)
        with pytest.raises(BudgetExceeded):
            run(config_of(accountant="rdp", epsilon=2.9), ledger=book)
        assert spent < book.total() <= 3.0

    @pytest.mark.parametrize("fault", ["not planned", "not charged"])
    def test_uncharged_mean_is_detected(self, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Planted: a plan that leaves the mean out, and a row guard that answers without a
        charge.
        """
        config = config_of(accountant="rdp")
        if fault == "not planned":
            monkeypatch.setattr(Prepared, "recipe_before_method", None)
            with pytest.raises(LedgerMismatch, match="not the next"):
                run(config, ledger=Ledger("rdp", 3.0, 1e-5))
        else:
            charged = RowGuard._charge_and_draw

            def free(self: RowGuard, *release: Any) -> bytes:
                book = self.ledger
                if self.move is None:
                    self.ledger = Ledger("rdp", delta=1e-5)
                try:
                    return charged(self, *release)
                finally:
                    self.ledger = book

            monkeypatch.setattr(RowGuard, "_charge_and_draw", free)
            with pytest.raises(LedgerMismatch, match="not the next"):
                run(config, ledger=Ledger("rdp", 3.0, 1e-5))
            assert (
                run(config).ledger
                != prepare(config, N, P, centre=centring(config)).plan_ledger().to_list()
            )

    def test_runs_that_cannot_be_centred_are_refused_before_spending(self) -> None:
        made = centring(config_of())
        pure = RunConfig("mr_admm", epsilon=1.0, rounds=4, seed=0)
        with pytest.raises(InvalidInput, match=r"^centre: .*pure epsilon"):
            simulate(pure, ROWS, centre=made)
        with pytest.raises(InvalidInput, match="printed form"):
            simulate(RunConfig("dvp", epsilon=1.0, form="printed", seed=0), ROWS, centre=made)
        with pytest.raises(InvalidInput, match=r"^centre: .*\b9\b.*\b5\b"):
            prepare(config_of(), N, 5, centre=made)
        with pytest.raises(InvalidInput, match=r"^centre='.*was given"):
            simulate(replace(config_of(), centre=made.digest), ROWS)
        with pytest.raises(InvalidInput, match=r"^centre='0.*not the digest"):
            simulate(replace(config_of(), centre="0" * 32), ROWS, centre=made)


class Shifted(KeyedNoise):
    """The noise of a run whose releases are numbered one higher."""

    def _generators_by_stream(self, release: int, use: int) -> Iterator[np.random.Generator]:
        return super()._generators_by_stream(release + 1, use)


@pytest.mark.parametrize(("method", "trust"), CASES)
def test_centred_run_equals_run_on_explicitly_moved_rows(
    method: str, trust: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same noise on moved rows gives the same models, folded back; and the mean is near the
    rows' own.
    """
    config = config_of(method, trust)
    found = run(config)
    assert found.move is not None and found.centring is not None
    noise = prepare(config, N, P, centre=found.centring).algorithm.noise
    move, parts = found.move.for_replicate(0), []
    for X, y in tables():
        moved = 2.0 * (X - move.mean * (X[:, -1:] / move.k))
        moved[:, -1] = X[:, -1]
        moved /= np.maximum(1.0, np.linalg.norm(moved, axis=1, keepdims=True) * (1 + 1e-15))
        parts.append((moved * (1 - 1e-15), y))
    plain = prepare(config, N, P)
    eta = plain.algorithm.penalty
    monkeypatch.setattr("sottovoce.runs.simulate.KeyedNoise", Shifted)
    written = simulate(
        replace(config, noise=noise, epsilon=5.0, eta=eta), Rows.build_from_parts(parts)
    )
    again = found.move.unfold_from_models(found.models)
    np.testing.assert_allclose(
        again, written.models, atol=2e-4 * max(1.0, np.abs(written.models).max())
    )
    exact = np.mean(np.concatenate([X for X, _ in tables()])[:, :-1], axis=0)
    assert np.linalg.norm(move.mean[:-1] - exact) < 0.3 * np.linalg.norm(exact)


def test_noise_of_replicates_is_their_own_and_more_of_them_change_no_bit() -> None:
    config = config_of("prox_admm")
    few, many = run(config), run(replace(config, replicates=3))
    assert many.move is not None and few.move is not None and many.move.mean.shape == (3, P)
    assert np.array_equal(many.models[0], few.models[0]) and many.move.for_replicate(
        0
    ) == few.move.for_replicate(0)
    assert len({one.digest for one in many.move.split_by_replicate()}) == 3


@pytest.mark.parametrize("trust", ["nobody", "sum"])
def test_separate_sites_reach_the_same_mean_and_models(trust: str) -> None:
    """Each site with one row guard, one book and one queue to every other, as between separate
    machines.
    """
    config = replace(config_of("momentum", trust, rounds=3), graph="complete")
    made = centring(config)
    whole = simulate(config, ROWS, centre=made)
    prepared = prepare(config, N, P, centre=made)
    found: dict[int, tuple[np.ndarray, bytes]] = {}

    def site(i: int, net: QueueNet) -> None:
        book = Ledger(prepared.ledger.accountant, math.inf, 1e-5)
        own = prepared.facts.facts_of_node(i)
        guard = RowGuard(
            ROWS.rows_of_node(i), own, KeyedNoise(4, [0], [i], ()), book, centring=made
        )
        place, stopped = engine.release_mean(Place(own, net, guard, (), P), guard, prepared.facts)
        assert stopped == engine.FINISHED and place.move is not None
        algorithm = prepared.algorithm.method_of_node(i)
        state = engine.run_rounds(algorithm, place, config.rounds).state
        found[i] = place.fold_to_original_rows(algorithm.model(state)), place.move.digest
        assert [row.to_dict() for row in prepared.plan_ledger(node=i).rows] == book.to_list()

    nets = QueueNet.connect_all_nodes(make_graph("complete", 3))
    threads = [threading.Thread(target=site, args=(i, net)) for i, net in enumerate(nets)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert whole.move is not None and sorted(found) == [0, 1, 2]
    for i, (model, digest) in found.items():
        assert digest == whole.move.for_replicate(0).digest
        np.testing.assert_allclose(model, whole.models[0, i], atol=1e-9)


class TestResuming:
    @staticmethod
    def stopping(at: int) -> Callable[[int, Any], None]:
        def stop(k: int, state: Any) -> None:
            if k == at:
                raise KeyboardInterrupt

        return stop

    @pytest.mark.parametrize(
        ("method", "trust"), [("prox_admm", "nobody"), ("mr_admm", "nobody"), ("momentum", "sum")]
    )
    @pytest.mark.parametrize("replicates", [1, 2])
    def test_a_checkpoint_holds_the_mean(
        self, method: str, trust: str, replicates: int, tmp_path: Path
    ) -> None:
        config, path = config_of(method, trust, replicates=replicates), tmp_path / "half.npz"
        whole = run(config)
        with pytest.raises(KeyboardInterrupt):
            run(config, checkpoint=path, observers=[self.stopping(4)])
        again = run(config, checkpoint=path)
        assert again.rounds == config.rounds
        assert np.array_equal(again.models, whole.models) and again.ledger == whole.ledger
        with pytest.raises(CheckpointError):
            simulate(config, ROWS, checkpoint=path)

    @pytest.mark.parametrize("seed", [4, None])
    def test_a_checkpoint_with_another_mean_than_the_released_one_is_refused(
        self, seed: int | None, tmp_path: Path
    ) -> None:
        """Planted in the file.  A release's mean is that of its ledger, which is read and not
        drawn again.
        """
        config = config_of("prox_admm", seed=seed, accountant="rdp")
        path, whole = tmp_path / "half.npz", None
        options = {
            "fingerprint": rows_digest(*ROWS.fingerprint_arrays()),
            "n_nodes": 3,
            "epsilon": 20.0,
            "delta": 1e-5,
        }
        with DurableLedger.create(tmp_path / "a.ledger", accountant="rdp", **options) as book:
            more: dict[str, Any] = {"checkpoint": path} | ({"ledger": book} if seed is None else {})
            with pytest.raises(KeyboardInterrupt):
                run(config, observers=[self.stopping(4)], **more)
            arrays = files.read_packed_arrays(path)
            right = arrays["curator.mean"]
            for wrong in (right * 0.9, np.zeros_like(right), -right):
                path.write_bytes(files.pack_arrays(**(arrays | {"curator.mean": wrong})))
                with pytest.raises(CheckpointError, match=r"differs from.*released mean"):
                    run(config, **more)
            path.write_bytes(files.pack_arrays(**arrays))
            whole = run(config, **more)
            assert whole.move is not None and np.array_equal(whole.move.mean, right)
            assert (
                len(whole.ledger)
                == config.rounds + 1
                == len(book.rows) + (0 if seed is None else config.rounds + 1)
            )

    def test_second_release_of_the_mean_is_detected(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Planted: a row guard that forgets the mean it was told of."""
        config, path = config_of("prox_admm"), tmp_path / "half.npz"
        with pytest.raises(KeyboardInterrupt):
            run(config, checkpoint=path, observers=[self.stopping(4)])
        restore = RowGuard.restore

        def forgets(self: RowGuard, state: dict[str, Any]) -> None:
            restore(self, {name: value for name, value in state.items() if name != "mean"})

        monkeypatch.setattr(RowGuard, "restore", forgets)
        with pytest.raises(CheckpointError):
            run(config, checkpoint=path)

    @pytest.mark.parametrize("seed", [4, None])
    @pytest.mark.parametrize("trust", ["nobody", "sum"])
    def test_a_run_that_died_before_its_method_takes_the_stored_mean(
        self, seed: int | None, trust: str, tmp_path: Path
    ) -> None:
        """The mean's bytes are in the ledger before they are used; a release draws from the
        system, and never again.
        """
        config = config_of("momentum", trust, seed=seed, accountant="rdp", rounds=3)
        fingerprint = rows_digest(*ROWS.fingerprint_arrays())
        means: list[np.ndarray] = []
        centre = RowGuard.move_rows_by_mean

        def dies(self: RowGuard, mean: np.ndarray) -> Any:
            means.append(mean)
            if len(means) == 1:
                raise KeyboardInterrupt
            return centre(self, mean)

        options = {
            "fingerprint": fingerprint,
            "n_nodes": 3,
            "epsilon": 20.0,
            "accountant": "rdp",
            "delta": 1e-5,
        }
        with (
            pytest.MonkeyPatch.context() as patch,
            DurableLedger.create(tmp_path / "a.ledger", **options) as book,
        ):
            patch.setattr(RowGuard, "move_rows_by_mean", dies)
            with pytest.raises(KeyboardInterrupt):
                run(config, ledger=book)
            first = run(config, ledger=book)
            again = run(config, ledger=book)
        assert len(means) == 3 and all(np.array_equal(means[0], mean) for mean in means)
        assert np.array_equal(first.models, again.models) and first.ledger == again.ledger
        if seed is not None:
            assert np.array_equal(first.models, run(config).models)

    def test_a_start_is_a_model_of_rows_as_they_were(self) -> None:
        point = np.linspace(-1.0, 2.0, P)
        heavy = config_of("prox_admm", epsilon=1.0, rho=3e5, eta=1e5, rounds=3)
        found = run(heavy, start=Start(point))
        assert np.abs(found.models - point).max() < 1e-2
        plain, zero = (
            run(config_of("prox_admm")),
            run(config_of("prox_admm"), start=Start(np.zeros(P))),
        )
        assert np.array_equal(plain.models, zero.models) and plain.ledger == zero.ledger


class TestSaving:
    def test_a_saved_run_keeps_its_map(self, tmp_path: Path) -> None:
        result = run(config_of(replicates=2))
        result.save(tmp_path / "run.npz")
        again = Result.load(tmp_path / "run.npz")
        assert (
            again.move == result.move
            and again.centring == result.centring
            and again.config == result.config
        )
        assert again.statement == result.statement
        assert RunConfig.from_dict(json.loads(json.dumps(result.config.to_dict()))) == result.config
        assert np.array_equal(
            simulate(again.config, ROWS, centre=again.centring).models, result.models
        )

    def test_a_file_without_its_map_or_with_another_is_no_saved_run(self, tmp_path: Path) -> None:
        result, path = run(config_of()), tmp_path / "run.npz"
        assert result.centring is not None and result.move is not None
        for change in (
            {"move": None},
            {"centring": None},
            {"centring": replace(result.centring, gain=1.5)},
            {"move": replace(result.move, mean=np.stack([result.move.mean[0]] * 2))},
            {"config": replace(result.config, centre=None)},
        ):
            replace(result, **change).save(path)
            with pytest.raises(CheckpointError, match="not a saved"):
                Result.load(path)

    def test_margins_are_those_of_rows_as_short_as_in_training(self) -> None:
        schema = Schema.from_dict(
            {
                "columns": {f"x{j}": {"kind": "number", "lo": 0, "hi": 1} for j in range(4)},
                "label": {"column": "y", "positive": "1", "negative": "0"},
                "intercept": 1.0,
            }
        )
        rng = np.random.default_rng(0)
        raw = {f"x{j}": rng.beta(1.0, 8.0, size=900) for j in range(4)}
        raw["x0"][:5] = 1.0
        raw["y"] = np.where(raw["x0"] > 0.08, "1", "0")
        encoded = schema.encode(raw)
        assert encoded.y is not None
        rows = Rows.build_from_parts([(encoded.X, encoded.y)])
        config = RunConfig("momentum", epsilon=1.0, delta=1e-5, rounds=5, seed=1)
        found = decide_centring(config, rows.n, 5, frame_of_schema(schema))
        assert found.centring is not None and found.centring.groups == ((0, 1, 2, 3),)
        result = simulate(config, rows, centre=found.centring)
        result = replace(result, extra={"data": "t", "schema": schema.to_dict()})
        saved = SavedModel.from_result(result)
        assert result.move is not None and saved.move == result.move.for_replicate(0)
        move, w = result.move.for_replicate(0), result.consensus[0]
        moved = 2.0 * (encoded.X - move.mean * (encoded.X[:, -1:] / move.k))
        moved[:, -1] = encoded.X[:, -1]
        short = moved / np.maximum(1.0, np.linalg.norm(moved, axis=1, keepdims=True))
        assert np.linalg.norm(moved, axis=1).max() > 1.3
        wanted = short @ move.unfold_from_models(w)
        np.testing.assert_allclose(saved.margins(raw), wanted, atol=1e-12)
        linear = encoded.X @ w
        assert (
            np.array_equal(np.sign(linear), np.sign(wanted))
            and np.abs(linear - wanted).max() > 1e-3
        )
        assert saved.digest != replace(saved, move=None).digest


class TestDeciding:
    def test_the_share_follows_the_noise_and_is_between_one_and_ten_per_cent(self) -> None:
        mu = gaussian_mu(1.0, 1e-5)
        for rows, sites, trust, more in (
            (40_000, 5, "nobody", math.sqrt(5)),
            (2_000, 5, "nobody", math.sqrt(5)),
            (900, 5, "nobody", math.sqrt(5)),
            (2_000, 5, "sum", math.sqrt(5 / 4)),
            (2_000, 5, "curator", 1.0),
        ):
            config = config_of("momentum", trust)
            found = decide_centring(config, np.full(sites, rows / sites), P, FRAME).centring
            assert found is not None
            share = (math.sqrt(P - 1) * 2 * more / (0.25 * rows * mu)) ** 2
            assert found.share == pytest.approx(np.clip(share, LEAST, MOST), rel=1e-4)
            assert found.alpha == pytest.approx(mu * math.sqrt(found.share), rel=1e-9)
        halved = decide_centring(config_of(relation="zero-out"), np.full(5, 200), P, FRAME).centring
        whole = decide_centring(config_of(), np.full(5, 400), P, FRAME).centring
        assert (
            halved is not None
            and whole is not None
            and halved.share == pytest.approx(whole.share, rel=1e-3)
        )

    def test_centring_is_skipped_if_too_noisy_or_unpriced(self) -> None:
        few = decide_centring(config_of(epsilon=0.1), np.full(5, 20), P, FRAME)
        assert few.centring is None and "too few" in few.says
        many = decide_centring(config_of("momentum", "sum"), np.full(5, 4e6), P, FRAME)
        assert many.centring is None and "rounding" in many.says
        for config, frame, why in (
            (RunConfig("mr_admm", epsilon=1.0), FRAME, "no pure epsilon"),
            (config_of(epsilon=math.inf), FRAME, "no noise to reduce"),
            (config_of(noise=0.2), FRAME, "noise is given"),
            (RunConfig("dvp", delta=1e-5, form="printed"), FRAME, "printed form"),
            (RunConfig("admm", epsilon=math.inf), FRAME, "no noise to reduce"),
            (config_of(), None, "no constant"),
            (config_of(loss="huber-residual:0.25"), FRAME, "labels are numbers"),
        ):
            found = decide_centring(config, N, P, frame)
            assert found.centring is None and why in found.says
            assert found.to_dict() == {"centred": False, "says": found.says}

    def test_people_at_several_sites_and_copies_have_one_budget(self) -> None:
        one = decide_centring(config_of(), np.full(5, 1e5), P, FRAME).centring
        assert one is not None
        for change, factor in (({"copies": 4}, 2.0), ({"sites_per_row": 4}, 2.0)):
            found = decide_centring(config_of(**change), np.full(5, 1e5), P, FRAME).centring
            assert found is not None and found.alpha == pytest.approx(one.alpha / factor, rel=1e-5)
        sums = [
            decide_centring(
                config_of(trust="sum", sites_per_row=m), np.full(5, 1e5), P, FRAME
            ).centring
            for m in (1, 4)
        ]
        assert sums[0] is not None and sums[1] is not None
        assert sums[1].alpha == pytest.approx(sums[0].alpha / 4.0, rel=1e-5)

    def test_frame_of_schema_groups_columns_by_declaration(self) -> None:
        columns: dict[str, Any] = {
            "a": {"kind": "number", "lo": 0, "hi": 1},
            "c": {"kind": "category", "values": ["u", "v"]},
            "b": {"kind": "number", "lo": 0.5, "hi": 9, "transform": "log1p"},
            "d": {"kind": "number", "lo": 0, "hi": 3},
            "e": {"kind": "number", "lo": 1, "hi": 3},
            "f": {"kind": "number", "lo": 2, "hi": 3},
            "g": {"kind": "number", "lo": -1, "hi": 3},
            "v": {"kind": "vector", "size": 4, "lo": 0, "hi": 9, "norm": 5.0},
        }
        plain = {"columns": columns, "intercept": 0.5}
        schema = Schema.from_dict(plain)
        found = frame_of_schema(schema)
        assert (
            found is not None and found.gain == 2.0 and found.constants == (schema.n_features - 1,)
        )
        assert found.groups == ((0, 3, 4), (8, 9, 10, 11))
        X = schema.encode(
            {"a": [0.2], "c": ["u"], "b": [1.0], "d": [1.0], "e": [2.0], "f": [2.5], "g": [0.0]}
            | {f"v{k}": [1.0] for k in range(4)},
            labels=False,
        ).X
        assert X[0, -1] == pytest.approx(found.k, rel=1e-15)
        scaled = frame_of_schema(Schema.from_dict(plain | {"scale": 1.5}))
        typical = frame_of_schema(
            Schema.from_dict(
                plain | {"columns": columns | {"a": columns["a"] | {"typical": [0, 0.5]}}}
            )
        )
        assert scaled is not None and typical is not None and scaled.gain == typical.gain == 1.0
        assert frame_of_schema(Schema.from_dict(plain | {"intercept": 0.0})) is None
        assert frame_of_schema(Schema.from_dict(plain | {"unit": True})) is None

    def test_centring_record_round_trip_and_foreign_records_refused(self) -> None:
        made = centring(config_of())
        again = Centring.from_record(json.loads(json.dumps(made.to_dict())))
        assert again == made and again.digest == made.digest
        assert {
            replace(made, gain=1.0).digest,
            replace(made, alpha=0.1).digest,
            replace(made, groups=()).digest,
        } != {made.digest}
        assert Decision(made, "so").to_dict()["centred"] is True
        for record in (
            {},
            [],
            made.to_dict() | {"alpha": 1},
            made.to_dict() | {"constants": [8.0]},
        ):
            with pytest.raises(InvalidInput, match=r"^centre: .*record"):
                Centring.from_record(record)
        for change in (
            {"k": 0.0},
            {"gain": 0.5},
            {"alpha": 0.0},
            {"share": 1.0},
            {"constants": ()},
            {"groups": ((8,),)},
        ):
            with pytest.raises(InvalidInput):
                replace(made, **change)
        for digest in ("x", "0" * 31):
            with pytest.raises(InvalidInput, match="centre"):
                RunConfig(centre=digest)

    def test_the_rest_of_the_budget_is_that_of_the_method(self) -> None:
        config = config_of()
        made = centring(config)
        rest = made.config_for_method(config)
        ours, theirs = (
            prepare(c, N, P, centre=m).algorithm.noise for c, m in ((config, made), (rest, None))
        )
        assert ours is not None and theirs is not None
        np.testing.assert_allclose(ours(1), theirs(1), rtol=1e-3)
        assert made.config_for_method(config_of(epsilon=(1.0, 2.0, 1.0))).epsilon[
            0
        ] == pytest.approx(rest.epsilon)  # type: ignore[index]


class TestShrinking:
    MADE = Centring((6,), 0.4, 2.0, 0.1, 0.05, ((0, 1, 2),))

    def shrunk(self, mean: Any, spread: float) -> np.ndarray:
        return self.MADE.shrink_mean(
            Answer(np.asarray(mean, dtype=float), Among(100.0, 1), spread)
        )[0]

    def test_shrinkage_follows_the_formula(self) -> None:
        mean = np.array([0.3, 0.4, 0.2, -0.1, 0.2, 0.3, 7.0])
        assert np.array_equal(self.shrunk([mean], 0.0), np.append(mean[:-1], 0.0))
        s2 = 0.05**2
        a = 0.9 / math.sqrt(3)
        rest = mean[:6] - np.array([0.3, 0.3, 0.3, 0, 0, 0])
        wanted = np.append(np.full(3, 0.3 * (1 - s2 / a**2)), np.zeros(3))
        wanted += rest * (1 - (7 - 1 - 1 - 2) * s2 / (rest @ rest))
        np.testing.assert_allclose(self.shrunk([mean], 0.05)[:6], wanted, rtol=1e-12)
        assert np.all(self.shrunk([mean], 5.0) == 0.0)
        two = Centring((2,), 0.4, 1.0, 0.1, 0.05).shrink_mean(
            Answer(np.array([[0.3, 0.4, 1.0]]), Among(9.0, 1), 0.25)
        )
        np.testing.assert_allclose(two[0], [0.3 * 0.75, 0.4 * 0.75, 0.0])
        long = self.shrunk([mean * 9], 0.0)
        assert 1.0 - 1e-9 < np.linalg.norm(long) <= 1.0

    def test_shrunk_mean_is_nearer_on_average(self) -> None:
        rng = np.random.default_rng(1)
        truth, noise = (
            np.array([0.3, 0.3, 0.3, 0.0, 0.1, 0.0, 0.0]),
            0.2 * rng.normal(size=(4000, 7)),
        )
        seen = truth + noise
        found = self.MADE.shrink_mean(Answer(seen, Among(100.0, 1), 0.2))
        plain = np.sum((seen - truth)[:, :6] ** 2, axis=1).mean()
        assert np.sum((found - truth) ** 2, axis=1).mean() < 0.7 * plain


@pytest.mark.parametrize("trust", ["nobody", "sum", "curator"])
def test_the_means_noise_has_the_stated_scale(trust: str) -> None:
    """A chi-squared test at one in 10^4 for the right scale, which two thirds and three halves
    of it fail.
    """
    config = config_of("momentum", trust, replicates=400)
    made = centring(config)
    prepared = prepare(config, N, P, centre=made)
    held, nodes = ROWS.pool_at_one_node() if trust == "curator" else ROWS, prepared.facts.n_nodes
    noise: Noise = KeyedNoise(9, range(400), range(nodes))
    guard = RowGuard(held, prepared.facts, noise, prepared.ledger, centring=made)
    place = Place(prepared.facts, DenseNet(prepared.graph), guard, (400, nodes), P)
    state = engine.run_rounds(made.recipe, place, 1).state
    answer = made.recipe.outcome(state, prepared.facts)
    exact = np.mean(np.concatenate([X for X, _ in tables()])[:, :-1], axis=0)
    sites = 3.0 / 2.0 if trust == "sum" else float(nodes)
    sigma = 2.0 * math.sqrt(sites) / (float(N.sum()) * made.alpha)
    assert answer.spread == pytest.approx(sigma, rel=1e-3)
    squares = float(np.sum(((answer.value[:, :-1] - exact) / sigma) ** 2))
    accept = [float(stats.chi2.sf(squares * s**2, 400 * (P - 1))) for s in (1.0, 1.5, 2 / 3)]
    assert 1e-4 < accept[0] < 1 - 1e-4 and accept[1] < 1e-4 and accept[2] > 1 - 1e-4


def test_missing_second_clipping_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a map whose rows stay as long as they come out.  A gradient is then longer than
    its bound.
    """
    config = config_of(rounds=1)
    made = centring(config)
    # all on the other side
    X = np.append(np.full(P - 1, -math.sqrt((1 - K**2) / (P - 1))), K)[None] * (1 - 1e-12)
    rows = replace(
        Rows.build_from_parts([(X, np.ones(1))]), move=made.map_for_mean(np.append(MEAN, 0.0))
    )
    far = np.linalg.norm(rows.design_of_nodes(np.array([0])).weighted_row_sum(np.ones((1, 1, 1))))
    assert 1.0 - 1e-9 < far <= 1.0
    whole = move_module._factors_and_lengths
    monkeypatch.setattr(
        move_module,
        "_factors_and_lengths",
        lambda storage, move, short: whole(storage, move, short=False),
    )
    assert (
        np.linalg.norm(rows.design_of_nodes(np.array([0])).weighted_row_sum(np.ones((1, 1, 1))))
        > 1.5
    )


def test_centred_rows_are_learnt_from_with_less_noise() -> None:
    """Far fewer errors on rows that are mostly offset, with the same budget."""
    parts = tables(3, (2000, 2000, 2000))
    rows, X = Rows.build_from_parts(parts), np.concatenate([X for X, _ in parts])
    y = np.concatenate([y for _, y in parts])
    for trust in ("nobody", "sum"):
        config = config_of("momentum", trust, epsilon=0.5, rounds=40, replicates=4)
        errors = [
            np.mean((X @ found.consensus.T) * y[:, None] <= 0)
            for found in (simulate(config, rows), run(config, rows))
        ]
        assert errors[1] < 0.75 * errors[0]
    best = pooled_minimiser(rows, config_of(), 1e-6)
    assert np.mean((X @ best) * y <= 0) < 0.2
