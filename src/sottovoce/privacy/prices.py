"""Prices of one event: pure epsilon, zCDP, a Renyi curve, or a dominating pair.

Every function refuses, by name, an event for which it has no proof, and takes the smallest price
that is proved:

- *noise in an objective* is priced (U1, U2, U3) with what it costs to release the solver's answer
  in place of the exact minimiser (U4); or by the Gaussian noise on the answer alone, of a statistic
  of sensitivity ``Delta / K + 2 error``;
- a pure price ``eps`` is also ``eps^2 / 2``-zCDP (Bun and Steinke 2016, Proposition 3.3) and
  dominated by randomised response.
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
"""Directions in which a relation compares: a total is the worst of compositions in one of them."""

FINEST, COARSEST = 40, 20
"""Binary digits of the grid of Gaussian noise: a step is ``2^-40`` of its standard deviation.

Shares of a sum may have steps of up to ``2^-20`` of a share's, at ``4^(40 - bits)`` times the cost
in delta (docs/privacy/sums.md)."""
# Largest rate of noise for which a Renyi curve is computed.
_LOUD = 100.0
T = TypeVar("T")
Orders = tuple[float, ...]
_Objective = events.SphericalObjectivePerturbation | events.GaussianObjectivePerturbation


def _unknown_event_error(event: Event, accountant: str) -> UnknownEvent:
    """Return the error for an event that an accountant has no proof for."""
    what = f"the {accountant} accountant has no proof for it; choose another accountant"
    return UnknownEvent(f"event={type(event).__name__}: {what}")


def _check_positive(event: Event, *names: str) -> None:
    """Check that these parameters of an event are > 0, as its proof needs."""
    if not all(np.all(getattr(event, name) > 0) for name in names):
        raise UnknownEvent(
            f"{', '.join(names)}: must be > 0 for the proof to hold; nothing was drawn"
        )


def _sum_sensitivity_over_sigma(event: events.SummedGaussianMechanism) -> Array:
    """Return sensitivity over sigma of a sum, (N,); UnknownEvent if the event has no proof.

    The proof is in docs/privacy/sums.md.  Infinite where the grid is too coarse for a price.
    """
    _check_positive(event, "alpha", "dimension", "sites_per_row")
    honest = event.participants - event.colluders
    if not (event.colluders >= 0 and honest >= 1 and event.participants <= event.sites):
        raise UnknownEvent(
            "sites: no proof covers a sum with these participants and colluders; nothing was drawn"
        )
    if event.bits < COARSEST:
        return np.full(event.alpha.shape, np.inf)
    return event.sensitivity_over_sigma()


@lru_cache(maxsize=1)  # an event is its own key: the accountants price it one after another
def _sensitivity_over_sigma(
    event: events.GaussianMechanism | events.CarriedGaussianMechanism,
) -> Array:
    """Return sensitivity over sigma of a Gaussian mechanism, or of a round of correlated noise.

    It is cached: not to be written to.
    """
    _check_positive(event, "sigma")
    if isinstance(event, events.GaussianMechanism):
        return event.sensitivity / event.sigma
    _check_positive(event, "sensitivity", "dimension")
    if not 1 <= event.index <= event.rounds:
        raise UnknownEvent(
            "index: must be from 1 to the number of rounds for the proof to hold; nothing was drawn"
        )
    return event.sensitivity_over_sigma()


# --- pure ---


def _exact_objective(event: events.SphericalObjectivePerturbation) -> Array:
    """Return U1's pure epsilon of the exact minimiser, (N,)."""
    _check_positive(event, "K", "beta")
    return objective_perturbation_epsilon(
        event.beta,
        event.K,
        delta_gradient=RELATIONS[event.relation],
        curvature_bound=event.curvature_bound,
        logistic=event.logistic,
    )


def _answer_sensitivity(
    event: events.SphericalObjectivePerturbation | events.GaussianObjectivePerturbation,
) -> Array:
    """Return the sensitivity of the solver's answer, (N,), for any fixed noise in the objective.

    Minimisers move by at most ``Delta / K``, and each answer is up to `error` from its minimiser.
    """
    return RELATIONS[event.relation] / event.K + 2.0 * event.error


def pure_epsilon(event: Event) -> Array:
    """Return pure epsilon per node, shape (N,); infinite where nothing is proved.

    Raises
    ------
    UnknownEvent
        If there is no proof of pure epsilon for the event.
    """
    match event:
        case events.Unprotected():
            return np.full(event.rows.shape, np.inf)
        case events.SphericalObjectivePerturbation():
            exact = _exact_objective(event)
            if np.any(event.sigma_release > 0):
                raise _unknown_event_error(event, "pure")
            # U4 (docs/privacy/objective_perturbation.md).
            return exact + 2.0 * event.beta_release * event.error
        case events.SecretStartPerturbation():
            # The noise moves by both changes, the Hessian by the row's alone.
            _check_positive(event, "K", "beta")
            change = RELATIONS[event.relation]
            exact = objective_perturbation_epsilon(
                event.beta,
                event.K,
                delta_gradient=change,
                curvature_bound=event.curvature_bound,
                logistic=False,
            )
            return exact + event.beta * event.shift
        case events.ExactSphericalMechanism() | events.SphericalMechanism():
            return event.beta * event.sensitivity
        case events.LaplaceMechanism():
            _check_positive(event, "scale")
            return event.sensitivity / event.scale
        case events.SparseVector():
            return event.epsilon_threshold + event.epsilon_queries
        case _:
            raise _unknown_event_error(event, "pure")


# --- zCDP ---


def zcdp_rho(event: Event) -> Array:
    """Return ``rho`` per node, shape (N,), with ``D_alpha <= rho alpha`` at every order.

    Raises
    ------
    UnknownEvent
        If there is no proof of zCDP for the event.
    """
    match event:
        case events.GaussianMechanism() | events.CarriedGaussianMechanism():
            return gaussian.gaussian_zcdp(_sensitivity_over_sigma(event))
        case events.SummedGaussianMechanism():
            return gaussian.gaussian_zcdp(_sum_sensitivity_over_sigma(event))
        case events.ExactSphericalMechanism() | events.SphericalMechanism():
            # Of the first, U2.  Of Laplace noise of scale sqrt(d) / beta in each coordinate, too:
            # coordinate j is s_j-DP, hence s_j^2 / 2-zCDP, with s_j = beta |shift_j| / sqrt(d), and
            # the s_j^2 sum to s^2 / d.
            s = event.beta * event.sensitivity
            return s**2 / (2.0 * event.dimension)
        case events.SphericalObjectivePerturbation() | events.GaussianObjectivePerturbation() if (
            np.all(event.sigma_release > 0)
        ):
            _check_positive(event, "K")
            alone = gaussian.gaussian_zcdp(_answer_sensitivity(event) / event.sigma_release)
            if isinstance(event, events.GaussianObjectivePerturbation):
                return alone
            exchange = gaussian.gaussian_zcdp(2.0 * event.error / event.sigma_release)
            return np.minimum(alone, 0.5 * _exact_objective(event) ** 2 + exchange)
        case events.GaussianObjectivePerturbation():
            raise _unknown_event_error(event, "zcdp")
        case events.RedrawnGateRelease() | events.MinimiserGateRelease():
            raise _unknown_event_error(event, "zcdp")
        case events.GatedRelease():
            _check_positive(event, "sigma")
            return (
                gaussian.gaussian_zcdp(event.sensitivity_over_sigma())
                + 0.5 * event.pure_epsilon_of_tests() ** 2
            )
        case _:
            return 0.5 * pure_epsilon(event) ** 2


# --- Renyi ---


@lru_cache(maxsize=4096)
def _spherical_curve(orders: Orders, beta: float, kappa: float, d: int, direction: str) -> Array:
    """Return :func:`.spherical.objective_rdp` of these parameters, cached.

    Infinite for noise so small that the curve gains nothing on the pure price, and takes long.
    """
    if beta > _LOUD:
        return np.full(len(orders), np.inf)
    return spherical.objective_rdp(np.array(orders), beta, kappa, d, relation=direction)


@lru_cache(maxsize=4096)
def _ball_curve(orders: Orders, d: int, s: float) -> Array:
    """Return :func:`.spherical.spherical_rdp` of these parameters, cached."""
    return spherical.spherical_rdp(np.array(orders), d, s)


def _price_each_node(event: Event, price: Callable[[int, str], T]) -> tuple[tuple[T, ...], ...]:
    """Return ``price(node, direction)`` for every direction of the relation and node of the event.

    The result is indexed by direction, then node.
    """
    sides = DIRECTIONS[getattr(event, "relation", "replace-one")]
    arrays = [value for value in vars(event).values() if isinstance(value, np.ndarray)]
    if any(value.size != arrays[0].size for value in arrays):
        return tuple(
            tuple(price(i, direction) for i in range(arrays[0].size)) for direction in sides
        )
    # Nodes with the same terms are priced once.
    first = dict[tuple[float, ...], int]()
    nodes = zip(*(value.tolist() for value in arrays), strict=True)
    firsts = [first.setdefault(terms, i) for i, terms in enumerate(nodes)]
    each = ({i: price(i, direction) for i in first.values()} for direction in sides)
    return tuple(tuple(found[i] for i in firsts) for found in each)


def renyi_divergences(event: Event, orders: Orders) -> Array:
    """Return Renyi divergences at `orders`, shape (directions, nodes, orders).

    Raises
    ------
    UnknownEvent
        If there is no proof of such divergences for the event.
    """
    a = np.array(orders)
    match event:
        case events.SphericalObjectivePerturbation():
            return np.array(_price_each_node(event, partial(_objective_curve, event, orders)))
        case events.GaussianObjectivePerturbation():
            _check_positive(event, "K", "sigma")
            return np.array(_price_each_node(event, partial(_objective_curve, event, orders)))
        case events.ExactSphericalMechanism():
            s = event.beta * event.sensitivity
            return np.array(
                _price_each_node(
                    event, lambda i, _: _ball_curve(orders, event.dimension, float(s[i]))
                )
            )
        case events.SphericalMechanism():
            # Laplace noise of scale sqrt(d) / beta in each coordinate, the worse of its two laws:
            # the lower of its pure price, which is the curve's limit, and of zCDP.
            epsilon, rho = pure_epsilon(event), zcdp_rho(event)
            return np.array(
                _price_each_node(event, lambda i, _: np.minimum(epsilon[i], a * rho[i]))
            )
        case events.LaplaceMechanism():
            # In one dimension spherical noise is Laplace noise.
            _check_positive(event, "scale")
            s = event.sensitivity / event.scale
            return np.array(
                _price_each_node(event, lambda i, _: _ball_curve(orders, 1, float(s[i])))
            )
        case events.RedrawnGateRelease():
            return _redrawn_curves(event, orders)
        case events.MinimiserGateRelease():
            return _gated_minimiser_curves(event, orders)
        case events.GatedRelease():
            # Prices of the gate and of what it lets out add up: Theorem 5 (docs/privacy/tight.md).
            tests = event.pure_epsilon_of_tests()
            shift = zcdp_rho(event) - 0.5 * tests**2
            return np.array(
                _price_each_node(event, lambda i, _: a * shift[i] + _pure_curve(a, float(tests[i])))
            )
        case (
            events.GaussianMechanism()
            | events.SummedGaussianMechanism()
            | events.CarriedGaussianMechanism()
        ):
            # Of Gaussian noise zCDP is exact at every order.
            rho = zcdp_rho(event)
            return np.array(_price_each_node(event, lambda i, _: a * rho[i]))
        case _:
            epsilon = pure_epsilon(event)
            return np.array(_price_each_node(event, lambda i, _: _pure_curve(a, float(epsilon[i]))))


def _pure_curve(a: Array, epsilon: float) -> Array:
    """Return Renyi divergences of a pure price (Bun and Steinke 2016, Proposition 3.3)."""
    return np.minimum(epsilon, 0.5 * a * epsilon**2)


def _objective_curve(event: _Objective, orders: Orders, i: int, direction: str) -> Array:
    """Return the Renyi curve of node i's perturbed objective, (orders,).

    It is the lower of two: by the noise in the objective (U1 to U4), and by that on the answer.
    """
    a = np.array(orders)
    kappa = event.curvature_bound / float(event.K[i])
    error = float(event.error[i])
    sigma = event.sigma_release[i]
    if isinstance(event, events.GaussianObjectivePerturbation):
        exact = gaussian.objective_rdp(a, float(event.sigma[i]), kappa, relation=direction)
    else:
        curve = _spherical_curve(orders, float(event.beta[i]), kappa, event.dimension, direction)
        exact = np.minimum(curve, _pure_curve(a, float(_exact_objective(event)[i])))
        if (rate := float(event.beta_release[i])) > 0:
            exact = exact + spherical.inexact_rdp(a, rate, error)
    # Computed even where nothing is added to the answer: it refuses fields of unlike sizes.
    alone = float(_answer_sensitivity(event)[i])
    if sigma > 0:
        # U7: Gaussian noise on the answer alone, of which the noise in the objective is no part.
        by_answer = a * 0.5 * (alone / float(sigma)) ** 2
        exact = np.minimum(exact + gaussian.inexact_rdp(a, error, float(sigma)), by_answer)
    return exact


def _redrawn_curves(event: events.RedrawnGateRelease, orders: Orders) -> Array:
    """Return the Renyi curves of a round: of its test, and of the release that it charges, if any.

    Shape (directions, nodes, orders), as of :func:`renyi_divergences`.
    """
    a = np.array(orders)
    # The bits' densities lie within e^{+-test} of a law that knows no rows, whatever else
    # was drawn (as in U4).
    tests = np.array(
        _price_each_node(
            event, lambda i, _: spherical.inexact_rdp(a, 1.0, float(event.test_epsilon[i]))
        )
    )
    inner = event.charged_release()
    if inner is None:
        return tests
    return tests + renyi_divergences(inner, orders)


def _gated_minimiser_curves(event: events.MinimiserGateRelease, orders: Orders) -> Array:
    """Return the Renyi curves of a round: of the minimiser, of its test, and of the noisy answer.

    Shape (directions, nodes, orders), as of :func:`renyi_divergences`.
    """
    a = np.array(orders)
    _check_positive(event, "sigma_release")
    # Given the minimiser, which counts as released, the test is pure and the answer a
    # Gaussian mechanism.
    shift = event.sensitivity_over_sigma()
    after = _price_each_node(
        event,
        lambda i, _: a * 0.5 * float(shift[i]) ** 2 + _pure_curve(a, float(event.test_epsilon[i])),
    )
    return np.array(after) + renyi_divergences(event.charged_minimiser(), orders)


# --- dominating pairs ---


class Bill(NamedTuple):
    """A dominating pair of one release: two laws that are at least as easy to tell apart.

    It is the product of these parts, so that their privacy losses add up.

    Parameters
    ----------
    mu : float
        Sensitivity over sigma of a Gaussian part.
    ball : tuple of int and float, optional
        The ``(d, s)`` of a spherical part (U2).
    epsilon : float
        A pure part.
    fixed, slack, degrees
        As for :class:`sottovoce.privacy.spherical.Within`.
    exchange : float
        U4's X, which turns a profile ``delta(eps)`` into ``e^X delta(eps - 2 X)``.
    lattice : int
        Coordinates whose Gaussian noise may be discrete, on a grid of step ``2^-40`` sigma.  It
        used to be, and ledgers do not say whether it was (docs/privacy/verdicts.md, "Noise on a
        grid").
    """

    mu: float = 0.0
    ball: tuple[int, float] | None = None
    epsilon: float = 0.0
    fixed: float = 0.0
    slack: float = 0.0
    degrees: int = 1
    exchange: float = 0.0
    lattice: int = 0


# A dominating pair for each direction and node.
_Pairs = tuple[tuple[Bill, ...], ...]


def dominating_pairs(event: Event) -> _Pairs:
    """Return a dominating pair for each direction and node.

    Raises
    ------
    UnknownEvent
        If there is no proof of one for the event.
    """
    match event:
        case events.SphericalObjectivePerturbation():
            _check_positive(event, "K", "beta")
            return _price_each_node(event, partial(_dominating_objective, event))
        case events.GaussianObjectivePerturbation():
            _check_positive(event, "K", "sigma")
            return _price_each_node(event, partial(_dominating_objective, event))
        case events.GaussianMechanism() | events.CarriedGaussianMechanism():
            mus = _sensitivity_over_sigma(event)
            return _price_each_node(
                event, lambda i, _: Bill(mu=float(mus[i]), lattice=event.dimension)
            )
        case events.SummedGaussianMechanism():
            return _dominating_sum(event)
        case events.RedrawnGateRelease():
            return _dominating_redrawn(event)
        case events.MinimiserGateRelease():
            return _dominating_gated_minimiser(event)
        case events.GatedRelease():
            _check_positive(event, "sigma")
            shifts, tests = event.sensitivity_over_sigma(), event.pure_epsilon_of_tests()
            drawn = _noise_coordinates(event)
            return _price_each_node(
                event,
                lambda i, _: Bill(mu=float(shifts[i]), epsilon=float(tests[i]), lattice=drawn),
            )
        case events.ExactSphericalMechanism():
            s = event.beta * event.sensitivity
            return _price_each_node(event, lambda i, _: Bill(ball=(event.dimension, float(s[i]))))
        case events.LaplaceMechanism():
            _check_positive(event, "scale")
            s = event.sensitivity / event.scale
            return _price_each_node(event, lambda i, _: Bill(ball=(1, float(s[i]))))
        case _:
            epsilon = pure_epsilon(event)
            return _price_each_node(event, lambda i, _: Bill(epsilon=float(epsilon[i])))


def _noise_coordinates(event: events.GatedRelease | events.MinimiserGateRelease) -> int:
    """Return how many coordinates of Gaussian noise on an answer a round charges.

    Rounds after `positives` release nothing.
    """
    if event.index > event.positives:
        return 0
    return event.dimension


def _dominating_objective(event: _Objective, i: int, direction: str) -> Bill:
    """Return the pair of node i's perturbed objective, by the noise in it or on its answer.

    The latter is taken where it says more.
    """
    kappa = event.curvature_bound / float(event.K[i])
    d = event.dimension
    error = float(event.error[i])
    sigma = float(event.sigma_release[i])
    alone = float(_answer_sensitivity(event)[i])
    if sigma > 0:
        by_answer = Bill(mu=alone / sigma, lattice=d)
        mu = 2.0 * error / sigma  # U4
        lattice = d
    else:  # nothing is added to the answer: no price by it, and its mu of 0 is none
        by_answer = Bill(epsilon=np.inf)
        mu = 0.0
        lattice = 0
    if isinstance(event, events.GaussianObjectivePerturbation):
        within = gaussian.objective_dominating(float(event.sigma[i]), kappa, relation=direction)
        whole = _with_determinant(within, mu=float(np.hypot(within.s, mu)), lattice=lattice)
        if not np.isfinite(within.slack) or 0 < by_answer.mu < whole.mu:
            return by_answer
        return whole
    rate = float(event.beta_release[i])
    within = spherical.objective_dominating(float(event.beta[i]), kappa, d, relation=direction)
    # Spherical noise of this shift has the zCDP, s^2 / 2d, of Gaussian noise of mu s / sqrt(d).
    if sigma > 0 and alone / sigma < within.s / np.sqrt(d):
        return by_answer
    # The determinant is too dear for it: pure epsilon.
    if not np.isfinite(within.slack):
        exact = float(_exact_objective(event)[i])
        return Bill(mu=mu, epsilon=exact + 2.0 * rate * error, lattice=lattice)
    return _with_determinant(
        within, mu=mu, ball=(d, within.s), exchange=rate * error, lattice=lattice
    )


def _with_determinant(within: Within, **others: Any) -> Bill:
    """Return a bill with what the determinant of the change of variables adds to it."""
    return Bill(fixed=within.fixed, slack=within.slack, degrees=within.degrees, **others)


def _dominating_sum(event: events.SummedGaussianMechanism) -> _Pairs:
    """Return the Gaussian pairs of a sum over sites, with the cost of its grid."""
    shift = _sum_sensitivity_over_sigma(event)
    if not np.all(np.isfinite(shift)):
        return _price_each_node(event, lambda i, _: Bill(epsilon=np.inf))
    drawn = event.dimension * (event.sites - event.colluders) * 4 ** max(0, FINEST - event.bits)
    return _price_each_node(event, lambda i, _: Bill(mu=float(shift[i]), lattice=drawn))


def _dominating_redrawn(event: events.RedrawnGateRelease) -> _Pairs:
    """Return the pairs of what is released, if anything is, and of the test before it.

    The test counts as an exchange, not as a pure part.  It reads a minimiser that stays hidden, so
    its bit is not priced by itself, as a loss that adds up with that of the release.  What is
    proved is that on either data set the densities of all that is seen lie within
    ``e^{+-test_epsilon}`` of those of a run whose tests know no rows, whatever else was drawn: once
    for each data set, as in U4 (docs/privacy/verdicts.md, "Improved plausible ADMM").
    """
    inner = event.charged_release()
    if inner is None:
        released = _price_each_node(event, lambda i, _: Bill())
    else:
        released = dominating_pairs(inner)
    epsilon = event.test_epsilon
    return tuple(
        tuple(
            bill._replace(exchange=bill.exchange + float(epsilon[i])) for i, bill in enumerate(side)
        )
        for side in released
    )


def _dominating_gated_minimiser(event: events.MinimiserGateRelease) -> _Pairs:
    """Return the pairs of a minimiser, with those of its test and of the noisy answer around it."""
    _check_positive(event, "sigma_release")
    shifts = event.sensitivity_over_sigma()
    lattice = _noise_coordinates(event)

    def tested(i: int, bill: Bill) -> Bill:
        together = float(np.hypot(bill.mu, shifts[i]))
        return bill._replace(
            mu=together, epsilon=bill.epsilon + float(event.test_epsilon[i]), lattice=lattice
        )

    minimiser = dominating_pairs(event.charged_minimiser())
    return tuple(tuple(tested(i, bill) for i, bill in enumerate(side)) for side in minimiser)
