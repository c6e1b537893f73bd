"""Dual variable perturbation (000 and 001, Algorithm 2): objective perturbation in every round.

The noise of a *law* (:mod:`sottovoce.queries`) is in sum scale: density ``exp(-rate ||b||)`` of b
in the objective times n / C.  ``corrected`` has the noise that a proof needs; ``printed`` is the
listing to the letter, with the privacy that the paper claims beside the one that is proved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..queries import GaussianLaw, PerturbedObjective, Query, SphericalLaw, noise_of_law
from ..util.constraints import Interval
from ..util.typing import Array
from .admm import ADMM, Augmented
from .base import Node
from .knobs import MethodOptions, knob, law, zeta


@dataclass(frozen=True)
class DVPOptions(MethodOptions):
    """Options of dual variable perturbation.

    Parameters
    ----------
    phi : float
        Extra curvature Phi of the corrected form: the log-determinant costs less, but the model has
        more bias.
    """

    phi: float = knob(
        0.0,
        "Extra curvature, DVP.",
        Interval(low=0, closed="low", why="a curvature is added, never taken"),
    )
    law: str = law()
    zeta: str = zeta()


@dataclass(frozen=True)
class DVP(ADMM):
    """ADMM with noise in the dual variable: objective perturbation in every round.

    ``noise`` is alpha_p(t) of a release: its pure epsilon, or with Gaussian noise its mu
    (sensitivity over sigma).

    Guarantee
    ---------
    Corrected: each release is alpha_p(t)-DP for one row of its node (U1 and U4 of
    :mod:`sottovoce.privacy.bounds`), and the run costs their sum.  Printed: the listing draws noise
    of rate ``alpha_hat``, but the proof needs ``alpha_hat / 2``; the claim of alpha_p(t) per
    release is false by up to a factor 2.  With `zeta` "proof" the noise is the proof's, and the
    claim holds, for the exact minimisers that a simulation computes.  That all rounds together cost
    no more (000, page 132, so read) is false of both.
    """

    form: str = "corrected"
    options: DVPOptions = DVPOptions()

    name: ClassVar[str] = "dvp"
    paper: ClassVar[str] = "000 and 001, Algorithm 2"
    summary: ClassVar[str] = "ADMM with noise in the dual variable, one release a round"
    releases: ClassVar[str] = "every round"
    noise_law: ClassVar[str] = "spherical or Gaussian, in the objective"
    good_for: ClassVar[str] = "pure epsilon with sites that differ"
    private: ClassVar[bool] = True
    objective_noise: ClassVar[bool] = True
    noise_weight: ClassVar[float] = 2.5
    forms: ClassVar[tuple[str, ...]] = ("corrected", "printed")

    def query_of_round(self, k: int, terms: Augmented, f: Array, node: Node) -> Query:
        """Return the query of round k: the augmented objective with noise in the dual variable.

        Parameters
        ----------
        k, terms, f, node
            As for :meth:`ADMM.query_of_round`.

        Returns
        -------
        PerturbedObjective
        """
        # 000, eq. (14): mu = lam + (C / 2n) b, so 2 mu.f in (13) is 2 lam.f + (C / n) b.f.  In sum
        # scale (times n / C) the noise term is b.f, and the law draws b.
        phi, law = self._noise_of_round(k, terms.curvature, node)
        return PerturbedObjective(
            terms.linear, terms.curvature + phi, f, law, f"000, Algorithm 2 ({self.form})"
        )

    def _noise_of_round(
        self, k: int, curvature: Array, node: Node
    ) -> tuple[Array, SphericalLaw | GaussianLaw | None]:
        phi = np.asarray(self.options.phi)
        if self.noise is None:
            return phi, None
        alpha, facts = self.noise(k), node.facts
        if self.form == "corrected":
            return phi, noise_of_law(self.options.law, alpha, curvature + phi, facts)
        return self.printed_noise(alpha, curvature, node, self.options.zeta)

    @staticmethod
    def printed_noise(
        alpha: Array, curvature: Array, node: Node, constants: str
    ) -> tuple[Array, SphericalLaw]:
        """Return the curvature and the noise of the listing for a claim of `alpha`.

        Parameters
        ----------
        alpha : array of shape (N, 1) or (1,)
            Pure epsilon that the paper claims for one release.
        curvature : array of shape (N, 1) or (1,)
            Curvature ``2 eta V`` that ADMM adds to a node's objective.
        node : Node
            Gives public facts of the node.
        constants : {"listing", "proof"}
            Which zeta: the proof of Theorem 1 (of 001 Theorem 5) ends "by selecting zeta =
            alpha_hat / 2", where the listing has alpha_hat; in both, alpha_hat is alpha / 2 where
            the determinant alone would cost more than alpha.

        Returns
        -------
        phi : array of shape (N, 1) or (1,)
            Extra curvature Phi.
        law : SphericalLaw
            Noise of rate zeta, without noise on the answer.
        """
        facts = node.facts
        # 000, Algorithm 2: alpha_hat = alpha - ln(1 + c1 / ((n/C)(rho + 2 eta V)))^2, where rho is
        # our mu = rho / N; if alpha_hat > 0, then Phi = 0.
        c1 = facts.loss.curvature_bound
        alpha_hat = alpha - 2 * np.log1p(c1 / facts.strong_convexity_of(curvature))
        # Otherwise Phi = c1 / ((n/C)(e^(alpha/4) - 1)) - rho - 2 eta V, at which the determinant
        # costs alpha / 2, and alpha_hat = alpha / 2.
        needed = facts.C * c1 / (facts.n * np.expm1(alpha / 4)) - facts.mu - curvature
        phi = np.where(alpha_hat > 0, 0.0, needed)
        rate = np.where(alpha_hat > 0, alpha_hat, alpha / 2)
        if constants == "proof":
            rate = rate / 2
        return phi, SphericalLaw(rate, polish=False, claimed=alpha)
