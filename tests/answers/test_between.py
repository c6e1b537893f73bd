"""Random effects of sites: intervals cover, with a covariance that has a common part, and a wrong
model fails.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from sottovoce.answers.between import SiteConstants, estimate_random_effects
from sottovoce.errors import InvalidInput

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


def test_sites_with_few_events_are_not_left_out() -> None:
    """A refused site, or many weak ones, refuse the summary; a weak one is part of it."""
    effects, V = np.array([-3.0, -3.4, -2.8, -4.5, -3.1]), np.diag([0.05, 0.06, 0.05, 0.6, 0.05])
    every = SiteConstants(effects, V, weak=("d",), sampling=np.diag(V) / 2.0)
    found, alone = every.random_effects(0.05), estimate_random_effects(effects, V, 0.05)
    assert found.mean == alone.mean and found.mean_ends[0] < alone.mean_ends[0]
    # with the errors of all sites as at the mean, the site with few events weighs more
    even = every._errors_at_the_mean()
    assert even[3, 3] < 0.2 and even[0, 0] > 0.05
    assert np.all(every.likely_spreads() >= replace(every, weak=()).likely_spreads())
    told = SiteConstants.from_plain(every.to_plain())
    assert told.random_effects(0.05) == found
    lost = (
        (replace(every, refused=("e",)), "e"),
        (replace(every, weak=("b", "d")), "b, d"),
        (replace(every, refused=tuple("efghijk")), "e, f, g, h, i and 2 more"),
    )
    for sites, names in lost:
        with pytest.raises(InvalidInput, match=f"^sites=5: .*{names}"):
            sites.random_effects(0.05)
        with pytest.raises(InvalidInput, match=f"^sites=5: .*{names}"):
            sites.likely_spreads()
    with pytest.raises(InvalidInput, match="at least 3"):
        SiteConstants(effects[:2], V[:2, :2]).random_effects(0.05)


def test_mean_covers_where_constants_of_some_sites_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """24 tables of 12 sites with 19 events each, of which noise hides 1.6: the mean of the printed
    ones is covered in 82% of 200, that of all in 98% of 100.
    """
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench" / "accuracy"))
    import predictions

    found = predictions.between(predictions.Population(12, 400, -3.0, 10.0), 24)
    assert found["told"] > 0.9 and found["mean"] >= 0.87
    # 4.7 events each: nothing is told, where the mean of the printed sites covers half of the time
    assert predictions.between(predictions.Population(12, 400, -4.3, 10.0), 4)["told"] == 0.0
