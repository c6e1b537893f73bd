"""A module as somebody else would write it: EXTRA (Shi, Ling, Wu and Yin 2015) with noisy
gradients.

Nothing here is part of the package.  In EXTRA a node keeps what it and its neighbours sent in the
last two rounds: ``f_2 <- W f_1 + f_1 - (W f_0 + f_0) / 2 - (g_1 - g_0) / penalty``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import sottovoce
from sottovoce.algorithms.base import Algorithm, Node
from sottovoce.algorithms.knobs import CappedOptions, MethodOptions
from sottovoce.problem.facts import Facts
from sottovoce.queries import NoisyGradient
from sottovoce.util.typing import Array


class State(NamedTuple):
    f: Array
    mixed: Array  # W f
    half: Array  # (W f + f) / 2 of the round before
    slope: Array  # the last noisy gradient, with the regulariser's


@sottovoce.register
@dataclass(frozen=True)
class Extra(Algorithm[State]):
    """EXTRA: it corrects the bias of decentralised gradient descent by what it remembers of one
    round.
    """

    options: CappedOptions = CappedOptions()

    name: ClassVar[str] = "extra"
    paper: ClassVar[str] = "Shi, Ling, Wu and Yin (SIAM J. Optim. 2015)"
    summary: ClassVar[str] = "EXTRA with noisy gradients"
    releases: ClassVar[str] = "every round"
    noise_law: ClassVar[str] = "Gaussian (pure: spherical), on gradients"
    good_for: ClassVar[str] = "a test of the door for methods from outside"
    curvature: ClassVar[str] = "node"
    gradient_steps: ClassVar[bool] = True

    @classmethod
    def own_penalty(cls, facts: Facts, rounds: int, spread: float, options: MethodOptions) -> float:
        return facts.C * facts.loss.hessian_bound + facts.mu

    def init(self, node: Node) -> State:
        zero = node.zero_vector()
        return State(zero, zero, zero, zero)

    def round(self, k: int, state: State, node: Node) -> State:
        f, mixed, half, before = state
        alpha = None if self.noise is None else self.noise(k)
        slope = node.ask(NoisyGradient(f, alpha, "noisy gradient")) + node.facts.mu * f
        moved = mixed + f - half if k > 1 else mixed
        new = moved - (slope - before) / self.penalty(k)
        reached = new + 0.5 * node.facts.mixing_weight * (
            node.net.neighbour_sum(new) - node.net.degree * new
        )
        return State(new, reached, 0.5 * (mixed + f), slope)
