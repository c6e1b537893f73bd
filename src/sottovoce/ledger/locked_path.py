"""Safe use of a log's file: one path, one user at a time, no SQLite journal between commits.

SQLite finds its journal by the file's *path*, and trusts whatever journal lies there
(``docs/reference/ledger.md``). So

- a file with several paths (a hard link, a mounted file) is refused, and every use holds a lock on
  the file itself;
- a journal that lies there was left by a process that died during a commit, of which nobody had
  been told, or was put there.  If the file is whole without it, it is deleted.  If not, SQLite may
  roll the file back, provided that the journal belongs to the file's last change (SQLite counts
  changes on the first page); any other is refused.
"""

from __future__ import annotations

import os
import re
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NoReturn

from ..errors import LedgerCorrupt, LedgerError
from .chain import IN_USE, Chain, Fold
from .connection import alone, open_connection

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""The first bytes of SQLite's journals."""
_MOVED = "was moved or replaced while it was in use; open it at its present path"


class LockedPath:
    """The path of a log's file, and the lock that every use of the file holds.

    Parameters
    ----------
    path : path
        Links are followed.
    name : str
        The file as errors call it.
    blank : callable ``(secret) -> state``
        Makes the state before the first record, with which a file is verified.
    timeout : float
        Seconds to wait for other processes.

    Raises
    ------
    LedgerError
        If there is no such file, or it is mounted as a file.
    """

    def __init__(
        self, path: str | Path, name: str, blank: Callable[[bytes], Fold], timeout: float
    ) -> None:
        self.real = Path(os.path.realpath(path))
        self.name, self.timeout = name, timeout
        self._blank = blank
        self._inode: tuple[int, int] | None = None
        if not self.real.is_file():
            raise LedgerError(
                f"{self.name}: no such file; create it with `sottovoce ledger init`, "
                "once for each data set; if it was lost, treat its budget as spent"
            )
        if _is_mounted_as_file(self.real):
            raise LedgerError(
                f"{self.name}: is mounted as a file, so its other path lacks the journal that "
                "SQLite writes next to it; mount the folder that holds it"
            )

    @contextmanager
    def hold_exclusive_turn(self) -> Iterator[bool]:
        """Lock the file and deal with a left-over journal.

        Yields True if the file has a write-ahead log.
        """
        with exclusively_locked(self.real, self.name, self.timeout) as inode:
            # If a link stands there now: SQLite's journals do not move with the file.
            if os.path.realpath(self.real) != str(self.real):
                raise LedgerError(f"{self.name}: {_MOVED}")
            if self._inode not in (None, inode):
                raise LedgerError(f"{self.name}: is not the file that was opened; open it again")
            self._inode = inode
            with self.real.open("rb") as file:
                header = file.read(28)
            journal, log = self.path_with_suffix("-journal"), self.path_with_suffix("-wal")
            if journal.is_file():
                self._handle_leftover_journal(journal, int.from_bytes(header[24:28], "big"))
            # SQLite's header: bytes 18 and 19 are 2 for a write-ahead log, bytes 24 to 27 count
            # changes.
            logged = header[18:20] == b"\2\2"
            if log.is_file() and not logged:
                if log.stat().st_size:
                    self.refuse_foreign_file(log)
                log.unlink()
            yield logged

    def path_with_suffix(self, suffix: str) -> Path:
        """Return the path of a file that SQLite may have written beside the log."""
        return self.real.with_name(self.real.name + suffix)

    def check_write_ahead_log(self, log: Path) -> None:
        """Refuse a write-ahead log that does not take the file forward."""
        with alone(self.real, self.name, self._blank) as chain:
            known = chain.read_second_head()
        # A connection that only reads does not fold the log in.
        with closing(open_connection(self.real, self.timeout, "mode=ro")) as db:
            db.execute("BEGIN")
            both = Chain(db, self.name, self._blank)
            both.read_identity()
            both.apply_new_records()
            if not both.has_record_with_hash(*known):
                self.refuse_foreign_file(log)

    def refuse_foreign_file(self, beside: Path) -> NoReturn:
        """Raise LedgerCorrupt: a file beside the log is not of its last change."""
        raise LedgerCorrupt(
            f"{self.name}: {beside.name!r} next to it is not of its last change, and was not used; "
            "release nothing until you know who put it there, then move it away"
        )

    def _handle_leftover_journal(self, journal: Path, changes: int) -> None:
        """Remove a needless journal, leave that of the last change to SQLite, refuse any other."""
        before = _change_count_of_journal(journal)
        if before is not None:
            # A commit that died had written the first page, with the next count, or not yet.
            if before not in (changes, changes - 1):
                self.refuse_foreign_file(journal)
            try:
                with alone(self.real, self.name, self._blank) as log:
                    log.verify_from_start()
            except LedgerCorrupt:
                # The file is not whole without it: SQLite rolls it back when it is opened.
                return
        journal.unlink()


def _change_count_of_journal(journal: Path) -> int | None:
    """Return the count of changes that a journal would bring the file back to.

    -1 if unknown, None if it holds nothing.
    """
    with journal.open("rb") as file:
        header = file.read(28)
        if len(header) < 28 or not header.startswith(_JOURNAL):
            return None
        # A journal holds a header of one sector, then the pages of before: number, content,
        # checksum. Page 1 has the count of changes.
        count, _, _, sector, page = struct.unpack(">5I", header[8:])
        for record in range(count):
            file.seek(sector + record * (page + 8))
            start = file.read(32)
            if len(start) < 32:
                break
            if start[:4] == b"\0\0\0\1":
                return int.from_bytes(start[28:], "big")
    if count:
        return -1
    return None


def _is_mounted_as_file(path: Path) -> bool:
    """Return True if a file is mounted by itself, as containers do."""
    try:
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return os.path.ismount(path)
    escaped = (line.split(" ")[4] for line in text.splitlines())

    def character(octal: re.Match[str]) -> str:
        return chr(int(octal[1], 8))

    # The kernel writes blanks in a mount point as octal escapes.
    points = {re.sub(r"\\([0-7]{3})", character, point) for point in escaped}
    return str(path) in points or os.path.ismount(path)


@contextmanager
def exclusively_locked(path: Path, name: str, timeout: float) -> Iterator[tuple[int, int]]:
    """Hold an exclusive lock on a file, against all processes and threads that take it as well.

    Parameters
    ----------
    path : Path
    name : str
        The file as errors call it.
    timeout : float
        Seconds to wait for another user.

    Yields
    ------
    (int, int)
        Device and inode of the file.

    Raises
    ------
    LedgerError
        If the file is gone, has several hard links, or is in use for longer than `timeout`.
    """
    target, mode = path, os.O_RDWR
    # Linux keeps flock apart from SQLite's locks.  BSD does not, so that there the folder stands
    # for the file.
    if sys.platform not in ("linux", "win32"):
        target, mode = path.parent, os.O_RDONLY
    try:
        handle = os.open(target, mode)
    except OSError as error:
        raise LedgerError(
            f"{name}: cannot be opened ({error.strerror}); if it is lost, treat its budget as spent"
        ) from None
    owner = os.getpid()
    try:
        _wait_for_lock(handle, name, timeout)
        # The file may have been replaced while the lock was waited for.
        found = path.stat() if path.exists() else None
        if found is None or (target == path and not os.path.samestat(found, os.fstat(handle))):
            raise LedgerError(f"{name}: {_MOVED}")
        if found.st_nlink > 1:
            raise LedgerError(
                f"{name}: has {found.st_nlink} paths (hard links), and SQLite writes its journal "
                "next to one of them only; remove all but one"
            )
        yield found.st_dev, found.st_ino
    finally:
        # A process that was forked meanwhile holds the lock, too, and must not give it up.
        if sys.platform != "win32" and os.getpid() == owner:
            fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _wait_for_lock(handle: int, name: str, timeout: float) -> None:
    """Lock an open file, and try again for `timeout` seconds; LedgerError after that."""
    until = time.monotonic() + timeout
    pause = 0.0005
    while not _lock(handle):
        if time.monotonic() > until:
            raise LedgerError(f"{name}: {IN_USE}")
        time.sleep(pause)
        pause = min(2.0 * pause, 0.01)


def _lock(handle: int) -> bool:
    """Lock an open file, and return True, unless another user has it."""
    try:
        if sys.platform == "win32":
            # A byte that nobody reads, since Windows keeps others from a locked one.
            os.lseek(handle, 1 << 40, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
