"""A ledger knows a table as it is in its file: an honest correction of the schema leaves it the
same data set.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Call
from test_cli_sites import NAMES, SCHEMA, agreed, table

from sottovoce.data.schema import Schema
from sottovoce.deploy.settings import load_rows
from sottovoce.ledger.durable import DurableLedger, rows_digest

__all__ = ["agreed"]
pytest.importorskip("grpc")
WIDER = SCHEMA.replace("hi = 4242", "hi = 5000")


def plan_with(run: Call, schema: str, name: str) -> None:
    Path("schema.toml").write_text(schema)
    publics = [option for site in NAMES for option in ("--site", f"{site}/{site}.public.json")]
    wrote = run(
        "plan",
        "--write",
        "plan.json",
        "--run",
        name,
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
    assert wrote.code == 0
    Path("north/plan.json").write_bytes(Path("plan.json").read_bytes())


def test_a_site_goes_on_with_its_ledger_under_a_corrected_schema(run: Call, agreed: int) -> None:
    before = Path("north/north.ledger").read_bytes()
    plan_with(run, WIDER, "trial-2")
    checked = run("site", "check", "north/site.toml", "--json")
    assert checked.code == 0 and checked.json["run"] == "trial-2"
    assert Path("north/north.ledger").read_bytes() == before  # checking binds nothing
    second = run(
        "site",
        "init",
        "again",
        "--name",
        "north",
        "--hub",
        "h:1",
        "--data",
        "north.csv",
        "--schema",
        "schema.toml",
        "--epsilon",
        "6",
        "--delta",
        "1e-5",
    )
    assert second.code == 2 and "second budget" in second.err
    table(Path("north.csv"), 300, 77)
    changed = run("site", "check", "north/site.toml")
    assert changed.code == 2 and "other rows" in changed.err


def test_a_ledger_of_before_knows_encoded_rows_and_learns_the_table(run: Call, agreed: int) -> None:
    """Ledgers that were tied to encoded rows go on, and take a corrected schema once they have
    been used again.
    """
    encoded = rows_digest(
        *load_rows(Path("north.csv"), Schema.from_toml("schema.toml")).fingerprint_arrays()
    )
    Path("north/north.ledger").unlink()
    DurableLedger.create(
        "north/north.ledger", epsilon=6.0, delta=1e-5, accountant="rdp", fingerprint=encoded
    ).close()
    assert run("site", "check", "north/site.toml").code == 0
    plan_with(run, WIDER, "trial-2")
    assert run("site", "check", "north/site.toml").code == 2
    plan_with(run, SCHEMA, "trial-1")
    with DurableLedger.open("north/north.ledger") as ledger:
        from sottovoce.deploy.settings import SiteSettings

        SiteSettings.read("north/site.toml").session(ledger).check_before_run(bind=True)
    plan_with(run, WIDER, "trial-2")
    assert run("site", "check", "north/site.toml").code == 0


def test_an_evaluation_takes_the_same_ledger_under_another_schema(
    run: Call, tmp_path: Path
) -> None:
    table(Path("rows.csv"), 400, 1)
    table(Path("held.csv"), 400, 2)
    assert run("ledger", "init", "held.ledger", "--epsilon", "3", "--delta", "1e-5").code == 0
    spent = []
    for schema, saved in ((SCHEMA, "one.npz"), (WIDER, "two.npz")):
        Path("schema.toml").write_text(schema)
        trained = run(
            "train",
            "--data",
            "rows.csv",
            "--schema",
            "schema.toml",
            "--method",
            "dvp",
            "--rounds",
            "2",
            "--nodes",
            "2",
            "--epsilon",
            "1",
            "--save",
            saved,
        )
        assert trained.code == 0, trained.err
        judged = run(
            "evaluate",
            saved,
            "held.csv",
            "--ledger",
            "held.ledger",
            "--system-noise",
            "--epsilon",
            "0.5",
        )
        assert judged.code == 0, judged.err
        with DurableLedger.open("held.ledger") as ledger:
            spent.append(ledger.total())
    assert 0.0 < spent[0] < spent[1]
    table(Path("held.csv"), 400, 3)
    other = run(
        "evaluate",
        "two.npz",
        "held.csv",
        "--ledger",
        "held.ledger",
        "--system-noise",
        "--epsilon",
        "0.5",
    )
    assert other.code == 2 and "other rows" in other.err
