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
_TAIL = 40.0  # standard deviations of a sum of noise: more has a probability below 2 e^-800
_ROUNDING = 2.0**-50  # of two addends, each rounded by a difference, by the weight, and by the product with it
_SLACK = 1.0 + 2.0**-40  # of noise, for the rounding of its size


class Grid(NamedTuple):
    """An attempt's grid, and the standard deviation of a share in its steps."""

    step: Array
    tau: Array


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

    def influence(self, facts: Facts, rows: float) -> Array:
        """Largest change of a sum over `rows` rows by one of them, computation included; shape (..., 1)."""
        return self.what.moved(facts, np.full((*facts.n.shape[:-1], 1), rows))

    def proved_of_people(self) -> bool:
        """Whether a unit may have several rows."""
        return self.what.proved_of_people()

    def check(self, facts: Facts) -> None:
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
        """The event of an attempt, the same for any sites that take part."""
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
        """Each site's addend plus its share of the noise in steps of the grid, (..., d), after the charge.

        It must be masked before it leaves: alone it is not protected.
        """
        words = self.addend(vault, facts, among)
        if self.alpha is not None:
            words = words + vault.noise.steps(words.shape[-1], self._grid(facts, among).tau, release)
        return words

    def addend(self, vault: Vault, facts: Facts, among: Among) -> IntArray:
        """The share without its noise, for the audit; it never leaves the query."""
        exact = self.what.addend(vault, facts) * (facts.n / among.rows) / self._grid(facts, among).step
        return np.asarray(np.rint(exact).astype(np.int64))

    def spread(self, facts: Facts, among: Among) -> Array:
        """Standard deviation of a coordinate of a share's noise, in steps of the grid, (..., 1)."""
        return self._grid(facts, among).tau

    def total_spread(self, facts: Facts, among: Among) -> Array:
        """Standard deviation of an entry of the opened mean."""
        grid = self._grid(facts, among)
        return np.asarray(math.sqrt(among.sites) * grid.tau * grid.step)

    def mean_spread(self, facts: Facts, among: Among) -> float:
        """:meth:`total_spread`, from the facts of all nodes."""
        if self.alpha is None:
            return 0.0
        if among.sites < facts.n_nodes:
            return float(self.total_spread(facts.node(0), among).ravel()[0])
        return float(self.event(facts).spread()[0])

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:
        self.what.replay(vault, facts.alike, release)

    def at_once(self, vault: Vault, facts: Facts, release: int) -> Array:
        """The answer as if one site held all rows, with the noise of all shares and no grid, for rehearsals only."""
        mean = self.what.addend(vault, facts)
        if self.alpha is not None:
            shares = facts.n_nodes / (facts.n_nodes - facts.colluders)
            scale = self.influence(facts, Among.all(facts).rows) / self.alpha * math.sqrt(shares)
            mean = mean + scale * vault.noise.gaussian(mean.shape[-1], release, 1)
        return self.what.centred(mean, facts)

    def opened(self, total: IntArray, facts: Facts, among: Among) -> Array:
        """The released mean, from the sum of an attempt's shares modulo ``2^64``."""
        return self.what.centred(total * self._grid(facts, among).step, facts)

    def within(self, total: IntArray, facts: Facts, among: Among) -> bool:
        """Whether honest sites can have made this sum, from rows and noise."""
        grid = self._grid(facts, among)
        noise = _TAIL * math.sqrt(among.sites) * grid.tau
        most = self.what.reach(facts) / grid.step + among.sites + noise
        return bool(np.all(np.abs(total.astype(float)) <= most))

    def _moved(self, facts: Facts, among: Among) -> Array:
        """:meth:`influence`, with the rounding of a product with the site's weight."""
        return np.asarray(self.influence(facts, among.rows) + _ROUNDING * self.what.reach(facts))

    def _bits(self, facts: Facts) -> int:
        """The grid's fineness: as fine as the ring allows to all sites together, and no finer than is of use.

        Below :data:`sottovoce.privacy.prices.COARSEST` the price is infinite, and `check` refuses.
        """
        if self.alpha is None:
            return FINEST
        among = Among.all(facts)
        alpha, honest = np.asarray(self.alpha, dtype=float), self._honest(facts, among)
        share = self._moved(facts, among) / (alpha * math.sqrt(honest))
        return min(FINEST, _RING - 1 - math.frexp(float(np.max(self.what.reach(facts) / share)) + 1.0)[1])

    def _noise_fits(self, facts: Facts) -> bool:
        """Whether any sites' noise leaves the words of honest sums below half of the ring."""
        alpha, d, sites = float(np.min(np.asarray(self.alpha))), self.what.entries(facts), math.sqrt(facts.n_nodes)
        tau = 2.0 ** (self._bits(facts) + 1) + math.sqrt(d) * (1.0 + 0.5 * sites) / alpha
        return (_TAIL + 1.0) * sites * tau <= 2.0**_RING

    @staticmethod
    def _honest(facts: Facts, among: Among) -> int:
        """How many shares of the noise nobody knows."""
        return among.sites - facts.colluders

    def _grid(self, facts: Facts, among: Among) -> Grid:
        """The grid of an attempt, the same at all its sites.

        With h honest shares of ``tau`` steps, a shift of D steps costs at most ``sqrt(D^2 / h + d h / 4) / tau``: it is
        dealt to the shares in whole steps (docs/privacy/sums.md, Claim 3).
        """
        moved = self._moved(facts, among)
        if self.alpha is None:
            return Grid(power(self.what.reach(facts), -50), np.zeros_like(moved))
        honest, d = self._honest(facts, among), self.what.entries(facts)
        step = power(moved / (self.alpha * math.sqrt(honest)), -self._bits(facts))
        steps = moved / step + math.sqrt(d)  # both data sets' sums are rounded, by at most half a step each
        return Grid(step, np.sqrt(steps**2 / honest + d * honest / 4.0) * _SLACK / self.alpha)
