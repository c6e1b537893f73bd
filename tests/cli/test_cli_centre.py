"""``--set centre=no``: by default rows are centred where public facts say that it pays, and
everything says so.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from sottovoce.answers import forecast
from sottovoce.answers.saved import SavedModel
from sottovoce.cli import cli
from sottovoce.data import Schema, read_table
from sottovoce.runs.simulate import Result

SCHEMA = """
intercept = true
label = {column = "y", positive = "1", negative = "0"}
[columns]
a = {kind = "number", lo = 0, hi = 10}
b = {kind = "number", lo = 0, hi = 10}
c = {kind = "number", lo = 0, hi = 10}
"""
RUN = ["--method", "momentum", "--rounds", "8", "--epsilon", "2", "--nodes", "3"]


def said(*words: Any) -> str:
    done = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def table(tmp_path: Path) -> list[Any]:
    rng = np.random.default_rng(0)
    X = rng.gamma(1.0, 1.0, size=(1500, 3))
    X[:30, 0] = 10.0
    y = (X @ [1.0, -1.0, 0.5] > 0.4).astype(int)
    lines = [
        ",".join([*(f"{x:.4f}" for x in row), str(label)]) for row, label in zip(X, y, strict=True)
    ]
    (tmp_path / "rows.csv").write_text("a,b,c,y\n" + "\n".join(lines) + "\n")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return ["--data", tmp_path / "rows.csv", "--schema", tmp_path / "schema.toml"]


def test_a_run_says_whether_it_was_centred_and_predicts_with_its_map(
    table: list[Any], tmp_path: Path
) -> None:
    run = tmp_path / "run.npz"
    plain = json.loads(said("train", *table, *RUN, "--json", "--set", "centre=no"))
    found = json.loads(said("train", *table, *RUN, "--json", "--save", run))
    assert (
        "centre" not in plain
        and "centre" not in plain["config"]
        and plain["privacy"]["releases"] == 8
    )
    assert found["centre"]["centred"] is True and found["centre"]["gain"] == 2.0
    assert found["centre"]["groups"] == [[0, 1, 2]] and found["privacy"]["releases"] == 9
    assert "means of" in found["privacy"]["says"] and found["centre"]["says"] in found["notes"]
    assert max(abs(r["privacy"]["epsilon"] - 2.0) for r in (plain, found)) < 0.01
    pure = json.loads(said("train", *table, *RUN[2:], "--method", "dvp", "--pure", "--json"))
    assert (
        pure["centre"] == {"centred": False, "says": pure["centre"]["says"]}
        and "pure" in pure["centre"]["says"]
    )
    assert "Released too" in said("train", *table, *RUN)
    result, X = (
        Result.load(run),
        Schema.from_toml(table[3]).encode(read_table(table[1]), labels=False).X,
    )
    assert result.move is not None
    margins = result.move.shortening_factors(X)[0] * (X @ result.consensus[0])
    told = json.loads(said("predict", run, table[1], "--json"))
    wanted = 1.0 / (1.0 + np.exp(-margins))
    np.testing.assert_allclose([row["probability"] for row in told], np.round(wanted, 6), atol=1e-6)
    far = 1.0 / (1.0 + np.exp(-(X @ result.consensus[0])))
    assert np.abs(far - wanted).max() > 1e-3
    assert [row["prediction"] for row in told] == ["1" if margin > 0 else "0" for margin in margins]
    judged = json.loads(said("evaluate", run, table[1], "--json", "--epsilon", "5"))
    right = np.mean(
        (margins > 0)
        == np.array([line.endswith(",1") for line in table[1].read_text().split()[1:]])
    )
    assert judged["exact"]["accuracy"] == pytest.approx(right)
    assert SavedModel.load(run).move == result.move.for_replicate(0)


def test_a_warm_start_and_a_plan(table: list[Any], tmp_path: Path) -> None:
    first = tmp_path / "first.npz"
    said("train", *table, *RUN, "--save", first)
    second = json.loads(
        said("train", *table, *RUN, "--set", f"start={first}", "--json", "--seed", "3")
    )
    assert second["centre"]["centred"] and second["start_test_error"] == pytest.approx(
        json.loads(said("train", *table, *RUN, "--json"))["test_error"]
    )
    sizes = ["--sizes", "400", "--nodes", "3", "--features", "4"]
    priced = json.loads(said("plan", *table[2:], *sizes, *RUN[:-2], "--json"))
    assert (
        priced["centre"]["centred"]
        and len(priced["releases"]) == 9
        and priced["privacy"]["epsilon"] <= 2.0
    )
    trained = json.loads(said("train", *table, *RUN, "--json"))
    assert priced["centre"]["share"] == pytest.approx(trained["centre"]["share"])
    bare = json.loads(said("plan", *table[2:], *sizes, *RUN[:-2], "--set", "centre=no", "--json"))
    assert "centre" not in bare and len(bare["releases"]) == 8
    assert "subtracted" in said("plan", *table[2:], *sizes, *RUN[:-2]).replace("\n", " ")


def test_the_plan_of_separate_sites(
    table: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decided when it is written; without, the plan says nothing of it."""
    pytest.importorskip("cryptography")
    from sottovoce.deploy.keys import SigningKey
    from sottovoce.deploy.plan_file import read_plan_file

    words: list[Any] = ["plan", *table[2:], "--run", "trial-1", "--epsilon", "2"]
    for name in ("north", "east", "south"):
        member = {"name": name, "rows": 400, "key": SigningKey.make().public}
        (tmp_path / f"{name}.public.json").write_text(json.dumps(member))
        words += ["--site", tmp_path / f"{name}.public.json"]
    for method, trust in (("momentum", "nobody"), ("momentum", "sum"), ("auto", "nobody")):
        asked = [
            *words,
            "--write",
            tmp_path / "plan.json",
            "--method",
            method,
            "--trust",
            trust,
            "--rounds",
            "8",
        ]
        told = json.loads(said(*asked, "--json"))
        plan = read_plan_file(tmp_path / "plan.json")
        assert plan.centre is not None and plan.centre.gain == 2.0
        assert (
            told["centre"]["alpha"] == plan.centre.alpha
            and "Released too" in told["privacy"]["says"]
        )
        assert (
            len(told["releases"])
            == 1 + plan.config.rounds
            == len(plan.planned_privacy.events("east"))
        )
        assert plan.planned_privacy.statement.epsilon <= 2.0
        if method != "auto":  # the screen says the same of a method that was searched for
            assert "subtracted" in said(*asked).replace("\n", " ")
        bare = json.loads(said(*asked, "--json", "--set", "centre=no"))
        plain = read_plan_file(tmp_path / "plan.json")
        assert plain.centre is None and "centre" not in {*bare, *plain.to_dict()}
        assert (
            "Released too" not in bare["privacy"]["says"]
            and len(bare["releases"]) == plain.config.rounds
        )
    monkeypatch.setattr(forecast, "REAL_WORLDS", 3)  # what it forecasts is not asked here
    monkeypatch.setattr(forecast, "EVEN_WORLDS", 2)
    said(*words, "--write", tmp_path / "asked.json", "--inference")
    assert read_plan_file(tmp_path / "asked.json").centre is None
