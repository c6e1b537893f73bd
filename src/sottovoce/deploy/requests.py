"""The calls of a transport as requests and replies in plain JSON.

:class:`RequestTransport` turns each call of a site into a request; :func:`reply_to_request` gives
the hub's reply.  A *carrier* moves both texts and establishes who sends a request; it need not
understand them.  There are two: gRPC (:mod:`sottovoce.deploy.relay`) and NVFlare's tasks
(:mod:`sottovoce.deploy.nvflare.tasks`).

============  ==================================  =============================================
method        request                             reply
============  ==================================  =============================================
``highest``   ``plan``: digest of the site's      ``highest`` round stored, and ``earlier``
                                                  signed texts of the site
``exchange``  ``round``, ``message``              ``inbox``; or null with ``missing`` sites
``inquire``   ``question``, ``enough`` answers    ``answers``, or null
``answer``    ``asker``, ``answer``               nothing
``leave``     ``farewell``                        nothing
``decline``   ``plan``: its digest, ``why``       nothing
============  ==================================  =============================================

Every request also has the name of the ``run``.  A reply that has nothing yet may hold ``asked``:
questions of restarted sites, which the site answers before it asks again.  ``closed`` says that the
run is over for the site.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from ..errors import Refused, TransportClosed
from ..util.typing import Any
from . import limits
from .hub import Hub
from .messages import check_plan_digest, longest_inbox
from .plan import Plan
from .strict import parse_json
from .transport import to_printable_text

OTHER_VERSION = "the hub's answer is of another version; use the same release everywhere"
SOON = 0.2
"""Seconds that a site pauses between requests to which the hub replies without waiting."""
AGAIN = 60.0
"""Seconds after which a site that still waits tells its user again."""
_MOST = 2**63
"""Bound on the numbers of a request: SQLite, which has the hub's log, stores no larger ones."""
METHODS = ("highest", "exchange", "inquire", "answer", "leave", "decline")
OTHER_REQUEST = "request: is not of this version; use the same release everywhere"


def request_and_reply_sizes(plan: Plan) -> tuple[int, int]:
    """Return the most bytes of a site's request to the hub of this plan, and of a reply."""
    return limits.longest_inbox_bytes(plan.exchange_table.widest_message, 1), longest_inbox(plan)


def parse_request(data: bytes, longest: int, otherwise: str) -> dict[str, Any]:
    """Parse a request or a reply as the carrier brought it.

    Parameters
    ----------
    data : bytes
    longest : int
        The most bytes that are taken.
    otherwise : str
        Message of the error for any other text.

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
        return dict(parse_json(data, longest))
    except (ValueError, TypeError):
        raise Refused(otherwise) from None


def reply_to_request(
    hub: Hub, site: str, method: str, asked: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """Return the hub's reply to one request.

    Parameters
    ----------
    hub : Hub
    site : str
        Sender, as established by the carrier; nothing in a request says so.
    method : str
        One of :data:`METHODS`; see the module's table.
    asked : dict
        The request: what :meth:`RequestTransport.send_request` was given.
    seconds : float
        How long to wait for messages of other sites; if one is still missing the reply names its
        site, and the asking site repeats its request.

    Returns
    -------
    dict
        The reply, plain data; with the key ``closed`` if the run is over for the site.

    Raises
    ------
    Refused
        If the request is wrong: the carrier tells the site, which must not ask again.
    Queued
        If the plan's turn has not come: the site asks again.
    Exception
        Of any other class for an error of the hub itself, such as a full disk: the carrier gives no
        details to the site, which may ask again.
    """
    if method not in METHODS:
        raise Refused(OTHER_REQUEST)
    run = _required_text(asked, "run")
    if run != hub.plan.run:
        hub = hub.hub_of_run(run, site)
    try:
        return _reply_by_method(hub, site, method, asked, seconds)
    except TransportClosed as error:
        return {"closed": str(error), "site": error.site}


def _reply_by_method(
    hub: Hub, site: str, method: str, asked: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """Answer a request of this run; see :func:`reply_to_request`."""
    match method:
        case "highest":
            check_plan_digest(_required_text(asked, "plan"), hub.plan.digest)
            earlier = [words.decode("ascii") for words in hub.earlier(site)]
            found: dict[str, Any] = {"highest": hub.highest_round_of(site)}
            if earlier:
                found["earlier"] = earlier
            return found
        case "exchange":
            round = _required_number(asked, "round")
            inbox = hub.exchange(site, round, _required_text(asked, "message").encode(), seconds)
            if inbox is None:
                return {"inbox": None, "missing": hub.rounds.missing} | _open_questions(hub, site)
            return {"inbox": _decode_texts(inbox)}
        case "inquire":
            enough = _required_number(asked, "enough")
            answers = hub.pass_on_question(
                site, _required_text(asked, "question").encode(), enough, seconds
            )
            if answers is None:
                return {"answers": None} | _open_questions(hub, site)
            return {"answers": _decode_texts(answers)}
        case "answer":
            hub.take_attestation(
                site, _required_text(asked, "asker"), _required_text(asked, "answer").encode()
            )
        case "leave":
            hub.record_farewell(site, _required_text(asked, "farewell").encode())
        case "decline":
            check_plan_digest(_required_text(asked, "plan"), hub.plan.digest)
            hub.take_declined(site, _required_text(asked, "why"))
    return {}


def _required_text(asked: object, word: str) -> str:
    """Return the text under the key `word` of a request; raises :class:`Refused` if there is none.

    All texts from sites of this version are ASCII.
    """
    found = None
    if isinstance(asked, dict):
        found = asked.get(word)
    if not isinstance(found, str) or not found.isascii():
        raise Refused(OTHER_REQUEST)
    return found


def _required_number(asked: dict[str, Any], word: str) -> int:
    """Return the whole number under the key `word`; raises :class:`Refused` if there is none."""
    found = asked.get(word)
    # by its type, because to Python True is an int
    if type(found) is not int or abs(found) >= _MOST:
        raise Refused(OTHER_REQUEST)
    return found


def _open_questions(hub: Hub, site: str) -> dict[str, Any]:
    """Return the questions of other sites that this one has not answered yet."""
    questions = hub.asked(site)
    if not questions:
        return {}
    return {"asked": _decode_texts(questions)}


def _decode_texts(found: dict[str, bytes]) -> dict[str, str]:
    return {name: data.decode("ascii") for name, data in found.items()}


class RequestTransport(ABC):
    """A site's :class:`sottovoce.deploy.transport.Transport` whose calls are requests to the hub.

    Parameters
    ----------
    plan : Plan
        Gives the name of the run.
    tell : callable ``(line)``
        Called when messages of other sites are missing for long.
    """

    def __init__(self, plan: Plan, tell: Callable[[str], None] = lambda _: None) -> None:
        self._run = plan.run
        self._tell = tell
        self.answers: Callable[[str, bytes], bytes] | None = None
        self.earlier: tuple[bytes, ...] = ()

    @abstractmethod
    def send_request(self, method: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Carry one request to the hub, and return the reply to it.

        A request may be carried twice: it takes effect once.

        Parameters
        ----------
        method : str
            One of :data:`METHODS`.
        asked : dict
            The request, plain data.

        Returns
        -------
        dict
            The hub's reply, plain data that is not checked yet.

        Raises
        ------
        Refused
            If the hub refused it, or its reply is not that of this version.
        Unreachable
            If there was no reply for as long as this transport waits.
        """

    def highest_stored_round(self, plan: str) -> int:
        """See :meth:`sottovoce.deploy.transport.Transport.highest_stored_round`."""
        found = self._request_of_run("highest", plan=plan)
        highest, earlier = found.get("highest"), found.get("earlier", [])
        if not isinstance(earlier, list):
            earlier = []
        self.earlier = tuple(str(one).encode("utf-8", "replace") for one in earlier)
        if type(highest) is not int or highest < 0:
            raise Refused(OTHER_VERSION)
        return highest

    def send_farewell(self, farewell: bytes) -> None:
        self._request_of_run("leave", farewell=farewell.decode("ascii"))

    def decline(self, plan: str, why: str) -> None:
        """Tell the hub that this site takes no part in a plan that has not begun.

        Parameters
        ----------
        plan : str
            The plan's digest.
        why : str
            One of :data:`sottovoce.deploy.messages.DECLINES`.
        """
        self._request_of_run("decline", plan=plan, why=why)

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        """Repeat the request until the hub has the inbox, and tell the user of long waits.

        See :meth:`sottovoce.deploy.transport.Transport.exchange`.
        """
        # the missing sites that the user was told of, and the wait after which he is told again
        told: object = None
        since = time.monotonic()
        again = 0.0
        while True:
            asked = time.monotonic()
            found = self._request_of_run("exchange", round=round, message=message.decode("ascii"))
            inbox, missing = self._entry_of_reply(found, "inbox"), found.get("missing")
            if inbox is not None:
                return inbox
            waited = time.monotonic() - since
            if isinstance(missing, list) and (missing != told or waited >= again):
                who = to_printable_text(", ".join(map(str, missing)))
                line = f"waits for {who} in round {round}"
                if told is not None:
                    line += f" since {waited:.0f} s"
                self._tell(line)
                told = missing
                again = waited + AGAIN
            if "asked" not in found and time.monotonic() - asked < SOON:
                # The hub replied without waiting, because it has other requests of this site open.
                time.sleep(SOON)

    def ask_other_sites(self, question: bytes, enough: int) -> dict[str, bytes]:
        """Repeat the request until the hub has enough answers.

        See :meth:`sottovoce.deploy.transport.Transport.ask_other_sites`.
        """
        told = False
        while True:
            found = self._request_of_run(
                "inquire", question=question.decode("ascii"), enough=enough
            )
            answers = self._entry_of_reply(found, "answers")
            if answers is not None:
                return answers
            if not told:
                self._tell(f"was restarted, and waits for answers of {enough} other sites")
                told = True

    def _entry_of_reply(self, found: dict[str, Any], word: str) -> dict[str, bytes] | None:
        """Return the entry `word` of a reply, by site; None if the hub does not have it yet.

        In the latter case this answers the questions of restarted sites that the reply holds.
        Raises :class:`TransportClosed` if the run is over for this site.
        """
        if "closed" in found:
            site = found.get("site")
            if site is not None:
                site = str(site)
            raise TransportClosed(to_printable_text(str(found["closed"])), site)
        given, asked = found.get(word), found.get("asked", {})
        if given is None and isinstance(asked, dict):
            for asker, question in asked.items():
                if self.answers is not None:
                    answer = self.answers(str(asker), str(question).encode("utf-8", "replace"))
                    self._request_of_run("answer", asker=asker, answer=answer.decode("ascii"))
            return None
        if not isinstance(given, dict):
            raise Refused(OTHER_VERSION)
        return {str(name): str(text).encode("utf-8", "replace") for name, text in given.items()}

    def _request_of_run(self, method: str, **asked: Any) -> dict[str, Any]:
        """Send a request with the name of the run, and return its reply."""
        return self.send_request(method, asked | {"run": self._run})
