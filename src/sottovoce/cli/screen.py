"""What commands print for people.  Names from files are shown as text and can control nothing.

Every command prints through :class:`Console`, in which no character can control the terminal.  It puts names into
marked-up text with :func:`escape`, so that ``[red]`` in a name is printed and not taken as a colour.
"""

from __future__ import annotations

import rich.console
import rich.markup
from rich.text import Text

from ..errors import printable
from ..util.typing import Any


class Console(rich.console.Console):
    """Rich's, for texts in which control characters stand as escapes and ``:words:`` for themselves."""

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(_lines(text), **options)


def escape(text: str) -> str:
    """A name, escaped for use in marked-up text."""
    return rich.markup.escape(_lines(text))


def _lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))
