"""Least squares of a bounded number on a table: what ``sottovoce train`` runs where the schema's label has bounds."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from .. import data
from ..algorithms.recipe import Recipe
from ..data.labels import targets_of
from ..data.schema import unfit
from ..errors import InvalidInput
from ..ledger.durable import DurableLedger
from ..privacy.statement import Statement
from ..problem.losses import HuberResidual
from ..problem.task import BoundedNumber
from ..problem.weighted_loss import Weighted
from ..runs.config import RunConfig
from ..runs.simulate import simulate
from ..runs.training import TrainConfig
from ..util.pages import versions
from ..util.plain import jsonable
from ..util.typing import Any, Array
from .evaluation import Held
from .inference import model_of
from .judging import Scored, judge_of
from .least_squares import slopes_of, table_of
from .numeric_metrics import NumberEvaluation, exact
from .regression import SQUARED, LeastSquares
from .saved import SavedModel, to_keep
from .terms import CONSTANT, Naming, outcome
from .training import LIBRARIES, WEIGHED, Dealt, check_held


@dataclass(frozen=True)
class Fitted:
    """A least squares fit, scored on test rows.

    Attributes
    ----------
    answered : SavedModel
    coefficients : list of dict
        One for every column and level, in the units of the columns and of the target; with standard errors and
        intervals if they were asked for.
    asked : list of dict
        The name of every release with its share of the budget.
    needs : dict of str to float or None
        What would do for all of a table with intervals, about.
    weighed : str
        What long rows do to the coefficients, in a sentence.
    exact, baseline : dict of str to float
        Errors on the test rows without noise, of the fit and of the training rows' mean: for the data's holder.
    notes : tuple of str
        Counts in them are for the data's holder too.
    """

    config: TrainConfig
    task: BoundedNumber
    answered: SavedModel
    coefficients: list[dict[str, Any]]
    statement: Statement
    exact: dict[str, float]
    baseline: dict[str, float]
    sizes: Array
    sites: tuple[str, ...]
    n_test: int
    evaluation: NumberEvaluation | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    asked: list[dict[str, Any]] = field(default_factory=list)
    needs: dict[str, float] | None = None
    weighed: str = ""

    def to_dict(self) -> dict[str, Any]:
        """One JSON object; an infinite number is the text ``inf``."""
        rms = "root_mean_squared_error"
        report = {
            "method": "least squares", "data": self.config.data, "nodes": len(self.sizes),
            "partition": self.config.partition, "n_train": self.sizes.astype(int).tolist(),
            "n_test": self.n_test, "features": len(self.answered.model), "sites": list(self.sites),
            "label": outcome(self.answered.schema), "versions": versions(*LIBRARIES),
            "asked": self.asked, "coefficients": self.coefficients, "needs": self.needs,
            "weighed": self.weighed,
            "exact": self.exact, "test_error": self.exact.get(rms),
            "mean_test_error": self.baseline.get(rms),
            "evaluation": None if self.evaluation is None else self.evaluation.to_dict(),
            "privacy": self.statement.to_dict(), "notes": list(self.notes), "seconds": self.seconds,
            "config": self.config.run.to_dict(),
        }  # fmt: skip
        return {key: jsonable(value) for key, value in report.items()}


def fit_numbers(
    config: TrainConfig, *, intervals: bool = False, held: Held | None = None, site_constants: bool | None = None,
    ledger: DurableLedger | None = None, run_name: str | None = None, checkpoint: str | Path | None = None,
) -> Fitted:  # fmt: skip
    """Load, deal, ask for a recipe, and score.

    Parameters
    ----------
    config : TrainConfig
        With ``method="auto"``: least squares has steps of its own.
    intervals : bool
        Whether to ask for the recipe of :mod:`sottovoce.answers.least_squares`, whose coefficients have intervals,
        instead of that of :mod:`sottovoce.answers.regression`, which predicts better where there is much noise.
    held : Held, optional
        Asks the test rows too, dealt to the sites, with an epsilon of their own.
    site_constants : bool, optional
        Whether every site has a constant of its own; None for yes unless rows are dealt at random.
    ledger, run_name, checkpoint : optional
        See :func:`sottovoce.runs.simulate.simulate`.

    Raises
    ------
    InvalidInput
        Before anything is spent.
    """
    started, run = time.perf_counter(), config.run
    check(run, config)
    dataset = data.load(config.data, schema=config.schema, test_share=config.test_share)
    task = dataset.task
    if not isinstance(task, BoundedNumber):
        raise InvalidInput("label", None, "least squares predicts a number", "declare lo and hi of the label")
    if intervals and dataset.weights is not None:
        raise InvalidInput("weight", None, WEIGHED, "leave weight and class_weight out, or train without inference")
    dealt = Dealt.of(config, dataset, site_constants)
    check_held(held, dataset, run, len(dealt.parts), ledger=ledger)
    naming, targets = dealt.naming, [dataset.y_train[part] for part in dealt.parts]
    known = [task.known(y).astype(float) for y in targets]
    rows = naming.rows(list(zip(dealt.tables, known, strict=True)))
    if (weights := dataset.weights_of(dealt.parts)) is not None:
        rows = rows.with_weight(weights)
    rows = rows.with_offset(targets_of(list(zip(known, targets, strict=True))))
    loss = Weighted(HuberResidual(1.0)) if naming.long else HuberResidual(1.0)
    free = np.ones(naming.d)
    method: Recipe = slopes_of(naming) if intervals else LeastSquares(constant=naming.constant, free=free)
    result = simulate(
        run, rows, method=method, loss=loss, ledger=ledger, run_name=run_name, label=dealt.label,
        caveat=dataset.caveat, checkpoint=checkpoint,
    )  # fmt: skip
    needs = None
    if intervals:
        model, shown = model_of(result.outcome)[0], table_of(result.outcome, naming, task, run.delta)
        coefficients, needs = shown.to_dict(), shown.needs
    else:
        model = result.outcome[0]
        coefficients = lines(naming, task, model)
    answered = SavedModel(naming, model, dealt.shares, {}, dataset.schema)
    scored = len(dataset.y_test) > 0
    test = dataset.X_test if dataset.schema is None else dataset.test_columns
    margins = answered.margins(test) if scored else np.empty(0)
    evaluation = None
    if held is not None:
        scores, y = dataset.all_held_out(margins[:, None])
        judge = judge_of(task, held, dataset.schema)
        judged = Scored(scores[:, 0], answered.digest, y)
        evaluation = judge.ask(judged, run, len(dealt.parts), caveat=dataset.caveat)
    middle = np.full(len(dataset.y_test), task.baselines(dataset.y_train)["mean"])
    done = Fitted(
        config, task, answered, coefficients, result.statement,
        exact(task, margins, dataset.y_test), exact(task, middle, dataset.y_test), dealt.sizes,
        dealt.sites, dataset.n_held_out, evaluation, (*dataset.notes, *unfit(dataset.clipped, shortened=False)),
        time.perf_counter() - started, method.asked, needs, naming.weighed,
    )  # fmt: skip
    return replace(done, answered=replace(answered, record=to_keep(done.to_dict(), dataset.notes)))


def check(run: RunConfig, config: TrainConfig | None = None) -> None:
    """Refuse what least squares does not use.

    Raises
    ------
    InvalidInput
    """
    if not run.auto:
        rule = "least squares takes steps of its own"
        raise InvalidInput("method", run.method, rule, "leave method out, or give a loss such as huber-residual:0.25")
    if run.loss != "logistic" or run.max_grad_norm != math.inf:
        raise InvalidInput("loss", run.loss, "least squares has a loss of its own", "leave loss and caps out")
    if run.replicates != 1:
        rule = "least squares is repeated by other seeds"
        raise InvalidInput("replicates", run.replicates, rule, "leave replicates out")
    if config is not None and (config.start or config.public or config.public_share):
        raise InvalidInput("start", None, "least squares starts from zero", "leave the start out")


def lines(naming: Naming, task: BoundedNumber, model: Array) -> list[dict[str, Any]]:
    """Coefficients in the units of the columns and of the target; a constant is the target of a row of zeros."""
    half = 0.5 * (task.high - task.low)
    found = []
    for term, value in zip(naming.terms, naming.into_units @ model, strict=True):
        number = half * float(value) + (task.low + half if term.name == CONSTANT else 0.0)
        names = {"name": term.unit or term.name, "level": term.level, "reference": term.reference}
        found.append(names | {"estimate": number})
    return found


__all__ = ["SQUARED", "Fitted", "fit_numbers"]
