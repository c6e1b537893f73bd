"""Private evaluation of two classes: exact without noise, intervals that cover, refusals, and
printed results.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from sottovoce.answers import evaluation as ev
from sottovoce.answers import metrics
from sottovoce.answers.evaluation import Held
from sottovoce.answers.judging import Scored, judge_for_task
from sottovoce.answers.training import evaluate_report, infer
from sottovoce.data.schema import Schema
from sottovoce.errors import InvalidInput
from sottovoce.problem.task import TwoClasses
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate
from sottovoce.runs.training import TrainConfig, train


def config(**more: Any) -> RunConfig:
    return RunConfig.from_dict(
        {"method": "auto", "epsilon": 0.5, "delta": 1e-5, "trust": "sum", "seed": 0} | more
    )


def drawn(n: int, rng: np.random.Generator, slope: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    logits = 1.3 * rng.normal(size=n) - 1.0
    return slope * (logits + 1.0) - 1.0, np.where(rng.random(n) < expit(logits), 1.0, -1.0)


def asked(
    scores: np.ndarray, y: np.ndarray, of: RunConfig, **more: Any
) -> list[dict[str, metrics.Quality]]:
    X = np.column_stack([scores, *more.pop("columns", [])])
    levels = more.get("levels", ())
    rows = ev.build_scored_rows([(X[p], y[p]) for p in np.array_split(np.arange(len(y)), 4)])
    weights, threshold = np.eye(X.shape[1])[0], more.get("threshold", 0.5)
    method = ev.Histogram(
        judged=b"model",
        weights=weights,
        threshold=threshold,
        groups=ev.subgroup_masks(levels, rows.d),
    )
    return ev.qualities(simulate(of, rows, method=method, loss=ev.LOSS).outcome, **more)


def test_without_noise_everything_is_near_the_exact_numbers() -> None:
    scores, y = drawn(20_000, np.random.default_rng(0))
    y[:7] = 0.0
    found, want = asked(scores, y, config(epsilon=float("inf")))[0][""], ev.exact_metrics(scores, y)
    assert abs(float(found.auc.value or 0) - want["auc"]) < 0.002
    assert abs(float(found.brier.value or 0) - want["brier"]) < 0.002
    assert float(found.rates["accuracy"].value or 0) == pytest.approx(want["accuracy"], abs=5e-4)
    assert found.confusion["true_positive"] == pytest.approx(np.sum((scores >= 0) & (y > 0)))
    assert 0.9 < found.slope < 1.1 and len(found.calibration) == metrics.CELLS
    first, *inner, last = found.calibration
    assert all(cell["low"] - 0.02 <= cell["predicted"] <= cell["high"] + 0.02 for cell in inner)
    assert first["predicted"] is last["predicted"] is first["above"] is last["below"] is None
    assert first["below"] == inner[0]["above"] and last["above"] == inner[-1]["below"]


def test_threshold_lies_on_a_cell_edge() -> None:
    scores, y = drawn(20_000, np.random.default_rng(1))
    for threshold in (0.2, 0.35, 0.7):
        found = asked(scores, y, config(epsilon=float("inf")), threshold=threshold)[0][""]
        chosen = expit(scores) >= threshold
        assert found.confusion["false_positive"] == pytest.approx(np.sum(chosen & (y < 0)))
        assert float(found.rates["sensitivity"].value or 0) == pytest.approx(np.mean(chosen[y > 0]))
    with pytest.raises(InvalidInput, match="threshold"):
        asked(scores, y, config(), threshold=1.0)


@pytest.mark.parametrize("slope", [1.0, 2.0, 0.5])
def test_auc_interval_covers(slope: float) -> None:
    """New rows every time; fails with probability 10^-4 if coverage is 91% or more, and with 99% if
    intervals have half of their width, so that 67% of them cover.
    """
    rng, inside, runs = np.random.default_rng(2), 0, 100
    truth = ev.exact_metrics(*drawn(400_000, rng, slope))["auc"]
    for seed in range(runs):
        auc = asked(*drawn(4000, rng, slope), config(seed=seed))[0][""].auc
        inside += float(auc.low or 0) <= truth <= float(auc.high or 0)
    assert stats.binom.cdf(inside, runs, 0.91) > 1e-4


@pytest.mark.parametrize(
    ("spread", "slope", "of", "n"),
    [
        (1.3, -1.0, {}, 8000),
        (0.1, -12.0, {"epsilon": 1.0}, 8000),
        (0.1, -12.0, {"epsilon": float("inf")}, 2000),
    ],
)
def test_auc_interval_covers_for_a_reversed_model(
    spread: float, slope: float, of: dict[str, Any], n: int
) -> None:
    """The true slope is negative; fails with probability 10^-4 if coverage is 90% or more."""

    def made(n: int) -> tuple[np.ndarray, np.ndarray]:
        scores = -0.6 + spread * rng.normal(size=n)
        return scores, np.where(rng.random(n) < expit(slope * (scores + 0.6) - 0.6), 1.0, -1.0)

    rng, inside, runs = np.random.default_rng(8), 0, 60
    truth = ev.exact_metrics(*made(400_000))["auc"]
    for seed in range(runs):
        found = asked(*made(n), config(seed=seed, **of))[0][""]
        inside += float(found.auc.low or 0) <= truth <= float(found.auc.high or 0)
    assert truth < 0.3 and stats.binom.cdf(inside, runs, 0.9) > 1e-4
    # refused where all rows are in one or two cells
    assert found.slope is None or found.slope < 0.0


def test_auc_interval_is_wide_if_calibration_is_uncertain() -> None:
    """All scores are in one cell, which shows no order: neither the right nor the reversed order is
    excluded.
    """
    rng = np.random.default_rng(9)
    scores = rng.choice([-0.95, -0.75, -0.55], 8000)
    y = np.where(
        rng.random(8000) < np.where(scores < -0.9, 0.05, np.where(scores < -0.6, 0.3, 0.7)),
        1.0,
        -1.0,
    )
    auc = asked(scores, y, config(epsilon=float("inf")))[0][""].auc
    truth = ev.exact_metrics(scores, y)["auc"]
    assert float(auc.low or 0) <= min(truth, 1.0 - truth) and float(auc.high or 0) >= truth > 0.8


@pytest.mark.parametrize("epsilon", [float("inf"), 1.0])
def test_accuracy_interval_covers_for_threshold_beyond_all_cells(
    epsilon: float,
) -> None:
    """Rare events and good scores, threshold one half: rows of the open cell are mostly classified
    rightly on both sides of it.
    """
    rng = np.random.default_rng(10)
    y = np.where(rng.random(8000) < 0.04, 1.0, -1.0)
    scores = np.where(y > 0, rng.normal(3.0, 1.0, 8000), rng.normal(-4.0, 1.5, 8000))
    for one in asked(scores, y, config(epsilon=epsilon, replicates=20 if epsilon < 9 else 1)):
        accuracy, precision = one[""].rates["accuracy"], one[""].rates["precision"]
        assert (
            float(accuracy.low or 0)
            <= ev.exact_metrics(scores, y)["accuracy"]
            <= float(accuracy.high or 0)
        )
        assert precision.refused


@cache
def replicated() -> tuple[np.ndarray, np.ndarray, list[dict[str, metrics.Quality]]]:
    """Return scores and labels, and their evaluation with 200 draws of the noise."""
    scores, y = drawn(3000, np.random.default_rng(9))
    return scores, y, asked(scores, y, config(replicates=200, epsilon=1.0))


def test_the_noise_on_a_count_is_the_stated_one() -> None:
    """A chi-squared test of 200 replicates at one in 10^4; two thirds and three halves of the
    stated deviation fail.
    """
    _, y, found = replicated()
    share = np.array([float(one[""].positives.value or 0) for one in found]) * 3000
    noise = found[0][""].noise * np.sqrt(metrics.CELLS)
    squares = float(np.sum((share - np.sum(y > 0)) ** 2)) / noise**2
    assert 1e-4 < stats.chi2.sf(squares, 200) < 1 - 1e-4
    assert (
        stats.chi2.sf(2.25 * squares, 200) < 1e-4 and stats.chi2.sf(squares / 2.25, 200) > 1 - 1e-4
    )


def test_clipped_counts_would_bias_the_auc() -> None:
    scores, y = drawn(3000, np.random.default_rng(4))
    found = asked(scores, y, config(replicates=200, epsilon=0.3))
    want, mine = (
        ev.exact_metrics(scores, y)["auc"],
        np.mean([float(one[""].auc.value or 0) for one in found]),
    )
    rng, edges = (
        np.random.default_rng(0),
        -1.0 + metrics.WIDTH * (np.arange(1, metrics.CELLS) - metrics.CELLS / 2),
    )
    cells = np.searchsorted(edges, scores, side="right")
    counts = np.stack([np.bincount(cells[y == k], minlength=metrics.CELLS) for k in (-1, 1)])
    clamped = []
    for _ in range(200):
        c0, c1 = np.maximum(counts + found[0][""].noise * rng.normal(size=counts.shape), 0.0)
        clamped.append(c1 @ (np.cumsum(c0) - 0.5 * c0) / (c0.sum() * c1.sum()))
    assert abs(mine - want) < 0.4 * abs(np.mean(clamped) - want)


def test_too_few_events_are_refused() -> None:
    scores, y = drawn(200, np.random.default_rng(5))
    auc = asked(scores, y, config(epsilon=0.2))[0][""].auc
    assert auc.value is None and str(auc.refused).startswith("too few rows")


def test_subgroups_are_counted_separately() -> None:
    rng = np.random.default_rng(6)
    scores, y = drawn(30_000, rng)
    women = (rng.random(30_000) < 0.4).astype(float)
    y = np.where((women > 0) & (rng.random(30_000) < 0.3), 1.0, y)
    levels = (ev.Level("women", 1), ev.Level("others", None))
    found = asked(scores, y, config(epsilon=float("inf")), columns=[women], levels=levels)[0]
    for name, mine in (("women", women > 0), ("others", women == 0)):
        assert found[name].rows == pytest.approx(mine.sum())
        assert float(found[name].auc.value or 0) == pytest.approx(
            ev.exact_metrics(scores[mine], y[mine])["auc"], abs=0.01
        )
    assert found[""].rows == 30_000


def test_projection_on_simplex_is_the_nearest_point() -> None:
    rng = np.random.default_rng(7)
    raw = 30.0 * rng.normal(size=24)
    found = metrics.project_on_simplex(raw, 50.0)
    assert found.min() >= 0.0 and found.sum() == pytest.approx(50.0)
    for _ in range(200):
        other = rng.dirichlet(np.ones(24)) * 50.0
        assert np.sum((found - raw) ** 2) <= np.sum((other - raw) ** 2)


def test_an_encoding_that_was_computed_from_rows_is_said() -> None:
    """Such an encoding is covered by no epsilon, for held-out rows too: the statement says so."""
    scores, y = drawn(800, np.random.default_rng(8))
    run, held = config(trust="nobody"), Held(1.0)
    declared = Schema.from_dict({"columns": {"age": {"kind": "number", "lo": 0.0, "hi": 1.0}}})
    for read in (True, False):
        schema = replace(declared, data_dependent=read)
        judge = judge_for_task(TwoClasses(), held, schema)
        found = judge.run_evaluation(
            Scored(scores, b"model", y, np.zeros((800, 2))), run, caveat=schema.caveat
        )
        assert found.statement.caveat == schema.caveat and (schema.caveat is not None) == read


def test_accuracy_has_the_noise_of_all_summed_counts() -> None:
    """The number of rows is public, so no noise cancels. A chi-squared test of 200 replicates at
    one in 10^4; two thirds and three halves of the stated deviation fail.
    """
    scores, y, every = replicated()
    found = [one[""].rates["accuracy"] for one in every]
    value, low, high = np.array([(x.value, x.low, x.high) for x in found], dtype=float).T
    told = np.mean(((high - low) / 2.0 / stats.norm.isf(0.025)) ** 2 - value * (1.0 - value) / 3000)
    squares = float(np.sum((value - ev.exact_metrics(scores, y)["accuracy"]) ** 2)) / told
    assert 1e-4 < stats.chi2.sf(squares, 200) < 1 - 1e-4
    assert (
        stats.chi2.sf(2.25 * squares, 200) < 1e-4 and stats.chi2.sf(squares / 2.25, 200) > 1 - 1e-4
    )


def two_levels(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw scores of a model with one binary column."""
    scores = np.where(rng.random(n) < 0.4, 0.1, -1.2)
    return scores, np.where(rng.random(n) < expit(scores), 1.0, -1.0)


def four_levels(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    scores = rng.choice([-2.0, -1.1, -0.4, 0.6], p=[0.4, 0.3, 0.2, 0.1], size=n)
    return scores, np.where(rng.random(n) < expit(scores), 1.0, -1.0)


def step(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw labels whose probability is a step function of the score."""
    scores = 1.3 * rng.normal(size=n) - 1.0
    return scores, np.where(rng.random(n) < np.where(scores > 0.7, 0.8, 0.12), 1.0, -1.0)


def far_off(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw scores that are right except for their constant: nearly all rows are in an open cell."""
    scores = 1.5 * rng.normal(size=n) + 5.0
    return scores, np.where(rng.random(n) < expit(scores - 5.0), 1.0, -1.0)


def shrunk(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw scores that are a tenth of the right ones: all rows are in two cells."""
    scores = 0.1 * rng.normal(size=n)
    return scores, np.where(rng.random(n) < expit(10.0 * scores), 1.0, -1.0)


AREA, BRIER, BOTH = ("auc",), ("brier",), ("auc", "brier")
LAWS = {two_levels: AREA, four_levels: AREA, step: BOTH, far_off: BRIER, shrunk: BRIER}


@pytest.mark.parametrize("epsilon", [0.5, float("inf")])
@pytest.mark.parametrize("law", LAWS)
def test_intervals_cover_where_scores_tie_chances_jump_or_nothing_is_calibrated(
    law: Any, epsilon: float
) -> None:
    """New rows every time; for each metric fails with probability 10^-4 if coverage is 93% or more,
    and with 99% if intervals have half of their width, so that 67% of them cover.
    """
    rng, runs = np.random.default_rng(10), 80
    truth, inside = ev.exact_metrics(*law(400_000, rng)), dict.fromkeys(LAWS[law], 0)
    for seed in range(runs):
        quality = asked(*law(8000, rng), config(seed=seed, epsilon=epsilon))[0][""]
        for metric in inside:
            found = getattr(quality, metric)
            inside[metric] += float(found.low or 0) <= truth[metric] <= float(found.high or 0)
    for metric, covered in inside.items():
        assert stats.binom.cdf(covered, runs, 0.93) > 1e-4, metric


def test_auc_interval_is_wider_with_unknown_ties() -> None:
    """Without noise and with many rows it reaches from all ties to three times the slope; the
    estimate takes scores to be uniform.
    """
    scores, y = drawn(400_000, np.random.default_rng(11))
    auc, want = (
        asked(scores, y, config(epsilon=float("inf")))[0][""].auc,
        ev.exact_metrics(scores, y)["auc"],
    )
    assert float(auc.value or 0) == pytest.approx(want, abs=0.001)
    assert (
        0.002 < want - float(auc.low or 0) < 0.007 and 0.004 < float(auc.high or 0) - want < 0.012
    )


def test_threshold_beyond_all_cells_counts_the_open_cell_both_ways() -> None:
    """Few positives, no score above one half: all rows are called negative, and the interval allows
    for the other case.
    """
    rng = np.random.default_rng(12)
    scores = np.minimum(1.2 * rng.normal(size=20_000) - 4.0, -0.3)
    y = np.where(rng.random(20_000) < expit(scores), 1.0, -1.0)
    found, want = asked(scores, y, config(epsilon=float("inf")))[0][""], ev.exact_metrics(scores, y)
    assert found.rates["accuracy"].value == pytest.approx(want["accuracy"])
    assert found.confusion["true_positive"] == found.confusion["false_positive"] == 0.0
    sensitivity = found.rates["sensitivity"]
    assert (
        sensitivity.value == 0.0
        and float(sensitivity.high or 0) > 0.02
        and found.rates["precision"].refused
    )
    mirrored = asked(-scores, -y, config(epsilon=float("inf")))[0][""]
    assert mirrored.rates["accuracy"].value == pytest.approx(want["accuracy"])
    assert mirrored.confusion["true_negative"] == mirrored.confusion["false_negative"] == 0.0


TABLE = "synthetic:n=3000,d=4,seed=1"


def test_model_trained_without_noise_is_evaluated_with_noise() -> None:
    """The training has no finite epsilon; the releases on held-out rows have one."""
    exact = RunConfig(method="admm", epsilon=float("inf"), delta=1e-5, rounds=2)
    found = evaluate_report(train(TrainConfig(exact, TABLE)), Held(1.0))
    assert 0.99 < found.statement.epsilon <= 1.0 and found.quality[""].auc.value is not None


def test_noise_option_is_refused_by_inference() -> None:
    with pytest.raises(InvalidInput, match="noise"):
        infer(TrainConfig(config(noise=0.5), TABLE))
