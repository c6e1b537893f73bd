"""Every transport of the package keeps the contract of transports."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from relay_in_tests import certify, credentials, transport
from sites_in_tests import NAMES, Consortium, consortium
from tasks_in_tests import carried
from transports_in_tests import Door, TransportContract

from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.nvflare import tasks
from sottovoce.deploy.relay import serve
from sottovoce.errors import Refused, SottovoceError, TransportClosed, Unreachable


class TestInOneProcess(TransportContract):
    @pytest.fixture
    def door(self, sites: Consortium, hub: Hub, tmp_path: Path) -> Door:
        return lambda name: LocalTransport(hub, name, 20.0)


class TestRelay(TransportContract):
    @pytest.fixture
    def door(self, sites: Consortium, hub: Hub, tmp_path: Path) -> Iterator[Door]:
        pytest.importorskip("grpc")
        folder = tmp_path / "tls"
        certify(folder, NAMES)
        server, port = serve(hub, credentials(folder, "hub"), "127.0.0.1:0")
        with ExitStack() as stack:
            stack.callback(lambda: server.stop(0.2).wait())
            yield lambda name: stack.enter_context(transport(sites, folder, f"127.0.0.1:{port}", name))


class TestTasks(TransportContract):
    @pytest.fixture
    def door(self, sites: Consortium, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
        monkeypatch.setattr(tasks, "PATIENCE", 0.2)  # or a thread that waits in vain would end after five seconds
        with carried(sites, hub) as door:
            yield door


class Faulty(LocalTransport):
    """A transport with one fault."""

    def __init__(self, hub: Hub, site: str, fault: str) -> None:
        super().__init__(hub, site, 2.0)
        self._fault = fault

    def highest(self, plan: str) -> int:
        if self._fault == "any plan will do":
            return self._hub.highest(self._site)
        return 0 if self._fault == "an old number" else super().highest(plan)

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        hub, run = self._hub, self._hub.plan.run
        if self._fault == "the message says who speaks" and b'"sender":"north"' in message:
            self._site = "north"
        if self._fault == "a name is all it tells" or self._fault == "a run that nobody ends":
            try:
                return super().exchange(round, message)
            except TransportClosed as error:
                ended = error.site is None
                if ended == (self._fault == "a run that nobody ends"):
                    raise (Unreachable("gone") if ended else TransportClosed(str(error), error.site)) from None
                raise
        if self._fault == "nobody is refused":
            with suppress(Refused):
                return super().exchange(round, message)
            return hub.log.inbox(run, round, hub.plan.neighbours(self._site)) or {}
        found = super().exchange(round, message)
        if self._fault == "everybody hears everything":
            return {name: data for (k, name), data in hub.log.messages(run).items() if k == round}
        return {name: data + b" " for name, data in found.items()} if self._fault == "other bytes" else found

    def leave(self, farewell: bytes) -> None:
        if self._fault == "nobody hears that a site leaves":
            return
        if self._fault == "any word ends it":
            self._hub.log.leave(self._hub.plan.run, self._site, self._hub.highest(self._site) + 1, farewell)
        else:
            super().leave(farewell)


FAULTS = {
    "other bytes": "an_inbox_holds_the_bytes_of_the_neighbours",
    "everybody hears everything": "an_inbox_holds_the_bytes_of_the_neighbours",
    "an old number": "highest_is_that_of_the_hub_now",
    "any plan will do": "another_plan_is_refused",
    "the message says who speaks": "a_site_speaks_for_itself_only",
    "nobody is refused": "the_first_message_of_a_round_is_kept",
    "a name is all it tells": "who_waits_for_a_site_that_left_gets_what_it_signed",
    "a run that nobody ends": "a_hub_that_ends_the_run_tells_who_waits",
    "nobody hears that a site leaves": "who_waits_for_a_site_that_left_gets_what_it_signed",
    "any word ends it": "a_leave_that_a_site_did_not_sign_ends_nothing",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_contract_finds_a_fault(fault: str, tmp_path: Path) -> None:
    sites = consortium(tmp_path / "sites", graph="path")
    with HubLog(tmp_path / "hub.log") as log:
        hub = Hub(sites.plan, log)

        def door(name: str) -> LocalTransport:
            return Faulty(hub, name, fault)

        check = getattr(TransportContract(), f"test_{FAULTS[fault]}")
        given = {"sites": sites, "hub": hub, "door": door}
        wanted = {name: given[name] for name in inspect.signature(check).parameters}
        with pytest.raises((AssertionError, SottovoceError, pytest.fail.Exception)):
            check(**wanted)
