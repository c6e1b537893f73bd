"""The picture of coverage.py: how many intervals hold the truth, and how wide they are."""

from __future__ import annotations

import io

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.stats import beta

from sottovoce.util.typing import Any
from sottovoce_papers.studies.figures import COLOURS, STYLE

LEAST = 0.05
"""Share of a cell's coefficients that must be printed for it to be shown."""


def draw(cells: list[dict[str, Any]]) -> bytes:
    """The picture of a table's cells; the same cells give the same bytes."""
    shown = [cell for cell in cells if cell["printed"] >= LEAST]
    with matplotlib.rc_context(STYLE):
        canvas = Figure(figsize=(10.5, 1.9 + 0.27 * len(shown)), layout="constrained")
        FigureCanvasAgg(canvas)
        left, right = canvas.subplots(1, 2, sharey=True, width_ratios=(1.4, 1))
        at = np.arange(len(shown))[::-1]
        covered = np.array([100.0 * cell["coverage"] for cell in shown])
        ends = np.array([_interval(cell) for cell in shown])
        off = np.abs(100.0 * ends.T - covered)
        left.axvline(95.0, color="0.6", lw=1.0)
        left.errorbar(
            covered,
            at,
            xerr=off,
            fmt="o",
            color=COLOURS[0],
            ms=4.5,
            elinewidth=0.9,
            capsize=2,
            label="all",
        )
        worst = [100.0 * cell["worst"] for cell in shown]
        left.plot(worst, at, "|", color=COLOURS[1], ms=9, mew=1.8, label="the worst coefficient")
        names = [
            f"{cell['cell'].removesuffix(', sum').replace(', nobody', ', local')}" for cell in shown
        ]
        left.set_yticks(
            at,
            [
                f"{name} ({100 * cell['printed']:.0f}%)"
                for name, cell in zip(names, shown, strict=True)
            ],
        )
        left.set_xlabel("intervals that hold the truth, %")
        left.set_xlim(79.0, 100.5)
        left.set_title(f"{max(cell['sets'] for cell in shown)} data sets a cell", loc="left")
        right.axvline(1.0, color="0.6", lw=1.0)
        right.plot([cell["width"] for cell in shown], at, "s", color=COLOURS[2], ms=4.5)
        right.set_xlabel("median width; 1 without privacy")
        canvas.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=2)
        sink = io.BytesIO()
        canvas.savefig(sink, format="svg", metadata={"Date": None, "Creator": "sottovoce"})
        return sink.getvalue()


def _interval(cell: dict[str, Any]) -> tuple[float, float]:
    """With as many trials as data sets: intervals of one set are not independent."""
    trials = max(1, cell["intervals"] // cell["coefficients"])
    return clopper_pearson(cell["coverage"] * trials, trials)


def clopper_pearson(hits: float, trials: int) -> tuple[float, float]:
    """The 95% interval of a share."""
    low = 0.0 if hits <= 0 else float(beta.ppf(0.025, hits, trials - hits + 1))
    high = 1.0 if hits >= trials else float(beta.ppf(0.975, hits + 1, trials - hits))
    return low, high
