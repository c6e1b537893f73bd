"""A site's signing key (Ed25519), and secrets in files."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InvalidInput
from ..util.files import read
from .files import KEY, write_new

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def need_cryptography() -> None:
    """Say what is missing if signatures cannot be made.

    Raises
    ------
    InvalidInput
    """
    try:
        import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401
    except ImportError as error:
        rule = "signatures and certificates need the package cryptography, which is not installed"
        raise InvalidInput("site", None, rule, "pip install 'sottovoce[relay]'") from error


def verify(public: bytes, signature: bytes, data: bytes) -> None:
    """Check an Ed25519 signature.

    Raises
    ------
    ValueError
        If it is not one of `data` by the holder of `public`.
    """
    need_cryptography()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except InvalidSignature:
        raise ValueError("signature") from None


class SigningKey:
    """A site's Ed25519 key.  Use :meth:`make` or :meth:`read`."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def make(cls) -> SigningKey:
        """A new key."""
        need_cryptography()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def read(cls, path: str | Path) -> SigningKey:
        """Read what :meth:`write` wrote.

        Raises
        ------
        InvalidInput
        """
        need_cryptography()
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        pem = read("signing_key", path, KEY)
        try:
            key = load_pem_private_key(pem, None)
        except TypeError:
            remedy = "keep it in a folder that only this user can read, without a password"
            raise InvalidInput("signing_key", str(path), "is encrypted", remedy) from None
        except (ValueError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise InvalidInput("signing_key", str(path), "is no Ed25519 key", "make one with `sottovoce site init`")
        return cls(key)

    def write(self, path: str | Path) -> None:
        """Write the private key, for this user only."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        write_new(Path(path), self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), secret=True)

    @property
    def public(self) -> str:
        """The public key in base64."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        return base64.b64encode(self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()

    def sign(self, data: bytes) -> bytes:
        """The signature of `data`."""
        return self._key.sign(data)
