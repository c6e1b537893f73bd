"""Which data set a ledger on disk belongs to, known by a keyed hash of its rows' digest."""

from __future__ import annotations

import hmac
from pathlib import Path

from ..errors import InvalidInput, LedgerMismatch
from ..util.plain import personalised_hash
from .file import ChainFile, read_without_lock
from .history import History


def is_ledger_of_rows(path: str | Path, *digests: bytes) -> bool:
    """Return True if a file is a ledger of the rows with one of these digests; it is only read.

    False for the ledger of a demonstration.  LedgerError if that cannot be told.
    """
    found = read_without_lock(path, History)
    if found.state.demonstration:
        return False
    return _is_known_tag(found.state, _keyed_hashes(found.secret, *digests))


class RowsIdentity:
    """Ties the ledger in a file to rows, and remembers whether this process has shown them."""

    def __init__(self, file: ChainFile[History]) -> None:
        self._file = file
        self._shown = False

    @property
    def bound(self) -> bool:
        """True if the ledger is tied to rows, whose fingerprint it needs to spend."""
        return bool(self._file.read().tags)

    def bind_to_rows(self, digest: bytes, *others: bytes, learn: bool = True) -> None:
        """Tie the ledger to rows, or check that it is tied to them.

        The file keeps a hash of the digest under a random key that never leaves the file, so an
        export says nothing about the rows.  Who holds the file can test a guess of *all* rows: keep
        it where the rows are kept.

        Parameters
        ----------
        digest : bytes
            Digest of the rows, 16 bytes or more (:func:`rows_digest`).
        *others : bytes
            Digests by which the same rows may have been tied before, such as that of encoded rows.
        learn : bool
            If the rows are known by one of `others` only, record `digest` too.

        Raises
        ------
        InvalidInput
            If a digest is shorter.
        LedgerMismatch
            If the ledger belongs to another data set, or was used before it was bound.
        """
        check_digest_lengths(digest, *others)
        tags = _keyed_hashes(self._file.chain.secret, digest, *others)
        with self._file.transaction() as state:
            if not state.tags and state.was_ever_used:
                raise LedgerMismatch(
                    f"{self._file.name}: was used before it was bound to rows; bind a new ledger "
                    "before its first use"
                )
            if state.tags and not _is_known_tag(state, tags):
                raise LedgerMismatch(
                    f"{self._file.name}: belongs to other rows; "
                    "open the ledger of these rows, or use the rows that it belongs to, unchanged"
                )
            # The first digest ties the ledger; later ones are learned only on request.
            if tags[0] not in state.tags and (learn or not state.tags):
                self._file.append_record({"kind": "bind", "tag": tags[0]})
        self._shown = True

    def check_rows_shown(self, state: History) -> None:
        """Check, inside a transaction, that the rows to which the ledger is tied were shown.

        Raises LedgerMismatch otherwise.
        """
        if state.tags and not self._shown:
            raise LedgerMismatch(
                f"{self._file.name}: is bound to rows that were not shown; "
                "open it with fingerprint=..."
            )


def check_digest_lengths(*digests: bytes) -> None:
    """Raise InvalidInput for a digest of rows of fewer than 16 bytes."""
    if any(len(digest) < 16 for digest in digests):
        raise InvalidInput(
            "fingerprint", None, "must be a digest of 16 bytes or more", "use rows_digest(...)"
        )


def _keyed_hashes(secret: bytes, *digests: bytes) -> list[str]:
    """Return the keyed hashes that a ledger with this secret keeps of digests of rows."""
    return [personalised_hash(digest, key=secret).hex() for digest in digests]


def _is_known_tag(state: History, tags: list[str]) -> bool:
    """Return True if the ledger is tied to rows by one of these tags."""
    # compare_digest: the time that it takes tells nothing of how much of a tag agrees.
    return any(hmac.compare_digest(tag, known) for tag in tags for known in state.tags)
