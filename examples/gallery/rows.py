"""Rows that nobody's life is in: a logistic truth, from a seed."""

from __future__ import annotations

import numpy as np

TRUTH = np.array([0.9, -0.6, 0.3, 0.0])


def made_up(n: int, seed: int = 0, sharp: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """`n` rows of four numbers, with labels whose log-odds are TRUTH times `sharp`."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, np.where(sharp * X @ TRUTH + rng.logistic(size=n) > 0, "yes", "no")
