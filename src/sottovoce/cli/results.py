"""Storage of results before they are shown.

The budget of a run is spent before its result is printed, and printing may fail: a closed pipe, an
encoding, a signal.  So the result is written first: to the file of ``--save``, else to a folder
beside the ledger, which holds released numbers only.  If a run is killed before that, the ledger
has all its releases: the same command reads them again, at no further cost.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import click

from ..errors import NotWritten
from ..util import files
from . import STORED

ENDINGS = ("npz", "json")
"""Of results: models, and answers."""
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def results_folder(ledger: Path) -> Path:
    """Return the folder of results beside a ledger."""
    return ledger.with_name(f"{ledger.name}.results")


def result_path(ledger: Path, run: str, ending: str) -> Path:
    """Return the file of a run's result in the folder beside its ledger.

    Parameters
    ----------
    ledger : Path
        The ledger's file.
    run : str
        Name of the run in the ledger; hashed if it is no plain file name.
    ending : {"npz", "json"}
        Of the file.

    Returns
    -------
    Path
    """
    # A run may have any name, also one that would lead out of the folder.
    name = run
    if not _PLAIN.fullmatch(run):
        name = hashlib.blake2b(run.encode(), digest_size=16).hexdigest()
    return results_folder(ledger) / f"{name}.{ending}"


def find_stored_results(ledger: Path, run: str) -> list[Path]:
    """Return the existing files that hold a run's result."""
    return [
        path for path in (result_path(ledger, run, ending) for ending in ENDINGS) if path.is_file()
    ]


def check_results_writable(ledger: Path | None, path: Path | None) -> None:
    """Refuse a ledger beside which no result can be stored, before anything is spent.

    A ledger is not refused if `path` takes the result.
    """
    if ledger is None or path is not None:
        return
    folder = results_folder(ledger)
    # It is made when the first result is written, in the folder of the ledger.
    if not folder.exists():
        folder = ledger.parent
    files.check_writable_path("ledger", folder / f"{ledger.name}.probe")


def store_before_showing(
    field: str,
    path: Path | None,
    content: bytes | memoryview | str,
    *,
    ledger: Path | None,
    run: str | None,
    ending: str,
) -> tuple[Path | None, NotWritten | None]:
    """Write a result before it is shown.

    Parameters
    ----------
    field : str
        The option that gave `path`.
    path : Path or None
        Where the user wants it; None for the folder beside the `ledger`, or nowhere without one.
    content : bytes, memoryview or str
        The result.
    ledger : Path or None
        The ledger that was charged; None for none.
    run : str or None
        Name of the run in the ledger.
    ending : {"npz", "json"}
        Of the file in the folder beside the ledger.

    Returns
    -------
    Path or None
        Where it is, which need not be `path`: a full disk sends it to the folder of temporary
        files.
    NotWritten or None
        What to end with once the result was shown.
    """
    if isinstance(content, str):
        data = content.encode()
    else:
        data = bytes(content)
    beside_ledger = path is None
    if path is None:
        if ledger is None or run is None:
            return None, None
        field = "result"
        path = result_path(ledger, run, ending)
        _keep_other_result(path, data)
    try:
        files.write_atomically(field, path, data, make=beside_ledger)
    except NotWritten as error:
        # What was paid for goes wherever there is space.
        kept = files.keep_in_temporary_folder(path.name, data)
        if kept is None:
            where = "and nowhere else; the same command makes it again"
        else:
            where = f"the run is kept in {kept}"
        remember_stored_path(kept)
        return kept, NotWritten(f"{error}; {where}").mark_as_after_release()
    remember_stored_path(path)
    return path, None


def raise_first_unwritten(unwritten: Iterable[NotWritten | None]) -> None:
    """Raise the first error of files that could not be written, once everything was shown."""
    for error in unwritten:
        if error is not None:
            raise error


def _keep_other_result(path: Path, data: bytes) -> None:
    """Rename another result that is stored under this name, so that it is not overwritten.

    A ledger that stood here before may have paid for it.  Its new name has a digest in it.  If
    the folder cannot be written, writing the new result will report it.
    """
    with suppress(OSError):
        if not path.is_file():
            return
        before = path.read_bytes()
        if before != data:
            digest = hashlib.blake2b(before, digest_size=8).hexdigest()
            os.replace(path, path.with_name(f"{path.stem}.{digest}{path.suffix}"))


def remember_stored_path(path: Path | None) -> None:
    """Remember where the result is, for what is said if it cannot be shown."""
    context = click.get_current_context(silent=True)
    if context is not None and path is not None:
        context.meta[STORED] = path
