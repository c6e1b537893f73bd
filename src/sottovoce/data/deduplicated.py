"""Deduplicated rows: each distinct row of a node once, with its multiplicity.

Bins and categories give many people the same row, so a sweep over distinct rows is shorter.  The
order of distinct rows depends on all rows, so only sums whose error bound holds for any order of
the terms may use them (:func:`sottovoce.solvers.local.rounding_bound`).  Which rows repeat is
secret; only the time of a sweep depends on it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..util.typing import Any, Array, IntArray
from .design import Dense, Design, Storage
from .move import Moved

# Entries of a node's rows below which a search for duplicates costs more than it saves.
LEAST = 2**16
# Largest share of distinct rows at which rows are deduplicated.
SHARE = 0.7
_SAMPLE = 1024  # rows that are searched first
# Share of distinct rows in the sample above which the search ends.
_TOO_DISTINCT = 0.98
_AT_ONCE = 2**22  # numbers that are hashed or compared at a time


def deduplicate_design(design: Design) -> Design:
    """Replace one node's dense rows in memory by distinct rows with multiplicities, if faster.

    Other rows are returned as they are.
    """
    fields: list[Any] = [x for x in (design.weight, design.offset, design.labels) if x is not None]
    done = design.counts is not None or design.known_norms is not None
    storage = design.storage
    # Equal rows are equal after the move too, so the rows before it are searched.
    base = storage.base if isinstance(storage, Moved) else storage
    if type(base) is not Dense or done or len(fields) > 1:
        return design
    found = find_distinct_rows(base.a, *fields)
    if found is None:
        return design
    rows, counts, first = found
    kept: Storage = Dense(rows)
    if isinstance(storage, Moved):
        kept = storage.with_distinct_rows(kept, first)
    return replace(design.with_row_subset(kept, lambda x: x[:, first]), counts=counts)


def find_distinct_rows(
    a: Array, extra: Array | None = None
) -> tuple[Array, Array, IntArray] | None:
    """Find the distinct rows of `a` (1, n, d); None if a sweep over them is not faster.

    Returns the rows (1, m, d), their multiplicities (1, m), and the index of the first row of each.
    `extra`, (1, n), is a further column, such as the labels.
    """
    nodes, n, d = a.shape
    if nodes != 1 or n * d < LEAST:
        return None
    rows = a[0]
    more = None if extra is None else np.asarray(extra[0], dtype=float)
    # Odd factors, so that a product modulo 2^64 loses no bit of a number; always the same ones.
    rng = np.random.default_rng(0)
    factors = rng.integers(0, 2**63, size=d + 1, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    # A sample tells cheaply where a search would find next to nothing.
    some = slice(None, None, max(1, n // _SAMPLE))
    sample = _digests_of_rows(rows[some], None if more is None else more[some], factors)
    if len(set(sample.tolist())) > _TOO_DISTINCT * len(sample):
        return None
    digests = _digests_of_rows(rows, more, factors)
    _, first, which = np.unique(digests, return_index=True, return_inverse=True)
    if len(first) > SHARE * n:
        return None
    # Digests of different rows may be equal, so every row is compared with the one kept for it.
    step = max(1, _AT_ONCE // d)
    for start in range(0, n, step):
        part = slice(start, start + step)
        kept = first[which[part]]
        if not np.array_equal(rows[part], rows[kept]):
            return None
        if more is not None and not np.array_equal(more[part], more[kept]):
            return None
    counts = np.bincount(which.ravel()).astype(float)[None]
    return np.ascontiguousarray(rows[first])[None], counts, first


def _digests_of_rows(
    rows: Array, more: Array | None, factors: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Hash each row (n,), equal for equal rows; negative zero equals zero."""
    out = np.zeros(len(rows), dtype=np.uint64) if more is None else _mixed_bits(more) * factors[-1]
    step = max(1, _AT_ONCE // rows.shape[1])
    for k in range(0, len(rows), step):
        out[k : k + step] += _mixed_bits(rows[k : k + step]) @ factors[:-1]
    return out


def _mixed_bits(x: Array) -> NDArray[np.uint64]:
    """Mix the bits of numbers, because the low bits of round numbers are all zero."""
    bits = np.ascontiguousarray(x + 0.0).view(np.uint64)
    mixed: NDArray[np.uint64] = bits ^ (bits >> np.uint64(29))
    return mixed
