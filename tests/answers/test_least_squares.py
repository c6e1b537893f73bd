"""Least squares with intervals: the step is exact, the covariance includes all noise, and intervals
cover.
"""

from __future__ import annotations

import dataclasses
import math
import re
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sottovoce import ConsensusRegressor
from sottovoce.answers import clipped_tails, least_squares
from sottovoce.answers.bounds_reached import estimate_targets_at_bounds
from sottovoce.answers.inference import Estimates
from sottovoce.answers.slope_moments import OF_RESIDUALS, drawn_to_multiple
from sottovoce.answers.terms import Naming, naming_from_columns, naming_from_schema
from sottovoce.data.schema import Schema
from sottovoce.errors import InvalidInput
from sottovoce.problem.losses import HuberResidual
from sottovoce.problem.task import BoundedNumber
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.queries.moments import unflatten_symmetric
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate

DAYS = BoundedNumber(0.0, 60.0, "days")
BETA = np.array([3.0, -2.0, 0.0, 25.0])


def drawn(
    n: int, seed: int, *, spread: float = 0.6, norm: float = 2.4
) -> tuple[Naming, np.ndarray, np.ndarray]:
    """Columns, and targets whose spread depends on the first column."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    e = 3.0 * np.exp(spread * X[:, 0] - spread**2) * rng.normal(size=n)
    return (
        naming_from_columns(["age", "dose", "none"], norm),
        X,
        np.clip(X @ BETA[:3] + BETA[3] + e, 0.0, 60.0),
    )


def estimated(
    naming: Naming, X: Any, y: np.ndarray, epsilon: float = 1.0, seed: int = 0
) -> Estimates:
    parts = np.array_split(np.arange(len(y)), 4)
    tables = [
        ({k: v[p] for k, v in X.items()} if isinstance(X, dict) else X[p], np.ones(len(p)))
        for p in parts
    ]
    rows = naming.rows_of_sites(tables).with_offset([DAYS.encode(y[p]) for p in parts])
    config = RunConfig(method="auto", trust="sum", epsilon=epsilon, delta=1e-5, seed=seed)
    loss = Weighted(HuberResidual(1.0)) if naming.long else HuberResidual(1.0)
    found: Estimates = simulate(
        config, rows, method=least_squares.slopes_from_naming(naming), loss=loss
    ).outcome
    return found


def exact_fit(naming: Naming, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return second moments and coefficients of weighted encoded rows, without noise."""
    A, t = naming.encode_rows(X), DAYS.encode(y)
    weight = 1.0 / np.maximum(1.0, np.linalg.norm(A, axis=1) * (1.0 + 1e-9)) ** 2
    S = (A.T * weight) @ A / len(A)
    return S, np.linalg.solve(S, (A.T * weight) @ t / len(A))


def listened(
    monkeypatch: pytest.MonkeyPatch, *given: Any
) -> tuple[Estimates, dict[str, tuple[Any, Any]]]:
    """Return an estimate, and every answer with its query, by the name of the release."""
    answers, script = {}, least_squares.Stepped.script

    def listening(self: least_squares.Stepped, facts: Any, replicates: int) -> Any:
        names, whole = iter(self.items), script(self, facts, replicates)
        what = next(whole)
        while True:
            answer = yield what
            answers[next(names).name] = answer, what
            try:
                what = whole.send(answer)
            except StopIteration as end:
                return end.value

    monkeypatch.setattr(least_squares.Stepped, "script", listening)
    return estimated(*given), answers


def in_frame(
    naming: Naming, X: np.ndarray, y: np.ndarray, A: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows in a frame, their weights there, and targets."""
    rows = naming.encode_rows(X)
    own = 1.0 / np.maximum(1.0, np.linalg.norm(rows, axis=1) * (1.0 + 1e-9)) ** 2
    U = rows @ A
    return U, own / np.maximum(1.0, own * np.sum(U**2, axis=1)), DAYS.encode(y)


def test_newton_step_of_least_squares_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the frame ``estimate - OLS`` is an average of ``M^-1 (E (t - OLS) - e)`` over the points
    t, also with long rows.
    """
    naming, X, y = drawn(5000, 0, spread=0.2, norm=1.6)
    found, answers = listened(monkeypatch, naming, X, y)
    U, weight, t = in_frame(naming, X, y, found.frame[0])
    assert 0.01 < np.mean(weight < 1.0) < 0.6
    exact, c = (U.T * weight) @ U / len(U), (U.T * weight) @ t / len(U)
    best = np.linalg.solve(exact, c)
    M = unflatten_symmetric(answers["second moments in the frame"][0].value, naming.d)[0]
    errors, spreads = [], []
    for name in ("first gradient", "second gradient", "last gradient"):
        g, what = answers[name]
        point = np.linalg.solve(found.frame[0], what.at[0])
        noise = what.h * g.value[0] - exact @ (point - best)
        errors.append(np.linalg.solve(M, (M - exact) @ (point - best) - noise))
        spreads.append(np.linalg.norm(noise) / (what.h * g.spread * math.sqrt(naming.d)))
    missed = np.linalg.solve(found.frame[0], found.estimate[0]) - best
    known = np.vstack([np.array(errors).T, 1e3 * np.ones(3)])
    share, *_ = np.linalg.lstsq(known, np.append(missed, 1e3), rcond=None)
    np.testing.assert_allclose(
        known[:-1] @ share, missed, atol=1e-9 * np.linalg.norm(missed) + 1e-9
    )
    assert np.all(share > 0.0) and share[2] > 0.6 and share.sum() == pytest.approx(1.0)
    assert np.linalg.norm(missed) > 1e-4
    assert np.mean(spreads) == pytest.approx(1.0, rel=0.5)


def test_covariance_without_noise_is_white_s() -> None:
    naming, X, y = drawn(3000, 1)
    found = least_squares.table_in_target_units(estimated(naming, X, y, math.inf), naming, DAYS)
    A = np.column_stack([X, np.ones(len(X))])
    weight = 1.0 / np.maximum(1.0, np.linalg.norm(naming.encode_rows(X), axis=1)) ** 2
    H = np.linalg.inv((A.T * weight) @ A)
    b = H @ (A.T * weight) @ y
    errors = np.sqrt(np.diag(H @ (A.T * (weight * (y - A @ b)) ** 2) @ A @ H))
    for line, mid, error in zip(found.lines, b, errors, strict=True):
        assert line.estimate == pytest.approx(mid, abs=1e-6) and line.noise_share == 0.0
        assert line.standard_error == pytest.approx(error, rel=1e-6)
        assert line.low == pytest.approx(mid - 1.959964 * error, rel=1e-5)


@lru_cache
def tables() -> list[tuple[Naming, Estimates]]:
    """Return tables of 100 data sets whose residual variance depends on a column."""
    made = [drawn(2000, seed) for seed in range(100)]
    return [
        (naming, estimated(naming, X, y, 1.0, seed)) for seed, (naming, X, y) in enumerate(made)
    ]


def coverage(change: Any = lambda found: found) -> float:
    """Return the coverage of all printed intervals of :func:`tables`."""
    inside = []
    for naming, found in tables():
        lines = least_squares.table_in_target_units(change(found), naming, DAYS).lines
        inside += [
            line.low <= b <= line.high
            for line, b in zip(lines, BETA, strict=True)
            if line.low is not None
        ]
    assert len(inside) > 380
    return float(np.mean(inside))


def known(found: Estimates, times: float = 1.0) -> Estimates:
    """Return estimates whose covariance is a multiple of that by sampling and noise, without the
    part for clipped residuals.
    """
    return dataclasses.replace(found, covariance=times * (found.sampling + found.noise))


def test_intervals_cover_where_the_spread_depends_on_a_column() -> None:
    """400 intervals: 95% within 4 standard errors of a share; two thirds and three halves of the
    width fail. Residuals are symmetric, so the part for clipped residuals is left out.
    """
    assert 0.906 < coverage(known) < 0.985
    assert 0.94 < coverage() < 1.0
    assert coverage(lambda found: known(found, 4 / 9)) < 0.9
    assert coverage(lambda found: known(found, 9 / 4)) > 0.985


def test_intervals_that_ignore_noise_do_not_cover() -> None:
    """The planted fault is a covariance by sampling alone."""

    def blind(found: Estimates) -> Estimates:
        return dataclasses.replace(found, covariance=found.sampling)

    assert coverage(blind) < 0.8


def test_possible_hidden_clipping_widens_all_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    naming, X, y = drawn(2000, 7)
    wide = estimated(naming, X, y)
    monkeypatch.setattr(least_squares, "_EXCESS", 0.0)
    more = wide.covariance[0] - estimated(naming, X, y).covariance[0]
    assert np.all(np.diagonal(more) > 1e-6)
    np.testing.assert_allclose(more, (wide.covariance - wide.noise - wide.sampling)[0], atol=1e-12)
    edges = least_squares.EDGES
    cells = np.zeros(len(edges) + 1)
    cells[-3:] = 0.01
    monkeypatch.setattr(least_squares, "_EXCESS", 0.25)
    assert least_squares.hidden_by_clipping(
        cells, 0.0, edges[-4] * math.sqrt(2.0)
    ) == pytest.approx(0.25 * 0.03)
    assert least_squares.hidden_by_clipping(
        0.0 * cells, 0.002, edges[-4] * math.sqrt(2.0)
    ) == pytest.approx(0.001)


def test_mean_row_of_tail_follows_squared_residuals() -> None:
    """Rows with the residual deviation ``exp(0.4 x)``: weights by squares shift the mean by .8, and
    the mean excess of a cubic tail by 1.2.
    """
    rng = np.random.default_rng(2)
    x = rng.normal(size=500_000)
    A = np.column_stack([x, np.full(len(x), 0.5)])
    J = (A.T * (np.exp(0.8 * x) * rng.normal(size=len(x)) ** 2)) @ A / len(A)
    M, constant = A.T @ A / len(A), np.array([[0.0, 1.0]])
    found = clipped_tails.tail_second_moments(M[None], J[None], np.zeros(1), constant)[0]
    np.testing.assert_allclose(found, np.outer([1.2, 0.5], [1.2, 0.5]), atol=0.05)
    even = clipped_tails.tail_second_moments(M[None], M[None], np.zeros(1), constant)[0]
    # then constants alone are moved
    np.testing.assert_allclose(even, np.outer([0.0, 0.5], [0.0, 0.5]), atol=0.01)


def test_unknown_tail_has_the_prior_of_one_row() -> None:
    M = np.array([[[1.0, 0.2], [0.2, 0.25]]])
    found = clipped_tails.tail_second_moments(M, 1e-3 * M, np.ones(1), np.array([[0.0, 1.0]]))[0]
    mean = M[0][:, 1] / 0.5
    np.testing.assert_allclose(found, M[0] + np.outer(mean, mean))


def skewed(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw targets with a tail to one side, longer where the first column is large: costs, or
    lengths of stay.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    tail = 1.2 * np.exp(0.5 * X[:, 0]) * (rng.lognormal(size=n) - math.exp(0.5))
    return X, np.clip(15.0 + 2.0 * X[:, 0] - X[:, 1] + tail, 0.0, 60.0)


def test_slopes_are_covered_where_a_clipped_tail_leans_with_a_column() -> None:
    """100 intervals of the first slope: 95% within 3 standard errors of a share; fewer without the
    part for clipped residuals.
    """
    naming = naming_from_columns(["age", "dose", "none"], 2.4)
    _, truth = exact_fit(naming, *skewed(400_000, 999))
    inside = {0.0: 0, 1.0: 0}  # by the share of the allowance
    for seed in range(100):
        found = estimated(naming, *skewed(5000, seed), 1.0, seed)
        allowed = found.covariance - found.noise - found.sampling
        for share in inside:
            error = math.sqrt((found.covariance - (1.0 - share) * allowed)[0, 0, 0])
            inside[share] += abs(found.estimate[0, 0] - truth[0]) <= 1.959964 * error
    assert 88 <= inside[1.0] <= 99
    assert inside[0.0] < 88


def test_separate_sites_allow_for_clipped_residuals_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """If sites release their own answers, the part for clipped residuals is that of the common
    steps.
    """
    naming = naming_from_columns(["age", "dose", "none"], 2.4)
    X, y = skewed(4000, 1)
    rows = naming.rows_of_sites(
        [(X[p], np.ones(len(p))) for p in np.array_split(np.arange(4000), 4)]
    )
    rows = rows.with_offset([DAYS.encode(part) for part in np.array_split(y, 4)])
    config = RunConfig(method="auto", trust="nobody", epsilon=3.0, delta=1e-5, seed=0)
    method = least_squares.slopes_from_naming(naming)

    def covariance() -> np.ndarray:
        return simulate(
            config, rows, method=method, loss=Weighted(HuberResidual(1.0))
        ).outcome.covariance[0]

    wide = covariance()
    with_allowance = least_squares.OfSites._choose_clipping

    def without(*given: Any) -> least_squares.Clipping:
        return with_allowance(*given)._replace(hidden=0.0)

    monkeypatch.setattr(least_squares.OfSites, "_choose_clipping", without)
    assert np.all(np.diagonal(wide - covariance()) > 1e-8)


def test_threshold_lies_beyond_visible_residuals() -> None:
    edges = least_squares.EDGES
    cells = np.zeros(len(edges) + 1)
    cells[:3] = 0.9, 0.08, 0.02
    assert clipped_tails.choose_clipping_width(cells, 0.001, edges) == pytest.approx(
        edges[2] * math.sqrt(2.0)
    )
    assert clipped_tails.choose_clipping_width(cells, 0.03, edges) == pytest.approx(
        edges[0] * math.sqrt(2.0)
    )
    assert (
        clipped_tails.choose_clipping_width(np.full(len(cells), 1.0 / len(cells)), 0.001, edges)
        == edges[-1]
    )


@pytest.mark.parametrize("h", [0.2, 0.354, 0.42, 0.5])
def test_mean_clipping_is_estimated_from_the_histogram(h: float) -> None:
    """Normal residuals of deviation 1/6; with noise in the histogram the estimate is never smaller."""
    edges, spread = least_squares.EDGES, 1.0 / 6.0
    beyond = 2.0 * stats.norm.sf(np.append(edges, np.inf) / spread)
    cells = np.append(1.0 - beyond[0], beyond[:-1] - beyond[1:])
    exact = 2.0 * (spread * stats.norm.pdf(h / spread) - h * stats.norm.sf(h / spread))
    told = clipped_tails.estimate_mean_clipping(cells, 0.0, edges, h)
    assert 0.9 * exact < told < 1.1 * exact
    assert clipped_tails.estimate_mean_clipping(cells, 1e-3, edges, h) > exact


def test_threshold_of_separate_sites_minimises_variance() -> None:
    """It is at most that of one site: smaller if noise costs more than clipping, and else the same."""
    edges, spread = least_squares.EDGES, 1.0 / 6.0
    beyond = 2.0 * stats.norm.sf(np.append(edges, np.inf) / spread)
    cells = np.append(1.0 - beyond[0], beyond[:-1] - beyond[1:])
    farthest = clipped_tails.choose_clipping_width(cells, 1e-4, edges)

    def chosen(noise: float) -> float:
        one = np.ones(1)
        costs = clipped_tails.Costs(
            sampling=1e-9 * one, noise=noise * one, clipped=one, weights=one
        )
        return clipped_tails.choose_cheapest_width(cells, 1e-4, edges, costs)

    assert chosen(1e-12) == pytest.approx(farthest)
    assert edges[0] < chosen(1e-3) < chosen(1e-6) < farthest


def test_moments_of_slopes_are_shrunk_by_the_share_of_noise() -> None:
    """Without noise they stay; noise of their own size leaves the multiple of H; clear differences
    stay.
    """
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4))
    H = (root @ root.T)[None]
    J = 0.3 * H + np.diag([2.0, 0.0, 0.0, 0.0])
    exact, _ = drawn_to_multiple(J, np.zeros(1), H, OF_RESIDUALS)
    np.testing.assert_array_equal(exact, J)
    clear, _ = drawn_to_multiple(J, np.full(1, 0.05), H, OF_RESIDUALS)
    np.testing.assert_allclose(clear, J, atol=0.01)
    errors = []
    for _ in range(200):
        E = rng.normal(size=(4, 4))
        E = 30.0 * (E + E.T) / 2.0
        drawn, noise = drawn_to_multiple(0.3 * H + E, np.full(1, 30.0), H, OF_RESIDUALS)
        errors.append([np.linalg.norm(drawn - 0.3 * H), np.linalg.norm(E)])
        assert noise[0] < 30.0
    drawn_error, own_error = np.sqrt(np.mean(np.square(errors), axis=0))
    assert drawn_error < 0.8 * own_error


def test_the_sampling_variance_does_not_follow_the_noise() -> None:
    """1,000 rows of equal residual variance at epsilon 1: the released J has a relative error of
    2.2 (root mean square), and after shrinkage 1.9: variances along a direction that are four times
    the mean are not shrunk away.
    """
    ratios = []
    for seed in range(6):
        naming, X, y = drawn(1000, seed, spread=0.0)
        known, exact = estimated(naming, X, y, 1.0, seed), estimated(naming, X, y, math.inf, seed)
        ratios.append(np.diagonal(known.sampling[0]) / np.diagonal(exact.sampling[0]))
    assert np.sqrt(np.mean(np.square(np.array(ratios) - 1.0))) < 2.0


def test_the_tail_of_a_skewed_target_is_not_clipped() -> None:
    """Lengths of stay with a long tail: the constant is that of least squares, which early clipping
    would miss.
    """
    rng, n = np.random.default_rng(3), 20_000
    X = rng.normal(size=(n, 3))
    y = np.clip(
        8.0 + X @ BETA[:3] / 3 + 2.5 * (rng.lognormal(0.0, 0.8, n) - math.exp(0.32)), 0.0, 60.0
    )
    naming = naming_from_columns(["age", "dose", "none"], 2.4)
    found = estimated(naming, X, y, 3.0)
    _, best = exact_fit(naming, X, y)
    errors = np.sqrt(np.diagonal(found.covariance[0]))
    assert np.all(abs(found.estimate[0] - best) < 4 * errors)


def test_a_rare_level_counts_as_the_reference() -> None:
    schema = Schema.from_dict(
        {"name": "wards", "columns": {"ward": {"kind": "category", "values": ["a", "b", "rare"]}}}
    )
    rng, n = np.random.default_rng(0), 4000
    ward = rng.choice(np.array(["a", "b", "rare"], dtype=object), p=[0.6, 0.399, 0.001], size=n)
    y = np.clip(20.0 + 6.0 * (ward == "b") + 3.0 * rng.normal(size=n), 0.0, 60.0)
    naming = naming_from_schema(schema)
    lines = least_squares.table_in_target_units(
        estimated(naming, {"ward": ward}, y, 3.0), naming, DAYS, 1e-5
    ).lines
    assert (
        lines[0].low < 6.0 < lines[0].high
        and "merged" in str(lines[1].refused)
        and lines[2].refused is None
    )


def related(n: int, seed: int, r: float = 0.99) -> tuple[Naming, np.ndarray, np.ndarray]:
    """Draw columns of which the first two have the correlation r."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    X[:, 1] = r * X[:, 0] + math.sqrt(1.0 - r**2) * X[:, 1]
    y = X @ BETA[:3] + BETA[3] + 5.0 * rng.normal(size=n)
    return naming_from_columns(["age", "dose", "none"], 2.4), X, np.clip(y, 0.0, 60.0)


def test_nearly_collinear_columns_have_about_the_width_of_least_squares() -> None:
    """80 intervals at 95%: fewer than 68 that cover has a probability of 1 in 3,000."""
    inside, widths = [], []
    for seed in range(20):
        naming, X, y = related(20_000, seed)
        lines = least_squares.table_in_target_units(
            estimated(naming, X, y, 3.0, seed), naming, DAYS, 1e-5
        ).lines
        assert [line.refused for line in lines] == [None] * 4
        inside += [line.low <= b <= line.high for line, b in zip(lines, BETA, strict=True)]
        A = np.column_stack([X, np.ones(len(X))])
        errors = 5.0 * np.sqrt(np.diag(np.linalg.inv(A.T @ A)))
        widths += [line.standard_error / error for line, error in zip(lines, errors, strict=True)]
    assert sum(inside) >= 68 and 1.0 < np.median(widths) < 1.5


def test_bounds_that_are_forty_times_too_wide_cost_little() -> None:
    naming, X, y = drawn(20_000, 4)
    parts = np.array_split(np.arange(len(y)), 4)
    errors = []
    for bounds in (DAYS, BoundedNumber(0.0, 2400.0)):
        rows = naming.rows_of_sites([(X[p], np.ones(len(p))) for p in parts]).with_offset(
            [bounds.encode(y[p]) for p in parts]
        )
        config = RunConfig(method="auto", trust="sum", epsilon=3.0, delta=1e-5, seed=4)
        method = least_squares.slopes_from_naming(naming)
        found = simulate(config, rows, method=method, loss=Weighted(HuberResidual(1.0))).outcome
        errors.append(
            [
                line.standard_error
                for line in least_squares.table_in_target_units(found, naming, bounds).lines
            ]
        )
    assert np.all(np.array(errors[1]) < 1.5 * np.array(errors[0]))


def test_share_of_targets_at_bounds_is_reported_if_clear() -> None:
    naming, X, y = drawn(8000, 5)
    clipped = np.where(np.arange(8000) % 10 == 0, 60.0, y)
    for targets, share in ((y, np.mean(y <= 0.0)), (clipped, 0.1)):
        shown = least_squares.table_in_target_units(
            estimated(naming, X, targets, 3.0), naming, DAYS
        )
        told = shown.at_bounds
        assert told["low"] <= share <= told["high"] and told["high"] - told["low"] < 0.05
        assert told["clear"] == (share > 0.05) == ("declared bounds" in str(shown))
        assert (
            shown.to_plain_data()["at_bounds"]
            == told
            == least_squares.Coefficients.from_plain_data(shown.to_plain_data()).at_bounds
        )
    assert told["at_upper"] == pytest.approx(0.1, abs=0.02) and told["at_lower"] < 0.02


def test_intervals_of_share_at_bounds_cover() -> None:
    """2,000 draws: 95% within 4 standard errors of a share; leaving out either part of the variance
    fails.
    """
    rng, rows, spread = np.random.default_rng(0), 2000, 0.005

    def covers(told: float) -> float:
        true = np.array([0.05, 0.10])
        seen = rng.multinomial(rows, [*true, 0.85], size=2000)[:, :2] / rows + spread * rng.normal(
            size=(2000, 2)
        )
        found = [estimate_targets_at_bounds(one, told, rows) for one in seen]
        return float(np.mean([one["low"] <= true.sum() <= one["high"] for one in found]))

    assert 0.93 < covers(spread) < 0.97
    assert covers(0.0) < 0.92


class TestRegressor:
    def test_coefficients_have_intervals_in_the_targets_unit(self) -> None:
        _, X, y = drawn(8000, 5)
        model = ConsensusRegressor(
            (0, 60), data_norm=2.4, trust="sum", random_state=0, inference=True
        ).fit(X, y)
        lines = model.coefficients_.to_dict()
        for line, truth in zip(lines, BETA, strict=True):
            assert (
                abs(line["estimate"] - truth) < 4 * line["standard_error"]
                and 0.1 < line["noise_share"] < 1.0
            )
            assert "odds_ratio" not in line
        assert model.coef_[0] == lines[0]["estimate"] and model.intercept_ == lines[3]["estimate"]
        assert (
            model.privacy_spent_["epsilon"] <= 1.0
            and "95% interval" in str(model)
            and "odds" not in str(model)
        )
        assert "95% interval" in model.page()
        again = model.set_params(inference=False).fit(X, y)
        assert set(again.coefficients_) == {"name", "coefficient"}

    @pytest.mark.filterwarnings("ignore:the model gives almost the same number")
    def test_noisy_table_is_refused_with_requirements(self) -> None:
        _, X, y = drawn(2000, 5)
        model = ConsensusRegressor(
            (0, 60), data_norm=2.4, epsilon=0.05, random_state=0, inference=True
        ).fit(X, y)
        assert all(line.refused for line in model.coefficients_.lines)
        assert model.coefficients_.needs["epsilon"] > 0.05
        needs = re.search(r"epsilon ([\d.]+) or ([\d,]+) rows", str(model.coefficients_))
        assert needs is not None and float(needs[1]) > 0.05
        assert "odds" not in str(model.coefficients_) and np.all(np.isfinite(model.predict(X)))

    @pytest.mark.parametrize("knobs", [{"loss": "log-cosh:0.25"}, {"fit_intercept": False}])
    def test_options_without_intervals_are_refused(self, knobs: dict[str, Any]) -> None:
        _, X, y = drawn(50, 5)
        model = ConsensusRegressor((0, 60), random_state=0, inference=True, **knobs)
        with pytest.raises(InvalidInput, match="fit_intercept=True"):
            model.fit(X, y)
        weighed = ConsensusRegressor(
            (0, 60), random_state=0, inference=True, knobs={"max_weight": 1.0}
        )
        with pytest.raises(InvalidInput, match="equal weight"):
            weighed.fit(X, y, sample_weight=np.ones(50))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", [36, 160])
def test_results_stay_finite_if_noise_hides_all_second_moments(seed: int) -> None:
    """Heavy tails, sites of 80 rows, epsilon .3: in these two draws noise hides the second moments
    of all columns.
    """
    rng = np.random.default_rng([seed, 400, 30, 61])
    X = rng.standard_t(3, size=(400, 4)) / np.sqrt(3.0)
    rng.random(400)
    y = np.clip(25.0 + 3.0 * X[:, 0] + 5.0 * rng.standard_t(2, size=400), 0.0, 60.0)
    naming, task = naming_from_columns([f"x{j}" for j in range(4)], 2.5), BoundedNumber(0.0, 60.0)
    parts = np.array_split(np.arange(400), 5)
    rows = naming.rows_of_sites([(X[p], np.ones(len(p))) for p in parts]).with_offset(
        [task.encode(y[p]) for p in parts]
    )
    config = RunConfig(method="auto", trust="nobody", epsilon=0.3, delta=1e-5, seed=seed)
    recipe = least_squares.slopes_from_naming(naming)
    found = simulate(config, rows, method=recipe, loss=Weighted(HuberResidual(1.0))).outcome
    assert np.all(np.isfinite(found.estimate)) and np.all(np.isfinite(found.covariance))
    lines = least_squares.table_in_target_units(found, naming, task, 1e-5).lines
    assert all(line.refused is not None for line in lines)
