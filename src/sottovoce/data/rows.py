"""Validated rows of all nodes, stacked for the solver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import InvalidInput
from ..typing import Array


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
        Nodes whose labels are all alike (allowed; worth saying).
    """

    signed: Array
    n: Array
    one_class: tuple[int, ...] = ()

    @property
    def d(self) -> int:
        """Number of features."""
        return int(self.signed.shape[2])

    def node(self, i: int) -> Rows:
        """Node `i` alone."""
        n_i = int(self.n[i, 0])
        alone = np.ascontiguousarray(self.signed[i : i + 1, :n_i])
        return Rows(alone, self.n[i : i + 1], (0,) if i in self.one_class else ())

    def pooled(self) -> Rows:
        """All rows at one node."""
        counts = self.n[:, 0].astype(int)
        whole = np.concatenate([self.signed[i, :n] for i, n in enumerate(counts)])[None]
        return Rows(whole, np.array([[float(whole.shape[1])]]), (0,) if len(self.one_class) == len(counts) == 1 else ())

    @classmethod
    def build(cls, parts: Sequence[tuple[Array, Array]]) -> Rows:
        """Stack the (X, y) of every node.

        Parameters
        ----------
        parts : sequence of (X of shape (n_i, d), y of shape (n_i,) in {-1, +1})

        Raises
        ------
        InvalidInput
            NaN or infinite entries, labels other than -1 and +1, rows outside the unit ball, a node without rows,
            nodes that disagree on d.  Messages hold no data value.
        """
        if not parts:
            raise InvalidInput("sites", 0, "at least one site is needed", "give one (X, y) a site")
        d = np.asarray(parts[0][0]).shape[-1]
        one_class = []
        for i, (X, y) in enumerate(parts):
            if X.ndim != 2 or X.shape[1] != d:
                raise InvalidInput(
                    f"site {i}", X.shape, f"rows must have shape (n, {d})", "give every site the same columns"
                )
            if len(X) == 0:
                raise InvalidInput(f"site {i}", 0, "has no rows", "drop the site or change the partition")
            if y.shape != (len(X),) or not np.all(np.abs(y) == 1.0):
                raise InvalidInput(f"site {i}", None, "labels must be -1 or +1, one a row", "encode the two classes so")
            norms = np.einsum("nd,nd->n", X, X)
            if not np.all(np.isfinite(norms)):
                raise InvalidInput(f"site {i}", None, "rows hold NaN or infinite values", "impute or drop those rows")
            if norms.size and norms.max() > 1.0:
                raise InvalidInput(
                    f"site {i}", None, "a row lies outside the unit ball", "encode rows with a schema or a data_norm"
                )
            if np.all(y == y[0]):
                one_class.append(i)
        n_max = max(len(X) for X, _ in parts)
        signed = np.zeros((len(parts), n_max, d))
        for i, (X, y) in enumerate(parts):
            np.multiply(X, y[:, None], out=signed[i, : len(X)])
        n = np.array([[float(len(X))] for X, _ in parts])
        return cls(signed, n, tuple(one_class))
