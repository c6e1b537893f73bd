"""``sottovoce train``: train across sites in one process.

A training makes a classifier (:mod:`sottovoce.runs.training`); inference and least squares make
"answers", coefficients of a table (:mod:`sottovoce.answers`).  Either way the result is stored
before it is shown, and a file that cannot be written becomes an error only after that.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..data.labels import refuse_rates
from ..data.schema import Schema
from ..errors import InvalidInput, NotWritten
from ..problem.task import BoundedNumber, Task, TwoClasses
from ..runs.engine import Observer
from ..runs.simulate import Result, RunConfig
from ..runs.training import Report, TrainConfig
from ..runs.training import train as train_on
from ..util import files
from ..util.pages import describe_versions
from ..util.plain import infinities_to_text, select_shown_figures
from . import results
from .options import (
    decorate_with_options,
    knobs_left_open,
    make_run_config,
    opened_ledger,
    typed_command_line,
)
from .render import render_training
from .report import write_page_or_error
from .run_command import RunCommand, save_config
from .screen import Console, print_json, show_progress_bar
from .train_options import TRAIN_OPTIONS, TrainOptions

if TYPE_CHECKING:
    from ..ledger.durable import DurableLedger  # SQLite, which few runs need

_DEFAULT_LOSS = RunConfig().loss
# Equal to answers.regression.SQUARED, whose module would load what few runs need.
_SQUARED = "squared"
_EXAMPLES = """
\b
Examples:
  sottovoce train --epsilon 2 --trust sum
  sottovoce train --data rows.csv --schema s.toml --save run.npz
  sottovoce train --data rows.csv --schema s.toml --inference
  sottovoce train --config run.toml --set loss=huber:0.5
"""
Stored = tuple[Path | None, NotWritten | None]
"""Where a result is, and the error to end with where that is not the place that was asked for."""


@click.command(
    name="train", cls=RunCommand, epilog=_EXAMPLES, context_settings={"max_content_width": 100}
)
@decorate_with_options(TRAIN_OPTIONS)
def train(**parameters: Any) -> None:
    """Train across sites, print the privacy statement and the accuracy.

    Without options: the Adult census data, five sites on a ring, and the method that does best on
    synthetic data drawn from the schema or from public rows.  A label with several values is
    trained by softmax, and one with bounds by least squares unless a loss is set.  All sites run in
    this process.  With --ledger the result is stored before it is shown: where --save says, else
    in a folder beside the ledger.
    """
    options = TrainOptions.from_parameters(parameters)
    check_output_files(options)
    task = read_label_task(options)
    if not options.inference:
        refuse_rates(task)
    if options.cut is not None:
        check_cut_probability(options.cut, task)
    settings, squared = split_least_squares(options.run, task)
    with opened_ledger(options.ledger) as book:
        run = make_run_config(settings, seed=options.noise_seed, ledger=book)
        config = options.make_train_config(run)
        # A number with bounds is fitted by least squares unless a loss is set.
        by_default = isinstance(task, BoundedNumber) and run.auto and run.loss == _DEFAULT_LOSS
        fits_number = squared or (by_default and not options.inference)
        check_dropout(options, fits_number)
        if options.inference or fits_number:
            fit_and_show_answers(options, config, task, fits_number, book)
            return
        trained, stored = train_and_store(options, config, book)
    evaluate_and_show(options, trained, stored)


def check_output_files(options: TrainOptions) -> None:
    """Refuse places where nothing can be written, before anything is read."""
    reads = (
        options.data,
        options.schema,
        options.ledger,
        options.start,
        options.public,
        options.config,
    )
    outputs = {
        "save": options.save,
        "report": options.report,
        "checkpoint": options.checkpoint,
        "save_config": options.save_config,
    }
    for name, path in outputs.items():
        if path is not None:
            files.check_writable_path(name, path, reads=reads)
    results.check_results_writable(options.ledger, options.save)


def read_label_task(options: TrainOptions) -> Task:
    """Return the kind of the rows' label, by their schema; two classes without one."""
    if options.schema is None or options.data.startswith("synthetic"):
        return TwoClasses()
    return Schema.from_toml(options.schema).task


def split_least_squares(settings: dict[str, Any], task: Task) -> tuple[dict[str, Any], bool]:
    """Return the settings of a run, and True if their loss asks for least squares.

    Least squares is no loss of a method, so the default loss takes its place.
    """
    if settings["loss"] != _SQUARED:
        return settings, False
    if not isinstance(task, BoundedNumber):
        raise InvalidInput(
            "loss", _SQUARED, "needs a number as the label", "declare lo and hi of the label"
        )
    return settings | {"loss": _DEFAULT_LOSS}, True


def check_dropout(options: TrainOptions, fits_number: bool) -> None:
    """Refuse to simulate lost sites in runs with answers, which need all of them."""
    answers = options.inference or fits_number or options.evaluation is not None
    if options.dropout and answers:
        rule = "simulates lost sites in a training, but inference and evaluation need all sites"
        raise InvalidInput("dropout", options.dropout, rule, "leave it out, or train without them")


def make_held_out_question(options: TrainOptions) -> Any:
    """Return what is asked of the held-out rows; None for nothing."""
    if options.evaluation is None:
        return None
    # Loads SciPy's statistics, which few runs need.
    from ..answers.training import Held

    return Held(options.evaluation, options.cut or Held.threshold, options.by)


def fit_and_show_answers(
    options: TrainOptions,
    config: TrainConfig,
    task: Task,
    fits_number: bool,
    book: DurableLedger | None,
) -> None:
    """Ask for coefficients, store what was released, and show it.

    Parameters
    ----------
    options : TrainOptions
        What the command line and its file ask for.
    config : TrainConfig
        The run with its data.
    task : Task
        The kind of label.
    fits_number : bool
        Fit least squares.
    book : DurableLedger or None
        The ledger that is charged, if one is named.
    """
    # These load SciPy's statistics, which few runs need.
    from ..answers.numbers import fit_numbers
    from ..answers.training import infer
    from .answers import render_inference, render_least_squares

    shared: dict[str, Any] = {
        "held": make_held_out_question(options),
        "site_constants": options.site_constants,
        "ledger": book,
        "run_name": options.run_name,
        "checkpoint": options.checkpoint,
    }
    done: Any
    show: Any
    if fits_number or isinstance(task, BoundedNumber):
        done = fit_numbers(config, intervals=options.inference, **shared)
        show = render_least_squares
    else:
        done = infer(config, **shared)
        show = render_inference
    record = (
        done.answered.record | {"command": typed_command_line()} | _threshold_entry(options.cut)
    )
    answered = replace(done.answered, record=record)
    # Store before anything is shown: a closed pipe or a signal must not lose what was paid for.
    stored, lost = _store_run_result(options, done.statement, answered.to_json(), "json")
    unwritten = [lost, write_config_or_error(options)]
    if options.report is not None:
        unwritten.append(write_page_or_error(options.report, answered.record))
    if options.as_json:
        shown = select_shown_figures(
            done.released(), done.held_back(), release=options.system_noise, holder=options.holder
        )
        print_json(shown)
    else:
        show(done, Console(), stored)
    results.raise_first_unwritten(unwritten)


def train_and_store(
    options: TrainOptions, config: TrainConfig, book: DurableLedger | None
) -> tuple[Report, Stored]:
    """Train, and store the result as soon as it is released.

    It is stored before it is scored: scores take time, and may fail.

    Parameters
    ----------
    options : TrainOptions
        What the command line and its file ask for.
    config : TrainConfig
        The run with its data.
    book : DurableLedger or None
        The ledger that is charged, if one is named.

    Returns
    -------
    trained : Report
    stored : tuple
        Where the result is, and the error to end with if it is not where it should be.

    Raises
    ------
    InvalidInput
        If site constants are asked of a training.
    """
    run = config.run
    if options.site_constants is not None:
        rule = "needs inference or least squares"
        raise InvalidInput(
            "site_constants", options.site_constants, rule, "add --inference, or leave it out"
        )
    stored = list[Stored]()

    def store_released(result: Result) -> None:
        stored.append(store_trained_model(options, add_page_figures(result, options.cut, None)))

    title: str = f"{run.method} round"
    total: int | None = run.rounds
    # How many rounds a method takes is part of the choice.
    if run.auto:
        title = "auto: choosing, then round"
        total = None
    with show_progress_bar(Console(stderr=True), title, total, quiet=options.as_json) as bar:
        observers: list[Observer] = []
        if bar is not None:
            observers.append(lambda k, state: bar(completed=k))
        trained = train_on(
            config,
            observers=observers,
            checkpoint=options.checkpoint,
            ledger=book,
            run_name=options.run_name,
            free=knobs_left_open(),
            check=_evaluation_check(options, book),
            released=store_released,
        )
    return trained, stored[0]


def _evaluation_check(options: TrainOptions, book: DurableLedger | None) -> Any:
    """Return a function that checks an evaluation before its model is trained.

    The training calls it with its data, configuration and number of sites.  None without one.
    """
    held = make_held_out_question(options)
    if held is None:
        return None
    # Loads SciPy's statistics, which few runs need.
    from ..answers.training import check_evaluation

    return lambda *known: check_evaluation(held, *known, ledger=book)


def store_trained_model(options: TrainOptions, result: Result) -> Stored:
    """Write a trained model, and return where it is."""
    return _store_run_result(options, result.statement, result.packed(), "npz")


def _store_run_result(
    options: TrainOptions, statement: Any, content: memoryview | str, ending: str
) -> Stored:
    """Write a run to the file of ``--save``, else beside its ledger, by its name there."""
    name = None
    if statement.ledger is not None:
        name = statement.ledger.run
    return results.store_before_showing(
        "save", options.save, content, ledger=options.ledger, run=name, ending=ending
    )


def write_config_or_error(options: TrainOptions) -> NotWritten | None:
    """Write the file of this run; an error is returned, to be raised once the run was shown."""
    try:
        save_config(options.save_config)
    except NotWritten as error:
        return error.mark_as_after_release()
    return None


def evaluate_and_show(options: TrainOptions, trained: Report, stored: Stored) -> None:
    """Evaluate a trained model if that is asked for, and show everything.

    Parameters
    ----------
    options : TrainOptions
        What the command line and its file ask for.
    trained : Report
        The trained model.
    stored : tuple
        Where the result is, and the error to end with, as :func:`train_and_store` returns them.
    """
    place, lost = stored
    found: Any = None
    held = make_held_out_question(options)
    if held is not None:
        from ..answers.training import evaluate_report

        found = evaluate_report(trained, held)
    kept = add_page_figures(trained.result, options.cut, found)
    # The model was stored without its evaluation before the held-out rows were asked.
    if held is not None and lost is None:
        place, lost = store_trained_model(options, kept)
    unwritten = [lost, write_config_or_error(options)]
    if options.report is not None:
        from ..answers.saved import public_record

        unwritten.append(write_page_or_error(options.report, public_record(kept)))
    if options.as_json:
        released, held_back = _split_released_figures(trained, found)
        shown = select_shown_figures(
            released, held_back, release=options.system_noise, holder=options.holder
        )
        print_json(shown)
    else:
        # Where the file is elsewhere, the error at the end says so.
        if lost is not None:
            place = None
        print_trained_model(trained, found, place)
    results.raise_first_unwritten(unwritten)


def print_trained_model(trained: Report, found: Any, place: Path | None) -> None:
    """Print a training for people, and its evaluation if there is one.

    Parameters
    ----------
    trained : Report
        The trained model.
    found : Evaluation, ClassEvaluation, NumberEvaluation or None
        Its evaluation by held-out rows.
    place : Path or None
        Where the run is stored; None if nowhere.
    """
    render_training(trained, Console(), place)
    if found is not None:
        from .answers import render_any_evaluation

        render_any_evaluation(found, Console())


def _split_released_figures(trained: Report, found: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what was released, of training and evaluation, and what is held back."""
    released, held_back = trained.released(), trained.held_back()
    if found is None:
        return released, held_back
    released["evaluation"] = infinities_to_text(found.released())
    held_back["evaluation"] = infinities_to_text(found.held_back())
    if isinstance(trained.task, TwoClasses):
        # The empty name is that of all held-out rows, beside those of groups.
        of_all_rows = found.quality[""]
        released |= {"auc": of_all_rows.auc.value, "brier": of_all_rows.brier.value}
    return released, held_back


def check_cut_probability(cut: float, task: Task) -> None:
    """Refuse a cut that is no probability, or of labels that have none, by InvalidInput."""
    if not 0.0 < cut < 1.0:
        raise InvalidInput("cut", cut, "must be inside (0, 1)", "use 0.5")
    if not isinstance(task, TwoClasses):
        raise InvalidInput("cut", cut, "needs a label of two classes", "leave it out")


def _threshold_entry(cut: float | None) -> dict[str, float]:
    """Return the entry of a run's record for its threshold; none if none was asked for."""
    if cut is None:
        return {}
    return {"threshold": cut}


def add_page_figures(result: Result, cut: float | None, found: Any) -> Result:
    """Add to a result the further figures of its page, all of them released.

    Parameters
    ----------
    result : Result
        The trained model.
    cut : float or None
        Probability from which on a row is called positive; None keeps none.
    found : Evaluation, ClassEvaluation, NumberEvaluation or None
        Its evaluation by held-out rows.

    Returns
    -------
    Result
    """
    more: dict[str, Any] = {
        "command": typed_command_line(),
        "versions": describe_versions("numpy", "scipy"),
        **_threshold_entry(cut),
    }
    if found is not None:
        more["evaluation"] = infinities_to_text(found.released())
    return replace(result, extra=result.extra | more)
