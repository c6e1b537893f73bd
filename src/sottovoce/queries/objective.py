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

from ..errors import InvalidInput
from ..privacy.bounds import objective_perturbation_epsilon, objective_perturbation_rate
from ..privacy.events import (
    Event,
    GaussianObjectivePerturbation,
    SecretStartPerturbation,
    SphericalObjectivePerturbation,
    Unprotected,
)
from ..problem.facts import Facts
from ..problem.trust import RELATIONS
from ..solvers.local import certified_error
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
from .reach import INFLATION, certificate, check_solve, inside, length, matched
from .statistic import SecretMinimiser, last_minimiser
from .vault import Vault

POLISH = 0.01
"""Share of a release's pure epsilon that is spent on the solver's inexact answer."""
POLISH_SQUARED = 0.001
"""Share of a release's squared sensitivity over sigma that is spent on it, with a delta."""

# Noise beyond the bound on its norm has a probability of at most e^-700.
_FAR = 700.0
# How far drawing in double precision puts noise from where it should be, relative to that bound.
_ROUNDING = 2.0**-46
# The grid's share of the solver's certified error.
_FINE = 2.0**-11


def _changed(facts: Facts) -> float:
    """Return how many gradients of norm 1 a row changes.

    No event carries a derivative bound, so every loss is priced as if it were 1.
    """
    return RELATIONS[facts.relation]


def _loss_terms(facts: Facts) -> dict[str, float | bool]:
    return {"curvature_bound": facts.loss.curvature_bound, "logistic": facts.loss.logistic_identity}


def _check_loss(facts: Facts) -> None:
    """Check that the loss meets the conditions of the events for objectives."""
    if rule := facts.loss.unproved_inside:
        raise InvalidInput("loss", facts.loss.spec, rule, "use a method with noise on answers, e.g. 'prox_admm'")


def rate_for_epsilon(epsilon: ArrayLike, curvature: ArrayLike, facts: Facts) -> Array:
    """Return the noise rate ``beta`` (sum scale) at which one release costs `epsilon`, per node.

    Under pure accounting `epsilon` is the whole price, with the noise on the answer.  With a delta
    it is the price ``Delta beta`` of the noise alone; the accountant adds the curvature's part,
    which costs almost nothing.

    Parameters
    ----------
    epsilon : float or array of shape (..., 1)
        Pure epsilon of one release, > 0.
    curvature : float or array of shape (..., 1)
        Public quadratic term of the objective, >= 0.
    facts : Facts
        Public facts of the nodes.

    Returns
    -------
    array of shape (..., 1)
        Rate of noise of density ``exp(-beta ||b||)``.

    Raises
    ------
    InvalidInput
        If the curvature alone costs more than `epsilon`; its ``nodes`` says at which nodes.
    """
    delta_gradient = _changed(facts)
    if not facts.pure:
        return np.asarray(epsilon, dtype=float) / delta_gradient
    exact = np.asarray(epsilon, dtype=float) / (1.0 + POLISH)
    rate = objective_perturbation_rate(
        exact, facts.K(curvature), delta_gradient=delta_gradient, **_loss_terms(facts)  # type: ignore[arg-type]
    )  # fmt: skip
    if np.any(np.isnan(rate)):
        rule = "a release costs more than this through its curvature alone, whatever the noise"
        error = InvalidInput("alpha", np.min(epsilon).item(), rule, "raise alpha, eta, phi or rho")
        error.nodes = np.isnan(np.broadcast_to(rate, facts.n.shape)).ravel()
        raise error
    return rate


@dataclass(frozen=True)
class SphericalLaw:
    """Spherical noise of density ``exp(-rate ||b||)`` in the objective.

    Parameters
    ----------
    rate : array of shape (..., 1)
        In sum scale, > 0.
    polish : bool
        Whether noise is added to the solver's answer, so that the proof covers the solver's error.
        Printed forms leave it out, and their price assumes exact minimisation.
    claimed : array of shape (..., 1), optional
        Pure epsilon per release that the paper claims.
    """

    rate: Array
    polish: bool = True
    claimed: Array | None = None


@dataclass(frozen=True)
class GaussianLaw:
    """Gaussian noise ``N(0, sigma^2 I)`` in the objective, which has no pure price.

    Parameters
    ----------
    sigma : array of shape (..., 1)
        Standard deviation, in sum scale, > 0.
    polish, claimed
        As for :class:`SphericalLaw`.
    release : array of shape (..., 1), optional
        Standard deviation of the noise on the answer, where a paper sets it.
    claimed_rho : array of shape (..., 1), optional
        zCDP per release that the paper claims.
    """

    sigma: Array
    polish: bool = True
    claimed: Array | None = None
    release: Array | None = None
    claimed_rho: Array | None = None


def check_law(law: str, facts: Facts) -> None:
    """Check that a noise law is known and has a price here.

    Raises
    ------
    InvalidInput
        If it is unknown, or Gaussian where every price must be pure.
    """
    if law not in ("spherical", "gaussian"):
        raise InvalidInput("law", law, "must be 'spherical' or 'gaussian'", "use 'spherical'")
    if law == "gaussian" and facts.pure:
        raise InvalidInput("law", law, "Gaussian noise has no pure price", "give a delta, or use law='spherical'")


def law_of(law: str, alpha: Array, curvature: ArrayLike, facts: Facts) -> SphericalLaw | GaussianLaw:
    """Return the noise in the objective of a release at `alpha`.

    Parameters
    ----------
    law : {"spherical", "gaussian"}
        Family of the noise.
    alpha : array of shape (..., 1)
        Pure epsilon of spherical noise, as for :func:`rate_for_epsilon`; sensitivity over sigma of
        Gaussian noise.
    curvature : float or array of shape (..., 1)
        Public quadratic term of the objective, >= 0.
    facts : Facts
        Public facts of the nodes.

    Returns
    -------
    SphericalLaw or GaussianLaw

    Raises
    ------
    InvalidInput
        If the law is refused by :func:`check_law`, or the curvature alone costs more than `alpha`.
    """
    check_law(law, facts)
    if law == "gaussian":
        return GaussianLaw(_changed(facts) / alpha)
    return SphericalLaw(rate_for_epsilon(alpha, curvature, facts))


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

    def _per_node(self, x: ArrayLike, facts: Facts) -> Array:
        return np.broadcast_to(np.asarray(x, dtype=float), facts.n.shape)

    def _q(self, facts: Facts) -> Array:
        return facts.mu + np.asarray(self.curvature, dtype=float)

    def _certified(self, facts: Facts) -> Array:
        return certified_error(facts.C, self._tol(facts), facts.mu + self._per_node(self.curvature, facts))

    def _error(self, facts: Facts, law: SphericalLaw | GaussianLaw) -> Array:
        """Return how far the answer may be from the exact minimiser, at most.

        The sum of the solver's certificate, the grid's step, and how far the noise's rounding moves
        the minimiser.
        """
        rounding = _ROUNDING * self._longest(facts, law) / self._K(facts)
        return self._certified(facts) * (1.0 + _FINE) + rounding

    def _longest(self, facts: Facts, law: SphericalLaw | GaussianLaw | None) -> Array:
        """Return a norm, in sum scale, that noise exceeds with probability ``e^-700`` at most."""
        d = facts.d
        if isinstance(law, SphericalLaw):
            return self._per_node((d + np.sqrt(2.0 * d * _FAR) + _FAR) / law.rate, facts)
        if isinstance(law, GaussianLaw):
            return self._per_node((np.sqrt(d) + np.sqrt(2.0 * _FAR)) * law.sigma, facts)
        return np.zeros(facts.n.shape)

    def _minimiser(self, vault: Vault, facts: Facts, release: int) -> Array:
        """Return the minimiser with the release's noise in its linear term."""
        law, linear = self.noise, self.linear
        if isinstance(law, SphericalLaw):
            linear = linear + facts.C / facts.n * (vault.noise.spherical(facts.d, release) / law.rate)
        elif law is not None:
            linear = linear + facts.C / facts.n * (vault.noise.gaussian(facts.d, release) * law.sigma)
        tol = self._tol(facts)
        q = self._q(facts)
        pull = np.linalg.norm(linear, axis=-1, keepdims=True)
        w = vault.solver.minimise(linear, q, self._nearest_start(facts), tol).w
        return inside(w, facts, tol, pull, q)

    def _nearest_start(self, facts: Facts) -> Array:
        """Return the start's projection to the ball of answers, which is public and repeatable."""
        pull = length(self.linear, "linear") + self._noise(facts)
        return inside(self.start, facts, self._tol(facts), pull, self._q(facts))

    def _noise(self, facts: Facts) -> Array:
        """Return :meth:`_longest` as part of the linear term."""
        return facts.C / facts.n * self._longest(facts, self.noise)

    def _tol(self, facts: Facts) -> Array:
        if self.noise is None or not self.noise.polish:
            if self.tol is None:
                return np.array(facts.exact_tol)
            return np.array(self.tol)
        tol: ArrayLike
        if self.tol is None:
            tol = matched(facts, self._enough(facts, self.noise))
        else:
            tol = self.tol
        return certificate(facts, tol, self._q(facts), self._noise(facts))

    def _enough(self, facts: Facts, law: SphericalLaw | GaussianLaw) -> Array:
        """Return the certificate at which the release is at most `INFLATION` noisier.

        Noise of deviation s in the objective, sum scale, moves the answer by at least about ``(C /
        n) s / (q + C c1 / d)``, root mean square over directions: the eigenvalues of the data's
        Hessian have a mean of at most ``C c1 / d``, and ``1 / (q + x)^2`` is convex.  Noise on the
        answer has a deviation of ``2 error / share`` with ``error = 2 C tol / q``; independent
        noises add in squares.
        """
        # The paper's own noise on the answer, whatever the error.
        if isinstance(law, GaussianLaw) and law.release is not None:
            return np.array(facts.exact_tol)
        if isinstance(law, GaussianLaw):
            spread = self._per_node(law.sigma, facts)
        elif facts.pure:  # the noise on the answer is spherical too: the factor sqrt(d + 1) cancels
            spread = self._per_node(1.0 / law.rate, facts)
        else:  # E ||b||^2 = d (d + 1) / rate^2
            spread = self._per_node(np.sqrt(facts.d + 1.0) / law.rate, facts)
        # Solved for tol: sqrt(1 + (noise on the answer / noise of the objective)^2) = 1 +
        # INFLATION.
        q = facts.mu + self._per_node(self.curvature, facts)
        q_typical = q + facts.C * facts.loss.curvature_bound / facts.d
        room = np.sqrt((1.0 + INFLATION) ** 2 - 1.0)
        return np.asarray(room * self._share(facts, law) * spread * q / (4.0 * facts.n * q_typical))

    def _share(self, facts: Facts, law: SphericalLaw | GaussianLaw) -> Array:
        """Return the price of the noise on the answer.

        It is pure epsilon, or with a delta sensitivity over sigma.
        """
        delta_gradient = _changed(facts)
        if isinstance(law, GaussianLaw):
            return np.sqrt(POLISH_SQUARED) * self._per_node(delta_gradient / law.sigma, facts)
        if not facts.pure:
            return np.sqrt(POLISH_SQUARED) * self._per_node(delta_gradient * law.rate / np.sqrt(facts.d), facts)
        exact = objective_perturbation_epsilon(
            self._per_node(law.rate, facts), self._K(facts), delta_gradient=delta_gradient,
            **_loss_terms(facts),  # type: ignore[arg-type]
        )  # fmt: skip
        return POLISH * exact

    def _K(self, facts: Facts) -> Array:
        return self._per_node(facts.K(self.curvature), facts)

    def _release(self, facts: Facts, law: SphericalLaw | GaussianLaw) -> tuple[Array, Array]:
        """Return rate and standard deviation of the noise on the answer: 0 for the law not used."""
        error, none = self._error(facts, law), np.zeros(facts.n.shape)
        if not law.polish:
            return none, none
        if isinstance(law, GaussianLaw) and law.release is not None:
            return none, self._per_node(law.release, facts)
        # U4: the noise on the answer hides a move of twice the error, at the price of its share.
        if isinstance(law, SphericalLaw) and facts.pure:
            return self._share(facts, law) / (2.0 * error), none
        return none, 2.0 * error / self._share(facts, law)

    def event(self, facts: Facts) -> Event:
        law = self.noise
        if law is None:
            return Unprotected(source=self.source, rows=facts.n)
        _check_loss(facts)
        beta_release, sigma_release = self._release(facts, law)
        claimed = None
        claimed_rho = None
        if law.claimed is not None:
            claimed = self._per_node(law.claimed, facts)
        if isinstance(law, GaussianLaw) and law.claimed_rho is not None:
            claimed_rho = self._per_node(law.claimed_rho, facts)
        if isinstance(law, GaussianLaw):
            return GaussianObjectivePerturbation(
                source=self.source, relation=facts.relation, sigma=self._per_node(law.sigma, facts), K=self._K(facts),
                curvature_bound=facts.loss.curvature_bound, dimension=facts.d, error=self._error(facts, law),
                sigma_release=sigma_release, claimed=claimed, claimed_rho=claimed_rho,
            )  # fmt: skip
        return SphericalObjectivePerturbation(
            source=self.source, relation=facts.relation, beta=self._per_node(law.rate, facts), K=self._K(facts),
            dimension=facts.d, error=self._error(facts, law), beta_release=beta_release, sigma_release=sigma_release,
            claimed=claimed, **_loss_terms(facts),  # type: ignore[arg-type]
        )  # fmt: skip

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
        w = self._minimiser(vault, facts, release)
        if law is None or not law.polish:
            return w
        rate, sigma = self._release(facts, law)
        coarsest = _FINE * self._certified(facts) / np.sqrt(facts.d)
        if np.any(sigma > 0):
            return vault.noise.add_gaussian(w, sigma, coarsest, release)
        return vault.noise.add_pure(w, rate, coarsest, release)

    def check(self, facts: Facts) -> None:
        # Without a guarantee, and in printed forms, which are for simulations only, this is enough.
        if self.noise is None or not self.noise.polish:
            length(self.linear, "linear")
            length(self.start, "start")
            return
        check_solve(facts, self._tol(facts), self.linear, self.start, self._q(facts), self._noise(facts))

    def ready(self, vault: Vault) -> None:
        if self.noise is not None:
            vault.noise.load()

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:
        """Repeat the solve in a simulation, so that the next solve starts as if uninterrupted.

        Parameters
        ----------
        vault, facts, release
            As for :meth:`Query.replay`.
        """
        vault.repeat(lambda: self._minimiser(vault, facts, release), self._nearest_start(facts))

    def blank(self, facts: Facts) -> Array:
        return np.zeros_like(self.start)

    def around(self, origin: Array, facts: Facts) -> Query:
        """Return the same problem about ``w = v + origin``.

        ``linear.v + q ||v||^2 / 2 = (linear - q origin).w + q ||w||^2 / 2 + const``, rho's part of
        q included.
        """
        return replace(self, linear=self.linear - self._q(facts) * origin, start=self.start + origin)

    def has_exact_density(self, supposed: Supposed, answers: Array) -> bool:
        """Return whether the density is exact at these answers.

        Gaussian noise in the objective and on the answer add up exactly only where the loss is
        linear.
        """
        if not isinstance(self.noise, GaussianLaw) or self.noise.release is None:
            return True
        return not np.any(supposed.facts.loss.curvature(np.einsum("kd,rd->rk", supposed.signed, answers[:, 0])))

    def log_density(self, supposed: Supposed, answer: Array) -> Array | None:
        """Return the log density of the answer by a change of variables (U1).

        It is that of the noise that makes the answer the minimiser, plus the log determinant of the
        map from answers to noise: the Hessian in sum scale.
        """
        vault, facts = supposed.vault, supposed.facts
        law, w = self.noise, answer
        if law is None:
            return certain(w, self.answer(vault, facts, 1))
        q = self._q(facts)
        sums = facts.n / facts.C  # brings a mean gradient to sum scale
        # The noise on the answer is not small: compare answers instead, with both noises Gaussian.
        if isinstance(law, GaussianLaw) and law.release is not None:
            spread = np.hypot(law.sigma / (sums * q), law.release)
            return gaussian(w - self.answer(vault, facts, 1), spread)
        # At the minimiser the gradient vanishes, which gives the noise.
        b = -sums * (vault.solver.gradient(w) + np.asarray(self.linear) + q * w)
        curvature = facts.loss.curvature(np.einsum("kd,rd->rk", supposed.signed, w[:, 0]))
        hessian = np.einsum("rk,kd,ke->rde", curvature, supposed.signed, supposed.signed)
        hessian = hessian + (sums * q).reshape(-1, 1, 1) * np.eye(w.shape[-1])
        determinant = np.linalg.slogdet(hessian)[1]
        if isinstance(law, GaussianLaw):
            return np.asarray(gaussian(b, law.sigma) + determinant)
        return np.asarray(spherical(b, law.rate) + determinant)

    def leaning(self, canaries: Canaries, answer: Array) -> Leaning | None:
        """Return how the noise that makes the answer the minimiser depends on canary rows.

        The determinant is left out: one row hardly changes it.
        """
        law, d = self.noise, canaries.facts.d
        q = float(np.max(self._q(canaries.facts)))
        middle, lean = canaries.gradients(answer)
        residual = -(middle + canaries.sums * (vector(self.linear) + q * answer))
        if law is None:
            return Leaning(residual, lean, 0.0)
        # Variance of a coordinate: E ||b||^2 / d = (d + 1) / rate^2.
        if isinstance(law, SphericalLaw):
            return Leaning(residual, lean, (d + 1.0) / float(np.min(law.rate)) ** 2)
        covariance = float(np.max(law.sigma)) ** 2 * np.eye(d)
        if law.release is not None:
            K = stiffness(canaries, answer, q)
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

    around = Query.around  # refused: its linear term is secret

    own: ArrayLike = 0.0
    before: SecretMinimiser | None = None

    def event(self, facts: Facts) -> Event:
        law = self.noise
        assert isinstance(law, SphericalLaw) and self.before is not None
        _check_loss(facts)
        moved = self.before.exact_sensitivity(facts)
        shift = facts.n / facts.C * np.abs(np.asarray(self.own, dtype=float)) * moved
        claimed = None
        if law.claimed is not None:
            claimed = self._per_node(law.claimed, facts)
        return SecretStartPerturbation(
            self.source, facts.relation, self._per_node(law.rate, facts), self._K(facts), facts.loss.curvature_bound,
            facts.d, self._per_node(shift, facts), claimed,
        )  # fmt: skip

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
        return PerturbedObjective.answer(self._told(vault), vault, facts, release)

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:
        """Repeat the solve in a simulation, with the secret part in the linear term.

        Parameters
        ----------
        vault, facts, release
            As for :meth:`Query.replay`.
        """
        PerturbedObjective.replay(self._told(vault), vault, facts, release)

    def _told(self, vault: Vault) -> SecretStartObjective:
        """Return the same query with the secret part added to its linear term."""
        secret = np.asarray(self.own, dtype=float) * last_minimiser(vault, self.start)
        return replace(self, linear=self.linear + secret, own=0.0)

    def log_density(self, supposed: Supposed, answer: Array) -> Array | None:
        return PerturbedObjective.log_density(self._told(supposed.vault), supposed, answer)

    def leaning(self, canaries: Canaries, answer: Array) -> Leaning | None:
        raise refusal_of_secret(self)
