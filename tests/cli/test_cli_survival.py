"""``sottovoce survival``: what it prints, draws, stores and refuses, and that the how-to's commands
give what the page shows.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import Call

from sottovoce.cli import results

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "survival_curves.md"
SCHEMA = """label = {event = "died", time = "days", cuts = [30, 90, 180, 365]}
[columns]
arm = {kind = "category", values = ["a", "b"]}
"""
WORDS = ["survival", "--data", "trial.csv", "--schema", "trial.toml", "--by", "arm"]


@pytest.fixture
def trial(run: Call) -> list[str]:
    """A trial in the empty folder of `run`, whose first row has no time, and the command's words."""
    rng = np.random.default_rng(1)
    arm = rng.choice(["a", "b"], 3000)
    time = rng.exponential(np.where(arm == "a", 250, 400))
    seen = np.minimum(rng.uniform(50, 900, 3000), 500)
    lines = ["days,died,arm", ",1,a"]
    for days, died, group in zip(np.minimum(time, seen), time <= seen, arm, strict=True):
        lines.append(f"{np.ceil(days):.0f},{int(died)},{group}")
    Path("trial.csv").write_text("\n".join(lines) + "\n")
    Path("trial.toml").write_text(SCHEMA)
    return WORDS


def test_the_page_shows_what_its_commands_print(ok: Call) -> None:
    pytest.importorskip("matplotlib")
    text = PAGE.read_text(encoding="utf-8")
    kinds = ("python", "sh", "text")
    code, command, shown = (re.findall(rf"```{kind}\n(.*?)```", text, flags=re.S) for kind in kinds)
    exec(compile(code[0], PAGE.name, "exec"), {})
    program, *words = shlex.split(command[0])
    printed = [line.strip() for line in ok(*words).out.splitlines()]
    assert program == "sottovoce" and Path("km.svg").exists()
    assert all(line.strip() in printed for line in shown[0].splitlines())


def test_json_has_curves_with_bands_and_what_follows_from_them(ok: Call, trial: list[str]) -> None:
    told = ok(*trial, "--epsilon", 1, "--json").json
    assert told["groups"] == ["a", "b"] and told["privacy"]["epsilon"] <= 1.0
    assert [one["time"] for one in told["curves"][:4]] == [0, 10, 20, 30]
    last = told["curves"][12]
    assert last["group"] == "a" and last["time"] == 365
    assert last["low"] < np.exp(-365 / 250) < last["high"] and 100 < last["at_risk"] < 300
    assert set(told["logrank"]) >= {"p", "statistic", "df"} and told["logrank"]["p"] < 1e-6
    assert told["medians"][0]["low"] < 250 * np.log(2) < told["medians"][0]["high"]
    assert told["restricted_means"][0]["until"] == 365
    assert any("1 of 3001 people" in note for note in told["notes"])


def test_the_screen_has_every_time_and_the_test(ok: Call, trial: list[str]) -> None:
    printed = ok(*trial, "--grid", "30,60,90").out
    assert "log-rank test" in printed and "median, a" in printed and "epsilon" in printed
    assert ok(*trial, "--times", "30,60,90").out == printed
    fine = ok(*trial, "--epsilon", "inf", "--times", ",".join(map(str, range(1, 501)))).out
    assert " 500 " in fine and " 499 " not in fine


def test_a_release_is_stored_before_it_is_shown_and_holds_no_exact_count(
    run: Call, trial: list[str]
) -> None:
    assert run("ledger", "init", "t.ledger", "--epsilon", 3, "--delta", 1e-4).code == 0
    release = [*trial, "--ledger", "t.ledger", "--system-noise"]
    told = run(*release, "--json", "--save", "t.json")
    assert told.code == 0 and "3001" not in told.out
    assert told.json["seconds"] is None and not told.json["privacy"].get("simulated")
    assert json.loads(Path("t.json").read_text())["curves"] == told.json["curves"]
    spent = run("ledger", "show", "t.ledger", "--json").json
    assert spent["releases"] == 1 and spent["runs"][0]["charged"] == 1
    # the same command reads the stored answer, at no further cost
    again = run(*release, "--json", "--holder").json
    assert again["curves"] == told.json["curves"]
    assert any("1 of 3001" in note for note in again["holder_only"]["notes"])
    assert run("ledger", "show", "t.ledger", "--json").json["spent"] == spent["spent"]
    assert list(results.results_folder(Path("t.ledger")).glob("*.json"))
    shown = run(*release)
    assert shown.code == 0 and "3001" not in shown.out


def test_curves_are_drawn_to_a_file(
    ok: Call, trial: list[str], refused: Callable[..., str]
) -> None:
    pytest.importorskip("matplotlib")
    ok(*trial, "--plot", "km.svg", "--json")
    ok(*trial, "--plot", "again.svg", "--json")
    assert Path("km.svg").read_bytes() == Path("again.svg").read_bytes()
    drawn = Path("km.svg").read_text(encoding="utf-8")
    assert drawn.lstrip().startswith("<?xml") and "number at risk (noisy)" in drawn
    assert "must end with .svg" in refused(*trial, "--plot", "km.txt")


def test_options_name_columns_and_wrong_ones_are_refused(
    ok: Call, trial: list[str], refused: Callable[..., str]
) -> None:
    usual = ok(*trial, "--json").json["curves"]
    Path("trial.toml").write_text(SCHEMA.split("\n", 1)[1])
    assert "must name a column" in refused(*trial)
    named = [*trial, "--time", "days", "--event", "died"]
    assert "has no cuts of time" in refused(*named)
    grid = ",".join(str(one["time"]) for one in usual if one["group"] == "a")
    found = ok(*named, "--grid", grid, "--json").json["curves"]
    assert found[12]["survival"] == pytest.approx(usual[12]["survival"], abs=0.1)
    assert "declares levels" in refused(*named, "--by", "sex", "--grid", "30,60")
    assert "increasing times" in refused(*named, "--grid", "60,30")
