"""Rows that repeat, merged: each distinct row once, with the number of times that it stands in the node's rows.

Bins and categories give many people the same row.  A sum over rows is a sum over distinct rows with weights, so a sweep
over merged rows is shorter by as much.  Merged rows have no order, and the place of a row depends on all other rows; so
only what is proved for sums in any order may use them (:func:`sottovoce.solvers.rounding_bound`).  Which rows repeat is
secret, and nothing but the time of a sweep depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..typing import Array, IntArray
from .design import Dense, Design, Wrapped

LEAST = 2**16
"""Entries of a node's rows below which a look for repeats costs more than it saves."""
SHARE = 0.7
"""Largest share of distinct rows at which rows are merged."""
_LOOK = 1024  # rows that are looked at first
_SEVERAL = 0.98  # share of distinct rows among them above which the others are not looked at
_AT_ONCE = 2**22  # numbers


@dataclass(frozen=True)
class Merged(Wrapped):
    """Distinct rows of one node.

    Attributes
    ----------
    counts : array (1, n)
        How often each stands in the node's rows, in the precision of the rows.
    """

    counts: Array

    def margins(self, w: Array) -> Array:
        return self.base.margins(w)

    def combine(self, slopes: Array) -> Array:
        return self.base.combine(slopes * self.counts[:, None, :])

    def gram(self, weights: Array) -> Array:
        return self.base.gram(weights * self.counts)

    def diagonal(self, weights: Array) -> Array:
        return self.base.diagonal(weights * self.counts)

    def keep(self, nodes: Any) -> Self:
        return type(self)(self.base.keep(nodes), self.counts[nodes])

    def every(self, part: int, parts: int) -> Self:
        raise TypeError("merged rows have no order; take parts of the rows as they come")

    def between(self, first: int, last: int) -> Self:
        return type(self)(self.base.between(first, last), self.counts[:, first:last])

    def single(self) -> Self:
        return type(self)(self.base.single(), self.counts.astype(np.float32))


def merged(design: Design) -> Design:
    """The same sums over rows, with rows that repeat merged, where that pays: for one node's dense rows in memory."""
    if type(design) is Dense:
        found = merge(design.a)
        return design if found is None else found[0]
    if isinstance(design, Wrapped) and type(design.base) is Dense and (beside := design.beside) is not None:
        found = merge(design.base.a, beside)
        return design if found is None else design.picked(*found)
    return design


def merge(a: Array, beside: Array | None = None) -> tuple[Merged, IntArray] | None:
    """The distinct rows among `a`, and where each of them stands first; None if merging does not pay.

    Parameters
    ----------
    a : array (M, n, d)
    beside : array (M, n), optional
        What else tells rows apart, such as labels.
    """
    nodes, n, d = a.shape
    if nodes != 1 or n * d < LEAST:
        return None
    rows, more = a[0], None if beside is None else np.asarray(beside[0], dtype=float)
    rng = np.random.default_rng(0)
    factors = rng.integers(0, 2**63, size=d + 1, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    some = slice(None, None, max(1, n // _LOOK))
    looked = _digests(rows[some], None if more is None else more[some], factors)
    if len(np.unique(looked)) > _SEVERAL * len(looked):
        return None
    _, first, which = np.unique(_digests(rows, more, factors), return_index=True, return_inverse=True)
    if len(first) > SHARE * n:
        return None
    step = max(1, _AT_ONCE // d)
    for k in range(0, n, step):  # digests of different rows may be equal
        same = np.array_equal(rows[k : k + step], rows[first[which[k : k + step]]])
        if not same or not (more is None or np.array_equal(more[k : k + step], more[first[which[k : k + step]]])):
            return None
    counts = np.bincount(which.ravel()).astype(float)[None]
    return Merged(Dense(np.ascontiguousarray(rows[first])[None]), counts), first


def _digests(rows: Array, more: Array | None, factors: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A number for each row, the same for equal rows; a negative zero equals zero."""
    out = np.zeros(len(rows), dtype=np.uint64) if more is None else _bits(more) * factors[-1]
    step = max(1, _AT_ONCE // rows.shape[1])
    for k in range(0, len(rows), step):
        out[k : k + step] += _bits(rows[k : k + step]) @ factors[:-1]
    return out


def _bits(x: Array) -> NDArray[np.uint64]:
    """The bits of numbers, mixed, because the low bits of round numbers are all zero."""
    bits = np.ascontiguousarray(x + 0.0).view(np.uint64)
    mixed: NDArray[np.uint64] = bits ^ (bits >> np.uint64(29))
    return mixed
