"""The arithmetic of a sum over sites: the public grid, each site's share of the noise, the total.

Each site multiplies its *addend*, the statistic less what is public, by its share of the rows,
rounds it to whole steps of a common grid and adds its part of the noise.  These *shares* are masked
and add up modulo ``2^64``.  The noise of a sum
is planned from all sites (:class:`SharedNoise`); an :class:`Attempt` is made by some of them.
:class:`sottovoce.queries.Sum` is the query.  Proofs are in docs/privacy/sums.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
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
"""Bits of the largest sum of honest addends; noise has the room up to a signed word's 63 bits."""
# Noise of a sum is longer than so many standard deviations with a probability below 2 e^-800.
_TAIL = 40.0
# Bound on the relative rounding of two addends: each rounds by a difference, by its weight, and by
# the product of both.
_ROUNDING = 2.0**-50
# Factor on the noise's standard deviation that covers the rounding of its computation.
_SLACK = 1.0 + 2.0**-40


class Grid(NamedTuple):
    """The grid of an attempt: its `step`, and `tau`, a share's standard deviation in steps.

    Both have shape (..., 1).
    """

    step: Array
    tau: Array


@dataclass(frozen=True)
class SharedNoise:
    """The noise of a sum of a statistic, planned so that every attempt costs the same.

    Parameters
    ----------
    what : NoisyValue
        The statistic; its `alpha` is sensitivity over sigma for one row of all sites, None for no
        noise.
    facts : Facts
        Public facts of the run.
    """

    what: NoisyValue
    facts: Facts

    def largest_sum_change(self, rows: float) -> Array:
        """Return the largest change of a mean over `rows` rows by one of them, (..., 1).

        The rounding of its computation is included.
        """
        return self.what.mean_sensitivity(self.facts, np.full((*self.facts.n.shape[:-1], 1), rows))

    def mean_sensitivity(self, rows: float) -> Array:
        """Return :meth:`largest_sum_change`, and the rounding of a product with a site's weight."""
        return np.asarray(
            self.largest_sum_change(rows) + _ROUNDING * self.what.addend_norm_bound(self.facts)
        )

    def honest_noise_shares(self, sites: int) -> int:
        """Return how many shares of the noise of so many sites are not known to colluding sites."""
        return sites - self.facts.colluders

    @cached_property
    def grid_bits(self) -> int:
        """Binary digits of the grid: its step is about ``2^-bits`` of a share's standard deviation.

        They are as many as 64-bit words allow for the sum of all sites, and at most ``FINEST``.
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
        """Raise InvalidInput unless all sites have one price and sums fit into 64-bit words."""
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
        """Return whether the noise of any sites leaves honest sums room in 64-bit words."""
        d, sites = self.what.number_of_entries(self.facts), math.sqrt(self.facts.n_nodes)
        # An upper bound on a share's deviation in steps, for any sites that take part.
        tau = 2.0 ** (self.grid_bits + 1) + math.sqrt(d) * (1.0 + 0.5 * sites) / alpha
        return (_TAIL + 1.0) * sites * tau <= 2.0**_RING


@dataclass(frozen=True)
class Attempt:
    """A sum as some of a run's sites make it: each adds a share, and the total is opened.

    Parameters
    ----------
    what : NoisyValue
        The statistic.
    facts : Facts
        Public facts: of the run, or of the one site that computes its share.
    among : Among
        How many sites take part, and how many rows they have together.
    """

    what: NoisyValue
    facts: Facts
    among: Among

    @cached_property
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
        """Compute each site's addend plus its share of the noise, (..., d), in steps of the grid.

        Called after the charge.  It must be masked before it leaves: alone it is not protected.
        `release` keys the noise in a simulation.
        """
        words = self.share_without_noise(vault)
        if self.what.alpha is not None:
            words = words + vault.noise.draw_rounded_gaussian(
                words.shape[-1], self.grid.tau, release
            )
        return words

    def share_without_noise(self, vault: Vault) -> IntArray:
        """Return the share without its noise, for the audit; it never leaves the query."""
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
        """Return whether honest sites can have made this total, from rows and noise."""
        grid = self.grid
        noise = _TAIL * math.sqrt(self.among.sites) * grid.tau
        most = self.what.addend_norm_bound(self.facts) / grid.step + self.among.sites + noise
        return bool(np.all(np.abs(total.astype(float)) <= most))

    def mean_from_total(self, total: IntArray) -> Array:
        """Return the released mean, given the sum of the shares modulo ``2^64``."""
        return self.what.answer_from_mean(total * self.grid.step, self.facts)
