"""The private half of a method: a query sees rows, draws noise and states its event.

A query without an event cannot be instantiated, so that spending cannot be forgotten.  Queries are asked through a
:class:`sottovoce.curator.Curator` only, which charges the event before it calls :meth:`Query.answer`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..facts import Facts
from ..privacy.events import Event
from ..typing import Array
from .evidence import Canaries, Leaning, Supposed, refusal
from .vault import Vault


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

    # What the audit asks.  The rows there are the auditor's own guesses: nothing private is read.

    def log_density(self, supposed: Supposed, answer: Array) -> Array | None:
        """Logarithm of the stated density of an answer if the node held the supposed rows, up to a constant.

        The constant must not depend on rows.  None where the density is not known; the audit then scores the answer
        along the line between two noise-free answers.  Called once a round, in order.

        Parameters
        ----------
        supposed : Supposed
        answer : array (R, 1, d)

        Returns
        -------
        array (R,) or None
        """
        return None

    def has_exact_density(self, supposed: Supposed, answers: Array) -> bool:
        """Whether :meth:`log_density` is exact at these answers, and not an approximation."""
        return True

    def leaning(self, canaries: Canaries, answer: Array) -> Leaning | None:
        """What an answer of shape (d,) says of canary rows, to first order; None if it says nothing.

        Raises
        ------
        InvalidInput
            If the query cannot say.
        """
        raise refusal(self)
