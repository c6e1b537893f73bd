"""How many sites a run needs, and whether it may go on without some."""

from __future__ import annotations

from typing import NamedTuple


class Quorum(NamedTuple):
    """The number of sites that a run needs, and whether it may lose any.

    Parameters
    ----------
    sites : int
        All sites of the plan, N.
    least : int
        The fewest sites of a roster: K of a run of sums, over a graph more than half of all.
    may_lose_sites : bool
        Whether the run may go on without a site.  A run of sums may; over a graph it must not wait
        for ever, ask for nothing but the training, and train by a method that goes on over the
        graph of those that stay.
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
