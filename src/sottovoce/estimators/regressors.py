"""Linear regression of bounded numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d

from ..algorithms.recipe import Recipe
from ..answers.inference import model_of
from ..answers.least_squares import slopes_of, table_of
from ..answers.regression import SQUARED, LeastSquares
from ..answers.terms import of_columns
from ..answers.training import WEIGHED
from ..data.rows import Rows
from ..data.validation import checked
from ..errors import InvalidInput
from ..problem.losses import HuberResidual, loss_texts
from ..problem.task import BoundedNumber
from ..problem.weighted_loss import Weighted
from ..runs import defaults
from ..runs.config import RunConfig
from ..runs.simulate import Result, simulate
from ..util.typing import Any, Array, ArrayLike, IntArray
from .base import SitedTable
from .inference import Shown
from .parameters import with_knobs

_Asked = tuple[Rows, RunConfig, dict[str, Any], Callable[[Result], Array]]  # and what `simulate` takes besides; a model
_READ = "the target's bounds were read off the rows, and epsilon does not cover that"


@with_knobs("relation", "sites_per_row", "colluders", "rho", max_weight=None)
class ConsensusRegressor(SitedTable, Shown, RegressorMixin, BaseEstimator):
    """A linear regression of a bounded number, trained across sites that exchange noisy vectors instead of rows.

    Parameters
    ----------
    y_bounds : (float, float) or None, default=None
        Public bounds of the target; targets beyond them are clipped.  A release needs them.  None reads them off y, in
        a simulation only, and the statement says so.
    loss : str, default="squared"
        "squared" releases second moments once, and gradients of Huber's loss at public points
        (:mod:`sottovoce.answers.regression`).  "huber-residual:H", "log-cosh:H" and "quantile:Q" train by `method`.
    method : str, default="auto"
        For the losses that train: a name that ``sottovoce methods`` lists.  "auto" is ``momentum``, or ``prox_admm``
        without a delta.
    rounds : int, default=100
    data_norm : float, default=1.0
        Declared bound on the Euclidean norm of a row.  The squared loss weighs longer rows down instead of shortening
        them (:mod:`sottovoce.problem.weighted_loss`): unless the model is right, coefficients are those of weighted
        rows.
    inference : bool, default=False
        Spend the whole budget on coefficients with intervals (:mod:`sottovoce.answers.least_squares`); squared loss
        only. They are not shrunk, so with much noise they predict worse.
    epsilon, delta, trust, n_sites, fit_intercept, accounting, random_state
        As for :class:`sottovoce.ConsensusClassifier`.
    knobs : dict or None, default=None
        `relation`, `sites_per_row`, `colluders`, `max_weight`, and `rho`, which the squared loss does not read.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        In the units of X and y.
    intercept_ : float
    coefficients_ : sottovoce.answers.inference.Coefficients
        With `inference`: estimates, standard errors, intervals and what was refused.
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
    >>> y = 10.0 + 3.0 * X[:, 0] + rng.normal(size=4000)
    >>> model = ConsensusRegressor((0.0, 20.0), data_norm=3.0, trust="sum", random_state=0).fit(X, y)
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
        data_norm: float = 1.0,
        fit_intercept: bool = True,
        accounting: str | None = None,
        random_state: Any = None,
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
        self.fit_intercept = fit_intercept
        self.accounting = accounting
        self.random_state = random_state
        self.inference = inference
        self.knobs = knobs

    def fit(
        self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train across sites.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Numbers.
        groups, sample_weight : array-like of shape (n_samples,), optional
            As for :meth:`sottovoce.ConsensusClassifier.fit`.
        """
        if self.y_bounds is None and self.random_state is None:
            rule = "a release needs the target's bounds declared: the rows' own are private"
            raise InvalidInput("y_bounds", None, rule, "give y_bounds=(lo, hi), or a random_state for a simulation")
        self._check_norm()
        self._check_inference(sample_weight)
        features = self._table(X, reset=True)
        if len(features) < 2:
            raise InvalidInput("X", None, "n_samples=1 is too few for a regression", "give more rows")
        target = self._target(y, len(features))
        task, caveat = self._task(target)
        seed, sites, parts = self._deal(groups, len(features))
        knobs = self._run_fields()
        knobs = {name: knobs[name] for name in knobs.keys() - {"method", "loss", "rounds", "rho"}} | {"seed": seed}
        offsets = task.encode(target)
        counts, of_weights = self._weights(sample_weight, parts)
        self.__dict__.pop("coefficients_", None)
        asks = self._squared if self.loss == SQUARED else self._by_rounds
        rows, run, recipe, model_of_result = asks(features, task, parts, knobs)
        rows = rows.with_offset([offsets[part] for part in parts])
        rows = rows if counts is None else rows.with_weight(counts)
        result = simulate(run, rows, caveat=(caveat, of_weights), **recipe)
        model = model_of_result(result)
        half = 0.5 * (task.high - task.low)
        self.coef_ = half * model[:-1]
        self.intercept_ = float(task.low + half + half * model[-1]) if self.fit_intercept else task.low + half
        self.y_bounds_, self.sites_, self.privacy_spent_ = (task.low, task.high), sites, result.privacy
        self._tell_norm(features)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = math.isfinite(self.epsilon)  # few rows, and noise
        return tags

    def _target(self, y: ArrayLike, n: int) -> Array:
        self._check_y(y, "number")

        def read() -> Array:
            found = column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64, input_name="y"), warn=True)
            check_consistent_length(np.empty(n), found)
            return np.asarray(found)

        return np.asarray(checked("y", read))

    def _task(self, y: Array) -> tuple[BoundedNumber, str | None]:
        if self.y_bounds is not None:
            try:
                low, high = self.y_bounds
            except (TypeError, ValueError):
                rule = "must be two numbers, the lower first"
                raise InvalidInput("y_bounds", None, rule, "use y_bounds=(0, 60)") from None
            return BoundedNumber(low, high), None
        low, high = float(y.min()), float(y.max())
        return BoundedNumber(low, high if high > low else low + 1.0), _READ

    def _check_inference(self, sample_weight: ArrayLike | None) -> None:
        if not self.inference:
            return
        if self.loss != SQUARED or not self.fit_intercept:
            raise InvalidInput("inference", True, "is for the squared loss with an intercept", "leave it out")
        if sample_weight is not None:
            raise InvalidInput("sample_weight", None, WEIGHED, "leave weights out, or use inference=False")

    def _squared(self, X: Array, task: BoundedNumber, parts: list[IntArray], knobs: dict[str, Any]) -> _Asked:
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(X.shape[1])])
        naming = of_columns([str(name) for name in names], self.data_norm)
        rows = naming.rows([(X[part], np.ones(len(part))) for part in parts])
        constant, run = naming.constant, RunConfig("auto", **knobs)
        free = np.ones(naming.d) if self.fit_intercept else 1.0 - constant
        method: Recipe = slopes_of(naming) if self.inference else LeastSquares(constant=constant, free=free)

        def model(result: Result) -> Array:
            if not self.inference:
                return naming.into_units @ result.outcome[0]
            self.coefficients_ = table_of(result.outcome, naming, task, run.delta)
            return naming.into_units @ model_of(result.outcome)[0]

        return rows, run, {"method": method, "loss": Weighted(HuberResidual(1.0))}, model

    def _by_rounds(self, X: Array, task: BoundedNumber, parts: list[IntArray], knobs: dict[str, Any]) -> _Asked:
        if str(self.loss).partition(":")[0] not in {text.partition(":")[0] for text in loss_texts(numbers=True)}:
            rule = f"must be 'squared', {', '.join(loss_texts(numbers=True))}"
            raise InvalidInput("loss", self.loss, rule, "use loss='squared'")
        encoded, method = self._encode(X), self.method
        rows = Rows.build([(encoded[part], np.ones(len(part))) for part in parts])
        if method == defaults.METHOD:
            method = defaults.method_of_numbers(self.trust or "nobody", knobs["delta"])
        run = RunConfig(method, loss=self.loss, rounds=self.rounds, rho=self._knobs()["rho"], **knobs)
        return rows, run, {}, lambda result: np.append(*(x[0] for x in self._decode(result.consensus)))

    def predict(self, X: ArrayLike) -> Array:
        """The number of every row, shape (n_samples,), within the bounds."""
        check_is_fitted(self, "coef_")
        features = self._table(X, reset=False)
        return np.clip(features @ self.coef_ + self.intercept_, *self.y_bounds_)


@with_knobs("relation", rho=0.0002, max_weight=None)
class PrivateRegressor(ConsensusRegressor):
    """:class:`ConsensusRegressor` at one site, which releases its model once.

    Parameters
    ----------
    y_bounds, loss, method, epsilon, delta, rounds, data_norm, fit_intercept, accounting, random_state
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
        data_norm: float = 1.0,
        fit_intercept: bool = True,
        accounting: str | None = None,
        random_state: Any = None,
        knobs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            y_bounds, loss=loss, method=method, epsilon=epsilon, delta=delta, n_sites=1, rounds=rounds, knobs=knobs,
            data_norm=data_norm, fit_intercept=fit_intercept, accounting=accounting, random_state=random_state,
        )  # fmt: skip


__all__ = ["ConsensusRegressor", "PrivateRegressor"]
