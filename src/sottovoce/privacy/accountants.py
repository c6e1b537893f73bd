"""From events to privacy loss.  An accountant refuses, by name, every event that it cannot price.

An accountant is a set of pure functions over an immutable *spent* value, so that a ledger can ask what a release
would bring the total to before it allows it.  The ledger holds one spent value for all nodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Generic, TypeVar

import numpy as np

from ..errors import InvalidInput, UnknownEvent
from ..typing import Array
from .bounds import approximate_release_epsilon, objective_perturbation_epsilon
from .events import Event, SphericalObjectivePerturbation, Unprotected

Spent = TypeVar("Spent")


class Accountant(ABC, Generic[Spent]):
    """How events add up.  Adaptive composition over rounds, per node; the network's loss is the worst node's.

    The last step is parallel composition: one row lives at one site, so a neighbouring dataset changes one node's
    events only, under an adversary who sees every message.  It fails if a person has rows at two sites.
    """

    name: ClassVar[str]

    @abstractmethod
    def nothing(self) -> Spent:
        """What is spent before the first event."""

    @abstractmethod
    def add(self, spent: Spent, event: Event) -> Spent:
        """What is spent after `event` too.

        Raises
        ------
        UnknownEvent
            If the accountant has no proof for this event.
        """

    @abstractmethod
    def epsilon(self, spent: Spent, delta: float) -> Array:
        """Epsilon at `delta` per node, shape (N,); shape () before the first event."""

    def total(self, events: Iterable[Event], delta: float = 0.0) -> Array:
        """Epsilon per node of a whole run."""
        spent = self.nothing()
        for event in events:
            spent = self.add(spent, event)
        return self.epsilon(spent, delta)


class PureAccountant(Accountant[Array]):
    """Basic composition of pure epsilons: valid for every delta, exact for the sum of worst cases."""

    name: ClassVar[str] = "pure"

    def nothing(self) -> Array:
        return np.zeros(())

    def add(self, spent: Array, event: Event) -> Array:
        return spent + self.price(event)

    def epsilon(self, spent: Array, delta: float) -> Array:
        return spent

    def price(self, event: Event) -> Array:
        """Pure epsilon of one event, per node."""
        match event:
            case Unprotected():
                return np.full(event.rows.shape, np.inf)
            case SphericalObjectivePerturbation():
                if not (np.all(event.K > 0) and np.all(event.beta >= 0) and np.all(event.beta_release >= 0)):
                    raise UnknownEvent("K, beta, beta_release: must be > 0 for the proof to hold; nothing was drawn")
                exact = objective_perturbation_epsilon(
                    event.beta, event.K, delta_gradient=event.delta_gradient,
                    bend_bound=event.bend_bound, logistic=event.logistic,
                )  # fmt: skip
                return exact + approximate_release_epsilon(event.beta_release, event.error)
            case _:
                raise UnknownEvent(
                    f"event={type(event).__name__}: the pure accountant has no proof for it; choose another accountant"
                )


ACCOUNTANTS: dict[str, type[Accountant[Array]]] = {PureAccountant.name: PureAccountant}


def make(name: str) -> Accountant[Array]:
    """An accountant by name.

    Raises
    ------
    InvalidInput
        If there is none of that name.
    """
    if name not in ACCOUNTANTS:
        raise InvalidInput("accountant", name, f"must be one of {sorted(ACCOUNTANTS)}", "use accountant='pure'")
    return ACCOUNTANTS[name]()
