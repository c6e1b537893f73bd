"""Limits that are found before money is spent: of carriers, stores, and of plans."""

from __future__ import annotations

import base64
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from problems import make_rows
from relay_in_tests import certify, relay, transport
from sites_in_tests import Consortium, consortium, rewrite

from sottovoce.cli import main
from sottovoce.deploy import limits, names, run_sites
from sottovoce.deploy.hub import Hub
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.members import Member
from sottovoce.deploy.messages import Message, Reason, longest_message
from sottovoce.deploy.nvflare import __main__ as nvflare
from sottovoce.deploy.plan_file import read_plan_file, write_plan_file
from sottovoce.deploy.proposal import Proposal, make_calibrated_plan
from sottovoce.deploy.requests import request_and_reply_sizes
from sottovoce.deploy.settings import write_settings
from sottovoce.deploy.waits import ENDLESS
from sottovoce.errors import EXITS, InvalidInput
from sottovoce.runs.config import RunConfig
from sottovoce.util.plain import canonical_json

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

DEFAULT = 4 * 2**20
"""Bytes that a gRPC client takes unless it is told otherwise."""


def wide(folder: Path, sites: int, d: int) -> Consortium:
    """A star of sites with few rows and many features."""
    names = tuple(f"site-{i}" for i in range(sites))
    rows = make_rows([4] * sites, d)
    keys = {name: SigningKey.make() for name in names}
    config = RunConfig(
        method="prox_admm", epsilon=5.0, delta=1e-5, rounds=2, seed=3, graph="star", rho=0.02
    )
    folder.mkdir()
    members = [Member(n, 4, keys[n].public) for n in names]
    return Consortium(
        folder,
        make_calibrated_plan(Proposal("trial", config, members, d, waits=ENDLESS)),
        keys,
        rows,
    )


def test_an_inbox_beyond_the_default_limit_crosses_the_relay(tmp_path: Path) -> None:
    sites = wide(tmp_path / "sites", 9, 60_000)
    certify(tmp_path / "tls", sites.plan.names)
    with relay(sites, tmp_path / "tls") as (address, log):
        ends = sites.run(lambda name: transport(sites, tmp_path / "tls", address, name))
        messages = log.messages("trial")
        largest = sum(
            len(messages[1, name]) for name in sites.plan.exchange_table.neighbour_names("site-0")
        )
        assert largest > DEFAULT
        assert largest < request_and_reply_sizes(sites.plan)[1]
        assert Hub(sites.plan, log).results.models() is not None
    for i, (outcome, _) in enumerate(run_sites(sites.plan.config, sites.rows)):
        np.testing.assert_array_equal(
            ends[f"site-{i}"].model,
            sites.plan.stages[0].prepared.algorithm.method_of_node(i).model(outcome.state),
        )


def test_no_message_is_longer_than_was_foreseen() -> None:
    names = tuple(f"{i}" + 61 * "x" + "y" for i in range(5))
    keys = {name: SigningKey.make() for name in names}
    config = RunConfig(
        method="prox_admm", epsilon=5.0, delta=1e-5, rounds=2, graph="complete", seed=None
    )
    plan = make_calibrated_plan(
        Proposal(
            63 * "r", config, [Member(n, 10**6, keys[n].public) for n in names], 997, norm_cap=1e300
        )
    )
    rng = np.random.default_rng(0)
    inbox = {}
    for name in names:
        vector = rng.uniform(-1e298, 1e298, 997)
        inbox[name] = (
            Message(plan.run, plan.digest, 3, name, "release", vector)
            .to_signed_bytes(keys[name])
            .decode()
        )
        assert len(inbox[name]) <= longest_message(plan)
    asked, answered = request_and_reply_sizes(plan)
    question = {"run": plan.run, "round": 3, "message": inbox[names[0]], "plan": plan.digest}
    assert len(canonical_json(question)) <= asked
    assert len(canonical_json({"inbox": {name: inbox[name] for name in names[1:]}})) <= answered


@pytest.mark.parametrize("name", limits.limits_of_carriers())
def test_every_limit_is_compared_with_the_largest_inbox(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    size, known = limits.longest_inbox_bytes(1000, 7), limits.limits_of_carriers()
    monkeypatch.setattr(limits, "limits_of_carriers", lambda: known | {name: size})
    limits.check_inbox_size(1000, 7)
    monkeypatch.setattr(limits, "limits_of_carriers", lambda: known | {name: size - 1})
    with pytest.raises(InvalidInput) as caught:
        limits.check_inbox_size(1000, 7)
    assert (
        caught.value.field == "d"
        and name in caught.value.rule
        and "7 neighbours" in caught.value.rule
    )


def test_stores_accept_records_at_stated_limit() -> None:
    most = limits.limits_of_carriers()["a record of a ledger (SQLite)"]
    database = sqlite3.connect(":memory:")
    assert database.execute("SELECT length(zeroblob(?))", (most,)).fetchone() == (most,)
    with pytest.raises(sqlite3.DataError):
        database.execute("SELECT length(zeroblob(?))", (most + 1,))
    database.close()


def members(number: int) -> list[Member]:
    keys = (base64.b64encode(i.to_bytes(32, "big")).decode() for i in range(number))
    return [Member(f"site-{i}", 100, key) for i, key in enumerate(keys)]


CONFIG = RunConfig(
    method="prox_admm", epsilon=1.0, delta=1e-5, rounds=3, graph="complete", seed=None
)


@pytest.mark.parametrize(
    ("sites", "d", "changes", "field"),
    [
        (50, 10**6, {}, "d"),
        (3, 10**9, {}, "d"),
        (10_000, 5, {}, "sites"),
        (1001, 5, {}, "sites"),
        (3, 5, {"rounds": 20_000}, "rounds"),
        (3, 5, {"copies": 2000}, "copies"),
    ],
)
def test_a_plan_beyond_every_limit_is_refused_at_once(
    sites: int, d: int, changes: dict[str, int], field: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        make_calibrated_plan(Proposal("trial", replace(CONFIG, **changes), members(sites), d))
    assert caught.value.field == field and caught.value.remedy.startswith("use fewer")


def test_a_site_with_a_store_that_is_too_small_spends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = consortium(tmp_path / "sites")
    write_plan_file(sites.plan, tmp_path / "plan.json")
    known = limits.limits_of_carriers()
    monkeypatch.setattr(
        limits, "limits_of_carriers", lambda: known | {"a record of a ledger (SQLite)": 7000}
    )
    with pytest.raises(InvalidInput) as caught:
        read_plan_file(tmp_path / "plan.json")
    refused = caught.value
    assert (refused.field, refused.value) == ("d", 4)
    assert "2 neighbours" in refused.rule and "ledger (SQLite)" in refused.rule
    assert "7,000" in refused.rule


def test_a_plan_beyond_the_maximum_is_refused_by_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even one whose digest is right: somebody else's version may have written it."""
    sites = consortium(tmp_path / "sites")
    north = tmp_path / "north"
    certify(north, ("north",))
    sites.keys["north"].write(north / "north.signing")
    sites.folder = north
    sites.ledger("north").close()
    write_settings(north, "north", "127.0.0.1:1", Path("rows"))
    plain = sites.plan.to_dict() | {"d": 10**8}
    for place in (tmp_path, north):
        rewrite(place / "plan.json", plain)
    before = (north / "north.ledger").read_bytes()
    provision = [
        "provision",
        str(north / "plan.json"),
        "--server",
        "h",
        "--store",
        "/s",
        "--workspace",
        "w",
    ]
    for command in (
        ["site", "check", str(north / "site.toml")],
        ["site", "run", str(north / "site.toml")],
        ["hub", "run", str(tmp_path)],
        ["hub", "status", str(tmp_path)],
    ):
        with pytest.raises(SystemExit) as stop:
            main(command)
        said = capsys.readouterr().err
        assert (
            stop.value.code == 2
            and said.startswith("error: d=100000000: ")
            and said.count("\n") == 1
        ), said
    with pytest.raises(InvalidInput, match="d=100000000"):
        nvflare.main(provision, standalone_mode=False)
    assert (north / "north.ledger").read_bytes() == before


def test_the_pages_have_these_limits_names_and_exit_codes() -> None:
    folder = Path(__file__).parents[2] / "docs" / "deploy"
    page = (folder / "index.md").read_text() + (folder / "it.md").read_text()
    prose = " ".join(page.split())
    for line in (
        f"| sites | {limits.SITES:,} |",
        f"| rounds | {limits.ROUNDS:,} |",
        f"| {limits.LARGEST // 2**20} MiB |",
        *(f"\n| {code} | " for code in EXITS),
        *(f"`{name}`" for name in names.OURS),
        *(f"`{reason}`" for reason in get_args(Reason)),
    ):
        assert line in page or line in prose, line
    assert "256 KiB a second" in prose
    for d, degree, text in (
        (10**6, 22, "a million features go with 22"),
        (200_000, 111, "200,000 with 111"),
    ):
        limits.check_inbox_size(d, degree)
        with pytest.raises(InvalidInput):
            limits.check_inbox_size(d, degree + 1)
        assert text in prose
    assert limits.transfer_seconds(2**18) == 1.0 and limits.longest_message_bytes(0) == 2048
