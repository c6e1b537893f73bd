"""Asking all sites for bounded sums at public points: under either trust, within one budget, charged before each draw.

A *desk* is opened with the list of all that will be asked and each release's share of the budget; noise is calibrated
to that list before any row is read, and nothing else can be asked.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ..algorithms import REGISTRY
from ..curator import Book, Curator
from ..data.rows import Rows
from ..errors import InvalidInput
from ..facts import Facts
from ..graphs import make_graph
from ..ledger.durable import DurableLedger, Run, rows_digest
from ..ledger.memory import Ledger
from ..losses import Loss
from ..net import DenseNet
from ..plain import digest_of
from ..privacy import accountants
from ..privacy.events import Event, SummedGaussianMechanism
from ..privacy.noise import KeyedNoise, Noise, SystemNoise
from ..privacy.statement import Caveat, Statement, unit_of
from ..queries import Bounded, NoisyBounded, SummedBounded
from ..queries.sums import Among
from ..runs.calibration import closeness, largest_scale
from ..runs.config import RunConfig
from ..runs.engine import Place
from ..runs.prepare import against_all, quorum, trust_of
from ..typing import Any, Array


@dataclass(frozen=True)
class Item:
    """One release of a plan.

    Parameters
    ----------
    name : str
        By which it is asked for.
    what : callable
        From a public point to the statistic.
    share : float
        Of the plan's budget, which is divided as squares of shift over sigma are: shares of a plan add up to 1.
    """

    name: str
    what: Callable[[Array], Bounded]
    share: float


def shares_of(asked: Iterable[tuple[str, float]]) -> list[dict[str, Any]]:
    """Plain data of releases' names and shares of the budget."""
    return [{"release": name, "share": share} for name, share in asked]


def check_terms(config: RunConfig) -> str:
    """The kind of trust under which sums are asked: that of the configuration's method.

    Raises
    ------
    InvalidInput
        If sums cannot be asked on these terms.
    """
    if isinstance(config.epsilon, tuple):
        raise InvalidInput("epsilon", config.epsilon, "answers over all sites have one price", "give one number")
    if config.budgeted and config.delta is None:
        rule = "noise on sums is Gaussian, which has no pure price"
        raise InvalidInput("delta", None, rule, "use delta=1e-5")
    if config.form != "corrected":
        raise InvalidInput("form", config.form, "no paper has a printed form of answers", "leave it out")
    return str(REGISTRY[config.method].trust.kind)


@dataclass(frozen=True)
class Terms:
    """What will be asked and what it costs: public, and known before any row is read.

    Attributes
    ----------
    config : RunConfig
        Budget, relation and trust.
    facts : Facts
        Of all nodes.
    plan : tuple of Item
    scale : float or None
        Shift over sigma of all of it together; None without noise.
    """

    config: RunConfig
    facts: Facts
    plan: tuple[Item, ...]
    scale: float | None

    @classmethod
    def of(
        cls, config: RunConfig, n: Array, d: int, loss: Loss, plan: Sequence[Item], scale: float | None = None
    ) -> Self:
        """Check the terms and calibrate the noise, or take over a `scale` that was calibrated before.

        Parameters
        ----------
        config : RunConfig
        n : array (N, 1)
            Rows of every node.
        d : int
            Their entries.
        loss : Loss
        plan : sequence of Item
        scale : float, optional

        Raises
        ------
        InvalidInput
            Also if the scale costs more than the budget.
        """
        check_terms(config)
        N = len(n)
        least, t = quorum(config, N)
        accountant = accountants.make_accountant(config.notion)
        facts = Facts(
            loss, n, d, 1.0, 1.0, N, config.relation, pure=accountant.name == "pure", participants=least,
            colluders=t, sites_per_row=config.sites_per_row if least else 1,
        )  # fmt: skip
        if not config.sites_per_row <= N:
            raise InvalidInput("sites_per_row", config.sites_per_row, f"there are {N} sites", "use fewer")
        if scale is None:
            return cls(
                config, facts, tuple(plan), _calibrated(config, facts, plan, least > 0) if config.budgeted else None
            )
        made = cls(config, facts, tuple(plan), scale)
        if not made.price <= float(np.min(config.epsilon)) * (1.0 + 1e-9):
            rule = f"what is asked costs {made.price:.6g} with this noise"
            raise InvalidInput("epsilon", config.epsilon, rule, "calibrate it again")
        return made

    @property
    def summed(self) -> bool:
        """Whether only sums over sites are opened."""
        return self.facts.participants > 0

    @property
    def price(self) -> float:
        """Epsilon of all of it, for the worst row."""
        return _spent(self.config, self.events()).total()

    def alone(self, event: Event) -> Array:
        """Epsilon of one event by itself."""
        return np.asarray(accountants.make_accountant(self.config.notion).total([event], self.config.delta or 0.0))

    def events(self, node: int | None = None) -> tuple[Event, ...]:
        """All that will be charged, in order: of all nodes, or by one of them."""
        facts = self.facts if node is None else self.facts.node(node)
        return tuple(_event(facts, item, self.scale, self.summed) for item in self.plan)

    def widths(self) -> tuple[int, ...]:
        """Numbers in each answer."""
        return tuple(item.what(np.zeros(self.facts.d)).width(self.facts) for item in self.plan)

    def spread(self, item: Item, among: Among | None = None) -> float:
        """Standard deviation of the noise on each entry of an answer.

        Parameters
        ----------
        item : Item
        among : Among, optional
            Of a sum: its sites; None for all.
        """
        if self.scale is None:
            return 0.0
        if among is not None and among.sites < self.facts.n_nodes:
            own = self.facts.node(0)
            query = SummedBounded.of(item.what(np.zeros(own.d)), _alpha(own, self.scale, item), item.name)
            return float(query.total_spread(own, among).ravel()[0])
        event = _event(self.facts, item, self.scale, self.summed)
        if isinstance(event, SummedGaussianMechanism):
            return float(event.spread()[0])
        weights = self.facts.n[:, 0] / np.sum(self.facts.n)
        return float(np.sqrt(np.sum((weights * event.spread()) ** 2)))

    def statement(self, events: Sequence[Event], *, simulated: bool, caveat: Caveat = None) -> Statement:
        """What is proved of releases with these events."""
        config, N = self.config, self.facts.n_nodes
        ledger = _spent(config, events)
        said = Statement.prove(
            ledger, trust_of(config, N), relation=config.relation, nodes=N, simulated=simulated,
            unit=unit_of(config.sites_per_row), caveat=caveat,
        )  # fmt: skip
        return said.if_others_collude(against_all(ledger, N)) if self.summed else said


def _spent(config: RunConfig, events: Sequence[Event]) -> Ledger:
    ledger = Ledger(accountants.make_accountant(config.notion), math.inf, config.delta or 0.0, config.sites_per_row)
    for event in events:
        ledger.charge(event)
    return ledger


@dataclass
class Desk:
    """Where bounded sums are asked for.  Points are (R, d), and answers (R, entries), for R replicates; 1 at a site.

    Parameters
    ----------
    terms : Terms
    place : Place
        A simulation of all nodes, or one site.
    book : Book
    simulated : bool
        Whether the noise can be repeated.
    observe : callable ``(k)``, optional
        Called after the k-th answer.
    """

    terms: Terms
    place: Place
    book: Book
    simulated: bool
    observe: Callable[[int], None] | None = None
    _asked: int = 0
    _among: Among | None = None

    @property
    def config(self) -> RunConfig:
        """Of the terms."""
        return self.terms.config

    @property
    def facts(self) -> Facts:
        """As the place sees them."""
        return self.place.facts

    @property
    def summed(self) -> bool:
        """Whether only sums over sites are opened."""
        return self.terms.summed

    @property
    def scale(self) -> float | None:
        """Shift over sigma of the whole plan; None without noise."""
        return self.terms.scale

    @property
    def plan(self) -> tuple[Item, ...]:
        """All that will be asked, in order."""
        return self.terms.plan

    @property
    def replicates(self) -> int:
        """R."""
        return self.place.lead[0] if self.place.lead else 1

    @property
    def rows(self) -> float:
        """Rows behind the last answer: those of all sites, or of a sum's."""
        assert self.facts.rows is not None
        return float(self.facts.rows if self._among is None else self._among.rows)

    @classmethod
    def open(
        cls, config: RunConfig, rows: Rows, loss: Loss, plan: Sequence[Item], *, ledger: DurableLedger | None = None,
        run_name: str | None = None, identity: bytes = b"", digest: bytes | None = None, label: str | None = None,
    ) -> Self:  # fmt: skip
        """Calibrate the noise of a plan and prepare its ledger; nothing is spent yet.

        Parameters
        ----------
        config : RunConfig
            Budget, relation, seed and replicates, and the trust of its method: a curator holds the rows of all.
        rows : Rows
        loss : Loss
        plan : sequence of Item
            All that will be asked, in order.
        ledger : DurableLedger, optional
            In which the plan is reserved under `run_name`, and every release is stored.
        identity : bytes
            With a ledger on disk: :func:`sottovoce.plain.digest_of` everything public, but for the parameters here, on
            which the releases depend, such as the model whose scores stand in the rows.  A run of that ledger is never
            read under another identity.
        digest : bytes, optional
            Of the rows that the ledger belongs to; None for these.
        label : str, optional
            Names the data.  A run that an older version knew by this label, and by nothing of what `identity` holds,
            goes on; leave it out where such a run may be another one.

        Raises
        ------
        InvalidInput
        """
        if check_terms(config) == "curator":
            rows = rows.pooled()
        rows.check(loss)
        terms = Terms.of(config, rows.n, rows.d, loss, plan)
        N, R, facts = len(rows.n), config.replicates, terms.facts
        noise: Noise = SystemNoise((R, N)) if config.seed is None else KeyedNoise(config.seed, range(R), range(N))
        book: Book = Ledger(
            accountants.make_accountant(config.notion), config.epsilon, config.delta or 0.0, config.sites_per_row
        )
        if ledger is not None:
            whose = rows_digest(*rows.arrays()) if digest is None else digest
            book = _reserved(terms, whose, ledger, run_name, identity, label, noise.simulated)
        net = DenseNet(make_graph("complete", N))
        place = Place(facts, net, Curator(rows, facts, noise, book), (R, N), rows.d)
        return cls(terms, place, book, noise.simulated)

    def ask(self, name: str, at: Array, what: Bounded | None = None) -> Array:
        """The next release of the plan, at public points (R, d): the mean over the rows of all sites, (R, entries).

        Parameters
        ----------
        name : str
            Of the next item.
        at : array (R, d)
        what : Bounded, optional
            In place of the item's statistic: the same with public parameters that leave its event as it is.
        """
        item = self.plan[self._asked]
        if item.name != name:
            raise ValueError(f"the plan's next release is {item.name}, not {name}")
        self._asked += 1
        lead = self.place.lead
        point = np.array(np.broadcast_to(at[:, None, :], (*lead, at.shape[-1]))) if lead else np.array(at[0])
        statistic = item.what(point) if what is None else replace(what, at=point)
        alpha = _alpha(self.facts, self.scale, item)
        if self.summed:
            self._among = self.place.net.among(self.facts)  # agreed on now, and asked again by the curator
            found = self.place.ask_sum(SummedBounded.of(statistic, alpha, item.name))
        else:
            own = self.place.ask(NoisyBounded.of(statistic, alpha, item.name))
            found = self.place.net.whole_sum(own * (self.facts.n / self.rows))
        if self.observe is not None:
            self.observe(self._asked)
        return found[:, 0] if lead else found[None]

    def spread(self, name: str) -> float:
        """Standard deviation of the noise on each entry of an answer, for the sites of the last sum."""
        return self.terms.spread(next(item for item in self.plan if item.name == name), self._among)

    def statement(self, *, caveat: Caveat = None) -> Statement:
        """What was proved of all that has been asked."""
        return self.terms.statement(self.book.rows, simulated=self.simulated, caveat=caveat)

    def close(self) -> None:
        """Tell a ledger on disk that all of the plan has been asked."""
        if isinstance(self.book, Run):
            self.book.close()


def _alpha(facts: Facts, scale: float | None, item: Item) -> Array | None:
    return None if scale is None else np.full(facts.n.shape, scale * math.sqrt(item.share))


def _event(facts: Facts, item: Item, scale: float | None, summed: bool) -> Event:
    alpha, what = _alpha(facts, scale, item), item.what(np.zeros((*facts.n.shape[:-1], facts.d)))
    return (SummedBounded if summed else NoisyBounded).of(what, alpha, item.name).event(facts)


_FOUND: dict[str, float] = {}
_REMEMBERED = 256


def _calibrated(config: RunConfig, facts: Facts, plan: Sequence[Item], summed: bool) -> float:
    """The largest shift over sigma at which the whole plan costs each row no more than its budget."""
    accountant, delta, m = accountants.make_accountant(config.notion), config.delta or 0.0, config.sites_per_row

    def events(scale: float) -> list[Event]:
        return [_event(facts, item, scale, summed) for item in plan]

    def price(scale: Array) -> Array:
        ledger = Ledger(accountant, math.inf, delta, m)
        for event in events(float(scale.ravel()[0])):
            ledger.charge(event)
        return np.array([ledger.total()])

    asked = [event.to_dict() for event in events(1.0)]
    key = json.dumps([asked, config.notion, config.epsilon, delta, m])
    if key not in _FOUND:
        found = largest_scale(price, np.array([float(np.min(config.epsilon))]), closeness(accountant))
        if not found.met.all():
            rule = "no noise is large enough for all that is asked"
            raise InvalidInput("epsilon", config.epsilon, rule, "raise epsilon")
        if len(_FOUND) >= _REMEMBERED:
            _FOUND.clear()
        _FOUND[key] = float(found.value[0])
    return _FOUND[key]


def _reserved(
    terms: Terms, digest: bytes, ledger: DurableLedger, name: str | None, identity: bytes, label: str | None,
    simulated: bool,
) -> Run:  # fmt: skip
    """The plan's reservation in a ledger on disk, made now or by an interrupted run."""
    if not identity:
        raise TypeError("a run in a ledger on disk needs the identity of what is asked")
    config, facts = terms.config, terms.facts
    for field, wrong, rule, remedy in (
        ("replicates", config.replicates != 1, "a ledger counts one release of each", "use replicates=1"),
        ("sites_per_row", config.sites_per_row > 1, "a ledger on disk counts each node's rows alone", "use 1"),
        ("nodes", len(ledger.epsilon) != facts.n_nodes, "the ledger has another number of nodes", "use its own"),
        ("ledger", ledger.demonstration and not simulated, "was made for a demonstration", "use that of these rows"),
        ("delta", ledger.accountant.name == "pure", "the ledger counts pure epsilon", "use a ledger with a delta"),
    ):
        if wrong:
            raise InvalidInput(field, None, rule, remedy)
    ledger.bind(digest)
    asked = [(item.name, item.share, item.what(np.zeros(facts.d))) for item in terms.plan]
    key = digest_of(config.to_dict(), facts.to_dict(), identity, label, asked).hex()
    before = () if label is None else (_key_before(terms, label),)
    run = name or next((known for known in before if known in ledger.runs), key)
    return ledger.resume(run, key, *before) if run in ledger.runs else ledger.reserve(run, key, terms.events())


def _key_before(terms: Terms, label: str) -> str:
    """By which older versions knew a run: with the names of what is asked, but without what else decides it."""
    names = [item.name for item in terms.plan]
    text = json.dumps([terms.config.to_dict(), terms.facts.to_dict(), label, names], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
