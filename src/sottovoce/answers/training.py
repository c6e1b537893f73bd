"""``train --inference`` and ``--evaluation``: coefficients with intervals, and quality on rows that nobody shows."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .. import data
from ..data.schema import Schema, unfit
from ..errors import InvalidInput
from ..ledger.durable import DurableLedger, rows_digest
from ..losses import Logistic
from ..pages import versions
from ..plain import digest_of, jsonable
from ..privacy.statement import Statement
from ..runs.config import RunConfig
from ..runs.training import Report, TrainConfig, deal
from ..task import TwoClasses
from ..typing import Any, Array, IntArray
from ..weighted import Weighted
from .asking import Desk, check_terms, shares_of
from .evaluation import LOSS, Evaluation, Held, Level, evaluate, exact, groups_of, levels_of, rows_of
from .evaluation import recipe as histograms
from .inference import Coefficients, Estimates, check_run, estimate, forecast, model_of, recipe, table
from .naming import Naming, columns_of, naming_of, outcome
from .saved import Answered, to_keep

WEIGHED = "intervals are for rows that count alike: with weights the errors of an estimate are other ones"


@dataclass(frozen=True)
class Inferred:
    """A run with inference, scored on test rows.

    Attributes
    ----------
    answered : Answered
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
    asked : tuple of (str, float)
        The name of every release with its share of the budget.
    """

    config: TrainConfig
    answered: Answered
    coefficients: Coefficients
    estimates: Estimates
    statement: Statement
    exact: dict[str, float]
    forecast: dict[str, float]
    sizes: Array
    sites: tuple[str, ...]
    n_test: int
    asked: tuple[tuple[str, float], ...]
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
            "sites": list(self.sites), "n_test": self.n_test, "features": self.answered.naming.d,
            "label": outcome(self.answered.schema), "asked": shares_of(self.asked), "versions": versions(*LIBRARIES),
            "coefficients": self.coefficients.to_dict(), "strain": self.coefficients.strain,
            "needs": self.coefficients.needs, "forecast": self.forecast,
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
    def identity(self) -> bytes:
        """Of the encoding of these rows and of what the deal depends on."""
        naming, schema = self.naming, self.naming.schema
        plain = None if schema is None else schema.to_dict()
        return digest_of("training", self.label, plain, naming.sites, naming.data_norm, naming.d)

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
    ledger: DurableLedger | None = None, run_name: str | None = None,
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
    ledger, run_name : optional
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
    check_held(held, dataset, run, ledger)
    dealt = Dealt.of(config, dataset, site_constants)
    naming, sizes = dealt.naming, dealt.sizes
    rows = naming.rows([(found, dataset.y_train[part]) for found, part in zip(dealt.tables, dealt.parts, strict=True)])
    loss = Weighted(Logistic()) if naming.long else Logistic()
    desk = Desk.open(
        run, rows, loss, recipe(naming.constant), ledger=ledger, run_name=run_name, identity=dealt.identity,
        label=dealt.label,
    )  # fmt: skip
    found = estimate(desk, naming)
    desk.close()
    statement = desk.statement(caveat=dataset.caveat)
    lines = table(found, naming, delta=run.delta)
    answered = Answered(naming, model_of(found)[0], dealt.shares, {}, dataset.schema)
    scored = len(dataset.y_test) > 0
    test = dataset.X_test if dataset.schema is None else dataset.test_columns
    quality = exact(answered.margins(test), dataset.y_test) if scored else {}
    evaluation = None
    if held is not None:
        X = np.hstack([naming.encoded(test), answered.margins(test)[:, None]])
        model = np.zeros((1, X.shape[1]))
        model[0, -1] = 1.0
        levels = levels_of(naming.schema, held.by)
        X_held, y_held = dataset.all_held_out(X)
        own: dict[str, Any] = {"scored_by": answered.digest, "caveat": dataset.caveat}
        evaluation = ask_held(run, held, X_held, y_held, model, len(dealt.parts), levels, **own)
    mu = found.scale
    ahead = {}
    if math.isfinite(mu):
        kinds = {"summed": desk.summed, "colluders": desk.facts.colluders}
        ahead = forecast(naming, float(sizes.sum()), mu, sites=desk.facts.n_nodes, **kinds)  # type: ignore[arg-type]
    done = Inferred(
        config, answered, lines, found, statement, quality, ahead, sizes, dealt.sites, dataset.n_held_out,
        tuple((item.name, item.share) for item in desk.plan), evaluation,
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


def check_held(held: Held | None, dataset: data.Dataset, run: RunConfig, ledger: DurableLedger | None = None) -> None:
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
    check_terms(held.config(run))
    if isinstance(dataset.task, TwoClasses):
        levels_of(dataset.schema, held.by)
    else:
        held.check_whole()


def check(run: RunConfig, config: TrainConfig | None = None) -> None:
    """Refuse what inference does not use.

    Raises
    ------
    InvalidInput
    """
    check_run(run)
    if config is not None and (config.start or config.public or config.public_share):
        raise InvalidInput("start", None, "inference starts from a count of its own", "leave the start out")


def ask_held(
    run: RunConfig, held: Held, X: Array, y: Array, model: Array, sites: int, levels: tuple[Level, ...] = (),
    *, scored_by: bytes, ledger: DurableLedger | None = None, run_name: str | None = None,
    digest: bytes | None = None, caveat: str | None = None,
) -> Evaluation:  # fmt: skip
    """Deal held-out rows to the sites by their positions, and ask for histograms of scores.

    Parameters
    ----------
    run : RunConfig
        Relation, delta, trust and seed; noise is keyed apart from that of the training.
    X : array (n, d)
    y : array (n,)
    model : array (1, d)
        Public; scores are products with it.
    scored_by : bytes
        :func:`sottovoce.plain.digest_of` the public model that is evaluated: the rows may hold its scores already.
    """
    config = held.config(run)
    parts = np.array_split(np.arange(len(y)), sites)
    rows = rows_of([(X[part], y[part]) for part in parts])
    plan = histograms(rows.d, groups_of(levels, rows.d))
    identity = held.identity(scored_by)
    desk = Desk.open(config, rows, LOSS, plan, ledger=ledger, run_name=run_name, identity=identity, digest=digest)
    quality = evaluate(desk, model, threshold=held.threshold, levels=levels)[0]
    desk.close()
    asked = tuple((item.name, item.share) for item in plan)
    return Evaluation(quality, desk.statement(caveat=caveat), exact(X @ model[0], y, held.threshold), asked)


def evaluate_report(report: Report, held: Held) -> Evaluation:
    """Evaluate the first replicate's average model of an ordinary run on its test rows, dealt to the sites.

    Raises
    ------
    InvalidInput
    """
    dataset, result = report.dataset, report.result
    if not isinstance(report.task, TwoClasses):
        raise InvalidInput("evaluation", held.epsilon, "is for two classes", "leave it out")
    check_held(held, dataset, report.config.run)
    levels = levels_of(dataset.schema, held.by)
    run = replace(report.config.run, noise=None)
    sites, model = result.facts.n_nodes, result.consensus[:1]
    X, y = dataset.all_held_out(dataset.X_test)
    return ask_held(run, held, X, y, model, sites, levels, scored_by=digest_of(model), caveat=dataset.caveat)


def evaluate_table(
    margins: Array, X: Array, y: Array, schema: Schema | None, held: Held, run: RunConfig, *,
    scored_by: bytes, ledger: DurableLedger | None = None, run_name: str | None = None,
) -> Evaluation:  # fmt: skip
    """Evaluate the public model with the digest `scored_by` on one table.

    Its scores are `margins`; encoded rows X tell subgroups.
    """
    whole = np.hstack([X, margins[:, None]])
    model = np.zeros((1, whole.shape[1]))
    model[0, -1] = 1.0
    levels = levels_of(schema, held.by)
    return ask_held(
        run,
        held,
        whole,
        y,
        model,
        1,
        levels,
        scored_by=scored_by,
        ledger=ledger,
        run_name=run_name,
        digest=rows_digest(X, y),
        caveat=None if schema is None else schema.caveat,
    )


__all__ = ["Evaluation", "Held", "Inferred", "Naming", "evaluate_report", "evaluate_table", "infer", "outcome"]
