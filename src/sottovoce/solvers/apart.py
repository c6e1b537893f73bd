"""One solver made of several, for replicates of a simulation whose rows differ.

After centring, every replicate has released a mean of its own, and so has rows of its own
(:meth:`sottovoce.runs.row_guard.RowGuard.move_rows_by_mean`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..data.design import Design
from ..problem.losses import Loss
from ..util.typing import Array, ArrayLike
from .local import Solution, Solver


class Apart(Solver):
    """One solver for replicates whose rows differ: replicate r of all arguments goes to solver r.

    Arguments and answers are those of :class:`Solver` with a leading axis of replicates, (R, N,
    ...).
    """

    def __init__(self, solvers: Sequence[Solver]) -> None:
        self._solvers = tuple(solvers)

    def state(self) -> dict[str, Array]:
        return self._join_replicates([solver.state() for solver in self._solvers])

    def secret_state(self) -> dict[str, Array]:
        return self._join_replicates([solver.secret_state() for solver in self._solvers])

    @staticmethod
    def _join_replicates(states: list[dict[str, Array]]) -> dict[str, Array]:
        """Join states: arrays (N, 1, ...) to (N, R, ...); counters are equal in all replicates."""
        return {
            name: x
            if np.ndim(x) == 0
            else np.concatenate([state[name] for state in states], axis=1)
            for name, x in states[0].items()
        }

    def restore(self, state: dict[str, Array]) -> None:
        for r, solver in enumerate(self._solvers):
            solver.restore(
                {name: x if np.ndim(x) == 0 else x[:, r : r + 1] for name, x in state.items()}
            )

    def skip_solve(self, start: Array) -> None:
        for one, solver in zip(start, self._solvers, strict=True):
            solver.skip_solve(one)

    def minimise(self, linear: Array, q: Array, start: Array, tol: ArrayLike) -> Solution:
        """Minimise the local problems of every replicate with its own solver.

        Parameters
        ----------
        linear, start : array (R, N, d)
            Linear terms, and public points to start from.
        q : array (R, N, 1)
            Curvature of the quadratic term, > 0.
        tol : float or array (R, N, 1)
            As for :meth:`Solver.minimise`.

        Returns
        -------
        Solution
            (R, N, d), with the iterations of the slowest replicate.

        Raises
        ------
        SolverError
            As :meth:`Solver.minimise`.
        """
        lead = np.broadcast_shapes(linear.shape[:-1], start.shape[:-1])
        whole = [
            np.broadcast_to(x, (*lead, np.shape(x)[-1] if np.ndim(x) else 1))
            for x in (linear, q, start, tol)
        ]
        found = [
            solver.minimise(*each) for solver, *each in zip(self._solvers, *whole, strict=True)
        ]
        return Solution(
            np.stack([one.w for one in found]),
            np.stack([one.gradient_norm for one in found]),
            max(one.iterations for one in found),
        )

    def gradient(self, w: Array, part: int = 0, parts: int = 1) -> Array:
        """Return the gradient of the data term on every replicate's rows.

        Parameters
        ----------
        w : array (R, N, d)
            Points.
        part, parts : int
            The rows to take, as for :meth:`Solver.gradient`.

        Returns
        -------
        array (R, N, d)
        """
        return np.stack([s.gradient(x, part, parts) for s, x in zip(self._solvers, w, strict=True)])

    def total_over_rows(self, w: Array, each: Callable[[Design, Loss, Array], Array]) -> Array:
        return np.stack([s.total_over_rows(x, each) for s, x in zip(self._solvers, w, strict=True)])

    def clipped_objective(self, w: Array, clip: float) -> Array:
        return np.stack(
            [s.clipped_objective(x, clip) for s, x in zip(self._solvers, w, strict=True)]
        )
