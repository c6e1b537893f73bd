"""The ledger: a row for every release, written before the release is drawn.

It belongs to the dataset, not to the run.  A crash after the row and before the noise over-counts; nothing can
under-count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import numpy as np

from ..errors import BudgetExceeded, InvalidInput, LedgerError
from ..typing import Any, Array, ArrayLike
from . import events as _events
from .accountants import Accountant, PureAccountant
from .events import Event, same_relation


def validate_target(epsilon: ArrayLike, delta: float | None) -> None:
    """Refuse an (epsilon, delta) that is no privacy target.

    Raises
    ------
    InvalidInput
        If any epsilon is not > 0 (infinity is allowed), or delta is given and not inside (0, 1).
    """
    try:
        values = np.asarray(epsilon).astype(float, casting="same_kind")
    except (TypeError, ValueError):
        raise InvalidInput("epsilon", epsilon, "must be a number", "use e.g. epsilon=1") from None
    if np.any(np.isnan(values)) or np.any(values <= 0):
        shown = epsilon if values.ndim == 0 else values.tolist()
        raise InvalidInput(
            "epsilon", shown, "must be > 0", "use e.g. epsilon=1, or epsilon=inf for a run without noise"
        )
    if delta is not None and not 0.0 < delta < 1.0:
        raise InvalidInput(
            "delta", delta, "must lie inside (0, 1)", "use e.g. delta=1e-5, or leave it out for pure epsilon"
        )


@dataclass
class Ledger:
    """An in-memory ledger.

    Parameters
    ----------
    accountant : Accountant
    epsilon : float or array (N,)
        Budget of every node; infinity records without limiting.
    delta : float
        0 for pure epsilon.
    sites_per_row : int
        At how many sites a person may have a row.
    """

    accountant: Accountant[Any] = field(default_factory=PureAccountant)
    epsilon: ArrayLike = np.inf
    delta: float = 0.0
    sites_per_row: int = 1

    def __post_init__(self) -> None:
        validate_target(self.epsilon, self.delta or None)
        self._rows: list[Event] = []
        self._spent = self.accountant.nothing()
        self._relation: str | None = None

    def __deepcopy__(self, memo: object) -> Ledger:
        return self

    @property
    def rows(self) -> tuple[Event, ...]:
        """All events so far, in the order of their charges."""
        return tuple(self._rows)

    def charge(self, event: Event) -> None:
        """Write `event` down, or refuse it.

        Raises
        ------
        BudgetExceeded
            If any node's total would pass its budget.  The ledger is unchanged.
        UnknownEvent
            If the accountant cannot price it.
        InvalidInput
            If it is under another relation than the events before it.
        """
        relation = same_relation(self._relation, event)
        after = self.accountant.add(self._spent, event)
        budgets = np.asarray(self.epsilon, dtype=float)
        fits = np.atleast_1d(self.accountant.within(after, self.delta, budgets))
        least = float(np.min(budgets))
        if self.sites_per_row > 1 and np.all(fits) and np.isfinite(least):
            together = self.accountant.network(after, self.delta, self.sites_per_row)
            if not together <= least:
                raise BudgetExceeded(
                    f"epsilon={least:g}: release {len(self._rows) + 1} would bring a person with rows at "
                    f"{self.sites_per_row} sites to {together:.6g}; nothing was drawn; raise the budget"
                )
        over = np.flatnonzero(~fits)  # NaN is refused too
        if over.size:
            node = int(over[0])
            total = np.atleast_1d(self.accountant.epsilon(after, self.delta))
            budget = float(np.broadcast_to(budgets, total.shape)[node])
            spent = float(np.broadcast_to(self.per_node(), total.shape)[node])
            raise BudgetExceeded(
                f"epsilon={budget:g}: release {len(self._rows) + 1} would bring node {node} from {spent:.6g} to "
                f"{total[node]:.6g}; nothing was drawn; raise the budget or lower the noise's price"
            )
        self._rows.append(event)
        self._spent, self._relation = after, relation

    def copy(self) -> Ledger:
        """The same rows and budget, to try charges on."""
        twin = replace(self)
        twin._rows, twin._spent, twin._relation = list(self._rows), self._spent, self._relation
        return twin

    def once(self, event: Event, draw: Callable[[], bytes]) -> bytes:
        """Charge `event`, and only then draw the release that it describes."""
        self.charge(event)
        return draw()

    def per_node(self) -> Array:
        """Epsilon spent by each node, shape (N,); shape () before the first event."""
        return self.accountant.epsilon(self._spent, self.delta)

    def total(self) -> float:
        """Epsilon of the whole network: the worst node if rows are disjoint over sites, else the worst set of nodes."""
        if self.sites_per_row == 1:
            return float(np.max(self.per_node()))
        return self.accountant.network(self._spent, self.delta, self.sites_per_row)

    def against(self, coalition: Collection[int]) -> float:
        """Epsilon of the rows of all other sites, against these sites together: the worst node outside."""
        per_node = np.atleast_1d(self.per_node())
        return float(np.max(np.delete(per_node, list(coalition)), initial=0.0))

    def report(self) -> dict[str, float]:
        """The network's epsilon by every notion that the accountant knows."""
        return self.accountant.report(self._spent, self.delta, self.sites_per_row)

    def claims(self) -> Array | None:
        """What the paper claims for the same run, per node, or None where it claims nothing."""
        rhos = [getattr(event, "claimed_rho", None) for event in self._rows]
        sums = [rho for rho in rhos if rho is not None]
        if sums and len(sums) == len(rhos) and self.delta > 0:  # 004, Theorem 3.3
            rho = np.sum(sums, axis=0)
            return np.asarray(rho + 2.0 * np.sqrt(rho * np.log(1.0 / self.delta)))
        claims = [getattr(event, "claimed", None) for event in self._rows]
        known = [claim for claim in claims if claim is not None]
        return np.asarray(np.sum(known, axis=0)) if known and len(known) == len(claims) else None

    def claimed(self) -> float | None:
        """The largest of :meth:`claims`."""
        claims = self.claims()
        return None if claims is None else float(np.max(claims))

    def to_list(self) -> list[dict[str, Any]]:
        """Rows as plain data."""
        return [event.to_dict() for event in self._rows]

    def restore(self, rows: list[dict[str, Any]]) -> None:
        """Take over rows written by an earlier part of the same run (they were allowed then)."""
        for row in rows:
            event = _events.from_dict(row)
            self._relation = same_relation(self._relation, event)
            self._spent = self.accountant.add(self._spent, event)
            self._rows.append(event)


@dataclass
class Joint:
    """A run's own ledger inside one that several runs share: both are charged before a draw, or neither.

    Parameters
    ----------
    own, shared : Ledger
    """

    own: Ledger
    shared: Ledger

    @property
    def rows(self) -> tuple[Event, ...]:
        """Events of this run."""
        return self.own.rows

    def charge(self, event: Event) -> None:
        """Charge both, or neither."""
        self.own.copy().charge(event)
        self.shared.charge(event)
        self.own.charge(event)

    def once(self, event: Event, draw: Callable[[], bytes]) -> bytes:
        """Charge, and only then draw."""
        self.charge(event)
        return draw()

    def to_list(self) -> list[dict[str, Any]]:
        """This run's rows as plain data."""
        return self.own.to_list()

    def restore(self, rows: list[dict[str, Any]]) -> None:
        """Not possible: whether the shared ledger holds these rows cannot be known."""
        raise LedgerError("ledger: a ledger in memory cannot go on from a checkpoint; use a ledger on disk")
