"""Runs over a graph that go on without a lost site: rosters that all sign, duals that add up,
prices that stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problems import make_rows
from sites_in_tests import CANNOT_GO_ON, Consortium, Stop, consortium
from sums_in_tests import Lost, run

from sottovoce.algorithms import METHODS
from sottovoce.deploy import run_sites
from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.messages import OUT
from sottovoce.deploy.plan_file import read_plan_file, write_plan_file
from sottovoce.deploy.session import Finished
from sottovoce.deploy.sums.messages import sign_content
from sottovoce.deploy.sums.roster import EXPELLED, LATE, LEFT, ProtocolState
from sottovoce.deploy.waits import ENDLESS, Waits
from sottovoce.errors import EndedEarly, FinishedWithout, InvalidInput, Refused, SottovoceError
from sottovoce.runs.config import RunConfig
from sottovoce.runs.engine import FEW
from sottovoce.runs.prepare import prepare

NAMES, SIZES = ("north", "east", "south", "west", "centre"), (60, 45, 80, 50, 40)


def lasting(folder: Path, waits: Waits | None = None, **knobs: Any) -> Consortium:
    """Five sites of a plan over a graph whose rounds end."""
    sites = consortium(
        folder, NAMES, SIZES, **({"method": "prox_admm", "delta": 1e-5, "rounds": 6} | knobs)
    )
    sites.plan = replace(sites.plan, waits=waits or Waits(1.0, 2.0))
    return sites


@contextmanager
def hub_of(sites: Consortium, path: Path) -> Iterator[Hub]:
    with HubLog(path) as log:
        yield Hub(sites.plan, log)


def twin(sites: Consortium, roster: dict[str, Any]) -> dict[str, np.ndarray]:
    names = sites.plan.names
    made = run_sites(
        sites.plan.config, sites.rows, lost={names.index(n): k for n, k in roster["since"].items()}
    )
    return {
        name: sites.plan.stages[0].prepared.algorithm.method_of_node(i).model(made[i][0].state)
        for i, name in enumerate(names)
        if name in roster["members"]
    }


def check_spending(sites: Consortium) -> None:
    """Rows are a beginning of what was planned, event for event."""
    for name in sites.plan.names:
        with sites.ledger(name) as ledger:
            planned = [event.to_dict() for event in sites.plan.planned_privacy.events(name)]
            assert ledger.to_list() == planned[: len(ledger.rows)]


# Every method is lost in every of the three exchanges, before or after its message got there by
# turns, so that every exchange has both, and every method.
LOSSES = [
    (method, last, (m + k) % 2 == 1)
    for m, method in enumerate(["prox_admm", "mr_admm", "momentum"])
    for k, last in enumerate([1, 4, 6])
]


@pytest.mark.parametrize(("method", "last", "after"), LOSSES)
def test_a_run_goes_on_without_a_lost_site(
    tmp_path: Path, method: str, last: int, after: bool
) -> None:
    sites = lasting(tmp_path / "sites", method=method, epsilon=4.0)
    with hub_of(sites, tmp_path / "hub.log") as hub:
        ends = run(
            sites, hub, lambda name: Lost(hub, name, last, after) if name == "south" else None
        )
        roster = hub.status_as_dict()["roster"]
        assert roster["gone"] == {"south": LATE} and roster["since"] == {"south": last + after}
        with pytest.raises(FinishedWithout, match="finished without 'south'"):
            hub.check_complete_end()
        late = sites.run_site("south", LocalTransport(hub, "south", 5.0))
        whole = (last, after) == (6, True)  # only its last model came too late
        assert late.outcome.stopped == ("finished" if whole else OUT)
        assert hub.results.models().shape == (4, sites.plan.d)
    models = twin(sites, roster)
    for name, model in models.items():
        end = ends[name]
        assert (
            isinstance(end, Finished)
            and end.outcome.stopped == "finished"
            and end.outcome.rounds == 6
        )
        np.testing.assert_array_equal(end.model, model)
        assert end.lost == {"south": LATE} and end.roster == roster
        assert end.statement.epsilon == sites.plan.planned_privacy.statement_at(name, True).epsilon
    check_spending(sites)


def test_remaining_duals_sum_to_zero() -> None:
    """Without noise: all duals cancel after a loss, and the run converges to the minimiser over
    what is left.
    """
    rows = make_rows(list(SIZES), 4)
    for method, dual in (
        ("admm", lambda s: s.lam),
        ("mr_admm", lambda s: s.lam),
        ("prox_admm", lambda s: s.lam),
        ("momentum", lambda s: s.f - s.step),
    ):
        config = RunConfig(method, float("inf"), None, 601, "ring", rho=0.1)
        made = run_sites(config, rows, lost={2: 8, 4: 9})
        kept = [0, 1]  # 3 hears nobody: on a ring 2 and 4 are its neighbours
        total = sum(dual(made[i][0].state) for i in kept)
        assert np.max(np.abs(total)) < 1e-9 * max(1.0, np.max(np.abs(dual(made[0][0].state)))), (
            method
        )
        assert np.max(np.abs(dual(made[3][0].state))) < 1e-12, method
        alone = prepare(config, rows.n, rows.d)
        models = [made[i][0].state.f for i in kept]
        assert np.max(np.abs(models[0] - models[1])) < 1e-4, method
        facts = alone.facts
        w = np.mean(models, axis=0)
        gradient = np.zeros(rows.d)
        for i in kept:
            own, site = facts.facts_of_node(i), rows.rows_of_node(i)
            z = site.signed[0]
            slope = -1.0 / (1.0 + np.exp(z @ w))
            gradient += (
                own.C / float(np.ravel(own.n)[0]) * (slope @ z) + float(np.ravel(own.mu)[0]) * w
            )
        assert np.linalg.norm(gradient) < 1e-3, (method, gradient)


def test_every_graph_method_can_go_on_without_lost_sites() -> None:
    assert all(one.cls.induced for one in METHODS if one.kind == "nobody")


def test_a_graph_that_falls_apart_ends_the_run_with_the_last_state(tmp_path: Path) -> None:
    sites = lasting(tmp_path / "sites", graph="path", waits=Waits(0.3, 0.6))
    with hub_of(sites, tmp_path / "hub.log") as hub:
        ends = run(sites, hub, lambda name: Lost(hub, name, 3) if name == "south" else None)
        with pytest.raises(EndedEarly):
            hub.check_complete_end()
    for name in set(NAMES) - {"south"}:
        end = ends[name]
        assert end.outcome.stopped == FEW and end.outcome.rounds == 2
    check_spending(sites)


def test_run_ends_without_majority_of_sites(tmp_path: Path) -> None:
    sites = lasting(tmp_path / "sites", graph="complete", waits=Waits(0.3, 0.6))
    lost = {"south": 3, "west": 3, "centre": 4}
    with hub_of(sites, tmp_path / "hub.log") as hub:
        ends = run(sites, hub, lambda name: Lost(hub, name, lost[name]) if name in lost else None)
        assert hub.results.models() is None
    assert {ends[name].outcome.stopped for name in ("north", "east")} == {FEW}
    check_spending(sites)


def test_the_operator_takes_a_site_out(tmp_path: Path) -> None:
    sites = lasting(tmp_path / "sites", waits=Waits(500.0, 500.0))
    with hub_of(sites, tmp_path / "hub.log") as hub, HubLog(tmp_path / "hub.log") as other:

        def door(name: str) -> LocalTransport | None:
            if name != "south":
                return None
            lost = Lost(hub, name, 3)
            lost.send_farewell = lambda farewell: None  # type: ignore[method-assign]
            return lost

        with ThreadPoolExecutor(1) as pool:
            ran = pool.submit(run, sites, hub, door)
            while hub.log.last("trial", "north") < 3:
                pass
            other.decisions.record_expulsion("trial", "south")  # another process of the operator
            ends = ran.result()
        roster = hub.status_as_dict()["roster"]
        assert roster["gone"] == {"south": EXPELLED}
        with pytest.raises(SottovoceError, match="go on without"):
            hub.exchange("south", 3, sites.sealed("south", 3), 0.0)
    for name, model in twin(sites, roster).items():
        np.testing.assert_array_equal(ends[name].model, model)
    check_spending(sites)


def test_a_site_that_leaves_is_not_waited_for(tmp_path: Path) -> None:
    sites = lasting(tmp_path / "sites", waits=Waits(500.0, 500.0))
    with hub_of(sites, tmp_path / "hub.log") as hub:

        class Leaves(Lost):
            def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
                if round == 3:
                    hub.record_farewell("south", sites.farewell("south", 3, CANNOT_GO_ON))
                return super().exchange(round, message)

        ends = run(sites, hub, lambda name: Leaves(hub, name, 3) if name == "south" else None)
        roster = hub.status_as_dict()["roster"]
        assert hub.gone()["south"] == CANNOT_GO_ON
    assert roster["gone"] == {"south": LEFT}
    for name, model in twin(sites, roster).items():
        np.testing.assert_array_equal(ends[name].model, model)


@pytest.mark.parametrize("at", [3, 4, 5])
@pytest.mark.parametrize("after", [False, True])
def test_remaining_site_resumes_after_crash_around_roster(
    tmp_path: Path, at: int, after: bool
) -> None:
    """north is killed before or after its message of the lost round (3), the roster (4), or the
    next round (5).
    """
    sites = lasting(tmp_path / "sites", waits=Waits(2.0, 4.0))
    with hub_of(sites, tmp_path / "hub.log") as hub:
        door = {"south": Lost(hub, "south", 3), "north": Lost(hub, "north", at, after)}
        with ThreadPoolExecutor(1) as pool:
            ran = pool.submit(run, sites, hub, door.get)
            assert door["north"].stopped.wait(60.0)
            end = sites.run_site("north", LocalTransport(hub, "north", 30.0))
            ends = ran.result()
        roster = hub.status_as_dict()["roster"]
    assert isinstance(ends["north"], Stop) and roster["gone"] == {"south": LATE}
    models = twin(sites, roster)
    np.testing.assert_array_equal(end.model, models["north"])
    for name in ("east", "west", "centre"):
        np.testing.assert_array_equal(ends[name].model, models[name])
    check_spending(sites)


class Lying(LocalTransport):
    """A hub that changes what one site gets in one exchange."""

    def __init__(
        self,
        hub: Hub,
        site: str,
        round: int,
        change: Callable[[dict[str, bytes]], dict[str, bytes]],
    ) -> None:
        super().__init__(hub, site, 8.0)
        self._at, self._change = round, change

    def exchange(self, round: int, message: bytes) -> dict[str, bytes]:
        found = super().exchange(round, message)
        return self._change(found) if round == self._at else found


LIES: dict[str, Callable[[Consortium, dict[str, bytes]], dict[str, bytes]]] = {
    "a neighbour is missing": lambda s, inbox: inbox | {"east": b""},
    "a stranger is missing": lambda s, inbox: inbox | {"south": b""},
    "a neighbour was taken out": lambda s, inbox: inbox | {"east": b"expelled"},
    "an unsigned word": lambda s, inbox: inbox | {"east": b"late"},
    "a false farewell": lambda s, inbox: inbox | {"east": s.farewell("north", 3)},
    "nothing of a neighbour": lambda s, inbox: {n: m for n, m in inbox.items() if n != "east"},
    "a stranger's message": lambda s, inbox: inbox | {"south": s.sealed("south", 3)},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_hub_that_shows_other_absences_gets_no_two_histories(tmp_path: Path, lie: str) -> None:
    """north alone is told that somebody is missing: it never goes on, and the others go on
    without it.
    """
    sites = lasting(tmp_path / "sites")
    with hub_of(sites, tmp_path / "hub.log") as hub:
        ends = run(
            sites,
            hub,
            lambda n: Lying(hub, n, 3, lambda i: LIES[lie](sites, i)) if n == "north" else None,
        )
        roster = hub.status_as_dict()["roster"]
    assert isinstance(ends["north"], Refused), ends["north"]
    with sites.ledger("north") as ledger:
        assert len(ledger.rows) == 3  # nothing was drawn in a history of its own
    assert list(roster["gone"]) == ["north"]
    for name, model in twin(sites, roster).items():
        np.testing.assert_array_equal(ends[name].model, model)
    check_spending(sites)


def test_a_roster_counts_when_all_have_signed_the_same(tmp_path: Path) -> None:
    """Another member's signature under another roster, or a release in a roster's place, is
    refused.
    """
    sites = lasting(tmp_path / "sites")
    state = ProtocolState.of(sites.plan)
    state.phase, state.members, state.epoch, state.attempt = (
        "roster",
        ("centre", "east", "north", "west"),
        1,
        3,
    )
    honest = state.next_roster
    from sottovoce.deploy.sums.messages import read_signed_message

    for content in (
        replace(honest, members=("centre", "east", "north")),
        replace(honest, epoch=2),
        replace(honest, first=1),
        replace(honest, parent=bytes(32)),
        replace(honest, session=bytes(32)),
    ):
        signed = read_signed_message(
            sites.plan, sign_content(sites.plan, 4, "east", content, sites.keys["east"]), "east", 4
        )
        with pytest.raises(Refused, match="the same history"):
            state.check_message(signed)
    with pytest.raises(Refused, match="the same history"):
        state.check_message(read_signed_message(sites.plan, sites.sealed("east", 4), "east", 4))
    with pytest.raises(Refused, match="present roster"):
        state.check_message(
            read_signed_message(
                sites.plan,
                sign_content(sites.plan, 4, "south", honest, sites.keys["south"]),
                "south",
                4,
            )
        )
    state.check_message(
        read_signed_message(
            sites.plan, sign_content(sites.plan, 4, "east", honest, sites.keys["east"]), "east", 4
        )
    )


def test_waits_are_in_the_plan_and_its_digest(tmp_path: Path) -> None:
    sites = lasting(tmp_path / "sites")
    write_plan_file(sites.plan, tmp_path / "plan.json")
    again = read_plan_file(tmp_path / "plan.json")
    assert again == sites.plan and again.digest != replace(sites.plan, waits=Waits(1.0, 3.0)).digest
    endless = replace(sites.plan, waits=ENDLESS)
    write_plan_file(endless, tmp_path / "endless.json")
    assert (
        read_plan_file(tmp_path / "endless.json") == endless and endless.digest != sites.plan.digest
    )
    assert endless.to_dict()["waits"] == {"deadline": None, "patience": None}
    for bad in (
        {"deadline": 0.0},
        {"deadline": float("nan")},
        {"patience": 1.0},
        {"deadline": True},
    ):
        with pytest.raises(InvalidInput, match=next(iter(bad))):
            Waits(**bad)  # type: ignore[arg-type]
