"""The pages of the papers: no item without a place or a reason, and numbers that are those of the studies' verdicts."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
import tomllib
from pathlib import Path

import pytest

from sottovoce.papers import claims
from sottovoce.studies import spec

BENCH = Path(__file__).parents[2] / "bench"
LISTED = tomllib.loads((BENCH / "papers.toml").read_text(encoding="utf-8"))
_spec = importlib.util.spec_from_file_location("papers_pages", BENCH / "papers.py")
assert _spec is not None and _spec.loader is not None
papers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(papers)
ITEMS = [(number, item) for number in papers.PAPERS for item in LISTED[f"p{number}"]["items"]]


@pytest.mark.parametrize(("number", "item"), ITEMS, ids=lambda x: x if isinstance(x, str) else x["item"])
def test_every_item_has_a_place_or_a_reason(number: str, item: dict[str, object]) -> None:
    assert item.get("study") or item.get("claim") or item.get("verdict")
    if "claim" in item:
        known = [c for c in claims.table() if c.method == item["claim"] and str(item.get("part", "")) in c.paper]
        assert known or any(c.reading for c in claims.table() if c.method == item["claim"])
    if "study" in item:
        study = spec.load(str(item["study"]))
        assert number in study.paper or (number, study.paper[:3]) in (("000", "001"), ("001", "000"))
        picked = item.get("claims", [])
        assert isinstance(picked, list) and all(k < len(study.claims) for k in picked)


def test_every_study_of_a_paper_is_on_its_page() -> None:
    spoken = {str(item.get("study", "")) for _, item in ITEMS} | {str(item.get("here", "")) for _, item in ITEMS}
    for name in spec.names():
        if spec.load(name).paper:
            assert name in spoken or f"study `{name}`" in spoken, name


FIGURES_003 = {2: 2, 3: 7, 4: 7, 5: 41, 6: 1}
NUMBERED_003 = (
    *(f"Figure {chapter}.{k + 1}" for chapter, many in FIGURES_003.items() for k in range(many)),
    *(f"Algorithm {k}" for k in range(1, 6)), *(f"Theorem 3.{k}" for k in range(1, 7)),
    "Proposition 4.1", *(f"Theorem 4.{k}" for k in (12, 14, 16)), *(f"Lemma 4.{k}" for k in (*range(4, 12), 13, 15)),
    *(f"Assumption 4.3.{k}" for k in range(1, 6)), "Definition 2.1", "Definition 4.2", "Definition 4.3",
    *(f"Definition B.{k}" for k in range(1, 7)), "Table 6.1",
)  # fmt: skip
"""What 003 numbers."""
WORDS = "Figure|Algorithm|Theorem|Lemma|Definition|Table|Assumption|Proposition"


def spoken(item: str) -> set[str]:
    """The numbered things that the name of an item stands for: "Lemmas 4.4 to 4.6; Theorem 3.1" for four."""
    found: set[str] = set()
    for word, first, last in re.findall(rf"({WORDS})s? ([\dB.]*\d)(?: (?:to|and) ([\dB.]*\d))?", item):
        head, dot, low = first.rpartition(".")
        high = (last or first).rpartition(".")[2]
        found |= {f"{word} {head}{dot}{k}" for k in range(int(low), int(high) + 1)}
    return found


def test_everything_that_003_numbers_is_on_its_page() -> None:
    named = set[str]().union(*(spoken(str(item["item"])) for number, item in ITEMS if number == "003"))
    assert spoken("Lemmas 4.9 to 4.11; Theorem 3.1") == {"Lemma 4.9", "Lemma 4.10", "Lemma 4.11", "Theorem 3.1"}
    assert set(NUMBERED_003) - named == set()


@pytest.mark.parametrize("item", [item for number, item in ITEMS if number == "003"], ids=lambda item: item["item"])
def test_no_verdict_on_003_without_a_test_that_could_have_failed(item: dict[str, object]) -> None:
    """Studies judge by their claims, prices by tests/papers/test_claims.py; a verdict in words names its test."""
    if "verdict" in item and "claim" not in item and item["verdict"] != "nothing to reproduce":
        file, _, name = str(item.get("test", "")).partition("::")
        text = (BENCH.parent / file).read_text(encoding="utf-8") if file else ""
        assert f"def {name}(" in text if name else "def test_" in text, item
    if "study" in item:
        claimed = spec.load(str(item["study"])).claims
        picked = item.get("claims", range(len(claimed)))
        assert isinstance(picked, list | range) and len(picked)
        assert all(claimed[k].paper or "Ours" in claimed[k].says for k in picked)


def test_claims_are_picked_by_their_place_and_say_paper_reading_and_test(tmp_path: Path) -> None:
    """A study with readings has a claim once a reading; an untestable setting tells its reason."""
    one = {
        "verdict": "untestable here",
        "of": {},
        "settings": [{"at": {}, "word": "untestable here", "numbers": "Gone."}],
    }
    told = {"paper": "0.3 (Table 9)", "settings": {"test": "falls"}, "printed": one, "proved": None}
    claimed = [{"claim": f"C{p}.", "place": p, "reading": r} | told for p in (0, 1) for r in ("a", "b")]
    said = {"study": "000-fig3", "paper": "001", "cells": 3, "seconds": 1.0, "replicates": 7, "claims": claimed}
    (tmp_path / "000-fig3").mkdir()
    (tmp_path / "000-fig3" / "verdicts.json").write_text(json.dumps(said))
    lines = papers.page("000", "P", [{"item": "F", "study": "000-fig3", "claims": [1]}], tmp_path).splitlines()[-2:]
    assert "C1. Printed: 0.3 (Table 9). Reading: a. Test: falls." in lines[0] and "Reading: b." in lines[1]
    assert "Gone." in lines[0] and "| untestable here |" in lines[0]


def test_a_page_has_the_studies_numbers(tmp_path: Path) -> None:
    setting = {"at": {"alpha": 0.1}, "word": "holds", "numbers": "1 ± 0.1 against 2 ± 0.1"}
    one = {"verdict": "reproduced", "of": {}, "settings": [setting] * 5}
    said = {
        "study": "000-fig3",
        "paper": "001",
        "cells": 3,
        "seconds": 12.3,
        "replicates": 7,
        "claims": [{"claim": "A | B.", "printed": one, "proved": None}],
    }
    (tmp_path / "000-fig3").mkdir()
    (tmp_path / "000-fig3" / "verdicts.json").write_text(json.dumps(said))
    items = [{"item": "Figure 2", "study": "000-fig3"}, {"item": "Figure 9", "study": "002-fig1"}]
    items.append({"item": "Theorem 1", "claim": "DVP", "part": "as listed"})
    lines = papers.page("000", "A paper", items, tmp_path).splitlines()
    first, second, third = lines[-3:]
    assert "A \\| B." in first and "(7 replicates)" in first and "| reproduced |" in first
    assert "alpha 0.1: 1 ± 0.1 against 2 ± 0.1" in first and "holds in 5 of 5" in first
    listed = papers.times(tmp_path).splitlines()[-3]
    assert listed == "| `000-fig3` | 001 | 3 | 7 | 12 | 1 reproduced |  |"
    assert "not run" in second and "| false |" in third and "claimed 0.1" in third


def test_pages_judge_finished_cells_by_the_claims_of_this_checkout(tmp_path: Path) -> None:
    """The claims of verdicts.json are those of the run; a later run of a cell is the one that counts."""
    study, folder = spec.load("002-fig2"), tmp_path / "002-fig2"
    (folder / "cells").mkdir(parents=True)
    old = {"study": "002-fig2", "paper": "", "cells": 1, "seconds": 1.0, "replicates": 9, "claims": []}
    (folder / "verdicts.json").write_text(json.dumps(old))
    for k, point in enumerate(study.points()[1:]):  # one is not finished
        p = {**study.fixed, **point, "seed": study.seed, "replicates": study.replicates}
        for age, shift in ((200, 0.3), (100, 0.0)):
            row = {"replicate": 0, "test_error": shift + abs(point["rho"] - 0.22), "_note": "a text"}
            place = folder / "cells" / f"{k}-{age}.json.gz"
            place.write_bytes(gzip.compress(json.dumps({"parameters": p, "rows": [row], "seconds": 2.0}).encode()))
            os.utime(place, (1e9 - age, 1e9 - age))
    said = papers.judged(folder)
    assert [claim["claim"] for claim in said["claims"]] == [claim.says for claim in study.claims]
    assert said["claims"][0]["printed"]["verdict"] == "reproduced"
    assert said["claims"][0]["printed"]["settings"][0]["numbers"].startswith("0 ")
    assert (said["cells"], said["replicates"], said["seconds"]) == (f"{k + 1} of {k + 2}", 1, 2.0 * (k + 1))
    assert "| 10 of 11 | 1 | 20 |" in papers.times(tmp_path)
    assert papers.judged(tmp_path / "002-fig1") is None
