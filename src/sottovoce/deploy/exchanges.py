"""A site's part in the exchanges of a run: sign, write down, send, wait, check, write down.

In an *exchange* every site sends one signed message to the hub, and gets its *inbox*: the messages
of the sites that it hears, or what says why one is missing.  An exchange takes effect once: the
*journal*, in the site's ledger, holds a message before it is sent and an inbox before it is used,
so a site that was killed and started again repeats both byte for byte.

When sites are lost, those that stay sign a *roster*, the list of the sites that go on
(:mod:`sottovoce.deploy.sums.roster`).  :class:`sottovoce.deploy.site_net.SiteNet` calls this module
for every vector that an algorithm sends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from ..errors import NetClosed, Refused, TransportClosed
from ..ledger.journal import Journal
from ..runs.engine import FEW
from ..util.plain import canonical_json
from ..util.typing import Any, Array
from .keys import SigningKey
from .messages import HUB, OUT, Farewell, Kind, Message, Reason, check_payload, longest_inbox
from .plan import Plan
from .strict import parse_json
from .sums.messages import Content, SignedMessage, read_signed_message, sign_content
from .sums.roster import LATE, LEFT, NOTICES, ProtocolState, read_absence
from .transport import Transport

_T = TypeVar("_T")


class Exchanges:
    """One site's exchanges with the others, through the hub.

    Parameters
    ----------
    plan : Plan
    name : str
        This site.
    journal : Journal
        Holds every message before it is sent, and every inbox before it is used.
    transport : Transport
        To the hub.
    key : SigningKey
        This site's.

    Attributes
    ----------
    state : ProtocolState
        State of the protocol (present roster, lost sites) after the exchanges so far.
    round : int
        Number of the last exchange; -1 before the greeting.
    waited : float
        Seconds spent waiting for the hub, other sites' time included.
    closed_by : str or None
        If the run ended early for this site, why: the hub ended it (``HUB``), the others go on
        without this site (``OUT``), or too few sites are left (``FEW``).
    seen : dict of int
        By site, the last exchange in which a message of it came.
    """

    def __init__(
        self, plan: Plan, name: str, journal: Journal, transport: Transport, key: SigningKey
    ) -> None:
        self.plan = plan
        self.name = name
        self.journal = journal
        self.transport = transport
        self.key = key
        self.state = ProtocolState.of(plan)
        self.round = -1
        self.waited = 0.0
        self.closed_by: str | None = None
        self.seen: dict[str, int] = {}

    @property
    def lost(self) -> dict[str, str]:
        """Sites that are no longer in the roster, and why."""
        return dict(sorted(self.state.gone.items()))

    @property
    def roster(self) -> dict[str, Any]:
        """The last roster, as plain data."""
        return self.state.to_dict()

    def exchange(self, content: Content) -> dict[str, SignedMessage]:
        """Send `content` in the next exchange, and update the protocol's state by what came.

        Returns the messages of the others, by site.
        """
        self.round += 1
        message = sign_content(self.plan, self.round, self.name, content, self.key)
        present, why = self._exchange_with_journal(message)
        self.state.take_messages(
            present | {self.name: SignedMessage(self.name, content, message)}, why
        )
        self.seen |= dict.fromkeys(present, self.round)
        return present

    def exchange_vector(self, kind: Kind, x: Array) -> dict[str, SignedMessage]:
        """Exchange a vector: a greeting, a release, or a last model."""
        check_payload(self.plan, kind, x, self.round + 1)
        return self.exchange(
            Message(self.plan.run, self.plan.digest, self.round + 1, self.name, kind, x)
        )

    def agree_on_roster(self, prepare: Callable[[], None]) -> None:
        """Sign the roster of the sites that are left, until all of them have signed the same one.

        Does nothing if no roster is due.  `prepare` is called before each signature, and may refuse
        it by an exception.  Raises :class:`NetClosed` if too few sites are left.
        """
        while self.state.phase == "roster":
            if not self.state.enough:
                self.closed_by = FEW
                who = (
                    f"{len(self.state.members)} sites are left, but this plan needs "
                    f"{self.state.least}"
                )
                if not self.plan.uses_secure_sums:
                    who += f" that are connected, or all of them; lost: {', '.join(self.lost)}"
                raise NetClosed(f"round={self.round}: {who}; nothing was drawn for the next round")
            prepare()
            self.exchange(self.state.next_roster)

    def call_hub(self, ask: Callable[[], _T]) -> _T:
        """Return the hub's reply to the request `ask`, and add its duration to :attr:`waited`.

        If the hub ended the run for this site, notes why in :attr:`closed_by`, and raises.
        """
        started = time.perf_counter()
        try:
            return ask()
        except TransportClosed as error:
            if error.site not in (None, self.name):
                rule = "the hub ended the run with a notice for another site"
                raise Refused(f"round={self.round}: {rule}") from None
            # The hub names this site itself if the others go on without it.
            self.closed_by = OUT
            if error.site is None:
                self.closed_by = HUB
            raise
        finally:
            self.waited += time.perf_counter() - started

    def send_farewell(self, reason: Reason | None) -> None:
        """Send a signed farewell: no more messages of this site will come, for this reason.

        Does nothing without a reason, or if the others went on without this site.
        """
        if reason is None or self.closed_by == OUT:
            return
        farewell = Farewell(
            self.plan.run,
            self.plan.digest,
            self.round + 1,
            self.name,
            reason,
            self.journal.last_record_hash,
        )
        self.transport.send_farewell(farewell.to_signed_bytes(self.key))

    # Inside

    def _exchange_with_journal(
        self, message: bytes
    ) -> tuple[dict[str, SignedMessage], dict[str, str]]:
        """Send the signed `message` of this exchange, and return what :meth:`_check_inbox` does.

        Message and inbox go through the journal; an inbox that is in it is not asked for again.
        """
        stored = self.journal.store_message(self.round, message)
        # A site that was started again repeats its journal: the same bytes, and the inbox of then.
        if stored is not None:
            texts = parse_json(stored, longest_inbox(self.plan))
            return self._check_inbox({name: text.encode() for name, text in texts.items()})
        inbox = self.call_hub(lambda: self.transport.exchange(self.round, message))
        # Checked before it is written down: an inbox in the journal stays for good.
        found = self._check_inbox(inbox)
        texts = {name: data.decode("ascii") for name, data in inbox.items()}
        self.journal.store_inbox(self.round, canonical_json(texts).encode())
        return found

    def _check_inbox(
        self, inbox: Mapping[str, bytes]
    ) -> tuple[dict[str, SignedMessage], dict[str, str]]:
        """Check an inbox; return its messages, and why those of other members are missing.

        Raises :class:`Refused`.

        - *Sums and rosters* are heard by all members: a site without a message was late.
        - *Over a graph* there must be a message of every neighbour, or a notice why there is none.
          Of other sites there may be notices only.
        """
        others = set(self.state.members) - {self.name}
        all_hear = self.plan.uses_secure_sums or self.state.phase == "roster"
        heard = others
        if not all_hear:
            heard = others.intersection(
                self.plan.exchange_table.names_heard_by(self.name, self.round)
            )
        present: dict[str, SignedMessage] = {}
        absences: dict[str, str] = {}
        for name in sorted(inbox):
            absence = None
            if name in others:
                absence = read_absence(self.plan, inbox[name], name, self.round)
            if absence is not None:
                unsigned = inbox[name] in NOTICES
                self._check_absence(name, unsigned, absence, name in heard)
                absences[name] = absence
            elif name in heard:
                present[name] = read_signed_message(self.plan, inbox[name], name, self.round)
                self.state.check_message(present[name])
            else:
                raise Refused(
                    f"round={self.round}: the hub delivered a message of {name!r}, which is not a "
                    "neighbour"
                )
        silent = heard - present.keys() - absences.keys()
        if silent and not all_hear:
            raise Refused(
                f"round={self.round}: the hub delivered no message of the neighbour {min(silent)!r}"
            )
        # Here all members hear each other, and no plan waits for ever: sums may not, and over a
        # graph such a plan may lose no site: `agree_on_roster` ends it before a roster is signed.
        # A missing entry therefore needs no check of who said so.
        return present, absences | dict.fromkeys(silent, LATE)

    def _check_absence(self, name: str, unsigned: bool, absence: str, heard: bool) -> None:
        """Refuse an unsigned notice of the hub if the plan waits for all sites, however long.

        Such a plan needs the missing site's own signed farewell.  One unsigned notice is allowed:
        that a site has left whose messages this site does not hear, because its last message is for
        its neighbours only.

        Parameters
        ----------
        name : str
            The site without a message.
        unsigned : bool
            Whether only the hub says so, without a signature of that site.
        absence : str
            Why there is no message: a text of :mod:`sottovoce.deploy.sums.roster`, such as LEFT.
        heard : bool
            Whether this site hears the messages of that site.
        """
        if self.plan.waits.waits_for_ever and unsigned and (heard or absence != LEFT):
            rule = "without a signature of that site, but this plan waits for all sites"
            raise Refused(f"round={self.round}: the hub says that {name!r} {absence}, {rule}")
