"""Exact draws on a grid: the law, the rounding, and what happens where the first bits do not decide."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from scipy import integrate, stats

from sottovoce.privacy.exact import rounded_gaussian, rounded_spherical

SAMPLES, STEP = 3000, 2.0**-30


def _seeded(seed: int):
    return random.Random(seed).randbytes


@pytest.mark.parametrize("d", [1, 2, 3, 8])
def test_the_norm_is_gamma_and_of_no_other_scale(d: int) -> None:
    """Kolmogorov-Smirnov at level 1e-6; two thirds and three halves of the scale must be rejected at that level."""
    draw = _seeded(d)
    x = STEP * np.array([rounded_spherical(d, 4.0, STEP, draw) for _ in range(SAMPLES)], dtype=float)
    norm = 4.0 * np.linalg.norm(x, axis=1)
    assert stats.kstest(norm, stats.gamma(d).cdf).pvalue > 1e-6
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(norm * wrong, stats.gamma(d).cdf).pvalue < 1e-6
    if d > 1:  # a coordinate of a uniform direction has (1 + u)/2 ~ Beta((d-1)/2, (d-1)/2)
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        law = stats.beta((d - 1) / 2, (d - 1) / 2)
        assert all(stats.kstest((1 + column) / 2, law.cdf).pvalue > 1e-6 for column in unit.T)
        assert np.abs(unit.T @ unit / SAMPLES * d - np.eye(d)).max() < 0.15


def test_cells_of_a_coarse_grid_have_the_probabilities_of_the_rounded_law() -> None:
    """Chi-square at level 1e-6 over the cells of a grid as coarse as the noise; a wrong rate is rejected."""
    draw, n = _seeded(7), 20000
    found = np.array([rounded_spherical(2, 1.0, 1.0, draw) for _ in range(n)])
    cells = [(i, j) for i in range(-2, 3) for j in range(-2, 3)]

    def probability(i: int, j: int, rate: float) -> float:
        def density(y: float, x: float) -> float:
            return rate**2 / (2 * math.pi) * math.exp(-rate * math.hypot(x, y))

        return float(integrate.dblquad(density, i - 0.5, i + 0.5, j - 0.5, j + 0.5, epsabs=1e-9)[0])

    def statistic(rate: float) -> float:
        expected = n * np.array([probability(*cell, rate) for cell in cells])
        observed = np.array([np.sum((found == cell).all(axis=1)) for cell in cells])
        return float(np.sum((observed - expected) ** 2 / expected))

    bound = stats.chi2(len(cells)).isf(1e-6)
    assert statistic(1.0) < bound
    assert statistic(1.1) > bound


def test_the_answer_is_that_of_the_whole_digits() -> None:
    """The same digits to 2,000 bits, in plain arithmetic of that precision, round to the same cells."""
    import mpmath

    for d in (1, 2, 5):
        stream = _seeded(100 + d)
        taken: list[bytes] = []

        def draw(n: int, stream=stream, taken=taken) -> bytes:
            taken.append(stream(n))
            return taken[-1]

        cells = rounded_spherical(d, 0.3, 2.0**-40, draw)
        first = [int.from_bytes(part, "big") for part in taken]
        pairs = -(-d // 2) + (d + 1) % 2
        with mpmath.workprec(2000):
            u = [
                mpmath.mpf(2 * value + 1) / mpmath.mpf(2) ** (8 * len(part) + 1)
                for value, part in zip(first, taken, strict=True)
            ]
            normals = []
            for i in range(pairs):  # each pair takes its angle first
                angle, length = u[2 * i], u[2 * i + 1]
                r = mpmath.sqrt(-2 * mpmath.log(length))
                normals += [r * mpmath.cos(2 * mpmath.pi * angle), r * mpmath.sin(2 * mpmath.pi * angle)]
            squared = sum(-2 * mpmath.log(value) for value in u[2 * pairs :])
            if (d + 1) % 2:
                squared += normals.pop() ** 2
            scale = mpmath.sqrt(squared) / mpmath.mpf(0.3) * mpmath.mpf(2) ** 40
            assert cells == [int(mpmath.floor(z * scale + 0.5)) for z in normals[:d]]


def test_undecided_roundings_draw_more_bits() -> None:
    """Uniforms that begin with zeros, whose logarithm no number of zeros bounds, go on until they are known."""
    asked: list[int] = []
    stream = _seeded(11)

    def draw(n: int) -> bytes:
        asked.append(n)
        return bytes(n) if len(asked) <= 3 else stream(n)

    cells = rounded_spherical(1, 1.0, 2.0**-20, draw)
    assert len(cells) == 1
    assert len(asked) > 3  # three uniforms, and more of their digits


def test_the_rounding_of_rate_and_step_is_none() -> None:
    """Tiny and huge noise: no overflow, no bias to zero."""
    assert rounded_spherical(3, 1e200, 1.0, _seeded(1)) == [0, 0, 0]
    assert min(abs(cell) for cell in rounded_spherical(3, 1e-200, 1.0, _seeded(1))) > 10**190
    assert rounded_spherical(2, 1e-160, 1e-160, _seeded(1)) != [0, 0]
    assert min(abs(cell) for cell in rounded_gaussian(3, 1e200, 1e-200, _seeded(1))) > 10**390


@pytest.mark.parametrize("d", [1, 2, 5])
def test_rounded_normals_are_normal_and_independent(d: int) -> None:
    draw = _seeded(20 + d)
    x = STEP * np.array([rounded_gaussian(d, 3.0, STEP, draw) for _ in range(SAMPLES)], dtype=float) / 3.0
    assert all(stats.kstest(column, stats.norm.cdf).pvalue > 1e-6 for column in x.T)
    assert stats.kstest(1.4 * x[:, 0], stats.norm.cdf).pvalue < 1e-6
    assert np.abs(x.T @ x / SAMPLES - np.eye(d)).max() < 0.15


def test_cells_of_a_coarse_grid_have_the_gaussian_probabilities() -> None:
    draw = _seeded(30)
    found = np.array([rounded_gaussian(1, 0.8, 1.0, draw) for _ in range(20000)])
    cells = np.arange(-3, 4)
    expected = 20000 * np.diff(stats.norm.cdf(np.arange(-3.5, 4.0), scale=0.8))
    assert np.sum((np.sum(found == cells, axis=0) - expected) ** 2 / expected) < stats.chi2(len(cells)).isf(1e-6)
