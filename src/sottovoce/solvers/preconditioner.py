"""The Newton preconditioner of local solves: Hessians at reference points.

All replicates of a node, and many rounds, share one Hessian of the data term; the quadratic terms
of different rounds only shift its eigenvalues.  How good it is changes the number of iterations and
nothing else.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..data.sweep import Sweep, map_on_threads, number_of_cores
from ..problem.losses import Loss
from ..util.typing import Array
from .descent import SAMPLE
from .local_rows import LocalRows
from .quasinewton import Problem

# Rows per feature that are enough for the preconditioner: it is computed from about that many.
ENOUGH = 200
# Entries of a node's rows above which the preconditioner is computed in single precision.
LARGE = 2**18
# The inverse is stored, for one penalty at a time, if it is cheap: if ``d^2`` is at most this times
# n.
INVERTED = 20.0
# Features up to which the preconditioner is the whole reference Hessian; beyond, its diagonal.
WIDEST = 2000


class Preconditioner:
    """Hessians of the data terms at public points; a quadratic term only shifts their spectra.

    It is rebuilt at the solves number 1, 2, 4, 8, ... from the starting points of the first
    replicates.

    Attributes
    ----------
    solves : int
        Number of solves so far.
    reference : array (N, R, d)
        Points at which the Hessians are computed.
    spectrum : array (N, d), optional
        Eigenvalues of the Hessians, or their diagonals above `WIDEST`; None before the first solve.
    """

    def __init__(self, rows: LocalRows) -> None:
        self._rows = rows
        self.solves = 0
        self.reference = np.zeros((rows.nodes, 1, rows.width))
        self.spectrum: Array | None = None
        self._basis: Array | None = None
        self._inverse: tuple[Array, Array] | None = None

    def count_solve(self, start: Array) -> None:
        """Count a solve from these points, (N, R, d)."""
        self.solves += 1
        # Rebuilt if the number is a power of two: over T solves that costs about log2(T) builds.
        if self.spectrum is None or self.solves & (self.solves - 1) == 0:
            self._factorise(np.ascontiguousarray(start[:, :SAMPLE]))

    def restore_from_reference(self, solves: int, reference: Array) -> None:
        """Rebuild the preconditioner as after this many solves, at reference points (N, R, d)."""
        self.solves = solves
        self._factorise(reference)

    def preconditioned_problem(self, c: Array, q: Array) -> Problem:
        """Return the problem of these linear and quadratic terms, with this preconditioner."""
        assert self.spectrum is not None
        spectrum = self.spectrum[:, None, :]
        return Problem(
            c,
            q,
            self._rows.weight[:, :, None],
            self._basis,
            spectrum,
            self._inverse_preconditioner(q),
        )

    def renewed_problem(self, loss: Loss, sweep: Sweep, problem: Problem, at: Array) -> Problem:
        """Replace a problem's preconditioner by one from the curvature at given points.

        Parameters
        ----------
        loss : Loss
        sweep : Sweep
            The rows of the problem's M nodes.
        problem : Problem
        at : array (M, R, d)
            The points, over whose replicates curvatures are averaged.

        Returns
        -------
        Problem
        """
        basis, spectrum = self._hessian_eigenpairs(
            loss, sweep, problem.weight[:, :, 0], at, typical=False
        )
        return replace(problem, basis=basis, spectrum=spectrum[:, None, :], inverse=None)

    def _factorise(self, reference: Array) -> None:
        """Compute Hessians at `reference`, (N, R, d), and their eigenvectors."""
        self.reference = reference
        rows, width = self._rows, reference.shape[-1]
        parts = int(np.min(rows.n) // (ENOUGH * width))
        if parts > 1:
            # Every `parts`-th row is enough for a preconditioner that is nearly as good.
            sweep, weight = rows.given.every_nth_row(0, parts), rows.weight * parts
        else:
            sweep, weight = rows.distinct, rows.weight
            if float(np.max(rows.n)) * width >= LARGE:
                sweep = rows.single_precision_rows() or rows.distinct
        self._basis, self.spectrum = self._hessian_eigenpairs(
            rows.loss, sweep, weight, reference, typical=True
        )
        self._inverse = None

    def _hessian_eigenpairs(
        self, loss: Loss, sweep: Sweep, weight: Array, at: Array, *, typical: bool
    ) -> tuple[Array | None, Array]:
        """Return eigenvectors (M, d, d) and eigenvalues (M, d) of the data term's Hessians.

        Above `WIDEST` features these are None and the diagonals.  `weight` is C / n, (M, 1); `at`
        the points, (M, R, d); `typical` takes typical curvatures (:meth:`Loss.typical_curvature`).
        """
        wide = at.shape[-1] > WIDEST
        hessian = sweep.sum_curvatures(loss, at, wide, typical)
        if wide:
            return None, hessian * weight
        parts = np.array_split(
            hessian * weight[:, :, None], min(len(hessian), 2 * number_of_cores())
        )
        found = [*map_on_threads(np.linalg.eigh, parts)]
        values, vectors = (np.concatenate([one[k] for one in found]) for k in (0, 1))
        # Rounding puts some eigenvalues below 0.
        return vectors, np.maximum(values, 0.0)

    def _inverse_preconditioner(self, q: Array) -> Array | None:
        """Return the preconditioner's inverse for quadratic terms q, (N, d, d).

        None if the replicates' quadratic terms differ or the inverse is not worth its cost.
        """
        basis, spectrum, own = self._basis, self.spectrum, q[:, :1]
        if (
            basis is None
            or basis.shape[1] ** 2 > INVERTED * float(np.max(self._rows.n))
            or not np.all(q == own)
        ):
            return None
        if self._inverse is None or not np.array_equal(self._inverse[0], own):
            assert spectrum is not None
            self._inverse = (
                own,
                np.matmul(basis / (spectrum[:, None, :] + own), basis.transpose(0, 2, 1)),
            )
        return self._inverse[1]
