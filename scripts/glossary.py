"""Write docs/reference/glossary.md from its list: ``python scripts/glossary.py [--check]``.

docs/reference/glossary.toml is the list. With ``--check`` nothing is written; it exits with 1 if
the page differs from the list, or if a phrase that a term replaces (``avoid``) stands in a source,
its messages, or a page. Pages of measurements and the changelog keep the words of their time.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NotRequired, TypedDict

ROOT = Path(__file__).parents[1]
LIST = ROOT / "docs/reference/glossary.toml"
PAGE = ROOT / "docs/reference/glossary.md"
NOTE = "<!-- Made of glossary.toml by scripts/glossary.py. -->"
LEAD = "For readers of any page: what its words mean here, and what the literature calls them."
UNCHECKED = ("docs/_build", "docs/measured")


class Word(TypedDict):
    """One entry of the list, as glossary.toml explains its keys."""

    term: str
    means: str
    field: NotRequired[str]
    avoid: NotRequired[list[str]]


def read_words() -> list[Word]:
    """Return the list, in the order of the alphabet."""
    words: list[Word] = tomllib.loads(LIST.read_text(encoding="utf-8"))["word"]
    return sorted(words, key=lambda word: word["term"].casefold())


def page_of_words(words: list[Word]) -> str:
    """Return the page in Markdown: a term, then what it means and what the literature calls it."""
    entries = []
    for word in words:
        meaning = word["means"]
        if "field" in word:
            meaning += f" (Literature: {word['field']}.)"
        entries.append(f"{word['term']}\n: {meaning}\n")
    return f"# Glossary\n\n{NOTE}\n\n{LEAD}\n\n" + "\n".join(entries)


def checked_files() -> Iterator[Path]:
    """Yield the sources and pages whose words are held to the list."""
    for pattern in (
        "README.md",
        "docs/**/*.md",
        "examples/**/*.py",
        "src/**/*.py",
        "src/**/*.html",
    ):
        for path in sorted(ROOT.glob(pattern)):
            place = path.relative_to(ROOT).as_posix()
            if path != PAGE and not place.startswith(UNCHECKED):
                yield path


def avoided_phrases(words: list[Word]) -> Iterator[str]:
    """Yield ``file:line: phrase`` for each phrase that a term replaces, over line ends too."""
    patterns = [
        (re.compile(r"[\s\"]+".join(map(re.escape, phrase.split())), re.IGNORECASE), phrase, word)
        for word in words
        for phrase in word.get("avoid", [])
    ]
    for path in checked_files():
        text = path.read_text(encoding="utf-8")
        for pattern, phrase, word in patterns:
            for found in pattern.finditer(text):
                line = text.count("\n", 0, found.start()) + 1
                place = path.relative_to(ROOT)
                yield f"{place}:{line}: {phrase!r}: say {word['term']!r}"


def main(arguments: list[str]) -> int:
    """Write the page, or check page and words; return the exit code."""
    words = read_words()
    page = page_of_words(words)
    if "--check" not in arguments:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    faults = list(avoided_phrases(words))
    if PAGE.read_text(encoding="utf-8") != page:
        faults.append(f"{PAGE.relative_to(ROOT)}: differs from its list: run scripts/glossary.py")
    for fault in faults:
        print(fault)
    print(f"{len(words)} terms, {len(faults)} faults", file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
