"""How many sites a run needs, and whether it may go on without some (``Plan.quorum``)."""

from __future__ import annotations

from typing import NamedTuple


class Quorum(NamedTuple):
    """The number of sites that a run needs, and whether it may lose any.

    Parameters
    ----------
    sites : int
        Number of sites of the plan, N.
    least : int
        The smallest number of sites that may go on: in a run of sums the plan's K, over a graph
        more than half of all sites.
    may_lose_sites : bool
        Whether the run may go on without a site.  A run of sums may.  A run over a graph may if its
        plan limits the waits, only trains, and trains by a method that works on the graph of the
        remaining sites.
    """

    sites: int
    least: int
    may_lose_sites: bool

    @property
    def most_lost_sites(self) -> int:
        """The most sites that a run may lose; 0 if it needs all of them."""
        if not self.may_lose_sites:
            return 0
        return self.sites - self.least
