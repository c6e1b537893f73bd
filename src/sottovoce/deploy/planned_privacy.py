"""The privacy loss that a plan costs its sites.

The events that each will charge, and the statement about all of them together.
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
    """Events and statements of a plan, of which nothing is spent yet.

    Parameters
    ----------
    run : str
    names : tuple of str
        Sites, in the order of the graph's nodes.
    stages : tuple of Stage
    demonstration : bool
        Whether the noise can be repeated, so that the run protects nothing.
    caveat : str or None
        Of every privacy statement of the plan.
    """

    run: str
    names: tuple[str, ...]
    stages: tuple[Stage, ...]
    demonstration: bool
    caveat: str | None

    @cached_property
    def statement(self) -> Statement:
        """The guarantee of the whole run, for every site: of a row, whichever releases read it."""
        # A row is trained on or held out, never both, so it pays for one of the parts alone.
        return reduce(either_list_statement, self.statements_by_rows)

    @cached_property
    def statements_by_rows(self) -> tuple[Statement, ...]:
        """The same of the training rows, and of the held-out rows if there are any."""
        return tuple(stage.statement(self.demonstration, self.caveat) for stage in self.stages)

    def statement_at(self, name: str, simulated: bool) -> Statement:
        """State the guarantee of one site's planned releases, about its own rows."""
        node = node_of_site(self.names, name)
        parts = [stage.statement_for_site(node, simulated, self.caveat) for stage in self.stages]
        return reduce(either_list_statement, parts)

    def planned_events(self, node: int | None = None) -> tuple[Event, ...]:
        """Return all planned events in order, whatever the budget; of one node, or of all sites."""
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
        """Events of the sites that were asked for."""
        return {}
