"""Graphs of sites: undirected, connected, nodes numbered 0 .. N-1.

A :class:`Graph` is always connected: every convergence proof of the papers needs this (002, section
II-A), and an isolated site would train alone without anybody noticing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from operator import index
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ..errors import GraphError, InvalidInput
from ..util.files import read_bounded_text
from ..util.later import Later
from ..util.typing import Array, IntArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

nx, sparse, csgraph = Later("networkx"), Later("scipy.sparse"), Later("scipy.sparse.csgraph")

Edges: TypeAlias = Iterable[tuple[int, int]]
Builder: TypeAlias = Callable[[int, str, int, str], Edges]
"""From N, the text after the colon, a seed, and the whole specification (for messages) to edges."""

TRIES = 1000
"""Largest number of random graphs that are drawn until one is connected."""
MOST_NODES, MOST_EDGES = 100_000, 1_000_000
"""Limits of a graph; a complete graph of 1,414 nodes has about a million edges."""
_MOST_PAIRS, _MOST_DRAWN = 5_000_000, 50_000_000
"""Limits on pairs of nodes in one random graph, and in all tries together."""
_HOPELESS = 50.0
"""Expected number of isolated nodes from which on no random graph is drawn."""


@dataclass(frozen=True)
class Graph:
    """A connected undirected graph without loops.

    Parameters
    ----------
    name : str
        For messages and records.
    n_nodes : int
        N, at most `MOST_NODES`.
    edges : sequence of pairs of ints
        In any order and direction; kept as sorted pairs (i, j) with i < j, each once.

    Raises
    ------
    GraphError
        If an edge leaves 0 .. N-1 or is a loop, or the graph is not connected or too large.
    """

    name: str
    n_nodes: int
    edges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_nodes", _checked_node_count(self.n_nodes))
        if not isinstance(self.edges, list | tuple):
            rule = "must be a list of pairs"
            raise GraphError("edges", type(self.edges), rule, "give pairs of integers")
        _check_graph_size(self.name, self.n_nodes, len(self.edges))
        object.__setattr__(self, "edges", self._sorted_edges())
        label = _component_labels(self.n_nodes, self._edge_array)
        if np.any(label):
            order = np.argsort(label, kind="stable")
            starts = np.flatnonzero(np.diff(label[order])) + 1
            parts = [part.tolist() for part in np.split(order, starts)]
            rule = (
                f"must be connected, but has {len(parts)} components: {_components_in_words(parts)}"
            )
            raise GraphError("graph", self.name, rule, "add edges or leave out the isolated sites")

    def _sorted_edges(self) -> tuple[tuple[int, int], ...]:
        """Return the edges as sorted pairs (i, j) with i < j, each once; GraphError for others."""
        if not self.edges:
            return ()
        try:
            pairs = np.array(self.edges)
        except (ValueError, OverflowError):
            pairs = np.zeros(0)
        sound = pairs.ndim == 2 and pairs.shape[1] == 2 and pairs.dtype.kind in "iu"
        if sound:
            sound = bool(pairs.min() >= 0 and pairs.max() < self.n_nodes and np.all(np.diff(pairs)))
        if not sound:
            # One by one: they may be integers of another kind, and an error names its edge.
            return tuple(sorted({self._checked_edge(edge) for edge in self.edges}))
        # A number for each pair, which sorts much faster than a list of a million pairs.
        pairs = np.sort(pairs.astype(np.int64), axis=1)
        codes = np.sort(pairs[:, 0] * self.n_nodes + pairs[:, 1])
        ends = np.divmod(codes[np.diff(codes, prepend=-1) > 0], self.n_nodes)
        return tuple(zip(*(end.tolist() for end in ends), strict=True))

    def _checked_edge(self, edge: Sequence[int]) -> tuple[int, int]:
        """Return an edge as a sorted pair; GraphError if it is none of this graph."""
        try:
            i, j = sorted(index(node) for node in edge)
        except (TypeError, ValueError):
            raise GraphError(
                "edge", edge, "must be two node numbers", "give pairs of integers"
            ) from None
        if i == j:
            raise GraphError("edge", (i, j), "must join two different nodes", "leave it out")
        if i < 0 or j >= self.n_nodes:
            rule = f"must join nodes from 0 .. {self.n_nodes - 1}"
            remedy = "count nodes from 0, or raise the number of nodes"
            raise GraphError("edge", (i, j), rule, remedy)
        return i, j

    @cached_property
    def _edge_array(self) -> IntArray:
        """The edges, (E, 2)."""
        return np.array(self.edges, dtype=np.int64).reshape(-1, 2)

    @cached_property
    def _neighbour_lists(self) -> tuple[IntArray, IntArray]:
        """All neighbours, concatenated by node in rising order, and each node's N + 1 offsets."""
        i, j = self._edge_array.T
        # Every edge is listed at both of its ends.
        node, neighbour = np.concatenate([i, j]), np.concatenate([j, i])
        ends = np.cumsum(np.bincount(node, minlength=self.n_nodes))
        return neighbour[np.lexsort((neighbour, node))], np.concatenate([[0], ends])

    @cached_property
    def adjacency(self) -> Array:
        """A of shape (N, N) with entries 0 and 1; read-only."""
        found = np.zeros((self.n_nodes, self.n_nodes))
        i, j = self._edge_array.T
        found[i, j] = found[j, i] = 1.0
        return _make_read_only(found)

    def sparse_adjacency(self) -> csr_array:
        """Return the adjacency matrix, for large and thin graphs."""
        # Older SciPy's graph routines take indices of 32 bits alone.
        neighbours, starts = (each.astype(np.int32) for each in self._neighbour_lists)
        shape = (self.n_nodes, self.n_nodes)
        return sparse.csr_array((np.ones(len(neighbours)), neighbours, starts), shape=shape)

    @cached_property
    def degree(self) -> Array:
        """V_i, the number of neighbours, (N, 1); read-only."""
        return _make_read_only(np.diff(self._neighbour_lists[1]).astype(float)[:, None])

    def neighbours(self, i: int) -> tuple[int, ...]:
        """Return the neighbours of node `i` in rising order."""
        if not 0 <= i < self.n_nodes:
            rule = f"must be one of 0 .. {self.n_nodes - 1}"
            raise InvalidInput("node", i, rule, "count nodes from 0")
        neighbours, starts = self._neighbour_lists
        return tuple(neighbours[starts[i] : starts[i + 1]].tolist())

    def connects_nodes(self, nodes: Sequence[int]) -> bool:
        """Return True if the edges among `nodes` alone connect them."""
        # Number the nodes anew, and keep the edges of which both ends have a number.
        place = np.full(self.n_nodes, -1)
        place[list(nodes)] = np.arange(len(nodes))
        ends = place[self._edge_array]
        inside = ends[np.all(ends >= 0, axis=1)]
        return not np.any(_component_labels(len(nodes), inside))

    @property
    def is_bipartite(self) -> bool:
        """True if two colours suffice, that is, the signless Laplacian D + A is singular."""
        # Colour nodes by whether their distance from node 0 is odd: then every edge has two
        # colours.
        away = csgraph.dijkstra(self.sparse_adjacency(), unweighted=True, indices=0)
        return bool(np.all(np.diff(away[self._edge_array], axis=1) % 2 == 1))


class Everybody(Graph):
    """A complete graph of any size, whose edges are not stored.

    It is for runs that only sum over all sites, which read the number of neighbours and no edge.
    """

    def __init__(self, n_nodes: int) -> None:
        object.__setattr__(self, "name", "complete")
        object.__setattr__(self, "n_nodes", _checked_node_count(n_nodes))
        _check_graph_size("complete", self.n_nodes, 0)

    def __repr__(self) -> str:
        return f"Everybody({self.n_nodes})"

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """All pairs; GraphError if these are too many to list."""
        return tuple(_complete_edges(self.n_nodes, "", 0, "complete"))

    @cached_property
    def degree(self) -> Array:
        return _make_read_only(np.full((self.n_nodes, 1), self.n_nodes - 1.0))


def make_graph(spec: str, n_nodes: int, seed: int = 0, *, listed: bool = True) -> Graph:
    """Build a graph from its specification; :func:`names` lists them, and ``_`` is read as ``-``.

    Parameters
    ----------
    spec : str
        ``ring``, ``path``, ``star`` (node 0 in the middle), ``complete``; ``grid`` (rows times
        columns, as square as N allows: a path if N is prime) or ``grid:RxC``;
        ``erdos-renyi[:p=0.4]``; ``watts-strogatz[:k=4,p=0.1]``; or ``edges:FILE``, two node numbers
        a line and comments after ``#``.
    n_nodes : int
        N.  One node has no edges, and a ring of two is a single edge.
    seed : int
        Seed of the two random kinds, which are redrawn until connected, `TRIES` times at most.
        Erdős-Rényi draws with ``seed``, ``seed + 1``, ..., so the result follows G(N, p) *given*
        that the graph is connected.
    listed : bool
        True if the run reads edges; otherwise a large complete graph is an :class:`Everybody`.

    Returns
    -------
    Graph

    Raises
    ------
    InvalidInput
        If the specification cannot be read.
    GraphError
        If it does not fit `n_nodes`, or the graph is not connected or too large.

    Examples
    --------
    >>> make_graph("path", 3).edges
    ((0, 1), (1, 2))
    """
    n = _checked_node_count(n_nodes)
    must_be_known = f"must be one of {', '.join(names())}"
    if not isinstance(spec, str):
        raise InvalidInput("graph", spec, must_be_known, "use graph='ring'")
    _check_graph_size(spec, n, 0)
    kind, _, text = spec.strip().partition(":")
    kind, text = kind.strip().lower().replace("_", "-"), text.strip()
    if kind not in _KINDS:
        raise InvalidInput("graph", spec, must_be_known, "use graph='ring'")
    form, _, build = _KINDS[kind]
    if text and form == kind:
        raise InvalidInput("graph", spec, "takes no parameters", f"use graph={kind!r}")
    if kind == "complete" and not listed and n * (n - 1) // 2 > MOST_EDGES:
        return Everybody(n)
    name = f"{kind}:{text}" if text else kind
    return Graph(name, n, tuple(build(n, text, seed, spec)))


def names() -> dict[str, str]:
    """Return the specifications with their descriptions, for help texts."""
    return {form: line for form, line, _ in _KINDS.values()}


def _component_labels(n: int, ends: IntArray) -> IntArray:
    """Return the smallest node of each node's component, by the edges `ends` (E, 2).

    Every node starts with its own number as its label.  For every edge, the labels of both ends
    take the smaller of the two; then labels are followed to their roots.  This is repeated until
    the ends of every edge agree.
    """
    label = np.arange(n)
    i, j = ends.T
    while not np.array_equal(label[i], label[j]):
        low = np.minimum(label[i], label[j])
        for side in (i, j):
            np.minimum.at(label, label[side], low)
        while not np.array_equal(label, label[label]):
            label = label[label]
    return label


def _grid_edges(n: int, text: str, seed: int, spec: str) -> Edges:
    # As square as it can be: the largest divisor up to the root.
    rows = max(r for r in range(1, math.isqrt(n) + 1) if n % r == 0)
    columns = n // rows
    if text:
        left, _, right = text.lower().partition("x")
        if not all(side.strip().isdecimal() and len(side) < 10 for side in (left, right)):
            rule = "must be grid or grid:RxC, with R rows and C columns"
            raise InvalidInput("graph", spec, rule, "use for example graph='grid:2x5'")
        rows, columns = int(left), int(right)
        if rows * columns != n:
            rule = f"has {rows * columns} nodes, but there are {n}"
            raise GraphError("graph", spec, rule, "use graph='grid' or a product that fits")
    along_rows = [(k, k + 1) for k in range(n) if (k + 1) % columns]
    down_columns = [(k, k + columns) for k in range(n - columns)]
    return along_rows + down_columns


def _erdos_renyi_edges(n: int, text: str, seed: int, spec: str) -> Edges:
    p = _parse_parameters(text, spec, {"p": 0.4})["p"]
    if not 0 < p <= 1:
        rule = "the probability p of an edge must be in (0, 1]"
        raise InvalidInput("graph", spec, rule, "use p=0.4")
    pairs = n * (n - 1) // 2
    if pairs > _MOST_PAIRS:
        rule = f"must be drawn from at most {_MOST_PAIRS:,} pairs of nodes, but there are {pairs:,}"
        raise GraphError("graph", spec, rule, "use fewer sites, or another kind of graph")
    _check_graph_size(spec, n, round(p * pairs))
    larger = f"use p >= log(N)/N = {math.log(n) / n:.2g}"
    # The expected number of isolated nodes; the probability that there is none is about
    # exp(-alone).
    alone = n * (1.0 - p) ** (n - 1)
    if alone >= _HOPELESS:
        raise GraphError("graph", spec, "would almost never be connected", larger)
    tries = min(TRIES, _MOST_DRAWN // max(pairs, 1))
    for attempt in range(tries):
        graph = nx.gnp_random_graph(n, p, seed=seed + attempt)
        if nx.is_connected(graph):
            return list(graph.edges)
    rule = f"none of {tries} draws with {n} nodes was connected"
    raise GraphError("graph", spec, rule, larger)


def _watts_strogatz_edges(n: int, text: str, seed: int, spec: str) -> Edges:
    given = _parse_parameters(text, spec, {"k": 4.0, "p": 0.1})
    k, p = given["k"], given["p"]
    if k % 2 or k < 2:
        rule = "k neighbours on the ring must be even and >= 2"
        raise InvalidInput("graph", spec, rule, "use k=2 or k=4")
    if not 0 <= p <= 1:
        rule = "the probability p to rewire must be in [0, 1]"
        raise InvalidInput("graph", spec, rule, "use p=0.1")
    if k >= n:
        rule = f"needs k={k:g} < N={n}"
        raise GraphError("graph", spec, rule, "use a smaller k, or graph='complete'")
    _check_graph_size(spec, n, round(n * k / 2))
    tries = min(TRIES, _MOST_DRAWN // round(n * k))
    try:
        return list(nx.connected_watts_strogatz_graph(n, int(k), p, tries=tries, seed=seed).edges)
    except nx.NetworkXError:
        rule = f"none of {tries} draws with {n} nodes was connected"
        raise GraphError("graph", spec, rule, "use a larger k or a smaller p") from None


def _edges_of_file(n: int, text: str, seed: int, spec: str) -> Edges:
    if not text:
        rule = "needs the path of an edge list"
        raise InvalidInput("graph", spec, rule, "use graph='edges:FILE'")
    lines = read_bounded_text("graph", os.path.expanduser(text)).splitlines()
    edges = []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not all(word.isdecimal() and len(word) < 10 for word in words):
            rule = f"line {number} must hold two node numbers from 0 .. {n - 1}"
            remedy = "separate them by a space; comments start with #"
            raise InvalidInput("graph", spec, rule, remedy)
        edges.append((int(words[0]), int(words[1])))
    return edges


def _complete_edges(n: int, text: str, seed: int, spec: str) -> Edges:
    _check_graph_size(spec, n, n * (n - 1) // 2)
    return combinations(range(n), 2)


def _ring_edges(n: int, text: str, seed: int, spec: str) -> Edges:
    edges = list(pairwise(range(n)))
    # A ring of two nodes is a single edge.
    if n > 2:
        edges.append((0, n - 1))
    return edges


def _path_edges(n: int, text: str, seed: int, spec: str) -> Edges:
    return pairwise(range(n))


def _star_edges(n: int, text: str, seed: int, spec: str) -> Edges:
    return [(0, k) for k in range(1, n)]


_KINDS: dict[str, tuple[str, str, Builder]] = {
    "ring": ("ring", "a circle: two neighbours each", _ring_edges),
    "path": ("path", "a line: two ends with one neighbour", _path_edges),
    "star": ("star", "node 0 talks to all, the others to node 0 only", _star_edges),
    "complete": ("complete", "everyone talks to everyone", _complete_edges),
    "grid": ("grid[:RxC]", "R rows and C columns, as square as possible if not given", _grid_edges),
    "erdos-renyi": (
        "erdos-renyi[:p=0.4]",
        "each edge with probability p, until connected",
        _erdos_renyi_edges,
    ),
    "watts-strogatz": (
        "watts-strogatz[:k=4,p=0.1]",
        "k nearest on a ring, some edges rewired",
        _watts_strogatz_edges,
    ),
    "edges": ("edges:FILE", "two node numbers a line, from 0; comments after #", _edges_of_file),
}
"""By kind of graph: how to write it, one line on it, and its builder."""


def _parse_parameters(text: str, spec: str, defaults: dict[str, float]) -> dict[str, float]:
    """Return the parameters of a text such as ``"k=4,p=0.1"``, with `defaults` for the rest."""
    values = dict(defaults)
    for item in filter(None, text.split(",")):
        key, _, value = (part.strip() for part in item.partition("="))
        try:
            values[key] = float(value)
        except ValueError:
            values[key] = math.nan
        if key not in defaults or not math.isfinite(values[key]):
            known = ",".join(f"{name}={default:g}" for name, default in defaults.items())
            rule = f"{item.strip()!r} must be the name of a parameter and a finite number"
            raise InvalidInput("graph", spec, rule, f"write them as in {known}")
    return values


def _check_graph_size(name: str, nodes: int, edges: int) -> None:
    """Raise GraphError for a graph that is too large."""
    if nodes > MOST_NODES:
        raise GraphError("n_nodes", nodes, f"must be at most {MOST_NODES:,}", "use fewer sites")
    if edges > MOST_EDGES:
        rule = f"has {edges:,} edges with {nodes:,} nodes, but at most {MOST_EDGES:,} are allowed"
        raise GraphError("graph", name, rule, "use a graph with fewer edges, such as 'ring'")


def _checked_node_count(n_nodes: object) -> int:
    """Return a number of nodes as an int; InvalidInput if it is none."""
    try:
        n = index(n_nodes)  # type: ignore[arg-type]
    except TypeError:
        n = 0
    if n < 1:
        rule = "must be an integer >= 1"
        raise InvalidInput("n_nodes", n_nodes, rule, "give the number of sites")
    return n


def _components_in_words(parts: list[list[int]], most_parts: int = 4, most_nodes: int = 6) -> str:
    """Describe components for a message: the first few, and the first few nodes of each."""
    shown = []
    for part in parts[:most_parts]:
        nodes = [str(node) for node in part[:most_nodes]]
        if len(part) > most_nodes:
            nodes.append("...")
        shown.append("{" + ", ".join(nodes) + "}")
    if len(parts) > most_parts:
        shown.append("...")
    return ", ".join(shown)


def _make_read_only(array: Array) -> Array:
    """Make an array read-only, since it is cached and shared."""
    array.flags.writeable = False
    return array
