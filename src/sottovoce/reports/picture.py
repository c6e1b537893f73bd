"""The forest plot of coefficients as an SVG file."""

from __future__ import annotations

from dataclasses import dataclass

from ..util.pages import render
from ..util.typing import Any
from .coefficients import (
    CONSTANT,
    Axis,
    axis_of,
    compared,
    end_text,
    groups,
    interval,
    mark,
    one_end,
    scaled,
)
from .plain import of_anybody

_WIDTH, _LEFT, _RIGHT = 720, 230, 560
"""Of the picture and of the two ends of its axis, in pixels."""
_TOP, _ROW = 8, 22
_MARGIN, _INDENT = 8, 24
"""Where the names of columns begin, and those of levels."""
_LONGEST_NAME = 32


@dataclass(frozen=True)
class PictureRow:
    """A row of the picture: its name, and an interval with a dot, or with an arrow where one end
    is not known.
    """

    top: int
    kind: str
    """``column`` (the name alone), ``reference``, ``refused`` or ``interval``."""
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
    with of_anybody():
        kept = [line for line in plain["coefficients"] if line["name"] != CONSTANT]
        axis = axis_of(kept)
        rows = _rows(kept, axis)
        return render(
            "forest.svg",
            width=_WIDTH,
            bottom=_TOP + _ROW * len(rows),
            rows=rows,
            base=_across(axis, 0.0),
            ticks=[(_of_axis(place), text) for place, text in axis.ticks()],
            middle_of_axis=(_LEFT + _RIGHT) / 2,
            label="odds ratio (logarithmic)" if axis.odds else "coefficient",
        )


def _rows(lines: list[dict[str, Any]], axis: Axis) -> list[PictureRow]:
    rows: list[PictureRow] = []

    def top() -> int:
        return _TOP + _ROW * len(rows)

    for group in groups(lines):
        has_levels = group.lines[0]["level"] is not None
        if has_levels:
            rows.append(PictureRow(top(), "column", _short(group.name), _MARGIN))
        if group.reference is not None:
            rows.append(PictureRow(top(), "reference", _short(group.reference), _INDENT))
        for line in group.lines:
            name = str(line["level"]) if has_levels else f"{line['name']} ({compared(line)})"
            rows.append(_row(line, axis, top(), _short(name), _INDENT if has_levels else _MARGIN))
    return rows


def _row(line: dict[str, Any], axis: Axis, top: int, name: str, indent: int) -> PictureRow:
    if (found := one_end(line)) is not None:
        end, side = found
        span = (_across(axis, end), _across(axis, axis.high if side > 0 else axis.low))
        css = "c" if end * side > 0.0 else "k"
        return PictureRow(
            top, "interval", name, indent, css, end_text(line, axis.odds), span, arrow=8 * side
        )
    if line.get("refused") is not None:
        return PictureRow(top, "refused", name, indent)
    low, mid, high = scaled(line)
    css = "c" if low > 0 or high < 0 else "k"
    text = interval(low, mid, high, axis.odds) + mark(line)
    span = (_across(axis, low), _across(axis, high))
    return PictureRow(top, "interval", name, indent, css, text, span, dot=_across(axis, mid))


def _across(axis: Axis, x: float) -> str:
    return _of_axis(axis.at(x))


def _of_axis(place: str) -> str:
    """The pixel at a place that is given in percent of the axis."""
    return f"{_LEFT + float(place.rstrip('%')) / 100.0 * (_RIGHT - _LEFT):.1f}"


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
