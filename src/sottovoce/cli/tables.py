"""Reading the table that a command is given."""

from __future__ import annotations

from pathlib import Path

import click

from ..data import Table, read_table
from ..errors import escape_unprintable


def read_table_with_notes(path: Path) -> Table:
    """Read the table in a file.

    What its holder should know of how it was read goes to standard error.
    """
    table = read_table(path)
    for note in table.notes:
        click.echo(f"Note: {escape_unprintable(table.name)}: {escape_unprintable(note)}", err=True)
    return table


__all__ = ["read_table_with_notes"]
