"""The interface of a query: a kind of release that sees rows, draws noise and states its event.

Facts (:mod:`sottovoce.problem.facts`) are all that is public of a run; the vault (:mod:`.vault`)
holds the rows.  A class that defines no event cannot be instantiated, so no release can go
uncharged.  Queries are asked through a :class:`sottovoce.runs.row_guard.RowGuard` only, which
charges the event before it calls :meth:`Query.answer`.
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
    """Check that a release is proved for the unit of privacy of this run.

    Parameters
    ----------
    proved : bool
        Whether the release is proved for units of several rows.
    facts : Facts
        Public facts; their `has_several_rows` tells whether a unit may have several rows.

    Raises
    ------
    InvalidInput
        If a unit may have several rows and the release is proved for one row a unit only.
    """
    if facts.has_several_rows and not proved:
        rule = (
            "declares several rows a person, but this release is proved for one row a person only"
        )
        remedy = (
            "use prox_admm, prox_average, momentum or dgd, which are proved for several rows, "
            "or declare one row a person"
        )
        raise InvalidInput("person", None, rule, remedy)


class Query(ABC):
    """One kind of release: its event, its answer, and what an audit may know of it.

    A query is a frozen dataclass of public values.  The row guard calls its methods in this order:
    :meth:`check_before_charge` and :meth:`prepare_before_charge`, which may refuse; :meth:`event`,
    which is charged; then :meth:`answer`, or :meth:`replay` if the ledger holds the answer of an
    interrupted run.
    """

    of_people: ClassVar[bool] = False
    """Whether the proof holds for user-level privacy, with units of several rows of total weight 1
    or less (docs/privacy/person.md).

    Each class declares it for itself: a subclass has another statistic, of which nothing is
    proved."""

    def proved_of_people(self) -> bool:
        """Return whether this query is proved for units of several rows."""
        return bool(vars(type(self)).get("of_people", False))

    @property
    def statistic(self) -> Query:
        """The query whose answers are released: itself, but for a sum of other queries' answers."""
        return self

    def with_noise_ratio(self, alpha: Array) -> Self:
        """Return the same query with another ratio of sensitivity to sigma.

        Only for queries with a field `alpha`, which holds that ratio.

        Parameters
        ----------
        alpha : array of shape (..., 1)
            Sensitivity over sigma (mu of Gaussian differential privacy).

        Returns
        -------
        Query
        """
        return type(self)(**{**vars(self), "alpha": alpha})

    def check_before_charge(self, facts: Facts) -> None:  # noqa: B027 - most statistics exist at every finite point
        """Check, before the charge, that public vectors cannot make the answer fail.

        It reads public values only: a failure after the charge would depend on rows, and no event
        pays for that output.

        Raises
        ------
        InvalidInput
            If the answer might fail at these public vectors.
        """

    def prepare_before_charge(self, vault: Vault) -> None:  # noqa: B027 - most depend on nothing that came before
        """Check, before the charge, that the vault holds what the answer needs, and load libraries.

        Raises
        ------
        LedgerError
            If the vault lacks what earlier rounds of the run should have left.
        """

    def public_digest(self) -> bytes:
        """Return a digest of public values that is stored with an answer, and compared on replay.

        It is empty by default.  A query whose answers, or later ones, mean something at its public
        point only returns a digest of that point, so that a stored answer is not taken for one at
        another point.
        """
        return b""

    @abstractmethod
    def event(self, facts: Facts) -> Event:
        """Return the event that prices this release, from public facts alone."""

    @abstractmethod
    def answer(self, vault: Vault, facts: Facts, release: int) -> Array:
        """Compute the release, with its noise, after its event was charged.

        Parameters
        ----------
        vault : Vault
            The rows (inside their solver), the source of noise, and secrets of earlier answers.
        facts : Facts
            Public facts of the nodes whose rows the vault holds.
        release : int
            Running number of this release in the run, which keys its noise in a simulation.

        Returns
        -------
        array of the shape of :meth:`placeholder_answer`
            Released vectors of all leading indices, usually (..., d).
        """

    def replay(self, vault: Vault, facts: Facts, release: int) -> None:  # noqa: B027 - most leave nothing behind
        """Update the vault in place of :meth:`answer`, if the answer is taken from the ledger.

        Secrets that belong to another draw must not be used afterwards.  In a simulation a query
        that solves does so again, so that the next solve has the start of an uninterrupted run.

        Parameters
        ----------
        vault : Vault
            The rows (inside their solver), the source of noise, and secrets of earlier answers.
        facts : Facts
            Public facts of the nodes whose rows the vault holds.
        release : int
            Running number of the release whose answer is stored.
        """

    @abstractmethod
    def placeholder_answer(self, facts: Facts) -> Array:
        """Return a placeholder of the answer's shape, for planning."""

    def around_origin(self, origin: Array, facts: Facts) -> Query:
        """Return the query to ask instead if an algorithm counts from a public origin.

        The algorithm runs unchanged on ``v = w - origin``, with the regulariser ``(rho / 2)
        ||v||^2``.  Its query about v is one about w of the same class with other public vectors, so
        event and proof stay as they are.

        Parameters
        ----------
        origin : array of shape (..., d)
            Public point from which the algorithm counts.
        facts : Facts
            Public facts of the run.

        Returns
        -------
        Query

        Raises
        ------
        InvalidInput
            By default: the query has no such form.
        """
        rule = f"{type(self).__name__} cannot start from a point other than zero"
        raise InvalidInput("start", None, rule, "leave it out, or use another method")

    def answer_from_origin(self, answer: Array, origin: Array) -> Array:
        """Return this query's answer, given the answer of the query that :meth:`around_origin`
        returned.

        Parameters
        ----------
        answer : array of shape (..., d)
            Answer about w.
        origin : array of shape (..., d)
            Public point from which the algorithm counts.

        Returns
        -------
        array of shape (..., d)
            By default ``answer - origin``.
        """
        return answer - origin

    # For the audit

    def log_density(self, supposed: Supposed, answer: Array) -> Array | None:
        """Return the log density of an answer if the node held the supposed rows, up to a constant.

        It is called once per round, in order.

        Parameters
        ----------
        supposed : Supposed
            Rows that the auditor supposes the node to hold.
        answer : array of shape (R, 1, d)
            Released answers of R replicates of one node.

        Returns
        -------
        array of shape (R,), or None
            The constant that is left out must not depend on rows.  None if the density is not
            known: the audit then scores answers along the line between the two noise-free ones.
        """
        return None

    def has_exact_density(self, supposed: Supposed, answers: Array) -> bool:
        """Return whether :meth:`log_density` is exact at these answers."""
        return True

    def canary_dependence(self, canaries: Canaries, answer: Array) -> Leaning | None:
        """Return how an answer depends on canary rows, to first order.

        Parameters
        ----------
        canaries : Canaries
            Known rows of one node, and its canary rows.
        answer : array of shape (d,)
            One released answer.

        Returns
        -------
        Leaning or None
            None if the answer does not depend on them.

        Raises
        ------
        InvalidInput
            By default: how canaries move the answer is not known.
        """
        rule = "does not say how canaries move its answer (Query.canary_dependence)"
        raise InvalidInput("method", type(self).__name__, rule, "use the audit with two tables")
