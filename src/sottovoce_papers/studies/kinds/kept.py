"""Runs that several cells share: what one has run, another one reads.

Studies draw different figures of the same runs, and a cell may hold many of them.  While a cell
runs in a study, the rows of each of its runs are kept in a folder beside the studies, by a digest
of what the run follows from: its parameters and the code.  Names that only tell cells apart are not
among them.  Outside of a study nothing is kept.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from sottovoce.util import files
from sottovoce.util.typing import Any

from . import Row

FOLDER = ".runs"
"""Of all studies of one folder; it can be removed, and runs are then made again."""
LABELS = {"basis", "label", "panel"}
"""Free texts that tell cells apart."""
_SAYS_NOTHING = LABELS | {"reading", "every", "also"}
"""Parameters that change nothing in a run: texts, and which of its rows are asked for."""

Digest = Callable[[str, Mapping[str, Any]], str]
"""Of a kind of cell and its parameters, the code included."""


@dataclass(frozen=True)
class Shelf:
    """Where runs are kept, and what names them."""

    folder: Path
    digest: Digest

    def place(self, kind: str, p: Mapping[str, Any]) -> Path:
        told = {key: value for key, value in p.items() if key not in _SAYS_NOTHING}
        return self.folder / f"{self.digest(kind, told)}.json.gz"


_shelf: ContextVar[Shelf | None] = ContextVar("shelf", default=None)


@contextmanager
def shelved(shelf: Shelf | None) -> Iterator[None]:
    """Keep the runs of the cell within on this shelf; on none if it is None."""
    token = _shelf.set(shelf)
    try:
        yield
    finally:
        _shelf.reset(token)


def once(
    kind: str, p: Mapping[str, Any], wanted: Set[int], run: Callable[[], list[Row]]
) -> list[Row]:
    """The rows of `run` after the rounds `wanted`: read, if another cell has run the same with
    these rounds.

    Parameters
    ----------
    kind : str
        The kind of cell that makes such rows.
    p : mapping
        Its parameters, without `every`, `also` and labels all that the rows follow from.
    wanted : set of int
        Rounds.  Rows without a round, as of a run that is left out, are returned too.
    run : function
        Makes the rows of at least these rounds.
    """
    shelf = _shelf.get()
    if shelf is None:
        return run()
    place = shelf.place(kind, p)
    found = _read(place)
    if found is None or not wanted <= set(found["rounds"]):
        rows = run()
        content = json.dumps({"rounds": sorted(wanted), "rows": rows}).encode()
        files.write_atomically(
            "out", place, gzip.compress(content, compresslevel=1, mtime=0), make=True
        )
        return rows
    return [row for row in found["rows"] if row.get("round") is None or row["round"] in wanted]


def _read(place: Path) -> dict[str, Any] | None:
    """A run that is kept; None where there is none that can be read."""
    try:
        return dict(json.loads(gzip.decompress(place.read_bytes())))
    except (OSError, EOFError, zlib.error, ValueError):
        return None
