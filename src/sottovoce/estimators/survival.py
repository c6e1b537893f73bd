"""Discrete-time survival: hazards by public intervals, with all of a person's rows protected together.

A person becomes one row for each interval entered: did the event come in it?  The rows are those of a logistic
regression with a constant for each interval.  An interval that a person leaves without the event counts by the part
that was seen.  One more row, of weight 0, holds the cell of the life table in which the person leaves.  The weights are
so small that together the rows count as one at most, so the price of a row is the price of a person
(docs/privacy/survival.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..answers.hazards import Hazards, HazardSteps, cell_numbers
from ..data.frames import read_frame
from ..data.rows import Rows
from ..data.table import Table
from ..data.validation import checked
from ..data.values import MISSING_MARKS, identity, is_masked, marks_of, number_of, objects, text_of
from ..errors import HolderNote, InvalidInput, PublicNote, SchemaError
from ..privacy.statement import restate
from ..privacy.statement_facts import Unit
from ..problem.clipped import cap
from ..problem.losses import Logistic
from ..reports.plots import survival_plot
from ..runs import defaults
from ..runs.config import MOST_ROUNDS, TRUSTED, RunConfig
from ..runs.relations import with_other_relation
from ..runs.simulate import simulate
from ..util.progress import told
from ..util.typing import Any, Array, BoolArray, IntArray
from .base import SLACK, SitedTable
from .caveats import Caveats, tell_values
from .declared import in_units, schema_of
from .parameters import with_knobs

SHARE = 0.5
"""Share of a row's squared norm that the interval's constant takes."""
FINE, COARSE = 1024, 8
"""Cells of the life table in each interval, without noise and with it: each cell adds noise to those at risk."""
MOST_STEPS = 25
"""Newton steps of a fit without noise, at least: they cost nothing, and the last ones move nothing."""
TRUTHS = {"1": "1", "true": "1", "0": "0", "false": "0"}
"""Texts of truth values, in lower case, as the number that they stand for."""


def person_weight(m: int, share: float = SHARE) -> float:
    """Weight of each of a person's m rows: ``1 / sqrt(m (m s^2 + t^2))``, with ``t^2 = share = 1 - s^2``.

    Rows are ``a_j = (x, t e_j)`` with ``|x| <= s``, and slopes are in [-1, 1].  Unweighted, the person's gradient has
    norm at most ``sqrt((m s)^2 + m t^2)``, attained by equal slopes, and the largest eigenvalue of the sum of ``a_j
    a_j'`` is at most ``m s^2 + t^2 <= sqrt(m (m s^2 + t^2))``.  Weighted, both are at most 1, as for one row in the
    unit ball.
    """
    return 1.0 / (math.sqrt(m * (m * (1.0 - share) + share)) * SLACK)


class Expanded(NamedTuple):
    """Rows with their labels, 1 for the event, -1 for none and 0 for a row of zeros, and with their weights."""

    rows: Array
    label: Array
    weight: Array


class Leaving(NamedTuple):
    """How each of n people leaves follow-up."""

    last: IntArray  # the interval (edges[j], edges[j + 1]] entered last; -1 for none  (n,)
    event: BoolArray  # whether the event came in it  (n,)
    exposed: Array  # the part of it that was seen; 1 where the event came  (n,)
    cell: IntArray  # of the life table, from 0  (n,)


def leaving(time: Array, event: BoolArray, known: BoolArray, edges: Array, cells: int) -> Leaving:
    """How each person leaves, by their own time and event alone.

    A person without a known event, or whose time is no number or not above the first edge, enters no interval.  An
    event after the last edge survives all of them, and so does a person who was seen until the last edge or longer.

    Parameters
    ----------
    time : array (n,)
    event, known : array of bool (n,)
    edges : array (m + 1,)
    cells : int
        Cells of the life table in an interval.
    """
    m = len(edges) - 1
    inside = known & (time > edges[0])  # False for NaN
    ends = np.where(inside, time, edges[-1])
    entered = np.minimum(np.searchsorted(edges[1:], ends, side="left"), m - 1)
    came = inside & event & (ends <= edges[-1])
    start, end = edges[entered], edges[entered + 1]
    part = np.minimum((np.minimum(ends, end) - start) / (end - start), 1.0)
    fine = np.clip(np.ceil(part * cells) - 1.0, 0.0, cells - 1.0).astype(np.intp)
    within = entered * cells + fine
    without = np.where(part >= 1.0, 2 * m * cells + entered, m * cells + within)
    return Leaving(
        last=np.where(inside, entered, -1),
        event=came,
        exposed=np.where(came, 1.0, part),
        cell=np.where(inside, np.where(came, within, without), 2 * m * cells + m),
    )


def expand(X: Array, leaves: Leaving, m: int, cells: int) -> Expanded:
    """Rows of all people, m + 1 of each together: one for each interval, and one that holds a cell of the life table.

    Parameters
    ----------
    X : array (n, d)
        Columns, of norm at most 1.
    leaves : Leaving
    m, cells : int
        Intervals, and cells of the life table in each.
    """
    n, d = X.shape
    interval, last = np.arange(m), leaves.last[:, None]
    label = np.where(interval <= last, -1.0, 0.0)
    label[(interval == last) & leaves.event[:, None]] = 1.0
    part = np.where(interval == last, leaves.exposed[:, None], 1.0)
    weight = person_weight(m) * part * np.abs(label)
    rows = np.zeros((n, m + 1, d + m + 1))
    rows[:, :m, :d] = math.sqrt(1.0 - SHARE) / SLACK * X[:, None, :]
    rows[:, :m, d : d + m] = math.sqrt(SHARE) / SLACK * np.eye(m)
    rows[:, :m] *= np.abs(label)[:, :, None]
    rows[:, m, -1] = (leaves.cell + 1.0) / cell_numbers(m, cells)
    size = n * (m + 1)
    return Expanded(
        rows.reshape(size, d + m + 1),
        np.hstack([label, np.ones((n, 1))]).reshape(size),
        np.hstack([weight, np.zeros((n, 1))]).reshape(size),
    )


def read_times(given: Any) -> Array:
    """Times as numbers, each read by itself; NaN for what is none."""
    return np.array([_number(one) for one in _each("time", given)], dtype=np.float64)


def read_events(given: Any, code: Any = None) -> Array:
    """1 where the event came, 0 where it did not, NaN where that is not known; each read by itself.

    Parameters
    ----------
    given : sequence
        Numbers, truth values, texts, or a mixture.
    code : optional
        The value that means the event; every other one that is not missing means that it did not come.  None for 1 and
        0, and for "true" and "false" in any spelling: whatever else is not known.
    """
    texts = [_meaning(one) for one in _each("event", given)]
    if code is None:
        known = {"1": 1.0, "0": 0.0}
        return np.array([known.get(text, math.nan) for text in texts], dtype=np.float64)
    own, missing = _meaning(code), marks_of(MISSING_MARKS) - {_meaning(code)}
    return np.array([math.nan if text in missing else float(text == own) for text in texts], dtype=np.float64)


def _meaning(value: Any) -> str:
    """The text that stands for all values of one meaning: 1, 1.0, "1" and True are one."""
    text = identity(text_of(value))
    return TRUTHS.get(text.casefold(), text)


def _number(value: Any) -> float:
    try:
        return number_of(value)
    except (ValueError, OverflowError):
        return math.nan


def _each(name: str, given: Any) -> list[Any]:
    """The values of a column, one a person; None for what a mask hides.

    Values of mixed types are not made one type first: one of them would change how the others are read.
    """
    if is_masked(given):
        hidden: Any = given.astype(object)
        given = hidden.filled(None)
    typed = hasattr(given, "dtype") or hasattr(given, "__array__")
    column = checked(name, lambda: np.asarray(given) if typed else objects(given))
    if column.ndim != 1 or column.dtype.kind not in "biufOUST":
        rule = f"must be one column of numbers, truth values or texts; this is {column.dtype} of shape {column.shape}"
        raise InvalidInput(name, None, rule, "give one value for each row of X")
    return list(column.tolist())


@with_knobs("relation", "colluders", "max_grad_norm", rho=0.0)
class ConsensusSurvival(SitedTable, BaseEstimator):
    """Discrete-time hazards trained across sites, with a person's rows of all intervals protected together.

    The log-odds of the event in interval j, for those who reach it, are ``intercept_[j] + x . coef_``.  Slopes are
    those of the grouped likelihood, where an interval that a person leaves without the event counts by the part that
    was seen; constants are corrected so that the curve of people without columns is that of Kaplan and Meier.

    Parameters
    ----------
    edges : sequence of float
        Public, increasing times between m intervals of finite length: m + 1 numbers.  Fewer intervals cost less noise.
    event_code : optional
        The value of `event` that means the event, as 2 in tables where 1 is alive: every other value that is not
        missing then means that it did not come.  None for 1, against 0, and for truth values.
    epsilon, delta : float
        Privacy budget of the whole fit, per person; ``inf`` fits without noise.
    trust : {"nobody", "sum", "curator"}, default="nobody"
    rounds : int, default=5
        Newton steps, each with a Hessian and a gradient, after the life table.  Without noise as many as converge.
    data_norm : float or None, default=None
        Declared bound on the Euclidean norm of a person's columns; longer ones are shortened.  None is 1, and a release
        warns of it.
    schema, columns, n_sites, accounting, random_state, verbose
        As for :class:`sottovoce.ConsensusClassifier`; a schema without weights, and without the time and the event.
    knobs : dict or None, default=None
        `relation`, `colluders`, `rho` (0, the weight of half the slopes' squared norm beside the mean over people)
        and `max_grad_norm` (of a row's gradient before weights).

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Log hazard odds ratios, in the units of X.
    intercept_ : ndarray of shape (m,)
    correction_ : ndarray of shape (m,)
        What was added to the constants of the grouped likelihood.
    converged_ : bool
        Whether the last step moved no more than its noise; a warning says if not.  From what was released.
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
        event_code: Any = None,
        epsilon: float = defaults.EPSILON,
        delta: float | None = defaults.DELTA,
        trust: str = "nobody",
        n_sites: int = 5,
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
            Whether the event came at that time: 1 or 0, or truth values, or what `event_code` declares.  Without a
            known event a person adds nothing, but still counts.
        groups : array-like of shape (n_samples,), optional
            The site of every person.
        """
        X, time, event = self._split(X, time, event)
        caveats = Caveats.of(self, self.schema_, stacklevel=2)
        edges = self._edges()
        self._check_terms()
        self._check_norm()
        features = self._table(X, reset=True)
        n, m = len(features), len(edges) - 1
        times = self._one_each("time", read_times(time), n)
        events = self._one_each("event", read_events(event, self.event_code), n)
        if self.schema_ is None:
            tell_values(self, features, stacklevel=2)
        seed, sites, parts, *_ = self._deal(X, groups, n)
        run = self._run(seed)
        recipe = self._recipe(m, run)
        leaves = leaving(times, events == 1.0, ~np.isnan(events), edges, recipe.cells)
        encoded = self._encode(features)
        tables = [expand(encoded[part], _those(leaves, part), m, recipe.cells) for part in parts]
        rows = Rows.build([(one.rows, one.label) for one in tables]).with_weight([one.weight for one in tables])
        said = None if self.schema_ is None else self.schema_.caveat
        loss = cap(Logistic(), run.gradient_cap)
        with told(self.verbose) as teller:
            teller.phase("hazards", len(recipe.items))
            result = with_other_relation(simulate(run, rows, method=recipe, loss=loss, caveat=said, observers=[teller]))
        found: Hazards = result.outcome
        self._vector = found.slopes / SLACK * math.sqrt(1.0 - SHARE)
        self.correction_ = found.correction
        self.intercept_ = found.constants + found.correction
        if self.schema_ is None:
            self.coef_ = self._vector / (self._norm * SLACK)
        else:
            self.coef_, constant = in_units(self.schema_, self._vector)
            self.intercept_ = self.intercept_ + constant
        self.converged_ = found.converged
        self.edges_, self.sites_ = edges, sites
        self._result = replace(result, statement=caveats.on(restate(result.statement, Unit.of_people(m))))
        self.privacy_spent_ = self._result.privacy
        self._tell_norm(features)
        self._tell_unread(times, events, edges)
        if not found.converged:
            self._notify("converged", _unconverged(found, len(found.slopes) + m), PublicNote, stacklevel=2)
        return self

    def _check_terms(self) -> None:
        """Refuse terms that hazards cannot be fitted under, before anything is read."""
        if self.trust not in TRUSTED:
            raise InvalidInput("trust", self.trust, f"must be one of {', '.join(TRUSTED)}", "use 'nobody'")
        whole = isinstance(self.rounds, int | np.integer) and not isinstance(self.rounds, bool)
        if not (whole and 1 <= self.rounds <= MOST_ROUNDS):
            rule = f"must be a whole number of Newton steps, from 1 to {MOST_ROUNDS}"
            raise InvalidInput("rounds", self.rounds, rule, "use rounds=5")
        rho = self._knobs()["rho"]
        if not (isinstance(rho, int | float | np.number) and 0.0 <= rho < math.inf):
            raise InvalidInput("rho", rho, "must be finite and >= 0, as a weight of the slopes", "use 0")

    def _run(self, seed: int | None) -> RunConfig:
        """Budget, trust and relation of the fit; its `rho` weighs slopes in the recipe, and may be 0 there."""
        given = self._run_fields()
        del given["rho"]
        return RunConfig.from_dict({"method": "auto", "seed": seed, **given})

    def _recipe(self, m: int, run: RunConfig) -> HazardSteps:
        """The releases of a fit of m intervals."""
        noisy = run.budgeted
        return HazardSteps(
            intervals=m,
            cells=COARSE if noisy else FINE,
            steps=int(self.rounds) if noisy else max(int(self.rounds), MOST_STEPS),
            value=math.sqrt(SHARE) / SLACK,
            weight=person_weight(m),
            ridge=float(self._knobs()["rho"]),
        )

    def _tell_unread(self, times: Array, events: Array, edges: Array) -> None:
        """Tell the people's holder how many of them add nothing, and why."""
        n = len(times)
        if late := int(np.sum(~(times > edges[0]))):
            what = f"{late} of {n} people have no time after the first edge"
            self._notify("time", f"{what}: they add nothing (for the data's holder only)", HolderNote, stacklevel=3)
        if unknown := int(np.sum(np.isnan(events))):
            meant = "1, 0, true or false" if self.event_code is None else "a value"
            what = f"{unknown} of {n} people have no event that is {meant}"
            remedy = "" if self.event_code is not None else "; declare event_code, the value that means the event"
            text = f"{what}: they add nothing (for the data's holder only){remedy}"
            self._notify("event", text, HolderNote, stacklevel=3)

    def _split(self, X: Any, time: Any, event: Any) -> tuple[Any, Any, Any]:
        """X, which is a table under a schema, without the columns that hold the time and the event."""
        if self.schema is None:
            return self._opened(X), time, event
        table = read_frame(X, self.columns)
        named = [name for name in (time, event) if isinstance(name, str)]
        if lost := [name for name in named if name not in table.columns]:
            raise InvalidInput(lost[0], None, "is no column of the frame", "name the columns of time and event")
        self._check_schema(named, table)
        columns = dict(table.columns)
        time, event = (columns[one] if isinstance(one, str) else one for one in (time, event))
        return self._opened(Table(table.name, {k: v for k, v in columns.items() if k not in named})), time, event

    def _check_schema(self, named: list[str], table: Table) -> None:
        """Refuse a schema that declares the columns of time or event for the model, or weights of people.

        The life table counts everybody once, so hazards with weights would be corrected by a curve without them.
        """
        schema = schema_of(self.schema)
        assert schema is not None
        self._check_person(schema)
        if schema.weight is not None:
            rule = "declares weights, and hazards count every person alike"
            raise SchemaError("weight", None, rule, "leave weight out of the schema")
        declared = {source for block in schema.blocks for source in block.sources(table.columns)}
        if both := [name for name in named if name in declared]:
            rule = "holds the time or the event, and the schema declares it as a column of the model"
            raise SchemaError(both[0], None, rule, "leave it out of [columns]")

    def _edges(self) -> Array:
        edges = checked("edges", lambda: np.asarray(self.edges, dtype=np.float64))
        remedy = "declare public times such as [0, 30, 90, 365]"
        if edges.ndim != 1 or len(edges) < 2 or not np.all(np.isfinite(edges)):
            raise InvalidInput("edges", None, "must be two or more finite numbers, increasing", remedy)
        with np.errstate(over="ignore"):
            lengths = np.diff(edges)
        if not np.all(lengths > 0):
            raise InvalidInput("edges", None, "must be two or more finite numbers, increasing", remedy)
        if not np.all(np.isfinite(lengths)):  # of such an interval no part is a number, and people's times would tell
            raise InvalidInput("edges", None, "must have intervals of finite length", remedy)
        return np.asarray(edges)

    def _one_each(self, name: str, column: Array, n: int) -> Array:
        if column.shape != (n,):
            rule = f"must have one value for each of the {n} people, and has shape {column.shape}"
            raise InvalidInput(name, None, rule, "give one value a row of X")
        return column

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

    def plot(self, X: Any = None, ax: Any = None) -> Any:
        """Draw survival curves.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or a frame under a schema, optional
            A curve for each row.  None for one curve: of a row of zeros, or under a schema of one in the middle of all
            declared ranges, with reference levels.
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
        middle = self.intercept_ if self.schema_ is None else self.intercept_ - in_units(self.schema_, self._vector)[1]
        return survival_plot(self.edges_, np.cumprod(1.0 - expit(middle)), (), ax)


def _those(leaves: Leaving, people: IntArray) -> Leaving:
    return Leaving(leaves.last[people], leaves.event[people], leaves.exposed[people], leaves.cell[people])


def _unconverged(found: Hazards, directions: int) -> str:
    """Why a fit is not converged, and what to do, from what was released."""
    if found.hidden:
        what = f"noise hides {found.hidden} of {directions} directions of the hazards, which stay near their start"
        return f"{what}: not converged; raise epsilon, or use fewer intervals or columns, or more people"
    what = "the last Newton step still moved the hazards"
    return f"{what}: not converged; use more rounds, or fewer columns or intervals if some tell who has the event"


__all__ = [
    "ConsensusSurvival",
    "Expanded",
    "Leaving",
    "expand",
    "leaving",
    "person_weight",
    "read_events",
    "read_times",
]
