"""Discrete-time survival: hazards by public intervals, with all of a person's rows protected together.

A person becomes one row for each interval entered: did the event come in it?  The rows are those of a logistic
regression with a constant for each interval.  Their weights are so small that together they count as one row at most,
so the price of a row is the price of a person (docs/privacy/survival.md).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Self

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..algorithms import under
from ..data.frames import read_frame
from ..data.rows import Rows
from ..data.table import Column, Table
from ..data.validation import checked
from ..errors import HolderNote, InvalidInput
from ..runs import defaults
from ..runs.config import TRUSTED, RunConfig
from ..runs.relations import with_other_relation
from ..runs.simulate import simulate
from ..util.progress import told
from ..util.typing import Any, Array, ArrayLike, BoolArray, IntArray
from .base import SLACK, SitedTable
from .caveats import Caveats, tell_values
from .declared import in_units
from .parameters import with_knobs

SHARE = 0.5
"""Share of a row's squared norm that the interval's constant takes."""
METHODS = {trust: "prox_admm" if trust == "nobody" else under("prox_average", trust) for trust in TRUSTED}
"""Methods with noise on answers or sums: their proofs see a person through one gradient and one Hessian."""


def person_weight(m: int, share: float = SHARE) -> float:
    """Weight of each of a person's m rows: ``1 / sqrt(m (m s^2 + t^2))``, with ``t^2 = share = 1 - s^2``.

    Rows are ``a_j = (x, t e_j)`` with ``|x| <= s``, and slopes are in [-1, 1].  Unweighted, the person's gradient has
    norm at most ``sqrt((m s)^2 + m t^2)``, attained by equal slopes, and the largest eigenvalue of the sum of ``a_j
    a_j'`` is at most ``m s^2 + t^2 <= sqrt(m (m s^2 + t^2))``.  Weighted, both are at most 1, as for one row in the
    unit ball.
    """
    return 1.0 / (math.sqrt(m * (m * (1.0 - share) + share)) * SLACK)


def expand(X: Array, last: IntArray, event: BoolArray, m: int) -> tuple[Array, Array]:
    """Rows of all intervals, (n m, d + m), a person's m together, and labels: 1 event, -1 none, 0 for a row of zeros.

    Of rows X (n, d) of norm at most 1 and, per person, the `last` interval survived or with the `event`; -1 for none.
    """
    n, d = X.shape
    rows = np.zeros((n, m, d + m))
    rows[:, :, :d] = math.sqrt(1.0 - SHARE) / SLACK * X[:, None, :]
    rows[:, :, d:] = math.sqrt(SHARE) / SLACK * np.eye(m)
    interval = np.arange(m)
    y = np.where(interval <= last[:, None], -1.0, 0.0)
    y[(interval == last[:, None]) & event[:, None]] = 1.0
    rows *= np.abs(y)[:, :, None]
    return rows.reshape(n * m, d + m), y.reshape(n * m)


def intervals(time: Array, event: BoolArray, edges: Array) -> IntArray:
    """The last interval ``(edges[j], edges[j + 1]]`` of each person, the event's or the last survived; -1 for none.

    A time that is no number, or not above the first edge, is in none.  An event after the last edge survives them all.
    """
    with np.errstate(invalid="ignore"):
        of_event = np.searchsorted(edges[1:], time, side="left")
        survived = np.searchsorted(edges[1:], time, side="right") - 1
        m = len(edges) - 1
        last = np.where(event & (of_event < m), of_event, np.minimum(survived, m - 1))
        return np.where(time > edges[0], last, -1).astype(np.intp)


def _numbers(column: Column) -> Array:
    """A column as numbers, NaN for a gap."""
    if column.dtype.kind != "O":
        return checked("column", lambda: column.astype(np.float64))
    return checked("column", lambda: np.array([np.nan if one is None else float(one) for one in column]))


@with_knobs("relation", "colluders", "max_grad_norm", rho=1e-4)
class ConsensusSurvival(SitedTable, BaseEstimator):
    """Discrete-time hazards trained across sites, with a person's rows of all intervals protected together.

    The log-odds of the event in interval j, for those who reach it, are ``intercept_[j] + x . coef_``.

    Parameters
    ----------
    edges : sequence of float
        Public, increasing times between m intervals: m + 1 numbers.  Fewer intervals cost less noise.
    epsilon, delta : float
        Privacy budget of the whole fit, per person; ``inf`` fits without noise.
    trust : {"nobody", "sum", "curator"}, default="nobody"
    rounds : int, default=10
    data_norm : float or None, default=None
        Declared bound on the Euclidean norm of a person's columns; longer ones are shortened.  None is 1, and a release
        warns of it.
    schema, columns, n_sites, accounting, random_state, verbose
        As for :class:`sottovoce.ConsensusClassifier`.
    knobs : dict or None, default=None
        `relation`, `colluders`, `rho` (0.0001, the weight of ``||w||^2 / 2`` against the mean over people) and
        `max_grad_norm` (of a row's gradient before weights).

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Log hazard odds ratios, in the units of X.
    intercept_ : ndarray of shape (m,)
    edges_ : ndarray of shape (m + 1,)
    n_features_in_, privacy_spent_, sites_
        As for :class:`sottovoce.ConsensusClassifier`.

    Guarantee
    ---------
    As for :class:`sottovoce.ConsensusClassifier`, of a person at one site: columns, time and event together.

    Raises
    ------
    InvalidInput
        From :meth:`fit`, before anything is spent, on a parameter that breaks a rule.

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

    fit_intercept: ClassVar[bool] = False  # type: ignore[misc]  # every interval has a constant
    _of_people: ClassVar[bool] = False

    def __init__(
        self,
        edges: Sequence[float],
        *,
        epsilon: float = defaults.EPSILON,
        delta: float | None = defaults.DELTA,
        trust: str = "nobody",
        n_sites: int = 5,
        rounds: int = 10,
        data_norm: float | None = None,
        schema: Any = None,
        columns: Sequence[str] | None = None,
        accounting: str | None = None,
        random_state: Any = None,
        verbose: bool | int | None = None,
        knobs: Mapping[str, Any] | None = None,
    ) -> None:
        self.edges = edges
        self.epsilon = epsilon
        self.delta = delta
        self.trust = trust
        self.n_sites = n_sites
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
            When the event came, or until when the person was seen without it.  Without a time after the first edge a
            person adds nothing, but still counts.
        event : array-like of shape (n_samples,), or under a schema the name of a column
            Whether the event came at that time.
        groups : array-like of shape (n_samples,), optional
            The site of every person.
        """
        X, time, event = self._split(X, time, event)
        caveats = Caveats.of(self, self.schema_, cloned=False, stacklevel=2)
        edges = self._edges()
        if self.trust not in METHODS:
            raise InvalidInput("trust", self.trust, f"must be one of {', '.join(METHODS)}", "use 'nobody'")
        self._check_norm()
        features = self._table(X, reset=True)
        n, m = len(features), len(edges) - 1
        times, events = self._column("time", time, n), self._column("event", event, n) > 0
        if self.schema_ is None and caveats.void is None:
            tell_values(features, stacklevel=2)
        seed, sites, parts, *_ = self._deal(X, groups, n)
        last = intervals(times, events, edges)
        encoded = self._encode(features)
        tables = [expand(encoded[part], last[part], events[part], m) for part in parts]
        rows = Rows.build(tables).with_weight([np.full(len(y), person_weight(m)) for _, y in tables])
        run = RunConfig(METHODS[self.trust], C=float(m), seed=seed, tol=None, **self._run_fields())
        said = (caveats.void, None if self.schema_ is None else self.schema_.caveat)
        with told(self.verbose) as teller:
            teller.phase("hazards", run.rounds)
            result = with_other_relation(simulate(run, rows, caveat=said, observers=[teller]))
        w = result.consensus[0] / SLACK
        d = features.shape[1]
        self._vector = w[:d] * math.sqrt(1.0 - SHARE)
        self.intercept_ = w[d:] * math.sqrt(SHARE)
        if self.schema_ is None:
            self.coef_ = self._vector / (self._norm * SLACK)
        else:
            self.coef_, constant = in_units(self.schema_, self._vector)
            self.intercept_ = self.intercept_ + constant
        self.edges_, self.sites_ = edges, sites
        self._result = replace(result, statement=caveats.on(result.statement.of_people(m)))
        self.privacy_spent_ = self._result.privacy
        self._tell_norm(features)
        if strange := int(np.sum(~(times > edges[0]))):
            what = f"{strange} of {n} people have no time after the first edge"
            warnings.warn(f"{what}: they add nothing (for the data's holder only)", HolderNote, stacklevel=2)
        return self

    def _split(self, X: Any, time: Any, event: Any) -> tuple[Any, Any, Any]:
        """X, which is a table under a schema, without the columns that hold the time and the event."""
        if self.schema is None:
            return self._opened(X), time, event
        table = read_frame(X, self.columns)
        named = [name for name in (time, event) if isinstance(name, str)]
        if lost := [name for name in named if name not in table.columns]:
            raise InvalidInput(lost[0], None, "is no column of the frame", "name the columns of time and event")
        columns = dict(table.columns)
        time, event = (_numbers(columns[one]) if isinstance(one, str) else one for one in (time, event))
        return self._opened(Table(table.name, {k: v for k, v in columns.items() if k not in named})), time, event

    def _edges(self) -> Array:
        edges = checked("edges", lambda: np.asarray(self.edges, dtype=np.float64))
        if edges.ndim != 1 or len(edges) < 2 or not (np.all(np.isfinite(edges)) and np.all(np.diff(edges) > 0)):
            rule = "must be two or more finite numbers, increasing"
            raise InvalidInput("edges", None, rule, "declare public times such as [0, 30, 90, 365]")
        return np.asarray(edges)

    def _column(self, name: str, given: ArrayLike, n: int) -> Array:
        column = checked(name, lambda: np.asarray(given, dtype=np.float64))
        if column.shape != (n,):
            rule = f"must have one value for each of the {n} people, and has shape {column.shape}"
            raise InvalidInput(name, None, rule, "give one value a row of X")
        return np.asarray(column)

    def predict_hazard(self, X: Any) -> Array:
        """Probabilities of the event in each interval, for those who reach it: (n_samples, m)."""
        check_is_fitted(self, "coef_")
        if self.schema_ is None:
            return np.asarray(expit((self._table(X, reset=False) @ self.coef_)[:, None] + self.intercept_))
        given = read_frame(X, self.columns)
        known = {source for block in self.schema_.blocks for source in block.sources(given.columns)}
        X = self.schema_.encode({k: v for k, v in given.columns.items() if k in known}, labels=False).X
        constant = in_units(self.schema_, self._vector)[1]
        return np.asarray(expit((X @ self._vector)[:, None] + self.intercept_ - constant))

    def predict_survival(self, X: Any) -> Array:
        """Probabilities of no event by the end of each interval: (n_samples, m)."""
        return np.asarray(np.cumprod(1.0 - self.predict_hazard(X), axis=1), dtype=np.float64)


__all__ = ["ConsensusSurvival", "expand", "intervals", "person_weight"]
