"""Shape letters used throughout, and the array type.

R replicates, N nodes, n rows of one node, d features.  ``...`` stands for the leading axes that an
algorithm never looks at: ``()`` at a real site and ``(R, N)`` in a simulation.  Vectors are
``(..., d)``; per-node scalars are ``(..., 1)`` so that they broadcast against vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

__all__ = ["Any", "Array", "ArrayLike", "BoolArray", "IntArray"]
