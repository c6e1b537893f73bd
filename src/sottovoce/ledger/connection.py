"""SQLite connections to the file of a log (:mod:`.chain`): how they are opened and made durable."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from .chain import Chain, F


def open_connection(file: Path, timeout: float, how: str = "mode=rw") -> sqlite3.Connection:
    """Open an SQLite connection that starts no transaction of its own.

    Several threads may use it, one at a time.

    Parameters
    ----------
    file : Path
    timeout : float
        Seconds that SQLite waits for locks of other connections.
    how : str
        Query of SQLite's URI: ``mode=rw``, ``mode=ro``, or ``mode=ro&immutable=1``.

    Returns
    -------
    sqlite3.Connection
    """
    # isolation_level None: Python opens no transaction.  The file's lock keeps threads apart.
    return sqlite3.connect(
        f"{file.resolve().as_uri()}?{how}",
        uri=True,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
    )


@contextmanager
def alone(path: Path, name: str, blank: Callable[[bytes], F]) -> Iterator[Chain[F]]:
    """Open the log read-only, without its journal, write-ahead log or any lock.

    Parameters
    ----------
    path : Path
    name : str
        The file as errors call it.
    blank : callable ``(secret) -> state``
        Makes the state before the first record from the file's secret key.

    Yields
    ------
    Chain
        Identified, not yet synchronized.

    Raises
    ------
    LedgerCorrupt, LedgerVersion
        If the file is no ledger, is damaged, or is of another version.
    """
    with closing(open_connection(path, 0.0, "mode=ro&immutable=1")) as db:
        chain = Chain(db, name, blank)
        with chain.translating_errors():
            chain.read_identity()
            yield chain


def make_synchronous(db: sqlite3.Connection) -> None:
    """Let a commit return when it is on the disk, and only then."""
    # Without spilling a journal is written once, with the first page in it.
    for pragma in (
        "synchronous = EXTRA",
        "fullfsync = ON",
        "trusted_schema = OFF",
        "cache_spill = OFF",
    ):
        db.execute(f"PRAGMA {pragma}")
