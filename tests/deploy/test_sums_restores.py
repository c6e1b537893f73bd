"""Kills at every write, and ledgers restored from every write: nothing is opened a second time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sites_in_tests import Consortium, Stop
from sums_in_tests import NAMES, Background, Lost, hub_of, summed, twin

from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.sums.masks import RunKey, masking_key_path
from sottovoce.deploy.sums.messages import Attestation, read_question
from sottovoce.errors import LedgerCorrupt, LedgerMismatch, Refused, SottovoceError, TransportClosed
from sottovoce.ledger.file import ChainFile
from sottovoce.ledger.journal import Journal

pytest.importorskip("cryptography")

OTHERS = tuple(name for name in NAMES if name != "north")
WRITES = 17
"""Of a site in a run of two attempts: bind, reserve, four exchanges of two, two attempts of two
more, close.
"""


@pytest.fixture
def sites(tmp_path: Path) -> Consortium:
    return summed(tmp_path / "sites", rounds=2)


def before_writes(monkeypatch: pytest.MonkeyPatch, do: Callable[[int], None]) -> list[int]:
    """Call `do` with its number before each of the site north's writes; a list that counts them."""
    append, count = ChainFile.append_record, [0]

    def counted(self: Any, *arguments: Any, **more: Any) -> None:
        if self.real.name == "north.ledger":
            count[0] += 1
            do(count[0])
        append(self, *arguments, **more)

    monkeypatch.setattr(ChainFile, "append_record", counted)
    return count


@pytest.mark.parametrize("write", range(1, WRITES + 1))
def test_a_site_killed_before_any_write_goes_on(
    sites: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int
) -> None:
    def kill(number: int) -> None:
        if number == write:
            raise Stop

    count = before_writes(monkeypatch, kill)
    with hub_of(sites, tmp_path / "hub.log", 600.0) as hub:
        others = Background(sites, hub, OTHERS)
        with pytest.raises(Stop):
            sites.run_site("north", LocalTransport(hub, "north", 30.0))
        end = sites.run_site("north", LocalTransport(hub, "north", 30.0))
        ends = others.join() | {"north": end}
        models = twin(sites, hub.rounds.attempts)
        with sites.ledger("north") as ledger:
            ledger.file.verify()
            assert ledger.to_list() == [
                event.to_dict() for event in sites.plan.planned_privacy.events("north")
            ]
            assert [Journal(ledger, "trial").sent(k) for k in range(5)] == [
                hub.log.message_of("trial", k, "north") for k in range(5)
            ]
    # The one that was killed was made again, with the bytes of the release if they were of its
    # commit, and no other.
    assert WRITES + 1 <= count[0] <= WRITES + 2
    for name in NAMES:
        np.testing.assert_array_equal(ends[name].model, models[name])
        assert ends[name].lost == {}
    assert not masking_key_path(sites.folder / "north.ledger", "trial").exists()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("last", [0, 1, 3, 4])
def test_a_site_killed_around_a_message_goes_on(
    sites: Consortium, tmp_path: Path, last: int, after: bool
) -> None:
    with hub_of(sites, tmp_path / "hub.log", 600.0) as hub:
        others = Background(sites, hub, OTHERS)
        with pytest.raises(Stop):
            sites.run_site("north", Lost(hub, "north", last, after))
        end = sites.run_site("north", LocalTransport(hub, "north", 30.0))
        ends = others.join()
        assert hub.all_sites_left and hub.gone() == dict.fromkeys(sorted(NAMES), "done")
    assert all(np.array_equal(end.model, other.model) for other in ends.values())


def test_a_site_killed_before_it_could_leave_leaves_later(
    sites: Consortium, tmp_path: Path
) -> None:
    class Silent(LocalTransport):
        def send_farewell(self, farewell: bytes) -> None:
            raise Stop

    with hub_of(sites, tmp_path / "hub.log", 600.0) as hub:
        others = Background(sites, hub, OTHERS)
        with pytest.raises(Stop):
            sites.run_site("north", Silent(hub, "north", 30.0))
        assert not masking_key_path(sites.folder / "north.ledger", "trial").exists()
        sites.run_site("north", LocalTransport(hub, "north", 30.0))
        others.join()
        assert hub.gone()["north"] == "done"


def test_all_sites_killed_at_once_go_on(sites: Consortium, tmp_path: Path) -> None:
    """Each waits for the word of others, who wait for its own: all are asked while they wait."""
    with hub_of(sites, tmp_path / "hub.log", 600.0) as hub:
        from sums_in_tests import run

        assert all(
            isinstance(end, Stop)
            for end in run(sites, hub, lambda name: Lost(hub, name, 2, True)).values()
        )
    with hub_of(sites, tmp_path / "hub.log", 600.0) as hub:
        ends = run(sites, hub)
        models = twin(sites, hub.rounds.attempts)
    for name in NAMES:
        np.testing.assert_array_equal(ends[name].model, models[name])


class Lying(LocalTransport):
    """A hub that says it holds nothing of this site, and takes any message as the first; it
    keeps all that it saw.
    """

    def __init__(self, hub: Hub, site: str, seen: dict[int, set[bytes]]) -> None:
        super().__init__(hub, site, 30.0)
        self.seen = seen

    def highest_stored_round(self, plan: str) -> int:
        return 0

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        self.seen.setdefault(round, set()).add(message)
        inbox = self._hub.rounds.inbox_of_site(self._site, round)
        if inbox is None:
            raise Stop
        return inbox


def test_a_ledger_restored_from_any_write_opens_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the hub hides what it holds: the other sites have seen this one further, and sign
    that.
    """
    sites = summed(tmp_path / "sites", rounds=4)
    ledger, backups = sites.folder / "north.ledger", list[Path]()

    def back_up(number: int) -> None:
        backups.append(Path(shutil.copy(ledger, tmp_path / f"backup-{number}")))

    before_writes(monkeypatch, back_up)
    with hub_of(sites, tmp_path / "hub.log", 600.0) as hub:
        others = Background(sites, hub, OTHERS)
        with pytest.raises(Stop):
            sites.run_site("north", Lost(hub, "north", 4, True))  # attempt 3 is sent
        newest = shutil.copy(ledger, tmp_path / "newest")
        made = list(backups)
        monkeypatch.undo()
        seen: dict[int, set[bytes]] = {}
        halted = []
        for backup in made:
            shutil.copy(backup, ledger)
            try:
                sites.run_site("north", Lying(hub, "north", seen))
            except (SottovoceError, Stop) as error:
                halted.append(error)
        first = {k: hub.log.message_of("trial", k, "north") for k in range(5)}
        assert len(made) == len(halted) == 17 and all(
            isinstance(error, LedgerCorrupt) for error in halted
        )
        assert {k: messages for k, messages in seen.items() if messages != {first.get(k)}} == {}
        shutil.copy(newest, ledger)
        end = sites.run_site("north", LocalTransport(hub, "north", 30.0))
        others.join()
        models = twin(sites, hub.rounds.attempts)
    np.testing.assert_array_equal(end.model, models["north"])


def test_folder_restored_before_run_gets_no_answers(sites: Consortium, tmp_path: Path) -> None:
    """A second key for the same run: the greeting differs, and with it the session, so no roster
    is ever complete.
    """
    with hub_of(sites, tmp_path / "hub.log", 600.0) as hub:
        sites.ledger("north").close()
        shutil.copy(sites.folder / "north.ledger", tmp_path / "backup")
        others = Background(sites, hub, OTHERS)
        with pytest.raises(Stop):
            sites.run_site("north", Lost(hub, "north", 3))
        secret = masking_key_path(sites.folder / "north.ledger", "trial")
        newest = tmp_path / "newest"
        newest.mkdir()
        for name in ("north.ledger", secret.name):
            shutil.copy(sites.folder / name, newest / name)
        secret.unlink()
        shutil.copy(tmp_path / "backup", sites.folder / "north.ledger")
        seen: dict[int, set[bytes]] = {}
        with pytest.raises(Refused, match="another roster 0"):
            sites.run_site("north", Lying(hub, "north", seen))
        assert set(seen) == {0, 1} and hub.log.message_of("trial", 0, "north") not in seen[0]
        for name in ("north.ledger", secret.name):
            shutil.copy(newest / name, sites.folder / name)
        sites.run_site("north", LocalTransport(hub, "north", 30.0))
        assert all(end.lost == {} for end in others.join().values())


class Answering(LocalTransport):
    """A hub that makes up what the other sites say."""

    def __init__(self, hub: Hub, sites: Consortium, how: str) -> None:
        super().__init__(hub, "north", 30.0)
        self._sites, self._how = sites, how

    def ask_other_sites(self, question: bytes, enough: int) -> dict[str, bytes]:
        plan, keys = self._sites.plan, self._sites.keys
        asked = read_question(plan, question, "north")

        def word(name: str, nonce: str = asked.nonce, signer: str = "") -> bytes:
            return Attestation(name, asked.round, nonce, "north", 1).to_signed_bytes(
                plan, keys[signer or name]
            )

        match self._how:
            case "too few":
                return {name: word(name) for name in ("east", "south")}
            case "the site itself":
                return {name: word(name) for name in ("east", "south", "north")}
            case "an old nonce":
                return {name: word(name, "0" * 32) for name in ("east", "south", "west")}
            case _:
                return {name: word(name, signer="east") for name in ("east", "south", "west")}


MADE_UP = {
    "too few": "are needed",
    "the site itself": "are needed",
    "an old nonce": "another question",
    "one signer for all": "not signed by",
}
"""How a hub makes up answers, and what the refusal says."""


@pytest.mark.parametrize("how", MADE_UP)
def test_answers_that_are_made_up_are_refused(sites: Consortium, tmp_path: Path, how: str) -> None:
    with hub_of(sites, tmp_path / "hub.log", 600.0) as hub:
        others = Background(sites, hub, OTHERS)
        with pytest.raises(Stop):
            sites.run_site("north", Lost(hub, "north", 1, True))
        with sites.ledger("north") as ledger:
            before = len(ledger.rows)
        with pytest.raises(Refused, match=MADE_UP[how]):
            sites.run_site("north", Answering(hub, sites, how))
        with sites.ledger("north") as ledger:
            assert len(ledger.rows) == before  # halted before the charge
        sites.run_site("north", LocalTransport(hub, "north", 30.0))
        others.join()


def test_an_honest_hub_halts_an_older_copy_at_once(sites: Consortium, tmp_path: Path) -> None:
    with hub_of(sites, tmp_path / "hub.log", 600.0) as hub:
        others = Background(sites, hub, OTHERS)
        with pytest.raises(Stop):
            sites.run_site("north", Lost(hub, "north", 1, True))
        shutil.copy(sites.folder / "north.ledger", tmp_path / "backup")
        with pytest.raises(Stop):
            sites.run_site("north", Lost(hub, "north", 2, True))
        newest = shutil.copy(sites.folder / "north.ledger", tmp_path / "newest")
        shutil.copy(tmp_path / "backup", sites.folder / "north.ledger")
        with pytest.raises(LedgerCorrupt, match="holds round 2") as caught:
            sites.run_site("north", LocalTransport(hub, "north", 30.0))
        assert "at round 1" in str(caught.value)
        shutil.copy(newest, sites.folder / "north.ledger")
        sites.run_site("north", LocalTransport(hub, "north", 30.0))
        others.join()


def test_a_journal_signs_one_roster_an_epoch(sites: Consortium, tmp_path: Path) -> None:
    """Whatever is asked again: the first message of an exchange stands, and nothing is sent in
    place of it.
    """
    with hub_of(sites, tmp_path / "hub.log", 600.0) as hub:
        others = Background(sites, hub, OTHERS)
        with pytest.raises(Stop):
            sites.run_site("north", Lost(hub, "north", 1))
        with sites.ledger("north") as ledger:
            journal = Journal(ledger, "trial")
            assert journal.highest_round == 1
            with pytest.raises(LedgerMismatch, match="in round 1"):
                journal.store_message(1, b"another roster 0")
        sites.run_site("north", LocalTransport(hub, "north", 30.0))
        others.join()


def test_a_key_is_on_the_disk_before_the_greeting_leaves(
    sites: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the two, the site greets with the same key."""
    secret, made = masking_key_path(sites.folder / "north.ledger", "trial"), list[bytes]()

    class Looking(LocalTransport):
        def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
            made.append(RunKey.read(secret).public)
            raise Stop

    def kill(number: int) -> None:
        if number == 3:  # the greeting's record
            raise Stop

    before_writes(monkeypatch, kill)
    with hub_of(sites, tmp_path / "hub.log") as hub:
        with pytest.raises(Stop):
            sites.run_site("north", Looking(hub, "north"))
        first = RunKey.read(secret).public
        with pytest.raises(Stop):
            sites.run_site("north", Looking(hub, "north"))
    assert made == [first]


def test_a_lone_restarted_site_is_told_when_the_others_went_on(
    sites: Consortium, tmp_path: Path
) -> None:
    with hub_of(sites, tmp_path / "hub.log", 1.0) as hub:
        others = Background(sites, hub, OTHERS)
        with pytest.raises(Stop):
            sites.run_site("north", Lost(hub, "north", 1, True))
        others.join()
        with pytest.raises(TransportClosed, match="without 'north'"):
            LocalTransport(hub, "north", 5.0).ask_other_sites(*_question(sites))
        assert sites.run_site("north", LocalTransport(hub, "north", 5.0)).outcome.rounds == 0


def _question(sites: Consortium) -> tuple[bytes, int]:
    from sottovoce.deploy.sums.messages import Question

    return Question("north", 1, "0" * 32).to_signed_bytes(sites.plan, sites.keys["north"]), 3
