"""Private modified R-ADMM (002, Algorithm 3): every second round reuses earlier releases.

Equation numbers are those of 002; symbols are those of :mod:`sottovoce.algorithms.admm`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..queries import (
    GaussianLaw,
    NoisyMinimiser,
    PerturbedObjective,
    Query,
    SphericalLaw,
    check_law,
)
from ..util.constraints import Interval, OneOf
from ..util.typing import Array
from .admm import INDUCED, augmented_terms, updated_dual
from .base import Algorithm, Node
from .knobs import MethodOptions, knob, law
from .printed_conditions import check_curvature, check_growing


class RecycledState(NamedTuple):
    """Public state of a node after round t."""

    f: Array  # f_i(t), last sent                                          (..., d)
    S: Array  # sum_j f_j(t) over the neighbours j                         (..., d)
    lam: Array  # lambda_i(t)                                              (..., d)
    g: Array  # grad O(f_i(2k-1)) + noise, by the KKT condition of (18)    (..., d)


@dataclass(frozen=True)
class MRADMMOptions(MethodOptions):
    """Options of R-ADMM and MR-ADMM.

    Parameters
    ----------
    law : {"spherical", "gaussian"}
        Law of the corrected form's noise e: density ``exp(-alpha ||e||)`` or ``N(0, I / alpha^2)``.
    perturbation : {"objective", "output"}
        Where the noise of odd rounds is: in the objective, (18), or on its minimiser (002, section
        VII-B), which U7 prices, also for losses of several classes.  ``noise`` is then as in
        :class:`sottovoce.queries.NoisyMinimiser`.
    """

    gamma: float = knob(
        0.1,
        "Weight gamma of the proximal term in even rounds, mr_admm and r_admm.",
        Interval(low=0, closed="low", why="it adds to a curvature (002, section III)"),
    )
    law: str = law()
    perturbation: str = knob(
        "objective",
        "Where mr_admm and r_admm add noise: objective (inside it) or output (on its minimiser).",
        OneOf("objective", "output"),
        form="corrected",
    )


@dataclass(frozen=True)
class MRADMM(Algorithm[RecycledState]):
    """Modified recycled ADMM: a release in odd rounds, and a step from public values in even ones.

    Odd rounds release a perturbed minimiser; even rounds make a linearised step.  ``penalty`` is
    eta_i(2k-1) and ``noise`` is alpha_i(k), the rate of the noise in the node's objective, both
    indexed by the odd round's number k = 1, 2, ...

    Guarantee
    ---------
    Corrected: pure epsilon, U1 and U4 of :mod:`sottovoce.privacy.bounds` summed over odd rounds;
    even rounds are post-processing, because their gradient is the right-hand side of the KKT
    condition at *released* values (Lemma 2 fails for a gradient stored at an inexact minimiser).
    Printed: Theorem 2 holds for exact minimisers, but is loose; the ledger records the provable
    price with the claim (32).
    """

    form: str = "corrected"
    options: MRADMMOptions = MRADMMOptions()

    name: ClassVar[str] = "mr_admm"
    paper: ClassVar[str] = "002, Algorithms 2 and 3"
    summary: ClassVar[str] = (
        "recycled ADMM with per-node penalty schedules: a release every second round"
    )
    releases: ClassVar[str] = "every second round"
    noise_law: ClassVar[str] = "spherical or Gaussian, in the objective"
    good_for: ClassVar[str] = "pure epsilon; penalties that grow or differ between sites"
    forms: ClassVar[tuple[str, ...]] = ("corrected", "printed")
    objective_noise: ClassVar[bool] = True
    noise_weight: ClassVar[float] = 2.5
    induced: ClassVar[str] = INDUCED

    def check(self, node: Node) -> None:
        check_growing(self.penalty, "002, Theorem 1")
        if self.form == "printed" and self.noise is not None:
            check_curvature(self.penalty, node, "002, Algorithm 3")

    def init(self, node: Node) -> RecycledState:
        zero = node.zero_vector()
        return RecycledState(f=zero, S=zero, lam=zero, g=zero)

    def round(self, k: int, state: RecycledState, node: Node) -> RecycledState:
        """Run round k: in odd rounds release a minimiser, in even rounds reuse public values.

        Parameters
        ----------
        k, state, node
            As for :meth:`Algorithm.round`.

        Returns
        -------
        RecycledState
        """
        f, S, lam, g = state
        # Rounds 2 odd - 1 and 2 odd of the paper share the penalty eta_i(2 odd - 1).
        odd = (k + 1) // 2
        V = node.net.degree
        eta = self.penalty(odd)
        if k % 2 == 1:
            # 002, (18): the perturbed minimiser of the augmented objective.
            linear, curvature = augmented_terms(eta, V, f, S, lam)
            new = node.ask(self._query(odd, f, linear, curvature, node))
            # epsilon_i + grad O(f_i) by the KKT condition of (18) (the display before (19)), from
            # public quantities only.
            g = -linear - curvature * new
            # 002, (15): the dual step, without the duals of edges that were lost.
            S = node.net.neighbour_sum(new)
            lam = updated_dual(eta, V, new, S, lam) - node.lost_dual(eta / 2)
            return RecycledState(new, S, lam, g)
        # 002, (19): a linearised step with the stored gradient g; (17) keeps the dual variable.
        f = f - (2 * lam + g + eta * (V * f - S)) / (2 * eta * V + self.options.gamma)
        S = node.net.neighbour_sum(f)
        return RecycledState(f, S, lam - node.lost_dual(0.0), g)

    def _query(self, odd: int, f: Array, linear: Array, curvature: Array, node: Node) -> Query:
        if self.options.perturbation == "output" and self.noise is not None:
            return NoisyMinimiser(
                f, self.noise(odd), "002, section VII-B (corrected)", None, linear, curvature
            )
        law = self._noise_of_round(odd, curvature, node)
        return PerturbedObjective(linear, curvature, f, law, f"002, eq. (18) ({self.form})")

    def _noise_of_round(
        self, odd: int, curvature: Array, node: Node
    ) -> SphericalLaw | GaussianLaw | None:
        if self.noise is None:
            return None
        facts, alpha = node.facts, self.noise(odd)
        # 002 draws e of density exp(-alpha ||e||) for a mean over rows; in sum scale the noise is
        # b = (n / C) e, of rate alpha C / n.
        beta = alpha * facts.C / facts.n
        if self.form == "corrected":
            check_law(self.options.law, facts)
            if self.options.law == "spherical":
                return SphericalLaw(beta)
            return GaussianLaw(1 / beta)
        # The summand of (32): the epsilon that 002 claims for this release.
        claimed = (
            2
            * facts.C
            / facts.n
            * (1.4 * facts.loss.curvature_bound / (facts.mu + curvature) + alpha)
        )
        return SphericalLaw(beta, polish=False, claimed=claimed)
