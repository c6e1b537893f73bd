"""Noise: the law at the right scale and at no other, keyed streams that repeat, system streams that do not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sottovoce.privacy.noise import KeyedNoise, Noise, SystemNoise

D, SAMPLES = 7, 4000
SOURCES: list[Noise] = [KeyedNoise(3, range(SAMPLES), [0]), SystemNoise((SAMPLES, 1))]
IDS = ["keyed", "system"]


@pytest.mark.parametrize("source", SOURCES, ids=IDS)
def test_norm_is_gamma_of_the_dimension_and_no_other_scale(source: Noise) -> None:
    """Kolmogorov-Smirnov at level 1e-6 per test; noise at 2/3 or 3/2 of its scale must be rejected at that level."""
    norm = np.linalg.norm(source.spherical(D, 1)[:, 0], axis=1)
    assert stats.kstest(norm, stats.gamma(D).cdf).pvalue > 1e-6
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(norm * wrong, stats.gamma(D).cdf).pvalue < 1e-6


@pytest.mark.parametrize("source", SOURCES, ids=IDS)
def test_direction_is_uniform(source: Noise) -> None:
    v = source.spherical(D, 2)[:, 0]
    unit = v / np.linalg.norm(v, axis=1, keepdims=True)
    # A coordinate of a uniform direction has (1 + u)/2 ~ Beta((d-1)/2, (d-1)/2).
    for j in range(D):
        assert stats.kstest((1 + unit[:, j]) / 2, stats.beta((D - 1) / 2, (D - 1) / 2).cdf).pvalue > 1e-6
    gram = unit.T @ unit / len(unit) * D
    assert np.abs(gram - np.eye(D)).max() < 0.15


def test_keyed_streams_repeat_and_differ() -> None:
    one = KeyedNoise(5, range(3), range(2))
    assert np.array_equal(one.spherical(D, 4), KeyedNoise(5, range(3), range(2)).spherical(D, 4))
    draws = [
        one.spherical(D, 1),
        one.spherical(D, 2),
        one.spherical(D, 1, use=1),
        KeyedNoise(6, range(3), range(2)).spherical(D, 1),
    ]
    flat = np.concatenate([x.reshape(-1, D) for x in draws])
    assert len(np.unique(flat[:, 0])) == len(flat)


def test_one_site_sees_its_part_of_the_simulation() -> None:
    everyone = KeyedNoise(5, range(3), range(4)).spherical(D, 9)
    alone = KeyedNoise(5, [2], [1], lead=()).spherical(D, 9)
    assert alone.shape == (D,)
    assert np.array_equal(alone, everyone[2, 1])


def test_system_noise_never_repeats() -> None:
    source = SystemNoise((50,))
    assert not source.simulated
    both = np.concatenate([source.spherical(D, 1), source.spherical(D, 1)])
    assert len(np.unique(both[:, 0])) == 100
    assert SystemNoise().spherical(D, 1).shape == (D,)
