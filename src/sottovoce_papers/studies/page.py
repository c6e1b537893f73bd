"""HTML pages of studies: one self-contained page for each study, and an index of several.

Templates are in ``sottovoce_papers/templates``; this module prepares the texts and numbers that
they show (:func:`sottovoce.util.pages.render_template`).  Verdicts are also written as data, for
the generated pages of the documentation.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sottovoce.util.pages import Column, Table, render_template
from sottovoce.util.plain import infinities_to_text
from sottovoce.util.typing import Any

from . import made, verdicts
from .figures import SPREADS, Panel, series_of
from .kinds import Row
from .run import Cost, StudyRun
from .spec import Figure, Study, matches, select
from .verdicts import Judged, Judgement, said

_AGAINST = (
    verdicts.MOSTLY_NOT,
    verdicts.NOT,
    verdicts.MOSTLY_FAILS,
    verdicts.FAILS,
    verdicts.REFUTED,
)
_CSS = {verdicts.REPRODUCED: "yes", verdicts.HOLDS: "yes"} | dict.fromkeys(_AGAINST, "no")
MARK = "quick run"
_MOST = 400  # rows of a page's table


def verdicts_json(done: StudyRun, claims: Sequence[Judged]) -> str:
    """Return the verdicts of a study, and how it was run, as JSON text."""
    study = done.study
    content = {
        "study": study.name,
        "paper": study.paper,
        "replicates": study.replicates,
        "seed": study.seed,
        "cells": done.cells,
        "quick": done.quick,
        "seconds": round(done.cost.seconds, 1),
        "made": made.here(),
        "differs": list(study.differs),
        "claims": [one.plain() for one in claims],
    }
    return json.dumps(infinities_to_text(content), indent=1) + "\n"


def quick_words(study: Study, left_out: int) -> str:
    """Say what a quick run has of a study, and how many of its claims that leaves out."""
    told = f"{MARK}: {study.quick_sizes()}; no verdict on the paper"
    if left_out == 1:
        told += "; a claim that it has no rows for is left out"
    elif left_out:
        told += f"; {left_out} claims that it has no rows for are left out"
    return told


def page(
    done: StudyRun,
    drawn: Sequence[tuple[Figure, list[Panel]]],
    claims: Sequence[Judged],
    command: str,
    quick: str = "",
) -> str:
    """Build the self-contained page of a study.

    Parameters
    ----------
    done : StudyRun
        The study with its table.
    drawn : sequence of (Figure, list of Panel)
        Its figures.
    claims : sequence of Judged
        Its claims with their verdicts.
    command : str
        The command line that made it, which the page shows.
    quick : str
        What a quick run has of the study (:func:`quick_words`).

    Returns
    -------
    str
        HTML.
    """
    study = done.study
    made_with = (
        f"{made.sentence(made.here())}. "
        f"{done.cells} cells, {done.cost.seconds:.0f} seconds of a processor together. "
        f"Seed {study.seed}, {study.replicates} replicates; "
        "the same command with the same versions gives the same numbers."
    )
    # a quick run has fewer replicates and settings, and its page must not pass for the study's
    heading, first_line, meanings = study.title, "", _meanings(claims)
    if study.paper and claims:
        first_line = verdicts.ORDERED
    if done.quick:
        heading = f"{study.title} ({MARK})"
        first_line = f"{quick.capitalize()}."
        meanings = f"{verdicts.RULE} ± is two standard errors."
    return render_template(
        "study.html",
        package="sottovoce_papers",
        title=f"sottovoce study {study.name}",
        heading=heading,
        ordered=first_line,
        paper=study.paper,
        about=study.about,
        claims=[ShownClaim(said_of(one), _verdicts(one)) for one in claims],
        meanings=meanings,
        readings=[f"{one.name} ({one.line}): {one.says}" for one in study.readings],
        figures=[_figure(*pair) for pair in drawn],
        summary=_summary(done),
        differs=study.differs,
        privacy=_privacy(done),
        notes=done.notes,
        command=command,
        made=made_with,
    )


class Picture(NamedTuple):
    """An SVG in base64, for a data URL, and its description for screen readers."""

    base64: str
    about: str


def _picture(panel: Panel, about: str) -> Picture:
    return Picture(base64.b64encode(panel.svg).decode(), about)


class ShownFigure(NamedTuple):
    """A figure with its panels."""

    title: str
    pictures: list[Picture]
    caption: str


def _figure(figure: Figure, panels: list[Panel]) -> ShownFigure:
    caption = figure.caption
    # histograms and scatter plots show every value, and no spread of a mean
    if figure.kind in ("line", "bar"):
        caption = f"{caption} {SPREADS[figure.spread].capitalize()}."
    pictures = [_picture(panel, f"{figure.title} {panel.title}".strip()) for panel in panels]
    return ShownFigure(figure.title, pictures, caption.strip())


class ShownVerdict(NamedTuple):
    """A verdict in words; its details are folded behind the line `summary`, if that is not ""."""

    basis: str
    reason: str
    word: str
    css: str
    summary: str
    details: Sequence[str]


class ShownClaim(NamedTuple):
    """A claim and its verdicts."""

    says: str
    verdicts: list[ShownVerdict]


def _verdicts(one: Judged) -> list[ShownVerdict]:
    """Return the verdicts of a claim as the page shows them, one for each basis."""
    return [
        ShownVerdict(
            basis=verdicts.BASES[basis].capitalize(),
            reason=verdict.reason,
            word=verdict.word,
            css=_CSS.get(verdict.word, "hm"),
            summary=_details_in_words(verdict),
            details=verdict.details,
        )
        for basis, verdict in one.verdicts.items()
    ]


def _details_in_words(verdict: Judgement) -> str:
    if verdict.word in (verdicts.REFUTED, verdicts.MISPRINT):
        return "what was measured"
    if len(verdict.details) > 1:
        return "every setting"
    return ""


def said_of(one: Judged) -> str:
    """Return the sentence of a claim, with the paper's numbers and the reading it is judged by."""
    sentences = [one.claim.says]
    if one.claim.paper:
        sentences.append(f"The paper: {one.claim.paper}.")
    if one.reading:
        sentences.append(f"Reading: {one.reading}.")
    return " ".join(sentences)


def _meanings(claims: Sequence[Judged]) -> str:
    """Return the rule by which claims are judged, and the meaning of each word that occurs."""
    told = {verdict.word for one in claims for verdict in one.verdicts.values()}
    words = [f'"{word}": {meaning}.' for word, meaning in verdicts.MEANINGS.items() if word in told]
    return " ".join([verdicts.RULE, *words, "± is two standard errors."])


# The first line of a statement, as `Statement` writes it; other lines are shown as they are.
_EPSILON = re.compile(r"^(.*?): epsilon = ([0-9.]+|inf)(?:, delta = ([^ ,]+))?")


class Promised(NamedTuple):
    """Against whom methods protect, and each one's total, folded if there are many."""

    against: str
    totals: list[str]
    folded: bool


def _privacy(done: StudyRun) -> Promised | None:
    """Summarise the privacy statements, one line per method; None if there are none.

    The full statements are in a file of their own.
    """
    totals: dict[tuple[str, str], list[float]] = {}
    others, against = list[str](), list[str]()
    for statement in done.privacy:
        lines = statement.split("\n")
        if found := _EPSILON.match(lines[0]):
            at = ""
            if found[3]:
                at = f" at delta {found[3]}"
            totals.setdefault((found[1], at), []).append(float(found[2]))
            against += [line.partition(":")[0] for line in lines[1:] if line.startswith("Protects")]
        else:
            others.append(lines[0])
    told = [f"{name}: epsilon {_range(found)}{at}" for (name, at), found in totals.items()]
    told += dict.fromkeys(others)
    if not told:
        return None
    sentences = [f"{text}." for text in dict.fromkeys(against)]
    sentences.append("All of it is simulated: noise follows a seed.")
    return Promised(" ".join(sentences), told, folded=len(told) > 12)


def _range(found: list[float]) -> str:
    low, high = min(found), max(found)
    if low == high:
        return f"{low:.4g}"
    return f"{low:.4g} to {high:.4g}"


def _last(rows: list[Row]) -> list[Row]:
    """Return the rows of the last round, if rows have rounds; otherwise all."""
    rounds = [row["round"] for row in rows if "round" in row]
    if not rounds:
        return rows
    last = max(rounds)
    return [row for row in rows if row.get("round") == last]


class Summary(NamedTuple):
    """Means over replicates, one row for each setting; folded if they are many."""

    table: Table
    left_out: str
    folded: bool


def _summary(done: StudyRun) -> Summary | None:
    """Build the table of means over replicates of the columns that the figures show, or None."""
    study = done.study
    keys = list(study.table) or [key for key in study.varied() if key in done.columns]
    shown = dict.fromkeys(figure.y or figure.x for figure in study.figures)
    values = [name for name in shown if name in done.columns and name not in keys]
    # more columns of numbers are no longer read on a page
    values = values[:6]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in done.rows:
        if matches(row, study.table_filter):
            groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    if not groups or not values:
        return None
    names = {text: word for figure in study.figures for text, word in figure.names.items()}
    printed = _printed(study, groups, keys)
    rows = []
    for setting, those in list(groups.items())[:_MOST]:
        cells = [names.get(said(value), said(value)) for value in setting]
        # a mean over the rounds of a curve says nothing: its last round stands for it
        if "round" not in keys:
            those = _last(those)
        cells += _means(those, values)
        if printed:
            cells.append(printed.get(setting, ""))
        rows.append(cells)
    left_out = ""
    if len(groups) > _MOST:
        left_out = f" The first {_MOST} of {len(groups)} settings."
    columns = _columns(study, keys, values, names)
    if printed:
        columns.append(Column("paper", "w"))
    return Summary(Table(columns, rows), left_out, folded=len(rows) > 24)


def _columns(
    study: Study, keys: Sequence[str], values: Sequence[str], names: Mapping[str, str]
) -> list[Column]:
    """Return the headings of the table of means, by the names and units that the figures use."""
    units: dict[str, str] = {}
    # the first figure that shows a column names it, so the later ones are read before it
    for figure in reversed(study.figures):
        if figure.y:
            units[figure.y] = figure.ylabel
        else:
            units[figure.x] = figure.xlabel
    for figure in study.figures:
        units[figure.facet or figure.x] = names.get(figure.facet, "")
    units |= dict(study.columns)
    settings = [Column(units.get(key) or key, "w") for key in keys]
    return settings + [Column(units.get(name) or name, "n") for name in values]


def _means(rows: Sequence[Row], values: Sequence[str]) -> list[str]:
    """Format the mean of each column in `values` over the rows where it is a number."""
    return [
        _mean([float(row[name]) for row in rows if isinstance(row.get(name), int | float)])
        for name in values
    ]


def _printed(
    study: Study, groups: Mapping[tuple[Any, ...], list[Row]], keys: list[str]
) -> dict[tuple[Any, ...], str]:
    """Return the paper's numbers as texts, by the setting (row of the table) they belong to."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for points in study.paper_points:
        figure = next(figure for figure in study.figures if figure.name == points.figure)
        for x, y in zip(points.x, points.y, strict=True):
            told = f"{figure.y} {y:g}"
            if points.error:
                told += f" ± {points.error:g}"
            # the row of the table says where the point is, if x is one of its columns
            if figure.x not in keys:
                told += f" at {figure.x} {said(x)}"
            told += f" ({points.source})"
            for key, rows in groups.items():
                those = select(rows, {**figure.filter, figure.x: x})
                if points.facet is not None:
                    those = [row for row in those if row.get(figure.facet) == points.facet]
                if any(
                    not points.series or series_of(row, figure) == points.series for row in those
                ):
                    found.setdefault(key, []).append(told)
    return {key: "; ".join(dict.fromkeys(texts)) for key, texts in found.items()}


def _mean(values: list[float]) -> str:
    """Format a mean ± standard deviation; "∞" or "–" where there is no finite mean."""
    if not values:
        return ""
    array = np.array(values)
    if np.all(array == math.inf):
        return "∞"
    # some values are infinite, or a run diverged: there is no mean
    if not np.all(np.isfinite(array)):
        return "–"
    mean = f"{array.mean():.4g}"
    if array.size > 1 and np.ptp(array) > 0:
        return f"{mean} ± {array.std(ddof=1):.2g}"
    return mean


class Card(NamedTuple):
    """An entry of the index, which links to a study's page."""

    name: str
    title: str
    told: str
    picture: Picture | None


def index(
    done: Sequence[tuple[StudyRun, Panel | None, Sequence[Judged]]],
    skipped: Sequence[str],
    command: str,
) -> str:
    """Build the index page, which links to the studies' pages.

    Parameters
    ----------
    done : sequence of (StudyRun, Panel or None, sequence of Judged)
        Each study with its first panel and its claims.
    skipped : sequence of str
        Lines about studies that did not run.
    command : str
        The command line, which the page shows.

    Returns
    -------
    str
        HTML.
    """
    cards = []
    for one, panel, claims in done:
        found = [
            (verdict.word, verdict.settings)
            for judged in claims
            for verdict in judged.verdicts.values()
        ]
        picture = None
        if panel is not None:
            picture = _picture(panel, one.study.title)
        told = "; ".join(verdicts.summed(found))
        if one.quick:
            told = f"{MARK}: {told}"
        cards.append(Card(one.study.name, one.study.title, told, picture))
    seconds = Cost.together(one.cost for one, _, _ in done).seconds
    return render_template(
        "studies.html",
        package="sottovoce_papers",
        title="sottovoce studies",
        cards=cards,
        skipped=skipped,
        command=command,
        made=f"{made.sentence(made.here())}. {seconds:.0f} seconds of a processor together.",
    )
