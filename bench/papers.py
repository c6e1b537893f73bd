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
from sottovoce.papers import claims
from sottovoce.papers.tradeoff import fit_accuracy
from sottovoce.studies import spec, tables, verdicts

PAPERS = ("000", "001", "002", "003", "004")
SHOWN = 2
"""Settings of a claim whose numbers are shown; the others are counted."""
HEAD = """# {title}

Every item of paper {number} ([which one](../papers.md)): where it is here, what the paper prints, and what
came out. *As printed* is the paper's algorithm to the letter at its own claim, *proved* is our form at the epsilon that
is proved. Numbers after ± are two standard errors. Made by `python bench/papers.py` from the tables of the studies;
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


def rows(item: dict[str, Any], studies: Path) -> Iterator[tuple[str, str, str, str, str, str]]:
    """(item, where, printed, ours, as printed, proved) of an item; of a figure one row a claim of its study."""
    name, here = item["item"], item.get("here", "")
    if "study" not in item:
        word = item.get("verdict", "")
        if "claim" in item:
            found = [
                c
                for c in claims.table()
                if c.method == item["claim"] and item.get("part", "") in f"{c.paper} {c.reading}"
            ]
            word = "; ".join(c.verdict for c in found)
            item.setdefault("ours", "; ".join(map(_priced, found)))
        if "fit" in item:
            item["ours"] = fitted(studies / "000-fig4", item["fit"])
        if "moved" in item:
            item["ours"] = moved(studies / "003-fig5.31", item["moved"])
        yield name, here, item.get("printed", ""), item.get("ours", ""), word, item.get("proved", "")
        return
    said = judged(studies / item["study"])
    here = f"study `{item['study']}`" + (f"; {here}" if here else "")
    if said is None:
        yield name, here, item.get("printed", ""), "not run", "", ""
        return
    here += f" ({said['replicates']} replicates)" if said["replicates"] > 1 else " (no noise, one run)"
    wanted = item.get("claims", list(range(len(said["claims"]))))
    if "printed" in item or not wanted:
        yield name, here, item.get("printed", ""), item.get("ours", ""), item.get("verdict", ""), item.get("proved", "")
        name, here = "", ""
    for k in wanted:
        claim = said["claims"][k]
        both = [claim["printed"], claim["proved"]]
        ours = "; ".join(
            f"{word}: {_numbers(one)}" for word, one in zip(("printed", "proved"), both, strict=True) if one
        )
        yield name, here, claim["claim"], ours, *map(_verdict, both)
        name, here = "", ""


def _priced(claim: claims.Claim) -> str:
    known = claim.proved_at_delta if claim.at_delta else claim.proved
    attained = "" if claim.attained is None else f", attained {_number(claim.attained)}"
    return f"claimed {_number(claim.claimed)}, proved {_number(known)}{attained}"


def _number(value: float) -> str:
    return "∞" if value == float("inf") else f"{value:.3g}"


def _verdict(one: dict[str, Any] | None) -> str:
    if one is None:
        return ""
    in_part = one["verdict"] == verdicts.PART and len(one["settings"]) > 1
    return one["verdict"] + (f": {verdicts.counted(one['settings'])}" if in_part else "")


def _numbers(one: dict[str, Any]) -> str:
    told, settings = [], one["settings"]
    order = (
        verdicts.FAILS,
        verdicts.SOME,
        verdicts.HOLDS,
        verdicts.HIDDEN,
        verdicts.SAME,
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
    text += "| item | here | the paper | ours | as printed | proved |\n|---|---|---|---|---|---|\n"
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
    listed = tomllib.loads((Path(__file__).parent / "papers.toml").read_text(encoding="utf-8"))
    arguments.out.mkdir(parents=True, exist_ok=True)
    for number in PAPERS:
        paper = listed[f"p{number}"]
        text = page(number, paper["title"], paper["items"], arguments.studies)
        (arguments.out / f"{number}.md").write_text(text, encoding="utf-8")
    (arguments.out / "times.md").write_text(times(arguments.studies), encoding="utf-8")


if __name__ == "__main__":
    main()
