"""Stages of a plan: consecutive runs of the engine on one network, each on a part of the rows.

A plan has a training or an inference, which read the training rows, and then possibly an
evaluation, which reads the held-out rows.  Inference and evaluation are *recipes*: fixed lists of
queries.  A stage knows its exchanges, its events (releases as the accountant sees them) and its
privacy statement.
"""

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
        Method, facts, noise and budget of the stage, for all sites.
    before : int
        Number of exchanges of earlier stages.
    held : bool
        Whether it reads the held-out rows; else the training rows.
    shown : int
        If the stage begins with an exchange in which the sites send their models to all: the number
        of entries of a model; else 0.
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
        """Numbers that a site sends in each exchange before the first round; often none.

        Either its model, or if rows are centred its part of their mean.  Without sums another
        exchange follows in which each site sends the mean that it uses, for comparison.
        """
        if self.shown:
            return (self.shown,)
        if self.prepared.recipe_before_method is None:
            return ()
        mean = self.prepared.recipe_before_method.releases_with_noise.entries_of_answers(self.facts)
        if self.facts.opens_only_sums:
            return mean
        # the tuple twice: the parts of the mean, then the mean itself
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
        """Number of the exchange before its first round, so that round k is exchange first + k."""
        return self.before + len(self.opening_widths)

    def planned(self, node: int | None = None) -> tuple[Event, ...]:
        """Return all events in order, of all sites or of the site `node`, whatever the budget."""
        return self.prepared.plan_ledger(node=node).rows

    def allowed_events(self, node: int) -> tuple[Event, ...]:
        """Return the events of a site up to the run's own budget; of a recipe, all events."""
        if self.recipe is not None:
            return self.planned(node)
        return self.prepared.affordable_events(node)

    def statement(self, simulated: bool, caveat: Caveat) -> Statement:
        """Return the privacy statement about the stage, which holds for every site.

        Arguments as of :meth:`statement_for_site`.
        """
        return privacy_statement(self.prepared, self.planned(), simulated=simulated, caveat=caveat)

    def statement_for_site(self, node: int, simulated: bool, caveat: Caveat) -> Statement:
        """Return the privacy statement about one site's releases and its own rows.

        Parameters
        ----------
        node : int
            The site's.
        simulated : bool
            Whether the noise can be repeated, so that the run protects nothing.
        caveat : Caveat
            What the guarantee leaves out, to be printed with it.

        Returns
        -------
        Statement
            About the releases that the run's own budget allows; of a recipe, about all.
        """
        if self.recipe is not None:
            return privacy_statement(
                self.prepared, self.planned(node), simulated=simulated, caveat=caveat
            )
        book = self.prepared.ledger
        limits = Ledger(book.accountant, book.epsilon, book.delta)
        # The statement is about the rows of this one site, so a row counts at one site only.
        own = replace(self.prepared.config, sites_per_row=1)
        alone = replace(
            self.prepared, facts=self.facts.facts_of_node(node), config=own, ledger=limits
        )
        return privacy_statement(
            alone, self.allowed_events(node), simulated=simulated, caveat=caveat
        )
