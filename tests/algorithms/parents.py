"""The non-private parents of all methods, in plain NumPy: nothing here comes from the package
but rows and facts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sottovoce.data.rows import Rows
from sottovoce.problem.facts import Facts
from sottovoce.util.typing import Array


def gradient(rows: Rows, C: float, w: Array) -> Array:
    """``(C / n) sum_k -a_k / (1 + exp(a_k.w))``, the logistic loss's, for w of shape (..., N,
    d).
    """
    slopes = -1 / (1 + np.exp(np.einsum("ind,...id->...in", rows.signed, w)))
    return np.asarray(C / rows.n * np.einsum("...in,ind->...id", slopes, rows.signed))


class Problem:
    """What a parent needs: rows, the ring that they sit on, and the numbers of the
    configuration.
    """

    def __init__(self, rows: Rows, config: Any, facts: Facts) -> None:
        self.rows, self.config, self.rounds, self.eta = rows, config, config.rounds, config.eta
        self.C, self.mu = facts.C, facts.rho / facts.n_nodes
        N = len(rows.n)
        ring = np.roll(np.eye(N), 1, axis=1)
        self.A = ring + ring.T if N > 1 else np.zeros((1, 1))
        self.V = self.A.sum(axis=1, keepdims=True)
        self.mixing = 1 / (1 + self.V.max())
        self.zero = np.zeros((N, rows.d))

    def minimiser(self, linear: Array, curvature: Array | float) -> Array:
        """Newton's method, damped, on every node's convex objective."""
        w = self.zero
        q = np.broadcast_to(self.mu + np.asarray(curvature), self.rows.n.shape)
        for _ in range(60):
            s = 1 / (1 + np.exp(np.einsum("ind,id->in", self.rows.signed, w)))
            hessian = np.einsum("in,ind,ine->ide", s * (1 - s), self.rows.signed, self.rows.signed)
            hessian = self.C / self.rows.n[:, :, None] * hessian + q[:, :, None] * np.eye(
                self.rows.d
            )
            step = np.linalg.solve(
                hessian, (gradient(self.rows, self.C, w) + linear + q * w)[..., None]
            )[..., 0]
            w = w - step / (1 + np.linalg.norm(step, axis=1, keepdims=True))
        return w


def tail(path: list[Array], power: int = 3) -> Array:
    """The mean of iterates w_1 .. w_K with weights k (k + 1) ... (k + power - 1)."""
    weights = [math.prod(range(k, k + power)) for k in range(1, len(path) + 1)]
    return np.asarray(np.tensordot(np.array(weights) / sum(weights), np.array(path), axes=1))


def admm_path(p: Problem) -> list[Array]:
    """000, Algorithm 1."""
    w, dual, path = p.zero, p.zero, []
    for _ in range(p.rounds):
        w = p.minimiser(2 * dual - p.eta * (p.V * w + p.A @ w), 2 * p.eta * p.V)
        dual = dual + p.eta / 2 * (p.V * w - p.A @ w)
        path.append(w)
    return path


def admm(p: Problem) -> Array:
    return admm_path(p)[-1]


def recycled(p: Problem) -> Array:
    """002, Algorithm 1: the even step from the gradient at the odd one, here the data's own."""
    w, dual = p.zero, p.zero
    for k in range(1, p.rounds + 1):
        if k % 2:
            w = p.minimiser(2 * dual - p.eta * (p.V * w + p.A @ w), 2 * p.eta * p.V)
            dual = dual + p.eta / 2 * (p.V * w - p.A @ w)
        else:
            slope = gradient(p.rows, p.C, w) + p.mu * w
            w = w - (2 * dual + slope + p.eta * (p.V * w - p.A @ w)) / (
                2 * p.eta * p.V + p.config.options.gamma
            )
    return w


def prox_average(p: Problem) -> Array:
    w, path = p.zero, []
    for _ in range(p.rounds):
        v = p.minimiser(-p.eta * w, p.eta)
        w = v + p.mixing * (p.A @ v - p.V * v)
        path.append(w)
    return tail(path)


def averaged(p: Problem) -> Array:
    """Local ridge minimisers, averaged round by round; at a curator the pooled one."""
    w = p.minimiser(p.zero, p.eta)
    for _ in range(p.rounds - 1):
        w = w + p.mixing * (p.A @ w - p.V * w)
    return w


def descent(p: Problem) -> Array:
    w, path = p.zero, []
    for _ in range(p.rounds):
        w = w + p.mixing * (p.A @ w - p.V * w) - (gradient(p.rows, p.C, w) + p.mu * w) / p.eta
        path.append(w)
    return tail(path)


def tracked(p: Problem) -> Array:
    """DIGing, adapt then combine: two exchanges a step, of which the odd one moves the iterate."""
    w, slope, path = p.zero, p.zero, []
    y = p.zero
    lazy = np.eye(len(p.V)) + p.mixing / 2 * (p.A - np.diag(p.V[:, 0]))
    for _ in range((p.rounds + 1) // 2):
        new = gradient(p.rows, p.C, w) + p.mu * w
        y, slope = y + new - slope, new
        w = lazy @ (w - y / p.eta)
        y = lazy @ y
        path.append(w)
    return tail(path)


def linearised(p: Problem) -> Array:
    """ADMM's step from the gradient at the point before; edges have 0.3 of the step's stiffness,
    over the degree.
    """
    w, dual, path = p.zero, p.zero, []
    stiff = 0.3 * p.mixing * p.eta
    for _ in range(p.rounds):
        slope = gradient(p.rows, p.C, w) + p.mu * w + 2 * dual + stiff * (p.V * w - p.A @ w)
        w = w - slope / (2 * stiff * p.V + p.eta)
        dual = dual + stiff / 2 * (p.V * w - p.A @ w)
        path.append(w)
    return tail(path)


def momentum(p: Problem) -> Array:
    """Exact diffusion, in the form adapt, correct, combine, with heavy-ball momentum in the
    step.
    """
    w, path = p.zero, []
    velocity, old = p.zero, p.zero
    mixed = (np.eye(len(p.V)) * (1 - p.mixing * p.V) + p.mixing * p.A + np.eye(len(p.V))) / 2
    for _ in range(p.rounds):
        velocity = p.config.options.momentum * velocity + gradient(p.rows, p.C, w) + p.mu * w
        adapted = w - velocity / p.eta
        w, old = mixed @ (adapted + w - old), adapted
        path.append(w)
    return tail(path, 8)


def pooled_descent(p: Problem) -> Array:
    """Heavy-ball descent on the objective of all rows: a row weighs the same, whatever its site."""
    weight = p.rows.n / p.rows.n.sum()
    w, velocity, path = p.zero[0], p.zero[0], []
    for _ in range(p.rounds):
        everywhere = np.tile(w, (len(p.V), 1))
        velocity = (
            p.config.options.momentum * velocity
            + (weight * gradient(p.rows, p.C, everywhere)).sum(axis=0)
            + p.mu * w
        )
        w = w - velocity / p.eta
        path.append(w)
    return np.tile(tail(path, 8), (len(p.V), 1))


def pooled_prox(p: Problem) -> Array:
    """Proximal steps from one point, averaged by rows."""
    weight = p.rows.n / p.rows.n.sum()
    w, path = p.zero, []
    for _ in range(p.rounds):
        w = np.tile((weight * p.minimiser(-p.eta * w, p.eta)).sum(axis=0), (len(p.V), 1))
        path.append(w)
    return tail(path)


def part(rows: Rows, b: int, batches: int) -> Rows:
    """Rows b, b + batches, ... of one site, whose mean is taken over the size of the smallest
    part.
    """
    return Rows(rows.signed[:, b::batches], np.floor(rows.n / batches))


def passes(p: Problem) -> Array:
    w, path = p.zero, []
    for _ in range(p.rounds):
        for b in range(p.config.options.batches):
            w = w - (gradient(part(p.rows, b, p.config.options.batches), p.C, w) + p.mu * w) / p.eta
        path.append(w)
    return tail(path)


PARENTS: dict[str, Callable[[Problem], Array]] = {
    **dict.fromkeys(("admm", "dvp", "pvp", "m_admm", "pp_admm", "ipp_admm"), admm),
    **dict.fromkeys(("r_admm", "mr_admm"), recycled),
    "prox_admm": lambda p: tail(admm_path(p)),
    **dict.fromkeys(("prox_average", "central_prox"), prox_average),
    **dict.fromkeys(("output", "objective", "generalised", "central"), averaged),
    **dict.fromkeys(("dgd", "central_gd"), descent),
    **dict.fromkeys(("momentum", "central_momentum"), momentum),
    "gradient_tracking": tracked,
    "dp_admm": linearised,
    "central_sgd": passes,
    "sum_momentum": pooled_descent,
    "sum_prox": pooled_prox,
}
