"""The steps of a survival model's `fit`: validate, encode, plan and decode (run is in
:mod:`sottovoce.estimators.fitting`).

Each person becomes a row for every interval that they enter
(:mod:`sottovoce.estimators.hazard_rows`); a life table and Newton steps are asked of these rows
(:class:`sottovoce.answers.hazards.HazardSteps`), so that a person's rows together cost what one row
costs (docs/privacy/survival.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..answers.coefficients import Coefficients
from ..answers.fits import LogRates
from ..answers.hazards import Hazards, HazardSteps
from ..answers.inference import UNSURE, models_for_predictions
from ..answers.terms import Naming
from ..data.follow_up import (
    find_leaving_intervals,
    read_event_marks,
    read_survival_times,
)
from ..data.frames import read_frame
from ..data.rows import Rows
from ..data.schema import Schema
from ..data.table import Table
from ..data.validation import run_without_data_in_errors
from ..errors import HolderNote, InvalidInput, PublicNote, SchemaError, raise_collected_errors
from ..privacy.statement import with_further_facts
from ..privacy.statement_facts import Unit
from ..problem.clipped import clip_gradients
from ..problem.losses import Logistic
from ..problem.task import EventRate
from ..runs.config import MOST_ROUNDS, TRUSTED, RunConfig
from ..runs.simulate import Result
from ..util.typing import Any, Array
from .declared import coefficients_in_units
from .encoding import SLACK
from .fitting import AskedRows, Planned, Public, plan_recipe_fit, statement_with_assumptions
from .hazard_rows import (
    COARSE,
    FINE,
    SHARE,
    expand_to_interval_rows,
    person_weight,
)
from .notices import Note
from .tables import Dealt, Features, deal_rows_to_sites, norm_misfit_notes, read_features
from .terms import Terms, collect_terms, norm_bound_errors

MOST_STEPS = 25
"""Least number of Newton steps of a fit without noise, where steps cost nothing; the last ones
then move nothing.
"""


# Validate


@dataclass(frozen=True, kw_only=True)
class Declared:
    """Declared parameters of a survival model: all that a fit knows before it reads a row.

    Parameters
    ----------
    terms : Terms
    edges : array (m + 1,)
        Public times between m intervals, increasing.
    event_code
        The value that means the event; None for 1 and truth values.
    config : RunConfig
    recipe : HazardSteps
        The list of all releases, unless `inference` is asked for.
    inference : bool
        Whether hazard ratios with intervals are estimated, by :class:`LogRates`.
    """

    terms: Terms
    edges: Array
    event_code: Any
    config: RunConfig
    recipe: HazardSteps
    inference: bool = False

    @property
    def notes(self) -> tuple[Note, ...]:
        """Notes on the declared parameters, for warnings."""
        return self.terms.notes

    @property
    def interval_count(self) -> int:
        """Number m of intervals between the edges."""
        return len(self.edges) - 1


def validate_hazards(estimator: Any, *, many_fits: bool) -> Declared:
    """Check all that a survival model declares, before any row is read.

    Parameters
    ----------
    estimator : ConsensusSurvival
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
    terms = collect_terms(estimator, of_people=False, many_fits=many_fits)
    edges = _read_edges(estimator.edges)
    rho = terms.knobs["rho"]
    raise_collected_errors(
        [
            *_weight_errors(terms.schema),
            *_unknown_trust_errors(estimator.trust),
            *_newton_steps_errors(estimator.rounds),
            *_ridge_weight_errors(rho),
            *norm_bound_errors(estimator, terms),
            *_inference_errors(estimator, terms, edges),
        ]
    )
    # Here rho weighs slopes and may be 0, which no RunConfig has.
    fields = {name: value for name, value in terms.fields.items() if name != "rho"}
    config = RunConfig.from_dict({"method": "auto", **fields})
    recipe = _describe_newton_steps(
        len(edges) - 1, int(estimator.rounds), float(rho), noisy=config.budgeted
    )
    return Declared(
        terms=terms,
        edges=edges,
        event_code=estimator.event_code,
        config=config,
        recipe=recipe,
        inference=bool(estimator.inference),
    )


def _inference_errors(estimator: Any, terms: Terms, edges: Array) -> Iterator[InvalidInput]:
    """Yield an error for everything declared that inference does not support."""
    if not estimator.inference:
        return
    if edges[0] < 0.0:
        rule = "must not begin below 0 with inference=True"
        yield InvalidInput("edges", float(edges[0]), rule, "count time from 0")
    for name, none in (("rho", 0.0), ("max_grad_norm", math.inf)):
        given = terms.knobs[name]
        if given is not None and given != none:
            rule = "has no effect on hazard ratios, which are not shrunk"
            yield InvalidInput(name, given, rule, "leave it out, or use inference=False")


def _read_edges(given: Any) -> Array:
    """Return the public times between intervals, (m + 1,); InvalidInput unless they increase."""
    edges = run_without_data_in_errors("edges", lambda: np.asarray(given, dtype=np.float64))
    remedy = "declare public times such as [0, 30, 90, 365]"
    if edges.ndim != 1 or len(edges) < 2 or not np.all(np.isfinite(edges)):
        raise InvalidInput("edges", None, "must be two or more finite, increasing numbers", remedy)
    with np.errstate(over="ignore"):
        lengths = np.diff(edges)
    if not np.all(lengths > 0):
        raise InvalidInput("edges", None, "must be two or more finite, increasing numbers", remedy)
    # No part of an infinite interval is a number: a failure would then reveal people's times.
    if not np.all(np.isfinite(lengths)):
        raise InvalidInput("edges", None, "must have intervals of finite length", remedy)
    return np.asarray(edges)


def _weight_errors(schema: Schema | None) -> Iterator[InvalidInput]:
    """Yield an error for weights of people.

    The life table counts everybody once, and would correct weighted hazards wrongly.
    """
    if schema is not None and schema.weight is not None:
        rule = "is not supported here: a survival model counts every person alike"
        yield SchemaError("weight", None, rule, "leave weight out of the schema")


def _unknown_trust_errors(trust: Any) -> Iterator[InvalidInput]:
    """Yield an error for an unknown trust."""
    if trust not in TRUSTED:
        yield InvalidInput("trust", trust, f"must be one of {', '.join(TRUSTED)}", "use 'nobody'")


def _newton_steps_errors(rounds: Any) -> Iterator[InvalidInput]:
    """Yield an error unless `rounds` is a valid number of Newton steps."""
    whole = isinstance(rounds, int | np.integer) and not isinstance(rounds, bool)
    if not (whole and 1 <= rounds <= MOST_ROUNDS):
        rule = f"must be a whole number of Newton steps, from 1 to {MOST_ROUNDS}"
        yield InvalidInput("rounds", rounds, rule, "use rounds=5")


def _ridge_weight_errors(rho: Any) -> Iterator[InvalidInput]:
    """Yield an error unless `rho` can weigh the penalty on the slopes."""
    if not (isinstance(rho, int | float | np.number) and 0.0 <= rho < math.inf):
        rule = "must be finite and >= 0, because it weighs a penalty on the slopes"
        yield InvalidInput("rho", rho, rule, "use 0")


def _describe_newton_steps(m: int, rounds: int, ridge: float, *, noisy: bool) -> HazardSteps:
    """Return the list of releases of a fit of m intervals.

    Without noise it has finer cells of the life table, and enough steps to converge.
    """
    cells, steps = COARSE, rounds
    if not noisy:
        cells, steps = FINE, max(rounds, MOST_STEPS)
    return HazardSteps(
        intervals=m,
        cells=cells,
        steps=steps,
        value=math.sqrt(SHARE) / SLACK,
        weight=person_weight(m),
        ridge=ridge,
    )


# Encode


@dataclass(frozen=True, kw_only=True)
class Encoded(AskedRows):
    """People as rows of intervals, at sites.

    Parameters
    ----------
    public : Public
    features : Features
    times, events : array (n,)
        Times, and 1 or 0 for the event; NaN where they cannot be read.
    notes : tuple of Note
    fit : LogRates or None
        The fit with intervals, if it is asked for; rows are then those of people.
    """

    public: Public
    features: Features
    times: Array
    events: Array
    notes: tuple[Note, ...]
    fit: LogRates | None = None


def encode_people(declared: Declared, X: Any, time: Any, event: Any, groups: Any) -> Encoded:
    """Read people, assign them to sites and make rows of the intervals that they enter.

    Parameters
    ----------
    declared : Declared
    X, time, event, groups
        As for :meth:`sottovoce.ConsensusSurvival.fit`.

    Returns
    -------
    Encoded
        They stay with their holder; their public facts are all that a plan reads.

    Raises
    ------
    InvalidInput
        For people that do not fit what is declared; the message shows no value of them.
    """
    terms, m, cells = declared.terms, declared.interval_count, declared.recipe.cells
    if terms.schema is not None:
        X, time, event = _split_times_and_events(terms, terms.schema, X, time, event)
    features = read_features(terms, X)
    n = len(features)
    times = _check_one_value_each("time", read_survival_times(time), n)
    events = _check_one_value_each("event", read_event_marks(event, declared.event_code), n)
    dealt = deal_rows_to_sites(terms, features, groups)
    notes = (*features.notes, *dealt.notes)
    if declared.inference:
        fit = _fit_with_intervals(declared, features, dealt)
        made = _rows_of_people(fit, terms, features, dealt, np.column_stack([events, times]))
        return Encoded(
            made=made,
            caveat=terms.schema_caveat,
            public=Public(made.n, made.d, dealt.sites, dealt.apart),
            features=features,
            times=times,
            events=events,
            notes=notes,
            fit=fit,
        )
    leaves = find_leaving_intervals(times, events == 1.0, ~np.isnan(events), declared.edges, cells)
    ball = terms.encoding.encode_rows(features.values)
    tables = [
        expand_to_interval_rows(ball[part], leaves.select_people(part), m, cells)
        for part in dealt.parts
    ]
    rows = Rows.build_from_parts([(one.rows, one.label) for one in tables])
    rows = rows.with_weight([one.weight for one in tables])
    return Encoded(
        made=rows,
        caveat=terms.schema_caveat,
        public=Public(rows.n, rows.d, dealt.sites, dealt.apart),
        features=features,
        times=times,
        events=events,
        notes=notes,
    )


def _fit_with_intervals(declared: Declared, features: Features, dealt: Dealt) -> LogRates:
    """Return the fit of hazard ratios, whose constants are those of intervals and of no site."""
    layout = dealt.layout_with_names(declared.terms, features)
    layout = replace(layout, naming=layout.naming.with_one_constant())
    task = EventRate(tuple(declared.edges.tolist()), 1.0, True)
    return LogRates(layout, task=task, noisy=declared.config.budgeted)


def _rows_of_people(
    fit: LogRates, terms: Terms, features: Features, dealt: Dealt, outcomes: Array
) -> Rows:
    """Encode people at their sites; `outcomes` (n, 2) are their events and times."""
    y = fit.task.encode(outcomes)
    tables: list[Any]
    if terms.schema is None:
        tables = [features.values[part] for part in dealt.parts]
    else:
        tables = [features.table.take(part) for part in dealt.parts]
    return fit.encode_rows(tables, [y[part] for part in dealt.parts])


def _split_times_and_events(
    terms: Terms, schema: Schema, X: Any, time: Any, event: Any
) -> tuple[Table, Any, Any]:
    """Split a table into the model's columns, the times and the events.

    `time` and `event` are names of columns of X, or values, which are returned as they are.
    """
    table = read_frame(X, terms.columns)
    named = [name for name in (time, event) if isinstance(name, str)]
    lost = [name for name in named if name not in table.columns]
    if lost:
        raise InvalidInput(
            lost[0], None, "is not a column of the frame", "name the columns of time and event"
        )
    read = {source for block in schema.blocks for source in block.source_columns(table.columns)}
    both = [name for name in named if name in read]
    if both:
        rule = "holds the time or the event, but the schema declares it as a column of the model"
        raise SchemaError(both[0], None, rule, "leave it out of [columns]")
    columns = dict(table.columns)
    if isinstance(time, str):
        time = columns[time]
    if isinstance(event, str):
        event = columns[event]
    others = {name: column for name, column in columns.items() if name not in named}
    return Table(table.name, others), time, event


def _check_one_value_each(name: str, column: Array, n: int) -> Array:
    """Return the column if it has one value for each of n people; InvalidInput otherwise."""
    if column.shape != (n,):
        rule = f"must have one value for each of the {n} people, but has shape {column.shape}"
        raise InvalidInput(name, None, rule, "give one value for each row of X")
    return column


# Plan


def plan_hazards(declared: Declared, public: Public, fit: LogRates | None = None) -> Planned:
    """Price the releases of a fit from public facts alone; nothing is spent.

    Parameters
    ----------
    declared : Declared
    public : Public
    fit : LogRates, optional
        The fit with intervals, of which only the encoding's names and scales are used.

    Returns
    -------
    Planned
    """
    if fit is not None:
        return plan_recipe_fit(declared.config, fit.recipe, fit.loss, public, "hazard ratios")
    loss = clip_gradients(Logistic(), declared.config.gradient_cap)
    return plan_recipe_fit(declared.config, declared.recipe, loss, public, "hazards")


# Decode


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A fitted survival model; all of it but the notes follows from what was released.

    Parameters
    ----------
    vector : array (d,)
        Slopes of encoded columns.
    coef : array (p,)
        In the units of the columns.
    intercept : array (m,)
        Log-odds of the event in each interval at zero columns, corrected.
    correction : array (m,)
        What was added so that the curve agrees with Kaplan and Meier's.
    converged : bool
    edges, sites : array
    result : Result
    notes : tuple of Note
    table : Coefficients or None
        With intervals, after an inference.
    predictor : RatesForPeople or None
        Predicts the rates of people, after an inference.
    """

    vector: Array
    coef: Array
    intercept: Array
    correction: Array
    converged: bool
    edges: Array
    sites: Any
    result: Result
    notes: tuple[Note, ...]
    table: Coefficients | None = None
    predictor: RatesForPeople | None = None


@dataclass(frozen=True)
class RatesForPeople:
    """Log rates by interval of people whose columns an encoding with names reads.

    Parameters
    ----------
    naming : Naming
        With one constant.
    slopes : array (k,)
        Of encoded columns.
    log_rates : array (m,)
        By interval, for a row of encoded zeros.
    edges : array (m + 1,)
    """

    naming: Naming
    slopes: Array
    log_rates: Array
    edges: Array

    def log_rates_of(self, table: Any) -> Array:
        """Return the log rates of raw columns, or of an array without a schema, (n, m)."""
        X = self.naming.encode_with_one_constant(table)[:, :-1]
        return np.asarray((X @ self.slopes)[:, None] + self.log_rates)

    def chances(self, log_rates: Array) -> Array:
        """Return the probability of the event in each interval, for those who reach it, (n, m)."""
        expected = np.exp(np.minimum(log_rates, 700.0)) * np.diff(self.edges)
        return np.asarray(-np.expm1(-expected))


def decode_hazards(
    declared: Declared, encoded: Encoded, planned: Planned, results: tuple[Result, ...]
) -> Fitted:
    """Convert slopes and constants to the units of the columns, with the privacy statement.

    Parameters
    ----------
    declared : Declared
    encoded : Encoded
        The fitted people, of whom notes for their holder are counted.
    planned : Planned
        The run as it was priced.
    results : tuple of one Result
        Its outcome holds the hazards of encoded rows.

    Returns
    -------
    Fitted
        Slopes and constants; a public note warns of a fit that did not converge.
    """
    terms, m = declared.terms, declared.interval_count
    if encoded.fit is not None:
        return _decode_rates(declared, encoded, encoded.fit, results[0])
    of_people = with_further_facts(results[0].statement, Unit.of_people(m))
    found: Hazards = results[0].outcome
    vector = found.slopes / SLACK * math.sqrt(1.0 - SHARE)
    intercept = found.constants + found.correction
    if terms.schema is None:
        coef = vector / (terms.norm * SLACK)
    else:
        coef, constant = coefficients_in_units(terms.schema, vector)
        intercept = intercept + constant
    notes = [*norm_misfit_notes(terms, encoded.features), *_unread_notes(declared, encoded)]
    if not found.converged:
        notes.append(
            Note("converged", _why_not_converged(found, len(found.slopes) + m), PublicNote)
        )
    return Fitted(
        vector=vector,
        coef=coef,
        intercept=intercept,
        correction=found.correction,
        converged=found.converged,
        edges=declared.edges,
        sites=encoded.public.sites,
        result=replace(results[0], statement=statement_with_assumptions(of_people, terms.rests)),
        notes=tuple(notes),
    )


def _decode_rates(declared: Declared, encoded: Encoded, fit: LogRates, result: Result) -> Fitted:
    """Convert the outcome of an inference to hazard ratios, rates by interval and a table."""
    terms, m = declared.terms, declared.interval_count
    found = fit.read_outcome(result.outcome, declared.config.delta)
    model = models_for_predictions(result.outcome)[0]
    in_units = fit.naming.into_units @ model
    converged = bool(result.outcome.strain[0] <= UNSURE)
    notes = [*norm_misfit_notes(terms, encoded.features), *_unread_notes(declared, encoded)]
    if not converged:
        what = "not converged: the whole table is refused; use a larger epsilon, or more people"
        notes.append(Note("converged", what, PublicNote))
    slopes = model[:-m]
    predictor = RatesForPeople(
        fit.layout.naming, slopes, model[-m:] * fit.layout.naming.value, declared.edges
    )
    statement = statement_with_assumptions(result.statement, terms.rests)
    return Fitted(
        vector=slopes,
        coef=in_units[:-m],
        intercept=in_units[-m:],
        correction=np.zeros(m),
        converged=converged,
        edges=declared.edges,
        sites=encoded.public.sites,
        result=replace(result, statement=statement),
        notes=tuple(notes),
        table=found.table,
        predictor=predictor,
    )


def _unread_notes(declared: Declared, encoded: Encoded) -> list[Note]:
    """Collect notes, for the people's holder, on those who add nothing to the fit, and why."""
    times, events = encoded.times, encoded.events
    notes: list[Note] = []
    n = len(times)
    # Not `times <= edge`, which is false for NaN: a time that cannot be read counts here too.
    late = int(np.sum(~(times > declared.edges[0])))
    if late:
        what = f"{late} of {n} people have no time after the first edge"
        text = f"{what}: they contribute nothing to the fit (for the data's holder only)"
        notes.append(Note("time", text, HolderNote))
    unknown = int(np.sum(np.isnan(events)))
    if unknown:
        if declared.event_code is None:
            meant = "1, 0, true or false"
            remedy = "; declare event_code, the value that means the event"
        else:
            meant, remedy = "known", ""
        what = f"{unknown} of {n} people have no event value that is {meant}"
        text = f"{what}: they contribute nothing to the fit (for the data's holder only){remedy}"
        notes.append(Note("event", text, HolderNote))
    return notes


def _why_not_converged(found: Hazards, directions: int) -> str:
    """Return why a fit is not converged, and what to do, from released numbers alone.

    `directions` is the number of coefficients: slopes and constants.
    """
    if found.hidden:
        what = (
            f"noise hides {found.hidden} of {directions} directions of the coefficients, which "
            "stay near their starting values"
        )
        return (
            f"not converged: {what}; raise epsilon, or use fewer intervals or columns, or more "
            "people"
        )
    what = "the last Newton step still moved the coefficients by more than their noise"
    return (
        f"not converged: {what}; use more rounds, or drop columns or intervals that separate those "
        "with the event from the others"
    )
