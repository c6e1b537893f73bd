"""Private gradient descent with momentum, over the graph.

*Correlated noise* (matrix mechanism) means that part of the noise of a round's gradient is shared
with other rounds (docs/privacy/correlated_noise.md); queries with it are "carried" in this package.
"""

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
"""Largest noise of a model's coordinate (standard deviation) that the default penalty allows."""
LATE = 8.0
"""Power of the round in an iterate's weight.

About half of the weight is on the last 8% of the rounds: ``1 - 2^(-1/9)`` of many rounds.
"""


class MomentumState(NamedTuple):
    """Public state of a node after round t."""

    f: Array  # iterate                          (..., d)
    velocity: Array  # v, past gradients with fading weights  (..., d)
    step: Array  # s, the node's own step before mixing       (..., d)
    mean: Array  # tail average of f                          (..., d)
    heard: Array  # sum of the noisy gradients so far         (..., d)
    opened: Array  # number of rounds with an answer          (..., 1)


@dataclass(frozen=True)
class SummedMomentumOptions(CappedOptions):
    """Options of momentum under trust in sums, where noise is independent over rounds."""

    momentum: float = knob(
        0.8,
        "Momentum coefficient: share of the last step that the next one keeps, momentum.",
        Interval(0, 1, closed="low"),
    )

    @property
    def correlates(self) -> bool:
        """Whether half of the noise is shared by all rounds."""
        return False


@dataclass(frozen=True)
class MomentumOptions(SummedMomentumOptions):
    """Options of momentum."""

    correlation: str = knob(
        "half",
        "Correlated noise: share of the gradients' noise that all rounds have in common, half or "
        "none, momentum.",
        OneOf("half", "none"),
    )

    @property
    def correlates(self) -> bool:
        return self.correlation == "half"


@dataclass(frozen=True)
class Momentum(Algorithm[MomentumState]):
    """Exact diffusion (Yuan, Ying, Zhao and Sayed 2019) with momentum and noisy gradients.

    With the noisy gradient g at the iterate f, the velocity v, and s, s' the nodes' own steps of
    the last and of this round: ``v <- momentum v + g``; ``s' = f - v / penalty``; ``f <- (I + W) /
    2 (s' + f - s)``, W the neighbourhood's mean.  The correction ``f - s`` lets sites that differ
    agree on the pooled minimiser at a constant step.  Under trust in sums g is the gradient of all
    rows and the same everywhere, so that ``f <- s'``.

    Parameters
    ----------
    rounds : int
        Planned rounds, on which correlated noise depends; 0 for independent noise.

    Guarantee
    ---------
    Each round releases a noisy gradient at a public point, of sensitivity ``Delta C / n``; in a
    sum, n is the rows of all sites, and it holds against the hub and `colluders` of the sites
    (docs/privacy/sums.md).  Otherwise, with a delta and a loss whose derivative has one sign, noise
    is correlated: a release is the gradient less a share of the earlier releases, which the nodes
    add again, so that half of the noise is shared by all rounds, at the same total privacy loss
    (docs/privacy/correlated_noise.md).
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

        The first keeps a step at half of the length at which the steepest objective that the bounds
        allow would diverge.  The second keeps the noise that all rounds leave in a coordinate of
        the network's average model at a standard deviation of :data:`DRIFT`.

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
            # f itself, unless it is so long that rounding could fail a round, as only a model that
            # is all noise is: then it is scaled down.
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
        # The next correction, f - step, accumulates what was exchanged over every edge; the part
        # of a lost edge is dropped.
        step = step - node.lost_dual(0.5 * node.facts.mixing_weight)
        return MomentumState(
            f, v, step, tail_average(mean, f, opened + 1.0, LATE), heard + g, opened + 1.0
        )

    def model(self, state: MomentumState) -> Array:
        return state.mean


def tail_average_noise(rounds: int, momentum: float) -> float:
    """Return the noise of the tail-averaged model, for steps and gradient noise of size one.

    It is the norm of the effects of the rounds' gradients on the average.  With m = `momentum`, the
    gradient of round k moves iterate ``j >= k`` by ``1 + m + ... + m^(j - k)``, and iterate j has a
    weight in proportion to ``j (j + 1) ... (j + LATE - 1)``.

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
    # Backwards over rounds k, with iterates' weights w_j: `later` is sum_{j >= k} w_j, and `faded`
    # is sum_{j >= k} w_j m^(j - k).  As 1 + m + ... + m^i = (1 - m^(i + 1)) / (1 - m), gradient k
    # moves the weighted sum by (later - m faded) / (1 - m).
    later = 0.0
    faded = 0.0
    squares = 0.0
    for weight in reversed(weights):
        later = later + weight
        faded = weight + momentum * faded
        squares += ((later - momentum * faded) / (1.0 - momentum)) ** 2
    return math.sqrt(squares) / math.fsum(weights)
