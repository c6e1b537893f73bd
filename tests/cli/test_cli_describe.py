"""``sottovoce describe``: what it prints, stores and refuses, and that the how-to's command gives
what its page shows.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Call, Clinic

from sottovoce.cli import results

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "describe.md"


@pytest.fixture
def trial(run: Call) -> list[str]:
    """The files of the page in the empty folder of `run`, and the words of its command."""
    text = PAGE.read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, flags=re.S)
    command = re.search(r"```sh\n(.*?)```", text, flags=re.S)
    assert code is not None and command is not None
    exec(compile(code[1], PAGE.name, "exec"), {})
    return shlex.split(command[1])


def test_the_page_shows_what_its_command_prints(ok: Call, trial: list[str]) -> None:
    shown = re.search(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S)
    assert shown is not None and trial[0] == "sottovoce"
    printed = ok(*trial[1:]).out.splitlines()
    for line in shown[1].splitlines():
        assert line in printed


def test_json_has_all_lines_and_the_statement(ok: Call, trial: list[str]) -> None:
    told = ok(*trial[1:-1], "--json").json
    assert told["groups"] == ["a", "b"] and told["privacy"]["epsilon"] <= 1.0
    lines = {(one["name"], one["group"], one["statistic"]): one for one in told["table"]}
    mean = lines["age", "overall", "mean"]
    assert mean["low"] < 61 < mean["high"] and mean["noise"] > 0 and mean["sampling"] > 0
    assert lines["", "a", "n"]["sampling"] == 0.0
    assert told["seconds"] > 0
    screen = ok(*trial[1:-1]).out
    assert "age, median" in screen and "overall" in screen and "epsilon" in screen


def test_a_release_is_stored_before_it_is_shown_and_holds_no_exact_count(
    run: Call, trial: list[str]
) -> None:
    rows = Path("trial.csv").read_text().splitlines()
    rows[1] = rows[1].replace(rows[1].split(",")[0], "500", 1)
    Path("trial.csv").write_text("\n".join(rows) + "\n")
    assert run("ledger", "init", "t.ledger", "--epsilon", 3, "--delta", 1e-4).code == 0
    words = [*trial[1:-1], "--trust", "curator", "--nodes", 1, "--ledger", "t.ledger"]
    release = [*words, "--system-noise", "--report", "t.html", "--save", "t.json"]
    told = run(*release, "--json")
    assert told.code == 0 and "in 1 rows" not in told.out
    assert told.json["seconds"] is None and not told.json["privacy"].get("simulated")
    assert json.loads(Path("t.json").read_text())["table"] == told.json["table"]
    assert "age, mean" in Path("t.html").read_text(encoding="utf-8")
    spent = run("ledger", "show", "t.ledger", "--json").json
    assert spent["releases"] == 1 and spent["runs"][0]["charged"] == 1
    # the same command reads the stored answer, at no further cost
    again = run(*words, "--system-noise", "--json")
    assert again.json["table"] == told.json["table"]
    assert run("ledger", "show", "t.ledger", "--json").json["spent"] == spent["spent"]
    assert list(results.results_folder(Path("t.ledger")).glob("*.json"))
    holder = run(*words, "--system-noise", "--json", "--holder").json
    assert any("in 1 rows" in note for note in holder["holder_only"]["notes"])


def test_a_simulation_tells_its_holder_what_was_clipped(ok: Call, trial: list[str]) -> None:
    text = Path("trial.csv").read_text().splitlines()
    text[1] = "500," + text[1].split(",", 1)[1]
    Path("trial.csv").write_text("\n".join(text) + "\n")
    assert "'age' in 1 rows" in " ".join(ok(*trial[1:-1]).out.split())


def test_columns_without_levels_and_missing_files_are_refused(
    trial: list[str], refused: Callable[..., str]
) -> None:
    words = trial[1:-1]
    words[words.index("arm")] = "age"
    assert "use one of smoker, arm" in refused(*words)
    words[words.index("age")] = "sex"
    assert "declares levels" in refused(*words)
    words[words.index("sex")] = "arm"
    assert "cannot be combined" in refused(*words, "--markdown", "--json")
    words[words.index("trial.csv")] = "none.csv"
    assert "none.csv" in refused(*words)


def test_the_clinic_is_described_by_its_sites(clinic: Clinic, ok: Call) -> None:
    found = ok("describe", "--data", clinic.csv, "--schema", clinic.schema, "--json").json
    assert found["sites"] and found["groups"] == []
    n = next(one for one in found["table"] if one["statistic"] == "n")
    assert n["noise"] == 0.0
