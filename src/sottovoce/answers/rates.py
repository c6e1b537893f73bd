"""Hazard ratios and rate ratios with confidence intervals, by Newton steps on noisy sums
(docs/privacy/survival.md, "Rates").

The model is log-linear: with columns x the rate of events in interval j of time is ``exp(x.b +
v_j)``.  Of *dated* events (piecewise exponential survival) ``exp(b)`` are hazard ratios, and
coefficients agree with Cox's as intervals shrink; of counts (Poisson regression with time seen as
the offset) they are rate ratios.  Both have one likelihood, ``sum y (x.b + v) - e exp(x.b + v)`` of
events y and time seen e, so both are one recipe, :class:`RateSteps`.  What it asks of rows is in
:mod:`sottovoce.queries.rates`: a person's intervals are summed and bounded together.

Released are events and time seen by interval, second moments of the columns, and at three points a
Hessian H and a gradient g, with second moments J of gradients at the last.  Second moments give a
public frame, in which columns are centred and of about equal spread.  At the last point w, with n
rows and noise deviations s_g and s_H on entries of g and of the flattened H::

    estimate = w + A d,    d = -H^-1 g,
    covariance = A H^-1 [J / n + s_g^2 I + (s_H^2 / 2)(|d|^2 I + d d')] H^-1 A',

where A maps the frame's coefficients to those of encoded columns.  With J, intervals of counts hold
where these vary more than Poisson counts do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..algorithms.items import Answer, Item, Script
from ..algorithms.recipe import Recipe
from ..problem.facts import Facts
from ..queries import Bounded, RateGradient, RateHessian, RateMoments, RateSlopes, RateTotals
from ..queries.moments import unflatten_symmetric
from ..queries.rates import TAIL
from ..util.typing import Array, BoolArray
from .frames import Frame, estimate_displacement, project_to_semidefinite, whitening_transform
from .inference import (
    CHANCE,
    HIDDEN,
    RAREST,
    Estimates,
    covariance_of_hessian_noise,
    inverse_where_known,
    restrict_to_kept,
)
from .slope_moments import drawn_to_multiple
from .terms import CONSTANT, Naming, Term

CAPS = (1.0, 1.5, 2.0, 3.0)
"""Caps B of expected dated events from which the recipe chooses the one with least variance."""
EXPECTED = 4.0
"""Cap of expected counts, in mean counts."""
NO_CAP = 1e12
"""Cap without noise, which no row reaches."""
FLOOR = 0.1
"""Columns' variances are raised to this part of their mean before they are made equal."""
ROOM = 1.7
"""Squared length that rows of the frame may have before they weigh less, over its mean."""
FAR = 1e3
"""Without noise rows are divided by this, so that none weighs less."""
FARTHEST = 2.0
"""Largest root mean square shift of log rates by noise in the last gradient alone; with more the
table is refused.
"""
UNSETTLED = 0.5
"""Least change of log rates in the last step but one that tells whether steps converge."""
LONGEST = 1.5
"""Largest root mean square change of log rates in a step."""
UNLIKE = {True: 0.25, False: 1.0}
"""Prior deviation of J from a multiple of H along a direction, over that multiple, of dated events
and of counts, which may vary more in some rows than in others.
"""
WEIGHED_ROWS = (
    "People far from the others, or with many expected events, count for less: unless the model is "
    "right, these are the coefficients of people so weighted."
)
"""Sentence on the weights and caps of the sums, for tables."""
_FLOOR = 0.05
# A level is merged with its reference if its share is below this many noise deviations.
_SEEN = 3.0
# Length times weight of a rare level's rows in the frame, about.
_LEANS = 0.35
_LEAST = 1e-9
MOST_STEPS = 25
"""Number of steps without noise, where they cost nothing; the last ones move nothing."""


class _Prepared(NamedTuple):
    """What all steps have in common.

    Parameters
    ----------
    frame : array (R, k, k + 1)
        F, which takes columns and constant to centred columns of about equal spread.
    into : array (R, k + m, k + m)
        A, from the frame's coefficients to those of encoded columns.
    kept : bool array (k + m,)
        Columns that were not merged with their reference.
    lift, cap, unit : float
        Entry of an interval's constant, the bound of expected events, and that of a row's gradient.
    """

    frame: Array
    into: Array
    kept: BoolArray
    lift: float
    cap: float
    unit: float


@dataclass(frozen=True)
class RateSteps(Recipe):
    """Log rate ratios and log rates by interval, by Newton steps; the outcome is
    :class:`sottovoce.answers.inference.Estimates`.

    Rows are those of :func:`rows_of_people`.

    Parameters
    ----------
    edges : tuple of float
        Public edges of intervals of time; of counts, 0 and the largest time seen.
    most : float
        Largest number of events of a row; 1 of dated events.
    dated : bool
        Whether events have times.
    value : float
        Entry of a row in its constant.
    marks : array (k + m,)
        Entry of a column that marks a level, in rows of that level; 0 for other columns.
    steps : int
        Newton steps before the last.

    Guarantee
    ---------
    Rows enter through `items` alone: Gaussian mechanisms on bounded sums over rows, each priced by
    :meth:`sottovoce.queries.NoisyBounded.event` under the relation and the unit of the run.
    Frame, cap, steps and the outcome are post-processing.
    """

    edges: tuple[float, ...] = field(kw_only=True)
    most: float = field(kw_only=True)
    dated: bool = field(kw_only=True)
    value: float = field(kw_only=True)
    marks: Array = field(kw_only=True)
    steps: int = field(default=2, kw_only=True)

    name: ClassVar[str] = "rates"
    summary: ClassVar[str] = "log rates with intervals, by Newton steps"
    shares: ClassVar[tuple[float, ...]] = (0.02, 0.04, 0.15, 0.15, 0.20, 0.04, 0.40)
    """Budget shares of totals, second moments, Hessians and gradients of the steps together, and
    Hessian, squares and gradient at the last point.
    """
    growth: ClassVar[float] = 1.3
    """Factor from step to step of the shares of Hessians and of gradients."""

    @property
    def items(self) -> tuple[Item, ...]:
        """Releases in the order of :meth:`script`: name, query, and share of the budget."""
        totals, moments, hessians, gradients, last, squares, final = self.shares
        asked = [
            Item("events and time seen", self._question(RateTotals), totals),
            Item("second moments", self._question(RateMoments), moments),
        ]
        growing = self.growth ** np.arange(float(self.steps))
        for k, part in enumerate(growing / growing.sum(), 1):
            asked += [
                Item(f"Hessian {k}", self._question(RateHessian), hessians * float(part)),
                Item(f"gradient {k}", self._question(RateGradient), gradients * float(part)),
            ]
        return (
            *asked,
            Item("last Hessian", self._question(RateHessian), last),
            Item("squares of gradients", self._question(RateSlopes), squares),
            Item("last gradient", self._question(RateGradient), final),
        )

    def _question(self, kind: Callable[..., Bounded]) -> Callable[[Array], Bounded]:
        """Return the statistic of these rows at any point, without a frame."""
        return lambda at: kind(at, edges=self.edges, most=self.most, dated=self.dated)

    def script(self, facts: Facts, replicates: int) -> Script:
        """Ask for the releases in order, and return the estimates.

        The steps: start at the rates of the intervals, find the frame, take Newton steps of limited
        length, and one last step whose errors are known (module's docstring).
        """
        m = len(self.edges) - 1
        p = facts.d - TAIL
        zero = np.zeros((replicates, facts.d))
        asked: Any = self._question(RateTotals)(zero)
        totals = yield asked
        events, time = asked.to_totals(totals.value)
        rate = self._starting_rates(events, time, totals)
        moments = yield self._question(RateMoments)(zero)
        ready = self._prepare(events, rate, moments, facts)
        known: dict[str, Any] = {"frame": ready.frame, "lift": ready.lift, "cap": ready.cap}

        def ask(kind: Callable[[Array], Bounded], w: Array) -> Bounded:
            at = np.concatenate([w, np.zeros((replicates, TAIL))], axis=1)
            return replace(kind(at), **known)

        hessian, gradient = self._question(RateHessian), self._question(RateGradient)
        w = np.zeros((replicates, p))
        w[:, p - m :] = np.log(rate) / self.value
        moved = np.zeros_like(w)
        pool: _Hessian | None = None
        for _ in range(self.steps):
            found = yield ask(hessian, w)
            slope = yield ask(gradient, w)
            pool = _pooled(pool, self._to_hessian(found, ready, p))
            step, change = _step(pool, slope, ready, m)
            pool = pool.carried(change)
            moved = np.einsum("rij,rj->ri", ready.into, step)
            w = w + moved
        found = yield ask(hessian, w)
        squares = yield ask(self._question(RateSlopes), w)
        slope = yield ask(gradient, w)
        pool = _pooled(pool, self._to_hessian(found, ready, p))
        J = ready.unit**2 * unflatten_symmetric(squares.value, p)
        kept = np.tile(ready.kept, (replicates, 1))
        J, _ = drawn_to_multiple(
            restrict_to_kept(J, kept),
            np.full(replicates, ready.unit**2 * squares.spread),
            pool.H,
            UNLIKE[self.dated],
        )
        last = _Last(
            w=w,
            hessian=pool.H,
            hessian_noise=pool.noise,
            squares=J,
            gradient=ready.unit * slope.value * ready.kept,
            gradient_noise=ready.unit * slope.spread,
            rows=slope.rows,
        )
        ends = take_last_step(last, ready, m)
        # A step that is only noise says nothing about convergence.
        moved = np.where((change > UNSETTLED)[:, None], moved, 0.0)
        return replace(ends, moved=moved, scale=self.releases_with_noise.total_mu)

    def _starting_rates(self, events: Array, time: Array, totals: Answer) -> Array:
        """Return each interval's rate without columns, (R, m), shrunk to the mean rate by noise."""
        doubt = totals.spread * math.sqrt(2.0) * self.most
        whole = np.maximum(events.sum(axis=1), max(1.0 / totals.rows, 2.0 * doubt))
        seen = np.maximum(time, _LEAST * self.edges[-1])
        mean = whole / seen.sum(axis=1)
        # As if noise's deviation of events had come at the mean rate.
        found = (np.maximum(events, 0.0) + doubt) / (seen + doubt / mean[:, None])
        return np.asarray(np.maximum(found, 1e-3 * mean[:, None]))

    def _prepare(self, events: Array, rate: Array, moments: Answer, facts: Facts) -> _Prepared:
        """Find the frame, the cap and the columns that are kept."""
        m = len(self.edges) - 1
        k = facts.d - m - TAIL
        S = unflatten_symmetric(moments.value, k + 1)
        every = np.maximum(S[:, -1, -1], _LEAST)
        mean = S[:, :-1, -1] / every[:, None]
        spread = S[:, :-1, :-1] / every[:, None, None] * self.value**2
        spread = spread - mean[:, :, None] * mean[:, None, :] * self.value**2
        noisy = moments.spread > 0.0
        share = float(np.clip(events.sum(axis=1), 0.0, None).mean())
        lift = math.sqrt(min(0.5, 1.0 / (k + 1.0)))
        length = math.sqrt(k * ROOM / (1.0 - lift**2))
        cap = NO_CAP
        kept = np.ones(k, dtype=bool)
        if noisy:
            cap = self._choose_cap(share, rate, k, facts, moments)
            kept = self._levels_not_merged(spread + mean[:, :, None] ** 2, moments, share, facts)
        else:
            length, lift = FAR, lift / FAR
        W = self._whitening(spread, moments.spread, kept) / length
        center = np.einsum("rij,rj->ri", W, mean)
        frame = np.concatenate([W, -center[:, :, None]], axis=2)
        into = np.zeros((len(S), k + m, k + m))
        into[:, :k, :k] = W.transpose(0, 2, 1)
        into[:, k:, :k] = -center[:, None, :]
        into[:, range(k, k + m), range(k, k + m)] = lift / self.value
        every_kept = np.concatenate([kept, np.ones(m, dtype=bool)])
        return _Prepared(frame, into, every_kept, lift, cap, max(cap, self.most, 1.0))

    def _whitening(self, spread: Array, noise: float, kept: BoolArray) -> Array:
        """Return symmetric matrices that make the columns' spreads about equal, (R, k, k)."""
        every = np.tile(kept, (len(spread), 1))
        both = every[:, :, None] & every[:, None, :]
        spread = spread * both
        size = np.maximum(np.einsum("rii->r", spread) / max(1, int(kept.sum())), 1e-300)
        if noise > 0.0:
            spread = spread + (FLOOR * size)[:, None, None] * np.eye(len(kept))
        return whitening_transform(spread, noise, every).frame.A

    def _choose_cap(
        self, share: float, rate: Array, k: int, facts: Facts, moments: Answer
    ) -> float:
        """Choose the cap B that gives the least variance of a coefficient in the frame.

        Up to B all but the share ``exp(-B)`` of events are seen that are seen without a cap, and
        noise in gradients is in proportion to B.
        """
        if not self.dated:
            return float(np.clip(EXPECTED * share, 1.0, max(1.0, self.most)))
        place = len(self.items) - 1
        noise = self.releases_with_noise.noise_deviation(place, facts, moments.among)
        whole = float((rate * np.diff(self.edges)).sum(axis=1).mean())
        information = max(share, _LEAST) / (ROOM * (k + 1.0))

        def variance(cap: float) -> float:
            reached = min(1.0, math.expm1(-cap) / math.expm1(-max(whole, _LEAST)))
            told = reached * information
            return 1.0 / (moments.rows * told) + (cap * noise / told) ** 2

        return min(CAPS, key=variance)

    def _levels_not_merged(
        self, second: Array, moments: Answer, share: float, facts: Facts
    ) -> BoolArray:
        """Return the columns (k,) that are no levels too rare for this noise.

        A level is rare if its share of the rows is below three noise deviations, or below
        `RAREST` and noise would move its log rate by more than `HIDDEN`.
        """
        k = second.shape[-1]
        marks = self.marks[:k]
        levels = marks > 0.0
        squares = np.where(levels, marks, 1.0) ** 2
        shares = np.einsum("rii->ri", second).mean(axis=0) / squares
        noise = moments.spread / squares
        place = len(self.items) - 1
        of_gradient = self.releases_with_noise.noise_deviation(place, facts, moments.among)
        moved = of_gradient * max(self.most, 1.0) / np.maximum(_LEANS * shares * share, _LEAST)
        rare = (shares < _SEEN * noise) | ((shares < RAREST) & (moved > HIDDEN))
        return ~(levels & rare)

    def _to_hessian(self, answer: Answer, ready: _Prepared, p: int) -> _Hessian:
        """Return the Hessian in the frame: two intervals have no entry in common."""
        m = len(self.edges) - 1
        H = ready.cap * unflatten_symmetric(answer.value, p)
        H[:, p - m :, p - m :] *= np.eye(m)
        H = restrict_to_kept(H, np.tile(ready.kept, (len(H), 1)))
        spread = np.full(len(H), ready.cap * answer.spread)
        return _Hessian(H, spread, spread)


class _Hessian(NamedTuple):
    """An average of Hessians in the frame.

    Parameters
    ----------
    H : array (R, p, p)
    noise : array (R,)
        Standard deviation of the noise on an entry.
    error : array (R,)
        The same, with that of carrying earlier Hessians to the present point.
    """

    H: Array
    noise: Array
    error: Array

    def carried(self, change: Array) -> _Hessian:
        """Return the Hessian as one at another point, at a root mean square change of log rates."""
        entry = np.einsum("rij,rij->r", self.H, self.H) / self.H.shape[-1] ** 2
        return self._replace(error=np.sqrt(self.error**2 + change**2 * entry))


def _pooled(before: _Hessian | None, new: _Hessian) -> _Hessian:
    """Average two Hessians by precision; without noise the new one counts alone."""
    if before is None or not np.all(new.noise > 0.0):
        return new
    one, other = before.error**-2.0, new.error**-2.0
    share = (one / (one + other))[:, None, None]
    flat = share[:, 0, 0]
    noise = np.hypot(flat * before.noise, (1.0 - flat) * new.noise)
    return _Hessian(share * before.H + (1.0 - share) * new.H, noise, (one + other) ** -0.5)


class _Last(NamedTuple):
    """What is known at the last point, in the frame: the releases and their noise.

    Parameters
    ----------
    w : array (R, p)
        The point, in encoded columns.
    hessian, squares : array (R, p, p)
        H, and J after shrinkage.
    hessian_noise : array (R,)
    gradient : array (R, p)
    gradient_noise, rows : float
    """

    w: Array
    hessian: Array
    hessian_noise: Array
    squares: Array
    gradient: Array
    gradient_noise: float
    rows: float


def take_last_step(last: _Last, ready: _Prepared, intervals: int) -> Estimates:
    """Take the last Newton step, and compute its covariance (module's docstring).

    Parameters
    ----------
    last : _Last
    ready : _Prepared
    intervals : int
        Number m of intervals.

    Returns
    -------
    Estimates
        In encoded columns.
    """
    w, H, s_H, J, g, s_g, n = last
    replicates, p = w.shape
    kept = np.tile(ready.kept, (replicates, 1))
    least = np.maximum(1e-12, _FLOOR * s_H * math.sqrt(2.0 * p))
    inverse, fine = inverse_where_known(H, kept, least)
    d = -np.einsum("rij,rj->ri", inverse, g)
    of_g = s_g**2 * np.eye(p)
    noise = inverse @ (of_g + covariance_of_hessian_noise(d, s_H)) @ inverse
    sampling = inverse @ (project_to_semidefinite(J) / n) @ inverse
    A = ready.into
    turned = A.transpose(0, 2, 1)
    Z = inverse * s_g**2
    # Of noise alone d'Hd has the mean tr Z and the variance 2 tr Z^2.
    beyond = np.einsum("ri,rij,rj->r", d, H, d) - np.einsum("rii->r", Z)
    beyond = beyond - CHANCE * np.sqrt(2.0 * np.einsum("rij,rji->r", Z, Z))
    expected = _expected_events(H, ready.lift, intervals)
    covariance = sampling + noise
    error = np.sqrt(np.einsum("rij,rji->r", H, covariance) / np.maximum(kept.sum(axis=1), 1))
    # The second-order error of a step d is about d'Hd / 2 sqrt(expected events), in the metric H.
    with np.errstate(divide="ignore", invalid="ignore"):
        strain = 0.5 * np.maximum(beyond, 0.0) / np.sqrt(expected) / error
        near = np.einsum("rii->r", Z) <= FARTHEST**2 * expected
    return Estimates(
        estimate=w + np.einsum("rij,rj->ri", A, d),
        at=w,
        covariance=A @ covariance @ turned,
        noise=A @ noise @ turned,
        sampling=A @ sampling @ turned,
        frame=A,
        hessian=H,
        hessian_noise=s_H,
        strain=np.where(fine & near & np.isfinite(strain), strain, np.inf),
        kept=kept,
        rows=n,
        scale=math.inf,
    )


def _step(pool: _Hessian, slope: Answer, ready: _Prepared, intervals: int) -> tuple[Array, Array]:
    """Return a Newton step in the frame, (R, p), and its mean change of log rates, (R,).

    The change is a root mean square, weighted by expected events, and at most `LONGEST`.
    """
    H = pool.H
    identity = np.tile(np.eye(H.shape[-1]), (len(H), 1, 1))
    gradient = ready.unit * slope.value * ready.kept
    d = estimate_displacement(
        Frame(identity, identity), H, pool.noise, gradient, ready.unit * slope.spread
    )
    along = np.maximum(np.einsum("ri,rij,rj->r", d, H, d), 0.0)
    change = np.sqrt(along / _expected_events(H, ready.lift, intervals))
    shorter = np.minimum(1.0, LONGEST / np.maximum(change, 1e-300))
    return d * shorter[:, None], change * shorter


def _expected_events(H: Array, lift: float, intervals: int) -> Array:
    """Return the mean number of expected events of a row by a Hessian, (R,), above 0."""
    of_intervals = np.einsum("rii->ri", H)[:, -intervals:]
    return np.asarray(np.maximum(of_intervals.sum(axis=1), 1e-300) / lift**2)


def rows_of_people(encoded: Array, time: Array, events: Array, intervals: int) -> Array:
    """Return the rows of people that :class:`RateSteps` reads, (n, k + m + 2).

    Parameters
    ----------
    encoded : array (n, k + 1)
        Columns and the constant.
    time : array (n,)
        Time seen, as a part of the horizon; NaN makes a row of zeros.
    events : array (n,)
        Number of events, as a part of its bound.
    intervals : int
        m, the number of intervals.

    Returns
    -------
    array (n, k + m + 2)
    """
    known = ~(np.isnan(time) | np.isnan(events))
    rest = np.zeros((len(encoded), intervals - 1))
    outcome = np.column_stack([time, events])
    rows = np.hstack([encoded, rest, outcome])
    return np.where(known[:, None], rows, 0.0)


def naming_of_rates(naming: Naming, edges: Sequence[float]) -> Naming:
    """Return the encoding with a constant for each interval in place of the one of all rows."""
    m, k = len(edges) - 1, naming.d - 1
    if m == 1:
        return naming
    M = np.zeros((k + m, k + m))
    M[:k, :k] = naming.into_units[:k, :k]
    M[k:, :k] = naming.into_units[-1, :k]
    M[k:, k:] = naming.value * np.eye(m)
    names = [f"{low:g} to {high:g}" for low, high in itertools.pairwise(edges)]
    return replace(
        naming,
        terms=(*naming.terms[:-1], *(Term(CONSTANT, name) for name in names)),
        into_units=M,
        constant=np.concatenate([np.zeros(k), np.ones(m)]),
    )


def steps_from_naming(
    naming: Naming, edges: Sequence[float], most: float, *, dated: bool, noisy: bool
) -> RateSteps:
    """Construct the recipe for people in an encoding with a constant for each interval.

    Parameters
    ----------
    naming : Naming
        That of :func:`naming_of_rates`.
    edges : sequence of float
        Of the intervals, in units of time.
    most : float
        Largest number of events of a person.
    dated : bool
        Whether events have times.
    noisy : bool
        Whether the run has noise; without it there are more steps.

    Returns
    -------
    RateSteps
    """
    return RateSteps(
        edges=tuple(map(float, edges)),
        most=float(most),
        dated=dated,
        value=naming.value,
        marks=naming.marks,
        steps=RateSteps.steps if noisy else MOST_STEPS,
    )
