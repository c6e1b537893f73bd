"""Bounded sums: what they compute, that no row moves them further than they say, and the noise
in both ways to ask.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sottovoce.data.cluster import ClusterRows
from sottovoce.data.rows import Rows
from sottovoce.errors import InvalidInput
from sottovoce.ledger.memory import Ledger
from sottovoce.network.graphs import make_graph
from sottovoce.network.net import DenseNet
from sottovoce.privacy.events import RELATIONS, GaussianMechanism, SummedGaussianMechanism
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import HuberResidual, Logistic, Loss, Softmax
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.queries import (
    AtBounds,
    Bounded,
    Corrections,
    Curvature,
    FramedCurvature,
    FramedMoments,
    FramedResiduals,
    FramedSlopes,
    FramedSteps,
    Gradient,
    HuberGradient,
    Lengths,
    NoisyBounded,
    Positives,
    Products,
    ResidualMoments,
    Residuals,
    RowMean,
    Scores,
    SecondMoments,
    SlopeMoments,
    Sum,
)
from sottovoce.queries.corrections import STATISTICS, Curves
from sottovoce.queries.moments import unflatten_symmetric
from sottovoce.runs.row_guard import RowGuard

D = 4
LAST = np.eye(D)[-1]
EDGES = np.array([-0.5, 0.0, 0.5])


def facts(
    sizes: list[int], loss: Loss | None = None, relation: str = "replace-one", colluders: int = 1
) -> Facts:
    n = np.array(sizes, dtype=float)[:, None]
    summed = {"participants": 3, "colluders": colluders} if len(sizes) > 2 else {}
    return Facts(loss or Logistic(), n, D, 1.0, 1.0, len(sizes), relation, pure=False, **summed)  # type: ignore[arg-type]


def table(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows with a constant last."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    X[:, -1] = 1.0
    X /= 1.001 * np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    return X, np.where(rng.random(n) < 0.3, 1.0, -1.0)


def guard(rows: Rows, of: Facts, noise: Any = None) -> RowGuard:
    source = noise or KeyedNoise(0, range(1), range(len(of.n)))
    return RowGuard(rows, of, source, Ledger("zcdp", delta=1e-5))


def exact(what: Bounded, rows: Rows, of: Facts) -> np.ndarray:
    return guard(rows, of).charge_and_answer(NoisyBounded.of_statistic(what, None, "test"))


def at(point: Any, nodes: int) -> np.ndarray:
    return np.broadcast_to(np.asarray(point, dtype=float), (1, nodes, D)).copy()


W = np.array([0.7, -1.1, 0.4, 0.9])
FRAME = np.array(
    [[[3.0, 0.5, 0.0, 0.1], [0.5, 1.0, 0.2, 0.0], [0.0, 0.2, 2.0, -0.4], [0.1, 0.0, -0.4, 4.0]]]
)
# in which rows without a constant are as long as they are
FLAT = np.diag([1.0, 1.0, 1.0, 3.0])[None]
LONGER = np.array([1.0, 2.0, 3.0])
EVEN = np.array([-0.5, 0.0, 0.5])


class TestValues:
    def test_grams_gradient_and_counts_are_those_of_numpy(self) -> None:
        (X0, y0), (X1, y1) = table(30), table(23, 1)
        y0[3] = 0.0
        X0[3] = 0.0
        rows, of = Rows.build_from_parts([(X0, y0), (X1, y1)]), facts([30, 23])
        w = at(W, 2)
        for i, (X, y) in enumerate(((X0, y0), (X1, y1))):
            n, z = len(y), y * (X @ W)
            p = 1.0 / (1.0 + np.exp(z))
            want: list[tuple[Bounded, np.ndarray]] = [
                (Gradient(w), -(p * y) @ X / n),
                (Curvature(w), (X.T * (p * (1 - p))) @ X / n * 4),
                (Curvature(w, 0.2), (X.T * np.minimum(p * (1 - p), 0.2)) @ X / n * 5),
                (SlopeMoments(w), (X.T * p**2) @ X / n),
                (SecondMoments(w), X.T @ X / n),
                (Positives(w, LAST), np.array([(y > 0).sum() / n])),
            ]
            for what, value in want:
                found = exact(what, rows, of)[0, i]
                found = unflatten_symmetric(found, D) if value.ndim == 2 else found
                np.testing.assert_allclose(found, value, rtol=1e-12, atol=1e-14)

    def test_scores_are_counted_by_group_label_and_cell(self) -> None:
        X, y = table(200)
        X[::3, 0] = 0.0
        y[5] = 0.0
        groups = np.eye(D)[:1]
        what = Scores(at(W, 1), LAST, EDGES, groups)
        found = (
            exact(what, Rows.build_from_parts([(X, y)]), facts([200]))[0, 0].reshape(what.shape)
            * 200
        )
        for g in (0, 1):
            for k, label in enumerate((-1.0, 1.0)):
                mine = (y == label) & ((X[:, 0] != 0) == bool(g))
                cells = np.searchsorted(EDGES, (X @ W)[mine], side="right")
                np.testing.assert_array_equal(np.rint(found[g, k]), np.bincount(cells, minlength=4))
        assert round(found.sum()) == 199  # a row without a label is in no cell

    def test_corrections_are_sums_over_rows_less_what_their_cells_stand_for(self) -> None:
        """Of all rows and of each group, where no row is longer than the units."""
        X, y = table(300)
        X[::3, 0] = 0.0
        y[7], X[7] = 0.0, 0.0
        groups = np.eye(D)[:1]
        what = corrections(at(W, 1), groups)
        what = replace(
            what, units=np.full((1, 3, STATISTICS), 20.0), values=0.1 + np.zeros_like(what.values)
        )
        found = (
            exact(what, Rows.build_from_parts([(X, y)]), facts([300]))[0, 0].reshape(3, STATISTICS)
            * 300
            * 20
            * np.sqrt(2.0)
        )
        u = X @ W
        cell, known = np.searchsorted(EVEN, u, side="right"), y != 0
        for block, mine in enumerate((known, known & (X[:, 0] == 0), known & (X[:, 0] != 0))):
            p, near = (
                1.0 / (1.0 + np.exp(0.4 - 1.3 * u)),
                np.minimum(1.0, 2.0 / np.maximum(abs(u), 1e-9)),
            )
            worth, q = 0.8 * near**2, 1.0 / (1.0 + np.exp(1.0 - u))
            r = 1.0 / (1.0 + np.exp(0.8 - u))
            place = np.where(
                cell == 0, np.exp(np.minimum(u + 0.5, 0.0)), (u - np.append(0.0, EVEN)[cell]) / 0.5
            )
            place = np.where(cell == 3, 1.0 - np.exp(-np.maximum(u - 0.5, 0.0)), place)
            order = what.curves.order[0, block, (y > 0).astype(int), cell]
            label, p2 = (y > 0) * 1.0, p * (1.0 - p)
            each = (
                worth * (label - p),
                worth * (label - p) * u,
                worth * p2,
                worth * p2 * u,
                worth * p2 * u**2,
                label - r,
                label - q,
                order * (place - 0.5),
                r * (1.0 - r),
            )
            want = np.array([np.sum((one - 0.1)[mine]) for one in each])
            np.testing.assert_allclose(found[block], want, rtol=1e-9, atol=1e-9)

    def test_padding_rows_are_in_no_cell(self) -> None:
        rows, of = Rows.build_from_parts([table(30), table(28, 1)]), facts([30, 28])
        found = exact(Scores(at(W, 2), LAST, EDGES), rows, of)[0]
        np.testing.assert_allclose(found.sum(axis=-1), 1.0)

    def test_rows_in_a_frame_are_shortened_in_the_square(self) -> None:
        X, y = table(40)
        X[:9] *= 2.0
        loss = Weighted(Logistic())
        rows, of, w = Rows.build_with_any_norm([(X, y)]), facts([40], loss), at(W, 1)
        weight = np.minimum(1.0, 1.0 / np.sum(X**2, axis=1))
        frame, edges = 0.3 * FRAME, 0.3 * LONGER
        U = X @ frame[0].T
        size = weight * np.sum(U**2, axis=1)
        short, p = 1.0 / np.maximum(1.0, size), 1.0 / (1.0 + np.exp(y * (X @ W)))
        assert (size > 1).any() and (size < 1).any()
        for what, factors in (
            (FramedMoments(w, frame=frame), weight),
            (FramedSlopes(w, frame=frame), (weight * p) ** 2),
            (FramedCurvature(w, 0.2, frame=frame), weight * np.minimum(p * (1 - p) / 0.2, 1.0)),
        ):
            found = unflatten_symmetric(exact(what, rows, of)[0, 0], D)
            np.testing.assert_allclose(found, (U.T * (factors * short)) @ U / 40, rtol=1e-9)
        cells = np.searchsorted(edges, np.sqrt(size), side="right")
        found = exact(Lengths(w, frame=frame, edges=edges), rows, of)[0, 0]
        np.testing.assert_allclose(found, np.bincount(cells, minlength=4) / 40)

    def test_products_and_residuals_of_numbers(self) -> None:
        X, _ = table(40)
        t = np.random.default_rng(3).uniform(-1, 1, 40)
        rows, of = Rows.build_from_parts([(X, np.ones(40))], [t]), facts([40], HuberResidual(0.5))
        np.testing.assert_allclose(
            exact(Products(at(W, 1)), rows, of)[0, 0], t @ X / 40, rtol=1e-12
        )
        edges = np.array([0.1, 0.4])
        found = exact(Residuals(at(W, 1), LAST, edges), rows, of)[0, 0]
        want = np.bincount(np.searchsorted(edges, abs(X @ W - t), side="right"), minlength=3) / 40
        np.testing.assert_allclose(found, want)
        J = unflatten_symmetric(exact(ResidualMoments(at(W, 1), 0.3), rows, of)[0, 0], D)
        np.testing.assert_allclose(
            J, (X.T * np.clip((X @ W - t) / 0.3, -1, 1) ** 2) @ X / 40, rtol=1e-12
        )

    def test_steps_and_residuals_in_a_frame_are_of_one_weighted_least_squares(self) -> None:
        X, _ = table(40)
        X[:9] *= 2.0
        t = np.random.default_rng(3).uniform(-1, 1, 40)
        loss = Weighted(HuberResidual(0.5))
        rows = Rows.build_with_any_norm([(X, np.ones(40))]).with_offset([t])
        of, w, frame = facts([40], loss), at(W, 1), 0.3 * FRAME
        U, own = X @ frame[0].T, np.minimum(1.0, 1.0 / np.sum(X**2, axis=1))
        weight = own / np.maximum(1.0, own * np.sum(U**2, axis=1))
        assert np.any(weight < 0.9 * own) and np.any(weight == own)
        r = np.clip((X @ W - t) / 0.7, -1, 1)
        assert np.any(abs(r) == 1.0)
        found = exact(FramedSteps(w, 0.7, frame=frame), rows, of)[0, 0]
        np.testing.assert_allclose(found, U.T @ (weight * r) / 40, rtol=1e-9)
        J = unflatten_symmetric(exact(FramedResiduals(w, 0.7, frame=frame), rows, of)[0, 0], D)
        np.testing.assert_allclose(J, (U.T * (weight * r) ** 2) @ U / 40, rtol=1e-9)
        M = unflatten_symmetric(exact(FramedMoments(w, frame=frame), rows, of)[0, 0], D)
        np.testing.assert_allclose(M, (U.T * weight) @ U / 40, rtol=1e-9)

    def test_numbers_at_their_bounds_are_counted(self) -> None:
        X, _ = table(40)
        t = np.linspace(-0.9, 0.9, 40)
        t[:3], t[30:35] = -1.0, 1.0
        known = np.ones(40)
        known[2], X[2] = 0.0, 0.0
        rows, of = Rows.build_from_parts([(X, known)], [t]), facts([40], HuberResidual(0.5))
        found = exact(AtBounds(at(W, 1), LAST), rows, of)[0, 0]
        np.testing.assert_allclose(found, np.array([2.0, 5.0]) / 40)

    def test_the_mean_of_rows_knows_no_label_weight_or_class(self) -> None:
        X, y = table(40)
        y[4], X[4] = 0.0, 0.0
        wanted = np.append(X[:, :-1].mean(axis=0), 0.0)
        labels = np.where(y == 0.0, -1, np.arange(40) % 3)
        weights = [np.linspace(0.0, 1.0, 40)]
        for rows, loss in (
            (Rows.build_from_parts([(X, y)]), Logistic()),
            (Rows.build_from_parts([(X, y)]).with_weight(weights), Logistic()),
            (Rows.build_from_parts([(X, np.abs(y))], [y * 0.3]), HuberResidual(0.5)),
            (Rows.build_with_classes([(X, labels)], 3), Softmax(3)),
        ):
            of = replace(facts([40], loss), d=rows.d)
            found = exact(RowMean(np.zeros((1, 1, rows.d)), (D - 1,)), rows, of)[0, 0]
            np.testing.assert_allclose(found, wanted, atol=1e-15)
        long = X * np.linspace(0.5, 3.0, 40)[:, None]
        loss = Weighted(Logistic())
        found = exact(
            RowMean(at(W, 1), (D - 1,)), Rows.build_with_any_norm([(long, y)]), facts([40], loss)
        )[0, 0]
        short = long / np.maximum(1.0, np.linalg.norm(long, axis=1, keepdims=True))
        np.testing.assert_allclose(found, np.append(short[:, :-1].mean(axis=0), 0.0), atol=1e-8)

    def test_long_rows_count_for_less_and_keep_their_margin(self) -> None:
        X, y = table(50)
        X[:10] *= 3.0
        loss = Weighted(Logistic())
        rows, of = Rows.build_with_any_norm([(X, y)]), facts([50], loss)
        weight = np.minimum(1.0, 1.0 / np.sum(X**2, axis=1))
        p = 1.0 / (1.0 + np.exp(y * (X @ W)))
        w = at(W, 1)
        np.testing.assert_allclose(
            exact(Gradient(w), rows, of)[0, 0], -(weight * p * y) @ X / 50, rtol=1e-12
        )
        H = unflatten_symmetric(exact(Curvature(w, 0.2), rows, of)[0, 0], D)
        np.testing.assert_allclose(
            H, (X.T * (weight * np.minimum(p * (1 - p), 0.2))) @ X / 10, rtol=1e-12
        )
        J = unflatten_symmetric(exact(SlopeMoments(w), rows, of)[0, 0], D)
        np.testing.assert_allclose(J, (X.T * (weight * p) ** 2) @ X / 50, rtol=1e-12)
        weights, numbers = [np.ones(50)], [np.zeros(50)]
        for long, plain in (
            (rows, Logistic()),
            (rows.rows_of_node(0), Logistic()),
            (rows.pool_at_one_node(), Logistic()),
            (rows.with_weight(weights), Logistic()),
            (rows.with_offset(numbers), HuberResidual(0.5)),
        ):
            with pytest.raises(InvalidInput, match="may be longer"):
                long.check_loss_fits(plain)
            long.check_loss_fits(Weighted(plain))


def corrections(w: np.ndarray, groups: np.ndarray | None = None) -> Corrections:
    """Corrections at a public point, with units that are too small for most rows: these are
    shortened to norm 1.
    """
    rng, blocks, cells = (
        np.random.default_rng(9),
        1 if groups is None else 2 + len(groups),
        len(EVEN) + 1,
    )
    curves = Curves(
        level=np.full((1, blocks), -0.4),
        slope=np.full((1, blocks), 1.3),
        base=np.full((1, blocks), -1.0),
        shift=np.full((1, blocks), 0.2),
        reach=np.full((1, blocks), 2.0),
        worth=np.full((1, blocks, cells), 0.8),
        order=rng.normal(size=(1, blocks, 2, cells)),
        tails=np.ones((1, blocks, 2)),
    )
    values = np.zeros((1, blocks, 2, cells, STATISTICS))
    return Corrections(
        w, LAST, EVEN, groups, curves, values, np.full((1, blocks, STATISTICS), 0.01)
    )


def statistics(w: np.ndarray) -> list[tuple[Bounded, Loss]]:
    logistic, huber = Logistic(), HuberResidual(0.5)
    return [
        (Gradient(w), logistic),
        (Curvature(w), logistic),
        (Curvature(w, 0.1), logistic),
        (SlopeMoments(w), logistic),
        (SecondMoments(w), logistic),
        (Positives(w, LAST), logistic),
        (Scores(w, LAST, EDGES), logistic),
        (Gradient(w), Weighted(logistic)),
        (Curvature(w), Weighted(logistic)),
        (SlopeMoments(w), Weighted(logistic)),
        (SecondMoments(w), Weighted(logistic)),
        (HuberGradient(w, 0.3), huber),
        (HuberGradient(w, 0.3), Weighted(huber)),
        (Curvature(w, 0.1), Weighted(logistic)),
        (Scores(w, LAST, EDGES), Weighted(logistic)),
        (SecondMoments(w), Weighted(huber)),
        (Products(w), Weighted(huber)),
        (Residuals(w, LAST, EDGES[1:]), Weighted(huber)),
        (corrections(w), logistic),
        (corrections(w), Weighted(logistic)),
        (corrections(w, np.eye(D)[:1]), logistic),
        (Gradient(w), huber),
        (Products(w), huber),
        (Residuals(w, LAST, EDGES[1:]), huber),
        (SecondMoments(w), huber),
        (ResidualMoments(w, 0.3), huber),
        (ResidualMoments(w, 0.3), Weighted(huber)),
        (RowMean(w, (D - 1,)), logistic),
        (RowMean(w, (D - 1,)), Weighted(logistic)),
        (RowMean(w, (D - 1,)), huber),
        *(
            (kind(w, frame=FRAME), loss)
            for kind in (FramedCurvature, FramedSlopes, FramedMoments)
            for loss in (logistic, Weighted(logistic))
        ),
        (FramedCurvature(w, 0.1, frame=30.0 * FRAME), Weighted(logistic)),
        (FramedResiduals(w, 0.3, frame=FLAT), Weighted(huber)),
        (FramedSteps(w, 0.3, frame=FLAT), huber),
        (FramedSteps(w, 0.3, frame=FLAT), Weighted(huber)),
        (AtBounds(w, LAST), Weighted(huber)),
        (Lengths(w, frame=FRAME, edges=LONGER), logistic),
        (Lengths(w, frame=FRAME, edges=LONGER), Weighted(logistic)),
    ]


def test_statistics_of_rows_on_a_cluster_are_those_in_memory() -> None:
    """Such sums ended in an AssertionError, after they were paid for."""
    array = pytest.importorskip("dask.array")
    X, y = table(30)
    t = np.linspace(-1.0, 1.0, 30)
    for what, loss in statistics(at(W, 1)):
        signs = np.ones(30) if loss.offset_bound else y
        found = []
        for rows in (
            Rows.build_from_parts([(X, signs)]),
            ClusterRows.rows_from_dask(
                array.from_array(X, chunks=(9, D)), array.from_array(signs, chunks=9)
            ),
        ):
            rows = rows.with_offset([t]) if loss.offset_bound else rows
            found.append(exact(what, rows.with_weight([(1.0 + t) / 2.0]), facts([30], loss)))
        np.testing.assert_allclose(found[1], found[0], rtol=1e-12, atol=1e-14, err_msg=repr(what))


def movements(
    what: Bounded,
    loss: Loss,
    pairs: np.ndarray,
    relation: str,
    numbers: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """How far a statistic of two rows moves if the first is replaced, and how far it may.

    Both for many pairs at once, (pairs, 2, D): each is at a node of its own, which has its own
    point of `what`; `numbers`, (pairs, 2), are those to predict.
    """
    many = len(pairs)
    still = np.broadcast_to(0.5 * np.ones(D) / np.sqrt(D), (many, D))
    two = np.full((many, 1), 2.0)
    of = Facts(loss, two, D, 1.0, 1.0, many, relation, pure=False)
    means = []
    for k in (0, 1):
        X = np.stack([np.abs(pairs[:, k]) * np.sign(pairs[:, k]), still], axis=1)
        targets = [np.array([number, 0.3]) for number in numbers[:, k]]
        if isinstance(loss, Weighted):
            rows = Rows(X, two, any_norm=True)
            if loss.offset_bound:
                rows = rows.with_offset(targets)
        elif loss.offset_bound:
            # A person who is not there has no label.
            signs = [np.array([float(np.any(one[0] != 0)), 1.0]) for one in X]
            rows = Rows.build_from_parts(list(zip(X, signs, strict=True)), targets)
        else:
            rows = Rows(X, two)
        means.append(exact(what, rows, of)[0])
    far = np.linalg.norm(means[0] - means[1], axis=1)
    return far, np.broadcast_to(what.mean_sensitivity(of, two[:, 0]), many)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("k", range(len(statistics(np.zeros((1, 1, D))))))
def test_no_row_moves_a_sum_further_than_it_says_and_some_row_moves_it_so_far(
    k: int, relation: str
) -> None:
    """A search over signed rows of norm 1 (or longer), numbers and points; the best found must
    be near the bound.
    """
    rng = np.random.default_rng(k)
    anywhere, loss = statistics(at(W, 1))[k]
    points, pairs, numbers = [], [], []
    for trial in range(180):
        w = rng.normal(size=D) * 10.0 ** rng.uniform(-3, 2.5)
        rows = rng.normal(size=(2, D))
        # orthogonal, every other time
        rows[1] -= rows[0] * (rows[0] @ rows[1]) / (rows[0] @ rows[0]) * (trial % 2)
        if trial % 3 == 0:
            rows[1] = -rows[0]
        if trial % 4 == 0:  # both at a margin of zero, where the bend is largest
            rows -= np.outer(rows @ w, w) / (w @ w)
        if trial % 18 == 3:  # opposite but for a small constant, whose sign is the label's
            rows[:, -1] = 1e-3
        if trial % 6 == 0:  # opposite rows, both on the steep side
            rows -= 0.1 * w / np.linalg.norm(w)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True) * (1.0 + 1e-12)
        if isinstance(loss, Weighted) and trial % 5 == 0:
            rows *= 10.0 ** rng.uniform(-2, 2, size=(2, 1))
        if relation == "zero-out":
            rows[1] = 0.0
        points.append(w)
        pairs.append(rows)
        numbers.append(rng.choice([-1.0, 1.0], size=2))
    what = replace(anywhere, at=np.array([points]))
    far, most = movements(what, loss, np.array(pairs), relation, np.array(numbers))
    assert np.all(far <= most)
    assert np.max(far / most) > 0.9


def test_a_histogram_has_the_sensitivity_of_two_cells() -> None:
    """Replacing a row empties one cell and fills another: one cell's sensitivity would be
    refuted by this pair.
    """
    what = Scores(at(W, 1), LAST, EDGES)
    first, other = 0.9 * W / np.linalg.norm(W), -0.9 * W / np.linalg.norm(W)
    ((far,), _) = movements(
        what, Logistic(), np.array([[first, other]]), "replace-one", np.zeros((1, 2))
    )
    assert 2 * far == pytest.approx(np.sqrt(2.0)) and what.exact_sum_sensitivity(
        facts([2])
    ) == pytest.approx(np.sqrt(2.0))


def test_rounding_is_covered_where_every_row_rounds() -> None:
    """Means of many rows in single steps against exact rational sums."""
    from fractions import Fraction

    X, y = table(3000)
    what, of = SecondMoments(at(W, 1)), facts([3000])
    found = exact(what, Rows.build_from_parts([(X, y)]), of)[0, 0]
    i, j = np.triu_indices(D)
    sums = [
        sum((Fraction(a[p]) * Fraction(a[q]) for a in X), Fraction(0))
        for p, q in zip(i, j, strict=True)
    ]
    want = np.array([float(s / 3000) for s in sums]) * np.where(i == j, 1.0, np.sqrt(2.0))
    assert np.linalg.norm(found - want) <= float(
        what.rounding_error_bound(of, np.array([3000.0]))[0]
    )


@pytest.mark.parametrize("k", range(len(statistics(np.zeros((1, 1, D))))))
def test_a_plan_prices_at_points_of_one_entry(k: int) -> None:
    """Neither the answer's width nor the rounding in its sensitivity is read off the point."""
    what, loss = statistics(at(W, 2))[k]
    of, alpha = facts([30, 40], loss), np.full((2, 1), 0.5)
    short = replace(what, at=np.zeros((2, 1)))
    full, plan = (
        NoisyBounded.of_statistic(what, alpha, "test"),
        NoisyBounded.of_statistic(short, alpha, "test"),
    )
    assert (
        plan.number_of_entries(of)
        == full.number_of_entries(of)
        == plan.placeholder_answer(of).shape[-1]
    )
    assert plan.event(of).to_dict() == full.event(of).to_dict()
    assert Sum.sum_of_query(plan).event(of).to_dict() == Sum.sum_of_query(full).event(of).to_dict()


RUNS = 400


@pytest.mark.parametrize("way", ["nobody", "sum"])
@pytest.mark.parametrize("k", [0, 1, 3, 6, 24])
def test_noise_has_the_stated_scale(way: str, k: int) -> None:
    """A chi-squared test at one in 10^4 for the right scale, which two thirds and three halves
    of it fail.
    """
    sizes = [30, 40, 50]
    rows, of = Rows.build_from_parts([table(n, n) for n in sizes]), facts(sizes)
    what, _ = statistics(np.broadcast_to(at(W, 3), (RUNS, 3, D)))[k]
    alpha = np.full((3, 1), 0.5)
    asked = guard(rows, of, KeyedNoise(1, range(RUNS), range(3)))
    clean = exact(replace(what, at=at(W, 3)), rows, of)
    if way == "nobody":
        query = NoisyBounded.of_statistic(what, alpha, "test")
        noise, event = asked.charge_and_answer(query) - clean, query.event(of)
        assert isinstance(event, GaussianMechanism) and event.dimension == what.number_of_entries(
            of
        )
        sigma = event.sigma[:, None]
    else:
        summed = Sum.sum_of_query(NoisyBounded.of_statistic(what, alpha, "test"))
        mean = np.sum(clean * of.n / of.rows, axis=1, keepdims=True)
        noise, shown = (
            (asked.charge_and_open_sum(summed, DenseNet(make_graph("complete", 3))) - mean)[:, :1],
            summed.event(of),
        )
        assert isinstance(
            shown, SummedGaussianMechanism
        ) and shown.dimension == what.number_of_entries(of)
        assert shown.noise_standard_deviation()[0] == pytest.approx(
            shown.sensitivity[0] / 0.5 * np.sqrt(1.5)
        )
        sigma = shown.noise_standard_deviation()[:1, None]
    squares, free = float(np.sum((noise / sigma) ** 2)), noise.size
    accept = [float(stats.chi2.sf(squares * s**2, free)) for s in (1.0, 1.5, 2 / 3)]
    assert 1e-4 < accept[0] < 1 - 1e-4 and accept[1] < 1e-4 and accept[2] > 1 - 1e-4


def test_a_pure_price_is_refused() -> None:
    of = replace(facts([30]), pure=True)
    query = NoisyBounded.of_statistic(Gradient(at(W, 1)), np.ones((1, 1)), "test")
    with pytest.raises(InvalidInput, match=r"^delta: "):
        guard(Rows.build_from_parts([table(30)]), of).charge_and_answer(query)
