"""Moved rows: rows that are centred by a public mean, scaled, and clipped to norm 1 again.

A row a has features z and a constant, which stands in one of the constants' columns; x is the sum
of these columns, so the row's constant.  The map A takes z to ``g (z - m x / k)`` and keeps the
constants: m is the public (noisy) mean, g the gain, and k the constant of a row that was not
clipped, so such a row becomes ``g (z - m)``.  The moved row is ``c
A a`` with ``c = min(1, 1 / |A a|)``.  It depends on this row and on public numbers alone, has norm
at most 1, and is zero if a is (``docs/privacy/centring.md``).

No moved row is ever written down: :class:`Moved` multiplies by A before and after the products of
any storage, so sparse rows stay sparse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from ..errors import InvalidInput
from ..util.plain import digest_public_values
from ..util.typing import Any, Array, IntArray
from .design import Dense, Sparse, Storage, norms_rounded_up
from .products import products_by_row

# Rows whose lengths are computed at a time.
_ROWS = 2**16
# A factor above the rounding errors of a root, of a product and of a quotient together.
_UP = 1.0 + 2.0**-50


def stretch_bound(gain: float, k: float, constants: int = 1) -> float:
    """Bound ``1 + ||A||`` of the map A, for every mean m of norm at most 1.

    It bounds ``1 + ||A^-1||`` too (docs/privacy/centring.md).

    Parameters
    ----------
    gain : float
        g, at least 1.
    k : float
        The constant of a row that was not clipped, in (0, 1].
    constants : int
        Number of columns that hold a constant.

    Returns
    -------
    float
    """
    return 2.0 + gain * (1.0 + math.sqrt(constants) / k)


@dataclass(frozen=True, eq=False)
class Move:
    """The map A, or one for each of R replicates.

    Parameters
    ----------
    mean : array (p,) or (R, p)
        m, public, of norm at most 1; 0 in the constants' columns.
    constants : tuple of int
        The constants' columns.  A row has its constant in one of them.
    k : float
        The constant of a row that was not clipped.
    gain : float
        g, by which centred rows are multiplied.
    """

    mean: Array
    constants: tuple[int, ...]
    k: float
    gain: float

    def __post_init__(self) -> None:
        mean = np.array(self.mean, dtype=float)
        columns = self.constants
        numbers_fit = 0.0 < self.k <= 1.0 <= self.gain < math.inf
        columns_fit = len(set(columns)) == len(columns) > 0 and mean.ndim in (1, 2)
        columns_fit = columns_fit and 0 <= min(columns) <= max(columns) < mean.shape[-1]
        # False where anything is NaN, which is not below any bound.
        short = bool(np.all(np.sum(mean**2, axis=-1) <= 1.0 + 1e-9))
        # The columns come first: others cannot be looked up in the mean.
        if not (columns_fit and numbers_fit and short) or np.any(mean[..., list(columns)] != 0.0):
            rule = "must be a finite vector of norm at most 1, with a non-zero constant of the rows"
            raise InvalidInput("centre", None, rule, "use the value in the run's record")
        mean.setflags(write=False)
        object.__setattr__(self, "mean", mean)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Move) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def digest(self) -> bytes:
        """Digest of the map, 16 bytes; equal maps have equal digests."""
        return digest_public_values("move", self.mean, list(self.constants), self.k, self.gain)

    @property
    def width(self) -> int:
        """Columns p."""
        return int(self.mean.shape[-1])

    @cached_property
    def _constant_columns_mask(self) -> Array:
        """1 in the constants' columns, and 0 elsewhere."""
        found = np.zeros(self.width)
        found[list(self.constants)] = 1.0
        return found

    @property
    def stretch_bound(self) -> float:
        """The :func:`stretch_bound` of this map."""
        return stretch_bound(self.gain, self.k, len(self.constants))

    def for_replicate(self, replicate: int) -> Move:
        """Return the map of one replicate."""
        if self.mean.ndim == 1:
            return self
        return replace(self, mean=self.mean[replicate])

    def split_by_replicate(self) -> list[Move]:
        """Return the maps of all replicates."""
        if self.mean.ndim == 1:
            return [self]
        return [self.for_replicate(replicate) for replicate in range(len(self.mean))]

    # Models

    def fold_into_models(self, w: Array) -> Array:
        """Fold the map into models (..., K p) of moved rows: ``A'w``; replicates come first.

        The result v is a model of rows as they were before the map: ``c (a.v)`` is the margin of
        the moved row.  The sign of a margin, and so the predicted class, does not depend on c.
        """
        v, mean = self._split_by_class(w)
        # A' takes v to g v, and a constant's entry to v - (g / k) v.m (docs/privacy/centring.md).
        back = (self.gain / self.k) * np.sum(v * mean, axis=-1, keepdims=True)
        return np.where(self._constant_columns_mask > 0.0, v - back, self.gain * v).reshape(w.shape)

    def unfold_from_models(self, w: Array) -> Array:
        """Invert :meth:`fold_into_models`."""
        v, mean = self._split_by_class(w)
        back = np.sum(v * mean, axis=-1, keepdims=True) / self.k
        return np.where(self._constant_columns_mask > 0.0, v + back, v / self.gain).reshape(w.shape)

    def apply_to_row_sums(self, v: Array) -> Array:
        """Multiply sums of rows by the map: ``A v``, of the same shape.

        Replicates, if any, come first.
        """
        given, mean = self._split_by_class(v)
        x = np.sum(given * self._constant_columns_mask, axis=-1, keepdims=True)
        moved = np.where(
            self._constant_columns_mask > 0.0, given, self.gain * (given - mean * (x / self.k))
        )
        return moved.reshape(v.shape)

    def _split_by_class(self, w: Array) -> tuple[Array, Array]:
        """Return one vector per class, (..., K, p), and the mean in a shape that fits."""
        v = w.reshape(*w.shape[:-1], -1, self.width)
        mean = self.mean
        if mean.ndim == 2:
            # A mean for each replicate, which is the first axis of v.
            between = (1,) * (v.ndim - 2)
            mean = mean.reshape(len(mean), *between, self.width)
        return v, mean

    # Rows

    def shortening_factors(self, X: Any) -> Array:
        """Compute c of encoded rows X (n, p), dense or sparse: (n,), or (R, n) of several maps.

        A row's c depends on no other row, to the last bit (:mod:`sottovoce.data.products`).
        """
        storage: Storage
        if isinstance(X, np.ndarray):
            storage = RowByRow(np.asarray(X, dtype=float)[None])
        else:
            storage = Sparse((X,))
        found = np.stack(
            [
                _factors_and_lengths(storage, one, short=True)[0][0]
                for one in self.split_by_replicate()
            ]
        )
        if self.mean.ndim == 1:
            found = found[0]
        return np.asarray(found)

    def shorten_rows(self, X: Any) -> Any:
        """Multiply encoded rows X (n, p), dense or sparse, by their factors c, for one map.

        Products with a folded model (:meth:`fold_into_models`) are then the margins of the moved
        rows.
        """
        c = self.shortening_factors(X)[:, None]
        if isinstance(X, np.ndarray):
            return X * c
        return X.multiply(c).tocsr()


@dataclass(frozen=True)
class RowByRow(Dense):
    """Rows of one node as an array (1, n, d): norms and margins of a row depend on no other, to
    the last bit.
    """

    def margins_at(self, w: Array) -> Array:
        return products_by_row(self.a[0], w[0])[None]

    def row_norm_bounds(self) -> Array:
        squares = self.a[0] ** 2
        d = squares.shape[1]
        # Sums of squares as products with ones, so that each row's is computed by itself.
        sums = products_by_row(squares, np.ones(d))
        return norms_rounded_up(sums, d)[None]


def _factors_and_lengths(storage: Storage, move: Move, *, short: bool) -> tuple[Array, Array]:
    """Return the factors c and upper bounds on the norms of moved rows, (M, n) each.

    Without `short` every c is 1, and moved rows are not clipped.  ``|A a|^2 = g^2 (|z|^2 - 2 (z.m)
    x / k + |m|^2 x^2 / k^2) + sum of squared constants`` is computed from products with the rows a
    alone. `slip` times ``|a|^2`` bounds its rounding error and is added, so that the results are
    upper bounds and a moved row has norm at most 1.
    """
    J = len(move.constants)
    p = move.width
    square = float(np.sum(move.mean**2))
    # S^2 and (4d + 4J + 64) u S^2 of docs/privacy/centring.md ("Arithmetic").
    most = move.gain**2 * (1.0 + math.sqrt(J * square) / move.k) ** 2 + 1.0
    slip = (4 * p + 4 * J + 64) * 2.0**-53 * most
    # One product with rows gives all: unit vectors of the constants' columns, and then the mean.
    vectors = np.zeros((J + 1, p))
    vectors[range(J), list(move.constants)] = 1.0
    vectors[J] = move.mean
    parts = []
    for first in range(0, storage.n, _ROWS):
        part = storage.slice_rows(first, min(first + _ROWS, storage.n))
        norms = storage.to_numpy_array(part.row_norm_bounds())
        products = storage.to_numpy_array(
            part.margins_at(np.broadcast_to(vectors, (len(norms), *vectors.shape)))
        )
        constants, along = products[:, :J], products[:, J]
        x = constants.sum(axis=1) / move.k
        own = np.sum(constants**2, axis=1)
        found = move.gain**2 * (norms**2 - own - 2.0 * along * x + square * x**2) + own
        # What rounding may have taken is added before the root, which is rounded up.
        parts.append(np.sqrt(np.maximum(found, 0.0) + slip * norms**2) * _UP)
    lengths = np.concatenate(parts, axis=1)
    if not short:
        return np.ones_like(lengths), lengths
    c = np.where(lengths > 1.0, 1.0 / (np.maximum(lengths, 1.0) * _UP), 1.0)
    return c, np.minimum(lengths, 1.0)


@dataclass(frozen=True)
class Moved(Storage):
    """Products with moved rows, from those of any storage with the rows as they were.

    `factors` are c, in the storage's library and precision, and `lengths` bounds on the moved rows'
    norms, (M, n).
    """

    base: Storage
    move: Move
    factors: Any
    lengths: Array

    @classmethod
    def move_storage(cls, base: Storage, move: Move, *, short: bool = True) -> Moved:
        """Move the rows of a storage by the map of one replicate.

        Parameters
        ----------
        base : Storage
            Rows as they were; they are never written down in another form.
        move : Move
            Of one replicate.
        short : bool
            Clip each moved row to norm 1; without it, moved rows have any norm.

        Returns
        -------
        Moved

        Guarantee
        ---------
        With `short`, every row ``c A a`` has norm at most 1, rounding included, and depends on its
        own row a and on public numbers alone (docs/privacy/centring.md).
        """
        factors, lengths = _factors_and_lengths(base, move, short=short)
        return cls(base, move, base.to_storage_array(factors), lengths)

    def margins_at(self, w: Array) -> Any:
        return self.base.margins_at(self.move.fold_into_models(w)) * self.factors[:, None, :]

    def weighted_row_sum(self, derivatives: Any) -> Array:
        return self.move.apply_to_row_sums(
            self.base.weighted_row_sum(derivatives * self.factors[:, None, :])
        )

    def weighted_gram(self, weights: Any) -> Array:
        half = self.move.apply_to_row_sums(self.base.weighted_gram(weights * self.factors**2))
        return self.move.apply_to_row_sums(half.swapaxes(1, 2))

    def gram_diagonal(self, weights: Any) -> Array:
        """Compute the diagonal of the moved rows' Gram matrix from three sums over the rows.

        They are the diagonal of the rows before the map, their products with the constant, and the
        constant's square; the whole matrix is never built.
        """
        weights = weights * self.factors**2
        constant = self.move._constant_columns_mask
        mean = self.move.mean / self.move.k
        x = self.base.margins_at(np.broadcast_to(constant, (len(self.lengths), 1, len(constant))))
        own = self.base.gram_diagonal(weights)
        cross = self.base.weighted_row_sum(weights[:, None, :] * x)[:, 0]
        square = np.sum(cross * constant, axis=1, keepdims=True)
        # The sum of v (g (z_j - m_j x / k))^2, with the square multiplied out.
        moved = self.move.gain**2 * (own - 2.0 * mean * cross + mean**2 * square)
        return np.where(constant > 0.0, own, moved)

    def row_norm_bounds(self) -> Any:
        return self.base.to_storage_array(self.lengths)

    def select_nodes(self, nodes: Any) -> Self:
        # The rows that are kept may have less padding.
        base = self.base.select_nodes(nodes)
        own = np.ascontiguousarray(self.base.to_numpy_array(self.factors)[nodes][:, : base.n])
        factors = self.base.to_storage_array(own)
        return replace(self, base=base, factors=factors, lengths=self.lengths[nodes][:, : base.n])

    def every_nth_row(self, part: int, parts: int) -> Self:
        base = self.base.every_nth_row(part, parts)
        cut = np.s_[:, part::parts]
        return replace(self, base=base, factors=self.factors[cut], lengths=self.lengths[cut])

    def slice_rows(self, first: int, last: int) -> Self:
        base = self.base.slice_rows(first, last)
        cut = np.s_[:, first:last]
        return replace(self, base=base, factors=self.factors[cut], lengths=self.lengths[cut])

    def with_distinct_rows(self, base: Storage, which: IntArray) -> Self:
        """Return these products for some rows of every node.

        `base` holds these rows, and `which` has their numbers among the present ones.
        """
        return replace(
            self, base=base, factors=self.factors[:, which], lengths=self.lengths[:, which]
        )

    def in_single_precision(self) -> Storage:
        base = self.base.in_single_precision()
        if base is self.base:
            return self
        short: Any = np.asarray(self.base.to_numpy_array(self.factors), dtype=np.float32)
        return replace(self, base=base, factors=base.to_storage_array(short))

    @property
    def n(self) -> int:
        return self.base.n

    @property
    def margins_per_block(self) -> int:
        return self.base.margins_per_block

    @property
    def is_on_this_machine(self) -> bool:
        return self.base.is_on_this_machine

    def to_storage_array(self, x: Array) -> Any:
        return self.base.to_storage_array(x)

    def to_numpy_array(self, x: Any) -> Array:
        return self.base.to_numpy_array(x)
