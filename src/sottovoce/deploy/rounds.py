"""Rounds of a run, one after another: the hub's side of the protocol, computed from its log alone.

A *round* here is an exchange: each member of the present *roster* (list of the sites that go on)
sends one message.  Nobody gets a message of a round before all members have sent theirs, or the
round is *closed* without the missing ones.  When to close a round is all that the hub decides, and
it writes that down before it tells anybody.  What else a hub could try is in
``docs/deploy/threats.md``.

:class:`RoundSequence` is the protocol for one thread, :class:`Rounds` adds a lock and waiting for
the many threads of a server, and :class:`Inboxes` composes what each site gets.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from ..data.move import Move
from ..errors import Refused, TransportClosed
from ..util.typing import Any, IntArray
from .answering import ReadNet, replay_row_move
from .hublog import HubLog, message_out_of_order, second_message
from .limits import PROOFS
from .plan import Plan
from .sums.messages import Hello, SignedMessage, make_proof, read_signed_message
from .sums.roster import EXPELLED, LATE, LEFT, NOTICES, TWICE, Attempt, ProtocolState, is_last_model
from .waits import Waits

# Seconds after which a waiting thread looks again at the log: `sottovoce hub expel` and `hub end`
# are processes of their own, which write into it and cannot wake the threads of this one.
_LOOK = 0.5
_T = TypeVar("_T")


class ForwardClock:
    """Monotonic wrapper around an adjustable clock, in seconds.

    If the clock is set back, the difference is added to all later times, so no wait gets longer.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = clock()
        # sum of all setbacks so far
        self._kept = 0.0

    def __call__(self) -> float:
        now = self._clock()
        self._kept += max(0.0, self._last - now)
        self._last = now
        return now + self._kept


class Inboxes:
    """The inboxes of rounds that are over: messages, and for a site without one the reason.

    The reason is the site's own signed farewell, or a proof that it signed two different messages
    for one round; without either it is an unsigned notice of the hub
    (:data:`sottovoce.deploy.sums.roster.NOTICES`).
    """

    def __init__(self, plan: Plan, log: HubLog) -> None:
        self._plan = plan
        self._log = log
        self._run = plan.run
        # cache: messages, farewells and proofs by site, of the rounds that were asked for last
        self._kept: dict[int, dict[str, bytes]] = {}
        # by round of a run over a graph: reasons of absence that all sites get, not only neighbours
        self._notices: dict[int, dict[str, bytes]] = {}
        # rounds in which rosters are signed, whose messages all sites get
        self._rosters: set[int] = set()

    def close_round(
        self, round: int, phase: str, present: Mapping[str, SignedMessage], why: Mapping[str, str]
    ) -> None:
        """Keep the inboxes of a round that is over, before the protocol goes on with it.

        Parameters
        ----------
        round : int
        phase : {"key", "roster", "share"}
            Purpose of the round; rosters are heard by all sites, also over a graph.
        present : mapping of str to SignedMessage
            The messages of the round, by site.
        why : mapping of str to str
            The members without a message, and the reason.
        """
        self._kept = {round: self._all_of_round(round)}
        if phase == "roster":
            self._rosters.add(round)
        elif not self._plan.uses_secure_sums:
            self._notices[round] = self._notices_of_round(round, present, why)

    def of(self, site: str, round: int) -> dict[str, bytes]:
        """Return the inbox of a site for a round: by sender, its message or why there is none.

        A site gets the messages of its neighbours in a run over a graph, and of all other sites in
        a run of sums, in rounds that sign a roster, and where the plan says so.
        """
        if round not in self._kept:
            self._kept[round] = self._all_of_round(round)
        heard = self._kept[round]
        if not self._plan.uses_secure_sums and round not in self._rosters:
            heard = {
                name: heard[name]
                for name in self._plan.exchange_table.names_heard_by(site, round)
                if name in heard
            }
        inbox = self._notices.get(round, {}) | heard
        return {name: data for name, data in inbox.items() if name != site}

    def _notices_of_round(
        self, round: int, present: Mapping[str, SignedMessage], why: Mapping[str, str]
    ) -> dict[str, bytes]:
        """Return the notices of a round over a graph, which all sites get, by the site concerned.

        They say why a site is missing, and which sites have sent their last model: the model itself
        is for the neighbours alone.  Arguments as of :meth:`close_round`.
        """
        # from a reason in words to the bytes that say so in an inbox
        notice_for = {text: notice for notice, text in NOTICES.items()}
        whole = self._kept[round]
        # What the site itself signed comes before the hub's own word about it.
        notices = {
            name: whole.get(name, notice_for.get(reason, b"")) for name, reason in why.items()
        }
        ends = [name for name, signed in present.items() if is_last_model(signed)]
        if len(ends) == len(present):
            # All sites have sent their last model: nobody goes on who would need the notices.
            return notices
        return notices | dict.fromkeys(ends, notice_for[LEFT])

    def _all_of_round(self, round: int) -> dict[str, bytes]:
        """Return all messages of a round by site, or in place of one a farewell or a proof.

        A farewell stands only in the site's next round after its last message, and so does a proof
        that it signed two messages.
        """
        found = self._log.round(self._run, round)
        for name, farewell in self._log.gone(self._run).items():
            if name not in found and self._log.last(self._run, name) == round - 1:
                found[name] = farewell
        proofs = 0
        for name, (about, second) in sorted(
            self._log.decisions.sites_with_two_messages(self._run).items()
        ):
            first = self._log.message_of(self._run, about, name)
            here = (
                name not in found and about < round and self._log.last(self._run, name) == round - 1
            )
            # A proof holds two messages: a plan's size is checked for PROOFS of them in an inbox.
            if here and first is not None and proofs < PROOFS:
                found[name] = make_proof(first, second)
                proofs += 1
        return found


@dataclass
class OpenRound:
    """The round whose messages are being collected.

    Attributes
    ----------
    number : int
        Number of the exchange, from 0.
    begun : float
        When the round before was over, in seconds of the hub's clock.
    messages : dict of SignedMessage
        By site; empty before :meth:`RoundSequence.advance_by_log` has read the log.
    since : float, optional
        When the hub first saw a message of it; None before.
    loaded : bool
        Whether the messages were read from the log.
    closed : bool
        Whether the log says that the round goes on without the missing sites.
    """

    number: int
    begun: float
    messages: dict[str, SignedMessage] = field(default_factory=dict)
    since: float | None = None
    loaded: bool = False
    closed: bool = False


class RoundSequence:
    """The protocol's state after all rounds that the log completes; not safe for several threads.

    Parameters
    ----------
    plan : Plan
    log : HubLog
    waits : Waits
        How long a round waits for missing sites.
    greeting : float
        Seconds that the greeting (round 0) waits for its last site; longer than other rounds,
        because sites may be started one after another.
    clock : callable
        Returns the time in seconds, and never goes back.

    Attributes
    ----------
    state : ProtocolState
        Roster, phase and history after the rounds that are over.
    open : OpenRound
        The present round.
    shares : list of int
        The round of each attempt so far.
    told : set of str
        Sites that were told that the others went on without them.
    move : Move, optional
        Of a run of sums: the map by which rows are centred, once their mean was opened.
    """

    def __init__(
        self, plan: Plan, log: HubLog, waits: Waits, greeting: float, clock: Callable[[], float]
    ) -> None:
        self._plan = plan
        self._log = log
        self._run = plan.run
        self._waits = waits
        self._greeting = greeting
        self._clock = clock
        self._inboxes = Inboxes(plan, log)
        self.state = ProtocolState.of(plan)
        self.open = OpenRound(0, clock())
        self.shares: list[int] = []
        self.told: set[str] = set()
        self.move: Move | None = None

    @property
    def closing_time(self) -> float:
        """Time by the clock at which the present round is closed without the missing sites.

        Infinite before its first message.
        """
        if self.open.since is None:
            return math.inf
        if self.open.number == 0:
            return self.open.since + self._greeting
        there = [name for name in self.state.members if name in self.open.messages]
        if self.state.may_go_on_with(there):
            return self.open.since + self._waits.deadline_seconds
        # Too few sites are there to go on, so closing the round would end the run: the wait is the
        # patience, which is longer than the deadline.
        return self.open.since + self._waits.patience_seconds

    @property
    def missing(self) -> list[str]:
        """Members of the roster without a message in the present round."""
        return [name for name in self.state.members if name not in self.open.messages]

    def post_message(self, site: str, round: int, message: bytes) -> bool:
        """Check a message, store it, and close the round if it was the last one missing.

        A second, different message of a site for one round is stored as evidence, and the others go
        on without that site.

        Parameters
        ----------
        site : str
        round : int
        message : bytes
            Signed; the same bytes again change nothing.

        Returns
        -------
        bool
            Whether the message ended the round.

        Raises
        ------
        Refused
            If the message is not the site's for the present round, roster and history.
        TransportClosed
            If the others go on without the site.
        """
        known = self._log.message_of(self._run, round, site)
        # A request may be repeated after a crash of either side; it takes effect once.
        if known == message:
            return False
        signed = read_signed_message(self._plan, message, site, round)
        if known is not None:
            if site in self.state.members:
                # Both messages are kept: together they prove to the others that the site signed
                # two.
                self._log.decisions.record_second_message(self._run, site, round, message)
                self.advance_by_log()
            raise second_message(site, round)
        self.check_member(site, late=round < self.open.number)
        if round > self.open.number:
            raise message_out_of_order(site, round, self.open.number)
        self.state.check_message(signed)
        for other in self.open.messages.values():
            if isinstance(signed.content, Hello) and other.content == signed.content:
                raise Refused(f"message of {site!r}: its key is that of {other.sender!r}")
        self._log.store_message(self._run, round, site, message)
        self.open.messages[site] = signed
        if self.open.since is None:
            self.open.since = self._clock()
        return self.advance_by_log()

    def inbox_of_site(self, site: str, round: int) -> dict[str, bytes] | None:
        """Return the inbox of a site; None while the round goes on."""
        if round >= self.open.number:
            return None
        return self._inboxes.of(site, round)

    def check_member(self, site: str, *, late: bool = False) -> None:
        """Raise :class:`TransportClosed` if the others go on without a site, and note it as told.

        `late` says that the site sends for a round that is over already.
        """
        accused = site in self._log.decisions.sites_with_two_messages(self._run)
        expelled = site in self._log.decisions.expelled_sites(self._run)
        if not (late or accused or expelled or site not in self.state.members):
            return
        self.told.add(site)
        if expelled:
            why = EXPELLED
        elif site in self.state.gone:
            why = self.state.gone[site]
        elif accused:
            why = TWICE
        else:
            why = "came too late"
        raise TransportClosed(f"the other sites go on without {site!r}: it {why}", site)

    def attempt_in_exchange(self, round: int) -> int:
        """Return the number of the attempt in an exchange, or of the last attempt before it.

        It is the round of the algorithm, as users see it: 0 if there was no attempt yet, -1 for
        `round` below 0, and one more than the plan's attempts for the last models.
        """
        if round < 0:
            return -1
        if self.state.phase == "over" and round >= self.open.number - 1:
            return self._plan.exchange_table.attempts + 1
        attempts = sum(at <= round for at in self.shares)
        if (
            not self._plan.uses_secure_sums
            and self.state.phase == "share"
            and round == self.open.number
        ):
            # the exchange that is open, which is not among the closed ones yet
            attempts += 1
        return attempts

    def advance_by_log(self) -> bool:
        """Close rounds as long as the log has their messages or may go on without the missing ones.

        Returns True if any round was closed.
        """
        before = self.open.number
        while self.state.phase != "over":
            if not self.open.loaded:
                self._load_round()
            absent = self.missing
            if absent and not self.open.closed:
                if not self._may_close_without(absent):
                    break
                # Written down before anybody is told, so that a restarted hub decides the same.
                self._log.decisions.record_closed_round(self._run, self.open.number)
            self._close_without(absent)
        return self.open.number > before

    def _load_round(self) -> None:
        """Read the messages of the present round from the log.

        Its waits begin now, also after a restart of the hub.
        """
        number = self.open.number
        stored = self._log.round(self._run, number)
        self.open.messages = {
            name: read_signed_message(self._plan, data, name, number)
            for name, data in stored.items()
        }
        self.open.since = None
        if stored:
            self.open.since = self._clock()
        self.open.closed = self._log.decisions.is_round_closed(self._run, number)
        self.open.loaded = True

    def _may_close_without(self, absent: list[str]) -> bool:
        """Return True if the round may be closed without these sites.

        Each of them must have left, signed two messages, been taken out by the operator, or be
        late.
        """
        decisions = self._log.decisions
        # sites for which nobody needs to wait
        known = (
            self._log.gone(self._run).keys()
            | decisions.sites_with_two_messages(self._run).keys()
            | decisions.expelled_sites(self._run)
        )
        if known.issuperset(absent):
            return bool(self.open.messages)
        if self.open.number == 0 and not self.state.may_go_on_with([*self.open.messages]):
            # Closing would end the run before it has begun, so the greeting waits longer.
            return self._clock() >= self.closing_time + self._waits.patience_seconds
        return self._clock() >= self.closing_time

    def _close_without(self, absent: list[str]) -> None:
        """Go on with the messages of the present round, without those of `absent`."""
        number = self.open.number
        present = self.open.messages
        why = self._reasons_of_absence(absent)
        shared = self.state.phase == "share"
        first = shared and self.state.attempt == 1
        self._inboxes.close_round(number, self.state.phase, present, why)
        if shared:
            self.shares.append(number)
        self.state.take_messages(present, why)
        # The first attempt is the mean of rows. The map that follows from it joins the history, so
        # that sites with other maps halt (docs/deploy/sums.md, "What is sent").
        if first and self._plan.centre is not None and self.state.attempts:
            self.move = self._replay_row_move()
            self.state.bind_history_to(self.move.digest)
        self.open = OpenRound(number + 1, self._clock())

    def _reasons_of_absence(self, absent: list[str]) -> dict[str, str]:
        """Return why each of these sites has sent nothing."""
        decisions = self._log.decisions
        reasons = dict.fromkeys(absent, LATE)
        # Later entries replace earlier ones: two signed messages are a proof, which counts more
        # than a site's farewell, and that more than the operator's decision.
        for sites, why in (
            (decisions.expelled_sites(self._run), EXPELLED),
            (self._log.gone(self._run), LEFT),
            (decisions.sites_with_two_messages(self._run), TWICE),
        ):
            reasons |= {name: why for name in absent if name in sites}
        return reasons

    def _replay_row_move(self) -> Move:
        """Return the map by which the sites centre their rows, after the attempt for their mean.

        If its sum was not opened, the mean counts as zero.
        """
        among = self._plan.exchange_table.among(1, self.state.attempts[0].members)
        opened: IntArray | None = None
        if self.state.total is not None:
            opened = self.state.total.view(np.int64)
        move = replay_row_move(self._plan, ReadNet([(among, opened)]))
        assert move is not None
        return move


class Rounds:
    """The rounds of one run, for the many threads of one process, each waiting for its site.

    Parameters
    ----------
    plan : Plan
    log : HubLog
    waits : Waits, optional
        How long a round waits for missing sites; by default what the plan says.
    greeting : float
        Seconds that the greeting (round 0) waits for its last site.
    clock : callable
        Returns the time in seconds; if it is set back nobody waits longer.

    Attributes
    ----------
    news : threading.Condition
        Lock of all of this, and the signal that something changed.
    """

    def __init__(
        self,
        plan: Plan,
        log: HubLog,
        waits: Waits | None,
        greeting: float,
        clock: Callable[[], float],
    ) -> None:
        self.clock = ForwardClock(clock)
        self.news = threading.Condition(threading.RLock())
        self.waits = plan.waits if waits is None else waits
        self._log, self._run = log, plan.run
        self._sequence = RoundSequence(plan, log, self.waits, greeting, self.clock)

    @contextmanager
    def advanced_rounds(self) -> Iterator[RoundSequence]:
        """Context that holds the lock; yields the rounds, brought up to date with the log."""
        with self.news:
            self._sequence.advance_by_log()
            yield self._sequence

    @property
    def attempts(self) -> list[Attempt]:
        """All attempts so far, of a run of sums."""
        with self.advanced_rounds() as rounds:
            return list(rounds.state.attempts)

    @property
    def gone(self) -> dict[str, str]:
        """Sites that are no longer in the roster, and why."""
        with self.advanced_rounds() as rounds:
            return dict(rounds.state.gone)

    @property
    def roster(self) -> dict[str, Any]:
        """The present roster: see :meth:`sottovoce.deploy.sums.roster.ProtocolState.to_dict`."""
        with self.advanced_rounds() as rounds:
            return rounds.state.to_dict()

    @property
    def sites_not_told(self) -> list[str]:
        """Sites that are out and have made no request since: they do not know yet that they are."""
        with self.advanced_rounds() as rounds:
            return sorted(rounds.state.gone.keys() - self._log.gone(self._run).keys() - rounds.told)

    @property
    def is_over(self) -> bool:
        """True if the run is over: all sites of the roster have sent their last model."""
        with self.advanced_rounds() as rounds:
            return rounds.state.phase == "over"

    @property
    def missing(self) -> list[str]:
        """Members of the roster whose messages are missing in the present round."""
        with self.advanced_rounds() as rounds:
            return rounds.missing

    def post_message(self, site: str, round: int, message: bytes) -> None:
        """Store a message, and wake the threads that wait for it.

        Parameters
        ----------
        site, round, message
            See :meth:`RoundSequence.post_message`, also for what is raised.
        """
        with self.advanced_rounds() as rounds:
            if rounds.post_message(site, round, message):
                self.wake_waiting_threads()

    def inbox_of_site(self, site: str, round: int) -> dict[str, bytes] | None:
        """Return the inbox of a site for a round; None while the round goes on.

        Raises :class:`TransportClosed` if the run was ended.
        """
        with self.advanced_rounds() as rounds:
            self.check_running()
            return rounds.inbox_of_site(site, round)

    def check_running(self) -> None:
        """Raise :class:`TransportClosed` if the hub has ended the run."""
        if self._log.decisions.is_run_ended(self._run):
            raise TransportClosed(f"the hub ended the run {self._run!r}")

    def wake_waiting_threads(self) -> None:
        """Wake all waiting threads, because something was written into the log."""
        with self.news:
            self.news.notify_all()

    def wait_for_result(
        self, look: Callable[[], _T | None], seconds: float, give_up: Callable[[], bool]
    ) -> _T | None:
        """Call `look` after every change of the log until it returns something, and return that.

        Parameters
        ----------
        look : callable
            Returns None while there is nothing; called with the lock held.
        seconds : float
            How long to wait at most, by the hub's clock.
        give_up : callable
            Returns True to end the wait early.

        Returns
        -------
        object
            Result of `look`; None if it found nothing in time, or `give_up` ended the wait.
        """
        with self.news:
            until = self.clock() + seconds
            while True:
                found = look()
                left = until - self.clock()
                if found is not None or left <= 0.0 or give_up():
                    return found
                until_closing = self._sequence.closing_time - self.clock()
                if until_closing <= 0.0:
                    # The round is due, but may not be closed yet: look again soon, but do not spin.
                    until_closing = _LOOK
                self.news.wait(min(left, until_closing, _LOOK))
