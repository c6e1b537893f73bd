"""The account of a ledger in memory: what was spent, what is held, what a release would cost.

A charge is decided (:meth:`Account.check_affordable`) and written (:meth:`Account.write`) under one
lock.  *Held* is what runs in progress will still charge (:class:`Hold`).
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from ..errors import BudgetExceeded, InvalidInput, LedgerError
from ..privacy.accountants import Accountant
from ..privacy.conditions import Conditions
from ..privacy.events import Event, run_lengths, same_relation
from ..util.typing import Any, ArrayLike
from .book import Deal, RowBook, agreed_node_count
from .spending import Budget, Spending

STAYS = (
    "ledger: an in-memory ledger cannot be charged from another process or a saved model; "
    "nothing was drawn; use n_jobs=1, threads (joblib's 'threading') or a DurableLedger"
)

Planned = deque[tuple[Event, Event]]
"""Releases to come, in order, with the event that prices each."""


class Hold:
    """Releases that a run in progress will charge, held so that no other run takes their budget."""

    def __init__(self, deal: Deal, planned: Iterable[tuple[Event, Event]]) -> None:
        self.deal = deal
        self.left: Planned = deque(planned)


class Account:
    """Rows of one data set, what they cost, and the budget.

    Nothing is drawn here: a ledger charges, then draws.  Threads take turns by :attr:`lock`, under
    which every method is called that does not say otherwise.

    Parameters
    ----------
    accountant : Accountant
        Composes the prices of rows.
    epsilon : float or array (N,)
        Budget of every node; infinity records without limiting.
    delta : float
        0 for pure epsilon.
    sites_per_row : int
        At how many sites a person may have a row.

    Attributes
    ----------
    lock : RLock
        Held from the decision that a release is affordable until its row is written.
    book : RowBook
        The rows.
    spending : Spending
        What the rows cost; replaced as a whole, so that one look at it needs no lock.
    budget : Budget
    holds : list of Hold
        What runs in progress will still charge.
    conditions : dict
        By partition: the conditions on which prices of later rounds depend
        (:mod:`sottovoce.privacy.conditions`), of all releases that no :class:`Hold` announced.
    """

    def __init__(
        self, accountant: Accountant[Any], epsilon: ArrayLike, delta: float, sites_per_row: int
    ) -> None:
        self.lock = threading.RLock()
        self.book = RowBook()
        self.spending = Spending(accountant, delta, sites_per_row)
        self.budget = Budget(epsilon)
        self.holds: list[Hold] = []
        self.conditions: dict[Deal, Conditions] = {}
        self._expected: Planned = deque()
        self._process = os.getpid()

    def priced(self, events: Iterable[Event], deal: Deal) -> list[tuple[Event, Event]]:
        """Return events with the event that would price each, were they charged now in this order.

        Parameters
        ----------
        events : iterable of Event
        deal : bytes, optional
            Digest of the partition of their rows.

        Returns
        -------
        list of (Event, Event)
            Release and price; nothing is recorded.
        """
        conditions = self.conditions_of_deal(deal).copy()
        return [(event, conditions.charge_event(event)) for event in events]

    def check_affordable(self, priced: Sequence[Event], deal: Deal) -> Spending:
        """Return what is spent once releases are charged together, or refuse them.

        Parameters
        ----------
        priced : sequence of Event
            The event that prices each release.
        deal : bytes, optional
            Digest of the partition of their rows.

        Returns
        -------
        Spending
            Spending with these releases; nothing is recorded yet.

        Raises
        ------
        BudgetExceeded
            If that, with what runs in progress hold, passes a budget.
        InvalidInput
            If their relation or number of nodes does not agree with the rows.
        LedgerError
            In a process to which the account was copied by a fork.
        """
        _check_same_process(self._process)
        # Releases that were tested together were tested without this charge.
        self._expected.clear()
        _check_relation_and_nodes(self, priced, deal)
        after = self.spending_with(priced, deal)
        if self._is_always_affordable(after, deal):
            return after
        # What runs in progress hold counts as spent: they may draw it at any time.
        held = [(hold.deal, price, 1) for hold in self.holds for _, price in hold.left]
        with_holds = after
        if held:
            with_holds = after.after(held)
        what = f"a run of {len(priced)} releases"
        if len(priced) == 1:
            what = f"release {len(self.book) + 1}"
        self.budget.check_within_budget(self.spending, with_holds, what, held=bool(self.holds))
        return after

    def price_affordable_release(self, event: Event, deal: Deal) -> tuple[Event, Spending]:
        """Price one release, and return its price and the spending with it.

        Refused as by :meth:`check_affordable`.
        """
        price = self.conditions_of_deal(deal).pricing_event(event)
        _check_same_process(self._process)
        if self._take_expected_release(event, price, deal):
            return price, self.spending_with([price], deal)
        return price, self.check_affordable([price], deal)

    def expect(self, events: Sequence[Event]) -> None:
        """Test at once what a run will charge, in order.

        While the run charges these, and nobody else charges, no release is tested again.  The first
        releases of a run tell no more than all of them, so no test of theirs can fail.  If not all
        are affordable, nothing happens: every charge is tested, and the run ends where the budget
        does.
        """
        planned = self.priced(events, None)
        try:
            self.check_affordable([price for _, price in planned], None)
        except BudgetExceeded:
            return
        self._expected = deque(planned)

    def write(self, event: Event, deal: Deal, price: Event, after: Spending) -> None:
        """Append the row of one release that :meth:`check_affordable` has admitted.

        Called with :attr:`lock` held since the call of :meth:`check_affordable`.

        Parameters
        ----------
        event : Event
            The release.
        deal : bytes, optional
            Digest of the partition of rows over nodes; None if the caller vouches that it never
            changes.
        price : Event
            The event that the accountant prices in its place; equal to `event` unless a condition
            of its proof is broken (:mod:`sottovoce.privacy.conditions`).
        after : Spending
            What is spent with this row, as :meth:`check_affordable` returned it.
        """
        # First: an interrupt may leave too much spent, never too little.
        self.spending = after
        self.book.write(event, deal, price)

    def write_and_condition(self, event: Event, deal: Deal, price: Event, after: Spending) -> None:
        """Append the row of one release, on which the price of later rounds may depend.

        Parameters
        ----------
        event, deal, price, after
            See :meth:`write`.
        """
        self.write(event, deal, price, after)
        # Last: after an interrupt the next round is priced alone.
        self.conditions_of_deal(deal).charge_event(event)

    def take_over_affordable_row(self, event: Event) -> None:
        """Write a row that an earlier part of the same run found affordable."""
        price = self.conditions_of_deal(None).pricing_event(event)
        # A row that the run was expected to charge is expected no more.
        self._take_expected_release(event, price, None)
        self.write_and_condition(event, None, price, self.spending_with([price], None))

    def reprice_all_rows(self, accountant: Accountant[Any]) -> None:
        """Price all rows by another accountant from now on."""
        self._expected.clear()
        # From the events again: what one accountant composed cannot be turned into the currency of
        # another.
        nothing = replace(self.spending.without_releases(), accountant=accountant)
        self.spending = nothing.after((row.deal, row.priced, row.times) for row in self.book)

    def against(self, coalition: Collection[int]) -> float:
        """Return the epsilon of a person with no row at these sites, against them together.

        That is the epsilon of the worst nodes outside.  Sums over sites are priced against as many
        colluders as the coalition has sites, if their plan allowed fewer.  It takes the lock
        itself.

        Parameters
        ----------
        coalition : collection of int
            Sites, numbered from 0.

        Returns
        -------
        float

        Raises
        ------
        InvalidInput
            If there is no such site.
        """
        inside = set(coalition)
        with self.lock:
            most = max(self.book.nodes.values(), default=0)
            strange = [site for site in inside if not 0 <= site < most]
            if strange and self.book.nodes:
                rule = f"must be the number of a site, 0 to {most - 1}"
                raise InvalidInput("coalition", min(strange), rule, "use numbers of this range")
            outside = {
                deal: [site for site in range(nodes) if site not in inside]
                for deal, nodes in self.book.nodes.items()
            }
            return _spending_against_sites(self, len(inside)).among(outside).total()

    def copy(self) -> Account:
        """Return an independent copy, which holds what this one holds."""
        before = self.spending
        twin = Account(before.accountant, self.budget.epsilon, before.delta, before.sites_per_row)
        twin.book = self.book.copy()
        twin.spending = before
        twin.holds = list(self.holds)
        twin.conditions = {deal: conditions.copy() for deal, conditions in self.conditions.items()}
        return twin

    def conditions_of_deal(self, deal: Deal) -> Conditions:
        """Return the conditions of charges under a partition, by no run that holds it."""
        return self.conditions.setdefault(deal, Conditions(self.spending.sites_per_row))

    def spending_with(self, priced: Iterable[Event], deal: Deal) -> Spending:
        """Return the spending with further releases, given their prices; no budget is tested."""
        return self.spending.after((deal, price, count) for price, count in run_lengths(priced))

    def _is_always_affordable(self, after: Spending, deal: Deal) -> bool:
        """Return True if no budget can refuse the spending, whatever is held."""
        # A second deal may be refused by an accountant without sums over deals.
        if not self.budget.is_unlimited or self.spending.by_deal.keys() - {deal}:
            return False
        return deal in after.by_deal and after.accountant.never_exceeds_budget(after.by_deal[deal])

    def _take_expected_release(self, event: Event, price: Event, deal: Deal) -> bool:
        """Return True for the next of the releases that were tested together.

        Any other release ends the expectation: all that follow are tested one by one.
        """
        if self._expected and deal is None:
            known, its_price = self._expected[0]
            if known.terms == event.terms and its_price.terms == price.terms:
                self._expected.popleft()
                return True
        self._expected.clear()
        return False


def _check_same_process(process: int) -> None:
    """Refuse (LedgerError) a ledger that a fork copied into another process than its own."""
    if os.getpid() != process:
        raise LedgerError(STAYS)


def _spending_against_sites(account: Account, sites: int) -> Spending:
    """Return the spending against so many colluding sites."""
    # Events other than sums cost the same against any number of sites.
    if all(row.event.event_against_colluders(sites) is row.event for row in account.book):
        return account.spending
    return account.spending.without_releases().after(
        (row.deal, row.priced.event_against_colluders(sites), row.times) for row in account.book
    )


def _check_relation_and_nodes(account: Account, priced: Sequence[Event], deal: Deal) -> None:
    """Refuse releases whose relation or number of nodes is not that of the rows and budgets.

    Raises InvalidInput.
    """
    relation, nodes = account.book.relation, account.book.nodes.get(deal, 1)
    # Most runs repeat one event object: it is checked once.
    for price in {id(price): price for price in priced}.values():
        relation = same_relation(relation, price)
        nodes = agreed_node_count(nodes, price)
        account.budget.check_node_count(price.nodes)
