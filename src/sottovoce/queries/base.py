"""Queries: a kind of release that sees rows, draws noise and states its event.

A class that defines no event cannot be instantiated, so no release can go uncharged.  Queries are asked through a
:class:`sottovoce.runs.row_guard.RowGuard` only, which charges the event before it calls :meth:`Query.answer`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from ..errors import InvalidInput
from ..privacy.events import Event
from ..problem.facts import Facts
from ..util.typing import Array
from .audit_hooks import Canaries, Leaning, Supposed
from .vault import Vault


def check_unit(proved: bool, facts: Facts) -> None:
    """Refuse (InvalidInput) a release that is proved for one row a unit only, where a unit may have several."""
    if facts.several and not proved:
        rule = "bounds several rows of a person together, and this release is proved for one row a person"
        remedy = "use prox_admm, prox_average, momentum or dgd, which are proved, or one row a person"
        raise InvalidInput("person", None, rule, remedy)


class Query(ABC):
    """One kind of release."""

    of_people: ClassVar[bool] = False
    """Whether it is proved for units of several rows that weigh no more than 1 together (docs/privacy/person.md).

    Each class declares it for itself: a subclass has another statistic, of which nothing is proved."""

    def proved_of_people(self) -> bool:
        """Whether a unit may have several rows."""
        return bool(vars(type(self)).get("of_people", False))

    @property
    def statistic(self) -> Query:
        """The query whose answers are released: itself, but for a sum of other queries' answers."""
        return self

    def at_shift(self, alpha: Array) -> Self:
        """The same query at another shift over sigma; of queries that have one, as their field `alpha`."""
        return type(self)(**{**vars(self), "alpha": alpha})

    def check(self, facts: Facts) -> None:  # noqa: B027 - most statistics exist at every finite point
        """Refuse (InvalidInput) public vectors with which the answer might fail, before the charge.

        It reads public values only: a failure after the charge would depend on rows, and no event pays for that output.
        """

    def ready(self, vault: Vault) -> None:  # noqa: B027 - most depend on nothing that came before
        """Refuse (LedgerError), before the charge, if the vault lacks what earlier rounds should have left.

        Libraries that the draw needs are loaded here, too.
        """

    def stamp(self) -> bytes:
        """Digest that is stored with an answer and compared when it is read again; empty by default.

        Queries whose answers, or later ones, mean something at their own public point only stamp that point.
        """
        return b""

    @abstractmethod
    def event(self, facts: Facts) -> Event:
        """The parameters that price this release, from public facts alone."""

    @abstractmethod
    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        """The released vectors, shape (..., d), after the charge; `release` is a running number that keys the noise."""

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:  # noqa: B027 - most leave nothing behind
        """Called when the answer is taken from the ledger: secrets of any other draw must not be used after it.

        In a simulation a query that solves does so again, so that the next solve has the start of an uninterrupted run.
        """

    @abstractmethod
    def blank(self, facts: Facts) -> Array:
        """A placeholder of the answer's shape, for planning."""

    def around(self, origin: Array, facts: Facts) -> Query:
        """The query to ask in place of this one if an algorithm counts from a public `origin` of shape (..., d).

        The algorithm runs unchanged on ``v = w - origin``, with the regulariser ``(rho / 2) ||v||^2``.  Its query about
        v is one about w of the same class with other public vectors, so event and proof stay as they are.  By default
        refused (InvalidInput).
        """
        rule = f"{type(self).__name__} has no form that counts from another point than zero"
        raise InvalidInput("start", None, rule, "leave it out, or use another method")

    def beside(self, answer: Array, origin: Array) -> Array:
        """This query's answer from that of :meth:`around`'s; by default, the difference to `origin`."""
        return answer - origin

    # For the audit

    def log_density(self, supposed: Supposed, answer: Array) -> Array | None:
        """Logarithm of the stated density of an answer if the node held the supposed rows, up to a constant.

        The constant must not depend on rows.  None if the density is not known: the audit then scores answers along the
        line between the two noise-free ones.  Called once per round, in order; `answer` has shape (R, 1, d), the
        result (R,).
        """
        return None

    def has_exact_density(self, supposed: Supposed, answers: Array) -> bool:
        """Whether :meth:`log_density` is exact at these answers, not an approximation."""
        return True

    def leaning(self, canaries: Canaries, answer: Array) -> Leaning | None:
        """How an answer (d,) depends on canary rows, to first order; None if not, InvalidInput if that is unknown."""
        rule = "does not say how canaries move its answer (Query.leaning)"
        raise InvalidInput("method", type(self).__name__, rule, "use the game of two tables")
