"""Processes that race for a budget, and that are killed, on one durable ledger.

Run as a script, this file is the worker of its own tests: it forks the processes.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ledgers import DATA, again, environment, price, release

from sottovoce.errors import LedgerError, LedgerMismatch, SottovoceError
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.file import ChainFile
from sottovoce.privacy.accountants import PureAccountant

RELEASES = 600


class Worker:
    """A process that forks those that the tests race and kill."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment()
            | {
                "OPENBLAS_NUM_THREADS": "1",
                "OMP_NUM_THREADS": "1",
            },  # forks must be single-threaded
        )

    def __call__(self, job: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([job, arguments], default=str) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    process = Worker()
    yield process
    process.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
class TestProcesses:
    def test_of_two_that_race_for_the_last_of_a_budget_one_wins(
        self, worker: Worker, tmp_path: Path
    ) -> None:
        for attempt in range(30):
            path = tmp_path / f"{attempt}.ledger"
            with DurableLedger.create(
                path, epsilon=2.5 * price(), n_nodes=2, fingerprint=DATA
            ) as ledger:
                ledger.record_event(release())
                assert sorted(worker("race", path=path)) == ["BudgetExceeded", "won"]
                assert (
                    ledger.account.committed_epsilon()[0] == 2 * price()
                    and len(ledger.show()["runs"]) == 1
                )
                ledger.file.verify()

    def test_killed_at_any_instant_the_ledger_is_never_below_what_was_handed_out(
        self, worker: Worker, tmp_path: Path
    ) -> None:
        path, out, rng = tmp_path / "data.ledger", tmp_path / "handed out", random.Random(0)
        DurableLedger.create(
            path, epsilon=1.001 * RELEASES * price(0.1), n_nodes=2, fingerprint=DATA
        ).close()
        out.touch()
        seen: dict[int, str] = {}
        killed, progress = 0, set()
        for attempt in range(31):
            # Every other time two processes at once: nothing tells a resumed run from a second
            # process on the same run. They are killed some draws later, at an instant that is
            # nobody's choice; the last time, not at all.
            draws = rng.randint(1, RELEASES // 40) if attempt < 30 else 0
            statuses = worker(
                "train",
                path=path,
                out=out,
                count=1 + attempt % 2,
                draws=draws,
                delay=rng.uniform(0, 2e-3),
            )
            killed += any(status == -signal.SIGKILL for status in statuses)
            assert set(statuses) <= {0, -signal.SIGKILL}
            for line in out.read_text().splitlines():
                number, payload = line.split()
                assert seen.setdefault(int(number), payload) == payload
            with again(path) as ledger:
                ledger.file.verify()
                assert len(ledger.rows) >= len(seen)
                for number, payload in seen.items():
                    assert ledger.runs.records_of_run("run").payload(number) == bytes.fromhex(
                        payload
                    )
                progress.add(len(ledger.rows))
        assert killed >= 20 and len(progress) > 10  # the instants were spread over the run
        with again(path) as ledger:
            (shown,) = ledger.show()["runs"]
            assert (shown["state"], shown["charged"], shown["released"]) == (
                "closed",
                RELEASES,
                RELEASES,
            )
            # in doubles; the ledger sums exactly
            total = PureAccountant().epsilon_of_events([release(0.1)] * RELEASES)[0]
            assert ledger.total() == pytest.approx(total, rel=1e-12)

    @pytest.mark.parametrize(
        ("point", "charged", "stored"),
        [
            ("before row", 1, 1),
            ("before draw", 2, 1),
            ("after draw", 2, 1),
            ("before payload", 2, 1),
            ("stored", 2, 2),
        ],
    )
    def test_crash_points(
        self, worker: Worker, tmp_path: Path, point: str, charged: int, stored: int
    ) -> None:
        path, out = tmp_path / "data.ledger", tmp_path / "out"
        DurableLedger.create(path, epsilon=9 * price(), n_nodes=2, fingerprint=DATA).close()
        assert worker("train", path=path, out=out, count=1, point=point, at=2, releases=4) == [
            -signal.SIGKILL
        ]
        assert len(out.read_text().splitlines()) == 1
        with again(path) as ledger:
            (shown,) = ledger.show()["runs"]
            assert (shown["charged"], shown["released"], shown["held"]) == (
                charged,
                stored,
                4 - charged,
            )
            # A crash gives nothing back by itself.
            assert ledger.account.committed_epsilon()[0] == pytest.approx(4 * price(0.1))
            before = ledger.runs.records_of_run("run").payload(2) if stored == 2 else None
        assert worker("train", path=path, out=out, count=1, releases=4) == [0]
        with again(path) as ledger:
            assert len(ledger.rows) == 4
            assert before in (None, ledger.runs.records_of_run("run").payload(2))

    def test_a_fork_opens_the_ledger_anew(self, worker: Worker, tmp_path: Path) -> None:
        path = tmp_path / "data.ledger"
        DurableLedger.create(path, epsilon=1.0, n_nodes=2).close()
        assert "before a fork" in worker("fork", path=path)

    def test_a_fork_amid_a_look_does_not_keep_the_lock(
        self, worker: Worker, tmp_path: Path
    ) -> None:
        path = tmp_path / "data.ledger"
        DurableLedger.create(path, epsilon=1.0, n_nodes=2).close()
        assert worker("amid", path=path) == 1


# The worker's side


def _fork(job: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        job()
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(1)
    os._exit(0)


def _race(path: str) -> list[str]:
    gate_out, gate_in = os.pipe()
    result_out, result_in = os.pipe()

    def reserve() -> None:
        os.close(gate_in)
        with again(Path(path)) as ledger:
            os.read(gate_out, 1)  # returns when the parent closes its end: both start at once
            try:
                ledger.reserve(f"run {os.getpid()}", "plan", [release()])
                os.write(result_in, b"won\n")
            except SottovoceError as error:
                os.write(result_in, type(error).__name__.encode() + b"\n")

    pids = [_fork(reserve) for _ in range(2)]
    os.close(result_in)
    time.sleep(0.03)
    os.close(gate_in)
    for pid in pids:
        os.waitpid(pid, 0)
    with os.fdopen(result_out) as results:
        answer = results.read().split()
    os.close(gate_out)
    return answer


def _train(
    path: str,
    out: str,
    count: int,
    draws: int = 0,
    delay: float = 0.0,
    point: str = "",
    at: int = 0,
    releases: int = RELEASES,
) -> list[int]:
    first, drew = os.pipe()

    def die(here: str, number: int) -> None:
        if point and (here, number) == (point, at):
            os.kill(os.getpid(), signal.SIGKILL)

    def train() -> None:
        append = ChainFile.append_record

        def appending(
            file: ChainFile[Any], record: dict[str, Any], payload: bytes | None = None
        ) -> None:
            append(file, record, payload)  # inside the transaction, before its commit
            die(
                {"charge": "before row", "store": "before payload"}.get(record["kind"], ""),
                record.get("release", 0),
            )

        ChainFile.append_record = appending  # type: ignore[method-assign]
        with again(Path(path)) as ledger, open(out, "ab", buffering=0) as file:
            try:
                made = ledger.reserve("run", "plan", [release(0.1)] * releases)
            except LedgerMismatch:  # the other process has closed it
                made = ledger.resume("run", "plan")

            def draw() -> bytes:
                os.write(drew, b".")
                die("before draw", made.release)
                noise = os.urandom(16)
                die("after draw", made.release)
                return noise

            for number in range(1, releases + 1):
                payload = made.charge_once(release(0.1), draw)
                die("stored", number)
                file.write(f"{number} {payload.hex()}\n".encode())
            made.close()

    pids = [_fork(train) for _ in range(count)]
    os.close(drew)
    if draws:
        while draws > 0 and (
            seen := len(os.read(first, draws))
        ):  # nothing is read when all have finished
            draws -= seen
        for pid in pids:
            time.sleep(delay)
            os.kill(pid, signal.SIGKILL)  # not waited for yet, so the number is still its own
    exits = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    os.close(first)
    return exits


def _forked(path: str) -> str:
    out, into = os.pipe()
    with DurableLedger.open(path) as ledger:

        def use() -> None:
            try:
                ledger.record_event(release(0.1))
            except LedgerError as error:
                os.write(into, str(error).encode())
            ledger.close()

        os.waitpid(_fork(use), 0)
        ledger.record_event(release(0.1))  # the parent's is untouched
    os.close(into)
    with os.fdopen(out) as said:
        return said.read()


def _amid(path: str) -> int:
    with DurableLedger.open(path, timeout=1.0) as ledger:
        with ledger.file.transaction("DEFERRED"):  # as when another thread forks
            pid = _fork(lambda: time.sleep(60.0))
        try:
            ledger.record_event(release(0.1))
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return len(ledger.rows)


if __name__ == "__main__":
    for line in sys.stdin:
        job, arguments = json.loads(line)
        print(
            json.dumps(
                {"race": _race, "train": _train, "fork": _forked, "amid": _amid}[job](**arguments)
            ),
            flush=True,
        )
