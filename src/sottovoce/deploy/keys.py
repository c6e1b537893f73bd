"""Ed25519 signatures, and a site's signing key.

Every message of a site is signed with this key, whose public half is in the plan.  It is not the
TLS key, by which the hub knows who is connected (:mod:`sottovoce.deploy.certificates`).
"""

from __future__ import annotations

import base64
from pathlib import Path

from ..errors import InvalidInput
from ..util.files import read_bounded_file
from .crypto import ed25519, exceptions, need_cryptography, private_key_to_pem, serialization
from .files import KEY, write_new_file


def verify_signature(public: bytes, signature: bytes, data: bytes) -> None:
    """Check an Ed25519 signature.

    Parameters
    ----------
    public : bytes
        Public key, 32 bytes.
    signature : bytes
        64 bytes.
    data : bytes
        The signed text.

    Raises
    ------
    ValueError
        If it is not the signature of `data` under `public`, or `public` is not a key.
    """
    need_cryptography()
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except exceptions.InvalidSignature:
        raise ValueError("signature") from None


class SigningKey:
    """The private half of a site's Ed25519 signing key."""

    def __init__(self, key: ed25519.Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def make(cls) -> SigningKey:
        """Return a new random key."""
        need_cryptography()
        return cls(ed25519.Ed25519PrivateKey.generate())

    @classmethod
    def read(cls, path: str | Path) -> SigningKey:
        """Read the key from a file; raises :class:`InvalidInput` if it holds none."""
        need_cryptography()
        pem = read_bounded_file("signing_key", path, KEY)
        try:
            key = serialization.load_pem_private_key(pem, None)
        except TypeError:
            remedy = "store it without a password, in a folder that only this user can read"
            raise InvalidInput("signing_key", str(path), "is encrypted", remedy) from None
        except (ValueError, exceptions.UnsupportedAlgorithm):
            key = None
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise InvalidInput(
                "signing_key",
                str(path),
                "is not an Ed25519 key",
                "make one with `sottovoce site init`",
            )
        return cls(key)

    def write(self, path: str | Path) -> None:
        """Write the private key, for this user only."""
        write_new_file(Path(path), private_key_to_pem(self._key), secret=True)

    @property
    def public(self) -> str:
        """The public key in base64."""
        return base64.b64encode(self._key.public_key().public_bytes_raw()).decode()

    def sign(self, data: bytes) -> bytes:
        """Return the signature of `data`, 64 bytes."""
        return self._key.sign(data)
