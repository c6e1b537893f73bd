"""Noise in a local objective: its laws, their size for a given price, and their effect at a node.

A *law* is a distribution of the random linear term of
:class:`sottovoce.queries.PerturbedObjective`, with the noise on the solver's answer that covers its
error (*polish*).  Sizes are in sum scale (:mod:`sottovoce.problem.facts`).  The proofs are those of
that query.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..errors import InvalidInput
from ..privacy.bounds import objective_perturbation_epsilon, objective_perturbation_rate
from ..problem.facts import Facts
from ..problem.trust import RELATIONS
from ..solvers.local import certified_error
from ..util.typing import Array, ArrayLike
from .reach import INFLATION, certified_gradient_norm, matched_tolerance

POLISH = 0.01
"""Share of a release's pure epsilon that is spent on the solver's inexact answer."""
POLISH_SQUARED = 0.001
"""Share of a release's squared sensitivity over sigma that is spent on it, with a delta."""

# Noise is longer than `ObjectiveNoise.longest` with a probability of at most e^-700.
_FAR = 700.0
# Share of that length by which noise drawn in double precision may differ from exact noise.
_ROUNDING = 2.0**-46
FINE = 2.0**-11
"""Share of the solver's certified distance by which the release's grid may move an answer."""


def change_by_rows(facts: Facts) -> float:
    """Return the largest change of the noise by a row, in sum scale: 2 for replace-one, else 1.

    Events of objectives carry no derivative bound, so every loss is priced as if it were 1.
    """
    return RELATIONS[facts.relation]


def loss_terms(facts: Facts) -> dict[str, float | bool]:
    """Return the properties of a loss on which prices of noise in objectives depend."""
    return {"curvature_bound": facts.loss.curvature_bound, "logistic": facts.loss.logistic_identity}


def check_loss(facts: Facts) -> None:
    """Raise InvalidInput for a loss for which no price of noise in objectives is proved."""
    if rule := facts.loss.unproved_inside:
        raise InvalidInput(
            "loss", facts.loss.spec, rule, "use a method with noise on answers, e.g. 'prox_admm'"
        )


def rate_for_epsilon(epsilon: ArrayLike, curvature: ArrayLike, facts: Facts) -> Array:
    """Return the rate ``beta`` of the noise at which one release costs `epsilon`, per node.

    Under pure accounting `epsilon` is the whole price, with the noise on the answer.  With a delta
    it is the price ``Delta beta`` of the noise alone; the accountant adds the curvature's part,
    which costs almost nothing.

    Parameters
    ----------
    epsilon : array (..., 1)
        Price of the release, > 0.
    curvature : array (..., 1)
        Public quadratic term of the objective, besides rho's.
    facts : Facts
        Public facts of the nodes.

    Returns
    -------
    array (..., 1)
        In sum scale.

    Raises
    ------
    InvalidInput
        Where the curvature of the loss alone costs more than `epsilon`; its ``nodes`` says where.
    """
    delta_gradient = change_by_rows(facts)
    if not facts.pure:
        return np.asarray(epsilon, dtype=float) / delta_gradient
    exact = np.asarray(epsilon, dtype=float) / (1.0 + POLISH)
    rate = objective_perturbation_rate(
        exact,
        facts.strong_convexity_of(curvature),
        delta_gradient=delta_gradient,
        **loss_terms(facts),  # type: ignore[arg-type]
    )
    if np.any(np.isnan(rate)):
        rule = "is below what the curvature of the loss alone costs, whatever the noise"
        error = InvalidInput("alpha", np.min(epsilon).item(), rule, "raise alpha, eta, phi or rho")
        error.nodes = np.isnan(np.broadcast_to(rate, facts.n.shape)).ravel()
        raise error
    return rate


@dataclass(frozen=True)
class SphericalLaw:
    """Noise of density ``exp(-rate ||b||)`` in sum scale, shape (..., 1).

    `polish` adds noise to the solver's answer, so that the proof covers the solver's error; printed
    forms leave it out, and their price assumes exact minimisation.  `claimed` is the paper's own
    epsilon per release.
    """

    rate: Array
    polish: bool = True
    claimed: Array | None = None


@dataclass(frozen=True)
class GaussianLaw:
    """Noise ``N(0, sigma^2 I)`` in sum scale, which has no pure epsilon; fields as in
    :class:`SphericalLaw`.

    `release` is the standard deviation of the noise on the answer where a paper sets it,
    `claimed_rho` the paper's own zCDP per release.
    """

    sigma: Array
    polish: bool = True
    claimed: Array | None = None
    release: Array | None = None
    claimed_rho: Array | None = None


def check_law(law: str, facts: Facts) -> None:
    """Raise InvalidInput for an unknown law, or one that has no price in this run."""
    if law not in ("spherical", "gaussian"):
        raise InvalidInput("law", law, "must be 'spherical' or 'gaussian'", "use 'spherical'")
    if law == "gaussian" and facts.pure:
        raise InvalidInput(
            "law", law, "Gaussian noise has no pure epsilon", "give a delta, or use law='spherical'"
        )


def noise_of_law(
    law: str, alpha: Array, curvature: ArrayLike, facts: Facts
) -> SphericalLaw | GaussianLaw:
    """Return the noise of a release that costs `alpha`.

    Parameters
    ----------
    law : {"spherical", "gaussian"}
    alpha : array (..., 1)
        Epsilon of spherical noise, as for :func:`rate_for_epsilon`; sensitivity over sigma of
        Gaussian noise.
    curvature : array (..., 1)
        Public quadratic term of the objective, besides rho's.
    facts : Facts
        Public facts of the nodes.

    Returns
    -------
    SphericalLaw or GaussianLaw

    Raises
    ------
    InvalidInput
        As :func:`check_law` and :func:`rate_for_epsilon`.
    """
    check_law(law, facts)
    if law == "gaussian":
        return GaussianLaw(change_by_rows(facts) / alpha)
    return SphericalLaw(rate_for_epsilon(alpha, curvature, facts))


@dataclass(frozen=True)
class ObjectiveNoise:
    """The size and effect of a law's noise at nodes with these facts.

    Parameters
    ----------
    law : SphericalLaw, GaussianLaw or None
    curvature : array (..., 1)
        Public quadratic term, besides rho's.
    facts : Facts
    asked_tol : float, optional
        Relative gradient norm to which the solve is certified; None for ``solver_tolerance`` of the
        facts.
    """

    law: SphericalLaw | GaussianLaw | None
    curvature: Array
    facts: Facts
    asked_tol: float | None = None

    def per_node(self, x: ArrayLike) -> Array:
        """Return a number for every node, (N, 1)."""
        found = np.asarray(x, dtype=float)
        if found.shape == self.facts.n.shape:
            return found
        return np.broadcast_to(found, self.facts.n.shape)

    @cached_property
    def quadratic_term(self) -> Array:
        """The whole quadratic term, rho's part included, (..., 1)."""
        return self.facts.mu + np.asarray(self.curvature, dtype=float)

    @cached_property
    def strong_convexity(self) -> Array:
        """The whole quadratic term in sum scale, per node."""
        return self.per_node(self.facts.strong_convexity_of(self.curvature))

    @cached_property
    def longest(self) -> Array:
        """A length that the noise exceeds with probability at most ``e^-700``, in sum scale."""
        law, d = self.law, self.facts.d
        # Spherical: rate ||b|| is Gamma(d), and P(G > d + sqrt(2 d t) + t) <= e^-t.  Gaussian:
        # ||b|| / sigma is chi of d degrees, and P(X > sqrt(d) + sqrt(2 t)) <= e^-t.
        if isinstance(law, SphericalLaw):
            return self.per_node((d + np.sqrt(2.0 * d * _FAR) + _FAR) / law.rate)
        if isinstance(law, GaussianLaw):
            return self.per_node((np.sqrt(d) + np.sqrt(2.0 * _FAR)) * law.sigma)
        return np.zeros(self.facts.n.shape)

    @cached_property
    def linear_pull(self) -> Array:
        """:attr:`longest` as part of the linear term."""
        return self.facts.C / self.facts.n * self.longest

    @cached_property
    def solver_tolerance(self) -> Array:
        """The relative gradient norm to which the solve is certified."""
        facts, tol = self.facts, self.asked_tol
        if self.law is None or not self.law.polish:
            return np.array(facts.exact_tol if tol is None else tol)
        return certified_gradient_norm(
            facts,
            matched_tolerance(facts, self._sufficient_tolerance(self.law)) if tol is None else tol,
            self.quadratic_term,
            self.linear_pull,
        )

    @cached_property
    def certified_distance(self) -> Array:
        """Largest distance of the solver's answer from the exact minimiser, per node."""
        return certified_error(
            self.facts.C, self.solver_tolerance, self.facts.mu + self.per_node(self.curvature)
        )

    @cached_property
    def error(self) -> Array:
        """Largest distance of a release, before noise is added to it, from the exact minimiser.

        It adds up the solver's certified distance, the grid's rounding, and how far the rounding of
        the noise in the objective moves the minimiser.  Per node.
        """
        return (
            self.certified_distance * (1.0 + FINE)
            + _ROUNDING * self.longest / self.strong_convexity
        )

    @cached_property
    def release(self) -> tuple[Array, Array]:
        """Rate and standard deviation of the noise on the answer, which pays for :attr:`error`.

        They are ``beta_release`` and ``sigma_release`` of the event, per node; 0 for none.
        """
        law, none = self.law, np.zeros(self.facts.n.shape)
        if law is None or not law.polish:
            return none, none
        if isinstance(law, GaussianLaw) and law.release is not None:
            return none, self.per_node(law.release)
        if isinstance(law, SphericalLaw) and self.facts.pure:
            return self._share(law) / (2.0 * self.error), none
        return none, 2.0 * self.error / self._share(law)

    def _sufficient_tolerance(self, law: SphericalLaw | GaussianLaw) -> Array:
        """Return the solver's tolerance at which the noise on the answer hardly counts.

        The release is then noisier than the exact minimiser by a share of at most `INFLATION`.

        Noise of deviation s in the objective, sum scale, moves the answer by at least about ``(C /
        n) s / (quadratic_term + C c1 / d)``, root mean square over directions: the eigenvalues of
        the data's Hessian have a mean of at most ``C c1 / d``, and ``1 / (quadratic_term + x)^2``
        is convex.  Noise on the answer has a deviation of ``2 error / share`` with ``error = 2 C
        solver_tolerance / quadratic_term``; independent noises add in squares.
        """
        facts = self.facts
        # The noise on the answer is a paper's own, whatever the error.
        if isinstance(law, GaussianLaw) and law.release is not None:
            return np.array(facts.exact_tol)
        if isinstance(law, GaussianLaw):
            spread = self.per_node(law.sigma)
        else:
            spread = self.per_node((1.0 if facts.pure else np.sqrt(facts.d + 1.0)) / law.rate)
        q = facts.mu + self.per_node(self.curvature)
        q_typical = q + facts.C * facts.loss.curvature_bound / facts.d
        room = np.sqrt((1.0 + INFLATION) ** 2 - 1.0)
        return np.asarray(room * self._share(law) * spread * q / (4.0 * facts.n * q_typical))

    def _share(self, law: SphericalLaw | GaussianLaw) -> Array:
        """Return what the noise on an answer may cost: pure epsilon, or sensitivity over sigma.

        The latter where there is a delta.
        """
        delta_gradient = change_by_rows(self.facts)
        if isinstance(law, GaussianLaw):
            return np.sqrt(POLISH_SQUARED) * self.per_node(delta_gradient / law.sigma)
        if not self.facts.pure:
            return np.sqrt(POLISH_SQUARED) * self.per_node(
                delta_gradient * law.rate / np.sqrt(self.facts.d)
            )
        exact = objective_perturbation_epsilon(
            self.per_node(law.rate),
            self.strong_convexity,
            delta_gradient=delta_gradient,
            **loss_terms(self.facts),  # type: ignore[arg-type]
        )
        return POLISH * exact
