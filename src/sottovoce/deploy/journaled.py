"""A site's network in which every message and every inbox is in the journal before anything follows from it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ..errors import Refused, TransportClosed
from ..ledger.journal import Journal
from ..network.net import Net
from ..util.plain import canonical
from ..util.typing import Any
from .keys import SigningKey
from .messages import HUB, OUT, Farewell, Reason, longest_inbox
from .plan import Plan
from .strict import parse
from .sums.roster import ProtocolState
from .transport import Transport

_T = TypeVar("_T")


class JournaledNet(Net):
    """What the networks of runs with and without sums share.

    Attributes
    ----------
    round : int
        Number of the last exchange; -1 before the greeting.
    waited : float
        Seconds spent on messages, other sites' time included.
    state : ProtocolState
        After the exchanges so far.
    closed_by : str or None
        Why the run ended for this site before its end, if it did: ``HUB``, ``OUT`` or ``FEW``.
    """

    def __init__(self, plan: Plan, name: str, journal: Journal, transport: Transport, key: SigningKey) -> None:
        self._plan, self._name, self._journal, self._transport, self._key = plan, name, journal, transport, key
        self.state = ProtocolState.of(plan)
        self.round = -1
        self.waited = 0.0
        self.closed_by: str | None = None

    @property
    def lost(self) -> dict[str, str]:
        """Sites that are no longer in the roster, and why."""
        return dict(sorted(self.state.gone.items()))

    @property
    def roster(self) -> dict[str, Any]:
        """The last roster, as plain data."""
        return self.state.to_dict()

    def leave(self, reason: Reason | None) -> None:
        """Sign that no more messages will come, and why; nothing if the others went on without this site."""
        if reason is None or self.closed_by == OUT:
            return
        farewell = Farewell(self._plan.run, self._plan.digest, self.round + 1, self._name, reason, self._journal.mark)
        self._transport.leave(farewell.seal(self._key))

    def refused(self) -> None:
        """Clean up after a refusal; a site may still go on, so there is nothing to do."""

    def _asked(self, ask: Callable[[], _T]) -> _T:
        """What the hub says, unless it ends the run or says that the others go on without this site."""
        try:
            return ask()
        except TransportClosed as error:
            if error.site not in (None, self._name):
                rule = "the hub names another site than this one, which ends no run"
                raise Refused(f"round={self.round}: {rule}") from None
            self.closed_by = HUB if error.site is None else OUT
            raise

    def _exchanged(self, message: bytes) -> dict[str, bytes]:
        """The inbox of this exchange, from the hub."""
        return self._asked(lambda: self._transport.exchange(self.round, message))

    def _journaled(self, message: bytes, read: Callable[[dict[str, bytes]], _T]) -> _T:
        """Write down, send, wait, check, write down; an inbox that is in the journal is not asked for again."""
        started = time.perf_counter()
        stored = self._journal.send(self.round, message)
        if stored is None:
            inbox = self._exchanged(message)
        else:
            inbox = {name: text.encode() for name, text in parse(stored, longest_inbox(self._plan)).items()}
        found = read(inbox)
        if stored is None:
            texts = {name: data.decode("ascii") for name, data in inbox.items()}
            self._journal.receive(self.round, canonical(texts).encode())
        self.waited += time.perf_counter() - started
        return found
