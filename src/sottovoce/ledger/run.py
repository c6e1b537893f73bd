"""One run of a ledger on disk, which looks like a ledger of the run's releases alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from ..errors import BudgetExceeded, LedgerCorrupt, LedgerError
from ..privacy.accountants import Accountant
from ..privacy.events import Event
from ..util.plain import canonical_json
from ..util.typing import Any, Array
from .readings import Readings
from .run_records import RunRecords


class Run(Readings):
    """One run's view of a ledger, with the interface of :class:`sottovoce.ledger.memory.Ledger`.

    It goes through the run from its first release.  Rows that exist are replayed: the same events
    are expected, and nothing is charged.  A context manager: left normally, it closes the run and
    returns the price of events without a row; left by an exception, the run stays open.

    Parameters
    ----------
    records : RunRecords
        The run's rows and stored bytes.
    accountant : Accountant
        The ledger's.
    epsilon : array (N,)
        Lifetime budget of the data set.
    delta : float
        0 for pure epsilon.

    Attributes
    ----------
    release : int
        Number of the last release charged or replayed; 0 before the first.
    journaled : bool
        A promise that bytes of :meth:`charge_once` leave this process only in messages of the
        :class:`.journal.Journal`.  They are then stored first thing at the next use of the file: by
        such a message's commit, or an earlier one.
    replays_only : bool
        Nothing is charged or drawn: a release without stored bytes is an error.
    """

    def __init__(
        self, records: RunRecords, accountant: Accountant[Any], epsilon: Array, delta: float
    ) -> None:
        self.records, self.name = records, records.name
        self.accountant, self.epsilon, self.delta = accountant, epsilon, delta
        self.release = 0
        self.journaled = False
        self.replays_only = False
        self._most = records.planned

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    @property
    def rows(self) -> tuple[Event, ...]:
        """Events of this run up to :attr:`release`."""
        return tuple(self.records.history.planned[: self.release])

    @property
    def failed(self) -> bool:
        """True if the draw of a release failed, so that the run cannot go past it."""
        return bool(self.records.history.failed)

    @property
    def answers(self) -> list[str]:
        """Digests of stored answers up to :attr:`release` ("" for none).

        They match a checkpoint to its ledger.
        """
        stored = self.records.history.stored
        # A release that was not stored has neither record nor digest.
        nothing = (0, "")
        return [stored.get(k, nothing)[1] for k in range(1, self.release + 1)]

    def record_event(self, event: Event, *, kept: bool = False) -> None:
        """Record the next release, durably, or find it recorded.

        See :meth:`.run_records.RunRecords.charge_release`.
        """
        self._charge_next(event, kept=kept)

    def _charge_next(self, event: Event, *, kept: bool) -> bytes | None:
        """Charge the next release, and return the bytes stored with it, if there are any."""
        if self.release >= self._most:
            what = (
                f"all {self.release} reserved releases are made; nothing was drawn; reserve a new "
                "run"
            )
            raise BudgetExceeded(f"run={self.name!r}: {what}")
        if self.replays_only and self.release >= self.records.history.charged:
            raise LedgerError(
                f"run={self.name!r}: the ledger holds {self.release} of its releases, and the run "
                "is not over in it; nothing was drawn; go on with `sottovoce site run`"
            )
        found = self.records.charge_release(self.release + 1, event, kept=kept)
        self.release += 1
        return found

    def charge_once(self, event: Event, draw: Callable[[], bytes]) -> bytes:
        """Return the bytes of the next release: drawn and stored if it is new, else as stored.

        Parameters
        ----------
        event : Event
            The reserved one.
        draw : callable
            Draws the release, and returns its bytes; called only if nobody has seen a draw of this
            row.

        Returns
        -------
        bytes
            The release, the same every time.

        Raises
        ------
        BudgetExceeded
            If all reserved releases are made.
        LedgerMismatch
            If `event` is not the reserved one.
        LedgerError
            If the draw of this row failed before, or the run is closed.  If `draw` raises now, the
            row is marked as failed and the error goes on, unless another process has stored the
            release meanwhile.
        """
        found = self._charge_next(event, kept=True)
        if found is not None:
            return found
        if self.replays_only:
            raise LedgerError(
                f"run={self.name!r}: release {self.release} has no stored bytes; nothing was drawn"
            )
        try:
            drawn = draw()
        except Exception:
            # Another process may have stored the release meanwhile.
            found = self.records.record_failed_draw(self.release)
            if found is None:
                raise
            return found
        if self.journaled:
            # Spares one of the two commits of a release: the bytes are stored with the next use of
            # the file.
            self.records.store_payload_later(self.release, drawn)
            return drawn
        return self.records.store_or_get_payload(self.release, drawn)

    def payload(self) -> bytes | None:
        """Return the stored bytes of the current release; None if nobody has seen any."""
        return self.records.payload(self.release)

    def store_payload(self, payload: bytes) -> None:
        """Store the bytes of the current release; see
        :meth:`.run_records.RunRecords.store_payload`.
        """
        self.records.store_payload(self.release, payload)

    def per_node(self) -> Array:
        """Return the epsilon of this run per node, of all its rows in the file, replayed or not."""
        history = self.records.history
        return self.accountant.epsilon_of_events(history.planned[: history.charged], self.delta)

    def restore(self, rows: list[dict[str, Any]]) -> None:
        """Continue after rows that a checkpoint of this run holds.

        LedgerCorrupt if the run lacks them.
        """
        history = self.records.history
        reserved = history.texts[: len(rows)]
        if len(rows) > history.charged or [canonical_json(row) for row in rows] != reserved:
            raise LedgerCorrupt(
                f"run={self.name!r}: the ledger lacks rows of this checkpoint; "
                "use the ledger that the checkpoint was made with"
            )
        self.release = len(rows)

    def from_first_release(self) -> Self:
        """Return the same run from before its first release: what is stored is read again."""
        return type(self)(self.records, self.accountant, self.epsilon, self.delta)

    def close(self) -> None:
        """End the run, and return the price of events without a row."""
        self.records.close(reclaim=True, given_up=False)
