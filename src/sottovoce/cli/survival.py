"""``sottovoce survival``: Kaplan-Meier curves by group under differential privacy, one release."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import NotWritten, escape_unprintable
from ..runs import defaults
from ..util import files
from ..util.plain import format_json_text, select_shown_figures
from . import results
from .options import (
    FILE,
    NUMBER,
    decorate_with_options,
    holder_flag_option,
    json_flag_option,
    make_option,
    opened_ledger,
)
from .render import make_privacy_panel, print_notes
from .screen import Console, escape_markup, make_listing, print_json
from .tables import read_table_with_notes

if TYPE_CHECKING:
    from ..answers.survival_curves import SurvivalCurves

SHOWN = 40
"""Most times in a printed table; JSON has all."""
_OPTIONS = [
    make_option("--data", "The table, a CSV or Parquet file.", type=FILE, required=True),
    make_option(
        "--schema",
        "Public facts of the table, as TOML: see `sottovoce schema init`.",
        type=FILE,
        required=True,
    ),
    make_option("--by", "Column with declared levels, which are the groups."),
    make_option("--epsilon", "Epsilon of each person.", type=float, default=1.0),
    make_option("--time", "Column of the time.  [default: the schema's]"),
    make_option("--event", "Column of whether the event came then.  [default: the schema's]"),
    make_option("--event-code", "Value of --event that means the event.  [default: 1 or true]"),
    click.option(
        "--grid",
        "--times",
        "grid",
        type=NUMBER,
        help="Public times at which curves are estimated, such as 30,60,90.  [default: the "
        "schema's cuts, and times evenly between them]",
    ),
    make_option("--delta", "Delta of the guarantee.", type=float, default=defaults.DELTA),
    make_option("--relation", "Neighbouring data: replace-one or zero-out.", default="replace-one"),
    make_option(
        "--trust",
        "Whom people trust with rows: nobody (local), sum (secure aggregation) or curator "
        "(central).",
        default="nobody",
    ),
    make_option("--colluders", "Under sum: sites that may collude.", type=int, default=1),
    make_option(
        "--nodes", "Number of sites.  [default: 1, or as many as the site column names]", type=int
    ),
    make_option(
        "--partition",
        "How rows lie at sites: iid, column:NAME or site:NAME.  [default: the schema's site, else "
        "iid]",
    ),
    make_option("--seed", "Seed of noise and partition: a simulation.", type=int, default=0),
    make_option("--system-noise", "Draw noise from the operating system: a release.", is_flag=True),
    make_option(
        "--ledger", "These rows' ledger on disk, made by `sottovoce ledger init`.", type=FILE
    ),
    make_option(
        "--run",
        "Name of this release in the ledger.  [default: from the options]",
        name="run_name",
    ),
    make_option(
        "--checkpoint", "Save the answer here, and resume from it if it exists.", type=FILE
    ),
    make_option("--save", "Write what --json prints to this file.", type=FILE),
    make_option("--plot", "Also draw the curves to this file, SVG, PDF or PNG.", type=FILE),
    json_flag_option(),
    holder_flag_option(),
]


@dataclass(frozen=True)
class SurvivalOptions:
    """The parameters of ``sottovoce survival``, by the names of its options."""

    data: Path
    schema: Path
    by: str | None
    epsilon: float
    time: str | None
    event: str | None
    event_code: str | None
    grid: Any
    delta: float
    relation: str
    trust: str
    colluders: int
    nodes: int | None
    partition: str | None
    seed: int
    system_noise: bool
    ledger: Path | None
    run_name: str | None
    checkpoint: Path | None
    save: Path | None
    plot: Path | None
    as_json: bool
    holder: bool

    def check_before_spending(self) -> None:
        """Refuse files that cannot be written, before anything is spent."""
        reads = (self.data, self.schema, self.ledger)
        for field, path in (("save", self.save), ("plot", self.plot)):
            if path is not None:
                files.check_writable_path(field, path, reads=reads)
        if self.plot is not None:
            from ..reports.plots import check_picture_format

            check_picture_format(self.plot.suffix)
        results.check_results_writable(self.ledger, self.save)


@click.command()
@decorate_with_options(_OPTIONS)
def survival(**parameters: Any) -> None:
    """Estimate Kaplan-Meier curves by group under differential privacy.

    One release of how many people leave follow-up, with the event or without, by group and cell of
    a public grid of times.  It gives curves with 95% bands, numbers at risk, medians, restricted
    means and the log-rank test; bands and test hold sampling and noise.  Every further time of the
    grid costs noise.

    \b
      sottovoce survival --data t.csv --schema s.toml --by arm --epsilon 1
      sottovoce survival --data t.csv --schema s.toml --by arm --plot km.svg \\
          --time days --event died --grid 30,60,90,180,365
    """
    options = SurvivalOptions(**parameters)
    options.check_before_spending()
    # Loads SciPy, which short commands do not need.
    from ..answers.survival_curves import survival_curves

    table = read_table_with_notes(options.data)
    with opened_ledger(options.ledger) as book:
        found = survival_curves(
            table,
            schema=options.schema,
            by=options.by,
            epsilon=options.epsilon,
            time=options.time,
            event=options.event,
            event_code=options.event_code,
            grid=options.grid,
            partition=options.partition,
            nodes=options.nodes,
            ledger=book,
            run_name=options.run_name,
            checkpoint=options.checkpoint,
            delta=options.delta,
            relation=options.relation,
            trust=options.trust,
            colluders=options.colluders,
            seed=None if options.system_noise else options.seed,
        )
    _store_and_print(found, options)


def _store_and_print(found: SurvivalCurves, options: SurvivalOptions) -> None:
    """Store the curves before they are shown, print them, and draw them."""
    run_name = None
    if found.statement.ledger is not None:
        run_name = found.statement.ledger.run
    text = format_json_text(found.released(), indent=1) + "\n"
    stored, lost = results.store_before_showing(
        "save", options.save, text, ledger=options.ledger, run=run_name, ending="json"
    )
    if options.as_json:
        print_json(
            select_shown_figures(
                found.released(),
                found.held_back(),
                release=options.system_noise,
                holder=options.holder,
            )
        )
    else:
        console = Console(highlight=False)
        _print_curves(found, console)
        notes = list(found.notes)
        # A release shows no exact count of rows.
        if not options.system_noise:
            notes += found.holder_notes
        print_notes(notes, console, stored)
    # Last, so that a picture that cannot be drawn loses nothing that was paid for.
    unwritten = [lost]
    if options.plot is not None:
        unwritten.append(_draw_or_error(found, options.plot))
    results.raise_first_unwritten(unwritten)


def _draw_or_error(found: SurvivalCurves, path: Path) -> NotWritten | None:
    """Draw the curves to a file; returns the error if it cannot be written."""
    from ..reports.plots import picture_of_axes

    data = picture_of_axes(found.plot(), path.suffix)
    try:
        files.write_atomically("plot", path, data)
    except NotWritten as error:
        return error.mark_as_after_release()
    return None


def _print_curves(found: SurvivalCurves, console: Console) -> None:
    """Print the privacy statement, the curves, and what follows from them."""
    console.print(make_privacy_panel(found.statement.words))
    heads = [f">{escape_markup(escape_unprintable(name))}" for name in found.groups]
    listing = make_listing(">time", *heads, overflow="fold")
    lines = found.rows_of_cells()
    step = -(-len(lines) // SHOWN)
    # From the last time backwards, so that it is among the times of a long grid.
    for time, cells in reversed(lines[::-1][::step]):
        listing.add_row(time, *map(escape_markup, cells))
    console.print(listing)
    summary = make_listing("<", "<")
    for name, text in found.summary_pairs():
        summary.add_row(escape_markup(name), escape_markup(text))
    console.print(summary)
