"""The hub's web pages while a run goes on: read only, and by default for this machine alone.

``sottovoce hub run --page`` starts the page for people, whose content is that of
:mod:`sottovoce.deploy.watch`; ``--metrics`` that for programs (:mod:`sottovoce.deploy.metrics`).
No flood of requests ends the hub that serves them (:class:`BoundedServer`).
"""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import urlsplit

from ..errors import InvalidInput, SottovoceError
from ..util.plain import infinities_to_text
from ..util.typing import Any
from .watch import render_watch_page

PAGE = "127.0.0.1:8444"
"""Default address of the page."""
REFRESH = 5
"""Seconds after which a browser loads the page again."""
OPEN = 8
"""The most connections that a server of pages holds; a new one ends the oldest."""
_LONGEST = 10.0
"""Seconds that a connection may wait for the next bytes of a request."""
_PAUSE = 0.05
"""Seconds without looking after no connection could be taken."""
_NOTHING_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors that say that this process or machine has nothing left for a connection."""
# Content-Security-Policy: no scripts, nothing from elsewhere, and no frame around the page.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri "
    "'none'; form-action 'none'"
)


class Reply(NamedTuple):
    """An HTTP reply: status, media type, and text."""

    code: int
    kind: str
    text: str


Pages = Mapping[str, Callable[[], Reply]]
"""What a server has, by path; called at every request, from any thread."""


def serve_status_page(
    status: Callable[[], dict[str, Any]], address: str, *, free: bool = False
) -> tuple[BoundedServer, str]:
    """Serve the state of a run over HTTP from a thread: ``/`` is a page, ``/status.json`` is JSON.

    Parameters
    ----------
    status : callable
        Returns the state as plain data; called at every request, from any thread.
    address : str
        ``HOST:PORT``.
    free : bool
        Take any free port if the one of `address` is taken.

    Returns
    -------
    BoundedServer
        Stop it with ``shutdown`` and ``server_close``.
    str
        Its address, as a URL.

    Raises
    ------
    InvalidInput
        If `address` is not ``HOST:PORT``, or the server cannot listen there.
    """
    pages: Pages = {
        "/": lambda: Reply(200, "text/html", render_watch_page(status())),
        "/status.json": lambda: Reply(
            200, "application/json", json.dumps(infinities_to_text(status())) + "\n"
        ),
    }
    return serve_pages(pages, address, "page", free=free)


def serve_pages(
    pages: Pages, address: str, field: str, *, free: bool = False
) -> tuple[BoundedServer, str]:
    """Serve pages over HTTP from a thread; any other path is refused.

    So is a request whose ``Host`` names another machine: it comes from a foreign web page, in the
    browser of somebody who is allowed to see this one (DNS rebinding).

    Parameters
    ----------
    pages : mapping of str to callable
        Replies by path.
    address : str
        ``HOST:PORT``.
    field : str
        Named by errors.
    free : bool
        Take any free port if the one of `address` is taken.

    Returns
    -------
    BoundedServer
        Stop it with ``shutdown`` and ``server_close``.
    str
        Its address, as a URL.

    Raises
    ------
    InvalidInput
        If `address` is not ``HOST:PORT``, or the server cannot listen there.
    """
    host, _, digits = address.rpartition(":")
    host = host.strip("[]")
    if not host or not digits.isdecimal() or int(digits) > 65_535:
        raise InvalidInput(field, address, "must be HOST:PORT", f"use e.g. {PAGE}")
    try:
        server = BoundedServer((host, int(digits)), _handler_class(pages, host))
    except OSError:
        if free:
            return serve_pages(pages, f"{address.rpartition(':')[0]}:0", field)
        rule = "cannot be opened to listen on"
        raise InvalidInput(field, address, rule, f"use a free port, or --{field} none") from None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://{address.rpartition(':')[0]}:{server.server_address[1]}/"


def _handler_class(pages: Pages, host: str) -> type[BaseHTTPRequestHandler]:
    """Return the class that answers HTTP requests to a server that listens at `host`."""

    class Handler(BaseHTTPRequestHandler):
        server_version = "sottovoce"
        sys_version = ""
        timeout = _LONGEST

        def do_GET(self) -> None:
            """Answer one request: 403, 404, 503 if the state is not known, or a page."""
            named = urlsplit(f"//{self.headers.get('Host', '')}").hostname
            here = named in (host, "localhost", "127.0.0.1", "::1")
            # A server that listens on all addresses cannot know by which name it is reached.
            if not here and host not in ("0.0.0.0", "::"):
                self._reply(Reply(403, "text/plain", "wrong host name\n"))
            elif self.path not in pages:
                known = " and ".join(pages)
                self._reply(Reply(404, "text/plain", f"only {known} exist\n"))
            else:
                try:
                    found = pages[self.path]()
                except (SottovoceError, OSError) as error:
                    found = Reply(503, "text/plain", f"{error}\n")
                self._reply(found)

        def _reply(self, reply: Reply) -> None:
            """Send a reply."""
            body = reply.text.encode()
            self.send_response(reply.code)
            for name, value in (
                ("Content-Type", f"{reply.kind}; charset=utf-8"),
                ("Content-Length", str(len(body))),
                ("Content-Security-Policy", _POLICY),
                ("X-Content-Type-Options", "nosniff"),
                ("Cache-Control", "no-store"),
                ("Referrer-Policy", "no-referrer"),
                ("Refresh", str(REFRESH)),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: who looks at the page is nobody's business."""

    return Handler


class BoundedServer(ThreadingHTTPServer):
    """A server of pages that holds at most :data:`OPEN` connections.

    One more ends the oldest, so a flood takes neither descriptors nor threads from the hub, and
    keeps nobody else out.  One descriptor is kept in reserve: a hub that has no other left still
    tells so.
    """

    # A taken port must be refused: with reuse two hubs could listen on one port.
    allow_reuse_address = False
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._held = threading.Lock()
        self._connections: dict[socket.socket, None] = {}
        self._reserve: int | None = os.open(os.devnull, os.O_RDONLY)
        super().__init__(address, handler)

    def server_close(self) -> None:
        """Close the server's socket and the reserve; after ``shutdown``."""
        super().server_close()
        with self._held:
            if self._reserve is not None:
                os.close(self._reserve)
                self._reserve = None

    def get_request(self) -> tuple[socket.socket, Any]:
        """Take a connection, by the descriptor in reserve if there is no other."""
        try:
            taken = super().get_request()
        except OSError as error:
            if error.errno not in _NOTHING_LEFT:
                raise
            with self._held:
                if self._reserve is not None:
                    os.close(self._reserve)
                    self._reserve = None
            try:
                taken = super().get_request()
            except OSError:
                # Else the loop would spin: the connection still waits to be taken.
                time.sleep(_PAUSE)
                raise
        with self._held:
            self._connections[taken[0]] = None
            too_many = list(self._connections)[:-OPEN]
        for one in too_many:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        return taken

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, and fill the reserve again."""
        with self._held:
            self._connections.pop(request, None)
        super().shutdown_request(request)
        with self._held, suppress(OSError):
            if self._reserve is None:
                self._reserve = os.open(os.devnull, os.O_RDONLY)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a reader that leaves early is no trouble of the hub's."""
