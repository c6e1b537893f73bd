"""Plausible ADMM (004, Algorithm 1) and its sparse-vector form (004, Algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import InvalidInput
from ..queries import GatedMinimiser, GaussianLaw, PerturbedObjective, check_law, law_of
from ..typing import Array
from .admm import ADMM, State
from .base import Site, augment, dual


@dataclass(frozen=True)
class PPADMM(ADMM):
    """ADMM with Gaussian noise in the objective and on the solver's answer; ``noise`` is a release's shift over sigma.

    Guarantee
    ---------
    Corrected: U3 and U4 with the solver's certificate; no extra regulariser, which the penalty makes needless.  As
    printed, Theorem 3.3 is false in general and holds by far in the paper's own settings (docs/privacy/verdicts.md).

    Parameters
    ----------
    form : {"corrected", "printed"}
    split, tolerance, delta1 : float
        Printed: rho_2's share of a release's rho, the solver's gradient norm, and delta_i1.
    """

    form: str = "corrected"
    split: float = 0.001
    tolerance: float = 10.0**-3.5
    delta1: float = 1e-5

    name: ClassVar[str] = "pp_admm"
    paper: ClassVar[str] = "004, Algorithm 1"
    summary: ClassVar[str] = "ADMM with Gaussian noise in the objective and on the answer, one release a round"
    private: ClassVar[bool] = True
    objective_noise: ClassVar[bool] = True
    noise_weight: ClassVar[float] = 2.5
    needs_delta: ClassVar[bool] = True
    forms: ClassVar[tuple[str, ...]] = ("corrected", "printed")

    def check(self, site: Site) -> None:
        if self.noise is not None:
            check_law("gaussian", site.facts)

    def round(self, k: int, state: State, site: Site) -> State:
        f, S, lam = state
        eta, V = self.penalty(k), site.net.degree
        linear, curvature = augment(eta, V, f, S, lam)
        law = self._law(k, curvature, site)
        tol = self.tolerance if self.form == "printed" and law is not None else None
        f = site.ask(PerturbedObjective(linear, curvature, f, law, f"004, Algorithm 1 ({self.form})", tol))
        S = site.net.neighbour_sum(f)
        return State(f, S, dual(eta, V, f, S, lam))

    def _law(self, k: int, curvature: Array, site: Site) -> GaussianLaw | None:
        if self.noise is None:
            return None
        alpha, facts = self.noise(k), site.facts
        if self.form == "corrected":
            law = law_of("gaussian", alpha, curvature, facts)
            assert isinstance(law, GaussianLaw)
            return law
        rho = 0.5 * alpha**2  # the release's claim in zCDP: rho_1 + rho_2
        e1 = np.sqrt(4 * rho * (1 - self.split) * np.log(1 / self.delta1))
        sigma = 2 * np.sqrt(2 * np.log(1.25 / self.delta1)) / (0.99 * e1)  # sum scale; e3 = 0.99 e1
        q = facts.mu + curvature
        sigma2 = self.tolerance * facts.C / (np.sqrt(2 * rho * self.split) * q)
        return GaussianLaw(sigma, release=sigma2, claimed_rho=rho)


@dataclass(frozen=True)
class IPPADMM(ADMM):
    """A node sends if its gradient at the public iterate passes a noisy threshold, at most ``positives`` times.

    Guarantee
    ---------
    U5 for all tests together and U7 for ``positives`` releases, charged whether they are used or not.  The printed
    form (threshold redrawn, private minimiser in the query) is priced by ``sottovoce claims``; it is not run.

    Parameters
    ----------
    positives : int
        c: releases of a node at most.
    threshold : float
        On the gradient's norm, in units of C.
    test_share : float
        Epsilon of the tests, in units of ``alpha sqrt(c)``.
    """

    positives: int = 10
    threshold: float = 0.002
    test_share: float = 0.5

    name: ClassVar[str] = "ipp_admm"
    paper: ClassVar[str] = "004, Algorithm 2, put right"
    summary: ClassVar[str] = "ADMM that sends when a sparse-vector test says that it is worth it"
    private: ClassVar[bool] = True
    noise_weight: ClassVar[float] = 1.2
    least_penalty: ClassVar[float] = 0.0005
    needs_delta: ClassVar[bool] = True

    def check(self, site: Site) -> None:
        if self.noise is not None:
            check_law("gaussian", site.facts)
        if not (isinstance(self.positives, int) and self.positives >= 1):
            raise InvalidInput("positives", self.positives, "must be a whole number, at least 1", "use positives=10")

    def round(self, k: int, state: State, site: Site) -> State:
        f, S, lam = state
        eta, V = self.penalty(k), site.net.degree
        linear, curvature = augment(eta, V, f, S, lam)
        alpha = None if self.noise is None else self.noise(1)
        whole = self.test_share * (0.0 if alpha is None else alpha) * np.sqrt(self.positives)
        ratio = (2.0 * self.positives) ** (2.0 / 3.0)  # Lyu, Su and Li 2017
        answer = site.ask(
            GatedMinimiser(
                f, alpha, "004, Algorithm 2 (corrected)", None, linear, curvature, self.threshold,
                whole / (1 + ratio), whole * ratio / (1 + ratio), self.positives, k,
            )
        )  # fmt: skip
        f = np.where(answer[..., -1:] > 0, answer[..., :-1], f)
        S = site.net.neighbour_sum(f)
        return State(f, S, dual(eta, V, f, S, lam))
