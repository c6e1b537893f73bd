"""The SQLite file of a hub's log: how it is made, recognised and read, and its errors.

:class:`sottovoce.deploy.hublog.HubLog` stores messages through it.  No other program's file is
taken for a log: its application number, version and every table must be those of this version.  A
process that only reads changes nothing, not even files beside the log.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import InvalidInput, SottovoceError
from ..util.compatibility import FORMER
from ..util.typing import Any

VERSION = 2
"""Version of the tables, SQLite's ``user_version``."""
_PATIENCE = 30.0
"""Seconds to wait for another process that holds the file."""
_APPLICATION = 0x736F7468
"""``soth`` in ASCII: tells a hub's log from any other SQLite file."""
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR", "SQLITE_MISMATCH")
"""Beginnings of SQLite's error names that say that a file is damaged or is no log."""
# A write is on the disk when its transaction ends (synchronous, fullfsync), readers do not block it
# (WAL), and functions in a foreign file's schema are not run (trusted_schema).
_PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "fullfsync = ON", "trusted_schema = OFF")


class LogFile:
    """One SQLite file, behind a lock: safe for several threads.

    Parameters
    ----------
    path : path
    tables : dict of str
        Tables that every log has: the SQL statement that creates each, by its name.
    read_only : bool
        Only read the file; possible while another process writes it.

    Raises
    ------
    InvalidInput
        If the file is not a hub's log, or is damaged; it is not changed then.
    """

    def __init__(self, path: Path, tables: dict[str, str], *, read_only: bool) -> None:
        self._lock = threading.RLock()
        self._name = str(path)
        self._tables = tables
        if read_only:
            place = _read_only_uri(path)
        else:
            place = _prepare_writable(path)
        with self._translate_errors():
            self.db = sqlite3.connect(
                place,
                isolation_level=None,
                check_same_thread=False,
                timeout=_PATIENCE,
                uri=read_only,
            )
        try:
            with self._translate_errors():
                if not read_only:
                    self._open_or_make()
                elif not self._is_log_of_this_version():
                    raise InvalidInput("log", self._name, "holds no run yet", "start the hub")
        except BaseException:
            self.db.close()
            raise

    @contextmanager
    def locked_connection(self) -> Iterator[sqlite3.Connection]:
        """Context with the connection, for this thread alone.

        Errors of SQLite become :class:`SottovoceError` or :class:`InvalidInput`.
        """
        with self._lock, self._translate_errors():
            yield self.db

    def value(self, query: str, *values: object) -> Any:
        """Return the first column of the first row of an SQL query; None if there is no row.

        `values` replace the query's question marks.
        """
        with self.locked_connection() as db:
            row = db.execute(query, values).fetchone()
        if row is None:
            return None
        return row[0]

    def has_table(self, table: str) -> bool:
        """Return True if the file has a table of this name."""
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return self.value(query, table) is not None

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self.db.close()

    def _open_or_make(self) -> None:
        """Open an existing log, or make an empty file one.

        Repeated while another process holds the file: SQLite's own timeout does not cover a process
        that changes the journal mode.
        """
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                known = self._is_log_of_this_version()
                for pragma in _PRAGMAS:
                    self.db.execute(f"PRAGMA {pragma}")
                if not known:
                    self._make_tables()
                return
            except sqlite3.OperationalError as error:
                busy = getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")
                if not busy or time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def _is_log_of_this_version(self) -> bool:
        """Return True if the file is a log of this version, False if it is an empty file.

        Raises :class:`InvalidInput` for any other file.
        """
        # One transaction, because another process may be making the tables at this moment.
        self.db.execute("BEGIN")
        try:
            tables = dict(
                self.db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
            )
            application = self.db.execute("PRAGMA application_id").fetchone()[0]
            version = self.db.execute("PRAGMA user_version").fetchone()[0]
        finally:
            self.db.execute("ROLLBACK")
        unmarked = (application, version) == (0, 0)
        if unmarked and not tables:
            return False
        if unmarked and self._tables["message"] in tables.values():
            raise InvalidInput(
                "log", self._name, FORMER, "move it away and start the hub, which makes a new one"
            )
        ours = (application, version) == (_APPLICATION, VERSION)
        if not ours or not set(self._tables.values()) <= set(tables.values()):
            rule = f"is not a hub log of version {VERSION}"
            raise InvalidInput(
                "log", self._name, rule, "move it away and find out what it belongs to"
            )
        return True

    def _make_tables(self) -> None:
        """Make the tables of an empty file, and mark it as a log."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            found = self.db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            there = {name for (name,) in found}
            for name, table in self._tables.items():
                # another process may have made it since
                if name not in there:
                    self.db.execute(table)
            self.db.execute(f"PRAGMA application_id = {_APPLICATION}")
            self.db.execute(f"PRAGMA user_version = {VERSION}")
            self.db.execute("COMMIT")
        except BaseException:
            self.db.execute("ROLLBACK")
            raise

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Context in which errors of SQLite become the package's, with what to do."""
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:
            # An error without SQLite's name: the connection is closed (ProgrammingError), or a text
            # of the file, or SQLite's message, could not be decoded.
            plain = "SQLITE_CORRUPT"
            if isinstance(error, sqlite3.ProgrammingError):
                plain = "is closed"
            code = str(getattr(error, "sqlite_errorname", plain))
            if code.startswith(_DAMAGE):
                rule = "is not a hub log or is damaged"
                raise InvalidInput(
                    "log", self._name, rule, "move it away and check the disk"
                ) from None
            if code.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
                code = "cannot be written: the disk is full or fails"
            elif code.startswith("SQLITE_CANTOPEN"):
                code = "cannot be opened: no right to it, or no file descriptors left"
            raise SottovoceError(
                f"log={self._name!r}: {code}; the sites wait and try again"
            ) from None


def _prepare_writable(path: Path) -> str:
    """Make the file if it is absent, check that it can be written, and return its name."""
    try:
        # SQLite gives the files that it makes beside the log the rights of the log.
        path.touch(mode=0o600)
    except OSError as error:
        rule = f"cannot be written: {error.strerror}"
        raise InvalidInput(
            "log", str(path), rule, "give the hub write access to its folder"
        ) from None
    if not path.is_file():
        rule = "is not a hub log: it is not a file"
        raise InvalidInput("log", str(path), rule, "move it away")
    return str(path)


def _read_only_uri(path: Path) -> str:
    """Return the URI by which SQLite reads a log and writes nothing.

    While a process writes, its write-ahead log (``-wal``) lies beside the file and is read, too.
    If there is none, nobody writes, and the file is opened as immutable: else SQLite would make
    files beside it, which may belong to another user than the hub's.
    """
    if not path.is_file():
        raise InvalidInput("log", str(path), "is not a file", "start the hub")
    uri = f"{path.resolve().as_uri()}?mode=ro"
    if path.with_name(f"{path.name}-wal").exists():
        return uri
    return f"{uri}&immutable=1"
