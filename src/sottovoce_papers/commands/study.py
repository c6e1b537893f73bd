"""``sottovoce study``: run an experiment that a TOML file describes, and write its table,
figures and page.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import click

from sottovoce.cli.options import (
    decorate_with_options,
    json_flag_option,
    make_option,
    typed_command_line,
)
from sottovoce.cli.screen import Console, escape_markup, make_listing, print_json, show_progress_bar
from sottovoce.errors import SottovoceError

from ..studies import figures, page, spec
from ..studies.drawn import panels
from ..studies.run import StudyRun, changed, run, write
from ..studies.verdicts import BASES, UNSEEN, Judged, judged, of_quick_run

_OPTIONS = [
    make_option(
        "--quick",
        "Run smaller grids with fewer rounds and replicates: seconds instead of minutes.",
        is_flag=True,
    ),
    make_option(
        "--out",
        "Folder in which each study gets a folder of its own.",
        default="studies",
        type=click.Path(file_okay=False),
    ),
    make_option(
        "--jobs",
        "Number of cells to run in parallel, as joblib's n_jobs; -1 uses all processors.",
        type=int,
        default=-1,
    ),
    make_option(
        "--replicates",
        "Number of repetitions of the noise, in place of the study's own.",
        type=click.IntRange(min=1),
    ),
    make_option("--seed", "Random seed, in place of the study's own.", type=click.IntRange(min=0)),
    make_option("--data", "Your own table, for a study that needs one.", type=click.Path()),
    make_option("--list", "List all studies.", name="listed", is_flag=True),
    json_flag_option(),
]


class FinishedStudy(NamedTuple):
    """A study that was run, its first panel (None without figures) and its judged claims.

    `quick` says what a quick run has of the study, and is empty for a whole one.
    """

    done: StudyRun
    first: figures.Panel | None
    claims: list[Judged]
    quick: str


@click.command(name="study")
@click.argument("name", required=False)
@decorate_with_options(_OPTIONS)
def study(
    name: str | None,
    quick: bool,
    out: str,
    jobs: int,
    replicates: int | None,
    seed: int | None,
    data: str | None,
    listed: bool,
    as_json: bool,
) -> None:
    """Run the study NAME, `all` of them, or one of your own from a TOML file.

    A study runs one cell for each combination of its parameters.  It writes to OUT/NAME: every
    replicate (table.csv, and table.parquet with pyarrow), figures (PNG and SVG), a page,
    index.html, and its verdicts as data (verdicts.json).  Finished cells are kept, so an
    interrupted study continues where it stopped.

    \b
      sottovoce study --list              all studies
      sottovoce study 002-fig5 --quick    a first look
      sottovoce study all --quick         every study, and an index page
      sottovoce study my.toml --jobs 4    your own, four cells at a time
    """
    if listed:
        _list(as_json)
        return
    if name is None:
        raise click.UsageError(
            "name a study, `all`, or a TOML file; `sottovoce study --list` names them"
        )
    figures.require()
    wanted = [name]
    if name == "all":
        wanted = spec.names()
    chosen = [spec.load(each) for each in wanted]
    console = Console(stderr=True)
    finished, skipped, failed = [], [], []
    for one in chosen:
        if name == "all" and one.file is not None and not one.file.optional:
            skipped.append(f"{one.name}: needs your own table; {one.file.how}")
            continue
        try:
            finished.append(_one(changed(one, replicates, seed), out, quick, jobs, data, console))
        except SottovoceError as error:
            if name != "all":
                raise
            failed.append(f"{one.name}: {error}")
    index = None
    if name == "all":
        index = Path(out) / "index.html"
        shown = [(one.done, one.first, one.claims) for one in finished]
        write(index, page.index(shown, skipped + failed, typed_command_line()))
    if as_json:
        print_json(_plain(finished, skipped, failed, index), indent=2)
    else:
        _render(finished, skipped, failed, index)
    if failed:
        sys.exit(1)


def _one(
    one: spec.Study, out: str, quick: bool, jobs: int, data: str | None, console: Console
) -> FinishedStudy:
    """Run one study, judge its claims, draw its figures, and write all its files."""
    with show_progress_bar(console, one.name, left=True) as bar:
        tell = bar and (lambda done, of: bar(completed=done, total=of))
        done = run(one, out, quick=quick, jobs=jobs, file=data, progress=tell)
    mark, told = "", ""
    claims = judged(done.study, done.rows)
    if quick:
        claims, left_out = of_quick_run(claims)
        mark, told = page.MARK, page.quick_words(one, left_out)
    drawn = panels(done, mark)
    for line in [*done.study.unknown_columns(done.columns), *_unjudged(done, claims)]:
        console.print(f"[yellow]note[/] {escape_markup(line)}", highlight=False, soft_wrap=True)
    write(done.folder / "verdicts.json", page.verdicts_json(done, claims))
    write(done.folder / "privacy.txt", "\n\n".join(done.privacy) + "\n")
    write(done.folder / "index.html", page.page(done, drawn, claims, typed_command_line(), told))
    first = next((panel for _, those in drawn for panel in those), None)
    return FinishedStudy(done, first, claims, told)


def _unjudged(done: StudyRun, claims: list[Judged]) -> list[str]:
    """Return notes on claims without a verdict: those that select no rows, and values that no row
    has; none for a quick run.
    """
    unseen = [
        one for one in claims if any(verdict.word == UNSEEN for verdict in one.verdicts.values())
    ]
    # a quick run leaves settings out, and says so
    if done.quick:
        return []
    lines = [f"claim {page.said_of(one)!r}: {UNSEEN}" for one in unseen]
    return [*done.study.unmatched(done.rows), *lines]


def _list(as_json: bool) -> None:
    """Print all studies, as a table or as JSON."""
    studies = [spec.load(name) for name in spec.names()]
    if as_json:
        plain = [
            {
                "name": one.name,
                "title": one.title,
                "paper": one.paper,
                "cells": len(one.points()),
                "quick_cells": len(one.quickly().points()),
                "needs": one.file and one.file.how,
            }
            for one in studies
        ]
        print_json(plain, indent=2)
        return
    table = make_listing("<name", "<title", "<paper", ">cells")
    table.title, table.columns[0].no_wrap = "Studies", True
    for one in studies:
        title = escape_markup(one.title)
        if one.file:
            title += " [dim](needs your own table)[/]"
        table.add_row(
            escape_markup(one.name),
            title,
            escape_markup(one.paper) or "ours",
            str(len(one.points())),
        )
    Console().print(table)


def _plain(
    finished: list[FinishedStudy], skipped: list[str], failed: list[str], index: Path | None
) -> dict[str, Any]:
    """Return the results of the command as plain data for JSON."""

    def words(one: Judged) -> dict[str, Any]:
        found = {basis: verdict.word for basis, verdict in one.verdicts.items()}
        return {"says": one.claim.says, "reading": one.reading} | dict.fromkeys(BASES, None) | found

    where = None
    if index is not None:
        where = str(index)
    return {
        "studies": [
            {
                "name": done.study.name,
                "page": str(done.folder / "index.html"),
                "table": str(done.folder / "table.csv"),
                "rows": len(done.rows),
                "cells": done.cells,
                "reused": done.reused,
                "seconds": done.cost.seconds,
                "quick": quick or None,
                "claims": [words(one) for one in claims],
            }
            for done, _, claims, quick in finished
        ],
        "skipped": skipped,
        "failed": failed,
        "index": where,
    }


def _render(
    finished: list[FinishedStudy], skipped: list[str], failed: list[str], index: Path | None
) -> None:
    """Print the verdicts of every study, and the paths of their pages."""
    console = Console()
    for done, _, claims, quick in finished:
        told = f"{done.cells} cells"
        if done.reused:
            told += f", {done.reused} reused from an earlier run"
        told += f", {done.cost.seconds:.0f} s"
        console.print(f"[bold]{escape_markup(done.study.name)}[/]: {told}", highlight=False)
        if quick:
            console.print(f"  [yellow]{escape_markup(quick)}[/]", highlight=False)
        for one in claims:
            console.print(f"  {escape_markup(page.said_of(one))}", highlight=False)
            for basis, verdict in one.verdicts.items():
                told = (
                    f"    {BASES[basis]}: {escape_markup(verdict.reason)}: [bold]{verdict.word}[/]"
                )
                console.print(told, highlight=False)
        console.print(
            f"  {escape_markup(str(done.folder / 'index.html'))}", highlight=False, soft_wrap=True
        )
    for line in skipped:
        console.print(f"[yellow]skipped[/] {escape_markup(line)}", highlight=False)
    for line in failed:
        console.print(f"[red]failed[/] {escape_markup(line)}", highlight=False)
    if index is not None:
        console.print(escape_markup(str(index)), highlight=False, soft_wrap=True)
