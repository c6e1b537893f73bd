"""A run that ends early: who may say so, who believes it, and what is stated of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from relay_in_tests import certify, relay, transport
from sites_in_tests import CANNOT_GO_ON, NAMES, Consortium, Stop, consortium

from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.messages import COMPLETE, OUT, Farewell, Reason, read_farewell
from sottovoce.deploy.report import render_site_report
from sottovoce.deploy.session import HUB, Finished, check_complete_end
from sottovoce.errors import EndedEarly, Refused, TransportClosed, exit_code_for_error
from sottovoce.runs.engine import FEW
from sottovoce.runs.pricing import privacy_statement
from sottovoce.util.plain import canonical_json

pytest.importorskip("grpc")
pytest.importorskip("cryptography")


def altered(data: bytes, **changes: object) -> bytes:
    """The same signature under other words."""
    return canonical_json(json.loads(data) | changes).encode()


def test_wording_of_stop_reasons() -> None:
    """They are stored in records and sent between sites: a published one never changes."""
    spent = "its budget is spent"
    assert get_args(Reason) == ("done", spent, HUB, FEW, CANNOT_GO_ON)
    assert HUB == "the hub ended the run"
    assert FEW == "too few sites are left"
    assert OUT == "the other sites go on without this one"


FALSE: dict[str, Callable[[Consortium, int], bytes]] = {
    "nothing": lambda s, k: b"",
    "a reason alone": lambda s, k: b"its budget is spent",
    "no signature": lambda s, k: canonical_json(
        {**json.loads(s.farewell("east", k)), "sig": ""}
    ).encode(),
    "an empty key": lambda s, k: altered(s.farewell("east", k), sig="A" * 86 + "=="),
    "another's key": lambda s, k: altered(s.farewell("east", k, sender="north"), sender="east"),
    "another's word": lambda s, k: s.farewell("north", k),
    "a stranger's key": lambda s, k: Farewell(
        "trial", s.plan.digest, k, "east", "done"
    ).to_signed_bytes(SigningKey.make()),
    "another run": lambda s, k: s.farewell("east", k, run="trial-2"),
    "another plan": lambda s, k: s.farewell("east", k, plan="0" * 64),
    "an earlier round": lambda s, k: s.farewell("east", k - 1),
    "a later round": lambda s, k: s.farewell("east", k + 1),
    "a round that is no number": lambda s, k: altered(s.farewell("east", k), round=float(k)),
    "a huge round": lambda s, k: s.farewell("east", 10**39),
    "another reason": lambda s, k: altered(s.farewell("east", k), reason="done"),
    "a reason of its own": lambda s, k: s.farewell("east", k, reason="its rows are all alike"),
    "a message": lambda s, k: s.sealed("east", k),
    "other bytes": lambda s, k: json.dumps(json.loads(s.farewell("east", k))).encode(),
    "a key twice": lambda s, k: s.farewell("east", k)[:-1] + b',"v":1}',
    "too much": lambda s, k: s.farewell("east", k) + b" " * 10_000,
}


@pytest.mark.parametrize("name", FALSE)
def test_farewell_without_valid_signature_is_refused(
    sites: Consortium, hub: Hub, name: str
) -> None:
    hub.log.store_message("trial", 0, "east", sites.sealed("east", 0))
    with pytest.raises(Refused, match=r"^farewell of 'east'") as caught:
        hub.record_farewell("east", FALSE[name](sites, 1))
    assert "round 1: " in str(caught.value)
    assert hub.gone() == {}
    hub.record_farewell("east", sites.farewell("east", 1))
    hub.record_farewell("east", sites.farewell("east", 1, "done"))  # the first stands
    assert hub.gone() == {"east": FEW}


def test_a_tls_key_alone_does_not_end_a_run(sites: Consortium, tmp_path: Path) -> None:
    certify(tmp_path / "tls", NAMES)
    with relay(sites, tmp_path / "tls") as (address, log):
        with transport(sites, tmp_path / "tls", address, "east") as thief:
            for lie in FALSE.values():
                with pytest.raises(Refused, match=r"farewell|too long"):
                    thief.send_farewell(lie(sites, 0).decode("latin-1").encode("ascii", "replace"))
        ends = sites.run(lambda name: transport(sites, tmp_path / "tls", address, name))
        assert {(end.outcome.stopped, end.outcome.rounds) for end in ends.values()} == {
            ("finished", 4)
        }
        assert Hub(sites.plan, log).gone() == dict.fromkeys(NAMES, "done")


class Lying(LocalTransport):
    """A hub that says, in one round, that a site has left."""

    def __init__(self, hub: Hub, name: str, round: int, site: str, words: bytes) -> None:
        super().__init__(hub, name)
        self._at, self._who, self._words = round, site, words

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        found = super().exchange(round, message)
        return found | {self._who: self._words} if round == self._at else found


@pytest.mark.parametrize("name", [*sorted(FALSE.keys() - {"a message"}), "a bare word"])
def test_a_site_does_not_believe_a_hub_that_a_neighbour_left(
    sites: Consortium, hub: Hub, name: str
) -> None:
    words = b"left" if name == "a bare word" else FALSE[name](sites, 2)
    with ThreadPoolExecutor(2) as pool:
        others = [
            pool.submit(sites.run_site, name, LocalTransport(hub, name)) for name in NAMES[1:]
        ]
        with pytest.raises(Refused, match="'east'"):
            sites.run_site("north", Lying(hub, "north", 2, "east", words))
        with sites.ledger("north") as ledger:
            assert len(ledger.rows) == 2 and ledger.show()["runs"][0]["state"] == "open"
        # the run goes on
        assert sites.run_site("north", LocalTransport(hub, "north")).outcome.rounds == 4
        assert [other.result().outcome.rounds for other in others] == [4, 4]


@pytest.mark.parametrize("words", [b"", b"expelled"])
def test_unsigned_notice_is_refused_if_plan_waits_forever(tmp_path: Path, words: bytes) -> None:
    """No hub may say that a site came too late, or was taken out, also of one that is no
    neighbour.
    """
    sites = consortium(tmp_path / "sites", graph="path")  # north - east - south
    with HubLog(tmp_path / "hub.log") as log, ThreadPoolExecutor(2) as pool:
        hub = Hub(sites.plan, log)
        others = [
            pool.submit(sites.run_site, name, LocalTransport(hub, name)) for name in NAMES[1:]
        ]
        with pytest.raises(Refused, match="for all sites"):
            sites.run_site("north", Lying(hub, "north", 2, "south", words))
        sites.run_site("north", LocalTransport(hub, "north"))
        assert [other.result().outcome.rounds for other in others] == [4, 4]


def test_a_farewell_is_no_message_and_a_message_no_farewell(sites: Consortium, hub: Hub) -> None:
    with pytest.raises(Refused, match="another form"):
        hub.exchange("east", 0, sites.farewell("east", 0), 0.0)
    with pytest.raises(Refused, match="another form"):
        read_farewell(sites.plan, sites.sealed("east", 0), "east", 0)


def test_site_that_left_cannot_send(sites: Consortium, hub: Hub) -> None:
    for name in NAMES:
        hub.exchange(name, 0, sites.sealed(name, 0), 0.0)
    hub.record_farewell("east", sites.farewell("east", 1))
    with pytest.raises(Refused, match="has left"):
        hub.exchange("east", 1, sites.sealed("east", 1), 0.0)
    heard = hub.exchange("east", 0, sites.sealed("east", 0), 0.0)  # as it stands
    assert heard is not None and heard.keys() == {"north", "south"}


def test_concurrent_farewell_and_message_keep_log_consistent(sites: Consortium, hub: Hub) -> None:
    note = hub.log.record_farewell

    def late(*said: Any) -> None:
        # by another connection, after the farewell was read
        hub.exchange("east", 0, sites.sealed("east", 0), 0.0)
        note(*said)

    hub.log.record_farewell = late  # type: ignore[method-assign]
    with pytest.raises(Refused, match="next round"):
        hub.record_farewell("east", sites.farewell("east", 0))
    hub.check_log()
    assert hub.gone() == {} and hub.highest_round_of("east") == 0


# What a run that ended early has cost


class Quitting(LocalTransport):
    """A site that sends its message of a round, and then its signed farewell."""

    def __init__(self, hub: Hub, name: str, sites: Consortium, round: int) -> None:
        super().__init__(hub, name)
        self._sites, self._at = sites, round

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        found = super().exchange(round, message)
        if round == self._at:
            self.send_farewell(self._sites.farewell(self._site, round + 1))
            raise Stop
        return found


KNOBS = {"method": "prox_admm", "delta": 1e-5, "rounds": 6}


@pytest.mark.parametrize("by", ["a neighbour", "the hub"])
@pytest.mark.parametrize("accountant", ["best", "zcdp", "rdp"])
def test_a_run_that_another_ended_is_stated_at_the_price_of_all_that_was_planned(
    tmp_path: Path, by: str, accountant: str
) -> None:
    sites = consortium(tmp_path / "sites", **KNOBS, accountant=accountant)

    def watch(k: int, state: object) -> None:
        if k == 2:
            hub.log.decisions.record_end_of_run("trial")

    with HubLog(tmp_path / "hub.log") as log, ThreadPoolExecutor(3) as pool:
        hub = Hub(sites.plan, log)

        def take_part(name: str) -> Finished:
            if by == "the hub":
                return sites.run_site(
                    name, LocalTransport(hub, name), observers=[watch] if name == "north" else []
                )
            door = Quitting(hub, name, sites, 2) if name == "east" else LocalTransport(hub, name)
            return sites.run_site(name, door)

        jobs = {name: pool.submit(take_part, name) for name in NAMES}
        ends = {name: jobs[name].result() for name in ("north", "south")}
        if by == "the hub":
            ends["east"] = jobs["east"].result()
        else:
            with pytest.raises(Stop):
                jobs["east"].result()
        gone = hub.gone()
        with pytest.raises(
            EndedEarly, match="the hub ended" if by == "the hub" else "these sites left"
        ):
            hub.check_complete_end()
    for name, end in ends.items():
        planned = sites.plan.planned_privacy.events(name)
        assert end.outcome.stopped == (HUB if by == "the hub" else FEW) and end.outcome.rounds == 2
        assert end.by == (None if by == "the hub" else "east")
        made = end.statement_as_dict["made"]
        assert made < end.statement_as_dict["releases"] == len(planned)
        i = sites.plan.index(name)
        alone = replace(
            sites.plan.stages[0].prepared,
            facts=sites.plan.stages[0].prepared.facts.facts_of_node(i),
        )
        everything, part = (
            privacy_statement(alone, rows, simulated=True).epsilon
            for rows in (planned, planned[:made])
        )
        assert end.statement_as_dict["epsilon"] == everything > part
        assert f"Ended early: after {made} of 6 releases" in end.statement_as_dict["says"]
        assert "Ended early" in render_site_report(sites.plan, name, end)
        with sites.ledger(name) as ledger:  # a filter: what was not spent is given back
            run = ledger.show()["runs"][0]
            assert (run["state"], run["held"], len(ledger.rows)) == ("closed", 0, made)
        with pytest.raises(EndedEarly) as caught:
            check_complete_end(name, "trial", end.outcome.stopped, end.lost)
        assert exit_code_for_error(caught.value) == 4
        assert gone[name] not in COMPLETE


def test_unstarted_run_ends_early(sites: Consortium, hub: Hub) -> None:
    hub.record_farewell("east", sites.farewell("east", 0))
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(sites.run_site, name, LocalTransport(hub, name))
            for name in ("north", "south")
        ]
        ends = [job.result() for job in jobs]
    for end in ends:
        assert (end.outcome.stopped, end.outcome.rounds, end.spent, end.by) == (FEW, 0, 0.0, "east")
        assert end.statement_as_dict["made"] == 0 and end.statement_as_dict["epsilon"] > 0.0
    assert hub.gone() == dict.fromkeys(sorted(NAMES), FEW)


def test_a_run_that_is_complete_has_not_ended_early(tmp_path: Path) -> None:
    for folder, knobs, stopped in (
        ("all", {}, "finished"),
        ("few", {"noise": 0.3, "epsilon": 1.0}, "budget spent"),
    ):
        sites = consortium(tmp_path / folder, **knobs)
        with HubLog(tmp_path / f"{folder}.log") as log:
            ends = sites.run_locally(log)
            Hub(sites.plan, log).check_complete_end()
        for name, end in ends.items():
            assert end.outcome.stopped == stopped and "early" not in end.statement_as_dict
            assert end.statement_as_dict["made"] == end.statement_as_dict["releases"]
            check_complete_end(name, "trial", stopped, end.lost)


def test_a_hub_ends_a_run_once_it_has_begun_and_for_good(sites: Consortium, hub: Hub) -> None:
    for name in NAMES:
        hub.log.store_message("trial", 0, name, sites.sealed(name, 0))
    hub.log.decisions.record_end_of_run("trial")
    hub.log.decisions.record_end_of_run("trial")
    assert (
        hub.log.decisions.is_run_ended("trial")
        and not hub.log.decisions.is_run_ended("another")
        and hub.status_as_dict()["ended"]
    )
    with pytest.raises(TransportClosed, match=r"hub ended .*'trial'") as caught:
        hub.exchange("north", 0, sites.sealed("north", 0), 0.0)
    assert caught.value.site is None
    for name in NAMES:
        hub.record_farewell(name, sites.farewell(name, 1, HUB))
    assert hub.all_sites_left
    with pytest.raises(EndedEarly, match="the hub ended"):
        hub.check_complete_end()
