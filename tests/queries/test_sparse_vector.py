"""A gate whose tests run between other releases: docs/privacy/tight.md, "A gate between
releases".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from sottovoce.privacy import prices
from sottovoce.privacy.accountants import PureAccountant, composed_epsilon
from sottovoce.privacy.events import GatedRelease, SparseVector
from sottovoce.privacy.prices import Bill

E1, E2 = 0.5, 0.7
_R = np.linspace(-60.0, 60.0, 24001)  # the hidden bar's noise
_BAR = np.exp(-np.abs(_R) * E1)
_BAR /= _BAR.sum()
Bits = tuple[int, ...]


def gate(bits: Bits, values: list[float], positives: int, threshold: float = 0.3) -> float:
    """Probability that AboveThreshold answers `values` with `bits`: sensitivity 1, threshold's
    noise drawn once.
    """
    chance, left = _BAR.copy(), positives
    rate = E2 / (2.0 * positives)
    for bit, value in zip(bits, values, strict=True):
        gap = (threshold + _R - value) * rate
        tail = np.exp(-np.abs(gap)) / 2.0
        above = np.where(gap > 0, tail, 1.0 - tail) if left else np.zeros_like(_R)
        chance = chance * (above if bit else 1.0 - above)
        left -= bit
    return float(chance.sum())


def pairs(seed: int, count: int, worst: bool) -> Iterator[list[tuple[float, float]]]:
    """Values of as many queries on two neighbours: at most 1 apart."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        at = rng.uniform(-2.0, 2.0, 4)
        step = rng.choice([-1.0, 1.0], 4) if worst else rng.uniform(-1.0, 1.0, 4)
        yield list(zip(at.tolist(), (at + step).tolist(), strict=True))


@pytest.mark.parametrize("positives", [1, 2])
def test_the_gate_is_one_coin_and_a_mechanism_that_reads_no_rows(positives: int) -> None:
    """T and T' of the proof are probabilities, and do not see queries that are yet to come."""
    e = math.exp(E1 + E2)
    tightest = 0.0
    for values in [*pairs(0, 6, True), *pairs(1, 6, False)]:
        for k in range(1, 5):
            both = {
                b: [gate(b, [v[w] for v in values[:k]], positives) for w in (0, 1)]
                for b in product((0, 1), repeat=k)
            }
            for split in (lambda p, q: (e * p - q) / (e - 1), lambda p, q: (e * q - p) / (e - 1)):
                T = {bits: split(*chances) for bits, chances in both.items()}
                assert min(T.values()) >= -1e-12
                assert sum(T.values()) == pytest.approx(1.0, abs=1e-9)
                for bits in product(
                    (0, 1), repeat=k - 1
                ):  # what came before does not depend on the k-th query
                    before = split(
                        *(gate(bits, [v[w] for v in values[: k - 1]], positives) for w in (0, 1))
                    )
                    assert T[(*bits, 0)] + T[(*bits, 1)] == pytest.approx(before, abs=1e-9)
            found = [max(p / q, q / p) for p, q in both.values() if min(p, q) > 1e-300]
            tightest = max(tightest, math.log(max(found)))
    assert 0.5 * (E1 + E2) < tightest <= E1 + E2  # the bound has something to bound


# Interleaved with other releases


def interleaved(
    rng: np.random.Generator, releases: list[float], positives: int
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of every transcript in both worlds: a test, a release, a test, ...; all chosen
    in view of the past.

    A release is randomised response of the given epsilon, its direction chosen like the gate's next
    query.
    """
    choice: dict[tuple[int, ...], tuple[float, float]] = {}

    def query(past: tuple[int, ...]) -> tuple[float, float]:
        if past not in choice:
            at = rng.uniform(-1.5, 1.5)
            choice[past] = (at, at + rng.choice([-1.0, 1.0]))
        return choice[past]

    worlds: list[list[float]] = [[], []]
    for said in product((0, 1), repeat=2 * len(releases)):
        bits, answers = said[::2], said[1::2]
        queries = [query(said[: 2 * k]) for k in range(len(releases))]
        turned = [
            int(query(said[: 2 * k + 1])[1] > query(said[: 2 * k + 1])[0])
            for k in range(len(releases))
        ]
        for world in (0, 1):
            chance = gate(bits, [q[world] for q in queries], positives)
            for epsilon, answer, turn in zip(releases, answers, turned, strict=True):
                truth = world ^ turn
                chance *= math.exp(epsilon * (answer == truth)) / (1.0 + math.exp(epsilon))
            worlds[world].append(chance)
    return np.array(worlds[0]), np.array(worlds[1])


def stick(P: np.ndarray, Q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(P - math.exp(epsilon) * Q, 0.0).sum())


def response(*epsilons: float) -> tuple[np.ndarray, np.ndarray]:
    """Randomised responses side by side: the pair that the accountants charge."""
    P, Q = np.ones(1), np.ones(1)
    for epsilon in epsilons:
        yes = 1.0 / (1.0 + math.exp(-epsilon))
        P, Q = np.outer(P, [yes, 1 - yes]).ravel(), np.outer(Q, [1 - yes, yes]).ravel()
    return P, Q


def renyi(P: np.ndarray, Q: np.ndarray, order: float) -> float:
    keep = P > 0
    return math.log(float(np.sum(P[keep] ** order * Q[keep] ** (1.0 - order)))) / (order - 1.0)


def test_whatever_runs_between_the_tests_costs_what_the_sum_says() -> None:
    """Hockey sticks and Renyi divergences of whole interactions, against the price of the gate's
    coin and the rest.
    """
    releases, whole = [0.4, 0.8, 0.3], E1 + E2
    charged, short = response(whole, *releases), response(0.35 * whole, *releases)
    exceeded = 0
    for seed in range(25):
        P, Q = interleaved(np.random.default_rng(seed), releases, 1 + seed % 2)
        assert P.sum() == pytest.approx(1.0) and Q.sum() == pytest.approx(1.0)
        for one, two in ((P, Q), (Q, P)):
            for epsilon in np.linspace(0.0, 2.6, 27):
                assert stick(one, two, epsilon) <= stick(*charged, epsilon) + 1e-12
                exceeded += stick(one, two, epsilon) > stick(*short, epsilon) + 1e-9
            for order in (1.5, 2.0, 8.0, 64.0):
                rest = sum(renyi(*response(e), order) for e in releases)
                assert renyi(one, two, order) <= min(whole, order * whole**2 / 2) + rest + 1e-9
    assert exceeded > 20  # a gate that charged a third would be caught


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_every_accountant_charges_the_gates_coin(relation: str) -> None:
    """In each notion the tests' price is that of randomised response, so the one theorem serves
    them all.
    """
    one, e = np.array([1.0]), E1 + E2
    tests = SparseVector("a gate", relation, one * E1, one * E2, 3)
    gated = GatedRelease(
        source="a gate",
        relation=relation,
        sigma=one * 20.0,
        sensitivity=one,
        dimension=4,
        epsilon_threshold=one * E1,
        epsilon_queries=one * E2,
        positives=3,
        index=1,
    )
    orders = (1.5, 4.0, 32.0)
    coin = np.array([min(e, 0.5 * a * e * e) for a in orders])
    assert all(curve >= renyi(*response(e), a) for a, curve in zip(orders, coin, strict=True))
    gaussian = 0.5 / 20.0**2
    np.testing.assert_allclose(PureAccountant().epsilon_of_events([tests]), e)
    np.testing.assert_allclose(prices.zcdp_rho(gated), 0.5 * e * e + gaussian)
    np.testing.assert_allclose(
        prices.renyi_divergences(gated, orders)[0, 0], coin + gaussian * np.array(orders)
    )
    (bill,) = prices.dominating_pairs(gated)[0]
    assert (bill.mu, bill.epsilon) == (pytest.approx(1 / 20.0), pytest.approx(e))
    for delta in (1e-5, 0.01):
        assert (
            stick(*response(e), composed_epsilon(Counter([Bill(epsilon=e)]), delta))
            <= delta + 1e-12
        )
