"""Discrete-time hazards by Newton steps on noisy sums (docs/privacy/survival.md).

Time is divided into m intervals.  The model is a logistic regression for the event in an interval
given survival to its start, with slopes for d columns and a constant for each interval.

The recipe :class:`HazardSteps` first asks for a *life table*: how many people leave follow-up, with
the event or without (censored), by cells of time that are finer than the intervals.  It gives each
interval's hazard, from which Newton steps for slopes and constants start, and the Kaplan-Meier
curve, by which the constants are corrected at the end.  Each step asks for a Hessian and a gradient
at the point where the last one led.  Nothing else is asked of the rows.  The survival models of
:mod:`sottovoce.estimators` use it.

Arrays have R replicates in front; p = d + m is the number of parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import logit

from ..algorithms.items import Item, Script
from ..algorithms.recipe import Recipe
from ..problem.facts import Facts
from ..queries import Curvature, Exits, Gradient
from ..queries.moments import unflatten_symmetric
from ..util.typing import Array, BoolArray

TABLE, GRADIENTS, HESSIANS = 0.15, 0.50, 0.35
"""Budget shares (of the squared sensitivity over sigma): of the life table, of all gradients, and
of all Hessians.
"""
GROWTH = 1.6
"""Factor from step to step of the shares of gradients and of Hessians: later points are nearer to
the maximum.
"""
LONGEST = 1.5
"""Largest root mean square change of log-odds in a step."""
FLOOR = 2.0
"""Eigenvalues of a Hessian are raised to this many times ``s sqrt(p)``, about the norm of its
noise, with noise of deviation s on an entry.
"""
REMAINS = 0.3
"""Largest root mean square change of log-odds in the last step, beyond noise, of a fit that has
converged.
"""
CURVED = 4.0
"""Squared error of carrying a gradient from one point to another by the Hessian, over its mean
square change on the way and the mean square change of log-odds.

Measured at 2,000 and 20,000 people and epsilon 10: with less, earlier gradients pull estimates to
their start.
"""
EXACT = 1e-6
"""Largest predicted gain in log-likelihood of the last step of a fit without noise that has
converged.
"""
STILL = 1e-4
"""Largest relative change of slopes in the last step of a fit without noise that has converged."""
_LEAST = 1e-6
"""Least hazard of an interval: without events the likelihood has no maximum."""
_CANCELLED = 1e-13
"""Eigenvalues below this part of the largest one are 0: rows do not vary in that direction."""


class Hazards(NamedTuple):
    """Outcome: slopes and constants in encoded columns, and how far they can be relied on.

    Parameters
    ----------
    slopes : array (d,)
        Log-odds for one unit of each encoded column.
    constants : array (m,)
        Log-odds of the event in each interval, for a row of zeros, at the maximum of the grouped
        likelihood.
    correction : array (m,)
        To add to the constants: log-odds of the event by the Kaplan-Meier curve, less those by
        constant hazards within intervals.
    hidden : int
        Number of directions of the last Hessian that noise hides.
    converged : bool
        Whether the last step was small (`REMAINS`, or without noise `EXACT` and `STILL`), and no
        direction is hidden.
    """

    slopes: Array
    constants: Array
    correction: Array
    hidden: int
    converged: bool


def number_of_cells(intervals: int, cells: int) -> int:
    """Return the number of cells of a life table with this many cells in each interval.

    There is one of each kind for every cell of time: people with the event, and people censored
    inside an interval; one for every interval: people censored at its end; and one for people who
    were never at risk.
    """
    return 2 * intervals * cells + intervals + 1


class LifeTable:
    """Life table: shares of people who leave, by cell of time, and hazards that follow from them.

    Parameters
    ----------
    shares : array (..., number_of_cells(intervals, cells))
        Noisy shares of people, in the order of :func:`number_of_cells`.
    spread : float
        Standard deviation of the noise on each share.
    intervals : int
        Number m of intervals.
    cells : int
        Number of cells in each interval.
    """

    def __init__(self, shares: Array, spread: float, intervals: int, cells: int) -> None:
        self.spread = spread
        self.intervals = intervals
        self.cells = cells
        # In order: events, people censored inside, (..., m, cells) each; people censored at an
        # interval's end, (..., m); and those never at risk, who are not used.
        every = intervals * cells
        shape = (*shares.shape[:-1], intervals, cells)
        self.events = shares[..., :every].reshape(shape)
        self.inside = shares[..., every : 2 * every].reshape(shape)
        self.at_end = shares[..., 2 * every : 2 * every + intervals]

    @property
    def share_at_risk(self) -> Array:
        """Shares of people at risk at the start of each cell, (..., m, cells)."""
        exits = self.events + self.inside
        # People at risk are those who leave later.  They are sums from the last interval backwards,
        # of people who leave at an interval's end and of those who leave inside, less those who
        # left in earlier cells of the same interval.
        at_ends = np.flip(np.cumsum(np.flip(self.at_end, -1), axis=-1), -1)
        whole = np.flip(np.cumsum(np.flip(exits.sum(axis=-1), -1), axis=-1), -1)
        before = np.cumsum(exits, axis=-1) - exits
        return np.asarray((at_ends + whole)[..., None] - before)

    def events_and_exposure(self) -> tuple[Array, Array]:
        """Return events, and exposure without the event, of each interval: each (..., m).

        Events over the sum of both are the interval's hazard.  Both are shares of all people, by
        whole intervals: one with the event counts 1 in the first, one who is seen to the end counts
        1 in the second, and one who is censored inside counts there with the part until then.
        """
        events = self.events.sum(axis=-1)
        # People censored in a cell were seen until its middle, as a part of the interval.
        seen = (np.arange(self.cells) + 0.5) / self.cells
        # At risk in an interval's first cell: all who reach the interval.
        entered = self.share_at_risk[..., 0]
        survived = entered - events - self.inside.sum(axis=-1)
        return events, survived + (self.inside * seen).sum(axis=-1)

    def constant_hazard_chances(self) -> Array:
        """Return the event's probability in each interval if hazards are constant inside, (..., m).

        They are shrunk to the mean hazard: a share of people with that hazard is added, as large as
        the standard deviation of the noise in an interval's counts.
        """
        events, without = self.events_and_exposure()
        pull = self.spread * math.sqrt(2.0 * self.cells)
        mean = events.sum(axis=-1) / np.maximum((events + without).sum(axis=-1), 1e-300)
        mean = np.clip(mean, _LEAST, 0.5)[..., None]
        whole = np.maximum(events + without, 0.0) + pull
        found = np.divide(events + pull * mean, whole, out=np.zeros_like(whole), where=whole > 0.0)
        least = np.full_like(mean, _LEAST)
        if pull != 0.0:
            # Noise may leave an interval no events.
            least = 0.1 * mean
        return np.asarray(np.clip(found, least, 1.0 - _LEAST))

    def kaplan_meier_chances(self) -> Array:
        """Return Kaplan-Meier probabilities of the event in each interval, given survival, (...,
        m).

        Without noise every cell holds a single time, at which events come before censoring.  With
        noise cells are coarse, and people censored in one count as at risk for half of it.
        """
        at_risk = self.share_at_risk
        if self.spread > 0.0:
            least = 3.0 * self.spread * math.sqrt(self.cells)
            at_risk = np.maximum(at_risk - 0.5 * self.inside, least)
        hazard = np.divide(self.events, at_risk, out=np.zeros_like(at_risk), where=at_risk > 0.0)
        # Noise may make a cell's events negative, or more than those at risk.
        survived = np.prod(1.0 - np.clip(hazard, -0.5, 1.0), axis=-1)
        return np.asarray(np.clip(1.0 - survived, _LEAST, 1.0 - _LEAST))

    def log_odds_correction(self) -> Array:
        """Return log-odds by the Kaplan-Meier curve less those by constant hazards, (..., m)."""
        return np.asarray(
            logit(self.kaplan_meier_chances()) - logit(self.constant_hazard_chances())
        )


class Seen(NamedTuple):
    """Gradient and Hessian of the mean loss over people at a point, of R replicates.

    Parameters
    ----------
    at, gradient : array (R, p)
        The point and the gradient there: slopes first, then the intervals' constants.
    hessian : array (R, p, p)
    hessian_noise, gradient_noise : float
        Standard deviations of the noise on an entry.
    """

    at: Array
    hessian: Array
    hessian_noise: float
    gradient: Array
    gradient_noise: float


class Step(NamedTuple):
    """A Newton step of R replicates, and how far it can be relied on.

    Parameters
    ----------
    change : array (R, p)
        The step.
    decrement : array (R,)
        ``g'H^-1 g`` with the gradient g and the Hessian H: twice the predicted gain.
    beyond : array (R,)
        Root mean square change of log-odds that noise in the gradient does not explain.
    hidden : array (R,)
        Number of directions whose curvature noise hides.
    cut : bool array (R,)
        Whether the step would have been longer than `LONGEST`.
    noisy : bool
        Whether the gradient has noise.
    """

    change: Array
    decrement: Array
    beyond: Array
    hidden: Array
    cut: BoolArray
    noisy: bool


@dataclass(frozen=True)
class HazardSteps(Recipe):
    """Slopes and constants of discrete-time hazards; the outcome is :class:`Hazards`.

    That of the first replicate.  Rows are those of
    :func:`sottovoce.estimators.hazard_rows.expand_to_interval_rows`: columns, a constant for each
    interval, and a column that holds a cell of the life table.

    Parameters
    ----------
    intervals : int
        Number m of intervals.
    cells : int
        Cells of the life table in each interval.
    steps : int
        Number of Newton steps.
    value : float
        Entry of a row in the constant of its interval.
    weight : float
        Largest weight of a row.
    ridge : float
        Factor on half the squared norm of the slopes, which is added to the mean loss over people.

    Guarantee
    ---------
    Rows enter through `items` alone: Gaussian mechanisms on bounded sums over rows, each priced by
    :meth:`sottovoce.queries.NoisyBounded.event` under the relation and the unit of the run.
    Steps and the outcome are post-processing.
    """

    intervals: int = field(kw_only=True)
    cells: int = field(kw_only=True)
    steps: int = field(kw_only=True)
    value: float = field(kw_only=True)
    weight: float = field(kw_only=True)
    ridge: float = field(kw_only=True)

    name: ClassVar[str] = "hazards"
    summary: ClassVar[str] = "discrete-time hazards, by Newton steps"

    @property
    def items(self) -> tuple[Item, ...]:
        """The life table, then a Hessian and a gradient for each step, with budget shares."""
        asked = [Item("life table", self._exits_query, TABLE)]
        growing = GROWTH ** np.arange(float(self.steps))
        for k, part in enumerate(growing / growing.sum(), 1):
            asked.append(Item(f"Hessian {k}", Curvature, HESSIANS * float(part)))
            asked.append(Item(f"gradient {k}", Gradient, GRADIENTS * float(part)))
        return tuple(asked)

    def _exits_query(self, at: Array) -> Exits:
        """Return the query for the life table: how many people leave follow-up in each cell."""
        return Exits(at, number_of_cells(self.intervals, self.cells))

    def script(self, facts: Facts, replicates: int) -> Script:
        """Ask for the life table, take Newton steps from it, and return :class:`Hazards`."""
        m, d = self.intervals, facts.d - self.intervals - 1
        # A person has m + 1 rows.  Answers are means over rows: times this they are means over
        # people.
        rows_each = m + 1.0
        # All but the column of the life table's cell.
        free = slice(0, d + m)
        exits = yield self._exits_query(np.zeros((replicates, facts.d)))
        shares, spread = rows_each * exits.value, rows_each * exits.spread
        table = self._life_table(shares, spread)
        w = np.zeros((replicates, facts.d))
        # Start: each interval's own hazard, and no effect of a column.
        w[:, d : d + m] = logit(table.constant_hazard_chances()) / self.value
        pull = np.r_[np.full(d, self.ridge), np.zeros(m)]
        bound = facts.loss.curvature_bound
        seen = list[Seen]()
        for _ in range(self.steps):
            bends = yield Curvature(w)
            slope = yield Gradient(w)
            # Curvatures were asked in units of their bound.
            H = rows_each * bound * unflatten_symmetric(bends.value, facts.d)[
                :, free, free
            ] + np.diag(pull)
            here = Seen(
                at=w[:, free].copy(),
                hessian=_without_interval_pairs(H, d),
                hessian_noise=rows_each * bound * bends.spread,
                gradient=rows_each * slope.value[:, free] + pull * w[:, free],
                gradient_noise=rows_each * slope.spread,
            )
            seen.append(here)
            step = newton_step(pool_answers(seen, self.value, d), self.value, d)
            w = w.copy()  # the queries keep their own point
            w[:, free] += step.change
        correction = table.log_odds_correction()[0]
        if exits.spread > 0.0:
            correction = correction * self._kept_correction(table, shares, spread)
        people = float(facts.rows or 0.0) / rows_each
        return Hazards(
            slopes=w[0, :d],
            constants=w[0, d : d + m] * self.value,
            correction=correction,
            hidden=int(step.hidden[0]),
            converged=bool(self._has_converged(step, w[:, free], d, people)[0]),
        )

    def _life_table(self, shares: Array, spread: float) -> LifeTable:
        """Construct the life table from noisy shares of people, corrected so that they sum to 1."""
        if spread > 0.0:  # everybody is in one cell
            shares = shares + (1.0 - shares.sum(axis=-1, keepdims=True)) / shares.shape[-1]
        return LifeTable(shares, spread, self.intervals, self.cells)

    def _kept_correction(self, table: LifeTable, shares: Array, spread: float) -> Array:
        """Return the share of the correction that is kept, (m,): signal over signal and noise.

        The signal is the square of the correction, the noise its variance.  `shares`, (R, cells),
        are the noisy ones behind the `table`, and `spread` is the deviation of their noise.
        """
        # The delta method by differences: each share in turn is moved by one deviation.
        size = shares.shape[-1]
        moved = self._life_table(shares[:1] + spread * np.eye(size), spread).log_odds_correction()
        own = table.log_odds_correction()[:1]
        variance = np.sum((moved - own) ** 2, axis=0)
        return np.asarray(own[0] ** 2 / np.maximum(own[0] ** 2 + variance, 1e-300))

    def _has_converged(self, step: Step, w: Array, d: int, people: float) -> BoolArray:
        """Return which replicates have converged, (R,), by the last step.

        Parameters
        ----------
        step : Step
            The last step.
        w : array (R, p)
            Its end.
        d : int
            Number of slopes.
        people : float
            Number of people.
        """
        if step.noisy:
            return np.asarray((step.beyond <= REMAINS) & ~step.cut & (step.hidden == 0))
        # half of Newton's decrement: the gain in log-likelihood of all people that a step promises
        gain = 0.5 * people / self.weight * step.decrement
        moved = np.linalg.norm(step.change[:, :d], axis=1)
        length = np.linalg.norm(w[:, :d], axis=1)
        return np.asarray((gain <= EXACT) & ~step.cut & (moved <= STILL * (1.0 + length)))


def newton_step(seen: Seen, value: float, d: int) -> Step:
    """Compute the Newton step ``-H^-1 g``, with eigenvalues that noise hides raised to a floor.

    It is shortened to a root mean square change of log-odds of `LONGEST`.

    Parameters
    ----------
    seen : Seen
        The gradient g and the Hessian H.
    value : float
        Entry of a row in the constant of its interval.
    d : int
        Number of slopes; the other entries are constants.

    Returns
    -------
    Step
    """
    H, gradient_noise = seen.hessian, seen.gradient_noise
    values, vectors = np.linalg.eigh(H)
    least = 0.0
    if seen.hessian_noise > 0.0:
        # The norm of noise is about this; directions that it hides are not moved far.
        least = FLOOR * seen.hessian_noise * math.sqrt(H.shape[-1])
    dead = values <= _CANCELLED * np.maximum(values[:, -1:], 0.0)
    hidden = (values < least).sum(axis=1)
    safe = np.where(dead & (least == 0.0), 1.0, np.maximum(values, least))
    along = np.einsum("rij,ri->rj", vectors, seen.gradient)
    along = np.where(dead & (least == 0.0), 0.0, along)
    change = -np.einsum("rij,rj->ri", vectors, along / safe)
    decrement = np.sum(along**2 / safe, axis=1)
    # The trace of the constants' part of H is the mean curvature, times weights.  The decrement
    # over it is the mean square change of log-odds by the step.
    bends = np.maximum(np.einsum("rii->r", H[:, d:, d:]) / value**2, least)
    mean = np.divide(decrement, bends, out=np.zeros_like(decrement), where=bends > 0.0)
    of_noise = gradient_noise**2 * np.sum(1.0 / safe, axis=1)  # expected part of the decrement
    by_noise = np.divide(of_noise, bends, out=np.zeros_like(bends), where=bends > 0.0)
    factor = np.minimum(1.0, LONGEST / np.sqrt(np.maximum(mean, 1e-300)))
    return Step(
        change=change * factor[:, None],
        decrement=decrement,
        beyond=np.sqrt(np.maximum(mean - 2.0 * by_noise, 0.0)),
        hidden=hidden,
        cut=factor < 1.0,
        noisy=gradient_noise > 0.0,
    )


def _without_interval_pairs(H: Array, d: int) -> Array:
    """Set the entries of H for two different intervals to zero: a row is in one, so they are noise.

    The first d of the p columns are slopes.
    """
    H = H.copy()
    constants = H[:, d:, d:]
    H[:, d:, d:] = constants * np.eye(constants.shape[-1])
    return H


def pool_answers(seen: list[Seen], value: float, d: int) -> Seen:
    """Average all answers so far into one gradient and one Hessian at the last point.

    The gradient at an earlier point is carried to the last one by the Hessian there.  Answers are
    weighted by precision; their variance is that of their noise, plus the error of carrying them,
    which is about in proportion to the mean square change of log-odds between the points.  Without
    noise only the last answers count.

    Parameters
    ----------
    seen : list of Seen
        In order; the last is at the present point.
    value : float
        As for :func:`newton_step`.
    d : int
        As for :func:`newton_step`.

    Returns
    -------
    Seen
    """
    last = seen[-1]
    if not last.gradient_noise > 0.0:
        return last
    p = last.gradient.shape[-1]
    hessian = np.zeros_like(last.hessian)
    gradient = np.zeros_like(last.gradient)
    precision_of_hessian = np.zeros(len(last.at))
    precision_of_gradient = np.zeros(len(last.at))
    for one in seen:
        away = last.at - one.at
        # What the gradient changes on the way there.
        along = np.einsum("rij,rj->ri", one.hessian, away)
        bends = np.einsum("rii->r", one.hessian[:, d:, d:]) / value**2
        length = np.maximum(np.einsum("ri,ri->r", away, along), 0.0)
        # mean square change of log-odds between the two points
        moved = length / np.maximum(bends, one.hessian_noise)
        entry = np.einsum("rij,rij->r", one.hessian, one.hessian) / p**2  # mean square of an entry
        own_hessian = 1.0 / (one.hessian_noise**2 + moved * entry)
        own_gradient = 1.0 / (one.gradient_noise**2 + CURVED * moved * np.sum(along**2, axis=1) / p)
        precision_of_hessian += own_hessian
        precision_of_gradient += own_gradient
        hessian += own_hessian[:, None, None] * one.hessian
        gradient += own_gradient[:, None] * (one.gradient + along)
    return Seen(
        at=last.at,
        hessian=hessian / precision_of_hessian[:, None, None],
        hessian_noise=float(precision_of_hessian[0] ** -0.5),
        gradient=gradient / precision_of_gradient[:, None],
        gradient_noise=float(precision_of_gradient[0] ** -0.5),
    )


__all__ = [
    "HazardSteps",
    "Hazards",
    "LifeTable",
    "Seen",
    "newton_step",
    "number_of_cells",
    "pool_answers",
]
