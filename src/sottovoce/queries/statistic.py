"""Noise on a statistic of bounded sensitivity: the noisy proximal step (U7) and noisy gradients.

Guarantee
---------
With ``alpha``, an answer is the Gaussian mechanism of shift over sigma ``alpha`` for one row of its node; where every
price must be pure, it has spherical noise of pure epsilon ``alpha``.  Sensitivities are computed here, from public
facts, with the solver's error and the rounding to the release's grid.  Without ``alpha`` nothing is guaranteed, and the
event says so.
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
from .audit_hooks import Canaries, Leaning, Supposed, centre, certain, gaussian, refusal_of_secret, spherical, vector
from .base import Query
from .reach import INFLATION, certificate, check_solve, inside, length, matched
from .vault import Secret, Vault

_FINE = 2.0**-20  # of the sensitivity: what the grid may add to it
MOVED = 2.0**-10
"""Of a gradient's sensitivity: what rows may add that stand at another place."""
_U = 2.0**-53


def gradient_sensitivity(facts: Facts, rows: Array) -> Array:
    """How far a row moves a computed mean gradient of `rows` rows: ``Delta C / rows``, plus twice its rounding error.

    Two gradients of norm L differ by at most 2 L, and one from zero by L, whatever the signs of derivatives.  Rows that
    do not change have the same derivatives to the last bit, as they stand at the same place of the same products, and
    the sum rounds by at most ``C L (rows + 9) u`` (:func:`sottovoce.solvers.local.rounding_bound`): a tenth of the
    whole at thirty million rows.

    So gradients are sums over rows as they come.  Among merged rows (:mod:`sottovoce.data.deduplicated`) the place of a
    row depends on which others repeat, which this bound does not cover; that of solves does.

    Where `rows` are people, another person may have another number of rows, and those of the others then stand at other
    places: their margins round otherwise, which :func:`check_places` holds to a share `MOVED` of the whole.
    """
    none = np.zeros_like(rows)
    stretch, summed = facts.stretch, facts.summands(rows) + 1.0
    rounding = rounding_bound(DataTerm(facts.C, summed, facts.loss, facts.d, stretch), none, none, none, margins=False)
    whole = facts.gradients_changed * facts.C / rows
    if facts.several:
        rounding = rounding + elsewhere_bound(facts.C, facts.loss, facts.d, none, facts.stretch)
        whole = whole * (1.0 + MOVED)
    return np.asarray(whole + 2.0 * rounding)


def moved_apart(facts: Facts, far: float) -> float:
    """How far n people's gradients may differ together at points of norm `far`, where rows stand at other places.

    A margin errs by at most ``(d + 9) u (||w|| + T)`` with numbers to predict up to T, that of a moved row by at most
    ``(2 d + 24) u (||w|| + T)`` times the facts' stretch, and the mean gradient over n people by `hessian_bound` times
    as much, twice; what shortens moved rows adds :func:`sottovoce.solvers.local.elsewhere_bound`.  0 for one row a
    person.
    """
    if not facts.several:
        return 0.0
    far, loss = far + facts.loss.offset_bound, facts.loss
    wide = facts.d + 9.0 if facts.stretch == 1.0 else (2.0 * facts.d + 24.0) * facts.stretch
    short = float(np.ptp(elsewhere_bound(1.0, loss, facts.d, np.array([0.0, far]), facts.stretch)))
    return float(np.max(facts.n)) * 2.0 * (wide * _U * far * loss.hessian_bound + short)


def check_places(facts: Facts, start: Array) -> None:
    """Refuse points at which margins of rows that stand at other places could round too differently."""
    far = float(np.max(length(start, "start"), initial=0.0)) if facts.several else 0.0
    if not moved_apart(facts, far) <= MOVED * facts.loss.derivative_bound:
        rule = "the model is too long for so many people's gradients to be told apart from rounding"
        raise InvalidInput("eta", None, rule, "use a larger eta or rho")


@dataclass(frozen=True)
class NoisyStatistic(Query):
    """A statistic of the rows at a public point, plus noise.

    Parameters
    ----------
    start : array (..., d)
        The point; the answer has its shape.
    alpha : array (..., 1) or None
        Shift over sigma, or pure epsilon, of this release.
    source, claimed
        Of the mechanism, and the paper's own pure epsilon, if any.
    """

    start: Array
    alpha: Array | None
    source: str
    claimed: Array | None = None

    @abstractmethod
    def exact_sensitivity(self, facts: Facts) -> Array:
        """Largest Euclidean change between neighbouring data sets, per node, with the solver's error."""

    def entries(self, facts: Facts) -> int:
        """How many numbers the answer has."""
        return facts.d

    def sensitivity(self, facts: Facts) -> Array:
        """:meth:`exact_sensitivity` with the grid's rounding."""
        whole = np.asarray(self.exact_sensitivity(facts) * (1.0 + _FINE))
        return np.broadcast_to(whole, np.broadcast_shapes(whole.shape, facts.n.shape))

    def event(self, facts: Facts) -> Event:
        claimed = None if self.claimed is None else np.broadcast_to(self.claimed, facts.n.shape)
        if self.alpha is None:
            return Unprotected(self.source, facts.n, claimed)
        sensitivity = self.sensitivity(facts)
        if facts.pure:
            rate = self.alpha / sensitivity
            return ExactSphericalMechanism(self.source, facts.relation, rate, sensitivity, self.entries(facts), claimed)
        return GaussianMechanism(
            self.source, facts.relation, sensitivity / self.alpha, sensitivity, self.entries(facts), claimed
        )  # fmt: skip

    def _coarsest(self, sensitivity: Array, facts: Facts) -> Array:
        """The largest step of the release's grid."""
        return np.asarray(_FINE / 2.0 * sensitivity / np.sqrt(self.entries(facts)))

    def noisy(self, exact: Array, vault: Vault, facts: Facts, release: int, use: int = 1) -> Array:
        """`exact` plus the noise of this release; `use` numbers the draws of a release."""
        if self.alpha is None:
            return exact
        sensitivity = self.sensitivity(facts)
        coarsest = self._coarsest(sensitivity, facts)
        if facts.pure:
            return vault.noise.add_pure(exact, self.alpha / sensitivity, coarsest, release, use)
        return vault.noise.add_gaussian(exact, sensitivity / self.alpha, coarsest, release, use)

    def check(self, facts: Facts) -> None:
        length(self.start, "start")

    def blank(self, facts: Facts) -> Array:
        return np.zeros_like(self.start)

    def _noise_density(self, noise: Array, facts: Facts) -> Array:
        """Log density, shape (R,), of this noise on an answer."""
        assert self.alpha is not None
        sensitivity = self.sensitivity(facts)
        if facts.pure:
            return spherical(noise, self.alpha / sensitivity)
        return gaussian(noise, sensitivity / self.alpha)

    def _spread(self, facts: Facts) -> float:
        """Standard deviation of a coordinate of the noise on one node's answer."""
        if self.alpha is None:
            return 0.0
        scale = float(np.max(self.sensitivity(facts) / self.alpha))
        return scale * (np.sqrt(self.entries(facts) + 1.0) if facts.pure else 1.0)  # E ||v||^2 = d (d + 1)


class NoisyValue(NoisyStatistic):
    """A statistic whose value gets noise once: all of it at a node, or in shares (:class:`sottovoce.queries.Sum`)."""

    in_sums: ClassVar[str | None] = None
    """The source that ledgers name for a sum of it, empty for its own; None if it may not be summed.

    Each class declares it for itself: a subclass has another statistic, of which no sum is proved."""

    def moved(self, facts: Facts, rows: Array) -> Array:
        """Largest Euclidean change of a computed mean of :meth:`addend` over `rows` rows by one of them, (..., 1)."""
        raise refused(self)

    def reach(self, facts: Facts) -> Array:
        """Bound on the norm of :meth:`addend` over any rows, shape (..., 1)."""
        raise refused(self)

    @abstractmethod
    def value(self, vault: Vault, facts: Facts) -> Array:
        """The statistic itself, which never leaves the query."""

    def addend(self, vault: Vault, facts: Facts) -> Array:
        """What sites add up, weighed by rows: the value less what follows from public facts alone."""
        return self.value(vault, facts)

    def centred(self, mean: Array, facts: Facts) -> Array:
        """The answer, from a mean of :meth:`addend`."""
        return mean

    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        return self.noisy(self.value(vault, facts), vault, facts, release)

    def log_density(self, supposed: Supposed, answer: Array) -> Array | None:
        exact = self.value(supposed.vault, supposed.facts)
        if self.alpha is None:
            return certain(answer, exact)
        return self._noise_density(answer - exact, supposed.facts)


def refused(query: Query) -> InvalidInput:
    """The error for a query whose answers sites may not add up."""
    rule = f"{type(query).__name__} has no form in which sites add up"
    return InvalidInput("trust", "sum", rule, "use trust='nobody', or another method")


@dataclass(frozen=True)
class NoisyMinimiser(NoisyValue):
    """U7: ``argmin f_i(w) + linear.w + curvature ||w||^2 / 2``, of sensitivity ``Delta C / (n q) + 2 error``.

    ``docs/privacy/tight.md`` has the proof.  In a sum the site weighs ``n / rows <= 1``, so a row moves the mean by at
    most ``Delta C / (rows q) + 2 error``.  Sites add up how far their minimisers are from those without rows, which
    public facts bound whatever the public point.
    """

    linear: ArrayLike = 0.0
    curvature: ArrayLike = 0.0
    of_people: ClassVar[bool] = True
    in_sums: ClassVar[str | None] = "sum of proximal steps"

    def _q(self, facts: Facts) -> Array:
        return np.asarray(facts.mu + np.asarray(self.curvature, dtype=float))

    def _tol(self, facts: Facts) -> Array:
        if self.alpha is None:
            return np.array(facts.exact_tol)
        tol = matched(facts, INFLATION * facts.change_certified / (4.0 * facts.n))
        return certificate(facts, tol, self._q(facts))

    def exact_sensitivity(self, facts: Facts) -> Array:
        """Rounded as in published events; :meth:`moved` is rounded as in those of sums."""
        error = certified_error(facts.C, self._tol(facts), self._q(facts))
        return facts.gradients_changed / facts.K(self.curvature) + 2.0 * error

    def moved(self, facts: Facts, rows: Array) -> Array:
        q = self._q(facts)
        error = certified_error(facts.C, self._tol(facts.alike), q)
        return np.asarray(facts.gradients_changed * facts.C / (rows * q) + 2.0 * error + np.zeros_like(facts.n))

    def reach(self, facts: Facts) -> Array:
        q = self._q(facts)
        error = certified_error(facts.C, self._tol(facts.alike), q)
        return np.asarray(facts.C * facts.loss.derivative_bound / q + error + np.zeros_like(facts.n))

    def addend(self, vault: Vault, facts: Facts) -> Array:
        alike = facts.alike
        start, tol = self._nearest(self.start, alike), self._tol(alike)
        found = vault.solver.minimise(self._linear(), self._q(facts), start, tol).w - self._alone(facts)
        most, norm = self.reach(facts), np.linalg.norm(found, axis=-1, keepdims=True)
        return np.where(norm > most, found * (most / np.maximum(norm, most)), found)

    def centred(self, mean: Array, facts: Facts) -> Array:
        return mean + self._alone(facts)

    def _alone(self, facts: Facts) -> Array:
        return np.asarray(-self._linear() / self._q(facts))

    def check(self, facts: Facts) -> None:
        if self.alpha is None:  # without a guarantee a failure may depend on rows
            return
        check_solve(facts, self._tol(facts), self._linear(), self.start, self._q(facts))

    def _linear(self) -> Array:
        return np.broadcast_to(np.asarray(self.linear, dtype=float), self.start.shape)

    def _nearest(self, w: Array, facts: Facts) -> Array:
        return inside(w, facts, self._tol(facts), length(self._linear(), "linear"), self._q(facts))

    def around(self, origin: Array, facts: Facts) -> Query:
        return replace(self, linear=self._linear() - self._q(facts) * origin, start=self.start + origin)

    def value(self, vault: Vault, facts: Facts) -> Array:
        start, tol = self._nearest(self.start, facts), self._tol(facts)
        return self._nearest(vault.solver.minimise(self._linear(), self._q(facts), start, tol).w, facts)

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:
        vault.repeat(lambda: self.value(vault, facts), self._nearest(self.start, facts))

    def leaning(self, canaries: Canaries, answer: Array) -> Leaning | None:
        linear, q = np.broadcast_to(vector(self.linear), answer.shape), float(np.max(self._q(canaries.facts)))
        middle, lean, K = centre(canaries, linear, q, answer)
        return Leaning(K @ (answer - middle), -lean, self._spread(canaries.facts) ** 2 * (K @ K))


@dataclass(frozen=True)
class NoisyGradient(NoisyValue):
    """``(C / n) sum_k derivative(a_k.w) a_k`` at ``w = start``, of :func:`gradient_sensitivity`.

    In a sum, a site's rounding, weighed by its rows, is below that of all rows at one site.
    """

    of_people: ClassVar[bool] = True
    in_sums: ClassVar[str | None] = "sum of gradients"

    def check(self, facts: Facts) -> None:
        super().check(facts)
        check_places(facts, self.start)

    def exact_sensitivity(self, facts: Facts) -> Array:
        return self.moved(facts, facts.n)

    def moved(self, facts: Facts, rows: Array) -> Array:
        return gradient_sensitivity(facts, rows)

    def reach(self, facts: Facts) -> Array:
        return np.full((*facts.n.shape[:-1], 1), facts.C * facts.loss.derivative_bound)

    def around(self, origin: Array, facts: Facts) -> Query:
        return replace(self, start=self.start + origin)

    def beside(self, answer: Array, origin: Array) -> Array:
        """The same: the data's gradient is that at the point itself."""
        return answer

    def value(self, vault: Vault, facts: Facts) -> Array:
        return vault.solver.gradient(self.start)

    def leaning(self, canaries: Canaries, answer: Array) -> Leaning | None:
        middle, lean = canaries.gradients(vector(self.start))
        return Leaning(canaries.sums * answer - middle, lean, (canaries.sums * self._spread(canaries.facts)) ** 2)


@dataclass(frozen=True)
class NoisyEpoch(NoisyStatistic):
    """One pass of gradient steps over `batches` fixed parts of the rows, row k in part ``k mod batches``.

    ``w <- w - step (g_b + mu (w - origin))`` with the noisy mean gradient ``g_b`` of part b.  A row moves one part's
    gradient only, by :func:`gradient_sensitivity` of ``n // batches`` rows, so the pass costs one release (parallel
    composition over disjoint parts, each of which may depend on earlier results).  No amplification by sampling is
    claimed.
    """

    batches: int = 1
    step: ArrayLike = 1.0
    origin: ArrayLike = 0.0

    def around(self, origin: Array, facts: Facts) -> Query:
        return replace(self, start=self.start + origin, origin=np.asarray(self.origin, dtype=float) + origin)

    def exact_sensitivity(self, facts: Facts) -> Array:
        return gradient_sensitivity(facts, np.maximum(np.floor(facts.n / self.batches), 1.0))

    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        w, step = self.start, np.asarray(self.step, dtype=float)
        for b in range(self.batches):
            g = self.noisy(vault.solver.gradient(w, part=b, parts=self.batches), vault, facts, release, use=b + 1)
            w = w - step * (g + facts.mu * (w - np.asarray(self.origin, dtype=float)))
        return np.asarray(w)

    def leaning(self, canaries: Canaries, answer: Array) -> Leaning | None:
        """A pass from a public start: later parts carry on the noise and the canaries of earlier ones."""
        facts, parts, w = canaries.facts, self.batches, vector(self.start)
        step, eye = float(np.max(self.step)), np.eye(facts.d)
        weight = facts.C / max(float(np.floor(facts.n[0, 0] / parts)), 1.0)
        noise, covariance, lean = self._spread(facts), np.zeros_like(eye), np.zeros((facts.d, canaries.count))
        for b in range(parts):
            middle, half = canaries.gradients(w, b, parts)
            on = eye - step * (weight * canaries.hessian(w, b, parts) + facts.mu * eye)
            covariance = on @ covariance @ on.T + (step * noise) ** 2 * eye
            lean = on @ lean - step * weight * half
            w = w - step * (weight * middle + facts.mu * (w - vector(self.origin)))
        scale = float(np.sqrt(max(np.trace(covariance) / facts.d, 1e-300)))
        return Leaning((answer - w) / scale, lean / scale, covariance / scale**2)


@dataclass(frozen=True)
class LastMinimiser(Secret):
    """The exact minimiser of the round before, which was never sent."""

    f: Array


@dataclass(frozen=True)
class SecretMinimiser(NoisyMinimiser):
    """001, Algorithm 3 as printed: the linear term has a part ``own * f``, with f the last round's exact minimiser.

    f never leaves the vault.  Given all that was sent it is a function of the rows, of sensitivity
    ``delta(t) = (Delta C / n + |own(t)| delta(t-1)) / q(t) + 2 error(t)``, ``delta(0) = 0``, ``q = mu + |own|``, which
    prices it; errors apart it stays below ``Delta C / (n mu)`` (docs/privacy/verdicts.md).  The noise's rate is the
    paper's, ``rho n alpha / (2 C)``.  ``path`` holds ``|own|`` of the rounds 1 .. t, as penalties may grow.
    """

    around = Query.around  # refused: its linear term is secret

    own: ArrayLike = 0.0
    path: tuple[Array, ...] = ()

    def exact_sensitivity(self, facts: Facts) -> Array:
        moved = np.zeros(1)
        for pull in self.path:
            q = facts.mu + pull
            step = facts.gradients_changed * facts.C / facts.n + pull * moved
            moved = step / q + 2.0 * certified_error(facts.C, facts.exact_tol, q)
        return moved

    def check(self, facts: Facts) -> None:
        """Refuse vectors that are not finite, which is enough for printed forms: they run in simulations only."""
        length(self.linear, "linear")
        length(self.start, "start")

    def _rate(self, facts: Facts) -> Array:
        assert self.alpha is not None
        return np.asarray(facts.mu * facts.n * self.alpha / (2.0 * facts.C))

    def event(self, facts: Facts) -> Event:
        assert self.alpha is not None
        rate, claimed = (np.broadcast_to(x, facts.n.shape) for x in (self._rate(facts), self.alpha))
        return ExactSphericalMechanism(self.source, facts.relation, rate, self.sensitivity(facts), facts.d, claimed)

    def value(self, vault: Vault, facts: Facts) -> Array:
        first = len(self.path) == 1
        before = np.zeros_like(self.start) if first else last_minimiser(vault, self.start)
        linear = np.asarray(self.linear, dtype=float) + np.asarray(self.own, dtype=float) * before
        f = vault.solver.minimise(linear, self._q(facts), self.start, facts.exact_tol).w
        vault.keep(LastMinimiser(f))
        return f

    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        exact, coarsest = self.value(vault, facts), self._coarsest(self.sensitivity(facts), facts)
        return vault.noise.add_pure(exact, self._rate(facts), coarsest, release)

    def log_density(self, supposed: Supposed, answer: Array) -> Array | None:
        if self.alpha is None:
            return super().log_density(supposed, answer)
        return spherical(answer - self.value(supposed.vault, supposed.facts), self._rate(supposed.facts))

    def leaning(self, canaries: Canaries, answer: Array) -> Leaning | None:
        raise refusal_of_secret(self)


def last_minimiser(vault: Vault, start: Array) -> Array:
    """The minimiser that :class:`SecretMinimiser` kept; zeros of the shape of `start` if there is none."""
    kept = vault.recall(LastMinimiser)
    return np.zeros_like(start) if kept is None else kept.f
