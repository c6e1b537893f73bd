"""The table of a plan's exchanges: for each, how many numbers a site sends, and who hears them.

An *exchange* is one message of every site, after which each has the messages that it hears.  Every
site and the hub compute the table from the plan, so it is agreed on before the first message, and a
message of another width, or above its norm cap, is refused.  Exchanges are numbered: 0 is the
greeting, 1 to :attr:`ExchangeTable.attempts` are the rows of the table, and the last models follow.

An *attempt* is a row of the table: a round of the training, or a query of a recipe.  Where sites
may be lost, signed rosters (lists of the sites that go on) take exchanges in between, so the number
of an attempt is that of its exchange only in a run over a graph that has lost nobody.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..network.graphs import Graph
from ..problem.facts import Among
from .asks import Asks
from .members import Member, node_of_site, row_counts_read
from .quorum import Quorum
from .stages import Stage

ANSWERS_CAP = 1e9
"""Norm cap of a recipe's answers in a run without sums.  Without noise their norm is at most 1;
the rest is room for noise.
"""


class Exchange(NamedTuple):
    """The width and norm cap that sites agreed on for one exchange.

    Parameters
    ----------
    width : int
        Numbers that a site sends.
    norm_cap : float
        The largest Euclidean norm that is allowed.
    heard_by_all : bool
        Whether all sites hear each other; else each hears its neighbours in the graph.
    held_out : bool
        Whether the numbers are computed from the held-out rows; else from the other rows.
    """

    width: int
    norm_cap: float
    heard_by_all: bool = False
    held_out: bool = False


@dataclass(frozen=True)
class ExchangeTable:
    """The exchanges of a plan in order.

    Parameters
    ----------
    sites : tuple of Member
    graph : Graph
    stages : tuple of Stage
    asks : Asks or None
        Which rows are held out.
    quorum : Quorum
        How many sites may be lost; each loss costs one more exchange, for the next roster.
    last_model : Exchange
        What a site sends when it sends its last model.
    features : int
        Encoded columns of a row.
    """

    sites: tuple[Member, ...]
    graph: Graph
    stages: tuple[Stage, ...]
    asks: Asks | None
    quorum: Quorum
    last_model: Exchange
    features: int

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the sites, in the order of the graph's nodes."""
        return tuple(site.name for site in self.sites)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Numbers that a site sends in each attempt; entry 0 is of attempt 1."""
        return tuple(width for stage in self.stages for width in stage.widths)

    @cached_property
    def rows(self) -> tuple[Exchange, ...]:
        """The exchange of each attempt; entry 0 is of attempt 1."""
        rows: list[Exchange] = []
        for stage in self.stages:
            rows.extend(_exchanges_of_stage(stage, self.last_model.norm_cap))
        return tuple(rows)

    @property
    def attempts(self) -> int:
        """Number of attempts: exchanges without greetings, rosters and last models.

        With sums this is also the number of events that a site is charged for.
        """
        return len(self.widths)

    @property
    def last(self) -> int:
        """The highest number of an exchange, greeting and last models included.

        Every roster takes an exchange: one for each site that may be lost, and with sums the first
        one.
        """
        rosters = self.quorum.most_lost_sites
        if self.stages[0].facts.opens_only_sums:
            rosters += 1
        return self.attempts + 1 + rosters

    @cached_property
    def widest_message(self) -> int:
        """The most numbers in a message."""
        return max(self.last_model.width, self.features, *self.widths)

    @cached_property
    def any_heard_by_all(self) -> bool:
        """True if there are exchanges in which all sites hear each other, whatever the graph."""
        return any(stage.opening_widths or stage.recipe is not None for stage in self.stages)

    def release(self, exchange: int) -> Exchange:
        """Return the width, norm cap and hearers of what a site may release in an exchange.

        Of a run that has lost nobody; beyond the last attempt they are those of a last model.
        """
        if 1 <= exchange <= self.attempts:
            return self.rows[exchange - 1]
        return self.last_model

    def neighbour_names(self, name: str) -> tuple[str, ...]:
        """Return a site's neighbours in the graph, in the order of the graph's nodes.

        Raises :class:`InvalidInput` if the plan has no such site.
        """
        return tuple(self.names[j] for j in self.graph.neighbours(node_of_site(self.names, name)))

    def names_heard_by(self, name: str, exchange: int) -> tuple[str, ...]:
        """Return the sites that a site hears in an exchange over a graph, in the nodes' order."""
        if self.release(exchange).heard_by_all:
            return tuple(other for other in self.names if other != name)
        return self.neighbour_names(name)

    def among(self, attempt: int, members: Collection[str]) -> Among:
        """Return the number of sites in an attempt and of their rows that it reads.

        `members` are the names of the sites that take part.
        """
        rows = row_counts_read(self.sites, self.asks, held_out=self.rows[attempt - 1].held_out)
        return Among(float(sum(rows[name] for name in members)), len(members))


def _exchanges_of_stage(stage: Stage, norm_cap: float) -> tuple[Exchange, ...]:
    """Return the exchanges of one stage, a training or a recipe, in order.

    `norm_cap` is the plan's, of messages and last models.  Answers of recipes have a norm cap of
    their own, and so have means of rows.
    """
    # A stage may begin with exchanges of its own, `opening_widths`: of models (`shown`) before an
    # evaluation, which have the cap of last models, or of the mean by which rows are centred.
    opening_cap = norm_cap
    if stage.opening_widths and not stage.shown:
        opening_cap = bound_mean_norm(stage)
    opening = [
        Exchange(width, opening_cap, heard_by_all=True, held_out=stage.held)
        for width in stage.opening_widths
    ]
    widths = stage.widths[len(opening) :]
    if stage.recipe is None:
        return (*opening, *[Exchange(width, norm_cap) for width in widths])
    answers = [
        Exchange(width, ANSWERS_CAP, heard_by_all=True, held_out=stage.held) for width in widths
    ]
    return (*opening, *answers)


def bound_mean_norm(stage: Stage) -> float:
    """Return a norm cap for a site's noisy part of the mean of rows, and for the mean itself.

    A site's part is ``(sum of its rows + noise) / rows of all sites``.  Rows have norm at most 1,
    and a vector of d standard normals has norm above ``sqrt(d) + 40`` with a probability below
    ``exp(-40^2 / 2) = exp(-800)``.  The mean of which all sites then inform each other is the sum
    of these parts, shrunk towards zero.
    """
    facts = stage.facts
    # standard deviation of the noise on each site's sum, (N,)
    noise = (
        np.broadcast_to(stage.planned()[0].noise_standard_deviation(), (facts.n_nodes,))
        * facts.n.ravel()
    )
    # 1.001 in place of 1 leaves room for rounding.
    return 1.001 + float(np.max(noise) / np.sum(facts.n)) * (math.sqrt(facts.d) + 40.0)
