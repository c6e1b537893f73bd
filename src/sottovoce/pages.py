"""The frame of every page that the library writes: one file, complete in itself, light and dark."""

from __future__ import annotations

from collections.abc import Iterable
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
p{margin:.5rem 0;max-width:46rem}.lead{font-size:1.15rem}.soft,figcaption{color:var(--soft);font-size:.875rem}
code,pre{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:.875rem}
pre{background:var(--band);padding:.6rem .8rem;border-radius:.3rem;white-space:pre-wrap;overflow-wrap:anywhere}
figure{margin:1rem 0}
.row{display:grid;grid-template-columns:9.5rem 1fr;align-items:center;gap:.5rem;font-size:.875rem;line-height:1.1}
.row:nth-child(odd){background:var(--band)}.row.axis{background:none;color:var(--soft)}
.row svg{display:block;width:100%;height:24px;overflow:visible}.row.axis svg{height:40px}
@media (min-width:40rem){.row{grid-template-columns:12.5rem 1fr}}
.row svg.at{width:1px;height:1px}
.plot{padding-right:1rem}
.key{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;font-size:.875rem;margin:.3rem 0 .6rem}
.key svg{width:26px;height:14px;vertical-align:-2px;overflow:visible}
.pair{display:flex;flex-wrap:wrap;gap:1rem 2rem}.pair>div{flex:1 1 18rem;max-width:26rem;min-width:0}
.roc{display:block;width:100%;height:auto}
text{fill:var(--soft);font-size:12px;font-family:inherit}
.grid{stroke:var(--line);stroke-width:1}.claim{stroke:var(--mark);stroke-width:2.5}
.blue{--c:var(--blue)}.red{--c:var(--red)}.green{--c:var(--green)}.mark{--c:var(--mark)}
.dot{fill:var(--c)}.ring{fill:var(--page);stroke:var(--c);stroke-width:2}.reach{stroke:var(--c);stroke-width:2;opacity:.55}
.bar{fill:var(--c);opacity:.55}.curve{fill:none;stroke:var(--c);stroke-width:2}.wide{stroke-width:5;opacity:.45}
.dash{stroke-dasharray:7 4}.dots{stroke-dasharray:2 4}
.box{overflow-x:auto;margin:.6rem 0}
table{border-collapse:collapse;font-size:.875rem}th,td{padding:.3rem .7rem .3rem 0;text-align:left;vertical-align:top;
border-bottom:1px solid var(--line)}th{white-space:nowrap}td.n,th.n{
text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
td.why{min-width:44rem}td.w{white-space:nowrap}.refuted{color:var(--red);font-weight:600}
dl{margin:.5rem 0;max-width:46rem}dt{font-weight:600;margin-top:.6rem}dd{margin:0}
"""


def frame(title: str, body: Iterable[str]) -> str:
    """A whole page.

    Parameters
    ----------
    title : str
        Without markup.
    body : iterable of str
        HTML, one block an entry.
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head>\n<body><main>\n" + "\n".join(body) + "\n</main></body></html>\n"
    )
