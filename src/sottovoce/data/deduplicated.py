"""Rows that repeat, merged: each distinct row once, with the number of times that it stands in the node's rows.

Bins and categories give many people the same row.  A sum over rows is a sum over distinct rows with weights, so a sweep
over merged rows is shorter by as much.  Merged rows have no order, and the place of a row depends on all other rows; so
only what is proved for sums in any order may use them (:func:`sottovoce.solvers.local.rounding_bound`).  Which rows
repeat is secret, and nothing but the time of a sweep depends on it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..util.typing import Any, Array, IntArray
from .design import Dense, Design

LEAST = 2**16
"""Entries of a node's rows below which a look for repeats costs more than it saves."""
SHARE = 0.7
"""Largest share of distinct rows at which rows are merged."""
_LOOK = 1024  # rows that are looked at first
_SEVERAL = 0.98  # share of distinct rows among them above which the others are not looked at
_AT_ONCE = 2**22  # numbers


def merged(design: Design) -> Design:
    """The same sums over rows, with rows that repeat merged, where that pays: for one node's dense rows in memory."""
    beside: list[Any] = [x for x in (design.weight, design.offset, design.labels) if x is not None]
    done = design.counts is not None or design.known_norms is not None
    if type(design.storage) is not Dense or done or len(beside) > 1:
        return design
    found = merge(design.storage.a, *beside)
    if found is None:
        return design
    rows, counts, first = found
    return replace(design.cut(Dense(rows), lambda x: x[:, first]), counts=counts)


def merge(a: Array, beside: Array | None = None) -> tuple[Array, Array, IntArray] | None:
    """The distinct rows among `a`, how often each stands there, and where first; None if merging does not pay.

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
    return np.ascontiguousarray(rows[first])[None], counts, first


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
