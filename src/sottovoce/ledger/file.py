"""The open file of a log: durable commits, by threads and processes that take turns.

A commit is in the file before the call returns (``journal_mode=DELETE``, ``synchronous=EXTRA``).
Where the file may lie, who may use it, and what a process that died may have left beside it:
:mod:`sottovoce.ledger.locked_path`.

Schema 3's write-ahead log is folded in when the file is opened, provided that it takes the file
forward.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Generic

from ..errors import (
    InvalidInput,
    LedgerCorrupt,
    LedgerError,
    LedgerMismatch,
    NotWritten,
    format_declared_value,
)
from ..util import files
from ..util.plain import canonical_json, personalised_hash
from ..util.typing import Any
from .chain import APPLICATION, OF_PRESENT_SCHEMA, SCHEMA_VERSION, TABLES, Chain, F, hash_of_record
from .connection import alone, make_synchronous, open_connection
from .locked_path import LockedPath, exclusively_locked

_OLDEST_SQLITE = (3, 37, 0)
"""The first SQLite with strict tables."""


class ChainFile(Generic[F]):
    """One open log.  A forked process opens it anew.

    Safe to use from several processes and threads.

    Parameters
    ----------
    path : path
    blank : callable ``(secret) -> state``
        Makes the state before the first record from the file's secret key.
    timeout : float
        Seconds to wait for other processes.

    Attributes
    ----------
    chain : Chain
        What this process has read of the log.  Of use inside a :meth:`transaction`, which reads
        what others wrote.
    name : str
        The file as errors call it.
    path, real : Path
        As it was given, and without links.

    Raises
    ------
    LedgerError
        If the file is missing, damaged, edited, in use or of another version.
    """

    def __init__(
        self, path: str | Path, blank: Callable[[bytes], F], timeout: float = 30.0
    ) -> None:
        self.path, self.timeout = Path(path), timeout
        self.name = f"ledger={str(path)!r}"
        self._locked_path = LockedPath(path, self.name, blank, timeout)
        self.real = self._locked_path.real
        self._pid = os.getpid()
        self._lock = threading.RLock()
        # True if the state holds a record that is not committed.
        self._ahead = False
        self._waiting: list[tuple[dict[str, Any], bytes]] = []
        with self._locked_path.hold_exclusive_turn() as logged:
            self._db = open_connection(self.real, timeout)
            self.chain = Chain(self._db, self.name, blank)
            try:
                with self.chain.translating_errors():
                    self._convert_and_synchronise(logged)
            except BaseException:
                self._db.close()
                raise
        try:
            self.read()
        except BaseException:
            self._db.close()
            raise

    @staticmethod
    def create(path: str | Path, first: Callable[[bytes], dict[str, Any]]) -> None:
        """Make the file, for this user only; `first` makes its first record from its secret key.

        LedgerError if the file exists; NotWritten if it cannot be written, and then neither the
        file is left nor a folder that was made for it.
        """
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            raise LedgerError(
                f"SQLite {sqlite3.sqlite_version}: version 3.37 or later is needed; "
                "use a newer build of Python"
            )
        file = Path(path)
        new_folders = [folder for folder in file.parents if not folder.exists()]
        secret, file_id = os.urandom(32), os.urandom(16)
        body = canonical_json(first(secret))
        head = hash_of_record(personalised_hash(file_id), 1, body)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            _remove_empty(new_folders)
            if isinstance(error, FileExistsError):
                # One of the folders is a file.
                error = NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            raise _not_written_error(file, error) from None
        try:
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise LedgerError(
                f"ledger={str(path)!r}: exists already; open it if it is a ledger, "
                "or choose another path"
            ) from None
        except OSError as error:
            _remove_empty(new_folders)
            raise _not_written_error(file, error) from None
        try:
            with (
                exclusively_locked(file, f"ledger={str(path)!r}", 30.0),
                closing(open_connection(file, 30.0)) as db,
            ):
                make_synchronous(db)
                db.execute("BEGIN IMMEDIATE")
                for table in TABLES:
                    db.execute(table)
                db.execute("INSERT INTO meta VALUES (1, ?, ?, 1, ?)", (file_id, secret, head))
                db.execute("INSERT INTO log VALUES (1, ?, ?)", (body, head))
                db.execute(f"PRAGMA application_id = {APPLICATION}")
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                db.execute("COMMIT")
            # SQLite syncs the folder for its journals, not for the file itself.
            if hasattr(os, "O_DIRECTORY"):
                folder = os.open(file.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        except BaseException as error:
            file.unlink(missing_ok=True)
            file.with_name(f"{file.name}-journal").unlink(missing_ok=True)
            _remove_empty(new_folders)
            if isinstance(error, OSError | sqlite3.Error):
                raise _not_written_error(file, error) from None
            raise

    def close(self) -> None:
        """Close the file, once what waits to be appended is in it."""
        # A forked copy of the connection belongs to the parent.
        if os.getpid() != self._pid:
            return
        with self._lock:
            try:
                if self._waiting:
                    # LedgerMismatch: another went on with the run, so these bytes go to nobody.
                    with suppress(LedgerMismatch):
                        self.read()
            finally:
                self._db.close()

    @contextmanager
    def transaction(self, mode: str = "IMMEDIATE") -> Iterator[F]:
        """Read the file once, or change it by one record; yields the state.

        On any error nothing is changed.
        """
        # SQLite's locks do not survive a fork.
        if os.getpid() != self._pid:
            raise LedgerError(
                f"{self.name}: was opened before a fork; open it again in this process"
            )
        with (
            self._lock,
            self._locked_path.hold_exclusive_turn() as logged,
            self.chain.translating_errors(),
        ):
            if logged:
                raise LedgerError(
                    f"{self.name}: a write-ahead log appeared next to it while it was open; "
                    "open it again"
                )
            # What waits is appended first, so that even a read needs the right to write then.
            if self._waiting:
                mode = "IMMEDIATE"
            self._db.execute(f"BEGIN {mode}")
            self._ahead = False
            try:
                self.chain.apply_new_records()
                self._append_waiting_records()
                yield self.chain.state
                self._db.execute("COMMIT")
                self._waiting.clear()
            except BaseException:
                # The state holds a record that the file will not have: fold it anew at the next
                # read.
                if self._ahead:
                    self.chain.forget_all_records()
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def read(self) -> F:
        """Return the state, with what others wrote."""
        with self.transaction("DEFERRED") as state:
            return state

    def append_record(self, record: dict[str, Any], payload: bytes | None = None) -> None:
        """Add a record, inside a transaction."""
        self._ahead = True
        # And not when it is opened, so that an earlier version can end its runs.
        if record["kind"] in OF_PRESENT_SCHEMA:
            _mark_present_schema(self._db)
        self.chain.append_record(record, payload)

    def later(self, record: dict[str, Any], payload: bytes) -> None:
        """Append a record first thing in the next transaction of this object, whatever that is for.

        The caller hands out nothing that depends on it before that is over.
        """
        self._waiting.append((record, payload))

    def _append_waiting_records(self) -> None:
        """Append what :meth:`later` put off, inside a transaction."""
        try:
            for record, payload in self._waiting:
                self.append_record(record, payload)
        except (ValueError, KeyError):
            # The state refuses them: another process was first.
            self._waiting.clear()
            raise LedgerMismatch(
                f"{self.name}: another process continued the same run in the meantime; "
                "this process handed out nothing; use one process for each run"
            ) from None

    def head(self) -> str:
        """Return the count and hash of the last record, ``"12:9f..."``.

        Noted elsewhere, it detects an older copy of the file.
        """
        with self.transaction("DEFERRED"):
            return self.chain.head()

    def expect(self, head: str) -> None:
        """Check that the log contains an earlier :meth:`head`.

        Raises
        ------
        LedgerCorrupt
            If it does not: it is another log, or an older copy.
        InvalidInput
            If `head` has not the form of a head.
        """
        count, _, text = head.removeprefix("head ").strip().partition(":")
        if not count.isdecimal() or not re.fullmatch("[0-9a-f]{64}", text):
            rule = "must be a count, a colon and 64 hexadecimal digits"
            raise InvalidInput("head", head, rule, "give the last line of `sottovoce ledger show`")
        with self.transaction("DEFERRED"):
            if not self.chain.has_record_with_hash(int(count), bytes.fromhex(text)):
                self.chain.raise_corrupt(
                    f"does not contain the expected head at record {count}: "
                    "it is another ledger or an older copy"
                )

    def contains_head(self, head: str) -> bool:
        """Return True if the log contains an earlier :meth:`head`."""
        try:
            self.expect(head)
        except (InvalidInput, LedgerCorrupt):
            return False
        return True

    def contains_hash(self, mark: str) -> bool:
        """Return True if a record has this hexadecimal hash: a :meth:`head` without its count."""
        with self.transaction("DEFERRED"):
            if not re.fullmatch("[0-9a-f]{64}", mark):
                return False
            return self.chain.contains_hash(bytes.fromhex(mark))

    def verify(self, expected_head: str | None = None) -> str:
        """Verify the whole file from its first record, payloads included; returns its head.

        Raises
        ------
        LedgerCorrupt
            If anything was edited, removed, added or moved, or the log lacks `expected_head`, which
            was noted earlier.
        """
        with self.transaction("DEFERRED"):
            self.chain.verify_from_start()
        if expected_head is not None:
            self.expect(expected_head)
        return self.head()

    def export_records(self, path: str | Path) -> None:
        """Write all records as JSON lines with their hashes: no data, no key and no payload."""
        with self.transaction("DEFERRED"):
            chain = self.chain
            header = {
                "file_id": chain.file_id.hex(),
                "version": SCHEMA_VERSION,
                "records": chain.records,
            }
            lines = [canonical_json(header | {"hash": chain.head().partition(":")[2]})]
            found = self._db.execute("SELECT id, body, hash FROM log ORDER BY id")
            for number, body, stored in found:
                line = {"n": number, "record": json.loads(body), "hash": stored.hex()}
                lines.append(canonical_json(line))
        files.write_atomically("out", path, "\n".join(lines) + "\n")

    def _convert_and_synchronise(self, logged: bool) -> None:
        """Make commits durable (fullfsync: macOS), and convert schema 3."""
        log = self._locked_path.path_with_suffix("-wal")
        if logged and log.is_file() and log.stat().st_size:
            self._locked_path.check_write_ahead_log(log)
        version = self.chain.read_identity()
        # The switch folds the log in, which SQLite refuses while another process has it open.
        if logged and self._db.execute("PRAGMA journal_mode = DELETE").fetchone()[0] != "delete":
            raise LedgerError(
                f"{self.name}: is in use by a process of an older version; "
                "try again when that process has ended"
            )
        make_synchronous(self._db)
        # Readers of schema 3 would write a log beside the file again.
        if version == 3:
            _mark_present_schema(self._db)


def read_without_lock(path: str | Path, blank: Callable[[bytes], F]) -> Chain[F]:
    """Return the log as the file alone says, without a lock or any change.

    LedgerError if it cannot be read.
    """
    name = f"ledger={str(path)!r}"
    if not Path(path).is_file():
        raise LedgerError(f"{name}: no such file; give the path of a ledger")
    try:
        with alone(Path(path), name, blank) as chain:
            chain.apply_new_records()
        return chain
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"{name}: cannot be read: {error}; correct that, and try again") from None


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders, the deepest first, up to the first that another process uses by now."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _mark_present_schema(db: sqlite3.Connection) -> None:
    """Say in the file that it is of the present schema.

    Undone with the transaction that it is in.
    """
    if db.execute("PRAGMA user_version").fetchone()[0] != SCHEMA_VERSION:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _not_written_error(file: Path, error: Exception) -> NotWritten:
    """Return the error for a file that cannot be written."""
    reason = getattr(error, "strerror", None) or str(error)
    return NotWritten(
        f"ledger={format_declared_value(file)}: cannot be written: {reason}; free some space, or "
        "give another path"
    )
