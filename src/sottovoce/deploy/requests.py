"""The calls of a transport as requests and answers in plain JSON, for carriers of texts.

:class:`RequestTransport` turns each call of a site into a request; :func:`answer` gives the hub's
reply.  The carrier establishes who asks and moves both texts; it need not understand them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from ..errors import Refused, TransportClosed
from ..util.typing import Any
from . import limits
from .hub import Hub
from .messages import agree, longest_inbox
from .plan import Plan
from .strict import parse
from .transport import printable

OTHER_VERSION = "the hub gave an answer of another version"
SOON = 0.2
"""Seconds between two requests that the hub answers at once."""
AGAIN = 60.0
"""Seconds after which a site that still waits says so again."""
_MOST = 2**63
"""Numbers of a request are smaller: the hub's log holds no larger ones."""
METHODS = ("highest", "exchange", "inquire", "answer", "leave")
OTHER_REQUEST = "request: is none of this version; use the same release everywhere"


def sizes(plan: Plan) -> tuple[int, int]:
    """Return the most bytes of a site's request to the hub of this plan, and of a reply."""
    return limits.inbox_bytes(plan.exchange_table.widest, 1), longest_inbox(plan)


def read(data: bytes, longest: int, otherwise: str) -> dict[str, Any]:
    """Parse a request or a reply as the carrier brought it.

    Parameters
    ----------
    data : bytes
    longest : int
        The most bytes that are taken.
    otherwise : str
        The message of the error.

    Returns
    -------
    dict
        A JSON object, whose entries are not checked.

    Raises
    ------
    Refused
        If it is longer, or no JSON object.
    """
    try:
        return dict(parse(data, longest))
    except (ValueError, TypeError):
        raise Refused(otherwise) from None


def answer(
    hub: Hub, site: str, method: str, asked: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """Return the hub's reply to one request.

    Parameters
    ----------
    hub : Hub
    site : str
        Sender, as established by the carrier; nothing in a request says so.
    method : str
        ``highest``, ``exchange``, ``inquire``, ``answer`` or ``leave``.
    asked : dict
        What :meth:`RequestTransport.ask` was given.
    seconds : float
        How long to wait for neighbours' messages; if one is still missing the reply names its site,
        and the site asks again.

    Returns
    -------
    dict
        Plain data; with the key ``closed`` if the run is over for the site.

    Raises
    ------
    Refused
        The site must be told so, and must not ask again.
    Exception
        Any other is the hub's own trouble, such as a full disk: the site may ask again, and is told
        nothing of it.
    """
    if method not in METHODS:
        raise Refused(OTHER_REQUEST)
    if _text(asked, "run") != hub.plan.run:
        raise Refused("run: this hub carries another one")
    try:
        return _reply(hub, site, method, asked, seconds)
    except TransportClosed as error:
        return {"closed": str(error), "site": error.site}


def _reply(
    hub: Hub, site: str, method: str, asked: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """Answer a request of this run; see :func:`answer`."""
    match method:
        case "highest":
            agree(_text(asked, "plan"), hub.plan.digest)
            earlier = [words.decode("ascii") for words in hub.earlier(site)]
            found: dict[str, Any] = {"highest": hub.highest(site)}
            if earlier:
                found["earlier"] = earlier
            return found
        case "exchange":
            round = _number(asked, "round")
            inbox = hub.exchange(site, round, _text(asked, "message").encode(), seconds)
            if inbox is None:
                return {"inbox": None, "missing": hub.rounds.missing} | _asked(hub, site)
            return {"inbox": _plain(inbox)}
        case "inquire":
            enough = _number(asked, "enough")
            answers = hub.inquire(site, _text(asked, "question").encode(), enough, seconds)
            if answers is None:
                return {"answers": None} | _asked(hub, site)
            return {"answers": _plain(answers)}
        case "answer":
            hub.answer(site, _text(asked, "asker"), _text(asked, "answer").encode())
        case "leave":
            hub.leave(site, _text(asked, "farewell").encode())
    return {}


def _text(asked: object, word: str) -> str:
    """Return a text of a request; all texts from sites of this version are ASCII."""
    found = None
    if isinstance(asked, dict):
        found = asked.get(word)
    if not isinstance(found, str) or not found.isascii():
        raise Refused(OTHER_REQUEST)
    return found


def _number(asked: dict[str, Any], word: str) -> int:
    """Return a whole number of a request; True is none, though Python counts it as 1."""
    found = asked.get(word)
    if type(found) is not int or abs(found) >= _MOST:
        raise Refused(OTHER_REQUEST)
    return found


def _asked(hub: Hub, site: str) -> dict[str, Any]:
    """Return the questions of other sites that this one has not answered yet."""
    questions = hub.asked(site)
    if not questions:
        return {}
    return {"asked": _plain(questions)}


def _plain(found: dict[str, bytes]) -> dict[str, str]:
    return {name: data.decode("ascii") for name, data in found.items()}


class RequestTransport(ABC):
    """A site's :class:`sottovoce.deploy.transport.Transport` whose calls are requests to the hub.

    Parameters
    ----------
    plan : Plan
        For the run's name.
    tell : callable
        Called with a line when neighbours send nothing for long.
    """

    def __init__(self, plan: Plan, tell: Callable[[str], None] = lambda _: None) -> None:
        self._run = plan.run
        self._tell = tell
        self.answers: Callable[[str, bytes], bytes] | None = None
        self.earlier: tuple[bytes, ...] = ()

    @abstractmethod
    def ask(self, method: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Carry one request to the hub, and return its reply to this very request.

        A request may be carried twice: it takes effect once.

        Raises
        ------
        Refused
            If the hub refused it, or its reply is not that of this version.
        Unreachable
            If there was no reply for as long as this transport waits.
        """

    def highest(self, plan: str) -> int:
        found = self._ask("highest", plan=plan)
        highest, earlier = found.get("highest"), found.get("earlier", [])
        if not isinstance(earlier, list):
            earlier = []
        self.earlier = tuple(str(one).encode("utf-8", "replace") for one in earlier)
        if type(highest) is not int or highest < 0:
            raise Refused(OTHER_VERSION)
        return highest

    def leave(self, farewell: bytes) -> None:
        self._ask("leave", farewell=farewell.decode("ascii"))

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        told: object = None
        since = time.monotonic()
        again = 0.0
        while True:
            asked = time.monotonic()
            found = self._ask("exchange", round=round, message=message.decode("ascii"))
            inbox, missing = self._open(found, "inbox"), found.get("missing")
            if inbox is not None:
                return inbox
            waited = time.monotonic() - since
            if isinstance(missing, list) and (missing != told or waited >= again):
                who = printable(", ".join(map(str, missing)))
                line = f"waits for {who} in round {round}"
                if told is not None:
                    line += f" since {waited:.0f} s"
                self._tell(line)
                told = missing
                again = waited + AGAIN
            if "asked" not in found and time.monotonic() - asked < SOON:
                # the hub did not wait: it has other requests of this site open
                time.sleep(SOON)

    def inquire(self, question: bytes, enough: int) -> dict[str, bytes]:
        told = False
        while True:
            found = self._ask("inquire", question=question.decode("ascii"), enough=enough)
            answers = self._open(found, "answers")
            if answers is not None:
                return answers
            if not told:
                self._tell(f"was started again, and waits for the word of {enough} other sites")
                told = True

    def _open(self, found: dict[str, Any], word: str) -> dict[str, bytes] | None:
        """Return the entry `word` of a reply, None if it is not there yet.

        Answers other sites' questions in the reply.
        """
        if "closed" in found:
            site = found.get("site")
            if site is not None:
                site = str(site)
            raise TransportClosed(printable(str(found["closed"])), site)
        given, asked = found.get(word), found.get("asked", {})
        if given is None and isinstance(asked, dict):
            for asker, question in asked.items():
                if self.answers is not None:
                    answer = self.answers(str(asker), str(question).encode("utf-8", "replace"))
                    self._ask("answer", asker=asker, answer=answer.decode("ascii"))
            return None
        if not isinstance(given, dict):
            raise Refused(OTHER_VERSION)
        return {str(name): str(text).encode("utf-8", "replace") for name, text in given.items()}

    def _ask(self, method: str, **asked: Any) -> dict[str, Any]:
        return self.ask(method, asked | {"run": self._run})
