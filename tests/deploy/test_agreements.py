"""From a hub's proposal to a site's plan: nothing takes its place unagreed, whatever is killed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sites_in_tests import Consortium, Stop, settle

from sottovoce.deploy import agreement
from sottovoce.deploy.agreement import (
    begun_run,
    install_agreed_proposal,
    keep_proposal,
    people_missing,
)
from sottovoce.deploy.lock import exclusive_lock
from sottovoce.deploy.plan import Plan
from sottovoce.deploy.plan_file import read_plan_file, write_plan_file
from sottovoce.deploy.settings import SiteSettings
from sottovoce.errors import InvalidInput
from sottovoce.ledger.durable import DurableLedger

pytest.importorskip("cryptography")


@pytest.fixture
def home(sites: Consortium, tmp_path: Path) -> Path:
    """A site's folder without a plan."""
    home = settle(sites, tmp_path / "home")
    (home / "plan.json").unlink()
    return home


def read(home: Path) -> SiteSettings:
    return SiteSettings.read(home / "site.toml")


def offer(home: Path, plan: Plan) -> list[str]:
    """What the site is told when the hub offers a plan."""
    file = home.parent / "offered.json"
    write_plan_file(plan, file)
    told: list[str] = []
    keep_proposal(read(home), file.read_bytes(), told.append)
    return told


def agree(home: Path, plan: Plan, by: str = "anna") -> None:
    with DurableLedger.open(read(home).ledger) as ledger:
        ledger.record_consent(plan.run, plan.digest, by)


def reserve(home: Path, plan: Plan) -> None:
    """Let a plan's run begin in the ledger."""
    with DurableLedger.open(read(home).ledger) as ledger:
        ledger.reserve(plan.run, plan.digest, plan.planned_privacy.events("north"))


def named(plan: Plan, run: str) -> Plan:
    return replace(plan, run=run)


def test_a_newer_proposal_replaces_an_older_one_and_says_so(sites: Consortium, home: Path) -> None:
    first, second = named(sites.plan, "first"), named(sites.plan, "second")
    assert offer(home, first) == ["the hub proposes run first"]
    assert offer(home, first) == []
    assert "in place of its earlier proposal of run first" in offer(home, second)[0]
    assert not install_agreed_proposal(read(home)) and not read(home).plan.exists()
    # what is no plan, or of other sites, leaves the proposal as it is
    before = read(home).proposed.read_bytes()
    for wrong in (b"{}", b"\0", before[:-9]):
        with pytest.raises(InvalidInput):
            keep_proposal(read(home), wrong, print)
    others = replace(
        sites.plan, sites=tuple(replace(one, name=f"{one.name}2") for one in sites.plan.sites)
    )
    with pytest.raises(InvalidInput, match="is not a site of the plan"):
        offer(home, others)
    assert read(home).proposed.read_bytes() == before
    assert not [*home.glob("*.new")]


def test_only_what_was_agreed_to_takes_the_place_of_the_plan(
    sites: Consortium, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = named(sites.plan, "first"), named(sites.plan, "second")
    offer(home, first)
    agree(home, first)
    assert people_missing(read(home), first) == 0 < people_missing(read(home), second)
    # a newer proposal comes after the older one was read and found agreed
    begun = agreement.begun_run

    def newer_comes(found: SiteSettings) -> str | None:
        write_plan_file(second, found.proposed)
        return begun(found)

    monkeypatch.setattr(agreement, "begun_run", newer_comes)
    assert install_agreed_proposal(read(home))
    assert read_plan_file(read(home).plan).run == "first"
    assert read_plan_file(read(home).proposed).run == "second"
    monkeypatch.undo()
    assert not install_agreed_proposal(read(home))


@pytest.mark.parametrize("killed", ["write_plan_file", "replace_entry"])
def test_a_kill_amid_loses_no_consent_and_asks_nobody_again(
    sites: Consortium, home: Path, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    offer(home, sites.plan)
    agree(home, sites.plan)

    def stop(*_: Any) -> None:
        raise Stop

    monkeypatch.setattr(agreement, killed, stop)
    with pytest.raises(Stop):
        install_agreed_proposal(read(home))
    monkeypatch.undo()
    assert install_agreed_proposal(read(home))
    found = read(home)
    with DurableLedger.open(found.ledger) as ledger:
        assert found.is_agreed(ledger) and len(ledger.consents) == 1
    assert found.digest == sites.plan.digest and not found.proposed.exists()


def test_a_run_that_has_begun_goes_on_first(sites: Consortium, home: Path) -> None:
    first, second, third = (named(sites.plan, run) for run in ("first", "second", "third"))
    for plan in (first, second):
        offer(home, plan)
        agree(home, plan)
        assert install_agreed_proposal(read(home))
    # a plan whose run has not begun is replaced; nothing of it is kept
    assert read_plan_file(read(home).plan).run == "second" and not [*home.glob("plan.*.json")]
    reserve(home, second)
    assert "run second, which has begun here, goes on first" in offer(home, third)[0]
    agree(home, third)
    assert begun_run(read(home)) == "second" and not install_agreed_proposal(read(home))
    with DurableLedger.open(read(home).ledger) as ledger:
        ledger.close_run("second", reclaim=True)
    # a process that takes part holds the lock
    with exclusive_lock(read(home).lock_file):
        assert not install_agreed_proposal(read(home))
    assert install_agreed_proposal(read(home)) and read(home).agreed_plan.run == "third"
    assert read_plan_file(home / "plan.second.json").digest == second.digest


def test_a_withdrawn_proposal_is_no_proposal(sites: Consortium, home: Path) -> None:
    first, second = named(sites.plan, "first"), named(sites.plan, "second")
    offer(home, first)
    agree(home, first)
    install_agreed_proposal(read(home))
    offer(home, second)
    assert offer(home, first) == ["the hub no longer proposes run second"]
    assert not read(home).proposed.exists() and read(home).agreed_plan.run == "first"
