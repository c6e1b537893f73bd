"""``sottovoce train`` with ``--inference`` or ``--evaluation``: coefficients with intervals, and
private evaluation on held-out (test) rows.

:func:`infer` loads a table, partitions its training rows among simulated sites
(:class:`DealtTable`), runs the recipe of a fit (:mod:`sottovoce.answers.fits`) and evaluates the
model; its result is an :class:`Inferred`.  :func:`evaluate_report` evaluates the model of a run by
rounds.  Results separate what was *released*, for everybody, from what is *held back*: numbers
without noise, for the data owner only.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from .. import data
from ..data.person import first_rows_of_each
from ..data.rows import Rows
from ..data.schema import Schema, describe_unfit_rows
from ..data.values import sites_named_in_column
from ..errors import InvalidInput
from ..ledger.durable import DurableLedger
from ..privacy.statement import Statement
from ..problem.task import EventRate, Task, TwoClasses
from ..runs.config import RunConfig
from ..runs.relations import with_other_relation
from ..runs.simulate import Result, simulate
from ..runs.training import (
    Report,
    TrainConfig,
    deal_rows_to_nodes,
    digest_of_raw_table,
    notes_on_dealing,
    with_partition,
)
from ..util.pages import describe_versions
from ..util.plain import digest_public_values, infinities_to_text, merge_held_back_figures
from ..util.typing import Any, Array, IntArray
from .coefficients import Coefficients
from .evaluation import Held, exact_metrics
from .fits import Fit, Layout, LogOdds, LogRates, check_product_memory, sites_with_constants
from .inference import Estimates, check_run_is_inference
from .judging import Scored, judge_for_task
from .own_site import WITHOUT_SITE, note_on_unknown_sites
from .saved import SavedModel
from .terms import label_in_words, rows_of_columns

ONE_EACH = "these results count rows, so only the first row of each person in the table was used"
ONE_CONSTANT = (
    "intervals assume independent rows: with one constant for all sites they are too narrow if "
    "rows of the same site are alike"
)
WEIGHED = "intervals assume rows of equal weight: with weights the standard errors would be wrong"


@dataclass(frozen=True, kw_only=True)
class TableFit(ABC):
    """A model with named coefficients, trained on a table and scored on test rows."""

    config: TrainConfig
    answered: SavedModel  # the model, ready to be saved
    statement: Statement
    asked: list[dict[str, Any]]  # name and share of the budget of every release
    exact: dict[str, float]  # metrics on the test rows without noise, for the data owner only
    sizes: Array  # training rows of every site  (sites,)
    sites: tuple[str, ...]  # names of the sites
    n_test: int  # held-out people or rows, whatever their label
    evaluation: Any = None  # private evaluation on the test rows, if any
    notes: tuple[str, ...] = ()
    holder_notes: tuple[str, ...] = ()  # the notes that count rows, for the data owner only
    seconds: float = 0.0  # duration

    kind: ClassVar[str]  # "method" in reports

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind!r}, {len(self.sizes)} nodes, {self.statement!r})"

    def _repr_html_(self) -> str:
        return self.statement._repr_html_()

    @abstractmethod
    def released_entries(self) -> dict[str, Any]:
        """Return the entries of :meth:`released` that this kind of fit adds, as plain data."""

    @abstractmethod
    def exact_entries(self) -> dict[str, Any]:
        """Return the entries of :meth:`held_back` that this kind of fit adds, without noise."""

    def to_dict(self) -> dict[str, Any]:
        """Return released and held-back results as plain data; infinity is the text ``inf``."""
        return merge_held_back_figures(self.released(), self.held_back())

    def held_back(self) -> dict[str, Any]:
        """Return results computed without noise, as plain data: for the data owner only."""
        found = self.exact_entries() | {
            "exact": self.exact,
            "notes": list(self.notes),
            "seconds": self.seconds,
        }
        if self.evaluation is not None:
            found["evaluation"] = self.evaluation.held_back()
        return {key: infinities_to_text(value) for key, value in found.items()}

    def released(self) -> dict[str, Any]:
        """Return the public facts of the run and the released results, as plain data."""
        evaluation = None
        if self.evaluation is not None:
            evaluation = self.evaluation.released()
        report = {
            "method": self.kind,
            "data": self.config.data,
            "nodes": len(self.sizes),
            "partition": self.config.partition,
            "n_train": self.sizes.astype(int).tolist(),
            "sites": list(self.sites),
            "n_test": self.n_test,
            "features": len(self.answered.model),
            "label": label_in_words(self.answered.schema),
            "asked": self.asked,
            "versions": describe_versions("numpy", "scipy"),
            **self.released_entries(),
            "evaluation": evaluation,
            "privacy": self.statement.to_dict(),
            "notes": [note for note in self.notes if note not in self.holder_notes],
            "config": self.config.run.to_dict(),
        }
        return {key: infinities_to_text(value) for key, value in report.items()}

    def with_own_record(self) -> Self:
        """Return a copy whose saved model has the released results as its record."""
        return replace(self, answered=replace(self.answered, record=self.released()))


@dataclass(frozen=True, kw_only=True, repr=False)
class Inferred(TableFit):
    """Coefficients with intervals; those of the first replicate."""

    coefficients: Coefficients  # the table
    estimates: Estimates  # outcome of the recipe, of all replicates

    kind: ClassVar[str] = "inference"

    def released_entries(self) -> dict[str, Any]:
        auc = brier = None
        if self.evaluation is not None:
            of_all_rows = self.evaluation.quality[""]
            auc, brier = of_all_rows.auc.value, of_all_rows.brier.value
        return {
            **self.coefficients.to_plain_data(),
            "forecast": {},  # a plan's forecast; after a run the table itself has requirements
            "auc": auc,
            "brier": brier,
        }

    def exact_entries(self) -> dict[str, Any]:
        found: dict[str, Any] = {"test_error": None}
        if self.exact:
            found["test_error"] = 1.0 - self.exact["accuracy"]
        # With a private evaluation AUC and Brier score are released: see `released_entries`.
        if self.evaluation is None:
            found |= {"auc": self.exact.get("auc"), "brier": self.exact.get("brier")}
        return found


@dataclass(frozen=True)
class DealtTable:
    """A data set with its training rows partitioned among sites, and their encoding."""

    config: TrainConfig
    dataset: data.Dataset
    layout: Layout
    tables: list[Any]  # of every site: raw columns, or encoded rows without a schema
    parts: list[IntArray]  # training rows of every site
    label: str  # configuration on which the partition depends, for a ledger on disk
    sites: tuple[str, ...]  # names of all sites

    @property
    def test(self) -> Any:
        """Test rows: raw columns, or encoded rows without a schema."""
        if self.dataset.schema is None:
            return self.dataset.X_test
        return self.dataset.test_columns

    @classmethod
    def partition_rows(
        cls, config: TrainConfig, dataset: data.Dataset, asked: bool | None
    ) -> DealtTable:
        """Partition the training rows of a data set among sites, and derive their encoding.

        Parameters
        ----------
        config : TrainConfig
            Partition and run.
        dataset : Dataset
            Training and test rows.
        asked : bool or None
            Whether sites have constants of their own; None for the rule of
            :func:`sites_with_constants`.

        Returns
        -------
        DealtTable

        Raises
        ------
        InvalidInput
            If the sites' constants make the products of columns too large for memory.
        """
        config = with_partition(
            replace(config, run=with_one_row_each(config.run, dataset.schema)), dataset
        )
        parts = deal_rows_to_nodes(config, dataset)
        if dataset.people is not None:
            # Answers are priced per row, and neighbouring tables differ in one person: so one row
            # of each person is used.
            parts = [part[first_rows_of_each(dataset.people[part], 1)] for part in parts]
        if isinstance(dataset.task, EventRate):
            check_rates_have_one_constant(asked)
            asked = False
        partition = config.partition or ""
        at_random = partition == "iid"
        names = names_of_sites(partition, dataset.train_columns, parts)
        constants = sites_with_constants(names, at_random=at_random, asked=asked)
        check_product_memory(len(constants), dataset.n_features)
        plain = [f"x{j}" for j in range(dataset.n_features)]
        sizes = [len(part) for part in parts]
        column = _site_column(partition)
        layout = Layout.from_schema(dataset.schema, plain, 1.0, sizes, constants, column)
        tables: list[Any]
        if dataset.schema is None:
            tables = [dataset.X_train[part] for part in parts]
        else:
            tables = [rows_of_columns(dataset.train_columns, part) for part in parts]
        own = asked
        if own is None:
            own = not at_random
        label = (
            f"{config.data} {config.schema} {config.partition} {config.sizes} "
            f"{config.test_share} {own}"
        )
        return cls(config, dataset, layout, tables, parts, label, names)

    def run_recipe(
        self,
        fit: Fit,
        rows: Rows,
        ledger: DurableLedger | None,
        run_name: str | None,
        checkpoint: str | Path | None,
    ) -> Result:
        """Run the recipe of a fit on the training rows.

        Parameters
        ----------
        fit : Fit
            Its recipe and its loss are used.
        rows : Rows
            The training rows of all sites, in the encoding of the fit.
        ledger : DurableLedger or None
            A ledger on disk that the run is charged to.
        run_name : str or None
            Name of the run in that ledger.
        checkpoint : path or None
            File from which an interrupted run resumes.

        Returns
        -------
        Result
            With a statement for the other neighbouring relation, too.
        """
        result = simulate(
            self.config.run,
            rows,
            method=fit.recipe,
            loss=fit.loss,
            ledger=ledger,
            run_name=run_name,
            label=self.label,
            caveat=self.dataset.caveat,
            checkpoint=checkpoint,
            digest=digest_of_raw_table(self.config, self.dataset.schema, len(self.parts), ledger),
        )
        return with_other_relation(result)

    def site_indices(self, model: SavedModel) -> IntArray | None:
        """Return the index of each test row's site in the model, (n,); None with one constant."""
        return model.site_indices(self.test, self.dataset.test_columns.get(model.site or ""))

    def margins(self, model: SavedModel) -> Array:
        """Compute the model's margins of the test rows, each with its own site's constant, (n,)."""
        if not len(self.dataset.y_test):
            return np.empty(0)
        return model.margins(self.test, where=self.site_indices(model))

    def evaluate_privately(self, held: Held | None, model: SavedModel) -> Any:
        """Evaluate a model privately on the test rows, divided among the sites.

        None without options `held` of an evaluation.
        """
        if held is None:
            return None
        # Margins are appended as the last column, so that they are selected with their rows.
        features = np.hstack(
            [self.layout.naming.encode_with_one_constant(self.test), self.margins(model)[:, None]]
        )
        features, y = self.dataset.all_held_out(features)
        read = indices_of_rows_read(len(y), self.dataset.held_people)
        X, margins = features[read, :-1], features[read, -1]
        scored = Scored(margins, model.digest, y[read], X)
        judge = judge_for_task(self.dataset.task, held, self.layout.naming.schema)
        return judge.run_evaluation(
            scored, self.config.run, len(self.parts), caveat=self.dataset.caveat
        )

    def fields_of_fit(
        self, result: Result, started: float, model: SavedModel, *, intervals: bool = True
    ) -> dict[str, Any]:
        """Collect the fields that every :class:`TableFit` takes from its run.

        Parameters
        ----------
        result : Result
            The run of the recipe.
        started : float
            ``time.perf_counter()`` at the start, in seconds.
        model : SavedModel
            The model that it gave.
        intervals : bool
            Whether the fit has confidence intervals, so that one constant for real sites is noted.

        Returns
        -------
        dict
            Keyword arguments of :class:`TableFit`.
        """
        counted = describe_unfit_rows(self.dataset.clipped, shortened=False)
        where = self.site_indices(model)
        notes = [
            *self.dataset.notes,
            *notes_on_dealing(self.config, self.dataset, len(self.sites)),
        ]
        if self.dataset.people is not None:
            notes.append(ONE_EACH)
        real_sites = _site_column(self.config.partition or "") is not None and len(self.sites) > 1
        if intervals and real_sites and not self.layout.naming.sites:
            notes.append(ONE_CONSTANT)
        if where is not None:
            if len(where) and model.site is None:
                notes.append(WITHOUT_SITE)
            else:
                others = note_on_unknown_sites(where)
                if others is not None:
                    counted = [*counted, f"held out: {others}"]
        return {
            "config": self.config,
            "statement": result.statement,
            "asked": result.algorithm["asked"],
            "sizes": self.layout.sizes,
            "sites": self.sites,
            "n_test": self.dataset.n_units_held_out,
            "notes": (*notes, *counted),
            "holder_notes": tuple(counted),
            "answered": model,
            "seconds": time.perf_counter() - started,
        }


def check_rates_have_one_constant(asked: bool | None) -> None:
    """Refuse constants of sites where intervals of time have theirs."""
    if asked:
        rule = "has no meaning for events with times, or counts, whose rates all sites share"
        raise InvalidInput("site_constants", True, rule, "declare the site as a column")


def _site_column(partition: str) -> str | None:
    """Return the column of a partition ``"site:<column>"``; None for any other partition."""
    kind, separator, column = partition.partition(":")
    if kind == "site" and separator:
        return column
    return None


def prepared_table(
    config: TrainConfig,
    kind: type[Task] | tuple[type[Task], ...],
    refusal: InvalidInput,
    held: Held | None,
    site_constants: bool | None,
    ledger: DurableLedger | None,
    *,
    weights: bool = False,
) -> DealtTable:
    """Load a table, partition its training rows, and check its label and the evaluation.

    Parameters
    ----------
    config : TrainConfig
    kind : type of Task, or several
        The task that the label must declare.
    refusal : InvalidInput
        Raised if the label declares another task.
    held : Held or None
        The evaluation to check; None for none.
    site_constants : bool or None
        As for :func:`infer`.
    ledger : DurableLedger or None
        The training rows' ledger on disk.
    weights : bool
        Whether row weights are allowed.

    Returns
    -------
    DealtTable

    Raises
    ------
    InvalidInput
        `refusal`, weights that are not allowed, or an evaluation that cannot be asked.
    """
    dataset = data.load(config.data, schema=config.schema, test_share=config.test_share)
    if not isinstance(dataset.task, kind):
        raise refusal
    if dataset.weights is not None and not weights:
        raise InvalidInput(
            "weight", None, WEIGHED, "leave weight and class_weight out, or train without inference"
        )
    dealt = DealtTable.partition_rows(config, dataset, site_constants)
    check_evaluation(held, dataset, config.run, len(dealt.parts), ledger=ledger)
    return dealt


def infer(
    config: TrainConfig,
    *,
    held: Held | None = None,
    site_constants: bool | None = None,
    ledger: DurableLedger | None = None,
    run_name: str | None = None,
    checkpoint: str | Path | None = None,
) -> Inferred:
    """Estimate coefficients with confidence intervals from a table, and score the model.

    The table is loaded, its training rows are partitioned among sites, a recipe is run on them, and
    the model is scored on the test rows.  The recipe is that of :mod:`sottovoce.answers.inference`
    for two classes, and of :mod:`sottovoce.answers.rates` for events with times and for counts.

    Parameters
    ----------
    config : TrainConfig
        Data, schema, partition and run.  The run has ``method="auto"`` and the logistic loss:
        inference takes Newton steps of its own and spends all of the budget on them.
    held : Held, optional
        Evaluation of the test rows, with an epsilon of its own; None for no private evaluation.
    site_constants : bool, optional
        Whether every site has a constant (intercept) of its own.  None: yes, unless rows are
        partitioned at random.
    ledger : DurableLedger, optional
        Ledger on disk of the training rows; not possible together with `held`.
    run_name : str, optional
        Name of the run in that ledger.
    checkpoint : path, optional
        File from which an interrupted run resumes; see
        :func:`sottovoce.runs.simulate.simulate`.

    Returns
    -------
    Inferred
        Coefficients, saved model, evaluation and privacy statement of the first replicate.

    Raises
    ------
    InvalidInput
        Before anything is spent: the label has not two classes, rows have weights, or an option of
        the run, of its start or of the evaluation does not fit inference.

    Guarantee
    ---------
    Training rows enter the model and the coefficients only through the Gaussian releases that
    ``asked`` lists, each priced by the event of its query.  Relation, unit, epsilon and delta are
    those of ``statement``; of every person at most one row is read.  ``exact_metrics`` and what
    :meth:`TableFit.held_back` returns are computed without noise, for the data owner only.

    Examples
    --------
    A simulation in which each value of a column is a site::

        run = RunConfig(method="auto", epsilon=1.0, delta=1e-5)
        config = TrainConfig(run, "rows.csv", schema="clinic.toml", partition="site:ward")
        print(infer(config, held=Held(0.5)).coefficients)
    """
    started = time.perf_counter()
    check_inference_options(config.run, config)
    refusal = InvalidInput(
        "label",
        None,
        "inference needs a label with two classes, a number, events with times, or counts",
        "declare one of them in the schema",
    )
    dealt = prepared_table(config, (TwoClasses, EventRate), refusal, held, site_constants, ledger)
    dataset = dealt.dataset
    fit = fit_of_task(dealt, config.run)
    # Everything below reads the training rows through the releases of the recipe alone.
    rows = fit.encode_rows(dealt.tables, [dataset.y_train[part] for part in dealt.parts])
    result = dealt.run_recipe(fit, rows, ledger, run_name, checkpoint)
    found = fit.read_outcome(result.outcome, config.run.delta)
    answered = dealt.layout.to_saved_model(found.model, dataset.schema)
    quality = dict[str, float]()
    if len(dataset.y_test) and isinstance(dataset.task, TwoClasses):
        quality = exact_metrics(dealt.margins(answered), dataset.y_test)
    evaluation = dealt.evaluate_privately(held, answered)
    assert found.table is not None
    return Inferred(
        **dealt.fields_of_fit(result, started, answered),
        exact=quality,
        evaluation=evaluation,
        coefficients=found.table,
        estimates=result.outcome,
    ).with_own_record()


def fit_of_task(dealt: DealtTable, run: RunConfig) -> LogOdds | LogRates:
    """Return the fit with intervals for the label of a table."""
    task = dealt.dataset.task
    if isinstance(task, EventRate):
        return LogRates(dealt.layout, task=task, noisy=run.budgeted)
    return LogOdds(dealt.layout)


def with_one_row_each(run: RunConfig, schema: Schema | None) -> RunConfig:
    """Return the configuration with one row for each person, if the schema declares persons."""
    if schema is None or schema.person is None:
        return run
    return replace(run, rows_per_person=1)


def indices_of_rows_read(n: int, people: IntArray | None) -> IntArray:
    """Return the indices of the rows that are evaluated: the first of each person, else all n.

    `people`, (n,), are numbers of persons.  Rows are selected before anything is computed from
    them, so that further rows of a person cannot change anything.
    """
    if people is None:
        return np.arange(n)
    return np.flatnonzero(first_rows_of_each(people, 1))


def names_of_sites(partition: str, columns: Any, parts: Sequence[IntArray]) -> tuple[str, ...]:
    """Return the sites' names: canonical values of the site column, or the sites' numbers.

    The raw spelling of a row is not used: names are published, and how a row spells its site is
    private.

    Parameters
    ----------
    partition : str
        ``"site:<column>"``, or any other partition.
    columns : mapping of str to array (n,)
        Raw columns of the training rows.
    parts : sequence of int arrays
        Training rows of every site.

    Returns
    -------
    tuple of str
    """
    kind, _, name = partition.partition(":")
    if kind == "site":
        return tuple(sites_named_in_column(columns[name])[0])
    return tuple(f"site {i}" for i in range(len(parts)))


def check_evaluation(
    held: Held | None,
    dataset: data.Dataset,
    run: RunConfig,
    sites: int = 1,
    *,
    ledger: DurableLedger | None = None,
) -> None:
    """Check that an evaluation can be asked, before the training spends anything.

    Parameters
    ----------
    held : Held or None
        Nothing is checked for None.
    dataset : Dataset
    run : RunConfig
        The training run, whose relation, delta and trust the evaluation has.
    sites : int
        Number of sites among which the test rows are divided.
    ledger : DurableLedger, optional
        The training rows' ledger: refused, as held-out rows have a budget of their own.

    Raises
    ------
    InvalidInput
        With a `ledger`, without test rows, with fewer of them (or of their people) than sites, or
        if the evaluation does not fit the label.
    """
    if held is None:
        return
    if ledger is not None:
        rule = (
            "the ledger belongs to the training rows, and held-out rows have a budget of their own"
        )
        raise InvalidInput(
            "evaluation", held.epsilon, rule, "run `sottovoce evaluate` with their own ledger"
        )
    if not dataset.n_units_held_out:
        raise InvalidInput(
            "evaluation", held.epsilon, "there are no test rows to evaluate on", "give a test_share"
        )
    if dataset.n_units_held_out < sites:
        counted = "test rows"
        if dataset.held_people is not None:
            counted = "people with test rows"
        rule = f"there are {dataset.n_units_held_out} {counted} for {sites} sites"
        raise InvalidInput("evaluation", held.epsilon, rule, "give a larger test_share")
    judge_for_task(dataset.task, held, dataset.schema).check_before_spending(run)


def check_inference_options(run: RunConfig, config: TrainConfig | None = None) -> None:
    """Refuse options that inference does not have; InvalidInput."""
    check_run_is_inference(run)
    if config is not None and (config.start or config.public or config.public_share):
        raise InvalidInput(
            "start",
            None,
            "inference chooses its own start from a noisy count of positives",
            "leave start and public data out",
        )


def evaluate_report(report: Report, held: Held) -> Any:
    """Evaluate the first replicate's average model of a run by rounds on its test rows.

    Parameters
    ----------
    report : Report
    held : Held
        What is asked, and its epsilon.

    Returns
    -------
    Evaluation, ClassEvaluation or NumberEvaluation
        For two classes, several classes, or a number.

    Raises
    ------
    InvalidInput
        As :func:`check_evaluation`.
    """
    dataset, result, run = report.dataset, report.result, report.config.run
    check_evaluation(held, dataset, run)
    judge = judge_for_task(dataset.task, held, dataset.schema)
    w = result.consensus[0]
    X, y = dataset.all_held_out(dataset.X_test)
    read = indices_of_rows_read(len(y), dataset.held_people)
    X, y = X[read], y[read]
    if result.move is None:
        model, rows = digest_public_values(w), X
    else:
        # A run that moves rows trains on moved ones, so its model is scored on moved ones.
        move = result.move.for_replicate(0)
        model, rows = digest_public_values(w, move.digest), move.shorten_rows(X)
    scored = Scored(judge.compute_margins(w, rows), model, y, X)
    run = with_one_row_each(run, dataset.schema)
    return judge.run_evaluation(scored, run, result.facts.n_nodes, caveat=dataset.caveat)


__all__ = ["Held", "Inferred", "evaluate_report", "infer"]
