"""Sites that each release their own answers: one table of all, as precise as a meta-analysis of
their own tables.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from sottovoce.answers import coefficients, least_squares
from sottovoce.answers.coefficients import Coefficients
from sottovoce.answers.inference import newton_from_naming
from sottovoce.answers.least_squares import slopes_from_naming
from sottovoce.answers.separate_sites import (
    Columns,
    SiteStep,
    combine_by_precision,
    shrink_to_mean,
    weights_by_noise,
)
from sottovoce.answers.terms import Naming, naming_from_columns
from sottovoce.data.rows import Rows
from sottovoce.ledger.memory import Ledger
from sottovoce.privacy.accountants import make_accountant
from sottovoce.privacy.noise import KeyedNoise
from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import HuberResidual, Logistic
from sottovoce.problem.task import BoundedNumber
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.queries import (
    Bounded,
    FramedCurvature,
    Gradient,
    Lengths,
    NoisyBounded,
    SecondMoments,
)
from sottovoce.runs.config import RunConfig
from sottovoce.runs.row_guard import RowGuard
from sottovoce.runs.simulate import simulate

BETA, OWN = np.array([0.6, -0.4, 0.3]), np.array([-1.0, 0.2, 0.4])
SIZES = (2800, 800, 400)
TASK = BoundedNumber(-10.0, 10.0)
KINDS = ("classes", "numbers")


def config(epsilon: float = 3.0, seed: int = 0, trust: str = "nobody") -> RunConfig:
    return RunConfig(method="auto", trust=trust, epsilon=epsilon, delta=1e-5, seed=seed)


def drawn(
    kind: str, seed: int, sizes: tuple[int, ...] = SIZES, own: np.ndarray = OWN
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Draw columns and outcomes of every site; sites have constants of their own."""
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(n, len(BETA))) for n in sizes]
    scores = [x @ BETA + c for x, c in zip(X, own, strict=True)]
    if kind == "numbers":
        # without tails all histograms show the same width of residuals, whatever their noise
        return X, [
            np.clip(s + rng.uniform(-1.7, 1.7, size=len(s)), TASK.low, TASK.high) for s in scores
        ]
    return X, [np.where(rng.random(len(s)) < expit(s), 1.0, -1.0) for s in scores]


def naming_of(sites: int) -> Naming:
    names = [f"site {i}" for i in range(sites)] if sites > 1 else []
    return naming_from_columns(["a", "b", "c"], 2.3, names)


def rows_of(kind: str, naming: Naming, X: list[np.ndarray], y: list[np.ndarray]) -> Rows:
    if kind == "classes":
        return naming.rows_of_sites(list(zip(X, y, strict=True)))
    rows = naming.rows_of_sites([(x, np.ones(len(x))) for x in X])
    return rows.with_offset([TASK.encode(part) for part in y])


def table_of(
    kind: str, run: RunConfig, X: list[np.ndarray], y: list[np.ndarray], apart: bool = True
) -> Coefficients:
    naming = naming_of(len(X) if apart else 1)
    rows = rows_of(kind, naming, X, y)
    if kind == "classes":
        found = simulate(
            run, rows, method=newton_from_naming(naming), loss=Weighted(Logistic())
        ).outcome
        return coefficients.build_coefficient_table(found, naming)
    found = simulate(
        run, rows, method=slopes_from_naming(naming), loss=Weighted(HuberResidual(1.0))
    ).outcome
    return least_squares.table_in_target_units(found, naming, TASK)


def errors(table: Coefficients) -> np.ndarray:
    return np.array([np.nan if x.refused else x.standard_error for x in table.lines], dtype=float)


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_no_interval_is_wider_than_a_meta_analysis_of_the_sites_own_tables(
    kind: str, apart: bool
) -> None:
    """Averages by rows would give intervals 1.3 to 2.5 times as wide, for unequal sites."""
    own = OWN if apart else np.full(3, OWN[0])
    ratios = []
    for seed in range(3):
        X, y = drawn(kind, seed, own=own)
        joint = errors(table_of(kind, config(seed=seed), X, y, apart))[: len(BETA)]
        alone = [
            errors(table_of(kind, config(seed=10 * seed + i), [x], [part], apart=False))[
                : len(BETA)
            ]
            for i, (x, part) in enumerate(zip(X, y, strict=True), 1)
        ]
        pooled = np.nansum(np.array(alone) ** -2.0, axis=0) ** -0.5
        assert np.isfinite(joint).all()
        ratios.append(joint / pooled)
    assert np.median(ratios) < 1.05 and np.mean(ratios) < 1.1


def test_a_common_constant_is_no_wider_than_by_a_meta_analysis() -> None:
    """Weights by noise use fewer effective rows; with the sampling error of these the ratio of
    widths is 1.06.
    """
    own, ratios = np.full(3, OWN[0]), []
    for seed in range(4):
        X, y = drawn("classes", seed, own=own)
        joint = errors(table_of("classes", config(10.0, seed), X, y, apart=False))[-1]
        alone = [
            errors(table_of("classes", config(10.0, 10 * seed + i), [x], [part], apart=False))[-1]
            for i, (x, part) in enumerate(zip(X, y, strict=True), 1)
        ]
        ratios.append(joint / np.sum(np.array(alone) ** -2.0) ** -0.5)
    assert np.mean(ratios) < 1.03


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_cover_where_sites_are_unlike_and_of_unlike_sizes(kind: str) -> None:
    """Standardised errors of 30 data sets, between the quantiles at one in a thousand; errors that
    are off by a third fail.
    """
    found = []
    for seed in range(30):
        X, y = drawn(kind, 100 + seed)
        table = table_of(kind, config(seed=seed), X, y)
        truth = np.append(BETA, OWN)
        z = [
            (x.estimate - t) / x.standard_error
            for x, t in zip(table.lines, truth, strict=True)
            if not x.refused
        ]
        found.append([float(np.mean(np.square(z[:3]))), float(np.mean(np.square(z[3:])))])
    squares = np.mean(found, axis=0)
    low, high = stats.chi2.ppf([0.0005, 0.9995], 90) / 90.0
    assert np.all((low < squares) & (squares < high)), squares
    assert np.all((squares / 1.5**2 < low) | (squares * 1.5**2 > high))


@pytest.mark.parametrize("kind", KINDS)
def test_noiseless_table_equals_that_of_all_rows(kind: str) -> None:
    X, y = drawn(kind, 3)
    alone, summed = (
        table_of(kind, config(math.inf, trust=trust), X, y) for trust in ("nobody", "sum")
    )
    np.testing.assert_allclose(errors(alone), errors(summed), rtol=1e-6)
    for one, other in zip(alone.lines, summed.lines, strict=True):
        assert one.estimate == pytest.approx(other.estimate, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_twenty_small_sites_with_constants_of_their_own_are_printed(kind: str) -> None:
    """Averaged by rows in all columns, nothing of the table would be printed."""
    X, y = drawn(kind, 5, sizes=(400,) * 20, own=np.linspace(-1.0, 1.0, 20))
    table = table_of(kind, config(), X, y)
    assert not any(line.refused for line in table.lines)
    for line, truth in zip(table.lines, BETA, strict=False):
        assert line.estimate is not None and line.standard_error is not None
        assert abs(line.estimate - truth) < 4.0 * line.standard_error


@pytest.mark.parametrize(
    "what",
    [
        Gradient(np.array([[0.4, -0.2, 0.5, 0.3]])),
        SecondMoments(np.zeros((1, 4))),
        FramedCurvature(
            np.array([[0.4, -0.2, 0.5, 0.3]]), 0.2, frame=np.diag([1.0, 2.0, 3.0, 1.5])[None] + 0.1
        ),
        Lengths(
            np.zeros((1, 4)),
            frame=np.diag([1.0, 2.0, 3.0, 1.5])[None] + 0.1,
            edges=np.array([0.5, 1.0]),
        ),
    ],
)
def test_answers_are_reduced_to_one_constant(what: Bounded) -> None:
    """A site's rows with one constant give the same numbers at a point with this site's constant."""
    X, y = drawn("classes", 7)
    columns = Columns(naming_of(3).constant, 3)
    own = np.array([[0.3, -0.2, 0.1]])
    asked = columns.asked(what, own)
    wide = rows_of("classes", naming_of(3), X, y)
    answers = columns.own_part(what, value_of(asked, wide))
    for i, (x, part) in enumerate(zip(X, y, strict=True)):
        at = columns.point_of_each_site(what.at, own)[:, i]
        alone = value_of(replace(what, at=at), rows_of("classes", naming_of(1), [x], [part]))
        np.testing.assert_allclose(answers[0, i], alone[0, 0], rtol=1e-9, atol=1e-12)


def value_of(what: Bounded, rows: Rows) -> np.ndarray:
    """Return the exact statistic of each site's rows, (R, N, entries)."""
    facts = Facts(Weighted(Logistic()), rows.n, rows.d, 1.0, 1.0, len(rows.n))
    at = np.broadcast_to(what.at[:, None, :], (len(what.at), len(rows.n), rows.d))
    book = Ledger(make_accountant("rdp"), math.inf, 1e-5)
    guard = RowGuard(rows, facts, KeyedNoise(0, [0], range(len(rows.n))), book)
    query = NoisyBounded.of_statistic(replace(what, at=np.array(at)), None, "exact")
    return np.asarray(guard.charge_and_answer(query))


def test_weights_are_those_of_the_least_noise_and_of_rows_without_any() -> None:
    spreads, rows = np.array([0.1, 0.2, 0.4]), np.array([400.0, 200.0, 100.0])
    weights = weights_by_noise(spreads, rows)
    assert weights.sum() == pytest.approx(1.0) and np.ptp(weights * spreads**2) < 1e-15
    np.testing.assert_allclose(weights_by_noise(np.zeros(3), rows), rows / 700.0)
    np.testing.assert_allclose(weights_by_noise(np.full(3, 0.3), rows), np.full(3, 1.0 / 3.0))


def test_sites_estimates_are_pooled_by_inverse_covariance_with_a_constant_each() -> None:
    """The result equals generalised least squares of the stacked estimates."""
    rng = np.random.default_rng(0)
    columns, steps, stacked, covariances = Columns(np.array([0.0, 0.0, 1.0, 1.0]), 2), [], [], []
    for _ in range(2):
        root = rng.normal(size=(3, 3))
        covariance, estimate = root @ root.T + np.eye(3), rng.normal(size=3)
        steps.append(
            SiteStep(
                estimate[None], covariance[None], 0.7 * covariance[None], 0.3 * covariance[None]
            )
        )
        stacked.append(estimate)
        covariances.append(covariance)
    design = np.vstack([columns.embedding(i).T for i in range(2)])
    sure = np.zeros((6, 6))
    sure[:3, :3], sure[3:, 3:] = (np.linalg.inv(c) for c in covariances)
    right = np.linalg.inv(design.T @ sure @ design)
    found = combine_by_precision(columns, steps)
    np.testing.assert_allclose(found.estimate[0], right @ design.T @ sure @ np.concatenate(stacked))
    np.testing.assert_allclose(found.noise[0] + found.sampling[0], right)
    np.testing.assert_allclose(found.noise[0], 0.7 * right)


def test_differences_explained_by_noise_are_shrunk_to_zero() -> None:
    z = np.random.default_rng(1).normal(size=(200, 30))
    alike = shrink_to_mean(z, np.ones((200, 30)))
    unlike = shrink_to_mean(10.0 * z, np.ones((200, 30)))
    assert np.mean(alike**2) < 0.1 and np.mean((unlike - 10.0 * z) ** 2) < 5.0
    np.testing.assert_allclose(
        shrink_to_mean(z, np.zeros((200, 30))), z - z.mean(axis=1, keepdims=True), atol=1e-12
    )
