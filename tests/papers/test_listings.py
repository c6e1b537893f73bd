"""000 and 001: from (1) and (2) to Algorithm 1, and the tail bounds behind 001's theorems on accuracy, by number."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import gamma

NODES, ETA, RHO, TARGETS = 3, 0.7, 0.4, np.array([1.0, -2.0, 5.0])  # all are neighbours; the loss is (f - target)^2 / 2


def consensus(rounds: int) -> np.ndarray:
    """(9) to (11)."""
    f, dual, found = np.zeros(NODES), np.zeros(NODES), []
    for _ in range(rounds):
        near = np.array([sum((f[p] + f[i]) / 2 for i in range(NODES) if i != p) for p in range(NODES)])
        f = (TARGETS - 2 * dual + 2 * ETA * near) / (1 + RHO + 2 * ETA * (NODES - 1))
        dual = dual + ETA / 2 * np.array([sum(f[p] - f[j] for j in range(NODES)) for p in range(NODES)])
        found.append(f)
    return np.array(found)


def multipliers(rounds: int, *, of_neighbour: bool) -> np.ndarray:
    """(5) to (8) with the Lagrangians (4) of all nodes; `of_neighbour`: (8) with f_j, not as printed with f_p."""
    f, found = np.zeros(NODES), []
    w, a, b = (np.zeros((NODES, NODES)) for _ in range(3))
    others = [[i for i in range(NODES) if i != p] for p in range(NODES)]
    for _ in range(rounds):
        pulls = [
            sum(-a[p, i] + b[i, p] + ETA * (w[p, i] + w[i, p]) for i in others[p]) for p in range(NODES)
        ]  # f_p is in its own constraints and in those of its neighbours
        f = (TARGETS + np.array(pulls)) / (1 + RHO + 2 * ETA * (NODES - 1))
        w = np.array([[(ETA * (f[p] + f[j]) + a[p, j] - b[p, j]) / (2 * ETA) for j in range(NODES)]
                      for p in range(NODES)])  # fmt: skip
        a = a + ETA * (f[:, None] - w)
        b = b + ETA * (w - (f[None, :] if of_neighbour else f[:, None]))
        found.append(f)
    return np.array(found)


def test_algorithm_1_follows_from_8_with_the_neighbours_f_and_not_as_printed() -> None:
    np.testing.assert_allclose(multipliers(12, of_neighbour=True), consensus(12), atol=1e-12)
    assert np.abs(multipliers(12, of_neighbour=False) - consensus(12)).max() > 0.1


def test_algorithm_1_ends_at_the_minimiser_of_2_which_is_not_that_of_1() -> None:
    of_2 = TARGETS.sum() / (NODES * (1 + RHO))  # rho R once a node
    of_1 = TARGETS.sum() / (NODES + RHO)  # rho R once
    np.testing.assert_allclose(consensus(400)[-1], of_2, atol=1e-9)
    assert abs(of_1 - of_2) > 0.1


@pytest.mark.parametrize("d", [1, 2, 20, 100])
@pytest.mark.parametrize("delta", [0.5, 0.05, 1e-3])
def test_lemma_17_bounds_the_tail_of_a_gamma_variable(d: int, delta: float) -> None:
    assert gamma.sf(d * math.log(d / delta), d) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("C", [1.0, 1750.0])
@pytest.mark.parametrize("d", [1, 20, 100])
def test_lemmas_18_and_20_where_the_loss_is_nearly_nothing(C: float, d: int) -> None:
    """Objectives are quadratic then, so the excess has a known law: |noise| is a gamma variable.

    Lemma 18 needs (C^R)^2, which its proof has and its statement has not.  Lemma 20 holds.
    """
    delta, rho, B, alpha, c4 = 0.05, 0.01, 1000.0, 0.5, 1e-9
    hat = 0.9 * alpha
    bound = 16 * d**2 * math.log(d / delta) ** 2 / (rho * B**2 * alpha**2)

    def chance(most: float) -> float:  # that C^2 |noise|^2 / (2 rho B^2) <= most; the noise has zeta = alpha-hat / 2
        return float(gamma.cdf(math.sqrt(2 * rho * most) * B / C * hat / 2, d))

    assert chance(C**2 * bound) >= 1 - delta
    assert (chance(bound) >= 1 - delta) == (C == 1.0)
    psi = 4 * C**2 * d**2 * (rho + c4 * C) * math.log(d / delta) ** 2 / (rho**2 * B**2 * alpha**2)
    assert gamma.cdf(math.sqrt(2 * psi / (rho + c4 * C)) * rho * B * alpha / (2 * C), d) >= 1 - delta
