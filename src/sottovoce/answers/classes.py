"""Differentially private evaluation of several classes on held-out rows: one noisy confusion
matrix (docs/privacy/answers.md, "Evaluation").

The release is a :class:`sottovoce.queries.Scores` histogram: the "score" of a row is the number of
its cell in the K by K matrix, and a row with a known class is in one cell.  Accuracy, and recall
and precision of every class, are post-processing, with 95% intervals for sampling and noise.
:class:`sottovoce.answers.judging.ManyClassesJudge` runs it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ..algorithms.items import Answer, Item
from ..algorithms.once import Once
from ..privacy.statement import Statement
from ..problem.task import ManyClasses
from ..queries import Scores
from ..util.typing import Any, Array
from .metrics import Estimate, project_on_simplex, ratio_of_counts
from .released import ReleasedEvaluation

_CONSTANT: Array = np.array([0.0, 1.0])
"""Rows are (number of the cell, 1): the mask of the constant."""


@dataclass(frozen=True, repr=False)
class ClassEvaluation(ReleasedEvaluation):
    """Released quality for several classes, with exact numbers that only the data owner may see.

    Parameters
    ----------
    names : tuple of str
        Names of the K classes.
    rows : float
        Rows that were held out; those without a known class count as wrong.
    noise : float
        Standard deviation of the noise on each count.
    accuracy : Estimate
    found, right, share : dict of str to Estimate
        Recall, precision, and share of all rows, by class.
    counts : array (K, K)
        Noisy numbers, at least 0, of rows of class i that are predicted as k.
    statement : Statement
        Privacy statement of the release.
    exact : dict
        Metrics without noise.
    asked : list of dict
        The releases as plain data.
    """

    names: tuple[str, ...]
    rows: float
    noise: float
    accuracy: Estimate
    found: dict[str, Estimate]
    right: dict[str, Estimate]
    share: dict[str, Estimate]
    counts: Array
    statement: Statement
    exact: dict[str, Any]
    asked: list[dict[str, Any]]

    def released(self) -> dict[str, Any]:
        """Return the released results as plain data."""
        classes = [
            {
                "name": name,
                "share": self.share[name].to_dict(),
                "recall": self.found[name].to_dict(),
                "precision": self.right[name].to_dict(),
            }
            for name in self.names
        ]
        return {
            "rows": self.rows,
            "noise": self.noise,
            "accuracy": self.accuracy.to_dict(),
            "classes": classes,
            "confusion": self.counts.tolist(),
            "privacy": self.statement.to_dict(),
            "asked": self.asked,
        }


@dataclass(frozen=True)
class Confusion(Once):
    """The K by K confusion matrix of a public model, from one noisy histogram.

    Rows are (number of the cell, 1) by :func:`locate_confusion_cells`; the outcome is an
    :class:`~sottovoce.algorithms.items.Answer`.

    Parameters
    ----------
    judged : bytes
        Digest of the public model (:func:`sottovoce.util.plain.digest_public_values`).
    K : int
        Number of classes.

    Guarantee
    ---------
    Rows enter through `items` alone: Gaussian mechanisms on bounded sums over rows, each priced by
    :meth:`sottovoce.queries.NoisyBounded.event` under the relation and the unit of the run.
    All metrics are post-processing.  The judged model is public.
    """

    judged: bytes = field(kw_only=True)
    K: int = field(kw_only=True)

    name: ClassVar[str] = "confusion"
    summary: ClassVar[str] = "accuracy, recall and precision of a public model of several classes"

    @property
    def items(self) -> tuple[Item, ...]:
        """The only release: the confusion matrix, with the whole budget."""
        return (Item("answers by class", self._cells_query, 1.0),)

    def _cells_query(self, at: Array) -> Scores:
        """Return the query for the histogram of cell numbers at the point `at`."""
        # Half-way between the numbers of the cells.
        edges = np.arange(0.5, self.K**2 - 1.0)
        return Scores(at, _CONSTANT, edges)

    def point_of_release(self, d: int) -> Array:
        """Return the point whose product with a row is the number of its cell."""
        return np.array([1.0, 0.0])


def locate_confusion_cells(task: ManyClasses, margins: Array, y: Array) -> tuple[Array, Array]:
    """Locate every row in the confusion matrix.

    Parameters
    ----------
    task : ManyClasses
        Names the K classes.
    margins : array (K, n)
        Linear score of every class; the largest is the prediction.
    y : array (n,)
        Labels as the task encodes them.

    Returns
    -------
    cell : array (n,)
        K times the true class plus the predicted one; 0 for rows without a known class.
    known : array (n,)
        1 for rows with a known class, 0 for others.
    """
    known = task.has_known_label(y)
    true_class = task.number(np.maximum(y, 0))
    predicted = task.decode(margins)
    cell = np.where(known, true_class * len(task.names) + predicted, 0)
    return cell.astype(float), known.astype(float)


def evaluate_confusion_matrix(
    names: tuple[str, ...],
    found: Answer,
    statement: Statement,
    exact: dict[str, Any],
    asked: list[dict[str, Any]],
) -> ClassEvaluation:
    """Estimate accuracy, recall, precision and shares from a noisy confusion matrix.

    Parameters
    ----------
    names : tuple of str
        Names of the K classes.
    found : Answer
        Outcome of :class:`Confusion`, of one replicate.
    statement : Statement
        What the release cost.
    exact : dict
        The same metrics without noise, for the data owner only.
    asked : list of dict
        The releases as plain data.

    Returns
    -------
    ClassEvaluation
    """
    K, n = len(names), found.rows
    # Of the two labels of the histogram, the second is that of rows with a known class.
    raw = n * found.value[0].reshape(2, K, K)[1]
    noise = n * found.spread
    counts = project_on_simplex(raw, n)
    right, whole = np.eye(K), np.ones_like(raw)
    recall = dict[str, Estimate]()
    precision = dict[str, Estimate]()
    share = dict[str, Estimate]()
    for k, name in enumerate(names):
        of_class, predicted = np.zeros_like(raw), np.zeros_like(raw)
        of_class[k] = 1.0
        predicted[:, k] = 1.0
        # The denominator of a share of all rows is public; recall and precision have noisy ones.
        recall[name] = ratio_of_counts(raw, counts, right * of_class, of_class, noise**2, None)
        precision[name] = ratio_of_counts(raw, counts, right * predicted, predicted, noise**2, None)
        share[name] = ratio_of_counts(raw, counts, of_class, whole, noise**2, n)
    return ClassEvaluation(
        names=names,
        rows=n,
        noise=noise,
        accuracy=ratio_of_counts(raw, counts, right, whole, noise**2, n),
        found=recall,
        right=precision,
        share=share,
        counts=np.maximum(raw, 0.0),
        statement=statement,
        exact=exact,
        asked=asked,
    )


def exact_class_metrics(task: ManyClasses, margins: Array, y: Array) -> dict[str, Any]:
    """Compute accuracy and recall without noise, for the data owner only.

    Parameters
    ----------
    task : ManyClasses
    margins : array (K, n)
        Linear score of every class.
    y : array (n,)
        Labels as the task encodes them; rows without a known class are left out.

    Returns
    -------
    dict of str to float
        ``rows``, ``accuracy``, and ``recall on <class>`` for each class.
    """
    K = len(task.names)
    cell, known = locate_confusion_cells(task, margins, y)
    by_cell = np.bincount(cell[known > 0].astype(int), minlength=K * K)
    counts = by_cell.reshape(K, K).astype(float)
    total = float(counts.sum())
    # A class without rows has a recall of 0.
    rows = np.maximum(counts.sum(axis=1), 1.0)
    found = {"rows": total, "accuracy": float(np.trace(counts)) / max(total, 1.0)}
    for k, name in enumerate(task.names):
        found[f"recall on {name}"] = float(counts[k, k] / rows[k])
    return found
