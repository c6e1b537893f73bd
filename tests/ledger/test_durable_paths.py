"""One file, two paths; side files of another time; processes that die amid a commit.  Nothing that
was said is lost.

Run as a script, this file is the process that its tests stop and kill: it charges the ledger, and
says so after each.
"""

from __future__ import annotations

import copy as copying
import errno
import os
import pickle
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from ledgers import DATA, again, environment, price, release

from sottovoce.errors import InvalidInput, LedgerCorrupt, LedgerError, LedgerMismatch, NotWritten
from sottovoce.ledger.chain import Chain
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.history import History

PAGE = 4096
SIDES = ("-journal", "-wal", "-shm")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data.ledger"
    with DurableLedger.create(path, epsilon=1e6, n_nodes=2, fingerprint=DATA) as ledger:
        ledger.record_event(release())
    return path


def beside(path: Path) -> list[str]:
    return sorted(
        found.name.removeprefix(path.name) for found in path.parent.glob(f"{path.name}-*")
    )


# Several paths


def test_create_leaves_nothing_behind_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "folder" / "x.ledger"
    with pytest.raises(InvalidInput, match=r"^fingerprint"):
        DurableLedger.create(path, epsilon=1.0, fingerprint=b"short")
    assert list(tmp_path.iterdir()) == []

    def no_space(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", no_space)
        with pytest.raises(NotWritten):
            DurableLedger.create(path, epsilon=1.0)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "new").write_text("a file where a folder is needed")
    with pytest.raises(NotWritten, match="Not a directory"):
        DurableLedger.create(path, epsilon=1.0)
    assert (tmp_path / "new").is_file()


def test_a_file_with_two_paths_is_refused_until_one_is_gone(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.ledger"
    with again(path) as ledger:
        os.link(path, other)
        for use in (
            ledger.total,
            lambda: ledger.record_event(release()),
            lambda: again(other),
            lambda: again(path),
        ):
            with pytest.raises(LedgerError, match=r"2 paths") as refusal:
                use()
            assert "\n" not in str(refusal.value)
        other.unlink()
        ledger.record_event(release())
        assert len(ledger.rows) == 2


def test_a_link_by_name_is_the_same_ledger(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    name = tmp_path / "elsewhere" / "name.ledger"
    name.symlink_to(path)
    with again(path) as one, again(name) as two:
        two.record_event(release())
        assert len(one.rows) == len(two.rows) == 2
    assert [found.name for found in name.parent.iterdir()] == ["name.ledger"]


def test_a_ledger_that_moved_or_was_replaced_while_it_was_open_is_refused(
    path: Path, tmp_path: Path
) -> None:
    with again(path) as ledger:
        path.rename(tmp_path / "moved")
        with pytest.raises(LedgerError, match="cannot be opened"):
            ledger.record_event(release())
        shutil.copy(tmp_path / "moved", path)
        with pytest.raises(LedgerError, match="not the file"):
            ledger.record_event(release())
        path.unlink()
        (tmp_path / "moved").rename(path)
        ledger.record_event(release())
        assert len(ledger.rows) == 2


@pytest.mark.parametrize("whole_folder", [False, True])
def test_a_ledger_that_moved_and_left_a_link_is_refused_until_it_is_back(
    path: Path, tmp_path: Path, whole_folder: bool
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    old = home if whole_folder else home / path.name
    new = tmp_path / "moved"
    path.rename(home / path.name)
    with again(home / path.name) as ledger:
        old.rename(new)
        old.symlink_to(new)  # the same file, and its journals would still go to the old place
        with pytest.raises(LedgerError, match="moved or replaced"):
            ledger.record_event(release())
        old.unlink()
        new.rename(old)
        ledger.record_event(release())
        assert len(ledger.rows) == 2


@pytest.mark.skipif(shutil.which("unshare") is None, reason="mounts")
def test_a_file_that_is_mounted_is_refused(path: Path, tmp_path: Path) -> None:
    inside, folder = tmp_path / "in side", tmp_path / "folder"
    inside.touch()
    folder.mkdir()
    code = (
        "import sys; from ledgers import again; from pathlib import Path; "
        "print(len(again(Path(sys.argv[1])).rows))"
    )
    found = []
    for target, opened in ((inside, inside), (folder, folder / path.name)):
        source = path if target == inside else path.parent
        script = 'mount --bind "$1" "$2" || exit 77; exec "$3" -c "$4" "$5"'
        argv = [
            "unshare",
            "-m",
            "sh",
            "-c",
            script,
            "sh",
            source,
            target,
            sys.executable,
            code,
            opened,
        ]
        done = subprocess.run(
            list(map(str, argv)), capture_output=True, text=True, env=environment()
        )
        if "unshare:" in done.stderr or done.returncode == 77:
            pytest.skip("may not mount")
        found.append(done.stdout + done.stderr)
    assert "is mounted" in found[0] and "mount the folder" in found[0]
    assert found[1] == "1\n"  # a folder that is mounted brings the files beside the ledger along


@pytest.mark.skipif(sys.platform != "linux", reason="where the lock lies")
def test_the_file_itself_is_locked_whatever_it_is_called(path: Path, tmp_path: Path) -> None:
    import fcntl

    name = tmp_path / "name.ledger"
    name.symlink_to(path)
    with again(path, timeout=0.05) as ledger, path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for use in (
            ledger.total,
            lambda: ledger.record_event(release()),
            lambda: again(name, timeout=0.05),
        ):
            with pytest.raises(LedgerError, match="by another process"):
                use()
        fcntl.flock(held, fcntl.LOCK_UN)
        ledger.record_event(release())


# Nothing beside the file


def test_a_commit_is_in_the_file_itself(path: Path, tmp_path: Path) -> None:
    with again(path) as ledger:
        run = ledger.reserve("run", "plan", [release(0.1)] * 2)
        steps = [
            lambda: ledger.record_event(release()),
            lambda: run.charge_once(release(0.1), lambda: b"drawn"),
            run.close,
        ]
        for number, step in enumerate(steps):
            step()
            assert beside(path) == []
            alone = Path(shutil.copy(path, tmp_path / f"{number}.copy"))
            with again(alone) as twin:
                assert twin.file.verify() == ledger.file.head()


def verified(path: Path) -> int:
    with again(path) as ledger:
        ledger.file.verify()
        return len(ledger.rows)


def picture(path: Path, folder: Path) -> Path:
    folder.mkdir()
    for found in path.parent.glob(f"{path.name}*"):
        if found.is_file():
            shutil.copy(found, folder)
    return folder / path.name


def journal(before: bytes) -> bytes:
    """A journal that takes the file back to `before`, as SQLite writes them."""
    pages = [before[i : i + PAGE] for i in range(0, len(before), PAGE)]
    numbers = (len(pages), 0, len(pages), 512, PAGE)
    whole = bytes.fromhex("d9d505f920a163d7") + b"".join(n.to_bytes(4, "big") for n in numbers)
    whole = whole.ljust(512, b"\0")
    for number, page in enumerate(pages, 1):
        checked = sum(page[i] for i in range(PAGE - 200, 0, -200))
        whole += number.to_bytes(4, "big") + page + checked.to_bytes(4, "big")
    return whole


def records_of(db: sqlite3.Connection) -> int:
    """The number of records by their second copy."""
    (records,) = db.execute("SELECT records FROM meta").fetchone()
    return int(records)


def test_journal_of_another_time_rolls_nothing_back(path: Path, tmp_path: Path) -> None:
    states = [path.read_bytes()]
    with again(path) as ledger:
        for _ in range(3):
            ledger.record_event(release())
            states.append(path.read_bytes())
    side = Path(f"{path}-journal")
    for age, before in enumerate(reversed(states)):
        believing = tmp_path / "believing"
        believing.write_bytes(states[-1])
        Path(f"{believing}-journal").write_bytes(journal(before))
        with closing(sqlite3.connect(believing)) as db:  # SQLite alone believes it
            assert records_of(db) == 3 + 3 - age
        side.write_bytes(journal(before))
        if age < 2:  # of the last change, or of none: not needed, because the file is whole
            again(path).close()
            assert not side.exists()
        else:
            with pytest.raises(LedgerCorrupt, match=r"'data.ledger-journal'.* not used") as refusal:
                again(path)
            assert "\n" not in str(refusal.value) and side.exists()
            side.unlink()
        assert path.read_bytes() == states[-1]
    with again(path) as ledger:
        side.write_bytes(journal(states[0]))  # while it is open, too
        with pytest.raises(LedgerCorrupt, match="its last change"):
            ledger.record_event(release())
        side.write_bytes(b"")
        ledger.record_event(release())
        assert len(ledger.rows) == 5 and beside(path) == []


def test_half_a_commit_is_rolled_back_by_its_own_journal_only(path: Path) -> None:
    """Every part of the pages of a commit that a crash may leave behind; the first page comes
    first.
    """
    before = path.read_bytes()
    with again(path) as ledger, ledger.reserve("run", "plan", [release(0.1)]) as run:
        run.record_event(release(0.1), kept=True)
        charged = path.read_bytes()
        run.store_payload(bytes(9000))
        after = path.read_bytes()
    changed = [
        i for i in range(0, len(after), PAGE) if after[i : i + PAGE] != charged[i : i + PAGE]
    ]
    assert len(changed) > 4
    for written in range(len(changed) + 1):
        half = bytearray(charged)
        for i in changed[:written]:
            half[i : i + PAGE] = after[i : i + PAGE]
        whole = written in (0, len(changed))
        path.write_bytes(half)
        Path(f"{path}-journal").write_bytes(journal(charged))
        with again(path) as ledger:
            ledger.file.verify()
            assert ledger.show()["runs"][0]["released"] == (written == len(changed))
        assert beside(path) == []
        path.write_bytes(half)
        if whole:
            again(path).close()
            continue
        with pytest.raises(LedgerCorrupt):  # without its journal
            verified(path)
        path.write_bytes(half)
        Path(f"{path}-journal").write_bytes(journal(before))  # with one of another time
        with pytest.raises(LedgerCorrupt, match="its last change"):
            again(path)
        assert path.read_bytes() == half
        Path(f"{path}-journal").unlink()


def test_acknowledged_charges_survive_a_kill_at_any_instant(path: Path, tmp_path: Path) -> None:
    """Pictures of a stopped process's files are what a kill leaves; its journals are put beside
    the ledger later.
    """
    said, rng = tmp_path / "said", random.Random(4)
    argv = [sys.executable, __file__, str(path), str(said)]
    with subprocess.Popen(argv, env=environment()) as process:
        while not said.exists() or not said.stat().st_size:
            time.sleep(0.01)
        pictures: list[tuple[Path, int]] = []
        # by the random number that a journal's header has: one a transaction
        hot: dict[bytes, bytes] = {}
        for number in range(2000):
            time.sleep(rng.uniform(0.0, 2e-3))
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            shown = picture(path, tmp_path / str(number))
            told = said.stat().st_size
            process.send_signal(signal.SIGCONT)
            if beside(shown) == ["-journal"]:
                side = Path(f"{shown}-journal").read_bytes()
                if any(side[8:12]):  # it says how many pages it holds: they may be written over now
                    hot[side[12:16]] = side
            elif number > 20:
                shutil.rmtree(shown.parent)
                continue
            pictures.append((shown, told))
            if len(hot) == 6:
                break
        process.kill()
    with again(path) as ledger:
        assert len(ledger.rows) > said.stat().st_size >= pictures[-1][1]
    whole = path.read_bytes()
    for shown, told in pictures:
        # one before the process began, one that it had not told of yet
        assert told < verified(shown) <= told + 2
        assert beside(shown) == []
    assert len(hot) == 6
    noticed = 0
    for side in hot.values():
        Path(f"{path}-journal").write_bytes(side)
        try:
            again(path).close()
        except LedgerCorrupt:
            noticed += 1
            Path(f"{path}-journal").unlink()
        assert path.read_bytes() == whole
    # those of the last change, and of one that it died in, are not needed and go
    assert noticed >= 4


# Ledgers of the schema before, which kept a log beside them


@contextmanager
def logged(path: Path) -> Iterator[Chain[History]]:
    """Open and write it as the version before did."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA user_version = 3")
        (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
        assert mode == "wal"
        chain = Chain(db, "before", History)
        chain.read_identity()
        yield chain


def charge(chain: Chain[History]) -> None:
    chain._db.execute("BEGIN IMMEDIATE")
    chain.apply_new_records()
    chain.append_record(
        {"kind": "charge", "run": None, "release": None, "event": release().to_dict()}
    )
    chain._db.execute("COMMIT")


def test_write_ahead_log_of_schema_3_is_folded_in_with_all_commits(
    path: Path, tmp_path: Path
) -> None:
    with logged(path) as chain:
        for _ in range(3):
            charge(chain)
        killed = picture(path, tmp_path / "killed")
        with pytest.raises(LedgerError, match="by another process"):
            DurableLedger.open(path, timeout=0.05)
        charge(chain)
    assert beside(killed) == ["-shm", "-wal"]
    for place, rows in ((killed, 4), (path, 5)):
        assert verified(place) == rows
        with again(place) as ledger:
            assert ledger.total() == pytest.approx(rows * price())
            assert beside(place) == []
            ledger.record_event(release())
        with closing(sqlite3.connect(place)) as db:
            assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
            assert db.execute("PRAGMA user_version").fetchone() == (5,)


def test_write_ahead_log_of_another_time_or_ledger_is_refused(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.ledger"
    DurableLedger.create(other, epsilon=1.0, n_nodes=2, fingerprint=DATA).close()
    with logged(other) as chain:
        charge(chain)
        strange = picture(other, tmp_path / "strange")
    with logged(path) as chain:
        charge(chain)
        early = picture(path, tmp_path / "early")
        chain._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        charge(chain)
    before, side = path.read_bytes(), Path(f"{path}-wal")
    shutil.copy(f"{early}-wal", side)
    copied = Path(shutil.copy(path, tmp_path / "copied"))
    shutil.copy(side, f"{copied}-wal")
    with closing(sqlite3.connect(copied)) as db:  # SQLite alone goes back by one row
        assert records_of(db) == 4
    for log in (early, strange):
        shutil.copy(f"{log}-wal", side)
        with pytest.raises(LedgerCorrupt, match=r"'data.ledger-wal'.* not used|edited"):
            again(path)
        assert path.read_bytes() == before
    side.unlink()
    with again(path) as ledger:
        assert len(ledger.rows) == 3
        shutil.copy(f"{early}-wal", side)  # now there may be none at all
        for use in (lambda: ledger.record_event(release()), lambda: again(path)):
            with pytest.raises(LedgerCorrupt, match="its last change"):
                use()
        side.write_bytes(b"")
        ledger.record_event(release())
        assert beside(path) == []


def test_a_file_whose_mode_is_changed_while_it_is_open_is_refused(path: Path) -> None:
    with again(path) as ledger:
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA journal_mode = WAL")
        with pytest.raises(LedgerError, match="write-ahead log appeared"):
            ledger.record_event(release())
    with again(path) as ledger:
        ledger.record_event(release())
        assert beside(path) == []


# Handles


def test_a_ledger_on_disk_is_shared_or_opened_again_never_copied(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    with DurableLedger.open(path.name, fingerprint=DATA, timeout=7.0) as ledger:
        assert copying.copy(ledger) is copying.deepcopy(ledger) is ledger and ledger.identity.bound
        monkeypatch.chdir(tmp_path.parent)
        data = pickle.dumps(ledger)
        with pickle.loads(data) as twin:
            assert twin.file.timeout == 7.0 and len(twin.rows) == 1
            with pytest.raises(LedgerMismatch, match="were not shown"):
                twin.record_event(release())
            twin.identity.bind_to_rows(DATA)
            twin.record_event(release())
            assert len(ledger.rows) == 2
    with DurableLedger.create(tmp_path / "free", epsilon=1.0) as free:
        assert not free.identity.bound and not pickle.loads(pickle.dumps(free)).identity.bound


def _charge_and_say(path: str, said: str) -> None:
    with again(Path(path)) as ledger, open(said, "ab", buffering=0) as file:
        while True:
            ledger.record_event(release(0.1))
            file.write(b".")


if __name__ == "__main__":
    _charge_and_say(*sys.argv[1:])
