"""The steps of a regressor's `fit`: validate, encode, plan and decode (run is in
:mod:`sottovoce.estimators.fitting`).

The squared loss asks for second moments and gradients, from which least squares follow
(:class:`sottovoce.answers.fits.Numbers`); any other loss is trained by a method of several rounds.
Inside, a target in [lo, hi] is an *offset* in [-1, 1], and coefficients are scaled back at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from ..answers.coefficients import Coefficients
from ..answers.fits import Numbers
from ..answers.regression import SQUARED
from ..answers.saved import SavedModel
from ..answers.training import WEIGHED
from ..data.labels import NumberLabel, parse_number_labels
from ..data.rows import Rows
from ..data.validation import run_without_data_in_errors
from ..errors import HolderNote, InvalidInput, raise_collected_errors
from ..problem.losses import loss_texts
from ..problem.task import BoundedNumber
from ..runs import defaults
from ..runs.config import RunConfig
from ..runs.planned import plan_run
from ..runs.simulate import Result
from ..util.plain import infinities_to_text
from ..util.typing import Any, Array, ArrayLike, IntArray
from .declared import find_label_column, with_number_label
from .fitting import AskedRows, Planned, Public, plan_recipe_fit, statement_with_assumptions
from .notices import Note
from .own_site import site_positions
from .tables import (
    Dealt,
    Features,
    Weights,
    deal_rows_to_sites,
    norm_misfit_notes,
    read_features,
    read_row_weights,
)
from .terms import Terms, collect_terms, max_weight_errors, norm_bound_errors, site_constants_errors

ALIKE = 1e-3
"""Predictions that span a smaller share of the target's range count as one number for all rows."""
BOUNDS_READ = "the target's bounds were read off the rows, and epsilon does not cover that"


# Validate


@dataclass(frozen=True, kw_only=True)
class Declared:
    """Declared parameters of a regressor: all that a fit knows before it reads a row.

    Parameters
    ----------
    terms : Terms
    bounds : (float, float) or None
        Of the target; None if a simulation reads them off the rows.
    loss : str
    config : RunConfig
    inference : bool
        Whether coefficients have confidence intervals.
    intercept : bool
        The parameter `fit_intercept`, for least squares.
    has_constant : bool
        Whether the fitted model has a constant: a schema, or least squares under one, may add it.
    """

    terms: Terms
    bounds: tuple[float, float] | None
    loss: str
    config: RunConfig
    inference: bool
    intercept: bool
    has_constant: bool

    @property
    def notes(self) -> tuple[Note, ...]:
        """Notes on the declared parameters, for warnings."""
        return self.terms.notes

    @property
    def uses_least_squares(self) -> bool:
        """True for the squared loss; any other one is trained by rounds."""
        return self.loss == SQUARED


def validate_regressor(estimator: Any, *, many_fits: bool) -> Declared:
    """Check all that a regressor declares, before any row is read.

    Parameters
    ----------
    estimator : ConsensusRegressor
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
    squared = bool(estimator.loss == SQUARED)
    terms = collect_terms(estimator, weighed=squared, one_row_each=squared, many_fits=many_fits)
    bounds = _declared_bounds(estimator, terms)
    raise_collected_errors(
        [
            *_bounds_errors(bounds, terms),
            *norm_bound_errors(estimator, terms),
            *site_constants_errors(terms, named=squared),
            *_inference_errors(estimator, terms),
            *max_weight_errors(terms),
            *_unknown_loss_errors(estimator.loss),
        ]
    )
    return Declared(
        terms=terms,
        bounds=bounds,
        loss=estimator.loss,
        config=RunConfig.from_dict(_fields_of_run(estimator, terms)),
        inference=bool(estimator.inference),
        intercept=estimator.fit_intercept,
        has_constant=_has_constant(estimator, terms),
    )


def _declared_bounds(estimator: Any, terms: Terms) -> Any:
    """Return the bounds (lo, hi) of the target, unchecked: the estimator's, else the schema's.

    None without any.
    """
    if estimator.y_bounds is None and terms.schema is not None:
        label = terms.schema.label
        if isinstance(label, NumberLabel):
            return label.lo, label.hi
    return estimator.y_bounds


def _bounds_errors(bounds: Any, terms: Terms) -> Iterator[InvalidInput]:
    """Yield an error for a release without bounds of the target."""
    if bounds is None and not terms.is_simulation:
        rule = "must be declared for a release, because the range of the rows' targets is private"
        yield InvalidInput(
            "y_bounds", None, rule, "give y_bounds=(lo, hi), or a random_state for a simulation"
        )


def _inference_errors(estimator: Any, terms: Terms) -> Iterator[InvalidInput]:
    """Yield an error for everything declared that inference does not support."""
    if not estimator.inference:
        return
    if estimator.loss != SQUARED or not estimator.fit_intercept:
        rule = "needs loss='squared' and fit_intercept=True"
        yield InvalidInput("inference", True, rule, "set these two, or use inference=False")
    if terms.schema is not None and terms.schema.weight is not None:
        yield InvalidInput(
            "sample_weight", None, WEIGHED, "leave weights out, or use inference=False"
        )


def _unknown_loss_errors(loss: Any) -> Iterator[InvalidInput]:
    """Yield an error for a loss that is not for a number to predict."""
    known = {text.partition(":")[0] for text in loss_texts(numbers=True)}
    if loss != SQUARED and str(loss).partition(":")[0] not in known:
        rule = f"must be one of squared, {', '.join(loss_texts(numbers=True))}"
        yield InvalidInput("loss", loss, rule, "use loss='squared'")


def _fields_of_run(estimator: Any, terms: Terms) -> dict[str, Any]:
    """Return the fields of :class:`RunConfig`; least squares leave out those of a method."""
    fields = {
        name: value
        for name, value in terms.fields.items()
        if name not in ("method", "loss", "rounds", "rho")
    }
    if estimator.loss == SQUARED:
        return {"method": "auto", **fields}
    method = estimator.method
    if method == defaults.METHOD:
        method = defaults.method_of_numbers(estimator.trust or "nobody", fields["delta"])
    of_method = {"method": method, "loss": estimator.loss, "rounds": estimator.rounds}
    return {**of_method, "rho": terms.knobs["rho"], **fields}


def _has_constant(estimator: Any, terms: Terms) -> bool:
    """Return true if the fitted model has a constant.

    Without a schema `fit_intercept` decides; under one, the schema does, and the squared loss
    always adds a constant.
    """
    if terms.schema is None:
        return bool(estimator.fit_intercept)
    return bool(terms.schema.intercept or estimator.loss == SQUARED)


# Encode


@dataclass(frozen=True)
class Facts:
    """Public facts from which a regression is planned: the sites, and the least squares to ask.

    `fit` is None for a training by rounds.
    """

    sites: Public
    fit: Numbers | None


@dataclass(frozen=True, kw_only=True)
class Encoded(AskedRows):
    """Rows with a number to predict, at sites, in the unit ball.

    Parameters
    ----------
    public : Facts
    features : Features
    dealt : Dealt
    target : array (n,)
        In the target's unit; NaN where it is missing.
    task : BoundedNumber
        The target's bounds.
    groups : array-like (n,) or None
        The sites as `fit` was given them.
    notes : tuple of Note
    """

    public: Facts
    features: Features
    dealt: Dealt
    target: Array
    task: BoundedNumber
    groups: Any
    notes: tuple[Note, ...]


def encode_numbers(
    declared: Declared, X: Any, y: Any, groups: Any, sample_weight: ArrayLike | None
) -> Encoded:
    """Read rows, assign them to sites and encode them into the unit ball.

    Parameters
    ----------
    declared : Declared
    X, y, groups, sample_weight
        As for :meth:`sottovoce.ConsensusRegressor.fit`.

    Returns
    -------
    Encoded
        They stay with their holder; their public facts are all that a plan reads.

    Raises
    ------
    InvalidInput
        For rows that do not fit what is declared; the message shows no value of them.
    """
    terms = declared.terms
    if declared.inference and sample_weight is not None:
        raise InvalidInput(
            "sample_weight", None, WEIGHED, "leave weights out, or use inference=False"
        )
    features = read_features(terms, X)
    if len(features) < 2:
        rule = f"a regression needs at least 2 rows, and X has n_samples={len(features)}"
        raise InvalidInput("X", None, rule, "give more rows")
    target = _read_target(declared, features, y)
    task, caveat = target_bounds(target, declared.bounds)
    dealt = deal_rows_to_sites(terms, features, groups)
    weights = read_row_weights(terms, features, sample_weight)
    offsets = task.encode(target)
    targets = [offsets[part] for part in dealt.parts]
    fit = None
    if declared.uses_least_squares:
        fit = _describe_least_squares(declared, features, dealt, task)
        rows = _moment_rows(terms, features, dealt, targets, weights, fit)
    else:
        rows = _rows_in_unit_ball(terms, features, dealt, targets, weights, task)
    return Encoded(
        made=rows,
        caveat=(terms.schema_caveat, caveat, weights.caveat),
        public=Facts(Public(rows.n, rows.d, dealt.sites, dealt.apart), fit),
        features=features,
        dealt=dealt,
        target=target,
        task=task,
        groups=groups,
        notes=(*features.notes, *dealt.notes, *weights.notes),
    )


def _read_target(declared: Declared, features: Features, y: Any) -> Array:
    """Return the targets in their unit, (n,); NaN where the schema's column holds no number."""
    column = find_label_column(declared.terms.schema, features.table, y)
    if column is None:
        # scikit-learn's checks of estimators look for these words.
        rule = f"{declared.terms.name} requires y to be passed, but the target y is None"
        raise InvalidInput("y", None, rule, "give the number of every row")
    if y is None:
        assert declared.terms.schema is not None
        return parse_number_labels(column, declared.terms.schema.na)

    def read() -> Array:
        array = check_array(column, ensure_2d=False, dtype=np.float64, input_name="y")
        found = column_or_1d(array, warn=True)
        check_consistent_length(np.empty(len(features)), found)
        return np.asarray(found)

    return np.asarray(run_without_data_in_errors("y", read))


def target_bounds(
    target: Array, bounds: tuple[float, float] | None
) -> tuple[BoundedNumber, str | None]:
    """Return the target's bounds, and a caveat if they were read off the `target` (n,) itself.

    Without `bounds` its range is taken, which only a simulation may do.
    """
    if bounds is not None:
        try:
            low, high = bounds
        except (TypeError, ValueError):
            rule = "must be two numbers, the lower first"
            raise InvalidInput("y_bounds", None, rule, "use y_bounds=(0, 60)") from None
        return BoundedNumber(low, high), None
    low, high = 0.0, 1.0
    known = target[np.isfinite(target)]
    if len(known):
        low, high = float(known.min()), float(known.max())
    # A constant target has a range of length 0, by which nothing can be divided.
    if not high > low:
        high = low + 1.0
    return BoundedNumber(low, high), BOUNDS_READ


def _describe_least_squares(
    declared: Declared, features: Features, dealt: Dealt, task: BoundedNumber
) -> Numbers:
    """Return the least squares to ask for, with the encoding that names its coefficients."""
    layout = dealt.layout_with_names(declared.terms, features)
    return Numbers(layout, task=task, intervals=declared.inference, intercept=declared.intercept)


def _moment_rows(
    terms: Terms,
    features: Features,
    dealt: Dealt,
    targets: list[Array],
    weights: Weights,
    fit: Numbers,
) -> Rows:
    """Encode rows and targets for least squares, each person's rows protected together.

    `targets` are offsets in [-1, 1], one array for each site.
    """
    if terms.schema is None:
        tables = [features.values[part] for part in dealt.parts]
    else:
        tables = [features.table.take(part) for part in dealt.parts]
    return dealt.bound_people(
        fit.encode_rows(tables, targets, weights.weights_at_sites(dealt.parts))
    )


def _rows_in_unit_ball(
    terms: Terms,
    features: Features,
    dealt: Dealt,
    targets: list[Array],
    weights: Weights,
    task: BoundedNumber,
) -> Rows:
    """Encode rows for a training by rounds; a row without a target becomes a row of zeros.

    `targets` are offsets in [-1, 1], one array for each site.
    """
    ball = terms.encoding.encode_rows(features.values)
    known = [task.has_known_label(y).astype(float) for y in targets]
    made = Rows.build_from_parts(
        [(ball[part], one) for part, one in zip(dealt.parts, known, strict=True)]
    )
    with_targets = made.with_offset([np.nan_to_num(y) for y in targets])
    return dealt.bound_people(with_targets, weights.weights_at_sites(dealt.parts))


# Plan


def plan_regressor(declared: Declared, public: Facts) -> Planned:
    """Price the run from public facts alone; nothing is spent.

    Raises
    ------
    InvalidInput
        For a budget that cannot be met.
    """
    says = f"{declared.loss} loss"
    if public.fit is not None:
        return plan_recipe_fit(
            declared.config, public.fit.recipe, public.fit.loss, public.sites, says
        )
    return Planned((plan_run(declared.config, public.sites.n, public.sites.d),), says=(says,))


# Decode


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A fitted regressor; all of it but the notes follows from what was released.

    Parameters
    ----------
    coef : array (p,)
        In the units of the columns and of the target.
    intercept : float
        In the target's unit.
    site_intercept : array (sites,)
    table : Coefficients or None
        With intervals, after an inference.
    answered : SavedModel or None
        The model with its encoding; None after a training by rounds without a schema.
    bounds : (float, float)
    sites : array
    result : Result
    notes : tuple of Note
    """

    coef: Array
    intercept: float
    site_intercept: Array
    table: Coefficients | None
    answered: SavedModel | None
    bounds: tuple[float, float]
    sites: Any
    result: Result
    notes: tuple[Note, ...]

    def predict_numbers(self, rows: Any, where: IntArray | None) -> Array:
        """Predict the numbers of rows, (n,); `where` are the indices of their sites, or None."""
        return predict_bounded_numbers(
            self.coef, self.intercept, self.bounds, self.answered, rows, where
        )


def predict_bounded_numbers(
    coef: Array,
    intercept: float,
    bounds: tuple[float, float],
    answered: SavedModel | None,
    rows: Any,
    where: IntArray | None,
) -> Array:
    """Predict numbers of rows, (n,), within the bounds.

    Parameters
    ----------
    coef : array (p,)
        In the units of the columns and of the target.
    intercept : float
        In the target's unit.
    bounds : (float, float)
        Of the target.
    answered : SavedModel or None
        The model with its encoding, if there is one; it is used in place of `coef`.
    rows
        Raw columns for a model under a schema, else an array (n, p).
    where : array of int (n,) or None
        Indices of the rows' sites in that model.

    Returns
    -------
    array (n,)
    """
    if answered is not None:
        return BoundedNumber(*bounds).decode(answered.margins(rows, where=where))
    # A row may be so long that products overflow; the bounds hold all the same.
    with np.errstate(all="ignore"):
        return np.clip(rows @ coef + intercept, *bounds)


def decode_regressor(
    declared: Declared, encoded: Encoded, planned: Planned, results: tuple[Result, ...]
) -> Fitted:
    """Convert the model to the units of the columns and of the target, with its privacy statement.

    Parameters
    ----------
    declared : Declared
    encoded : Encoded
        The fitted rows, from which notes for their holder are counted.
    planned : Planned
        The run as it was priced.
    results : tuple of one Result

    Returns
    -------
    Fitted
    """
    result = replace(
        results[0], statement=statement_with_assumptions(results[0].statement, declared.terms.rests)
    )
    if encoded.public.fit is None:
        fitted = _decode_rounds(declared, encoded, result)
    else:
        fitted = _decode_squared(declared, encoded, encoded.public.fit, result)
    return replace(fitted, notes=_closing_notes(declared, encoded, fitted))


def _decode_squared(declared: Declared, encoded: Encoded, fit: Numbers, result: Result) -> Fitted:
    """Convert the outcome of least squares to coefficients in units, and a table if asked for."""
    schema, naming = declared.terms.schema, fit.layout.naming
    found = fit.read_outcome(result.outcome, declared.config.delta)
    named = None
    if schema is not None:
        named = with_number_label(schema, encoded.task)
    answered = fit.layout.to_saved_model(found.model, named, infinities_to_text(found.plain))
    in_units = naming.into_units @ found.model
    # Slopes stand first, and after them the constants.
    slope_count = int(np.sum(naming.constant == 0))
    slopes = in_units[:slope_count]
    constants = _constants_in_units(declared, encoded, in_units[slope_count:])
    # The constants of sites are averaged by the shares of their rows.
    intercept = float(constants @ answered.shares)
    return _make_fitted(encoded, slopes, constants, intercept, answered, found.table, result)


def _decode_rounds(declared: Declared, encoded: Encoded, result: Result) -> Fitted:
    """Convert the sites' average model of a training by rounds to coefficients in units.

    A fit has one replicate, number 0, and its model one constant for all sites.
    """
    schema = declared.terms.schema
    answered = None
    if schema is not None:
        named = with_number_label(schema, encoded.task)
        answered = SavedModel(
            naming=None,
            model=result.consensus[0],
            shares=np.ones(1),
            schema=named,
            loss=declared.loss,
        )
    coef, constant = declared.terms.encoding.model_to_units(result.consensus)
    constants = _constants_in_units(declared, encoded, constant[:1])
    return _make_fitted(encoded, coef[0], constants, float(constants[0]), answered, None, result)


def _constants_in_units(declared: Declared, encoded: Encoded, constants: Array) -> Array:
    """Convert constants of a target in [-1, 1] to the target's unit."""
    task = encoded.task
    half = 0.5 * (task.high - task.low)
    return np.asarray(task.low + half + half * constants * declared.has_constant)


def _make_fitted(
    encoded: Encoded,
    coef: Array,
    constants: Array,
    intercept: float,
    answered: SavedModel | None,
    table: Coefficients | None,
    result: Result,
) -> Fitted:
    """Construct a fitted regressor.

    `coef` (p,) is still for a target in [-1, 1]; `constants`, one or one a site, and `intercept`
    are in the target's unit.
    """
    task = encoded.task
    site_intercept = constants
    if len(constants) <= 1:
        site_intercept = np.repeat(constants, len(encoded.dealt.parts))
    return Fitted(
        coef=0.5 * (task.high - task.low) * coef,
        intercept=intercept,
        site_intercept=site_intercept,
        table=table,
        answered=answered,
        bounds=(task.low, task.high),
        sites=encoded.dealt.sites,
        result=result,
        notes=(),
    )


def _closing_notes(declared: Declared, encoded: Encoded, fitted: Fitted) -> tuple[Note, ...]:
    """Collect notes on a fit: rows and targets out of bounds, and the same answer for all rows."""
    terms, task, target = declared.terms, encoded.task, encoded.target
    notes = [*norm_misfit_notes(terms, encoded.features)]
    beyond = int(np.sum((target < task.low) | (target > task.high)))
    if beyond:
        what = (
            f"{beyond} of {len(target)} targets lie beyond y_bounds, {task.low:g} to {task.high:g}"
        )
        text = f"{what}, and were clipped to them (for the data's holder only)"
        notes.append(Note("y_bounds", text, HolderNote))
    if terms.is_simulation and declared.config.budgeted:
        rows = encoded.features.rows_for_model(terms.schema)
        # A warning of overflow would reveal a long row.
        with np.errstate(all="ignore"):
            answers = fitted.predict_numbers(
                rows, site_positions(fitted.answered, rows, encoded.groups)
            )
        if np.ptp(answers) < ALIKE * (task.high - task.low):
            what = "the model gives almost the same number for every row"
            text = f"{what} (a simulation, for the data's holder only)"
            notes.append(Note("one number", text, HolderNote))
    return tuple(notes)
