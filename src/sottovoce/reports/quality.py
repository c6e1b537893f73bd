"""The section of a page on a model's quality: curves, rates and subgroups.

`found` is an evaluation as plain data (``to_dict`` of an evaluation of two classes, of several
classes, or of a number); `exact` are its numbers without noise, for the holder of the rows only.
Within it an estimate is a dict of ``value``, ``low`` and ``high``, the ends of its 95% interval; a
refused one has the value None and the reason as ``refused``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ..privacy.statement import Statement, ceil_text
from ..util.pages import Column, Table, plot_coordinates, svg_path_of_line
from ..util.typing import Any
from .coefficients import Axis
from .plain import format_percentage, read_finite_number

_MEASURES = {
    "auc": ("area under the ROC curve", "share of pairs ranked correctly"),
    "brier": ("Brier score", "mean squared error of the probabilities; 0 is best"),
    "positives": ("share of positives", "in all held-out rows"),
}
_RATES = {
    "accuracy": "rows classified correctly",
    "sensitivity": "positives called positive",
    "specificity": "negatives called negative",
    "precision": "positives among rows called positive",
}
_ERRORS = {
    "r2": "R2: share of the variance explained",
    "mean_absolute_error": "mean absolute error",
    "root_mean_squared_error": "root mean squared error",
    "mean_target": "mean of the number",
}
_HOLDER_ONLY = "without noise: for the holder only"


def _three_decimals(x: float) -> str:
    return f"{x:.3f}"


def _two_decimals(x: float) -> str:
    return f"{x:.2f}"


def _four_digits(x: float) -> str:
    return f"{x:.4g}"


def _estimate_text(
    plain: dict[str, Any], shown: Callable[[float], str] = _three_decimals
) -> str | None:
    """Format an estimate with its interval; None if it is refused."""
    if plain["value"] is None:
        return None
    value, low, high = (shown(read_finite_number(plain[name])) for name in ("value", "low", "high"))
    return f"{value} ({low.rstrip('%')} to {high.rstrip('%')})"


RECALIBRATION = {
    "calibration_slope_interval": ("calibration slope", "1 is best, below 1 is overconfident"),
    "calibration_intercept": (
        "calibration intercept",
        "of the line with that slope, in log-odds; 0 is best",
    ),
    "calibration_in_the_large": (
        "calibration in the large",
        "log-odds to be added to the model's; 0 is best",
    ),
    "observed_expected": ("O/E", "observed over expected positives; 1 is best"),
}
"""Measures of calibration, by their keys in an evaluation: name, and how to read it.

Slope and intercept are of the label's log-odds as a line in the model's.
"""


def calibration_cell_text(cell: dict[str, Any]) -> str:
    """Format the model's probabilities in a cell of the calibration.

    A cell is a range of probabilities in which rows are counted.  The text is their mean, or, for a
    cell at either end, the probability that they all lie above or below.
    """
    if cell["predicted"] is not None:
        return format_percentage(read_finite_number(cell["predicted"]))
    if cell.get("above") is not None:
        return f"above {format_percentage(read_finite_number(cell['above']))}"
    return f"below {format_percentage(read_finite_number(cell['below']))}"


Point = tuple[str, str]
"""Coordinates in a square plot, as they are written."""


@dataclass(frozen=True)
class SquarePlot:
    """A plot of shares against shares, with its text."""

    about: str
    """The plot in words, for screen readers."""
    said: str
    """The sentence below the plot."""
    curve: str = ""
    """Path of the curve, as SVG; empty for none."""
    lines: list[tuple[Point, Point]] = field(default_factory=list)
    dots: list[Point] = field(default_factory=list)
    diagonal: str = svg_path_of_line([0, 1], [0, 1])


def _plot_coordinates(x: float, y: float) -> Point:
    """Return where a point of the unit square is drawn, in the units of the SVG."""
    across, down = plot_coordinates(x, y)
    return f"{across:.1f}", f"{down:.1f}"


def _roc_curve_plot(found: dict[str, Any]) -> SquarePlot:
    """Lay out the ROC curve; its two corners have no dot."""
    points = [(read_finite_number(x), read_finite_number(y)) for x, y in found["roc"]]
    inner = points[1:-1]
    area = found["auc"]
    if area["value"] is None:
        said = f"Area refused: {area['refused']}"
    else:
        said = f"Area {_estimate_text(area)}"
    in_words = (
        f"{format_percentage(y, 0)} of positives at {format_percentage(x, 0)} of negatives"
        for x, y in inner
    )
    return SquarePlot(
        about="; ".join(in_words),
        said=said,
        curve=svg_path_of_line((x for x, _ in points), (y for _, y in points)),
        dots=[_plot_coordinates(x, y) for x, y in inner],
    )


def _calibration_plot(found: dict[str, Any]) -> SquarePlot:
    """Lay out the calibration plot: the share of positives by the model's probability."""
    plot = SquarePlot("; ".join(map(_cell_in_words, found["calibration"])), _slope_sentence(found))
    for cell in found["calibration"]:
        y, low, high = (read_finite_number(cell[name]) for name in ("observed", "low", "high"))
        if cell["predicted"] is None:
            # An open cell: a bar over all its probabilities, with the interval at their middle.
            start = 0.0 if cell.get("above") is None else read_finite_number(cell["above"])
            end = 1.0 if cell.get("below") is None else read_finite_number(cell["below"])
            plot.lines.append((_plot_coordinates(start, y), _plot_coordinates(end, y)))
            x = 0.5 * (start + end)
        else:
            x = read_finite_number(cell["predicted"])
            plot.dots.append(_plot_coordinates(x, y))
        plot.lines.append((_plot_coordinates(x, low), _plot_coordinates(x, high)))
    return plot


def _cell_in_words(cell: dict[str, Any]) -> str:
    """Return the share of positives among rows of a cell of the calibration, in words."""
    observed, low, high = (
        format_percentage(read_finite_number(cell[name])) for name in ("observed", "low", "high")
    )
    return f"given {calibration_cell_text(cell)}, {observed} were positive ({low} to {high})"


def _slope_sentence(found: dict[str, Any]) -> str:
    """Return a sentence on the calibration slope."""
    told = found["calibration_slope_interval"]
    if told["value"] is None:
        return f"Calibration slope refused: {told['refused']}."
    return (
        f"Calibration slope {_estimate_text(told, _two_decimals)}; 1 is best, below 1 is "
        "overconfident."
    )


class Measure(NamedTuple):
    """A measure with its estimate, how to read it, and its value without noise if that is shown."""

    name: str
    about: str
    estimate: str | None
    exact: str = ""


def _quality_measures(found: dict[str, Any], exact: dict[str, Any]) -> list[Measure]:
    """Return all measures of a model of two classes, in the order of the page."""
    lines = []
    for key, (name, about) in (_MEASURES | RECALIBRATION).items():
        shown: Callable[[float], str] = format_percentage if key == "positives" else _three_decimals
        lines.append(
            Measure(name, about, _estimate_text(found[key], shown), _exact_value_text(exact, key))
        )
    for key, estimate in found["rates"].items():
        about = _RATES.get(key, "")
        if key == "accuracy":
            # An accuracy means something only in comparison with that of a constant answer.
            about += _constant_accuracy_text(found["positives"])
        name = f"{key} at {_threshold_text(found)}"
        lines.append(
            Measure(
                name,
                about,
                _estimate_text(estimate, format_percentage),
                _exact_value_text(exact, key),
            )
        )
    return lines


def _threshold_text(found: dict[str, Any]) -> str:
    """Return the probability from which on a row is called positive, in percent."""
    return f"{100.0 * read_finite_number(found['threshold']):g}%"


def _exact_value_text(exact: dict[str, Any], key: str) -> str:
    """Format a number without noise; empty where it is not shown."""
    if key not in exact:
        return ""
    return f"{read_finite_number(exact[key]):.4f}"


def _constant_accuracy_text(positives: dict[str, Any]) -> str:
    """Return the accuracy of calling all rows alike, in words; empty if it is not known."""
    share = positives["value"]
    if share is None:
        return ""
    return (
        "; calling all rows alike: "
        f"{format_percentage(max(read_finite_number(share), 1.0 - share))}"
    )


def _confusion_table(found: dict[str, Any]) -> Table:
    """Return the confusion matrix of two classes: noisy counts, rounded to whole rows."""
    counts = {
        name: f"{read_finite_number(value):,.0f}" for name, value in found["confusion"].items()
    }
    columns = [
        Column(f"from {_threshold_text(found)} on a row is called positive"),
        Column("actually positive", "n"),
        Column("actually negative", "n"),
    ]
    rows = [
        ["called positive", counts["true_positive"], counts["false_positive"]],
        ["called negative", counts["false_negative"], counts["true_negative"]],
    ]
    return Table(columns, rows)


class SubgroupRow(NamedTuple):
    """A row of the plot of subgroups.

    Places are in percent of the axis, and None where the area is refused.
    """

    name: str
    text: str | None
    span: tuple[str, str] | None = None
    dot: str | None = None


class Subgroups(NamedTuple):
    """The areas of subgroups as a plot, and all their measures as a table."""

    ticks: list[tuple[str, str]]
    rows: list[SubgroupRow]
    table: Table


def _lay_out_subgroups(by: dict[str, Any]) -> Subgroups:
    """Lay out the measures of subgroups, given the evaluation of each by its name."""
    # The axis is of areas under the ROC curve; those below .4 are drawn at its edge.
    axis = Axis(0.4, 1.0, None)
    ticks = [(axis.at(x), f"{x:g}") for x in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)]
    rates = ["sensitivity", "specificity", "precision"]
    recalibration = [name for name, _ in RECALIBRATION.values()]
    heads = ["rows, about", "share of positives", *rates, *recalibration]
    columns = [Column(""), *(Column(head, "n") for head in heads)]
    rows, cells = [], []
    for name, one in by.items():
        rows.append(_subgroup_row(name, one["auc"], axis))
        numbers = [
            f"{read_finite_number(one['rows']):,.0f}",
            _estimate_text(one["positives"], format_percentage),
        ]
        numbers += [_estimate_text(one["rates"][rate], format_percentage) for rate in rates]
        numbers += [_estimate_text(one[key], _two_decimals) for key in RECALIBRATION]
        cells.append([name, *numbers])
    return Subgroups(ticks, rows, Table(columns, cells))


def _subgroup_row(name: str, area: dict[str, Any], axis: Axis) -> SubgroupRow:
    """Lay out a subgroup's area under the ROC curve with its interval."""
    if area["value"] is None:
        return SubgroupRow(name, None)
    low, mid, high = (read_finite_number(area[key]) for key in ("low", "value", "high"))
    return SubgroupRow(name, _estimate_text(area), (axis.at(low), axis.at(high)), axis.at(mid))


def _error_table(found: dict[str, Any], exact: dict[str, Any]) -> Table:
    """Return the table of errors of a predicted number."""
    unit = str(found.get("unit") or "")
    columns = [Column(""), Column("with 95% interval", "n")]
    if exact:
        columns.append(Column(_HOLDER_ONLY, "n"))
    rows = []
    for key, text in _ERRORS.items():
        name = text
        # R2 is a share, and has no unit.
        if unit and key != "r2":
            name = f"{text} ({unit})"
        row = [name, _estimate_text(found[key], _four_digits)]
        if exact:
            row.append(_exact_value_text(exact, key))
        rows.append(row)
    return Table(columns, rows)


def _class_rates_table(found: dict[str, Any], exact: dict[str, Any]) -> Table:
    """Return the table of a model of several classes, a line for each class."""
    heads = ["share of rows", "found (recall)", "correct predictions (precision)"]
    if exact:
        heads.append("recall, without noise: for the holder only")
    rows = []
    for one in found["classes"]:
        name = str(one["name"])
        row: list[str | None] = [name]
        row += [
            _estimate_text(one[key], format_percentage) for key in ("share", "recall", "precision")
        ]
        if exact:
            row.append(f"{read_finite_number(exact[f'recall on {name}']):.4f}")
        rows.append(row)
    return Table([Column("class"), *(Column(head, "n") for head in heads)], rows)


def _class_confusion_table(found: dict[str, Any]) -> Table:
    """Return the confusion matrix of several classes: a row for each actual class."""
    names = [str(one["name"]) for one in found["classes"]]
    columns = [Column("actual class"), *(Column(f"predicted {name}", "n") for name in names)]
    rows = [
        [name, *(f"{read_finite_number(x):,.0f}" for x in line)]
        for name, line in zip(names, found["confusion"], strict=True)
    ]
    return Table(columns, rows)


@dataclass(frozen=True)
class QualitySection:
    """The section of a page on quality: the values of templates/quality.html.

    It is about one model: of two classes, of a number, or of several classes.
    """

    rows: str
    epsilon: str
    accuracy: str | None = None
    """Of several classes."""
    table: Table | None = None
    """Rates of classes, or errors of a number."""
    roc: SquarePlot | None = None
    """Only for two classes, as are all fields below but `confusion` and `several`."""
    calibration: SquarePlot | None = None
    measures: list[Measure] = field(default_factory=list)
    exact: bool = False
    """True if measures have a column without noise, for the holder of the rows."""
    confusion: Table | None = None
    subgroups: Subgroups | None = None
    several: bool = False
    holder_only: str = _HOLDER_ONLY


def build_quality_section(plain: dict[str, Any], holder: bool) -> QualitySection:
    """Build a page's section on quality: curves, rates and subgroups.

    With `holder` it also has numbers without noise, which only the holder of the rows may see.
    """
    found = plain["evaluation"]
    exact: dict[str, Any] = {}
    if holder:
        exact = found.get("exact") or {}
    rows = f"{read_finite_number(found['rows']):,.0f}"
    epsilon = ceil_text(Statement.from_dict(found["privacy"]).epsilon)
    if "classes" in found:
        return QualitySection(
            rows,
            epsilon,
            accuracy=_estimate_text(found["accuracy"], format_percentage),
            table=_class_rates_table(found, exact),
            confusion=_class_confusion_table(found),
            several=True,
        )
    if "auc" not in found:
        return QualitySection(rows, epsilon, table=_error_table(found, exact))
    subgroups = None
    if found.get("by"):
        subgroups = _lay_out_subgroups(found["by"])
    return QualitySection(
        rows,
        epsilon,
        roc=_roc_curve_plot(found),
        calibration=_calibration_plot(found),
        measures=_quality_measures(found, exact),
        exact=bool(exact),
        confusion=_confusion_table(found),
        subgroups=subgroups,
    )
