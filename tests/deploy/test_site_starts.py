"""Sites that start from a public point: it stands in the plan, and every site has the same one."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sites_in_tests import NAMES, Consortium, Fragile, Stop, consortium

from sottovoce.deploy import run_sites
from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.plan_file import read_plan_file, write_plan_file
from sottovoce.deploy.proposal import Proposal, make_calibrated_plan
from sottovoce.deploy.report import make_saved_result
from sottovoce.errors import InvalidInput
from sottovoce.runs.engine import FINISHED
from sottovoce.runs.simulate import Result, RunConfig, Start, simulate

pytest.importorskip("cryptography")

START = Start(np.array([2.0, -1.0, 0.5, 3.0]), "run", 0.5, 1e-6)


@pytest.fixture
def log(tmp_path: Path) -> HubLog:
    with HubLog(tmp_path / "hub.log") as log:
        yield log


def started(sites: Consortium, start: Start = START) -> Consortium:
    """The same sites, under a plan that has a start."""
    config = replace(sites.plan.config, start=None)
    return replace(
        sites,
        plan=make_calibrated_plan(Proposal("trial", config, sites.plan.sites, 4, start=start)),
    )


@pytest.mark.parametrize(
    "knobs", [{"method": "mr_admm"}, {"method": "prox_admm", "delta": 1e-5}, {"method": "output"}]
)
def test_sites_equal_simulation_after_crash(
    tmp_path: Path, log: HubLog, knobs: dict[str, object]
) -> None:
    sites = started(consortium(tmp_path / "sites", **knobs))
    config, hub = sites.plan.config, Hub(sites.plan, log)

    def take_part(name: str) -> np.ndarray:
        inner = LocalTransport(hub, name, 20.0)
        if name == "east":
            with pytest.raises(Stop):
                sites.run_site(name, Fragile(inner, 2, True))
        return sites.run_site(name, inner).model

    with ThreadPoolExecutor(3) as pool:
        models = np.stack(list(pool.map(take_part, NAMES)))
    twin = run_sites(config, sites.rows, start=START)
    algorithm = sites.plan.stages[0].prepared.algorithm
    for i, model in enumerate(models):
        np.testing.assert_array_equal(
            model, algorithm.method_of_node(i).model(twin[i][0].state) + START.vector
        )
    np.testing.assert_array_equal(models, hub.results.models())
    np.testing.assert_allclose(
        models, simulate(config, sites.rows, start=START).models[0], rtol=1e-9, atol=1e-9
    )
    saved = make_saved_result(
        sites.plan, models, sites.plan.planned_privacy.statement, FINISHED, config.rounds
    )
    saved.save(tmp_path / "hub.npz")
    assert Result.load(tmp_path / "hub.npz").start == START
    caveat = str(sites.plan.planned_privacy.statement.caveat)
    spent = "epsilon = 0.500, delta = 1e-06"  # by the record of the start
    assert "by its record" in caveat and spent in caveat


def test_a_plan_with_a_start_costs_the_same_and_has_another_digest(tmp_path: Path) -> None:
    sites = consortium(tmp_path / "sites", method="prox_admm", delta=1e-5)
    other = started(sites)
    assert [e.to_dict() for e in other.plan.planned_privacy.events("north")] == [
        e.to_dict() for e in sites.plan.planned_privacy.events("north")
    ]
    assert (
        other.plan.planned_privacy.statement.epsilon == sites.plan.planned_privacy.statement.epsilon
    )
    digests = {p.digest for p in (sites.plan, other.plan, started(sites, Start(START.vector)).plan)}
    assert len(digests) == 3 and "start" not in sites.plan.to_dict()


def test_the_plan_file_keeps_the_start_and_an_edited_one_is_refused(tmp_path: Path) -> None:
    plan, path = started(consortium(tmp_path / "sites")).plan, tmp_path / "plan.json"
    write_plan_file(plan, path)
    again = read_plan_file(path)
    assert again == plan and again.start == START
    plain = json.loads(path.read_text())
    for change in (
        {"vector": [2.0, -1.0, 0.5, 3.1]},
        {"epsilon": 0.1},
        {"vector": "1234"},
        {"kind": "public"},
    ):
        path.write_text(json.dumps(plain | {"start": plain["start"] | change}))
        with pytest.raises(InvalidInput, match="was changed"):
            read_plan_file(path)
    path.write_text(json.dumps({key: value for key, value in plain.items() if key != "start"}))
    with pytest.raises(InvalidInput, match="was changed"):
        read_plan_file(path)


def test_invalid_starts_are_refused(tmp_path: Path) -> None:
    plan = started(consortium(tmp_path / "sites")).plan
    for change, rule in (
        ({"start": None}, "no starting point was given"),
        ({"start": Start(-START.vector)}, "is not the digest of the starting point"),
        ({"config": replace(plan.config, start=None)}, "^start: .* configuration"),
    ):
        with pytest.raises(InvalidInput, match=rule):
            replace(plan, **change)
    for start, rule in (
        (Start(np.zeros(3)), "has 3 entries"),
        (Start(np.zeros(4), "run"), "protects nothing"),
    ):
        with pytest.raises(InvalidInput, match=rule):
            make_calibrated_plan(
                Proposal(
                    "trial",
                    RunConfig("prox_admm", 1.0, 1e-5, seed=None),
                    plan.sites,
                    4,
                    start=start,
                )
            )
