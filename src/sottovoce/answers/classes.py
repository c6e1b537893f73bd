"""How good a model of several classes is, on rows that nobody shows: one histogram of classes by what was answered.

A row with a known class is in one cell, its class and the model's answer, so the release has the sensitivity of
:class:`sottovoce.queries.Scores`.  Accuracy, and for every class how many of its rows are found and how many of its
answers are right, are post-processing, with intervals that hold sampling and noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..ledger.durable import DurableLedger
from ..plain import digest_of
from ..privacy.statement import Statement
from ..queries import Scores
from ..runs.config import RunConfig
from ..runs.training import Report
from ..task import ManyClasses
from ..typing import Any, Array
from .asking import Desk, Item, shares_of
from .evaluation import LOSS, Estimate, Held, project, ratio, rows_of

_CONSTANT: Array = np.array([0.0, 1.0])


@dataclass(frozen=True)
class ClassEvaluation:
    """What was released of held-out rows, with the exact numbers that only their holder may see.

    Attributes
    ----------
    names : tuple of str
    rows : float
        Held-out rows, those without a known class too; these count as wrong.
    noise : float
        Standard deviation of the noise on each count.
    accuracy : Estimate
    found, right, share : dict of str to Estimate
        By class: the share of its rows that are answered so (recall), of such answers that are right (precision), and
        the class's share of all rows.
    counts : array (K, K)
        Noisy, at least 0: rows of class i that are answered k.
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

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        classes = [
            {
                "name": name, "share": self.share[name].to_dict(), "recall": self.found[name].to_dict(),
                "precision": self.right[name].to_dict(),
            }
            for name in self.names
        ]  # fmt: skip
        return {
            "rows": self.rows, "noise": self.noise, "accuracy": self.accuracy.to_dict(), "classes": classes,
            "confusion": self.counts.tolist(), "exact": self.exact, "privacy": self.statement.to_dict(),
            "asked": shares_of((item.name, item.share) for item in recipe(len(self.names))),
        }  # fmt: skip


def recipe(K: int) -> tuple[Item, ...]:
    """What is asked about K classes: one release."""
    edges = np.arange(0.5, K * K - 1.0)
    return (Item("answers by class", lambda at: Scores(at, _CONSTANT, edges), 1.0),)


def evaluate_classes(
    task: ManyClasses, margins: Array, y: Array, held: Held, run: RunConfig, sites: int = 1, *,
    scored_by: bytes, ledger: DurableLedger | None = None, run_name: str | None = None, digest: bytes | None = None,
    caveat: str | None = None,
) -> ClassEvaluation:  # fmt: skip
    """Deal held-out rows to the sites by their positions, and ask how they are answered by class.

    Parameters
    ----------
    margins : array (K, n)
        Of a public model.
    y : array (n,)
        As `task` encodes labels.
    scored_by : bytes
        :func:`sottovoce.plain.digest_of` the public model whose margins these are.

    Raises
    ------
    InvalidInput
    """
    held.check_whole()
    K, config = len(task.names), held.config(run)
    known, answers = task.known(y), task.decode(margins)
    cell = np.where(known, task.number(np.maximum(y, 0)) * K + answers, 0)
    parts = np.array_split(np.arange(len(y)), sites)
    rows = rows_of([(cell[part, None].astype(float), known[part].astype(float)) for part in parts])
    identity = held.identity(scored_by)
    desk = Desk.open(config, rows, LOSS, recipe(K), ledger=ledger, run_name=run_name, identity=identity, digest=digest)
    told = desk.ask("answers by class", np.array([[1.0, 0.0]]))[0].reshape(2, K, K)[1]
    n, noise = desk.rows, desk.rows * desk.spread("answers by class")
    desk.close()
    exact = np.bincount(cell[known], minlength=K * K).reshape(K, K).astype(float)
    found = _measured(task.names, n * told, n, noise)
    return ClassEvaluation(
        task.names, n, noise, *found, np.maximum(n * told, 0.0), desk.statement(caveat=caveat), _exact(task, exact)
    )


def _measured(
    names: Sequence[str], raw: Array, n: float, noise: float
) -> tuple[Estimate, dict[str, Estimate], dict[str, Estimate], dict[str, Estimate]]:
    """Accuracy, and by class recall, precision and share, of noisy counts."""
    counts, right, whole = project(raw, n), np.eye(len(names)), np.ones_like(raw)

    def by_class(across: bool, hit: Array | None) -> dict[str, Estimate]:
        found = {}
        for k, name in enumerate(names):
            mine = np.zeros_like(raw)
            mine[(slice(None), k) if across else k] = 1.0
            pair = (mine, whole) if hit is None else (hit * mine, mine)
            found[name] = ratio(raw, counts, *pair, n if hit is None else float((raw * mine).sum()), noise**2)
        return found

    accuracy = ratio(raw, counts, right, whole, n, noise**2)
    return accuracy, by_class(False, right), by_class(True, right), by_class(False, None)


def _exact(task: ManyClasses, counts: Array) -> dict[str, Any]:
    """Without noise, on rows with a known class: for their holder only."""
    total = float(counts.sum())
    rows = np.maximum(counts.sum(axis=1), 1.0)
    return {
        "rows": total, "accuracy": float(np.trace(counts)) / max(total, 1.0),
        **{f"recall on {name}": float(counts[k, k] / rows[k]) for k, name in enumerate(task.names)},
    }  # fmt: skip


def evaluate_classes_report(report: Report, held: Held) -> ClassEvaluation:
    """The same of the first replicate's average model of a run by rounds, on its test rows."""
    dataset, result, task = report.dataset, report.result, report.task
    assert isinstance(task, ManyClasses)
    X, y = dataset.all_held_out(dataset.X_test)
    w, sites = result.consensus[0], result.facts.n_nodes
    own: dict[str, Any] = {"scored_by": digest_of(w), "caveat": dataset.caveat}
    return evaluate_classes(task, task.vectors(w) @ X.T, y, held, report.config.run, sites, **own)
