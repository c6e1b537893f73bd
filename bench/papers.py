"""One page a paper: every algorithm, theorem, figure and table, where it is, and what came out.  Writes docs/papers/.

``python bench/papers.py [--studies studies] [--out docs/papers]``

Items are listed by hand in bench/papers.toml.  Numbers and verdicts of figures are those of the studies' tables, which
``sottovoce study all`` writes, judged by the claims of this checkout: a claim may be mended without another run.  Those
of algorithms and theorems on privacy are computed as ``sottovoce claims`` does.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tomllib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from sottovoce.errors import InvalidInput
from sottovoce.papers import claims, sample_size
from sottovoce.papers.tradeoff import fit_accuracy
from sottovoce.studies import spec, tables, verdicts

PAPERS = ("000", "001", "002", "003", "004")
SHOWN = 2
"""Settings of a claim whose numbers are shown; the others are counted."""
HEAD = """# {title}

Every item of paper {number} ([which one](../papers.md)): where it is here and the command that checks it, what is
claimed, the paper's own number where it prints one, ours, and what came out. *As printed* is the paper's algorithm to
the letter at its own claim, *proved* is our form at the epsilon that is proved. Numbers after ± are two standard
errors. Made by `python bench/papers.py` from the tables of the studies;
what differs from a paper's setting stands on each study's page.

"""


@lru_cache
def finished(folder: Path, name: str) -> tuple[list[dict[str, Any]], int, float]:
    """Rows of a study's finished cells, of those that its file asks for now; how many these are; their seconds."""
    kept = {}
    for place in sorted(
        (folder / "cells").glob("*.json.gz"), key=lambda place: place.stat().st_mtime
    ):  # the newest wins
        cell = json.loads(gzip.decompress(place.read_bytes()))
        kept[_known(cell["parameters"])] = cell
    study, found, seconds, many = spec.load(name), [], 0.0, 0
    for point in study.points():
        p = {**study.fixed, **point, "seed": study.seed, "replicates": study.replicates}
        cell = kept.get(_known(p))
        if cell is None:
            continue
        many, seconds = many + 1, seconds + cell["seconds"]
        for row in cell["rows"]:
            own = {key: one for key, one in row.items() if not key.startswith("_")}
            found.append({key: _plain(one) for key, one in point.items()} | own)
    return found, many, seconds


def _known(p: dict[str, Any]) -> str:
    """A cell's parameters as its study's file gives them, without what a run adds: where data came from."""
    plain = {key: value for key, value in p.items() if key not in ("also", "file", "digest")}
    kind = str(p.get("data", "")).partition(":")[0]
    return json.dumps(plain | ({"data": kind} if kind in tables.SOURCED else {}), sort_keys=True)


def table(folder: Path) -> list[dict[str, Any]]:
    """The rows of a study of the package, from its finished cells."""
    return finished(folder, folder.name)[0] if folder.name in spec.names() else []


def _plain(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


@lru_cache
def judged(folder: Path) -> dict[str, Any] | None:
    """What a study's folder says, its claims judged anew over its cells; None if it has not run as its file is now."""
    place = folder / "verdicts.json"
    if not place.exists():
        return None
    said: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    found = table(folder)
    if not found and (folder / "cells").is_dir() and folder.name in spec.names():
        return None  # cells of other settings
    if found:
        study, (_, many, seconds) = spec.load(folder.name), finished(folder, folder.name)
        of = len(study.points())
        said |= {"replicates": study.replicates, "seconds": seconds, "paper": study.paper}
        said["cells"] = many if many == of else f"{many} of {of}"
        said["claims"] = [one.plain() for one in verdicts.judged(study, found)]
    return said


def fitted(folder: Path, method: str) -> str:
    """001, section V-C: the constants of L_acc that the measured means give."""
    found = [row for row in table(folder) if row.get("what") == "measured" and row["method"] == method]
    told = []
    for panel, k in sorted({(row["panel"], row["round"]) for row in found}):
        own = [row for row in found if (row["panel"], row["round"]) == (panel, k)]
        alphas = sorted({row["alpha"] for row in own})
        means = [np.mean([row["kept_risk"] for row in own if row["alpha"] == alpha]) for alpha in alphas]
        try:
            curve = fit_accuracy(np.array(alphas), np.array(means))
            told.append(f"{panel}, round {k}: c4 = {curve.c4:.3g}, c5 = {curve.c5:.3g}, c6 = {curve.c6:.3g}")
        except InvalidInput:
            told.append(f"{panel}, round {k}: no exponential fits")
    return "; ".join(told) or "not run"


def moved(folder: Path, methods: list[str]) -> str:
    """How far errors of methods move over a study's values of epsilon, in percent of the rows."""
    told, found = [], table(folder)
    for method in methods if found else ():
        own = [row for row in found if row["method"] == method and row["setting"] == "private"]
        ends = [f(row["target"] for row in own) for f in (min, max)]
        first, last = (100.0 * float(np.mean([row["error"] for row in own if row["target"] == end])) for end in ends)
        told.append(f"{method}: {first:.1f} at {ends[0]:g}, {last:.1f} at {ends[1]:g}, {first - last:.1f} points")
    return "; ".join(told) or "not run"


Line = tuple[str, str, str, str, str, str, str]
"""Item, where it is here, what is claimed, the paper's number, ours, verdicts as printed and proved."""
COMMANDS = {"claim": "sottovoce claims", "rows": "sottovoce claims --rows"}


def rows(item: dict[str, Any], studies: Path) -> Iterator[Line]:
    """The lines of an item; of a figure one for each claim of its study, and reading."""
    if "study" in item:
        yield from _figure(item, studies)
        return
    word, ours = item.get("verdict", ""), item.get("ours", item.get("nothing", ""))
    if "claim" in item:
        found = [
            c for c in claims.table() if c.method == item["claim"] and item.get("part", "") in f"{c.paper} {c.reading}"
        ]
        word, ours = "; ".join(c.verdict for c in found), "; ".join(map(_priced, found))
    elif "rows" in item:
        word, ours = _sizes(item["rows"])
    elif "fit" in item:
        ours = fitted(studies / "000-fig4", item["fit"])
    elif "moved" in item:
        ours = moved(studies / "003-fig5.31", item["moved"])
    commands = [f"`{command}`" for key, command in COMMANDS.items() if key in item]
    commands += [f"`pytest {item['test']}`"] if "test" in item else []
    here = "; ".join(filter(None, [item.get("here", ""), *commands]))
    yield item["item"], here, item.get("printed", ""), item.get("paper", ""), ours, word, item.get("proved", "")


def _sizes(names: list[str]) -> tuple[str, str]:
    """Verdict and numbers of the first of these theorems that ``sottovoce claims --rows`` has."""
    known = {row["theorem"]: row for row in sample_size.table()}
    found = next(row for name in names for theorem, row in known.items() if theorem.startswith(name))
    printed, corrected = float(found["printed"]), float(found["corrected"])
    word = "the printed constants hold" if printed == corrected else "printed and corrected forms differ"
    free = found["constants"].removeprefix("free: only order can be read from it: ")
    return word, f"rows as printed {_number(printed)}, corrected {_number(corrected)} (with 1 for {free})"


def _figure(item: dict[str, Any], studies: Path) -> Iterator[Line]:
    name, study = item["item"], spec.load(item["study"])
    here = "; ".join(filter(None, [f"study `{item['study']}`", item.get("here", "")]))
    printed, paper = item.get("printed", ""), item.get("paper", "")
    said = judged(studies / item["study"])
    if said is None:
        own = study.file is not None and not study.file.optional
        why, word = (f"needs {study.file.how}", verdicts.UNTESTABLE) if own and study.file else ("not run", "")
        yield name, here, printed or study.title, paper, why, word, ""
        return
    here += f" ({said['replicates']} replicates)" if said["replicates"] > 1 else " (no noise, one run)"
    for claim in (one for one in said["claims"] if item.get("says", "") in one["claim"]):
        both = [claim["printed"], claim["proved"]]
        ours = "; ".join(
            f"{word}: {_numbers(one)}" for word, one in zip(("printed", "proved"), both, strict=True) if one
        )
        reading = f" Reading: {claim['reading']}." if claim.get("reading") else ""
        yield name, here, claim["claim"] + reading, claim.get("paper") or paper, ours, *map(_verdict, both)
        name, here, paper = "", "", ""


def listed(number: str) -> tuple[str, list[dict[str, Any]]]:
    """Title and items of a paper: those of papers.toml, and every study after it that these do not name."""
    paper = tomllib.loads((Path(__file__).parent / "papers.toml").read_text(encoding="utf-8"))[f"p{number}"]
    named = {item.get("study") for item in paper["items"]}
    more = [name for name in spec.names() if number in spec.load(name).paper and name not in named]
    return paper["title"], paper["items"] + [{"item": spec.load(name).paper, "study": name} for name in more]


def _priced(claim: claims.Claim) -> str:
    known = claim.proved_at_delta if claim.at_delta else claim.proved
    attained = "" if claim.attained is None else f", attained {_number(claim.attained)}"
    return f"claimed {_number(claim.claimed)}, proved {_number(known)}{attained}"


def _number(value: float) -> str:
    return "∞" if value == float("inf") else f"{value:.3g}"


def _verdict(one: dict[str, Any] | None) -> str:
    if one is None:
        return ""
    reasoned = (verdicts.PART, verdicts.REFUTED, verdicts.UNTESTABLE)
    return f"{one['reason']}: {one['verdict']}" if one["verdict"] in reasoned and one.get("reason") else one["verdict"]


def _numbers(one: dict[str, Any]) -> str:
    told, settings = [], one["settings"]
    if one["verdict"] == verdicts.UNTESTABLE:
        return "–"
    order = (
        verdicts.FAILS,
        verdicts.SOME,
        verdicts.HOLDS,
        verdicts.HIDDEN,
        verdicts.SAME,
        verdicts.UNTESTABLE,
    )  # what decides a verdict comes first
    for setting in sorted(settings, key=lambda setting: order.index(setting["word"]))[:SHOWN]:
        at = ", ".join(f"{key} {verdicts.said(value)}" for key, value in setting["at"].items() if value != "")
        word = "" if len({each["word"] for each in settings}) == 1 else f" ({setting['word']})"
        told.append((f"{at}: " if at else "") + setting["numbers"] + word)
    return "; ".join(told) + (
        f"; {'… ' if len(settings) > SHOWN else ''}{verdicts.counted(settings)}" if len(settings) > 1 else ""
    )


def page(number: str, title: str, items: list[dict[str, Any]], studies: Path) -> str:
    """The page of a paper."""
    text = HEAD.format(number=number, title=title)
    text += "| item | here | what is claimed | the paper | ours | as printed | proved |\n" + "|---" * 7 + "|\n"
    for item in items:
        for row in rows(item, studies):
            text += "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |\n"
    return text


def times(studies: Path) -> str:
    """The table of docs/studies.md: of every study that has run its cost, and how its claims came out."""
    text = "| study | paper | cells | replicates | seconds | as printed | proved |\n" + "|---" * 7 + "|\n"
    whole = 0.0
    for place in sorted(studies.glob("*/verdicts.json")):
        said = judged(place.parent)
        if said is None:
            continue
        whole += said["seconds"]
        words = [", ".join(_counted(said["claims"], basis)) for basis in ("printed", "proved")]
        cells = (
            f"`{said['study']}`",
            said["paper"],
            said["cells"],
            said["replicates"],
            f"{said['seconds']:.0f}",
            *words,
        )
        text += "| " + " | ".join(map(str, cells)) + " |\n"
    return text + f"\nAll together: {whole:.0f} seconds of a processor.\n"


def _counted(claimed: list[dict[str, Any]], basis: str) -> list[str]:
    words = [claim[basis]["verdict"] for claim in claimed if claim[basis] is not None]
    return [f"{words.count(word)} {word}" for word in dict.fromkeys(words)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=Path, default=Path("studies"), help="where `sottovoce study` wrote")
    parser.add_argument("--out", type=Path, default=Path("docs/papers"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for number in PAPERS:
        text = page(number, *listed(number), arguments.studies)
        (arguments.out / f"{number}.md").write_text(text, encoding="utf-8")
    (arguments.out / "times.md").write_text(times(arguments.studies), encoding="utf-8")


if __name__ == "__main__":
    main()
