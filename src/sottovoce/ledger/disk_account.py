"""The account of a ledger on disk: what was spent, what is held, and what a run would cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from ..errors import BudgetExceeded, InvalidInput
from ..privacy.conditions import pricing_events
from ..privacy.events import Event, same_relation
from ..util.plain import canonical_json
from ..util.typing import Array
from .file import ChainFile
from .history import History
from .identity import RowsIdentity


class DiskAccount:
    """Totals of the rows and reservations in a file, compared with its lifetime budget.

    Attributes
    ----------
    ceiling : float
        Epsilon that all runs together may reach here, if it is below the budget in the file, which
        never changes; infinite for none.
    """

    def __init__(self, file: ChainFile[History], identity: RowsIdentity) -> None:
        self._file, self._identity = file, identity
        self.ceiling = float("inf")

    def spent(self) -> Array:
        """Return the epsilon of each node by the rows, (N,)."""
        with self._file.transaction("DEFERRED") as state:
            return state.epsilon_per_node()

    def committed_epsilon(self) -> Array:
        """Return the epsilon of each node that is spent or reserved by open runs, (N,)."""
        with self._file.transaction("DEFERRED") as state:
            return state.epsilon_per_node(state.held())

    def epsilon_added_by_run(self, events: Sequence[Event]) -> Array:
        """Return what a run would add to each node's epsilon, (N,), without reserving it.

        Refused as by :meth:`sottovoce.ledger.durable.DurableLedger.reserve`.
        """
        what = f"a run of {len(events)} releases"
        with self._file.transaction("DEFERRED") as state:
            return self.check_affordable(state, pricing_events(events), what, "reserved")

    def check_affordable(
        self, state: History, priced: Iterable[Event], what: str, undone: str
    ) -> Array:
        """Return what releases add to each node's epsilon, or refuse them; inside a transaction.

        Parameters
        ----------
        state : History
            Of the transaction.
        priced : iterable of Event
            What prices each of them.
        what, undone : str
            The releases, and what was not done with them, for the message.

        Returns
        -------
        array (N,)
            Epsilon beyond what is spent and held already.

        Raises
        ------
        BudgetExceeded
            If what is spent, what open runs hold and these together pass a node's budget.
        InvalidInput
            If the relation or the number of nodes is not the ledger's.
        LedgerMismatch
            If the ledger is tied to rows that were not shown.
        """
        self._identity.check_rows_shown(state)
        counts, events = _count_by_text(state, priced)
        held = state.held()
        after = _broadcast_to_nodes(state, state.epsilon_per_node(held + counts, events))
        spent = _broadcast_to_nodes(state, state.epsilon_per_node())
        committed = _broadcast_to_nodes(state, state.epsilon_per_node(held))
        limits = np.minimum(state.epsilon, self.ceiling)
        # Not "after > epsilon": NaN is over, too.
        over = np.flatnonzero(~(after <= limits))
        if over.size:
            node = int(over[0])
            where = f"node {node}" if state.epsilon.size > 1 else "these rows"
            now, remedy = "spent", "plan a smaller run"
            if held:
                now = f"{spent[node]:.6g} spent, the rest reserved by open runs"
                remedy += ", or close abandoned runs"
            whose = "the ledger's budget"
            if limits[node] < state.epsilon[node]:
                whose = "the ceiling that this site set itself"
            raise BudgetExceeded(
                f"epsilon={limits[node]:g}: {what} would bring {where} from "
                f"{committed[node]:.6g} ({now}) to {after[node]:.6g}, above {whose}; "
                f"nothing was {undone}; {remedy}"
            )
        return after - committed


def _count_by_text(
    state: History, priced: Iterable[Event]
) -> tuple[Counter[str], dict[str, Event]]:
    """Count pricing events by canonical text, and return the event of each text, too.

    InvalidInput for an event of another relation or number of nodes than the ledger's.
    """
    relation = state.relation
    counts, events = Counter[str](), dict[str, Event]()
    for event in priced:
        text = canonical_json(event.to_dict())
        counts[text] += 1
        if text in events:
            continue
        events[text] = event
        relation = same_relation(relation, event)
        shape = state.alone(text, event).shape
        if shape not in ((), (1,), state.epsilon.shape):
            rule = f"must have a price for each of the {state.epsilon.size} nodes"
            raise InvalidInput("event", shape, rule, "plan as many nodes as the ledger's n_nodes")
    return counts, events


def _broadcast_to_nodes(state: History, price: Array) -> Array:
    """Return a price for each node of the ledger, (N,)."""
    return np.broadcast_to(price, state.epsilon.shape)
