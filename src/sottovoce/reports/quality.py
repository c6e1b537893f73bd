"""Quality of a model: curves, rates and subgroups."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from ..privacy.statement import Statement, ceil_text
from ..util.pages import axis_row, lines_at, path, place, plot_row, square, table
from ..util.typing import Any
from .coefficients import Axis
from .plain import finite, percent

_MEASURES = {
    "auc": "area under the ROC curve", "brier": "Brier score", "positives": "share of positives",
}  # fmt: skip


# How good it is


_ERRORS = {
    "r2": "R2: share of the spread that is explained", "mean_absolute_error": "mean absolute error",
    "root_mean_squared_error": "root mean squared error", "mean_target": "mean of the number",
}  # fmt: skip


def _estimate(plain: dict[str, Any], shown: Any = lambda x: f"{x:.3f}") -> str:
    if plain["value"] is None:
        return "<i>refused</i>"
    value, low, high = (shown(finite(plain[name])) for name in ("value", "low", "high"))
    return f"{value} ({low.rstrip('%')} to {high.rstrip('%')})"


def _two(x: float) -> str:
    return f"{x:.2f}"


def _roc(found: dict[str, Any]) -> str:
    points = [(finite(x), finite(y)) for x, y in found["roc"]]
    path_ = path((x for x, _ in points), (y for _, y in points))
    marks = f'<path class="curve mark dots" d="{path([0, 1], [0, 1])}"/><path class="curve blue" d="{path_}"/>'
    for x, y in points[1:-1]:
        across, down = place(x, y)
        marks += f'<circle class="dot blue" cx="{across:.1f}" cy="{down:.1f}" r="3"/>'
    about = "; ".join(f"{percent(y, 0)} of positives at {percent(x, 0)} of negatives" for x, y in points[1:-1])
    plot = square("ROC curve", marks, "negatives called positive (%)", "positives found (%)", about)
    area = found["auc"]
    said = f"Area {_estimate(area)}" if area["value"] is not None else f"Area refused: {escape(str(area['refused']))}"
    return (
        f"<div><h3>Does it tell them apart?</h3>{plot}<p>{said}. It is the chance that a positive row gets a higher "
        "probability than a negative one: 0.5 is guessing, the dotted line.</p></div>"
    )


RECALIBRATION = {
    "calibration_slope_interval": ("calibration slope", "1 is best, below 1 is too sure of itself"),
    "calibration_intercept": ("calibration intercept", "of the line with that slope, in log-odds; 0 is best"),
    "calibration_in_the_large": ("calibration in the large", "log-odds to be added to the model's; 0 is best"),
    "observed_expected": ("O/E", "positives over those that the model expects; 1 is best"),
}
"""What evaluations tell of the label's log-odds as a line in the model's: name, and how to read it."""


def cell_text(cell: dict[str, Any]) -> str:
    """The model's probabilities in a cell of the calibration: their mean, or beyond what they are in an open cell."""
    if cell["predicted"] is not None:
        return percent(finite(cell["predicted"]))
    if cell.get("above") is not None:
        return f"above {percent(finite(cell['above']))}"
    return f"below {percent(finite(cell['below']))}"


def _calibration(found: dict[str, Any]) -> str:
    marks, told = f'<path class="curve mark dots" d="{path([0, 1], [0, 1])}"/>', []
    for cell in found["calibration"]:
        y, low, high = (finite(cell[name]) for name in ("observed", "low", "high"))
        marks += _open_cell(cell, y, low, high) if cell["predicted"] is None else _cell(cell, y, low, high)
        told.append(f"given {cell_text(cell)}, {percent(y)} were positive ({percent(low)} to {percent(high)})")
    plot = square("Calibration", marks, "probability given (%)", "positive in fact (%)", "; ".join(told))
    return (
        f"<div><h3>Can its probabilities be believed?</h3>{plot}<p>Of rows given 30%, about 30% should be positive: "
        "dots on the dotted line. Lines are 95% intervals; bars are of all rows with less or more than the bar's end. "
        f"{_slope(found)}</p></div>"
    )


def _cell(cell: dict[str, Any], y: float, low: float, high: float) -> str:
    """A dot at the mean probability of a cell, with its interval."""
    (across, down), (_, bottom), (_, top) = (place(finite(cell["predicted"]), one) for one in (y, low, high))
    return (
        f'<line class="span blue" x1="{across:.1f}" x2="{across:.1f}" y1="{bottom:.1f}" y2="{top:.1f}"/>'
        f'<circle class="dot blue" cx="{across:.1f}" cy="{down:.1f}" r="4.5"/>'
    )


def _open_cell(cell: dict[str, Any], y: float, low: float, high: float) -> str:
    """A bar over all probabilities of an open cell, with the interval at its middle."""
    start = 0.0 if cell.get("above") is None else finite(cell["above"])
    end = 1.0 if cell.get("below") is None else finite(cell["below"])
    (left, down), (right, _) = place(start, y), place(end, y)
    (across, bottom), (_, top) = place(0.5 * (start + end), low), place(0.5 * (start + end), high)
    return (
        f'<line class="span blue" x1="{left:.1f}" x2="{right:.1f}" y1="{down:.1f}" y2="{down:.1f}"/>'
        f'<line class="span blue" x1="{across:.1f}" x2="{across:.1f}" y1="{bottom:.1f}" y2="{top:.1f}"/>'
    )


def _slope(found: dict[str, Any]) -> str:
    """What is said of the calibration slope."""
    told = found["calibration_slope_interval"]
    if told["value"] is None:
        return f"Calibration slope refused: {escape(str(told['refused']))}."
    text = _estimate(told, _two)
    return f"Calibration slope {text}; 1 is best, below 1 is too sure of itself."


def _measures(found: dict[str, Any], holder: bool) -> str:
    cut = f"{100.0 * finite(found['threshold']):g}%"
    exact = found.get("exact") or {} if holder else {}
    lines = {key: found[key] for key in RECALIBRATION}
    every = {"auc": found["auc"], "brier": found["brier"], "positives": found["positives"], **lines, **found["rates"]}
    about = {
        "brier": "mean squared error of the probabilities; 0 is best", "positives": "in all held-out rows",
        "accuracy": "rows called rightly" + _alike(found["positives"]), "sensitivity": "positives that are found",
        "specificity": "negatives that are left alone", "precision": "positives among those called positive",
        "auc": "pairs that are ordered rightly", **{key: said for key, (_, said) in RECALIBRATION.items()},
    }  # fmt: skip
    names = _MEASURES | {key: name for key, (name, _) in RECALIBRATION.items()}
    rows = []
    for name, estimate in every.items():
        text = _estimate(estimate) if name in ("auc", "brier", *RECALIBRATION) else _estimate(estimate, percent)
        beside = f'<td class="n">{finite(exact[name]):.4f}</td>' if name in exact else "<td></td>" if exact else ""
        at = f" at {cut}" if name in found["rates"] else ""
        said = f'{escape(names.get(name, name))}{at}<br><span class="small">{escape(about.get(name, ""))}</span>'
        rows.append(f'<tr><td>{said}</td><td class="n">{text}</td>{beside}</tr>')
    return table(_heads(exact), rows)


def _alike(positives: dict[str, Any]) -> str:
    """The accuracy of calling all rows alike."""
    share = positives["value"]
    return "" if share is None else f"; calling all rows alike: {percent(max(finite(share), 1.0 - share))}"


def _confusion(found: dict[str, Any]) -> str:
    c = {name: f'<td class="n">{finite(value):,.0f}</td>' for name, value in found["confusion"].items()}
    cut = f"{100.0 * finite(found['threshold']):g}%"
    rows = [
        f"<tr><td>called positive</td>{c['true_positive']}{c['false_positive']}</tr>",
        f"<tr><td>called negative</td>{c['false_negative']}{c['true_negative']}</tr>",
    ]
    head = [(f"from {cut} on a row is called positive", ""), ("positive in fact", "n"), ("negative in fact", "n")]
    note = "Counts carry noise: they do not add up to the number of rows."
    return f'<h3>Rows, right and wrong</h3>{table(head, rows)}<p class="small">{note}</p>'


def _subgroups(by: dict[str, Any]) -> str:
    rows, marks = [], []
    axis = Axis(0.4, 1.0, False)
    ticks = [(axis.at(x), f"{x:g}") for x in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)]
    back = lines_at(x for x, _ in ticks)
    for name, one in by.items():
        area = one["auc"]
        if area["value"] is None:
            about, drawn, said = "refused", back, "<i>refused</i>"
        else:
            low, mid, high = (finite(area[x]) for x in ("low", "value", "high"))
            about = said = _estimate(area)
            drawn = (
                f'{back}<line class="span blue" x1="{axis.at(low)}" x2="{axis.at(high)}" y1="12" y2="12"/>'
                f'<circle class="dot blue" cx="{axis.at(mid)}" cy="12" r="5"/>'
            )
        title = f"<title>{escape(name)}: {about}</title>"
        marks.append(plot_row(escape(name), title + drawn, "", f'<span class="num">{said}</span>'))
        numbers = [f"{finite(one['rows']):,.0f}", _estimate(one["positives"], percent)]
        numbers += [_estimate(one["rates"][rate], percent) for rate in ("sensitivity", "specificity", "precision")]
        numbers += [_estimate(one[key], _two) for key in RECALIBRATION]
        rows.append(f"<tr><td>{escape(name)}</td>" + "".join(f'<td class="n">{x}</td>' for x in numbers) + "</tr>")
    heads = ["rows, about", "share of positives", "sensitivity", "specificity", "precision"]
    heads += [name for name, _ in RECALIBRATION.values()]
    return (
        f'<h3>In subgroups</h3><figure><div class="plot forest">{"".join(marks)}'
        f"{axis_row(ticks, 'area under the ROC curve')}</div></figure>"
        f"{table([('', ''), *((head, 'n') for head in heads)], rows)}"
    )


def _errors(found: dict[str, Any], holder: bool) -> str:
    """Of a number."""
    unit, exact = str(found.get("unit") or ""), found.get("exact") or {} if holder else {}
    rows = []
    for name, text in _ERRORS.items():
        beside = f'<td class="n">{finite(exact[name]):.4f}</td>' if name in exact else "<td></td>" if exact else ""
        label = text if name == "r2" or not unit else f"{text} ({unit})"
        shown = _estimate(found[name], lambda x: f"{x:.4g}")
        rows.append(f'<tr><td>{escape(label)}</td><td class="n">{shown}</td>{beside}</tr>')
    return table(_heads(exact), rows)


def _classes(found: dict[str, Any], holder: bool) -> Iterator[str]:
    """Of several classes."""
    exact, rows = found.get("exact") or {} if holder else {}, []
    for one in found["classes"]:
        name = str(one["name"])
        cells = [_estimate(one[key], percent) for key in ("share", "recall", "precision")]
        cells += [f"{finite(exact[f'recall on {name}']):.4f}"] if exact else []
        rows.append(f"<tr><td>{escape(name)}</td>" + "".join(f'<td class="n">{x}</td>' for x in cells) + "</tr>")
    yield f"<p>Accuracy {_estimate(found['accuracy'], percent)}: rows that are answered rightly.</p>"
    heads = ["share of rows", "found (recall)", "answers that are right (precision)"]
    heads += ["recall, without noise: for the holder only"] if exact else []
    yield table([("class", ""), *((head, "n") for head in heads)], rows)
    names = [escape(str(one["name"])) for one in found["classes"]]
    lines = [
        f"<tr><td>{name}</td>" + "".join(f'<td class="n">{finite(x):,.0f}</td>' for x in line) + "</tr>"
        for name, line in zip(names, found["confusion"], strict=True)
    ]
    answers = [(f"answered {name}", "n") for name in names]
    note = "Counts carry noise: they do not add up to the number of rows."
    yield f'<h3>Rows, right and wrong</h3>{table([("class in fact", ""), *answers], lines)}<p class="small">{note}</p>'


def _heads(exact: dict[str, Any]) -> list[tuple[str, str]]:
    return [("", ""), ("with 95% interval", "n"), *([("without noise: for the holder only", "n")] if exact else [])]


def quality(plain: dict[str, Any], holder: bool) -> Iterator[str]:
    """A page's section: curves, rates and subgroups; with `holder` also numbers without noise."""
    found = plain["evaluation"]
    privacy = Statement.from_dict(found["privacy"])
    yield "<h2>How good is it?</h2>"
    yield (
        f"<p>Asked of {finite(found['rows']):,.0f} rows that the model was not trained on, with epsilon "
        f"{ceil_text(privacy.epsilon)} of their own.</p>"
    )
    if "classes" in found:
        yield from _classes(found, holder)
        return
    if "auc" not in found:
        yield _errors(found, holder)
        return
    yield f'<figure><div class="pair">{_roc(found)}{_calibration(found)}</div></figure>'
    yield _measures(found, holder)
    yield _confusion(found)
    if found.get("by"):
        yield _subgroups(found["by"])
