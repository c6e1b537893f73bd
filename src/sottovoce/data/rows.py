"""Validated rows of all nodes, stacked for the solver."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from ..errors import InvalidInput
from ..later import Later
from ..typing import Any, Array, IntArray
from .design import Dense, Design, Sparse
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
        Nodes whose labels are all alike: allowed, and for the holder of the rows only.
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
        """Margins a row: 1, or the number of classes of rows that carry class labels."""
        return 1

    def check(self, outputs: int) -> None:
        """Refuse a loss of another number of margins.

        Raises
        ------
        InvalidInput
        """
        if self.outputs != outputs:
            rule = f"the loss has {outputs} margins a row, and these rows have {self.outputs}"
            remedy = (
                "use 'logistic' for labels of two classes; softmax is ConsensusClassifier(loss='softmax') in Python"
            )
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
        """All that these rows are, for a fingerprint."""
        return self.signed, self.n

    def pooled(self) -> Rows:
        """All rows at one node."""
        counts = self.n[:, 0].astype(int)
        whole = np.concatenate([self.signed[i, :n] for i, n in enumerate(counts)])[None]
        alike = (0,) if len(self.one_class) == len(counts) == 1 else ()
        return Rows(whole, np.array([[float(whole.shape[1])]]), alike, backend=self.backend)

    @classmethod
    def build(cls, parts: Sequence[tuple[Array, Array]]) -> Rows:
        """Stack the (X, y) of every node.

        Parameters
        ----------
        parts : sequence of (X of shape (n_i, d), y of shape (n_i,) in {-1, +1})
            A label 0 makes a row of zeros: it counts as a row and adds nothing.

        Raises
        ------
        InvalidInput
            NaN or infinite entries, other labels, rows outside the unit ball, a node without rows,
            nodes that disagree on d.  Messages hold no data value.

        Notes
        -----
        If an X is a SciPy sparse matrix the result is :class:`SparseRows`, and nothing is made dense.  Arrays of
        another library are multiplied where they are.
        """
        if not parts:
            raise InvalidInput("sites", 0, "at least one site is needed", "give one (X, y) a site")
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
    """The same as one CSR matrix ``y x`` a node; ``signed`` is empty."""

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
