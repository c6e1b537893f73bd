"""Oracles: how a node's questions are answered and how nodes come to agree, one class for each way to trust.

Which oracle a run has follows from its public facts, and is chosen here, once.  Both have the same methods, so that
algorithms are written for neither, and nothing below asks whom people trust.

=====================  ===============================  =============================================================
oracle                 trust                            an answer is
=====================  ===============================  =============================================================
:class:`OwnAnswers`    nobody, or a curator (one node)  of each node's own rows; nodes agree by mixing with neighbours
:class:`SumAnswers`    sums                             of all sites' rows, the same everywhere: nodes agree already
=====================  ===============================  =============================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from ..algorithms import Algorithm
from ..errors import InvalidInput
from ..network.net import Net
from ..problem.facts import Among, Facts
from ..queries import Query, Sum
from ..util.typing import Any, Array
from .row_guard import Asked


@dataclass(frozen=True)
class Oracle(ABC):
    """What stands between an algorithm and the rows: it asks a guard, and exchanges with the other nodes.

    Parameters
    ----------
    facts : Facts
        Public facts, of all nodes or of one.
    net : Net
    guard : Asked
        The row guard, or what stands in for it where there are no rows: a pricer, or a reader of what was sent.
    """

    facts: Facts
    net: Net
    guard: Asked

    @abstractmethod
    def ask(self, query: Query) -> Array:
        """The released answer, (..., d), after its charge."""

    @abstractmethod
    def among(self) -> Among:
        """The sites whose rows the next answer is of, once nodes agree."""

    @abstractmethod
    def mean(self, answer: Array, among: Among) -> Array:
        """The mean over the rows of all sites, from an answer that is such a mean over the rows it was asked of."""

    @abstractmethod
    def mix(self, x: Array, share: float = 1.0) -> Array:
        """`x`, (..., d), moved by `share` of the way to the neighbourhood's mean."""

    @abstractmethod
    def diffuse(self, step: Array, current: Array, previous: Array) -> Array:
        """Exact diffusion: mix `step` half, after adding the disagreement ``current - previous`` that mixing left."""

    @abstractmethod
    def lost_dual(self, weight: Array | float) -> Array | float:
        """What the duals of edges lost in the last exchange have added up to: :meth:`Net.lost_dual`."""


class OwnAnswers(Oracle):
    """Each node has answers of its own rows, and what it sends is public."""

    def ask(self, query: Query) -> Array:
        return self.guard.ask(query)

    def among(self) -> Among:
        return Among.all(self.facts)

    def mean(self, answer: Array, among: Among) -> Array:
        return self.net.whole_sum(answer * (self.facts.n / among.rows))

    def mix(self, x: Array, share: float = 1.0) -> Array:
        return x + share * self.facts.mixing * (self.net.neighbour_sum(x) - self.net.degree * x)

    def diffuse(self, step: Array, current: Array, previous: Array) -> Array:
        return self.mix(step + current - previous, 0.5)

    def lost_dual(self, weight: Array | float) -> Array | float:
        return self.net.lost_dual(weight)


class SumAnswers(Oracle):
    """All nodes have the same answers, opened sums over all sites, and so the same state: there is nothing to mix."""

    def ask(self, query: Query) -> Array:
        return self.guard.ask_sum(Sum.of(query), self.net)

    def among(self) -> Among:
        return self.net.among(self.facts)  # agreed on now, and asked again by the row guard

    def mean(self, answer: Array, among: Among) -> Array:
        return answer

    def mix(self, x: Array, share: float = 1.0) -> Array:
        return x

    def diffuse(self, step: Array, current: Array, previous: Array) -> Array:
        return step

    def lost_dual(self, weight: Array | float) -> Array | float:
        return 0.0


def oracle_of(facts: Facts, net: Net, guard: Asked) -> Oracle:
    """The oracle of a run with these facts: the one place where trust decides how answers come about."""
    oracle: type[Oracle] = SumAnswers if facts.summed else OwnAnswers
    return oracle(facts, net, guard)


def check_trust(algorithm: Algorithm[Any], facts: Facts) -> None:
    """Refuse (InvalidInput) to run a method on the facts of a run under another trust: its prices are others."""
    if algorithm.any_trust or algorithm.trust.opens_sums == facts.summed:
        return
    opens = "sums alone" if facts.summed else "no sums"
    rule = f"{algorithm.name} trusts {algorithm.trust.kind}, and these facts are of a run that opens {opens}"
    raise InvalidInput("participants", facts.participants, rule, "prepare the run with the method's own trust")
