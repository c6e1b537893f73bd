"""003's Table 6.1, measured again, with the verdicts of :mod:`sottovoce.papers.claims` on what it claims of privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from ...papers import claims
from ...util.typing import Any, Array
from . import Row
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
            "order": "agrees" if _order(ours) == _order(theirs) else "differs", "privacy": verdict(setting, printed),
            "epsilon": max(row["epsilon"] for row in rows), "claimed": rows[-1]["claimed"],
            "_privacy": rows[0]["_privacy"],
        }  # fmt: skip
        pairs = zip(average.mean(axis=0).tolist(), feature.mean(axis=0).tolist(), strict=True)
        out += [entry | {"replicate": k, "average": a, "feature": f, "gap": a - f} for k, (a, f) in enumerate(pairs)]
    return out


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


def _order(words: str) -> str:
    return "".join(dict.fromkeys(letter for letter in words if letter in "<>≈"))
