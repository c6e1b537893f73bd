"""Files that are there whole or not at all, and that write over nothing which they should not."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import InvalidInput

KEY = 2**16
"""Bytes of a key or a certificate at most."""


def write_new(path: Path, data: bytes | str, *, secret: bool = False) -> None:
    """Write a new file, in one step; with `secret` this user alone can ever read it.

    Raises
    ------
    InvalidInput
        If the file exists, or cannot be written.
    """
    with _beside(path, data, 0o600 if secret else 0o666) as temporary:
        _claim(temporary, path)


def write_over(path: Path, data: bytes | str) -> None:
    """Write a file whose path somebody chose for it, in one step: the old one stands until the new one is complete.

    Raises
    ------
    InvalidInput
        If it cannot be written.
    """
    with _beside(path, data, 0o666) as temporary:
        os.replace(temporary, path)


def save_over(path: Path, write: Callable[[Path], None]) -> None:
    """As :func:`write_over`, for what a function writes to the path that it is given.

    Raises
    ------
    InvalidInput
        If it cannot be written.
    """
    with _beside(path, b"", 0o666) as temporary:
        write(temporary)
        os.replace(temporary, path)


def read_small(field: str, path: Path, longest: int = KEY) -> bytes:
    """The bytes of a file that a person has put somewhere.

    Raises
    ------
    InvalidInput
        If there is none, or it cannot be read, or is too long for what it should be.
    """
    data: bytes | None = None
    try:
        if path.is_file():
            with path.open("rb") as file:
                data = file.read(longest + 1)
    except OSError as error:
        raise InvalidInput(field, str(path), f"cannot be read: {error.strerror}", "correct its permissions") from None
    if data is None:
        raise InvalidInput(field, str(path), "there is no such file", "correct the path, or put the file there")
    if len(data) > longest:
        raise InvalidInput(field, str(path), f"is longer than {longest:,} bytes", "give the right file")
    return data


@contextmanager
def together(folder: Path) -> Iterator[Callable[[Path], None]]:
    """Make several new files in a folder, which is made if absent, for this user only: all of them, or none.

    Yields a function to be called with each file once it is there.

    Raises
    ------
    InvalidInput
        If the folder cannot be made.
    """
    made: list[Path] = []
    try:
        folder.mkdir(mode=0o700)
        fresh = True
    except FileExistsError:
        fresh = False
    except OSError as error:
        rule = f"cannot be made: {error.strerror}"
        raise InvalidInput("folder", str(folder), rule, "make the folder above it first, or free some space") from None
    try:
        yield made.append
    except BaseException:
        with suppress(OSError):  # the error is what counts
            for path in made:
                path.unlink()
            if fresh:
                folder.rmdir()
        raise


@contextmanager
def _beside(path: Path, data: bytes | str, mode: int) -> Iterator[Path]:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    except FileExistsError:
        raise InvalidInput(
            "file", str(path), "exists, and is never overwritten", "use another folder or name, or move it away"
        ) from None
    except OSError as error:
        rule = f"cannot be written: {error.strerror}"
        raise InvalidInput("file", str(path), rule, "free some space, or let this user write there") from None
    finally:
        with suppress(OSError):  # it has its name by now, or was never made
            temporary.unlink()


def _claim(temporary: Path, path: Path) -> None:
    """Give a complete file its name, unless there is one of that name."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            os.replace(temporary, path)
        except OSError:
            path.unlink()
            raise
