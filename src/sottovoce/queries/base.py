"""The private half of a method: a query sees rows, draws noise and states its event.

A query without an event cannot be instantiated, so that spending cannot be forgotten.  Queries are asked through a
:class:`sottovoce.curator.Curator` only, which charges the event before it calls :meth:`Query.answer`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from ..facts import Facts
from ..privacy.events import Event
from ..privacy.noise import Noise
from ..solvers import Solver
from ..typing import Array


@dataclass(frozen=True)
class Vault:
    """What only queries may touch: the rows (inside their solver) and the source of noise."""

    solver: Solver
    noise: Noise
    memory: dict[str, Array] = field(default_factory=dict)
    """What a query must remember and nobody may see: a sparse vector's threshold, an exact minimiser."""


class Query(ABC):
    """One kind of release."""

    def check(self, facts: Facts) -> None:  # noqa: B027 - most statistics exist at every finite point
        """Refuse public vectors with which the answer might fail.  Called before the event is charged.

        What depends on it must not depend on rows: an answer that fails after its charge is an output that nobody
        paid for.

        Raises
        ------
        InvalidInput
        """

    @abstractmethod
    def event(self, facts: Facts) -> Event:
        """What answering will do to privacy, as parameters, from public facts alone."""

    @abstractmethod
    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        """The released vectors, shape (..., d).  Called after the event has been charged, never before.

        Parameters
        ----------
        release : int
            Running number of the release, which keys the noise.
        """

    def replay(self, vault: Vault, facts: Facts) -> None:  # noqa: B027 - most queries leave nothing behind
        """Take note that the answer is one found in the ledger: no secret of another draw may be used after it."""

    @abstractmethod
    def blank(self, facts: Facts) -> Array:
        """A stand-in of the same shape for planning, made without data."""
