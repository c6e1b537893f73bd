"""Problems that tests share: small, seeded, with rows in the unit ball."""

from __future__ import annotations

import numpy as np

from sottovoce.data.rows import Rows
from sottovoce.util.typing import Array


def make_rows(sizes: list[int], d: int, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    truth = 4 * rng.standard_normal(d)
    parts = []
    for n in sizes:
        X = rng.standard_normal((n, d))
        X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True)) * (1 + 1e-12)
        y = np.where(X @ truth + rng.logistic(size=n) > 0, 1.0, -1.0)
        parts.append((X, y))
    return Rows.build_from_parts(parts)


def make_targets(sizes: list[int], d: int, seed: int = 0) -> list[tuple[Array, Array]]:
    """(X, t) of every node: rows in the unit ball, and numbers in [-1, 1] with heavy-tailed
    errors.
    """
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal(d)
    parts = []
    for n in sizes:
        X = rng.standard_normal((n, d))
        X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True)) * (1 + 1e-12)
        parts.append((X, np.clip(0.5 * X @ truth + 0.1 * rng.standard_t(3, size=n), -1.0, 1.0)))
    return parts


def unlike_sites() -> Rows:
    """Five sites whose classes differ in frequency from none to all, and whose rows differ in
    direction.
    """
    rng = np.random.default_rng(3)
    parts = []
    for site in range(5):
        X = rng.standard_normal((40, 3)) + 2.0 * np.eye(3)[site % 3]
        X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True)) * (1 + 1e-12)
        parts.append((X, np.where(rng.uniform(size=40) < site / 4, 1.0, -1.0)))
    return Rows.build_from_parts(parts)
