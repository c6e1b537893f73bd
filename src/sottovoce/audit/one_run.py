"""Audits of one run, by many canary rows (Steinke, Nasr and Jagielski 2023).

*Canaries* are rows that the auditor adds to the sites' own; a fair coin decides for each which of
two values it has.  From what the run sends, the auditor guesses the coins; more right guesses than
epsilon allows refute the claim.  The page is docs/explanation/audit.md.

*Theorem.*  Let M be (epsilon, delta)-private with respect to each of m fair independent coins, of
which the auditor guesses r from M's answer.  With ``W ~ Binomial(r, e^epsilon / (1 + e^epsilon))``
and ``f(k) = P[W >= k]``,

    P[at least v guesses are right]  <=  f(v) + 2 m delta max_{1 <= i <= m} (f(v - i) - f(v)) / i.

At delta 0: given the answer and the coins before it, a coin's odds are at most e^epsilon, since
only one input of M differs between its sides; so right guesses are dominated by independent ones of
that probability.  The delta term is from the paper: an unlikely failure may reveal i coins, but
only with a probability of at most about ``2 m delta / i``. r is one of :data:`FRACTIONS` of m:
picked by the scores it would depend on the answer, over which that term averages.

*Score.*  Let s = +-1 be the coins' signs.  The noise that a release would hold if every canary were
halfway between its values is to first order ``R s + noise``: the columns of R are half the
differences of the canaries' gradients, through the solve where noise sits on its answer
(:meth:`sottovoce.queries.Query.canary_dependence`).  Rounds add up in
``t = sum R' Cov^-1 residual`` and ``M = sum R' Cov^-1 R``; canary i's log odds, all others taken as
Gaussian, are ``2 [(M + I)^-1 t]_i / [(M + I)^-1]_ii``.  If the stated noise is wrong, guesses are
worse, and the bound stays true.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import expit

from .. import data as datasets
from ..algorithms import REGISTRY
from ..data.rows import Rows
from ..errors import InvalidInput
from ..problem.facts import Facts
from ..problem.losses import Loss, make_loss
from ..queries import Query
from ..runs.config import RunConfig
from ..runs.registering import find_method
from ..util.later import Later
from ..util.typing import Array, BoolArray, IntArray
from .game import USUAL, BookOf, Case, Claim, NoiseOf, Transcripts, Verdict, record_transcripts
from .likelihood import restrict_to_node
from .worst_cases import printed_form_options

optimize, stats = Later("scipy.optimize"), Later("scipy.stats")
FRACTIONS = (1, 2, 4, 8, 16)
"""Guess the m / k canaries with the largest scores, each at a fifth of the allowed error."""
LOSS = "huber:0.5"
"""Default loss: near zero a row and its opposite both have the largest derivative."""
_LEAST = 16
"""Least number of canaries: fewer show nothing."""
_FLOOR = 1e-6
"""Standard deviation, on the scale of sums, that stands for that of a release without noise."""


def guesses_p_value(
    canaries: int, guesses: int, right: int, epsilon: float, delta: float = 0.0
) -> float:
    """Return the bound of the theorem above on the probability of so many right guesses.

    It holds if the run is (epsilon, delta)-private.  It grows with epsilon wherever ``2 m delta``
    is at most the maximising i of the theorem, 1 for instance: it is then the least concave
    majorant of ``i -> f(v - i)`` at ``2 m delta``, and each ``f`` grows.

    Parameters
    ----------
    canaries : int
        Number of coins, m.
    guesses : int
        Number of coins that were guessed, r.
    right : int
        Number of right guesses, v.
    epsilon : float
        Claimed epsilon, at least 0.
    delta : float
        Claimed delta, in [0, 1].

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    InvalidInput
        Unless ``0 <= right <= guesses <= canaries``, epsilon >= 0 and delta is inside [0, 1].

    Examples
    --------
    >>> from sottovoce.audit.one_run import guesses_p_value
    >>> guesses_p_value(canaries=100, guesses=20, right=18, epsilon=1.0) > 0.05
    True
    """
    if not 0 <= right <= guesses <= canaries:
        raise InvalidInput(
            "right",
            right,
            f"must be from 0 to guesses={guesses} <= canaries={canaries}",
            "count the guesses again",
        )
    if not (epsilon >= 0.0 and 0.0 <= delta <= 1.0):
        raise InvalidInput(
            "epsilon, delta",
            (epsilon, delta),
            "epsilon must be at least 0, and delta from 0 to 1",
            "use (1, 1e-5)",
        )
    q = expit(epsilon)
    # f(v), the tail of Binomial(r, e^epsilon / (1 + e^epsilon)).
    tail = float(stats.binom.sf(right - 1, guesses, q))
    if delta == 0.0 or right == 0:
        return min(tail, 1.0)
    # Only i up to v: beyond, f(v - i) is 1, and dividing by a larger i makes the term smaller.
    revealed = np.arange(1, right + 1)
    derivative = np.max(np.cumsum(stats.binom.pmf(right - revealed, guesses, q)) / revealed)
    return min(tail + 2.0 * canaries * delta * float(derivative), 1.0)


def epsilon_from_guesses(
    canaries: int, guesses: int, right: int, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """Return a lower confidence bound on epsilon at `delta`, from the number of right guesses.

    Parameters
    ----------
    canaries : int
        Number of coins, m.
    guesses : int
        Number of coins that were guessed, r.
    right : int
        Number of right guesses, v.
    delta : float
        Claimed delta, in [0, 1].
    confidence : float
        Probability that the bound is true, at least.

    Returns
    -------
    float
        The epsilon at which :func:`guesses_p_value` is ``1 - confidence``; 0 if even epsilon 0
        explains the guesses.
    """
    error = 1.0 - confidence

    def over(epsilon: float) -> float:
        return guesses_p_value(canaries, guesses, right, epsilon, delta) - error

    if over(0.0) >= 0.0:
        return 0.0
    high = 1.0
    while over(high) < 0.0:
        high *= 2.0
    # Below the root by more than its tolerance, so that it stays a lower bound.
    return max(float(optimize.brentq(over, 0.0, high, xtol=1e-10)) - 1e-9, 0.0)


@dataclass(frozen=True)
class Count:
    """The number of guesses, among :data:`FRACTIONS`, that gives the largest bound on epsilon."""

    lower_bound: float
    """Lower bound on epsilon, which allows for the choice among the numbers of guesses."""
    guesses: int
    right: int
    """Right guesses among them."""


def bound_by_best_count(
    scores: Array, coins: BoolArray, delta: float = 0.0, confidence: float = 0.95
) -> Count:
    """Guess coins by the signs of the largest scores, and bound epsilon by the best count.

    Parameters
    ----------
    scores : array (m,)
        Log odds of every coin.
    coins : array of bool (m,)
        The coins as they fell.
    delta : float
        Claimed delta.
    confidence : float
        Probability that the bound is true, at least; each of :data:`FRACTIONS` gets an equal share
        of the remaining error.

    Returns
    -------
    Count
    """
    m = len(coins)
    order = np.argsort(-np.abs(scores), kind="stable")
    hits = np.cumsum((scores[order] >= 0) == coins[order])
    # Bonferroni over the numbers of guesses, which are fixed fractions of m: a number picked by the
    # scores would depend on the answer.
    careful = 1.0 - (1.0 - confidence) / len(FRACTIONS)
    found = []
    for k in FRACTIONS:
        guesses = max(m // k, 1)
        right = int(hits[guesses - 1])
        bound = epsilon_from_guesses(m, guesses, right, delta, careful)
        found.append(Count(bound, guesses, right))
    return max(found, key=lambda one: one.lower_bound)


@dataclass(frozen=True)
class Planted:
    """Tables with canaries in the last rows of some sites.

    Every list has an entry for each site.

    Attributes
    ----------
    rows : Rows
        The table of the run, by the coins.
    others : list of array (n_i, d)
        Signed rows, zero where a canary is.
    where : list of array of int (m_i,)
        Positions of the canaries.
    values : list of pair of array (m_i, d)
        Signed rows of the canaries for a false and for a true coin.
    coins : list of array of bool (m_i,)
    """

    rows: Rows
    others: list[Array]
    where: list[IntArray]
    values: list[tuple[Array, Array]]
    coins: list[BoolArray]

    def pooled(self) -> Planted:
        """Return the same tables for a curator who holds all rows."""
        starts = np.cumsum([0, *(len(x) for x in self.others)])
        # One start more than sites: the end of the last.
        where = np.concatenate([w + start for w, start in zip(self.where, starts, strict=False)])
        false = np.concatenate([values[0] for values in self.values])
        true = np.concatenate([values[1] for values in self.values])
        return Planted(
            rows=self.rows,
            others=[np.concatenate(self.others)],
            where=[where],
            values=[(false, true)],
            coins=[np.concatenate(self.coins)],
        )


def plant_canaries(
    parts: Sequence[tuple[Array, Array]],
    canaries: int,
    relation: str = "replace-one",
    sites: Sequence[int] | None = None,
    seed: int = 0,
    apart: int = 1,
) -> Planted:
    """Append canary rows to sites.

    They are on the unit sphere, and orthogonal as far as a site's features allow.

    Parameters
    ----------
    parts : sequence of (X, y)
        Every site's own rows.
    canaries : int
        In total, dealt evenly.
    relation : str
        Under replace-one a coin chooses between a row and its opposite, else between a row and
        zeros.
    sites : sequence of int, optional
        None for all.
    seed : int
        Of the canaries and the coins.
    apart : int
        Number of sites, one after the other, whose canaries share one orthogonal system: 1, or all
        sites where a curator pools rows.

    Returns
    -------
    Planted
    """
    rng = np.random.default_rng([seed, 0x0CA7])
    nodes, d = len(parts), parts[0][0].shape[1]
    if sites is None:
        sites = range(nodes)
    chosen = list(sites)
    counts = np.zeros(nodes, dtype=int)
    counts[chosen] = [len(part) for part in np.array_split(np.arange(canaries), len(chosen))]
    spare = np.empty((0, d))
    tables, others, where, values, coins = [], [], [], [], []
    for i, (X, y) in enumerate(parts):
        if i % apart == 0:
            spare = np.empty((0, d))
        while len(spare) < counts[i]:
            spare = np.concatenate([spare, _orthogonal_rows(d, rng)])
        # Orthogonal rows have orthogonal gradients, so canaries do not blur each other's scores.
        true, spare = spare[: counts[i]], spare[counts[i] :]
        coin = rng.random(counts[i]) < 0.5
        if relation == "replace-one":
            # The coin chooses the label.
            false = -true
            features, labels = true, np.where(coin, 1.0, -1.0)
        else:
            # The coin chooses between the row and zeros, both with the label 1.
            false = np.zeros_like(true)
            features, labels = true * coin[:, None], np.ones(len(coin))
        tables.append((np.concatenate([X, features]), np.concatenate([y, labels])))
        others.append(np.concatenate([X * y[:, None], np.zeros_like(true)]))
        where.append(np.arange(len(X), len(X) + counts[i], dtype=np.int64))
        values.append((false, true))
        coins.append(coin)
    return Planted(Rows.build_from_parts(tables), others, where, values, coins)


def _orthogonal_rows(d: int, rng: np.random.Generator) -> Array:
    """Draw d orthogonal rows (d, d), uniformly, just inside the unit ball."""
    q, r = np.linalg.qr(rng.standard_normal((d, d)))
    # With these signs Q is uniform over the orthogonal matrices.
    return np.asarray((q * np.sign(np.diag(r))).T * (1.0 - 1e-9))


@dataclass
class _Reader:
    """Scores of one site's canaries from what it sent: ``t`` and ``M`` of the module's docstring.

    Queries see it as a :class:`~sottovoce.queries.audit_hooks.Canaries`.  `others`, `where` and
    `values` are as in :class:`Planted`, of this site.
    """

    others: Array
    where: IntArray
    values: tuple[Array, Array]
    facts: Facts
    sums: float = field(init=False)
    count: int = field(init=False)
    kept: dict[str, Array] = field(init=False, default_factory=dict)
    _t: Array = field(init=False)
    _M: Array = field(init=False)

    def __post_init__(self) -> None:
        m = len(self.where)
        self._t, self._M = np.zeros(m), np.zeros((m, m))
        # Factor from a mean over rows to the scale of sums.
        self.sums = float((self.facts.n / self.facts.C)[0, 0])
        self.count = m

    def scores(self) -> Array:
        """Return the log odds of every canary's coin."""
        # Log odds of each coin, all others taken as Gaussian: 2 [(M + I)^-1 t]_i / [(M + I)^-1]_ii.
        inverse = np.linalg.inv(self._M + np.eye(len(self._t)))
        return np.asarray(2.0 * (inverse @ self._t) / np.diag(inverse))

    def _loss_of_rows(self, rows: Array) -> Loss:
        """Return the loss of these rows, whose clipping depends on their norms."""
        return self.facts.loss.for_row_norms(lambda: np.linalg.norm(rows, axis=1))

    def gradients(self, w: Array, part: int = 0, parts: int = 1) -> tuple[Array, Array]:
        """Compute the sum of gradients with every canary halfway between its values.

        Parameters
        ----------
        w : array (d,)
            The point.
        part : int
            Number of the minibatch: rows ``part``, ``part + parts`` and so on.
        parts : int
            Number of minibatches.

        Returns
        -------
        middle : array (d,)
            The sum of gradients.
        lean : array (d, m)
            Half the difference that each canary's coin makes; zero for canaries of other
            minibatches.
        """
        own = self.others[part::parts]
        false, true = (self._loss_of_rows(v).derivative(v @ w)[:, None] * v for v in self.values)
        here = (self.where % parts == part)[:, None]
        canaries = 0.5 * np.sum((false + true) * here, axis=0)
        middle = own.T @ self._loss_of_rows(own).derivative(own @ w) + canaries
        return middle, (0.5 * (true - false) * here).T

    def hessian(self, w: Array, part: int = 0, parts: int = 1) -> Array:
        """Compute the sum of Hessians, in which both values of a canary count by half.

        Parameters
        ----------
        w : array (d,)
            The point.
        part : int
            Number of the minibatch: rows ``part``, ``part + parts`` and so on.
        parts : int
            Number of minibatches.

        Returns
        -------
        array (d, d)
        """
        own = self.others[part::parts]
        total = own.T @ (self._loss_of_rows(own).curvature(own @ w)[:, None] * own)
        for v in self.values:
            kept = v[self.where % parts == part]
            total = total + 0.5 * kept.T @ (
                self._loss_of_rows(kept).curvature(kept @ w)[:, None] * kept
            )
        return np.asarray(total)

    def read(self, query: Query, answer: Array) -> None:
        """Add one release to the scores."""
        said = query.canary_dependence(self, answer)
        if said is None:
            return
        lean, covariance = said.lean, said.covariance
        weighted: Array
        if isinstance(covariance, np.ndarray):
            regular = covariance + _FLOOR**2 * np.eye(len(lean))
            weighted = np.asarray(np.linalg.solve(regular, lean), dtype=float)
        else:
            weighted = lean / max(float(covariance), _FLOOR**2)
        # Rounds add up: t = sum R' Cov^-1 residual, M = sum R' Cov^-1 R.
        self._t += weighted.T @ said.residual
        self._M += weighted.T @ lean


def scores(planted: Planted, seen: Transcripts) -> Array:
    """Return the log odds of every coin, sites in order, from all that was sent."""
    nodes = len(seen.facts.n)
    # Only a curator holds the rows of other sites.
    if nodes != len(planted.others):
        planted = planted.pooled()
    found = []
    for i in range(nodes):
        if len(planted.where[i]) == 0:
            continue
        own = replace(seen.facts, n=seen.facts.n[i : i + 1])
        reader = _Reader(planted.others[i], planted.where[i], planted.values[i], own)
        for query, answer in seen.asked:
            reader.read(
                restrict_to_node(query, i, nodes), restrict_to_node(answer, i, nodes).reshape(-1)
            )
        found.append(reader.scores())
    return np.concatenate(found)


@dataclass(frozen=True)
class OneRunVerdict(Verdict):
    """The verdict of one run, with the numbers of coins, of guesses and of right guesses."""

    canaries: int = 0
    guesses: int = 0
    right: int = 0


def audit_one_run(
    config: RunConfig,
    parts: Sequence[tuple[Array, Array]],
    canaries: int | None = None,
    *,
    sites: Sequence[int] | None = None,
    seed: int = 0,
    confidence: float = 0.95,
    noise: NoiseOf | None = None,
    book: BookOf | None = None,
) -> OneRunVerdict:
    """Make one run on rows with canaries, guess their coins, and bound epsilon from below.

    Parameters
    ----------
    config : RunConfig
        With a finite epsilon; its seed and replicates are not used.
    parts : sequence of (X, y)
        Every site's rows: X (n_i, d), y (n_i,) in {-1, +1}.
    canaries : int, optional
        By default as many as are orthogonal at their site: one a feature and a site.
    sites : sequence of int, optional
        Which sites get some; None for all.
    seed : int
        Of canaries, coins and noise.
    confidence : float
        Probability, in [0.5, 1), that the bound is true, at least.
    noise, book : callable, optional
        Planted faults, as in :class:`sottovoce.audit.game.Case`.

    Returns
    -------
    OneRunVerdict

    Raises
    ------
    InvalidInput
        For a method without noise or in sums, labels of more than two classes, or too few canaries.
    """
    _check_one_run(config, confidence)
    nodes, d = len(parts), parts[0][0].shape[1]
    pooled = REGISTRY[config.method].trust.pools_rows
    if canaries is None:
        # As many as are orthogonal: d in each system.
        systems = nodes if sites is None else len(sites)
        canaries = d if pooled else d * systems
    if canaries < _LEAST:
        raise InvalidInput(
            "canaries", canaries, f"must be at least {_LEAST} to show anything", "use 500"
        )
    planted = plant_canaries(parts, canaries, config.relation, sites, seed, nodes if pooled else 1)
    what = "with one label or the other" if config.relation == "replace-one" else "there or not"
    why = f"{canaries} rows at random in orthogonal systems of {d}, each {what}"
    # Both tables of the case are the one table of this run.
    case = Case(config, (planted.rows, planted.rows), 0, why, noise=noise, book=book)
    seen = record_transcripts(case, 0, 1, seed)
    return _judge_canaries(config, planted, seen, why, confidence)


def _judge_canaries(
    config: RunConfig, planted: Planted, seen: Transcripts, why: str, confidence: float
) -> OneRunVerdict:
    """Bound epsilon by the coins that are guessed best."""
    delta = config.delta or 0.0
    coins = np.concatenate(planted.coins)
    count = bound_by_best_count(scores(planted, seen), coins, delta, confidence)
    return OneRunVerdict(
        method=config.method,
        form=config.form,
        claimed_epsilon=seen.claimed,
        proved_epsilon=seen.proved,
        lower_bound=count.lower_bound,
        delta=delta,
        confidence=confidence,
        replicates=1,
        rounds=config.rounds,
        attack="canaries of one run",
        why=why,
        releases=len(seen.asked),
        canaries=len(coins),
        guesses=count.guesses,
        right=count.right,
    )


def _check_one_run(config: RunConfig, confidence: float) -> None:
    """Raise InvalidInput for a run in which canaries cannot be looked for."""
    if not 0.5 <= confidence < 1.0:
        raise InvalidInput("confidence", confidence, "must be at least 0.5 and below 1", "use 0.95")
    cls = REGISTRY[config.method]
    if not (cls.private and config.budgeted):
        raise InvalidInput(
            "epsilon",
            config.epsilon,
            "a run without noise claims no privacy",
            "use a private method",
        )
    if cls.trust.opens_sums:
        rule = (
            "must use trust='nobody', because one-run audits look for canaries in the releases of "
            "single sites"
        )
        raise InvalidInput("method", config.method, rule, "use `sottovoce audit sums`")
    if make_loss(config.loss).outputs > 1 or make_loss(config.loss).offset_bound:
        raise InvalidInput(
            "loss",
            config.loss,
            "must be a loss for two classes, because canaries have a label of two",
            f"use {LOSS!r} or 'logistic'",
        )


@dataclass(frozen=True)
class CanaryRun:
    """The run in which canaries are looked for.

    Parameters
    ----------
    data : str
        A data set (:func:`sottovoce.data.load`); its training rows are dealt to the sites at
        random.
    canaries : int
        How many rows are planted.
    nodes : int, optional
        Sites; None for enough for orthogonal canaries at each, at least 5.
    loss, relation : str
        Of the run.
    """

    data: str = "adult"
    canaries: int = 1000
    nodes: int | None = None
    loss: str = LOSS
    relation: str = "replace-one"


ADULT = CanaryRun()


def attack_once(
    method: str,
    form: str = "corrected",
    claim: Claim = USUAL,
    run: CanaryRun = ADULT,
    *,
    seed: int = 0,
    confidence: float = 0.95,
) -> OneRunVerdict:
    """Try to refute a privacy claim by a single run on real rows with canaries among them.

    Parameters
    ----------
    method, form : str
        One of :func:`sottovoce.audit.targets` that is a method.
    claim : Claim
        By default epsilon 1; delta 1e-5 where the method needs one; 2 rounds, or 1 for a method
        that releases once.
    run : CanaryRun
        Data, sites and canaries.
    seed : int
        Of the partition, canaries, coins and noise.
    confidence : float
        Probability, in [0.5, 1), that the bound is true, at least.

    Returns
    -------
    OneRunVerdict

    Raises
    ------
    InvalidInput
        For an unknown method, and as :func:`audit_one_run`.
    """
    cls = find_method(method)
    if cls is None or not cls.private:
        private = [name for name, other in REGISTRY.items() if other.private]
        raise InvalidInput(
            "method", method, f"must be one of {', '.join(private)}", "see `sottovoce methods`"
        )
    config = _claimed_run(method, form, claim, run)
    table = datasets.load(run.data)
    nodes = run.nodes
    if nodes is None:
        # Enough sites for orthogonal canaries at each.
        nodes = max(5, math.ceil(run.canaries / table.X_train.shape[1]))
    dealt = datasets.partition("iid", table.y_train, nodes, seed)
    parts = [(table.X_train[rows], table.y_train[rows]) for rows in dealt]
    return audit_one_run(config, parts, run.canaries, seed=seed, confidence=confidence)


def _claimed_run(method: str, form: str, claim: Claim, run: CanaryRun) -> RunConfig:
    """Return the run of a claim, with the defaults of :func:`attack_once`."""
    cls = REGISTRY[method]
    delta, rounds = claim.delta, claim.rounds
    if delta is None and cls.needs_delta:
        delta = 1e-5
    if rounds is None:
        rounds = 1 if cls.single else 2
    options = {
        "method": method,
        "form": form,
        "epsilon": 1.0 if claim.epsilon is None else claim.epsilon,
        "delta": delta,
        "rounds": rounds,
        "loss": run.loss,
        "relation": run.relation,
    }
    return RunConfig.from_dict(options | printed_form_options(method, form))
