"""What a ledger's rows cost together, by its accountant, and the budget that limits it.

Used by ledgers in memory (:mod:`.account`).  A *deal* is a partition of rows over nodes
(:mod:`.book`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..errors import BudgetExceeded, InvalidInput
from ..privacy.accountants import Accountant
from ..privacy.events import Event
from ..util.typing import Any, Array, ArrayLike, BoolArray
from .book import Deal

_REMEDY = "nothing was drawn; raise the budget or the noise"


@dataclass(frozen=True)
class Spending:
    """Privacy loss per partition, in the accountant's currency, and the epsilons that follow.

    With several partitions (deals) nobody knows at which nodes a row was: the total is the sum over
    deals of the worst node (of the `sites_per_row` worst nodes together).

    Parameters
    ----------
    accountant : Accountant
    delta : float
        0 for pure epsilon.
    sites_per_row : int
        At how many sites a person may have a row.
    by_deal : mapping
        What was spent under each deal, in the accountant's currency, of all nodes.
    """

    accountant: Accountant[Any]
    delta: float
    sites_per_row: int
    by_deal: Mapping[Deal, Any] = field(default_factory=dict)

    @property
    def several(self) -> bool:
        """True if there are several partitions."""
        return len(self.by_deal) > 1

    def without_releases(self) -> Spending:
        """Return the spending before the first release."""
        return self._with_spending({})

    def after(self, charges: Iterable[tuple[Deal, Event, int]]) -> Spending:
        """Return the spending after further charges.

        Each is a partition, the event that prices a release, and how many such releases there are.
        """
        spent = dict(self.by_deal)
        for deal, priced, count in charges:
            if deal not in spent:
                spent[deal] = self.accountant.zero_spending()
            spent[deal] = self.accountant.add_event(spent[deal], priced, count)
        return self._with_spending(spent)

    def among(self, nodes: Mapping[Deal, Collection[int]]) -> Spending:
        """Return the spending at these nodes alone, as if no other had any rows.

        For the loss against a coalition of sites, which counts at all other sites
        (:meth:`.account.Account.against`).

        Parameters
        ----------
        nodes : mapping of Deal to collection of int
            Indices of nodes, from 0, of each partition of the ledger.  A partition of which none is
            named is left out.

        Returns
        -------
        Spending
        """
        spent = {
            deal: self.accountant.spending_among_nodes(self.by_deal[deal], list(some))
            for deal, some in nodes.items()
            if some
        }
        return self._with_spending(spent)

    def per_node(self) -> Array:
        """Return the epsilon of each node, (N,).

        () before the first event, (1,) with several deals.
        """
        return self.accountant.epsilon(self._composed_over_deals(), self.delta)

    def total(self) -> float:
        """Return the epsilon of the network.

        That of the worst node, or of the `sites_per_row` worst nodes together.
        """
        if self._sites_of_person == 1:
            return float(np.max(self.per_node()))
        return self._epsilon_of_person()

    def report(self) -> dict[str, float]:
        """Return the network's epsilon by every notion that the accountant knows."""
        return self.accountant.epsilon_by_notion(
            self._composed_over_deals(), self.delta, self._sites_of_person
        )

    def within(self, limits: Array) -> BoolArray:
        """Return True for each node whose epsilon is at most its limit; NaN is above any limit."""
        return np.atleast_1d(
            self.accountant.within_budget(self._composed_over_deals(), self.delta, limits)
        )

    def excess_of_person(self, limit: float) -> float | None:
        """Return the epsilon of a person with rows at several sites.

        None if it is at most `limit`, or a person has a row at one site only.
        """
        if self._sites_of_person == 1 or not np.isfinite(limit):
            return None
        together = self._epsilon_of_person()
        # Not "if together > limit": NaN is above any limit.
        if together <= limit:
            return None
        return together

    def _with_spending(self, by_deal: Mapping[Deal, Any]) -> Spending:
        """Return the same with another spending by partition."""
        return Spending(self.accountant, self.delta, self.sites_per_row, by_deal)

    @property
    def _sites_of_person(self) -> int:
        """Number of the composed nodes that hold a row of one person."""
        # With several deals, the composed spending is already that of the worst nodes together.
        if self.several:
            return 1
        return self.sites_per_row

    def _epsilon_of_person(self) -> float:
        """Return the epsilon of a person with a row at each of the worst nodes."""
        return self.accountant.network_epsilon(
            self._composed_over_deals(), self.delta, self._sites_of_person
        )

    def _composed_over_deals(self) -> Any:
        """Return the spending of all deals, in the accountant's currency."""
        if not self.by_deal:
            return self.accountant.zero_spending()
        if not self.several:
            return next(iter(self.by_deal.values()))
        # Nobody knows at which node a row was in each partition, so each counts at its worst nodes.
        first, *others = (
            self.accountant.worst_spending(spent, self.sites_per_row)
            for spent in self.by_deal.values()
        )
        return sum(others, first)


class Budget:
    """Epsilon that each node may spend; infinity records without limiting."""

    def __init__(self, epsilon: ArrayLike) -> None:
        self.epsilon = np.asarray(epsilon, dtype=float)

    @property
    def is_unlimited(self) -> bool:
        """True if no node has a limit."""
        return bool(np.all(np.isinf(self.epsilon)))

    def check_node_count(self, nodes: int) -> None:
        """Raise InvalidInput if releases of so many nodes do not fit the values of epsilon."""
        # One value of either is for any number of the other.
        if 1 not in (nodes, self.epsilon.size) and nodes != self.epsilon.size:
            rule = f"has {self.epsilon.size} budgets, but the release has {nodes} nodes"
            raise InvalidInput("epsilon", None, rule, "give one budget, or one for each node")

    def check_within_budget(
        self, before: Spending, after: Spending, what: str, *, held: bool
    ) -> None:
        """Raise BudgetExceeded if a total passes its budget, or is no number.

        Parameters
        ----------
        before : Spending
            By the rows alone.
        after : Spending
            With the releases at hand, and all that runs in progress hold.
        what : str
            The releases at hand, for the message.
        held : bool
            True if runs in progress hold anything.

        Raises
        ------
        BudgetExceeded
        """
        least = float(np.min(self.epsilon))
        limits = self.epsilon
        if after.several:
            # Nobody knows at which nodes a row was, so the smallest budget binds all.
            limits = np.array(least)
        over = np.flatnonzero(~after.within(limits))
        if over.size:
            raise BudgetExceeded(
                _explain_refusal_at_node(int(over[0]), limits, before, after, what, held)
            )
        together = after.excess_of_person(least)
        if together is not None:
            where = f"a person with rows at {after.sites_per_row} sites"
            raise BudgetExceeded(
                f"epsilon={least:g}: {what} would bring {where} to {together:.6g}; {_REMEDY}"
            )


def _explain_refusal_at_node(
    node: int, limits: Array, before: Spending, after: Spending, what: str, held: bool
) -> str:
    """Explain why the releases at hand are refused at a node."""
    total = np.atleast_1d(after.per_node())
    if after.several:
        where = f"a row in {len(after.by_deal)} partitions"
        spent = before.total()
    else:
        where = f"node {node}"
        spent = _value_of_node(before.per_node(), node)
    now = f"{spent:.6g}"
    if held:
        now = f"{spent:.6g} spent, the rest reserved by runs in progress"
    budget = _value_of_node(limits, node)
    return (
        f"epsilon={budget:g}: {what} would bring {where} from {now} to "
        f"{_value_of_node(total, node):.6g}; "
        f"{_REMEDY}"
    )


def _value_of_node(values: Array, node: int) -> float:
    """Return the value of a node, where one value stands for all."""
    each = np.ravel(values)
    if each.size == 1:
        return float(each[0])
    return float(each[node])
