"""Differentially private evaluation of a public model on held-out rows: one :class:`Judge` for each
kind of label.

:func:`judge_for_task` selects it for the task of a label, for all doors (command line, estimators,
runs between sites).  It builds rows from the model's margins (linear scores), runs the recipe of
:mod:`~sottovoce.answers.evaluation`, :mod:`~sottovoce.answers.classes` or
:mod:`~sottovoce.answers.numeric_metrics` on them, and reads the metrics from its outcome.  As
margins are data, which no record of a run contains, the recipe contains a digest of the model: it
distinguishes the evaluations of two models in a ledger.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np

from ..algorithms.recipe import Recipe
from ..data.labels import refuse_rates
from ..data.products import products_by_row
from ..data.rows import Rows
from ..data.schema import Schema
from ..errors import InvalidInput
from ..ledger.durable import DurableLedger
from ..problem.losses import Loss
from ..problem.task import BoundedNumber, ManyClasses, Task, TwoClasses
from ..runs.config import RunConfig
from ..runs.simulate import Result, simulate
from ..util.typing import Any, Array, IntArray
from . import classes, evaluation, numeric_metrics
from .classes import ClassEvaluation, Confusion
from .evaluation import Evaluation, Held, Histogram, Level, qualities
from .numeric_metrics import ErrorMoments, NumberEvaluation

T = TypeVar("T", bound=Task)
E = TypeVar("E", Evaluation, ClassEvaluation, NumberEvaluation)

FARTHEST = 1e100
"""Largest absolute margin of a row: its square is still finite, and it is beyond all cells."""


@dataclass(frozen=True)
class Scored:
    """Held-out rows with a public model's margins.

    Parameters
    ----------
    margins : array (n,) or (K, n)
        Linear scores; one for each of K classes.  They are clipped to `FARTHEST`, and NaN becomes
        0: a model may come from anybody and have huge weights, and a refusal would disclose
        something about a row.
    model : bytes
        Digest of all public values on which the margins depend
        (:func:`sottovoce.util.plain.digest_public_values`).
    y : array (n,)
        Labels as the task encodes them.
    X : array (n, d), optional
        Encoded columns, from which subgroups are read.
    """

    margins: Array
    model: bytes
    y: Array
    X: Array | None = None

    def __post_init__(self) -> None:
        if not self.model:
            rule = "must be the digest of the public model that is evaluated"
            raise InvalidInput(
                "model", None, rule, "give sottovoce.util.plain.digest_public_values(...)"
            )
        # The dataclass is frozen, so the attribute is set by the base class.
        inside = np.nan_to_num(np.clip(self.margins, -FARTHEST, FARTHEST), nan=0.0)
        object.__setattr__(self, "margins", inside)


@dataclass(frozen=True)
class Judge(ABC, Generic[T, E]):
    """The evaluation of one kind of label.

    Parameters
    ----------
    task : Task
        What the label declares.
    held : Held
        Epsilon and options of the evaluation.
    levels : tuple of Level
        The subgroups; empty for none.
    """

    task: T
    held: Held
    levels: tuple[Level, ...] = ()

    loss: ClassVar[Loss] = evaluation.LOSS

    @abstractmethod
    def evaluation_recipe(self, model: bytes, d: int) -> Recipe:
        """Return the recipe that evaluates a model on rows with d columns.

        `model` is the digest of :class:`Scored`.
        """

    @abstractmethod
    def scored_rows(self, scored: Scored, parts: Sequence[IntArray]) -> Rows:
        """Return the rows of all sites for the recipe; `parts` has each site's row indices."""

    @abstractmethod
    def read_evaluation(self, scored: Scored, method: Recipe, result: Result) -> E:
        """Construct the evaluation from the outcome of its recipe.

        Parameters
        ----------
        scored : Scored
            The held-out rows, for the same metrics without noise.
        method : Recipe
            As :meth:`evaluation_recipe` made it.
        result : Result
            Its outcome and its statement.

        Returns
        -------
        Evaluation, ClassEvaluation or NumberEvaluation
            With ``exact``, which is without noise, for the data owner only.
        """

    def compute_margins(self, w: Array, X: Array) -> Array:
        """Compute the margins of a model w, (d,), on encoded rows X, (n, p): (n,) or (K, n).

        Each row's margin is rounded independently of the other rows.
        """
        return products_by_row(X, self.task.vectors_by_margin(w))

    def check_before_spending(self, run: RunConfig) -> None:
        """Check that the evaluation fits the training `run`, before anything is spent.

        InvalidInput if not.
        """
        # There are no rows yet.  They have the columns that mark levels, the margin and a constant.
        columns = max((level.feature or 0 for level in self.levels), default=0) + 1
        self.held.evaluation_config(run, self.evaluation_recipe(b"", columns + 2))

    def run_evaluation(
        self,
        scored: Scored,
        run: RunConfig,
        sites: int = 1,
        *,
        ledger: DurableLedger | None = None,
        run_name: str | None = None,
        digest: bytes | None = None,
        caveat: str | None = None,
    ) -> E:
        """Divide the held-out rows among the sites by their positions, and run the evaluation.

        Parameters
        ----------
        scored : Scored
            Held-out rows with a public model's margins.
        run : RunConfig
            Relation, delta, trust and seed; noise is keyed apart from that of the training.
        sites : int
            Number of sites.
        ledger : DurableLedger, optional
            Ledger on disk of the held-out rows.
        run_name : str, optional
            Name of the run in that ledger.
        digest : bytes, optional
            Digest of the rows that the ledger belongs to; None for that of the scored rows.
        caveat : str, optional
            What epsilon does not cover, for the statement.

        Returns
        -------
        Evaluation, ClassEvaluation or NumberEvaluation

        Raises
        ------
        InvalidInput
            If the evaluation does not fit the run; nothing has been spent.

        Guarantee
        ---------
        Held-out rows enter the released metrics only through the releases of the recipe, each
        priced by the event of its query; relation, unit, epsilon and delta are those of the
        evaluation's statement.  The model is public, and no part of what is protected.
        """
        rows = self.scored_rows(scored, np.array_split(np.arange(len(scored.y)), sites))
        method = self.evaluation_recipe(scored.model, rows.d)
        result = simulate(
            self.held.evaluation_config(run, method),
            rows,
            method=method,
            loss=self.loss,
            ledger=ledger,
            run_name=run_name,
            digest=digest,
            caveat=caveat,
        )
        return self.read_evaluation(scored, method, result)


class TwoClassesJudge(Judge[TwoClasses, Evaluation]):
    """Evaluation of two classes: a noisy histogram of scores by label."""

    def evaluation_recipe(self, model: bytes, d: int) -> Recipe:
        """Return the histogram of scores, by subgroup if there are any."""
        groups = evaluation.subgroup_masks(self.levels, d)
        # Rows hold their margin in the last column before the constant: it is the score.
        last = np.eye(d - 1)[-1]
        return Histogram(judged=model, weights=last, threshold=self.held.threshold, groups=groups)

    def scored_rows(self, scored: Scored, parts: Sequence[IntArray]) -> Rows:
        """Return rows of encoded columns (for subgroups), margin and constant."""
        X = scored.margins[:, None]
        if scored.X is not None:
            # Encoded columns, from which subgroups are read.
            X = np.hstack([scored.X, X])
        return evaluation.build_scored_rows([(X[part], scored.y[part]) for part in parts])

    def read_evaluation(self, scored: Scored, method: Recipe, result: Result) -> Evaluation:
        """Return AUC, Brier score, rates and calibration, overall and by subgroup.

        Parameters
        ----------
        scored, method, result
            As for :meth:`Judge.read_evaluation`.

        Returns
        -------
        Evaluation
        """
        threshold = self.held.threshold
        return Evaluation(
            quality=qualities(result.outcome, threshold, self.levels)[0],
            statement=result.statement,
            exact=evaluation.exact_metrics(scored.margins, scored.y, threshold),
            asked=method.releases_with_noise.to_plain_items(),
        )


class ManyClassesJudge(Judge[ManyClasses, ClassEvaluation]):
    """Evaluation of several classes: a noisy confusion matrix."""

    def evaluation_recipe(self, model: bytes, d: int) -> Recipe:
        """Return the confusion matrix of the K classes."""
        return Confusion(judged=model, K=len(self.task.names))

    def scored_rows(self, scored: Scored, parts: Sequence[IntArray]) -> Rows:
        """Return rows of cell number and constant; rows without a known class become zero rows."""
        cell, known = classes.locate_confusion_cells(self.task, scored.margins, scored.y)
        return evaluation.build_scored_rows([(cell[part, None], known[part]) for part in parts])

    def read_evaluation(self, scored: Scored, method: Recipe, result: Result) -> ClassEvaluation:
        """Return accuracy, and recall and precision by class.

        Parameters
        ----------
        scored, method, result
            As for :meth:`Judge.read_evaluation`.

        Returns
        -------
        ClassEvaluation
        """
        exact = classes.exact_class_metrics(self.task, scored.margins, scored.y)
        asked = method.releases_with_noise.to_plain_items()
        return classes.evaluate_confusion_matrix(
            self.task.names, result.outcome, result.statement, exact, asked
        )


class NumberJudge(Judge[BoundedNumber, NumberEvaluation]):
    """Evaluation of a bounded number: noisy moments of errors and targets."""

    loss: ClassVar[Loss] = numeric_metrics.LOSS

    def evaluation_recipe(self, model: bytes, d: int) -> Recipe:
        """Return the moments of errors."""
        return ErrorMoments(judged=model)

    def scored_rows(self, scored: Scored, parts: Sequence[IntArray]) -> Rows:
        """Return rows of score and constant with their targets; without one, zero rows."""
        return numeric_metrics.rows_of([(scored.margins[part], scored.y[part]) for part in parts])

    def read_evaluation(self, scored: Scored, method: Recipe, result: Result) -> NumberEvaluation:
        """Return the errors of predictions, in the target's unit.

        Parameters
        ----------
        scored, method, result
            As for :meth:`Judge.read_evaluation`.

        Returns
        -------
        NumberEvaluation
        """
        exact = numeric_metrics.exact(self.task, scored.margins, scored.y)
        quality = numeric_metrics.errors_from_moments(result.outcome, self.task)
        return NumberEvaluation(quality, result.statement, exact)


def judge_for_task(task: Task, held: Held, schema: Schema | None) -> Judge[Any, Any]:
    """Return the evaluation for the label of a task.

    Parameters
    ----------
    task : Task
        Two classes, several classes, or a bounded number.
    held : Held
        What is asked: epsilon, threshold, subgroups.
    schema : Schema or None
        Declares the levels of subgroups.

    Returns
    -------
    Judge

    Raises
    ------
    InvalidInput
        If subgroups, or other wishes, do not fit the task.
    """
    refuse_rates(task)
    if isinstance(task, TwoClasses):
        return TwoClassesJudge(task, held, evaluation.subgroup_levels(schema, held.by))
    # A threshold and subgroups are of two classes alone.
    held.check_without_subgroups()
    if isinstance(task, ManyClasses):
        return ManyClassesJudge(task, held)
    assert isinstance(task, BoundedNumber)
    return NumberJudge(task, held)
