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


def test_the_tests_that_verdicts_name_are_there() -> None:
    told = [str(one) for _, item in ITEMS for one in item.values()]
    told += [claim.refuted for name in spec.names() for claim in spec.load(name).claims]
    named = set(re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", " ".join(told)))
    assert named
    for place, test in named:
        assert f"def {test}" in (BENCH.parent / place).read_text(encoding="utf-8"), (place, test)


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
