"""The game of rare levels: what a survey says of few rows holds and is tight; planted faults are
refuted.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from planting import planted

from sottovoce.answers.survey import ERROR, RARE
from sottovoce.audit import attack
from sottovoce.audit.confidence import probability_lower_limit
from sottovoce.audit.game import Options
from sottovoce.audit.rare import RareVerdict, play, rare_level_cases
from sottovoce.cli import cli
from sottovoce.errors import InvalidInput

GAME = """
import json
from sottovoce.audit.game import Options
from sottovoce.audit.rare import rare_level_cases, play
verdict = play(Options(replicates=400), {NAME: rare_level_cases()[NAME]})
print(json.dumps([verdict.refuted, verdict.shown]))
"""
THRESHOLD = "return self.rare + self.z * self.sigma * math.sqrt(cells)"
FAULTS = {
    "a threshold that ignores noise": ("levels, nobody", {THRESHOLD: "return self.rare"}),
    "a threshold for one level alone": (
        "levels, sum",
        {"error / comparisons": "error"},
    ),
    "a threshold for one cell of a run": (
        "ranges, sum",
        {THRESHOLD: "return self.rare + self.z * self.sigma / cells"},
    ),
    "noise taken for that of one column": (
        "ranges, nobody",
        {
            "return answer.spread * answer.rows * math.sqrt(columns)": "return answer.spread * answer.rows"
        },
    ),
    "nothing counts as rare": (
        "levels, sum",
        {THRESHOLD: "return self.z * self.sigma * math.sqrt(cells)"},
    ),
}


def test_the_statement_stands_and_is_nearly_reached() -> None:
    verdict = attack("rare", replicates=1500)
    assert isinstance(verdict, RareVerdict) and not verdict.refuted
    assert (
        verdict.shown / (2 * verdict.replicates) > 0.7 * ERROR
        and verdict.rate_bound <= verdict.stated == ERROR
    )
    assert verdict.claimed_epsilon == verdict.proved_epsilon == pytest.approx(1.0, abs=1e-3)
    assert verdict.to_dict()["refuted"] is False


def test_both_bounds_together_hold_at_the_confidence() -> None:
    """Each of the two bounds of one game has half of the error."""
    name = "levels, sum"
    verdict = play(Options(replicates=100, confidence=0.9), {name: rare_level_cases()[name]})
    expected = float(probability_lower_limit(verdict.shown, 200, 0.05))
    assert verdict.rate_bound == pytest.approx(expected, rel=1e-9) and verdict.shown > 0
    assert verdict.confidence == 0.9


def test_an_epsilon_of_zero_is_refused_and_not_replaced() -> None:
    with pytest.raises(InvalidInput) as caught:
        rare_level_cases(epsilon=0.0)
    assert caught.value.field == "epsilon"


def test_tables_hold_as_many_rows_as_may_not_be_shown() -> None:
    for name, stand in rare_level_cases().items():
        for moved, columns in enumerate(stand.tables):
            values = next(iter(columns.values())).tolist()
            counts = {value: values.count(value) for value in set(values)}
            few = sorted(count for count in counts.values())[:-1]
            assert few and max(few) == RARE - (moved if name.startswith("ranges") else 0)


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_refuted(tmp_path: Path, fault: str) -> None:
    name, edits = FAULTS[fault]
    refuted, shown = planted(tmp_path, "answers/survey.py", edits, f"NAME = {name!r}\n{GAME}")
    assert refuted and shown > 0


def test_the_rare_audit_command_shows_the_error_rate() -> None:
    shown = CliRunner().invoke(
        cli, ["audit", "rare", "--replicates", "100"], catch_exceptions=False
    )
    assert "of 200 surveys" in shown.stdout and "at most 0.05" in shown.stdout
    plain = CliRunner().invoke(
        cli, ["audit", "rare", "--replicates", "100", "--json"], catch_exceptions=False
    )
    assert json.loads(plain.stdout)["stated"] == ERROR
    assert not play(Options(replicates=100), {"one": rare_level_cases()["levels, sum"]}).refuted
