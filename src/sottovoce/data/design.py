"""Products with the rows of all nodes, dense or sparse; a solver needs nothing else of the rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from ..later import Later
from ..typing import Any, Array, IntArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

compat = Later("array_api_compat")
_LOOKED = 2**16  # rows whose norms are computed at a time
_BLOCK = 2**19  # bytes of a block's margins: with their rows they stay in a core's own cache
_TURNED = 256  # rows that are turned at a time
_TALL = 4  # vectors from which single precision multiplies faster with rows first: by a third and more


def rounded_up(squares: Any, d: int) -> Any:
    """Roots of sums of d squares, raised by more than the rounding of both; zero stays zero."""
    return squares**0.5 * (1.0 + (d + 8.0) * 2.0**-52)


class Design(ABC):
    """Signed rows of M nodes, filled up to n with rows of zeros.  Vectors are (M, R, d), margins (M, R, n)."""

    @abstractmethod
    def margins(self, w: Array) -> Array:
        """``a_k.w`` for every row, minus its offset if rows have one."""

    def moves(self, along: Array) -> Array:
        """How margins move when vectors move `along`: ``a_k.along``, without any offset."""
        return self.margins(along)

    @abstractmethod
    def combine(self, slopes: Array) -> Array:
        """``sum_k slopes_k a_k``."""

    @abstractmethod
    def gram(self, weights: Array) -> Array:
        """``sum_k weights_k a_k a_k'``, shape (M, d, d), for weights (M, n)."""

    @abstractmethod
    def diagonal(self, weights: Array) -> Array:
        """The diagonal of :meth:`gram`, shape (M, d)."""

    @abstractmethod
    def norms(self) -> Any:
        """Upper bounds on the rows' norms, (M, n), as an array of the library that computes margins."""

    @abstractmethod
    def keep(self, nodes: Any) -> Self:
        """Those nodes only."""

    @abstractmethod
    def every(self, part: int, parts: int) -> Self:
        """Rows ``part, part + parts, ...`` of every node."""

    @property
    @abstractmethod
    def n(self) -> int:
        """Number of rows of a node, including the rows of zeros that fill it up."""

    @abstractmethod
    def between(self, first: int, last: int) -> Self:
        """Rows ``first .. last - 1`` of every node, without copying them."""

    def single(self) -> Design:
        """The same in single precision, if that is offered."""
        return self

    def weigh(self, values: Array) -> Array:
        """Values of rows, (M, R, n), times what each row counts: 1 unless rows have weights."""
        return values

    @property
    def cache(self) -> int:
        """About how many margins a block should have."""
        return 2**17

    @property
    def here(self) -> bool:
        """Whether this machine's own cores multiply these rows, each at will."""
        return True

    def asarray(self, x: Array) -> Any:
        """`x` as an array of the library that computes margins."""
        return x

    def host(self, x: Any) -> Array:
        """A NumPy array, from an array of that library."""
        return x


@dataclass(frozen=True)
class Dense(Design):
    """Rows as one array (M, n, d)."""

    a: Array

    def margins(self, w: Array) -> Array:
        w = w.astype(self.a.dtype, copy=False)
        if self.a.dtype == np.float32 and w.shape[1] >= _TALL:
            return np.matmul(self.a, w.transpose(0, 2, 1)).transpose(0, 2, 1)
        return np.matmul(w, self.a.transpose(0, 2, 1))

    def combine(self, slopes: Array) -> Array:
        return np.matmul(slopes.astype(self.a.dtype, copy=False), self.a)

    @property
    def cache(self) -> int:
        return _BLOCK // self.a.itemsize

    def gram(self, weights: Array) -> Array:
        scaled = self.a * np.sqrt(weights).astype(self.a.dtype, copy=False)[:, :, None]
        return np.matmul(scaled.transpose(0, 2, 1), scaled)

    def diagonal(self, weights: Array) -> Array:
        return np.einsum("mn,mnd->md", weights, self.a**2)

    def norms(self) -> Array:
        return rounded_up(np.einsum("mnd,mnd->mn", self.a, self.a), self.a.shape[2])

    def keep(self, nodes: Any) -> Dense:
        return Dense(_kept(self.a, nodes))

    def every(self, part: int, parts: int) -> Dense:
        return Dense(self.a[:, part::parts])

    @property
    def n(self) -> int:
        return int(self.a.shape[1])

    def between(self, first: int, last: int) -> Dense:
        return Dense(self.a[:, first:last])

    def single(self) -> Design:
        return self if self.a.dtype == np.float32 else Columns.of(self.a)


@dataclass(frozen=True)
class Columns(Design):
    """The same in single precision, column after column: products with few vectors are a quarter faster.

    Attributes
    ----------
    a : array (M, d, n)
    """

    a: Array

    @classmethod
    def of(cls, rows: Array) -> Columns:
        """From rows (M, n, d), some at a time: a copy in one go would miss the cache at every number."""
        nodes, n, d = rows.shape
        out: Any = np.empty((nodes, d, n), dtype=np.float32)
        for k in range(0, n, _TURNED):
            out[:, :, k : k + _TURNED] = rows[:, k : k + _TURNED].astype(np.float32).transpose(0, 2, 1)
        return cls(out)

    def margins(self, w: Array) -> Array:
        w = w.astype(np.float32, copy=False)
        if w.shape[1] < _TALL:
            return np.matmul(w, self.a)
        return np.matmul(self.a.transpose(0, 2, 1), w.transpose(0, 2, 1)).transpose(0, 2, 1)

    def combine(self, slopes: Array) -> Array:
        return np.matmul(self.a, slopes.astype(np.float32, copy=False).transpose(0, 2, 1)).transpose(0, 2, 1)

    @property
    def cache(self) -> int:
        return _BLOCK // self.a.itemsize

    def gram(self, weights: Array) -> Array:
        scaled = self.a * np.sqrt(weights).astype(np.float32, copy=False)[:, None, :]
        return np.matmul(scaled, scaled.transpose(0, 2, 1))

    def diagonal(self, weights: Array) -> Array:
        return np.einsum("mn,mdn->md", weights, self.a**2)

    def norms(self) -> Array:
        return rounded_up(np.einsum("mdn,mdn->mn", self.a, self.a), self.a.shape[1])

    def keep(self, nodes: Any) -> Columns:
        return Columns(_kept(self.a, nodes))

    def every(self, part: int, parts: int) -> Columns:
        return Columns(self.a[:, :, part::parts])

    @property
    def n(self) -> int:
        return int(self.a.shape[2])

    def between(self, first: int, last: int) -> Columns:
        return Columns(self.a[:, :, first:last])


def _kept(a: Array, nodes: Any) -> Array:
    """Those nodes of an array, without a copy of neighbours."""
    where = np.flatnonzero(nodes)
    first, last = where[0], where[-1] + 1
    return a[first:last] if last - first == len(where) else a[where]


@dataclass(frozen=True)
class Sparse(Design):
    """Rows as one CSR matrix a node; products never make them dense."""

    blocks: tuple[csr_array, ...]

    @property
    def n(self) -> int:
        """Rows of the largest node."""
        return max(block.shape[0] for block in self.blocks)

    def margins(self, w: Array) -> Array:
        out = np.zeros((*w.shape[:2], self.n))
        for one, block, x in zip(out, self.blocks, w, strict=True):
            one[:, : block.shape[0]] = (block @ x.T).T
        return out

    def combine(self, slopes: Array) -> Array:
        pairs = zip(self.blocks, slopes, strict=True)
        return np.stack([(block.T @ s[:, : block.shape[0]].T).T for block, s in pairs])

    def gram(self, weights: Array) -> Array:
        pairs = zip(self.blocks, weights, strict=True)
        return np.stack([(block.multiply(v[: block.shape[0], None]).T @ block).toarray() for block, v in pairs])

    def diagonal(self, weights: Array) -> Array:
        pairs = zip(self.blocks, weights, strict=True)
        return np.stack([block.power(2).T @ v[: block.shape[0]] for block, v in pairs])

    def norms(self) -> Array:
        out = np.zeros((len(self.blocks), self.n))
        for one, block in zip(out, self.blocks, strict=True):
            one[: block.shape[0]] = np.asarray(block.power(2).sum(axis=1)).ravel()
        return rounded_up(out, self.blocks[0].shape[1])

    def keep(self, nodes: Any) -> Sparse:
        return Sparse(tuple(block for block, kept in zip(self.blocks, nodes, strict=True) if kept))

    def every(self, part: int, parts: int) -> Sparse:
        return Sparse(tuple(block[part::parts] for block in self.blocks))

    def between(self, first: int, last: int) -> Sparse:
        whole = (first, last) == (0, self.n)
        return self if whole else Sparse(tuple(block[first:last] for block in self.blocks))


@dataclass(frozen=True)
class Wrapped(Design):
    """Rows of another design, multiplied as those are wherever nothing else is said."""

    base: Design

    @property
    def n(self) -> int:
        return self.base.n

    @property
    def cache(self) -> int:
        return self.base.cache

    @property
    def here(self) -> bool:
        return self.base.here

    def asarray(self, x: Array) -> Any:
        return self.base.asarray(x)

    def host(self, x: Any) -> Array:
        return self.base.host(x)

    def combine(self, slopes: Any) -> Array:
        return self.base.combine(slopes)

    def gram(self, weights: Any) -> Array:
        return self.base.gram(weights)

    def diagonal(self, weights: Any) -> Array:
        return self.base.diagonal(weights)

    def norms(self) -> Any:
        return self.base.norms()

    def weigh(self, values: Array) -> Array:
        return self.base.weigh(values)

    def single(self) -> Self:
        short = self.base.single()
        return self if short is self.base else replace(self, base=short)

    @property
    def beside(self) -> Array | None:
        """What tells two equal rows of `base` apart, (M, n); None if that is not known."""
        return None

    def picked(self, base: Design, which: IntArray) -> Design:
        """The same for the rows in `base`, which stand at these places of this base."""
        raise TypeError(f"{type(self).__name__} rows are not picked")


@dataclass(frozen=True)
class Shifted(Wrapped):
    """Rows with an offset: margins are ``a_k.w - t_k``.  All products with rows are done by `base`.

    Attributes
    ----------
    offset : array (M, n)
        An array of the library that computes margins.  Rows of zeros that fill up a node have offset zero, so that
        their margins stay zero.
    """

    offset: Any

    def margins(self, w: Array) -> Any:
        plain = self.base.margins(w)
        if isinstance(plain, np.ndarray):
            return plain - self.offset[:, None, :].astype(plain.dtype, copy=False)
        return plain - compat.array_namespace(plain).astype(self.offset[:, None, :], plain.dtype)

    def moves(self, along: Array) -> Any:
        return self.base.moves(along)

    @property
    def beside(self) -> Array:
        return self.host(self.offset)

    def picked(self, base: Design, which: IntArray) -> Self:
        return type(self)(base, self.offset[:, which])

    def keep(self, nodes: Any) -> Self:
        return type(self)(self.base.keep(nodes), self.asarray(self.host(self.offset)[nodes]))

    def every(self, part: int, parts: int) -> Self:
        return type(self)(self.base.every(part, parts), self.offset[:, part::parts])

    def between(self, first: int, last: int) -> Self:
        return type(self)(self.base.between(first, last), self.offset[:, first:last])


@dataclass(frozen=True)
class Normed(Wrapped):
    """Rows whose norms are known, so that sweeps need not compute them again.

    Attributes
    ----------
    known : array (M, n)
        :meth:`Design.norms` of `base`, an array of the library that computes margins.
    """

    known: Any

    @classmethod
    def of(cls, base: Design, nodes: int) -> Normed:
        """Compute the norms of all rows of so many nodes, a block at a time."""
        step = max(1, _LOOKED // nodes)
        parts = [base.host(base.between(at, min(at + step, base.n)).norms()) for at in range(0, base.n, step)]
        return cls(base, base.asarray(np.concatenate(parts, axis=1)))

    def norms(self) -> Any:
        return self.known

    def margins(self, w: Array) -> Array:
        return self.base.margins(w)

    def moves(self, along: Array) -> Array:
        return self.base.moves(along)

    def keep(self, nodes: Any) -> Self:
        return type(self)(self.base.keep(nodes), self.asarray(self.host(self.known)[nodes]))

    def every(self, part: int, parts: int) -> Self:
        return type(self)(self.base.every(part, parts), self.known[:, part::parts])

    def between(self, first: int, last: int) -> Self:
        return type(self)(self.base.between(first, last), self.known[:, first:last])

    def single(self) -> Self:
        short = self.base.single()
        if short is self.base:
            return self
        like: Any = np.asarray(self.host(self.known), dtype=np.float32)
        return type(self)(short, short.asarray(like))
