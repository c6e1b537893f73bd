"""Audit of optional stopping (`stopping`): is epsilon true whenever an analyst stops?

The page is docs/explanation/audit.md.

An analyst follows the privacy loss L of the releases so far (the log of how much likelier they are
on the one table than on the other), and the ledger quotes an epsilon after each: the *quotes*.  If
they hold whenever she stops, then at that release, on the table that she favours,

    E[(1 - e^(quote - loss))_+]  <=  delta.

Gaussian losses grow by independent normal steps, so her best rule and the largest left side follow
by backward induction on a grid of losses.  The game plays that rule against real releases and real
ledgers, with a coin of that probability.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from ..errors import InvalidInput
from ..ledger.durable import DurableLedger
from ..ledger.memory import Ledger
from ..privacy.accountants import Accountant
from ..privacy.events import Event, GaussianMechanism
from ..privacy.noise import KeyedNoise
from ..problem.facts import Facts
from ..problem.losses import make_loss
from ..queries import NoisyGradient
from ..runs.row_guard import RowGuard
from ..util.later import Later
from ..util.typing import Any, Array, ArrayLike
from .confidence import probability_lower_limit
from .game import DEFAULT, Notes, Options, Verdict
from .likelihood import Candidate
from .worst_cases import tables

optimize, signal = Later("scipy.optimize"), Later("scipy.signal")
DELTA = 1e-3
"""Default delta.  With a smaller one a wrong quote errs more, and takes more runs to show it."""
RELEASES, RUNS, QUICK_RUNS = 40, 10_000, 4_000
NOTIONS = ("zcdp", "rdp")
"""Accountants with a delta whose totals may be quoted during a run."""

_LEAST = 1e-12
"""The least delta: far above the rounding of the backward induction, some 1e-16."""
_SPAN = 1e3
"""Ratio of what is spent after the last release to what is spent after the first."""
_POINTS, _WIDTH = 12, 8.0
"""Grid points for a standard deviation of the smallest release's loss, and half-width of the grid
in standard deviations of the total loss."""
_WHY = (
    "one feature, a row and its opposite: the gradient moves by all of its sensitivity in every "
    "release"
)


class Quoting(Protocol):
    """Interface of a ledger in this game, which quotes the epsilon spent so far."""

    @property
    def accountant(self) -> Accountant[Any]:
        """Prices its rows."""

    def record_event(self, event: Event) -> None:
        """Record a release."""

    def total(self) -> float:
        """Return the quoted epsilon."""


OpensLedger = Callable[[float, float], AbstractContextManager[Quoting]]
"""Opens a new ledger of an epsilon and a delta."""


def open_memory_ledger(notion: str) -> OpensLedger:
    """Return a function that opens ledgers in memory, of this accountant."""

    def opened(epsilon: float, delta: float) -> AbstractContextManager[Quoting]:
        return nullcontext(Ledger(notion, epsilon, delta))

    return opened


def open_disk_ledger(notion: str) -> OpensLedger:
    """Return a function that opens durable ledgers in a temporary folder, of this accountant."""

    @contextmanager
    def opened(epsilon: float, delta: float) -> Iterator[Quoting]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "audited.ledger"
            with DurableLedger.create(
                path, epsilon=epsilon, delta=delta, accountant=notion
            ) as ledger:
                yield ledger

    return opened


# By name, a function that opens a new ledger.
LEDGERS: dict[str, OpensLedger] = {
    f"{notion} {where}": make(notion)
    for notion in NOTIONS
    for where, make in (
        ("ledger in memory", open_memory_ledger),
        ("ledger on disk", open_disk_ledger),
    )
}


@dataclass(frozen=True)
class StoppingVerdict(Verdict):
    """The verdict on optional stopping.

    ``claimed_epsilon`` and ``proved_epsilon`` are the last quote.  ``lower_bound`` and
    ``exact_epsilon`` add the amount by which every quote would have to be raised to hold whenever
    she stops, negative if there is room to spare.
    """

    realised_delta: float = 0.0
    """Of her best rule, by backward induction; claimed to be at most ``delta``."""
    realised_delta_bound: float = 0.0
    """A lower bound on it from the runs, at the confidence."""
    ledgers: dict[str, float] = field(default_factory=dict)
    """``realised_delta`` of every ledger; the worst was played."""


@dataclass(frozen=True)
class Rule:
    """A rule that stops at the first release whose cumulative loss reaches its bar.

    Attributes
    ----------
    delta : float
        The left side of the module's inequality under this rule; above the ledger's delta, its
        quotes do not hold.
    bars : array (T,)
        Bar of each release.
    """

    delta: float
    bars: Array


def best_stopping_rule(quotes: Array, shifts: Array, points: int = _POINTS) -> Rule:
    """Find the adversary's best stopping rule against a ledger's quotes, by backward induction.

    Parameters
    ----------
    quotes : array (T,)
        Epsilon as quoted after each release.
    shifts : array (T,)
        Sensitivity over sigma of each release, whose loss is ``N(shift^2 / 2, shift^2)``.
    points : int
        Grid points for a deviation of the smallest release.

    Returns
    -------
    Rule
        Bars (T,) on the cumulative loss, infinite where it never pays to stop.
    """
    drift = np.cumsum(shifts**2) / 2.0
    step = float(shifts.min()) / points
    reach = int(_WIDTH * math.sqrt(2.0 * drift[-1]) / step)
    # The loss less its drift: every step has mean zero, so one symmetric grid serves all releases.
    x = np.arange(-reach, reach + 1) * step

    def taken(t: int) -> Array:
        """Return (1 - e^(quote - loss))_+ at the grid's losses: what stopping now is worth."""
        return np.asarray(-np.expm1(np.minimum(quotes[t] - drift[t] - x, 0.0)))

    def averaged(values: Array, shift: float) -> Array:
        """Return the expectation of values after a release, given the loss before it."""
        near = int(_WIDTH * shift / step)
        # The next loss adds a normal step, so its expectation is a convolution on the grid.
        weights = _normal_density(np.arange(-near, near + 1) * (step / shift))
        # The transform's rounding may leave values a little below zero.
        return np.maximum(signal.fftconvolve(values, weights / weights.sum(), mode="same"), 0.0)

    last = len(quotes) - 1
    value = taken(last)
    bars = np.full(len(quotes), np.inf)
    bars[last] = quotes[last]
    # Backward induction: she stops where stopping now is worth at least the expectation of going
    # on, and can win anything.
    for t in range(last - 1, -1, -1):
        now, later = taken(t), averaged(value, float(shifts[t + 1]))
        stops = np.flatnonzero((now >= later) & (now > 0.0))
        if stops.size:
            bars[t] = drift[t] + x[stops[0]]
        value = np.maximum(now, later)
    weights = _normal_density(x / shifts[0]) * step / shifts[0]
    return Rule(float(value @ weights), bars)


def _normal_density(x: ArrayLike) -> Array:
    """Return the density of the standard normal."""
    return np.asarray(np.exp(-np.square(x) / 2.0) / math.sqrt(2.0 * math.pi))


def raise_needed_by_quotes(quotes: Array, shifts: Array, delta: float) -> float:
    """Return what every quote must be raised by so that the best rule reaches exactly `delta`.

    Parameters
    ----------
    quotes : array (T,)
        Epsilon as quoted after each release.
    shifts : array (T,)
        Sensitivity over sigma of each release.
    delta : float
        Delta of the ledger.

    Returns
    -------
    float
        Negative if quotes have room to spare; at least minus the largest quote.
    """

    def over(more: float) -> float:
        return best_stopping_rule(quotes + more, shifts).delta - delta

    low, high = -float(quotes.max()), 1.0
    # Lowered by this, no quote is above zero any more.
    if over(low) <= 0.0:
        return low
    while over(high) > 0.0:
        high *= 2.0
    return float(optimize.brentq(over, low, high, xtol=1e-5))


@dataclass(frozen=True)
class Game:
    """Releases of sizes fixed beforehand, the ledger's quotes, and the best stopping rule.

    Attributes
    ----------
    queries : tuple of NoisyGradient
        One for each release.
    quotes : array (T,)
        Epsilon as quoted after each release.
    shifts : array (T,)
        Sensitivity over sigma of each release.
    rule : Rule
    """

    queries: tuple[NoisyGradient, ...]
    quotes: Array
    shifts: Array
    rule: Rule


class _Watched(Notes):
    """A book that charges a ledger, and keeps what it quotes after each charge."""

    def __init__(self, ledger: Quoting) -> None:
        super().__init__()
        self._ledger = ledger
        self.quotes: list[float] = []

    def record_event(self, event: Event) -> None:
        self._ledger.record_event(event)
        super().record_event(event)
        self.quotes.append(self._ledger.total())


# One site of four rows, whose last row is replaced by its opposite.
_FACTS = Facts(make_loss("huber:0.5"), np.array([[4.0]]), 1, 1.0, 1.0, 1, pure=False)
_TABLES = tuple(rows.rows_of_node(0) for rows in tables([1.0, -1.0, 1.0], [1.0, -1.0], 1.0))


def _release_of_size(alpha: float) -> NoisyGradient:
    """Return a noisy gradient at zero whose sensitivity over sigma is `alpha`."""
    return NoisyGradient(np.zeros((1, 1, 1)), np.array([[alpha]]), "release of the game")


def _table_candidates() -> tuple[Candidate, Candidate]:
    """Return the site on table 0 and on table 1, for likelihoods."""
    return Candidate(_TABLES[0], _FACTS, 0), Candidate(_TABLES[1], _FACTS, 0)


def _shift_over_sigma(query: NoisyGradient) -> float:
    """Return sensitivity over sigma (mu of Gaussian differential privacy), by the query's own
    code.
    """
    event = query.event(_FACTS)
    assert isinstance(event, GaussianMechanism)
    first, second = (one.noise_free_answer(query) for one in _table_candidates())
    return float(np.abs(second - first)[0, 0, 0] / event.sigma[0])


def prepare_stopping_game(opened: OpensLedger, epsilon: float, delta: float, releases: int) -> Game:
    """Spend the budget of a new ledger in releases that grow by a constant factor.

    The best stopping rule against its quotes is found, too.

    Parameters
    ----------
    opened : callable
        Opens the ledger.
    epsilon, delta : float
        Budget of the ledger.
    releases : int
        Number of releases, T.

    Returns
    -------
    Game
    """
    spent = np.geomspace(1.0, _SPAN, releases)
    sizes = np.sqrt(np.diff(spent / spent[-1], prepend=0.0))
    with opened(epsilon, delta) as ledger:
        low, high = 0.0, 1.0

        def fits(alpha: float) -> bool:
            event = _release_of_size(alpha).event(_FACTS)
            return bool(np.all(ledger.accountant.epsilon_of_events([event], delta) <= epsilon))

        # Scale all releases together until the accountant prices them at the whole budget.
        while fits(high):
            low, high = high, 2.0 * high
        while high - low > 1e-9 * high:
            middle = 0.5 * (low + high)
            if fits(middle):
                low = middle
            else:
                high = middle
        # A little less than the whole, so that rounding does not exceed the budget.
        queries = tuple(_release_of_size(low * (1.0 - 1e-6) * float(size)) for size in sizes)
        book = _Watched(ledger)
        for query in queries:
            book.record_event(query.event(_FACTS))
    quotes = np.array(book.quotes)
    shifts = np.array([_shift_over_sigma(query) for query in queries])
    return Game(queries, quotes, shifts, best_stopping_rule(quotes, shifts))


def losses(
    game: Game, opened: OpensLedger, epsilon: float, delta: float, runs: int, seed: int
) -> tuple[Array, Array]:
    """Make the releases of a game through a real row guard, and follow the privacy loss.

    Parameters
    ----------
    game : Game
    opened : callable
        Opens a new ledger, which is charged.
    epsilon, delta : float
        Budget of the ledger.
    runs : int
        Number of runs, all at once.
    seed : int
        Of the simulated noise.

    Returns
    -------
    followed : array (T, runs)
        Cumulative losses, on the table that the adversary favours.
    quotes : array (T,)
        Epsilon as the ledger quotes it after each release.
    """
    candidates = _table_candidates()
    total, found = np.zeros(runs), []
    with opened(epsilon, delta) as ledger:
        book = _Watched(ledger)
        guard = RowGuard(_TABLES[1], _FACTS, KeyedNoise(seed, range(runs), [0]), book)
        for query in game.queries:
            answer = guard.charge_and_answer(replace(query, start=np.zeros((runs, 1, 1))))
            first, second = (one.log_density(query, answer) for one in candidates)
            assert first is not None and second is not None
            total = total + second - first
            # As in `likelihood.log_likelihood_ratio`: the last digits of simulated noise depend on
            # what it was added to.
            found.append(np.round(total, 9))
    return np.array(found), np.array(book.quotes)


def margins_of_heads(game: Game, followed: Array, quotes: Array, coins: Array) -> Array:
    """Return for every run by how much all quotes could be raised with the coin showing heads.

    The coin shows heads with probability ``(1 - e^(quote - loss))_+`` where she stopped.

    Parameters
    ----------
    game : Game
    followed : array (T, runs)
        Cumulative losses.
    quotes : array (T,)
        Epsilon as quoted after each release.
    coins : array (runs,)
        Uniform numbers in [0, 1); heads if below that probability.

    Returns
    -------
    array (runs,)
        Positive where the coin shows heads.
    """
    stopped = followed >= game.rule.bars[:, None]
    # After the last release there is nothing more to wait for.
    stopped[-1] = True
    at = np.argmax(stopped, axis=0)
    return np.asarray(followed[at, np.arange(len(at))] - quotes[at] + np.log1p(-coins))


def play(asked: Options = DEFAULT, stands: Mapping[str, OpensLedger] = LEDGERS) -> StoppingVerdict:
    """Find the ledger whose quotes fail most under optional stopping, and play it.

    The budget is by default 2 at :data:`DELTA`, in :data:`RELEASES` or `rounds` releases.

    Parameters
    ----------
    asked : Options
        As :func:`sottovoce.audit.attack` passes them.
    stands : mapping of str to callable
        Functions that open a new ledger, by name.

    Returns
    -------
    StoppingVerdict

    Raises
    ------
    InvalidInput
        If delta is too small to see anything.
    """
    epsilon = 2.0 if asked.epsilon is None else asked.epsilon
    delta = DELTA if asked.delta is None else asked.delta
    releases = RELEASES if asked.rounds is None else asked.rounds
    _check_delta(delta)
    replicates, seed, confidence = asked.replicates or RUNS, asked.seed, asked.confidence
    # Which ledger is worst is decided by induction, without runs, so the choice costs no error.
    games = {
        name: prepare_stopping_game(opened, epsilon, delta, releases)
        for name, opened in stands.items()
    }
    name = max(games, key=lambda one: round(games[one].rule.delta / delta, 6))
    game = games[name]
    followed, quotes = losses(game, stands[name], epsilon, delta, replicates, seed)
    coins = np.random.default_rng([seed, 1]).random(replicates)
    # Raising all quotes by a margin leaves heads only in the runs whose margin is as large.
    margins = np.sort(margins_of_heads(game, followed, quotes, coins))[::-1]
    last = float(quotes[-1])
    bound = _bound_of_last(last, margins, delta, confidence)
    won = probability_lower_limit(np.sum(margins > 0.0), replicates, 1.0 - confidence)
    attack = f"stops by the loss so far, {name}: delta {game.rule.delta:.3g}, declared {delta:g}"
    return StoppingVerdict(
        method="stopping",
        form="corrected",
        claimed_epsilon=last,
        proved_epsilon=last,
        lower_bound=bound,
        delta=delta,
        confidence=confidence,
        replicates=replicates,
        rounds=len(quotes),
        attack=attack,
        why=_WHY,
        releases=len(quotes),
        exact_epsilon=last + raise_needed_by_quotes(quotes, game.shifts, delta),
        realised_delta=game.rule.delta,
        realised_delta_bound=float(won),
        ledgers={one: each.rule.delta for one, each in games.items()},
    )


def _bound_of_last(last: float, margins: Array, delta: float, confidence: float) -> float:
    """Return a lower bound on what the last quote should be; 0 if the claim stands.

    Parameters
    ----------
    last : float
        The last quote, an epsilon.
    margins : array (runs,)
        :func:`margins_of_heads`, the largest first: with all quotes raised by the k-th, the coin
        shows heads in the first k runs at most.
    delta, confidence : float

    Returns
    -------
    float
    """
    replicates = len(margins)
    heads = np.arange(1, replicates + 1)
    # Numbers of heads that are more than delta allows, at the confidence.
    too_many = probability_lower_limit(heads, replicates, 1.0 - confidence) > delta
    if not too_many.any():
        return 0.0
    # Raised by less than this margin, quotes would still be refuted.
    return max(0.0, last + float(margins[np.argmax(too_many)]))


def _check_delta(delta: float) -> None:
    """Raise InvalidInput for a delta at which nothing can be seen."""
    if not 0.0 < delta < 1.0:
        rule = "must lie inside (0, 1): without a delta, this audit has nothing to test"
        raise InvalidInput("delta", delta, rule, "use 1e-3")
    if delta < _LEAST:
        rule = f"must be at least {_LEAST:g}: probabilities here are exact to about 1e-16 only"
        raise InvalidInput("delta", delta, rule, "use 1e-3")
