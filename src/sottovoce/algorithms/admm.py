"""Consensus ADMM without noise (000, Algorithm 1), on which the private ADMM methods build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..queries import PerturbedObjective, Query
from ..util.typing import Array
from .base import Algorithm, Node


class Augmented(NamedTuple):
    """The public linear and quadratic terms that ADMM adds to a node's objective."""

    linear: Array
    curvature: Array


def augment(eta: Array, V: Array, f: Array, S: Array, lam: Array) -> Augmented:
    """``2 lam.w + eta sum_j ||w - (f_i + f_j)/2||^2 = linear.w + curvature ||w||^2 / 2 + const`` (000, eq. 9)."""
    return Augmented(linear=2 * lam - eta * (V * f + S), curvature=2 * eta * V)


def dual(eta: Array, V: Array, f: Array, S: Array, lam: Array) -> Array:
    """``lam_i + (eta / 2) sum_j (f_i - f_j)`` (000, eq. 11)."""
    return lam + eta / 2 * (V * f - S)


INDUCED = (
    "ADMM on the graph that is left, with a proximal term eta ||w - f_i||^2 for every lost edge: it converges with any "
    "such term (He, Liao, Han and Yang 2002), to the minimiser over the sites that are left"
)
"""Of consensus ADMM: a lost neighbour counts as oneself, and its edge's dual is dropped."""


class ADMMState(NamedTuple):
    """Public state of a node after round t."""

    f: Array  # f_i(t), last sent                     (..., d)
    S: Array  # sum_j f_j(t) over the neighbours j    (..., d)
    lam: Array  # lambda_i(t)                         (..., d)


@dataclass(frozen=True)
class ADMM(Algorithm[ADMMState]):
    """Exact local minimisers are exchanged: every message depends on rows without noise, so epsilon is infinite.

    Private forms differ in their :meth:`query`.
    """

    name: ClassVar[str] = "admm"
    paper: ClassVar[str] = "000, Algorithm 1"
    summary: ClassVar[str] = "consensus ADMM, no noise: the baseline to compare with"
    releases: ClassVar[str] = "never: messages are exact"
    noise_law: ClassVar[str] = "none"
    good_for: ClassVar[str] = "a yardstick without privacy"
    private: ClassVar[bool] = False
    induced: ClassVar[str] = INDUCED

    def init(self, node: Node) -> ADMMState:
        zero = node.zeros()
        return ADMMState(f=zero, S=zero, lam=zero)

    def round(self, k: int, state: ADMMState, node: Node) -> ADMMState:
        f, S, lam = state
        eta, V = self.penalty(k), node.net.degree
        answer = node.ask(self.query(k, augment(eta, V, f, S, lam), f, node))  # 000, eq. (9) and (10)
        f = self.sent(answer, f)
        S = node.net.neighbour_sum(f)
        eta = self.dual_penalty(k)
        return ADMMState(f, S, dual(eta, V, f, S, lam) - node.lost_dual(eta / 2))  # 000, eq. (11)

    def query(self, k: int, terms: Augmented, f: Array, node: Node) -> Query:
        """What round k asks; the solver starts at `f`."""
        return PerturbedObjective(*terms, f, None, "000, eq. (10)")

    def sent(self, answer: Array, f: Array) -> Array:
        """What a node sends after this answer; `f` is what it sent last."""
        return answer

    def dual_penalty(self, k: int) -> Array:
        """The penalty of round k's dual step."""
        return self.penalty(k)
