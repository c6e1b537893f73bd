"""Test a claim over the table: does it hold, as printed and at the proved epsilon, beyond the noise of replicates?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from ..typing import Any
from .kinds import Row
from .spec import Sentence, matches, select

REPRODUCED, PART, NOT, NOISE = "reproduced", "reproduced in part", "not reproduced", "within the noise"
UNSEEN = "no rows to test it on"
HOLDS, SOME, FAILS, HIDDEN = "holds", "holds in part", "fails", "within the noise"
"""Of one setting.  A trend holds in part if its ends show it and a step on the way goes against it."""
SURE = 2.0
"""Standard errors of a difference that count as beyond the noise."""


def least_sure(many: int) -> float:
    """Standard errors beyond which a difference goes against a claim, of which one of `many` may do so by chance.

    All together are wrong as rarely as one difference is by more than ``SURE`` (Bonferroni).
    """
    return -NormalDist().inv_cdf(NormalDist().cdf(-SURE) / many)


@dataclass(frozen=True)
class Judgement:
    """A verdict in a word, with a text for each setting that it is based on."""

    word: str
    details: tuple[str, ...]
    settings: tuple[dict[str, Any], ...] = ()
    """Plain data of each setting: `at` (the values of `by`), `word` and `numbers`."""


@dataclass(frozen=True)
class _Mean:
    mean: float
    error: float
    """Standard error; 0 for one value alone."""

    def __str__(self) -> str:
        rounding = self.error <= 1e-12 * abs(self.mean)
        return f"{self.mean:.4g}" + ("" if rounding else f" ± {SURE * self.error:.2g}")


def judge(claim: Sentence, rows: list[Row], basis: Mapping[str, Any]) -> Judgement:
    """The verdict over the rows that `basis` selects.

    A test holds in a setting by more than two standard errors of each difference.  It fails by more than
    :func:`least_sure`, since of many differences some are large by chance.  "reproduced": it holds in every setting;
    "reproduced in part": in some; "not reproduced": it holds in none, and fails in some; else "within the noise".
    """
    kept = [row for row in rows if matches(row, basis) and _number(row.get(claim.value))]
    noisy = claim.test != "never" and claim.noise is None
    if kept and noisy and all(row.get("replicate") == 0 for row in kept):
        return Judgement(NOISE, ("one replicate says nothing of the noise",))
    settings: dict[tuple[Any, ...], list[Row]] = {}
    for row in kept:
        settings.setdefault(tuple(row.get(key) for key in claim.by), []).append(row)
    chosen = {setting: select(those, claim.filter) for setting, those in settings.items()}
    many = sum(_TESTS[claim.test](claim, those, 1) is not None for those in chosen.values())
    words, details, each = [], [], []
    for setting, those in chosen.items():
        found = _TESTS[claim.test](claim, those, many)
        if found is not None:
            word, numbers = found
            name = ", ".join(f"{key} {said(value)}" for key, value in zip(claim.by, setting, strict=True))
            words.append(word)
            details.append((f"{name}: " if name else "") + f"{numbers}: {word}")
            at = {key: value for key, value in zip(claim.by, setting, strict=True) if value is not None}
            each.append({"at": at, "word": word, "numbers": numbers})
    return Judgement(_whole(words), tuple(details), tuple(each))


def _whole(words: list[str]) -> str:
    if not words:
        return UNSEEN
    if set(words) == {HOLDS}:
        return REPRODUCED
    return PART if {HOLDS, SOME} & set(words) else NOT if FAILS in words else NOISE


def plain(claim: Sentence, printed: Judgement | None, proved: Judgement | None) -> dict[str, Any]:
    """A claim and its verdicts as plain data: what ``verdicts.json`` holds."""

    def one(found: Judgement | None, basis: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if found is None:
            return None
        return {"verdict": found.word, "of": dict(basis or {}), "settings": list(found.settings)}

    tested = {"test": claim.test, "value": claim.value, "by": list(claim.by), "filter": dict(claim.filter)}
    return {
        "claim": claim.says, "settings": tested, "printed": one(printed, claim.printed),
        "proved": one(proved, claim.proved),
    }  # fmt: skip


def counted(settings: Sequence[Mapping[str, Any]]) -> str:
    """In how many of the settings a claim holds, and fails, in words."""
    words = [setting["word"] for setting in settings]
    told = [f"holds in {words.count(HOLDS)}"]
    told += [f"{verb} in {words.count(word)}" for verb, word in (("in part", SOME), ("fails", FAILS)) if word in words]
    return f"{', '.join(told)} of {len(words)}"


def said(value: Any) -> str:
    """A value of the table as it is written."""
    return f"{value:g}" if isinstance(value, float) else "" if value is None else str(value)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _mean(rows: list[Row], claim: Sentence) -> _Mean:
    values = np.array([float(row[claim.value]) for row in rows])
    error = float(values.std(ddof=1) / math.sqrt(values.size)) if values.size > 1 else 0.0
    return _Mean(float(values.mean()), math.hypot(error, claim.noise or 0.0))


def _sign(low: _Mean, high: _Mean, many: int) -> int:
    """1: surely low < high; -1: surely not; 0: the noise hides it."""
    gap, error = high.mean - low.mean, math.hypot(low.error, high.error)
    return 1 if gap > SURE * error else -1 if -gap > least_sure(many) * error else 0


_MARKS = {1: HOLDS, 0: HIDDEN, -1: FAILS}
_Found = tuple[str, str] | None


def _extreme(claim: Sentence, rows: list[Row], many: int) -> _Found:
    own = [row for row in rows if matches(row, claim.of)]
    others: dict[Any, list[Row]] = {}
    for row in rows:
        if not matches(row, claim.of):
            others.setdefault(row.get(claim.among), []).append(row)
    if not own or not others:
        return None
    mine, theirs = _mean(own, claim), {name: _mean(those, claim) for name, those in others.items()}
    turned, many = claim.test == "greatest", many * len(theirs)
    signs = [_sign(other, mine, many) if turned else _sign(mine, other, many) for other in theirs.values()]
    best = (max if turned else min)(theirs, key=lambda name: theirs[name].mean)
    return _MARKS[min(signs)], f"{mine} against {theirs[best]} ({said(best)}, the best of the others)"


def _along(claim: Sentence, rows: list[Row], many: int) -> _Found:
    groups: dict[float, list[Row]] = {}
    for row in rows:
        if _number(row.get(claim.x)):
            groups.setdefault(float(row[claim.x]), []).append(row)
    if len(groups) < 2:
        return None
    at = sorted(groups)
    means = [_mean(groups[x], claim) for x in at]
    turned, steps_of_all = claim.test == "rises", many * (len(at) - 1)
    pairs = [pair if turned else pair[::-1] for pair in itertools.pairwise(means)]
    steps = [_sign(*pair, steps_of_all) for pair in pairs]
    whole = _sign(means[0], means[-1], many) if turned else _sign(means[-1], means[0], many)
    told = f"{means[0]} at {claim.x} {at[0]:g}, {means[-1]} at {at[-1]:g}"
    if min(steps) >= 0:
        return _MARKS[whole], told
    k = steps.index(-1)  # a step the wrong way
    told += f"; but {means[k]} at {at[k]:g} and {means[k + 1]} at {at[k + 1]:g}"
    return SOME if whole > 0 else FAILS, told


def _pair(claim: Sentence, rows: list[Row]) -> tuple[_Mean, _Mean] | None:
    own, other = ([row for row in rows if matches(row, side)] for side in (claim.of, claim.than))
    return (_mean(own, claim), _mean(other, claim)) if own and other else None


def _less(claim: Sentence, rows: list[Row], many: int) -> _Found:
    pair = _pair(claim, rows)
    return None if pair is None else (_MARKS[_sign(*pair, many)], f"{pair[0]} against {pair[1]}")


def _steadier(claim: Sentence, rows: list[Row], many: int) -> _Found:
    """`less`, of every replicate's standard deviation over its rows."""

    def spread(side: Mapping[str, Any]) -> list[Row]:
        own: dict[Any, list[float]] = {}
        for row in rows:
            if matches(row, side):
                own.setdefault(row.get("replicate"), []).append(float(row[claim.value]))
        return [{claim.value: float(np.std(values, ddof=1))} for values in own.values() if len(values) > 1]

    own, other = spread(claim.of), spread(claim.than)
    if not own or not other:
        return None
    pair = _mean(own, claim), _mean(other, claim)
    return _MARKS[_sign(*pair, many)], f"standard deviation {pair[0]} against {pair[1]}"


def _narrows(claim: Sentence, rows: list[Row], many: int) -> _Found:
    """The gap from `of` up to `than` is smaller at the largest `x` than at the smallest."""
    xs = sorted({float(row[claim.x]) for row in rows if _number(row.get(claim.x))})
    gaps = []
    for x in (xs[0], xs[-1]) if len(xs) > 1 else ():
        pair = _pair(claim, [row for row in rows if row.get(claim.x) == x])
        if pair is not None:
            gaps.append(_Mean(pair[1].mean - pair[0].mean, math.hypot(pair[0].error, pair[1].error)))
    if len(gaps) < 2:
        return None
    first, last = gaps
    return _MARKS[_sign(last, first, many)], f"a gap of {first} at {claim.x} {xs[0]:g}, of {last} at {xs[-1]:g}"


def _above(claim: Sentence, rows: list[Row], many: int) -> _Found:
    if not rows:
        return None
    mean = _mean(rows, claim)
    return _MARKS[_sign(_Mean(claim.level, 0.0), mean, many)], str(mean)


def _near(claim: Sentence, rows: list[Row], many: int) -> _Found:
    pair = _pair(claim, rows)
    if pair is None:
        return None
    gap, error = abs(pair[0].mean - pair[1].mean), math.hypot(pair[0].error, pair[1].error)
    mark = 1 if gap + SURE * error <= claim.within else -1 if gap - least_sure(many) * error > claim.within else 0
    return _MARKS[mark], f"{pair[0]} and {pair[1]}, {gap:.2g} apart (near is {claim.within:g})"


def _never(claim: Sentence, rows: list[Row], many: int) -> _Found:
    hits = sum(row[claim.value] != 0 for row in rows)
    return (FAILS if hits else HOLDS, f"{hits} of {len(rows)}") if rows else None


_TESTS = {
    "least": _extreme,
    "greatest": _extreme,
    "falls": _along,
    "rises": _along,
    "less": _less,
    "steadier": _steadier,
    "narrows": _narrows,
    "above": _above,
    "near": _near,
    "never": _never,
}
