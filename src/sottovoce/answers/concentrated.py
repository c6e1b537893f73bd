"""Numbers whose coefficient few rows tell, such as a column of 0 and 1 that is declared as a number
(docs/privacy/answers.md, "Separation", "Numbers").

A level is a public group of rows, and its rarer outcome is counted
(:mod:`sottovoce.answers.separation`).  A number may be a group too: if it has two values, one of
them in few rows, its coefficient has the interval of a count, and none of two ends where the count
may be 0.  The values are not public, and need not be: for a column x with the values a and a + D
the square x^2 is a linear function of x, so under any weights of the rows

    mean of (x - m)^2 = V + T (mean of x - m),    T = D (1 - 2 q),

with the mean m, the variance V and the share q of the rows at a + D, all three for one set of
weights.  Second moments have such weights, and every Hessian has others: chance (1 - chance).  So T
follows from released sums, and so does L = D (1 - 2 q'), with q' for the weights of the last
Hessian.  For any column, of two values or not, L is about the third moment over the variance by
these weights.  That is the skewness of what the rows tell of the coefficient: with its variance s^2
by sampling, ``1 / (L s)^2`` is the number of rows with the rarer outcome in a level whose log-odds
are told as unevenly.  It is large where the values of a number are spread, or even to both sides.

Groups of this kind have no count of their own.  The last Newton step moves the coefficient by d,
the log-odds of the rows at the rare end by ``L d``, and so says that they have ``1 + L d`` times
the number that curvature tells.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..util.typing import Array, BoolArray
from .inference import Estimates, inverse_where_known
from .normal_rows import fit_normal_rows
from .separation import DOUBT, FEW, LEAST, SURE, Evidence, Groups, Point, Undetermined
from .terms import Naming

SEEN = 4.0
"""Deviations, of noise and of the drawing of rows, by which weights must move a column's mean for
`T` to be known; with less a column is taken to be even to both sides.
"""
_AT_ZERO = 0.25
"""A common value within this part of D of 0 is taken to be 0: then the constant is not moved."""
_ROUNDING = 1e-9
"""Part of a column's second moment below which its variance is a rounding error, and part of the
rows, or of the most curvature, below which noise has left nothing to divide by.
"""
_EXPLAINED = 4.0
"""Variance inflation of a coefficient beyond which the other columns explain most of its column:
then its rest tells of the coefficient, and how uneven that is no released sum tells.
"""
_UNLIKE = 1.25
"""Factor on the change of log-odds that curvature tells, as rows at one value are not all alike."""
_LEAST_SHARE = 1e-9
"""Least share of a rare end in the curvature."""
_ZERO = 1e-24
"""Square of a mean that is a rounding error, of rows of norm 1."""
_TINY = 1e-300
"""Keeps divisors above 0."""


class _Weighed(NamedTuple):
    """A column's moments about its mean m by the weights of one Hessian, with their noise."""

    curvature: float  # mean weight of a row
    shift: float  # mean of x - m
    shift_noise: float
    square: float  # mean of (x - m)^2
    square_noise: float


class _Column(NamedTuple):
    """Moments of one number's column, in encoded units, with their noise."""

    mean: float
    mean_noise: float
    variance: float
    variance_noise: float
    weighed: tuple[_Weighed, ...]

    @property
    def last_variance(self) -> float:
        """Variance by the weights of the last Hessian; noise may leave none."""
        return max(self.weighed[-1].square - self.weighed[-1].shift ** 2, 0.0)

    def slope_of_squares(self, drawn: float) -> tuple[float, float]:
        """Return T of the module's docstring and its standard deviation by noise.

        That is infinite where weights do not move the mean for sure.  `drawn` is the standard
        deviation of a mean by the drawing of rows, in those of the column, for weights that have
        nothing to do with the column.
        """
        shifts = np.array([one.shift for one in self.weighed])
        squares = np.array([one.square for one in self.weighed])
        of_rows = drawn**2 * self.variance + (_ROUNDING * self.mean) ** 2 + _ZERO
        doubts = [one.shift_noise**2 + self.mean_noise**2 + of_rows for one in self.weighed]
        moved = np.sum(shifts**2 / np.array(doubts))
        if moved <= SEEN**2:
            return 0.0, np.inf
        variances = np.array([one.square_noise**2 for one in self.weighed])
        weights = 1.0 / (variances + (drawn * self.variance) ** 2)
        weights = weights * shifts / np.sum(weights * shifts**2)
        of_noise = np.sum(weights**2 * variances) + (np.sum(weights) * self.variance_noise) ** 2
        return float(np.sum(weights * (squares - self.variance))), float(np.sqrt(of_noise))


class _Base(NamedTuple):
    """Second moments of rows, with the deviation of noise in an entry in their frame."""

    moments: Array  # (d, d)
    spread: float
    back: Array  # map from columns to the frame  (d, d)


class Concentrated(NamedTuple):
    """The rare ends of numbers' columns as groups of rows, (groups,) each.

    Parameters
    ----------
    columns : list of int
        The number's column of each group.
    lengths : array
        L of each, in encoded units.
    directions : array (groups, d)
        Changes of coefficients that raise the log-odds of the rare end by 1.
    rarer, noise, rows : array
        As in :class:`sottovoce.answers.separation.Undetermined`.
    side : array
        Likewise.
    missing : array
        Variance of the log-odds by sampling that the Hessian does not promise.
    expected : array
        Rows with the rarer outcome if the rare end were like all other rows.
    """

    columns: list[int]
    lengths: Array
    directions: Array
    rarer: Array
    noise: Array
    rows: Array
    side: Array
    missing: Array
    expected: Array


def concentrated_numbers(found: Estimates, naming: Naming, replicate: int) -> Concentrated:
    """Find the rare ends of the numbers' columns, of one replicate.

    Parameters
    ----------
    found : Estimates
    naming : Naming
    replicate : int

    Returns
    -------
    Concentrated
        Of every number for whose column T is known.
    """
    assert found.evidence is not None
    seen = found.evidence.of(replicate)
    one = naming
    if found.of_sites:
        one = naming.with_one_constant()
    every = one.constant / one.value
    drawn = _drawing_of_weights(seen, every)
    columns, rows = list[int](), list[tuple[float, ...]]()
    directions = [np.zeros((0, naming.d))]
    for j in np.flatnonzero((one.marks == 0.0) & (one.constant == 0.0)).tolist():
        group = _rare_end(found, naming, seen, every, drawn, j, replicate)
        if group is not None:
            columns.append(j)
            directions.append(group[0][None])
            rows.append(group[1])
    numbers = np.array(rows).reshape(len(rows), 7)
    return Concentrated(columns, numbers[:, 0], np.vstack(directions), *numbers[:, 1:].T)


def _rare_end(
    found: Estimates,
    naming: Naming,
    seen: Evidence,
    every: Array,
    drawn: float,
    j: int,
    replicate: int,
) -> tuple[Array, tuple[float, ...]] | None:
    """Return the direction and the numbers of one column's rare end, or None if T is unknown."""
    known = _column_with_slope(seen, every, drawn, j)
    if known is None:
        return None
    column, T = known
    distance = float(np.hypot(T, 2.0 * np.sqrt(column.variance)))
    L = float(np.sign(T) * np.sqrt(max(distance**2 - 4.0 * column.last_variance, 0.0)))
    if L == 0.0:
        return None
    # The value that most rows have, by the weights of the Hessian.
    share = 0.5 * (1.0 - abs(L) / distance)
    to_end = float(np.sign(L)) * distance
    common = column.mean + column.weighed[-1].shift - to_end * share
    common = _snapped_to_zero(naming, j, common, distance)
    # Mean log-odds of rows with the common value, and of the rare end, at the last point.
    at = seen.points[-1].at
    mean_row = seen.sharp_moments @ every
    size = float(every @ mean_row)
    if size <= _ROUNDING:
        return None
    mean_row = mean_row / size
    others = float(at @ mean_row) + float(at[j]) * (common - mean_row[j])
    margin = others + float(at[j]) * to_end
    outcome = -1.0 if margin > 0.0 else 1.0
    share_of_rows = max(0.5 * (1.0 - abs(T) / distance), (mean_row[j] - common) / to_end)
    L *= _part_that_fits(share, share_of_rows, others, outcome, float(at[j]) * distance)
    direction = (np.eye(naming.d)[j] - common * naming.constant / naming.value) / L
    # What other columns tell of this one makes its coefficient less sure, and its rare end no
    # rarer: the count is that of a column that the others do not explain.
    alone = 1.0 / max(seen.rows * column.weighed[-1].curvature * column.last_variance, _TINY)
    explained = max(_variance_by_model(found, j, replicate) / alone, 1.0)
    if explained > _EXPLAINED:
        return None
    sampling = _sampling_variance(found, j, replicate) / explained
    noise = float(found.noise[replicate, j, j]) / explained
    step = float(found.estimate[replicate, j] - found.at[replicate, j]) / np.sqrt(explained)
    by_curvature = 1.0 / max(L**2 * sampling, _TINY)
    rarer, missing = _count_after_step(by_curvature, outcome * step * L, without_noise=noise <= 0.0)
    expected = seen.rows * share_of_rows * min(float(seen.chance), 1.0 - float(seen.chance))
    numbers = (
        L,
        rarer,
        by_curvature * abs(L) * np.sqrt(max(noise, 0.0)),
        seen.rows * share_of_rows,
        outcome,
        missing,
        expected,
    )
    return direction, tuple(float(x) for x in numbers)


def _column_with_slope(
    seen: Evidence, every: Array, drawn: float, j: int
) -> tuple[_Column, float] | None:
    """Return the moments of column j and its T, or None if noise leaves either unknown.

    They are of whole rows or of rows as they are in Hessians: those of which noise hides less.
    """
    whole = _Base(seen.moments, seen.moments_spread, np.eye(len(every)))
    short = _Base(seen.shortened.moments, float(seen.shortened.spread), seen.shortened.back)
    told = [_moments_of_column(seen, every, j, base) for base in (whole, short)]
    columns = [one for one in told if one is not None]
    slopes = [one.slope_of_squares(drawn) for one in columns]
    if not slopes or not np.isfinite(min(error for _, error in slopes)):
        return None
    best = int(np.argmin([error for _, error in slopes]))
    return columns[best], slopes[best][0]


def _count_after_step(
    by_curvature: float, change: float, *, without_noise: bool
) -> tuple[float, float]:
    """Return the rows with the rarer outcome at the rare end, and missing sampling variance.

    Parameters
    ----------
    by_curvature : float
        Number of these rows that curvature tells, at the last point but one.
    change : float
        Of their log-odds by the last step.
    without_noise : bool
        Counts without noise are whole numbers, as their laws are.
    """
    factor = max(1.0 + change, 0.0)
    rarer = by_curvature * factor
    if without_noise:
        rarer = float(np.rint(rarer))
    missing = 0.0
    if 0.0 < factor < 1.0:
        missing = (1.0 / factor - 1.0) / by_curvature
    return rarer, missing


def _part_that_fits(
    share: float, share_of_rows: float, others: float, outcome: float, jump: float
) -> float:
    """Return the part of the distance between two values that the coefficient itself allows.

    From the common value to the rare end log-odds change by the coefficient times the distance,
    and what the rare end has of all curvature changes with them.  Where curvature falls by less,
    the column has no such two values: that of a number with a strong effect falls towards both of
    its ends.

    Parameters
    ----------
    share : float
        Of the rare end in the curvature, up to a half.
    share_of_rows : float
        Of the rare end in all rows.
    others : float
        Log-odds at the common value.
    outcome : float
        1 where the positive outcome is the rarer one at the rare end, else -1.
    jump : float
        Coefficient times distance.

    Returns
    -------
    float
        At most 1.
    """
    share, rows = np.clip([share, share_of_rows], _LEAST_SHARE, 0.5)
    chance = float(1.0 / (1.0 + np.exp(-np.clip(others, -30.0, 30.0))))
    curvature = chance * (1.0 - chance) * share * (1.0 - rows) / (rows * (1.0 - share))
    rarer = 0.5 * (1.0 - np.sqrt(max(1.0 - 4.0 * curvature, 0.0)))
    there = outcome * np.log(rarer / (1.0 - rarer))
    allowed = _UNLIKE * abs(there - others)
    if abs(jump) <= allowed:
        return 1.0
    return float(allowed / abs(jump))


def _drawing_of_weights(seen: Evidence, every: Array) -> float:
    """Return the deviation of chance (1 - chance) over its mean, over the root of the rows.

    As if margins were normal and the rarer outcome rare, by the released moments; at most 1 over
    the root of the rows.
    """
    law = fit_normal_rows(seen.sharp_moments[None], every)
    at = seen.points[-1].at
    variance = float(at @ law.covariance[0] @ at)
    return float(np.sqrt(np.expm1(min(max(variance, 0.0), np.log(2.0))) / seen.rows))


def _moments_of_column(seen: Evidence, every: Array, j: int, base: _Base) -> _Column | None:
    """Return the moments of column j by `base` and all Hessians; None if noise leaves none."""
    M = base.moments
    whole = float(every @ M @ every)
    # Noise may leave less than the least part of the rows: then nothing can be divided by it.
    if whole <= _ROUNDING:
        return None
    mean = float(M[j] @ every) / whole
    centred = np.eye(len(every))[j] - mean * every
    variance = float(centred @ M @ centred) / whole
    if variance <= _ROUNDING * max(mean**2, float(M[j, j])):
        return None
    of_mean, of_variance = _noise_of_moments(centred @ base.back, every @ base.back)
    inside, all_inside = centred @ seen.back, every @ seen.back
    weighed = [_weighed(point, inside, all_inside) for point in seen.points]
    known = tuple(one for one in weighed if one is not None)
    if len(known) < len(weighed) or not known:
        return None
    spread = base.spread / whole
    return _Column(mean, spread * of_mean, variance, spread * of_variance, known)


def _noise_of_moments(centred: Array, every: Array) -> tuple[float, float]:
    """Return the deviations of ``centred'E every`` and ``centred'E centred`` for unit noise E."""
    lengths = float(centred @ centred), float(every @ every)
    of_shift = np.sqrt(0.5 * (lengths[0] * lengths[1] + float(centred @ every) ** 2))
    return float(of_shift), lengths[0]


def _weighed(point: Point, centred: Array, every: Array) -> _Weighed | None:
    """Return moments by the weights of one Hessian, in whose frame both vectors are."""
    curvature = float(every @ point.hessian @ every)
    if curvature <= _ROUNDING:
        return None
    spread = point.hessian_spread / curvature
    square = float(centred @ point.hessian @ centred) / curvature
    of_shift, of_square = _noise_of_moments(centred, every)
    of_curvature = float(every @ every) * square
    return _Weighed(
        curvature=curvature,
        shift=float(centred @ point.hessian @ every) / curvature,
        shift_noise=spread * of_shift,
        square=square,
        square_noise=spread * float(np.hypot(of_square, of_curvature)),
    )


def _snapped_to_zero(naming: Naming, j: int, common: float, distance: float) -> float:
    """Return the common value of column j, or that of 0 in the user's units if it is near."""
    zero = float(naming.into_units[-1, j])
    if abs(common - zero) < _AT_ZERO * distance:
        return zero
    return common


def _sampling_variance(found: Estimates, j: int, replicate: int) -> float:
    """Return the variance of coefficient j by sampling: the larger of the rows' and the model's."""
    by_rows = float(found.sampling[replicate, j, j])
    return max(_variance_by_model(found, j, replicate), by_rows)


def _variance_by_model(found: Estimates, j: int, replicate: int) -> float:
    """Return the variance of coefficient j by sampling if the model is right."""
    one = slice(replicate, replicate + 1)
    inverse, _ = inverse_where_known(found.hessian[one], found.kept[one], np.zeros(1))
    row = found.frame[replicate][j]
    return float(row @ inverse[0] @ row) / found.rows


def with_concentrated(counted: Undetermined, ends: Concentrated, naming: Naming) -> Undetermined:
    """Return the counted groups with the rare ends of numbers behind them.

    A rare end is not determined if its count is not more than `SURE` deviations above 0, or not
    `DOUBT` deviations above `LEAST` rows.

    Parameters
    ----------
    counted : Undetermined
    ends : Concentrated
        Of the same replicate.
    naming : Naming
        The encoding.

    Returns
    -------
    Undetermined
    """
    size = len(ends.columns)
    old = counted.groups
    groups = Groups(
        np.vstack([old.directions, ends.directions]),
        np.zeros((len(old.columns) + size, 0), dtype=bool),
        np.append(old.columns, np.array(ends.columns, dtype=int)),
        np.append(old.blocks, np.full(size, np.nan)),
        np.append(old.all_rows, np.zeros(size, dtype=bool)),
        np.append(old.rare_ends, np.ones(size, dtype=bool)),
    )
    groups = groups._replace(decides=groups.decided(naming.into_units))
    printed = np.maximum(LEAST + DOUBT * ends.noise, SURE * ends.noise)
    none: BoolArray = ends.rarer < printed
    parts = {
        "none": none,
        "present": none & (ends.rarer > SURE * ends.noise),
        "certain": none & (ends.rarer + SURE * ends.noise <= FEW * ends.expected),
        "rarer": ends.rarer,
        "rows": ends.rows,
        "noise": ends.noise,
        "printed": printed,
        "side": ends.side,
        "missing": ends.missing,
    }
    return Undetermined(
        groups,
        **{name: np.append(whole, parts[name]) for name, whole in counted.counts.items()},
    )
