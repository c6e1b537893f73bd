"""The file of a log: one path, one user at a time, no SQLite journal between commits.

SQLite finds its journal by the file's *path*, and trusts whatever journal lies there (``docs/reference/ledger.md``).
So

- a file with several paths (a hard link, a mounted file) is refused, and every use holds a lock on the file itself;
- a commit is in the file before the call returns (``journal_mode=DELETE``, ``synchronous=EXTRA``);
- a journal that lies there all the same was left by a process that died during a commit, of which nobody had been told,
  or was put there.  If the file is whole without it, it is deleted.  If not, SQLite may roll the file back, provided
  that the journal belongs to the file's last change (SQLite counts changes on the first page); any other is refused.

Schema 3's write-ahead log is folded in when the file is opened, provided that it takes the file forward.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ..errors import InvalidInput, LedgerCorrupt, LedgerError, LedgerMismatch, NotWritten, shown
from ..util import files
from ..util.plain import canonical, keyed_hash
from ..util.typing import Any
from .chain import APPLICATION, OF_PRESENT_SCHEMA, SCHEMA_VERSION, TABLES, Chain, F, link

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_OLDEST_SQLITE = (3, 37, 0)  # strict tables
_JOURNAL = bytes.fromhex("d9d505f920a163d7")  # how SQLite's journals begin


class ChainFile(Chain[F]):
    """One open log.  Safe to use from several processes and threads; a forked process opens it anew.

    `blank` makes the state before the first record from the file's secret key; `timeout` is how many seconds to wait
    for other processes.
    """

    def __init__(self, path: str | Path, blank: Callable[[bytes], F], timeout: float = 30.0) -> None:
        self.path, self.real, self.timeout = Path(path), Path(os.path.realpath(path)), timeout
        self.name, self._blank = f"ledger={str(path)!r}", blank
        self._pid, self._lock, self._ahead = os.getpid(), threading.RLock(), False
        self._waiting: list[tuple[dict[str, Any], bytes]] = []
        self._inode: tuple[int, int] | None = None
        if not self.real.is_file():
            raise LedgerError(
                f"{self.name}: no such file; `sottovoce ledger init` makes one, once for a data set; if it was "
                "lost, count its budget as spent"
            )
        if _mounted(self.real):
            raise LedgerError(
                f"{self.name}: is mounted as a file, so what SQLite writes beside it is lost to its other path; mount "
                "the folder that holds it"
            )
        with self._turn() as beside:
            super().__init__(_connect(self.real, timeout), self.name, blank)
            try:
                with self.translated():
                    self._settle(beside)
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

        LedgerError if the file exists; NotWritten if it cannot be written, and then no file is left.
        """
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            raise LedgerError(f"SQLite {sqlite3.sqlite_version}: 3.37 is needed; use a newer build of Python")
        file, secret, file_id = Path(path), os.urandom(32), os.urandom(16)
        body = canonical(first(secret))
        head = link(keyed_hash(file_id), 1, body)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise LedgerError(
                f"ledger={str(path)!r}: exists; open it, or if it is no ledger choose another path"
            ) from None
        except OSError as error:
            raise _unwritten(file, error) from None
        try:
            with _held(file, f"ledger={str(path)!r}", 30.0), closing(_connect(file, 30.0)) as db:
                _synchronous(db)
                db.execute("BEGIN IMMEDIATE")
                for table in TABLES:
                    db.execute(table)
                db.execute("INSERT INTO meta VALUES (1, ?, ?, 1, ?)", (file_id, secret, head))
                db.execute("INSERT INTO log VALUES (1, ?, ?)", (body, head))
                db.execute(f"PRAGMA application_id = {APPLICATION}")
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                db.execute("COMMIT")
            if hasattr(os, "O_DIRECTORY"):  # SQLite syncs the folder for its journals, not for the file itself
                folder = os.open(file.parent, os.O_RDONLY)
                os.fsync(folder)
                os.close(folder)
        except BaseException as error:
            file.unlink()
            file.with_name(f"{file.name}-journal").unlink(missing_ok=True)
            if isinstance(error, OSError | sqlite3.Error):
                raise _unwritten(file, error) from None
            raise

    @staticmethod
    def glance(path: str | Path, blank: Callable[[bytes], F]) -> Chain[F]:
        """The log as the file alone says, without a lock or any change; LedgerError if it cannot be read."""
        name = f"ledger={str(path)!r}"
        if not Path(path).is_file():
            raise LedgerError(f"{name}: no such file; give the path of one")
        try:
            with _alone(Path(path), name, blank) as alone:
                alone.sync()
            return alone
        except (OSError, sqlite3.Error) as error:
            raise LedgerError(f"{name}: cannot be read: {error}; correct that, and try again") from None

    def close(self) -> None:
        if os.getpid() == self._pid:  # a forked copy of the connection belongs to the parent
            with self._lock:
                try:
                    if self._waiting:
                        with suppress(LedgerMismatch):  # another went on with the run, so these bytes go to nobody
                            self.read()
                finally:
                    self._db.close()

    @contextmanager
    def transaction(self, mode: str = "IMMEDIATE") -> Iterator[None]:
        """One read of the file, or one change by one record; on any error nothing is changed."""
        if os.getpid() != self._pid:  # SQLite's locks do not survive a fork
            raise LedgerError(f"{self.name}: was opened before a fork; open it again in this process")
        with self._lock, self._turn() as beside, self.translated():
            if beside:
                raise LedgerError(f"{self.name}: was given a log beside it while it was open; open it again")
            self._db.execute(f"BEGIN {'IMMEDIATE' if self._waiting else mode}")
            self._ahead = False
            try:
                self.sync()
                self._append_waiting()
                yield
                self._db.execute("COMMIT")
                self._waiting.clear()
            except BaseException:
                if self._ahead:
                    self.forget()
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def read(self) -> F:
        with self.transaction("DEFERRED"):
            return self.state

    def append(self, record: dict[str, Any], payload: bytes | None = None) -> None:
        self._ahead = True
        if record["kind"] in OF_PRESENT_SCHEMA:  # and not when it is opened: an earlier version can end its runs
            self._mark()
        super().append(record, payload)

    def later(self, record: dict[str, Any], payload: bytes) -> None:
        """Append it first thing in the next transaction of this object, whatever that is for.

        The caller hands out nothing that depends on it before that is over.
        """
        self._waiting.append((record, payload))

    def _append_waiting(self) -> None:
        try:
            for record, payload in self._waiting:
                self.append(record, payload)
        except (ValueError, KeyError):  # another process was first
            self._waiting.clear()
            raise LedgerMismatch(
                f"{self.name}: another process went on with the same run meanwhile; nothing of this one was handed "
                "out; use one process for a run"
            ) from None

    def expect(self, head: str) -> None:
        count, _, text = head.removeprefix("head ").strip().partition(":")
        if not count.isdecimal() or not re.fullmatch("[0-9a-f]{64}", text):
            rule = "must be a count, a colon and 64 hexadecimal digits"
            raise InvalidInput("head", head, rule, "give the last line of `sottovoce ledger show`")
        with self.transaction("DEFERRED"):
            if not self.goes_through(int(count), bytes.fromhex(text)):
                self.corrupt(f"does not go through the expected head at record {count}: another, or an older copy")

    def verify(self) -> None:
        with self.transaction("DEFERRED"):
            super().verify()

    def export(self, path: str | Path) -> None:
        """Write a header and every record with its hash as JSON lines, without the key or any payload."""
        with self.transaction("DEFERRED"):
            header = {"file_id": self.file_id.hex(), "version": SCHEMA_VERSION, "records": self.records}
            lines = [canonical(header | {"hash": self._head.hex()})]
            for number, body, stored in self._db.execute("SELECT id, body, hash FROM log ORDER BY id"):
                lines.append(canonical({"n": number, "record": json.loads(body), "hash": stored.hex()}))
        files.write("out", path, "\n".join(lines) + "\n")

    # One path, one user, nothing beside it

    @contextmanager
    def _turn(self) -> Iterator[bool]:
        """Lock the file and deal with a left-over journal; yields whether there is a write-ahead log."""
        with _held(self.real, self.name, self.timeout) as inode:
            if os.path.realpath(self.real) != str(self.real):  # a link stands there now: SQLite's journals do not move
                raise LedgerError(f"{self.name}: was moved or replaced meanwhile; open it where it is")
            if self._inode not in (None, inode):
                raise LedgerError(f"{self.name}: is another file than the one that was opened; open it again")
            self._inode = inode
            with self.real.open("rb") as file:
                header = file.read(28)
            journal, log = self._beside("-journal"), self._beside("-wal")
            if journal.is_file():
                self._judge(journal, int.from_bytes(header[24:28], "big"))
            logged = header[18:20] == b"\2\2"
            if log.is_file() and not logged:
                if log.stat().st_size:
                    self._strange(log)
                log.unlink()
            yield logged

    def _beside(self, suffix: str) -> Path:
        return self.real.with_name(self.real.name + suffix)

    def _strange(self, beside: Path) -> None:
        raise LedgerCorrupt(
            f"{self.name}: beside it lies {beside.name!r} of another time, which was not used; spend nothing until it "
            "is known who put it there, then move it away"
        )

    def _judge(self, journal: Path, changes: int) -> None:
        """Remove a needless journal, leave that of the last change to SQLite, refuse any other."""
        before = _changes_before(journal)
        if before is not None:
            if before not in (changes, changes - 1):
                self._strange(journal)
            try:
                with _alone(self.real, self.name, self._blank) as alone:
                    alone.verify()
            except LedgerCorrupt:
                return
        journal.unlink()

    def _settle(self, beside: bool) -> None:
        """Make commits durable (fullfsync: macOS), and convert schema 3."""
        log = self._beside("-wal")
        if beside and log.is_file() and log.stat().st_size:
            with _alone(self.real, self.name, self._blank) as alone:
                known = alone.written()
            with closing(_connect(self.real, self.timeout, "mode=ro")) as db:  # who only reads folds no log in
                db.execute("BEGIN")
                both = Chain(db, self.name, self._blank)
                both.identify()
                both.sync()
                if not both.goes_through(*known):
                    self._strange(log)
        version = self.identify()
        if beside and self._db.execute("PRAGMA journal_mode = DELETE").fetchone()[0] != "delete":
            raise LedgerError(f"{self.name}: is in use by a process of an older version; try again when it is done")
        _synchronous(self._db)
        if version == 3:  # whose readers would write a log beside the file again
            self._mark()

    def _mark(self) -> None:
        """Say in the file that it is of the present schema; undone with the transaction that it is in."""
        if self._db.execute("PRAGMA user_version").fetchone()[0] != SCHEMA_VERSION:
            self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _unwritten(file: Path, error: Exception) -> NotWritten:
    reason = getattr(error, "strerror", None) or str(error)
    return NotWritten(f"ledger={shown(file)}: cannot be written: {reason}; free some space, or give another path")


def _connect(file: Path, timeout: float, how: str = "mode=rw") -> sqlite3.Connection:
    # isolation_level None: Python opens no transaction of its own.  Threads are kept apart by the lock above.
    return sqlite3.connect(
        f"{file.resolve().as_uri()}?{how}", uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
    )


@contextmanager
def _alone(path: Path, name: str, blank: Callable[[bytes], F]) -> Iterator[Chain[F]]:
    """The log alone, without SQLite's companion files."""
    with closing(_connect(path, 0.0, "mode=ro&immutable=1")) as db:
        chain = Chain(db, name, blank)
        with chain.translated():
            chain.identify()
            yield chain


def _synchronous(db: sqlite3.Connection) -> None:
    # Without spilling a journal is written once, with the first page in it.
    for pragma in ("synchronous = EXTRA", "fullfsync = ON", "trusted_schema = OFF", "cache_spill = OFF"):
        db.execute(f"PRAGMA {pragma}")


def _changes_before(journal: Path) -> int | None:
    """The count of changes that a journal would bring the file back to; -1 if unknown, None if it holds nothing."""
    with journal.open("rb") as file:
        header = file.read(28)
        if len(header) < 28 or not header.startswith(_JOURNAL):
            return None
        count, _, _, sector, page = struct.unpack(">5I", header[8:])
        for record in range(count):
            file.seek(sector + record * (page + 8))
            start = file.read(32)
            if len(start) < 32:
                break
            if start[:4] == b"\0\0\0\1":
                return int.from_bytes(start[28:], "big")
    return -1 if count else None


def _mounted(path: Path) -> bool:
    try:
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return os.path.ismount(path)
    escaped = (line.split(" ")[4] for line in text.splitlines())
    points = {re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point) for point in escaped}
    return str(path) in points or os.path.ismount(path)


@contextmanager
def _held(path: Path, name: str, timeout: float) -> Iterator[tuple[int, int]]:
    """Lock the file against all other users; yields its device and inode.

    LedgerError if it is gone, has several paths, or is in use for too long.
    """
    # Linux keeps flock apart from SQLite's locks.  BSD does not, so that there the folder stands for the file.
    target = path if sys.platform in ("linux", "win32") else path.parent
    try:
        handle = os.open(target, os.O_RDWR if target == path else os.O_RDONLY)
    except OSError as error:
        raise LedgerError(
            f"{name}: cannot be opened ({error.strerror}); if it is lost, count its budget as spent"
        ) from None
    owner = os.getpid()
    try:
        until, pause = time.monotonic() + timeout, 0.0005
        while not _locked(handle):
            if time.monotonic() > until:
                raise LedgerError(f"{name}: is in use by another process; try again when it is done")
            time.sleep(pause)
            pause = min(2.0 * pause, 0.01)
        found = path.stat() if path.exists() else None
        if found is None or (target == path and not os.path.samestat(found, os.fstat(handle))):
            raise LedgerError(f"{name}: was moved or replaced meanwhile; open it where it is")
        if found.st_nlink > 1:
            raise LedgerError(
                f"{name}: has {found.st_nlink} paths (hard links), and what SQLite writes beside one is lost to the "
                "others; remove all but one"
            )
        yield found.st_dev, found.st_ino
    finally:
        if sys.platform != "win32" and os.getpid() == owner:  # a process that was forked meanwhile holds it, too
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        if sys.platform == "win32":
            os.lseek(handle, 1 << 40, os.SEEK_SET)  # a byte that nobody reads
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
