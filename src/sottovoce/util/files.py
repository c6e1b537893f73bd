"""Bounded reading and atomic writing of files.

Anybody may have made a file that is read: it must be a regular file (a pipe might never end) of
bounded size; JSON and TOML have bounded depth and digits; arrays come from ``.npz`` files without
pickles and without compression, so they take no more memory than the file has bytes.

A new file is written under a temporary name in the same folder and then renamed: on a full disk the
old file is unchanged.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import stat
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import Exhausted, InvalidInput, NotWritten, format_declared_value
from .typing import Any

LARGEST = 16 * 2**20
"""Most bytes of a text file: a schema, a study, an edge list."""
PROBE = 2**18
"""Bytes written on trial before a run: about the size of a saved run of a few sites."""
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that say nothing about a file: this process or machine has nothing left to open it."""
_SQLITE = b"SQLite format 3\0"
_IS_DATABASE = "holds a ledger or another database, which is never written over"
# Bounds of JSON and TOML: levels, digits of an integer, parts of a dotted key, and how many lists
# and objects there are in a JSON text, each of which takes some sixty bytes in memory.
_DEPTH = 64
_DIGITS = 100
_PARTS = 64
_NESTS = 4_000_000
_QUOTED = re.compile(r""""(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?""")
_DOTTED = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{_PARTS}}}")


def machine_memory_bytes() -> float:
    """Return the bytes of this machine's memory; infinity where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return math.inf


# Reading


def require_regular_file(field: str, path: str | Path) -> Path:
    """Return the path of a readable regular file; InvalidInput naming `field` for any other."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISREG(mode) and os.access(path, os.R_OK):
            return Path(path)
        if stat.S_ISDIR(mode):
            reason = "Is a directory"
        elif stat.S_ISREG(mode):
            reason = "Permission denied"
        else:
            # A pipe, or a device, might never end.
            reason = "not a regular file"
    except (OSError, ValueError) as error:
        # A ValueError is of a text with a null character, which is no path.
        reason = getattr(error, "strerror", None) or "no path"
    raise InvalidInput(
        field, Path(path), f"cannot be read: {reason}", "check the path and the file"
    )


def read_bounded_file(field: str, path: str | Path, largest: int = LARGEST) -> bytes:
    """Read a file of bounded size.

    Parameters
    ----------
    field : str
        Named by errors.
    path : str or Path
        Of a regular file, as a pipe might never end.
    largest : int
        Most bytes of the file.

    Returns
    -------
    bytes

    Raises
    ------
    InvalidInput
        If the file has more bytes, or cannot be read.
    Exhausted
        If this process or machine has no descriptors or memory left to read it.
    """
    try:
        with require_regular_file(field, path).open("rb") as file:
            data = file.read(largest + 1)
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise Exhausted(
                f"{field}={format_declared_value(path)}: cannot be read now: {error.strerror}"
            ) from None
        rule = f"cannot be read: {error.strerror}"
        raise InvalidInput(field, Path(path), rule, "check the path and the file") from None
    if len(data) > largest:
        raise InvalidInput(
            field, Path(path), f"has more than {largest:,} bytes", "use a smaller file"
        )
    return data


def read_bounded_text(field: str, path: str | Path, largest: int = LARGEST) -> str:
    """Read a text file of bounded size, in UTF-8.

    Parameters
    ----------
    field : str
        Named by errors.
    path : str or Path
        Of a regular file.
    largest : int
        Most bytes of the file.

    Returns
    -------
    str

    Raises
    ------
    InvalidInput
        If the file has more bytes, cannot be read, or is no text in UTF-8.
    """
    try:
        return read_bounded_file(field, path, largest).decode("utf-8")
    except UnicodeDecodeError:
        rule = "cannot be read: not a text in UTF-8"
        raise InvalidInput(field, Path(path), rule, "check the path and the file") from None


def parse_bounded_json(text: str, *, infinite: bool = False) -> Any:
    """Parse a JSON text within the bounds of this module; numbers must be finite unless `infinite`.

    Raises
    ------
    ValueError
        If it is not JSON, or beyond the bounds; the message holds nothing of the text.
    """

    def constant(name: str) -> float:
        if not infinite:
            raise ValueError(f"holds {name}")
        return float(name)

    # Counted before they are made; brackets within texts count too.
    if text.count("[") + text.count("{") > _NESTS:
        raise ValueError(f"holds more than {_NESTS:,} lists and objects")
    try:
        found = json.loads(
            text,
            parse_int=_bounded_integer,
            parse_constant=constant,
            object_pairs_hook=_object_of_unique_keys,
        )
        return _check_parsed_bounds(found, infinite)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def parse_bounded_toml(text: str) -> dict[str, Any]:
    """Parse a TOML text within the bounds of this module; numbers may be infinite.

    Raises
    ------
    ValueError
        If it is not TOML, or beyond the bounds.
    """
    # Keys of many parts take the parser quadratic time.
    if any(_DOTTED.search(_QUOTED.sub("k", line)) for line in text.splitlines()):
        raise ValueError("is nested too deeply")
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError as error:
        if isinstance(error, tomllib.TOMLDecodeError):
            raise
        # Python refuses to read a number of thousands of digits.
        raise ValueError(f"holds an integer of more than {_DIGITS} digits") from None
    return dict(_check_parsed_bounds(value, True))


def _object_of_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object of its entries; a ValueError if a key is said twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("repeats a key")
    return found


def _bounded_integer(digits: str) -> int:
    """Parse a whole number of a JSON text; a ValueError if it is too long."""
    if len(digits) > _DIGITS:
        raise ValueError(f"holds an integer of more than {_DIGITS} digits")
    return int(digits)


def _check_parsed_bounds(value: Any, infinite: bool) -> Any:
    """Return a parsed value; a ValueError if it is too deep, or has a number out of bounds."""
    # A list in place of recursion, so that depth is bounded by us and not by the interpreter.
    todo = [(value, 1)]
    while todo:
        one, depth = todo.pop()
        if isinstance(one, dict | list):
            if depth > _DEPTH:
                raise ValueError("is nested too deeply")
            entries: Iterable[Any] = one
            if isinstance(one, dict):
                entries = one.values()
            todo += [(entry, depth + 1) for entry in entries]
        # A decimal digit has 3.32 bits.
        elif isinstance(one, int) and one.bit_length() > 3.33 * _DIGITS:
            raise ValueError(f"holds an integer of more than {_DIGITS} digits")
        elif isinstance(one, float) and not infinite and not math.isfinite(one):
            raise ValueError("holds a number that is not finite")
    return value


def read_packed_arrays(path: str | Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of an ``.npz`` file that :func:`pack_arrays` made.

    InvalidInput if there is no such file; ValueError if it is another, or would take more memory
    than it has bytes.
    """
    place = require_regular_file("path", path)
    try:
        with place.open("rb") as file, zipfile.ZipFile(file) as packed:
            # Compressed, or overlapping, entries could fill the memory from a small file.
            entries = packed.infolist()
            plain = all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
            if not plain or sum(entry.file_size for entry in entries) > place.stat().st_size:
                raise ValueError("its arrays are compressed")
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
    # Foreign bytes can make these two readers raise anything.
    except Exception as error:
        raise ValueError("not an .npz file of this library") from error


# Writing


def pack_arrays(**arrays: Any) -> memoryview:
    """Pack arrays as the bytes of an ``.npz`` file.

    They are equal for equal arrays, because no entry holds a time.
    """
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for name, array in arrays.items():
            with packed.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)
    return file.getbuffer()


def check_writable_path(
    field: str, path: str | Path, *, make: bool = False, reads: Iterable[object] = ()
) -> None:
    """Refuse a path where no file can be written, before any budget is spent.

    A quarter MiB is written on trial and removed.  Only :func:`write_atomically` notices a disk
    that fills up later.

    Parameters
    ----------
    field : str
        Named by errors.
    path : str or Path
        Where a file shall be written; a file there may be written over, but for a database.
    make : bool
        Make a missing folder.
    reads : iterable
        The inputs of the command, which must not be written over; only paths of files that exist
        count.

    Raises
    ------
    InvalidInput
        If the path is one of `reads` or a database, or no file can be written there.
    """
    try:
        place = Path(os.path.realpath(path))
        for other in reads:
            if not isinstance(other, str | Path) or not os.path.exists(other):
                continue
            # A link, or another spelling of the path, is the same file.
            if place.exists() and place.samefile(other):
                rule = "is also an input of this command"
                raise InvalidInput(field, Path(path), rule, "give another path")
        if _is_database(place):
            raise InvalidInput(field, Path(path), _IS_DATABASE, "give another path")
        if make:
            place.parent.mkdir(parents=True, exist_ok=True)
        _write_on_trial(field, Path(path), place)
    except OSError as error:
        rule = f"cannot be written: {error.strerror}"
        raise InvalidInput(
            field, Path(path), rule, "free some space, or give another path"
        ) from None


def _write_on_trial(field: str, path: Path, place: Path) -> None:
    """Refuse a place where no file can be written; a file there is left as it is."""
    if not place.parent.is_dir() or not os.access(place.parent, os.W_OK):
        raise InvalidInput(
            field,
            path,
            "its folder must exist and be writable",
            "make the folder first, or give another path",
        )
    if place.exists() and not (place.is_file() and os.access(place, os.W_OK)):
        rule = "exists, and is not a regular file that can be written"
        raise InvalidInput(field, path, rule, "give another path")
    with tempfile.TemporaryFile(dir=place.parent) as file:
        # Some file systems find room for what is written only when it reaches the disk.
        file.write(bytes(PROBE))
        file.flush()
        os.fsync(file.fileno())


def write_atomically(
    field: str,
    path: str | Path,
    content: bytes | memoryview | str,
    *,
    mode: int = 0o666,
    make: bool = False,
) -> None:
    """Write a file atomically: readers find the old file or the new one, even after a crash.

    Parameters
    ----------
    field : str
        Named by errors.
    path : str or Path
        A link is followed.
    content : bytes, memoryview or str
        Texts are written in UTF-8.
    mode : int
        Permissions of a new file, less the umask; an old file keeps its own.
    make : bool
        Make a missing folder.

    Raises
    ------
    NotWritten
        If the file cannot be written, or holds a database; an old file is unchanged.
    """
    data = content
    if isinstance(data, str):
        data = data.encode()
    temporary = None
    try:
        # A link stays one: the file that it names is written.
        place = Path(os.path.realpath(path))
        if make:
            place.parent.mkdir(parents=True, exist_ok=True)
        if _is_database(place):
            raise OSError(errno.EEXIST, _IS_DATABASE)
        # An old file keeps its permissions.
        if place.exists():
            mode = place.stat().st_mode & 0o777
        # In the same folder, because a rename cannot cross file systems.
        temporary = place.with_name(f".{os.urandom(8).hex()}.tmp")
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(data)
            # Before the rename: else, after a crash, the name might stand for an empty file.
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise NotWritten(
            f"{field}={format_declared_value(Path(path))}: cannot be written: {reason}; free some "
            "space, or give "
            "another path"
        ) from None
    finally:
        if temporary is not None:
            # A file that is left does no harm, and the error matters more.
            with suppress(OSError):
                temporary.unlink()


def _is_database(place: Path) -> bool:
    """Return True for an SQLite file, such as a ledger: its content stands nowhere else."""
    if not (place.is_file() and os.access(place, os.R_OK)):
        return False
    with place.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def keep_in_temporary_folder(name: str, content: bytes | memoryview) -> Path | None:
    """Write a file to the temporary folder, else to the user's home.

    Returns its path, or None if neither works.
    """
    for folder in (tempfile.gettempdir, Path.home):
        try:
            place = Path(tempfile.mkdtemp(prefix="sottovoce-", dir=folder())) / name
            write_atomically("path", place, content)
        # A user without a home is a RuntimeError.
        except (OSError, RuntimeError):
            continue
        return place
    return None
