"""The releases of one run in a ledger on disk: their rows, and the bytes drawn under them.

A release is charged (its row is written), drawn, and its bytes, the *payload*, are stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import LedgerError, LedgerMismatch
from ..privacy.events import Event
from ..util.plain import canonical_json, personalised_hash
from ..util.typing import Any
from .history import History, RunHistory

if TYPE_CHECKING:
    from .file import ChainFile  # SQLite, which no run in memory needs
    from .identity import RowsIdentity


class RunRecords:
    """The rows and stored bytes of one run, whose releases are numbered from 1.

    :mod:`sottovoce.ledger.durable` says why a row is drawn once, whatever a crash leaves.

    Parameters
    ----------
    file : ChainFile
    identity : RowsIdentity
        Nothing is charged unless the rows were shown, if the ledger is tied to any.
    name : str
        The run.
    """

    def __init__(self, file: ChainFile[History], identity: RowsIdentity, name: str) -> None:
        self._file, self._identity, self.name = file, identity, name

    @property
    def history(self) -> RunHistory:
        """The run's reservations and progress, with what other processes wrote."""
        return find_run_history(self._file.read(), self.name)

    @property
    def planned(self) -> int:
        """Number of releases that the run reserved, which never changes.

        As of the last look at the file.
        """
        return len(find_run_history(self._file.chain.state, self.name).planned)

    def charge_release(self, release: int, event: Event, *, kept: bool) -> bytes | None:
        """Record a release, durably, or find it recorded.

        Parameters
        ----------
        release : int
            Its number.
        event : Event
            The reserved one.
        kept : bool
            Promises to store the bytes before they are handed out.  Only such a row can be drawn
            again.

        Returns
        -------
        bytes or None
            The bytes stored with it, as :meth:`payload`, to a caller that made the promise.

        Raises
        ------
        LedgerMismatch
            If it is not the reserved event, or not the next release.
        LedgerError
            If the run is closed, or the row was written without that promise.
        """
        with self._file.transaction() as state:
            known = find_run_history(state, self.name)
            self._identity.check_rows_shown(state)
            self._check_is_planned(known, release, event)
            # A row that exists is found, not written: a run that is resumed replays it.
            if release > known.charged:
                if not known.open:
                    raise LedgerError(
                        f"run={self.name!r}: is closed; nothing was drawn; reserve a new run"
                    )
                record = {"kind": "charge", "run": self.name, "release": release, "kept": kept}
                self._file.append_record(record)
            elif release in known.loose:
                raise LedgerError(
                    f"run={self.name!r}: release {release} was charged before, "
                    "but its bytes were not kept, so they may have been seen; "
                    "nothing was drawn; close the run and plan another"
                )
            if not kept:
                return None
            return self._stored_payload(known, release)

    def payload(self, release: int) -> bytes | None:
        """Return the bytes stored with a row; None if nobody has seen any.

        LedgerError if the row's draw failed.
        """
        with self._file.transaction("DEFERRED") as state:
            return self._stored_payload(find_run_history(state, self.name), release)

    def store_payload(self, release: int, payload: bytes) -> None:
        """Store the bytes of a release, durably, before they are handed out.

        LedgerMismatch if it has others.
        """
        if self.store_or_get_payload(release, payload) != payload:
            raise LedgerMismatch(
                f"run={self.name!r}: release {release} is stored with different bytes; "
                "hand out those of payload()"
            )

    def store_or_get_payload(self, release: int, payload: bytes) -> bytes:
        """Store bytes as :meth:`store_payload` does, and return the bytes to hand out.

        They are `payload`, or those of an earlier commit.
        """
        with self._file.transaction() as state:
            found = self._stored_payload(find_run_history(state, self.name), release)
            if found is None:
                self._file.append_record(self._payload_record(release, payload), payload)
                return payload
        # Of two processes that drew for one row, the first commit wins.
        return found

    def store_payload_later(self, release: int, payload: bytes) -> None:
        """Store the bytes of a release first thing at the next use of the file.

        The caller hands out nothing that depends on them before that is over.
        """
        self._file.later(self._payload_record(release, payload), payload)

    def record_failed_draw(self, release: int) -> bytes | None:
        """Record that the draw of a row failed: it stays spent and is never drawn again.

        Bytes that another process has stored meanwhile are the release: they are returned, and
        nothing is recorded.
        """
        with self._file.transaction() as state:
            known = find_run_history(state, self.name)
            if release in known.failed:
                return None
            found = self._stored_payload(known, release)
            if found is None:
                self._file.append_record({"kind": "fail", "run": self.name, "release": release})
        return found

    def close(self, *, reclaim: bool, given_up: bool) -> int:
        """Close the run for good.

        Parameters
        ----------
        reclaim : bool
            Give back the price of reserved events without a row.
        given_up : bool
            True if the run is closed from outside, and not at its own end.

        Returns
        -------
        int
            How many events were given back; 0 if the run was closed before.

        Raises
        ------
        LedgerError
            If there is no such run, or events without a row are left and `reclaim` is false.
        """
        with self._file.transaction() as state:
            known = find_run_history(state, self.name)
            if not known.open:
                return 0
            if known.left and not reclaim:
                raise LedgerError(
                    f"run={self.name!r}: {known.left} of {len(known.planned)} reserved releases "
                    "were not made; resume the run, or close it with reclaim=True to give them back"
                )
            returned = known.left
            record: dict[str, Any] = {"kind": "close", "run": self.name, "returned": returned}
            if given_up:
                record["given_up"] = True
            self._file.append_record(record)
            return returned

    def _check_is_planned(self, known: RunHistory, release: int, event: Event) -> None:
        """Check that a release is the next or was charged before, and its event the reserved one.

        Raises LedgerMismatch otherwise.
        """
        if not 1 <= release <= min(known.charged + 1, len(known.planned)):
            raise LedgerMismatch(
                f"run={self.name!r}: release {release} is not the next one ({known.charged} of "
                f"{len(known.planned)} reserved releases are charged); "
                "plan every release before the first round"
            )
        plain = event.to_dict()
        # By text, since events with arrays have no equality of their own.
        if canonical_json(plain) != known.texts[release - 1]:
            reserved = known.planned[release - 1].to_dict()
            keys = plain.keys() | reserved.keys()
            names = sorted(key for key in keys if plain.get(key) != reserved.get(key))
            raise LedgerMismatch(
                f"run={self.name!r}: release {release} differs in {', '.join(names)} from what "
                "was reserved; nothing was drawn; run what was planned"
            )

    def _stored_payload(self, known: RunHistory, release: int) -> bytes | None:
        """Return the bytes of a row, inside a transaction."""
        run = f"run={self.name!r}"
        if not 1 <= release <= known.charged:
            raise LedgerError(
                f"{run}: release {release} is not charged; charge it before it is drawn"
            )
        if release in known.failed:
            raise LedgerError(
                f"{run}: the draw of release {release} failed, and others may have seen its error; "
                "close the run and plan another"
            )
        if release in known.loose:
            raise LedgerError(
                f"{run}: release {release} was charged without kept=True; its bytes are unknown"
            )
        if release not in known.stored:
            return None
        return self._file.chain.payload(*known.stored[release])

    def _payload_record(self, release: int, payload: bytes) -> dict[str, Any]:
        """Return the record that names a payload."""
        return {
            "kind": "store",
            "run": self.name,
            "release": release,
            "digest": personalised_hash(payload).hex(),
        }


def find_run_history(state: History, run: str) -> RunHistory:
    """Return the run of this name; LedgerError if there is none."""
    if run not in state.runs:
        raise LedgerError(f"run={run!r}: is not in this ledger; see show() for its runs")
    return state.runs[run]
