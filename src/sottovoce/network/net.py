"""The network: sums over neighbours for algorithms, and sums over all sites for their row guards.

A vector that goes through ``neighbour_sum`` is public.  A *share*, a site's part of a sum over all
sites, is not: only row guards hand it over, *sealed* by a mask (:meth:`Net.mask_share`), so that
others see nothing but the total (secure aggregation).  An *attempt* is one try to open such a sum;
it fails if the share of a site does not arrive.

:class:`DenseNet` multiplies by the adjacency matrix in a simulation.  :class:`QueueNet` sends
messages between threads of one process: the in-process twin of a deployment, and the conformance
test of every transport.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from functools import cached_property

import numpy as np

from ..errors import NetClosed
from ..problem.facts import Among, Facts
from ..util.typing import Any, Array, IntArray
from .graphs import Graph

LARGE = 200
"""Nodes beyond which the adjacency matrix is sparse."""


class Net(ABC):
    """The exchange with neighbours, and sums over all sites, of one node or all of a simulation."""

    degree: Array
    """Number of neighbours, (N, 1) of all nodes or (1,) of one."""

    @abstractmethod
    def neighbour_sum(self, x: Array) -> Array:
        """Sum the neighbours' vectors, ``sum_{j in V_i} x_j``.

        Parameters
        ----------
        x : array (..., d)
            This node's vector.  It is sent to every neighbour, so it must be public.

        Returns
        -------
        array (..., d)
        """

    def sum_of_all_nodes(self, x: Array) -> Array:
        """Sum all nodes' x in the order of the nodes: the same bits at every node.

        Sends ``x`` to everybody; needs a complete network.
        """
        total = np.zeros_like(x)
        for one in self.gather_from_all_nodes(x):
            total = total + one
        return total

    def gather_from_all_nodes(self, x: Array) -> Array:
        """Collect all nodes' x, (..., N, d), in the order of the nodes: the same at every node.

        Sends ``x`` to everybody; needs a complete network.
        """
        raise TypeError(f"{type(self).__name__} sends nothing to all nodes")

    def pop_lost_edge_duals(self, weight: Array | float) -> Array | float:
        """Return the dual terms of edges that were lost in the last :meth:`neighbour_sum`, or zero.

        An algorithm calls this after each exchange whose differences enter its dual variable.  The
        dual term of an edge is the sum of ``weight (x_i - x_j)`` over all exchanges; with this call
        the last differences are added for the edges that are left.  `weight`, (..., 1), is that of
        ``x_i - x_j`` in the algorithm's dual step.
        """
        return 0.0

    def among(self, facts: Facts) -> Among:
        """Agree on the sites of the next attempt, before noise is drawn; NetClosed if too few."""
        return Among.all_sites(facts)

    @abstractmethod
    def mask_share(self, share: IntArray) -> IntArray:
        """Mask a share, an array of int, before it leaves the row guard; the shape stays.

        In a simulation, which holds all shares, it returns their sum at every node instead.
        """

    @abstractmethod
    def total(self, sealed: IntArray) -> IntArray:
        """Open the sum of an attempt's shares modulo ``2^64``, from what :meth:`mask_share` gave.

        AttemptLost if a share of the attempt does not arrive; then nothing is opened.
        """

    def close(self) -> None:  # noqa: B027 - a simulation has nobody to tell
        """Tell the neighbours that no more rounds will come."""


class DenseNet(Net):
    """All nodes of `graph` at once: vectors are (..., N, d)."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._sparse = graph, graph.n_nodes > LARGE
        self.degree = graph.degree

    @cached_property
    def _adjacency(self) -> Any:
        """The adjacency matrix, dense or sparse."""
        # Made when neighbours are first summed: runs with sums over all sites need none.
        if self._sparse:
            return self._graph.sparse_adjacency()
        return self._graph.adjacency

    def neighbour_sum(self, x: Array) -> Array:
        if not self._sparse:
            return np.matmul(self._adjacency, x)
        # A sparse matrix multiplies only matrices, so the other axes become columns.
        nodes = np.moveaxis(x, -2, 0)
        total = self._adjacency @ nodes.reshape(len(nodes), -1)
        return np.moveaxis(total.reshape(nodes.shape), 0, -2)

    def sum_of_all_nodes(self, x: Array) -> Array:
        total = np.zeros_like(x[..., 0, :])
        # One after the other, as nodes of a deployment add: NumPy's sum rounds otherwise.
        for i in range(x.shape[-2]):
            total = total + x[..., i, :]
        return np.array(np.broadcast_to(total[..., None, :], x.shape))

    def gather_from_all_nodes(self, x: Array) -> Array:
        return np.array(x)

    def mask_share(self, share: IntArray) -> IntArray:
        # One process holds all shares, so a mask would hide nothing: the sum stands at every node.
        return np.array(np.broadcast_to(share.sum(axis=-2, keepdims=True), share.shape))

    def total(self, sealed: IntArray) -> IntArray:
        return sealed


class Edges:
    """One node's edges, some of which may be lost during a run.

    The node's own vector stands in for that of a lost neighbour.  So the node keeps the degree of
    the plan, on which its noise depends, and the difference over the lost edge is zero.  The dual
    term that the edge had so far is dropped at both ends (:meth:`pop_lost_edge_duals`).
    """

    def __init__(self) -> None:
        # The vectors of the last exchange: the node's own, and those of neighbours that answered.
        self._own, self._told = np.zeros(0), dict[Hashable, Array]()
        # The dual term of every edge that is left.
        self._duals = dict[Hashable, Array]()

    def sum_over_neighbours(self, own: Array, told: Mapping[Hashable, Array | None]) -> Array:
        """Sum the neighbours' vectors, in their order, and keep them for the dual terms of edges.

        Parameters
        ----------
        own : array (..., d)
            This node's vector.
        told : mapping to array (..., d) or None
            The vector of every neighbour; None for a lost one.

        Returns
        -------
        array (..., d)
        """
        self._own = own
        self._told = {who: x for who, x in told.items() if x is not None}
        total = np.zeros_like(own)
        for x in told.values():
            # The node's own vector stands in for that of a lost neighbour.
            total = total + (own if x is None else x)
        return total

    def pop_lost_edge_duals(self, weight: Array | float) -> Array | float:
        """See :meth:`Net.pop_lost_edge_duals`."""
        lost = [self._duals.pop(who) for who in [*self._duals] if who not in self._told]
        if np.any(weight):
            for who, x in self._told.items():
                self._duals[who] = self._duals.get(who, 0.0) + weight * (self._own - x)
        return sum(lost, start=0.0)


class Adder:
    """Sums the shares of the threads of one process: no thread sees another's share."""

    def __init__(self, sites: int) -> None:
        self._sites, self._news = sites, threading.Condition()
        self._totals: dict[int, tuple[int, IntArray]] = {}
        self._closed = False

    def add_share_and_wait(
        self, attempt: int, share: IntArray, sites: int | None = None
    ) -> IntArray:
        """Add a share to an attempt, and wait for the sum of all its shares.

        Parameters
        ----------
        attempt : int
            Number of the attempt, the same in all threads.
        share : array of int
            This site's share; shapes agree.
        sites : int, optional
            How many shares complete the sum; None for those of all sites.

        Returns
        -------
        array of int
            The same in all threads.

        Raises
        ------
        NetClosed
            If the share of every site is needed, and a site left.
        """
        needed = self._sites if sites is None else sites

        def is_over() -> bool:
            shares, _ = self._totals[attempt]
            # A site that leaves ends only the attempts that need all sites.
            return shares == needed or (self._closed and sites is None)

        with self._news:
            done, so_far = self._totals.get(attempt, (0, np.zeros_like(share)))
            self._totals[attempt] = done + 1, so_far + share
            self._news.notify_all()
            self._news.wait_for(is_over)
            done, total = self._totals[attempt]
        if done < needed:
            raise NetClosed("a site left the run")
        return total

    def close(self) -> None:
        """Note that a site left: attempts that need all sites end with NetClosed."""
        with self._news:
            self._closed = True
            self._news.notify_all()


class QueueNet(Net):
    """One node of a graph, exchanging vectors through queues of this process.

    :meth:`connect_all_nodes` makes all nodes.
    """

    def __init__(
        self,
        inbox: dict[int, queue.Queue[Array | None]],
        outbox: dict[int, queue.Queue[Array | None]],
        adder: Adder,
    ) -> None:
        self._inbox, self._outbox, self._adder = inbox, outbox, adder
        self._edges = Edges()
        self._attempts = self._exchanges = 0
        # Numbers of the exchanges from which on this node, and each neighbour, is lost:
        # demonstrations on one machine set them.
        self.until: float = np.inf
        self.leaves: dict[int, float] = {}
        self.degree = np.array([float(len(inbox))])

    @classmethod
    def connect_all_nodes(cls, graph: Graph) -> list[QueueNet]:
        """Make a net for each node of `graph`, with a queue for every direction of every edge."""
        wires: dict[tuple[int, int], queue.Queue[Array | None]] = {}
        for i, j in graph.edges:
            wires[i, j], wires[j, i] = queue.Queue(), queue.Queue()
        adder = Adder(graph.n_nodes)
        nets = []
        for i in range(graph.n_nodes):
            inbox = {j: wires[j, i] for j in graph.neighbours(i)}
            outbox = {j: wires[i, j] for j in graph.neighbours(i)}
            nets.append(cls(inbox, outbox, adder))
        return nets

    def neighbour_sum(self, x: Array) -> Array:
        found = self._exchange_vectors(x)
        return self._edges.sum_over_neighbours(x, {j: found.get(j) for j in self._inbox})

    def pop_lost_edge_duals(self, weight: Array | float) -> Array | float:
        return self._edges.pop_lost_edge_duals(weight)

    def gather_from_all_nodes(self, x: Array) -> Array:
        found = self._exchange_vectors(x)
        # In a complete network a node hears of all numbers but its own.
        own = next(i for i in range(len(found) + 1) if i not in found)
        messages = found | {own: x}
        return np.stack([messages[i] for i in sorted(messages)])

    def _exchange_vectors(self, x: Array) -> dict[int, Array]:
        """Send a vector to every neighbour, and return those of the neighbours that are left."""
        self._exchanges += 1
        if self._exchanges >= self.until:
            raise NetClosed("this node is lost")
        for wire in self._outbox.values():
            wire.put(x.copy())
        found = {}
        for j, wire in self._inbox.items():
            if self._exchanges >= self.leaves.get(j, np.inf):
                continue
            message = wire.get()
            if message is None:
                raise NetClosed(f"node {j} left the run")
            found[j] = message
        return found

    def mask_share(self, share: IntArray) -> IntArray:
        # Unmasked: only the adder of this process reads it.
        return share

    def total(self, sealed: IntArray) -> IntArray:
        self._attempts += 1
        return self._adder.add_share_and_wait(self._attempts, sealed)

    def close(self) -> None:
        self._adder.close()
        for wire in self._outbox.values():
            wire.put(None)
