"""The forest plot of coefficients as an SVG file: ``sottovoce report --plot``.

Positions are in pixels of the drawing; templates/forest.svg draws the rows that are laid out here.
"""

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
"""Width of the picture, and positions of the two ends of its axis, in pixels."""
_TOP, _ROW = 8, 22
"""Top of the first row, and height of a row, in pixels; templates/forest.svg repeats the height."""
_MARGIN, _INDENT = 8, 24
"""Where the names of columns begin, and those of levels, in pixels."""
_LONGEST_NAME = 32
"""Characters of a name that fit between the margin and the axis."""


@dataclass(frozen=True)
class PictureRow:
    """A row of the picture: its name and an interval.

    The interval has a dot at the estimate, or an arrow where one end is not known.
    """

    top: int
    kind: str
    """``column`` (the name alone), ``reference``, ``refused`` or ``interval``."""
    name: str
    indent: int
    css: str = ""
    """Class ``c`` if the interval excludes zero, ``k`` if not; empty without an interval."""
    text: str = ""
    """Estimate and interval, as text at the right."""
    span: tuple[str, str] | None = None
    """The two ends of the interval; an unknown one is the edge of the axis."""
    dot: str | None = None
    arrow: int = 0
    """How far the arrow's head reaches to the right: 8, -8, or 0 without an arrow."""


def picture(plain: dict[str, Any]) -> str:
    """Render the forest plot of a run's record as one SVG file, for slides and papers.

    Raises InvalidInput if the record has no intervals.
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
            label=axis.label,
        )


def _lay_out_rows(lines: list[dict[str, Any]], axis: Axis) -> list[PictureRow]:
    """Lay out the rows of all columns from top to bottom."""
    rows: list[PictureRow] = []

    def top() -> int:
        """Return the top of the next row."""
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
    """Lay out one line: its text, and its interval on the axis.

    `top` and `indent` are in pixels.
    """
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
    """Return a name of at most `_LONGEST_NAME` characters."""
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 1]}…"
