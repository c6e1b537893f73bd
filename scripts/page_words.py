"""Count the words of the pages, and find pages that are alike: ``python scripts/page_words.py``.

A word is what stands between spaces, as ``wc -w`` counts; the generated pages of the papers are
left out.  Two pages are compared by the cosine of their words' weights (tf-idf, without fenced
code, numbers and the commonest words of English).  With ``--check`` it exits with 1 if the pages
together or the README are longer than they may be, or two pages are more alike.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sklearn.feature_extraction.text import TfidfVectorizer

ROOT = Path(__file__).parents[1]
MOST_WORDS = 60_000
MOST_README = 900
MOST_ALIKE = 0.35
CODE = re.compile(r"^(`{3,}).*?^\1$", re.M | re.S)
LINK_TARGET = re.compile(r"\]\([^)]*\)")


def read_pages() -> dict[str, str]:
    """Return the text of every page by its path."""
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
    pages = {}
    for path in paths:
        place = path.relative_to(ROOT).as_posix()
        if not place.startswith(("docs/_build", "docs/measured/papers")):
            pages[place] = path.read_text(encoding="utf-8")
    return pages


def alike_pairs(pages: dict[str, str]) -> list[tuple[float, str, str]]:
    """Return all pairs of pages with the cosine of their words, the most alike first."""
    prose = [LINK_TARGET.sub("]", CODE.sub("", text)) for text in pages.values()]
    vectorizer = TfidfVectorizer(
        stop_words="english", token_pattern=r"(?u)\b[^\W\d][\w-]+\b", sublinear_tf=True
    )
    weights = vectorizer.fit_transform(prose)
    cosines = (weights @ weights.T).toarray()
    names = list(pages)
    pairs = [
        (float(cosines[i, j]), names[i], names[j]) for i in range(len(names)) for j in range(i)
    ]
    return sorted(pairs, reverse=True)


def main() -> int:
    """Print counts and the most alike pairs, or with ``--check`` what is beyond the limits."""
    pages = read_pages()
    counts = {place: len(text.split()) for place, text in pages.items()}
    total = sum(counts.values())
    pairs = alike_pairs(pages)
    if "--check" not in sys.argv[1:]:
        for place, words in sorted(counts.items(), key=lambda entry: -entry[1]):
            print(f"{words:7,d}  {place}")
        print(f"{total:7,d}  together, of at most {MOST_WORDS:,d}")
        for cosine, first, second in pairs[:10]:
            print(f"{cosine:7.2f}  {first} and {second}")
        return 0
    beyond = [
        f"{first} and {second} are alike by {cosine:.2f}, of at most {MOST_ALIKE}: merge them"
        for cosine, first, second in pairs
        if cosine > MOST_ALIKE
    ]
    if total > MOST_WORDS:
        beyond.append(f"the pages have {total:,d} words, of at most {MOST_WORDS:,d}")
    if counts["README.md"] >= MOST_README:
        beyond.append(f"README.md has {counts['README.md']} words, of less than {MOST_README}")
    print("\n".join(beyond) or f"{total:,d} words in {len(pages)} pages, no two alike")
    return int(bool(beyond))


if __name__ == "__main__":
    sys.exit(main())
