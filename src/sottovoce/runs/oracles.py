"""Oracles: how queries are answered and how nodes agree, one class for each trust.

An algorithm asks its :class:`sottovoce.runs.engine.Place`, which passes the question to the run's
oracle.  The oracle is chosen here, once, from the public facts.  Both classes have the same
methods, so an algorithm does not depend on the trust.

=====================  ===============================  ===========================================
oracle                 trust                            an answer is
=====================  ===============================  ===========================================
:class:`OwnAnswers`    nobody, or a curator (one node)  of each node's own rows; nodes mix to agree
:class:`SumAnswers`    sums                             of all sites' rows, the same everywhere
=====================  ===============================  ===========================================
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
    """The interface between an algorithm and the rows and other nodes: queries and exchanges.

    Parameters
    ----------
    facts : Facts
        Public facts, of all nodes or of one.
    net : Net
    guard : Asked
        The row guard, or what stands in for it where there are no rows: a pricer, or a reader of
        what was sent.
    """

    facts: Facts
    net: Net
    guard: Asked

    @abstractmethod
    def request_answer(self, query: Query) -> Array:
        """Charge a query, then return its released answer, (..., d)."""

    @abstractmethod
    def participating_sites(self) -> Among:
        """Return the sites whose rows the next answer covers, once nodes agree on them."""

    @abstractmethod
    def mean_over_sites(self, answer: Array, among: Among) -> Array:
        """Return the mean over all sites' rows, from an answer that is a mean over some.

        Parameters
        ----------
        answer : array (..., d)
            A released mean over the rows it was asked of: each node's own, or those of
            `participating_sites`.
        among : Among
            The sites over which to average, and how many rows they have together.

        Returns
        -------
        array (..., d)
            The same at every node.
        """

    @abstractmethod
    def mix_with_neighbours(self, x: Array, share: float = 1.0) -> Array:
        """Average with the neighbours: move `x`, (..., d), by `share` of the way to their mean.

        Parameters
        ----------
        x : array (..., d)
            Sent to all neighbours, so it must be public.
        share : float
            From 0 (no mixing) to 1 (the full step ``W x`` of the mixing matrix).

        Returns
        -------
        array (..., d)
            ``(1 - share) x + share W x``.
        """

    @abstractmethod
    def diffuse_exactly(self, step: Array, current: Array, previous: Array) -> Array:
        """Mix a step by exact diffusion: ``(I + W) / 2`` of ``step + current - previous``.

        The correction ``current - previous`` cancels the bias that plain mixing has at a constant
        step, so that sites with different rows agree on the minimiser of the sum (Yuan, Ying, Zhao
        and Sayed 2019).

        Parameters
        ----------
        step : array (..., d)
            The nodes' points after this round's step; public.
        current : array (..., d)
            The points before this round's step, as mixed in the last round.
        previous : array (..., d)
            Last round's `step`, before it was mixed.

        Returns
        -------
        array (..., d)
            The nodes' next points; where all nodes have the same state, `step` itself.
        """

    @abstractmethod
    def dual_of_lost_edges(self, weight: Array | float) -> Array | float:
        """Return the sum of the dual terms of lost edges: :meth:`Net.pop_lost_edge_duals`."""


class OwnAnswers(Oracle):
    """Each node has answers of its own rows, and what it sends is public."""

    def request_answer(self, query: Query) -> Array:
        return self.guard.charge_and_answer(query)

    def participating_sites(self) -> Among:
        return Among.all_sites(self.facts)

    def mean_over_sites(self, answer: Array, among: Among) -> Array:
        return self.net.sum_of_all_nodes(answer * (self.facts.n / among.rows))

    def mix_with_neighbours(self, x: Array, share: float = 1.0) -> Array:
        return x + share * self.facts.mixing_weight * (
            self.net.neighbour_sum(x) - self.net.degree * x
        )

    def diffuse_exactly(self, step: Array, current: Array, previous: Array) -> Array:
        """Mix with the neighbours by exact diffusion.

        Parameters
        ----------
        step, current, previous
            As for :meth:`Oracle.diffuse_exactly`.

        Returns
        -------
        array (..., d)
        """
        return self.mix_with_neighbours(step + current - previous, 0.5)

    def dual_of_lost_edges(self, weight: Array | float) -> Array | float:
        return self.net.pop_lost_edge_duals(weight)


class SumAnswers(Oracle):
    """All nodes have the same answers, opened sums over all sites.

    So they have the same state, and there is nothing to mix.
    """

    def request_answer(self, query: Query) -> Array:
        return self.guard.charge_and_open_sum(Sum.sum_of_query(query), self.net)

    def participating_sites(self) -> Among:
        # The sites agree now; the row guard asks the net again and gets the same answer.
        return self.net.among(self.facts)

    def mean_over_sites(self, answer: Array, among: Among) -> Array:
        return answer

    def mix_with_neighbours(self, x: Array, share: float = 1.0) -> Array:
        return x

    def diffuse_exactly(self, step: Array, current: Array, previous: Array) -> Array:
        """Return the step: all nodes have the same one, so there is nothing to mix.

        Parameters
        ----------
        step : array (..., d)
        current, previous
            Not used.

        Returns
        -------
        array (..., d)
        """
        return step

    def dual_of_lost_edges(self, weight: Array | float) -> Array | float:
        return 0.0


def choose_oracle(facts: Facts, net: Net, guard: Asked) -> Oracle:
    """Choose the oracle of a run from its public facts.

    This is the one place where the oracle is chosen.

    Parameters
    ----------
    facts : Facts
        Of all nodes or of one; sums over all sites are opened if ``facts.opens_only_sums``.
    net : Net
    guard : Asked
        The row guard, or what stands in for it.

    Returns
    -------
    Oracle
        :class:`SumAnswers` where sums are opened, otherwise :class:`OwnAnswers`.
    """
    if facts.opens_only_sums:
        return SumAnswers(facts, net, guard)
    return OwnAnswers(facts, net, guard)


def check_trust_of_method(algorithm: Algorithm[Any], facts: Facts) -> None:
    """Refuse (InvalidInput) to run a method on the facts of a run under another trust.

    Its privacy loss would be another one.
    """
    if algorithm.any_trust or algorithm.trust.opens_sums == facts.opens_only_sums:
        return
    releases = "every site's own answers"
    if facts.opens_only_sums:
        releases = "sums over sites"
    rule = (
        f"{algorithm.name} is a method with trust={algorithm.trust.kind!r}, but the run was "
        f"prepared to release {releases}"
    )
    raise InvalidInput(
        "participants", facts.participants, rule, "prepare the run with the method's own trust"
    )
