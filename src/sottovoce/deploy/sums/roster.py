"""From messages to rosters and attempts: rules that every site and the hub apply by themselves.

Nobody proposes anything.  All compute the next roster from the same messages, so a hub that shows different messages to
different sites gets no roster that all its members have signed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ...errors import Refused
from ...util.plain import keyed_hash
from ..messages import Message
from ..plan import Plan
from .masks import Words, fields
from .messages import Hello, Roster, Share, SignedMessage

Phase = Literal["key", "roster", "share", "over"]
LATE, LEFT, TWICE = "sent nothing in time", "left", "signed two messages where there may be one"
"""Why a site is no longer in the roster."""


def check_quorum(sites: int, least: int, colluders: int) -> None:
    """Raise :class:`Refused` for numbers with which a sum might show a single share, or a run have two histories.

    `least` is the fewest sites of a sum, of all `sites`; the argument is in ``docs/deploy/sums.md``.
    """
    if colluders < 1:
        raise Refused("colluders: must be at least 1, because every site knows its own share")
    if least - colluders < 2:
        raise Refused(f"participants={least}: must leave two honest sites beside {colluders} colluding")
    if not (2 * least > sites + colluders and least <= sites):
        raise Refused(f"participants={least}: must be more than half of {sites} sites and {colluders} colluding")


@dataclass(frozen=True)
class Attempt:
    """One attempt: its sites, and whether its sum was opened."""

    members: tuple[str, ...]
    opened: bool


@dataclass
class ProtocolState:
    """State of the protocol after the exchanges so far.

    Attributes
    ----------
    phase : str
        Purpose of the next exchange: keys, the next roster, shares of the next attempt, or nothing more.
    members : tuple of str
        Sites of the next exchange, sorted.
    keys : dict
        Public halves by site.
    session, parent : bytes
        Digest of the greetings, and of the history.
    epoch, attempt : int
        Numbers of the next (or present) roster, and of the next attempt.
    roster : bytes
        Digest of the present roster, which all its members have signed.
    gone : dict
        Sites that are no longer in it, and why.
    total : array (d,) or None
        Sum of the shares of the last exchange modulo ``2^64``, if it opened an attempt.
    """

    plan: Plan
    members: tuple[str, ...]
    phase: Phase = "key"
    keys: dict[str, bytes] = field(default_factory=dict)
    session: bytes = b""
    parent: bytes = b""
    epoch: int = 0
    attempt: int = 1
    roster: bytes = b""
    gone: dict[str, str] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    total: Words | None = None

    @classmethod
    def of(cls, plan: Plan) -> ProtocolState:
        """The state before the greeting; raises :class:`Refused` if the plan's numbers do not allow sums."""
        facts = plan.facts
        check_quorum(len(plan.sites), facts.participants, facts.colluders)
        return cls(plan, tuple(sorted(plan.names)))

    @property
    def least(self) -> int:
        """The fewest sites of a roster."""
        return self.plan.facts.participants

    @property
    def enough(self) -> bool:
        """Whether these members may sign a roster."""
        return len(self.members) >= self.least

    @property
    def next_roster(self) -> Roster:
        """The roster for every member to sign now."""
        return Roster(self.session, self.epoch, self.attempt, self.members, self.parent)

    def check(self, signed: SignedMessage) -> None:
        """Raise :class:`Refused` for a message of no member, or of another phase, roster, attempt or history."""
        where, content = f"message of {signed.sender!r}", signed.content
        if signed.sender not in self.members:
            raise Refused(f"{where}: it is not in the present roster")
        if isinstance(content, Message):
            if self.phase == "key":
                raise Refused(f"{where}: comes before any greeting")
            return
        expected = {"key": Hello, "roster": Roster, "share": Share}.get(self.phase)
        if expected is None or not isinstance(content, expected):
            raise Refused(f"{where}: does not belong here: the sites do not have the same history")
        if isinstance(content, Hello):
            others = [name for name, key in self.keys.items() if key == content.key and name != signed.sender]
            if others:
                raise Refused(f"{where}: has the key of {others[0]!r}")
        elif isinstance(content, Roster):
            if content != self.next_roster:
                raise Refused(f"{where}: signs another roster {content.epoch}: the sites do not have the same history")
        elif (content.roster, content.attempt, content.parent) != (self.roster, self.attempt, self.parent):
            or_mean = "" if self.plan.centre is None else ", or move rows by different means"
            raise Refused(f"{where}: is of another attempt: the sites do not have the same history{or_mean}")

    def bind(self, what: bytes) -> None:
        """Go on only with sites that computed the same `what` from what was opened."""
        self.parent = keyed_hash(b"history", fields(self.parent, what))

    def take(self, present: Mapping[str, SignedMessage], why: Mapping[str, str]) -> None:
        """Go on with the messages `present` of an exchange; raises as :meth:`check`.

        A member without a message sent none before the exchange was closed, for the reason in `why` if one is known.
        """
        for name in sorted(present):
            self.check(present[name])
            if isinstance(content := present[name].content, Hello):
                self.keys[name] = content.key
        self.total = None
        last = [name for name, signed in present.items() if isinstance(signed.content, Message)]
        stay = tuple(name for name in self.members if name in present and name not in last)
        lost = {name: LEFT if name in last else why.get(name, LATE) for name in self.members if name not in stay}
        if last and not stay:  # all that are there sent their last model
            self.gone |= {name: reason for name, reason in lost.items() if name not in last}
            self.members, self.phase = tuple(sorted(last)), "over"
            return
        if self.phase == "key":
            self.session = keyed_hash(b"session", fields(*(present[name].data for name in stay)))
            self.parent = keyed_hash(b"history", self.session)
            self.phase = "roster"
        elif self.phase == "share":
            self.attempts.append(Attempt(self.members, not lost))
            self.attempt += 1
            if not lost:
                shares = [signed.content.words for signed in present.values() if isinstance(signed.content, Share)]
                self.total = np.sum(np.array(shares, dtype=np.uint64), axis=0, dtype=np.uint64)
                digests = (present[name].digest for name in self.members)
                self.parent = keyed_hash(b"history", fields(self.parent, *digests))
            else:
                self.epoch, self.phase = self.epoch + 1, "roster"
        elif not lost:
            self.roster, self.phase = self.next_roster.digest, "share"
        else:
            self.epoch += 1
        self.members = stay
        self.gone |= lost
