"""Baselines: decentralised gradient descent with noise, and minibatch descent at a curator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..problem.trust import CURATOR, Trust
from ..queries import NoisyEpoch, NoisyGradient
from ..util.constraints import Count
from ..util.typing import Array
from .base import Algorithm, Node
from .knobs import CappedOptions, knob
from .prox import MIXED, tail_average


class DescentState(NamedTuple):
    """Public state of a node after round t."""

    f: Array  # iterate                        (..., d)
    S: Array  # sum_j f_j over the neighbours  (..., d)
    mean: Array  # tail average of f           (..., d)


@dataclass(frozen=True)
class DGD(Algorithm[DescentState]):
    """Decentralised gradient descent with noisy gradients; the step is ``1 / penalty``.

    Guarantee
    ---------
    Each round releases a noisy gradient at a public point, of sensitivity ``Delta C / n``.
    """

    options: CappedOptions = CappedOptions()

    name: ClassVar[str] = "dgd"
    paper: ClassVar[str] = "baseline"
    summary: ClassVar[str] = "decentralised gradient descent with noisy gradients"
    releases: ClassVar[str] = "every round"
    noise_law: ClassVar[str] = "Gaussian (pure: spherical), on gradients"
    good_for: ClassVar[str] = "a baseline; no local solves"
    curvature: ClassVar[str] = "node"
    least_penalty: ClassVar[float] = 0.02
    gradient_steps: ClassVar[bool] = True
    induced: ClassVar[str] = MIXED

    def init(self, node: Node) -> DescentState:
        zero = node.zero_vector()
        return DescentState(zero, zero, zero)

    def round(self, k: int, state: DescentState, node: Node) -> DescentState:
        """Run round k: release a noisy gradient, mix with the neighbours' iterates, and step.

        Parameters
        ----------
        k, state, node
            As for :meth:`Algorithm.round`.

        Returns
        -------
        DescentState
        """
        f, S, mean = state
        g = node.ask(NoisyGradient(f, self._noise_parameter(k), "noisy gradient"))
        # x <- W x - step g, with the gradient g at the node's own iterate.
        f = (
            f
            + node.facts.mixing_weight * (S - node.net.degree * f)
            - (g + node.facts.mu * f) / self.penalty(k)
        )
        return DescentState(f, node.net.neighbour_sum(f), tail_average(mean, f, k))

    def model(self, state: DescentState) -> Array:
        return state.mean


@dataclass(frozen=True)
class SGDOptions(CappedOptions):
    """Options of stochastic gradient descent."""

    batches: int = knob(
        10, "Number of batches in a pass over the rows, central_sgd.", Count(most=250)
    )


@dataclass(frozen=True)
class CentralSGD(DGD):
    """Private stochastic gradient descent at a trusted curator.

    A round is one pass over fixed batches of the rows.

    Guarantee
    ---------
    A pass costs one release of sensitivity ``Delta C batches / n``, since each row is in one batch.
    No amplification by sampling is claimed, because rows are not sampled.
    """

    options: SGDOptions = SGDOptions()

    name: ClassVar[str] = "central_sgd"
    summary: ClassVar[str] = "stochastic gradient descent at a trusted curator, a pass a round"
    releases: ClassVar[str] = "every round, a pass over the rows"
    good_for: ClassVar[str] = "comparisons: the accuracy of a trusted curator, by minibatches"
    trust: ClassVar[Trust] = CURATOR
    least_penalty: ClassVar[float] = 0.08

    def round(self, k: int, state: DescentState, node: Node) -> DescentState:
        """Run round k: one noisy pass over the rows, which releases the iterate after it.

        Parameters
        ----------
        k, state, node
            As for :meth:`Algorithm.round`.

        Returns
        -------
        DescentState
        """
        f, _, mean = state
        step = 1.0 / self.penalty(k)
        query = NoisyEpoch(
            f, self._noise_parameter(k), "noisy pass", batches=self.options.batches, step=step
        )
        f = node.ask(query)
        return DescentState(f, node.net.neighbour_sum(f), tail_average(mean, f, k))
