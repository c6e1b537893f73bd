"""Consensus ADMM without noise (000, Algorithm 1), on which the private ADMM methods build.

Symbols are those of 000, with its p, t + 1 written i, t: ``f_i(t)`` is what node i sends in round
t, ``lam`` its dual variable lambda_i, ``S`` the sum of its neighbours' f_j, ``V`` their number
(N_p there) and ``eta`` the penalty of an edge.  000's rho is ``rho / N`` here
(:mod:`sottovoce.problem.facts`).  The papers start f at random; here all vectors start at zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..queries import PerturbedObjective, Query
from ..util.typing import Array
from .base import Algorithm, Node


class Augmented(NamedTuple):
    """The public linear term (..., d) and quadratic term (..., 1) that ADMM adds."""

    linear: Array
    curvature: Array


def augmented_terms(eta: Array, V: Array, f: Array, S: Array, lam: Array) -> Augmented:
    """Return the terms that ADMM adds to a node's objective (000, eq. 9).

    ``2 lam.w + eta sum_j ||w - (f_i + f_j)/2||^2 = linear.w + curvature ||w||^2 / 2 + const``

    Parameters
    ----------
    eta : array of shape () or (..., 1)
        Penalty of an edge, > 0.
    V : array of shape (..., 1)
        Degree of the node: its number of neighbours.
    f : array of shape (..., d)
        What the node sent last, f_i.
    S : array of shape (..., d)
        Sum of what its neighbours sent last, ``sum_j f_j``.
    lam : array of shape (..., d)
        The node's dual variable lambda_i.

    Returns
    -------
    Augmented
    """
    return Augmented(linear=2 * lam - eta * (V * f + S), curvature=2 * eta * V)


def updated_dual(eta: Array, V: Array, f: Array, S: Array, lam: Array) -> Array:
    """Return the dual variable after an exchange, ``lam_i + (eta / 2) sum_j (f_i - f_j)``.

    It is (11) of 000.

    Parameters
    ----------
    eta : array of shape () or (..., 1)
        Penalty of an edge, > 0.
    V : array of shape (..., 1)
        Degree of the node: its number of neighbours.
    f : array of shape (..., d)
        What the node sent in this round, f_i.
    S : array of shape (..., d)
        Sum of what its neighbours sent in this round, ``sum_j f_j``.
    lam : array of shape (..., d)
        The node's dual variable before, lambda_i.

    Returns
    -------
    array of shape (..., d)
    """
    return lam + eta / 2 * (V * f - S)


INDUCED = (
    "ADMM on the graph that is left, with a proximal term eta ||w - f_i||^2 for every lost edge: "
    "it converges with any "
    "such term (He, Liao, Han and Yang 2002), to the minimiser over the sites that are left"
)
"""Why consensus ADMM may continue without a lost site.

The node's own f_i stands in for a lost neighbour's, and the dual term of that edge is dropped.
"""


class ADMMState(NamedTuple):
    """Public state of a node after round t."""

    f: Array  # f_i(t), last sent                     (..., d)
    S: Array  # sum_j f_j(t) over the neighbours j    (..., d)
    lam: Array  # lambda_i(t), the dual variable      (..., d)


@dataclass(frozen=True)
class ADMM(Algorithm[ADMMState]):
    """Consensus ADMM over the graph, in which nodes exchange exact local minimisers.

    Every message depends on rows without noise, so epsilon is infinite.  Private forms differ in
    their :meth:`query_of_round`.
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
        zero = node.zero_vector()
        return ADMMState(f=zero, S=zero, lam=zero)

    def round(self, k: int, state: ADMMState, node: Node) -> ADMMState:
        """Run round k: minimise locally (000, eq. 10), exchange, and update the dual (000, eq. 11).

        Parameters
        ----------
        k, state, node
            As for :meth:`Algorithm.round`.

        Returns
        -------
        ADMMState
        """
        f, S, lam = state
        eta, V = self.penalty(k), node.net.degree
        # 000, eq. (9) and (10): the local minimiser of the augmented objective.
        answer = node.ask(self.query_of_round(k, augmented_terms(eta, V, f, S, lam), f, node))
        f = self.sent_message(answer, f)
        S = node.net.neighbour_sum(f)
        # 000, eq. (11): the dual step, without the duals of edges that were lost.
        eta = self.dual_penalty(k)
        return ADMMState(f, S, updated_dual(eta, V, f, S, lam) - node.lost_dual(eta / 2))

    def query_of_round(self, k: int, terms: Augmented, f: Array, node: Node) -> Query:
        """Return the query of round k.

        Parameters
        ----------
        k : int
            The round, from 1.
        terms : Augmented
            Linear and quadratic term that ADMM adds to the node's objective.
        f : array of shape (..., d)
            What the node sent last; the solver starts there.
        node : Node
            Gives public facts of the node.

        Returns
        -------
        Query
        """
        return PerturbedObjective(*terms, f, None, "000, eq. (10)")

    def sent_message(self, answer: Array, f: Array) -> Array:
        """Return what a node sends after an answer; `f` is what it sent last."""
        return answer

    def dual_penalty(self, k: int) -> Array:
        """Return the penalty of round k's dual step (000, eq. 11); M-ADMM has another one."""
        return self.penalty(k)
