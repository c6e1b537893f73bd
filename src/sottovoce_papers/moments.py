"""A query for the second moments of the rows with noise, from which 003's principal components are
computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sottovoce.problem.facts import Facts
from sottovoce.problem.losses import Loss
from sottovoce.problem.trust import RELATIONS
from sottovoce.queries.moments import flatten_symmetric
from sottovoce.queries.statistic import NoisyValue
from sottovoce.queries.vault import Vault
from sottovoce.util.typing import Array


@dataclass(frozen=True)
class SquaredMargin(Loss):
    """``z^2 / 2``: its mean gradient at the unit vector e_j is column j of the rows' second
    moments.

    It is used only for rows in the unit ball and ``|w| <= 1``, where derivative and curvature are
    bounded by 1.
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
    """Second moments ``(1/n) sum_k x_k x_k'`` (width, width) of every node's rows, with noise.

    They are flattened by :func:`sottovoce.queries.moments.flatten_symmetric`.

    Guarantee
    ---------
    In the Frobenius norm, which ``flatten_symmetric`` keeps, ``||x x' - z z'||^2 = |x|^4 + |z|^4 -
    2 (x.z)^2 <= 2`` in the unit ball, attained by orthogonal unit rows: the sensitivity is
    ``sqrt(2) / n``, and ``1 / n`` for a row that is zeroed.
    """

    width: int = 0

    def exact_sensitivity(self, facts: Facts) -> Array:
        return np.sqrt(RELATIONS[facts.relation]) / facts.n

    def exact_statistic(self, vault: Vault, facts: Facts) -> Array:
        nodes = len(facts.n)
        units = np.broadcast_to(np.eye(self.width)[:, None, :], (self.width, nodes, self.width))
        return flatten_symmetric(np.moveaxis(vault.solver.gradient(units), 0, 1))
