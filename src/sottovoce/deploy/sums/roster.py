"""From messages to rosters and attempts: rules that every site and the hub apply by themselves.

A *roster* is the list of the sites that go on, a set of members that all of them sign.  An
*attempt* is one try at a sum: it is *opened* if all members of the roster have sent their share.
The *history* is a digest of everything that was agreed or opened so far; every message names it,
so sites with different histories refuse each other's messages.

Nobody proposes a roster.  All compute the next one from the same messages, so a hub that shows
different messages to different sites gets no roster that all its members have signed.  Over a graph
a site sees its neighbours' messages alone, and relies on the hub's notices of who else is missing;
it goes on only once all remaining sites have signed the same roster.

:class:`ProtocolState` holds the state between two exchanges.  A site updates it in
:mod:`sottovoce.deploy.exchanges`, and the hub in :mod:`sottovoce.deploy.rounds`.
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
"""Purpose of an exchange: greetings, signing a roster, shares (over a graph: releases), none."""
# Why a site is no longer in the roster.
LATE = "sent nothing in time"
LEFT = "left"
TWICE = "signed two messages where there may be one"
EXPELLED = "was taken out by the hub's operator"
NOTICES = {b"": LATE, b"left": LEFT, b"expelled": EXPELLED}
"""Unsigned notices of the hub in an inbox, in place of a site's message, and what they mean."""
_OTHER_HISTORY = "the sites do not have the same history"


def read_absence(plan: Plan, data: bytes, sender: str, round: int) -> str | None:
    """Return why an inbox holds no message of a site, from its entry for that site.

    Parameters
    ----------
    plan : Plan
    data : bytes
        The entry: a key of :data:`NOTICES`, a farewell, a proof that the site signed two messages,
        or an ordinary message.
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
        If K - t < 2, because a single honest share would be seen, or 2 K <= N + t, because two
        rosters might have no honest site in common, so that a run could have two histories
        (``docs/deploy/sums.md``).
    """
    if colluders < 1:
        raise Refused("colluders: must be at least 1, because every site knows its own share")
    if least - colluders < 2:
        raise Refused(
            f"participants={least}: must be at least {colluders + 2} with {colluders} colluding"
        )
    if not (2 * least > sites + colluders and least <= sites):
        raise Refused(
            f"participants={least}: must be more than {(sites + colluders) / 2:g} and at most "
            f"{sites} with {sites} sites, {colluders} of them colluding"
        )


@dataclass(frozen=True)
class Attempt:
    """One attempt at a sum.

    Parameters
    ----------
    members : tuple of str
        The sites of its roster, sorted.
    opened : bool
        Whether all of them sent their share, so that the sum is known.
    """

    members: tuple[str, ...]
    opened: bool


@dataclass
class ProtocolState:
    """State of the protocol after the exchanges so far.

    Attributes
    ----------
    plan : Plan
    members : tuple of str
        Sites of the next exchange, sorted.
    phase : {"key", "roster", "share", "over"}
        Purpose of the next exchange: greetings with keys, the next roster, shares of the next
        attempt (over a graph: releases of the next round), or nothing more.
    keys : dict of bytes
        Public masking keys, by site.
    session : bytes
        Digest of the greetings; over a graph of the plan.
    parent : bytes
        Digest of the history so far.
    epoch : int
        Number of the present roster, or of the next one while it is being signed.
    attempt : int
        Number of the next attempt, from 1; over a graph the number of the present round.
    roster : bytes
        Digest of the present roster, which all its members have signed.
    gone : dict of str
        Sites that are no longer in the roster, and why.
    since : dict of int
        For each of these, the first attempt (over a graph: round) without it.
    attempts : list of Attempt
        All attempts so far.
    total : array of uint64, (k,), or None
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
            # A greeting has no key, and the first round needs no signed roster: all sites are in.
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
        """The smallest number of sites of a roster."""
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
            # Before the training there is the mean of the rows of all sites, which needs them all.
            return False
        return plan.graph.connects_nodes([plan.index(name) for name in members])

    @property
    def next_roster(self) -> Roster:
        """The roster that every member is to sign now."""
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

        Raises :class:`Refused` otherwise, or if its sender is not a member.
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
        """Refuse a vector before the greeting, and a release outside the phase of shares.

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
        """Add a digest to the history, so that sites with another one refuse each other's messages.

        `what` is a digest of something that each site computes from the opened sums.
        """
        self.parent = personalised_hash(b"history", encode_fields(self.parent, what))

    def take_messages(self, present: Mapping[str, SignedMessage], why: Mapping[str, str]) -> None:
        """Advance the state by the messages of an exchange; raises as :meth:`check_message`.

        Parameters
        ----------
        present : mapping of str to SignedMessage
            The messages that came, by site.
        why : mapping of str to str
            Why members sent none, by site.  In a run of sums a member in neither mapping was late.
            Over a graph a site does not see the messages of all members, and only those in `why`
            are missing.
        """
        for name in sorted(present):
            self.check_message(present[name])
            content = present[name].content
            if isinstance(content, Hello):
                self.keys[name] = content.key
        self.total = None
        leaving = [name for name, signed in present.items() if is_last_model(signed)]
        # If all messages are last models the run is over, and no site is lost by it.  Else a site
        # that sends its last model leaves the others.
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

        These are the members without a message, and `ends`, who sent their last model before the
        others.
        """
        # Over a graph a site does not see the messages of all members: the missing ones are those
        # in `why`.
        here: Collection[str] = present
        if not self.plan.uses_secure_sums:
            here = set(self.members) - why.keys()
        reasons = {name: why.get(name, LATE) for name in self.members if name not in here}
        reasons |= dict.fromkeys(ends, LEFT)
        return {name: reasons[name] for name in self.members if name in reasons}

    def _go_on_over_graph(self, *, whole: bool) -> None:
        """Set the phase after an exchange over a graph: the next round, or a new roster.

        The exchange was `whole` if every member took part and stays; else a roster without the lost
        sites must be signed.
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
        """Set the phase after an exchange of a run of sums.

        After the greetings comes the first roster; after a roster that all have signed an attempt;
        after an attempt the next one, or a new roster if a site was lost.

        Parameters
        ----------
        present : mapping of str to SignedMessage
            The messages of the exchange, by site.
        stay : tuple of str
            The members that remain.
        whole : bool
            Whether no member was lost.
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
        """Add up the shares of all members modulo ``2^64``; the history gets their digests."""
        shares = [
            signed.content.words for signed in present.values() if isinstance(signed.content, Share)
        ]
        self.total = np.sum(np.array(shares, dtype=np.uint64), axis=0, dtype=np.uint64)
        digests = (present[name].digest for name in self.members)
        self.parent = personalised_hash(b"history", encode_fields(self.parent, *digests))


def is_last_model(signed: SignedMessage) -> bool:
    """Return True if a message is a site's last model, of kind "stop" or "refuse"."""
    return isinstance(signed.content, Message) and signed.content.kind in ("stop", "refuse")
