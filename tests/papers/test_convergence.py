"""002, Theorem 1: closed forms on regular graphs, an independent grid, and the recurrence
itself.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from sottovoce.errors import InvalidInput
from sottovoce.network.graphs import Graph, make_graph
from sottovoce.util.typing import Array, ArrayLike
from sottovoce_papers.convergence import check_convergence, obstacle, smoothness, sufficient_gamma

BIPARTITE = [("ring", 6), ("path", 5), ("star", 5), ("grid", 9), ("ring", 2)]


def gaps(graph: Graph, eta: Array, gamma: float, M: Array, L: float, mu: float) -> Array:
    """Theorem 1 as printed: smallest eigenvalues of (i) and (ii), a row a step."""
    D, A = np.diagflat(graph.degree), graph.adjacency
    rows = []
    for t in range(len(eta)):
        W, W1 = np.diag(eta[t]), np.diag(eta[min(t + 1, len(eta) - 1)])
        spread = 2 * W @ D + gamma * np.eye(len(D))
        inverse, s, D_M = np.linalg.inv(spread), spread.diagonal().min(), np.diag(M**2)
        Q = W1 @ (D + A)
        i = np.eye(len(D)) + Q @ inverse - L * mu / (2 * s) * np.linalg.pinv(W1 @ (D - A)) @ D_M
        ii = Q - Q @ inverse @ (W @ (D - A) + 2 / L * Q) - L * mu / (2 * s * (mu - 1)) * D_M
        rows.append([np.linalg.eigvalsh((X + X.T) / 2)[0] for X in (i, ii)])
    return np.array(rows)


def recurrence(
    graph: Graph, eta: Array, gamma: float, a: Array, b: Array, rounds: int, start: ArrayLike = 0.0
) -> Array:
    """f(2k-1) of 002, (14)-(17) for O_i(f) = a_i (f - b_i)^2 / 2."""
    return pair(graph, eta, gamma, a, b, rounds, start)[0]


def pair(
    graph: Graph, eta: Array, gamma: float, a: Array, b: Array, rounds: int, start: ArrayLike = 0.0
) -> tuple[Array, Array]:
    """The same with Lambda(2k-1): Theorem 1's pair."""
    V, A = graph.degree[:, 0], graph.adjacency
    f, lam, odd = np.zeros(len(a)) + start, np.zeros(len(a)), np.zeros(len(a))
    for k in range(rounds):
        e = eta[min(k, len(eta) - 1)]
        odd = (a * b - 2 * lam + e * (V * f + A @ f)) / (a + 2 * e * V)  # (14)
        lam = lam + e / 2 * (V * odd - A @ odd)  # (15)
        f = odd - (a * (odd - b) + 2 * lam + e * (V * odd - A @ odd)) / (2 * e * V + gamma)  # (16)
    return odd, lam


def test_smoothness() -> None:
    assert smoothness(2.0, 0.25, 1.0, 10) == pytest.approx(0.6)
    with pytest.raises(InvalidInput, match=r"^rho=0: "):
        smoothness(2.0, 0.25, 0, 10)


@pytest.mark.parametrize(
    ("spec", "n"), [("ring", 5), ("ring", 7), ("complete", 4), ("watts-strogatz:p=0", 8)]
)
@pytest.mark.parametrize(("eta", "M"), [(1.0, 0.25), (0.7, 1.0), (1.0, 10.0)])
def test_reduced_form_in_closed_form(spec: str, n: int, eta: float, M: float) -> None:
    graph = make_graph(spec, n)
    V = graph.degree[0, 0]
    q = np.linalg.eigvalsh(np.diagflat(graph.degree) + graph.adjacency)
    rest = q[:-1]  # the last is 2V, with the constant vector, where the pseudo-inverse vanishes
    # (iii) times s = 2 eta V + gamma
    third = np.max(2 * M**2 / (eta * (2 * V - rest)) - 2 * eta * V - eta * rest)
    fourth = 2 * M**2 / (eta * q[0])  # (iv) times s: eta gamma q > 2 M^2
    assert sufficient_gamma(graph, eta, M, reduced=True) == pytest.approx(
        max(third, fourth, 0.0), rel=2e-6
    )
    # L and mu free can only help.
    assert sufficient_gamma(graph, eta, M) <= sufficient_gamma(graph, eta, M, reduced=True)


@pytest.mark.parametrize(("n", "M"), [(5, 1.0), (5, 10.0), (7, 2.0)])
def test_search_on_odd_rings_against_scalars(n: int, M: float) -> None:
    graph = make_graph("ring", n)
    q = np.linalg.eigvalsh(np.diagflat(graph.degree) + graph.adjacency)
    L = np.geomspace(1e-3, 1e2, 1000)[:, None, None]
    mu = 1 + np.geomspace(1e-2, 1e2, 1000)[None, :, None]
    first = L * mu * M**2 / (2 * (4 - q[:-1])) - 4 - q[:-1]  # (i) times s, solved for gamma
    second = L * mu * M**2 / (2 * (mu - 1)) / q - (1 - 2 / L) * q  # (ii) times s, solved for gamma
    needed = np.maximum(first.max(axis=2), second.max(axis=2)).min()
    assert needed * 0.98 <= sufficient_gamma(graph, 1.0, M) <= needed * (1 + 2e-6)


@pytest.mark.parametrize("seed", range(4))
def test_search_against_a_grid_of_constants(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = make_graph("erdos-renyi:p=0.9", 5, seed)
    assert not graph.is_bipartite
    eta = np.cumsum(rng.uniform(0.5, 1.0, (2, 1)) * rng.uniform(0.8, 1.2, (2, 5)), axis=0)
    M = rng.uniform(1.0, 3.0, 5)
    gamma = sufficient_gamma(graph, eta, M)
    assert 0 < gamma < math.inf
    for factor, expected in ((0.97, False), (1.0, True), (1.05, True), (30.0, True)):
        report = check_convergence(graph, eta, factor * gamma, M)
        assert report.holds is expected
        own = gaps(graph, eta, factor * gamma, M, report.L, report.mu).min(axis=0)
        np.testing.assert_allclose([report.gap_i, report.gap_ii], own, rtol=1e-6, atol=1e-12)
        assert (min(report.gap_i, report.gap_ii) > 0) is expected
    constants = [
        (L, mu) for L in np.geomspace(0.05, 50, 25) for mu in 1 + np.geomspace(0.05, 20, 25)
    ]
    assert not any(gaps(graph, eta, 0.97 * gamma, M, L, mu).min() > 0 for L, mu in constants)


@pytest.mark.parametrize("growth", [1.0, 1.02])
def test_accepted_gamma_converges_to_the_optimum(growth: float) -> None:
    rng = np.random.default_rng(0)
    graph, a, b = make_graph("ring", 5), rng.uniform(0.5, 2.0, 5), rng.normal(size=5)
    eta = np.repeat(growth ** np.arange(30)[:, None], 5, axis=1)
    gamma = sufficient_gamma(graph, eta, a)
    assert 0 < gamma < math.inf
    report = check_convergence(graph, eta, gamma, a)
    assert report.holds
    assert report.optimal
    assert report.fails == ()
    assert "satisfies" in str(report)
    smaller = check_convergence(graph, eta, 0.99 * gamma, a)
    assert not smaller.holds
    assert smaller.fails[0][1] == 1
    np.testing.assert_allclose(
        recurrence(graph, eta, gamma, a, b, 2000), np.sum(a * b) / np.sum(a), atol=1e-10
    )


def test_large_penalties_need_no_gamma() -> None:
    assert sufficient_gamma(make_graph("complete", 4), 1.0, 0.25) == 0.0
    assert check_convergence(make_graph("complete", 4), 1.0, 0.0, 0.25).holds


@pytest.mark.parametrize(("spec", "n"), BIPARTITE)
@pytest.mark.parametrize("alike", [True, False])
def test_bipartite_graphs_never_satisfy_ii(spec: str, n: int, alike: bool) -> None:
    rng = np.random.default_rng(1)
    graph, a, b = make_graph(spec, n), rng.uniform(0.5, 2.0, n), rng.normal(size=n)
    eta = np.ones((2, n)) if alike else np.cumsum(rng.uniform(0.5, 1.5, (2, n)), axis=0)
    assert sufficient_gamma(graph, eta, a) == math.inf
    assert "bipartite" in obstacle(graph)
    for gamma in (0.0, 0.5, 1e3, 1e6):
        report = check_convergence(graph, eta, gamma, a)
        assert not report.holds
        assert "(ii)" in [condition for condition, _ in report.fails]
        assert "singular" in report.reason
        # x = W(t+1)^-1 v with v = +-1 by colour refutes (ii) for every L and mu.
        colour = np.sign(np.linalg.eigh(np.diagflat(graph.degree) + graph.adjacency)[1][:, 0])
        x = colour / eta[-1]
        assert (
            np.abs(x @ np.diag(eta[-1]) @ (np.diagflat(graph.degree) + graph.adjacency)).max()
            < 1e-12
        )
        for L, mu in ((0.1, 1.5), (2.0, 2.0), (50.0, 10.0)):
            assert gaps(graph, eta, gamma, a, L, mu)[:, 1].max() <= 1e-9
    if alike:  # sufficient, not necessary
        found = recurrence(graph, eta, 0.5, a, b, 3000)
        np.testing.assert_allclose(found, np.sum(a * b) / np.sum(a), atol=1e-9)


@pytest.mark.parametrize(("spec", "n"), BIPARTITE)
def test_bipartite_graphs_fail_ii_by_eigenvalues_too(spec: str, n: int) -> None:
    """Read of eigenvalues: x above is a left one's vector, for -L mu M^2 / (2 s (mu - 1)), if
    all M_i are M.
    """
    graph, eta = make_graph(spec, n), np.random.default_rng(1).uniform(0.5, 1.5, n)
    D, A, M, L, mu = np.diagflat(graph.degree), graph.adjacency, 0.7, 2.0, 3.0
    colour = np.sign(np.linalg.eigh(D + A)[1][:, 0])
    for gamma in (0.5, 1e6):
        spread = 2 * eta * graph.degree[:, 0] + gamma
        P, last = eta[:, None] * (D + A), L * mu / (2 * spread.min() * (mu - 1)) * M**2
        ii = P - P / spread @ (eta[:, None] * (D - A) + 2 / L * P) - last * np.eye(n)
        np.testing.assert_allclose((colour / eta) @ ii, -last * colour / eta, atol=1e-12)
        assert np.linalg.eigvals(ii).real.min() < -last * (1 - 1e-6) < 0


def test_one_node() -> None:
    assert sufficient_gamma(make_graph("path", 1), 1.0, 1.0) == math.inf
    assert not check_convergence(make_graph("path", 1), 1.0, 1.0, 1.0).holds
    with pytest.raises(InvalidInput, match=r"^gamma.*single node"):
        check_convergence(make_graph("path", 1), 1.0, 0.0, 1.0)


def test_penalties_that_differ_move_the_limit() -> None:
    """The conditions hold and the nodes agree, but on the minimiser of sum O_i / eta_i: Theorem
    1 fails there.
    """
    rng = np.random.default_rng(2)
    graph, a, b = make_graph("complete", 4), rng.uniform(0.5, 2.0, 4), rng.normal(size=4)
    eta = np.array([1.0, 1.3, 0.8, 1.1])
    gamma = sufficient_gamma(graph, eta, a)
    report = check_convergence(graph, eta, gamma, a)
    assert report.holds
    assert not report.optimal
    assert "off the optimum" in report.reason
    found = recurrence(graph, eta[None], gamma, a, b, 3000)
    np.testing.assert_allclose(found, np.sum(a * b / eta) / np.sum(a / eta), atol=1e-10)
    assert abs(found[0] - np.sum(a * b) / np.sum(a)) > 1e-3


# the optimum is 2
TRIANGLE, ONES, TARGETS = (
    make_graph("complete", 3),
    np.ones(3),
    np.array([0.0, 1.0, 5.0]),
)


def unmet(f: Array, lam: Array) -> tuple[float, float, float]:
    """How far a pair on the triangle is from (30), from (31), and from Lemma 1's 2 Lambda = (D -
    A) X.
    """
    laplacian = np.diagflat(TRIANGLE.degree) - TRIANGLE.adjacency
    beside = 2 * lam - laplacian @ (np.linalg.pinv(laplacian) @ (2 * lam))
    return tuple(float(np.abs(x).max()) for x in (f - TARGETS + 2 * lam, laplacian @ f, beside))  # type: ignore[return-value]


def test_lemma_1_and_that_a_pair_with_30_and_31_alone_is_no_optimum() -> None:
    """With 2 Lambda = (D - A) X it is the optimum; the sentence after drops that, and any
    consensus will do.
    """
    for consensus in (2.0, 19 / 13, -7.0):
        f = np.full(3, consensus)
        lam = (TARGETS - f) / 2  # the only one with (30)
        met = unmet(f, lam)
        assert max(met[:2]) < 1e-12
        assert (met[2] < 1e-12) == (consensus == 2.0)
    assert unmet(np.array([2.0, 2.0, 2.1]), np.zeros(3))[1] > 0.09  # (31) is consensus


def test_penalties_that_differ_between_nodes_end_at_a_pair_that_is_no_optimum() -> None:
    """Every hypothesis of 002, Theorem 1 holds: the limit is a pair with (30), (31), 19/13 where
    the optimum is 2.
    """
    eta, gamma = np.array([[1.0, 1.5, 2.0]]), 5.0
    report = check_convergence(TRIANGLE, eta, gamma, ONES)
    assert report.holds and report.L > 0 and report.mu > 1 and not report.optimal
    # (i), (ii) as printed
    assert gaps(TRIANGLE, eta, gamma, ONES, report.L, report.mu).min() > 1e-3
    limit, lam = pair(TRIANGLE, eta, gamma, ONES, TARGETS, 3000)
    np.testing.assert_allclose(limit, 19 / 13, atol=1e-12)
    met = unmet(limit, lam)
    assert max(met[:2]) < 1e-11 and met[2] > 0.1
    # sum of gradients: not the optimum
    assert np.sum(limit - TARGETS) == pytest.approx(3 * (19 / 13 - 2))
    # but that of sum O_i / eta_i
    assert np.sum((limit - TARGETS) / eta[0]) == pytest.approx(0, abs=1e-12)
    # The control: one penalty for all reaches it from the same gamma, also from a random f(0), as
    # the listings have it.
    for start in (0.0, np.random.default_rng(0).normal(size=3)):
        same = recurrence(TRIANGLE, np.ones((1, 3)), gamma, ONES, TARGETS, 3000, start)
        np.testing.assert_allclose(same, 2.0, atol=1e-12)


@pytest.mark.parametrize(("q", "limit"), [(1.2, 1.81674), (1.5, 1.246092)])
def test_theorem_1_is_refuted_for_penalties_that_grow_for_ever(q: float, limit: float) -> None:
    """Figure 1(c)'s q^k: the conditions hold in every round for one L and mu, and the nodes stop
    on the way.
    """
    eta = np.repeat(q ** np.arange(1, 81)[:, None], 3, axis=1)
    gamma = sufficient_gamma(TRIANGLE, eta[:30], ONES)
    report = check_convergence(TRIANGLE, eta[:30], gamma, ONES)
    assert report.holds and report.optimal
    found = gaps(TRIANGLE, eta, gamma, ONES, report.L, report.mu)[:-1]
    assert found.min() > 0  # and in rounds 31 to 80 for the same L and mu
    # (ii) over eta tends to this, which is positive, so that it holds for ever; the right side of
    # (i) vanishes
    assert found[-1, 1] / eta[-2, 0] == pytest.approx(q * (1 - 2 * q / report.L) / 4, rel=1e-3)
    for rounds in (70, 80):
        f, lam = pair(TRIANGLE, eta, gamma, ONES, TARGETS, rounds)
        np.testing.assert_allclose(f, limit, atol=1e-5)
        # (27) keeps the sum of lambda at 0, and that of gradients is not: the limit misses (30),
        # not only the optimum
        assert np.sum(lam) == pytest.approx(0, abs=1e-9) and unmet(f, lam)[0] > (2 - limit) / 2
    # The other reading of "eta_i(t) < inf", a bound for all rounds: from the last penalty on it is
    # reached.
    bounded = eta[:10]
    np.testing.assert_allclose(
        recurrence(TRIANGLE, bounded, gamma, ONES, TARGETS, 6000), 2.0, atol=1e-6
    )


@pytest.mark.parametrize(("spec", "n"), BIPARTITE)
def test_bipartite_graphs_never_satisfy_iv(spec: str, n: int) -> None:
    """002: "for a sufficiently large gamma (iii)(iv) can be easily satisfied"; in both readings
    of X > Y it is not.
    """
    graph, M, eta = make_graph(spec, n), 0.7, 1.3
    D, A = np.diagflat(graph.degree), graph.adjacency
    assert sufficient_gamma(graph, eta, M, reduced=True) == math.inf
    colour = np.sign(np.linalg.eigh(D + A)[1][:, 0])
    for gamma in (0.0, 0.5, 1e3, 1e6):
        assert "(iv)" in dict(check_convergence(graph, eta, gamma, M, reduced=True).fails)
        spread = 2 * eta * graph.degree[:, 0] + gamma
        last = 2 / spread.min() * M**2
        iv = eta * (D + A) - 2 * eta * (D + A) / spread @ (eta * D) - last * np.eye(n)
        # an eigenvalue below 0,
        np.testing.assert_allclose(colour @ iv, -last * colour, atol=1e-12)
        assert colour @ iv @ colour < 0  # and so a quadratic form


def test_the_gamma_that_theorem_1_asks_for_in_the_experiments() -> None:
    """C = 1750, rho = 0.22, 002-fig1's graph with a triangle: 1,560 for (i) and (ii), 3.8e5 for
    (iii) and (iv).
    """
    graph, M = make_graph("erdos-renyi:p=0.6", 5, 0), smoothness(1750.0, 0.25, 0.22, 5)
    gamma = sufficient_gamma(graph, 1.0, M)
    assert gamma == pytest.approx(1560, rel=1e-3)
    assert sufficient_gamma(graph, 1.0, M, reduced=True) == pytest.approx(3.829e5, rel=1e-3)
    report = check_convergence(graph, 1.0, gamma, M)
    assert gaps(graph, np.ones((1, 5)), gamma, np.full(5, M), report.L, report.mu).min() > 0
    assert not check_convergence(graph, 1.0, 0.5, M).holds  # the papers' gamma


def test_a_larger_penalty_shrinks_the_penalty_term_and_not_every_update() -> None:
    """002, III-B3: argmin O + eta P has a smaller P with a larger eta; but P pulls to midpoints,
    not to f_i(2k-2).
    """
    rng, graph = np.random.default_rng(0), make_graph("ring", 5)
    V, A, etas = graph.degree[:, 0], graph.adjacency, np.geomspace(1e-3, 1e3, 40)

    def update(eta: float, f: Array, a: Array, b: Array, lam: Array) -> Array:
        return (a * b - 2 * lam + eta * (V * f + A @ f)) / (a + 2 * eta * V)  # (14)

    def penalty(new: Array, f: Array) -> Array:
        return (A * ((f[:, None] + f[None, :]) / 2 - new[:, None]) ** 2).sum(axis=1)

    for _ in range(20):
        f, a, b, lam = (
            rng.normal(size=5),
            rng.uniform(0.5, 2.0, 5),
            rng.normal(size=5),
            rng.normal(size=5),
        )
        terms = np.array([penalty(update(eta, f, a, b, lam), f) for eta in etas])
        assert np.all(np.diff(terms, axis=0) < 0)
        agree = np.full(5, f[0])
        moved = np.array([np.abs(update(eta, agree, a, b, lam) - agree) for eta in etas])
        assert np.all(np.diff(moved, axis=0) < 0)  # where the nodes agree, every update shrinks too
    # node 0 is at its own minimum, and its neighbours are not
    f = np.array([0.0, 2.0, 2.0, 2.0, 2.0])
    moved = np.array([abs(update(eta, f, np.ones(5), np.zeros(5), np.zeros(5))[0]) for eta in etas])
    np.testing.assert_allclose(moved, 4 * etas / (1 + 4 * etas))
    assert np.all(np.diff(moved) > 0)


def test_8_and_12_to_the_letter_miss_the_optimum() -> None:
    """(8) and (12) print 1/2 |f_i + f_j - f|^2 where (14), (22) and (29) have |(f_i + f_j) / 2 -
    f|^2.
    """
    V, A = TRIANGLE.degree[:, 0], TRIANGLE.adjacency

    def admm(eta: float, letter: bool) -> Array:
        f, lam = np.zeros(3), np.zeros(3)
        for _ in range(2000):
            f = (TARGETS - 2 * lam + eta * (V * f + A @ f)) / (1 + (1 if letter else 2) * eta * V)
            lam = lam + eta / 2 * (V * f - A @ f)  # (9)
        return f

    for eta in (0.1, 0.2, 0.3):
        np.testing.assert_allclose(admm(eta, letter=False), 2.0, atol=1e-9)
        # sum (f - b_i) = eta V N f
        np.testing.assert_allclose(admm(eta, letter=True), 6 / (3 - 6 * eta), atol=1e-9)


def test_penalties_that_differ_much() -> None:
    # W(D+A) is not positive definite here, but W(D+A) - c (W(D+A))^2 is for some c: a large gamma
    # does.
    graph = Graph("g", 5, ((0, 1), (0, 2), (0, 3), (2, 3), (3, 4)))
    eta = np.array([0.57, 0.28, 0.84, 0.88, 0.077])
    P = eta[:, None] * (np.diagflat(graph.degree) + graph.adjacency)
    assert np.linalg.eigvalsh(P + P.T)[0] < 0
    assert obstacle(graph, eta) == ""
    gamma = sufficient_gamma(graph, eta, 0.187)
    assert gamma > 1
    assert [check_convergence(graph, eta, x * gamma, 0.187).holds for x in (0.99, 1, 10, 1e4)] == [
        False
    ] + [True] * 3
    # And here no c does.
    graph = make_graph("complete", 3)
    assert obstacle(graph, [1.0, 1.1, 1.0]) == ""
    why = "no large gamma satisfies (ii): the penalties differ too much between nodes"
    assert obstacle(graph, [0.01, 1.0, 100.0]) == why
    assert sufficient_gamma(graph, [0.01, 1.0, 100.0], 1e-3) == math.inf


def test_step_of_failure() -> None:
    graph, M = make_graph("complete", 3), np.full(3, 0.1)
    eta = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 100.0, 1e4]])
    report = check_convergence(graph, eta, 1.0, M)
    rows = gaps(graph, eta, 1.0, M, report.L, report.mu)
    bad = [c for c in (0, 1) if rows[:, c].min() <= 0]
    assert report.fails == tuple((("(i)", "(ii)")[c], int(np.argmin(rows[:, c])) + 1) for c in bad)
    assert all(step >= 3 for _, step in report.fails)
    assert "(ii)" in dict(report.fails)


def test_shapes_of_penalties_and_the_reduced_form() -> None:
    graph = make_graph("ring", 5)
    same = [
        check_convergence(graph, eta, 3.0, M)
        for eta, M in (
            (1.0, 1.0),
            (np.ones(5), np.ones(5)),
            (np.ones((7, 1)), 1.0),
            (np.ones((7, 5)), [1.0]),
        )
    ]
    assert all(report == same[0] for report in same)
    assert check_convergence(graph, 1.0, 5.3, 1.0, reduced=True).L == 2.0
    assert check_convergence(graph, 1.0, 5.2, 1.0, reduced=True).fails == (("(iv)", 1),)


@pytest.mark.parametrize(
    ("eta", "gamma", "M", "text"),
    [
        (
            [[1.0] * 5, [2.0] * 5, [2.0, 2.0, 1.5, 2.0, 2.0]],
            1.0,
            1.0,
            "eta: falls from 2 to 1.5 at step 2 (node 2)",
        ),
        (0.0, 1.0, 1.0, "every penalty must be finite and > 0"),
        ([1.0, 2.0], 1.0, 1.0, "eta=(2,): must be a number or of shape (5,), (T, 1) or (T, 5)"),
        (1.0, -1.0, 1.0, "gamma=-1.0: must be finite and >= 0"),
        (1.0, math.inf, 1.0, "gamma=inf: must be finite"),
        (1.0, 1.0, 0.0, "M=0.0: must be finite and > 0"),
        (1.0, 1.0, [1.0, 2.0], "M=(2,): must be a number or have shape (5,)"),
    ],
)
def test_bad_values(eta: float, gamma: float, M: float, text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_convergence(make_graph("ring", 5), eta, gamma, M)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_reduced_form_needs_one_penalty() -> None:
    with pytest.raises(InvalidInput, match=r"^eta: .*constant penalty"):
        check_convergence(make_graph("ring", 3), [[1.0], [2.0]], 1.0, 1.0, reduced=True)
