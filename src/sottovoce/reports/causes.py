"""Why a coefficient is refused or has a question mark: an enumeration, and the only place of its
words.

The causes are found by :mod:`sottovoce.answers.coefficients`.  A "line" is one row of a table of
coefficients as a dict: see :mod:`sottovoce.reports.coefficients`.

A cause's value is its code in JSON (the key ``cause`` of a line) and never changes its meaning;
terminal, JSON and report say its sentence.  A reader of files must accept a code that it does not
know: a later version may add some.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from ..util.typing import Any


class Cause(Enum):
    """The reason why a line of a table of coefficients has no numbers, or has a question mark.

    Those that begin with ``TABLE_``, and ``SIZE_HIDDEN``, refuse the whole table.
    """

    MERGED = "merged"
    SMALL_SITE = "small site"
    LOST = "lost"
    SEPARATION = "separation"
    HIDDEN = "hidden"
    FEW = "few"
    REFERENCE = "reference"
    UNFINISHED = "unfinished"
    ASTRAY = "astray"
    NOISE = "noise"
    TABLE_UNFINISHED = "table unfinished"
    TABLE_NOISE = "table noise"
    TABLE_HIDDEN = "table hidden"
    SIZE_HIDDEN = "size hidden"
    STRAINED = "strained"

    @property
    def sentence(self) -> str:
        """The reason and the remedy.

        Without a full stop, so that a remedy in numbers can follow.
        """
        return _SENTENCES[self]

    @property
    def brief(self) -> str:
        """The reason as a clause that begins with "as" and speaks of several coefficients."""
        return _BRIEF[self]

    @property
    def label(self) -> str:
        """The reason in a word or two, for a cell of a table."""
        return _LABELS[self]

    @property
    def is_caused_by_noise(self) -> bool:
        """True if a larger epsilon or more rows would remove the cause."""
        return self in (Cause.NOISE, Cause.TABLE_NOISE, Cause.TABLE_HIDDEN, Cause.SIZE_HIDDEN)


_SENTENCES = {
    Cause.MERGED: "too few rows for this noise: merged with the reference",
    Cause.SMALL_SITE: "too few rows for this noise: the site gets the mean constant of the other "
    "sites",
    Cause.LOST: "the columns do not identify it",
    Cause.SEPARATION: (
        "the data do not determine it (separation): almost all rows of its level, of the "
        "reference, or of its site have the same outcome; merge it with another level, or leave it "
        "out"
    ),
    Cause.HIDDEN: (
        "noise hides whether the data determine it: all rows of its level, of the reference, or of "
        "its site may have the same outcome; merge it with another level, or use a larger epsilon "
        "or more rows"
    ),
    Cause.FEW: (
        "too few rows of its level, of the reference, or of its site have the rarer outcome for a "
        "two-sided interval; merge it with another level"
    ),
    Cause.REFERENCE: (
        "noise hides the reference, which has too few rows to compare with; name a level with more "
        "rows as the reference (`base` in the schema)"
    ),
    Cause.UNFINISHED: (
        "its estimate has not converged and may be infinite (separation): it may decide the "
        "outcome, alone or with others; leave it out, or merge it with another level"
    ),
    Cause.ASTRAY: (
        "the last step ended far from the earlier ones, which noise misled: use a larger epsilon "
        "or more rows; if that does not help, its estimate is infinite (separation): leave it out, "
        "or merge it with another level"
    ),
    Cause.NOISE: "too much of its variance is privacy noise",
    Cause.TABLE_UNFINISHED: (
        "the whole table: the steps have not converged, and not because of noise; a level or a "
        "number may decide the outcome alone (separation): leave it out, or merge it with another"
    ),
    Cause.TABLE_NOISE: "the whole table: the last step is mostly noise",
    Cause.TABLE_HIDDEN: (
        "the whole table: noise hides a combination of columns that may affect every coefficient"
    ),
    Cause.SIZE_HIDDEN: (
        "the whole table: noise hides the joint size of its effects (if columns decide the outcome "
        "alone, which is separation, no epsilon is enough: leave the strongest out)"
    ),
    Cause.STRAINED: "the steps may have ended too early, and intervals may be off by about "
    "one standard error",
}
_BRIEF = {
    Cause.MERGED: "as they have too few rows",
    Cause.SMALL_SITE: "as their sites have too few rows",
    Cause.LOST: "as columns repeat each other or do not vary",
    Cause.SEPARATION: "as the data do not determine them",
    Cause.HIDDEN: "as noise hides whether the data determine them",
    Cause.FEW: "as too few rows have the rarer outcome",
    Cause.REFERENCE: "as the reference has too few rows",
    Cause.UNFINISHED: "as they have not converged",
    Cause.ASTRAY: "as noise led the steps astray",
    Cause.NOISE: "as they would be mostly noise",
    Cause.TABLE_UNFINISHED: "as the steps have not converged",
    Cause.TABLE_NOISE: "as they would be mostly noise",
    Cause.TABLE_HIDDEN: "as noise hides a combination of columns",
    Cause.SIZE_HIDDEN: "as noise hides the size of the effects",
    Cause.STRAINED: "as the steps may have ended too early",
}
_LABELS = {
    Cause.MERGED: "too few rows",
    Cause.SMALL_SITE: "too few rows",
    Cause.LOST: "columns alike",
    Cause.SEPARATION: "separation",
    Cause.HIDDEN: "separation?",
    Cause.FEW: "few outcomes",
    Cause.REFERENCE: "rare reference",
    Cause.UNFINISHED: "steps too few",
    Cause.ASTRAY: "steps astray",
    Cause.NOISE: "noise",
    Cause.TABLE_UNFINISHED: "steps too few",
    Cause.TABLE_NOISE: "noise",
    Cause.TABLE_HIDDEN: "noise",
    Cause.SIZE_HIDDEN: "noise",
    Cause.STRAINED: "steps too few?",
}


def cause_of_line(line: dict[str, Any]) -> Cause | None:
    """Return the cause of a line that is refused or has a question mark.

    None for other lines, and for a code that this version does not know.
    """
    return next((cause for cause in Cause if cause.value == line.get("cause")), None)


def all_refused_by_noise(lines: Sequence[dict[str, Any]]) -> bool:
    """Return True if there are lines, and all are refused because of noise."""
    causes = [cause_of_line(line) for line in lines]
    return bool(causes) and all(cause is not None and cause.is_caused_by_noise for cause in causes)
