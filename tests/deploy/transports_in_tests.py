"""What every transport must do, inherited by one small class a transport."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from sites_in_tests import NAMES, Consortium, Fragile, Stop, consortium

from sottovoce.deploy import run_sites
from sottovoce.deploy.hub import Hub
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.messages import Farewell, read_farewell
from sottovoce.deploy.transport import Transport
from sottovoce.errors import Refused, TransportClosed
from sottovoce.ledger.journal import Journal

pytest.importorskip("cryptography")

Door = Callable[[str], Transport]


class TransportContract:
    """Subclasses override the fixture ``door``."""

    @pytest.fixture
    def sites(self, tmp_path: Path) -> Consortium:
        """Three sites on a path: north, east, south."""
        return consortium(tmp_path / "sites", graph="path")

    @pytest.fixture
    def hub(self, sites: Consortium, tmp_path: Path) -> Iterator[Hub]:
        with HubLog(tmp_path / "hub.log") as log:
            yield Hub(sites.plan, log)

    @pytest.fixture
    def door(self, sites: Consortium, hub: Hub, tmp_path: Path) -> Iterator[Door] | Door:
        """A new connection of a site to this hub, every time it is called: the site may have been restarted."""
        raise NotImplementedError

    def send(self, door: Door, round: int, messages: dict[str, bytes]) -> dict[str, dict[str, bytes]]:
        """Every site's inbox of a round, when all send at once."""
        with ThreadPoolExecutor(len(messages)) as pool:
            jobs = {name: pool.submit(door(name).exchange, round, message) for name, message in messages.items()}
            return {name: job.result() for name, job in jobs.items()}

    def greet(self, sites: Consortium, door: Door) -> dict[str, bytes]:
        """Round 0 of every site."""
        hello = {name: sites.sealed(name, 0) for name in NAMES}
        self.send(door, 0, hello)
        return hello

    def test_a_run_has_the_models_of_one_process(self, sites: Consortium, hub: Hub, door: Door) -> None:
        ends = sites.run(door)
        twin = run_sites(sites.plan.config, sites.rows)
        for i, name in enumerate(NAMES):
            np.testing.assert_array_equal(ends[name].model, twin[i][0].state.f)
            with sites.ledger(name) as ledger:
                sent = {k: Journal(ledger, sites.plan.run).sent(k) for k in range(sites.plan.config.rounds + 2)}
            assert sent == {k: hub.log.message(sites.plan.run, k, name) for k in sent}
        assert len(hub.log.messages(sites.plan.run)) == 3 * (sites.plan.config.rounds + 2)

    def test_all_leave_at_the_end(self, sites: Consortium, hub: Hub, door: Door) -> None:
        sites.run(door)
        assert hub.gone() == dict.fromkeys(sorted(NAMES), "done")

    @pytest.mark.parametrize("after", [False, True])
    @pytest.mark.parametrize("crash", [0, 2, 5])
    def test_a_site_that_crashes_goes_on(
        self, sites: Consortium, hub: Hub, door: Door, crash: int, after: bool
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

    def test_an_inbox_holds_the_bytes_of_the_neighbours(self, sites: Consortium, door: Door) -> None:
        hello = {name: sites.sealed(name, 0) for name in NAMES}
        inboxes = self.send(door, 0, hello)
        assert inboxes == {name: {n: hello[n] for n in sites.plan.neighbours(name)} for name in NAMES}
        assert set(inboxes["north"]) == {"east"}  # and of nobody else

    def test_the_first_message_of_a_round_is_kept(self, sites: Consortium, hub: Hub, door: Door) -> None:
        hello = self.greet(sites, door)
        assert door("north").exchange(0, hello["north"]) == {"east": hello["east"]}
        first = {name: sites.sealed(name, 1) for name in NAMES}
        self.send(door, 1, first)
        north = door("north")
        with pytest.raises(Refused, match="another message of this round"):
            north.exchange(1, sites.sealed("north", 1, np.ones(4)))
        assert north.exchange(1, first["north"]) == {"east": first["east"]}  # a refusal breaks nothing
        assert hub.log.message("trial", 1, "north") == first["north"]

    def test_rounds_come_in_order(self, sites: Consortium, hub: Hub, door: Door) -> None:
        self.greet(sites, door)
        with pytest.raises(Refused, match="out of order"):
            door("north").exchange(2, sites.sealed("north", 2))
        with pytest.raises(Refused, match="of another round"):
            door("north").exchange(1, sites.sealed("north", 2))
        assert len(hub.log.messages("trial")) == 3

    def test_highest_is_that_of_the_hub_now(self, sites: Consortium, hub: Hub, door: Door) -> None:
        """An older number would let a site that was restored from a backup draw again."""
        assert door("north").highest(sites.plan.digest) == 0
        self.greet(sites, door)
        assert door("north").highest(sites.plan.digest) == 0
        self.send(door, 1, {name: sites.sealed(name, 1) for name in NAMES})
        assert door("north").highest(sites.plan.digest) == 1
        hub.log.post("trial", 2, "north", sites.sealed("north", 2))  # through another door, which then broke down
        assert door("north").highest(sites.plan.digest) == 2
        assert door("east").highest(sites.plan.digest) == 1

    def test_another_plan_is_refused(self, sites: Consortium, door: Door) -> None:
        with pytest.raises(Refused, match="plan"):
            door("north").highest("0" * 64)

    def test_a_site_speaks_for_itself_only(self, sites: Consortium, hub: Hub, door: Door) -> None:
        with pytest.raises(Refused, match="names another sender"):
            door("east").exchange(0, sites.sealed("north", 0))
        assert hub.log.messages("trial") == {}

    def test_what_is_no_message_is_refused(self, sites: Consortium, hub: Hub, door: Door) -> None:
        for message in (b"", b"[" * 900, b"no message", b"{}", b"null"):
            with pytest.raises(Refused):
                door("east").exchange(0, message)
        assert hub.log.messages("trial") == {}

    def test_who_waits_for_a_site_that_left_gets_what_it_signed(self, sites: Consortium, hub: Hub, door: Door) -> None:
        hello = self.greet(sites, door)
        east = door("east")
        east.leave(sites.farewell("east", 1))
        with pytest.raises(TransportClosed) as closed:
            door("north").exchange(1, sites.sealed("north", 1))
        assert closed.value.site == "east"
        read_farewell(sites.plan, closed.value.farewell, "east", 1)
        assert hub.gone() == {"east": "a neighbour left"}
        assert door("north").exchange(0, hello["north"]) == {"east": hello["east"]}  # what it sent before stays

    def test_a_leave_that_a_site_did_not_sign_ends_nothing(self, sites: Consortium, hub: Hub, door: Door) -> None:
        self.greet(sites, door)
        first = {name: sites.sealed(name, 1) for name in NAMES}
        stranger = Farewell("trial", sites.plan.digest, 1, "east", "done").seal(SigningKey.make())
        for lie in (b"", b"done", sites.farewell("north", 1), sites.farewell("east", 2), stranger):
            east = door("east")
            with pytest.raises(Refused):
                east.leave(lie)
            east.exchange(0, sites.sealed("east", 0))
            assert hub.gone() == {}
        self.send(door, 1, first)

    def test_a_hub_that_ends_the_run_tells_who_waits(self, sites: Consortium, hub: Hub, door: Door) -> None:
        self.greet(sites, door)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(door("north").exchange, 1, sites.sealed("north", 1))
            hub.log.end("trial")
            with pytest.raises(TransportClosed) as closed:
                waiting.result()
        assert closed.value.site is None
