"""Sweeps: one pass over all rows, for gradients of many classifiers at once.

The solver, the answers and the checks of a model compute all their sums over private rows here.
A sweep costs two products with the rows and one exponential per margin.  A block's margins are used
while they are in cache, and never stored.  Nodes of similar size share one batched product; large
nodes have their own.  Blocks are distributed over our threads, in each of which the linear algebra
library uses one thread.  Partial sums are added in a fixed order, so results do not depend on the
number of threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from threadpoolctl import ThreadpoolController

from ..problem.losses import Loss
from ..util.typing import Any, Array, BoolArray, IntArray
from .deduplicated import deduplicate_design
from .design import Design

# About how many rows a task has when it multiplies them with many vectors.
CHUNK = 4096
# About how many multiplications a task has.
TASK = 2**20
# Entries of a node's rows above which the node is a batch of its own.
ALONE = 2**16
# Multiplications below which threads cost more time than they save.
INLINE = 2**23
_MOST = 128  # replicates of one block


def number_of_cores() -> int:
    """Return the number of threads to use.

    It is that of the cores of this process, or fewer if OMP_NUM_THREADS says so.
    """
    # A container may lend fewer cores than the machine has; not every system can say so.
    if hasattr(os, "sched_getaffinity"):
        lent = len(os.sched_getaffinity(0))
    else:
        lent = os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if not asked.isdecimal():
        return lent
    return max(1, min(lent, int(asked)))


_ours = threading.local()


@cache
def _thread_pool_of_process(process: int, threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(
        threads, thread_name_prefix="sottovoce", initializer=_mark_worker_thread
    )


def _mark_worker_thread() -> None:
    _ours.busy = True


def available_threads() -> int:
    """Return the number of threads to share work with: one if the caller is such a thread."""
    if getattr(_ours, "busy", False):
        return 1
    return number_of_cores()


def map_on_threads(work: Callable[[Any], Any], items: list[Any]) -> Iterator[Any]:
    """Apply `work` to every item on our threads; yield results in order."""
    threads = min(available_threads(), len(items))
    if threads <= 1:
        yield from map(work, items)
        return
    yield from _thread_pool_of_process(os.getpid(), threads).map(work, items)


@cache
def _threadpool_controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_thread_a_product() -> Iterator[None]:
    """Limit the linear algebra library to one thread.

    Its own threads would use the cores while they wait for ours.
    """
    if number_of_cores() == 1:
        yield
        return
    with _threadpool_controller().limit(limits=1, user_api="blas"):
        yield


@dataclass(frozen=True)
class Batch:
    """Nodes whose rows are multiplied together."""

    nodes: IntArray
    design: Design

    def task_spans(self, size: int) -> list[tuple[int, int]]:
        """Split the rows into (first, last) spans for one task each, of about `size` rows.

        They are longer where the storage prefers larger blocks (its `margins_per_block`): so long
        that the margins of 64 vectors make such a block.
        """
        return equal_spans(self.design.n, max(size, self.design.storage.margins_per_block // 64))


def group_nodes_by_size(n: IntArray, d: int, padding: float = 0.1) -> Iterator[IntArray]:
    """Group nodes into batches: large ones alone, others with nodes of about their size.

    Rows of a batch are padded to its largest node and multiplied in one product, so nodes of very
    different sizes would multiply mostly padding.

    Parameters
    ----------
    n : ndarray of int, shape (M,)
        Number of rows of each node.
    d : int
        Columns; a node of at least `ALONE` entries is a batch of its own.
    padding : float
        The largest node of a batch has at most this share more rows than its smallest.

    Yields
    ------
    ndarray of int
        Sorted indices of the nodes of a batch.
    """
    order = np.argsort(n, kind="stable")
    start = 0
    for k in range(1, len(order) + 1):
        first = n[order[start]]
        alone = first * d >= ALONE
        if k == len(order) or alone or n[order[k]] > first * (1.0 + padding):
            yield np.sort(order[start:k])
            start = k


@dataclass(frozen=True)
class Sweep:
    """All nodes' rows, in batches.  Vectors are (M, R, width), for M nodes and R replicates."""

    batches: tuple[Batch, ...]
    width: int

    @property
    def number_of_nodes(self) -> int:
        """M."""
        return sum(len(batch.nodes) for batch in self.batches)

    @property
    def is_on_this_machine(self) -> bool:
        """Whether this machine's own cores multiply these rows, in any thread."""
        return bool(self.batches) and all(
            batch.design.storage.is_on_this_machine for batch in self.batches
        )

    def select_nodes(self, nodes: BoolArray) -> Sweep:
        """Return the rows of some nodes, numbered from 0 again; `nodes` is a mask (M,)."""
        number = np.cumsum(nodes) - 1
        kept = []
        for batch in self.batches:
            inside = nodes[batch.nodes]
            if inside.all():
                kept.append(Batch(number[batch.nodes], batch.design))
            elif inside.any():
                kept.append(Batch(number[batch.nodes[inside]], batch.design.select_nodes(inside)))
        return Sweep(tuple(kept), self.width)

    def every_nth_row(self, part: int, parts: int) -> Sweep:
        """Return rows ``part, part + parts, ...`` of every node."""
        return self._with_designs(
            [batch.design.every_nth_row(part, parts) for batch in self.batches]
        )

    def in_single_precision(self) -> Sweep | None:
        """Return a copy in single precision; None where some rows have no such copy."""
        short = [batch.design.in_single_precision() for batch in self.batches]
        if any(new is batch.design for new, batch in zip(short, self.batches, strict=True)):
            return None
        return self._with_designs(short)

    def with_distinct_rows(self) -> Sweep:
        """Return sums over distinct rows with multiplicities, where that is faster.

        :meth:`sum_clipped_losses` is not for these.
        """
        return self._with_designs([deduplicate_design(batch.design) for batch in self.batches])

    def with_known_norms(self) -> Sweep:
        """Return these passes with the rows' norms computed once, for losses that need them."""
        designs = [batch.design.with_known_norms(len(batch.nodes)) for batch in self.batches]
        return self._with_designs(designs)

    def _with_designs(self, designs: list[Design]) -> Sweep:
        """Return a sweep over the same nodes, with another design for each batch."""
        pairs = zip(self.batches, designs, strict=True)
        return Sweep(tuple(Batch(batch.nodes, design) for batch, design in pairs), self.width)

    def sum_gradients(self, loss: Loss, w: Array) -> Array:
        """Compute gradients ``sum_k derivative(a_k.w) a_k``, of the shape of `w`.

        They are computed in the precision of the rows.
        """
        rows = max(CHUNK, TASK // max(1, w.shape[1] * self.width))
        # The common case, which needs no tasks.
        if len(self.batches) == 1 and self.batches[0].design.n < 1.5 * rows:
            return _gradient_of_task(self.batches[0].design, loss, w)
        out = np.zeros((self.number_of_nodes, *w.shape[1:]))
        tasks = [(g, a, b) for g in self.batches for a, b in g.task_spans(rows)]

        def one(batch: Batch, first: int, last: int) -> Array:
            return _gradient_of_task(batch.design.slice_rows(first, last), loss, w[batch.nodes])

        return self._add_task_results(out, one, tasks, w.shape[1])

    def sum_clipped_losses(self, loss: Loss, w: Array, clip: float, n: Array) -> Array:
        """Sum clipped losses, times weights, over the first n rows of every node.

        Parameters
        ----------
        loss : Loss
        w : ndarray of shape (M, R, width)
            Models.
        clip : float
            Each row's loss is clipped to [0, clip] before it is weighed.
        n : ndarray of shape (M, 1)
            Number of rows of each node; what follows is padding.

        Returns
        -------
        ndarray of shape (M, R, 1)
        """
        out = np.zeros((*w.shape[:2], 1))
        for nodes, block, first in self._iterate_row_blocks():
            losses = block.to_numpy_array(
                loss.for_row_norms(block.row_norm_bounds).value(block.margins_at(w[nodes]))
            )
            clipped = np.clip(losses, 0.0, clip)
            # Padding, rows of zeros, adds nothing to gradients, but its loss must not be counted.
            real = np.arange(first, first + block.n) < n[nodes][:, :, None]
            out[nodes] += np.sum(block.apply_row_weights(clipped) * real, axis=-1, keepdims=True)
        return out

    def sum_statistic(
        self, loss: Loss, w: Array, each: Callable[[Design, Loss, Array], Array]
    ) -> Array:
        """Sum any statistic over rows, block by block in a fixed order.

        Parameters
        ----------
        loss : Loss
        w : ndarray of shape (M, R, d)
            Models.
        each : callable
            ``each(block, loss, points)`` gives the sums (M', R, m) over a block of rows of M'
            nodes, with the loss for these rows and the models (M', R, d) of these nodes.

        Returns
        -------
        ndarray of shape (M, R, m)
        """
        whole: Array | None = None
        for nodes, block, _ in self._iterate_row_blocks():
            part = each(block, loss.for_row_norms(block.row_norm_bounds), w[nodes])
            if whole is None:
                whole = np.zeros((*w.shape[:2], part.shape[-1]))
            whole[nodes] += part
        assert whole is not None
        return whole

    def sum_curvatures(self, loss: Loss, w: Array, diagonal: bool, typical: bool = False) -> Array:
        """Compute ``sum_k curvature(a_k.w) a_k a_k'``, with curvatures averaged over replicates.

        Parameters
        ----------
        loss : Loss
        w : ndarray of shape (M, R, width)
            Models.
        diagonal : bool
            Compute the diagonals alone.
        typical : bool
            Use :meth:`Loss.typical_curvature` in place of the curvature.

        Returns
        -------
        ndarray of shape (M, width, width), or (M, width) of diagonals
            Of several classes, the blocks on the diagonal; others are zero.
        """
        shape = (self.width,) if diagonal else (self.width, self.width)
        out = np.zeros((len(w), *shape))
        tasks = [(g, a, b) for g in self.batches for a, b in g.task_spans(CHUNK)]

        def one(batch: Batch, first: int, last: int) -> Array:
            block = batch.design.slice_rows(first, last)
            own = loss.for_row_norms(block.row_norm_bounds)
            curvature = own.typical_curvature if typical else own.curvature
            of_replicates = block.to_numpy_array(curvature(block.margins_at(w[batch.nodes])))
            curvatures = block.to_storage_array(np.mean(of_replicates, axis=1))
            if diagonal:
                return block.gram_diagonal(curvatures)
            return block.weighted_gram(curvatures)

        # A product of a row with itself takes as long as with `width` vectors.
        return self._add_task_results(out, one, tasks, self.width)

    def hessian_vector_product(self, loss: Loss, w: Array, along: Array) -> Array:
        """Multiply the Hessians at `w` by vectors: ``sum_k hessian_vector_product(a_k.w, a_k.along)
        a_k``.

        Parameters
        ----------
        loss : Loss
        w, along : ndarray of shape (M, R, width)
            Models, and the vectors that the Hessians are multiplied by.

        Returns
        -------
        ndarray of shape (M, R, width)
        """
        out = np.zeros((self.number_of_nodes, *w.shape[1:]))
        for nodes, block, _ in self._iterate_row_blocks():
            margins = block.margins_at(w[nodes])
            changes = block.change_of_margins(along[nodes])
            out[nodes] += block.weighted_row_sum(
                loss.for_row_norms(block.row_norm_bounds).gradient_derivative(margins, changes)
            )
        return out

    def _iterate_row_blocks(self) -> Iterator[tuple[IntArray, Design, int]]:
        """Yield blocks of rows in a fixed order: their nodes, their design, and the index of the
        first row.
        """
        for batch in self.batches:
            for first, last in equal_spans(batch.design.n, CHUNK):
                yield batch.nodes, batch.design.slice_rows(first, last), first

    def _add_task_results(
        self,
        out: Array,
        one: Callable[[Batch, int, int], Array],
        tasks: list[tuple[Batch, int, int]],
        vectors: int,
    ) -> Array:
        """Add the result of every task to `out`, in the order of the tasks; return `out`.

        A task is a batch with the first and the last row of a span; `one` computes its part for
        the batch's nodes.  Tasks run on threads where that saves time: if there are many
        multiplications, of each row with so many `vectors`.
        """
        n_rows = sum((last - first) * len(batch.nodes) for batch, first, last in tasks)
        few = len(tasks) == 1 or n_rows * self.width * vectors < INLINE
        apply: Callable[..., Iterator[Any]] = map if few else map_on_threads
        parts = apply(lambda task: one(*task), tasks)
        # Parts are added in the order of the tasks, so sums do not depend on the threads.
        for (batch, _, _), part in zip(tasks, parts, strict=True):
            out[batch.nodes] += part
        return out


def equal_spans(n: int, size: int) -> list[tuple[int, int]]:
    """Split ``range(n)`` into parts of about `size`, equal up to one: their (start, end)."""
    parts = max(1, round(n / size))
    edges = [n * k // parts for k in range(parts + 1)]
    return list(pairwise(edges))


def _gradient_of_task(design: Design, loss: Loss, w: Array) -> Array:
    """Compute the gradients of one task, in blocks of rows and replicates that fit the cache."""
    with np.errstate(over="ignore"):
        margins_of_a_row = w.shape[0] * min(w.shape[1], _MOST) * loss.outputs
        rows = max(128, design.storage.margins_per_block // max(1, margins_of_a_row))
        if w.shape[1] <= _MOST and design.n < 1.5 * rows:
            derivatives = loss.for_row_norms(design.row_norm_bounds).derivative(
                design.margins_at(w)
            )
            return design.weighted_row_sum(derivatives).astype(float, copy=False)
        out = np.zeros(w.shape)
        for start in range(0, w.shape[1], _MOST):
            replicates = slice(start, start + _MOST)
            for first, last in equal_spans(design.n, rows):
                block = design.slice_rows(first, last)
                derivatives = loss.for_row_norms(block.row_norm_bounds).derivative(
                    block.margins_at(w[:, replicates])
                )
                out[:, replicates] += block.weighted_row_sum(derivatives)
    return out
