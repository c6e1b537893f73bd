"""The hub, with any transport: it checks a message, stores it once, and passes it on.

What a hub sees and cannot do is in ``docs/deploy/threats.md``.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..data.move import Move
from ..errors import EndedEarly, InvalidInput, Refused, Unreachable, check_whole
from ..problem.facts import Among
from ..util.typing import Any, Array
from .answering import LOST, Found, ReadNet, at_hub, moved
from .hublog import HubLog
from .messages import COMPLETE, Farewell, Message, agree, longest_inbox, read_farewell
from .plan import Plan
from .sums.hub import RoundHub
from .sums.messages import read
from .waits import Waits

_QUOTED = 64  # bytes that quotes and escapes may add to a text in a reply


class Hub:
    """The hub of one run.  A `site` in the arguments is one whose identity the caller has established.

    Parameters
    ----------
    plan : Plan
    log : HubLog
    waits, greeting, clock
        See :class:`sottovoce.deploy.sums.hub.RoundHub`.
    """

    def __init__(
        self, plan: Plan, log: HubLog, waits: Waits | None = None, greeting: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.plan, self.log = plan, log
        self.rounds = RoundHub(plan, log, waits, greeting, clock)
        self.sums = self.rounds if plan.summed else None
        self._left: dict[str, Farewell] = {}

    def exchange(self, site: str, round: int, message: bytes, seconds: float) -> dict[str, bytes] | None:
        """Store the message of `site`, and wait for the messages of all that are in the roster.

        None if some are missing after `seconds`, or there are questions to answer (:meth:`asked`): ask again.  Raises
        :class:`Refused` or :class:`TransportClosed`.
        """
        return self.rounds.exchange(self._known(site), round, message, seconds)

    def inbox(self, site: str, round: int) -> dict[str, bytes] | None:
        """The inbox of `site` in a round, None while it is incomplete; raises :class:`TransportClosed`."""
        return self.rounds.inbox(self._known(site), round)

    def asked(self, site: str) -> dict[str, bytes]:
        """Questions that `site` has to answer, by the asking site; only in a run of sums."""
        return {} if self.sums is None else self.sums.asked(self._known(site))

    def answer(self, site: str, asker: str, answer: bytes) -> None:
        """Take the answer of `site` to the question of `asker`."""
        if self.sums is not None:
            self.sums.answer(self._known(site), asker, answer)

    def inquire(self, site: str, question: bytes, enough: int, seconds: float) -> dict[str, bytes] | None:
        """Answers of `enough` other sites to a question of `site`; None if some are missing after `seconds`: ask again.

        Raises :class:`Refused` or :class:`TransportClosed`.
        """
        if self.sums is None:
            raise Refused("question: there are none in this run")
        return self.sums.inquire(self._known(site), question, enough, seconds)

    def highest(self, site: str) -> int:
        """The highest round with a message of `site`; 0 for none."""
        return max(0, self.log.last(self.plan.run, self._known(site)))

    def earlier(self, site: str) -> list[bytes]:
        """What `site` signed in runs of this log, this one first, as far as a reply holds it: farewells, greetings."""
        found, room = list[bytes](), longest_inbox(self.plan) // 2
        for words in self.log.earlier(self.plan.run, self._known(site)):
            room -= len(words) + _QUOTED
            if room < 0:
                break
            found.append(words)
        return found

    def missing(self) -> list[str]:
        """Sites for whose message the others wait."""
        return self.rounds.missing()

    def leave(self, site: str, farewell: bytes) -> None:
        """Record the farewell of `site`; raises :class:`Refused` unless it is signed, for this point of this run."""
        due = self.log.last(self.plan.run, self._known(site)) + 1
        read_farewell(self.plan, farewell, site, due)
        self.log.leave(self.plan.run, site, due, farewell)
        self.rounds.tell()

    def gone(self) -> dict[str, str]:
        """Sites that left or were left out, and why; raises :class:`Refused` for a false farewell."""
        for site, data in self.log.gone(self.plan.run).items():
            if site not in self._left:
                due = self.log.last(self.plan.run, self._known(site)) + 1
                self._left[site] = read_farewell(self.plan, data, site, due)
        reasons = {site: farewell.reason for site, farewell in self._left.items()}
        return dict(sorted((self.rounds.gone | reasons).items()))

    @property
    def untold(self) -> list[str]:
        """Sites that were left out and have not asked since; in a run of sums they still hold the run's key."""
        return self.rounds.untold

    @property
    def over(self) -> bool:
        """Whether every site has left."""
        return len(self.gone()) == len(self.plan.sites)

    def check(self) -> None:
        """Raise :class:`InvalidInput` for a log that cannot belong to this run."""
        try:
            self.models()
            self.gone()
        except Refused as error:
            rule = f"does not hold what the plan allows: {error}"
            raise InvalidInput("log", None, rule, "give the run a new name, or the hub the log of this run") from None

    def check_end(self) -> None:
        """Raise :class:`EndedEarly` if the run has ended early, :class:`FinishedWithout` if it went on without some."""
        if self.rounds.over:
            check_whole(f"run={self.plan.run!r}", self.rounds.gone)
            return  # the others have done all that the plan asks for, at its price
        left = [f"site {site!r} ({reason})" for site, reason in self.gone().items() if reason not in COMPLETE]
        if left:
            who = "the hub ended it" if self.log.ended(self.plan.run) else f"its sites left: {', '.join(left)}"
            raise EndedEarly(f"run={self.plan.run!r}: ended early: {who}")

    def sites(self) -> list[dict[str, Any]]:
        """Progress of every site, as plain data."""
        gone = self.gone()
        return [
            {"site": one.name, "round": self._round(one.name), "left": gone.get(one.name), "rows": one.rows}
            for one in self.plan.sites
        ]  # fmt: skip

    def _round(self, site: str) -> int:
        """The algorithm's round of a site's last message; 0 for its greeting, -1 for none, T + 1 for its last model."""
        return self.rounds.attempt_in(self.log.last(self.plan.run, site))

    def status(self) -> dict[str, Any]:
        """The run and its sites, as plain data."""
        return {
            "run": self.plan.run, "plan": self.plan.digest, "rounds": self.plan.attempts, "sites": self.sites(),
            "demonstration": self.plan.demonstration, "finished": self.models() is not None,
            "ended": self.log.ended(self.plan.run), "roster": self.rounds.roster,
        }  # fmt: skip

    def models(self) -> Array | None:
        """Last models of the sites that came to the end, (N, d); of a run of sums the common one, (1, d).

        None while one is missing.
        """
        if self.sums is not None:
            return self._common()
        return np.array([*self._last().values()]) if self.rounds.over else None

    @property
    def finishers(self) -> list[str]:
        """The sites whose last models :meth:`models` has, over a graph."""
        return [*self._last()]

    def _last(self) -> dict[str, Array]:
        found = {}
        for name in self.plan.names:
            round = self.log.last(self.plan.run, name)
            data = self.log.message(self.plan.run, round, name)
            message = None if data is None else read(self.plan, data, name, round).content
            if isinstance(message, Message) and message.kind in ("stop", "refuse"):
                found[name] = message.payload
        return found

    def _common(self) -> Array | None:
        """The model with which most sites of a run of sums ended: all of them, if they are honest."""
        assert self.sums is not None
        models = Counter(model.tobytes() for model in self.sums.last().values())
        return None if not models else np.frombuffer(models.most_common(1)[0][0], dtype=float)[None]

    def move(self) -> Move | None:
        """The map by which the sites moved their rows; None if they did not, or not yet."""
        if self.plan.centre is None or self.sums is not None:
            return None if self.sums is None else self.sums.move
        try:
            return moved(self.plan, self._read(1, 1))
        except LookupError:
            return None

    def found(self) -> Found | None:
        """The results of the plan's recipes; None if it has none, or last models are missing."""
        plan, models = self.plan, self.models()
        if plan.asks is None or models is None:
            return None
        first = 1 if plan.infers else plan.stages[-1].before + 1
        asker, found = at_hub(plan, self._read(first)), Found()
        if plan.infers:
            found = asker.infer()[1]
        if plan.asks.evaluation is None:
            return found
        try:
            return asker.judge(found.model if plan.infers else models[0], found, self.move())[1]
        except LookupError:
            return replace(found, notes=(LOST,))

    def _read(self, first: int, last: int | None = None) -> ReadNet:
        """What was sent or opened in exchanges `first` to `last`; the first attempt without a sum ends it."""
        plan, run = self.plan, self.plan.run
        end = 1 + (plan.attempts if last is None else last)
        if self.sums is None:
            sent = []
            for round in range(first, end):
                stored = self.log.round(run, round)
                messages = [read(plan, stored[name], name, round).content for name in plan.names]
                sent.append([one.payload for one in messages if isinstance(one, Message)])
            return ReadNet(sent=sent)
        totals = []
        for attempt in range(first, end):
            opened = self.sums.opened(attempt)
            if opened is None:
                break
            counts = plan.counts(attempt)
            totals.append((Among(float(sum(counts[name] for name in opened[0])), len(opened[0])), opened[1]))
        return ReadNet(totals)

    def _known(self, site: str) -> str:
        if site not in self.plan.names:
            raise Refused(f"site={site!r}: is no site of this plan")
        return site


class LocalTransport:
    """A site's connection to a hub in the same process."""

    answers: Callable[[str, bytes], bytes] | None = None
    earlier: tuple[bytes, ...] = ()

    def __init__(self, hub: Hub, site: str, patience: float = 60.0) -> None:
        self._hub, self._site, self._patience = hub, site, patience

    def highest(self, plan: str) -> int:
        agree(plan, self._hub.plan.digest)
        self.earlier = tuple(self._hub.earlier(self._site))
        return self._hub.highest(self._site)

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        inbox = self._until(lambda left: self._hub.exchange(self._site, round, message, left))
        if inbox is None:
            raise Unreachable(f"round={round}: no message of every neighbour after {self._patience:g} s")
        return inbox

    def inquire(self, question: bytes, enough: int) -> dict[str, bytes]:
        found = self._until(lambda left: self._hub.inquire(self._site, question, enough, left))
        if found is None:
            raise Unreachable(f"fewer than {enough} other sites answered in {self._patience:g} s")
        return found

    def leave(self, farewell: bytes) -> None:
        self._hub.leave(self._site, farewell)

    def _until(self, ask: Callable[[float], dict[str, bytes] | None]) -> dict[str, bytes] | None:
        """Ask until the patience ends, and answer questions of other sites meanwhile."""
        until = time.monotonic() + self._patience
        while True:
            found = ask(until - time.monotonic())
            if found is not None or time.monotonic() >= until:
                return found
            for asker, question in self._hub.asked(self._site).items():
                if self.answers is not None:
                    self._hub.answer(self._site, asker, self.answers(asker, question))
