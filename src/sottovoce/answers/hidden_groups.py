"""From the counts of groups to one-sided intervals: which groups have one, and what it is computed of."""

from __future__ import annotations

import numpy as np

from ..util.typing import Array, BoolArray
from .references import HiddenGroups
from .separation import Evidence, Groups, RarerOutcome, Undetermined, at_a_point, at_the_start, rarer_chance
from .terms import Naming

UNLIKE = 3.0
"""Variance of the chances of a group's rows over the square of their mean, at most, where these are small."""
_SIZE_DOUBT = 2.0  # noise deviations by which a group's rows are taken to be fewer than they seem
_LEAST_WEIGHT = 1e-300
_LEAST_SHARE = 1e-9  # of the rows in a group: noise may leave none


def hidden_groups(
    naming: Naming, found: Undetermined, seen: Evidence, estimate: Array
) -> tuple[BoolArray, HiddenGroups]:
    """Groups of levels, references and sites without the rarer outcome: which they are, (groups,), and their counts.

    A group is left out if it has another rarer outcome at the start than by the model.

    Parameters
    ----------
    seen : Evidence
        Of one replicate.
    estimate : array (d,)
        The model.
    """
    groups, every = found.groups, naming.constant / naming.value
    v = groups.directions
    size = v @ seen.moments @ every
    length = np.sum(v**2, axis=1)
    of_size = seen.moments_spread * np.sqrt(0.5 * (length * np.sum(every**2) + (v @ every) ** 2))
    last = seen.points[-1].at if seen.points else estimate
    by_model = np.where(v @ seen.sharp_moments @ last > 0.0, -1.0, 1.0)
    which = found.none & groups.whole & ~groups.all_rows & (found.side == by_model)
    outcome = _counted(groups, every, seen)
    places = np.flatnonzero(which)
    means, variances = [np.zeros((0, naming.d))], list[float]()
    for k in places:
        own = float(v[k] @ seen.sharp_moments @ v[k])
        column = None if groups.columns[k] < 0 else int(groups.columns[k])
        mean_row = v[k] @ seen.sharp_moments / max(own, _LEAST_SHARE)
        means.append(_mean_row(naming, column, float(groups.blocks[k]), mean_row))
        other = np.where((naming.blocks == groups.blocks[k]) | (naming.constant > 0.0), 0.0, estimate)
        of_mean = 0.5 * (length[k] * np.sum(other**2) + (v[k] @ other) ** 2)
        variances.append(seen.moments_spread**2 * of_mean / max(own, _LEAST_SHARE) ** 2)
    return which, HiddenGroups(
        directions=v[places] @ naming.into_units.T,
        means=np.vstack(means),
        mean_variance=np.array(variances),
        side=found.side[places],
        rarer=outcome.rows[places],
        noise=outcome.noise[places],
        rows=seen.rows * (size - _SIZE_DOUBT * of_size)[places],
    )


def _counted(groups: Groups, every: Array, seen: Evidence) -> RarerOutcome:
    """A count that is rather too large, by the start and all points.

    A point's count is that of rows of equal chance, and unlike ones have more of the rarer outcome, by the variance of
    their chances: it is added as if it were `UNLIKE` squares of the mean, and a point counts the less the more that is.
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
    return RarerOutcome(np.sum(weight * rows, axis=0), np.sqrt(np.sum(weight**2 * noise**2, axis=0)))


def _mean_row(naming: Naming, column: int | None, block: float, product: Array) -> Array:
    """Weights of lines in the margin of a group's mean row, with the entries that its rows have for certain.

    `product` is the mean of its rows in encoded columns; `column` is None for a reference, and `block` 0 for a site.
    """
    weights = np.linalg.solve(naming.into_units.T, product)
    constants = naming.constant > 0.0
    if block > 0.0:
        weights[naming.blocks == block] = 0.0
        sum_of_them = weights[constants].sum()
        one = np.count_nonzero(constants) == 1 or sum_of_them <= 0.0
        shares = np.ones(np.count_nonzero(constants)) if one else weights[constants]
        weights[constants] = shares / shares.sum()
    else:
        weights[constants] = 0.0
    if column is not None:
        weights[column] = 1.0
    return np.asarray(weights)
