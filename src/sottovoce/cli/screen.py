"""Output of commands on a terminal.

Names from files are shown as text and can control nothing: :class:`Console` escapes characters that
would control the terminal, and :func:`escape_markup` keeps ``[red]`` in a name from being a colour.
What is printed may have cost budget, so nothing of it is cut on a narrow screen: a :class:`Listing`
that is too wide is written with one line for each entry.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import click
import rich.console
import rich.markup
from rich.cells import cell_len
from rich.table import Column, Table
from rich.text import Text

from ..errors import escape_unprintable
from ..util.plain import format_json_text
from ..util.progress import show_bar_on_console
from ..util.typing import Any

NARROWEST = 20
"""Characters of the narrowest screen that texts are laid out for; a narrower terminal breaks lines.
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
        """Print nothing more; raise BrokenPipeError for standard output."""
        # rich would end the program here; the command still says where its result is.
        self.quiet = True
        if not self.stderr:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    def render_str(self, text: str, **options: Any) -> Text:
        """Render marked-up text, with control characters as escapes."""
        return super().render_str(_printable_lines(text), **options)


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
        """Choose the columns' widths for this screen, or write every row as lines."""
        # Padding of a cell, in characters.
        _, right, _, left = self.padding
        room = options.max_width - (left + right) * len(self.columns)
        natural = [
            self._longest_line(console, [column.header, *column.cells]) for column in self.columns
        ]
        least = [
            self._least_width(console, column, width)
            for column, width in zip(self.columns, natural, strict=True)
        ]
        if sum(least) > room:
            yield from self._stacked_lines(console)
            return
        fits = sum(natural) <= room
        for column, width in zip(self.columns, least, strict=True):
            column.width = None
            # Where something must wrap, it is not a number.
            if _holds_numbers(column) and not fits:
                column.width = width
            column.overflow = "fold"
        yield from super().__rich_console__(console, options)

    def _least_width(self, console: rich.console.Console, column: Column, natural: int) -> int:
        """Compute the width below which a column cannot be read.

        Numbers are never broken, and neither are the words of their head; texts wrap.
        """
        if not _holds_numbers(column):
            return min(natural, self.LEAST)
        entries = self._longest_line(console, column.cells)
        return max(entries, self._longest_word(console, column.header))

    @staticmethod
    def _longest_line(console: rich.console.Console, entries: Iterable[Any]) -> int:
        """Compute the width of the longest line of several entries."""
        lines = [line for entry in entries for line in _entry_as_text(console, entry).split("\n")]
        return max((line.cell_len for line in lines), default=0)

    @staticmethod
    def _longest_word(console: rich.console.Console, head: Any) -> int:
        """Compute the width of the longest word of a head."""
        return max(map(cell_len, _entry_as_text(console, head).plain.split()), default=0)

    def _stacked_lines(self, console: rich.console.Console) -> Iterator[Text]:
        """Yield a line for every entry that is not empty."""
        heads = [_entry_on_one_line(console, column.header) for column in self.columns]
        for row in zip(*(column.cells for column in self.columns), strict=True):
            for k, (head, entry) in enumerate(zip(heads, row, strict=True)):
                said = _entry_on_one_line(console, entry)
                if not said.plain:
                    continue
                # The lines of a row below its first are indented, so that rows are told apart.
                indent = "  "
                if k == 0:
                    indent = ""
                line = Text(indent, overflow="fold")
                if head.plain:
                    line.append_text(head)
                    line.append(": ")
                line.append_text(said)
                yield line


def _holds_numbers(column: Column) -> bool:
    """Return True for a column at the right, where numbers stand."""
    return column.justify == "right"


def _entry_as_text(console: rich.console.Console, entry: Any) -> Text:
    """Return an entry of a table as rich's text."""
    if isinstance(entry, str):
        return console.render_str(entry)
    text: Text = entry
    return text


def _entry_on_one_line(console: rich.console.Console, entry: Any) -> Text:
    """Return an entry with its lines joined by spaces."""
    parts = [part for part in _entry_as_text(console, entry).split("\n") if part.plain.strip()]
    return Text(" ").join(parts)


def make_listing(*heads: str, **options: Any) -> Table:
    """Make a table without lines.

    Each head begins with ``<`` or ``>``, the side of its column; `options` are for all.
    """
    table = Listing(padding=(0, 2, 0, 0))
    for head in heads:
        side, text = head[0], head[1:]
        table.add_column(text, justify="right" if side == ">" else "left", **options)
    return table


@contextmanager
def show_progress_bar(
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
    with show_bar_on_console(console, escape_markup(text), total, left=left) as update:
        yield update


def print_json(plain: Any, indent: int | None = None) -> None:
    """Print plain data as JSON, infinities as texts."""
    click.echo(format_json_text(plain, indent))


def escape_markup(text: str) -> str:
    """Escape a name for marked-up text."""
    return rich.markup.escape(_printable_lines(text))


def _printable_lines(text: str) -> str:
    """Escape all control characters of a text but its line breaks."""
    return "\n".join(map(escape_unprintable, text.split("\n")))
