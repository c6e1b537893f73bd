"""``sottovoce describe``: a descriptive table (Table 1) under differential privacy, one release."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InvalidInput, NotWritten, escape_unprintable
from ..runs import defaults
from ..util import files
from ..util.plain import format_json_text, select_shown_figures
from . import results
from .options import (
    FILE,
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
    from ..answers.describing import Described

_OPTIONS = [
    make_option("--data", "The table, a CSV or Parquet file.", type=FILE, required=True),
    make_option(
        "--schema",
        "Public facts of the table, as TOML: see `sottovoce schema init`.",
        type=FILE,
        required=True,
    ),
    make_option("--by", "Column with declared levels, which are the groups."),
    make_option("--epsilon", "Epsilon of each row.", type=float, default=1.0),
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
    make_option(
        "--by-site",
        "Also describe every site, for half of the budget; under trust in nobody that is free.",
        is_flag=True,
    ),
    make_option("--seed", "Seed of noise and partition: a simulation.", type=int, default=0),
    make_option("--system-noise", "Draw noise from the operating system: a release.", is_flag=True),
    make_option(
        "--ledger", "These rows' ledger on disk, made by `sottovoce ledger init`.", type=FILE
    ),
    make_option(
        "--run",
        "Name of this table in the ledger.  [default: from the options]",
        name="run_name",
    ),
    make_option(
        "--checkpoint", "Save the answer here, and resume from it if it exists.", type=FILE
    ),
    make_option("--save", "Write what --json prints to this file.", type=FILE),
    make_option("--report", "Also write one HTML page.", type=FILE),
    make_option("--markdown", "Print the table as Markdown and nothing else.", is_flag=True),
    json_flag_option(),
    holder_flag_option(),
]


@dataclass(frozen=True)
class DescribeOptions:
    """The parameters of ``sottovoce describe``, by the names of its options."""

    data: Path
    schema: Path
    by: str | None
    epsilon: float
    delta: float
    relation: str
    trust: str
    colluders: int
    nodes: int | None
    partition: str | None
    by_site: bool
    seed: int
    system_noise: bool
    ledger: Path | None
    run_name: str | None
    checkpoint: Path | None
    save: Path | None
    report: Path | None
    markdown: bool
    as_json: bool
    holder: bool

    def check_before_spending(self) -> None:
        """Refuse files that cannot be written, before anything is spent."""
        reads = (self.data, self.schema, self.ledger)
        for field, path in (("save", self.save), ("report", self.report)):
            if path is not None:
                files.check_writable_path(field, path, reads=reads)
        if self.markdown and self.as_json:
            raise InvalidInput("markdown", True, "cannot be combined with --json", "give one")
        results.check_results_writable(self.ledger, self.save)


@click.command()
@decorate_with_options(_OPTIONS)
def describe(**parameters: Any) -> None:
    """Describe a table by group under differential privacy: the Table 1 of a paper.

    One release gives n, means, standard deviations, quartiles, counts, shares and missing values of
    all columns of the schema, by group and overall, and standardised mean differences between
    groups.  95% intervals hold noise and sampling; those of counts hold noise alone.  The less of a
    number's bounds its values fill, the more noise its mean has.

    \b
      sottovoce describe --data t.csv --schema s.toml --by arm --epsilon 1
      sottovoce describe --data t.csv --schema s.toml --by arm --trust sum \\
          --ledger t.ledger --system-noise --report table1.html
    """
    options = DescribeOptions(**parameters)
    options.check_before_spending()
    # Loads SciPy, which short commands do not need.
    from ..answers.describing import describe as ask

    table = read_table_with_notes(options.data)
    with opened_ledger(options.ledger) as book:
        found = ask(
            table,
            schema=options.schema,
            by=options.by,
            epsilon=options.epsilon,
            partition=options.partition,
            nodes=options.nodes,
            by_site=options.by_site,
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


def _store_and_print(found: Described, options: DescribeOptions) -> None:
    """Store the table before it is shown, write its page, and print it."""
    run_name = None
    if found.statement.ledger is not None:
        run_name = found.statement.ledger.run
    text = format_json_text(found.released(), indent=1) + "\n"
    stored, lost = results.store_before_showing(
        "save", options.save, text, ledger=options.ledger, run=run_name, ending="json"
    )
    unwritten = [lost]
    if options.report is not None:
        try:
            files.write_atomically("report", options.report, found.to_html())
        except NotWritten as error:
            unwritten.append(error.mark_as_after_release())
    if options.as_json:
        print_json(
            select_shown_figures(
                found.released(),
                found.held_back(),
                release=options.system_noise,
                holder=options.holder,
            )
        )
    elif options.markdown:
        click.echo(found.to_markdown(), nl=False)
    else:
        console = Console(highlight=False)
        _print_table(found, console)
        notes = list(found.notes)
        # A release shows no exact count of rows.
        if not options.system_noise:
            notes += found.holder_notes
        print_notes(notes, console, stored)
    results.raise_first_unwritten(unwritten)


def _print_table(found: Described, console: Console) -> None:
    """Print the privacy statement and the table."""
    console.print(make_privacy_panel(found.statement.words))
    heads = [f">{escape_markup(escape_unprintable(name))}" for name in found.columns]
    listing = make_listing("<", *heads, overflow="fold")
    for title, cells in found.rows_of_cells():
        listing.add_row(escape_markup(escape_unprintable(title)), *map(escape_markup, cells))
    console.print(listing)
