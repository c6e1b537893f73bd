"""Combine, then adapt: an average with the neighbours, then a noisy gradient step (Sayed 2014,
chapter 7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from sottovoce.algorithms import Algorithm, Node
from sottovoce.queries import NoisyGradient
from sottovoce.util.typing import Array


class CombineState(NamedTuple):
    """Public state of a node after a round."""

    f: Array  # model of the node  (..., d)


@dataclass(frozen=True)
class Combine(Algorithm[CombineState]):
    """Every node averages with its neighbours, then steps along its own noisy gradient.

    Guarantee
    ---------
    Each round releases a noisy gradient at a public point, of sensitivity ``Delta C / n``.
    """

    name: ClassVar[str] = "combine"
    paper: ClassVar[str] = "Sayed (2014), chapter 7"
    summary: ClassVar[str] = "an average over the neighbourhood, then a noisy gradient step"
    releases: ClassVar[str] = "every round"
    noise_law: ClassVar[str] = "Gaussian (pure: spherical), on gradients"
    good_for: ClassVar[str] = "an example of a method from another package"
    curvature: ClassVar[str] = "node"
    least_penalty: ClassVar[float] = 0.02
    gradient_steps: ClassVar[bool] = True

    def init(self, node: Node) -> CombineState:
        return CombineState(node.zero_vector())

    def round(self, k: int, state: CombineState, node: Node) -> CombineState:
        alpha = None if self.noise is None else self.noise(k)
        gradient = (
            node.ask(NoisyGradient(state.f, alpha, "noisy gradient")) + node.facts.mu * state.f
        )
        stepped = state.f - gradient / self.penalty(k)
        apart = node.net.neighbour_sum(stepped) - node.net.degree * stepped
        return CombineState(stepped + node.facts.mixing_weight * apart)
