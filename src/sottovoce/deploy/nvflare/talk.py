"""What the hub says to each site, and when: the part of the controller that knows nothing of NVFlare."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from ...errors import Refused, TransportClosed
from ...typing import Any
from ..hub import Hub
from . import words

Task = tuple[str, dict[str, Any]]
"""A site, and what to tell it."""


class Talk:
    """One conversation a site.

    All of it can be had again from the hub's log, so nothing in here is missed after a crash.  Every task is answered
    by one result; a site that waits for its neighbours has no task open.

    Parameters
    ----------
    hub : Hub
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._running = set(hub.plan.names)
        self._waiting: dict[str, int] = {}
        self._asking: dict[str, tuple[bytes, int]] = {}
        self._told: set[tuple[str, bytes]] = set()
        self.failure: str | None = None
        """Why the run cannot go on in this job; None while it can."""

    @property
    def over(self) -> bool:
        """Whether every site has ended, or nothing can go on."""
        running = self._running if self._hub.desk is None else self._running - self._hub.gone().keys()
        return self.failure is not None or not running

    def open(self) -> Iterable[Task]:
        """The first task of every site."""
        hub = self._hub
        return [(site, {words.HIGHEST: hub.highest(site), words.PLAN: hub.plan.digest}) for site in hub.plan.names]

    def hear(self, site: str, result: dict[str, Any] | None) -> Iterable[Task]:
        """Take in the result of a site's task, and say what to ask now.

        Parameters
        ----------
        site : str
            As NVFlare has established it from the certificate.
        result : dict or None
            None if the task was not answered.
        """
        if result is None:
            return self._fail(site, f"site {site!r} does not answer")
        tasks: list[Task] = []
        state, round, message = (result.get(word) for word in (words.STATE, words.ROUND, words.MESSAGE))
        left = result.get(words.LEFT)
        if isinstance(left, bytes):
            with suppress(Refused):  # it is no word of this site, and the run goes on
                self._hub.leave(site, left)
        answers = result.get(words.ANSWERS)
        for asker, answer in (answers if isinstance(answers, dict) else {}).items():
            if isinstance(answer, bytes):
                self._hub.answer(site, str(asker), answer)
        question, enough = result.get(words.QUESTION), result.get(words.ENOUGH)
        if state == words.FINISHED:
            if site not in self._hub.gone():
                return self._fail(site, f"site {site!r} stopped, and has not signed that it leaves")
            self._running.discard(site)
        elif state == words.FAILED:
            return self._fail(site, f"site {site!r} stopped: {result.get(words.REASON)}")
        elif state == words.WAITING and isinstance(question, bytes) and type(enough) is int:
            self._asking[site] = question, enough
        elif state == words.WAITING and type(round) is int and isinstance(message, bytes):
            self._waiting[site] = round
            tasks += self._grant(site, round, partial(self._hub.exchange, site, round, message, 0.0))
        else:
            tasks.append((site, {}))
        return [*tasks, *self.look()]

    def look(self) -> Iterable[Task]:
        """The tasks of sites that wait for what is there by now."""
        tasks = list[Task]()
        for name, (question, enough) in list(self._asking.items()):
            tasks += self._answered(name, question, enough)
        for name, k in list(self._waiting.items()):
            tasks += self._grant(name, k, partial(self._hub.inbox, name, k))
        for name in [*self._waiting, *self._asking]:
            new = {who: asked for who, asked in self._hub.asked(name).items() if (name, asked) not in self._told}
            if new:  # it says again what it waits for when it answers
                self._told |= {(name, asked) for asked in new.values()}
                self._waiting.pop(name, None)
                self._asking.pop(name, None)
                tasks.append((name, {words.ASKED: new}))
        return tasks

    def _fail(self, site: str, why: str) -> Iterable[Task]:
        """A site is lost: a run of sums goes on without it when the hub's patience ends, any other with a new job."""
        if self._hub.desk is None:
            self.failure = why
            return []
        self._waiting.pop(site, None)
        self._asking.pop(site, None)
        return self.look()

    def _answered(self, site: str, question: bytes, enough: int) -> Iterable[Task]:
        """The answers to a question, if there are enough."""
        answer: dict[str, Any] | None
        try:
            found = self._hub.inquire(site, question, enough, 0.0)
            answer = None if found is None else {words.ANSWERED: found}
        except TransportClosed as error:
            answer = {words.CLOSED: str(error), words.SITE: error.site}
        except Refused as error:
            answer = {words.REFUSED: str(error)}
        if answer is None:
            return []
        del self._asking[site]
        return [(site, {words.QUESTION: question} | answer)]

    def _grant(self, site: str, round: int, inbox: Callable[[], dict[str, bytes] | None]) -> Iterable[Task]:
        """The answer to what a site waits for, if there is one."""
        answer: dict[str, Any] | None
        try:
            found = inbox()
            answer = None if found is None else {words.INBOX: found}
        except TransportClosed as error:
            answer = {words.CLOSED: str(error), words.SITE: error.site, words.FAREWELL: error.farewell}
        except Refused as error:
            answer = {words.REFUSED: str(error)}
        if answer is None:
            return []
        del self._waiting[site]
        return [(site, {words.ROUND: round} | answer)]
