"""Stages of a plan: consecutive runs of the engine on one net, each on its own part of the rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ..algorithms import Recipe
from ..ledger.memory import Ledger
from ..privacy.events import Event
from ..privacy.statement import Statement
from ..privacy.statement_facts import Caveat
from ..problem.facts import Facts
from ..runs.pricing import Prepared, privacy_statement


@dataclass(frozen=True)
class Stage:
    """One run of a plan: its training, or a recipe.

    Parameters
    ----------
    prepared : Prepared
        Of all sites.
    before : int
        Exchanges of earlier stages.
    held : bool
        Whether it reads the held-out rows; else the others.
    shown : int
        Entries of a model, if the sites first send theirs to all in an exchange of its own; else 0.
    """

    prepared: Prepared
    before: int = 0
    held: bool = False
    shown: int = 0

    @property
    def recipe(self) -> Recipe | None:
        """The recipe; None for a training."""
        method = self.prepared.algorithm
        if not isinstance(method, Recipe):
            return None
        return method

    @property
    def facts(self) -> Facts:
        """Public facts of all sites, about the rows that the stage reads."""
        return self.prepared.facts

    @property
    def opening_widths(self) -> tuple[int, ...]:
        """Numbers that a site sends in each exchange before the first round.

        The mean of rows, if they are centred; without sums each site then shows all others the mean
        that it uses.
        """
        if self.shown:
            return (self.shown,)
        if self.prepared.recipe_before_method is None:
            return ()
        mean = self.prepared.recipe_before_method.releases_with_noise.entries_of_answers(self.facts)
        if self.facts.opens_only_sums:
            return mean
        return mean * 2

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Numbers that a site sends in each exchange."""
        if self.recipe is not None:
            return self.opening_widths + self.recipe.releases_with_noise.entries_of_answers(
                self.facts
            )
        return self.opening_widths + (self.facts.d,) * self.prepared.config.rounds

    @property
    def first(self) -> int:
        """The exchange before its first round."""
        return self.before + len(self.opening_widths)

    def planned(self, node: int | None = None) -> tuple[Event, ...]:
        """Return all events in order, of all sites or of one, whatever the budget."""
        return self.prepared.plan_ledger(node=node).rows

    def allowed_events(self, node: int) -> tuple[Event, ...]:
        """Return the events of a site as far as the run's own budget allows; of a recipe, all."""
        if self.recipe is not None:
            return self.planned(node)
        return self.prepared.affordable_events(node)

    def statement(self, simulated: bool, caveat: Caveat) -> Statement:
        """State the guarantee of the stage, for every site."""
        return privacy_statement(self.prepared, self.planned(), simulated=simulated, caveat=caveat)

    def statement_for_site(self, node: int, simulated: bool, caveat: Caveat) -> Statement:
        """State the guarantee of one site's part, about its own rows.

        Parameters
        ----------
        node : int
            The site's.
        simulated : bool
            Whether the noise can be repeated, so that the run protects nothing.
        caveat : Caveat
            What the guarantee takes for granted.

        Returns
        -------
        Statement
            Of the releases that the run's own budget allows; of a recipe, of all.
        """
        if self.recipe is not None:
            return privacy_statement(
                self.prepared, self.planned(node), simulated=simulated, caveat=caveat
            )
        book = self.prepared.ledger
        limits = Ledger(book.accountant, book.epsilon, book.delta)
        # about the rows of this one site, so a row stands at no other
        own = replace(self.prepared.config, sites_per_row=1)
        alone = replace(
            self.prepared, facts=self.facts.facts_of_node(node), config=own, ledger=limits
        )
        return privacy_statement(
            alone, self.allowed_events(node), simulated=simulated, caveat=caveat
        )
