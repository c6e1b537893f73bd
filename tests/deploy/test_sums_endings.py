"""Every ending of a run of sums, and what it leaves: no masking key, under no name, in no file."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from relay_in_tests import certify, transport
from sites_in_tests import Consortium, Stop, settle
from sums_in_tests import NAMES, Background, Lost, hub_of, run, summed

from sottovoce.cli import cli
from sottovoce.deploy.demonstration import find_free_port
from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.messages import HUB, OUT
from sottovoce.deploy.plan_file import write_plan_file
from sottovoce.deploy.session import Finished
from sottovoce.deploy.settings import SiteSettings
from sottovoce.deploy.site_net import SiteNet
from sottovoce.deploy.sums.masks import (
    RunKey,
    erase_old_masking_keys,
    give_up_run,
    masking_key_path,
    masking_keys_beside,
)
from sottovoce.errors import (
    LedgerCorrupt,
    LedgerError,
    Refused,
    SottovoceError,
    Unreachable,
    exit_code_for_error,
)
from sottovoce.ledger.durable import DurableLedger
from sottovoce.privacy.events import GaussianMechanism
from sottovoce.privacy.noise import KeyedNoise

pytest.importorskip("cryptography")

OTHERS = NAMES[1:]
FULL = "SQLITE_FULL"


class Ran:
    """What a command said, and its exit code."""

    def __init__(self, *arguments: str) -> None:
        found = CliRunner().invoke(cli, list(arguments))
        error = found.exception
        self.out, self.err, self.code = found.stdout, found.stderr, found.exit_code
        if isinstance(error, SottovoceError):
            self.err, self.code = f"{found.stderr}error: {error}\n", exit_code_for_error(error)
        elif error is not None and not isinstance(error, SystemExit):
            raise error


class Disk:
    """The folder of a run, and all keys that were made in it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.keys = folder, set[bytes]()
        make = RunKey.make

        def noted(path: Path) -> RunKey:
            key = make(path)
            self.keys.add(key._key.private_bytes_raw())
            return key

        monkeypatch.setattr(RunKey, "make", staticmethod(noted))

    def left(self, site: str = "") -> list[str]:
        """Files that are named like a key, or hold one, raw or as text."""
        texts = {
            form for key in self.keys for form in (key, key.hex().encode(), base64.b64encode(key))
        }
        found = []
        for path in filter(Path.is_file, self.folder.rglob("*")):
            try:
                data = path.read_bytes()
            except (
                FileNotFoundError
            ):  # a journal of a site that is under way, gone since it was listed
                continue
            if ".masks" in path.name or any(text in data for text in texts):
                found.append(path.name)
        return sorted(name for name in found if site in name)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


@pytest.fixture
def sites(tmp_path: Path, disk: Disk) -> Consortium:
    """Five sites; the first has its settings too."""
    made = summed(tmp_path / "sites")
    settle(made, tmp_path / "home")
    return made


@pytest.fixture
def settings(sites: Consortium) -> str:
    path = sites.folder / "site.toml"
    path.write_text(f'agreed = "{sites.plan.digest}"\n{path.read_text()}')
    return str(path)


def test_key_search_finds_renamed_and_copied_keys(
    sites: Consortium, disk: Disk, tmp_path: Path
) -> None:
    RunKey.make(tmp_path / "one.masks")
    (tmp_path / "one.masks").rename(tmp_path / "copy")
    (tmp_path / "text").write_text(f"key={next(iter(disk.keys)).hex()}")
    (tmp_path / "x.masks.tmp").touch()
    assert disk.left() == ["copy", "text", "x.masks.tmp"]


def test_a_run_that_is_finished_leaves_no_key(
    sites: Consortium, disk: Disk, tmp_path: Path
) -> None:
    with hub_of(sites, tmp_path / "hub.log") as hub:
        assert all(isinstance(end, Finished) for end in run(sites, hub).values())
    assert len(disk.keys) == 5 and disk.left() == []


@pytest.mark.parametrize("round", [0, 1, 3, 5, 6])
def test_a_lost_site_that_comes_back_is_told_and_leaves_no_key(
    sites: Consortium, disk: Disk, tmp_path: Path, round: int
) -> None:
    with hub_of(sites, tmp_path / "hub.log", 0.3, greeting=0.3) as hub:
        ends = run(sites, hub, lambda name: Lost(hub, name, round) if name == "north" else None)
        # it may go on
        assert isinstance(ends["north"], Stop) and disk.left() == ["north.trial.masks"]
        assert hub.rounds.sites_not_told == ["north"]
        late = sites.run_site("north", LocalTransport(hub, "north", 5.0))
        assert late.outcome.stopped == ("finished" if round == 6 else OUT)
        assert hub.rounds.sites_not_told == []
    assert disk.left() == []


def lost(sites: Consortium, tmp_path: Path, round: int = 3, after: bool = False) -> None:
    """North is lost for good in an exchange; the others finish."""
    with hub_of(sites, tmp_path / "hub.log", 0.3) as hub:
        run(sites, hub, lambda name: Lost(hub, name, round, after) if name == "north" else None)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("round", [0, 1, 2, 4])
def test_a_site_that_is_ended_never_shares_again(
    sites: Consortium, settings: str, disk: Disk, tmp_path: Path, round: int, after: bool
) -> None:
    """Before a share or after it: the key is erased, the budget has back what has no row, and no
    message leaves.
    """
    with hub_of(sites, tmp_path / "hub.log", 600.0) as hub, sites.ledger("north") as ledger:
        others = Background(sites, hub, OTHERS)
        with pytest.raises(Stop):
            sites.run_site("north", Lost(hub, "north", round, after))
        key = (sites.folder / "north.trial.masks").read_bytes()
        charged = len(ledger.rows)
        told = json.loads(Ran("site", "end", settings, "--json").out)
        assert (told["state"], told["charged"], told["returned"]) == (
            "given up",
            charged,
            4 - charged,
        )
        assert told["key_erased"] and told["sent"] == 0 and told["spent"] == ledger.total()
        assert ledger.show()["committed"] == ledger.show()["spent"]
        again = Ran("site", "end", settings)
        assert again.code == 0 and "no key" in again.out
        for restored in (False, True):  # not even with its key
            if restored:
                (sites.folder / "north.trial.masks").write_bytes(key)
            before, head = hub.log.last("trial", "north"), ledger.file.head()
            with pytest.raises(LedgerError, match="for good"):
                sites.run_site("north", LocalTransport(hub, "north", 1.0))
            assert hub.log.last("trial", "north") == before and ledger.file.head() == head
        ran = Ran("site", "run", settings)
        assert ran.code == 2 and "run trial" in ran.err
        hub.log.decisions.record_end_of_run("trial")
        hub.rounds.wake_waiting_threads()
        others.join()
    assert disk.left() == []


def test_ending_unstarted_run_is_refused(sites: Consortium, settings: str, disk: Disk) -> None:
    ended = Ran("site", "end", settings)
    assert ended.code == 2
    assert "run='trial': is not" in ended.err


def test_a_site_that_is_ended_on_a_full_disk_has_no_key(
    sites: Consortium, disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The close cannot be written; the key goes all the same, and the next try closes."""
    lost(sites, tmp_path)
    with sites.ledger("north") as ledger:
        full(ledger, monkeypatch)
        with pytest.raises(SottovoceError, match=FULL):
            give_up_run(ledger, "trial")
    assert disk.left() == []
    with sites.ledger("north") as ledger:
        assert give_up_run(ledger, "trial") == (2, False) and ledger.runs["trial"].given_up


def test_a_closed_run_leaves_no_key(
    sites: Consortium, settings: str, disk: Disk, tmp_path: Path
) -> None:
    lost(sites, tmp_path)
    closed = Ran("ledger", "close", str(sites.folder / "north.ledger"), "trial")
    assert closed.code == 0 and "key is erased" in closed.out
    assert disk.left() == []
    shown = Ran("ledger", "show", str(sites.folder / "north.ledger"), "--json")
    assert json.loads(shown.out)["runs"][0]["state"] == "given up"
    checked = Ran("site", "check", settings)
    assert checked.code == 2 and "ended its part" in checked.err


def test_a_hub_that_ends_the_run_leaves_no_key(
    sites: Consortium, disk: Disk, tmp_path: Path
) -> None:
    """Also at a site that was lost before, and starts again."""
    with hub_of(sites, tmp_path / "hub.log", 600.0) as hub:
        others = Background(sites, hub, OTHERS)
        with pytest.raises(Stop):
            sites.run_site("north", Lost(hub, "north", 3))
        hub.log.decisions.record_end_of_run("trial")
        hub.rounds.wake_waiting_threads()
        assert {end.outcome.stopped for end in others.join().values()} == {HUB}
        assert disk.left() == ["north.trial.masks"]
        assert sites.run_site("north", LocalTransport(hub, "north", 5.0)).outcome.stopped == HUB
    assert disk.left() == []


def full(ledger: DurableLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on nothing can be written to the file, as :class:`ChainFile` says it of SQLite."""

    def append(*_: object) -> None:
        raise LedgerError("ledger: SQLITE_FULL")

    monkeypatch.setattr(ledger.file, "append_record", append)


@pytest.mark.parametrize("what", ["there is space again", "the others go on", "it stays full"])
def test_a_full_disk_leaves_no_key_after_the_next_start(
    sites: Consortium, disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A full disk ends no run: with space the same command goes on, and needs the key."""
    patience = 600.0 if what == "there is space again" else 0.3
    with hub_of(sites, tmp_path / "hub.log", patience) as hub:
        others = Background(sites, hub, OTHERS)
        with sites.ledger("north") as ledger:
            session = sites.session(
                "north",
                ledger,
                observers=[lambda k, _: full(ledger, monkeypatch) if k == 2 else None],
            )
            with pytest.raises(SottovoceError, match=FULL) as failed:
                session.run(LocalTransport(hub, "north", 30.0))
        assert exit_code_for_error(failed.value) == 2 and "north.trial.masks" in disk.left()
        if what == "there is space again":
            assert (
                sites.run_site("north", LocalTransport(hub, "north", 30.0)).outcome.stopped
                == "finished"
            )
            others.join()
        else:
            others.join()
            with sites.ledger("north") as ledger:
                again = sites.session("north", ledger)
                if what == "it stays full":  # the close cannot be written: the key is gone before
                    full(ledger, monkeypatch)
                    with pytest.raises(SottovoceError, match=FULL):
                        again.run(LocalTransport(hub, "north", 5.0))
                else:
                    again.run(LocalTransport(hub, "north", 5.0))
    assert disk.left() == []


def test_a_sum_that_is_refused_leaves_no_key(
    sites: Consortium, disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 3, for everybody and for good."""
    honest = SiteNet.mask_share
    monkeypatch.setattr(
        SiteNet, "mask_share", lambda net, x: honest(net, x) + (2**62 if net._name == "west" else 0)
    )
    with hub_of(sites, tmp_path / "hub.log") as hub:
        ends = run(sites, hub)
    assert {exit_code_for_error(end) for end in ends.values()} == {3} and disk.left() == []


class Liar(LocalTransport):
    """A hub that changes one word of a share."""

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        inbox = super().exchange(round, message)
        return (
            inbox
            if round != 3
            else {name: data.replace(b'"v":1', b'"v":2') for name, data in inbox.items()}
        )


@pytest.mark.parametrize("ends", ["it goes on", "site end"])
def test_refused_message_leaves_no_key_after_manual_end(
    sites: Consortium, settings: str, disk: Disk, tmp_path: Path, ends: str
) -> None:
    """Exit 3 for what a hub said: an honest one may go on with the run, so the key stays until
    that is decided.
    """
    with hub_of(sites, tmp_path / "hub.log", 600.0 if ends == "it goes on" else 0.3) as hub:
        others = Background(sites, hub, OTHERS)
        with pytest.raises(Refused) as refused:
            sites.run_site("north", Liar(hub, "north", 30.0))
        assert exit_code_for_error(refused.value) == 3 and "north.trial.masks" in disk.left()
        if ends == "it goes on":
            assert (
                sites.run_site("north", LocalTransport(hub, "north", 30.0)).outcome.stopped
                == "finished"
            )
        else:
            assert Ran("site", "end", settings).code == 0
        others.join()
    assert disk.left() == []


KILLED = """
import os, sys
from pathlib import Path
from sottovoce.deploy import files
from sottovoce.deploy.settings import SiteSettings
from sottovoce.deploy.sums.masks import RunKey
claim = files._claim_name
files._claim_name = lambda *paths: (sys.argv[2] == "after" and claim(*paths), os._exit(9))
RunKey.make(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_while_the_key_is_made_leaves_no_key(
    sites: Consortium, disk: Disk, tmp_path: Path, when: str
) -> None:
    """Before or after it has its name: what lies there under a temporary name goes with the key."""
    key = masking_key_path(sites.folder / "north.ledger", "trial")
    with sites.ledger("north") as ledger:
        sites.session("north", ledger).check_before_run(bind=True)
        ledger.reserve("trial", sites.plan.digest, sites.plan.planned_privacy.events("north"))
    done = subprocess.run([sys.executable, "-c", KILLED, str(key), when], check=False, timeout=60)
    (half,) = sites.folder.glob(".*.tmp")
    disk.keys.add(half.read_bytes())
    assert done.returncode == 9 and key.exists() == (when == "after") and list(disk.left()) != []
    assert masking_keys_beside(sites.folder / "north.ledger") == {"trial": key}
    with hub_of(sites, tmp_path / "hub.log") as hub:
        run(sites, hub)
    assert disk.left() == []


def test_a_start_erases_keys_of_runs_that_cannot_go_on(
    sites: Consortium, settings: str, disk: Disk
) -> None:
    """Closed by themselves or given up; the key of an open run stays, and so does that of
    another site.
    """
    certify(sites.folder, ("north",))
    home = sites.folder
    with sites.ledger("north") as ledger:
        for name in ("open", "over", "left"):
            ledger.reserve(name, "a plan", sites.plan.planned_privacy.events("north")[:1])
        ledger.runs.records_of_run("over").close(reclaim=True, given_up=False)
        ledger.close_run("left", reclaim=True)
    # of a site called north.left
    DurableLedger.create(home / "north.left.ledger", epsilon=1.0).close()
    for name in ("north.open", "north.over", "north.left", "north.left.other", "south.trial"):
        RunKey.make(home / f"{name}.masks")
    (home / ".north.over.masks.0123456789abcdef.tmp").write_bytes(bytes(32))
    checked = Ran("site", "check", settings, "--json")
    assert checked.code == 0, checked.err
    assert json.loads(checked.out)["erased"] == ["left", "over"]
    assert "run over" in checked.err
    assert "run open" in checked.err and "its key stays" in checked.err
    assert disk.left() == ["north.left.other.masks", "north.open.masks", "south.trial.masks"]
    assert json.loads(Ran("site", "check", settings, "--json").out)["erased"] == []


def test_a_key_that_may_be_of_another_ledger_is_not_taken_for_a_foreign_one(tmp_path: Path) -> None:
    """Run "2024.a" of north.ledger, whose name is also that of run "a" of north.2024.ledger, is
    open and goes on.
    """
    budget: dict[str, Any] = {"epsilon": 9.0, "delta": 1e-5, "accountant": "zcdp"}
    one: Any = np.ones(1)
    event = GaussianMechanism("x", "replace-one", one, one, 1)
    with (
        DurableLedger.create(tmp_path / "north.ledger", **budget) as first,
        DurableLedger.create(tmp_path / "north.2024.ledger", **budget) as second,
    ):
        first.reserve("2024.a", "p", [event])
        second.reserve("b", "p", [event])
        live = RunKey.make(masking_key_path(first.path, "2024.a")).public
        RunKey.make(masking_key_path(second.path, "b"))
        assert erase_old_masking_keys(second, "b") == {} and erase_old_masking_keys(first) == {}
        assert RunKey.read(masking_key_path(first.path, "2024.a")).public == live
        assert give_up_run(first, "2024.a") == (1, True) and give_up_run(second, "b") == (1, True)
    assert not list(tmp_path.glob("*.masks"))


def test_a_key_of_a_run_that_the_ledger_lacks_shows_an_older_copy(
    sites: Consortium, settings: str, disk: Disk
) -> None:
    """It is erased, and every start is refused; the present run's key stays for the ledger that
    has it.
    """
    home = sites.folder
    certify(home, ("north",))
    RunKey.make(home / "north.before.masks")
    for start in ("check", "run"):
        ran = Ran("site", start, settings)
        assert ran.code == 2 and "holds a key" in ran.err
        assert "key is erased" in ran.err and disk.left() == ["north.before.masks"]
        assert (home / "north.before.masks").read_bytes() == b""
    (home / "north.before.masks").unlink()
    key = RunKey.make(home / "north.trial.masks")
    for _ in range(2):
        ran = Ran("site", "run", settings)
        assert ran.code == 2 and "the key stays" in ran.err
    assert RunKey.read(home / "north.trial.masks").public == key.public
    assert Ran("site", "end", settings).code == 2 and disk.left() == []  # if that ledger is lost
    with sites.ledger("north") as ledger:
        assert erase_old_masking_keys(ledger, "trial") == {}
        RunKey.make(home / "north.trial.masks")
        with pytest.raises(LedgerCorrupt):
            erase_old_masking_keys(ledger)
    assert (home / "north.trial.masks").read_bytes() == b""


def test_erasing_follows_no_link_and_waits_for_no_pipe(tmp_path: Path) -> None:
    import os

    (tmp_path / "other").write_text("somebody's")
    (tmp_path / "a.r.masks").symlink_to(tmp_path / "other")
    os.mkfifo(tmp_path / "a.s.masks")
    for path in masking_keys_beside(tmp_path / "a.ledger").values():
        assert RunKey.erase_file(path) and not RunKey.erase_file(path)
    assert (tmp_path / "other").read_text() == "somebody's" and not list(tmp_path.glob("*.masks"))


def once(
    sites: Consortium, tmp_path: Path, linger: float, back: Callable[[str, Path], None]
) -> tuple[list[dict[str, Any]], int]:
    """``hub run --once`` over the relay, in a run that goes on without north; what it says, and
    its exit code.
    """
    folder, port, lost = tmp_path / "hub", find_free_port(), list[BaseException]()
    certify(folder, NAMES)
    write_plan_file(sites.plan, folder / "plan.json")
    address = f"127.0.0.1:{port}"

    def one(name: str) -> None:
        with transport(sites, folder, address, name) as way:
            if name == "north":
                exchange = way.exchange
                way.exchange = lambda k, data: stop() if k == 3 else exchange(k, data)  # type: ignore[method-assign]
            try:
                sites.run_site(name, way)
            except (Stop, Unreachable) as error:
                lost.append(error)
        if name == "north":
            back(address, folder)

    def stop() -> dict[str, bytes]:
        raise Stop

    threads = [threading.Thread(target=one, args=(name,)) for name in NAMES]
    for thread in threads:
        thread.start()
    ran = Ran(
        "hub",
        "run",
        str(folder),
        "--listen",
        address,
        "--once",
        "--patience",
        "0.5",
        "--json",
        "--linger",
        str(linger),
    )
    for thread in threads:
        thread.join()
    assert [type(error) for error in lost] == [Stop], lost
    return [json.loads(line) for line in ran.out.splitlines()], ran.code


@pytest.fixture
def no_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)


@pytest.mark.usefixtures("no_signals")
def test_a_hub_that_ends_by_itself_waits_for_lost_sites(
    sites: Consortium, disk: Disk, tmp_path: Path
) -> None:
    def back(address: str, folder: Path) -> None:
        while not (folder / "hub.json").exists():  # the others have left
            time.sleep(0.02)
        with transport(sites, folder, address, "north") as way:
            ends.append(sites.run_site("north", way))

    ends: list[Finished] = []
    said, code = once(sites, tmp_path, 120.0, back)
    assert code == 5 and said[-1] == {"untold": ["north"], "seconds": 120.0}
    assert ends[0].outcome.stopped == OUT and disk.left() == []


@pytest.mark.usefixtures("no_signals")
def test_a_hub_that_ends_by_itself_waits_no_longer_than_it_is_told(
    sites: Consortium, disk: Disk, tmp_path: Path
) -> None:
    said, code = once(sites, tmp_path, 0.3, lambda *_: None)
    assert code == 5 and said[-1] == {"untold": ["north"], "seconds": 0.0}
    # until `site end`, or the hub is started again and the site asks
    assert disk.left() == ["north.trial.masks"]


@pytest.mark.parametrize("seconds", ["-1", "inf", "nan"])
def test_a_hub_lingers_for_a_number_of_seconds(sites: Consortium, seconds: str) -> None:
    ran = Ran("hub", "run", str(sites.folder), "--linger", seconds)
    assert ran.code == 2 and f"linger={float(seconds)!r}: " in ran.err


def test_a_site_says_that_its_key_stays(sites: Consortium, settings: str, disk: Disk) -> None:
    """Nobody answers: the same command may go on, or `site end` may end it."""
    certify(sites.folder, ("north",))
    with sites.ledger("north") as ledger:
        session = SiteSettings.read(settings).session(ledger)
        session.noise = KeyedNoise(3, [0], [0], lead=())  # the plan's
        session.check_before_run(bind=True)
        ledger.reserve("trial", sites.plan.digest, sites.plan.planned_privacy.events("north"))
    RunKey.make(masking_key_path(sites.folder / "north.ledger", "trial"))
    path = Path(settings)
    path.write_text(path.read_text().replace("plan = ", "patience = 0.1\nplan = ", 1))
    ran = Ran("site", "run", settings)
    assert ran.code == 1 and "stays beside" in ran.err
    assert disk.left() == ["north.trial.masks"]


def test_graph_run_has_no_sites_to_tell(tmp_path: Path) -> None:
    from sites_in_tests import consortium

    other = consortium(tmp_path / "other")
    with hub_of(other, tmp_path / "other.log") as hub:
        assert isinstance(hub, Hub) and hub.rounds.sites_not_told == []
