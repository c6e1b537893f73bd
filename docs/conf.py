"""Sphinx configuration; ``scripts/docs`` builds."""

import re
import tomllib
from importlib.metadata import version as installed
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.writers.html5 import HTML5Translator

ROOT = Path(__file__).parents[1]

project = "sottovoce"
author = "the sottovoce contributors"
release = version = installed("sottovoce")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"sottovoce {release}"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_math_renderer = "mathml"  # written while building: pages ask nobody for a script

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3  # pages link to each other's headings

napoleon_google_docstring = False
napoleon_custom_sections = ["Guarantee"]
napoleon_use_param = False  # keeps "Other Parameters" a group of its own
toc_object_entries = False  # thousands of entries, which every page's menu would copy
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the numpy docstrings name the types


MOVED = {
    "howto": "curved studies extend",
    "reference": "data estimator answers ledger files",
    "explanation": "architecture sharp_edges choosing accuracy audit design_tools "
    "papers "
    "methods/aggregation",
    "privacy": "methods/centring methods/sums explanation/centring explanation/sums",
    "measured": "results speed",
    "measured/papers": " ".join(f"papers/{number:03d}" for number in range(5)),
}
"""Pages that have moved to a shelf; their old addresses lead on."""


def add_menu(app: Sphinx, page: str, source: list[str]) -> None:
    """Give the first page the menu of contents.toml, which a forge would show as code."""
    if page == "index":
        shelves = tomllib.loads((ROOT / "docs" / "contents.toml").read_text(encoding="utf-8"))
        for shelf in shelves["shelf"]:
            pages = "\n".join(shelf["pages"])
            source[0] += (
                f"\n```{{toctree}}\n:caption: {shelf['caption']}\n:maxdepth: 1\n:hidden:\n\n"
                f"{pages}\n```\n"
            )


def mathml(tex: str, display: str) -> str:
    """A formula as MathML; one with a command that the converter does not know ends the build."""
    made = convert(tex.replace(r"\arg", r"\operatorname{arg}"), display=display)
    if unknown := re.search(r"\\\w+", made):
        raise ExtensionError(
            f"{unknown[0]}: is not known to latex2mathml; write it in another way in {tex!r}"
        )
    return str(made)


def visit_math(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def visit_displayed(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{mathml(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def lead_on(app: Sphinx, error: Exception | None) -> None:
    """A page at each old address that leads to the new one, anchors included."""
    if error or app.builder.format != "html":
        return
    moved = {
        old: f"{shelf}/{old.rsplit('/', 1)[-1]}"
        for shelf, names in MOVED.items()
        for old in names.split()
    }
    guides = "add_a_loss add_a_method add_a_release add_a_trust add_an_answer"
    moved |= dict.fromkeys(guides.split(), "howto/extend")
    moved |= dict.fromkeys([f"howto/{guide}" for guide in guides.split()], "howto/extend")
    moved |= {
        "howto/plug_in": "howto/extend",
        "audit_one_run": "explanation/audit",
        "explanation/audit_one_run": "explanation/audit",
        "deploy/transport": "howto/extend",
        "tutorial": "tutorial/first_study",
        "reference": "reference/api",
        "methods/index": "reference/methods",
        "privacy/curved": "howto/curved",
        "methods/momentum": "privacy/correlated_noise",
        "explanation/momentum": "privacy/correlated_noise",
        "start": "howto/choose_numbers",
        "howto/start": "howto/choose_numbers",
        "howto/from_datashield": "howto/coming_from",
        "howto/from_diffprivlib": "howto/coming_from",
        "howto/from_flower": "howto/coming_from",
    }
    for old, new in moved.items():
        if not (Path(app.outdir) / f"{new}.html").is_file():
            raise ExtensionError(
                f"{new}: is no page, and {old} leads there; see MOVED in docs/conf.py"
            )
        page = Path(app.outdir) / f"{old}.html"
        to = "../" * old.count("/") + f"{new}.html"
        page.parent.mkdir(exist_ok=True)
        page.write_text(
            '<!doctype html><meta charset="utf-8"><title>Moved</title>'
            f'<meta http-equiv="refresh" content="0; url={to}">'
            f'<script>location.replace("{to}" + location.hash)</script><a href="{to}">This page '
            "has moved.</a>\n",
            encoding="utf-8",
        )


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", add_menu)
    app.connect("build-finished", lead_on)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
