"""Noise on a statistic of bounded sensitivity: the noisy proximal step (U7) and noisy gradients.

Guarantee
---------
With ``alpha``, an answer is the Gaussian mechanism of sensitivity over sigma ``alpha`` for one row
of its node; where every price must be pure, it has spherical noise of pure epsilon ``alpha``.
Sensitivities are computed here, from public facts, with the solver's error and the rounding to the
release's grid.  Without ``alpha`` nothing is guaranteed, and the event says so.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..errors import InvalidInput
from ..privacy.events import Event, ExactSphericalMechanism, GaussianMechanism, Unprotected
from ..problem.facts import Facts
from ..solvers.local import DataTerm, certified_error, elsewhere_bound, rounding_bound
from ..util.typing import Array, ArrayLike
from .audit_hooks import (
    Canaries,
    Leaning,
    Supposed,
    certain_log_density,
    gaussian_log_density,
    local_minimiser,
    refusal_of_secret,
    spherical_log_density,
    vector,
)
from .base import Query
from .reach import (
    INFLATION,
    certified_gradient_norm,
    check_solve,
    matched_tolerance,
    project_to_ball,
    public_vector_norm,
)
from .vault import Secret, Vault

# Relative part of a sensitivity that the rounding to the release's grid may add.
_FINE = 2.0**-20
MOVED = 2.0**-10
"""Relative part of a gradient's sensitivity that rounding by other positions of rows may add."""
# Unit roundoff of double precision.
_U = 2.0**-53


def gradient_sensitivity(facts: Facts, rows: Array) -> Array:
    """Return the sensitivity of a computed mean gradient, its rounding included.

    It is ``Delta C / rows`` plus twice the rounding error.  Two gradients of norm L differ by at
    most 2 L, and one from zero by L, whatever the signs of derivatives.  Rows that do not change
    have the same derivatives to the last bit, as they stand at the same position of the same
    products, and the sum rounds by at most ``C L (rows + 9) u``
    (:func:`sottovoce.solvers.local.rounding_bound`): a tenth of the whole at thirty million rows.

    So gradients are sums over rows as they come.  Among merged rows
    (:mod:`sottovoce.data.deduplicated`) the position of a row depends on which others repeat, which
    this bound does not cover; that of solves does.

    Where `rows` are people, another person may have another number of rows, and those of the others
    then stand at other positions: their margins round otherwise, which
    :func:`check_rounding_by_position` holds to a share `MOVED` of the whole.

    Parameters
    ----------
    facts : Facts
        Public facts of the run.
    rows : array of shape (..., 1)
        How many rows, or people where a person may have several rows, the mean is over.

    Returns
    -------
    array of shape (..., 1)
        Largest Euclidean change between neighbouring data sets.
    """
    # At the point 0 and without margins: derivatives of rows that do not change are the same to the
    # last bit.
    none = np.zeros_like(rows)
    stretch, summed = facts.stretch, facts.most_rows_of_units(rows) + 1.0
    rounding = rounding_bound(
        DataTerm(facts.C, summed, facts.loss, facts.d, stretch), none, none, none, margins=False
    )
    whole = facts.gradients_changed * facts.C / rows
    if facts.has_several_rows:
        rounding = rounding + elsewhere_bound(facts.C, facts.loss, facts.d, none, facts.stretch)
        whole = whole * (1.0 + MOVED)
    return np.asarray(whole + 2.0 * rounding)


def change_at_other_positions(facts: Facts, far: float) -> float:
    """Bound how rounding changes a sum of people's gradients if rows stand at other positions.

    A position is a row's number among those of its site, which are multiplied together.

    A margin errs by at most ``(d + 9) u (||w|| + T)`` with numbers to predict up to T, that of a
    moved row by at most ``(2 d + 24) u (||w|| + T)`` times the facts' stretch, and the mean
    gradient over n people by `hessian_bound` times as much, twice; what clips moved rows adds
    :func:`sottovoce.solvers.local.elsewhere_bound`.

    Parameters
    ----------
    facts : Facts
        Public facts of the run.
    far : float
        Largest norm of the points at which gradients are computed.

    Returns
    -------
    float
        Bound for the largest site, over C; 0 for one row a person.
    """
    if not facts.has_several_rows:
        return 0.0
    loss = facts.loss
    far = far + loss.offset_bound
    wide = facts.d + 9.0
    if facts.stretch != 1.0:
        wide = (2.0 * facts.d + 24.0) * facts.stretch
    # The part at 0 is in gradient_sensitivity already.
    clipping = float(
        np.ptp(elsewhere_bound(1.0, loss, facts.d, np.array([0.0, far]), facts.stretch))
    )
    return float(np.max(facts.n)) * 2.0 * (wide * _U * far * loss.hessian_bound + clipping)


def check_rounding_by_position(facts: Facts, start: Array) -> None:
    """Check that rounding by the position of rows stays below what the sensitivity allows for it.

    The position of a row is its number among the rows of its site, which are multiplied together.
    Where a person has several rows, a neighbouring table has another number of them, and the rows
    of all people after that person stand at other positions.  A product may round otherwise there,
    so gradients of rows that do not change differ in their last bits.  That difference must stay
    below the share `MOVED` that :func:`gradient_sensitivity` adds (docs/privacy/person.md,
    "Rounding").

    Parameters
    ----------
    facts : Facts
        Public facts of the run.
    start : array of shape (..., d)
        Public points at which gradients are computed.

    Raises
    ------
    InvalidInput
        If :func:`change_at_other_positions` exceeds the share `MOVED` of a gradient's bound, or
        is not a number.
    """
    far = 0.0
    if facts.has_several_rows:
        far = float(np.max(public_vector_norm(start, "start"), initial=0.0))
    # Not `>`: a bound that is NaN is refused too.
    if not change_at_other_positions(facts, far) <= MOVED * facts.loss.derivative_bound:
        rule = "the model's norm is so large that rounding hides the gradients of so many people"
        raise InvalidInput("eta", None, rule, "use a larger eta or rho")


@dataclass(frozen=True)
class NoisyStatistic(Query):
    """A statistic of the rows at a public point, plus noise on the answer.

    Parameters
    ----------
    start : array of shape (..., d)
        The public point; the answer has its shape.
    alpha : array of shape (..., 1) or None
        Sensitivity over sigma (mu of Gaussian differential privacy) of this release, or its pure
        epsilon where every price must be pure.  None for no noise.
    source : str
        The mechanism's name in ledgers.
    claimed : array of shape (..., 1), optional
        Pure epsilon that a paper claims for the release.

    Guarantee
    ---------
    Under the relation of the facts, for one row of the node, or one person where the facts say so:
    the Gaussian mechanism (:class:`~sottovoce.privacy.events.GaussianMechanism`), or spherical
    noise (:class:`~sottovoce.privacy.events.ExactSphericalMechanism`) under pure accounting.  None
    without `alpha` (:class:`~sottovoce.privacy.events.Unprotected`).
    """

    start: Array
    alpha: Array | None
    source: str
    claimed: Array | None = None

    @abstractmethod
    def exact_sensitivity(self, facts: Facts) -> Array:
        """Return the largest Euclidean change between neighbouring data sets, per node.

        It includes the solver's error and the rounding of the computation.
        """

    def number_of_entries(self, facts: Facts) -> int:
        """Return how many numbers the answer has."""
        return facts.d

    def sensitivity(self, facts: Facts) -> Array:
        """Return :meth:`exact_sensitivity` with the rounding to the release's grid."""
        whole = np.asarray(self.exact_sensitivity(facts) * (1.0 + _FINE))
        return np.broadcast_to(whole, np.broadcast_shapes(whole.shape, facts.n.shape))

    def event(self, facts: Facts) -> Event:
        """Return the event of a statistic of this sensitivity with this noise."""
        claimed = None
        if self.claimed is not None:
            claimed = np.broadcast_to(self.claimed, facts.n.shape)
        if self.alpha is None:
            return Unprotected(self.source, facts.n, claimed)
        sensitivity = self.sensitivity(facts)
        if facts.pure:
            # U2: rate times shift is the pure epsilon.
            rate = self.alpha / sensitivity
            return ExactSphericalMechanism(
                self.source,
                facts.relation,
                rate,
                sensitivity,
                self.number_of_entries(facts),
                claimed,
            )
        return GaussianMechanism(
            self.source,
            facts.relation,
            sensitivity / self.alpha,
            sensitivity,
            self.number_of_entries(facts),
            claimed,
        )

    def _coarsest_grid_step(self, sensitivity: Array, facts: Facts) -> Array:
        """Return the largest step of the release's grid."""
        # Rounding moves an entry by half a step, a vector of d entries by sqrt(d) / 2 steps, and
        # both neighbours' values are rounded: _FINE / 2 of the sensitivity, below what it was
        # enlarged by.
        return np.asarray(_FINE / 2.0 * sensitivity / np.sqrt(self.number_of_entries(facts)))

    def with_noise_added(
        self, exact: Array, vault: Vault, facts: Facts, release: int, use: int = 1
    ) -> Array:
        """Add the noise of a release to an exact value.

        Parameters
        ----------
        exact : array of shape (..., width)
            The statistic without noise.
        vault : Vault
            Holds the source of noise.
        facts : Facts
            Public facts of the nodes.
        release : int
            Running number of the release, which keys its noise in a simulation.
        use : int
            Number of the draw within the release.

        Returns
        -------
        array of shape (..., width)
            `exact` itself if the query has no `alpha`.
        """
        if self.alpha is None:
            return exact
        sensitivity = self.sensitivity(facts)
        coarsest = self._coarsest_grid_step(sensitivity, facts)
        if facts.pure:
            return vault.noise.add_spherical(
                exact, self.alpha / sensitivity, coarsest, release, use
            )
        return vault.noise.add_gaussian(exact, sensitivity / self.alpha, coarsest, release, use)

    def check_before_charge(self, facts: Facts) -> None:
        public_vector_norm(self.start, "start")

    def placeholder_answer(self, facts: Facts) -> Array:
        return np.zeros_like(self.start)

    def _noise_density(self, noise: Array, facts: Facts) -> Array:
        """Return the log density, (R,), of this noise on answers of R replicates of one node."""
        assert self.alpha is not None
        sensitivity = self.sensitivity(facts)
        if facts.pure:
            return spherical_log_density(noise, self.alpha / sensitivity)
        return gaussian_log_density(noise, sensitivity / self.alpha)

    def _spread(self, facts: Facts) -> float:
        """Return the standard deviation of a coordinate of the noise on one node's answer.

        `facts` are those of the node; of several nodes or replicates the largest counts.
        """
        if self.alpha is None:
            return 0.0
        scale = float(np.max(self.sensitivity(facts) / self.alpha))
        # The norm of spherical noise is Gamma(d, 1): E ||v||^2 = d (d + 1).
        if facts.pure:
            return scale * np.sqrt(self.number_of_entries(facts) + 1.0)
        return scale


class NoisyValue(NoisyStatistic):
    """A statistic whose value gets noise once, under local trust or in a secure aggregation.

    At a node it gets all of its noise; in a sum every site adds a share
    (:class:`sottovoce.queries.Sum`).
    """

    in_sums: ClassVar[str | None] = None
    """The name in ledgers of a sum of it, empty for its own; None if it may not be summed.

    Each class declares it for itself: a subclass has another statistic, of which no sum is
    proved."""

    def mean_sensitivity(self, facts: Facts, rows: Array) -> Array:
        """Return the sensitivity of a computed mean of :meth:`addend_of_site` over sites.

        Parameters
        ----------
        facts : Facts
            Public facts of the run.
        rows : array of shape (..., 1)
            How many rows the mean is over.

        Returns
        -------
        array of shape (..., 1)
            Largest Euclidean change by one of the rows.

        Raises
        ------
        InvalidInput
            By default: the statistic has no form in which sites add up.
        """
        raise no_sum_error(self)

    def addend_norm_bound(self, facts: Facts) -> Array:
        """Bound the norm of :meth:`addend_of_site` over any rows.

        Returns
        -------
        array of shape (..., 1)

        Raises
        ------
        InvalidInput
            By default: the statistic has no form in which sites add up.
        """
        raise no_sum_error(self)

    @abstractmethod
    def exact_statistic(self, vault: Vault, facts: Facts) -> Array:
        """Compute the statistic without noise; it never leaves the query."""

    def addend_of_site(self, vault: Vault, facts: Facts) -> Array:
        """Compute a site's addend, of which a sum releases the mean weighed by rows.

        It is the value less what follows from public facts alone.
        """
        return self.exact_statistic(vault, facts)

    def answer_from_mean(self, mean: Array, facts: Facts) -> Array:
        """Return the answer, given a mean of :meth:`addend_of_site` over sites."""
        return mean

    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        """Compute the statistic and add its noise.

        Parameters
        ----------
        vault, facts, release
            As for :meth:`Query.answer`.

        Returns
        -------
        array of the shape of :meth:`placeholder_answer`
        """
        return self.with_noise_added(self.exact_statistic(vault, facts), vault, facts, release)

    def log_density(self, supposed: Supposed, answer: Array) -> Array | None:
        exact = self.exact_statistic(supposed.vault, supposed.facts)
        if self.alpha is None:
            return certain_log_density(answer, exact)
        return self._noise_density(answer - exact, supposed.facts)


def no_sum_error(query: Query) -> InvalidInput:
    """Return the error for a query that has no form in which sites add up."""
    rule = f"{type(query).__name__} cannot be summed over sites"
    return InvalidInput("trust", "sum", rule, "use trust='nobody', or another method")


@dataclass(frozen=True)
class NoisyMinimiser(NoisyValue):
    """A minimiser of the local objective with noise on the answer: a noisy proximal step (U7).

    ``argmin f_i(w) + linear.w + curvature ||w||^2 / 2``

    Parameters
    ----------
    start, alpha, source, claimed
        As for :class:`NoisyStatistic`; `start` is where the solver starts.
    linear : array of shape (..., d)
        Public linear term.
    curvature : array of shape (..., 1)
        Public quadratic term, >= 0.

    Guarantee
    ---------
    That of :class:`NoisyStatistic`, with sensitivity ``Delta C / (n q) + 2 error`` for ``q = rho /
    N + curvature`` and the solver's certified error (``docs/privacy/tight.md``).  In a sum the site
    weighs ``n / rows <= 1``, so a row moves the mean by at most ``Delta C / (rows q) + 2 error``.
    Sites add up how far their minimisers are from those without rows, which public facts bound
    whatever the public point.
    """

    linear: ArrayLike = 0.0
    curvature: ArrayLike = 0.0
    of_people: ClassVar[bool] = True
    in_sums: ClassVar[str | None] = "sum of proximal steps"

    def _q(self, facts: Facts) -> Array:
        """Return the whole quadratic term, rho's part included, (..., 1)."""
        return np.asarray(facts.mu + np.asarray(self.curvature, dtype=float))

    def _tol(self, facts: Facts) -> Array:
        """Return the gradient norm, over C, to which the solve is certified."""
        if self.alpha is None:
            return np.array(facts.exact_tol)
        # Twice the certified error, 4 C tol / q, is then INFLATION of the sensitivity Delta C / (n
        # q).
        tol = matched_tolerance(facts, INFLATION * facts.change_certified / (4.0 * facts.n))
        return certified_gradient_norm(facts, tol, self._q(facts))

    def exact_sensitivity(self, facts: Facts) -> Array:
        """Return the sensitivity of the minimiser, per node.

        The formula is that of :meth:`mean_sensitivity` for one site's rows, in another order of
        operations: published events must not change in their last bits.
        """
        # Minimisers of q-strongly convex objectives move by at most the gradient's change over q,
        # and each of the two answers may be off by the solver's error.
        error = certified_error(facts.C, self._tol(facts), self._q(facts))
        return facts.gradients_changed / facts.strong_convexity_of(self.curvature) + 2.0 * error

    def mean_sensitivity(self, facts: Facts, rows: Array) -> Array:
        q = self._q(facts)
        error = certified_error(facts.C, self._tol(facts.pooled_facts), q)
        return np.asarray(
            facts.gradients_changed * facts.C / (rows * q) + 2.0 * error + np.zeros_like(facts.n)
        )

    def addend_norm_bound(self, facts: Facts) -> Array:
        q = self._q(facts)
        error = certified_error(facts.C, self._tol(facts.pooled_facts), q)
        return np.asarray(
            facts.C * facts.loss.derivative_bound / q + error + np.zeros_like(facts.n)
        )

    def addend_of_site(self, vault: Vault, facts: Facts) -> Array:
        """Return the minimiser less that without rows, which is public, projected to its bound."""
        alike = facts.pooled_facts
        start, tol = self._nearest_possible_answer(self.start, alike), self._tol(alike)
        w = vault.solver.minimise(self._linear(), self._q(facts), start, tol).w
        # The minimiser without rows is public, and is added again to the mean.
        found = w - self._alone(facts)
        # Certified answers lie in this ball; the projection makes the bound hold for whatever
        # comes.
        most = self.addend_norm_bound(facts)
        norm = np.linalg.norm(found, axis=-1, keepdims=True)
        return np.where(norm > most, found * (most / np.maximum(norm, most)), found)

    def answer_from_mean(self, mean: Array, facts: Facts) -> Array:
        return mean + self._alone(facts)

    def _alone(self, facts: Facts) -> Array:
        """Return the minimiser without any rows, which is public, (..., d)."""
        return np.asarray(-self._linear() / self._q(facts))

    def check_before_charge(self, facts: Facts) -> None:
        # Without a guarantee a failure may depend on rows.
        if self.alpha is None:
            return
        check_solve(facts, self._tol(facts), self._linear(), self.start, self._q(facts))

    def _linear(self) -> Array:
        """Return the public linear term in the shape of `start`."""
        return np.broadcast_to(np.asarray(self.linear, dtype=float), self.start.shape)

    def _nearest_possible_answer(self, w: Array, facts: Facts) -> Array:
        """Return points projected to the ball in which certified answers lie (:mod:`.reach`)."""
        return project_to_ball(
            w, facts, self._tol(facts), public_vector_norm(self._linear(), "linear"), self._q(facts)
        )

    def around_origin(self, origin: Array, facts: Facts) -> Query:
        return replace(
            self, linear=self._linear() - self._q(facts) * origin, start=self.start + origin
        )

    def exact_statistic(self, vault: Vault, facts: Facts) -> Array:
        start, tol = self._nearest_possible_answer(self.start, facts), self._tol(facts)
        return self._nearest_possible_answer(
            vault.solver.minimise(self._linear(), self._q(facts), start, tol).w, facts
        )

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:
        """Repeat the solve in a simulation, so that the next solve starts as if uninterrupted.

        Parameters
        ----------
        vault, facts, release
            As for :meth:`Query.replay`; `release` is not used.
        """
        vault.repeat_solve(
            lambda: self.exact_statistic(vault, facts),
            self._nearest_possible_answer(self.start, facts),
        )

    def canary_dependence(self, canaries: Canaries, answer: Array) -> Leaning | None:
        linear = np.broadcast_to(vector(self.linear), answer.shape)
        q = float(np.max(self._q(canaries.facts)))
        middle, lean, K = local_minimiser(canaries, linear, q, answer)
        return Leaning(K @ (answer - middle), -lean, self._spread(canaries.facts) ** 2 * (K @ K))


@dataclass(frozen=True)
class NoisyGradient(NoisyValue):
    """The data's gradient ``(C / n) sum_k derivative(a_k.w) a_k`` at ``w = start``, with noise.

    Parameters
    ----------
    start, alpha, source, claimed
        As for :class:`NoisyStatistic`; `start` is w.

    Guarantee
    ---------
    That of :class:`NoisyStatistic`, with :func:`gradient_sensitivity`.  In a sum, a site's
    rounding, weighed by its rows, is below that of all rows at one site.
    """

    of_people: ClassVar[bool] = True
    in_sums: ClassVar[str | None] = "sum of gradients"

    def check_before_charge(self, facts: Facts) -> None:
        super().check_before_charge(facts)
        check_rounding_by_position(facts, self.start)

    def exact_sensitivity(self, facts: Facts) -> Array:
        return self.mean_sensitivity(facts, facts.n)

    def mean_sensitivity(self, facts: Facts, rows: Array) -> Array:
        return gradient_sensitivity(facts, rows)

    def addend_norm_bound(self, facts: Facts) -> Array:
        return np.full((*facts.n.shape[:-1], 1), facts.C * facts.loss.derivative_bound)

    def around_origin(self, origin: Array, facts: Facts) -> Query:
        return replace(self, start=self.start + origin)

    def answer_from_origin(self, answer: Array, origin: Array) -> Array:
        """Return the answer itself: the data's gradient is that at the point itself."""
        return answer

    def exact_statistic(self, vault: Vault, facts: Facts) -> Array:
        return vault.solver.gradient(self.start)

    def canary_dependence(self, canaries: Canaries, answer: Array) -> Leaning | None:
        """Return how a gradient depends on canary rows, in sum scale."""
        middle, lean = canaries.gradients(vector(self.start))
        return Leaning(
            canaries.sums * answer - middle,
            lean,
            (canaries.sums * self._spread(canaries.facts)) ** 2,
        )


@dataclass(frozen=True)
class NoisyEpoch(NoisyStatistic):
    """One pass of noisy gradient steps over `batches` fixed parts of the rows (one epoch).

    ``w <- w - step (g_b + mu (w - origin))`` with the noisy mean gradient ``g_b`` of part b, which
    has the rows k with ``k mod batches = b``.

    Parameters
    ----------
    start, alpha, source, claimed
        As for :class:`NoisyStatistic`; `start` is the first w.
    batches : int
        How many parts the rows have.
    step : array of shape (..., 1)
        Step size, > 0.
    origin : array of shape (..., d)
        Public point to which the regulariser pulls.

    Guarantee
    ---------
    That of :class:`NoisyStatistic`.  A row moves one part's gradient only, by
    :func:`gradient_sensitivity` of ``n // batches`` rows, so the pass costs one release (parallel
    composition over disjoint parts, each of which may depend on earlier results).  No amplification
    by sampling is claimed.
    """

    batches: int = 1
    step: ArrayLike = 1.0
    origin: ArrayLike = 0.0

    def around_origin(self, origin: Array, facts: Facts) -> Query:
        return replace(
            self, start=self.start + origin, origin=np.asarray(self.origin, dtype=float) + origin
        )

    def exact_sensitivity(self, facts: Facts) -> Array:
        return gradient_sensitivity(facts, np.maximum(np.floor(facts.n / self.batches), 1.0))

    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        """Run the pass; every part's gradient gets fresh noise.

        Parameters
        ----------
        vault, facts, release
            As for :meth:`Query.answer`.

        Returns
        -------
        array of shape (..., d)
            The last w.
        """
        w, step = self.start, np.asarray(self.step, dtype=float)
        # Each part's draw has its own number within the release.
        for b in range(self.batches):
            g = self.with_noise_added(
                vault.solver.gradient(w, part=b, parts=self.batches),
                vault,
                facts,
                release,
                use=b + 1,
            )
            w = w - step * (g + facts.mu * (w - np.asarray(self.origin, dtype=float)))
        return np.asarray(w)

    def canary_dependence(self, canaries: Canaries, answer: Array) -> Leaning | None:
        """Return how a pass from a public start depends on canary rows.

        Each later part carries the noise and the canaries of the parts before it through its own
        linear map.
        """
        facts, parts, w = canaries.facts, self.batches, vector(self.start)
        step = float(np.max(self.step))
        eye = np.eye(facts.d)
        weight = facts.C / max(float(np.floor(facts.n[0, 0] / parts)), 1.0)
        noise = self._spread(facts)
        covariance = np.zeros_like(eye)
        lean = np.zeros((facts.d, canaries.count))
        for b in range(parts):
            middle, half = canaries.gradients(w, b, parts)
            # The derivative of this part's step, through which what came before is carried on.
            on = eye - step * (weight * canaries.hessian(w, b, parts) + facts.mu * eye)
            covariance = on @ covariance @ on.T + (step * noise) ** 2 * eye
            lean = on @ lean - step * weight * half
            w = w - step * (weight * middle + facts.mu * (w - vector(self.origin)))
        # In units of the noise's root mean square deviation over coordinates.
        scale = float(np.sqrt(max(np.trace(covariance) / facts.d, 1e-300)))
        return Leaning((answer - w) / scale, lean / scale, covariance / scale**2)


@dataclass(frozen=True)
class LastMinimiser(Secret):
    """The exact minimiser of the round before, which was never sent, of shape (..., d)."""

    f: Array


@dataclass(frozen=True)
class SecretMinimiser(NoisyMinimiser):
    """A minimiser whose objective reads the last exact minimiser (001, Algorithm 3 as printed).

    The linear term has a part ``own * f``, with f the last round's exact minimiser, which never
    leaves the vault.

    Parameters
    ----------
    start, alpha, source, claimed, linear, curvature
        As for :class:`NoisyMinimiser`; `alpha` is the paper's, pure epsilon per round.
    own : array of shape (..., 1)
        Factor of the secret part of the linear term.
    path : tuple of arrays of shape (..., 1)
        ``|own|`` of the rounds 1 .. t, as penalties may grow.

    Guarantee
    ---------
    Given all that was sent, f is a function of the rows, of sensitivity ``delta(t) = (Delta C / n +
    |own(t)| delta(t-1)) / q(t) + 2 error(t)``, ``delta(0) = 0``, ``q = mu + |own|``, which prices
    it; errors apart it stays below ``Delta C / (n mu)`` (docs/privacy/verdicts.md).  The noise's
    rate is the paper's, ``rho n alpha / (2 C)``, and the price is that of
    :class:`~sottovoce.privacy.events.ExactSphericalMechanism`.
    """

    # Refused: its linear term is secret.
    around_origin = Query.around_origin

    own: ArrayLike = 0.0
    path: tuple[Array, ...] = ()

    def exact_sensitivity(self, facts: Facts) -> Array:
        """Return the sensitivity of the last round's minimiser, given all that was sent."""
        # The recursion of the class's Guarantee, from delta(0) = 0.
        moved = np.zeros(1)
        for pull in self.path:
            q = facts.mu + pull
            step = facts.gradients_changed * facts.C / facts.n + pull * moved
            moved = step / q + 2.0 * certified_error(facts.C, facts.exact_tol, q)
        return moved

    def check_before_charge(self, facts: Facts) -> None:
        """Check that public vectors are finite.

        That is enough for printed forms, which only run in simulations.
        """
        public_vector_norm(self.linear, "linear")
        public_vector_norm(self.start, "start")

    def _rate(self, facts: Facts) -> Array:
        """Return the paper's rate of the spherical noise, (N, 1)."""
        assert self.alpha is not None
        # 001, Algorithm 3: zeta = rho B alpha / (2 C), with rho / N here for the paper's rho.
        return np.asarray(facts.mu * facts.n * self.alpha / (2.0 * facts.C))

    def event(self, facts: Facts) -> Event:
        assert self.alpha is not None
        rate, claimed = (np.broadcast_to(x, facts.n.shape) for x in (self._rate(facts), self.alpha))
        return ExactSphericalMechanism(
            self.source, facts.relation, rate, self.sensitivity(facts), facts.d, claimed
        )

    def exact_statistic(self, vault: Vault, facts: Facts) -> Array:
        """Return the exact minimiser of this round, which the vault keeps for the next one."""
        # The first round has none before it.
        if len(self.path) == 1:
            before = np.zeros_like(self.start)
        else:
            before = last_minimiser(vault, self.start)
        linear = np.asarray(self.linear, dtype=float) + np.asarray(self.own, dtype=float) * before
        f = vault.solver.minimise(linear, self._q(facts), self.start, facts.exact_tol).w
        vault.keep_secret(LastMinimiser(f))
        return f

    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        """Compute the exact minimiser, keep it, and release it with spherical noise.

        Parameters
        ----------
        vault, facts, release
            As for :meth:`Query.answer`.

        Returns
        -------
        array of shape (..., d)
        """
        exact = self.exact_statistic(vault, facts)
        coarsest = self._coarsest_grid_step(self.sensitivity(facts), facts)
        return vault.noise.add_spherical(exact, self._rate(facts), coarsest, release)

    def log_density(self, supposed: Supposed, answer: Array) -> Array | None:
        """Return the log density of the spherical noise that the paper adds."""
        if self.alpha is None:
            return super().log_density(supposed, answer)
        return spherical_log_density(
            answer - self.exact_statistic(supposed.vault, supposed.facts),
            self._rate(supposed.facts),
        )

    def canary_dependence(self, canaries: Canaries, answer: Array) -> Leaning | None:
        raise refusal_of_secret(self)


def last_minimiser(vault: Vault, start: Array) -> Array:
    """Return the minimiser that :class:`SecretMinimiser` kept, or zeros of the shape of `start`."""
    kept = vault.recall_secret(LastMinimiser)
    if kept is None:
        return np.zeros_like(start)
    return kept.f
