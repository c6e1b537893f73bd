"""The pages of studies: one file a study, and an index of several."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from sottovoce.util.pages import frame, table
from sottovoce.util.plain import jsonable
from sottovoce.util.typing import Any

from . import made, verdicts
from .figures import SPREADS, Panel, series_of
from .kinds import Row
from .run import StudyRun
from .spec import Figure, Reading, Study, matches, select
from .verdicts import Judged, Judgement, said

STYLE = """
.panels{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:.8rem}
.panels img{display:block;width:100%;max-width:36rem;height:auto;background:#fff;border-radius:.3rem}
.claim{border-left:.25rem solid var(--line);padding:.1rem 0 .1rem .8rem;margin:.8rem 0;max-width:46rem}
.claim p{margin:.2rem 0}.word{font-weight:600}.word.yes{color:var(--green)}.word.no{color:var(--red)}
.word.hm{color:var(--blue)}ul{padding-left:1.2rem;max-width:46rem}li{margin:.3rem 0}
details{margin:.4rem 0}summary{cursor:pointer;color:var(--blue)}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,17rem),1fr));gap:1rem;padding:0}
.card{border:1px solid var(--line);border-radius:.4rem;padding:.7rem;color:inherit;text-decoration:none;display:block}
.card img{width:100%;height:11rem;object-fit:contain;background:#fff;border-radius:.3rem}.card h3{margin:.4rem 0 .1rem}
"""
_AGAINST = (verdicts.MOSTLY_NOT, verdicts.NOT, verdicts.MOSTLY_FAILS, verdicts.FAILS, verdicts.REFUTED)
_CSS = {verdicts.REPRODUCED: "yes", verdicts.HOLDS: "yes"} | dict.fromkeys(_AGAINST, "no")
MARK = "quick run"
_MOST = 400  # rows of a page's table


def verdicts_json(done: StudyRun, claims: Sequence[Judged]) -> str:
    """The verdicts of a study, and how it was run, as JSON."""
    study = done.study
    content = {
        "study": study.name, "paper": study.paper, "replicates": study.replicates, "seed": study.seed,
        "cells": done.cells, "quick": done.quick, "seconds": round(done.seconds, 1), "made": made.here(),
        "differs": list(study.differs), "claims": [one.plain() for one in claims],
    }  # fmt: skip
    return json.dumps(jsonable(content), indent=1) + "\n"


def page(done: StudyRun, drawn: Sequence[tuple[Figure, list[Panel]]], claims: Sequence[Judged], command: str) -> str:
    """A study's self-contained page."""
    study = done.study
    paper = f'<p class="soft">After {escape(study.paper)}.</p>' if study.paper else ""
    ordered = f"<p>{escape(verdicts.ORDERED)}</p>" if study.paper and claims else ""
    body = [
        f"<h1>{escape(study.title)}{f' ({MARK})' if done.quick else ''}</h1>", ordered, paper,
        f'<p class="lead">{escape(study.about)}</p>' if study.about else "",
        _claims(claims), _readings(study.readings), *(_figure(*pair) for pair in drawn), _summary(done),
        _list("What differs from the paper" if study.paper else "Choices", study.differs),
        _privacy(done), _list("Notes", done.notes), _made(
            command,
            f"{done.cells} cells, {done.seconds:.0f} seconds of a processor together. Seed {study.seed},",
            f"{study.replicates} replicates; the same command with the same versions gives the same numbers.",
            'Every replicate is in <a href="table.csv">table.csv</a>.',
        ),
    ]  # fmt: skip
    return frame(f"sottovoce study {study.name}", body, STYLE)


def _image(panel: Panel, about: str) -> str:
    plain = base64.b64encode(panel.svg).decode()
    return f'<img alt="{escape(about)}" src="data:image/svg+xml;base64,{plain}">'


def _figure(figure: Figure, panels: list[Panel]) -> str:
    if not panels:
        return f"<h2>{escape(figure.title)}</h2><p>No rows for this figure.</p>"
    spread = f" {SPREADS[figure.spread].capitalize()}." if figure.kind in ("line", "bar") else ""
    images = "".join(_image(panel, f"{figure.title} {panel.title}".strip()) for panel in panels)
    caption = f"{escape(figure.caption)}{spread}".strip()
    return (
        f'<h2>{escape(figure.title)}</h2><figure><div class="panels">{images}</div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _sentence(basis: str, verdict: Judgement) -> str:
    css = _CSS.get(verdict.word, "hm")
    head = f'<p>{basis.capitalize()}: {escape(verdict.reason)}: <span class="word {css}">{verdict.word}</span>.</p>'
    if verdict.word in (verdicts.REFUTED, verdicts.MISPRINT):
        return f"{head}<details><summary>what was measured</summary>{_items(verdict.details)}</details>"
    if len(verdict.details) < 2:
        return head
    return f"{head}<details><summary>every setting</summary>{_items(verdict.details)}</details>"


def said_of(one: Judged) -> str:
    """The sentence of a claim, with the paper's numbers and the reading under which it is judged."""
    paper = f" The paper: {one.claim.paper}." if one.claim.paper else ""
    return one.claim.says + paper + (f" Reading: {one.reading}." if one.reading else "")


def _readings(readings: Sequence[Reading]) -> str:
    lines = [f"{one.name} ({one.line}): {one.says}" for one in readings]
    return _list("Lines of the paper that can be read in several ways", lines)


def _claims(claims: Sequence[Judged]) -> str:
    if not claims:
        return ""
    parts = []
    for one in claims:
        found = "".join(_sentence(verdicts.BASES[basis], verdict) for basis, verdict in one.verdicts.items())
        parts.append(f'<div class="claim"><p>{escape(said_of(one))}</p>{found}</div>')
    told = {verdict.word for one in claims for verdict in one.verdicts.values()}
    words = [f'"{word}": {meaning}.' for word, meaning in verdicts.MEANINGS.items() if word in told]
    how = escape(" ".join([verdicts.RULE, *words, "± is two standard errors."]))
    return f'<h2>What is claimed, and what came out</h2>{"".join(parts)}<p class="soft">{how}</p>'


def _items(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _list(title: str, lines: Sequence[str]) -> str:
    return f"<h2>{title}</h2>{_items(lines)}" if lines else ""


_EPSILON = re.compile(r"^(.*?): epsilon = ([0-9.]+|inf)(?:, delta = ([^ ,]+))?")


def _privacy(done: StudyRun) -> str:
    """What is promised, a line a method; the statements in full are in a file of their own."""
    totals: dict[tuple[str, str], list[float]] = {}
    others, against = list[str](), list[str]()
    for said_ in done.privacy:
        lines = said_.split("\n")
        if found := _EPSILON.match(lines[0]):
            at = f" at delta {found[3]}" if found[3] else ""
            totals.setdefault((found[1], at), []).append(float(found[2]))
            against += [line.partition(":")[0] for line in lines[1:] if line.startswith("Protects")]
        else:
            others.append(lines[0])
    told = [f"{name}: epsilon {_range(found)}{at}" for (name, at), found in totals.items()] + list(
        dict.fromkeys(others)
    )
    if not told:
        return ""
    what = f"{' '.join(f'{text}.' for text in dict.fromkeys(against))} All of it is simulated: noise follows a seed."
    inner = _items(told)
    if len(told) > 12:
        inner = f"<details><summary>{len(told)} methods</summary>{inner}</details>"
    full = '<p class="soft">In full: <a href="privacy.txt">privacy.txt</a>.</p>'
    return f"<h2>What is promised</h2><p>{escape(what.strip())}</p>{inner}{full}"


def _range(found: list[float]) -> str:
    low, high = min(found), max(found)
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _made(command: str, *said: str) -> str:
    told = escape(made.sentence(made.here()))
    return f"<h2>How it was made</h2><pre>{escape(command)}</pre><p>{told}. {' '.join(said)}</p>"


def _last(rows: list[Row]) -> list[Row]:
    """The rows of a curve's last round; other rows as they are."""
    rounds = [row["round"] for row in rows if "round" in row]
    return [row for row in rows if row.get("round") == max(rounds)] if rounds else rows


def _summary(done: StudyRun) -> str:
    """Means over replicates of what the figures show, one row for each setting."""
    study = done.study
    keys = list(study.table) or [key for key in study.varied() if key in done.columns]
    shown = [figure.y or figure.x for figure in study.figures]
    values = [name for name in dict.fromkeys(shown) if name in done.columns and name not in keys][:6]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in done.rows:
        if not matches(row, study.table_filter):
            continue
        groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    names = {text: word for figure in study.figures for text, word in figure.names.items()}
    units = {figure.y or figure.x: figure.ylabel if figure.y else figure.xlabel for figure in reversed(study.figures)}
    units |= {figure.facet or figure.x: names.get(figure.facet, "") for figure in study.figures} | dict(study.columns)
    printed = _printed(study, groups, keys)
    lines = []
    for key, those in list(groups.items())[:_MOST]:
        cells = "".join(f'<td class="w">{escape(names.get(said(value), said(value)))}</td>' for value in key)
        last = those if "round" in keys else _last(those)
        for name in values:
            found = [float(row[name]) for row in last if isinstance(row.get(name), int | float)]
            cells += f'<td class="n">{_mean(found)}</td>'
        if printed:
            cells += f'<td class="w">{escape(printed.get(key, ""))}</td>'
        lines.append(f"<tr>{cells}</tr>")
    if not lines or not values:
        return ""
    head = [(escape(units.get(key) or key), "") for key in keys]
    head += [(escape(units.get(name) or name), "n") for name in values]
    head += [("paper", "")] if printed else []
    count = "" if len(groups) <= _MOST else f" The first {_MOST} of {len(groups)} settings."
    note = f'<p class="soft">Mean ± standard deviation over replicates, of curves after the last round.{count}</p>'
    inner = table(head, lines) + note
    if len(lines) > 24:
        inner = f"<details><summary>{len(lines)} settings</summary>{inner}</details>"
    return f"<h2>In numbers</h2>{inner}"


def _printed(study: Study, groups: Mapping[tuple[Any, ...], list[Row]], keys: list[str]) -> dict[tuple[Any, ...], str]:
    """The paper's numbers, by the setting of the table that they belong to."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for points in study.paper_points:
        figure = next(figure for figure in study.figures if figure.name == points.figure)
        for x, y in zip(points.x, points.y, strict=True):
            error = f" ± {points.error:g}" if points.error else ""
            at = "" if figure.x in keys else f" at {figure.x} {said(x)}"
            told = f"{figure.y} {y:g}{error}{at} ({points.source})"
            for key, rows in groups.items():
                those = select(rows, {**figure.filter, figure.x: x})
                if points.facet is not None:
                    those = [row for row in those if row.get(figure.facet) == points.facet]
                if any(not points.series or series_of(row, figure) == points.series for row in those):
                    found.setdefault(key, []).append(told)
    return {key: "; ".join(dict.fromkeys(texts)) for key, texts in found.items()}


def _mean(values: list[float]) -> str:
    if not values:
        return ""
    array = np.array(values)
    if not np.all(np.isfinite(array)):
        return "∞" if np.all(array == math.inf) else "–"
    spread = f" ± {array.std(ddof=1):.2g}" if array.size > 1 and np.ptp(array) > 0 else ""
    return f"{array.mean():.4g}{spread}"


def index(done: Sequence[tuple[StudyRun, Panel | None, Sequence[Judged]]], skipped: Sequence[str], command: str) -> str:
    """A page that leads to the studies' pages."""
    cards = []
    for one, panel, claims in done:
        found = [(verdict.word, verdict.settings) for judged in claims for verdict in judged.verdicts.values()]
        told = "; ".join(verdicts.summed(found))
        picture = "" if panel is None else _image(panel, one.study.title)
        cards.append(
            f'<a class="card" href="{escape(one.study.name)}/index.html">{picture}<h3>{escape(one.study.name)}</h3>'
            f'{escape(one.study.title)}<p class="soft">{escape(told)}</p></a>'
        )
    body = [
        "<h1>Studies</h1>", f'<p class="lead">{len(done)} studies.</p>', f'<div class="cards">{"".join(cards)}</div>',
        _list("Left out", list(skipped)),
        _made(command, f"{sum(one.seconds for one, _, _ in done):.0f} seconds of a processor together."),
    ]  # fmt: skip
    return frame("sottovoce studies", body, STYLE)
