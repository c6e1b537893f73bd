"""Test a claim over the table: does it hold, as printed and at the proved epsilon, beyond the noise of replicates?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..typing import Any
from .kinds import Row
from .spec import Sentence, matches, select

REPRODUCED, NOT, NOISE, UNSEEN = "reproduced", "not reproduced", "within the noise", "no rows to test it on"
_WORDS = {1: "holds", -1: "fails", 0: "within the noise"}
SURE = 2.0
"""Standard errors of a difference that count as beyond the noise."""


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
        return f"{self.mean:.4g}" + (f" ± {SURE * self.error:.2g}" if self.error else "")


def judge(claim: Sentence, rows: list[Row], basis: Mapping[str, Any]) -> Judgement:
    """The verdict over the rows that `basis` selects.

    "reproduced": the test holds in every setting, by more than two standard errors of each difference;
    "not reproduced": in some setting it fails by as much; otherwise "within the noise".
    """
    kept = [row for row in rows if matches(row, basis) and _number(row.get(claim.value))]
    if kept and claim.test != "never" and all(row.get("replicate") == 0 for row in kept):
        return Judgement(NOISE, ("one replicate says nothing of the noise",))
    settings: dict[tuple[Any, ...], list[Row]] = {}
    for row in kept:
        settings.setdefault(tuple(row.get(key) for key in claim.by), []).append(row)
    marks, details, each = [], [], []
    for setting, those in settings.items():
        found = _TESTS[claim.test](claim, select(those, claim.filter))
        if found is not None:
            name = ", ".join(f"{key} {said(value)}" for key, value in zip(claim.by, setting, strict=True))
            marks.append(found[0])
            told = (f"{name}: " if name else "") + f"{found[1]}: {_WORDS[found[0]]}"
            details.append(told)
            at = {key: value for key, value in zip(claim.by, setting, strict=True) if value is not None}
            each.append({"at": at, "word": _WORDS[found[0]], "numbers": found[1]})
    if not marks:
        return Judgement(UNSEEN, ())
    word = NOT if min(marks) < 0 else REPRODUCED if min(marks) > 0 else NOISE
    return Judgement(word, tuple(details), tuple(each))


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


def said(value: Any) -> str:
    """A value of the table as it is written."""
    return f"{value:g}" if isinstance(value, float) else "" if value is None else str(value)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _mean(rows: list[Row], value: str) -> _Mean:
    values = np.array([float(row[value]) for row in rows])
    error = float(values.std(ddof=1) / math.sqrt(values.size)) if values.size > 1 else 0.0
    return _Mean(float(values.mean()), error)


def _sign(low: _Mean, high: _Mean) -> int:
    """1: surely low < high; -1: surely not; 0: the noise hides it."""
    gap, error = high.mean - low.mean, math.hypot(low.error, high.error)
    return 0 if abs(gap) <= SURE * error else 1 if gap > 0 else -1


def _extreme(claim: Sentence, rows: list[Row]) -> tuple[int, str] | None:
    own = [row for row in rows if matches(row, claim.of)]
    others: dict[Any, list[Row]] = {}
    for row in rows:
        if not matches(row, claim.of):
            others.setdefault(row.get(claim.among), []).append(row)
    if not own or not others:
        return None
    mine, theirs = _mean(own, claim.value), {name: _mean(those, claim.value) for name, those in others.items()}
    turned = claim.test == "greatest"
    signs = [_sign(other, mine) if turned else _sign(mine, other) for other in theirs.values()]
    best = (max if turned else min)(theirs, key=lambda name: theirs[name].mean)
    return min(signs), f"{mine} against {theirs[best]} ({best}, the best of the others)"


def _along(claim: Sentence, rows: list[Row]) -> tuple[int, str] | None:
    groups: dict[float, list[Row]] = {}
    for row in rows:
        if _number(row.get(claim.x)):
            groups.setdefault(float(row[claim.x]), []).append(row)
    if len(groups) < 2:
        return None
    at = sorted(groups)
    means = [_mean(groups[x], claim.value) for x in at]
    turned = claim.test == "rises"
    steps = [_sign(a, b) if turned else _sign(b, a) for a, b in itertools.pairwise(means)]
    whole = _sign(means[0], means[-1]) if turned else _sign(means[-1], means[0])
    mark = -1 if min(steps) < 0 or whole < 0 else whole
    told = f"{means[0]} at {claim.x} {at[0]:g}, {means[-1]} at {at[-1]:g}"
    if min(steps) < 0:  # a step the wrong way is why it fails
        k = steps.index(-1)
        told += f"; but {means[k]} at {at[k]:g} and {means[k + 1]} at {at[k + 1]:g}"
    return mark, told


def _pair(claim: Sentence, rows: list[Row]) -> tuple[_Mean, _Mean] | None:
    own, other = ([row for row in rows if matches(row, side)] for side in (claim.of, claim.than))
    return (_mean(own, claim.value), _mean(other, claim.value)) if own and other else None


def _less(claim: Sentence, rows: list[Row]) -> tuple[int, str] | None:
    pair = _pair(claim, rows)
    return None if pair is None else (_sign(*pair), f"{pair[0]} against {pair[1]}")


def _near(claim: Sentence, rows: list[Row]) -> tuple[int, str] | None:
    pair = _pair(claim, rows)
    if pair is None:
        return None
    gap, error = abs(pair[0].mean - pair[1].mean), SURE * math.hypot(pair[0].error, pair[1].error)
    mark = 1 if gap + error <= claim.within else -1 if gap - error > claim.within else 0
    return mark, f"{pair[0]} and {pair[1]}, {gap:.2g} apart (near is {claim.within:g})"


def _never(claim: Sentence, rows: list[Row]) -> tuple[int, str] | None:
    hits = sum(row[claim.value] != 0 for row in rows)
    return (-1 if hits else 1, f"{hits} of {len(rows)}") if rows else None


_TESTS = {
    "least": _extreme,
    "greatest": _extreme,
    "falls": _along,
    "rises": _along,
    "less": _less,
    "near": _near,
    "never": _never,
}
