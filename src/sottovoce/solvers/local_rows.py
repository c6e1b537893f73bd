"""The rows of all nodes in the forms that a solver needs, and their grouping into tasks.

A *sweep* holds rows and multiplies all of them by vectors (:mod:`sottovoce.data.sweep`).  A *task*
is a set of nodes and replicates that are solved together; the grouping depends on sizes alone, not
on the number of threads, so that results have the same bits on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..data.rows import Rows
from ..data.sweep import INLINE, Sweep, number_of_cores
from ..problem.losses import Loss
from ..util.typing import Array, IntArray

# Entries of a node's rows above which the node is solved by itself, while its rows are in cache.
ALONE = 2**16
# Multiplications per sweep up to which small nodes are solved together.
TOGETHER = 2**20
# The same as ALONE on other devices such as GPUs, in multiplications per sweep.
APART = 2**24
# Multiplications per sweep of all nodes above which solves are distributed over threads.
WORTH = 2**20
# Largest number of replicates of a large node that are solved together.
REPLICATES = 64


class LocalRows:
    """The rows of all N nodes with loss and weight, for the data term ``(C / n_i) sum_k loss``.

    Attributes
    ----------
    given : Sweep
        The rows as they are, for gradients and other sums.
    distinct : Sweep
        Equal rows merged to one with its multiplicity, for solves.
    n : array (N, 1)
        Number of rows of every node.
    units : array (N, 1)
        Number of privacy units, rows or people, by which sums are divided.
    weight : array (N, 1)
        ``C / units``.
    stretch : float
        Bound for moved rows, 1 for others: see :class:`sottovoce.solvers.local.DataTerm`.
    """

    def __init__(
        self,
        given: Sweep,
        distinct: Sweep,
        n: Array,
        units: Array,
        loss: Loss,
        C: float,
        stretch: float = 1.0,
    ) -> None:
        self.given, self.distinct = given, distinct
        self.n, self.units, self.weight = n, units, C / units
        self.loss, self.C, self.stretch = loss, C, stretch
        self._single: Sweep | None = None

    @classmethod
    def prepare_rows(cls, rows: Rows, loss: Loss, C: float) -> LocalRows:
        """Prepare rows for solves: as they are, and with equal rows together.

        Parameters
        ----------
        rows : Rows
            Of all N nodes.
        loss : Loss
        C : float
            Weight of the data term.

        Returns
        -------
        LocalRows

        Raises
        ------
        InvalidInput
            For a loss that is not for these rows.
        """
        rows.check_loss_fits(loss)
        sweep = rows.sweep_over_rows()
        given, distinct = (
            x.with_known_norms() if loss.by_norm else x for x in (sweep, sweep.with_distinct_rows())
        )
        stretch = 1.0 if rows.move is None else rows.move.stretch_bound
        return cls(
            given, distinct, rows.rows_per_node.astype(float)[:, None], rows.n, loss, C, stretch
        )

    @property
    def nodes(self) -> int:
        """Number of nodes N."""
        return len(self.n)

    @property
    def width(self) -> int:
        """Number of entries of a model."""
        return self.given.width

    def single_precision_rows(self) -> Sweep | None:
        """The distinct rows in single precision; None if there is no such copy."""
        if self._single is None:
            self._single = self.distinct.in_single_precision() or self.distinct
        return None if self._single is self.distinct else self._single

    def stack_replicates(self, x: Array, lead: tuple[int, ...]) -> Array:
        """Reshape vectors (..., N, width) to (N, R, width), replicates after nodes.

        `lead` is the shape of all axes but the last: ``(R, N)``, ``(N,)``, or ``()`` for one node.
        """
        x = np.broadcast_to(x, (*lead, x.shape[-1]))
        return np.ascontiguousarray(x.reshape(-1, self.nodes, x.shape[-1]).transpose(1, 0, 2))


def unstack_replicates(x: Array, lead: tuple[int, ...]) -> Array:
    """Reshape vectors (N, R, width) back, with leading axes `lead`: undo `stack_replicates`."""
    return np.asarray(x.transpose(1, 0, 2).reshape(*lead, x.shape[-1]))


@dataclass(frozen=True)
class Part:
    """Nodes that are solved together: their numbers and rows (in single precision too, or None)."""

    nodes: IntArray
    sweep: Sweep
    single_precision: Sweep | None


Task = tuple[Part, IntArray]
"""Nodes and replicates that are solved together."""


class Grouping:
    """Groups nodes and replicates into tasks, independently of the number of threads."""

    def __init__(self, rows: LocalRows) -> None:
        self._rows = rows
        self._parts: tuple[tuple[int, bool], list[Part]] | None = None

    def solve_tasks(self, replicates: int, *, single: bool) -> tuple[list[Task], int]:
        """Return all tasks, the longest first, and how many of them are distributed on threads."""
        parts = self._tasks_by_node(replicates, single)
        tasks = [(part, some) for part in parts for some in self._replicates(part, replicates)]
        work = [
            len(some) * float(self._rows.n[part.nodes].sum()) * self._rows.width
            for part, some in tasks
        ]
        longest_first = [tasks[k] for k in np.argsort(-np.array(work), kind="stable")]
        return longest_first, self._shared_out(work)

    def _shared_out(self, work: Sequence[float]) -> int:
        """Return how many of the longest tasks are distributed over threads.

        `work` is each task's number of multiplications per sweep.
        """
        many = len(work) >= number_of_cores()
        if (
            not self._rows.distinct.is_on_this_machine
            or sum(work) < WORTH
            or not (many or max(work) < INLINE)
        ):
            return 0
        return len(work) - len(work) % number_of_cores() if many else len(work)

    def _tasks_by_node(self, replicates: int, single: bool) -> list[Part]:
        """Return the parts of :meth:`_parts_of_tasks`, which are made once for these arguments."""
        key = replicates, single
        if self._parts is None or self._parts[0] != key:
            self._parts = key, self._parts_of_tasks(replicates, single)
        return self._parts[1]

    def _parts_of_tasks(self, replicates: int, single: bool) -> list[Part]:
        """Make the parts: each large node by itself, and small ones that are neighbours in memory.

        `single` says whether the parts get rows in single precision.
        """
        sweep = self._rows.distinct
        size = self._rows.n[:, 0] * self._rows.width
        large = size >= ALONE if sweep.is_on_this_machine else size * replicates >= APART
        order = np.concatenate([batch.nodes for batch in sweep.batches] or [np.arange(len(size))])
        # neighbours in memory are solved together, so that views of rows suffice
        order = order[~large[order]]
        room = TOGETHER if sweep.is_on_this_machine else np.inf
        group = np.floor(np.cumsum(size[order]) * replicates / room).astype(int)
        alone = [np.array([i]) for i in np.flatnonzero(large)]
        together = [order[group == k] for k in sorted(set(group.tolist()))]
        single_precision = None
        if single:
            single_precision = self._rows.single_precision_rows()
        parts = []
        for ids in alone + together:
            keep = np.zeros(len(size), dtype=bool)
            keep[ids] = True
            copy = None
            if single_precision is not None:
                copy = single_precision.select_nodes(keep)
            parts.append(Part(np.sort(ids), sweep.select_nodes(keep), copy))
        return parts

    def _replicates(self, part: Part, replicates: int) -> list[IntArray]:
        """Return the groups of replicates of this part that are solved together, as indices."""
        entries = self._rows.n[part.nodes].sum() * self._rows.width
        alone = len(part.nodes) == 1 and self._rows.distinct.is_on_this_machine and entries >= ALONE
        several = -(-replicates // REPLICATES) if alone else 1
        return np.array_split(np.arange(replicates), several)
