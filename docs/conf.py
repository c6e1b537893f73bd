"""Sphinx configuration; ``scripts/docs`` builds."""

import sys
from importlib.metadata import version as installed
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from check_imports import LAYERS

from sottovoce.algorithms import KNOBS, NAMES, REGISTRY, knobs_of, same_as, trusts_of
from sottovoce.problem.losses import REGISTRY as LOSSES

project = "sottovoce"
author = "the sottovoce contributors"
release = version = installed("sottovoce")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "papers/times.md"]  # times.md is a part of studies.md
html_theme = "furo"
html_title = f"sottovoce {release}"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3  # pages link to each other's headings

napoleon_google_docstring = False
napoleon_use_param = False  # keeps "Other Parameters" a group of its own
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the numpy docstrings name the types


def table(*rows: tuple[str, ...]) -> str:
    """A Markdown table; the first row is its header."""
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


class Layers(SphinxDirective):
    """The floors of the house, from the list that the check of imports holds."""

    def run(self) -> list[nodes.Node]:
        floors = [
            (str(level), ", ".join(f"`{m.removesuffix('.__init__')}`" for m in floor.modules), floor.knows)
            for level, floor in enumerate(LAYERS)
        ]
        return self.parse_text_to_nodes(table(("layer", "modules", "what they know"), *floors))


class Methods(SphinxDirective):
    """What each method releases, from the classes in the registry."""

    def run(self) -> list[nodes.Node]:
        rows = [("method", "releases", "trusts", "noise", "good for", "the same at the defaults")]
        for name in NAMES:
            cls = REGISTRY[name]
            trusts = ", ".join(trusts_of(name)) if cls.private else "all who listen"
            same = ", ".join(f"`{other}`" for other in same_as(name))
            rows.append((f"`{name}`", cls.releases, trusts, cls.noise_law, cls.good_for, same))
        return self.parse_text_to_nodes(table(*rows))


class Knobs(SphinxDirective):
    """The methods' own knobs, from the fields that declare them."""

    def run(self) -> list[nodes.Node]:
        rows = [("knob", "what it is", "default", "must", "methods")]
        for name, knob in KNOBS.items():
            own = [f"`{method}`" for method in NAMES if name in knobs_of(REGISTRY[method])]
            where = ", ".join(own) + (f" ({knob.form})" if knob.form else "")
            default = f"{knob.default:.4g}" if isinstance(knob.default, float) else repr(knob.default)
            rows.append((f"`{name}`", knob.about, f"`{default}`", knob.rule.removeprefix("must "), where))
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
            curvature = f"at most {loss.curvature_bound:.4g}" + (", jumps" if loss.jumps else "")
            rows.append(
                (f"`{loss.spec}`", loss.about, slopes, curvature, "refused" if loss.unproved_inside else "taken")
            )
        return self.parse_text_to_nodes(table(*rows))


def setup(app: Sphinx) -> None:
    app.add_directive("layers", Layers)
    app.add_directive("methods", Methods)
    app.add_directive("knobs", Knobs)
    app.add_directive("losses", Losses)
