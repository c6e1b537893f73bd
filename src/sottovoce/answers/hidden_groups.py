"""Groups of rows without the rarer outcome, with what their one-sided intervals are computed from
(docs/privacy/answers.md, "Separation").

A *group* is the rows of one level, of a reference level or of one site.  If none of its rows has
the rarer outcome its log-odds have no finite estimate; but the count of that outcome bounds them on
one side.  :func:`collect_hidden_groups` computes, for the groups of one table, the count with its
noise, the number of rows, and the mean row; :class:`sottovoce.answers.references.HiddenGroups`
makes intervals of them.

A group's direction v has the product 1 with every row of the group, and 0 with all others.  Of the
second moments of rows, :attr:`sottovoce.answers.separation.Evidence.sharp_moments` are the more
accurate ones, and ``moments`` those whose noise has a known deviation in every entry.  A *pivot* is
the line of a level against the most frequent one of its column
(:func:`sottovoce.answers.references.pivots`).
"""

from __future__ import annotations

import numpy as np

from ..util.typing import Array, IntArray
from .normal_rows import fit_normal_rows
from .references import HiddenGroups
from .separation import (
    Evidence,
    Groups,
    RarerOutcome,
    Undetermined,
    at_a_point,
    at_the_start,
    pooled_noise,
    rarer_chance,
)
from .terms import Naming

UNLIKE = 3.0
"""Assumed bound of the variance of the rarer outcome's probability within a group, over the square
of its mean.
"""
_SIZE_DOUBT = 2.0
"""Noise deviations that are subtracted from a group's number of rows."""
_LEAST_WEIGHT = 1e-300
"""Smallest denominator of a weight by precision."""
_LEAST_SHARE = 1e-9
"""Smallest share of the rows in a group, in denominators: noise may leave none."""
_MOSTLY_OTHERS = 0.9
"""Largest assumed share f of a group's rows that are in other groups, too.

At it the factor ``f / (1 - f)`` on the variance of margins is 9.
"""
_ROUNDING = 1e-9
"""Tolerance for rounding in the search of moved pivots."""


def collect_hidden_groups(
    naming: Naming, found: Undetermined, seen: Evidence, estimate: Array, pivots: Array
) -> HiddenGroups:
    """Collect the groups of levels, references and sites without the rarer outcome.

    Of each group only the rows are counted that are in no other such group: the log-odds of the
    other group may be infinite, and the mean margin over its rows with them.

    Parameters
    ----------
    naming : Naming
        The encoding.
    found : Undetermined
        Groups with their counts, of one replicate.
    seen : Evidence
        The releases behind them, of one replicate.
    estimate : array (d,)
        The model, in encoded columns.
    pivots : array (lines, lines)
        The map of :func:`sottovoce.answers.references.pivots`.

    Returns
    -------
    HiddenGroups
    """
    groups = found.groups
    # The vector whose product with every row is 1.
    every = naming.constant / naming.value
    places = _places_of_hidden(found, seen, estimate)
    own, blocks = groups.directions[places], groups.blocks[places]
    directions = own @ naming.into_units.T
    of_pivots = _moved_pivots(directions, pivots)
    # Levels of one column have no rows in common, and neither have sites.
    overlap = (blocks[:, None] != blocks) & (of_pivots >= 0)
    margins = _model_without_pivots(of_pivots, naming, estimate, pivots)
    covariance = fit_normal_rows(seen.sharp_moments[None], every).covariance[0]
    spread_of_margins = max(float(margins @ covariance @ margins), 0.0)
    means, variances, rows = [np.zeros((0, naming.d))], list[float](), list[float]()
    for k, place in enumerate(places):
        others = own[overlap[k]]
        # v'Sv is the group's share of the rows, and Sv over it the group's mean row.
        squares = max(float(own[k] @ seen.sharp_moments @ own[k]), _LEAST_SHARE)
        product = own[k] @ seen.sharp_moments / squares
        mean_row = _mean_row_of_group(naming, int(groups.columns[place]), float(blocks[k]), product)
        means.append(_weights_outside(of_pivots[overlap[k]], naming, mean_row, pivots))
        rows.append(_count_rows_alone(own[k], others, every, seen))
        # The entries of its level and of constants are certain, and have no noise.
        other = np.where((naming.blocks == blocks[k]) | (naming.constant > 0.0), 0.0, margins)
        of_mean = (seen.moments_spread * _noise_of_product(own[k], other) / squares) ** 2
        # How the mean row of those in no other group differs is not released: without a share f
        # of the rows it is off by sqrt(f / (1 - f)) deviations of margins at most.
        part = _share_of_others(own[k], others, seen, squares)
        variances.append(of_mean + spread_of_margins * part / (1.0 - part))
    outcome = _count_rarer_outcome(groups, every, seen)
    return HiddenGroups(
        directions=directions,
        means=np.vstack(means),
        mean_variance=np.array(variances),
        side=found.side[places],
        rarer=outcome.rows[places],
        noise=outcome.noise[places],
        rows=np.array(rows),
        printed=found.printed[places],
    )


def _places_of_hidden(found: Undetermined, seen: Evidence, estimate: Array) -> IntArray:
    """Return the positions, in ``found.groups``, of the groups that get a one-sided interval.

    Numbers have none, nor has the group of all rows, nor a level or site that was merged.  A group
    is left out if the counts at the start and the model disagree on which of its outcomes is the
    rarer one.
    """
    last = estimate
    if seen.points:
        last = seen.points[-1].at
    # Where the mean margin of a group is positive the rarer outcome is the negative one.
    margins = found.groups.directions @ seen.sharp_moments @ last
    by_model = np.where(margins > 0.0, -1.0, 1.0)
    whole = found.groups.whole & ~found.groups.all_rows
    return np.flatnonzero(found.none & whole & (found.side == by_model))


def _count_rows_alone(v: Array, others: Array, every: Array, seen: Evidence) -> float:
    """Return a lower bound of the number of a group's rows that are in none of the others.

    Two noise deviations are subtracted, so that bounds by the number hold.

    Parameters
    ----------
    v : array (d,)
        Direction of the group: its product with a row is 1 in the group, and 0 elsewhere.
    others : array (m, d)
        Directions of the other groups.
    every : array (d,)
        The vector whose product with every row is 1.
    seen : Evidence
        With the second moments and their noise.
    """
    # Its product with a row is 1 in none of the others, 0 in one of them, and less in several.
    alone = every - others.sum(axis=0)
    doubt_of_all = _SIZE_DOUBT * seen.moments_spread * _noise_of_product(v, every)
    doubt_of_alone = _SIZE_DOUBT * seen.moments_spread * _noise_of_product(v, alone)
    share_alone = float(v @ seen.moments @ alone) - doubt_of_alone
    share = float(v @ seen.moments @ every) - doubt_of_all
    return seen.rows * min(share_alone, share)


def _noise_of_product(v: Array, other: Array) -> float:
    """Compute the standard deviation of ``v'E other`` for unit noise E in second moments."""
    # An entry of E off the diagonal has half the variance of one on it.
    return float(np.sqrt(0.5 * (np.sum(v**2) * np.sum(other**2) + (v @ other) ** 2)))


def _moved_pivots(directions: Array, pivots: Array) -> IntArray:
    """Return the pivot that each direction (groups, lines) changes by 1; -1 if it moves several."""
    moved = directions @ pivots.T
    found = np.zeros(0, dtype=int)
    if len(moved):
        found = np.argmax(moved, axis=1)
    units = np.eye(len(pivots))[found]
    return np.where(np.all(np.abs(moved - units) < _ROUNDING, axis=1), found, -1)


def _model_without_pivots(
    of_pivots: IntArray, naming: Naming, estimate: Array, pivots: Array
) -> Array:
    """Return the model, (d,), with the pivots `of_pivots` at 0.

    A level with a pivot of 0 has the coefficient of the most frequent level.
    """
    values = pivots @ naming.into_units @ estimate
    values[of_pivots[of_pivots >= 0]] = 0.0
    return np.asarray(np.linalg.solve(pivots @ naming.into_units, values))


def _weights_outside(of_pivots: IntArray, naming: Naming, mean_row: Array, pivots: Array) -> Array:
    """Return the weights of lines in the margin of a mean row, without other groups, (lines,).

    Parameters
    ----------
    of_pivots : int array (m,)
        Pivots of the other groups: their rows count as rows of the most frequent level.
    naming : Naming
    mean_row : array (lines,)
        Weights of the lines in the margin of the mean over all of the group's rows.
    pivots : array (lines, lines)
        As for :func:`collect_hidden_groups`.
    """
    constants = np.flatnonzero(naming.constant > 0.0)
    weights = np.linalg.solve(pivots.T, mean_row)
    weights[of_pivots] = 0.0
    if np.any(np.isin(of_pivots, constants)):
        # Rows of these sites count as rows of the other sites.
        weights[constants] /= max(weights[constants].sum(), _LEAST_SHARE)
    return np.asarray(weights @ pivots)


def _share_of_others(v: Array, others: Array, seen: Evidence, squares: float) -> float:
    """Return an upper bound of the share of a group's rows that are in other groups, too.

    Parameters
    ----------
    v, others
        As for :func:`_count_rows_alone`.
    seen : Evidence
    squares : float
        The group's share of all rows.
    """
    # A row in several of the others counts more than once, so the sum is a bound.
    shares = np.maximum(others @ seen.sharp_moments @ v / squares, 0.0)
    doubt = 0.0
    if len(others):
        noise = _noise_of_product(v, others.sum(axis=0))
        doubt = _SIZE_DOUBT * seen.moments_spread * noise / squares
    return min(float(shares.sum()) + doubt, _MOSTLY_OTHERS)


def _count_rarer_outcome(groups: Groups, every: Array, seen: Evidence) -> RarerOutcome:
    """Estimate from above the rows with the rarer outcome in each group.

    The counts at the start and at all points are averaged by precision.  The count at a point is
    right if all rows of the group have the same probability; else it is too low by the sum of the
    probabilities' variance.  `UNLIKE` times the squared mean is added as a bound of that, and its
    square counts as variance of the point's count.  `every`, (d,), has the product 1 with every
    row.
    """
    counts = [at_the_start(groups, every, seen)[0]]
    added = [np.zeros(len(groups.directions))]
    size = seen.rows * np.maximum(groups.directions @ seen.sharp_moments @ every, 0.0)
    for point in seen.points:
        counts.append(at_a_point(groups, every, seen, point))
        added.append(UNLIKE * rarer_chance(groups, seen, point) ** 2 * size)
    rows = np.array([one.rows for one in counts]) + added
    noise = np.array([one.noise for one in counts])
    weight = 1.0 / np.maximum(noise**2 + np.square(added), _LEAST_WEIGHT)
    weight /= weight.sum(axis=0)
    pooled = np.sum(weight * rows, axis=0)
    return RarerOutcome(pooled, pooled_noise(weight, counts), counts[0].common)


def _mean_row_of_group(naming: Naming, column: int, block: float, product: Array) -> Array:
    """Return the weights of lines in the margin of a group's mean row, (lines,).

    Entries that are the same in all of its rows, such as the mark of its level, replace noisy ones.

    Parameters
    ----------
    naming : Naming
    column : int
        Number of the group's line; negative for a reference.
    block : float
        Number, from 1, of the column with the group's level (:attr:`Naming.blocks`); 0 for a site.
    product : array (d,)
        Noisy mean of the group's rows, in encoded columns.
    """
    weights = np.linalg.solve(naming.into_units.T, product)
    constants = naming.constant > 0.0
    if block > 0.0:
        # A row of a level has no other level of the column, and constants that sum to 1.
        weights[naming.blocks == block] = 0.0
        shares = weights[constants]
        if len(shares) == 1 or shares.sum() <= 0.0:
            shares = np.ones(len(shares))
        weights[constants] = shares / shares.sum()
    else:
        # No constant counts but that of the site itself.
        weights[constants] = 0.0
    if column >= 0:
        weights[column] = 1.0
    return np.asarray(weights)
