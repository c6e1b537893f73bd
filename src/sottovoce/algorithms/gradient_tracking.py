"""Gradient tracking: nodes step along noisy estimates of the network's mean gradient.

The method is from outside the five papers, for comparison.  A *step* takes two rounds, because a
round has one exchange and gradient tracking averages two vectors: the iterate f and the estimate y.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..queries import NoisyGradient
from ..util.typing import Array
from .base import Algorithm, Node
from .knobs import CappedOptions
from .prox import MIXED, tail_average


class TrackingState(NamedTuple):
    """Public state of a node after round t."""

    f: Array  # iterate                                      (..., d)
    track: Array  # estimate of the network's mean gradient  (..., d)
    slope: Array  # the node's last noisy gradient           (..., d)
    mean: Array  # tail average of f                         (..., d)


@dataclass(frozen=True)
class GradientTracking(Algorithm[TrackingState]):
    """DIGing (Nedic, Olshevsky and Shi 2017), adapt then combine (Xu, Zhu, Soh and Xie 2015).

    In an odd round ``y <- y + g_new - g_old``, then ``f <- W (f - y / penalty)``; in the even round
    after it ``y <- W y``.  W is the lazy average ``(I + W') / 2`` over the neighbourhood.  The mean
    of y over the nodes is that of their last gradients, so noise of earlier gradients leaves no
    trace in it, and sites that differ agree on the pooled minimiser at a constant step.

    Guarantee
    ---------
    Every odd round releases a noisy gradient at a public point, of sensitivity ``Delta C / n``.
    Even rounds exchange what follows from earlier messages.
    """

    options: CappedOptions = CappedOptions()

    name: ClassVar[str] = "gradient_tracking"
    paper: ClassVar[str] = "Nedic, Olshevsky and Shi (SIAM J. Optim. 2017)"
    summary: ClassVar[str] = (
        "gradient tracking with noisy gradients, tail-averaged: a release every second round"
    )
    releases: ClassVar[str] = "every second round"
    noise_law: ClassVar[str] = "Gaussian (pure: spherical), on gradients"
    good_for: ClassVar[str] = "comparisons; sites that differ; no local solves"
    curvature: ClassVar[str] = "node"
    least_penalty: ClassVar[float] = 0.02
    gradient_steps: ClassVar[bool] = True
    induced: ClassVar[str] = MIXED

    def init(self, node: Node) -> TrackingState:
        zero = node.zero_vector()
        return TrackingState(zero, zero, zero, zero)

    def round(self, k: int, state: TrackingState, node: Node) -> TrackingState:
        """Run round k: in odd rounds a gradient and a step, in even rounds an average of estimates.

        Parameters
        ----------
        k, state, node
            As for :meth:`Algorithm.round`.

        Returns
        -------
        TrackingState
        """
        f, track, last_gradient, mean = state
        if k % 2 == 0:
            track = node.mix(track, 0.5) + node.lost_dual(0.5 * node.facts.mixing_weight)
            return TrackingState(f, track, last_gradient, mean)
        step = _steps_begun(k)
        gradient = (
            node.ask(NoisyGradient(f, self._noise_parameter(step), "noisy gradient"))
            + node.facts.mu * f
        )
        # The mean of the estimates over the nodes stays that of the nodes' last gradients.
        track = track + gradient - last_gradient
        f = node.mix(f - track / self.penalty(step), 0.5)
        # Mixing moved some of the estimate over each edge; of a lost edge that is returned, so
        # that the mean stays right for the nodes that are left.
        track = track + node.lost_dual(0.0)
        return TrackingState(f, track, gradient, tail_average(mean, f, step))

    def model(self, state: TrackingState) -> Array:
        return state.mean


def _steps_begun(k: int) -> int:
    """Return the number of the step that round k belongs to, from 1: steps take two rounds."""
    return (k + 1) // 2
