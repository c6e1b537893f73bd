"""Rows of one site on a Dask cluster, for rows that outgrow one machine.

A pass over the rows sends classifiers to the blocks and returns sums.  Every block is multiplied by
the same code as rows in memory, and partial sums are added in the order of the blocks: the same
blocks give the same bits.  The cluster must belong to the site, because it sees private rows and
sums over them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Self

import numpy as np

from ..errors import InvalidInput
from ..problem.losses import Loss
from ..util.typing import Any, Array, BoolArray, IntArray
from .design import Dense, Design, Storage
from .move import Move, Moved
from .rows import Rows
from .sweep import Batch, Sweep


def _import_dask_array() -> Any:
    try:
        import dask.array
    except ImportError as error:
        rule = "a Dask Array needs Dask, which is not installed"
        raise InvalidInput("X", None, rule, "pip install 'sottovoce[cluster]'") from error
    return dask


def _sweep_over_block(block: Array, fields: dict[str, Any], move: Move | None) -> Sweep:
    """Build, on a worker, the passes over one block of signed rows (n, d) with their fields."""
    rows = Dense(block[None])
    storage: Storage = rows
    if move is not None:
        storage = Moved.move_storage(rows, move)
    return Sweep((Batch(np.array([0]), Design(storage, **fields)),), block.shape[1])


def _signed_rows(X: Array, y: Array) -> Array:
    return Rows.build_from_parts([(np.asarray(X, dtype=float), np.asarray(y, dtype=float))]).signed[
        0
    ]


def _digest_of_block(block: Array) -> bytes:
    return blake2b(np.ascontiguousarray(block, dtype="<f8").tobytes(), digest_size=32).digest()


@dataclass(frozen=True)
class ClusterSweep(Sweep):
    """Passes over the blocks of rows on a Dask cluster.

    `blocks` are delayed :class:`Sweep` objects, each on the worker that holds its rows; `sizes`
    are their numbers of rows.
    """

    blocks: tuple[Any, ...] = ()
    sizes: tuple[int, ...] = ()

    def _sum_over_blocks(self, task: Callable[..., Array], *arguments: Any) -> Array:
        """Add up ``task(block, *arguments)`` over the blocks, which the cluster computes."""
        dask = _import_dask_array()
        shared = dask.delayed(arguments)
        run = dask.delayed(lambda block, given: task(block, *given))
        parts = dask.compute(*[run(block, shared) for block in self.blocks])
        total = np.array(parts[0], dtype=float)
        for part in parts[1:]:
            total += part
        return total

    def sum_gradients(self, loss: Loss, w: Array) -> Array:
        return self._sum_over_blocks(Sweep.sum_gradients, loss, w)

    def sum_clipped_losses(self, loss: Loss, w: Array, clip: float, n: Array) -> Array:
        """Sum clipped losses over all blocks, in their order.

        Parameters
        ----------
        loss : Loss
        w : ndarray of shape (1, R, d)
            Classifiers of the site.
        clip : float
            Largest loss of a row.
        n : ndarray
            Numbers of rows, as :meth:`Sweep.sum_clipped_losses` takes them.

        Returns
        -------
        ndarray
            As of :meth:`Sweep.sum_clipped_losses`.
        """
        return self._sum_over_blocks(Sweep.sum_clipped_losses, loss, w, clip, n)

    def sum_statistic(
        self, loss: Loss, w: Array, each: Callable[[Design, Loss, Array], Array]
    ) -> Array:
        """Sum a statistic over all blocks, in their order.

        Parameters
        ----------
        loss : Loss
        w : ndarray of shape (1, R, d)
            Points of the site at which the statistic is computed.
        each : callable
            Computes the statistic of one design; it is sent to the workers.

        Returns
        -------
        ndarray
            As of :meth:`Sweep.sum_statistic`.
        """
        return self._sum_over_blocks(Sweep.sum_statistic, loss, w, each)

    def sum_curvatures(self, loss: Loss, w: Array, diagonal: bool, typical: bool = False) -> Array:
        """Add up the Hessians of all blocks, in their order.

        Parameters
        ----------
        loss : Loss
        w : ndarray of shape (1, R, d)
            Points of the site.
        diagonal : bool
            Compute the diagonals only.
        typical : bool
            As for :meth:`Sweep.sum_curvatures`.

        Returns
        -------
        ndarray
            As of :meth:`Sweep.sum_curvatures`.
        """
        return self._sum_over_blocks(Sweep.sum_curvatures, loss, w, diagonal, typical)

    def hessian_vector_product(self, loss: Loss, w: Array, along: Array) -> Array:
        """Add up products with Hessians over all blocks, in their order.

        Parameters
        ----------
        loss : Loss
        w : ndarray of shape (1, R, d)
            Points of the site.
        along : ndarray of shape (1, R, d)
            Vectors to multiply.

        Returns
        -------
        ndarray of shape (1, R, d)
        """
        return self._sum_over_blocks(Sweep.hessian_vector_product, loss, w, along)

    @property
    def number_of_nodes(self) -> int:
        return 1

    def select_nodes(self, nodes: BoolArray) -> Self:
        return self

    def in_single_precision(self) -> None:
        return None

    def with_distinct_rows(self) -> Self:
        return self  # workers keep duplicates

    def with_known_norms(self) -> Self:
        # Workers compute norms when they need them.
        return self

    def every_nth_row(self, part: int, parts: int) -> ClusterSweep:
        """Return rows ``part, part + parts, ...``, counted over all blocks."""
        dask = _import_dask_array()
        # `start` is the number of rows before a block: rows are counted over all blocks.
        start, kept, sizes = 0, [], []
        for block, size in zip(self.blocks, self.sizes, strict=True):
            first = (part - start) % parts
            if first < size:
                kept.append(dask.delayed(Sweep.every_nth_row)(block, first, parts))
                sizes.append(len(range(first, size, parts)))
            start += size
        return ClusterSweep((), self.width, tuple(kept), tuple(sizes))


@dataclass(frozen=True)
class ClusterRows(Rows):
    """Rows of one site in the blocks of a Dask Array, made by :meth:`rows_from_dask`; ``signed``
    is empty.
    """

    blocks: tuple[Any, ...] = ()
    sizes: tuple[int, ...] = ()
    digests: tuple[bytes, ...] = ()

    @classmethod
    def rows_from_dask(cls, X: Any, y: Any) -> Self:
        """Validate a Dask Array of rows where it is, and keep its signed blocks there.

        Parameters
        ----------
        X : dask.array.Array of shape (n, d)
            Rows in the unit ball, in blocks of whole rows.
        y : dask.array.Array of shape (n,)
            Labels -1 and 1, in the same blocks.

        Returns
        -------
        ClusterRows

        Raises
        ------
        InvalidInput
            What :meth:`Rows.build_from_parts` refuses; or without Dask.

        Examples
        --------
        >>> import dask.array as da
        >>> X, y = da.ones((20, 2), chunks=(5, 2)) / 2, da.ones(20, chunks=5)
        >>> rows = ClusterRows.rows_from_dask(X, y)
        """
        dask = _import_dask_array()
        if not isinstance(X, dask.array.Array) or X.ndim != 2 or X.numblocks[1] != 1:
            raise InvalidInput(
                "X",
                None,
                "must be a Dask Array whose blocks hold whole rows",
                "rechunk((ROWS, -1))",
            )
        if not isinstance(y, dask.array.Array) or y.ndim != 1 or y.chunks[0] != X.chunks[0]:
            raise InvalidInput(
                "y", None, "must be a Dask Array with the row blocks of X", "rechunk it like X"
            )
        if any(np.isnan(size) or size == 0 for size in X.chunks[0]):
            raise InvalidInput(
                "X",
                None,
                "every block needs a known number of rows, at least 1",
                "compute_chunk_sizes()",
            )
        sign = dask.delayed(_signed_rows)
        pairs = zip(X.to_delayed()[:, 0], y.to_delayed(), strict=True)
        blocks = dask.persist(*[sign(a, b) for a, b in pairs])
        found = dask.compute(*[dask.delayed(_digest_of_block)(block) for block in blocks])
        labels = np.asarray(dask.array.unique(y).compute())
        n = np.array([[float(sum(X.chunks[0]))]])
        alike = (0,) if len(labels) == 1 else ()
        blank = np.zeros((1, 0, int(X.shape[1])))
        return cls(
            blank,
            n,
            alike,
            blocks=tuple(blocks),
            sizes=tuple(map(int, X.chunks[0])),
            digests=tuple(found),
        )

    def sweep_over_rows(self) -> ClusterSweep:
        """Return the passes over the blocks, each with the fields of its rows."""
        dask = _import_dask_array()
        edges = pairwise(np.cumsum((0, *self.sizes)))
        fields = [{name: x[:, a:b] for name, x in self._present_fields.items()} for a, b in edges]
        local = dask.delayed(_sweep_over_block)
        blocks = dask.persist(
            *[local(block, own, self.move) for block, own in zip(self.blocks, fields, strict=True)]
        )
        return ClusterSweep((), self.d, blocks, self.sizes)

    def _storage_of_nodes(self, nodes: IntArray) -> Storage:
        raise TypeError("rows on a cluster cannot be copied to one process")

    def with_backend(self, spec: str) -> Self:
        if spec != "numpy":
            raise InvalidInput(
                "backend", spec, "rows on a Dask cluster need the NumPy backend", "use 'numpy'"
            )
        return self

    def _storage_of_node(self, i: int) -> dict[str, Any]:
        return {}

    def _storage_of_pooled(self) -> dict[str, Any]:
        return {}

    def _fingerprint_storage(self) -> tuple[Array, ...]:
        """Return digests of the blocks, so the same rows in other blocks are other rows to a
        ledger.
        """
        return (
            np.array([list(one) for one in self.digests], dtype=float),
            np.array(self.sizes, dtype=float),
            self.n,
        )
