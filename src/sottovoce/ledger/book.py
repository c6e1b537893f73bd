"""The rows of a ledger in memory: each a release, under the partition that it was charged for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..errors import InvalidInput
from ..privacy.events import Event, same_relation

Deal = bytes | None
"""Digest of a partition: which row of data is at which node.  None if the caller vouches that all
charges with None are of the same partition."""


class ChargedRow(NamedTuple):
    """A row that stands for equal releases, one after the other under one partition.

    Parameters
    ----------
    event : Event
        Each of the releases.
    deal : bytes, optional
        Digest of the partition.
    priced : Event
        The event that prices each of them.
    times : int
        How many they are.
    """

    event: Event
    deal: Deal
    priced: Event
    times: int


class RowBook:
    """Rows in the order of their charges.

    Attributes
    ----------
    relation : str, optional
        The neighbouring relation of all rows; None before the first that has one.
    nodes : dict
        Number of nodes of each deal's rows.
    """

    def __init__(self) -> None:
        self.relation: str | None = None
        self.nodes: dict[Deal, int] = {}
        self._rows: list[ChargedRow] = []
        self._releases = 0

    def __len__(self) -> int:
        """Return the number of releases."""
        return self._releases

    def __iter__(self) -> Iterator[ChargedRow]:
        return iter(self._rows)

    @property
    def events(self) -> tuple[Event, ...]:
        """An event for each release."""
        return tuple(row.event for row in self._rows for _ in range(row.times))

    def write(self, event: Event, deal: Deal, priced: Event) -> None:
        """Append the row of one release; equal rows that follow one another share one entry.

        Parameters
        ----------
        event : Event
            The release, whose relation and number of nodes agree with the rows so far.
        deal : bytes, optional
            Digest of the partition of rows over nodes.
        priced : Event
            The event that prices it.
        """
        self.relation = same_relation(self.relation, event)
        self.nodes[deal] = max(self.nodes.get(deal, 1), event.nodes)
        last = self._rows[-1] if self._rows else None
        if last is not None and _continues_row(last, event, deal, priced):
            self._rows[-1] = last._replace(times=last.times + 1)
        else:
            self._rows.append(ChargedRow(event, deal, priced, 1))
        self._releases += 1

    def copy(self) -> RowBook:
        """Return an independent copy."""
        twin = RowBook()
        twin.relation = self.relation
        twin.nodes = dict(self.nodes)
        twin._rows = list(self._rows)
        twin._releases = self._releases
        return twin


def agreed_node_count(nodes: int, event: Event) -> int:
    """Return the number of nodes of a partition once `event` is added to its `nodes`.

    1 stands for any number.  InvalidInput if both numbers are larger and differ.
    """
    if 1 not in (event.nodes, nodes) and event.nodes != nodes:
        rule = f"must be {nodes}, as in the earlier releases of these rows"
        raise InvalidInput("nodes", event.nodes, rule, "use a separate ledger for each network")
    return max(nodes, event.nodes)


def _continues_row(row: ChargedRow, event: Event, deal: Deal, priced: Event) -> bool:
    """Return True if a release has the same terms, price and partition as those of a row."""
    if row.deal != deal:
        return False
    return row.event.terms == event.terms and row.priced.terms == priced.terms
