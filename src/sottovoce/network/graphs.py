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
from ..util.files import read_text
from ..util.later import Later
from ..util.typing import Array, IntArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

nx, sparse, csgraph = Later("networkx"), Later("scipy.sparse"), Later("scipy.sparse.csgraph")

Edges: TypeAlias = Iterable[tuple[int, int]]
Builder: TypeAlias = Callable[[int, str, int, str], Edges]
"""From N, the text after the colon, a seed, and the whole specification for messages."""

# : random graphs drawn before a specification is refused because its graphs are hardly ever
# connected
TRIES = 1000
# : of a graph; a complete graph of 1,414 nodes has about a million edges
MOST_NODES, MOST_EDGES = (
    100_000,
    1_000_000,
)
# of nodes: in one random graph, and in all tries together
_MOST_PAIRS, _MOST_DRAWN = (
    5_000_000,
    50_000_000,
)
_HOPELESS = 50.0


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
        object.__setattr__(self, "n_nodes", _count(self.n_nodes))
        if not isinstance(self.edges, list | tuple):
            raise GraphError(
                "edges", type(self.edges), "must be a list of pairs", "give pairs of integers"
            )
        _check_size(self.name, self.n_nodes, len(self.edges))
        object.__setattr__(self, "edges", self._sorted())
        label = _components(self.n_nodes, self._ends)
        if np.any(label):
            order = np.argsort(label, kind="stable")
            parts = [
                part.tolist() for part in np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
            ]
            rule = f"must be connected, but has {len(parts)} components: {_shorten(parts)}"
            raise GraphError("graph", self.name, rule, "add edges or leave out the isolated sites")

    def _sorted(self) -> tuple[tuple[int, int], ...]:
        try:
            pairs = np.array(self.edges) if self.edges else np.zeros((0, 2), dtype=int)
        except (ValueError, OverflowError):
            pairs = np.zeros(0)
        sound = pairs.ndim == 2 and pairs.shape[1] == 2 and pairs.dtype.kind in "iu"
        if sound and pairs.size:
            sound = bool(pairs.min() >= 0 and pairs.max() < self.n_nodes and np.all(np.diff(pairs)))
        if not sound:  # or integers of another kind
            return tuple(sorted({self._edge(edge) for edge in self.edges}))
        pairs = np.sort(pairs.astype(np.int64), axis=1)
        codes = np.sort(pairs[:, 0] * self.n_nodes + pairs[:, 1])
        ends = np.divmod(codes[np.diff(codes, prepend=-1) > 0], self.n_nodes)
        return tuple(zip(*(end.tolist() for end in ends), strict=True))

    def _edge(self, edge: Sequence[int]) -> tuple[int, int]:
        try:
            i, j = sorted(index(node) for node in edge)
        except (TypeError, ValueError):
            raise GraphError(
                "edge", edge, "must be two node numbers", "give pairs of integers"
            ) from None
        if i == j:
            raise GraphError("edge", (i, j), "joins a node to itself", "leave it out")
        if i < 0 or j >= self.n_nodes:
            rule = f"leaves the nodes 0 .. {self.n_nodes - 1}"
            raise GraphError(
                "edge", (i, j), rule, "count nodes from 0, or raise the number of nodes"
            )
        return i, j

    @cached_property
    def _ends(self) -> IntArray:
        """The edges, (E, 2)."""
        return np.array(self.edges, dtype=np.int64).reshape(-1, 2)

    @cached_property
    def _lists(self) -> tuple[IntArray, IntArray]:
        """All neighbours in rising order, node after node, and the N + 1 offsets of the nodes."""
        i, j = self._ends.T
        of, to = np.concatenate([i, j]), np.concatenate([j, i])
        ends = np.cumsum(np.bincount(of, minlength=self.n_nodes))
        return to[np.lexsort((to, of))], np.concatenate([[0], ends])

    @cached_property
    def adjacency(self) -> Array:
        """A of shape (N, N) with entries 0 and 1; read-only."""
        found = np.zeros((self.n_nodes, self.n_nodes))
        i, j = self._ends.T
        found[i, j] = found[j, i] = 1.0
        return _frozen(found)

    def sparse(self) -> csr_array:
        """The adjacency matrix, for large and thin graphs."""
        # older SciPy's graph routines take no other
        to, starts = (each.astype(np.int32) for each in self._lists)
        return sparse.csr_array((np.ones(len(to)), to, starts), shape=(self.n_nodes, self.n_nodes))

    @cached_property
    def degree(self) -> Array:
        """V_i, the number of neighbours, (N, 1); read-only."""
        return _frozen(np.diff(self._lists[1]).astype(float)[:, None])

    def neighbours(self, i: int) -> tuple[int, ...]:
        """Neighbours of node `i` in rising order."""
        if not 0 <= i < self.n_nodes:
            raise InvalidInput(
                "node", i, f"must be one of 0 .. {self.n_nodes - 1}", "count nodes from 0"
            )
        to, starts = self._lists
        return tuple(to[starts[i] : starts[i + 1]].tolist())

    def joins(self, nodes: Sequence[int]) -> bool:
        """Return whether the edges among `nodes` alone connect them."""
        place = np.full(self.n_nodes, -1)
        place[list(nodes)] = np.arange(len(nodes))
        ends = place[self._ends]
        return not np.any(_components(len(nodes), ends[np.all(ends >= 0, axis=1)]))

    @property
    def bipartite(self) -> bool:
        """Return whether two colours suffice, that is, the signless Laplacian D + A is singular."""
        away = csgraph.dijkstra(self.sparse(), unweighted=True, indices=0)
        return bool(np.all(np.diff(away[self._ends], axis=1) % 2 == 1))


class Everybody(Graph):
    """A complete graph of any size, whose edges are never listed.

    It is for runs that only sum over all sites: they read the number of neighbours, and no edge.
    """

    def __init__(self, n_nodes: int) -> None:
        object.__setattr__(self, "name", "complete")
        object.__setattr__(self, "n_nodes", _count(n_nodes))
        _check_size("complete", self.n_nodes, 0)

    def __repr__(self) -> str:
        return f"Everybody({self.n_nodes})"

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """All pairs; GraphError if these are too many to list."""
        return tuple(_complete(self.n_nodes, "", 0, "complete"))

    @cached_property
    def degree(self) -> Array:
        return _frozen(np.full((self.n_nodes, 1), self.n_nodes - 1.0))


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
        For the two random kinds, which are redrawn until connected, `TRIES` times at most.
        Erdős-Rényi draws with ``seed``, ``seed + 1``, ..., so the result follows G(N, p) *given*
        that the graph is connected.
    listed : bool
        Whether the run reads edges; otherwise a complete graph may be one of :class:`Everybody`.

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
    n = _count(n_nodes)
    if not isinstance(spec, str):
        raise InvalidInput(
            "graph", spec, f"must be one of {', '.join(names())}", "use graph='ring'"
        )
    _check_size(spec, n, 0)
    kind, _, text = spec.strip().partition(":")
    kind, text = kind.strip().lower().replace("_", "-"), text.strip()
    if kind not in _KINDS:
        raise InvalidInput(
            "graph", spec, f"must be one of {', '.join(names())}", "use graph='ring'"
        )
    form, _, build = _KINDS[kind]
    if text and form == kind:
        raise InvalidInput("graph", spec, "takes no parameters", f"use graph={kind!r}")
    if kind == "complete" and not listed and n * (n - 1) // 2 > MOST_EDGES:
        return Everybody(n)
    return Graph(f"{kind}:{text}" if text else kind, n, tuple(build(n, text, seed, spec)))


def names() -> dict[str, str]:
    """Specification -> description, for help texts."""
    return {form: line for form, line, _ in _KINDS.values()}


def _components(n: int, ends: IntArray) -> IntArray:
    """The smallest node of each node's component, by the edges `ends` (E, 2).

    Labels start as the nodes.  Both ends' labels take the smaller of the two, then labels are
    followed to their roots, until both ends of every edge agree.
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


def _grid(n: int, text: str, seed: int, spec: str) -> Edges:
    rows = max(r for r in range(1, math.isqrt(n) + 1) if n % r == 0)
    columns = n // rows
    if text:
        left, _, right = text.lower().partition("x")
        if not all(side.strip().isdecimal() and len(side) < 10 for side in (left, right)):
            raise InvalidInput(
                "graph", spec, "must be grid or grid:RxC", "use for example graph='grid:2x5'"
            )
        rows, columns = int(left), int(right)
        if rows * columns != n:
            rule = f"has {rows * columns} nodes, but there are {n}"
            raise GraphError("graph", spec, rule, "use graph='grid' or a product that fits")
    return [(k, k + 1) for k in range(n) if (k + 1) % columns] + [
        (k, k + columns) for k in range(n - columns)
    ]


def _erdos_renyi(n: int, text: str, seed: int, spec: str) -> Edges:
    p = _parameters(text, spec, {"p": 0.4})["p"]
    if not 0 < p <= 1:
        raise InvalidInput(
            "graph", spec, "the probability p of an edge must be in (0, 1]", "use p=0.4"
        )
    pairs = n * (n - 1) // 2
    if pairs > _MOST_PAIRS:
        raise GraphError(
            "graph", spec, f"has {pairs:,} pairs of nodes to draw", f"use at most {_MOST_PAIRS:,}"
        )
    _check_size(spec, n, round(p * pairs))
    tries = min(TRIES, _MOST_DRAWN // max(pairs, 1))
    # nodes without a neighbour, on average: none has probability exp(-alone), about
    alone = n * (1.0 - p) ** (n - 1)
    for attempt in range(tries if alone < _HOPELESS else 0):
        graph = nx.gnp_random_graph(n, p, seed=seed + attempt)
        if nx.is_connected(graph):
            return list(graph.edges)
    rule = (
        f"none of {tries} draws with {n} nodes was connected"
        if alone < _HOPELESS
        else "would never be connected"
    )
    raise GraphError("graph", spec, rule, f"use p >= log(N)/N = {math.log(n) / n:.2g}")


def _small_world(n: int, text: str, seed: int, spec: str) -> Edges:
    given = _parameters(text, spec, {"k": 4.0, "p": 0.1})
    k, p = given["k"], given["p"]
    if k % 2 or k < 2:
        raise InvalidInput(
            "graph", spec, "k neighbours on the ring must be even and >= 2", "use k=2 or k=4"
        )
    if not 0 <= p <= 1:
        raise InvalidInput(
            "graph", spec, "the probability p to rewire must be in [0, 1]", "use p=0.1"
        )
    if k >= n:
        raise GraphError(
            "graph", spec, f"needs k={k:g} < N={n}", "use a smaller k, or graph='complete'"
        )
    _check_size(spec, n, round(n * k / 2))
    tries = min(TRIES, _MOST_DRAWN // round(n * k))
    try:
        return list(nx.connected_watts_strogatz_graph(n, int(k), p, tries=tries, seed=seed).edges)
    except nx.NetworkXError:
        rule = f"none of {tries} draws with {n} nodes was connected"
        raise GraphError("graph", spec, rule, "use a larger k or a smaller p") from None


def _file(n: int, text: str, seed: int, spec: str) -> Edges:
    if not text:
        raise InvalidInput(
            "graph", spec, "needs the path of an edge list", "use graph='edges:FILE'"
        )
    lines = read_text("graph", os.path.expanduser(text)).splitlines()
    edges = []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not all(word.isdecimal() and len(word) < 10 for word in words):
            rule = f"line {number} must hold two node numbers from 0 .. {n - 1}"
            raise InvalidInput(
                "graph", spec, rule, "separate them by a space; comments start with #"
            )
        edges.append((int(words[0]), int(words[1])))
    return edges


def _complete(n: int, text: str, seed: int, spec: str) -> Edges:
    _check_size(spec, n, n * (n - 1) // 2)
    return combinations(range(n), 2)


def _ring(n: int, text: str, seed: int, spec: str) -> Edges:
    return [*pairwise(range(n)), *([(0, n - 1)] if n > 2 else [])]


# kind -> (how to write it, one line on it, builder)
_KINDS: dict[str, tuple[str, str, Builder]] = {
    "ring": ("ring", "a circle: two neighbours each", _ring),
    "path": ("path", "a line: two ends with one neighbour", lambda n, *_: pairwise(range(n))),
    "star": (
        "star",
        "node 0 talks to all, the others to node 0 only",
        lambda n, *_: [(0, k) for k in range(1, n)],
    ),
    "complete": ("complete", "everyone talks to everyone", _complete),
    "grid": ("grid[:RxC]", "R rows and C columns, as square as possible if not given", _grid),
    "erdos-renyi": (
        "erdos-renyi[:p=0.4]",
        "each edge with probability p, until connected",
        _erdos_renyi,
    ),
    "watts-strogatz": (
        "watts-strogatz[:k=4,p=0.1]",
        "k nearest on a ring, some edges rewired",
        _small_world,
    ),
    "edges": ("edges:FILE", "two node numbers a line, from 0; comments after #", _file),
}


def _parameters(text: str, spec: str, defaults: dict[str, float]) -> dict[str, float]:
    """``"k=4,p=0.1"`` over `defaults`."""
    values = dict(defaults)
    for item in filter(None, text.split(",")):
        key, _, value = (part.strip() for part in item.partition("="))
        try:
            values[key] = float(value) if key in defaults else math.nan
        except ValueError:
            values[key] = math.nan
        if not math.isfinite(values[key]):
            known = ",".join(f"{name}={default:g}" for name, default in defaults.items())
            rule = f"{item.strip()!r} is not one of its parameters with a finite number"
            raise InvalidInput("graph", spec, rule, f"write them as in {known}")
    return values


def _check_size(name: str, nodes: int, edges: int) -> None:
    if nodes > MOST_NODES:
        raise GraphError("n_nodes", nodes, f"must be at most {MOST_NODES:,}", "use fewer sites")
    if edges > MOST_EDGES:
        rule = f"has {edges:,} edges with {nodes:,} nodes, and at most {MOST_EDGES:,} are allowed"
        raise GraphError("graph", name, rule, "use a thinner graph, such as 'ring'")


def _count(n_nodes: object) -> int:
    try:
        n = index(n_nodes)  # type: ignore[arg-type]
    except TypeError:
        n = 0
    if n < 1:
        raise InvalidInput(
            "n_nodes", n_nodes, "must be an integer >= 1", "give the number of sites"
        )
    return n


def _shorten(parts: list[list[int]], most_parts: int = 4, most_nodes: int = 6) -> str:
    shown = [
        "{"
        + ", ".join([*map(str, part[:most_nodes]), *(["..."] if len(part) > most_nodes else [])])
        + "}"
        for part in parts[:most_parts]
    ]
    return ", ".join([*shown, *(["..."] if len(parts) > most_parts else [])])


def _frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array
