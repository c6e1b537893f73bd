"""Calibration slope, intercepts and O/E (observed over expected positives), from a noisy histogram
of scores by label and two releases that correct it (docs/privacy/answers.md, "Evaluation").

Let u be the log-odds of the evaluated model, less the middle of the cells.  The *line* ``logit P(y
= 1) = level + slope u`` is fitted by Newton's method to the score equations of a logistic
regression.  Sums over rows are
computed in two parts:

- the sum over the noisy histogram, with scores at positions within the cells that a public law
  gives them (:func:`sottovoce.answers.metrics.placements`), and
- a *correction*: the true sum less that one, which is released with noise
  (:class:`sottovoce.queries.Corrections`).

Corrections are asked at a *point*, a :class:`sottovoce.queries.corrections.Curves`: a line, and how
much rows of each cell count.  The first point follows from the histogram (:func:`first_point`), the
second from the first corrections (:func:`second_point`); the results follow from the second ones
(:func:`recalibrate`).  A *block* is all rows, or those of one subgroup.  The script that asks is in
:mod:`sottovoce.answers.evaluation`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..queries.corrections import (
    BENT,
    IN_THE_LARGE,
    INFORMATION,
    OBSERVED_LESS_EXPECTED,
    SCORE,
    STATISTICS,
    Curves,
    added_statistics,
    bounded_log_odds,
    line_statistics,
    places_within_cells,
    share_in_reach,
)
from ..util.later import Later
from ..util.typing import Array, IntArray
from .metrics import (
    CELLS,
    CLEAR,
    WIDTH,
    Estimate,
    Recalibration,
    Z,
    mean_tail_distances,
    placements,
    project_on_simplex,
)

optimize, special = Later("scipy.optimize"), Later("scipy.special")

EDGES: Array = np.asarray(WIDTH * (np.arange(1, CELLS) - CELLS / 2.0), dtype=np.float64)
"""Inner edges of the cells, in logits from the middle of the cells."""
FARTHEST = 1024.0
"""Largest reach, in logits."""
REACHES = (
    (4.0, 0.1),
    (4.0, 0.3),
    (4.0, 1.0),
    (6.0, 1.0),
    (9.0, 1.0),
    (16.0, 1.0),
    (64.0, 1.0),
    (FARTHEST, 1.0),
)
"""Choices of the *reach*, the distance from the middle of the cells, in logits, beyond which rows
count less; each with the factor on the worth of rows in open cells.
"""
MORE_NOISE = 1.05
"""Factor by which the standard error of the slope may exceed the least one, for a larger reach."""
WIDEST = 1.0
"""Largest half-width of a printed interval of the intercept at slope 1 (calibration in the large),
in logits.
"""
# With a bound for the width at the estimate 91 to 92% of the printed intervals covered, with this
# one 94 to 97% (250 sets each of 2,000 rows at epsilon .5).
FARTHEST_END = 3.0
"""Largest distance of the upper end of a printed slope's interval from the slope, over the slope or
1, whichever is larger.

The error of a slope grows with the slope, and where noise is large it grows fast.  A bound for the
error alone would refuse the slopes that noise made large, and a narrow bound at the upper end those
that it did not make small: what is left would lie below the truth.
"""
LONGEST = 1.0
"""Largest root mean square shift of log-odds from the point of the last corrections to the
estimate; beyond it the line is refused.
"""
SAYS_NOTHING = "too few rows for this noise: the interval would be too wide to be of use"
"""Reason of a refusal in the printed results."""
LACKING = 0.1
"""Prior standard deviation of a correction of an information entry, over that entry; a larger one
is believed only if it stands out from noise.
"""
OF_OPEN_CELLS = 1.0
"""The same for the part of an entry that rows in open cells have, which may be nearly none of it.
"""
# Believing corrections of two deviations made errors of 100% in the information.
CERTAIN = 3.0
"""Noise deviations by which a correction of information must stand out to be believed beyond
`LACKING`.
"""
IGNORED = 0.1
"""Relative difference between the sampling variance in the histogram and that of a regression that
holds, which the cells alone may cause: it is ignored.
"""
APART = 0.25
"""Largest root mean square difference of log-odds between the solution by the histogram's changes
and one Newton step; beyond it the Newton step is taken.
"""
SETTLING = 8
"""Number of first iterations of a fit in which the worths of cells are updated with the line."""
FARTHEST_SHIFT = 30.0
"""Largest shift of the model's log-odds, either way, at which positives are expected."""
_LONGEST_STEP, _STEEPEST = 1.5, 50.0
"""Largest Newton step, as root mean square of log-odds, and largest size of a slope."""
_CELL: IntArray = np.arange(CELLS)
_LESS: Array = np.array([1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 4.0])
"""Unit of each statistic's correction, over the largest correction of a row, before all units are
scaled together: the score, on which slope and intercept rest, gets half the noise of most others.
"""
_LABEL: Array = np.array([0.0, 1.0])[:, None, None]
"""Labels 0 and 1, for arrays (2, cells, places)."""
_IDENTITY: Array = np.eye(2)
_TINY = 1e-12
"""Smallest denominator."""


class Block(NamedTuple):
    """The noisy histogram of all rows, or of the rows of a subgroup."""

    counts: Array  # by label and cell  (2, CELLS)
    sigma: float  # standard deviation of the noise on each count
    rows: float  # public number of rows; of a subgroup, the noisy one

    @property
    def total(self) -> Array:
        """Rows by cell."""
        return np.asarray(self.counts.sum(axis=0))


class Corrected(NamedTuple):
    """A block's corrections at a point, with their noise."""

    curve: Curves  # the point
    values: (
        Array  # statistics of a row by label and cell, by the public law  (2, CELLS, STATISTICS)
    )
    found: Array  # sum over rows, less the sum of the values  (STATISTICS,)
    spread: Array  # standard deviation of the noise in `found`  (STATISTICS,)
    # Variance of the error of the corrected sum of `BENT`, by noise and by what is not believed.
    bent_variance: float = 0.0


def corrected(block: Block, curve: Curves, values: Array, found: Array, spread: Array) -> Corrected:
    """Shrink the corrections of information by the share of noise in them.

    That is done after centring scores at their mean, weighted by information.  Where rows are far
    from the middle of the cells, level and slope are nearly collinear, and the information on the
    slope is a small difference of large entries: a small relative error in each of them would be a
    large one of the difference.

    Parameters
    ----------
    block : Block
    curve : Curves
        The point at which the corrections were asked.
    values : array (2, CELLS, STATISTICS)
        Statistics of a row by label and cell; see :func:`values_of`.
    found : array (STATISTICS,)
        Released sums over rows, less those of `values`.
    spread : array (STATISTICS,)
        Standard deviation of their noise.

    Returns
    -------
    Corrected
    """
    # All statistics summed over the histogram, (STATISTICS,).
    H = np.einsum("yk,yke->e", block.counts, values)
    # Their part of the open cells, where nothing says how far away rows are.
    is_open = [0, CELLS - 1]
    open_part = np.einsum("yk,yke->e", block.counts[:, is_open], values[:, is_open])
    kept = found.copy()
    likely = math.hypot(LACKING * H[BENT], OF_OPEN_CELLS * open_part[BENT])
    share = float(_kept_share_of_correction(found[BENT], spread[BENT], likely))
    kept[BENT] *= share
    of_counts = block.sigma**2 * float(np.sum(values[..., BENT] ** 2))
    bent_variance = share * float(spread[BENT]) ** 2 + of_counts
    level, mixed, _ = H[INFORMATION]
    mean = mixed / level if level > 0.0 else 0.0  # of the scores, weighted by information
    # Maps the entries (level, mixed, slope) of an information to those for centred scores.
    centred = np.array([[1.0, 0.0, 0.0], [-mean, 1.0, 0.0], [mean**2, -2.0 * mean, 1.0]])
    there, about = centred @ found[INFORMATION], centred @ H[INFORMATION]
    noise = np.sqrt(centred**2 @ spread[INFORMATION] ** 2)
    scale = np.abs(about)
    # The centred mixed entry is about 0: its scale is that of the other two.
    scale[1] = math.sqrt(max(about[0] * about[2], 0.0))
    kept[INFORMATION] = np.linalg.solve(
        centred, there * _kept_share_of_correction(there, noise, LACKING * scale)
    )
    return Corrected(curve, values, kept, spread, bent_variance)


def _kept_share_of_correction(found: Any, noise: Any, likely: Any) -> Array:
    """Return the share of noisy corrections that is kept, by empirical Bayes.

    Their prior standard deviation is `likely`, or what `found` shows beyond `CERTAIN` deviations of
    `noise` if that is more.
    """
    unit = np.maximum(likely, LACKING * _TINY)
    variance = (noise / unit) ** 2
    size = np.maximum((found / unit) ** 2 - CERTAIN**2 * variance, 1.0)
    return np.asarray(size / (size + variance))


def blocks_of(counts: Array, sigma: float, rows: float) -> list[Block]:
    """Return the block of all rows and, if there are several groups, one for each.

    Parameters
    ----------
    counts : array (groups, 2, CELLS)
        Noisy counts by label and cell.
    sigma : float
        Standard deviation of the noise on each count.
    rows : float
        Public number of all rows.

    Returns
    -------
    list of Block
    """
    groups = [Block(own, sigma, max(1.0, float(own.sum()))) for own in counts]
    whole = Block(counts.sum(axis=0), sigma * math.sqrt(len(counts)), rows)
    if len(groups) == 1:
        return [whole]
    return [whole, *groups]


def stacked(curves: Sequence[Sequence[Curves]]) -> Curves:
    """Stack the curves of R replicates with B blocks each, to arrays (R, B, ...)."""
    return Curves(
        **{
            f.name: np.array([[getattr(one, f.name) for one in row] for row in curves])
            for f in fields(Curves)
        }
    )


def values_of(curve: Curves) -> Array:
    """Return the statistics that a row of each label and cell counts as.

    The shape is (..., 2, CELLS, STATISTICS).  They are means over the positions within the cell
    that the public law gives.  For the model's probabilities the middle of their range in the cell
    is taken, which has the smallest corrections.  The leading axes (...) are those of the curve, if
    it has several reaches.
    """
    u = placements(EDGES, curve.tails)
    values = np.zeros((*curve.reach.shape, 2, CELLS, STATISTICS))
    values[..., : INFORMATION.stop] = _line_values(curve, u)
    p = special.expit(np.clip(float(curve.base) + u, -700.0, 700.0) + float(curve.shift))
    values[..., BENT] = np.mean(p * (1.0 - p), axis=1)
    label = np.array([0.0, 1.0])[:, None]
    for which, shift in ((IN_THE_LARGE, float(curve.shift)), (OBSERVED_LESS_EXPECTED, 0.0)):
        ends = special.expit(EDGES + float(curve.base) + shift)
        ends = np.concatenate([[0.0], ends, [1.0]])
        values[..., which] = label - 0.5 * (ends[1:] + ends[:-1])
    return values


def _line_values(curve: Curves, u: Array) -> Array:
    """Return score and information of a row of each label and cell: (..., 2, CELLS, 5).

    They are means over the positions u, (CELLS, places), within the cell.
    """
    return np.asarray(_line_everywhere(curve, u).mean(axis=-2))


def _line_everywhere(curve: Curves, u: Array) -> Array:
    """Return score and information of a row of each label at the positions u of each cell.

    The shape is (..., 2, CELLS, places, 5): two entries of the score, three of the information.
    """
    return line_statistics(
        curve, u, _LABEL, curve.worth[..., None, :, None], curve.reach[..., None, None, None]
    )


def units_of(curve: Curves, values: Array) -> Array:
    """Return units for the corrections, (..., STATISTICS), in which no row's have norm above 1.

    They are found from rows at many scores (:func:`_probes`), with 2% to spare; `values` are those
    of :func:`values_of`.
    """
    u, cell = _probes(tuple(np.ravel(curve.reach).tolist()), np.shape(curve.reach))
    place = places_within_cells(EDGES, u, cell, curve.tails)
    label = np.repeat([0, 1], len(cell))
    cell = np.tile(cell, 2)
    u, place = np.concatenate([u, u], axis=-1), np.concatenate([place, place], axis=-1)
    # Corrections of single rows: their statistics, less those that the cell counts as.
    found = added_statistics(curve, u, label.astype(float), cell, place)
    missed = found - values[..., label, cell, :]
    largest = np.maximum(np.max(np.abs(missed), axis=-2), _TINY) * _LESS
    length = np.max(np.linalg.norm(missed / largest[..., None, :], axis=-1), axis=-1)
    return np.asarray(1.02 * length[..., None] * largest)


@cache
def _probes(reaches: tuple[float, ...], shape: tuple[int, ...]) -> tuple[Array, IntArray]:
    """Return scores (..., n) at which a row's corrections are evaluated, and their cells (n,).

    Reaches are those of :data:`REACHES`, or one of them.  For each reach (...): a fine grid in the
    inner cells, and in the open ones an even grid up to 4 logits from the edges, a geometric one
    from there to four times the reach, or 60 logits, and two scores a thousand and 1e9 times as
    far.
    """
    reach = np.reshape(reaches, shape)
    inner = (EDGES[:-1, None] + WIDTH * np.linspace(0.0, 1.0, 17)).ravel()
    far = np.maximum(4.0 * reach, 60.0)[..., None]
    near, middle = np.linspace(0.0, 4.0, 33), np.linspace(0.0, 1.0, 48)[1:]
    spaced = (
        np.broadcast_to(near, (*reach.shape, len(near))),
        4.0 * (far / 4.0) ** middle,
        far * [1e3, 1e9],
    )
    beyond = np.concatenate(spaced, axis=-1)
    between = np.broadcast_to(inner, (*reach.shape, len(inner)))
    u = np.concatenate([EDGES[0] - beyond, between, EDGES[-1] + beyond], axis=-1)
    outside = beyond.shape[-1]
    cell = np.repeat(_CELL, [outside, *[len(inner) // (CELLS - 2)] * (CELLS - 2), outside])
    for shared in (u, cell):
        shared.setflags(write=False)
    return u, cell


class _Within(NamedTuple):
    """Positions of rows within the cells, and powers of them for sums over the histogram."""

    u: Array  # positions, in logits  (CELLS, places)
    powers: Array  # 1, u and u^2, smaller beyond the reach  (3, CELLS * places)


def _within(curve: Curves) -> _Within:
    """Return the positions within cells for the tails and the reach of a curve."""
    u = placements(EDGES, curve.tails)
    near = share_in_reach(u, curve.reach)
    bent = near * u
    return _Within(u, np.stack([near**2, near * bent, bent**2]).reshape(3, -1))


def _line_sums(block: Block, curve: Curves, rows: _Within) -> Array:
    """Return score and information summed over the histogram of a block, (5,).

    The same as the sums of :func:`_line_values`, but faster, as Newton's method needs them at many
    lines: the positions `rows` do not depend on the line.
    """
    log_odds = bounded_log_odds(curve.level + curve.slope * rows.u)
    p, other = special.expit(log_odds), special.expit(-log_odds)
    negatives, positives = (block.counts * curve.worth / rows.u.shape[1])[..., None]
    pull = positives * other - negatives * p
    information = (negatives + positives) * p * other
    return np.concatenate([rows.powers[:2] @ pull.ravel(), rows.powers @ information.ravel()])


def matrix(entries: Array) -> Array:
    """Return the symmetric matrices (..., 2, 2) of the entries (level, mixed, slope), (..., 3)."""
    return entries[..., [[0, 1], [1, 2]]]


# Points of the corrections


def first_point(block: Block, center: float, spread: float) -> Curves:
    """Choose the point of the first corrections, from the histogram alone.

    The line is fitted to the histogram; the worth of a cell is the share of its score's variance
    that is information rather than noise (:func:`_worth`).

    Parameters
    ----------
    block : Block
    center : float
        Log-odds of the judged model in the middle of the cells.
    spread : float
        Standard deviation of the noise in the second corrections.

    Returns
    -------
    Curves
    """
    ones = max(float(block.counts[1].sum()), 1.0)
    share = min(max(ones / block.rows, 1.0 / (block.rows + 1.0)), block.rows / (block.rows + 1.0))
    whole = np.ones(CELLS)
    curve = Curves(
        level=np.array(float(special.logit(share))),
        slope=np.array(0.5),
        base=np.array(center),
        shift=np.array(0.0),
        reach=np.array(FARTHEST),
        worth=whole,
        order=_order(block),
        tails=mean_tail_distances(block.counts, block.sigma**2),
    )
    within = _within(curve)
    for turn in range(40):
        if turn < SETTLING:
            curve = replace(curve, worth=_worth(block, curve, within.u))
        curve, step = _newton_step(curve, _line_sums(block, curve, within), 1e-6 * block.rows)
        if step < 1e-7 and turn > SETTLING:
            break
    worth = _worth(block, curve, within.u)
    curve = replace(curve, worth=worth, shift=np.array(_shift(block, curve)))
    return _reaching(block, curve, spread)


def second_point(block: Block, answer: Corrected) -> Curves:
    """Choose the point of the second corrections: the line where the first ones lead."""
    curve, _ = _solved(block, answer)
    return replace(curve, shift=np.array(_shift(block, curve, answer)))


def _solved(block: Block, answer: Corrected) -> tuple[Curves, Array]:
    """Solve the corrected score equations for the line.

    The histogram tells how the score changes away from the point of the corrections, scaled so that
    the change at the point is the corrected information.  If there is no solution, or one far from
    a single Newton step, the Newton step is taken.

    Returns
    -------
    curve : Curves
        The line.
    apart : array (2,)
        Difference of level and slope between the solution and the Newton step.
    """
    own = _weighted_sums(block, values_of(answer.curve))
    sums = _weighted_sums(block, answer.values) + answer.found
    H = matrix(sums[INFORMATION])
    if not _is_positive(H):
        return answer.curve, np.full(2, np.inf)
    newton = _newton_step(answer.curve, sums, 0.0)[0]
    # The score of the histogram at the solution: its score at the point, less its information
    # times the corrected Newton step.
    wanted = own[SCORE] - matrix(own[INFORMATION]) @ np.linalg.solve(H, sums[SCORE])
    curve, within = answer.curve, _within(answer.curve)
    for _ in range(40):
        there = _line_sums(block, curve, within)
        there[SCORE] -= wanted
        curve, step = _newton_step(curve, there, 0.0)
        if step < 1e-9:
            break
    apart = np.array([curve.level - newton.level, curve.slope - newton.slope])
    near = step < 1e-9 and float(apart @ H @ apart) < APART**2 * H[0, 0]
    if near:
        return curve, apart
    return newton, apart


def _weighted_sums(block: Block, values: Array) -> Array:
    """Sum the statistics (..., 2, CELLS, k) of a row over the histogram of a block: (..., k)."""
    return np.einsum("yk,...yke->...e", block.counts, values)


def _newton_step(curve: Curves, sums: Array, ridge: float) -> tuple[Curves, float]:
    """Take one step of Newton's method, of limited length.

    `sums`, (5 or more,), are score and information, and `ridge` is added to the information.
    Returns the new line, and the larger change of level and slope; infinite without a step.
    """
    H = matrix(sums[INFORMATION]) + ridge * _IDENTITY
    if not _is_positive(H):
        return curve, math.inf
    step = np.linalg.solve(H, sums[SCORE])
    # Root mean square of log-odds, of rows weighted by their information.
    shift = math.sqrt(float(step @ H @ step) / H[0, 0])
    step = step / max(1.0, shift / _LONGEST_STEP)
    level = min(max(float(curve.level + step[0]), -4.0 * _STEEPEST), 4.0 * _STEEPEST)
    slope = min(max(float(curve.slope + step[1]), -_STEEPEST), _STEEPEST)
    return replace(curve, level=np.array(level), slope=np.array(slope)), float(np.max(np.abs(step)))


def _is_positive(H: Array) -> Any:
    """Return which symmetric matrices (..., 2, 2) are clearly positive definite."""
    level, mixed, slope = H[..., 0, 0], H[..., 0, 1], H[..., 1, 1]
    return (level > 0.0) & (level * slope > mixed**2 * (1.0 + 1e-12))


def _worth(block: Block, curve: Curves, u: Array) -> Array:
    """Return the worth (weight) of a row in each cell, (CELLS,): 1 without noise, else less.

    `u` are the positions of rows within the cells, (CELLS, places).

    It is the binomial variance of the cell's score over that variance plus noise.  The number of
    rows of a cell is the noisy one, less the part that its noise has in common with that of the
    score: else cells would count most where noise alone gives them a large score.
    """
    noise = block.sigma**2
    if noise == 0.0:
        return np.ones(CELLS)
    p = special.expit(bounded_log_odds(curve.level + curve.slope * u)).mean(axis=1)
    # A cell's score n_1 (1 - p) - n_0 p has noise of the variance noise * blur.
    blur = p**2 + (1.0 - p) ** 2
    likely = np.maximum(block.counts[1] * p + block.counts[0] * (1.0 - p), 0.0) / blur
    score = block.counts[1] * (1.0 - p) - block.counts[0] * p
    # Regression coefficient of the noise in the rows of a cell on the cell's score.
    common = noise * (1.0 - 2.0 * p) / (noise * blur + likely * p * (1.0 - p))
    told = np.maximum(block.total - common * score, 0.0) * p * (1.0 - p)
    return np.asarray(np.maximum(told / (told + noise * blur), 1e-6))


def _shift(block: Block, curve: Curves, answer: Corrected | None = None) -> float:
    """Return the shift of the model's log-odds at which expected and observed positives agree.

    Without an `answer` both are those of the histogram.  With it the observed number is corrected,
    and the change of the expected number is scaled to the corrected information, which counts as a
    tenth of the histogram's at least.
    """
    total = np.maximum(block.total, 0.0)
    own = placements(EDGES, curve.tails) + float(curve.base)
    shift = float(curve.shift)
    if answer is not None:
        sums = _weighted_sums(block, answer.values) + answer.found
        expected, bent = _expected(total, own, shift)
        observed = sums[IN_THE_LARGE] * bent / max(sums[BENT], 0.1 * bent, _TINY) + expected
    else:
        observed = float(block.counts[1].sum())
    # Noise may leave no positives, or no negatives, and then no shift would do.
    observed = min(max(observed, 0.1), float(total.sum()) - 0.1)
    for _ in range(60):
        expected, bent = _expected(total, own, shift)
        step = min(max((observed - expected) / max(bent, _TINY), -1.0), 1.0)
        shift = min(max(shift + step, -FARTHEST_SHIFT), FARTHEST_SHIFT)
        if abs(step) < 1e-10:
            break
    return shift


def _expected(total: Array, own: Array, shift: float) -> tuple[float, float]:
    """Return the positives that the shifted model expects, and their derivative in the shift.

    `total`, (CELLS,), are the rows of each cell, and `own`, (CELLS, places), the model's log-odds
    of rows at the positions within it.
    """
    p = special.expit(own + shift)
    return float(total @ p.mean(axis=1)), float(total @ np.mean(p * (1.0 - p), axis=1))


def _order(block: Block) -> Array:
    """Return the weights of rows' positions within cells in the area under the ROC curve.

    By label and cell, (2, CELLS).
    """
    counts = project_on_simplex(block.counts, block.rows)
    negatives, positives = (max(float(own.sum()), 1.0) for own in counts)
    return np.stack([-counts[1], counts[0]]) / (negatives * positives)


def _reaching(block: Block, curve: Curves, spread: float) -> Curves:
    """Return the curve with the largest reach of `REACHES` whose noise costs little.

    `spread` is the standard deviation of the noise in corrections, in units of :func:`units_of`.
    """
    reach, share = np.array(REACHES).T
    worth = np.tile(curve.worth, (len(REACHES), 1))
    worth[:, [0, -1]] *= share[:, None]
    tried = replace(curve, reach=reach, worth=worth)
    values = values_of(tried)
    noise = spread * units_of(tried, values)
    variances = _covariance(block, Corrected(tried, values, np.zeros(STATISTICS), noise))[:, 1, 1]
    # Far rows count as much as they can while the standard error is within 5% of the least.
    cheap = np.flatnonzero(variances <= MORE_NOISE**2 * np.min(variances))
    farthest = cheap[-1]
    return replace(curve, reach=reach[farthest], worth=worth[farthest])


# What follows from the second corrections


def _covariance(block: Block, answer: Corrected) -> Array:
    """Return the covariance of level and slope, (..., 2, 2): sampling (sandwich) and noise.

    It is infinite where the information is not positive definite.  The sampling part is that of a
    regression that holds, unless the histogram clearly shows another variance of the labels.  The
    leading axes (...) are those of the curve, if it has several reaches.
    """
    curve, values = answer.curve, answer.values
    H = matrix((_weighted_sums(block, values) + answer.found)[..., INFORMATION])
    told = np.asarray(_is_positive(H))[..., None, None]
    H = np.where(told, H, np.eye(2))
    P = np.linalg.inv(H)
    # Information with the squares of worths.
    by_square = values[..., INFORMATION] * curve.worth[..., None, :, None]
    model = (
        H
        + matrix(_weighted_sums(block, by_square))
        - matrix(_weighted_sums(block, values)[..., INFORMATION])
    )
    excess = _excess(curve)
    # Coordinates in which the information is the identity: P = turn turn', back = turn'.
    turn = np.linalg.cholesky(P)
    back = np.swapaxes(turn, -1, -2)
    # Sampling variance of the labels beyond that of the line, and its own sampling error: it counts
    # only as far as it exceeds that error and a part `IGNORED` of the line's.
    whole = back @ np.einsum("yk,...ykij->...ij", block.counts, excess) @ turn
    each = back[..., None, None, :, :] @ excess @ turn[..., None, None, :, :]
    chances = np.maximum(block.counts, 0.0) + block.sigma**2
    by_chance = np.einsum("yk,...ykij->...", chances, each**2)
    ignored = by_chance + IGNORED**2 * np.sum((back @ model @ turn) ** 2, axis=(-2, -1))
    # In open cells nothing says where rows are, so neither what the squares of their scores are.
    is_open = [0, CELLS - 1]
    open_part = np.einsum(
        "yk,...yke->...e", block.counts[:, is_open], by_square[..., :, is_open, :]
    )
    open_part = back @ matrix(open_part) @ turn
    ignored = ignored + OF_OPEN_CELLS**2 * np.sum(open_part**2, axis=(-2, -1))
    size = np.maximum(np.sum(whole**2, axis=(-2, -1)), _TINY)
    kept = np.maximum(0.0, 1.0 - ignored / size)[..., None, None]
    score = values[..., SCORE]
    of_cells = block.sigma**2 * np.einsum("...yki,...ykj->...ij", score, score)
    of_corrections = answer.spread[..., SCORE, None] ** 2 * np.eye(2)
    # H^-1 (J + sigma^2 sum phi phi' + sigma_c^2) H^-1, in coordinates where H is the identity.
    spread = back @ (model + of_cells + of_corrections) @ turn + kept * whole
    # Noise in the counts may make the variance negative: it is .02 at least of the inverse
    # information, the sampling variance of a regression that holds.
    eigenvalues, vectors = np.linalg.eigh(spread)
    spread = (vectors * np.maximum(eigenvalues, 0.02)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return np.where(told, turn @ spread @ back, np.inf)


def _excess(curve: Curves) -> Array:
    """Return squares of a row's score less its information, (..., 2, CELLS, 2, 2).

    They are 0 on average over the labels if the line holds.  Positions within a cell are weighted
    by the probability of the label there: positives are rather in the upper part of a cell.
    """
    u = placements(EDGES, curve.tails)
    told = _line_everywhere(curve, u)
    p = special.expit(np.clip(curve.level + curve.slope * u, -30.0, 30.0))
    law = np.stack([1.0 - p, p])
    law = law / law.sum(axis=2, keepdims=True)
    near = share_in_reach(u, curve.reach[..., None, None, None])
    level, slope = np.moveaxis(told[..., SCORE], -1, 0)
    squares = np.stack([level**2, level * slope, slope**2], axis=-1)
    information = told[..., INFORMATION] * (curve.worth[..., None, :, None] * near**2)[..., None]
    return matrix(np.einsum("ykm,...ykme->...yke", law, squares - information))


def recalibrate(block: Block, answers: Sequence[Corrected]) -> Recalibration:
    """Estimate calibration slope, intercepts and O/E with intervals for a block.

    `answers` are the first and the second corrections; those that do not depend on the point are
    averaged over both.
    """
    last = answers[-1]
    sums = _weighted_sums(block, last.values) + last.found
    slope, intercept = _line(block, last, sums)
    return Recalibration(slope, intercept, _in_the_large(block, last, sums), _ratio(block, answers))


def _line(block: Block, answer: Corrected, sums: Array) -> tuple[Estimate, Estimate]:
    """Estimate slope and intercept of the label's log-odds on the model's.

    `sums`, (STATISTICS,), are the corrected sums over the rows of the block.
    """
    H, curve = matrix(sums[INFORMATION]), answer.curve
    covariance = _covariance(block, answer)
    few = Estimate(None, refused=SAYS_NOTHING)
    if not np.all(np.isfinite(covariance)):
        return few, few
    end, apart = _solved(block, answer)
    step = np.array([end.level - curve.level, end.slope - curve.slope])
    if float(step @ H @ step) > LONGEST**2 * H[0, 0]:
        far = Estimate(
            None,
            refused="the regression on the model's log-odds did not converge: most rows are in one "
            "cell of the histogram of scores",
        )
        return far, far
    disagreement = np.outer(apart, apart)
    covariance = covariance + disagreement
    of_slope, of_intercept = np.array([0.0, 1.0]), np.array([1.0, -float(curve.base)])
    slope = _between_ends(block, answer, end, of_slope, covariance, disagreement)
    if slope.value is None or slope.high is None:
        return few, few
    if slope.high - slope.value > FARTHEST_END * max(1.0, abs(slope.value)):
        return few, few
    return slope, _between_ends(block, answer, end, of_intercept, covariance, disagreement)


def _between_ends(
    block: Block,
    answer: Corrected,
    end: Curves,
    direction: Array,
    covariance: Array,
    disagreement: Array,
) -> Estimate:
    """Estimate the product of `direction` with (level, slope), with an asymmetric interval.

    The error at either end is the larger of the standard error at the estimate and that at the
    likeliest line with the value of the end.  A steeper line has less information, so an estimate
    that noise made too small has too small a standard error.  Without noise the interval is the
    usual one of a regression program.  Refused if the information vanishes at one of the ends.

    Parameters
    ----------
    block, answer : Block, Corrected
        Rows, and their corrections.
    end : Curves
        The estimated line.
    direction : array (2,)
        Weights of level and slope.
    covariance, disagreement : arrays (2, 2)
        Covariance of level and slope at the estimate, and its part that does not depend on the
        line.
    """
    value = float(direction @ np.array([float(end.level), float(end.slope)]))
    variance = float(direction @ covariance @ direction)
    if block.sigma == 0.0:
        return Estimate.normal_interval(value, variance, -math.inf, math.inf)
    along = Z * covariance @ direction / math.sqrt(variance)
    errors = []
    for side in (-1.0, 1.0):
        there = replace(end, level=end.level + side * along[0], slope=end.slope + side * along[1])
        spread = (
            _covariance(block, answer._replace(curve=there, values=values_of(there))) + disagreement
        )
        if not np.all(np.isfinite(spread)):
            return Estimate(None, refused=SAYS_NOTHING)
        errors.append(math.sqrt(max(variance, float(direction @ spread @ direction))))
    return Estimate(value, value - Z * errors[0], value + Z * errors[1])


def _in_the_large(block: Block, answer: Corrected, sums: Array) -> Estimate:
    """Estimate the calibration intercept at slope 1 (calibration in the large).

    `sums`, (STATISTICS,), are the corrected sums over the rows of the block.
    """
    shift, bent = float(answer.curve.shift), float(sums[BENT])
    if bent <= 0.0:
        return Estimate(None, refused=SAYS_NOTHING)
    end = _shift(block, answer.curve, answer)
    # Difference of the solution from a single Newton step, as a further error.
    apart = end - shift - float(sums[IN_THE_LARGE]) / bent
    error = math.hypot(math.sqrt(_variance_in_the_large(block, answer, shift)) / bent, apart)
    low, high = end - Z * error, end + Z * error
    if block.sigma > 0.0:
        low, high = _ends_in_the_large(block, answer, sums, end, apart)
    # A narrow bound at the ends would refuse the estimates that noise moved to where the rows tell
    # less.
    farthest = max(end - low, high - end)
    if not (Z * error <= WIDEST and farthest <= FARTHEST_END):
        return Estimate(None, refused=SAYS_NOTHING)
    return Estimate(float(end), float(low), float(high))


def _variance_in_the_large(block: Block, answer: Corrected, shift: float) -> float:
    """Return the variance of observed less expected positives, at a shift of the log-odds.

    It is that of the residuals in the histogram, and that of the noise in histogram and correction.
    """
    p = special.expit(placements(EDGES, answer.curve.tails) + float(answer.curve.base) + shift)
    squares = np.mean([p**2, (1.0 - p) ** 2], axis=2)
    sampled = float(np.sum(np.maximum(block.counts, 0.0) * squares))
    values = answer.values[..., IN_THE_LARGE]
    noise = block.sigma**2 * float(np.sum(values**2)) + float(answer.spread[IN_THE_LARGE]) ** 2
    return sampled + noise


def _ends_in_the_large(
    block: Block, answer: Corrected, sums: Array, end: float, apart: float
) -> tuple[float, float]:
    """Return the shifts at which observed less expected positives is as far from 0 as is likely.

    With the residual f at the shift of the corrections and D(a) the positives that are expected
    more at a (:func:`_more_expected`), the residual at a is ``f - D(a)``.  As it falls in a, the
    shifts at which ``(f - D)^2 <= Z^2 (V + q^2 D^2)`` are an interval, with the variance V of f and
    the relative error q of D (Fieller 1954).  It has no ends where noise leaves room for a D of 0.
    """
    shift, bent = float(answer.curve.shift), float(sums[BENT])
    residual = float(sums[IN_THE_LARGE])
    room = Z**2 * answer.bent_variance / bent**2
    # (1 - Z^2 q^2) D^2 - 2 f D + f^2 - Z^2 V = 0
    square = 1.0 - room
    if square <= 0.0:
        return -math.inf, math.inf
    variance = _variance_in_the_large(block, answer, shift)
    half = math.sqrt(Z**2 * variance * square + room * residual**2)
    ends = []
    for side in (-1.0, 1.0):
        more = (residual + side * half) / square
        # Both ends as far out as may be: an end that lies on the other side of the shift is nearer
        # to it the more positives there are on the way.
        at = shift + _distance_for(more, block, answer, bent, growing=more * side < 0.0)
        ends.append(end + side * math.hypot(at - end, Z * apart))
    return ends[0], ends[1]


def _more_expected(
    block: Block, answer: Corrected, bent: float, distance: float, *, growing: bool
) -> float:
    """Return how many positives more are expected at a distance from the shift, at least or at
    most (`growing`).

    Rows of the inner cells are where the histogram has them.  Of rows in the open cells nothing
    says how far away they are: they have the rest of the information `bent`, of which a row loses
    or gains a factor of e at most for each logit that the shift moves, as ``|d log p (1 - p)| <=
    1``.
    """
    curve = answer.curve
    inner = np.maximum(block.total, 0.0)
    inner[[0, -1]] = 0.0
    shift = float(curve.shift)
    own = placements(EDGES, curve.tails) + float(curve.base)
    here, by_inner = _expected(inner, own, shift)
    there, _ = _expected(inner, own, shift + distance)
    scale = min(1.0, bent / max(by_inner, _TINY))
    rest = max(bent - by_inner, 0.0)
    size = -math.expm1(-abs(distance))
    if growing:
        size = math.expm1(abs(distance))
    return scale * (there - here) + rest * math.copysign(size, distance)


def _distance_for(
    more: float, block: Block, answer: Corrected, bent: float, *, growing: bool
) -> float:
    """Return the distance from the shift at which so many positives more are expected.

    Infinite if they are at none; `growing` is that of :func:`_more_expected`.
    """
    far = math.copysign(FARTHEST_SHIFT, more)

    def lacking(distance: float) -> float:
        return _more_expected(block, answer, bent, distance, growing=growing) - more

    if lacking(far) * far <= 0.0:
        return math.copysign(math.inf, more)
    return float(optimize.brentq(lacking, 0.0, far, xtol=1e-9))


def _ratio(block: Block, answers: Sequence[Corrected]) -> Estimate:
    """Estimate O/E, observed over expected positives, with an interval symmetric in its log."""
    values = answers[-1].values[..., OBSERVED_LESS_EXPECTED]
    correction, spread = average_corrections(answers, OBSERVED_LESS_EXPECTED)
    observed = float(block.counts[1].sum())
    expected = observed - float(np.sum(block.counts * values)) - correction
    blur = block.sigma * math.sqrt(CELLS)
    if min(observed, expected) <= max(CLEAR * blur, 0.0):
        return Estimate(None, refused="too few positives for this noise")
    ratio = observed / expected
    p = special.expit(placements(EDGES, answers[-1].curve.tails) + float(answers[-1].curve.base))
    squares = np.stack([np.mean((ratio * p) ** 2, axis=1), np.mean((1.0 - ratio * p) ** 2, axis=1)])
    sampled = float(np.sum(np.maximum(block.counts, 0.0) * squares))
    label = np.array([0.0, 1.0])[:, None]
    # Delta method for log(O / E): a row of the cell moves O by `label` and E by `label - values`.
    moved = label - ratio * (label - values)
    noise = block.sigma**2 * float(np.sum(moved**2)) + (ratio * spread) ** 2
    half = Z * math.sqrt(sampled + noise) / observed
    return Estimate(ratio, ratio * math.exp(-half), ratio * math.exp(half))


def average_corrections(answers: Sequence[Corrected], which: int) -> tuple[float, float]:
    """Average a correction that does not depend on the point, by precision.

    `which` is its number among the statistics.  Also returns the noise deviation of the average.
    """
    spreads = np.array([float(one.spread[which]) for one in answers])
    found = np.array([float(one.found[which]) for one in answers])
    if not np.all(spreads > 0.0):
        # Without noise all corrections agree.
        return float(found.mean()), 0.0
    sure = spreads**-2.0
    return float(found @ sure / sure.sum()), float(sure.sum() ** -0.5)
