"""The audit as a self-contained HTML page: claimed and audited epsilon, and inference attacks.

``sottovoce audit all --report`` writes it.  Functions here turn verdicts and the results of
:func:`sottovoce.audit.inference_attacks.measure_inference_attacks` into texts and places on axes;
``templates/audit.html`` lays them out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..privacy.statement import ceil_text
from ..util import files
from ..util.pages import Column, Table, describe_versions, render_template, svg_path_of_line
from ..util.typing import Any
from .game import Verdict

_LEAST, _MOST = 0.05, 20.0
"""Ends of the logarithmic axis of epsilon; values beyond are drawn at its ends."""
_TICKS = (0.1, 0.3, 1.0, 3.0, 10.0)


def counts(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """Count claims and refuted claims by form, and those that quadrature alone refutes."""
    claims = list(verdicts)
    corrected = [one for one in claims if one.form == "corrected"]
    printed = [one for one in claims if one.form != "corrected"]
    return {
        "claims": len(claims),
        "refuted": sum(one.refuted for one in claims),
        "corrected": len(corrected),
        "corrected_refuted": sum(one.refuted for one in corrected),
        "printed": len(printed),
        "printed_refuted": sum(one.refuted for one in printed),
        "exact_only": sum(one.is_refuted_exactly and not one.refuted for one in claims),
    }


def summarise_counts(verdicts: Iterable[Verdict]) -> str:
    """Return the counts in one sentence."""
    n = counts(verdicts)
    more = ""
    if n["exact_only"]:
        more = f"; {n['exact_only']} more by exact quadrature alone"
    return (
        f"{n['claims']} claims were attacked and {n['refuted']} refuted: {n['printed_refuted']} of "
        f"{n['printed']} as printed in the papers, {n['corrected_refuted']} of {n['corrected']} as "
        f"corrected here{more}."
    )


def _lower_bound_text(x: float) -> str:
    """Format a lower bound, rounded down to three decimals."""
    # A hair more, so that 0.001 does not become 0.000 by its binary digits.
    return f"{math.floor(1000.0 * x + 1e-9) / 1000.0:.3f}"


def _confidence_text(confidence: float) -> str:
    """Format a confidence in percent."""
    return f"{100.0 * confidence:g}%"


def _epsilon_text(epsilon: float) -> str:
    """Format an epsilon, rounded up; it may be infinite."""
    if math.isinf(epsilon):
        return "∞"
    return ceil_text(epsilon)


def _place_on_epsilon_axis(epsilon: float) -> str:
    """Return the place on the logarithmic axis of epsilon, in percent."""
    inside = min(max(epsilon, _LEAST), _MOST)
    return f"{100.0 * math.log(inside / _LEAST) / math.log(_MOST / _LEAST):.2f}%"


class ClaimRow(NamedTuple):
    """A row of the plot of claims; places are in percent of the axis of epsilon."""

    name: str
    title: str
    """The row in words, for screen readers."""
    colour: str
    claimed: str
    bound: str
    exact: str
    """Empty where it is not known."""


class ClaimPlot(NamedTuple):
    """A plot with one row for each claim: lower bound, claimed epsilon, exact epsilon."""

    title: str
    rows: list[ClaimRow]


def _claim_plots(verdicts: Sequence[Verdict]) -> list[ClaimPlot]:
    """Return the plots of printed and of corrected claims; empty ones are left out."""
    printed = [_plot_row_of_claim(one) for one in verdicts if one.form != "corrected"]
    corrected = [_plot_row_of_claim(one) for one in verdicts if one.form == "corrected"]
    plots = [
        ClaimPlot("As printed in the papers", printed),
        ClaimPlot("As corrected here", corrected),
    ]
    return [plot for plot in plots if plot.rows]


def _plot_row_of_claim(one: Verdict) -> ClaimRow:
    """Return the row of a verdict in its plot."""
    title = (
        f"claimed {ceil_text(one.claimed_epsilon)}, lower bound "
        f"{_lower_bound_text(one.lower_bound)}"
    )
    exact = ""
    if one.exact_epsilon is not None:
        title += f", exact {one.exact_epsilon:.3f}"
        exact = _place_on_epsilon_axis(one.exact_epsilon)
    name = one.method
    # The plot's title tells these two forms.
    if one.form not in ("corrected", "printed"):
        name = f"{one.method} ({one.form})"
    return ClaimRow(
        name=name,
        title=title,
        colour="red" if one.refuted or one.is_refuted_exactly else "blue",
        claimed=_place_on_epsilon_axis(one.claimed_epsilon),
        bound=_place_on_epsilon_axis(one.lower_bound),
        exact=exact,
    )


def _setting_name(one: dict[str, Any]) -> str:
    """Return the name of a setting of the inference attacks."""
    if math.isinf(one["claimed_epsilon"]):
        return "no noise"
    return f"{one['method']}, {one['form']}"


def _curve_css_classes(one: dict[str, Any]) -> str:
    """Return the CSS classes of a setting's curve, a colour and a dash for each kind of setting."""
    if math.isinf(one["claimed_epsilon"]):
        return "mark wide"
    if one["form"] == "listed":
        return "red dots"
    if one["form"] != "corrected":
        return "red"
    if one["method"] == "dvp":
        return "blue"
    return "green dash"


class Curve(NamedTuple):
    """A ROC curve."""

    name: str
    style: str
    path: str


class Panel(NamedTuple):
    """ROC curves at one claimed epsilon, and the curve that none exceeds if the claim is true."""

    epsilon: str
    limit: str
    curves: list[Curve]


def _roc_curve_panel(those: Sequence[dict[str, Any]], epsilon: float) -> Panel:
    """Return the ROC curves of these settings, with the bound on all of them at this epsilon."""
    # A pure claim bounds the curve by tpr <= e^epsilon fpr and by its mirror image; both lines meet
    # at this false positive rate.
    knee = 1.0 / (1.0 + math.exp(epsilon))
    curves = [
        Curve(
            _setting_name(one),
            _curve_css_classes(one),
            svg_path_of_line([0.0, *one["fpr"]], [0.0, *one["tpr"]]),
        )
        for one in those
    ]
    return Panel(f"{epsilon:g}", svg_path_of_line([0.0, knee, 1.0], [0.0, 1.0 - knee, 1.0]), curves)


def _percent_text(x: float) -> str:
    """Format a share in percent, without the sign."""
    return f"{100.0 * x:.1f}"


def _group_by_claim(those: Sequence[dict[str, Any]]) -> list[tuple[float, list[dict[str, Any]]]]:
    """Return the settings without noise and those of the claim, for each finite claimed epsilon."""
    without_noise = [one for one in those if math.isinf(one["claimed_epsilon"])]
    claims = sorted({one["claimed_epsilon"] for one in those} - {math.inf})
    found = []
    for epsilon in claims:
        of_claim = [one for one in those if one["claimed_epsilon"] == epsilon]
        found.append((epsilon, without_noise + of_claim))
    return found


class Pair(NamedTuple):
    """Areas under the ROC curve of a printed and a corrected form, and the interval of the gap."""

    epsilon: str
    method: str
    printed: str
    corrected: str
    word: str
    low: str
    high: str


def _compare_leakage(one: dict[str, Any]) -> Pair:
    """Say whether a printed form leaks more than the corrected one, by the areas' interval."""
    low, high = one["interval"]
    if low > 0.0:
        word = "more"
    elif high < 0.0:
        word = "less"
    else:
        # The interval of the difference contains zero.
        word = "no more, as far as this can tell"
    return Pair(
        epsilon=f"{one['claimed_epsilon']:g}",
        method=one["method"],
        printed=f"{one['printed']:.3f}",
        corrected=f"{one['corrected']:.3f}",
        word=word,
        low=f"{low:+.3f}",
        high=f"{high:+.3f}",
    )


def _membership_table(those: Sequence[dict[str, Any]]) -> Table:
    """Return the table of membership inference, a line for each setting."""
    columns = [
        Column("claimed ε", "n"),
        Column("form", "w"),
        Column("proved ε", "n"),
        Column("area under ROC", "n"),
        Column("true at 1% false (%)", "n"),
        Column("true at 10% false (%)", "n"),
    ]
    rows = []
    for one in those:
        low, high = (f"{x:.3f}" for x in one["auc_interval"])
        row = [
            _epsilon_text(one["claimed_epsilon"]),
            _setting_name(one),
            _epsilon_text(one["proved_epsilon"]),
        ]
        row.append(f"{one['auc']:.3f} ({low} to {high})")
        for key in ("tpr_1", "tpr_10"):
            low, high = map(_percent_text, one[f"{key}_interval"])
            row.append(f"{_percent_text(one[key])} ({low} to {high})")
        rows.append(row)
    return Table(columns, rows)


class GuessRow(NamedTuple):
    """How often an attribute was named correctly in one setting; places are in percent."""

    name: str
    title: str
    colour: str
    accuracy: str
    base: str
    low: str
    high: str


class Attribute(NamedTuple):
    """The guesses of one attribute."""

    title: str
    rows: list[GuessRow]
    commoner: str
    base_rate: str


def _attribute_guesses(column: dict[str, Any]) -> Attribute:
    """Return the plot of an attribute: its values' shares, and the accuracy in each setting."""
    values = ", ".join(
        f"{v} {100 * p:.0f}%" for v, p in zip(column["values"], column["prior"], strict=True)
    )
    return Attribute(
        title=f"{column['attribute']}: {values}",
        rows=[_guess_accuracy_row(one, column["base_rate"]) for one in column["rows"]],
        commoner=column["commoner"],
        base_rate=_percent_text(column["base_rate"]),
    )


def _guess_accuracy_row(one: dict[str, Any], base_rate: float) -> GuessRow:
    """Return the row of one setting: accuracy, its interval, and the base rate."""
    low, high = (f"{100.0 * x:.2f}%" for x in one["interval"])
    name = _setting_name(one)
    if not math.isinf(one["claimed_epsilon"]):
        name += f", ε {one['claimed_epsilon']:g}"
    return GuessRow(
        name=name,
        title=f"{_percent_text(one['accuracy'])}%",
        colour=_curve_css_classes(one).split()[0],
        accuracy=f"{100.0 * one['accuracy']:.2f}%",
        base=f"{100.0 * base_rate:.2f}%",
        low=low,
        high=high,
    )


def _largest_gain_in_words(those: Sequence[dict[str, Any]]) -> str:
    """Say by how much, at most, corrected forms let an attribute be guessed above the base rate."""
    gains = []
    for column in those:
        for one in column["rows"]:
            if one["form"] == "corrected" and not math.isinf(one["claimed_epsilon"]):
                gain = one["accuracy"] - column["base_rate"]
                gains.append((gain, column["attribute"], one))
    most, attribute, one = max(gains, key=lambda gain: gain[0])
    if most <= 0.0:
        return "Corrected forms gain nothing over the base rate"
    return (
        f"The largest gain of a corrected form over the base rate is {100.0 * most:.1f} points "
        f"({attribute}, {_setting_name(one)}, ε {one['claimed_epsilon']:g})"
    )


_CLAIM_COLUMNS = [
    Column("method", "w"),
    Column("form"),
    Column("claimed ε", "n"),
    Column("lower bound", "n"),
    Column("exact", "n"),
    Column("proved ε", "n"),
    Column("verdict", "w"),
    Column("δ", "n"),
    Column("rounds", "n"),
    Column("runs a table", "n"),
    Column("attack", "w"),
    Column("the two tables", "why"),
]


class ClaimLine(NamedTuple):
    """The cells of a claim, in the order of `_CLAIM_COLUMNS`."""

    cells: list[str]
    refuted: bool


def _table_line_of_claim(one: Verdict) -> ClaimLine:
    """Return the line of a verdict in the table of claims."""
    if one.refuted:
        verdict = "refuted"
    elif one.is_refuted_exactly:
        verdict = "refuted (exact)"
    else:
        verdict = "stands"
    cells = [
        one.method,
        one.form,
        ceil_text(one.claimed_epsilon),
        _lower_bound_text(one.lower_bound),
        "" if one.exact_epsilon is None else f"{one.exact_epsilon:.3f}",
        _epsilon_text(one.proved_epsilon),
        verdict,
        f"{one.delta:g}",
        f"{one.rounds}",
        f"{one.replicates:,}",
        one.attack,
        one.why,
    ]
    return ClaimLine(cells, refuted=verdict != "stands")


def render_audit_page(verdicts: Sequence[Verdict], inference: dict[str, Any], command: str) -> str:
    """Render the page of an audit as HTML.

    Parameters
    ----------
    verdicts : sequence of Verdict
        Of :func:`sottovoce.audit.attack`, one a claim.
    inference : dict
        Of :func:`sottovoce.audit.inference_attacks.measure_inference_attacks`.
    command : str
        The command that makes the page, as it would be typed.

    Returns
    -------
    str
    """
    setting = inference["setting"]
    return render_template(
        "audit.html",
        title="sottovoce audit",
        headline=summarise_counts(verdicts),
        plots=_claim_plots(verdicts),
        epsilon_ticks=[(_place_on_epsilon_axis(epsilon), f"{epsilon:g}") for epsilon in _TICKS],
        least=f"{_LEAST:g}",
        setting=setting,
        panels=[
            _roc_curve_panel(group, epsilon)
            for epsilon, group in _group_by_claim(inference["membership"])
        ],
        pairs=[_compare_leakage(one) for one in inference["printed_beside_corrected"]],
        membership=_membership_table(inference["membership"]),
        confidence=_confidence_text(setting["confidence"]),
        gain=_largest_gain_in_words(inference["attributes"]),
        attributes=[_attribute_guesses(column) for column in inference["attributes"]],
        claim_columns=_CLAIM_COLUMNS,
        claims=[_table_line_of_claim(one) for one in verdicts],
        confidences=" or ".join(sorted({_confidence_text(one.confidence) for one in verdicts})),
        deltas=", ".join(f"{delta:g}" for delta in sorted({one.delta for one in verdicts})),
        command=command,
        versions=describe_versions("numpy", "scipy"),
    )


def write(
    path: str | Path, verdicts: Sequence[Verdict], inference: dict[str, Any], command: str
) -> None:
    """Write the page of an audit to a file.

    Parameters
    ----------
    path : str or Path
        The file, which is replaced.
    verdicts : sequence of Verdict
        Of :func:`sottovoce.audit.attack`, one a claim.
    inference : dict
        Of :func:`sottovoce.audit.inference_attacks.measure_inference_attacks`.
    command : str
        The command that makes the page, as it would be typed.
    """
    files.write_atomically("report", path, render_audit_page(verdicts, inference, command))
