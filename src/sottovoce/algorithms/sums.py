"""Methods of sums over sites: gradients with momentum, and proximal steps.  All state is a function of opened sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..facts import Facts
from ..queries import SummedGradient, SummedMinimiser
from ..trust import Trust
from ..typing import Any, Array
from .base import Algorithm, Node
from .knobs import gradient_cap
from .momentum import LATE, momentum_knob, steady
from .prox import tail

SUM = Trust.in_sum(honest=2, colluding=1)
"""The least that a sum needs; a run says how many of its sites may collude."""


class StepState(NamedTuple):
    """Public state after an attempt, the same at all sites."""

    f: Array  # iterate                             (..., d)
    velocity: Array  # sum of past gradients, fading  (..., d)
    mean: Array  # tail average of f                (..., d)
    opened: Array  # sums that were opened so far   (..., 1)


@dataclass(frozen=True)
class SumMomentum(Algorithm[StepState]):
    """Gradient descent with heavy-ball momentum on the pooled objective; the network opens the sum of gradients alone.

    ``v <- momentum v + g + mu f``; ``f <- f - v / penalty``.  Sites may differ in any way: a sum of gradients is the
    gradient of all rows.

    Guarantee
    ---------
    Each attempt opens a sum of gradients at a public point, of sensitivity ``Delta C / n`` with n the rows of all
    sites, against the hub and `colluders` of the sites (docs/privacy/sums.md).
    """

    momentum: float = momentum_knob()
    max_grad_norm: float = gradient_cap()

    name: ClassVar[str] = "sum_momentum"
    paper: ClassVar[str] = "ours"
    summary: ClassVar[str] = "gradient descent with momentum on sums that only the network sees, tail-averaged"
    releases: ClassVar[str] = "every round, one sum over all sites"
    noise_law: ClassVar[str] = "Gaussian, in shares, on sums of gradients"
    good_for: ClassVar[str] = "three sites or more that trust sums; sites that differ; many small sites"
    trust: ClassVar[Trust] = SUM
    curvature: ClassVar[str] = "node"
    gradient_steps: ClassVar[bool] = True
    needs_delta: ClassVar[bool] = True

    @classmethod
    def own_penalty(cls, facts: Facts, rounds: int, spread: float, **knobs: Any) -> float:
        """As :meth:`sottovoce.algorithms.momentum.Momentum.own_penalty`, with the noise of a sum."""
        return steady(facts, rounds, noise_of_sum(facts, spread), knobs["momentum"])

    def init(self, node: Node) -> StepState:
        zero = node.zeros()
        return StepState(zero, zero, zero, zero[..., :1])

    def round(self, k: int, state: StepState, node: Node) -> StepState:
        f, v, mean, opened = state
        alpha = None if self.noise is None else self.noise(k)
        g = node.ask_sum(SummedGradient(f, alpha, "sum of gradients"))
        v = self.momentum * v + g + node.facts.mu * f
        f = f - v / self.penalty(k)
        return StepState(f, v, tail(mean, f, opened + 1.0, LATE), opened + 1.0)

    def model(self, state: StepState) -> Array:
        return state.mean


class MeanState(NamedTuple):
    """Public state after an attempt, the same at all sites."""

    f: Array  # weighed mean of the minimisers      (..., d)
    mean: Array  # tail average of f                (..., d)
    opened: Array  # sums that were opened so far   (..., 1)


@dataclass(frozen=True)
class SumProx(Algorithm[MeanState]):
    """``f <- sum_i p_i argmin f_i + (gamma / 2) ||w - f||^2 + noise``, gamma = ``penalty`` and p_i the share of rows.

    Its fixed point minimises the mean of the local objectives' Moreau envelopes: the pooled minimiser if all sites are
    alike, and near it if gamma is large.  For sites that differ use ``sum_momentum``.

    Guarantee
    ---------
    Each attempt opens a sum of sensitivity ``Delta C / (n (rho/N + gamma))`` with n the rows of all sites, against the
    hub and `colluders` of the sites (docs/privacy/sums.md).
    """

    max_grad_norm: float = gradient_cap()

    name: ClassVar[str] = "sum_prox"
    paper: ClassVar[str] = "ours"
    summary: ClassVar[str] = "proximal steps whose mean only the network sees, tail-averaged"
    releases: ClassVar[str] = "every round, one sum over all sites"
    noise_law: ClassVar[str] = "Gaussian, in shares, on sums of answers"
    good_for: ClassVar[str] = "three alike sites or more that trust sums"
    trust: ClassVar[Trust] = SUM
    curvature: ClassVar[str] = "node"
    least_penalty: ClassVar[float] = 0.002
    needs_delta: ClassVar[bool] = True

    @classmethod
    def own_penalty(cls, facts: Facts, rounds: int, spread: float, **knobs: Any) -> float:
        """In proportion to the noise of a sum, as for proximal steps of single sites."""
        return max(cls.least_penalty * facts.C, 1.2 * noise_of_sum(facts, spread))

    def init(self, node: Node) -> MeanState:
        zero = node.zeros()
        return MeanState(zero, zero, zero[..., :1])

    def round(self, k: int, state: MeanState, node: Node) -> MeanState:
        f, mean, opened = state
        alpha = None if self.noise is None else self.noise(k)
        f = node.ask_sum(SummedMinimiser(f, alpha, "sum of proximal steps", self.penalty(k)))
        return MeanState(f, tail(mean, f, opened + 1.0), opened + 1.0)

    def model(self, state: MeanState) -> Array:
        return state.mean


def noise_of_sum(facts: Facts, spread: float) -> float:
    """Standard deviation of a coordinate of a sum of gradients; `spread` is that of a curator of one row."""
    assert facts.rows is not None
    shares = facts.n_nodes / max(1, facts.n_nodes - facts.colluders)
    return facts.C * spread / facts.rows * math.sqrt(shares)
