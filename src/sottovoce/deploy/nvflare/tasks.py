"""A site's transport when messages are carried by tasks: the part of the executor that knows nothing of NVFlare."""

from __future__ import annotations

import threading

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
        if words.REFUSED in answer:
            raise Refused(f"round={round}: the hub refused: {printable(str(answer[words.REFUSED]))}")
        if words.CLOSED in answer:
            site, farewell = answer.get(words.SITE), answer.get(words.FAREWELL)
            raise TransportClosed(
                printable(str(answer[words.CLOSED])), None if site is None else str(site),
                farewell if isinstance(farewell, bytes) else b"",
            )  # fmt: skip
        inbox = answer.get(words.INBOX)
        if not isinstance(inbox, dict) or not all(
            isinstance(name, str) and isinstance(data, bytes) for name, data in inbox.items()
        ):
            raise Refused(f"round={round}: the hub gave no inbox")
        return dict(inbox)

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
            self._news.notify_all()

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

    def left(self) -> bytes | None:
        """What the site has signed when no more messages will come; None while they may."""
        return self._left

    def wait(self, done: threading.Event, seconds: float) -> None:
        """Wait until the session waits for the hub, or has ended."""
        with self._news:
            self._news.wait_for(
                lambda: done.is_set() or self._ended is not None or self.wish() is not None, timeout=seconds
            )
