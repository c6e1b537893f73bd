"""Sphinx configuration; ``scripts/docs`` builds."""

import ast
import re
import sys
from collections import Counter
from importlib import import_module
from importlib.metadata import version as installed
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from check_imports import LAYER, LAYERS, graph

from sottovoce.algorithms import KNOBS, NAMES, REGISTRY, equal_methods, knobs_of, trusts_of
from sottovoce.problem.losses import REGISTRY as LOSSES

ROOT = Path(__file__).parents[1]

project = "sottovoce"
author = "the sottovoce contributors"
release = version = installed("sottovoce")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
PARTS = ("times", "words", "counts")  # of howto/studies.md, which includes them
exclude_patterns = ["_build", *(f"measured/papers/{part}.md" for part in PARTS)]
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
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the numpy docstrings name the types


MOVED = {
    "howto": "start curved studies extend add_a_loss add_a_method add_a_release add_a_trust "
    "add_an_answer",
    "reference": "data estimator answers ledger files",
    "explanation": "architecture sharp_edges choosing accuracy audit audit_one_run design_tools "
    "papers "
    "methods/centring methods/momentum methods/sums methods/aggregation",
    "measured": "results speed",
    "measured/papers": " ".join(f"papers/{number:03d}" for number in range(5)),
}
"""Pages that have moved to a shelf; their old addresses lead on."""


BLOCK = r"^```\{code-block\} (python|diff)\n:caption: (\S+)$"
"""A file or a change that a guide adds; tests/house/test_guides.py adds them."""


def table(*rows: tuple[str, ...]) -> str:
    """A Markdown table; the first row is its header."""
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


class Gallery(SphinxDirective):
    """Pictures, with the words and the code of the scripts under examples/gallery that draw
    them.
    """

    has_content = True

    def run(self) -> list[nodes.Node]:
        text = []
        for name in filter(None, self.content):
            title, words = parted(ROOT / "examples" / "gallery" / f"{name}.py")
            text.append(
                "## "
                f"{title}\n\n{words}\n\n![{title}]({name}.svg)\n\n<details><summary>{name}.py</summary>\n\n"
                f"```{{literalinclude}} ../../examples/gallery/{name}.py\n```\n\n</details>\n"
            )
        return self.parse_text_to_nodes("\n".join(text), allow_section_headings=True)


def parted(script: Path) -> tuple[str, str]:
    """A script's title, the first line of its docstring, and its words."""
    title, words = (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").split(
        "\n\n", 1
    )
    return title, words


class Layers(SphinxDirective):
    """The floors of the package from the top down: what each room knows, and what it imports."""

    def run(self) -> list[nodes.Node]:
        rows, imported = (
            [("floor", "room", "what it knows", "what it imports")],
            graph(ROOT / "src" / "sottovoce"),
        )
        for level, floor in reversed(list(enumerate(LAYERS))):
            for room, knows in floor.items():
                below = sorted(imported[room], key=lambda other: (-LAYER[other], other))
                rows.append(
                    (str(level), f"`{room}`", knows, ", ".join(f"`{other}`" for other in below))
                )
        return self.parse_text_to_nodes(table(*rows))


class Types(SphinxDirective):
    """A table of classes from lines ``module.Class: what it holds; what it does``; one that is
    gone fails the build.
    """

    has_content = True

    def run(self) -> list[nodes.Node]:
        rows = [("type", "in", "what it is")]
        for line in filter(None, self.content):
            path, words = line.split(": ", 1)
            module, name = path.rsplit(".", 1)
            getattr(import_module(f"sottovoce.{module}"), name)
            rows.append((f"`{name}`", f"`{module}`", words))
        return self.parse_text_to_nodes(table(*rows))


class Guides(SphinxDirective):
    """Guides from lines ``page: what is added | what it inherits``, with the files and places
    that each page adds.
    """

    has_content = True

    def run(self) -> list[nodes.Node]:
        rows = [("to add", "new files", "places in other files", "what it inherits")]
        for line in filter(None, self.content):
            page, words = line.split(": ", 1)
            what, inherits = words.split(" | ")
            blocks = re.findall(
                BLOCK, (ROOT / "docs" / "howto" / f"{page}.md").read_text(encoding="utf-8"), re.M
            )
            new = [f"`{file}`" for kind, file in blocks if kind == "python"]
            changed = Counter(file for kind, file in blocks if kind == "diff")
            places = [
                f"`{file}`" + (f" ({many})" if many > 1 else "") for file, many in changed.items()
            ]
            rows.append((f"[{what}]({page}.md)", ", ".join(new), ", ".join(places), inherits))
        return self.parse_text_to_nodes(table(*rows))


class Methods(SphinxDirective):
    """What each method says of itself, from the classes in the registry; its name leads to its
    section or page.
    """

    def run(self) -> list[nodes.Node]:
        rows = [("method", "after", "releases, noise", "trusts", "forms", "own knobs", "when")]
        for name in NAMES:
            cls = REGISTRY[name]
            page = (
                f"../explanation/{name}.md"
                if (ROOT / "docs" / "explanation" / f"{name}.md").exists()
                else f"#{name}"
            )
            trusts = [
                t if pair == name else f"{t} (`{pair}`)" for t, pair in trusts_of(name).items()
            ]
            same = [f"at the defaults the same as `{other}`" for other in equal_methods(name)]
            rows.append(
                (
                    f"[`{name}`]({page})",
                    cls.paper,
                    f"{cls.releases}; {cls.noise_law}",
                    ", ".join(trusts),
                    ", ".join(cls.forms),
                    ", ".join(f"`{knob}`" for knob in knobs_of(cls.options)),
                    "; ".join([cls.good_for, *same]),
                )
            )
        found = self.parse_text_to_nodes(table(*rows))
        for one in found:
            one["classes"].append("words")
        return found


class Knobs(SphinxDirective):
    """The methods' own knobs, from the fields that declare them."""

    def run(self) -> list[nodes.Node]:
        rows = [("knob", "what it is", "default", "must", "methods")]
        for name, knob in KNOBS.items():
            own = [f"`{method}`" for method in NAMES if name in knobs_of(REGISTRY[method].options)]
            where = ", ".join(own) + (f" ({knob.form})" if knob.form else "")
            default = (
                f"{knob.default:.4g}" if isinstance(knob.default, float) else repr(knob.default)
            )
            rows.append(
                (
                    f"`{name}`",
                    knob.about,
                    f"`{default}`",
                    f"be {knob.constraint.requirement_text}",
                    where,
                )
            )
        return self.parse_text_to_nodes(table(*rows))


class Losses(SphinxDirective):
    """The losses, from the classes that state their bounds."""

    def run(self) -> list[nodes.Node]:
        rows = [("loss", "what it is", "slopes", "curvature", "noise inside an objective")]
        for kind in LOSSES.values():
            loss = kind()
            most = f"{loss.derivative_bound:.4g}"
            slopes = (
                f"norm at most {most}"
                if loss.outputs > 1
                else f"{-loss.derivative_bound:.4g} to {0 if loss.monotone else most}"
            )
            curvature = f"at most {loss.curvature_bound:.4g}" + (
                ", jumps" if loss.curvature_jumps else ""
            )
            rows.append(
                (
                    f"`{loss.spec}`",
                    loss.about,
                    slopes,
                    curvature,
                    "refused" if loss.unproved_inside else "taken",
                )
            )
        return self.parse_text_to_nodes(table(*rows))


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
    moved |= {
        "tutorial": "tutorial/first_study",
        "reference": "reference/api",
        "methods/index": "reference/methods",
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


def setup(app: Sphinx) -> None:
    app.connect("build-finished", lead_on)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displayed, None))
    app.add_directive("gallery", Gallery)
    app.add_directive("layers", Layers)
    app.add_directive("types", Types)
    app.add_directive("guides", Guides)
    app.add_directive("methods", Methods)
    app.add_directive("knobs", Knobs)
    app.add_directive("losses", Losses)
