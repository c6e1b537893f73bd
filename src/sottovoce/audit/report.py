"""The audit as a self-contained page: claimed and audited epsilon, and inference attacks on real rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from ..privacy.statement import ceil_text
from ..util import files
from ..util.pages import PLOTS, axis_row, frame, key, lines_at, path, plot_row, square, table, versions
from ..util.typing import Any
from .game import Verdict

_LEAST, _MOST = 0.05, 20.0  # of the axis of epsilon
_TICKS = (0.1, 0.3, 1.0, 3.0, 10.0)

STYLE = (
    PLOTS
    + """
td.why{min-width:44rem}.refuted{color:var(--red);font-weight:600}
"""
)


def counts(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """Numbers of claims and of refuted claims, by form, and of those that quadrature alone refutes."""
    all_ = list(verdicts)
    ours = [one for one in all_ if one.form == "corrected"]
    theirs = [one for one in all_ if one.form != "corrected"]
    return {
        "claims": len(all_), "refuted": sum(one.refuted for one in all_),
        "corrected": len(ours), "corrected_refuted": sum(one.refuted for one in ours),
        "printed": len(theirs), "printed_refuted": sum(one.refuted for one in theirs),
        "exact_only": sum(one.refuted_exactly and not one.refuted for one in all_),
    }  # fmt: skip


def headline(verdicts: Iterable[Verdict]) -> str:
    """The counts in one sentence."""
    n = counts(verdicts)
    more = f"; {n['exact_only']} more by exact quadrature alone" if n["exact_only"] else ""
    return (
        f"{n['claims']} claims were attacked and {n['refuted']} refuted: {n['printed_refuted']} of {n['printed']} as "
        f"printed in the papers, {n['corrected_refuted']} of {n['corrected']} as corrected here{more}."
    )


def _floor(x: float) -> str:
    return f"{math.floor(1000.0 * x + 1e-9) / 1000.0:.3f}"


def _sure(confidence: float) -> str:
    return f"{100.0 * confidence:g}%"


def _total(epsilon: float) -> str:
    return "∞" if math.isinf(epsilon) else ceil_text(epsilon)


def _at(epsilon: float) -> str:
    """Place on the axis of epsilon, in percent."""
    inside = min(max(epsilon, _LEAST), _MOST)
    return f"{100.0 * math.log(inside / _LEAST) / math.log(_MOST / _LEAST):.2f}%"


def _diamond(x: str, css: str) -> str:
    return f'<svg x="{x}" y="12" class="at"><path class="ring {css}" d="M0-6 6 0 0 6-6 0z"/></svg>'


def _claims(verdicts: Sequence[Verdict], title: str) -> str:
    """A plot with one row for each claim: lower bound, claimed epsilon, exact epsilon."""
    rows = []
    for one in verdicts:
        css, x = "red" if one.refuted or one.refuted_exactly else "blue", _at(one.lower_bound)
        claimed = _at(one.claimed_epsilon)
        exact = "" if one.exact_epsilon is None else _diamond(_at(one.exact_epsilon), css)
        told = f"claimed {ceil_text(one.claimed_epsilon)}, lower bound {_floor(one.lower_bound)}"
        told += "" if one.exact_epsilon is None else f", exact {one.exact_epsilon:.3f}"
        marks = (
            f"<title>{told}</title>{lines_at(map(_at, _TICKS))}"
            f'<line class="claim" x1="{claimed}" x2="{claimed}" y1="3" y2="21"/>{exact}'
            f'<line class="reach {css}" x1="0%" x2="{x}" y1="12" y2="12"/>'
            f'<circle class="dot {css}" cx="{x}" cy="12" r="5"/>'
        )
        form = "" if one.form in ("corrected", "printed") else f" ({escape(one.form)})"
        rows.append(plot_row(escape(one.method) + form, marks))
    axis = axis_row([(_at(t), f"{t:g}") for t in _TICKS], "epsilon (nats, logarithmic)")
    return f'<h3>{title}</h3><div class="plot">{"".join(rows)}{axis}</div>'


def _figure(verdicts: Sequence[Verdict]) -> str:
    marks = key([
        ('<line class="claim" x1="13" x2="13" y1="-1" y2="15"/>', "claimed"),
        ('<circle class="dot blue" cx="13" cy="7" r="5"/>', "lower bound, claim stands"),
        ('<circle class="dot red" cx="13" cy="7" r="5"/>', "lower bound, claim refuted by it or by the exact value"),
        ('<path class="ring mark" d="M13 1 19 7 13 13 7 7z"/>', "exact for this pair of tables, where known"),
    ])  # fmt: skip
    parts = [
        _claims(those, title)
        for those, title in (
            ([one for one in verdicts if one.form != "corrected"], "As printed in the papers"),
            ([one for one in verdicts if one.form == "corrected"], "As corrected here"),
        )
        if those
    ]
    caption = (
        "A dot or a diamond to the right of the claim's bar refutes the claim. A dot to the left proves nothing: the "
        f"truth lies between it and what was proved. Bounds below {_LEAST:g} are drawn at the left edge."
    )
    return f"<figure>{marks}{''.join(parts)}<figcaption>{caption}</figcaption></figure>"


def _name(one: dict[str, Any]) -> str:
    """Name of a setting of the inference attacks."""
    if math.isinf(one["claimed_epsilon"]):
        return "no noise"
    return f"{escape(one['method'])}, {escape(one['form'])}"


def _style(one: dict[str, Any]) -> str:
    if math.isinf(one["claimed_epsilon"]):
        return "mark wide"
    if one["form"] != "corrected":
        return "red dots" if one["form"] == "listed" else "red"
    return "blue" if one["method"] == "dvp" else "green dash"


def _roc(those: Sequence[dict[str, Any]], epsilon: float) -> str:
    knee = 1.0 / (1.0 + math.exp(epsilon))
    limit = path([0.0, knee, 1.0], [0.0, 1.0 - knee, 1.0])
    curves = "".join(
        f'<path class="curve {_style(one)}" d="{path([0.0, *one["fpr"]], [0.0, *one["tpr"]])}"/>' for one in those
    )
    marks = f'<path class="curve mark dots" d="{limit}"/>{curves}'
    plot = square(f"ROC at a claim of {epsilon:g}", marks, "false positives (%)", "true positives (%)")
    lines = [(f'<path class="curve {_style(one)}" d="M0 7H26"/>', _name(one)) for one in those]
    lines.append(('<path class="curve mark dots" d="M0 7H26"/>', f"no more than this at epsilon {epsilon:g}"))
    return f"<div><h3>Claimed epsilon {epsilon:g}</h3>{plot}{key(lines)}</div>"


def _share(x: float) -> str:
    return f"{100.0 * x:.1f}"


def _spread(interval: Sequence[float], digits: int = 1) -> str:
    return " to ".join(f"{100.0 * x:.{digits}f}" for x in interval)


def _by_claim(those: Sequence[dict[str, Any]]) -> list[tuple[float, list[dict[str, Any]]]]:
    """Settings of each finite claim, behind those without noise."""
    bare = [one for one in those if math.isinf(one["claimed_epsilon"])]
    claims = sorted({one["claimed_epsilon"] for one in those} - {math.inf})
    return [(e, bare + [one for one in those if one["claimed_epsilon"] == e]) for e in claims]


def _measured(pairs: Sequence[dict[str, Any]]) -> str:
    """How much more a printed form leaks than the corrected one, in words."""
    said = []
    for one in pairs:
        low, high = one["interval"]
        word = "more" if low > 0.0 else "less" if high < 0.0 else "no more, as far as this can tell"
        said.append(
            f"At a claim of {one['claimed_epsilon']:g}, <code>{escape(one['method'])}</code> as printed has an area of "
            f"{one['printed']:.3f} against {one['corrected']:.3f} as corrected: {word} (difference {low:+.3f} to "
            f"{high:+.3f})."
        )
    return " ".join(said)


def _membership(those: Sequence[dict[str, Any]], pairs: Sequence[dict[str, Any]], s: dict[str, Any]) -> str:
    panels = "".join(_roc(group, epsilon) for epsilon, group in _by_claim(those))
    head = [("claimed ε", "n"), ("form", ""), ("proved ε", "n"), ("area under ROC", "n"),
            ("true at 1% false (%)", "n"), ("true at 10% false (%)", "n")]  # fmt: skip
    rows = [
        f'<tr><td class="n">{_total(one["claimed_epsilon"])}</td><td class="w">{_name(one)}</td>'
        f'<td class="n">{_total(one["proved_epsilon"])}</td>'
        f'<td class="n">{one["auc"]:.3f} ({" to ".join(f"{x:.3f}" for x in one["auc_interval"])})</td>'
        + "".join(f'<td class="n">{_share(one[k])} ({_spread(one[f"{k}_interval"])})</td>' for k in ("tpr_1", "tpr_10"))
        + "</tr>"
        for one in those
    ]
    return (
        "<h2>Was this row in the site?</h2>"
        f"<p>A site holds a target row or another row in its place. The neighbour knows both, and says which. "
        f"{s['targets']} targets, each tried {s['replicates']} times either way (once where nothing is random). An "
        f"area of 0.5 is guessing, 1 is certainty.</p>"
        f'<figure><div class="pair">{panels}</div></figure>'
        f"<p>{_measured(pairs)} On real rows a false claim need not show: these rows are far from the worst case, on "
        f"which the claims above were tried, and noise in {s['features']} dimensions hides the one direction in which "
        f"a row pulls. Where exact minimisers are sent, one message is enough.</p>"
        f"{table(head, rows)}"
        f'<p class="soft">In brackets: {_sure(s["confidence"])} intervals, by resampling targets; where every '
        "target agrees, Clopper and Pearson's.</p>"
    )


def _bars(column: dict[str, Any]) -> str:
    rows, base = [], 100.0 * column["base_rate"]
    for one in column["rows"]:
        css = _style(one).split()[0]
        low, high = (f"{100.0 * x:.2f}%" for x in one["interval"])
        claim = "" if math.isinf(one["claimed_epsilon"]) else f", ε {one['claimed_epsilon']:g}"
        marks = (
            f"<title>{_share(one['accuracy'])}%</title>{lines_at(f'{t}%' for t in (0, 25, 50, 75, 100))}"
            f'<rect class="bar {css}" x="0" y="4" height="16" width="{100.0 * one["accuracy"]:.2f}%"/>'
            f'<line class="claim" stroke-dasharray="3 2" x1="{base:.2f}%" x2="{base:.2f}%" y1="0" y2="24"/>'
            f'<line class="curve {css}" x1="{low}" x2="{high}" y1="12" y2="12"/>'
        )
        rows.append(plot_row(_name(one) + claim, marks))
    axis = axis_row([(f"{t}%", str(t)) for t in (0, 25, 50, 75, 100)], "named correctly (%)")
    values = ", ".join(f"{escape(v)} {100 * p:.0f}%" for v, p in zip(column["values"], column["prior"], strict=True))
    return (
        f"<h3>{escape(column['attribute'])}: {values}</h3>"
        f'<div class="plot">{"".join(rows)}{axis}</div>'
        f'<p class="soft">Always saying “{escape(column["commoner"])}” is right for {_share(column["base_rate"])}% of '
        "these targets.</p>"
    )


def _attributes(those: Sequence[dict[str, Any]], s: dict[str, Any]) -> str:
    best = [
        (one["accuracy"] - column["base_rate"], column["attribute"], one)
        for column in those
        for one in column["rows"]
        if one["form"] == "corrected" and not math.isinf(one["claimed_epsilon"])
    ]
    most, attribute, one = max(best, key=lambda each: each[0])
    gain = (
        "Corrected forms gain nothing over it"
        if most <= 0.0
        else f"The most that a corrected form gains over it is {100.0 * most:.1f} points ({escape(attribute)}, "
        f"{_name(one)}, ε {one['claimed_epsilon']:g})"
    )
    marks = key([
        ('<line class="claim" stroke-dasharray="3 2" x1="13" x2="13" y1="-1" y2="15"/>', "always the commoner value"),
        ('<rect class="bar mark" x="0" y="1" width="26" height="12"/>', "from the messages"),
        ('<path class="curve mark" d="M0 7H26"/>', f"{_sure(s['confidence'])} interval over targets"),
    ])  # fmt: skip
    return (
        "<h2>What was this row's missing value?</h2>"
        "<p>The site holds the target row. The neighbour knows it but for one attribute, and names the value that is "
        "likeliest given the messages and the shares in the population. The base rate is that of always naming the "
        f"commoner value. {gain}.</p>"
        f"<figure>{marks}{''.join(_bars(column) for column in those)}</figure>"
        '<p class="soft">What the rest of a row gives away about an attribute is not counted here, and no differential '
        "privacy hides it.</p>"
    )


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    head = [("method", ""), ("form", ""), ("claimed ε", "n"), ("lower bound", "n"), ("exact", "n"), ("proved ε", "n"),
            ("verdict", ""), ("δ", "n"), ("rounds", "n"), ("runs a table", "n"), ("attack", ""),
            ("the two tables", "")]  # fmt: skip
    rows = []
    for one in verdicts:
        word = '<td class="w">stands</td>'
        if one.refuted or one.refuted_exactly:
            word = f'<td class="w refuted">refuted{"" if one.refuted else " (exact)"}</td>'
        exact = "" if one.exact_epsilon is None else f"{one.exact_epsilon:.3f}"
        numbers = (ceil_text(one.claimed_epsilon), _floor(one.lower_bound), exact, _total(one.proved_epsilon))
        others = (f"{one.delta:g}", f"{one.rounds}", f"{one.replicates:,}")
        rows.append(
            f'<tr class="verdict"><td class="w">{escape(one.method)}</td><td>{escape(one.form)}</td>'
            + "".join(f'<td class="n">{x}</td>' for x in numbers)
            + word
            + "".join(f'<td class="n">{x}</td>' for x in others)
            + f'<td class="w">{escape(one.attack)}</td><td class="why">{escape(one.why)}</td></tr>'
        )
    return f"<h2>Every claim</h2>{table(head, rows)}"


def _reading(verdicts: Sequence[Verdict]) -> str:
    sure = " or ".join(sorted({_sure(one.confidence) for one in verdicts}))
    deltas = ", ".join(f"{x:g}" for x in sorted({one.delta for one in verdicts}))
    entries = [
        ("Relation and unit", "Replace-one: the two tables have as many rows, and one row of one site differs, label "
         "included."),
        ("What the adversary sees", "Every message of every round, and all of the configuration. It knows both tables, "
         "and guesses which one was there. The runs are the package's own code, noise included."),
        ("Lower bound", "From how often the guess is right and wrong, by Clopper and Pearson's intervals. The guess is "
         f"chosen on one half of the runs and bounded on the other. Each bound is true with {sure} confidence by "
         "itself, not all of them at once; one above its claim refutes it."),
        ("Exact", "The privacy loss of the same pair by quadrature, where one release is all there is: no sampling. It "
         "refutes too, if it is above the claim."),
        ("Claimed and proved", "Claimed is what the form promises for the whole run: of a printed form the paper's "
         "number, of a corrected one the ledger's. Proved is what the accountants prove for the same run."),
        ("Delta", f"The probability that a claim leaves out; here {deltas}. Zero is pure differential privacy."),
        ("Stopping, refusals, labels", "Adversaries of the code around the methods. Stopping: an analyst who stops "
         "when she likes must not outrun the epsilon that a ledger quotes; its numbers are the last quote plus what "
         "quotes lack. Refusals: whether and how a site aborts on extreme vectors must not tell the tables apart. "
         "Labels: nor may classes, shapes, words and errors of a released model, if one row has a rare label."),
        ("Sums", "Of sums over sites the adversary sees the totals, and all that the claim's colluding sites know."),
        ("Stands", "No attack that we know refutes the claim. That is no proof; the proofs are in the documentation."),
    ]  # fmt: skip
    return "<h2>How to read this</h2><dl>" + "".join(f"<dt>{a}</dt><dd>{b}</dd>" for a, b in entries) + "</dl>"


def _made(command: str, s: dict[str, Any]) -> str:
    return (
        f"<h2>How it was made</h2><pre>{escape(command)}</pre>"
        f"<p>{versions('numpy', 'scipy')}. All noise comes from the seed in the command; attacks on real rows use seed "
        f"{s['seed']}. The same command with the same versions gives the same page.</p>"
    )


def page(verdicts: Sequence[Verdict], inference: dict[str, Any], command: str) -> str:
    """The page as text; parameters as for :func:`write`."""
    s = inference["setting"]
    setting = (
        f"<h2>What a neighbour learns about real rows</h2><p>A {escape(s['graph'])} of {s['sites']} sites trains on "
        f"{escape(s['data'].capitalize())} ({s['features']} features) for {s['rounds']} rounds; the victim holds "
        f"{s['victim_rows']} rows, every other site {s['other_rows']}. A curious neighbour sees every message, knows "
        f"all rows but one, and scores by likelihood. Forms as listed, as printed and as corrected run at the "
        f"same claimed total, without delta.{' A quick run: intervals are wide.' if s['quick'] else ''}</p>"
    )
    membership = _membership(inference["membership"], inference["printed_beside_corrected"], s)
    body = [
        "<h1>Claimed and audited epsilon</h1>", f'<p class="lead">{headline(verdicts)}</p>', _figure(verdicts), setting,
        membership, _attributes(inference["attributes"], s), _verdicts(verdicts), _reading(verdicts), _made(command, s),
    ]  # fmt: skip
    return frame("sottovoce audit", body, STYLE)


def write(path: str | Path, verdicts: Sequence[Verdict], inference: dict[str, Any], command: str) -> None:
    """Write the page.

    Parameters
    ----------
    verdicts : sequence of Verdict
        Of :func:`sottovoce.audit.attack`, one a claim.
    inference : dict
        Of :func:`sottovoce.audit.inference_attacks.measure`.
    command : str
        The command that makes the page, as it would be typed.
    """
    files.write("report", path, page(verdicts, inference, command))
