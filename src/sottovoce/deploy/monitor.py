"""The hub's web page while a run goes on: read only, and by default for this machine alone.

``sottovoce hub run --page`` starts it; its content is that of :mod:`sottovoce.deploy.watch`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from ..errors import InvalidInput, SottovoceError
from ..util.plain import infinities_to_text
from ..util.typing import Any
from .watch import render_watch_page

PAGE = "127.0.0.1:8444"
"""Default address of the page."""
REFRESH = 5
"""Seconds after which a browser loads the page again."""
# Content-Security-Policy: no scripts, nothing from elsewhere, and no frame around the page.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri "
    "'none'; form-action 'none'"
)


def serve_status_page(
    status: Callable[[], dict[str, Any]], address: str, *, free: bool = False
) -> tuple[ThreadingHTTPServer, str]:
    """Serve the state of a run over HTTP from a thread: ``/`` is a page, ``/status.json`` is JSON.

    Any other path is refused, and so is a request whose ``Host`` names another machine: it comes
    from a foreign web page, in the browser of somebody who is allowed to see this one (DNS
    rebinding).

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
    ThreadingHTTPServer
        Stop it with ``shutdown``.
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
        raise InvalidInput("page", address, "must be HOST:PORT", f"use e.g. {PAGE}")
    try:
        server = _Server((host, int(digits)), _handler_class(status, host))
    except OSError:
        if free:
            return serve_status_page(status, f"{address.rpartition(':')[0]}:0")
        raise InvalidInput(
            "page", address, "cannot be opened to listen on", "use a free port, or --page none"
        ) from None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://{address.rpartition(':')[0]}:{server.server_address[1]}/"


def _handler_class(status: Callable[[], dict[str, Any]], host: str) -> type[BaseHTTPRequestHandler]:
    """Return the class that answers HTTP requests to a server that listens at `host`."""

    class Handler(BaseHTTPRequestHandler):
        server_version = "sottovoce"
        sys_version = ""
        timeout = 10.0

        def do_GET(self) -> None:
            """Answer one request: 403, 404, 503 if the state is not known, or a page or JSON."""
            named = urlsplit(f"//{self.headers.get('Host', '')}").hostname
            here = named in (host, "localhost", "127.0.0.1", "::1")
            # A server that listens on all addresses cannot know by which name it is reached.
            if not here and host not in ("0.0.0.0", "::"):
                self._reply(403, "text/plain", "wrong host name\n")
            elif self.path not in ("/", "/status.json"):
                self._reply(404, "text/plain", "only / and /status.json exist\n")
            else:
                try:
                    found = status()
                except SottovoceError as error:
                    self._reply(503, "text/plain", f"{error}\n")
                    return
                if self.path == "/":
                    self._reply(200, "text/html", render_watch_page(found))
                else:
                    self._reply(
                        200, "application/json", json.dumps(infinities_to_text(found)) + "\n"
                    )

        def _reply(self, code: int, kind: str, text: str) -> None:
            """Send a reply: HTTP status, media type and content."""
            body = text.encode()
            self.send_response(code)
            for name, value in (
                ("Content-Type", f"{kind}; charset=utf-8"),
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


class _Server(ThreadingHTTPServer):
    # A taken port must be refused: with reuse two hubs could listen on one port.
    allow_reuse_address = False
    daemon_threads = True
