"""Keys and masks: what is refused as a key, what a mask depends on, and that masks vanish in
sums and nowhere else.
"""

from __future__ import annotations

import stat
from dataclasses import fields as fields_of
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sottovoce.deploy.sums import masks
from sottovoce.deploy.sums.masks import (
    Bound,
    RunKey,
    check_public_key,
    derive_mask_key,
    encode_fields,
    keystream_words,
    mask_share,
)
from sottovoce.errors import LedgerCorrupt, Refused

pytest.importorskip("cryptography")

P = 2**255 - 19
LOW = [
    0,
    1,
    P - 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
]
"""All points of small order that have a canonical encoding (https://cr.yp.to/ecdh.html)."""
BOUND = Bound(b"s" * 32, b"r" * 32, 3, b"q" * 32, b"p" * 32)


def number(value: int) -> bytes:
    return value.to_bytes(32, "little")


@pytest.fixture
def pair(tmp_path: Path) -> tuple[RunKey, RunKey]:
    return RunKey.make(tmp_path / "a.masks"), RunKey.make(tmp_path / "b.masks")


@pytest.mark.parametrize("point", LOW)
def test_a_key_of_low_order_is_refused(point: int) -> None:
    with pytest.raises(ValueError, match="low order"):
        check_public_key(number(point))


@pytest.mark.parametrize("alias", [9 + P, 9 + 2**255, P, P + 1, 2**255, 2**256 - 1])
def test_a_second_encoding_of_a_key_is_refused(alias: int) -> None:
    check_public_key(number(9))
    with pytest.raises(ValueError, match="canonical encoding"):
        check_public_key(number(alias))


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="canonical encoding"):
        check_public_key(bytes([9]) + bytes(size - 1) if size else b"")


def test_zero_key_exchange_is_refused(pair: tuple[RunKey, RunKey]) -> None:
    with pytest.raises(Refused, match="gives zero"):
        pair[0].shared(number(1))


def test_both_sites_derive_the_same_key(pair: tuple[RunKey, RunKey]) -> None:
    a, b = pair
    keys = (a.public, b.public)
    assert derive_mask_key(a, ("a", "b"), keys, b.public, BOUND) == derive_mask_key(
        b, ("a", "b"), keys, a.public, BOUND
    )


@pytest.mark.parametrize("name", [f.name for f in fields_of(Bound)])
def test_mask_key_depends_on_every_input(pair: tuple[RunKey, RunKey], name: str) -> None:
    """Session, roster, attempt, query and history: without one of them two numbers might get the
    same mask.
    """
    a, b = pair
    other = replace(BOUND, **{name: 4 if name == "attempt" else b"x" * 32})
    keys = (a.public, b.public)
    assert derive_mask_key(a, ("a", "b"), keys, b.public, BOUND) != derive_mask_key(
        a, ("a", "b"), keys, b.public, other
    )


def test_a_key_is_bound_to_names_and_keys(pair: tuple[RunKey, RunKey], tmp_path: Path) -> None:
    a, b = pair
    keys, third = (a.public, b.public), RunKey.make(tmp_path / "c.masks").public
    first = derive_mask_key(a, ("a", "b"), keys, b.public, BOUND)
    assert first != derive_mask_key(a, ("a", "c"), keys, b.public, BOUND)
    assert first != derive_mask_key(a, ("a", "b"), (a.public, third), b.public, BOUND)
    assert first != derive_mask_key(a, ("a", "b"), keys, third, BOUND)


def test_encoding_of_fields_is_injective() -> None:
    assert (
        encode_fields(b"ab", b"c")
        != encode_fields(b"a", b"bc")
        != encode_fields(b"abc")
        != encode_fields(b"abc", b"")
    )


@pytest.mark.parametrize("size", [1, 7, 100])
def test_masks_vanish_in_the_sum_and_in_no_part_of_it(tmp_path: Path, size: int) -> None:
    names = ("centre", "east", "north", "west")
    own = {name: RunKey.make(tmp_path / f"{name}.masks") for name in names}
    keys = {name: key.public for name, key in own.items()}
    rng = np.random.default_rng(0)
    shares = {name: rng.integers(-(2**60), 2**60, size) for name in names}
    sealed = {name: mask_share(shares[name], own[name], name, names, keys, BOUND) for name in names}
    total = np.sum(list(sealed.values()), axis=0, dtype=np.uint64).view(np.int64)
    np.testing.assert_array_equal(total, sum(shares.values()))
    for part in range(1, 2**4 - 1):
        chosen = [name for i, name in enumerate(names) if part >> i & 1]
        seen = np.sum([sealed[name] for name in chosen], axis=0, dtype=np.uint64).view(np.int64)
        assert not np.any(seen == sum(shares[name] for name in chosen))


def test_sums_wrap_around_without_an_error(tmp_path: Path) -> None:
    """Modulo 2^64, at both ends of the ring: masks vanish for shares of any size."""
    names = ("a", "b", "c")
    own = {name: RunKey.make(tmp_path / f"{name}.masks") for name in names}
    keys = {name: key.public for name, key in own.items()}
    shares = {"a": np.array([2**63 - 1, -(2**63)]), "b": np.array([1, -1]), "c": np.array([5, -5])}
    sealed = [mask_share(shares[name], own[name], name, names, keys, BOUND) for name in names]
    total = np.sum(sealed, axis=0, dtype=np.uint64).view(np.int64)
    np.testing.assert_array_equal(total, [-(2**63) + 5, 2**63 - 6])


def test_masked_share_is_uniform(pair: tuple[RunKey, RunKey]) -> None:
    """Bits of masked zeros: 64,000 fair coins within five standard deviations; so are those of a
    difference.
    """
    a, b = pair
    keys = {"a": a.public, "b": b.public}
    one = mask_share(np.zeros(1000, dtype=np.int64), a, "a", ("a", "b"), keys, BOUND)
    two = mask_share(
        np.zeros(1000, dtype=np.int64), a, "a", ("a", "b"), keys, replace(BOUND, attempt=4)
    )
    for words in (one, two, one - two):
        ones = int(np.unpackbits(words.view(np.uint8)).sum())
        assert abs(ones - 32_000) < 5 * np.sqrt(64_000) / 2


def test_mask_stream_depends_only_on_key() -> None:
    """ChaCha20 with a zero key, counter and nonce: the first block of RFC 8439, appendix A.1,
    test vector 1.
    """
    block = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    np.testing.assert_array_equal(keystream_words(bytes(32), 4), np.frombuffer(block, dtype="<u8"))


@pytest.mark.parametrize("members", [("a", "b", "b"), ("a", "a", "b"), ("b",), ("b", "c")])
def test_a_roster_with_a_name_twice_or_without_this_site_masks_nothing(
    pair: tuple[RunKey, RunKey], members: tuple[str, ...]
) -> None:
    a, b = pair
    with pytest.raises(Refused, match=r"^roster: "):
        mask_share(
            np.zeros(2, dtype=np.int64),
            a,
            "a",
            members,
            {"a": a.public, "b": b.public, "c": number(9)},
            BOUND,
        )


def test_two_sites_with_one_key_are_refused(pair: tuple[RunKey, RunKey]) -> None:
    a, b = pair
    for keys in ({"a": a.public, "b": a.public}, {"a": a.public, "b": b.public, "c": b.public}):
        with pytest.raises(Refused, match=r"^keys: "):
            mask_share(np.zeros(2, dtype=np.int64), a, "a", tuple(keys), keys, BOUND)
    with pytest.raises(Refused, match=r"^keys: "):  # not the key of this site's file
        mask_share(
            np.zeros(2, dtype=np.int64), a, "a", ("a", "b"), {"a": number(9), "b": b.public}, BOUND
        )


def test_a_key_is_in_a_file_for_this_user_and_made_once(tmp_path: Path) -> None:
    path = tmp_path / "north.trial.masks"
    first = RunKey.make(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and len(path.read_bytes()) == 32
    assert RunKey.make(path).public == first.public == RunKey.read(path).public
    RunKey.erase_file(path)
    assert not path.exists()
    RunKey.erase_file(path)  # a second time does no harm
    with pytest.raises(LedgerCorrupt, match="cannot be replaced"):
        RunKey.read(path)


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33])
def test_damaged_key_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "north.trial.masks"
    path.write_bytes(content)
    with pytest.raises(LedgerCorrupt, match="missing or damaged"):
        RunKey.make(path)


def test_erasing_writes_over_the_key_first(tmp_path: Path) -> None:
    path, other = tmp_path / "north.trial.masks", tmp_path / "other"
    RunKey.make(path)
    other.hardlink_to(path)  # what is left on the disk under no name
    RunKey.erase_file(path)
    assert other.read_bytes() == bytes(masks.BYTES)
