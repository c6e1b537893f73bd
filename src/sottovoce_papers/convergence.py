"""Convergence of the recycled methods: Theorem 1 of 002 and its reduced form, checked by number.

With A the adjacency, D the degrees, W(t) = diag eta_i in the t-th odd round, D~(t) = 2 W(t) D +
gamma I, s(t) = min_i D~(t)_ii and D_M = diag M_i^2, the theorem asks for constants L > 0, mu > 1,
the same in all rounds:

    (i)   I + W(t+1)(D+A) D~(t)^-1  >  L mu / (2 s(t)) (W(t+1)(D-A))^+ D_M, (ii)  W(t+1)(D+A)  >
    W(t+1)(D+A) D~(t)^-1 (W(t)(D-A) + (2/L) W(t+1)(D+A)) + L mu / (2 s(t) (mu-1)) D_M.

The matrices are not symmetric; ``X > Y`` is read as ``x'(X - Y)x > 0`` for all ``x != 0``, as a
proof by quadratic forms needs it.

The theorem concludes that odd rounds converge to a pair (f, Lambda) with (30), ``grad O + 2 Lambda
= 0``, and (31), consensus; the sentence after Lemma 1 takes such a pair for the minimiser of
``sum_i O_i``.  Both conditions met, ``docs/reference/methods.md`` proves:

* Penalties unequal between nodes, constant over rounds: *the sentence is refuted*.  (27) conserves
  ``sum_i lambda_i / eta_i = 0``, so that the limit minimises ``sum_i O_i / eta_i``: 19/13 and not 2
  on a triangle with eta = 1, 3/2, 2 and O_i(f) = (f - b_i)^2 / 2, b = 0, 1, 5.  It is a pair as
  promised: every consensus is, unless ``2 Lambda = (D - A) X`` as in Lemma 1.
* Penalties equal, and growing as q^k for ever (q > 1): *the theorem is refuted*.  A round moves the
  nodes' average by O(1 / eta), and the sum of 1 / eta is finite: they stop on the way, where (30)
  does not hold.  Penalties that stay bounded (the theorem's ``eta_i(t) < inf`` says it of each)
  reach the minimiser.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from sottovoce.errors import InvalidInput
from sottovoce.network.graphs import Graph
from sottovoce.util.typing import Array, ArrayLike

PAPER = 2.0  # the value of both L and mu with which 002 reduces (i), (ii) to (iii), (iv) for R-ADMM


@dataclass(frozen=True)
class ConvergenceReport:
    """What :func:`check_convergence` found; the conditions are sufficient only."""

    holds: bool  # (i) and (ii) in all rounds
    # the conditions that fail, each with the step, from 1, at which it fails worst
    fails: tuple[tuple[str, int], ...]
    gap_i: float  # smallest eigenvalue over all steps of the symmetric part of left minus right
    gap_ii: float  # the same of (ii), in units of eta
    L: float  # as found, or the paper's 2 if one condition alone has none
    mu: float
    optimal: bool  # penalties are alike across nodes; if not, the nodes agree away from the optimum
    reason: str  # the result in one line

    def __str__(self) -> str:
        return self.reason


def smoothness(C: float, c1: float, rho: float, N: int) -> float:
    """Compute M_i of 002, Assumption 3, the Lipschitz constant of a node's gradient.

    It is ``C c1 + rho / N`` for rows in the unit ball.

    Parameters
    ----------
    C : float
        Weight of the mean loss.
    c1 : float
        Bound on the second derivative of the loss, ``L'' <= c1``.
    rho : float
        Weight of the regulariser of all nodes together.
    N : int
        Number of nodes.

    Returns
    -------
    float

    Raises
    ------
    InvalidInput
        If a number is not finite and > 0.
    """
    for name, value in (("C", C), ("c1", c1), ("rho", rho), ("N", N)):
        if not (math.isfinite(value) and value > 0):
            raise InvalidInput(
                name, value, "must be finite and > 0", "use the values of the public facts"
            )
    return C * c1 + rho / N


def check_convergence(
    graph: Graph, eta: ArrayLike, gamma: float, M: ArrayLike, *, reduced: bool = False
) -> ConvergenceReport:
    """Check the sufficient conditions of 002, Theorem 1; the search for L and mu is exact.

    Parameters
    ----------
    graph : Graph
        Of N nodes.
    eta : float, array of shape (N,), or array of shape (T, N) or (T, 1)
        Penalties: one for all, one a node, or one row an odd round; the last row holds from there
        on.
    gamma : float
        Weight of the proximal term of even rounds.
    M : float or array of shape (N,)
        Lipschitz constants of the nodes' gradients; see :func:`smoothness`.
    reduced : bool
        Check (iii), (iv) for R-ADMM: one constant penalty, and L = mu = 2.

    Returns
    -------
    ConvergenceReport

    Raises
    ------
    InvalidInput
        For a penalty that falls (the message names the round), and for values out of range.
    """
    return _Conditions(graph, eta, M, reduced).at(_gamma(graph, gamma))


def obstacle(graph: Graph, eta: ArrayLike = 1.0) -> str:
    """Return why no large gamma satisfies (ii) with these penalties, or "" if one does."""
    return _Conditions(graph, eta, 1.0, False).obstacle()


def sufficient_gamma(graph: Graph, eta: ArrayLike, M: ArrayLike, *, reduced: bool = False) -> float:
    """Find the smallest gamma, within a relative 1e-6, that :func:`check_convergence` accepts.

    It is found by doubling and bisection: exact where acceptance is monotone in gamma, else the
    lower end of one accepted interval.

    Parameters
    ----------
    graph : Graph
        Of N nodes.
    eta : float or array
        Penalties, as for :func:`check_convergence`.
    M : float or array of shape (N,)
        Lipschitz constants of the nodes' gradients; see :func:`smoothness`.
    reduced : bool
        Use the conditions (iii), (iv) for R-ADMM.

    Returns
    -------
    float
        ``inf`` if none was found, for the reason that :func:`obstacle` gives.
    """
    conditions = _Conditions(graph, eta, M, reduced)
    if graph.is_bipartite:
        return math.inf
    if conditions.at(0.0, decide=True).holds:
        return 0.0
    low, high = 0.0, conditions.scale * 2.0**-20
    for _ in range(70):
        if conditions.at(high, decide=True).holds:
            break
        low, high = high, 2 * high
    else:
        return math.inf
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        if conditions.at(middle, decide=True).holds:
            high = middle
        else:
            low = middle

        if high <= 1e-9 * conditions.scale:
            break
    return high


class _Conditions:
    """Conditions (i) and (ii) for all steps at once, as functions of gamma, L and mu.

    A step is a pair of successive odd rounds, t and t + 1; equal pairs are checked once.  Arrays
    are (steps, N, N).
    """

    def __init__(self, graph: Graph, eta: ArrayLike, M: ArrayLike, reduced: bool) -> None:
        self.graph, self.reduced = graph, reduced
        penalties = _penalties(graph, eta)
        if reduced and np.ptp(penalties) > 0:
            raise InvalidInput("eta", None, "R-ADMM has one constant penalty", "use reduced=False")
        self.optimal = not np.any(np.ptp(penalties, axis=1))
        # the last row holds from there on
        now, after = penalties, np.vstack([penalties[1:], penalties[-1:]])
        _, first = np.unique(np.hstack([now, after]), axis=0, return_index=True)
        # a repeated pair of rounds is checked once
        self.steps = np.sort(first)
        self.now, after = now[self.steps], after[self.steps]
        self.M2 = _smoothness(graph, M) ** 2
        D, A = np.diagflat(graph.degree), graph.adjacency
        self.P = after[:, :, None] * (D + A)  # W(t+1)(D+A)
        self.laplacian = self.now[:, :, None] * (D - A)  # W(t)(D-A)
        # (W(t+1)(D-A))^+ D_M
        self.G = _symmetric(np.linalg.pinv(after[:, :, None] * (D - A)) * self.M2)
        self.scale = float(np.max(self.now) * max(1.0, np.max(graph.degree)))

    def obstacle(self) -> str:
        """Return why no large gamma satisfies (ii), or "": see :func:`obstacle`."""
        if self.graph.is_bipartite:
            return "no gamma satisfies (ii) on a bipartite graph: D + A is singular"
        square = self.P @ self.P
        # a bracket by the mean eigenvalue, as in `_constants`
        low, high = 0.0, float(np.min(_trace(self.P) / _trace(square)))
        # the smallest eigenvalue is concave in c: bisect on the sign of a supergradient
        for _ in range(40):
            c = (low + high) / 2
            values, vectors = np.linalg.eigh(_symmetric(self.P - c * square))
            step = int(np.argmin(values[:, 0]))
            if values[step, 0] > _rounding(self.P):
                return ""
            x = vectors[step, :, 0]
            if x @ square[step] @ x < 0:
                low = c
            else:
                high = c
        return "no large gamma satisfies (ii): the penalties differ too much between nodes"

    def at(self, gamma: float, decide: bool = False) -> ConvergenceReport:
        """Check both conditions at this gamma.

        With `decide` only ``holds`` is exact, because the search ends once that is known.
        """
        N = self.graph.n_nodes
        spread = 2 * self.now * self.graph.degree[:, 0] + gamma  # diagonal of D~(t)
        sigma = np.min(spread, axis=1)
        PD = self.P / spread[:, None, :]
        H = np.eye(N) + _symmetric(PD)  # left side of (i)
        # (ii): E - (2/L) F > b D_M
        E = _symmetric(self.P - PD @ self.laplacian)
        F = _symmetric(PD @ self.P)
        # (iii), (iv) are (i), (ii) at the paper's constants
        if self.reduced:
            L, mu, labels = PAPER, PAPER, ("(iii)", "(iv)")
        else:
            L, mu = self._constants(sigma, H, E, F, decide)
            labels = ("(i)", "(ii)")
        a = (L * mu / (2 * sigma))[:, None, None]
        left, right = H - a * self.G, E - (2 / L) * F - a / (mu - 1) * np.diag(self.M2)
        gaps = np.linalg.eigvalsh(np.stack([left, right]))[:, :, 0]
        worst = np.argmin(gaps, axis=1)
        gap = np.min(gaps, axis=1)
        bad = [
            bool(gap[0] <= _rounding(left)),
            bool(gap[1] <= _rounding(right)) or self.graph.is_bipartite,
        ]
        fails = tuple((labels[c], int(self.steps[worst[c]]) + 1) for c in (0, 1) if bad[c])
        reason = self._words(fails, gamma, L, mu)
        return ConvergenceReport(
            not fails, fails, float(gap[0]), float(gap[1]), L, mu, self.optimal, reason
        )

    def _constants(
        self, sigma: Array, H: Array, E: Array, F: Array, decide: bool
    ) -> tuple[float, float]:
        """Find L and mu that satisfy (i) and (ii); else those that come closest, or the paper's.

        `sigma` (steps,) is s(t); `H` and `E`, `F` are the matrices of (i) and (ii), see :meth:`at`.
        With ``u = 2/L``, (i) is ``mu < alpha u`` and (ii) ``mu / (mu - 1) < u beta(u)``; beta, the
        smallest eigenvalue of a matrix affine in u, is concave.  A mu exists if and only if ``u -
        1/alpha - 1/beta(u) > 0``.
        """
        alpha = math.inf  # (i) <=> L mu / 2 < alpha
        for s, h, g in zip(sigma, H, self.G, strict=True):
            try:
                top = linalg.eigh(g, h, eigvals_only=True)[-1]
            except linalg.LinAlgError:
                # the left side of (i) is not positive definite: a failure, on the safe side
                return PAPER, PAPER
            # without a positive eigenvalue this step holds for every L and mu
            if top > 0:
                alpha = min(alpha, s / top)
        root = np.sqrt(self.M2)
        weight = sigma[:, None, None] / np.outer(root, root)
        # beta(u) = min over steps of the smallest eigenvalue of E - u F
        E, F = weight * E, weight * F
        # (ii) fails for every L, whatever rounding says
        if self.graph.is_bipartite:
            return PAPER, PAPER
        # The smallest eigenvalue is at most the mean one: beta <= 0 beyond `high`.  F has a
        # positive diagonal.
        high = float(np.min(_trace(E) / _trace(F)))
        if high <= 0:
            return PAPER, PAPER
        low, best = 0.0, (-math.inf, PAPER, PAPER)
        for _ in range(60):
            u = (low + high) / 2
            values, vectors = np.linalg.eigh(E - u * F)
            step = int(np.argmin(values[:, 0]))
            beta, x = float(values[step, 0]), vectors[step, :, 0]
            slope = -float(x @ F[step] @ x)  # a supergradient of beta at u
            if beta > 0:
                # (i): 1/mu > first; (ii): 1 - 1/mu > second
                first, second = 1 / (u * alpha), 1 / (u * beta)
                slack = u * (1 - first - second)
                # the middle of the interval of 1/mu, or what shares the excess out
                if slack > 0:
                    inverse = (1 + first - second) / 2
                else:
                    inverse = first / (first + second)
                best = max(best, (slack, 2 / u, 1 / inverse))
                value, slope = slack, 1 + slope / beta**2
            else:
                value = beta
            if slope > 0:
                low = u
            else:
                high = u
            most = value + abs(slope) * (high - low)  # by concavity
            if high - low <= 1e-12 * high or (decide and (best[0] > 1e-6 * u or most < 0)):
                break
        return best[1], best[2]

    def _words(self, fails: tuple[tuple[str, int], ...], gamma: float, L: float, mu: float) -> str:
        """Describe the result of the check in one line."""
        if self.graph.is_bipartite:
            why = self.obstacle()
            if self.reduced:
                why = why.replace("(ii)", "(iv)")
            return f"{why}; this does not imply divergence: the conditions are sufficient only"
        if fails:
            where = " and ".join(f"{label} at step {step}" for label, step in fails)
            return f"gamma={gamma:g} fails {where}; the conditions are sufficient only"
        text = f"gamma={gamma:g} satisfies 002, Theorem 1 with L={L:.4g}, mu={mu:.4g}"
        if not self.optimal:
            text += "; but penalties that differ between nodes move the limit off the optimum"
        return text


def _symmetric(X: Array) -> Array:
    return (X + np.swapaxes(X, -1, -2)) / 2


def _trace(X: Array) -> Array:
    return np.asarray(np.einsum("...ii->...", X))


def _rounding(X: Array) -> float:
    """Bound the rounding error of an eigenvalue of one of these matrices."""
    return float(X.shape[-1] * np.finfo(float).eps * np.max(np.abs(X), initial=0.0))


def _gamma(graph: Graph, gamma: float) -> float:
    """Validate gamma: finite, not negative, and positive for a single node."""
    if not (math.isfinite(gamma) and gamma >= 0):
        raise InvalidInput(
            "gamma", gamma, "must be finite and >= 0 (002, section III-A)", "use gamma=0.5"
        )
    if gamma == 0 and graph.n_nodes == 1:
        raise InvalidInput(
            "gamma", gamma, "must be > 0, because D~ = gamma for a single node", "use gamma=0.5"
        )
    return float(gamma)


def _smoothness(graph: Graph, M: ArrayLike) -> Array:
    """Validate the Lipschitz constants, and return one for each node, (N,)."""
    values = np.asarray(M, dtype=float)
    if values.ndim > 1 or values.size not in (1, graph.n_nodes):
        raise InvalidInput(
            "M",
            values.shape,
            f"must be a number or have shape ({graph.n_nodes},)",
            "give one value per node",
        )
    if not (np.all(np.isfinite(values)) and np.all(values > 0)):
        raise InvalidInput(
            "M", values.tolist(), "must be finite and > 0 (002, Theorem 1)", "see smoothness"
        )
    return np.broadcast_to(values, graph.n_nodes)


def _penalties(graph: Graph, eta: ArrayLike) -> Array:
    """Return the penalties (T, N), one row for each odd round; an InvalidInput for unfit ones."""
    values, N = np.asarray(eta, dtype=float), graph.n_nodes
    if values.ndim < 2:
        values = values.reshape(1, -1)
    if values.ndim != 2 or values.shape[1] not in (1, N) or len(values) == 0:
        rule = f"must be a number or of shape ({N},), (T, 1) or (T, {N})"
        raise InvalidInput("eta", np.shape(eta), rule, "give one row for each odd round")
    if not (np.all(np.isfinite(values)) and np.all(values > 0)):
        raise InvalidInput(
            "eta", None, "every penalty must be finite and > 0 (002, Theorem 1)", "change it"
        )
    values = np.broadcast_to(values, (len(values), N))
    falls = np.argwhere(np.diff(values, axis=0) < 0)
    if len(falls):
        t, i = (int(at) for at in falls[0])
        fall = f"falls from {values[t, i]:g} to {values[t + 1, i]:g} at step {t + 1} (node {i})"
        raise InvalidInput(
            "eta", None, f"{fall}, but must not decrease (002, Theorem 1)", "use growth >= 1"
        )
    return values
