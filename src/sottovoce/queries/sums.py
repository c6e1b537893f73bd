"""Bounded sums over sites of which nobody sees a single addend: of gradients, proximal steps and bounded statistics.

A site's addend is a whole number of steps of a public grid, and so is its share of the noise.  What leaves the site is
their sum modulo ``2^64``, masked by the network (:mod:`sottovoce.network.net`); only the sum over all sites of an
attempt is ever opened.  ``docs/privacy/sums.md`` has the proofs.

Guarantee
---------
Every attempt to open a sum is the Gaussian mechanism of shift over sigma ``alpha`` for one row, against whoever sees
all messages and all that `colluders` of the sites know.  The sites of an attempt are known before noise is drawn, so
that shares are as large as these sites need, and `alpha` is the same for all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from ..errors import InvalidInput
from ..privacy.events import Event, SummedGaussianMechanism, Unprotected
from ..privacy.noise import power
from ..privacy.prices import COARSEST, FINEST
from ..problem.facts import Among, Facts
from ..util.typing import Array, IntArray
from .base import Query
from .reach import length
from .statistic import NoisyValue, refused
from .vault import Vault

_RING = 61
"""Bits that the largest sum of honest addends may have, of the 63 of a signed word: noise has room above it."""
_TAIL = 40.0  # standard deviations of a sum of noise: more has a probability below 2 e^-800
_ROUNDING = 2.0**-50  # of two addends, each rounded by a difference, by the weight, and by the product with it
_SLACK = 1.0 + 2.0**-40  # of noise, for the rounding of its size


@dataclass(frozen=True)
class Grid:
    """How an attempt writes numbers: `step` is that of the grid, `tau` a share's standard deviation in steps."""

    step: Array
    tau: Array


@dataclass(frozen=True)
class Sum:
    """A statistic of the rows of all sites, released in shares; a site weighs as much as it has rows.

    Parameters
    ----------
    what : NoisyValue
        At a public point, the same at all sites; its `alpha` is the shift over sigma of one row of all, or None for no
        noise.
    """

    what: NoisyValue

    def __post_init__(self) -> None:
        if vars(type(self.what)).get("in_sums") is None:
            raise refused(self.what)

    @classmethod
    def of(cls, query: Query) -> Self:
        """The same statistic as one sum over all sites.

        Raises
        ------
        InvalidInput
            If the query's class does not declare that it may be summed (:attr:`NoisyValue.in_sums`).
        """
        if not isinstance(query, NoisyValue):
            raise refused(query)
        return cls(query)

    @property
    def alpha(self) -> Array | None:
        """Shift over sigma of one row, against what was planned for; None for no noise."""
        return self.what.alpha

    @property
    def source(self) -> str:
        """As ledgers name the sum."""
        return self.what.in_sums or self.what.source

    def influence(self, facts: Facts, rows: float) -> Array:
        """Largest Euclidean change of a sum over `rows` rows by one of them, computation included; shape (..., 1)."""
        return self.what.moved(facts, np.full((*facts.n.shape[:-1], 1), rows))

    def check(self, facts: Facts) -> None:
        """Refuse public vectors with which the answer might fail; see :meth:`sottovoce.queries.Query.check`."""
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
        """The parameters that price an attempt, from public facts alone: the same for any sites that take part."""
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
        """What a stored share is kept with; see :meth:`sottovoce.queries.Query.stamp`."""
        return self.what.stamp()

    @property
    def unstamped(self) -> bool:
        """As of :class:`sottovoce.queries.Query`."""
        return self.what.unstamped

    def blank(self, facts: Facts) -> Array:
        """A placeholder of the answer's shape for planning."""
        return self.what.blank(facts)

    def share(self, vault: Vault, facts: Facts, among: Among, release: int) -> IntArray:
        """Each site's addend and its share of the noise in steps of the grid, (..., d); called after the charge.

        The share alone is not protected: it must be masked before it leaves.
        """
        words = self.addend(vault, facts, among)
        if self.alpha is not None:
            words = words + vault.noise.steps(words.shape[-1], self._grid(facts, among).tau, release)
        return words

    def addend(self, vault: Vault, facts: Facts, among: Among) -> IntArray:
        """The share without its noise, which never leaves the query; the audit computes it from rows of its own."""
        exact = self.what.addend(vault, facts) * (facts.n / among.rows) / self._grid(facts, among).step
        return np.asarray(np.rint(exact).astype(np.int64))

    def spread(self, facts: Facts, among: Among) -> Array:
        """Standard deviation of a coordinate of a share's noise, in steps of the grid, (..., 1)."""
        return self._grid(facts, among).tau

    def total_spread(self, facts: Facts, among: Among) -> Array:
        """Standard deviation of an entry of the opened mean: the shares of all these sites add up."""
        grid = self._grid(facts, among)
        return np.asarray(math.sqrt(among.sites) * grid.tau * grid.step)

    def mean_spread(self, facts: Facts, among: Among) -> float:
        """Standard deviation of the noise on each entry of the opened mean, from the facts of all nodes."""
        if self.alpha is None:
            return 0.0
        if among.sites < facts.n_nodes:
            return float(self.total_spread(facts.node(0), among).ravel()[0])
        return float(self.event(facts).spread()[0])

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:
        """Called when the share is taken from the ledger: the solver goes on as if it had solved."""
        self.what.replay(vault, facts.alike, release)

    def at_once(self, vault: Vault, facts: Facts, release: int) -> Array:
        """The answer as if one site held all rows, with the noise of all shares but no grid: for rehearsals only."""
        mean = self.what.addend(vault, facts)
        if self.alpha is not None:
            shares = facts.n_nodes / (facts.n_nodes - facts.colluders)
            scale = self.influence(facts, Among.all(facts).rows) / self.alpha * math.sqrt(shares)
            mean = mean + scale * vault.noise.gaussian(mean.shape[-1], release, 1)
        return self.what.centred(mean, facts)

    def opened(self, total: IntArray, facts: Facts, among: Among) -> Array:
        """The released mean, from the sum of all shares of an attempt, taken modulo ``2^64``."""
        return self.what.centred(total * self._grid(facts, among).step, facts)

    def within(self, total: IntArray, facts: Facts, among: Among) -> bool:
        """Whether honest sites can have made this sum: larger entries do not come from rows and noise."""
        grid = self._grid(facts, among)
        noise = _TAIL * math.sqrt(among.sites) * grid.tau
        most = self.what.reach(facts) / grid.step + among.sites + noise
        return bool(np.all(np.abs(total.astype(float)) <= most))

    def _moved(self, facts: Facts, among: Among) -> Array:
        """:meth:`influence`, with the rounding of a product with the site's weight."""
        return np.asarray(self.influence(facts, among.rows) + _ROUNDING * self.what.reach(facts))

    def _bits(self, facts: Facts) -> int:
        """How fine the grid is: as fine as the ring allows to all sites together, and no finer than is of use.

        Below :data:`sottovoce.privacy.prices.COARSEST` nothing is proved: the price is infinite, and `check` refuses.
        """
        if self.alpha is None:
            return FINEST
        among = Among.all(facts)
        share = self._moved(facts, among) / (
            np.asarray(self.alpha, dtype=float) * math.sqrt(self._honest(facts, among))
        )
        return min(FINEST, _RING - 1 - math.frexp(float(np.max(self.what.reach(facts) / share)) + 1.0)[1])

    def _noise_fits(self, facts: Facts) -> bool:
        """Whether noise of any sites that may take part leaves the words of honest sums below half of the ring."""
        alpha, d, sites = (
            float(np.min(np.asarray(self.alpha))),
            math.sqrt(self.what.entries(facts)),
            math.sqrt(facts.n_nodes),
        )
        tau = 2.0 ** (self._bits(facts) + 1) + d * (1.0 + 0.5 * sites) / alpha
        return (_TAIL + 1.0) * sites * tau <= 2.0**_RING

    @staticmethod
    def _honest(facts: Facts, among: Among) -> int:
        """How many shares of the noise nobody knows."""
        return among.sites - facts.colluders

    def _grid(self, facts: Facts, among: Among) -> Grid:
        """The grid of an attempt, the same at all its sites.

        With h honest shares of standard deviation ``tau`` steps each, a shift of D steps costs at most
        ``sqrt(D^2 / h + d h / 4) / tau``: it is dealt to the shares in whole steps (docs/privacy/sums.md).
        """
        moved = self._moved(facts, among)
        if self.alpha is None:
            return Grid(power(self.what.reach(facts), -50), np.zeros_like(moved))
        honest, d = self._honest(facts, among), self.what.entries(facts)
        step = power(moved / (self.alpha * math.sqrt(honest)), -self._bits(facts))
        steps = moved / step + math.sqrt(d)  # both data sets' sums are rounded, by at most half a step each
        return Grid(step, np.sqrt(steps**2 / honest + d * honest / 4.0) * _SLACK / self.alpha)
