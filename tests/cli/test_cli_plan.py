"""``sottovoce plan`` and ``sottovoce claims``: prices without data, for people and for machines."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import PRIVATE, Call

from sottovoce.answers import forecast
from sottovoce.privacy.statement import ceil_text


@pytest.mark.parametrize("method", PRIVATE)
def test_a_plan_is_what_training_spends(ok: Call, method: str) -> None:
    shared = ("--method", method, "--rounds", 6, "--epsilon", 2, "--delta", 1e-5, "--json")
    planned = ok("plan", "--sizes", 120, "--features", 5, *shared).json
    trained = ok("train", "--data", "synthetic:n=600,d=5,seed=1", *shared).json
    assert planned["features"] == trained["features"]
    assert planned["privacy"]["epsilon"] == trained["privacy"]["epsilon"]
    assert planned["algorithm"] == trained["algorithm"]
    assert len(planned["releases"]) == trained["privacy"]["releases"]
    back = ok(
        "plan",
        "--sizes",
        120,
        "--features",
        5,
        "--method",
        method,
        "--rounds",
        6,
        "--delta",
        1e-5,
        "--json",
        "--eta",
        planned["algorithm"]["penalty"]["start"],
        "--set",
        f"noise={noise_of(planned)}",
    ).json
    assert back["privacy"]["epsilon"] == pytest.approx(planned["privacy"]["epsilon"], rel=1e-6)


def noise_of(planned: dict[str, dict[str, dict[str, float]]]) -> str:
    return repr(planned["algorithm"]["noise"]["factor"] * planned["algorithm"]["noise"]["start"])


@pytest.mark.parametrize(
    ("trust", "lines"),
    [
        ("nobody", {"700", "900", "1,100"}),
        ("sum", {"700", "900", "1,100"}),
        ("curator", {"2,700"}),  # who pools the rows of all sites
    ],
)
def test_a_plan_is_shown_for_every_trust(ok: Call, trust: str, lines: set[str]) -> None:
    words = ("plan", "--sizes", "700,900,1100", "--trust", trust, "--delta", 1e-5)
    shown = ok(*words, "--method", "momentum", "--set", "rounds=5", "--life", 9).out
    _, table = shown.split("its last", 1)
    assert lines <= set(table.split())


def test_a_plan_for_people(ok: Call) -> None:
    shown = ok("plan", "--sizes", "700,7000,7000", "--method", "dvp", "--delta", 1e-5).out
    for phrase in (
        "3 sites of 700 to 7,000 rows",
        "no data were read",
        "epsilon = 1.000",
        "noise parameter",
    ):
        assert phrase in " ".join(shown.split())


def test_a_printed_plan_shows_claim_and_price(ok: Call) -> None:
    privacy = ok("plan", "--method", "dvp", "--form", "printed", "--epsilon", 3, "--json").json[
        "privacy"
    ]
    assert privacy["printed_claim"] == pytest.approx(3.0)
    assert privacy["epsilon"] > 3.2
    assert "As printed" in privacy["says"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--sizes", "0"), "sizes"),
        (("--sizes", "10.5"), "sizes"),
        (("--nodes", 0), "nodes"),
        (("--features", 0), "features"),
        (("--set", "accountant=rdp", "--pure"), "delta"),
        (("--set", "accountant=x"), "accountant"),
    ],
)
def test_a_plan_of_impossible_sizes_or_noise_is_refused(
    refused_plan: Callable[..., str], arguments: tuple[object, ...], word: str
) -> None:
    assert word in refused_plan(*arguments)


@pytest.fixture
def refused_plan(run: Call) -> Callable[..., str]:
    def call(*arguments: object) -> str:
        done = run("plan", *arguments)
        assert done.code == 2 and len(done.err.splitlines()) == 1
        return str(done.err)

    return call


def test_claims_lists_a_verdict_for_every_printed_claim(ok: Call) -> None:
    rows = ok("claims", "--json").json
    verdicts = {row["verdict"] for row in rows}
    words = {"false", "holds", "holds, loose", "unproved"}
    assert words | {f"ambiguous: {word}" for word in words} | {"misprint, corrected"} == verdicts
    assert all(row["corrected_epsilon"] < max(2.0, 1.1 * row["claimed"]) for row in rows)
    shown = ok("claims").out
    assert "DVP" in shown and "docs/privacy/verdicts.md" in shown


def test_claims_of_one_paper_and_of_one_verdict(ok: Call) -> None:
    """Ambiguous ones count as what they are under their reading."""
    rows = ok("claims", "--json").json
    assert {row["paper"][:3] for row in ok("claims", "001", "--json").json} == {"000", "001"}
    own = ok("claims", "004", "--json").json
    assert own == [row for row in rows if "004" in row["paper"]]
    false = ok("claims", "--verdict", "false", "--json").json
    assert false == [row for row in rows if row["verdict"].endswith("false")]
    assert {row["verdict"] for row in false} == {"false", "ambiguous: false"}
    both = ok("claims", "003", "--verdict", "unproved", "--json").json
    assert [row["paper"] for row in both] == ["003, Algorithm 3, Gaussian"]
    assert {row["theorem"][:3] for row in ok("claims", "004", "--rows", "--json").json} == {"004"}


def test_claims_are_a_table_on_eighty_columns(ok: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = ok("claims").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["printed", "claim", "claimed", "attained", "proved", "verdict"]
    assert "pure" in " ".join(lines[-5:]) and any("ambiguous: false" in line for line in lines)


def test_claims_on_rows_lists_the_bounds_of_every_theorem(ok: Call) -> None:
    rows = {row["theorem"]: row for row in ok("claims", "--rows", "--json").json}
    assert {theorem[:3] for theorem in rows} == {"000", "001", "002", "003", "004"} and len(
        rows
    ) == 14
    shown = " ".join(ok("claims", "--rows").out.split())
    for theorem, row in rows.items():
        assert f"{theorem} {float(row['printed']):.3g} {float(row['corrected']):.3g}" in shown
    assert "two bounds" in shown


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--evaluation", "0.5"), "add --write"),
        (("--inference",), "add --schema"),
        (("--evaluation", "0.5", "--set", "holdout=1"), "must be a share"),
    ],
)
def test_answers_that_cannot_be_asked_are_refused_in_one_line(
    run: Call, options: tuple[str, ...], why: str
) -> None:
    ran = run("plan", *options)
    assert ran.code == 2 and why in ran.err and len(ran.err.strip().splitlines()) == 1


def test_a_plan_says_what_it_takes_of_a_lifetime_budget(
    ok: Call, refused: Callable[..., str]
) -> None:
    asked = ("plan", "--method", "prox_admm", "--epsilon", 1, "--rounds", 30)
    told = " ".join(ok(*asked, "--life", 3).out.split())
    life = ok(*asked, "--life", 3, "--json").json["life"]
    texts = [ceil_text(life[key]) for key in ("least", "first", "later")]
    assert texts == ["1.093", "1.565", "0.274"] and (life["budget"], life["runs"]) == (3, 6)
    _, _, told_life = told.partition("smallest lifetime budget")
    assert re.findall(r"\d+(?:\.\d+)?", told_life)[:5] == [texts[0], "3", *texts[1:], "6"]
    assert "0.5 is too" in " ".join(ok(*asked, "--life", 0.5).out.split())
    assert "see --life" in " ".join(ok(*asked).out.split())
    assert ok(*asked, "--life", 20, "--json").json["life"]["first"] == pytest.approx(
        6.9153, abs=1e-4
    )
    # every ledger takes 1
    assert "see --life" not in ok("plan", "--method", "dvp", "--epsilon", 1, "--pure").out
    assert ok("plan", "--method", "dgd", "--epsilon", "inf", "--json").json["life"] is None
    assert "life=0.0: must" in refused(*asked, "--life", 0)


CLINIC = """
name = "clinic"
[label]
column = "ill"
positive = "yes"
negative = "no"
[columns.age]
kind = "number"
lo = 0
hi = 120
typical = [20, 80]
[columns.stage]
kind = "category"
values = ["a", "b", "c"]
"""
PRICE = CLINIC.replace('positive = "yes"\nnegative = "no"', "lo = 0\nhi = 200")


@pytest.mark.parametrize("schema", [CLINIC, PRICE])
def test_inference_is_planned_from_a_schema_and_sizes_alone(
    ok: Call, tmp_path: Path, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard errors of every line, in JSON and on the screen; more rows have smaller ones."""
    monkeypatch.setattr(forecast, "REAL_WORLDS", 3)  # these tables tell how many rows are needed,
    monkeypatch.setattr(forecast, "EVEN_WORLDS", 2)  # which is not asked here
    place = tmp_path / "schema.toml"
    place.write_text(schema)
    asked = (
        "plan",
        "--inference",
        "--schema",
        place,
        "--nodes",
        4,
        "--trust",
        "sum",
        "--epsilon",
        3,
    )
    few, many = (
        ok(*asked, "--set", "site_constants=no", "--sizes", n, "--json").json for n in (1000, 4000)
    )
    names = [(line["name"], line["level"]) for line in many["forecast"]["standard_errors"]]
    assert names == [("age", None), ("stage", "b"), ("stage", "c"), ("(constant)", None)]
    for one, other in zip(
        few["forecast"]["standard_errors"], many["forecast"]["standard_errors"], strict=True
    ):
        assert 2.0 <= one["standard_error"] / other["standard_error"] <= 4.5
        assert one["without_privacy"] / other["without_privacy"] == pytest.approx(2.0)
    assert few["forecast"]["rows"] == 4000 and few["privacy"]["epsilon"] <= 3.0
    if (
        schema == PRICE
    ):  # the screen has the same lines for both, and numbers to predict are planned fast
        assert "standard error" in ok(*asked, "--sizes", 1000).out


def test_an_expected_correlation_outside_its_range_is_refused(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    place = tmp_path / "schema.toml"
    place.write_text(CLINIC)
    assert "correlation" in refused(
        "plan", "--inference", "--schema", place, "--set", "expect_correlation=1"
    )


@pytest.mark.parametrize("name", ["positives", "correlation", "residuals"])
def test_what_is_expected_must_be_possible_also_where_nothing_asks_for_it(
    refused: Callable[..., str], name: str
) -> None:
    asked = ("plan", "--method", "mr_admm", "--pure", "--set", f"expect_{name}=nan")
    assert refused(*asked).startswith(f"error: {name}=")


def test_a_share_of_a_level_that_no_column_has_is_refused(
    refused: Callable[..., str], tmp_path: Path
) -> None:
    place = tmp_path / "schema.toml"
    place.write_text(CLINIC)
    said = refused(
        "plan",
        "--inference",
        "--schema",
        place,
        "--epsilon",
        3,
        "--set",
        "expect_share=stage: d=.1",
    )
    assert "shares" in said and "stage: d=.1" in said


def test_a_price_is_of_the_features_that_a_schema_declares(ok: Call, tmp_path: Path) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text(
        'label = {column = "ill", positive = "yes"}\n[columns.age]\nkind = "number"\nlo = 0\nhi = 9\n'
    )
    words = ("plan", "--sizes", 120, "--method", "prox_admm", "--json")
    assert ok(*words).json["features"] == 36
    assert ok(*words, "--schema", schema).json["features"] == 1
    assert ok(*words, "--schema", schema, "--features", 7).json["features"] == 7
    classes = ("--set", "loss=softmax:3", "--features", 7)
    assert ok(*words, *classes).json["features"] == 7
