"""Certificates and authorities end, follow each other and are revoked, while a hub runs."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sites_in_tests import Consortium

from sottovoce.cli import main
from sottovoce.deploy import certificates
from sottovoce.deploy.certificates import Authority, check_tls_files, is_revoked, last_usable_time
from sottovoce.deploy.hub import Hub
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.plan_file import write_plan_file
from sottovoce.deploy.relay import Credentials, RelayTransport, start_relay
from sottovoce.errors import InvalidInput, Refused, Unreachable

pytest.importorskip("grpc")
pytest.importorskip("cryptography")


def call(*words: object) -> None:
    main([str(word) for word in words])


@pytest.fixture
def folder(sites: Consortium, tmp_path: Path) -> Path:
    """A hub's folder, with the plan."""
    call("hub", "init", tmp_path / "hub", "--host", "127.0.0.1")
    write_plan_file(sites.plan, tmp_path / "hub/plan.json")
    return tmp_path / "hub"


def join(folder: Path, name: str) -> Path:
    """A site's folder, with the hub's present ca.crt and a certificate signed now."""
    home = folder.parent / name
    if not home.exists():
        home.mkdir()
        certificates.write_certificate_request(home, name)
        call("hub", "admit", folder, home / f"{name}.csr")
        (folder / f"{name}.crt").replace(home / f"{name}.crt")
        (folder / f"{name}.crt").write_bytes((home / f"{name}.crt").read_bytes())
    (home / "ca.crt").write_bytes((folder / "ca.crt").read_bytes())
    return home


@contextmanager
def running(sites: Consortium, folder: Path) -> Iterator[int]:
    credentials = Credentials(*(folder / f for f in ("ca.crt", "hub.crt", "hub.key")))
    with HubLog(folder / "hub.log") as log:
        server, port = start_relay(
            Hub(sites.plan, log),
            credentials,
            "127.0.0.1:0",
            revoked=lambda pem: is_revoked(folder, pem),
        )
        try:
            yield port
        finally:
            server.stop(0).wait()


def highest(sites: Consortium, home: Path, port: int, patience: float = 5.0) -> int:
    """What a site with the files in `home` is told, over a new connection."""
    own = Credentials(*(home / f for f in ("ca.crt", f"{home.name}.crt", f"{home.name}.key")))
    with RelayTransport(f"127.0.0.1:{port}", own, sites.plan, patience) as transport:
        return transport.highest_stored_round(sites.plan.digest)


def served(home: Path, port: int) -> bytes:
    """The certificate that a hub shows."""
    context = ssl.create_default_context(cafile=str(home / "ca.crt"))
    context.check_hostname = False
    context.load_cert_chain(home / f"{home.name}.crt", home / f"{home.name}.key")
    with (
        socket.create_connection(("127.0.0.1", port), 5.0) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        return secure.getpeercert(binary_form=True) or b""


def test_a_certificate_never_outlives_its_authority(tmp_path: Path) -> None:
    now = datetime.now(UTC)

    def made(until: datetime) -> Authority:
        key = certificates._generate_tls_key()
        name = certificates._common_name("old")
        builder = certificates._certificate_builder(name, name, key.public_key(), until)
        return Authority(certificates._sign_certificate(builder, key), key)

    soon = made(now + timedelta(days=25))
    certificates.write_certificate_request(tmp_path, "north")
    request = (tmp_path / "north.csr").read_bytes()
    (tmp_path / "ca.crt").write_bytes(certificates._to_pem(soon.certificate))
    (tmp_path / "north.crt").write_bytes(soon.sign_site_request(request)[1])
    assert (
        last_usable_time(tmp_path / "ca.crt", tmp_path / "north.crt")
        == soon.certificate.not_valid_after_utc
    )
    assert (
        certificates.certificate_expiry(tmp_path / "north.crt")
        == soon.certificate.not_valid_after_utc
    )
    over = made(now - timedelta(minutes=1))
    with pytest.raises(InvalidInput, match="hub renew --authority"):
        over.sign_site_request(request)
    # one that was signed before it was held to this: good for itself for years, and of an authority
    # that has ended
    builder = certificates._certificate_builder(
        certificates._common_name("north"),
        over.certificate.subject,
        certificates.x509.load_pem_x509_csr(request).public_key(),
    )
    late = certificates._to_pem(
        over._sign_leaf_certificate(builder, certificates.x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH)
    )
    with pytest.raises(InvalidInput, match="authority that expired"):
        check_tls_files(
            "north",
            certificates._to_pem(over.certificate),
            late,
            (tmp_path / "north.key").read_bytes(),
        )
    (tmp_path / "late.crt").write_bytes(late)
    (tmp_path / "ca.crt").write_bytes(certificates._to_pem(over.certificate))
    assert (
        last_usable_time(tmp_path / "ca.crt", tmp_path / "late.crt")
        == over.certificate.not_valid_after_utc
    )


def test_a_hub_that_runs_takes_its_new_certificate(
    sites: Consortium, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    north = join(folder, "north")
    with running(sites, folder) as port:
        before = served(north, port)
        assert highest(sites, north, port) == 0
        call("hub", "renew", folder)
        assert "takes it" in capsys.readouterr().out
        assert served(north, port) != before and highest(sites, north, port) == 0
        renewed = served(north, port)
        # another process is writing it: what was good stays
        (folder / "hub.crt").write_bytes(b"half writ")
        assert served(north, port) == renewed and highest(sites, north, port) == 0
    assert (folder / "hub.key").stat().st_mode & 0o077 == 0


def test_one_authority_follows_another_step_by_step(sites: Consortium, folder: Path) -> None:
    old, first = join(folder, "north"), Authority.read(folder)
    with running(sites, folder) as port:
        call("hub", "renew", folder, "--authority")
        second = Authority.read(folder)
        assert second.certificate.subject != first.certificate.subject
        assert highest(sites, old, port) == 0  # a site that knows nothing of it
        new = join(folder, "east")  # a site that was admitted by the new authority, and knows both
        assert highest(sites, new, port) == 0
        with pytest.raises(SystemExit):  # too early: the hub would cut off itself
            call("hub", "renew", folder, "--forget")
        join(folder, "north")  # north has the new ca.crt, and still its old certificate
        call("hub", "renew", folder)
        assert second.signed((folder / "hub.crt").read_bytes())
        assert highest(sites, old, port) == 0 == highest(sites, new, port)
        call("hub", "renew", folder, "--forget")
        assert highest(sites, new, port) == 0
        with pytest.raises(Unreachable):
            highest(sites, old, port, 1.0)
    assert (folder / "ca.crt").read_bytes().count(b"BEGIN CERTIFICATE") == 1


def test_site_without_new_authority_is_disconnected(sites: Consortium, folder: Path) -> None:
    old = join(folder, "north")
    call("hub", "renew", folder, "--authority")
    call("hub", "renew", folder)
    with running(sites, folder) as port, pytest.raises(Unreachable):
        highest(sites, old, port, 1.0)


def test_revoked_certificates_are_refused_at_once_and_the_name_is_free(
    sites: Consortium, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    north, east = join(folder, "north"), join(folder, "east")
    with running(sites, folder) as port:
        assert highest(sites, north, port) == 0 == highest(sites, east, port)
        call("hub", "revoke", folder, "north")
        assert "hub/north.crt" in capsys.readouterr().out and not (folder / "north.crt").exists()
        with pytest.raises(Refused, match="was revoked"):
            highest(sites, north, port)
        assert highest(sites, east, port) == 0
        time.sleep(1.1)  # certificates know seconds
        stolen = north.rename(north.with_name("stolen"))
        again = join(folder, "north")
        assert highest(sites, again, port) == 0
        (stolen / "north.crt").replace(again / "north.crt")
        (stolen / "north.key").replace(again / "north.key")
        with pytest.raises(Refused, match="was revoked"):
            highest(sites, again, port)
        with pytest.raises(SystemExit):
            call("hub", "revoke", folder.parent, "west")  # no hub's folder
        (folder / "revoked.json").write_text("[")  # nobody is let in by a list that cannot be read
        with pytest.raises(Unreachable):
            highest(sites, east, port, 1.0)


def test_a_site_is_revoked_by_name_where_the_hub_has_lost_its_files(
    sites: Consortium, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    north = join(folder, "north")
    (folder / "north.crt").unlink()
    call("hub", "revoke", folder, "north")
    assert "check the name" in capsys.readouterr().out
    assert is_revoked(folder, (north / "north.crt").read_bytes())
    time.sleep(1.1)  # certificates know seconds
    north.rename(north.with_name("stolen"))
    assert not is_revoked(folder, (join(folder, "north") / "north.crt").read_bytes())


def test_an_invitation_is_revoked_with_its_site(sites: Consortium, folder: Path) -> None:
    certificate, key = Authority.read(folder).make_invitation_certificate("west")
    (folder / "west.invite").write_text("{}")
    assert not is_revoked(folder, certificate) and key
    call("hub", "revoke", folder, "west")
    assert is_revoked(folder, certificate) and not (folder / "west.invite").exists()


def test_a_tls_key_may_have_a_passphrase(
    sites: Consortium, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a site and of the hub, in a file that the environment names."""
    north = join(folder, "north")
    serialization = certificates.serialization
    for path in (north / "north.key", folder / "hub.key"):
        key = serialization.load_pem_private_key(path.read_bytes(), None)
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        path.write_bytes(key.private_bytes(*form, serialization.BestAvailableEncryption(b"s3")))
    with pytest.raises(InvalidInput, match="TLS key is encrypted"), running(sites, folder):
        pass
    monkeypatch.setenv(certificates.PASSPHRASE_FILE, str(tmp_path / "passphrase"))
    (tmp_path / "passphrase").write_text("s4\n")
    with pytest.raises(InvalidInput, match="does not open"), running(sites, folder):
        pass
    (tmp_path / "passphrase").write_text("s3\n")
    with running(sites, folder) as port:
        assert highest(sites, north, port) == 0
