"""Releases that leave in journaled messages only: stored by the commit that writes the message
down, or drawn anew.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ledgers import DATA, again, release

from sottovoce.errors import LedgerError, LedgerMismatch
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.file import ChainFile
from sottovoce.ledger.journal import Journal
from sottovoce.ledger.run import Run

EVENTS = [release(0.1)] * 3


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data.ledger"
    DurableLedger.create(path, epsilon=9.0, n_nodes=2, fingerprint=DATA).close()
    with again(path) as ledger:
        ledger.reserve("run", "plan", EVENTS)
    return path


def _run(ledger: DurableLedger) -> Run:
    run = ledger.resume("run", "plan")
    run.journaled = True
    return run


def _never() -> bytes:
    raise AssertionError("drawn again")


def _kinds(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        return [
            json.loads(body)["kind"] for (body,) in db.execute("SELECT body FROM log ORDER BY id")
        ][3:]


def test_bytes_are_stored_by_the_commit_of_the_message(path: Path) -> None:
    """Two commits a release where there were three: its row, then its bytes and the message."""
    with again(path) as ledger:
        run, journal = _run(ledger), Journal(ledger, "run")
        assert run.charge_once(EVENTS[0], lambda: b"first") == b"first"
        assert _kinds(path) == ["charge"]
        assert journal.store_message(0, b"message") is None
        assert _kinds(path) == ["charge", "store", "send"]
        journal.store_inbox(0, b"inbox")
        assert journal.store_message(0, b"message") == b"inbox"
        run.charge_once(EVENTS[1], lambda: b"second")
        # whoever asks finds it: any use of the file writes it first
        assert run.payload() == b"second"
        assert _kinds(path)[4:] == ["charge", "store"]
        run.charge_once(EVENTS[2], lambda: b"third")
    assert _kinds(path)[-1] == "store"  # closing is a use, too
    with again(path) as ledger:
        ledger.file.verify()
        run = _run(ledger)
        assert [run.charge_once(event, _never) for event in EVENTS] == [
            b"first",
            b"second",
            b"third",
        ]


def _in_a_child(job: Callable[[], None]) -> None:
    pid = os.fork()
    if not pid:
        try:
            job()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("point", ["drawn", "store", "send", "sent"])
def test_after_a_kill_a_release_has_its_bytes_or_nobody_has_seen_any(
    path: Path, point: str
) -> None:
    """Killed after the draw, within the commit behind either record, and behind the commit."""

    def job() -> None:
        append = ChainFile.append_record

        def dying(
            file: ChainFile[Any], record: dict[str, Any], payload: bytes | None = None
        ) -> None:
            append(file, record, payload)
            if record["kind"] == point:
                os.kill(os.getpid(), signal.SIGKILL)

        ChainFile.append_record = dying  # type: ignore[method-assign]
        ledger = again(path)
        run = _run(ledger)
        run.charge_once(EVENTS[0], lambda: b"first")
        if point != "drawn":
            Journal(ledger, "run").store_message(0, b"message of first")

    _in_a_child(job)
    with again(path) as ledger:
        ledger.file.verify()
        run, journal = _run(ledger), Journal(ledger, "run")
        assert ledger.show()["runs"][0]["charged"] == 1
        drawn: list[bytes] = []

        def draw() -> bytes:
            drawn.append(b"second")
            return b"second"

        found, message = run.charge_once(EVENTS[0], draw), journal.sent(0)
        if point == "sent":
            assert (found, message, drawn) == (b"first", b"message of first", [])
        # the row is spent, no message of the first draw was written down, and so none was sent
        else:
            assert (found, message, drawn) == (b"second", None, [b"second"])


def test_a_message_that_cannot_be_written_down_leaves_the_bytes_for_the_next_use(
    path: Path,
) -> None:
    with again(path) as ledger:
        run, journal = _run(ledger), Journal(ledger, "run")
        journal.store_message(0, b"one")
        run.charge_once(EVENTS[0], lambda: b"first")
        with pytest.raises(LedgerMismatch, match=r"different message .*sent"):
            journal.store_message(0, b"another")
        assert _kinds(path) == ["send", "charge"]
        assert run.payload() == b"first"
        assert _kinds(path) == ["send", "charge", "store"]


def test_of_two_processes_in_one_run_the_later_one_sends_nothing(path: Path) -> None:
    with again(path) as slow, again(path) as quick:
        waiting, journal = _run(slow), Journal(slow, "run")
        waiting.charge_once(EVENTS[0], lambda: b"slow")
        assert quick.resume("run", "plan").charge_once(EVENTS[0], lambda: b"quick") == b"quick"
        with pytest.raises(LedgerMismatch, match="another process"):
            journal.store_message(0, b"message of slow")
        assert journal.sent(0) is None and slow.runs.records_of_run("run").payload(1) == b"quick"
        slow.file.verify()


def test_a_draw_that_fails_is_marked_at_once(path: Path) -> None:
    with again(path) as ledger:
        run = _run(ledger)
        with pytest.raises(ZeroDivisionError):
            run.charge_once(EVENTS[0], lambda: bytes(1 // 0))
        assert _kinds(path) == ["charge", "fail"]
    with again(path) as ledger, pytest.raises(LedgerError, match="others may have seen its error"):
        _run(ledger).charge_once(EVENTS[0], _never)
