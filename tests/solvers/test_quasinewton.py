"""The compact form of BFGS against the textbook's two loops."""

from __future__ import annotations

import numpy as np
import pytest

from sottovoce.solvers.quasinewton import MEMORY, Memory, Problem, gather_memories

M, R, D = 2, 3, 6


def problem(rng: np.random.Generator, how: str) -> Problem:
    half = rng.standard_normal((M, D, D))
    hessian, q = half @ half.transpose(0, 2, 1) / D, np.full((M, R, 1), 0.3)
    c, weight = np.zeros((M, R, D)), np.ones((M, 1, 1))
    if how == "inverse":
        return Problem(
            c, q, weight, None, np.zeros((M, 1, D)), np.linalg.inv(hessian + 0.3 * np.eye(D))
        )
    if how == "diagonal":
        return Problem(c, q, weight, None, np.abs(rng.standard_normal((M, 1, D))))
    values, vectors = np.linalg.eigh(hessian)
    return Problem(c, q, weight, vectors, values[:, None, :])


def pairs(rng: np.random.Generator, many: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Steps and changes of gradients of one convex quadratic, so that all products are positive."""
    half = rng.standard_normal((D, D))
    bent = half @ half.T / D + 0.1 * np.eye(D)
    steps = [10.0 ** -rng.integers(0, 7) * rng.standard_normal((M, R, D)) for _ in range(many)]
    return [(s, s @ bent) for s in steps]


def two_loops(
    g: np.ndarray, steps: list[tuple[np.ndarray, np.ndarray]], one: Problem
) -> np.ndarray:
    p, alphas = -g, []
    for s, y in reversed(steps):
        sy = np.sum(s * y, axis=-1, keepdims=True)
        alpha = np.divide(
            np.sum(s * p, axis=-1, keepdims=True), sy, out=np.zeros_like(sy), where=sy > 0
        )
        p = p - alpha * y
        alphas.append(alpha)
    p = one.precondition_gradient(p)
    for (s, y), alpha in zip(steps, reversed(alphas), strict=True):
        sy = np.sum(s * y, axis=-1, keepdims=True)
        beta = np.divide(
            np.sum(y * p, axis=-1, keepdims=True), sy, out=np.zeros_like(sy), where=sy > 0
        )
        p = p + s * (alpha - beta)
    return p


def remember(memory: Memory, steps: list[tuple[np.ndarray, np.ndarray]], one: Problem) -> None:
    for s, y in steps:
        sy = np.sum(s * y, axis=-1)
        memory.add_pair(s, y, one.precondition_gradient(y), sy)


@pytest.mark.parametrize("how", ["inverse", "spectrum", "diagonal"])
@pytest.mark.parametrize("many", [0, 1, 4, MEMORY, MEMORY + 3])
def test_directions_are_those_of_the_two_loops(how: str, many: int) -> None:
    rng = np.random.default_rng(many)
    one, steps, g = problem(rng, how), pairs(rng, many), rng.standard_normal((M, R, D))
    for k, (s, y) in enumerate(steps):  # now and then a problem takes no step
        s[k % M, k % R] = y[k % M, k % R] = 0.0
    memory = Memory((M, R, D))
    remember(memory, steps, one)
    expected = two_loops(g, steps[-MEMORY:], one)
    found = memory.direction(g, one.precondition_gradient(g))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7 * np.abs(expected).max())


def test_a_cut_memory_is_that_of_the_problems_kept() -> None:
    rng = np.random.default_rng(1)
    one, steps, g = problem(rng, "spectrum"), pairs(rng, 5), rng.standard_normal((M, R, D))
    memory, cut = Memory((M, R, D)), np.ix_([1], [0, 2])
    remember(memory, steps, one)
    whole = memory.direction(g, one.precondition_gradient(g))
    kept, part = memory.keep(cut), one.subset_of_solves(np.array([1]), np.array([0, 2]))
    np.testing.assert_allclose(
        kept.direction(g[cut], part.precondition_gradient(g[cut])), whole[cut], rtol=1e-10
    )


def test_memories_of_parts_are_gathered_and_lost_pairs_dropped() -> None:
    """Two problems stop early; of one pair the change of the gradient is too short to be told
    from rounding.
    """
    rng = np.random.default_rng(2)
    one, steps, g = problem(rng, "inverse"), pairs(rng, 6), rng.standard_normal((M, R, D))
    early, told = Memory((M, R, D)), 1e-4
    steps[2] = (
        steps[2][0] / np.linalg.norm(steps[2][1]) * 1e-6,
        steps[2][1] / np.linalg.norm(steps[2][1]) * 1e-6,
    )
    remember(early, steps[:4], one)
    cut = np.ix_([0, 1], [1])
    late = early.keep(cut)
    remember(
        late,
        [(s[cut], y[cut]) for s, y in steps[4:]],
        one.subset_of_solves(np.arange(2), np.array([1])),
    )
    whole = gather_memories(one, [(np.ix_([0, 1], [0, 1, 2]), early), (cut, late)], (M, R, D), told)
    found = whole.direction(g, one.precondition_gradient(g))

    def known(last: int) -> list[tuple[np.ndarray, np.ndarray]]:
        kept = [np.linalg.norm(y, axis=-1, keepdims=True) >= told for _, y in steps[:last]]
        return [(s * k, y * k) for (s, y), k in zip(steps[:last], kept, strict=True)]

    np.testing.assert_allclose(found[:, [0, 2]], two_loops(g, known(4), one)[:, [0, 2]], rtol=1e-7)
    np.testing.assert_allclose(found[:, 1], two_loops(g, known(6), one)[:, 1], rtol=1e-7)
