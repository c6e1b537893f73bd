"""Iterations of limited-memory BFGS for many solves at once (:mod:`sottovoce.solvers.local`).

A *solve* is one node and one replicate; arrays are (M, R, ...) for M nodes and R replicates.  A
*phase* is one run of iterations, first in single precision and then in double (*exact*).  Every
iteration evaluates all gradients by one *sweep* over the rows (:mod:`sottovoce.data.sweep`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..data.sweep import Sweep
from ..problem.losses import Loss
from ..util.typing import Any, Array, BoolArray
from .newton import MOST as NEWTON
from .newton import minimise_by_newton
from .quasinewton import Memory, Problem, gather_memories, row_inner_products

MAX_ITERATIONS = 500
# Gradient norm over C below which the single-precision phase ends if it makes no progress.
NEAR = 1e-5
# Iterations after which unfinished solves get a new preconditioner, from their current points.
REFRESH = 25
# Number of replicates over which curvatures are averaged for the preconditioner.
SAMPLE = 64
# A step is too long if the derivative along it at its end exceeds this share of the descent at its
# start.
FLAT = 0.6
# Smallest change of the gradient, over C, from which a step in single precision may be kept in
# memory: in a smaller one rounding hides the curvature.
LEAST_CHANGE = 1e-6
# Iterations without a halved norm that count as no progress in single precision.
_PATIENCE = 2
# The working set is made smaller only if at most this share of it is left.
_WORTH_NARROWING = 0.75
# A step shorter than this times the direction is accepted in any case.
_SHORTEST = 1e-9

Renewed = Callable[[Loss, Sweep, Problem, Array], Problem]
"""From a problem and points, (M, R, d), to the same problem with the preconditioner there."""


@dataclass(frozen=True)
class Phase:
    """The end of a phase: points w, gradients g (M, R, d), norms (M, R), and memory of steps."""

    w: Array
    g: Array
    norm: Array
    iterations: int
    memory: Memory


@dataclass(frozen=True)
class Objective:
    """The constants of all solves of a solver: loss, data term's weight, preconditioners."""

    loss: Loss
    C: float
    renewed: Renewed


class Descent:
    """Solves for M nodes and R replicates, until every gradient norm is at most its goal.

    The *working set*, a rectangle of nodes and replicates, shrinks as solves finish; `out_w`,
    `out_g` and `out_norm` hold the whole, and `at` is where the working set stands in it.

    Parameters
    ----------
    objective : Objective
    sweep : Sweep
        The nodes' rows.
    problem : Problem
    w : array (M, R, d)
        Where to start.
    g : array (M, R, d), optional
        The gradient there, if it is known.
    goals : array (M, R)
        Gradient norms to reach.
    memory : Memory
        The steps of an earlier phase of the same solves.
    exact : bool
        False in single precision: iterations then end, too, when norms stop falling.
    """

    def __init__(
        self,
        objective: Objective,
        *,
        sweep: Sweep,
        problem: Problem,
        w: Array,
        g: Array | None,
        goals: Array,
        memory: Memory,
        exact: bool,
    ) -> None:
        self.loss, self.C, self.renewed = objective.loss, objective.C, objective.renewed
        self.exact = exact
        self.sweep, self.goals, self.memory = sweep, goals, memory
        # `problem` gets new preconditioners on the way; the first one is shared by all solves.
        self.first = self.problem = problem
        self.out_w, self.out_g = np.empty_like(w), np.empty_like(w)
        self.out_norm = np.full(w.shape[:2], np.inf)
        # The working set: the indices of its nodes and replicates, where they stand in the whole,
        # and their state.
        self.node, self.rep = np.arange(w.shape[0]), np.arange(w.shape[1])
        self.at = self._everywhere()
        self.goal = goals
        self.w = w
        self.g = self._gradient(w) if g is None else g
        self.eased = problem.precondition_gradient(self.g)
        self.direction = self.g
        # The derivative along the direction at w, which is negative, and the length to be tried, in
        # multiples of the direction; (M, R).
        self.slope, self.length = np.zeros(w.shape[:2]), np.ones(w.shape[:2])
        # Which solves are at a new point and need a new direction; None before the first step.
        self.fresh: BoolArray | None = None
        self.all_fresh = True
        self.finished = list[tuple[Any, Memory]]()

    @staticmethod
    def _everywhere() -> Any:
        return np.s_[:, :]

    def run_to_goals(self) -> Phase:
        """Iterate until every goal is reached; in double precision, end with Newton's method."""
        best, patience = np.inf, _PATIENCE
        for iteration in range(MAX_ITERATIONS):
            norm = np.sqrt(row_inner_products(self.g, self.g))
            unfinished = ~(norm <= self.goal)
            worst = float(norm.max())
            patience = _PATIENCE if worst <= 0.5 * best else patience - 1
            best = min(best, worst)
            left = int(np.count_nonzero(unfinished))
            # Single precision makes no progress: double precision goes on from here.
            stuck = not self.exact and patience <= 0 and worst <= NEAR * self.C
            if not left or stuck:
                return self._end_of_phase(norm, iteration)
            if left <= _WORTH_NARROWING * unfinished.size:
                self._drop_finished_solves(unfinished, norm)
            if iteration % REFRESH == REFRESH - 1:
                self._renew_preconditioner()
            self._set_directions()
            self._step_along_directions()
        self._copy_back(np.sqrt(row_inner_products(self.g, self.g)))
        if not self.exact:
            return self._run_phase(MAX_ITERATIONS, Memory(self.out_w.shape))
        self._finish_by_newton()
        return self._run_phase(MAX_ITERATIONS + NEWTON, self.memory)

    def _run_phase(self, iterations: int, memory: Memory) -> Phase:
        return Phase(self.out_w, self.out_g, self.out_norm, iterations, memory)

    def _gradient(self, x: Array) -> Array:
        g = self.sweep.sum_gradients(self.loss, x)
        g *= self.problem.weight
        g += self.problem.c
        g += self.problem.q * x
        return g

    def _copy_back(self, norm: Array) -> None:
        """Copy the working set to where it stands in the whole."""
        self.out_w[self.at], self.out_g[self.at], self.out_norm[self.at] = self.w, self.g, norm

    def _end_of_phase(self, norm: Array, iteration: int) -> Phase:
        """Return the end of a phase, with one memory for all its solves."""
        self._copy_back(norm)
        memory = self.memory
        if not self.exact and self._has_to_gather():
            parts = [*self.finished, (self.at, memory)]
            memory = gather_memories(self.first, parts, self.out_w.shape, LEAST_CHANGE * self.C)
        return self._run_phase(iteration, memory)

    def _has_to_gather(self) -> bool:
        """Return whether memories must be merged, or pairs dropped or recomputed."""
        if self.finished or self.problem is not self.first:
            return True
        return bool(np.any(self.memory.size[:, :, : self.memory.count] < LEAST_CHANGE * self.C))

    def _drop_finished_solves(self, unfinished: BoolArray, norm: Array) -> None:
        """Drop nodes and replicates all of whose solves are finished, if that saves enough work."""
        keep_node, keep_rep = (np.asarray(unfinished.any(axis=k)) for k in (1, 0))
        if keep_node.sum() * keep_rep.sum() > _WORTH_NARROWING * unfinished.size:
            return
        self._copy_back(norm)
        if not self.exact:
            self.finished.append((self.at, self.memory))
        cut = np.ix_(keep_node, keep_rep)
        self.node, self.rep = self.node[keep_node], self.rep[keep_rep]
        self.at = np.ix_(self.node, self.rep)
        self.w, self.g, self.eased, self.direction = (
            x[cut] for x in (self.w, self.g, self.eased, self.direction)
        )
        self.slope, self.length, self.goal = (x[cut] for x in (self.slope, self.length, self.goal))
        if self.fresh is not None:
            self.fresh = self.fresh[cut]
        self.memory = self.memory.keep(cut)
        self.problem = self.problem.subset_of_solves(keep_node, keep_rep)
        if not keep_node.all():
            self.sweep = self.sweep.select_nodes(keep_node)

    def _renew_preconditioner(self) -> None:
        """Compute a new preconditioner from the current points, for these solves only.

        Solves that take long are too far from the points of the first one.  Pairs in memory belong
        to the old preconditioner and are dropped.
        """
        self.problem = self.renewed(self.loss, self.sweep, self.problem, self.w[:, :SAMPLE])
        self.memory, self.eased = Memory(self.w.shape), self.problem.precondition_gradient(self.g)

    def _set_directions(self) -> None:
        """Set a new direction, and the length one, for the solves that are at a new point."""
        if self.all_fresh or self.fresh is None:
            self.direction = self.memory.direction(self.g, self.eased)
            self.slope = row_inner_products(self.g, self.direction)
            self.length = np.ones(self.g.shape[:2])
        elif self.fresh.any():
            new = self.memory.direction(self.g, self.eased)
            self.direction = np.where(self.fresh[:, :, None], new, self.direction)
            self.slope = np.where(
                self.fresh, row_inner_products(self.g, self.direction), self.slope
            )
            self.length = np.where(self.fresh, 1.0, self.length)

    def _step_along_directions(self) -> None:
        """Step along the directions by `length`; where the step is too long, stay and shorten it.

        A solve that stays has a pair of zeros in memory, and tries its shorter length along the
        same direction in the next iteration.
        """
        step = self.direction
        # If all have a new direction, all lengths are one (`_set_directions`).
        if not self.all_fresh:
            step = self.length[:, :, None] * self.direction
        x = self.w + step
        # The new point is rounded to single precision, so that it adds no rounding to the gradient.
        if not self.exact:
            x = x.astype(np.float32).astype(float)
        # The step as rounded, so that s and y belong together.
        s, g = x - self.w, self._gradient(x)
        derivative = row_inner_products(g, self.direction)
        # Line search: F is convex along the direction, so its derivative grows with the length.  A
        # step is accepted (`fresh`) unless the derivative at its end is too steep; no step is too
        # short.
        fresh = derivative <= -FLAT * self.slope
        if not fresh.all():
            fresh |= self.length < _SHORTEST
        self.all_fresh = bool(fresh.all())
        if not self.all_fresh:
            secant = np.divide(
                self.slope, self.slope - derivative, out=np.ones_like(self.length), where=~fresh
            )
            # Shorten to the zero of the secant of the derivative along the direction, kept away
            # from both ends.  Solves that step have a factor of 1.
            self.length = self.length * np.clip(secant, 0.1, np.where(fresh, 1.0, 0.9))
            took = fresh[:, :, None]
            x, s, g = np.where(took, x, self.w), np.where(took, s, 0.0), np.where(took, g, self.g)
        y, eased = g - self.g, self.problem.precondition_gradient(g)
        # F is q-strongly convex, so <s, y> >= q |s|^2 > 0 unless the step is lost in rounding.
        self.memory.add_pair(s, y, eased - self.eased, row_inner_products(s, y))
        self.w, self.g, self.eased, self.fresh = x, g, eased, fresh

    def _finish_by_newton(self) -> None:
        """Finish every solve that has not reached its goal by Newton's method, one by one."""
        for i, r in np.argwhere(~(self.out_norm <= self.goals)):
            one = self.problem.subset_of_solves(
                np.flatnonzero(self.node == i), np.flatnonzero(self.rep == r)
            )
            sweep = self.sweep.select_nodes(self.node == i)
            w, g = minimise_by_newton(
                self.loss,
                sweep,
                one,
                self.out_w[i, r],
                float(self.goals[i, r]),
                C=self.C,
                renewed=self.renewed,
            )
            self.out_w[i, r], self.out_g[i, r], self.out_norm[i, r] = w, g, np.linalg.norm(g)
