"""Accountants: the epsilon of several releases together.

An accountant adds up the prices of events (:mod:`.prices`) in a currency of its own: pure epsilons,
rho of zCDP, Renyi divergences, or dominating pairs (:class:`~.prices.Bill`).  It refuses an event
for which it has no proof, by name.  It is a set of pure functions over an immutable value *spent*,
of all nodes, so a ledger knows the total with a further release before it allows it.

Composition is adaptive over rounds: parameters are fixed beforehand, messages may depend on all
earlier messages.  Each row lives at one site, so the network's loss is that of the worst node
(parallel composition), under an adversary who sees every message.  Where a person may have rows at
m sites, it is the composition of the worst m nodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import combinations
from math import comb
from typing import ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from ..errors import InvalidInput, UnknownEvent
from ..util.typing import Any, Array, BoolArray
from . import pld, prices
from .conditions import pricing_events
from .events import Event, run_lengths
from .gaussian import gaussian_epsilon
from .prices import Bill, Orders
from .spherical import ORDERS, Within, epsilon_from_rdp, objective_surplus

Spent = TypeVar("Spent")
T = TypeVar("T")
# Most numbers in the prices that an accountant remembers, which is enough for 13,000 different
# rounds of 5 sites.
_NUMBERS = 2**23


class Accountant(ABC, Generic[Spent]):
    """A notion of composition: how the prices of events add up, per node and over the network.

    What is *spent* is an immutable value of the accountant's own kind, for all nodes together.
    """

    name: ClassVar[str]
    _prices: dict[tuple[Any, ...], Any] | None = None
    is_filter: bool = False
    """Whether it is a privacy filter: totals hold if events and the end are chosen adaptively.

    A ledger that outlives runs needs such totals: sums of pure epsilon, or sums of zCDP or Renyi
    divergence read at one order that was fixed before (:func:`at_one_order`)."""

    @property
    def label(self) -> str:
        """The text from which :func:`make_accountant` builds this accountant again."""
        return self.name

    @abstractmethod
    def zero_spending(self) -> Spent:
        """Return what is spent before the first event."""

    @abstractmethod
    def add_event(self, spent: Spent, event: Event, count: int = 1) -> Spent:
        """Return what is spent once an event is added.

        Parameters
        ----------
        spent : Spent
            What was spent before.
        event : Event
            One release of every node concerned.
        count : int
            How many times it is added; the result is to the last bit as if it were added one by
            one.

        Returns
        -------
        Spent

        Raises
        ------
        UnknownEvent
            If the accountant has no proof for this event.
        """

    @abstractmethod
    def epsilon(self, spent: Spent, delta: float) -> Array:
        """Return epsilon at `delta` per node, shape (N,); shape () before the first event."""

    @abstractmethod
    def network_epsilon(self, spent: Spent, delta: float, sites_per_row: int = 1) -> float:
        """Return the privacy loss of a person, by parallel composition over sites.

        Parameters
        ----------
        spent : Spent
            What all nodes have spent.
        delta : float
            In (0, 1), or 0 for pure epsilon.
        sites_per_row : int
            At how many sites a person may have a row; their losses add up.

        Returns
        -------
        float
            Epsilon at `delta` of the worst such set of nodes.
        """

    @abstractmethod
    def spending_among_nodes(self, spent: Spent, nodes: Sequence[int]) -> Spent:
        """Return what these nodes have spent."""

    def worst_spending(self, spent: Spent, sites_per_row: int) -> Spent:
        """Return the most spent on a person with rows at `sites_per_row` sites, as one node's.

        Where rows are partitioned among the nodes anew, it adds up over the partitions.

        Raises
        ------
        InvalidInput
            If the accountant keeps no sums.
        """
        rule = "this accountant cannot combine runs that assigned rows to sites differently"
        raise InvalidInput(
            "accountant",
            self.name,
            rule,
            "use 'pure', 'zcdp' or 'rdp', or a separate ledger for each partition",
        )

    def within_budget(self, spent: Spent, delta: float, budget: Array) -> BoolArray:
        """Return which nodes keep their budget.

        Parameters
        ----------
        spent : Spent
            What all nodes have spent.
        delta : float
            In (0, 1), or 0 for pure epsilon.
        budget : array of shape (N,) or ()
            Largest epsilon at `delta` of each node.

        Returns
        -------
        boolean array of shape (N,)
        """
        return np.asarray(self.epsilon(spent, delta) <= budget)

    def _priced_once(self, price: Callable[[Event], T], event: Event) -> T:
        """Return ``price(event)``, computed once for equal events; `price` is always the same."""
        # Another thread may replace it meanwhile.
        known, terms = self._prices, event.terms
        found: Any = None
        if known is not None:
            found = known.get(terms)
        if found is None:
            found = price(event)
            if isinstance(found, np.ndarray):
                size = found.size
            else:
                # Bills by direction and node, each counted as 16 numbers.
                size = 16 * sum(map(len, found))
            if known is None or len(known) * max(1, size) >= _NUMBERS:
                known = self._prices = {}
            known[terms] = found
        one: T = found
        return one

    def never_exceeds_budget(self, spent: Spent) -> bool:
        """Return whether it is known, without a total, that every node keeps an infinite budget.

        All spending but a NaN does.
        """
        return False

    def epsilon_by_notion(
        self, spent: Spent, delta: float, sites_per_row: int = 1
    ) -> dict[str, float]:
        """Return the network's epsilon by each notion in use.

        Parameters
        ----------
        spent, delta, sites_per_row
            As for :meth:`network_epsilon`.

        Returns
        -------
        dict
            Epsilon by the notion's name; infinite where a notion proves nothing.
        """
        return {self.name: self.network_epsilon(spent, delta, sites_per_row)}

    def spend_gaussian_releases(
        self, releases: Sequence[tuple[tuple[Bill, ...], int]], copies: int = 1
    ) -> Spent:
        """Return what Gaussian releases spend, as by :meth:`add_event`.

        Parameters
        ----------
        releases : sequence of pairs
            Bills of the nodes with their count, in order.
        copies : int
            How many times all of them are made in a row.

        Returns
        -------
        Spent

        Raises
        ------
        UnknownEvent
            If the accountant prices no Gaussian noise.
        """
        raise UnknownEvent(
            f"event=GaussianMechanism: the {self.name} accountant has no proof for it"
        )

    def spending_of_events(self, events: Iterable[Event]) -> Spent:
        """Return what a whole run spends."""
        spent = self.zero_spending()
        for event, count in run_lengths(pricing_events(events)):
            spent = self.add_event(spent, event, count)
        return spent

    def epsilon_of_events(self, events: Iterable[Event], delta: float = 0.0) -> Array:
        """Return epsilon per node of :meth:`spending_of_events`."""
        return self.epsilon(self.spending_of_events(events), delta)


def _orders(name: str, order: float | None) -> Orders:
    """Return the Renyi orders of an accountant: the given one, or all of `ORDERS`."""
    if order is None:
        return tuple(ORDERS.tolist())
    # Closer to 1, digits cancel.
    if not (np.isfinite(order) and order >= 1.01):
        raise InvalidInput(
            "accountant",
            f"{name}:{order}",
            "the order must be finite and at least 1.01",
            f"use {name!r}",
        )
    return (order,)


def _largest_sum(values: Array, m: int) -> Array:
    """Return the sum of the `m` largest values along the first axis, that of the nodes.

    No set of m nodes has more.
    """
    return np.asarray(np.sort(np.atleast_1d(values), axis=0)[-m:].sum(axis=0))


def _computed_once_per_value(of: Callable[[Array], float], values: Iterable[Array]) -> list[float]:
    """Return ``of(value)`` of each, computed once for equal ones: nodes alike cost the same."""
    known: dict[bytes, float] = {}
    found: list[float] = []
    for value in values:
        key = value.tobytes()
        if key not in known:
            known[key] = of(value)
        found.append(known[key])
    return found


class _Sums(Accountant[Array]):
    """Accountants whose spending is a sum of prices, with nodes along the first axis."""

    @abstractmethod
    def price_of_event(self, event: Event) -> Array:
        """Return what one event adds."""

    def zero_spending(self) -> Array:
        return np.zeros(())

    def add_event(self, spent: Array, event: Event, count: int = 1) -> Array:
        """Return the sum with the price of an event, added one by one.

        Parameters
        ----------
        spent, event, count
            As for :meth:`Accountant.add_event`.

        Returns
        -------
        array
        """
        price = self._priced_once(self.price_of_event, event)
        # No product: it rounds otherwise, and a run could pass the budget that its plan had kept.
        for _ in range(count):
            spent = spent + price
        return spent

    def spending_among_nodes(self, spent: Array, nodes: Sequence[int]) -> Array:
        return np.atleast_1d(spent)[list(nodes)]

    def worst_spending(self, spent: Array, sites_per_row: int) -> Array:
        return _largest_sum(spent, sites_per_row)[None]


class PureAccountant(_Sums):
    """Basic composition: the sum of pure epsilons, valid at every delta."""

    name: ClassVar[str] = "pure"
    is_filter = True

    def epsilon(self, spent: Array, delta: float) -> Array:
        return spent

    def never_exceeds_budget(self, spent: Array) -> bool:
        return not np.any(np.isnan(spent))

    def network_epsilon(self, spent: Array, delta: float, sites_per_row: int = 1) -> float:
        """Return the sum of the largest pure epsilons of `sites_per_row` nodes.

        Parameters
        ----------
        spent, delta, sites_per_row
            As for :meth:`Accountant.network_epsilon`; `delta` is not used.

        Returns
        -------
        float
        """
        return float(_largest_sum(spent, sites_per_row))

    def price_of_event(self, event: Event) -> Array:
        return prices.pure_epsilon(event)


class _Renyi(_Sums):
    """Sums that are read as epsilon at the best Renyi order, or at one that was fixed before.

    Parameters
    ----------
    order : float, optional
        The order; None for the best of :data:`sottovoce.privacy.spherical.ORDERS`.
    """

    def __init__(self, order: float | None = None) -> None:
        self.is_filter = order is not None
        self._orders = _orders(self.name, order)

    @property
    def label(self) -> str:
        if self.is_filter:
            return f"{self.name}:{self._orders[0]!r}"
        return self.name

    def never_exceeds_budget(self, spent: Array) -> bool:
        # Where nothing is known of a divergence, epsilon is infinite, and so within such a budget.
        return True


class ZCDPAccountant(_Renyi):
    """Sums of ``rho``; epsilon by the best order for ``rho alpha``, or at one `order`."""

    name: ClassVar[str] = "zcdp"

    def price_of_event(self, event: Event) -> Array:
        return prices.zcdp_rho(event)

    def epsilon(self, spent: Array, delta: float) -> Array:
        """Return epsilon at `delta` per node, from the curve ``rho alpha`` at the best order."""
        a = np.array(self._orders)

        def one(rho: Array) -> float:
            if rho <= 0:
                return 0.0
            return epsilon_from_rdp(a, rho * a, delta)

        return np.array(_computed_once_per_value(one, np.ravel(spent))).reshape(np.shape(spent))

    def network_epsilon(self, spent: Array, delta: float, sites_per_row: int = 1) -> float:
        """Return epsilon at `delta` of the sum of the largest ``rho`` of `sites_per_row` nodes.

        Parameters
        ----------
        spent, delta, sites_per_row
            As for :meth:`Accountant.network_epsilon`.

        Returns
        -------
        float
        """
        return float(self.epsilon(_largest_sum(spent, sites_per_row), delta))

    def spend_gaussian_releases(
        self, releases: Sequence[tuple[tuple[Bill, ...], int]], copies: int = 1
    ) -> Array:
        return np.asarray(np.add.accumulate(_gaussian_rhos(releases, copies), axis=0)[-1])


class RDPAccountant(_Renyi):
    """Sums of Renyi curves, shape (directions, nodes, orders); epsilon at one or the best order."""

    name: ClassVar[str] = "rdp"

    def price_of_event(self, event: Event) -> Array:
        return prices.renyi_divergences(event, self._orders)

    def epsilon(self, spent: Array, delta: float) -> Array:
        """Return epsilon at `delta` per node, that of the worse direction."""
        if spent.ndim == 0:
            return np.zeros(())
        nodes = np.array(
            [
                _computed_once_per_value(lambda curve: self._epsilon_of_curve(curve, delta), side)
                for side in spent
            ]
        )
        return np.asarray(nodes.max(axis=0))

    def network_epsilon(self, spent: Array, delta: float, sites_per_row: int = 1) -> float:
        """Return epsilon at `delta` of the sum of the nodes' largest divergences at every order.

        Parameters
        ----------
        spent, delta, sites_per_row
            As for :meth:`Accountant.network_epsilon`.

        Returns
        -------
        float
        """
        if spent.ndim == 0:
            return 0.0
        return max(
            self._epsilon_of_curve(_largest_sum(side, sites_per_row), delta) for side in spent
        )

    def spending_among_nodes(self, spent: Array, nodes: Sequence[int]) -> Array:
        if spent.ndim == 0:
            return spent
        return spent[:, list(nodes)]

    def worst_spending(self, spent: Array, sites_per_row: int) -> Array:
        if spent.ndim == 0:
            return spent
        return np.array([_largest_sum(side, sites_per_row)[None] for side in spent])

    def spend_gaussian_releases(
        self, releases: Sequence[tuple[tuple[Bill, ...], int]], copies: int = 1
    ) -> Array:
        """Return the sum of the releases' curves ``rho alpha``, (1, nodes, orders)."""
        spent = np.zeros(())
        a = np.array(self._orders)
        for rho in _gaussian_rhos(releases, copies)[:, :, None]:
            spent = spent + a * rho
        return spent[None]

    def _epsilon_of_curve(self, curve: Array, delta: float) -> float:
        """Return epsilon at `delta` of one node's curve, (orders,), in one direction."""
        if np.all(curve <= 0):
            return 0.0
        return epsilon_from_rdp(self._orders, curve, delta)


def _gaussian_rhos(releases: Sequence[tuple[tuple[Bill, ...], int]], copies: int) -> Array:
    """Return ``rho`` of every Gaussian release, in order, (releases, nodes)."""
    once = [
        0.5 * np.array([bill.mu for bill in bills]) ** 2
        for bills, count in releases
        for _ in range(count)
    ]
    return np.tile(np.stack(once), (copies, 1))


_Bills = tuple[tuple[Bill, ...], ...]
"""The bills of one event, by direction of the relation and by node."""


class Prices(NamedTuple):
    """A linked list of the bills of all releases so far.

    Parameters
    ----------
    bills : tuple of tuples of Bill
        By direction and node.
    times : int
        How many times they came in a row.
    before : Prices, optional
        The bills of earlier releases.
    """

    bills: _Bills = ()
    times: int = 0
    before: Prices | None = None

    def distinct_bills(self) -> list[tuple[_Bills, int]]:
        """Return different bills and how often they came, in the order in which they came first."""
        found, last = list[Prices](), self
        while last.before is not None:
            found.append(last)
            last = last.before
        times = dict[_Bills, int]()
        for one in reversed(found):
            times[one.bills] = times.get(one.bills, 0) + one.times
        return list(times.items())


# Most sets of nodes for which losses are convolved.
_SUBSETS = 200
# Share of delta that pays for the random terms of noise inside objectives (`objective_surplus`).
_REST = 0.01
# Cost in delta of a coordinate on a grid (docs/privacy/verdicts.md, "Noise on a grid").
_LATTICE = 2.0**-82


class PLDAccountant(Accountant[Prices]):
    """Composition of dominating pairs: Gaussian parts exactly, others by convolution on a grid.

    ``docs/privacy/tight.md`` has the pairs of noise inside an objective.
    """

    name: ClassVar[str] = "pld"

    def __init__(self) -> None:
        self._known: dict[tuple[frozenset[tuple[Bill, int]], float], float] = {}

    def zero_spending(self) -> Prices:
        return Prices()

    def add_event(self, spent: Prices, event: Event, count: int = 1) -> Prices:
        """Return the list with the bills of an event.

        Parameters
        ----------
        spent, event, count
            As for :meth:`Accountant.add_event`.

        Returns
        -------
        Prices
        """
        bills = self._priced_once(prices.dominating_pairs, event)
        if spent.bills == bills:
            return spent._replace(times=spent.times + count)
        return Prices(bills, count, spent)

    def never_exceeds_budget(self, spent: Prices) -> bool:
        return True

    def spend_gaussian_releases(
        self, releases: Sequence[tuple[tuple[Bill, ...], int]], copies: int = 1
    ) -> Prices:
        """Return the list of the releases' bills."""
        spent = self.zero_spending()
        for bills, count in releases:
            spent = Prices((bills,), count * copies, spent)
        return spent

    def epsilon(self, spent: Prices, delta: float) -> Array:
        """Return epsilon at `delta` per node, computed once for nodes with the same bills."""
        known, found = spent.distinct_bills(), list[float]()
        if not known:
            return np.zeros(())
        # Nodes whose bills are the same in all events cost the same.
        alike = dict[tuple[int, ...], float]()
        for i, same in enumerate(zip(*_partition_by_bill(known), strict=True)):
            if same not in alike:
                alike[same] = self._epsilon_of_nodes(known, (i,), delta)
            found.append(alike[same])
        return np.array(found)

    def network_epsilon(self, spent: Prices, delta: float, sites_per_row: int = 1) -> float:
        """Return epsilon at `delta` of the worst set of `sites_per_row` nodes, each set convolved.

        Parameters
        ----------
        spent, delta, sites_per_row
            As for :meth:`Accountant.network_epsilon`.

        Returns
        -------
        float
            Infinite if there are too many sets of nodes to convolve.
        """
        known = spent.distinct_bills()
        if sites_per_row == 1 or not known:
            return float(np.max(self.epsilon(spent, delta)))
        nodes = _number_of_nodes(known)
        if comb(nodes, sites_per_row) > _SUBSETS:
            # Infinite, which is always a bound: too many sets of nodes to convolve each.
            return float(np.inf)
        return max(
            self._epsilon_of_nodes(known, some, delta)
            for some in combinations(range(nodes), min(sites_per_row, nodes))
        )

    def spending_among_nodes(self, spent: Prices, nodes: Sequence[int]) -> Prices:
        """Return the list of these nodes' bills alone."""
        after = self.zero_spending()
        for bills, count in spent.distinct_bills():
            after = Prices(
                tuple(tuple(_bill_of_node(side, i) for i in nodes) for side in bills), count, after
            )
        return after

    def _epsilon_of_nodes(
        self, known: list[tuple[_Bills, int]], nodes: tuple[int, ...], delta: float
    ) -> float:
        """Return epsilon at `delta` of a person with a row at each of these nodes.

        `known` are the distinct bills with how often each came; of the two directions of zero-out
        the worse one counts.
        """
        each = []
        for direction in range(max(len(bills) for bills, _ in known)):
            counts = Counter[Bill]()
            for bills, count in known:
                for i in nodes:
                    counts[_bill_of_node(bills[direction % len(bills)], i)] += count
            each.append(self._cached_epsilon(counts, delta))
        return max(each)

    def _cached_epsilon(self, bills: Counter[Bill], delta: float) -> float:
        """Return :func:`composed_epsilon` of these bills, cached; infinite if one has a NaN."""
        key = frozenset(bills.items()), delta
        if key not in self._known:
            numbers = [one for bill in bills for one in (*bill[:1], *(bill.ball or ()), *bill[2:])]
            # What has no number has no proof.
            if np.any(np.isnan(numbers)):
                self._known[key] = np.inf
            else:
                self._known[key] = _cached_composed_epsilon(tuple(bills.items()), delta)
        return self._known[key]


def _bill_of_node(side: tuple[Bill, ...], node: int) -> Bill:
    """Return the bill of a node; one bill stands for all nodes."""
    if len(side) > 1:
        return side[node]
    return side[0]


def _number_of_nodes(known: list[tuple[_Bills, int]]) -> int:
    """Return the number of nodes that these bills are of."""
    return max(len(side) for bills, _ in known for side in bills)


def _partition_by_bill(known: list[tuple[_Bills, int]]) -> set[tuple[int, ...]]:
    """Return the partitions of the nodes by equal bills: for each node the first with its bill."""
    nodes = range(_number_of_nodes(known))
    found = set[tuple[int, ...]]()
    for bills, _ in known:
        for side in bills:
            first = dict[Bill, int]()
            found.add(tuple(first.setdefault(_bill_of_node(side, i), i) for i in nodes))
    return found


@lru_cache(maxsize=4096)
def _cached_composed_epsilon(bills: tuple[tuple[Bill, int], ...], delta: float) -> float:
    """Return :func:`composed_epsilon`, cached for the process.

    Parts keep their order, as last bits of sums depend on it.
    """
    return composed_epsilon(Counter(dict(bills)), delta)


def composed_epsilon(bills: Counter[Bill], delta: float) -> float:
    """Return epsilon at `delta` of a composition of releases with these dominating pairs.

    Gaussian parts compose exactly, others by convolution on a grid.

    Parameters
    ----------
    bills : Counter of Bill
        Dominating pairs with how often each comes, in one direction.
    delta : float
        In (0, 1); elsewhere nothing is proved.

    Returns
    -------
    float
        Infinite where nothing is proved.
    """
    if not 0.0 < delta < 1.0 or any(np.isinf(bill.epsilon) for bill in bills):
        return float(np.inf)
    rest, exchange, extra = _cost_of_objectives(bills, delta)
    if not np.isfinite(extra) or exchange > 50.0:
        return float(np.inf)
    # Ledgers do not say whether noise was discrete (docs/privacy/verdicts.md, "Noise on a grid").
    coordinates = sum(bill.lattice * count for bill, count in bills.items())
    known = _convolved_epsilon(bills)

    def at(left: float) -> float:
        if left <= 0.0:
            return float(np.inf)
        # U4: a profile delta(eps) becomes e^X delta(eps - 2 X).
        return known(left * float(np.exp(-exchange))) + extra + 2.0 * exchange

    if not coordinates:
        return at(delta - rest)
    # Noise on a grid costs _LATTICE (1 + e^epsilon) a coordinate of delta, in which epsilon is what
    # is sought: it is taken at a cap, and holds if the result is below the cap.
    cap = at(delta - rest) * 1.01 + 0.01
    with np.errstate(over="ignore"):
        value = at(delta - rest - coordinates * _LATTICE * float(1.0 + np.exp(cap)))
    if value <= cap:
        return value
    return float(np.inf)


def _cost_of_objectives(bills: Counter[Bill], delta: float) -> tuple[float, float, float]:
    """Return what noise in objectives costs beyond the convolved losses.

    Returns
    -------
    rest : float
        Delta that pays for the random terms; 0 if there are none.
    exchange : float
        U4's X, the sum over all releases (:class:`Bill`).
    extra : float
        Epsilon for the fixed and the random terms.
    """
    slack = [
        (Within(0.0, bill.fixed, bill.slack, bill.degrees), count) for bill, count in bills.items()
    ]
    rest = 0.0
    if any(bill.slack > 0 for bill in bills):
        rest = _REST * delta
    exchange = sum(bill.exchange * count for bill, count in bills.items())
    return rest, exchange, objective_surplus(slack, rest * float(np.exp(-exchange)))


def _convolved_epsilon(bills: Counter[Bill]) -> Callable[[float], float]:
    """Return the function from delta to epsilon of the parts whose loss is known exactly.

    These are the Gaussian, the spherical and the pure parts of the bills.
    """
    mu = float(np.sqrt(sum(bill.mu**2 * count for bill, count in bills.items())))
    balls: Counter[tuple[int, float]] = Counter()
    pure: Counter[float] = Counter()
    for bill, count in bills.items():
        if bill.ball is not None and bill.ball[1] > 0:
            balls[bill.ball] += count
        if bill.epsilon > 0:
            pure[bill.epsilon] += count
    if not balls and not pure:
        return partial(gaussian_epsilon, mu=mu)
    if _largest_loss(mu, balls, pure) > 500.0:
        # Exponentials would overflow; other notions price what is that large.
        return lambda _: float(np.inf)
    step = _grid_step(mu, balls, pure)
    exact = [(pld.shifted_ball(d, s, step), n) for (d, s), n in balls.items()]
    exact += [(pld.randomised_response_loss(e, step), n) for e, n in pure.items()]
    if mu > 0:
        exact += [(pld.gaussian_loss(mu, step), 1)]
    return pld.compose_losses(exact).epsilon


def _largest_loss(mu: float, balls: Counter[tuple[int, float]], pure: Counter[float]) -> float:
    """Return the largest loss of all parts together, but for the far tail of the Gaussian."""
    of_balls = sum(s * n for (_, s), n in balls.items())
    return mu * mu / 2.0 + 13.0 * mu + of_balls + sum(e * n for e, n in pure.items())


def _grid_step(mu: float, balls: Counter[tuple[int, float]], pure: Counter[float]) -> float:
    """Return the step of the losses' grid.

    The spread that the grid adds is at most 1e-4 of the losses', unless there are too many of them.
    """
    parts = sum(balls.values()) + sum(pure.values()) + 1
    variance = mu**2 + sum(min(s, s * s) / d * n for (d, s), n in balls.items())
    variance += sum(min(e * e, e) * n for e, n in pure.items())
    # A cell's split adds at most a quarter of a squared step to the variance of each part.
    step = 0.02 * float(np.sqrt(variance / parts))
    widths = sum(2.0 * s * min(1.0, 11.0 / np.sqrt(d)) * n for (d, s), n in balls.items())
    widths += sum(2.0 * e * n for e, n in pure.items()) + 26.0 * mu
    return min(max(step, widths / 2.0**22), widths / 2.0**13)


_LEAST: tuple[Accountant[Any], ...] = (
    PureAccountant(),
    ZCDPAccountant(),
    RDPAccountant(),
    PLDAccountant(),
)


class BestAccountant(Accountant[tuple[Any, ...]]):
    """The least epsilon of all accountants, which is a bound because each of theirs is."""

    name: ClassVar[str] = "best"

    def __init__(self) -> None:
        self._parts: tuple[Accountant[Any], ...] = tuple(type(part)() for part in _LEAST)

    def zero_spending(self) -> tuple[Any, ...]:
        return tuple(part.zero_spending() for part in self._parts)

    def add_event(self, spent: tuple[Any, ...], event: Event, count: int = 1) -> tuple[Any, ...]:
        """Return what is spent by every notion; None for a notion that has no proof for all events.

        Parameters
        ----------
        spent, event, count
            As for :meth:`Accountant.add_event`.

        Returns
        -------
        tuple

        Raises
        ------
        UnknownEvent
            If no notion is left.
        """
        after: list[Any] = []
        for part, before in zip(self._parts, spent, strict=True):
            sum_after: Any = None
            if before is not None:
                # From now on this notion proves nothing.
                with suppress(UnknownEvent):
                    sum_after = part.add_event(before, event, count)
            after.append(sum_after)
        if all(value is None for value in after):
            raise UnknownEvent(
                f"event={type(event).__name__}: no accountant can price it "
                "together with the events before it"
            )
        return tuple(after)

    def spend_gaussian_releases(
        self, releases: Sequence[tuple[tuple[Bill, ...], int]], copies: int = 1
    ) -> tuple[Any, ...]:
        """Return what the releases spend by every notion; None for pure epsilon."""
        after: list[Any] = []
        for part in self._parts:
            # Gaussian noise has no pure epsilon.
            if part.name == "pure":
                after.append(None)
            else:
                after.append(part.spend_gaussian_releases(releases, copies))
        return tuple(after)

    def _notions_with_proof(self, spent: tuple[Any, ...]) -> list[tuple[Accountant[Any], Any]]:
        """Return the notions that still have a proof for all events, each with what is spent."""
        return [
            (part, value)
            for part, value in zip(self._parts, spent, strict=True)
            if value is not None
        ]

    def epsilon(self, spent: tuple[Any, ...], delta: float) -> Array:
        """Return the smallest epsilon at `delta` per node of all notions."""
        return np.asarray(
            np.min(
                [part.epsilon(value, delta) for part, value in self._notions_with_proof(spent)],
                axis=0,
            )
        )

    def within_budget(self, spent: tuple[Any, ...], delta: float, budget: Array) -> BoolArray:
        """Return which nodes keep their budget by some notion.

        Parameters
        ----------
        spent, delta, budget
            As for :meth:`Accountant.within_budget`.

        Returns
        -------
        boolean array of shape (N,)
        """
        fits: BoolArray = np.zeros((), dtype=bool)
        # The notion that takes longest is last, and often not needed.
        for part, value in self._notions_with_proof(spent):
            fits = fits | part.within_budget(value, delta, budget)
            if np.all(fits):
                break
        return fits

    def never_exceeds_budget(self, spent: tuple[Any, ...]) -> bool:
        return any(
            part.never_exceeds_budget(value) for part, value in self._notions_with_proof(spent)
        )

    def network_epsilon(
        self, spent: tuple[Any, ...], delta: float, sites_per_row: int = 1
    ) -> float:
        """Return the least epsilon at `delta` of all notions.

        Parameters
        ----------
        spent, delta, sites_per_row
            As for :meth:`Accountant.network_epsilon`.

        Returns
        -------
        float
        """
        return min(self.epsilon_by_notion(spent, delta, sites_per_row).values())

    def spending_among_nodes(self, spent: tuple[Any, ...], nodes: Sequence[int]) -> tuple[Any, ...]:
        """Return what these nodes have spent, by every notion."""
        after: list[Any] = []
        for part, value in zip(self._parts, spent, strict=True):
            if value is None:
                after.append(None)
            else:
                after.append(part.spending_among_nodes(value, nodes))
        return tuple(after)

    def epsilon_by_notion(
        self, spent: tuple[Any, ...], delta: float, sites_per_row: int = 1
    ) -> dict[str, float]:
        """Return the network's epsilon by every notion; infinite for those without a proof.

        Parameters
        ----------
        spent, delta, sites_per_row
            As for :meth:`Accountant.network_epsilon`.

        Returns
        -------
        dict
        """
        known = {
            part.name: part.network_epsilon(value, delta, sites_per_row)
            for part, value in self._notions_with_proof(spent)
        }
        return {part.name: known.get(part.name, float(np.inf)) for part in self._parts}


ACCOUNTANTS: dict[str, type[Accountant[Any]]] = {
    cls.name: cls
    for cls in (PureAccountant, ZCDPAccountant, RDPAccountant, PLDAccountant, BestAccountant)
}


# The order of a ledger with an infinite budget, which does not say which one will be best.
_ENDLESS = float(ORDERS[np.searchsorted(ORDERS, 32.0)])
_ORDERED: dict[str, type[_Renyi]] = {"zcdp": ZCDPAccountant, "rdp": RDPAccountant}


def make_accountant(name: str) -> Accountant[Any]:
    """Return an accountant by name; ``"zcdp:ORDER"`` and ``"rdp:ORDER"`` keep one Renyi order only.

    Raises
    ------
    InvalidInput
        If there is no such accountant, or the order is no number >= 1.01.

    Examples
    --------
    >>> make_accountant("zcdp").label
    'zcdp'
    >>> make_accountant("rdp:20").is_filter
    True
    """
    kind, _, order = name.partition(":")
    if kind in _ORDERED and order:
        try:
            return _ORDERED[kind](float(order))
        except ValueError:
            raise InvalidInput(
                "accountant",
                name,
                "the order must be a number of at least 1.01",
                f"use e.g. '{kind}:20'",
            ) from None
    if name not in ACCOUNTANTS:
        raise InvalidInput(
            "accountant", name, f"must be one of {sorted(ACCOUNTANTS)}", "use accountant='best'"
        )
    return ACCOUNTANTS[name]()


def best_order(epsilon: float, delta: float) -> float:
    """Return the Renyi order at which most Gaussian releases fit into (`epsilon`, `delta`)."""
    constant = np.log1p(-1.0 / ORDERS) - (np.log(delta) + np.log(ORDERS)) / (ORDERS - 1.0)
    return float(ORDERS[np.argmax((epsilon - constant) / ORDERS)])


def at_one_order(accountant: Accountant[Any], epsilon: Array, delta: float) -> Accountant[Any]:
    """Return the accountant at one Renyi order: the best one when the smallest budget is used up.

    Accountants without orders are returned unchanged.  That budget allows as many releases as with
    a free choice.

    Parameters
    ----------
    accountant : Accountant
        The accountant to fix an order of.
    epsilon : array of shape (N,) or ()
        Budgets of the nodes; infinite for none.
    delta : float
        In (0, 1).

    Returns
    -------
    Accountant

    Notes
    -----
    With the order fixed beforehand, at every stopping time T and for every set S of
    transcripts at which at most e is quoted, ``P(S) <= exp(e) Q(S) + delta``, though each release,
    and whether there is another, may be chosen in view of earlier ones: ``exp((a-1)(L_t - R_t))``,
    of the loss ``L_t`` and the sum ``R_t`` of the divergences of order a, is a supermartingale
    (``docs/reference/ledger.md``, "When you stop").  With the best order for each ``R_t`` this is
    false: an analyst who stops when the loss exceeds the quoted epsilon reaches several times
    delta.
    """
    if accountant.is_filter or accountant.name not in _ORDERED:
        return accountant
    least = float(np.min(epsilon))
    order = _ENDLESS
    if np.isfinite(least):
        order = best_order(least, delta)
    return _ORDERED[accountant.name](order)


def lifetime_accountant(name: str, epsilon: Array, delta: float) -> Accountant[Any]:
    """Return the accountant of a ledger that outlives runs.

    ``"zcdp"`` and ``"rdp"`` become :func:`at_one_order`.

    Parameters
    ----------
    name : str
        As for :func:`make_accountant`.
    epsilon : array of shape (N,) or ()
        Lifetime budgets of the nodes; infinite for none.
    delta : float
        In (0, 1), or 0 for pure epsilon.

    Returns
    -------
    Accountant

    Raises
    ------
    InvalidInput
        If the accountant's totals do not hold for runs chosen in view of earlier releases, or it
        lacks a delta.
    """
    chosen = make_accountant(name)
    if chosen.name != PureAccountant.name and not delta > 0.0:
        raise InvalidInput(
            "delta",
            delta,
            f"must lie inside (0, 1) for the {chosen.name} accountant",
            "use delta=1e-5",
        )
    chosen = at_one_order(chosen, epsilon, delta)
    if not chosen.is_filter:
        rule = "its totals are not proved for runs that are chosen adaptively"
        raise InvalidInput(
            "accountant",
            name,
            rule,
            "use 'pure', 'zcdp' or 'rdp' for a budget that several runs share",
        )
    return chosen
