"""Correction of a site's own constant for clipped residuals."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad

from sottovoce.answers import least_squares
from sottovoce.answers.clipped_sites import ClippedStep, estimate_shortfall
from sottovoce.answers.terms import naming_from_columns
from sottovoce.problem.losses import HuberResidual
from sottovoce.problem.task import BoundedNumber
from sottovoce.problem.weighted_loss import Weighted
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import simulate


def step(
    seen: float, error: float, h: float, *, start: float = 0.0, share: float = 1.0
) -> ClippedStep:
    return ClippedStep(np.array([seen]), np.array([error]), np.array([start]), h, np.array([share]))


def test_shortfall_is_zero_well_within_the_threshold() -> None:
    found = estimate_shortfall([step(0.1, 0.02, 0.5)], farthest=2.0)
    assert found.mean[0] == pytest.approx(0.0, abs=1e-12)
    assert found.variance[0] == pytest.approx(0.0, abs=1e-12)


def test_shortfall_after_one_clipped_step_is_spread_over_all_distances() -> None:
    found = estimate_shortfall([step(0.5, 0.02, 0.5)], farthest=2.0)
    assert found.mean[0] == pytest.approx(0.75, abs=0.02)  # even between 0 and 1.5
    assert found.variance[0] == pytest.approx(1.5**2 / 12.0, rel=0.05)


@pytest.mark.parametrize("seen", [-1.2, -0.3, 0.4, 1.0])
def test_shortfall_is_the_posterior_mean_over_distances(seen: float) -> None:
    """Against numerical integration; the last gradient is clipped, and an earlier one with larger
    noise is not.
    """
    h, share, start = 0.4, 0.8, 0.1
    steps = [
        step(seen, 0.3, 2.0, start=start, share=1.0 - share),
        step(float(np.clip(seen, -h, h)), 0.1, h, share=share),
    ]

    def lost(x: float) -> float:
        early, last = x + start, x
        return (1.0 - share) * (early - np.clip(early, -2.0, 2.0)) + share * (
            last - np.clip(last, -h, h)
        )

    def likelihood(x: float) -> float:
        early = (seen - np.clip(x + start, -2.0, 2.0)) / 0.3
        last = (np.clip(seen, -h, h) - np.clip(x, -h, h)) / 0.1
        return float(np.exp(-0.5 * (early**2 + last**2)))

    def mean_of(power: int) -> float:
        breaks = [-2.0, -h, h, 2.0]
        parts = [
            quad(lambda x: likelihood(x) * lost(x) ** power, a, b)[0] for a, b in pairwise(breaks)
        ]
        return float(np.sum(parts))

    total = mean_of(0)
    mean = mean_of(1) / total
    found = estimate_shortfall(steps, farthest=2.0)
    assert found.mean[0] == pytest.approx(mean, abs=2e-3)
    assert found.variance[0] == pytest.approx(mean_of(2) / total - mean**2, abs=2e-3)


def test_interval_covers_constant_of_distant_small_site() -> None:
    """Forty rows, 30 residual ranges away: all their residuals are clipped to one side when the
    last gradient is asked. Of 60 tables with right intervals 95% cover; fewer than 50 has a chance
    of 1e-4. Without the correction a third cover.
    """
    n, sites, draws = 2000, 6, 60
    rng = np.random.default_rng(5)
    parts = [np.arange(40), *np.array_split(np.arange(40, n), sites - 1)]
    X = rng.normal(size=(n, 2))
    constants = np.repeat([45.0, *[15.0] * (sites - 1)], [len(part) for part in parts])
    y = constants + X @ (1.5, -1.0) + 3.0 * rng.normal(size=n)
    task = BoundedNumber(0.0, 60.0)
    naming = naming_from_columns(
        ["a", "b"], 1.35 * np.sqrt(2.0), [f"site {i}" for i in range(sites)]
    )
    rows = naming.rows_of_sites([(X[part], np.ones(len(part))) for part in parts])
    rows = rows.with_offset([task.encode(np.clip(y[part], 0.0, 60.0)) for part in parts])
    loss = Weighted(HuberResidual(1.0))
    held = []
    for seed in range(draws):
        config = RunConfig(method="auto", trust="nobody", epsilon=3.0, delta=1e-5, seed=seed)
        found = simulate(
            config, rows, method=least_squares.slopes_from_naming(naming), loss=loss
        ).outcome
        own = least_squares.table_in_target_units(found, naming, task, 1e-5).lines[2]
        if own.low is not None and own.high is not None:
            held.append(own.low <= 45.0 <= own.high)
    assert len(held) >= 50
    assert np.sum(held) >= len(held) - 10
