"""The digest of rows of data, by which a ledger on disk knows the data set that it belongs to."""

from __future__ import annotations

import hashlib

import numpy as np

from ..util.typing import Array


def rows_digest(*arrays: Array) -> bytes:
    """Return a digest of a data set's arrays, the ``fingerprint`` of a ledger on disk.

    It has no key: treat it as secret, and never store it.

    Parameters
    ----------
    *arrays : array
        Hashed with their shapes, as little-endian doubles.

    Returns
    -------
    bytes
        32 bytes.
    """
    digest = hashlib.blake2b(digest_size=32)
    for array in arrays:
        # The same bytes on every machine; the shape tells arrays of the same numbers apart.
        values = np.ascontiguousarray(array, dtype="<f8")
        digest.update(repr(values.shape).encode())
        digest.update(values.tobytes())
    return digest.digest()
