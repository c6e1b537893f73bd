"""Differentially private evaluation of a public model on held-out rows: one :class:`Judge` for each
kind of label.

A model's margins enter as rows, which no key of a run holds, so only its digest tells its
evaluation from another's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np

from ..algorithms.recipe import Recipe
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
"""The largest margin of a row: its square is a number, and no cell ends there."""


@dataclass(frozen=True)
class Scored:
    """Held-out rows with a public model's margins.

    Parameters
    ----------
    margins : array (n,) or (K, n)
        Those of a model with huge weights, which may come from anybody, are brought within
        `FARTHEST`, and 0 where a row's sum has no value: to refuse them would tell of the row.
    model : bytes
        :func:`sottovoce.util.plain.digest_public_values` the model: all on which its margins depend
        but the rows.
    y : array (n,)
        Labels as the task encodes them.
    X : array (n, d), optional
        Encoded columns, for subgroups.
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
        inside = np.nan_to_num(np.clip(self.margins, -FARTHEST, FARTHEST), nan=0.0)
        object.__setattr__(self, "margins", inside)


@dataclass(frozen=True)
class Judge(ABC, Generic[T, E]):
    """The evaluation of one kind of label; `levels` are the subgroups."""

    task: T
    held: Held
    levels: tuple[Level, ...] = ()

    loss: ClassVar[Loss] = evaluation.LOSS

    @abstractmethod
    def evaluation_recipe(self, model: bytes, d: int) -> Recipe:
        """Return the recipe that evaluates the model with this digest on rows of d entries."""

    @abstractmethod
    def scored_rows(self, scored: Scored, parts: Sequence[IntArray]) -> Rows:
        """Return the rows of every site, from its indices into the scored rows."""

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
        """Margins of the classifier w on encoded rows X; a row's margin depends on no other row."""
        return products_by_row(X, self.task.vectors_by_margin(w))

    def check_before_spending(self, run: RunConfig) -> None:
        """Check that the evaluation can be asked, before anything is spent; InvalidInput."""
        # No rows are there yet: as many columns as the levels mark, the margins, and a constant.
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
    """A histogram of scores by label."""

    def evaluation_recipe(self, model: bytes, d: int) -> Recipe:
        groups = evaluation.subgroup_masks(self.levels, d)
        # Rows hold their margin in the last column before the constant: it is the score.
        last = np.eye(d - 1)[-1]
        return Histogram(judged=model, weights=last, threshold=self.held.threshold, groups=groups)

    def scored_rows(self, scored: Scored, parts: Sequence[IntArray]) -> Rows:
        X = scored.margins[:, None]
        if scored.X is not None:
            # Encoded columns, which tell the subgroups.
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
    """A confusion matrix."""

    def evaluation_recipe(self, model: bytes, d: int) -> Recipe:
        return Confusion(judged=model, K=len(self.task.names))

    def scored_rows(self, scored: Scored, parts: Sequence[IntArray]) -> Rows:
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
    """Moments of errors."""

    loss: ClassVar[Loss] = numeric_metrics.LOSS

    def evaluation_recipe(self, model: bytes, d: int) -> Recipe:
        return ErrorMoments(judged=model)

    def scored_rows(self, scored: Scored, parts: Sequence[IntArray]) -> Rows:
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
    if isinstance(task, TwoClasses):
        return TwoClassesJudge(task, held, evaluation.subgroup_levels(schema, held.by))
    # A threshold and subgroups are of two classes alone.
    held.check_without_subgroups()
    if isinstance(task, ManyClasses):
        return ManyClassesJudge(task, held)
    assert isinstance(task, BoundedNumber)
    return NumberJudge(task, held)
