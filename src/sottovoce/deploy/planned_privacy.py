"""The privacy loss that a plan costs its sites, known before the run.

An *event* describes one release: its mechanism and noise, and which rows it reads.  This module
has the events that each site will charge to its ledger, and the privacy statement (guarantee in
words and numbers) about all of them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce

from ..errors import InvalidInput, UnknownEvent
from ..privacy.events import Event
from ..privacy.statement import Statement, either_list_statement
from .members import node_of_site
from .stages import Stage


@dataclass(frozen=True)
class PlannedPrivacy:
    """The planned events of a run, and the privacy statements about them.

    Parameters
    ----------
    run : str
    names : tuple of str
        Sites, in the order of the graph's nodes.
    stages : tuple of Stage
    demonstration : bool
        Whether the noise can be repeated, so that the run protects nothing.
    caveat : str or None
        A remark in every privacy statement of the plan on what the guarantee leaves out, such as
        that the schema itself was derived from the rows.
    """

    run: str
    names: tuple[str, ...]
    stages: tuple[Stage, ...]
    demonstration: bool
    caveat: str | None

    @cached_property
    def statement(self) -> Statement:
        """The guarantee of the whole run, which holds for every row of every site."""
        # A row is either trained on or held out, so only the releases of one stage read it.
        return reduce(either_list_statement, self.statements_by_rows)

    @cached_property
    def statements_by_rows(self) -> tuple[Statement, ...]:
        """The guarantee for the training rows, and for the held-out rows if there are any."""
        return tuple(stage.statement(self.demonstration, self.caveat) for stage in self.stages)

    def statement_at(self, name: str, simulated: bool) -> Statement:
        """State the guarantee of one site's planned releases, about its own rows."""
        node = node_of_site(self.names, name)
        parts = [stage.statement_for_site(node, simulated, self.caveat) for stage in self.stages]
        return reduce(either_list_statement, parts)

    def planned_events(self, node: int | None = None) -> tuple[Event, ...]:
        """Return all planned events in order, whatever the budget.

        Of the site `node`; by default as they are priced for all sites together.
        """
        return tuple(event for stage in self.stages for event in stage.planned(node))

    def events(self, name: str) -> tuple[Event, ...]:
        """Return the events that a site will charge, as far as the run's own budget allows.

        Raises :class:`InvalidInput` if the plan has no such site, or one of its events has no
        proved price.
        """
        if name not in self._events_by_site:
            node = node_of_site(self.names, name)
            try:
                self._events_by_site[name] = tuple(
                    event for stage in self.stages for event in stage.allowed_events(node)
                )
            except UnknownEvent as error:
                raise InvalidInput(
                    "plan", self.run, f"has no proved privacy loss: {error}", "write another plan"
                ) from None
        return self._events_by_site[name]

    @cached_property
    def _events_by_site(self) -> dict[str, tuple[Event, ...]]:
        """Events by site, filled by :meth:`events` when a site is asked for first."""
        return {}
