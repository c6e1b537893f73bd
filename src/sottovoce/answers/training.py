"""``train --inference`` and ``--evaluation``: coefficients with intervals, and quality on rows that nobody shows."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from .. import data
from ..data.schema import unfit
from ..errors import InvalidInput
from ..ledger.durable import DurableLedger
from ..privacy.statement import Statement
from ..problem.losses import Logistic
from ..problem.task import TwoClasses
from ..problem.weighted_loss import Weighted
from ..runs.config import RunConfig
from ..runs.simulate import simulate
from ..runs.training import Report, TrainConfig, deal
from ..util.pages import versions
from ..util.plain import digest_of, jsonable
from ..util.typing import Any, Array, IntArray
from .evaluation import Evaluation, Held, exact
from .inference import Coefficients, Estimates, check_run, forecast, model_of, newton_of, table
from .judging import Scored, judge_of
from .saved import SavedModel, to_keep
from .terms import Naming, columns_of, naming_of, outcome

WEIGHED = "intervals are for rows that count alike: with weights the errors of an estimate are other ones"


@dataclass(frozen=True)
class Inferred:
    """A run with inference, scored on test rows.

    Attributes
    ----------
    answered : SavedModel
    coefficients : Coefficients
        Of the first replicate.
    estimates : Estimates
    exact : dict of str to float
        Quality on the test rows without noise, for the data's holder; empty without test rows.
    forecast : dict of str to float
        Of the number of rows that the table needs, before the run.
    sizes, sites
        Rows and names of the sites.
    n_test : int
        Rows that were held out, whatever their label.
    asked : list of dict
        The name of every release with its share of the budget.
    """

    config: TrainConfig
    answered: SavedModel
    coefficients: Coefficients
    estimates: Estimates
    statement: Statement
    exact: dict[str, float]
    forecast: dict[str, float]
    sizes: Array
    sites: tuple[str, ...]
    n_test: int
    asked: list[dict[str, Any]]
    evaluation: Evaluation | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    task: TwoClasses = field(default_factory=TwoClasses)

    def to_dict(self) -> dict[str, Any]:
        """One JSON object; an infinite number is the text ``inf``."""
        best = None if self.evaluation is None else self.evaluation.quality[""]
        report = {
            "method": "inference", "data": self.config.data, "nodes": len(self.sizes),
            "partition": self.config.partition, "n_train": self.sizes.astype(int).tolist(),
            "sites": list(self.sites), "n_test": self.n_test, "features": len(self.answered.model),
            "label": outcome(self.answered.schema), "asked": self.asked, "versions": versions(*LIBRARIES),
            "coefficients": self.coefficients.to_dict(), "strain": self.coefficients.strain,
            "needs": self.coefficients.needs, "weighed": self.coefficients.weighed, "forecast": self.forecast,
            "auc": self.exact.get("auc") if best is None else best.auc.value,
            "brier": self.exact.get("brier") if best is None else best.brier.value,
            "exact": self.exact, "test_error": 1.0 - self.exact["accuracy"] if self.exact else None,
            "evaluation": None if self.evaluation is None else self.evaluation.to_dict(),
            "privacy": self.statement.to_dict(), "notes": list(self.notes), "seconds": self.seconds,
            "config": self.config.run.to_dict(),
        }  # fmt: skip
        return {key: jsonable(value) for key, value in report.items()}


@dataclass(frozen=True)
class Dealt:
    """Training rows at their sites, in an encoding whose coefficients have names.

    Attributes
    ----------
    naming : Naming
    tables : list
        Of every site: raw columns, or encoded rows where there is no schema.
    parts : list of array of int
        Which training rows each site holds.
    label : str
        What the deal depends on, for a ledger on disk.
    sites : tuple of str
        Their names.
    """

    naming: Naming
    tables: list[Any]
    parts: list[IntArray]
    label: str
    sites: tuple[str, ...]

    @property
    def sizes(self) -> Array:
        """Rows of every site."""
        return np.array([float(len(part)) for part in self.parts])

    @property
    def shares(self) -> Array:
        """By which sites' constants are averaged: their shares of all rows, or 1 where there is one constant."""
        return self.sizes / self.sizes.sum() if self.naming.sites else np.ones(1)

    @classmethod
    def of(cls, config: TrainConfig, dataset: data.Dataset, site_constants: bool | None) -> Dealt:
        """Deal a data set; None for a constant at every site unless rows are dealt at random."""
        parts = deal(config, dataset)
        own = config.partition != "iid" if site_constants is None else site_constants
        called = names_of(config.partition, dataset.train_columns, parts)
        sites = list(called) if own and len(parts) > 1 else []
        plain = [f"x{j}" for j in range(dataset.n_features)]
        naming = naming_of(dataset.schema, plain, 1.0, sites)
        tables = [
            (dataset.X_train[part] if dataset.schema is None else columns_of(dataset.train_columns, part))
            for part in parts
        ]  # fmt: skip
        label = f"{config.data} {config.schema} {config.partition} {config.sizes} {config.test_share} {own}"
        return cls(naming, tables, parts, label, called)


def infer(
    config: TrainConfig, *, held: Held | None = None, site_constants: bool | None = None,
    ledger: DurableLedger | None = None, run_name: str | None = None, checkpoint: str | Path | None = None,
) -> Inferred:  # fmt: skip
    """Load, deal, ask for the recipe of :mod:`sottovoce.answers.inference`, and score.

    Parameters
    ----------
    config : TrainConfig
        With ``method="auto"``: inference has steps of its own, and spends all of the budget on them.
    held : Held, optional
        Asks the test rows too, dealt to the sites, with an epsilon of their own.
    site_constants : bool, optional
        Whether every site has a constant of its own; None for yes unless rows are dealt at random.
    ledger, run_name, checkpoint : optional
        See :func:`sottovoce.runs.simulate.simulate`.

    Raises
    ------
    InvalidInput
    """
    started, run = time.perf_counter(), config.run
    check(run, config)
    dataset = data.load(config.data, schema=config.schema, test_share=config.test_share)
    task = dataset.task
    if not isinstance(task, TwoClasses):
        raise InvalidInput("label", None, "coefficients are log-odds of two classes", "declare two classes")
    if dataset.weights is not None:
        raise InvalidInput("weight", None, WEIGHED, "leave weight and class_weight out, or train without inference")
    dealt = Dealt.of(config, dataset, site_constants)
    check_held(held, dataset, run, len(dealt.parts), ledger=ledger)
    naming, sizes = dealt.naming, dealt.sizes
    rows = naming.rows([(found, dataset.y_train[part]) for found, part in zip(dealt.tables, dealt.parts, strict=True)])
    loss = Weighted(Logistic()) if naming.long else Logistic()
    method = newton_of(naming)
    result = simulate(
        run, rows, method=method, loss=loss, ledger=ledger, run_name=run_name, label=dealt.label,
        caveat=dataset.caveat, checkpoint=checkpoint,
    )  # fmt: skip
    found, statement, facts = result.outcome, result.statement, result.facts
    lines = table(found, naming, delta=run.delta)
    answered = SavedModel(naming, model_of(found)[0], dealt.shares, {}, dataset.schema)
    scored = len(dataset.y_test) > 0
    test = dataset.X_test if dataset.schema is None else dataset.test_columns
    quality = exact(answered.margins(test), dataset.y_test) if scored else {}
    evaluation = None
    if held is not None:
        X, y = dataset.all_held_out(np.hstack([naming.encoded(test), answered.margins(test)[:, None]]))
        scored_rows = Scored(X[:, -1], answered.digest, y, X[:, :-1])
        judge = judge_of(task, held, naming.schema)
        evaluation = judge.ask(scored_rows, run, len(dealt.parts), caveat=dataset.caveat)
    mu = found.scale
    ahead = {}
    if math.isfinite(mu):
        ahead = forecast(
            naming,
            float(sizes.sum()),
            mu,
            sites=facts.n_nodes,
            summed=facts.participants > 0,
            colluders=facts.colluders,
        )
    done = Inferred(
        config, answered, lines, found, statement, quality, ahead, sizes, dealt.sites, dataset.n_held_out,
        method.asked, evaluation,
        (*dataset.notes, *unfit(dataset.clipped, shortened=False)), time.perf_counter() - started, task,
    )  # fmt: skip
    record = to_keep(done.to_dict(), dataset.notes)
    if evaluation is None:
        record["auc"] = record["brier"] = None  # they are exact ones then
    return replace(done, answered=replace(answered, record=record))


LIBRARIES = "numpy", "scipy"


def names_of(partition: str, columns: Any, parts: Sequence[IntArray]) -> tuple[str, ...]:
    """Names of the sites: their values of the column that says who holds a row, or their numbers."""
    kind, _, name = partition.partition(":")
    if kind == "site":
        return tuple(str(columns[name][part[0]]) for part in parts)
    return tuple(f"site {i}" for i in range(len(parts)))


def check_held(
    held: Held | None, dataset: data.Dataset, run: RunConfig, sites: int = 1, *, ledger: DurableLedger | None = None
) -> None:
    """Refuse an evaluation that cannot be asked, before the training spends anything.

    Raises
    ------
    InvalidInput
    """
    if held is None:
        return
    if ledger is not None:
        rule = "the ledger is that of the training rows, and held-out rows have a budget of their own"
        raise InvalidInput("evaluation", held.epsilon, rule, "use `sottovoce evaluate` with their own ledger")
    if not len(dataset.y_test):
        raise InvalidInput("evaluation", held.epsilon, "there are no test rows", "give a test_share")
    if dataset.n_held_out < sites:
        rule = f"there are {dataset.n_held_out} test rows for {sites} sites"
        raise InvalidInput("evaluation", held.epsilon, rule, "give a larger test_share")
    judge_of(dataset.task, held, dataset.schema).check(run)


def check(run: RunConfig, config: TrainConfig | None = None) -> None:
    """Refuse what inference does not use.

    Raises
    ------
    InvalidInput
    """
    check_run(run)
    if config is not None and (config.start or config.public or config.public_share):
        raise InvalidInput("start", None, "inference starts from a count of its own", "leave the start out")


def evaluate_report(report: Report, held: Held) -> Any:
    """Evaluate the first replicate's average model of a run by rounds on its test rows, dealt to the sites.

    Returns
    -------
    Evaluation, ClassEvaluation or NumberEvaluation
        By what the label is.

    Raises
    ------
    InvalidInput
    """
    dataset, result, run = report.dataset, report.result, report.config.run
    check_held(held, dataset, run)
    judge, w = judge_of(dataset.task, held, dataset.schema), result.consensus[0]
    X, y = dataset.all_held_out(dataset.X_test)
    scored = Scored(judge.margins(w, X), digest_of(w), y, X)
    return judge.ask(scored, run, result.facts.n_nodes, caveat=dataset.caveat)


__all__ = ["Evaluation", "Held", "Inferred", "Naming", "evaluate_report", "infer", "outcome"]
