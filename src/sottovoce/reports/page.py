"""The page of a run, and its sections for other pages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape

from ..privacy.statement import Statement, ceil_text
from ..util.pages import PLOTS, frame, table
from ..util.typing import Any
from .causes import blames_noise, cause_of
from .coefficients import CONSTANT, coefficients, compared, has_intervals, has_odds, interval, needed, refusals, scaled
from .plain import finite, number, of_anybody, percent
from .quality import quality

STYLE = (
    PLOTS
    + """
.forest .row{grid-template-columns:1fr auto;grid-template-areas:"name num" "plot plot";gap:.1rem .8rem;padding:.15rem 0}
.forest .row:nth-child(odd){background:none}.forest .row{border-top:1px solid var(--line)}
.forest .row>span:first-child{grid-area:name;overflow-wrap:anywhere;min-width:0}.forest .row>svg{grid-area:plot}
.forest .row.axis{grid-template-areas:"plot plot";border:0}.forest .row.axis>span{display:none}
.forest .row.head>svg{display:none}
.forest .row.level>span:first-child{padding-left:1rem}.forest .row.level{border-top:0}
.num{grid-area:num;text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
@media (min-width:46rem){.forest .row{grid-template-columns:14rem 1fr 11.5rem;grid-template-areas:"name plot num"}
.forest .row.axis{grid-template-areas:". plot ."}.forest .row.head>svg{display:block}}
.base{stroke:var(--soft);stroke-width:1;stroke-dasharray:3 3}.span{stroke:var(--c);stroke-width:2.5}
.refuse{font-style:italic;fill:var(--soft)}
.warn{border-left:.3rem solid var(--red);padding:.3rem .8rem;background:var(--band)}
h1,p,figcaption,dd,pre{overflow-wrap:anywhere}
.small{color:var(--soft);font-size:.8125rem}
ul{padding-left:1.2rem;max-width:46rem}li{margin:.3rem 0;overflow-wrap:anywhere}
td.name{overflow-wrap:anywhere;min-width:8rem}
@media print{figure,table,.pair{break-inside:avoid}a{color:inherit}}
"""
)
"""CSS of :func:`sections`."""

_BOLDEST = 3  # coefficients in the sentences on top


# Who, at what price, with which promise


def _sites(plain: dict[str, Any], privacy: Statement) -> str:
    sizes = [finite(x) for x in plain["n_train"]]
    names = [str(name) for name in plain.get("sites") or [f"site {i}" for i in range(len(sizes))]]
    spent = privacy.per_node if len(privacy.per_node) == len(sizes) else (privacy.epsilon,) * len(sizes)
    rows = [
        f'<tr><td class="name">{escape(name)}</td><td class="n">{size:,.0f}</td>'
        f'<td class="n">{ceil_text(epsilon)}</td></tr>'
        for name, size, epsilon in zip(names, sizes, spent, strict=True)
    ]
    one = "person" if privacy.counted == "people" else "row"
    rows.append(f'<tr><td>together</td><td class="n">{sum(sizes):,.0f}</td><td></td></tr>')
    return table([("site", ""), (f"training {privacy.counted}", "n"), (f"epsilon of each {one}", "n")], rows)


def _priced(name: str, privacy: Statement, asked: Any) -> tuple[str, str]:
    delta = "0" if privacy.delta == 0 else f"{privacy.delta:g}"
    numbers = [ceil_text(privacy.epsilon), delta, str(privacy.releases), escape(privacy.accountant)]
    row = f"<tr><td>{name}</td>" + "".join(f'<td class="n">{x}</td>' for x in numbers) + "</tr>"
    lines = "".join(
        f'<tr><td>{escape(str(one["release"]))}</td><td class="n">{percent(finite(one["share"]), 0)}</td></tr>'
        for one in asked or ()
    )
    head = [(f"rows of the ledger, {name}", ""), ("share of the budget", "n")]
    return row, table(head, [lines]) if lines else ""


def _cost(plain: dict[str, Any], privacy: Statement) -> Iterator[str]:
    yield "<h2>What it cost</h2>"
    parts = [_priced("training rows", privacy, plain.get("asked"))]
    if found := plain.get("evaluation"):
        parts.append(_priced("held-out rows", Statement.from_dict(found["privacy"]), found.get("asked")))
    head = [("", ""), ("epsilon", "n"), ("delta", "n"), ("releases", "n"), ("accountant", "n")]
    yield table(head, [row for row, _ in parts])
    if book := privacy.ledger:
        yield f"<p>Ledger: run {escape(book.run)}; {ceil_text(book.spent)} spent of {min(book.budget):g} for life.</p>"
    yield "".join(detail for _, detail in parts)


def _words(privacy: Statement) -> str:
    return "".join(f"<p><b>{escape(head)}</b>{escape(rest)}</p>" for head, rest in privacy.words)


def _promise(plain: dict[str, Any], privacy: Statement) -> Iterator[str]:
    yield "<h2>What is promised</h2>"
    yield _words(privacy)
    entries = [
        ("Neighbouring tables", privacy.relation), ("Protected", privacy.unit),
        ("Adversary", privacy.trust.adversary), ("Taken as known to everybody", privacy.public),
    ]  # fmt: skip
    yield "<dl>" + "".join(f"<dt>{a}</dt><dd>{escape(b)}</dd>" for a, b in entries if b) + "</dl>"
    if found := plain.get("evaluation"):
        held = Statement.from_dict(found["privacy"])
        if (held.relation, held.trust) != (privacy.relation, privacy.trust) or held.epsilon != privacy.epsilon:
            yield f"<h3>Of held-out rows</h3>{_words(held)}"


# The whole page


def outcome_of(plain: dict[str, Any]) -> str:
    """The predicted event or number, in words."""
    label = plain.get("label")
    if label:
        return f"{label['column']} = {label['positive']}" if "positive" in label else str(label["column"])
    return "a positive label" if has_odds(plain.get("coefficients") or ()) else "a number"


def answer(plain: dict[str, Any]) -> tuple[str, list[str]]:
    """The main result in one plain sentence, and further ones."""
    what, said = outcome_of(plain), list[str]()
    lines = [line for line in plain.get("coefficients") or () if line["name"] != CONSTANT]
    if has_intervals(lines):
        said += _effects(lines, what, needed(plain.get("needs")))
    if found := plain.get("evaluation"):
        said += _good(found, what)
    return (said[0], said[1:]) if said else (f"A model of {what} was trained; how good it is was not asked.", [])


def _no_effects(lines: Sequence[dict[str, Any]], needs: str) -> list[str]:
    """Sentences on a table without a printed coefficient."""
    if blames_noise(lines):
        return [f"No coefficient can be told from noise at this budget ({needs or 'more rows'} would do, about)."]
    return [f"No coefficient is printed. {why[:1].upper()}{why[1:]}." for _, why in refusals(lines)]


def _clearest(printed: Sequence[dict[str, Any]]) -> list[tuple[float, float, float, dict[str, Any]]]:
    """Low end, estimate and high end of the lines that differ clearly, and the lines, the clearest first."""
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
    return [(n, "refused" if cause is None else f"refused, {cause.brief}") for cause, n in causes.items()]


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
        return f"{abs(mid):.3g} {'higher' if mid > 0 else 'lower'} on average ({near:.3g} to {far:.3g})"
    value, rest = interval(low, mid, high, odds).replace("&gt;", ">").replace("&lt;", "<").split(" ", 1)
    return f"{value} times as high {rest}"


def _good(found: dict[str, Any], what: str) -> list[str]:
    """Sentences on the quality on held-out rows."""
    if "classes" in found:
        value, low, high = (percent(finite(found["accuracy"][name]), 0) for name in ("value", "low", "high"))
        return [f"Of rows that it was not trained on, {value} are answered rightly ({low} to {high})."]
    area = found["auc"] if "auc" in found else found["mean_absolute_error"]
    if area["value"] is None:
        return ["Held-out rows are too few for this noise to tell how good the model is."]
    if "auc" not in found:
        value, low, high = (f"{finite(area[name]):.3g}" for name in ("value", "low", "high"))
        unit = f" {found['unit']}" if found.get("unit") else ""
        return [
            f"On rows that it was not trained on, predictions of {what} are off by {value}{unit} on average "
            f"({low} to {high})."
        ]

    def share(plain: dict[str, Any], of: str = "") -> str:
        value, low, high = (percent(finite(plain[name]), 0) for name in ("value", "low", "high"))
        return f"{value}{of} ({low} to {high})"

    said = [
        f"On rows that it was not trained on, the model gives one with {what} a higher probability than one without in "
        f"{share(area, ' of pairs')}; 50% is guessing."
    ]
    hit, right = found["rates"]["sensitivity"], found["rates"]["precision"]
    if hit["value"] is not None:
        cut = f"{100.0 * finite(found['threshold']):g}%"
        rest = f"; {share(right, ' of calls')} are right" if right["value"] is not None else ""
        said.append(f"Calls from {cut} on find {share(hit)} of those with {what}{rest}.")
    return said


def sections(plain: dict[str, Any], *, holder: bool = False) -> list[str]:
    """Coefficients and quality of a run's record, as HTML for a page with :data:`STYLE`; as :func:`page`."""
    with of_anybody():
        parts: list[str] = []
        if plain.get("coefficients"):
            parts += coefficients(plain)
        if plain.get("evaluation"):
            parts += quality(plain, holder)
        return parts


def page(plain: dict[str, Any], *, title: str | None = None, holder: bool = False) -> str:
    """A self-contained page of a finished run.

    Parameters
    ----------
    plain : dict
        A run's record: that of ``run.json``, or what ``train --json`` prints.
    title : str, optional
        By default from the label's name.
    holder : bool
        Whether to show, marked, numbers without noise, which only the holder of the rows may see.

    Raises
    ------
    InvalidInput
        If `plain` holds something else.
    """
    with of_anybody():
        privacy = Statement.from_dict(plain["privacy"])
        what = outcome_of(plain)
        named = title or (
            f"What goes with {what}" if has_intervals(plain.get("coefficients") or ()) else f"A model of {what}"
        )
        sizes = [finite(x) for x in plain["n_train"]]
        where = f"{sum(sizes):,.0f} {privacy.counted}" + (f" at {len(sizes)} sites" if len(sizes) > 1 else "")
        lead, points = answer(plain)
        body = [f"<h1>{escape(named)}</h1>", f'<p class="lead">{escape(lead)}</p>']
        if points:
            body.append("<ul>" + "".join(f"<li>{escape(point)}</li>" for point in points) + "</ul>")
        body.append(f'<p class="soft">Trained on {where} of {escape(_last(plain.get("data")))}.</p>')
        held = plain.get("evaluation")
        body += _warnings([privacy, *([Statement.from_dict(held["privacy"])] if held else [])], holder)
        body += sections(plain, holder=holder)
        body += ["<h2>Who took part</h2>", _sites(plain, privacy)]
        body += _cost(plain, privacy)
        body += _promise(plain, privacy)
        if holder:
            body += _held_back(plain)
        body += _made(plain, privacy)
        return frame(named, body, STYLE)


def _last(data: Any) -> str:
    """The last part of a path; the rest is private."""
    return str(data or "a table").replace("\\", "/").rstrip("/").rpartition("/")[2]


def _warnings(promises: Sequence[Statement], holder: bool) -> Iterator[str]:
    if holder:
        yield (
            '<p class="warn"><b>For the holder of the rows only</b>: some numbers below are without noise, and marked. '
            "Do not pass this page on.</p>"
        )
    if any(math.isinf(privacy.epsilon) for privacy in promises):
        yield '<p class="warn"><b>No privacy guarantee</b>: see what is promised, below.</p>'
    elif any(privacy.simulated for privacy in promises):
        yield (
            '<p class="warn"><b>A simulation, not a release</b>: its noise can be repeated by anybody with the seed. '
            "Show it only to people who may see the rows.</p>"
        )


def _held_back(plain: dict[str, Any]) -> Iterator[str]:
    """Numbers without noise, which no epsilon covers."""
    exact = {name: value for name, value in (plain.get("exact") or {}).items() if name != "rows"}
    errors = {
        "test_error": "error of the model",
        "nonprivate_test_error": "error of the best linear model without privacy",
    }
    exact |= {text: plain[name] for name, text in errors.items() if plain.get(name) is not None}
    notes = [str(note) for note in plain.get("notes") or ()]
    if exact or notes:
        yield "<h2>For the holder only, without noise</h2>"
    if exact:
        rows = [
            f'<tr><td>{escape(name)}</td><td class="n">{number(value):.4f}</td></tr>' for name, value in exact.items()
        ]
        yield table([("on test rows", ""), ("", "n")], rows)
    if notes:
        yield "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>"


def _made(plain: dict[str, Any], privacy: Statement) -> Iterator[str]:
    yield "<h2>How it was made</h2>"
    if plain.get("command"):
        yield f"<pre>{escape(str(plain['command']))}</pre>"
    source = "comes from the seed" if privacy.simulated else "comes from the operating system"
    method = f"Method {escape(str(plain.get('method', 'unknown')))}. " if plain.get("method") else ""
    versions = f"{escape(str(plain['versions']))}. " if plain.get("versions") else ""
    yield f"<p>{method}{versions}All noise {source}.</p>"
