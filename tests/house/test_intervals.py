"""The benchmarks of intervals compute what their tables say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit

ACCURACY = Path(__file__).parents[2] / "bench" / "accuracy"


@pytest.fixture(autouse=True)
def _bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ACCURACY))


def test_the_floor_is_what_noise_in_one_gradient_moves() -> None:
    """The minimiser moves with noise in the mean gradient as `per_noise` says, and `exact` is
    where it vanishes.
    """
    import intervals

    drawn = intervals.hospitals(4000, np.random.default_rng(0))
    naming, parts = drawn.naming, drawn.parts
    one = intervals.fitted(naming, parts)
    E = np.concatenate([naming.encode_rows(columns) for columns, _ in parts])
    y = np.concatenate([labels for _, labels in parts])
    w = np.linalg.solve(naming.into_units, one.exact)
    p = expit(E @ w)
    np.testing.assert_allclose(E.T @ (p - (y > 0)) / len(y), 0.0, atol=1e-8)
    H = (E.T * (p * (1.0 - p))) @ E / len(y)
    noise = np.random.default_rng(1).normal(size=(40_000, len(w)))
    moved = np.linalg.solve(H, noise.T).T @ naming.into_units.T
    np.testing.assert_allclose(one.per_noise, moved.std(axis=0), rtol=0.03)
    ratio = intervals.hidden(one, "nobody", 1.0) / intervals.hidden(one, "curator", 1.0)
    np.testing.assert_allclose(ratio, np.sqrt(intervals.SITES))


def test_the_best_model_of_wrong_chances_is_a_fixed_point() -> None:
    """Of chances that a logistic model has, it is that model; of probit ones, slopes are longer
    by one factor.
    """
    import coverage

    truth = np.array([0.6, -0.4, 0.0, 0.3, -0.2, -0.8])
    found = coverage.best(logistic)
    np.testing.assert_allclose(found, truth, atol=1e-9)
    probit = coverage.best(coverage.probit)
    np.testing.assert_allclose(probit[[0, 1, 3, 4]] / truth[[0, 1, 3, 4]], 1.725, atol=0.01)


def logistic(X: np.ndarray) -> np.ndarray:
    return np.asarray(expit(X @ (0.6, -0.4, 0.0, 0.3, -0.2) - 0.8))


def test_a_truth_of_rows_is_where_half_of_the_draws_are_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import forecasts

    monkeypatch.setattr(
        forecasts,
        "tables",
        lambda draw, n, epsilon, draws: [n * k >= 6000 for k in range(1, draws + 1)],
    )
    draws = 4  # whole from 6,000, 3,000, 2,000 and 1,500 rows on
    found = forecasts.truth(lambda n, seed: None, 1.0, draws, bool)
    assert found is not None and found / 2**0.25 < 2000 <= found * 1.001
