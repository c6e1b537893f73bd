"""The built-in transport: a gRPC server at the hub, to which all sites connect with mutual TLS.

Each request of a site is a unary gRPC call with JSON in both directions; their content is in
:mod:`sottovoce.deploy.requests`.  ``exchange`` is a *long poll*: the hub replies when the round is
complete, or after :data:`POLL` seconds with nothing, and the site asks again.  The sender of a
request is the common name of its TLS certificate, never a field of a message.

:func:`start_relay` is the hub's side, :class:`RelayTransport` a site's, and
:func:`request_certificate_and_plan` that of a site that was just invited.
"""

from __future__ import annotations

import ipaddress
import logging
import math
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

from ..errors import Exhausted, InvalidInput, Queued, Refused, SottovoceError, Unreachable
from ..util.files import read_bounded_file
from ..util.plain import canonical_json
from ..util.typing import Any
from . import limits, requests
from .certificates import INVITED, check_tls_files, read_tls_key
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
"""Name of the gRPC service."""
WELCOME = "welcome"
"""The only method that a certificate of an invitation may call: it returns the site's certificate
and the plan, both public.
"""
_WELCOME = 2 * LARGEST + 2**17
"""The most bytes of its reply: a plan, doubled by the escapes of a JSON text, and a certificate."""
POLL = 10.0
"""Seconds that the hub keeps a request open while messages are missing."""
OPEN = 2
"""The most requests of one site that the hub keeps open at a time."""
LINES = 10
"""The most lines a minute on the hub's console about refused requests of one site."""
SLACK = 20.0
"""Seconds beyond :data:`POLL` that a site waits for a reply."""
QUIET = 3.0
"""Seconds without a reply after which a site tells its user."""
WAITS = "queue: "
"""Beginning of what a site is told whose plan is not yet the one that the hub serves."""
OWN_TROUBLE = "the hub cannot work; its operator sees why"
"""All that a site is told of an internal error of the hub."""
_log = logging.getLogger(__name__)
# Both sides: connect directly and to the given address only (no proxy, no service configuration
# from DNS, no port shared with another server), notice a dead connection after 40 s, and reconnect
# within 2 s.
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
    # A connection that does not shake hands holds a file descriptor of the hub: not for long.
    ("grpc.server_handshake_timeout_ms", 10_000),
)


def require_grpc() -> None:
    """Raise :class:`InvalidInput` if gRPC is not installed."""
    # gRPC's own console messages add nothing, and break progress bars.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import grpc  # noqa: F401
    except ImportError as error:
        rule = "the relay needs the package grpcio, which is not installed"
        raise InvalidInput("hub", None, rule, "pip install 'sottovoce[relay]'") from error


@dataclass(frozen=True)
class Credentials:
    """Paths of the TLS files of a site or of the hub, in PEM.

    Parameters
    ----------
    authority : Path
        Certificate of the authority, or of several.
    certificate, key : Path
        Certificate of this site or hub, and its private key.
    """

    authority: Path
    certificate: Path
    key: Path

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Return authority, certificate and key, not encrypted; raises :class:`InvalidInput`."""
        authority = read_bounded_file("authority", self.authority, KEY)
        certificate = read_bounded_file("certificate", self.certificate, KEY)
        return authority, certificate, read_tls_key(self.key)


def _message_length_options(most_sent: int, most_received: int) -> tuple[tuple[str, int], ...]:
    """Return gRPC's options for the longest messages, in bytes."""
    return (
        ("grpc.max_send_message_length", most_sent),
        ("grpc.max_receive_message_length", most_received),
    )


class _Polls:
    """Number of open long polls of every site.

    Beyond :data:`OPEN` the hub replies at once, so that no site takes up the others' threads.  An
    honest site has one open, and for some seconds after a restart also that of its dead process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = Counter[str]()

    @contextmanager
    def of(self, site: str) -> Iterator[float]:
        """Context of one request of a site; yields the seconds that it may stay open."""
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
    """Filter of failed requests to report: of each site only those that differ from the last.

    At most :data:`LINES` a minute and site are let through, so that no site can fill the operator's
    console.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._last: dict[str, str] = {}
        self._told: dict[str, deque[float]] = {}
        self._left_out: Counter[str] = Counter()

    def line_to_report(self, site: str, why: str) -> str | None:
        """Return the line to report, or None if it repeats the last one or is above the limit.

        Lines above the limit are counted, and the next line that is reported says how many.
        """
        with self._lock:
            last = self._last.get(site)
            self._last[site] = why
            if last == why:
                return None
            now = self._clock()
            # Times of the last LINES lines: if the oldest of them is less than a minute ago, the
            # limit is reached.
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
    noted: Callable[[str, str], None] = lambda *_: None,
    revoked: Callable[[bytes], bool] = lambda _: False,
) -> tuple[grpc.Server, int]:
    """Start the relay of a hub.

    An exception :class:`Refused` means that a request is wrong, and the site gives up.  Any other
    is an error of the hub itself, which may pass: the site is told only that the hub cannot work
    (:data:`OWN_TROUBLE`), and asks again.

    Parameters
    ----------
    hub : Hub
    credentials : Credentials
        The hub's; read again before each handshake, so that renewed files need no restart.
    address : str
        ``HOST:PORT``; port 0 takes a free one.
    refused : callable ``(site, reason)``
        Called when a request of a site is refused for another reason than its last one; from any
        thread.
    failed : callable ``(site, reason)``
        Called in the same way for an error of the hub itself; an unexpected one is also logged with
        its traceback.
    welcome : callable ``(site)``, optional
        Returns the reply to :data:`WELCOME` as plain data; all of it is public.
    noted : callable ``(site, what)``
        Called at every request of a site with "asked", and again with "refused" or "failed" if it
        is not answered; from any thread.
    revoked : callable ``(pem)``
        Returns True for a certificate that is refused although it is valid.

    Returns
    -------
    server : grpc.Server
        Stop it with ``server.stop(seconds)``.
    port : int
        The port on which it listens.

    Raises
    ------
    InvalidInput
        If the server cannot listen on the address, or gRPC is not installed.
    """
    require_grpc()
    import grpc

    grpc_target(address, "listen")
    # A waiting site holds a thread, and OPEN of them if a dead process of it still waits; four are
    # spare.
    workers = 2 * len(hub.plan.sites) + 4
    asked_most, answered_most = request_and_reply_sizes(hub.plan)
    options = [*_OPTIONS, *_message_length_options(max(answered_most, _WELCOME), asked_most)]
    server = grpc.server(ThreadPoolExecutor(max_workers=workers), options=options)
    requests_of_sites = _Requests(hub, asked_most, refused, failed, welcome, noted, revoked)
    methods = {
        name: grpc.unary_unary_rpc_method_handler(partial(requests_of_sites.handle_request, name))
        for name in (*METHODS, WELCOME)
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    port = _listen_on_address(server, address, credentials)
    server.start()
    return server, port


def _listen_on_address(server: grpc.Server, address: str, credentials: Credentials) -> int:
    """Let a server listen on ``HOST:PORT`` with mutual TLS, and return the port.

    Raises :class:`InvalidInput` if it cannot.
    """
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
    """Handler of the sites' requests at the hub.

    Its arguments are those of :func:`start_relay`; `longest` is the most bytes of a request.
    """

    def __init__(
        self,
        hub: Hub,
        longest: int,
        refused: Callable[[str, str], None],
        failed: Callable[[str, str], None],
        welcome: Callable[[str], dict[str, Any]] | None,
        noted: Callable[[str, str], None],
        revoked: Callable[[bytes], bool],
    ) -> None:
        self._hub = hub
        self._longest = longest
        self._welcome = welcome
        self._refused = refused
        self._failed = failed
        self._noted = noted
        self._revoked = revoked
        self._news = _News()
        self._polls = _Polls()

    def handle_request(self, method: str, request: bytes, context: Any) -> bytes:
        """Return the reply to a gRPC call of one of :data:`METHODS`, or abort the call.

        Parameters
        ----------
        method : str
            The name of the method.
        request : bytes
            As sent, which may be by anybody.
        context : grpc.ServicerContext
            Tells who sent it, by the certificate of the connection.

        Returns
        -------
        bytes
            Canonical JSON.  An aborted call has the status FAILED_PRECONDITION for a wrong request,
            and INTERNAL for an error of the hub.
        """
        import grpc

        names: list[bytes] = []
        try:
            names = context.auth_context().get("x509_common_name", [])
            certificates = context.auth_context().get("x509_pem_cert", [])
            return canonical_json(
                self._reply_to_sender(method, request, names, certificates)
            ).encode()
        except Queued as error:
            # To the site this is a hub that it asks again.
            return context.abort(grpc.StatusCode.UNAVAILABLE, f"{WAITS}{error}")
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
        """Answer a request, whose sender is the only common name of the TLS certificate.

        `names` and `certificates` are what gRPC says of the sender: common names, and certificates
        in PEM.  Raises :class:`Refused` for a wrong request or certificate.
        """
        if len(names) != 1:
            raise Refused("certificate: has no common name")
        asked = requests.parse_request(request, self._longest, OTHER_REQUEST)
        if any(map(self._revoked, certificates)):
            raise Refused("certificate: was revoked; ask the hub's operator")
        name = _decode_common_name(names[0])
        self._noted(name, "asked")
        if method == WELCOME and self._welcome is not None:
            return self._welcome(name.removeprefix(INVITED))
        with self._polls.of(name) as seconds:
            return reply_to_request(self._hub, name, method, asked, seconds)

    def _report_failure(self, site: str, error: Exception) -> None:
        """Tell the operator why a request was not answered, unless it is a repetition."""
        # errors of this library; any other class is a fault of the program or the machine
        foreseen = isinstance(error, SottovoceError)
        why = str(error)
        if not foreseen:
            why = f"{type(error).__name__}: {error}"
        kind = "failed"
        if isinstance(error, Refused):
            kind = "refused"
        self._noted(site, kind)
        told = self._news.line_to_report(site, to_printable_text(why))
        if told is None:
            return
        if kind == "refused":
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
    """Return gRPC's callback that reads the TLS files again before each handshake.

    The callback returns None, so that the last files stay in use, if nothing changed or the files
    do not fit together.
    """
    known = credentials.read()

    def look() -> grpc.ServerCertificateConfiguration | None:
        """Return the configuration of new files, or None to keep the present one."""
        nonlocal known
        try:
            found = credentials.read()
            if found == known:
                return None
            check_tls_files("hub", *found)
        except (InvalidInput, Exhausted):
            # The files are being written at this moment, are wrong, or no descriptor is left: the
            # old ones stay in use, and `hub run` and `hub status` say what is wrong.
            return None
        known = found
        return _tls_configuration(found)

    return look


def _decode_common_name(common: bytes) -> str:
    """Return a certificate's common name as text; raises :class:`Refused` if it is not UTF-8."""
    try:
        return common.decode()
    except UnicodeDecodeError:
        raise Refused("certificate: its common name is not text") from None


def grpc_target(address: str, field: str = "hub") -> str:
    """Return an address in gRPC's form; a numeric one is marked so that no name is looked up.

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
    """Return a connection to the hub at ``HOST:PORT`` with mutual TLS.

    Parameters
    ----------
    address : str
    authority, certificate, key : bytes
        In PEM; the last two are the site's.
    carries : tuple
        Options for the longest messages, from :func:`_message_length_options`.
    """
    require_grpc()
    import grpc

    secure = grpc.ssl_channel_credentials(authority, key, certificate)
    return grpc.secure_channel(grpc_target(address), secure, options=[*_OPTIONS, *carries])


def request_certificate_and_plan(
    address: str,
    own: tuple[bytes, bytes, bytes],
    tell: Callable[[str], None],
    every: float = 60.0,
    patience: float = math.inf,
) -> tuple[bytes, bytes]:
    """Ask the hub for a site's certificate and the plan's file, and wait until it gives both.

    Parameters
    ----------
    address : str
        ``HOST:PORT`` of the hub.
    own : (bytes, bytes, bytes)
        Authority, certificate and key in PEM, of the site or of its invitation.
    tell : callable ``(line)``
        Called when the reason for waiting changes.
    every : float
        Seconds after which the same line is repeated.
    patience : float
        Seconds without these files after which it gives up.

    Returns
    -------
    certificate, plan : bytes
        The contents of the files.

    Raises
    ------
    Refused
        If the hub refuses the request.
    Unreachable
        If the hub did not give both for `patience` seconds.
    """
    # before gRPC is imported: it reads once how much to say
    require_grpc()
    import grpc

    # the last reason that was told, and when
    told: tuple[str, float] | None = None
    until = time.monotonic() + patience
    with _secure_channel(address, *own, _message_length_options(2**12, _WELCOME)) as channel:
        call = channel.unary_unary(f"/{SERVICE}/{WELCOME}")
        while True:
            try:
                found = requests.parse_request(call(b"{}", timeout=SLACK), _WELCOME, OTHER_VERSION)
                certificate, plan = found.get("certificate"), found.get("plan")
                if isinstance(certificate, str) and isinstance(plan, str):
                    return certificate.encode(), plan.encode()
                why = "it has no plan yet"
                if not isinstance(certificate, str):
                    why = (
                        "it has not admitted this site: its operator runs `hub run --admit` or "
                        "`hub admit`"
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
            if now >= until:
                raise Unreachable(f"hub={address!r}: gave no plan: {why}")
            if told is None or told[0] != why or now - told[1] >= every:
                told = why, now
                tell(f"waits for the hub at {address}: {why}")
            time.sleep(1.0)


def _reason_of_silence(code: grpc.StatusCode, details: str) -> str:
    """Return in words why a request got no reply and is repeated, from gRPC's status."""
    import grpc

    if details.startswith(WAITS):
        return details.removeprefix(WAITS)
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
    credentials : Credentials
        The site's TLS files.
    plan : Plan
        Its size bounds the length of messages.
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
        """Carry one request to the hub, and repeat it until the hub replies.

        Parameters and exceptions as :meth:`RequestTransport.send_request`.
        """
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
