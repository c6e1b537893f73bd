"""Noisy proximal methods: noise on the answer of a proximal step (U7), public state, tail averaging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..queries import NoisyMinimiser
from ..trust import CURATOR, Trust
from ..typing import Array
from .base import Algorithm, Node, augment, dual
from .knobs import gradient_cap


def tail(average: Array, w: Array, k: int | Array, power: float = 3.0) -> Array:
    """The mean of iterates 1..k with weights that grow like ``k^power``, 3 for the last third; costs no privacy."""
    return average + ((power + 1.0) / (k + power)) * (w - average)


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

    max_grad_norm: float = gradient_cap()

    name: ClassVar[str] = "prox_admm"
    paper: ClassVar[str] = "ours, after 001, Algorithm 3"
    summary: ClassVar[str] = "ADMM with noise on the sent minimisers, tail-averaged"
    releases: ClassVar[str] = "every round"
    noise_law: ClassVar[str] = "Gaussian (pure: spherical), on the answer"
    good_for: ClassVar[str] = "the first choice with a delta; sites that differ; softmax"
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
        return DualState(f, S, dual(eta, V, f, S, lam), tail(mean, f, k))  # 000, eq. (11)

    def model(self, state: DualState) -> Array:
        return state.mean


class MeanState(NamedTuple):
    """Public state of a node after round t."""

    f: Array  # average of what the neighbourhood sent  (..., d)
    mean: Array  # tail average of f                    (..., d)


@dataclass(frozen=True)
class ProxAverage(Algorithm[MeanState]):
    """``f_i <- neighbourhood mean of [argmin f_j + (gamma / 2) ||w - f_j||^2 + noise]``, gamma = ``penalty``.

    Its fixed point minimises the sum of the local objectives' Moreau envelopes.  That is the consensus minimiser if all
    sites are alike, and near it if gamma is large.  For sites that differ use ``prox_admm``.

    Guarantee
    ---------
    U7 in every round, sensitivity ``Delta C / (n (rho/N + gamma))``.
    """

    max_grad_norm: float = gradient_cap()

    name: ClassVar[str] = "prox_average"
    paper: ClassVar[str] = "ours"
    summary: ClassVar[str] = "noisy proximal steps, averaged over the neighbourhood, tail-averaged"
    releases: ClassVar[str] = "every round"
    noise_law: ClassVar[str] = "Gaussian (pure: spherical), on the answer"
    good_for: ClassVar[str] = "sites alike, with a delta; one site"
    curvature: ClassVar[str] = "node"
    least_penalty: ClassVar[float] = 0.002
    noise_weight: ClassVar[float] = 1.2

    def init(self, node: Node) -> MeanState:
        return MeanState(node.zeros(), node.zeros())

    def round(self, k: int, state: MeanState, node: Node) -> MeanState:
        f, mean = state
        gamma, V = self.penalty(k), node.net.degree
        alpha = None if self.noise is None else self.noise(k)
        v = node.ask(NoisyMinimiser(f, alpha, "U7", None, -gamma * f, gamma))
        f = v + node.facts.mixing * (node.net.neighbour_sum(v) - V * v)
        return MeanState(f, tail(mean, f, k))

    def model(self, state: MeanState) -> Array:
        return state.mean


@dataclass(frozen=True)
class CentralProx(ProxAverage):
    """Noisy proximal steps of a trusted curator, who holds all rows as one site.

    Guarantee
    ---------
    That of :class:`ProxAverage`, against whoever sees the iterates; the curator sees the rows.
    """

    name: ClassVar[str] = "central_prox"
    paper: ClassVar[str] = "baseline"
    summary: ClassVar[str] = "noisy proximal steps at a trusted curator, tail-averaged"
    releases: ClassVar[str] = "every round"
    noise_law: ClassVar[str] = "Gaussian (pure: spherical), on the answer"
    good_for: ClassVar[str] = "what trust in one party would buy, by proximal steps"
    trust: ClassVar[Trust] = CURATOR
