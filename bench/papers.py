"""One page a paper: every algorithm, theorem, figure and table, where it is, and what came out.  Writes docs/papers/.

``python bench/papers.py [--studies studies] [--out docs/papers]``

Items are listed by hand in bench/papers.toml.  Numbers and verdicts of figures are those of the studies' tables
(``verdicts.json``, which ``sottovoce study all`` writes), those of algorithms and theorems on privacy are computed as
``sottovoce claims`` does.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sottovoce.papers import claims

PAPERS = ("000", "001", "002", "003", "004")
SHOWN = 3
"""Settings of a claim whose numbers are shown; the others are counted."""
HEAD = """# {title}

Every item of paper {number} ([which one](../papers.md)): where it is here, what the paper prints, and what
came out. *As printed* is the paper's algorithm to the letter at its own claim, *proved* is our form at the epsilon that
is proved. Numbers after ± are two standard errors. Made by `python bench/papers.py` from the tables of the studies;
what differs from a paper's setting stands on each study's page.

"""


TIMES = """# Studies: verdicts and times

Studies that have run, how many of their claims came out how, and what they cost in seconds of one processor. Made by
`python bench/papers.py`; a study that is not listed had not run when it was made.

"""


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
        yield name, here, item.get("printed", ""), item.get("ours", ""), word, item.get("proved", "")
        return
    place = studies / item["study"] / "verdicts.json"
    here = f"study `{item['study']}`" + (f"; {here}" if here else "")
    if not place.exists():
        yield name, here, item.get("printed", ""), "not run", "", ""
        return
    said = json.loads(place.read_text(encoding="utf-8"))
    here += f" ({said['replicates']} replicates)"
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
        yield name, here, claim["claim"], ours, *("" if one is None else one["verdict"] for one in both)
        name, here = "", ""


def _priced(claim: claims.Claim) -> str:
    known = claim.proved_at_delta if claim.at_delta else claim.proved
    attained = "" if claim.attained is None else f", attained {_number(claim.attained)}"
    return f"claimed {_number(claim.claimed)}, proved {_number(known)}{attained}"


def _number(value: float) -> str:
    return "∞" if value == float("inf") else f"{value:.3g}"


def _numbers(one: dict[str, Any]) -> str:
    told = []
    for setting in one["settings"][:SHOWN]:
        at = ", ".join(f"{key} {value}" for key, value in setting["at"].items() if value != "")
        told.append((f"{at}: " if at else "") + setting["numbers"])
    held = sum(setting["word"] == "holds" for setting in one["settings"])
    more = len(one["settings"])
    return "; ".join(told) + (f"; … (holds in {held} of {more})" if more > SHOWN else "")


def page(number: str, title: str, items: list[dict[str, Any]], studies: Path) -> str:
    """The page of a paper."""
    text = HEAD.format(number=number, title=title)
    text += "| item | here | the paper | ours | as printed | proved |\n|---|---|---|---|---|---|\n"
    for item in items:
        for row in rows(item, studies):
            text += "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |\n"
    return text


def times(studies: Path) -> str:
    """A page with every study that has run: cells, replicates, seconds of a processor, and how its claims came out."""
    text = TIMES + "| study | paper | cells | replicates | seconds | as printed | proved |\n" + "|---" * 7 + "|\n"
    whole = 0.0
    for place in sorted(studies.glob("*/verdicts.json")):
        said = json.loads(place.read_text(encoding="utf-8"))
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
