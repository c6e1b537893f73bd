"""The page of a run, and its answers for other pages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ..privacy.statement import Statement, Words, ceil_text
from ..util.pages import Column, Table, render
from ..util.typing import Any
from .causes import blames_noise, cause_of
from .coefficients import (
    CONSTANT,
    coefficient_section,
    compared,
    has_intervals,
    has_odds,
    interval,
    needed,
    refusals,
    scaled,
)
from .plain import finite, number, of_anybody, percent
from .quality import quality_section

_BOLDEST = 3  # coefficients in the sentences on top


# Who, at what price, with which promise


def _sites(plain: dict[str, Any], privacy: Statement) -> Table:
    sizes = [finite(x) for x in plain["n_train"]]
    names = [str(name) for name in plain.get("sites") or [f"site {i}" for i in range(len(sizes))]]
    spent = (
        privacy.per_node if len(privacy.per_node) == len(sizes) else (privacy.epsilon,) * len(sizes)
    )
    one = "person" if privacy.counted == "people" else "row"
    columns = [
        Column("site", "name"),
        Column(f"training {privacy.counted}", "n"),
        Column(f"epsilon of each {one}", "n"),
    ]
    rows = [
        [name, f"{size:,.0f}", ceil_text(epsilon)]
        for name, size, epsilon in zip(names, sizes, spent, strict=True)
    ]
    return Table(columns, [*rows, ["together", f"{sum(sizes):,.0f}", ""]])


class Cost(NamedTuple):
    """The privacy cost of a run: totals, the state of its ledger, and shares of releases."""

    totals: Table
    ledger: str
    shares: list[Table]


def _cost(plain: dict[str, Any], privacy: Statement) -> Cost:
    totals, shares = (
        [_total("training rows", privacy)],
        [_shares("training rows", plain.get("asked"))],
    )
    if found := plain.get("evaluation"):
        totals.append(_total("held-out rows", Statement.from_dict(found["privacy"])))
        shares.append(_shares("held-out rows", found.get("asked")))
    columns = [
        Column(""),
        *(Column(head, "n") for head in ("epsilon", "delta", "releases", "accountant")),
    ]
    said = ""
    if book := privacy.ledger:
        said = (
            f"Ledger: run {book.run}; {ceil_text(book.spent)} spent of {min(book.budget):g} "
            "for life."
        )
    return Cost(Table(columns, totals), said, [table for table in shares if table.rows])


def _total(name: str, privacy: Statement) -> list[str]:
    return [
        name,
        ceil_text(privacy.epsilon),
        f"{privacy.delta:g}",
        str(privacy.releases),
        privacy.accountant,
    ]


def _shares(name: str, asked: Any) -> Table:
    columns = [Column(f"rows of the ledger, {name}"), Column("share of the budget", "n")]
    return Table(
        columns, [[str(one["release"]), percent(finite(one["share"]), 0)] for one in asked or ()]
    )


class Promise(NamedTuple):
    """The privacy statement of a run, and that of held-out rows where it is another."""

    words: Words
    terms: list[tuple[str, str]]
    held_out: Words


def _promise(plain: dict[str, Any], privacy: Statement) -> Promise:
    entries = [
        ("Neighbouring tables", privacy.relation),
        ("Protected", privacy.unit),
        ("Adversary", privacy.trust.adversary),
        ("Taken as known to everybody", privacy.public),
    ]
    held_out: Words = []
    if found := plain.get("evaluation"):
        held = Statement.from_dict(found["privacy"])
        if (held.relation, held.trust) != (
            privacy.relation,
            privacy.trust,
        ) or held.epsilon != privacy.epsilon:
            held_out = held.words
    return Promise(privacy.words, [(name, text) for name, text in entries if text], held_out)


# The whole page


def outcome_of(plain: dict[str, Any]) -> str:
    """Return the predicted event or number, in words."""
    label = plain.get("label")
    if label:
        return (
            f"{label['column']} = {label['positive']}"
            if "positive" in label
            else str(label["column"])
        )
    return "a positive label" if has_odds(plain.get("coefficients") or ()) else "a number"


def answer(plain: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the main result in one plain sentence, and a list of further ones."""
    what, said = outcome_of(plain), list[str]()
    lines = [line for line in plain.get("coefficients") or () if line["name"] != CONSTANT]
    if has_intervals(lines):
        said += _effects(lines, what, needed(plain.get("needs")))
    if found := plain.get("evaluation"):
        said += _good(found, what)
    return (
        (said[0], said[1:])
        if said
        else (f"A model of {what} was trained; how good it is was not asked.", [])
    )


def _no_effects(lines: Sequence[dict[str, Any]], needs: str) -> list[str]:
    """Sentences on a table without a printed coefficient."""
    if blames_noise(lines):
        return [
            f"No coefficient can be told from noise at this budget ({needs or 'more rows'} would "
            "do, about)."
        ]
    return [f"No coefficient is printed. {why[:1].upper()}{why[1:]}." for _, why in refusals(lines)]


def _clearest(
    printed: Sequence[dict[str, Any]],
) -> list[tuple[float, float, float, dict[str, Any]]]:
    """Low end, estimate and high end of the lines that differ clearly, and the lines, the
    clearest first.
    """
    every = [(*scaled(line), line) for line in printed]
    clear = [one for one in every if one[0] > 0 or one[2] < 0]
    return sorted(clear, key=lambda one: -abs(one[1]) / max(one[2] - one[0], 1e-300))


def _effects(lines: Sequence[dict[str, Any]], what: str, needs: str) -> list[str]:
    """Sentences on the clearest effects, and the number of others."""
    printed, odds = [line for line in lines if line.get("refused") is None], has_odds(lines)
    if not printed:
        return _no_effects(lines, needs)
    clear = _clearest(printed)
    if not clear:
        return [f"Of {len(printed)} coefficients none differs clearly from no difference at all."]
    subject = f"the odds of {what} are" if odds else f"values of {what} are"
    said = [f"Most clear is {_between(clear[0][3])}: {subject} {_size(clear[0], odds)}."]
    said += [f"Then {_between(one[3])}: {_size(one, odds)}." for one in clear[1:_BOLDEST]]
    counts = (
        (len(clear) - _BOLDEST, "more that differ clearly"),
        (len(printed) - len(clear), "without a clear difference"),
        *_refused(lines),
    )
    if more := [f"{n} {which}" for n, which in counts if n > 0]:
        said.append(f"Other coefficients: {', '.join(more)}.")
    return said


def _refused(lines: Sequence[dict[str, Any]]) -> list[tuple[int, str]]:
    """How many lines are refused, by cause."""
    causes = Counter(cause_of(line) for line in lines if line.get("refused") is not None)
    return [
        (n, "refused" if cause is None else f"refused, {cause.brief}")
        for cause, n in causes.items()
    ]


def _between(line: dict[str, Any]) -> str:
    """The values that a line compares."""
    if line["level"] is None:
        return f"{line['name']}, {compared(line)}"
    against = f" against {line['reference']}" if line["reference"] is not None else ""
    return f"{line['name']} {line['level']}{against}"


def _size(one: tuple[float, float, float, dict[str, Any]], odds: bool) -> str:
    """Size of an effect, with its interval."""
    low, mid, high, _ = one
    if not odds:
        near, far = sorted((abs(low), abs(high)))
        return (
            f"{abs(mid):.3g} {'higher' if mid > 0 else 'lower'} on average ({near:.3g} to "
            f"{far:.3g})"
        )
    value, rest = interval(low, mid, high, odds).split(" ", 1)
    return f"{value} times as high {rest}"


_TOO_FEW = "Held-out rows are too few for this noise to tell how good the model is."


def _good(found: dict[str, Any], what: str) -> list[str]:
    """Sentences on the quality on held-out rows."""
    if "classes" in found and found["accuracy"]["value"] is None:
        return [_TOO_FEW]
    if "classes" in found:
        value, low, high = (
            percent(finite(found["accuracy"][name]), 0) for name in ("value", "low", "high")
        )
        return [
            f"Of rows that it was not trained on, {value} are answered rightly ({low} to {high})."
        ]
    area = found["auc"] if "auc" in found else found["mean_absolute_error"]
    if area["value"] is None:
        return [_TOO_FEW]
    if "auc" not in found:
        value, low, high = (f"{finite(area[name]):.3g}" for name in ("value", "low", "high"))
        unit = f" {found['unit']}" if found.get("unit") else ""
        return [
            f"On rows that it was not trained on, predictions of {what} are off by {value}{unit} "
            "on average "
            f"({low} to {high})."
        ]

    def share(plain: dict[str, Any], of: str = "") -> str:
        value, low, high = (percent(finite(plain[name]), 0) for name in ("value", "low", "high"))
        return f"{value}{of} ({low} to {high})"

    said = [
        f"On rows that it was not trained on, the model gives one with {what} a higher probability "
        "than one without in "
        f"{share(area, ' of pairs')}; 50% is guessing."
    ]
    hit, right = found["rates"]["sensitivity"], found["rates"]["precision"]
    if hit["value"] is not None:
        cut = f"{100.0 * finite(found['threshold']):g}%"
        rest = f"; {share(right, ' of calls')} are right" if right["value"] is not None else ""
        said.append(f"Calls from {cut} on find {share(hit)} of those with {what}{rest}.")
    return said


def sections(plain: dict[str, Any], *, holder: bool = False) -> dict[str, Any]:
    """Return the sections of a page: its coefficients and quality, each None if not asked for.

    They are the values of templates/sections.html; `holder` and errors are as in :func:`page`.
    """
    with of_anybody():
        return {
            "coefficients": coefficient_section(plain) if plain.get("coefficients") else None,
            "quality": quality_section(plain, holder) if plain.get("evaluation") else None,
        }


def page(plain: dict[str, Any], *, title: str | None = None, holder: bool = False) -> str:
    """Render a self-contained HTML page of a finished run.

    Parameters
    ----------
    plain : dict
        A run's record: that of ``run.json``, or what ``train --json`` prints.
    title : str, optional
        By default from the label's name.
    holder : bool
        Whether to show, marked, numbers without noise, which only the holder of the rows may see.

    Returns
    -------
    str
        HTML without external resources, with all texts escaped.

    Raises
    ------
    InvalidInput
        If `plain` holds something else.
    """
    with of_anybody():
        privacy = Statement.from_dict(plain["privacy"])
        what = outcome_of(plain)
        asked = (
            f"What goes with {what}"
            if has_intervals(plain.get("coefficients") or ())
            else f"A model of {what}"
        )
        held = plain.get("evaluation")
        lead, points = answer(plain)
        return render(
            "run.html",
            title=title or asked,
            lead=lead,
            points=points,
            trained_on=_trained_on(plain, privacy),
            warning=_warning([privacy, *([Statement.from_dict(held["privacy"])] if held else [])]),
            **sections(plain, holder=holder),
            sites=_sites(plain, privacy),
            cost=_cost(plain, privacy),
            promise=_promise(plain, privacy),
            holder=holder,
            exact=_exact(plain) if holder else None,
            notes=[str(note) for note in plain.get("notes") or ()] if holder else [],
            command=str(plain.get("command") or ""),
            made=_made(plain, privacy),
        )


def _trained_on(plain: dict[str, Any], privacy: Statement) -> str:
    """How many rows of which table; of its path only the last part, since the rest is private."""
    sizes = [finite(x) for x in plain["n_train"]]
    sites = f" at {len(sizes)} sites" if len(sizes) > 1 else ""
    path = str(plain.get("data") or "a table").replace("\\", "/")
    return f"{sum(sizes):,.0f} {privacy.counted}{sites} of {path.rstrip('/').rpartition('/')[2]}"


def _warning(promises: Sequence[Statement]) -> str:
    """Which warning stands on top: ``no guarantee``, ``simulation``, or none."""
    if any(math.isinf(privacy.epsilon) for privacy in promises):
        return "no guarantee"
    if any(privacy.simulated for privacy in promises):
        return "simulation"
    return ""


def _exact(plain: dict[str, Any]) -> Table:
    """Numbers without noise, which no epsilon covers."""
    exact = {name: value for name, value in (plain.get("exact") or {}).items() if name != "rows"}
    errors = {
        "test_error": "error of the model",
        "nonprivate_test_error": "error of the best linear model without privacy",
    }
    exact |= {text: plain[name] for name, text in errors.items() if plain.get(name) is not None}
    rows = [[name, f"{number(value):.4f}"] for name, value in exact.items()]
    return Table([Column("on test rows"), Column("", "n")], rows)


def _made(plain: dict[str, Any], privacy: Statement) -> str:
    """With what a run was made, in sentences."""
    said = []
    if plain.get("method"):
        said.append(f"Method {plain['method']}.")
    if plain.get("versions"):
        said.append(f"{plain['versions']}.")
    source = "the seed" if privacy.simulated else "the operating system"
    return " ".join([*said, f"All noise comes from {source}."])
