"""Products with rows: how rows are stored, and what each row brings along.

A :class:`Storage` multiplies rows, dense or sparse, here or on a device.  A :class:`Design` adds
the fields of its rows: weight, offset, class, multiplicity and norm.  A solver needs nothing else
of the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from ..util.later import Later
from ..util.typing import Any, Array, IntArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

compat = Later("array_api_compat")
# Rows whose norms are computed at a time.
_AT_ONCE = 2**16
# Bytes of a block's margins: with their rows they stay in a core's own cache.
_BLOCK = 2**19
# Rows that are transposed at a time.
_TRANSPOSED = 256
# Number of vectors from which single precision multiplies faster with rows first: by a third and
# more.
_TALL = 4


def norms_rounded_up(squares: Any, d: int) -> Any:
    """Compute square roots of sums of d squares, rounded up by more than the rounding errors.

    Zero stays zero.
    """
    # A cap divides by this: with a norm that is too small, a row would move a sum by more than its
    # sensitivity.
    return squares**0.5 * (1.0 + (d + 8.0) * 2.0**-52)


class Storage(ABC):
    """Rows of M nodes, zero-padded to n.  Vectors are (M, R, d), margins (M, R, n).

    Margins, and what is computed from them, are arrays of the storage's own library.
    """

    @abstractmethod
    def margins_at(self, w: Array) -> Any:
        """Compute ``a_k.w`` for every row, (M, R, n), of vectors w (M, R, d)."""

    @abstractmethod
    def weighted_row_sum(self, derivatives: Any) -> Array:
        """Compute ``sum_k derivatives_k a_k``, (M, R, d), for derivatives (M, R, n)."""

    @abstractmethod
    def weighted_gram(self, weights: Any) -> Array:
        """Compute ``sum_k weights_k a_k a_k'``, (M, d, d), for weights (M, n)."""

    @abstractmethod
    def gram_diagonal(self, weights: Any) -> Array:
        """Compute the diagonal of :meth:`weighted_gram`, (M, d)."""

    @abstractmethod
    def row_norm_bounds(self) -> Any:
        """Upper bounds on the rows' norms, (M, n), in the storage's library."""

    @abstractmethod
    def select_nodes(self, nodes: Any) -> Self:
        """Return the rows of some nodes; `nodes` is a mask (M,)."""

    @abstractmethod
    def every_nth_row(self, part: int, parts: int) -> Self:
        """Return rows ``part, part + parts, ...`` of every node."""

    @property
    @abstractmethod
    def n(self) -> int:
        """Rows of a node, padding included."""

    @abstractmethod
    def slice_rows(self, first: int, last: int) -> Self:
        """Return rows ``first .. last - 1`` of every node, as a view."""

    def in_single_precision(self) -> Storage:
        """Return a copy in single precision; itself if there is no such copy."""
        return self

    @property
    def margins_per_block(self) -> int:
        """About how many margins a block should have."""
        return 2**17

    @property
    def is_on_this_machine(self) -> bool:
        """Whether this machine's own cores multiply these rows, in any thread."""
        return True

    def to_storage_array(self, x: Array) -> Any:
        """`x` as an array of the storage's library."""
        return x

    def to_numpy_array(self, x: Any) -> Array:
        """`x`, an array of the storage's library, as a NumPy array."""
        return x


@dataclass(frozen=True)
class Dense(Storage):
    """Rows as one array (M, n, d)."""

    a: Array

    def margins_at(self, w: Array) -> Array:
        w = w.astype(self.a.dtype, copy=False)
        if self.a.dtype == np.float32 and w.shape[1] >= _TALL:
            return np.matmul(self.a, w.transpose(0, 2, 1)).transpose(0, 2, 1)
        return np.matmul(w, self.a.transpose(0, 2, 1))

    def weighted_row_sum(self, derivatives: Array) -> Array:
        return np.matmul(derivatives.astype(self.a.dtype, copy=False), self.a)

    @property
    def margins_per_block(self) -> int:
        return _BLOCK // self.a.itemsize

    def weighted_gram(self, weights: Array) -> Array:
        scaled = self.a * np.sqrt(weights).astype(self.a.dtype, copy=False)[:, :, None]
        return np.matmul(scaled.transpose(0, 2, 1), scaled)

    def gram_diagonal(self, weights: Array) -> Array:
        return np.einsum("mn,mnd->md", weights, self.a**2)

    def row_norm_bounds(self) -> Array:
        return norms_rounded_up(np.einsum("mnd,mnd->mn", self.a, self.a), self.a.shape[2])

    def select_nodes(self, nodes: Any) -> Self:
        where = np.flatnonzero(nodes)
        first, last = where[0], where[-1] + 1
        if last - first == len(where):
            # Nodes that are neighbours are a slice, which is a view and copies no row.
            return type(self)(self.a[first:last])
        return type(self)(self.a[where])

    def every_nth_row(self, part: int, parts: int) -> Self:
        return type(self)(self.a[:, part::parts])

    @property
    def n(self) -> int:
        return int(self.a.shape[1])

    def slice_rows(self, first: int, last: int) -> Self:
        return type(self)(self.a[:, first:last])

    def in_single_precision(self) -> Storage:
        if self.a.dtype == np.float32:
            return self
        return Columns.from_row_major(self.a)


@dataclass(frozen=True)
class Columns(Dense):
    """Rows in single precision, in memory column after column: products with few vectors are a
    quarter faster.
    """

    @classmethod
    def from_row_major(cls, rows: Array) -> Self:
        """Transpose rows (M, n, d) in memory, some at a time.

        A copy of all at once would miss the cache at every number.
        """
        nodes, n, d = rows.shape
        out: Any = np.empty((nodes, d, n), dtype=np.float32)
        for first in range(0, n, _TRANSPOSED):
            some = slice(first, first + _TRANSPOSED)
            out[:, :, some] = rows[:, some].astype(np.float32).transpose(0, 2, 1)
        return cls(out.transpose(0, 2, 1))

    def weighted_row_sum(self, derivatives: Array) -> Array:
        # Columns first, as they lie in memory: the transposed product reads them in order.
        transposed = derivatives.astype(np.float32, copy=False).transpose(0, 2, 1)
        return np.matmul(self.a.transpose(0, 2, 1), transposed).transpose(0, 2, 1)


@dataclass(frozen=True)
class Sparse(Storage):
    """Rows as one CSR matrix a node; products never make them dense."""

    blocks: tuple[csr_array, ...]

    @property
    def n(self) -> int:
        return max(block.shape[0] for block in self.blocks)

    def margins_at(self, w: Array) -> Array:
        out = np.zeros((*w.shape[:2], self.n))
        for one, block, x in zip(out, self.blocks, w, strict=True):
            one[:, : block.shape[0]] = (block @ x.T).T
        return out

    def weighted_row_sum(self, derivatives: Array) -> Array:
        pairs = zip(self._transposed_blocks, derivatives, strict=True)
        return np.stack([(columns @ s[:, : columns.shape[1]].T).T for columns, s in pairs])

    @cached_property
    def _transposed_blocks(self) -> tuple[Any, ...]:
        return tuple(block.T for block in self.blocks)

    @cached_property
    def _cached_row_slices(self) -> dict[tuple[int, int], Sparse]:
        """Slices of rows by (first, last), kept because every sweep asks for the same ones."""
        return {}

    def weighted_gram(self, weights: Array) -> Array:
        pairs = zip(self.blocks, weights, strict=True)
        return np.stack(
            [(block.multiply(v[: block.shape[0], None]).T @ block).toarray() for block, v in pairs]
        )

    def gram_diagonal(self, weights: Array) -> Array:
        pairs = zip(self.blocks, weights, strict=True)
        return np.stack([block.power(2).T @ v[: block.shape[0]] for block, v in pairs])

    def row_norm_bounds(self) -> Array:
        out = np.zeros((len(self.blocks), self.n))
        for one, block in zip(out, self.blocks, strict=True):
            one[: block.shape[0]] = np.asarray(block.power(2).sum(axis=1)).ravel()
        return norms_rounded_up(out, self.blocks[0].shape[1])

    def select_nodes(self, nodes: Any) -> Sparse:
        return Sparse(tuple(block for block, kept in zip(self.blocks, nodes, strict=True) if kept))

    @property
    def margins_per_block(self) -> int:
        # Fewer and longer blocks than of dense rows, since every block's products are as wide
        # as all columns.
        return 2**20

    def every_nth_row(self, part: int, parts: int) -> Sparse:
        return Sparse(tuple(block[part::parts] for block in self.blocks))

    def slice_rows(self, first: int, last: int) -> Sparse:
        if (first, last) == (0, self.n):
            return self
        if (first, last) not in self._cached_row_slices:
            parts = tuple(_view_of_rows(block, first, last) for block in self.blocks)
            self._cached_row_slices[first, last] = Sparse(parts)
        return self._cached_row_slices[first, last]


def _view_of_rows(block: csr_array, first: int, last: int) -> csr_array:
    """Return rows ``first .. last - 1`` of a CSR matrix as a view."""
    # A node with fewer rows than the longest has no matrix rows in its padding.
    n_rows = block.shape[0]
    ends = block.indptr[min(first, n_rows) : min(last, n_rows) + 1]
    own = slice(ends[0], ends[-1])
    shape = (len(ends) - 1, block.shape[1])
    return type(block)((block.data[own], block.indices[own], ends - ends[0]), shape)


@dataclass(frozen=True)
class Design:
    """A storage of rows and their fields, which are None or (M, n).

    Fields are arrays of the storage's library, except `labels` and `counts`, which are NumPy's.

    Attributes
    ----------
    storage : Storage
    weight : array
        In [0, 1], multiplied into each row's loss; 0 for padding.
    offset : array
        Margins are ``a_k.w - t_k``; 0 for padding, whose margins stay 0.
    labels : array of int
        The class of each row, of `classes`.  Vectors are then (M, R, K d), one block per class, and
        margins (M, R, K n), ``u_j = w_j.x - w_label.x``: linear in w, so the solver needs no
        knowledge of classes.
    counts : array
        Multiplicities, see :mod:`sottovoce.data.deduplicated`.
    known_norms : array
        The rows' norms, so that sweeps need not compute them again.
    classes : int
    """

    storage: Storage
    weight: Any = None
    offset: Any = None
    labels: IntArray | None = None
    counts: Array | None = None
    known_norms: Any = None
    classes: int = 1

    @property
    def n(self) -> int:
        """Rows of a node, padding included."""
        return self.storage.n

    def to_storage_array(self, x: Array) -> Any:
        """`x` as an array of the storage's library."""
        return self.storage.to_storage_array(x)

    def to_numpy_array(self, x: Any) -> Array:
        """`x`, an array of the storage's library, as a NumPy array."""
        return self.storage.to_numpy_array(x)

    def margins_at(self, w: Array) -> Any:
        """Compute ``a_k.w`` for every row, minus its offset if there is one."""
        z = self.change_of_margins(w)
        if self.offset is None:
            return z
        return z - _in_precision_of(z, self.offset[:, None, :])

    def change_of_margins(self, along: Array) -> Any:
        """Compute ``a_k.along`` for every row: how margins change if vectors change by `along`."""
        if self.labels is None:
            return self.storage.margins_at(along)
        flat = self.storage.margins_at(along.reshape(len(along), along.shape[1] * self.classes, -1))
        xp = compat.array_namespace(flat)
        scores = xp.reshape(flat, (*along.shape[:2], self.classes, -1))
        # u_j = w_j.x - w_label.x: the score of the row's own class is subtracted from all.
        own = xp.sum(scores * self._one_hot_labels(scores), axis=2, keepdims=True)
        return xp.reshape(scores - own, (*along.shape[:2], -1))

    def weighted_row_sum(self, derivatives: Any) -> Array:
        """Compute ``sum_k derivatives_k a_k``, times weights and multiplicities."""
        if self.labels is None:
            return self.storage.weighted_row_sum(self._apply_weights_and_counts(derivatives))
        xp = compat.array_namespace(derivatives)
        split = self._split_by_class(derivatives)
        # The transpose of `change_of_margins`: the own class gets minus the sum over all classes.
        whole = split - self._one_hot_labels(split) * xp.sum(split, axis=2, keepdims=True)
        flat = xp.reshape(whole, (whole.shape[0], whole.shape[1] * self.classes, -1))
        return self.storage.weighted_row_sum(self._apply_weights_and_counts(flat)).reshape(
            *derivatives.shape[:2], -1
        )

    def weighted_gram(self, weights: Any) -> Array:
        """Compute ``sum_k weights_k a_k a_k'``, (M, d, d), times weights and multiplicities.

        With K classes it is (M, K d, K d), of which only the diagonal blocks are not zero.
        """
        if self.labels is None:
            return self.storage.weighted_gram(self._apply_weights_and_counts(weights))
        split = self._split_by_class(weights)
        blocks = [
            self.storage.weighted_gram(self._apply_weights_and_counts(split[:, j, :]))
            for j in range(self.classes)
        ]
        d = blocks[0].shape[-1]
        out = np.zeros((len(blocks[0]), self.classes * d, self.classes * d))
        for j, block in enumerate(blocks):
            out[:, j * d : (j + 1) * d, j * d : (j + 1) * d] = block
        return out

    def gram_diagonal(self, weights: Any) -> Array:
        """Compute the diagonal of :meth:`weighted_gram`, (M, d), or (M, K d) of K classes."""
        if self.labels is None:
            return self.storage.gram_diagonal(self._apply_weights_and_counts(weights))
        split = self._split_by_class(weights)
        blocks = [
            self.storage.gram_diagonal(self._apply_weights_and_counts(split[:, j, :]))
            for j in range(self.classes)
        ]
        return np.concatenate(blocks, axis=1)

    def row_norm_bounds(self) -> Any:
        """Upper bounds on the rows' norms, (M, n), in the storage's library."""
        if self.known_norms is None:
            return self.storage.row_norm_bounds()
        return self.known_norms

    def apply_row_weights(self, values: Array) -> Array:
        """Multiply values of rows, (M, R, n), by the rows' weights."""
        if self.weight is None:
            return values
        return values * self.to_numpy_array(self.weight)[:, None, :]

    def with_row_subset(self, storage: Storage, pick: Callable[[Any], Any]) -> Self:
        """Return a subset of these rows, held by `storage`.

        `pick` selects their entries of a field.
        """

        def picked(x: Any) -> Any:
            return None if x is None else pick(x)

        return type(self)(
            storage,
            weight=picked(self.weight),
            offset=picked(self.offset),
            labels=picked(self.labels),
            counts=picked(self.counts),
            known_norms=picked(self.known_norms),
            classes=self.classes,
        )

    def select_nodes(self, nodes: Any) -> Self:
        """Return the rows of some nodes; `nodes` is a mask (M,)."""
        # Sparse rows without the longest node have less padding, and so do their fields.
        kept = self.storage.select_nodes(nodes)

        def pick(x: Any) -> Any:
            if isinstance(x, np.ndarray):
                return x[nodes][:, : kept.n]
            return self.to_storage_array(self.to_numpy_array(x)[nodes][:, : kept.n])

        return self.with_row_subset(kept, pick)

    def every_nth_row(self, part: int, parts: int) -> Self:
        if self.counts is not None:
            raise TypeError("deduplicated rows have no order; take parts of the original rows")
        return self.with_row_subset(
            self.storage.every_nth_row(part, parts), lambda x: x[:, part::parts]
        )

    def slice_rows(self, first: int, last: int) -> Self:
        return self.with_row_subset(
            self.storage.slice_rows(first, last), lambda x: x[:, first:last]
        )

    def in_single_precision(self) -> Self:
        """Return these rows in single precision; itself if the storage has no such copy."""
        short = self.storage.in_single_precision()
        if short is self.storage:
            return self
        norms = None
        if self.known_norms is not None:
            narrow: Any = np.asarray(self.to_numpy_array(self.known_norms), dtype=np.float32)
            norms = short.to_storage_array(narrow)
        return replace(self, storage=short, known_norms=norms)

    def with_known_norms(self, nodes: int) -> Self:
        """Return these rows with all norms computed, `_AT_ONCE` rows of all `nodes` at a time."""
        step = max(1, _AT_ONCE // nodes)
        spans = [(at, min(at + step, self.n)) for at in range(0, self.n, step)]
        parts = [
            self.to_numpy_array(self.storage.slice_rows(first, last).row_norm_bounds())
            for first, last in spans
        ]
        return replace(self, known_norms=self.to_storage_array(np.concatenate(parts, axis=1)))

    def _apply_weights_and_counts(self, x: Any) -> Any:
        """Multiply values of rows, (M, n) or (M, R, n), by their weights and multiplicities."""
        for factors in (self.weight, self.counts):
            if factors is not None:
                own = _in_precision_of(x, factors)
                if x.ndim != 2:
                    own = own[:, None, :]
                x = x * own
        return x

    def _one_hot_labels(self, like: Any) -> Any:
        """Return the one-hot classes of the rows, (M, 1, K, n), in the precision of `like`."""
        assert self.labels is not None
        hit = (self.labels[:, None, None, :] == np.arange(self.classes)[:, None]).astype(float)
        return _in_precision_of(like, self.to_storage_array(hit))

    def _split_by_class(self, x: Any) -> Any:
        """Reshape values (..., K m), one block per class, to (..., K, m)."""
        return compat.array_namespace(x).reshape(x, (*x.shape[:-1], self.classes, -1))


def _in_precision_of(like: Any, x: Any) -> Any:
    """Convert `x` to the precision of `like`."""
    if isinstance(x, np.ndarray):
        return x.astype(like.dtype, copy=False)
    return compat.array_namespace(like).astype(x, like.dtype)
