"""Statements: what has been proved of a run, against whom and with which caveats.

A statement is made in one place and never edited; its words are derived from it, with numbers rounded so that no
guarantee looks stronger than it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Protocol, Self, TypeVar

from ..errors import InvalidInput
from ..problem.trust import CURATOR, NOBODY, Trust
from ..util.pages import notebook
from ..util.typing import Any, Array

PUBLIC = "row counts, labels' names, schema, graph, schedules, number of rounds"
"""What every statement takes to be public; where one of these was computed from rows, a caveat says so."""
PUBLIC_OF_PEOPLE = PUBLIC.replace("row counts", "numbers of people")
"""The same where the unit is a person."""
ONE_ROW = "one row of one site"
EXACT = "exact minimisation: printed forms add no noise to the solver's answer"
"""What the claim of a printed form assumes."""
DEMONSTRATION = "demonstration, not a release"

_NAMES = {"pure": "sum of pure epsilons", "zcdp": "zCDP", "rdp": "Renyi", "pld": "loss distributions"}
_UNUSED = "all rows: none is used"

_T = TypeVar("_T")

Words = list[tuple[str, str]]
"""Paragraphs as pairs (headline, rest)."""


def ceil_text(epsilon: float, digits: int = 3) -> str:
    """Epsilon in text, rounded up, but for a rounding error of double precision."""
    if math.isinf(epsilon):
        return "inf"
    scale = 10**digits
    return f"{math.ceil(epsilon * scale * (1.0 - 1e-12)) / scale:.{digits}f}"


def factor_text(epsilon: float) -> str:
    """``exp(epsilon)`` in text, rounded up to three digits."""
    power = math.floor(epsilon / math.log(10.0))
    if power > 6:
        return f"10^{power + 1}"
    step = 10.0 ** (power - 2)
    return f"{math.ceil(math.exp(epsilon) / step * (1.0 - 1e-12)) * step:.{max(0, 2 - power)}f}"


Caveat = str | Iterable[str | None] | None
"""What a guarantee does not cover: nothing, a text, or several, of which some may be None."""


def caveat_text(caveat: Caveat) -> str | None:
    """All caveats as one text; None if there are none."""
    texts = [caveat] if isinstance(caveat, str) else caveat or ()
    return "; ".join(dict.fromkeys(text for text in texts if text)) or None


_PERSON = "one person"


def unit_of(sites_per_row: int) -> str:
    """The unit of protection if a person may have a row at each of `sites_per_row` sites."""
    return ONE_ROW if sites_per_row == 1 else f"one row at each of {sites_per_row} sites"


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
class Shared:
    """A ledger that several runs share, after run `run`: epsilon spent by all, and the budget for life, by node."""

    run: str
    spent: float
    budget: tuple[float, ...]
    delta: float


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What has been proved of a run.  Made by :meth:`prove`, :meth:`unused` and :meth:`from_dict` only.

    Attributes
    ----------
    epsilon, delta : float
        Of the worst site; epsilon is infinite if nothing is proved.
    relation : {"replace-one", "zero-out"}
    unit : str
        Whose contribution is protected, such as "one row of one site".
    trust : Trust
        Against whom.
    accountant : str
        The notion that proves epsilon.
    accountants : tuple of pairs
        (name, epsilon) of all notions that price the run.
    per_node : tuple of float
        Epsilon of every node.
    releases : int
        Number of releases of a node that epsilon is the price of.
    form : {"corrected", "printed", "listed"}
    simulated : bool
        Whether the noise can be repeated.
    public : str
        What is taken as known to everybody.
    printed_claim, assumes : float, str, optional
        The epsilon that a paper claims, and what that claim assumes.
    caveat : str, optional
        What epsilon does not cover, e.g. that the encoding was computed from the rows.
    unprotected : str, optional
        Why nothing is proved, where the form of the run does not tell.
    site : str, optional
        In a run between separate sites, the site whose own statement this is.
    made : int, optional
        Releases that this site made; below :attr:`planned` if the run ended early.
    ledger : Shared, optional
    alone : float, optional
        Of sums: epsilon of the same releases if all other sites collude with whoever sees the messages.
    others : int
        Further releases of a node, which read other rows and cost these no more; see :meth:`either`.
    discloses : str, optional
        What was released besides the model, within epsilon.
    other_epsilon : float, optional
        Epsilon of the same releases under the other relation, at the same delta.
    rests : tuple of str, optional
        On what the guarantee rests that whoever states it cannot see; None where that was not asked.
    """

    epsilon: float
    delta: float
    relation: str
    unit: str
    trust: Trust
    accountant: str
    accountants: tuple[tuple[str, float], ...]
    per_node: tuple[float, ...]
    releases: int
    form: str
    simulated: bool
    public: str
    printed_claim: float | None = None
    assumes: str | None = None
    caveat: str | None = None
    unprotected: str | None = None
    site: str | None = None
    made: int | None = None
    ledger: Shared | None = None
    alone: float | None = None
    others: int = 0
    discloses: str | None = None
    other_epsilon: float | None = None
    rests: tuple[str, ...] | None = None

    # How one is made

    @classmethod
    def prove(
        cls,
        ledger: Priced,
        trust: Trust,
        *,
        relation: str,
        nodes: int,
        simulated: bool,
        unit: str = ONE_ROW,
        form: str = "corrected",
        public: str = PUBLIC,
        printed_claim: float | None = None,
        assumes: str | None = None,
        caveat: Caveat = None,
        unprotected: str | None = None,
    ) -> Self:
        """The statement that the accountant of `ledger` proves from the ledger's rows.

        Parameters
        ----------
        ledger : Priced
            With all releases of the run and no others.
        nodes : int
            Number of sites whose releases the ledger holds.  With 1, all nodes of the ledger repeat one release.
        assumes, unprotected : str, optional
            Kept only with a printed claim, or if epsilon is infinite.
        trust, relation, simulated, unit, form, public, printed_claim, caveat
            See the attributes; several caveats are joined.
        """
        total, report = ledger.total(), ledger.report()
        spent = [float(epsilon) for epsilon in ledger.per_node().ravel()]
        notion = min(report, key=lambda name: report[name])
        return cls(
            epsilon=total,
            delta=ledger.delta if math.isfinite(total) and notion != "pure" else 0.0,
            relation=relation,
            unit=unit,
            trust=trust,
            accountant=notion,
            accountants=tuple(report.items()),
            per_node=(total,) if nodes == 1 else tuple(spent * nodes if len(spent) == 1 else spent),
            releases=len(ledger.rows),
            form=form,
            simulated=simulated,
            public=public,
            printed_claim=printed_claim,
            assumes=None if printed_claim is None else assumes,
            caveat=caveat_text(caveat),
            unprotected=unprotected if math.isinf(total) else None,
        )

    @classmethod
    def unused(cls, trust: Trust, *, relation: str, accountant: str) -> Self:
        """The statement for rows from which no release was computed."""
        return cls(
            epsilon=0.0, delta=0.0, relation=relation, unit=_UNUSED, trust=trust, accountant=accountant,
            accountants=((accountant, 0.0),), per_node=(0.0,), releases=0, form="corrected", simulated=True, public="",
        )  # fmt: skip

    # Other statements that follow from one

    def of_site(self, site: str, made: int) -> Self:
        """The statement of one site about its own rows, after `made` releases."""
        return replace(self, site=site, made=made, per_node=(self.epsilon,))

    def of_people(self, rows: int) -> Self:
        """The statement for people with up to `rows` rows at one site, which count as one row together."""
        return replace(self, unit=f"{_PERSON} with up to {rows} rows at one site")

    @property
    def counted(self) -> str:
        """What a number of rows counts: rows, or people."""
        return "people" if self.unit.startswith(_PERSON) else "rows"

    def of_whole_people(self, read: int, sites: int = 1) -> Self:
        """The statement for people with any number of rows at each of `sites` sites, of which up to `read` are read."""
        place, each = ("one site", "") if sites == 1 else (f"each of {sites} sites", " at each")
        most = "one is" if read == 1 else f"up to {read} are"
        return replace(self, unit=f"{_PERSON} with all rows at {place}, of which {most} read{each}")

    def in_ledger(self, run: str, spent: float, budget: Iterable[float], delta: float) -> Self:
        """The statement with the state of a shared ledger after this run."""
        return replace(self, ledger=Shared(run, spent, tuple(budget), delta))

    def with_caveat(self, caveat: Caveat) -> Self:
        """The statement with a further caveat."""
        more = [caveat] if isinstance(caveat, str) else caveat or ()
        return replace(self, caveat=caveat_text((self.caveat, *more)))

    def either(self, other: Self) -> Self:
        """The statement about rows that are each read by one of the two lists of releases, publicly known which.

        A row costs what the releases that read it cost, so at most the dearer of the two (parallel composition over
        disjoint rows; ``docs/privacy/answers.md``, "Between sites").  `releases` are the dearer's.
        """
        dearer, alone = max(self, other, key=lambda one: one.epsilon), (self.alone, other.alone)
        nodes = zip(self.per_node, other.per_node, strict=True)
        return replace(
            dearer, delta=max(self.delta, other.delta), per_node=tuple(max(pair) for pair in nodes),
            others=self.planned + other.planned - dearer.releases, public=f"{self.public}, which rows are held out",
            alone=None if None in alone else max(price for price in alone if price is not None),
            caveat=caveat_text((self.caveat, other.caveat)), discloses=self.discloses or other.discloses,
        )  # fmt: skip

    def resting_on(self, rests: Iterable[str]) -> Self:
        """The statement with what it rests on."""
        return replace(self, rests=tuple(rests))

    def under_other(self, epsilon: float) -> Self:
        """The statement with epsilon of the same releases under the other relation."""
        return replace(self, other_epsilon=epsilon)

    def if_others_collude(self, epsilon: float) -> Self:
        """The statement with the epsilon that is left if all other sites collude."""
        return replace(self, alone=epsilon)

    def disclosing(self, what: str) -> Self:
        """The statement with what was released besides the model, within epsilon."""
        return replace(self, discloses=what)

    def beside(self, printed_claim: float, assumes: str | None = None) -> Self:
        """The statement with the epsilon that a paper claims."""
        return replace(self, printed_claim=printed_claim, assumes=assumes)

    def unprotected_since(self, why: str) -> Self:
        """The statement with another reason why nothing is proved; InvalidInput if epsilon is finite."""
        if math.isfinite(self.epsilon):
            raise InvalidInput("epsilon", self.epsilon, "is proved", "give no reason why it is not")
        return replace(self, unprotected=why)

    # What it says

    @property
    def planned(self) -> int:
        """Number of releases of a node, whichever rows they read."""
        return self.releases + self.others

    @property
    def early(self) -> str | None:
        """Text on a run that ended before all its releases were made, else None."""
        if self.made is None or self.made >= self.planned:
            return None
        return (
            f"after {self.made} of {self.planned} releases; this is the price of all of them: whoever ended it "
            "had seen some, and for a part that is chosen in such a way nothing less is proved"
        )

    @property
    def demonstration(self) -> bool:
        """Whether it is of a site whose noise can be repeated."""
        return self.site is not None and self.simulated

    @property
    def guarantee(self) -> Words:
        """The statement in words, but for whether the noise can be repeated, which no plan decides."""
        if self.unit == _UNUSED:
            words = [(f"epsilon = {ceil_text(self.epsilon)}", ": none of these rows is used.")]
        elif math.isinf(self.epsilon):
            reason = "the run drew no noise" if self.form == "corrected" else "nothing can be proved for this form"
            words = [("No privacy guarantee", f": {self.unprotected or reason} (epsilon = inf).")]
        else:
            stated = "delta = 0 (pure)" if self.delta == 0 else f"delta = {float(self.delta)!r}"
            others = {name: epsilon for name, epsilon in self.accountants if name != self.accountant}
            compared = ", ".join(f"{_NAMES.get(k, k)} {ceil_text(e)}" for k, e in others.items() if math.isfinite(e))
            more = f", and {self.others} of other rows" if self.others else ""
            by = f"{_NAMES.get(self.accountant, self.accountant)}, {self.releases} releases a site{more}"
            proved = f", {stated}, proved; by {by}{compared and f' (by {compared})'}."
            words = [(f"epsilon = {ceil_text(self.epsilon)}", proved), ("", f"{self._protects()}: {self._sentence()}.")]
        if self.other_epsilon is not None and math.isfinite(self.other_epsilon):
            words.append(("", f"{self._other} epsilon = {ceil_text(self.other_epsilon)}."))
        if self.alone is not None and math.isfinite(self.epsilon):
            left = "nothing is proved" if math.isinf(self.alone) else f"epsilon = {ceil_text(self.alone)}"
            words.append(("If all other sites collude", f": {left}."))
        if self.discloses is not None:
            words.append(("Released too", f": {self.discloses}."))
        if self.early is not None:
            words.append(("Ended early", f": {self.early}."))
        if self.caveat is not None:
            words.append(("Not covered", f": {self.caveat}."))
        words += [("Rests on", f": {one}.") for one in self.rests or ()]
        if self.printed_claim is not None:
            verdict = "is not proved" if self.printed_claim < self.epsilon * (1 - 1e-9) else "holds, and is loose"
            assumed = "" if self.assumes is None else f" Assumes {self.assumes}."
            paper = f": the paper claims {ceil_text(self.printed_claim)}, which {verdict}.{assumed}"
            words.append(("As printed", paper))
        return words

    @property
    def words(self) -> Words:
        """All of the statement, for people."""
        if not self.simulated or math.isinf(self.epsilon):
            return self.guarantee
        return [*self.guarantee, ("Simulation, not a release", ": whoever knows the seed can remove the noise.")]

    @property
    def text(self) -> str:
        return "\n".join(head + rest for head, rest in self.words)

    def __repr__(self) -> str:
        of = f"epsilon={ceil_text(self.epsilon)}, delta={self.delta:g}, {self.relation}"
        return f"{type(self).__name__}({of}, of {self.unit})"

    def _repr_html_(self) -> str:
        return notebook(words=self.words)

    @property
    def _other(self) -> str:
        """The other relation, in words."""
        if self.relation == "replace-one":
            if self.unit.startswith(_PERSON):
                return "Against nobody in their place (zero-out, the person added or removed), as most others state it:"
            return "Against an empty row in its place (zero-out, the row added or removed), as most others state it:"
        if self.unit.startswith(_PERSON):
            return "Against any other person in their place (replace-one):"
        return "Against any other row in its place (replace-one):"

    def _protects(self) -> str:
        but = f", but not against {self.trust.excepted}" if self.trust.excepted else ""
        return f"Protects {self.unit} ({self.relation}) against whoever {self.trust.adversary}{but}"

    def _sentence(self) -> str:
        """Differential privacy itself: a bound on the probability of every set, in both directions."""
        alone = not self.unit.startswith("one row at each")
        subject, place = ("the row", "its place") if alone else ("these rows", "their place")
        replaced = self.relation == "replace-one"
        other = ("another" if alone else "others") if replaced else ("an empty one" if alone else "empty ones")
        if self.unit.startswith(_PERSON):
            subject, place, other = "the person", "their place", "another" if replaced else "nobody"
        plus = "" if self.delta == 0 else f", plus {float(self.delta)!r}"
        return (
            f"whatever set of outcomes one looks at, its probability with {subject} is at most "
            f"{factor_text(self.epsilon)} times its probability with {other} in {place}{plus}"
            + ("" if replaced else ", and the other way round")
        )

    # In short, where parties are promised different things

    @property
    def protects(self) -> str:
        """What is protected against whom, in a few words."""
        if math.isinf(self.epsilon):
            return "nothing"
        return self.unit if self.unit == _UNUSED else f"{self.unit}, against whoever {self.trust.adversary}"

    @property
    def not_protected(self) -> str:
        """What is not, in a few words."""
        trusted = "" if self.trust.excepted is None else f"against {self.trust.excepted}"
        but = self.unprotected or "; ".join(filter(None, (trusted, self.assumes or self.public)))
        return f"NO protection: {but}" if math.isinf(self.epsilon) else but

    def promise(self) -> dict[str, Any]:
        """Plain data in short, for comparisons."""
        plain = {
            "epsilon": self.epsilon, "delta": self.delta, "accountant": self.accountant, "relation": self.relation,
            "protects": self.protects, "not_protected": self.not_protected, "claimed": self.printed_claim,
        }  # fmt: skip
        return plain if self.caveat is None else plain | {"caveat": self.caveat}

    # Plain data

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with the words; what does not apply is left out."""
        plain: dict[str, Any] = {
            "epsilon": self.epsilon, "delta": self.delta, "relation": self.relation, "unit": self.unit,
            "accountant": self.accountant, "accountants": dict(self.accountants), "adversary": self.trust.adversary,
            "public": self.public, "per_node": list(self.per_node), "releases": self.releases, "form": self.form,
            "release": not self.simulated,
        }  # fmt: skip
        if self.trust not in _TOLD:
            plain["trust"] = self.trust.to_dict()
        more = {
            "printed_claim": self.printed_claim, "assumes": self.assumes, "caveat": self.caveat,
            "unprotected": self.unprotected, "says": self.text, "site": self.site, "made": self.made,
            "early": self.early, "demonstration": DEMONSTRATION if self.demonstration else None,
            "ledger": self.ledger and asdict(self.ledger) | {"budget": list(self.ledger.budget)}, "alone": self.alone,
            "others": self.others or None, "discloses": self.discloses, "other_epsilon": self.other_epsilon,
            "caveats": None if self.rests is None else [*([self.caveat] if self.caveat else []), *self.rests],
        }  # fmt: skip
        return plain | {key: value for key, value in more.items() if value is not None}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """Read what :meth:`to_dict` wrote, from anybody; words are derived anew.

        Parameters
        ----------
        plain : dict
            With infinities as numbers, or as the texts that :func:`sottovoce.util.plain.jsonable` writes.

        Raises
        ------
        InvalidInput
        """
        if not isinstance(plain, dict):
            raise _foreign("privacy")
        trust: Trust | None
        if "trust" in plain:
            trust = Trust.from_dict(plain["trust"])
        else:
            trust = next((one for one in _TOLD if one.adversary == plain.get("adversary")), None)
        if trust is None:
            raise _foreign("adversary")
        optional = {key: _taken(plain, key, read) for key, read in _OPTIONAL.items() if key in plain}
        if "caveats" in plain:
            said = _taken(plain, "caveats", _texts)
            optional["rests"] = said[1:] if said[:1] == (optional.get("caveat"),) else said
        simulated = not _taken(plain, "release", _truth)
        return cls(
            **{key: _taken(plain, key, read) for key, read in _REQUIRED.items()},
            **optional,
            trust=trust,
            simulated=simulated,
        )


_TOLD = (NOBODY, CURATOR)
"""Trusts that the adversary's sentence tells apart."""


def _foreign(key: str) -> InvalidInput:
    return InvalidInput(key, None, "is not what a statement holds", "use a file that this library wrote")


def _taken(plain: dict[str, Any], key: str, read: Callable[[Any], _T]) -> _T:
    try:
        return read(plain[key])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise _foreign(key) from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(map(_text, value))


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError
    return value


def _number(value: Any) -> float:
    """A price: at least 0, perhaps infinite."""
    if value == "inf":
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise TypeError
    return float(value)


def _numbers(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list):
        raise TypeError
    return tuple(map(_number, value))


def _pairs(value: Any) -> tuple[tuple[str, float], ...]:
    if not isinstance(value, dict):
        raise TypeError
    return tuple((_text(name), _number(epsilon)) for name, epsilon in value.items())


def _shared(value: Any) -> Shared:
    return Shared(_text(value["run"]), _number(value["spent"]), _numbers(value["budget"]), _number(value["delta"]))


_REQUIRED: dict[str, Callable[[Any], Any]] = {
    "epsilon": _number, "delta": _number, "relation": _text, "unit": _text, "accountant": _text, "accountants": _pairs,
    "per_node": _numbers, "releases": _count, "form": _text, "public": _text,
}  # fmt: skip
_OPTIONAL: dict[str, Callable[[Any], Any]] = {
    "printed_claim": _number, "assumes": _text, "caveat": _text, "unprotected": _text, "site": _text, "made": _count,
    "ledger": _shared, "alone": _number, "others": _count, "discloses": _text, "other_epsilon": _number,
}  # fmt: skip
