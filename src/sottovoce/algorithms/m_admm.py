"""M-ADMM (Zhang, Khalili and Liu, ICML 2018): penalty perturbation, the baseline of 002 and 004."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..queries import PerturbedObjective, Query, SphericalLaw
from ..util.typing import Array
from .admm import ADMM, Augmented
from .base import Node
from .printed_conditions import check_curvature, check_growing


@dataclass(frozen=True)
class MADMM(ADMM):
    """ADMM with noise in its penalty terms.

    The penalty term of node i is ``eta_i(t) sum_j ||(f_i + f_j)/2 + eps_i(t) - f||^2`` with eps of
    density ``exp(-alpha ||eps||)``.  Its cross term ``-2 eta V eps.f`` is objective perturbation by
    ``b = -(n/C) 2 eta V eps`` in sum scale, of rate ``C alpha / (2 eta V n)``.  The dual step uses
    the first round's penalty, as in the paper.

    Guarantee
    ---------
    Corrected: U1 and U4 for every round.  As printed: the claimed sum of ``C (1.4 c1 + alpha) /
    (eta V n)`` holds, but is loose.
    """

    form: str = "corrected"

    name: ClassVar[str] = "m_admm"
    paper: ClassVar[str] = "Zhang, Khalili and Liu (ICML 2018), a baseline of 002 and 004"
    summary: ClassVar[str] = "ADMM with noise in the penalty, one release a round"
    releases: ClassVar[str] = "every round"
    noise_law: ClassVar[str] = "spherical, in the objective"
    good_for: ClassVar[str] = "comparisons with 002 and 004"
    equals: ClassVar[str] = "dvp"
    private: ClassVar[bool] = True
    objective_noise: ClassVar[bool] = True
    noise_weight: ClassVar[float] = 2.5
    forms: ClassVar[tuple[str, ...]] = ("corrected", "printed")

    def check(self, node: Node) -> None:
        if self.form == "printed" and self.noise is not None:
            paper = "the theorem on M-ADMM (Zhang, Khalili and Liu 2018)"
            check_growing(self.penalty, paper)
            check_curvature(self.penalty, node, paper)

    def query_of_round(self, k: int, terms: Augmented, f: Array, node: Node) -> Query:
        """Return the query of round k: the augmented objective with noise in its penalty terms.

        Parameters
        ----------
        k, terms, f, node
            As for :meth:`ADMM.query_of_round`.

        Returns
        -------
        PerturbedObjective
        """
        return PerturbedObjective(*terms, f, self._noise_of_round(k, node), f"M-ADMM ({self.form})")

    def dual_penalty(self, k: int) -> Array:
        return self.penalty(1)

    def _noise_of_round(self, k: int, node: Node) -> SphericalLaw | None:
        if self.noise is None:
            return None
        facts, alpha = node.facts, self.noise(k)
        # C / (eta V n): the noise b has the rate scale alpha / 2 (see the class).
        scale = facts.C / (self.penalty(k) * np.maximum(node.net.degree, 1.0) * facts.n)
        if self.form == "corrected":
            return SphericalLaw(scale * alpha / 2)
        return SphericalLaw(
            scale * alpha / 2,
            polish=False,
            claimed=scale * (1.4 * facts.loss.curvature_bound + alpha),
        )
