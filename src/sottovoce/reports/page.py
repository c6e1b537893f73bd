"""The HTML page of a finished run, and the sections of it that other pages include.

:func:`page` is called by ``sottovoce report`` and ``--report``, and :func:`sections` and
:func:`answer` by the pages of hub and sites (:mod:`sottovoce.deploy.report`).  `plain` is a run's
record, as the package says; `lines` are those of :mod:`sottovoce.reports.coefficients`, `what` is
the predicted event or number in words, and `holder` asks for numbers without noise too, which only
the holder of the rows may see.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ..privacy.statement import Statement, Words, ceil_text
from ..util.pages import Column, Table, render_template
from ..util.typing import Any
from .causes import all_refused_by_noise, cause_of_line
from .coefficients import (
    CONSTANT,
    Ratio,
    build_coefficient_section,
    has_intervals,
    interval_text,
    ratio_of,
    refusals,
    scaled_interval,
    sufficient_budget_text,
)
from .paragraphs import data_protection, statistical_methods
from .plain import format_percentage, number, read_finite_number, refusing_foreign_documents
from .quality import build_quality_section
from .terms import terms_of

_BOLDEST = 3
"""Most coefficients that have a sentence of their own on top of the page."""


# Sites, privacy cost and privacy statement


def _sites_table(plain: dict[str, Any], privacy: Statement) -> Table:
    """Return the table of sites: their names, rows or people, and the epsilon of each of these."""
    sizes = [read_finite_number(x) for x in plain["n_train"]]
    default_names = [f"site {i}" for i in range(len(sizes))]
    names = [str(name) for name in plain.get("sites") or default_names]
    spent = privacy.per_node
    if len(spent) != len(sizes):
        # One epsilon stands for all sites.
        spent = (privacy.epsilon,) * len(sizes)
    unit = "person" if privacy.counted == "people" else "row"
    columns = [
        Column("site", "name"),
        Column(f"training {privacy.counted}", "n"),
        Column(f"epsilon of each {unit}", "n"),
    ]
    rows = [
        [name, f"{size:,.0f}", ceil_text(epsilon)]
        for name, size, epsilon in zip(names, sizes, spent, strict=True)
    ]
    return Table(columns, [*rows, ["together", f"{sum(sizes):,.0f}", ""]])


class Cost(NamedTuple):
    """The privacy cost of a run, for training rows and, if there are any, held-out rows."""

    totals: Table
    """Epsilon, delta, releases and accountant."""
    ledger: str
    """What is spent of the ledger's lifetime budget; empty without a ledger."""
    shares: list[Table]
    """Share of the budget of each release."""


def _privacy_cost(plain: dict[str, Any], privacy: Statement) -> Cost:
    """Return the cost of a run; `privacy` is the statement on its training rows."""
    totals = [_cost_row("training rows", privacy)]
    shares = [_budget_shares_table("training rows", plain.get("asked"))]
    if found := plain.get("evaluation"):
        totals.append(_cost_row("held-out rows", Statement.from_dict(found["privacy"])))
        shares.append(_budget_shares_table("held-out rows", found.get("asked")))
    heads = ("epsilon", "delta", "releases", "accountant")
    columns = [Column(""), *(Column(head, "n") for head in heads)]
    said = ""
    if book := privacy.ledger:
        said = (
            f"Ledger: run {book.run}; {ceil_text(book.spent)} spent of {min(book.budget):g} for "
            "life."
        )
    return Cost(Table(columns, totals), said, [table for table in shares if table.rows])


def _cost_row(name: str, privacy: Statement) -> list[str]:
    """Return a row of the table of totals; epsilon is rounded up."""
    return [
        name,
        ceil_text(privacy.epsilon),
        f"{privacy.delta:g}",
        str(privacy.releases),
        privacy.accountant,
    ]


def _budget_shares_table(name: str, asked: Any) -> Table:
    """Return the share of the budget of each release; `asked` is None where that is not known."""
    columns = [Column(f"release, {name}"), Column("share of the budget", "n")]
    rows = [
        [str(one["release"]), format_percentage(read_finite_number(one["share"]), 0)]
        for one in asked or ()
    ]
    return Table(columns, rows)


class Promise(NamedTuple):
    """The privacy statement of a run, and that of held-out rows where it is another."""

    words: Words
    terms: list[tuple[str, str]]
    """Names of what the statement assumes, such as the adversary, with their texts."""
    held_out: Words
    """Empty where the statement on held-out rows is the same."""


def _privacy_promise(plain: dict[str, Any], privacy: Statement) -> Promise:
    """Return the statement on training rows with its terms, and any other on held-out rows."""
    entries = [
        ("Neighbouring tables", privacy.relation),
        ("Protected", privacy.unit),
        ("Adversary", privacy.trust.adversary),
        ("Assumed public", privacy.public),
    ]
    held_out: Words = []
    if found := plain.get("evaluation"):
        held = Statement.from_dict(found["privacy"])
        same_terms = held.relation == privacy.relation and held.trust == privacy.trust
        if not same_terms or held.epsilon != privacy.epsilon:
            held_out = held.words
    return Promise(privacy.words, [(name, text) for name, text in entries if text], held_out)


# The whole page


def outcome_in_words(plain: dict[str, Any]) -> str:
    """Return the predicted event or number, in words."""
    label = plain.get("label")
    if label and "positive" in label:
        return f"{label['column']} = {label['positive']}"
    if label:
        return str(label["column"])
    if ratio_of(plain.get("coefficients") or ()):
        return "a positive label"
    return "a number"


def answer(plain: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the main result in one plain sentence, and a list of further ones."""
    what = outcome_in_words(plain)
    said = list[str]()
    lines = [line for line in plain.get("coefficients") or () if line["name"] != CONSTANT]
    if has_intervals(lines):
        said += _effect_sentences(lines, what, sufficient_budget_text(plain.get("needs")))
    if found := plain.get("evaluation"):
        said += _quality_sentences(found, what)
    if not said:
        return f"A model of {what} was trained; no evaluation was requested.", []
    return said[0], said[1:]


def _sentences_without_effects(lines: Sequence[dict[str, Any]], needs: str) -> list[str]:
    """Return sentences on a table without a printed coefficient.

    `needs` is :func:`sufficient_budget_text`: what would be enough, or less than enough if it
    begins with "more than".
    """
    if all_refused_by_noise(lines):
        enough = f"{needs or 'more rows'} would be enough"
        if needs.startswith("more than"):
            enough = f"{needs} is needed"
        elif needs:
            enough = f"about {enough}"
        return [f"No coefficient can be distinguished from noise at this budget ({enough})."]
    return [f"No coefficient is printed. {why[:1].upper()}{why[1:]}." for _, why in refusals(lines)]


class _Effect(NamedTuple):
    """A coefficient with its interval, both scaled to the difference that is compared."""

    low: float
    estimate: float
    high: float
    line: dict[str, Any]


def _clear_effects(printed: Sequence[dict[str, Any]]) -> list[_Effect]:
    """Return the effects whose interval excludes zero, the clearest first."""
    effects = [_Effect(*scaled_interval(line), line) for line in printed]
    clear = [effect for effect in effects if effect.low > 0 or effect.high < 0]

    def clearness(effect: _Effect) -> float:
        # The estimate in widths of its interval; an interval may have no width.
        return abs(effect.estimate) / max(effect.high - effect.low, 1e-300)

    return sorted(clear, key=clearness, reverse=True)


def _effect_sentences(lines: Sequence[dict[str, Any]], what: str, needs: str) -> list[str]:
    """Return sentences on the clearest effects, and the number of others.

    `needs` is :func:`sufficient_budget_text`.
    """
    ratio = ratio_of(lines)
    printed = [line for line in lines if line.get("refused") is None]
    if not printed:
        return _sentences_without_effects(lines, needs)
    clear = _clear_effects(printed)
    if not clear:
        if len(printed) == 1:
            return ["The coefficient does not differ significantly from zero (p > .05)."]
        return [f"None of {len(printed)} coefficients differs significantly from zero (p > .05)."]
    said = [_effect_in_words(effect, what, ratio) for effect in clear[:_BOLDEST]]
    counts = (
        (len(clear) - _BOLDEST, "significant"),
        (len(printed) - len(clear), "not significant"),
        *_count_refused_by_cause(lines),
    )
    if more := [f"{n} {which}" for n, which in counts if n > 0]:
        said.append(f"Other coefficients: {', '.join(more)}.")
    return said


def _count_refused_by_cause(lines: Sequence[dict[str, Any]]) -> list[tuple[int, str]]:
    """Return how many lines are refused, and why, for each cause."""
    causes = Counter(cause_of_line(line) for line in lines if line.get("refused") is not None)
    counts = []
    for cause, count in causes.items():
        # A record of a later version may name a cause that this one does not know.
        reason = "refused" if cause is None else f"refused, {cause.brief}"
        counts.append((count, reason))
    return counts


def _effect_in_words(effect: _Effect, what: str, ratio: Ratio | None) -> str:
    """Return a sentence on an effect, with its size and interval."""
    line = effect.line
    name, level = line["name"], line["level"]
    # A level is compared with its reference, a number over its typical range if it declares one.
    if level is not None and line["reference"] is not None:
        this, other = f"for {name} {level}", f"for {name} {line['reference']}"
    elif level is None and line.get("typical") is not None:
        low, high = (number(x) for x in line["typical"])
        this, other = f"at {name} {high:g}", f"at {name} {low:g}"
    else:
        name = line.get("unit") or name
        return _slope_in_words(effect, name if level is None else f"{name} {level}", what, ratio)
    if ratio:
        value, interval = _ratio_texts(effect)
        return (
            f"The {ratio.noun} of {what} {ratio.verb} {value} times as high {this} as {other} "
            f"{interval}."
        )
    direction = "higher" if effect.estimate > 0 else "lower"
    value, interval = _difference_texts(effect)
    return f"The mean of {what} is {value} {direction} {this} than {other} {interval}."


def _slope_in_words(effect: _Effect, name: str, what: str, ratio: Ratio | None) -> str:
    """Return a sentence on the effect of one unit of a number."""
    if ratio:
        value, interval = _ratio_texts(effect)
        return (
            f"Each additional unit of {name} multiplies the {ratio.noun} of {what} by {value} "
            f"{interval}."
        )
    direction = "raises" if effect.estimate > 0 else "lowers"
    value, interval = _difference_texts(effect)
    return f"Each additional unit of {name} {direction} the mean of {what} by {value} {interval}."


def _ratio_texts(effect: _Effect) -> tuple[str, str]:
    """Return a ratio and its interval."""
    value, ends = interval_text(effect.low, effect.estimate, effect.high, odds=True).split(" ", 1)
    return value, f"(95% CI {ends.strip('()')})"


def _difference_texts(effect: _Effect) -> tuple[str, str]:
    """Return the size of a difference and its interval, both without a sign."""
    near, far = sorted((abs(effect.low), abs(effect.high)))
    return f"{abs(effect.estimate):.3g}", f"(95% CI {near:.3g} to {far:.3g})"


_TOO_FEW = "There are too few held-out rows for this noise to evaluate the model."


def _quality_sentences(found: dict[str, Any], what: str) -> list[str]:
    """Return sentences on the quality on held-out rows, from an evaluation's plain data."""
    # The main measure of several classes, of two classes, and of a number.
    if "classes" in found:
        main = found["accuracy"]
    elif "auc" in found:
        main = found["auc"]
    else:
        main = found["mean_absolute_error"]
    if main["value"] is None:
        return [_TOO_FEW]
    if "classes" in found:
        value, low, high = (
            format_percentage(read_finite_number(main[name]), 0)
            for name in ("value", "low", "high")
        )
        return [
            f"The model classifies {value} of the held-out rows correctly (95% CI {low} to {high})."
        ]
    if "auc" not in found:
        value, low, high = (
            f"{read_finite_number(main[name]):.3g}" for name in ("value", "low", "high")
        )
        unit = f" {found['unit']}" if found.get("unit") else ""
        return [
            f"On held-out rows, predictions of {what} are off by {value}{unit} on average "
            f"(95% CI {low} to {high})."
        ]
    said = [
        f"On held-out rows, the model gives a row with {what} a higher probability than a row "
        f"without it in {_share_with_interval(main, ' of pairs')}; guessing gives 50%."
    ]
    sensitivity, precision = found["rates"]["sensitivity"], found["rates"]["precision"]
    if sensitivity["value"] is not None:
        cut = f"{100.0 * read_finite_number(found['threshold']):g}%"
        rest = ""
        if precision["value"] is not None:
            rest = f" and the precision {_share_with_interval(precision)}"
        said.append(
            f"At a threshold of {cut} the sensitivity is {_share_with_interval(sensitivity)}{rest}."
        )
    return said


def _share_with_interval(estimate: dict[str, Any], of: str = "") -> str:
    """Format an estimated share and its interval in whole percent."""
    value, low, high = (
        format_percentage(read_finite_number(estimate[name]), 0)
        for name in ("value", "low", "high")
    )
    return f"{value}{of} (95% CI {low} to {high})"


def sections(plain: dict[str, Any], *, holder: bool = False) -> dict[str, Any]:
    """Return the sections of a page: its coefficients and quality, each None if not asked for.

    They are the values of templates/sections.html; `holder` and errors are as in :func:`page`.
    """
    coefficients = quality = None
    with refusing_foreign_documents():
        if plain.get("coefficients"):
            coefficients = build_coefficient_section(plain)
        if plain.get("evaluation"):
            quality = build_quality_section(plain, holder)
    return {"coefficients": coefficients, "quality": quality}


def page(plain: dict[str, Any], *, title: str | None = None, holder: bool = False) -> str:
    """Render a self-contained HTML page of a finished run.

    Parameters
    ----------
    plain : dict
        A run's record: that of ``run.json``, or what ``train --json`` prints.
    title : str, optional
        By default from the label's name.
    holder : bool
        Show, marked, numbers without noise, which only the holder of the rows may see.

    Returns
    -------
    str
        HTML without external resources, with all texts escaped.

    Raises
    ------
    InvalidInput
        If `plain` holds something else.
    """
    with refusing_foreign_documents():
        privacy = Statement.from_dict(plain["privacy"])
        promises = [privacy]
        if held := plain.get("evaluation"):
            promises.append(Statement.from_dict(held["privacy"]))
        exact = None
        notes = list[str]()
        if holder:
            exact = _exact_numbers_table(plain)
            notes = [str(note) for note in plain.get("notes") or ()]
        lead, points = answer(plain)
        promise = _privacy_promise(plain, privacy)
        return render_template(
            "run.html",
            title=title or _default_title(plain),
            lead=lead,
            points=points,
            trained_on=_training_data_text(plain, privacy),
            warning=_warning_on_top(promises),
            **sections(plain, holder=holder),
            sites=_sites_table(plain, privacy),
            cost=_privacy_cost(plain, privacy),
            promise=promise,
            words=terms_of(privacy),
            paragraphs=[
                ("Statistical methods", statistical_methods(plain, outcome_in_words(plain))),
                ("Data protection", data_protection(privacy, promise.held_out)),
            ],
            holder=holder,
            exact=exact,
            notes=notes,
            command=str(plain.get("command") or ""),
            made=_provenance_sentences(plain, privacy),
        )


def _default_title(plain: dict[str, Any]) -> str:
    """Return the title of a page that was given none."""
    what = outcome_in_words(plain)
    if has_intervals(plain.get("coefficients") or ()):
        return f"Associations with {what}"
    return f"A model of {what}"


def _training_data_text(plain: dict[str, Any], privacy: Statement) -> str:
    """Return how many rows of which table the model was trained on."""
    sizes = [read_finite_number(x) for x in plain["n_train"]]
    sites = f" at {len(sizes)} sites" if len(sizes) > 1 else ""
    # Folders may tell who ran it, and where: only the last part of the path is shown.
    path = str(plain.get("data") or "a table").replace("\\", "/")
    file_name = path.rstrip("/").rpartition("/")[2]
    return f"{sum(sizes):,.0f} {privacy.counted}{sites} of {file_name}"


def _warning_on_top(promises: Sequence[Statement]) -> str:
    """Return the warning that stands on top: ``no guarantee``, ``simulation``, or none."""
    if any(math.isinf(privacy.epsilon) for privacy in promises):
        return "no guarantee"
    if any(privacy.simulated for privacy in promises):
        return "simulation"
    return ""


def _exact_numbers_table(plain: dict[str, Any]) -> Table:
    """Return a table of numbers without noise, which no epsilon covers."""
    exact = {name: value for name, value in (plain.get("exact") or {}).items() if name != "rows"}
    errors = {
        "test_error": "error of the model",
        "nonprivate_test_error": "error of the best linear model without privacy",
    }
    exact |= {text: plain[name] for name, text in errors.items() if plain.get(name) is not None}
    rows = [[name, f"{number(value):.4f}"] for name, value in exact.items()]
    return Table([Column("on test rows"), Column("", "n")], rows)


def _provenance_sentences(plain: dict[str, Any], privacy: Statement) -> str:
    """Return sentences on how a run was made: its method, versions and source of noise."""
    said = []
    if plain.get("method"):
        said.append(f"Method {plain['method']}.")
    if plain.get("versions"):
        said.append(f"{plain['versions']}.")
    source = "the seed" if privacy.simulated else "the operating system"
    return " ".join([*said, f"All noise comes from {source}."])
