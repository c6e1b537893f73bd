"""An append-only log in one SQLite file, in which every record vouches for all before it.

Record i holds canonical JSON and ``h_i = BLAKE2b(h_{i-1}, i, JSON)``, where ``h_0`` is the hash of the file's random
id; count and last hash are kept a second time.  State is a fold over the log, and whatever is read is verified on the
way.  A change is one ``BEGIN IMMEDIATE`` transaction that reads what others wrote, decides and appends, and it is on
the disk (WAL, ``synchronous=FULL``) before the call returns.

::

    LedgerError                  cannot be read or written, or is asked for what its rows do not allow
    ├── LedgerCorrupt            the file is damaged, was edited, or went back
    ├── LedgerMismatch           another data set, another plan, another event
    └── LedgerVersion            another version of the schema
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, NoReturn, Protocol, TypeVar

import numpy as np

from ..errors import InvalidInput, LedgerCorrupt, LedgerError, LedgerVersion, SottovoceError
from ..typing import Any

SCHEMA_VERSION = 3
_APPLICATION = 0x736F7474  # "sott": tells a ledger from any other SQLite file
_PERSON = b"sottovoce ledger"
_OLDEST_SQLITE = (3, 37, 0)  # strict tables
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR", "SQLITE_MISMATCH")  # ERROR: a table is missing
_TABLES = (
    "CREATE TABLE meta (id INTEGER PRIMARY KEY CHECK (id = 1), file_id BLOB NOT NULL, secret BLOB NOT NULL, "
    "records INTEGER NOT NULL, head BLOB NOT NULL) STRICT",
    "CREATE TABLE log (id INTEGER PRIMARY KEY, body TEXT NOT NULL, hash BLOB NOT NULL) STRICT",
    "CREATE TABLE payload (id INTEGER PRIMARY KEY, bytes BLOB NOT NULL) STRICT",  # id: of the record that names it
)


def canonical(value: Any) -> str:
    """The one JSON text of `value`: sorted keys, no spaces, shortest floats that read back exactly."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)
    except ValueError as error:
        raise InvalidInput("event", None, "parameters must be finite numbers or texts", "see its attributes") from error


def jsonable(value: Any) -> Any:
    """Plain data in which infinities are the texts ``inf`` and ``-inf``, since JSON has none."""
    if isinstance(value, dict):
        return {k: jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(v) for v in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise ValueError(type(value).__name__)


def keyed_hash(*parts: bytes, key: bytes = b"") -> bytes:
    """BLAKE2b of 32 bytes, of this library's own kind."""
    return hashlib.blake2b(b"".join(parts), digest_size=32, key=key, person=_PERSON).digest()


def link(head: bytes, number: int, body: str) -> bytes:
    """Hash of record `number`, after a record of hash `head`."""
    return keyed_hash(head, number.to_bytes(8, "big"), body.encode())


class Fold(Protocol):
    """What a log says."""

    def apply(self, number: int, record: dict[str, Any]) -> None:
        """Take one record in.  ValueError, KeyError or TypeError if it cannot follow those before it."""

    def payloads(self) -> dict[int, str]:
        """Records that own a payload, with the payload's digest."""


F = TypeVar("F", bound=Fold)


class ChainFile(Generic[F]):
    """One open log.  Safe to use from several processes and threads; a forked process opens it anew.

    Parameters
    ----------
    path : path
    blank : callable
        From the file's secret key to the state before the first record.
    timeout : float
        Seconds to wait for other processes.

    Attributes
    ----------
    state : Fold
        As of the last transaction.
    """

    state: F
    records: int
    secret: bytes

    def __init__(self, path: str | Path, blank: Callable[[bytes], F], timeout: float = 30.0) -> None:
        self.path, self.name = Path(path), f"ledger={str(path)!r}"
        self._pid, self._lock, self._blank = os.getpid(), threading.RLock(), blank
        self._head, self._ahead = b"", False
        if not self.path.is_file():
            raise LedgerError(
                f"{self.name}: no such file; `sottovoce ledger init` makes one, once for a data set; if it was "
                "lost, count its budget as spent"
            )
        with self._translated():
            self._db = _connect(self.path, timeout)
        try:
            with self._translated():
                self._identify()
                _settle(self._db)
                found = self._db.execute("SELECT file_id, secret FROM meta").fetchone()
            if found is None or not all(isinstance(value, bytes) for value in found):
                self._corrupt("its head is missing")
            self.file_id, self.secret = found
            self._forget()
            with self.transaction("DEFERRED"):
                pass
        except BaseException:
            self._db.close()
            raise

    @staticmethod
    def create(path: str | Path, first: Callable[[bytes], dict[str, Any]]) -> None:
        """Make the file, for this user only; `first` makes its first record from its secret key.

        Raises
        ------
        LedgerError
            If the file exists.
        """
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            raise LedgerError(f"SQLite {sqlite3.sqlite_version}: 3.37 is needed; use a newer build of Python")
        file, secret, file_id = Path(path), os.urandom(32), os.urandom(16)
        body = canonical(first(secret))
        head = link(keyed_hash(file_id), 1, body)
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise LedgerError(
                f"ledger={str(path)!r}: exists; open it, or if it is no ledger choose another path"
            ) from None
        db = _connect(file, 30.0)
        try:
            _settle(db)
            db.execute("BEGIN IMMEDIATE")
            for table in _TABLES:
                db.execute(table)
            db.execute("INSERT INTO meta VALUES (1, ?, ?, 1, ?)", (file_id, secret, head))
            db.execute("INSERT INTO log VALUES (1, ?, ?)", (body, head))
            db.execute(f"PRAGMA application_id = {_APPLICATION}")
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            db.execute("COMMIT")
            db.close()
            if hasattr(os, "O_DIRECTORY"):  # SQLite syncs the folder for its journals, not for the file itself
                folder = os.open(file.parent, os.O_RDONLY)
                os.fsync(folder)
                os.close(folder)
        except BaseException:
            db.close()
            file.unlink()
            raise

    def close(self) -> None:
        """Close the file; the last process to do so folds SQLite's write-ahead log into it."""
        if os.getpid() == self._pid:  # a forked copy of the connection belongs to the parent
            with self._lock:
                self._db.close()

    @contextmanager
    def transaction(self, mode: str = "IMMEDIATE") -> Iterator[None]:
        """One look at the file, or one change of it by one record; on any error nothing is changed."""
        if os.getpid() != self._pid:  # SQLite's locks do not survive a fork
            raise LedgerError(f"{self.name}: was opened before a fork; open it again in this process")
        with self._lock, self._translated():
            self._db.execute(f"BEGIN {mode}")
            self._ahead = False
            try:
                self._sync()
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._ahead:
                    self._forget()
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def read(self) -> F:
        """The state as of now."""
        with self.transaction("DEFERRED"):
            return self.state

    def append(self, record: dict[str, Any], payload: bytes | None = None) -> None:
        """Add a record inside a transaction.  The state takes it in first: none is written that could not be read."""
        body, number = canonical(record), self.records + 1
        head = link(self._head, number, body)
        self._ahead = True
        self.state.apply(number, json.loads(body))
        self.records, self._head = number, head
        self._db.execute("INSERT INTO log VALUES (?, ?, ?)", (number, body, head))
        self._db.execute("UPDATE meta SET records = ?, head = ?", (number, head))
        if payload is not None:
            self._db.execute("INSERT INTO payload VALUES (?, ?)", (number, payload))

    def payload(self, number: int, digest: str) -> bytes:
        """The payload of record `number`, inside a transaction.

        Raises
        ------
        LedgerCorrupt
            If it is not the one whose digest the record names.
        """
        found = self._db.execute("SELECT bytes FROM payload WHERE id = ?", (number,)).fetchone()
        if found is None or not isinstance(found[0], bytes) or keyed_hash(found[0]).hex() != digest:
            self._corrupt(f"the payload of record {number} was edited or removed")
        return found[0]

    def head(self) -> str:
        """Count and hash of the last record."""
        with self.transaction("DEFERRED"):
            return f"{self.records}:{self._head.hex()}"

    def expect(self, head: str) -> None:
        """Refuse a log that does not go through `head`."""
        count, _, text = head.removeprefix("head ").strip().partition(":")
        if not count.isdecimal() or len(text) != 64:
            rule = "must be a count, a colon and 64 hexadecimal digits"
            raise InvalidInput("head", head, rule, "give the last line of `sottovoce ledger show`")
        with self.transaction("DEFERRED"):
            found = self._db.execute("SELECT hash FROM log WHERE id = ?", (int(count),)).fetchone()
            if found is None or found[0].hex() != text:
                self._corrupt(f"does not go through the expected head at record {count}: another, or an older copy")

    def verify(self) -> None:
        """Verify everything from the first record, payloads included."""
        with self.transaction("DEFERRED"):
            self._forget()
            self._sync()
            if self._db.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
                self._corrupt("SQLite finds damaged pages")
            if self._db.execute("SELECT count(*) FROM log").fetchone()[0] != self.records:
                self._corrupt("holds records outside its chain")
            owners = self.state.payloads()
            if {number for (number,) in self._db.execute("SELECT id FROM payload")} != owners.keys():
                self._corrupt("payloads were added or removed")
            for number, digest in owners.items():
                self.payload(number, digest)

    def export(self, path: str | Path) -> None:
        """Write a header and every record with its hash as JSON lines.  Neither the key nor any payload is in it."""
        with self.transaction("DEFERRED"), Path(path).open("w", encoding="utf-8") as file:
            header = {"file_id": self.file_id.hex(), "version": SCHEMA_VERSION, "records": self.records}
            file.write(canonical(header | {"hash": self._head.hex()}) + "\n")
            for number, body, stored in self._db.execute("SELECT id, body, hash FROM log ORDER BY id"):
                file.write(canonical({"n": number, "record": json.loads(body), "hash": stored.hex()}) + "\n")

    def _forget(self) -> None:
        self.state, self.records, self._head = self._blank(self.secret), 0, keyed_hash(self.file_id)

    def _sync(self) -> None:
        """Fold what was appended since the last look, by whomever."""
        records, head = self._db.execute("SELECT records, head FROM meta").fetchone() or (0, b"")
        try:
            if self.records:
                known = self._db.execute("SELECT hash FROM log WHERE id = ?", (self.records,)).fetchone()
                if known != (self._head,):
                    self._corrupt("went back behind what this process has read")
            for number, body, stored in self._db.execute(
                "SELECT id, body, hash FROM log WHERE id > ? ORDER BY id", (self.records,)
            ):
                sound = number == self.records + 1 and isinstance(body, str)  # damage can undo strict tables
                if not sound or stored != link(self._head, number, body):
                    self._corrupt(f"record {self.records + 1} was edited, removed or moved")
                try:
                    self.state.apply(number, json.loads(body))
                except SottovoceError:
                    raise  # an event or accountant of a newer version: says so itself
                except (ValueError, KeyError, TypeError):
                    self._corrupt(f"record {number} does not follow from those before it")
                self.records, self._head = number, stored
            if (self.records, self._head) != (records, head):
                self._corrupt(f"holds {self.records} records where {records} were written")
        except BaseException:
            self._forget()  # nothing that was folded so far is believed
            raise

    def _corrupt(self, what: str) -> NoReturn:
        raise LedgerCorrupt(
            f"{self.name}: {what}; spend nothing on this data set until it is known who changed the file"
        )

    def _identify(self) -> None:
        names = ("application_id", "user_version")
        application, version = (self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        if application != _APPLICATION:
            raise LedgerCorrupt(f"{self.name}: is not a ledger; give the path of one, or make one with create")
        if version != SCHEMA_VERSION:
            raise LedgerVersion(
                f"{self.name}: has schema {version}, this version reads {SCHEMA_VERSION}; use the version that wrote it"
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:
            # Without a code: the connection is closed, or the module could not decode a text, be it SQLite's message.
            plain = "is closed" if isinstance(error, sqlite3.ProgrammingError) else "SQLITE_CORRUPT"
            code = getattr(error, "sqlite_errorname", plain)
            if code.startswith("SQLITE_BUSY"):
                raise LedgerError(f"{self.name}: is in use by another process; try again when it is done") from error
            if code.startswith(_DAMAGE):
                raise LedgerCorrupt(
                    f"{self.name}: is damaged or not a ledger; count its budget as spent, unless every record up to "
                    "the last head that was noted is recovered"
                ) from error
            raise LedgerError(f"{self.name}: {code}; hand out nothing, repair the cause, then open it again") from error


def _connect(file: Path, timeout: float) -> sqlite3.Connection:
    # isolation_level None: Python opens no transaction of its own.  Threads are kept apart by the lock above.
    return sqlite3.connect(
        f"{file.resolve().as_uri()}?mode=rw", uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
    )


def _settle(db: sqlite3.Connection) -> None:
    """What a commit means here: it is on the disk, also after a loss of power (fullfsync: macOS)."""
    if db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise LedgerError("ledger: this file system carries no write-ahead log; keep the ledger on a local disk")
    for pragma in ("synchronous = FULL", "fullfsync = ON", "checkpoint_fullfsync = ON", "trusted_schema = OFF"):
        db.execute(f"PRAGMA {pragma}")
