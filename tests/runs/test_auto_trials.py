"""A rehearsal computes what the engine computes, on other rows, for several candidates at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from sottovoce.data.rows import Rows
from sottovoce.data.synthetic_tables import (
    LABELS,
    World,
    dense_sketch,
    draw_world,
    one_hot_sketch,
    unknown,
)
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.clipped import Capped
from sottovoce.problem.losses import make_loss
from sottovoce.runs import auto_trials
from sottovoce.runs.auto_trials import Ground, Rehearsal
from sottovoce.runs.prepare import prepare
from sottovoce.runs.pricing import Prepared
from sottovoce.runs.simulate import RunConfig, simulate
from sottovoce.runs.start import Start
from sottovoce.solvers.local import Solver
from sottovoce.util.typing import Any, Array

SIZES, D, R = (70, 70, 70), 4, 2
BASE = RunConfig("prox_admm", 1.0, 1e-5, rounds=4, accountant="zcdp")
EXACT = 2e-7
"""Gradient norms of solves in these tests, which single precision still reaches."""


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    def minimise(self: Any, linear: Array, q: Array, start: Array, tol: Any) -> Any:
        return Solver.minimise(self, linear, q, start, EXACT)

    monkeypatch.setattr(auto_trials._Solver, "minimise", minimise)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """No method's sites are taken as one."""
    monkeypatch.setattr(auto_trials, "_merge_alike_sites", lambda candidate, alike: candidate)


def models(
    rehearsed: Rehearsal, candidates: Sequence[Prepared], monkeypatch: pytest.MonkeyPatch
) -> Array:
    """The average classifiers, (worlds, candidates, replicates, width)."""
    heard: list[Array] = []
    with monkeypatch.context() as patch:
        patch.setattr(World, "error", lambda self, W: heard.append(W.copy()) or W[..., 0])
        rehearsed.rehearse_candidates(candidates)
    return np.stack(heard)


def worlds(outputs: int = 1, *, hard: bool = True, start: bool = False) -> tuple[World, ...]:
    """Of sites that differ; each row counts for one class only if `hard`."""
    rng, found = np.random.default_rng(0), []
    for k, sketch in enumerate((one_hot_sketch(D), dense_sketch(D, 0.5))):
        world = draw_world(
            sketch, 70, SIZES, k, classes=max(2, outputs), tilt=1.0, labels=LABELS[k]
        )
        if hard:
            share = world.shares.cumsum(axis=2) / world.shares.sum(axis=2, keepdims=True)
            drawn = (rng.random((*share.shape[:2], 1)) > share[:, :, :-1]).sum(axis=2)
            world = replace(world, shares=np.eye(max(2, outputs))[drawn])
        found.append(replace(world, start=np.linspace(-1.0, 1.0, D * outputs) if start else None))
    return tuple(found)


def ready(config: RunConfig, outputs: int = 1) -> Prepared:
    loss = config.loss if outputs == 1 else f"softmax:{outputs}"
    return prepare(replace(config, loss=loss), np.array(SIZES, dtype=float)[:, None], D * outputs)


# One run


def candidates(method: str) -> list[RunConfig]:
    """As different as those of one batch may be."""
    config = BASE.but(method=method)
    other = config.but(max_grad_norm=0.1, rho=0.03, eta=3.0 if method == "momentum" else 0.02)
    if method != "momentum":  # whose noise is carried if it does not grow
        other = replace(other, noise_growth=1.2)
    return [config, config.but(max_grad_norm=0.3), other]


BATCHES = [candidates(method) for method in ("prox_admm", "prox_average", "momentum", "output")]
BATCHES += [[replace(one, delta=None, accountant=None) for one in batch] for batch in BATCHES[::2]]
BATCHES += [[replace(one, noise_growth=1.2) for one in candidates("momentum")]]
ALONE = [RunConfig(method, 1.0, rounds=4) for method in ("mr_admm", "objective")]


@pytest.mark.parametrize(
    ("batch", "outputs", "start"),
    [(batch, 1, k % 2 == 0) for k, batch in enumerate(BATCHES)]
    + [(batch, 3, k % 2 == 1) for k, batch in enumerate(BATCHES[:4])]
    + [([config], 1, start) for config in ALONE for start in (False, True)],
)
@pytest.mark.usefixtures("exact", "apart")
def test_a_rehearsal_computes_what_the_engine_computes(
    batch: list[RunConfig], outputs: int, start: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same noise, models agree to within the solver's tolerance over the regulariser's
    curvature.
    """
    noise = np.random.default_rng(5).normal(size=(30, 2, 1, R, len(SIZES), D * outputs))
    world = [0]

    def same(self: KeyedNoise, d: int, release: int, use: int = 0) -> Array:
        return np.asarray(noise[release + 15 * use][world[0], 0])

    def mine(self: Any, d: int, release: int, use: int = 0) -> Array:
        lead = (2, len(batch), R, len(SIZES), D * outputs)
        return np.broadcast_to(noise[release + 15 * use], lead).reshape(-1, *lead[3:])

    for law in ("draw_spherical", "draw_gaussian"):
        monkeypatch.setattr(KeyedNoise, law, same)
        monkeypatch.setattr(auto_trials._Stream, law, mine)
    made = worlds(outputs, start=start)
    prepared = [ready(config, outputs) for config in batch]
    found = models(Rehearsal(made, R, 0, outputs), prepared, monkeypatch)
    for k, table in enumerate(made):
        world[0] = k
        labels = table.shares.argmax(axis=2)
        rows = (
            Rows.build_from_parts([(table.X, 2.0 * y - 1.0) for y in labels])
            if outputs == 1
            else Rows.build_with_classes([(table.X, y) for y in labels], outputs)
        )
        begin = None if table.start is None else Start(table.start, "public")
        for i, one in enumerate(prepared):
            real = simulate(replace(one.config, replicates=R), rows, start=begin).consensus
            assert np.abs(found[k, i] - real).max() < 2e-5 < 1e-3 * np.abs(real).max()


@pytest.mark.parametrize("method", ["prox_admm", "prox_average", "momentum", "output"])
@pytest.mark.usefixtures("exact", "apart")
def test_candidate_has_the_same_errors_alone_and_together(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, prepared = (
        Rehearsal(worlds(hard=False), R, 0),
        [ready(config) for config in candidates(method)],
    )
    together = models(tried, prepared, monkeypatch)
    alone = [models(tried, [one], monkeypatch) for one in prepared]
    assert np.allclose(together, np.concatenate(alone, axis=1), atol=2e-5)
    if method == "momentum":
        with pytest.raises(ValueError, match="grow or none"):
            tried.rehearse_candidates(
                [prepared[0], ready(replace(prepared[0].config, noise_growth=1.2))]
            )
    found = tried.rehearse_candidates(prepared)
    assert (
        [one.errors.shape for one in found] == [one.losses.shape for one in found] == [(2, R)] * 3
    )
    (by_itself,) = tried.rehearse_candidates(prepared[1:2])
    assert np.allclose(found[1].errors, by_itself.errors, atol=1e-5)
    assert np.allclose(found[1].losses, by_itself.losses, atol=1e-4)
    for first, again in zip(found, tried.rehearse_candidates(prepared), strict=True):
        assert np.array_equal(first.errors, again.errors) and np.array_equal(
            first.losses, again.losses
        )


@pytest.mark.parametrize("sizes", [(161, 160, 160, 160, 160), (70, 70, 70), (500, 501), (40,)])
def test_alike_sites_whose_noise_is_listed_for_each_rehearse_as_one(sizes: tuple[int, ...]) -> None:
    """Sites of nearly the same size may have noise of one value, written once for each of them."""
    ground = Ground(sizes, D, 1, 0.0)
    config = RunConfig.from_dict(
        {
            "method": "momentum",
            "epsilon": 3.0,
            "delta": 1e-5,
            "rounds": 3,
            "eta": 0.5,
            "max_grad_norm": 0.2,
            "accountant": "zcdp",
        }
    )
    one = prepare(config, ground.site_sizes, D)
    assert one.algorithm.noise is not None
    listed = one.algorithm.noise.scaled(np.ones(len(sizes)))
    (plain,) = ground.search_worlds.rehearse_candidates([one])
    (each,) = ground.search_worlds.rehearse_candidates(
        [replace(one, algorithm=one.algorithm.with_noise(listed))]
    )
    assert np.allclose(plain.errors, each.errors) and np.allclose(plain.losses, each.losses)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_log_loss_is_that_of_the_stated_probabilities(outputs: int) -> None:
    """By the definition, for margins up to where a probability is a rounding away from 1."""
    (world, *_) = worlds(outputs)
    rng = np.random.default_rng(1)
    for size in (0.0, 1.0, 30.0, 300.0):
        W = size * rng.normal(size=(2, D * outputs))
        for w, found in zip(W, world.log_loss(W), strict=True):
            logits = world.test @ w.reshape(outputs, D).T
            logits = np.column_stack([np.zeros(len(logits)), logits]) if outputs == 1 else logits
            logits = logits - logits.max(axis=1, keepdims=True)
            stated = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
            assert found == pytest.approx(-(world.chances * stated).sum(axis=1).mean(), rel=1e-9)
    zero = world.log_loss(np.zeros((1, D * outputs)))
    assert zero == pytest.approx(np.log(max(2, outputs)))


@pytest.mark.parametrize("outputs", [1, 3])
def test_rows_that_count_for_every_class_are_the_mean_over_labels(outputs: int) -> None:
    world, classes = worlds(outputs, hard=False)[1], max(2, outputs)
    w = np.random.default_rng(1).normal(size=(R, 3, D * outputs))

    def gradient(shares: Array) -> Array:
        rehearsed = Rehearsal((replace(world, shares=shares),), R, 0, outputs)
        return auto_trials._Solver(rehearsed, ready(BASE, outputs).facts, np.array([0.2])).gradient(
            w
        )

    whole = gradient(world.shares)
    parts = [gradient(world.shares * np.eye(classes)[c]) for c in range(classes)]
    assert np.allclose(whole, sum(parts), atol=1e-6) and np.abs(whole).max() > 0.01


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("cap", [0.05, 0.4, np.inf])
def test_slopes_are_those_of_a_capped_loss(outputs: int, cap: float) -> None:
    world = worlds(outputs)[1]
    base = make_loss("logistic" if outputs == 1 else "softmax:3")
    facts, labels = ready(BASE, outputs).facts, world.shares.argmax(axis=2)
    w = np.random.default_rng(1).normal(size=(len(SIZES), D * outputs)) * 4.0
    found = auto_trials._Solver(
        Rehearsal((world,), 1, 0, outputs), facts, np.array([cap])
    ).gradient(w[None])[0]
    for site, y in enumerate(labels):
        norms = np.linalg.norm(world.X, axis=1)
        loss = base if cap == np.inf else Capped(base, cap).for_row_norms(lambda norms=norms: norms)
        if outputs == 1:
            signed = world.X * (2.0 * y - 1.0)[:, None]
            each = loss.derivative(signed @ w[site])[:, None] * signed
        else:
            scores = w[site].reshape(3, D) @ world.X.T
            slopes = loss.derivative((scores - scores[y, np.arange(70)]).ravel()).reshape(3, 70)
            slopes[y, np.arange(70)] = 0.0
            slopes[y, np.arange(70)] = -slopes.sum(axis=0)
            each = (slopes[:, :, None] * world.X).transpose(1, 0, 2).reshape(70, -1)
        assert np.allclose(found[site], each.mean(axis=0), atol=1e-6)
        assert np.linalg.norm(each, axis=1).max() <= min(cap, base.derivative_bound) + 1e-9


# Noise


def test_fewer_made_up_rows_leave_the_noise_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise follows the true sizes: with rows that say nothing, models of small and of large
    worlds agree.
    """
    prepared = [
        prepare(replace(BASE, rounds=2, eta=0.01), np.full((3, 1), n), D) for n in (4000.0, 400.0)
    ]
    found = []
    for m in (50, 400):
        world = World(
            np.zeros((m, D)), np.full((3, m, 2), 0.5), np.zeros((5, D)), np.full((5, 2), 0.5)
        )
        found.append([models(Rehearsal((world,), 3, 1), [one], monkeypatch) for one in prepared])
    assert np.allclose(found[0][0], found[1][0]) and np.abs(found[0][0]).max() > 0
    assert np.std(found[0][1]) > 5.0 * np.std(found[0][0])


@pytest.mark.parametrize("law", ["draw_gaussian", "draw_spherical"])
def test_narrower_noise_is_a_part_of_the_true_noise(law: str) -> None:
    """Of 40 true entries 6 are drawn.  With 20,000 vectors means err by less than 1%; 4% are
    beyond 1e-6.
    """
    stream = auto_trials._Stream(3, (2, 1, 500, 20), (2 * 3 * 500, 20), 6, 40)
    x = getattr(stream, law)(6, release=1).reshape(2, 3, 500, 20, 6)
    # all candidates get the same
    assert np.array_equal(x[:, 0], x[:, 1]) and np.array_equal(x[:, 0], x[:, 2])
    assert not np.array_equal(x[0], x[1])
    # in pairs
    assert np.array_equal(x[:, :, 1::2], -x[:, :, ::2]) and not np.array_equal(
        x[:, :, 2], x[:, :, 0]
    )
    square = (x[:, 0, ::2] ** 2).sum(axis=-1).mean()  # 10,000 vectors
    whole = 40.0 if law == "draw_gaussian" else 40.0 * 41.0
    assert square == pytest.approx(whole * 6 / 40, rel=0.04)
    again = getattr(auto_trials._Stream(3, (2, 1, 500, 20), (2 * 3 * 500, 20), 6, 40), law)(
        6, release=1
    )
    assert np.array_equal(again.ravel(), x.ravel())
    assert not np.allclose(getattr(stream, law)(6, release=2).ravel(), x.ravel())


def test_spherical_noise_of_all_entries_has_the_gamma_norm() -> None:
    x = auto_trials._Stream(3, (1, 1, 500, 20), (500, 20), 6, 6).draw_spherical(6, 1)
    norms = np.linalg.norm(x, axis=-1)  # Gamma(6, 1): the mean of 10,000 errs by 0.025
    assert abs(norms.mean() - 6.0) < 0.15 and abs(norms.var() - 6.0) < 0.6


def test_last_of_odd_replicates_has_no_antithetic_partner() -> None:
    x = (
        auto_trials._Stream(3, (1, 1, 3, 2), (2 * 3, 2), 4, 4)
        .draw_gaussian(4, 1)
        .reshape(2, 3, 2, 4)
    )
    assert np.array_equal(x[:, 1], -x[:, 0]) and not np.array_equal(
        np.abs(x[:, 2]), np.abs(x[:, 0])
    )


def test_gradient_steps_of_sites_that_differ_are_those_of_their_mean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Exact diffusion: without noise to speak of the network's average model is near that of one
    site with all rows.
    """
    config = BASE.but(method="momentum", rounds=60, epsilon=1e4, eta=2.0)
    tried, prepared = Rehearsal(worlds(hard=False), 1, 0), [ready(config)]
    as_one = models(tried, prepared, monkeypatch)
    monkeypatch.setattr(auto_trials, "_merge_alike_sites", lambda candidate, alike: candidate)
    as_three = models(tried, prepared, monkeypatch)
    assert np.abs(as_one - as_three).max() < 0.02 * np.abs(as_three).max()
    first = replace(
        tried, worlds=tuple(replace(w, shares=w.shares[:1].repeat(3, axis=0)) for w in tried.worlds)
    )
    # one site's
    assert (
        np.abs(models(first, prepared, monkeypatch) - as_three).max() > 0.1 * np.abs(as_three).max()
    )


# Where candidates are tried


def test_worlds_are_drawn_from_public_facts_and_repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_trials, "WORLDS", 2)
    monkeypatch.setattr(auto_trials, "CHECKS", 3)
    one, two = (Ground((300, 200), 5, 1, 1.0) for _ in range(2))
    assert [len(x.worlds) for x in (one.search_worlds, one.comparison_worlds)] == [2, 3]
    every = [*one.search_worlds.worlds, *one.comparison_worlds.worlds]
    for mine, its in zip(
        every, [*two.search_worlds.worlds, *two.comparison_worlds.worlds], strict=True
    ):
        assert np.array_equal(mine.X, its.X) and np.array_equal(mine.shares, its.shares)
    assert (
        len({world.X.tobytes() for world in every}) == 5
        and one.search_worlds.seed != one.comparison_worlds.seed
    )
    _, in_brackets = one.says.rsplit("(", 1)
    assert re.findall(r"\d+", in_brackets) == ["2", "200", "300", "5"]
    assert "different labels" in one.says
    assert "sites alike" in Ground((300, 200), 5, 1, 0.0, unknown(5)).says


def test_a_large_ground_has_fewer_rows_and_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_trials, "WORLDS", 1)
    monkeypatch.setattr(auto_trials, "_CELLS", 3000)
    small, large = (
        Ground((300,), 4, 1, 0.0).search_worlds.worlds[0],
        Ground((300,) * 9, 80, 1, 0.0).search_worlds.worlds[0],
    )
    assert small.X.shape[1] == 4 and large.X.shape[1] == auto_trials.WIDEST < 80
    assert len(large.X) == auto_trials._FEWEST < len(small.X) and large.shares.shape[0] == 9
    many = Ground((300,), 80, 40, 0.0).search_worlds.worlds[0]  # forty classes
    assert many.shares.shape[2] == 40 and 2 <= many.X.shape[1] < auto_trials.WIDEST
    assert not Ground.is_too_large(5, 100_000, 1) and Ground.is_too_large(5000, 100, 3)


WIDE = auto_trials.WIDEST + 6
"""More features than worlds have, as images and texts do."""


@pytest.mark.parametrize(
    "config",
    [
        RunConfig("mr_admm", 1.0, rounds=2),
        RunConfig("objective", 1.0, rounds=2),
        RunConfig("objective", 1.0, 1e-5, rounds=2).but(law="gaussian"),
        RunConfig("prox_admm", 1.0, 1e-5, rounds=2),
        RunConfig("momentum", 1.0, 1e-5, rounds=2),
    ],
    ids=lambda config: f"{config.method}, delta {config.delta}",
)
def test_methods_are_rehearsed_for_rows_wider_than_worlds(config: RunConfig) -> None:
    """Noise inside an objective is asked for with the true number of features, other noise with
    that of the worlds.
    """
    ground = Ground((70, 70, 70), WIDE, 1, 0.0).search_worlds
    assert ground.worlds[0].X.shape[1] == auto_trials.WIDEST
    prepared = prepare(config, np.array(SIZES, dtype=float)[:, None], WIDE)
    (found,) = ground.rehearse_candidates([prepared])
    assert np.all(np.isfinite(found.errors)) and np.ptp(found.errors) > 0.0


@pytest.mark.parametrize("law", ["draw_spherical", "draw_gaussian"])
def test_a_vector_of_the_true_width_is_drawn_as_one_of_the_worlds(law: str) -> None:
    stream = auto_trials._Stream(0, (2, 1, R, 3), (2 * R, 3), D, WIDE)
    narrow, true = (getattr(stream, law)(d, 1) for d in (D, WIDE))
    np.testing.assert_array_equal(narrow, true)
    assert narrow.shape == (2 * R, 3, D) and getattr(stream, law)(1, 1).shape == (2 * R, 3, 1)
