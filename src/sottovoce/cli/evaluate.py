"""``sottovoce evaluate``: differentially private evaluation of a saved run on held-out rows."""

from __future__ import annotations

from contextlib import nullcontext
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
from ..ledger.durable import DurableLedger
from ..problem.task import TwoClasses
from ..runs import defaults
from ..runs.config import RunConfig
from ..runs.training import ONE_SITE, deal_of
from ..util import files
from ..util.plain import json_text, jsonable, shown_of
from ..util.typing import Any, IntArray
from . import results
from .answers import render_any
from .options import FILE, as_json, holder_too, method_of_run, say, takes, typed
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


@click.command()
@click.argument("run", type=FILE)
@click.argument("rows", type=FILE)
@takes(_OPTIONS)
def evaluate(
    run: Path,
    rows: Path,
    epsilon: float,
    delta: float,
    relation: str,
    threshold: float | None,
    by: str | None,
    replicate: int,
    site: str | None,
    seed: int,
    system_noise: bool,
    ledger: Path | None,
    report: Path | None,
    run_name: str | None,
    as_json: bool,
    holder: bool,
) -> None:
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
    if report is not None:
        files.check("report", report, reads=(run, rows, ledger))
    results.check(ledger, None)
    saved = SavedModel.load(run, replicate, site)
    schema = saved.encoding(run)
    table = read_rows(rows)
    asked = _one_unit_each(table, schema)
    encoded = schema.encode(asked)
    assert encoded.y is not None
    judge = judge_of(schema.task, Held(epsilon, _threshold(threshold, saved, schema), by), schema)
    config = RunConfig(
        "auto", epsilon, delta, relation=relation, seed=None if system_noise else seed
    )
    with nullcontext() if ledger is None else DurableLedger.open(ledger) as book:
        where = saved.places(asked)
        scored = Scored(saved.margins(asked, encoded.X, where), saved.digest, encoded.y, encoded.X)
        config = one_row_each(config, schema)
        raw = table_digest([table], deal_of(ONE_SITE, schema, 1, config))
        if book is not None:  # which may know the rows as they were encoded
            book.identity.bind(
                raw, rows_digest(encoded.X if scored.X is None else scored.X, scored.y)
            )
        found = judge.ask(
            scored, config, ledger=book, run_name=run_name, digest=raw, caveat=schema.caveat
        )
    released = jsonable(found.released())
    told = saved.record | {"evaluation": released, "command": _commands(saved.record)}
    name = None if found.statement.ledger is None else found.statement.ledger.run
    text = json_text({"record": told}, indent=1) + "\n"
    stored, lost = results.store("result", None, text, ledger=ledger, run=name, ending="json")
    unwritten = None if report is None else written(report, told)
    notes = _notes(where)
    if as_json:
        held_back = found.held_back() | {"notes": notes}
        print_json(shown_of(released, held_back, release=system_noise, holder=holder))
    else:
        console = Console()
        render_any(found, console, exact=not system_noise)
        show_notes([] if system_noise else notes, console, stored)
    results.end_with([lost, unwritten])


def _threshold(given: float | None, saved: SavedModel, schema: Schema) -> float:
    """Return the probability from which on a row is called positive.

    As given, else the run's own, else the usual one.
    """
    if given is None and isinstance(schema.task, TwoClasses):
        given = saved.threshold
    return Held.threshold if given is None else given


def _one_unit_each(table: Table, schema: Schema) -> Table:
    """Keep one row of each person, where a person may have several."""
    people = (
        None if schema.person is None else schema.person.among(table.columns, frozenset(schema.na))
    )
    return Table(table.name, columns_of(table, rows_read(table.n_rows, people)))


def _commands(record: dict[str, Any]) -> str:
    """Return the command of the run, if its record has it, and this one."""
    return "\n".join(filter(None, (record.get("command"), typed())))


def _notes(where: IntArray | None) -> list[str]:
    """Say how many rows name no site that the model knows, for their holder alone."""
    others = None if where is None else unknown(where)
    return [] if others is None else [f"{others[:1].upper()}{others[1:]}."]
