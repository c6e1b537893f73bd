"""The privacy loss of a run of Gaussian releases as a function of its noise scale, without replans.

Calibration (:mod:`sottovoce.runs.calibration`) tries many scales of the noise.  The privacy loss of
a Gaussian release depends on its mu (sensitivity over sigma) alone.  So the run is planned once,
and at another scale only the events of its queries are computed again.  Consecutive queries that
differ in nothing but their round share one event, which is counted; with correlated noise every
round has a mu of its own.

A *bill* is what an accountant needs to price a release: its mu, or a pair of distributions that
dominates it (:mod:`sottovoce.privacy.prices`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import NamedTuple

import numpy as np

from ..algorithms import Algorithm
from ..errors import SottovoceError
from ..privacy import prices
from ..privacy.calibration import PriceOfScale
from ..privacy.conditions import Conditions
from ..privacy.events import Event
from ..privacy.prices import Bill
from ..problem.facts import Facts
from ..queries import CarriedGradient, Query, Sum
from ..util.typing import Any, Array
from .pricing import RunSetting, collect_queries

Bills = tuple[Bill, ...]


def price_of_gaussian_run(method: Algorithm[Any], setting: RunSetting) -> PriceOfScale | None:
    """Return a function from noise scales to the epsilon of a run of Gaussian releases.

    None for other runs, which must be planned at every scale.

    Parameters
    ----------
    method : Algorithm
        With a noise schedule that is the same in all rounds.
    setting : RunSetting

    Returns
    -------
    callable or None
        From scales (N,) to epsilon of each node, (N,), NaN where a scale has no price.

    Guarantee
    ---------
    Totals are those of a plan's ledger to the last bit.  A calibration compares its result with the
    plan's all the same.
    """
    shape = method.noise
    # Queries can be grouped only if all rounds have one mu; a method of which only all rounds
    # together count is calibrated by its total, not by node; Gaussian noise has no pure epsilon.
    if shape is None or not shape.is_steady or method.complete or setting.accountant.name == "pure":
        return None
    facts, accountant, m = setting.facts, setting.accountant, setting.sites_per_row
    try:
        queries = collect_queries(method, setting)
        first = [Release(gaussian_bills(query.event(facts), m), 1) for query in queries.first]
        groups = group_equal_queries(queries.method, shape(1))
        if groups is None:
            return None
        releases = [*first, *_releases_of_groups(groups, shape(1), facts, m)]
        if any(release.bills is None for release in releases):
            return None
    except SottovoceError:
        # A plan of this run will raise the same error, with its explanation.
        return None

    def price(scale: Array) -> Array:
        unknown = np.full(scale.shape, np.nan)
        alpha = shape.scaled(scalar_if_equal(scale))(1)
        known: list[tuple[Bills, int]] = []
        try:
            for bills, times in (*first, *_releases_of_groups(groups, alpha, facts, m)):
                if not bills:
                    return unknown
                known.append((bills, times))
            spent = accountant.spend_gaussian_releases(known, setting.copies)
        except SottovoceError:
            return unknown
        if m == 1:
            return accountant.epsilon(spent, setting.delta)
        return np.array(accountant.network_epsilon(spent, setting.delta, m))

    return price


class Release(NamedTuple):
    """Bills of one release by node (None if its noise is not Gaussian), and its multiplicity."""

    bills: Bills | None
    times: int


@dataclass(frozen=True)
class Group:
    """Consecutive queries that differ in nothing but their round: one of them, and their number."""

    query: Query | Sum
    count: int

    def releases_at_shift(self, alpha: Array, facts: Facts, sites_per_row: int) -> list[Release]:
        """Return the releases of this group at another mu.

        Parameters
        ----------
        alpha : array of shape () or (N, 1)
            mu (sensitivity over sigma) of all nodes or of each.
        facts : Facts
            Public facts of all nodes.
        sites_per_row : int
            At how many sites a person may have a row.

        Returns
        -------
        list of Release
            One that is counted for all queries; with correlated noise, one for each round.
        """
        query = self.query.with_noise_ratio(alpha)
        if isinstance(query, CarriedGradient):
            # With correlated noise each round has a mu ("shift") of its own, (rounds, N).
            releases = []
            for shifts_of_nodes in query.shifts_of_rounds(facts)[: self.count].tolist():
                bills = tuple(Bill(mu=mu, lattice=facts.d) for mu in shifts_of_nodes)
                releases.append(Release(bills, 1))
            return releases
        return [Release(gaussian_bills(query.event(facts), sites_per_row), self.count)]


def gaussian_bills(event: Event, sites_per_row: int) -> Bills | None:
    """Return the bills of a Gaussian release, by node; None for any other release."""
    directions = prices.dominating_pairs(Conditions(sites_per_row).pricing_event(event))
    bills = directions[0]
    gaussian_alone = all(
        bill == Bill(mu=bill.mu, lattice=bill.lattice) and bill.mu > 0 for bill in bills
    )
    symmetric = all(direction == bills for direction in directions[1:])
    if not gaussian_alone or not symmetric:
        return None
    return bills


def group_equal_queries(queries: Sequence[Query | Sum], alpha: Array) -> list[Group] | None:
    """Group consecutive queries that differ in nothing but their round.

    None if a query has another mu than `alpha`, or a field that cannot be compared.
    """
    groups = []
    for terms, equal in groupby(queries, _terms_of_query):
        members = list(equal)
        if terms is None or not all(_has_equal_shift(query, alpha) for query in members):
            return None
        if isinstance(members[0], CarriedGradient):
            indices = [getattr(query, "index", 0) for query in members]
            # The mus of correlated noise are computed for rounds 1, 2, ... without a gap.
            if indices != list(range(1, len(members) + 1)):
                return None
        groups.append(Group(members[0], len(members)))
    return groups


def scalar_if_equal(scale: Array) -> Array:
    """Return scales (N,) as one number if all are equal, so that schedules hold one number too."""
    if np.all(scale == scale[0]):
        return scale[0]
    return scale


def _releases_of_groups(
    groups: Sequence[Group], alpha: Array, facts: Facts, sites_per_row: int
) -> list[Release]:
    return [
        release
        for group in groups
        for release in group.releases_at_shift(alpha, facts, sites_per_row)
    ]


def _has_equal_shift(query: Query | Sum, alpha: Array) -> bool:
    """Return true if a query has exactly this mu, in the same shape."""
    own = getattr(query, "alpha", None)
    if own is None or np.asarray(own).shape != alpha.shape:
        return False
    return bool(np.all(own == alpha))


def _terms_of_query(query: Query | Sum) -> Any:
    """Return a hashable key of a query: its class and all fields except its round.

    None if a field cannot be compared.
    """
    inner: Any = query.statistic
    ignored: set[str] = set()
    if isinstance(inner, CarriedGradient):
        ignored = {"index"}
    found: list[Any] = [type(query), type(inner)]
    for field in fields(inner):
        value = getattr(inner, field.name)
        if isinstance(value, np.ndarray):
            found.append((field.name, value.shape, value.tobytes()))
        elif field.name not in ignored:
            found.append((field.name, value))
    try:
        hash(tuple(found))
    except TypeError:
        return None
    return tuple(found)
