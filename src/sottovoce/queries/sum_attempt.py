"""The arithmetic of a sum in shares: the public grid, how much noise each share has, and how a sum
is opened.

The noise of a sum is planned from all sites (:class:`SharedNoise`); an :class:`Attempt` asks some
of them for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..errors import InvalidInput
from ..privacy.noise import scaled_power_of_two
from ..privacy.prices import COARSEST, FINEST
from ..problem.facts import Among, Facts
from ..util.typing import Array, IntArray
from .statistic import NoisyValue
from .vault import Vault

_RING = 61
"""Bits of the largest sum of honest addends, of a signed word's 63; noise has the room above."""
# Standard deviations of a sum of noise: more has a probability below 2 e^-800.
_TAIL = 40.0
# of two addends, each rounded by a difference, by the weight, and by the product with it
_ROUNDING = 2.0**-50
# Factor on noise, which covers the rounding of its size.
_SLACK = 1.0 + 2.0**-40


class Grid(NamedTuple):
    """An attempt's grid, and the standard deviation of a share in its steps."""

    step: Array
    tau: Array


@dataclass(frozen=True)
class SharedNoise:
    """The noise of a sum of this statistic, for a run with these facts: the same in every attempt,
    whoever takes part.

    The statistic's `alpha` is the sensitivity over sigma of one row of all; without it there is no
    noise.
    """

    what: NoisyValue
    facts: Facts

    def largest_sum_change(self, rows: float) -> Array:
        """Largest change of a sum over `rows` rows by one of them, computation included; shape
        (..., 1).
        """
        return self.what.mean_sensitivity(self.facts, np.full((*self.facts.n.shape[:-1], 1), rows))

    def mean_sensitivity(self, rows: float) -> Array:
        """:meth:`largest_sum_change`, with the rounding of a product with the site's weight."""
        return np.asarray(
            self.largest_sum_change(rows) + _ROUNDING * self.what.addend_norm_bound(self.facts)
        )

    def honest_noise_shares(self, sites: int) -> int:
        """How many of so many shares of the noise nobody knows."""
        return sites - self.facts.colluders

    @property
    def grid_bits(self) -> int:
        """The grid's fineness: as fine as the ring allows to all sites together, and no finer than
        is of use.

        Below :data:`sottovoce.privacy.prices.COARSEST` the price is infinite, and :meth:`check`
        refuses.
        """
        if self.what.alpha is None:
            return FINEST
        among = Among.all_sites(self.facts)
        alpha = np.asarray(self.what.alpha, dtype=float)
        # The noise of one share, in units of the addends: its size decides how many steps a word
        # must hold.
        share = self.mean_sensitivity(among.rows) / (
            alpha * math.sqrt(self.honest_noise_shares(among.sites))
        )
        shares_in_reach = float(np.max(self.what.addend_norm_bound(self.facts) / share))
        return min(FINEST, _RING - 1 - math.frexp(shares_in_reach + 1.0)[1])

    def check(self) -> None:
        """Refuse with InvalidInput what has several prices, or does not fit into words."""
        alpha = self.what.alpha
        if alpha is None:
            return
        if np.ptp(alpha) > 0:
            raise InvalidInput(
                "alpha", None, "must be the same at all sites of a sum", "give one number"
            )
        if self.grid_bits < COARSEST:
            rule = f"{self.facts.rows:,.0f} rows with so little noise overflow sums of 64-bit words"
            raise InvalidInput(
                "epsilon", None, rule, "use a smaller epsilon, fewer rows, or trust='nobody'"
            )
        if not self._fits(float(np.min(np.asarray(alpha)))):
            rule = "so much noise overflows sums of 64-bit words"
            raise InvalidInput("epsilon", None, rule, "use a larger epsilon, or fewer features")

    def _fits(self, alpha: float) -> bool:
        """Whether any sites' noise leaves the words of honest sums below half of the ring."""
        d, sites = self.what.number_of_entries(self.facts), math.sqrt(self.facts.n_nodes)
        # An upper bound on a share's deviation in steps, for any sites that take part.
        tau = 2.0 ** (self.grid_bits + 1) + math.sqrt(d) * (1.0 + 0.5 * sites) / alpha
        return (_TAIL + 1.0) * sites * tau <= 2.0**_RING


@dataclass(frozen=True)
class Attempt:
    """A sum as it is asked of the sites `among` those of a run: each has a share, and the sum of
    all is opened.
    """

    what: NoisyValue
    facts: Facts
    among: Among

    @property
    def grid(self) -> Grid:
        """The grid of the attempt, the same at all its sites.

        With h honest shares of ``tau`` steps, a shift of D steps costs at most ``sqrt(D^2 / h + d h
        / 4) / tau``: it is dealt to the shares in whole steps (docs/privacy/sums.md, Claim 3).
        """
        noise = SharedNoise(self.what, self.facts)
        moved = noise.mean_sensitivity(self.among.rows)
        if self.what.alpha is None:
            return Grid(
                scaled_power_of_two(self.what.addend_norm_bound(self.facts), -50),
                np.zeros_like(moved),
            )
        honest = noise.honest_noise_shares(self.among.sites)
        d = self.what.number_of_entries(self.facts)
        step = scaled_power_of_two(moved / (self.what.alpha * math.sqrt(honest)), -noise.grid_bits)
        # Claim 4: both data sets' sums are rounded to the grid, by at most half a step an entry.
        steps = moved / step + math.sqrt(d)
        return Grid(step, np.sqrt(steps**2 / honest + d * honest / 4.0) * _SLACK / self.what.alpha)

    def noisy_share(self, vault: Vault, release: int) -> IntArray:
        """Each site's addend plus its share of the noise in steps of the grid, (..., d), after the
        charge.

        It must be masked before it leaves: alone it is not protected.
        """
        words = self.share_without_noise(vault)
        if self.what.alpha is not None:
            words = words + vault.noise.draw_rounded_gaussian(
                words.shape[-1], self.grid.tau, release
            )
        return words

    def share_without_noise(self, vault: Vault) -> IntArray:
        """The share without its noise, for the audit; it never leaves the query."""
        # A site weighs as much as it has rows: p_i = n_i / n_U of docs/privacy/sums.md.
        weight = self.facts.n / self.among.rows
        exact = self.what.addend_of_site(vault, self.facts) * weight / self.grid.step
        return np.asarray(np.rint(exact).astype(np.int64))

    @property
    def total_spread(self) -> Array:
        """Standard deviation of an entry of the opened mean."""
        grid = self.grid
        # All sites of the attempt add a share, the colluding ones too.
        return np.asarray(math.sqrt(self.among.sites) * grid.tau * grid.step)

    def is_plausible(self, total: IntArray) -> bool:
        """Whether honest sites can have made this sum, from rows and noise."""
        grid = self.grid
        noise = _TAIL * math.sqrt(self.among.sites) * grid.tau
        most = self.what.addend_norm_bound(self.facts) / grid.step + self.among.sites + noise
        return bool(np.all(np.abs(total.astype(float)) <= most))

    def mean_from_total(self, total: IntArray) -> Array:
        """The released mean, from the sum of the shares modulo ``2^64``."""
        return self.what.answer_from_mean(total * self.grid.step, self.facts)
