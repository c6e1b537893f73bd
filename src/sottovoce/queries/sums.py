"""Sums over sites by secure aggregation: gradients, proximal steps and bounded statistics.

Nobody sees a single addend.  A site's addend and its share of the noise are whole numbers of steps
of a public grid.  Their sum modulo ``2^64`` leaves the site masked (:mod:`sottovoce.network.net`);
only the sum over all sites of an attempt is ever opened.

Guarantee
---------
Every attempt is the Gaussian mechanism of sensitivity over sigma ``alpha`` for one row, against an
adversary who sees all messages and all that `colluders` of the sites know
(``docs/privacy/sums.md``).  The sites of an attempt are known before noise is drawn, so shares are
as large as these need, and `alpha` is the same for all.
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
from .reach import public_vector_norm
from .statistic import NoisyValue, no_sum_error
from .sum_attempt import Attempt, SharedNoise
from .vault import Vault


def query_for_release(query: NoisyBounded, facts: Facts) -> NoisyBounded | Sum:
    """Return the query by which a run with these facts releases a statistic.

    It is the query itself under local trust, and the sum of all sites' statistics where only sums
    are opened.  Either has the price of its own event.
    """
    if facts.opens_only_sums:
        return Sum.sum_of_query(query)
    return query


@dataclass(frozen=True)
class Sum:
    """The mean of a statistic over the rows of all sites, released by secure aggregation.

    Each site sends a masked update; it weighs as much as it has rows.

    Parameters
    ----------
    what : NoisyValue
        The statistic, at a public point that is the same at all sites.  Its `alpha` is sensitivity
        over sigma for one row of all sites.

    Guarantee
    ---------
    Every attempt is the Gaussian mechanism of sensitivity over sigma ``alpha`` for one row, against
    an adversary who sees all messages and what `colluders` of the sites know; it is priced by
    :class:`~sottovoce.privacy.events.SummedGaussianMechanism` (docs/privacy/sums.md).
    """

    what: NoisyValue

    def __post_init__(self) -> None:
        if vars(type(self.what)).get("in_sums") is None:
            raise no_sum_error(self.what)

    @classmethod
    def sum_of_query(cls, query: Query) -> Self:
        """Return the query's statistic as one sum over all sites.

        Raises
        ------
        InvalidInput
            If the query's class does not declare :attr:`NoisyValue.in_sums`.
        """
        if not isinstance(query, NoisyValue):
            raise no_sum_error(query)
        return cls(query)

    @property
    def alpha(self) -> Array | None:
        """Sensitivity over sigma for one row, against the planned colluders; None for no noise."""
        return self.what.alpha

    @property
    def statistic(self) -> NoisyValue:
        """The query whose answers are summed."""
        return self.what

    def with_noise_ratio(self, alpha: Array) -> Self:
        """Return the same sum with another ratio of sensitivity to sigma."""
        return type(self)(self.what.with_noise_ratio(alpha))

    @property
    def source(self) -> str:
        return self.what.in_sums or self.what.source

    def proved_of_people(self) -> bool:
        """Return whether the statistic is proved for units of several rows."""
        return self.what.proved_of_people()

    def check(self, facts: Facts) -> None:
        """Check, before the charge, that the sum has a price and fits into 64-bit words.

        Raises
        ------
        InvalidInput
            If public vectors are not finite, if every price must be pure, if `alpha` differs by
            site, or if rows or noise do not fit into sums of 64-bit words.
        """
        public_vector_norm(self.what.start, "start")
        if facts.pure and self.alpha is not None:
            raise InvalidInput(
                "delta",
                None,
                "must be > 0, because Gaussian noise on sums has no pure epsilon",
                "use delta=1e-5",
            )
        SharedNoise(self.what, facts).check()
        self.what.check_before_charge(facts.pooled_facts)

    def event(self, facts: Facts) -> Event:
        """Return the event of an attempt, the same for any sites that take part."""
        assert facts.rows is not None
        if self.alpha is None:
            return Unprotected(self.source, facts.n)
        shape, noise = facts.n.shape, SharedNoise(self.what, facts)
        return SummedGaussianMechanism(
            self.source,
            facts.relation,
            np.broadcast_to(self.alpha, shape),
            np.broadcast_to(noise.mean_sensitivity(Among.all_sites(facts).rows), shape),
            self.what.number_of_entries(facts),
            facts.n_nodes,
            facts.participants,
            facts.colluders,
            facts.sites_per_row,
            noise.grid_bits,
        )

    def public_digest(self) -> bytes:
        return self.what.public_digest()

    def placeholder_answer(self, facts: Facts) -> Array:
        return self.what.placeholder_answer(facts)

    def attempt(self, facts: Facts, among: Among) -> Attempt:
        """Return the attempt at this sum by those sites."""
        return Attempt(self.what, facts, among)

    def mean_spread(self, facts: Facts, among: Among) -> float:
        """Return the standard deviation of the noise on an entry of the mean that those sites open.

        0 without noise; `facts` are those of all nodes.
        """
        if self.alpha is None:
            return 0.0
        if among.sites < facts.n_nodes:
            return float(self.attempt(facts.facts_of_node(0), among).total_spread.ravel()[0])
        return float(self.event(facts).noise_standard_deviation()[0])

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:
        """Update the vault in place of :meth:`share`, if the share is taken from the ledger.

        Parameters
        ----------
        vault, facts, release
            As for :meth:`Query.replay`.
        """
        self.what.replay(vault, facts.pooled_facts, release)

    def answer_of_pooled_rows(self, vault: Vault, facts: Facts, release: int) -> Array:
        """Compute the answer as if one site held all rows, for rehearsals only.

        It has the noise of all sites' shares together, and no grid.

        Parameters
        ----------
        vault : Vault
            All rows (inside their solver) and a source of noise.
        facts : Facts
            Public facts of the run.
        release : int
            Running number of the release, which keys its noise.

        Returns
        -------
        array of shape (..., d)
        """
        mean = self.what.addend_of_site(vault, facts)
        if self.alpha is not None:
            # All sites add a share, and the honest sites' shares alone must be noise enough.
            shares = facts.n_nodes / (facts.n_nodes - facts.colluders)
            influence = SharedNoise(self.what, facts).largest_sum_change(
                Among.all_sites(facts).rows
            )
            scale = influence / self.alpha * math.sqrt(shares)
            mean = mean + scale * vault.noise.draw_gaussian(mean.shape[-1], release, 1)
        return self.what.answer_from_mean(mean, facts)
