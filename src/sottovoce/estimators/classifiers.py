"""Linear classifiers."""

from __future__ import annotations

import copy
import hashlib
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
from scipy.special import expit, log_expit, log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from ..answers.training import WEIGHED
from ..data.rows import Rows
from ..data.validation import checked, classes_in, declared, index_of, init_in
from ..errors import HolderNote, InvalidInput, LedgerMismatch, NotCalibrated
from ..ledger.durable import DurableLedger
from ..ledger.memory import Ledger
from ..privacy.statement import Caveat
from ..problem.clipped import NOT_CALIBRATED
from ..problem.task import TwoClasses, of_classes
from ..runs import defaults
from ..runs.auto_search import KNOBS, Choice, choose
from ..runs.centre import Centring, Decision, decide
from ..runs.simulate import Result, RunConfig, Start, simulate
from ..util.typing import Any, Array, ArrayLike
from .base import Sited
from .inference import Inferring, deal_digest
from .parameters import OFFERED, with_knobs

_DEFAULT = RunConfig()
_READ = "the classes were read off the rows, and epsilon does not cover that"


@dataclass(frozen=True)
class _LeftBehind:
    """Stands for the ledger in a pickled estimator."""

    kind: str


def _has_probabilities(estimator: Any) -> bool:
    return str(estimator.loss) in ("logistic", "softmax")


@with_knobs(
    *("relation", "sites_per_row", "colluders", "graph", "C", "rho", "eta", "eta_growth", "noise_growth", "form"),
    *OFFERED, tol=None, max_weight=None, centre=True,
)  # fmt: skip
class ConsensusClassifier(Sited, Inferring, ClassifierMixin, BaseEstimator):
    """A linear classifier trained across sites that exchange noisy vectors instead of rows.

    Parameters
    ----------
    method : str, default="auto"
        A name that ``sottovoce methods`` lists.  "auto" lets :func:`sottovoce.runs.auto_search.choose` pick a method
        from public facts, and with it `rounds`, `eta`, `rho` and `max_grad_norm` where they have their defaults.  It
        takes sites that are given as groups to differ in their labels.
    epsilon : float or tuple of n_sites floats, default=1.0
        Privacy budget of the whole fit, per row of one site, under the knob `relation`.  ``inf`` fits without noise.
    delta : float or None, default=1e-5
        The addend of the guarantee ``P(S) <= e^epsilon Q(S) + delta`` of the whole fit; None for pure epsilon, which
        ``accounting="pure"`` and a ledger of pure epsilon imply.
    data_norm : float, default=1.0
        Declared bound on the Euclidean norm of a row: public, never computed from the data.  Longer rows are shortened
        to it, then all are divided by it.  A simulation warns (:class:`sottovoce.errors.HolderNote`) if it shortens
        every row, or if no row reaches half of it.
    classes : sequence of labels or None, default=None
        The declared labels, two or more in any order: all text, all numbers or all booleans.  A release needs them,
        because which labels occur is private.  Rows with another label, or none, count as rows of zeros.  None reads
        the labels off y, in a simulation only, and the statement says so.
    trust : {"nobody", "sum", "curator"} or None, default=None
        Whom people trust with their rows: nobody; nobody with more than the sum over all sites
        (``docs/methods/sums.md``), nearly as accurate as a curator; or a curator who holds all rows.  None for nobody,
        or whom the method's name says.
    loss : str, default="logistic"
        One of
        <losses>
        or ``"softmax"``: multinomial logistic regression, one run for all classes, for methods with noise on answers or
        gradients (`prox_admm`, `prox_average`, `pvp`, `output`, `ipp_admm`, `dgd`).
    inference : bool, default=False
        Spend the whole budget on coefficients with intervals (:mod:`sottovoce.answers.inference`), for two classes.
        Rows longer than `data_norm` are then weighed down and not shortened: unless the model is right, coefficients
        are those of weighted rows.
    class_weight : dict or None, default=None
        Public weights of classes, 1 by default, divided by the largest; not "balanced", which counts private labels.
    n_sites : int, default=5
        Number of sites to which :meth:`fit` without groups deals the rows at random, as evenly as possible.
    rounds : int, default=10
        Exchanges with the neighbours.
    fit_intercept : bool, default=True
        Append a constant to every row, then scale the row back into the unit ball.
    accounting : {"pure", "zcdp", "rdp", "pld", "best"} or None, default=None
        How releases add up; None is "pure" without a delta, else "best".
    ledger : Ledger, DurableLedger or None, default=None
        A budget for several fits, with its own accounting, charged before any noise is drawn.  A
        :class:`sottovoce.ledger.memory.Ledger` lasts as long as this process.  A
        :class:`sottovoce.ledger.durable.DurableLedger` lasts as long as the data set, and replays fits that it has.
        Clones share the ledger; it is not pickled and not sent to other processes.
    random_state : int, RandomState or Generator instance, or None, default=None
        None draws noise, and the deal of rows to sites, from the operating system.  Anything else makes the fit a
        simulation, not a release: whoever knows it can repeat the fit.
    knobs : dict or None, default=None
        Any of the other parameters by name, such as ``{"sites_per_row": 2, "rho": 0.01}``.
        ``set_params(knobs__rho=...)`` and a search over ``knobs__rho`` set one.

    Other Parameters
    ----------------
    relation, sites_per_row, colluders, graph, C, rho, eta, eta_growth, noise_growth
        As for :class:`sottovoce.runs.simulate.RunConfig`; the first three are part of the guarantee.
        :meth:`sottovoce.problem.facts.Facts.sklearn_weights` maps C and rho to scikit-learn's C.
    max_weight : float or None, default=None
        Public cap on the `sample_weight` of :meth:`fit`; a release with weights needs it.
    centre : bool, default=True
        Release the means of all columns first, within epsilon, and take them away from every row, where sizes and
        budget say that it pays (:func:`sottovoce.runs.centre.decide`).  Rows are then shortened again, so a row that is
        farther than `data_norm` from the mean counts as one at that distance.  Never with `inference`.
    form : {"corrected", "printed"}, default="corrected"
        A printed form needs a method's name, and ``delta=None`` where the paper claims a pure epsilon.
    tol : float or None, default=None
        Relative gradient norm to which local solves are certified; None matches it to the noise of each release.
    <knobs>

    Attributes
    ----------
    coefficients_ : sottovoce.answers.inference.Coefficients
        With `inference`: estimates, standard errors, intervals and what was refused.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Average over sites, in the units of X.  With more than two classes, each class against the rest: one run a
        class, with its own noise, all within epsilon and delta; or one run, with the softmax loss.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted as by ``np.unique``; of two, the second is the positive one.
    n_features_in_ : int
    privacy_spent_ : dict
        Epsilon, delta, relation, accountant, what every accountant gives, what each site spent, and what these
        numbers mean; ``"says"`` holds the statement in words.
    sites_ : ndarray of shape (n_sites,)
        Site identifiers, taken as public.
    site_coef_ : ndarray of shape (n_sites, n_features) or (n_sites, n_classes, n_features)
    site_intercept_ : ndarray of shape (n_sites,) or (n_sites, n_classes)
    max_grad_norm_ : float
        The cap of the run; inf for none.  With a cap, probabilities are not calibrated.
    n_iter_, stopped_ : int, str
        Rounds completed, and why the fit ended.
    choice_ : Choice or None
        What ``method="auto"`` picked, and why.
    centring_ : Decision or None
        Whether rows were centred, and what it cost; None if that was not asked.

    Notes
    -----
    *Guarantee*: The fitted attributes are differentially private for one row of one site, with the epsilon and delta in
    ``privacy_spent_``, against an observer of every message of every round.  Under trust in sums the observer may also
    know all that `colluders` of the sites know; under a trusted curator the observer sees what the curator releases.
    Every fit is a release of its own: fits add up.
    Not protected: row counts, declared labels, names of columns and of sites, and that :meth:`fit` refused X (NaN,
    text).  With declared classes no label can make it refuse.

    Raises
    ------
    InvalidInput
        From :meth:`fit`, before anything is spent, on a parameter that breaks a rule, and on X, y and groups that
        scikit-learn would refuse.  The message is one line and shows no value of the data.  The exception is also a
        ValueError (and a TypeError where scikit-learn raises one).
    LedgerMismatch
        From :meth:`fit`, before anything is spent, if a ledger on disk belongs to other rows.

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

    _cloned = False  # whether scikit-learn may be fitting it on part of a table

    def __init__(
        self,
        method: str = defaults.METHOD,
        *,
        epsilon: float | tuple[float, ...] = defaults.EPSILON,
        delta: float | None = defaults.DELTA,
        data_norm: float = 1.0,
        classes: Sequence[Any] | None = None,
        trust: str | None = None,
        loss: str = _DEFAULT.loss,
        inference: bool = False,
        class_weight: dict[Any, float] | None = None,
        n_sites: int = 5,
        rounds: int = _DEFAULT.rounds,
        fit_intercept: bool = True,
        accounting: str | None = None,
        ledger: Ledger | DurableLedger | None = None,
        random_state: Any = None,
        knobs: Mapping[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
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
        self.knobs = knobs

    def __sklearn_clone__(self) -> Self:
        twin: Self = super().__sklearn_clone__()
        twin._cloned = True
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = copy.copy(self)
        twin.__dict__ = copy.deepcopy(self.__dict__, memo)
        return twin

    def __copy__(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__ = dict(self.__dict__)
        return twin

    def __getstate__(self) -> Any:
        """The state without the ledger: what a copy elsewhere is charged would be lost."""
        state = super().__getstate__()
        kind = type(state.get("ledger"))
        return state | {"ledger": _LeftBehind(kind.__name__)} if issubclass(kind, Ledger | DurableLedger) else state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(
        self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None, coef_init: ArrayLike | None = None,
        intercept_init: ArrayLike | None = None, sample_weight: ArrayLike | None = None,
    ) -> Self:  # fmt: skip
        """Train across sites.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Sparse rows (SciPy CSR) are never made dense.
        y : array-like of shape (n_samples,)
            Labels.
        groups : array-like of shape (n_samples,), optional
            The site of every row; its distinct values are the sites, and `n_sites` is not used.
        coef_init, intercept_init : array-like of the shapes of `coef_` and `intercept_`, optional
            A public model to start from, to which the regulariser then pulls; None for zeros.  It changes no price, and
            no epsilon of this fit covers what it was computed from.  With an earlier private fit's model on the same
            rows, the costs of both fits add up.
        sample_weight : array-like of shape (n_samples,), optional
            Numbers of at least 0: a row's loss counts ``min(w, max_weight) / max_weight``.  The number of rows by which
            losses are averaged stays what it is.

        Returns
        -------
        ConsensusClassifier
        """
        fixed = None if self.classes is None else declared(self.classes)
        if fixed is None and self.random_state is None:
            rule = "a release needs its labels declared: which of them occur is private"
            raise InvalidInput("classes", None, rule, "give classes=[...], or a random_state for a simulation")
        self._check_ledger()
        features = self._table(X, reset=True)
        n = features.shape[0]
        self._check_y(y, "label")
        classes, label = classes_in(y, n) if fixed is None else (fixed, index_of(y, fixed, n))
        self._check_norm()
        if isinstance(self.ledger, DurableLedger) and groups is None and self.n_sites != 1:
            rule = "a ledger on disk belongs to sites that stay the same"
            raise InvalidInput("groups", None, rule, "give the site of every row to fit")
        seed, sites, parts = self._deal(groups, n)
        starts = self._starts(coef_init, intercept_init, len(classes), features.shape[1])
        encoded = self._encode(features)
        knobs, ledger = {"rounds": 1} | self._run_fields(), self.ledger
        if ledger is not None and len(of_classes(len(classes)).contrasts) > 1 and self.loss != "softmax":
            rule = "a shared ledger cannot reserve the runs of more than two classes at once"
            raise InvalidInput("ledger", type(ledger).__name__, rule, "leave it out, or use loss='softmax'")
        deal = deal_digest(features, label, parts) if isinstance(ledger, Ledger) else None
        if self.inference and not (sample_weight is None and self.class_weight is None):
            raise InvalidInput("sample_weight", None, WEIGHED, "leave weights out, or use inference=False")
        counts, of_weights = self._weights(sample_weight, parts, classes, label)
        caveats = (_READ if fixed is None else None, of_weights)
        self.choice_: Choice | None = None
        self.centring_: Decision | None = None
        if self.inference:
            self._infer(len(classes), features, label, parts, sites, knobs, seed, groups is not None, caveats[0])
        else:
            run = partial(
                self._run,
                ledger=ledger,
                deal=deal,
                caveat=caveats,
                counts=counts,
                starts=starts,
                differ=groups is not None,
            )
            fit = self._fit_softmax if self.loss == "softmax" else self._fit_each
            tables = [(encoded[part], label[part]) for part in parts]
            last = fit(len(classes), tables, seed, knobs, run)
            self.privacy_spent_, self.n_iter_, self.stopped_ = last.privacy, last.rounds, last.stopped
            self.max_grad_norm_ = last.config.max_grad_norm
        self._tell_norm(features)
        self.classes_, self.sites_ = classes, sites
        if strange := int(np.sum(label < 0)):
            what = f"{strange} of {n} rows have a label that is none of the declared classes"
            warnings.warn(f"{what}: they were rows of zeros (for the data's holder only)", HolderNote, stacklevel=2)
        return self

    def _check_ledger(self) -> None:
        """Refuse a ledger left in another process, and one on disk that might meet a part of its table."""
        if self.ledger is None:
            return
        if isinstance(self.ledger, _LeftBehind):
            rule = "a ledger stays in its process, and this estimator came to another one or from a file"
            remedy = "use n_jobs=1 or threads, and set_params(ledger=...) after loading"
            raise InvalidInput("ledger", self.ledger.kind, rule, remedy)
        if not isinstance(self.ledger, Ledger | DurableLedger):
            remedy = "use Ledger(...) or DurableLedger.open(path), or accounting= for a rule's name"
            raise InvalidInput("ledger", type(self.ledger).__name__, "must be a Ledger or a DurableLedger", remedy)
        if self.accounting is not None:
            rule = "a ledger has a rule of its own"
            raise InvalidInput("accounting", self.accounting, rule, "leave it out, or leave the ledger out")
        if self._cloned and isinstance(self.ledger, DurableLedger) and not self.ledger.bound:
            rule = "a ledger on disk belongs to one table, and a clone may be given a part: cross-validation fits parts"
            remedy = "fit the estimator on the whole table first, or give a Ledger in memory, which counts every fit"
            raise InvalidInput("ledger", "DurableLedger", rule, remedy)

    def _run(
        self, run: RunConfig, rows: Rows, label: str, model: int, *, ledger: Ledger | DurableLedger | None,
        deal: bytes | None, caveat: Caveat, starts: list[Start | None], counts: list[Array] | None, differ: bool,
    ) -> Result:  # fmt: skip
        rows, centre = rows if counts is None else rows.with_weight(counts), self._centring(run, rows)
        run = self._chosen(run, rows, differ, centre)
        try:
            return simulate(
                run, rows, ledger=ledger, deal=deal, label=label, caveat=caveat, start=starts[model], centre=centre
            )
        except LedgerMismatch as error:
            if not self._cloned:
                raise
            said = f"{error}; cross-validation fits parts of a table, which a Ledger in memory counts"
        raise LedgerMismatch(said)

    def _fit_each(
        self, K: int, parts: Any, seed: int | None, knobs: dict[str, Any], simulated: Callable[..., Result]
    ) -> Result:
        """One run for two classes, else one for each class against the rest."""
        contrasts = of_classes(K).contrasts
        results = []
        for model, c in enumerate(contrasts):
            rows = Rows.build([(X, TwoClasses().encode(label, c)) for X, label in parts])
            run = RunConfig(seed=self._of_class(seed, c), copies=len(contrasts), **knobs)
            results.append(simulated(run, rows, f"class {c} of {K}", model))
        self.coef_, self.intercept_ = self._decode(np.concatenate([result.consensus for result in results]))
        self.site_coef_, self.site_intercept_ = self._decode(results[0].models[0])
        if len(results) > 1:
            by_site = [self._decode(result.models[0]) for result in results]
            self.site_coef_, self.site_intercept_ = (np.stack(x, axis=1) for x in zip(*by_site, strict=True))
        return results[-1]

    def _fit_softmax(
        self, K: int, parts: Any, seed: int | None, knobs: dict[str, Any], simulated: Callable[..., Result]
    ) -> Result:
        rows = Rows.of_classes(parts, K)
        run = RunConfig(seed=seed, **(knobs | {"loss": f"softmax:{K}"}))
        result = simulated(run, rows, f"{K} classes", 0)
        task = of_classes(K)
        blocks = np.concatenate([result.consensus, result.models[0]]).reshape(-1, K, rows.d // K)
        blocks = task.from_softmax(blocks)
        coef, intercept = self._decode(blocks.reshape(-1, rows.d // K))
        coef, intercept = coef.reshape(*blocks.shape[:2], -1), intercept.reshape(blocks.shape[:2])
        self.coef_, self.intercept_ = coef[0], intercept[0]
        self.site_coef_, self.site_intercept_ = (x[1:, 0] if task.outputs == 1 else x[1:] for x in (coef, intercept))
        return result

    def _centring(self, run: RunConfig, rows: Rows) -> Centring | None:
        """How a run centres its rows; None for not at all."""
        if not self._knobs()["centre"]:
            return None
        width = rows.d // rows.outputs
        self.centring_ = decide(run, rows.n, width, self._frame(width))
        return self.centring_.centring

    def _chosen(self, run: RunConfig, rows: Rows, differ: bool, centre: Centring | None) -> RunConfig:
        """What "auto" picks, once a fit; other configurations unchanged."""
        if not run.auto:
            return run
        if self.choice_ is None:
            default = self.own_knobs | {"rounds": _DEFAULT.rounds}
            given = self._knobs() | self.get_params(deep=False)
            free = [knob for knob in KNOBS if knob in given and given[knob] == default[knob]]
            asked = run if centre is None else centre.rest(run)
            self.choice_ = choose(asked, rows.n[:, 0], rows.d, heterogeneity="label" if differ else "iid", free=free)
        return replace(self.choice_.config, seed=run.seed, epsilon=run.epsilon)

    def _of_class(self, seed: int | None, c: int) -> int | None:
        """Noise of its own for each class; two classes keep the seed."""
        if seed is None or c == 1:
            return seed
        return int.from_bytes(hashlib.blake2b(f"{seed} class {c}".encode(), digest_size=7).digest(), "big")

    def _table(self, X: ArrayLike, *, reset: bool) -> Any:
        """X as scikit-learn validates it, dense or CSR."""
        return checked("X", lambda: validate_data(self, X, reset=reset, dtype=np.float64, accept_sparse="csr"))

    def _starts(self, coef: ArrayLike | None, intercept: ArrayLike | None, K: int, features: int) -> list[Start | None]:
        """Where each run starts, in the units of :meth:`_encode`."""
        models = len(of_classes(K).contrasts)
        given = init_in(coef, intercept, models, features)
        if given is None:
            return [None] * models
        if intercept is not None and not self.fit_intercept:
            rule = "there is no intercept with fit_intercept=False"
            raise InvalidInput("intercept_init", None, rule, "leave it out")
        W = self._recode(*given)
        if self.loss == "softmax":
            W = (np.concatenate([-W, W]) / 2.0 if models == 1 else W).reshape(1, -1)
        return [Start(w) for w in W]

    def decision_function(self, X: ArrayLike) -> Array:
        """``X @ coef_.T + intercept_``, shape (n_samples,), or (n_samples, n_classes) for more than two classes.

        Linear in X, also for rows that training shortened: longer ones than `data_norm`, or ones as far from a released
        mean.
        """
        check_is_fitted(self, "coef_")
        features = self._table(X, reset=False)
        margins = np.asarray(features @ self.coef_.T + self.intercept_)
        return margins[:, 0] if len(self.coef_) == 1 else margins

    def predict(self, X: ArrayLike) -> Any:
        """The class of every row, shape (n_samples,)."""
        margins = self.decision_function(X)
        return self.classes_[of_classes(len(self.classes_)).decode(margins.T)]

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities of the classes, shape (n_samples, n_classes); logistic and softmax loss only.

        Of more than two classes under the logistic loss: each against the rest, scaled to a sum of one.  After training
        with a finite `max_grad_norm` they are not calibrated, and :class:`sottovoce.errors.NotCalibrated` warns of it
        (``docs/privacy/capped.md``).
        """
        margin = self.decision_function(X)
        self._warn_if_capped()
        if margin.ndim == 1:
            return np.column_stack([expit(-margin), expit(margin)])
        if self.loss == "softmax":
            return np.asarray(np.exp(log_softmax(margin, axis=1)))
        each = np.maximum(expit(margin), np.finfo(float).tiny)
        return np.asarray(each / each.sum(axis=1, keepdims=True))

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Logarithms of :meth:`predict_proba`, with the same warning."""
        margin = self.decision_function(X)
        if margin.ndim > 1 and self.loss != "softmax":
            return np.asarray(np.log(self.predict_proba(X)))
        self._warn_if_capped()
        if margin.ndim > 1:
            return np.asarray(log_softmax(margin, axis=1))
        return np.column_stack([log_expit(-margin), log_expit(margin)])

    def _warn_if_capped(self) -> None:
        if getattr(self, "max_grad_norm_", math.inf) < math.inf:
            warnings.warn(NOT_CALIBRATED, NotCalibrated, stacklevel=3)


@with_knobs("relation", "C", "eta", "form", *OFFERED, rho=0.0002, tol=None, max_weight=None, centre=True)
class PrivateClassifier(ConsensusClassifier):
    """A linear classifier trained at one site and released once, privately (003, chapter 3).

    Parameters
    ----------
    method : {"auto", "objective", "output", "generalised"}, default="auto"
        Objective perturbation, output perturbation, or Kifer's generalised objective perturbation.  "auto" picks one of
        them, or another method of one noisy step, and the knobs `eta`, `rho` and `max_grad_norm` where they have their
        defaults, from public facts.  Any other name that ``sottovoce methods`` lists runs on the one site.
    epsilon, delta, data_norm, classes, loss, class_weight, fit_intercept, accounting, ledger, random_state
        As for :class:`ConsensusClassifier`.
    knobs : dict or None, default=None
        As for :class:`ConsensusClassifier`, without those of several sites and rounds.  `rho` is 0.0002, the weight of
        ``||w||^2 / 2`` against C times the mean loss; `eta` is a ridge added to it so that noise does less, None for
        one in proportion to the noise.

    Notes
    -----
    *Guarantee*: As for :class:`ConsensusClassifier`.  It holds for the solver's inexact minimiser, because the release
    has noise that pays for the solver's error (U4).

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
        data_norm: float = 1.0,
        classes: Sequence[Any] | None = None,
        loss: str = _DEFAULT.loss,
        class_weight: dict[Any, float] | None = None,
        fit_intercept: bool = True,
        accounting: str | None = None,
        ledger: Ledger | DurableLedger | None = None,
        random_state: Any = None,
        knobs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            method, epsilon=epsilon, delta=delta, data_norm=data_norm, classes=classes, loss=loss, n_sites=1,
            class_weight=class_weight, fit_intercept=fit_intercept, accounting=accounting, ledger=ledger,
            random_state=random_state, knobs=knobs,
        )  # fmt: skip
