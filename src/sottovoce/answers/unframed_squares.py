"""Least squares with intervals as version 0.2 asked for it: what was begun with its list of releases goes on.

New runs use :mod:`sottovoce.answers.least_squares`.  Here nothing is asked in a frame.
Second moments S and products of rows and targets give a shrunken point w; a histogram of residuals gives the h at which
they are clipped; there the residuals' second moments J and a gradient g give

    estimate = w - S^-1 g,    d = estimate - w,
    covariance = S^-1 [J / n + s_g^2 I + (s_S^2 / 2)(|d|^2 I + d d')] S^-1.

The step is exact, as the loss is quadratic, so the shrinkage of w leaves no bias.  J, unlike sigma^2 S^-1, holds if
residuals have different spreads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from ..algorithms.items import Item, Script
from ..algorithms.recipe import Recipe
from ..problem.facts import Facts
from ..queries import HuberGradient, ResidualMoments, Residuals, SecondMoments
from ..queries.moments import square
from ..util.typing import Array, BoolArray
from .clipped_tails import width
from .frames import positive
from .inference import RAREST, UNSURE, Estimates, inverse_of, noise_of, within
from .regression import mean_given, shrunk

EDGES = 2.0 ** np.arange(-2.0, 1.5, 0.5)
"""Public cells of residuals, in half widths of the target's bounds; beyond the last one no residual is kept."""
_FLOOR = 0.05  # of the noise's norm: a matrix with an eigenvalue below it has no inverse
_MERGED = 3.0  # noise deviations of a second moment, below which a rare level is merged with its reference


@dataclass(frozen=True)
class Unframed(Recipe):
    """Least squares with intervals by sums of rows as they are; the outcome is :class:`Estimates`.

    Replicates share what follows from a histogram or from rare levels: which columns are kept, and h.

    Parameters
    ----------
    constant : array (d,)
        1 in the columns that hold constants.
    marks : array (d,)
        Entry of a column that marks a level, in rows of that level; 0 for other columns.
    """

    constant: Array = field(kw_only=True)
    marks: Array = field(kw_only=True)

    name: ClassVar[str] = "slopes"
    summary: ClassVar[str] = "least squares with intervals"

    @property
    def items(self) -> tuple[Item, ...]:
        return (
            Item("second moments", SecondMoments, 0.28),
            Item("first gradient", HuberGradient, 0.10),
            Item("residuals", lambda at: Residuals(at, self.constant, EDGES), 0.07),
            Item("moments of residuals", ResidualMoments, 0.07),
            Item("last gradient", HuberGradient, 0.48),
        )

    def script(self, facts: Facts, replicates: int) -> Script:
        R, d, constant = replicates, facts.d, self.constant > 0
        zero = np.zeros((R, d))
        moments = yield SecondMoments(zero)
        S, s_S = square(moments.value, d), moments.spread
        kept = _kept(S.mean(axis=0), self.marks, s_S)
        first = yield HuberGradient(zero)
        w = _near(-first.value, first.spread, S, s_S, kept, constant)
        cells = yield Residuals(w, self.constant, EDGES)
        h = width(cells.value.mean(axis=0), cells.spread, EDGES)
        squares = yield ResidualMoments(w, h)
        last = yield HuberGradient(w, h)
        J, g = h**2 * square(squares.value, d), h * last.value
        every, s_H = np.tile(kept, (R, 1)), np.full(R, s_S)
        own = within(S, every)
        inverse, fine = inverse_of(own, every, np.maximum(1e-12, _FLOOR * s_H * math.sqrt(2.0 * d)))
        shift = -np.einsum("rij,rj->ri", inverse, g)
        of_g = (h * last.spread) ** 2 * np.eye(d)
        noise = inverse @ (of_g + noise_of(shift, s_H)) @ inverse
        strain = np.where(fine, 0.0, 2.0 * UNSURE)  # no step is too long for a quadratic
        sampling = inverse @ (positive(J) / last.rows) @ inverse
        return Estimates(
            w + shift, w, sampling + noise, noise, sampling,
            np.tile(np.eye(d), (R, 1, 1)), own, s_H, strain, every, last.rows, self.scale,
            quadratic=True, moments=S,
        )  # fmt: skip


def _near(c: Array, noise: float, S: Array, s_S: float, kept: BoolArray, constant: BoolArray) -> Array:
    """The shrunken coefficients of :mod:`sottovoce.answers.regression`, (1, d), from products c alone."""
    columns, w = kept & ~constant, np.zeros_like(c)
    drawn = shrunk(S, kept, columns, s_S)
    for _ in range(2):
        w, _ = mean_given(drawn, c * kept, noise**2 + s_S**2 / 2.0 * np.sum(w**2, axis=1), columns, kept & constant)
    return w


def _kept(S: Array, marks: Array, noise: float) -> BoolArray:
    """Columns but for those of rare levels that noise hides: they count as the reference."""
    moments = np.diag(S)
    rare = (marks > 0) & (moments < RAREST * marks**2)
    return ~(rare & (moments < _MERGED * noise))
