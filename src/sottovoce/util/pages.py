"""HTML pages: one file, nothing from outside, for phones and desks.

A plot over names is one row of HTML a name and an SVG with positions in percent of its width: names wrap, text keeps
its size on a phone, and a screen reader reads the rows.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
:root{color-scheme:light dark;--page:#fff;--ink:#1b1f24;--soft:#59626c;--line:#d5dae0;--band:#f4f6f8;--blue:#0072b2;
--red:#c44f00;--green:#00805c;--mark:#1b1f24}
@media (prefers-color-scheme:dark){:root{--page:#14171a;--ink:#e7eaed;--soft:#a3adb7;--line:#3a4149;--band:#1d2227;
--blue:#56b4e9;--red:#f08a4b;--green:#2fc49a;--mark:#e7eaed}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:60rem;margin:0 auto;padding:1rem 1rem 4rem}
h1{font-size:1.6rem;line-height:1.2;margin:.5rem 0}h2{font-size:1.2rem;margin:2.2rem 0 .4rem}
h3{font-size:1rem;margin:1.2rem 0 .3rem}
a{color:var(--blue)}
p{margin:.5rem 0;max-width:46rem}.lead{font-size:1.15rem}.soft,figcaption{color:var(--soft);font-size:.875rem}
code,pre{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:.875rem}
pre{background:var(--band);padding:.6rem .8rem;border-radius:.3rem;white-space:pre-wrap;overflow-wrap:anywhere}
figure{margin:1rem 0}
.box{overflow-x:auto;margin:.6rem 0}
table{border-collapse:collapse;font-size:.875rem}th,td{padding:.3rem .7rem .3rem 0;text-align:left;vertical-align:top;
border-bottom:1px solid var(--line)}th{white-space:nowrap}td.n,th.n{
text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
td.w{white-space:nowrap}
dl{margin:.5rem 0;max-width:46rem}dt{font-weight:600;margin-top:.6rem}dd{margin:0}
"""

PLOTS = """
.row{display:grid;grid-template-columns:9.5rem 1fr;align-items:center;gap:.5rem;font-size:.875rem;line-height:1.1}
.row:nth-child(odd){background:var(--band)}.row.axis{background:none;color:var(--soft)}
.row svg{display:block;width:100%;height:24px;overflow:visible}.row.axis svg{height:40px}
@media (min-width:40rem){.row{grid-template-columns:12.5rem 1fr}}
.row svg.at{width:1px;height:1px}
.plot{padding-right:1rem}
.key{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;font-size:.875rem;margin:.3rem 0 .6rem}
.key svg{width:26px;height:14px;vertical-align:-2px;overflow:visible}
.pair{display:flex;flex-wrap:wrap;gap:1rem 2rem}.pair>div{flex:1 1 18rem;max-width:26rem;min-width:0}
.square{display:block;width:100%;height:auto}
text{fill:var(--soft);font-size:12px;font-family:inherit}
.grid{stroke:var(--line);stroke-width:1}.claim{stroke:var(--mark);stroke-width:2.5}
.blue{--c:var(--blue)}.red{--c:var(--red)}.green{--c:var(--green)}.mark{--c:var(--mark)}
.dot{fill:var(--c)}.ring{fill:var(--page);stroke:var(--c);stroke-width:2}.reach{stroke:var(--c);stroke-width:2;opacity:.55}
.bar{fill:var(--c);opacity:.55}.curve{fill:none;stroke:var(--c);stroke-width:2}.wide{stroke-width:5;opacity:.45}
.dash{stroke-dasharray:7 4}.dots{stroke-dasharray:2 4}
"""
"""CSS of the plots below, for `style` of :func:`frame`."""


def frame(title: str, body: Iterable[str], style: str = "") -> str:
    """A whole page; `body` is HTML, `title` plain text, `style` what this page adds."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{STYLE}{style}</style></head>\n<body><main>\n" + "\n".join(body) + "\n</main></body></html>\n"
    )


def table(head: Sequence[tuple[str, str]], rows: Iterable[str]) -> str:
    """A table in a box that scrolls by itself: (text, class) of every column, and rows as HTML."""
    cells = "".join(f'<th class="{css}">{text}</th>' for text, css in head)
    return f'<div class="box"><table><thead><tr>{cells}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def plot_row(name: str, marks: str, css: str = "", more: str = "") -> str:
    """A row of a plot: `name` and `more` are HTML, `marks` SVG."""
    return f'<div class="row{css}"><span>{name}</span><svg role="img">{marks}</svg>{more}</div>'


def axis_row(ticks: Iterable[tuple[str, str]], label: str) -> str:
    """The last row of a plot: (place, text) of every tick, and what the axis is."""
    texts = "".join(f'<text x="{x}" y="12" text-anchor="middle">{text}</text>' for x, text in ticks)
    return plot_row("", f'{texts}<text x="50%" y="32" text-anchor="middle">{label}</text>', " axis")


def lines_at(places: Iterable[str], height: str = "100%") -> str:
    """Vertical lines of a row's grid."""
    return "".join(f'<line class="grid" x1="{x}" x2="{x}" y1="0" y2="{height}"/>' for x in places)


def key(entries: Iterable[tuple[str, str]]) -> str:
    """A legend: (mark, 26 by 14; text) of each entry."""
    return '<div class="key">' + "".join(f"<span><svg>{mark}</svg> {text}</span>" for mark, text in entries) + "</div>"


def place(x: float, y: float) -> tuple[float, float]:
    """Coordinates in :func:`square` of a point of the unit square."""
    return 40 + 300 * x, 310 - 300 * y


def path(xs: Iterable[float], ys: Iterable[float]) -> str:
    """The ``d`` of a line through points of the unit square."""
    points = (place(x, y) for x, y in zip(xs, ys, strict=True))
    return "M" + " ".join(f"{x:.1f} {y:.1f}" for x, y in points)


def square(title: str, marks: str, x: str, y: str, about: str = "") -> str:
    """A plot of percentages against percentages; `marks` are SVG, all else HTML text, `about` is for screen readers."""
    ticks = "".join(
        f'<line class="grid" x1="{40 + 300 * t}" x2="{40 + 300 * t}" y1="10" y2="310"/>'
        f'<line class="grid" x1="40" x2="340" y1="{310 - 300 * t}" y2="{310 - 300 * t}"/>'
        f'<text x="{40 + 300 * t}" y="326" text-anchor="middle">{100 * t:g}</text>'
        f'<text x="34" y="{314 - 300 * t}" text-anchor="end">{100 * t:g}</text>'
        for t in (0.0, 0.25, 0.5, 0.75, 1.0)
    )
    description = f"<desc>{about}</desc>" if about else ""
    return (
        f'<svg class="square" viewBox="0 0 350 348" role="img"><title>{title}</title>{description}{ticks}{marks}'
        f'<text x="190" y="343" text-anchor="middle">{x}</text>'
        f'<text x="10" y="160" text-anchor="middle" transform="rotate(-90 10 160)">{y}</text></svg>'
    )


def versions(*libraries: str) -> str:
    """Versions of the package, of these libraries and of Python."""
    from importlib.metadata import version  # which takes longer to load than a page to write

    parts = [f"{name} {version(name)}" for name in ("sottovoce", *libraries)]
    return ", ".join([*parts, f"Python {platform.python_version()}"])
