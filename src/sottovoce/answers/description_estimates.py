"""Estimates of a descriptive table from its noisy sums, with intervals of noise and sampling.

Sums have independent noise of one standard deviation in every entry, so estimates are linear in
them, or ratios of such, with errors by the delta method.

*Counts.*  Every row of a group is in one cell of each block, so each block tells the number n of
rows by the sum of its cells; these are averaged by precision.  A cell's count is then ``c = y -
mean y + n / cells``: what is left of the block's noise has no covariance with n.  An interval of a
count holds noise alone: it is of these rows.

*Shares* are of the rows whose value is known.  Their interval is Wilson's with the noise added: the
p with ``|estimate - p| <= z sqrt(v + p (1 - p) / rows)``, v the variance by noise.

*Means and standard deviations* come from the two moments, and sampling's share in the error of a
standard deviation from the fourth moment, which the histogram tells.

*Quartiles* come from the distribution function at the cells' ends, as if it were linear in between.
A quartile's interval has all cells at whose ends the function is not further from its share than z
standard errors, of noise and sampling together.  As it has whole cells, it holds however the rows
lie within them: numbers may be whole.

*Standardised mean differences* are differences of means, or of shares of a level, over the root of
the mean of both groups' variances.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..queries import LevelSums, NumberSums
from ..util import normal
from ..util.typing import Any, Array
from .description import Contents, Levels, Quantity

Z = -normal.normal_quantile(0.025)
"""Half-width of a 95% interval, in standard errors."""
QUARTILES = {"q1": 0.25, "median": 0.5, "q3": 0.75}
HIDDEN = "hidden by noise"
"""What is said of a line whose interval says no more than the bounds do."""
FEW = "too few rows for this noise"
"""What is said where noise may hide all rows of a group that have a value."""
LEAST = 4.0
"""Standard deviations of noise that a count of rows must exceed, so that ratios to it are normal,
and that the variance under a standardised difference must exceed."""


class Estimate(NamedTuple):
    """An estimate with its errors.

    Parameters
    ----------
    value, low, high : float
        Estimate and ends of its 95% interval; NaN where it is refused.
    noise, sampling : float
        Standard errors by privacy noise, and by sampling; 0 where there is none.
    says : str
        Why it is refused; empty if it is not.
    """

    value: float
    low: float
    high: float
    noise: float = 0.0
    sampling: float = 0.0
    says: str = ""

    @classmethod
    def refused(cls, why: str) -> Estimate:
        """Return no numbers, but why there are none."""
        return cls(math.nan, math.nan, math.nan, math.nan, math.nan, why)

    def within(self, low: float, high: float) -> Estimate:
        """Return the estimate with its numbers clipped to known bounds.

        It is refused if its interval has both of them.
        """
        if self.says:
            return self
        if self.noise > 0.0 and self.low <= low and self.high >= high:
            return Estimate.refused(HIDDEN)
        value, least, most = (min(max(x, low), high) for x in (self.value, self.low, self.high))
        return Estimate(value, least, most, self.noise, self.sampling)


def normal_interval(value: float, noise: float, sampling: float = 0.0) -> Estimate:
    """Return an estimate with a normal interval.

    Parameters
    ----------
    value : float
    noise, sampling : float
        Standard errors.

    Returns
    -------
    Estimate
    """
    half = Z * math.hypot(noise, sampling)
    return Estimate(value, value - half, value + half, noise, sampling)


@dataclass(frozen=True)
class Counts:
    """The cells of a block in a group, with their noise.

    Parameters
    ----------
    cells : array (cells,)
        Estimated counts, which add up to `rows`; the last one is of missing values.
    rows : float
        Estimated number of rows of the group.
    own : float
        Variance of the block's own noise in a cell.
    of_rows : float
        Variance of the noise in `rows`.
    """

    cells: Array
    rows: float
    own: float
    of_rows: float

    def variance(self, weights: Array) -> float:
        """Return the variance by noise of a weighted sum of the cells."""
        return float(self.variance_of(weights.sum(), weights @ weights))

    def variance_of(self, total: Array, squares: Array) -> Array:
        """Return the variance by noise of weighted sums of the cells, from their weights' sums and
        sums of squares.
        """
        many = len(self.cells)
        inside = self.own * np.maximum(squares - total**2 / many, 0.0)
        return np.asarray(inside + self.of_rows * (total / many) ** 2)

    @property
    def known(self) -> float:
        """Estimated number of rows with a value."""
        return self.rows - float(self.cells[-1])

    @property
    def of_known(self) -> Array:
        """Weights of the cells in the number of rows with a value."""
        weights = np.ones(len(self.cells))
        weights[-1] = 0.0
        return weights

    @property
    def too_few(self) -> bool:
        """Whether noise may hide all rows with a value."""
        known = self.known
        return known < 0.5 or known < LEAST * math.sqrt(self.variance(self.of_known))

    def share(self, cell: int) -> Estimate:
        """Estimate the share of a cell: of missing values among all rows, of others among known."""
        among = np.ones(len(self.cells))
        total = self.rows
        if cell not in (-1, len(self.cells) - 1):
            among, total = self.of_known, self.known
        if total < 0.5 or total < LEAST * math.sqrt(self.variance(among)):
            return Estimate.refused(FEW)
        p = float(self.cells[cell]) / total
        weights = -p * among
        weights[cell] += 1.0
        noise = math.sqrt(self.variance(weights)) / total
        return wilson_interval(p, noise, total)

    def count(self, cell: int) -> Estimate:
        """Estimate the count of a cell, with an interval of noise alone."""
        weights = np.zeros(len(self.cells))
        weights[cell] = 1.0
        found = normal_interval(float(self.cells[cell]), math.sqrt(self.variance(weights)))
        return found.within(0.0, math.inf)


def wilson_interval(p: float, noise: float, rows: float) -> Estimate:
    """Return a share with Wilson's interval of sampling, and the variance by noise within it.

    Parameters
    ----------
    p : float
        Estimate of the share.
    noise : float
        Its standard error by noise.
    rows : float
        Number of rows.

    Returns
    -------
    Estimate
    """
    inside = min(max(p, 0.0), 1.0)
    a = 1.0 + Z**2 / rows
    b = p + Z**2 / (2.0 * rows)
    root = math.sqrt(max(b**2 - a * (p**2 - (Z * noise) ** 2), 0.0))
    sampling = math.sqrt(inside * (1.0 - inside) / rows)
    return Estimate(p, (b - root) / a, (b + root) / a, noise, sampling).within(0.0, 1.0)


def count_blocks(
    y: Array, sigma: float, blocks: Sequence[LevelSums | NumberSums], rows: float | None
) -> list[Counts]:
    """Estimate the counts of all blocks of a group.

    Parameters
    ----------
    y : array (entries,)
        Noisy sums of the group.
    sigma : float
        Standard deviation of the noise on each of them.
    blocks : sequence of LevelSums or NumberSums
        In the order of the sums.
    rows : float or None
        Number of rows of the group, if it is public.

    Returns
    -------
    list of Counts
        One for each block.
    """
    raw = []
    start = 0
    for block in blocks:
        own = y[start : start + block.entries]
        start += block.entries
        if isinstance(block, NumberSums):
            raw.append((own[2 : 2 + block.cells] / block.cell_factor, block.cell_factor))
        else:
            raw.append((own / block.scale, block.scale))
    precision = np.array([factor**2 / len(cells) for cells, factor in raw])
    total, of_rows = rows, 0.0
    if total is None:
        sums = np.array([cells.sum() for cells, _ in raw])
        total = float(precision @ sums / precision.sum())
        of_rows = sigma**2 / float(precision.sum())
    return [
        Counts(cells - cells.mean() + total / len(cells), total, (sigma / factor) ** 2, of_rows)
        for cells, factor in raw
    ]


@dataclass(frozen=True)
class Moments:
    """Mean and variance of a number in a group, in its own unit, with their errors squared.

    Parameters
    ----------
    mean, variance : float
    noise_of_mean, noise_of_variance : float
        Variances by noise.
    sampling_of_mean, sampling_of_variance : float
        Variances by sampling.
    """

    mean: float
    variance: float
    noise_of_mean: float
    noise_of_variance: float
    sampling_of_mean: float
    sampling_of_variance: float

    @property
    def of_mean(self) -> Estimate:
        """The mean, with a normal interval."""
        return normal_interval(
            self.mean, math.sqrt(self.noise_of_mean), math.sqrt(self.sampling_of_mean)
        )

    @property
    def of_sd(self) -> Estimate:
        """The standard deviation, whose interval is that of the variance, by its roots."""
        if self.variance <= 0.0:
            return Estimate.refused(HIDDEN) if self.noise_of_variance else Estimate(0.0, 0.0, 0.0)
        sd = math.sqrt(self.variance)
        half = Z * math.sqrt(self.noise_of_variance + self.sampling_of_variance)
        return Estimate(
            sd,
            math.sqrt(max(self.variance - half, 0.0)),
            math.sqrt(self.variance + half),
            math.sqrt(self.noise_of_variance) / (2.0 * sd),
            math.sqrt(self.sampling_of_variance) / (2.0 * sd),
        )


def estimate_moments(
    y: Array, sigma: float, block: NumberSums, counts: Counts, of: Quantity
) -> Moments:
    """Estimate mean and variance of a number in a group.

    Parameters
    ----------
    y : array (entries,)
        Noisy sums of the block.
    sigma : float
        Standard deviation of the noise on each of them.
    block : NumberSums
    counts : Counts
        The block's counts; some rows have a value.
    of : Quantity

    Returns
    -------
    Moments
    """
    rows = counts.known
    first, second = (y[:2] / block.moment_factor).tolist()
    mean, square = first / rows, second / rows
    # Noise of either moment, and of the number of rows.
    own = (sigma / block.moment_factor) ** 2
    of_rows = counts.variance(counts.of_known)
    noise_of_mean = (own + mean**2 * of_rows) / rows**2
    variance = square - mean**2
    by_rows = (square - 2.0 * mean**2) ** 2 * of_rows
    noise_of_variance = (own + 4.0 * mean**2 * own + by_rows) / rows**2
    # As if of independent rows: divided by one less.
    variance *= rows / max(rows - 1.0, 1.0)
    # Sampling, in which a variance has the place that noise leaves it.
    positive = min(max(variance, 0.0), 1.0)
    fourth = _fourth_moment(block, counts, mean, positive)
    unit = of.half
    return Moments(
        of.middle + unit * mean,
        unit**2 * variance,
        unit**2 * noise_of_mean,
        unit**4 * noise_of_variance,
        unit**2 * positive / rows,
        unit**4 * max(fourth - positive**2, 0.0) / rows,
    )


def _fourth_moment(block: NumberSums, counts: Counts, mean: float, variance: float) -> float:
    """Estimate the fourth central moment on the scale of codes, from the histogram.

    It is two standard deviations of its noise too large, as far as the bounds allow: where noise
    hides it, sampling is a small part of the error.
    """
    ends = np.concatenate([[-1.0], block.edges, [1.0]])
    width = np.diff(ends)
    away = 0.5 * (ends[1:] + ends[:-1]) - mean
    # The mean of the fourth power over each cell.
    powers = away**4 + away**2 * width**2 / 2.0 + width**4 / 80.0
    weights = np.append(powers, 0.0)
    rows = counts.known
    found = float(weights @ counts.cells) / rows
    noise = math.sqrt(counts.variance(weights)) / rows
    most = (1.0 + abs(mean)) ** 2 * variance
    return min(max(found + 2.0 * noise, variance**2), max(most, variance**2))


def estimate_quartile(share: float, block: NumberSums, counts: Counts, of: Quantity) -> Estimate:
    """Estimate a quartile from the histogram of a number in a group.

    Parameters
    ----------
    share : float
        Share of the rows below it.
    block : NumberSums
    counts : Counts
        The block's counts; some rows have a value.
    of : Quantity

    Returns
    -------
    Estimate
    """
    rows = counts.known
    cells = counts.cells[:-1]
    ends = np.concatenate([[-1.0], block.edges, [1.0]])
    below = np.concatenate([[0.0], np.cumsum(cells)[:-1] / rows, [1.0]])
    # A cell counts by one, less the share, up to the end k, and by the share with a minus beyond.
    upto = np.arange(1.0, len(cells))
    total = np.asarray(upto - share * len(cells), dtype=float)
    squares = upto * (1.0 - share) ** 2 + (len(cells) - upto) * share**2
    variances = counts.variance_of(total, squares) / rows**2
    noise = np.sqrt(np.concatenate([[0.0], variances, [0.0]]))
    sampling = math.sqrt(share * (1.0 - share) / rows)
    error = np.hypot(noise, sampling)
    error[[0, -1]] = 0.0
    value = _first_crossing(ends, _in_order(below), share)
    # The first cell at whose upper end the share may be reached, and the last at whose lower end it
    # may not be passed: there the function is known, and within a cell it is not.
    low = float(ends[max(int(np.argmax(below + Z * error >= share)) - 1, 0)])
    beyond = int(np.argmax((below - Z * error <= share)[::-1]))
    high = float(ends[min(len(ends) - beyond, len(ends) - 1)])
    unit, middle = of.half, of.middle
    # The share of noise in the error at the cell of the quartile.
    at = int(np.clip(np.searchsorted(ends, value), 1, len(ends) - 2))
    standard = unit * (high - low) / (2.0 * Z)
    part = float(noise[at] / error[at]) if error[at] > 0.0 else 0.0
    found = Estimate(
        middle + unit * value,
        middle + unit * min(low, value),
        middle + unit * max(high, value),
        standard * part,
        standard * math.sqrt(max(1.0 - part**2, 0.0)),
    )
    return found.within(of.lo, of.hi)


def exact_quartile(
    share: float, block: NumberSums, counts: Counts, of: Quantity, y: Array
) -> float:
    """Compute a quartile without noise, as pandas does where no cell has two distinct values.

    Rows stand at the mean of the numbers in their cell; between two rows it is linear.

    Parameters
    ----------
    share, block, counts, of
        As for :func:`estimate_quartile`; the block has places within cells.
    y : array (entries,)
        Exact sums of the block.

    Returns
    -------
    float
    """
    cells = np.rint(counts.cells[:-1]).astype(np.int64)
    places = y[2 + block.cells :] / block.offset_factor
    ends = np.concatenate([[-1.0], block.edges, [1.0]])
    filled = cells > 0
    values = (ends[:-1] + np.diff(ends) * places / np.maximum(cells, 1))[filled]
    upto = np.cumsum(cells[filled])
    rank = (float(upto[-1]) - 1.0) * share
    whole = math.floor(rank)
    one = values[np.searchsorted(upto, whole, side="right")]
    last = min(whole + 1, int(upto[-1]) - 1)
    other = values[np.searchsorted(upto, last, side="right")]
    return of.middle + of.half * float(one + (rank - whole) * (other - one))


def _in_order(x: Array) -> Array:
    """Return the mean of the least sequence above and the largest below that do not fall."""
    inside = np.clip(x, 0.0, 1.0)
    above = np.maximum.accumulate(inside)
    below = np.minimum.accumulate(inside[::-1])[::-1]
    return np.asarray(0.5 * (above + below))


def _first_crossing(ends: Array, values: Array, share: float) -> float:
    """Return the first place at which a function, linear between `ends`, reaches a share."""
    k = int(np.argmax(values >= share))
    if k == 0:
        return float(ends[0])
    before, after = values[k - 1], values[k]
    return float(ends[k - 1] + (ends[k] - ends[k - 1]) * (share - before) / (after - before))


class Line(NamedTuple):
    """One statistic of the table.

    Parameters
    ----------
    name : str
        Variable; empty for the number of rows.
    level : str
        Level of the variable; empty for a number.
    group : str
        ``overall``, a level of the column that groups rows, ``site: NAME``, or ``A - B`` for a
        difference.
    statistic : str
        n, mean, sd, q1, median, q3, count, share, missing, missing share or smd.
    value, low, high : float or None
        Estimate and 95% interval; None where it is refused.
    noise, sampling : float or None
        Standard errors by noise, and by sampling: 0 where the interval is of noise alone.
    says : str
        Why it is refused; empty if it is not.
    """

    name: str
    level: str
    group: str
    statistic: str
    value: float | None
    low: float | None
    high: float | None
    noise: float | None
    sampling: float | None
    says: str = ""

    @classmethod
    def from_estimate(
        cls, name: str, level: str, group: str, statistic: str, found: Estimate
    ) -> Line:
        """Return the line of an estimate.

        Parameters
        ----------
        name, level, group, statistic : str
        found : Estimate

        Returns
        -------
        Line
        """
        value, low, high, noise, sampling = (None if math.isnan(x) else float(x) for x in found[:5])
        return cls(name, level, group, statistic, value, low, high, noise, sampling, found.says)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return self._asdict()


@dataclass(frozen=True)
class GroupSums:
    """The noisy sums of a group of rows.

    Parameters
    ----------
    name : str
    y : array (entries,)
        Sums, in the order of the blocks.
    sigma : float
        Standard deviation of the noise on each of them.
    rows : float, optional
        Number of rows, if it is public.
    """

    name: str
    y: Array
    sigma: float
    rows: float | None = None


class GroupTable:
    """The lines of one group, and what differences between groups need.

    Parameters
    ----------
    sums : GroupSums
    contents : Contents
    blocks : sequence of LevelSums or NumberSums
        The first one counts rows; the others are of the contents' variables.
    """

    def __init__(
        self,
        sums: GroupSums,
        contents: Contents,
        blocks: Sequence[LevelSums | NumberSums],
    ) -> None:
        self.name = sums.name
        self.moments: dict[str, Moments] = {}
        self.shares: dict[tuple[str, str], Estimate] = {}
        counts = count_blocks(sums.y, sums.sigma, blocks, sums.rows)
        self.lines = [self._line("", "", "n", counts[0].count(0))]
        start = blocks[0].entries
        for variable, block, own in zip(contents.variables, blocks[1:], counts[1:], strict=True):
            part = sums.y[start : start + block.entries]
            start += block.entries
            if isinstance(block, NumberSums):
                assert isinstance(variable, Quantity)
                self._add_number(variable, block, part, sums.sigma, own)
            else:
                assert isinstance(variable, Levels)
                self._add_levels(variable, own)

    def _line(self, name: str, level: str, statistic: str, found: Estimate) -> Line:
        return Line.from_estimate(name, level, self.name, statistic, found)

    def _add_levels(self, variable: Levels, counts: Counts) -> None:
        """Add counts and shares of the levels, and of missing values."""
        for k, level in enumerate(variable.levels[:-1]):
            share = counts.share(k)
            self.shares[variable.name, level] = share
            self.lines.append(self._line(variable.name, level, "count", counts.count(k)))
            self.lines.append(self._line(variable.name, level, "share", share))
        self._add_missing(variable.name, counts)

    def _add_missing(self, name: str, counts: Counts) -> None:
        """Add count and share of missing values."""
        self.lines.append(self._line(name, "", "missing", counts.count(-1)))
        self.lines.append(self._line(name, "", "missing share", counts.share(-1)))

    def _add_number(
        self, variable: Quantity, block: NumberSums, y: Array, sigma: float, counts: Counts
    ) -> None:
        """Add mean, standard deviation, quartiles and missing values of a number."""
        if counts.too_few:
            for statistic in ("mean", "sd", *QUARTILES):
                refused = Estimate.refused(FEW)
                self.lines.append(self._line(variable.name, "", statistic, refused))
            self._add_missing(variable.name, counts)
            return
        moments = estimate_moments(y, sigma, block, counts, variable)
        self.moments[variable.name] = moments
        mean = moments.of_mean.within(variable.lo, variable.hi)
        # No number in these bounds has a larger standard deviation.
        sd = moments.of_sd.within(0.0, variable.half)
        self.lines.append(self._line(variable.name, "", "mean", mean))
        self.lines.append(self._line(variable.name, "", "sd", sd))
        for statistic, share in QUARTILES.items():
            found = estimate_quartile(share, block, counts, variable)
            if block.offsets:
                value = exact_quartile(share, block, counts, variable, y)
                found = found._replace(
                    value=value, low=min(found.low, value), high=max(found.high, value)
                )
            self.lines.append(self._line(variable.name, "", statistic, found))
        self._add_missing(variable.name, counts)


def differences(one: GroupTable, other: GroupTable) -> list[Line]:
    """Return the standardised mean differences of a group from another one."""
    name = f"{one.name} - {other.name}"
    found = [
        Line.from_estimate(key, "", name, "smd", _difference_of_means(a, other.moments[key]))
        for key, a in one.moments.items()
        if key in other.moments
    ]
    found += [
        Line.from_estimate(
            key, level, name, "smd", _difference_of_shares(a, other.shares[key, level])
        )
        for (key, level), a in one.shares.items()
    ]
    return found


def _difference_of_means(a: Moments, b: Moments) -> Estimate:
    """Return the difference of two means over the root of the mean variance."""
    variance = 0.5 * (a.variance + b.variance)
    noise_of_variance = 0.25 * (a.noise_of_variance + b.noise_of_variance)
    sampling_of_variance = 0.25 * (a.sampling_of_variance + b.sampling_of_variance)
    if variance <= 0.0 or variance < LEAST * math.sqrt(noise_of_variance):
        return Estimate.refused(HIDDEN)
    d = (a.mean - b.mean) / math.sqrt(variance)
    by_variance = d**2 / (4.0 * variance**2)
    noise = (a.noise_of_mean + b.noise_of_mean) / variance + by_variance * noise_of_variance
    sampling = (a.sampling_of_mean + b.sampling_of_mean) / variance
    sampling += by_variance * sampling_of_variance
    return normal_interval(d, math.sqrt(noise), math.sqrt(sampling))


def _difference_of_shares(a: Estimate, b: Estimate) -> Estimate:
    """Return the difference of two shares over the root of the mean of their p (1 - p)."""
    for one in (a, b):
        if one.says:
            return Estimate.refused(one.says)
    variance = 0.5 * sum(one.value * (1.0 - one.value) for one in (a, b))
    if variance <= 0.0:
        refused = any(one.noise > 0.0 for one in (a, b))
        return Estimate.refused(HIDDEN) if refused else Estimate(0.0, 0.0, 0.0)
    d = (a.value - b.value) / math.sqrt(variance)
    noise = sampling = of_variance = 0.0
    for one, sign in ((a, 1.0), (b, -1.0)):
        bend = 0.5 * (1.0 - 2.0 * one.value)
        slope = sign / math.sqrt(variance) - d / (2.0 * variance) * bend
        noise += (slope * one.noise) ** 2
        sampling += (slope * one.sampling) ** 2
        of_variance += (bend * one.noise) ** 2
    if variance < LEAST * math.sqrt(of_variance):
        return Estimate.refused(HIDDEN)
    return normal_interval(d, math.sqrt(noise), math.sqrt(sampling))
