"""Primal variable perturbation (001, Algorithm 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..queries import SecretMinimiser
from ..typing import Array
from .base import Site, augment, dual
from .prox import DualState, ProxADMM


@dataclass(frozen=True)
class PVP(ProxADMM):
    """Nodes send their minimisers with noise on them; ``noise`` is alpha_p(t).

    Guarantee
    ---------
    Corrected: U7, a node's own state being what it sent.  Printed (V is sent, as in the text; the listing's f would
    have no guarantee): the node keeps its exact minimiser; the claim, the sum of all alphas, holds by the recursion of
    docs/privacy/verdicts.md, at a noise that is ``1 + 2 eta V N / rho`` times larger.  The listing's last step, whose
    claim is not proved, is left out.

    Parameters
    ----------
    form : {"corrected", "printed"}
    """

    form: str = "corrected"

    name: ClassVar[str] = "pvp"
    paper: ClassVar[str] = "001, Algorithm 3"
    summary: ClassVar[str] = "ADMM with noise on the sent minimisers, one release a round"
    forms: ClassVar[tuple[str, ...]] = ("corrected", "printed")

    def round(self, k: int, state: DualState, site: Site) -> DualState:
        if self.form == "corrected" or self.noise is None:
            return super().round(k, state, site)._replace(mean=state.mean)
        f, S, lam, mean = state
        eta, V = self.penalty(k), site.net.degree
        linear, curvature = augment(eta, V, f, S, lam)
        own = -eta * V  # in the printed step the own part of the linear term is the exact minimiser's, not f's
        query = SecretMinimiser(
            f, self.noise(k), "001, Algorithm 3 (printed)", None, linear - own * f, curvature, own, k
        )
        f = site.ask(query)
        S = site.net.neighbour_sum(f)
        return DualState(f, S, dual(eta, V, f, S, lam), mean)

    def model(self, state: DualState) -> Array:
        return state.f
