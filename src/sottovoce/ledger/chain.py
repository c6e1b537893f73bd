"""An append-only log in one SQLite file; every record holds a hash of all records before it.

Record i holds canonical JSON and ``h_i = BLAKE2b(h_{i-1}, i, JSON)``, where ``h_0`` is the hash of
the file's random id.  The *head*, the number of records and the last hash, is kept a second time.
A record may own a *payload*, bytes that its digest names.  The state (:class:`Fold`) follows from
applying all records in order, and every record is verified as it is read.  A change is one
transaction that reads what others wrote, decides and appends.

::

    LedgerError                  cannot be read or written, or its rows do not allow it
    ├── LedgerCorrupt            the file is damaged, was edited, or went back
    ├── LedgerMismatch           another data set, another plan, another event
    └── LedgerVersion            another version of the schema
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, NoReturn, Protocol, TypeVar

from ..errors import LedgerCorrupt, LedgerError, LedgerVersion, SottovoceError
from ..util.plain import canonical_json, personalised_hash
from ..util.typing import Any

SCHEMA_VERSION = 5
_READS = (3, 4, SCHEMA_VERSION)
"""Schemas that this version reads.  Schema 3 had SQLite's write-ahead log; records of 3 and 4 hold
every event whole."""
OF_PRESENT_SCHEMA = ("reserve", "charge", "consent")
"""Kinds of records that readers of earlier schemas cannot read."""
APPLICATION = 0x736F7474
"""The letters "sott", which tell a ledger from any other SQLite file."""
IN_USE = "is in use by another process; try again when that process has ended"
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR", "SQLITE_MISMATCH")
"""Codes of a damaged file: SQLITE_ERROR, for instance, if a table is missing."""
TABLES = (
    "CREATE TABLE meta (id INTEGER PRIMARY KEY CHECK (id = 1), file_id BLOB NOT NULL, secret BLOB "
    "NOT NULL, records INTEGER NOT NULL, head BLOB NOT NULL) STRICT",
    "CREATE TABLE log (id INTEGER PRIMARY KEY, body TEXT NOT NULL, hash BLOB NOT NULL) STRICT",
    # Its id is that of the record that names it.
    "CREATE TABLE payload (id INTEGER PRIMARY KEY, bytes BLOB NOT NULL) STRICT",
)


def hash_of_record(head: bytes, number: int, body: str) -> bytes:
    """Return the hash of a record, which depends on all records before it.

    Parameters
    ----------
    head : bytes
        Hash of the record before; of the file's random id for the first.
    number : int
        Position of the record in the log, from 1; hashed as 8 bytes, big-endian.
    body : str
        Canonical JSON of the record.

    Returns
    -------
    bytes
        BLAKE2b of the three.
    """
    return personalised_hash(head, number.to_bytes(8, "big"), body.encode())


class Fold(Protocol):
    """Interface of the state that follows from a log's records, applied in order."""

    def apply_record(self, number: int, record: dict[str, Any]) -> None:
        """Apply one record.

        ValueError, KeyError or TypeError if it cannot follow those before it.
        """

    def payload_digests(self) -> dict[int, str]:
        """Return the numbers of records that own a payload, each with the payload's digest."""


F = TypeVar("F", bound=Fold)


class Chain(Generic[F]):
    """The records of a log as one connection has read them, and the state that they add up to.

    Parameters
    ----------
    db : sqlite3.Connection
    name : str
        The file as errors call it.
    blank : callable ``(secret) -> state``
        Makes the state before the first record from the file's secret key.

    Attributes
    ----------
    state : Fold
        The fold over the records that were read; as of the last :meth:`apply_new_records`.
    records : int
        How many were read.
    secret, file_id : bytes
        The file's key and random id; set by :meth:`read_identity`.
    """

    state: F
    records: int
    secret: bytes
    file_id: bytes

    def __init__(self, db: sqlite3.Connection, name: str, blank: Callable[[bytes], F]) -> None:
        self._db, self.name, self._blank = db, name, blank
        self._head = b""

    def read_identity(self) -> int:
        """Read the file's identity and key, and return the version of its schema.

        LedgerCorrupt if it is no ledger, LedgerVersion if this version cannot read it.
        """
        application = self._db.execute("PRAGMA application_id").fetchone()[0]
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION:
            raise LedgerCorrupt(
                f"{self.name}: is not a ledger; give the path of a ledger, or create one"
            )
        if version not in _READS:
            raise LedgerVersion(
                f"{self.name}: has schema {version}, but this version of sottovoce reads "
                f"{SCHEMA_VERSION}; use the version that wrote it"
            )
        found = self._db.execute("SELECT file_id, secret FROM meta").fetchone()
        if found is None or not all(isinstance(value, bytes) for value in found):
            self.raise_corrupt("its head is missing")
        self.file_id, self.secret = found
        self.forget_all_records()
        return int(version)

    def append_record(self, record: dict[str, Any], payload: bytes | None = None) -> None:
        """Add a record inside a transaction.

        It is applied to the state first, so every record that is written can be read.
        """
        body = canonical_json(record)
        number = self.records + 1
        head = hash_of_record(self._head, number, body)
        # From the text that is written, as any later reader will parse it.
        self.state.apply_record(number, json.loads(body))
        self.records, self._head = number, head
        self._db.execute("INSERT INTO log VALUES (?, ?, ?)", (number, body, head))
        self._db.execute("UPDATE meta SET records = ?, head = ?", (number, head))
        if payload is not None:
            self._db.execute("INSERT INTO payload VALUES (?, ?)", (number, payload))

    def payload(self, number: int, digest: str) -> bytes:
        """Return the payload of record `number`, inside a transaction.

        LedgerCorrupt if it has not this digest.
        """
        found = self._db.execute("SELECT bytes FROM payload WHERE id = ?", (number,)).fetchone()
        if (
            found is None
            or not isinstance(found[0], bytes)
            or personalised_hash(found[0]).hex() != digest
        ):
            self.raise_corrupt(f"the payload of record {number} was edited or removed")
        return found[0]

    def apply_new_records(self) -> None:
        """Apply the records that any process appended since the last read."""
        records, head = self.read_second_head()
        # Records that follow one another are often the same: such a text is parsed once.
        last, record = "", dict[str, Any]()
        try:
            # A file that was replaced by an older copy lacks the last record that was read.
            if self.records and not self.has_record_with_hash(self.records, self._head):
                self.raise_corrupt("lacks records that this process has read before")
            for number, body, stored in self._db.execute(
                "SELECT id, body, hash FROM log WHERE id > ? ORDER BY id", (self.records,)
            ):
                # The type is checked although tables are strict, which damage can undo.
                sound = number == self.records + 1 and isinstance(body, str)
                if not sound or stored != hash_of_record(self._head, number, body):
                    self.raise_corrupt(f"record {self.records + 1} was edited, removed or moved")
                try:
                    if body != last:
                        last, record = body, json.loads(body)
                    self.state.apply_record(number, record)
                except SottovoceError:
                    # An event or accountant of a newer version says so itself.
                    raise
                except (ValueError, KeyError, TypeError):
                    self.raise_corrupt(f"record {number} contradicts the records before it")
                self.records, self._head = number, stored
            # By the second copy of count and hash: a chain that lost its last records is sound by
            # itself.
            if (self.records, self._head) != (records, head):
                self.raise_corrupt(f"holds {self.records} records, but {records} were written")
        except BaseException:
            # Nothing that was folded so far is believed.
            self.forget_all_records()
            raise

    def verify_from_start(self) -> None:
        """Verify everything from the first record, payloads included, inside a transaction."""
        self.forget_all_records()
        self.apply_new_records()
        if self._db.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
            self.raise_corrupt("SQLite reports damaged pages")
        # Records with numbers below 1 are not of the chain, and no sync reads them.
        if self._db.execute("SELECT count(*) FROM log").fetchone()[0] != self.records:
            self.raise_corrupt("holds records outside its chain")
        owners = self.state.payload_digests()
        if {number for (number,) in self._db.execute("SELECT id FROM payload")} != owners.keys():
            self.raise_corrupt("payloads were added or removed")
        for number, digest in owners.items():
            self.payload(number, digest)

    def forget_all_records(self) -> None:
        """Go back to the state before the first record."""
        self.state = self._blank(self.secret)
        self.records = 0
        self._head = personalised_hash(self.file_id)

    def head(self) -> str:
        """Return the count and hash of the last record that was read."""
        return f"{self.records}:{self._head.hex()}"

    def read_second_head(self) -> tuple[int, bytes]:
        """Return the count and hash of the last record, from their second copy."""
        return self._db.execute("SELECT records, head FROM meta").fetchone() or (0, b"")

    def has_record_with_hash(self, records: int, head: bytes) -> bool:
        """Return True if the record of this number has this hash."""
        found = self._db.execute("SELECT hash FROM log WHERE id = ?", (records,)).fetchone()
        return bool(found == (head,))

    def contains_hash(self, head: bytes) -> bool:
        """Return True if a record has this hash."""
        return self._db.execute("SELECT 1 FROM log WHERE hash = ?", (head,)).fetchone() is not None

    def raise_corrupt(self, what: str) -> NoReturn:
        """Raise LedgerCorrupt, with what is wrong."""
        raise LedgerCorrupt(
            f"{self.name}: {what}; "
            "release nothing from this data set until you know who changed the file"
        )

    @contextmanager
    def translating_errors(self) -> Iterator[None]:
        """Turn SQLite's errors into a ledger's: in use, damaged, or another cause by its code."""
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:
            # Without a code: a closed connection, or a text that could not be decoded, perhaps
            # SQLite's message.
            if isinstance(error, sqlite3.ProgrammingError):
                without_code = "is closed"
            else:
                without_code = "SQLITE_CORRUPT"
            code = getattr(error, "sqlite_errorname", without_code)
            if code.startswith("SQLITE_BUSY"):
                raise LedgerError(f"{self.name}: {IN_USE}") from error
            if code.startswith(_DAMAGE):
                raise LedgerCorrupt(
                    f"{self.name}: is damaged or not a ledger; treat its budget as spent, "
                    "unless you recover every record up to the last head that you noted"
                ) from error
            raise LedgerError(
                f"{self.name}: {code}; publish nothing, repair the cause, "
                "then open the ledger again"
            ) from error
