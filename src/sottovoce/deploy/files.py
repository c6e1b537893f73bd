"""New files: written whole or not at all, and never over an existing file."""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import InvalidInput, NotWritten, format_declared_value

KEY = 2**16
"""The most bytes of a key or a certificate."""


def write_new_file(path: Path, data: bytes | str, *, secret: bool = False) -> None:
    """Write a new file in one step, and never over an existing one.

    A kill may leave a secret under a temporary name: see :func:`unfinished_files_of`.

    Parameters
    ----------
    path : Path
    data : bytes or str
        A text is written in UTF-8.
    secret : bool
        Readable by this user only, from its first byte.

    Raises
    ------
    InvalidInput
        If the file exists.
    NotWritten
        If it cannot be written.
    """
    # The temporary name of a secret holds its own, so that `unfinished_files_of` finds what a kill
    # left.
    lead, mode = "", 0o666
    if secret:
        lead, mode = f".{path.name}", 0o600
    temporary = path.with_name(f"{lead}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        _claim_name(temporary, path)
    except FileExistsError:
        remedy = "use another folder or name, or move it away"
        raise InvalidInput(
            "file", path, "already exists and is never overwritten", remedy
        ) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise NotWritten(
            f"file={format_declared_value(path)}: cannot be written: {reason}; free some "
            "disk space or correct the path"
        ) from None
    finally:
        # it has its name by now, or was never made
        with suppress(OSError):
            temporary.unlink()


def unfinished_files_of(path: Path) -> list[Path]:
    """Return temporary files that killed processes left of the secret at `path`."""
    return sorted(path.parent.glob(f".{glob.escape(path.name)}.*.tmp"))


def _claim_name(temporary: Path, path: Path) -> None:
    """Give a complete file its final name `path`; raises FileExistsError if that name is taken."""
    try:
        # A link and no rename: a rename would replace a file that has the name already.
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        # A file system without links: the name is taken by an empty file first, which only the
        # first of two processes can make.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            os.replace(temporary, path)
        except OSError:
            path.unlink()
            raise


@contextmanager
def all_files_or_none(folder: Path) -> Iterator[Callable[[Path], None]]:
    """Context in which several new files are made in a folder: all of them, or none.

    Yields a function to be called with the path of each file once it is written; if the context
    ends with an exception, these files are removed.  A folder that is absent is made, for this user
    only; raises :class:`InvalidInput` if it cannot be made.
    """
    made: list[Path] = []
    try:
        folder.mkdir(mode=0o700)
        fresh = True
    except FileExistsError:
        fresh = False
    except OSError as error:
        rule = f"cannot be made: {error.strerror}"
        raise InvalidInput(
            "folder", folder, rule, "make the folder above it first, or free some disk space"
        ) from None
    try:
        yield made.append
    except BaseException:
        # The first error is what counts: one while clearing up must not hide it.
        with suppress(OSError):
            for path in made:
                path.unlink()
            if fresh:
                folder.rmdir()
        raise
