"""Least squares with confidence intervals (docs/privacy/answers.md, "Least squares with intervals").

Second moments S and products of rows and targets give a shrunken point w; a histogram of residuals gives the h at which
they are clipped; there the residuals' second moments J and a gradient g give

    estimate = w - S^-1 g,    d = estimate - w,
    covariance = S^-1 [J / n + s_g^2 I + (s_S^2 / 2)(|d|^2 I + d d')] S^-1.

The step is exact, as the loss is quadratic, so the shrinkage of w leaves no bias.  J, unlike sigma^2 S^-1, holds if
residuals have different spreads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from ..algorithms.items import Item, Script
from ..algorithms.recipe import Recipe
from ..problem.facts import Facts
from ..problem.task import BoundedNumber
from ..queries import HuberGradient, ResidualMoments, Residuals, SecondMoments
from ..queries.moments import square
from ..util import normal
from ..util.typing import Array, BoolArray
from .coefficients import Coefficient, Coefficients, table
from .frames import positive
from .inference import (
    RAREST,
    UNSURE,
    Estimates,
    Pool,
    inverse_of,
    invertible,
    joint,
    mean_of_sites,
    noise_of,
    pooled,
    within,
)
from .regression import mean_given, shrunk
from .separate_sites import Columns, Heard, SeparateSites, SiteStep, drawn_together, of_kind
from .terms import CONSTANT, Naming

EDGES = 2.0 ** np.arange(-2.0, 1.5, 0.5)
"""Public cells of residuals, in half widths of the target's bounds; beyond the last one no residual is kept."""
_SEEN = 2.0  # noise deviations by which residuals beyond an edge are taken to be there
_MARGIN = math.sqrt(2.0)  # residuals are kept up to this many times the edge beyond which none are seen
_FLOOR = 0.05  # of the noise's norm: a matrix with an eigenvalue below it has no inverse
_MERGED = 3.0  # noise deviations of a second moment, below which a rare level is merged with its reference


@dataclass(frozen=True)
class Stepped(SeparateSites):
    """Least squares with intervals, of targets in [-1, 1]; the outcome is :class:`Estimates`.

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
        h = width(cells.value.mean(axis=0), cells.spread)
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
            quadratic=True,
        )  # fmt: skip

    def with_one_constant(self, columns: Columns) -> Stepped:
        return replace(self, constant=columns.one_constant, marks=self.marks[: columns.slopes + 1])

    def own_constants(self, heard: Sequence[Heard], then: Array, facts: Facts) -> Array:
        last = heard[-1]
        if not isinstance(last.what, HuberGradient):
            return last.own
        moments, d = of_kind(heard, SecondMoments)[0], then.shape[1]
        common, h, step = Pool(*mean_of_sites(moments)), last.what.h, then - last.what.at
        bend = np.maximum(common.H[:, -1, -1], 1e-300)
        missing = np.zeros_like(last.own)
        for i in range(missing.shape[1]):
            value, noise = moments.of(i)
            own = pooled(common, square(value, d), noise).H[:, -1]  # columns beside the constant
            missing[:, i] = -(h * last.values[:, i, -1] + np.einsum("rj,rj->r", own, step)) / bend
        return np.asarray(last.own + drawn_together(missing, (h * last.spreads / bend[:, None]) ** 2))

    def joined(self, found: Estimates, heard: Sequence[Heard], facts: Facts) -> Estimates:
        return joint_slopes(self.columns(facts), found, heard, facts)

    def older(self) -> tuple[Recipe, ...]:
        return (ByRows(constant=self.constant, marks=self.marks),)


class ByRows(Stepped):
    """The recipe of version 0.2, in which sites' answers are averaged by rows: what was begun with it goes on."""

    by_site: ClassVar[bool] = False

    def older(self) -> tuple[Recipe, ...]:
        return ()


def joint_slopes(columns: Columns, found: Estimates, heard: Sequence[Heard], facts: Facts) -> Estimates:
    """The estimates of all sites: each one's step from the common point, pooled by inverse covariance.

    `found` are those of the common steps, in columns with one constant.
    """
    moments, squares = of_kind(heard, SecondMoments)[-1], of_kind(heard, ResidualMoments)[-1]
    gradient, d = of_kind(heard, HuberGradient)[-1], columns.slopes + 1
    assert isinstance(squares.what, ResidualMoments) and isinstance(gradient.what, HuberGradient)
    of_all, h = Pool(found.hessian, found.hessian_noise), gradient.what.h
    common = Pool(*mean_of_sites(squares))
    J = squares.what.h**2 * common.H
    spread = np.maximum(np.einsum("rij,rij->r", found.hessian, J), 0.0) / np.einsum("rij,rij->r", *[found.hessian] * 2)
    points, n = columns.points(gradient.what.at, gradient.own), facts.every_n[:, 0]
    steps = []
    for i in range(columns.sites):
        value, noise = moments.of(i)
        own = invertible(pooled(of_all, within(square(value, d), found.kept), noise), of_all, found.kept)
        value, noise = squares.of(i)
        own_squares = squares.what.h**2 * pooled(common, square(value, d), noise).H
        inverse, _ = inverse_of(own.H, found.kept, np.zeros(len(own.H)))
        value, noise = gradient.of(i)
        shift = -h * np.einsum("rij,rj->ri", inverse, value)
        of_noise = inverse @ ((h * noise) ** 2 * np.eye(d) + noise_of(shift, own.noise)) @ inverse
        sampling = inverse @ (positive(own_squares) / n[i]) @ inverse
        expected = spread[:, None, None] * inverse / n[i] + of_noise
        steps.append(SiteStep(points[:, i] + shift, expected, of_noise, sampling))
    return joint(found, columns, steps, columns.point(gradient.what.at, gradient.own), facts)


def slopes_of(naming: Naming) -> Stepped:
    """The recipe for rows of an encoding."""
    return Stepped(constant=naming.constant, marks=naming.marks)


def width(cells: Array, noise: float) -> float:
    """The h at which residuals are clipped: above the least edge beyond which a noisy histogram shows none."""
    for k, edge in enumerate(EDGES):
        beyond = cells[k + 1 :]
        if float(beyond.sum()) <= _SEEN * noise * math.sqrt(len(beyond)):
            return min(float(edge) * _MARGIN, float(EDGES[-1]))
    return float(EDGES[-1])


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


def table_of(found: Estimates, naming: Naming, task: BoundedNumber, delta: float | None = None) -> Coefficients:
    """The table of :func:`sottovoce.answers.coefficients.table`, in the units of the columns and of the target."""
    encoded = table(found, naming, delta=delta)
    half = 0.5 * (task.high - task.low)

    def scaled(line: Coefficient) -> Coefficient:
        if line.estimate is None or line.low is None or line.high is None or line.standard_error is None:
            return line
        start = task.low + half if line.term.name == CONSTANT else 0.0
        mid, error = start + half * line.estimate, half * line.standard_error
        p = normal.two_sided(mid / error) if error > 0 else 0.0
        low, high = start + half * line.low, start + half * line.high
        return replace(line, estimate=mid, standard_error=error, p=p, low=low, high=high)

    lines, covariance = tuple(map(scaled, encoded.lines)), half**2 * encoded.covariance
    return replace(encoded, lines=lines, odds=False, covariance=covariance)
