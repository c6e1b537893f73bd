"""Line search along Newton steps, and the errors it leaves, as if rows were normally distributed
(docs/privacy/answers.md, "Steps").

A Newton step assumes constant curvature.  Where effects are strong curvature is not constant: with
margins (linear scores) z of standard deviation s the mean of p(1 - p) falls about as 1 / s.  So a
step from small coefficients is several times too short, and a few steps do not arrive.  How
curvature changes along a step follows approximately from the released second moments.  Let u be the
shift of a row's margin by the step.  For normal rows Stein's lemma gives the slope of the mean loss
along the step,

    E[p(z + t u) u] = E u E p(z + t u) + Cov(z + t u, u) E p'(z + t u),

and the step is multiplied by the t at which this slope has risen by ``E[p'(z) u^2]``, the rise that
Newton's step assumes.  Where the gradient is 0 the step is 0, whatever the rows are: the normal law
decides only how far to go.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..problem.losses import Logistic
from ..util import normal
from ..util.typing import Array, BoolArray
from .frames import project_to_semidefinite

_GRID = np.linspace(-6.5, 6.5, 131)
"""Deviations of a normal margin: the trapezoid rule on it is exact to 1e-8 for margins of
deviation 10.
"""
_WEIGHTS = np.exp(-0.5 * _GRID**2)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
# Eigenvalues below this part of the largest one are 0: rows do not vary in that direction.
_SINGULAR = 1e-11
# Smallest mean curvature in a denominator: at margins of hundreds, it underflows.
_NO_CURVATURE = 1e-300
# Steps of bisection.
_HALVINGS = 50
_TINY = 1e-12
# Variance of margins by slopes up to which no row is moved.
_NO_VARIANCE = 1e-12
# Factor on the size of all effects, up and down, for a difference quotient.
_NEARBY = 1.05
_MOST = 30.0
"""Standard deviation of margins beyond which the room of the size of effects is taken to be 0.

There the points of the grid are 3 log-odds apart, and mean curvatures are off by 4%.
"""
_Z = 1.96
"""Normal quantile of 95% intervals."""


class NormalRows(NamedTuple):
    """Normal law of the rows, of R replicates."""

    weight: Array  # mean weight of a row, below 1 if long rows count less  (R, 1)
    mean: Array  # (R, d)
    covariance: Array  # (R, d, d)

    def by_curvature(self, w: Array) -> Array:
        """Return second moments of rows weighted by their curvature ``p'(x'w)``, (R, d, d).

        That is the Hessian at w, (R, d), over the mean curvature.  With w = 0, or a constant alone,
        it is the matrix of second moments of all rows.  Where effects are strong only rows near the
        decision boundary have curvature, and they hardly vary along w.
        """
        return self._by_curvature(w)[0]

    def hessian(self, w: Array) -> Array:
        """Return the Hessian at w, (R, d), of the logistic loss: (R, d, d)."""
        moments, curvature = self._by_curvature(w)
        return moments * curvature[:, None, None]

    def _by_curvature(self, w: Array) -> tuple[Array, Array]:
        """Return :meth:`by_curvature`, and the mean curvature, (R,)."""
        along = np.einsum("rij,rj->ri", self.covariance, w)
        variance = np.maximum(np.sum(w * along, axis=1), 1e-12)
        chance = _chances(np.sum(self.mean * w, axis=1), variance)
        share = _WEIGHTS * chance * (1.0 - chance)
        curvature = share.sum(axis=1)
        share = share / np.maximum(curvature, _NO_CURVATURE)[:, None]
        # Change of x per standard deviation of the margin.
        slope = along / np.sqrt(variance)[:, None]
        center = share @ _GRID
        spread = share @ _GRID**2 - center**2
        mean = self.mean + center[:, None] * slope
        around = (
            self.covariance + (spread - 1.0)[:, None, None] * slope[:, :, None] * slope[:, None, :]
        )
        moments = self.weight[:, :, None] * (around + mean[:, :, None] * mean[:, None, :])
        return np.asarray(moments), np.asarray(curvature)


def as_curvature_falls(
    rows: NormalRows, w: Array, end: Array, covariance: Array, part: Array
) -> Array:
    """Compute the covariance after the correction of a step for falling curvature.

    A Newton step d is corrected by half of ``H^-1 K d``, about, with the change K of the Hessian
    along it; the correction is about quadratic in d.  So an error e of the step becomes ``e - H^-1
    K e``, which is more than e where curvature falls.  K is computed from the normal law.  Where it
    says that curvature rises errors are left as they are, as the rows may have another law.

    Parameters
    ----------
    rows : NormalRows
    w : array (R, d)
        Start of the step.
    end : array (R, d)
        Its end.
    covariance : array (R, d, d)
        Covariance of the step's errors, without the correction.
    part : array (R,)
        Part of the correction that is made, from 0 to 1: the share of the step that is not noise.

    Returns
    -------
    array (R, d, d)
        Covariance of the errors at the end.
    """
    here, there = rows.hessian(w), rows.hessian(end)
    values, vectors = np.linalg.eigh(here)
    bent = values > _SINGULAR * values.max(axis=1, keepdims=True)
    root = np.sqrt(np.where(bent, values, 1.0))[:, None, :]
    turned = vectors.transpose(0, 2, 1)
    inverse_root = (vectors * (bent[:, None, :] / root)) @ turned
    falls = project_to_semidefinite(inverse_root @ (here - there) @ inverse_root)
    added = inverse_root @ falls @ ((vectors * root) @ turned)
    # G = I - H^-1 K, of which only the part counts in which curvature falls.
    moves = np.eye(w.shape[1]) + part[:, None, None] * added
    return np.asarray(moves @ covariance @ moves.transpose(0, 2, 1))


def fit_normal_rows(S: Array, every: Array) -> NormalRows:
    """Fit the normal law to second moments S, (R, d, d), positive semidefinite.

    `every`, (d,), has ``every'x = 1`` for every row x.  Where long rows have smaller weights
    ``every'S every`` is the mean weight, and the law is that of the weighted rows.
    """
    with_every = S @ every
    # Noise may leave nothing of the weight.
    weight = np.maximum(with_every @ every, 1e-3)[:, None]
    mean = with_every / weight
    return NormalRows(weight, mean, S / weight[:, :, None] - mean[:, :, None] * mean[:, None, :])


def stretch_newton_step(rows: NormalRows, w: Array, step: Array, most: float) -> Array:
    """Scale a Newton step for the change of curvature along it (module's docstring).

    Parameters
    ----------
    rows : NormalRows
    w : array (R, d)
        Start of the step.
    step : array (R, d)
        Newton's step.
    most : float
        Largest root mean square shift of margins, in log-odds.

    Returns
    -------
    array (R, d)
    """
    # Of margins z = x'w and shifts u = x'step: their means and second moments about them.
    along_w = np.einsum("rij,rj->ri", rows.covariance, w)
    along_step = np.einsum("rij,rj->ri", rows.covariance, step)
    center = np.sum(rows.mean * w, axis=1)
    shift = np.sum(rows.mean * step, axis=1)
    zz = np.maximum(np.sum(w * along_w, axis=1), 0.0)
    uu = np.maximum(np.sum(step * along_step, axis=1), 0.0)
    zu = np.sum(step * along_w, axis=1)
    # Rounding must not break Cauchy and Schwarz's inequality.
    zu = np.clip(zu, -np.sqrt(zz * uu), np.sqrt(zz * uu))

    def slope(t: Array) -> Array:
        # Stein's lemma: E[p(z + t u) u] = E u E p + Cov(z + t u, u) E p'.
        chance = _chances(center + t * shift, zz + 2.0 * t * zu + t**2 * uu)
        mean_bend = (chance * (1.0 - chance)) @ _WEIGHTS
        return np.asarray(shift * (chance @ _WEIGHTS) + (zu + t * uu) * mean_bend)

    chance = _chances(center, zz)
    bends = _WEIGHTS * chance * (1.0 - chance)
    zero, one, two = (np.sum(bends * _GRID**power, axis=1) for power in (0, 1, 2))
    # The centred u is `with_z` times the standardised margin, plus an independent rest.
    with_z = zu / np.sqrt(np.maximum(zz, 1e-12))
    # What Newton's step counts on: the slope at its start, risen by E[p'(z) u^2].
    asked = slope(np.zeros(len(w))) + zero * (shift**2 + np.maximum(uu - with_z**2, 0.0))
    asked = asked + 2.0 * shift * with_z * one + with_z**2 * two
    low = np.zeros(len(w))
    high = most / np.sqrt(np.maximum(uu + shift**2, 1e-300))
    # Bisection for the t at which the slope has risen by what Newton's step counts on.
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        short = slope(middle) < asked
        low = np.where(short, middle, low)
        high = np.where(short, high, middle)
    return np.asarray(high[:, None] * step)


class Size(NamedTuple):
    """Uncertainty of the size t of all effects: a factor on all slopes, 1 at the estimate."""

    error: Array  # standard error of t  (R,)
    # distance, in standard errors, to where all rows are on the right side: with few, the
    # likelihood may have no maximum in t (separation); infinite where no slope moves a row  (R,)
    room: Array
    widening: Array  # to add to an interval of t at its upper end, as curvature falls  (R,)


def uncertainty_of_size(rows: NormalRows, w: Array, covariance: Array, slopes: BoolArray) -> Size:
    """Estimate how well the size t of all effects together is known.

    If the columns separate the two outcomes, the likelihood rises with t without end.  How far t is
    from that is measured by the slope of the mean loss in t.  With v the margin less its mean, that
    slope can fall by ``E[v 1(v > q)] - E[v p]`` until all rows are on the right side, where the
    threshold q gives the same share of positives.  Divided by the curvature K in t this is the
    distance in t at which Newton steps would not end: more where effects are weak, and 1/2 where
    they are strong, as then both follow from rows near the threshold alone, and the fall is K / 2.

    With ``k = -d log K / d log t`` a normal error x in the slope moves t by ``x + k x^2 / 2`` to
    second order.  So a symmetric interval is too short by about ``k (z error)^2 / 2`` at its upper
    end, with the normal quantile z of its level.

    Parameters
    ----------
    rows : NormalRows
    w : array (R, d)
        Coefficients.
    covariance : array (R, d, d)
        Covariance of their errors.
    slopes : bool array (R, d)
        Columns, without constants, whose coefficients t multiplies.

    Returns
    -------
    Size
    """
    v = w * slopes
    along = np.einsum("rij,rj->ri", rows.covariance, v)
    variance = np.sum(v * along, axis=1)
    deviation = np.sqrt(np.maximum(variance, _NO_VARIANCE))
    center = np.sum(rows.mean * w, axis=1)
    chance = _chances(center, deviation**2)
    mean_chance = np.clip(chance @ _WEIGHTS, _TINY, 1.0 - _TINY)
    border = np.array([normal.normal_quantile(chance) for chance in mean_chance.tolist()])
    right = deviation * np.exp(-0.5 * border**2) / math.sqrt(2.0 * math.pi)
    # E[v 1(v > q)] - E[v p]: how far the slope can fall until all rows are on the right side.
    left = right - deviation**2 * ((chance * (1.0 - chance)) @ _WEIGHTS)
    curvature = _curvature_along_size(center, deviation)
    above, below = (
        _curvature_along_size(center, deviation * factor) for factor in (_NEARBY, 1.0 / _NEARBY)
    )
    # With an infinite or missing covariance the room is 0.
    finite = np.asarray(np.isfinite(covariance).all(axis=(1, 2)))
    covariance = np.where(finite[:, None, None], covariance, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        # _curvature_along_size is the curvature in log t.  That in t is over t^2: hence the 2.
        falls = 2.0 - (np.log(above) - np.log(below)) / (2.0 * math.log(_NEARBY))
        inverse = np.linalg.pinv(
            covariance * (slopes[:, :, None] & slopes[:, None, :]), rcond=_SINGULAR, hermitian=True
        )
        error = 1.0 / np.sqrt(np.maximum(np.einsum("ri,rij,rj->r", v, inverse, v), 0.0))
        room = np.where(finite & (deviation < _MOST), left / curvature / error, 0.0)
    # Without slopes that move a row, as where all columns are 0, there is no size to be known.
    room = np.where(finite & (variance <= _NO_VARIANCE), np.inf, np.nan_to_num(room))
    # An error above 1, the whole size, counts as 1.
    widening = 0.5 * np.maximum(falls, 0.0) * (_Z * np.minimum(error, 1.0)) ** 2
    return Size(error, room, np.nan_to_num(widening))


def _curvature_along_size(center: Array, deviation: Array) -> Array:
    """Compute the curvature, (R,), of the mean loss in the logarithm of the size of all effects.

    The loss is minimised over the constant at every size.  `center` and `deviation`, (R,), are the
    mean of the margins and the standard deviation of their part by slopes.
    """
    chance = _chances(center, deviation**2)
    bends = _WEIGHTS * chance * (1.0 - chance)
    zero, one, two = (np.sum(bends * _GRID**power, axis=1) for power in (0, 1, 2))
    return np.asarray(np.maximum(deviation**2 * (two - one**2 / np.maximum(zero, _TINY)), _TINY))


def _chances(mean: Array, variance: Array) -> Array:
    """Compute probabilities of a positive label at grid points of normal margins, (R, points)."""
    margins = mean[:, None] + np.sqrt(np.maximum(variance, 0.0))[:, None] * _GRID
    return np.asarray(-Logistic().derivative(-margins))
