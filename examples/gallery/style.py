"""The look of the gallery: a transparent ground, and inks that are read on white and on black.

``save(figure, __file__)`` writes ``NAME.svg`` and, for whoever compares, ``NAME.json`` with the
numbers that are drawn. Both go to ``docs/gallery``, or to the folder in ``GALLERY``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

INK, FAINT = "#7f868e", "#9aa1a955"
BLUE, ORANGE, GREEN, PINK = "#3a8fd0", "#dd8a1f", "#1fa187", "#cf6fa6"
plt.rcParams.update(
    {
        "figure.figsize": (5.2, 3.6),
        "figure.constrained_layout.use": True,
        "savefig.transparent": True,
        "font.size": 11,
        "axes.titlesize": 11,
        "legend.fontsize": 10,
        "legend.frameon": False,
        "text.color": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.edgecolor": INK,
        "axes.grid": True,
        "grid.color": FAINT,
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "lines.linewidth": 1.8,
        "lines.markersize": 5,
        "axes.prop_cycle": mpl.cycler(color=[BLUE, ORANGE, GREEN, PINK, INK]),
        "svg.hashsalt": "sottovoce",
        "svg.fonttype": "path",
    }
)


def save(figure: Figure, script: str) -> None:
    """Write the picture of `script`, and its numbers."""
    folder = Path(os.environ.get("GALLERY") or Path(__file__).parents[2] / "docs" / "gallery")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / Path(script).with_suffix(".svg").name
    figure.savefig(path, metadata={"Date": None, "Creator": "sottovoce"})
    path.with_suffix(".json").write_text(json.dumps(drawn(figure)) + "\n", encoding="utf-8")
    plt.close(figure)


def drawn(figure: Figure) -> list[dict[str, list[list[float]]]]:
    """The lines and bars of every panel, as numbers with four digits."""
    panels = []
    for axes in figure.axes:
        lines = [line.get_xydata() for line in axes.lines]
        bars = [
            (bar.get_x() + bar.get_width(), bar.get_y() + bar.get_height())
            for bar in axes.patches
            if hasattr(bar, "get_height")
        ]
        panels.append(
            {
                "lines": [[float(f"{value:.4g}") for value in line.ravel()] for line in lines],
                "bars": [[float(f"{value:.4g}") for value in bar] for bar in bars],
            }
        )
    return panels
