"""The forest plot of coefficients as an SVG file."""

from __future__ import annotations

from html import escape

from ..util.typing import Any
from .coefficients import CONSTANT, Axis, axis_of, compared, end_text, groups, interval, mark, one_end, scaled
from .plain import of_anybody

_INK = """text{fill:#1b1f24;font:13px system-ui,sans-serif}.n{text-anchor:end}
.s{fill:#59626c;font-size:12px}.m{text-anchor:middle}
.g{stroke:#d5dae0}.b{stroke:#59626c;stroke-dasharray:3 3}.c{stroke:#0072b2;fill:#0072b2}.k{stroke:#1b1f24;fill:#1b1f24}
.i{stroke-width:2.5}.h{fill:none}.p{fill:#fff}
@media (prefers-color-scheme:dark){text{fill:#e7eaed}.s{fill:#a3adb7}
.g{stroke:#3a4149}.b{stroke:#a3adb7}.p{fill:#14171a}
.c{stroke:#56b4e9;fill:#56b4e9}.k{stroke:#e7eaed;fill:#e7eaed}}"""
_LINE, _LEFT, _RIGHT, _WIDE, _LONGEST = 22, 230, 560, 720, 32  # of the picture, in pixels; characters of a name


def picture(plain: dict[str, Any]) -> str:
    """A run's forest plot as one SVG file, for slides and papers; InvalidInput if `plain` has no intervals."""
    with of_anybody():
        kept = [line for line in plain["coefficients"] if line["name"] != CONSTANT]
        axis, rows, y = axis_of(kept), [], 8
        for group in groups(kept):
            level = group.lines[0]["level"] is not None
            if level:
                rows.append(_written(8, y, group.name))
                y += _LINE
            if group.reference is not None:
                at = _across(axis, 0.0)
                rows.append(_written(24, y, group.reference) + _written(_WIDE - 8, y, "reference", "n s"))
                rows.append(f'<circle class="k h" cx="{at:.1f}" cy="{y + 11}" r="4.5"/>')
                y += _LINE
            for line in group.lines:
                name = str(line["level"]) if level else f"{line['name']} ({compared(line)})"
                rows.append(_written(24 if level else 8, y, name) + _marks(line, axis, y))
                y += _LINE
        for x, text in axis.ticks():
            at = _LEFT + float(x.rstrip("%")) / 100.0 * (_RIGHT - _LEFT)
            rows.insert(0, f'<line class="g" x1="{at:.1f}" x2="{at:.1f}" y1="8" y2="{y}"/>')
            rows.append(f'<text class="s m" x="{at:.1f}" y="{y + 15}">{text}</text>')
        at = _across(axis, 0.0)
        rows.insert(0, f'<line class="b" x1="{at:.1f}" x2="{at:.1f}" y1="8" y2="{y}"/>')
        label = "odds ratio (logarithmic)" if axis.odds else "coefficient"
        rows.append(f'<text class="s m" x="{(_LEFT + _RIGHT) / 2}" y="{y + 33}">{label}, 95% interval</text>')
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {y + 42}" role="img">'
            f"<title>Coefficients with 95% intervals</title><style>{_INK}</style>"
            f'<rect class="p" width="{_WIDE}" height="{y + 42}"/>\n' + "\n".join(rows) + "\n</svg>\n"
        )


def _across(axis: Axis, x: float) -> float:
    return _LEFT + float(axis.at(x).rstrip("%")) / 100.0 * (_RIGHT - _LEFT)


def _written(x: int, y: int, text: str, css: str = "") -> str:
    short = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return f'<text class="{css}" x="{x}" y="{y + 15}">{escape(short)}</text>'


def _marks(line: dict[str, Any], axis: Axis, y: int) -> str:
    if (found := one_end(line)) is not None:
        end, side = found
        a, c = _across(axis, end), _across(axis, axis.high if side > 0 else axis.low)
        css = "c" if end * side > 0.0 else "k"
        return (
            f'<line class="{css} i" x1="{a:.1f}" x2="{c:.1f}" y1="{y + 11}" y2="{y + 11}"/>'
            f'<path class="{css}" d="M{c:.1f} {y + 6}v10l{8 * side} -5z"/>'
            f'<text class="n" x="{_WIDE - 8}" y="{y + 15}">{end_text(line, axis.odds)}</text>'
        )
    if line.get("refused") is not None:
        return _written(_WIDE - 8, y, "refused", "n s")
    low, mid, high = scaled(line)
    a, b, c = (_across(axis, x) for x in (low, mid, high))
    css, said = "c" if low > 0 or high < 0 else "k", interval(low, mid, high, axis.odds)
    return (
        f'<line class="{css} i" x1="{a:.1f}" x2="{c:.1f}" y1="{y + 11}" y2="{y + 11}"/>'
        f'<circle class="{css}" cx="{b:.1f}" cy="{y + 11}" r="4.5"/>'
        f'<text class="n" x="{_WIDE - 8}" y="{y + 15}">{said}{mark(line)}</text>'
    )
