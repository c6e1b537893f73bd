"""Requests of sites and the hub's replies as the contents of NVFlare's tasks and results.

The executor (at a site) and the controller (at the hub) share this module.  In NVFlare the hub
gives tasks, and a site answers a task with a result, while here a site asks and the hub replies.
So a task brings the reply to the site's last request, and its result takes the next request along.
The requests themselves are those of :mod:`sottovoce.deploy.requests`.

============  ==========================================================================
in a task     meaning
============  ==========================================================================
``number``    of the request that is replied to; a task without it only asks for a result
``reply``     its reply, or ``refused``: why there is none
============  ==========================================================================

============  ==========================================================================
in a result   meaning
============  ==========================================================================
``number``    of a request, with its ``method`` and ``request``; absent: it still computes
``ended``     the session is over: why it failed, never a data value; empty if it did not
============  ==========================================================================
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

from ...errors import Refused, Unreachable
from ...util.plain import canonical_json
from ...util.typing import Any
from .. import requests
from ..hub import Hub
from ..plan import Plan
from ..requests import (
    OTHER_REQUEST,
    OTHER_VERSION,
    RequestTransport,
    reply_to_request,
    request_and_reply_sizes,
)
from ..transport import to_printable_text

Carry = Callable[[str, dict[str, Any]], dict[str, Any] | None]
"""Takes a task to a site, and returns its result; None if there is none."""
PATIENCE = 5.0
"""Seconds after which a site that still computes returns an empty result, and after which the hub
replies with the names of the missing sites.
"""
_LOOK = 0.5
"""Seconds between looks at the threads of the sites."""
# Keys of a task or a result.
NUMBER = "number"
METHOD = "method"
REQUEST = "request"
REPLY = "reply"
REFUSED = "refused"
ENDED = "ended"


class Post:
    """A site's mailbox between its session, in one thread, and NVFlare's tasks, in another.

    The session puts its request here and waits; the next task takes the request to the hub, and the
    task after that brings the reply.
    """

    def __init__(self) -> None:
        self._news = threading.Condition()
        # number of the last request, and the request itself until its reply has come
        self._number = 0
        self._request: dict[str, Any] | None = None
        self._reply: dict[str, Any] | None = None
        self._ended: dict[str, Any] | None = None
        self._closed: str | None = None

    def wait_for_reply(self, method: str, request: bytes) -> dict[str, Any]:
        """Post a request, wait for the task with its reply, and return that task's content.

        Called by the session.  Raises :class:`Unreachable` if the job ends before.
        """
        with self._news:
            self._number += 1
            self._request = {NUMBER: self._number, METHOD: method, REQUEST: request}
            self._reply = None
            self._news.notify_all()
            self._news.wait_for(lambda: self._reply is not None or self._closed is not None)
            self._request = None
            if self._reply is None:
                raise Unreachable(f"hub: {self._closed}")
            return self._reply

    def end_session(self, failure: str) -> None:
        """Say that the session is over: why it failed, or an empty text."""
        with self._news:
            self._ended = {ENDED: failure}
            self._news.notify_all()

    def carry_task(self, task: dict[str, Any], seconds: float = PATIENCE) -> dict[str, Any]:
        """Hand a task to the session, and return the result for it.

        The result is the session's next request, or its end; empty if neither comes in `seconds`.
        """
        with self._news:
            if self._request is not None and task.get(NUMBER) == self._request[NUMBER]:
                self._request = None
                self._reply = task
                self._news.notify_all()
            self._news.wait_for(
                lambda: self._request or self._ended or self._closed, timeout=seconds
            )
            return self._ended or self._request or {}

    def close_with_reason(self, reason: str) -> None:
        """Say that the job is over and no more tasks will come; the first reason is kept."""
        with self._news:
            self._closed = self._closed or reason
            self._news.notify_all()


class TaskTransport(RequestTransport):
    """A site's :class:`sottovoce.deploy.transport.Transport` over NVFlare's tasks.

    Parameters
    ----------
    plan : Plan
    post : Post
        The site's mailbox, which the executor empties.
    """

    def __init__(self, plan: Plan, post: Post) -> None:
        super().__init__(plan)
        self._post = post
        _, self._most = request_and_reply_sizes(plan)

    def send_request(self, method: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Carry one request to the hub; see :meth:`RequestTransport.send_request`."""
        task = self._post.wait_for_reply(method, canonical_json(asked).encode())
        if REFUSED in task:
            raise Refused(f"the hub refused: {to_printable_text(str(task[REFUSED]))}")
        return requests.parse_request(task.get(REPLY, b""), self._most, OTHER_VERSION)


def serve_sites(hub: Hub, carry: Carry, over: threading.Event) -> str | None:
    """Answer the requests of all sites until all have ended, in a thread for each.

    A lost site ends the job if the plan waits for all its sites, however long; else the job goes on
    as long as another site answers.  A site without which the others go on is told so.

    Parameters
    ----------
    hub : Hub
    carry : callable
        Brings a task to a site and returns its result (:data:`Carry`); must return None soon once
        `over` is set.
    over : Event
        Set when the job is over: here at the end, or elsewhere before.

    Returns
    -------
    str or None
        Why the run cannot go on in this job; None if it is complete.
    """
    # sites that have not ended, and the first failure
    running = set(hub.plan.names)
    lost: str | None = None
    with ThreadPoolExecutor(len(running)) as pool:
        try:
            threads = {pool.submit(serve_one_site, hub, site, carry): site for site in running}
            while not over.is_set() and (threads or running - hub.gone().keys()):
                if lost is not None and (hub.plan.waits.waits_for_ever or not threads):
                    return lost
                for thread in wait(threads, _LOOK, FIRST_COMPLETED).done:
                    site, failure = threads.pop(thread), thread.result()
                    if failure is None:
                        running.discard(site)
                    lost = lost or failure
        finally:
            over.set()
    return None


def serve_one_site(hub: Hub, site: str, carry: Carry) -> str | None:
    """Answer the requests of one site until it has ended.

    Parameters
    ----------
    hub : Hub
    site : str
    carry : callable
        Brings a task to a site and returns its result; None if the site does not answer.

    Returns
    -------
    str or None
        Why the site is lost; None if it has ended and signed that it leaves.
    """
    longest, _ = request_and_reply_sizes(hub.plan)
    # The first task brings no reply; it only asks for the site's first request.
    task: dict[str, Any] = {}
    while (result := carry(site, task)) is not None:
        if ENDED in result:
            if result[ENDED]:
                return f"site {site!r} stopped: {to_printable_text(str(result[ENDED]))}"
            if site in hub.gone():
                return None
            return f"site {site!r} stopped without a signed farewell"
        task = {}
        if NUMBER in result:
            task[NUMBER] = result[NUMBER]
            try:
                request = requests.parse_request(result.get(REQUEST, b""), longest, OTHER_REQUEST)
                reply = reply_to_request(hub, site, str(result.get(METHOD)), request, PATIENCE)
                task[REPLY] = canonical_json(reply).encode()
            except Refused as error:
                task[REFUSED] = str(error)
    return f"site {site!r} does not answer"
