"""Runs whose releases are all Gaussian: what each costs at another scale of the noise, without the run.

A release's dominating pair is its shift over sigma.  Queries of equal terms state one event, which counts; carried
rounds state all their shifts at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import NamedTuple

import numpy as np

from ..privacy import prices
from ..privacy.conditions import Conditions
from ..privacy.events import Event
from ..privacy.prices import Bill
from ..problem.facts import Facts
from ..queries import CarriedGradient, Query, Sum
from ..util.typing import Any, Array

Bills = tuple[Bill, ...]


class Release(NamedTuple):
    """Bills of the nodes, None if they are not of Gaussian noise alone, and how many such releases there are."""

    bills: Bills | None
    times: int


@dataclass(frozen=True)
class Group:
    """Queries in a row that differ in their rounds alone."""

    query: Query | Sum
    count: int

    def at(self, alpha: Array, facts: Facts, sites_per_row: int) -> list[Release]:
        """Its releases with another shift over sigma."""
        what: Any = self.query.what if isinstance(self.query, Sum) else self.query
        again = replace(what, alpha=alpha)
        if isinstance(again, CarriedGradient):
            return [
                Release(tuple(Bill(mu=mu, lattice=facts.d) for mu in shifts), 1)
                for shifts in again.shifts(facts)[: self.count].tolist()
            ]
        event = (Sum.of(again) if isinstance(self.query, Sum) else again).event(facts)
        return [Release(released(event, sites_per_row), self.count)]


def released(event: Event, sites_per_row: int) -> Bills | None:
    """The bills of a Gaussian release, by node; None of another."""
    sides = prices.dominating(Conditions(sites_per_row).priced(event))
    alone = all(bill == Bill(mu=bill.mu, lattice=bill.lattice) and bill.mu > 0 for bill in sides[0])
    return sides[0] if alone and all(side == sides[0] for side in sides[1:]) else None


def grouped(queries: Sequence[Query | Sum], alpha: Array) -> list[Group] | None:
    """Queries by their terms, where all have this shift over sigma; None if one has another, or none."""
    groups = []
    for terms, some in groupby(queries, _terms):
        own = list(some)
        if terms is None or not all(_shift_is(query, alpha) for query in own):
            return None
        if isinstance(own[0], CarriedGradient) and [getattr(q, "index", 0) for q in own] != list(
            range(1, len(own) + 1)
        ):
            return None
        groups.append(Group(own[0], len(own)))
    return groups


def releases(
    fixed: Sequence[Release], groups: Sequence[Group], alpha: Array, facts: Facts, sites_per_row: int
) -> list[Release]:
    """All releases of a run, whose first are `fixed` and whose others have this shift over sigma."""
    return [*fixed, *(one for group in groups for one in group.at(alpha, facts, sites_per_row))]


def _shift_is(query: Query | Sum, alpha: Array) -> bool:
    own = getattr(query, "alpha", None)
    return own is not None and np.asarray(own).shape == alpha.shape and bool(np.all(own == alpha))


def _terms(query: Query | Sum) -> Any:
    """Class and fields, the round aside; None where a field cannot be compared."""
    what: Any = query.what if isinstance(query, Sum) else query
    left = {"index"} if isinstance(what, CarriedGradient) else set()
    found: list[Any] = [type(query), type(what)]
    for one in fields(what):
        value = getattr(what, one.name)
        if isinstance(value, np.ndarray):
            found.append((one.name, value.shape, value.tobytes()))
        elif one.name not in left:
            found.append((one.name, value))
    try:
        hash(tuple(found))
    except TypeError:
        return None
    return tuple(found)
