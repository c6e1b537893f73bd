"""A durable ledger that was edited, damaged, rolled back or mixed up with another; what an
export tells.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import sqlite3
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ledgers import DATA, again, release

from sottovoce.errors import (
    InvalidInput,
    LedgerCorrupt,
    LedgerError,
    LedgerMismatch,
    LedgerVersion,
    UnknownEvent,
)
from sottovoce.ledger.chain import hash_of_record
from sottovoce.ledger.durable import DurableLedger, rows_digest
from sottovoce.ledger.identity import is_ledger_of_rows


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records 1 create, 2 bind, 3 charge, 4 reserve, 5 charge, 6 store, 7 charge, 8 store, 9
    close, 10 charge.
    """
    path = tmp_path_factory.mktemp("used") / "data.ledger"
    with DurableLedger.create(path, epsilon=9.0, n_nodes=2, fingerprint=DATA) as ledger:
        ledger.record_event(release(0.25))
        with ledger.reserve("run", "plan", [release(0.1), release(0.1), release(0.2)]) as made:
            made.charge_once(release(0.1), lambda: b"payload one")
            made.charge_once(release(0.1), lambda: b"payload two")
        ledger.record_event(release(0.125))
    assert [p.name for p in path.parent.iterdir()] == ["data.ledger"]
    return path


@pytest.fixture
def copy(used: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(used, tmp_path / "copy.ledger"))


def tamper(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    with db:
        for statement in statements:
            db.execute(statement)
    db.close()


SWAP = (
    "UPDATE log SET id = -1 WHERE id = {0}",
    "UPDATE log SET id = {0} WHERE id = {1}",
    "UPDATE log SET id = {1} WHERE id = -1",
)


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (
            ["UPDATE log SET body = replace(body, '0.25', '0.05') WHERE id = 3"],
            "record 3 was edited",
        ),
        (
            ["UPDATE log SET body = replace(body, '9.0', '99.0') WHERE id = 1"],
            "record 1 was edited",
        ),
        (["UPDATE log SET hash = zeroblob(32) WHERE id = 5"], "record 5 was edited"),
        (["DELETE FROM log WHERE id = 10"], "holds 9 records, but 10"),
        (["DELETE FROM log WHERE id > 8"], "holds 8 records, but 10"),
        (
            ["DELETE FROM log WHERE id = 10", "UPDATE meta SET records = 9"],
            "holds 9 records, but 9",
        ),
        (["DELETE FROM log WHERE id = 3"], "record 3 was edited"),
        (["DELETE FROM log WHERE id = 3", "UPDATE log SET id = id - 1 WHERE id > 3"], "record 3"),
        (["DELETE FROM log"], "holds 0 records"),
        (["DELETE FROM meta"], "its head is missing"),
        ([s.format(5, 7) for s in SWAP], "record 5"),
        ([s.format(9, 10) for s in SWAP], "record 9"),
        (["INSERT INTO log SELECT 11, body, hash FROM log WHERE id = 10"], "record 11"),
        (["INSERT INTO log SELECT -5, body, hash FROM log WHERE id = 10"], "outside its chain"),
        (["UPDATE meta SET head = zeroblob(32)"], "10 were written"),
        (["UPDATE meta SET secret = zeroblob(32)"], "record 1 contradicts"),
        (["UPDATE meta SET file_id = zeroblob(16)"], "record 1"),
        (["UPDATE payload SET bytes = x'00' WHERE id = 6"], "payload of record 6"),
        (["DELETE FROM payload WHERE id = 8"], "payloads were added"),
        (["INSERT INTO payload VALUES (7, x'00')"], "payloads were added"),
        (["DROP TABLE log"], "is damaged"),
    ],
)
def test_tampering_is_detected(copy: Path, statements: list[str], message: str) -> None:
    tamper(copy, *statements)
    with pytest.raises(LedgerCorrupt, match=message) as refusal, again(copy) as ledger:
        ledger.file.verify()
    assert "\n" not in str(refusal.value) and str(copy) in str(refusal.value)


def test_tampering_is_detected_by_a_ledger_that_is_open(copy: Path) -> None:
    with again(copy) as ledger:
        tamper(
            copy,
            "DELETE FROM log WHERE id = 10",
            "UPDATE meta SET records = 9, head = (SELECT hash FROM log WHERE id = 9)",
        )
        with pytest.raises(LedgerCorrupt, match="lacks records"):
            ledger.record_event(release(0.1))


def test_only_a_noted_head_tells_an_older_copy_or_a_forgery(
    used: Path, copy: Path, tmp_path: Path
) -> None:
    with again(used) as ledger:
        early = ledger.file.head()
    with again(copy) as ledger:
        ledger.record_event(release(0.1))
        late = ledger.file.verify(expected_head=early)  # it went on from there
    again(used).close()  # the older copy is sound by itself
    with pytest.raises(LedgerCorrupt, match="older copy"):
        again(used, expected_head=late)
    forged = Path(shutil.copy(used, tmp_path / "forged.ledger"))
    db = sqlite3.connect(forged)
    head = hashlib.blake2b(
        db.execute("SELECT file_id FROM meta").fetchone()[0],
        digest_size=32,
        person=b"sottovoce ledger",
    ).digest()
    with db:
        for number, body in db.execute("SELECT id, body FROM log ORDER BY id").fetchall():
            body = body.replace("9.0", "99.0")
            head = hash_of_record(head, number, body)
            db.execute("UPDATE log SET body = ?, hash = ? WHERE id = ?", (body, head, number))
        db.execute("UPDATE meta SET head = ?", (head,))
    db.close()
    with again(forged) as ledger:
        ledger.file.verify()
        with pytest.raises(LedgerCorrupt, match="expected head"):
            ledger.file.verify(expected_head=early)
        for nonsense in ("", "x:1", "3:00"):
            with pytest.raises(InvalidInput, match=r"^head=.*64 hexadecimal"):
                ledger.file.verify(expected_head=nonsense)


def test_a_damaged_file_is_refused_or_unharmed(used: Path, tmp_path: Path) -> None:
    whole, rng = used.read_bytes(), random.Random(1)
    with again(used) as ledger:
        expected = ledger.file.head()
    refused = 0
    for trial in range(330):
        path, raw = tmp_path / f"{trial}.ledger", bytearray(whole)
        if trial < 10:
            raw = raw[: trial * len(raw) // 10]
        else:
            # Half of them in the first page: SQLite's header, and the tables' declarations at its
            # end.
            raw[rng.randrange(4096 if trial % 2 else len(raw))] ^= 1 << rng.randrange(8)
        path.write_bytes(raw)
        try:
            with again(path) as ledger:
                assert ledger.file.verify() == expected
        except LedgerError:
            refused += 1
    assert refused >= 40


def test_files_that_are_not_ledgers_are_refused(tmp_path: Path, copy: Path) -> None:
    other = tmp_path / "other.sqlite"
    tamper(other, "CREATE TABLE t (x)")
    (tmp_path / "text").write_text("no ledger " * 1000)
    (tmp_path / "empty").touch()
    for name in ("other.sqlite", "text", "empty"):
        with pytest.raises(LedgerCorrupt, match="not a ledger"):
            DurableLedger.open(tmp_path / name)
    with sqlite3.connect(other) as db:  # a look leaves it as it was
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    db.close()
    with pytest.raises(LedgerError, match="no such file"):
        DurableLedger.open(tmp_path / "absent")
    with pytest.raises(LedgerError, match="exists"):
        DurableLedger.create(copy, epsilon=1.0)
    tamper(copy, "PRAGMA user_version = 9")
    with pytest.raises(LedgerVersion, match=r"schema 9,.*5"):
        again(copy)


def test_an_event_of_a_newer_version_is_not_guessed_at(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(
        sys.modules["sottovoce.privacy.events"]._KINDS, "SphericalObjectivePerturbation"
    )
    with pytest.raises(UnknownEvent, match=r"^event="):
        again(copy)


def test_another_data_set_is_refused(copy: Path) -> None:
    other = rows_digest(np.arange(12.0).reshape(3, 4))  # the same numbers, other rows
    with pytest.raises(LedgerMismatch, match="other rows"):
        DurableLedger.open(copy, fingerprint=other)
    with DurableLedger.open(copy) as ledger:  # without rows, it can be read only
        assert ledger.show()["bound"] and ledger.total() > 0
        for spend in (
            lambda: ledger.record_event(release(0.1)),
            lambda: ledger.reserve("new", "plan", [release(0.1)]),
        ):
            with pytest.raises(LedgerMismatch, match="were not shown"):
                spend()
        ledger.identity.bind_to_rows(DATA)
        ledger.record_event(release(0.1))
        with pytest.raises(InvalidInput, match="fingerprint"):
            ledger.identity.bind_to_rows(b"short")


def test_rows_that_are_known_are_known_by_a_further_digest(copy: Path) -> None:
    raw, encoded = rows_digest(np.arange(3.0)), rows_digest(np.arange(4.0))
    with DurableLedger.open(copy) as ledger:
        with pytest.raises(LedgerMismatch, match="other rows"):
            ledger.identity.bind_to_rows(raw, encoded)
        before = ledger.file.head()
        ledger.identity.bind_to_rows(raw, DATA, learn=False)
        assert ledger.file.head() == before  # somebody only looked
        ledger.identity.bind_to_rows(raw, DATA)
        assert ledger.file.contains_head(before) and ledger.file.head() != before
        total, after = ledger.total(), ledger.file.head()
        ledger.identity.bind_to_rows(raw)
        assert ledger.file.head() == after and ledger.total() == total
    with DurableLedger.open(copy, fingerprint=raw) as ledger:
        # An alternative is never learnt: another unit of privacy may encode the same.
        ledger.identity.bind_to_rows(raw, encoded)
        with pytest.raises(LedgerMismatch, match="other rows"):
            ledger.identity.bind_to_rows(encoded)
    assert is_ledger_of_rows(copy, encoded, raw) and not is_ledger_of_rows(copy, encoded)


def test_a_ledger_in_use_cannot_be_bound(tmp_path: Path) -> None:
    with DurableLedger.create(tmp_path / "a", epsilon=9.0, n_nodes=2) as ledger:
        ledger.record_event(release())
        with pytest.raises(LedgerMismatch, match="used before"):
            ledger.identity.bind_to_rows(DATA)
    with pytest.raises(LedgerError, match="closed"):
        ledger.total()


def test_a_busy_file_is_waited_for_then_refused(copy: Path) -> None:
    db = sqlite3.connect(copy, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    with DurableLedger.open(copy, timeout=0.05) as ledger:
        assert ledger.total() > 0  # reading does not wait
        with pytest.raises(LedgerError, match="by another process"):
            ledger.identity.bind_to_rows(DATA)
    db.close()


@pytest.mark.parametrize(
    "options",
    [{"n_nodes": 0}, {"epsilon": [1.0, 2.0], "n_nodes": 3}, {"accountant": "nope"}, {"delta": 2.0}],
)
def test_invalid_options_make_no_ledger(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        DurableLedger.create(tmp_path / "a", **({"epsilon": 1.0} | options))
    assert not list(tmp_path.iterdir())


def test_commits_are_synchronous_and_the_file_is_private(tmp_path: Path) -> None:
    with DurableLedger.create(tmp_path / "a", epsilon=1.0, fingerprint=DATA) as ledger:
        db = ledger.file._db
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        # EXTRA: the folder, too, when the journal goes
        assert db.execute("PRAGMA synchronous").fetchone() == (3,)
        assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}


def test_an_export_can_be_verified_by_anybody_and_tells_nothing(used: Path, tmp_path: Path) -> None:
    """The formula of docs/reference/ledger.md, with the standard library only."""
    with again(used) as ledger:
        ledger.file.export_records(tmp_path / "export.jsonl")
        shown, secret = json.dumps(ledger.show(), allow_nan=False), ledger.file.chain.secret
    text = (tmp_path / "export.jsonl").read_text()
    header, *records = (json.loads(line) for line in text.splitlines())

    def blake(data: bytes) -> bytes:
        return hashlib.blake2b(data, digest_size=32, person=b"sottovoce ledger").digest()

    head = blake(bytes.fromhex(header["file_id"]))
    for number, record in enumerate(records, 1):
        body = json.dumps(record["record"], sort_keys=True, separators=(",", ":"))
        head = blake(head + number.to_bytes(8, "big") + body.encode())
        assert record["hash"] == head.hex() and record["n"] == number
    assert header["hash"] == head.hex() and header["records"] == len(records) == 10
    assert "payload one" not in text
    unkeyed = [
        DATA.hex(),
        hashlib.blake2b(DATA, digest_size=32, person=b"sottovoce ledger").hexdigest(),
    ]
    for hidden in (secret.hex(), b"payload one".hex(), *unkeyed):
        assert hidden not in text and hidden not in shown


def test_the_same_rows_have_another_fingerprint_in_every_ledger(tmp_path: Path) -> None:
    tags = set()
    for name in "ab":
        with DurableLedger.create(tmp_path / name, epsilon=1.0, fingerprint=DATA) as ledger:
            tags.update(ledger.file.chain.state.tags)
    assert len(tags) == 2
