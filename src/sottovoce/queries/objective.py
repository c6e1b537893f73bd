"""Objective perturbation: minimise the local objective with a random linear term (003, Alg. 2; U1 and U4).

Guarantee
---------
With a noise law, an answer is pure epsilon-DP for one row of its node with the epsilon that
:class:`sottovoce.privacy.accountants.PureAccountant` gives for its event, whatever public vectors enter ``linear`` and
``start``: the bound depends on public curvatures only, never on messages.  Without a law nothing is guaranteed, and
the event says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import InvalidInput
from ..facts import Facts
from ..privacy.bounds import objective_perturbation_epsilon, objective_perturbation_rate
from ..privacy.events import Event, SphericalObjectivePerturbation, Unprotected
from ..solvers import certified_error
from ..typing import Array, ArrayLike
from .base import Query, Vault

POLISH = 0.01
"""Share of a release's epsilon that pays for the noise on the solver's answer (U4)."""


def _loss_terms(facts: Facts) -> dict[str, float | bool]:
    return {
        "delta_gradient": facts.gradients_changed * facts.loss.slope_bound,
        "bend_bound": facts.loss.bend_bound,
        "logistic": facts.loss.name == "logistic",
    }


def rate_for_epsilon(epsilon: ArrayLike, curvature: ArrayLike, facts: Facts) -> Array:
    """The noise rate ``beta`` (sum scale) at which one polished release costs `epsilon`, per node.

    Raises
    ------
    InvalidInput
        If the curvature alone costs more than `epsilon`, whatever the noise.
    """
    exact = np.asarray(epsilon, dtype=float) / (1.0 + POLISH)
    rate = objective_perturbation_rate(exact, facts.K(curvature), **_loss_terms(facts))  # type: ignore[arg-type]
    if np.any(np.isnan(rate)):
        rule = "a release costs more than this through its curvature alone, whatever the noise"
        raise InvalidInput("alpha", np.min(epsilon).item(), rule, "raise alpha, eta, phi or rho")
    return rate


@dataclass(frozen=True)
class SphericalLaw:
    """Noise of density ``exp(-rate ||b||)`` in sum scale, shape (..., 1).

    ``polish`` adds spherical noise to the solver's answer so that its inexactness is inside the proof, at the price
    of a further share :data:`POLISH`; printed forms leave it out, and their price then assumes exact minimisation.
    ``claimed`` is the paper's own per-release epsilon, recorded beside the price.
    """

    rate: Array
    polish: bool = True
    claimed: Array | None = None


@dataclass(frozen=True)
class PerturbedObjective(Query):
    """``argmin f_i(w) + linear.w + curvature ||w||^2 / 2 + (C/n_i) b.w``, ``b`` from the law (none: no noise).

    Parameters
    ----------
    linear, start : array (..., d)
        Public linear term; public starting point of the solver.
    curvature : array (..., 1)
        Public quadratic term.
    noise : SphericalLaw or None
    source : str
        Where the mechanism comes from.
    """

    linear: Array
    curvature: Array
    start: Array
    noise: SphericalLaw | None
    source: str

    def _per_node(self, x: ArrayLike, facts: Facts) -> Array:
        return np.broadcast_to(np.asarray(x, dtype=float), facts.n.shape)

    def _error(self, facts: Facts) -> Array:
        q = facts.mu + self._per_node(self.curvature, facts)
        return certified_error(facts.C, facts.tol, q)

    def _release_rate(self, facts: Facts, law: SphericalLaw) -> Array:
        """``beta_release`` whose price 2 beta_release error is the share POLISH of the exact minimiser's."""
        exact = objective_perturbation_epsilon(
            self._per_node(law.rate, facts), facts.K(self.curvature), **_loss_terms(facts)  # type: ignore[arg-type]
        )  # fmt: skip
        return POLISH * exact / (2.0 * self._error(facts)) if law.polish else np.zeros_like(exact)

    def event(self, facts: Facts) -> Event:
        law = self.noise
        if law is None:
            return Unprotected(source=self.source, rows=facts.n)
        return SphericalObjectivePerturbation(
            source=self.source,
            beta=self._per_node(law.rate, facts),
            K=self._per_node(facts.K(self.curvature), facts),
            dimension=facts.d,
            error=self._error(facts),
            beta_release=self._release_rate(facts, law),
            claimed=None if law.claimed is None else self._per_node(law.claimed, facts),
            **_loss_terms(facts),  # type: ignore[arg-type]
        )

    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        law, linear = self.noise, self.linear
        if law is not None:
            b = vault.noise.spherical(facts.d, release) / law.rate
            linear = linear + facts.C / facts.n * b
        q = facts.mu + np.asarray(self.curvature, dtype=float)
        solution = vault.solver.minimise(linear, q, self.start, facts.tol)
        if law is None or not law.polish:
            return solution.w
        return solution.w + vault.noise.spherical(facts.d, release, use=1) / self._release_rate(facts, law)

    def replay(self, vault: Vault) -> None:
        vault.solver.skip(self.start)

    def blank(self, facts: Facts) -> Array:
        return np.zeros_like(self.start)
