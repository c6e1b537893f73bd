"""One private release per site, then averaging over the graph (003, chapter 3: Algorithms 1 to 3).

003's objective is a mean loss plus ``Lambda ||f||^2 / 2`` with C = 1.  Here Lambda is the sum of
the regulariser and the method's own ridge: ``rho / N + penalty``.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..errors import InvalidInput
from ..queries import (
    GaussianLaw,
    NoisyMinimiser,
    PerturbedObjective,
    Query,
    SphericalLaw,
    noise_of_law,
)
from ..util.typing import Array
from .base import Algorithm, Node
from .knobs import CappedOptions, MethodOptions, law
from .prox import MIXED


class OneShotState(NamedTuple):
    """Public state of a node after round t."""

    f: Array  # the site's release, averaged with the neighbours' round by round  (..., d)
    S: Array  # sum_j f_j over the neighbours                                     (..., d)


@dataclass(frozen=True)
class OneShot(Algorithm[OneShotState]):
    """One release per site in round 1; later rounds average over the graph (post-processing)."""

    form: str = "corrected"

    releases: ClassVar[str] = "once"
    forms: ClassVar[tuple[str, ...]] = ("corrected", "printed")
    curvature: ClassVar[str] = "node"
    least_penalty: ClassVar[float] = 0.0003
    single: ClassVar[bool] = True
    induced: ClassVar[str] = MIXED

    def init(self, node: Node) -> OneShotState:
        return OneShotState(node.zero_vector(), node.zero_vector())

    def round(self, k: int, state: OneShotState, node: Node) -> OneShotState:
        """Run round k: the one release in round 1, an averaging step in later rounds.

        Parameters
        ----------
        k, state, node
            As for :meth:`Algorithm.round`.

        Returns
        -------
        OneShotState
        """
        f, S = state
        if k == 1:
            f = node.ask(self.query(node))
        else:
            # Post-processing of what was released in round 1: it costs nothing.
            f = f + node.facts.mixing_weight * (S - node.net.degree * f)
        return OneShotState(f, node.net.neighbour_sum(f))

    @abstractmethod
    def query(self, node: Node) -> Query:
        """Return the query of the one release."""


@dataclass(frozen=True)
class Output(OneShot):
    """Output perturbation (003, Algorithm 1): the exact minimiser plus noise.

    003's Lambda is ``rho / N + penalty``.

    Guarantee
    ---------
    U7 (:class:`sottovoce.queries.NoisyMinimiser`), for one release.  The paper's claim holds for
    exact minimisers, and is about losses whose gradients have norm at most 1: others are refused in
    the printed form.
    """

    options: CappedOptions = CappedOptions()

    name: ClassVar[str] = "output"
    paper: ClassVar[str] = "003, Algorithm 1"
    summary: ClassVar[str] = "output perturbation at every site, then the average"
    noise_law: ClassVar[str] = "Gaussian (pure: spherical), on the answer"
    good_for: ClassVar[str] = "one release of any loss; sites alike"
    noise_weight: ClassVar[float] = 1.0

    def check(self, node: Node) -> None:
        loss = node.facts.loss
        if self.form == "printed" and self.noise is not None and loss.derivative_bound > 1.0:
            rule = (
                "the claim of 003 (chapter 3) needs |l'| <= 1, but a row's gradient has norm up to "
                f"{loss.derivative_bound:.3g} here"
            )
            raise InvalidInput("loss", loss.spec, rule, "use another loss, or form='corrected'")

    def query(self, node: Node) -> Query:
        alpha = self._noise_parameter(1)
        claimed = None
        # 003, Algorithm 1: noise of rate n Lambda epsilon / 2, which is what `alpha` = epsilon
        # gives here too, so the claim holds as printed.
        if self.form == "printed":
            claimed = alpha
        source = f"003, Algorithm 1 ({self.form})"
        return NoisyMinimiser(node.zero_vector(), alpha, source, claimed, curvature=self.penalty(1))


@dataclass(frozen=True)
class ObjectiveOptions(MethodOptions):
    """Options of objective perturbation."""

    law: str = law()


@dataclass(frozen=True)
class Objective(OneShot):
    """Objective perturbation (003, Algorithm 2): noise in the objective.

    003's Lambda is ``rho / N + penalty``.

    Guarantee
    ---------
    U1 and U4 (spherical noise), or U3 and U4 (Gaussian).  As printed: the claim holds for exact
    minimisers, but is loose.
    """

    options: ObjectiveOptions = ObjectiveOptions()

    name: ClassVar[str] = "objective"
    paper: ClassVar[str] = "003, Algorithm 2"
    summary: ClassVar[str] = "objective perturbation at every site, then the average"
    noise_law: ClassVar[str] = "spherical or Gaussian, in the objective"
    good_for: ClassVar[str] = "one release; one site, or sites alike"
    objective_noise: ClassVar[bool] = True
    noise_weight: ClassVar[float] = 0.3

    def query(self, node: Node) -> Query:
        zero, q = node.zero_vector(), self.penalty(1)
        if self.noise is None:
            return PerturbedObjective(zero, q, zero, None, self.paper)
        alpha = self.noise(1)
        if self.form == "corrected":
            law = noise_of_law(self.options.law, alpha, q, node.facts)
            return PerturbedObjective(zero, q, zero, law, f"{self.paper} (corrected)")
        q, printed = self._printed(alpha, q, node)
        return PerturbedObjective(zero, q, zero, printed, f"{self.paper} (printed)")

    def _printed(
        self, alpha: Array, q: Array, node: Node
    ) -> tuple[Array, SphericalLaw | GaussianLaw]:
        # 003, Algorithm 2, step 1: epsilon' = epsilon - 2 ln(1 + c1 / (n Lambda)); if it is <= 0,
        # the ridge grows by Delta = c1 / (n (e^(epsilon/4) - 1)) - Lambda, and epsilon' = epsilon /
        # 2.  003 prints e^(c / 2 Lambda) there; its source and its author's code have e^(epsilon/4)
        # (docs/privacy/verdicts.md, "Objective perturbation").
        facts, c1 = node.facts, node.facts.loss.curvature_bound
        rest = alpha - 2 * np.log1p(c1 / facts.strong_convexity_of(q))
        needed = facts.C * c1 / (facts.n * np.expm1(alpha / 4)) - facts.mu
        q = np.where(rest > 0, q, needed)
        # Step 2: noise of rate epsilon' / 2.
        return q, SphericalLaw(np.where(rest > 0, rest, alpha / 2) / 2, polish=False, claimed=alpha)


@dataclass(frozen=True)
class Generalised(Objective):
    """Generalised objective perturbation (003, Algorithm 3, after Kifer).

    Gaussian noise is offered in the corrected form only.

    Guarantee
    ---------
    Corrected: that of objective perturbation.  The printed claim is proved for a row that is added
    or removed.  For a row that is replaced it is false (docs/privacy/verdicts.md), and the stated
    price is what can be proved.
    """

    name: ClassVar[str] = "generalised"
    paper: ClassVar[str] = "003, Algorithm 3"
    summary: ClassVar[str] = "generalised objective perturbation at every site, then the average"
    good_for: ClassVar[str] = "003 as it is"
    equals: ClassVar[str] = "objective"

    def _printed(
        self, alpha: Array, q: Array, node: Node
    ) -> tuple[Array, SphericalLaw | GaussianLaw]:
        facts, c1 = node.facts, node.facts.loss.curvature_bound
        # 003, Algorithm 3: a ridge Delta / n with Delta >= 2 lambda / epsilon, where lambda bounds
        # the Hessian's eigenvalues: c1 here.
        q = np.maximum(q, 2 * c1 * facts.C / (alpha * facts.n) - facts.mu)
        # Noise of rate epsilon / (2 zeta), where zeta bounds the gradients' norms: 1 here.
        return q, SphericalLaw(alpha / 2, polish=False, claimed=alpha)
