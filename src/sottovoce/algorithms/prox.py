"""Noisy proximal methods: noise on the answer of a proximal step (U7), public state, tail averaging."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..problem.facts import Facts
from ..queries import NoisyMinimiser
from ..util.typing import Array
from .admm import INDUCED, augment, dual
from .base import Algorithm, Node
from .knobs import CappedOptions, MethodOptions

MIXED = (
    "a lost neighbour counts as oneself, so that the matrix of weights stays symmetric with rows that add up to 1, and "
    "of one component if the graph that is left is connected: all that the averaging needs"
)
"""Of methods that average over the graph."""


def tail(average: Array, w: Array, k: int | Array, power: float = 3.0) -> Array:
    """The mean of iterates 1..k with weights that grow like ``k^power``, 3 for the last third; costs no privacy."""
    return average + ((power + 1.0) / (k + power)) * (w - average)


def mixed(node: Node, x: Array, share: float = 1.0) -> Array:
    """`x`, moved by `share` of the way to the neighbourhood's mean: an exchange."""
    return x + share * node.facts.mixing * (node.net.neighbour_sum(x) - node.net.degree * x)


class DualState(NamedTuple):
    """Public state of a node after round t."""

    f: Array  # what was sent, noise included   (..., d)
    S: Array  # sum_j f_j over the neighbours   (..., d)
    lam: Array  # lambda_i                      (..., d)
    mean: Array  # tail average of f            (..., d)


@dataclass(frozen=True)
class ProxADMM(Algorithm[DualState]):
    """Consensus ADMM whose step is an exact minimiser plus noise; a node's own state is what it sent.

    This is a corrected primal variable perturbation.  Unlike in 001, Algorithm 3, a node keeps no exact minimiser, so
    the sensitivity is that of one step, ``Delta C / (n (rho/N + 2 eta V))``.

    Guarantee
    ---------
    U7 in every round: Gaussian (or, pure, spherical) noise on a statistic of that sensitivity.
    """

    options: CappedOptions = CappedOptions()

    name: ClassVar[str] = "prox_admm"
    paper: ClassVar[str] = "ours, after 001, Algorithm 3"
    summary: ClassVar[str] = "ADMM with noise on the sent minimisers, tail-averaged"
    releases: ClassVar[str] = "every round"
    noise_law: ClassVar[str] = "Gaussian (pure: spherical), on the answer"
    good_for: ClassVar[str] = "the first choice with a delta; sites that differ; softmax"
    induced: ClassVar[str] = INDUCED
    least_penalty: ClassVar[float] = 0.0005
    noise_weight: ClassVar[float] = 1.2

    def init(self, node: Node) -> DualState:
        zero = node.zeros()
        return DualState(zero, zero, zero, zero)

    def round(self, k: int, state: DualState, node: Node) -> DualState:
        f, S, lam, mean = state
        eta, V = self.penalty(k), node.net.degree
        linear, curvature = augment(eta, V, f, S, lam)  # 000, eq. (9)
        alpha = None if self.noise is None else self.noise(k)
        f = node.ask(NoisyMinimiser(f, alpha, "U7", None, linear, curvature))
        S = node.net.neighbour_sum(f)
        lam = dual(eta, V, f, S, lam) - node.net.lost_dual(eta / 2)  # 000, eq. (11)
        return DualState(f, S, lam, tail(mean, f, k))

    def model(self, state: DualState) -> Array:
        return state.mean


class MeanState(NamedTuple):
    """Public state of a node after round t."""

    f: Array  # average of what the neighbourhood sent  (..., d)
    mean: Array  # tail average of f                    (..., d)
    opened: Array  # rounds that were answered so far   (..., 1)


@dataclass(frozen=True)
class ProxAverage(Algorithm[MeanState]):
    """``f_i <- neighbourhood mean of [argmin f_j + (gamma / 2) ||w - f_j||^2 + noise]``, gamma = ``penalty``.

    Its fixed point minimises the sum of the local objectives' Moreau envelopes.  That is the consensus minimiser if all
    sites are alike, and near it if gamma is large.  For sites that differ use ``prox_admm``.  Under trust in sums the
    mean is that of all sites, each weighed by its rows.

    Guarantee
    ---------
    U7 in every round, sensitivity ``Delta C / (n (rho/N + gamma))``; in a sum, n is the rows of all sites, and it holds
    against the hub and `colluders` of the sites (docs/privacy/sums.md).
    """

    options: CappedOptions = CappedOptions()

    name: ClassVar[str] = "prox_average"
    paper: ClassVar[str] = "ours"
    summary: ClassVar[str] = "noisy proximal steps, averaged over the neighbourhood, tail-averaged"
    releases: ClassVar[str] = "every round"
    noise_law: ClassVar[str] = "Gaussian (pure: spherical), on the answer"
    good_for: ClassVar[str] = "sites alike, with a delta; one site"
    induced: ClassVar[str] = MIXED
    curvature: ClassVar[str] = "node"
    least_penalty: ClassVar[float] = 0.002
    noise_weight: ClassVar[float] = 1.2

    @classmethod
    def own_penalty(cls, facts: Facts, rounds: int, spread: float, options: MethodOptions) -> float | None:
        """In a sum, in proportion to its noise; else by the common rule."""
        if not facts.summed:
            return None
        return max(cls.least_penalty * facts.C, cls.noise_weight * noise_of_mean(facts, spread))

    def init(self, node: Node) -> MeanState:
        zero = node.zeros()
        return MeanState(zero, zero, zero[..., :1])

    def round(self, k: int, state: MeanState, node: Node) -> MeanState:
        f, mean, opened = state
        gamma, alpha = self.penalty(k), None if self.noise is None else self.noise(k)
        v = node.ask(NoisyMinimiser(f, alpha, "U7", None, -gamma * f, gamma))
        f = v if node.facts.summed else mixed(node, v)
        return MeanState(f, tail(mean, f, opened + 1.0), opened + 1.0)

    def model(self, state: MeanState) -> Array:
        return state.mean


def noise_of_mean(facts: Facts, spread: float) -> float:
    """Standard deviation of a coordinate of the network's mean gradient; `spread` is that of a curator of one row."""
    if not facts.summed:
        return facts.C * spread / float(np.min(facts.n)) / math.sqrt(facts.n_nodes)
    assert facts.rows is not None
    shares = facts.n_nodes / max(1, facts.n_nodes - facts.colluders)
    return facts.C * spread / facts.rows * math.sqrt(shares)
