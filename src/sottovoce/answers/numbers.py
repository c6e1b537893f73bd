"""Least squares on a table, for ``sottovoce train`` with a schema whose label is a bounded number.

With intervals it is a list of releases from which confidence intervals follow
(:mod:`sottovoce.answers.least_squares`), otherwise one that predicts better with much noise
(:mod:`sottovoce.answers.regression`).  Here are the steps around it: options are checked, the table
is read and split into sites, the model is fitted and scored, and everything is reported.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from ..errors import InvalidInput
from ..ledger.durable import DurableLedger
from ..problem.task import BoundedNumber
from ..runs.config import RunConfig
from ..runs.training import TrainConfig
from ..util.typing import Any
from .coefficients import Coefficients
from .evaluation import Held
from .fits import Numbers
from .numeric_metrics import exact
from .regression import SQUARED
from .training import TableFit, prepared_table


@dataclass(frozen=True, kw_only=True, repr=False)
class Fitted(TableFit):
    """A least squares fit with its evaluation.

    `weighed` is a sentence on rows beyond the norm bound, as in
    :class:`sottovoce.answers.coefficients.Coefficients`.
    """

    task: BoundedNumber
    coefficients: list[dict[str, Any]]  # in the units of the columns and of the target
    # errors of the training rows' mean on the test rows, for the data's holder
    baseline: dict[str, float]
    weighed: str = ""
    table: Coefficients | None = None  # with intervals

    kind: ClassVar[str] = "least squares"

    def released_entries(self) -> dict[str, Any]:
        """Return what was released, for the report: coefficients, or the table with intervals."""
        found: dict[str, Any] = {
            "coefficients": self.coefficients,
            "needs": None,
            "weighed": self.weighed,
        }
        if self.table is not None:
            found |= self.table.to_plain_data()
        return found

    def exact_entries(self) -> dict[str, Any]:
        """Return the errors without noise on test rows, for the data owner only."""
        rms = "root_mean_squared_error"
        return {"test_error": self.exact.get(rms), "mean_test_error": self.baseline.get(rms)}


def fit_numbers(
    config: TrainConfig,
    *,
    intervals: bool = False,
    held: Held | None = None,
    site_constants: bool | None = None,
    ledger: DurableLedger | None = None,
    run_name: str | None = None,
    checkpoint: str | Path | None = None,
) -> Fitted:
    """Fit least squares of a bounded number on a table, and score the model.

    With `intervals` the releases are those of :mod:`sottovoce.answers.least_squares`; without,
    those of :mod:`sottovoce.answers.regression`, which predicts better where there is much noise.

    Parameters
    ----------
    config : TrainConfig
        Data, schema, partition and run; the run has ``method="auto"``, the default loss, and one
        replicate.
    intervals : bool
        Whether coefficients have confidence intervals.
    held : Held, optional
        Evaluation of the test rows, with an epsilon of its own.
    site_constants : bool, optional
        Whether every site has a constant of its own.  None: yes, unless rows are partitioned at
        random.
    ledger : DurableLedger, optional
        Ledger on disk of the training rows; not possible together with `held`.
    run_name : str, optional
        Name of the run in that ledger.
    checkpoint : path, optional
        File from which an interrupted run resumes.

    Returns
    -------
    Fitted
        Coefficients in the units of the columns and of the target, model, evaluation, statement.

    Raises
    ------
    InvalidInput
        Before anything is spent, if the label is no bounded number, rows have weights and
        `intervals` are asked for, or an option of the run or of the evaluation does not fit.

    Guarantee
    ---------
    Training rows enter the model and the coefficients only through the releases that ``asked``
    lists, each priced by the event of its query; relation, unit, epsilon and delta are those of
    ``statement``.  ``exact`` and ``baseline`` are without noise, for the data owner only.
    """
    started = time.perf_counter()
    check(config.run, config)
    refusal = InvalidInput(
        "label",
        None,
        "must be a number with bounds, because least squares predicts it",
        "declare lo and hi of the label",
    )
    dealt = prepared_table(
        config, BoundedNumber, refusal, held, site_constants, ledger, weights=not intervals
    )
    dataset, task = dealt.dataset, dealt.dataset.task
    assert isinstance(task, BoundedNumber)
    fit = Numbers(dealt.layout, task=task, intervals=intervals)
    targets = [dataset.y_train[part] for part in dealt.parts]
    rows = fit.encode_rows(dealt.tables, targets, dataset.weights_of_parts(dealt.parts))
    result = dealt.run_recipe(fit, rows, ledger, run_name, checkpoint)
    found = fit.read_outcome(result.outcome, config.run.delta)
    answered = dealt.layout.to_saved_model(found.model, dataset.schema)
    margins = dealt.margins(answered)
    evaluation = dealt.evaluate_privately(held, answered)
    # The baseline predicts the training rows' mean for every row.
    middle = np.full(len(dataset.y_test), task.baseline_margins(dataset.y_train)["mean"])
    return Fitted(
        **dealt.fields_of_fit(result, started, answered, intervals=intervals),
        exact=exact(task, margins, dataset.y_test),
        evaluation=evaluation,
        task=task,
        coefficients=found.plain["coefficients"],
        baseline=exact(task, middle, dataset.y_test),
        weighed=dealt.layout.naming.weighed,
        table=found.table,
    ).with_own_record()


def check(run: RunConfig, config: TrainConfig | None = None) -> None:
    """Refuse (InvalidInput) options of the run that least squares does not have."""
    if not run.auto:
        rule = "has no effect on least squares, which has a method of its own"
        raise InvalidInput(
            "method",
            run.method,
            rule,
            "leave method out, or give a loss such as huber-residual:0.25",
        )
    if run.loss != "logistic" or run.gradient_cap != math.inf:
        raise InvalidInput(
            "loss",
            run.loss,
            "least squares takes neither a loss of classes nor a cap on gradients",
            "leave loss and caps out",
        )
    if run.replicates != 1:
        rule = "must be 1 for least squares"
        remedy = "leave replicates out, and repeat the run with other seeds"
        raise InvalidInput("replicates", run.replicates, rule, remedy)
    if config is not None and (config.start or config.public or config.public_share):
        rule = "cannot be used with least squares, which has no initial model"
        raise InvalidInput("start", None, rule, "leave the start out")


__all__ = ["SQUARED", "Fitted", "fit_numbers"]
