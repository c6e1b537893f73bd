"""What a hub holds: every message of every run once, on the disk before anybody reads it.

The messages are opaque here.  A hub needs nothing else to go on after a crash: sites repeat what they sent, and find
that it is there.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from ..errors import Refused, TransportClosed
from ..typing import Any
from .transport import printable

_TABLES = (
    "CREATE TABLE IF NOT EXISTS message (run TEXT NOT NULL, round INTEGER NOT NULL, site TEXT NOT NULL, "
    "bytes BLOB NOT NULL, PRIMARY KEY (run, round, site)) STRICT, WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS gone (run TEXT NOT NULL, site TEXT NOT NULL, reason TEXT NOT NULL, "
    "PRIMARY KEY (run, site)) STRICT, WITHOUT ROWID",
)


class HubLog:
    """A write-once log in one SQLite file; a context manager, which closes it.  Safe from several threads.

    Parameters
    ----------
    path : path
        Made if absent, in a folder that exists; on a local disk.
    """

    def __init__(self, path: str | Path) -> None:
        self._news = threading.Condition(threading.RLock())
        Path(path).touch(mode=0o600)  # SQLite gives the files beside it the same
        self._db = sqlite3.connect(Path(path), isolation_level=None, check_same_thread=False, timeout=30.0)
        self._closed = False
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "fullfsync = ON", "trusted_schema = OFF"):
            self._db.execute(f"PRAGMA {pragma}")
        for table in _TABLES:
            self._db.execute(table)

    def close(self) -> None:
        """Close the file and release whoever waits."""
        with self._news:
            self._closed = True
            self._news.notify_all()
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def post(self, run: str, round: int, site: str, message: bytes) -> None:
        """Keep a message; it is on the disk when this returns.

        Raises
        ------
        Refused
            If another message stands there, or the round is neither known nor the next of this site.
        """
        with self._news:
            found = self.message(run, round, site)
            if found is not None:
                if found != message:
                    raise Refused(f"round={round}: site {site!r} has sent another message of this round already")
                return
            due = self.last(run, site) + 1
            if round != due:
                raise Refused(f"round={round}: out of order; the next message of site {site!r} is that of round {due}")
            if self._one("SELECT 1 FROM gone WHERE run = ? AND site = ?", run, site) is not None:
                raise Refused(f"round={round}: site {site!r} has left this run")
            self._db.execute("INSERT INTO message VALUES (?, ?, ?, ?)", (run, round, site, message))
            self._news.notify_all()

    def inbox(self, run: str, round: int, names: Iterable[str]) -> dict[str, bytes] | None:
        """The messages of these sites in this round; None while one is missing.

        Raises
        ------
        TransportClosed
            If one is missing and its site has left.
        """
        found: dict[str, bytes] = {}
        missing = []
        with self._news:
            for name in names:
                message = self.message(run, round, name)
                if message is None:
                    missing.append(name)
                else:
                    found[name] = message
            for name in missing:
                reason = self._one("SELECT reason FROM gone WHERE run = ? AND site = ?", run, name)
                if reason is not None:
                    raise TransportClosed(f"site {name!r} left the run before round {round}: {reason}")
        return None if missing else found

    def wait(self, run: str, round: int, names: Iterable[str], seconds: float) -> dict[str, bytes] | None:
        """As :meth:`inbox`, but waits up to `seconds` for what is missing, or until the log is closed."""
        names, until = tuple(names), time.monotonic() + seconds
        with self._news:
            while True:
                if self._closed:
                    return None
                found = self.inbox(run, round, names)
                left = until - time.monotonic()
                if found is not None or left <= 0.0:
                    return found
                self._news.wait(left)

    def leave(self, run: str, site: str, reason: str) -> None:
        """Note that a site will send no more; the first reason stands."""
        with self._news:
            self._db.execute("INSERT OR IGNORE INTO gone VALUES (?, ?, ?)", (run, site, printable(reason)))
            self._news.notify_all()

    def gone(self, run: str) -> dict[str, str]:
        """Sites that left, and why."""
        with self._news:
            return dict(self._db.execute("SELECT site, reason FROM gone WHERE run = ? ORDER BY site", (run,)))

    def last(self, run: str, site: str) -> int:
        """The round of the last message of a site; -1 for none."""
        with self._news:
            last = self._one("SELECT max(round) FROM message WHERE run = ? AND site = ?", run, site)
            return -1 if last is None else int(last)

    def message(self, run: str, round: int, site: str) -> bytes | None:
        """One message; None if there is none."""
        with self._news:
            found = self._one("SELECT bytes FROM message WHERE run = ? AND round = ? AND site = ?", run, round, site)
            return None if found is None else bytes(found)

    def messages(self, run: str) -> dict[tuple[int, str], bytes]:
        """Everything that was sent in a run, by round and site."""
        with self._news:
            rows = self._db.execute("SELECT round, site, bytes FROM message WHERE run = ? ORDER BY round, site", (run,))
            return {(round, site): message for round, site, message in rows}

    def _one(self, query: str, *values: object) -> Any:
        row = self._db.execute(query, values).fetchone()
        return None if row is None else row[0]
