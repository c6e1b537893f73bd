"""What an auditor can learn from a release: the types in which a query says it, and the parts that queries share.

An auditor sees every public input and every answer of a query.  A query that can be audited closely says two things:
how likely an answer is if a node held certain rows (:meth:`~sottovoce.queries.Query.log_density`), and how an answer
leans with each of many canary rows (:meth:`~sottovoce.queries.Query.leaning`).  Both are computed with the *stated*
noise: a fault in the noise that was drawn makes a score no better or worse founded, only what it reveals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..errors import InvalidInput
from ..facts import Facts
from ..typing import Array
from .vault import Vault

_CERTAIN = 1e6  # the log ratio of a release without noise that fits one table and not the other


@dataclass(frozen=True)
class Supposed:
    """Rows that an auditor supposes one node to hold.

    Attributes
    ----------
    vault : Vault
        With these rows and without noise.  Its secrets are what the queries so far left behind.
    facts : Facts
        Of this node alone.
    signed : array (n, d)
        The rows, times their labels.
    """

    vault: Vault
    facts: Facts
    signed: Array


class Canaries(Protocol):
    """Rows of one node that are known but for canaries, each of which has one of two values by a coin's side."""

    facts: Facts
    """Of this node alone."""
    sums: float
    """``n / C``: what a mean gradient is multiplied by to be in sum scale."""
    count: int
    """How many canaries there are."""

    def gradients(self, w: Array, part: int = 0, parts: int = 1) -> tuple[Array, Array]:
        """At w (d,), in sum scale: the gradient (d,) if no canary leaned, and half-differences of canaries (d, m)."""

    def hessian(self, w: Array, part: int = 0, parts: int = 1) -> Array:
        """At w (d,), in sum scale: that of the rows, canaries by half; shape (d, d)."""


@dataclass(frozen=True)
class Leaning:
    """A release to first order in the canaries: ``residual = lean @ signs + noise``, signs +1 or -1 by the coins.

    Attributes
    ----------
    residual : array (d,)
    lean : array (d, m)
    covariance : array (d, d) or float
        Of the noise; a number is the variance of each coordinate.
    """

    residual: Array
    lean: Array
    covariance: Array | float


def refusal(query: object) -> InvalidInput:
    """Canaries cannot be seen through a query that does not say how it leans."""
    rule = "does not say how canaries move its answer (Query.leaning)"
    return InvalidInput("method", type(query).__name__, rule, "use the game of two tables")


def refusal_of_secret(query: object) -> InvalidInput:
    """Canaries cannot be seen through a query whose answer depends on a secret."""
    rule = f"what {type(query).__name__} keeps secret stands between rows and releases"
    return InvalidInput("form", "printed", rule, "use the game of two tables")


def certain(answer: Array, exact: Array) -> Array:
    """Log density, shape (R,), of an answer without noise: nothing, or next to impossible."""
    return -_CERTAIN * (np.abs(answer - exact).max(axis=(1, 2)) > 1e-9)


def spherical(noise: Array, rate: Array) -> Array:
    """Log density, shape (R,), of spherical noise (R, 1, d) of this rate, up to a constant."""
    return np.asarray(-(rate * np.linalg.norm(noise, axis=-1, keepdims=True))[:, 0, 0])


def gaussian(noise: Array, sigma: Array) -> Array:
    """Log density, shape (R,), of Gaussian noise (R, 1, d), up to a constant."""
    return np.asarray(-0.5 * np.sum((noise / sigma) ** 2, axis=(1, 2)))


def vector(x: object) -> Array:
    """A public vector of one node and one replicate, or a scalar, with the leading axes off."""
    x = np.asarray(x, dtype=float)
    return x.reshape(-1) if x.size > 1 else x.reshape(())


def stiffness(canaries: Canaries, w: Array, q: float) -> Array:
    """The Hessian at w of the local objective with quadratic term q, sum scale."""
    return np.asarray(canaries.hessian(w) + canaries.sums * q * np.eye(len(w)))


def centre(canaries: Canaries, linear: Array, q: float, start: Array) -> tuple[Array, Array, Array]:
    """The minimiser if no canary leaned, by Newton steps; half-differences and the Hessian there."""
    w: Array = start
    best = (np.inf, start)
    for _ in range(12):
        middle, _ = canaries.gradients(w)
        g = middle + canaries.sums * (linear + q * w)
        size = float(np.linalg.norm(g))
        if size < best[0]:
            best = size, w
        if size < 1e-9 * canaries.sums * canaries.facts.C:
            break
        w = np.asarray(w - np.linalg.solve(stiffness(canaries, w, q), g), dtype=float)
    w = best[1]
    return w, canaries.gradients(w)[1], stiffness(canaries, w, q)
