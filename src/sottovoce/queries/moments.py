"""Symmetric matrices as vectors: how second moments and Hessians are released."""

from __future__ import annotations

import numpy as np

from ..util.typing import Array


def flatten_symmetric(S: Array) -> Array:
    """Flatten symmetric matrices (..., d, d) to vectors (..., d (d + 1) / 2).

    A vector's Euclidean norm is the matrix's Frobenius norm, which sensitivities bound.
    """
    i, j = np.triu_indices(S.shape[-1])
    # An entry off the diagonal stands twice in the Frobenius norm.
    return np.asarray(S[..., i, j] * np.where(i == j, 1.0, np.sqrt(2.0)))


def unflatten_symmetric(v: Array, d: int) -> Array:
    """Return the symmetric matrices (..., d, d) of vectors by :func:`flatten_symmetric`."""
    i, j = np.triu_indices(d)
    S = np.zeros((*v.shape[:-1], d, d))
    entries = v / np.where(i == j, 1.0, np.sqrt(2.0))
    S[..., i, j] = entries
    S[..., j, i] = entries
    return S
