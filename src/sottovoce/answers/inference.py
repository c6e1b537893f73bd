"""Coefficients with confidence intervals: Newton steps on noisy sums (docs/privacy/answers.md, "Inference").

Second moments give a public *frame*, a matrix A in which rows have about equal second moments in all directions and
nine in ten are shorter than 1.  Hessians are asked of rows ``A a``, so that their noise is small beside them in every
direction; gradients are asked of the rows as they are, so the frame moves no estimate.  Steps go near the minimiser.
At the last point w, with H from all Hessians and the second moments J of derivatives, both in the frame, g from all
gradients, and noise s_g and s_H on an entry of g and of the flattened H,

    estimate = w + A'(d - b),    d = -H^-1 A g,
    covariance = H^-1 [J / n + s_g^2 A A' + (s_H^2 / 2)(|d|^2 I + d d')] H^-1 + b b',

as an error E of H moves the estimate by ``H^-1 E d``.  b is the second-order bias of the last step
(:mod:`sottovoce.answers.second_order`), taken to be as uncertain as it is large.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field, fields
from typing import ClassVar, NamedTuple

import numpy as np

from ..algorithms.items import Answer, Item, Script
from ..algorithms.recipe import Recipe
from ..errors import InvalidInput
from ..problem.facts import Among, Facts
from ..queries import (
    Bounded,
    Curvature,
    FramedCurvature,
    FramedSlopes,
    Gradient,
    Lengths,
    Positives,
    SecondMoments,
    SlopeMoments,
)
from ..queries.moments import square
from ..runs.config import RunConfig
from ..util.typing import Array, BoolArray
from .frames import EDGES, Frame, displacement, positive, short, whitening
from .second_order import missed
from .terms import Naming

TAU = 0.3
"""Share of a coefficient's variance that the noise of the Hessian may add beyond first order; above it, refused."""
LOWER = 1.0
"""Noise deviations by which tau takes an eigenvalue of the Hessian to be less than it seems."""
SURE, UNSURE = 0.5, 1.0
"""The strain q of a table: printed below the first, flagged up to the second, refused above.

In between it is refused, too, if a coefficient fails `TAU`: with some directions of the Hessian lost in noise, a
strained step is not reliable in the others either (bench/accuracy/coverage.py, correlated columns).
"""
_FIRST = 2.0
_RARE = 3.4  # curvatures are clipped at this many mean curvatures: at .1 with 3% positives
RAREST = 0.01
"""Levels with a smaller share of the rows are merged with their reference if noise would hide their coefficient."""
HIDDEN = 2.0
"""So much may noise in the gradients be expected to move the log-odds of a rare level."""
_SEEN = 2.0  # noise deviations of a second moment, below which it may be that of no row
_FLOOR = 0.05  # of the noise's norm: a Hessian with an eigenvalue below it has no inverse
_TYPICAL = 1.3  # a row's length at the edge beyond which one in ten is, over the root mean square, about


@dataclass(frozen=True)
class Estimates:
    """Outcome of the recipe, for R replicates, in encoded columns."""

    estimate: Array  # one step from `at`                         (R, d)
    at: Array  # a public point                                   (R, d)
    covariance: Array  # of the estimate                          (R, d, d)
    noise: Array  # its part from privacy noise                   (R, d, d)
    inverse: Array  # of H with its eigenvalues lowered; zeros if one of them may be 0  (R, d, d)
    beyond: Array  # what the noise of H adds to it beyond first order  (R, d, d)
    strain: Array  # q, how far the last step leads from where H holds; inf without an inverse  (R,)
    kept: BoolArray  # but for rare levels that were merged with their references  (R, d)
    rows: float
    scale: float  # shift over sigma of the whole plan; inf without noise

    def fragility(self, c: Array) -> Array:
        """tau of ``c'w``, shape (R,): ``c'P E[E P E] P c / c'P c`` with P the inverse of the lowered H and noise E."""
        first, beyond = (np.einsum("i,rij,j->r", c, P, c) for P in (self.inverse, self.beyond))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(first > 0, beyond / first, np.inf)


def check_run(run: RunConfig) -> None:
    """Refuse methods and losses other than inference's own; InvalidInput."""
    if not run.auto:
        rule = "inference takes Newton steps of its own"
        raise InvalidInput("method", run.method, rule, "leave method out; trust='sum' asks for sums over sites")
    if run.loss != "logistic" or run.max_grad_norm != math.inf:
        rule = "coefficients are log-odds of the logistic loss without a cap"
        raise InvalidInput("loss", run.loss, rule, "leave loss and max_grad_norm out")


@dataclass(frozen=True)
class Newton(Recipe):
    """Coefficients of the logistic loss by Newton steps on noisy sums; the outcome is :class:`Estimates`.

    Parameters
    ----------
    constant : array (d,)
        1 in the columns that hold constants.
    value : float
        Entry of a row in its constant column.
    marks : array (d,)
        Entry of a column that marks a level, in rows of that level; 0 for other columns.
    blocks : array (d,)
        Number of the block of a column that marks a level; 0 for other columns.
    """

    constant: Array = field(kw_only=True)
    value: float = field(kw_only=True)
    marks: Array = field(kw_only=True)
    blocks: Array = field(kw_only=True)

    name: ClassVar[str] = "newton"
    summary: ClassVar[str] = "coefficients with intervals, by Newton steps"
    steps: ClassVar[tuple[tuple[float, bool], ...]] = ((1.5, True), (1.0, True), (0.75, True))
    """Largest root mean square shift of scores in a step after the first, and whether a Hessian is asked before it."""

    @property
    def items(self) -> tuple[Item, ...]:
        return (
            Item("count of positives", lambda at: Positives(at, self.constant), 0.01),
            Item("second moments", SecondMoments, 0.06),
            Item("lengths of rows", lambda at: Lengths(at, edges=EDGES), 0.01),
            Item("first gradient", Gradient, 0.04),
            Item("second Hessian", FramedCurvature, 0.04),
            Item("second gradient", Gradient, 0.12),
            Item("third Hessian", FramedCurvature, 0.03),
            Item("third gradient", Gradient, 0.12),
            Item("fourth Hessian", FramedCurvature, 0.04),
            Item("fourth gradient", Gradient, 0.12),
            Item("last Hessian", FramedCurvature, 0.14),
            Item("moments of slopes", FramedSlopes, 0.04),
            Item("last gradient", Gradient, 0.23),
        )

    def script(self, facts: Facts, replicates: int) -> Script:
        R, d, mask = replicates, facts.d, self.constant
        zero = np.zeros((R, d))
        count = yield Positives(zero, mask)
        n, least = count.rows, max(1.0 / count.rows, 2.0 * count.spread)
        share = np.clip(count.value[:, 0], min(least, 0.5), 1.0 - min(least, 0.5))
        w = np.log(share / (1.0 - share))[:, None] / self.value * mask
        moments = yield SecondMoments(zero)
        S, curvature = square(moments.value, d), share * (1.0 - share)
        cap = float(np.minimum(facts.loss.curvature_bound, _RARE * curvature).max())  # one for all replicates
        noise, s_g = (self._ahead(kind, facts, moments.among) for kind in (Curvature, Gradient))
        kept = _kept(S, moments.spread, curvature, self.marks, s_g)
        S = within(S, kept)
        hidden = cap * noise * math.sqrt(2.0 * d) * _TYPICAL**2 * kept.sum(axis=1) / curvature
        frame = yield from self._frame(S, moments.spread, kept, hidden)
        gradient = yield Gradient(w)
        at_zero = curvature[:, None, None] * (frame.A @ S @ frame.A)
        step = displacement(frame, within(at_zero, kept), np.zeros(R), gradient.value, gradient.spread)
        w, pool, seen = w + no_further(step, S, _FIRST), None, list[Seen]()
        for most, fresh in self.steps:
            if fresh or pool is None:
                found = yield self._bends(w, cap, frame)
                pool = pooled(pool, within(cap * square(found.value, d), kept), cap * found.spread)
            gradient = yield Gradient(w)
            seen.append(Seen(w, gradient.value, gradient.spread))
            step = displacement(frame, pool.H, pool.noise, gradient.value, gradient.spread)
            w = w + no_further(step, S, most)
        found = yield self._bends(w, cap, frame)
        pool = pooled(pool, within(cap * square(found.value, d), kept), cap * found.spread)
        slopes = yield self._slopes(w, frame)
        gradient = yield Gradient(w)
        seen.append(Seen(w, gradient.value, gradient.spread))
        rows = Moments(positive(S), S @ (mask / self.value), self.marks, self.blocks)
        J = within(square(slopes.value, d), kept)
        return one_step(frame, pool, J, seen, rows, kept, n, self.scale)

    def older(self) -> tuple[Recipe, ...]:
        return (Unframed(**{f.name: getattr(self, f.name) for f in fields(self)}),)

    def _frame(self, S: Array, spread: float, kept: BoolArray, hidden: Array) -> Generator[Bounded, Answer, Frame]:
        """Asks for the lengths of rows in a frame, and shortens it."""
        frame = whitening(S, spread, kept)
        cells = yield Lengths(np.zeros(S.shape[:2]), frame=frame.A, edges=EDGES)
        return short(frame, cells.value, hidden)

    def _bends(self, at: Array, cap: float, frame: Frame) -> Bounded:
        return FramedCurvature(at, cap, frame=frame.A)

    def _slopes(self, at: Array, frame: Frame) -> Bounded:
        return FramedSlopes(at, frame=frame.A)

    def _ahead(self, kind: type[Bounded], facts: Facts, among: Among) -> float:
        """Standard deviation of the noise on an entry of all answers of a kind together."""
        what = [item.what(np.zeros(1)) for item in self.items]
        spreads = [self.spread(j, facts, among) for j, one in enumerate(what) if isinstance(one, kind)]
        return 1.0 / math.sqrt(sum(s**-2.0 for s in spreads)) if all(spreads) else 0.0


class Unframed(Newton):
    """The list of version 0.1, with matrices of rows as they are: what was begun with it goes on."""

    steps: ClassVar[tuple[tuple[float, bool], ...]] = ((1.5, True), (0.75, False))

    @property
    def items(self) -> tuple[Item, ...]:
        return (
            Item("count of positives", lambda at: Positives(at, self.constant), 0.01),
            Item("second moments", SecondMoments, 0.08),
            Item("first gradient", Gradient, 0.06),
            Item("second Hessian", Curvature, 0.10),
            Item("second gradient", Gradient, 0.10),
            Item("third gradient", Gradient, 0.06),
            Item("last Hessian", Curvature, 0.22),
            Item("moments of slopes", SlopeMoments, 0.05),
            Item("last gradient", Gradient, 0.32),
        )

    def older(self) -> tuple[Recipe, ...]:
        return ()

    def _frame(self, S: Array, spread: float, kept: BoolArray, hidden: Array) -> Generator[Bounded, Answer, Frame]:
        eye = kept[:, :, None] * np.eye(S.shape[-1])
        return Frame(eye, eye)
        yield  # nothing is asked

    def _bends(self, at: Array, cap: float, frame: Frame) -> Bounded:
        return Curvature(at, cap)

    def _slopes(self, at: Array, frame: Frame) -> Bounded:
        return SlopeMoments(at)


def newton_of(naming: Naming, framed: bool = True) -> Newton:
    """The recipe for rows of an encoding; without `framed` that of version 0.1."""
    kind = Newton if framed else Unframed
    return kind(constant=naming.constant, value=naming.value, marks=naming.marks, blocks=naming.blocks)


def model_of(found: Estimates) -> Array:
    """The model for predictions: the estimate, or the last point of the steps if the whole table is refused."""
    return np.where((found.strain <= UNSURE)[:, None], found.estimate, found.at)


class Moments(NamedTuple):
    """What is known of the rows, for second-order biases."""

    S: Array  # second moments, positive semidefinite  (R, d, d)
    mean: Array  # (R, d)
    marks: Array  # as in :class:`Newton`
    blocks: Array  # likewise

    def missed(self, w: Array, d: Array, moved: Array) -> Array:
        """:func:`sottovoce.answers.second_order.missed` of these rows."""
        return missed(w, d, self.S, self.mean, moved, self.marks, self.blocks)


class Seen(NamedTuple):
    """A gradient and where it was asked."""

    at: Array  # (R, d)
    gradient: Array  # (R, d)
    spread: float


class Pool(NamedTuple):
    """Hessians so far as one, in the frame, and the standard deviation of its error on an entry."""

    H: Array  # (R, d, d)
    noise: Array  # (R,)


def pooled(before: Pool | None, H: Array, spread: float) -> Pool:
    """The best mean of the Hessians before, at other points, and of H, which is without bias.

    How far the others are off is the largest eigenvalue of the difference, less that of a matrix of noise alone:
    curvature that changes in one direction must not drown among those where it does not.
    """
    d, noise = H.shape[-1], np.full(len(H), spread)
    if before is None:
        return Pool(H, noise)
    apart = np.abs(np.linalg.eigvalsh(H - before.H)).max(axis=1) ** 2
    off = np.maximum(apart - 2.0 * d * (before.noise**2 + noise**2), 0.0) + before.noise**2
    share = np.divide(noise**2, noise**2 + off, out=np.zeros_like(off), where=noise > 0.0)
    mixed = (1.0 - share)[:, None, None] * H + share[:, None, None] * before.H
    return Pool(mixed, np.sqrt((1.0 - share) ** 2 * noise**2 + share**2 * off))


def within(H: Array, kept: BoolArray) -> Array:
    """H without rows and columns that are not kept; their diagonal gets the mean of the rest."""
    rest = np.einsum("rii,ri->r", H, kept) / np.maximum(kept.sum(axis=1), 1)
    return np.asarray(
        H * kept[:, :, None] * kept[:, None, :] + rest[:, None, None] * np.eye(H.shape[-1]) * ~kept[:, None]
    )


def no_further(step: Array, S: Array, most: float) -> Array:
    """The step, shortened so that margins shift by at most `most` in root mean square."""
    moved = np.sqrt(np.maximum(np.einsum("ri,rij,rj->r", step, positive(S), step), 1e-300))
    return np.asarray(step * np.minimum(1.0, most / moved)[:, None])


def _kept(S: Array, spread: float, curvature: Array, marks: Array, noise: float) -> BoolArray:
    """Columns but for those of rare levels that noise hides: they count as the reference.

    Those of which the moments S do not show a row, or of which `noise` in a gradient moves the log-odds by `HIDDEN`.
    """
    size = np.einsum("rii->ri", S)
    every = whitening(S, spread, np.ones(size.shape, dtype=bool)).A
    inverse = every @ every
    moved = noise * np.sqrt(np.einsum("rij,rij->rj", inverse, inverse)) * marks / curvature[:, None]
    return np.asarray((size >= RAREST * marks**2) | ((size > _SEEN * spread) & (moved <= HIDDEN)))


def one_step(
    frame: Frame, pool: Pool, J: Array, seen: list[Seen], rows: Moments, kept: BoolArray, n: float, scale: float
) -> Estimates:
    """The last step and its errors."""
    A, (H, s_H) = frame.A, pool
    w, g, s_g, u, turned = together(frame, H, seen, rows)
    inverse, low, beyond, fine = inverses(H, kept, s_H)
    d = -np.einsum("rij,rjk,rk->ri", inverse, A, g)
    of_g = (s_g**2)[:, None, None] * (A @ A)
    noise = inverse @ (of_g + noise_of(d + np.einsum("rij,rj->ri", frame.back, u), s_H)) @ inverse
    covariance = inverse @ (positive(J) / n) @ inverse + noise
    moved = np.einsum("ri,rij,rj->r", d, H, d) - np.einsum("rij,rji->r", inverse, of_g)
    moved = np.maximum(moved, 0.0)  # without what noise in g adds
    with np.errstate(divide="ignore", invalid="ignore"):
        bends = np.einsum("rii,ri->r", H, kept) / np.einsum("rij,rji->r", A @ rows.S, A)
        spread = np.sqrt(np.einsum("rij,rji->r", H, covariance) / kept.sum(axis=1))
        strain = 0.35 * moved / np.sqrt(np.maximum(bends, 0.0)) / spread
    strain = np.where(fine & np.isfinite(strain), strain, np.inf)
    over = rows.missed(w, np.einsum("rij,rj->ri", A, d), moved)
    b, other = (np.einsum("rij,rjk,rk->ri", inverse, A, t) for t in (0.5 * over, turned))
    covariance = covariance + b[:, :, None] * b[:, None, :] + other[:, :, None] * other[:, None, :]
    estimate = w + np.einsum("rij,rj->ri", A, d - b)
    covariance, noise, low, beyond = (A @ one @ A for one in (covariance, noise, low, beyond))
    return Estimates(estimate, w, covariance, noise, low, beyond, strain, kept, n, scale)


def together(frame: Frame, H: Array, seen: list[Seen], rows: Moments) -> tuple[Array, Array, Array, Array, Array]:
    """All gradients as one at the last point w, by their precision: w, the gradient, and its noise.

    One at v is that at w less ``H u - t / 2`` with ``u = w - v`` and the third derivatives' t.  Its error is its noise,
    and the mean square of t / 2.  Also the means of u and of t / 2.
    """
    w, d = seen[-1].at, seen[-1].at.shape[1]
    H = frame.back @ H @ frame.back
    total, g, moved, turned = np.zeros((len(w), 1)), np.zeros_like(w), np.zeros_like(w), np.zeros_like(w)
    for one in seen:
        u = w - one.at
        along = np.einsum("rij,rj->ri", H, u)
        half = 0.5 * rows.missed(w, u, np.maximum(np.sum(u * along, axis=1), 0.0))
        sure = 1.0 / np.maximum(one.spread**2 + np.sum(half**2, axis=1) / d, 1e-300)[:, None]
        total += sure
        g += sure * (one.gradient + along - half)
        moved += sure * u
        turned += sure * half
    s_g = np.sqrt(1.0 / total[:, 0]) if seen[-1].spread > 0.0 else np.zeros(len(w))
    return w, g / total, s_g, moved / total, turned / total


def inverses(H: Array, kept: BoolArray, s_H: Array) -> tuple[Array, Array, Array, BoolArray]:
    """H^-1; P, that of H with its eigenvalues lowered; ``P E[E P E] P`` for noise E in H; and whether H^-1 is one.

    Zeros where noise may have made an eigenvalue, and in columns that are not kept.
    """
    d = H.shape[-1]
    values, vectors = np.linalg.eigh(H)
    both = kept[:, :, None] & kept[:, None, :]

    def inverse(lowered: Array, fine: BoolArray) -> Array:
        safe = np.where(fine[:, None], lowered, 1.0)
        found = (vectors / safe[:, None, :]) @ vectors.transpose(0, 2, 1)
        return np.asarray(np.where(fine[:, None, None], found, 0.0) * both)

    fine = values[:, 0] > np.maximum(1e-12, _FLOOR * s_H * math.sqrt(2.0 * d))
    lowered = values - LOWER * s_H[:, None]
    P = inverse(lowered, fine & (lowered[:, 0] > 0.0))
    trace = np.einsum("rii->r", P)[:, None, None]
    beyond = (s_H**2 / 2.0)[:, None, None] * (P @ (trace * np.eye(d) + P) @ P)
    return inverse(values, fine), P, beyond, fine


def noise_of(shift: Array, s_H: Array) -> Array:
    """Covariance (R, d, d) of ``E d`` for a step d = `shift` and noise E in H."""
    length = np.sum(shift**2, axis=1)[:, None, None]
    added = length * np.eye(shift.shape[1]) + shift[:, :, None] * shift[:, None, :]
    return np.asarray((s_H**2 / 2.0)[:, None, None] * added)
