"""The forest plot of coefficients as an SVG file."""

from __future__ import annotations

from dataclasses import dataclass

from ..util.pages import render_template
from ..util.typing import Any
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
    scaled_interval,
)
from .plain import refusing_foreign_documents

_WIDTH, _LEFT, _RIGHT = 720, 230, 560
"""Of the picture and of the two ends of its axis, in pixels."""
_TOP, _ROW = 8, 22
_MARGIN, _INDENT = 8, 24
"""Where the names of columns begin, and those of levels."""
_LONGEST_NAME = 32


@dataclass(frozen=True)
class PictureRow:
    """A row of the picture: its name and an interval.

    The interval has a dot at the estimate, or an arrow where one end is not known.
    """

    top: int
    kind: str
    """``column`` (the name alone), ``reference``, ``refused`` or ``interval_text``."""
    name: str
    indent: int
    css: str = ""
    text: str = ""
    span: tuple[str, str] | None = None
    dot: str | None = None
    arrow: int = 0
    """How far the arrow's head reaches to the right."""


def picture(plain: dict[str, Any]) -> str:
    """Render a run's forest plot as one SVG file, for slides and papers.

    InvalidInput if `plain` has no intervals.
    """
    with refusing_foreign_documents():
        kept = [line for line in plain["coefficients"] if line["name"] != CONSTANT]
        axis = make_axis(kept)
        rows = _lay_out_rows(kept, axis)
        return render_template(
            "forest.svg",
            width=_WIDTH,
            bottom=_TOP + _ROW * len(rows),
            rows=rows,
            base=_pixel_of_value(axis, 0.0),
            ticks=[(_pixel_of_place(place), text) for place, text in axis.ticks()],
            middle_of_axis=(_LEFT + _RIGHT) / 2,
            label="odds ratio (logarithmic)" if axis.odds else "coefficient",
        )


def _lay_out_rows(lines: list[dict[str, Any]], axis: Axis) -> list[PictureRow]:
    """Lay out the rows of all columns from top to bottom."""
    rows: list[PictureRow] = []

    def top() -> int:
        return _TOP + _ROW * len(rows)

    for group in groups(lines):
        has_levels = group.lines[0]["level"] is not None
        indent = _MARGIN
        if has_levels:
            indent = _INDENT
            rows.append(PictureRow(top(), "column", _shorten_name(group.name), _MARGIN))
        if group.reference is not None:
            rows.append(PictureRow(top(), "reference", _shorten_name(group.reference), _INDENT))
        for line in group.lines:
            if has_levels:
                name = str(line["level"])
            else:
                name = f"{line['name']} ({compared(line)})"
            rows.append(_lay_out_row(line, axis, top(), _shorten_name(name), indent))
    return rows


def _lay_out_row(line: dict[str, Any], axis: Axis, top: int, name: str, indent: int) -> PictureRow:
    """Lay out one line; its CSS class is ``c`` if the interval excludes zero, else ``k``."""
    dot: str | None = None
    arrow = 0
    if (found := one_end(line)) is not None:
        end, side = found
        text = one_sided_interval_text(line, axis.odds)
        # The unknown end is an arrow at the edge of the axis.
        edge = axis.high if side > 0 else axis.low
        span = (_pixel_of_value(axis, end), _pixel_of_value(axis, edge))
        arrow = 8 * side
        clear = end * side > 0.0
    elif line.get("refused") is not None:
        return PictureRow(top, "refused", name, indent)
    else:
        low, mid, high = scaled_interval(line)
        text = interval_text(low, mid, high, axis.odds) + question_mark_text(line)
        span = (_pixel_of_value(axis, low), _pixel_of_value(axis, high))
        dot = _pixel_of_value(axis, mid)
        clear = low > 0 or high < 0
    css = "c" if clear else "k"
    return PictureRow(top, "interval", name, indent, css, text, span, dot=dot, arrow=arrow)


def _pixel_of_value(axis: Axis, x: float) -> str:
    """Return the pixel, from the left, at a value on the axis."""
    return _pixel_of_place(axis.at(x))


def _pixel_of_place(place: str) -> str:
    """Return the pixel, from the left, at a place in percent of the axis."""
    return f"{_LEFT + float(place.rstrip('%')) / 100.0 * (_RIGHT - _LEFT):.1f}"


def _shorten_name(name: str) -> str:
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 1]}…"
