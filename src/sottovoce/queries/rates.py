"""Bounded sums for log-linear rates of events: hazards in intervals of time, and counts.

A row is one person: the encoded columns x, a constant, the time seen (as a part of the public
horizon) and the number of events (as a part of its public bound).  Time is cut at public edges into
m intervals, in which the rate of events is ``exp(x.b + c v_j)`` for a public point ``(b, v)`` and
the constant c.  With the time e_j seen in interval j a row expects ``L_j = e_j exp(x.b + c v_j)``
events there, and ``L = L_1 + ... + L_m`` in all.

Rates have no bound, so a public number B, the *cap*, bounds L:

* of *dated* events (hazards) a row is read until L reaches B: follow-up ends there, as if the
  person had been censored, and an event after it is not counted;
* of counts a row weighs ``min(1, B / L)``.

Both depend on columns and on time seen alone, never on events, so the right coefficients still
solve the equations: ends of follow-up and weights are fixed before the outcome.

Rows are *framed*: ``u = F (x, c)`` with a public matrix F, and interval j has the entry t.  A row
with ``|u|^2 + t^2 > 1`` weighs ``1 / (|u|^2 + t^2)``, in all sums alike.

Guarantee
---------
Let U = max(B, K), with K the largest number of events of a row (1 of dated events), B >= 1 and
``t^2 <= 1/2``.  Whatever F and the point are, a row adds at most norm U to gradients, B to
Hessians, U^2 to squares of gradients; see :class:`RateGradient` for the proof.  Sums are asked in
these units, so that a row adds at most 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from ..data.design import Design
from ..problem.facts import Facts
from ..problem.losses import Loss
from ..util.typing import Array
from .bounded import Bounded
from .moments import flatten_symmetric

_WHOLE = {"whole": True}
_UP = 1.0 + 2.0**-40
"""Factor by which squared lengths are enlarged, more than rounding may take away from them."""
_FARTHEST = 40.0
"""Linear predictors are clipped to this size before the exponential."""
_ROUNDED = 256.0
"""Roundings of one row's contribution beside those of products: exponentials of clipped predictors
and sums over intervals."""
TAIL = 2
"""Columns of a row after those of the intervals' constants: time seen, and events."""


class People(NamedTuple):
    """What the sums read of the rows of M nodes, for one replicate.

    Parameters
    ----------
    u : array (M, k, n)
        Framed columns.
    weight : array (M, n)
        Of rows that are longer than 1; 0 for rows of zeros.
    expected : array (M, m, n)
        L_j, capped.
    events : array (M, m, n)
        Events that are counted, by interval.
    """

    u: Array
    weight: Array
    expected: Array
    events: Array


@dataclass(frozen=True)
class Rates(Bounded):
    """What sums for rates have in common; the module has the symbols.

    Parameters
    ----------
    at : array of shape (..., k + m + 2)
        Public point: coefficients of the columns, then of the intervals' constants; two zeros.
    edges : tuple of float
        Public edges of the m intervals, increasing; the last one is the horizon.
    most : float
        K, the largest number of events of a row.
    dated : bool
        Whether an event has a time (K is 1); else events are counts.
    frame : array of shape (R, k, k + 1)
        F.
    lift : float
        t, the entry of an interval's constant.
    cap : float
        B.  It may follow from earlier releases: neither sensitivity nor event depends on it.
    """

    edges: tuple[float, ...] = field(default=(0.0, 1.0), kw_only=True)
    most: float = field(default=1.0, kw_only=True)
    dated: bool = field(default=True, kw_only=True)
    frame: Array | None = field(default=None, kw_only=True, metadata=_WHOLE)
    lift: float = field(default=0.5, kw_only=True)
    cap: float = field(default=1.0, kw_only=True)

    @property
    def intervals(self) -> int:
        """Number m of intervals."""
        return len(self.edges) - 1

    @property
    def parts(self) -> Array:
        """The edges as parts of the horizon, as times are stored."""
        return np.array(self.edges) / self.edges[-1]

    @property
    def unit(self) -> float:
        """U, the largest norm of a row's gradient."""
        return max(self.cap, self.most, 1.0)

    def columns(self, facts: Facts) -> int:
        """Return the number k of columns."""
        return facts.d - self.intervals - TAIL

    def largest_row_norm(self, facts: Facts) -> float:
        return 1.0

    def rounding_error_bound(self, facts: Facts, rows: Array) -> Array:
        """Bound the rounding error of a computed mean, with the exponentials'."""
        more = _ROUNDED * 2.0**-53 * self.largest_row_norm(facts)
        return np.asarray(super().rounding_error_bound(facts, rows) + more)

    def time_seen(self, time: Array) -> Array:
        """Return the time seen in each interval, (M, m, n), in the unit of the edges."""
        parts = self.parts
        width = np.diff(parts)[:, None]
        return np.clip(time[:, None, :] - parts[:-1, None], 0.0, width) * self.edges[-1]

    def events_by_interval(self, time: Array, events: Array) -> Array:
        """Return numbers of events by interval, (M, m, n); dated ones where time ends."""
        if not self.dated:
            return events[:, None, :]
        last = np.searchsorted(self.parts[1:], time, side="left")
        here = np.arange(self.intervals)[:, None] == last[:, None, :]
        return here * events[:, None, :]

    def read_outcomes(self, block: Design, at: Array) -> tuple[Array, Array, Array]:
        """Read the constant, time seen and number of events of each row, (M, n) each."""
        size = at.shape[-1]
        places = [size - TAIL - self.intervals, size - 2, size - 1]
        read = _products(block, np.eye(size)[places], len(at))
        time = np.clip(read[:, 1], 0.0, 1.0)
        events = np.clip(read[:, 2], 0.0, 1.0) * self.most
        if self.dated:
            events = np.rint(events)
        return read[:, 0], time, events

    def read_people(self, block: Design, at: Array, replicate: int) -> People:
        """Read rows at one replicate's point, with weights and capped expectations.

        Parameters
        ----------
        block : Design
        at : array of shape (M, R, d)
            Public points.
        replicate : int
            Which point is read.

        Returns
        -------
        People
        """
        assert self.frame is not None
        m, nodes = self.intervals, len(at)
        k = at.shape[-1] - m - TAIL
        constant, time, events = self.read_outcomes(block, at)
        known = constant != 0.0
        frame = self.frame[min(replicate, len(self.frame) - 1)]
        axes = np.zeros((len(frame), at.shape[-1]))
        axes[:, : k + 1] = frame
        u = _products(block, axes, nodes)
        slopes = at[:, replicate].copy()
        slopes[:, k:] = 0.0
        score = np.asarray(block.to_numpy_array(block.change_of_margins(slopes[:, None])))[:, 0]
        of_intervals = constant[:, None, :] * at[:, replicate, k : k + m, None]
        rate = np.exp(np.clip(score[:, None, :] + of_intervals, -_FARTHEST, _FARTHEST))
        length = 1.0 / np.maximum(1.0, (np.sum(u**2, axis=1) + self.lift**2) * _UP)
        weight = np.where(known, length, 0.0)
        expected = self.time_seen(time) * rate
        happened = self.events_by_interval(time, events)
        if self.dated:
            reached = np.cumsum(expected, axis=1)
            counted = reached[:, -1] <= self.cap
            capped = np.minimum(reached, self.cap)
            expected = np.diff(capped, axis=1, prepend=0.0)
            happened = happened * counted[:, None, :]
        else:
            by_cap = np.minimum(1.0, self.cap / np.maximum(expected[:, 0], 1e-300))
            weight = weight * by_cap
        return People(u, weight, expected, happened)


def _products(block: Design, axes: Array, nodes: int) -> Array:
    """Return the products of all rows with some vectors (q, d): (M, q, n)."""
    every = np.broadcast_to(axes, (nodes, *axes.shape))
    return np.asarray(block.to_numpy_array(block.change_of_margins(every)))


@dataclass(frozen=True)
class RateTotals(Rates):
    """Events over K by interval, and the time seen in each over its width and sqrt(m).

    Both vectors have norm at most 1, and the answer is them over sqrt(2); no entry is negative.
    """

    cone: ClassVar[bool] = True

    def number_of_entries(self, facts: Facts) -> int:
        return 2 * self.intervals

    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Sum events and time seen over a block of rows.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`; of `at` only the shape is used.

        Returns
        -------
        array of shape (M, R, 2 m)
        """
        constant, time, events = self.read_outcomes(block, at)
        known = (constant != 0.0)[:, None, :]
        happened = self.events_by_interval(time, events) / self.most * known
        width = np.diff(self.edges)[:, None] * np.sqrt(self.intervals)
        seen = self.time_seen(time) / width * known
        both = np.concatenate([happened.sum(axis=2), seen.sum(axis=2)], axis=1) / np.sqrt(2.0)
        return np.broadcast_to(both[:, None, :], (*at.shape[:2], both.shape[-1]))

    def to_totals(self, answer: Array) -> tuple[Array, Array]:
        """Return events and time seen by interval, a person: (R, m) each."""
        m = self.intervals
        events = answer[:, :m] * np.sqrt(2.0) * self.most
        return events, answer[:, m:] * np.sqrt(2.0 * m) * np.diff(self.edges)


@dataclass(frozen=True)
class RateMoments(Rates):
    """Second moments of columns and constant z, (k + 1) x (k + 1): ``min(1, 1 / |z|^2) z z'``."""

    cone: ClassVar[bool] = True
    degree: ClassVar[int] = 2

    def number_of_entries(self, facts: Facts) -> int:
        k = self.columns(facts) + 1
        return k * (k + 1) // 2

    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Sum the second moments of columns over a block of rows.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`; of `at` only the shape is used.

        Returns
        -------
        array of shape (M, R, (k + 1) (k + 2) / 2)
        """
        z = _products(block, np.eye(at.shape[-1])[: -self.intervals - TAIL + 1], len(at))
        scaled = z / np.maximum(1.0, np.sum(z**2, axis=1, keepdims=True) * _UP)
        found = flatten_symmetric(scaled @ z.transpose(0, 2, 1))
        return np.broadcast_to(found[:, None, :], (*at.shape[:2], found.shape[-1]))


class _OfPeople(Rates):
    """Base of sums at a point: one replicate after the other."""

    def sum_over_block(self, block: Design, loss: Loss, at: Array) -> Array:
        """Compute the sum over a block of rows.

        Parameters
        ----------
        block, loss, at
            As for :meth:`Bounded.sum_over_block`.

        Returns
        -------
        array of shape (M, R, entries)
        """
        found = [self.total(self.read_people(block, at, r)) for r in range(at.shape[1])]
        return np.stack(found, axis=1)

    def total(self, people: People) -> Array:
        """Sum over the people of each node, (M, entries)."""
        raise NotImplementedError

    def gradients(self, people: People) -> Array:
        """Return each row's gradient in the frame, in units of U, (M, k + m, n)."""
        off = (people.expected - people.events) * (people.weight / self.unit)[:, None, :]
        return np.concatenate([people.u * off.sum(axis=1, keepdims=True), self.lift * off], axis=1)


@dataclass(frozen=True)
class RateGradient(_OfPeople):
    """The gradient in units of U: ``w sum_j (L_j - y_j) (u, t e_j) / U`` a row, of norm at most 1.

    *Proof.*  Let ``r_j = L_j - y_j``; the squared norm is ``w^2 ((sum r)^2 |u|^2 + t^2 |r|^2)``.
    Counts have one interval, and ``|w r| <= max(B, K)`` as ``w L <= B``, ``w y <= K``; so it is at
    most ``U^2 w'^2 (|u|^2 + t^2) <= U^2``, w' being the weight of long rows.  Of dated events y is
    0 or a unit vector, and L is in the simplex ``L_j >= 0, sum L <= B``.  The norm is convex in L,
    so largest at a corner: L = 0 gives ``|u|^2 + t^2`` or 0, ``L = B e_i`` without the event
    ``B^2 (|u|^2 + t^2)``, with it in i ``(B - 1)^2 (|u|^2 + t^2)``, each times w'^2 at most B^2;
    with it elsewhere ``w'^2 ((B - 1)^2 |u|^2 + (B^2 + 1) t^2)``.  Where ``|u|^2 + t^2 <= 1`` that
    is at most ``(B - 1)^2 (1 - t^2) + (B^2 + 1) t^2 = (B - 1)^2 + 2 B t^2 <= B^2 - B + 1 <= B^2``;
    in a longer row, where ``|u|^2 > 1 - t^2 >= t^2``, it is less than ``w'^2 B^2 (|u|^2 + t^2)``.
    """

    def number_of_entries(self, facts: Facts) -> int:
        return self.columns(facts) + self.intervals

    def total(self, people: People) -> Array:
        return np.asarray(self.gradients(people).sum(axis=2))


class _Matrix(_OfPeople):
    """Base of sums of matrices (k + m) x (k + m), flattened, of positive semidefinite ones."""

    cone: ClassVar[bool] = True
    degree: ClassVar[int] = 2

    def number_of_entries(self, facts: Facts) -> int:
        p = self.columns(facts) + self.intervals
        return p * (p + 1) // 2


@dataclass(frozen=True)
class RateHessian(_Matrix):
    """The Hessian in units of B: ``w sum_j L_j u_j u_j' / B`` a row, with ``u_j = (u, t e_j)``.

    Its norm is at most ``w' (sum_j L_j) |u_j|^2 / B <= 1``.
    """

    def total(self, people: People) -> Array:
        k, m = people.u.shape[1], self.intervals
        expected = people.expected * (people.weight / self.cap)[:, None, :]
        of_columns = people.u * expected.sum(axis=1, keepdims=True)
        H = np.zeros((len(people.u), k + m, k + m))
        H[:, :k, :k] = of_columns @ people.u.transpose(0, 2, 1)
        mixed = self.lift * people.u @ expected.transpose(0, 2, 1)
        H[:, :k, k:] = mixed
        H[:, k:, :k] = mixed.transpose(0, 2, 1)
        places = np.arange(k, k + m)
        H[:, places, places] = self.lift**2 * expected.sum(axis=2)
        return flatten_symmetric(H)


@dataclass(frozen=True)
class RateSlopes(_Matrix):
    """Second moments of rows' gradients, in units of U^2."""

    def total(self, people: People) -> Array:
        g = self.gradients(people)
        return flatten_symmetric(g @ g.transpose(0, 2, 1))


__all__ = [
    "RateGradient",
    "RateHessian",
    "RateMoments",
    "RateSlopes",
    "RateTotals",
    "Rates",
]
