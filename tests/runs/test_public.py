"""Public rows and earlier runs as starting points: what they give, and what they refuse."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from problems import make_rows

from sottovoce import data
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.problem.losses import make_loss
from sottovoce.runs.public import RIDGES, Public, set_aside_public_rows, start_from_result
from sottovoce.runs.simulate import Result, RunConfig, Start, pooled_minimiser, simulate
from sottovoce.runs.training import TrainConfig, train

SYNTHETIC = "synthetic:n=1500,d=5,seed=2"
RUN = RunConfig("prox_admm", 0.5, 1e-5, rounds=4)


def some(n: int = 120, d: int = 4, loss: str = "logistic") -> Public:
    a = make_rows([n], d, seed=7).signed[0]
    rng = np.random.default_rng(3)
    classes = 3 if loss.startswith("softmax") else 2
    labels = rng.integers(classes, size=n)
    X = a if classes == 3 else a * np.where(labels == 1, 1.0, -1.0)[:, None]
    return Public(X, labels, RunConfig("prox_admm", math.inf, loss=loss), 5)


# The starting point


def test_the_start_is_the_minimiser_at_the_ridge_with_the_least_held_out_loss() -> None:
    public = some()
    assert public.ridge in [factor / 120 for factor in RIDGES]
    w, a = public.start.vector, public.rows.signed[0]
    slope = (-a / (1 + np.exp(a @ w))[:, None]).mean(axis=0) + public.ridge * w
    assert np.linalg.norm(slope) < 1e-8 and public.start.kind == "public"
    # the run's own, rho / (N C), is the least
    assert replace(public, config=RunConfig(rho=10.0)).ridge == 2.0
    assert replace(public, X=public.X[:20], labels=public.labels[:20]).ridge == 1 / 20


def test_norms_of_rows_and_of_gradients() -> None:
    for public in (some(), some(loss="softmax:3")):
        norms, outputs = np.linalg.norm(public.X, axis=1), public.loss.outputs
        assert np.allclose(public.row_norms((0.0, 1.0)), [norms.min(), norms.max()])
        each = []
        for x, k in zip(public.X, public.labels, strict=True):
            w = public.start.vector.reshape(outputs, -1)
            scores = w @ x if outputs > 1 else np.array([0.0, (w @ x)[0]])
            p = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
            miss = p - np.eye(len(p))[k]
            each.append(np.linalg.norm(x) * (np.linalg.norm(miss) if outputs > 1 else abs(miss[1])))
        assert np.allclose(
            public.gradient_norms((0.0, 0.5, 1.0)), np.quantile(each, (0.0, 0.5, 1.0))
        )
        assert public.gradient_norms()[2] <= make_loss(public.config.loss).derivative_bound
    assert json.dumps(some().summary())


SIZES = {"sites": (40, 90), "classes": 3, "tilt": 0.0, "widest": 64}


@pytest.mark.parametrize("loss", ["logistic", "softmax:3"])
def test_worlds_keep_their_parts_apart(loss: str) -> None:
    public = some(150, loss=loss)
    known, made = public.expected_worlds(), []
    assert known is not None
    whole = {row.tobytes(): k for row, k in zip(public.X, public.labels, strict=True)}
    sizes = SIZES | {"classes": max(2, public.loss.outputs)}
    for number in range(2):
        world, again = (known.draw_expected_world(number, 60, **sizes) for _ in range(2))
        made.append(world)
        assert all(
            np.array_equal(getattr(world, f.name), getattr(again, f.name)) for f in fields(world)
        )
        sites, test = ({row.tobytes() for row in rows} for rows in (world.X, world.test))
        assert (
            not sites & test
            and sites | test <= whole.keys()
            and (len(world.X), len(world.test)) == (60, 50)
        )
        for x, at in zip(world.X, world.shares[0], strict=True):
            assert whole[x.tobytes()] == at.argmax() and np.count_nonzero(at) == 1
        assert np.allclose(world.shares.sum(axis=(1, 2)), 60)
        assert all(
            whole[x.tobytes()] == k
            for x, k in zip(world.test, world.chances.argmax(axis=1), strict=True)
        )
        # the start is the minimiser over rows that are neither at the sites nor in the test
        rest = np.array([row.tobytes() not in test for row in public.X])
        assert world.start is not None and world.start.shape == (public.rows.d,)
        order = np.random.default_rng([20_240_401, number]).permutation(150)[:50]
        mine = replace(public, X=public.X[order], labels=public.labels[order])
        assert rest[order].all() and not sites & {row.tobytes() for row in mine.X}
        assert np.array_equal(world.start, mine.start.vector)
    assert not np.array_equal(made[0].start, made[1].start)


def test_worlds_of_public_rows_may_have_unlike_sites_or_few_rows() -> None:
    known = some(600).expected_worlds()
    assert known is not None
    unlike = known.draw_expected_world(
        0, 200, **(SIZES | {"sites": (200, 200), "classes": 2, "tilt": 1.0})
    )
    share = unlike.shares.sum(axis=1)[:, 1] / 200
    assert share[1] - share[0] > 0.2
    few = some(30).expected_worlds()
    assert few is not None and some(29).expected_worlds() is None
    world = few.draw_expected_world(0, 200, **(SIZES | {"classes": 2}))
    # a third of them, again and again
    assert len(np.unique(world.X, axis=0)) <= 10 and len(world.X) == 200


@pytest.mark.parametrize("n", [40, 400])
@pytest.mark.parametrize("loss", ["logistic", "softmax:3"])
def test_wide_public_rows_are_narrowed_with_their_start(n: int, loss: str) -> None:
    """Rows of few dimensions keep their margins at the start to the last, whatever the number of
    columns.
    """
    narrow, rng = some(n, 3, loss), np.random.default_rng(1)
    directions = np.linalg.qr(rng.normal(size=(90, 3)))[0]
    X = narrow.X @ directions.T
    wide = replace(narrow, X=X)
    sizes = SIZES | {"classes": max(2, wide.loss.outputs), "widest": 20}
    known, plain = wide.expected_worlds(), narrow.expected_worlds()
    assert known is not None and plain is not None
    for number in range(2):
        world, same = (
            known.draw_expected_world(number, 50, **sizes),
            plain.draw_expected_world(number, 50, **sizes),
        )
        assert world.X.shape == (50, 20) and world.start is not None and same.start is not None
        assert world.start.shape == (20 * wide.loss.outputs,)
        assert np.allclose(np.linalg.norm(world.X, axis=1), np.linalg.norm(same.X, axis=1))
        found, true = ((one.start.reshape(-1, one.X.shape[1]) @ one.X.T) for one in (world, same))
        assert np.allclose(found, true, atol=1e-6) and np.allclose(world.shares, same.shares)


def test_key_of_public_worlds_covers_all_inputs() -> None:
    public = some(90)
    keys = [
        one.expected_worlds()
        for one in (
            public,
            replace(public, X=-public.X),
            replace(public, labels=1 - public.labels),
            replace(public, nodes=7, config=replace(public.config, rho=0.5)),
        )
    ]
    assert len(set(keys)) == 4 and keys[0] == some(90).expected_worlds() != object()


def test_rows_set_aside_are_in_no_site() -> None:
    dataset = data.load(SYNTHETIC)
    public, private = set_aside_public_rows(dataset, 0.1, 0)
    assert (len(public.y_train), len(private.y_train)) == (150, 1350)
    rows = [{row.tobytes() for row in part.X_train} for part in (public, private, dataset)]
    assert not rows[0] & rows[1] and rows[0] | rows[1] == rows[2]
    for share in (0.0, 1.0, 1e-9, -1.0, math.nan):
        with pytest.raises(InvalidInput, match="public_share"):
            set_aside_public_rows(dataset, share, 0)
    with pytest.raises(InvalidInput, match=r"^public=0: .*declared labels"):
        Public(np.zeros((0, 3)), np.zeros(0, dtype=int), RUN)
    with pytest.raises(InvalidInput, match=r"^public: .*numeric labels"):
        Public(
            np.zeros((1, 3)),
            np.zeros(1, dtype=int),
            RunConfig("prox_admm", loss="huber-residual:0.25"),
        )


# Training


def test_training_from_public_rows_says_so_and_costs_what_it_costs_without() -> None:
    plain = train(TrainConfig(RUN, SYNTHETIC, nodes=3))
    report = train(TrainConfig(RUN, SYNTHETIC, nodes=3, public_share=0.1))
    assert report.public is not None and report.result.start is not None
    assert report.result.start.digest == report.public.start.digest == report.config.run.start
    assert report.result.privacy["epsilon"] == pytest.approx(
        plain.result.privacy["epsilon"], rel=1e-3
    )
    assert report.result.facts.n.sum() == 1350 and "public rows" in (
        report.result.statement.caveat or ""
    )
    out = report.to_dict()
    assert (
        out["public"]["rows"] == 150
        and out["start"]["kind"] == "public"
        and 0 < out["start_test_error"] < 0.5
    )
    assert any("150 rows" in note for note in report.notes)
    assert (
        "start" not in plain.to_dict()
        and plain.public is None
        and "start" not in plain.baseline_test_errors
    )


def test_training_from_an_earlier_run(tmp_path: Path) -> None:
    first = train(TrainConfig(replace(RUN, seed=4), SYNTHETIC, nodes=3))
    first.result.save(tmp_path / "first.npz")
    second = train(TrainConfig(RUN, SYNTHETIC, nodes=3, start=str(tmp_path / "first.npz")))
    assert second.result.start is not None
    assert np.array_equal(second.result.start.vector, first.result.consensus[0])
    assert any("of both totals" in note for note in second.notes)
    assert any("never release" in note for note in second.notes)
    second.result.save(tmp_path / "second.npz")
    third = start_from_result(Result.load(tmp_path / "second.npz"), RUN, 5, None)
    both = sum(run.result.privacy["epsilon"] for run in (first, second))
    assert third.epsilon == pytest.approx(both) and third.delta == 2e-5 and third.simulated
    for other, rule in (
        (TrainConfig(RUN, "synthetic:n=300,d=4,seed=2", nodes=3), "has 5 entries"),
        (TrainConfig(RUN, "adult", nodes=3), "another schema"),
        (TrainConfig(replace(RUN, seed=None), SYNTHETIC, nodes=3), "protects nothing"),
    ):
        with pytest.raises(InvalidInput, match=rule):
            train(replace(other, start=str(tmp_path / "first.npz")))


def test_start_adds_the_costs_of_earlier_runs() -> None:
    rows = make_rows([60, 60], 3)
    exact = simulate(RunConfig("admm", math.inf, rounds=2), rows)
    assert start_from_result(exact, RUN, 3, None).epsilon is None
    real = simulate(replace(RUN, seed=None, rounds=1), rows)
    start = start_from_result(real, RUN, 3, None)
    assert (
        start.may_start_release and start.epsilon == real.statement.epsilon and start.delta == 1e-5
    )
    onward = start_from_result(replace(real, start=Start(np.zeros(3), "run")), RUN, 3, None)
    assert onward.epsilon is None and not onward.may_start_release
    assert (
        start_from_result(replace(real, start=Start(np.zeros(3), "public")), RUN, 3, None).epsilon
        == start.epsilon
    )
    with pytest.raises(InvalidInput, match=r"^start: .*logistic.*softmax:3"):
        start_from_result(real, replace(RUN, loss="softmax:3"), 3, None)


def test_one_starting_point_and_no_public_share_of_a_release() -> None:
    with pytest.raises(InvalidInput, match="one starting point"):
        TrainConfig(RUN, start="a.npz", public_share=0.1)
    with pytest.raises(InvalidInput, match="only a simulation"):
        TrainConfig(replace(RUN, seed=None), public_share=0.1)
    with pytest.raises(InvalidInput, match=r"^public.*no schema"):
        train(TrainConfig(RUN, SYNTHETIC, public="rows.csv"))


def test_public_rows_lower_the_error_at_a_small_budget() -> None:
    """Forty replicates of the noise, from zero and from 2% public rows; the gain is beyond three
    standard errors of its own (an error rate below 1e-2 even if replicates were only roughly
    normal)."""
    dataset = data.load("synthetic:n=10000,d=10,seed=1")
    known, private = set_aside_public_rows(dataset, 0.02, 0)
    parts = data.partition("iid", private.y_train, 5, 0)
    rows = Rows.build_from_parts([(private.X_train[part], private.y_train[part]) for part in parts])
    config = RunConfig("prox_admm", 0.1, 1e-5, rounds=10, replicates=40)
    public = Public.from_dataset(known, config, 5)
    errors = [
        dataset.task.model_errors(
            dataset.X_test, dataset.y_test, simulate(config, rows, start=start).consensus
        )
        for start in (None, public.start)
    ]
    gain = errors[0] - errors[1]
    assert gain.mean() > 3 * gain.std(ddof=1) / math.sqrt(40) and gain.mean() > 0.01
    best = dataset.task.model_errors(dataset.X_test, dataset.y_test, pooled_minimiser(rows, config))
    assert errors[1].mean() > best
