"""``site replace`` and ``accept``: a lost key or ledger, the consent of all members, and what
counts as spent.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Call, parse_error_line
from test_cli_sites import NAMES, agreed

from sottovoce.deploy.amendment import Amendment
from sottovoce.deploy.keys import SigningKey
from sottovoce.deploy.known import Known
from sottovoce.deploy.plan import Plan
from sottovoce.deploy.plan_file import read_plan_file
from sottovoce.ledger.durable import DurableLedger

__all__ = ["agreed"]
pytest.importorskip("grpc")
CHANGED = "another signing key of north"


@pytest.fixture
def after(run: Call, agreed: int) -> Plan:
    """Three sites, as they are after their run trial-1: each knows the others, and which run
    they shared.
    """
    plan = read_plan_file("plan.json")
    for name in NAMES:
        book = f"{name}/{name}.ledger"
        rows = Path(f"{name}/site.toml")
        from sottovoce.deploy.settings import SiteSettings

        with DurableLedger.open(book) as ledger:
            SiteSettings.read(rows).session(ledger).check_before_run(bind=True)
            with ledger.reserve(plan.run, plan.digest, plan.planned_privacy.events(name)) as made:
                for event in plan.planned_privacy.events(name):
                    made.record_event(event)
            Known().after(plan, name, ledger.file.head(), True).write(Path(f"{name}/{name}.known"))
    return plan


def next_plan(run: Call, north: str) -> None:
    publics = [
        option
        for site in (north, "east", "south")
        for option in ("--site", f"{site}/{'north' if site == north else site}.public.json")
    ]
    wrote = run(
        "plan",
        "--write",
        "next.json",
        "--run",
        "trial-2",
        "--schema",
        "schema.toml",
        *publics,
        "--method",
        "prox_admm",
        "--rounds",
        "2",
        "--epsilon",
        "1",
        "--delta",
        "1e-5",
    )
    assert wrote.code == 0, wrote.err
    for place in (north, "east", "south"):
        Path(f"{place}/plan.json").write_bytes(Path("next.json").read_bytes())


def code(place: str) -> str:
    return Amendment.read(Path(f"{place}/north.amendment")).comparison_code


def test_a_lost_key_is_replaced_when_all_members_have_signed(run: Call, after: Plan) -> None:
    before = SigningKey.read("north/north.signing").public
    told = run("site", "replace", "north/site.toml")
    assert told.code == 0 and code("north") in told.out
    assert SigningKey.read("north/north.signing").public != before
    next_plan(run, "north")
    assert CHANGED in run("site", "check", "east/site.toml").err
    file = Path("north/north.amendment")
    for name in ("east", "south"):
        wrong = run(
            "site", "accept", f"{name}/site.toml", file, "--code", "0000-0000-0000-0000-0000"
        )
        assert wrong.code == 2 and "not the code" in wrong.err
        Path("east/north.amendment").write_bytes(file.read_bytes())
        assert CHANGED in run("site", "check", "east/site.toml").err  # not all have signed
        assert run("site", "accept", f"{name}/site.toml", file, "--code", code("north")).code == 0
    Path("east/north.amendment").write_bytes(file.read_bytes())
    checked = run("site", "check", "east/site.toml", "--json")
    assert checked.code == 0 and checked.json["run"] == "trial-2"
    own = run("site", "check", "north/site.toml", "--json")
    assert own.code == 0 and own.json["spent"] > 0.0  # the ledger stayed
    thief = Amendment.read(file)  # all signatures are of this very key
    forged = Amendment(thief.name, thief.old, SigningKey.make().public, None, thief.signatures)
    Path("east/north.amendment").write_text(forged.text())
    assert CHANGED in run("site", "check", "east/site.toml").err


def test_a_lost_ledger_counts_all_that_was_ever_planned(run: Call, after: Plan) -> None:
    with DurableLedger.open("north/north.ledger") as ledger:
        spent = ledger.total()
    there = run(
        "site",
        "replace",
        "north/site.toml",
        "--folder",
        "north-2",
        "--plan",
        "plan.json",
        "--epsilon",
        "6",
        "--delta",
        "1e-5",
    )
    # it is not lost
    assert there.code == 2 and "second budget" in there.err
    Path("north/north.ledger").unlink()
    told = run(
        "site",
        "replace",
        "north/site.toml",
        "--folder",
        "north-2",
        "--plan",
        "plan.json",
        "--epsilon",
        "6",
        "--delta",
        "1e-5",
    )
    assert told.code == 0, told.err
    with DurableLedger.open("north-2/north.ledger") as ledger:
        assert ledger.total() == spent > 0.0 and tuple(ledger.runs) == ("trial-1",)
    (again := Path("north-2/plan.json")).write_bytes(Path("plan.json").read_bytes())
    assert run("site", "check", "north-2/site.toml").code == 2  # nothing more of that run
    again.unlink()
    file = Path("north-2/north.amendment")
    for name in ("east", "south"):
        assert run("site", "accept", f"{name}/site.toml", file, "--code", code("north-2")).code == 0
    next_plan(run, "north-2")
    for place in ("east", "south", "north-2"):
        if place != "north-2":
            Path(f"{place}/north.amendment").write_bytes(file.read_bytes())
        assert run("site", "check", f"{place}/site.toml").code == (0 if place != "north-2" else 2)
    # north's certificate and authority are still to come; all else fits
    assert "ca.crt" in run("site", "check", "north-2/site.toml").err


def test_members_refuse_an_amendment_that_leaves_out_a_run_or_has_another_key(
    run: Call, after: Plan
) -> None:
    Path("north/north.ledger").unlink()
    assert (
        run(
            "site",
            "replace",
            "north/site.toml",
            "--folder",
            "north-2",
            "--epsilon",
            "6",
            "--delta",
            "1e-5",
        ).code
        == 0
    )
    file = Path("north-2/north.amendment")
    left_out = run("site", "accept", "east/site.toml", file, "--code", code("north-2"))
    error = parse_error_line(left_out.err)
    assert (left_out.code, error.field) == (2, "amendment") and "list trial-1" in error.rule
    plain = json.loads(file.read_text())
    file.write_text(json.dumps(plain | {"runs": {"trial-1": "0" * 64}}))
    another_plan = run("site", "accept", "east/site.toml", file, "--code", code("north-2"))
    assert parse_error_line(another_plan.err) == error
    file.write_text(json.dumps(plain | {"runs": None, "old": SigningKey.make().public}))
    assert (
        "its old key"
        in run("site", "accept", "east/site.toml", file, "--code", code("north-2")).err
    )
    file.write_text(json.dumps(plain | {"runs": {"trial-1": 7}}))
    malformed = parse_error_line(run("site", "accept", "east/site.toml", file).err)
    assert malformed.field == "amendment" and "not an amendment" in malformed.rule
    file.write_text(json.dumps(plain))
    assert "others sign" in run("site", "accept", "north-2/site.toml", file).err
    assert Amendment.read(file).signatures.keys() == {"north"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--plan", "plan.json"), "a new ledger needs a new folder"),
        (("--folder", "north-2"), "lifetime budget that the lost ledger had"),
        (("--old-key", "x"), "must be 32 bytes in base64"),
    ],
)
def test_replace_refuses_wrong_options_and_makes_nothing(
    run: Call, after: Plan, words: tuple[str, ...], why: str
) -> None:
    before = Path("north/north.signing").read_bytes()
    refused = run("site", "replace", "north/site.toml", *words)
    assert refused.code == 2 and why in refused.err and len(refused.err.splitlines()) == 1
    assert Path("north/north.signing").read_bytes() == before and not Path("north-2").exists()
