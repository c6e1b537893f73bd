"""Hub, sites and the boundary

Rows, keys and the ledger stay inside a site; a vector leaves only after its row in the ledger is on
disk and its noise is drawn.
"""

from matplotlib.patches import FancyBboxPatch
from style import BLUE, GREEN, INK, ORANGE, plt, save

figure, axes = plt.subplots(figsize=(5.2, 4.4))


def box(
    x: float, y: float, wide: float, high: float, text: str, colour: str, **look: object
) -> None:
    shape = FancyBboxPatch(
        (x, y), wide, high, boxstyle="round,pad=0.08", fc="none", ec=colour, lw=1.5, **look
    )
    axes.add_patch(shape)
    axes.text(
        x + wide / 2, y + high / 2, text, ha="center", va="center", fontsize=9.5, color=colour
    )


for place, name in enumerate(("north", "east", "south")):
    x = 3.4 * place
    box(x, 0, 2.8, 3.6, "", INK, ls="--")
    axes.text(x + 0.1, 3.35, name, fontsize=10)
    box(x + 0.3, 0.2, 2.2, 0.6, "rows, keys", INK)
    box(x + 0.3, 1.3, 2.2, 0.6, "1. ledger", GREEN)
    box(x + 0.3, 2.4, 2.2, 0.6, "2. noise", ORANGE)
    axes.annotate("", (x + 1.4, 1.2), (x + 1.4, 0.9), arrowprops={"arrowstyle": "->", "color": INK})
    axes.annotate("", (x + 1.4, 2.3), (x + 1.4, 2.0), arrowprops={"arrowstyle": "->", "color": INK})
    axes.annotate(
        "",
        (4.8 + 0.8 * (place - 1), 5.2),
        (x + 1.4, 3.05),
        arrowprops={"arrowstyle": "<->", "color": BLUE},
    )
box(3.2, 5.3, 3.2, 0.7, "hub: signed vectors", BLUE)
axes.text(0.1, 4.55, "3. leaves the site", color=BLUE, fontsize=9.5)
axes.text(9.7, 5.5, "a listener\nsees all of it", ha="right", color=INK, fontsize=9.5)
axes.set(xlim=(-0.3, 10), ylim=(-0.3, 6.3))
axes.axis("off")
save(figure, __file__)
