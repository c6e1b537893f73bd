"""A privacy statement in sentences, for people: numbers are rounded so that no guarantee looks stronger than it is."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..typing import Any

PUBLIC = "row counts, labels' names, schema, graph, schedules, number of rounds"
"""What every statement takes as known to everybody; where one of these was read off rows, a caveat says so."""

_NAMES = {"pure": "sum of pure epsilons", "zcdp": "zCDP", "rdp": "Renyi", "pld": "loss distributions"}


def ceil_text(epsilon: float, digits: int = 3) -> str:
    """Epsilon in text, rounded up; what double precision adds to a sum is no digit of it."""
    if math.isinf(epsilon):
        return "inf"
    scale = 10**digits
    return f"{math.ceil(epsilon * scale * (1.0 - 1e-12)) / scale:.{digits}f}"


def factor_text(epsilon: float) -> str:
    """``exp(epsilon)`` in text, rounded up to three digits."""
    power = math.floor(epsilon / math.log(10.0))
    if power > 6:
        return f"10^{power + 1}"
    step = 10.0 ** (power - 2)
    return f"{math.ceil(math.exp(epsilon) / step * (1.0 - 1e-12)) * step:.{max(0, 2 - power)}f}"


Caveat = str | Iterable[str | None] | None
"""What a guarantee does not cover: nothing, a text, or several, of which some may be None."""


def caveat_text(caveat: Caveat) -> str | None:
    """All of it as one text; None if there is nothing to say."""
    texts = [caveat] if isinstance(caveat, str) else caveat or ()
    return "; ".join(dict.fromkeys(text for text in texts if text)) or None


def _sentence(privacy: dict[str, Any]) -> str:
    """(epsilon, delta)-differential privacy itself: it bounds the probability of every set, in both directions."""
    alone = privacy["unit"] == "one row of one site"
    subject, place = ("the row", "its place") if alone else ("these rows", "their place")
    replaced = privacy["relation"] == "replace-one"
    other = ("another" if alone else "others") if replaced else ("an empty one" if alone else "empty ones")
    plus = "" if privacy["delta"] == 0 else f", plus {float(privacy['delta'])!r}"
    return (
        f"whatever set of outcomes one looks at, its probability with {subject} is at most "
        f"{factor_text(privacy['epsilon'])} times its probability with {other} in {place}{plus}"
        + ("" if replaced else ", and the other way round")
    )


def privacy_words(privacy: dict[str, Any]) -> list[tuple[str, str]]:
    """The statement as (headline, rest) pairs, one a paragraph."""
    epsilon, delta = privacy["epsilon"], privacy["delta"]
    if math.isinf(epsilon):
        reason = "the run drew no noise" if privacy["form"] == "corrected" else "nothing can be proved for this form"
        words = [("No privacy guarantee", f": {reason} (epsilon = inf).")]
    else:
        stated = "delta = 0 (pure)" if delta == 0 else f"delta = {float(delta)!r}"
        others = {k: e for k, e in privacy["accountants"].items() if k != privacy["accountant"]}
        compared = ", ".join(f"{_NAMES.get(k, k)} {ceil_text(e)}" for k, e in others.items() if math.isfinite(e))
        by = f"{_NAMES.get(privacy['accountant'], privacy['accountant'])}, {privacy['releases']} releases a site"
        words = [(f"epsilon = {ceil_text(epsilon)}", f", {stated}, proved; by {by}{compared and f' (by {compared})'}.")]
        protects = f"Protects {privacy['unit']} ({privacy['relation']}) against whoever {privacy['adversary']}"
        words.append(("", f"{protects}: {_sentence(privacy)}."))
    if "early" in privacy:
        words.append(("Ended early", f": {privacy['early']}."))
    if "caveat" in privacy:
        words.append(("Not covered", f": {privacy['caveat']}."))
    if "printed_claim" in privacy:
        claim = privacy["printed_claim"]
        verdict = "is not proved" if claim < epsilon * (1 - 1e-9) else "holds, and is loose"
        paper = f": the paper claims {ceil_text(claim)}, which {verdict}. Assumes {privacy['assumes']}."
        words.append(("As printed", paper))
    if not privacy["release"] and math.isfinite(epsilon):
        words.append(("Simulation, not a release", ": whoever knows the seed can remove the noise."))
    return words


def plain_words(privacy: dict[str, Any]) -> str:
    """The same as plain text."""
    return "\n".join(head + rest for head, rest in privacy_words(privacy))
