"""Calibration slope, intercepts and O/E from a histogram of scores by label and two corrections of
it.

With z the log-odds of the judged model, ``logit P(y = 1) = a + b z`` is fitted by Newton's method
to the score equations of a logistic regression: their sum over rows is that over the noisy
histogram, with scores where a public law puts them within the cells, plus the released
:class:`sottovoce.queries.Corrections` of just that.  One block of rows at a time: all rows, or
those of a group (docs/privacy/answers.md, "Evaluation").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
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

special = Later("scipy.special")

EDGES: Array = np.asarray(WIDTH * (np.arange(1, CELLS) - CELLS / 2.0), dtype=np.float64)
"""Edges of the cells, less their middle."""
FARTHEST = 1024.0
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
"""Distances from the middle of the cells, in logits, beyond which rows count less, and worths of
rows in open cells.
"""
MORE_NOISE = 1.05
"""Standard errors may grow by this factor for one further down that list."""
WIDEST = 1.0
"""Half the width of the widest interval in the large that is printed."""
# With a bound for the width at the estimate 91 to 92% of the printed intervals covered, with this
# one 94 to 97% (250 sets each of 2,000 rows at epsilon .5).
FARTHEST_END = 3.0
"""How far above a slope, and above 1 in slopes, its interval may reach: a longer one says nothing.

The error of a slope grows with the slope, and where noise is large it grows fast.  A bound for the
error alone would refuse the slopes that noise made large, and a narrow bound at the upper end those
that it did not make small: what is left would lie below the truth.
"""
LONGEST = 1.0
"""Root mean square shift of log-odds from the last point of corrections, beyond which these tell
too little.
"""
SAYS_NOTHING = "too few rows for this noise: the interval would be too wide to be of use"
"""Reason of a refusal in the printed results."""
LACKING = 0.1
"""Share of an information that its correction is likely to be; of more, the counts themselves
must say so.
"""
# Believing corrections of two deviations made errors of 100% in the information.
CERTAIN = 3.0
"""Noise deviations of a correction of information, by which it has to be larger than what is
likely, to be believed.
"""
IGNORED = 0.1
"""Share of a sampling variance by which the histogram may differ from a regression that holds,
by its cells alone.
"""
APART = 0.25
"""Root mean square of log-odds by which the curvature of the histogram may lead away from a step
of Newton's method.
"""
SETTLING = 8
"""First turns of a fit of the histogram, in which the worths of cells follow the curve."""
_LONGEST_STEP, _STEEPEST = 1.5, 50.0
_CELL: IntArray = np.arange(CELLS)
_LESS: Array = np.array([1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 4.0])
"""How much more noise, in its largest values, a correction of each statistic may have than those
of the score.
"""
_LABEL: Array = np.array([0.0, 1.0])[:, None, None]
_TINY = 1e-12


class Block(NamedTuple):
    """Noisy counts by label and cell, (2, CELLS), their noise deviation, and the rows."""

    counts: Array
    sigma: float
    rows: float

    @property
    def total(self) -> Array:
        """Rows by cell."""
        return np.asarray(self.counts.sum(axis=0))


class Corrected(NamedTuple):
    """A block's answer: corrections of sums over its rows at `curve`, with their noise."""

    curve: Curves
    values: Array  # of a row by label and cell            (2, CELLS, STATISTICS)
    found: Array  # sum over rows less that of the values  (STATISTICS,)
    spread: Array  # standard deviation of noise           (STATISTICS,)


def corrected(block: Block, curve: Curves, values: Array, found: Array, spread: Array) -> Corrected:
    """Shrink the corrections of an answer by the share of noise in them.

    Only so much of a correction of information is kept as is not likely to be noise.  That is
    judged for scores less their mean by information.  Where rows are far from the middle of the
    cells, level and slope are nearly collinear, and what little is told of the slope is a
    difference of entries that are all large: a small error in each of them would be a large one
    of it.

    Parameters
    ----------
    block : Block
    curve : Curves
        The point at which the corrections were asked.
    values : array (2, CELLS, STATISTICS)
        What a row of each label and cell stands for.
    found : array (STATISTICS,)
        Released sums over rows, less those of `values`.
    spread : array (STATISTICS,)
        Standard deviation of their noise.

    Returns
    -------
    Corrected
    """
    H = np.einsum("yk,yke->e", block.counts, values)
    kept = found.copy()
    kept[BENT] *= float(_kept_share_of_correction(found[BENT], spread[BENT], abs(H[BENT])))
    level, mixed, _ = H[INFORMATION]
    mean = mixed / level if level > 0.0 else 0.0
    centred = np.array([[1.0, 0.0, 0.0], [-mean, 1.0, 0.0], [mean**2, -2.0 * mean, 1.0]])
    there, about = centred @ found[INFORMATION], centred @ H[INFORMATION]
    noise = np.sqrt(centred**2 @ spread[INFORMATION] ** 2)
    scale = np.abs(about)
    scale[1] = math.sqrt(max(about[0] * about[2], 0.0))
    kept[INFORMATION] = np.linalg.solve(
        centred, there * _kept_share_of_correction(there, noise, scale)
    )
    return Corrected(curve, values, kept, spread)


def _kept_share_of_correction(found: Array, noise: Array, scale: Array) -> Array:
    """Return the share of noisy corrections that is kept, if `LACKING` of the scale is likely."""
    unit = np.maximum(scale, _TINY)
    variance = (noise / unit) ** 2
    likely = np.maximum((found / unit) ** 2 - CERTAIN**2 * variance, LACKING**2)
    return np.asarray(likely / (likely + variance))


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
    """Return what a row of each label and cell stands for, (..., 2, CELLS, STATISTICS).

    That is the mean over places within the cell.  Of the model's probabilities it is the middle of
    what they may be in the cell, which has the smallest corrections.  Places themselves are one
    half on average.  Of several reaches (...) and worths, if the curve has such.
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
    """Score and information of a row of each label and cell, the mean over the places u: (...,
    2, CELLS, 5).
    """
    return np.asarray(_line_everywhere(curve, u).mean(axis=-2))


def _line_everywhere(curve: Curves, u: Array) -> Array:
    """Score and information of a row of each label at the places u of each cell, (..., 2, CELLS,
    places, 5).
    """
    return line_statistics(
        curve, u, _LABEL, curve.worth[..., None, :, None], curve.reach[..., None, None, None]
    )


def units_of(curve: Curves, values: Array) -> Array:
    """Return the largest corrections of a row, (..., STATISTICS), as units.

    In these units no row's corrections are longer than 1.
    """
    u, cell = _probes(curve.reach)
    place = places_within_cells(EDGES, u, cell, curve.tails)
    label = np.repeat([0, 1], len(cell))
    cell = np.tile(cell, 2)
    u, place = np.concatenate([u, u], axis=-1), np.concatenate([place, place], axis=-1)
    found = added_statistics(curve, u, label.astype(float), cell, place)
    missed = found - values[..., label, cell, :]
    largest = np.maximum(np.max(np.abs(missed), axis=-2), _TINY) * _LESS
    length = np.max(np.linalg.norm(missed / largest[..., None, :], axis=-1), axis=-1)
    return np.asarray(1.02 * length[..., None] * largest)


def _probes(reach: Array) -> tuple[Array, IntArray]:
    """Scores (..., n) at which a row's corrections are looked at for a reach (...), and their
    cells (n,).
    """
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
    return u, np.repeat(_CELL, [outside, *[len(inner) // (CELLS - 2)] * (CELLS - 2), outside])


class _Within(NamedTuple):
    """Places of rows within the cells, and what their log-odds are multiplied by there."""

    u: Array  # (CELLS, places)
    powers: Array  # 1, u and u^2, less beyond the reach  (3, CELLS * places)


def _within(curve: Curves) -> _Within:
    u = placements(EDGES, curve.tails)
    near = share_in_reach(u, curve.reach)
    bent = near * u
    return _Within(u, np.stack([near**2, near * bent, bent**2]).reshape(3, -1))


def _line_sums(block: Block, curve: Curves, rows: _Within) -> Array:
    """Score and information summed over the rows of a block, (5,): the sums of
    :func:`_line_values`.

    Newton's method asks for them at many lines, and for the same places: so cells are summed before
    labels are parted.
    """
    log_odds = np.clip(curve.level + curve.slope * rows.u, -700.0, 700.0)
    p, other = special.expit(log_odds), special.expit(-log_odds)
    negatives, positives = (block.counts * curve.worth / rows.u.shape[1])[..., None]
    pull = positives * other - negatives * p
    information = (negatives + positives) * p * other
    return np.concatenate([rows.powers[:2] @ pull.ravel(), rows.powers @ information.ravel()])


def matrix(entries: Array) -> Array:
    """The symmetric matrix of three entries of an information, (..., 2, 2)."""
    return entries[..., [[0, 1], [1, 2]]]


# Points of the corrections


def first_point(block: Block, center: float, spread: float) -> Curves:
    """Choose the point of the first corrections, from the histogram alone.

    A cell's worth is the share of its information in what it says, noise included.

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
            curve = replace(curve, worth=_worth(block, curve))
        curve, step = _newton_step(curve, _line_sums(block, curve, within), 1e-6 * block.rows)
        if step < 1e-7 and turn > SETTLING:
            break
    curve = replace(curve, worth=_worth(block, curve), shift=np.array(_shift(block, curve)))
    return _reaching(block, curve, spread)


def second_point(block: Block, answer: Corrected) -> Curves:
    """Choose the point of the second corrections: where the first ones lead."""
    curve, _ = _solved(block, answer)
    return replace(curve, shift=np.array(_shift(block, curve, answer)))


def _solved(block: Block, answer: Corrected) -> tuple[Curves, Array]:
    """Return the point where the corrected score vanishes, by the histogram's own changes.

    The matrix is such that it changes by its own information at the point of the corrections.
    Where that leads far from one step of Newton's method, and without such a point, it is that
    step.  Returns also how far the two are apart, in level and slope.
    """
    own = _weighted_sums(block, values_of(answer.curve))
    sums = _weighted_sums(block, answer.values) + answer.found
    H = matrix(sums[INFORMATION])
    if not _is_positive(H):
        return answer.curve, np.full(2, np.inf)
    newton = _newton_step(answer.curve, sums, 0.0)[0]
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
    return np.einsum("yk,...yke->...e", block.counts, values)


def _newton_step(curve: Curves, sums: Array, ridge: float) -> tuple[Curves, float]:
    """Take one step of Newton's method, not too long; return its end and its length."""
    H = matrix(sums[INFORMATION]) + ridge * np.eye(2)
    if not _is_positive(H):
        return curve, math.inf
    step = np.linalg.solve(H, sums[SCORE])
    # root mean square of log-odds, of rows by their information
    shift = math.sqrt(float(step @ H @ step) / H[0, 0])
    step = step / max(1.0, shift / _LONGEST_STEP)
    level = min(max(float(curve.level + step[0]), -4.0 * _STEEPEST), 4.0 * _STEEPEST)
    slope = min(max(float(curve.slope + step[1]), -_STEEPEST), _STEEPEST)
    return replace(curve, level=np.array(level), slope=np.array(slope)), float(np.max(np.abs(step)))


def _is_positive(H: Array) -> Any:
    """Return which symmetric matrices (..., 2, 2) are clearly positive definite."""
    level, mixed, slope = H[..., 0, 0], H[..., 0, 1], H[..., 1, 1]
    return (level > 0.0) & (level * slope > mixed**2 * (1.0 + 1e-12))


def _worth(block: Block, curve: Curves) -> Array:
    """Return the weight of a row in each cell: 1 without noise, small where noise dominates.

    The number of rows of a cell is the noisy one, less what its noise has in common with that of
    the score: else cells would count most where noise makes them say something.
    """
    noise = block.sigma**2
    if noise == 0.0:
        return np.ones(CELLS)
    p = special.expit(
        np.clip(curve.level + curve.slope * placements(EDGES, curve.tails), -700.0, 700.0)
    ).mean(axis=1)
    blur = p**2 + (1.0 - p) ** 2
    likely = np.maximum(block.counts[1] * p + block.counts[0] * (1.0 - p), 0.0) / blur
    score = block.counts[1] * (1.0 - p) - block.counts[0] * p
    common = noise * (1.0 - 2.0 * p) / (noise * blur + likely * p * (1.0 - p))
    told = np.maximum(block.total - common * score, 0.0) * p * (1.0 - p)
    return np.asarray(np.maximum(told / (told + noise * blur), 1e-6))


def _shift(block: Block, curve: Curves, answer: Corrected | None = None) -> float:
    """Return the shift of log-odds that makes expected positives equal the observed ones.

    Positives that are missing change with the shift as those of the histogram do, times a number:
    such that they change by their own information at the shift of the corrections.
    """
    total = np.maximum(block.total, 0.0)
    shift, missing = float(curve.shift), 0.0
    if answer is not None:
        sums = _weighted_sums(block, answer.values) + answer.found
        expected, bent = _expected(total, curve, shift)
        missing = sums[IN_THE_LARGE] * bent / max(sums[BENT], 0.1 * bent, _TINY) + expected
    else:
        missing = float(block.counts[1].sum())
    missing = min(max(missing, 0.1), float(total.sum()) - 0.1)
    for _ in range(60):
        expected, bent = _expected(total, curve, shift)
        step = min(max((missing - expected) / max(bent, _TINY), -1.0), 1.0)
        shift = min(max(shift + step, -30.0), 30.0)
        if abs(step) < 1e-10:
            break
    return shift


def _expected(total: Array, curve: Curves, shift: float) -> tuple[float, float]:
    """Positives that the shifted model expects of rows by cell, and how that grows with the
    shift.
    """
    p = special.expit(placements(EDGES, curve.tails) + float(curve.base) + shift)
    return float(total @ p.mean(axis=1)), float(total @ np.mean(p * (1.0 - p), axis=1))


def _order(block: Block) -> Array:
    """Weights of a row's place in its cell in the area under the curve, (2, CELLS)."""
    counts = project_on_simplex(block.counts, block.rows)
    negatives, positives = (max(float(own.sum()), 1.0) for own in counts)
    return np.stack([-counts[1], counts[0]]) / (negatives * positives)


def _reaching(block: Block, curve: Curves, spread: float) -> Curves:
    """The curve with the farthest reach at which the noise of corrections costs little."""
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
    """Covariance of level and slope: of sampling, by the sandwich, and of noise; infinite if
    nothing is told.

    Sampling has the variance of a regression that holds, unless the histogram tells that labels
    have another.  Of several reaches at once, (..., 2, 2), if the curve has such.
    """
    curve, values = answer.curve, answer.values
    H = matrix((_weighted_sums(block, values) + answer.found)[..., INFORMATION])
    told = np.asarray(_is_positive(H))[..., None, None]
    H = np.where(told, H, np.eye(2))
    P = np.linalg.inv(H)
    # information with the squares of worths
    by_square = values[..., INFORMATION] * curve.worth[..., None, :, None]
    model = (
        H
        + matrix(_weighted_sums(block, by_square))
        - matrix(_weighted_sums(block, values)[..., INFORMATION])
    )
    excess = _excess(curve)
    turn = np.linalg.cholesky(P)
    back = np.swapaxes(turn, -1, -2)
    whole = back @ np.einsum("yk,...ykij->...ij", block.counts, excess) @ turn
    each = back[..., None, None, :, :] @ excess @ turn[..., None, None, :, :]
    chances = np.maximum(block.counts, 0.0) + block.sigma**2
    by_chance = np.einsum("yk,...ykij->...", chances, each**2)
    ignored = by_chance + IGNORED**2 * np.sum((back @ model @ turn) ** 2, axis=(-2, -1))
    size = np.maximum(np.sum(whole**2, axis=(-2, -1)), _TINY)
    kept = np.maximum(0.0, 1.0 - ignored / size)[..., None, None]
    score = values[..., SCORE]
    of_cells = block.sigma**2 * np.einsum("...yki,...ykj->...ij", score, score)
    of_corrections = answer.spread[..., SCORE, None] ** 2 * np.eye(2)
    # H^-1 (J + sigma^2 sum phi phi' + sigma_c^2) H^-1, in coordinates where H is the identity.
    spread = back @ (model + of_cells + of_corrections) @ turn + kept * whole
    eigenvalues, vectors = np.linalg.eigh(spread)
    spread = (vectors * np.maximum(eigenvalues, 0.02)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return np.where(told, turn @ spread @ back, np.inf)


def _excess(curve: Curves) -> Array:
    """Squares of a row's score less its information, (..., 2, CELLS, 2, 2).

    They are 0 on average if the line holds.

    Of rows that are where labels put them if the line holds: a positive in the upper part of its
    cell, rather.
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
    """Estimate slope, intercepts and O/E with intervals, from the last corrections.

    What does not depend on the point is taken from all of them.
    """
    last = answers[-1]
    sums = _weighted_sums(block, last.values) + last.found
    slope, intercept = _line(block, last, sums)
    return Recalibration(slope, intercept, _in_the_large(block, last, sums), _ratio(block, answers))


def _line(block: Block, answer: Corrected, sums: Array) -> tuple[Estimate, Estimate]:
    """Slope and intercept of the label's log-odds on the model's."""
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
    """The number that is `direction` times level and slope, with ends as far off as the error is
    large there.

    At either end the error is the larger of that at the estimate and of that at the likeliest line
    there: a steeper line leaves the labels less to tell, so an estimate that noise made small has
    too small an error.  Without noise both are the same but for terms that vanish with the number
    of rows, and those of a regression program are given. Refused if rows tell nothing of a line at
    one of the ends.

    Parameters
    ----------
    block, answer : Block, Corrected
        Rows, and their corrections.
    end : Curves
        The estimated line.
    direction : array (2,)
        Of level and slope.
    covariance, disagreement : arrays (2, 2)
        Of level and slope at the estimate, and what of it does not depend on the line.
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
    """Estimate the calibration intercept at slope 1."""
    shift, values = float(answer.curve.shift), answer.values[..., IN_THE_LARGE]
    p = special.expit(placements(EDGES, answer.curve.tails) + float(answer.curve.base) + shift)
    sampled = float(np.sum(np.maximum(block.counts, 0.0) * np.mean([p**2, (1.0 - p) ** 2], axis=2)))
    noise = block.sigma**2 * float(np.sum(values**2)) + float(answer.spread[IN_THE_LARGE]) ** 2
    bent = float(sums[BENT])
    if bent <= 0.0:
        return Estimate(None, refused=SAYS_NOTHING)
    end = _shift(block, answer.curve, answer)
    apart = end - shift - float(sums[IN_THE_LARGE]) / bent
    variance = (sampled + noise) / bent**2 + apart**2
    if Z * math.sqrt(variance) > WIDEST:
        return Estimate(None, refused=SAYS_NOTHING)
    return Estimate.normal_interval(end, variance, -math.inf, math.inf)


def _ratio(block: Block, answers: Sequence[Corrected]) -> Estimate:
    """Positives over those that the model expects, with an interval that is even in their
    logarithm.
    """
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
    moved = label - ratio * (label - values)
    noise = block.sigma**2 * float(np.sum(moved**2)) + (ratio * spread) ** 2
    half = Z * math.sqrt(sampled + noise) / observed
    return Estimate(ratio, ratio * math.exp(-half), ratio * math.exp(half))


def average_corrections(answers: Sequence[Corrected], which: int) -> tuple[float, float]:
    """Average a correction that does not depend on the point, and its noise deviation."""
    spreads = np.array([float(one.spread[which]) for one in answers])
    found = np.array([float(one.found[which]) for one in answers])
    if not np.all(spreads > 0.0):
        return float(found.mean()), 0.0
    sure = spreads**-2.0
    return float(found @ sure / sure.sum()), float(sure.sum() ** -0.5)
