"""``sottovoce ledger`` and ``train --ledger``."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from command_line import SMALL, Call


def test_a_ledger_is_made_charged_once_shown_verified_and_exported(ok: Call) -> None:
    assert (
        "never restore" in ok("ledger", "init", "x.ledger", "--epsilon", "2.5", "--nodes", "5").out
    )
    train = ("train", *SMALL, "--ledger", "x.ledger", "--system-noise", "--epsilon", "2")
    first = ok(*train, "--run", "one", "--json").json
    assert first["privacy"]["ledger"]["run"] == "one"
    spent = first["privacy"]["ledger"]["spent"]  # exact sums, rounded up
    assert (
        first["privacy"]["epsilon"] <= spent <= min(2.0, first["privacy"]["epsilon"] * (1 + 1e-14))
    )
    assert first["privacy"]["release"]
    again = ok(*train, "--run", "one", "--json").json  # replayed, not released anew
    assert again["test_error"] == first["test_error"]
    assert again["privacy"]["ledger"]["spent"] == first["privacy"]["ledger"]["spent"]
    assert "of 2.5 for" in ok(*train, "--run", "one").out
    shown = ok("ledger", "show", "x.ledger", "--json").json
    assert [run["run"] for run in shown["runs"]] == ["one"]
    assert shown["releases"] == 3
    told = re.search(r"run one: (\w+), (\d+) of (\d+) ", ok("ledger", "show", "x.ledger").out)
    assert told is not None and told.groups() == ("closed", "3", "3")
    head = shown["head"]
    assert head in ok("ledger", "verify", "x.ledger", "--head", head).out
    ok("ledger", "export", "x.ledger", "x.jsonl")
    assert len(Path("x.jsonl").read_text().splitlines()) >= 5


def test_a_ledger_that_is_missing_or_too_small_is_refused_and_reserves_nothing(
    ok: Call, run: Call, refused: Callable[..., str]
) -> None:
    assert "absent.ledger" in refused("ledger", "show", "absent.ledger")
    assert "epsilon" in refused("ledger", "init", "y.ledger", "--epsilon", "0")
    made = ok(
        "ledger", "init", "z.ledger", "--epsilon", "20,3", "--delta", "1e-5", "--nodes", "2"
    ).out
    example = re.search(r"run of epsilon (\S+) takes (\S+) of a lifetime budget of (\S+)", made)
    assert example is not None and example.groups() == ("1", "1.565", "3")
    ok("ledger", "init", "x.ledger", "--epsilon", "1", "--nodes", "5")
    over = run(
        "train", *SMALL, "--ledger", "x.ledger", "--system-noise", "--epsilon", "1.5", "--json"
    )
    assert (over.code, over.out) == (2, "")
    assert "nothing was reserved" in over.err
    assert ok("ledger", "show", "x.ledger", "--json").json["releases"] == 0
