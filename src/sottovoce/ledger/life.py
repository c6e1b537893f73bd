"""What a run takes of a lifetime budget, computed before there is a ledger.

A ledger outlives runs, so it computes all totals at one Renyi order, chosen for its whole budget
(:func:`sottovoce.privacy.accountants.at_one_order`), and what a run takes depends on that budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..errors import InvalidInput, UnknownEvent
from ..privacy.accountants import Accountant, lifetime_accountant, make_accountant
from ..privacy.conditions import pricing_events
from ..privacy.events import Event, GaussianMechanism
from ..privacy.gaussian import gaussian_mu
from ..privacy.statement import ceil_text
from ..util.plain import canonical_json
from ..util.typing import Any, Array
from .history import Tally

_TRIES = 50
"""Most steps of the search for the smallest budget that admits a run."""


def share_of_lifetime_budget(
    events: Iterable[Event], delta: float | None, budget: float | None
) -> dict[str, Any] | None:
    """Compute a run's share of the lifetime budget of a new ledger of a site.

    The ledger is one that ``sottovoce site init`` makes.

    Parameters
    ----------
    events : iterable of Event
        All releases of the run, in order.
    delta : float, optional
        Of the ledger; None for pure epsilon.
    budget : float, optional
        Lifetime epsilon of the ledger; None computes the smallest sufficient one alone.

    Returns
    -------
    dict or None
        See :meth:`LifetimeShare.to_dict`.

    Raises
    ------
    InvalidInput
        If the budget is infinite.
    """
    return LifetimeShare(events, "pure" if delta is None else "rdp", delta or 0.0).to_dict(budget)


def describe_example_run(accountant: str, budget: float, delta: float) -> str | None:
    """Describe what runs take of a new ledger, at the example of one Gaussian release.

    Parameters
    ----------
    accountant : {"pure", "zcdp", "rdp"}
    budget : float
        Lifetime epsilon.
    delta : float

    Returns
    -------
    str or None
        A sentence; None where a run takes its own epsilon, or the budget is infinite.
    """
    if accountant == "pure" or not np.isfinite(budget):
        return None
    epsilon = min(1.0, budget / 2.0)
    sigma = np.ones(1)
    sensitivity = sigma * gaussian_mu(epsilon, delta)
    release = GaussianMechanism("example", "replace-one", sigma, sensitivity, 1)
    share = LifetimeShare([release], accountant, delta).share_of_budget(budget)
    return (
        f"a run of epsilon {epsilon:g} takes {ceil_text(share.first)} of a lifetime budget of "
        f"{budget:g} if it is the first, and {ceil_text(share.later)} later: there is room for "
        f"{share.runs(budget)} such runs"
    )


class Taken(NamedTuple):
    """A run's share of a lifetime budget, as a ledger's first run and as any later one.

    Both are epsilons at the worst node.
    """

    first: float
    later: float

    def runs(self, budget: float) -> int:
        """Return how many such runs a ledger of this budget can pay for.

        InvalidInput if the budget is infinite, or a run costs nothing: any number fits then.
        """
        if np.isposinf(budget):
            rule = "must be finite to count the runs that it pays for"
            raise InvalidInput("budget", budget, rule, "leave it out, or give a finite epsilon")
        # Not "first > budget": NaN fits no budget.
        if not self.first <= budget:
            return 0
        if self.later <= 0.0:
            rule = "pays for any number of runs that cost nothing"
            raise InvalidInput("budget", budget, rule, "count runs that cost something")
        return 1 + int((budget - self.first) / self.later)


class LifetimeShare:
    """A run's share of lifetime budgets.

    Parameters
    ----------
    events : iterable of Event
        All that the run charges, in order.
    accountant : {"pure", "zcdp", "rdp"}
        The ledger's.
    delta : float
        The ledger's; 0 for pure epsilon.
    """

    def __init__(self, events: Iterable[Event], accountant: str, delta: float) -> None:
        texts = [(canonical_json(event.to_dict()), event) for event in pricing_events(events)]
        self._events = dict(texts)
        self._counts = Counter(text for text, _ in texts)
        self._accountant, self._delta = accountant, delta

    def share_of_budget(self, budget: float) -> Taken:
        """Return the run's share of a ledger with this budget.

        InvalidInput or UnknownEvent if no ledger can price the run.
        """
        order = lifetime_accountant(self._accountant, np.array([budget]), self._delta)
        # A later run pays no fixed part of the order, so it takes the difference
        # (docs/reference/ledger.md, "What a run takes of a lifetime budget").
        once, twice = self._total_of_repeats(order, 1), self._total_of_repeats(order, 2)
        later = np.inf
        # The difference of two infinities is no number.
        if np.all(np.isfinite(twice)):
            later = float(np.max(twice - once))
        return Taken(float(np.max(once)), later)

    def smallest_budget(self) -> float | None:
        """Return the smallest lifetime budget that admits the run; None if there is none.

        It is found by iteration from the run's epsilon at the best Renyi order: at any one order
        the run costs no less.
        """
        budget = float(np.max(self._total_of_repeats(make_accountant(self._accountant), 1)))
        for _ in range(_TRIES):
            if not 0.0 < budget < np.inf:
                break
            # The order depends on the budget, and what the run takes on the order: the least budget
            # is a fixed point.
            needed = self.share_of_budget(budget).first
            if needed <= budget:
                return budget
            budget = needed
        return None

    def to_dict(self, budget: float | None = None) -> dict[str, Any] | None:
        """Return the run's share as plain data.

        Parameters
        ----------
        budget : float, optional
            Lifetime epsilon, finite.

        Returns
        -------
        dict or None
            ``least`` is the smallest budget that admits the run.  With a `budget`, ``first`` and
            ``later`` are the run's share of it, and ``runs`` how many it pays for.  None if no
            ledger can price the run.

        Raises
        ------
        InvalidInput
            If the budget is infinite.
        """
        try:
            least = self.smallest_budget()
            if least is None:
                return None
            known = {"accountant": self._accountant, "delta": self._delta, "least": least}
            if budget is None:
                return known
            share = self.share_of_budget(budget)
            return known | {"budget": budget, "runs": share.runs(budget)} | share._asdict()
        except UnknownEvent:
            return None

    def _total_of_repeats(self, accountant: Accountant[Any], times: int) -> Array:
        """Return the epsilon of each node, (N,), if the run is made so many times."""
        counts = Counter({text: times * count for text, count in self._counts.items()})
        return Tally(accountant).epsilon(self._delta, self._events, counts)
