"""Rows of all nodes as a solver multiplies them, and which of them are solved for together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..data.rows import Rows
from ..data.sweep import INLINE, Sweep, number_of_cores
from ..problem.losses import Loss
from ..util.typing import Array, IntArray

# entries of a node's rows above which the node is solved by itself, while its rows are in cache
ALONE = 2**16
# Multiplications of a sweep of small nodes that are solved together.
TOGETHER = 2**20
# on other devices: multiplications of a node's sweep above which the node is solved by itself
APART = 2**24
# multiplications of a sweep of all nodes above which solves are shared out to threads
WORTH = 2**20
# Most replicates of a large node that are solved together.
REPLICATES = 64


class LocalRows:
    """The rows of all N nodes, the loss on them, and how much each counts: ``(C / n_i) sum_k
    loss(a_k.w)``.

    Attributes
    ----------
    given : Sweep
        The rows as they are, for gradients and other sums.
    distinct : Sweep
        Equal rows together, for solves.
    n : array (N, 1)
        Rows of every node.
    units : array (N, 1)
        The same, unless a person has several rows.
    weight : array (N, 1)
        ``C / units``.
    stretch : float
        Of moved rows, see :class:`sottovoce.solvers.local.DataTerm`.
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
        """N."""
        return len(self.n)

    @property
    def width(self) -> int:
        """Entries of a classifier."""
        return self.given.width

    def single_precision_rows(self) -> Sweep | None:
        """The distinct rows in single precision; None if there is no such copy."""
        if self._single is None:
            self._single = self.distinct.in_single_precision() or self.distinct
        return None if self._single is self.distinct else self._single

    def stack_replicates(self, x: Array, lead: tuple[int, ...]) -> Array:
        """(..., width) -> (N, R, width)."""
        x = np.broadcast_to(x, (*lead, x.shape[-1]))
        return np.ascontiguousarray(x.reshape(-1, self.nodes, x.shape[-1]).transpose(1, 0, 2))


def unstack_replicates(x: Array, lead: tuple[int, ...]) -> Array:
    """(N, R, width) -> (..., width)."""
    return np.asarray(x.transpose(1, 0, 2).reshape(*lead, x.shape[-1]))


@dataclass(frozen=True)
class Part:
    """Nodes that are solved together: their rows, also in single precision if there is such a
    copy.
    """

    nodes: IntArray
    sweep: Sweep
    single_precision: Sweep | None


Task = tuple[Part, IntArray]
"""Nodes and replicates that are solved together."""


class Grouping:
    """The nodes and replicates that are solved together, whatever the number of threads."""

    def __init__(self, rows: LocalRows) -> None:
        self._rows = rows
        self._parts: tuple[tuple[int, bool], list[Part]] | None = None

    def solve_tasks(self, replicates: int, *, single: bool) -> tuple[list[Task], int]:
        """All tasks, the longest first, and how many of them are shared out to threads."""
        parts = self._tasks_by_node(replicates, single)
        tasks = [(part, some) for part in parts for some in self._replicates(part, replicates)]
        work = [
            len(some) * float(self._rows.n[part.nodes].sum()) * self._rows.width
            for part, some in tasks
        ]
        longest_first = [tasks[k] for k in np.argsort(-np.array(work), kind="stable")]
        return longest_first, self._shared_out(work)

    def _shared_out(self, work: Sequence[float]) -> int:
        """Return how many of the longest tasks, of this many multiplications, threads share."""
        many = len(work) >= number_of_cores()
        if (
            not self._rows.distinct.is_on_this_machine
            or sum(work) < WORTH
            or not (many or max(work) < INLINE)
        ):
            return 0
        return len(work) - len(work) % number_of_cores() if many else len(work)

    def _tasks_by_node(self, replicates: int, single: bool) -> list[Part]:
        """Nodes that are solved together, with views of their rows."""
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
        """Replicates of this part that are solved together."""
        entries = self._rows.n[part.nodes].sum() * self._rows.width
        alone = len(part.nodes) == 1 and self._rows.distinct.is_on_this_machine and entries >= ALONE
        several = -(-replicates // REPLICATES) if alone else 1
        return np.array_split(np.arange(replicates), several)
