"""A file lock, so that only one process at a time takes part for a site or serves a hub.

The operating system releases it when the process ends.  Two processes at once would not harm
privacy, since the ledger lets only one of them draw noise, but neither could finish its run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ..errors import Busy, InvalidInput
from ..util.typing import Any

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

AFTER_A_KILL = 1.0
"""Seconds within which the system releases the lock of a killed process."""
_LOOK = 0.1
"""Seconds between two attempts to get the lock."""


@contextmanager
def exclusive_lock(path: Path, wait: float = AFTER_A_KILL) -> Iterator[None]:
    """Hold the lock of a file, waiting up to `wait` seconds for it.

    The file stays afterwards: only the lock on it counts, not whether it exists.  Raises
    :class:`Busy` if another process holds the lock, or :class:`InvalidInput` if the file cannot be
    made or locked.
    """
    until = time.monotonic() + wait
    try:
        file = path.open("a")
    except OSError as error:
        rule = f"cannot be written: {error.strerror}"
        raise InvalidInput(
            "lock", str(path), rule, "give this user write access to its folder"
        ) from None
    with file:
        while not _try_to_lock(file, path):
            if time.monotonic() > until:
                raise Busy(
                    f"lock={str(path)!r}: another process holds it; stop that process or wait for "
                    "its end"
                )
            time.sleep(_LOOK)
        yield


def _try_to_lock(file: IO[Any], path: Path) -> bool:
    """Try to lock a file; returns False if another process holds the lock."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        raise InvalidInput(
            "lock", str(path), f"cannot be locked: {error.strerror}", "use a local disk"
        ) from None
    return True
