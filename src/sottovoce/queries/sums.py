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
from typing import NamedTuple, Self

import numpy as np

from ..errors import InvalidInput
from ..privacy.events import Event, SummedGaussianMechanism, Unprotected
from ..privacy.noise import power
from ..privacy.prices import COARSEST, FINEST
from ..problem.facts import Among, Facts
from ..util.typing import Array, IntArray
from .base import Query
from .bounded import NoisyBounded
from .reach import length
from .statistic import NoisyValue, refused
from .vault import Vault

_RING = 61
"""Bits of the largest sum of honest addends, of a signed word's 63; noise has the room above."""
# Standard deviations of a sum of noise: more has a probability below 2 e^-800.
_TAIL = 40.0
# Of two addends, each rounded by a difference, by the weight, and by the product with it.
_ROUNDING = 2.0**-50
# Enlarges noise by more than the rounding of its size.
_SLACK = 1.0 + 2.0**-40


class Grid(NamedTuple):
    """The grid of one attempt at a sum, the same at all its sites.

    `step` is the length of a grid step, and `tau` the standard deviation of a site's share of the
    noise in steps; both have shape (..., 1).
    """

    step: Array
    tau: Array


def as_released(query: NoisyBounded, facts: Facts) -> NoisyBounded | Sum:
    """Return the query by which a run with these facts releases a statistic.

    It is the query itself under local trust, and the sum of all sites' statistics where only sums
    are opened.  Either has the price of its own event.
    """
    if facts.summed:
        return Sum.of(query)
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
            raise refused(self.what)

    @classmethod
    def of(cls, query: Query) -> Self:
        """Return the query's statistic as one sum over all sites.

        Raises
        ------
        InvalidInput
            If the query's class does not declare :attr:`NoisyValue.in_sums`.
        """
        if not isinstance(query, NoisyValue):
            raise refused(query)
        return cls(query)

    @property
    def alpha(self) -> Array | None:
        """Sensitivity over sigma for one row, against the planned colluders; None for no noise."""
        return self.what.alpha

    @property
    def statistic(self) -> NoisyValue:
        """The query whose answers are summed."""
        return self.what

    def at_shift(self, alpha: Array) -> Self:
        """Return the same sum with another ratio of sensitivity to sigma."""
        return type(self)(self.what.at_shift(alpha))

    @property
    def source(self) -> str:
        return self.what.in_sums or self.what.source

    def influence(self, facts: Facts, rows: float) -> Array:
        """Return the sensitivity of the computed mean over `rows` rows of all sites, (..., 1)."""
        return self.what.moved(facts, np.full((*facts.n.shape[:-1], 1), rows))

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
        length(self.what.start, "start")
        if facts.pure and self.alpha is not None:
            raise InvalidInput("delta", None, "noise on sums is Gaussian and has no pure price", "use delta=1e-5")
        if self.alpha is not None:
            self._check_noise(facts)
        self.what.check(facts.alike)

    def _check_noise(self, facts: Facts) -> None:
        assert self.alpha is not None
        if np.ptp(self.alpha) > 0:
            raise InvalidInput("alpha", None, "a sum over sites has one price", "give one number, not one a site")
        if self._bits(facts) < COARSEST:
            rule = f"{facts.rows:,.0f} rows with so little noise do not fit into sums of 64-bit words"
            raise InvalidInput("epsilon", None, rule, "use a smaller epsilon, fewer rows, or trust='nobody'")
        if not self._noise_fits(facts):
            rule = "so much noise does not fit into sums of 64-bit words"
            raise InvalidInput("epsilon", None, rule, "use a larger epsilon, or fewer features")

    def event(self, facts: Facts) -> Event:
        """Return the event of an attempt, the same for any sites that take part."""
        assert facts.rows is not None
        if self.alpha is None:
            return Unprotected(self.source, facts.n)
        shape = facts.n.shape
        return SummedGaussianMechanism(
            self.source, facts.relation, np.broadcast_to(self.alpha, shape),
            np.broadcast_to(self._moved(facts, Among.all(facts)), shape), self.what.entries(facts), facts.n_nodes,
            facts.participants, facts.colluders, facts.sites_per_row, self._bits(facts),
        )  # fmt: skip

    def stamp(self) -> bytes:
        return self.what.stamp()

    def blank(self, facts: Facts) -> Array:
        return self.what.blank(facts)

    def share(self, vault: Vault, facts: Facts, among: Among, release: int) -> IntArray:
        """Compute each site's addend plus its share of the noise, after the charge.

        It must be masked before it leaves: alone it is not protected.

        Parameters
        ----------
        vault : Vault
            The rows (inside their solver) and the source of noise.
        facts : Facts
            Public facts of the site, or of all sites of a simulation.
        among : Among
            The sites of this attempt, agreed on before noise is drawn.
        release : int
            Running number of the release, which keys its noise in a simulation.

        Returns
        -------
        integer array of shape (..., d)
            In steps of the attempt's grid.
        """
        words = self.addend(vault, facts, among)
        if self.alpha is not None:
            words = words + vault.noise.steps(words.shape[-1], self._grid(facts, among).tau, release)
        return words

    def addend(self, vault: Vault, facts: Facts, among: Among) -> IntArray:
        """Compute each site's addend, which is its share without noise; it never leaves the query.

        Parameters
        ----------
        vault : Vault
            The rows (inside their solver).
        facts : Facts
            Public facts of the site, or of all sites of a simulation.
        among : Among
            The sites of this attempt.

        Returns
        -------
        integer array of shape (..., d)
            The statistic weighed by the site's share of the rows, rounded to steps of the attempt's
            grid.
        """
        exact = self.what.addend(vault, facts) * (facts.n / among.rows) / self._grid(facts, among).step
        return np.asarray(np.rint(exact).astype(np.int64))

    def spread(self, facts: Facts, among: Among) -> Array:
        """Return the standard deviation of an entry of a share's noise, in grid steps, (..., 1)."""
        return self._grid(facts, among).tau

    def total_spread(self, facts: Facts, among: Among) -> Array:
        """Return the standard deviation of the noise on an entry of the opened mean, (..., 1)."""
        grid = self._grid(facts, among)
        return np.asarray(math.sqrt(among.sites) * grid.tau * grid.step)

    def mean_spread(self, facts: Facts, among: Among) -> float:
        """Return the standard deviation of the noise on an entry of the opened mean.

        Parameters
        ----------
        facts : Facts
            Public facts of all nodes.
        among : Among
            The sites of the attempt.

        Returns
        -------
        float
            0 without noise.
        """
        if self.alpha is None:
            return 0.0
        if among.sites < facts.n_nodes:
            return float(self.total_spread(facts.node(0), among).ravel()[0])
        return float(self.event(facts).spread()[0])

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:
        """Update the vault in place of :meth:`share`, if the share is taken from the ledger.

        Parameters
        ----------
        vault, facts, release
            As for :meth:`Query.replay`.
        """
        self.what.replay(vault, facts.alike, release)

    def at_once(self, vault: Vault, facts: Facts, release: int) -> Array:
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
        mean = self.what.addend(vault, facts)
        if self.alpha is not None:
            # All sites add a share, and the honest ones' alone must be enough.
            shares = facts.n_nodes / (facts.n_nodes - facts.colluders)
            scale = self.influence(facts, Among.all(facts).rows) / self.alpha * math.sqrt(shares)
            mean = mean + scale * vault.noise.gaussian(mean.shape[-1], release, 1)
        return self.what.centred(mean, facts)

    def opened(self, total: IntArray, facts: Facts, among: Among) -> Array:
        """Return the released mean, given the opened sum of an attempt's shares.

        Parameters
        ----------
        total : integer array of shape (..., d)
            The sum modulo ``2^64``, in steps of the attempt's grid.
        facts : Facts
            Public facts of the run.
        among : Among
            The sites of the attempt.

        Returns
        -------
        array of shape (..., d)
        """
        return self.what.centred(total * self._grid(facts, among).step, facts)

    def within(self, total: IntArray, facts: Facts, among: Among) -> bool:
        """Return whether honest sites can have made this sum, from rows and noise.

        Parameters
        ----------
        total : integer array of shape (..., d)
            The opened sum modulo ``2^64``, in steps of the attempt's grid.
        facts : Facts
            Public facts of the run.
        among : Among
            The sites of the attempt.

        Returns
        -------
        bool
            False if an entry is larger than the largest sum of addends, plus a step of rounding a
            site, plus noise of `_TAIL` standard deviations.
        """
        # The largest honest sum in steps, a step of rounding a site, and the noise of all shares.
        grid = self._grid(facts, among)
        noise = _TAIL * math.sqrt(among.sites) * grid.tau
        most = self.what.reach(facts) / grid.step + among.sites + noise
        return bool(np.all(np.abs(total.astype(float)) <= most))

    def _moved(self, facts: Facts, among: Among) -> Array:
        """Return :meth:`influence`, with the rounding of a product with the site's weight."""
        return np.asarray(self.influence(facts, among.rows) + _ROUNDING * self.what.reach(facts))

    def _bits(self, facts: Facts) -> int:
        """Return the binary digits of the grid: as many as fit and are of use.

        Below :data:`sottovoce.privacy.prices.COARSEST` the price is infinite, and `check` refuses.
        """
        if self.alpha is None:
            return FINEST
        among = Among.all(facts)
        alpha, honest = np.asarray(self.alpha, dtype=float), self._honest(facts, among)
        # As fine as honest sums still fit into _RING bits: the largest sum, in steps, is below
        # 2^_RING.
        share = self._moved(facts, among) / (alpha * math.sqrt(honest))
        return min(FINEST, _RING - 1 - math.frexp(float(np.max(self.what.reach(facts) / share)) + 1.0)[1])

    def _noise_fits(self, facts: Facts) -> bool:
        """Return whether all sites' noise leaves honest sums below half of the ring."""
        alpha, d, sites = float(np.min(np.asarray(self.alpha))), self.what.entries(facts), math.sqrt(facts.n_nodes)
        tau = 2.0 ** (self._bits(facts) + 1) + math.sqrt(d) * (1.0 + 0.5 * sites) / alpha
        return (_TAIL + 1.0) * sites * tau <= 2.0**_RING

    @staticmethod
    def _honest(facts: Facts, among: Among) -> int:
        """Return how many shares of the noise the adversary does not know."""
        return among.sites - facts.colluders

    def _grid(self, facts: Facts, among: Among) -> Grid:
        """The grid of an attempt, the same at all its sites.

        With h honest shares of ``tau`` steps, a shift of D steps costs at most ``sqrt(D^2 / h + d h
        / 4) / tau``: it is dealt to the shares in whole steps (docs/privacy/sums.md, Claim 3).
        """
        moved = self._moved(facts, among)
        # Without noise a step is 2^-50 of the largest sum, about what doubles resolve.
        if self.alpha is None:
            return Grid(power(self.what.reach(facts), -50), np.zeros_like(moved))
        honest, d = self._honest(facts, among), self.what.entries(facts)
        step = power(moved / (self.alpha * math.sqrt(honest)), -self._bits(facts))
        # Both data sets' sums are rounded, by at most half a step each.
        steps = moved / step + math.sqrt(d)
        return Grid(step, np.sqrt(steps**2 / honest + d * honest / 4.0) * _SLACK / self.alpha)
