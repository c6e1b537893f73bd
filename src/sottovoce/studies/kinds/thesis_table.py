"""003's Table 6.1, measured again, with the verdicts of :mod:`sottovoce.papers.claims` on what it claims of privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from ...papers import claims
from ...util.typing import Any, Array
from . import LETTER, Row
from .thesis_models import parties

_FALLS = "A falls > F stable"
THESIS: dict[str, dict[str, str]] = {
    "non-private": {"epsilon": "A > F", "rows": "A falls ≈ F falls", "aggregator_rows": "A > F falls",
                    "sites": "A falls ≈ F falls, then A falls < F stable"},
    "public-private": {"epsilon": _FALLS, "rows": _FALLS, "aggregator_rows": "A > F falls",
                       "sites": "A falls > F falls"},
    "private": {"epsilon": _FALLS, "rows": _FALLS, "aggregator_rows": "A > F falls", "sites": "A > F"},
}  # fmt: skip
"""003, Table 6.1: errors of the average method (A) and of the feature method (F), and how they move."""

FORMS = {
    "non-private": (("average", "feature"),),
    "public-private": (("average", "feature"), ("average, as printed", "feature, as printed")),
    "private": (
        ("average", "feature, fully private"), ("average, as printed", "feature, fully private, as printed"),
    ),
}  # fmt: skip
"""The methods that an entry compares: as proved, and as printed, both with their own sites."""
_ROW = 0.002  # differences below this are a row or two of the held-out ones
_MOVES = 0.005


def table_6_1(p: Mapping[str, Any]) -> list[Row]:
    """One entry of Table 6.1: the thesis's comparison and ours, along `values` of the parameter `along`.

    With privacy there are two: both methods as proved, and as printed.  Other parameters are those of parties.
    Columns: `order` and `trend` say whether the sign and the arrows that the entry prints agree with `measured`, `gap`
    is the average's error less the feature method's; `order_wrong` and `trend_wrong` are 1 where they differ.
    """
    along, setting = p["along"], p["setting"]
    plain = {key: value for key, value in p.items() if key not in ("along", "values")}
    values = [math.inf] if (setting, along) == ("non-private", "epsilon") else list(p["values"])
    found = [parties(plain | {along: value}) for value in values]
    out = []
    for mean, form in FORMS[setting]:
        average, feature = _errors(found, mean), _errors(found, form)
        ours, theirs = compared(average, feature), THESIS[setting][along]
        rows = [row for cell in found for row in cell if row["method"] == form]
        printed = form.endswith("printed")
        entry = {
            "form": _form(setting, printed), "thesis": theirs, "measured": ours,
            **agrees(theirs, average, feature), "privacy": verdict(setting, printed),
            "epsilon": max(row["epsilon"] for row in rows), "claimed": rows[-1]["claimed"],
            "_privacy": rows[0]["_privacy"],
        }  # fmt: skip
        pairs = zip(average.mean(axis=0).tolist(), feature.mean(axis=0).tolist(), strict=True)
        out += [entry | {"replicate": k, "average": a, "feature": f, "gap": a - f} for k, (a, f) in enumerate(pairs)]
    return out


CHANGES = {"local": 0.36, "global": 0.02}
"""003, section 5.3: how far the errors of models change over its values of epsilon."""


def changes(p: Mapping[str, Any]) -> list[Row]:
    """Section 5.3: the error at the first of two `values` of epsilon less that at the other, of every method.

    Other parameters are those of parties.  `source` is "here", or "003" for rows with the numbers that it prints.
    """
    plain = {key: value for key, value in p.items() if key != "values"}
    found = [parties(plain | {"epsilon": e, "setting": "private", "models": True}) for e in p["values"]]
    out: list[Row] = []
    for method in dict.fromkeys(row["method"] for row in found[0]):
        first, last = (_by_replicate(cell, method) for cell in found)
        for k, error in first.items():
            row: Row = {"method": method, "replicate": k}
            out.append(row | {"source": "here", "change": error - last[k]})
            if (said := CHANGES.get(method.removesuffix(LETTER))) is not None:
                out.append(row | {"source": "003", "change": said})
    return out


def _by_replicate(cell: list[Row], method: str) -> dict[int, float]:
    """Mean errors of a method's models, by replicate."""
    own: dict[int, list[float]] = {}
    for row in cell:
        if row["method"] == method:
            own.setdefault(row["replicate"], []).append(row["error"])
    return {k: float(np.mean(errors)) for k, errors in own.items()}


def _form(setting: str, printed: bool) -> str:
    return "as printed" if printed else "without noise" if setting == "non-private" else "as proved"


@lru_cache
def _claims() -> dict[str, claims.Claim]:
    return {claim.method: claim for claim in claims.table() if claim.paper.startswith("003")}


def verdict(setting: str, printed: bool) -> str:
    """What ``sottovoce claims`` says of the two methods' claims of privacy in a setting, or what ships instead."""
    if setting == "non-private":
        return "none is claimed"
    said = _claims()
    feature = said["feature method, fully private" if setting == "private" else "feature method 1"]
    instead = f"A {said['average method 1'].verdict}, F "
    return instead + (feature.verdict if printed or setting != "private" else f"corrected: {feature.corrected}")


def _errors(found: list[list[Row]], method: str) -> Array:
    """Errors, shape (values, replicates)."""
    return np.array([[row["error"] for row in cell if row["method"] == method] for cell in found])


def agrees(theirs: str, average: Array, feature: Array) -> dict[str, str | int]:
    """Whether the errors (values, replicates) agree with an entry of Table 6.1, its order and its arrows each.

    An entry of one part must hold in both halves of the sweep, one "then" by its halves, in order.  An arrow is judged
    over its part; "stable" is one, and a method without an arrow has none.
    """
    parts = theirs.split(", then ")
    halves = np.array_split(np.arange(len(average)), 2) if len(average) > 1 else [np.arange(len(average))]
    wrong: dict[str, int | None] = {"order": 0, "trend": None}
    for k, half in enumerate(halves):
        sign = "≈><"[_sign(average[half] - feature[half], _ROW)]
        wrong["order"] = max(wrong["order"] or 0, int(sign not in parts[min(k, len(parts) - 1)]))
    for some, part in zip([np.arange(len(average))] if len(parts) == 1 else halves, parts, strict=False):
        words = part.split()
        for letter, errors in (("A", average), ("F", feature)):
            word = (words[words.index(letter) + 1 :] or [""])[0]
            if word in ("falls", "rises", "stable"):
                wrong["trend"] = max(wrong["trend"] or 0, int(_trend(errors[some]).strip() != word))
    told = {key: "none printed" if one is None else ("agrees", "differs")[one] for key, one in wrong.items()}
    return {**told, **{f"{key}_wrong": one for key, one in wrong.items() if one is not None}}


def compared(average: Array, feature: Array) -> str:
    """What the errors (values, replicates) of two methods say, in the words of Table 6.1.

    A difference counts if it is larger than two standard errors and than one or two held-out rows.
    """
    n = len(average)
    signs = [_sign(average[some] - feature[some], _ROW) for some in np.array_split(np.arange(n), 2) if len(some)]
    trends = [_trend(errors) for errors in (average, feature)]
    orders = [f"A{trends[0]} {'≈><'[sign]} F{trends[1]}" for sign in dict.fromkeys(signs)]
    return ", then ".join(orders)


def _sign(differences: Array, least: float) -> int:
    each = differences.mean(axis=0)
    error = each.std(ddof=1) / math.sqrt(each.size) if each.size > 1 else 0.0
    middle = float(each.mean())
    return 0 if abs(middle) <= max(least, 2.0 * error) else int(math.copysign(1, middle))


def _trend(errors: Array) -> str:
    if len(errors) < 2:
        return ""
    some = max(1, len(errors) // 3)
    move = _sign(errors[-some:].mean(axis=0)[None] - errors[:some].mean(axis=0)[None], _MOVES)
    return (" stable", " rises", " falls")[move]
