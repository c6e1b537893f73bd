"""Accountants: epsilon of composed events.  An event that an accountant cannot price is refused by name.

An accountant is a set of pure functions over an immutable *spent* value for all nodes, so a ledger knows the total with
a further release before it allows it.

Composition is adaptive over rounds: parameters are fixed beforehand, messages may depend on all earlier messages.  Each
row lives at one site, so the network's loss is that of the worst node (parallel composition), under an adversary who
sees every message.  Where a person may have rows at m sites, it is the composition of the worst m nodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import combinations
from math import comb
from typing import ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from ..errors import InvalidInput, UnknownEvent
from ..util.typing import Any, Array, BoolArray
from . import pld, prices
from .conditions import all_priced
from .events import Event, counted
from .gaussian import gaussian_epsilon
from .prices import Bill, Orders
from .spherical import ORDERS, Within, epsilon_from_rdp, objective_surplus

Spent = TypeVar("Spent")
T = TypeVar("T")
_NUMBERS = 2**23  # in the prices of different events that an accountant remembers: of 5 sites those of 13,000 rounds


class Accountant(ABC, Generic[Spent]):
    """How events add up, per node and over the network."""

    name: ClassVar[str]
    _prices: dict[tuple[Any, ...], Any] | None = None
    is_filter: bool = False
    """Whether totals hold if events, and when to stop, are chosen in view of earlier releases (a privacy filter).

    A ledger that outlives runs needs such totals: sums of pure epsilon, or sums of zCDP or Renyi divergence read at one
    order that was fixed before (:func:`at_one_order`)."""

    @property
    def label(self) -> str:
        """The text from which :func:`make_accountant` builds this accountant again."""
        return self.name

    @abstractmethod
    def nothing(self) -> Spent:
        """What is spent before the first event."""

    @abstractmethod
    def add(self, spent: Spent, event: Event, count: int = 1) -> Spent:
        """What is spent once `event` is added, `count` times: to the last bit as if it were added one by one.

        Raises
        ------
        UnknownEvent
            If the accountant has no proof for this event.
        """

    @abstractmethod
    def epsilon(self, spent: Spent, delta: float) -> Array:
        """Epsilon at `delta` per node, shape (N,); shape () before the first event."""

    @abstractmethod
    def network(self, spent: Spent, delta: float, sites_per_row: int = 1) -> float:
        """Epsilon at `delta` of a person who may have a row at each of `sites_per_row` sites."""

    @abstractmethod
    def among(self, spent: Spent, nodes: Sequence[int]) -> Spent:
        """What these nodes have spent."""

    def worst(self, spent: Spent, sites_per_row: int) -> Spent:
        """The most that a person with rows at `sites_per_row` sites has spent, as one node's spending.

        Where rows are dealt to nodes anew, it adds up over the deals.  InvalidInput if the accountant keeps no sums.
        """
        rule = "this accountant cannot combine runs that assigned rows to sites differently"
        raise InvalidInput("accountant", self.name, rule, "use 'pure', 'zcdp' or 'rdp', or a ledger for each deal")

    def within(self, spent: Spent, delta: float, budget: Array) -> BoolArray:
        """Whether each node keeps its `budget`."""
        return np.asarray(self.epsilon(spent, delta) <= budget)

    def _once(self, price: Callable[[Event], T], event: Event) -> T:
        """``price(event)``, computed once for equal events; `price` is always the same."""
        known, terms = self._prices, event.terms  # another thread may replace it meanwhile
        found: Any = None if known is None else known.get(terms)
        if found is None:
            found = price(event)
            size = found.size if isinstance(found, np.ndarray) else 16 * sum(map(len, found))
            if known is None or len(known) * max(1, size) >= _NUMBERS:
                known = self._prices = {}
            known[terms] = found
        one: T = found
        return one

    def endless(self, spent: Spent) -> bool:
        """Whether it is known, without a total, that every node keeps an infinite budget: all but a NaN does."""
        return False

    def report(self, spent: Spent, delta: float, sites_per_row: int = 1) -> dict[str, float]:
        """The network's epsilon by each notion in use; infinite where a notion proves nothing."""
        return {self.name: self.network(spent, delta, sites_per_row)}

    def gaussian(self, releases: Sequence[tuple[tuple[Bill, ...], int]], copies: int = 1) -> Spent:
        """What Gaussian releases, given by their nodes' bills with counts, spend `copies` times in a row: as by `add`.

        UnknownEvent if the accountant prices no Gaussian noise.
        """
        raise UnknownEvent(f"event=GaussianMechanism: the {self.name} accountant has no proof for it")

    def spent(self, events: Iterable[Event]) -> Spent:
        """What a whole run spends."""
        spent = self.nothing()
        for event, count in counted(all_priced(events)):
            spent = self.add(spent, event, count)
        return spent

    def total(self, events: Iterable[Event], delta: float = 0.0) -> Array:
        """Epsilon per node of :meth:`spent`."""
        return self.epsilon(self.spent(events), delta)


def _orders(name: str, order: float | None) -> Orders:
    if order is None:
        return tuple(ORDERS.tolist())
    if not (np.isfinite(order) and order >= 1.01):  # closer to 1, digits cancel
        raise InvalidInput("accountant", f"{name}:{order}", "an order must be finite and >= 1.01", f"use {name!r}")
    return (order,)


def _largest_sum(values: Array, m: int) -> Array:
    """The sum of the `m` largest along the first axis, which no set of m nodes exceeds."""
    return np.asarray(np.sort(np.atleast_1d(values), axis=0)[-m:].sum(axis=0))


def _by_value(of: Callable[[Array], float], values: Iterable[Array]) -> list[float]:
    """``of(value)`` of each, computed once for equal ones: nodes that are alike cost the same."""
    known: dict[bytes, float] = {}
    return [known[key] if (key := value.tobytes()) in known else known.setdefault(key, of(value)) for value in values]


class _Sums(Accountant[Array]):
    """Spending as sums of prices, of nodes along the first axis."""

    @abstractmethod
    def price(self, event: Event) -> Array:
        """What one event adds."""

    def nothing(self) -> Array:
        return np.zeros(())

    def add(self, spent: Array, event: Event, count: int = 1) -> Array:
        price = self._once(self.price, event)
        for _ in range(count):  # no product: rounded otherwise, a run could pass the budget that its plan had kept
            spent = spent + price
        return spent

    def among(self, spent: Array, nodes: Sequence[int]) -> Array:
        return np.atleast_1d(spent)[list(nodes)]

    def worst(self, spent: Array, sites_per_row: int) -> Array:
        return _largest_sum(spent, sites_per_row)[None]


class PureAccountant(_Sums):
    """Basic composition of pure epsilons: valid for every delta, exact if every release has its worst case."""

    name: ClassVar[str] = "pure"
    is_filter = True

    def epsilon(self, spent: Array, delta: float) -> Array:
        return spent

    def endless(self, spent: Array) -> bool:
        return not np.any(np.isnan(spent))

    def network(self, spent: Array, delta: float, sites_per_row: int = 1) -> float:
        return float(_largest_sum(spent, sites_per_row))

    def price(self, event: Event) -> Array:
        return prices.pure(event)


class _Renyi(_Sums):
    """Sums that are read as epsilon at the best of :data:`sottovoce.privacy.spherical.ORDERS`, or at one `order`."""

    def __init__(self, order: float | None = None) -> None:
        self.is_filter, self._orders = order is not None, _orders(self.name, order)

    @property
    def label(self) -> str:
        return f"{self.name}:{self._orders[0]!r}" if self.is_filter else self.name

    def endless(self, spent: Array) -> bool:
        return True  # where nothing is known of a divergence, epsilon is infinite, and so within such a budget


class ZCDPAccountant(_Renyi):
    """Sums of ``rho``; epsilon by the best order for ``rho alpha``, or at one `order`."""

    name: ClassVar[str] = "zcdp"

    def price(self, event: Event) -> Array:
        return prices.zcdp(event)

    def epsilon(self, spent: Array, delta: float) -> Array:
        a = np.array(self._orders)
        each = _by_value(lambda rho: 0.0 if rho <= 0 else epsilon_from_rdp(a, rho * a, delta), np.ravel(spent))
        return np.array(each).reshape(np.shape(spent))

    def network(self, spent: Array, delta: float, sites_per_row: int = 1) -> float:
        return float(self.epsilon(_largest_sum(spent, sites_per_row), delta))

    def gaussian(self, releases: Sequence[tuple[tuple[Bill, ...], int]], copies: int = 1) -> Array:
        return np.asarray(np.add.accumulate(_rhos(releases, copies), axis=0)[-1])


class RDPAccountant(_Renyi):
    """Sums of Renyi curves, shape (directions, nodes, orders); epsilon at the best order, or at one `order`."""

    name: ClassVar[str] = "rdp"

    def price(self, event: Event) -> Array:
        return prices.renyi(event, self._orders)

    def epsilon(self, spent: Array, delta: float) -> Array:
        if spent.ndim == 0:
            return np.zeros(())
        nodes = np.array([_by_value(lambda curve: self._one(curve, delta), side) for side in spent])
        return np.asarray(nodes.max(axis=0))

    def network(self, spent: Array, delta: float, sites_per_row: int = 1) -> float:
        if spent.ndim == 0:
            return 0.0
        return max(self._one(_largest_sum(side, sites_per_row), delta) for side in spent)

    def among(self, spent: Array, nodes: Sequence[int]) -> Array:
        return spent[:, list(nodes)] if spent.ndim else spent

    def worst(self, spent: Array, sites_per_row: int) -> Array:
        return np.array([_largest_sum(side, sites_per_row)[None] for side in spent]) if spent.ndim else spent

    def gaussian(self, releases: Sequence[tuple[tuple[Bill, ...], int]], copies: int = 1) -> Array:
        spent, a = np.zeros(()), np.array(self._orders)
        for rho in _rhos(releases, copies)[:, :, None]:
            spent = spent + a * rho
        return spent[None]

    def _one(self, curve: Array, delta: float) -> float:
        return 0.0 if np.all(curve <= 0) else epsilon_from_rdp(self._orders, curve, delta)


def _rhos(releases: Sequence[tuple[tuple[Bill, ...], int]], copies: int) -> Array:
    """``rho`` of every Gaussian release, in order, (releases, nodes)."""
    once = [0.5 * np.array([bill.mu for bill in bills]) ** 2 for bills, count in releases for _ in range(count)]
    return np.tile(np.stack(once), (copies, 1))


_Bills = tuple[tuple[Bill, ...], ...]


class Prices(NamedTuple):
    """Bills by direction and node, which came that many `times` in a row after those `before` them."""

    bills: _Bills = ()
    times: int = 0
    before: Prices | None = None

    def all(self) -> list[tuple[_Bills, int]]:
        """Different bills and how often they came, in the order in which they came first."""
        found, last = list[Prices](), self
        while last.before is not None:
            found.append(last)
            last = last.before
        times = dict[_Bills, int]()
        for one in reversed(found):
            times[one.bills] = times.get(one.bills, 0) + one.times
        return list(times.items())


_SUBSETS = 200
_REST = 0.01  # share of delta that pays for the random slack of noise inside objectives
_LATTICE = 2.0**-82  # of delta, a coordinate: see docs/privacy/verdicts.md, "Noise on a grid"


class PLDAccountant(Accountant[Prices]):
    """Composition of dominating pairs: Gaussian parts exactly, others by convolution on a grid.

    ``docs/privacy/tight.md`` has the pairs of noise inside an objective.
    """

    name: ClassVar[str] = "pld"

    def __init__(self) -> None:
        self._known: dict[tuple[frozenset[tuple[Bill, int]], float], float] = {}

    def nothing(self) -> Prices:
        return Prices()

    def add(self, spent: Prices, event: Event, count: int = 1) -> Prices:
        bills = self._once(prices.dominating, event)
        if spent.bills == bills:
            return spent._replace(times=spent.times + count)
        return Prices(bills, count, spent)

    def endless(self, spent: Prices) -> bool:
        return True

    def gaussian(self, releases: Sequence[tuple[tuple[Bill, ...], int]], copies: int = 1) -> Prices:
        spent = self.nothing()
        for bills, count in releases:
            spent = Prices((bills,), count * copies, spent)
        return spent

    def epsilon(self, spent: Prices, delta: float) -> Array:
        known, found = spent.all(), list[float]()
        if not known:
            return np.zeros(())
        alike = dict[tuple[int, ...], float]()  # what nodes cost whose bills are the same in all events
        for i, same in enumerate(zip(*_unlike(known), strict=True)):
            if same not in alike:
                alike[same] = self._of(known, (i,), delta)
            found.append(alike[same])
        return np.array(found)

    def network(self, spent: Prices, delta: float, sites_per_row: int = 1) -> float:
        known = spent.all()
        if sites_per_row == 1 or not known:
            return float(np.max(self.epsilon(spent, delta)))
        nodes = _nodes(known)
        if comb(nodes, sites_per_row) > _SUBSETS:
            return float(np.inf)  # too many sets of nodes to convolve each
        return max(self._of(known, some, delta) for some in combinations(range(nodes), min(sites_per_row, nodes)))

    def among(self, spent: Prices, nodes: Sequence[int]) -> Prices:
        after = self.nothing()
        for bills, count in spent.all():
            after = Prices(tuple(tuple(_at(side, i) for i in nodes) for side in bills), count, after)
        return after

    def _of(self, known: list[tuple[_Bills, int]], nodes: tuple[int, ...], delta: float) -> float:
        each = []
        for direction in range(max(len(bills) for bills, _ in known)):
            counts = Counter[Bill]()
            for bills, count in known:
                for i in nodes:
                    counts[_at(bills[direction % len(bills)], i)] += count
            each.append(self._cached(counts, delta))
        return max(each)

    def _cached(self, bills: Counter[Bill], delta: float) -> float:
        key = frozenset(bills.items()), delta
        if key not in self._known:
            numbers = [one for bill in bills for one in (*bill[:1], *(bill.ball or ()), *bill[2:])]
            # What has no number has no proof.
            self._known[key] = np.inf if np.any(np.isnan(numbers)) else _composed(tuple(bills.items()), delta)
        return self._known[key]


def _at(side: tuple[Bill, ...], node: int) -> Bill:
    """The bill of a node; one bill stands for all nodes."""
    return side[node if len(side) > 1 else 0]


def _nodes(known: list[tuple[_Bills, int]]) -> int:
    return max(len(side) for bills, _ in known for side in bills)


def _unlike(known: list[tuple[_Bills, int]]) -> set[tuple[int, ...]]:
    """For each way in which events tell nodes apart, the first node with the same bill, by node."""
    nodes = range(_nodes(known))
    found = set[tuple[int, ...]]()
    for bills, _ in known:
        for side in bills:
            first = dict[Bill, int]()
            found.add(tuple(first.setdefault(_at(side, i), i) for i in nodes))
    return found


@lru_cache(maxsize=4096)
def _composed(bills: tuple[tuple[Bill, int], ...], delta: float) -> float:
    """:func:`composed_epsilon`, cached for the process; parts keep their order, as last bits of sums depend on it."""
    return composed_epsilon(Counter(dict(bills)), delta)


def composed_epsilon(bills: Counter[Bill], delta: float) -> float:
    """Epsilon at `delta` of a composition of releases with these dominating pairs."""
    if not 0.0 < delta < 1.0 or any(np.isinf(bill.epsilon) for bill in bills):
        return float(np.inf)
    rest, exchange, extra = _of_objectives(bills, delta)
    if not np.isfinite(extra) or exchange > 50.0:
        return float(np.inf)
    coordinates, known = sum(bill.lattice * count for bill, count in bills.items()), _convolved(bills)

    def at(left: float) -> float:
        if left <= 0.0:
            return float(np.inf)
        return known(left * float(np.exp(-exchange))) + extra + 2.0 * exchange

    if not coordinates:
        return at(delta - rest)
    cap = at(delta - rest) * 1.01 + 0.01
    with np.errstate(over="ignore"):
        value = at(delta - rest - coordinates * _LATTICE * float(1.0 + np.exp(cap)))
    return value if value <= cap else float(np.inf)


def _of_objectives(bills: Counter[Bill], delta: float) -> tuple[float, float, float]:
    """What noise in objectives costs beyond the convolved losses: a part of delta, an exchange, and epsilon for it."""
    slack = [(Within(0.0, bill.fixed, bill.slack, bill.degrees), count) for bill, count in bills.items()]
    rest = _REST * delta if any(bill.slack > 0 for bill in bills) else 0.0
    exchange = sum(bill.exchange * count for bill, count in bills.items())
    return rest, exchange, objective_surplus(slack, rest * float(np.exp(-exchange)))


def _convolved(bills: Counter[Bill]) -> Callable[[float], float]:
    """Epsilon, by delta, of the parts whose exact loss distribution is known."""
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
        return lambda _: float(np.inf)  # exponentials would overflow; other notions price what is that large
    step = _grid_step(mu, balls, pure)
    exact = [(pld.shifted_ball(d, s, step), n) for (d, s), n in balls.items()]
    exact += [(pld.pure(e, step), n) for e, n in pure.items()]
    exact += [(pld.gaussian(mu, step), 1)] if mu > 0 else []
    return pld.compose(exact).epsilon


def _largest_loss(mu: float, balls: Counter[tuple[int, float]], pure: Counter[float]) -> float:
    """The largest loss of all parts together, but for the far tail of the Gaussian."""
    of_balls = sum(s * n for (_, s), n in balls.items())
    return mu * mu / 2.0 + 13.0 * mu + of_balls + sum(e * n for e, n in pure.items())


def _grid_step(mu: float, balls: Counter[tuple[int, float]], pure: Counter[float]) -> float:
    """The step of the losses' grid: the spread that it adds is at most 1e-4 of theirs, unless there are too many."""
    parts = sum(balls.values()) + sum(pure.values()) + 1
    variance = mu**2 + sum(min(s, s * s) / d * n for (d, s), n in balls.items())
    variance += sum(min(e * e, e) * n for e, n in pure.items())
    step = 0.02 * float(np.sqrt(variance / parts))
    widths = sum(2.0 * s * min(1.0, 11.0 / np.sqrt(d)) * n for (d, s), n in balls.items())
    widths += sum(2.0 * e * n for e, n in pure.items()) + 26.0 * mu
    return min(max(step, widths / 2.0**22), widths / 2.0**13)


_LEAST: tuple[Accountant[Any], ...] = (PureAccountant(), ZCDPAccountant(), RDPAccountant(), PLDAccountant())


class BestAccountant(Accountant[tuple[Any, ...]]):
    """The least epsilon of all accountants: a bound because each is, and which is least is public."""

    name: ClassVar[str] = "best"

    def __init__(self) -> None:
        self._parts: tuple[Accountant[Any], ...] = tuple(type(part)() for part in _LEAST)

    def nothing(self) -> tuple[Any, ...]:
        return tuple(part.nothing() for part in self._parts)

    def add(self, spent: tuple[Any, ...], event: Event, count: int = 1) -> tuple[Any, ...]:
        after: list[Any] = []
        for part, before in zip(self._parts, spent, strict=True):
            try:
                after.append(None if before is None else part.add(before, event, count))
            except UnknownEvent:
                after.append(None)
        if all(value is None for value in after):
            raise UnknownEvent(f"event={type(event).__name__}: no accountant has a proof for it and what came before")
        return tuple(after)

    def gaussian(self, releases: Sequence[tuple[tuple[Bill, ...], int]], copies: int = 1) -> tuple[Any, ...]:
        parts = self._parts
        return tuple(None if part.name == "pure" else part.gaussian(releases, copies) for part in parts)

    def _each(self, spent: tuple[Any, ...]) -> list[tuple[Accountant[Any], Any]]:
        return [(part, value) for part, value in zip(self._parts, spent, strict=True) if value is not None]

    def epsilon(self, spent: tuple[Any, ...], delta: float) -> Array:
        return np.asarray(np.min([part.epsilon(value, delta) for part, value in self._each(spent)], axis=0))

    def within(self, spent: tuple[Any, ...], delta: float, budget: Array) -> BoolArray:
        fits: BoolArray = np.zeros((), dtype=bool)
        for part, value in self._each(spent):  # the dear one is last
            fits = fits | part.within(value, delta, budget)
            if np.all(fits):
                break
        return fits

    def endless(self, spent: tuple[Any, ...]) -> bool:
        return any(part.endless(value) for part, value in self._each(spent))

    def network(self, spent: tuple[Any, ...], delta: float, sites_per_row: int = 1) -> float:
        return min(self.report(spent, delta, sites_per_row).values())

    def among(self, spent: tuple[Any, ...], nodes: Sequence[int]) -> tuple[Any, ...]:
        parts = zip(self._parts, spent, strict=True)
        return tuple(None if value is None else part.among(value, nodes) for part, value in parts)

    def report(self, spent: tuple[Any, ...], delta: float, sites_per_row: int = 1) -> dict[str, float]:
        known = {part.name: part.network(value, delta, sites_per_row) for part, value in self._each(spent)}
        return {part.name: known.get(part.name, float(np.inf)) for part in self._parts}


ACCOUNTANTS: dict[str, type[Accountant[Any]]] = {
    cls.name: cls for cls in (PureAccountant, ZCDPAccountant, RDPAccountant, PLDAccountant, BestAccountant)
}


_ENDLESS = float(ORDERS[np.searchsorted(ORDERS, 32.0)])  # where no budget says which order will be best
_ORDERED: dict[str, type[_Renyi]] = {"zcdp": ZCDPAccountant, "rdp": RDPAccountant}


def make_accountant(name: str) -> Accountant[Any]:
    """An accountant by name, or InvalidInput; ``"zcdp:ORDER"`` and ``"rdp:ORDER"`` keep one Renyi order only."""
    kind, _, order = name.partition(":")
    if kind in _ORDERED and order:
        try:
            return _ORDERED[kind](float(order))
        except ValueError:
            raise InvalidInput("accountant", name, "an order must be a number > 1", f"use e.g. '{kind}:20'") from None
    if name not in ACCOUNTANTS:
        raise InvalidInput("accountant", name, f"must be one of {sorted(ACCOUNTANTS)}", "use accountant='best'")
    return ACCOUNTANTS[name]()


def best_order(epsilon: float, delta: float) -> float:
    """The Renyi order at which a Gaussian that spends (`epsilon`, `delta`) is priced best."""
    constant = np.log1p(-1.0 / ORDERS) - (np.log(delta) + np.log(ORDERS)) / (ORDERS - 1.0)
    return float(ORDERS[np.argmax((epsilon - constant) / ORDERS)])


def at_one_order(accountant: Accountant[Any], epsilon: Array, delta: float) -> Accountant[Any]:
    """The accountant at one Renyi order, the one that is best when the smallest budget is used up.

    Accountants without orders are returned unchanged.  That budget allows as many releases as with a free choice.

    Notes
    -----
    With the order fixed beforehand, at every stopping time T and for every set S of transcripts at which at most e is
    quoted, ``P(S) <= exp(e) Q(S) + delta``, though each release, and whether there is another, may be chosen in view of
    earlier ones: ``exp((a-1)(L_t - R_t))``, of the loss ``L_t`` and the sum ``R_t`` of the divergences of order a, is a
    supermartingale (``docs/reference/ledger.md``, "When you stop").  With the best order for each ``R_t`` this is
    false: an analyst who stops when the loss exceeds the quoted epsilon reaches several times delta.
    """
    if accountant.is_filter or accountant.name not in _ORDERED:
        return accountant
    least = float(np.min(epsilon))
    return _ORDERED[accountant.name](best_order(least, delta) if np.isfinite(least) else _ENDLESS)


def for_life(name: str, epsilon: Array, delta: float) -> Accountant[Any]:
    """The accountant of a ledger that outlives runs; ``"zcdp"`` and ``"rdp"`` become :func:`at_one_order`.

    Raises
    ------
    InvalidInput
        If the accountant's totals do not hold for runs chosen in view of earlier releases, or it lacks a delta.
    """
    chosen = make_accountant(name)
    if chosen.name != PureAccountant.name and not delta > 0.0:
        raise InvalidInput("delta", delta, f"the {chosen.name} accountant needs one inside (0, 1)", "use delta=1e-5")
    chosen = at_one_order(chosen, epsilon, delta)
    if not chosen.is_filter:
        rule = "its totals are not proved for runs that are chosen as one goes"
        raise InvalidInput("accountant", name, rule, "use 'pure', 'zcdp' or 'rdp' for a budget that several runs share")
    return chosen
