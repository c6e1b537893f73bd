"""The steps of a classifier's `fit`: validate, encode, plan and decode (run is in
:mod:`sottovoce.estimators.fitting`).

A fit takes one of two ways.  A *training* runs a method of several rounds between sites, one run
for two classes or for softmax, else one run for each class against the rest.  An *inference*
(``inference=True``, two classes) asks for sums from which coefficients with intervals follow.  Each
way has its own rows (:class:`TrainingRows`, :class:`InferenceRows`) and public facts
(:class:`TrainingFacts`, :class:`InferenceFacts`); a plan reads the public facts alone.

*Encoded* rows are in the unit ball; a *contrast* is the class that a run for two classes tells from
the others; a *start* is a public initial model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import issparse

from ..answers.coefficients import Coefficients
from ..answers.fits import LogOdds
from ..answers.saved import SavedModel
from ..answers.training import WEIGHED, check_inference_options
from ..data.expected import expected_rows
from ..data.rows import Rows
from ..data.validation import (
    class_index_of_labels,
    classes_from_labels,
    validate_declared_classes,
    validate_initial_model,
)
from ..errors import HolderNote, InvalidInput, raise_collected_errors
from ..ledger.durable import DurableLedger
from ..ledger.memory import Ledger
from ..privacy.statement_facts import Caveat
from ..problem.task import Classification, TwoClasses, task_of_classes
from ..runs.auto_search import Choice, choose_method
from ..runs.centre import Centring, Decision, decide_centring
from ..runs.config import RunConfig
from ..runs.defaults import KNOBS
from ..runs.engine import FINISHED
from ..runs.forecast import Forecast, forecast_run
from ..runs.planned import PlannedRun, plan_run
from ..runs.registering import find_method
from ..runs.simulate import Result, Start
from ..util.plain import infinities_to_text
from ..util.progress import open_progress_teller
from ..util.typing import Any, Array, ArrayLike
from .declared import (
    Labelled,
    find_label_column,
    read_declared_labels,
    read_label_column,
    with_class_label,
)
from .encoding import NormEncoding
from .fitting import (
    NOT_SHARED,
    Planned,
    Public,
    SharedLedger,
    plan_recipe_fit,
    statement_with_assumptions,
)
from .guessing import forecast_notes, one_class_of_rows, one_class_of_synthetic_rows
from .ledgers import ledger_errors
from .notices import Note
from .own_site import site_positions
from .predicting import LinearModel
from .tables import (
    Dealt,
    Features,
    deal_rows_to_sites,
    digest_of_deal,
    norm_misfit_notes,
    read_features,
    read_row_weights,
    seed_of_class,
)
from .terms import Terms, collect_terms, max_weight_errors, norm_bound_errors, site_constants_errors

AUTO = "auto"
"""The loss that depends on the number of classes: logistic for two, softmax for more where the
method has it.
"""
LABELS_READ = "the classes were read off the rows, and epsilon does not cover that"
# Its loss is the logistic one.
_DEFAULT = RunConfig()


# Validate


@dataclass(frozen=True, kw_only=True)
class Declared:
    """Declared parameters of a classifier: all that a fit knows before it reads a row.

    Parameters
    ----------
    terms : Terms
    classes : array or None
        The estimator's own parameter, sorted; None if the schema or the rows declare classes.
    class_weight : dict or None
        Public weights of classes.
    method, loss : str
        As they were asked for.
    inference : bool
    fields : dict
        Values of :class:`RunConfig` by field.
    config : RunConfig or None
        None if a simulation reads the classes off the rows: the loss depends on their number.
    centre : bool
        Whether rows may be centred.
    free : tuple of str
        Names of the parameters that have their defaults, so that ``method="auto"`` may choose them.
    ledger : Ledger, DurableLedger or None
    cloned : bool
        Whether scikit-learn may be fitting the estimator on part of a table.
    verbose : bool or None
        Whether to report progress; None for a bar on a terminal once a fit is long.
    """

    terms: Terms
    classes: Array | None
    class_weight: Any
    method: str
    loss: str
    inference: bool
    fields: dict[str, Any]
    config: RunConfig | None
    centre: bool
    free: tuple[str, ...]
    ledger: Ledger | DurableLedger | None
    cloned: bool
    verbose: bool | int | None

    @property
    def notes(self) -> tuple[Note, ...]:
        """Notes on the declared parameters, for warnings."""
        return self.terms.notes

    def loss_for_classes(self, classes: int) -> str:
        """Return the loss's name for this number of classes."""
        if self.loss != AUTO:
            return self.loss
        known = find_method(self.method)
        if classes <= 2 or self.inference:
            return _DEFAULT.loss
        # Methods with noise inside the objective have no softmax: one class against the rest.
        if known is not None and known.objective_noise:
            return _DEFAULT.loss
        return "softmax"

    def config_for_classes(self, classes: int) -> RunConfig:
        """Return the configuration of a run for this number of classes."""
        if self.config is not None:
            return self.config
        loss = self.loss_for_classes(classes)
        if loss == "softmax" and not self.inference:
            loss = f"softmax:{classes}"
        return RunConfig.from_dict(self.fields | {"loss": loss})


def validate_classifier(estimator: Any, *, many_fits: bool) -> Declared:
    """Check all that a classifier declares, before any row is read.

    Parameters
    ----------
    estimator : ConsensusClassifier
    many_fits : bool
        Whether another clone of it was fitted before.

    Returns
    -------
    Declared

    Raises
    ------
    InvalidInput
        For what is wrong.
    """
    inference = bool(estimator.inference)
    terms = collect_terms(estimator, weighed=inference, one_row_each=inference, many_fits=many_fits)
    raise_collected_errors(
        [
            *_missing_classes_errors(estimator, terms),
            *ledger_errors(estimator.ledger, estimator.accounting, cloned=estimator._cloned),
            *site_constants_errors(terms, named=inference),
            *norm_bound_errors(estimator, terms),
            *max_weight_errors(terms),
            *_inference_errors(estimator, terms),
        ]
    )
    given = terms.knobs | estimator.get_params(deep=False)
    defaults = type(estimator).own_knobs | {"rounds": _DEFAULT.rounds}
    classes = None
    if estimator.classes is not None:
        classes = validate_declared_classes(estimator.classes)
    found = Declared(
        terms=terms,
        classes=classes,
        class_weight=_resolve_class_weight(estimator, terms),
        method=estimator.method,
        loss=estimator.loss,
        inference=inference,
        fields={"rounds": 1} | terms.fields,
        config=None,
        centre=bool(terms.knobs["centre"]),
        free=tuple(knob for knob in KNOBS if knob in given and given[knob] == defaults[knob]),
        ledger=estimator.ledger,
        cloned=estimator._cloned,
        verbose=estimator.verbose,
    )
    class_count = _declared_class_count(found)
    if class_count is None:
        return found
    return replace(found, config=found.config_for_classes(class_count))


def _missing_classes_errors(estimator: Any, terms: Terms) -> Iterator[InvalidInput]:
    """Yield an error for a release whose classes nothing declares."""
    in_schema = terms.schema is not None and terms.schema.label is not None
    if estimator.classes is None and not terms.is_simulation and not in_schema:
        rule = "must be declared: reading the classes off the rows would reveal which ones occur"
        remedy = (
            "give classes=[...] or a schema with a label; random_state=... makes a simulation, "
            "whose results must not be published"
        )
        yield InvalidInput("classes", None, rule, remedy)


def _inference_errors(estimator: Any, terms: Terms) -> Iterator[InvalidInput]:
    """Yield an error for everything declared that inference does not support."""
    if not estimator.inference:
        return
    in_schema = terms.schema is not None and terms.schema.weight is not None
    if estimator.class_weight is not None or in_schema:
        yield InvalidInput(
            "sample_weight", None, WEIGHED, "leave weights out, or use inference=False"
        )
    if not estimator.fit_intercept:
        rule = "needs an intercept"
        yield InvalidInput("inference", True, rule, "use fit_intercept=True or inference=False")
    if estimator.ledger is not None:
        rule = "cannot be used with inference=True"
        yield InvalidInput("ledger", None, rule, "leave it out, or use inference=False")


def _resolve_class_weight(estimator: Any, terms: Terms) -> Any:
    """Return the weights of classes: the estimator's or else the schema's; None without any."""
    if estimator.class_weight is None and terms.schema is not None and terms.schema.class_weight:
        return dict(terms.schema.class_weight)
    return estimator.class_weight


def _declared_class_count(found: Declared) -> int | None:
    """Return the number of declared classes; None if they are read off the rows."""
    if found.classes is not None:
        return len(found.classes)
    if found.terms.schema is None or found.terms.schema.label is None:
        return None
    task = found.terms.schema.label.task
    if not isinstance(task, Classification):
        return None
    return len(task.names)


# Encode


@dataclass(frozen=True, kw_only=True)
class LabelledRows:
    """Rows with labels, assigned to sites: what a training and an inference have in common.

    Parameters
    ----------
    features : Features
    labelled : Labelled
    dealt : Dealt
    weights : list of array, or None
        In [0, 1], one array for the rows of each site; None if rows count alike.
    caveat : Caveat
        What epsilon does not cover.
    groups : array-like (n,) or None
        The sites as `fit` was given them.
    notes : tuple of Note
    """

    features: Features
    labelled: Labelled
    dealt: Dealt
    weights: list[Array] | None
    caveat: Caveat
    groups: Any
    notes: tuple[Note, ...]


@dataclass(frozen=True)
class TrainingFacts:
    """Public facts from which a training is planned.

    Parameters
    ----------
    sites : Public
        Sizes of the sites and width of encoded rows.
    classes : int
    loss : str
    starts : tuple of Start or None
        Initial model of each run; None for zero.
    """

    sites: Public
    classes: int
    loss: str
    starts: tuple[Start | None, ...]


@dataclass(frozen=True)
class TrainingRows:
    """Rows of a training; the signed rows of each run are made from them when it starts.

    Parameters
    ----------
    public : TrainingFacts
    of : LabelledRows
    ball : array or CSR (n, d)
        Rows encoded into the unit ball.
    shared : SharedLedger
    """

    public: TrainingFacts
    of: LabelledRows
    ball: Any
    shared: SharedLedger

    @property
    def notes(self) -> tuple[Note, ...]:
        """Notes on the rows as they were read, for warnings."""
        return self.of.notes

    @property
    def caveat(self) -> Caveat:
        """What epsilon does not cover of these rows."""
        return self.of.caveat

    def rows_of_run(self, k: int) -> Rows:
        """Return the rows of run k: of all classes for softmax, else of one against the rest.

        For one against the rest, a row has the sign 1 in the k-th contrast's class and -1 outside.
        """
        label, dealt = self.of.labelled.number, self.of.dealt
        tables = [(self.ball[part], label[part]) for part in dealt.parts]
        if self.public.loss == "softmax":
            return dealt.bound_people(
                Rows.build_with_classes(tables, self.public.classes), self.of.weights
            )
        c = task_of_classes(self.public.classes).contrasts[k]
        rows = Rows.build_from_parts([(X, TwoClasses().encode(own, c)) for X, own in tables])
        return dealt.bound_people(rows, self.of.weights)


@dataclass(frozen=True)
class InferenceFacts:
    """Public facts from which an inference is planned: the sites, and the sums it asks them for."""

    sites: Public
    fit: LogOdds


@dataclass(frozen=True)
class InferenceRows:
    """Rows of an inference, in an encoding whose coefficients have names.

    Rows beyond the norm bound have smaller weights in it, and are not scaled down.
    """

    public: InferenceFacts
    of: LabelledRows
    made: Rows
    shared: SharedLedger = NOT_SHARED

    @property
    def notes(self) -> tuple[Note, ...]:
        """Notes on the rows as they were read, for warnings."""
        return self.of.notes

    @property
    def caveat(self) -> Caveat:
        """What epsilon does not cover of these rows."""
        return self.of.caveat

    def rows_of_run(self, k: int) -> Rows:
        """Return the rows; an inference is a single run."""
        return self.made


def encode_labelled_rows(
    declared: Declared,
    X: Any,
    y: Any,
    groups: Any,
    sample_weight: ArrayLike | None,
    init: tuple[ArrayLike | None, ArrayLike | None],
) -> TrainingRows | InferenceRows:
    """Read rows, assign them to sites and encode them into the unit ball.

    Parameters
    ----------
    declared : Declared
    X, y, groups, sample_weight
        As for :meth:`sottovoce.ConsensusClassifier.fit`.
    init : pair of array-like or None
        Its `coef_init` and `intercept_init`.

    Returns
    -------
    TrainingRows or InferenceRows
        They stay with their holder; their public facts are all that a plan reads.

    Raises
    ------
    InvalidInput
        For rows that do not fit what is declared; the message shows no value of them.
    """
    terms = declared.terms
    features = read_features(terms, X, sparse=True)
    labelled, caveat = _read_labels(declared, features, y)
    dealt = deal_rows_to_sites(terms, features, groups)
    loss = declared.loss_for_classes(len(labelled.names))
    starts = _encoded_starts(declared, *init, labelled, features, loss)
    if declared.inference:
        _check_inference(labelled, features, weighed=sample_weight is not None)
    weights = read_row_weights(terms, features, sample_weight).times_class_weight(
        declared.class_weight, labelled.names, labelled.number
    )
    of = LabelledRows(
        features=features,
        labelled=labelled,
        dealt=dealt,
        weights=weights.weights_at_sites(dealt.parts),
        caveat=(terms.schema_caveat, caveat, weights.caveat),
        groups=groups,
        notes=(*features.notes, *dealt.notes, *weights.notes),
    )
    if declared.inference:
        return _inference_rows(declared, of)
    ball = terms.encoding.encode_rows(features.values)
    public = Public(dealt.rows_per_site, ball.shape[1], dealt.sites, dealt.apart)
    facts = TrainingFacts(public, len(labelled.names), loss, tuple(starts))
    shared = _identify_ledger_rows(declared, of, alone=y is None and groups is None)
    return TrainingRows(facts, of, ball, shared)


def _read_labels(declared: Declared, features: Features, y: Any) -> tuple[Labelled, str | None]:
    """Return the labels, and a caveat if the classes were read off them.

    Classes are those of the estimator, else those of the schema, else (simulations) those that
    occur.
    """
    schema = declared.terms.schema
    n = len(features)
    column = find_label_column(schema, features.table, y)
    if column is None:
        # scikit-learn's checks of estimators look for these words.
        rule = f"{declared.terms.name} requires y to be passed, but the target y is None"
        raise InvalidInput("y", None, rule, "give the label of every row")
    if declared.classes is not None:
        return Labelled.from_sorted_names(
            declared.classes, class_index_of_labels(column, declared.classes, n)
        ), None
    if schema is not None and schema.label is not None:
        return read_declared_labels(schema, read_label_column(column, n)), None
    return Labelled.from_sorted_names(*classes_from_labels(column, n)), LABELS_READ


def _encoded_starts(
    declared: Declared,
    coef: ArrayLike | None,
    intercept: ArrayLike | None,
    labelled: Labelled,
    features: Features,
    loss: str,
) -> list[Start | None]:
    """Convert `coef_init` and `intercept_init` to an initial model of each run; None for zero.

    They are given in the units of X and in the order of sorted classes; a start is for encoded
    rows, in the schema's order.
    """
    encoding = declared.terms.encoding
    models = len(task_of_classes(len(labelled.names)).contrasts)
    given = validate_initial_model(
        coef, intercept, models, encoding.coefficient_count(int(features.values.shape[1]))
    )
    if given is None:
        return [None] * models
    if intercept is not None and isinstance(encoding, NormEncoding) and not encoding.intercept:
        rule = "cannot be used with fit_intercept=False, because the model has no intercept"
        raise InvalidInput("intercept_init", None, rule, "leave it out")
    vectors = encoding.model_from_units(
        labelled.from_sorted_classes(given[0]), labelled.from_sorted_classes(given[1])
    )
    if loss == "softmax":
        # Of two classes there is one contrast, and softmax has half of it for each class.
        if models == 1:
            vectors = np.concatenate([-vectors, vectors]) / 2.0
        # All classes are one model.
        vectors = vectors.reshape(1, -1)
    return [Start(vector) for vector in vectors]


def _check_inference(labelled: Labelled, features: Features, *, weighed: bool) -> None:
    """Refuse (InvalidInput) an inference with sample weights, sparse rows or not two classes."""
    if weighed:
        raise InvalidInput(
            "sample_weight", None, WEIGHED, "leave weights out, or use inference=False"
        )
    if len(labelled.names) != 2:
        raise InvalidInput("inference", True, "needs exactly two classes", "use inference=False")
    if issparse(features.values):
        remedy = "use X.toarray(), or inference=False"
        raise InvalidInput("inference", True, "needs dense rows, and X is sparse", remedy)


def _inference_rows(declared: Declared, of: LabelledRows) -> InferenceRows:
    """Encode rows for an inference: with a constant, or one for every site, and named columns."""
    features, dealt, label = of.features, of.dealt, of.labelled.number
    fit = LogOdds(dealt.layout_with_names(declared.terms, features))
    if declared.terms.schema is None:
        tables = [features.values[part] for part in dealt.parts]
    else:
        tables = [features.table.take(part) for part in dealt.parts]
    made = fit.encode_rows(tables, [TwoClasses().encode(label[part]) for part in dealt.parts])
    public = Public(made.n, made.d, dealt.sites, dealt.apart)
    return InferenceRows(InferenceFacts(public, fit), of, made)


def _identify_ledger_rows(declared: Declared, of: LabelledRows, *, alone: bool) -> SharedLedger:
    """Return the ledger with the digests or the table by which it recognises these rows.

    `alone` says that the table itself holds the labels and the sites.
    """
    deal_of_rows = None
    if isinstance(declared.ledger, Ledger):
        parts = of.dealt.parts + (of.dealt.people or [])
        deal_of_rows = digest_of_deal(of.features.values, of.labelled.number, parts)
    # The digest of a table does not cover labels or sites that were given separately.
    table = None
    if alone:
        table = of.features.table
    return SharedLedger(
        declared.ledger,
        deal=deal_of_rows,
        table=table,
        schema=declared.terms.schema,
        part_of_a_table=declared.cloned,
    )


# Plan


def plan_classifier(declared: Declared, public: TrainingFacts | InferenceFacts) -> Planned:
    """Choose what was left open and price all runs, from public facts alone; nothing is spent.

    Raises
    ------
    InvalidInput
        For a budget that cannot be met, or a ledger that cannot hold the runs.
    """
    if isinstance(public, InferenceFacts):
        config = declared.config_for_classes(2)
        check_inference_options(config)
        return plan_recipe_fit(config, public.fit.recipe, public.fit.loss, public.sites)
    _check_ledger_fits(declared, public)
    with open_progress_teller(declared.verbose) as teller:
        if declared.config_for_classes(public.classes).auto:
            teller.begin_phase("choosing a method")
        return _plan_training(declared, public)


def _check_ledger_fits(declared: Declared, public: TrainingFacts) -> None:
    """Refuse (InvalidInput) a ledger that cannot hold the runs of this fit."""
    at_random = not public.sites.apart and declared.terms.n_sites != 1
    if isinstance(declared.ledger, DurableLedger) and at_random:
        rule = "a ledger on disk needs fixed sites, and without groups rows are dealt at random"
        raise InvalidInput("groups", None, rule, "give the site of every row to fit")
    several_runs = len(task_of_classes(public.classes).contrasts) > 1 and public.loss != "softmax"
    if declared.ledger is not None and several_runs:
        rule = (
            "a shared ledger reserves one run at a time, and this loss needs one run for each class"
        )
        raise InvalidInput(
            "ledger", type(declared.ledger).__name__, rule, "leave it out, or use loss='softmax'"
        )


@dataclass(frozen=True)
class _Resolved:
    """The configuration that all runs of a training share (all but the seed), and what led to it.

    Parameters
    ----------
    config : RunConfig
    decision : Decision or None
        Whether and how rows are centred; None if that was not asked for.
    choice : Choice or None
        What ``method="auto"`` picked.
    forecast : Forecast or None
        Errors on synthetic rows.
    """

    config: RunConfig
    decision: Decision | None
    choice: Choice | None
    forecast: Forecast | None

    @property
    def centring(self) -> Centring | None:
        """How rows are centred; None if they are not."""
        return _centring_from_decision(self.decision)


def _centring_from_decision(decision: Decision | None) -> Centring | None:
    """Return how rows are centred; None if they are not."""
    if decision is None:
        return None
    return decision.centring


def _plan_training(declared: Declared, public: TrainingFacts) -> Planned:
    """Plan one run for two classes or for softmax, otherwise one for each class against the rest.

    All have one configuration, but for the seed.  Labels name the runs in a ledger in memory.
    """
    K, terms = public.classes, declared.terms
    contrasts = task_of_classes(K).contrasts
    labels = [f"class {c} of {K}" for c in contrasts]
    if public.loss == "softmax":
        contrasts, labels = (1,), [f"{K} classes"]
    # Each row takes part in the run of every class, so these copies share the budget.
    seed = seed_of_class(terms.seed, contrasts[0])
    first = replace(declared.config_for_classes(K), seed=seed, copies=len(contrasts))
    found = _resolve_config(declared, public, first)
    runs: list[PlannedRun] = []
    says: list[str] = []
    for c, start, label in zip(contrasts, public.starts, labels, strict=False):
        config = replace(found.config, seed=seed_of_class(terms.seed, c))
        runs.append(
            plan_run(
                config, public.sites.n, _model_entries(public), start=start, centre=found.centring
            )
        )
        says.append(f"{config.method}, {label}")
    return Planned(
        tuple(runs),
        labels=tuple(labels),
        says=tuple(says),
        choice=found.choice,
        decision=found.decision,
        forecast=found.forecast,
        notes=forecast_notes(found.forecast, terms),
    )


def _model_entries(public: TrainingFacts) -> int:
    """Return the length of a model: columns of an encoded row, times the classes for softmax."""
    if public.loss == "softmax":
        return public.sites.d * public.classes
    return public.sites.d


def _decide_centring(
    declared: Declared, public: TrainingFacts, config: RunConfig
) -> Decision | None:
    """Decide whether and how a run centres its rows; None if that is not asked for."""
    if not declared.centre:
        return None
    width = public.sites.d
    return decide_centring(
        config, public.sites.n, width, declared.terms.encoding.centring_frame(width)
    )


def _resolve_config(declared: Declared, public: TrainingFacts, config: RunConfig) -> _Resolved:
    """Choose the method and its parameters for "auto", and forecast the run's error.

    Any other configuration stays as it is.  Choice and forecast use public facts and synthetic
    rows.
    """
    decision = _decide_centring(declared, public, config)
    centre = _centring_from_decision(decision)
    n, d = public.sites.n[:, 0], _model_entries(public)
    # Sites that were given, and not made at random, are taken to differ in their labels.
    where: dict[str, Any] = {"heterogeneity": "iid", "expected": None}
    if public.sites.apart:
        where["heterogeneity"] = "label"
    if declared.terms.schema is not None:
        where["expected"] = expected_rows(declared.terms.schema)
    choice = None
    if config.auto:
        choice = choose_method(config, n, d, free=declared.free, centre=centre, **where)
        config = replace(choice.config, seed=config.seed)
        # Decided again, now that the method is known: some cannot run on centred rows.
        decision = _decide_centring(declared, public, config)
    rehearsed = config
    if centre is not None:
        rehearsed = centre.config_for_method(config)
    return _Resolved(config, decision, choice, forecast_run(rehearsed, n, d, **where))


# Decode


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A fitted classifier; all of it but the notes follows from what was released.

    Parameters
    ----------
    model : LinearModel
        The average over sites, in the units of the columns, by the sorted classes.
    site_coef, site_intercept : array
        Of every site, in the shapes of :class:`sottovoce.ConsensusClassifier`.
    classes, sites : array
        Sorted labels, and identifiers of the sites.
    table : Coefficients or None
        With intervals, after an inference.
    result : Result
        The last run.
    whole : bool
        Whether it is the only run, and so the whole model.
    loss : str
    n_iter, stopped, max_grad_norm
        Of the last run.
    planned : Planned
    notes : tuple of Note
    """

    model: LinearModel
    site_coef: Array
    site_intercept: Array
    classes: Array
    sites: Any
    table: Coefficients | None
    result: Result
    whole: bool
    loss: str
    n_iter: int
    stopped: str
    max_grad_norm: float
    planned: Planned
    notes: tuple[Note, ...]


def decode_classifier(
    declared: Declared,
    encoded: TrainingRows | InferenceRows,
    planned: Planned,
    results: tuple[Result, ...],
) -> Fitted:
    """Convert the models of encoded rows to the units of the columns, with their privacy statement.

    Parameters
    ----------
    declared : Declared
    encoded : TrainingRows or InferenceRows
        The fitted rows, from which notes for their holder are counted.
    planned : Planned
        The runs as they were priced.
    results : tuple of Result
        Of each run: one for two classes, softmax and inference, otherwise one for each class.

    Returns
    -------
    Fitted
        Classes are sorted, as scikit-learn wants them.
    """
    result = replace(
        results[-1],
        statement=statement_with_assumptions(results[-1].statement, declared.terms.rests),
    )
    if isinstance(encoded, InferenceRows):
        fitted = _decode_inference(declared, encoded, planned, result)
    else:
        fitted = _decode_training(declared, encoded, planned, (*results[:-1], result))
    return replace(fitted, notes=_closing_notes(declared, encoded.of, fitted.model))


def _decode_training(
    declared: Declared, encoded: TrainingRows, planned: Planned, results: tuple[Result, ...]
) -> Fitted:
    """Convert the runs' models of encoded rows to coefficients of the columns, by sorted class.

    There is one model for two classes, and otherwise one for each class.
    """
    labelled, last = encoded.of.labelled, results[-1]
    vectors, by_site = _models_and_site_models(encoded.public, results)
    encoding = declared.terms.encoding
    average_and_sites = np.concatenate([vectors[None], by_site])
    coef, intercept = encoding.model_to_units(average_and_sites.reshape(-1, vectors.shape[-1]))
    shape = (1 + len(by_site), len(vectors))
    coef = labelled.to_sorted_classes(coef.reshape(*shape, -1), axis=1)
    intercept = labelled.to_sorted_classes(intercept.reshape(shape), axis=1)
    two_classes = len(vectors) == 1
    answered = _model_of_raw_columns(declared, labelled, vectors, results)
    order = None
    if answered is not None:
        order = labelled.order
    # The first is the average over sites, and the others are the sites' own.
    site_coef, site_intercept = coef[1:], intercept[1:]
    if two_classes:
        site_coef, site_intercept = coef[1:, 0], intercept[1:, 0]
    return Fitted(
        model=LinearModel(coef[0], intercept[0], answered, order),
        site_coef=site_coef,
        site_intercept=site_intercept,
        classes=labelled.names[labelled.order],
        sites=encoded.of.dealt.sites,
        table=None,
        result=last,
        whole=len(results) == 1,
        loss=encoded.public.loss,
        n_iter=last.rounds,
        stopped=last.stopped,
        max_grad_norm=last.config.gradient_cap,
        planned=planned,
        notes=(),
    )


def _models_and_site_models(
    public: TrainingFacts, results: tuple[Result, ...]
) -> tuple[Array, Array]:
    """Return models of encoded rows, (models, d), and those of every site, (sites, models, d)."""
    if public.loss != "softmax":
        vectors = np.concatenate([result.consensus for result in results])
        return vectors, np.stack([result.models[0] for result in results], axis=1)
    (result,), K = results, public.classes
    # The average first, then the sites; each is one vector of K blocks of d entries.
    blocks = np.concatenate([result.consensus, result.models[0]]).reshape(-1, K, public.sites.d)
    blocks = task_of_classes(K).from_softmax(blocks)
    average, by_site = blocks[0], blocks[1:]
    return average, by_site


def _model_of_raw_columns(
    declared: Declared, labelled: Labelled, vectors: Array, results: tuple[Result, ...]
) -> SavedModel | None:
    """Return the model with the schema that encodes raw columns for it; None without a schema."""
    schema = declared.terms.schema
    if schema is None:
        return None
    if schema.label is None or declared.classes is not None:
        schema = with_class_label(schema, labelled.names)
    config = results[0].config
    # A move is the centring of a run, after which some rows were scaled down.  Several runs have
    # one each, so none describes the rows of all, and the model is linear for every row.
    move = None
    if len(results) == 1 and results[0].move is not None:
        move = results[0].move.for_replicate(0)
    return SavedModel(
        None,
        vectors.ravel(),
        np.ones(1),
        schema=schema,
        loss=config.loss,
        capped=config.gradient_cap < math.inf,
        move=move,
    )


def _decode_inference(
    declared: Declared, encoded: InferenceRows, planned: Planned, result: Result
) -> Fitted:
    """Convert the outcome of an inference to coefficients and a table with intervals."""
    schema = declared.terms.schema
    labelled, fit = encoded.of.labelled, encoded.public.fit
    naming = fit.layout.naming
    sites = len(encoded.of.dealt.parts)
    found = fit.read_outcome(result.outcome, planned.runs[0].config.delta)
    if schema is not None and not schema.label:
        schema = with_class_label(schema, labelled.names)
    answered = fit.layout.to_saved_model(found.model, schema, infinities_to_text(found.plain))
    in_units = naming.into_units @ found.model
    # Slopes stand first, and after them the constants.
    slope_count = int(np.sum(naming.constant == 0))
    slopes, constants = in_units[:slope_count], in_units[slope_count:]
    coef = labelled.to_sorted_classes(slopes[None])
    # The constants of sites are averaged by the shares of their rows.
    intercept = labelled.to_sorted_classes(np.atleast_1d(constants @ answered.shares))
    site_intercept = np.repeat(intercept, sites)
    if naming.sites:
        site_intercept = labelled.to_sorted_classes(constants)
    return Fitted(
        model=LinearModel(coef, intercept, answered, labelled.order),
        site_coef=np.repeat(coef, sites, axis=0),
        site_intercept=site_intercept,
        classes=labelled.names[labelled.order],
        sites=encoded.of.dealt.sites,
        table=found.table,
        result=result,
        whole=True,
        loss=declared.loss_for_classes(2),
        n_iter=1,
        stopped=FINISHED,
        max_grad_norm=math.inf,
        planned=planned,
        notes=(),
    )


def _closing_notes(declared: Declared, of: LabelledRows, model: LinearModel) -> tuple[Note, ...]:
    """Collect notes on a fitted model: rows that did not fit, and a single class for all rows."""
    terms, label = declared.terms, of.labelled.number
    undeclared: tuple[Note, ...] = ()
    undeclared_rows = int(np.sum(label < 0))
    if undeclared_rows:
        what = f"{undeclared_rows} of {len(label)} rows have an undeclared label"
        text = f"{what} and were replaced by rows of zeros (for the data's holder only)"
        undeclared = (Note("labels", text, HolderNote),)
    alike: tuple[Note, ...] = ()
    if terms.is_simulation:
        alike = one_class_of_rows(_margins_of_fitted_rows(terms, of, model))
    elif not declared.inference:
        alike = one_class_of_synthetic_rows(model, terms)
    return (*norm_misfit_notes(terms, of.features), *undeclared, *alike)


def _margins_of_fitted_rows(terms: Terms, of: LabelledRows, model: LinearModel) -> Array:
    """Compute margins of the rows that were fitted, (n,) or (n, K)."""
    if model.answered is None:
        # A warning of overflow would reveal a long row.
        with np.errstate(all="ignore"):
            return model.linear_margins(of.features.values)
    rows = of.features.rows_for_model(terms.schema)
    return model.margins(rows, site_positions(model.answered, rows, of.groups))
