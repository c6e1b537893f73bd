"""``sottovoce evaluate``: differentially private evaluation of a saved run on held-out rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from ..answers.evaluation import Held
from ..answers.judging import Scored, judge_of
from ..answers.own_site import unknown
from ..answers.saved import SavedModel
from ..answers.terms import columns_of
from ..answers.training import one_row_each, rows_read
from ..data import Schema, Table, table_digest
from ..ledger.digest import rows_digest
from ..problem.task import TwoClasses
from ..runs import defaults
from ..runs.config import RunConfig
from ..runs.training import ONE_SITE, deal_of
from ..util import files
from ..util.plain import json_text, jsonable, shown_of
from ..util.typing import Any, IntArray
from . import results
from .answers import render_any
from .options import FILE, as_json, holder_too, method_of_run, opened_ledger, say, takes, typed
from .render import show_notes
from .report import written
from .screen import Console, print_json
from .tables import read_rows

_OPTIONS = [
    say("--epsilon", "Budget of these rows for this evaluation.", type=float, default=0.5),
    say("--delta", "Delta of the guarantee.", type=float, default=defaults.DELTA),
    say("--relation", "Neighbouring data: replace-one or zero-out.", default="replace-one"),
    say(
        "--threshold",
        "Probability from which on a row counts as positive.  [default: the run's, else 0.5]",
        type=float,
    ),
    say("--by", "Also for every level of this column of the schema."),
    say("--replicate", "Which repetition's model to use.", type=int, default=0),
    say("--site", "Read all rows with the constant of one site, by name or number: see `predict`."),
    say("--seed", "Keys the noise: a simulation.", type=int, default=0),
    say("--system-noise", "Draw noise from the operating system: a release.", is_flag=True),
    say("--ledger", "These rows' ledger on disk, made by `sottovoce ledger init`.", type=FILE),
    say(
        "--report",
        "Also write this, with the run's own answers, as one HTML page to read or pass on.",
        type=FILE,
    ),
    say(
        "--run",
        "Name of this evaluation in the ledger.  [default: from all that is asked]",
        name="run_name",
    ),
    method_of_run(),
    as_json(),
    holder_too(),
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

    def config(self) -> RunConfig:
        """Return the configuration of the release; a seed makes it a simulation."""
        seed: int | None = self.seed
        if self.system_noise:
            seed = None
        return RunConfig("auto", self.epsilon, self.delta, relation=self.relation, seed=seed)


@click.command()
@click.argument("run", type=FILE)
@click.argument("rows", type=FILE)
@takes(_OPTIONS)
def evaluate(**parameters: Any) -> None:
    """Tell how good the model in RUN is on ROWS (CSV or Parquet) with labels, with noise.

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
        files.check("report", options.report, reads=(options.run, options.rows, options.ledger))
    # Before anything is spent.
    results.check(options.ledger, None)
    saved = SavedModel.load(options.run, options.replicate, options.site)
    schema = saved.encoding(options.run)
    found, where = _ask_rows(options, saved, schema, read_rows(options.rows))
    stored, unwritten = _store_answer(options, saved, found)
    notes = _notes(where)
    if options.as_json:
        shown = shown_of(
            jsonable(found.released()),
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
        render_any(found, console, exact=not options.system_noise)
        show_notes(notes, console, stored)
    results.end_with(unwritten)


def _ask_rows(
    options: EvaluateOptions, saved: SavedModel, schema: Schema, table: Table
) -> tuple[Any, IntArray | None]:
    """Evaluate the model by one release on these rows, at the price that the ledger is charged.

    Returns the evaluation, and the place of each row's site among those that the model knows.
    """
    asked = _one_unit_each(table, schema)
    encoded = schema.encode(asked)
    assert encoded.y is not None
    threshold = _threshold(options.threshold, saved, schema)
    judge = judge_of(schema.task, Held(options.epsilon, threshold, options.by), schema)
    config = options.config()
    with opened_ledger(options.ledger) as book:
        where = saved.places(asked)
        scored = Scored(saved.margins(asked, encoded.X, where), saved.digest, encoded.y, encoded.X)
        config = one_row_each(config, schema)
        # Of the file as it was read, so that the ledger knows the rows under every schema.
        raw = table_digest([table], deal_of(ONE_SITE, schema, 1, config))
        # A ledger that was used for encoded rows knows those.
        if book is not None:
            design = encoded.X
            if scored.X is not None:
                design = scored.X
            book.identity.bind(raw, rows_digest(design, scored.y))
        found = judge.ask(
            scored,
            config,
            ledger=book,
            run_name=options.run_name,
            digest=raw,
            caveat=schema.caveat,
        )
    return found, where


def _store_answer(
    options: EvaluateOptions, saved: SavedModel, found: Any
) -> tuple[Path | None, list[Any]]:
    """Store the run with its evaluation, and write its page, before anything is shown.

    Returns where it is stored, and errors of files that could not be written.
    """
    record = saved.record | {
        "evaluation": jsonable(found.released()),
        "command": _commands(saved.record),
    }
    name = None
    if found.statement.ledger is not None:
        name = found.statement.ledger.run
    text = json_text({"record": record}, indent=1) + "\n"
    stored, lost = results.store(
        "result", None, text, ledger=options.ledger, run=name, ending="json"
    )
    unwritten: list[Any] = [lost]
    if options.report is not None:
        unwritten.append(written(options.report, record))
    return stored, unwritten


def _threshold(given: float | None, saved: SavedModel, schema: Schema) -> float:
    """Return the probability from which on a row is called positive.

    As given, else the run's own, else the usual one.
    """
    if given is None and isinstance(schema.task, TwoClasses):
        given = saved.threshold
    if given is None:
        return Held.threshold
    return given


def _one_unit_each(table: Table, schema: Schema) -> Table:
    """Keep one row of each person, where a person may have several."""
    people = None
    if schema.person is not None:
        people = schema.person.among(table.columns, frozenset(schema.na))
    return Table(table.name, columns_of(table, rows_read(table.n_rows, people)))


def _commands(record: dict[str, Any]) -> str:
    """Return the command of the run, if its record has it, and this one."""
    return "\n".join(filter(None, (record.get("command"), typed())))


def _notes(where: IntArray | None) -> list[str]:
    """Say how many rows name no site that the model knows, for their holder alone."""
    if where is None:
        return []
    others = unknown(where)
    if others is None:
        return []
    return [f"{others[:1].upper()}{others[1:]}."]
