"""Linear regression of bounded numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d

from ..answers.fits import Numbers
from ..answers.regression import SQUARED
from ..answers.saved import SavedModel
from ..answers.training import WEIGHED
from ..data.frames import read_frame
from ..data.labels import NumberLabel, numbers_in
from ..data.rows import Rows
from ..data.validation import checked
from ..errors import HolderNote, InvalidInput
from ..problem.losses import loss_texts
from ..problem.task import BoundedNumber
from ..runs import defaults
from ..runs.config import RunConfig
from ..runs.relations import with_other_relation
from ..runs.simulate import Result, simulate
from ..util.plain import jsonable
from ..util.progress import told
from ..util.typing import Any, Array, ArrayLike, IntArray
from .base import Dealt, SitedTable
from .caveats import Caveats, tell_values
from .declared import as_columns, columns_of_array, with_number
from .inference import Shown
from .own_site import OwnSite
from .parameters import with_knobs


class _Asked(NamedTuple):
    """What a loss asks of rows."""

    rows: Callable[[list[Array], list[Array] | None], Rows]
    """Rows of the sites from their scaled targets, NaN for none, and their weights."""
    run: RunConfig
    recipe: dict[str, Any]
    """What `simulate` takes besides."""
    keep: Callable[[Result], tuple[Array, Array]]
    """Slopes, and a constant or one for every site, from its result."""


ALIKE = 1e-3
"""Share of the target's range in which the answers to all rows lie if they are about one number."""
_READ = "the target's bounds were read off the rows, and epsilon does not cover that"


def _tell_clipped(estimator: Any, target: Array, task: BoundedNumber) -> None:
    """Tell the holder how many numbers lie beyond the bounds."""
    if beyond := int(np.sum((target < task.low) | (target > task.high))):
        what = f"{beyond} of {len(target)} numbers lie beyond y_bounds, {task.low:g} to {task.high:g}"
        text = f"{what}, and were clipped to them (for the data's holder only)"
        estimator._notify("y_bounds", text, HolderNote, stacklevel=3)


@with_knobs("relation", "sites_per_row", "colluders", "rho", max_weight=None, site_constants=None)
class ConsensusRegressor(OwnSite, SitedTable, Shown, RegressorMixin, BaseEstimator):
    """A linear regression of a bounded number, trained across sites that exchange noisy vectors instead of rows.

    Parameters
    ----------
    y_bounds : (float, float) or None, default=None
        Public bounds of the target; targets beyond them are clipped.  A release needs them.  None takes those of the
        schema's label; without one it reads them off y, in a simulation only, and the statement says so.
    loss : str, default="squared"
        "squared" releases second moments once, and gradients of Huber's loss at public points
        (:mod:`sottovoce.answers.regression`).  "huber-residual:H", "log-cosh:H" and "quantile:Q" train by `method`.
    method : str, default="auto"
        For the losses that train: a name that ``sottovoce methods`` lists.  "auto" is ``momentum``, or ``prox_admm``
        without a delta.
    rounds : int, default=100
    data_norm : float or None, default=None
        Declared bound on the Euclidean norm of a row; None is 1, and a release warns of it.  The squared loss weighs
        longer rows down instead of shortening them (:mod:`sottovoce.problem.weighted_loss`): unless the model is right,
        coefficients are those of weighted rows.
    inference : bool, default=False
        Spend the whole budget on coefficients with intervals (:mod:`sottovoce.answers.least_squares`); squared loss
        only. They are not shrunk, so with much noise they predict worse.
    epsilon, delta, schema, columns, trust, n_sites, fit_intercept, accounting, random_state, verbose
        As for :class:`sottovoce.ConsensusClassifier`.
    knobs : dict or None, default=None
        `relation`, `sites_per_row`, `colluders`, `max_weight`, `site_constants` (whether every site has a constant of
        its own under the squared loss; None for yes unless rows are dealt at random), and `rho`, which the squared loss
        does not read.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        In the units of X and y.
    intercept_ : float
        Where every site has a constant, their average by the sites' shares of rows.
    site_intercept_ : ndarray of shape (n_sites,)
        Sites that `groups` or the schema's site column name have constants of their own under the squared loss.
    coefficients_ : dict, or sottovoce.answers.inference.Coefficients
        A table that ``pandas.DataFrame`` takes; with `inference`: estimates, standard errors, intervals and what was
        refused.
    y_bounds_ : (float, float)
    n_features_in_, privacy_spent_, sites_
        As for :class:`sottovoce.ConsensusClassifier`.

    Notes
    -----
    *Guarantee*: As for :class:`sottovoce.ConsensusClassifier`.  The target is part of its row, and protected with it.

    Raises
    ------
    InvalidInput
        From :meth:`fit`, before anything is spent, on a parameter that breaks a rule.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import ConsensusRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 2))
    >>> y = 15.0 + 3.0 * X[:, 0] + rng.normal(size=4000)
    >>> model = ConsensusRegressor((0.0, 30.0), data_norm=3.0, trust="sum", random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.8), bool(model.privacy_spent_["epsilon"] <= 1.0)
    (True, True)
    """

    def __init__(
        self,
        y_bounds: tuple[float, float] | None = None,
        *,
        loss: str = SQUARED,
        method: str = defaults.METHOD,
        epsilon: float = defaults.EPSILON,
        delta: float | None = defaults.DELTA,
        trust: str | None = None,
        n_sites: int = 5,
        rounds: int = defaults.ROUNDS_OF_NUMBERS,
        data_norm: float | None = None,
        schema: Any = None,
        columns: Sequence[str] | None = None,
        fit_intercept: bool = True,
        accounting: str | None = None,
        random_state: Any = None,
        verbose: bool | int | None = None,
        inference: bool = False,
        knobs: Mapping[str, Any] | None = None,
    ) -> None:
        self.y_bounds = y_bounds
        self.loss = loss
        self.method = method
        self.epsilon = epsilon
        self.delta = delta
        self.trust = trust
        self.n_sites = n_sites
        self.rounds = rounds
        self.data_norm = data_norm
        self.schema = schema
        self.columns = columns
        self.fit_intercept = fit_intercept
        self.accounting = accounting
        self.random_state = random_state
        self.verbose = verbose
        self.inference = inference
        self.knobs = knobs

    def fit(self, X: Any, y: Any = None, groups: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Train across sites.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a frame under a schema
        y : array-like of shape (n_samples,), optional
            Numbers; None for the column that the schema declares.
        groups, sample_weight : array-like of shape (n_samples,), optional
            As for :meth:`sottovoce.ConsensusClassifier.fit`.
        """
        X = self._opened(X)
        caveats = Caveats.of(self, self.schema_, stacklevel=2)
        bounds = self._bounds()
        self._check_norm()
        self._site_constants(self.loss == SQUARED)
        own_weights = self._declared_weights(X)
        self._check_inference(sample_weight if own_weights is None else own_weights[0])
        features = self._table(X, reset=True)
        if len(features) < 2:
            raise InvalidInput("X", None, "n_samples=1 is too few for a regression", "give more rows")
        target = self._target(self._label_column(X, y), len(features), gaps=y is None)
        task, caveat = self._task(target, bounds)
        dealt = self._deal(X, groups, len(features), one=self.loss == SQUARED)
        parts = dealt.parts
        knobs = self._run_fields()
        knobs = {name: knobs[name] for name in knobs.keys() - {"method", "loss", "rounds", "rho"}} | dealt.unit
        knobs["seed"] = dealt.seed
        offsets = task.encode(target)
        counts, of_weights = self._weights(sample_weight, len(features), parts, declared=own_weights)
        self.coefficients_: Any = None
        self._answered = None
        if self.schema_ is None:
            tell_values(self, features, stacklevel=2)
        asks = self._squared if self.loss == SQUARED else self._by_rounds
        asked = asks(X, features, task, dealt, knobs)
        rows = asked.rows([offsets[part] for part in parts], counts)
        said = (None if self.schema_ is None else self.schema_.caveat, caveat, of_weights)
        with told(self.verbose) as teller:
            teller.phase(f"{self.loss} loss", asked.run.rounds if not asked.recipe else None)
            result = with_other_relation(simulate(asked.run, rows, caveat=said, observers=[teller], **asked.recipe))
        self._keep(*asked.keep(result), task, len(parts))
        self.y_bounds_, self.sites_ = (task.low, task.high), dealt.sites
        self._result = replace(result, statement=caveats.on(result.statement))
        self.privacy_spent_ = self._result.privacy
        if not self.inference:
            self.coefficients_ = as_columns(self)
        self._tell_norm(features)
        _tell_clipped(self, target, task)
        with np.errstate(all="ignore"):  # rows that are too long must not tell by a warning
            own = X if self.schema_ is not None else features
            self._tell_one_number(self._numbers(own, self._own_places(own, groups)))
        return self

    def _keep(self, coef: Array, constants: Array, task: BoundedNumber, sites: int) -> None:
        """Coefficients and constants in the target's unit, from those of a target in [-1, 1]."""
        half = 0.5 * (task.high - task.low)
        self.coef_ = half * coef
        has = self.fit_intercept if self.schema_ is None else bool(self.schema_.intercept or self.loss == SQUARED)
        every = task.low + half + half * constants * has
        self.site_intercept_ = every if len(every) > 1 else np.repeat(every, sites)
        self.intercept_ = float(every[0]) if self._named is None else float(every @ self._named.shares)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = math.isfinite(self.epsilon)  # few rows, and noise
        return tags

    @property
    def _weighs(self) -> bool:
        return bool(self.loss == SQUARED)

    def _bounds(self) -> tuple[float, float] | None:
        """The declared bounds of the target; InvalidInput if a release has none."""
        label = None if self.schema_ is None else self.schema_.label
        if self.y_bounds is None and isinstance(label, NumberLabel):
            return label.lo, label.hi
        if self.y_bounds is None and self.random_state is None:
            rule = "a release needs the target's bounds declared: the rows' own are private"
            raise InvalidInput("y_bounds", None, rule, "give y_bounds=(lo, hi), or a random_state for a simulation")
        return self.y_bounds

    def _target(self, y: Any, n: int, *, gaps: bool) -> Array:
        """Numbers, in the target's unit; with `gaps`, from a column that a schema reads, NaN where there is none."""
        self._check_y(y, "number")
        if gaps:
            assert self.schema_ is not None
            return numbers_in(y, self.schema_.na)

        def read() -> Array:
            found = column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"), warn=True)
            check_consistent_length(np.empty(n), found)
            return np.asarray(found)

        return np.asarray(checked("y", read))

    def _task(self, y: Array, bounds: tuple[float, float] | None) -> tuple[BoundedNumber, str | None]:
        if bounds is not None:
            try:
                low, high = bounds
            except (TypeError, ValueError):
                rule = "must be two numbers, the lower first"
                raise InvalidInput("y_bounds", None, rule, "use y_bounds=(0, 60)") from None
            return BoundedNumber(low, high), None
        known = y[np.isfinite(y)]
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
        return BoundedNumber(low, high if high > low else low + 1.0), _READ

    def _check_inference(self, sample_weight: ArrayLike | None) -> None:
        if not self.inference:
            return
        if self.loss != SQUARED or not self.fit_intercept:
            raise InvalidInput("inference", True, "is for the squared loss with an intercept", "leave it out")
        if sample_weight is not None:
            raise InvalidInput("sample_weight", None, WEIGHED, "leave weights out, or use inference=False")

    def _squared(
        self, X: Any, features: Array, task: BoundedNumber, dealt: Dealt, knobs: dict[str, Any]
    ) -> _Asked:  # fmt: skip
        """Least squares: what :mod:`sottovoce.answers.fits` asks at every door."""
        schema = self.schema_
        names = getattr(self, "feature_names_in_", columns_of_array(features.shape[1]))
        layout = dealt.layout(schema, [str(name) for name in names], self._norm, self._site_constants(True))
        fit = Numbers(layout, task=task, intervals=self.inference, intercept=self.fit_intercept)
        tables = [features[part] if schema is None else X.take(part) for part in dealt.parts]
        run = RunConfig.from_dict({"method": "auto", **knobs})

        def rows(targets: list[Array], weights: list[Array] | None) -> Rows:
            return dealt.bounded(fit.rows(tables, targets, weights))

        def keep(result: Result) -> tuple[Array, Array]:
            found = fit.read(result.outcome, run.delta)
            named = None if schema is None else with_number(schema, task)
            self._answered = layout.saved(found.model, named, jsonable(found.plain))
            if found.table is not None:
                self.coefficients_ = found.table
            beta, k = layout.naming.into_units @ found.model, int(np.sum(layout.naming.constant == 0))
            return beta[:k], beta[k:]

        return _Asked(rows, run, {"method": fit.recipe, "loss": fit.loss}, keep)

    def _by_rounds(
        self, X: Any, features: Array, task: BoundedNumber, dealt: Dealt, knobs: dict[str, Any]
    ) -> _Asked:  # fmt: skip
        if str(self.loss).partition(":")[0] not in {text.partition(":")[0] for text in loss_texts(numbers=True)}:
            rule = f"must be 'squared', {', '.join(loss_texts(numbers=True))}"
            raise InvalidInput("loss", self.loss, rule, "use loss='squared'")
        encoded, method = self._encode(features), self.method
        if method == defaults.METHOD:
            method = defaults.method_of_numbers(self.trust or "nobody", knobs["delta"])
        run = RunConfig.from_dict(
            {"method": method, "loss": self.loss, "rounds": self.rounds, "rho": self._knobs()["rho"], **knobs}
        )

        def rows(targets: list[Array], weights: list[Array] | None) -> Rows:
            known = [task.known(y).astype(float) for y in targets]
            made = Rows.build([(encoded[part], one) for part, one in zip(dealt.parts, known, strict=True)])
            return dealt.bounded(made.with_offset([np.nan_to_num(y) for y in targets]), weights)

        def keep(result: Result) -> tuple[Array, Array]:
            if self.schema_ is not None:
                named = with_number(self.schema_, task)
                self._answered = SavedModel(None, result.consensus[0], np.ones(1), schema=named, loss=self.loss)
            coef, constant = self._decode(result.consensus)
            return coef[0], constant[:1]

        return _Asked(rows, run, {}, keep)

    def predict(self, X: Any, groups: Any = None) -> Array:
        """The number of every row, shape (n_samples,), within the bounds.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a frame under a schema
        groups : array-like of shape (n_samples,), optional
            The site of every row, for models with a constant for every site; None for what the schema's site column
            says, if the fit read it.  A row of no site that the model knows gets the average of the constants, and a
            notice says how many do.
        """
        check_is_fitted(self, "coef_")
        rows = self._rows_of(X)
        return self._numbers(rows, self._places(rows, groups))

    def _numbers(self, rows: Any, where: IntArray | None) -> Array:
        """Predicted numbers of rows, of the sites in these places."""
        if self._answered is not None:
            return BoundedNumber(*self.y_bounds_).decode(self._answered.margins(rows, where=where))
        with np.errstate(all="ignore"):  # a row of any length
            return np.clip(rows @ self.coef_ + self.intercept_, *self.y_bounds_)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> float:
        """R2 on rows of a test set, without noise: for the holder of the rows.

        Under a schema that declares the number, y may be left out, and rows without one are left out.  `groups` are
        those of :meth:`predict`.
        """
        if y is not None or self.schema_ is None:
            return float(r2_score(y, self.predict(X, groups), sample_weight=sample_weight))
        table = read_frame(X, self.columns)
        numbers = numbers_in(self._label_column(table, None), self.schema_.na)
        known = np.isfinite(numbers)
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(r2_score(numbers[known], self.predict(table, groups)[known], sample_weight=weight))

    def _tell_one_number(self, answers: Array) -> None:
        """Warn the data owner of a simulation if the model predicts one value for every row."""
        if self.random_state is None or not math.isfinite(self.epsilon):
            return
        if np.ptp(answers) < ALIKE * (self.y_bounds_[1] - self.y_bounds_[0]):
            what = "the model gives about one number for every row"
            text = f"{what} (a simulation, for the data's holder only)"
            self._notify("one number", text, HolderNote, stacklevel=3)


@with_knobs("relation", rho=0.0002, max_weight=None)
class PrivateRegressor(ConsensusRegressor):
    """:class:`ConsensusRegressor` at one site, which releases its model once.

    Parameters
    ----------
    y_bounds, loss, method, epsilon, delta, rounds, data_norm, schema, columns, fit_intercept, accounting
        As for :class:`ConsensusRegressor`.
    random_state, verbose
        As for :class:`ConsensusRegressor`.
    knobs : dict or None, default=None
        `relation`, `max_weight` and `rho`, 0.0002.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import PrivateRegressor
    >>> x = np.linspace(-3, 3, 4000)
    >>> model = PrivateRegressor((0.0, 20.0), data_norm=3.0, random_state=0).fit(x[:, None], 10.0 + 3.0 * x)
    >>> bool(model.score(x[:, None], 10.0 + 3.0 * x) > 0.8)
    True
    """

    n_sites, trust, inference = 1, None, False

    def __init__(
        self,
        y_bounds: tuple[float, float] | None = None,
        *,
        loss: str = SQUARED,
        method: str = defaults.METHOD,
        epsilon: float = defaults.EPSILON,
        delta: float | None = defaults.DELTA,
        rounds: int = defaults.ROUNDS_OF_NUMBERS,
        data_norm: float | None = None,
        schema: Any = None,
        columns: Sequence[str] | None = None,
        fit_intercept: bool = True,
        accounting: str | None = None,
        random_state: Any = None,
        verbose: bool | int | None = None,
        knobs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            y_bounds, loss=loss, method=method, epsilon=epsilon, delta=delta, n_sites=1, rounds=rounds, knobs=knobs,
            data_norm=data_norm, fit_intercept=fit_intercept, accounting=accounting, random_state=random_state,
            schema=schema, columns=columns, verbose=verbose,
        )  # fmt: skip


__all__ = ["ConsensusRegressor", "PrivateRegressor"]
