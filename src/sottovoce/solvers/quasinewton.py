"""Limited-memory BFGS for many problems at once, in compact form around a preconditioner.

A *pair* is a step s and the change y of the gradient over it.  With the steps as rows of S, the
changes as rows of Y, scaled so that ``s_i.y_i = 1``, and the preconditioner's inverse H, the
quasi-Newton direction for a gradient g is minus (Byrd, Nocedal and Schnabel, 1994, theorem 2.2)

    H g + S' (R^-T ((I + Y H Y') c - Y H g)) - (Y H)' c,      c = R^-1 S g,

where R is the upper triangle of ``S Y'``: a fixed number of array operations for any number of
pairs, unlike the two loops of the textbook, and ``H y`` costs nothing as the difference of two ``H
g``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..util.typing import Any, Array

MEMORY = 10  # largest number of pairs that are kept


def row_inner_products(x: Array, y: Array) -> Array:
    """Return the inner products of vectors (M, R, d), shape (M, R)."""
    # Faster than einsum for few vectors.
    return np.matmul(x[:, :, None, :], y[:, :, :, None])[:, :, 0, 0]


@dataclass(frozen=True)
class Problem:
    """The local problems of M nodes and R replicates, apart from the rows.

    The preconditioner is given by its `inverse`, or as ``basis diag(spectrum + q) basis'``, or as
    the diagonal ``spectrum + q`` without a basis.

    Attributes
    ----------
    c : array (M, R, d)
        Linear terms.
    q : array (M, R, 1)
        Curvatures of the quadratic terms.
    weight : array (M, 1, 1)
        ``C / n`` of the data terms.
    basis : array (M, d, d) or None
        Eigenvectors of the data terms' Hessians; None for diagonals.
    spectrum : array (M, 1, d)
        Their eigenvalues, or the diagonals.
    inverse : array (M, d, d) or None
        Inverse of the preconditioner, where it is stored.
    """

    c: Array
    q: Array
    weight: Array
    basis: Array | None
    spectrum: Array
    inverse: Array | None = None

    def subset_of_solves(self, node: Any, rep: Any) -> Problem:
        """Return the problem of some nodes and replicates, each an index array or mask."""
        cut = np.ix_(node, rep)
        basis, inverse = (None if x is None else x[node] for x in (self.basis, self.inverse))
        return Problem(
            self.c[cut], self.q[cut], self.weight[node], basis, self.spectrum[node], inverse
        )

    def precondition_gradient(self, g: Array) -> Array:
        """Apply the preconditioner's inverse to `g`, (M, R, d)."""
        if self.inverse is not None:
            return np.matmul(g, self.inverse)
        spectrum = self.spectrum + self.q
        if self.basis is None:
            return np.asarray(g / spectrum)
        return np.matmul(np.matmul(g, self.basis) / spectrum, self.basis.transpose(0, 2, 1))


class Memory:
    """The last pairs of (M, R) problems of d variables, the oldest first.

    A problem that took no step in an iteration has a pair of zeros, which changes no direction.
    Arrays: `s`, `y` and ``v = H y`` (M, R, pairs, d); `inverse`, R^-1, and `inner`, Y H Y', (M, R,
    pairs, pairs); `size`, the norms of y before scaling, (M, R, pairs).

    Parameters
    ----------
    shape : tuple (M, R, d)
    most : int
        Largest number of pairs.
    """

    def __init__(self, shape: tuple[int, ...], most: int = MEMORY) -> None:
        nodes, replicates, d = shape
        self.count = 0
        self.s, self.y, self.v = (np.zeros((nodes, replicates, most, d)) for _ in range(3))
        self.inverse, self.inner = (np.zeros((nodes, replicates, most, most)) for _ in range(2))
        self.size = np.zeros((nodes, replicates, most))

    def add_pair(self, s: Array, y: Array, v: Array, sy: Array) -> None:
        """Add a pair of a step and a change of the gradient, scaled to ``s.y = 1``.

        The oldest pair is dropped when the memory is full.

        Parameters
        ----------
        s : array (M, R, d)
            The step.
        y : array (M, R, d)
            The change of the gradient over it.
        v : array (M, R, d)
            ``H y``, the preconditioner's inverse times that.
        sy : array (M, R)
            ``s.y``; where it is not positive the pair is zero and changes nothing.
        """
        k, most = self.count, self.s.shape[2]
        # The inverse of a triangle's lower right part is that part of its inverse.
        if k == most:
            for old in (self.s, self.y, self.v, self.size):
                old[:, :, :-1] = old[:, :, 1:].copy()
            for old in (self.inverse, self.inner):
                old[:, :, :-1, :-1] = old[:, :, 1:, 1:].copy()
                old[:, :, -1, :] = 0.0
            k -= 1
        # A pair of a solve that did not move, or lost in rounding, is zero and changes nothing.
        took = sy > 0.0
        scale = (np.sqrt(took / np.where(took, sy, 1.0)))[:, :, None]
        for kept, new in ((self.s, s), (self.y, y), (self.v, v)):
            np.multiply(new, scale, out=kept[:, :, k])
        self.size[:, :, k] = np.sqrt(row_inner_products(y, y))
        y_new, v_new = self.y[:, :, k, :, None], self.v[:, :, k, :, None]
        if k:
            # R grows by the column r = S y and the entry s.y = 1, so R^-1 by the column -R^-1 r.
            column = self.inverse[:, :, :k, :k] @ (self.s[:, :, :k] @ y_new)
            self.inverse[:, :, :k, k] = -column[..., 0]
        self.inverse[:, :, k, k] = 1.0
        cross = (self.y[:, :, : k + 1] @ v_new)[..., 0]
        self.inner[:, :, : k + 1, k] = self.inner[:, :, k, : k + 1] = cross
        self.count = k + 1

    def direction(self, g: Array, h: Array) -> Array:
        """Return the quasi-Newton direction: minus the inverse times `g`.

        Parameters
        ----------
        g : array (M, R, d)
            The gradient.
        h : array (M, R, d)
            The preconditioner's inverse times `g`.

        Returns
        -------
        array (M, R, d)
        """
        k = self.count
        if not k:
            return -h
        s, y, v = self.s[:, :, :k], self.y[:, :, :k], self.v[:, :, :k]
        inverse = self.inverse[:, :, :k, :k]
        # Theorem 2.2 of Byrd, Nocedal and Schnabel (1994), for pairs scaled to s.y = 1:
        # c = R^-1 S g, u = R^-T ((I + Y H Y') c - Y H g).
        c = inverse @ (s @ g[..., None])
        u = inverse.swapaxes(2, 3) @ (c + self.inner[:, :, :k, :k] @ c - y @ h[..., None])
        return np.asarray((c.swapaxes(2, 3) @ v - u.swapaxes(2, 3) @ s)[:, :, 0] - h)

    def keep(self, cut: Any) -> Memory:
        """Return the memory of some problems, an index into (M, R)."""
        new = object.__new__(Memory)
        new.count = self.count
        for name in ("s", "y", "v", "inverse", "inner", "size"):
            setattr(new, name, getattr(self, name)[cut])
        return new


def gather_memories(
    problem: Problem, pieces: list[tuple[Any, Memory]], shape: tuple[int, ...], least: float
) -> Memory:
    """Merge the memories of parts of the problems into one, under one preconditioner.

    Parameters
    ----------
    problem : Problem
        With the preconditioner to use from now on.
    pieces : list of (index, Memory)
        Where each part stands among the (M, R) problems; the last one was updated longest.
    shape : tuple (M, R, d)
    least : float
        Changes of the gradient shorter than this are dropped.

    Returns
    -------
    Memory
    """
    whole, last = Memory(shape), pieces[-1][1]
    k = whole.count = last.count
    for at, one in pieces:
        kept = (one.size >= least)[..., None]
        whole.s[at], whole.y[at], whole.size[at] = one.s * kept, one.y * kept, one.size
    s, y, v = (x[:, :, :k] for x in (whole.s, whole.y, whole.v))
    # H is another one from now on, so that H y and Y H Y' have to be computed anew.
    for j in range(k):
        v[:, :, j] = problem.precondition_gradient(y[:, :, j])
    # R is the upper triangle of S Y', and its diagonal s.y = 1.
    whole.inverse[:, :, :k, :k] = np.linalg.inv(np.triu(s @ y.swapaxes(2, 3), 1) + np.eye(k))
    whole.inner[:, :, :k, :k] = y @ v.swapaxes(2, 3)
    return whole
