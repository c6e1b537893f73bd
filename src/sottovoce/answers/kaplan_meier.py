"""Kaplan-Meier curves, medians, restricted means and the log-rank test from noisy counts by cell.

Time is cut by a public grid into m cells.  Of every group of people a release has how many leave
follow-up in each cell, with the event or without (:class:`sottovoce.answers.hazards.LifeTable`).
Without noise a cell holds a single time, its end, at which events come before censoring: the
estimates are those of rounded times.  With noise cells are coarse: people censored inside one count
as at risk for half of it, and events are spread evenly.

Intervals hold the sampling error, by Greenwood's formula, and that of the noise, by the delta
method on all counts: a count's noise moves the number at risk in all cells before it.

Arrays have any axes in front (replicates, groups) and m cells last.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..util.later import Later
from ..util.typing import Array, BoolArray
from .hazards import LifeTable

special = Later("scipy.special")

Z = 1.959963984540054
"""Half of the width of a 95% interval, in standard errors."""
LEAST = 5.0
"""Number at risk, over the standard deviation of its noise, below which a curve ends."""
INSIDE = 0.5
"""Part of a cell in which people censored inside it are at risk, where cells are coarse."""
LOWEST_HAZARD = -0.5
"""Hazard of a cell below which noise is cut off."""
MOST_HAZARD = 0.95
"""Largest hazard of a cell that a variance is computed with."""
KINDS = 3
"""Counts of a cell: events, people censored inside, and people censored at its end."""


class Interval(NamedTuple):
    """An estimate with a 95% interval; NaN where noise or the end of follow-up hides it."""

    value: Array
    low: Array
    high: Array


class CurveTable:
    """Curves of groups of people, with all that is estimated from them.

    Parameters
    ----------
    counts : array (..., number_of_cells(m, 1))
        Noisy counts of people, in the order of :func:`sottovoce.answers.hazards.number_of_cells`.
    sigma : float
        Standard deviation of the noise on each count.
    edges : array (m + 1,)
        Public ends of the cells, from 0.
    """

    def __init__(self, counts: Array, sigma: float, edges: Array) -> None:
        m = len(edges) - 1
        self.counts = counts
        self.sigma = sigma
        self.edges = edges
        self.cells = m
        self.table = LifeTable(counts, sigma, m, 1)
        self.events = self.table.events[..., 0]
        self.entered = self.table.share_at_risk[..., 0]
        # How much of those censored in a cell is taken from its number at risk.
        self.part = INSIDE if sigma > 0.0 else 0.0
        self.exposed = self.entered - self.part * self.table.inside[..., 0]

    @property
    def seen(self) -> Array:
        """Noisy numbers of people seen without the event until each end of a cell, (..., m + 1).

        They never rise: of the noisy numbers this is the nearest such sequence.
        """
        later = np.concatenate([self.entered[..., 1:], np.zeros_like(self.entered[..., :1])], -1)
        after = later + self.table.at_end
        whole = np.concatenate([self.entered[..., :1], after], axis=-1)
        return np.asarray(np.maximum(-nearest_increasing(-whole, np.ones_like(whole)), 0.0))

    @property
    def exposed_noise(self) -> Array:
        """Standard deviation of the noise in the number at risk of each cell, (m,)."""
        left = KINDS * np.arange(self.cells, 0, -1.0)
        return np.asarray(self.sigma * np.sqrt(left - 1.0 + (1.0 - self.part) ** 2))

    @cached_property
    def visible(self) -> BoolArray:
        """Whether a curve is told at the end of each cell, (..., m).

        It ends where nobody is at risk, or noise hides how many are.
        """
        enough = (self.exposed > 0.0) & (self.exposed >= LEAST * self.exposed_noise)
        return np.logical_and.accumulate(enough, axis=-1)

    @cached_property
    def at_risk(self) -> Array:
        """Numbers at risk where a curve is visible, else 1, (..., m)."""
        return np.where(self.visible, self.exposed, 1.0)

    @cached_property
    def hazards(self) -> Array:
        """Hazards of the cells, 0 where nothing is visible; noise may make them negative."""
        found = np.where(self.visible, self.events / self.at_risk, 0.0)
        return np.clip(found, LOWEST_HAZARD, 1.0)

    @cached_property
    def raw(self) -> Array:
        """Survival at the ends of cells by the noisy hazards as they are, (..., m)."""
        return np.asarray(np.cumprod(1.0 - self.hazards, axis=-1), dtype=np.float64)

    @cached_property
    def smooth_hazards(self) -> Array:
        """Hazards of the nearest survival curve that never rises."""
        if not self.sigma > 0.0:
            return np.minimum(self.hazards, 1.0)
        cumulative = -np.log(np.maximum(self.raw, 1e-3))
        # Variances of the noise add up along the curve.
        weight = 1.0 / np.cumsum(1.0 / self.at_risk**2, axis=-1)
        rising = np.maximum(nearest_increasing(cumulative, weight), 0.0)
        increments = np.diff(rising, axis=-1, prepend=0.0)
        return np.minimum(-np.expm1(-increments), MOST_HAZARD)

    @cached_property
    def smooth(self) -> Array:
        """Survival by :attr:`smooth_hazards`, (..., m), which never rises and lies in [0, 1]."""
        return np.asarray(np.cumprod(1.0 - self.smooth_hazards, axis=-1), dtype=np.float64)

    def _step_variances(self) -> Array:
        """Return Greenwood's sampling variance of each cell's ``log(1 - hazard)``, (..., m)."""
        h = np.minimum(self.smooth_hazards, MOST_HAZARD if self.sigma > 0.0 else 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(h / (self.at_risk * (1.0 - h)))

    def _noise_gradients(self, weight: Array) -> Array:
        """Return the variance of the noise in ``sum_k weight_k log(1 - hazard_k)``, (...).

        `weight` is (..., m).  A person more with the event in cell j adds to events there, and to
        the numbers at risk of all cells up to j.
        """
        h = np.minimum(self.smooth_hazards, MOST_HAZARD)
        unit = np.where(self.visible, weight / (self.at_risk * (1.0 - h)), 0.0)
        risk = np.cumsum(h * unit, axis=-1)
        of_event = risk - unit
        of_inside = risk - self.part * h * unit
        total = (of_event**2 + of_inside**2 + risk**2).sum(axis=-1)
        return np.asarray(self.sigma**2 * total)

    @cached_property
    def log_variances(self) -> tuple[Array, Array]:
        """Variances of sampling and of noise in the logarithm of survival at each end, (..., m)."""
        sampling = np.cumsum(self._step_variances(), axis=-1)
        # The sum up to cell k has weight 1 up to there.
        weights = np.tril(np.ones((self.cells, self.cells)))
        noise = np.zeros_like(sampling)
        if self.sigma > 0.0:
            for k in range(self.cells):
                noise[..., k] = self._noise_gradients(weights[k])
        return sampling, noise

    def survival(self) -> Interval:
        """Estimate survival at the ends of cells with bands of 95% at each, (..., m).

        The estimate never rises and lies in [0, 1], as the bands do: those of the noisy curve are
        only ever widened for it.

        Returns
        -------
        Interval
        """
        sampling, noise = self.log_variances
        if self.sigma > 0.0:
            low, high = self._bands_with_noise(noise)
            # Never narrower: the lower band has the least so far, the upper one the largest later.
            hidden = ~self.visible
            low = np.minimum.accumulate(np.where(hidden, np.inf, low), axis=-1)
            flipped = np.flip(np.where(hidden, -np.inf, high), axis=-1)
            high = np.flip(np.maximum.accumulate(flipped, axis=-1), axis=-1)
            value = np.clip(self.smooth, low, high)
        else:
            low, high = self._bands_without_noise(sampling)
            value = self.raw
        return Interval(*(np.where(self.visible, x, np.nan) for x in (value, low, high)))

    def _bands_without_noise(self, sampling: Array) -> tuple[Array, Array]:
        """Return bands on the scale of ``log(-log S)``; by Wilson where S is 0 or 1."""
        S = self.raw
        inside = (S > 0.0) & (S < 1.0)
        log = np.log(np.where(inside, S, 0.5))
        width = Z * np.sqrt(np.where(inside, sampling, 0.0)) / -log
        low, high = np.exp(log * np.exp(width)), np.exp(log * np.exp(-width))
        # Nobody has had the event, or everybody: as of a share among all at risk.
        square = Z**2 / self.at_risk
        end = square / (1.0 + square)
        low = np.where(inside, low, np.where(S >= 1.0, 1.0 - end, 0.0))
        return low, np.where(inside, high, np.where(S >= 1.0, 1.0, end))

    def _bands_with_noise(self, noise: Array) -> tuple[Array, Array]:
        """Return bands by inversion: all p with ``(S - p)^2 <= z^2 (p (1 - p) / M + noise)``.

        M is the size of an uncensored sample with the same sampling variance (Rothman 1978).  The
        noisy S may lie outside [0, 1].
        """
        M = self._effective_sizes()
        variance = noise * self.smooth**2
        S = self.raw
        square = Z**2 / M
        middle = (S + 0.5 * square) / (1.0 + square)
        root = middle**2 - (S**2 - Z**2 * variance) / (1.0 + square)
        half = np.sqrt(np.maximum(root, variance * Z**2 / (1.0 + square)))
        return np.clip(middle - half, 0.0, 1.0), np.clip(middle + half, 0.0, 1.0)

    def _effective_sizes(self) -> Array:
        """Return the sizes of uncensored samples with the same sampling variances, (..., m)."""
        # Half an event, spread over time, gives a size where there are none.
        spread = np.diff(self.edges) / (self.edges[-1] - self.edges[0])
        h = np.minimum(self.smooth_hazards + 0.5 * spread / self.at_risk, MOST_HAZARD)
        S = np.cumprod(1.0 - h, axis=-1)
        variance = np.cumsum(h / (self.at_risk * (1.0 - h)), axis=-1)
        return np.asarray((1.0 - S) / (S * variance))

    def medians(self, told: Interval) -> Interval:
        """Return median times with intervals by inversion of the bands, (...).

        NaN where the curve, or a band, does not come down to one half.

        Parameters
        ----------
        told : Interval
            As :meth:`survival` returned it.

        Returns
        -------
        Interval
            The low end is where the lower band crosses one half, the high end where the upper does.
        """
        even = self.sigma > 0.0
        return Interval(*(first_crossing(x, self.edges, even=even) for x in told))

    def restricted_means(self) -> Interval:
        """Return mean times without the event up to the last end, (...).

        NaN where the curve ends before.  With noise the area is that of straight lines.

        Returns
        -------
        Interval
        """
        lengths = np.diff(self.edges)
        # Area is the sum of weight times survival: of steps, or of straight lines.
        first, weight = lengths[0], np.append(lengths[1:], 0.0)
        if self.sigma > 0.0:
            first = 0.5 * lengths[0]
            weight = 0.5 * (lengths + np.append(lengths[1:], 0.0))
        mean = first + (weight * self.raw).sum(axis=-1)
        # What one cell's hazard takes away is all area that comes later.
        parts = np.where(self.visible, weight * self.smooth, 0.0)
        later = np.flip(np.cumsum(np.flip(parts, -1), axis=-1), -1)
        steps = self._step_variances()
        sampling = np.where(later > 0.0, later**2 * np.where(later > 0.0, steps, 0.0), 0.0)
        variance = sampling.sum(axis=-1)
        if self.sigma > 0.0:
            variance = variance + self._noise_gradients(later)
        half = Z * np.sqrt(variance)
        longest = self.edges[-1] - self.edges[0]
        whole = self._whole()
        return Interval(
            *(
                np.where(whole, np.clip(x, 0.0, longest), np.nan)
                for x in (mean, mean - half, mean + half)
            )
        )

    def _whole(self) -> BoolArray:
        """Whether the curve is told up to the last end, or has come to 0 before, (...)."""
        gone = (self.raw <= 0.0).any(axis=-1) if not self.sigma > 0.0 else False
        return np.asarray(self.visible[..., -1] | gone)


class LogRank(NamedTuple):
    """Log-rank tests, each (...).

    Parameters
    ----------
    statistic : array
        NaN where noise hides what it needs.
    p : array
    df : int
        Degrees of freedom.
    noise_share : array
        Share of the noise in the variance of observed less expected events.
    hidden : bool array
        Whether noise hides a group's number at risk, or all events.
    """

    statistic: Array
    p: Array
    df: int
    noise_share: Array
    hidden: BoolArray


def log_rank(curves: CurveTable) -> LogRank:
    """Test whether all groups have the same hazards; groups are the last axis but one.

    Observed less expected events have the hypergeometric variance and that of the noise in events
    and in numbers at risk.  Observed less expected are not clipped, so that noise does not bias
    them.

    Parameters
    ----------
    curves : CurveTable
        Of two groups or more.

    Returns
    -------
    LogRank
    """
    groups, m, sigma = curves.events.shape[-2], curves.cells, curves.sigma
    exposed, events = curves.exposed, curves.events
    whole = exposed.sum(axis=-2)
    least = LEAST * curves.exposed_noise * np.sqrt(groups)
    used = np.logical_and.accumulate((whole > 0.0) & (whole >= least), axis=-1)
    safe = np.where(used, whole, 1.0)
    hazard = np.where(used, events.sum(axis=-2) / safe, 0.0)
    share = np.where(used[..., None, :], exposed / safe[..., None, :], 0.0)
    counted = np.where(used[..., None, :], events, 0.0)
    difference = (counted - exposed * hazard[..., None, :]).sum(axis=-1)
    # Variances: shares are probabilities here, whatever noise made of them.
    share = np.clip(share, 0.0, None)
    share = share / np.maximum(share.sum(axis=-2, keepdims=True), 1e-300)
    left = np.where(safe > 1.0, (safe - safe * hazard) / np.maximum(safe - 1.0, 1e-300), 0.0)
    each = safe * hazard * left * used
    sampling = _multinomial_covariance(each, share)
    noise = np.zeros_like(sampling)
    if sigma > 0.0:
        noise = sigma**2 * _noise_covariance(hazard, share, used, curves.part)
    total = (each * (1.0 - (share**2).sum(axis=-2))).sum(axis=-1)
    of_noise = np.trace(noise, axis1=-2, axis2=-1)
    seen = curves.visible[..., 0].all(axis=-1) if m else False
    hidden = ~(np.asarray(seen) & (total > 0.0))
    covariance = (sampling + noise)[..., :-1, :-1]
    ok = ~hidden & (np.linalg.matrix_rank(covariance) == groups - 1)
    safe_covariance = np.where(ok[..., None, None], covariance, np.eye(groups - 1))
    solved = np.linalg.solve(safe_covariance, difference[..., :-1, None])[..., 0]
    statistic = np.where(ok, (difference[..., :-1] * solved).sum(axis=-1), np.nan)
    p = special.chdtrc(groups - 1, np.maximum(statistic, 0.0))
    both = np.maximum(total, 0.0) + of_noise
    noise_share = np.divide(of_noise, both, out=np.zeros_like(of_noise), where=both > 0.0)
    return LogRank(statistic, np.asarray(p), groups - 1, noise_share, ~ok)


def _multinomial_covariance(each: Array, share: Array) -> Array:
    """Return ``sum_k each_k (diag(p_k) - p_k p_k')`` with shares p, (..., groups, groups)."""
    groups = share.shape[-2]
    weighted = each[..., None, :] * share
    diagonal = weighted.sum(axis=-1)[..., None] * np.eye(groups)
    return np.asarray(diagonal - weighted @ np.swapaxes(share, -1, -2))


def _noise_covariance(hazard: Array, share: Array, used: BoolArray, part: float) -> Array:
    """Return the covariance of observed less expected events for noise of deviation 1 on counts.

    One more person of group j who leaves in cell k changes ``O_g - E_g`` by ``d_k - R_k`` with
    ``d_k = [g = j] - p_gk`` for an event, else 0, and ``R_k = sum of hazard_i d_i`` over the cells
    up to k, in which the person was at risk.
    """
    groups = share.shape[-2]
    found = np.zeros((*share.shape[:-2], groups, groups))
    for j in range(groups):
        unit = np.zeros((groups, 1))
        unit[j] = 1.0
        moved = np.where(used[..., None, :], unit - share, 0.0)
        risk = np.cumsum(hazard[..., None, :] * moved, axis=-1)
        own = hazard[..., None, :] * moved
        for change in (moved - risk, part * own - risk, -risk):
            found += change @ np.swapaxes(change, -1, -2)
    return found


def nearest_increasing(x: Array, weight: Array) -> Array:
    """Return the increasing sequence that is nearest in weighted squares, along the last axis.

    By pooling adjacent violators.

    Parameters
    ----------
    x : array (..., m)
    weight : array (..., m)
        Above 0.

    Returns
    -------
    array (..., m)
    """
    flat, weights = x.reshape(-1, x.shape[-1]), np.broadcast_to(weight, x.shape)
    weights = weights.reshape(flat.shape)
    return np.array(
        [_pool_violators(one, own) for one, own in zip(flat, weights, strict=True)]
    ).reshape(x.shape)


def _pool_violators(x: Array, weight: Array) -> Array:
    """Return the nearest increasing sequence to one sequence, (m,)."""
    means: list[float] = []
    masses: list[float] = []
    sizes: list[int] = []
    for value, mass in zip(x.tolist(), weight.tolist(), strict=True):
        means.append(value)
        masses.append(mass)
        sizes.append(1)
        while len(means) > 1 and means[-2] > means[-1]:
            above, mass_above, size = means.pop(), masses.pop(), sizes.pop()
            together = masses[-1] + mass_above
            means[-1] = (means[-1] * masses[-1] + above * mass_above) / together
            masses[-1] = together
            sizes[-1] += size
    return np.repeat(means, sizes)


def first_crossing(survival: Array, edges: Array, *, even: bool) -> Array:
    """Return the first time at which curves are at most one half, (...); NaN if there is none.

    Parameters
    ----------
    survival : array (..., m)
        At the ends of cells; NaN where a curve has ended.
    edges : array (m + 1,)
    even : bool
        Whether survival falls evenly within a cell; else at its end.

    Returns
    -------
    array (...)
    """
    below = survival <= 0.5  # NaN is not
    cell = below.argmax(axis=-1)
    time = edges[1:][cell]
    if even:
        whole = np.concatenate([np.ones_like(survival[..., :1]), survival], axis=-1)
        before = np.take_along_axis(whole, cell[..., None], axis=-1)[..., 0]
        after = np.take_along_axis(survival, cell[..., None], axis=-1)[..., 0]
        fall = before - after
        part = np.divide(before - 0.5, fall, out=np.ones_like(fall), where=fall > 0.0)
        time = edges[cell] + np.clip(part, 0.0, 1.0) * np.diff(edges)[cell]
    return np.where(below.any(axis=-1), time, np.nan)


__all__ = [
    "INSIDE",
    "LEAST",
    "CurveTable",
    "Interval",
    "LogRank",
    "Z",
    "first_crossing",
    "log_rank",
    "nearest_increasing",
]
