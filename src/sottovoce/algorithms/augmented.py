"""The two formulas of consensus ADMM that all ADMM methods contain."""

from __future__ import annotations

from typing import NamedTuple

from ..util.typing import Array


class Augmented(NamedTuple):
    """The public linear and quadratic terms that ADMM adds to a node's objective."""

    linear: Array
    curvature: Array


def augment(eta: Array, V: Array, f: Array, S: Array, lam: Array) -> Augmented:
    """``2 lam.w + eta sum_j ||w - (f_i + f_j)/2||^2 = linear.w + curvature ||w||^2 / 2 + const`` (000, eq. 9)."""
    return Augmented(linear=2 * lam - eta * (V * f + S), curvature=2 * eta * V)


def dual(eta: Array, V: Array, f: Array, S: Array, lam: Array) -> Array:
    """``lam_i + (eta / 2) sum_j (f_i - f_j)`` (000, eq. 11)."""
    return lam + eta / 2 * (V * f - S)
