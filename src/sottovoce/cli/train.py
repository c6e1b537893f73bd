"""``sottovoce train``: train across sites in one process."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..data.schema import Schema
from ..errors import InvalidInput, NotWritten
from ..ledger.durable import DurableLedger
from ..problem.task import BoundedNumber, Task, TwoClasses
from ..runs.engine import Observer
from ..runs.simulate import Result, RunConfig
from ..runs.training import Report, TrainConfig
from ..runs.training import train as train_on
from ..util import files
from ..util.pages import versions
from ..util.plain import jsonable, shown_of
from . import results
from .options import (
    FILE,
    NUMBER,
    as_json,
    holder_too,
    knob_options,
    left_open,
    method_options,
    run_config,
    say,
    takes,
    typed,
)
from .render import render
from .report import written
from .screen import Console, print_json, progress

_RUN = RunConfig()
_DEFAULT_ROWS = TrainConfig()
_SQUARED = "squared"  # answers.regression.SQUARED, which would load what few runs need

_OPTIONS = [
    say("--data", "A name of `sottovoce data`, or a CSV or Parquet file.", default=_DEFAULT_ROWS.data),
    say("--schema", "TOML file declaring the public facts of your table.", type=click.Path()),
    *method_options(),
    say("--nodes", "Number of sites.  [default: 5, or as many as the site column names]", type=int),
    say(
        "--partition", "iid, label, dirichlet:ALPHA, column:NAME or site:NAME.  [default: the schema's site, else iid]"
    ),
    say("--strength", "Skew of the label partition.", type=float, default=_DEFAULT_ROWS.strength),
    say("--sizes", "Relative sizes of the sites, separated by commas.", type=NUMBER),
    say(
        "--test-share",
        "Held-out share of your table, 0 for none.  [default: 0.2; for --inference alone, none]",
        type=float,
    ),
    say("--start", "Start from the model of this earlier run, a file of `train --save`.", type=FILE),
    say("--public", "Start from public rows: a table under the schema of the data.", type=FILE),
    say("--public-share", "Take this share of the training rows as public instead: a simulation.", type=float),
    say(
        "--centre/--no-centre",
        "Whether to release the means of all columns first, within epsilon, and take them away "
        "from every row, where public facts say that it pays.",
        default=_DEFAULT_ROWS.centre,
    ),
    say(
        "--dropout",
        "Probability of each site to be lost for good in a round: a simulation.",
        type=float,
        default=_DEFAULT_ROWS.dropout,
    ),
    *knob_options(),
    say("--seed", "Keys noise, partition and random graphs: a simulation.", type=int, default=_RUN.seed),
    say("--system-noise", "Draw noise from the operating system: a release.  The rest is keyed by 0.", is_flag=True),
    say("--replicates", "Independent repetitions of the noise.", type=int, default=_RUN.replicates),
    say("--inference", "Coefficients with intervals: all of the budget goes to steps on sums.", is_flag=True),
    say("--site-constants/--one-constant", "Whether every site has a constant.  [default: unless iid]", default=None),
    say("--evaluation", "Also ask the held-out rows, dealt to the sites, with this epsilon of their own.", type=float),
    say(
        "--cut",
        "From which probability on a row is positive: in the evaluation, and for `predict`.  [default: 0.5]",
        type=float,
    ),
    say("--by", "Of the evaluation: also for every level of this column."),
    say("--save", "Write models, ledger and configuration (.npz).", type=FILE),
    say("--report", "Also write the answers here, as one HTML page to read or pass on.", type=FILE),
    say("--checkpoint", "Save every round, or every answer, here; go on from it if it exists.", type=FILE),
    say("--ledger", "The data set's ledger on disk, made by `sottovoce ledger init`.", type=FILE),
    say("--run", "Name of this run in the ledger.  [default: from the configuration]", name="run_name"),
    as_json(),
    holder_too(),
]


@click.command(name="train")
@takes(_OPTIONS)
def train(
    data: str, schema: str | None, nodes: int | None, partition: str | None, strength: float, sizes: Any,
    test_share: float | None, start: Path | None, public: Path | None, public_share: float | None, centre: bool,
    dropout: float, seed: int, system_noise: bool, save: Path | None, report: Path | None, checkpoint: Path | None,
    ledger: Path | None, run_name: str | None, inference: bool, site_constants: bool | None,
    evaluation: float | None, cut: float | None, by: str | None, as_json: bool, holder: bool, **knobs: Any,
) -> None:  # fmt: skip
    """Train across sites, print the privacy statement and the accuracy.

    Without options: the Adult census data, five sites on a ring, a total epsilon of 1 at a delta of 1e-5, and the
    method and knobs that do best on made-up rows, as the schema or public rows let one expect them.
    --pure asks for a pure epsilon.
    A label with several values is trained by softmax, and one with bounds by least squares unless a loss is named.
    --inference prints coefficients (of classes with odds ratios) and 95% intervals in the columns' units, from all
    rows of your table unless a share is held out for --evaluation or by --test-share.
    All sites run in this process; their noise is keyed by --seed, so the run can be repeated, and is a simulation.
    With --ledger the result is stored before it is shown: where --save says, else in a folder beside the ledger.

    \b
      sottovoce train --epsilon 2 --trust sum
      sottovoce train --data rows.csv --schema s.toml --save run.npz
      sottovoce train --data rows.csv --schema s.toml --inference
    """
    for name, path in (("save", save), ("report", report), ("checkpoint", checkpoint)):
        if path is not None:
            files.check(name, path, reads=(data, schema, ledger, start, public))
    results.check(ledger, save)
    relative = (sizes,) if isinstance(sizes, float) else sizes
    task = TwoClasses() if schema is None or data.startswith("synthetic") else Schema.from_toml(schema).task
    if test_share is None:
        test_share = None if inference and evaluation is None else _DEFAULT_ROWS.test_share
    if cut is not None:
        check_cut(cut, task)
    squared = knobs["loss"] == _SQUARED
    if squared:
        if not isinstance(task, BoundedNumber):
            raise InvalidInput("loss", _SQUARED, "is for a number to predict", "declare lo and hi of the label")
        knobs["loss"] = _RUN.loss
    with nullcontext() if ledger is None else DurableLedger.open(ledger) as book:
        settings = run_config(knobs, seed=None if system_noise else seed, ledger=book)
        config = TrainConfig(
            settings, data, schema, nodes, partition, strength, relative, test_share or None,
            None if start is None else str(start), None if public is None else str(public), public_share, centre,
            dropout,
        )  # fmt: skip
        squared |= isinstance(task, BoundedNumber) and settings.auto and settings.loss == _RUN.loss and not inference
        if dropout and (inference or squared or evaluation is not None):
            rule = "rehearses a training that loses sites; answers need all of them, or sums"
            raise InvalidInput("dropout", dropout, rule, "leave it out, or train alone")
        held: Any = None
        if inference or squared or evaluation is not None:  # loads SciPy's statistics, which no other run needs
            from ..answers.numbers import fit_numbers
            from ..answers.training import Held, check_held, infer
            from .answers import render_any, render_fitted, render_inferred

            held = None if evaluation is None else Held(evaluation, cut or Held.threshold, by)
        if inference or squared:
            own: dict[str, Any] = {
                "held": held, "site_constants": site_constants, "ledger": book, "run_name": run_name,
                "checkpoint": checkpoint,
            }  # fmt: skip
            done: Any
            show: Any
            if squared or isinstance(task, BoundedNumber):
                done, show = fit_numbers(config, intervals=inference, **own), render_fitted
            else:
                done, show = infer(config, **own), render_inferred
            answered = replace(done.answered, record=done.answered.record | {"command": typed()} | _cut_at(cut))
            run = None if done.statement.ledger is None else done.statement.ledger.run
            stored, lost = results.store("save", save, answered.to_json(), ledger=ledger, run=run, ending="json")
            unwritten = [lost, None if report is None else written(report, answered.record)]
            if as_json:
                print_json(shown_of(done.released(), done.held_back(), release=system_noise, holder=holder))
            else:
                show(done, Console(), stored)
            results.end_with(unwritten)
            return
        if site_constants is not None:
            rule = "is for inference and for least squares"
            raise InvalidInput("site_constants", site_constants, rule, "add --inference, or leave it out")
        name = "auto: choosing, then round" if settings.auto else f"{settings.method} round"
        total = None if settings.auto else settings.rounds

        def store(result: Result) -> tuple[Path | None, NotWritten | None]:
            book = result.statement.ledger
            run = None if book is None else book.run
            return results.store("save", save, result.packed(), ledger=ledger, run=run, ending="npz")

        before_scores = []  # which take time and memory of their own, and may fail
        with progress(Console(stderr=True), name, total, quiet=as_json) as bar:
            observers: list[Observer] = [] if bar is None else [lambda k, state: bar(completed=k)]
            trained = train_on(
                config, observers=observers, checkpoint=checkpoint, ledger=book, run_name=run_name, free=left_open(),
                check=None if held is None else lambda *known: check_held(held, *known, ledger=book),
                released=lambda result: before_scores.append(store(_with_answers(result, cut, None))),
            )  # fmt: skip
    ((stored, lost),) = before_scores
    kept, found = _with_answers(trained.result, cut, None), None
    if held is not None:
        from ..answers.training import evaluate_report

        found = evaluate_report(trained, held)
        kept = _with_answers(trained.result, cut, found)
        if lost is None:
            stored, lost = store(kept)
    unwritten = [lost]
    if report is not None:
        from ..answers.saved import record_of

        unwritten.append(written(report, record_of(kept)))
    if as_json:
        print_json(shown_of(*_plain(trained, found), release=system_noise, holder=holder))
    else:
        render(trained, Console(), stored if lost is None else None)
        if found is not None:
            render_any(found, Console())
    results.end_with(unwritten)


def _plain(trained: Report, found: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was released, of training and evaluation, and what is held back."""
    released, held_back = trained.released(), trained.held_back()
    if found is None:
        return released, held_back
    released["evaluation"] = jsonable(found.released())
    held_back["evaluation"] = jsonable(found.held_back())
    if isinstance(trained.task, TwoClasses):
        best = found.quality[""]
        released |= {"auc": best.auc.value, "brier": best.brier.value}
    return released, held_back


def check_cut(cut: float, task: Task) -> None:
    """Refuse a cut that is no probability, or of labels that have none, by InvalidInput."""
    if not 0.0 < cut < 1.0:
        raise InvalidInput("cut", cut, "must be inside (0, 1)", "use 0.5")
    if not isinstance(task, TwoClasses):
        raise InvalidInput("cut", cut, "is for labels of two classes", "leave it out")


def _cut_at(cut: float | None) -> dict[str, float]:
    """What is kept with a run that was cut."""
    return {} if cut is None else {"threshold": cut}


def _with_answers(result: Result, cut: float | None, found: Any) -> Result:
    """The result with its page's further figures, all of them released."""
    more: dict[str, Any] = {"command": typed(), "versions": versions("numpy", "scipy"), **_cut_at(cut)}
    if found is not None:
        more["evaluation"] = jsonable(found.released())
    return replace(result, extra=result.extra | more)
