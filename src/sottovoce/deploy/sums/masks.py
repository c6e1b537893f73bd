"""A site's key of one run, and the masks that hide its shares: X25519, HKDF and ChaCha20, all of them from a library.

Two sites of a roster derive the same key from their exchange and from everything that was agreed on before the
attempt.  One adds the keystream to its share and the other subtracts it, modulo ``2^64``, so that masks vanish in the
sum over the roster and nowhere else.  No key is ever used for two attempts, two rosters or two histories.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...errors import LedgerCorrupt, NotWritten, Refused, shown
from ...files import regular
from ...typing import IntArray
from ..files import write_new
from ..keys import need_cryptography

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

Words = NDArray[np.uint64]
"""Numbers modulo ``2^64``."""
BYTES = 32
"""Of a key, of either kind."""
_PRIME = 2**255 - 19
_PROBE = bytes(range(1, 1 + BYTES))  # any scalar will do: the exchange multiplies by the cofactor
_DOMAIN = b"sottovoce mask 1"


def fields(*parts: bytes) -> bytes:
    """The parts in one, each with its length before it: no two lists of parts give the same bytes."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def check_key(raw: bytes) -> None:
    """Refuse a public key that is not the one encoding of a point, or a point with which every exchange gives zero.

    Raises
    ------
    ValueError
    """
    need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    if len(raw) != BYTES or int.from_bytes(raw, "little") >= _PRIME:  # 9, 9 + p and 9 + 2^255 are one key
        raise ValueError("is not the one encoding of a key")
    try:
        X25519PrivateKey.from_private_bytes(_PROBE).exchange(X25519PublicKey.from_public_bytes(raw))
    except ValueError:
        raise ValueError("is of low order: every exchange with it gives zero") from None


class RunKey:
    """The private half of a site's key of one run.  Use :meth:`make` or :meth:`read`."""

    def __init__(self, key: X25519PrivateKey, path: Path) -> None:
        self._key, self._path = key, path
        self._shared: dict[bytes, bytes] = {}

    @classmethod
    def make(cls, path: Path) -> RunKey:
        """A new key, in a file that only this user can read; it is on the disk when this returns.

        A file of that name is taken as it is: the process that made it was killed before it had greeted.

        Raises
        ------
        LedgerCorrupt, NotWritten
        """
        need_cryptography()
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        if not path.exists():
            raw = X25519PrivateKey.generate().private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
            write_new(path, raw, secret=True)
            _settle(path)
        return cls.read(path)

    @classmethod
    def read(cls, path: Path) -> RunKey:
        """The key that was made for this run before.

        Raises
        ------
        LedgerCorrupt
            If it is gone.  There is never a second one: with it this site would send other masks under an old name.
        """
        need_cryptography()
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        try:
            with regular("key", path).open("rb") as file:
                raw = file.read(BYTES + 1)
        except (OSError, ValueError):
            raw = b""
        if len(raw) != BYTES:
            raise LedgerCorrupt(
                f"key={shown(path)}: the key of this run is gone or damaged, and there is never a second one; halted, "
                "nothing was drawn; the other sites go on without this one"
            )
        return cls(X25519PrivateKey.from_private_bytes(raw), path)

    @property
    def public(self) -> bytes:
        """The public half, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def shared(self, public: bytes) -> bytes:
        """What the exchange with another site's public half gives.

        Raises
        ------
        Refused
            If it is zero.
        """
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        if public not in self._shared:
            try:
                self._shared[public] = self._key.exchange(X25519PublicKey.from_public_bytes(public))
            except ValueError:
                raise Refused("key: an exchange gives zero") from None
        return self._shared[public]

    @staticmethod
    def erase(path: Path) -> None:
        """Write over the private half and remove it: shares of a run that is over stay hidden from a later thief."""
        with suppress(FileNotFoundError):
            with path.open("r+b") as file:
                file.write(bytes(BYTES))
                file.flush()
                os.fsync(file.fileno())
            path.unlink()
            _settle(path)


def _settle(path: Path) -> None:
    """Bring the folder's entry of `path` to the disk."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    try:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise NotWritten(
            f"key={shown(path)}: its folder cannot be written: {error.strerror}; free some space"
        ) from None


@dataclass(frozen=True)
class Bound:
    """All that the keys of one attempt are bound to, beside the two sites.

    Parameters
    ----------
    session : bytes
        Digest of all greetings.
    roster : bytes
        Digest of the roster that all its sites have signed.
    attempt : int
    query : bytes
        Digest of the event that is charged for the attempt.
    parent : bytes
        Digest of the history: of all shares whose sums were opened.
    """

    session: bytes
    roster: bytes
    attempt: int
    query: bytes
    parent: bytes


def mask_key(own: RunKey, names: tuple[str, str], keys: tuple[bytes, bytes], other: bytes, bound: Bound) -> bytes:
    """The key of two sites for one attempt, 32 bytes; `names` and `keys` of both, the smaller name first."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = fields(
        _DOMAIN, *(name.encode() for name in names), *keys, bound.roster, bound.attempt.to_bytes(8, "big"), bound.query,
        bound.parent,
    )  # fmt: skip
    return HKDF(SHA256(), BYTES, bound.session, info).derive(own.shared(other))


def stream(key: bytes, words: int) -> Words:
    """The first `words` words of the keystream of a key that is used for nothing else."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    drawn = Cipher(ChaCha20(key, bytes(16)), None).encryptor().update(bytes(8 * words))
    return np.frombuffer(drawn, dtype="<u8").astype(np.uint64)


def seal(
    share: IntArray, own: RunKey, name: str, members: Sequence[str], keys: Mapping[str, bytes], bound: Bound
) -> Words:
    """A share with the masks of all pairs of `name` and another member: uniform for whoever lacks one of the keys.

    Parameters
    ----------
    share : array (m,) of whole numbers
    own : RunKey
    name : str
        Of this site.
    members : sequence of str
        The roster, distinct, with this site.
    keys : mapping
        Public halves by site.
    bound : Bound

    Raises
    ------
    Refused
        If the roster repeats a site or lacks this one, or two of its keys are the same.
    """
    if len(set(members)) != len(members) or name not in members:
        raise Refused("roster: must hold every site once, and this one")
    if len({keys[other] for other in members}) != len(members) or keys[name] != own.public:
        raise Refused("keys: every site of a roster needs one of its own")
    total = np.ascontiguousarray(share, dtype=np.int64).view(np.uint64).copy()
    for other in members:
        if other == name:
            continue
        low, high = sorted((name, other))
        mask = stream(mask_key(own, (low, high), (keys[low], keys[high]), keys[other], bound), total.size)
        total = total + mask if name == low else total - mask
    return total
