"""Correlated noise over rounds: the inequality of docs/privacy/correlated_noise.md."""

import numpy as np
import pytest
from scipy import special
from scipy.optimize import minimize

from sottovoce.data.follow_up import Leaving
from sottovoce.estimators.hazard_rows import expand_to_interval_rows


def norms(A: np.ndarray) -> np.ndarray:
    return np.linalg.norm(A.reshape(len(A), -1), axis=1)


def inner(A: np.ndarray) -> np.ndarray:
    flat = A.reshape(len(A), -1)
    return flat @ flat.T


def shift_squared(G: np.ndarray, d: int, rng: np.random.Generator, starts: int = 4) -> float:
    """The largest shift over sigma, squared, by coordinate ascent from several starts: a lower
    bound, which is safe.
    """
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


def test_best_independent_noise_attains_the_bound():
    rng = np.random.default_rng(1)
    A = rng.normal(size=(4, 5, 5))
    G = np.diag(norms(A))
    product = np.trace(inner(A) @ np.linalg.inv(G)) * shift_squared(G, 5, rng, 1)
    assert product == pytest.approx(norms(A).sum() ** 2)


def test_a_search_over_all_correlations_ends_at_the_theorem():
    """T = 2, scalar: the adversary plays one of two sign patterns, so the exact product can be
    minimised.
    """
    a = np.array([1.0, -3.0])

    def product(x: np.ndarray) -> float:
        L = np.array([[np.exp(x[0]), 0.0], [x[2], np.exp(x[1])]])
        G = L @ L.T
        return float(np.log(a @ np.linalg.solve(G, a) * (np.trace(G) + 2 * abs(G[0, 1]))))

    best = min(
        minimize(
            product,
            start,
            method="Nelder-Mead",
            options={"maxiter": 4000, "xatol": 1e-10, "fatol": 1e-13},
        ).fun
        for start in np.random.default_rng(2).normal(size=(6, 3))
    )
    assert np.exp(best) == pytest.approx(16.0, rel=1e-6)


# --- Gradients of one sign ------------------------------------------------------------------------


def left_out(T: int, rounds: int | None = None) -> np.ndarray:
    """The matrix that takes gradients to what is released: a gradient less a share of the
    earlier ones.
    """
    tau = T if rounds is None else rounds
    t = np.arange(1, tau + 1)
    return np.eye(tau) - np.tril(np.ones((tau, tau)), -1) / (T + t - 1.0)[:, None]


def variances(T: int, rounds: int | None = None) -> np.ndarray:
    """Of the releases' own noise, in units of that of a round of independent noise."""
    t = np.arange(1.0, (T if rounds is None else rounds) + 1.0)
    return (T + t) / (2.0 * (T + t - 1.0))


def precision(T: int, rounds: int) -> np.ndarray:
    """``M``: squared shift over sigma of gradients x, along one direction, is ``x M x``."""
    R = left_out(T, rounds)
    return R.T @ np.diag(1.0 / variances(T, rounds)) @ R


def charged(T: int, tau: int) -> float:
    """The squared shifts of the rounds 1 .. tau together."""
    return 2.0 * T * tau / (T + tau)


@pytest.mark.parametrize("T", [1, 2, 7, 40])
def test_half_of_the_noise_is_drawn_once_for_all_rounds(T: int) -> None:
    """The covariance of the noise in the gradients that are put together again, and its inverse
    for every prefix.
    """
    R = np.linalg.inv(left_out(T))
    covariance = R @ np.diag(variances(T)) @ R.T
    np.testing.assert_allclose(covariance, 0.5 * np.eye(T) + 0.5 / T, atol=1e-12)
    for tau in range(1, T + 1):
        np.testing.assert_allclose(
            precision(T, tau), 2.0 * np.eye(tau) - 2.0 / (T + tau), atol=1e-10
        )
        assert np.ones(tau) @ precision(T, tau) @ np.ones(tau) == pytest.approx(charged(T, tau))
    assert charged(T, T) == T  # as much as independent noise


@pytest.mark.parametrize("T", [1, 2, 5, 9])
def test_no_row_that_pulls_one_way_moves_more_than_is_charged_at_any_stop(T: int) -> None:
    """All corners of the cube, as the form is convex; and random pairs of rows in several
    directions.
    """
    rng = np.random.default_rng(T)
    for tau in range(1, T + 1):
        M, most = precision(T, tau), charged(T, tau)
        corners = (np.arange(2**tau)[:, None] >> np.arange(tau)) & 1
        assert np.max(np.einsum("ks,st,kt->k", corners, M, corners)) <= most * (1 + 1e-12)
        for _ in range(300):
            d = int(rng.integers(1, 4))
            u, v = (x / np.linalg.norm(x) for x in rng.normal(size=(2, d)))
            s, r = rng.uniform(size=(2, tau)) ** rng.choice([0.05, 1.0])
            D = np.outer(s, u) - np.outer(r, v)
            assert np.sum(D * (M @ D)) <= 4.0 * most * (1 + 1e-12)


def test_rows_whose_gradients_change_sign_move_more() -> None:
    """So the condition is needed: signs that alternate cost up to twice as much."""
    T = 10
    signs = (-1.0) ** np.arange(T)
    assert signs @ precision(T, T) @ signs == pytest.approx(2.0 * T)


def test_a_difference_of_two_rows_may_alternate_and_is_charged_for_both() -> None:
    """Rows alike in all but when they pull: one gradient changes by at most 1, half of what Delta
    counts.

    Charged for that 1, the run would cost more than it says, by a factor of two; Delta, by the
    triangle inequality, holds, and a row and its opposite attain it.  The same numbers are those of
    one person with two opposite rows of weight 1, whose logistic gradient never has a norm above 1:
    that bound alone does not make a unit one row.
    """
    T, M = 10, precision(10, 10)
    first, second = np.arange(T) % 2.0, 1.0 - np.arange(T) % 2.0
    difference = first - second
    assert np.max(np.abs(difference)) == 1.0 and difference @ M @ difference == pytest.approx(
        2.0 * charged(T, T)
    )
    assert difference @ M @ difference <= 4.0 * charged(T, T)
    opposite = np.ones(T) - (-np.ones(T))
    assert opposite @ M @ opposite == pytest.approx(4.0 * charged(T, T))


def test_the_logistic_loss_comes_near_the_bound_and_does_not_reach_it() -> None:
    """Opposite rows have slopes that add up to 1; two rows at angles of pi/2 + a to the model both
    pull nearly wholly.

    The share of the squared bound by the model's length; with gradients capped at 1/2 opposite rows
    attain it.
    """
    z = np.linspace(-30.0, 30.0, 1001)
    np.testing.assert_allclose(special.expit(-z) + special.expit(z), 1.0)
    a = np.linspace(0.0, np.pi / 2, 100_001)
    shares = [
        float(np.max((special.expit(R * np.sin(a)) * np.cos(a)) ** 2))
        for R in (1.0, 10.0, 60.0, 1e3, 1e5)
    ]
    np.testing.assert_allclose(shares[:3], [0.302, 0.829, 0.985], atol=1e-3)
    assert np.all(np.diff(shares) > 0.0) and 0.9999 < shares[-1] < 1.0
    capped = np.minimum(special.expit(np.zeros(2)), 0.5)
    assert capped.sum() == 2 * 0.5


@pytest.mark.parametrize("T", [1, 2, 5, 9])
def test_slopes_of_both_signs_cost_the_length_of_their_interval(T: int) -> None:
    for tau in range(1, T + 1):
        M, most = precision(T, tau), charged(T, tau)
        corners = (np.arange(2**tau)[:, None] >> np.arange(tau)) & 1
        for p in (0.0, 0.1, 0.3, 0.5, 0.9):
            x = corners - p  # an interval of length 1 around zero
            assert np.max(np.einsum("ks,st,kt->k", x, M, x)) <= most * (1 + 1e-12)


@pytest.mark.parametrize(("m", "T"), [(1, 6), (2, 6), (3, 4), (4, 3)])
def test_a_persons_rows_of_survival_move_no_more_than_one_row(m: int, T: int) -> None:
    """All corners of all rows' slopes in all rounds, for every end that a person can come to."""
    largest = 0.0
    ends = [
        (last, event, seen)
        for last in range(m)
        for event, seen in ((False, 1.0), (False, 0.3), (True, 1.0))
    ]
    for last, event, seen in ends:
        for size in (1.0, 0.6):
            leaves = Leaving(np.array([last]), np.array([event]), np.array([seen]), np.array([0]))
            a, y, weight = expand_to_interval_rows(np.array([[size]]), leaves, m, 1)
            rows = (weight * y)[:, None] * a
            rows = rows.reshape(m + 1, -1)[:m]
            for tau in range(1, T + 1):
                corners = ((np.arange(2 ** (tau * m))[:, None] >> np.arange(tau * m)) & 1).reshape(
                    -1, tau, m
                )
                G = corners @ rows
                found = np.einsum("ksd,st,ktd->k", G, precision(T, tau), G).max() / charged(T, tau)
                largest = max(largest, float(found))
    assert 0.999 < largest <= 1.0


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 2.0])
def test_an_adversary_who_adapts_gets_the_price_and_not_more(epsilon: float) -> None:
    """Two rounds, one dimension, T = 2, total mu = 1: whether the row pulls in round 2 depends on
    the first answer.

    The exact delta of such a threshold rule, by quadrature over the first answer: at most that of
    the Gaussian mechanism of the whole charge, which the rule of always pulling attains.
    """
    first, second = (1.0 / v for v in variances(2))
    rest = 1.0 - left_out(2)[1, 0] * -1.0  # what is left of a pull that goes on: 1 - 1 / (T + 1)
    scale = 1.0 / charged(2, 2)  # so that the whole squared shift is 1
    x, w = np.polynomial.hermite_e.hermegauss(201)
    w = w / w.sum()

    def profile(e: np.ndarray, mu: float) -> np.ndarray:
        if mu == 0.0:
            return np.maximum(0.0, 1.0 - np.exp(e))
        return np.asarray(
            special.ndtr(mu / 2 - e / mu) - np.exp(e) * special.ndtr(-mu / 2 - e / mu)
        )

    mu1, always, stopped = (
        np.sqrt(scale * first),
        np.sqrt(scale * second) * rest,
        np.sqrt(scale * second) * (1 - rest),
    )
    loss = mu1 * x + mu1**2 / 2  # of the first answer
    found = []
    for threshold in (-np.inf, -1.0, 0.0, 1.0, np.inf):
        each = np.where(
            x > threshold,
            profile(epsilon - loss, float(always)),
            profile(epsilon - loss, float(stopped)),
        )
        found.append(float(w @ each))
    most = float(profile(np.array(epsilon), 1.0))
    assert max(found) <= most + 1e-6 and found[0] == pytest.approx(most, abs=1e-6)
