"""DP-ADMM (Huang, Hu, Guo, Chan-Tin and Gong 2020): linearised ADMM whose noise falls from round to round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..problem.facts import Facts
from ..queries import NoisyGradient
from ..util.typing import Any, Array
from .admm import INDUCED, augment, dual
from .base import Algorithm, Node
from .knobs import gradient_cap
from .prox import DualState, tail

RADIUS = 4.0
"""How far from zero a coefficient of the minimiser is taken to be, for the step's length: no price depends on it."""
LOOSE = 0.1
"""What the default penalty adds to a node's curvature, as a share of the proximal weight of the first round."""


@dataclass(frozen=True)
class DPADMM(Algorithm[DualState]):
    """ADMM's step with the data's objective replaced by its linearisation and a proximal term of weight tau_k.

    ``f <- argmin (g + mu f_k).w + [ADMM's terms of 000, eq. 9] + tau_k ||w - f_k||^2 / 2`` with the noisy gradient g
    at the public point f_k.  Noise on g is noise on the answer, divided by ``2 eta V + tau_k``: as in the paper,
    tau_k grows like the square root of the round, in proportion to the noise, so the noise on what is sent falls.
    The paper has a server and exchanges its own duals; here neighbours exchange the same over the graph's edges.

    Guarantee
    ---------
    Each round releases a noisy gradient at a public point, of sensitivity ``Delta C / n``.  All else is computed from
    it and from what the neighbours sent.
    """

    max_grad_norm: float = gradient_cap()

    name: ClassVar[str] = "dp_admm"
    paper: ClassVar[str] = "Huang, Hu, Guo, Chan-Tin and Gong (IEEE TIFS 2020)"
    summary: ClassVar[str] = "linearised ADMM with noisy gradients and steps that shorten, tail-averaged"
    releases: ClassVar[str] = "every round"
    noise_law: ClassVar[str] = "Gaussian (pure: spherical), on gradients"
    good_for: ClassVar[str] = "comparisons: a method from other work; no local solves"
    gradient_steps: ClassVar[bool] = True
    induced: ClassVar[str] = INDUCED

    @classmethod
    def own_penalty(cls, facts: Facts, rounds: int, spread: float, **knobs: Any) -> float:
        """As much as adds :data:`LOOSE` of the first proximal weight to the curvature of the node of most edges."""
        edges = max(1, facts.n_nodes - 1 if facts.max_degree is None else facts.max_degree)
        noise = facts.C * spread / float(np.min(facts.n))
        return float(LOOSE * _weight(facts, noise, 1) / (2.0 * edges))

    def init(self, node: Node) -> DualState:
        zero = node.zeros()
        return DualState(zero, zero, zero, zero)

    def round(self, k: int, state: DualState, node: Node) -> DualState:
        f, S, lam, mean = state
        facts, eta, V = node.facts, self.penalty(k), node.net.degree
        query = NoisyGradient(f, None if self.noise is None else self.noise(k), "noisy gradient")
        tau = _weight(facts, _deviation(query, facts), k)
        slope = node.ask(query) + facts.mu * f
        linear, curvature = augment(eta, V, f, S, lam)
        f = (tau * f - slope - linear) / (curvature + tau)
        S = node.net.neighbour_sum(f)
        lam = dual(eta, V, f, S, lam) - node.net.lost_dual(eta / 2)
        return DualState(f, S, lam, tail(mean, f, k))

    def model(self, state: DualState) -> Array:
        return state.mean


def _deviation(query: NoisyGradient, facts: Facts) -> Array:
    """Standard deviation of a coordinate of the noise on a node's gradient, (N, 1) or (1,); 0 without noise."""
    if query.alpha is None:
        return np.zeros_like(facts.n)
    scale = query.sensitivity(facts) / query.alpha
    return scale * math.sqrt(facts.d + 1.0) if facts.pure else scale


def _weight(facts: Facts, noise: Array | float, k: int) -> Array | float:
    """tau_k: the steepest curvature that the bounds allow, and the root of 2 k times the noise over the radius."""
    steepest = facts.C * facts.loss.hessian_bound + facts.mu
    return steepest + math.sqrt(2.0 * k) * noise / RADIUS
