"""Privacy loss distributions on a grid: upper bounds of hockey-stick divergences, and their composition.

The loss ``L = ln dP/dQ`` under P is split between the two grid points around it: with ``L`` in ``[l, l + h]``, the
share ``u = (1 - e^{l - L}) / (1 - e^{-h})`` goes to the upper one.  This keeps the mass under P and under Q, and lowers
no hockey-stick divergence: ``E_Q (dP/dQ - e^eps)_+`` is convex in ``dP/dQ``, and the split is a mean-preserving spread
under Q (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022).  The excess falls with the square of the step.
Distributions compose only if they share a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..util.later import Later
from ..util.typing import Array
from . import spherical

fft, special = Later("scipy.fft"), Later("scipy.special")

_MARGIN = 1e-12
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_LARGEST = 600.0  # losses beyond it are left to other bounds, so that no exponential overflows
_CUT = 13.0  # standard deviations: 1e-38


@dataclass(frozen=True)
class LossDistribution:
    """Mass on multiples of `step` from ``first * step`` upwards, and ``infinite`` at an infinite loss.

    Mass that was cut off and rounding errors count as infinite.
    """

    step: float
    first: int
    mass: Array
    infinite: float = 0.0

    @property
    def losses(self) -> Array:
        return np.asarray((self.first + np.arange(len(self.mass))) * self.step)

    def delta(self, epsilon: float) -> float:
        """``E (1 - e^{epsilon - loss})_+``."""
        loss = self.losses
        over = loss > epsilon
        return min(1.0, self.infinite + float(self.mass[over] @ -np.expm1(epsilon - loss[over])))

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 at which :meth:`delta` is at most `delta`, from above."""
        left = delta - self.infinite
        loss = self.losses
        if self.delta(0.0) <= delta:
            return 0.0
        if left <= 0.0 or loss[-1] > _LARGEST:
            return float(np.inf)
        # delta(eps) = P - e^eps Q between grid points, P and Q the masses above eps
        P = np.cumsum(self.mass[::-1])[::-1]
        Q = np.cumsum((self.mass * np.exp(-loss))[::-1])[::-1]
        at = P - np.exp(loss) * Q  # delta at each grid point, where its own mass counts nothing
        k = int(np.flatnonzero(at > left)[-1]) + 1 if np.any(at > left) else 0
        rounding = _MARGIN * P[k] * 10.0
        value = np.log((P[k] - left + rounding) / Q[k]) if P[k] > left - rounding else loss[k - 1]
        return float(max(0.0, value, loss[k - 1] if k else -np.inf))


def compose(parts: Iterable[tuple[LossDistribution, int]]) -> LossDistribution:
    """The sum of independent losses, each part as often as its count says.

    Notes
    -----
    Adaptive composition is dominated by the product of dominating pairs (Zhu, Dong and Wang 2022, Theorem 10).  One
    forward transform per part and one backward: the sum of all absolute errors is at most
    ``sqrt(n) (count + 2) 8 u log2(n)`` (Higham 2002, Theorem 24.2), which is added to the mass at infinite loss.
    """
    kept = [(part, count) for part, count in parts if count > 0]
    if not kept:
        return LossDistribution(1.0, 0, np.ones(1))
    if len({part.step for part, _ in kept}) > 1:
        raise ValueError("loss distributions of different steps cannot be composed")
    if len(kept) == 1 and kept[0][1] == 1:
        return kept[0][0]
    mass, error = _sum_of_masses(kept)
    with np.errstate(divide="ignore"):  # a part that is lost altogether loses the product
        lost = -np.expm1(sum(count * np.log1p(-part.infinite) for part, count in kept))
    first = sum(part.first * count for part, count in kept)
    return LossDistribution(kept[0][0].step, first, mass, float(lost + error))


def _sum_of_masses(kept: Sequence[tuple[LossDistribution, int]]) -> tuple[Array, float]:
    """The finite mass of a sum of independent losses on their grid, and a bound on the sum of all absolute errors."""
    size = 1 + sum((len(part.mass) - 1) * count for part, count in kept)
    n = int(fft.next_fast_len(size, real=True))
    product = np.ones(n // 2 + 1, dtype=complex)
    for part, count in kept:
        product *= fft.rfft(part.mass, n) ** count
    mass = np.clip(fft.irfft(product, n)[:size], 0.0, None)
    norm = max(float(np.linalg.norm(part.mass)) for part, _ in kept)
    error = np.sqrt(n) * (2 + sum(count for _, count in kept)) * 8 * 2.3e-16 * np.log2(max(n, 2)) * norm
    return mass, error


def _on_grid(step: float, first: int, mass: Array, up: Array, cut: float) -> LossDistribution:
    """`mass` of each cell above grid points `first`, ...; `up` is its part that goes to the cell's upper end."""
    up = np.clip(up, 0.0, mass)
    out = np.append(mass - up, 0.0)
    out[1:] += up
    return LossDistribution(step, first, out, cut)


def gaussian(mu: float, step: float) -> LossDistribution:
    """Gaussian noise with shift over sigma `mu`: the loss is ``N(mu^2/2, mu^2)`` under P, ``N(-mu^2/2, mu^2)`` under Q.

    A cell's part that goes up is ``(P(cell) - e^l Q(cell)) / (1 - e^-h)``.
    """
    centre = mu * mu / 2.0
    first = int(np.floor((centre - _CUT * mu) / step))
    last = int(np.ceil((centre + _CUT * mu) / step))
    edges = np.arange(first, last + 1) * step

    def cells(mean: float) -> Array:  # differences on the side where they keep their digits
        x = (edges - mean) / mu
        return np.asarray(
            np.where(
                x[:-1] > 0, special.ndtr(-x[:-1]) - special.ndtr(-x[1:]), special.ndtr(x[1:]) - special.ndtr(x[:-1])
            )
        )

    P, Q = cells(centre), cells(-centre)
    up = (P - np.exp(edges[:-1]) * Q) / -np.expm1(-step) + _MARGIN * P
    return _on_grid(step, first, P, up, float(2.0 * np.exp(special.log_ndtr(-_CUT))) + abs(1.0 - float(P.sum())))


def pure(epsilon: float, step: float) -> LossDistribution:
    """The pair that dominates every `epsilon`-DP mechanism: loss `epsilon` or ``-epsilon`` (randomised response)."""
    losses = np.array([-epsilon, epsilon])
    cells = np.floor(losses / step).astype(int)
    first, weights = int(cells[0]), special.expit(losses)
    mass = np.zeros(int(cells[1]) - first + 1)
    up = np.zeros_like(mass)
    mass[[0, -1]] = weights
    up[[0, -1]] = weights * np.clip(np.expm1(cells * step - losses) / np.expm1(-step), 0.0, 1.0)
    return _on_grid(step, first, mass, up, 0.0)


def shifted_ball(d: int, s: float, step: float) -> LossDistribution:
    """U2's privacy loss, see :func:`sottovoce.privacy.spherical.log_density`; for ``d = 1`` Laplace noise's."""
    low, high = spherical.window(d, s)
    first, last = int(np.floor(s * low / step)), int(np.ceil(s * high / step))
    edges = np.arange(first, last + 1) * step
    theta = np.arccos(np.clip(edges / s, low, high))
    half = 0.5 * (theta[:-1] - theta[1:])
    at = theta[1:, None] + half[:, None] * (1.0 + _NODES)
    eta = np.clip(np.cos(at), -1.0 + 1e-16, 1.0 - 1e-16)
    density = np.exp(spherical.log_density(eta, d, s)) * np.sin(at)
    share = np.clip(np.expm1(edges[:-1, None] - s * eta) / np.expm1(-step), 0.0, 1.0)
    mass, up = half * (density @ _WEIGHTS), half * ((density * share) @ _WEIGHTS)
    whole = float(mass.sum())
    if d == 1:  # atoms at both ends: loss s with probability 1/2, -s with e^-s / 2
        ends = np.array([0.5 * np.exp(-s), 0.5])
        whole += float(ends.sum())
        mass[[0, -1]] += ends
        above = np.array([-s - edges[0], s - edges[-2]])
        up[[0, -1]] += ends * np.clip(np.expm1(-above) / np.expm1(-step), 0.0, 1.0)
    return _on_grid(step, first, mass, up * (1.0 + _MARGIN), 2e-25 + abs(1.0 - whole))
