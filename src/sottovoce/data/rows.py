"""Validated rows of all nodes, stacked for the solver.

A row is ``a = y x`` with a label y of two classes.  With a number to predict, the row is x itself with an *offset* t,
and losses see ``a.w - t`` (:class:`OffsetRows`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from ..errors import InvalidInput
from ..later import Later
from ..losses import MOST_OFFSET, Loss
from ..typing import Any, Array, IntArray
from .design import Dense, Design, Shifted, Sparse
from .device import OnDevice, backend, spec_of
from .sweep import Group, Sweep, group_sizes

if TYPE_CHECKING:
    from scipy.sparse import csr_array

sparse = Later("scipy.sparse")


@dataclass(frozen=True)
class Rows:
    """Signed rows ``y x`` of one or many nodes.

    Attributes
    ----------
    signed : array (N, n_max, d)
        Row k of node i is ``y_k x_k``.  Missing rows of small nodes are zero: they add nothing to any gradient or
        Hessian, whatever the loss.
    n : array (N, 1)
        True number of rows per node.
    one_class : tuple of int
        Nodes whose rows are all of one class.  This is allowed, and only the holder of the rows may know it.
    """

    signed: Array
    n: Array
    one_class: tuple[int, ...] = ()
    backend: str = field(default="numpy", kw_only=True)

    def on(self, spec: str) -> Self:
        """The same rows, multiplied by another array library: see :func:`sottovoce.data.device.backend`.

        Raises
        ------
        InvalidInput
        """
        if spec != "numpy":
            backend(spec)
        return replace(self, backend=spec)

    @property
    def d(self) -> int:
        """Number of features."""
        return int(self.signed.shape[2])

    @property
    def outputs(self) -> int:
        """Margins per row: 1, or the number of classes for rows with class labels."""
        return 1

    @property
    def has_offset(self) -> bool:
        """Whether every row has a number to predict in place of a class."""
        return False

    def check(self, loss: Loss) -> None:
        """Refuse a loss with another number of margins, or one for classes if rows have numbers, or the reverse.

        Raises
        ------
        InvalidInput
        """
        outputs = loss.outputs
        if self.has_offset and not loss.offset_bound:
            rule = "is for rows with a class, and these rows have a number to predict"
            raise InvalidInput("loss", loss.spec, rule, "use 'huber-residual:0.25' or 'log-cosh:0.25'")
        if loss.offset_bound and not self.has_offset:
            rule = "is for rows with a number to predict, and these rows have a class"
            raise InvalidInput("loss", loss.spec, rule, "use 'logistic' or 'huber:0.5'")
        if self.outputs != outputs:
            rule = f"the loss has {outputs} margins a row, and these rows have {self.outputs}"
            remedy = f"use 'softmax:{self.outputs}'" if self.outputs > 1 else "use 'logistic' for labels of two classes"
            raise InvalidInput("loss", "softmax" if outputs > 1 else "of one margin", rule, remedy)

    def node(self, i: int) -> Rows:
        """Node `i` alone."""
        n_i = int(self.n[i, 0])
        alone = np.ascontiguousarray(self.signed[i : i + 1, :n_i])
        return Rows(alone, self.n[i : i + 1], (0,) if i in self.one_class else (), backend=self.backend)

    def design(self, nodes: IntArray) -> Design:
        """Products with the rows of those nodes, filled up to the largest of them."""
        longest = int(self.n[nodes].max())
        some = slice(nodes[0], nodes[0] + 1) if len(nodes) == 1 else nodes
        a = self.signed[some, :longest]
        if self.backend == "numpy":
            return Dense(np.ascontiguousarray(a))
        home = backend(self.backend)
        return OnDevice(home.put(a), home)

    def sweep(self) -> Sweep:
        """Passes over all of these rows, for the solver."""
        sizes = group_sizes(self.n[:, 0].astype(int), self.d)
        return Sweep(tuple(Group(nodes, self.design(nodes)) for nodes in sizes), self.d)

    def arrays(self) -> tuple[Array, ...]:
        """The arrays that determine these rows, for a fingerprint."""
        return self.signed, self.n

    def pooled(self) -> Rows:
        """All rows at one node."""
        counts = self.n[:, 0].astype(int)
        whole = np.concatenate([self.signed[i, :n] for i, n in enumerate(counts)])[None]
        alike = (0,) if len(self.one_class) == len(counts) == 1 else ()
        return Rows(whole, np.array([[float(whole.shape[1])]]), alike, backend=self.backend)

    def with_offset(self, offsets: Sequence[Array]) -> Rows:
        """The same rows, each with a number t to predict: losses see ``a.w - t``.

        Parameters
        ----------
        offsets : sequence of array (n_i,)
            Numbers in [-1, 1], scaled by declared public bounds; 0 for a row of zeros.

        Raises
        ------
        InvalidInput
            On NaN, infinite entries, entries outside [-1, 1], a wrong number of them, or rows that cannot have offsets.
        """
        return OffsetRows.of(self, offsets)

    @classmethod
    def build(cls, parts: Sequence[tuple[Array, Array]], offsets: Sequence[Array] | None = None) -> Rows:
        """Stack the (X, y) of every node.

        Parameters
        ----------
        parts : sequence of (X of shape (n_i, d), y of shape (n_i,) in {-1, +1})
            A label 0 makes a row of zeros: it counts as a row and adds nothing.
        offsets : sequence of array (n_i,), optional
            Numbers to predict, see :meth:`with_offset`.  All labels are then +1, or 0 for a row of zeros, whose number
            is dropped.

        Raises
        ------
        InvalidInput
            NaN or infinite entries, other labels, rows outside the unit ball, a node without rows,
            nodes that disagree on d.  Messages hold no data value.

        Notes
        -----
        If an X is a SciPy sparse matrix the result is :class:`SparseRows`, and no row is made dense.  Arrays of
        another library stay on their device and are multiplied there.
        """
        if not parts:
            raise InvalidInput("sites", 0, "at least one site is needed", "give one (X, y) a site")
        if offsets is not None:
            return cls.build(parts).with_offset(_known(parts, offsets))
        if "scipy.sparse" in sys.modules and any(sparse.issparse(X) for X, _ in parts):  # else nobody has made one
            return SparseRows.of([(sparse.csr_array(X, dtype=float), y) for X, y in parts])
        spec = spec_of(parts[0][0])
        if spec != "numpy":
            home = backend(spec)
            return cls.build([(home.get(X), home.get(y)) for X, y in parts]).on(spec)
        d = np.asarray(parts[0][0]).shape[-1]
        one_class = cls._checked(parts, d, [np.einsum("nd,nd->n", X, X) if X.ndim == 2 else X for X, _ in parts])
        n_max = max(len(X) for X, _ in parts)
        signed = np.zeros((len(parts), n_max, d))
        for i, (X, y) in enumerate(parts):
            np.multiply(X, y[:, None], out=signed[i, : len(X)])
        n = np.array([[float(len(X))] for X, _ in parts])
        return cls(signed, n, one_class)

    @staticmethod
    def _checked(parts: Sequence[tuple[Any, Array]], d: int, squares: Sequence[Array]) -> tuple[int, ...]:
        """Refuse what :meth:`build` refuses; `squares` are the rows' squared norms.  Returns nodes of one class."""
        one_class = []
        for i, ((X, y), norms) in enumerate(zip(parts, squares, strict=True)):
            if X.ndim != 2 or X.shape[1] != d:
                raise InvalidInput(
                    f"site {i}", X.shape, f"rows must have shape (n, {d})", "give every site the same columns"
                )
            if X.shape[0] == 0:
                raise InvalidInput(f"site {i}", 0, "has no rows", "drop the site or change the partition")
            if y.shape != (X.shape[0],) or not np.all((np.abs(y) == 1.0) | (y == 0.0)):
                rule = "labels must be -1 or +1, or 0 for a row of zeros, one a row"
                raise InvalidInput(f"site {i}", None, rule, "encode the two classes so")
            if not np.all(np.isfinite(norms)):
                remedy = "replace them by a public constant, or drop those rows"
                raise InvalidInput(f"site {i}", None, "rows hold NaN or infinite values", remedy)
            if norms.size and norms.max() > 1.0:
                raise InvalidInput(
                    f"site {i}", None, "a row lies outside the unit ball", "encode rows with a schema or a data_norm"
                )
            if not (np.any(y > 0) and np.any(y < 0)):
                one_class.append(i)
        return tuple(one_class)


@dataclass(frozen=True)
class SparseRows(Rows):
    """Signed rows as one CSR matrix ``y x`` per node; ``signed`` is empty."""

    blocks: tuple[csr_array, ...] = ()

    def on(self, spec: str) -> Self:
        if spec != "numpy":
            raise InvalidInput("backend", spec, "sparse rows are SciPy's, on the host", "use 'numpy', or dense rows")
        return self

    @classmethod
    def of(cls, parts: Sequence[tuple[csr_array, Array]]) -> SparseRows:
        """From the (X, y) of every node, validated as by :meth:`Rows.build`."""
        d = parts[0][0].shape[1]
        squares = [np.asarray(X.power(2).sum(axis=1)).ravel() for X, _ in parts]
        one_class = cls._checked(parts, d, squares)
        blocks = tuple(sparse.csr_array(X.multiply(y[:, None])) for X, y in parts)
        return cls._stacked(blocks, one_class)

    @classmethod
    def _stacked(cls, blocks: tuple[csr_array, ...], one_class: tuple[int, ...]) -> SparseRows:
        n = np.array([[float(block.shape[0])] for block in blocks])
        return cls(np.zeros((len(blocks), 0, blocks[0].shape[1])), n, one_class, blocks)

    def design(self, nodes: IntArray) -> Design:
        return Sparse(tuple(self.blocks[i] for i in nodes))

    def arrays(self) -> tuple[Array, ...]:
        parts = [(block.data, block.indices, block.indptr) for block in self.blocks]
        return (*(np.asarray(x, dtype=float) for part in parts for x in part), self.n)

    def node(self, i: int) -> SparseRows:
        return self._stacked(self.blocks[i : i + 1], (0,) if i in self.one_class else ())

    def pooled(self) -> SparseRows:
        alone = len(self.blocks) == len(self.one_class) == 1
        return self._stacked((sparse.csr_array(sparse.vstack(self.blocks)),), (0,) if alone else ())


def _host(x: Any) -> Array:
    """A NumPy array, from an array of any library."""
    spec = spec_of(x)
    return np.asarray(x, dtype=float) if spec == "numpy" else backend(spec).get(x)


def _known(parts: Sequence[tuple[Any, Array]], offsets: Sequence[Array]) -> list[Array]:
    """Offsets, set to 0 for rows of zeros."""
    if len(offsets) != len(parts):
        raise InvalidInput("offsets", len(offsets), f"there are {len(parts)} sites", "give one array a site")
    out = []
    for i, ((_, label), offset) in enumerate(zip(parts, offsets, strict=True)):
        y, t = _host(label), _host(offset)
        if t.shape != y.shape:
            raise InvalidInput(f"site {i}", t.shape, f"offsets must have shape {y.shape}", "give one number a row")
        if np.any(y < 0):
            rule = "rows with a number to predict have no class: labels must be +1, or 0 for a row of zeros"
            raise InvalidInput(f"site {i}", None, rule, "give labels of ones, or no offsets")
        out.append(np.where(y == 0, 0.0, t))
    return out


@dataclass(frozen=True)
class OffsetRows(Rows):
    """Rows, each with a number to predict; `base` holds the rows and ``signed`` is empty.

    Attributes
    ----------
    base : Rows
        Rows in memory, sparse rows, rows in another array library, or rows in files.
    offset : array (N, n_max)
        In [-1, 1].  Zero where rows of small nodes are missing, so that those have margin 0 and gradient 0.
    """

    base: Rows = None  # type: ignore[assignment]
    offset: Array = None  # type: ignore[assignment]

    @classmethod
    def of(cls, base: Rows, offsets: Sequence[Array]) -> OffsetRows:
        """See :meth:`Rows.with_offset`."""
        if len(offsets) != len(base.n):
            raise InvalidInput("offsets", len(offsets), f"there are {len(base.n)} sites", "give one array a site")
        offset = np.zeros((len(base.n), int(base.n.max())))
        for i, (own, n) in enumerate(zip(offsets, base.n[:, 0].astype(int), strict=True)):
            t = _host(own)
            if t.shape != (n,):
                raise InvalidInput(f"site {i}", t.shape, f"offsets must have shape ({n},)", "give one number a row")
            if not np.all(np.abs(t) <= MOST_OFFSET):  # NaN too
                rule = f"numbers to predict must be finite and within {MOST_OFFSET:g} of 0"
                raise InvalidInput(f"site {i}", None, rule, "clip and scale them by public bounds")
            offset[i, :n] = t
        return cls(np.zeros((len(base.n), 0, base.d)), base.n, (), base, offset, backend=base.backend)

    @property
    def has_offset(self) -> bool:
        return True

    def with_offset(self, offsets: Sequence[Array]) -> Rows:
        return self.base.with_offset(offsets)

    def on(self, spec: str) -> Self:
        return replace(self, base=self.base.on(spec), backend=spec)

    def design(self, nodes: IntArray) -> Design:
        base = self.base.design(nodes)
        return Shifted(base, base.asarray(np.ascontiguousarray(self.offset[nodes, : base.n])))

    def arrays(self) -> tuple[Array, ...]:
        return (*self.base.arrays(), self.offset)

    def _each(self) -> list[Array]:
        return [own[:n] for own, n in zip(self.offset, self.n[:, 0].astype(int), strict=True)]

    def node(self, i: int) -> Rows:
        return self.base.node(i).with_offset(self._each()[i : i + 1])

    def pooled(self) -> Rows:
        return self.base.pooled().with_offset([np.concatenate(self._each())])
