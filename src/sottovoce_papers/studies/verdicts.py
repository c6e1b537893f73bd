"""Judging a study's claims over its table: whether each holds, beyond the noise of replicates, as
printed and at the proved epsilon.

A claim is tested in each *setting*, the rows with one combination of values of its columns `by`.
The words of all settings give its verdict.  The texts here are printed on the generated pages and
stored with verdicts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import stats

from sottovoce.util.typing import Any

from .kinds import Row
from .spec import Reading, Sentence, Study, matches, select

REPRODUCED, PART, NOT, NOISE = (
    "reproduced",
    "reproduced in part",
    "not reproduced",
    "within the noise",
)
MOSTLY_NOT = "mostly not reproduced"
# what is compared is the same in every replicate
SAME, UNSEEN = (
    "no difference",
    "no rows to test it on",
)
REFUTED, MISPRINT = "refuted (by proof)", "misprint, corrected"
UNTESTABLE, NOT_RUN = "untestable here", "not run"
BARRED = (UNTESTABLE, NOT_RUN)
"""Words for settings that do not count: they cannot be tested, or the paper's rows are not on this
machine.
"""
ERRORS = ("test_error", "accuracy", "site_test_error", "train_error", "error")
"""Columns of errors, on which a claim is not tested where even the run without noise is no better
than always predicting the commoner class.
"""
HOLDS, SOME, FAILS, HIDDEN = "holds", "holds in part", "fails", "within the noise"
"""Words for one setting.  A trend holds in part if its ends show it and a step between them goes
the other way.
"""
MOSTLY_FAILS = "mostly fails"
OURS = {REPRODUCED: HOLDS, PART: SOME, MOSTLY_NOT: MOSTLY_FAILS, NOT: FAILS}
"""Words for a claim that the paper does not make, in place of those for reproduction."""
BASES = {
    "printed": "as printed",
    "proof": "with the constants of the paper's proof",
    "proved": "at the proved epsilon",
}
"""The bases on which a claim may be judged: keys of a claim that select rows, and their names."""
SURE = 2.0  # standard errors above which a difference is beyond the noise, with many replicates
CHANCE = float(stats.norm.sf(SURE))  # one-sided probability of such a difference by chance alone
RULE = (
    "A claim is tested in every setting (a value of alpha, a round, a data set) on its own. It "
    "holds there if the "
    f"difference is more than {SURE:g} standard errors (more with few replicates), fails if it is "
    "as much the other "
    "way round (more in many settings, since of many differences some are large by chance), and "
    "is within the noise "
    "otherwise. Where a study draws graph and rows several times, standard errors are over these "
    "draws, each of which "
    "has the mean over its noises. It holds clearly if chance alone gives the largest difference "
    "of all the settings "
    f"as much in {CHANCE:.1%} of cases. A trend whose ends show it holds in part if a step on the "
    "way goes against it. "
    "Settings that cannot be tested do not count. "
    'A threshold, in words such as "near is 0.01", is ours and no paper\'s.'
)
"""How a claim is judged in a setting."""
ORDERED = (
    '"Reproduced" says that curves lie, rise or fall in the order that the paper says, by more '
    "than the noise. It says "
    "nothing of their heights: the texts that these pages were made from have no figures. Where "
    "the paper prints a "
    "number, it stands beside ours."
)
"""The first line of each page."""
_MOST = "in more than half of the settings, or clearly in one (if only in part), and not in all"
_FEW = "in half of the settings at most, clearly in none (or is about most)"
_AGAINST = (
    "and it fails in more settings than it holds in (one that holds in part counts for neither)"
)
_ABSENT = "the rows that the paper's claim is about are not on this machine"
MEANINGS = {
    REPRODUCED: "the paper's claim holds in every setting, or in more than half where it is "
    "about most of them",
    PART: f"the paper's claim holds {_MOST}; it fails in no more settings than it holds in",
    MOSTLY_NOT: f"the paper's claim holds clearly in a setting (if only in part), {_AGAINST}",
    NOT: f"the paper's claim holds {_FEW}, and it fails in one or more",
    NOISE: f"a claim holds {_FEW}, and it fails in none",
    SAME: "what is compared is the same in every replicate of every setting",
    REFUTED: "a proof of ours, with the test that is named, shows that it is false; what was "
    "measured stands beside it",
    MISPRINT: "what is printed cannot be meant: its source, or the lines around it, need "
    "something else, which runs "
    "here; the test that is named shows it, and what was measured to the letter stands beside it",
    UNTESTABLE: "no setting can be tested, as even the run without noise errs no less than "
    "always the commoner class; "
    "or a setting that the paper does not print decides, and the line says which",
    NOT_RUN: f"{_ABSENT}: nothing was run, or others stood in for them",
    UNSEEN: "no finished cell speaks of the claim",
    HOLDS: 'a claim that the paper does not make, marked "Ours", holds in every setting',
    SOME: f"a claim of ours holds {_MOST}; it fails in no more settings than it holds in",
    MOSTLY_FAILS: f"a claim of ours holds clearly in a setting (if only in part), {_AGAINST}",
    FAILS: f"a claim of ours holds {_FEW}, and it fails in one or more",
}
"""How one verdict is made of all settings: the pages print these sentences."""
NAMES = {
    "admm": "ADMM",
    "dvp": "DVP",
    "ADMM (DVP)": "DVP",
    "pvp": "PVP",
    "m_admm": "M-ADMM",
    "r_admm": "R-ADMM",
    "mr_admm": "MR-ADMM",
    "pp_admm": "PP-ADMM",
    "ipp_admm": "IPP-ADMM",
    "eta_growth": "q",
    "tolerance": "beta",
    "clip": "C_loss",
    "positives": "c",
    "threshold": "alpha",
    "split": "splits",
    "target_error": "test error",
}
"""Methods and columns as the papers name them."""
_TEXTS = ("label", "panel", "method", "reading", "basis")  # columns whose values say what they are


@lru_cache
def sure(free: float, many: int = 1) -> float:
    """Compute how many standard errors the largest of `many` differences exceeds with probability
    ``CHANCE``.

    By Student's law with `free` degrees of freedom and Bonferroni's bound.
    """
    if math.isfinite(free):
        return float(stats.t.isf(CHANCE / many, free))
    return float(stats.norm.isf(CHANCE / many))


@dataclass(frozen=True)
class Judgement:
    """A verdict and its reason.

    `details` has a text for each setting, and `settings` the same as data: its values of `by`, its
    word and its numbers.
    """

    word: str
    details: tuple[str, ...]
    settings: tuple[dict[str, Any], ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class _Mean:
    """A mean over replicates and its standard error, which is 0 for a single replicate."""

    mean: float
    error: float = 0.0
    values: Mapping[Any, float] = field(default_factory=dict)  # by replicate
    noise: float = 0.0  # the part of `error` that replicates do not show

    def __str__(self) -> str:
        mean = _digits(self.mean, 4)
        # an error of the size of rounding is none
        if self.error <= 1e-12 * abs(self.mean):
            return mean
        return f"{mean} ± {_digits(SURE * self.error, 2)}"

    def __sub__(self, other: _Mean) -> tuple[_Mean, float]:
        """Return the difference and its degrees of freedom; paired if both have the same
        replicates.
        """
        noise = math.hypot(self.noise, other.noise)
        # Paired differences, where both have the same units: what the pairs share cancels, and
        # Student's law has one degree of freedom a pair less one.
        if set(self.values) == set(other.values) and len(self.values) > 1:
            each = {key: value - other.values[key] for key, value in self.values.items()}
            return _over(each, noise), len(each) - 1
        # Units that differ are independent samples.  Where neither side has a spread, the error is
        # one that the study states, and belongs to a normal law.
        free = max(len(self.values) - 1, 0) + max(len(other.values) - 1, 0)
        return _Mean(self.mean - other.mean, math.hypot(self.error, other.error)), free or math.inf


def _digits(value: float, many: int) -> str:
    """Format a number in `many` significant digits."""
    return f"{float(f'{value:.{many}g}'):g}"


def _over(values: Mapping[Any, float], noise: float) -> _Mean:
    """Compute the mean of values, one per unit; `noise` is a further standard error, which their
    spread does not show.
    """
    own = np.array(list(values.values()))
    error = 0.0
    if own.size > 1:
        error = float(own.std(ddof=1)) / math.sqrt(own.size)
    # values that are equal but for rounding have no error
    if error <= 1e-12 * float(np.abs(own).max()):
        error = 0.0
    return _Mean(float(own.mean()), math.hypot(error, noise), values, noise)


@dataclass(frozen=True)
class Barred:
    """The word for a setting that cannot be tested, and the reason."""

    word: str
    why: str


def barred(rows: list[Row], value: str) -> Barred | None:
    """Return why a claim about the column `value` cannot be tested on these rows; None if it can.

    A row of the column `stands_in` or `untestable` is reason enough for every claim;
    `untestable_error` only for claims on errors, and if all rows have it: where one of the methods
    compared can learn, a difference says something.
    """
    for column, word in (("stands_in", NOT_RUN), ("untestable", UNTESTABLE)):
        for row in rows:
            if row.get(column):
                return Barred(word, str(row[column]))
    reasons = [str(row["untestable_error"]) for row in rows if row.get("untestable_error")]
    if reasons and value in ERRORS and len(reasons) == len(rows):
        return Barred(UNTESTABLE, reasons[0])
    return None


def judge(claim: Sentence, rows: list[Row], basis: Mapping[str, Any]) -> Judgement:
    """Judge a claim on the rows that `basis` selects.

    A test holds in a setting if the difference is more than two standard errors (more with few
    replicates), and fails if it is as much the other way round (more if there are many settings):
    see :func:`sure`.  Settings that cannot be tested (:func:`barred`) are left out; what was
    measured of errors there stands in the reason.

    Parameters
    ----------
    claim : Sentence
        The claim and its test.
    rows : list of Row
        The study's table.
    basis : mapping
        Values by column that select the rows.

    Returns
    -------
    Judgement
        Its word is one of :data:`MEANINGS`: "refuted (by proof)" or "misprint, corrected" if the
        claim says so, whatever was measured; "untestable here" where the claim says that a setting
        which the paper does not print decides it; for a claim that the paper does not make one of
        :data:`OURS`.
    """
    found = _measured(claim, rows, basis)
    if claim.refuted:
        return replace(found, word=REFUTED, reason=claim.refuted)
    if claim.misprint:
        return replace(found, word=MISPRINT, reason=claim.misprint)
    if claim.untestable and found.word not in (UNSEEN, *BARRED):
        return replace(found, word=UNTESTABLE, reason=claim.untestable)
    if claim.ours:
        return replace(found, word=OURS.get(found.word, found.word))
    return found


def _measured(claim: Sentence, rows: list[Row], basis: Mapping[str, Any]) -> Judgement:
    """Judge a claim by the numbers alone, whatever it says of proofs."""
    kept = [row for row in rows if matches(row, basis) and _number(row.get(claim.value))]
    settings: dict[tuple[Any, ...], list[Row]] = {}
    for row in kept:
        settings.setdefault(tuple(row.get(key) for key in claim.by), []).append(row)
    chosen = {
        setting: those
        for setting, all_ in settings.items()
        if (those := select(all_, claim.filter))
    }
    shut = {
        setting: why for setting, those in chosen.items() if (why := barred(those, claim.value))
    }
    # Two kinds of claims need no replicates: a value that is to be 0 everywhere, and one whose
    # standard error the study states.
    noisy = claim.test != "never" and claim.noise is None
    testable = len(shut) < len(chosen)
    if kept and noisy and testable and all(row.get("replicate") == 0 for row in kept):
        told = "one replicate says nothing of the noise"
        return Judgement(NOISE, (told,), reason=told)
    # settings that cannot be tested are no differences of which chance could make one large
    many = max(1, len(chosen) - len(shut))
    details, each, seen = [], [], []
    for setting, those in chosen.items():
        at = {key: value for key, value in zip(claim.by, setting, strict=True) if value is not None}
        name = placed(at)
        # a claim without `by` has one setting, which needs no name
        head = f"{name}: " if name else ""
        found = _TESTS[claim.test](claim, those, many)
        if setting in shut:
            # Errors that are no better than chance's are told beside the reason; what other rows
            # showed in place of the paper's is not.
            own_rows = not any(row.get("stands_in") or row.get("untestable") for row in those)
            if found is not None and own_rows:
                seen.append(f"{head}{found[1]}")
            found = shut[setting].word, shut[setting].why, False
        if found is not None:
            word, numbers, beyond = found
            details.append(f"{head}{numbers}: {word}")
            setting_found: dict[str, Any] = {"at": at, "word": word, "numbers": numbers}
            if beyond:
                setting_found["clear"] = True
            each.append(setting_found)
    if not each:
        return Judgement(UNSEEN, (), reason="the table has no such rows")
    word = overall(each, most=claim.most)
    reason = str(each[0]["numbers"])
    if len(each) > 1:
        reason = counted(each)
    if word in BARRED:
        reasons = list(dict.fromkeys(one.why for one in shut.values()))
        if seen:
            reasons.append(f"measured: {'; '.join(seen)}")
        reason = "; ".join(reasons)
    return Judgement(word, tuple(details), tuple(each), reason)


@dataclass(frozen=True)
class Judged:
    """A claim with its verdicts, under one reading of the paper if the study has several.

    `place` is the claim's number in the study, from 0.
    """

    claim: Sentence
    printed: Judgement | None
    proved: Judgement | None
    reading: str = ""
    place: int = 0
    proof: Judgement | None = None

    @property
    def verdicts(self) -> dict[str, Judgement]:
        """The verdicts by basis, in the order of :data:`BASES`; bases without one are left out."""
        found = {basis: getattr(self, basis) for basis in BASES}
        return {basis: verdict for basis, verdict in found.items() if verdict is not None}

    def plain(self) -> dict[str, Any]:
        """Return the claim and its verdicts as plain data, for ``verdicts.json``."""

        def one(basis: str) -> dict[str, Any] | None:
            found: Judgement | None = getattr(self, basis)
            if found is None:
                return None
            told = {
                "verdict": found.word,
                "reason": found.reason,
                "of": dict(getattr(self.claim, basis) or {}),
            }
            return told | {"settings": list(found.settings)}

        claim = self.claim
        tested = {
            "test": claim.test,
            "value": claim.value,
            "by": list(claim.by),
            "filter": dict(claim.filter),
        }
        told = {
            "place": self.place,
            "paper": claim.paper,
            "reading": self.reading,
            "settings": tested,
        }
        return {"claim": claim.says} | told | {basis: one(basis) for basis in BASES}


def judged(study: Study, rows: list[Row]) -> list[Judged]:
    """Judge every claim of a study, once for each reading of the paper.

    Where readings are of several lines of the paper, and so in several columns of the table, a
    claim is judged once for each combination; a column that the claim itself names is left out.
    `refuted` and `misprint` are about what is printed: other forms are judged by their numbers.
    """
    found = []
    for place, claim in enumerate(study.claims):
        # a proof against what is printed says nothing of the form at the proved epsilon
        plain = claim
        if claim.printed is not None:
            plain = replace(claim, refuted="", misprint="")
        about = dict.fromkeys(BASES, plain) | {"printed": claim}
        for readings in _ways(study, claim):
            those = [row for row in rows if all(one.covers(row) for one in readings)]
            own = {
                basis: judge(about[basis], those, filters)
                for basis in BASES
                if (filters := getattr(claim, basis)) is not None
            }
            name = ", ".join(one.name for one in readings)
            found.append(
                Judged(claim, own.get("printed"), own.get("proved"), name, place, own.get("proof"))
            )
    return found


class QuickClaims(NamedTuple):
    """The claims that a quick run has rows for, and how many it has none for."""

    shown: list[Judged]
    left_out: int


def of_quick_run(claims: Sequence[Judged]) -> QuickClaims:
    """Return claims without verdicts on the paper, which its own settings alone could give.

    What the table has rows for holds or fails in the quick run; what it has none for is left out.
    """
    shown = []
    for one in claims:
        seen = {
            basis: replace(verdict, word=OURS.get(verdict.word, verdict.word))
            for basis, verdict in one.verdicts.items()
            if verdict.details
        }
        if seen:
            printed, proof, proved = (seen.get(basis) for basis in BASES)
            shown.append(replace(one, printed=printed, proof=proof, proved=proved))
    return QuickClaims(shown, len(claims) - len(shown))


def _ways(study: Study, claim: Sentence) -> list[tuple[Reading, ...]]:
    """Return the combinations of readings under which a claim is judged: one reading for each
    column of readings that the claim does not name.
    """
    free: dict[str, list[Reading]] = {}
    for one in study.readings:
        if one.column not in claim.columns():
            free.setdefault(one.column, []).append(one)
    return list(itertools.product(*free.values()))


def overall(settings: Sequence[Mapping[str, Any]], *, most: bool = False) -> str:
    """Return the verdict over all settings, from the counts that :func:`counted` shows.

    With `most` the claim is about more than half of the settings, not about all.
    """
    words = [setting["word"] for setting in settings if setting["word"] not in BARRED]
    if not words:
        if any(setting["word"] == UNTESTABLE for setting in settings):
            return UNTESTABLE
        return NOT_RUN
    holds, fails = words.count(HOLDS), words.count(FAILS)
    if holds == len(words) or (most and 2 * holds > len(words)):
        return REPRODUCED
    # a claim about most settings is not saved by one of them, however clear
    clearly = not most and any(setting.get("clear") for setting in settings)
    if clearly or 2 * holds > len(words):
        if fails > holds:
            return MOSTLY_NOT
        return PART
    if set(words) == {SAME}:
        return SAME
    if fails:
        return NOT
    return NOISE


def counted(settings: Sequence[Mapping[str, Any]]) -> str:
    """Say in how many settings a claim holds, fails, and so on, and in how many clearly, where the
    verdict depends on that.
    """
    words = [setting["word"] for setting in settings]
    # above one half the counts alone decide, and how clear a setting is does not
    most = 2 * words.count(HOLDS) > sum(word not in BARRED for word in words)
    told = []
    for word in (HOLDS, SOME, FAILS, HIDDEN, SAME, *BARRED):
        if word in words:
            clear = sum(
                setting["word"] == word and bool(setting.get("clear")) for setting in settings
            )
            some = ""
            if clear and not most:
                some = f" (clearly in {clear})"
            told.append(f"{word.removesuffix(' here')} in {words.count(word)}{some}")
    return f"{', '.join(told)} of {len(words)}"


DIVIDED = (PART, MOSTLY_NOT, SOME, MOSTLY_FAILS)
"""Verdicts over settings that disagree; a summary adds in how many the claim holds and fails."""


def summed(found: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> list[str]:
    """Count verdicts by word, with the settings of divided ones: "2 holds in part (3 hold, 1
    fail of 6)".

    Parameters
    ----------
    found : sequence of (word, settings)
        The verdicts, and the settings of each.

    Returns
    -------
    list of str
        One text for each word.
    """
    told = []
    for word in dict.fromkeys(word for word, _ in found):
        those = [settings for one, settings in found if one == word]
        scores = "; ".join(_scored(settings) for settings in those if settings)
        if word in DIVIDED and scores:
            told.append(f"{len(those)} {word} ({scores})")
        else:
            told.append(f"{len(those)} {word}")
    return told


def _scored(settings: Sequence[Mapping[str, Any]]) -> str:
    words = [setting["word"] for setting in settings]
    return f"{words.count(HOLDS)} hold, {words.count(FAILS)} fail of {len(words)}"


def said(value: Any) -> str:
    """Format a value of the table; None as ""."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def placed(at: Mapping[str, Any]) -> str:
    """Describe a setting in words: its columns and values, by the names of :data:`NAMES`."""
    parts = []
    for key, value in at.items():
        told = said(value)
        if isinstance(value, str):
            told = NAMES.get(value, told)
        if told and key in _TEXTS:
            parts.append(told)
        elif told:
            parts.append(f"{NAMES.get(key, key)} {told}")
    return ", ".join(parts)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def unit_of(row: Mapping[str, Any]) -> Any:
    """Return a key of the independent sampling unit of a row.

    It is the draw of graph and rows if a study has several, else the replicate: replicates of one
    draw differ in noise only, so their spread says nothing of other graphs and rows.
    """
    draw = row.get("draw")
    if draw is not None:
        return "draw", draw
    # a new object equals no other: a row without a replicate is a unit of its own
    return row.get("replicate", object())


def _mean(rows: list[Row], claim: Sentence) -> _Mean:
    """Compute the mean over units (:func:`unit_of`) of the mean of each unit's rows.

    A row without a replicate is a unit of its own.
    """
    own: dict[Any, list[float]] = {}
    for row in rows:
        own.setdefault(unit_of(row), []).append(float(row[claim.value]))
    return _over(
        {key: math.fsum(values) / len(values) for key, values in own.items()}, claim.noise or 0.0
    )


class Outcome(IntEnum):
    """The outcome of a comparison in one setting; the least of several counts."""

    REVERSED = -1
    """The difference goes the other way, beyond the noise."""
    UNDECIDED = 0
    """The difference is within the noise."""
    HOLDS = 1
    """The difference is as claimed, beyond the noise."""
    CLEAR = 2
    """It is so beyond what chance gives the largest difference of all the settings."""


def _compared(low: _Mean, high: _Mean, many: int, against: int = 1) -> Outcome:
    """Test ``low < high`` in one of `many` settings.

    `against` is the number of such comparisons, one of which is enough for the claim to fail.
    """
    gap, free = high - low
    if -gap.mean > sure(free, many * against) * gap.error:
        return Outcome.REVERSED
    # the bound for one of many is the larger, so that what passes it passes the first too
    surely = gap.mean > sure(free) * gap.error
    surely_as_one_of_many = gap.mean > sure(free, many) * gap.error
    return Outcome(int(surely) + int(surely_as_one_of_many))


_Found = tuple[str, str, bool] | None
"""The word for a setting, its numbers in words, and whether it holds clearly (`Outcome.CLEAR`);
None if the setting lacks rows for the test.
"""

_WORD_OF_OUTCOME = {
    Outcome.REVERSED: FAILS,
    Outcome.UNDECIDED: HIDDEN,
    Outcome.HOLDS: HOLDS,
    Outcome.CLEAR: HOLDS,
}


def _marked(outcome: Outcome, told: str, *compared: _Mean) -> tuple[str, str, bool]:
    """Return the word for an outcome; "no difference" where all that is compared is equal."""
    gaps = [one - compared[0] for one in compared[1:]]
    undecided = outcome is Outcome.UNDECIDED
    if undecided and gaps and all(gap.mean == gap.error == 0.0 for gap, _ in gaps):
        return SAME, told, False
    return _WORD_OF_OUTCOME[outcome], told, outcome is Outcome.CLEAR


def _extreme(claim: Sentence, rows: list[Row], many: int) -> _Found:
    """Test `least` and `greatest`: the rows `of` against each of the others along `among`."""
    own, others = [row for row in rows if matches(row, claim.of)], dict[Any, list[Row]]()
    for row in rows:
        if not matches(row, claim.of):
            others.setdefault(row.get(claim.among), []).append(row)
    if not own or not others:
        return None
    mine, theirs = _mean(own, claim), {name: _mean(those, claim) for name, those in others.items()}
    # It fails if it is surely beaten by one of the others, of which the best has as many chances
    # as there are others.
    n = len(theirs)
    if claim.test == "greatest":
        outcomes = [_compared(other, mine, many, n) for other in theirs.values()]
        best = max(theirs, key=lambda name: theirs[name].mean)
    else:
        outcomes = [_compared(mine, other, many, n) for other in theirs.values()]
        best = min(theirs, key=lambda name: theirs[name].mean)
    name = placed({claim.among: best})
    told = f"{mine} against {theirs[best]}{_apart(mine, theirs[best])}"
    told = f"{told} ({name}, the best of the others)"
    return _marked(min(outcomes), told, mine, theirs[best])


def _along(claim: Sentence, rows: list[Row], many: int) -> _Found:
    """Test `rises` and `falls`: means along `x`, between its ends and by no step the other way."""
    groups: dict[float, list[Row]] = {}
    for row in rows:
        if _number(row.get(claim.x)):
            groups.setdefault(float(row[claim.x]), []).append(row)
    if len(groups) < 2:
        return None
    at = sorted(groups)
    means = [_mean(groups[x], claim) for x in at]
    # one of many steps goes against the trend by chance: the bound is for the steps of all
    steps_of_all = many * (len(at) - 1)
    if claim.test == "rises":
        steps = [_compared(left, right, steps_of_all) for left, right in itertools.pairwise(means)]
        whole = _compared(means[0], means[-1], many)
    else:
        steps = [_compared(right, left, steps_of_all) for left, right in itertools.pairwise(means)]
        whole = _compared(means[-1], means[0], many)
    told = f"{means[0]} at {placed({claim.x: at[0]})}, {means[-1]} at {at[-1]:g}"
    if Outcome.REVERSED not in steps:
        return _marked(whole, told, *means)
    # the first step the wrong way is shown
    k = steps.index(Outcome.REVERSED)
    told += f"; but {means[k]} at {at[k]:g} and {means[k + 1]} at {at[k + 1]:g}"
    if whole in (Outcome.HOLDS, Outcome.CLEAR):
        return SOME, told, whole is Outcome.CLEAR
    return FAILS, told, False


def _pair(claim: Sentence, rows: list[Row]) -> tuple[_Mean, _Mean] | None:
    """Return the means of the rows `of` and `than`; None if one of them has no rows."""
    own, other = ([row for row in rows if matches(row, side)] for side in (claim.of, claim.than))
    if not own or not other:
        return None
    return _mean(own, claim), _mean(other, claim)


def _less(claim: Sentence, rows: list[Row], many: int) -> _Found:
    """Test `less`: the mean of `of` is below that of `than`."""
    pair = _pair(claim, rows)
    if pair is None:
        return None
    own, other = pair
    told = f"{own} against {other}{_apart(own, other)}"
    return _marked(_compared(own, other, many), told, own, other)


def _apart(low: _Mean, high: _Mean) -> str:
    """Return the difference in words where it is beyond the noise though the two intervals overlap,
    as paired differences may be; else "".
    """
    gap, _ = high - low
    alone = math.hypot(low.error, high.error)
    # without it a reader would take two overlapping intervals for no difference
    if SURE * gap.error < abs(gap.mean) <= SURE * alone:
        return f", {replace(gap, mean=abs(gap.mean))} apart"
    return ""


def _steadier(claim: Sentence, rows: list[Row], many: int) -> _Found:
    """Test `steadier`: as `less`, for the standard deviation of every replicate over its rows."""

    def spread(side: Mapping[str, Any]) -> list[Row]:
        own: dict[Any, list[float]] = {}
        draws = {}
        for row in rows:
            if matches(row, side):
                own.setdefault(row.get("replicate"), []).append(float(row[claim.value]))
                draws[row.get("replicate")] = row.get("draw")
        wide = {
            key: float(np.std(values, ddof=1)) for key, values in own.items() if len(values) > 1
        }
        return [
            {claim.value: value, "replicate": key, "draw": draws[key]}
            for key, value in wide.items()
        ]

    own, other = spread(claim.of), spread(claim.than)
    if not own or not other:
        return None
    pair = _mean(own, claim), _mean(other, claim)
    return _marked(_compared(*pair, many), f"standard deviation {pair[0]} against {pair[1]}")


def _tighter(claim: Sentence, rows: list[Row], many: int) -> _Found:
    """Test `tighter`: `of` varies less from replicate to replicate than `than`.

    It is Pitman and Morgan's test of paired variances, or Fisher's if the replicates differ.
    """
    pair = _pair(claim, rows)
    if pair is None or min(len(side.values) for side in pair) < 3:
        return None
    own, other = (
        np.array([side.values[key] for key in sorted(side.values, key=str)]) for side in pair
    )
    wide = float(own.std(ddof=1)), float(other.std(ddof=1))
    if max(wide) == 0.0:
        return HIDDEN, "no spread", False
    paired = set(pair[0].values) == set(pair[1].values)
    if paired and np.ptp(own - other) * np.ptp(own + other) != 0.0:
        # Pitman and Morgan: variances of pairs are equal exactly where sums and differences are
        # uncorrelated, and the correlation is negative where `of` varies less.
        r, free = float(np.corrcoef(own + other, own - other)[0, 1]), own.size - 2
        t = r * math.sqrt(free / max(1.0 - r * r, 1e-300))
        low, high = float(stats.t.cdf(t, free)), float(stats.t.sf(t, free))
    else:
        # Fisher's test of two variances of independent samples
        ratio = math.inf
        if wide[1] != 0.0:
            ratio = (wide[0] / wide[1]) ** 2
        low = float(stats.f.cdf(ratio, own.size - 1, other.size - 1))
        high = float(stats.f.sf(ratio, own.size - 1, other.size - 1))
    word = HIDDEN
    if low < CHANCE:
        word = HOLDS
    elif high < CHANCE / many:
        word = FAILS
    return word, f"standard deviation {wide[0]:.3g} against {wide[1]:.3g}", low < CHANCE / many


def _narrows(claim: Sentence, rows: list[Row], many: int) -> _Found:
    """Test `narrows`: the gap from `of` up to `than` is smaller at the largest `x` than at the
    smallest.
    """
    xs = sorted({float(row[claim.x]) for row in rows if _number(row.get(claim.x))})
    if len(xs) < 2:
        return None
    gaps = []
    for x in (xs[0], xs[-1]):
        pair = _pair(claim, [row for row in rows if row.get(claim.x) == x])
        if pair is not None:
            gaps.append((pair[1] - pair[0])[0])
    if len(gaps) < 2:
        return None
    first, last = gaps
    told = f"a gap of {first} at {placed({claim.x: xs[0]})}, of {last} at {xs[-1]:g}"
    return _marked(_compared(last, first, many), told)


def _above(claim: Sentence, rows: list[Row], many: int) -> _Found:
    """Test `above` and `below`: the mean against a level."""
    if not rows:
        return None
    level, mean = _Mean(claim.level), _mean(rows, claim)
    if claim.test == "above":
        outcome = _compared(level, mean, many)
    else:
        outcome = _compared(mean, level, many)
    told = str(mean)
    # a level of 0 is the sign that the paper speaks of; any other one is ours
    if claim.level:
        told = f"{mean} (ours: {claim.test} {claim.level:g})"
    return _marked(outcome, told)


def _near(claim: Sentence, rows: list[Row], many: int) -> _Found:
    """Test `near`: the means of `of` and `than` differ by at most `within`."""
    pair = _pair(claim, rows)
    if pair is None:
        return None
    apart, free = pair[0] - pair[1]
    gap, error = abs(apart.mean), apart.error
    # with `within` 0 both have to be equal, and rounding is no difference
    if gap <= 1e-12 * abs(pair[0].mean):
        gap = 0.0
    # it holds where the whole interval of the difference is near, and fails where none of it is
    near = [gap + sure(free, among) * error <= claim.within for among in (1, many)]
    outcome = Outcome(sum(near))
    if gap - sure(free, many) * error > claim.within:
        outcome = Outcome.REVERSED
    told = f"{pair[0]} and {pair[1]}, {gap:.2g} apart"
    if claim.within:
        told += f" (ours: near is {claim.within:g})"
    return _marked(outcome, told)


def _no_less(claim: Sentence, rows: list[Row], many: int) -> _Found:
    """Test `no_less`: `of` is below `than` by at most `within`, as where a paper says that a method
    "may not help".
    """
    pair = _pair(claim, rows)
    if pair is None:
        return None
    gap, free = pair[1] - pair[0]
    held = [gap.mean + sure(free, among) * gap.error <= claim.within for among in (1, many)]
    outcome = Outcome(sum(held))
    if gap.mean - sure(free, many) * gap.error > claim.within:
        outcome = Outcome.REVERSED
    told = f"{pair[0]} against {pair[1]} (ours: lower is by more than {claim.within:g})"
    return _marked(outcome, told)


def _never(claim: Sentence, rows: list[Row], many: int) -> _Found:
    """Test `never`: the value is 0 in every row."""
    if not rows:
        return None
    hits = sum(row[claim.value] != 0 for row in rows)
    told = f"{hits} of {len(rows)}"
    # a count has no noise: one hit refutes the claim
    if hits:
        return _marked(Outcome.REVERSED, told)
    return _marked(Outcome.CLEAR, told)


_TESTS = {
    "least": _extreme,
    "greatest": _extreme,
    "falls": _along,
    "rises": _along,
    "less": _less,
    "steadier": _steadier,
    "tighter": _tighter,
    "narrows": _narrows,
    "above": _above,
    "below": _above,
    "near": _near,
    "never": _never,
    "no_less": _no_less,
}
