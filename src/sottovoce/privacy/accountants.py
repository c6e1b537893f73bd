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
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import ClassVar, Generic, TypeVar

import numpy as np

from ..errors import InvalidInput, UnknownEvent
from ..util.typing import Any, Array, BoolArray
from . import pld, prices
from .conditions import all_priced
from .events import Event
from .gaussian import gaussian_epsilon
from .prices import Bill, Orders
from .spherical import ORDERS, Within, epsilon_from_rdp, objective_surplus

Spent = TypeVar("Spent")


class Accountant(ABC, Generic[Spent]):
    """How events add up, per node and over the network."""

    name: ClassVar[str]
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
    def add(self, spent: Spent, event: Event) -> Spent:
        """What is spent once `event` is added.

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
        rule = "it keeps no sums, so rows that were dealt to the nodes anew have no total"
        raise InvalidInput("accountant", self.name, rule, "use 'pure', 'zcdp' or 'rdp', or a ledger for each deal")

    def within(self, spent: Spent, delta: float, budget: Array) -> BoolArray:
        """Whether each node keeps its `budget`."""
        return np.asarray(self.epsilon(spent, delta) <= budget)

    def report(self, spent: Spent, delta: float, sites_per_row: int = 1) -> dict[str, float]:
        """The network's epsilon by each notion in use; infinite where a notion proves nothing."""
        return {self.name: self.network(spent, delta, sites_per_row)}

    def spent(self, events: Iterable[Event]) -> Spent:
        """What a whole run spends."""
        spent = self.nothing()
        for event in all_priced(events):
            spent = self.add(spent, event)
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


class _Sums(Accountant[Array]):
    """Spending as sums of prices, of nodes along the first axis."""

    def nothing(self) -> Array:
        return np.zeros(())

    def among(self, spent: Array, nodes: Sequence[int]) -> Array:
        return np.atleast_1d(spent)[list(nodes)]

    def worst(self, spent: Array, sites_per_row: int) -> Array:
        return _largest_sum(spent, sites_per_row)[None]


class PureAccountant(_Sums):
    """Basic composition of pure epsilons: valid for every delta, exact if every release has its worst case."""

    name: ClassVar[str] = "pure"
    is_filter = True

    def add(self, spent: Array, event: Event) -> Array:
        return spent + self.price(event)

    def epsilon(self, spent: Array, delta: float) -> Array:
        return spent

    def network(self, spent: Array, delta: float, sites_per_row: int = 1) -> float:
        return float(_largest_sum(spent, sites_per_row))

    def price(self, event: Event) -> Array:
        """Pure epsilon of one event, per node."""
        return prices.pure(event)


class _Renyi(_Sums):
    """Sums that are read as epsilon at the best of :data:`sottovoce.privacy.spherical.ORDERS`, or at one `order`."""

    def __init__(self, order: float | None = None) -> None:
        self.is_filter, self._orders = order is not None, _orders(self.name, order)

    @property
    def label(self) -> str:
        return f"{self.name}:{self._orders[0]!r}" if self.is_filter else self.name


class ZCDPAccountant(_Renyi):
    """Sums of ``rho``; epsilon by the best order for ``rho alpha``, or at one `order`."""

    name: ClassVar[str] = "zcdp"

    def add(self, spent: Array, event: Event) -> Array:
        return spent + prices.zcdp(event)

    def epsilon(self, spent: Array, delta: float) -> Array:
        a = np.array(self._orders)
        each = [epsilon_from_rdp(a, rho * a, delta) if rho > 0 else 0.0 for rho in map(float, np.ravel(spent))]
        return np.array(each).reshape(np.shape(spent))

    def network(self, spent: Array, delta: float, sites_per_row: int = 1) -> float:
        return float(self.epsilon(_largest_sum(spent, sites_per_row), delta))


class RDPAccountant(_Renyi):
    """Sums of Renyi curves, shape (directions, nodes, orders); epsilon at the best order, or at one `order`."""

    name: ClassVar[str] = "rdp"

    def add(self, spent: Array, event: Event) -> Array:
        return spent + prices.renyi(event, self._orders)

    def epsilon(self, spent: Array, delta: float) -> Array:
        if spent.ndim == 0:
            return np.zeros(())
        nodes = np.array([[self._one(curve, delta) for curve in side] for side in spent])
        return np.asarray(nodes.max(axis=0))

    def network(self, spent: Array, delta: float, sites_per_row: int = 1) -> float:
        if spent.ndim == 0:
            return 0.0
        return max(self._one(_largest_sum(side, sites_per_row), delta) for side in spent)

    def among(self, spent: Array, nodes: Sequence[int]) -> Array:
        return spent[:, list(nodes)] if spent.ndim else spent

    def worst(self, spent: Array, sites_per_row: int) -> Array:
        return np.array([_largest_sum(side, sites_per_row)[None] for side in spent]) if spent.ndim else spent

    def _one(self, curve: Array, delta: float) -> float:
        return epsilon_from_rdp(self._orders, curve, delta) if np.any(curve > 0) else 0.0


Prices = tuple[tuple[tuple[Bill, ...], ...], ...]
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
        return ()

    def add(self, spent: Prices, event: Event) -> Prices:
        return (*spent, prices.dominating(event))

    def epsilon(self, spent: Prices, delta: float) -> Array:
        if not spent:
            return np.zeros(())
        nodes = range(len(spent[0][0]))
        return np.array([self._of(spent, (i,), delta) for i in nodes])

    def network(self, spent: Prices, delta: float, sites_per_row: int = 1) -> float:
        if not spent:
            return 0.0
        nodes = len(spent[0][0])
        if comb(nodes, sites_per_row) > _SUBSETS * (1 if sites_per_row > 1 else nodes):
            return float(np.inf)  # too many sets of nodes to convolve each
        return max(self._of(spent, some, delta) for some in combinations(range(nodes), min(sites_per_row, nodes)))

    def among(self, spent: Prices, nodes: Sequence[int]) -> Prices:
        return tuple(tuple(tuple(side[i] for i in nodes) for side in event) for event in spent)

    def _of(self, spent: Prices, nodes: tuple[int, ...], delta: float) -> float:
        sides = range(max(len(event) for event in spent))
        return max(self._cached(Counter(e[side % len(e)][i] for e in spent for i in nodes), delta) for side in sides)

    def _cached(self, bills: Counter[Bill], delta: float) -> float:
        key = frozenset(bills.items()), delta
        if key not in self._known:
            self._known[key] = _composed(tuple(bills.items()), delta)
        return self._known[key]


@lru_cache(maxsize=4096)
def _composed(bills: tuple[tuple[Bill, int], ...], delta: float) -> float:
    """:func:`composed_epsilon`, cached for the process; parts keep their order, as last bits of sums depend on it."""
    return composed_epsilon(Counter(dict(bills)), delta)


def composed_epsilon(bills: Counter[Bill], delta: float) -> float:
    """Epsilon at `delta` of a composition of releases with these dominating pairs."""
    if not 0.0 < delta < 1.0 or any(np.isinf(bill.epsilon) for bill in bills):
        return float(np.inf)
    slack = [(Within(0.0, bill.fixed, bill.slack, bill.degrees), count) for bill, count in bills.items()]
    rest = _REST * delta if any(within.slack > 0 for within, _ in slack) else 0.0
    exchange = sum(bill.exchange * count for bill, count in bills.items())
    extra = objective_surplus(slack, rest * float(np.exp(-exchange)))
    if not np.isfinite(extra) or exchange > 50.0:
        return float(np.inf)
    coordinates = sum(bill.lattice * count for bill, count in bills.items())

    def at(left: float) -> float:
        if left <= 0.0:
            return float(np.inf)
        return _convolved(bills, left * float(np.exp(-exchange))) + extra + 2.0 * exchange

    if not coordinates:
        return at(delta - rest)
    cap = at(delta - rest) * 1.01 + 0.01
    with np.errstate(over="ignore"):
        value = at(delta - rest - coordinates * _LATTICE * float(1.0 + np.exp(cap)))
    return value if value <= cap else float(np.inf)


def _convolved(bills: Counter[Bill], delta: float) -> float:
    """Epsilon of the parts whose exact loss distribution is known."""
    mu = float(np.sqrt(sum(bill.mu**2 * count for bill, count in bills.items())))
    balls: Counter[tuple[int, float]] = Counter()
    pure: Counter[float] = Counter()
    for bill, count in bills.items():
        if bill.ball is not None and bill.ball[1] > 0:
            balls[bill.ball] += count
        if bill.epsilon > 0:
            pure[bill.epsilon] += count
    if not balls and not pure:
        return gaussian_epsilon(delta, mu)
    largest = (
        mu * mu / 2.0 + 13.0 * mu + sum(s * n for (_, s), n in balls.items()) + sum(e * n for e, n in pure.items())
    )
    if largest > 500.0:
        return float(np.inf)  # exponentials would overflow; other notions price what is that large
    parts = sum(balls.values()) + sum(pure.values()) + 1
    variance = mu**2 + sum(min(s, s * s) / d * n for (d, s), n in balls.items())
    variance += sum(min(e * e, e) * n for e, n in pure.items())
    step = 0.02 * float(np.sqrt(variance / parts))  # the spread that the grid adds is at most 1e-4 of it
    widths = sum(2.0 * s * min(1.0, 11.0 / np.sqrt(d)) * n for (d, s), n in balls.items())
    widths += sum(2.0 * e * n for e, n in pure.items()) + 26.0 * mu
    step = min(max(step, widths / 2.0**22), widths / 2.0**13)
    exact = [(pld.shifted_ball(d, s, step), n) for (d, s), n in balls.items()]
    exact += [(pld.pure(e, step), n) for e, n in pure.items()]
    exact += [(pld.gaussian(mu, step), 1)] if mu > 0 else []
    return pld.compose(exact).epsilon(delta)


_LEAST: tuple[Accountant[Any], ...] = (PureAccountant(), ZCDPAccountant(), RDPAccountant(), PLDAccountant())


class BestAccountant(Accountant[tuple[Any, ...]]):
    """The least epsilon of all accountants: a bound because each is, and which is least is public."""

    name: ClassVar[str] = "best"

    def __init__(self) -> None:
        self._parts: tuple[Accountant[Any], ...] = tuple(type(part)() for part in _LEAST)

    def nothing(self) -> tuple[Any, ...]:
        return tuple(part.nothing() for part in self._parts)

    def add(self, spent: tuple[Any, ...], event: Event) -> tuple[Any, ...]:
        after: list[Any] = []
        for part, before in zip(self._parts, spent, strict=True):
            try:
                after.append(None if before is None else part.add(before, event))
            except UnknownEvent:
                after.append(None)
        if all(value is None for value in after):
            raise UnknownEvent(f"event={type(event).__name__}: no accountant has a proof for it and what came before")
        return tuple(after)

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
    supermartingale (``docs/ledger.md``, "When you stop").  With the best order for each ``R_t`` this is false: an
    analyst who stops when the loss exceeds the quoted epsilon reaches several times delta.
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
