"""What commands print.  Names from files are shown as text and can control nothing.

In :class:`Console` no character can control the terminal; :func:`escape` keeps ``[red]`` in a name from being a colour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
import rich.console
import rich.markup
from rich.table import Table
from rich.text import Text

from ..errors import printable
from ..util.plain import json_text
from ..util.progress import bar
from ..util.typing import Any


class Console(rich.console.Console):
    """Rich's, in which control characters are shown as escapes and ``:words:`` as they are."""

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(_lines(text), **options)


def listing(*heads: str, **options: Any) -> Table:
    """A table without lines.  Each head begins with ``<`` or ``>``, the side of its column; `options` are for all."""
    table = Table(box=None, header_style="bold", title_justify="left", padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head[1:], justify="right" if head[0] == ">" else "left", **options)
    return table


@contextmanager
def progress(
    console: Console, text: str, total: int | None = None, *, quiet: bool = False, left: bool = False
) -> Iterator[Callable[..., None] | None]:
    """On a terminal a bar, as the function that updates it, with the time that has passed or that is left."""
    if quiet or not console.is_terminal:
        yield None
        return
    with bar(console, escape(text), total, left=left) as update:
        yield update


def print_json(plain: Any, indent: int | None = None) -> None:
    """Print plain data as JSON, infinities as texts."""
    click.echo(json_text(plain, indent))


def escape(text: str) -> str:
    """A name, escaped for use in marked-up text."""
    return rich.markup.escape(_lines(text))


def _lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))
