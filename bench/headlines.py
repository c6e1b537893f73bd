"""The article on the papers: a page a paper, one table of headline claims, figures.  Writes
docs/measured/papers/.

``python bench/headlines.py [--studies studies] [--out docs/measured/papers]``

Words are written by hand in bench/article/, and what is claimed, where, and which number of ours
stands beside it in bench/headlines.toml.  No number of ours is typed: a page names it as
``{{name.field}}``, and this command fills it from the studies' tables, from ``sottovoce claims``,
or by computing it.  ``numbers.json`` keeps what was filled, so that a test fills the pages again
without the studies.  ``--studies docs/measured/papers/results`` takes the studies' numbers from the
results that are kept there, and leaves the figures as they are.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # also where this file is imported from elsewhere

import papers

from sottovoce.network.graphs import make_graph
from sottovoce.privacy.accountants import BestAccountant
from sottovoce_papers import plausible
from sottovoce_papers.convergence import check_convergence
from sottovoce_papers.studies import figures, spec, verdicts

HERE = Path(__file__).parent
WORDS = HERE / "article"
NUMBERS = "numbers.json"
NAME = re.compile(r"\{\{([a-z0-9_]+)(?:\.([a-z0-9_]+))?\}\}")
"""``{{name.field}}`` in a page: a field of a number, or a block that :data:`BLOCKS` writes."""
VALUE = re.compile(r"(?<![\w.])\d[\d.]*(?:e[+-]?\d+)?(?: ± \d[\d.]*(?:e[+-]?\d+)?)?")
"""A number of a setting with its spread, if it has one."""
Fields = dict[str, str]
Said = Callable[[str], dict[str, Any] | None]
"""What a study says, by its name: its claims as ``verdicts.json`` has them, and replicates; None
if it has not run.
"""


@lru_cache
def listed() -> dict[str, Any]:
    """Headlines, numbers and figures of bench/headlines.toml."""
    return tomllib.loads((HERE / "headlines.toml").read_text(encoding="utf-8"))


# --------------------------------------------------------------------------------------------------
# numbers


def numbers(said: Said) -> dict[str, Fields]:
    """Every number that the pages name, by its name: its fields as texts.

    Raises
    ------
    ValueError
        With a line for each that cannot be had: a study that has not run, a claim that is worded
        otherwise now.
    """
    found, missing = {}, []
    for name, asked in listed()["numbers"].items():
        try:
            found[name] = number(asked, said)
        except ValueError as error:
            missing.append(f"{name}: {error}")
    if missing:
        raise ValueError("numbers of the article are missing:\n" + "\n".join(missing))
    return found


def to_reread(known: Mapping[str, Fields]) -> list[str]:
    """A line for each verdict that is another than the one that the words around it were written
    for.
    """
    return [
        f"{name}: the words were written for {asked['word']!r}, and it is {known[name]['word']!r} "
        "now"
        for name, asked in listed()["numbers"].items()
        if "word" in asked and known[name]["word"] != asked["word"]
    ]


def number(asked: Mapping[str, Any], said: Said) -> Fields:
    """The fields of one number; it is asked for by where it comes from."""
    if "says" in asked:
        return judged(asked, said(asked["study"]))
    if "item" in asked:
        return tested(asked)
    if "claim" in asked:
        return priced(asked)
    if "rows" in asked:
        return sized(asked)
    return COMPUTED[asked["computed"]]()


def judged(asked: Mapping[str, Any], study: Mapping[str, Any] | None) -> Fields:
    """A study's claim on one basis and reading: its word, its count, and the numbers of one
    setting.
    """
    name, basis = asked["study"], asked.get("basis", "printed")
    if study is None:
        raise ValueError(f"{name}: has not run as its file is now; run `sottovoce study {name}`")
    verdict = claim_of(asked, study["claims"])[basis]
    if verdict is None:
        raise ValueError(f"{name}: {asked['says']!r} is not judged on {basis!r}")
    settings = verdict["settings"]
    fields = {
        "word": verdict["verdict"],
        "counted": count(verdict["verdict"], settings),
        "runs": sampled(name, study["replicates"]),
    }
    fields["verdict"] = ": ".join(filter(None, [fields["counted"], fields["word"]]))
    one = setting_at(settings, asked.get("at", {}))
    fields |= {
        "numbers": str(one["numbers"]),
        "at": verdicts.placed(one["at"]),
        "here": one["word"],
    }
    return fields | dict(zip(("first", "second"), VALUE.findall(fields["numbers"]), strict=False))


def count(word: str, settings: list[dict[str, Any]]) -> str:
    """In how many settings a claim holds and fails, as the pages of items have it; empty of one
    setting.
    """
    many = len(settings)
    if many < 2 or word in verdicts.BARRED:
        return ""
    alike = {one["word"] for one in settings} == {word}
    return f"{many} of {many}" if alike else verdicts.counted(settings)


def sampled(name: str, replicates: int) -> str:
    """Over how many runs a study's means are, and over how many draws of graph and rows, if it
    has several.
    """
    runs = f"{replicates} run{'s' if replicates > 1 else ''}"
    draws = spec.load(name).fixed.get("draws", 1)
    return f"{draws} draws of graph and rows, {runs}" if draws > 1 else runs


def claim_of(asked: Mapping[str, Any], claims: list[dict[str, Any]]) -> dict[str, Any]:
    """The one claim of a study that begins with these words, under this reading."""
    reading = asked.get("reading", "")
    those = [
        one
        for one in claims
        if one["claim"].startswith(asked["says"]) and one["reading"] == reading
    ]
    if len(those) != 1:
        found = f"{len(those)} claims begin with {asked['says']!r} under reading {reading!r}"
        raise ValueError(f"{asked['study']}: {found}")
    return those[0]


def setting_at(settings: list[dict[str, Any]], at: Mapping[str, Any]) -> dict[str, Any]:
    """The setting at this place; the first, if none is asked for."""
    those = [one for one in settings if spec.matches(one["at"], at)]
    if not those:
        raise ValueError(
            f"no setting of the claim is at {dict(at)}; there are {[one['at'] for one in settings]}"
        )
    return those[0]


def priced(asked: Mapping[str, Any]) -> Fields:
    """A row of ``sottovoce claims``: claimed, attained and proved epsilon, and the verdict."""
    found = papers.promised({"claim": asked["claim"], "part": asked["part"]})
    if len(found) != 1:
        raise ValueError(
            f"{len(found)} rows of `sottovoce claims` are on {asked['claim']}: {asked['part']}"
        )
    claim = found[0]
    proved = claim.proved_at_delta if claim.at_delta else claim.proved
    attained = "–" if claim.attained is None else papers.number_told(claim.attained)
    return {
        "claimed": papers.number_told(claim.claimed),
        "proved": papers.number_told(proved),
        "attained": attained,
        "verdict": claim.verdict,
    }


def tested(asked: Mapping[str, Any]) -> Fields:
    """An item of bench/papers.toml with a verdict and its test."""
    those = [one for one in papers.listed(asked["paper"])[1] if one["item"] == asked["item"]]
    if len(those) != 1 or "verdict" not in those[0]:
        raise ValueError(
            f"{asked['paper']}: {len(those)} items with a verdict are called {asked['item']!r}"
        )
    return {"verdict": those[0]["verdict"], "test": those[0]["test"], "ours": those[0]["ours"]}


def sized(asked: Mapping[str, Any]) -> Fields:
    """A theorem of ``sottovoce claims --rows``: whether its forms differ, and how many rows each
    asks for.
    """
    word, ours = papers.sizes_told([asked["rows"]])
    return {"verdict": word, "rows": ours.partition("; ")[0]}


def triangle() -> Fields:
    """002, Theorem 1 with penalties that differ between the nodes of a triangle: its limit, and the
    optimum.

    The nodes hold ``(f - b_i)^2 / 2`` and end at the minimiser of the sum of ``O_i / eta_i``, which
    tests/papers/test_convergence.py finds by running the rounds.
    """
    targets, eta, gamma = np.array([0.0, 1.0, 5.0]), np.array([1.0, 1.5, 2.0]), 5.0
    report = check_convergence(make_graph("complete", 3), eta[None], gamma, np.ones(3))
    if not report.holds or report.optimal:
        raise ValueError(
            "the conditions of 002, Theorem 1 are not met on the triangle, or its limit is the "
            "optimum"
        )
    weights = 1.0 / eta
    return {
        "limit": rounded(float(targets @ weights / weights.sum()), 5),
        "optimum": rounded(float(targets.mean()), 5),
    }


TOTALS = (0.5, 1.0, 1.5, 2.0, 10.0)
"""Of 004, section 5."""
SPLIT = 0.001
"""Of 004, section 5: the share of a round's zCDP that is for the noise on the answer."""


def weighted(weight: float) -> Fields:
    """004, Theorems 3.3 and 4.1 at section 5's settings where the loss weighs C: claimed, and
    proved, at its totals.

    Theorem 4.1 twice: where Clip cuts each row's loss (`ipp`, tests divided), and where it cuts the
    quality (`clip`). On the ring of ``sottovoce claims``, whose rows have C = 1.
    """
    fields = {}
    for total in TOTALS:
        of_round = plausible.zcdp(total) / plausible.ROUNDS
        pp = plausible.Release.of_budget(of_round, SPLIT, plausible.BETA, share=0.99, weight=weight)
        of_answer = (1.0 - plausible.TESTS_SHARE) * plausible.zcdp(total) / plausible.POSITIVES
        ipp = plausible.Release.of_budget(
            of_answer, SPLIT, plausible.BETA, share=1.0, weight=weight
        )
        _, _, of_test = plausible.tests(total)
        proved = {"pp": [pp.answer()] * plausible.ROUNDS, "ipp": ipp.to_the_letter(of_test)}
        at = f"{total:g}".replace(".", "")
        fields[f"claimed_{at}"] = rounded(plausible.claimed(total), 4)
        for method, events in proved.items():
            fields[f"{method}_{at}"] = rounded(
                float(np.max(BestAccountant().epsilon_of_events(events, plausible.DELTA))), 4
            )
        fields[f"clip_{at}"] = rounded(ipp.with_clipped_quality(of_test), 4)
    return fields


COMPUTED: dict[str, Callable[[], Fields]] = {
    "triangle": triangle,
    "weight_1": partial(weighted, 1.0),
    "weight_1750": partial(weighted, 1750.0),
}


def rounded(value: float, digits: int) -> str:
    """A number with so many digits, and without a power of ten below a million."""
    return f"{float(f'{value:.{digits}g}'):g}"


# --------------------------------------------------------------------------------------------------
# blocks


def headline_table(known: Mapping[str, Fields], paper: str = "") -> str:
    """The headline claims of all papers, or of one, as a table in Markdown: a line a number of
    ours.
    """
    heads = ["", "what is claimed", "the paper's number", "ours, and the command", "verdict"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for place, one in enumerate(listed()["headline"], 1):
        if paper not in ("", one["paper"]):
            continue
        source = one["paper"] if paper else f"[{one['paper']}]({one['paper']}-article.md)"
        first = [str(place), f"**{source}, {one['place']}:** {one['claim']}", one["number"]]
        for line in one["ours"]:
            cells = [*first, f"{line['text']}; `{line['command']}`", line["verdict"]]
            filled = [fill(cell, known, {}).replace("|", "\\|") for cell in cells]
            lines.append(f"| {' | '.join(filled)} |")
            first = ["", "", ""]
    return "\n".join(lines)


def tally(said: Said) -> list[dict[str, Any]]:
    """Of each paper: how many lines its page of items has, and how its claims that studies judge
    came out.
    """
    return [{"paper": paper} | tally_of(paper, said) for paper in papers.PAPERS]


def tally_of(paper: str, said: Said) -> dict[str, Any]:
    """The lines of a paper's page, and the words of its own claims as printed: those that do not
    begin with "Ours".
    """
    lines, words = 0, Counter[str]()
    for item in papers.listed(paper)[1]:
        study = said(item["study"]) if "study" in item else None
        if study is None:
            found = list(papers.rows(item, Path()))
            lines += len(found)
            words.update(word for line in found for word in line.words if "study" in item)
            continue
        claims = [one for one in study["claims"] if item.get("says", "") in one["claim"]]
        lines += len(claims)
        own = [one["printed"] for one in claims if not one["claim"].startswith("Ours")]
        words.update(one["verdict"] for one in own if one)
    return {"lines": lines, "words": dict(words)}


TALLIED = (
    verdicts.REPRODUCED,
    verdicts.PART,
    verdicts.MOSTLY_NOT,
    verdicts.NOT,
    verdicts.NOISE,
    verdicts.SAME,
    verdicts.REFUTED,
    verdicts.MISPRINT,
    verdicts.UNTESTABLE,
    verdicts.NOT_RUN,
    verdicts.UNSEEN,
)


def tally_table(found: list[dict[str, Any]]) -> str:
    """:func:`tally` as a table in Markdown: the words that came out, in the order of the legend."""
    words = [word for word in TALLIED if any(word in one["words"] for one in found)]
    heads = ["paper", "lines of its page", *words]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for one in found:
        counts = [str(one["words"].get(word, "")) for word in words]
        lines.append(
            f"| [{one['paper']}]({one['paper']}.md) | {one['lines']} | {' | '.join(counts)} |"
        )
    sums = [str(sum(one["words"].get(word, 0) for one in found)) for word in words]
    lines.append(f"| all | {sum(one['lines'] for one in found)} | {' | '.join(sums)} |")
    return "\n".join(lines)


# --------------------------------------------------------------------------------------------------
# pages


def fill(text: str, known: Mapping[str, Fields], blocks: Mapping[str, str]) -> str:
    """A page with every ``{{name.field}}`` and ``{{block}}`` in its place."""

    def value(found: re.Match[str]) -> str:
        name, field = found.group(1), found.group(2)
        if field is None:
            return blocks[name]
        return known[name][field]

    return NAME.sub(value, text)


def pages(kept: Mapping[str, Any]) -> dict[str, str]:
    """Every page of the article by its file's name, from what :func:`keep` kept."""
    known = kept["numbers"]
    blocks = {"headlines": headline_table(known), "tally": tally_table(kept["tally"])}
    blocks |= {f"headlines_{paper}": headline_table(known, paper) for paper in papers.PAPERS}
    words = sorted(WORDS.glob("*.md"))
    return {place.name: fill(place.read_text(encoding="utf-8"), known, blocks) for place in words}


def keep(said: Said) -> dict[str, Any]:
    """What the pages take from the studies, as plain data."""
    return {"numbers": numbers(said), "tally": tally(said)}


def pictures(studies: Path) -> dict[str, bytes]:
    """The figures of the article by their files' names, drawn by the studies' own plots from
    their tables.
    """
    found = {}
    for name, asked in listed()["figures"].items():
        study = spec.load(asked["study"])
        parts: dict[str, Any] = {key: one for key, one in asked.items() if key != "study"}
        lists = {key: tuple(one) for key, one in parts.items() if isinstance(one, list)}
        figure = spec.Figure(**parts | lists, name=name)
        panels = figures.draw(figure, papers.table(studies / study.name), study.paper_points)
        if len(panels) != 1:
            raise ValueError(
                f"{name}: {len(panels)} panels, where the article has one image a figure"
            )
        found[f"{name}.svg"] = panels[0].svg
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--studies", type=Path, default=Path("studies"), help="where `sottovoce study` wrote"
    )
    parser.add_argument("--out", type=Path, default=Path("docs/measured/papers"))
    parser.add_argument(
        "--words", action="store_true", help="fill the pages again from the numbers that were kept"
    )
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    place = arguments.out / NUMBERS
    if not arguments.words:
        studies: Path = arguments.studies

        def said(name: str) -> dict[str, Any] | None:
            return papers.judged(studies / name)

        kept = keep(said)
        place.write_text(
            json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8"
        )
        # means have no replicates: with the kept results the figures stay as they are
        if papers.kept_results(studies) is None:
            for name, image in pictures(studies).items():
                (arguments.out / name).write_bytes(image)
    kept = json.loads(place.read_text(encoding="utf-8"))
    for name, text in pages(kept).items():
        (arguments.out / name).write_text(text, encoding="utf-8")
    print("\n".join(to_reread(kept["numbers"])) or "the words fit the verdicts")


if __name__ == "__main__":
    main()
