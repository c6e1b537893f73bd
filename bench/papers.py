"""One page a paper: every algorithm, theorem, figure and table, and what came out.  Writes
docs/measured/papers/.

``python bench/papers.py [--studies studies] [--out docs/measured/papers]``

Items are listed by hand in bench/papers.toml.  Numbers and verdicts of figures are those of the
studies' tables, which ``sottovoce study all`` writes, judged by the claims of this checkout: a
claim may be mended without another run.  Those of algorithms and theorems on privacy are computed
as ``sottovoce claims`` does.

With ``--studies docs/measured/papers/results`` the pages are made from the results that are kept
there, in seconds: figures' verdicts are then as they were judged when these were written.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sottovoce.errors import InvalidInput
from sottovoce_papers import claims, sample_size
from sottovoce_papers.studies import legend, made, spec, tables, verdicts
from sottovoce_papers.studies.legend import AMBIGUOUS, OTHER_FORM, SAME_FORM
from sottovoce_papers.studies.run import Cost
from sottovoce_papers.tradeoff import fit_accuracy

PAPERS = ("000", "001", "002", "003", "004")
ALIKE, SHOWN = 2, 4
"""Settings whose numbers are shown: of those that all came out alike, and with one word of those
that did not.
"""
DECIDE = (verdicts.FAILS, verdicts.SOME, verdicts.HOLDS)
HEAD = """# {title}

{ordered}

Every item of paper {number} ([which one](../../explanation/papers.md)): where it is here and the command that checks
it, what is claimed, the paper's own number where it prints one, ours, and what came out. *As printed* is the paper's
algorithm to the letter at its own claim,{proof}
*proved* is our form at the epsilon that is proved. Numbers after ± are two standard errors.
Made by `python bench/papers.py` from the tables of the studies; what differs from a paper's setting stands on each
study's page. [An article]({number}-article.md) has it in a few pages. {made}

{summary}
## How to read it

"""
PROOF = (
    " *by its proof* the same with the constants of the paper's own proof, where its listing "
    "has others,"
)
HEADS = {"printed": "as printed", "proof": "by its proof", "proved": "proved"}
"""Names of :data:`verdicts.BASES` in the columns of a table."""
KINDS = tuple(sorted(legend.SOURCES))
"""Where the verdict of an item comes from: each kind has words of its own, and a paragraph on
the page.
"""


class Finished(NamedTuple):
    """A study's cells that have run as its file asks for them now: their rows, how many they are,
    and what they cost.
    """

    rows: list[dict[str, Any]]
    cells: int
    cost: Cost


@lru_cache
def finished(folder: Path, name: str) -> Finished:
    """Rows of a study's finished cells, of those that its file asks for now, with their cost."""
    kept = {}
    for place in sorted(
        (folder / "cells").glob("*.json.gz"), key=lambda place: place.stat().st_mtime
    ):  # the newest wins
        cell = json.loads(gzip.decompress(place.read_bytes()))
        kept[_known(cell["parameters"])] = cell
    study, found, many = spec.load(name), [], 0
    costs = dict[str, Cost]()  # cells with the same parameters have run once
    for point, labels in zip(study.points(), study.labels(), strict=True):
        p = {**study.fixed, **point, "seed": study.seed, "replicates": study.replicates}
        cell = kept.get(_known(p))
        if cell is None:
            continue
        many += 1
        costs[_known(p)] = Cost.of_cell(cell)
        for row in cell["rows"]:
            own = {key: one for key, one in row.items() if not key.startswith("_")}
            found.append(labels | own)
    return Finished(found, many, Cost.together(costs.values()))


def _known(p: dict[str, Any]) -> str:
    """A cell's parameters as its study's file gives them, without what a run adds: where data
    came from.
    """
    plain = {key: value for key, value in p.items() if key not in ("also", "file", "digest")}
    kind = str(p.get("data", "")).partition(":")[0]
    return json.dumps(plain | ({"data": kind} if kind in tables.SOURCED else {}), sort_keys=True)


def table(folder: Path) -> list[dict[str, Any]]:
    """The rows of a study of the package: from its finished cells, or the kept means over
    replicates.
    """
    if kept_results(folder.parent) is not None:
        return means(folder.parent / "means" / f"{folder.name}.csv.gz")
    return finished(folder, folder.name).rows if folder.name in spec.names() else []


def means(place: Path) -> list[dict[str, Any]]:
    """The rows of a kept table of means: numbers as numbers, without what a setting has not."""
    text = gzip.decompress(place.read_bytes()).decode()
    lines = csv.DictReader(io.StringIO(text))
    return [{key: _plain(told) for key, told in line.items() if told} for line in lines]


def _plain(told: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(told)
        except ValueError:
            continue
    return told


@lru_cache
def kept_results(folder: Path) -> dict[str, dict[str, Any]] | None:
    """What a folder of kept results says of each study (bench/results.py); None for a folder that
    ``sottovoce study`` wrote.
    """
    place = folder / "verdicts.json"
    if not place.is_file():
        return None
    content, found = json.loads(place.read_text(encoding="utf-8")), {}
    for one in content["studies"]:
        way = next(way for way in content["made"] if one["study"] in way["studies"])
        found[one["study"]] = one | {"made": way["made"]} | way["costs"][one["study"]]
    return found


@lru_cache
def judged(folder: Path) -> dict[str, Any] | None:
    """What a study's folder says, its claims judged anew over its cells; None if it has not run
    as its file is now.
    """
    kept = kept_results(folder.parent)
    if kept is not None:
        return kept.get(folder.name)
    place = folder / "verdicts.json"
    if not place.exists():
        return None
    said: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    found = table(folder)
    if not found and (folder / "cells").is_dir() and folder.name in spec.names():
        return None  # cells of other settings
    if found:
        study, (_, many, cost) = spec.load(folder.name), finished(folder, folder.name)
        of = len(study.points())
        said |= {"replicates": study.replicates, "paper": study.paper}
        said |= {"seconds": cost.seconds, "runs": cost.runs}
        said["cells"] = many if many == of else f"{many} of {of}"
        said["claims"] = [one.plain() for one in verdicts.judged(study, found)]
    return said


def cost_of(said: Mapping[str, Any]) -> Cost:
    """What a study cost, by what :func:`judged` says of it."""
    runs = said.get("runs", {})
    return Cost(said["seconds"] - sum(runs.values()), runs)


def fitted(folder: Path, method: str) -> str:
    """001, section V-C: the constants of L_acc that the measured means give."""
    found = [
        row for row in table(folder) if row.get("what") == "measured" and row["method"] == method
    ]
    told = []
    for panel, k in sorted({(row["panel"], row["round"]) for row in found}):
        own = [row for row in found if (row["panel"], row["round"]) == (panel, k)]
        alphas = sorted({row["alpha"] for row in own})
        means = [
            np.mean([row["kept_risk"] for row in own if row["alpha"] == alpha]) for alpha in alphas
        ]
        try:
            curve = fit_accuracy(np.array(alphas), np.array(means))
            told.append(
                f"{panel}, round {k}: c4 = {curve.c4:.3g}, c5 = {curve.c5:.3g}, c6 = {curve.c6:.3g}"
            )
        except InvalidInput:
            told.append(f"{panel}, round {k}: no exponential fits")
    return "; ".join(told) or "not run"


class Verdict(NamedTuple):
    """A verdict of a line: on what, its word, and its settings as verdicts.json has them."""

    basis: str
    word: str
    settings: tuple[dict[str, Any], ...] = ()


class Line(NamedTuple):
    """A line of the table, and the words of its verdicts."""

    item: str
    here: str
    claimed: str
    paper: str
    ours: str
    printed: str = ""
    proof: str = ""
    proved: str = ""
    judged: tuple[Verdict, ...] = ()

    @property
    def words(self) -> frozenset[str]:
        """The words of its verdicts."""
        return frozenset(one.word for one in self.judged)


COMMANDS = {"claim": "sottovoce claims", "rows": "sottovoce claims --rows"}


def rows(item: dict[str, Any], studies: Path) -> Iterator[Line]:
    """The lines of an item; of a figure one for each claim of its study, and reading; of a
    promise one a claim.
    """
    if "study" in item:
        yield from _figure(item, studies)
        return
    word, ours = item.get("verdict", ""), item.get("ours", item.get("nothing", ""))
    if "rows" in item:
        word, ours = sizes_told(item["rows"])
    elif "fit" in item:
        ours = fitted(studies / "000-fig4", item["fit"])
    commands = [f"`{command}`" for key, command in COMMANDS.items() if key in item]
    commands += [f"`pytest {item['test']}`"] if "test" in item else []
    here = "; ".join(filter(None, [item.get("here", ""), *commands]))
    claimed, paper, proved = (item.get(key, "") for key in ("printed", "paper", "proved"))
    line = Line(item["item"], here, claimed, paper, ours, word, proved=proved, judged=_worded(word))
    if "claim" in item:
        yield from _promises(item, line)
    else:
        yield line


def _worded(word: str) -> tuple[Verdict, ...]:
    """The verdict of a line that has one, without what says that it is of one reading."""
    plain = word.removeprefix(f"{AMBIGUOUS}: ")
    return (Verdict("printed", plain),) if plain else ()


def promised(item: dict[str, Any]) -> list[claims.Claim]:
    """The rows of ``sottovoce claims`` of an item."""
    return [
        c
        for c in claims.table()
        if c.method == item["claim"] and item.get("part", "") in f"{c.paper} {c.reading}"
    ]


def _promises(item: dict[str, Any], line: Line) -> Iterator[Line]:
    for c in promised(item):
        at = f"{c.paper}: {c.says}" + (f"; reading: {c.reading}" if c.reading else "")
        told = f"{line.claimed} ({at})" if line.claimed else at
        yield line._replace(
            claimed=told, ours=_priced(c), printed=c.verdict, judged=_worded(c.verdict)
        )
        line = Line("", "", "", "", "")


def sizes_told(names: list[str]) -> tuple[str, str]:
    """Verdict and numbers of the first of these theorems that ``sottovoce claims --rows`` has."""
    known = {row["theorem"]: row for row in sample_size.table()}
    found = next(
        row for name in names for theorem, row in known.items() if theorem.startswith(name)
    )
    printed, corrected = float(found["printed"]), float(found["corrected"])
    free = found["constants"].removeprefix(f"{sample_size.FREE}: ")
    unprinted = (
        f"with 1 for {free}, which the paper does not print" if free != found["constants"] else free
    )
    if not found[
        "differs"
    ]:  # equal numbers of one setting say nothing of forms whose largest term is another
        return SAME_FORM, f"{number_told(printed)} rows ({unprinted})"
    told = (
        f"{number_told(printed)} rows as printed, {number_told(corrected)} corrected ({unprinted})"
    )
    return OTHER_FORM, f"{told}; the corrected form has {found['differs']}"


def _figure(item: dict[str, Any], studies: Path) -> Iterator[Line]:
    name, study = item["item"], spec.load(item["study"])
    here = "; ".join(filter(None, [f"study `{item['study']}`", item.get("here", "")]))
    printed, paper = item.get("printed", ""), item.get("paper", "")
    said = judged(studies / item["study"])
    if said is None:
        why = "not run as its file is now"
        word = ""
        if study.file is not None and not study.file.optional:
            why, word = f"needs {study.file.how}", verdicts.NOT_RUN
        yield Line(name, here, printed or study.title, paper, why, word, judged=_worded(word))
        return
    draws = study.fixed.get("draws")
    told = f"{said['replicates']} replicates" + (
        f" on {draws} draws of graph and rows" if draws else ""
    )
    here += f" ({told})" if said["replicates"] > 1 else " (no noise, one run)"
    for claim in (one for one in said["claims"] if item.get("says", "") in one["claim"]):
        found = {basis: claim[basis] for basis in HEADS if claim.get(basis)}
        ours = "; ".join(f"{HEADS[basis]}: {_numbers(one)}" for basis, one in found.items())
        reading = f" Reading: {claim['reading']}." if claim.get("reading") else ""
        yield Line(
            name,
            here,
            claim["claim"] + reading,
            claim.get("paper") or paper,
            ours,
            **{basis: _verdict(one) for basis, one in found.items()},
            judged=tuple(
                Verdict(basis, one["verdict"], tuple(one["settings"]))
                for basis, one in found.items()
            ),
        )
        name, here, paper = "", "", ""


@lru_cache
def _listed() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "papers.toml").read_text(encoding="utf-8"))


def listed(number: str) -> tuple[str, list[dict[str, Any]]]:
    """Title and items of a paper: those of papers.toml, and every study after it that these do
    not name.
    """
    paper = _listed()[f"p{number}"]
    named = {item.get("study") for item in paper["items"]}
    more = [name for name in spec.names() if number in _place(name) and name not in named]
    return paper["title"], paper["items"] + [{"item": _place(name), "study": name} for name in more]


@lru_cache(None)
def _place(name: str) -> str:
    """Where the paper of a study has it."""
    return spec.load(name).paper


def _priced(claim: claims.Claim) -> str:
    known = claim.proved_at_delta if claim.at_delta else claim.proved
    attained = "" if claim.attained is None else f", attained {number_told(claim.attained)}"
    return f"epsilon claimed {number_told(claim.claimed)}, proved {number_told(known)}{attained}"


def number_told(value: float) -> str:
    return "∞" if value == float("inf") else f"{float(f'{value:.3g}'):g}"


SHOWN_FALSE = (verdicts.REFUTED, verdicts.MISPRINT)
"""Verdicts that stand behind a proof: what was measured is told beside them."""


def _verdict(one: dict[str, Any]) -> str:
    """A verdict behind its reason, which of several settings is in how many a claim holds and
    fails.
    """
    why = one.get("reason", "") if one["verdict"] in (*SHOWN_FALSE, *verdicts.BARRED) else ""
    if not why and (many := len(one["settings"])) > 1:
        alike = {setting["word"] for setting in one["settings"]} == {one["verdict"]}
        why = f"{many} of {many}" if alike else verdicts.counted(one["settings"])
    return f"{why}: {one['verdict']}" if why else str(one["verdict"])


def _numbers(one: dict[str, Any]) -> str:
    """The settings that decide a verdict, what failed first and each with its place; all are
    counted beside it.
    """
    if one["verdict"] in verdicts.BARRED and all(
        each["word"] in verdicts.BARRED for each in one["settings"]
    ):
        return "–"
    found: dict[str, list[dict[str, Any]]] = {}
    for setting in sorted(one["settings"], key=lambda setting: not setting.get("clear")):
        found.setdefault(setting["word"], []).append(setting)
    if len(found) == 1:
        (those,) = found.values()
        more = [f"and {len(those) - ALIKE} alike"] * (len(those) > ALIKE)
        return "; ".join([*map(_at, those[:ALIKE]), *more])
    told = []
    for word in DECIDE:
        for those in (found[word],) if word in found else ():
            more = ", ".join(f"({verdicts.placed(setting['at'])})" for setting in those[SHOWN:])
            told.append(
                f"{word} at "
                f"{'; '.join([*map(_at, those[:SHOWN]), *([f'and {more}'] if more else [])])}"
            )
    if one["verdict"] in SHOWN_FALSE:  # whose verdict has the proof before it, and not the count
        told.append(verdicts.counted(one["settings"]))
    return "; ".join(told)


def _at(setting: dict[str, Any]) -> str:
    at = verdicts.placed(setting["at"])
    return f"{at}: {setting['numbers']}" if at else str(setting["numbers"])


def page(number: str, title: str, items: list[dict[str, Any]], studies: Path) -> str:
    """The page of a paper."""
    lines = [
        (next((kind for kind in KINDS if kind in item), ""), line)
        for item in items
        for line in rows(item, studies)
    ]
    proof = any(line.proof for _, line in lines)
    heads = {basis: head for basis, head in HEADS.items() if basis != "proof" or proof}
    summary = sums([(kind, one) for kind, line in lines for one in line.judged], heads)
    text = HEAD.format(
        number=number,
        title=title,
        ordered=verdicts.ORDERED,
        proof=PROOF if proof else "",
        summary=summary,
        made=made_with(studies, [item["study"] for item in items if "study" in item]),
    )
    text += how_to_read(number, lines) + "\n## Items\n\n"
    columns = ["item", "here", "what is claimed", "the paper", "ours", *heads.values()]
    text += f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n"
    for _, line in lines:
        cells = [*line[:5], *(getattr(line, basis) for basis in heads)]
        text += (
            "| "
            + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
            + " |\n"
        )
    return text


def made_with(studies: Path, names: Iterable[str]) -> str:
    """With what these studies ran, a sentence for each way; empty if none says so."""
    ways: dict[str, list[str]] = {}
    for name in names:
        said = judged(studies / name)
        if said is not None and said.get("made"):
            ways.setdefault(made.sentence(said["made"]), []).append(f"`{name}`")
    if len(ways) == 1:
        return f"All ran with {next(iter(ways))}."
    return " ".join(f"{', '.join(own)} ran with {way}." for way, own in ways.items())


def sums(found: list[tuple[str, Verdict]], heads: dict[str, str]) -> str:
    """How many verdicts came out how, by what gives them, a line a basis; with the settings of
    divided ones.
    """
    text = ""
    for basis, head in heads.items():
        told = []
        for kind, source in legend.SOURCES.items():
            own = [
                (one.word, one.settings)
                for kind_of, one in found
                if (kind_of, one.basis) == (kind, basis)
            ]
            if own:
                told.append(f"  - {source.name}: {'; '.join(verdicts.summed(own))}.\n")
        text += "".join([f"- In sum, {head}:\n", *told]) if told else ""
    return text


def how_to_read(number: str, lines: list[tuple[str, Line]]) -> str:
    """Every word of a verdict, every method and every symbol that these lines use, and the
    settings behind them.
    """
    text = (
        "Words follow from [one legend](../../howto/studies.md#words-of-verdicts); these are "
        "used here.\n\n"
    )
    for kind, source in legend.SOURCES.items():
        own = [line for kind_of, line in lines if kind_of == kind]
        used = frozenset[str]().union(*(line.words for line in own))
        if any(line.printed.startswith(AMBIGUOUS) for line in own):
            used |= {AMBIGUOUS}
        told = [
            f"  - *{word}*: {meaning}\n" for word, meaning in source.words.items() if word in used
        ]
        text += "".join([f"- **{source.name}.** {source.judges}\n", *told]) if told else ""
    text += "- **An empty verdict.** Nothing to judge, for the reason that stands under *ours*.\n"
    whole = " ".join(cell for _, line in lines for cell in line[:8])
    names = [
        f"  - {name}: {meaning}\n"
        for name, meaning in _listed()["names"].items()
        if _speaks(whole, name)
    ]
    text += "".join(["- **Names.**\n", *names]) if names else ""
    return text + "".join(f"- {note}\n" for note in _listed()[f"p{number}"].get("notes", []))


def _speaks(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None


SHARED = (
    "A run that several studies need is made once: it counts in the seconds of each of them, and "
    "once in the sum."
)
PARTIAL = (
    "≥: of these studies the cost of runs that a study above them had made was not recorded, and "
    "is in the seconds of that one only."
)


def times(studies: Path) -> str:
    """The table of docs/howto/studies.md: of every study that has run its cost, and how its
    claims came out.
    """
    heads = ["study", "paper", "cells", "replicates", "seconds", *HEADS.values()]
    text = f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|\n"
    costs, partial = [], False
    for study in sorted(spec.names()):
        said = judged(studies / study)
        if said is None:
            continue
        costs.append(cost_of(said))
        counts = ["; ".join(_counted(said["claims"], basis)) for basis in HEADS]
        name, seconds = f"`{said['study']}`", f"{said['seconds']:.0f}"
        if said.get("least"):
            partial, seconds = True, f"≥ {seconds}"
        cells = [name, said["paper"], said["cells"], said["replicates"], seconds, *counts]
        text += "| " + " | ".join(map(str, cells)) + " |\n"
    text += f"\nAll together: {Cost.together(costs).seconds:.0f} seconds of a processor. {SHARED}"
    if partial:
        text += f" {PARTIAL}"
    return f"{text} {made_with(studies, spec.names())}".rstrip() + "\n"


def word_counts(studies: Path) -> str:
    """How often each word of a verdict came out over all studies that have run, a column a
    basis.
    """
    found = {basis: Counter[str]() for basis in HEADS}
    for name in spec.names():
        said = judged(studies / name)
        for claim in [] if said is None else said["claims"]:
            for basis in HEADS:
                if claim.get(basis):
                    found[basis][claim[basis]["verdict"]] += 1
    text = f"| verdict | {' | '.join(HEADS.values())} | all |\n{'|---' * (len(HEADS) + 2)}|\n"
    for word in verdicts.MEANINGS:
        each = [found[basis][word] for basis in HEADS]
        text += f"| {word} | {' | '.join(map(str, each))} | {sum(each)} |\n"
    whole = [found[basis].total() for basis in HEADS]
    return text + f"| together | {' | '.join(map(str, whole))} | {sum(whole)} |\n"


def _counted(claimed: list[dict[str, Any]], basis: str) -> list[str]:
    found = [claim[basis] for claim in claimed if claim.get(basis)]
    return verdicts.summed([(one["verdict"], one["settings"]) for one in found])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--studies", type=Path, default=Path("studies"), help="where `sottovoce study` wrote"
    )
    parser.add_argument("--out", type=Path, default=Path("docs/measured/papers"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for number in PAPERS:
        text = page(number, *listed(number), arguments.studies)
        (arguments.out / f"{number}.md").write_text(text, encoding="utf-8")
    for name, title, table in (
        ("times", "What came out of each study, and what it cost", times(arguments.studies)),
        ("counts", "How often each word of a verdict came out", word_counts(arguments.studies)),
        ("words", "Words of verdicts", legend.table()),
    ):
        text = f"# {title}\n\n{table}"
        (arguments.out / f"{name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
