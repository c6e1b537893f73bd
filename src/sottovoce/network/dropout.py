"""Simulated loss of sites: each site is lost for good at a random round.

The run then continues or ends as separate sites would (docs/deploy/index.md).  Over a graph it
continues on the *induced* subgraph of the sites that are left, if the method allows that and they
are connected and more than half of all.  In sums over sites it continues while enough sites for a
sum are left.
:func:`sottovoce.runs.simulate.simulate` uses :class:`DropoutNet`.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from ..errors import AttemptLost, InvalidInput, NetClosed
from ..problem.facts import Among, Facts
from ..util.typing import Array, IntArray
from .graphs import Graph
from .net import DenseNet


def draw_loss_rounds(rate: float, seed: int, nodes: int) -> Array:
    """Draw the round from which each node is lost.

    Parameters
    ----------
    rate : float
        Probability of each node to be lost in a round, in [0, 1).
    seed : int
        The same seed loses the same nodes.
    nodes : int
        N.

    Returns
    -------
    array (N,)
        Whole numbers from 1; infinite at a rate of 0.

    Raises
    ------
    InvalidInput
        For a rate out of its range.
    """
    if not 0.0 <= rate < 1.0:
        rule = "must be the probability that a site is lost in a round, at least 0 and below 1"
        raise InvalidInput("dropout", rate, rule, "use e.g. 0.01")
    if rate == 0.0:
        return np.full(nodes, np.inf)
    # A random stream of its own, so that losses do not change the noise of the same seed.
    digest = hashlib.blake2b(f"sottovoce dropout {seed}".encode(), digest_size=8).digest()
    rng = np.random.default_rng(int.from_bytes(digest, "big"))
    return rng.geometric(rate, nodes).astype(float)


def left(
    graph: Graph, since: Array, k: int, *, least: int, summed: bool, induced: bool
) -> list[int] | None:
    """Return the nodes with which round k begins; None if the run cannot continue with them.

    Parameters
    ----------
    graph : Graph
    since : array (N,)
        The round from which each node is lost.
    k : int
        The round.
    least : int
        The fewest sites of a sum.
    summed : bool
        True if the run releases sums over sites.  A node that is lost in this round still counts
        among those that begin it, because nobody knows yet.
    induced : bool
        True if the method may continue on the graph of the nodes that are left: more than half of
        all, and connected.

    Returns
    -------
    list of int or None
    """
    if summed:
        # Sites agree on a roster before an attempt, so one that is lost in round k still belongs to
        # it.
        there = np.flatnonzero(since >= k).tolist()
        if len(there) < least:
            return None
        return there
    there = np.flatnonzero(since > k).tolist()
    if len(there) == len(since):
        return there
    # More than half, so that two separate groups cannot both continue (docs/deploy/index.md).
    if induced and 2 * len(there) > len(since) and graph.connects_nodes(there):
        return there
    return None


def simulate_dropout(
    rate: float,
    graph: Graph,
    rounds: int,
    *,
    least: int,
    summed: bool,
    induced: bool,
    draws: int = 1000,
) -> dict[str, float]:
    """Estimate by simulation how often a run with this loss rate completes all of its rounds.

    Rounds whose sum is lost count as rounds.

    Parameters
    ----------
    rate : float
        Probability of each node to be lost in a round, in [0, 1).
    graph : Graph
    rounds : int
        Of the whole run.
    least, summed, induced
        As for :func:`left`.
    draws : int
        Simulated runs.

    Returns
    -------
    dict of float
        ``rate``; ``finishes``, the share of runs that complete; ``sites_left``, their mean number
        of sites at the end; ``rounds_if_not``, the mean number of rounds of the other runs
        (`rounds` if there are none).
    """
    # In sums, a loss is noticed in the round after it.
    delay = 1 if summed else 0
    ends: list[int] = []
    early: list[int] = []
    for seed in range(draws):
        since = draw_loss_rounds(rate, seed, graph.n_nodes)
        changes = [int(k) + delay for k in np.unique(since) if k + delay <= rounds]
        for k in changes:
            if left(graph, since, k, least=least, summed=summed, induced=induced) is None:
                early.append(k - 1)
                break
        else:
            ends.append(int(np.sum(since > rounds)))
    sites_left, rounds_if_not = 0.0, float(rounds)
    if ends:
        sites_left = float(np.mean(ends))
    if early:
        rounds_if_not = float(np.mean(early))
    return {
        "rate": rate,
        "finishes": len(ends) / draws,
        "sites_left": sites_left,
        "rounds_if_not": rounds_if_not,
    }


class DropoutNet(DenseNet):
    """A :class:`DenseNet` that loses nodes; :meth:`begin_round` begins a round.

    Over a graph, a node's own vector stands in for that of a lost neighbour
    (:class:`sottovoce.network.net.Edges`).  In sums, the attempt in which a node is lost opens
    nothing, and the next one is of the sites that are left.

    Parameters
    ----------
    graph : Graph
    since : array (N,)
        The round from which each node is lost.
    n : array (N, 1)
        Rows of each node.
    induced : bool
        True if the method may go on over the graph of the nodes that are left.
    """

    def __init__(self, graph: Graph, since: Array, n: Array, *, induced: bool) -> None:
        super().__init__(graph)
        self._graph, self.since, self._n, self._induced = graph, since, n, induced
        self._round = 0
        # All nodes' vectors of the last exchange.
        self._own = np.zeros(0)
        # For every round in which nodes are lost: at each node, the dual terms so far of its edges
        # to these nodes.
        self._duals = dict.fromkeys(since[np.isfinite(since)].tolist(), np.zeros(1))

    @property
    def present_nodes(self) -> NDArray[np.bool_]:
        """Presence of each node in this round, (N, 1)."""
        return (self.since > self._round)[:, None]

    def begin_round(self, k: int, facts: Facts) -> None:
        """Begin round k; NetClosed if the run cannot continue with the nodes that are left."""
        self._round = k
        there = left(
            self._graph,
            self.since,
            k,
            least=facts.participants,
            summed=facts.opens_only_sums,
            induced=self._induced,
        )
        if there is None:
            raise NetClosed(f"round {k}: too few sites are left to go on")

    def neighbour_sum(self, x: Array) -> Array:
        here, self._own = self.present_nodes, x
        # The degree stays that of the plan: a node's own x replaces each lost neighbour's.
        heard = super().neighbour_sum(here.astype(float))
        return super().neighbour_sum(x * here) + (self.degree - heard) * x

    def pop_lost_edge_duals(self, weight: Array | float) -> Array | float:
        lost = self._duals.pop(float(self._round), 0.0)
        for since, dual in self._duals.items():
            if since > self._round:
                # At every node, the sum of differences to the neighbours that will be lost then.
                there = (self.since == since)[:, None].astype(float)
                count = super().neighbour_sum(there)
                moved = count * self._own - super().neighbour_sum(there * self._own)
                self._duals[since] = dual + weight * moved
        return lost

    def among(self, facts: Facts) -> Among:
        there = self.since >= max(self._round, 1)
        return Among(float(self._n[there].sum()), int(there.sum()))

    def mask_share(self, share: IntArray) -> IntArray:
        return super().mask_share(np.where(self.present_nodes, share, 0))

    def total(self, sealed: IntArray) -> IntArray:
        if np.any(self.since == self._round):
            raise AttemptLost(f"attempt {self._round}: a share is missing")
        return super().total(sealed)
