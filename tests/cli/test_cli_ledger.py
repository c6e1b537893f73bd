"""``sottovoce ledger`` and ``train --ledger``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from command_line import SMALL, Call


def test_from_init_to_verify(ok: Call) -> None:
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
    assert "run one: closed, 3 of 3 releases" in ok("ledger", "show", "x.ledger").out
    head = shown["head"]
    assert head in ok("ledger", "verify", "x.ledger", "--head", head).out
    ok("ledger", "export", "x.ledger", "x.jsonl")
    assert len(Path("x.jsonl").read_text().splitlines()) >= 5


def test_refusals(ok: Call, run: Call, refused: Callable[..., str]) -> None:
    assert "absent.ledger" in refused("ledger", "show", "absent.ledger")
    assert "epsilon" in refused("ledger", "init", "y.ledger", "--epsilon", "0")
    made = ok(
        "ledger", "init", "z.ledger", "--epsilon", "20,3", "--delta", "1e-5", "--nodes", "2"
    ).out
    assert "a run of epsilon 1 takes 1.565 of a lifetime budget of 3 if it is the first" in made
    ok("ledger", "init", "x.ledger", "--epsilon", "1", "--nodes", "5")
    over = run(
        "train", *SMALL, "--ledger", "x.ledger", "--system-noise", "--epsilon", "1.5", "--json"
    )
    assert (over.code, over.out) == (2, "")
    assert "nothing was reserved" in over.err
    assert ok("ledger", "show", "x.ledger", "--json").json["releases"] == 0
