"""Totals that every ledger computes from its rows.

The three kinds of ledger are in memory (:class:`.memory.Ledger`), on disk
(:class:`.durable.DurableLedger`), and one run of a ledger on disk (:class:`.run.Run`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

import numpy as np

from ..privacy.accountants import Accountant
from ..privacy.events import Event
from ..util.typing import Any, Array
from .claims import papers_claimed_epsilon


class Readings(ABC):
    """Interface of all ledgers: the rows, and the totals that follow from them.

    Attributes
    ----------
    accountant : Accountant
        Prices the rows.
    delta : float
        0 for pure epsilon.
    """

    accountant: Accountant[Any]
    delta: float

    @property
    @abstractmethod
    def rows(self) -> tuple[Event, ...]:
        """Events, in the order of their charges."""

    @abstractmethod
    def per_node(self) -> Array:
        """Return the epsilon spent by each node.

        Returns
        -------
        array (N,)
            Shape () before the first event.
        """

    def total(self) -> float:
        """Return the epsilon of the whole network: that of the worst node.

        Rows are disjoint over sites.
        """
        return float(np.max(self.per_node()))

    def claims(self) -> Array | None:
        """Return the epsilon that the papers claim for the same rows, per node.

        None if a paper claims nothing for one of them.
        """
        return papers_claimed_epsilon(self.rows, self.delta)

    def claimed(self) -> float | None:
        """Return the largest of :meth:`claims`."""
        claims = self.claims()
        if claims is None:
            return None
        return float(np.max(claims))

    def to_list(self) -> list[dict[str, Any]]:
        """Return rows as plain data."""
        return [event.to_dict() for event in self.rows]


class NeverCopied:
    """Base of ledgers whose copy is the ledger itself: what a copy is charged would be lost."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self
