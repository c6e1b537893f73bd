"""Differentially private evaluation of a bounded number on held-out rows: R2 and errors from one
release (docs/privacy/answers.md, "Errors of numbers").

The release, :class:`sottovoce.queries.Misses`, is a vector of moments of errors and targets.  The
metrics are functions of these, with 95% intervals for sampling and noise by the delta method.
:class:`sottovoce.answers.judging.NumberJudge` runs it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ..algorithms.items import Answer, Item
from ..algorithms.once import Once
from ..data.labels import numbers_to_predict
from ..data.rows import Rows
from ..privacy.statement import Statement
from ..problem.losses import HuberResidual
from ..problem.task import BoundedNumber
from ..problem.weighted_loss import Weighted
from ..queries import Misses
from ..queries.numeric_moments import SCALES
from ..util.typing import Any, Array
from .metrics import Estimate
from .released import ReleasedEvaluation

LOSS = Weighted(HuberResidual(1.0))
"""Rows need a loss; this one allows rows of any norm.  The moments do not depend on it."""
_CONSTANT: Array = np.array([0.0, 1.0])
"""Rows are (score, 1): the mask of the constant."""
_CLEAR = 5.0
"""R2 is refused if the target's variance is within this many standard errors of 0; the share of
rows with a number counts as at least this many noise deviations.
"""


@dataclass(frozen=True)
class Errors:
    """Released errors of predictions, in the target's unit, with 95% intervals."""

    rows: float  # held-out rows, including those without a number
    noise: float  # standard deviation of the noise on the mean absolute error
    r2: Estimate
    mean_absolute: Estimate
    root_mean_squared: Estimate
    mean: Estimate  # of the target
    unit: str

    @property
    def estimates(self) -> dict[str, Estimate]:
        """Estimates by name, in the order of printing."""
        names = ("r2", "mean_absolute_error", "root_mean_squared_error", "mean_target")
        return dict(
            zip(
                names, (self.r2, self.mean_absolute, self.root_mean_squared, self.mean), strict=True
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        plain: dict[str, Any] = {name: found.to_dict() for name, found in self.estimates.items()}
        return {"rows": self.rows, "noise": self.noise, "unit": self.unit} | plain


@dataclass(frozen=True, repr=False)
class NumberEvaluation(ReleasedEvaluation):
    """The released errors, with exact numbers that only the data owner may see."""

    errors: Errors
    statement: Statement
    exact: dict[str, float]

    def released(self) -> dict[str, Any]:
        """Return the released results as plain data."""
        return {**self.errors.to_dict(), "privacy": self.statement.to_dict()}


@dataclass(frozen=True)
class ErrorMoments(Once):
    """Moments of a public model's errors, on rows of :func:`rows_of`.

    The outcome is an :class:`~sottovoce.algorithms.items.Answer`.

    Parameters
    ----------
    judged : bytes
        Digest of the public model (:func:`sottovoce.util.plain.digest_public_values`).

    Guarantee
    ---------
    Rows enter through `items` alone: Gaussian mechanisms on bounded sums over rows, each priced by
    :meth:`sottovoce.queries.NoisyBounded.event` under the relation and the unit of the run.
    All metrics are post-processing.  The judged model is public.
    """

    judged: bytes = field(kw_only=True)

    name: ClassVar[str] = "misses"
    summary: ClassVar[str] = "errors of predictions of a bounded number"

    @property
    def items(self) -> tuple[Item, ...]:
        """The only release: all moments, with the whole budget."""
        return (Item("errors", lambda at: Misses(at, _CONSTANT), 1.0),)

    def point_of_release(self, d: int) -> Array:
        """Return the point whose product with a row is its score."""
        return np.array([1.0, 0.0])


def rows_of(parts: Sequence[tuple[Array, Array]]) -> Rows:
    """Construct held-out rows from each site's scores (n,) and targets (n,) in [-1, 1].

    A row with a target of NaN has none, and becomes a zero row.
    """
    known = [(~np.isnan(y)).astype(float) for _, y in parts]
    tables = [
        (np.column_stack([scores, np.ones(len(scores))]) * one[:, None], one)
        for (scores, _), one in zip(parts, known, strict=True)
    ]
    return Rows.build_with_any_norm(tables).with_offset(numbers_to_predict(parts))


@dataclass(frozen=True)
class _Moments:
    """Means over rows with a number, and what their errors depend on.

    With the error e of a row over the width of the target's bounds, and the target t in [-1, 1].
    """

    means: Array  # of |e|, e^2, t, t^2  (4,)
    covariance: Array  # of these four numbers between rows  (4, 4)
    noise: Array  # standard deviations of the noise in the means  (4,)
    noise_of_share: float  # of the share of rows with a number, over that share
    rows: float  # noisy number of rows with a number

    @classmethod
    def of(cls, answer: Answer) -> _Moments:
        """Divide the released sums, over all rows, by the released share of rows with a number."""
        found, s, n = answer.value[0] / SCALES, answer.spread / SCALES, answer.rows
        share = min(max(float(found[0]), _CLEAR * float(s[0]), 1.0 / n), 1.0)
        m, s = found / share, s / share
        absolute, e2, _, t2, e4, e2t, e2t2, t3, t4 = m[1:]
        second = np.array([[e4, e2t, e2t2], [e2t, t2, t3], [e2t2, t3, t4]])  # of (e^2, t, t^2)
        full = np.zeros((4, 4))
        full[1:, 1:] = second - np.outer(m[2:5], m[2:5])
        # Covariances with |e| are not released: no metric depends on |e| and another mean.
        full[0, 0] = e2 - absolute**2
        return cls(m[1:5], full, s[1:5], float(s[0]), n * share)

    def variance(self, gradient: Sequence[float]) -> float:
        """Return the variance of a function of the means, by its `gradient`, (4,).

        Delta method, for sampling and for noise in the means and in the share.
        """
        g = np.asarray(gradient, dtype=float)
        noise = (
            float(np.sum((g * self.noise) ** 2))
            + (float(g @ self.means) * self.noise_of_share) ** 2
        )
        return max(float(g @ self.covariance @ g), 0.0) / self.rows + noise


def _root(squared: Estimate, width: float) -> Estimate:
    """Return the root of an estimate and of its ends, times the width of the target's bounds."""
    assert squared.value is not None and squared.low is not None and squared.high is not None
    return Estimate(
        width * math.sqrt(squared.value),
        width * math.sqrt(squared.low),
        width * math.sqrt(squared.high),
    )


def errors_from_moments(found: Answer, task: BoundedNumber) -> Errors:
    """Compute the errors, in the target's unit, from the outcome of :class:`ErrorMoments`.

    That of the first replicate.
    """
    moments = _Moments.of(found)
    absolute, e2, t, t2 = (float(x) for x in moments.means)
    width = task.high - task.low
    half = 0.5 * width
    V = t2 - t * t  # variance of the target, in half widths of its bounds
    # Delta method: every variance is by the gradient of the number in the four means.
    of_mean = half**2 * moments.variance([0, 0, 1, 0])
    mean = Estimate.normal_interval(task.low + half * (1.0 + t), of_mean, task.low, task.high)
    of_absolute = width**2 * moments.variance([1, 0, 0, 0])
    middle = Estimate.normal_interval(width * absolute, of_absolute, 0.0, width)
    root = _root(Estimate.normal_interval(e2, moments.variance([0, 1, 0, 0])), width)
    spread = math.sqrt(moments.variance([0, 0, -2.0 * t, 1.0]))
    if _CLEAR * spread < V:
        gradient = [0.0, -4.0 / V, -8.0 * e2 * t / V**2, 4.0 * e2 / V**2]
        r2 = Estimate.normal_interval(
            1.0 - 4.0 * e2 / V, moments.variance(gradient), -math.inf, 1.0
        )
    else:
        rule = (
            "noise and sampling hide the variance of the target: raise epsilon, or hold out "
            "more rows"
        )
        r2 = Estimate(None, refused=rule)
    noise = width * float(moments.noise[0])
    return Errors(found.rows, noise, r2, middle, root, mean, task.unit)


def exact(task: BoundedNumber, margins: Array, y: Array) -> dict[str, float]:
    """Compute errors of predictions without noise, for the data owner only.

    Parameters
    ----------
    task : BoundedNumber
    margins : array (n,)
        Predictions, for targets in [-1, 1].
    y : array (n,)
        Targets as the task encodes them; rows without a number are left out.

    Returns
    -------
    dict of str to float
        ``rows`` alone without a row with a number; ``r2`` only if targets vary.
    """
    known = task.has_known_label(y)
    margins, y = margins[known], y[known]
    if not len(y):
        return {"rows": 0.0}
    every, spread = task.errors(margins, y), float(np.var(y))
    found = {
        "rows": float(len(y)),
        "mean_absolute_error": float(every["mean_absolute"]),
        "root_mean_squared_error": float(every["root_mean_squared"]),
        "mean_target": task.label_summary(y),
    }
    if spread > 0:
        found["r2"] = 1.0 - float(np.mean((np.clip(margins, -1.0, 1.0) - y) ** 2)) / spread
    return found
