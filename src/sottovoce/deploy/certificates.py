"""TLS certificates for a hub and its sites, from one authority for each run or consortium.

A site's TLS key never leaves the site: the site makes a certificate signing request (``site
init``), which the hub's authority signs (``hub admit``).  A site's certificate is valid for a
client only and the hub's for a server only, so no site can pose as the hub.  An invited site has a
third kind, which opens public data only (:mod:`sottovoce.deploy.invitation`).
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InvalidInput
from ..util.files import parse_bounded_json, read_bounded_file, read_bounded_text
from .crypto import (
    ec,
    exceptions,
    hashes,
    need_cryptography,
    private_key_to_pem,
    serialization,
    x509,
)
from .files import KEY, all_files_or_none, write_new_file
from .names import check_site_name

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes


DAYS = 825
"""Validity of a certificate in days; 825 is the most that common clients accept.  It never
outlives its authority.
"""
AUTHORITY_DAYS = 3650
"""Validity of an authority in days."""
INVITED = "invitation of "
"""Prefix of the common name of a certificate in an invitation; no site's name has a space."""
_HOST = re.compile(r"[A-Za-z0-9_](-*[A-Za-z0-9_])*(\.[A-Za-z0-9_](-*[A-Za-z0-9_])*)*")
"""A DNS name: labels of letters, digits and inner dashes, joined by dots."""
_SKEW = timedelta(hours=1)
"""Time by which certificates are dated back, so that slow clocks accept them at once."""


@dataclass(frozen=True)
class Authority:
    """A certificate authority in the files ``ca.crt`` and ``ca.key``.

    While one authority replaces another, ``ca.crt`` holds the certificates of both, newest first,
    and certificates signed by either are accepted.

    Parameters
    ----------
    certificate : x509.Certificate
        The authority's own, which signs itself.
    key : ec.EllipticCurvePrivateKey
    """

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, folder: Path, name: str = "sottovoce") -> Authority:
        """Write a new authority to `folder`."""
        authority = cls._generate_authority(name)
        _write_key_and_public_file(
            folder, "ca", private_key_to_pem(authority.key), ".crt", _to_pem(authority.certificate)
        )
        return authority

    @classmethod
    def _generate_authority(cls, name: str = "sottovoce") -> Authority:
        """Return a new authority, whose name no other authority has."""
        need_cryptography()
        key = _generate_tls_key()
        # By its name TLS finds the right one of two authorities in one file.
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest.hex()[:8]
        subject = _common_name(f"{name} authority {identifier}")
        until = datetime.now(UTC) + timedelta(days=AUTHORITY_DAYS)
        builder = _certificate_builder(subject, subject, key.public_key(), until)
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        builder = builder.add_extension(constraints, critical=True)
        builder = builder.add_extension(_key_usage_extension(sign=False), critical=True)
        return cls(_sign_certificate(builder, key), key)

    @classmethod
    def create_successor(cls, folder: Path) -> Authority:
        """Replace the authority in `folder` by a new one, and return it.

        The former ones that are still valid stay in ``ca.crt``, after the new one, so that the
        certificates that they signed can be used until they are renewed.
        """
        cls.read(folder)
        authority = cls._generate_authority()
        now = datetime.now(UTC)
        former = _load_authorities((folder / "ca.crt").read_bytes())
        valid = [one for one in former if one.not_valid_after_utc > now]
        bundle = b"".join(_to_pem(one) for one in (authority.certificate, *valid))
        # The certificates first: after a kill in between the folder still holds the former key and
        # a certificate that belongs to it.
        _replace_file(folder / "ca.crt", bundle)
        _replace_file(folder / "ca.key", private_key_to_pem(authority.key), secret=True)
        return authority

    def remove_former_authorities(self, folder: Path) -> None:
        """Remove all authorities but this one from ``ca.crt``: what they signed is refused then."""
        _replace_file(folder / "ca.crt", _to_pem(self.certificate))

    @classmethod
    def read(cls, folder: Path) -> Authority:
        """Read the authority in `folder`; raises :class:`InvalidInput` if there is none."""
        need_cryptography()
        public, private = folder / "ca.crt", folder / "ca.key"
        if not (public.is_file() and private.is_file()):
            raise InvalidInput(
                "folder",
                str(folder),
                "holds no certificate authority",
                "make one with `sottovoce hub init`",
            )
        pem = read_bounded_file("folder", public, KEY)
        secret = read_bounded_file("folder", private, KEY)
        try:
            key = serialization.load_pem_private_key(secret, None)
            own = [one for one in _load_authorities(pem) if one.public_key() == key.public_key()]
            if not isinstance(key, ec.EllipticCurvePrivateKey) or not own:
                raise ValueError
        except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
            rule = "ca.crt and ca.key cannot be read or do not belong together"
            raise InvalidInput(
                "folder", str(folder), rule, "make one with `sottovoce hub init`"
            ) from None
        return cls(own[0], key)

    def write_hub_certificate(
        self, folder: Path, hosts: Sequence[str], *, again: bool = False
    ) -> None:
        """Write the hub's TLS key and certificate, ``hub.key`` and ``hub.crt``.

        Parameters
        ----------
        folder : Path
        hosts : sequence of str
            Host names and IP addresses by which sites reach the hub.
        again : bool
            Replace the files there; without it none may exist.

        Raises
        ------
        InvalidInput
            If a file exists, or the authority has ended.
        """
        key = _generate_tls_key()
        builder = self._begin_certificate("hub", key.public_key())
        names = x509.SubjectAlternativeName([_host_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
        certificate = self._sign_leaf_certificate(builder, x509.oid.ExtendedKeyUsageOID.SERVER_AUTH)
        if not again:
            _write_key_and_public_file(
                folder, "hub", private_key_to_pem(key), ".crt", _to_pem(certificate)
            )
            return
        _replace_file(folder / "hub.key", private_key_to_pem(key), secret=True)
        _replace_file(folder / "hub.crt", _to_pem(certificate))

    def signed(self, pem: bytes) -> bool:
        """Return True if this authority signed a certificate."""
        return _is_issued_by(x509.load_pem_x509_certificate(pem), self.certificate)

    def sign_site_request(self, request: bytes) -> tuple[str, bytes]:
        """Sign a site's request; returns the site's name and the certificate.

        Raises :class:`InvalidInput` if it is no valid request, or its name is not allowed for a
        site.
        """
        try:
            # What is wrong inside a request may show only when a part of it is looked at.
            asked = x509.load_pem_x509_csr(request)
            names = []
            if asked.is_signature_valid:
                names = _common_names_of(asked.subject)
            public = asked.public_key()
        except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
            names = []
        if len(names) != 1:
            raise InvalidInput(
                "request",
                None,
                "is not a certificate signing request",
                "use the one that `site init` wrote",
            )
        check_site_name("request", names[0])
        builder = self._begin_certificate(names[0], public)
        return names[0], _to_pem(
            self._sign_leaf_certificate(builder, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH)
        )

    def make_invitation_certificate(self, name: str) -> tuple[bytes, bytes]:
        """Return a certificate and its key, both in PEM, for the invitation of the site `name`.

        With them the invited site can ask the hub for the plan and its own certificate, and for
        nothing else.
        """
        key = _generate_tls_key()
        builder = self._begin_certificate(INVITED + name, key.public_key())
        return _to_pem(
            self._sign_leaf_certificate(builder, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH)
        ), private_key_to_pem(key)

    def _begin_certificate(
        self, name: str, public: CertificatePublicKeyTypes
    ) -> x509.CertificateBuilder:
        """Begin a certificate that this authority will sign; raises if the authority has ended."""
        until = min(datetime.now(UTC) + timedelta(days=DAYS), self.certificate.not_valid_after_utc)
        if until <= datetime.now(UTC):
            rule, remedy = "has expired", "make a new one with `sottovoce hub renew --authority`"
            raise InvalidInput("authority", None, rule, remedy)
        return _certificate_builder(_common_name(name), self.certificate.subject, public, until)

    def _sign_leaf_certificate(
        self, builder: x509.CertificateBuilder, use: x509.ObjectIdentifier
    ) -> x509.Certificate:
        """Sign the certificate of a site or the hub, valid for TLS clients or servers by `use`."""
        constraints = x509.BasicConstraints(ca=False, path_length=None)
        builder = builder.add_extension(constraints, critical=True)
        builder = builder.add_extension(_key_usage_extension(sign=True), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        return _sign_certificate(builder, self.key)


def check_host(text: str) -> None:
    """Raise :class:`InvalidInput` unless `text` is an IP address or a host name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        if not _HOST.fullmatch(text) or len(text) > 253 or text.replace(".", "").isdecimal():
            rule = "must be an IP address or a host name"
            raise InvalidInput(
                "host", text, rule, "use e.g. 'hub.example.org', without a port"
            ) from None


def hosts_in_certificate(path: Path) -> list[str]:
    """Return the host names and addresses in the certificate in a file."""
    found = (
        _load_certificate(path)
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
    )
    return [str(one.value) for one in found]


def write_certificate_request(folder: Path, name: str) -> None:
    """Write a site's TLS key ``NAME.key`` and its certificate request ``NAME.csr``."""
    need_cryptography()
    check_site_name("name", name)
    key = _generate_tls_key()
    builder = x509.CertificateSigningRequestBuilder().subject_name(_common_name(name))
    asked = builder.sign(key, hashes.SHA256())
    _write_key_and_public_file(folder, name, private_key_to_pem(key), ".csr", _to_pem(asked))


def _write_key_and_public_file(
    folder: Path, stem: str, key: bytes, ending: str, public: bytes
) -> None:
    """Write ``STEM.key`` and its public file, ``STEM`` with `ending`: both or none."""
    with all_files_or_none(folder) as made:
        private_file = folder / f"{stem}.key"
        write_new_file(private_file, key, secret=True)
        made(private_file)
        public_file = folder / f"{stem}{ending}"
        write_new_file(public_file, public)
        made(public_file)


REVOKED = "revoked.json"
"""File in the hub's folder: a JSON object from a site's name to a time in ISO 8601.  Certificates
and invitations of the site that were signed up to that time are revoked.
"""


def revoke_certificates(folder: Path, name: str) -> list[str]:
    """Revoke all certificates and invitations of a site that were signed until now.

    Returns the paths of those that were in the hub's `folder`, and renames these files.  Copies
    elsewhere are revoked too, and those of a hub that has lost its files: what counts is the name,
    and when a certificate was signed.
    """
    files = [folder / f"{name}.crt", folder / "renewal" / f"{name}.crt", folder / f"{name}.invite"]
    there = [path for path in files if path.exists()]
    now = datetime.now(UTC).replace(microsecond=0)
    known = _read_revocations(folder) | {name: now.isoformat()}
    text = json.dumps(dict(sorted(known.items())), indent=1) + "\n"
    # The list first: it is what counts, and a kill in between leaves no certificate in use.
    _replace_file(folder / REVOKED, text.encode())
    for path in there:
        path.replace(path.with_name(f"{path.name}.revoked-{now:%Y%m%d%H%M%S}"))
    return [str(path) for path in there]


def is_revoked(folder: Path, pem: bytes) -> bool:
    """Return True if a certificate in PEM, of a site or in an invitation, was revoked.

    Raises :class:`InvalidInput` if the list in `folder` cannot be read.
    """
    certificate = x509.load_pem_x509_certificate(pem)
    known = _read_revocations(folder)
    # Certificates are dated back by _SKEW; this is when it was really signed.
    signed = certificate.not_valid_before_utc + _SKEW
    names = [name.removeprefix(INVITED) for name in _common_names_of(certificate.subject)]
    return any(signed <= datetime.fromisoformat(known[name]) for name in names if name in known)


def _read_revocations(folder: Path) -> dict[str, str]:
    """Return the content of :data:`REVOKED` in a hub's folder; empty if there is no such file."""
    path = folder / REVOKED
    if not path.exists():
        return {}
    try:
        found = parse_bounded_json(read_bounded_text("revoked", path, KEY))
        for until in found.values():
            datetime.fromisoformat(until)
    except (ValueError, TypeError, AttributeError):
        raise InvalidInput(
            "revoked", path, "is not the list that `hub revoke` writes", "restore it from a backup"
        ) from None
    return dict(found)


def take_renewed_certificate(
    name: str, renewal: Path, given: Path, files: tuple[Path, Path, Path]
) -> None:
    """Put a signed certificate and its new key in the place of those in use.

    After a kill amid it the same call goes on: the folder is removed last.

    Parameters
    ----------
    name : str
        The site.
    renewal : Path
        Folder of ``site renew``, with the new key.
    given : Path
        The certificate that the hub signed.
    files : (Path, Path, Path)
        Authority, certificate and key of the site, as in its settings.

    Raises
    ------
    InvalidInput
        If they do not belong together; nothing is changed then.
    """
    authority, certificate, key = files
    fresh = read_bounded_file("certificate", given, KEY)
    made = read_bounded_file("key", renewal / f"{name}.key", KEY)
    check_tls_files(name, read_bounded_file("authority", authority, KEY), fresh, made)
    _replace_file(key, made, secret=True)
    _replace_file(certificate, fresh)
    for ending in ("csr", "key"):
        (renewal / f"{name}.{ending}").unlink(missing_ok=True)
    with suppress(OSError):
        renewal.rmdir()


def public_key_fingerprint(pem: bytes) -> str:
    """Return the fingerprint of the public key in a certificate or request.

    Parameters
    ----------
    pem : bytes
        Of several certificates, the first counts.

    Returns
    -------
    str
        32 hexadecimal digits, in groups of four, to compare by telephone.

    Raises
    ------
    InvalidInput
        If it is neither a certificate nor a request.
    """
    need_cryptography()
    try:
        if b"REQUEST" in pem:
            public = x509.load_pem_x509_csr(pem).public_key()
        else:
            public = x509.load_pem_x509_certificate(pem).public_key()
        form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        key = public.public_bytes(*form)
    except (ValueError, exceptions.UnsupportedAlgorithm):
        raise InvalidInput(
            "certificate",
            None,
            "is neither a certificate nor a certificate signing request",
            "see `site init`",
        ) from None
    digits = hashlib.sha256(key).hexdigest()[:32]
    return " ".join(digits[k : k + 4] for k in range(0, 32, 4))


def share_authority(one: bytes, other: bytes) -> bool:
    """Return True if two texts of authorities in PEM have a certificate in common.

    A hub that renews its authority gives both for a while.  Raises :class:`InvalidInput` for a text
    without a certificate.
    """
    need_cryptography()
    try:
        first, second = _load_authorities(one), _load_authorities(other)
    except ValueError:
        raise InvalidInput(
            "authority", None, "is not a certificate", "give the file of the hub"
        ) from None
    return any(each in second for each in first)


PASSPHRASE_FILE = "SOTTOVOCE_TLS_PASSPHRASE_FILE"
"""Environment variable that names the file with the passphrase of an encrypted TLS key."""


def read_tls_key(path: Path) -> bytes:
    """Return a private TLS key in PEM, not encrypted, from a file that may be.

    The passphrase of an encrypted one is in the file that :data:`PASSPHRASE_FILE` names, so that it
    is in no command line.  Raises :class:`InvalidInput` without it, or for a wrong one.
    """
    pem = read_bounded_file("key", path, KEY)
    if b"ENCRYPTED" not in pem:
        return pem
    named = os.environ.get(PASSPHRASE_FILE)
    if not named:
        remedy = f"name the file with its passphrase in the environment: {PASSPHRASE_FILE}=FILE"
        raise InvalidInput("key", path, "the TLS key is encrypted", remedy)
    passphrase = read_bounded_file("passphrase", Path(named), KEY).rstrip(b"\r\n")
    need_cryptography()
    try:
        key = serialization.load_pem_private_key(pem, passphrase)
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
        remedy = f"correct the file that {PASSPHRASE_FILE} names"
        raise InvalidInput("key", path, "does not open with the passphrase", remedy) from None
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(*form, serialization.NoEncryption())


def check_tls_files(name: str, authority: bytes, certificate: bytes, key: bytes) -> None:
    """Check that a site, or the hub, can connect with its TLS files.

    Parameters
    ----------
    name : str
        The site's name, which must be the common name of its certificate; ``hub`` for the hub.
    authority : bytes
        ``ca.crt`` in PEM; it may hold several authorities.
    certificate, key : bytes
        Of this site or hub, in PEM.

    Raises
    ------
    InvalidInput
        If the files cannot be read or do not belong together, or the certificate is for another
        name, was not signed by an authority in `authority`, or its time has not begun or is over.
    """
    need_cryptography()
    again = "put the files of `site init` and `hub admit` back into one folder"
    try:
        mine = x509.load_pem_x509_certificate(certificate)
        above = _load_authorities(authority)
        public = serialization.load_pem_private_key(key, None).public_key()
        own = mine.public_key()
        names = _common_names_of(mine.subject)
    except TypeError:
        raise InvalidInput(
            "key",
            None,
            "the TLS key is encrypted",
            f"name the file with its passphrase in the environment: {PASSPHRASE_FILE}=FILE",
        ) from None
    except (ValueError, exceptions.UnsupportedAlgorithm):
        raise InvalidInput("certificate", None, "TLS files cannot be read", again) from None
    if public != own:
        raise InvalidInput("certificate", None, "does not belong to its key", again)
    if names != [name]:
        raise InvalidInput(
            "certificate",
            ", ".join(names),
            f"was not issued for {name!r}",
            "use this site's certificate",
        )
    issuers = [one for one in above if _is_issued_by(mine, one)]
    if not issuers:
        raise InvalidInput("certificate", None, "was not signed by the given authority", again)
    now = datetime.now(UTC)
    end_of_authority = max(one.not_valid_after_utc for one in issuers)
    if now > end_of_authority:
        rule = f"was signed by an authority that expired on {end_of_authority:%Y-%m-%d}"
        raise InvalidInput(
            "certificate",
            None,
            rule,
            "ask the hub's operator for a new one (`hub renew --authority`)",
        )
    begin = max(mine.not_valid_before_utc, min(one.not_valid_before_utc for one in issuers))
    if now < begin:
        rule = f"begins at {begin:%Y-%m-%d %H:%M} UTC, and it is {now:%Y-%m-%d %H:%M} here"
        remedy = "compare the clocks of this machine and of the hub's"
        raise InvalidInput("certificate", None, rule, remedy)
    if now > mine.not_valid_after_utc:
        remedy = "use `sottovoce site renew` and `hub admit --renew`"
        if name == "hub":
            remedy = "use `sottovoce hub renew`"
        raise InvalidInput("certificate", None, "has expired", remedy)


def _is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Return True if a certificate names this authority and has its valid signature."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, exceptions.InvalidSignature, exceptions.UnsupportedAlgorithm):
        return False
    return True


def last_usable_time(authority: Path, certificate: Path) -> datetime:
    """Return when a certificate can no longer be used: its expiry, or its authority's if earlier.

    Both are paths of files in PEM; raises :class:`InvalidInput` if there is no certificate.
    """
    mine = _load_certificate(certificate)
    own_end = mine.not_valid_after_utc
    authorities = _load_authorities(read_bounded_file("authority", authority, KEY))
    ends_of_issuers = [one.not_valid_after_utc for one in authorities if _is_issued_by(mine, one)]
    return min(own_end, max(ends_of_issuers, default=own_end))


def certificate_expiry(path: Path) -> datetime:
    """Return the expiry of the certificate in a file; raises :class:`InvalidInput` for none."""
    return _load_certificate(path).not_valid_after_utc


def _load_certificate(path: Path) -> x509.Certificate:
    """Return the first certificate in a file in PEM; raises :class:`InvalidInput` for none."""
    need_cryptography()
    pem = read_bounded_file("certificate", path, KEY)
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise InvalidInput(
            "certificate", str(path), "is not a certificate", "ask the hub's operator for it"
        ) from None


def _generate_tls_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])


def _common_names_of(subject: x509.Name) -> list[str]:
    """Return the common names of a subject."""
    attributes = subject.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)
    return [str(attribute.value) for attribute in attributes]


def _host_general_name(text: str) -> x509.GeneralName:
    """Return an IP address or a host name in the form of a certificate's alternative names."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _key_usage_extension(*, sign: bool) -> x509.KeyUsage:
    """Return the permitted uses of a key: with `sign` of a site or hub, else of an authority.

    The former signs TLS handshakes, the latter certificates and revocation lists.
    """
    return x509.KeyUsage(
        digital_signature=sign,
        key_cert_sign=not sign,
        crl_sign=not sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _certificate_builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: CertificatePublicKeyTypes,
    until: datetime | None = None,
) -> x509.CertificateBuilder:
    """Begin a certificate for the key `public`, valid until `until` or for :data:`DAYS`.

    It is valid from an hour ago (:data:`_SKEW`), for clocks that are slow.
    """
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    builder = builder.serial_number(x509.random_serial_number())
    if until is None:
        until = now + timedelta(days=DAYS)
    return builder.not_valid_before(now - _SKEW).not_valid_after(until)


def _replace_file(path: Path, data: bytes, *, secret: bool = False) -> None:
    """Replace a file in one step; a `secret` is readable by this user only."""
    fresh = path.with_name(f"{path.name}.new")
    # left by a process that was killed
    fresh.unlink(missing_ok=True)
    write_new_file(fresh, data, secret=secret)
    fresh.replace(path)


def _load_authorities(pem: bytes) -> list[x509.Certificate]:
    """Return the authorities in a ``ca.crt``, newest first."""
    return list(x509.load_pem_x509_certificates(pem))


def _sign_certificate(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    return builder.sign(key, hashes.SHA256())


def _to_pem(what: x509.Certificate | x509.CertificateSigningRequest) -> bytes:
    return what.public_bytes(serialization.Encoding.PEM)
