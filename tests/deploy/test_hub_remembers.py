"""A hub shows a site what it signed in earlier runs: an older ledger is noticed, and a hub
cannot make that up.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sites_in_tests import Consortium, consortium

from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.known import check_ledger_against_hub
from sottovoce.deploy.messages import Farewell
from sottovoce.deploy.proposal import Proposal, make_calibrated_plan
from sottovoce.deploy.requests import RequestTransport, reply_to_request
from sottovoce.deploy.transport import Transport
from sottovoce.errors import LedgerCorrupt, LedgerError, Unreachable
from sottovoce.ledger.durable import DurableLedger
from sottovoce.ledger.journal import Journal

pytest.importorskip("cryptography")


class Asked(RequestTransport):
    """Requests and replies as a carrier brings them."""

    def __init__(self, hub: Hub, site: str) -> None:
        super().__init__(hub.plan)
        self._hub, self._site = hub, site

    def send_request(self, method: str, asked: dict[str, object]) -> dict[str, object]:
        return reply_to_request(self._hub, self._site, method, asked, 20.0)


DOORS: dict[str, Callable[[Hub, str], Transport]] = {"local": LocalTransport, "requests": Asked}


def second(sites: Consortium) -> Consortium:
    """The same sites with the plan of another run."""
    plan = sites.plan
    return replace(
        sites, plan=make_calibrated_plan(Proposal("trial-2", plan.config, plan.sites, plan.d))
    )


@pytest.fixture(params=["graph", "sums"])
def ran(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Consortium, HubLog, Path]]:
    """Sites after a run, the hub's log, and a copy of north's ledger of before it began."""
    if request.param == "sums":
        from sums_in_tests import summed

        sites = summed(tmp_path / "sites", seed=3)
    else:
        sites = consortium(tmp_path / "sites")
    for name in sites.plan.names:
        sites.ledger(name).close()
    old = Path(shutil.copy(sites.folder / "north.ledger", tmp_path / "old"))
    with HubLog(tmp_path / "hub.log") as log:
        sites.run_locally(log)
        yield sites, log, old


@pytest.mark.parametrize("door", DOORS)
def test_ledger_older_than_last_run_is_refused_without_local_results(
    ran: tuple[Consortium, HubLog, Path], door: str
) -> None:
    sites, log, old = ran
    after = second(sites)
    hub = Hub(after.plan, log)
    shutil.copy(old, sites.folder / "north.ledger")
    with pytest.raises(LedgerCorrupt, match=r"lacks the .*'trial'") as caught:
        after.run_site("north", DOORS[door](hub, "north"))
    assert "the hub holds" in str(caught.value)
    with after.ledger("north") as ledger:
        assert not ledger.runs and ledger.total() == 0.0
    assert (
        hub.highest_round_of("north") == 0 and log.last("trial-2", "north") == -1
    )  # nothing was sent


def test_current_ledger_is_accepted(ran: tuple[Consortium, HubLog, Path]) -> None:
    sites, log, _ = ran
    ends = second(sites).run_locally(log)
    assert all(one.outcome.stopped == "finished" for one in ends.values())
    with sites.ledger("north") as ledger:
        assert set(ledger.runs) == {"trial", "trial-2"}


def test_ledger_without_end_of_run_is_refused_by_hub_record(tmp_path: Path) -> None:
    """A copy of the middle of a run, which was ended in it: it has the run's name, and lacks
    what followed.
    """
    sites = consortium(tmp_path / "sites")
    copy = tmp_path / "copy"

    def keep(k: int, _: object) -> None:
        if k == 2:
            shutil.copy(sites.folder / "north.ledger", copy)

    def door(name: str) -> Transport:
        return LocalTransport(hub, name, 20.0)

    with HubLog(tmp_path / "hub.log") as log:
        hub = Hub(sites.plan, log)
        whole = sites.run_site
        sites.run_site = lambda name, transport, **more: whole(  # type: ignore[method-assign]
            name, transport, **(more | ({"observers": [keep]} if name == "north" else {}))
        )
        sites.run(door)
        shutil.copy(copy, sites.folder / "north.ledger")
        with sites.ledger("north") as ledger:
            ledger.close_run("trial", reclaim=True)
        after = second(sites)
        with pytest.raises(LedgerCorrupt, match=r"lacks records .*'trial'") as caught:
            after.run_site("north", LocalTransport(Hub(after.plan, log), "north"))
        assert "the hub holds" in str(caught.value)


@pytest.mark.parametrize("reserved", [False, True], ids=["before the run", "before its greeting"])
def test_ledger_without_greeting_is_refused(
    sites: Consortium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reserved: bool
) -> None:
    """It would sign a second greeting, with another key where masks are agreed on, and the hub
    would end the run.
    """
    ledger, old, send = sites.folder / "north.ledger", tmp_path / "old", Journal.store_message
    sites.ledger("north").close()
    shutil.copy(ledger, old)

    def greeted(self: Journal, round: int, message: bytes) -> bytes | None:
        if reserved:
            shutil.copy(ledger, old)
        return send(self, round, message)

    with HubLog(tmp_path / "hub.log") as log:
        hub = Hub(sites.plan, log)
        monkeypatch.setattr(Journal, "store_message", greeted)
        with pytest.raises(Unreachable):  # alone: it greets, and nobody answers
            sites.run_site("north", LocalTransport(hub, "north", 0.1))
        greeting = log.messages("trial")[0, "north"]
        shutil.copy(old, ledger)
        what = "the greeting of the run" if reserved else "the run"
        with pytest.raises(LedgerCorrupt, match=f"lacks {what} 'trial', of which the hub"):
            sites.run_site("north", LocalTransport(hub, "north", 0.1))
        assert log.messages("trial") == {(0, "north"): greeting}


def test_a_hub_cannot_make_up_a_run(sites: Consortium) -> None:
    own, other = sites.keys["north"], SigningKey.make()
    said = {
        "run": "never",
        "plan": "0" * 64,
        "round": 1,
        "sender": "north",
        "reason": "done",
        "ledger": "0" * 64,
    }
    true = Farewell(**said).to_signed_bytes(own)  # type: ignore[arg-type]
    with sites.ledger("north") as ledger:
        for lie in (
            Farewell(**said).to_signed_bytes(other),
            true.replace(b"never", b"newer"),
            b"",
            b"[]",
            b"{}",
            b"\xff",
            true[:-1],  # type: ignore[arg-type]
            Farewell(**(said | {"sender": "east"})).to_signed_bytes(own),  # type: ignore[arg-type]
            b"[" * 4000,
            true + b" " * 5000,
        ):
            check_ledger_against_hub(ledger, "north", own.public, [lie])
        with pytest.raises(LedgerCorrupt, match="the run 'never'"):
            check_ledger_against_hub(ledger, "north", own.public, [b"", true])


def test_earlier_messages_are_truncated_to_reply_size(sites: Consortium, tmp_path: Path) -> None:
    with HubLog(tmp_path / "hub.log") as log:
        for k in range(200):
            log.record_farewell(f"run-{k}", "north", 0, b"x" * 500)
        shown = Hub(sites.plan, log).earlier("north")
    assert 0 < len(shown) < 200


def test_ledger_recognises_hashes_of_its_records(tmp_path: Path) -> None:
    with DurableLedger.create(tmp_path / "a.ledger", epsilon=1.0) as ledger:
        mark = ledger.file.head().partition(":")[2]
        assert ledger.file.contains_hash(mark)
        assert not any(
            map(ledger.file.contains_hash, ("", "0" * 64, mark[:-1], mark.upper() + "g"))
        )
    with pytest.raises(LedgerError):
        ledger.file.contains_hash(mark)
