"""Batched minimisation of local objectives, with a certificate.

The objective of node i and replicate r, in the papers' scale, is

    F(w) = (C / n_i) sum_k loss(a_k.w) + linear.w + (q / 2) ||w||^2,        a_k = y_k x_k, ||a_k|| <= 1,
    grad F(w) = (C / n_i) sum_k slope(a_k.w) a_k + linear + q w,
    Hess F(w) = (C / n_i) sum_k bend(a_k.w) a_k a_k' + q I  >=  q I.

Rows with a number to predict have ``a_k.w - t_k`` in place of ``a_k.w``.

Since F is q-strongly convex, ``||grad F(w)|| <= g`` certifies ``||w - argmin F|| <= g / q``: the gradient norm that a
solve returns proves how close its answer is to the minimiser.

Method: limited-memory BFGS (:mod:`sottovoce.quasinewton`) on top of a Newton preconditioner.  The Hessian's data term
is computed once per node at *reference points* (bends averaged over replicates) and shared by all replicates and
rounds; the quadratic term only shifts its spectrum.  So all replicates of a node need one matrix product together, and
nearly every step has length one.  An iteration is one sweep over the rows (:mod:`sottovoce.data.sweep`), of which those
that repeat may be merged (:mod:`sottovoce.data.merged`).  Sweeps run in single precision until rounding prevents
further progress, then in double.  The certificate is always computed in double, from a new sweep at the answer.

Nodes are solved one after the other, each while its rows are in cache, and small nodes some at a time.  The nodes and
groups of replicates are shared out to our threads.  What is solved together does not depend on the number of threads,
nor do results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from .data.design import Design
from .data.rows import Rows
from .data.sweep import CHUNK as BLOCK
from .data.sweep import INLINE, Sweep, cores, one_thread_a_product, shared, spans
from .errors import SolverError
from .losses import Loss
from .quasinewton import Memory, Problem, dots, gathered
from .typing import Any, Array, ArrayLike, IntArray

MAX_ITERATIONS = 500
NEWTON = 1000
"""Largest number of Newton steps for a solve that has not converged after `MAX_ITERATIONS`."""
STAGE = 50
"""Largest number of Newton steps for each softened loss, whose minimiser is only the start for the next."""
CONJUGATE = 1000
"""Largest number of products with the Hessian in one Newton step."""
SINGLE = 3e-8
"""Smallest gradient norm, over C, that is asked for in single precision."""
LESS = 0.8
"""Share of a certificate that is asked for in single precision, so that rounding does not spoil it."""
NEAR = 1e-5
"""Below this gradient norm, over C, single precision ends if two sweeps in a row do not halve the norm."""
SINGLE_WORTH = 2**22
"""Multiplications per sweep above which single precision is worth its copy of the rows."""
LARGE = 2**18
"""Entries of a node's rows above which the preconditioner is computed in single precision."""
CHUNK = 2**21
"""Entries of all classifiers that are solved for at a time; the solver's memory is about forty times as much."""
SAMPLE = 64
"""Number of replicates whose mean curvature makes the preconditioner."""
REFRESH = 25
"""Number of iterations after which an unfinished solve gets a new preconditioner, from its own current points."""
FLAT = 0.6
"""A step is too long if its slope at the end is more than this share of the descent at its start."""
ALONE = 2**16
"""Entries of a node's rows above which the node is solved by itself, while its rows are in cache."""
TOGETHER = 2**20
"""Multiplications of a sweep of small nodes that are solved together."""
APART = 2**24
"""On other devices: multiplications of a node's sweep above which the node is solved by itself."""
WORTH = 2**20
"""Multiplications of a sweep of all nodes above which solves are shared out to threads."""
REPLICATES = 64
"""Largest number of replicates of a large node that are solved together."""
TOLD = 1e-6
"""Change of the gradient, over C, below which a step in single precision is dropped: rounding could hide curvature."""
INVERTED = 20.0
"""A preconditioner is written out as an inverse for every penalty if ``d^2`` is at most so many times n."""
WIDEST = 2000
"""Features up to which the preconditioner is the whole reference Hessian; with more features it is the diagonal."""


def certified_error(C: float, tol: ArrayLike, q: Array) -> Array:
    """Largest distance between a certified answer and the exact minimiser, shape of `q`, known before any solve.

    ``2 C tol / q``: one ``C tol`` is the largest gradient norm that the certificate allows.  The other covers the
    rounding of that norm, which the solver checks with :func:`gradient_rounding`.
    """
    return np.asarray(2.0 * C * np.asarray(tol, dtype=float) / q)


def rounding_bound(
    C: float,
    n: Array,
    bend_bound: float,
    d: int,
    size: Array,
    pull: Array,
    q: Array,
    outputs: int = 1,
    *,
    slope_bound: float = 1.0,
    offset_bound: float = 0.0,
) -> Array:
    """Bound on the error of a gradient computed in double precision, at ``||w|| = size`` and ``||linear|| = pull``.

    With unit roundoff u, products of length m err by at most ``m u`` times the product of norms (any order of
    summation).  A margin errs by ``d u ||w||``, hence its slope by ``c1 d u ||w|| + 8 u``; n slopes times rows of norm
    at most one, weighted by C/n, err by ``C (n u + c1 d u ||w|| + 8 u)``; the rest by ``4 u (||linear|| + q ||w||)``.
    The signs of slopes do not matter; slopes up to L > 1 instead of 1 err by ``8 L u``;
    gradients of norm up to L add up to ``C L n u``.
    With an offset ``|t| <= T`` the margin is a difference of two numbers, which rounds once more, by
    ``u (||w|| + T)``; if T is 0, nothing is subtracted.

    The bound holds for merged rows too.  Then n' < n slopes are multiplied by counts, which add up to n and are exact
    in double precision.  The products round once, by ``u`` times their size; their sum errs by ``n' u`` times the sum
    of all norms, which is at most n as before; ``n' + 1 <= n`` together.  Margins and slopes err as without counts.

    Slopes themselves err by less than ``7 max(L, 1) u`` (a few operations each), so that the bound holds for weighted
    rows too (:mod:`sottovoce.data.cases`): the product of a weight in [0, 1] and a slope rounds once more, by at most
    ``L u``.

    With K > 1 margins per row, each margin is a difference of two products, the error of K slopes is at most sqrt K
    times that of their margins, and gradients add up over K blocks: ``2 K`` times the bound for slopes up to 1 covers
    all of this.
    """
    u, steep = 2.0**-53, slope_bound if outputs == 1 else 1.0
    margins = d * size + (size + offset_bound if offset_bound > 0 else 0.0)
    data = C * u * (steep * n + bend_bound * margins + 8.0 * max(steep, 1.0)) * (1.0 if outputs == 1 else 2.0 * outputs)
    return np.asarray(data + 4.0 * u * (pull + q * size))


def gradient_rounding(
    C: float,
    n: Array,
    bend_bound: float,
    w: Array,
    linear: Array,
    q: Array,
    outputs: int = 1,
    *,
    slope_bound: float = 1.0,
    offset_bound: float = 0.0,
) -> Array:
    """:func:`rounding_bound` at these vectors, shape (..., 1)."""
    size, pull = (np.linalg.norm(x, axis=-1, keepdims=True) for x in (w, linear))
    return rounding_bound(
        C, n, bend_bound, w.shape[-1], size, pull, q, outputs, slope_bound=slope_bound, offset_bound=offset_bound
    )


@dataclass(frozen=True)
class Solution:
    """Minimisers of shape (..., d), with the gradient norms reached (..., 1) and the iterations spent."""

    w: Array
    gradient_norm: Array
    iterations: int


@dataclass(frozen=True)
class Part:
    """Nodes that are solved together, with their rows, and with their rows in single precision if there are such."""

    nodes: IntArray
    sweep: Sweep
    short: Sweep | None


class Solver:
    """Solves the local problems of the nodes in `rows`.

    Parameters
    ----------
    rows : Rows
        N nodes.
    loss : Loss
    C : float

    Notes
    -----
    The preconditioner is rebuilt at the solves number 1, 2, 4, 8, ... from the starting points of the first replicates,
    which are public.  :meth:`state` returns them and :meth:`restore` takes them, so that a resumed run repeats every
    bit.
    """

    _parts: tuple[tuple[int, bool], list[Part]] | None = None
    _inverse: tuple[Array, Array] | None = None

    def __init__(self, rows: Rows, loss: Loss, C: float) -> None:
        rows.check(loss)
        given = rows.sweep()  # rows as they come, for gradients; solves may merge those that repeat
        self._given, self._sweep = (x.normed() if loss.by_norm else x for x in (given, given.merged()))
        self._single: Sweep | None = None
        self._n = rows.n  # (N, 1)
        self._weight = C / rows.n
        self._loss = loss
        self._C = C
        self._solves = 0
        self._reference = np.zeros((len(rows.n), 1, rows.d))
        self._basis: Array | None = None
        self._spectrum: Array | None = None

    def state(self) -> dict[str, Array]:
        """What :meth:`restore` needs so that later solves repeat every bit."""
        return {"solves": np.array(self._solves), "reference": self._reference}

    def restore(self, state: dict[str, Array]) -> None:
        """Go on from a :meth:`state`."""
        self._solves = int(state["solves"])
        self._factorise(np.asarray(state["reference"], dtype=float))

    def skip(self, start: Array) -> None:
        """Count a solve whose answer is known already, so that later solves repeat every bit."""
        self._count(self._stack(start, start.shape[:-1]))

    def _stack(self, x: Array, lead: tuple[int, ...]) -> Array:
        """(..., width) -> (N, R, width)."""
        x = np.broadcast_to(x, (*lead, x.shape[-1]))
        return np.ascontiguousarray(x.reshape(-1, len(self._reference), x.shape[-1]).transpose(1, 0, 2))

    def _count(self, start: Array) -> None:
        self._solves += 1
        if self._spectrum is None or self._solves & (self._solves - 1) == 0:
            self._factorise(np.ascontiguousarray(start[:, :SAMPLE]))

    def _factorise(self, reference: Array) -> None:
        self._reference = reference
        large = float(np.max(self._n)) * reference.shape[-1] >= LARGE
        sweep = (self._short() or self._sweep) if large else self._sweep
        self._basis, self._spectrum = self._eigen(self._loss, sweep, self._weight, reference, typical=True)
        self._inverse = None

    def _short(self) -> Sweep | None:
        """The rows in single precision; None if these rows have no such copy."""
        if self._single is None:
            self._single = self._sweep.single() or self._sweep
        return None if self._single is self._sweep else self._single

    def _eigen(
        self, loss: Loss, sweep: Sweep, weight: Array, at: Array, *, typical: bool
    ) -> tuple[Array | None, Array]:
        """Eigenvectors (M, d, d) and values (M, d) of the data term's Hessian; beyond `WIDEST` its diagonal."""
        wide = at.shape[-1] > WIDEST
        hessian = sweep.hessian(loss, at, wide, typical)
        if wide:
            return None, hessian * weight
        parts = np.array_split(hessian * weight[:, :, None], min(len(hessian), 2 * cores()))
        found = [*shared(np.linalg.eigh, parts)]
        values, vectors = (np.concatenate([one[k] for one in found]) for k in (0, 1))
        return vectors, np.maximum(values, 0.0)  # rounding puts some below

    def _inverted(self, q: Array) -> Array | None:
        """The preconditioner's inverse, if all replicates have the same quadratic term and it is soon computed."""
        basis, spectrum, own = self._basis, self._spectrum, q[:, :1]
        if basis is None or basis.shape[1] ** 2 > INVERTED * float(np.max(self._n)) or not np.all(q == own):
            return None
        if self._inverse is None or not np.array_equal(self._inverse[0], own):
            assert spectrum is not None
            self._inverse = own, np.matmul(basis / (spectrum[:, None, :] + own), basis.transpose(0, 2, 1))
        return self._inverse[1]

    def minimise(self, linear: Array, q: Array, start: Array, tol: ArrayLike) -> Solution:
        """Minimise for every leading index.

        Parameters
        ----------
        linear, start : array (..., d)
            ``...`` is ``()`` for one node, or ``(R, N)`` or ``(N,)`` for all.
        q : array (..., 1)
            Curvature of the quadratic term, > 0.
        tol : float or array (..., 1)
            Certificate relative to the data term: ``||grad|| <= tol * C``.

        Raises
        ------
        SolverError
            If the certificate is not reached, or rounding could hide that it was missed.  Queries with a guarantee
            refuse such problems before they are charged (:mod:`sottovoce.queries.reach`).
        """
        with one_thread_a_product():
            return self._minimise(linear, q, start, tol)

    def _minimise(self, linear: Array, q: Array, start: Array, tol: ArrayLike) -> Solution:
        lead = np.broadcast_shapes(linear.shape[:-1], start.shape[:-1])
        w0, c = self._stack(start, lead), self._stack(linear, lead)
        curvature = self._stack(np.broadcast_to(q, (*lead, 1)), lead)
        self._count(w0)
        goal = self._stack(np.broadcast_to(np.asarray(tol, dtype=float) * self._C, (*lead, 1)), lead)
        self._must_show(w0, c, curvature, goal)
        step = max(1, CHUNK // (w0.shape[0] * w0.shape[2]))
        parts = [slice(r, r + step) for r in range(0, w0.shape[1], step)]
        found = [self._solve(w0[:, r], c[:, r], curvature[:, r], goal[:, r, 0]) for r in parts]
        w, norms = (np.concatenate([one[k] for one in found], axis=1) for k in (0, 1))
        iterations = max(one[2] for one in found)
        self._must_show(w, c, curvature, goal)

        def unstack(x: Array) -> Array:
            return x.transpose(1, 0, 2).reshape(*lead, x.shape[-1])

        return Solution(unstack(w), unstack(norms), iterations)

    def _must_show(self, w: Array, c: Array, q: Array, goal: Array) -> None:
        """Refuse a certificate at `w` that rounding alone could spoil."""
        n, loss = self._n[:, :, None], self._loss
        hidden = gradient_rounding(
            self._C, n, loss.bend_bound, w, c, q, loss.outputs,
            slope_bound=loss.slope_bound, offset_bound=loss.offset_bound,
        )  # fmt: skip
        if not np.all(hidden <= goal):
            rule = "double precision cannot certify a gradient norm this small here; use a larger tol"
            raise SolverError(f"tol={float(np.min(goal)) / self._C:g}: {rule}")

    def gradient(self, w: Array, part: int = 0, parts: int = 1) -> Array:
        """The data term's gradient ``(C / n) sum_k slope(a_k.w) a_k``, shape (..., d).

        Parameters
        ----------
        w : array (..., d)
        part, parts : int
            Rows ``part, part + parts, ...`` only, weighted by C over the number of rows of the smallest such part.
        """
        lead, points = w.shape[:-1], self._stack(w, w.shape[:-1])
        sweep = self._given.every(part, parts) if parts > 1 else self._given
        weight = self._C / np.maximum(self._n // parts, 1.0)  # n itself: C / (C / n) may round below it
        out = weight[:, :, None] * sweep.gradient(self._loss, points)
        return np.asarray(out.transpose(1, 0, 2).reshape(*lead, w.shape[-1]))

    def total(self, w: Array, each: Callable[[Design, Loss, Array], Array]) -> Array:
        """Sums over rows of any statistic, added up block by block in a fixed order.

        Parameters
        ----------
        w : array (..., d)
            A public point for every leading index.
        each : callable ``(block, loss, points)``
            From a block of rows of M nodes, the loss for these rows and points (M, R, d) to sums (M, R, m).

        Returns
        -------
        array (..., m)
        """
        lead, points = w.shape[:-1], self._stack(w, w.shape[:-1])
        whole: Array | None = None
        with one_thread_a_product():
            for group in self._given.groups:
                for first, last in spans(group.design.n, BLOCK):
                    block = group.design.between(first, last)
                    part = each(block, self._loss.at(block.norms), points[group.nodes])
                    whole = np.zeros((*points.shape[:2], part.shape[-1])) if whole is None else whole
                    whole[group.nodes] += part
        assert whole is not None
        return np.asarray(whole.transpose(1, 0, 2).reshape(*lead, whole.shape[-1]))

    def objective(self, w: Array, clip: float) -> Array:
        """The data term ``(C / n) sum_k min(loss(a_k.w), clip)``, shape (..., 1)."""
        lead, points = w.shape[:-1], self._stack(w, w.shape[:-1])
        values = self._given.values(self._loss, points, clip, self._n)
        out = self._weight[:, :, None] * values
        return np.asarray(out.transpose(1, 0, 2).reshape(*lead, 1))

    def _solve(self, w: Array, c: Array, q: Array, goal: Array) -> tuple[Array, Array, int]:
        """Minimisers, their gradient norms (M, R, 1) in double precision, and the iterations of the slowest solve."""
        single = w.size * float(np.max(self._n)) >= SINGLE_WORTH
        assert self._spectrum is not None
        spectrum = self._spectrum[:, None, :]
        whole = Problem(c, q, self._weight[:, :, None], self._basis, spectrum, self._inverted(q))

        def one(task: tuple[Part, IntArray]) -> tuple[Array, Array, int]:
            part, reps = task
            cut = np.ix_(part.nodes, reps)
            x, ends, problem, memory, done = w[cut], goal[cut], whole.keep(part.nodes, reps), Memory(w[cut].shape), 0
            if single and part.short is not None:
                loose = np.maximum(LESS * ends, SINGLE * self._C)
                x, _, done, memory = self._lbfgs(part.short, problem, x, loose, memory, exact=False)
            x, norm, more, _ = self._lbfgs(part.sweep, problem, x, ends, memory, exact=True)
            return x, norm, done + more

        tasks = [
            (part, reps) for part in self._apart(w.shape[1], single) for reps in self._replicates(part, w.shape[1])
        ]
        work = [len(reps) * float(self._n[part.nodes].sum()) * w.shape[2] for part, reps in tasks]
        tasks = [tasks[k] for k in np.argsort(-np.array(work), kind="stable")]  # the longest first
        outer = self._sweep.here and sum(work) >= WORTH and (len(tasks) >= cores() or max(work) < INLINE)
        even = len(tasks) - len(tasks) % cores() if outer and len(tasks) >= cores() else len(tasks) * outer
        out, norms, slowest = np.empty_like(w), np.empty(w.shape[:2]), 0
        found = chain(shared(one, tasks[:even]), map(one, tasks[even:]))  # threads share each of the last few
        for (part, reps), (x, norm, steps) in zip(tasks, found, strict=True):
            cut = np.ix_(part.nodes, reps)
            out[cut], norms[cut], slowest = x, norm, max(slowest, steps)
        return out, norms[:, :, None], slowest

    def _apart(self, replicates: int, single: bool) -> list[Part]:
        """Nodes that are solved together, with views of their rows."""
        key = replicates, single
        if self._parts is None or self._parts[0] != key:
            size = self._n[:, 0] * self._reference.shape[-1]
            large = size >= ALONE if self._sweep.here else size * replicates >= APART
            order = np.concatenate([group.nodes for group in self._sweep.groups] or [np.arange(len(size))])
            order = order[~large[order]]  # neighbours in memory are solved together, so that views of rows suffice
            room = TOGETHER if self._sweep.here else np.inf
            batch = np.floor(np.cumsum(size[order]) * replicates / room).astype(int)
            nodes = [np.array([i]) for i in np.flatnonzero(large)] + [order[batch == k] for k in np.unique(batch)]
            short, found = self._short() if single else None, []
            for ids in nodes:
                keep = np.zeros(len(size), dtype=bool)
                keep[ids] = True
                found.append(Part(np.sort(ids), self._sweep.keep(keep), None if short is None else short.keep(keep)))
            self._parts = key, found
        return self._parts[1]

    def _replicates(self, part: Part, replicates: int) -> list[IntArray]:
        """Replicates of this part that are solved together."""
        alone = self._sweep.here and self._n[part.nodes].sum() * self._reference.shape[-1] >= ALONE
        several = -(-replicates // REPLICATES) if alone and len(part.nodes) == 1 else 1
        return np.array_split(np.arange(replicates), several)

    def _lbfgs(
        self, sweep: Sweep, problem: Problem, w: Array, goals: Array, memory: Memory, *, exact: bool
    ) -> tuple[Array, Array, int, Memory]:
        """Iterate until every gradient norm is at most its goal, (M, R); unless `exact`, or until norms stop falling.

        `memory` holds the steps of an earlier phase of the same solves; that of this phase is returned.
        """
        out_w, out_norm, first = w.copy(), np.full(w.shape[:2], np.inf), problem
        # The working set is a rectangle nodes x replicates that shrinks as solves finish.
        node, rep, goal = np.arange(w.shape[0]), np.arange(w.shape[1]), goals
        at = np.ix_(node, rep)
        learnt = list[tuple[Any, Memory]]()

        def gradient(x: Array) -> Array:
            g = sweep.gradient(self._loss, x)
            g *= problem.weight
            g += problem.c
            g += problem.q * x
            return g

        g = gradient(w)
        h = problem.eased(g)
        p, descent, t = np.zeros_like(g), np.zeros(g.shape[:2]), np.ones(g.shape[:2])
        fresh, every = (
            np.ones(g.shape[:2], dtype=bool),
            True,
        )  # which solves are at a new point and need a new direction
        best, patience = np.inf, 2
        for iteration in range(MAX_ITERATIONS):
            norm = np.sqrt(dots(g, g))
            out_w[at], out_norm[at] = w, norm
            open_ = ~(norm <= goal)
            worst = float(norm.max())
            patience = 2 if worst <= 0.5 * best else patience - 1
            best = min(best, worst)
            if not open_.any() or (not exact and patience <= 0 and worst <= NEAR * self._C):
                if not exact and (
                    learnt or problem is not first or np.any(memory.size[:, :, : memory.count] < TOLD * self._C)
                ):
                    memory = gathered(first, [*learnt, (at, memory)], out_w.shape, TOLD * self._C)
                return out_w, out_norm, iteration, memory
            keep_node, keep_rep = (np.asarray(open_.any(axis=k)) for k in (1, 0))
            if keep_node.sum() * keep_rep.sum() <= 0.75 * open_.size:
                if not exact:
                    learnt.append((at, memory))
                cut = np.ix_(keep_node, keep_rep)
                node, rep = node[keep_node], rep[keep_rep]
                at = np.ix_(node, rep)
                w, g, h, p, descent, t, fresh, goal = (x[cut] for x in (w, g, h, p, descent, t, fresh, goal))
                memory, problem = memory.keep(cut), problem.keep(keep_node, keep_rep)
                if not keep_node.all():
                    sweep = sweep.keep(keep_node)
            if iteration % REFRESH == REFRESH - 1:  # the reference point is too far; the new one is for this solve only
                problem = self._renewed(self._loss, sweep, problem, w[:, :SAMPLE])
                memory, h = Memory(w.shape), problem.eased(g)
            if every:
                p = memory.direction(g, h)
                descent, t = dots(g, p), np.ones(g.shape[:2])
            elif fresh.any():
                p = np.where(fresh[:, :, None], memory.direction(g, h), p)
                descent, t = np.where(fresh, dots(g, p), descent), np.where(fresh, 1.0, t)
            x = w + (p if every else t[:, :, None] * p)
            if not exact:  # the new point is rounded to single precision, so that it adds no rounding to the gradient
                x = x.astype(np.float32).astype(float)
            s, g_new = x - w, gradient(x)
            slope = dots(g_new, p)
            # F is convex along p, so its slope grows with t.  A step is too long if the slope at its end is too steep;
            # no step counts as too short.
            fresh = (slope <= -FLAT * descent) | (t < 1e-9)
            every = bool(fresh.all())
            if not every:
                secant = np.divide(descent, descent - slope, out=np.ones_like(t), where=~fresh)
                t = t * np.clip(secant, 0.1, np.where(fresh, 1.0, 0.9))
                took = fresh[:, :, None]
                x, s, g_new = np.where(took, x, w), np.where(took, s, 0.0), np.where(took, g_new, g)
            y, h_new = g_new - g, problem.eased(g_new)
            sy = dots(s, y)
            # F is q-strongly convex, so <s, y> >= q |s|^2 > 0 unless the step is lost in rounding.
            memory.add(s, y, h_new - h, sy, sy > 0)
            w, g, h = x, g_new, h_new
        if not exact:
            return out_w, out_norm, MAX_ITERATIONS, Memory(out_w.shape)
        for i, r in np.argwhere(~(out_norm <= goals)):
            one = problem.keep(np.flatnonzero(node == i), np.flatnonzero(rep == r))
            out_w[i, r], out_norm[i, r] = self._newton(sweep.keep(node == i), one, out_w[i, r], float(goals[i, r]))
        return out_w, out_norm, MAX_ITERATIONS + NEWTON, memory

    def _renewed(self, loss: Loss, sweep: Sweep, problem: Problem, at: Array) -> Problem:
        """The problem with a preconditioner from the curvature at these points."""
        basis, spectrum = self._eigen(loss, sweep, problem.weight[:, :, 0], at, typical=False)
        return replace(problem, basis=basis, spectrum=spectrum[:, None, :], inverse=None)

    def _newton(self, sweep: Sweep, problem: Problem, w: Array, goal: float) -> tuple[Array, float]:
        """Newton's method for one node and replicate, for a solve that L-BFGS does not finish.

        A loss whose bend jumps is softened first, in ever smaller widths, because each minimiser is near the next one.
        Newton steps on the loss itself might pass through its pieces one by one.
        """
        w, width = np.where(np.isfinite(w), w, 0.0), 1.0
        while self._loss.softened(width) is not self._loss and width * self._C * self._loss.bend_bound > 0.25 * goal:
            w, _ = self._descend(self._loss.softened(width), sweep, problem, w, 0.5 * goal, STAGE)
            width *= 0.1
        w, norm = self._descend(self._loss, sweep, problem, w, goal, NEWTON)
        if not norm <= goal:  # the norm depends on the rows, so the message must not show it
            rule = "a local solve stopped short of its certificate; use a larger rho or tol"
            raise SolverError(f"tol={goal / self._C:g}: {rule}")
        return w, norm

    def _descend(
        self, loss: Loss, sweep: Sweep, problem: Problem, w: Array, goal: float, most: int
    ) -> tuple[Array, float]:
        """At most `most` Newton steps with exact line searches.

        F is convex along a line, so its slope has one zero there, and bisection finds it for every curvature.
        """

        def gradient(x: Array) -> Array:
            whole = problem.weight * sweep.gradient(loss, x[None, None]) + problem.c + problem.q * x
            return np.asarray(whole[0, 0])

        g = gradient(w)
        for _ in range(most):
            if np.linalg.norm(g) <= goal:
                break
            p = self._step(loss, sweep, problem, w, g)
            near, far = 0.0, 1.0
            ahead = gradient(w + p)
            while ahead @ p < 0.0 and far < 2.0**60:
                near, far = far, 2.0 * far
                ahead = gradient(w + far * p)
            t = far
            while abs(ahead @ p) > 0.1 * abs(g @ p) and far - near > 2.0**-50 * far:
                t = 0.5 * (near + far)
                ahead = gradient(w + t * p)
                near, far = (t, far) if ahead @ p < 0.0 else (near, t)
            w, g = w + t * p, ahead
        return w, float(np.linalg.norm(g))

    def _step(self, loss: Loss, sweep: Sweep, problem: Problem, w: Array, g: Array) -> Array:
        """The Newton step, by conjugate gradients with the true Hessian; the preconditioner may be its diagonal."""
        at = self._renewed(loss, sweep, problem, w[None, None])
        p, left = np.zeros_like(g), -g
        eased = at.eased(left[None, None])[0, 0]
        along, worth = eased, float(left @ eased)
        for _ in range(CONJUGATE):
            turned = problem.weight * sweep.turn(loss, w[None, None], along[None, None]) + problem.q * along
            bent = float(along @ turned[0, 0])
            if not bent > 0.0:  # lost in rounding
                break
            p = p + worth / bent * along
            left = left - worth / bent * turned[0, 0]
            if np.linalg.norm(left) <= 0.01 * np.linalg.norm(g):
                break
            eased = at.eased(left[None, None])[0, 0]
            worth, before = float(left @ eased), worth
            along = eased + worth / before * along
        return p
