"""Symmetric matrices as vectors: how second moments and Hessians are released."""

from __future__ import annotations

import numpy as np

from ..util.typing import Array


def flat(S: Array) -> Array:
    """Symmetric matrices (..., d, d) as vectors of their d (d + 1) / 2 entries, of the same Euclidean norm."""
    i, j = np.triu_indices(S.shape[-1])
    return np.asarray(S[..., i, j] * np.where(i == j, 1.0, np.sqrt(2.0)))


def square(v: Array, d: int) -> Array:
    """Inverse of :func:`flat`."""
    i, j = np.triu_indices(d)
    S = np.zeros((*v.shape[:-1], d, d))
    S[..., i, j] = S[..., j, i] = v / np.where(i == j, 1.0, np.sqrt(2.0))
    return S
