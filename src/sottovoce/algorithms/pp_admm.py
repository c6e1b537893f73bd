"""Plausible ADMM (004, Algorithm 1: PP-ADMM): Gaussian noise in the objective and on its minimiser.

004's epsilon_i1 at delta_i1 is for the noise in the objective, of which epsilon_i3 sizes the noise
and the rest the regulariser; rho_i2 is for the noise on the answer, in zCDP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..problem.facts import Facts
from ..queries import GaussianLaw, PerturbedObjective, Query, check_law, noise_of_law
from ..util.constraints import Interval
from ..util.typing import Array
from .admm import ADMM, Augmented
from .base import Node
from .knobs import MethodOptions, knob
from .printed_conditions import LEFT_FOR_CURVATURE, check_line_3


@dataclass(frozen=True)
class PPADMMOptions(MethodOptions):
    """Options of Plausible ADMM, which only its printed form reads."""

    split: float = knob(
        0.001,
        "Share of a release's rho for noise on the answer, rho_2.",
        Interval(0, 1, closed="neither"),
        form="printed",
    )
    tolerance: float = knob(
        10.0**-3.5,
        "Gradient norm at which the listing's solver stops, in units of C.",
        Interval(0, 1e9, closed="neither"),
        form="printed",
    )
    delta1: float = knob(
        1e-5, "delta_i1 of the listing.", Interval(0, 1, closed="neither"), form="printed"
    )


@dataclass(frozen=True)
class PPADMM(ADMM):
    """ADMM with Gaussian noise in the objective and on the solver's answer.

    ``noise`` is a release's mu (sensitivity over sigma): it costs ``mu^2 / 2`` in zCDP.

    Guarantee
    ---------
    Corrected: U3 (noise in the objective) and U4 with the solver's certificate (noise on its
    answer), and no extra regulariser, because the penalty replaces it.  As printed, Theorem 3.3 is
    false in general; in the paper's own settings it holds, with a margin that depends on beta
    (docs/privacy/verdicts.md).  The claim assumes the regulariser of line 3: printed runs with a
    smaller one are refused.
    """

    form: str = "corrected"
    options: PPADMMOptions = PPADMMOptions()

    name: ClassVar[str] = "pp_admm"
    paper: ClassVar[str] = "004, Algorithm 1"
    summary: ClassVar[str] = (
        "ADMM with Gaussian noise in the objective and on the answer, one release a round"
    )
    releases: ClassVar[str] = "every round"
    noise_law: ClassVar[str] = "Gaussian, in the objective and on the answer"
    good_for: ClassVar[str] = "sites that differ, with a delta"
    private: ClassVar[bool] = True
    objective_noise: ClassVar[bool] = True
    noise_weight: ClassVar[float] = 2.5
    needs_delta: ClassVar[bool] = True
    forms: ClassVar[tuple[str, ...]] = ("corrected", "printed")
    listed_share: ClassVar[float] = 1.0 - LEFT_FOR_CURVATURE
    """epsilon_i3 over epsilon_i1 (section 5): the listing's noise is for epsilon_i3."""

    def check(self, node: Node) -> None:
        if self.noise is not None:
            check_law("gaussian", node.facts)

    def check_claim(self, facts: Facts, rounds: int) -> None:
        if self.form == "printed" and self.noise is not None:
            noises = [self.noise(k) for k in self._rounds_of_releases(rounds)]
            check_line_3(noises, self.options.split, self.options.delta1, facts)

    def _rounds_of_releases(self, rounds: int) -> list[int]:
        """Return rounds among which is the one whose release claims least.

        Noise that grows or falls has it in the first or last round; a table may have it anywhere.
        """
        if self.noise is not None and self.noise.table is not None:
            return list(range(1, rounds + 1))
        return [1, rounds]

    def query_of_round(self, k: int, terms: Augmented, f: Array, node: Node) -> Query:
        """Return the query of round k: the augmented objective with Gaussian noise in it.

        Parameters
        ----------
        k, terms, f, node
            As for :meth:`ADMM.query_of_round`.

        Returns
        -------
        PerturbedObjective
        """
        law = self._noise_of_round(k, terms.curvature, node)
        tol = None
        if self.form == "printed" and law is not None:
            tol = self.options.tolerance
        return PerturbedObjective(*terms, f, law, f"004, Algorithm 1 ({self.form})", tol)

    def _noise_of_round(self, k: int, curvature: Array, node: Node) -> GaussianLaw | None:
        if self.noise is None:
            return None
        alpha, facts = self.noise(k), node.facts
        if self.form == "corrected":
            law = noise_of_law("gaussian", alpha, curvature, facts)
            assert isinstance(law, GaussianLaw)
            return law
        return self.printed_noise(alpha, curvature, node)

    def printed_noise(self, alpha: Array, curvature: Array, node: Node) -> GaussianLaw:
        """Return the noise of the listing for a release that claims ``alpha^2 / 2`` in zCDP.

        Parameters
        ----------
        alpha : array of shape (N, 1) or (1,)
            Sensitivity over sigma of the claim.
        curvature : array of shape (N, 1) or (1,)
            Quadratic term that ADMM adds to a node's objective.
        node : Node
            Gives public facts of the node.

        Returns
        -------
        GaussianLaw
            With the listing's noise in the objective and on the answer.
        """
        facts = node.facts
        rho = 0.5 * alpha**2  # rho_1 + rho_2
        # Theorem 3.1: rho_1 as an epsilon_i1 at delta_i1, for which the objective's noise is
        # scaled.
        e1 = np.sqrt(4 * rho * (1 - self.options.split) * np.log(1 / self.options.delta1))
        # 004, line 6: sigma_i1 = 2 sqrt(2 ln(1.25 / delta_i1)) / (|D_i| epsilon_i3) for a mean over
        # |D_i| rows; in sum scale, as all noise in objectives, without |D_i|.
        sigma = 2 * np.sqrt(2 * np.log(1.25 / self.options.delta1)) / (self.listed_share * e1)
        # 004, line 9: sigma_i2 = beta / (sqrt(2 rho_i2) (lambda / N + 2 eta |B_i|)), where the
        # solver stops at a gradient norm beta = tolerance C.
        q = facts.mu + curvature
        sigma2 = self.options.tolerance * facts.C / (np.sqrt(2 * rho * self.options.split) * q)
        return GaussianLaw(sigma, release=sigma2, claimed_rho=rho)
