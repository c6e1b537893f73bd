"""Array types, and the shape letters used throughout.

R replicates, N nodes, n rows of one node, d features.  ``...`` are leading axes that an algorithm
never looks at: ``()`` at a real site, ``(R, N)`` in a simulation.  Vectors are ``(..., d)``;
per-node scalars ``(..., 1)``, to broadcast.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

__all__ = ["Any", "Array", "ArrayLike", "BoolArray", "IntArray"]
