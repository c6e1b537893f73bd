"""Objective perturbation: minimise the local objective with a random linear term (003, Alg. 2; U1, U3 and U4).

Guarantee
---------
With a noise law, an answer costs its node what :mod:`sottovoce.privacy.prices` gives for its event, for all public
vectors: the price depends on public curvatures only.  The answer is the solver's plus noise that pays for its distance
to the exact minimiser (U4): the solver's certificate, the release's grid, and the rounding of the noise in the
objective.  Without a noise law nothing is guaranteed, and the event says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..privacy.events import (
    Event,
    GaussianObjectivePerturbation,
    SecretStartPerturbation,
    SphericalObjectivePerturbation,
    Unprotected,
)
from ..problem.facts import Facts
from ..util.typing import Array, ArrayLike
from .audit_hooks import (
    Canaries,
    Leaning,
    Supposed,
    certain,
    gaussian,
    refusal_of_secret,
    spherical,
    stiffness,
    vector,
)
from .base import Query
from .objective_noise import FINE, GaussianLaw, ObjectiveNoise, SphericalLaw, check_loss, loss_terms
from .reach import check_solve, inside, length
from .statistic import SecretMinimiser, last_minimiser
from .vault import Vault


@dataclass(frozen=True)
class PerturbedObjective(Query):
    """``argmin f_i(w) + linear.w + curvature ||w||^2 / 2 + (C/n_i) b.w``, with noise ``b`` from the law, if any.

    Parameters
    ----------
    linear, start : array (..., d)
        Public linear term and starting point of the solver.
    curvature : array (..., 1)
        Public quadratic term.
    noise : SphericalLaw, GaussianLaw or None
    source : str
        Of the mechanism.
    tol : float, optional
        Relative gradient norm to which this solve is certified; None for ``tol`` of the facts.
    """

    linear: Array
    curvature: Array
    start: Array
    noise: SphericalLaw | GaussianLaw | None
    source: str
    tol: float | None = None

    def noise_at(self, facts: Facts) -> ObjectiveNoise:
        """What the law's noise does at nodes with these facts."""
        return ObjectiveNoise(self.noise, self.curvature, facts, self.tol)

    def _minimiser(self, vault: Vault, facts: Facts, release: int) -> Array:
        """The minimiser with the release's noise in its linear term."""
        law, linear = self.noise, self.linear
        if isinstance(law, SphericalLaw):
            linear = linear + facts.C / facts.n * (vault.noise.spherical(facts.d, release) / law.rate)
        elif law is not None:
            linear = linear + facts.C / facts.n * (vault.noise.gaussian(facts.d, release) * law.sigma)
        noise = self.noise_at(facts)
        tol, q = noise.tol, noise.q
        pull = np.linalg.norm(linear, axis=-1, keepdims=True)
        w = vault.solver.minimise(linear, q, self._nearest_start(facts), tol).w
        return inside(w, facts, tol, pull, q)

    def _nearest_start(self, facts: Facts) -> Array:
        """The nearest start in reach without noise: public, so a resumed run can repeat it."""
        noise = self.noise_at(facts)
        pull = length(self.linear, "linear") + noise.pull
        return inside(self.start, facts, noise.tol, pull, noise.q)

    def event(self, facts: Facts) -> Event:
        law = self.noise
        if law is None:
            return Unprotected(source=self.source, rows=facts.n)
        check_loss(facts)
        noise = self.noise_at(facts)
        beta_release, sigma_release = noise.release
        claimed = None if law.claimed is None else noise.per_node(law.claimed)
        if isinstance(law, GaussianLaw):
            return GaussianObjectivePerturbation(
                source=self.source, relation=facts.relation, sigma=noise.per_node(law.sigma), K=noise.K,
                curvature_bound=facts.loss.curvature_bound, dimension=facts.d, error=noise.error,
                sigma_release=sigma_release, claimed=claimed,
                claimed_rho=None if law.claimed_rho is None else noise.per_node(law.claimed_rho),
            )  # fmt: skip
        return SphericalObjectivePerturbation(
            source=self.source, relation=facts.relation, beta=noise.per_node(law.rate), K=noise.K,
            dimension=facts.d, error=noise.error, beta_release=beta_release, sigma_release=sigma_release,
            claimed=claimed, **loss_terms(facts),  # type: ignore[arg-type]
        )  # fmt: skip

    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        law, d, w = self.noise, facts.d, self._minimiser(vault, facts, release)
        if law is None or not law.polish:
            return w
        noise = self.noise_at(facts)
        rate, sigma = noise.release
        coarsest = FINE * noise.certified / np.sqrt(d)
        if np.any(sigma > 0):
            return vault.noise.add_gaussian(w, sigma, coarsest, release)
        return vault.noise.add_pure(w, rate, coarsest, release)

    def check(self, facts: Facts) -> None:
        if self.noise is None or not self.noise.polish:  # no guarantee, or a printed form: a simulation only
            length(self.linear, "linear")
            length(self.start, "start")
            return
        noise = self.noise_at(facts)
        check_solve(facts, noise.tol, self.linear, self.start, noise.q, noise.pull)

    def ready(self, vault: Vault) -> None:
        if self.noise is not None:
            vault.noise.load()

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:
        vault.repeat(lambda: self._minimiser(vault, facts, release), self._nearest_start(facts))

    def blank(self, facts: Facts) -> Array:
        return np.zeros_like(self.start)

    def around(self, origin: Array, facts: Facts) -> Query:
        """``linear.v + q ||v||^2 / 2 = (linear - q origin).w + q ||w||^2 / 2 + const``, rho's part of q included."""
        return replace(self, linear=self.linear - self.noise_at(facts).q * origin, start=self.start + origin)

    def has_exact_density(self, supposed: Supposed, answers: Array) -> bool:
        """Gaussian noise in the objective and on the answer add up exactly only where the loss is linear."""
        if not isinstance(self.noise, GaussianLaw) or self.noise.release is None:
            return True
        return not np.any(supposed.facts.loss.curvature(np.einsum("kd,rd->rk", supposed.signed, answers[:, 0])))

    def log_density(self, supposed: Supposed, answer: Array) -> Array | None:
        """The density of the noise that makes the answer the minimiser, times the determinant of that map (U1)."""
        vault, facts, law, w = supposed.vault, supposed.facts, self.noise, answer
        if law is None:
            return certain(w, self.answer(vault, facts, 1))
        q, sums = self.noise_at(facts).q, facts.n / facts.C
        if isinstance(law, GaussianLaw) and law.release is not None:  # the noise on the answer is not small:
            spread = np.hypot(law.sigma / (sums * q), law.release)  # compare answers instead, both noises Gaussian
            return gaussian(w - self.answer(vault, facts, 1), spread)
        b = -sums * (vault.solver.gradient(w) + np.asarray(self.linear) + q * w)
        curvature = facts.loss.curvature(np.einsum("kd,rd->rk", supposed.signed, w[:, 0]))
        hessian = np.einsum("rk,kd,ke->rde", curvature, supposed.signed, supposed.signed)
        hessian = hessian + (sums * q).reshape(-1, 1, 1) * np.eye(w.shape[-1])
        determinant = np.linalg.slogdet(hessian)[1]
        inside_it = gaussian(b, law.sigma) if isinstance(law, GaussianLaw) else spherical(b, law.rate)
        return np.asarray(inside_it + determinant)

    def leaning(self, canaries: Canaries, answer: Array) -> Leaning | None:
        """The noise that makes the answer the minimiser, without the determinant, which one row hardly changes."""
        law, d = self.noise, canaries.facts.d
        q = float(np.max(self.noise_at(canaries.facts).q))
        middle, lean = canaries.gradients(answer)
        residual = -(middle + canaries.sums * (vector(self.linear) + q * answer))
        if law is None:
            return Leaning(residual, lean, 0.0)
        if isinstance(law, SphericalLaw):
            return Leaning(residual, lean, (d + 1.0) / float(np.min(law.rate)) ** 2)
        covariance = float(np.max(law.sigma)) ** 2 * np.eye(d)
        if law.release is not None:
            K = stiffness(canaries, answer, q)
            covariance = covariance + float(np.max(law.release)) ** 2 * (K @ K)
        return Leaning(residual, lean, covariance)


@dataclass(frozen=True)
class SecretStartObjective(PerturbedObjective):
    """001, (21) to (23) as printed: the linear term has a part ``own * f``, with f the last round's exact minimiser.

    ``before`` is the query that stored f in the vault; it knows how far a row moves f.
    """

    around = Query.around  # refused: its linear term is secret

    own: ArrayLike = 0.0
    before: SecretMinimiser | None = None

    def event(self, facts: Facts) -> Event:
        law = self.noise
        assert isinstance(law, SphericalLaw) and self.before is not None
        check_loss(facts)
        noise = self.noise_at(facts)
        moved = self.before.exact_sensitivity(facts)
        shift = facts.n / facts.C * np.abs(np.asarray(self.own, dtype=float)) * moved
        claimed = None if law.claimed is None else noise.per_node(law.claimed)
        return SecretStartPerturbation(
            self.source, facts.relation, noise.per_node(law.rate), noise.K, facts.loss.curvature_bound,
            facts.d, noise.per_node(shift), claimed,
        )  # fmt: skip

    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        return PerturbedObjective.answer(self._told(vault), vault, facts, release)

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:
        PerturbedObjective.replay(self._told(vault), vault, facts, release)

    def _told(self, vault: Vault) -> SecretStartObjective:
        """The same query with the secret part added to its linear term."""
        secret = np.asarray(self.own, dtype=float) * last_minimiser(vault, self.start)
        return replace(self, linear=self.linear + secret, own=0.0)

    def log_density(self, supposed: Supposed, answer: Array) -> Array | None:
        return PerturbedObjective.log_density(self._told(supposed.vault), supposed, answer)

    def leaning(self, canaries: Canaries, answer: Array) -> Leaning | None:
        raise refusal_of_secret(self)
