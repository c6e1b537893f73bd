"""The hub's log: every message of every run once, on the disk before anybody reads it.

The log does not look into messages.  After a crash a hub needs nothing else: sites repeat what they sent, and find it
stored.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from ..errors import InvalidInput, Refused, SottovoceError
from ..util.compatibility import FORMER
from ..util.typing import Any

VERSION = 2
_PATIENCE = 30.0  # seconds, for another process that holds the file
_APPLICATION = 0x736F7468  # "soth": tells a hub's log from any other SQLite file
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR", "SQLITE_MISMATCH", "SQLITE_CANTOPEN")
_MESSAGE = (
    "CREATE TABLE message (run TEXT NOT NULL, round INTEGER NOT NULL, site TEXT NOT NULL, "
    "bytes BLOB NOT NULL, PRIMARY KEY (run, round, site)) STRICT, WITHOUT ROWID"
)
_TABLES = {
    "message": _MESSAGE,
    "farewell": "CREATE TABLE farewell (run TEXT NOT NULL, site TEXT NOT NULL, bytes BLOB NOT NULL, "
    "PRIMARY KEY (run, site)) STRICT, WITHOUT ROWID",
    "ended": "CREATE TABLE ended (run TEXT NOT NULL PRIMARY KEY) STRICT, WITHOUT ROWID",
}
_WHEN_NEEDED = (
    "CREATE TABLE IF NOT EXISTS closed (run TEXT NOT NULL, round INTEGER NOT NULL, PRIMARY KEY (run, round)) STRICT, "
    "WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS twice (run TEXT NOT NULL, site TEXT NOT NULL, round INTEGER NOT NULL, "
    "bytes BLOB NOT NULL, PRIMARY KEY (run, site)) STRICT, WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS expelled (run TEXT NOT NULL, site TEXT NOT NULL, PRIMARY KEY (run, site)) STRICT, "
    "WITHOUT ROWID",
)
"""Made when first needed: rounds closed before all had sent, second messages of one round, and who was taken out."""


class HubLog:
    """A write-once log in one SQLite file; a context manager, safe for several threads.

    Parameters
    ----------
    path : path
        Made if absent, in a folder that exists; on a local disk.
    read_only : bool
        To look only, also while another process writes, and without the right to write: never made or changed.

    Raises
    ------
    InvalidInput
        If the file is not a hub's log, or is damaged; it is not changed then.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self._news, self._name = threading.Condition(threading.RLock()), str(path)
        self._closed, place = False, str(path)
        if read_only:
            if not Path(path).is_file():
                raise InvalidInput("log", self._name, "is no hub's log: it is no file", "start the hub")
            place = _looked_at(Path(path))
        else:
            try:
                Path(path).touch(mode=0o600)  # SQLite gives the files beside it the same
            except OSError as error:
                rule = f"cannot be written: {error.strerror}"
                raise InvalidInput("log", self._name, rule, "let the hub write to its folder") from None
        with self._translated():
            self._db = sqlite3.connect(
                place, isolation_level=None, check_same_thread=False, timeout=_PATIENCE, uri=read_only
            )
        try:
            with self._translated():
                if not read_only:
                    self._open()
                elif not self._identify():
                    raise InvalidInput("log", self._name, "holds no run yet", "start the hub")
        except BaseException:
            self._db.close()
            raise

    def _open(self) -> None:
        """Make or join the log; waits here, as SQLite does not wait for a process that changes the journal mode."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                known = self._identify()
                for pragma in ("journal_mode = WAL", "synchronous = FULL", "fullfsync = ON", "trusted_schema = OFF"):
                    self._db.execute(f"PRAGMA {pragma}")
                if not known:
                    self._make()
                return
            except sqlite3.OperationalError as error:
                busy = getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")
                if not busy or time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def _identify(self) -> bool:
        """Whether the file is a log of this version; False if it must be made one."""
        self._db.execute("BEGIN")  # another process may be making it: what is read is of one moment
        try:
            tables = dict(self._db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))
            application, version = (
                self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
            )
        finally:
            self._db.execute("ROLLBACK")
        if (application, version) == (0, 0) and not tables:
            return False
        if (application, version) == (0, 0) and _MESSAGE in tables.values():
            raise InvalidInput("log", self._name, FORMER, "move it away, and start the hub: it makes another")
        ours = (application, version) == (_APPLICATION, VERSION)
        if not ours or not set(_TABLES.values()) <= set(tables.values()):
            rule = f"is no hub's log of version {VERSION}"
            raise InvalidInput("log", self._name, rule, "move it away, and find out whose it is")
        return True

    def _make(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            there = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            for name, table in _TABLES.items():
                if name not in there:  # another process may have been as quick
                    self._db.execute(table)
            self._db.execute(f"PRAGMA application_id = {_APPLICATION}")
            self._db.execute(f"PRAGMA user_version = {VERSION}")
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the file, and release waiting threads."""
        with self._news:
            self._closed = True
            self._news.notify_all()
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def post(self, run: str, round: int, site: str, message: bytes) -> None:
        """Store a message; it is on the disk when this returns.

        Raises :class:`Refused` if another message is stored for the round, or the round is not this site's next.
        """
        with self._news, self._translated():
            found = self.message(run, round, site)
            if found is not None:
                if found != message:
                    raise Refused(f"round={round}: site {site!r} has sent another message of this round already")
                return
            due = self.last(run, site) + 1
            if round != due:
                raise Refused(f"round={round}: out of order; the next message of site {site!r} is that of round {due}")
            if self._one("SELECT 1 FROM farewell WHERE run = ? AND site = ?", run, site) is not None:
                raise Refused(f"round={round}: site {site!r} has left this run")
            self._db.execute("INSERT INTO message VALUES (?, ?, ?, ?)", (run, round, site, message))
            self._news.notify_all()

    def leave(self, run: str, site: str, round: int, farewell: bytes) -> None:
        """Record that a site sends nothing from `round` on; the first farewell is kept.

        Raises :class:`Refused` if that is not its next round.
        """
        with self._news, self._translated():
            if round != self.last(run, site) + 1:
                raise Refused(f"round={round}: site {site!r} left before another round than its next")
            self._db.execute("INSERT OR IGNORE INTO farewell VALUES (?, ?, ?)", (run, site, farewell))
            self._news.notify_all()

    def gone(self, run: str) -> dict[str, bytes]:
        """Farewells by site."""
        with self._news, self._translated():
            return dict(self._db.execute("SELECT site, bytes FROM farewell WHERE run = ? ORDER BY site", (run,)))

    def end(self, run: str) -> None:
        """Record that the hub's operator ends the run: no site gets another inbox."""
        with self._news, self._translated():
            self._db.execute("INSERT OR IGNORE INTO ended VALUES (?)", (run,))
            self._news.notify_all()

    def ended(self, run: str) -> bool:
        """Whether the operator has ended the run."""
        with self._news, self._translated():
            return self._one("SELECT 1 FROM ended WHERE run = ?", run) is not None

    def last(self, run: str, site: str) -> int:
        """Round of a site's last message; -1 for none."""
        with self._news, self._translated():
            last = self._one("SELECT max(round) FROM message WHERE run = ? AND site = ?", run, site)
            return -1 if last is None else int(last)

    def message(self, run: str, round: int, site: str) -> bytes | None:
        """One message; None if there is none."""
        with self._news, self._translated():
            found = self._one("SELECT bytes FROM message WHERE run = ? AND round = ? AND site = ?", run, round, site)
            return None if found is None else bytes(found)

    def earlier(self, run: str, site: str) -> list[bytes]:
        """What a site signed in each run, in `run` first: its farewell, or its greeting if there is none."""
        query = (
            "SELECT run = ? AS here, bytes FROM farewell WHERE site = ? UNION ALL SELECT run = ?, bytes FROM message "
            "WHERE site = ? AND round = 0 AND run NOT IN (SELECT run FROM farewell WHERE site = ?) ORDER BY here DESC"
        )
        with self._news, self._translated():
            return [bytes(words) for _, words in self._db.execute(query, (run, site, run, site, site))]

    def runs(self) -> list[str]:
        """All runs with a message."""
        with self._news, self._translated():
            return [run for (run,) in self._db.execute("SELECT DISTINCT run FROM message ORDER BY run")]

    def prune(self, runs: Iterable[str]) -> int:
        """Remove all messages of these runs but greetings, and give the space back; returns how many.

        Greetings and farewells stay: they are all that :meth:`earlier` shows, and a farewell, which its site signed,
        holds the hash of that site's ledger, whose chain vouches for every message that it sent and received.
        """
        removed = 0
        with self._news, self._translated():
            for run in runs:
                removed += self._db.execute("DELETE FROM message WHERE run = ? AND round > 0", (run,)).rowcount
            self._db.execute("VACUUM")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return removed

    def messages(self, run: str) -> dict[tuple[int, str], bytes]:
        """All messages of a run, by round and site."""
        with self._news, self._translated():
            rows = self._db.execute("SELECT round, site, bytes FROM message WHERE run = ? ORDER BY round, site", (run,))
            return {(round, site): message for round, site, message in rows}

    # Of runs whose rounds end without the sites that are missing

    def round(self, run: str, round: int) -> dict[str, bytes]:
        """The messages of a round so far, by site."""
        with self._news, self._translated():
            rows = self._db.execute("SELECT site, bytes FROM message WHERE run = ? AND round = ?", (run, round))
            return {site: bytes(message) for site, message in rows}

    def shut(self, run: str, round: int) -> None:
        """Record that a round goes on without the sites that are missing; on the disk before any site is told."""
        with self._news, self._translated():
            self._db.execute(_WHEN_NEEDED[0])
            self._db.execute("INSERT OR IGNORE INTO closed VALUES (?, ?)", (run, round))

    def is_shut(self, run: str, round: int) -> bool:
        """Whether :meth:`shut` was called for this round."""
        with self._news, self._translated():
            return (
                self._has("closed")
                and self._one("SELECT 1 FROM closed WHERE run = ? AND round = ?", run, round) is not None
            )

    def accuse(self, run: str, site: str, round: int, message: bytes) -> None:
        """Record a site's second message of one round; only the first such is kept."""
        with self._news, self._translated():
            self._db.execute(_WHEN_NEEDED[1])
            self._db.execute("INSERT OR IGNORE INTO twice VALUES (?, ?, ?, ?)", (run, site, round, message))

    def accused(self, run: str) -> dict[str, tuple[int, bytes]]:
        """Sites that sent two messages of one round: that round, and the second message."""
        with self._news, self._translated():
            if not self._has("twice"):
                return {}
            rows = self._db.execute("SELECT site, round, bytes FROM twice WHERE run = ?", (run,))
            return {site: (round, bytes(message)) for site, round, message in rows}

    def expel(self, run: str, site: str) -> None:
        """Record that the hub's operator takes a site out: it sends nothing more."""
        with self._news, self._translated():
            self._db.execute(_WHEN_NEEDED[2])
            self._db.execute("INSERT OR IGNORE INTO expelled VALUES (?, ?)", (run, site))
            self._news.notify_all()

    def expelled(self, run: str) -> set[str]:
        """Sites that were taken out."""
        with self._news, self._translated():
            if not self._has("expelled"):
                return set()
            return {site for (site,) in self._db.execute("SELECT site FROM expelled WHERE run = ?", (run,))}

    def _has(self, table: str) -> bool:
        return self._one("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", table) is not None

    def _one(self, query: str, *values: object) -> Any:
        row = self._db.execute(query, values).fetchone()
        return None if row is None else row[0]

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:
            # Without a code: the connection is closed, or the module could not decode a text, be it SQLite's message.
            plain = "is closed" if isinstance(error, sqlite3.ProgrammingError) else "SQLITE_CORRUPT"
            code = str(getattr(error, "sqlite_errorname", plain))
            if code.startswith(_DAMAGE):
                rule = "is no hub's log, or is damaged"
                raise InvalidInput("log", self._name, rule, "move it away, and look at the disk") from None
            if code.startswith("SQLITE_FULL") or code.startswith("SQLITE_IOERR"):
                code = "cannot be written: no space, or the disk fails"
            raise SottovoceError(f"log={self._name!r}: {code}; the sites wait, and ask again") from None


def _looked_at(path: Path) -> str:
    """The URI by which SQLite reads a log and writes nothing.

    While a process writes, its write-ahead log lies beside and is read too.  Without one nobody writes, and the file is
    read as it is: else SQLite would make files beside it, which may belong to another user than the hub's.
    """
    beside = path.with_name(f"{path.name}-wal").exists()
    return f"{path.resolve().as_uri()}?mode=ro{'' if beside else '&immutable=1'}"
