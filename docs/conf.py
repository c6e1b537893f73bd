"""Sphinx configuration; ``scripts/docs`` builds."""

from importlib.metadata import version as installed

project = "sottovoce"
author = "the sottovoce contributors"
release = version = installed("sottovoce")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"sottovoce {release}"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3  # pages link to each other's headings

napoleon_google_docstring = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the numpy docstrings name the types
