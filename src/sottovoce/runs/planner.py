"""The price of a run before any row is read, and the noise that meets a target.

A plan runs the algorithm itself against a curator without data, so its price is that of the run's ledger.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from ..algorithms import Algorithm, Recipe
from ..errors import BudgetExceeded, InvalidInput, SottovoceError
from ..ledger.memory import Ledger, validate_target
from ..network.graphs import Graph
from ..network.net import Net
from ..privacy.accountants import Accountant
from ..problem.facts import Facts
from ..queries import Query, Sum, check_unit
from ..util.plain import canonical
from ..util.typing import Any, Array, ArrayLike, IntArray
from .calibration import CLOSE, closeness, largest_scale
from .engine import FINISHED, Place, run
from .gaussian_runs import Release, grouped, released, releases

A = TypeVar("A", bound=Algorithm[Any])


@dataclass
class Pricer:
    """A curator without data, which answers with blanks: it charges, or writes down what it is `asked`."""

    facts: Facts
    ledger: Ledger = field(default_factory=Ledger)
    asked: list[Query | Sum] | None = None

    def ask(self, query: Query | Sum, net: Net) -> Array:
        check_unit(query.proved_of_people(), self.facts)
        if self.asked is None:
            self.ledger.charge(query.event(self.facts))
        else:
            self.asked.append(query)
        return query.blank(self.facts)


class _Silent(Net):
    """Neighbours that send zeros: prices do not depend on messages."""

    def __init__(self, degree: Array) -> None:
        self.degree = degree

    def neighbour_sum(self, x: Array) -> Array:
        return np.zeros_like(x)

    def whole_sum(self, x: Array) -> Array:
        return np.zeros_like(x)

    def seal(self, share: IntArray) -> IntArray:
        return share

    def total(self, sealed: IntArray) -> IntArray:
        return sealed


def plan(
    algorithm: Algorithm[Any], facts: Facts, graph: Graph, rounds: int, accountant: Accountant[Any], delta: float = 0.0,
    sites_per_row: int = 1, copies: int = 1, *, node: int | None = None, budget: float = math.inf,
    after: Callable[[int, Ledger], None] | None = None, first: Recipe | None = None,
) -> Ledger:  # fmt: skip
    """The ledger that a run, of all sites or of one `node`, will leave behind: every price comes from here.

    `first` is what is asked before the method: nothing else is, unless all of it is affordable.  `copies` are runs like
    this one on the same rows, without a `budget` only: the plan ends before a release that would exceed it, as the run
    will.  `after` is called after each round.
    """
    ledger = Ledger(accountant, budget, delta, sites_per_row)
    lead: tuple[int, ...] = (graph.n_nodes,)
    degree = graph.degree
    if node is not None:
        algorithm, facts, lead, degree = algorithm.at(node), facts.node(node), (), degree[node]
        first = None if first is None else first.at(node)
    watchers = [] if after is None else [lambda k, _: after(k, ledger)]

    def ask(curator: Pricer) -> None:
        # Prices depend on public curvatures only, never on vectors: one column stands for all features.
        place = Place(facts, _Silent(degree), curator, lead, 1)
        before = None if first is None else run(first, place, len(first.items), step=first.priced)
        if before is None or before.stopped == FINISHED:
            run(algorithm, place, rounds, observers=watchers, step=algorithm.priced)

    if math.isinf(budget) and after is None:  # nothing ends it early, so all is charged together
        asked: list[Query | Sum] = []
        ask(Pricer(facts, ledger, asked))
        with suppress(BudgetExceeded):  # a price that is no number: the plan ends before it
            ledger.charge_all([query.event(facts) for query in asked], copies)
            return ledger
    ask(Pricer(facts, ledger))
    if copies > 1 and ledger.rows:
        ledger.charge_all(ledger.rows, copies - 1)
    return ledger


def calibrate(
    algorithm: A, facts: Facts, graph: Graph, rounds: int, epsilon: ArrayLike, accountant: Accountant[Any],
    delta: float = 0.0, *, sites_per_row: int = 1, copies: int = 1, claimed: bool = False, first: Recipe | None = None,
) -> A:  # fmt: skip
    """The same algorithm, with its noise scaled so that the run costs each node at most `epsilon`, and not much less.

    The algorithm's ``noise`` gives the shape over rounds.  With several `sites_per_row` all nodes share one scale, and
    the worst set of that many nodes meets the target.  `copies` runs share the target.  `first` is asked before the
    method, at its own price, within the target.  `claimed` calibrates to the
    paper's own claim instead of the proved price (printed forms).  If no scale meets the target, the refusal names the
    smallest epsilon that can be met.
    """
    validate_target(epsilon, delta or None)
    shape = algorithm.noise
    if shape is None:
        raise InvalidInput("noise", None, "there is no noise to scale", "give the method a noise schedule")
    nodes = facts.n_nodes
    target = np.broadcast_to(np.asarray(epsilon, dtype=float), (nodes,))
    close = CLOSE if claimed else closeness(accountant)
    asked_before = _key(
        algorithm, facts, graph, rounds, target, accountant, delta, (sites_per_row, copies, claimed), first
    )
    if asked_before in _SCALES:
        return algorithm.with_noise(shape.scaled(_alike(_SCALES[asked_before])))

    def price(scale: Array) -> Array:
        """Totals per node; -inf where the noise would have to be infinite, NaN for nodes not priced."""
        scaled = algorithm.with_noise(shape.scaled(_alike(scale)))
        try:
            ledger = plan(scaled, facts, graph, rounds, accountant, delta, sites_per_row, copies, first=first)
        except InvalidInput as error:
            if error.field == "alpha" and error.nodes is not None:
                return np.where(np.broadcast_to(np.asarray(error.nodes), (nodes,)), -np.inf, np.nan)
            raise
        if claimed:
            claims = ledger.claims()
            return np.broadcast_to(np.inf if claims is None else claims, (nodes,))
        totals = ledger.per_node() if sites_per_row == 1 and not algorithm.complete else np.array(ledger.total())
        return np.broadcast_to(totals, (nodes,))

    key = ""
    if algorithm.complete:  # one scale for all nodes, which facts and events at one scale decide
        events = plan(algorithm, facts, graph, rounds, accountant, delta, sites_per_row, first=first).to_list()
        asked = [algorithm.name, shape.to_dict(), facts.to_dict(), events]
        key = canonical([*asked, target.tolist(), accountant.name, delta, sites_per_row, copies])
        if key in _FOUND:
            return algorithm.with_noise(shape.scaled(_FOUND[key]))
    quick = (
        None if claimed else _quick(algorithm, facts, graph, rounds, accountant, delta, sites_per_row, copies, first)
    )
    found = largest_scale(price, target, close) if quick is None else largest_scale(quick, target, close)
    if quick is not None and not (np.all(found.met) and np.array_equal(price(found.value), found.spent)):
        found = largest_scale(price, target, close)  # what is spent is always a ledger's total
    if not np.all(found.met):
        least = price(found.dear)
        known = least[np.isfinite(least)]
        least_text = f"{float(known.max()):.4g}" if known.size else "more than this"
        shown = float(target[0]) if np.all(target == target[0]) else target.tolist()
        raise InvalidInput(
            "epsilon", shown, f"{rounds} rounds cost at least {least_text} here, however much noise there is",
            "use a larger epsilon" + ("" if algorithm.complete else ", fewer rounds, or larger eta or rho"),
        )  # fmt: skip
    if key:
        if len(_FOUND) >= _REMEMBERED:
            _FOUND.clear()
        _FOUND[key] = float(found.value[0])
    value = _same(found.value) if facts.several else found.value  # others keep their last bit: runs are replayed
    if asked_before is not None:
        if len(_SCALES) >= _REMEMBERED:
            _SCALES.clear()
        _SCALES[asked_before] = value
    return algorithm.with_noise(shape.scaled(_alike(value)))


_FOUND: dict[str, float] = {}
_SCALES: dict[Any, Array] = {}
_REMEMBERED = 256


def _key(
    algorithm: Algorithm[Any], facts: Facts, graph: Graph, rounds: int, target: Array, accountant: Accountant[Any],
    delta: float, others: tuple[int, ...], first: Recipe | None,
) -> Any:  # fmt: skip
    """All that a scale depends on, so that classes against the rest are calibrated once; None if it has no hash."""
    before = None if first is None else (type(first), canonical(first.identity()), first.noise)
    sizes = canonical(facts.to_dict()), facts.loss, facts.rows, facts.solved_for
    key = (
        algorithm, sizes, graph.degree.tobytes(), rounds, target.tobytes(), accountant.label, delta, *others, before,
    )  # fmt: skip
    try:
        hash(key)
    except TypeError:  # a recipe holds arrays
        return None
    return key


def _quick(
    algorithm: Algorithm[Any], facts: Facts, graph: Graph, rounds: int, accountant: Accountant[Any], delta: float,
    sites_per_row: int, copies: int, first: Recipe | None,
) -> Callable[[Array], Array] | None:  # fmt: skip
    """The totals of a run of Gaussian releases by scale, without the run; None for other runs.

    Such a release costs what its shift over sigma says, and a schedule that is steady gives all of them one `alpha`.
    So the run is listened to once, and at another scale its queries state their events anew, equal ones once, carried
    rounds all together.  The totals are a ledger's to the last bit.
    """
    shape = algorithm.noise
    if shape is None or not shape.steady or algorithm.complete or accountant.name == "pure":
        return None
    asked: list[Query | Sum] = []
    place = Place(facts, _Silent(graph.degree), Pricer(facts, asked=asked), (graph.n_nodes,), 1)
    try:
        if first is not None:
            run(first, place, len(first.items), step=first.priced)
        before = len(asked)
        run(algorithm, place, rounds, step=algorithm.priced)
        fixed = [Release(released(query.event(facts), sites_per_row), 1) for query in asked[:before]]
        groups = grouped(asked[before:], shape(1))
        if groups is None or None in [bills for bills, _ in releases(fixed, groups, shape(1), facts, sites_per_row)]:
            return None
    except SottovoceError:  # a plan will say what is wrong
        return None

    def totals(scale: Array) -> Array:
        try:
            run = releases(fixed, groups, shape.scaled(_alike(scale))(1), facts, sites_per_row)
            spent = accountant.gaussian([(bills, times) for bills, times in run if bills], copies)
        except SottovoceError:
            return np.full(scale.shape, np.nan)
        if not all(bills for bills, _ in run):
            return np.full(scale.shape, np.nan)
        each = accountant.epsilon(spent, delta)
        whole = each if sites_per_row == 1 else np.array(accountant.network(spent, delta, sites_per_row))
        return np.broadcast_to(whole, scale.shape)

    return totals


_ROUNDED = 1e-12


def _same(values: Array) -> Array:
    """Scales that differ by rounding alone as the least of them: sites that are alike then have one schedule."""
    least = float(np.min(values))
    return np.full_like(values, least) if np.all(values <= least * (1.0 + _ROUNDED)) else values


def _alike(values: Array) -> Array:
    return values[0] if np.all(values == values[0]) else values
