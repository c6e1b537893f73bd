"""scikit-learn estimators."""

from __future__ import annotations

import math
import secrets
from dataclasses import fields
from typing import Self

import numpy as np
from scipy.special import expit, log_expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from .data import partition
from .data.rows import Rows
from .errors import InvalidInput
from .privacy.durable import DurableLedger
from .privacy.ledger import Ledger
from .schedules import Schedule
from .simulate import RunConfig, simulate
from .typing import Any, Array, ArrayLike, IntArray

_DEFAULT = RunConfig()
_SLACK = 1.0 + 1e-12  # so that rounding cannot carry a row of norm one outside the unit ball


def _is_logistic(estimator: Any) -> bool:
    return str(estimator.loss) == "logistic"


class ConsensusClassifier(ClassifierMixin, BaseEstimator):
    """A linear classifier trained across sites that exchange noisy vectors instead of rows.

    Parameters
    ----------
    method : str, default="mr_admm"
        A name of ``sottovoce methods``.
    loss : str, default="logistic"
        ``"logistic"``, or ``"huber:H"`` for the Huberised hinge of half-width H.
    epsilon : float or tuple of n_sites floats, default=1.0
        Privacy budget of the whole fit, per row of one site, under `relation`.  ``inf`` fits without noise.
    delta : float or None, default=None
        Probability left out of the guarantee of the whole fit; None for pure epsilon.
    graph : str, default="ring"
        The network, see :func:`sottovoce.graphs.make`.
    n_sites : int, default=5
        Sites to which :meth:`fit` deals rows at random, in parts of equal size up to one row, if it is given no
        groups.
    rounds : int, default=10
        Exchanges with the neighbours.
    data_norm : float, default=1.0
        Declared bound on the Euclidean norm of a row, public like every parameter.  Rows are divided by it, and rows
        beyond it are shortened to it: a step on each row alone, so it costs no privacy.  It is never read off data.
    fit_intercept : bool, default=True
        Append a constant to every row, inside the unit ball.
    C, rho, eta, eta_growth, gamma, phi, noise_growth : float
        See :class:`sottovoce.simulate.RunConfig`, also for the other forms of `eta` and `eta_growth`;
        :meth:`sottovoce.facts.Facts.sklearn_weights` maps C and rho to scikit-learn's C.
    form : {"corrected", "printed"}, default="corrected"
    relation : {"replace-one", "zero-out"}, default="replace-one"
    accountant : str, Ledger, DurableLedger or None, default=None
        How releases add up: "pure", "zcdp", "rdp", "pld" or "best"; None is "pure" without a delta, else "best".
        A ledger does that and holds a budget for several fits, which each fit is charged to before it draws: a
        :class:`sottovoce.privacy.ledger.Ledger` for the life of this process, or a
        :class:`sottovoce.privacy.durable.DurableLedger` for that of the data set; a fit that the latter has made
        before is read from it and costs nothing.
    sites_per_row : int, default=1
        At how many sites a person may have a row.
    tol : float, default=1e-8
        Certificate of the local solves.
    random_state : int, RandomState or Generator instance, or None, default=None
        None draws noise, and the deal of rows to sites, from the operating system.  Anything else keys them: the fit
        can be repeated, by whoever knows the key, and is a simulation rather than a release.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features)
        Average over sites, in the units of X.
    intercept_ : ndarray of shape (1,)
    classes_ : ndarray of shape (2,)
        The two labels, taken as public.
    n_features_in_ : int
    privacy_spent_ : dict
        Epsilon, delta, relation, accountant, what every accountant gives, spend per site, and what they mean; under
        ``"says"`` in words.
    sites_ : ndarray of shape (n_sites,)
        Site identifiers, taken as public.
    site_coef_ : ndarray of shape (n_sites, n_features)
    site_intercept_ : ndarray of shape (n_sites,)
    n_iter_ : int
        Rounds completed.
    stopped_ : str
        Why the fit ended.

    Guarantee
    ---------
    The fitted attributes are differentially private for one row of one site, against whoever sees every message of
    every round, with the epsilon and delta in ``privacy_spent_``.  Every fit is a release of its own: fits add up.
    Row counts, labels' names and sites' names are not protected, and neither is the fact that :meth:`fit` refused
    rows (NaN, one class).

    Raises
    ------
    InvalidInput
        From :meth:`fit`, before anything is spent, on a parameter that breaks a rule.
    ValueError
        From :meth:`fit`, before anything is spent, on X and y that scikit-learn would refuse, or that do not have
        two classes.

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
        method: str = _DEFAULT.method,
        *,
        loss: str = _DEFAULT.loss,
        epsilon: float | tuple[float, ...] = _DEFAULT.epsilon,
        delta: float | None = _DEFAULT.delta,
        graph: str = _DEFAULT.graph,
        n_sites: int = 5,
        rounds: int = _DEFAULT.rounds,
        data_norm: float = 1.0,
        fit_intercept: bool = True,
        C: float = _DEFAULT.C,
        rho: float = _DEFAULT.rho,
        eta: float | tuple[float, ...] | Schedule | None = _DEFAULT.eta,
        eta_growth: float | tuple[float, ...] = _DEFAULT.eta_growth,
        gamma: float = _DEFAULT.gamma,
        phi: float = _DEFAULT.phi,
        noise_growth: float = _DEFAULT.noise_growth,
        form: str = _DEFAULT.form,
        relation: str = _DEFAULT.relation,
        accountant: str | Ledger | DurableLedger | None = _DEFAULT.accountant,
        sites_per_row: int = _DEFAULT.sites_per_row,
        tol: float = _DEFAULT.tol,
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.loss = loss
        self.epsilon = epsilon
        self.delta = delta
        self.graph = graph
        self.n_sites = n_sites
        self.rounds = rounds
        self.data_norm = data_norm
        self.fit_intercept = fit_intercept
        self.C = C
        self.rho = rho
        self.eta = eta
        self.eta_growth = eta_growth
        self.gamma = gamma
        self.phi = phi
        self.noise_growth = noise_growth
        self.form = form
        self.relation = relation
        self.accountant = accountant
        self.sites_per_row = sites_per_row
        self.tol = tol
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train across sites.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels of any two values.
        groups : array-like of shape (n_samples,), optional
            The site of every row; its distinct values are the sites, and `n_sites` is not used.

        Returns
        -------
        ConsensusClassifier
        """
        features, target = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(target)
        classes, label = np.unique(target, return_inverse=True)
        if len(classes) > 2:
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {type_of_target(target)}."
            )
        if len(classes) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of two classes, but the data contains only one class"
            )
        if not (math.isfinite(self.data_norm) and self.data_norm > 0):
            rule = "must be finite and > 0, because rows are divided by it"
            raise InvalidInput("data_norm", self.data_norm, rule, "declare a public bound on the norm of a row")
        if isinstance(self.accountant, DurableLedger) and groups is None:
            rule = "a ledger on disk belongs to sites that stay the same"
            raise InvalidInput("groups", None, rule, "give the site of every row to fit")
        seed = self._seed()
        sites, parts = self._sites(groups, len(target), seed)
        encoded, signs = self._encode(features), np.where(label == 1, 1.0, -1.0)
        rows = Rows.build([(encoded[part], signs[part]) for part in parts])
        shared = {f.name for f in fields(RunConfig)} & set(self.get_params(deep=False))
        knobs = {name: getattr(self, name) for name in shared}
        ledger = self.accountant if isinstance(self.accountant, Ledger | DurableLedger) else None
        if ledger is not None:
            knobs["accountant"] = None
        result = simulate(RunConfig(seed=seed, **knobs), rows, ledger=ledger)
        self.coef_, self.intercept_ = self._decode(result.consensus)
        self.site_coef_, self.site_intercept_ = self._decode(result.models[0])
        self.classes_, self.sites_ = classes, sites
        self.privacy_spent_, self.n_iter_, self.stopped_ = result.privacy, result.rounds, result.stopped
        return self

    def _seed(self) -> int | None:
        state = self.random_state
        if isinstance(state, np.random.Generator):
            return int(state.integers(np.iinfo(np.int32).max))
        if state is not None and not isinstance(state, int | np.integer):
            return int(check_random_state(state).randint(np.iinfo(np.int32).max))
        if state is not None and state < 0:
            raise InvalidInput("random_state", state, "must be >= 0", "use random_state=0, or None for a release")
        return None if state is None else int(state)

    def _sites(self, groups: ArrayLike | None, n: int, seed: int | None) -> tuple[Any, list[IntArray]]:
        """Identifiers of the sites, and the rows of each."""
        if groups is None:
            if not (isinstance(self.n_sites, int | np.integer) and 1 <= self.n_sites <= n):
                rule = f"must be a whole number from 1 to the number of rows, {n}"
                raise InvalidInput("n_sites", self.n_sites, rule, "use fewer sites or more rows")
            deal = secrets.randbits(64) if seed is None else seed
            return np.arange(self.n_sites), partition("iid", np.ones(n), self.n_sites, deal)
        names = column_or_1d(groups)
        if len(names) != n:
            raise InvalidInput("groups", None, f"must name a site for each of the {n} rows", "give one value a row")
        try:
            sites, index = np.unique(names, return_inverse=True)
        except TypeError:  # None, or names of several types
            sites = np.array([np.nan])
        if np.any(sites != sites):
            raise InvalidInput("groups", None, "has rows without a site, or names of several types", "correct them")
        return sites, [np.flatnonzero(index == i) for i in range(len(sites))]

    def _encode(self, X: Array) -> Array:
        """Rows into the unit ball: ``(x / R, 1) / sqrt 2``, where ``x`` is shortened to norm R if it is longer."""
        peak = np.maximum(np.abs(X).max(axis=1, keepdims=True), self.data_norm)  # no square can overflow below it
        unit = X / peak
        unit /= np.maximum(1.0, np.linalg.norm(unit, axis=1, keepdims=True)) * _SLACK
        return np.hstack([unit, np.ones((len(X), 1))]) / (math.sqrt(2.0) * _SLACK) if self.fit_intercept else unit

    def _decode(self, W: Array) -> tuple[Array, Array]:
        """Coefficients and intercepts in the units of X, with which rows within `data_norm` have the same margins."""
        if not self.fit_intercept:
            return W / (self.data_norm * _SLACK), np.zeros(len(W))
        W = W / (math.sqrt(2.0) * _SLACK)
        return W[:, :-1] / (self.data_norm * _SLACK), W[:, -1]

    def decision_function(self, X: ArrayLike) -> Array:
        """``X @ coef_.T + intercept_``, shape (n_samples,): a linear form, rows beyond `data_norm` included."""
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(X @ self.coef_[0] + self.intercept_[0])

    def predict(self, X: ArrayLike) -> Any:
        """The class of every row, shape (n_samples,)."""
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(int)]

    @available_if(_is_logistic)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities of the two classes, shape (n_samples, 2); logistic loss only."""
        margin = self.decision_function(X)
        return np.column_stack([expit(-margin), expit(margin)])

    @available_if(_is_logistic)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Logarithms of :meth:`predict_proba`."""
        margin = self.decision_function(X)
        return np.column_stack([log_expit(-margin), log_expit(margin)])
