"""Types and helpers by which queries express what an auditor can learn from a release.

An auditor sees every public input and every answer.  A query that can be audited closely computes
how likely an answer is if a node held certain rows (:meth:`~sottovoce.queries.Query.log_density`),
and how it shifts with each of many canary rows
(:meth:`~sottovoce.queries.Query.canary_dependence`).  Both use the *stated* noise: if other noise
was drawn, scores remain valid, and the audit can detect the difference.  The rows are the auditor's
own guesses: nothing private is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..errors import InvalidInput
from ..problem.facts import Facts
from ..util.typing import Array
from .vault import Vault

# Log likelihood ratio of a release without noise that fits one of the tables only.
_CERTAIN = 1e6


@dataclass(frozen=True)
class Supposed:
    """Rows that an auditor supposes one node to hold.

    `vault` holds them, the secrets of earlier queries and no noise; `facts` are of this node alone;
    `signed`, shape (n, d), are the rows times their labels.
    """

    vault: Vault
    facts: Facts
    signed: Array


class Canaries(Protocol):
    """Rows of one node: known ones, and canaries, each with one of two values by a coin.

    `facts` are of this node alone, `count` is the number m of canaries, and `kept` holds what
    queries remember of earlier releases, by name.
    """

    facts: Facts
    sums: float  # n / C, the factor that brings a mean gradient to sum scale
    count: int
    kept: dict[str, Array]

    def gradients(self, w: Array, part: int = 0, parts: int = 1) -> tuple[Array, Array]:
        """Compute the data's gradient with each canary's mean, and how each canary's coin moves it.

        Parameters
        ----------
        w : array of shape (d,)
            Point at which to differentiate.
        part, parts : int
            Over the rows ``part, part + parts, ...`` only.

        Returns
        -------
        middle : array of shape (d,)
            The gradient, in sum scale, with the mean of each canary's two values.
        lean : array of shape (d, m)
            Half the difference of the gradients of each canary's two values.
        """

    def hessian(self, w: Array, part: int = 0, parts: int = 1) -> Array:
        """Compute the data's Hessian with each canary's mean, in sum scale.

        Parameters
        ----------
        w : array of shape (d,)
            Point at which to differentiate.
        part, parts : int
            Over the rows ``part, part + parts, ...`` only.

        Returns
        -------
        array of shape (d, d)
        """


@dataclass(frozen=True)
class Leaning:
    """A release to first order in the canaries, ``residual = lean @ signs + noise``.

    The signs are +1 and -1 by the coins.  Shapes are (d,) and (d, m); `covariance` is (d, d), or a
    number, the variance of each coordinate of the noise.
    """

    residual: Array
    lean: Array
    covariance: Array | float


def refusal_of_secret(query: object) -> InvalidInput:
    """Return the error for a query whose answer depends on a secret."""
    rule = f"the answer of {type(query).__name__} depends on a secret that the audit does not know"
    return InvalidInput("form", "printed", rule, "use the audit with two tables")


def certain_log_density(answer: Array, exact: Array) -> Array:
    """Return the log density, (R,), of an answer without noise: 0 if it fits, else very small."""
    return -_CERTAIN * (np.abs(answer - exact).max(axis=(1, 2)) > 1e-9)


def spherical_log_density(noise: Array, rate: Array) -> Array:
    """Return the log density, (R,), of spherical noise (R, 1, d), up to a constant."""
    return np.asarray(-(rate * np.linalg.norm(noise, axis=-1, keepdims=True))[:, 0, 0])


def gaussian_log_density(noise: Array, sigma: Array) -> Array:
    """Return the log density, (R,), of Gaussian noise (R, 1, d), up to a constant."""
    return np.asarray(-0.5 * np.sum((noise / sigma) ** 2, axis=(1, 2)))


def vector(x: object) -> Array:
    """Return a public vector (..., d) or scalar of one node and one replicate as (d,) or ()."""
    x = np.asarray(x, dtype=float)
    if x.size > 1:
        return x.reshape(-1)
    return x.reshape(())


def local_hessian(canaries: Canaries, w: Array, q: float) -> Array:
    """Compute the Hessian of the local objective, in sum scale.

    Parameters
    ----------
    canaries : Canaries
        Known rows of one node, and its canary rows.
    w : array of shape (d,)
        Point at which to differentiate.
    q : float
        Quadratic term, rho's part included.

    Returns
    -------
    array of shape (d, d)
    """
    return np.asarray(canaries.hessian(w) + canaries.sums * q * np.eye(len(w)))


def local_minimiser(
    canaries: Canaries, linear: Array, q: float, start: Array
) -> tuple[Array, Array, Array]:
    """Minimise the local objective with the mean of each canary's two values, by Newton steps.

    Parameters
    ----------
    canaries : Canaries
        Known rows of one node, and its canary rows.
    linear : array of shape (d,)
        Public linear term.
    q : float
        Quadratic term, rho's part included, > 0.
    start : array of shape (d,)
        Point from which Newton's method starts.

    Returns
    -------
    w : array of shape (d,)
        The point of the least gradient among at most 12 steps.
    lean : array of shape (d, m)
        Half the difference of the gradients there of each canary's two values.
    hessian : array of shape (d, d)
        The objective's Hessian there, in sum scale.
    """
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
        w = np.asarray(w - np.linalg.solve(local_hessian(canaries, w, q), g), dtype=float)
    w = best[1]
    return w, canaries.gradients(w)[1], local_hessian(canaries, w, q)
