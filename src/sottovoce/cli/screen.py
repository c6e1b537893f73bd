"""What commands print for people.  Names from somebody's file are shown there, never obeyed.

Every command prints through :class:`Console`, in which no character can steer the terminal, and puts names into marked
text by :func:`escape`, so that ``[red]`` in a name is a name.
"""

from __future__ import annotations

import rich.console
import rich.markup
from rich.text import Text

from ..errors import printable
from ..typing import Any


class Console(rich.console.Console):
    """Rich's, for texts in which control characters stand as escapes and ``:words:`` for themselves."""

    def __init__(self, **options: Any) -> None:
        super().__init__(emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(_lines(text), **options)


def escape(text: str) -> str:
    """A name as it may stand in marked text."""
    return rich.markup.escape(_lines(text))


def _lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))
