"""The article on the papers: pages that are what their words and numbers give, and numbers that
have a source.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sottovoce_papers.studies import spec

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "measured" / "papers"


def loaded() -> ModuleType:
    """bench/headlines.py as a module."""
    found = importlib.util.spec_from_file_location("headlines", ROOT / "bench" / "headlines.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    __import__("sys").modules["headlines"] = module
    found.loader.exec_module(module)
    return module


headlines = loaded()
LISTED = headlines.listed()
NUMBERS = LISTED["numbers"]
KEPT = json.loads((PAGES / headlines.NUMBERS).read_text(encoding="utf-8"))
OF_STUDIES = [name for name, asked in NUMBERS.items() if "says" in asked]
WORDS = sorted(headlines.WORDS.glob("*.md"))


def not_run(name: str) -> None:
    """What no study says."""


def exists(test: str) -> bool:
    file, _, name = test.partition("::")
    path = ROOT / file
    return path.is_file() and f"def {name}(" in path.read_text(encoding="utf-8")


def test_pages_equal_their_texts_filled_with_the_stored_numbers() -> None:
    made = headlines.pages(KEPT)
    assert set(made) == {place.name for place in WORDS}
    for name, text in made.items():
        assert (PAGES / name).read_text(encoding="utf-8") == text, (
            f"{name}: run `python bench/headlines.py --words`"
        )


def test_numbers_without_a_study_equal_the_stored_ones() -> None:
    """Privacy, items with a test, and what is computed: had anew here, so that a page cannot lag
    behind the code.
    """
    fresh = {name: asked for name, asked in NUMBERS.items() if "says" not in asked}
    assert fresh
    for name, asked in fresh.items():
        assert headlines.number(asked, not_run) == KEPT["numbers"][name], name
    assert set(NUMBERS) == set(KEPT["numbers"])


def test_there_are_three_headline_claims_a_paper_and_four_of_001() -> None:
    """001 compares two methods by two criteria."""
    expected = dict.fromkeys(headlines.papers.PAPERS, 3) | {"001": 4}
    assert Counter(one["paper"] for one in LISTED["headline"]) == expected
    for one in LISTED["headline"]:
        assert one["place"] and one["claim"] and one["number"] and one["ours"]


def test_every_command_of_a_headline_names_what_there_is() -> None:
    for one in LISTED["headline"]:
        for line in one["ours"]:
            command = headlines.fill(line["command"], KEPT["numbers"], {})
            tool, _, rest = command.partition(" ")
            if tool == "pytest":
                assert exists(rest), command
            else:
                assert (
                    rest in ("claims", "claims --rows")
                    or rest.removeprefix("study ") in spec.names()
                ), command


@pytest.mark.parametrize("name", OF_STUDIES)
def test_a_number_of_a_study_has_one_claim_and_the_verdict_that_its_words_were_written_for(
    name: str,
) -> None:
    asked = NUMBERS[name]
    study = spec.load(asked["study"])
    those = [claim for claim in study.claims if claim.says.startswith(asked["says"])]
    assert len(those) == 1
    assert getattr(those[0], asked.get("basis", "printed")) is not None
    assert {part for part in asked.get("reading", "").split(", ") if part} <= {
        one.name for one in study.readings
    }
    assert set(asked.get("at", {})) <= {*those[0].by}
    assert asked.get("word", KEPT["numbers"][name]["word"]) == KEPT["numbers"][name]["word"]


def test_every_number_stands_somewhere() -> None:
    written = [place.read_text(encoding="utf-8") for place in WORDS] + [
        json.dumps(LISTED["headline"])
    ]
    named = {name for text in written for name, field in headlines.NAME.findall(text) if field}
    assert named == set(NUMBERS)


def test_no_number_of_ours_is_typed_in_the_words() -> None:
    """What has a spread is measured; it is named, and the command fills it."""
    for place in WORDS:
        text = place.read_text(encoding="utf-8")
        typed = [line for line in text.splitlines() if re.search(r"\d ± \d", line)]
        assert not typed, (place.name, typed)


def test_every_figure_stands_on_a_page_with_words_for_who_cannot_see_it() -> None:
    shown = Counter()
    for place in WORDS:
        for words, image in re.findall(
            r"!\[(.*?)\]\((.*?)\)", (PAGES / place.name).read_text(encoding="utf-8")
        ):
            assert len(words) > 40, image
            shown[image] += 1
        article = re.fullmatch(r"(\d+)-article\.md", place.name)
        if article:
            assert 1 <= sum(image.startswith(article[1]) for image in shown) <= 3
    assert shown == {f"{name}.svg": 1 for name in LISTED["figures"]}
    for image in shown:
        assert (PAGES / image).read_bytes().startswith(b"<?xml") and (
            PAGES / image
        ).stat().st_size < 100_000, image


def verdict(*numbers: str) -> dict[str, Any]:
    settings = [
        {"at": {"alpha": k}, "word": "holds", "numbers": one} for k, one in enumerate(numbers)
    ]
    return {"verdict": "reproduced", "reason": "", "of": {}, "settings": settings}


def test_a_number_is_what_a_study_says_of_its_claim() -> None:
    numbers = (
        "0.5 ± 0.1 against 1e-05 ± 2e-06 (R-ADMM, the best of the others)",
        "8031 ± 710 at alpha 0.01, 603 at 1",
    )
    claims = [
        {
            "claim": "A is so.",
            "reading": "low",
            "printed": verdict(*numbers),
            "proof": None,
            "proved": verdict("7"),
        },
        {
            "claim": "A is so.",
            "reading": "high",
            "printed": verdict(),
            "proof": None,
            "proved": None,
        },
    ]
    study = {"claims": claims, "replicates": 20}
    asked = {"study": "002-fig2", "says": "A is", "reading": "low"}
    found = headlines.number(asked, {"002-fig2": study}.get)
    counts, _, word = found["verdict"].partition(": ")
    assert (found["word"], word, found["runs"]) == ("reproduced", "reproduced", "20 runs")
    assert counts.startswith("holds in ") and counts.endswith("2 of 2")
    assert (found["numbers"], found["at"]) == (numbers[0], "alpha 0")
    assert (found["first"], found["second"]) == ("0.5 ± 0.1", "1e-05 ± 2e-06")
    other = headlines.judged(asked | {"at": {"alpha": 1}}, study)
    assert (other["numbers"], other["first"]) == (numbers[1], "8031 ± 710")
    assert headlines.judged(asked | {"basis": "proved"}, study)["verdict"] == "reproduced"
    wrong = [
        ({"basis": "proof"}, "not judged"),
        ({"at": {"alpha": 2}}, "no setting"),
        ({"reading": ""}, "0 claims"),
    ]
    wrong.append(({"reading": "high"}, "no setting"))
    draws, _, runs = headlines.sampled("002-nodes", 10).partition(", ")
    assert draws.startswith("5 draws") and runs == "10 runs"
    assert headlines.sampled("002-fig1", 1) == "1 run"
    for change, told in wrong:
        with pytest.raises(ValueError, match=told):
            headlines.judged(asked | change, study)
    with pytest.raises(ValueError, match="has not run"):
        headlines.number(asked, not_run)


def test_changed_verdict_is_reported() -> None:
    known = {name: {"word": asked.get("word", "")} for name, asked in NUMBERS.items()}
    assert headlines.to_reread(known) == []
    name = next(name for name, asked in NUMBERS.items() if "word" in asked)
    (told,) = headlines.to_reread(known | {name: {"word": "another"}})
    assert told.startswith(f"{name}: ") and "another" in told


def test_a_name_that_no_number_has_ends_the_command() -> None:
    with pytest.raises(KeyError):
        headlines.fill("{{nothing.word}}", KEPT["numbers"], {})
    assert headlines.fill("{{a.word}} {{b}}", {"a": {"word": "x"}}, {"b": "y"}) == "x y"


def test_the_tally_counts_a_papers_own_claims_once_a_reading() -> None:
    claims = [
        {"claim": "A.", "printed": {"verdict": "reproduced"}},
        {"claim": "A.", "printed": {"verdict": "not reproduced"}},
        {"claim": "B.", "printed": None},
        {"claim": "Ours, C.", "printed": {"verdict": "holds"}},
    ]
    names = [item["study"] for item in headlines.papers.listed("002")[1] if "study" in item]
    found = headlines.tally_of("002", {names[0]: {"claims": claims}}.get)
    # a study may be several items, each of its claims one of them
    shown = sum(name == names[0] for name in names)
    assert shown >= 1 and found["words"]["reproduced"] >= 1 and "holds" not in found["words"]
    assert found["lines"] > len(names)
    lines = headlines.tally_table(
        [found | {"paper": "002", "words": {"reproduced": 2}}]
    ).splitlines()
    heading, last = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in lines[:: len(lines) - 1]
    )
    assert heading == ["paper", "lines of its page", "reproduced"] and last[-1] == "2"


RESULTS = PAGES / "results" / "verdicts.json"


def test_numbers_of_studies_are_those_of_the_kept_results() -> None:
    studies = {
        one["study"]: one for one in json.loads(RESULTS.read_text(encoding="utf-8"))["studies"]
    }
    for name in OF_STUDIES:
        assert headlines.number(NUMBERS[name], studies.get) == KEPT["numbers"][name], name
