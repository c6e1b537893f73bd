"""The private half of a method: a query sees rows, draws noise and states its event.

A query class that does not define its event cannot be instantiated, so no release can go uncharged.  Queries are asked
through a :class:`sottovoce.runs.curator.Curator` only, which charges the event before it calls :meth:`Query.answer`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from ..errors import InvalidInput
from ..privacy.events import Event
from ..problem.facts import Facts
from ..util.typing import Array
from .audit_hooks import Canaries, Leaning, Supposed, refusal
from .vault import Vault


class Query(ABC):
    """One kind of release."""

    unstamped: ClassVar[bool] = False
    """Whether older versions kept answers without the stamp that this one gives them; they are still read."""

    def check(self, facts: Facts) -> None:  # noqa: B027 - most statistics exist at every finite point
        """Refuse public vectors with which the answer might fail.  Called before the event is charged.

        The check may depend on public values only.  If an answer could fail after its charge, the failure would depend
        on rows, and the event does not pay for that output.

        Raises
        ------
        InvalidInput
        """

    def ready(self, vault: Vault) -> None:  # noqa: B027 - most depend on nothing that came before
        """Refuse, before the charge, if what earlier rounds should have left in the vault is missing.

        Raises
        ------
        LedgerError
        """

    def stamp(self) -> bytes:
        """What a stored answer is kept with, and compared with when it is read again: by default nothing.

        A query whose answer, or a later one, means something at its own public point only stamps that point: an answer
        of another point is then refused.
        """
        return b""

    @abstractmethod
    def event(self, facts: Facts) -> Event:
        """The parameters that price this release, from public facts alone."""

    @abstractmethod
    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        """The released vectors, shape (..., d).  Called after the event has been charged, never before.

        Parameters
        ----------
        release : int
            Running number of the release, which keys the noise.
        """

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:  # noqa: B027 - most leave nothing behind
        """Called when the answer is taken from the ledger: secrets of any other draw must not be used after it.

        In a simulation a query that solves does so again, so that the next solve starts where that of a run without
        interruption does.
        """

    @abstractmethod
    def blank(self, facts: Facts) -> Array:
        """A placeholder of the answer's shape for planning, made without data."""

    def around(self, origin: Array, facts: Facts) -> Query:
        """The query to ask in place of this one if an algorithm counts from `origin`.

        An algorithm that starts at a public point runs unchanged on ``v = w - origin``, with the regulariser
        ``(rho / 2) ||v||^2``.  Its query about v is a query about w of the same class with other public vectors.  So
        the event, which depends on no public vector, and the proof stay as they are.

        Parameters
        ----------
        origin : array
            Public; its shape broadcasts to that of a vector, (..., d).

        Raises
        ------
        InvalidInput
            If the query cannot be asked so, which is the default.
        """
        rule = f"{type(self).__name__} has no form that counts from another point than zero"
        raise InvalidInput("start", None, rule, "leave it out, or use another method")

    def beside(self, answer: Array, origin: Array) -> Array:
        """The answer of :meth:`around`'s query as this query's: post-processing.  By default, a difference."""
        return answer - origin

    # Methods for the audit.  The rows there are the auditor's own guesses, so nothing private is read.

    def log_density(self, supposed: Supposed, answer: Array) -> Array | None:
        """Logarithm of the stated density of an answer if the node held the supposed rows, up to a constant.

        The constant must not depend on rows.  None if the density is not known; the audit then scores the answer
        along the line between the two noise-free answers.  Called once per round, in order.

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
        """Whether :meth:`log_density` is exact at these answers, not an approximation."""
        return True

    def leaning(self, canaries: Canaries, answer: Array) -> Leaning | None:
        """How an answer of shape (d,) depends on canary rows, to first order; None if it does not.

        Raises
        ------
        InvalidInput
            If the query does not know.
        """
        raise refusal(self)
