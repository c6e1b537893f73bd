"""A run whose releases are charged to its own ledger and to a shared one, both in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from ..errors import LedgerError, LedgerMismatch
from ..privacy.conditions import Conditions
from ..privacy.events import Event
from ..util.typing import Any
from .account import Hold
from .memory import Ledger, refuse_draw_on_trial


class Joint:
    """A run's own ledger inside a shared one, which pays for the whole run or refuses it at once.

    What it holds is this run's only, so runs in other threads cannot take it; a context manager,
    which gives back what was not drawn.

    Parameters
    ----------
    own : Ledger
        Of this run alone.
    shared : Ledger
        Of the data set.
    events : sequence of Event
        All that the run will charge, in order.
    deal : bytes, optional
        Digest of the partition of rows over nodes, under which they are charged.

    Raises
    ------
    BudgetExceeded
        If the shared ledger cannot pay for all of them; nothing is held then.
    """

    def __init__(
        self, own: Ledger, shared: Ledger, events: Sequence[Event], deal: bytes | None = None
    ) -> None:
        # The run's own conditions of prices, as other runs charge the shared ledger in between.
        conditions = Conditions(shared.sites_per_row)
        planned = [(event, conditions.charge_event(event)) for event in events]
        self.own = own
        self._shared = shared.account
        self._hold = Hold(deal, planned)
        own.expect(events)
        refuse_draw_on_trial(shared)
        with self._shared.lock:
            self._shared.check_affordable([price for _, price in planned], deal)
            self._shared.holds.append(self._hold)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._shared.lock:
            self._shared.holds.remove(self._hold)
            self._hold.left.clear()

    @property
    def rows(self) -> tuple[Event, ...]:
        """Events of this run, in the order of their charges."""
        return self.own.rows

    def record_event(self, event: Event) -> None:
        """Charge both, or neither; LedgerMismatch unless it is the next planned event."""
        deal, left = self._hold.deal, self._hold.left
        with self._shared.lock, self.own.account.lock:
            own_price, own_after = self.own.account.price_affordable_release(event, None)
            if not left or event.terms != left[0][0].terms:
                raise LedgerMismatch(
                    "ledger: the release is not the next one planned; nothing was drawn"
                )
            # The shared ledger first, which held the price and cannot refuse it: an interrupt in
            # between leaves too much spent there, never too little.
            price = left[0][1]
            self._shared.write(event, deal, price, self._shared.spending_with([price], deal))
            left.popleft()
            self.own.account.write_and_condition(event, None, own_price, own_after)

    def charge_once(self, event: Event, draw: Callable[[], bytes]) -> bytes:
        """Charge a release, and only then draw it."""
        self.record_event(event)
        return draw()

    def to_list(self) -> list[dict[str, Any]]:
        return self.own.to_list()

    def restore(self, rows: list[dict[str, Any]]) -> None:
        """Refuse to go on: whether the shared ledger holds these rows cannot be known."""
        raise LedgerError(
            "ledger: an in-memory ledger cannot continue from a checkpoint; use a DurableLedger"
        )
