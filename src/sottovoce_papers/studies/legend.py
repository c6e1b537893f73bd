"""The legend of verdicts: every word for a verdict on a paper, with the rule behind it.

Pages and documentation print it.  A word's rule depends on the source of the verdict: "holds" of a
study's claim, of a test and of a row of ``sottovoce claims`` follows from three different rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .. import claims, sample_size
from . import verdicts

AMBIGUOUS = "ambiguous"
"""Stands before the verdict on one reading of several, where a paper's words are ambiguous."""
SAME_FORM, OTHER_FORM = "the printed form holds", "printed and corrected forms differ"
_READING = "of one reading of several; the row says which"
_FREE = (
    "With a free constant, which no paper prints, only the order in which a bound grows can "
    "be read from it."
)


@dataclass(frozen=True)
class Source:
    """A source of verdicts: how it judges, and the meaning of each of its words."""

    name: str
    judges: str
    words: Mapping[str, str]


def _setting() -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {value:g}" for name, value in sample_size.SETTING.items()
    )


NO_COUNTEREXAMPLE = "no counterexample found"
STATED = {
    "holds": "what is printed is true, or what runs here is what is printed",
    verdicts.REPRODUCED: "our number is the paper's",
    NO_COUNTEREXAMPLE: "we have no proof of it, and every case that the test runs is as it says",
    verdicts.PART: "one of our numbers is not the paper's, and the row says which",
    verdicts.NOT: "here it is not so, or our number is another",
    verdicts.REFUTED: "a proof, whose numbers the test computes, shows that what is printed is "
    "false",
    verdicts.MISPRINT: "what is printed cannot be meant: the lines around it, or its source, "
    "need what the row says "
    "instead, and that runs here; the test shows that the printed one does not do, or the other "
    "does",
    verdicts.UNTESTABLE: "the row says why nothing can be told at the paper's settings",
    verdicts.NOT_RUN: "the row says what is missing",
    AMBIGUOUS: _READING,
}
FORMS = {
    SAME_FORM: "the paper's proof, or the one that it follows, gives the printed formula",
    OTHER_FORM: "the proof, with the rates that it cites taken for a loss of slope C^R, gives "
    "another formula, the "
    "corrected one",
}
SOURCES = {
    "study": Source("Rows with a study", verdicts.RULE, verdicts.MEANINGS),
    "verdict": Source(
        "Rows with a test and no command", "The test fails where the verdict is wrong.", STATED
    ),
    "claim": Source(
        "Rows with `sottovoce claims`",
        f"At one setting, unless the row says another: {claims.SETTING}.",
        claims.MEANINGS | {AMBIGUOUS: _READING},
    ),
    "rows": Source(
        "Rows with `sottovoce claims --rows`",
        f"Rows of a site at one setting: {_setting()}. {_FREE}",
        FORMS,
    ),
}
"""Sources by the key of an item in bench/papers.toml."""


def table() -> str:
    """Return the whole legend as a table in Markdown, one line for each word."""
    lines = ["| what gives it | verdict | rule |", "|---|---|---|"]
    for source in SOURCES.values():
        lines += [f"| {source.name} | {word} | {rule} |" for word, rule in source.words.items()]
    return "\n".join(lines) + "\n"
