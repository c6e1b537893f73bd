"""Statements: what has been proved of a run, against whom and with which caveats.

A statement is built here from a list of facts (:mod:`sottovoce.privacy.statement_facts`), and never
edited.  Its words are derived from it, with numbers rounded so that no guarantee looks stronger
than it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Self

from ..problem.trust import Trust
from ..util.pages import render_for_notebook
from ..util.typing import Any
from .statement_facts import PERSON, UNUSED, Fact, Shared, caveat_text
from .statement_reading import TOLD_BY_ADVERSARY, read_fields

DEMONSTRATION = "demonstration, not a release"

_NAMES = {
    "pure": "sum of pure epsilons",
    "zcdp": "zCDP",
    "rdp": "Renyi DP",
    "pld": "privacy loss distributions",
}

Words = list[tuple[str, str]]
"""Paragraphs as pairs (headline, rest)."""


def ceil_text(epsilon: float, digits: int = 3) -> str:
    """Return epsilon as text, rounded up, but for a rounding error of double precision."""
    if math.isinf(epsilon):
        return "inf"
    scale = 10**digits
    return f"{math.ceil(epsilon * scale * (1.0 - 1e-12)) / scale:.{digits}f}"


def factor_text(epsilon: float) -> str:
    """Return ``exp(epsilon)`` as text, rounded up to three digits."""
    power = math.floor(epsilon / math.log(10.0))
    if power > 6:
        return f"10^{power + 1}"
    step = 10.0 ** (power - 2)
    return f"{math.ceil(math.exp(epsilon) / step * (1.0 - 1e-12)) * step:.{max(0, 2 - power)}f}"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A privacy statement: what has been proved of a run, against whom, and with which caveats.

    Made by :func:`build_statement`, :func:`with_further_facts`, :func:`either_list_statement` and
    :meth:`from_dict` only.

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
        Releases that this site made; below :attr:`planned_releases` if the run ended early.
    ledger : Shared, optional
    alone : float, optional
        Of sums: epsilon of the same releases if all other sites collude with whoever sees the
        messages.
    others : int
        Further releases of a node, which read other rows and cost these no more; see
        :func:`either_list_statement`.
    discloses : str, optional
        What was released besides the model, within epsilon.
    other_epsilon : float, optional
        Epsilon of the same releases under the other relation, at the same delta.
    rests : tuple of str, optional
        On what the guarantee rests that whoever states it cannot see; None where that was not
        asked.
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

    @property
    def planned_releases(self) -> int:
        """Number of releases of a node, whichever rows they read."""
        return self.releases + self.others

    @property
    def counted(self) -> str:
        """Word for what a number of rows counts: rows, or people."""
        if self.unit.startswith(PERSON):
            return "people"
        return "rows"

    @property
    def early(self) -> str | None:
        """Text on a run that ended before all its releases were made, else None."""
        if self.made is None or self.made >= self.planned_releases:
            return None
        return (
            f"after {self.made} of {self.planned_releases} releases; epsilon counts all of them, "
            "because whoever ended the run had seen some, and no smaller epsilon is proved then"
        )

    @property
    def demonstration(self) -> bool:
        """Whether it is a demonstration: a statement of a site whose noise can be repeated."""
        return self.site is not None and self.simulated

    # In words

    @property
    def guarantee(self) -> Words:
        """The statement in words without the remark on simulations, as a plan shows it."""
        return [*_proved_sentences(self), *_further_sentences(self), *_paper_claim_sentence(self)]

    @property
    def words(self) -> Words:
        """The whole statement in words, for people."""
        if not self.simulated or math.isinf(self.epsilon):
            return self.guarantee
        return [
            *self.guarantee,
            ("Simulation, not a release", ": whoever knows the seed can remove the noise."),
        ]

    @property
    def text(self) -> str:
        return "\n".join(head + rest for head, rest in self.words)

    def __repr__(self) -> str:
        of = f"epsilon={ceil_text(self.epsilon)}, delta={self.delta:g}, {self.relation}"
        return f"{type(self).__name__}({of}, of {self.unit})"

    def _repr_html_(self) -> str:
        return render_for_notebook(words=self.words)

    # In short, where parties are promised different things

    @property
    def protects(self) -> str:
        """Short text: what is protected against whom."""
        if math.isinf(self.epsilon):
            return "nothing"
        if self.unit == UNUSED:
            return self.unit
        return f"{self.unit}, against whoever {self.trust.adversary}"

    @property
    def not_protected(self) -> str:
        """Short text: what is not protected."""
        trusted = ""
        if self.trust.excepted is not None:
            trusted = f"against {self.trust.excepted}"
        but = self.unprotected or "; ".join(filter(None, (trusted, self.assumes or self.public)))
        if math.isinf(self.epsilon):
            return f"NO protection: {but}"
        return but

    def comparable_promise(self) -> dict[str, Any]:
        """Return the short form as plain data, for tables that compare methods."""
        plain = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "accountant": self.accountant,
            "relation": self.relation,
            "protects": self.protects,
            "not_protected": self.not_protected,
            "claimed": self.printed_claim,
        }
        if self.caveat is not None:
            plain["caveat"] = self.caveat
        return plain

    # Plain data

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with the words; what does not apply is left out."""
        plain: dict[str, Any] = {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "relation": self.relation,
            "unit": self.unit,
            "accountant": self.accountant,
            "accountants": dict(self.accountants),
            "adversary": self.trust.adversary,
            "public": self.public,
            "per_node": list(self.per_node),
            "releases": self.releases,
            "form": self.form,
            "release": not self.simulated,
        }
        if self.trust not in TOLD_BY_ADVERSARY:
            plain["trust"] = self.trust.to_dict()
        caveats: list[str] | None = None
        if self.rests is not None:
            caveats = list(self.rests)
            if self.caveat:
                caveats.insert(0, self.caveat)
        demonstration = None
        if self.demonstration:
            demonstration = DEMONSTRATION
        more = {
            "printed_claim": self.printed_claim,
            "assumes": self.assumes,
            "caveat": self.caveat,
            "unprotected": self.unprotected,
            "says": self.text,
            "site": self.site,
            "made": self.made,
            "early": self.early,
            "demonstration": demonstration,
            "ledger": self.ledger and asdict(self.ledger) | {"budget": list(self.ledger.budget)},
            "alone": self.alone,
            "others": self.others or None,
            "discloses": self.discloses,
            "other_epsilon": self.other_epsilon,
            "caveats": caveats,
        }
        return plain | {key: value for key, value in more.items() if value is not None}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Self:
        """Read what :meth:`to_dict` wrote, from anybody; words are derived anew.

        Parameters
        ----------
        plain : dict
            With infinities as numbers, or as the texts that
            :func:`sottovoce.util.plain.infinities_to_text` writes.

        Returns
        -------
        Statement

        Raises
        ------
        InvalidInput
            If a value is missing or is not what a statement holds.
        """
        return cls(**read_fields(plain))


# Building


def build_statement(facts: Iterable[Fact]) -> Statement:
    """Return the statement that follows from all facts of a run."""
    return Statement(**_settled_fields({}, facts))


def with_further_facts(said: Statement, *facts: Fact) -> Statement:
    """Return the statement with further facts, which are known only after the run is."""
    return Statement(**_settled_fields(vars(said), facts))


def either_list_statement(first: Statement, second: Statement) -> Statement:
    """Return the statement about rows that are each read by one of two lists of releases.

    Which list reads a row is public.  A row costs what the releases that read it cost, so at most
    the dearer of the two (parallel composition over disjoint rows; ``docs/privacy/answers.md``,
    "Between sites").  `releases` are the dearer's.
    """
    dearer = max(first, second, key=lambda said: said.epsilon)
    nodes = zip(first.per_node, second.per_node, strict=True)
    alone = None
    if first.alone is not None and second.alone is not None:
        alone = max(first.alone, second.alone)
    return replace(
        dearer,
        delta=max(first.delta, second.delta),
        per_node=tuple(max(pair) for pair in nodes),
        others=first.planned_releases + second.planned_releases - dearer.releases,
        public=f"{first.public}, which rows are held out",
        alone=alone,
        caveat=caveat_text((first.caveat, second.caveat)),
        discloses=first.discloses or second.discloses,
    )


def _settled_fields(known: dict[str, Any], facts: Iterable[Fact]) -> dict[str, Any]:
    """Return the fields of a statement from those known before and further facts.

    The reason why nothing is proved is dropped where epsilon is finite, and the assumption of a
    paper's claim where there is none.
    """
    settled = dict(known)
    for fact in facts:
        settled |= fact.settled_fields(settled)
    if math.isfinite(settled["epsilon"]):
        settled["unprotected"] = None
    if settled.get("printed_claim") is None:
        settled["assumes"] = None
    return settled


# Words


def _proved_sentences(said: Statement) -> Words:
    """Return what is proved of the rows, and differential privacy itself in one sentence."""
    if said.unit == UNUSED:
        return [(f"epsilon = {ceil_text(said.epsilon)}", ": none of these rows is used.")]
    if math.isinf(said.epsilon):
        reason = "nothing can be proved for this form"
        if said.form == "corrected":
            reason = "the run drew no noise"
        return [("No privacy guarantee", f": {said.unprotected or reason} (epsilon = inf).")]
    delta = f"delta = {float(said.delta)!r}"
    if said.delta == 0:
        delta = "delta = 0 (pure)"
    subject, other, place = _compared_data(said)
    limit = (
        f"This limits how well the adversary described below can tell data with {subject} from "
        f"data with {other} in {place}; the larger epsilon and delta, the weaker the limit."
    )
    return [
        (
            f"epsilon = {ceil_text(said.epsilon)}",
            f", {delta}, proved for {said.unit} ({said.relation}).",
        ),
        ("", limit),
        ("", f"{_protection_sentence(said)}: {_definition_sentence(said)}."),
        ("Accountant", f": {_accountant_text(said)}."),
    ]


def _accountant_text(said: Statement) -> str:
    """Return the notion that proves epsilon, for which releases, and epsilon by the others."""
    notion = _NAMES.get(said.accountant, said.accountant)
    more = ""
    if said.others:
        more = f" and {said.others} of other rows"
    releases = "1 release" if said.releases == 1 else f"{said.releases} releases"
    return f"{notion}, for {releases} a site{more}{_by_other_notions(said)}"


def _by_other_notions(said: Statement) -> str:
    """Return epsilon by the other notions that prove one, in brackets."""
    others = [
        (name, epsilon)
        for name, epsilon in dict(said.accountants).items()
        if name != said.accountant
    ]
    finite = [
        f"by {_NAMES.get(name, name)} {ceil_text(epsilon)}"
        for name, epsilon in others
        if math.isfinite(epsilon)
    ]
    if not finite:
        return ""
    return f" ({', '.join(finite)})"


def _protection_sentence(said: Statement) -> str:
    """Return who is protected against whom, without the definition that follows it."""
    but = ""
    if said.trust.excepted:
        but = f", but not against {said.trust.excepted}"
    return f"Protects {said.unit} ({said.relation}) against whoever {said.trust.adversary}{but}"


def _compared_data(said: Statement) -> tuple[str, str, str]:
    """Return, in words, what is protected, what stands in its place instead, and that place."""
    if said.unit.startswith(PERSON):
        subject, place = "the person", "their place"
        replacement, removal = "another", "nobody"
    elif said.unit.startswith("one row at each"):
        subject, place = "these rows", "their place"
        replacement, removal = "others", "empty ones"
    else:
        subject, place = "the row", "its place"
        replacement, removal = "another", "an empty one"
    if said.relation == "replace-one":
        return subject, replacement, place
    return subject, removal, place


def _definition_sentence(said: Statement) -> str:
    """Return differential privacy itself in words: a bound on every set's probability."""
    subject, other, place = _compared_data(said)
    # Replacing is its own inverse; adding and removing are two directions.
    back = ""
    if said.relation != "replace-one":
        back = ", and the other way round"
    plus = ""
    if said.delta != 0:
        plus = f", plus {float(said.delta)!r}"
    return (
        f"whatever set of outcomes one looks at, its probability with {subject} is at most "
        f"{factor_text(said.epsilon)} times its probability with {other} in {place}{plus}{back}"
    )


def _further_sentences(said: Statement) -> Words:
    """Return what else was proved or released, what is not covered, and what all of it rests on."""
    words: Words = []
    if said.other_epsilon is not None and math.isfinite(said.other_epsilon):
        words.append(("", f"{_other_relation(said)} epsilon = {ceil_text(said.other_epsilon)}."))
    if said.alone is not None and math.isfinite(said.epsilon):
        left = f"epsilon = {ceil_text(said.alone)}"
        if math.isinf(said.alone):
            left = "nothing is proved"
        words.append(("If all other sites collude", f": {left}."))
    if said.discloses is not None:
        words.append(("Released too", f": {said.discloses}."))
    if said.early is not None:
        words.append(("Ended early", f": {said.early}."))
    if said.caveat is not None:
        words.append(("Not covered", f": {said.caveat}."))
    return words + [("Rests on", f": {one}.") for one in said.rests or ()]


def _other_relation(said: Statement) -> str:
    """Return the other relation in words."""
    person = said.unit.startswith(PERSON)
    if said.relation == "replace-one":
        if person:
            return (
                "Compared with nobody in their place (zero-out, the person added or removed), as "
                "most others state it:"
            )
        return (
            "Compared with an empty row in its place (zero-out, the row added or removed), as most "
            "others state it:"
        )
    if person:
        return "Compared with any other person in their place (replace-one):"
    return "Compared with any other row in its place (replace-one):"


def _paper_claim_sentence(said: Statement) -> Words:
    """Return what a paper claims, and whether that holds."""
    if said.printed_claim is None:
        return []
    verdict = "holds: it is not below the epsilon that is proved"
    if said.printed_claim < said.epsilon * (1 - 1e-9):  # but for rounding
        verdict = "is not proved"
    assumed = ""
    if said.assumes is not None:
        assumed = f" Assumes {said.assumes}."
    return [
        (
            "As printed",
            f": the paper claims {ceil_text(said.printed_claim)}, which {verdict}.{assumed}",
        )
    ]
