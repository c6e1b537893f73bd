"""The pages of the papers: no item without a place or a reason, and numbers that are those of
the studies' verdicts.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
from pathlib import Path

import pytest

from sottovoce_papers import claims
from sottovoce_papers.studies import legend, made, spec, verdicts

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"
_spec = importlib.util.spec_from_file_location("papers_pages", BENCH / "papers.py")
assert _spec is not None and _spec.loader is not None
papers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(papers)
ITEMS = [(number, item) for number in papers.PAPERS for item in papers.listed(number)[1]]
FOUND = {  # what the texts number: a list a paper, of names only
    "000": "Algorithms 1 and 2; Theorems 1 to 3; Corollary 3.1; Assumptions 1 to 6; Figures 1 to 3",
    "001": "Algorithms 1 to 3; Theorems 5, 6, 9, 10, 12 and 13; Corollaries 11, 14 and 15; "
    "Lemmas 17 to 20; "
    "Assumptions 1 to 3, 7, 8 and 16; Definition 4; Tables I to III; Figures 1 to 5",
    "002": "Algorithms 1 to 3; Theorems 1 to 4; Lemmas 1 and 2; Assumptions 1 to 5; Definition "
    "1; Figures 1 to 5",
    "003": "Algorithms 1 to 5; Theorems 3.1 to 3.6, 4.12, 4.14 and 4.16; Proposition 4.1; Lemmas "
    "4.4 to 4.11, 4.13 "
    "and 4.15; Assumptions 4.3.1 to 4.3.5; Definitions 2.1, 4.2, 4.3, B.1 to B.6; Table 6.1; "
    "Figures 2.1, 2.2, "
    "3.1 to 3.7, 4.1 to 4.7, 5.1 to 5.41 and 6.1",
    "004": "Algorithms 1 and 2; Theorems 3.1, 3.3, 3.4, 3.5 and 4.1; Lemmas 2.5 to 2.8, 3.2, 4.2 "
    "and 4.3; "
    "Definitions 2.1 to 2.4; Remarks 1 and 2; Figures 1 to 7",
}
ROMAN = ["I", "II", "III", "IV", "V"]
KINDS = ["algorithm", "assumption", "corollar", "definition", "figure"]
KINDS += ["lemma", "proposition", "remark", "table", "theorem"]
WORDS = tuple(legend.STATED)


def numbered(text: str) -> set[str]:
    """ "Figures 3.1 to 3.3" as figure 3.1, figure 3.2, figure 3.3."""
    number = r"(?:[A-Z]\.)?\d+(?:\.\d+)*|[IVX]+\b"
    found = set()
    for kind, numbers in re.findall(
        rf"\b([A-Z][a-z]+?)(?:s|y|ies)? ((?:(?:{number})(?:, | and | to )?)+)", text
    ):
        kind = kind.lower()
        if kind not in KINDS:
            continue
        for first, last in re.findall(rf"({number})(?: to ({number}))?", numbers):
            stem, _, low = first.rpartition(".")
            if not last:
                found.add(f"{kind} {first}")
            elif first in ROMAN:
                found |= {
                    f"{kind} {one}" for one in ROMAN[ROMAN.index(first) : ROMAN.index(last) + 1]
                }
            else:
                some = range(int(low), int(last.rpartition(".")[2]) + 1)
                found |= {f"{kind} {stem}.{k}" if stem else f"{kind} {k}" for k in some}
    return found


def test_ranges_of_numbered_items_are_expanded() -> None:
    ranged = "Figures 3.1 to 3.3, Corollary 4"
    assert numbered(ranged) == {"figure 3.1", "figure 3.2", "figure 3.3", "corollar 4"}
    roman = "Tables I to III; Corollaries 1 and 2"
    tables, corollaries = {"table I", "table II", "table III"}, {"corollar 1", "corollar 2"}
    assert numbered(roman) == tables | corollaries


@pytest.mark.parametrize("number", papers.PAPERS)
def test_no_numbered_item_of_a_paper_is_missing(number: str) -> None:
    items = papers.listed(number)[1]
    listed = set().union(*(numbered(item["item"]) for item in items))
    missing = numbered(FOUND[number]) - listed
    assert not missing, sorted(missing)


def exists(test: str) -> bool:
    file, _, name = test.partition("::")
    path = ROOT / file
    return path.is_file() and f"def {name}(" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("number", "item"), ITEMS, ids=lambda x: x if isinstance(x, str) else x["item"]
)
def test_every_verdict_has_a_test_that_could_have_failed(
    number: str, item: dict[str, object]
) -> None:
    """A verdict is that of a study's claim or of a row of the claims, or names a test; else the
    line says why none.
    """
    sources = [
        key for key in ("study", "claim", "rows", "fit", "verdict", "nothing") if key in item
    ]
    assert len(sources) == 1, sources
    if "test" in item:
        assert exists(str(item["test"])), item["test"]
    if "verdict" in item:
        assert (
            "test" in item and str(item["verdict"]).removeprefix(f"{legend.AMBIGUOUS}: ") in WORDS
        )
    if "rows" in item:
        assert "test" in item and papers.sizes_told(item["rows"])[0]
    if "claim" in item:
        part = str(item.get("part", ""))
        assert any(
            c.method == item["claim"] and part in f"{c.paper} {c.reading}" for c in claims.table()
        )
    if "study" in item:
        study = spec.load(str(item["study"]))
        assert number in study.paper or (number, study.paper[:3]) in (
            ("000", "001"),
            ("001", "000"),
        )
        assert any(str(item.get("says", "")) in claim.says for claim in study.claims)


def test_what_is_refuted_or_called_a_misprint_names_its_test() -> None:
    said = [
        (name, claim.refuted or claim.misprint)
        for name in spec.names()
        for claim in spec.load(name).claims
    ]
    shown = [(name, why) for name, why in said if why]
    assert shown
    for name, why in shown:
        tests = re.findall(r"tests/\S+?\.py::\w+", why)
        assert tests and all(map(exists, tests)), (name, why)


def test_every_study_of_a_paper_is_on_its_page() -> None:
    spoken = {str(item.get("study", "")) for _, item in ITEMS}
    assert {name for name in spec.names() if spec.load(name).paper} <= spoken


ABSENT = {"verdict": verdicts.NOT_RUN, "reason": "synthetic rows", "of": {}, "settings": []}


def cells_of(row: str) -> list[str]:
    """The cells of a row of a table in Markdown."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def test_a_page_has_the_studies_numbers(tmp_path: Path) -> None:
    setting = {"at": {"alpha": 0.1}, "word": "holds", "numbers": "1 ± 0.1 against 2 ± 0.1"}
    one = {"verdict": "reproduced", "of": {}, "settings": [setting] * 5}
    said = {
        "study": "000-fig3",
        "paper": "001",
        "cells": 3,
        "seconds": 12.3,
        "replicates": 7,
        "claims": [
            {
                "claim": "A | B.",
                "paper": "3 (Table II)",
                "reading": "low",
                "printed": one,
                "proof": one,
            },
            {"claim": "C.", "printed": ABSENT, "proof": None, "proved": None},
        ],
    }
    (tmp_path / "000-fig3").mkdir()
    (tmp_path / "000-fig3" / "verdicts.json").write_text(json.dumps(said))
    items = [{"item": "Figure 2", "study": "000-fig3"}, {"item": "Figure 9", "study": "002-fig1"}]
    items.append({"item": "Theorem 1", "claim": "DVP", "part": "Algorithm 2 as listed"})
    items.append(
        {
            "item": "Theorem 9",
            "rows": ["001, Theorem 9"],
            "test": "tests/a.py::b",
            "printed": "rows",
        }
    )
    items.append({"item": "Figure 7", "study": "004-fig7-us"})
    lines = papers.page("000", "A paper", items, tmp_path).splitlines()
    # of the study: its claim, and the absent one; then one row for each further item
    judged, absent, not_run, claim, rows, needs_file = map(cells_of, lines[-6:])
    assert "A \\| B." in lines[-6] and "(7 replicates)" in lines[-6]
    assert f"holds in 5 of 5: {verdicts.REPRODUCED}" in judged
    assert f"alpha 0.1: {setting['numbers']}" in lines[-6] and "and 3 alike" in lines[-6]
    listed = cells_of(papers.times(tmp_path).splitlines()[-3])
    assert listed[:5] == ["`000-fig3`", "001", "3", "7", "12"]
    assert listed[5:] == ["1 reproduced; 1 not run", "1 reproduced", ""]
    assert lines[2] == verdicts.ORDERED
    assert cells_of(lines[-8])[-3:] == ["as printed", "by its proof", "proved"]
    assert "Reading: low." in lines[-6] and "3 (Table II)" in judged
    assert f"{ABSENT['reason']}: {verdicts.NOT_RUN}" in absent and "as printed: –" in absent
    assert any(cell.startswith(verdicts.NOT_RUN) for cell in not_run)
    assert "`sottovoce claims`" in lines[-3] and "false" in claim and "claimed 0.1" in lines[-3]
    assert legend.OTHER_FORM in lines[-2] and "rows as printed" in lines[-2]
    assert any(cell.endswith("`pytest tests/a.py::b`") for cell in rows)
    corrected_bound = "C^2 |f0|^2".replace("|", "\\|")
    assert f"corrected form has {corrected_bound}" in lines[-2]
    assert verdicts.NOT_RUN in needs_file and "ipums" in lines[-1]


def test_pages_show_provenance_and_counts_of_verdicts(tmp_path: Path) -> None:
    """One sentence where all ran alike, one for each way else; words are counted over studies
    and bases.
    """
    way = made.here() | {"date": "2001-02-03"}
    one = {"verdict": verdicts.REPRODUCED, "settings": []}
    claim = {
        "claim": "It is so.",
        "printed": one,
        "proof": one,
        "proved": {"verdict": verdicts.NOT, "settings": []},
    }
    said = {"cells": 1, "seconds": 1.0, "replicates": 2, "paper": "002", "claims": [claim]}
    for name in ("002-fig1", "002-fig2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "verdicts.json").write_text(
            json.dumps(said | {"study": name, "made": way})
        )
    assert (
        papers.made_with(tmp_path, ["002-fig1", "002-fig2", "002-fig3"])
        == f"All ran with {made.sentence(way)}."
    )
    counted = papers.word_counts(tmp_path).splitlines()
    numbers = {word: cells for word, *cells in map(cells_of, counted)}
    assert numbers[verdicts.REPRODUCED] == ["2", "2", "0", "4"]
    assert numbers[verdicts.NOT] == ["0", "0", "2", "2"]
    assert numbers["together"] == ["2", "2", "2", "6"]
    assert len(counted) == len(verdicts.MEANINGS) + 3
    (tmp_path / "002-fig4").mkdir()
    other = said | {"study": "002-fig4", "made": way | {"date": "2001-02-04"}}
    (tmp_path / "002-fig4" / "verdicts.json").write_text(json.dumps(other))
    papers.judged.cache_clear()
    told = papers.made_with(tmp_path, ["002-fig1", "002-fig2", "002-fig4"])
    alike, other_way = re.findall(r"((?:`[\w-]+`(?:, )?)+) ran with", told)
    assert alike == "`002-fig1`, `002-fig2`" and other_way == "`002-fig4`"


def settings_of(**many: int) -> list[dict[str, object]]:
    words = [word.replace("_", " ") for word, n in many.items() for _ in range(n)]
    return [{"at": {"alpha": k}, "word": word, "numbers": f"{k}.5"} for k, word in enumerate(words)]


def test_settings_that_decide_a_verdict_are_listed_first() -> None:
    """What failed and what held is named, each of it; what noise hides is counted beside the
    verdict.
    """
    settings = settings_of(within_the_noise=6, holds=7, fails=8)
    settings[9]["clear"] = True
    told = papers._numbers({"verdict": "reproduced in part", "settings": settings})
    assert told.split("; ")[0] == f"{verdicts.FAILS} at alpha 13: 13.5"
    assert told.index(verdicts.FAILS) < told.index(f"{verdicts.HOLDS} at alpha 9: 9.5")
    for k in range(21):
        assert bool(re.search(rf"\balpha {k}\b", told)) == (k >= 6), k
    one = {"verdict": "reproduced in part", "settings": settings}
    count = "holds in 7 (clearly in 1), fails in 8, within the noise in 6 of 21"
    assert papers._verdict(one) == f"{count}: {verdicts.PART}"
    alike = {"verdict": verdicts.NOISE, "settings": settings[:6]}
    assert papers._verdict(alike) == f"6 of 6: {verdicts.NOISE}"
    assert papers._numbers(alike).endswith("and 4 alike")
    refuted = {"verdict": verdicts.REFUTED, "reason": "a proof", "settings": settings}
    assert papers._verdict(refuted) == f"a proof: {verdicts.REFUTED}" and papers._numbers(
        refuted
    ).endswith(count)


def rendered(number: str, folder: Path) -> tuple[str, list[list[str]]]:
    """The text above a page's table, and the table's cells, where every study has come out in
    every way.
    """
    title, items = papers.listed(number)
    for name in spec.names():
        words = list(verdicts.MEANINGS)
        each = [
            {"verdict": word, "reason": "why", "settings": settings_of(fails=2)} for word in words
        ]
        said = {"study": name, "cells": 1, "seconds": 1.0, "replicates": 2, "paper": number}
        said["claims"] = [
            {"claim": "It is so.", "printed": one, "proof": one, "proved": one} for one in each
        ]
        (folder / name).mkdir(parents=True)
        (folder / name / "verdicts.json").write_text(json.dumps(said))
    items = [{key: value for key, value in item.items() if key != "says"} for item in items]
    above, _, table = papers.page(number, title, items, folder).partition("\n## Items\n")
    return above, [re.split(r"(?<!\\) \| ", line[2:-2]) for line in table.splitlines()[4:]]


@pytest.mark.parametrize("number", papers.PAPERS)
def test_every_word_of_a_verdict_and_every_name_is_explained_above_the_table(
    number: str, tmp_path: Path
) -> None:
    above, lines = rendered(number, tmp_path)
    explained = set(re.findall(r"^  - \*(.*?)\*: ", above, re.M))
    found = {cells[5].rpartition(": ")[2] for cells in lines} - {""}
    assert found and found <= explained, found - explained
    assert verdicts.RULE in above and set(verdicts.MEANINGS) <= explained
    names = re.findall(r"^  - ([\w-]+): ", above, re.M)
    text = " ".join(cell for cells in lines for cell in cells)
    assert set(re.findall(r"\bU\d\b|\bkappa\b|\b(?:R|MR|M|PP|IPP)-ADMM\b|\b[DP]VP\b", text)) <= set(
        names
    )
    assert all(
        f"`{item['claim']}`" not in above for item in papers.listed(number)[1] if "claim" in item
    )
    if any("claim" in item for item in papers.listed(number)[1]):
        assert claims.SETTING in above


def test_claims_speak_of_methods_by_one_name() -> None:
    """A claim has the papers' names, and the numbers beside it do: no knob's name, and no second
    name.
    """
    for study in filter(lambda study: study.paper, map(spec.load, spec.names())):
        for claim in study.claims:
            assert not re.search(r"\b\w+_admm\b|\b[dp]vp\b|ADMM \((?:DVP|PVP)\)", claim.says), (
                study.name,
                claim.says,
            )


def test_the_documentation_has_the_legend_that_the_code_has() -> None:
    """One legend: every word of every source, with its rule; the page of studies leads to it and
    has no other.
    """
    kept = ROOT / "docs" / "measured" / "papers" / "words.md"
    assert kept.read_text(encoding="utf-8") == f"# Words of verdicts\n\n{legend.table()}"
    page = (ROOT / "docs" / "howto" / "studies.md").read_text(encoding="utf-8")
    assert "../measured/papers/words.md" in page and "\n### Words of verdicts\n" in page
    assert verdicts.RULE in page.replace("\n", " ")
    assert not any(f"| {word} | {rule} |" in page for word, rule in verdicts.MEANINGS.items())


def test_every_word_that_can_come_out_is_in_the_legend() -> None:
    given = {source: set(one.words) for source, one in legend.SOURCES.items()}
    ours = {verdicts.OURS.get(word, word) for word in verdicts.MEANINGS}
    assert ours <= given["study"]
    plain = {
        str(item["verdict"]).removeprefix(f"{legend.AMBIGUOUS}: ")
        for _, item in ITEMS
        if "verdict" in item
    }
    assert plain <= given["verdict"]
    parts = [one.verdict.rpartition(": ") for one in claims.table()]
    assert {word for _, _, word in parts} | {head for head, _, _ in parts if head} <= given["claim"]
    assert {papers.sizes_told(item["rows"])[0] for _, item in ITEMS if "rows" in item} <= given[
        "rows"
    ]


def test_a_page_counts_its_verdicts_and_the_settings_of_divided_ones() -> None:
    settings = tuple(settings_of(holds=1, fails=3))
    found = [
        ("study", papers.Verdict("printed", verdicts.MOSTLY_NOT, settings)),
        ("study", papers.Verdict("printed", verdicts.REPRODUCED, settings)),
        ("verdict", papers.Verdict("printed", "holds")),
        ("study", papers.Verdict("proved", verdicts.HOLDS)),
    ]
    expected_lines = [
        "- In sum, as printed:",
        "  - Rows with a study: 1 mostly not reproduced (1 hold, 3 fail of 4); 1 reproduced.",
        "  - Rows with a test and no command: 1 holds.",
        "- In sum, proved:",
        "  - Rows with a study: 1 holds.",
    ]
    assert papers.sums(found, papers.HEADS).splitlines() == expected_lines


KEPT = ROOT / "docs" / "measured" / "papers"


@pytest.mark.parametrize("number", papers.PAPERS)
def test_a_kept_page_is_what_the_command_makes_of_the_kept_results(number: str) -> None:
    text = papers.page(number, *papers.listed(number), KEPT / "results")
    assert (KEPT / f"{number}.md").read_text(encoding="utf-8") == text, (
        "run `python bench/papers.py --studies docs/measured/papers/results`"
    )


def test_kept_times_sum_up_and_say_where_a_shared_run_was_not_recorded() -> None:
    text = (KEPT / "times.md").read_text(encoding="utf-8")
    table, _, below = text.rpartition("|\n\n")
    assert text.endswith(papers.times(KEPT / "results"))
    told = [cells_of(line)[4] for line in table.splitlines()[4:]]
    assert f"All together: {sum(float(one.removeprefix('≥ ')) for one in told):.0f} s" in below
    sixth = next(line for line in table.splitlines() if "`004-fig6`" in line)
    assert cells_of(sixth)[4].startswith("≥ ") and papers.PARTIAL in below


def test_a_run_that_studies_share_counts_in_each_and_once_in_the_sum(tmp_path: Path) -> None:
    for name, own in (("002-fig1", 1.0), ("002-fig2", 2.0)):
        said = {"study": name, "cells": 1, "seconds": own + 40.0, "replicates": 2, "paper": "002"}
        (tmp_path / name).mkdir()
        (tmp_path / name / "verdicts.json").write_text(
            json.dumps(said | {"runs": {"a run": 40.0}, "claims": []})
        )
    text = papers.times(tmp_path)
    told = [cells_of(line)[4] for line in text.splitlines() if "`002" in line]
    assert told == ["41", "42"] and "All together: 43 seconds" in text
    assert papers.PARTIAL not in text


def test_every_privacy_claim_has_a_table_row_of_its_own(tmp_path: Path) -> None:
    """Several rows of ``sottovoce claims`` are never one cell of unlabelled numbers."""
    item = {"item": "Algorithm 1", "claim": "PP-ADMM", "printed": "a total", "proved": "U7"}
    lines = list(papers.rows(item, tmp_path))
    assert [line.printed for line in lines] == [
        c.verdict for c in claims.table() if c.method == "PP-ADMM"
    ]
    assert len({line.claimed for line in lines}) == len(lines) > 1 and all(
        "beta" in x.claimed or "split" in x.claimed for x in lines
    )
    assert lines[0].item and not lines[1].item and lines[0].claimed.startswith("a total (")


def test_bound_with_an_unprinted_constant_is_marked() -> None:
    word, told = papers.sizes_told(["002, Theorem 3"])
    assert (
        word == papers.SAME_FORM
        and "1 for w" in told
        and "does not print" in told
        and "e+" not in told
    )
    word, told = papers.sizes_told(["001, Theorem 9"])
    assert word == papers.OTHER_FORM and "as printed" in told and "corrected" in told
    # its forms ask for as many rows at the setting, and differ
    word, told = papers.sizes_told(["001, Theorem 12"])
    assert word == papers.OTHER_FORM and "C^2 |f0|^2" in told


def test_pages_judge_finished_cells_by_the_claims_of_this_checkout(tmp_path: Path) -> None:
    """The claims of verdicts.json are those of the run; a later run of a cell is the one that
    counts.
    """
    study, folder = spec.load("002-fig2"), tmp_path / "002-fig2"
    (folder / "cells").mkdir(parents=True)
    old = {
        "study": "002-fig2",
        "paper": "",
        "cells": 1,
        "seconds": 1.0,
        "replicates": 9,
        "claims": [],
    }
    (folder / "verdicts.json").write_text(json.dumps(old))
    for k, point in enumerate(study.points()[1:]):  # one is not finished
        p = {**study.fixed, **point, "seed": study.seed, "replicates": study.replicates}
        for age, shift in ((200, 0.3), (100, 0.0)):
            row = {
                "replicate": 0,
                "test_error": shift + abs(point["rho"] - 0.22),
                "_note": "a text",
            }
            place = folder / "cells" / f"{k}-{age}.json.gz"
            place.write_bytes(
                gzip.compress(json.dumps({"parameters": p, "rows": [row], "seconds": 2.0}).encode())
            )
            os.utime(place, (1e9 - age, 1e9 - age))
    said = papers.judged(folder)
    assert [claim["claim"] for claim in said["claims"]] == [claim.says for claim in study.claims]
    assert said["claims"][0]["printed"]["verdict"] == "reproduced"
    assert said["claims"][0]["printed"]["settings"][0]["numbers"].startswith("0 ")
    assert (said["cells"], said["replicates"], said["seconds"]) == (
        f"{k + 1} of {k + 2}",
        1,
        2.0 * (k + 1),
    )
    (row,) = (line for line in papers.times(tmp_path).splitlines() if "`002-fig2`" in line)
    assert cells_of(row)[2:5] == [f"{k + 1} of {k + 2}", "1", "20"]
    assert papers.judged(tmp_path / "002-fig1") is None
