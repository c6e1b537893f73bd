"""The built-in transport.

A gRPC server at the hub, mutual TLS, and outbound connections only from the sites.

Unary methods carry JSON.  ``exchange`` is a long poll: the hub answers when the round is complete,
or after a while with nothing, and the site asks again.  The sender is the common name of its
certificate, never a field of a message.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InvalidInput, Refused, SottovoceError, Unreachable
from ..util.files import read_bounded_file
from ..util.plain import canonical_json
from ..util.typing import Any
from . import limits, requests
from .certificates import INVITED, check_tls_files
from .files import KEY
from .hub import Hub
from .plan import Plan
from .plan_file import LARGEST
from .requests import (
    METHODS,
    OTHER_REQUEST,
    OTHER_VERSION,
    RequestTransport,
    reply_to_request,
    request_and_reply_sizes,
)
from .transport import to_printable_text

if TYPE_CHECKING:
    import grpc

SERVICE = "sottovoce.Relay"
WELCOME = "welcome"
"""The one method that an invitation opens: a site asks for its certificate and the plan, both
public.
"""
_WELCOME = 2 * LARGEST + 2**17
"""The most bytes of the reply: a plan as a JSON text, and a certificate."""
POLL = 10.0
"""Seconds that the hub keeps a request open."""
OPEN = 2
"""Requests of one site that may stay open."""
LINES = 10
"""Refusals of one site that are told in a minute."""
SLACK = 20.0
"""Further seconds that a site waits for a reply."""
QUIET = 3.0
"""Seconds without a reply after which a site says so."""
OWN_TROUBLE = "the hub cannot work; its operator sees why"
"""All that a site is told of an error of the hub's own."""
_log = logging.getLogger(__name__)
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.dns_enable_srv_queries", 0),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 20_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


def require_grpc() -> None:
    """Raise :class:`InvalidInput` if gRPC is not installed."""
    # its own lines say less than ours, and break progress bars
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import grpc  # noqa: F401
    except ImportError as error:
        rule = "the relay needs the package grpcio, which is not installed"
        raise InvalidInput("hub", None, rule, "pip install 'sottovoce[relay]'") from error


@dataclass(frozen=True)
class Credentials:
    """Files in PEM, of a site or of the hub.

    Parameters
    ----------
    authority : Path
        Certificate of the authority, or of several.
    certificate, key : Path
        One's own.
    """

    authority: Path
    certificate: Path
    key: Path

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Their contents, authority first; raises :class:`InvalidInput` if one is missing."""
        authority = read_bounded_file("authority", self.authority, KEY)
        certificate = read_bounded_file("certificate", self.certificate, KEY)
        key = read_bounded_file("key", self.key, KEY)
        return authority, certificate, key


def _message_length_options(most_sent: int, most_received: int) -> tuple[tuple[str, int], ...]:
    """Return gRPC's options for the longest messages, in bytes."""
    return (
        ("grpc.max_send_message_length", most_sent),
        ("grpc.max_receive_message_length", most_received),
    )


class _Polls:
    """Long polls that are open, by site.

    Beyond two the hub answers at once, so that no site takes the others' threads.  An honest site
    has one, and for some seconds after a restart that of its dead process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = Counter[str]()

    @contextmanager
    def of(self, site: str) -> Iterator[float]:
        """Seconds that a request of this site may stay open, while it is answered."""
        with self._lock:
            self._open[site] += 1
            seconds = 0.0
            if self._open[site] <= OPEN:
                seconds = POLL
        try:
            yield seconds
        finally:
            with self._lock:
                self._open[site] -= 1


class _News:
    """Filter of the refusals to report: of each site those that differ from the last.

    At most :data:`LINES` a minute and site, so that no site fills the operator's console.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._last: dict[str, str] = {}
        self._told: dict[str, deque[float]] = {}
        self._left_out: Counter[str] = Counter()

    def line_to_report(self, site: str, why: str) -> str | None:
        """Return the line to tell; None if it is the same as before, or one too many in a minute.

        What was left out is counted, and told with the next line.
        """
        with self._lock:
            last = self._last.get(site)
            self._last[site] = why
            if last == why:
                return None
            now = self._clock()
            # times of the last lines: a full deque whose oldest is younger than a minute
            # means that the minute is used up
            told = self._told.setdefault(site, deque(maxlen=LINES))
            if len(told) == LINES and now - told[0] < 60.0:
                self._left_out[site] += 1
                return None
            told.append(now)
            more = self._left_out.pop(site, 0)
            if more:
                return f"{why} (and {more:,} others since the last line)"
            return why


def start_relay(
    hub: Hub,
    credentials: Credentials,
    address: str,
    refused: Callable[[str, str], None] = lambda *_: None,
    failed: Callable[[str, str], None] = lambda *_: None,
    welcome: Callable[[str], dict[str, Any]] | None = None,
    heard: Callable[[str], None] = lambda _: None,
    revoked: Callable[[bytes], bool] = lambda _: False,
) -> tuple[grpc.Server, int]:
    """Start the relay of a hub.

    Only :class:`Refused` says that a request is wrong.  Any other error is the hub's own and may
    pass: the site is told that the hub cannot work, and asks again.

    Parameters
    ----------
    hub : Hub
    credentials : Credentials
        The hub's; read again before each handshake, so that renewed files need no restart.
    address : str
        ``HOST:PORT``; port 0 takes a free one.
    refused : callable
        Called with a site and a reason when its request is refused for a new reason; from any
        thread.
    failed : callable
        The same for an error of the hub's own; an unforeseen one is also logged, with its
        traceback.
    welcome : callable, optional
        The reply, by a site's name, to whoever asks with its invitation or certificate; all of it
        is public.
    heard : callable
        Called with the site of every request; from any thread.
    revoked : callable
        Whether a certificate, in PEM, is refused although it is valid.

    Returns
    -------
    server : grpc.Server
        Stop it with ``server.stop(seconds)``.
    port : int
        Where it listens.

    Raises
    ------
    InvalidInput
        If the address cannot be used, or gRPC is not installed.
    """
    require_grpc()
    import grpc

    grpc_target(address, "listen")
    # A waiting site holds a thread, and OPEN of them if a dead process of it still waits.
    workers = 2 * len(hub.plan.sites) + 4
    asked_most, answered_most = request_and_reply_sizes(hub.plan)
    options = [*_OPTIONS, *_message_length_options(max(answered_most, _WELCOME), asked_most)]
    server = grpc.server(ThreadPoolExecutor(max_workers=workers), options=options)
    requests_of_sites = _Requests(hub, asked_most, refused, failed, welcome, heard, revoked)
    methods = {
        name: grpc.unary_unary_rpc_method_handler(partial(requests_of_sites.handle_request, name))
        for name in (*METHODS, WELCOME)
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port = _listen_on_address(server, address, credentials)
    server.start()
    return server, port


def _listen_on_address(server: grpc.Server, address: str, credentials: Credentials) -> int:
    """Let a server listen at an address; raises :class:`InvalidInput` if it cannot."""
    import grpc

    secure = grpc.dynamic_ssl_server_credentials(
        _tls_configuration(credentials.read()),
        _tls_configuration_fetcher(credentials),
        require_client_authentication=True,
    )
    try:
        return server.add_secure_port(address, secure)
    except RuntimeError:
        raise InvalidInput(
            "listen", address, "cannot be opened to listen on", "use a free port of this machine"
        ) from None


class _Requests:
    """Requests of sites, answered by the hub; see :func:`start_relay` for what it is given."""

    def __init__(
        self,
        hub: Hub,
        longest: int,
        refused: Callable[[str, str], None],
        failed: Callable[[str, str], None],
        welcome: Callable[[str], dict[str, Any]] | None,
        heard: Callable[[str], None],
        revoked: Callable[[bytes], bool],
    ) -> None:
        self._hub = hub
        self._longest = longest
        self._welcome = welcome
        self._refused = refused
        self._failed = failed
        self._heard = heard
        self._revoked = revoked
        self._news = _News()
        self._polls = _Polls()

    def handle_request(self, method: str, request: bytes, context: Any) -> bytes:
        """Return the reply, or end the call.

        The end says whether the request was wrong or the hub is in trouble.
        """
        import grpc

        names: list[bytes] = []
        try:
            names = context.auth_context().get("x509_common_name", [])
            certificates = context.auth_context().get("x509_pem_cert", [])
            return canonical_json(
                self._reply_to_sender(method, request, names, certificates)
            ).encode()
        except Exception as error:
            self._report_failure(
                to_printable_text(b", ".join(names).decode("utf-8", "replace")), error
            )
            if isinstance(error, Refused):
                return context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            return context.abort(grpc.StatusCode.INTERNAL, OWN_TROUBLE)

    def _reply_to_sender(
        self, method: str, request: bytes, names: list[bytes], certificates: list[bytes]
    ) -> dict[str, Any]:
        """Answer a request; its sender is the one name of its certificate, and no field of it."""
        if len(names) != 1:
            raise Refused("certificate: has no common name")
        asked = requests.parse_request(request, self._longest, OTHER_REQUEST)
        if any(map(self._revoked, certificates)):
            raise Refused("certificate: was revoked; ask the hub's operator")
        name = _decode_common_name(names[0])
        self._heard(name)
        if method == WELCOME and self._welcome is not None:
            return self._welcome(name.removeprefix(INVITED))
        with self._polls.of(name) as seconds:
            return reply_to_request(self._hub, name, method, asked, seconds)

    def _report_failure(self, site: str, error: Exception) -> None:
        """Tell the operator what is new of a request that was not answered."""
        foreseen = isinstance(error, SottovoceError)
        why = str(error)
        if not foreseen:
            why = f"{type(error).__name__}: {error}"
        told = self._news.line_to_report(site, to_printable_text(why))
        if told is None:
            return
        if isinstance(error, Refused):
            self._refused(site, told)
        else:
            self._failed(site, told)
        if not foreseen:
            _log.error("internal error of the hub on a request of %s", site, exc_info=error)


def _tls_configuration(files: tuple[bytes, bytes, bytes]) -> grpc.ServerCertificateConfiguration:
    import grpc

    authority, certificate, key = files
    return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)


def _tls_configuration_fetcher(
    credentials: Credentials,
) -> Callable[[], grpc.ServerCertificateConfiguration | None]:
    """Return the callback of gRPC that reads the files again before each handshake.

    It returns None if they are as before, or do not fit together.
    """
    known = credentials.read()

    def look() -> grpc.ServerCertificateConfiguration | None:
        nonlocal known
        try:
            found = credentials.read()
            if found == known:
                return None
            check_tls_files("hub", *found)
        except InvalidInput:
            # Written at this moment, or wrong: the old ones stay in use, and `hub run` and
            # `hub status` say what is wrong.
            return None
        known = found
        return _tls_configuration(found)

    return look


def _decode_common_name(common: bytes) -> str:
    try:
        return common.decode()
    except UnicodeDecodeError:
        raise Refused("certificate: its common name is not text") from None


def grpc_target(address: str, field: str = "hub") -> str:
    """Return an address for a gRPC client, a numeric one in the form that needs no look-up.

    Raises :class:`InvalidInput`, naming `field`, unless it is ``HOST:PORT``.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise InvalidInput(field, address, "must be HOST:PORT", "use e.g. 'hub.example.org:8443'")
    try:
        ip = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return address
    if ip.version == 4:
        return f"ipv4:{ip}:{port}"
    return f"ipv6:[{ip}]:{port}"


def _secure_channel(
    address: str,
    authority: bytes,
    certificate: bytes,
    key: bytes,
    carries: tuple[tuple[str, int], ...],
) -> grpc.Channel:
    require_grpc()
    import grpc

    secure = grpc.ssl_channel_credentials(authority, key, certificate)
    return grpc.secure_channel(grpc_target(address), secure, options=[*_OPTIONS, *carries])


def request_certificate_and_plan(
    address: str, own: tuple[bytes, bytes, bytes], tell: Callable[[str], None], every: float = 60.0
) -> tuple[bytes, bytes]:
    """Ask the hub for a site's certificate and the plan's file, and wait until it has both.

    Parameters
    ----------
    address : str
        ``HOST:PORT`` of the hub.
    own : (bytes, bytes, bytes)
        Authority, certificate and key in PEM; those of an invitation will do.
    tell : callable
        Called with a line about what it waits for, if that changed.
    every : float
        Seconds after which the same line is told again.

    Returns
    -------
    certificate, plan : bytes
        The contents of the files.

    Raises
    ------
    Refused
        If the hub refuses the request.
    """
    import grpc

    told: tuple[str, float] | None = None
    with _secure_channel(address, *own, _message_length_options(2**12, _WELCOME)) as channel:
        call = channel.unary_unary(f"/{SERVICE}/{WELCOME}")
        while True:
            try:
                found = requests.parse_request(call(b"{}", timeout=SLACK), _WELCOME, OTHER_VERSION)
                certificate, plan = found.get("certificate"), found.get("plan")
                if isinstance(certificate, str) and isinstance(plan, str):
                    return certificate.encode(), plan.encode()
                why = (
                    "it has not admitted this site: its operator runs `hub run --admit` or `hub "
                    "admit`"
                )
            except grpc.RpcError as error:
                if error.code() in (
                    grpc.StatusCode.FAILED_PRECONDITION,
                    grpc.StatusCode.UNIMPLEMENTED,
                ):
                    raise Refused(
                        f"the hub refused: {to_printable_text(error.details() or '')}"
                    ) from None
                why = (
                    "it is not running, a firewall blocks it, or it has another certificate "
                    "authority"
                )
            now = time.monotonic()
            if told is None or told[0] != why or now - told[1] >= every:
                told = why, now
                tell(f"waits for the hub at {address}: {why}")
            time.sleep(1.0)


def _reason_of_silence(code: grpc.StatusCode, details: str) -> str:
    """Return in words why a request got no reply and is repeated."""
    import grpc

    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return (
            "it is down or at another address, a firewall blocks it, or one side rejects "
            "the other's certificate (gRPC does not say which)"
        )
    if details == OWN_TROUBLE:
        return details
    return f"it failed ({code.name})"


class RelayTransport(RequestTransport):
    """A site's connection to a relay; a context manager, which closes it.

    Parameters
    ----------
    address : str
        ``HOST:PORT`` of the hub.
    patience : float
        Seconds without any reply after which the hub counts as unreachable.
    tell : callable
        Called with a line when something takes long: the hub does not reply, or neighbours send
        nothing.
    """

    def __init__(
        self,
        address: str,
        credentials: Credentials,
        plan: Plan,
        patience: float = 600.0,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(plan, tell)
        self._address = address
        self._patience = patience
        asked_most, self._most = request_and_reply_sizes(plan)
        self._wait = POLL + SLACK + limits.transfer_seconds(self._most)
        self._channel = _secure_channel(
            address, *credentials.read(), _message_length_options(asked_most, self._most)
        )

    def __enter__(self) -> RelayTransport:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def send_request(self, method: str, asked: dict[str, Any]) -> dict[str, Any]:
        """One request, repeated until the hub replies."""
        import grpc

        call = self._channel.unary_unary(f"/{SERVICE}/{method}")
        body = canonical_json(asked).encode()
        since = time.monotonic()
        pause = 0.05
        told = False
        while True:
            try:
                found = requests.parse_request(
                    call(body, timeout=self._wait), self._most, OTHER_VERSION
                )
                if told:
                    self._tell(f"hub={self._address!r}: answers again")
                return found
            except grpc.RpcError as error:
                code, details = error.code(), to_printable_text(error.details() or "")
                if code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT):
                    raise Refused(f"the hub refused: {details}") from None
                if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise Refused("the hub refused: the message is too long") from None
                silent = time.monotonic() - since
                why = _reason_of_silence(code, details)
                if silent > self._patience:
                    rule = f"no answer for {self._patience:g} s: {why}"
                    raise Unreachable(f"hub={self._address!r}: {rule}") from None
                if silent > QUIET and not told:
                    told = True
                    self._tell(
                        f"hub={self._address!r}: does not answer; trying for {self._patience:g} s: "
                        f"{why}"
                    )
            time.sleep(pause)
            pause = min(2.0 * pause, 1.0)
