"""Sums over sites, of gradients, proximal steps and bounded statistics; nobody sees a single addend.

A site's addend and its share of the noise are whole numbers of steps of a public grid.  Their sum modulo ``2^64``
leaves the site masked (:mod:`sottovoce.network.net`); only the sum over all sites of an attempt is ever opened.

Guarantee
---------
Every attempt is the Gaussian mechanism of shift over sigma ``alpha`` for one row, against an adversary who sees all
messages and all that `colluders` of the sites know (``docs/privacy/sums.md``).  The sites of an attempt are known
before noise is drawn, so shares are as large as these need, and `alpha` is the same for all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from ..errors import InvalidInput
from ..privacy.events import Event, SummedGaussianMechanism, Unprotected
from ..problem.facts import Among, Facts
from ..util.typing import Array
from .base import Query
from .bounded import NoisyBounded
from .reach import length
from .statistic import NoisyValue, refused
from .sum_attempt import Attempt, SharedNoise
from .vault import Vault


def as_released(query: NoisyBounded, facts: Facts) -> NoisyBounded | Sum:
    """A query as a run with these facts releases it: itself, or the sum of all sites' statistics.  It has the price."""
    return Sum.of(query) if facts.summed else query


@dataclass(frozen=True)
class Sum:
    """A statistic of the rows of all sites, released in shares; a site weighs as much as it has rows.

    `what` is asked at a public point, the same at all sites; its `alpha` is for one row of all.
    """

    what: NoisyValue

    def __post_init__(self) -> None:
        if vars(type(self.what)).get("in_sums") is None:
            raise refused(self.what)

    @classmethod
    def of(cls, query: Query) -> Self:
        """The query's statistic as one sum over all sites; InvalidInput unless its class declares :attr:`in_sums`."""
        if not isinstance(query, NoisyValue):
            raise refused(query)
        return cls(query)

    @property
    def alpha(self) -> Array | None:
        """Shift over sigma of one row, against as many colluders as planned; None for no noise."""
        return self.what.alpha

    @property
    def statistic(self) -> NoisyValue:
        """The query whose answers are summed."""
        return self.what

    def at_shift(self, alpha: Array) -> Self:
        """The same sum at another shift over sigma."""
        return type(self)(self.what.at_shift(alpha))

    @property
    def source(self) -> str:
        return self.what.in_sums or self.what.source

    def proved_of_people(self) -> bool:
        """Whether a unit may have several rows."""
        return self.what.proved_of_people()

    def check(self, facts: Facts) -> None:
        length(self.what.start, "start")
        if facts.pure and self.alpha is not None:
            raise InvalidInput("delta", None, "noise on sums is Gaussian and has no pure price", "use delta=1e-5")
        SharedNoise(self.what, facts).check()
        self.what.check(facts.alike)

    def event(self, facts: Facts) -> Event:
        """The event of an attempt, the same for any sites that take part."""
        assert facts.rows is not None
        if self.alpha is None:
            return Unprotected(self.source, facts.n)
        shape, noise = facts.n.shape, SharedNoise(self.what, facts)
        return SummedGaussianMechanism(
            self.source, facts.relation, np.broadcast_to(self.alpha, shape),
            np.broadcast_to(noise.moved(Among.all(facts).rows), shape), self.what.entries(facts), facts.n_nodes,
            facts.participants, facts.colluders, facts.sites_per_row, noise.bits,
        )  # fmt: skip

    def stamp(self) -> bytes:
        return self.what.stamp()

    def blank(self, facts: Facts) -> Array:
        return self.what.blank(facts)

    def attempt(self, facts: Facts, among: Among) -> Attempt:
        """The sum as it is asked of those sites."""
        return Attempt(self.what, facts, among)

    def mean_spread(self, facts: Facts, among: Among) -> float:
        """Standard deviation of an entry of the mean that those sites open, from the facts of all nodes."""
        if self.alpha is None:
            return 0.0
        if among.sites < facts.n_nodes:
            return float(self.attempt(facts.node(0), among).total_spread.ravel()[0])
        return float(self.event(facts).spread()[0])

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:
        self.what.replay(vault, facts.alike, release)

    def at_once(self, vault: Vault, facts: Facts, release: int) -> Array:
        """The answer as if one site held all rows, with the noise of all shares and no grid, for rehearsals only."""
        mean = self.what.addend(vault, facts)
        if self.alpha is not None:
            shares = facts.n_nodes / (facts.n_nodes - facts.colluders)
            influence = SharedNoise(self.what, facts).influence(Among.all(facts).rows)
            scale = influence / self.alpha * math.sqrt(shares)
            mean = mean + scale * vault.noise.gaussian(mean.shape[-1], release, 1)
        return self.what.centred(mean, facts)
