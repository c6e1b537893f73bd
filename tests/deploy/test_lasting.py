"""Long, wide and lossy runs: what stays at the hub does not grow with rounds, and faults end as
the book says.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import warm
from sites_in_tests import Stop, consortium
from sums_in_tests import Lost, hub_of, run, summed

from sottovoce.deploy import run_sites
from sottovoce.deploy.hub import Hub
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.messages import HUB, Kind, Message

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

FAULTS = Path(__file__).parents[2] / "bench" / "life.py"


def test_a_hub_holds_no_more_after_400_rounds_than_after_40(tmp_path: Path) -> None:
    sites = consortium(tmp_path / "sites", method="momentum", epsilon=2.0, delta=1e-5, rounds=400)
    plan, held = sites.plan, dict[int, int]()

    def post(hub: Hub, round: int, kind: Kind) -> None:
        payload = np.zeros(0 if round == 0 else plan.exchange_table.widths[0])
        for name in plan.names:
            message = Message(plan.run, plan.digest, round, name, kind, payload).to_signed_bytes(
                sites.keys[name]
            )
            hub.exchange(name, round, message, 0.0)
        assert all(hub.rounds.inbox_of_site(name, round) is not None for name in plan.names)

    with HubLog(tmp_path / "hub.log") as log:
        hub = Hub(plan, log)
        post(hub, 0, "hello")
        tracemalloc.start()
        try:
            for round in range(1, 401):
                post(hub, round, "release")
                if round in (40, 400):
                    held[round] = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert log.last(plan.run, "north") == 400
    assert held[400] - held[40] < 80_000  # 400 rounds of messages are ten times that


def test_sums_of_200_000_columns_are_those_of_one_process(tmp_path: Path) -> None:
    sites = summed(tmp_path / "sites", d=200_000, rounds=1, seed=3)
    with hub_of(sites, tmp_path / "hub.log") as hub:
        ends = run(sites, hub)
    made = run_sites(sites.plan.config, sites.rows)
    for i, name in enumerate(sites.plan.names):
        np.testing.assert_array_equal(
            ends[name].model,
            sites.plan.stages[0].prepared.algorithm.method_of_node(i).model(made[i][0].state),
        )


def test_a_site_too_slow_for_the_deadline_of_the_plan_is_told_when_it_asks(tmp_path: Path) -> None:
    """The others finish without it; what it spent stays spent, and the rest of its reservation
    goes back.
    """
    sites = summed(tmp_path / "sites", seed=3, rounds=4)
    with hub_of(sites, tmp_path / "hub.log", patience=1.0) as hub:
        ends = run(sites, hub, lambda name: Lost(hub, name, 4) if name == "south" else None)
        assert {name for name in sites.plan.names if isinstance(ends[name], BaseException)} == {
            "south"
        }
        assert "south" in hub.status_as_dict()["roster"]["gone"]
        late = sites.run_site("south", Lost(hub, "south", 99))
    assert late.outcome.stopped not in ("finished", "budget spent")
    with sites.ledger("south") as ledger:
        assert len(ledger.rows) < len(sites.plan.planned_privacy.events("south"))
        assert ledger.account.committed_epsilon()[0] == ledger.total()


def test_restarted_sites_stop_waiting_for_lost_witness(
    tmp_path: Path,
) -> None:
    """Nobody has sent a message of the round, so no deadline runs; but each asks the others, and
    that has an end.
    """
    sites = summed(tmp_path / "sites", seed=3, rounds=4)

    def die(round: int, state: object) -> None:
        if round == 2:
            raise Stop

    with hub_of(sites, tmp_path / "hub.log", patience=2.0) as hub:
        with ThreadPoolExecutor(5) as pool:
            jobs = [
                pool.submit(sites.run_site, name, Lost(hub, name, 99), observers=[die])
                for name in sites.plan.names
            ]
            assert all(isinstance(job.exception(), Stop) for job in jobs)
            left = [name for name in sites.plan.names if name not in ("south", "west")]
            ends = list(pool.map(lambda name: sites.run_site(name, Lost(hub, name, 99)), left))
        assert hub.status_as_dict()["ended"]
    assert {end.outcome.stopped for end in ends} == {HUB}
    for name in left:
        with sites.ledger(name) as ledger:
            assert ledger.account.committed_epsilon()[0] == ledger.total()


@pytest.fixture
def ran() -> Callable[..., dict[str, object]]:
    def call(*arguments: str) -> dict[str, object]:
        done = subprocess.run(
            [sys.executable, *arguments, "--json"], capture_output=True, text=True, timeout=280
        )
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    return call


def test_a_demonstration_that_loses_a_site_ends_by_itself(
    ran: Callable[..., dict[str, object]],
) -> None:
    found = ran("-m", "sottovoce", "demo", "--lose-site", "1", "--sites", "4", "--rounds", "30")
    roster = found["roster"]
    assert isinstance(roster, dict)
    assert len(roster["members"]) == 3 and len(roster["gone"]) == 1 and found["difference"] == 0.0


def test_real_faults_break_no_promise() -> None:
    done = warm.run(
        [FAULTS, "--faults", "3", "--rounds", "40", "--seed", "4", "--json", "--forks"], timeout=280
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["broken"] == 0 and int(str(found["faults"])) >= 3
