"""A site in a run: the same model as in one process, restarts that change nothing, and what is refused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sites_in_tests import NAMES, Consortium, consortium

from sottovoce.deploy import run_sites
from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.plan import Plan
from sottovoce.errors import BudgetExceeded, InvalidInput, LedgerCorrupt, LedgerMismatch, Refused

pytest.importorskip("cryptography")


@pytest.fixture
def sites(tmp_path: Path) -> Consortium:
    return consortium(tmp_path / "sites")


@pytest.fixture
def log(tmp_path: Path) -> HubLog:
    with HubLog(tmp_path / "hub.log") as log:
        yield log


@pytest.mark.parametrize(
    "knobs",
    [
        {"method": "dvp"},
        {"method": "mr_admm", "rounds": 5},
        {"method": "prox_admm", "delta": 1e-5, "epsilon": (2.0, 3.0, 2.5)},
        {"method": "dgd", "delta": 1e-5},
        {"method": "ipp_admm", "delta": 1e-5, "positives": 2},
    ],
    ids=lambda knobs: knobs["method"],
)
def test_separate_sites_arrive_where_one_process_does(tmp_path: Path, log: HubLog, knobs: dict[str, object]) -> None:
    sites = consortium(tmp_path / "sites", **knobs)
    finished = sites.run_locally(log)
    twin = run_sites(sites.plan.config, sites.rows)
    models = Hub(sites.plan, log).models()
    for i, name in enumerate(sites.plan.names):
        algorithm = sites.plan.prepared.algorithm.at(i)
        np.testing.assert_array_equal(finished[name].model, algorithm.model(twin[i][0].state))
        np.testing.assert_array_equal(models[i], finished[name].model)
        assert finished[name].outcome.rounds == sites.plan.config.rounds
        assert finished[name].privacy["epsilon"] <= np.broadcast_to(sites.plan.config.epsilon, (3,))[i]
        assert not finished[name].privacy["release"]
