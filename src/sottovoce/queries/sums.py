"""Bounded sums over sites of which nobody sees a single addend: gradients and proximal steps.

A site's addend is a whole number of steps of a public grid, and so is its share of the noise.  What leaves the site is
their sum modulo ``2^64``, masked by the network (:mod:`sottovoce.net`); only the sum over all sites of an attempt is
ever opened.  ``docs/privacy/sums.md`` has the proofs.

Guarantee
---------
Every attempt to open a sum is the Gaussian mechanism of shift over sigma ``alpha`` for one row, against whoever sees
all messages and all that `colluders` of the sites know.  The sites of an attempt are known before noise is drawn, so
that shares are as large as these sites need, and `alpha` is the same for all of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from ..errors import InvalidInput, Refused
from ..facts import Facts
from ..privacy.events import Event, SummedGaussianMechanism, Unprotected
from ..privacy.prices import COARSEST, FINEST
from ..solvers import certified_error
from ..typing import Array, ArrayLike, IntArray
from .reach import INFLATION, certificate, check_solve, inside, length, matched
from .statistic import gradient_sensitivity
from .vault import Vault

_RING = 61
"""Bits that the largest sum of honest addends may have, of the 63 of a signed word: noise has room above it."""
_TAIL = 40.0  # standard deviations of a sum of noise: more has a probability below 2 e^-800
_ROUNDING = 2.0**-50  # of two addends, each rounded by a difference, by the weight, and by the product with it
_SLACK = 1.0 + 2.0**-40  # of noise, for the rounding of its size


@dataclass(frozen=True)
class Among:
    """The sites of one attempt, which are public and agreed on before any noise is drawn.

    Parameters
    ----------
    rows : float
        Rows of these sites together.
    sites : int
    """

    rows: float
    sites: int

    @classmethod
    def all(cls, facts: Facts) -> Self:
        """All sites of a run."""
        assert facts.rows is not None
        return cls(facts.rows, facts.n_nodes)

    def check(self, facts: Facts) -> None:
        """Refuse sites that cannot be those of an attempt of this run; called before the charge.

        Raises
        ------
        Refused
        """
        assert facts.rows is not None
        own, all_of_them = float(np.max(facts.n)), self.sites == facts.n_nodes
        if not (
            max(facts.participants, facts.colluders + 1) <= self.sites <= facts.n_nodes
            and (self.rows == facts.rows if all_of_them else own + self.sites - 1 <= self.rows < facts.rows)
        ):
            raise Refused(
                f"sites={self.sites}: of this run are {facts.n_nodes}, and a sum needs {facts.participants} of them "
                "with their rows as agreed; nothing was charged; find out who signed another roster"
            )


@dataclass(frozen=True)
class Grid:
    """How an attempt writes numbers: `step` is that of the grid, `tau` a share's standard deviation in steps."""

    step: Array
    tau: Array


@dataclass(frozen=True)
class Sum(ABC):
    """A sum over sites of a statistic of their rows at a public point; a site weighs as much as it has rows.

    Parameters
    ----------
    start : array (..., d)
        Public, and the same at all sites.
    alpha : array (..., 1) or None
        Shift over sigma of one row, against what was planned for; None for no noise.
    source : str
    """

    start: Array
    alpha: Array | None
    source: str
    unstamped: ClassVar[bool] = False
    """As of :class:`sottovoce.queries.Query`."""

    @abstractmethod
    def influence(self, facts: Facts, rows: float) -> Array:
        """Largest Euclidean change of a sum over `rows` rows by one of them, computation included; shape (..., 1)."""

    @abstractmethod
    def reach(self, facts: Facts) -> Array:
        """Bound on the norm of a mean over any rows, shape (..., 1)."""

    @abstractmethod
    def value(self, vault: Vault, facts: Facts) -> Array:
        """The mean over each site's own rows, (..., d), which never leaves the query."""

    def entries(self, facts: Facts) -> int:
        """How many numbers the answer has: as many as a model, by default."""
        return facts.d

    def centred(self, answer: Array, facts: Facts) -> Array:
        """The answer, from a mean of :meth:`value`: by default the same."""
        return answer

    def check(self, facts: Facts) -> None:
        """Refuse public vectors with which the answer might fail; see :meth:`sottovoce.queries.Query.check`."""
        length(self.start, "start")
        if facts.pure and self.alpha is not None:
            raise InvalidInput("delta", None, "noise on sums is Gaussian and has no pure price", "use delta=1e-5")
        if self.alpha is None:
            return
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
            np.broadcast_to(self._moved(facts, Among.all(facts)), shape), self.entries(facts), facts.n_nodes,
            facts.participants, facts.colluders, facts.sites_per_row, self._bits(facts),
        )  # fmt: skip

    def stamp(self) -> bytes:
        """What a stored share is kept with; see :meth:`sottovoce.queries.Query.stamp`."""
        return b""

    def blank(self, facts: Facts) -> Array:
        """A placeholder of the answer's shape for planning."""
        return np.zeros_like(self.start)

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
        exact = self.value(vault, facts) * (facts.n / among.rows) / self._grid(facts, among).step
        return np.asarray(np.rint(exact).astype(np.int64))

    def spread(self, facts: Facts, among: Among) -> Array:
        """Standard deviation of a coordinate of a share's noise, in steps of the grid, (..., 1)."""
        return self._grid(facts, among).tau

    def total_spread(self, facts: Facts, among: Among) -> Array:
        """Standard deviation of an entry of the opened mean: the shares of all these sites add up."""
        grid = self._grid(facts, among)
        return np.asarray(math.sqrt(among.sites) * grid.tau * grid.step)

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:  # noqa: B027 - gradients leave nothing behind
        """Called when the share is taken from the ledger: the solver goes on as if it had solved."""

    def at_once(self, vault: Vault, facts: Facts, release: int) -> Array:
        """The answer as if one site held all rows, with the noise of all shares but no grid: for rehearsals only."""
        mean = self.value(vault, facts)
        if self.alpha is not None:
            shares = facts.n_nodes / (facts.n_nodes - facts.colluders)
            scale = self.influence(facts, Among.all(facts).rows) / self.alpha * math.sqrt(shares)
            mean = mean + scale * vault.noise.gaussian(mean.shape[-1], release, 1)
        return self.centred(mean, facts)

    def opened(self, total: IntArray, facts: Facts, among: Among) -> Array:
        """The released mean, from the sum of all shares of an attempt, taken modulo ``2^64``."""
        return self.centred(total * self._grid(facts, among).step, facts)

    def within(self, total: IntArray, facts: Facts, among: Among) -> bool:
        """Whether honest sites can have made this sum: larger entries do not come from rows and noise."""
        grid = self._grid(facts, among)
        noise = _TAIL * math.sqrt(among.sites) * grid.tau
        most = self.reach(facts) / grid.step + among.sites + noise
        return bool(np.all(np.abs(total.astype(float)) <= most))

    def around(self, origin: Array, facts: Facts) -> Self:
        """The sum to ask for in place of this one if an algorithm counts from `origin`."""
        return replace(self, start=self.start + origin)

    def beside(self, answer: Array, origin: Array) -> Array:
        """The answer of :meth:`around`'s sum as this one's."""
        return answer

    def _moved(self, facts: Facts, among: Among) -> Array:
        """:meth:`influence`, with the rounding of a product with the site's weight."""
        return np.asarray(self.influence(facts, among.rows) + _ROUNDING * self.reach(facts))

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
        return min(FINEST, _RING - 1 - math.frexp(float(np.max(self.reach(facts) / share)) + 1.0)[1])

    def _noise_fits(self, facts: Facts) -> bool:
        """Whether noise of any sites that may take part leaves the words of honest sums below half of the ring."""
        alpha, d, sites = (
            float(np.min(np.asarray(self.alpha))),
            math.sqrt(self.entries(facts)),
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
            return Grid(_power(self.reach(facts), -50), np.zeros_like(moved))
        honest, d = self._honest(facts, among), self.entries(facts)
        step = _power(moved / (self.alpha * math.sqrt(honest)), -self._bits(facts))
        steps = moved / step + math.sqrt(d)  # both data sets' sums are rounded, by at most half a step each
        return Grid(step, np.sqrt(steps**2 / honest + d * honest / 4.0) * _SLACK / self.alpha)


def _power(x: Array, more: int) -> Array:
    """The largest power of two up to `x`, times ``2^more``, exactly: a logarithm may differ between machines."""
    return np.asarray(np.ldexp(1.0, np.frexp(x)[1] - 1 + more))


@dataclass(frozen=True)
class SummedGradient(Sum):
    """``(C / n) sum_k slope(a_k.w) a_k`` over the rows of all sites, at ``w = start``.

    One row moves it by :func:`sottovoce.queries.statistic.gradient_sensitivity` of all rows.  A site's own rounding,
    weighed by its share of the rows, is below that of all rows at one site.
    """

    def influence(self, facts: Facts, rows: float) -> Array:
        return gradient_sensitivity(facts, np.full((*facts.n.shape[:-1], 1), rows))

    def reach(self, facts: Facts) -> Array:
        return np.full((*facts.n.shape[:-1], 1), facts.C * facts.loss.slope_bound)

    def value(self, vault: Vault, facts: Facts) -> Array:
        return vault.solver.gradient(self.start)


@dataclass(frozen=True)
class SummedMinimiser(Sum):
    """The mean of ``argmin f_i(w) + (curvature / 2) ||w - start||^2``, each weighed by its site's rows.

    `origin` is the point to which the regulariser in ``f_i`` pulls.

    Sites send how far the minimiser is from where it would be without rows: what they send is bounded by public facts
    alone, whatever the public point.  One row moves its site's minimiser by ``Delta C / (n_i q) + 2 error``, and the
    site's weight is ``n_i / rows <= 1``; so the mean moves by at most ``Delta C / (rows q) + 2 error``.
    """

    curvature: ArrayLike = 1.0
    origin: ArrayLike = 0.0

    def _q(self, facts: Facts) -> Array:
        return np.asarray(facts.mu + np.asarray(self.curvature, dtype=float))

    def _tol(self, facts: Facts) -> Array:
        alike = _alike(facts)
        return certificate(alike, matched(alike, INFLATION * facts.gradients_changed / (4.0 * alike.n)), self._q(facts))

    def _linear(self, facts: Facts) -> Array:
        pull = np.asarray(self.curvature, dtype=float) * self.start
        return np.asarray(-pull - facts.mu * np.asarray(self.origin, dtype=float))

    def _alone(self, facts: Facts) -> Array:
        """The minimiser without rows."""
        return np.asarray(-self._linear(facts) / self._q(facts))

    def influence(self, facts: Facts, rows: float) -> Array:
        error = certified_error(facts.C, self._tol(facts), self._q(facts))
        return np.asarray(
            facts.gradients_changed * facts.C / (rows * self._q(facts)) + 2.0 * error + np.zeros_like(facts.n)
        )  # fmt: skip

    def reach(self, facts: Facts) -> Array:
        error = certified_error(facts.C, self._tol(facts), self._q(facts))
        return np.asarray(facts.C * facts.loss.slope_bound / self._q(facts) + error + np.zeros_like(facts.n))

    def check(self, facts: Facts) -> None:
        super().check(facts)
        if self.alpha is not None:
            check_solve(_alike(facts), self._tol(facts), self._linear(facts), self.start, self._q(facts))

    def _nearest(self, facts: Facts) -> Array:
        """The point in reach that is nearest to the start."""
        return inside(self.start, facts, self._tol(facts), length(self._linear(facts), "linear"), self._q(facts))

    def value(self, vault: Vault, facts: Facts) -> Array:
        linear, q, tol = self._linear(facts), self._q(facts), self._tol(facts)
        found = vault.solver.minimise(linear, q, self._nearest(facts), tol).w - self._alone(facts)
        most, norm = self.reach(facts), np.linalg.norm(found, axis=-1, keepdims=True)
        return np.where(norm > most, found * (most / np.maximum(norm, most)), found)

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:
        if vault.noise.simulated:
            self.value(vault, facts)
        else:
            vault.solver.skip(self._nearest(facts))

    def centred(self, answer: Array, facts: Facts) -> Array:
        return answer + self._alone(facts)

    def around(self, origin: Array, facts: Facts) -> Self:
        """With the regulariser ``(mu / 2) ||w - origin||^2``."""
        return replace(self, start=self.start + origin, origin=np.asarray(self.origin, dtype=float) + origin)

    def beside(self, answer: Array, origin: Array) -> Array:
        return answer - origin


def _alike(facts: Facts) -> Facts:
    """Facts by which all sites refuse and certify alike: as if each had all rows, whose rounding is the largest."""
    return replace(facts, n=np.full_like(facts.n, facts.rows))
