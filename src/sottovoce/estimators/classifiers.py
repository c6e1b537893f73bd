"""The estimators :class:`ConsensusClassifier` (several sites) and :class:`PrivateClassifier` (one).

The steps of `fit` are functions of :mod:`sottovoce.estimators.classifier_steps`; here are the
parameters, the fitted attributes and the predictions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import numpy as np
from scipy.special import expit, log_expit, log_softmax
from sklearn.base import ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ..data.frames import read_frame
from ..data.validation import typed_labels
from ..errors import NotCalibrated
from ..ledger.durable import DurableLedger
from ..ledger.memory import Ledger
from ..problem.clipped import NOT_CALIBRATED
from ..problem.task import task_of_classes
from ..runs import defaults
from ..runs.auto_search import Choice
from ..runs.centre import Decision
from ..runs.config import RunConfig
from ..runs.forecast import Forecast
from ..util.typing import Any, Array, ArrayLike
from .as_sklearn import to_logistic_regression
from .base import LinearEstimator
from .classifier_steps import (
    AUTO,
    Declared,
    Fitted,
    LabelledRows,
    decode_classifier,
    encode_labelled_rows,
    plan_classifier,
    validate_classifier,
)
from .declared import (
    coefficient_columns,
    find_label_column,
    read_declared_labels,
    read_label_column,
)
from .fitting import Planned, run_planned_fit
from .notices import Note
from .parameters import OFFERED, declare_knobs
from .predicting import LinearModel

_DEFAULT = RunConfig()


def _has_probabilities(estimator: Any) -> bool:
    """Return true if the loss that was asked for models probabilities."""
    return str(estimator.loss) in (AUTO, "logistic", "softmax")


@declare_knobs(
    *(
        "relation",
        "sites_per_row",
        "colluders",
        "graph",
        "C",
        "rho",
        "eta",
        "eta_growth",
        "noise_growth",
        "form",
    ),
    *OFFERED,
    tol=None,
    max_weight=None,
    centre=True,
    site_constants=None,
)
class ConsensusClassifier(ClassifierMixin, LinearEstimator):
    """A linear classifier trained across sites that exchange noisy vectors instead of rows.

    Parameters
    ----------
    method : str, default="auto"
        A name that ``sottovoce methods`` lists.  "auto" lets
        :func:`sottovoce.runs.auto_search.choose_method` pick a method from public facts, and with
        it `rounds`, `eta`, `rho` and `max_grad_norm` where they have their defaults.  It takes
        sites that are given as groups to differ in their labels.
    epsilon : float or tuple of n_sites floats, default=1.0
        Privacy budget of the whole fit, per row of one site, under the knob `relation`.  ``inf``
        fits without noise.
    delta : float or None, default=1e-5
        The addend of the guarantee ``P(S) <= e^epsilon Q(S) + delta`` of the whole fit; None for
        pure epsilon, which ``accounting="pure"`` and a ledger of pure epsilon imply.
    data_norm : float or None, default=None
        Declared bound on the Euclidean norm of a row: public, never computed from the data.  Longer
        rows are shortened to it, then all are divided by it.  None is 1, and a release warns of it.
        A simulation warns (:class:`sottovoce.errors.HolderNote`) if it shortens every row, or if no
        row reaches half of it.
    schema : path, dict, Schema or None, default=None
        Public facts about named columns (``docs/reference/data.md``), in place of `data_norm`.  X
        is then a frame of pandas, polars or pyarrow, a dict of columns, or an array with names;
        text, gaps, categories and dates are encoded as declared.  The columns of the label, the
        site and the weight may be in the frame.
    columns : sequence of str or None, default=None
        Under a schema, names for the columns of an array that has none.
    classes : sequence of labels or None, default=None
        The declared labels, two or more in any order: all text, all numbers or all booleans.  A
        release needs them, because which labels occur is private.  Rows with another label, or
        none, count as rows of zeros.  None reads those of the schema; without one, the labels are
        read off y, in a simulation only, and the statement says so.
    trust : {"nobody", "sum", "curator"} or None, default=None
        Whom people trust with their rows: nobody; nobody with more than the sum over all sites
        (``docs/privacy/sums.md``), nearly as accurate as a curator; or a curator who holds all
        rows.  None for nobody, or whom the method's name says.
    loss : str, default="auto"
        One of
        <losses>
        or ``"softmax"``: multinomial logistic regression, one run for all classes, for methods with
        noise on answers or gradients (`prox_admm`, `prox_average`, `pvp`, `output`, `ipp_admm`,
        `dgd`). "auto" is logistic for two classes, and softmax for more unless a method is named
        that does not have it; "logistic" trains each of more classes against the rest.
    inference : bool, default=False
        Spend the whole budget on coefficients with intervals (:mod:`sottovoce.answers.inference`),
        for two classes. Rows longer than `data_norm` are then weighed down and not shortened:
        unless the model is right, coefficients are those of weighted rows.
    class_weight : dict or None, default=None
        Public weights of classes, 1 by default, divided by the largest; not "balanced", which
        counts private labels.
    n_sites : int, default=5
        Number of sites to which :meth:`fit` without groups deals the rows at random, as evenly as
        possible.
    rounds : int, default=10
        Exchanges with the neighbours.
    fit_intercept : bool, default=True
        Append a constant to every row, then scale the row back into the unit ball.
    accounting : {"pure", "zcdp", "rdp", "pld", "best"} or None, default=None
        How releases add up; None is "pure" without a delta, else "best".
    ledger : Ledger, DurableLedger or None, default=None
        A budget for several fits, with its own accounting, charged before any noise is drawn.  A
        :class:`sottovoce.ledger.memory.Ledger` lasts as long as this process.  A
        :class:`sottovoce.ledger.durable.DurableLedger` lasts as long as the data set, and replays
        fits that it has. Clones share the ledger; it is not pickled and not sent to other
        processes.
    random_state : int, RandomState or Generator instance, or None, default=None
        None draws noise, and the deal of rows to sites, from the operating system.  Anything else
        makes the fit a simulation, not a release: whoever knows it can repeat the fit.
    verbose : bool or None, default=None
        True says what is being done, False nothing; None shows a bar on a terminal once a fit is
        long.
    knobs : dict or None, default=None
        Any of the other parameters by name, such as ``{"sites_per_row": 2, "rho": 0.01}``.
        ``set_params(knobs__rho=...)`` and a search over ``knobs__rho`` set one.

    Other Parameters
    ----------------
    relation, sites_per_row, colluders, graph, C, rho, eta, eta_growth, noise_growth
        As for :class:`sottovoce.RunConfig`; the first three are part of the guarantee.
        :meth:`sottovoce.problem.facts.Facts.sklearn_weights` maps C and rho to scikit-learn's C.
    max_weight : float or None, default=None
        Public cap on the `sample_weight` of :meth:`fit`; a release with weights needs it.
    centre : bool, default=True
        Release the means of all columns first, within epsilon, and take them from every row, where
        public facts say that it pays (:func:`sottovoce.runs.centre.decide_centring`).  Rows farther
        from it are shortened.  Not with `inference`.
    site_constants : bool or None, default=None
        Whether `inference` gives every site a constant of its own; None for yes unless rows are
        dealt at random.
    form : {"corrected", "printed"}, default="corrected"
        A printed form needs a method's name, and ``delta=None`` where the paper claims a pure
        epsilon.
    tol : float or None, default=None
        Relative gradient norm to which local solves are certified; None matches it to the noise of
        each release.
    <knobs>

    Attributes
    ----------
    coefficients_ : dict, or sottovoce.answers.coefficients.Coefficients
        A table that ``pandas.DataFrame`` takes: names, coefficients, and odds ratios of the
        logistic loss for two classes.  With `inference`: estimates, standard errors, intervals and
        what was refused.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Average over sites, in the units of X.  With more than two classes, each class against the
        rest: one run a class, with its own noise, all within epsilon and delta; or one run, with
        the softmax loss.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted as by ``np.unique``; of two, the second is the positive one.
    n_features_in_ : int
    privacy_spent_ : dict
        Epsilon, delta, relation, accountant, what every accountant gives, what each site spent, and
        what these numbers mean; ``"says"`` holds the statement in words, ``"caveats"`` what it does
        not cover or rests on.
    sites_ : ndarray of shape (n_sites,)
        Site identifiers, taken as public.
    site_coef_ : ndarray of shape (n_sites, n_features) or (n_sites, n_classes, n_features)
    site_intercept_ : ndarray of shape (n_sites,) or (n_sites, n_classes)
    max_grad_norm_ : float
        The cap of the run; inf for none.  With a cap, probabilities may be too sure, or not sure
        enough.
    n_iter_, stopped_ : int, str
        Rounds completed, and why the fit ended.
    choice_ : Choice or None
        What ``method="auto"`` picked, and why.
    centring_ : Decision or None
        Whether rows were centred, and what it cost; None if that was not asked.
    forecast_ : Forecast or None
        Errors on synthetic rows, to compare with each other: they do not predict the error on
        yours. A fit that is expected to be near guessing warns before anything is spent.
    schema_ : Schema or None
    loss_ : str
        The loss that was trained.

    Raises
    ------
    InvalidInput
        From :meth:`fit`, before anything is spent, on a parameter that breaks a rule, and on X, y
        and groups that scikit-learn would refuse.  The message is one line and shows no value of
        the data.  The exception is also a ValueError (and a TypeError where scikit-learn raises
        one).
    LedgerMismatch
        From :meth:`fit`, before anything is spent, if a ledger on disk belongs to other rows.

    Notes
    -----
    *Guarantee*: The fitted attributes are differentially private for one row of one site, with the
    epsilon and delta in ``privacy_spent_``, against an observer of every message of every round.
    Under trust in sums the observer may also know all that `colluders` of the sites know; under a
    trusted curator the observer sees what the curator releases. Every fit is a release of its own:
    fits add up. Not protected: row counts, declared labels, names of columns and of sites, and that
    :meth:`fit` refused X (NaN, text).  With declared classes no label can make it refuse.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import ConsensusClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3000, 2))
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> model = ConsensusClassifier(epsilon=2.0, data_norm=3.0, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9), bool(model.privacy_spent_["epsilon"] <= 2.0)
    (True, True)
    """

    def __init__(
        self,
        method: str = defaults.METHOD,
        *,
        epsilon: float | tuple[float, ...] = defaults.EPSILON,
        delta: float | None = defaults.DELTA,
        data_norm: float | None = None,
        schema: Any = None,
        columns: Sequence[str] | None = None,
        classes: Sequence[Any] | None = None,
        trust: str | None = None,
        loss: str = AUTO,
        inference: bool = False,
        class_weight: dict[Any, float] | None = None,
        n_sites: int = 5,
        rounds: int = _DEFAULT.rounds,
        fit_intercept: bool = True,
        accounting: str | None = None,
        ledger: Ledger | DurableLedger | None = None,
        random_state: Any = None,
        verbose: bool | int | None = None,
        knobs: Mapping[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.schema = schema
        self.columns = columns
        self.classes = classes
        self.trust = trust
        self.loss = loss
        self.inference = inference
        self.class_weight = class_weight
        self.n_sites = n_sites
        self.rounds = rounds
        self.fit_intercept = fit_intercept
        self.accounting = accounting
        self.ledger = ledger
        self.random_state = random_state
        self.verbose = verbose
        self.knobs = knobs

    takes_sparse: ClassVar[bool] = True
    choice_: Choice | None
    centring_: Decision | None
    forecast_: Forecast | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        coef_init: ArrayLike | None = None,
        intercept_init: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train across sites.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), or a frame under a schema
            Sparse rows (SciPy CSR) are never made dense.
        y : array-like of shape (n_samples,), optional
            Labels; None for the column that the schema declares.
        groups : array-like of shape (n_samples,), optional
            The site of every row; its distinct values are the sites, and `n_sites` is not used.
            None for the site column of the schema, if it has one, else for `n_sites` sites to which
            rows are dealt at random.
        coef_init, intercept_init : array-like of the shapes of `coef_` and `intercept_`, optional
            A public model to start from, to which the regulariser then pulls; None for zeros.  It
            changes no price, and no epsilon of this fit covers what it was computed from.  With an
            earlier private fit's model on the same rows, the costs of both fits add up.
        sample_weight : array-like of shape (n_samples,), optional
            Numbers of at least 0: a row's loss counts ``min(w, max_weight) / max_weight``.  The
            number of rows by which losses are averaged stays what it is.

        Returns
        -------
        ConsensusClassifier

        Raises
        ------
        InvalidInput
            For parameters, rows or a budget that break a rule, before anything is spent; no message
            shows a value of a row.
        """
        declared = self._warn_of_step(
            validate_classifier(self, many_fits=self._follows_another_clone())
        )
        encoded = self._warn_of_step(
            encode_labelled_rows(declared, X, y, groups, sample_weight, (coef_init, intercept_init))
        )
        planned = self._record_decisions(declared, plan_classifier(declared, encoded.public))
        results = run_planned_fit(planned, encoded, verbose=self.verbose)
        return self._set_fitted_attributes(
            declared, encoded.of, decode_classifier(declared, encoded, planned, results)
        )

    def _record_decisions(self, declared: Declared, planned: Planned) -> Planned:
        """Set `choice_`, `centring_` and `forecast_`, and warn of a poor forecast.

        Called after planning, before anything is spent.
        """
        self.choice_ = planned.choice
        self.centring_ = planned.decision
        self.__dict__.pop("forecast_", None)
        if not declared.inference:
            self.forecast_ = planned.forecast
        return self._warn_of_step(planned, stacklevel=3)

    def _set_fitted_attributes(self, declared: Declared, of: LabelledRows, fitted: Fitted) -> Self:
        """Set the fitted attributes, then warn of the notes on the fit."""
        self._store_column_names(declared.terms, of.features)
        model = fitted.model
        self.coef_ = model.coef
        self.intercept_ = model.intercept
        self.site_coef_ = fitted.site_coef
        self.site_intercept_ = fitted.site_intercept
        self.classes_ = fitted.classes
        self.sites_ = fitted.sites
        self.loss_ = fitted.loss
        self.n_iter_ = fitted.n_iter
        self.stopped_ = fitted.stopped
        self.max_grad_norm_ = fitted.max_grad_norm
        self.privacy_spent_ = fitted.result.privacy
        # One of several runs is not the whole model, so none is kept for `save`.
        self._result = None
        if fitted.whole:
            self._result = fitted.result
        self._answered = model.answered
        if model.order is not None:
            self._order = model.order
        self.coefficients_: Any = fitted.table
        if fitted.table is None:
            self.coefficients_ = coefficient_columns(self)
        self._warn_of_step(fitted, stacklevel=3)
        return self

    def decision_function(self, X: Any, groups: Any = None) -> Array:
        """Compute the margins ``X @ coef_.T + intercept_``.

        They are linear in X, also for rows that training scaled down because their norm exceeds
        `data_norm`, or their distance from a released mean does.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a frame under a schema
        groups : array-like of shape (n_samples,), optional
            The site of every row, for models with a constant for every site (`inference`); None for
            what the schema's site column says, if the fit read it.  A row of no site that the model
            knows gets the average of the constants, and a notice says how many do.

        Returns
        -------
        ndarray of shape (n_samples,), or (n_samples, n_classes) for more than two classes
        """
        check_is_fitted(self, "coef_")
        rows = self._read_rows_to_predict(X)
        model = LinearModel(
            self.coef_, self.intercept_, self._answered, getattr(self, "_order", None)
        )
        return model.margins(rows, self._site_positions(rows, groups))

    def predict(self, X: Any, groups: Any = None) -> Any:
        """Predict the class of every row.

        Parameters
        ----------
        X, groups
            As for :meth:`decision_function`.

        Returns
        -------
        ndarray of shape (n_samples,)
            Entries of `classes_`.
        """
        margins = self.decision_function(X, groups)
        return self.classes_[task_of_classes(len(self.classes_)).decode(margins.T)]

    def score(
        self, X: ArrayLike, y: Any = None, sample_weight: Any = None, groups: Any = None
    ) -> float:
        """Compute the accuracy on test rows, without noise: for the holder of the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a frame under a schema
        y : array-like of shape (n_samples,), optional
            Labels.  Under a schema that declares labels it may be left out, and rows with another
            label or none are left out.
        sample_weight : array-like of shape (n_samples,), optional
            None for equal weights.
        groups : array-like of shape (n_samples,), optional
            The site of every row, as for :meth:`decision_function`.

        Returns
        -------
        float
            The (weighted) share of rows whose class is predicted, from 0 to 1.

        Guarantee
        ---------
        None: the score reads the rows, and no epsilon covers it.
        """
        if self.schema_ is None or self.schema_.label is None or self.classes is not None:
            labels = typed_labels(np.asarray(find_label_column(self.schema_, X, y)))
            answers = self.predict(X, groups)
            return float(accuracy_score(labels, answers, sample_weight=sample_weight))
        table = read_frame(X, self.columns)
        answers = self.predict(table, groups)
        column = read_label_column(find_label_column(self.schema_, table, y), len(answers))
        labelled = read_declared_labels(self.schema_, column)
        # Rows whose label the schema does not declare count for nothing.
        known = labelled.number >= 0
        weight = None
        if sample_weight is not None:
            weight = np.asarray(sample_weight)[known]
        right = answers[known] == labelled.names[labelled.number[known]]
        return float(np.average(right, weights=weight))

    @property
    def _loss_of_fit(self) -> str:
        """Name of the loss that was trained."""
        return str(self.loss_)

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: ArrayLike, groups: Any = None) -> Array:
        """Compute the probabilities of the classes; logistic and softmax loss only.

        With more than two classes under the logistic loss, those of each class against the rest are
        scaled to a sum of one.  After training with a finite `max_grad_norm` they may be too sure,
        or not sure enough: :class:`sottovoce.errors.NotCalibrated` warns of it and names what gives
        calibrated ones (``docs/privacy/capped.md``).

        Parameters
        ----------
        X, groups
            As for :meth:`decision_function`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            In the order of `classes_`; each row sums to 1.
        """
        margin = self.decision_function(X, groups)
        self._warn_if_capped()
        if margin.ndim == 1:
            return np.column_stack([expit(-margin), expit(margin)])
        if self._loss_of_fit == "softmax":
            return np.asarray(np.exp(log_softmax(margin, axis=1)))
        # At least the smallest float, so that a row's probabilities have a sum to be divided by.
        each = np.maximum(expit(margin), np.finfo(float).tiny)
        return np.asarray(each / each.sum(axis=1, keepdims=True))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: ArrayLike, groups: Any = None) -> Array:
        """Compute the logarithms of :meth:`predict_proba`, with the same warning."""
        margin = self.decision_function(X, groups)
        if margin.ndim > 1 and self._loss_of_fit != "softmax":
            return np.asarray(np.log(self.predict_proba(X, groups)))
        self._warn_if_capped()
        if margin.ndim > 1:
            return np.asarray(log_softmax(margin, axis=1))
        return np.column_stack([log_expit(-margin), log_expit(margin)])

    def _warn_if_capped(self) -> None:
        """Warn that probabilities of a fit with clipped gradients are not calibrated."""
        if self.max_grad_norm_ < math.inf:
            self._warn_once(Note("capped", NOT_CALIBRATED, NotCalibrated), stacklevel=3)

    def to_sklearn(self) -> LogisticRegression | Pipeline:
        """Return a fitted scikit-learn ``LogisticRegression`` with the same coefficients.

        Its predictions are the same, because both are linear in X, also for rows that training
        scaled down.  Under a schema it is a pipeline from raw columns, with a
        :class:`sottovoce.SchemaTransformer` as the first step.

        Raises
        ------
        InvalidInput
            If the loss is another than the logistic one, classes were trained against the rest, or
            coefficients are those of inference under a schema.
        """
        return to_logistic_regression(self)


@declare_knobs(
    "relation", "C", "eta", "form", *OFFERED, rho=0.0002, tol=None, max_weight=None, centre=True
)
class PrivateClassifier(ConsensusClassifier):
    """A linear classifier trained at one site and released once, privately (003, chapter 3).

    Parameters
    ----------
    method : {"auto", "objective", "output", "generalised"}, default="auto"
        Objective perturbation, output perturbation, or Kifer's generalised objective perturbation.
        "auto" picks one of them, or another method of one noisy step, and the knobs `eta`, `rho`
        and `max_grad_norm` where they have their defaults, from public facts.  Any other name that
        ``sottovoce methods`` lists runs on the one site.
    epsilon, delta, data_norm, schema, columns, classes, loss, class_weight, fit_intercept,
    accounting, ledger
        As for :class:`ConsensusClassifier`.
    random_state, verbose
        As for :class:`ConsensusClassifier`.
    knobs : dict or None, default=None
        As for :class:`ConsensusClassifier`, without those of several sites and rounds.  `rho` is
        0.0002, the weight of ``||w||^2 / 2`` against C times the mean loss; `eta` is a ridge added
        to it so that noise does less, None for one in proportion to the noise.

    Notes
    -----
    *Guarantee*: As for :class:`ConsensusClassifier`.  It holds for the solver's inexact minimiser,
    because the release has noise that pays for the solver's error (U4).

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import PrivateClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3000, 2))
    >>> y = X[:, 0] > 0
    >>> model = PrivateClassifier(epsilon=0.5, data_norm=3.0, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9), bool(model.privacy_spent_["epsilon"] <= 0.5)
    (True, True)
    """

    n_sites, inference = 1, False

    def __init__(
        self,
        method: str = defaults.METHOD,
        *,
        epsilon: float = defaults.EPSILON,
        delta: float | None = defaults.DELTA,
        data_norm: float | None = None,
        schema: Any = None,
        columns: Sequence[str] | None = None,
        classes: Sequence[Any] | None = None,
        loss: str = AUTO,
        class_weight: dict[Any, float] | None = None,
        fit_intercept: bool = True,
        accounting: str | None = None,
        ledger: Ledger | DurableLedger | None = None,
        random_state: Any = None,
        verbose: bool | int | None = None,
        knobs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            method,
            epsilon=epsilon,
            delta=delta,
            data_norm=data_norm,
            classes=classes,
            loss=loss,
            n_sites=1,
            class_weight=class_weight,
            fit_intercept=fit_intercept,
            accounting=accounting,
            ledger=ledger,
            random_state=random_state,
            knobs=knobs,
            schema=schema,
            columns=columns,
            verbose=verbose,
        )
