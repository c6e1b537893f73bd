"""Certificates for a hub and its sites, from one authority for each run or consortium.

A site's key never leaves the site: the site makes a request, which the hub's authority signs.  A site's certificate is
valid for a client only and the hub's for a server only, so no site can pose as the hub.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InvalidInput
from ..util.files import read
from .crypto import ec, exceptions, hashes, need_cryptography, private_pem, serialization, x509
from .files import KEY, together, write_new
from .names import check_name

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes


DAYS = 825
"""Life of a certificate; 825 days is the longest that common clients accept."""
INVITED = "invitation of "
"""Begins the common name of a certificate in an invitation; no site's name has a space."""
_HOST = re.compile(r"[A-Za-z0-9_](-*[A-Za-z0-9_])*(\.[A-Za-z0-9_](-*[A-Za-z0-9_])*)*")
_SKEW = timedelta(hours=1)


@dataclass(frozen=True)
class Authority:
    """A certificate authority in the files ``ca.crt`` and ``ca.key``."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, folder: Path, name: str = "sottovoce") -> Authority:
        """Write a new authority to `folder`."""
        need_cryptography()
        key, subject = _new_key(), _name(f"{name} authority")
        builder = _builder(subject, subject, key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        builder = builder.add_extension(_usage(sign=False), critical=True)
        authority = cls(_signed(builder, key), key)
        _write(folder, "ca", private_pem(key), ".crt", _pem(authority.certificate))
        return authority

    @classmethod
    def read(cls, folder: Path) -> Authority:
        """Read the authority in `folder`; raises :class:`InvalidInput` if there is none."""
        need_cryptography()
        files = folder / "ca.crt", folder / "ca.key"
        if not all(file.is_file() for file in files):
            raise InvalidInput("folder", str(folder), "holds no authority", "make one with `sottovoce hub init`")
        pem, secret = (read("folder", file, KEY) for file in files)
        try:
            certificate, key = x509.load_pem_x509_certificate(pem), serialization.load_pem_private_key(secret, None)
            if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
                raise ValueError
        except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
            rule = "holds no authority: ca.crt and ca.key cannot be read, or do not belong together"
            raise InvalidInput("folder", str(folder), rule, "make one with `sottovoce hub init`") from None
        return cls(certificate, key)

    def serve(self, folder: Path, hosts: Sequence[str]) -> None:
        """Write ``hub.key`` and ``hub.crt``, valid for these host names and addresses."""
        key = _new_key()
        builder = _builder(_name("hub"), self.certificate.subject, key.public_key())
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(h) for h in hosts]), critical=False)
        certificate = self._leaf(builder, x509.oid.ExtendedKeyUsageOID.SERVER_AUTH)
        _write(folder, "hub", private_pem(key), ".crt", _pem(certificate))

    def admit(self, request: bytes) -> tuple[str, bytes]:
        """Sign a site's request; returns the site's name and the certificate.

        Raises :class:`InvalidInput` if it is no valid request, or its name is not allowed for a site.
        """
        try:  # what is wrong inside a request may show when a part of it is looked at
            asked = x509.load_pem_x509_csr(request)
            names = _names(asked.subject) if asked.is_signature_valid else []
            public = asked.public_key()
        except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
            names = []
        if len(names) != 1:
            raise InvalidInput("request", None, "is no certificate request", "use the one that `site init` wrote")
        check_name("request", names[0])
        builder = _builder(_name(names[0]), self.certificate.subject, public)
        return names[0], _pem(self._leaf(builder, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH))

    def invite(self, name: str) -> tuple[bytes, bytes]:
        """A certificate and its key for a site's invitation: they open what is public, and nothing else."""
        key = _new_key()
        builder = _builder(_name(INVITED + name), self.certificate.subject, key.public_key())
        return _pem(self._leaf(builder, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH)), private_pem(key)

    def _leaf(self, builder: x509.CertificateBuilder, use: x509.ObjectIdentifier) -> x509.Certificate:
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(sign=True), critical=True)
        return _signed(builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False), self.key)


def check_host(text: str) -> None:
    """Raise :class:`InvalidInput` unless `text` is an IP address or a host name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        if not _HOST.fullmatch(text) or len(text) > 253 or text.replace(".", "").isdecimal():
            rule = "is neither an address nor a host's name"
            raise InvalidInput("host", text, rule, "use e.g. 'hub.example.org', without a port") from None


def hosts_of(path: Path) -> list[str]:
    """The host names and addresses in the certificate in a file."""
    found = _loaded(path).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(one.value) for one in found]


def request(folder: Path, name: str) -> None:
    """Write a site's TLS key ``NAME.key`` and its certificate request ``NAME.csr``."""
    need_cryptography()
    check_name("name", name)
    key = _new_key()
    asked = x509.CertificateSigningRequestBuilder().subject_name(_name(name)).sign(key, hashes.SHA256())
    _write(folder, name, private_pem(key), ".csr", _pem(asked))


def _write(folder: Path, stem: str, key: bytes, ending: str, public: bytes) -> None:
    with together(folder) as made:
        for path, data, secret in ((folder / f"{stem}.key", key, True), (folder / f"{stem}{ending}", public, False)):
            write_new(path, data, secret=secret)
            made(path)


def fingerprint(pem: bytes) -> str:
    """Fingerprint of the public key in a certificate or request: 32 hexadecimal digits, to compare by telephone."""
    need_cryptography()
    try:
        load = x509.load_pem_x509_csr if b"REQUEST" in pem else x509.load_pem_x509_certificate
        form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        key = load(pem).public_key().public_bytes(*form)
    except (ValueError, exceptions.UnsupportedAlgorithm):
        raise InvalidInput("certificate", None, "is none, and no request", "see `site init`") from None
    digits = hashlib.sha256(key).hexdigest()[:32]
    return " ".join(digits[k : k + 4] for k in range(0, 32, 4))


def check(name: str, authority: bytes, certificate: bytes, key: bytes) -> None:
    """Raise :class:`InvalidInput` if site `name` cannot connect with these TLS files (PEM)."""
    need_cryptography()
    again = "put the files of `site init` and of `hub admit` side by side again"
    try:
        mine, above = x509.load_pem_x509_certificate(certificate), x509.load_pem_x509_certificate(authority)
        public, own = serialization.load_pem_private_key(key, None).public_key(), mine.public_key()
        names = _names(mine.subject)
    except TypeError:
        raise InvalidInput("key", None, "the TLS key is encrypted", "keep it without a password") from None
    except (ValueError, exceptions.UnsupportedAlgorithm):
        raise InvalidInput("certificate", None, "TLS files cannot be read", again) from None
    if public != own:
        raise InvalidInput("certificate", None, "does not belong to the key beside it", again)
    if names != [name]:
        raise InvalidInput("certificate", ", ".join(names), f"is not for {name!r}", "use this site's own")
    try:
        mine.verify_directly_issued_by(above)
    except (ValueError, TypeError, exceptions.InvalidSignature, exceptions.UnsupportedAlgorithm):
        raise InvalidInput("certificate", None, "was not signed by the authority beside it", again) from None
    if not mine.not_valid_before_utc <= datetime.now(UTC) <= mine.not_valid_after_utc:
        raise InvalidInput("certificate", None, "is not valid today", "ask the hub's operator for a new one")


def expiry(path: Path) -> datetime:
    """Expiry of the certificate in a file; raises :class:`InvalidInput` if there is none."""
    return _loaded(path).not_valid_after_utc


def _loaded(path: Path) -> x509.Certificate:
    need_cryptography()
    pem = read("certificate", path, KEY)
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise InvalidInput("certificate", str(path), "is no certificate", "ask the hub's operator for it") from None


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])


def _names(subject: x509.Name) -> list[str]:
    return [str(name.value) for name in subject.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)]


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=sign, key_cert_sign=not sign, crl_sign=not sign, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _builder(subject: x509.Name, issuer: x509.Name, public: CertificatePublicKeyTypes) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - _SKEW).not_valid_after(now + timedelta(days=DAYS))


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    return builder.sign(key, hashes.SHA256())


def _pem(what: x509.Certificate | x509.CertificateSigningRequest) -> bytes:
    return what.public_bytes(serialization.Encoding.PEM)
