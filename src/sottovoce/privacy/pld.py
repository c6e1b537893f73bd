"""Privacy loss distributions on a grid, and their composition.

They give upper bounds of hockey-stick divergences, delta as a function of epsilon.  P and Q are the
laws of a release on the two neighbouring data sets, or a pair that dominates them.

The loss ``L = ln dP/dQ`` under P is split between the two grid points around it: with ``L`` in
``[l, l + h]``, the share ``u = (1 - e^{l - L}) / (1 - e^{-h})`` goes to the upper one.  This keeps
the mass under P and under Q, and lowers no hockey-stick divergence: ``E_Q (dP/dQ - e^eps)_+`` is
convex in ``dP/dQ``, and the split is a mean-preserving spread under Q (Doroshenko, Ghazi, Kamath,
Kumar and Manurangsi 2022).  The excess falls with the square of the step.  Distributions compose
only if they share a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..util.later import Later
from ..util.typing import Array
from . import spherical

fft, special = Later("scipy.fft"), Later("scipy.special")

# Relative margin for rounding.
_MARGIN = 1e-12
# Gauss-Legendre nodes and weights for the integral over a cell.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
# Losses beyond it are left to other bounds, so that no exponential overflows.
_LARGEST = 600.0
# Standard deviations beyond which a Gaussian is cut off: a probability of 1e-38.
_CUT = 13.0


@dataclass(frozen=True)
class LossDistribution:
    """A distribution of the privacy loss on multiples of a step.

    Parameters
    ----------
    step : float
        The grid's step, > 0.
    first : int
        The smallest loss, in steps.
    mass : array of shape (k,)
        Probabilities of the losses ``first * step``, ``(first + 1) * step``, ...
    infinite : float
        Probability of an infinite loss; mass that was cut off and rounding errors count as such.
    """

    step: float
    first: int
    mass: Array
    infinite: float = 0.0

    @property
    def losses(self) -> Array:
        return np.asarray((self.first + np.arange(len(self.mass))) * self.step)

    def delta(self, epsilon: float) -> float:
        """Return delta at `epsilon`: ``E (1 - e^{epsilon - loss})_+``."""
        loss = self.losses
        over = loss > epsilon
        return min(1.0, self.infinite + float(self.mass[over] @ -np.expm1(epsilon - loss[over])))

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon >= 0 at which :meth:`delta` is at most `delta`, from above."""
        left = delta - self.infinite
        loss = self.losses
        if self.delta(0.0) <= delta:
            return 0.0
        if left <= 0.0 or loss[-1] > _LARGEST:
            return float(np.inf)
        # delta(eps) = P - e^eps Q between grid points, P and Q the masses above eps
        P = np.cumsum(self.mass[::-1])[::-1]
        Q = np.cumsum((self.mass * np.exp(-loss))[::-1])[::-1]
        # delta at each grid point, where its own mass counts nothing.
        at = P - np.exp(loss) * Q
        # Epsilon lies above the last grid point k - 1 at which delta is too large, and up to point
        # k.
        k = 0
        above = -np.inf
        if np.any(at > left):
            k = int(np.flatnonzero(at > left)[-1]) + 1
            above = loss[k - 1]
        # Solve P - e^eps Q = left for eps, with P and Q the masses from grid point k on, and a
        # margin for the rounding of the sums.
        rounding = _MARGIN * P[k] * 10.0
        if P[k] > left - rounding:
            value = np.log((P[k] - left + rounding) / Q[k])
        else:
            value = loss[k - 1]
        return float(max(0.0, value, above))


def compose_losses(parts: Iterable[tuple[LossDistribution, int]]) -> LossDistribution:
    """Return the distribution of a sum of independent losses.

    Parameters
    ----------
    parts : iterable of pairs
        Loss distributions of one step, each with how often it comes.

    Returns
    -------
    LossDistribution

    Raises
    ------
    ValueError
        If steps differ.

    Notes
    -----
    Adaptive composition is dominated by the product of dominating pairs (Zhu, Dong and
    Wang 2022, Theorem 10).  One forward transform per part and one backward, of n points each: the
    sum of all absolute errors is at most ``sqrt(n) (count + 2) 8 u log2(n) max ||mass||_2``
    (Higham 2002, Theorem 24.2), where count is that of all losses, the maximum is over the parts'
    masses, and u = 2.3e-16.  It is added to the probability of an infinite loss.
    """
    kept = [(part, count) for part, count in parts if count > 0]
    if not kept:
        return LossDistribution(1.0, 0, np.ones(1))
    if len({part.step for part, _ in kept}) > 1:
        raise ValueError("loss distributions of different steps cannot be composed")
    if len(kept) == 1 and kept[0][1] == 1:
        return kept[0][0]
    mass, error = _sum_of_masses(kept)
    # A part that is lost altogether loses the product.
    with np.errstate(divide="ignore"):
        lost = -np.expm1(sum(count * np.log1p(-part.infinite) for part, count in kept))
    first = sum(part.first * count for part, count in kept)
    return LossDistribution(kept[0][0].step, first, mass, float(lost + error))


def _sum_of_masses(kept: Sequence[tuple[LossDistribution, int]]) -> tuple[Array, float]:
    """Return the finite mass of a sum of independent losses, and a bound on its error.

    The bound is on the sum of all absolute errors.
    """
    size = 1 + sum((len(part.mass) - 1) * count for part, count in kept)
    n = int(fft.next_fast_len(size, real=True))
    product = np.ones(n // 2 + 1, dtype=complex)
    for part, count in kept:
        product *= fft.rfft(part.mass, n) ** count
    # Rounding leaves masses below 0, which the bound on the error covers.
    mass = np.clip(fft.irfft(product, n)[:size], 0.0, None)
    # Transforms of masses are at most 1, so that an error of one factor is not enlarged by the
    # others; it is in proportion to that factor's Euclidean norm.
    norm = max(float(np.linalg.norm(part.mass)) for part, _ in kept)
    error = (
        np.sqrt(n) * (2 + sum(count for _, count in kept)) * 8 * 2.3e-16 * np.log2(max(n, 2)) * norm
    )
    return mass, error


def _distribution_on_grid(
    step: float, first: int, mass: Array, up: Array, cut: float
) -> LossDistribution:
    """Return the distribution on the grid, given the mass of each of its cells.

    Parameters
    ----------
    step : float
        The grid's step.
    first : int
        The lower end of the first cell, in steps.
    mass : array (k,)
        Probability of each cell under P.
    up : array (k,)
        The part of it that goes to the cell's upper end; the rest goes to its lower end.
    cut : float
        Probability of losses outside the cells, which count as infinite.

    Returns
    -------
    LossDistribution
    """
    up = np.clip(up, 0.0, mass)
    out = np.append(mass - up, 0.0)
    out[1:] += up
    return LossDistribution(step, first, out, cut)


def gaussian_loss(mu: float, step: float) -> LossDistribution:
    """Return the privacy loss of Gaussian noise with sensitivity over sigma `mu`, on a grid.

    The loss is ``N(mu^2/2, mu^2)`` under P and ``N(-mu^2/2, mu^2)`` under Q.  A cell's part that
    goes up is ``(P(cell) - e^l Q(cell)) / (1 - e^-h)``.
    """
    centre = mu * mu / 2.0
    first = int(np.floor((centre - _CUT * mu) / step))
    last = int(np.ceil((centre + _CUT * mu) / step))
    edges = np.arange(first, last + 1) * step

    # Differences on the side where they keep their digits.
    def cells(mean: float) -> Array:
        x = (edges - mean) / mu
        return np.asarray(
            np.where(
                x[:-1] > 0,
                special.ndtr(-x[:-1]) - special.ndtr(-x[1:]),
                special.ndtr(x[1:]) - special.ndtr(x[:-1]),
            )
        )

    P, Q = cells(centre), cells(-centre)
    # E_P e^-L over a cell is Q of it; the margin rounds the upper part up.
    up = (P - np.exp(edges[:-1]) * Q) / -np.expm1(-step) + _MARGIN * P
    return _distribution_on_grid(
        step, first, P, up, float(2.0 * np.exp(special.log_ndtr(-_CUT))) + abs(1.0 - float(P.sum()))
    )


def randomised_response_loss(epsilon: float, step: float) -> LossDistribution:
    """Return the privacy loss of randomised response, which dominates every `epsilon`-DP mechanism.

    It is `epsilon` or ``-epsilon``.
    """
    losses = np.array([-epsilon, epsilon])
    cells = np.floor(losses / step).astype(int)
    first, weights = int(cells[0]), special.expit(losses)
    mass = np.zeros(int(cells[1]) - first + 1)
    up = np.zeros_like(mass)
    mass[[0, -1]] = weights
    # The split u of the module's docstring, of each of the two atoms.
    up[[0, -1]] = weights * np.clip(np.expm1(cells * step - losses) / np.expm1(-step), 0.0, 1.0)
    return _distribution_on_grid(step, first, mass, up, 0.0)


def shifted_ball(d: int, s: float, step: float) -> LossDistribution:
    """Return the privacy loss of spherical noise on an answer (U2), on a grid.

    Parameters
    ----------
    d : int
        Entries of the answer; for ``d = 1`` the noise is Laplace's.
    s : float
        Rate of the noise times the shift, ``beta ||shift||``, > 0.
    step : float
        The grid's step, > 0.

    Returns
    -------
    LossDistribution
        Its density is :func:`sottovoce.privacy.spherical.log_density`.
    """
    low, high = spherical.loss_support(d, s)
    first, last = int(np.floor(s * low / step)), int(np.ceil(s * high / step))
    edges = np.arange(first, last + 1) * step
    # With eta = cos(theta) the density has no singularity at the ends; Gauss-Legendre nodes in each
    # cell.
    theta = np.arccos(np.clip(edges / s, low, high))
    half = 0.5 * (theta[:-1] - theta[1:])
    at = theta[1:, None] + half[:, None] * (1.0 + _NODES)
    eta = np.clip(np.cos(at), -1.0 + 1e-16, 1.0 - 1e-16)
    density = np.exp(spherical.log_density(eta, d, s)) * np.sin(at)
    share = np.clip(np.expm1(edges[:-1, None] - s * eta) / np.expm1(-step), 0.0, 1.0)
    mass, up = half * (density @ _WEIGHTS), half * ((density * share) @ _WEIGHTS)
    whole = float(mass.sum())
    # Theorem 1 for d = 1 has atoms at both ends: loss s with probability 1/2, -s with e^-s / 2.
    if d == 1:
        ends = np.array([0.5 * np.exp(-s), 0.5])
        whole += float(ends.sum())
        mass[[0, -1]] += ends
        above = np.array([-s - edges[0], s - edges[-2]])
        up[[0, -1]] += ends * np.clip(np.expm1(-above) / np.expm1(-step), 0.0, 1.0)
    return _distribution_on_grid(step, first, mass, up * (1.0 + _MARGIN), 2e-25 + abs(1.0 - whole))
