"""What a page shows: results before promises, the paper's numbers beside ours, readings, quick
runs, and axes.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sottovoce_papers.studies import figures, page
from sottovoce_papers.studies.drawn import panels
from sottovoce_papers.studies.run import StudyRun
from sottovoce_papers.studies.spec import Figure, PaperPoints, Reading, Sentence, Study
from sottovoce_papers.studies.verdicts import REPRODUCED, judged, of_quick_run

LINE = Figure("loss", "Loss", "line", "x", "v", series="method", names={"a": "The first"})
ROWS = [
    {"method": m, "x": float(x), "v": base * 10.0**-x, "replicate": r}
    for m, base in (("a", 1.0), ("b", 2.0))
    for x in (1, 2, 3)
    for r in (0, 1)
]
POINTS = PaperPoints("loss", (1.0, 2.0), (0.2, 0.05), "Table II", series="The first", error=0.01)
CLAIM = Sentence(
    "A is less.",
    "less",
    "v",
    {"method": "a"},
    {"method": "b"},
    by=("x",),
    printed={},
    paper="0.2 (III)",
)


def made(quick: bool = False, **changes: object) -> str:
    study = Study(
        "s",
        "A study",
        "training.run",
        grid={"method": ("a", "b"), "x": (1.0, 2.0, 3.0)},
        figures=(LINE,),
        claims=(CLAIM,),
        paper_points=(POINTS,),
        table=("method", "x"),
    )
    study = replace(study, **changes)
    privacy = [
        f"dvp (corrected): epsilon = {e}, delta = 1e-05, proved.\nProtects one row of one site: "
        "whatever.\nMore."
        for e in ("0.500", "1.000", "2.000")
    ]
    privacy += ["local, every site alone: epsilon = inf, not private.\nNothing."]
    done = StudyRun(study, Path(), ROWS, ["method", "x", "v", "replicate"], privacy, quick=quick)
    drawn = [
        (one, figures.draw(one, ROWS, study.paper_points, page.MARK if quick else ""))
        for one in study.figures
    ]
    claims, told = judged(study, ROWS), ""
    if quick:
        claims, left_out = of_quick_run(claims)
        told = page.quick_words(study, left_out)
    return page.page(done, drawn, claims, "sottovoce study s", told)


def plain(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html[html.index("<h1") :]))


def test_page_shows_results_before_short_privacy_statements() -> None:
    text = plain(made())
    claims, numbers, promised, how = (
        text.index(x) for x in ("What is claimed", "In numbers", "What is prom", "How it")
    )
    assert claims < numbers < promised < how
    assert how - promised < promised - claims
    assert re.search(r"epsilon 0\.5 to 2\b", text) and "epsilon inf" in text
    assert text.count("Protects one row") == 1 and "privacy.txt" in text


def test_page_shows_reasons_before_verdicts_and_paper_numbers_beside_ours() -> None:
    text = plain(made())
    assert "The paper: 0.2" in text
    reason, word = "3 of 3", REPRODUCED
    assert f"{reason}: {word}" in text
    table = text[text.index("In numbers") :]
    printed = f"{LINE.y} {POINTS.y[0]:g} ± {POINTS.error:g}"
    assert table.count("(Table II)") == 2 and printed in table
    assert (
        "paper"
        not in plain(made(paper_points=())).split("In numbers")[1].split("What is promised")[0]
    )


def test_wording_of_a_refuted_claim_names_its_proof_first() -> None:
    text = plain(made(claims=(replace(CLAIM, refuted="Theorem 9; tests/a.py::b"),)))
    expected_line = "As printed: Theorem 9; tests/a.py::b: refuted (by proof) . what was measured"
    assert expected_line in text


def test_readings_are_listed_and_judged() -> None:
    readings = (Reading("r1", "line 3", "It is small."), Reading("r2", "line 3", "It is large."))
    text = plain(made(readings=readings, cells=({"reading": "r1"}, {"reading": "r2"})))
    assert "Reading: r1." in text and "Reading: r2." in text and "It is large." in text


def test_page_of_a_quick_run_is_marked() -> None:
    assert "(quick run)" in made(quick=True) and "quick run" not in made()
    marked, unmarked = (figures.draw(LINE, ROWS, (), mark)[0].svg for mark in (page.MARK, ""))
    assert marked != unmarked


def test_page_of_a_quick_run_has_no_verdict_on_the_paper() -> None:
    """What it has rows for holds or fails in it; the others are counted."""
    absent = replace(CLAIM, says="Nobody runs c.", than={"method": "c"})
    html = made(quick=True, claims=(CLAIM, absent), paper="002")
    text = plain(html)
    assert "Quick run: all of its settings; no verdict on the paper" in text
    assert "; a claim that it has no rows for is left out." in text
    assert absent.says not in html and CLAIM.says in html and "3 of 3: holds" in text
    assert not re.search("reproduced", text, re.IGNORECASE)
    assert "reproduced" in plain(made(claims=(CLAIM, absent), paper="002"))


def test_a_quick_run_says_how_much_of_the_study_it_has() -> None:
    fixed = {"rounds": 30, "draws": 5}
    quick = {"fixed": {"rounds": 16, "draws": 3}, "grid": {"x": (1.0,)}}
    grid = {"method": ("a", "b"), "x": (1.0, 2.0)}
    study = Study("s", "A study", "training.run", fixed=fixed, grid=grid, quick=quick)
    told = page.quick_words(replace(study, replicates=4), 2)
    assert told == (
        "quick run: 16 of 30 rounds, 3 of 5 draws, 2 of 4 cells; no verdict on the paper; 2 claims "
        "that it has no rows for are left out"
    )


def test_points_of_the_paper_are_drawn_hollow() -> None:
    without, with_points = (figures.draw(LINE, ROWS, points)[0].svg for points in ((), (POINTS,)))
    assert without != with_points and b"fill: none" in with_points
    other = replace(POINTS, figure="another")
    assert figures.draw(LINE, ROWS, (other,))[0].svg == without
    bars = replace(LINE, kind="bar")
    assert figures.draw(bars, ROWS, (POINTS,))[0].svg != figures.draw(bars, ROWS)[0].svg
    facets = replace(LINE, series="", facet="method")
    first, second = (
        figures.draw(facets, ROWS, (replace(POINTS, series="", facet="a"),)) for _ in range(2)
    )
    assert first[0].svg == second[0].svg and first[0].svg != figures.draw(facets, ROWS)[0].svg
    assert first[1].svg == figures.draw(facets, ROWS)[1].svg


def test_panels_are_drawn_anew_only_if_something_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = figures.draw, []
    monkeypatch.setattr(figures, "draw", lambda *a: calls.append(a) or real(*a))
    study = Study("s", "A study", "training.run", figures=(LINE,), paper_points=(POINTS,))
    done = StudyRun(study, tmp_path, ROWS, ["method", "x", "v", "replicate"])
    (tmp_path / "table.csv").write_text("one")
    first = panels(done)
    assert (
        panels(done) == first and len(calls) == 1 and (tmp_path / "figures" / "loss.png").is_file()
    )
    panels(done, page.MARK)
    assert panels(done) == first and len(calls) == 3  # with the mark, and without it again
    (tmp_path / "table.csv").write_text("another")
    panels(done)
    (tmp_path / "figures" / "loss.svg").unlink()
    assert panels(done) == first and len(calls) == 5
    (tmp_path / "figures" / "panels.json").write_text("[]")
    panels(done)
    panels(replace(done, study=replace(study, paper_points=())))
    assert len(calls) == 7


@pytest.mark.parametrize(
    ("low", "scale"),
    [(1.0, ()), (0.001, ("y",)), (0.0, ())],
    ids=["comparable", "on zero", "is zero"],
)
def test_curves_that_would_lie_on_zero_get_a_logarithmic_axis(
    low: float, scale: tuple[str, ...]
) -> None:
    rows = [row | ({"v": low * row["v"]} if row["method"] == "a" else {}) for row in ROWS]
    assert figures._scaled(LINE, rows).log == scale
    assert figures.draw(LINE, rows)[0].svg


def test_a_logarithmic_axis_with_zeros_is_linear_near_zero() -> None:
    rows = [*ROWS, {"method": "a", "x": 4.0, "v": 0.0, "replicate": 0}]
    logged = replace(LINE, log=("y",))
    assert (
        figures._least(logged, rows, "y") == pytest.approx(0.001)
        and figures._least(logged, ROWS, "y") is None
    )
    assert figures.draw(logged, rows)[0].svg
    signed = replace(LINE, log=("y",), references=({"y": 0.0, "label": "none"},))
    assert (
        figures._least(signed, ROWS, "y") == pytest.approx(0.001)
        and figures.draw(signed, ROWS)[0].svg
    )


def test_every_text_is_escaped() -> None:
    evil = "<script>alert('1')</script>"
    line = replace(LINE, title=evil, caption=evil, names={"a": evil})
    claim = replace(CLAIM, says=evil, paper=evil)
    html = made(
        title=evil, about=evil, paper=evil, differs=(evil,), figures=(line,), claims=(claim,)
    )
    study = Study(evil, evil, "training.run", figures=(LINE,))
    index = page.index([(StudyRun(study, Path(), [], [], []), None, [])], [evil], evil)
    for text in (html, index):
        assert "<script" not in text and text.count("&lt;script&gt;") >= 5
