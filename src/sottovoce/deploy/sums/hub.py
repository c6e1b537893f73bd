"""The hub's side of a run: rounds that end, also without sites that are missing if the plan allows it.

It decides one thing, when to go on without a site, and writes that down before it tells anybody.  What else it could
try is in ``docs/deploy/threats.md``.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np

from ...data.move import Move
from ...errors import Refused, TransportClosed
from ...problem.facts import Among
from ...util.typing import Any, Array, IntArray
from ..answering import ReadNet, moved
from ..hublog import HubLog
from ..limits import PROOFS
from ..messages import Message
from ..plan import Plan
from ..waits import Waits
from .messages import Hello, Share, SignedMessage, prove, read, read_attestation, read_question
from .roster import EXPELLED, LATE, LEFT, NOTICES, TWICE, Attempt, ProtocolState, ends_run

_LOOK = 0.5  # seconds between looks at what another process may have written


@dataclass
class _Inquiry:
    """The last question of one site, and the other sites' answers."""

    question: bytes
    enough: int
    since: float
    answers: dict[str, bytes] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        return len(self.answers) < self.enough


class _Forward:
    """Seconds by a clock that may be set back: the time until then is kept, so no wait grows by it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._last, self._kept = clock, clock(), 0.0

    def __call__(self) -> float:
        now = self._clock()
        self._kept += max(0.0, self._last - now)
        self._last = now
        return now + self._kept


class RoundHub:
    """Receives and distributes the messages of one run.  Safe for several threads; one process at a time.

    Nobody gets a message of a round before all members of the roster have sent theirs, or the round is closed.

    Parameters
    ----------
    waits : Waits, optional
        How long a round waits, in place of what the plan says.
    greeting : float
        Seconds that the greeting waits for its last site, since sites may be started one after another.
    clock : callable
        Seconds; one that is set back makes nobody wait longer.
    """

    def __init__(
        self, plan: Plan, log: HubLog, waits: Waits | None = None, greeting: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._plan, self._log, self._run, self._clock = plan, log, plan.run, _Forward(clock)
        self._waits, self._greeting = plan.waits if waits is None else waits, greeting
        self._news = threading.Condition(threading.RLock())
        self._state, self._round = ProtocolState.of(plan), 0
        self._present: dict[str, SignedMessage] | None = None  # of the present round; None before the log was read
        self._kept: dict[int, dict[str, bytes]] = {}
        self._begun = self._clock()  # when the present round was there to be sent to
        self._since: float | None = None
        self._shut = False
        self._shares: list[int] = []  # exchanges with an attempt
        self._rosters: set[int] = set()  # exchanges with a roster
        self._absent: dict[int, dict[str, bytes]] = {}  # over a graph, by exchange: what all get in place of a message
        self._inquiries: dict[str, _Inquiry] = {}
        self._told: set[str] = set()  # that the others went on without them
        self._move: Move | None = None

    @property
    def attempts(self) -> list[Attempt]:
        """All attempts so far."""
        with self._current() as state:
            return list(state.attempts)

    @property
    def gone(self) -> dict[str, str]:
        """Sites that are no longer in the roster, and why."""
        with self._current() as state:
            return dict(state.gone)

    @property
    def roster(self) -> dict[str, Any]:
        """The present roster: see :meth:`sottovoce.deploy.sums.roster.ProtocolState.to_dict`."""
        with self._current() as state:
            return state.to_dict()

    @property
    def untold(self) -> list[str]:
        """Sites that were left out and have not asked since: they cannot know that it is over."""
        with self._current() as state:
            return sorted(state.gone.keys() - self._log.gone(self._run).keys() - self._told)

    @property
    def over(self) -> bool:
        """Whether the last models were sent."""
        with self._current() as state:
            return state.phase == "over"

    @property
    def move(self) -> Move | None:
        """The map by which the sites move their rows; None if they do not, or not yet."""
        with self._current():
            return self._move

    def last(self) -> dict[str, Array]:
        """Last models of the sites that came to the end; empty before."""
        with self._current() as state:
            if state.phase != "over":
                return {}
            found = {}
            for name, data in self._log.round(self._run, self._round - 1).items():
                content = read(self._plan, data, name, self._round - 1).content
                if isinstance(content, Message):
                    found[name] = content.payload
            return found

    def attempt_in(self, round: int) -> int:
        """Number of the attempt in an exchange, or of the last one before it.

        0 if there was none yet, -1 before the greeting, and one more than the plan has for the last models.
        """
        with self._current() as state:
            if round < 0:
                return -1
            if state.phase == "over" and round >= self._round - 1:
                return self._plan.attempts + 1
            own = not self._plan.summed and state.phase == "share" and round == self._round
            return sum(at <= round for at in self._shares) + own

    def opened(self, attempt: int) -> tuple[tuple[str, ...], IntArray] | None:
        """The sites of an attempt and the sum of their shares modulo ``2^64``; None if it was not opened."""
        with self._current() as state:
            if attempt > len(state.attempts) or not state.attempts[attempt - 1].opened:
                return None
            round, members = self._shares[attempt - 1], state.attempts[attempt - 1].members
            sent = self._log.round(self._run, round)
            contents = [read(self._plan, sent[name], name, round).content for name in members]
            words = np.array([content.words for content in contents if isinstance(content, Share)], dtype=np.uint64)
            total = np.asarray(np.sum(words, axis=0, dtype=np.uint64))
            return members, np.asarray(total.view(np.int64))

    def missing(self) -> list[str]:
        """Members of the roster without a message in the present round."""
        with self._current() as state:
            return [name for name in state.members if name not in (self._present or {})]

    def exchange(self, site: str, round: int, message: bytes, seconds: float) -> dict[str, bytes] | None:
        """See :meth:`sottovoce.deploy.hub.Hub.exchange`.

        :class:`TransportClosed` names the site itself, if the others went on without it.
        """
        with self._current():
            self._post(site, round, message)
            until = self._clock() + seconds
            while True:
                found = self.inbox(site, round)
                left = until - self._clock()
                if found is not None or left <= 0.0 or self.asked(site):
                    return found
                self._wait(left)

    def inbox(self, site: str, round: int) -> dict[str, bytes] | None:
        """The messages for a site, once the round is over for all; raises :class:`TransportClosed`.

        Those of all other sites, or over a graph those of its neighbours, unless it is about a roster.
        """
        with self._current():
            if self._log.ended(self._run):
                raise TransportClosed(f"the hub ended the run {self._run!r}")
            if round >= self._round:
                return None
            if round not in self._kept:
                self._kept[round] = self._whole(round)
            whole, absent = self._kept[round], self._absent.get(round, {})
            if not self._plan.summed and round not in self._rosters:
                near = self._plan.neighbours(site, round)
                whole = {name: whole[name] for name in near if name in whole}
            return {name: data for name, data in (absent | whole).items() if name != site}

    def inquire(self, site: str, question: bytes, enough: int, seconds: float) -> dict[str, bytes] | None:
        """See :meth:`sottovoce.deploy.hub.Hub.inquire`.

        Only the last question of a site is open.  A killed process may still wait here for an earlier one: it gets
        nothing, and takes nothing away from its successor.  If a question is open for the plan's patience in a round
        without any message, which would have a deadline, the run ends.
        """
        with self._news:
            read_question(self._plan, question, site)
            asked = self._inquiries.get(site)
            if asked is None or asked.question != question:
                asked = self._inquiries[site] = _Inquiry(question, enough, self._clock())
                self._news.notify_all()
            until = self._clock() + seconds
            while True:
                self._look()
                if not self._log.ended(self._run):
                    self._still_in(site)
                    waited = self._clock() - max(asked.since, self._begun)
                    if asked.open and not self._present and waited >= self._waits.patience_seconds:
                        self._log.end(self._run)
                if self._log.ended(self._run):
                    raise TransportClosed(f"the hub ended the run {self._run!r}")
                left = until - self._clock()
                if not asked.open:
                    return dict(asked.answers)
                if left <= 0.0 or self.asked(site) or self._inquiries[site] is not asked:
                    return None
                self._wait(left)

    def asked(self, site: str) -> dict[str, bytes]:
        """Questions of other sites that `site` has not answered."""
        with self._news:
            inquiries = self._inquiries.items()
            return {who: one.question for who, one in inquiries if who != site and one.open and site not in one.answers}

    def answer(self, site: str, asker: str, answer: bytes) -> None:
        """Take an answer of `site`; one to an earlier question, or to none, is dropped."""
        with self._news, suppress(Refused):
            asked = self._inquiries.get(asker)
            if asked is not None and asked.open:
                read_attestation(self._plan, answer, site, read_question(self._plan, asked.question, asker))
                asked.answers[site] = answer
                self._news.notify_all()

    def tell(self) -> None:
        """Look again: something was written into the log."""
        with self._current():
            self._news.notify_all()

    @contextmanager
    def _current(self) -> Iterator[ProtocolState]:
        """The lock, and the state after all that the log allows."""
        with self._news:
            self._look()
            yield self._state

    # Inside the lock

    def _wait(self, seconds: float) -> None:
        """Wait for news or the end of the round, with looks at what another process may have written."""
        closes = self._closes - self._clock()
        self._news.wait(min(seconds, closes if closes > 0.0 else _LOOK, _LOOK))

    def _post(self, site: str, round: int, message: bytes) -> None:
        known = self._log.message(self._run, round, site)
        if known == message:
            return
        signed = read(self._plan, message, site, round)
        if known is not None:
            self._accuse(site, round, message)
            raise Refused(f"round={round}: site {site!r} has sent another message of this round already")
        if round < self._round:
            self._still_in(site, late=True)
        self._still_in(site)
        if round > self._round:
            raise Refused(f"round={round}: out of order; the next message of site {site!r} is that of {self._round}")
        self._state.check(signed)
        present = {} if self._present is None else self._present
        for other in present.values():
            if isinstance(signed.content, Hello) and other.content == signed.content:
                raise Refused(f"message of {site!r}: has the key of {other.sender!r}")
        self._log.post(self._run, round, site, message)
        present[site] = signed
        self._since = self._clock() if self._since is None else self._since
        if self._look():
            self._news.notify_all()

    def _still_in(self, site: str, *, late: bool = False) -> None:
        out = self._log.accused(self._run).keys() | self._log.expelled(self._run)
        if late or site not in self._state.members or site in out:
            self._told.add(site)
            why = self._state.gone.get(site, TWICE if site in self._log.accused(self._run) else "came too late")
            why = EXPELLED if site in self._log.expelled(self._run) else why
            raise TransportClosed(f"the other sites go on without {site!r}: it {why}", site)

    def _accuse(self, site: str, round: int, message: bytes) -> None:
        if site in self._state.members:
            self._log.accuse(self._run, site, round, message)
            if self._look():
                self._news.notify_all()

    @property
    def _closes(self) -> float:
        """When the present round ends without the sites that are missing."""
        if self._since is None:
            return math.inf
        if self._round == 0:
            return self._since + self._greeting
        there = [name for name in self._state.members if name in (self._present or {})]
        return self._since + (
            self._waits.deadline_seconds if self._state.allows(there) else self._waits.patience_seconds
        )

    def _look(self) -> bool:
        """Go on as far as the log allows; whether that was any further."""
        before = self._round
        while self._state.phase != "over":
            if self._present is None:
                stored = self._log.round(self._run, self._round).items()
                self._present = {name: read(self._plan, data, name, self._round) for name, data in stored}
                self._since = self._clock() if self._present else None
                self._shut = self._log.is_shut(self._run, self._round)
            absent = [name for name in self._state.members if name not in self._present]
            if absent and not self._shut:
                if not self._may_go_on(absent):
                    break
                self._log.shut(self._run, self._round)
            accused = self._log.accused(self._run)
            left = self._log.gone(self._run)
            out = self._log.expelled(self._run)
            why = {
                name: TWICE if name in accused else LEFT if name in left else EXPELLED if name in out else LATE
                for name in absent
            }
            self._kept = {self._round: self._whole(self._round)}
            if self._state.phase == "roster":
                self._rosters.add(self._round)
            elif self._state.phase == "share" or not self._plan.summed:
                self._note(why)
            if self._state.phase == "share":
                self._shares.append(self._round)
            first = self._state.phase == "share" and self._state.attempt == 1
            self._state.take(self._present, why)
            if first and self._plan.centre is not None and self._state.attempts:
                self._move = self._moved()
                self._state.bind(self._move.digest)
            self._round, self._present, self._since, self._begun = self._round + 1, None, None, self._clock()
        return self._round > before

    def _may_go_on(self, absent: list[str]) -> bool:
        """Whether to close the round without these: they left, signed two messages, or are late."""
        assert self._present is not None
        known = self._log.gone(self._run).keys() | self._log.accused(self._run).keys() | self._log.expelled(self._run)
        if known.issuperset(absent):
            return bool(self._present)
        if self._round == 0 and not self._state.allows([*self._present]):  # it has not begun, and is not given up soon
            return self._clock() >= self._closes + self._waits.patience_seconds
        return self._clock() >= self._closes

    def _note(self, why: dict[str, str]) -> None:
        """Over a graph: what says to all, also to those that are no neighbours, who is missing or has left."""
        assert self._present is not None
        ends = [name for name, signed in self._present.items() if ends_run(signed)]
        if self._plan.summed or not (why or 0 < len(ends) < len(self._present)):
            return
        words, whole = {text: notice for notice, text in NOTICES.items()}, self._kept[self._round]
        self._absent[self._round] = {name: whole.get(name, words.get(why[name], b"")) for name in why} | (
            dict.fromkeys(ends, words[LEFT]) if len(ends) < len(self._present) else {}
        )

    def _moved(self) -> Move:
        """The map by which the sites move their rows, after the attempt for their mean."""
        counts, members, total = self._plan.counts(1), self._state.attempts[0].members, self._state.total
        among = Among(float(sum(counts[name] for name in members)), len(members))
        move = moved(self._plan, ReadNet([(among, None if total is None else total.view(np.int64))]))
        assert move is not None
        return move

    def _whole(self, round: int) -> dict[str, bytes]:
        """All messages of a round; of sites without one, the proof that they left or signed two."""
        found = self._log.round(self._run, round)
        for name, farewell in self._log.gone(self._run).items():
            if name not in found and self._log.last(self._run, name) == round - 1:
                found[name] = farewell
        proofs = 0
        for name, (about, second) in sorted(self._log.accused(self._run).items()):
            first = self._log.message(self._run, about, name)
            here = name not in found and about < round and self._log.last(self._run, name) == round - 1
            if here and first is not None and proofs < PROOFS:
                found[name], proofs = prove(first, second), proofs + 1
        return found
