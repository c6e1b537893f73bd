"""Events: the parameters that price a release, such as sensitivity and standard deviation.

A query states its event (:meth:`sottovoce.queries.Query.event`), and ledgers hold events.  An event
never says what it costs: accountants compute that.

Published events never change their meaning: a new mechanism is a new class.  Every class says what
its price presumes of other events and of the ledger (``needs``,
:mod:`sottovoce.privacy.conditions`).

Fields of many classes, where arrays have an entry for each node (a real site has one):

relation : {"replace-one", "zero-out"}
    Which data sets are neighbours: one row of one site has other values, or becomes a row that adds
    nothing (the same as adding or removing it, as row counts are public).  Sensitivities hold for
    it, and a ledger holds events of one relation only.
dimension : int
    Numbers in the release.
claimed, claimed_rho : array (N,), optional
    What the paper claims for this release, in pure epsilon or in zCDP.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import groupby
from typing import ClassVar

import numpy as np

from ..errors import InvalidInput, UnknownEvent
from ..problem.trust import RELATIONS
from ..util.typing import Any, Array

NEEDS = {
    "nothing": "its price adds up with those of whatever else is released from the same rows",
    "rounds": "the rounds before it of the same run were released, each once and on equal terms; "
    "else it is priced by itself",
    "people": "a person has rows at no more sites than the event counts; else it is priced for as "
    "many as the ledger counts",
}
"""Conditions of a price besides the event's own parameters, by the value of :attr:`Event.needs`."""

_KINDS: dict[str, type[Event]] = {}
_WRITTEN = {"curvature_bound": "bend_bound", "bend_bound": "curvature_bound"}
"""A field's name in ledgers and plans, where it is another: what is published keeps its text."""
# Largest parameter of an event: the product of two must not overflow.
_LARGEST = 1e150


@dataclass(frozen=True, eq=False)
class Event(ABC):
    """One release of every node concerned.

    Subclasses are frozen, and those of this module are registered by name.  They are all that
    ledgers hold.  A class of another module has no price and comes into no ledger; one that takes
    the name of an event of this module, or derives from it and so would have its price, is refused
    when it is defined.
    """

    source: str
    """Paper number and place, or the bound's name in :mod:`sottovoce.privacy.bounds`."""

    needs: ClassVar[str]
    """A key of :data:`NEEDS`; every class says its own."""

    caution: ClassVar[str] = ""
    """Caveat for readers of a ledger with such events; empty for most."""

    def __init_subclass__(cls) -> None:
        if vars(cls).get("needs") not in NEEDS:
            raise TypeError(
                f"{cls.__name__}: needs must say what its price presumes; "
                f"use one of {sorted(NEEDS)}"
            )
        if cls.__module__ == __name__:
            _KINDS[cls.__name__] = cls
            return
        if cls.__name__ in _KINDS:
            raise TypeError(
                f"{cls.__module__}.{cls.__name__}: ledgers hold events of this name; "
                "use another name"
            )
        priced = [base.__name__ for base in cls.__mro__[1:] if base in _KINDS.values()]
        if priced:
            what = f"derives from {priced[0]} and would have its price; derive from Event"
            raise TypeError(f"{cls.__module__}.{cls.__name__}: {what}")

    def __post_init__(self) -> None:
        # Every release and every trial of a search makes events, so nothing here may be slow.
        for name, value in list(vars(self).items()):
            if isinstance(value, np.ndarray):
                flat = np.array(value, dtype=float).ravel()
                flat.setflags(write=False)
                object.__setattr__(self, name, flat)
                if not name.startswith("claimed") and not (flat >= 0).all():
                    rule = "must be >= 0 and not NaN"
                    raise InvalidInput(
                        name, flat.tolist(), rule, "correct the query that states it"
                    )
        relation = getattr(self, "relation", "replace-one")
        if relation not in RELATIONS:
            raise InvalidInput(
                "relation", relation, f"must be one of {sorted(RELATIONS)}", "use 'replace-one'"
            )

    @cached_property
    def terms(self) -> tuple[Any, ...]:
        """Class and fields, with arrays as bytes: events of equal terms are priced once."""
        terms: list[Any] = [type(self)]
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value = value.tobytes()
            terms.append(value)
        return tuple(terms)

    @cached_property
    def nodes(self) -> int:
        """Number of nodes that it concerns; 1 may stand for all."""
        return max(
            (v.size for v in list(vars(self).values()) if isinstance(v, np.ndarray)), default=1
        )

    def noise_standard_deviation(self) -> Array:
        """Return a bound, per node, on the standard deviation of a coordinate's noise.

        It is 0 without noise.
        """
        return np.zeros(1)

    def alone(self) -> Event:
        """Return the event that prices this release by itself."""
        return self

    def event_for_people(self, sites_per_row: int) -> Event:
        """Return the event that prices it if a person may have rows at that many sites."""
        return self

    def event_against_colluders(self, colluders: int) -> Event:
        """Return the event that prices it against that many colluding sites.

        It is the event itself, where the noise is no other site's.
        """
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, with the class name under ``event``."""
        plain: dict[str, Any] = {"event": type(self).__name__}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value = value.tolist()
            plain[_WRITTEN.get(field.name, field.name)] = value
        return plain


def run_lengths(events: Iterable[Event]) -> Iterator[tuple[Event, int]]:
    """Yield each event with how many equal ones stand in a row."""
    for _, some in groupby(events, lambda event: event.terms):
        equal = list(some)
        yield equal[0], len(equal)


def same_relation(known: str | None, event: Event) -> str | None:
    """Return the relation of a ledger once it holds `event`.

    Parameters
    ----------
    known : {"replace-one", "zero-out"} or None
        The relation so far; None before the first event that has one.
    event : Event
        The next event.

    Returns
    -------
    str or None

    Raises
    ------
    InvalidInput
        If the event is under another relation: such prices do not add up.
    """
    relation = getattr(event, "relation", None)
    if known is None or relation is None or relation == known:
        return known or relation
    rule = (
        f"must be {known!r} as in the ledger's earlier releases: "
        "privacy losses under two relations do not add up"
    )
    raise InvalidInput("relation", relation, rule, f"use relation={known!r}, or another ledger")


def from_dict(plain: dict[str, Any]) -> Event:
    """Return the event that :meth:`Event.to_dict` wrote.

    Raises
    ------
    UnknownEvent
        If this version has no such event, or its fields are others.
    InvalidInput
        If a parameter is negative or NaN.
    """
    values = {_WRITTEN.get(key, key): value for key, value in dict(plain).items()}
    name = values.pop("event", None)
    if name not in _KINDS:
        raise UnknownEvent(
            f"event={name!r}: is unknown; this version knows {sorted(_KINDS)}; "
            "use the version that wrote it"
        )
    try:
        arrays: dict[str, Any] = {}
        for key, value in values.items():
            if isinstance(value, list):
                value = _array(value)
            arrays[key] = value
        found = _KINDS[name](**arrays)
        if not all(_FITS[str(field.type)](getattr(found, field.name)) for field in fields(found)):
            raise TypeError("a field of another type")
    except InvalidInput:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise UnknownEvent(
            f"event={name!r}: its fields are not those of this version; "
            "use the version that wrote it"
        ) from error
    return found


def check_parameter_sizes(event: Event) -> None:
    """Check, before a charge, that no parameter has a size that doubles lose.

    No draw may fail after the charge.

    Raises
    ------
    InvalidInput
        If a parameter is neither 0 nor of a size from 1e-150 to 1e150.
    """
    for field in fields(event):
        value = getattr(event, field.name)
        if isinstance(value, np.ndarray) and not field.name.startswith("claimed"):
            strange = value[
                (value > 0) & np.isfinite(value) & ((value < 1.0 / _LARGEST) | (value > _LARGEST))
            ]
            if strange.size:
                rule = f"must be 0, or lie between {1.0 / _LARGEST:g} and {_LARGEST:g}"
                raise InvalidInput(
                    field.name, float(strange[0]), rule, "change the noise, C, rho or eta"
                )


def _array(values: list[Any]) -> Array:
    """Return a list of JSON as an array; TypeError if an entry is not a number of an event."""
    if not all(
        type(value) in (int, float) and not _LARGEST < abs(value) < np.inf for value in values
    ):
        raise TypeError("no numbers that an event can have: products of two must not overflow")
    return np.array(values, dtype=float)


# Checks of a field's value, by the field's annotation as text.
_FITS: dict[str, Any] = {
    "Array": lambda v: isinstance(v, np.ndarray),
    "Array | None": lambda v: v is None or isinstance(v, np.ndarray),
    "str": lambda v: isinstance(v, str),
    "bool": lambda v: isinstance(v, bool),
    "int": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "float": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
}


@dataclass(frozen=True, eq=False)
class Unprotected(Event):
    """A release without noise, of which nothing is proved.

    Attributes
    ----------
    rows : array of shape (N,)
        Only its size counts: how many nodes there are.
    """

    needs: ClassVar[str] = "nothing"
    rows: Array
    claimed: Array | None = None


@dataclass(frozen=True, eq=False)
class SphericalObjectivePerturbation(Event):
    """Objective perturbation with spherical noise, and noise on the answer for the solver's error.

    The release is the minimiser of a local objective with a random linear term of density
    ``exp(-beta ||b||)`` in sum scale.  The loss has a derivative in [-1, 0] and rows lie in the
    unit ball.  The node releases the solver's answer plus noise that covers the solver's error:
    spherical (``beta_release``) or Gaussian (``sigma_release``).  Without either (printed forms)
    the price holds for exact minimisation only.

    Attributes
    ----------
    beta : array (N,)
        Rate of the noise in the objective, sum scale.
    K : array (N,)
        Strong convexity in sum scale of everything except the loss.
    curvature_bound : float
        ``c1``, the supremum of the loss's second derivative.
    logistic : bool
        Whether ``curvature = |derivative| (1 - |derivative|)``.
    error : array (N,)
        Largest distance between the solver's answer and the exact minimiser, the grid's rounding
        included.
    beta_release : array (N,)
        Rate of spherical noise on the answer; 0 for none.  In ledgers of version 0.1 it may be
        Laplace noise of scale root d over this rate in each coordinate.  The price holds for both:
        a shift changes neither density by more than a factor ``e^{beta_release ||shift||}``.
    sigma_release : array (N,)
        Standard deviation of Gaussian noise on each coordinate of the answer; 0 for none.
    """

    needs: ClassVar[str] = "nothing"
    relation: str
    beta: Array
    K: Array
    curvature_bound: float
    logistic: bool
    dimension: int
    error: Array
    beta_release: Array
    sigma_release: Array
    claimed: Array | None = None

    def noise_standard_deviation(self) -> Array:
        inside = np.sqrt(self.dimension + 1.0) / (self.beta * self.K)
        return np.asarray(np.hypot(inside, self.sigma_release))


@dataclass(frozen=True, eq=False)
class SecretStartPerturbation(Event):
    """Objective perturbation whose linear term depends on the rows (001, (21) to (23)).

    Nothing is added to the answer.  Other fields are as in :class:`SphericalObjectivePerturbation`.

    Attributes
    ----------
    shift : array of shape (N,)
        Largest change of that term between neighbouring data sets, given all that was released, in
        sum scale.
    """

    needs: ClassVar[str] = "nothing"
    relation: str
    beta: Array
    K: Array
    curvature_bound: float
    dimension: int
    shift: Array
    claimed: Array | None = None

    def noise_standard_deviation(self) -> Array:
        return np.asarray(np.sqrt(self.dimension + 1.0) / (self.beta * self.K))


@dataclass(frozen=True, eq=False)
class GaussianObjectivePerturbation(Event):
    """Objective perturbation with Gaussian noise (U3), and Gaussian noise on the answer.

    Other fields are as in :class:`SphericalObjectivePerturbation`.

    Attributes
    ----------
    sigma : array of shape (N,)
        Standard deviation of the random linear term ``N(0, sigma^2 I)``, in sum scale.
    """

    needs: ClassVar[str] = "nothing"
    relation: str
    sigma: Array
    K: Array
    curvature_bound: float
    dimension: int
    error: Array
    sigma_release: Array
    claimed: Array | None = None
    claimed_rho: Array | None = None

    def noise_standard_deviation(self) -> Array:
        return np.asarray(np.hypot(self.sigma / self.K, self.sigma_release))


@dataclass(frozen=True, eq=False)
class GaussianMechanism(Event):
    """A statistic plus Gaussian noise ``N(0, sigma^2 I)``: the Gaussian mechanism.

    Statistics are noisy proximal steps (U7), output perturbation, gradients, moments and counts.

    Attributes
    ----------
    sigma : array of shape (N,)
        Standard deviation of the noise on each entry.
    sensitivity : array of shape (N,)
        Largest Euclidean change between neighbours, the solver's error and rounding included.
    """

    needs: ClassVar[str] = "nothing"
    relation: str
    sigma: Array
    sensitivity: Array
    dimension: int
    claimed: Array | None = None

    def noise_standard_deviation(self) -> Array:
        return self.sigma


@dataclass(frozen=True, eq=False)
class CarriedGaussianMechanism(Event):
    """One round of correlated noise: a gradient less a share of earlier ones, plus noise.

    The release is ``g_t - (g_1 + ... + g_{t-1}) / (rounds + t - 1)`` plus ``N(0, sigma^2 I)``,
    where a row's gradient points one way in all rounds.  The releases up to round t together reveal
    no more than Gaussian mechanisms of the shifts :meth:`sensitivity_over_sigma`; one alone might
    reveal more than its own (docs/privacy/correlated_noise.md).

    Attributes
    ----------
    sigma : array (N,)
        Standard deviation of this release's own noise.
    sensitivity : array (N,)
        Bound on the change of a gradient between neighbours; rounding is included so that it covers
        all rounds.
    index, rounds : int
        The round, from 1, and how many are planned.
    """

    needs: ClassVar[str] = "rounds"
    relation: str
    sigma: Array
    sensitivity: Array
    dimension: int
    index: int
    rounds: int

    def sensitivity_over_sigma(self) -> Array:
        """Return sensitivity over sigma of a row that moves every gradient by the whole."""
        return np.asarray(
            self.sensitivity / self.sigma * (self.rounds / (self.rounds + self.index - 1.0))
        )

    def alone(self) -> Event:
        """Return the Gaussian mechanism, as a row may move this release by the whole."""
        # There is no such round: the event stays as it is, and accountants refuse it.
        if not 1 <= self.index <= self.rounds:
            return self
        return GaussianMechanism(
            self.source, self.relation, self.sigma, self.sensitivity, self.dimension
        )

    def noise_standard_deviation(self) -> Array:
        return self.sigma


@dataclass(frozen=True, eq=False)
class SummedGaussianMechanism(Event):
    """One attempt at a secure aggregation, to which every site adds a share of the noise.

    See ``docs/privacy/sums.md``.  It counts whether the sum was opened or not, and for any sites
    that may take part: noise follows the sites of the attempt, so that `alpha` stays.

    Attributes
    ----------
    alpha : array (N,)
        Bound on sensitivity over sigma for one row, against the hub and `colluders` sites.
    sensitivity : array (N,)
        Largest Euclidean change of the sum by one row, if all sites take part; prices do not depend
        on it.
    sites, participants, colluders : int
        Sites of the plan; the least number of an attempt; those whose shares of the noise are known
        to others.
    sites_per_row : int
        Sites at which one person may have a row: shifts of one sum add up, and a node is charged
        ``alpha sqrt(sites_per_row)``.
    bits : int
        The grid's step is at most ``2^-bits`` of the standard deviation of a share.
    """

    needs: ClassVar[str] = "people"
    caution: ClassVar[str] = (
        "sums over sites are priced against an adversary who sees all messages and knows what as "
        "many sites know as their plans allow to collude; against more sites they cost more"
    )
    relation: str
    alpha: Array
    sensitivity: Array
    dimension: int
    sites: int
    participants: int
    colluders: int
    sites_per_row: int
    bits: int

    def sensitivity_over_sigma(self) -> Array:
        """Return sensitivity over sigma that a node is charged."""
        return np.asarray(self.alpha * np.sqrt(float(self.sites_per_row)))

    def event_for_people(self, sites_per_row: int) -> Event:
        if 0 < self.sites_per_row < sites_per_row:
            return replace(self, sites_per_row=sites_per_row)
        return self

    def event_against_colluders(self, colluders: int) -> SummedGaussianMechanism:
        """Return the same attempt against that many colluding sites.

        Of u sites' shares ``u - t'`` stay honest in place of ``u - t``; their ratio is largest for
        the fewest sites that leave one.  Against fewer colluders than planned the price stays;
        against all sites nothing is proved.
        """
        if colluders <= self.colluders:
            return self
        if colluders >= self.sites:
            return replace(self, alpha=np.full_like(self.alpha, np.inf))
        fewest = max(self.participants, colluders + 1)
        factor = np.sqrt((fewest - self.colluders) / (fewest - colluders))
        return replace(
            self, alpha=self.alpha * float(factor), participants=fewest, colluders=colluders
        )

    def noise_standard_deviation(self) -> Array:
        return np.asarray(
            self.sensitivity
            / self.alpha
            * np.sqrt(self.sites / (self.sites - float(self.colluders)))
        )


@dataclass(frozen=True, eq=False)
class ExactSphericalMechanism(Event):
    """A statistic plus spherical noise of density ``exp(-beta ||v||)`` (003, Algorithm 1).

    Releases are rounded to a grid (:mod:`sottovoce.privacy.exact`), and `sensitivity` includes the
    rounding of the statistic.

    Attributes
    ----------
    beta : array of shape (N,)
        Rate of the noise.
    sensitivity : array of shape (N,)
        As in :class:`GaussianMechanism`.
    """

    needs: ClassVar[str] = "nothing"
    relation: str
    beta: Array
    sensitivity: Array
    dimension: int
    claimed: Array | None = None

    def noise_standard_deviation(self) -> Array:
        return np.asarray(np.sqrt(self.dimension + 1.0) / self.beta)


@dataclass(frozen=True, eq=False)
class SphericalMechanism(Event):
    """A statistic plus pure noise as version 0.1 recorded it, priced at the worse of two laws.

    A simulation of 0.1 drew noise of density ``exp(-beta ||v||)``, a release independent Laplace
    noise of scale ``sqrt(dimension) / beta`` in each coordinate: the same pure price, but a larger
    one under a delta.  :class:`ExactSphericalMechanism` replaces it.
    """

    needs: ClassVar[str] = "nothing"
    caution: ClassVar[str] = (
        "releases with pure noise on answers that version 0.1 recorded are priced at the worse of "
        "the two noise distributions that it drew from"
    )
    relation: str
    beta: Array
    sensitivity: Array
    dimension: int
    claimed: Array | None = None

    def noise_standard_deviation(self) -> Array:
        return np.asarray(np.sqrt(2.0 * self.dimension) / self.beta)


@dataclass(frozen=True, eq=False)
class LaplaceMechanism(Event):
    """A statistic plus independent Laplace noise of `scale`; `sensitivity` is in the 1-norm."""

    needs: ClassVar[str] = "nothing"
    relation: str
    scale: Array
    sensitivity: Array
    claimed: Array | None = None

    def noise_standard_deviation(self) -> Array:
        return np.asarray(np.sqrt(2.0) * self.scale)


@dataclass(frozen=True, eq=False)
class SparseVector(Event):
    """AboveThreshold (U5), with the threshold's noise drawn once.

    It stops after `positives` positive answers.  The threshold has noise Lap(sensitivity /
    epsilon_threshold), and each query Lap(2 positives sensitivity / epsilon_queries).
    """

    needs: ClassVar[str] = "nothing"
    relation: str
    epsilon_threshold: Array
    epsilon_queries: Array
    positives: int
    claimed: Array | None = None


@dataclass(frozen=True, eq=False)
class GatedRelease(Event):
    """Round `index` of a sparse vector in front of a Gaussian mechanism (U5 and U7).

    Round 1 charges all tests together, as in :class:`SparseVector`, and each of the rounds 1 ..
    `positives` one release of this `sigma` and `sensitivity`.  No more releases pass, so later
    rounds cost nothing.
    """

    needs: ClassVar[str] = "rounds"
    relation: str
    sigma: Array
    sensitivity: Array
    dimension: int
    epsilon_threshold: Array
    epsilon_queries: Array
    positives: int
    index: int

    def sensitivity_over_sigma(self) -> Array:
        """Return sensitivity over sigma that this round charges, per node."""
        charged = 1.0
        if self.index > self.positives:
            charged = 0.0
        return self.sensitivity / self.sigma * charged

    def pure_epsilon_of_tests(self) -> Array:
        """Return pure epsilon of the tests that this round charges, per node."""
        charged = 0.0
        if self.index == 1:
            charged = 1.0
        return (self.epsilon_threshold + self.epsilon_queries) * charged

    def alone(self) -> Event:
        return replace(self, index=1)

    def noise_standard_deviation(self) -> Array:
        return self.sigma


@dataclass(frozen=True, eq=False)
class _TestedObjective:
    """Base of rounds of 004, Algorithm 2: a perturbed objective, and a test before its release.

    Fields are those of :class:`GaussianObjectivePerturbation`, the pure epsilon of a round's test,
    how many releases pass, and the number of the round.
    """

    relation: str
    sigma: Array
    K: Array
    curvature_bound: float
    dimension: int
    error: Array
    sigma_release: Array
    test_epsilon: Array
    positives: int
    index: int
    claimed_rho: Array | None = None

    def noise_standard_deviation(self) -> Array:
        return np.asarray(np.hypot(self.sigma / self.K, self.sigma_release))


@dataclass(frozen=True, eq=False)
class RedrawnGateRelease(_TestedObjective, Event):
    """Round `index` of 004, Algorithm 2 as printed: a test, and a Gaussian objective release.

    Every round charges its test, which has a price of its own, pure epsilon `test_epsilon`; the
    rounds 1 .. `positives` charge one release each, of fields as in
    :class:`GaussianObjectivePerturbation`.
    """

    needs: ClassVar[str] = "rounds"

    def charged_release(self) -> GaussianObjectivePerturbation | None:
        """Return the release that this round charges, if any."""
        if self.index > self.positives:
            return None
        return GaussianObjectivePerturbation(
            self.source,
            self.relation,
            self.sigma,
            self.K,
            self.curvature_bound,
            self.dimension,
            self.error,
            self.sigma_release,
        )

    def alone(self) -> Event:
        return replace(self, index=1)


@dataclass(frozen=True, eq=False)
class MinimiserGateRelease(_TestedObjective, Event):
    """Round `index` of 004, Algorithm 2 as listed: a test of the minimiser, and its release.

    Every round charges the exact minimiser, as if it were released (Gaussian noise in the
    objective, U3), and the test, which is `test_epsilon`-DP for every minimiser; the rounds 1 ..
    `positives` charge the noise on the answer too, which covers the solver's error only.  The test
    must read the exact minimiser (docs/privacy/verdicts.md, "Improved plausible ADMM").  Other
    fields are as in :class:`GaussianObjectivePerturbation`.
    """

    needs: ClassVar[str] = "rounds"

    def charged_minimiser(self) -> GaussianObjectivePerturbation:
        """Return the release of the exact minimiser, which this round charges."""
        none = np.zeros_like(self.error)
        return GaussianObjectivePerturbation(
            self.source,
            self.relation,
            self.sigma,
            self.K,
            self.curvature_bound,
            self.dimension,
            none,
            none,
        )

    def sensitivity_over_sigma(self) -> Array:
        """Return sensitivity over sigma of the answer around the exact minimiser, per node."""
        charged = 1.0
        if self.index > self.positives:
            charged = 0.0
        return np.asarray(2.0 * self.error / self.sigma_release * charged)

    def alone(self) -> Event:
        return replace(self, index=1)
