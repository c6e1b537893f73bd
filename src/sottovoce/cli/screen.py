"""Output of commands on a terminal.

Names from files are shown as text and can control nothing.

In :class:`Console` no character can control the terminal; :func:`escape` keeps ``[red]`` in a name
from being a colour. What is printed may have been paid for, so it fits every screen: a
:class:`Listing` that is too wide is written line below line, with no number cut.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import click
import rich.console
import rich.markup
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from ..errors import printable
from ..util.plain import json_text
from ..util.progress import bar
from ..util.typing import Any

NARROWEST = 20
"""Columns of a screen below which texts are set as if it had so many: the terminal breaks their
lines.
"""


class Console(rich.console.Console):
    """A console of rich that shows control characters as escapes, and ``:words:`` as they are.

    Where standard error is closed, nothing is said there; a closed standard output is a
    BrokenPipeError.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, **options)
        if self.width < NARROWEST:
            self.width = NARROWEST

    def on_broken_pipe(self) -> None:
        self.quiet = True
        if not self.stderr:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(_lines(text), **options)


class Listing(Table):
    """A table without lines, in which no number is ever cut or broken.

    Columns at the right are as wide as their longest entry; those at the left wrap.  Where that
    does not fit the screen, every row is written as lines: the name of a column, and what stands
    there.
    """

    LEAST = 8
    """Characters of a column of texts, below which it is no longer read as one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(box=None, header_style="bold", title_justify="left", **options)

    def __rich_console__(
        self, console: rich.console.Console, options: rich.console.ConsoleOptions
    ) -> Any:
        room = options.max_width - sum(self.padding[1::2]) * len(self.columns)
        numbers = [column.justify == "right" for column in self.columns]
        natural = [
            self._longest(console, [column.header, *column.cells]) for column in self.columns
        ]
        least = [
            max(self._longest(console, column.cells), self._longest_word(console, column.header))
            if number
            else min(width, self.LEAST)
            for column, number, width in zip(self.columns, numbers, natural, strict=True)
        ]
        if sum(least) > room:
            yield from self._stacked(console)
            return
        for column, number, width in zip(self.columns, numbers, least, strict=True):
            column.width = width if number and sum(natural) > room else None
            column.overflow = "fold"
        yield from super().__rich_console__(console, options)

    @staticmethod
    def _longest(console: rich.console.Console, entries: Iterable[Any]) -> int:
        """Width of the longest line."""
        lines = [line for entry in entries for line in _text(console, entry).split("\n")]
        return max((line.cell_len for line in lines), default=0)

    @staticmethod
    def _longest_word(console: rich.console.Console, head: Any) -> int:
        return max(map(cell_len, _text(console, head).plain.split()), default=0)

    def _stacked(self, console: rich.console.Console) -> Iterator[Text]:
        """One line for every entry that is not empty."""
        heads = [_one_line(console, column.header) for column in self.columns]
        for row in zip(*(column.cells for column in self.columns), strict=True):
            for k, (head, entry) in enumerate(zip(heads, row, strict=True)):
                said = _one_line(console, entry)
                if not said.plain:
                    continue
                line = Text("" if k == 0 else "  ", overflow="fold")
                if head.plain:
                    line.append_text(head)
                    line.append(": ")
                line.append_text(said)
                yield line


def _text(console: rich.console.Console, entry: Any) -> Text:
    """An entry of a table."""
    return console.render_str(entry) if isinstance(entry, str) else entry


def _one_line(console: rich.console.Console, entry: Any) -> Text:
    parts = [part for part in _text(console, entry).split("\n") if part.plain.strip()]
    return Text(" ").join(parts)


def listing(*heads: str, **options: Any) -> Table:
    """Make a table without lines.

    Each head begins with ``<`` or ``>``, the side of its column; `options` are for all.
    """
    table = Listing(padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head[1:], justify="right" if head[0] == ">" else "left", **options)
    return table


@contextmanager
def progress(
    console: Console,
    text: str,
    total: int | None = None,
    *,
    quiet: bool = False,
    left: bool = False,
) -> Iterator[Callable[..., None] | None]:
    """Show a progress bar, if the output is a terminal.

    Parameters
    ----------
    console : Console
        Where it is shown.
    text : str
        In front of the bar.
    total : int, optional
        Steps; None if unknown.
    quiet : bool
        Show nothing.
    left : bool
        Show the time that is left, in place of the time that has passed.

    Yields
    ------
    callable or None
        Updates the bar; None without one.
    """
    if quiet or not console.is_terminal:
        yield None
        return
    with bar(console, escape(text), total, left=left) as update:
        yield update


def print_json(plain: Any, indent: int | None = None) -> None:
    """Print plain data as JSON, infinities as texts."""
    click.echo(json_text(plain, indent))


def escape(text: str) -> str:
    """Escape a name for marked-up text."""
    return rich.markup.escape(_lines(text))


def _lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))
