"""A full run leaves no claim unjudged: every claim of every study finds rows in what the study
would tabulate.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import tabulated

from sottovoce_papers.studies import spec, verdicts
from sottovoce_papers.studies.kinds import graded, training


def unjudged(study: spec.Study, rows: list[dict[str, object]]) -> list[tuple[str, str]]:
    """Claims, and what they are judged on, that find no rows."""
    return [
        (one.claim.says, basis)
        for one in verdicts.judged(study, rows)
        for basis, verdict in one.verdicts.items()
        if verdict.word == verdicts.UNSEEN
    ]


@pytest.mark.parametrize("name", spec.names())
def test_a_full_run_leaves_no_claim_unjudged(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tabulated.play(monkeypatch)
    study = spec.load(name)
    rows = tabulated.tabulated(study)
    assert study.unmatched(rows) == []
    assert unjudged(study, rows) == []


def test_selected_value_without_rows_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """003-2.5 asked for the rows of its fixed values, which the table left blank."""
    tabulated.play(monkeypatch)
    study = spec.load("003-2.5")
    rows = tabulated.tabulated(study)
    blank = [row | ({} if row["varies"] in ("rows", "5.11") else {"rows": ""}) for row in rows]
    (told,) = {
        line.partition(": no row")[2] for line in study.unmatched(blank) if "aggregator" not in line
    }
    wanted, _, present = told.partition(";")
    assert wanted.endswith("rows = 789") and present.endswith("1085, 2410, 39")
    assert any("789 and not" in says for says, _ in unjudged(study, blank))
    other = replace(study.claims[0], filter={"varies": "epsilon", "method": "nobody's"})
    assert unjudged(replace(study, claims=(other,)), rows)


def test_simulated_cells_have_the_columns_of_real_ones() -> None:
    """Else a claim could find its rows in what is played, and none in what is run."""
    p = {
        "data": "synthetic:n=300,d=3",
        "nodes": 3,
        "rounds": 5,
        "every": 2,
        "epsilon": 5.0,
        "seed": 0,
    }
    p |= {"replicates": tabulated.REPLICATES, "method": "dvp"}
    for real, play in ((training.run, tabulated.played), (graded.run, tabulated.played_graded)):
        for cell in (p, {key: value for key, value in p.items() if key != "every"}):
            found, made = real(cell), play(cell)
            assert [(row["round"], row["replicate"]) for row in made] == [
                (row["round"], row["replicate"]) for row in found
            ]
            assert set(made[0]) == {name for name in found[0] if not name.startswith("_")}
    alone = p | {"method": "local"}
    assert {row["round"] for row in training.run(alone)} == {
        row["round"] for row in tabulated.played(alone)
    }
