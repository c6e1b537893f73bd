"""Prices of one event: pure epsilon, zCDP, a Renyi curve, or a dominating pair.

Every function refuses, by name, an event for which it has no proof, and takes the smallest price
that is proved:

- *noise in an objective* is priced (U1, U2, U3) with what it costs to release the solver's answer in place of the exact
  minimiser (U4); or by the Gaussian noise on the answer alone, of a statistic of sensitivity
  ``Delta / K + 2 error``;
- a pure price ``eps`` is also ``eps^2 / 2``-zCDP (Bun and Steinke 2016, Proposition 3.3) and dominated by randomised
  response.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple, TypeVar

import numpy as np

from ..errors import UnknownEvent
from ..problem.trust import RELATIONS
from ..util.typing import Any, Array
from . import events, gaussian, spherical
from .bounds import objective_perturbation_epsilon
from .events import Event
from .spherical import Within

DIRECTIONS = {"replace-one": ("replace-one",), "zero-out": ("add", "remove")}
"""Ordered neighbours that a relation compares: a total is the worst of whole compositions in one direction."""

FINEST, COARSEST = 40, 20
"""Grids of Gaussian noise have a step of ``2^-40`` of its standard deviation; those of shares of a sum may have up to
``2^-20`` of a share's, at ``4^(40 - bits)`` times the cost in delta (docs/privacy/sums.md)."""
_LOUD = 100.0
T = TypeVar("T")
Orders = tuple[float, ...]


def _unknown(event: Event, accountant: str) -> UnknownEvent:
    what = f"the {accountant} accountant has no proof for it; choose another accountant"
    return UnknownEvent(f"event={type(event).__name__}: {what}")


def _positive(event: Event, *names: str) -> None:
    signs = (getattr(event, name) > 0 for name in names)
    if not all(sign.all() if isinstance(sign, np.ndarray) else sign for sign in signs):
        raise UnknownEvent(f"{', '.join(names)}: must be > 0 for the proof to hold; nothing was drawn")


def _summed(event: events.SummedGaussianMechanism) -> Array:
    """Shift over sigma of a sum, if the event is one that has a proof (docs/privacy/sums.md)."""
    _positive(event, "alpha", "dimension", "sites_per_row")
    honest = event.participants - event.colluders
    if not (event.colluders >= 0 and honest >= 1 and event.participants <= event.sites):
        raise UnknownEvent("sites: not of a sum with a proof; nothing was drawn")
    return event.shift() if event.bits >= COARSEST else np.full(event.alpha.shape, np.inf)


@lru_cache(maxsize=1)  # an event is its own key: the accountants price it one after another
def _shift(event: events.GaussianMechanism | events.CarriedGaussianMechanism) -> Array:
    """Shift over sigma of Gaussian noise on a statistic, or of a round of correlated noise; not to be written to."""
    _positive(event, "sigma")
    if isinstance(event, events.GaussianMechanism):
        return event.sensitivity / event.sigma
    _positive(event, "sensitivity", "dimension")
    if not 1 <= event.index <= event.rounds:
        raise UnknownEvent("index: not of a round with a proof; nothing was drawn")
    return event.shift()


# --- pure
# ------------------------------------------------------------------------------------------------------------


def _exact_objective(event: events.SphericalObjectivePerturbation) -> Array:
    _positive(event, "K", "beta")
    return objective_perturbation_epsilon(
        event.beta, event.K, delta_gradient=RELATIONS[event.relation],
        curvature_bound=event.curvature_bound, logistic=event.logistic,
    )  # fmt: skip


def _alone(event: events.SphericalObjectivePerturbation | events.GaussianObjectivePerturbation) -> Array:
    """How far the answer can move between neighbouring data sets, given the noise in the objective."""
    return RELATIONS[event.relation] / event.K + 2.0 * event.error


def pure(event: Event) -> Array:
    """Pure epsilon, per node; infinite where nothing is proved."""
    match event:
        case events.Unprotected():
            return np.full(event.rows.shape, np.inf)
        case events.SphericalObjectivePerturbation():
            exact = _exact_objective(event)
            if np.any(event.sigma_release > 0):
                raise _unknown(event, "pure")
            return exact + 2.0 * event.beta_release * event.error  # U4: docs/privacy/objective_perturbation.md
        case events.SecretStartPerturbation():  # the noise moves by both changes, the Hessian by the row's alone
            _positive(event, "K", "beta")
            change = RELATIONS[event.relation]
            exact = objective_perturbation_epsilon(
                event.beta, event.K, delta_gradient=change, curvature_bound=event.curvature_bound, logistic=False
            )
            return exact + event.beta * event.shift
        case events.ExactSphericalMechanism() | events.SphericalMechanism():
            return event.beta * event.sensitivity
        case events.LaplaceMechanism():
            _positive(event, "scale")
            return event.sensitivity / event.scale
        case events.SparseVector():
            return event.epsilon_threshold + event.epsilon_queries
        case _:
            raise _unknown(event, "pure")


# --- zCDP
# ------------------------------------------------------------------------------------------------------------


def zcdp(event: Event) -> Array:
    """``rho``, per node, with ``D_alpha <= rho alpha`` at every order and in every direction."""
    match event:
        case events.GaussianMechanism() | events.CarriedGaussianMechanism():
            return gaussian.gaussian_zcdp(_shift(event))
        case events.SummedGaussianMechanism():
            return gaussian.gaussian_zcdp(_summed(event))
        case events.ExactSphericalMechanism() | events.SphericalMechanism():
            # Of the first, U2.  Of Laplace noise of scale sqrt(d) / beta in each coordinate, too:
            # coordinate j is s_j-DP, hence s_j^2 / 2-zCDP, with s_j = beta |shift_j| / sqrt(d), and
            # the s_j^2 sum to s^2 / d.
            s = event.beta * event.sensitivity
            return s**2 / (2.0 * event.dimension)
        case events.SphericalObjectivePerturbation() | events.GaussianObjectivePerturbation() if np.all(
            event.sigma_release > 0
        ):
            _positive(event, "K")
            alone = gaussian.gaussian_zcdp(_alone(event) / event.sigma_release)
            if isinstance(event, events.GaussianObjectivePerturbation):
                return alone
            exchange = gaussian.gaussian_zcdp(2.0 * event.error / event.sigma_release)
            return np.minimum(alone, 0.5 * _exact_objective(event) ** 2 + exchange)
        case events.GaussianObjectivePerturbation():
            raise _unknown(event, "zcdp")
        case events.RedrawnGateRelease() | events.MinimiserGateRelease():
            raise _unknown(event, "zcdp")
        case events.GatedRelease():
            _positive(event, "sigma")
            return gaussian.gaussian_zcdp(event.shift()) + 0.5 * event.tests() ** 2
        case _:
            return 0.5 * pure(event) ** 2


# --- Renyi
# -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _spherical_curve(orders: Orders, beta: float, kappa: float, d: int, direction: str) -> Array:
    if beta > _LOUD:  # nothing to gain on the pure price, and much to compute
        return np.full(len(orders), np.inf)
    return spherical.objective_rdp(np.array(orders), beta, kappa, d, relation=direction)


@lru_cache(maxsize=4096)
def _ball_curve(orders: Orders, d: int, s: float) -> Array:
    return spherical.rdp(np.array(orders), d, s)


def _each(event: Event, price: Callable[[int, str], T]) -> tuple[tuple[T, ...], ...]:
    """``price(node, direction)`` for every direction and node of the event."""
    sides = DIRECTIONS[getattr(event, "relation", "replace-one")]
    arrays = [value for value in vars(event).values() if isinstance(value, np.ndarray)]
    if any(value.size != arrays[0].size for value in arrays):
        return tuple(tuple(price(i, direction) for i in range(arrays[0].size)) for direction in sides)
    first = dict[tuple[float, ...], int]()  # nodes that are alike are priced once
    nodes = zip(*(value.tolist() for value in arrays), strict=True)
    firsts = [first.setdefault(terms, i) for i, terms in enumerate(nodes)]
    each = ({i: price(i, direction) for i in first.values()} for direction in sides)
    return tuple(tuple(found[i] for i in firsts) for found in each)


def renyi(event: Event, orders: Orders) -> Array:
    """Renyi divergences at `orders`, shape (directions, nodes, orders)."""
    a = np.array(orders)

    def pure_curve(epsilon: float) -> Array:
        return np.minimum(epsilon, 0.5 * a * epsilon**2)

    def objective(i: int, direction: str) -> Array:
        assert isinstance(event, events.SphericalObjectivePerturbation | events.GaussianObjectivePerturbation)
        kappa, error, sigma = event.curvature_bound / float(event.K[i]), float(event.error[i]), event.sigma_release[i]
        if isinstance(event, events.GaussianObjectivePerturbation):
            exact = gaussian.objective_rdp(a, float(event.sigma[i]), kappa, relation=direction)
        else:
            curve = _spherical_curve(orders, float(event.beta[i]), kappa, event.dimension, direction)
            exact = np.minimum(curve, pure_curve(float(_exact_objective(event)[i])))
            if (rate := float(event.beta_release[i])) > 0:
                exact = exact + spherical.inexact_rdp(a, rate, error)
        alone = float(_alone(event)[i])  # also where nothing is added to the answer: it refuses fields of unlike sizes
        if sigma > 0:
            by_answer = a * 0.5 * (alone / float(sigma)) ** 2
            exact = np.minimum(exact + gaussian.inexact_rdp(a, error, float(sigma)), by_answer)
        return exact

    match event:
        case events.SphericalObjectivePerturbation():
            return np.array(_each(event, objective))
        case events.GaussianObjectivePerturbation():
            _positive(event, "K", "sigma")
            return np.array(_each(event, objective))
        case events.ExactSphericalMechanism():
            s = event.beta * event.sensitivity
            return np.array(_each(event, lambda i, _: _ball_curve(orders, event.dimension, float(s[i]))))
        case events.SphericalMechanism():
            epsilon, rho = pure(event), zcdp(event)
            return np.array(_each(event, lambda i, _: np.minimum(epsilon[i], a * rho[i])))
        case events.LaplaceMechanism():
            _positive(event, "scale")
            s = event.sensitivity / event.scale
            return np.array(_each(event, lambda i, _: _ball_curve(orders, 1, float(s[i]))))
        case events.RedrawnGateRelease():
            # The bits' densities lie within e^{+-test} of a law that knows no rows, whatever else
            # was drawn (as in U4).
            tests = np.array(_each(event, lambda i, _: spherical.inexact_rdp(a, 1.0, float(event.test_epsilon[i]))))
            inner = event.release()
            return tests if inner is None else tests + renyi(inner, orders)
        case events.MinimiserGateRelease():
            _positive(event, "sigma_release")
            # Given the minimiser, which counts as released, the test is pure and the answer a
            # Gaussian mechanism.
            shift = event.shift()
            after = _each(event, lambda i, _: a * 0.5 * float(shift[i]) ** 2 + pure_curve(float(event.test_epsilon[i])))
            return np.array(after) + renyi(event.minimiser(), orders)
        case events.GatedRelease():
            shift, tests = zcdp(event) - 0.5 * event.tests() ** 2, event.tests()
            return np.array(_each(event, lambda i, _: a * shift[i] + pure_curve(float(tests[i]))))
        case events.GaussianMechanism() | events.SummedGaussianMechanism() | events.CarriedGaussianMechanism():
            rho = zcdp(event)
            return np.array(_each(event, lambda i, _: a * rho[i]))
        case _:
            epsilon = pure(event)
            return np.array(_each(event, lambda i, _: pure_curve(float(epsilon[i]))))


# --- dominating pairs
# ------------------------------------------------------------------------------------------------


class Bill(NamedTuple):
    """A pair that dominates one release, in parts whose losses add up.

    ``mu`` is a Gaussian's shift over sigma, ``ball`` the ``(d, s)`` of U2, ``epsilon`` a pure
    price; ``fixed``, ``slack`` and ``degrees`` are of :class:`sottovoce.privacy.spherical.Within`.
    ``exchange`` is U4's X, which turns a profile ``delta(eps)`` into ``e^X delta(eps - 2 X)``.
    ``lattice`` counts coordinates whose Gaussian noise may be discrete, as it used to be, on a grid
    of step ``2^-40`` sigma.
    """

    mu: float = 0.0
    ball: tuple[int, float] | None = None
    epsilon: float = 0.0
    fixed: float = 0.0
    slack: float = 0.0
    degrees: int = 1
    exchange: float = 0.0
    lattice: int = 0


_Objective = events.SphericalObjectivePerturbation | events.GaussianObjectivePerturbation
_Pairs = tuple[tuple[Bill, ...], ...]  # a dominating pair for each direction and node


def dominating(event: Event) -> _Pairs:
    """A dominating pair for each direction and node."""
    match event:
        case events.SphericalObjectivePerturbation() | events.GaussianObjectivePerturbation():
            _positive(event, "K", "beta" if isinstance(event, events.SphericalObjectivePerturbation) else "sigma")
            return _each(event, partial(_dominating_objective, event))
        case events.GaussianMechanism() | events.CarriedGaussianMechanism():
            mus = _shift(event)
            return _each(event, lambda i, _: Bill(mu=float(mus[i]), lattice=event.dimension))
        case events.SummedGaussianMechanism():
            return _dominating_sum(event)
        case events.RedrawnGateRelease():
            return _dominating_redrawn(event)
        case events.MinimiserGateRelease():
            return _dominating_gated_minimiser(event)
        case events.GatedRelease():
            _positive(event, "sigma")
            shifts, tests, m = event.shift(), event.tests(), event.dimension if event.index <= event.positives else 0
            return _each(event, lambda i, _: Bill(mu=float(shifts[i]), epsilon=float(tests[i]), lattice=m))
        case events.ExactSphericalMechanism():
            s = event.beta * event.sensitivity
            return _each(event, lambda i, _: Bill(ball=(event.dimension, float(s[i]))))
        case events.LaplaceMechanism():
            _positive(event, "scale")
            s = event.sensitivity / event.scale
            return _each(event, lambda i, _: Bill(ball=(1, float(s[i]))))
        case _:
            epsilon = pure(event)
            return _each(event, lambda i, _: Bill(epsilon=float(epsilon[i])))


def _dominating_objective(event: _Objective, i: int, direction: str) -> Bill:
    """The pair of node i's perturbed objective: of its noise within, or of its answer's noise where that says more."""
    kappa, d = event.curvature_bound / float(event.K[i]), event.dimension
    error, sigma, alone = float(event.error[i]), float(event.sigma_release[i]), float(_alone(event)[i])
    by_answer = Bill(mu=alone / sigma, lattice=d) if sigma > 0 else Bill(epsilon=np.inf)
    mu = 2.0 * error / sigma if sigma > 0 else 0.0
    lattice = d if sigma > 0 else 0
    if isinstance(event, events.GaussianObjectivePerturbation):
        within = gaussian.objective_dominating(float(event.sigma[i]), kappa, relation=direction)
        whole = _with_determinant(within, mu=float(np.hypot(within.s, mu)), lattice=lattice)
        direct = not np.isfinite(within.slack) or 0 < by_answer.mu < whole.mu
        return by_answer if direct else whole
    rate = float(event.beta_release[i])
    within = spherical.objective_dominating(float(event.beta[i]), kappa, d, relation=direction)
    if sigma > 0 and alone / sigma < within.s / np.sqrt(d):
        return by_answer
    if not np.isfinite(within.slack):  # the determinant is too dear for it: pure epsilon
        exact = float(_exact_objective(event)[i])
        return Bill(mu=mu, epsilon=exact + 2.0 * rate * error, lattice=lattice)
    return _with_determinant(within, mu=mu, ball=(d, within.s), exchange=rate * error, lattice=lattice)


def _with_determinant(within: Within, **others: Any) -> Bill:
    """A bill with what the determinant of the change of variables adds to it."""
    return Bill(fixed=within.fixed, slack=within.slack, degrees=within.degrees, **others)


def _dominating_sum(event: events.SummedGaussianMechanism) -> _Pairs:
    shift = _summed(event)
    if not np.all(np.isfinite(shift)):
        return _each(event, lambda i, _: Bill(epsilon=np.inf))
    drawn = event.dimension * (event.sites - event.colluders) * 4 ** max(0, FINEST - event.bits)
    return _each(event, lambda i, _: Bill(mu=float(shift[i]), lattice=drawn))


def _dominating_redrawn(event: events.RedrawnGateRelease) -> _Pairs:
    """The pairs of what is released, if anything is, and of the test before it."""
    inner = event.release()
    whole = _each(event, lambda i, _: Bill()) if inner is None else dominating(inner)
    epsilon = event.test_epsilon
    return tuple(
        tuple(bill._replace(exchange=bill.exchange + float(epsilon[i])) for i, bill in enumerate(side))
        for side in whole
    )


def _dominating_gated_minimiser(event: events.MinimiserGateRelease) -> _Pairs:
    _positive(event, "sigma_release")
    shifts, lattice = event.shift(), event.dimension if event.index <= event.positives else 0

    def tested(i: int, bill: Bill) -> Bill:
        together = float(np.hypot(bill.mu, shifts[i]))
        return bill._replace(mu=together, epsilon=bill.epsilon + float(event.test_epsilon[i]), lattice=lattice)

    minimiser = dominating(event.minimiser())
    return tuple(tuple(tested(i, bill) for i, bill in enumerate(side)) for side in minimiser)
