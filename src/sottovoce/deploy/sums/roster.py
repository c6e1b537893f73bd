"""From messages to rosters and attempts: rules that every site and the hub apply by themselves.

Nobody proposes anything.  All compute the next roster from the same messages, so a hub that shows
different messages to different sites gets no roster that all its members have signed.  Over a graph
a site sees its neighbours' messages alone, and takes the hub's word for who else is missing; the
signatures of all that stay are what it goes on with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ...errors import Refused
from ...util.plain import personalised_hash
from ...util.typing import Any
from ..messages import Message, longest_inbox, read_farewell
from ..plan import Plan
from .masks import Words, encode_fields
from .messages import Hello, Roster, Share, SignedMessage, read_proof

Phase = Literal["key", "roster", "share", "over"]
LATE = "sent nothing in time"
LEFT = "left"
TWICE = "signed two messages where there may be one"
EXPELLED = "was taken out by the hub's operator"
"""Why a site is no longer in the roster."""
NOTICES = {b"": LATE, b"left": LEFT, b"expelled": EXPELLED}
"""In an inbox in place of a message, where nothing signed says why there is none."""
_OTHER_HISTORY = "the sites do not have the same history"


def read_absence(plan: Plan, data: bytes, sender: str, round: int) -> str | None:
    """Return why an inbox holds no message of a site, from what is there in its place.

    Parameters
    ----------
    plan : Plan
    data : bytes
        A word of :data:`NOTICES`, a farewell, a proof of two messages, or a message.
    sender : str
        The site.
    round : int
        The exchange of the inbox.

    Returns
    -------
    str or None
        ``LATE``, ``LEFT``, ``TWICE`` or ``EXPELLED``; None if it is a message.

    Raises
    ------
    Refused
        For a farewell or a proof that is not valid, or a proof about a later exchange.
    """
    if data in NOTICES:
        return NOTICES[data]
    if b'"reason":' in data:
        read_farewell(plan, data, sender, round)
        return LEFT
    about = read_proof(plan, data, sender, longest_inbox(plan))
    if about is None:
        return None
    if about > round:
        raise Refused(f"round={round}: a proof against {sender!r} is about a later round")
    return TWICE


def check_quorum(sites: int, least: int, colluders: int) -> None:
    """Check the least number of sites of a sum, K, against the number of colluding sites, t.

    Parameters
    ----------
    sites : int
        All sites of the plan, N.
    least : int
        K, at most N.
    colluders : int
        t, at least 1, because every site knows its own share.

    Raises
    ------
    Refused
        Unless K - t >= 2, since a single honest share would be seen else, and 2 K > N + t, so
        that two rosters share an honest site and a run cannot have two histories; the argument
        is in ``docs/deploy/sums.md``.
    """
    if colluders < 1:
        raise Refused("colluders: must be at least 1, because every site knows its own share")
    if least - colluders < 2:
        raise Refused(
            f"participants={least}: must leave two honest sites beside {colluders} colluding"
        )
    if not (2 * least > sites + colluders and least <= sites):
        raise Refused(
            f"participants={least}: must be more than half of {sites} sites and {colluders} "
            "colluding"
        )


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
        Purpose of the next exchange: keys, the next roster, shares of the next attempt (over a
        graph: the next round), or nothing more.
    members : tuple of str
        Sites of the next exchange, sorted.
    keys : dict
        Public halves by site.
    session, parent : bytes
        Digest of the greetings, and of the history.
    epoch, attempt : int
        Numbers of the next (or present) roster, and of the next attempt; over a graph, of the round
        that goes on.
    roster : bytes
        Digest of the present roster, which all its members have signed.
    gone : dict
        Sites that are no longer in it, and why.
    since : dict
        The attempt, over a graph the round, from which each of these is out.
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
    since: dict[str, int] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    total: Words | None = None

    @classmethod
    def of(cls, plan: Plan) -> ProtocolState:
        """Return the state before the greeting.

        Raises :class:`Refused` if the plan's numbers do not allow sums.
        """
        members = tuple(sorted(plan.names))
        if not plan.uses_secure_sums:
            session = personalised_hash(
                b"session", encode_fields(b"graph", bytes.fromhex(plan.digest))
            )
            return cls(
                plan,
                members,
                session=session,
                parent=personalised_hash(b"history", session),
                attempt=0,
            )
        facts = plan.facts
        check_quorum(len(plan.sites), facts.participants, facts.colluders)
        return cls(plan, members)

    @property
    def least(self) -> int:
        """The fewest sites of a roster."""
        return self.plan.quorum.least

    @property
    def enough(self) -> bool:
        """True if the present members may sign a roster."""
        return self.may_go_on_with(self.members)

    def may_go_on_with(self, members: Collection[str]) -> bool:
        """Return True if the run may go on with these sites alone.

        Over a graph they must be connected, and no site may be lost before the training.
        """
        plan = self.plan
        if plan.uses_secure_sums or len(members) in (0, len(plan.sites)):
            return len(members) >= self.least
        if len(members) < self.least or not plan.quorum.may_lose_sites:
            return False
        if self.attempt < plan.stages[0].first:
            # what comes before the training is a mean over the rows of all
            return False
        return plan.graph.connects_nodes([plan.index(name) for name in members])

    @property
    def next_roster(self) -> Roster:
        """The roster for every member to sign now."""
        return Roster(self.session, self.epoch, self.attempt, self.members, self.parent)

    def to_dict(self) -> dict[str, Any]:
        """Return the members, who is out and why, and the number of the roster, as plain data."""
        return {
            "members": list(self.members),
            "gone": dict(sorted(self.gone.items())),
            "since": dict(sorted(self.since.items())),
            "epoch": self.epoch,
        }

    def check_message(self, signed: SignedMessage) -> None:
        """Check that a message belongs to the present phase, roster, attempt and history.

        Raises :class:`Refused` otherwise, and for a message of no member.
        """
        where = f"message of {signed.sender!r}"
        content = signed.content
        if signed.sender not in self.members:
            raise Refused(f"{where}: its sender is not in the present roster")
        match content:
            case Message():
                self._check_vector(where, content)
            case Hello() if self.phase == "key":
                for name, key in self.keys.items():
                    if key == content.key and name != signed.sender:
                        raise Refused(f"{where}: its key is that of {name!r}")
            case Roster() if self.phase == "roster":
                if content != self.next_roster:
                    rule = f"signs another roster {content.epoch}: {_OTHER_HISTORY}"
                    raise Refused(f"{where}: {rule}")
            case Share() if self.phase == "share":
                self._check_share(where, content)
            case _:
                raise Refused(f"{where}: is not allowed here: {_OTHER_HISTORY}")

    def _check_vector(self, where: str, content: Message) -> None:
        """Refuse a vector that comes too early, or a release where none belongs.

        A last model may come at any time after the greeting.
        """
        if self.phase == "key" and self.plan.uses_secure_sums:
            raise Refused(f"{where}: comes before any greeting")
        if content.kind == "release" and self.phase != "share":
            raise Refused(f"{where}: is not allowed here: {_OTHER_HISTORY}")

    def _check_share(self, where: str, content: Share) -> None:
        """Refuse a share under another roster, of another attempt, or after another history."""
        sent = (content.roster, content.attempt, content.parent)
        if sent == (self.roster, self.attempt, self.parent):
            return
        or_mean = ""
        if self.plan.centre is not None:
            or_mean = ", or move rows by different means"
        raise Refused(f"{where}: is of another attempt: {_OTHER_HISTORY}{or_mean}")

    def bind_history_to(self, what: bytes) -> None:
        """Go on only with sites that computed the same `what` from what was opened."""
        self.parent = personalised_hash(b"history", encode_fields(self.parent, what))

    def take_messages(self, present: Mapping[str, SignedMessage], why: Mapping[str, str]) -> None:
        """Go on with the messages `present` of an exchange; raises as :meth:`check_message`.

        A member without a message sent none before the exchange was closed, for the reason in `why`
        if one is known. Over a graph a site does not see all messages: there only those in `why`
        are missing.
        """
        for name in sorted(present):
            self.check_message(present[name])
            content = present[name].content
            if isinstance(content, Hello):
                self.keys[name] = content.key
        self.total = None
        leaving = [name for name, signed in present.items() if is_last_model(signed)]
        # If all that are there sent their last model the run is over, and nobody is lost by it.
        over = bool(leaving) and len(leaving) == len(present)
        if over:
            leaving = []
        lost = self._reasons_of_loss(present, why, leaving)
        stay = tuple(name for name in self.members if name not in lost)
        self.since |= dict.fromkeys(lost, self.attempt)
        if over:
            self.phase = "over"
        elif self.plan.uses_secure_sums:
            self._go_on_with_sums(present, stay, whole=not lost)
        else:
            self._go_on_over_graph(whole=not lost)
        self.members = stay
        self.gone |= lost

    def _reasons_of_loss(
        self, present: Collection[str], why: Mapping[str, str], ends: Collection[str]
    ) -> dict[str, str]:
        """Return the members that take part no longer, and why.

        They are those without a message, and those whose last model it was.
        """
        # Over a graph a site does not see the messages of all members: who is missing stands in
        # `why`.
        here: Collection[str] = present
        if not self.plan.uses_secure_sums:
            here = set(self.members) - why.keys()
        reasons = {name: why.get(name, LATE) for name in self.members if name not in here}
        reasons |= dict.fromkeys(ends, LEFT)
        return {name: reasons[name] for name in self.members if name in reasons}

    def _go_on_over_graph(self, *, whole: bool) -> None:
        """Go on to the next round, or to the next roster unless the round was `whole`.

        It was whole if every member took part and stays.
        """
        if self.phase == "roster" and whole:
            self.roster = self.next_roster.digest
            self.parent = personalised_hash(b"history", encode_fields(self.parent, self.roster))
        if whole:
            self.attempt += 1
            self.phase = "share"
        else:
            self.epoch += 1
            self.phase = "roster"

    def _go_on_with_sums(
        self, present: Mapping[str, SignedMessage], stay: tuple[str, ...], *, whole: bool
    ) -> None:
        """Go on to the next roster or attempt.

        The first roster follows the greetings, the attempt a roster, and the next attempt or roster
        that.
        """
        match self.phase:
            case "key":
                self.session = personalised_hash(
                    b"session", encode_fields(*(present[name].data for name in stay))
                )
                self.parent = personalised_hash(b"history", self.session)
                self.phase = "roster"
            case "share":
                self.attempts.append(Attempt(self.members, whole))
                self.attempt += 1
                if whole:
                    self._open_sum(present)
                else:
                    self.epoch += 1
                    self.phase = "roster"
            case "roster" if whole:
                self.roster = self.next_roster.digest
                self.phase = "share"
            case _:
                # A member did not sign this roster: the next one has a new number, since a site
                # signs at most one of a number.
                self.epoch += 1

    def _open_sum(self, present: Mapping[str, SignedMessage]) -> None:
        """Add up the shares of all members, and bind the history to them."""
        shares = [
            signed.content.words for signed in present.values() if isinstance(signed.content, Share)
        ]
        self.total = np.sum(np.array(shares, dtype=np.uint64), axis=0, dtype=np.uint64)
        digests = (present[name].digest for name in self.members)
        self.parent = personalised_hash(b"history", encode_fields(self.parent, *digests))


def is_last_model(signed: SignedMessage) -> bool:
    """Return True for a last model."""
    return isinstance(signed.content, Message) and signed.content.kind in ("stop", "refuse")
