"""Suggestions for misspelled or renamed entries of a schema, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_CALLED = {
    "lo": "min minimum low lower lower_bound start",
    "hi": "max maximum high upper upper_bound end",
    "values": "levels categories classes options choices",
    "edges": "cuts breaks thresholds boundaries bounds",
    "missing": "default fill fillna impute nan null",
    "typical": "range usual normal",
    "column": "source field from name",
    "base": "reference ref baseline drop",
    "transform": "log log1p",
    "indicator": "missing_indicator flag",
    "size": "width length",
    "unit": "units",
    "epoch": "origin since",
    "weight": "sample_weight case_weight",
    "scale": "divisor",
    "kind": "type dtype",
    "label": "target outcome y response",
    "columns": "features blocks",
    "ignore": "drop ignored skip exclude",
    "site": "hospital group center centre",
    "na": "missing nan null na_values",
    "intercept": "constant bias fit_intercept",
    "person": "patient subject id unit_of_privacy",
    "positive": "true yes one",
    "negative": "false no zero",
    "class_weight": "class_weights weights",
    "max": "cap hi upper maximum",
    "rows": "most max cap",
    "number": "numeric float integer int double real continuous count",
    "date": "datetime timestamp time day",
    "category": "categorical boolean bool logical string str text object enum factor nominal",
    "bins": "binned bucket buckets ordinal",
    "vector": "array list image pixels embedding",
}
"""Entries and kinds of a schema, and the words that other libraries and people use for them."""


def suggest_spelling(key: str, known: Iterable[str]) -> str:
    """Return a question that proposes a known entry for a wrong one; empty if it is like none."""
    names = list(known)
    spelled = key.strip().lower().replace("-", "_")
    called = [name for name in names if spelled in _CALLED.get(name, "").split()]
    called += [name for name in names if name.lower() == spelled]
    called += difflib.get_close_matches(spelled, names, n=1, cutoff=0.7)
    if not called:
        return ""
    return f"did you mean {called[0]}?"
