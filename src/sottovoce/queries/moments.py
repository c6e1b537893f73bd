"""Second moments of the rows, released with noise, as principal components (003) need them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..problem.facts import Facts
from ..problem.losses import Loss
from ..problem.trust import RELATIONS
from ..util.typing import Array
from .statistic import NoisyValue
from .vault import Vault


@dataclass(frozen=True)
class SquaredMargin(Loss):
    """The loss ``z^2 / 2``, by whose gradients second moments are computed.

    Its mean gradient at the unit vector e_j is column j of the rows' second moments.  It is used
    only for rows in the unit ball and ``|w| <= 1``, where derivative and curvature are bounded by
    1.
    """

    name: ClassVar[str] = "squared margin"

    @property
    def curvature_bound(self) -> float:
        return 1.0

    def value(self, z: Array) -> Array:
        return z**2 / 2.0

    def derivative(self, z: Array) -> Array:
        return z

    def curvature(self, z: Array) -> Array:
        return 0.0 * z + 1.0

    @property
    def spec(self) -> str:
        return self.name


@dataclass(frozen=True)
class NoisyMoments(NoisyValue):
    """Second moments ``(1/n) sum_k x_k x_k'`` of every node's rows, flattened by :func:`flat`.

    Guarantee
    ---------
    In the Frobenius norm, which :func:`flat` keeps, ``||x x' - z z'||^2 = |x|^4 + |z|^4 - 2 (x.z)^2
    <= 2`` in the unit ball, attained by orthogonal unit rows: the sensitivity is ``sqrt(2) / n``,
    and ``1 / n`` for a row that is zeroed.
    """

    width: int = 0

    def exact_sensitivity(self, facts: Facts) -> Array:
        return np.sqrt(RELATIONS[facts.relation]) / facts.n

    def value(self, vault: Vault, facts: Facts) -> Array:
        nodes = len(facts.n)
        units = np.broadcast_to(np.eye(self.width)[:, None, :], (self.width, nodes, self.width))
        return flat(np.moveaxis(vault.solver.gradient(units), 0, 1))


def flat(S: Array) -> Array:
    """Flatten symmetric matrices (..., d, d) to vectors (..., d (d + 1) / 2) of the same norm."""
    i, j = np.triu_indices(S.shape[-1])
    # An entry off the diagonal stands twice in the Frobenius norm.
    return np.asarray(S[..., i, j] * np.where(i == j, 1.0, np.sqrt(2.0)))


def square(v: Array, d: int) -> Array:
    """Return the symmetric matrices (..., d, d) of vectors by :func:`flat`."""
    i, j = np.triu_indices(d)
    S = np.zeros((*v.shape[:-1], d, d))
    entries = v / np.where(i == j, 1.0, np.sqrt(2.0))
    S[..., i, j] = entries
    S[..., j, i] = entries
    return S
