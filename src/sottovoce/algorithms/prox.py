"""Noisy proximal methods: every round releases a local minimiser plus noise.

Noise is on the minimiser itself (output perturbation, U7 of docs/privacy/tight.md), not inside the
objective.  Models are *tail averages*: weighted means of the iterates in which late rounds count
most, which average the noise out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..problem.facts import Facts
from ..queries import NoisyMinimiser
from ..util.typing import Array
from .admm import INDUCED, augmented_terms, updated_dual
from .base import Algorithm, Node
from .knobs import CappedOptions, MethodOptions

MIXED = (
    "a lost neighbour counts as oneself, so that the matrix of weights stays symmetric with rows "
    "that add up to 1, and "
    "of one component if the graph that is left is connected: all that the averaging needs"
)
"""Why methods that average over the graph may continue without a lost site."""


def tail_average(average: Array, w: Array, k: int | Array, power: float = 3.0) -> Array:
    """Return the tail average after one more iterate; it is post-processing and costs no privacy.

    Weights of iterates grow like ``k^power``: with 3, about 80% of the weight is on the last third
    of the rounds, ``1 - (2/3)^4``.

    Parameters
    ----------
    average : array of shape (..., d)
        Average of the iterates 1 .. k - 1.
    w : array of shape (..., d)
        Iterate k.
    k : int or array of shape (..., 1)
        Number of the iterate, from 1.
    power : float
        Power of the round in the weights.

    Returns
    -------
    array of shape (..., d)
    """
    # The recursion of weights in proportion to k (k + 1) ... (k + power - 1), for which a running
    # average needs no sum of weights.
    return average + ((power + 1.0) / (k + power)) * (w - average)


class DualState(NamedTuple):
    """Public state of a node after round t."""

    f: Array  # what was sent, noise included   (..., d)
    S: Array  # sum_j f_j over the neighbours   (..., d)
    lam: Array  # lambda_i                      (..., d)
    mean: Array  # tail average of f            (..., d)


@dataclass(frozen=True)
class ProxADMM(Algorithm[DualState]):
    """Consensus ADMM with noise on the minimisers; a node's own state is what it sent.

    This is a corrected primal variable perturbation.  Unlike in 001, Algorithm 3, a node keeps no
    exact minimiser, so the sensitivity is that of one step, ``Delta C / (n (rho/N + 2 eta V))``.

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
        zero = node.zero_vector()
        return DualState(zero, zero, zero, zero)

    def round(self, k: int, state: DualState, node: Node) -> DualState:
        """Run round k: release a noisy minimiser, exchange, and update the dual.

        Parameters
        ----------
        k, state, node
            As for :meth:`Algorithm.round`.

        Returns
        -------
        DualState
        """
        f, S, lam, mean = state
        eta, V = self.penalty(k), node.net.degree
        # 000, eq. (9) and (10), with noise on the minimiser.
        linear, curvature = augmented_terms(eta, V, f, S, lam)
        f = node.ask(NoisyMinimiser(f, self._noise_parameter(k), "U7", None, linear, curvature))
        # 000, eq. (11), without the duals of edges that were lost.
        S = node.net.neighbour_sum(f)
        lam = updated_dual(eta, V, f, S, lam) - node.lost_dual(eta / 2)
        return DualState(f, S, lam, tail_average(mean, f, k))

    def model(self, state: DualState) -> Array:
        return state.mean


class MeanState(NamedTuple):
    """Public state of a node after round t."""

    f: Array  # average of what the neighbourhood sent  (..., d)
    mean: Array  # tail average of f                    (..., d)
    opened: Array  # number of rounds with an answer    (..., 1)


@dataclass(frozen=True)
class ProxAverage(Algorithm[MeanState]):
    """Noisy proximal steps, averaged over the neighbourhood.

    With O_j the objective of node j and gamma = ``penalty``, ``f_i`` becomes the mean over the
    neighbourhood of ``argmin_w [O_j(w) + (gamma / 2) ||w - f_j||^2] + noise``.

    Its fixed point minimises the sum of the local objectives' Moreau envelopes.  That is the
    consensus minimiser if all sites are alike, and near it if gamma is large.  For sites that
    differ use ``prox_admm``.  Under trust in sums the mean is that of all sites, each weighted by
    its rows.

    Guarantee
    ---------
    U7 in every round, sensitivity ``Delta C / (n (rho/N + gamma))``; in a sum, n is the rows of all
    sites, and it holds against the hub and `colluders` of the sites (docs/privacy/sums.md).
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
    def own_penalty(
        cls, facts: Facts, rounds: int, spread: float, options: MethodOptions
    ) -> float | None:
        """Return the default penalty: under trust in sums in proportion to the noise, else None.

        Parameters
        ----------
        facts, rounds, spread, options
            As for :meth:`Algorithm.own_penalty`.

        Returns
        -------
        float or None
        """
        if not facts.opens_only_sums:
            return None
        return max(cls.least_penalty * facts.C, cls.noise_weight * noise_of_mean(facts, spread))

    def init(self, node: Node) -> MeanState:
        zero = node.zero_vector()
        return MeanState(zero, zero, zero[..., :1])

    def round(self, k: int, state: MeanState, node: Node) -> MeanState:
        """Run round k: release a noisy proximal step, and average it with the neighbours'.

        Parameters
        ----------
        k, state, node
            As for :meth:`Algorithm.round`.

        Returns
        -------
        MeanState
        """
        f, mean, opened = state
        gamma = self.penalty(k)
        # (gamma / 2) ||w - f||^2 as a linear and a quadratic term.
        v = node.ask(NoisyMinimiser(f, self._noise_parameter(k), "U7", None, -gamma * f, gamma))
        f = node.mix(v)
        return MeanState(f, tail_average(mean, f, opened + 1.0), opened + 1.0)

    def model(self, state: MeanState) -> Array:
        return state.mean


def noise_of_mean(facts: Facts, spread: float) -> float:
    """Return the noise's standard deviation per coordinate of the network's mean gradient.

    Parameters
    ----------
    facts : Facts
        Public facts of all nodes.
    spread : float
        Standard deviation of a release's noise in each coordinate, in sum scale.

    Returns
    -------
    float
    """
    if not facts.opens_only_sums:
        return facts.C * spread / float(np.min(facts.n)) / math.sqrt(facts.n_nodes)
    assert facts.rows is not None
    # Every site adds a share of the noise, and those of the honest sites alone must be enough, so
    # the variance is N / (N - colluders) of a curator's (docs/privacy/sums.md).
    shares = facts.n_nodes / max(1, facts.n_nodes - facts.colluders)
    return facts.C * spread / facts.rows * math.sqrt(shares)
