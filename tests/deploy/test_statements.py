"""What statements, pages and results of sites and hubs say, and what they do not."""

from __future__ import annotations

import csv
import itertools
import json
import time
from pathlib import Path

import numpy as np
import pytest
from sites_in_tests import NAMES, SIZES, Consortium, consortium, settle

from sottovoce.data.rows import Rows
from sottovoce.data.schema import FROM_ROWS, Schema
from sottovoce.deploy.hub import Hub, LocalTransport
from sottovoce.deploy.hublog import HubLog
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.members import Member
from sottovoce.deploy.plan_file import read_plan_file, write_plan_file
from sottovoce.deploy.proposal import Proposal, make_calibrated_plan
from sottovoce.deploy.report import ENDINGS, render_site_report, write_hub_results
from sottovoce.deploy.settings import SiteSettings, write_settings
from sottovoce.errors import InvalidInput
from sottovoce.runs.config import RunConfig
from sottovoce.runs.simulate import Result

pytest.importorskip("cryptography")

SCHEMA = """\
data_dependent = {truth}
intercept = true
label = {{column = "ill", positive = "yes", negative = "no"}}
[columns.age]
kind = "number"
lo = 0
hi = 100
"""


def clinic(folder: Path, truth: bool) -> Consortium:
    """Sites whose schema says whether it was computed from rows, with a table each."""
    folder.mkdir()
    (folder / "schema.toml").write_text(SCHEMA.format(truth=str(truth).lower()))
    schema = Schema.from_toml(folder / "schema.toml")
    keys, rng, parts = {name: SigningKey.make() for name in NAMES}, np.random.default_rng(0), []
    for name, size in zip(NAMES, SIZES, strict=True):
        age = rng.integers(0, 101, size)
        ill = np.where(age + rng.normal(scale=20, size=size) > 50, "yes", "no")
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("age", "ill"), *zip(age, ill, strict=True)])
        encoded = schema.encode({"age": age.astype(float), "ill": ill})
        parts.append((encoded.X, encoded.y))
    members = [Member(n, size, keys[n].public) for n, size in zip(NAMES, SIZES, strict=True)]
    config = RunConfig(method="dvp", epsilon=2.0, rounds=3, seed=3, graph="ring", rho=0.02)
    return Consortium(
        folder,
        make_calibrated_plan(Proposal("trial", config, members, 2, schema=schema.to_dict())),
        keys,
        Rows.build_from_parts(parts),
    )


@pytest.mark.parametrize("truth", [True, False])
def test_data_dependent_encoding_is_stated_everywhere(tmp_path: Path, truth: bool) -> None:
    sites = clinic(tmp_path / "sites", truth)
    plan = sites.plan
    write_plan_file(plan, tmp_path / "plan.json")
    assert (
        read_plan_file(tmp_path / "plan.json").planned_privacy.caveat
        == plan.planned_privacy.caveat
        == (FROM_ROWS if truth else None)
    )
    with HubLog(tmp_path / "hub.log") as log:
        ends = sites.run_locally(log)
        write_hub_results(tmp_path, Hub(plan, log))
    statements = [
        plan.planned_privacy.statement.to_dict(),
        *(end.statement_as_dict for end in ends.values()),
    ]
    statements += [
        json.loads((tmp_path / "hub.json").read_text())["privacy"],
        Result.load(tmp_path / "hub.npz").privacy,
    ]
    for statement in statements:
        assert statement.get("caveat") == (FROM_ROWS if truth else None)
        assert (FROM_ROWS in statement["says"]) == truth
    pages = [
        (tmp_path / "hub.html").read_text(),
        *(render_site_report(plan, name, end) for name, end in ends.items()),
    ]
    assert all((FROM_ROWS in page) == truth for page in pages)


def test_data_dependence_of_plan_and_site_schema_must_agree(tmp_path: Path) -> None:
    sites = clinic(tmp_path / "sites", True)
    other = clinic(tmp_path / "other", False)
    assert sites.plan.digest != other.plan.digest
    home = sites.folder
    write_plan_file(sites.plan, home / "plan.json")
    sites.keys["north"].write(home / "north.signing")
    sites.ledger("north").close()
    settings = write_settings(home, "north", "127.0.0.1:1", Path("north.csv"), Path("schema.toml"))
    found = SiteSettings.read(settings)
    with sites.ledger("north") as ledger:
        found.session(ledger).check_before_run()
    (home / "schema.toml").write_text(SCHEMA.format(truth="false"))
    with pytest.raises(InvalidInput, match=r"^data_dependent=False: .* True") as caught:
        SiteSettings.read(settings).agreed_plan  # noqa: B018
    assert caught.value.field == "data_dependent"


def test_no_result_holds_how_long_anything_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A solve takes a time that depends on rows: two runs that differ in nothing else leave the
    same bytes.
    """
    knobs = {"graph": "complete", "seed": None, "method": "prox_admm", "delta": 1e-5}
    sites = consortium(tmp_path / "sites", names=("north",), sizes=(60,), **knobs)
    found = SiteSettings.read(settle(sites, tmp_path / "home") / "site.toml")
    clock = itertools.count(0.0, 0.1)
    with HubLog(tmp_path / "hub.log") as log:
        hub = Hub(sites.plan, log)
        first = found.run_and_write_results(LocalTransport(hub, "north"))
        before = {ending: found.result_file(ending).read_bytes() for ending in ENDINGS}
        write_hub_results(tmp_path, hub)
        monkeypatch.setattr(time, "perf_counter", lambda: 1000.0 * next(clock))
        again = found.run_and_write_results(LocalTransport(hub, "north"))
    assert again.seconds > 50.0 > first.seconds  # for the console
    assert {ending: found.result_file(ending).read_bytes() for ending in ENDINGS} == before
    for path in (found.result_file("npz"), tmp_path / "hub.npz"):
        with np.load(path) as file:
            assert "seconds" not in json.loads(str(file["meta"]))
    assert not {"seconds", "waited"} & json.loads(found.result_file("json").read_text()).keys()
    assert "seconds" not in json.loads((tmp_path / "hub.json").read_text())
