"""The network as an algorithm sees it: a degree and one collective, ``neighbour_sum``.

:class:`DenseNet` is a product with the adjacency matrix over the node axis of a simulation.  :class:`QueueNet` sends
messages between threads of one process: the in-process twin of a deployment, and the conformance test of every
transport.
"""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod

import numpy as np

from .errors import NetClosed
from .graphs import Graph
from .typing import Array

LARGE = 200
"""Nodes beyond which the adjacency matrix is kept without its zeros."""


class Net(ABC):
    """Degree of shape (N, 1) or (1,), and the sum over neighbours."""

    degree: Array

    @abstractmethod
    def neighbour_sum(self, x: Array) -> Array:
        """``sum_{j in V_i} x_j`` for vectors of shape (..., d).  Sends ``x`` to every neighbour: x must be public."""

    def close(self) -> None:  # noqa: B027 - a simulation has nobody to tell
        """Tell the neighbours that no more rounds will come."""


class DenseNet(Net):
    """All nodes of `graph` at once: vectors are (..., N, d)."""

    def __init__(self, graph: Graph) -> None:
        self._sparse = graph.n_nodes > LARGE
        self._adjacency = graph.sparse() if self._sparse else graph.adjacency
        self.degree = graph.degree

    def neighbour_sum(self, x: Array) -> Array:
        if not self._sparse:
            return np.matmul(self._adjacency, x)
        nodes = np.moveaxis(x, -2, 0)
        return np.moveaxis((self._adjacency @ nodes.reshape(len(nodes), -1)).reshape(nodes.shape), 0, -2)


class QueueNet(Net):
    """One node of `graph`, exchanging vectors through in-process queues.

    Use :meth:`connect` to make the nets of all nodes.
    """

    def __init__(
        self, inbox: dict[int, queue.Queue[Array | None]], outbox: dict[int, queue.Queue[Array | None]]
    ) -> None:
        self._inbox, self._outbox = inbox, outbox
        self.degree = np.array([float(len(inbox))])

    @classmethod
    def connect(cls, graph: Graph) -> list[QueueNet]:
        """One net a node, with a queue for every direction of every edge."""
        wires: dict[tuple[int, int], queue.Queue[Array | None]] = {}
        for i, j in graph.edges:
            wires[i, j], wires[j, i] = queue.Queue(), queue.Queue()
        return [
            cls({j: wires[j, i] for j in graph.neighbours(i)}, {j: wires[i, j] for j in graph.neighbours(i)})
            for i in range(graph.n_nodes)
        ]

    def neighbour_sum(self, x: Array) -> Array:
        for wire in self._outbox.values():
            wire.put(x.copy())
        total = np.zeros_like(x)
        for j, wire in self._inbox.items():
            message = wire.get()
            if message is None:
                raise NetClosed(f"node {j} left the run")
            total = total + message
        return total

    def close(self) -> None:
        for wire in self._outbox.values():
            wire.put(None)
