"""HTML pages, tables of notebooks and drawings, rendered by jinja2 from the files in
``templates/``.

All HTML of the package is in that folder.  Python hands a template plain texts and numbers, and
every text is escaped where it is put in.  A template that names a value which it was not given
fails, so none can be left out silently.

A page is one file that asks nobody for anything, for phones and desks.  A plot over names is one
row of HTML a name and an SVG with positions in percent of its width: names wrap, text keeps its
size on a phone, and a screen reader reads the rows.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from .installed import installed_version
from .typing import Any

if TYPE_CHECKING:
    from jinja2 import Environment

_LEFT, _BOTTOM, _SIDE = 40.0, 310.0, 300.0
"""Corner and side of the unit square in a square plot; its ticks and labels stand in
templates/macros.html.
"""


class Column(NamedTuple):
    """The head of a column, and the CSS class of its cells: ``n`` aligns numbers, ``w`` keeps a
    cell on one line.
    """

    text: str
    css: str = ""


class Table(NamedTuple):
    """A table for a page.  A cell is text, or None where a number is refused."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str | None]]


def render_template(template: str, /, *, package: str = "sottovoce", **values: Any) -> str:
    """Render a template with these values.

    Parameters
    ----------
    template : str
        The name of a file in the folder ``templates`` of `package`.
    package : str
        An installed package; its templates may extend and import those of sottovoce.
    **values
        All that the template names: texts that will be escaped, numbers, and sequences of them.

    Returns
    -------
    str

    Raises
    ------
    jinja2.UndefinedError
        If the template names a value that is not given.
    """
    return _template_environment(package).get_template(template).render(values)


def render_for_notebook(
    *,
    title: str = "",
    words: Sequence[tuple[str, str]] = (),
    text: str = "",
    pairs: Sequence[tuple[str, str]] = (),
    table: Table | None = None,
    remark: str = "",
) -> str:
    """Render an object for a notebook: those of these parts that it has, in this order.

    Parameters
    ----------
    title : str
        A bold line.
    words : sequence of (str, str)
        A privacy statement's; the first of each pair is bold.
    text, remark : str
        Paragraphs, in which line ends are kept.
    pairs : sequence of (str, str)
        Names and their values.
    table : Table, optional
        A table below them.

    Returns
    -------
    str
        HTML, with all texts escaped.
    """
    return render_template(
        "notebook.html",
        title=title,
        words=words,
        text=text,
        pairs=pairs,
        table=table,
        remark=remark,
    )


@cache
def _template_environment(package: str) -> Environment:
    """Return jinja2's environment for the templates of a package, with escaping always on."""
    # jinja2 takes longer to load than most commands take to start, and only pages need it
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    # Templates of another package may extend and import those of sottovoce.
    loader = ChoiceLoader([PackageLoader(name) for name in dict.fromkeys((package, "sottovoce"))])
    # Every text is escaped where it is put in, and a value that is not given is an error.
    return Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )


def plot_coordinates(x: float, y: float) -> tuple[float, float]:
    """Return the coordinates in a square plot of a point of the unit square."""
    return _LEFT + _SIDE * x, _BOTTOM - _SIDE * y


def svg_path_of_line(xs: Iterable[float], ys: Iterable[float]) -> str:
    """Return the SVG path, its attribute ``d``, of a line through points of the unit square."""
    points = (plot_coordinates(x, y) for x, y in zip(xs, ys, strict=True))
    return "M" + " ".join(f"{x:.1f} {y:.1f}" for x, y in points)


def describe_versions(*libraries: str) -> str:
    """Return the versions of the package, of these libraries and of Python."""
    parts = [f"{name} {installed_version(name)}" for name in ("sottovoce", *libraries)]
    return ", ".join([*parts, f"Python {platform.python_version()}"])
