"""Plots by matplotlib: coefficients with or without intervals, and survival curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..errors import InvalidInput, printable
from ..util.typing import Any, Array, ArrayLike
from .coefficients import (
    CONSTANT,
    Axis,
    axis_of,
    compared,
    end_text,
    groups,
    has_odds,
    mark,
    one_end,
    scaled,
)
from .plain import ratio_text

MOST = 40
"""Coefficients in a plot; of more, the largest."""
_LONGEST = 36  # characters of a name
_LINE, _MARGIN, _WIDTH = 0.3, 1.1, 7.5  # inches of a row, around all rows, across
_BLUE, _INK, _SOFT = "#0072b2", "#1b1f24", "#737d87"
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#1b1f24", "#999999")


class _Row(NamedTuple):
    """A row of a forest plot."""

    name: str
    told: str  # at the right end
    # low, estimate, high, on the axis; None for a row without a mark
    ends: tuple[float, float, float] | None
    kind: str  # "head", "reference", "refused", "clear" or "unclear"
    one_end: tuple[float, int] | None = (
        None  # the known end of an interval, and to which side the other lies
    )


def axes_of(ax: Any, rows: int) -> Any:
    """Return the axes to draw on: those given, or of a new figure with space for that many rows.

    Raises
    ------
    InvalidInput
        If matplotlib is not installed.
    """
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise InvalidInput(
            "plot", None, "needs matplotlib", "run: pip install 'sottovoce[plot]'"
        ) from None
    _, made = pyplot.subplots(
        figsize=(_WIDTH, _MARGIN + _LINE * max(rows, 3)), layout="constrained"
    )
    return made


def _short(name: object) -> str:
    return printable(str(name), _LONGEST).replace("$", r"\$")  # no formula


def _largest(values: Array) -> list[int]:
    """Positions to show, in their order: all, or the largest in size."""
    if len(values) <= MOST:
        return list(range(len(values)))
    return sorted(np.argsort(-np.abs(values), kind="stable")[:MOST].tolist())


def forest_plot(lines: Sequence[dict[str, Any]], ax: Any = None) -> Any:
    """Draw a forest plot of coefficients with their 95% intervals.

    Log-odds are drawn as odds ratios on a logarithmic axis.  Of many coefficients the largest are
    drawn.

    Parameters
    ----------
    lines : sequence of dict
        Those of :meth:`sottovoce.answers.coefficients.Coefficients.to_dict`.  Constants are left
        out.
    ax : matplotlib Axes, optional
        Where to draw; None for a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InvalidInput
        If matplotlib is not installed.
    """
    every = [line for line in lines if line["name"] != CONSTANT]
    sizes = np.array([math.inf if line["refused"] else abs(scaled(line)[1]) for line in every])
    kept = [every[k] for k in _largest(sizes)]
    odds = has_odds(kept)
    rows = _rows_of(kept, odds)
    axis, ax = axis_of(kept), axes_of(ax, len(rows))
    if odds:
        ax.set_xscale("log")
    ax.axvline(_place(0.0, axis), color=_SOFT, linewidth=1.0, linestyle=(0, (3, 3)), zorder=1)
    for y, row in enumerate(rows):
        _draw_row(ax, axis, y, row)
    _finish(ax, [row.name for row in rows], bold=[row.kind == "head" for row in rows])
    label = "coefficient"
    if odds:
        _ticks(ax, axis)
        label = "odds ratio"
    left = f"; the {MOST} largest of {len(every)}" if len(kept) < len(every) else ""
    ax.set_xlabel(f"{label}, 95% interval{left}")
    return ax


def _place(x: float, axis: Axis) -> float:
    """Where a coefficient stands: an odds ratio within the axis if it is a log-odds."""
    return math.exp(min(max(x, axis.low), axis.high)) if axis.odds else x


def _draw_row(ax: Any, axis: Axis, y: int, row: _Row) -> None:
    """The interval of a row, and what is told of it at the right end."""
    colour = _BLUE if row.kind == "clear" else _INK
    bar = {"color": colour, "linewidth": 2.0, "solid_capstyle": "butt", "zorder": 2}
    if row.kind == "reference":
        none = _place(0.0, axis)
        ax.plot(
            [none], [y], "o", markersize=6, markerfacecolor="white", markeredgecolor=_INK, zorder=3
        )
    if row.ends is not None:
        low, mid, high = (_place(x, axis) for x in row.ends)
        ax.plot([low, high], [y, y], **bar)
        ax.plot([mid], [y], "o", color=colour, markersize=6, zorder=3)
    if row.one_end is not None:
        end, side = row.one_end
        edge, arrow = (axis.high, ">") if side > 0 else (axis.low, "<")
        ax.plot([_place(end, axis), _place(edge, axis)], [y, y], **bar)
        ax.plot([_place(edge, axis)], [y], arrow, color=colour, markersize=6, zorder=3)
    soft = row.kind in ("refused", "reference")
    ax.annotate(
        row.told,
        xy=(1.02, y),
        xycoords=("axes fraction", "data"),
        annotation_clip=False,
        va="center",
        fontsize="small",
        color=_SOFT if soft else _INK,
        style="italic" if soft else "normal",
    )


def _rows_of(lines: Sequence[dict[str, Any]], odds: bool) -> list[_Row]:
    rows = []
    for group in groups(lines):
        of_levels = group.lines[0]["level"] is not None
        if of_levels:
            rows.append(_Row(_short(group.name), "", None, "head"))
        if group.reference is not None:
            rows.append(_Row(f"   {_short(group.reference)}", "reference", None, "reference"))
        for line in group.lines:
            name = (
                f"   {_short(line['level'])}"
                if of_levels
                else f"{_short(line['name'])} ({_short(compared(line))})"
            )
            if (found := one_end(line)) is not None:
                kind = "clear" if found[0] * found[1] > 0.0 else "unclear"
                rows.append(_Row(name, end_text(line, odds), None, kind, found))
                continue
            if line.get("refused") is not None:
                rows.append(_Row(name, "refused", None, "refused"))
                continue
            ends = scaled(line)
            kind = "clear" if ends[0] > 0.0 or ends[2] < 0.0 else "unclear"
            rows.append(_Row(name, _told(ends, odds) + mark(line), ends, kind))
    return rows


def _told(ends: tuple[float, float, float], odds: bool) -> str:
    low, mid, high = ends
    if odds:
        low_text, mid_text, high_text = (ratio_text(math.exp(min(x, 50.0))) for x in ends)
        return f"{mid_text} ({low_text} to {high_text})"
    return f"{mid:.3g} ({low:.3g} to {high:.3g})"


def _ticks(ax: Any, axis: Any) -> None:
    """Round odds ratios in place of powers of ten."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    texts = [text for _, text in axis.ticks()]
    ax.set_xlim(math.exp(axis.low), math.exp(axis.high))
    ax.xaxis.set_major_locator(FixedLocator([float(text) for text in texts]))
    ax.xaxis.set_major_formatter(FixedFormatter(texts))
    ax.xaxis.set_minor_locator(NullLocator())


def _finish(ax: Any, names: Sequence[str], bold: Sequence[bool] | None = None) -> None:
    """Names down the left side, the first one at the top, and nothing that carries no number."""
    ax.set_yticks(range(len(names)), names, ha="left")
    ax.set_ylim(len(names) - 0.4, -0.6)
    widest = max((len(name) for name in names), default=0)
    ax.tick_params(axis="y", length=0, pad=6 + 5.4 * widest)
    for label, heavy in zip(ax.get_yticklabels(), bold or [], strict=False):
        label.set_fontweight("bold" if heavy else "normal")
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.grid(axis="x", color="#e3e7eb", linewidth=0.8, zorder=0)
    ax.set_axisbelow(True)


def coefficient_plot(
    names: Sequence[str], values: ArrayLike, classes: Sequence[str] = (), ax: Any = None
) -> Any:
    """Draw bars of coefficients without intervals; of several classes, coloured dots for each.

    Of many coefficients the largest are drawn.

    Parameters
    ----------
    names : sequence of str
        Of the n coefficients.
    values : array (n,), or (classes, n)
        Coefficients.
    classes : sequence of str
        The class that the coefficients are for, or those of each line of `values`.
    ax : matplotlib Axes, optional
        Where to draw; None for a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InvalidInput
        If matplotlib is not installed.
    """
    table = np.atleast_2d(np.asarray(values, dtype=float))
    which = _largest(np.abs(table).max(axis=0))
    table, ax = table[:, which], axes_of(ax, len(which))
    y = np.arange(len(which))
    ax.axvline(0.0, color=_SOFT, linewidth=1.0, zorder=1)
    if len(table) == 1:
        ax.barh(y, table[0], height=0.62, color=_BLUE, zorder=2)
    else:
        for k, line in enumerate(table):
            colour = _COLOURS[k % len(_COLOURS)]
            marker = "os^Dv"[k // len(_COLOURS) % 5]
            ax.plot(
                line,
                y,
                marker,
                color=colour,
                markersize=6,
                alpha=0.85,
                zorder=2,
                label=_short(classes[k]),
            )
        ax.legend(
            title="class",
            frameon=False,
            fontsize="small",
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
        )
    _finish(ax, [_short(names[k]) for k in which])
    left = f"; the {MOST} largest of {len(names)}" if len(which) < len(names) else ""
    of_class = f" for {_short(classes[0])}" if len(table) == 1 and len(classes) else ""
    ax.set_xlabel(f"coefficient{of_class}, without interval{left}")
    return ax


def survival_plot(
    edges: ArrayLike, survival: ArrayLike, names: Sequence[str], ax: Any = None
) -> Any:
    """Draw survival curves at the ends of intervals of time.

    Parameters
    ----------
    edges : array (m + 1,)
        Ends of the m intervals, in the unit of time of the data.
    survival : array (n, m)
        Probabilities of no event by the end of each interval.
    names : sequence of str
        Of the n curves; none for no legend.
    ax : matplotlib Axes, optional
        Where to draw; None for a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InvalidInput
        If matplotlib is not installed.
    """
    curves, ax = np.atleast_2d(np.asarray(survival, dtype=float)), axes_of(ax, 9)
    for k, curve in enumerate(curves):
        label = _short(names[k]) if names else None
        line = np.concatenate([[1.0], curve])
        ax.plot(
            edges,
            line,
            "-o",
            color=_COLOURS[k % len(_COLOURS)],
            markersize=4,
            linewidth=2.0,
            label=label,
        )
    ax.set_ylim(0.0, 1.03)
    ax.set_xlabel("time")
    ax.set_ylabel("probability of no event")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.grid(color="#e3e7eb", linewidth=0.8)
    ax.set_axisbelow(True)
    if names:
        ax.legend(frameon=False, fontsize="small")
    return ax


__all__ = ["axes_of", "coefficient_plot", "forest_plot", "survival_plot"]
