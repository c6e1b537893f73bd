"""Batched minimisation of local objectives, with a certificate.

The objective of node i and replicate r, in the papers' scale, is

    F(w) = (C / n_i) sum_k loss(a_k.w) + linear.w + (q / 2) ||w||^2,        a_k = y_k x_k, ||a_k||
    <= 1, grad F(w) = (C / n_i) sum_k derivative(a_k.w) a_k + linear + q w, Hess F(w) = (C / n_i)
    sum_k curvature(a_k.w) a_k a_k' + q I  >=  q I,

with ``a_k.w - t_k`` in place of ``a_k.w`` for rows with a number to predict.  F is q-strongly
convex, so ``||grad F(w)|| <= g`` certifies ``||w - argmin F|| <= g / q``.

Method: limited-memory BFGS (:mod:`sottovoce.solvers.quasinewton`) on top of a Newton
preconditioner.  The Hessian's data term is computed once per node at *reference points* (curvatures
averaged over replicates) and shared by all replicates and rounds; the quadratic term only shifts
its spectrum.  So all replicates of a node need one matrix product together, and nearly every step
has length one.  An iteration is one sweep over the distinct rows (:mod:`sottovoce.data.sweep`,
:mod:`sottovoce.data.deduplicated`), in single precision until rounding prevents further progress,
then in double.  The certificate is always computed in double, from a new sweep at the answer.

Two gradients cost nothing.  The data term's gradient at the last solve's answer is known, so a
solve starts there, unless its public start is far nearer to the new minimiser.  And the end of the
last step in single precision is first evaluated in double precision.

Nodes are solved one after the other, each while its rows are in cache, and small nodes in batches;
threads share nodes and groups of replicates.  Neither what is solved together nor any result
depends on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from ..data.design import Design
from ..data.rows import Rows
from ..data.sweep import Sweep, map_on_threads, one_thread_a_product
from ..errors import SolverError
from ..problem.losses import Loss
from ..util.typing import Array, ArrayLike
from .descent import NEAR, Descent, Objective, Phase
from .local_rows import Grouping, LocalRows, Part, Task, unstack_replicates
from .preconditioner import Preconditioner
from .quasinewton import Memory, Problem, row_inner_products

# Smallest gradient norm over C that the single-precision phase aims at: about its rounding.
SINGLE = 6e-8
# By about which factor one sweep reduces the distance to the minimiser.
NEARER = 6.0
# Share of the certificate's gradient norm that the single-precision phase aims at, so that rounding
# does not spoil the certificate.
LESS = 0.8
# Multiplications per sweep above which single precision is worth a second copy of the rows.
SINGLE_WORTH = 2**22
# Entries of all models that are solved for at a time; the solver needs about forty times that
# memory.
CHUNK = 2**21


def certified_error(C: float, tol: ArrayLike, q: Array) -> Array:
    """Bound the distance of a certified answer from the exact minimiser, before any solve.

    Parameters
    ----------
    C : float
        Weight of the data term.
    tol : float or array (..., 1)
        Certificate relative to it: ``||grad|| <= tol * C``.
    q : array (..., 1)
        Curvature of the quadratic term, > 0: F is q-strongly convex.

    Returns
    -------
    array (..., 1)
        ``2 C tol / q``: one ``C tol`` is the certificate, the other covers its rounding
        (:func:`rounding_bound`), which the solver checks.
    """
    return np.asarray(2.0 * C * np.asarray(tol, dtype=float) / q)


class DataTerm(NamedTuple):
    """What the rounding of the data term ``(C / n) sum_k loss(a_k.w)`` depends on.

    `n` is the number of rows, of the nodes' shape, and `d` the number of entries of w.  For rows
    that are moved by a linear map A (centring), `stretch` is at least ``1 + ||A||``; else it is 1.
    """

    C: float
    n: Array
    loss: Loss
    d: int
    stretch: float = 1.0


def rounding_bound(
    term: DataTerm, size: Array, pull: Array, q: Array, *, margins: bool = True
) -> Array:
    """Bound the error of a gradient that is computed in double precision.

    Parameters
    ----------
    term : DataTerm
        The data term, of rows of norm at most one.
    size : array
        ``||w||`` of the points.
    pull : array
        ``||linear||`` of the linear terms.
    q : array
        Curvature of the quadratic terms.
    margins : bool
        Whether the rounding of margins counts; not where both of two gradients have the same.

    Returns
    -------
    array
        Of the arguments' common shape: a bound on the norm of the error.

    Notes
    -----
    With unit roundoff u, products of length m err by at most ``m u`` times the product
    of norms (any order of summation).  A margin errs by ``d u ||w||``, hence its derivative by ``c1
    d u ||w|| + 8 u``; n derivatives times rows of norm at most one, weighted by C/n, err by ``C (n
    u + c1 d u ||w|| + 8 u)``; the rest by ``4 u (||linear|| + q ||w||)``.  The signs of derivatives
    do not matter; derivatives up to L > 1 instead of 1 err by ``8 L u``; gradients of norm up to L
    add up to ``C L n u``.  With an offset ``|t| <= T`` the margin is a difference, which rounds
    once more, by ``u (||w|| + T)``.

    The bound holds for distinct rows too: n' < n derivatives times multiplicities, which add up to
    n and are exact.  The products round once, by ``u`` times their size; their sum errs by ``n' u``
    times the sum of all norms, which is at most n as before; ``n' + 1 <= n`` together.  It holds
    for weighted rows too (:mod:`sottovoce.data.weights`): derivatives err by less than ``7 max(L,
    1) u``, and the product with a weight in [0, 1] rounds once more, by at most ``L u``.

    With K > 1 margins per row, each margin is a difference of two products, the error of K
    derivatives is at most sqrt K times that of their margins, and gradients add up over K blocks:
    ``2 K`` times the bound for derivatives up to 1 covers all of this.

    Rows that a map A moves, ``c A a``, are never written down: margins are ``c (a.(A'w))``, and
    gradients A times sums of ``c s a``.  With `stretch` at least ``1 + ||A||`` the first err by
    ``(2 d + 16) u ||w||`` times that, and the second by ``(n + 16) u`` times that; for losses that
    depend on norms, by its square (docs/privacy/centring.md).
    """
    C, n, loss, d, stretch = term
    u, steep = 2.0**-53, loss.derivative_bound if loss.outputs == 1 else 1.0
    if stretch > 1.0:
        d, n = 2 * d + 16, n + 16.0
    error = d * size + (size + loss.offset_bound if loss.offset_bound > 0 else 0.0)
    per_row = steep * n + (loss.curvature_bound * error if margins else 0.0) + 8.0 * max(steep, 1.0)
    data = C * u * per_row * (1.0 if loss.outputs == 1 else 2.0 * loss.outputs)
    data = data * (stretch**2 if loss.by_norm else stretch)
    return np.asarray(data + 4.0 * u * (pull + q * size))


def elsewhere_bound(C: float, loss: Loss, d: int, size: ArrayLike, stretch: float) -> Array:
    """Bound the rounding of mean gradients that depends on where a moved row stands in its table.

    The factor that clips a moved row may round differently at another position, as when another
    person has another number of rows; so neighbouring tables differ by this much more
    (docs/privacy/person.md).

    Parameters
    ----------
    C : float
        Weight of the data term.
    loss : Loss
    d : int
        Features of a row.
    size : float or array
        ``||w||`` of the points.
    stretch : float
        At least ``1 + ||A||`` for rows that a map A moves; 1 for rows as they are.

    Returns
    -------
    array
        Shape of `size`; 0 for rows as they are.

    Notes
    -----
    The factor is within a relative error e of its exact value (`share` below), and the length, for
    losses that depend on norms, within ``e stretch^2`` (`longest`).  So a row's gradient changes by
    at most ``e c1 ||w||`` plus twice the larger relative error times L.
    """
    size = np.asarray(size, dtype=float)
    if stretch == 1.0:
        return np.zeros_like(size)
    share = (9.0 * d + 80.0) * 2.0**-53 * stretch**2
    longest = share * stretch**2 if loss.by_norm else share
    return np.asarray(
        C * (share * loss.hessian_bound * size + 2.0 * longest * loss.derivative_bound)
    )


@dataclass(frozen=True)
class Solution:
    """Minimisers w (..., d), the gradient norms reached (..., 1), and the number of iterations."""

    w: Array
    gradient_norm: Array
    iterations: int


class Solver:
    """Solves the local problems of the nodes in `rows`.

    A solve starts from the last answer, which is secret; a certificate holds from any start, so no
    guarantee depends on it.  :meth:`state` and :meth:`secret_state` return what :meth:`restore`
    takes, so that a resumed simulation repeats every bit.

    Parameters
    ----------
    rows : Rows
        Of N nodes.
    loss : Loss
    C : float
        Weight of the data term.
    """

    # The last solve's answers (N, R, d), and the data term's gradients there.
    _last: tuple[Array, Array] | None = None

    def __init__(self, rows: Rows, loss: Loss, C: float) -> None:
        self._prepare(LocalRows.prepare_rows(rows, loss, C), Preconditioner)

    @classmethod
    def on_prepared_rows(cls, rows: LocalRows) -> Solver:
        """Return a solver on rows that several solvers share: none knows another's answers."""
        solver = cls.__new__(cls)
        solver._prepare(rows, Preconditioner)
        return solver

    def _prepare(
        self, rows: LocalRows, preconditioner: Callable[[LocalRows], Preconditioner]
    ) -> None:
        self._rows = rows
        self._preconditioner = preconditioner(rows)
        self._grouping = Grouping(rows)

    def state(self) -> dict[str, Array]:
        """Return the public state: the number of solves and the preconditioner's points."""
        return {
            "solves": np.array(self._preconditioner.solves),
            "reference": self._preconditioner.reference,
        }

    def secret_state(self) -> dict[str, Array]:
        """Return the secret state: the last answers and the data term's gradients, (N, R, d)."""
        if self._last is None:
            return {}
        return dict(zip(("answer", "gradient"), self._last, strict=True))

    def restore(self, state: dict[str, Array]) -> None:
        """Resume from a :meth:`state`, and from :meth:`secret_state` if the same dictionary holds
        them.
        """
        self._preconditioner.restore_from_reference(
            int(state["solves"]), np.asarray(state["reference"], dtype=float)
        )
        known = [
            np.asarray(state[name], dtype=float) for name in ("answer", "gradient") if name in state
        ]
        self._last = None
        if len(known) == 2 and known[0].shape == known[1].shape:
            self._last = known[0], known[1]

    def skip_solve(self, start: Array) -> None:
        """Count a solve whose noisy answer is known already, as when a run is replayed.

        The preconditioner is then what it was, and the next solve begins at its own start, as the
        exact answer is not known.
        """
        self._preconditioner.count_solve(self._rows.stack_replicates(start, start.shape[:-1]))
        self._last = None

    @one_thread_a_product()
    def minimise(self, linear: Array, q: Array, start: Array, tol: ArrayLike) -> Solution:
        """Minimise the objectives of every leading index: ``()`` for a node, ``(R, N)``, ``(N,)``.

        Parameters
        ----------
        linear, start : array (..., d)
            Linear terms, and public points to start from.
        q : array (..., 1)
            Curvature of the quadratic term, > 0.
        tol : float or array (..., 1)
            Certificate relative to the data term: ``||grad|| <= tol * C``.

        Returns
        -------
        Solution
            Certified answers; iterations are those of the slowest.

        Raises
        ------
        SolverError
            If the certificate is not reached, or rounding could hide that it was missed.  Queries
            with a guarantee refuse such problems before they are charged
            (:mod:`sottovoce.queries.reach`).

        Guarantee
        ---------
        ``||w - argmin F|| <= 2 C tol / q`` (:func:`certified_error`), whatever `start` is and
        whatever was solved before.
        """
        lead = np.broadcast_shapes(linear.shape[:-1], start.shape[:-1])
        w0, c = self._rows.stack_replicates(start, lead), self._rows.stack_replicates(linear, lead)
        curvature = self._rows.stack_replicates(np.broadcast_to(q, (*lead, 1)), lead)
        self._preconditioner.count_solve(w0)
        goal = self._rows.stack_replicates(
            np.broadcast_to(np.asarray(tol, dtype=float) * self._rows.C, (*lead, 1)), lead
        )
        # Checked here to save the work, and again at the answers: the bound grows with their norms.
        self._check_goal_is_reachable(w0, c, curvature, goal)
        step = max(1, CHUNK // (w0.shape[0] * w0.shape[2]))
        if self._last is not None and self._last[0].shape != w0.shape:
            self._last = None
        whole = w0, c, curvature, goal, *(self._last or ())
        parts = [slice(r, r + step) for r in range(0, w0.shape[1], step)]
        found = [self._solve(*(x[:, r] for x in whole)) for r in parts]
        w, g, norms = (np.concatenate([one[k] for one in found], axis=1) for k in (0, 1, 2))
        iterations = max(one[3] for one in found)
        self._check_goal_is_reachable(w, c, curvature, goal)
        # Only the data term's gradient is kept: linear and quadratic terms change between solves.
        self._last = w, g - c - curvature * w
        return Solution(unstack_replicates(w, lead), unstack_replicates(norms, lead), iterations)

    def _check_goal_is_reachable(self, w: Array, c: Array, q: Array, goal: Array) -> None:
        """Raise SolverError if rounding at `w` alone could exceed the certificate's `goal`."""
        size, pull = (np.linalg.norm(x, axis=-1, keepdims=True) for x in (w, c))
        term = DataTerm(
            self._rows.C, self._rows.n[:, :, None], self._rows.loss, w.shape[-1], self._rows.stretch
        )
        rounding = rounding_bound(term, size, pull, q)
        if not np.all(rounding <= goal):
            rule = (
                "is too small a gradient norm to be certified in double precision for this "
                "problem; use a larger tol"
            )
            raise SolverError(f"tol={float(np.min(goal)) / self._rows.C:g}: {rule}")

    def gradient(self, w: Array, part: int = 0, parts: int = 1) -> Array:
        """Return the data term's gradient ``(C / n) sum_k derivative(a_k.w) a_k``.

        Parameters
        ----------
        w : array (..., d)
            Points.
        part, parts : int
            With `parts` above 1, only the rows ``part, part + parts, ...``, weighted by C over the
            number of rows of the smallest part.

        Returns
        -------
        array (..., d)
        """
        lead, points = w.shape[:-1], self._rows.stack_replicates(w, w.shape[:-1])
        sweep = self._rows.given.every_nth_row(part, parts) if parts > 1 else self._rows.given
        # From `units`, not from C / weight, which may round below a whole number.
        weight = self._rows.C / np.maximum(self._rows.units // parts, 1.0)
        return unstack_replicates(
            weight[:, :, None] * sweep.sum_gradients(self._rows.loss, points), lead
        )

    def total_over_rows(self, w: Array, each: Callable[[Design, Loss, Array], Array]) -> Array:
        """Sum a statistic of rows over every node's rows, block by block in a fixed order.

        Parameters
        ----------
        w : array (..., d)
            Public points.
        each : callable ``(block, loss, points) -> sums``
            From a block of rows of M nodes, the loss for these rows and points (M, R, d) to the
            sums of m numbers over the block, (M, R, m).

        Returns
        -------
        array (..., m)
        """
        lead, points = w.shape[:-1], self._rows.stack_replicates(w, w.shape[:-1])
        with one_thread_a_product():
            return unstack_replicates(
                self._rows.given.sum_statistic(self._rows.loss, points, each), lead
            )

    def clipped_objective(self, w: Array, clip: float) -> Array:
        """Return C / n times the sum of the rows' losses, each clipped to [0, clip]: (..., 1)."""
        lead, points = w.shape[:-1], self._rows.stack_replicates(w, w.shape[:-1])
        values = self._rows.given.sum_clipped_losses(self._rows.loss, points, clip, self._rows.n)
        return unstack_replicates(self._rows.weight[:, :, None] * values, lead)

    def _solve(
        self,
        w: Array,
        c: Array,
        q: Array,
        goal: Array,
        answer: Array | None = None,
        derivative: Array | None = None,
    ) -> tuple[Array, Array, Array, int]:
        """Return minimisers, gradients (M, R, d), their norms (M, R, 1), and the most iterations.

        `answer` is the last solve's, where the data term has the gradient `derivative`.
        """
        single = w.size * float(np.max(self._rows.n)) >= SINGLE_WORTH
        whole = self._preconditioner.preconditioned_problem(c, q)

        def solved(task: Task) -> Phase:
            part, reps = task
            cut = np.ix_(part.nodes, reps)
            problem, start, gradient = whole.subset_of_solves(part.nodes, reps), w[cut], None
            if answer is not None and derivative is not None:
                start, gradient = _nearer_start(problem, start, answer[cut], derivative[cut])
            return self._solve_part(
                part, problem, start, gradient, goal[cut][:, :, 0], single=single
            )

        tasks, on_threads = self._grouping.solve_tasks(w.shape[1], single=single)
        out, gradients = np.empty_like(w), np.empty_like(w)
        norms, slowest = np.empty(w.shape[:2]), 0
        # The first tasks are distributed over threads; the last few run one after the other, and
        # their own products use the threads.
        found = chain(map_on_threads(solved, tasks[:on_threads]), map(solved, tasks[on_threads:]))
        for (part, reps), end in zip(tasks, found, strict=True):
            cut = np.ix_(part.nodes, reps)
            out[cut], gradients[cut], norms[cut] = end.w, end.g, end.norm
            slowest = max(slowest, end.iterations)
        return out, gradients, norms[:, :, None], slowest

    def _solve_part(
        self, part: Part, problem: Problem, w: Array, g: Array | None, goals: Array, *, single: bool
    ) -> Phase:
        """Solve for some nodes and replicates from `w`, with its gradient `g` if that is known.

        A phase in single precision, if the problem is large enough, then one in double.
        """
        memory, done = Memory(w.shape), 0
        if single and part.single_precision is not None:
            loose = np.maximum(LESS * goals, SINGLE * self._rows.C)
            first = self._descend(part.single_precision, problem, w, g, loose, memory, exact=False)
            memory, done = first.memory, first.iterations
            # Double precision starts at the end of one more step: a gradient there is due anyway.
            last = memory.direction(first.g, problem.precondition_gradient(first.g))
            w, g = first.w + last * (first.norm <= NEAR * self._rows.C)[:, :, None], None
        # A certificate takes a sweep of its own: no answer rests on a gradient of another solve.
        if g is not None and np.any(np.sqrt(row_inner_products(g, g)) <= goals):
            g = None
        found = self._descend(part.sweep, problem, w, g, goals, memory, exact=True)
        return replace(found, iterations=done + found.iterations)

    def _descend(
        self,
        sweep: Sweep,
        problem: Problem,
        w: Array,
        g: Array | None,
        goals: Array,
        memory: Memory,
        *,
        exact: bool,
    ) -> Phase:
        descent = Descent(
            Objective(self._rows.loss, self._rows.C, self._preconditioner.renewed_problem),
            sweep=sweep,
            problem=problem,
            w=w,
            g=g,
            goals=goals,
            memory=memory,
            exact=exact,
        )
        return descent.run_to_goals()


def _nearer_start(
    problem: Problem, start: Array, answer: Array, derivative: Array
) -> tuple[Array, Array | None]:
    """Choose the start of a solve: the last answer, with the gradient there, or the given `start`.

    The gradient at `start` would take a sweep.  The preconditioner estimates the minimiser from the
    known gradient; `start` is chosen only if it is nearer to that estimate by more than the factor
    that a sweep gains, `NEARER`.
    """
    g = derivative + problem.c + problem.q * answer
    step = problem.precondition_gradient(g)
    ahead = answer - step - start
    # False where anything is infinite: then the given start is taken.
    if np.vdot(step, step) <= NEARER**2 * np.vdot(ahead, ahead):
        return answer, g
    return start, None
