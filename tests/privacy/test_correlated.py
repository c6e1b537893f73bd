"""Correlated noise over rounds: the inequality of docs/privacy/correlated_noise.md."""

import numpy as np
import pytest
from scipy.optimize import minimize


def norms(A: np.ndarray) -> np.ndarray:
    return np.linalg.norm(A.reshape(len(A), -1), axis=1)


def inner(A: np.ndarray) -> np.ndarray:
    flat = A.reshape(len(A), -1)
    return flat @ flat.T


def shift_squared(G: np.ndarray, d: int, rng: np.random.Generator, starts: int = 4) -> float:
    """The largest shift over sigma, squared, by coordinate ascent from several starts: a lower bound, which is safe."""
    delta = rng.normal(size=(starts, len(G), d))
    delta /= np.linalg.norm(delta, axis=2, keepdims=True)
    for _ in range(500):
        before = delta.copy()
        for t in range(len(G)):
            pull = G[t] @ delta - G[t, t] * delta[:, t]
            length = np.linalg.norm(pull, axis=1, keepdims=True)
            delta[:, t] = np.divide(pull, length, out=delta[:, t].copy(), where=length > 0)
        if np.array_equal(before, delta):  # nothing moves any more
            break
    return float(np.max(np.sum(G * (delta @ delta.swapaxes(1, 2)), axis=(1, 2))))


def random_spd(T: int, rng: np.random.Generator) -> np.ndarray:
    L = rng.normal(size=(T, T)) * 10.0 ** rng.uniform(-1, 1, size=T)
    return L @ L.T + 1e-3 * np.eye(T)


@pytest.mark.parametrize(("T", "d"), [(2, 2), (3, 4), (5, 5)])
def test_no_correlation_beats_the_best_independent_noise(T, d):
    rng = np.random.default_rng(T)
    for _ in range(30):
        A = rng.normal(size=(T, d, d)) * 10.0 ** rng.uniform(-1, 1, size=(T, 1, 1))
        G = random_spd(T, rng)
        product = np.trace(inner(A) @ np.linalg.inv(G)) * shift_squared(G, d, rng)
        assert product >= norms(A).sum() ** 2 * (1 - 1e-9)


def test_scalar_responses_need_no_dimensions():
    rng = np.random.default_rng(0)
    for _ in range(200):
        T = int(rng.integers(2, 8))
        a, G = rng.normal(size=T), random_spd(T, rng)
        signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * T)).reshape(T, -1).T
        worst = np.max(np.einsum("ks,st,kt->k", signs, G, signs))
        assert a @ np.linalg.solve(G, a) * worst >= np.abs(a).sum() ** 2 * (1 - 1e-9)


def test_the_best_independent_noise_attains_it():
    rng = np.random.default_rng(1)
    A = rng.normal(size=(4, 5, 5))
    G = np.diag(norms(A))
    product = np.trace(inner(A) @ np.linalg.inv(G)) * shift_squared(G, 5, rng, 1)
    assert product == pytest.approx(norms(A).sum() ** 2)


def test_a_search_over_all_correlations_ends_at_the_theorem():
    """T = 2, scalar: the adversary plays one of two sign patterns, so the exact product can be minimised."""
    a = np.array([1.0, -3.0])

    def product(x: np.ndarray) -> float:
        L = np.array([[np.exp(x[0]), 0.0], [x[2], np.exp(x[1])]])
        G = L @ L.T
        return float(np.log(a @ np.linalg.solve(G, a) * (np.trace(G) + 2 * abs(G[0, 1]))))

    best = min(
        minimize(product, start, method="Nelder-Mead", options={"maxiter": 4000, "xatol": 1e-10, "fatol": 1e-13}).fun
        for start in np.random.default_rng(2).normal(size=(6, 3))
    )
    assert np.exp(best) == pytest.approx(16.0, rel=1e-6)
