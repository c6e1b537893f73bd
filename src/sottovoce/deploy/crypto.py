"""The package cryptography, lazily imported.

Signatures, certificates and masks come from it (extra ``relay``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InvalidInput
from ..util.later import Later

if TYPE_CHECKING:
    from cryptography import exceptions, x509
    from cryptography.hazmat.primitives import ciphers, hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, x25519
    from cryptography.hazmat.primitives.ciphers import algorithms
    from cryptography.hazmat.primitives.kdf import hkdf
else:
    # Each part is imported when something of it is first used: most commands sign nothing.
    exceptions = Later("cryptography.exceptions")
    x509 = Later("cryptography.x509")
    ciphers = Later("cryptography.hazmat.primitives.ciphers")
    hashes = Later("cryptography.hazmat.primitives.hashes")
    serialization = Later("cryptography.hazmat.primitives.serialization")
    ec = Later("cryptography.hazmat.primitives.asymmetric.ec")
    ed25519 = Later("cryptography.hazmat.primitives.asymmetric.ed25519")
    x25519 = Later("cryptography.hazmat.primitives.asymmetric.x25519")
    algorithms = Later("cryptography.hazmat.primitives.ciphers.algorithms")
    hkdf = Later("cryptography.hazmat.primitives.kdf.hkdf")

__all__ = [
    "algorithms",
    "ciphers",
    "ec",
    "ed25519",
    "exceptions",
    "hashes",
    "hkdf",
    "need_cryptography",
    "private_key_to_pem",
    "serialization",
    "x509",
    "x25519",
]


def need_cryptography() -> None:
    """Raise :class:`InvalidInput` if the package is not installed."""
    try:
        # With all that masks need: nothing is loaded between a charge and its release.
        import cryptography.hazmat.primitives.asymmetric.ed25519
        import cryptography.hazmat.primitives.ciphers.algorithms
        import cryptography.hazmat.primitives.kdf.hkdf  # noqa: F401
    except ImportError as error:
        rule = "signatures and certificates need the package cryptography, which is not installed"
        raise InvalidInput("site", None, rule, "pip install 'sottovoce[relay]'") from error


def private_key_to_pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    """Return a private key in PEM (PKCS 8), not encrypted."""
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(*form, serialization.NoEncryption())
