"""Noise: the law at the right scale and at no other, keyed streams that repeat, system streams
that do not.
"""

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
    """Kolmogorov-Smirnov at level 1e-6 per test; noise at 2/3 or 3/2 of its scale must be
    rejected at that level.
    """
    norm = np.linalg.norm(source.draw_spherical(D, 1)[:, 0], axis=1)
    assert stats.kstest(norm, stats.gamma(D).cdf).pvalue > 1e-6
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(norm * wrong, stats.gamma(D).cdf).pvalue < 1e-6


@pytest.mark.parametrize("source", SOURCES, ids=IDS)
def test_direction_is_uniform(source: Noise) -> None:
    v = source.draw_spherical(D, 2)[:, 0]
    unit = v / np.linalg.norm(v, axis=1, keepdims=True)
    # A coordinate of a uniform direction has (1 + u)/2 ~ Beta((d-1)/2, (d-1)/2).
    for j in range(D):
        assert (
            stats.kstest((1 + unit[:, j]) / 2, stats.beta((D - 1) / 2, (D - 1) / 2).cdf).pvalue
            > 1e-6
        )
    gram = unit.T @ unit / len(unit) * D
    assert np.abs(gram - np.eye(D)).max() < 0.15


def test_keyed_streams_repeat_and_differ() -> None:
    one = KeyedNoise(5, range(3), range(2))
    assert np.array_equal(
        one.draw_spherical(D, 4), KeyedNoise(5, range(3), range(2)).draw_spherical(D, 4)
    )
    draws = [
        one.draw_spherical(D, 1),
        one.draw_spherical(D, 2),
        one.draw_spherical(D, 1, use=1),
        KeyedNoise(6, range(3), range(2)).draw_spherical(D, 1),
    ]
    flat = np.concatenate([x.reshape(-1, D) for x in draws])
    assert len(np.unique(flat[:, 0])) == len(flat)


def test_one_site_sees_its_part_of_the_simulation() -> None:
    everyone = KeyedNoise(5, range(3), range(4)).draw_spherical(D, 9)
    alone = KeyedNoise(5, [2], [1], lead=()).draw_spherical(D, 9)
    assert alone.shape == (D,)
    assert np.array_equal(alone, everyone[2, 1])


def test_system_noise_never_repeats() -> None:
    source = SystemNoise((50,))
    assert not source.simulated
    both = np.concatenate([source.draw_spherical(D, 1), source.draw_spherical(D, 1)])
    assert len(np.unique(both[:, 0])) == 100
    assert SystemNoise().draw_spherical(D, 1).shape == (D,)


# Gaussian noise, and noise on an answer


@pytest.mark.parametrize("source", SOURCES, ids=IDS)
def test_normals_are_normal_and_of_no_other_scale(source: Noise) -> None:
    x = source.draw_gaussian(D, 3).ravel()
    assert stats.kstest(x, "norm").pvalue > 1e-6
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(x * wrong, "norm").pvalue < 1e-6


@pytest.mark.parametrize("source", SOURCES, ids=IDS)
def test_noise_on_an_answer_has_its_scale_and_no_other(source: Noise) -> None:
    """Gaussian and spherical noise, of a simulation and of a release alike."""
    w, fine = np.full((SAMPLES, 1, D), 5.0), np.full((SAMPLES, 1, 1), 1e-6)
    gaussian = (source.add_gaussian(w, np.full((SAMPLES, 1, 1), 0.3), fine, 4) - w).ravel() / 0.3
    assert stats.kstest(gaussian, "norm").pvalue > 1e-6
    assert stats.kstest(gaussian * 1.5, "norm").pvalue < 1e-6
    pure = (
        4.0
        * np.linalg.norm(
            source.add_spherical(w, np.full((SAMPLES, 1, 1), 4.0), fine, 5) - w, axis=-1
        ).ravel()
    )
    assert stats.kstest(pure, stats.gamma(D).cdf).pvalue > 1e-6
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(pure * wrong, stats.gamma(D).cdf).pvalue < 1e-6


def test_a_release_lies_on_its_grid() -> None:
    w = np.random.default_rng(0).normal(size=(5, D))
    sigma = np.array([[0.1], [1.0], [3.0], [1e-3], [50.0]])
    out = SystemNoise((5,)).add_gaussian(w, sigma, np.full((5, 1), 1e-7), 0)
    steps = 2.0 ** np.floor(np.log2(np.minimum(1e-7, sigma * 2.0**-40)))
    assert np.array_equal(out, np.rint(out / steps) * steps)
    assert np.all(np.abs(out - w) < 8 * sigma)


def test_no_answer_is_too_far_out_for_its_grid() -> None:
    """Whole numbers of any size: whether a release goes out does not depend on where its answer
    lies.
    """
    w = np.array([[0.0] * D, [1e15] * D])
    out = SystemNoise((2,)).add_gaussian(w, np.full((2, 1), 1e-9), np.full((2, 1), 1e-12), 0)
    assert np.array_equal(out[1], w[1])
    assert np.all(np.abs(out[0]) < 1e-8)
    assert np.array_equal(
        SystemNoise((2,)).add_spherical(w, np.full((2, 1), 1e9), np.full((2, 1), 1e-12), 0)[1], w[1]
    )


def test_uniforms_reach_far_below_two_to_the_minus_53() -> None:
    """With most words zero, the binade keeps falling; with bits, it is geometric."""

    class Zeros(SystemNoise):
        calls = 0

        @classmethod
        def _random_words(cls, shape: tuple[int, ...]) -> np.ndarray:
            cls.calls += 1
            return (
                np.zeros(shape, dtype=np.uint64)
                if cls.calls <= 3
                else np.full(shape, 2**63, dtype=np.uint64)
            )

    assert 2.0**-193 <= Zeros._random_uniform((1,))[0] < 2.0**-192
    u = SystemNoise._random_uniform((200000,))
    assert stats.kstest(u, "uniform").pvalue > 1e-6
    assert u.min() > 0.0 and u.max() < 1.0


@pytest.mark.parametrize("finer", [0, 8, 20, 40, 500], ids=lambda b: f"grid of {54 + b} bits")
def test_noise_that_is_wide_for_its_grid_never_leaves_an_answer_bare(finer: int) -> None:
    """Noise cut off at 64 bits is the same number again and again, and what it was added to can
    be read off.
    """
    sigma, step, n = np.array([1e6]), np.array([1e6 * 2.0 ** -(54 + finer)]), 300
    drawn = (
        np.concatenate(
            [SystemNoise().add_gaussian(np.full(n, 0.3), sigma, step, 0) for _ in range(3)]
        )
        / 1e6
    )
    assert len(np.unique(np.abs(drawn))) == drawn.size
    assert stats.kstest(drawn, stats.norm.cdf).pvalue > 1e-9


@pytest.mark.parametrize(
    "most", [2.0**-40, np.nextafter(2.0**-40, 0.0), np.nextafter(2.0**-40, 1.0), 3e-200, 0.7, 1e9]
)
def test_the_grids_step_is_the_largest_power_of_two_that_is_allowed(most: float) -> None:
    """The logarithm of a number just below a power of two rounds up to that power."""
    found: list[float] = []

    def draw(d: int, scale: list[float], step: list[float]) -> np.ndarray:
        found.extend(step)
        return np.zeros((1, d), dtype=np.int64)

    SystemNoise._add_noise_on_grid(np.zeros((1, 2)), np.array([[most]]), np.ones((1, 1)), draw)
    assert found[0] <= most < 2.0 * found[0] and np.frexp(found[0])[0] == 0.5
