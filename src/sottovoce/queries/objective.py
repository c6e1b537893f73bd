"""Objective perturbation (003, Alg. 2; U1, U3 and U4).

A site releases the minimiser of its local objective with a random linear term.

Guarantee
---------
With a noise law, an answer costs its node what :mod:`sottovoce.privacy.prices` gives for its event,
for all public vectors: the price depends on public curvatures only.  The answer is the solver's
plus noise that pays for its distance to the exact minimiser (U4): the solver's certificate, the
release's grid, and the rounding of the noise in the objective.  Without a noise law nothing is
guaranteed, and the event says so.
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
    certain_log_density,
    gaussian_log_density,
    local_hessian,
    refusal_of_secret,
    spherical_log_density,
    vector,
)
from .base import Query
from .objective_noise import FINE, GaussianLaw, ObjectiveNoise, SphericalLaw, check_loss, loss_terms
from .reach import check_solve, project_to_ball, public_vector_norm
from .statistic import SecretMinimiser, last_minimiser
from .vault import Vault


@dataclass(frozen=True)
class PerturbedObjective(Query):
    """The minimiser of a local objective with a random linear term: objective perturbation.

    ``argmin f_i(w) + linear.w + curvature ||w||^2 / 2 + (C/n_i) b.w`` with noise ``b``.

    Parameters
    ----------
    linear : array of shape (..., d)
        Public linear term.
    curvature : array of shape (..., 1)
        Public quadratic term.
    start : array of shape (..., d)
        Public point where the solver starts.
    noise : SphericalLaw, GaussianLaw or None
        Law of b; None for no noise.
    source : str
        The mechanism's name in ledgers.
    tol : float, optional
        Gradient norm, over C, to which this solve is certified; None for ``tol`` of the facts.

    Guarantee
    ---------
    For one row of the node under the relation of the facts, and all public vectors: the price of
    :class:`~sottovoce.privacy.events.SphericalObjectivePerturbation` or
    :class:`~sottovoce.privacy.events.GaussianObjectivePerturbation`, which covers the solver's
    error if the law polishes the answer (U1, U3 and U4; docs/privacy/objective_perturbation.md).
    None without noise (:class:`~sottovoce.privacy.events.Unprotected`).
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

    def _noisy_minimiser(self, vault: Vault, facts: Facts, release: int) -> Array:
        """Return the minimiser with the release's noise in its linear term."""
        law, linear = self.noise, self.linear
        if isinstance(law, SphericalLaw):
            # (C / n) b.w: noise is drawn in sum scale, where every row weighs one.
            linear = linear + facts.C / facts.n * (
                vault.noise.draw_spherical(facts.d, release) / law.rate
            )
        elif law is not None:
            linear = linear + facts.C / facts.n * (
                vault.noise.draw_gaussian(facts.d, release) * law.sigma
            )
        noise = self.noise_at(facts)
        tol, q = noise.solver_tolerance, noise.quadratic_term
        pull = np.linalg.norm(linear, axis=-1, keepdims=True)
        w = vault.solver.minimise(linear, q, self._nearest_start(facts), tol).w
        return project_to_ball(w, facts, tol, pull, q)

    def _nearest_start(self, facts: Facts) -> Array:
        """The nearest start in reach without noise: public, so a resumed run can repeat it."""
        noise = self.noise_at(facts)
        pull = public_vector_norm(self.linear, "linear") + noise.linear_pull
        return project_to_ball(
            self.start, facts, noise.solver_tolerance, pull, noise.quadratic_term
        )

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
                source=self.source,
                relation=facts.relation,
                sigma=noise.per_node(law.sigma),
                K=noise.strong_convexity,
                curvature_bound=facts.loss.curvature_bound,
                dimension=facts.d,
                error=noise.error,
                sigma_release=sigma_release,
                claimed=claimed,
                claimed_rho=None if law.claimed_rho is None else noise.per_node(law.claimed_rho),
            )
        return SphericalObjectivePerturbation(
            source=self.source,
            relation=facts.relation,
            beta=noise.per_node(law.rate),
            K=noise.strong_convexity,
            dimension=facts.d,
            error=noise.error,
            beta_release=beta_release,
            sigma_release=sigma_release,
            claimed=claimed,
            **loss_terms(facts),  # type: ignore[arg-type]
        )

    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        """Solve with noise in the objective, and add the noise that covers the solver's error.

        Parameters
        ----------
        vault, facts, release
            As for :meth:`Query.answer`.

        Returns
        -------
        array of shape (..., d)
        """
        law = self.noise
        w = self._noisy_minimiser(vault, facts, release)
        if law is None or not law.polish:
            return w
        noise = self.noise_at(facts)
        rate, sigma = noise.release
        # The grid moves an answer by less than FINE of the certified distance, which `error`
        # counts.
        coarsest = FINE * noise.certified_distance / np.sqrt(facts.d)
        if np.any(sigma > 0):
            return vault.noise.add_gaussian(w, sigma, coarsest, release)
        return vault.noise.add_spherical(w, rate, coarsest, release)

    def check_before_charge(self, facts: Facts) -> None:
        # Without a guarantee, and in printed forms, which are for simulations only, this is enough.
        if self.noise is None or not self.noise.polish:
            public_vector_norm(self.linear, "linear")
            public_vector_norm(self.start, "start")
            return
        noise = self.noise_at(facts)
        check_solve(
            facts,
            noise.solver_tolerance,
            self.linear,
            self.start,
            noise.quadratic_term,
            noise.linear_pull,
        )

    def prepare_before_charge(self, vault: Vault) -> None:
        if self.noise is not None:
            vault.noise.load_libraries()

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:
        """Repeat the solve in a simulation, so that the next solve starts as if uninterrupted.

        Parameters
        ----------
        vault, facts, release
            As for :meth:`Query.replay`.
        """
        vault.repeat_solve(
            lambda: self._noisy_minimiser(vault, facts, release), self._nearest_start(facts)
        )

    def placeholder_answer(self, facts: Facts) -> Array:
        return np.zeros_like(self.start)

    def around_origin(self, origin: Array, facts: Facts) -> Query:
        """``linear.v + q ||v||^2 / 2 = (linear - q origin).w + q ||w||^2 / 2 + const``, rho's
        part of q included.
        """
        return replace(
            self,
            linear=self.linear - self.noise_at(facts).quadratic_term * origin,
            start=self.start + origin,
        )

    def has_exact_density(self, supposed: Supposed, answers: Array) -> bool:
        """Return whether the density is exact at these answers.

        Gaussian noise in the objective and on the answer add up exactly only where the loss is
        linear.
        """
        if not isinstance(self.noise, GaussianLaw) or self.noise.release is None:
            return True
        return not np.any(
            supposed.facts.loss.curvature(np.einsum("kd,rd->rk", supposed.signed, answers[:, 0]))
        )

    def log_density(self, supposed: Supposed, answer: Array) -> Array | None:
        """Return the log density of the answer by a change of variables (U1).

        It is that of the noise that makes the answer the minimiser, plus the log determinant of the
        map from answers to noise: the Hessian in sum scale.
        """
        vault, facts = supposed.vault, supposed.facts
        law, w = self.noise, answer
        if law is None:
            return certain_log_density(w, self.answer(vault, facts, 1))
        q, sums = self.noise_at(facts).quadratic_term, facts.n / facts.C
        # The noise on the answer is not small: answers are compared instead, both noises Gaussian.
        if isinstance(law, GaussianLaw) and law.release is not None:
            spread = np.hypot(law.sigma / (sums * q), law.release)
            return gaussian_log_density(w - self.answer(vault, facts, 1), spread)
        # At the minimiser the gradient vanishes, which gives the noise.
        b = -sums * (vault.solver.gradient(w) + np.asarray(self.linear) + q * w)
        curvature = facts.loss.curvature(np.einsum("kd,rd->rk", supposed.signed, w[:, 0]))
        hessian = np.einsum("rk,kd,ke->rde", curvature, supposed.signed, supposed.signed)
        hessian = hessian + (sums * q).reshape(-1, 1, 1) * np.eye(w.shape[-1])
        determinant = np.linalg.slogdet(hessian)[1]
        if isinstance(law, GaussianLaw):
            return np.asarray(gaussian_log_density(b, law.sigma) + determinant)
        return np.asarray(spherical_log_density(b, law.rate) + determinant)

    def canary_dependence(self, canaries: Canaries, answer: Array) -> Leaning | None:
        """Return how the noise that makes the answer the minimiser depends on canary rows.

        The determinant is left out: one row hardly changes it.
        """
        law, d = self.noise, canaries.facts.d
        q = float(np.max(self.noise_at(canaries.facts).quadratic_term))
        middle, lean = canaries.gradients(answer)
        residual = -(middle + canaries.sums * (vector(self.linear) + q * answer))
        if law is None:
            return Leaning(residual, lean, 0.0)
        # Variance of a coordinate: E ||b||^2 / d = (d + 1) / rate^2.
        if isinstance(law, SphericalLaw):
            return Leaning(residual, lean, (d + 1.0) / float(np.min(law.rate)) ** 2)
        covariance = float(np.max(law.sigma)) ** 2 * np.eye(d)
        if law.release is not None:
            K = local_hessian(canaries, answer, q)
            covariance = covariance + float(np.max(law.release)) ** 2 * (K @ K)
        return Leaning(residual, lean, covariance)


@dataclass(frozen=True)
class SecretStartObjective(PerturbedObjective):
    """A perturbed objective that reads the last exact minimiser (001, (21) to (23) as printed).

    The linear term has a part ``own * f``, with f the last round's exact minimiser, which is
    secret.

    Parameters
    ----------
    linear, curvature, start, noise, source, tol
        As for :class:`PerturbedObjective`; `noise` is spherical.
    own : array of shape (..., 1)
        Factor of the secret part of the linear term.
    before : SecretMinimiser
        The query that stored f in the vault; it knows the sensitivity of f.

    Guarantee
    ---------
    Priced by :class:`~sottovoce.privacy.events.SecretStartPerturbation`: a row moves the linear
    term by ``(n / C) |own|`` times the sensitivity of f, in sum scale, besides its own part of the
    objective.
    """

    # Refused: its linear term is secret.
    around_origin = Query.around_origin

    own: ArrayLike = 0.0
    before: SecretMinimiser | None = None

    def event(self, facts: Facts) -> Event:
        law = self.noise
        assert isinstance(law, SphericalLaw) and self.before is not None
        check_loss(facts)
        noise = self.noise_at(facts)
        moved = self.before.exact_sensitivity(facts)
        # A row moves f by its sensitivity, and with it the linear term, besides its own gradient.
        shift = facts.n / facts.C * np.abs(np.asarray(self.own, dtype=float)) * moved
        claimed = None if law.claimed is None else noise.per_node(law.claimed)
        return SecretStartPerturbation(
            self.source,
            facts.relation,
            noise.per_node(law.rate),
            noise.strong_convexity,
            facts.loss.curvature_bound,
            facts.d,
            noise.per_node(shift),
            claimed,
        )

    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        """Solve with the secret part in the linear term.

        Parameters
        ----------
        vault, facts, release
            As for :meth:`Query.answer`.

        Returns
        -------
        array of shape (..., d)
        """
        return PerturbedObjective.answer(self._with_secret_term(vault), vault, facts, release)

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:
        """Repeat the solve in a simulation, with the secret part in the linear term.

        Parameters
        ----------
        vault, facts, release
            As for :meth:`Query.replay`.
        """
        PerturbedObjective.replay(self._with_secret_term(vault), vault, facts, release)

    def _with_secret_term(self, vault: Vault) -> SecretStartObjective:
        """Return the same query with the secret part added to its linear term."""
        secret = np.asarray(self.own, dtype=float) * last_minimiser(vault, self.start)
        return replace(self, linear=self.linear + secret, own=0.0)

    def log_density(self, supposed: Supposed, answer: Array) -> Array | None:
        return PerturbedObjective.log_density(
            self._with_secret_term(supposed.vault), supposed, answer
        )

    def canary_dependence(self, canaries: Canaries, answer: Array) -> Leaning | None:
        raise refusal_of_secret(self)
