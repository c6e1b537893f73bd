"""The estimators :class:`ConsensusRegressor` (several sites) and :class:`PrivateRegressor` (one).

Both are linear regressions of a number with public bounds.  The steps of `fit` are functions of
:mod:`sottovoce.estimators.regressor_steps`; here are parameters, attributes and predictions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from ..answers.regression import SQUARED
from ..data.frames import read_frame
from ..data.labels import parse_number_labels
from ..runs import defaults
from ..util.typing import Any, Array, ArrayLike
from .base import LinearEstimator
from .declared import coefficient_columns, find_label_column
from .fitting import run_planned_fit
from .parameters import declare_knobs
from .regressor_steps import (
    Declared,
    Encoded,
    Fitted,
    decode_regressor,
    encode_numbers,
    plan_regressor,
    predict_bounded_numbers,
    validate_regressor,
)


@declare_knobs(
    "relation", "sites_per_row", "colluders", "rho", max_weight=None, site_constants=None
)
class ConsensusRegressor(RegressorMixin, LinearEstimator):
    """A linear regression of a bounded number across sites that exchange noisy vectors, not rows.

    Parameters
    ----------
    y_bounds : (float, float) or None, default=None
        Public bounds of the target; targets beyond them are clipped.  A release needs them.  None
        takes those of the schema's label; without one it reads them off y, in a simulation only,
        and the statement says so.
    loss : str, default="squared"
        "squared" releases second moments once, and gradients of Huber's loss at public points
        (:mod:`sottovoce.answers.regression`).  "huber-residual:H", "log-cosh:H" and "quantile:Q"
        train by `method`.
    method : str, default="auto"
        For the losses that train: a name that ``sottovoce methods`` lists.  "auto" is ``momentum``,
        or ``prox_admm`` without a delta.
    rounds : int, default=100
    data_norm : float or None, default=None
        Declared bound on the Euclidean norm of a row; None is 1, and a release warns of it.  The
        squared loss weighs longer rows down instead of shortening them
        (:mod:`sottovoce.problem.weighted_loss`): unless the model is right, coefficients are those
        of weighted rows.
    inference : bool, default=False
        Spend the whole budget on coefficients with intervals
        (:mod:`sottovoce.answers.least_squares`); squared loss only. They are not shrunk, so with
        much noise they predict worse.
    epsilon, delta, schema, columns, trust, n_sites, fit_intercept, accounting, random_state,
    verbose
        As for :class:`sottovoce.ConsensusClassifier`.
    knobs : dict or None, default=None
        `relation`, `sites_per_row`, `colluders`, `max_weight`, `site_constants` (whether every site
        has a constant of its own under the squared loss; None for yes unless rows are dealt at
        random), and `rho`, which the squared loss does not read.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        In the units of X and y.
    intercept_ : float
        Where every site has a constant, their average by the sites' shares of rows.
    site_intercept_ : ndarray of shape (n_sites,)
        Sites that `groups` or the schema's site column name have constants of their own under the
        squared loss.
    coefficients_ : dict, or sottovoce.answers.coefficients.Coefficients
        A table that ``pandas.DataFrame`` takes; with `inference`: estimates, standard errors,
        intervals and what was refused.
    y_bounds_ : (float, float)
    n_features_in_, privacy_spent_, sites_
        As for :class:`sottovoce.ConsensusClassifier`.

    Raises
    ------
    InvalidInput
        From :meth:`fit`, before anything is spent, on a parameter that breaks a rule.

    Notes
    -----
    *Guarantee*: As for :class:`sottovoce.ConsensusClassifier`.  The target is part of its row, and
    protected with it.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import ConsensusRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 2))
    >>> y = 15.0 + 3.0 * X[:, 0] + rng.normal(size=4000)
    >>> model = ConsensusRegressor((0.0, 30.0), data_norm=3.0, trust="sum", random_state=0)
    >>> model = model.fit(X, y)
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

    def fit(
        self, X: Any, y: Any = None, groups: Any = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train across sites.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a frame under a schema
        y : array-like of shape (n_samples,), optional
            Numbers; None for the column that the schema declares.
        groups, sample_weight : array-like of shape (n_samples,), optional
            As for :meth:`sottovoce.ConsensusClassifier.fit`.

        Returns
        -------
        ConsensusRegressor

        Raises
        ------
        InvalidInput
            As for :meth:`sottovoce.ConsensusClassifier.fit`.
        """
        declared = self._warn_of_step(
            validate_regressor(self, many_fits=self._follows_another_clone())
        )
        encoded = self._warn_of_step(encode_numbers(declared, X, y, groups, sample_weight))
        planned = self._warn_of_step(plan_regressor(declared, encoded.public))
        results = run_planned_fit(planned, encoded, verbose=self.verbose)
        return self._set_fitted_attributes(
            declared, encoded, decode_regressor(declared, encoded, planned, results)
        )

    def _set_fitted_attributes(self, declared: Declared, encoded: Encoded, fitted: Fitted) -> Self:
        """Set the fitted attributes, then warn of the notes on the fit."""
        self._store_column_names(declared.terms, encoded.features)
        self.coef_ = fitted.coef
        self.intercept_ = fitted.intercept
        self.site_intercept_ = fitted.site_intercept
        self.y_bounds_ = fitted.bounds
        self.sites_ = fitted.sites
        self.privacy_spent_ = fitted.result.privacy
        self._result = fitted.result
        self._answered = fitted.answered
        self.coefficients_: Any = fitted.table
        if fitted.table is None:
            self.coefficients_ = coefficient_columns(self)
        self._warn_of_step(fitted, stacklevel=3)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # scikit-learn's checks fit few rows, which noise drowns.
        tags.regressor_tags.poor_score = math.isfinite(self.epsilon)
        return tags

    def predict(self, X: Any, groups: Any = None) -> Array:
        """Predict the number of every row, within the bounds of the target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a frame under a schema
        groups : array-like of shape (n_samples,), optional
            The site of every row, for models with a constant for every site; None for what the
            schema's site column says, if the fit read it.  A row of no site that the model knows
            gets the average of the constants, and a notice says how many do.

        Returns
        -------
        ndarray of shape (n_samples,)
            In the target's unit.
        """
        check_is_fitted(self, "coef_")
        rows = self._read_rows_to_predict(X)
        where = self._site_positions(rows, groups)
        return predict_bounded_numbers(
            self.coef_, self.intercept_, self.y_bounds_, self._answered, rows, where
        )

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> float:
        """Compute R2 on test rows, without noise: for the holder of the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a frame under a schema
        y : array-like of shape (n_samples,), optional
            Numbers to predict.  Under a schema that declares them it may be left out, and rows
            without one are left out.
        sample_weight : array-like of shape (n_samples,), optional
            None for equal weights.
        groups : array-like of shape (n_samples,), optional
            The site of every row, as for :meth:`predict`.

        Returns
        -------
        float
            The coefficient of determination, at most 1.

        Guarantee
        ---------
        None: the score reads the rows, and no epsilon covers it.
        """
        if y is not None or self.schema_ is None:
            return float(r2_score(y, self.predict(X, groups), sample_weight=sample_weight))
        table = read_frame(X, self.columns)
        numbers = parse_number_labels(find_label_column(self.schema_, table, None), self.schema_.na)
        known = np.isfinite(numbers)
        weight = None
        if sample_weight is not None:
            weight = np.asarray(sample_weight)[known]
        answers = self.predict(table, groups)
        return float(r2_score(numbers[known], answers[known], sample_weight=weight))


@declare_knobs("relation", rho=0.0002, max_weight=None)
class PrivateRegressor(ConsensusRegressor):
    """:class:`ConsensusRegressor` at one site, which releases its model once.

    Parameters
    ----------
    y_bounds, loss, method, epsilon, delta, rounds, data_norm, schema, columns, fit_intercept,
    accounting
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
    >>> model = PrivateRegressor((0.0, 20.0), data_norm=3.0, random_state=0)
    >>> model = model.fit(x[:, None], 10.0 + 3.0 * x)
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
            y_bounds,
            loss=loss,
            method=method,
            epsilon=epsilon,
            delta=delta,
            n_sites=1,
            rounds=rounds,
            knobs=knobs,
            data_norm=data_norm,
            fit_intercept=fit_intercept,
            accounting=accounting,
            random_state=random_state,
            schema=schema,
            columns=columns,
            verbose=verbose,
        )


__all__ = ["ConsensusRegressor", "PrivateRegressor"]
