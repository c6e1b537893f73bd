"""Plots by matplotlib: coefficients with or without intervals, and survival curves.

Estimators' ``plot`` methods call them.  A forest plot has a row for each line of a table of
coefficients (:mod:`sottovoce.reports.coefficients`), which says what a line, a group and a
one-sided interval are.  matplotlib is an extra, so it is imported only where a figure is made.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from ..errors import InvalidInput, escape_unprintable
from ..util.typing import Any, Array, ArrayLike
from .coefficients import (
    CONSTANT,
    Axis,
    compared,
    groups,
    interval_text,
    make_axis,
    one_end,
    one_sided_interval_text,
    question_mark_text,
    ratio_of,
    scaled_interval,
)

MOST = 40
"""Coefficients in a plot; of more, the largest."""
PICTURES = (".svg", ".pdf", ".png")
"""Endings of files of pictures."""
_INSTALL = "run: pip install 'sottovoce[plot]'"
_LONGEST = 36
"""Most characters of a name."""
_LINE, _MARGIN, _WIDTH = 0.3, 1.1, 7.5
"""Height of a row, space around all rows, and width of the figure, in inches."""
_BLUE, _INK, _SOFT = "#0072b2", "#1b1f24", "#737d87"
"""Intervals that exclude zero; all others, and text; what is less important."""
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#1b1f24", "#999999")


class _Row(NamedTuple):
    """A row of a forest plot.

    Parameters
    ----------
    name : str
    told : str
        The text at the right end.
    ends : (float, float, float), optional
        Low end, estimate and high end on the axis; None for a row without a mark.
    kind : str
        ``head``, ``reference``, ``refused``, ``clear`` or ``unclear``.
    one_end : (float, int), optional
        The known end of a one-sided interval, and 1 if the other lies above it, -1 if below.
    """

    name: str
    told: str
    ends: tuple[float, float, float] | None
    kind: str
    one_end: tuple[float, int] | None = None


def make_or_reuse_axes(ax: Any, rows: int) -> Any:
    """Return the axes to draw on: `ax`, or those of a new figure with space for so many rows.

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
        raise InvalidInput("plot", None, "needs matplotlib", _INSTALL) from None
    height = _MARGIN + _LINE * max(rows, 3)
    _, made = pyplot.subplots(figsize=(_WIDTH, height), layout="constrained")
    return made


def _plain_short_name(name: object) -> str:
    """Return a name of at most `_LONGEST` characters, which matplotlib shows as it is."""
    # matplotlib would read text between two dollar signs as a formula.
    return escape_unprintable(str(name), _LONGEST).replace("$", r"\$")


def _largest_positions(values: Array) -> list[int]:
    """Return the positions to show, in their order: all, or those of the largest values."""
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
    # Refused lines count as the largest, so that none is left out as if it were small.
    sizes = np.array(
        [math.inf if line["refused"] else abs(scaled_interval(line)[1]) for line in every]
    )
    kept = [every[k] for k in _largest_positions(sizes)]
    ratio = ratio_of(kept)
    odds = ratio is not None
    rows = _forest_rows(kept, odds)
    axis = make_axis(kept)
    ax = make_or_reuse_axes(ax, len(rows))
    if odds:
        ax.set_xscale("log")
    ax.axvline(
        _place_on_axis(0.0, axis), color=_SOFT, linewidth=1.0, linestyle=(0, (3, 3)), zorder=1
    )
    for y, row in enumerate(rows):
        _draw_forest_row(ax, axis, y, row)
    _finish_named_rows(ax, [row.name for row in rows], bold=[row.kind == "head" for row in rows])
    label = "coefficient"
    if ratio:
        _set_odds_ratio_ticks(ax, axis)
        label = ratio.name
    left = f"; the {MOST} largest of {len(every)}" if len(kept) < len(every) else ""
    ax.set_xlabel(f"{label}, 95% interval{left}")
    return ax


def _place_on_axis(x: float, axis: Axis) -> float:
    """Return where a coefficient stands: for log-odds, their odds ratio within the axis."""
    if not axis.odds:
        return x
    return math.exp(min(max(x, axis.low), axis.high))


def _draw_forest_row(ax: Any, axis: Axis, y: int, row: _Row) -> None:
    """Draw the interval of a row, and its text at the right end."""
    colour = _BLUE if row.kind == "clear" else _INK
    bar = {"color": colour, "linewidth": 2.0, "solid_capstyle": "butt", "zorder": 2}
    if row.kind == "reference":
        hollow = {"markerfacecolor": "white", "markeredgecolor": _INK}
        ax.plot([_place_on_axis(0.0, axis)], [y], "o", markersize=6, zorder=3, **hollow)
    if row.ends is not None:
        low, mid, high = (_place_on_axis(x, axis) for x in row.ends)
        ax.plot([low, high], [y, y], **bar)
        ax.plot([mid], [y], "o", color=colour, markersize=6, zorder=3)
    if row.one_end is not None:
        # The unknown end is an arrow at the edge of the axis.
        end, side = row.one_end
        if side > 0:
            edge, arrow = axis.high, ">"
        else:
            edge, arrow = axis.low, "<"
        ax.plot([_place_on_axis(end, axis), _place_on_axis(edge, axis)], [y, y], **bar)
        ax.plot([_place_on_axis(edge, axis)], [y], arrow, color=colour, markersize=6, zorder=3)
    style = {"color": _INK, "style": "normal"}
    if row.kind in ("refused", "reference"):
        style = {"color": _SOFT, "style": "italic"}
    ax.annotate(
        row.told,
        xy=(1.02, y),
        xycoords=("axes fraction", "data"),
        annotation_clip=False,
        va="center",
        fontsize="small",
        **style,
    )


def _forest_rows(lines: Sequence[dict[str, Any]], odds: bool) -> list[_Row]:
    """Return the rows of a plot: of each column its name, its reference, and its lines."""
    rows = []
    for group in groups(lines):
        of_levels = group.lines[0]["level"] is not None
        if of_levels:
            rows.append(_Row(_plain_short_name(group.name), "", None, "head"))
        if group.reference is not None:
            rows.append(
                _Row(f"   {_plain_short_name(group.reference)}", "reference", None, "reference")
            )
        for line in group.lines:
            if of_levels:
                name = f"   {_plain_short_name(line['level'])}"
            else:
                name = f"{_plain_short_name(line['name'])} ({_plain_short_name(compared(line))})"
            rows.append(_forest_row_of_line(name, line, odds))
    return rows


def _forest_row_of_line(name: str, line: dict[str, Any], odds: bool) -> _Row:
    """Return the row of one line; it is clear if its interval excludes zero."""
    if (found := one_end(line)) is not None:
        end, side = found
        kind = "clear" if end * side > 0.0 else "unclear"
        return _Row(name, one_sided_interval_text(line, odds), None, kind, found)
    if line.get("refused") is not None:
        return _Row(name, "refused", None, "refused")
    low, mid, high = scaled_interval(line)
    kind = "clear" if low > 0.0 or high < 0.0 else "unclear"
    told = interval_text(low, mid, high, odds) + question_mark_text(line)
    return _Row(name, told, (low, mid, high), kind)


def _set_odds_ratio_ticks(ax: Any, axis: Any) -> None:
    """Set ticks at round odds ratios, in place of powers of ten."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    texts = [text for _, text in axis.ticks()]
    ax.set_xlim(math.exp(axis.low), math.exp(axis.high))
    ax.xaxis.set_major_locator(FixedLocator([float(text) for text in texts]))
    ax.xaxis.set_major_formatter(FixedFormatter(texts))
    ax.xaxis.set_minor_locator(NullLocator())


def _finish_named_rows(ax: Any, names: Sequence[str], bold: Sequence[bool] | None = None) -> None:
    """Write names down the left side, the first at the top, and hide what carries no number."""
    ax.set_yticks(range(len(names)), names, ha="left")
    # Row 0 is at the top; the limits leave .6 of a row above the first and below the last.
    ax.set_ylim(len(names) - 0.4, -0.6)
    widest = max((len(name) for name in names), default=0)
    # Names are aligned at their left, so they start as far out as the widest needs: about 5.4
    # points for each of its characters.
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
        Names of the n coefficients.
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
    which = _largest_positions(np.abs(table).max(axis=0))
    table = table[:, which]
    ax = make_or_reuse_axes(ax, len(which))
    y = np.arange(len(which))
    ax.axvline(0.0, color=_SOFT, linewidth=1.0, zorder=1)
    if len(table) == 1:
        ax.barh(y, table[0], height=0.62, color=_BLUE, zorder=2)
    else:
        for k, line in enumerate(table):
            colour = _COLOURS[k % len(_COLOURS)]
            # Once all colours are used they come again, with another marker.
            marker = "os^Dv"[k // len(_COLOURS) % 5]
            style = {"color": colour, "markersize": 6, "alpha": 0.85, "zorder": 2}
            ax.plot(line, y, marker, label=_plain_short_name(classes[k]), **style)
        # Beside the axes, where it covers no dot.
        outside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
        ax.legend(title="class", frameon=False, fontsize="small", **outside)
    _finish_named_rows(ax, [_plain_short_name(names[k]) for k in which])
    left = f"; the {MOST} largest of {len(names)}" if len(which) < len(names) else ""
    of_class = ""
    if len(table) == 1 and len(classes):
        of_class = f" for {_plain_short_name(classes[0])}"
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
        Names of the n curves; empty for no legend.
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
    curves = np.atleast_2d(np.asarray(survival, dtype=float))
    # Single curves need the height of about nine rows of a forest plot.
    ax = make_or_reuse_axes(ax, 9)
    for k, curve in enumerate(curves):
        label = _plain_short_name(names[k]) if names else None
        # At the start of the first interval nobody has had the event.
        line = np.concatenate([[1.0], curve])
        style = {"color": _COLOURS[k % len(_COLOURS)], "markersize": 4, "linewidth": 2.0}
        ax.plot(edges, line, "-o", label=label, **style)
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


class _Curve(NamedTuple):
    """A Kaplan-Meier curve up to where it is told.

    Parameters
    ----------
    name : str
    time, survival, low, high : array (m + 1,)
    at_risk : dict
        Numbers at risk by time.
    """

    name: str
    time: Array
    survival: Array
    low: Array
    high: Array
    at_risk: dict[float, float]


def kaplan_meier_plot(
    lines: Sequence[Mapping[str, Any]], groups: Sequence[str], said: str = "", ax: Any = None
) -> Any:
    """Draw Kaplan-Meier curves as steps with their bands, and numbers at risk below them.

    Parameters
    ----------
    lines : sequence of mapping
        The lines of :attr:`sottovoce.answers.survival_curves.SurvivalCurves.curves`.
    groups : sequence of str
        Names of the curves, in order.
    said : str
        The privacy statement, below a new figure.
    ax : matplotlib Axes, optional
        Where to draw, without numbers at risk; None for a new figure with them.

    Returns
    -------
    matplotlib Axes
        Of the curves.

    Raises
    ------
    InvalidInput
        If matplotlib is not installed.
    """
    curves = [_curve_of_group(lines, group) for group in groups]
    below = None
    if ax is None:
        # Curves need the height of ten rows, and each group has one below them.
        whole = make_or_reuse_axes(None, 11 + len(curves))
        figure = whole.figure
        whole.remove()
        ratios = [10.0, 0.9 * len(curves) + 0.4]
        ax, below = figure.subplots(2, 1, sharex=True, height_ratios=ratios)
        figure.supxlabel("\n".join(textwrap.wrap(said, 100)), fontsize="x-small", color=_SOFT)
    for k, curve in enumerate(curves):
        colour = _COLOURS[k % len(_COLOURS)]
        label = _plain_short_name(curve.name)
        ax.step(curve.time, curve.survival, where="post", color=colour, label=label, linewidth=2.0)
        band = {"step": "post", "color": colour, "alpha": 0.16, "linewidth": 0}
        ax.fill_between(curve.time, curve.low, curve.high, **band)
    ax.set_ylim(0.0, 1.03)
    ax.set_xlim(left=0.0)
    ax.set_ylabel("probability of no event, 95% bands")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.grid(color="#e3e7eb", linewidth=0.8)
    ax.set_axisbelow(True)
    if len(curves) > 1:
        ax.legend(frameon=False, fontsize="small")
    if below is None:
        ax.set_xlabel("time")
    else:
        _draw_numbers_at_risk(below, curves, ax.get_xlim()[1])
    return ax


def _curve_of_group(lines: Sequence[Mapping[str, Any]], group: str) -> _Curve:
    """Return the curve of a group, without the lines where it is hidden."""
    own = [one for one in lines if one["group"] == group]
    told = [one for one in own if one["survival"] is not None]
    keys = ("time", "survival", "low", "high")
    time, survival, low, high = (np.array([one[key] for one in told]) for key in keys)
    at_risk = {one["time"]: one["at_risk"] for one in own if one["at_risk"] is not None}
    return _Curve(group, time, survival, low, high, at_risk)


def _draw_numbers_at_risk(ax: Any, curves: Sequence[_Curve], end: float) -> None:
    """Write noisy numbers at risk, a row for each curve, at up to seven times of the grid."""
    times = sorted({time for curve in curves for time in curve.at_risk})
    places = np.unique(np.searchsorted(times, np.linspace(0.0, end, 7), side="right") - 1)
    shown = [times[k] for k in places if k >= 0] if times else []
    for k, curve in enumerate(curves):
        for time in shown:
            if time in curve.at_risk:
                text = f"{curve.at_risk[time]:,.0f}"
                colour = _COLOURS[k % len(_COLOURS)]
                ax.text(time, -k, text, ha="center", va="center", color=colour, fontsize="small")
    ax.set_ylim(0.6 - len(curves), 0.6)
    ax.set_yticks([-float(k) for k in range(len(curves))])
    ax.set_yticklabels([_plain_short_name(curve.name) for curve in curves], fontsize="small")
    # Numbers at time 0 stand on the axis, so names are moved away from it.
    ax.tick_params(axis="y", length=0, pad=24)
    ax.set_xticks(shown, [f"{time:.4g}" for time in shown])
    ax.set_xlabel("time")
    noisy = any(many % 1.0 for curve in curves for many in curve.at_risk.values())
    title = "number at risk (noisy)" if noisy else "number at risk"
    ax.set_title(title, loc="left", fontsize="small")
    ax.grid(visible=False)
    for side in ("top", "right", "left", "bottom"):
        ax.spines[side].set_visible(False)


def check_picture_format(ending: str) -> None:
    """Refuse the ending of a file in which no picture can be drawn, or a missing matplotlib.

    Raises
    ------
    InvalidInput
        Before anything is spent.
    """
    if ending.casefold() not in PICTURES:
        rule = "must end with " + ", ".join(PICTURES)
        raise InvalidInput("plot", ending, rule, "use plot.svg")
    if find_spec("matplotlib") is None:
        raise InvalidInput("plot", None, "needs matplotlib", _INSTALL)


def picture_of_axes(ax: Any, ending: str) -> bytes:
    """Return the figure of these axes as a file with this ending, and close it."""
    from matplotlib import pyplot, rc_context

    sink, kind = io.BytesIO(), ending.casefold().removeprefix(".")
    # Without the date, and with one salt for names, the same picture is the same bytes.
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with rc_context({"svg.hashsalt": "sottovoce"}):
        ax.figure.savefig(sink, format=kind, metadata=metadata)
    pyplot.close(ax.figure)
    return sink.getvalue()


__all__ = [
    "check_picture_format",
    "coefficient_plot",
    "forest_plot",
    "kaplan_meier_plot",
    "make_or_reuse_axes",
    "picture_of_axes",
    "survival_plot",
]
