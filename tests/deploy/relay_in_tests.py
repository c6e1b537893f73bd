"""A relay on loopback with certificates of its own, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sites_in_tests import Consortium

from sottovoce.deploy import certificates
from sottovoce.deploy.hub import Hub
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.relay import Credentials, RelayTransport, start_relay


def certify(folder: Path, names: tuple[str, ...], authority: Path | None = None) -> None:
    """An authority, a hub's certificate for loopback, and one for every site."""
    folder.mkdir(parents=True, exist_ok=True)
    own = (
        certificates.Authority.make(folder)
        if authority is None
        else certificates.Authority.read(authority)
    )
    if authority is None:
        own.write_hub_certificate(folder, ["127.0.0.1"])
    for name in names:
        certificates.write_certificate_request(folder, name)
        (folder / f"{name}.crt").write_bytes(
            own.sign_site_request((folder / f"{name}.csr").read_bytes())[1]
        )


def credentials(folder: Path, name: str, authority: Path | None = None) -> Credentials:
    return Credentials(
        (authority or folder) / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key"
    )


@contextmanager
def relay(sites: Consortium, folder: Path, port: int = 0) -> Iterator[tuple[str, HubLog]]:
    """A hub that serves; yields its address and log."""
    with HubLog(folder / "hub.log") as log:
        server, port = start_relay(
            Hub(sites.plan, log), credentials(folder, "hub"), f"127.0.0.1:{port}"
        )
        try:
            yield f"127.0.0.1:{port}", log
        finally:
            log.close()
            server.stop(0.2).wait()


def transport(
    sites: Consortium, folder: Path, address: str, name: str, patience: float = 20.0
) -> RelayTransport:
    return RelayTransport(address, credentials(folder, name), sites.plan, patience)
