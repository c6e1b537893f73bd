"""A site's transport when messages are carried by tasks: the part of the executor that knows nothing of NVFlare."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ...errors import Refused, TransportClosed, Unreachable
from ...typing import Any
from ..messages import agree
from ..transport import printable
from . import words


class TaskTransport:
    """A site's :class:`sottovoce.deploy.transport.Transport`: its wishes are collected and granted by tasks."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._highest: int | None = None
        self._plan: object = None
        self._wish: tuple[int, bytes] | None = None
        self._answer: dict[str, Any] | None = None
        self._question: tuple[bytes, int] | None = None
        self._answered: dict[str, Any] | None = None
        self._replies: dict[str, bytes] = {}
        self.answers: Callable[[str, bytes], bytes] | None = None
        self._left: bytes | None = None
        self._ended: str | None = None

    # The session's side

    def highest(self, plan: str) -> int:
        """See :class:`sottovoce.deploy.transport.Transport`."""
        with self._news:
            self._news.wait_for(lambda: self._highest is not None or self._ended is not None)
            if self._highest is None:
                raise Unreachable(f"hub: {self._ended}")
            agree(plan, self._plan)
            return self._highest

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        """See :class:`sottovoce.deploy.transport.Transport`."""
        with self._news:
            self._wish, self._answer = (round, message), None
            self._news.notify_all()
            self._news.wait_for(lambda: self._answer is not None or self._ended is not None)
            self._wish = None
            if self._answer is None:
                raise Unreachable(f"round={round}: {self._ended}")
            answer = self._answer
        return _granted(answer, words.INBOX, f"round={round}")

    def inquire(self, question: bytes, enough: int) -> dict[str, bytes]:
        """See :class:`sottovoce.deploy.transport.Transport`."""
        with self._news:
            self._question, self._answered = (question, enough), None
            self._news.notify_all()
            self._news.wait_for(lambda: self._answered is not None or self._ended is not None)
            self._question = None
            if self._answered is None:
                raise Unreachable(f"question: {self._ended}")
            return _granted(self._answered, words.ANSWERED, "question")

    def leave(self, farewell: bytes) -> None:
        """See :class:`sottovoce.deploy.transport.Transport`."""
        with self._news:
            self._left = farewell

    # The executor's side

    def take(self, task: dict[str, Any]) -> None:
        """Take in a task: what it grants goes to the session if the session still waits for it."""
        highest = task.get(words.HIGHEST)
        with self._news:
            if isinstance(highest, int):
                self._highest, self._plan = max(highest, self._highest or 0), task.get(words.PLAN)
            if self._wish is not None and task.get(words.ROUND) == self._wish[0]:
                self._answer = task
            if self._question is not None and task.get(words.QUESTION) == self._question[0]:
                self._answered = task
            self._news.notify_all()
        asked = task.get(words.ASKED)
        for asker, question in (asked if isinstance(asked, dict) else {}).items():
            if self.answers is not None and isinstance(question, bytes):
                self._replies[str(asker)] = self.answers(str(asker), question)

    def end(self, reason: str) -> None:
        """The job is over: whoever waits is told."""
        with self._news:
            self._ended = self._ended or reason
            self._news.notify_all()

    def nudge(self) -> None:
        """Wake whoever looks at the session's state."""
        with self._news:
            self._news.notify_all()

    def wish(self) -> tuple[int, bytes] | None:
        """Round and message that the session waits with; None while it does not wait."""
        return None if self._answer is not None else self._wish

    def asks(self) -> tuple[bytes, int] | None:
        """The question that the session waits with, and how many answers it needs; None while it does not."""
        return None if self._answered is not None else self._question

    def says(self) -> dict[str, Any]:
        """What a result says of the session while it works or waits."""
        said: dict[str, Any] = {words.LEFT: self.left(), words.STATE: words.WORKING}
        if self._replies:
            said[words.ANSWERS], self._replies = self._replies, {}
        if (wish := self.wish()) is not None:
            said |= {words.STATE: words.WAITING, words.ROUND: wish[0], words.MESSAGE: wish[1]}
        elif (asks := self.asks()) is not None:
            said |= {words.STATE: words.WAITING, words.QUESTION: asks[0], words.ENOUGH: asks[1]}
        return said

    def left(self) -> bytes | None:
        """What the site has signed when no more messages will come; None while they may."""
        return self._left

    def wait(self, done: threading.Event, seconds: float) -> None:
        """Wait until the session waits for the hub, or has ended."""
        with self._news:
            self._news.wait_for(
                lambda: done.is_set() or self._ended is not None or (self.wish() or self.asks()) is not None,
                timeout=seconds,
            )


def _granted(answer: dict[str, Any], word: str, where: str) -> dict[str, bytes]:
    """What was waited for, from the task that grants it or says why not."""
    if words.REFUSED in answer:
        raise Refused(f"{where}: the hub refused: {printable(str(answer[words.REFUSED]))}")
    if words.CLOSED in answer:
        site, farewell = answer.get(words.SITE), answer.get(words.FAREWELL)
        raise TransportClosed(
            printable(str(answer[words.CLOSED])), None if site is None else str(site),
            farewell if isinstance(farewell, bytes) else b"",
        )  # fmt: skip
    found = answer.get(word)
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(data, bytes) for name, data in found.items()
    ):
        raise Refused(f"{where}: the hub gave no {word}")
    return dict(found)
