"""Types in which queries express what an auditor can learn from a release, and code that queries share.

An auditor sees every public input and every answer.  A query that can be audited closely computes how likely an answer
is if a node held certain rows (:meth:`~sottovoce.queries.Query.log_density`), and how it shifts with each of many
canary rows (:meth:`~sottovoce.queries.Query.leaning`).  Both use the *stated* noise: if other noise was drawn, scores
remain valid, and the audit can detect the difference.  The rows are the auditor's own guesses: nothing private is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..errors import InvalidInput
from ..problem.facts import Facts
from ..util.typing import Array
from .vault import Vault

_CERTAIN = 1e6  # the log ratio of a release without noise that fits one table and not the other


@dataclass(frozen=True)
class Supposed:
    """Rows that an auditor supposes one node to hold.

    `vault` holds them, the secrets of earlier queries and no noise; `facts` are of this node alone; `signed`, shape
    (n, d), are the rows times their labels.
    """

    vault: Vault
    facts: Facts
    signed: Array


class Canaries(Protocol):
    """Rows of one node, all known except canaries; a coin decides which of two values each canary has.

    `facts` are of this node alone, and `kept` is what queries remember of earlier releases, by name.
    """

    facts: Facts
    sums: float  # n / C, the factor that brings a mean gradient to sum scale
    count: int
    kept: dict[str, Array]

    def gradients(self, w: Array, part: int = 0, parts: int = 1) -> tuple[Array, Array]:
        """Sum scale, at w (d,): the gradient (d,) with each canary's mean, and half its difference by coin (d, m)."""

    def hessian(self, w: Array, part: int = 0, parts: int = 1) -> Array:
        """The Hessian (d, d) at w (d,) in sum scale, with each canary's mean."""


@dataclass(frozen=True)
class Leaning:
    """A release to first order in the canaries: ``residual = lean @ signs + noise``, with signs +-1 by the coins.

    Shapes are (d,) and (d, m); `covariance` is (d, d), or a number, the variance of each coordinate of the noise.
    """

    residual: Array
    lean: Array
    covariance: Array | float


def refusal_of_secret(query: object) -> InvalidInput:
    """The error for a query whose answer depends on a secret."""
    rule = f"what {type(query).__name__} keeps secret stands between rows and releases"
    return InvalidInput("form", "printed", rule, "use the game of two tables")


def certain(answer: Array, exact: Array) -> Array:
    """Log density, shape (R,), of an answer without noise: 0 if it fits, else a very large negative number."""
    return -_CERTAIN * (np.abs(answer - exact).max(axis=(1, 2)) > 1e-9)


def spherical(noise: Array, rate: Array) -> Array:
    """Log density, shape (R,), of spherical noise (R, 1, d) of this rate, up to a constant."""
    return np.asarray(-(rate * np.linalg.norm(noise, axis=-1, keepdims=True))[:, 0, 0])


def gaussian(noise: Array, sigma: Array) -> Array:
    """Log density, shape (R,), of Gaussian noise (R, 1, d), up to a constant."""
    return np.asarray(-0.5 * np.sum((noise / sigma) ** 2, axis=(1, 2)))


def vector(x: object) -> Array:
    """A public vector or scalar of one node and one replicate, without the leading axes."""
    x = np.asarray(x, dtype=float)
    return x.reshape(-1) if x.size > 1 else x.reshape(())


def stiffness(canaries: Canaries, w: Array, q: float) -> Array:
    """The Hessian at w of the local objective with quadratic term q, sum scale."""
    return np.asarray(canaries.hessian(w) + canaries.sums * q * np.eye(len(w)))


def centre(canaries: Canaries, linear: Array, q: float, start: Array) -> tuple[Array, Array, Array]:
    """The minimiser for the mean over canaries' two values, by Newton steps; half-differences and Hessian there."""
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
