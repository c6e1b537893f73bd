"""Figures of a study: one image for each panel, as PNG and SVG, readable with colour blindness and
on any screen.

Colours are Okabe and Ito's, and every series has a marker and a line of its own too.  The same
table gives the same bytes of SVG.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy import stats

from sottovoce.errors import InvalidInput
from sottovoce.util.typing import Any, Array

from .kinds import LETTER, Row
from .spec import Figure, PaperPoints, select

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F7F7F", "#8C510A")
BLACK, EXACT = "#000000", ("admm", "without noise")
"""The colour of methods that run without noise, and the names of these methods."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)), (0, (8, 2)))
STYLE: Any = {  # of matplotlib
    "font.size": 11,
    "axes.titlesize": 11,
    "legend.fontsize": 10,
    "svg.hashsalt": "sottovoce",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#d9dde2",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.frameon": False,
}
WIDTH, HEIGHT = 5.2, 3.3
Look = dict[str, Any]  # colour, marker and line of a series
_LETTER = 0.022  # width of one letter of a tick label, as a share of the width of the axes
_FLAT = 0.02  # share of the axis below which a whole curve cannot be told from zero
_DENSE = 12  # points of a curve above which its spread is a band and only some points are marked
SPREADS = {
    "ci": "mean and 95% interval of the mean over replicates, or over draws of graph and rows if "
    "there are several",
    "sd": "mean and standard deviation over replicates",
    "range": "mean and range over replicates",
    "none": "mean over replicates",
}


@dataclass(frozen=True)
class Panel:
    """One image of a figure, as bytes of SVG and PNG."""

    name: str
    title: str
    svg: bytes
    png: bytes


def require() -> None:
    """Raise an :class:`~sottovoce.errors.InvalidInput` if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InvalidInput(
            "figures", None, "need matplotlib", "pip install 'sottovoce[studies]'"
        ) from None


def draw(
    figure: Figure, rows: list[Row], points: Sequence[PaperPoints] = (), mark: str = ""
) -> list[Panel]:
    """Draw the panels of a figure; none if no row passes its filter.

    Parameters
    ----------
    figure : Figure
        As the study's file describes it.
    rows : list of Row
        The whole table of the study, so that a method has one colour in all figures of it.
    points : sequence of PaperPoints
        Points that the paper prints, drawn hollow.
    mark : str
        Stands behind the title of every panel.

    Returns
    -------
    list of Panel
    """
    kept = [
        row for row in select(rows, figure.filter) if not figure.y or _number(row.get(figure.y))
    ]
    if not kept:
        return []
    facets = [None]
    if figure.facet:
        found = [value for value in _values(kept, figure.facet) if value is not None]
        facets = found or [None]
    figure = _scaled(figure, kept)
    # colours are by the whole table, so that a method looks alike in figures that lack others
    order = _looks(figure, {series_of(row, figure): row for row in kept}, rows)
    limits = None
    if figure.share_y and len(facets) > 1:
        limits = _limits(figure, kept)
    panels = []
    for k, facet in enumerate(facets, 1):
        # rows without a value of the facet are in all panels
        those = [row for row in kept if facet is None or row.get(figure.facet) in (facet, None)]
        own = [one for one in points if one.figure == figure.name and one.facet in (None, facet)]
        name, title = figure.name, ""
        if len(facets) > 1:
            name = f"{figure.name}-{k}"
        if facet is not None:
            heading = figure.names.get(figure.facet, figure.facet)
            title = f"{heading} {_said(figure, facet)}".strip()
        panels.append(_panel(figure, those, order, name, title, limits, own, mark))
    return panels


def _panel(
    figure: Figure,
    rows: list[Row],
    order: dict[str, Look],
    name: str,
    title: str,
    limits: tuple[float, float] | None,
    points: Sequence[PaperPoints],
    mark: str,
) -> Panel:
    """Draw one panel.

    `rows` are those of this panel, `order` has the look of every series in the order of the
    legend, and `limits` are those of the y axis, or None.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    # A canvas of its own, and not pyplot's: nothing is left open, and the user's style is not used.
    with matplotlib.rc_context(STYLE):
        canvas = Canvas(figsize=(WIDTH, HEIGHT))
        FigureCanvasAgg(canvas)
        axes = canvas.add_subplot()
        for axis in figure.log:
            least = _least(figure, rows, axis)
            how: dict[str, Any] = {"value": "log"}
            # a logarithm would leave out values of 0 and below
            if least is not None:
                how = {"value": "symlog", "linthresh": least}
            getattr(axes, f"set_{axis}scale")(**how)
        _DRAW[figure.kind](axes, figure, rows, order)
        for one in points:
            _paper(axes, figure, rows, order, one)
        for line in figure.references:
            _reference(axes, line)
        axes.set_xlabel(figure.xlabel or figure.x)
        axes.set_ylabel(figure.ylabel or figure.y or "share of values")
        if limits is not None:
            axes.set_ylim(*limits)
        if "x" in figure.log:
            _format_logarithmic(axes.xaxis, *axes.get_xlim())
        if "y" in figure.log:
            _format_logarithmic(axes.yaxis, *axes.get_ylim())
        _few_ticks(axes, figure, rows)
        if title or mark:
            axes.set_title(" – ".join(filter(None, [title, mark])), loc="left")
        handles, labels = axes.get_legend_handles_labels()
        found = dict(zip(labels, handles, strict=True))
        if found and (len(found) > 1 or figure.references):
            # below the axes, where it hides no curve
            axes.legend(
                list(found.values()),
                list(found),
                loc="upper left",
                bbox_to_anchor=(-0.12, -0.2),
                ncols=_legend_columns(list(found)),
                borderaxespad=0.0,
                handlelength=2.6,
                columnspacing=1.2,
            )
        images = []
        for kind, more in (
            ("svg", {"metadata": {"Date": None, "Creator": "sottovoce"}}),
            ("png", {"dpi": 160}),
        ):
            sink = io.BytesIO()
            canvas.savefig(sink, format=kind, bbox_inches="tight", pad_inches=0.08, **more)
            images.append(sink.getvalue())
    return Panel(name, title, *images)


def _reference(axes: Any, line: Mapping[str, Any]) -> None:
    """Draw a dashed line at a level of x or y, or along y = x over the width of the axes."""
    look: dict[str, Any] = {
        "color": "#444",
        "lw": 1.2,
        "ls": (0, (2, 2)),
        "label": line.get("label"),
    }
    if "diagonal" in line:
        low, high = axes.get_xlim()
        # two points make no straight line where the axes' scales differ
        xs = np.array([low, high])
        if axes.get_xscale() == "log":
            xs = np.geomspace(low, high, 100)
        axes.plot(xs, xs, **look)
        axes.set_xlim(low, high)
    elif "y" in line:
        axes.axhline(line["y"], **look)
    else:
        axes.axvline(line.get("x"), **look)


def _format_logarithmic(axis: Any, low: float, high: float) -> None:
    """Write plain numbers at a logarithmic axis; between powers too if it spans about one power."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    plain_numbers = FuncFormatter(_tick)
    axis.set_major_formatter(plain_numbers)
    if low > 0 and high / low < 12:
        axis.set_minor_formatter(plain_numbers)
    else:
        axis.set_minor_formatter(NullFormatter())


def _legend_columns(labels: Sequence[str]) -> int:
    """Return how many legend columns with labels of this length fit into the figure's width."""
    longest = max(len(label) for label in labels)
    room = 1
    if longest < 14:
        room = 3
    elif longest < 26:
        room = 2
    return max(1, min(len(labels), room))


def _paper(
    axes: Any, figure: Figure, rows: list[Row], order: dict[str, Look], one: PaperPoints
) -> None:
    """Draw hollow markers at the paper's points, in the colour of their series.

    Their error bars are the uncertainty of reading values off a plot.
    """
    if figure.kind == "hist":
        return
    xs, ys = list(one.x), list(one.y)
    if figure.kind == "bar":
        # bars stand at whole numbers, in the order of their values; other values have no place
        places = _values(rows, figure.x)
        xs = [places.index(x) for x in one.x if x in places]
        ys = [y for x, y in zip(one.x, one.y, strict=True) if x in places]
    look = order.get(one.series, {"color": BLACK, "marker": "o"})
    error = one.error or None
    axes.errorbar(
        xs,
        ys,
        error,
        fmt=look["marker"],
        color=look["color"],
        mfc="none",
        mew=1.6,
        ms=9.0,
        capsize=3,
        label="paper",
        zorder=5,
    )


def _scaled(figure: Figure, rows: list[Row]) -> Figure:
    """Return the figure with a logarithmic y axis if a positive series would look like zero on a
    linear one.
    """
    if figure.kind != "line" or "y" in figure.log:
        return figure
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(series_of(row, figure), []).append(abs(float(row[figure.y])))
    tops = [max(values) for values in found.values()]
    flat = len(tops) > 1 and 0.0 < min(tops) < _FLAT * max(tops)
    if flat:
        return replace(figure, log=(*figure.log, "y"))
    return figure


def _least(figure: Figure, rows: list[Row], axis: str) -> float | None:
    """Return the smallest nonzero size on a logarithmic axis that has values of 0 or below.

    It is where the axis becomes linear around 0; None if all values are positive.
    """
    columns = {"x": figure.x, "y": figure.y}
    values = _column(rows, columns[axis])
    levels = [float(line[axis]) for line in figure.references if axis in line]
    every = np.concatenate([values, levels])
    positive = np.abs(every[every != 0.0])
    if every.size and every.min() <= 0.0 and positive.size:
        return float(positive.min())
    return None


def _tick(value: float, place: int | None = None) -> str:
    """Format a number at a logarithmic axis; very small and large powers of ten as powers."""
    if value > 0:
        power = round(math.log10(value))
        if abs(power) > 3 and math.isclose(value, 10.0**power, rel_tol=1e-9):
            return f"$10^{{{power}}}$"
    return f"{value:g}"


def _few_ticks(axes: Any, figure: Figure, rows: list[Row]) -> None:
    """Put the ticks of a logarithmic axis with few values at those values, and labels where
    there is room for them.
    """
    xs = np.unique(_column(rows, figure.x)).tolist()
    if "x" in figure.log and 2 <= len(xs) <= 8 and min(b / a for a, b in pairwise(xs)) > 1.25:
        labels, last = [_tick(xs[0])], 0
        for k, x in enumerate(xs[1:], 1):
            room = math.log(x / xs[last]) / math.log(xs[-1] / xs[0])
            # half of each label lies between them, and a letter of space
            fits = room > _LETTER * (len(f"{x:g}") + len(f"{xs[last]:g}")) / 2 + _LETTER
            if fits:
                labels.append(_tick(x))
                last = k
            else:
                labels.append("")
        axes.set_xticks(xs, labels)
        axes.set_xticks([], minor=True)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _column(rows: list[Row], column: str) -> Array:
    return np.array([float(row[column]) for row in rows if _number(row.get(column))])


def _values(rows: list[Row], column: str) -> list[Any]:
    """Return the distinct values of a column: numbers sorted, others in the order of the rows."""
    found = list(dict.fromkeys(row.get(column) for row in rows))
    numbers = [value for value in found if value is not None]
    if not all(_number(value) for value in numbers):
        return found
    # a missing value comes first
    missing = [value for value in found if value is None]
    return [*missing, *sorted(numbers)]


def _said(figure: Figure, value: Any) -> str:
    """Return a value as the figure writes it: by its name, if the figure gives one."""
    text = str(value)
    if isinstance(value, float):
        text = f"{value:g}"
    return figure.names.get(text, text)


def series_of(row: Row, figure: Figure) -> str:
    """Return the name of a row's series, from its values in the columns that tell series apart.

    A number stands behind the name of its column.
    """
    parts = []
    for column in figure.series_columns:
        value = row.get(column)
        if value is None or not _said(figure, value).strip():
            continue
        said = _said(figure, value)
        # a number without a name of its own says nothing without its column
        if _number(value) and said == f"{value:g}":
            said = f"{figure.names.get(column, column)} {said}".strip()
        parts.append(said)
    return ", ".join(parts)


def _looks(figure: Figure, series: dict[str, Row], rows: list[Row]) -> dict[str, Look]:
    """Choose colour, marker and line of every series; no two series have the same.

    The colour is that of the series' method among all `rows` of the study, so that a method looks
    alike in all figures; without methods it follows the order of `series`, which has one row of
    each.
    """
    first = next(iter(figure.series_columns), "")
    known: list[str] = []
    if first == "method":
        known = [plain(row["method"]) for row in rows if isinstance(row.get("method"), str)]
    methods = [name for name in dict.fromkeys(known) if name not in EXACT]
    exact = [plain(str(row.get("method"))) in EXACT for row in series.values()]
    found: dict[str, Look] = {}
    used: dict[str, int] = {}
    for k, (name, row) in enumerate(series.items()):
        # black tells the run without noise apart; with nothing but such runs it would tell nothing
        black = exact[k] and not all(exact)
        method = ""
        if (known or black) and isinstance(row.get("method"), str):
            method = plain(row["method"])
        place = k
        if method in methods:
            place = methods.index(method)
        # series of one method share its colour, and differ in marker and line
        variant, turn = 0, place
        if method:
            variant = turn = used.get(method, 0)
        used[method] = variant + 1
        colour = COLOURS[place % len(COLOURS)]
        if black:
            colour = BLACK
        found[name] = {
            "color": colour,
            "marker": MARKERS[(place + 3 * variant) % len(MARKERS)],
            "ls": LINES[(2 * (place // len(COLOURS)) + turn) % len(LINES)],
        }
    return found


def plain(method: str) -> str:
    """Return a method's name without the mark of its printed form."""
    return method.removesuffix(LETTER)


def summary(values: Array, spread: str) -> tuple[float, float, float]:
    """Return the mean, and how far the spread of that kind reaches below and above it."""
    mean, n = float(values.mean()), values.size
    if n < 2 or spread == "none":
        return mean, 0.0, 0.0
    if spread == "range":
        return mean, mean - float(values.min()), float(values.max()) - mean
    reach = float(values.std(ddof=1))
    if spread == "ci":
        reach = reach / math.sqrt(n) * float(stats.t.ppf(0.975, n - 1))
    return mean, reach, reach


def _summed(figure: Figure, rows: list[Row]) -> tuple[float, float, float]:
    """Return the :func:`summary` of the figure's y over these rows.

    An interval of a mean is over draws of graph and rows if there are several.
    """
    values = _column(rows, figure.y)
    if figure.spread == "ci":
        drawn = [row.get("draw") for row in rows]
        if None not in drawn:
            # replicates of one draw differ in noise only: a draw counts once
            draws = np.array(drawn)
            values = np.array([values[draws == draw].mean() for draw in np.unique(draws)])
    return summary(values, figure.spread)


def _groups(figure: Figure, rows: list[Row], order: dict[str, Look]) -> dict[str, list[Row]]:
    """Group rows by series, in the order of the legend; series without rows are left out."""
    found: dict[str, list[Row]] = {name: [] for name in order}
    for row in rows:
        found[series_of(row, figure)].append(row)
    return {name: those for name, those in found.items() if those}


def _points(figure: Figure, rows: list[Row]) -> tuple[list[Any], Array]:
    """Return the x values, and an array (values, 3) of the mean and its reach below and above."""
    at: dict[Any, list[Row]] = {}
    for row in rows:
        at.setdefault(row.get(figure.x), []).append(row)
    xs = list(at)
    if all(_number(x) for x in xs):
        xs = sorted(xs)
    return xs, np.array([_summed(figure, at[x]) for x in xs])


def _line(axes: Any, figure: Figure, rows: list[Row], order: dict[str, Look]) -> None:
    """Draw a line for each series: means over replicates with their spread."""
    for name, those in _groups(figure, rows, order).items():
        look = order[name]
        moving = [row for row in those if _number(row.get(figure.x))]
        label = name or None
        # a series without places on the axis is a level
        if not moving:
            level = float(np.mean([row[figure.y] for row in those]))
            axes.axhline(level, color=look["color"], ls=look["ls"], lw=1.6, label=label)
            continue
        xs, found = _points(figure, moving)
        mean, low, high = found[:, 0], found[:, 0] - found[:, 1], found[:, 0] + found[:, 2]
        # an interval of a mean may reach below 0, where a logarithmic axis ends
        if "y" in figure.log:
            low = np.maximum(low, 0.05 * mean)
        dense, every = len(xs) > _DENSE, max(1, len(xs) // 8)
        marked = None
        if dense:
            # series have their markers at different places, so that none hides another's
            shift = list(order).index(name) % every
            marked = (shift, every)
        axes.plot(xs, mean, **look, lw=1.7, ms=5.0, markevery=marked, label=label)
        if np.any(found[:, 1:] > 0):
            if dense:
                axes.fill_between(xs, low, high, color=look["color"], alpha=0.16, lw=0)
            else:
                # rounding may leave a reach just below 0, which matplotlib refuses
                reach = np.maximum([mean - low, high - mean], 0.0)
                axes.errorbar(xs, mean, reach, fmt="none", ecolor=look["color"], capsize=3, lw=1.1)


def _bar(axes: Any, figure: Figure, rows: list[Row], order: dict[str, Look]) -> None:
    """Draw a group of bars at each x, one bar for each series."""
    groups, places = _groups(figure, rows, order), _values(rows, figure.x)
    width = 0.8 / len(groups)
    hatches = ("", "//", "..", "\\\\", "xx", "--", "oo", "++")
    for k, (name, those) in enumerate(groups.items()):
        xs, found = _points(figure, those)
        at = np.array([places.index(x) for x in xs]) + (k - (len(groups) - 1) / 2) * width
        colour = order[name]["color"]
        reach = None
        if np.any(found[:, 1:] > 0):
            reach = found[:, 1:].T
        axes.bar(
            at,
            found[:, 0],
            width * 0.92,
            yerr=reach,
            color=colour,
            alpha=0.75,
            ecolor="#222",
            capsize=2,
            hatch=hatches[k % len(hatches)],
            edgecolor="white",
            lw=0,
            label=name or None,
            error_kw={"lw": 1.0},
        )
    texts = [_said(figure, place) for place in places]
    turned: dict[str, Any] = {"rotation": 0, "ha": "center"}
    # more letters than fit beside one another
    if sum(map(len, texts)) > 34:
        turned = {"rotation": 40, "ha": "right"}
    axes.set_xticks(range(len(places)), texts, **turned)
    axes.grid(visible=False, axis="x")


def _hist(axes: Any, figure: Figure, rows: list[Row], order: dict[str, Look]) -> None:
    """Draw a histogram of x for each series, as shares of its values."""
    edges = np.histogram_bin_edges(_column(rows, figure.x), bins=figure.bins)
    for name, those in _groups(figure, rows, order).items():
        own = _column(those, figure.x)
        heights = np.histogram(own, edges)[0] / max(own.size, 1)
        look = order[name]
        axes.stairs(heights, edges, color=look["color"], ls=look["ls"], lw=1.8, label=name or None)
        axes.stairs(heights, edges, fill=True, color=look["color"], alpha=0.12)


def _scatter(axes: Any, figure: Figure, rows: list[Row], order: dict[str, Look]) -> None:
    """Draw a point for every row."""
    for name, those in _groups(figure, rows, order).items():
        points = [(row[figure.x], row[figure.y]) for row in those if _number(row.get(figure.x))]
        if points:
            look = {key: order[name][key] for key in ("color", "marker")}
            axes.scatter(
                *zip(*points, strict=True), **look, s=26, alpha=0.75, lw=0, label=name or None
            )


def _limits(figure: Figure, rows: list[Row]) -> tuple[float, float] | None:
    """Return limits of the y axis that suit all panels; None to leave each panel its own."""
    if figure.kind not in ("line", "bar"):
        return None
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = row.get(figure.facet), series_of(row, figure), row.get(figure.x)
        groups.setdefault(key, []).append(row)
    found = np.array([_summed(figure, those) for those in groups.values()])
    low, high = float((found[:, 0] - found[:, 1]).min()), float((found[:, 0] + found[:, 2]).max())
    levels = [float(line["y"]) for line in figure.references if "y" in line]
    low, high = min([low, *levels]), max([high, *levels])
    if "y" in figure.log:
        low = max(low, 0.5 * float(found[:, 0].min()))
        if low <= 0:
            return None
        return low / 1.1, high * 1.1
    room = 0.05 * (high - low) or 0.05
    # a bar starts at 0
    if figure.kind == "bar" and low >= 0:
        return 0.0, high + room
    return low - room, high + room


_DRAW = {"line": _line, "bar": _bar, "hist": _hist, "scatter": _scatter}
