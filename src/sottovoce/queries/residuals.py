"""Second moments of the rows, weighted by their squared residuals: what a robust covariance is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..problem.facts import Facts
from ..problem.losses import Loss
from ..problem.weighted_loss import weights
from ..util.typing import Array
from .bounded import SlopeMoments


@dataclass(frozen=True)
class ResidualMoments(SlopeMoments):
    """``(1/n) sum_k weight_k^2 clip(r_k / h, -1, 1)^2 a_k a_k'`` with residuals ``r = a.w - t``: norm at most 1.

    In units of ``h^2`` neither sensitivity nor event depends on `h`, which may follow from earlier releases.
    """

    h: float = 1.0

    def norm(self, facts: Facts) -> float:
        return 1.0

    def factors(self, loss: Loss, z: Array) -> Array:
        return np.asarray((weights(loss, z) * np.clip(z / self.h, -1.0, 1.0)) ** 2)
