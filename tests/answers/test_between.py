"""Random effects of sites: intervals cover, with a covariance that has a common part, and a wrong
model fails.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sottovoce.answers.between import estimate_random_effects

K, MEAN, SETS = 8, -1.5, 1000
# variance that all sites' estimates have in common, as that of a column's effect at its mean
COMMON = 0.05
V = np.diag(np.linspace(0.02, 0.1, K)) + COMMON


def drawn(sd: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw effects of sites and of one more site, and estimates of the former."""
    rng = np.random.default_rng(seed)
    effects = MEAN + sd * rng.normal(size=(SETS, K + 1))
    noise = rng.multivariate_normal(np.zeros(K), V, size=SETS)
    return effects[:, :K], effects[:, K], effects[:, :K] + noise


@pytest.mark.parametrize("sd", [0.0, 0.3, 1.0])
def test_intervals_cover_without_excess_width(sd: float) -> None:
    """1,000 data sets: a share of 95% has a standard error of 0.7 points; three of them are
    allowed.
    """
    effects, following, estimates = drawn(sd, 3)
    found = [estimate_random_effects(one, V, 0.05) for one in estimates]

    def held(ends: list[tuple[float, float]], truth: np.ndarray | float) -> float:
        low, high = np.array(ends).T
        return float(np.mean((low - 1e-9 <= truth) & (truth <= high + 1e-9)))

    spread = held([one.sd_ends for one in found], sd)
    assert spread >= 0.95 if sd == 0.0 else abs(spread - 0.95) < 0.021
    mean, apart = (
        held([one.mean_ends for one in found], MEAN),
        np.array([one.apart for one in found]),
    )
    one_more = float(np.mean(np.abs(following - effects.mean(axis=1)) <= apart + 1e-9))
    most = 0.995 if sd == 0.0 else 0.985  # Student's law where nothing is left to estimate
    assert 0.93 < mean < most and 0.93 < one_more <= (1.0 if sd == 0.0 else 0.99)
    tested = np.mean([one.p < 0.05 for one in found])
    assert abs(tested - 0.05) < 0.021 if sd == 0.0 else tested > 0.5
    if sd > 0.0:  # one common constant misses what differs
        error = 1.0 / np.sqrt(np.linalg.inv(V).sum())
        mid = estimates @ np.linalg.inv(V).sum(axis=0) * error**2
        alone = held(list(zip(mid - 1.96 * error, mid + 1.96 * error, strict=True)), MEAN)
        assert alone < (0.94 if sd < 1.0 else 0.75)
        best = np.array([[x for x, _ in one.sites] for one in found])
        said = np.array([[x for _, x in one.sites] for one in found])
        assert np.mean((best - effects) ** 2) < np.mean((estimates - effects) ** 2)
        assert np.sqrt(np.mean((best - effects) ** 2)) == pytest.approx(
            np.sqrt(np.mean(said**2)), rel=0.12
        )


def test_q_is_chi_squared_at_the_true_spread_and_spread_interval_inverts_it() -> None:
    _, _, estimates = drawn(0.5, 5)
    W = np.linalg.inv(V + 0.25 * np.eye(K))
    mean = estimates @ W.sum(axis=0) / W.sum()
    residual = estimates - mean[:, None]
    Q = np.einsum("sk,kl,sl->s", residual, W, residual)
    assert stats.kstest(Q, "chi2", args=(K - 1,)).pvalue > 0.01
    found = estimate_random_effects(estimates[0], V, 0.1)
    for sd, chance in zip(found.sd_ends, (0.05, 0.95), strict=True):
        W = np.linalg.inv(V + sd**2 * np.eye(K))
        r = estimates[0] - estimates[0] @ W.sum(axis=0) / W.sum()
        assert stats.chi2.sf(r @ W @ r, K - 1) == pytest.approx(chance, rel=1e-6)


def test_exact_site_effects_give_sample_mean_and_deviation() -> None:
    effects = np.array([-2.0, -1.0, 0.5, 1.5])
    found = estimate_random_effects(effects, 1e-12 * np.eye(4), 0.05)
    assert found.mean == pytest.approx(effects.mean()) and found.sd == pytest.approx(
        effects.std(ddof=1)
    )
    np.testing.assert_allclose([x for x, _ in found.sites], effects, atol=1e-9)
    assert found.mean_ends == pytest.approx(
        stats.t.interval(0.95, 3, effects.mean(), effects.std(ddof=1) / 2.0)
    )
    assert found.apart == pytest.approx(
        stats.t.ppf(0.975, 3) * effects.std(ddof=1) * np.sqrt(1.25), rel=0.02
    )
