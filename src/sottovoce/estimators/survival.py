"""The estimator :class:`ConsensusSurvival`: a discrete-time survival model across sites.

Follow-up is cut into public intervals; the hazard of an interval is the probability of the event in
it, for those who reach it.  A person's rows of all intervals are protected together
(docs/privacy/survival.md).  The steps of `fit` are functions of
:mod:`sottovoce.estimators.survival_steps`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import numpy as np
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted

from ..data.frames import read_frame
from ..reports.plots import survival_plot
from ..runs import defaults
from ..util.typing import Any, Array
from .base import PrivateEstimator
from .declared import coefficients_in_units
from .fitting import run_planned_fit
from .parameters import declare_knobs
from .showing import describe_model
from .survival_steps import (
    Declared,
    Encoded,
    Fitted,
    RatesForPeople,
    decode_hazards,
    encode_people,
    plan_hazards,
    validate_hazards,
)


@declare_knobs("relation", "colluders", "max_grad_norm", rho=0.0)
class ConsensusSurvival(PrivateEstimator):
    """A discrete-time survival model across sites, private per person.

    With `inference` the hazard in interval j is ``exp(intercept_[j] + x . coef_)`` a unit of time,
    coefficients are log hazard ratios, and a table has their intervals
    (:mod:`sottovoce.answers.rates`); all else here is about models without it.

    The log-odds of the event in interval j, for those who reach it, are ``intercept_[j] + x .
    coef_``.  Slopes are those of the grouped likelihood, where an interval that a person leaves
    without the event counts by the part that was seen; constants are corrected so that the curve of
    people without columns is that of Kaplan and Meier.

    Parameters
    ----------
    edges : sequence of float
        Public, increasing times between m intervals of finite length: m + 1 numbers.  Fewer
        intervals cost less noise.
    event_code : optional
        The value of `event` that means the event, as 2 in tables where 1 is alive: every other
        value that is not missing then means that it did not come.  None for 1, against 0, and for
        truth values.
    epsilon, delta : float
        Privacy budget of the whole fit, per person; ``inf`` fits without noise.
    trust : {"nobody", "sum", "curator"}, default="nobody"
    inference : bool, default=False
        Spend the whole budget on hazard ratios with intervals.
    rounds : int, default=5
        Newton steps, each with a Hessian and a gradient, after the life table.  Without noise as
        many as converge.  Not with `inference`.
    data_norm : float or None, default=None
        Declared bound on the Euclidean norm of a person's columns; longer ones are shortened.  None
        is 1, and a release warns of it.
    schema, columns, n_sites, accounting, random_state, verbose
        As for :class:`sottovoce.ConsensusClassifier`; a schema without weights, and without the
        time and the event.
    knobs : dict or None, default=None
        `relation`, `colluders`, `rho` (0, the weight of half the slopes' squared norm beside the
        mean over people) and `max_grad_norm` (of a row's gradient before weights).

    Attributes
    ----------
    coefficients_ : sottovoce.answers.coefficients.Coefficients
        With `inference`: hazard ratios, standard errors, intervals and what was refused;
        ``coef_table_`` is another name of it.
    coef_ : ndarray of shape (n_features,)
        Log hazard odds ratios, in the units of X; with `inference` log hazard ratios.
    intercept_ : ndarray of shape (m,)
    correction_ : ndarray of shape (m,)
        What was added to the constants of the grouped likelihood.
    converged_ : bool
        Whether the last step moved no more than its noise; a warning says if not.  From what was
        released.
    edges_ : ndarray of shape (m + 1,)
    n_features_in_, privacy_spent_, sites_
        As for :class:`sottovoce.ConsensusClassifier`.

    Raises
    ------
    InvalidInput
        From :meth:`fit`, before anything is spent, on a parameter that breaks a rule.

    Guarantee
    ---------
    As for :class:`sottovoce.ConsensusClassifier`, of a person at one site: columns, time and event
    together.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import ConsensusSurvival
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(6000, 1))
    >>> time = rng.exponential(10.0 * np.exp(-X[:, 0]))
    >>> model = ConsensusSurvival([0, 5, 10, 20], epsilon=4.0, trust="sum", random_state=0)
    >>> model = model.fit(X, np.minimum(time, 20.0), time <= 20.0)
    >>> survival = model.predict_survival([[-1.0], [1.0]])
    >>> bool(np.all(survival[0] > survival[1]))
    True
    """

    # Every interval has a constant of its own.
    fit_intercept: ClassVar[bool] = False
    # Of a fit with `inference`.
    _predictor: RatesForPeople | None = None

    def __init__(
        self,
        edges: Sequence[float],
        *,
        event_code: Any = None,
        epsilon: float = defaults.EPSILON,
        delta: float | None = defaults.DELTA,
        trust: str = "nobody",
        n_sites: int = 5,
        inference: bool = False,
        rounds: int = 5,
        data_norm: float | None = None,
        schema: Any = None,
        columns: Sequence[str] | None = None,
        accounting: str | None = None,
        random_state: Any = None,
        verbose: bool | int | None = None,
        knobs: Mapping[str, Any] | None = None,
    ) -> None:
        self.edges = edges
        self.event_code = event_code
        self.epsilon = epsilon
        self.delta = delta
        self.trust = trust
        self.n_sites = n_sites
        self.inference = inference
        self.rounds = rounds
        self.data_norm = data_norm
        self.schema = schema
        self.columns = columns
        self.accounting = accounting
        self.random_state = random_state
        self.verbose = verbose
        self.knobs = knobs

    def fit(self, X: Any, time: Any, event: Any, groups: Any = None) -> Self:
        """Train across sites.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a frame under a schema
            One row a person.
        time : array-like of shape (n_samples,), or under a schema the name of a column
            When the event came, or until when the person was seen without it.  A person without a
            time after the first edge contributes nothing to the sums, but counts as a person.
        event : array-like of shape (n_samples,), or under a schema the name of a column
            Whether the event came at that time: 1 or 0, or truth values, or what `event_code`
            declares.  A person whose value is none of these contributes nothing to the sums, but
            counts as a person.
        groups : array-like of shape (n_samples,), optional
            The site of every person.  None for the site column of the schema, if it has one, else
            for `n_sites` sites to which people are dealt at random.

        Returns
        -------
        ConsensusSurvival

        Raises
        ------
        InvalidInput
            As for :meth:`sottovoce.ConsensusClassifier.fit`.
        """
        declared = self._warn_of_step(
            validate_hazards(self, many_fits=self._follows_another_clone())
        )
        encoded = self._warn_of_step(encode_people(declared, X, time, event, groups))
        planned = self._warn_of_step(plan_hazards(declared, encoded.public, encoded.fit))
        results = run_planned_fit(planned, encoded, verbose=self.verbose)
        return self._set_fitted_attributes(
            declared, encoded, decode_hazards(declared, encoded, planned, results)
        )

    def _set_fitted_attributes(self, declared: Declared, encoded: Encoded, fitted: Fitted) -> Self:
        """Set the fitted attributes, then warn of the notes on the fit."""
        self._store_column_names(declared.terms, encoded.features)
        self._vector = fitted.vector
        self.coef_, self.intercept_, self.correction_ = (
            fitted.coef,
            fitted.intercept,
            fitted.correction,
        )
        self.__dict__.pop("coefficients_", None)
        if fitted.table is not None:
            self.coefficients_ = fitted.table
        self._predictor = fitted.predictor
        self.converged_, self.edges_, self.sites_ = fitted.converged, fitted.edges, fitted.sites
        self._result, self.privacy_spent_ = fitted.result, fitted.result.privacy
        self._warn_of_step(fitted, stacklevel=3)
        return self

    def predict_hazard(self, X: Any) -> Array:
        """Predict the probability of the event in each interval, for those who reach it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a frame under a schema
            One row a person.

        Returns
        -------
        ndarray of shape (n_samples, m)
            In (0, 1), for the m intervals between the edges.
        """
        check_is_fitted(self, "coef_")
        if self._predictor is not None:
            table = self._validate_array(X) if self.schema_ is None else self._read_columns(X)
            return self._predictor.chances(self._predictor.log_rates_of(table))
        if self.schema_ is None:
            return np.asarray(
                expit((self._validate_array(X) @ self.coef_)[:, None] + self.intercept_)
            )
        columns = self._read_columns(X)
        X = self.schema_.encode(columns, labels=False).X
        constant = coefficients_in_units(self.schema_, self._vector)[1]
        return np.asarray(expit((X @ self._vector)[:, None] + self.intercept_ - constant))

    def _read_columns(self, X: Any) -> dict[str, Any]:
        """Read the columns of the schema, and no others: times and events may be in the frame."""
        assert self.schema_ is not None
        given = read_frame(X, self.columns)
        known = {
            source
            for block in self.schema_.blocks
            for source in block.source_columns(given.columns)
        }
        return {name: column for name, column in given.columns.items() if name in known}

    @property
    def coef_table_(self) -> Any:
        """The table of hazard ratios, as `coefficients_`; AttributeError without `inference`."""
        return self.coefficients_

    def summary(self) -> str:
        """Return text: the training, the hazard ratios, and the privacy statement with caveats."""
        return describe_model(self)

    def predict_survival(self, X: Any) -> Array:
        """Predict the probability of no event by the end of each interval.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a frame under a schema
            One row a person.

        Returns
        -------
        ndarray of shape (n_samples, m)
            It falls from interval to interval.
        """
        return np.asarray(np.cumprod(1.0 - self.predict_hazard(X), axis=1), dtype=np.float64)

    def plot(self, X: Any = None, ax: Any = None) -> Any:
        """Draw survival curves.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a frame under a schema, optional
            A curve for each row.  None for one curve: of a row of zeros, or under a schema of one
            in the middle of all declared ranges, with reference levels.
        ax : matplotlib Axes, optional
            Where to draw; None for a new figure.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        InvalidInput
            If matplotlib is not installed: ``pip install 'sottovoce[plot]'``.
        """
        check_is_fitted(self, "coef_")
        if X is not None:
            curves = self.predict_survival(X)
            return survival_plot(self.edges_, curves, [f"row {k}" for k in range(len(curves))], ax)
        if self._predictor is not None:
            chances = self._predictor.chances(self._predictor.log_rates)
            return survival_plot(self.edges_, np.cumprod(1.0 - chances), (), ax)
        middle = self.intercept_
        # Under a schema, encoded columns are not zero where the columns are: the middle row is
        # that of zeros in the encoding.
        if self.schema_ is not None:
            middle = self.intercept_ - coefficients_in_units(self.schema_, self._vector)[1]
        return survival_plot(self.edges_, np.cumprod(1.0 - expit(middle)), (), ax)


__all__ = ["ConsensusSurvival"]
