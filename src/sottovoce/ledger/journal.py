"""The messages of a run between sites, in the ledger of the site's data set.

A round writes, each durably before the next step: the rows charged in it and the bytes released
under them, the message to be sent, and the inbox (the neighbours' messages) received for it, on
which the next round's releases depend. They are records of one chain, which proves that order.  The
same round asked again gets the same bytes, and is never computed from another inbox: the first one
stays, whatever a hub says later.

The algorithm's state is not stored: it follows from public facts, releases and inboxes, bit by bit.
"""

from __future__ import annotations

from ..errors import LedgerMismatch
from ..util.plain import personalised_hash
from .durable import DurableLedger
from .history import History


class Journal:
    """The messages that one run sent, and the inboxes that it received, by round from 0."""

    def __init__(self, ledger: DurableLedger, run: str) -> None:
        self._file, self._run = ledger.file, run

    @property
    def highest_round(self) -> int:
        """The highest round with a message; -1 for none."""
        known = self._file.read().runs.get(self._run)
        if known is None:
            return -1
        return len(known.sent) - 1

    @property
    def last_record_hash(self) -> str:
        """Hash of the ledger's last record, in hexadecimal digits."""
        return self._file.head().partition(":")[2]

    def sent(self, round: int) -> bytes | None:
        """Return the message of a round."""
        return self._read_stored("sent", round)

    def received(self, round: int) -> bytes | None:
        """Return the inbox of a round."""
        return self._read_stored("received", round)

    def store_message(self, round: int, message: bytes) -> bytes | None:
        """Write a message down before it is sent; LedgerMismatch if the round has another one.

        Returns the inbox of the round, if it was received already.
        """
        return self._store_once("send", "sent", round, message)

    def store_inbox(self, round: int, inbox: bytes) -> None:
        """Write an inbox down before anything depends on it.

        LedgerMismatch if the round has another one.
        """
        self._store_once("receive", "received", round, inbox)

    def _read_stored(self, which: str, round: int) -> bytes | None:
        """Return what was ``sent`` or ``received`` in a round; None if nothing."""
        with self._file.transaction("DEFERRED") as state:
            return self._stored_in_round(state, which, round)

    def _stored_in_round(self, state: History, which: str, round: int) -> bytes | None:
        """Return what was sent or received in a round, inside a transaction; None if nothing."""
        known = getattr(state.runs[self._run], which)
        if round >= len(known):
            return None
        return self._file.chain.payload(*known[round])

    def _store_once(self, kind: str, which: str, round: int, data: bytes) -> bytes | None:
        """Write a message or inbox down, unless it is written already; return the round's inbox.

        Parameters
        ----------
        kind : {"send", "receive"}
            Kind of the record.
        which : {"sent", "received"}
            The field of :class:`.history.RunHistory` that lists such records.
        round : int
            From 0.
        data : bytes
            The message or inbox.
        """
        with self._file.transaction() as state:
            found = self._stored_in_round(state, which, round)
            # The same bytes again are no second record: a hub may repeat itself.
            if found is None:
                record = {
                    "kind": kind,
                    "run": self._run,
                    "round": round,
                    "digest": personalised_hash(data).hex(),
                }
                self._file.append_record(record, data)
            elif found != data:
                raise LedgerMismatch(
                    f"run={self._run!r}: a different message was already {which} in round {round}; "
                    "that message stands, and nothing was done with this one"
                )
            return self._stored_in_round(state, "received", round)
