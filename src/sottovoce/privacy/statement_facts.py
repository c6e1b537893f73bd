"""The facts that a privacy statement is built from; each is made by the part that knows it.

:func:`sottovoce.privacy.statement.build_statement` turns a list of them into a statement.  A later
fact wins over an earlier one of its kind; caveats add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Protocol, Self

from ..problem.trust import Trust
from ..util.typing import Any, Array

PUBLIC = "row counts, labels' names, schema, graph, schedules, number of rounds"
"""Facts that every statement takes to be public; a caveat says if one was computed from rows."""
PUBLIC_OF_PEOPLE = PUBLIC.replace("row counts", "numbers of people")
"""The same where the unit is a person."""
ONE_ROW = "one row of one site"
PERSON = "one person"
UNUSED = "all rows: none is used"
EXACT = "exact minimisation: printed forms add no noise to the solver's answer"
"""The assumption of a printed form's claim."""

Caveat = str | Iterable[str | None] | None
"""Limits of a guarantee: none, a text, or several, of which some may be None."""


def caveat_text(caveat: Caveat) -> str | None:
    """Return all caveats as one text; None if there are none."""
    texts = _caveat_list(caveat)
    return "; ".join(dict.fromkeys(text for text in texts if text)) or None


def _caveat_list(caveat: Caveat) -> Iterable[str | None]:
    """Return caveats as a sequence of texts."""
    if isinstance(caveat, str):
        return [caveat]
    return caveat or ()


class Priced(Protocol):
    """A ledger with all releases of a run and no others."""

    delta: float

    @property
    def rows(self) -> Sequence[object]:
        """The releases."""

    def total(self) -> float:
        """Epsilon of the whole network."""

    def per_node(self) -> Array:
        """Epsilon spent by each node."""

    def report(self) -> dict[str, float]:
        """The network's epsilon by every notion."""


@dataclass(frozen=True)
class Fact:
    """Base of facts about a run, whose fields are named as those of the statement that they set."""

    def settled_fields(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Return the statement's fields that follow from this fact.

        Parameters
        ----------
        known : mapping
            Fields that follow from the facts before it.
        """
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class Proved(Fact):
    """The result of an accountant for all releases of a run; fields as in a statement."""

    epsilon: float
    delta: float
    accountant: str
    accountants: tuple[tuple[str, float], ...]
    per_node: tuple[float, ...]
    releases: int

    @classmethod
    def proved_by_ledger(cls, ledger: Priced, nodes: int) -> Self:
        """Return what the accountant of `ledger` proves from the ledger's rows.

        Parameters
        ----------
        ledger : Priced
            With all releases of the run and no others.
        nodes : int
            Number of sites whose releases the ledger holds.  With 1, all nodes of the ledger repeat
            one release.

        Returns
        -------
        Proved
        """
        total, report = ledger.total(), ledger.report()
        notion = min(report, key=lambda name: report[name])
        spent = [float(epsilon) for epsilon in ledger.per_node().ravel()]
        if nodes == 1:
            per_node = [total]
        elif len(spent) == 1:
            per_node = spent * nodes
        else:
            per_node = spent
        delta = ledger.delta
        if notion == "pure" or not math.isfinite(total):
            delta = 0.0
        return cls(
            epsilon=total,
            delta=delta,
            accountant=notion,
            accountants=tuple(report.items()),
            per_node=tuple(per_node),
            releases=len(ledger.rows),
        )

    @classmethod
    def nothing_released(cls, accountant: str) -> Self:
        """Return what holds of rows from which no release was computed."""
        return cls(0.0, 0.0, accountant, ((accountant, 0.0),), (0.0,), 0)


@dataclass(frozen=True)
class Relation(Fact):
    """The neighbouring relation, "replace-one" or "zero-out"."""

    relation: str


@dataclass(frozen=True)
class Unit(Fact):
    """The unit of privacy: whose contribution is protected."""

    unit: str = ONE_ROW

    @classmethod
    def of_rows(cls, sites_per_row: int) -> Self:
        """Return the unit of a person who may have a row at each of so many sites."""
        if sites_per_row == 1:
            return cls(ONE_ROW)
        return cls(f"one row at each of {sites_per_row} sites")

    @classmethod
    def of_people(cls, rows: int) -> Self:
        """Return the unit of a person with up to `rows` rows at one site, of one row's weight."""
        return cls(f"{PERSON} with up to {rows} rows at one site")

    @classmethod
    def of_whole_people(cls, read: int, sites: int = 1) -> Self:
        """Return the unit of a person with any number of rows at each of `sites` sites.

        Up to `read` rows of the person are read at a site.
        """
        place, each = "one site", ""
        if sites != 1:
            place, each = f"each of {sites} sites", " at each"
        most = "one is"
        if read != 1:
            most = f"up to {read} are"
        return cls(f"{PERSON} with all rows at {place}, of which {most} read{each}")


@dataclass(frozen=True)
class Against(Fact):
    """The parties that are trusted, and so the adversary against whom the guarantee holds."""

    trust: Trust


@dataclass(frozen=True)
class Form(Fact):
    """The run's form: "corrected", "printed" or "listed"."""

    form: str


@dataclass(frozen=True)
class Simulated(Fact):
    """Whether the noise can be repeated."""

    simulated: bool


@dataclass(frozen=True)
class TakenAsPublic(Fact):
    """The facts that are taken as known to everybody."""

    public: str = PUBLIC


@dataclass(frozen=True)
class Claim(Fact):
    """The epsilon that a paper claims, and what that claim assumes."""

    printed_claim: float | None
    assumes: str | None = None


@dataclass(frozen=True)
class Caveats(Fact):
    """Limits of the guarantee, e.g. that the encoding was computed from the rows; they add up."""

    caveat: Caveat

    def settled_fields(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return {"caveat": caveat_text((known.get("caveat"), *_caveat_list(self.caveat)))}


@dataclass(frozen=True)
class Unproved(Fact):
    """Why nothing is proved, where the run's form does not tell; unused for a finite epsilon."""

    unprotected: str | None


@dataclass(frozen=True)
class AtSite(Fact):
    """The site whose own statement it is, about its own rows, after `made` releases."""

    site: str
    made: int

    def settled_fields(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return {"site": self.site, "made": self.made, "per_node": (known["epsilon"],)}


@dataclass(frozen=True)
class Shared:
    """The state of a ledger that several runs share.

    Parameters
    ----------
    run : str
        The last run.
    spent : float
        Epsilon that all runs have spent.
    budget : tuple of float
        Lifetime budget of each node.
    delta : float
        The delta of both.
    """

    run: str
    spent: float
    budget: tuple[float, ...]
    delta: float


@dataclass(frozen=True)
class InLedger(Fact):
    """The state of a shared ledger after this run."""

    ledger: Shared


@dataclass(frozen=True)
class IfOthersCollude(Fact):
    """Epsilon of sums against all other sites together with an adversary who sees the messages."""

    alone: float


@dataclass(frozen=True)
class Disclosed(Fact):
    """Releases besides the model, within epsilon."""

    discloses: str


@dataclass(frozen=True)
class UnderOtherRelation(Fact):
    """Epsilon of the same releases under the other relation, at the same delta."""

    other_epsilon: float


@dataclass(frozen=True)
class RestsOn(Fact):
    """Assumptions of the guarantee that the party that states it cannot check."""

    rests: tuple[str, ...]
