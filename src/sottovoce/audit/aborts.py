"""Audit of aborts (`refusals`): extreme vectors that make a site abort, or not.

The page is docs/explanation/audit.md.

A neighbour sends a site very long vectors.  They may make a solve fail its certificate, an answer
leave its grid, or a margin overflow.  If whether, when or how the site aborts depends on its rows,
then the abort is an answer without noise.  She finds lengths at which the site behaves differently
on the two tables, by runs without noise, and then *bets* in runs with noise: on how the run ended,
or on the site's last message.  In sums she is one of three sites and adds such numbers to what she
sends; the third site is honest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np

from ..algorithms import REGISTRY, Algorithm
from ..data.rows import Rows
from ..ledger.memory import Ledger
from ..network.net import Net
from ..privacy import accountants
from ..privacy.noise import KeyedNoise, Noise, SystemNoise
from ..problem.facts import Among, Facts
from ..queries import Query, Sum
from ..runs import engine
from ..runs.config import RunConfig
from ..runs.engine import Place
from ..runs.prepare import prepare
from ..runs.pricing import Prepared
from ..runs.row_guard import Book, RowGuard
from ..runs.start import with_start_digest
from ..util.typing import Any, Array, IntArray
from .confidence import Test, check_replicates, choose_test
from .game import DEFAULT, Notes, Options, Verdict
from .likelihood import Silence
from .worst_cases import is_ours, lineage, site_from_signed_rows

RUNS, QUICK_RUNS = 400, 160
DELTA = 1e-5
_FEWEST = 80
"""Least runs of each table with noise of the operating system."""
_LOOK = 32
"""Runs of each table at every promising length, before one is chosen."""
# Lengths to try first, up to nearly the largest double.
_LENGTHS = (
    *(10.0**k for k in range(0, 18, 2)),
    1e20,
    1e30,
    1e50,
    1e100,
    1e154,
    1e200,
    1e300,
    1e308,
    1.7e308,
)
_LATE = ("mr_admm", "dgd")
"""Methods whose second round does not depend on what came in."""
_BRACKETS = 2
"""Most changes of a method's behaviour that are bisected."""
_STEPS = 48
"""Steps of a bisection: relative lengths of about 1e-13."""
_BROKEN = (TypeError, AttributeError, NameError, AssertionError, NotImplementedError)
"""Programming errors, which end the audit: a site's run does not end in these ways."""
_WHY_ONE_FEATURE = (
    "one feature, a row and its opposite: minimisers differ by little, but by more than the "
    "rounding of a long vector"
)
_WHY_MANY_FEATURES = (
    "a row of equal entries, and the same with every other sign turned: a product with a long "
    "vector overflows on one table only"
)


@dataclass(frozen=True)
class Victim:
    """One method at one site, whose one neighbour is the adversary; of sums, one of three sites.

    With one feature the tables differ in a row and its opposite, or in a row and zeros, by the
    relation. With more they differ in a row of equal entries and one of alternating signs, whose
    products with a long vector overflow at different lengths.

    Attributes
    ----------
    config : RunConfig
        The run.
    features : int
        Columns of a row.
    guard : callable
        Makes the row guard: tests plant faults there.
    """

    config: RunConfig
    features: int = 1
    guard: Callable[[Rows, Any, Noise, Book], RowGuard] = RowGuard

    @property
    def sums(self) -> bool:
        """True if the method opens sums over sites."""
        return REGISTRY[self.config.method].trust.opens_sums

    @cached_property
    def tables(self) -> tuple[Rows, Rows]:
        """Both tables; site 0 is the victim."""
        if self.features == 1:
            own = [1.0, -1.0, 1.0]
            other = site_from_signed_rows(1.0, -1.0, 1.0, -1.0)
            # Sums have an honest third site, since between two nothing is hidden.
            others = [other, other] if self.sums else [other]
            instead = 1.0 if self.config.relation == "replace-one" else 0.0
            first = Rows.build_from_parts([site_from_signed_rows(*own, -1.0), *others])
            second = Rows.build_from_parts([site_from_signed_rows(*own, instead), *others])
            return first, second
        # Just inside the unit ball, so that rounding makes no row longer than 1.
        X = np.full((4, self.features), 1.0 / math.sqrt(self.features) / (1.0 + 1e-9))
        y = np.ones(4)
        turned = X.copy()
        turned[-1, ::2] *= -1.0
        return Rows.build_from_parts([(X, y), (X, y)]), Rows.build_from_parts([(turned, y), (X, y)])

    @cached_property
    def ready(self) -> Prepared:
        """The calibrated run."""
        # Refuses a configuration that starts elsewhere than at zero, as every audit does.
        with_start_digest(self.config, None, self.features)
        return prepare(self.config, self.tables[0].n, self.features)

    @cached_property
    def site(self) -> tuple[Facts, Algorithm[Any], tuple[Rows, Rows]]:
        """The victim's own public facts and method, and its rows on both tables: of every run."""
        first, second = (rows.rows_of_node(0) for rows in self.tables)
        method = self.ready.algorithm.method_of_node(0)
        return self.ready.facts.facts_of_node(0), method, (first, second)

    @cached_property
    def row_difference(self) -> Array:
        """Direction in which the two rows differ."""
        first, second = (rows.signed[0, -1] for rows in self.tables)
        return np.asarray(first - second)

    @cached_property
    def claimed(self) -> float:
        """The ledger's total of a whole run."""
        book = self._run_against_length(0, 1.0, Silence(()))[1]
        accountant = accountants.make_accountant(self.config.notion)
        ledger = Ledger(accountant, math.inf, self.config.delta or 0.0)
        for event in book.rows:
            ledger.record_event(event)
        return ledger.total()

    def observe_run(self, table: int, length: float, noise: Noise) -> Seen:
        """Make one run against a vector with all entries equal to `length`.

        Parameters
        ----------
        table : int
            0 or 1.
        length : float
            Each entry of every vector that the adversary sends.
        noise : Noise
            Noise of the victim.

        Returns
        -------
        Seen
        """
        return self._run_against_length(table, length, noise)[0]

    def _run_against_length(self, table: int, length: float, noise: Noise) -> tuple[Seen, Notes]:
        """Make one run, and return how it ended and what it charged."""
        (facts, method, rows), book = self.site, Notes()
        net = _Extreme(np.full(self.features, length))
        guard: Any = self.guard(rows[table], facts, noise, book)
        if self.sums:
            guard = _WithHonestSite(guard, facts, net, noise)
        place = Place(facts, net, guard, (), self.features)
        # Overflow is what the adversary provokes; how the run ends is what counts.
        with np.errstate(all="ignore"):
            try:
                ended = engine.run_rounds(method, place, self.config.rounds).stopped
            except _BROKEN:
                raise
            except Exception as error:
                # Whatever it is, the neighbour sees that the site is gone.
                ended = f"{type(error).__name__}: {error}"
            all_finite = all(np.all(np.isfinite(sent)) for sent in net.sent)
            last = math.inf
            if all_finite and net.sent:
                last = float(net.sent[-1] @ self.row_difference)
        kind = "sent" if all_finite else "sent, no numbers"
        told = f"{ended} ({len(book.rows)} charged, {len(net.sent)} {kind})"
        return Seen(told, last), book


@dataclass(frozen=True)
class Seen:
    """What the neighbour sees of one run: how it ended.

    Attributes
    ----------
    told : str
        How it ended in words, with the numbers of charges and of messages.
    last : float
        The last message along the direction in which the rows differ; infinite if there is none, or
        a message is not finite.
    """

    told: str
    last: float


class _Extreme(Net):
    """A network whose one neighbour, the adversary, sends always the same vector.

    Of sums over sites, she adds it to every total.
    """

    def __init__(self, vector: Array) -> None:
        self.degree, self._vector = np.ones(1), vector
        self.sent: list[Array] = []
        self.honest: IntArray = np.zeros(1, dtype=np.int64)
        """Noise of the honest third site of a sum; she knows its rows, so they add nothing."""

    def neighbour_sum(self, x: Array) -> Array:
        self.sent.append(np.array(x))
        return self._vector.copy()

    def mask_share(self, share: IntArray) -> IntArray:
        return share

    def total(self, sealed: IntArray) -> IntArray:
        total = sealed + self.honest
        self.sent.append(total.astype(float))
        # Of a larger number the sum might not fit 64 bits.
        return np.asarray(total + np.minimum(self._vector, 2.0**62).astype(np.int64))


@dataclass
class _WithHonestSite:
    """A site's row guard, with an honest site that draws its share of every sum's noise."""

    guard: RowGuard
    facts: Facts
    net: _Extreme
    noise: Noise
    attempts: int = 0

    def charge_and_answer(self, query: Query) -> Array:
        return self.guard.charge_and_answer(query)

    def charge_and_open_sum(self, query: Sum, net: Net) -> Array:
        self.attempts += 1
        tau = query.attempt(self.facts, Among.all_sites(self.facts)).grid.tau
        entries = query.what.number_of_entries(self.facts)
        self.net.honest = self.noise.draw_rounded_gaussian(entries, tau, self.attempts, use=2)
        return self.guard.charge_and_open_sum(query, net)


@dataclass(frozen=True)
class AbortVerdict(Verdict):
    """The verdict on a neighbour who sends extreme vectors."""

    length: float = 0.0
    """Of each entry of the vector that was played."""
    told: tuple[dict[str, int], ...] = ()
    """How runs ended on each table, and how often."""
    channels: dict[str, float] = field(default_factory=dict)
    """Bounds of all methods and lengths at which a first look at few runs refutes the claim."""


def _default_victims(epsilon: float, delta: float | None, rounds: int | None) -> dict[str, Victim]:
    """Make a victim for each kind of release between sites.

    Together they have every kind of abort that a length can provoke.
    """
    # Nearly all of the budget goes to the release after her vector: it has little noise, all of it
    # in the objective.
    inside = {"method": "m_admm", "relation": "zero-out", "noise_growth": 20.0}
    gated = {"method": "ipp_admm", "positives": 2, "threshold": -1e6}
    known: dict[str, tuple[dict[str, Any], int]] = {"m_admm, zero-out": (inside, 1)}
    summing = [name for name, cls in REGISTRY.items() if cls.trust.opens_sums]
    for name in ("prox_admm", "prox_average", "pp_admm", *summing):
        known[name] = ({"method": name}, 1)
    known |= {
        "ipp_admm": (gated, 1),
        "prox_admm, a coarse solver": ({"method": "prox_admm", "tol": 1e-2, "eta": 1e-3}, 1),
        "dgd, many features": ({"method": "dgd"}, 64),
        "mr_admm, many features": ({"method": "mr_admm"}, 64),
    }
    known |= _victims_of_outside(known)
    found = {}
    for name, (knobs, features) in known.items():
        method = knobs["method"]
        # Methods with a pure price are attacked without a delta.
        claimed_delta = delta
        if delta is None and REGISTRY[method].needs_delta:
            claimed_delta = DELTA
        # The second round of a late method does not depend on her vector, the third does.
        least_rounds = 2
        if set(_LATE) & set(lineage(REGISTRY[method])):
            least_rounds = 3
        common = {
            "epsilon": epsilon,
            "delta": claimed_delta,
            "rounds": max(least_rounds, rounds or 0),
            "graph": "complete",
        }
        found[name] = Victim(RunConfig.from_dict(common | knobs), features)
    return found


def _victims_of_outside(
    known: Mapping[str, tuple[dict[str, Any], int]],
) -> dict[str, tuple[dict[str, Any], int]]:
    """Return the victims of registered methods from outside: as the nearest method of `known` that
    each derives from, or with nothing special.
    """
    found = dict[str, tuple[dict[str, Any], int]]()
    for name, cls in REGISTRY.items():
        if is_ours(cls) or cls.single or not (cls.private and cls.trust.between_sites):
            continue
        found[name] = ({"method": name}, 1)
        for parent in lineage(cls)[1:]:
            own = {key: one for key, one in known.items() if one[0]["method"] == parent}
            if own:
                found |= {
                    key.replace(parent, name, 1): ({**knobs, "method": name}, features)
                    for key, (knobs, features) in own.items()
                }
                break
    return found


@cache
def lengths(stand: Victim) -> tuple[float, ...]:
    """Find promising lengths of vectors by runs without noise, once for equal victims.

    These are lengths at which the site behaves differently on the two tables; and, where it changes
    its behaviour on both tables between two lengths, the two neighbouring numbers at the change.
    """
    silent = Silence(())
    seen = [
        tuple(stand.observe_run(table, length, silent).told for table in (0, 1))
        for length in _LENGTHS
    ]
    alike = [first == second for first, second in seen]
    # One length that tells the tables apart without noise is enough to play.
    found = [length for length, same in zip(_LENGTHS, alike, strict=True) if not same][:1]
    # Both tables change alike between two lengths, so somewhere between they may change apart.
    changes = [
        k for k in range(1, len(seen)) if alike[k - 1] and alike[k] and seen[k - 1] != seen[k]
    ]
    for k in changes[:_BRACKETS]:
        found += _bisect_behaviour_change(stand, _LENGTHS[k - 1], _LENGTHS[k], seen[k - 1][0])
    return tuple(found)


def _bisect_behaviour_change(
    stand: Victim, low: float, high: float, told: str
) -> tuple[float, ...]:
    """Bisect between two lengths for one at which the tables behave differently.

    If there is none, return two neighbouring lengths between which both change.
    """
    silent = Silence(())
    for _ in range(_STEPS):
        if high > 2.0 * low:
            # Bisect the logarithm while the bracket is wide; the product of the roots does not
            # overflow.
            middle = math.sqrt(low) * math.sqrt(high)
        else:
            middle = low + 0.5 * (high - low)
        # Two neighbouring floating-point numbers have no middle.
        if not low < middle < high:
            break
        first, second = (stand.observe_run(table, middle, silent).told for table in (0, 1))
        if first != second:
            return (middle,)
        if first == told:
            low = middle
        else:
            high = middle
    return low, high


Played = tuple[list[Seen], list[Seen]]
"""How runs ended on table 0 and on table 1."""
NoiseAt = Callable[[int, int], Noise]
"""Makes the noise of a run, given the number of its table and its own."""


def _run_both_tables(stand: Victim, length: float, runs: int, noise: NoiseAt) -> Played:
    """Make `runs` runs on each table against vectors of one length."""
    first, second = (
        [stand.observe_run(table, length, noise(table, run)) for run in range(runs)]
        for table in (0, 1)
    )
    return first, second


def _score_runs(played: Played, bets: Sequence[str]) -> list[tuple[Array, Array]]:
    """Return scores of the runs on both tables, for each behaviour to bet on and the last message.

    A score of a behaviour is 1 where the run ended so, else 0.  Of the last message there are two
    scores, in which aborted runs are above or below all others.  The message matters where noise
    decides whether a site aborts: aborts may be equally frequent on both tables, and yet the
    remaining answers be possible on only one of them.
    """
    found = [
        tuple(np.array([float(one.told == told) for one in side]) for side in played)
        for told in bets
    ]
    for end in (math.inf, -math.inf):
        found.append(
            tuple(np.array([_last_message(one, aborted=end) for one in side]) for side in played)
        )
    return [(first, second) for first, second in found]


def _last_message(seen: Seen, *, aborted: float) -> float:
    """Return the last message of a run, or `aborted` if it did not finish with numbers."""
    if seen.told.startswith(engine.FINISHED) and math.isfinite(seen.last):
        return seen.last
    return aborted


@dataclass(frozen=True)
class Bet:
    """A score of runs and a set of its values, which were chosen on some of the runs.

    Attributes
    ----------
    bets : tuple of str
        Behaviours (:attr:`Seen.told`) of those runs, in order.
    which : int
        Number of the score among those of :func:`_score_runs`.
    test : Test
        The set of its values that is more likely on one of the tables.
    """

    bets: tuple[str, ...]
    which: int
    test: Test

    @classmethod
    def choose_best_bet(cls, played: Played, delta: float, confidence: float) -> Bet:
        """Choose the bet with the largest bound in these runs.

        Parameters
        ----------
        played : pair of list of Seen
            Runs on table 0 and on table 1.
        delta : float
            Delta of the claim.
        confidence : float
            Confidence of the verdict.

        Returns
        -------
        Bet
        """
        bets = tuple(sorted({one.told for side in played for one in side}))
        tests = [choose_test(scores, delta, confidence) for scores in _score_runs(played, bets)]
        which = max(range(len(tests)), key=lambda k: tests[k].bound)
        return cls(bets, which, tests[which])

    def bound(self, played: Played, delta: float, confidence: float) -> float:
        """Return the lower bound on epsilon that this bet gives on other runs.

        Parameters
        ----------
        played : pair of list of Seen
            Runs on table 0 and on table 1 that did not choose the bet.
        delta : float
            Delta of the claim.
        confidence : float
            Probability that the bound is true, at least.

        Returns
        -------
        float
        """
        return self.test.epsilon_lower_bound(
            _score_runs(played, self.bets)[self.which], delta, confidence
        )

    @property
    def words(self) -> str:
        """The score in words."""
        # The scores of the last message stand behind those of behaviours (`_score_runs`).
        if self.which < len(self.bets):
            return f"whether it says {self.bets[self.which]!r}"
        return "its last message"


def split_in_halves(played: Played) -> tuple[Played, Played]:
    """Split runs into those that choose a bet, and those that bound epsilon by it.

    InvalidInput if the first are too few.
    """
    check_replicates(len(played[0]))
    half = len(played[0]) // 2
    return (played[0][:half], played[1][:half]), (played[0][half:], played[1][half:])


@dataclass(frozen=True)
class _Look:
    """A first bound from few runs at one length.

    `mixed` is true if noise decides how a run ends.
    """

    bound: float
    claimed: float
    mixed: bool

    @property
    def excess_over_claim(self) -> float:
        """By how much the bound is above the claim, to a thousandth."""
        return round(self.bound - self.claimed, 3)


def _first_looks(
    stands: Mapping[str, Victim], noise: NoiseAt, confidence: float
) -> dict[tuple[str, float], _Look]:
    """Make a few runs of every method at every promising length."""
    looks = dict[tuple[str, float], _Look]()
    for name, stand in stands.items():
        for length in lengths(stand):
            played = _run_both_tables(stand, length, _LOOK, noise)
            bet = Bet.choose_best_bet(played, stand.config.delta or 0.0, confidence)
            mixed = any(len({one.told for one in side}) > 1 for side in played)
            looks[name, length] = _Look(bet.test.bound, stand.claimed, mixed)
    return looks


def play(
    asked: Options = DEFAULT, stands: Mapping[str, Victim] | None = None, *, released: bool = True
) -> AbortVerdict:
    """Search for a method and a length of vectors that tell the tables apart, and play them.

    Parameters
    ----------
    asked : Options
        As :func:`sottovoce.audit.attack` passes them.
    stands : mapping of str to Victim, optional
        Sites to attack; by default one for each kind of release.
    released : bool
        Also play with noise of the operating system: a quarter of the runs, and at least 80.

    Returns
    -------
    AbortVerdict
    """
    if stands is None:
        epsilon = 1.0 if asked.epsilon is None else asked.epsilon
        stands = _default_victims(epsilon, asked.delta, asked.rounds)
    replicates, confidence = asked.replicates or RUNS, asked.confidence

    def keyed(first: int) -> NoiseAt:
        def noise_of_run(table: int, run: int) -> Noise:
            return KeyedNoise(2 * asked.seed + table, [first + run], [0], ())

        return noise_of_run

    def system_noise(table: int, run: int) -> Noise:
        return SystemNoise()

    looks = _first_looks(stands, keyed(0), confidence)
    # Two games: the pair that looks worst, and the worst one where noise decides how a run ends.
    certain = max(
        looks, key=lambda one: looks[one].excess_over_claim, default=(next(iter(stands)), 1.0)
    )
    noisy = [one for one, look in looks.items() if look.mixed]
    by_noise = max(noisy, key=lambda one: looks[one].excess_over_claim, default=certain)
    games = [
        # Run numbers begin behind those of the first looks, so that all noise is fresh.
        (one, "simulated noise", keyed(_LOOK), replicates)
        for one in dict.fromkeys([certain, by_noise])
    ]
    if released:
        # Fewer runs: they are slow, and what she bets on seldom depends on the noise.
        few = max(_FEWEST, replicates // 4)
        games.append((certain, "noise of the operating system", system_noise, few))
    # The worst of several games is reported, so each gets an equal share of the error.
    each = 1.0 - (1.0 - confidence) / len(games)
    verdicts = []
    for (name, length), source, noise, runs in games:
        stand = stands[name]
        played = _run_both_tables(stand, length, runs, noise)
        said = f"{name}, {source}"
        verdicts.append(_judge_game(stand, said, length, played, confidence, each))
    # Rounded, so that the last digits of a bound do not decide which game is reported.
    best = max(verdicts, key=lambda one: round(one.lower_bound - one.claimed_epsilon, 3))
    channels = {
        f"{name} at {at:.6g}": look.bound
        for (name, at), look in looks.items()
        if look.excess_over_claim > 0.0
    }
    return replace(best, channels=channels)


def _judge_game(
    stand: Victim, name: str, length: float, played: Played, confidence: float, each: float
) -> AbortVerdict:
    """Return the verdict of one game.

    All games together hold at `confidence`, this one alone at `each`.
    """
    known, fresh = split_in_halves(played)
    delta = stand.config.delta or 0.0
    bet = Bet.choose_best_bet(known, delta, confidence)
    return AbortVerdict(
        method="refusals",
        form="corrected",
        claimed_epsilon=stand.claimed,
        proved_epsilon=stand.claimed,
        lower_bound=bet.bound(fresh, delta, each),
        delta=delta,
        confidence=confidence,
        replicates=len(played[0]),
        rounds=stand.config.rounds,
        attack=f"entries of {length:.6g} to {name}: {bet.words}",
        why=_WHY_ONE_FEATURE if stand.features == 1 else _WHY_MANY_FEATURES,
        releases=stand.config.rounds,
        length=length,
        told=tuple(dict(Counter(one.told for one in side)) for side in played),
    )
