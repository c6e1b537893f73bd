"""Masks on the edges of a graph only: what colluders see, by listing all masks
(docs/deploy/sums.md).
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

import networkx as nx
import pytest

# words modulo 3 stand for those modulo 2^64: the proof uses that it is a ring, and nothing else
RING = 3


def seen(graph: nx.Graph, share: tuple[int, ...], colluders: set[int]) -> Counter[tuple[int, ...]]:
    """How often each view of the honest sites' words comes, over all masks that the colluders do
    not know.
    """
    honest = [i for i in graph if i not in colluders]
    edges = [edge for edge in graph.edges if not colluders & set(edge)]
    views = Counter[tuple[int, ...]]()
    for masks in product(range(RING), repeat=len(edges)):
        words = dict(zip(honest, share, strict=True))
        for (i, j), mask in zip(edges, masks, strict=True):
            words[i], words[j] = (words[i] + mask) % RING, (words[j] - mask) % RING
        views[tuple(words[i] for i in honest)] += 1
    return views


def tells_only_the_sum(graph: nx.Graph, colluders: set[int]) -> bool:
    """Whether shares with the same sum give the same law of views."""
    honest = len(graph) - len(colluders)
    laws: dict[int, Counter[tuple[int, ...]]] = {}
    for share in product(range(RING), repeat=honest):
        if sum(share[:-1]) > 2:  # few shares will do
            continue
        law = seen(graph, share, colluders)
        if laws.setdefault(sum(share) % RING, law) != law:
            return False
    return True


GRAPHS = {
    "path": nx.path_graph(4),
    "ring": nx.cycle_graph(5),
    "star": nx.star_graph(3),
    "two pairs": nx.Graph([(0, 1), (2, 3)]),
    "complete": nx.complete_graph(4),
    "a tail": nx.lollipop_graph(3, 1),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_masks_hide_all_but_sum_iff_honest_graph_is_connected(name: str) -> None:
    graph, kinds = GRAPHS[name], set()
    for size in range(len(graph) - 1):
        for colluders in combinations(graph, size):
            rest = graph.subgraph(set(graph) - set(colluders))
            kinds.add(nx.is_connected(rest))
            assert tells_only_the_sum(graph, set(colluders)) == nx.is_connected(rest)
    assert kinds == ({True} if name == "complete" else {True, False})


@pytest.mark.parametrize(("n", "t"), [(5, 1), (8, 1), (8, 2), (9, 2), (9, 3), (12, 3)])
def test_minimal_graphs_resist_t_colluders_and_no_more(n: int, t: int) -> None:
    graph = nx.hkn_harary_graph(t + 1, n)
    assert graph.number_of_edges() == -(-n * (t + 1) // 2)
    assert all(
        nx.is_connected(graph.subgraph(set(graph) - set(some))) for some in combinations(graph, t)
    )
    site = min(graph, key=graph.degree)
    neighbours = set(graph[site])
    assert len(neighbours) == t + 1 and not nx.is_connected(graph.subgraph(set(graph) - neighbours))
    complete = nx.complete_graph(n)
    assert nx.is_connected(complete.subgraph(set(complete) - neighbours))
