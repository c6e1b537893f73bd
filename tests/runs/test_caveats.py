"""What epsilon does not cover is said wherever epsilon is: training, plans, studies,
comparisons, saved runs.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problems import make_rows

from sottovoce import data
from sottovoce.cli import main
from sottovoce.data.schema import Schema
from sottovoce.runs.prepare import outline_run
from sottovoce.runs.simulate import Result, RunConfig, simulate, simulate_many
from sottovoce.runs.training import TrainConfig, train
from sottovoce_papers.aggregation import CompareConfig, compare
from sottovoce_papers.studies.kinds import thesis
from sottovoce_papers.studies.kinds.training import run as train_cell

SAID = "the encoding was computed from the rows, and epsilon does not cover that"
SCHEMA = """data_dependent = true
intercept = true
label = { column = "sick", positive = "yes", negative = "no" }

[columns.dose]
kind = "number"
lo = 0
hi = 10
"""


@pytest.fixture
def clinic(tmp_path: Path) -> dict[str, str]:
    """A table whose schema's bounds were read off it."""
    rng = np.random.default_rng(0)
    dose = rng.uniform(0, 10, 300)
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["dose", "sick"])
        writer.writerows([f"{x:.3f}", "yes" if x + rng.normal() > 5 else "no"] for x in dose)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return {"data": str(tmp_path / "rows.csv"), "schema": str(tmp_path / "schema.toml")}


def test_schema_states_its_caveat_once(clinic: dict[str, str]) -> None:
    assert Schema.from_toml(clinic["schema"]).caveat == SAID
    assert data.builtin_schema("adult").caveat is None
    assert data.load(clinic["data"], schema=clinic["schema"]).caveat == SAID
    assert data.load("synthetic:n=50,d=2").caveat is None


def test_training_statement_holds_the_caveat(clinic: dict[str, str]) -> None:
    privacy = train(TrainConfig(RunConfig(rounds=2), **clinic)).result.privacy
    assert privacy["caveat"] == SAID and f"Not covered: {SAID}." in privacy["says"]
    assert (
        "caveat"
        not in train(TrainConfig(RunConfig(rounds=2), data="synthetic:n=300,d=3")).result.privacy
    )


def test_several_caveats_are_joined_and_kept_with_the_run(tmp_path: Path) -> None:
    rows, config = make_rows([60, 60, 60], 3), RunConfig(rounds=2)
    other = "names were read off these rows"
    result = simulate(config, rows, caveat=(SAID, None, other, SAID))
    assert result.privacy["caveat"] == f"{SAID}; {other}"
    result.save(tmp_path / "run.npz")
    assert f"Not covered: {SAID}; names" in Result.load(tmp_path / "run.npz").privacy["says"]
    assert "caveat" not in simulate(config, rows, caveat=()).privacy
    assert [one.privacy["caveat"] for one in simulate_many([config], rows, caveat=SAID)] == [SAID]


def test_plan_statement_holds_the_caveat(
    clinic: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    n = np.full((3, 1), 100.0)
    assert outline_run(RunConfig(), n, 4, caveat=SAID)["privacy"]["caveat"] == SAID
    assert "caveat" not in outline_run(RunConfig(), n, 4)["privacy"]
    main(["plan", "--features", "2", "--schema", clinic["schema"], "--json"])
    assert json.loads(capsys.readouterr().out)["privacy"]["caveat"] == SAID
    monkeypatch.setenv("COLUMNS", "200")
    main(["plan", "--features", "2", "--schema", clinic["schema"]])
    assert f"Not covered: {SAID}." in capsys.readouterr().out


@pytest.fixture
def dependent(monkeypatch: pytest.MonkeyPatch, clinic: dict[str, str]) -> None:
    """Every data set that a study or a comparison asks for is the clinic's."""
    rows = data.load(clinic["data"], schema=clinic["schema"])
    monkeypatch.setattr(data, "load", lambda *_, **__: rows)


@pytest.mark.usefixtures("dependent")
def test_study_statement_holds_the_caveat() -> None:
    cell = {"data": "caveat", "nodes": 3, "rounds": 2, "epsilon": 5.0, "seed": 0, "replicates": 1}
    for method in ("mr_admm", "local"):
        assert all(
            f"Not covered: {SAID}." in row["_privacy"]
            for row in train_cell(cell | {"method": method})
        )
    small = {
        "data": "caveat",
        "pca": "none",
        "Lambda": 0.05,
        "epsilon": 1.0,
        "rows": 40,
        "replicates": 1,
        "seed": 3,
    }
    small |= {"splits": 1, "loss": "logistic"}
    assert all(SAID in row["_privacy"] for row in thesis.one_site(small))
    many = small | {"sites": 2, "aggregator_rows": 40, "setting": "private"}
    assert all(SAID in row["_privacy"] for row in thesis.parties(many))
    assert all(
        SAID in row["_privacy"] for row in thesis.components(small | {"sites": 2, "share": 0.5})
    )


def test_studies_say_that_the_thesiss_components_are_of_the_rows() -> None:
    small: dict[str, Any] = {
        "data": "synthetic:n=400,d=4,seed=1",
        "pca": "thesis",
        "loss": "logistic",
        "Lambda": 0.05,
        "epsilon": 1.0,
        "rows": 100,
        "replicates": 1,
        "seed": 3,
        "splits": 1,
    }
    assert all(SAID in row["_privacy"] for row in thesis.one_site(small))
    assert not any(SAID in row["_privacy"] for row in thesis.one_site(small | {"pca": "none"}))


@pytest.mark.usefixtures("dependent")
def test_comparison_statement_holds_the_caveat() -> None:
    config = CompareConfig(
        data="caveat", sites=2, rows=40, aggregator_rows=40, replicates=1, epsilon=1.0
    )
    assert all(
        row[who]["caveat"] == SAID for row in compare(config) for who in ("sites", "aggregator")
    )
