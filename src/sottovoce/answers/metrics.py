"""AUC, Brier score, rates and calibration with 95% intervals, from a noisy histogram of scores by
label (docs/privacy/answers.md, "Evaluation").

All of it is post-processing of one release of :mod:`sottovoce.answers.evaluation`.  A *cell* of the
histogram is an interval of the score, in logits; the first and the last cell are unbounded
(*open*).  *Raw* counts are the noisy ones, and may be negative; *counts* are these after smoothing
and projection on the simplex of the known number of rows.

The area under the ROC curve is computed from the raw counts.  The noise of the two labels is
independent, so it has no bias.  Curves are drawn from the projected counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ..util import normal
from ..util.later import Later
from ..util.typing import Array

special = Later("scipy.special")

CELLS = 12
"""Cells of the histogram of scores."""
REACH = 3.0
"""Distance from the middle of the cells, near the base rate, within which cells have equal width,
in logits.
"""
WIDTH = 2.0 * REACH / CELLS
"""Width of a cell, in logits."""
LEAST = 25.0
"""Least number of rows of the rarer class for a printed AUC, in standard deviations of the noise on
a count.
"""
CLEAR = 5.0
"""Least number of rows of a printed rate, or of a cell in the calibration, in noise deviations."""
TAIL, SHORTEST, LONGEST = 2.0, 0.1, 4.0
"""Mean distance from the last edge, in logits, of rows in the open cells: the default where noise
hides the counts, and its bounds.
"""
Z = -normal.normal_quantile(0.025)
"""Normal quantile of 95% intervals."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 95% interval for sampling and noise; None where it is refused."""

    value: float | None
    low: float | None = None
    high: float | None = None
    refused: str | None = None

    @classmethod
    def normal_interval(
        cls, value: float, variance: float, lowest: float = 0.0, highest: float = 1.0
    ) -> Estimate:
        """Construct a 95% normal interval, clipped to the bounds of the number.

        Parameters
        ----------
        value : float
        variance : float
            Variance by sampling and noise; below 0 counts as 0.
        lowest, highest : float
            Bounds of the number.

        Returns
        -------
        Estimate
        """

        def clipped(x: float) -> float:
            return float(min(max(x, lowest), highest))

        half = Z * math.sqrt(max(variance, 0.0))
        # Adding 0 makes 0 of -0, which would be printed with its sign.
        return cls(clipped(value + 0.0), clipped(value - half), clipped(value + half))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        plain: dict[str, Any] = {"value": self.value, "low": self.low, "high": self.high}
        if self.refused is not None:
            plain["refused"] = self.refused
        return plain


class Order(NamedTuple):
    """What the order of rows within cells adds to the AUC of the histogram with ties."""

    value: float
    noise: float  # standard deviation of its noise


class Recalibration(NamedTuple):
    """The label's log-odds as a line in the model's, with 95% intervals."""

    slope: Estimate  # 1 for a calibrated model, less for an overconfident one
    intercept: Estimate  # of that line: 0 for a calibrated model
    in_the_large: Estimate  # the intercept if the slope is held at 1
    observed_expected: Estimate  # positives over the sum of the model's probabilities


@dataclass(frozen=True)
class Quality:
    """Quality of a model on held-out rows."""

    rows: float  # held out; of a subgroup, the noisy number
    noise: float  # standard deviation on each count
    positives: Estimate  # their share of the rows
    auc: Estimate
    brier: Estimate
    recalibration: Recalibration
    threshold: float  # the probability from which on a row is called positive below
    confusion: dict[str, float]  # noisy counts, at least 0: "true_positive" and so on
    rates: dict[str, Estimate]  # accuracy, sensitivity, specificity, precision
    roc: list[tuple[float, float]]
    precision_recall: list[tuple[float, float]]
    calibration: list[dict[str, float | None]]  # of cells with more than `CLEAR` noise deviations
    counts: Array  # projected, by label  (2, cells)

    @property
    def slope(self) -> float | None:
        """The calibration slope; None if it is refused."""
        return self.recalibration.slope.value

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "rows": self.rows,
            "noise": self.noise,
            "positives": self.positives.to_dict(),
            "auc": self.auc.to_dict(),
            "brier": self.brier.to_dict(),
            "calibration_slope": self.slope,
            "calibration_slope_interval": self.recalibration.slope.to_dict(),
            "calibration_intercept": self.recalibration.intercept.to_dict(),
            "calibration_in_the_large": self.recalibration.in_the_large.to_dict(),
            "observed_expected": self.recalibration.observed_expected.to_dict(),
            "threshold": self.threshold,
            "confusion": self.confusion,
            "rates": {name: rate.to_dict() for name, rate in self.rates.items()},
            "roc": [list(point) for point in self.roc],
            "precision_recall": [list(point) for point in self.precision_recall],
            "calibration": self.calibration,
        }


def project_on_simplex(counts: Array, total: float) -> Array:
    """Project on the simplex: the nearest nonnegative point whose sum is `total`."""
    # The projection subtracts one number from all entries that stay positive.  These are the
    # largest entries, as many as possible so that the number is less than the smallest of them.
    flat = np.sort(counts.ravel())[::-1]
    sums = (np.cumsum(flat) - total) / np.arange(1, flat.size + 1)
    last = int(np.flatnonzero(flat > sums)[-1])
    return np.asarray(np.maximum(counts - sums[last], 0.0))


_MISFIT = 0.15
"""Least prior standard deviation of a cell's misfit of the logistic calibration curve, as a share
of the cell's rows.
"""
_STEEPEST = 3.0
"""Largest slope of log-odds within a cell that intervals allow for, over the slope of the
calibration curve (:func:`_ordered_share_in_cell`).
"""


class _Slope(NamedTuple):
    """Slope of the calibration curve, with its standard error."""

    value: float
    error: float


def _smoothed(raw: Array, n: float, noise: float, middle: Array) -> tuple[Array, _Slope]:
    """Smooth noisy counts to nonnegative ones that sum to n, and fit a logistic calibration curve.

    Each count is shrunk to that of the logistic curve by the share of its variance that is noise.

    Parameters
    ----------
    raw : array (2, cells)
        Noisy counts by label.
    n : float
        Number of rows.
    noise : float
        Variance of the noise on each count.
    middle : array (cells,)
        Mean score of the rows of each cell, in logits.

    Returns
    -------
    counts : array (2, cells)
    slope : _Slope
    """
    total = project_on_simplex(raw.sum(axis=0), n)
    x = middle - float(np.median(middle))
    # Damped Newton steps to a logistic curve through noisy counts: each cell has the weight
    # of its binomial variance over that variance and the noise of its two counts.
    A = np.stack([np.ones_like(x), x])
    b = np.array([0.0, 1.0])
    for _ in range(50):
        p = special.expit(b @ A)
        bent = total * p * (1.0 - p)
        weight = bent / (noise * ((1.0 - p) ** 2 + p**2) + bent + 1e-9)
        H = (A * (bent * weight)) @ A.T + 1e-6 * max(1.0, n) * np.eye(2)
        step = np.linalg.solve(H, A @ (weight * (raw[1] * (1.0 - p) - raw[0] * p)))
        b = np.clip(b + np.clip(step, -1.0, 1.0), [-20.0, -5.0], [20.0, 5.0])
        if np.max(np.abs(step)) < 1e-13:
            break
    p = special.expit(b @ A)
    expected = total * np.stack([1.0 - p, p])
    # Empirical Bayes: the prior variance of the misfit is what the residuals show beyond noise.
    residual = float(np.sum((raw - expected) ** 2))
    binomial = float(np.sum(total * p * (1.0 - p))) * 2.0
    seen = residual - raw.size * noise - binomial
    known = max(_MISFIT**2, seen / (2.0 * float(np.sum(total**2)))) * total**2
    share = np.ones_like(known)
    if noise > 0:
        share = known / (known + noise)
    counts = project_on_simplex(expected + share * (raw - expected), n)
    return counts, _Slope(float(b[1]), math.sqrt(float(np.linalg.inv(H)[1, 1])))


def mean_tail_distances(raw: Array, noise: float) -> Array:
    """Estimate mean distances of rows in the two open cells from the last edges, (2,), in logits.

    `raw`, (2, cells), are noisy counts by label, with noise of the variance `noise` each.  If
    scores fall off exponentially there, the open cell has ``1 / (exp(WIDTH / tail) - 1)`` times the
    rows of the cell next to it.
    """
    total = raw.sum(axis=0)
    least = CLEAR * math.sqrt(2.0 * noise)
    tails = []
    for beyond, beside in ((total[0], total[1]), (total[-1], total[-2])):
        tail = TAIL
        if min(beyond, beside) > max(least, 0.0):
            tail = WIDTH / math.log1p(float(beside / beyond))
        tails.append(min(max(tail, SHORTEST), LONGEST))
    return np.array(tails)


def placements(edges: Array, tails: Array) -> Array:
    """Return 40 equally likely positions of scores within each cell, (cells, 40), in logits.

    Scores are taken to be uniform in inner cells, and exponential in the open ones, whatever the
    label.  `edges`, (cells - 1,), are the inner edges in logits, and `tails`, (2,), as
    :func:`mean_tail_distances` returns them.
    """
    share = (np.arange(40) + 0.5) / 40.0
    low = edges[0] + tails[0] * np.log(share)
    high = edges[-1] - tails[1] * np.log(share)
    return np.concatenate([low[None], edges[:-1, None] + WIDTH * share, high[None]])


def _squares(edges: Array, tails: Array) -> tuple[Array, Array]:
    """Compute the mean squared error of positives, and of negatives, in each cell, (cells,) each.

    Labels are taken to follow the model's probabilities within the cell.
    """
    p = special.expit(placements(edges, tails))
    of_positives = np.average((1.0 - p) ** 2, axis=1, weights=p)
    of_negatives = np.average(p**2, axis=1, weights=1.0 - p)
    return of_positives, of_negatives


def _brier(raw: Array, counts: Array, edges: Array, noise: float, n: float) -> Estimate:
    """Estimate the Brier score: the mean squared error of the model's probabilities.

    The estimate takes the model to be calibrated within cells.  The interval allows for all scores
    of a cell at a single place: the cell's error is then a parabola in that place.  The low end of
    the interval is computed with the smallest of these errors, the high end with the largest.

    Parameters
    ----------
    raw, counts : array (2, cells)
        Noisy and projected counts by label.
    edges : array (cells - 1,)
        Inner edges of the cells, in logits.
    noise : float
        Variance of the noise on each raw count.
    n : float
        Number of rows.
    """
    lost, kept = _squares(edges, mean_tail_distances(raw, noise))
    # With all scores of a cell at p, squared errors add up to m p^2 - 2 n_1 p + n_1: least at the
    # rate n_1 / m, and largest at an end of the cell.
    ends = np.concatenate([[0.0], special.expit(edges), [1.0]])
    rate = counts[1] / np.maximum(counts.sum(axis=0), 1e-9)
    places = (np.clip(rate, ends[:-1], ends[1:]), ends[:-1], ends[1:])
    worths = [np.stack([kept, lost]), *(np.stack([p**2, (1.0 - p) ** 2]) for p in places)]
    each = np.stack([np.sum(counts * worth, axis=0) for worth in worths])
    every = np.stack(worths, axis=2)
    least = np.take_along_axis(every, each.argmin(axis=0)[None, :, None], axis=2)[..., 0]
    most = np.take_along_axis(every, each.argmax(axis=0)[None, :, None], axis=2)[..., 0]

    def mean_error(worth: Array) -> Estimate:
        """Return the mean over rows of errors that are `worth` by label and cell."""
        mean = float(np.sum(raw * worth)) / n
        sampling = (float(np.sum(counts * worth**2)) / n - mean**2) / n
        return Estimate.normal_interval(mean, sampling + noise * float(np.sum(worth**2)) / n**2)

    value = mean_error(worths[0])
    return replace(value, low=mean_error(least).low, high=mean_error(most).high)


def estimate_quality(
    raw: Array,
    sigma: float,
    edges: Array,
    threshold: float,
    rows: float | None,
    recalibration: Recalibration,
    order: Order,
) -> Quality:
    """Estimate AUC, Brier score, rates and calibration from a noisy histogram of scores by label.

    Parameters
    ----------
    raw : array (2, cells)
        Noisy counts of negatives and of positives.
    sigma : float
        Standard deviation of the noise on each count.
    edges : array (cells - 1,)
        Inner edges of the cells, in logits.
    threshold : float
        Probability, in (0, 1), from which on a row is called positive.
    rows : float or None
        The public number of rows; None if it is private, as for a subgroup: then the sum of the
        counts is taken.
    recalibration : Recalibration
        Slope and intercepts, which are estimated elsewhere.
    order : Order
        What the order of rows within cells adds to the AUC, from further releases.

    Returns
    -------
    Quality
        Numbers that noise hides are refused in their :class:`Estimate`.
    """
    noise = sigma**2
    tails = mean_tail_distances(raw, noise)
    middle = placements(edges, tails).mean(axis=1)
    n = rows
    if n is None:
        n = max(1.0, float(raw.sum()))
    counts, slope = _smoothed(raw, n, noise, middle)
    share = float(raw[1].sum()) / n
    # The first cell whose rows are called positive, and an alternative if the threshold is in an
    # open cell.
    above = _first_positive_cell(edges, threshold)
    roc, precision_recall = _curves(counts, sigma)
    return Quality(
        rows=n,
        noise=sigma,
        positives=Estimate.normal_interval(
            share, (share * (1 - share) + len(middle) * noise / n) / n
        ),
        auc=_auc(raw, counts, sigma, slope, tails, order),
        brier=_brier(raw, counts, edges, noise, n),
        recalibration=recalibration,
        threshold=threshold,
        confusion=_confusion(raw, above[0]),
        rates=_rates(counts, raw, above, noise, rows),
        roc=roc,
        precision_recall=precision_recall,
        calibration=_calibration(raw, counts, edges, noise),
        counts=counts,
    )


_Points = list[tuple[float, float]]


def _curves(counts: Array, sigma: float) -> tuple[_Points, _Points]:
    """Return the points of the ROC curve and of the precision-recall curve.

    Thresholds are the edges of the cells, the highest first.  A precision is left out if noise
    alone may have made the rows above the threshold.  `counts`, (2, cells), are the projected ones,
    and `sigma` is the standard deviation of the noise on each.
    """
    positives = max(float(counts[1].sum()), 1e-9)
    negatives = max(float(counts[0].sum()), 1e-9)
    roc = [(0.0, 0.0)]
    precision_recall: _Points = []
    above = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
    for k in reversed(range(counts.shape[1])):
        recall = float(above[1, k] / positives)
        roc.append((float(above[0, k] / negatives), recall))
        size = above[:, k].sum()
        if size > CLEAR * sigma:
            precision_recall.append((recall, float(above[1, k] / max(size, 1e-9))))
    return roc, precision_recall


def _ordered_share_in_cell(slope: float, tails: Array) -> Array:
    """Return the share of pairs within each cell that are in the right order, (cells,).

    A pair is a positive and a negative row; ties count half.  Within a cell the log-odds of the
    label rise with `slope` times the score.  Scores are uniform, and exponential in the open cells
    with the mean distances `tails`, (2,).
    """
    tie = np.full(CELLS, 0.5 + 0.5 * math.tanh(slope * WIDTH / 6.0))
    steep = abs(slope) * tails
    tie[[0, -1]] = 0.5 + np.copysign(steep / (2.0 * (2.0 + steep)), slope)
    return tie


CROWDED = 0.25
"""Share of pairs within the same cell above which scores are crowded in few cells: then the
interval allows for all slopes within cells, too.
"""
_BESIDE = (0.5, 1.5)
"""Largest error of the order's contribution to the area, downwards and upwards, over the
contribution itself: reached if rows have few different scores.
"""


def _auc(
    raw: Array, counts: Array, sigma: float, slope: _Slope, tails: Array, order: Order
) -> Estimate:
    """Estimate the area under the ROC curve.

    It is the area with ties within cells, plus the released contribution of the order within cells.
    The contribution is exact if scores are uniform in their cells.  If they tie or crowd, the truth
    is between a half and two and a half times it.  The interval allows for that, of the released
    contribution or of that by a logistic calibration curve, whichever is larger.  If scores crowd
    in few cells, the interval also contains the areas for all slopes within cells from 0 to
    `_STEEPEST` times that of the curve.  The slope of a model that orders rows wrongly is below 0.

    Parameters
    ----------
    raw : array (2, cells)
        Noisy counts by label.
    counts : array (2, cells)
        Projected counts.
    sigma : float
        Standard deviation of the noise on each raw count.
    slope : _Slope
        Slope of the calibration curve.
    tails : array (2,)
        Mean distances of rows in the open cells from the last edges, in logits.
    order : Order
        Released contribution of the order within cells.
    """
    # Noise of the two labels is independent, so the area of the noisy counts has no bias.
    P, N = float(raw[1].sum()), float(raw[0].sum())
    rarer = min(float(own.sum()) for own in counts)
    if min(P, N) <= 0.0 or rarer < LEAST * sigma:
        rule = (
            f"needs about {math.ceil(LEAST * sigma):,} rows of each class, or a larger epsilon in "
            "proportion"
        )
        return Estimate(None, refused=f"too few rows of one class for this noise: {rule}")
    areas = _Areas(raw[0] / N, raw[1] / P, N, P, counts, sigma, tails, order.noise)
    lowest, highest = slope.value - Z * slope.error, slope.value + Z * slope.error
    largest = max(abs(lowest), abs(highest))
    beside = max(abs(order.value), areas.at_slope(largest)[0] - areas.at_slope(0.0)[0])
    less, more = _beside(lowest, highest)
    value, _ = areas.at_slope(0.0, order.value)
    low = _interval_end(areas.at_slope(0.0, order.value - less * beside), -Z)
    high = _interval_end(areas.at_slope(0.0, order.value + more * beside), Z)
    # More than a quarter of all pairs are within cells, so slopes from 0 on are allowed for.
    if float(areas.f0 @ areas.f1) > CROWDED:
        if slope.value > 0.0:
            least, most = min(_STEEPEST * lowest, 0.0), max(_STEEPEST * highest, 0.6)
        else:
            least, most = min(_STEEPEST * lowest, -0.6), max(_STEEPEST * highest, 0.0)
        low = min(low, _interval_end(areas.at_slope(least), -Z))
        high = max(high, _interval_end(areas.at_slope(most), Z))
    return Estimate(value, low, high)


class _Areas(NamedTuple):
    """Areas under the ROC curve of a noisy histogram, by how log-odds rise within cells.

    Parameters
    ----------
    f0, f1 : array (cells,)
        Noisy shares of the negatives and of the positives in each cell.
    negatives, positives : float
        Noisy numbers of rows, > 0.
    counts : array (2, cells)
        The counts, projected on the simplex: they give the sampling variance.
    sigma : float
        Standard deviation of the noise on each count.
    tails : array (2,)
        Mean distances of rows in the open cells from the edge.
    order_noise : float
        Standard deviation of the noise in the contribution of the order within cells.
    """

    f0: Array
    f1: Array
    negatives: float
    positives: float
    counts: Array
    sigma: float
    tails: Array
    order_noise: float

    def at_slope(self, slope: float, more: float = 0.0) -> tuple[float, float]:
        """Return the area plus `more`, and its standard error.

        `slope` is that of log-odds within cells: 0 for ties.
        """
        f0, f1, sigma = self.f0, self.f1, self.sigma
        N, P = self.negatives, self.positives
        # Share of pairs that a positive's cell wins against a negative's, with ties within a cell.
        won = np.tril(np.ones((CELLS, CELLS)), -1) + 0.5 * np.eye(CELLS)
        tie = _ordered_share_in_cell(slope, self.tails) - 0.5
        below, above = won @ f0 + tie * f0, won.T @ f1 + tie * f1
        mid = float(f1 @ below)
        # Variances of the shares of pairs, with that of uniform positions within cells.
        lift = ((below - mid) ** 2 + f0**2 / 12.0) / P**2
        drop = ((above - mid) ** 2 + f1**2 / 12.0) / N**2
        linear = float((self.counts[1] + sigma**2) @ lift + (self.counts[0] + sigma**2) @ drop)
        # The area is bilinear in the counts: noise of one label times noise of the other.
        both = (sigma**2 / (P * N)) ** 2 * float(np.sum((won - mid) ** 2))
        variance = linear + both + self.order_noise**2
        return min(max(mid + more, 0.0), 1.0), math.sqrt(variance)


def _interval_end(found: tuple[float, float], z: float) -> float:
    """Return the end of an area's interval, `z` standard errors away on the scale of logits.

    Parameters
    ----------
    found : tuple of float
        The area and its standard error.
    z : float
        Negative for the lower end.
    """
    mid, error = found
    inside = min(max(mid, 1e-6), 1.0 - 1e-6)
    bent = float(special.expit(special.logit(inside) + z * error / (inside * (1.0 - inside))))
    # Near 0 and 1 the straight interval is the wider one if there is much noise.
    straight = min(max(mid + z * error, 0.0), 1.0)
    if z > 0.0:
        return max(bent, straight)
    return min(bent, straight)


def _beside(lowest: float, highest: float) -> tuple[float, float]:
    """Return the errors of the order's contribution that the interval allows for: less, and more.

    Both are parts of the contribution.

    Parameters
    ----------
    lowest, highest : float
        Ends of the interval of the calibration slope: its sign says which way rows are ordered.
    """
    fewer, further = _BESIDE
    if lowest > 0.0:
        return fewer, further
    if highest < 0.0:
        return further, fewer
    return further, further


def _confusion(raw: Array, above: int) -> dict[str, float]:
    """Return the confusion matrix of noisy counts, at least 0, if cells from `above` on are called
    positive.
    """
    found = {
        "true_positive": raw[1, above:],
        "false_positive": raw[0, above:],
        "false_negative": raw[1, :above],
        "true_negative": raw[0, :above],
    }
    return {name: max(0.0, float(cells.sum())) for name, cells in found.items()}


def _first_positive_cell(edges: Array, threshold: float) -> tuple[int, ...]:
    """Return the number of the first cell whose rows are called positive at a threshold.

    A threshold beyond all edges lies in an open cell, whose rows may be on either side of it: then
    two numbers are returned, the likelier first.
    """
    cut = float(special.logit(threshold))
    if cut > edges[-1] + WIDTH / 4:
        return CELLS, CELLS - 1
    if cut < edges[0] - WIDTH / 4:
        return 0, 1
    return (int(np.argmin(np.abs(edges - cut))) + 1,)


def _rates(
    counts: Array, raw: Array, above: tuple[int, ...], noise: float, rows: float | None
) -> dict[str, Estimate]:
    """Estimate accuracy, sensitivity, specificity and precision at a threshold.

    Parameters
    ----------
    counts, raw : array (2, cells)
        Projected and noisy counts by label.
    above : tuple of int
        First cell that is called positive, and an alternative if any: then the intervals of both
        are united.
    noise : float
        Variance of the noise on each raw count.
    rows : float or None
        Public number of rows; None if it is private.
    """
    whole, ones = np.ones_like(raw), np.zeros_like(raw)
    ones[1] = 1.0
    found: dict[str, list[Estimate]] = {}
    for first in above:
        chosen = np.zeros_like(raw)
        chosen[:, first:] = 1.0
        right = ones * chosen + (1.0 - ones) * (1.0 - chosen)
        # Cells whose rows are the denominator of each rate.
        of = {
            "accuracy": whole,
            "sensitivity": ones,
            "specificity": 1.0 - ones,
            "precision": chosen,
        }
        for name, among in of.items():
            public = rows if name == "accuracy" else None
            found.setdefault(name, []).append(
                ratio_of_counts(raw, counts, right * among, among, noise, public)
            )
    if len(above) > 1:
        # Accuracy and precision are not monotone in the threshold.  Within the open cell it may
        # call all rows rightly, or none: both extremes are added.
        cell = np.zeros_like(raw)
        cell[:, min(above)] = 1.0
        sure = chosen * (1.0 - cell)
        right = (ones * sure + (1.0 - ones) * (1.0 - sure)) * (1.0 - cell)
        for called, part in (
            (right + cell, sure + cell * ones),
            (right, sure + cell * (1.0 - ones)),
        ):
            found["accuracy"].append(ratio_of_counts(raw, counts, called, whole, noise, rows))
            found["precision"].append(ratio_of_counts(raw, counts, ones * part, part, noise))
    return {name: _union_of_intervals(several) for name, several in found.items()}


def _union_of_intervals(several: list[Estimate]) -> Estimate:
    """Return the first estimate with the union of all intervals; a refused one, if there is any."""
    lows: list[float] = []
    highs: list[float] = []
    for one in several:
        if one.low is None or one.high is None:
            return one
        lows.append(one.low)
        highs.append(one.high)
    return replace(several[0], low=min(lows), high=max(highs))


def ratio_of_counts(
    raw: Array, counts: Array, hit: Array, among: Array, noise: float, rows: float | None = None
) -> Estimate:
    """Estimate the share of rows in the cells `hit` among those in `among`, by the delta method.

    Parameters
    ----------
    raw : array (2, cells)
        Noisy counts by label.
    counts : array (2, cells)
        The same, projected on the simplex: they give the sampling variance.
    hit, among : array (2, cells)
        Indicators of cells.
    noise : float
        Variance of the noise on each count.
    rows : float, optional
        The public number of rows in `among`; without it, their noisy count.

    Returns
    -------
    Estimate
        Refused if noise alone may have made the number of rows.
    """
    size = rows
    if size is None:
        size = float((raw * among).sum())
    if size <= CLEAR * math.sqrt(noise * float(among.sum())):
        return Estimate(None, refused="too few rows for this noise")
    value = float((raw * hit).sum()) / size
    lean = (hit - value * among) / size
    blurred = lean
    if rows is not None:
        # A public number has no noise that could cancel some of the hits'.
        blurred = hit / size
    return Estimate.normal_interval(
        value, float(np.sum(counts * lean**2) + noise * np.sum(blurred**2))
    )


def _calibration(
    raw: Array, counts: Array, edges: Array, noise: float
) -> list[dict[str, float | None]]:
    """Return the observed share of positives in each cell, with the model's mean probability.

    The mean takes scores to be uniform within the cell.  The open cells have no mean, only the
    probability at their edge, as nothing says where in them the rows are.  Cells with too few rows
    for the noise are left out.  Parameters are as for :func:`_brier`.
    """
    middle = special.expit(placements(edges, mean_tail_distances(raw, noise))).mean(axis=1)
    ends = [None, *special.expit(edges).tolist(), None]
    shown = []
    for k, (low, high) in enumerate(pairwise(ends)):
        size = float(raw[:, k].sum())
        if size <= CLEAR * math.sqrt(2.0 * noise) or size <= 0:
            continue
        rate = float(raw[1, k]) / size
        inside = min(max(rate, 0.5 / size), 1 - 0.5 / size)
        variance = inside * (1 - inside) / size + noise * ((1 - rate) ** 2 + rate**2) / size**2
        found = Estimate.normal_interval(rate, variance)
        predicted = None
        if low is not None and high is not None:
            predicted = float(middle[k])
        shown.append(
            {
                "predicted": predicted,
                "above": low,
                "below": high,
                "observed": found.value,
                "low": found.low,
                "high": found.high,
                "rows": size,
            }
        )
    return shown
