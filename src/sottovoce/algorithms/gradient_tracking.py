"""Gradient tracking: nodes step along noisy estimates of the network's mean gradient."""

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

    ``y <- y + g_new - g_old``, then ``f <- W (f - y / penalty)`` in an odd round, and ``y <- W y``
    in the even round after it, with lazy averages W over the neighbourhood.  The mean of y over the
    nodes is that of their last gradients, so noise of earlier gradients leaves no trace in it, and
    sites that differ agree on the pooled minimiser at a constant step.

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
    good_for: ClassVar[str] = (
        "comparisons: a method from other work; sites that differ; no local solves"
    )
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
        f, track, before, mean = state
        if k % 2 == 0:
            track = node.mix(track, 0.5) + node.lost_dual(0.5 * node.facts.mixing_weight)
            return TrackingState(f, track, before, mean)
        step = _steps_begun(k)
        slope = (
            node.ask(NoisyGradient(f, self._noise_parameter(step), "noisy gradient"))
            + node.facts.mu * f
        )
        # The mean of the estimates over the nodes stays that of the nodes' last gradients.
        track = track + slope - before
        f = node.mix(f - track / self.penalty(step), 0.5)
        # What a lost edge has moved of the gradients' sum is put back.
        track = track + node.lost_dual(0.0)
        return TrackingState(f, track, slope, tail_average(mean, f, step))

    def model(self, state: TrackingState) -> Array:
        return state.mean


def _steps_begun(k: int) -> int:
    """Return how many steps have begun after round k."""
    return (k + 1) // 2
