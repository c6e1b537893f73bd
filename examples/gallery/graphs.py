"""Graphs and their messages

In a round every site sends its noisy vector to each neighbour. Privacy does not depend on the
graph.
"""

import networkx as nx
from style import BLUE, INK, plt, save

from sottovoce.network.graphs import make_graph

figure, panels = plt.subplots(2, 3, figsize=(5.2, 4.2))
for axes, name in zip(
    panels.flat,
    ("path", "ring", "star", "grid:3x4", "watts-strogatz:k=4,p=0.3", "complete"),
    strict=True,
):
    graph = make_graph(name, 12, seed=1)
    drawn = nx.Graph(graph.edges)
    place = (
        nx.circular_layout(range(12))
        if "grid" not in name
        else {i: (i % 4, i // 4) for i in range(12)}
    )
    if name == "star":
        place[0] = (0.0, 0.0)
    for a, b in graph.edges:
        axes.plot(*zip(place[a], place[b], strict=True), color=INK, lw=0.8)
    axes.plot(*zip(*place.values(), strict=True), "o", color=BLUE, ms=7)
    axes.set_title(
        f"{name.partition(':')[0]}\n{2 * len(graph.edges)} messages, {nx.diameter(drawn)} hops",
        fontsize=9.5,
    )
    axes.margins(0.12)
    axes.axis("off")
save(figure, __file__)
