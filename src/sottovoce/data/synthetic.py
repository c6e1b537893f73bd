"""Synthetic rows of a logistic model, in the unit ball by construction.

``w`` is uniform on the unit sphere; ``x`` has a uniform direction and norm ``sqrt(u)``, u uniform
on [0, 1] (2/3 on average); ``P(y = 1 | x) = 1 / (1 + exp(-margin sqrt(d) w.x))``, so the difficulty
does not depend on d.  Then a share `flip` of the labels is flipped.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import InvalidInput
from ..util.later import Later
from ..util.typing import Array, IntArray
from .columns import MOST_FEATURES
from .table import check_memory_fits

special = Later("scipy.special")


class Synthetic(NamedTuple):
    """Rows X (n, d), labels y (n,), the true direction w (d,), and the site of each row (n,)."""

    X: Array
    y: Array
    w: Array
    site: IntArray


def make_synthetic(
    n: int,
    d: int,
    seed: int = 0,
    *,
    margin: float = 6.0,
    flip: float = 0.0,
    sites: int = 1,
    shift: float = 0.0,
) -> Synthetic:
    """Draw n synthetic rows of d features with labels of a logistic model; deterministic.

    Parameters
    ----------
    n, d : int
        Numbers of rows and of features, at least 1.
    seed : int
        Not negative.  Equal parameters and seeds give equal rows.
    margin : float
        Slope of the true model, finite and not negative; 0 makes the labels coin flips.
    flip : float
        Share of flipped labels, in [0, 0.5].
    sites : int
        Number of sites, from 1 to n.  Row k belongs to site ``k % sites``.
    shift : float
        Heterogeneity in [0, 1): rows of a site move towards a direction of its own, ``x -> (1 -
        shift) x + shift u_site`` with ``|u_site| = 1``, which keeps them in the ball.  Labels
        follow the one common model.

    Returns
    -------
    Synthetic
        Rows X (n, d) of norm at most 1, labels y (n,) in {-1, 1}, the true unit direction w (d,),
        and the site of each row (n,).

    Raises
    ------
    InvalidInput
        For parameters out of range, or more rows than memory holds.

    Examples
    --------
    >>> rows = make_synthetic(100, 3, seed=1)
    >>> rows.X.shape, bool(np.linalg.norm(rows.X, axis=1).max() <= 1)
    ((100, 3), True)
    """
    for field, value, good, rule in (
        ("n", n, n >= 1, "must be at least 1"),
        ("d", d, d >= 1, "must be at least 1"),
        ("d", d, d <= MOST_FEATURES, f"must be at most {MOST_FEATURES:,}"),
        ("seed", seed, seed >= 0, "must not be negative"),
        ("margin", margin, 0 <= margin < np.inf, "must be finite and not negative"),
        ("flip", flip, 0 <= flip <= 0.5, "must be from 0 to 0.5"),
        ("sites", sites, 1 <= sites <= n, "must be from 1 to n"),
        ("shift", shift, 0 <= shift < 1, "must be at least 0 and below 1"),
    ):
        if not good:
            raise InvalidInput(field, value, rule, "change the parameter of the synthetic data")
    check_memory_fits("synthetic rows", 8.0 * min(n, 2**60) * d)
    rng = np.random.default_rng(seed)
    w = _directions(rng, 1, d)[0]
    # 1e-12 more than the division needs: rounding cannot carry a row out of the ball.
    X = _directions(rng, n, d) * (np.sqrt(rng.uniform(size=(n, 1))) / (1 + 1e-12))
    site = np.arange(n, dtype=np.int64) % sites
    X = (1 - shift) * X + (shift / (1 + 1e-12)) * _directions(rng, sites, d)[site]
    positive = rng.uniform(size=n) < special.expit(margin * np.sqrt(d) * (X @ w))
    turned = rng.uniform(size=n) < flip
    return Synthetic(X, np.where(positive ^ turned, 1.0, -1.0), w, site)


def _directions(rng: np.random.Generator, n: int, d: int) -> Array:
    """Draw n directions (n, d), uniform on the unit sphere."""
    z = rng.normal(size=(n, d))
    directions: Array = z / np.linalg.norm(z, axis=1, keepdims=True)
    return directions
