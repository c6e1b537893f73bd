"""How good a public model is on rows that nobody shows, whatever its labels are: one :class:`Judge` a task.

A model's margins enter as rows, and a ledger is that of the rows without them, so nothing public tells one model from
another but its own digest: a :class:`Scored` has it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np

from ..algorithms.items import Answer
from ..algorithms.recipe import Recipe
from ..data.rows import Rows
from ..data.schema import Schema
from ..ledger.durable import DurableLedger
from ..losses import Loss
from ..runs.config import RunConfig
from ..runs.simulate import Result, simulate
from ..task import BoundedNumber, ManyClasses, Task, TwoClasses
from ..typing import Any, Array
from . import classes, evaluation, misses
from .classes import ClassEvaluation, Confusion
from .evaluation import Cells, Evaluation, Held, Histogram, Level
from .misses import ErrorMoments, NumberEvaluation

T = TypeVar("T", bound=Task)
E = TypeVar("E", Evaluation, ClassEvaluation, NumberEvaluation)


@dataclass(frozen=True)
class Scored:
    """What a public model says about held-out rows.

    Parameters
    ----------
    margins : array (n,) or (K, n)
    model : bytes
        :func:`sottovoce.plain.digest_of` the model: everything public on which its margins depend but the rows.
    y : array (n,)
        As the task encodes labels.
    X : array (n, d), optional
        Encoded columns, which tell subgroups.
    """

    margins: Array
    model: bytes
    y: Array
    X: Array | None = None


@dataclass(frozen=True)
class Judge(ABC, Generic[T, E]):
    """Of one task: which rows are made of margins, what is asked of them, and what follows.

    Parameters
    ----------
    task : Task
    held : Held
    levels : tuple of Level
        Subgroups.
    """

    task: T
    held: Held
    levels: tuple[Level, ...] = ()

    loss: ClassVar[Loss] = evaluation.LOSS

    @abstractmethod
    def recipe(self, model: bytes, d: int) -> Recipe:
        """What is asked about the model with this digest, of rows of d entries."""

    @abstractmethod
    def table(self, scored: Scored) -> tuple[Array, Array]:
        """Columns and labels, or what stands for them, (n, ...) and (n,)."""

    @abstractmethod
    def rows(self, parts: Sequence[tuple[Array, Array]]) -> Rows:
        """Of every site, from its part of the table."""

    @abstractmethod
    def exact(self, scored: Scored) -> dict[str, Any]:
        """Without noise: for public rows, and for their holder."""

    @abstractmethod
    def found(self, result: Result, exact: dict[str, Any], asked: list[dict[str, Any]]) -> E:
        """What follows from what was released."""

    def margins(self, w: Array, X: Array) -> Array:
        """Of the classifier w on encoded rows X."""
        return np.asarray(self.task.vectors(w) @ X.T)

    def check(self, run: RunConfig) -> None:
        """Refuse what cannot be asked, before anything is spent.

        Raises
        ------
        InvalidInput
        """
        columns = max((level.feature or 0 for level in self.levels), default=0) + 1
        self.held.config(run, self.recipe(b"", columns + 2))

    def ask(
        self, scored: Scored, run: RunConfig, sites: int = 1, *, ledger: DurableLedger | None = None,
        run_name: str | None = None, digest: bytes | None = None, caveat: str | None = None,
    ) -> E:  # fmt: skip
        """Deal rows to the sites by their positions, and ask.

        Parameters
        ----------
        scored : Scored
        run : RunConfig
            Relation, delta, trust and seed; noise is keyed apart from that of the training.
        ledger, run_name, digest, caveat : optional
            See :func:`sottovoce.runs.simulate.simulate`.

        Raises
        ------
        InvalidInput
        """
        X, y = self.table(scored)
        rows = self.rows([(X[part], y[part]) for part in np.array_split(np.arange(len(y)), sites)])
        method = self.recipe(scored.model, rows.d)
        result = simulate(
            self.held.config(run, method), rows, method=method, loss=self.loss, ledger=ledger, run_name=run_name,
            digest=digest, caveat=caveat,
        )  # fmt: skip
        return self.found(result, self.exact(scored), method.asked)


class TwoClassesJudge(Judge[TwoClasses, Evaluation]):
    """A histogram of scores by label."""

    def recipe(self, model: bytes, d: int) -> Histogram:
        groups = evaluation.groups_of(self.levels, d)
        return Histogram(judged=model, weights=np.eye(d - 1)[-1], threshold=self.held.threshold, groups=groups)

    def table(self, scored: Scored) -> tuple[Array, Array]:
        columns = [] if scored.X is None else [scored.X]
        return np.hstack([*columns, scored.margins[:, None]]), scored.y

    def rows(self, parts: Sequence[tuple[Array, Array]]) -> Rows:
        return evaluation.rows_of(parts)

    def exact(self, scored: Scored) -> dict[str, Any]:
        return evaluation.exact(scored.margins, scored.y, self.held.threshold)

    def found(self, result: Result, exact: dict[str, Any], asked: list[dict[str, Any]]) -> Evaluation:
        cells: Cells = result.outcome
        quality = evaluation.qualities(cells, self.held.threshold, self.levels)[0]
        return Evaluation(quality, result.statement, exact, asked)


class ManyClassesJudge(Judge[ManyClasses, ClassEvaluation]):
    """A histogram of classes by answers."""

    def recipe(self, model: bytes, d: int) -> Confusion:
        return Confusion(judged=model, K=len(self.task.names))

    def table(self, scored: Scored) -> tuple[Array, Array]:
        cell, known = classes.cells_of(self.task, scored.margins, scored.y)
        return cell[:, None], known

    def rows(self, parts: Sequence[tuple[Array, Array]]) -> Rows:
        return evaluation.rows_of(parts)

    def exact(self, scored: Scored) -> dict[str, Any]:
        return classes.exact(self.task, scored.margins, scored.y)

    def found(self, result: Result, exact: dict[str, Any], asked: list[dict[str, Any]]) -> ClassEvaluation:
        return classes.measure(self.task.names, result.outcome, result.statement, exact, asked)


class NumberJudge(Judge[BoundedNumber, NumberEvaluation]):
    """Moments of errors."""

    loss: ClassVar[Loss] = misses.LOSS

    def recipe(self, model: bytes, d: int) -> ErrorMoments:
        return ErrorMoments(judged=model)

    def table(self, scored: Scored) -> tuple[Array, Array]:
        return scored.margins, scored.y

    def rows(self, parts: Sequence[tuple[Array, Array]]) -> Rows:
        return misses.rows_of(parts)

    def exact(self, scored: Scored) -> dict[str, Any]:
        return misses.exact(self.task, scored.margins, scored.y)

    def found(self, result: Result, exact: dict[str, Any], asked: list[dict[str, Any]]) -> NumberEvaluation:
        answer: Answer = result.outcome
        return NumberEvaluation(misses.measure(answer, self.task), result.statement, exact)


def judge_of(task: Task, held: Held, schema: Schema | None) -> Judge[Any, Any]:
    """The judge of a task; `schema` encodes the rows, and declares the levels of subgroups.

    Raises
    ------
    InvalidInput
        If this cannot be asked about such labels.
    """
    if isinstance(task, TwoClasses):
        return TwoClassesJudge(task, held, evaluation.levels_of(schema, held.by))
    held.check_whole()
    if isinstance(task, ManyClasses):
        return ManyClassesJudge(task, held)
    assert isinstance(task, BoundedNumber)
    return NumberJudge(task, held)
