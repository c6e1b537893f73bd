"""Answers between sites: the desks of a plan at a site or at the hub, and what follows from what was opened.

A site asks through its own curator, a hub reads what the sites sent.  Both run the code that a simulation runs
(:mod:`sottovoce.answers`), on numbers that are the same everywhere; so do their results agree to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..curator import Book, Curator
from ..data.rows import Rows
from ..facts import Facts
from ..ledger.life import share_of_life
from ..ledger.memory import Ledger
from ..net import Net
from ..privacy.noise import KeyedNoise, Noise
from ..queries import Query, Sum
from ..queries.sums import Among
from ..runs.engine import Place
from ..typing import Any, Array, IntArray
from .asks import Lists, SiteTable
from .plan import Plan

if TYPE_CHECKING:
    from ..answers.asking import Desk, Terms
    from ..answers.evaluation import Quality
    from ..answers.inference import Estimates

LOST = "a site was lost amid the evaluation: it was charged as far as it came, and was not opened"


@dataclass(frozen=True)
class Found:
    """What a plan's answers are, from what was opened alone: the same at every site and at the hub.

    Attributes
    ----------
    estimates : Estimates, optional
        Of an inference.
    quality : dict of str to Quality, optional
        Of an evaluation.
    notes : tuple of str
    """

    estimates: Estimates | None = None
    quality: dict[str, Quality] | None = None
    notes: tuple[str, ...] = ()

    @property
    def model(self) -> Array:
        """What predicts after an inference, in encoded columns."""
        from ..answers.inference import model_of

        assert self.estimates is not None
        return model_of(self.estimates)[0]


class Desks:
    """The desks of one plan.

    Parameters
    ----------
    plan : Plan
    net : Net
    curate : callable ``(facts, which)``
        Makes what answers queries: a curator of the rows that are trained on (`which` 0) or held out (1), or a reader.
    node : int
        Whose view of the facts is taken; all views give the same answers.
    book : Book
        That is charged; a reader charges nothing.
    simulated : bool
        Whether the noise can be repeated.
    observe : callable ``(k)``, optional
        Called after the k-th exchange of the plan.
    trained : Rows, optional
        At a site, those that are not held out.
    """

    def __init__(
        self, plan: Plan, net: Net, curate: Callable[[Facts, int], Any], node: int, book: Book, simulated: bool,
        observe: Callable[[int], None] | None = None, trained: Rows | None = None,
    ) -> None:  # fmt: skip
        self.plan, self._net, self._curate, self._node = plan, net, curate, node
        self._book, self._simulated, self._observe = book, simulated, observe
        self._lists, self._trained = _lists(plan), trained

    @property
    def trained(self) -> Rows:
        """A site's rows that are not held out."""
        assert self._trained is not None
        return self._trained

    def _desk(self, terms: Terms, which: int, before: int) -> Desk:
        from ..answers.asking import Desk

        facts, tell = terms.facts.node(self._node), self._observe
        place = Place(facts, self._net, self._curate(facts, which), (), facts.d)
        told = None if tell is None else lambda k: tell(before + k)
        return Desk(terms, place, self._book, self._simulated, told)

    def infer(self) -> Estimates:
        """Ask for all of an inference.

        Raises
        ------
        NetClosed, AttemptLost
            If it cannot be finished.
        """
        from ..answers.inference import estimate

        terms, naming = self._lists.inference, self._lists.naming
        assert terms is not None and naming is not None
        return estimate(self._desk(terms, 0, 0), naming)

    def judge(self, model: Array) -> dict[str, Quality]:
        """Ask for all of an evaluation of the model with which a site ended, or of the mean of all of them.

        Raises
        ------
        NetClosed, AttemptLost
            If it cannot be finished.
        """
        from ..answers.evaluation import evaluate

        terms, asks = self._lists.evaluation, self.plan.asks
        assert terms is not None and asks is not None
        if self.plan.shows_models:
            model = self._net.whole_sum(model) / len(self.plan.sites)
        desk = self._desk(terms, 1, self.plan.attempts - len(terms.plan))
        return evaluate(desk, model[None], threshold=asks.threshold, levels=self._lists.levels)[0]


def _lists(plan: Plan) -> Lists:
    assert plan.lists is not None
    return plan.lists


def at_site(
    plan: Plan, name: str, table: SiteTable, net: Net, noise: Noise, book: Book,
    observe: Callable[[int], None] | None = None,
) -> Desks:  # fmt: skip
    """The desks of a plan that asks for answers at one of its sites, with its table and its own part of the noise."""
    from ..answers.evaluation import rows_of

    i, lists = plan.index(name), _lists(plan)
    assert plan.asks is not None
    trained, held = (table.at(positions) for positions in plan.asks.split(len(table.y)))
    rows: list[Rows] = []
    for which, (terms, part) in enumerate(((lists.inference, trained), (lists.evaluation, held))):
        naming = lists.naming
        raw = part.X if part.columns is None else part.columns
        if which == 0:
            rows.append(part.rows() if naming is None else naming.rows([(raw, part.y)], i))
        elif terms is not None:
            rows.append(rows_of([(part.X if naming is None else naming.encoded(raw, i), part.y)]))
        if terms is not None:
            rows[which].check(terms.facts.loss)

    def curate(facts: Facts, which: int) -> Curator:
        own = noise
        if which == 1 and noise.simulated:  # of another key than the training's, as in a simulation
            assert lists.evaluation is not None and lists.evaluation.config.seed is not None
            own = KeyedNoise(lists.evaluation.config.seed, [0], [i], lead=())
        return Curator(rows[which], facts, own, book)

    return Desks(plan, net, curate, i, book, noise.simulated, observe, rows[0])


class ReadNet(Net):
    """What the sites of a run have sent, read in order.

    Parameters
    ----------
    attempts : sequence of (Among, array or None)
        Of sums: the sites of every attempt from the first answer on, and the opened sum.
    sent : sequence of list of array
        Without sums: what every site sent in every exchange from there on, in the order of the nodes.
    """

    def __init__(
        self, attempts: Sequence[tuple[Among, IntArray]] = (), sent: Sequence[Sequence[Array]] = ()
    ) -> None:  # fmt: skip
        self._attempts, self._sent, self._next = attempts, sent, 0
        self.degree = np.zeros(1)

    def among(self, facts: Facts) -> Among:
        """See :meth:`sottovoce.net.Net.among`."""
        return self._attempts[self._next][0]

    def total(self, sealed: IntArray) -> IntArray:
        """The opened sum; see :meth:`sottovoce.net.Net.total`."""
        self._next += 1
        return self._attempts[self._next - 1][1]

    def whole_sum(self, x: Array) -> Array:
        """See :meth:`sottovoce.net.Net.whole_sum`."""
        total = np.zeros_like(x)
        for one in self._sent[self._next]:
            total = total + one
        self._next += 1
        return total

    def neighbour_sum(self, x: Array) -> Array:
        """Nothing is read of a training."""
        raise TypeError("a hub reads answers only")

    def seal(self, share: IntArray) -> IntArray:
        """There is no share at a hub."""
        raise TypeError("a hub has no shares")


@dataclass
class Reader:
    """In a curator's place at the hub: it has no rows, and reads what was opened."""

    facts: Facts

    def ask(self, query: Query | Sum, net: Net) -> Array:
        """What the sum that was opened means; zeros for an own answer, which a hub has not: the net has the sites'."""
        if not isinstance(query, Sum):
            return query.blank(self.facts)
        among = net.among(self.facts)
        return query.opened(net.total(np.zeros(1, dtype=np.int64)), self.facts, among)


def at_hub(plan: Plan, net: ReadNet) -> Desks:
    """The desks of a plan at its hub."""
    return Desks(plan, net, lambda facts, _: Reader(facts), 0, Ledger(), plan.demonstration)


def ahead(plan: Plan, releases: Sequence[dict[str, Any]], life: float | None = None) -> dict[str, Any]:
    """What a plan with answers will cost, under the keys of :func:`sottovoce.runs.prepare.outline`.

    Parameters
    ----------
    plan : Plan
        One that asks for nothing gives nothing.
    releases : sequence of dict
        Of the training.
    life : float, optional
        Lifetime budget of a ledger.
    """
    asks, nodes = plan.asks, len(plan.sites)
    if asks is None:
        return {}
    more = list(releases)
    for terms in plan.asked:
        for item, event in zip(terms.plan, terms.events(), strict=True):
            alone = np.broadcast_to(terms.alone(event), (nodes,)).tolist()
            spread = np.broadcast_to(event.spread(), (nodes,)).tolist()
            more.append({"event": type(event).__name__, "asks": item.name, "epsilon": alone, "spread": spread})
    plain: dict[str, Any] = {
        "method": "inference" if plan.infers else plan.config.method, "graph": plan.config.graph,
        "rounds": plan.attempts, "n": [site.rows for site in plan.sites], "features": plan.last_width,
        "privacy": plan.statement.to_dict(), "releases": more, "config": plan.config.to_dict(), "asks": asks.to_dict(),
        "held": [asks.held(site.rows) for site in plan.sites], "parts": [said.to_dict() for said in plan.statements],
        "life": share_of_life(plan.planned(), plan.config.delta, life),
    }  # fmt: skip
    return plain | ({"algorithm": {}, "forecast": _forecast(plan)} if plan.infers else {})


def _forecast(plan: Plan) -> dict[str, float]:
    """How many rows a table needs, about; empty without noise."""
    from ..answers.inference import forecast

    terms, naming = _lists(plan).inference, _lists(plan).naming
    if terms is None or naming is None or terms.scale is None:
        return {}
    return forecast(
        naming, float(terms.facts.n.sum()), terms.scale, sites=terms.facts.n_nodes, summed=terms.summed,
        colluders=terms.facts.colluders,
    )  # fmt: skip


def _shares(terms: Terms | None) -> list[dict[str, Any]]:
    from ..answers.asking import shares_of

    return shares_of(() if terms is None else ((item.name, item.share) for item in terms.plan))


def record(plan: Plan, found: Found) -> dict[str, Any]:
    """The answers as plain data, under the keys of a simulation's report."""
    from ..answers.naming import outcome

    lists, asks, statements = _lists(plan), plan.asks, plan.statements
    assert asks is not None
    held = [asks.held(site.rows) for site in plan.sites]
    best = None if found.quality is None else found.quality[""]
    plain: dict[str, Any] = {
        "method": "inference" if plan.infers else plan.config.method, "data": plan.run, "nodes": len(plan.sites),
        "n_train": plan.facts.n[:, 0].astype(int).tolist(), "n_test": sum(held), "features": plan.last_width,
        "sites": list(plan.names), "label": outcome(plan.encoding), "asked": _shares(lists.inference),
        "auc": None if best is None else best.auc.value, "brier": None if best is None else best.brier.value,
        "evaluation": None, "privacy": statements[0].to_dict(), "notes": list(found.notes),
        "config": plan.config.to_dict(),
    }  # fmt: skip
    if found.estimates is not None:
        from ..answers.inference import table

        assert lists.naming is not None
        lines = table(found.estimates, lists.naming, delta=plan.config.delta)
        more = {
            "coefficients": lines.to_dict(),
            "strain": lines.strain,
            "needs": lines.needs,
            "weighed": lines.weighed,
            "forecast": _forecast(plan),
        }
        plain |= more
    if found.quality is not None and best is not None:
        plain["evaluation"] = {
            **best.to_dict(), "privacy": statements[-1].to_dict(), "asked": _shares(lists.evaluation),
            "by": {name: one.to_dict() for name, one in found.quality.items() if name},
        }  # fmt: skip
    return plain


def document(plan: Plan, found: Found) -> dict[str, Any]:
    """The answers as part of a file: ``record``, and of an inference ``answers``.

    ``sottovoce predict`` and ``evaluate`` read the latter.
    """
    plain = record(plan, found)
    if found.estimates is None:
        return {"record": plain}
    from ..answers.saved import Answered

    naming, n = _lists(plan).naming, plan.facts.n[:, 0]
    assert naming is not None
    shares = n / n.sum() if naming.sites else np.ones(1)
    whole = Answered(naming, found.model, shares, plain, plan.encoding).to_dict()
    return {"record": whole.pop("record"), "answers": whole}
