"""The distinguishing game: which of two neighbouring tables did a site hold?

The page is docs/explanation/audit.md.

The real row guard, queries, noise and engine run on both tables, thousands of replicates at
once.  The adversary sees all messages and the configuration, and of sums the totals and all that
the colluding sites, the last ones, know: that is a *transcript* of a run.  One half of the
replicates chooses a score of transcripts and a threshold, and the other half gives the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from ..algorithms import Algorithm, Recipe
from ..data.move import Move
from ..data.rows import Rows
from ..errors import LedgerError
from ..ledger.memory import Ledger
from ..network.graphs import Graph
from ..network.net import DenseNet, Net
from ..privacy.events import Event
from ..privacy.noise import KeyedNoise, Noise
from ..problem.facts import Facts
from ..problem.losses import Loss
from ..queries import Query, Sum
from ..runs import engine
from ..runs.centre import Centring
from ..runs.config import RunConfig
from ..runs.engine import Place
from ..runs.prepare import prepare, rows_on_backend
from ..runs.row_guard import Book, RowGuard, make_solver
from ..runs.start import with_start_digest
from ..solvers.apart import Apart
from ..solvers.local import Solver
from ..util.later import Later
from ..util.typing import Any, Array, IntArray
from .confidence import Test, check_replicates, choose_test
from .likelihood import (
    Candidate,
    OpenedSum,
    Solvers,
    log_likelihood_ratio,
    log_likelihood_ratio_of_sums,
)

spatial = Later("scipy.spatial")
Scores = tuple[Array, Array]
"""Scores of the runs on table 0 and on table 1, (R,) each."""
NoiseOf = Callable[[int, range, range], Noise]
"""Makes a source of noise, ``(seed, replicates, nodes) -> Noise``."""
BookOf = Callable[[Ledger], Book]
"""Makes the book that a row guard charges, given the run's ledger."""


@dataclass(frozen=True)
class Options:
    """Settings of an audit, as :func:`sottovoce.audit.attack` passes them to it.

    None stands for the audit's own default.  Fields are as the parameters of that function, and
    epsilon, delta and rounds as in :class:`Claim`.
    """

    epsilon: float | None = None
    delta: float | None = None
    rounds: int | None = None
    replicates: int | None = None
    seed: int = 0
    confidence: float = 0.95
    colluders: int | None = None
    form: str = "corrected"


DEFAULT = Options()


@dataclass(frozen=True)
class Claim:
    """The privacy claim under attack: epsilon and delta of a whole run of so many rounds.

    None stands for the default of the method or audit.
    """

    epsilon: float | None = None
    delta: float | None = None
    rounds: int | None = None


USUAL = Claim()


@dataclass(frozen=True)
class Case:
    """Two tables that differ in one row of one site, and the run that is played on them.

    Attributes
    ----------
    config : RunConfig
        The run; its seed and number of replicates are replaced.
    tables : pair of Rows
        Table 0 and table 1.
    victim : int
        The site whose row differs.
    why : str
        Why this pair is a worst case.
    algorithm : callable, optional
        Sets hyperparameters that a configuration does not have.
    solver : callable ``(rows, facts, table)``, optional
        Makes a solver that errs in the worst direction that its certificate allows, for printed
        forms that allow any solver.
    noise, book : callable, optional
        Planted faults, for tests of the audit: another source of noise, another ledger.
    colluders : int, optional
        Sites of a sum that tell the adversary all they know; by default as many as the claim
        allows.
    method, loss : optional
        A recipe to run in place of the configuration's method, and the loss of its rows.
    centring : Centring, optional
        How rows are centred before the method.
    """

    config: RunConfig
    tables: tuple[Rows, Rows]
    victim: int
    why: str
    algorithm: Callable[[Algorithm[Any]], Algorithm[Any]] | None = None
    solver: Solvers | None = None
    noise: NoiseOf | None = None
    book: BookOf | None = None
    colluders: int | None = None
    method: Recipe | None = None
    loss: Loss | None = None
    centring: Centring | None = None

    @property
    def colluding_sites(self) -> int:
        """Number of colluding sites of a sum."""
        if self.colluders is None:
            return self.config.colluders
        return self.colluders

    def make_table_solver(self, rows: Rows, facts: Facts, table: int) -> Solver:
        """Make the solver of a table, for its sites and for the adversary.

        Parameters
        ----------
        rows : Rows
            Rows of one node or of all.
        facts : Facts
            Public facts of the same nodes.
        table : int
            0 or 1: a solver that errs on purpose errs in opposite directions.

        Returns
        -------
        Solver
        """
        if self.solver is None:
            return make_solver(rows, facts)
        return self.solver(rows, facts, table)

    def moved(self, move: Move | None) -> Case:
        """Return the case for an adversary who knows the public map of rows of every replicate.

        Her likelihoods are then of rows moved as their proofs say; None moves nothing.
        """
        if move is None:
            return self

        def solver(rows: Rows, facts: Facts, table: int) -> Solver:
            # Every replicate released another mean, so its rows are moved by another map.
            solvers = [
                self.make_table_solver(replace(rows, move=one), facts, table)
                for one in move.split_by_replicate()
            ]
            if len(solvers) == 1:
                return solvers[0]
            return Apart(solvers)

        return replace(self, solver=solver)


@dataclass
class Recorder:
    """A row guard that keeps every query with its answer: `asked`, and `opened` for sums."""

    guard: RowGuard
    facts: Facts
    asked: list[tuple[Query, Array]] = field(default_factory=list)
    opened: list[tuple[Sum, Array]] = field(default_factory=list)

    def charge_and_answer(self, query: Query) -> Array:
        answer = self.guard.charge_and_answer(query)
        self.asked.append((query, answer))
        return answer

    def charge_and_open_sum(self, query: Sum, net: Net) -> Array:
        answer = self.guard.charge_and_open_sum(query, net)
        self.opened.append((query, answer))
        return answer


class Notes:
    """A row guard's book that records charges; it refuses and prices nothing."""

    def __init__(self) -> None:
        self.rows: tuple[Event, ...] = ()

    def record_event(self, event: Event) -> None:
        """Record the event."""
        self.rows = (*self.rows, event)

    def charge_once(self, event: Event, draw: Callable[[], bytes]) -> bytes:
        """Record the event, then draw."""
        self.record_event(event)
        return draw()

    def to_list(self) -> list[dict[str, Any]]:
        """Return events as plain data."""
        return [event.to_dict() for event in self.rows]

    def restore(self, rows: list[dict[str, Any]]) -> None:
        """Raise LedgerError: the runs of a game have no checkpoints."""
        raise LedgerError("ledger: the run of an audit has no checkpoints; start the audit again")


class OpenNet(DenseNet):
    """A net that keeps every message and every share."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.sent: list[Array] = []
        self.shares: list[IntArray] = []

    def neighbour_sum(self, x: Array) -> Array:
        self.sent.append(np.array(x))
        return super().neighbour_sum(x)

    def sum_of_all_nodes(self, x: Array) -> Array:
        self.sent.append(np.array(x))
        return super().sum_of_all_nodes(x)

    def gather_from_all_nodes(self, x: Array) -> Array:
        self.sent.append(np.array(x))
        return super().gather_from_all_nodes(x)

    def mask_share(self, share: IntArray) -> IntArray:
        self.shares.append(share)
        return super().mask_share(share)


@dataclass(frozen=True)
class Transcripts:
    """Everything that the adversary sees of all runs on one table.

    Attributes
    ----------
    asked : list of (Query, array)
        Queries in the order of the rounds, with their answers (R, N, d).
    messages : array (R, entries)
        All messages of each run in one row; of sums the totals and the colluding sites' shares.
    facts : Facts
        Public facts of the run.
    claimed, proved : float
        Epsilon as the form claims it, and as the accountant proves it for what was charged.
    opened : list of OpenedSum
        Attempts at sums, without the colluding sites' shares.
    move : Move, optional
        With centring: the public map that moves rows once their mean, the first release, is known.
    """

    asked: list[tuple[Query, Array]]
    messages: Array
    facts: Facts
    claimed: float
    proved: float
    opened: list[OpenedSum] = field(default_factory=list)
    move: Move | None = None


def record_transcripts(case: Case, table: int, replicates: int, seed: int) -> Transcripts:
    """Run a case on one of its tables, and record everything that leaves the sites.

    Parameters
    ----------
    case : Case
    table : int
        0 or 1, of the case's tables.
    replicates : int
        Independent runs, all at once.
    seed : int
        Seed of the simulated noise.

    Returns
    -------
    Transcripts
    """
    config = replace(case.config, seed=seed, replicates=replicates)
    rows = case.tables[table]
    # Refuses a configuration that starts elsewhere than at zero, as every audit does.
    with_start_digest(config, None, rows.d)
    ready = prepare(
        config, rows.n, rows.d, method=case.method, loss=case.loss, centre=case.centring
    )
    rows = rows_on_backend(ready.config, rows)
    algorithm = ready.algorithm
    if case.algorithm is not None:
        algorithm = case.algorithm(algorithm)
    make_noise = case.noise or KeyedNoise
    noise = make_noise(seed, range(replicates), range(len(rows.n)))
    book: Book = ready.ledger
    if case.book is not None:
        book = case.book(ready.ledger)
    solver = partial(case.make_table_solver, table=table)
    guard = RowGuard(rows, ready.facts, noise, book, solver, case.centring)
    recorder = Recorder(guard, ready.facts)
    net = OpenNet(ready.graph)
    place = Place(ready.facts, net, recorder, (replicates, len(rows.n)), rows.d)
    if case.centring is not None:
        place, _ = engine.release_mean(place, guard, ready.facts)
    engine.run_rounds(algorithm, place, ready.config.rounds)
    return replace(
        collect_transcripts(case, recorder, net, ready.ledger, book.rows), move=guard.move
    )


def collect_transcripts(
    case: Case, seen: Recorder, net: OpenNet, own: Ledger, charged: Sequence[Event]
) -> Transcripts:
    """Collect what left the sites of a run, and price everything that was charged.

    Parameters
    ----------
    case : Case
    seen : Recorder
        Queries and sums with their answers.
    net : OpenNet
        Messages and shares that were sent.
    own : Ledger
        The run's ledger, whose accountant and delta set the price.
    charged : sequence of Event
        What the book recorded; a planted fault may have left some out of `own`.

    Returns
    -------
    Transcripts
        ``proved`` is the accountant's total; ``claimed`` is the same, or the paper's claim for a
        printed form.
    """
    spent = Ledger(own.accountant, math.inf, own.delta, own.sites_per_row)
    # Price what was charged, not what the run's own ledger holds: a planted book may differ.
    for event in charged:
        spent.record_event(event)
    proved, papers_claim = spent.total(), spent.claimed()
    claimed = proved
    if case.config.form != "corrected" and papers_claim is not None:
        claimed = papers_claim
    _, first_answer = (seen.asked or seen.opened)[0]
    replicates, nodes = len(first_answer), len(seen.facts.n)
    # Messages that are equal in all replicates, or at all nodes, may lack these axes.
    sent = [
        np.broadcast_to(x, (replicates, nodes, x.shape[-1])).reshape(replicates, -1)
        for x in net.sent
    ]
    # The adversary knows the colluding sites' shares, and those of the honest ones as a sum.
    opened = []
    honest = nodes - case.colluding_sites
    for (query, answer), share in zip(seen.opened, net.shares, strict=True):
        opened.append(OpenedSum(query, share[:, :honest].sum(axis=1, keepdims=True)))
        sent += [answer[:, 0], share[:, honest:].reshape(replicates, -1).astype(float)]
    return Transcripts(
        seen.asked, np.concatenate(sent, axis=1), seen.facts, claimed, proved, opened
    )


@dataclass(frozen=True)
class Verdict:
    """The result of a game against a claim.

    Attributes
    ----------
    claimed_epsilon : float
        What the form claims: the ledger's total, or, for printed forms, the paper's.
    proved_epsilon : float
        What the accountants prove for the events that were charged.
    lower_bound : float
        On epsilon at `delta`, true with probability `confidence`.
    attack, why : str
        The score that gave the bound, and why the pair of tables is a worst case.
    releases : int
        Answers of the victim that were seen.
    exact_epsilon : float or None
        The smallest epsilon that is true for this pair at `delta`, by quadrature, if the run makes
        one release.
    """

    method: str
    form: str
    claimed_epsilon: float
    proved_epsilon: float
    lower_bound: float
    delta: float
    confidence: float
    replicates: int
    rounds: int
    attack: str
    why: str
    releases: int = 1
    exact_epsilon: float | None = None

    @property
    def refuted(self) -> bool:
        """True if the claim is refuted at the confidence: the lower bound is above it."""
        return self.lower_bound > self.claimed_epsilon

    @property
    def is_refuted_exactly(self) -> bool:
        """True if the claim is refuted by quadrature: the exact epsilon is above it."""
        if self.exact_epsilon is None:
            return False
        # A claim that is tight must not fall by the rounding of either number.
        return self.exact_epsilon > self.claimed_epsilon * (1.0 + 1e-6)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain data, with both refutations."""
        return {**vars(self), "refuted": self.refuted, "refuted_exactly": self.is_refuted_exactly}


def candidates(case: Case, facts: Facts) -> tuple[Candidate, Candidate]:
    """Return both candidates for the victim's rows, or for all rows if a curator pools them."""
    pooled = len(facts.n) != len(case.tables[0].n)

    def candidate(table: int) -> Candidate:
        rows, victim = case.tables[table], case.victim
        if pooled:
            # The curator is the only node.
            rows, victim = rows.pool_at_one_node(), 0
        return Candidate(rows, facts, victim, partial(case.make_table_solver, table=table))

    return candidate(0), candidate(1)


class Attack(NamedTuple):
    """A way to score transcripts, with the scores of all replicates on both tables."""

    name: str
    scores: Scores
    learned: int
    """Replicates of each table, the first ones, from which the score was learned."""


def likelihood_attack(case: Case, seen: tuple[Transcripts, Transcripts]) -> Attack:
    """Score all replicates by the log likelihood ratio of all releases of the victim."""

    def ratio(transcripts: Transcripts) -> Array:
        facts, opened, asked = transcripts.facts, transcripts.opened, transcripts.asked
        # With centring the first release is the mean, of rows that are not moved yet.
        before = 0 if transcripts.move is None else 1
        moved = case.moved(transcripts.move)
        if not opened:
            first = log_likelihood_ratio(asked[:before], candidates(case, facts))
            return first + log_likelihood_ratio(asked[before:], candidates(moved, facts))
        first = log_likelihood_ratio_of_sums(
            opened[:before], case.tables, facts, case.make_table_solver, case.colluding_sites
        )
        return first + log_likelihood_ratio_of_sums(
            opened[before:], case.tables, facts, moved.make_table_solver, case.colluding_sites
        )

    return Attack("likelihood ratio", (ratio(seen[0]), ratio(seen[1])), 0)


def linear_discriminant(known: Sequence[Array]) -> Array:
    """Return Fisher's linear discriminant of two samples (m, d), a vector (d,).

    It is the difference of the means, multiplied by the inverse of the pooled covariance.
    """
    covariances = [np.cov(x, rowvar=False, bias=True).reshape(x.shape[1], -1) for x in known]
    within = np.mean(covariances, axis=0)
    # Entries may be copies of each other, or constant, so that the covariance has no inverse.
    ridge = 1e-9 * (1e-6 + float(np.trace(within)) / len(within))
    apart = known[1].mean(axis=0) - known[0].mean(axis=0)
    return np.asarray(np.linalg.solve(within + ridge * np.eye(len(within)), apart))


def score_all_attacks(case: Case, seen: tuple[Transcripts, Transcripts]) -> list[Attack]:
    """Score all replicates by every attack of the game.

    The linear discriminant and the nearest transcript are learned on the first quarter of them.
    """
    quarter = len(seen[0].messages) // 4
    found = [likelihood_attack(case, seen)]
    messages = [one.messages for one in seen]
    spread = np.concatenate([m[:quarter] for m in messages]).std(axis=0)
    # A constant message has no scale to divide by.
    kept = spread > 0
    if not kept.any():
        return found
    x = [m[:, kept] / spread[kept] for m in messages]
    line = linear_discriminant([m[:quarter] for m in x])
    found.append(Attack("linear discriminant", (x[0] @ line, x[1] @ line), quarter))
    trees = [spatial.cKDTree(m[:quarter]) for m in x]

    # How much nearer a transcript is to the learned ones of table 1 than to those of table 0: noise
    # that repeats puts it close to one that was seen before.
    def nearer(m: Array) -> Array:
        # A distance of zero has no logarithm.
        far = [np.log(tree.query(m)[0] + 1e-12) for tree in trees]
        return np.asarray(far[0] - far[1])

    found.append(Attack("nearest transcript", (nearer(x[0]), nearer(x[1])), quarter))
    return found


def play(
    case: Case, replicates: int = 20_000, *, seed: int = 0, confidence: float = 0.95
) -> Verdict:
    """Play the distinguishing game on a case, and bound epsilon from below.

    Parameters
    ----------
    case : Case
    replicates : int
        Runs on each table.
    seed : int
        Of the simulated noise.
    confidence : float
        Probability that the bound is true, at least.

    Returns
    -------
    Verdict

    Raises
    ------
    InvalidInput
        If replicates are too few to see anything.
    """
    # Seeds differ, so that the noise of the two tables is independent.
    seen = (
        record_transcripts(case, 0, replicates, 2 * seed + 1),
        record_transcripts(case, 1, replicates, 2 * seed + 2),
    )
    return judge_best_attack(case, seen, score_all_attacks(case, seen), confidence)


def judge_best_attack(
    case: Case, seen: Sequence[Transcripts], found: Sequence[Attack], confidence: float
) -> Verdict:
    """Choose the best attack on one half of the replicates, and bound epsilon on the other half.

    Parameters
    ----------
    case : Case
    seen : sequence of Transcripts
        As many of table 0 as of table 1; the claim under attack is the largest of theirs.
    found : sequence of Attack
        Candidate attacks, with the scores of all replicates.
    confidence : float
        Probability that the bound is true, at least.

    Returns
    -------
    Verdict
    """
    replicates = len(found[0].scores[0])
    delta = case.config.delta or 0.0
    chosen: tuple[Test, Attack] | None = None
    half = replicates // 2
    # A quarter learns some scores, and chooses the threshold of none of these.
    check_replicates(replicates, 0.25 if any(attack.learned for attack in found) else 0.5)
    for attack in found:
        # Replicates on which a score was learned would flatter it, so they do not choose.
        known = (attack.scores[0][attack.learned : half], attack.scores[1][attack.learned : half])
        test = choose_test(known, delta, confidence)
        if chosen is None or test.bound > chosen[0].bound:
            chosen = test, attack
    assert chosen is not None
    test, attack = chosen
    # Fresh replicates: nothing that chose the score or its threshold enters the bound.
    bound = test.epsilon_lower_bound(
        (attack.scores[0][half:], attack.scores[1][half:]), delta, confidence
    )
    return Verdict(
        method=case.config.method,
        form=case.config.form,
        claimed_epsilon=max(one.claimed for one in seen),
        proved_epsilon=max(one.proved for one in seen),
        lower_bound=bound,
        delta=delta,
        confidence=confidence,
        replicates=replicates,
        rounds=case.config.rounds,
        attack=attack.name,
        why=case.why,
        releases=sum(len(one.asked) + len(one.opened) for one in seen) // 2,
    )
