"""Normal equations with noise: against generalised least squares, exact solutions and numerical
integration.
"""

from __future__ import annotations

import numpy as np
import pytest

from sottovoce.answers.normal_equations import Products, posterior, posterior_gain

R, D = 3, 5
RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(R, D, D))
M = ROOT @ ROOT.transpose(0, 2, 1) / D + 0.1 * np.eye(D)
X = RNG.normal(size=(R, D))
C = np.einsum("rij,rj->ri", M, X)


def gradient_at(point: np.ndarray) -> np.ndarray:
    return np.einsum("rij,rj->ri", M, point) - C


class TestProducts:
    def test_gradients_at_all_points_give_the_same_products(self) -> None:
        products = Products(M, 0.0)
        for point in RNG.normal(size=(4, R, D)):
            products.add(point, gradient_at(point), 0.3)
        mean = products.together(products.distances(X))
        np.testing.assert_allclose(mean.c, C, rtol=1e-12)

    def test_products_are_weighted_by_precision(self) -> None:
        """Two unbiased numbers x and y with variances v and w have the best mean (x / v + y / w) /
        (1 / v + 1 / w).
        """
        s_M, spreads = np.array([0.2, 0.0, 1.0]), (0.3, 0.5)
        points, noises = RNG.normal(size=(2, R, D)), RNG.normal(size=(2, R, D))
        products = Products(M, s_M)
        for point, noise, spread in zip(points, noises, spreads, strict=True):
            products.add(point, gradient_at(point) - noise, spread)
        mean = products.together(products.distances(X))
        far = np.sum((X - points) ** 2, axis=2)
        v, w = (
            spread**2 + s_M**2 / 2.0 * distance
            for spread, distance in zip(spreads, far, strict=True)
        )
        share = (w / (v + w))[:, None]
        np.testing.assert_allclose(
            mean.c, C + share * noises[0] + (1.0 - share) * noises[1], rtol=1e-9
        )
        np.testing.assert_allclose(
            mean.center, share * points[0] + (1.0 - share) * points[1], rtol=1e-9
        )
        np.testing.assert_allclose(mean.of_all, v * w / (v + w), rtol=1e-9)
        by_gradients = (
            share[:, 0] ** 2 * spreads[0] ** 2 + (1.0 - share[:, 0]) ** 2 * spreads[1] ** 2
        )
        np.testing.assert_allclose(mean.of_gradients, by_gradients, rtol=1e-9)

    def test_noise_in_moments_counts_with_the_distance_of_the_point(self) -> None:
        """Symmetric noise with deviation s on an entry and s sqrt(2) on the diagonal, as in a
        flattened triangle. The mean of |E (x - t)|^2 / d over 4,000 draws is within 4% of its
        expectation: over four of its deviations.
        """
        point, s_M, draws = np.zeros((R, D)), 0.3, 4000
        E = RNG.normal(size=(draws, D, D)) * s_M / np.sqrt(2.0)
        E = (E + E.transpose(0, 2, 1)) / np.sqrt(2.0)
        moved = np.einsum("eij,rj->eri", E, X - point)
        products = Products(M, s_M)
        products.add(point, gradient_at(point), 0.0)
        told = products.together(products.distances(X)).of_all
        found = np.mean(moved**2, axis=(0, 2))
        assert np.all(np.abs(found / told / (1.0 + 1.0 / D) - 1.0) < 0.04)


class TestPosterior:
    @pytest.mark.parametrize("free", [0, 1, 3, D])
    def test_posterior_without_noise_solves_the_equations(self, free: int) -> None:
        found = posterior(M, C, np.zeros(R), free)
        np.testing.assert_allclose(found.mean, X, rtol=1e-6)
        assert np.all(found.error <= 1e-12)

    def test_posterior_with_much_noise_keeps_only_free_coordinates(self) -> None:
        found = posterior(M, C, np.full(R, 1e12), free=2).mean
        np.testing.assert_allclose(found[:, 2:], 0.0, atol=1e-6)
        np.testing.assert_allclose(
            found[:, :2], np.linalg.solve(M[:, :2, :2], C[:, :2, None])[:, :, 0], rtol=1e-6
        )

    def test_shrinkage_does_not_depend_on_free_coordinates(self) -> None:
        moved = C + np.einsum("rij,rj->ri", M[:, :, :2], np.full((R, 2), 7.0))
        one, other = (posterior(M, c, np.full(R, 0.05), free=2).mean for c in (C, moved))
        np.testing.assert_allclose(other - one, [[7.0, 7.0, 0.0, 0.0, 0.0]] * R, atol=1e-9)

    def test_gain_and_error_are_those_of_numerical_integration(self) -> None:
        """For x ~ N(0, tau^2) with tau^2 on a grid: integrals over x for each coordinate, by the
        trapezoidal rule.
        """
        values, z, variance = np.array([[2.0, 0.5]]), np.array([[1.5, -0.4]]), 0.09
        spreads = np.logspace(-3.0, 3.0, 61) / values.sum()
        x = np.linspace(-60.0, 60.0, 200_001)

        def integrals(value: float, seen: float) -> np.ndarray:
            """Of 1, x and x^2 by their joint law with what is seen, (3, spreads)."""
            likely = np.exp(-0.5 * (seen - value * x) ** 2 / variance)
            before = [np.exp(-0.5 * x**2 / s) / np.sqrt(2.0 * np.pi * s) for s in spreads]
            return np.array(
                [[np.trapezoid(likely * p * x**k, x) for p in before] for k in range(3)]
            )

        one, two = (integrals(value, seen) for value, seen in zip(values[0], z[0], strict=True))
        likely = one[0] * two[0] / np.sum(one[0] * two[0])
        means = np.array([one[1] / one[0], two[1] / two[0]])
        errors = one[2] / one[0] + two[2] / two[0] - np.sum(means**2, axis=0)  # given a spread
        gain, error = posterior_gain(values, z, np.array([variance]))
        np.testing.assert_allclose((gain * z)[0], means @ likely, rtol=1e-6)
        np.testing.assert_allclose(error, errors @ likely, rtol=1e-6)
