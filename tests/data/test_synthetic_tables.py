"""Synthetic tables: rows in the ball, labels by chance, sites that differ as declared, and few
columns for many.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from sottovoce.data import synthetic_tables
from sottovoce.data.expected import expected_rows
from sottovoce.data.schema import Schema
from sottovoce.data.synthetic_tables import (
    LABELS,
    Labels,
    Sketches,
    World,
    correlated_sketch,
    dense_sketch,
    draw_site_labels,
    draw_world,
    narrowed_sketch,
    one_hot_sketch,
    onto,
    principal_axes,
    rows_inside_ball,
    sketches_from_source,
    unknown,
)
from sottovoce.util.typing import Array

RNG = partial(np.random.default_rng, 4)


# Rows


@pytest.mark.parametrize("d", [1, 2, 30])
@pytest.mark.parametrize("kind", [one_hot_sketch, dense_sketch, partial(dense_sketch, norm=0.2)])
def test_sketches_draw_rows_in_the_ball(kind: synthetic_tables.Any, d: int) -> None:
    for sketch in (kind(d), correlated_sketch(kind(d)), narrowed_sketch(kind(d), 7)):
        X = sketch(300, RNG())
        assert X.shape == (300, min(d, 7) if sketch.__qualname__.startswith("narrowed") else d)
        assert np.linalg.norm(X, axis=1).max() < 1.0 and np.isfinite(X).all()
        assert np.array_equal(X, sketch(300, RNG()))


def test_one_hot_rows_have_one_active_column_a_group_and_a_constant() -> None:
    X = one_hot_sketch(19)(500, RNG())
    assert np.allclose((X > 0).sum(axis=1), 4) and np.allclose(np.linalg.norm(X, axis=1), 1.0)
    often = (X[:, :6] > 0).mean(axis=0)
    assert often.max() > 2 * np.sort(often)[2]


def test_dense_rows_have_the_norm_asked_for() -> None:
    for norm in (0.5, 0.2):
        X = dense_sketch(12, norm)(4000, RNG())
        assert np.sqrt((X**2).sum(axis=1).mean()) == pytest.approx(norm, rel=0.1)
        assert np.allclose(X[:, -1], X[0, -1])


def test_correlated_rows_keep_means_and_spreads_and_are_correlated() -> None:
    def apart(n: int, rng: np.random.Generator) -> Array:
        columns = rng.uniform(-0.1, 0.3, size=(n, 8)) * np.linspace(0.2, 1.0, 8)
        return np.column_stack([columns, np.full(n, 0.3)])

    X, Z = apart(20_000, RNG()), correlated_sketch(apart)(20_000, RNG())
    # rows that are too long are clipped, the constant with them
    assert np.allclose(Z[:, -1], 0.3, atol=0.05)
    assert np.allclose(Z.mean(axis=0), X.mean(axis=0), atol=0.01) and np.allclose(
        Z.std(axis=0), X.std(axis=0), rtol=0.1
    )
    known, made = (np.linalg.eigvalsh(np.corrcoef(rows[:, :-1].T))[::-1] for rows in (X, Z))
    assert known[0] < 1.1 and made[0] > 2.0 and made[-1] < 0.6


def test_means_and_spreads_deviate_as_declared() -> None:
    """With 400 columns the spread of means errs by 4%, and the median factor by 6%."""

    def even(n: int, rng: np.random.Generator) -> Array:
        return rng.uniform(-0.02, 0.02, size=(n, 400))

    X, Z = even(2000, RNG()), correlated_sketch(even, 1.0, 0.5, 0.5)(4000, RNG())
    moved = (Z.mean(axis=0) - X.mean(axis=0)) / X.std(axis=0)
    assert moved.std() == pytest.approx(0.5, rel=0.2) and abs(moved.mean()) < 0.1
    factors = Z.std(axis=0) / X.std(axis=0)
    assert np.median(factors) == pytest.approx(0.5, rel=0.25)
    assert np.log(factors).std() == pytest.approx(synthetic_tables.FACTOR, rel=0.2)


# Fewer columns


def test_principal_directions_are_those_of_either_formula() -> None:
    X = RNG().normal(size=(40, 25)) / np.arange(1.0, 26.0)
    tall = principal_axes(X, 5)
    wide = principal_axes(np.hstack([X, np.zeros((40, 30))]), 5)  # more columns than rows
    assert np.allclose(tall.T @ tall, np.eye(5)) and np.allclose(wide.T @ wide, np.eye(5))
    assert np.allclose(np.abs(np.sum(tall * wide[:25], axis=0)), 1.0)
    left = np.linalg.svd(X)[2][:5]
    assert np.allclose(np.linalg.svd(left @ tall)[1], 1.0)


def test_few_different_rows_have_few_directions() -> None:
    X = np.zeros((60, 300))
    X[np.arange(60), np.arange(60) % 6] = 0.5
    X[:, -1] = 0.5
    D = principal_axes(X, 20)
    square = D.T @ D
    assert (
        D.shape == (300, 20)
        and np.allclose(square, np.diag(np.diag(square)))
        and np.trace(square) == pytest.approx(6)
    )
    Y = onto(D, X, RNG())
    assert np.allclose(Y @ Y.T, X @ X.T)


def test_narrowed_rows_keep_norms_and_the_spread_of_margins() -> None:
    """The k-th moment of a margin under noise alike in all directions follows from the norm;
    principal parts stay.
    """
    X = dense_sketch(200)(500, RNG())
    Y = narrowed_sketch(dense_sketch(200), 16)(500, RNG())
    assert Y.shape == (500, 16) and np.allclose(
        np.linalg.norm(Y, axis=1), np.linalg.norm(X, axis=1)
    )
    D = principal_axes(X, 15)
    assert np.allclose(Y[:, :15] @ Y[:, :15].T, (X @ D) @ (X @ D).T)
    noise = RNG().normal(size=(2, 4000, 200))
    # 4000 draws: a spread errs by 1.1%, and 500 by less than 6%
    wide, narrow = (
        X @ noise[0].T,
        Y @ noise[1, :, :16].T,
    )
    assert np.allclose(wide.std(axis=1) / narrow.std(axis=1), 1.0, atol=0.1)
    assert abs(np.mean(Y[:, -1] > 0) - 0.5) < 0.12  # five standard deviations


def test_narrowed_rows_of_few_dimensions_are_unchanged_up_to_rotation() -> None:
    def flat(n: int, rng: np.random.Generator) -> Array:
        return rows_inside_ball(rng.normal(size=(n, 4)) @ np.eye(4, 90) / 4.0)

    X, Y = flat(50, RNG()), narrowed_sketch(flat, 10)(50, RNG())
    assert np.allclose(X @ X.T, Y @ Y.T, atol=1e-7)
    assert np.array_equal(
        narrowed_sketch(dense_sketch(9), 9)(50, RNG()), dense_sketch(9)(50, RNG())
    )


# Labels


@pytest.mark.parametrize("classes", [2, 4])
def test_class_probabilities_of_a_world_add_up_to_one(classes: int) -> None:
    world = draw_world(dense_sketch(6), 80, (10, 700, 300), 3, classes=classes, tilt=1.0)
    assert (
        world.X.shape == (80, 6) and world.shares.shape == (3, 80, classes) and world.start is None
    )
    assert world.chances.shape == (synthetic_tables.HELD_OUT, classes) and np.allclose(
        world.chances.sum(axis=1), 1.0
    )
    assert np.allclose(world.shares.sum(axis=(1, 2)), 80) and world.shares.min() >= 0
    best = 1.0 - world.chances.max(axis=1).mean()
    assert 0.01 < best < 0.6
    again = draw_world(dense_sketch(6), 80, (10, 700, 300), 3, classes=classes, tilt=1.0)
    other = draw_world(dense_sketch(6), 80, (10, 700, 300), 4, classes=classes, tilt=1.0)
    assert np.array_equal(world.shares, again.shares) and not np.array_equal(world.test, other.test)


def test_labels_are_as_hard_as_declared() -> None:
    def best(labels: Labels) -> float:
        world = draw_world(dense_sketch(8), 50, (100,), 1, labels=labels)
        assert np.linalg.norm(world.X, axis=1).max() < 1.0
        return float(1.0 - world.chances.max(axis=1).mean())

    plain = Labels(2.0, 0.0, 0.0, 0.5)
    assert best(Labels(8.0, 0.0, 0.0, 0.5)) < best(plain) < best(Labels(2.0, 0.2, 0.0, 0.5))
    assert best(Labels(2.0, 0.0, 2.0, 0.5)) != best(plain)
    assert best(Labels(2.0, 1.0, 0.0, 0.5)) == pytest.approx(0.5)
    middle = [
        np.mean(
            np.abs(
                draw_world(
                    dense_sketch(8), 50, (100,), 1, labels=Labels(4.0, 0.0, gap, 0.5)
                ).chances[:, 0]
                - 0.5
            )
            < 0.3
        )
        for gap in (0.0, 3.0)
    ]
    assert middle[1] < middle[0]  # fewer rows between the classes


@pytest.mark.parametrize("tilt", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("sites", [(7,), (200, 200), (10, 20, 3000), (5,) * 12])
def test_dealt_labels_add_up_at_every_site_and_over_all(
    sites: tuple[int, ...], tilt: float
) -> None:
    chances = RNG().dirichlet([0.3] * 4, 300)
    chances[:, 2] = 0.0  # a class that no row has
    chances /= chances.sum(axis=1, keepdims=True)
    shares, size = draw_site_labels(chances, sites, tilt), np.array(sites) / sum(sites)
    assert np.allclose(shares.sum(axis=(1, 2)), 300)
    assert np.allclose(np.tensordot(size, shares.sum(axis=1), 1), chances.sum(axis=0))
    if tilt == 0.0 or len(sites) == 1:
        assert np.allclose(shares, chances)
    else:
        odds = np.log(shares.sum(axis=1)[:, 3] / shares.sum(axis=1)[:, 0])
        assert np.allclose(
            np.diff(odds), tilt * synthetic_tables.LABEL_SPREAD * 2.0 / (len(sites) - 1)
        )


def test_the_error_of_a_classifier_is_the_chance_that_it_is_wrong() -> None:
    test = np.array([[1.0, 0.0], [0.0, 1.0]])
    two = World(test, np.ones((1, 2, 2)), test, np.array([[0.9, 0.1], [0.3, 0.7]]))
    assert np.allclose(
        two.error(np.array([[-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])), [0.2, 0.8, 0.4]
    )
    three = World(test, np.ones((1, 2, 3)), test, np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]))
    assert three.error(np.array([2.0, 0.0, 1.0, 0.0, 0.0, 5.0])) == pytest.approx((0.5 + 0.2) / 2)


# What is known


def test_sources_with_the_same_key_draw_the_same_worlds() -> None:
    sizes = {"sites": (30, 50), "classes": 2, "tilt": 0.0, "widest": 64}
    first, second = unknown(5), unknown(5)
    assert first == second and hash(first) == hash(second) and first != unknown(6)
    assert (
        Sketches("k", "s", (dense_sketch(3),))
        == Sketches("k", "s", (one_hot_sketch(3),))
        != Sketches("other", "s", (dense_sketch(3),))
    )
    made = [first.draw_expected_world(number, 40, **sizes) for number in range(6)]  # type: ignore[arg-type]
    for number, world in enumerate(made):
        assert np.array_equal(world.X, second.draw_expected_world(number, 40, **sizes).X)  # type: ignore[arg-type]
    assert len({world.X.tobytes() for world in made}) == 6 and len(LABELS) > 1


def test_world_has_at_most_the_requested_number_of_features() -> None:
    for d, widest, width in ((5, 9, 5), (30, 9, 9)):
        for number in range(4):
            world = unknown(d).draw_expected_world(
                number, 40, (30, 50), classes=3, tilt=0.0, widest=widest
            )
            assert world.X.shape == (40, width) and world.test.shape[1] == width


def test_worlds_of_a_schema_are_drawn_from_its_synthetic_rows() -> None:
    def schema(high: float) -> Schema:
        return Schema.from_dict(
            {"columns": {"age": {"kind": "number", "lo": 0, "hi": 120, "typical": [18, high]}}}
        )

    one, same, other = (expected_rows(schema(high)) for high in (80, 80, 100))
    assert one == same != other
    d = schema(80).n_features
    world = one.draw_expected_world(0, 40, (30, 50), classes=2, tilt=0.0, widest=64)
    assert world.X.shape == (40, d) and np.linalg.norm(world.X, axis=1).max() < 1.0
    many = sketches_from_source(
        "many", "many columns", dense_sketch(synthetic_tables.MANY + 1), synthetic_tables.MANY + 1
    )
    assert all(sketch.__qualname__.startswith("condensed") for sketch in many.sketches)
