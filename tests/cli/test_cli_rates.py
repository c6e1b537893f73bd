"""Hazard ratios and rate ratios on the command line: what the page shows, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Call

from sottovoce.answers.saved import SavedModel
from sottovoce.data.schema import Schema
from sottovoce.errors import SchemaError

ROOT = Path(__file__).parents[2]
COLUMNS = {"age": {"kind": "number", "lo": 20, "hi": 90}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables and schemas of the page."""
    made = tmp_path_factory.mktemp("follow_up")
    example = ROOT / "examples" / "follow_up" / "write_table.py"
    subprocess.run([sys.executable, str(example), str(made)], check=True)
    return made


def shown_on_page() -> list[str]:
    """The lines of the table on the page."""
    page = (ROOT / "docs" / "reference" / "answers.md").read_text(encoding="utf-8")
    section = page.partition("### Hazard ratios and rate ratios")[2]
    return section.partition("```text\n")[2].partition("\n```")[0].splitlines()


def test_the_command_of_the_page_prints_what_it_shows(run: Call, folder: Path) -> None:
    saved = folder / "run.json"
    asked = ("train", "--inference", "--data", folder / "rows.csv", "--epsilon", 3)
    found = run(
        *asked, "--schema", folder / "survival.toml", "--trust", "sum", "--save", saved, "--json"
    ).json
    shown = str(SavedModel.load(saved).table).splitlines()
    kept = shown_on_page()
    assert shown[: len(kept)] == kept
    line = found["coefficients"][0]
    assert line["hazard_ratio_low"] < line["hazard_ratio"] < line["hazard_ratio_high"]
    assert {"estimate", "standard_error", "p", "low", "high"} <= line.keys()
    assert "odds_ratio" not in line and found["label"] == {"column": "died"}
    run("report", saved, "--out", folder / "page.html", "--plot", folder / "plot.svg")
    assert "hazard ratio (logarithmic)" in (folder / "plot.svg").read_text()
    page = (folder / "page.html").read_text()
    assert "The hazard of died is " in page and "odds" not in page.partition("<body")[2]
    rates = run("predict", saved, folder / "rows.csv", "--json").json
    assert 0.0 < min(one["prediction"] for one in rates) < 0.01
    refused = run("predict", saved, folder / "rows.csv", "--interval", 0.95)
    assert refused.code == 2 and "rates" in refused.err


def test_counts_have_rate_ratios(run: Call, folder: Path) -> None:
    asked = ("train", "--inference", "--data", folder / "rows.csv", "--epsilon", 8)
    done = run(*asked, "--schema", folder / "falls.toml", "--trust", "curator", "--json").json
    age, treated, _ = done["coefficients"]
    assert age["low"] < 0.02 < age["high"] and treated["rate_ratio"] < 1.0
    text = run("schema", "check", folder / "falls.toml", folder / "rows.csv")
    assert text.code == 0 and "with events" in text.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("--epsilon", 3),
        ("--epsilon", 3, "--inference", "--evaluation", 1, "--set", "test_share=0.2"),
        ("--epsilon", 3, "--inference", "--set", "site_constants=yes"),
    ],
)
def test_what_is_not_offered_is_refused_before_anything_is_spent(
    run: Call, folder: Path, arguments: tuple[str, ...]
) -> None:
    data = ("--data", folder / "rows.csv", "--schema", folder / "survival.toml")
    found = run("train", *data, *arguments)
    assert found.code == 2 and found.err.startswith("error: ")
    planned = run("plan", "--schema", folder / "survival.toml", "--sizes", "500", "--epsilon", 1)
    assert planned.code == 2


@pytest.mark.parametrize(
    ("entries", "field"),
    [
        ({"label": {"event": "died", "time": "days", "cuts": []}}, "label.cuts"),
        ({"label": {"event": "died", "time": "days", "cuts": [30, 30]}}, "label.cuts"),
        ({"label": {"event": "died", "time": "days", "cuts": "30"}}, "label"),
        ({"label": {"column": "n", "lo": 0, "hi": 9, "family": "gamma"}}, "label.family"),
        ({"label": {"column": "n", "lo": -1, "hi": 9, "family": "poisson"}}, "label"),
        ({"offset": {"column": "years", "lo": 0.1, "hi": 5}}, "offset"),
        (
            {
                "label": {"column": "n", "lo": 0, "hi": 9, "family": "poisson"},
                "offset": {"column": "years", "lo": 0, "hi": 5},
            },
            "offset",
        ),
        ({"label": {"event": "died", "time": "age", "cuts": [1]}}, "age"),
    ],
)
def test_wrong_labels_are_refused(entries: dict[str, object], field: str) -> None:
    with pytest.raises(SchemaError) as refused:
        Schema.from_dict(entries | {"columns": COLUMNS})
    assert refused.value.field == field


def test_schemas_of_events_go_to_plain_data_and_back() -> None:
    for entries in (
        {"label": {"event": "died", "time": "days", "cuts": [30.0, 365.0], "event_code": "2"}},
        {
            "label": {"column": "n", "lo": 0, "hi": 9, "family": "poisson"},
            "offset": {"column": "years", "lo": 0.1, "hi": 5},
        },
    ):
        schema = Schema.from_dict(entries | {"columns": COLUMNS})
        plain = json.loads(json.dumps(schema.to_dict()))
        assert Schema.from_dict(plain) == schema
        assert {name: plain[name] for name in entries} == entries
