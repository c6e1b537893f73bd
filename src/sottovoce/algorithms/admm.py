"""Consensus ADMM without noise (000, Algorithm 1), on which the private ADMM methods build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..queries import PerturbedObjective
from ..util.typing import Array
from .base import Algorithm, Node, augment, dual


class State(NamedTuple):
    """Public state of a node after round t."""

    f: Array  # f_i(t), last sent                     (..., d)
    S: Array  # sum_j f_j(t) over the neighbours j    (..., d)
    lam: Array  # lambda_i(t)                         (..., d)


@dataclass(frozen=True)
class ADMM(Algorithm[State]):
    """Exact local minimisers are exchanged: every message depends on rows without noise, so epsilon is infinite."""

    name: ClassVar[str] = "admm"
    paper: ClassVar[str] = "000, Algorithm 1"
    summary: ClassVar[str] = "consensus ADMM, no noise: the baseline to compare with"
    releases: ClassVar[str] = "never: messages are exact"
    noise_law: ClassVar[str] = "none"
    good_for: ClassVar[str] = "a yardstick without privacy"
    private: ClassVar[bool] = False

    def init(self, node: Node) -> State:
        zero = node.zeros()
        return State(f=zero, S=zero, lam=zero)

    def round(self, k: int, state: State, node: Node) -> State:
        f, S, lam = state
        eta, V = self.penalty(k), node.net.degree
        linear, curvature = augment(eta, V, f, S, lam)  # 000, eq. (9)
        f = node.ask(PerturbedObjective(linear, curvature, f, None, "000, eq. (10)"))
        S = node.net.neighbour_sum(f)
        return State(f, S, dual(eta, V, f, S, lam))  # 000, eq. (11)
