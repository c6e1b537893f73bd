"""A run that is over, gone through again from a site's ledger, without a hub.

The ledger's journal holds every message that the site sent and every inbox that it received, and
its rows the bytes of every release.  From these the same results follow, bit by bit: for a site
that lost its report when the hub is gone.  Nothing is charged, drawn, signed or sent.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..errors import LedgerError, LedgerMismatch, NetClosed
from ..util.typing import IntArray
from .exchanges import Exchanges
from .messages import Message, Reason, longest_inbox
from .site_net import SiteNet
from .strict import parse_json
from .sums.messages import Content, SignedMessage, read_signed_message


class NoHub:
    """The transport of a replay: there is no hub, and nothing may be asked of it."""

    answers: Callable[[str, bytes], bytes] | None = None
    earlier: tuple[bytes, ...] = ()

    def highest_stored_round(self, plan: str) -> int:
        """Return 0: no hub says more than the journal."""
        return 0

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        """Raise :class:`LedgerError`: a replay sends nothing."""
        raise LedgerError(f"round={round}: a replay sends nothing")

    def ask_other_sites(self, question: bytes, enough: int) -> dict[str, bytes]:
        """Raise :class:`LedgerError`: a replay asks nothing."""
        raise LedgerError("a replay asks no other site")

    def send_farewell(self, farewell: bytes) -> None:
        """Raise :class:`LedgerError`: a replay sends nothing."""
        raise LedgerError("a replay sends no farewell")


class ReplayedExchanges(Exchanges):
    """The exchanges of a run as the journal holds them."""

    def exchange(self, content: Content) -> dict[str, SignedMessage]:
        """Return the next inbox of the journal; this site's message is the one in it, too.

        A share in a sum was sent under masks whose key is erased, so `content` is without them; of
        a vector the journal must hold the same.  Raises :class:`NetClosed` where the journal ends,
        and :class:`LedgerMismatch` if the computation gave another vector than was sent.
        """
        self.round += 1
        message = self.journal.sent(self.round)
        inbox = self.journal.received(self.round)
        if message is None or inbox is None:
            raise NetClosed(f"round={self.round}: the journal ends here")
        own = read_signed_message(self.plan, message, self.name, self.round)
        if isinstance(content, Message) and not _is_same_vector(content, own.content):
            raise LedgerMismatch(
                f"run={self.plan.run!r}: exchange {self.round} was sent with other numbers than "
                "follow from the ledger and these rows"
            )
        texts = parse_json(inbox, longest_inbox(self.plan))
        present, why = self._check_inbox({name: text.encode() for name, text in texts.items()})
        self.state.take_messages(present | {self.name: own}, why)
        self.seen |= dict.fromkeys(present, self.round)
        return present


def _is_same_vector(one: Message, other: Content) -> bool:
    """Return True if two messages have the same kind and numbers."""
    return (
        isinstance(other, Message)
        and one.kind == other.kind
        and np.array_equal(one.payload, other.payload)
    )


class ReplayedNet(SiteNet):
    """The network of a site whose run is over, as the journal holds it."""

    exchanges_class = ReplayedExchanges

    def mask_share(self, share: IntArray) -> IntArray:
        """Return the share: what was sent in its place is in the journal."""
        return share

    def leave_run(self, reason: Reason | None) -> None:
        """Do nothing: the site has left already."""

    def refused(self) -> None:
        """Do nothing: there is no key any more."""

    def _check_ready_to_sign(self) -> None:
        """Do nothing: nothing is signed."""
