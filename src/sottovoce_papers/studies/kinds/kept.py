"""A cache of runs that several cells share: a run that one cell has made is read by the others.

Studies draw different figures of the same runs, and a cell may need many of them.  While a cell
runs in a study, the rows of each of its runs are stored in a folder beside the studies, under a
digest of everything that determines the run: its parameters and the code, but not the labels that
only tell cells apart.  Outside of a study nothing is stored.

A run is stored with the processor's seconds that it took, and a cell is told which runs it used, so
that a run from the cache is not taken for one that costs nothing.
"""

from __future__ import annotations

import gzip
import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from sottovoce.util import files
from sottovoce.util.typing import Any

from . import Row

FOLDER = ".runs"
"""Name of the cache's folder, shared by all studies of one folder; it can safely be deleted."""
LABELS = {"basis", "label", "panel"}
"""Parameters that are labels: free texts that only tell cells apart."""
_SAYS_NOTHING = LABELS | {"reading", "every", "also"}
"""Parameters that do not change a run: labels, and which of its rows are returned."""

Digest = Callable[[str, Mapping[str, Any]], str]
"""A function from a kind of cell and its parameters to a digest, which includes the code."""


@dataclass(frozen=True)
class Shelf:
    """The folder in which runs are kept, and the function that names their files."""

    folder: Path
    digest: Digest

    def place(self, kind: str, p: Mapping[str, Any]) -> Path:
        told = {key: value for key, value in p.items() if key not in _SAYS_NOTHING}
        return self.folder / f"{self.digest(kind, told)}.json.gz"


@dataclass
class Used:
    """The runs on a shelf that a cell used.

    Attributes
    ----------
    seconds : dict of str to float
        Of a processor, that each run took when it was made, by the name of its file.
    made : float
        Seconds of those that the cell made itself.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    made: float = 0.0


_shelf: ContextVar[tuple[Shelf, Used] | None] = ContextVar("shelf", default=None)


@contextmanager
def shelved(shelf: Shelf | None) -> Iterator[Used]:
    """Keep the runs of the cell that runs in this context on this shelf; None to keep none.

    Yields
    ------
    Used
        Filled while the cell runs.
    """
    used = Used()
    opened = None
    if shelf is not None:
        opened = (shelf, used)
    token = _shelf.set(opened)
    try:
        yield used
    finally:
        _shelf.reset(token)


def once(
    kind: str, p: Mapping[str, Any], wanted: Set[int], run: Callable[[], list[Row]]
) -> list[Row]:
    """Return the rows of a run after the rounds `wanted`, from the cache if they are there.

    Parameters
    ----------
    kind : str
        The kind of cell that makes such rows.
    p : mapping
        Its parameters; without `every`, `also` and labels they determine the rows.
    wanted : set of int
        Rounds.  Rows without a round, such as the note of a run that was left out, are returned
        too.
    run : callable
        Makes the rows of at least these rounds, if they are not in the cache.

    Returns
    -------
    list of Row
    """
    open_shelf = _shelf.get()
    if open_shelf is None:
        return run()
    shelf, used = open_shelf
    place = shelf.place(kind, p)
    found = _read(place)
    if found is None or not wanted <= set(found["rounds"]):
        started = time.process_time()
        rows = run()
        seconds = time.process_time() - started
        used.seconds[place.name] = seconds
        used.made += seconds
        kept = {"rounds": sorted(wanted), "seconds": seconds, "rows": rows}
        content = json.dumps(kept).encode()
        files.write_atomically(
            "out", place, gzip.compress(content, compresslevel=1, mtime=0), make=True
        )
        return rows
    used.seconds[place.name] = found["seconds"]
    return [row for row in found["rows"] if row.get("round") is None or row["round"] in wanted]


def _read(place: Path) -> dict[str, Any] | None:
    """Read a stored run; None if there is none, or it is damaged."""
    try:
        return dict(json.loads(gzip.decompress(place.read_bytes())))
    except (OSError, EOFError, zlib.error, ValueError):
        return None
