"""``sottovoce schema``: write, check and survey the public facts about a table.

A schema declares bounds and levels of every column; rows are encoded by it and divided so that none
is longer than norm 1, which the noise is sized for.  :mod:`sottovoce.data` drafts and checks it;
:mod:`sottovoce.answers.surveyed` measures bounds and levels privately.  This module reads options
and prints what they find.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from .. import data
from ..data.check import CAVEAT, Review
from ..data.column_counts import ColumnCounts
from ..data.draft import draft
from ..data.expected import Fill
from ..data.listed import split_column_names
from ..data.mistakes import Checked, check_file
from ..errors import EXIT_CODES, InvalidInput, NotWritten, escape_unprintable
from ..runs import defaults
from ..runs.config import RunConfig
from ..util import files
from ..util.plain import format_json_text
from . import results
from .options import (
    FILE,
    NUMBER,
    decorate_with_options,
    json_flag_option,
    make_option,
    opened_ledger,
    path_text_or_none,
)
from .render import make_privacy_panel, print_notes
from .screen import Console, Listing, escape_markup, make_listing, print_json
from .tables import read_table_with_notes

if TYPE_CHECKING:
    from ..answers.surveyed import Question, Surveyed


@click.group(epilog=EXIT_CODES)
def schema() -> None:
    """Write, check and survey a schema: the public facts by which rows are encoded.

    \b
      sottovoce schema init rows.csv --label outcome --out clinic.toml
      sottovoce schema check clinic.toml              every mistake at once
      sottovoce schema check clinic.toml rows.csv     and what does not fit it
      sottovoce schema survey clinic.toml rows.csv    bounds, for a price

    A schema says how every column is read: `kind = "number"` needs lo and hi, "category" needs
    values, "bins" needs edges, "date" needs epoch, lo and hi.  All of it is public and published
    with the model, so nothing in it may be read off rows: take it from code books, textbooks, laws
    and reference ranges, or pay for it by a survey.
    """


@schema.command()
@click.argument("table", type=FILE)
@decorate_with_options(
    [
        make_option("--label", "Column to predict."),
        make_option("--site", "Column that names the site of a row."),
        make_option("--person", "Column that identifies the person, if people have several rows."),
        make_option(
            "--ignore",
            "Columns to leave out, separated by commas; may be repeated.",
            multiple=True,
        ),
        make_option(
            "--types",
            "Also read the types that the file declares: Parquet, Stata, SPSS, SAS.",
            is_flag=True,
        ),
        make_option("--out", "Write to this new file instead of the screen.", type=FILE),
        json_flag_option("Print the draft and its columns as one JSON object."),
    ]
)
def init(
    table: Path,
    label: str | None,
    site: str | None,
    person: str | None,
    ignore: tuple[str, ...],
    types: bool,
    out: Path | None,
    as_json: bool,
) -> None:
    """Draft a schema for TABLE from the names of its columns.

    No value of a row is read, so the draft is public.  With --types the types that a file of
    Parquet, Stata, SPSS or SAS declares give each column a kind.  Whatever has to be declared is a
    "?", and `sottovoce schema check` lists what is left to do.
    """
    text = draft(table, types=types, label=label, site=site, person=person, ignore=ignore)
    if out is not None:
        files.check_writable_path("out", out, reads=(table,))
        # A draft never replaces declarations that somebody has filled in.
        if out.exists():
            raise InvalidInput(
                "out", str(out), "already exists and may have been edited", "give a new file"
            )
        files.write_atomically("out", out, text)
    if as_json:
        print_json({"schema": text, "out": path_text_or_none(out)})
    elif out is None:
        click.echo(text, nl=False)
    else:
        click.echo(f'wrote {out}: replace every "?", then run `sottovoce schema check {out}`')


@schema.command()
@click.argument("schema", type=FILE)
@click.argument("table", type=FILE, required=False)
@decorate_with_options([json_flag_option()])
def check(schema: Path, table: Path | None, as_json: bool) -> None:
    """Find every mistake in SCHEMA, and what in TABLE does not fit it.

    Each mistake names its entry, and what was probably meant.  A schema without one is told how
    long its rows will be, and what would make them longer.

    With a TABLE it counts, for every declared column, what is clipped, missing or unknown, in which
    rows, and how many rows are of each label, site and person.  It names all that training would
    refuse, and what would make it worth little.  These counts are exact, so they are for the holder
    of the rows only: a schema that is changed because of them is no public fact any more.  Exit
    code 2 if there is a mistake, or training would refuse the table.
    """
    found = check_file(schema)
    filled = compared = None
    if found.schema is not None:
        filled = data.fill(found.schema)
    if table is not None and found.schema is not None:
        # Loads all that a training needs.
        from ..runs.table_check import review_for_training

        compared = review_for_training(found.schema, read_table_with_notes(table))
    if as_json:
        print_json(_check_report_as_data(schema, found, filled, compared), indent=2)
    else:
        _print_check_report(schema, table, found, filled, compared)
    if found.mistakes or (compared is not None and compared.refused):
        sys.exit(2)


def _print_check_report(
    schema: Path, table: Path | None, found: Checked, filled: Fill | None, compared: Review | None
) -> None:
    """Print what was checked: mistakes first, then how long rows are, or how the table fits."""
    _print_schema_mistakes(schema, found.mistakes)
    if table is None and filled is not None:
        print_norm_forecast(filled)
    if compared is not None:
        print_table_review(compared)
    if table is not None and found.mistakes:
        click.echo("The table was not read: correct the schema first.")


def _check_report_as_data(
    schema: Path, found: Checked, filled: Fill | None, compared: Review | None
) -> dict[str, Any]:
    """Return what was checked, as plain data.

    ``fine`` is true if the schema has no mistake, and every value of a table that was compared fits
    it, without any note.  ``declared`` is the schema as plain data, for programs that do not read
    TOML, ``expected`` how long its rows will be, and ``table`` what does not fit in the table; each
    None if there is none.
    """
    fine = found.schema is not None and (compared is None or compared.fine)
    declared = expected = table = None
    if found.schema is not None:
        declared = found.schema.to_dict()
    if filled is not None:
        expected = filled.to_dict()
    if compared is not None:
        table = compared.to_dict()
    return {
        "schema": str(schema),
        "mistakes": list(found.mistakes),
        "fine": fine,
        "declared": declared,
        "expected": expected,
        "table": table,
    }


MIN_SUMMED = 3
"""The fewest sites whose sum hides each of them, where one may collude."""

_SURVEY = [
    make_option(
        "--columns", "Survey only these columns, separated by commas: fewer columns get less noise."
    ),
    make_option("--epsilon", "Epsilon of each row for this survey.", type=float, default=0.2),
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
        "--rare", "Hide levels and ranges with at most this many rows.", type=float, default=10.0
    ),
    make_option(
        "--error", "Probability that the survey makes any error.", type=float, default=0.05
    ),
    make_option(
        "--sizes",
        "Instead of tables: rows of each site, separated by commas, to plan a survey.",
        type=NUMBER,
    ),
    make_option("--seed", "Seed of the noise: a simulation.", type=int, default=0),
    make_option("--system-noise", "Draw noise from the operating system: a release.", is_flag=True),
    make_option(
        "--ledger", "The rows' ledger on disk, made by `sottovoce ledger init`.", type=FILE
    ),
    make_option(
        "--run",
        "Name of this survey in the ledger.  [default: from the options]",
        name="run_name",
    ),
    make_option(
        "--checkpoint", "Save the answer here, and resume from it if it exists.", type=FILE
    ),
    make_option(
        "--out", "Write the proposed schema to this file instead of the screen.", type=FILE
    ),
    json_flag_option(),
]


@dataclass(frozen=True)
class SurveyOptions:
    """The parameters of ``sottovoce schema survey``, by the names of its options."""

    schema: Path
    tables: tuple[Path, ...]
    columns: str | None
    epsilon: float
    delta: float
    relation: str
    trust: str
    colluders: int
    rare: float
    error: float
    sizes: float | tuple[float, ...] | None
    seed: int
    system_noise: bool
    ledger: Path | None
    run_name: str | None
    checkpoint: Path | None
    out: Path | None
    as_json: bool

    def make_run_config(self) -> RunConfig:
        """Return the configuration of the release; a seed makes it a simulation."""
        seed: int | None = self.seed
        if self.system_noise:
            seed = None
        return RunConfig(
            "auto",
            self.epsilon,
            self.delta,
            relation=self.relation,
            trust=self.trust,
            colluders=self.colluders,
            seed=seed,
        )

    def make_question(self, declared: data.Schema) -> Question:
        """Return what is asked of the columns: of those that are named, or of all."""
        # Loads SciPy's special functions, which other commands of schemas do not need.
        from ..answers.surveyed import Question

        named = None
        if self.columns is not None:
            named = split_column_names(self.columns, [block.name for block in declared.blocks])
        return Question(named, self.rare, self.error)


@schema.command()
@click.argument("schema", type=FILE)
@click.argument("tables", type=FILE, nargs=-1, metavar="[TABLE]...")
@decorate_with_options(_SURVEY)
def survey(**parameters: Any) -> None:
    """Propose bounds, typical ranges and levels from one noisy histogram of every column.

    For bounds that are a hundred times too wide, and for categories that list every candidate.
    Numbers are counted on powers of two within the declared bounds, categories by their declared
    levels; nothing else is looked at, so no other value can be shown.  Every TABLE is one site; or
    one TABLE is split into sites by the schema's site column.

    \b
      sottovoce schema survey wide.toml --sizes 5000          what it would see
      sottovoce schema survey wide.toml rows.csv --out s.toml
      sottovoce schema survey wide.toml a.csv b.csv c.csv --trust sum
      sottovoce schema survey wide.toml rows.csv --ledger rows.ledger \\
          --system-noise --out s.toml                         a release

    The survey has an epsilon of its own: the schema that it writes says so, and so do privacy
    statements on rows encoded by it.  Levels and ranges with few rows (--rare) are not shown,
    except with the probability --error.
    """
    options = SurveyOptions(**parameters)
    if options.out is not None:
        files.check_writable_path(
            "out", options.out, reads=(options.schema, options.ledger, *options.tables)
        )
    # Before anything is spent.
    if options.sizes is None:
        results.check_results_writable(options.ledger, None)
    declared = data.Schema.from_toml(options.schema)
    question, run = options.make_question(declared), options.make_run_config()
    if (options.sizes is None) == (not options.tables):
        rule = "is needed for a survey, or --sizes for a plan"
        raise InvalidInput("table", None, rule, "give one of them")
    if options.sizes is None:
        _store_and_print_survey(_run_survey_on_tables(options, declared, run, question), options)
    elif isinstance(options.sizes, float):
        _print_survey_plan(declared, (options.sizes,), run, question, options.as_json)
    else:
        _print_survey_plan(declared, options.sizes, run, question, options.as_json)


def _print_survey_plan(
    declared: data.Schema, rows: Sequence[float], run: RunConfig, question: Question, as_json: bool
) -> None:
    """Print what a survey of sites with these numbers of rows would see."""
    from ..answers.surveyed import price_survey

    plan = price_survey(declared, rows, run, question)
    if as_json:
        print_json(plan.to_dict(), indent=2)
        return
    console = Console(highlight=False)
    console.print(make_privacy_panel(plan.statement.guarantee))
    console.print(f"A plan, no data were read: {escape_markup(plan.says)}.")


def _run_survey_on_tables(
    options: SurveyOptions, declared: data.Schema, run: RunConfig, question: Question
) -> Surveyed:
    """Read the tables and survey them, at the price that the ledger is charged."""
    from ..answers.surveyed import survey as ask

    tables = [read_table_with_notes(table) for table in options.tables]
    with opened_ledger(options.ledger) as book:
        return ask(
            declared,
            tables,
            run,
            question,
            ledger=book,
            run_name=options.run_name,
            checkpoint=options.checkpoint,
        )


def _store_and_print_survey(found: Surveyed, options: SurveyOptions) -> None:
    """Write the proposed schema, store the result beside its ledger, and print both.

    The report names the schema's file only if it was written.

    Errors of files that could not be written come last.
    """
    out = options.out
    report = found.to_dict() | {"toml": found.toml, "out": None}
    unwritten: list[NotWritten | None] = []
    if out is not None:
        try:
            files.write_atomically("out", out, found.toml)
            report["out"] = path_text_or_none(out)
        except NotWritten as error:
            unwritten.append(error.mark_as_after_release())
            # The schema was paid for: what no file takes is shown.
            out = None
    run_name = None
    if found.statement.ledger is not None:
        run_name = found.statement.ledger.run
    text = format_json_text(report, indent=1) + "\n"
    stored, lost = results.store_before_showing(
        "result", None, text, ledger=options.ledger, run=run_name, ending="json"
    )
    unwritten.insert(0, lost)
    if options.as_json:
        print_json(report, indent=2)
    else:
        console = Console(highlight=False)
        _print_survey_table(found, console)
        print_notes((), console, stored)
        if out is None:
            click.echo(found.toml, nl=False)
        else:
            click.echo(f"wrote {out}")
    results.raise_first_unwritten(unwritten)


def _print_survey_table(found: Surveyed, console: Console) -> None:
    """Print a survey's privacy, and what it proposes for each column."""
    console.print(make_privacy_panel(found.statement.words))
    console.print(f"{escape_markup(found.expected.says)}.")
    table = make_listing(
        "<column",
        "<proposed",
        ">beyond,\nat most",
        ">missing,\nabout",
        ">unread,\nabout",
        overflow="fold",
    )
    for one in found.columns:
        proposed = one.to_dict()["proposed"]
        # Of a long list of levels only those are shown that the survey would remove.
        if one.dropped:
            kept = {key: value for key, value in proposed.items() if key != "values"}
            proposed = kept | {"not seen": list(one.dropped)}
        texts = [f"{key} = {_format_declared_value(value)}" for key, value in proposed.items()]
        shares = map(_format_share, (one.beyond, one.missing, one.unread))
        table.add_row(
            escape_markup(escape_unprintable(one.name)),
            escape_markup("\n".join(texts) or "as declared"),
            *shares,
        )
    console.print(table)
    for one in found.columns:
        if one.says:
            console.print(
                f"[yellow]note[/] {escape_markup(escape_unprintable(one.name))}: "
                f"{escape_markup(one.says)}"
            )


def _format_share(share: float | None) -> str:
    """Format a share of rows in percent; empty for None."""
    if share is None:
        return ""
    return f"{share:.1%}"


def _format_declared_value(value: Any) -> str:
    """Format a value of a declaration for a table of proposals: about as TOML writes it.

    Texts have no quotes, and numbers six digits; "none" stands for an entry to be removed.
    """
    if isinstance(value, list):
        return f"[{', '.join(map(_format_declared_value, value))}]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _print_schema_mistakes(schema: Path, mistakes: tuple[str, ...]) -> None:
    """Print the mistakes of a schema, a line each; nothing if there are none."""
    console = Console(highlight=False)
    if mistakes:
        noun = "mistake" if len(mistakes) == 1 else "mistakes"
        console.print(f"[bold]{escape_markup(str(schema))}[/]: {len(mistakes)} {noun}")
    for line in mistakes:
        console.print(f"[bold red]mistake[/] {escape_markup(line)}")


def print_table_review(found: Review) -> None:
    """Print what in a table does not fit its schema, and what its declared columns hold."""
    console = Console(highlight=False)
    console.print(
        f"[bold]{escape_markup(found.table)}[/] against [bold]{escape_markup(found.schema)}[/]: "
        f"{found.rows:,} "
        "rows"
    )
    if found.counts:
        console.print(_make_counts_table(found))
    _print_column_counts(found, console)
    for line in found.refused:
        console.print(f"[bold red]refused[/] {escape_markup(line)}")
    for line in found.notes:
        console.print(f"[bold yellow]note[/] {escape_markup(line)}")
    if found.fine:
        console.print("[bold green]Fine[/]: every value fits the schema.")


def _print_column_counts(found: Review, console: Console) -> None:
    """Print counts of the label, sites, people and weights, and how many features fit."""
    for column in found.columns:
        if column.role != "feature":
            console.print(
                f"{column.role} [bold]{escape_markup(escape_unprintable(column.column))}[/]: "
                f"{escape_markup(describe_counts(column))}"
            )
    unfit = [one for one in found.counts if not one.fits]
    features = {one.column for one in found.columns if one.role == "feature"}
    if features:
        fit = len(features - {one.column for one in unfit})
        console.print(f"features: every value fits in {fit:,} of {len(features):,} columns")
    if found.columns:
        located = ""
        if any(one.where for one in unfit):
            located = " Row 1 is the first below the header."
        console.print(f"[bold]{CAVEAT}[/]{located}")


def _make_counts_table(found: Review) -> Table:
    """Make a table of what was counted in each column, and where."""
    table = make_listing("<column", ">rows", ">share", "<what", overflow="fold")
    for one in found.counts:
        what = one.what
        if one.detail:
            what += f" ({one.detail})"
        if one.located and not one.fits:
            what += f"; {one.located}"
        text = escape_markup(what)
        if not one.fits:
            text = f"[yellow]{text}[/]"
        table.add_row(
            escape_markup(escape_unprintable(one.column)),
            f"{one.rows:,}",
            f"{one.rows / found.rows:.2%}",
            text,
        )
    return table


def describe_counts(one: ColumnCounts) -> str:
    """Return in one line the counts of a column that is no feature.

    It is the label, or names the site, the person or the weight of a row.
    """
    counts = one.counts
    if one.role == "site":
        return _describe_site_counts(counts)
    if one.role == "person":
        return _describe_people_counts(counts)
    if one.role == "weight":
        return _list_all_counts(counts, ("missing", "not a number", "negative", "above", "zero"))
    if one.kind == "number":
        return _list_all_counts(counts, ("missing", "not a number", "below", "above"))
    levels = [f"{n:,} {escape_unprintable(name)}" for name, n in one.levels.items()]
    # Levels of two classes are in the order negative, positive.  Where no negative text is
    # declared, every text but the positive one is negative.
    if counts.get("negative texts", 0) > 1:
        levels[0] += f" ({counts['negative texts']:,} different texts)"
    rest = ("missing", "clipped") if one.kind == "events" else ("missing", "undeclared")
    return ", ".join([*levels, _list_all_counts(counts, rest)])


def _describe_site_counts(counts: Mapping[str, int]) -> str:
    """Describe the number of sites, their sizes, and rows or sites that cannot be used."""
    text = (
        f"{_format_count(counts['sites'], 'site')} of {counts['smallest']:,} to "
        f"{_format_count(counts['largest'], 'row')}"
    )
    if counts["sites"] < MIN_SUMMED:
        text += f" (a sum needs {MIN_SUMMED}: --trust sum is refused)"
    of_sites = [key for key in counts if key.startswith("sites ")]
    return ", ".join([text, *_list_nonzero_counts(counts, ["missing", *of_sites])])


def _describe_people_counts(counts: Mapping[str, int]) -> str:
    """Describe the number of people, the most rows of one, and rows that are not used."""
    people = "1 person"
    if counts["people"] != 1:
        people = f"{counts['people']:,} people"
    text = f"{people} of up to {_format_count(counts['most rows of a person'], 'row')}"
    if counts["most sites of a person"] > 1:
        text += f", some of them at {counts['most sites of a person']:,} sites (see sites_per_row)"
    return ", ".join([text, *_list_nonzero_counts(counts, ["missing", "left out"])])


def _list_all_counts(counts: Mapping[str, int], keys: Iterable[str]) -> str:
    """List these counts, zero or not."""
    return ", ".join(f"{counts[key]:,} {key}" for key in keys)


def _list_nonzero_counts(counts: Mapping[str, int], keys: Iterable[str]) -> list[str]:
    """List those counts that are not zero; a key that begins with "sites" counts sites."""
    found = []
    for key in keys:
        if not counts[key]:
            continue
        if key.startswith("sites "):
            found.append(f"{key}: {counts[key]:,}")
        else:
            found.append(f"{_format_count(counts[key], 'row')} {key}")
    return found


def _format_count(n: int, noun: str) -> str:
    """Format a number with its noun, in the plural unless it is 1."""
    if n == 1:
        return f"{n:,} {noun}"
    return f"{n:,} {noun}s"


def print_norm_forecast(found: Fill) -> None:
    """Print the norms that rows encoded by a schema are expected to have, and what to change."""
    schema = found.schema
    console = Console(highlight=False)
    console.print(f"[bold]{escape_markup(schema.name)}[/]: {schema.n_features} features")
    console.print(_make_norms_table(found))
    # Below half a percent the text would say that 0% of the noise is wasted.
    if found.wasted >= 0.005:
        needed = ""
        if found.median != 0:
            needed = f", which has {1 / found.median:.2g} times the noise that it needs"
        console.print(
            f"The noise is sized for norm 1: {found.wasted:.0%} of it is wasted on a typical "
            f"row{needed}."
        )
    if schema.caveat is not None:
        console.print(f"[bold yellow]Not covered[/]: {escape_markup(schema.caveat)}")
    if found.fine:
        console.print("[bold green]Fine[/]: typical rows have a norm near 1; nothing to change.")
    for change in found.changes:
        console.print(f"[bold]change[/] {escape_markup(change)}")
    if found.common:
        console.print(f"[bold yellow]Note[/]: {escape_markup(found.note_on_common_offset)}.")
    console.print(
        "[dim]From the schema alone, no row was read: numbers are taken to be uniform in their "
        "typical range or bounds, bins and categories equally likely.[/]"
    )


def _make_norms_table(found: Fill) -> Table:
    """Make a table of the norms that rows of a schema will have."""
    schema = found.schema
    table = Listing(show_header=False, padding=(0, 2, 0, 0))
    table.add_row("longest row, undivided", f"{schema.bound:.4g}")
    if schema.unit:
        table.add_row("rows are divided by", "their own norm")
    else:
        table.add_row("rows are divided by", f"{schema.divisor:.4g}")
    low, median, high = (f"{norm:.2f}" for norm in (found.low, found.median, found.high))
    typical = median
    if low != high:
        typical += f" (one in ten below {low}, one in ten above {high})"
    table.add_row("norm of a typical row", typical)
    # No row that is divided by its own norm is clipped.
    if not schema.unit:
        table.add_row("clipped to norm 1", f"{found.shortened:.0%} of the rows")
    table.add_row(
        "common to all rows", f"{found.offset:.0%} of a typical row's norm, the constant aside"
    )
    return table
