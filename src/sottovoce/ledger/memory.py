"""The ledger in memory: a row for every release, written before the release is drawn.

It belongs to the data set, not to the run.  A crash between the row and the noise over-counts;
nothing can under-count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np

from ..errors import InvalidInput, LedgerError
from ..privacy.accountants import Accountant, at_one_order, lifetime_accountant
from ..privacy.events import Event, from_dict
from ..util.typing import Any, Array, ArrayLike
from .account import STAYS, Account
from .readings import NeverCopied, Readings


def validate_target(epsilon: ArrayLike, delta: float | None) -> None:
    """Check a target epsilon and delta.

    Refuses (InvalidInput) an epsilon that is not > 0 (infinity is allowed), or a delta outside (0,
    1).
    """
    # same_kind: a text that reads as a number is none.
    try:
        values = np.asarray(epsilon).astype(float, casting="same_kind")
    except (TypeError, ValueError):
        raise InvalidInput("epsilon", epsilon, "must be a number", "use e.g. epsilon=1") from None
    if np.any(np.isnan(values)) or np.any(values <= 0):
        shown = epsilon if values.ndim == 0 else values.tolist()
        remedy = "use e.g. epsilon=1, or epsilon=inf for a run without noise"
        raise InvalidInput("epsilon", shown, "must be > 0", remedy)
    if delta is not None and not 0.0 < delta < 1.0:
        remedy = "use e.g. delta=1e-5, or leave delta out for pure epsilon"
        raise InvalidInput("delta", delta, "must lie inside (0, 1)", remedy)


class Ledger(NeverCopied, Readings):
    """An in-memory ledger of one data set.

    It is never copied: clones of an estimator share its ledger.

    Parameters
    ----------
    accountant : Accountant or str
        A name is passed to :func:`sottovoce.privacy.accountants.lifetime_accountant`: its totals
        hold for releases that are chosen in view of earlier ones.  An accountant is used as it is,
        for one run whose releases are fixed beforehand.
    epsilon : float or array (N,)
        Budget of every node; infinity records without limiting.
    delta : float
        0 for pure epsilon.
    sites_per_row : int
        At how many sites a person may have a row.

    Attributes
    ----------
    account : sottovoce.ledger.account.Account
        Rows with their prices, what was spent under each deal, and what a coalition of sites sees
        of it (:meth:`sottovoce.ledger.account.Account.against`).

    Notes
    -----
    *Deals.* Charges with the same `deal` (a digest, or None if the caller vouches for it) concern
    the same rows at the same nodes, and add up node by node.  With several deals nobody knows at
    which nodes a row was, and the total is the sum over deals of the worst node (of the
    `sites_per_row` worst nodes together): spending is an array of sums, and in no deal can a row
    have cost more (``docs/reference/ledger.md``).  Accountants without such sums refuse a second
    deal.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce import ConsensusClassifier, Ledger
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> ledger = Ledger("zcdp", epsilon=3.0, delta=1e-5)
    >>> model = ConsensusClassifier(
    ...     "momentum", rounds=10, data_norm=3.0, ledger=ledger, random_state=0
    ... )
    >>> bool(model.fit(X, X[:, 0] > 0).privacy_spent_["ledger"]["spent"] <= ledger.epsilon)
    True
    """

    def __init__(
        self,
        accountant: Accountant[Any] | str = "pure",
        epsilon: ArrayLike = np.inf,
        delta: float = 0.0,
        sites_per_row: int = 1,
    ) -> None:
        validate_target(epsilon, delta or None)
        if isinstance(accountant, str):
            accountant = lifetime_accountant(accountant, np.asarray(epsilon, dtype=float), delta)
        if not isinstance(sites_per_row, int | np.integer) or sites_per_row < 1:
            rule = "must be a whole number, at least 1"
            raise InvalidInput("sites_per_row", sites_per_row, rule, "use 1")
        self.accountant: Accountant[Any] = accountant
        self.epsilon, self.delta, self.sites_per_row = epsilon, delta, int(sites_per_row)
        self.account = Account(accountant, epsilon, delta, self.sites_per_row)
        self._trial = False

    def __repr__(self) -> str:
        values = (
            f"{self.accountant.label!r}, epsilon={np.asarray(self.epsilon).tolist()}, "
            f"delta={self.delta:g}"
        )
        return f"Ledger({values}, sites_per_row={self.sites_per_row})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _Elsewhere, ()

    @property
    def rows(self) -> tuple[Event, ...]:
        """All events so far, in the order of their charges."""
        return self.account.book.events

    def record_event(self, event: Event, *, deal: bytes | None = None, count: int = 1) -> None:
        """Record a release, or with a `count` that many equal ones, or refuse all of them.

        An event out of the conditions of its proof is charged what it costs then
        (:mod:`sottovoce.privacy.conditions`).

        Parameters
        ----------
        event : Event
            The release, which is drawn after this returns.
        deal : bytes, optional
            Digest of the partition of rows over nodes; None if the caller vouches that it is that
            of all charges with None.
        count : int
            At least 1.

        Raises
        ------
        BudgetExceeded
            If any node's total would pass its budget.  Nothing is recorded.
        UnknownEvent
            If the accountant cannot price it.
        InvalidInput
            If its relation, or its number of nodes, is not that of the events before it.
        """
        if not isinstance(count, int | np.integer) or count < 1:
            raise InvalidInput("count", count, "must be a whole number, at least 1", "use 1")
        account = self.account
        with account.lock:
            if count == 1:
                price, after = account.price_affordable_release(event, deal)
                account.write_and_condition(event, deal, price, after)
                return
            # All of them are afforded before the first is written.
            planned = account.priced([event] * count, deal)
            account.check_affordable([price for _, price in planned], deal)
            for _, price in planned:
                account.write_and_condition(
                    event, deal, price, account.spending_with([price], deal)
                )

    def charge_all(self, events: Sequence[Event], times: int = 1) -> None:
        """Record releases, in order and `times` in a row, or none of them.

        What is spent is the same to the last bit as if they were charged one by one.

        Parameters
        ----------
        events : sequence of Event
        times : int
            At least 1.

        Raises
        ------
        BudgetExceeded, UnknownEvent
            As by :meth:`record_event`.
        InvalidInput
            If `times` is no whole number, at least 1.
        """
        if not isinstance(times, int | np.integer) or isinstance(times, bool) or times < 1:
            raise InvalidInput("times", times, "must be a whole number, at least 1", "use 1")
        account = self.account
        with account.lock:
            conditions = account.conditions_of_deal(None).copy()
            # A later time may cost more than the first, whose rounds may have followed rounds
            # charged before.
            prices = conditions.charge_repeatedly(events, times)
            planned = list(zip([*events] * times, prices, strict=True))
            after = account.check_affordable([price for _, price in planned], None)
            for event, price in planned:
                account.write(event, None, price, after)
            account.conditions[None] = conditions

    def expect(self, events: Sequence[Event]) -> None:
        """Test at once what a run will charge, in order.

        See :meth:`sottovoce.ledger.account.Account.expect`.
        """
        with self.account.lock:
            self.account.expect(events)

    def settle(self) -> None:
        """Fix the order at which epsilon is read, if the accountant has orders.

        Later runs will be chosen in view of earlier ones.  See
        :func:`sottovoce.privacy.accountants.at_one_order`; what was spent is shown as no less.
        """
        with self.account.lock:
            budget = np.asarray(self.epsilon, dtype=float)
            chosen = at_one_order(self.accountant, budget, self.delta)
            if chosen is not self.accountant:
                self.account.reprice_all_rows(chosen)
                self.accountant = chosen

    def trial(self) -> Ledger:
        """Return a copy to try out charges, which accepts no release."""
        with self.account.lock:
            twin = Ledger(self.accountant, self.epsilon, self.delta, self.sites_per_row)
            twin.account = self.account.copy()
            twin._trial = True
            return twin

    def charge_once(self, event: Event, draw: Callable[[], bytes]) -> bytes:
        """Charge a release, and only then draw it.

        Parameters
        ----------
        event : Event
        draw : callable
            Draws the release, and returns its bytes; not called if `event` is refused.

        Returns
        -------
        bytes
            What `draw` returned.

        Raises
        ------
        BudgetExceeded, UnknownEvent, InvalidInput
            As by :meth:`record_event`; nothing was drawn.
        LedgerError
            If this is the :meth:`trial` of another ledger.
        """
        refuse_draw_on_trial(self)
        self.record_event(event)
        return draw()

    def per_node(self) -> Array:
        """Return the epsilon spent by each node.

        Returns
        -------
        array (N,)
            Shape () before the first event, and (1,) after several deals.
        """
        return self.account.spending.per_node()

    def total(self) -> float:
        """Return the epsilon of the whole network.

        That of the worst node, or of the worst `sites_per_row` nodes together.
        """
        return self.account.spending.total()

    def report(self) -> dict[str, float]:
        """Return the network's epsilon by every notion that the accountant knows."""
        return self.account.spending.report()

    def claims(self) -> Array | None:
        """Return the paper's claim for the same run, per node; None where it claims nothing."""
        # No paper deals rows anew.
        if self.account.spending.several:
            return None
        return super().claims()

    def restore(self, rows: list[dict[str, Any]]) -> None:
        """Take over rows of an earlier part of the same run.

        They were checked against the budget then.
        """
        with self.account.lock:
            for row in rows:
                self.account.take_over_affordable_row(from_dict(row))


def refuse_draw_on_trial(ledger: Ledger) -> None:
    """Raise LedgerError for the trial of another ledger, on which nothing may be drawn."""
    if ledger._trial:
        raise LedgerError(
            "ledger: nothing may be drawn on the trial() of a ledger; nothing was drawn; "
            "use the ledger itself"
        )


class _Elsewhere(Ledger):
    """Stands for a ledger in memory in another process or a saved model, and refuses every charge.

    A refusal to pickle would be less clear: joblib would only say that a task cannot be pickled.
    """

    def __init__(self) -> None:
        pass

    def __repr__(self) -> str:
        return "Ledger(of another process)"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__") or name not in vars(Ledger()):
            raise AttributeError(name)
        raise LedgerError(STAYS)
