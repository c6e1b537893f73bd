"""Private gradient descent with momentum, over the graph."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..problem.facts import Facts
from ..queries import CarriedGradient, NoisyGradient, can_correlate_noise, within_reach
from ..util.constraints import Interval, OneOf
from ..util.typing import Array
from .base import Algorithm, Node
from .knobs import CappedOptions, MethodOptions, knob
from .prox import MIXED, noise_of_mean, tail_average

DRIFT = 4.0
"""Largest deviation of a coordinate of the network's average model at the default penalty."""
LATE = 8.0
"""Power of the round in an iterate's weight: half of the weight is on the last 8% of the rounds."""


class MomentumState(NamedTuple):
    """Public state of a node after round t."""

    f: Array  # iterate                          (..., d)
    velocity: Array  # sum of past gradients, fading   (..., d)
    step: Array  # where the node's own step led    (..., d)
    mean: Array  # tail average of f                (..., d)
    heard: Array  # sum of the noisy gradients so far   (..., d)
    opened: Array  # rounds that were answered so far   (..., 1)


@dataclass(frozen=True)
class SummedMomentumOptions(CappedOptions):
    """Options of momentum in sums, whose noise is independent over rounds."""

    momentum: float = knob(
        0.8,
        "Share of a step that the next one keeps, momentum.",
        Interval(0, 1, closed="low"),
    )

    @property
    def correlates(self) -> bool:
        """Whether noise is correlated: half of it is that of all rounds together."""
        return False


@dataclass(frozen=True)
class MomentumOptions(SummedMomentumOptions):
    """Options of momentum."""

    correlation: str = knob(
        "half",
        "Share of the noise on gradients that all rounds have in common: half or none, momentum.",
        OneOf("half", "none"),
    )

    @property
    def correlates(self) -> bool:
        return self.correlation == "half"


@dataclass(frozen=True)
class Momentum(Algorithm[MomentumState]):
    """Exact diffusion (Yuan, Ying, Zhao and Sayed 2019) with momentum and noisy gradients.

    ``v <- momentum v + g``; ``s' = f - v / penalty``; ``f <- half the neighbourhood's mean of s' +
    f - s, plus half the node's own``.  The correction ``f - s`` lets sites that differ agree on the
    pooled minimiser at a constant step.  Under trust in sums g is the gradient of all rows and the
    same everywhere, so that ``f <- s'``.

    Guarantee
    ---------
    Each round releases a noisy gradient at a public point, of sensitivity ``Delta C / n``; in a
    sum, n is the rows of all sites, and it holds against the hub and `colluders` of the sites
    (docs/privacy/sums.md).  Else, with a delta and a loss whose slope has one sign, it is the
    gradient less a share of the earlier ones, which are added again: at the same price in all, half
    of the noise is that of all rounds together (docs/privacy/correlated_noise.md).

    Parameters
    ----------
    rounds : int
        Planned rounds, on which carried noise depends; 0 for independent noise.
    """

    options: MomentumOptions = MomentumOptions()
    rounds: int = 0

    name: ClassVar[str] = "momentum"
    paper: ClassVar[str] = "ours, after exact diffusion"
    summary: ClassVar[str] = "gradient descent with momentum and noisy gradients, tail-averaged"
    releases: ClassVar[str] = "every round"
    noise_law: ClassVar[str] = "Gaussian (pure: spherical), on gradients"
    good_for: ClassVar[str] = "much noise and many rounds; sites that differ; no local solves"
    curvature: ClassVar[str] = "node"
    gradient_steps: ClassVar[bool] = True
    recalls: ClassVar[bool] = True
    induced: ClassVar[str] = MIXED

    @classmethod
    def own_penalty(cls, facts: Facts, rounds: int, spread: float, options: MethodOptions) -> float:
        """Return the larger of two lower bounds on the penalty, from public facts.

        A step is at most half as long as the one at which the steepest objective that the bounds
        allow would diverge.  The noise of all rounds moves a coordinate of the network's average
        model by at most :data:`DRIFT`.

        Parameters
        ----------
        facts, rounds, spread, options
            As for :meth:`Algorithm.own_penalty`.

        Returns
        -------
        float
        """
        assert isinstance(options, SummedMomentumOptions)
        momentum, noise = options.momentum, noise_of_mean(facts, spread)
        steepest = facts.C * facts.loss.hessian_bound + facts.mu
        # Gradient descent with momentum m is stable up to a step of 2 (1 + m) over the steepest
        # curvature.
        return max(
            steepest / (1.0 + momentum), noise * tail_average_noise(rounds, momentum) / DRIFT
        )

    def init(self, node: Node) -> MomentumState:
        zero = node.zero_vector()
        return MomentumState(zero, zero, zero, zero, zero, zero[..., :1])

    def round(self, k: int, state: MomentumState, node: Node) -> MomentumState:
        """Run round k: release a gradient, make a momentum step, mix by exact diffusion.

        Parameters
        ----------
        k, state, node
            As for :meth:`Algorithm.round`.

        Returns
        -------
        MomentumState
        """
        f, v, before, mean, heard, opened = state
        alpha = self._noise_parameter(k)
        if self.options.correlates and can_correlate_noise(node.facts, self.noise, self.rounds):
            # This is f itself, but for models that are all noise.
            near = within_reach(node.facts, f)
            query = CarriedGradient(
                near, alpha, "noisy gradient, carried", index=k, rounds=self.rounds
            )
            # What the release left out of the earlier gradients is added again, noise included.
            g = node.ask(query) + query.share * heard
        else:
            g = node.ask(NoisyGradient(f, alpha, "noisy gradient"))
        v = self.options.momentum * v + g + node.facts.mu * f
        step = f - v / self.penalty(k)
        # Exact diffusion: the correction f - before lets sites that differ agree on the minimiser.
        f = node.exact_diffusion(step, f, before)
        # f - step adds up what every edge has moved: that of a lost edge is dropped
        step = step - node.lost_dual(0.5 * node.facts.mixing_weight)
        return MomentumState(
            f, v, step, tail_average(mean, f, opened + 1.0, LATE), heard + g, opened + 1.0
        )

    def model(self, state: MomentumState) -> Array:
        return state.mean


def tail_average_noise(rounds: int, momentum: float) -> float:
    """Return the noise of the tail average, per unit of step length and of noise on every gradient.

    It is the norm of the effects of the rounds' gradients on the average: the k-th moves iterate j
    >= k by ``sum_{i <= j - k} momentum^i``, and the average weighs iterate j by ``j (j + 1) ... (j
    + LATE - 1)``.

    Parameters
    ----------
    rounds : int
        How many rounds there are.
    momentum : float
        Share of a step that the next one keeps, in [0, 1).

    Returns
    -------
    float
        Standard deviation of a coordinate.
    """
    weights = [1.0]
    for j in range(1, rounds):
        # j (j + 1) ... (j + LATE - 1), up to a constant.
        weights.append(weights[-1] * (j + LATE) / j)
    # From the last round: `later` is the weight of iterates from round k on, `faded` that sum with
    # powers of the momentum; the effect of gradient k is the term that is squared below.
    later = 0.0
    faded = 0.0
    squares = 0.0
    for weight in reversed(weights):
        later = later + weight
        faded = weight + momentum * faded
        squares += ((later - momentum * faded) / (1.0 - momentum)) ** 2
    return math.sqrt(squares) / math.fsum(weights)
