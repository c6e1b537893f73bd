"""What every transport must do, of all transports of the package."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from sites_in_tests import NAMES, Consortium, Fragile, Stop, consortium

from sottovoce.deploy import run_sites
from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.messages import Farewell, read_farewell
from sottovoce.deploy.transport import Transport
from sottovoce.errors import Refused, SottovoceError, TransportClosed, Unreachable
from sottovoce.ledger.journal import Journal
from sottovoce.runs.engine import FEW

pytest.importorskip("cryptography")

Door = Callable[[str], Transport]


@pytest.fixture
def sites(tmp_path: Path) -> Consortium:
    """Three sites on a path: north, east, south."""
    return consortium(tmp_path / "sites", graph="path")


def send(door: Door, round: int, messages: dict[str, bytes]) -> dict[str, dict[str, bytes]]:
    """Every site's inbox of a round, when all send at once."""
    with ThreadPoolExecutor(len(messages)) as pool:
        jobs = {
            name: pool.submit(door(name).exchange, round, message)
            for name, message in messages.items()
        }
        return {name: job.result() for name, job in jobs.items()}


def greet(sites: Consortium, door: Door) -> dict[str, bytes]:
    """Round 0 of every site."""
    hello = {name: sites.sealed(name, 0) for name in NAMES}
    send(door, 0, hello)
    return hello


def test_a_run_has_the_models_of_one_process(sites: Consortium, hub: Hub, door: Door) -> None:
    ends = sites.run(door)
    twin = run_sites(sites.plan.config, sites.rows)
    for i, name in enumerate(NAMES):
        np.testing.assert_array_equal(ends[name].model, twin[i][0].state.f)
        with sites.ledger(name) as ledger:
            sent = {
                k: Journal(ledger, sites.plan.run).sent(k)
                for k in range(sites.plan.config.rounds + 2)
            }
        assert sent == {k: hub.log.message_of(sites.plan.run, k, name) for k in sent}
    assert len(hub.log.messages(sites.plan.run)) == 3 * (sites.plan.config.rounds + 2)


def test_all_leave_at_the_end(sites: Consortium, hub: Hub, door: Door) -> None:
    sites.run(door)
    assert hub.gone() == dict.fromkeys(sorted(NAMES), "done")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("crash", [0, 2, 5])
def test_a_site_that_crashes_goes_on(
    sites: Consortium, hub: Hub, door: Door, crash: int, after: bool
) -> None:
    def twice(name: str) -> np.ndarray:
        if name == "north":
            with pytest.raises(Stop):
                sites.run_site(name, Fragile(door(name), crash, after))
        return sites.run_site(name, door(name)).model

    with ThreadPoolExecutor(3) as pool:
        models = list(pool.map(twice, NAMES))
    twin = run_sites(sites.plan.config, sites.rows)
    for i, model in enumerate(models):
        np.testing.assert_array_equal(model, twin[i][0].state.f)
    with sites.ledger("north") as ledger:
        assert len(ledger.rows) == sites.plan.config.rounds  # nothing was drawn twice


def test_an_inbox_holds_the_bytes_of_the_neighbours(sites: Consortium, door: Door) -> None:
    hello = {name: sites.sealed(name, 0) for name in NAMES}
    inboxes = send(door, 0, hello)
    assert inboxes == {
        name: {n: hello[n] for n in sites.plan.exchange_table.neighbour_names(name)}
        for name in NAMES
    }
    assert set(inboxes["north"]) == {"east"}  # and of nobody else


def test_the_first_message_of_a_round_is_kept(sites: Consortium, hub: Hub, door: Door) -> None:
    hello = greet(sites, door)
    assert door("north").exchange(0, hello["north"]) == {"east": hello["east"]}
    first = {name: sites.sealed(name, 1) for name in NAMES}
    send(door, 1, first)
    north = door("north")
    with pytest.raises(Refused, match="another message"):
        north.exchange(1, sites.sealed("north", 1, np.ones(4)))
    assert north.exchange(1, first["north"]) == {"east": first["east"]}  # a refusal breaks nothing
    assert hub.log.message_of("trial", 1, "north") == first["north"]


def test_rounds_come_in_order(sites: Consortium, hub: Hub, door: Door) -> None:
    greet(sites, door)
    with pytest.raises(Refused, match="out of order"):
        door("north").exchange(2, sites.sealed("north", 2))
    with pytest.raises(Refused, match="of another round"):
        door("north").exchange(1, sites.sealed("north", 2))
    assert len(hub.log.messages("trial")) == 3


def test_highest_round_is_current_at_hub(sites: Consortium, hub: Hub, door: Door) -> None:
    """An older number would let a site that was restored from a backup draw again."""
    assert door("north").highest_stored_round(sites.plan.digest) == 0
    greet(sites, door)
    assert door("north").highest_stored_round(sites.plan.digest) == 0
    send(door, 1, {name: sites.sealed(name, 1) for name in NAMES})
    assert door("north").highest_stored_round(sites.plan.digest) == 1
    # through another door, which then broke down
    hub.log.store_message("trial", 2, "north", sites.sealed("north", 2))
    assert door("north").highest_stored_round(sites.plan.digest) == 2
    assert door("east").highest_stored_round(sites.plan.digest) == 1


def test_another_plan_is_refused(sites: Consortium, door: Door) -> None:
    with pytest.raises(Refused, match="plan"):
        door("north").highest_stored_round("0" * 64)


def test_a_site_speaks_for_itself_only(sites: Consortium, hub: Hub, door: Door) -> None:
    with pytest.raises(Refused, match="names another sender"):
        door("east").exchange(0, sites.sealed("north", 0))
    assert hub.log.messages("trial") == {}


def test_invalid_message_is_refused(sites: Consortium, hub: Hub, door: Door) -> None:
    for message in (b"", b"[" * 900, b"no message", b"{}", b"null"):
        with pytest.raises(Refused):
            door("east").exchange(0, message)
    assert hub.log.messages("trial") == {}


def test_waiting_site_receives_signed_farewell(sites: Consortium, hub: Hub, door: Door) -> None:
    hello = greet(sites, door)
    east, farewell = door("east"), sites.farewell("east", 1)
    east.send_farewell(farewell)
    heard = send(door, 1, {name: sites.sealed(name, 1) for name in ("north", "south")})
    assert heard == {"north": {"east": farewell}, "south": {"east": farewell}}
    read_farewell(sites.plan, farewell, "east", 1)
    assert hub.gone() == {"east": FEW}
    # what it sent before stays
    assert door("north").exchange(0, hello["north"]) == {"east": hello["east"]}


def test_unsigned_farewell_does_not_end_run(sites: Consortium, hub: Hub, door: Door) -> None:
    greet(sites, door)
    first = {name: sites.sealed(name, 1) for name in NAMES}
    stranger = Farewell("trial", sites.plan.digest, 1, "east", "done").to_signed_bytes(
        SigningKey.make()
    )
    for lie in (b"", b"done", sites.farewell("north", 1), sites.farewell("east", 2), stranger):
        east = door("east")
        with pytest.raises(Refused):
            east.send_farewell(lie)
        east.exchange(0, sites.sealed("east", 0))
        assert hub.gone() == {}
    send(door, 1, first)


def test_a_hub_that_ends_the_run_tells_who_waits(sites: Consortium, hub: Hub, door: Door) -> None:
    greet(sites, door)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(door("north").exchange, 1, sites.sealed("north", 1))
        hub.log.decisions.record_end_of_run("trial")
        with pytest.raises(TransportClosed) as closed:
            waiting.result()
    assert closed.value.site is None


class Faulty(LocalTransport):
    """A transport with one fault."""

    def __init__(self, hub: Hub, site: str, fault: str) -> None:
        super().__init__(hub, site, 2.0)
        self._fault = fault

    def highest_stored_round(self, plan: str) -> int:
        if self._fault == "any plan will do":
            return self._hub.highest_round_of(self._site)
        return 0 if self._fault == "an old number" else super().highest_stored_round(plan)

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        hub, run = self._hub, self._hub.plan.run
        if self._fault == "the message says who speaks" and b'"sender":"north"' in message:
            self._site = "north"
        if self._fault == "a run that nobody ends":
            try:
                return super().exchange(round, message)
            except TransportClosed:
                raise Unreachable("gone") from None
        if self._fault == "nobody is refused":
            with suppress(Refused):
                return super().exchange(round, message)
            return hub.rounds.inbox_of_site(self._site, round) or {}
        found = super().exchange(round, message)
        if self._fault == "a name is all it tells":
            return {name: b"left" if b'"reason":' in data else data for name, data in found.items()}
        if self._fault == "everybody hears everything":
            return {name: data for (k, name), data in hub.log.messages(run).items() if k == round}
        return (
            {name: data + b" " for name, data in found.items()}
            if self._fault == "other bytes"
            else found
        )

    def send_farewell(self, farewell: bytes) -> None:
        if self._fault == "nobody hears that a site leaves":
            return
        if self._fault == "any word ends it":
            self._hub.log.record_farewell(
                self._hub.plan.run, self._site, self._hub.highest_round_of(self._site) + 1, farewell
            )
        else:
            super().send_farewell(farewell)


FAULTS = {
    "other bytes": "an_inbox_holds_the_bytes_of_the_neighbours",
    "everybody hears everything": "an_inbox_holds_the_bytes_of_the_neighbours",
    "an old number": "highest_round_is_current_at_hub",
    "any plan will do": "another_plan_is_refused",
    "the message says who speaks": "a_site_speaks_for_itself_only",
    "nobody is refused": "the_first_message_of_a_round_is_kept",
    "a name is all it tells": "waiting_site_receives_signed_farewell",
    "a run that nobody ends": "a_hub_that_ends_the_run_tells_who_waits",
    "nobody hears that a site leaves": "waiting_site_receives_signed_farewell",
    "any word ends it": "unsigned_farewell_does_not_end_run",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_suite_detects_planted_transport_faults(fault: str, tmp_path: Path) -> None:
    sites = consortium(tmp_path / "sites", graph="path")
    with HubLog(tmp_path / "hub.log") as log:
        hub = Hub(sites.plan, log)

        def door(name: str) -> LocalTransport:
            return Faulty(hub, name, fault)

        check = globals()[f"test_{FAULTS[fault]}"]
        given = {"sites": sites, "hub": hub, "door": door}
        wanted = {name: given[name] for name in inspect.signature(check).parameters}
        with pytest.raises((AssertionError, SottovoceError, pytest.fail.Exception)):
            check(**wanted)
