"""SQLite's connections to the file of a log."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from .chain import Chain, F


def connect(file: Path, timeout: float, how: str = "mode=rw") -> sqlite3.Connection:
    """A connection that opens no transaction of its own and may be used from several threads, one at a time."""
    # isolation_level None: Python opens no transaction.  The file's lock keeps threads apart.
    return sqlite3.connect(
        f"{file.resolve().as_uri()}?{how}", uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
    )


@contextmanager
def alone(path: Path, name: str, blank: Callable[[bytes], F]) -> Iterator[Chain[F]]:
    """The log alone, without SQLite's companion files."""
    with closing(connect(path, 0.0, "mode=ro&immutable=1")) as db:
        chain = Chain(db, name, blank)
        with chain.translated():
            chain.identify()
            yield chain


def make_synchronous(db: sqlite3.Connection) -> None:
    """Let a commit return when it is on the disk, and only then."""
    # Without spilling a journal is written once, with the first page in it.
    for pragma in ("synchronous = EXTRA", "fullfsync = ON", "trusted_schema = OFF", "cache_spill = OFF"):
        db.execute(f"PRAGMA {pragma}")
