"""The facts that a privacy statement is built from: each is returned by the place that knows it.

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
"""What every statement takes to be public; where one of these was computed from rows, a caveat says so."""
PUBLIC_OF_PEOPLE = PUBLIC.replace("row counts", "numbers of people")
"""The same where the unit is a person."""
ONE_ROW = "one row of one site"
PERSON = "one person"
UNUSED = "all rows: none is used"
EXACT = "exact minimisation: printed forms add no noise to the solver's answer"
"""What the claim of a printed form assumes."""

Caveat = str | Iterable[str | None] | None
"""What a guarantee does not cover: nothing, a text, or several, of which some may be None."""


def caveat_text(caveat: Caveat) -> str | None:
    """All caveats as one text; None if there are none."""
    texts = [caveat] if isinstance(caveat, str) else caveat or ()
    return "; ".join(dict.fromkeys(text for text in texts if text)) or None


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
    """One thing that is known of a run.  Its fields have the names of those of the statement that it settles."""

    def settles(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """The statement's fields that follow from this fact, where `known` follow from those before it."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class Proved(Fact):
    """What an accountant proves of all releases of a run."""

    epsilon: float
    delta: float
    accountant: str
    accountants: tuple[tuple[str, float], ...]
    per_node: tuple[float, ...]
    releases: int

    @classmethod
    def by(cls, ledger: Priced, nodes: int) -> Self:
        """What the accountant of `ledger` proves from the ledger's rows.

        Parameters
        ----------
        ledger : Priced
            With all releases of the run and no others.
        nodes : int
            Number of sites whose releases the ledger holds.  With 1, all nodes of the ledger repeat
            one release.
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
        pure = notion == "pure" or not math.isfinite(total)
        return cls(
            epsilon=total,
            delta=0.0 if pure else ledger.delta,
            accountant=notion,
            accountants=tuple(report.items()),
            per_node=tuple(per_node),
            releases=len(ledger.rows),
        )

    @classmethod
    def nothing_released(cls, accountant: str) -> Self:
        """What holds of rows from which no release was computed."""
        return cls(0.0, 0.0, accountant, ((accountant, 0.0),), (0.0,), 0)


@dataclass(frozen=True)
class Relation(Fact):
    """The neighbouring relation, "replace-one" or "zero-out"."""

    relation: str


@dataclass(frozen=True)
class Unit(Fact):
    """Whose contribution is protected."""

    unit: str = ONE_ROW

    @classmethod
    def of_rows(cls, sites_per_row: int) -> Self:
        """A person who may have a row at each of so many sites."""
        return cls(ONE_ROW if sites_per_row == 1 else f"one row at each of {sites_per_row} sites")

    @classmethod
    def of_people(cls, rows: int) -> Self:
        """A person with up to `rows` rows at one site, which count as one row together."""
        return cls(f"{PERSON} with up to {rows} rows at one site")

    @classmethod
    def of_whole_people(cls, read: int, sites: int = 1) -> Self:
        """A person with any number of rows at each of `sites` sites, of which up to `read` are read."""
        place, each = ("one site", "") if sites == 1 else (f"each of {sites} sites", " at each")
        most = "one is" if read == 1 else f"up to {read} are"
        return cls(f"{PERSON} with all rows at {place}, of which {most} read{each}")


@dataclass(frozen=True)
class Against(Fact):
    """Whom people trust, and so against whom the guarantee holds."""

    trust: Trust


@dataclass(frozen=True)
class Form(Fact):
    """Whether the run is "corrected", "printed" or "listed"."""

    form: str


@dataclass(frozen=True)
class Simulated(Fact):
    """Whether the noise can be repeated."""

    simulated: bool


@dataclass(frozen=True)
class TakenAsPublic(Fact):
    """What is taken as known to everybody."""

    public: str = PUBLIC


@dataclass(frozen=True)
class Claim(Fact):
    """The epsilon that a paper claims, and what that claim assumes."""

    printed_claim: float | None
    assumes: str | None = None


@dataclass(frozen=True)
class Caveats(Fact):
    """What epsilon does not cover, e.g. that the encoding was computed from the rows; added to what is known."""

    caveat: Caveat

    def settles(self, known: Mapping[str, Any]) -> dict[str, Any]:
        more = [self.caveat] if isinstance(self.caveat, str) else self.caveat or ()
        return {"caveat": caveat_text((known.get("caveat"), *more))}


@dataclass(frozen=True)
class Unproved(Fact):
    """Why nothing is proved, where the form of the run does not tell; it says nothing where epsilon is finite."""

    unprotected: str | None


@dataclass(frozen=True)
class AtSite(Fact):
    """That it is one site's own statement about its own rows, after `made` releases."""

    site: str
    made: int

    def settles(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return {"site": self.site, "made": self.made, "per_node": (known["epsilon"],)}


@dataclass(frozen=True)
class Shared:
    """A ledger that several runs share, after run `run`: epsilon spent by all, and the budget for life, by node."""

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
    """Of sums: epsilon of the same releases if all other sites collude with whoever sees the messages."""

    alone: float


@dataclass(frozen=True)
class Disclosed(Fact):
    """What was released besides the model, within epsilon."""

    discloses: str


@dataclass(frozen=True)
class UnderOtherRelation(Fact):
    """Epsilon of the same releases under the other relation, at the same delta."""

    other_epsilon: float


@dataclass(frozen=True)
class RestsOn(Fact):
    """On what the guarantee rests that whoever states it cannot see."""

    rests: tuple[str, ...]
