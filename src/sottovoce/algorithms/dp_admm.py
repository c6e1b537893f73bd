"""DP-ADMM (Huang, Hu, Guo, Chan-Tin and Gong 2020): linearised ADMM with steps that shorten.

The method is from outside the five papers, for comparison.  ``tau_k`` below is the weight of the
proximal term; the other symbols are those of :mod:`sottovoce.algorithms.admm`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import InvalidInput
from ..problem.facts import Facts
from ..queries import NoisyGradient
from ..util.typing import Array
from .admm import INDUCED, augmented_terms, updated_dual
from .base import Algorithm, Node
from .knobs import CappedOptions
from .prox import DualState, tail_average

RADIUS = 10.0
"""Assumed bound on a coefficient of the minimiser.

It only sets the step size: no privacy guarantee depends on it.
"""
TIED = 0.3
"""ADMM's penalty of an edge, relative to ``penalty / (1 + largest degree)``."""


@dataclass(frozen=True)
class DPADMM(Algorithm[DualState]):
    """ADMM whose step linearises the data's objective, with a proximal term of weight tau_k.

    ``f_{k+1} = argmin_w (g + mu f_k).w + [ADMM's terms of 000, eq. 9] + tau_k ||w - f_k||^2 / 2``
    with the noisy gradient g at the public point f_k.  Noise on g reaches the message divided by
    ``2 eta V + tau_k``.  As in the paper, ``tau_k = penalty + sqrt(2 k) sd(g) / RADIUS`` grows like
    the square root of the round, so the noise of messages falls.  Two things differ from the
    paper: it has a server where neighbours here exchange over the graph, and the penalty eta of
    ADMM is not free but ``TIED penalty / (1 + largest degree)``.

    Guarantee
    ---------
    Each round releases a noisy gradient at a public point, of sensitivity ``Delta C / n``.  All
    else is computed from it and from what the neighbours sent.
    """

    options: CappedOptions = CappedOptions()

    name: ClassVar[str] = "dp_admm"
    paper: ClassVar[str] = "Huang, Hu, Guo, Chan-Tin and Gong (IEEE TIFS 2020)"
    summary: ClassVar[str] = (
        "linearised ADMM with noisy gradients and steps that shorten, tail-averaged"
    )
    releases: ClassVar[str] = "every round"
    noise_law: ClassVar[str] = "Gaussian (pure: spherical), on gradients"
    good_for: ClassVar[str] = "comparisons; no local solves"
    curvature: ClassVar[str] = "node"
    least_penalty: ClassVar[float] = 0.02
    gradient_steps: ClassVar[bool] = True
    induced: ClassVar[str] = INDUCED

    def check(self, node: Node) -> None:
        if self.penalty.nodes:
            rule = "DP-ADMM has one penalty for all nodes: else their duals do not add up to zero"
            raise InvalidInput("eta", self.penalty.describe_values, rule, "give one number")

    def init(self, node: Node) -> DualState:
        zero = node.zero_vector()
        return DualState(zero, zero, zero, zero)

    def round(self, k: int, state: DualState, node: Node) -> DualState:
        """Run round k: release a noisy gradient, make a linearised ADMM step, update the dual.

        Parameters
        ----------
        k, state, node
            As for :meth:`Algorithm.round`.

        Returns
        -------
        DualState
        """
        f, S, lam, mean = state
        facts = node.facts
        V = node.net.degree
        weight = self.penalty(k)
        # ADMM's penalty of an edge, the same at all nodes: else their duals do not add up to zero.
        eta = TIED * facts.mixing_weight * weight
        query = NoisyGradient(f, self._noise_parameter(k), "noisy gradient")
        # The proximal weight grows with the root of the round, so that noise on what is sent falls.
        tau = weight + math.sqrt(2.0 * k) * _noise_deviation(query, facts) / RADIUS
        gradient = node.ask(query) + facts.mu * f
        # The minimiser of the linearised, augmented objective (see the class) has a closed form.
        linear, curvature = augmented_terms(eta, V, f, S, lam)
        f = (tau * f - gradient - linear) / (curvature + tau)
        S = node.net.neighbour_sum(f)
        lam = updated_dual(eta, V, f, S, lam) - node.lost_dual(eta / 2)
        return DualState(f, S, lam, tail_average(mean, f, k))

    def model(self, state: DualState) -> Array:
        return state.mean


def _noise_deviation(query: NoisyGradient, facts: Facts) -> Array:
    """Return the standard deviation per coordinate of a gradient's noise, (N, 1) or (1,)."""
    if query.alpha is None:
        return np.zeros_like(facts.n)
    scale = query.sensitivity(facts) / query.alpha
    # The norm of spherical noise is Gamma(d, 1): E ||v||^2 = d (d + 1).
    if facts.pure:
        return scale * math.sqrt(facts.d + 1.0)
    return scale
