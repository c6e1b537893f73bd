"""The frame of every page that the package writes: one file, nothing from outside, for phones and desks."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from html import escape
from importlib.metadata import version

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


def versions(*libraries: str) -> str:
    """Versions of the package, of these libraries and of Python."""
    parts = [f"{name} {version(name)}" for name in ("sottovoce", *libraries)]
    return ", ".join([*parts, f"Python {platform.python_version()}"])
