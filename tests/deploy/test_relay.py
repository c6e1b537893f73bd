"""The relay: mutual TLS, who may say what, what the wire shows, and hubs that come back."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import string
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from relay_in_tests import certify, credentials, relay, transport
from sites_in_tests import NAMES, Consortium

from sottovoce.deploy import certificates, run_sites
from sottovoce.deploy.demonstration import find_free_port
from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.relay import SERVICE, Credentials, RelayTransport, start_relay
from sottovoce.errors import InvalidInput, Refused, TransportClosed, Unreachable
from sottovoce.util.plain import canonical_json

ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
grpc = pytest.importorskip("grpc")
pytest.importorskip("cryptography")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    certify(tmp_path / "tls", NAMES)
    return tmp_path / "tls"


@pytest.fixture
def hub(sites: Consortium, folder: Path) -> Iterator[tuple[str, HubLog]]:
    with relay(sites, folder) as running:
        yield running


def test_the_relay_carries_a_run(sites: Consortium, folder: Path, hub: tuple[str, HubLog]) -> None:
    ends = sites.run(lambda name: transport(sites, folder, hub[0], name))
    twin = run_sites(sites.plan.config, sites.rows)
    for i, name in enumerate(NAMES):
        np.testing.assert_array_equal(ends[name].model, twin[i][0].state.f)
    assert Hub(sites.plan, hub[1]).gone() == dict.fromkeys(sorted(NAMES), "done")


def strangers(folder: Path, other: Path) -> dict[str, Callable[[], grpc.ChannelCredentials]]:
    certify(other, ("north",))
    authority = (folder / "ca.crt").read_bytes()
    key, own = (other / "north.key").read_bytes(), (other / "north.crt").read_bytes()
    return {
        "no certificate": lambda: grpc.ssl_channel_credentials(authority),
        "a certificate of another authority": lambda: grpc.ssl_channel_credentials(
            authority, key, own
        ),
        "a self-signed certificate": lambda: grpc.ssl_channel_credentials(
            authority, *self_signed("north")
        ),
        "no TLS": lambda: grpc.experimental.insecure_channel_credentials(),
    }


def self_signed(name: str) -> tuple[bytes, bytes]:
    key, subject = certificates._generate_tls_key(), certificates._common_name(name)
    builder = certificates._certificate_builder(subject, subject, key.public_key())
    return certificates.private_key_to_pem(key), certificates._to_pem(
        certificates._sign_certificate(builder, key)
    )


def test_unknown_certificates_get_no_answer(
    sites: Consortium, folder: Path, hub: tuple[str, HubLog], tmp_path: Path
) -> None:
    body = json.dumps({"run": "trial"}).encode()
    for name, credentials_of in strangers(folder, tmp_path / "other").items():
        with grpc.secure_channel(f"ipv4:{hub[0]}", credentials_of()) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(f"/{SERVICE}/highest")(body, timeout=5.0)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE, name
    with transport(sites, folder, hub[0], "north") as known:
        assert known.highest_stored_round(sites.plan.digest) == 0
    assert hub[1].messages("trial") == {}


def test_a_stranger_is_told_after_its_patience(
    sites: Consortium, folder: Path, hub: tuple[str, HubLog], tmp_path: Path
) -> None:
    certify(tmp_path / "other", ("north",))
    theirs = credentials(tmp_path / "other", "north", authority=folder)
    with (
        RelayTransport(hub[0], theirs, sites.plan, patience=0.2) as stranger,
        pytest.raises(Unreachable, match="the other's certificate"),
    ):
        stranger.highest_stored_round(sites.plan.digest)


def test_a_site_cannot_stand_in_for_the_hub(
    sites: Consortium, folder: Path, tmp_path: Path
) -> None:
    with HubLog(tmp_path / "false.log") as log:
        server, port = start_relay(Hub(sites.plan, log), credentials(folder, "east"), "127.0.0.1:0")
        try:
            with (
                transport(sites, folder, f"127.0.0.1:{port}", "north", 0.2) as victim,
                pytest.raises(Unreachable),
            ):
                victim.highest_stored_round(sites.plan.digest)
        finally:
            server.stop(0).wait()


def test_a_valid_certificate_speaks_for_its_own_name_only(
    sites: Consortium, folder: Path, hub: tuple[str, HubLog]
) -> None:
    with transport(sites, folder, hub[0], "east") as east:
        with pytest.raises(Refused, match="names another sender"):
            east.exchange(0, sites.sealed("north", 0))
        other = replace(sites.plan, run="elsewhere")
        with (
            RelayTransport(hub[0], credentials(folder, "east"), other, 1.0) as elsewhere,
            pytest.raises(Refused, match="run: "),
        ):
            elsewhere.highest_stored_round(sites.plan.digest)
    assert hub[1].messages("trial") == {}


def test_a_certificate_of_no_site_of_the_plan_is_refused(
    sites: Consortium, folder: Path, hub: tuple[str, HubLog], tmp_path: Path
) -> None:
    certify(tmp_path / "more", ("guest",), authority=folder)
    guest = RelayTransport(
        hub[0], credentials(tmp_path / "more", "guest", authority=folder), sites.plan, 1.0
    )
    with guest, pytest.raises(Refused, match="not a site"):
        guest.highest_stored_round(sites.plan.digest)


def forged(data: bytes) -> bytes:
    """Another vector under the same signature."""
    payload = base64.b64encode(np.full(4, 0.5).tobytes()).decode()
    return canonical_json(json.loads(data) | {"payload": payload}).encode()


def otherwise(data: bytes) -> list[bytes]:
    """The same message, well signed, in other bytes."""
    body = json.loads(data)
    last = body["sig"][-3]  # its two lowest bits carry nothing
    alike = body["sig"][:-3] + ALPHABET[ALPHABET.index(last) ^ 1] + "=="
    assert base64.b64decode(alike) == base64.b64decode(body["sig"]) and alike != body["sig"]
    turned = dict(reversed(body.items()))
    return [
        json.dumps(body).encode(),
        json.dumps(turned, separators=(",", ":")).encode(),
        b"\xef\xbb\xbf" + data,
        data[:-1] + b',"v":1}',
        canonical_json(body | {"sig": alike}).encode(),
    ]


def test_hub_stores_only_valid_messages(
    sites: Consortium, folder: Path, hub: tuple[str, HubLog]
) -> None:
    north = transport(sites, folder, hub[0], "north")
    for name in NAMES:
        hub[1].store_message("trial", 0, name, sites.sealed(name, 0))
    one, huge = np.ones(4), np.full(4, 1e150)
    with north:
        for message, match in (
            (sites.sealed("north", 2, one), "of another round"),
            (forged(sites.sealed("north", 1, one)), "not signed by 'north'"),
            (sites.sealed("north", 1, [np.nan, 0, 0, 0]), "NaN or infinite"),
            (sites.sealed("north", 1, [np.inf, 0, 0, 0]), "NaN or infinite"),
            (sites.sealed("north", 1, huge), "payload: its norm"),
            (sites.sealed("north", 1, np.ones(5)), "shape"),
            (sites.sealed("north", 1, np.ones(300)), "more than any message|too long"),
            (sites.sealed("north", 1, np.zeros(0), "hello"), "is not allowed here"),
            (b"\x80\x04K\x01.", "schema|version"),  # a pickle
            (b"[" * 900, "another form"),
            *((other, "another form") for other in otherwise(sites.sealed("north", 1, one))),
        ):
            with pytest.raises(Refused, match=match):
                north.exchange(1, message.decode("latin-1").encode("ascii", "replace"))
        with pytest.raises(Refused, match=r"order; .*round 1$"):
            north.exchange(2, sites.sealed("north", 2, one))
        hub[1].store_message("trial", 1, "north", sites.sealed("north", 1, one))
        with pytest.raises(Refused, match="another message"):
            north.exchange(1, sites.sealed("north", 1, 2 * one))
        with pytest.raises(Refused, match="of another round"):  # replayed
            north.exchange(2, sites.sealed("north", 1, one))
        assert north.highest_stored_round(sites.plan.digest) == 1
    assert len(hub[1].messages("trial")) == 4


class Lying(LocalTransport):
    """A hub that changes what it hands on."""

    def __init__(
        self, hub: Hub, name: str, change: Callable[[int, dict[str, bytes]], dict[str, bytes]]
    ) -> None:
        super().__init__(hub, name)
        self._change = change

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        return self._change(round, super().exchange(round, message))


LIES: dict[str, tuple[Callable[[Consortium, dict[str, bytes]], dict[str, bytes]], str]] = {
    "forged": (lambda s, inbox: inbox | {"east": forged(inbox["east"])}, "not signed by 'east'"),
    "replayed": (lambda s, inbox: inbox | {"east": s.sealed("east", 1)}, "of another round"),
    "swapped": (lambda s, inbox: inbox | {"east": inbox["south"]}, "another sender"),
    "dropped": (lambda s, inbox: {"south": inbox["south"]}, "no message of the neighbour 'east'"),
    "nan": (
        lambda s, inbox: inbox | {"east": s.sealed("east", 2, np.full(4, np.nan))},
        "NaN or infinite",
    ),
    "huge": (
        lambda s, inbox: inbox | {"east": s.sealed("east", 2, np.full(4, 1e300))},
        "plan's cap",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_site_refuses_forged_inbox(sites: Consortium, tmp_path: Path, lie: str) -> None:
    change, match = LIES[lie]
    with HubLog(tmp_path / "hub.log") as log, ThreadPoolExecutor(2) as pool:
        honest = Hub(sites.plan, log)
        others = [
            pool.submit(sites.run_site, name, LocalTransport(honest, name)) for name in NAMES[1:]
        ]
        liar = Lying(honest, "north", lambda k, inbox: change(sites, inbox) if k == 2 else inbox)
        with pytest.raises(Refused, match=match):
            sites.run_site("north", liar)
        with sites.ledger("north") as ledger:
            assert len(ledger.rows) == 2  # nothing was released under that inbox
        # and with the true one the run goes on
        sites.run_site("north", LocalTransport(honest, "north"))
        assert [other.result().outcome.rounds for other in others] == [4, 4]


def test_a_site_that_leaves_ends_the_run_of_its_neighbours(
    sites: Consortium, folder: Path, hub: tuple[str, HubLog]
) -> None:
    farewell = sites.farewell("east", 0)

    def greet(name: str) -> dict[str, bytes]:
        with transport(sites, folder, hub[0], name) as way:
            return way.exchange(0, sites.sealed(name, 0))

    with transport(sites, folder, hub[0], "east") as east, ThreadPoolExecutor(2) as pool:
        east.send_farewell(farewell)
        assert {
            name: heard["east"]
            for name, heard in zip(NAMES[::2], pool.map(greet, NAMES[::2]), strict=True)
        } == {
            "north": farewell,
            "south": farewell,
        }
        with pytest.raises(TransportClosed, match="without 'east'"):
            east.exchange(0, sites.sealed("east", 0))


def test_sites_wait_for_a_hub_that_comes_back(sites: Consortium, folder: Path) -> None:
    port = find_free_port()
    began = threading.Event()

    def watch(k: int, state: object) -> None:
        if k == 2:
            began.set()
            assert back.wait(30.0)

    back = threading.Event()
    with ThreadPoolExecutor(3) as pool:
        with relay(sites, folder, port) as (address, _):
            jobs = [
                pool.submit(
                    sites.run_site, name, transport(sites, folder, address, name), observers=[watch]
                )
                for name in NAMES
            ]
            assert began.wait(30.0)
        back.set()
        with relay(sites, folder, port) as (_, log):
            assert [job.result().outcome.rounds for job in jobs] == [4, 4, 4]
            assert len(log.messages("trial")) == 18


def test_sites_wait_for_a_hub_whose_disk_is_full(sites: Consortium, folder: Path) -> None:
    told: list[tuple[str, str]] = []
    refused: list[tuple[str, str]] = []
    full = threading.Event()

    def failed(site: str, why: str) -> None:
        told.append((site, why))
        full.set()

    with HubLog(folder / "hub.log") as log, ThreadPoolExecutor(3) as pool:
        pages = log.file.db.execute("PRAGMA page_count").fetchone()[0]
        log.file.db.execute(f"PRAGMA max_page_count = {pages}")
        server, port = start_relay(
            Hub(sites.plan, log),
            credentials(folder, "hub"),
            "127.0.0.1:0",
            lambda *said: refused.append(said),
            failed,
        )
        doors = {name: transport(sites, folder, f"127.0.0.1:{port}", name) for name in NAMES}
        jobs = [pool.submit(sites.run_site, name, doors[name]) for name in NAMES]
        assert full.wait(30.0)
        log.file.db.execute("PRAGMA max_page_count = 100000")
        assert [job.result().outcome.rounds for job in jobs] == [4, 4, 4]
        server.stop(0.2).wait()
    (said,) = {why for _, why in told}
    assert not refused  # it is no fault of theirs
    assert "hub.log'" in said and "disk is full" in said


def test_absent_hub_is_unreachable_after_patience(sites: Consortium, folder: Path) -> None:
    with (
        transport(sites, folder, f"127.0.0.1:{find_free_port()}", "north", 0.2) as north,
        pytest.raises(Unreachable),
    ):
        north.highest_stored_round(sites.plan.digest)
    with pytest.raises(InvalidInput, match="HOST:PORT"):
        transport(sites, folder, "nowhere", "north")
    missing = Credentials(folder / "ca.crt", folder / "none.crt", folder / "none.key")
    with pytest.raises(InvalidInput, match="No such file"):
        RelayTransport("127.0.0.1:1", missing, sites.plan)


class Recorder:
    """Stands between sites and hub, hands on every byte, and keeps a copy."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self._to, self.streams = (host, int(port)), list[bytearray]()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._open = [self._server]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.socket()  # create_connection would ask the resolver
                self._open += [near, far]
                far.connect(self._to)
                for one, other in ((near, far), (far, near)):
                    self.streams.append(kept := bytearray())
                    self._threads.append(
                        threading.Thread(target=self._copy, args=(one, other, kept))
                    )
                    self._threads[-1].start()

    @staticmethod
    def _copy(one: socket.socket, other: socket.socket, kept: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65_536):
                kept += data
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # ends accept
        self._threads[0].join()
        for one in self._open[1:]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        for one in self._open:
            one.close()


def test_the_wire_shows_nothing_but_tls_and_no_name_is_looked_up(
    sites: Consortium, folder: Path, hub: tuple[str, HubLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(*arguments: object, **_: object) -> None:
        raise AssertionError(f"looked up {arguments[0]!r}")

    recorder = Recorder(hub[0])
    try:
        for name in (
            "getaddrinfo",
            "gethostbyname",
            "gethostbyname_ex",
            "getnameinfo",
            "gethostbyaddr",
        ):
            monkeypatch.setattr(socket, name, look_up)
        ends = sites.run(lambda name: transport(sites, folder, recorder.address, name))
        assert {end.outcome.rounds for end in ends.values()} == {4}
    finally:
        recorder.close()
    assert len(recorder.streams) >= 6 and sum(map(len, recorder.streams)) > 10_000
    for stream in recorder.streams:
        at = 0
        while at + 5 <= len(stream):
            kind, version, size = (
                stream[at],
                stream[at + 1],
                int.from_bytes(stream[at + 3 : at + 5], "big"),
            )
            assert 0x14 <= kind <= 0x17 and version == 3 and size <= 2**14 + 256
            at += 5 + size
    everything = b"".join(recorder.streams)
    for secret in (b"payload", b"release", b"sottovoce.Relay", sites.plan.digest.encode()):
        assert secret not in everything


def test_authority_signs_only_requests_with_valid_names(folder: Path, tmp_path: Path) -> None:
    authority = certificates.Authority.read(folder)
    with pytest.raises(InvalidInput, match=r"^request: "):
        authority.sign_site_request(b"anything")
    certificates.write_certificate_request(tmp_path, "west")
    with pytest.raises(InvalidInput, match="never overwritten"):
        certificates.write_certificate_request(tmp_path, "west")
    name, certificate = authority.sign_site_request((tmp_path / "west.csr").read_bytes())
    assert name == "west"
    (tmp_path / "west.crt").write_bytes(certificate)
    assert certificates.certificate_expiry(tmp_path / "west.crt").year >= 2026
    assert (tmp_path / "west.key").stat().st_mode & 0o077 == 0
    with pytest.raises(InvalidInput, match="letters"):
        certificates.write_certificate_request(tmp_path, "no/name")
    with pytest.raises(InvalidInput, match="holds no certificate"):
        certificates.Authority.read(tmp_path)


def test_internal_hub_error_is_retried_by_site(
    sites: Consortium,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of whatever class: the site is told that the hub cannot work, asks again, and goes on when
    the hub can.
    """
    errors = [
        KeyError("north"),
        ValueError("x"),
        TypeError("x"),
        RuntimeError("x"),
        AssertionError(),
    ]
    refused, failed, left = list[tuple[str, str]](), list[tuple[str, str]](), list(errors)
    exchange = Hub.exchange

    def broken(self: Hub, site: str, *rest: Any) -> Any:
        if site == "north" and left:
            raise left.pop()
        return exchange(self, site, *rest)

    monkeypatch.setattr(Hub, "exchange", broken)
    with HubLog(folder / "hub.log") as log, ThreadPoolExecutor(3) as pool:
        server, port = start_relay(
            Hub(sites.plan, log),
            credentials(folder, "hub"),
            "127.0.0.1:0",
            lambda *said: refused.append(said),
            lambda *said: failed.append(said),
        )
        doors = {name: transport(sites, folder, f"127.0.0.1:{port}", name) for name in NAMES}
        jobs = [pool.submit(sites.run_site, name, doors[name]) for name in NAMES]
        assert [job.result().outcome.rounds for job in jobs] == [4, 4, 4]
        server.stop(0.2).wait()
    assert refused == [] and {site for site, _ in failed} == {"north"}
    assert [why.partition(":")[0] for _, why in failed] == [
        type(error).__name__ for error in reversed(errors)
    ]
    assert len(caplog.records) == len(errors) and all(record.exc_info for record in caplog.records)


def test_permanently_broken_hub_is_unreachable(
    sites: Consortium, folder: Path, hub: tuple[str, HubLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("north")

    monkeypatch.setattr(Hub, "highest_round_of", broken)
    said = r"no answer for 0\.3 s: the hub cannot work; its operator sees why"
    with (
        transport(sites, folder, hub[0], "north", 0.3) as north,
        pytest.raises(Unreachable, match=said),
    ):
        north.highest_stored_round(sites.plan.digest)


@pytest.mark.parametrize(
    ("method", "asked"),
    [
        ("highest", {}),
        ("highest", {"plan": 7}),
        ("highest", {"run": None}),
        ("exchange", {"round": "1"}),
        ("exchange", {"round": True, "message": ""}),
        ("exchange", {"round": 1}),
        ("exchange", {"round": 1, "message": "\u00fc"}),
        ("inquire", {"question": "", "enough": 1.0}),
        ("answer", {"asker": []}),
        ("leave", {}),
        ("exchange", {"round": 2**63, "message": ""}),
    ],
)
def test_invalid_request_is_refused_as_error_of_site(
    sites: Consortium, folder: Path, hub: tuple[str, HubLog], method: str, asked: dict[str, Any]
) -> None:
    with (
        transport(sites, folder, hub[0], "north") as north,
        pytest.raises(Refused, match=r"request: .* version"),
    ):
        north.send_request(method, {"run": "trial"} | asked)


def test_a_site_with_hundreds_of_open_requests_takes_nothing_from_the_others(
    sites: Consortium, folder: Path, hub: tuple[str, HubLog]
) -> None:
    """North asks 120 times at once and waits; the others greet, and get answers as if it did
    not.
    """
    body = json.dumps(
        {"run": "trial", "round": 0, "message": sites.sealed("north", 0).decode()}
    ).encode()
    names = ("ca.crt", "north.key", "north.crt")
    secure = grpc.ssl_channel_credentials(*((folder / name).read_bytes() for name in names))
    with grpc.secure_channel(hub[0], secure) as channel:
        call = channel.unary_unary("/sottovoce.Relay/exchange")
        waiting = [call.future(body, timeout=60.0) for _ in range(120)]
        quick = [one.result() for one in waiting[-1:]]
        assert json.loads(quick[0])["inbox"] is None
        time.sleep(0.5)
        assert sum(not one.done() for one in waiting) <= 2
        with transport(sites, folder, hub[0], "east", 5.0) as east:
            assert east.highest_stored_round(sites.plan.digest) == 0
        for one in waiting:
            one.cancel()


def test_refusals_are_reported_at_limited_rate() -> None:
    from sottovoce.deploy.relay import LINES, _News

    clock = [0.0]
    news = _News(lambda: clock[0])
    assert news.line_to_report("north", "a") == "a" and news.line_to_report("north", "a") is None
    lines = [news.line_to_report("north", f"round={k}") for k in range(2_000)]
    assert sum(line is not None for line in lines) == LINES - 1
    assert news.line_to_report("east", "b") == "b"  # the others' are told
    clock[0] = 61.0
    line = news.line_to_report("north", "c")
    assert line is not None and line.startswith(f"c (and {2_000 - LINES + 1:,} others")
    assert news.line_to_report("north", "d") == "d"
