"""A log of JSON lines for a site's or a hub's operator: who, when, what, and the plan's digest.

Nothing in it is a data value, and its size is bounded: a file that is full is renamed, and one such
file is kept.  When something happened can depend on rows, so a site's log is for the site alone.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from ..errors import InvalidInput
from ..util.plain import format_json_text
from ..util.typing import Any

FULL = 4 * 2**20
"""Bytes from which on a file is renamed; with the one before, a log has twice as many."""
_LONGEST = 2**16
"""The most bytes of a line; of a longer one only who and what are kept."""


class EventsLog:
    """Writes events to a file; safe for several threads.

    A disk that takes none ends nothing: it is told once, and again after a line was written.

    Parameters
    ----------
    path : Path
        Made if absent, for this user only.
    who : str
        The site, or ``hub``.
    tell : callable ``(line)``
        Called with the reason when lines can no longer be written.
    full : int
        Bytes from which on the file is renamed, to the same name and ``.1``.
    clock : callable
        Returns the time in seconds since 1970.

    Raises
    ------
    InvalidInput
        If the file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        who: str,
        tell: Callable[[str], None],
        full: int = FULL,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._who = who
        self._tell = tell
        self._full = full
        self._clock = clock
        self._lock = threading.Lock()
        self._failed = False
        if path.exists() and not path.is_file():
            raise InvalidInput("log_json", path, "is not a file", "give another path")
        try:
            self._append(b"")
        except OSError as error:
            rule = f"cannot be written: {error.strerror}"
            raise InvalidInput("log_json", path, rule, "give another path") from None

    def write(self, what: str, plan: str | None, /, **more: Any) -> None:
        """Write a line.

        Parameters
        ----------
        what : str
            The kind of event.
        plan : str or None
            Digest of the plan that it is about.
        **more
            Plain data.
        """
        at = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="seconds")
        entry = {"at": at, "who": self._who, "what": what, "plan": plan}
        line = format_json_text(entry | more).encode() + b"\n"
        if len(line) > _LONGEST:
            line = format_json_text(entry | {"cut": len(line)}).encode() + b"\n"
        with self._lock:
            try:
                if self._path.exists() and self._path.stat().st_size + len(line) > self._full:
                    os.replace(self._path, self._path.with_name(f"{self._path.name}.1"))
                if self._failed:
                    # the last line may have been cut
                    line = b"\n" + line
                self._append(line)
            except OSError as error:
                before, self._failed = self._failed, True
                if not before:
                    self._tell(f"{self._path}: cannot be written: {error.strerror}")
            else:
                self._failed = False

    def _append(self, line: bytes) -> None:
        """Append to the file in one write."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        descriptor = os.open(self._path, flags, 0o600)
        try:
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
