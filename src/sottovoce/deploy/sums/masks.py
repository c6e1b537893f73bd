"""Pairwise masks that hide the shares of a sum, and a site's masking key of one run.

Each pair of sites derives a common key (X25519, then HKDF), which ChaCha20 turns into a mask of
64-bit words.  One site of the pair adds the mask to its share and the other subtracts it, so all
masks vanish in the sum modulo ``2^64``.  How keys are derived, and why no mask is used twice, is in
``docs/deploy/sums.md``, "What is sent"; what happens to the key file, in "Crashes, backups and
keys".
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import LedgerCorrupt, NotWritten, Refused, format_declared_value
from ...ledger.durable import DurableLedger
from ...util.files import require_regular_file
from ...util.typing import IntArray
from ..crypto import algorithms, ciphers, hashes, hkdf, need_cryptography, x25519
from ..files import unfinished_files_of, write_new_file

Words = NDArray[np.uint64]
"""Numbers modulo ``2^64``."""
BYTES = 32
"""Length of a key: of X25519, private or public, and of a mask."""
_PRIME = 2**255 - 19
"""The prime p of Curve25519."""
_PROBE = bytes(range(1, 1 + BYTES))
"""A private key for :func:`check_public_key`.

Any scalar will do, because the exchange multiplies by the cofactor.
"""
_DOMAIN = b"sottovoce mask 1"
"""Begins the HKDF information of every mask, so that no other use derives the same key."""
# Name of a masking key's file, LEDGER.RUN.masks, or of the temporary file that a killed process
# left of one; group 1 is LEDGER.RUN.
_MASKS = re.compile(r"\.?(.+)\.masks(?:\.[0-9a-f]+\.tmp)?")


def encode_fields(*parts: bytes) -> bytes:
    """Join the parts, each after its length in 8 bytes: different parts give different bytes."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def check_public_key(raw: bytes) -> None:
    """Raise :class:`ValueError` for a public key that is not canonical, or of low order."""
    need_cryptography()
    # X25519 reduces numbers modulo p and drops the highest bit: 9, 9 + p and 9 + 2^255 are one key,
    # and only the first is canonical.
    if len(raw) != BYTES or int.from_bytes(raw, "little") >= _PRIME:
        raise ValueError("is not in canonical encoding")
    probe = x25519.X25519PrivateKey.from_private_bytes(_PROBE)
    try:
        probe.exchange(x25519.X25519PublicKey.from_public_bytes(raw))
    except ValueError:
        raise ValueError("is of low order: every exchange with it gives zero") from None


def masking_key_path(ledger: Path, run: str) -> Path:
    """Return the path of the private masking key of a run, while the run lasts.

    It is a file in the ledger's folder, and never a part of the ledger.
    """
    return ledger.with_name(f"{ledger.stem}.{run}.masks")


def masking_keys_beside(ledger: Path, own: str | None = None) -> dict[str, Path]:
    """Return the paths of masking keys in a ledger's folder, by run, half-written ones included.

    A key's file name has the names of ledger and run, both of which may hold dots.  If it could
    also belong to a ledger with a longer name, such as ``north.2024.ledger``, it counts as that
    one's and is left out, except the key of the run `own`.
    """
    found: dict[str, Path] = {}
    if not ledger.parent.is_dir():
        return found
    lead = f"{ledger.stem}."
    for entry in sorted(ledger.parent.iterdir()):
        named = _MASKS.fullmatch(entry.name)
        if named is None or not named[1].startswith(lead):
            continue
        run = named[1].removeprefix(lead)
        longer = [s for s in _ledgers_of_key_name(ledger, named[1]) if len(s) > len(ledger.stem)]
        if run == own or not longer:
            found[run] = masking_key_path(ledger, run)
    return found


def _ledgers_of_key_name(ledger: Path, name: str) -> list[str]:
    """Return the names, without ending, of the ledgers to which a key LEDGER.RUN may belong.

    They are the ledgers in the folder whose name is a beginning of `name` up to a dot.
    """
    stems = (name[: dot.start()] for dot in re.finditer(r"\.", name))
    return [stem for stem in stems if ledger.with_name(stem + ledger.suffix).exists()]


def erase_old_masking_keys(ledger: DurableLedger, present: str = "") -> dict[str, str]:
    """Erase the masking keys of runs that are over in the ledger.

    Parameters
    ----------
    ledger : DurableLedger
    present : str
        The run that is about to start.

    Returns
    -------
    dict of str
        The runs whose keys were erased, with their states in the ledger.

    Raises
    ------
    LedgerCorrupt
        If the ledger lacks the run of a key.  A run is in the ledger before its key is made, so
        this is an older copy, or another ledger.  The key is erased unless it is of the run
        `present`, and an empty file in its place makes later starts fail in the same way.  A key
        that may belong to a ledger with a shorter name stays, and is no reason to refuse.
    """
    # The keys are listed before the ledger is read: a run that starts meanwhile is in the ledger
    # before its key exists, so its key cannot look foreign.
    keys = masking_keys_beside(ledger.path)
    states = {one["run"]: str(one["state"]) for one in ledger.show()["runs"]}
    alone = [ledger.path.stem]
    # runs of keys that can only be this ledger's, and that it lacks
    foreign = [
        run
        for run in keys
        if run not in states
        and _ledgers_of_key_name(ledger.path, f"{ledger.path.stem}.{run}") == alone
    ]
    over = {run: states[run] for run in keys if states.get(run, "open") != "open"}
    for run in over:
        RunKey.erase_file(keys[run])
    for run in set(foreign) - {present}:
        RunKey.erase_file(keys[run])
        # The error below is raised even if this fails.
        with suppress(OSError):
            keys[run].touch(mode=0o600)
    if foreign:
        kept = "; the key is erased"
        if present in foreign:
            kept = "; the key stays for the newest one"
        raise LedgerCorrupt(
            f"ledger={format_declared_value(ledger.path)}: lacks the run {foreign[0]!r}, "
            "of which its folder holds a key: it is an older copy or another ledger; "
            "nothing was drawn; find the newest one, and never restore a ledger from a "
            f"backup{kept}"
        )
    return over


def give_up_run(ledger: DurableLedger, run: str) -> tuple[int, bool]:
    """Close a run for good, so that this site sends nothing more in it, and erase its masking key.

    Returns the number of reserved events that were not charged, whose privacy loss goes back to the
    budget, and whether there was a key.  The key is erased even if this raises
    :class:`LedgerError`, because the ledger lacks the run or the disk is full.
    """
    key = masking_keys_beside(ledger.path, own=run).get(run)
    erased = False
    try:
        returned = ledger.close_run(run, reclaim=True)
    finally:
        if key is not None:
            erased = RunKey.erase_file(key)
    return returned, erased


class RunKey:
    """The private masking key of a site in one run, an X25519 key in a file of its own.

    Parameters
    ----------
    key : X25519PrivateKey
    path : Path
        Its file.
    """

    def __init__(self, key: x25519.X25519PrivateKey, path: Path) -> None:
        self._key = key
        self._path = path
        # X25519 results by the other site's public key: one computation for all attempts of a pair
        self._shared: dict[bytes, bytes] = {}

    @classmethod
    def make(cls, path: Path) -> RunKey:
        """Make a new key in a file for this user only, which is on the disk when this returns.

        An existing file is read instead: it is of a process that was killed before its greeting.
        """
        need_cryptography()
        if not path.exists():
            write_new_file(
                path, x25519.X25519PrivateKey.generate().private_bytes_raw(), secret=True
            )
            _sync_folder(path)
        return cls.read(path)

    @classmethod
    def read(cls, path: Path) -> RunKey:
        """Read the key of this run; raises :class:`LedgerCorrupt` if the file is lost or damaged.

        A second key is never made: with it this site would send other masks in the old one's name.
        """
        need_cryptography()
        try:
            with require_regular_file("key", path).open("rb") as file:
                raw = file.read(BYTES + 1)
        except (OSError, ValueError):
            raw = b""
        if len(raw) != BYTES:
            raise LedgerCorrupt(
                f"key={format_declared_value(path)}: the key of this run is missing or damaged "
                "and cannot be replaced; halted, nothing was drawn; the other sites go on "
                "without this one"
            )
        return cls(x25519.X25519PrivateKey.from_private_bytes(raw), path)

    @property
    def public(self) -> bytes:
        """The public half, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def shared(self, public: bytes) -> bytes:
        """Return the common secret with the site of a `public` key, 32 bytes, by X25519.

        Raises :class:`Refused` if it is zero.
        """
        if public not in self._shared:
            try:
                other = x25519.X25519PublicKey.from_public_bytes(public)
                self._shared[public] = self._key.exchange(other)
            except ValueError:
                raise Refused("key: the key exchange gives zero") from None
        return self._shared[public]

    @staticmethod
    def erase_file(path: Path) -> bool:
        """Overwrite and remove the file of a private key, and its temporary files.

        Returns True if there was any; raises :class:`NotWritten` if one cannot be removed.
        """
        found = [one for one in (path, *unfinished_files_of(path)) if os.path.lexists(one)]
        for one in found:
            # Overwriting may fail on a full disk that copies on write.  The removal is what counts.
            with suppress(OSError):
                _overwrite_with_zeros(one)
            try:
                one.unlink(missing_ok=True)
            except OSError as error:
                rule = (
                    f"cannot be removed: {error.strerror}; remove this key yourself, because its "
                    "run is over"
                )
                raise NotWritten(f"key={format_declared_value(one)}: {rule}") from None
        if found:
            _sync_folder(path)
        return bool(found)


def _overwrite_with_zeros(path: Path) -> None:
    """Overwrite a key in place, without following links or waiting for pipes."""
    # Windows has neither flag.
    no_links = getattr(os, "O_NOFOLLOW", 0)
    no_waits = getattr(os, "O_NONBLOCK", 0)
    handle = os.open(path, os.O_WRONLY | no_links | no_waits)
    with open(handle, "wb", buffering=0) as file:
        file.write(bytes(BYTES))
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    """Make sure that the making or removal of the file `path` is on the disk."""
    # Windows cannot open a folder.
    if not hasattr(os, "O_DIRECTORY"):
        return
    try:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        rule = f"its folder cannot be written: {error.strerror}; free some disk space"
        raise NotWritten(f"key={format_declared_value(path)}: {rule}") from None


@dataclass(frozen=True)
class Bound:
    """Values on which the mask keys of one attempt depend, in addition to the two sites.

    Parameters
    ----------
    session : bytes
        Digest of all greetings.
    roster : bytes
        Digest of the signed roster.
    attempt : int
        Number of the attempt, from 1.
    query : bytes
        Digest of the event that is charged for the attempt.
    parent : bytes
        Digest of the history: of the session and all shares whose sums were opened so far.
    """

    session: bytes
    roster: bytes
    attempt: int
    query: bytes
    parent: bytes


def derive_mask_key(
    own: RunKey, names: tuple[str, str], keys: tuple[bytes, bytes], other: bytes, bound: Bound
) -> bytes:
    """Derive the key of the mask of two sites for one attempt: X25519, then HKDF with SHA-256.

    Parameters
    ----------
    own : RunKey
        This site's private key of the run.
    names : (str, str)
        The two sites, the smaller name first.
    keys : (bytes, bytes)
        Their public keys, in the same order; 32 bytes each.
    other : bytes
        The public key of the other site.
    bound : Bound
        What else the key depends on, so that no mask is ever used for two numbers.

    Returns
    -------
    bytes
        32 bytes, the same at both sites.
    """
    # All that can change between two shares is in here, so that no mask is used twice
    # (docs/deploy/sums.md, "What is sent").
    info = encode_fields(
        _DOMAIN,
        *(name.encode() for name in names),
        *keys,
        bound.roster,
        bound.attempt.to_bytes(8, "big"),
        bound.query,
        bound.parent,
    )
    return hkdf.HKDF(hashes.SHA256(), BYTES, bound.session, info).derive(own.shared(other))


def keystream_words(key: bytes, words: int) -> Words:
    """Return the first `words` 64-bit words of ChaCha20's keystream under a key, (words,).

    The nonce is zero, so a key must be used only once: it is of one pair and one attempt, and
    masks one share.
    """
    cipher = ciphers.Cipher(algorithms.ChaCha20(key, bytes(16)), None)
    drawn = cipher.encryptor().update(bytes(8 * words))
    return np.frombuffer(drawn, dtype="<u8").astype(np.uint64)


def mask_share(
    share: IntArray,
    own: RunKey,
    name: str,
    members: Sequence[str],
    keys: Mapping[str, bytes],
    bound: Bound,
) -> Words:
    """Mask a share of a sum: add or subtract a mask for each other member of the roster.

    The masks vanish in the sum over all members, modulo ``2^64``.

    Parameters
    ----------
    share : array of int64, (k,)
    own : RunKey
        This site's private key of the run.
    name : str
        This site.
    members : sequence of str
        All sites of the roster, this one included.
    keys : mapping of str to bytes
        Public keys of the run, by site.
    bound : Bound
        Session, roster, attempt, event and history, on which the masks depend.

    Returns
    -------
    array of uint64, (k,)

    Raises
    ------
    Refused
        If the roster repeats a site or lacks this one, or two of its keys are the same.

    Guarantee
    ---------
    To anybody who lacks one of the two private keys of each pair of honest sites, the masked shares
    of a roster cannot be told from uniform words with the same sum over the honest sites
    (``docs/deploy/sums.md``).  Masks add no noise: what is opened is priced by the attempt's event.
    """
    if len(set(members)) != len(members) or name not in members:
        raise Refused("roster: must hold each site once, this site included")
    if len({keys[other] for other in members}) != len(members) or keys[name] != own.public:
        raise Refused("keys: each site of a roster must have its own key")
    total = np.ascontiguousarray(share, dtype=np.int64).view(np.uint64).copy()
    for other in members:
        if other == name:
            continue
        low, high = sorted((name, other))
        key = derive_mask_key(own, (low, high), (keys[low], keys[high]), keys[other], bound)
        mask = keystream_words(key, total.size)
        # One site of a pair adds what the other subtracts: the masks vanish in the sum modulo 2^64.
        if name == low:
            total = total + mask
        else:
            total = total - mask
    return total
