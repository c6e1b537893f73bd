"""``sottovoce evaluate``: differentially private evaluation of a saved run on held-out rows.

A "judge" (:mod:`sottovoce.answers.judging`) is the kind of evaluation for the label's task: of two
classes, of several, or of a number.  It makes one release, which the rows' ledger is charged for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from ..answers.evaluation import Held
from ..answers.judging import Scored, judge_for_task
from ..answers.own_site import note_on_unknown_sites
from ..answers.saved import SavedModel
from ..answers.terms import rows_of_columns
from ..answers.training import indices_of_rows_read, with_one_row_each
from ..data import Schema, Table, table_digest
from ..ledger.digest import rows_digest
from ..problem.task import TwoClasses
from ..runs import defaults
from ..runs.config import RunConfig
from ..runs.training import ONE_SITE, describe_deal
from ..util import files
from ..util.plain import format_json_text, infinities_to_text, select_shown_figures
from ..util.typing import Any, IntArray
from . import results
from .answers import render_any_evaluation
from .options import (
    FILE,
    decorate_with_options,
    holder_flag_option,
    json_flag_option,
    make_option,
    opened_ledger,
    saved_method_option,
    typed_command_line,
)
from .render import print_notes
from .report import write_page_or_error
from .screen import Console, print_json
from .tables import read_table_with_notes

_OPTIONS = [
    make_option("--epsilon", "Epsilon of these rows for this evaluation.", type=float, default=0.5),
    make_option("--delta", "Delta of the guarantee.", type=float, default=defaults.DELTA),
    make_option("--relation", "Neighbouring data: replace-one or zero-out.", default="replace-one"),
    make_option(
        "--threshold",
        "Probability from which on a row counts as positive.  [default: the run's, else 0.5]",
        type=float,
    ),
    make_option("--by", "Also evaluate each level of this column of the schema."),
    make_option("--replicate", "Replicate whose model is used.", type=int, default=0),
    make_option(
        "--site", "Use the constant of one site for all rows, by name or number: see `predict`."
    ),
    make_option("--seed", "Seed of the noise: a simulation.", type=int, default=0),
    make_option("--system-noise", "Draw noise from the operating system: a release.", is_flag=True),
    make_option(
        "--ledger", "These rows' ledger on disk, made by `sottovoce ledger init`.", type=FILE
    ),
    make_option(
        "--report",
        "Also write an HTML page with this evaluation and the run's own answers.",
        type=FILE,
    ),
    make_option(
        "--run",
        "Name of this evaluation in the ledger.  [default: from the options]",
        name="run_name",
    ),
    saved_method_option(),
    json_flag_option(),
    holder_flag_option(),
]


@dataclass(frozen=True)
class EvaluateOptions:
    """The parameters of ``sottovoce evaluate``, by the names of its options."""

    run: Path
    rows: Path
    epsilon: float
    delta: float
    relation: str
    threshold: float | None
    by: str | None
    replicate: int
    site: str | None
    seed: int
    system_noise: bool
    ledger: Path | None
    report: Path | None
    run_name: str | None
    as_json: bool
    holder: bool

    def make_run_config(self) -> RunConfig:
        """Return the configuration of the release; a seed makes it a simulation."""
        seed: int | None = self.seed
        if self.system_noise:
            seed = None
        return RunConfig("auto", self.epsilon, self.delta, relation=self.relation, seed=seed)


@click.command()
@click.argument("run", type=FILE)
@click.argument("rows", type=FILE)
@decorate_with_options(_OPTIONS)
def evaluate(**parameters: Any) -> None:
    """Evaluate the model in RUN privately on labelled ROWS (CSV or Parquet).

    RUN is a file written by `train --save`.  ROWS must not have been trained on.  One release, a
    histogram of scores by label, gives the area under the ROC curve, calibration, Brier score and
    rates at a threshold, with intervals that hold sampling and noise; of several classes, accuracy
    by class; of a number, R2 and how far predictions are off.  A simulation prints the exact
    numbers beside.  Rows are read as `predict` reads them: where every site has a constant, with
    that of the site that a row names.  With --ledger the result is stored before it is shown, in a
    folder beside the ledger.

    \b
      sottovoce evaluate run.npz held.csv --epsilon 0.5
      sottovoce evaluate run.npz held.csv --by ward --threshold 0.3
    """
    options = EvaluateOptions(**parameters)
    if options.report is not None:
        files.check_writable_path(
            "report", options.report, reads=(options.run, options.rows, options.ledger)
        )
    # Before anything is spent.
    results.check_results_writable(options.ledger, None)
    saved = SavedModel.load(options.run, options.replicate, options.site)
    schema = saved.encoding(options.run)
    found, where = _evaluate_on_rows(options, saved, schema, read_table_with_notes(options.rows))
    stored, unwritten = _store_evaluation(options, saved, found)
    notes = _unknown_site_notes(where)
    if options.as_json:
        shown = select_shown_figures(
            infinities_to_text(found.released()),
            found.held_back() | {"notes": notes},
            release=options.system_noise,
            holder=options.holder,
        )
        print_json(shown)
    else:
        # A release shows no number without noise, and no count of rows.
        if options.system_noise:
            notes = []
        console = Console()
        render_any_evaluation(found, console, exact=not options.system_noise)
        print_notes(notes, console, stored)
    results.raise_first_unwritten(unwritten)


def _evaluate_on_rows(
    options: EvaluateOptions, saved: SavedModel, schema: Schema, table: Table
) -> tuple[Any, IntArray | None]:
    """Evaluate the model by one release on these rows, at the price that the ledger is charged.

    Returns the evaluation, and the index of each row's site among the sites that the model knows;
    None where the model has no constants of sites.
    """
    asked = _keep_one_row_a_person(table, schema)
    encoded = schema.encode(asked)
    assert encoded.y is not None
    threshold = _choose_threshold(options.threshold, saved, schema)
    judge = judge_for_task(schema.task, Held(options.epsilon, threshold, options.by), schema)
    config = options.make_run_config()
    with opened_ledger(options.ledger) as ledger:
        where = saved.site_indices(asked)
        scored = Scored(saved.margins(asked, encoded.X, where), saved.digest, encoded.y, encoded.X)
        config = with_one_row_each(config, schema)
        # Of the file as it was read, so that the ledger knows the rows under every schema.
        raw = table_digest([table], describe_deal(ONE_SITE, schema, 1, config))
        # A ledger that was used for encoded rows knows those.
        if ledger is not None:
            design = encoded.X
            if scored.X is not None:
                design = scored.X
            ledger.identity.bind_to_rows(raw, rows_digest(design, scored.y))
        found = judge.run_evaluation(
            scored,
            config,
            ledger=ledger,
            run_name=options.run_name,
            digest=raw,
            caveat=schema.caveat,
        )
    return found, where


def _store_evaluation(
    options: EvaluateOptions, saved: SavedModel, found: Any
) -> tuple[Path | None, list[Any]]:
    """Store the run with its evaluation, and write its page, before anything is shown.

    Returns where it is stored, and errors of files that could not be written.
    """
    record = saved.record | {
        "evaluation": infinities_to_text(found.released()),
        "command": _commands_of_record(saved.record),
    }
    name = None
    if found.statement.ledger is not None:
        name = found.statement.ledger.run
    text = format_json_text({"record": record}, indent=1) + "\n"
    stored, lost = results.store_before_showing(
        "result", None, text, ledger=options.ledger, run=name, ending="json"
    )
    unwritten: list[Any] = [lost]
    if options.report is not None:
        unwritten.append(write_page_or_error(options.report, record))
    return stored, unwritten


def _choose_threshold(given: float | None, saved: SavedModel, schema: Schema) -> float:
    """Return the probability from which on a row is called positive.

    As given, else the run's own, else 0.5.
    """
    if given is None and isinstance(schema.task, TwoClasses):
        given = saved.threshold
    if given is None:
        return Held.threshold
    return given


def _keep_one_row_a_person(table: Table, schema: Schema) -> Table:
    """Keep one row of each person, where a person may have several."""
    people = None
    if schema.person is not None:
        people = schema.person.number_people_of_table(table.columns, frozenset(schema.na))
    return Table(table.name, rows_of_columns(table, indices_of_rows_read(table.n_rows, people)))


def _commands_of_record(record: dict[str, Any]) -> str:
    """Return the command that made the run, if its record has it, and this one, a line each."""
    return "\n".join(filter(None, (record.get("command"), typed_command_line())))


def _unknown_site_notes(where: IntArray | None) -> list[str]:
    """Say how many rows name no site that the model knows, for their holder alone."""
    if where is None:
        return []
    others = note_on_unknown_sites(where)
    if others is None:
        return []
    return [f"{others[:1].upper()}{others[1:]}."]
