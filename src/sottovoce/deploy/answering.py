"""Inference and evaluation between sites: the recipes of a plan, run at a site or replayed at the hub.

A site asks its own row guard; the hub reads what the sites sent.  Both run the engine and recipes of a simulation on
the same numbers, so their results agree to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..answers.assumed import Assumed
from ..data.move import Move
from ..data.rows import Rows
from ..errors import AttemptLost, NetClosed
from ..ledger.life import share_of_life
from ..network.net import Net
from ..privacy.noise import KeyedNoise, Noise
from ..problem.facts import Among, Facts
from ..queries import Query, Sum
from ..runs import engine
from ..runs.centre import Centring
from ..runs.engine import FEW, FINISHED, NEIGHBOUR, Outcome, Place
from ..runs.pricing import release_costs
from ..runs.row_guard import Asked, Book, RowGuard
from ..util.plain import digest_of
from ..util.typing import Any, Array, IntArray
from .asks import Lists, SiteTable
from .plan import Plan
from .stages import Stage

if TYPE_CHECKING:
    from ..answers.inference import Estimates
    from ..answers.metrics import Quality

LOST = "a site was lost amid the evaluation: it was charged as far as it came, and was not opened"


@dataclass(frozen=True)
class Found:
    """The results of a plan's recipes, computed from opened numbers only: the same at every site and at the hub."""

    estimates: Estimates | None = None
    quality: dict[str, Quality] | None = None
    notes: tuple[str, ...] = ()

    @property
    def model(self) -> Array:
        """Model of an inference, in encoded columns."""
        from ..answers.inference import model_of

        assert self.estimates is not None
        return model_of(self.estimates)[0]


class Asker:
    """Runs the recipes of a plan in order.

    Parameters
    ----------
    curate : callable ``(facts, stage)``
        Makes the row guard of a stage, or the hub's :class:`Reader`.
    node : int
        The node whose view of the facts is taken; all views give the same results.
    observe : callable ``(k)``, optional
        Called after the k-th exchange of the plan.
    trained : Rows, optional
        At a site: the rows that are not held out.
    """

    def __init__(
        self, plan: Plan, net: Net, curate: Callable[[Facts, Stage], Asked], node: int,
        observe: Callable[[int], None] | None = None, trained: Rows | None = None,
    ) -> None:  # fmt: skip
        self.plan, self._net, self._curate, self._node = plan, net, curate, node
        self._observe, self.trained = observe, trained
        self.move: Move | None = None  # of the model that is judged

    def _run(self, stage: Stage, **public: Any) -> tuple[Outcome, Any]:
        """Outcome and result of a stage, None if it ended early; `public` are further arguments of its recipe."""
        facts, recipe = stage.facts.node(self._node), stage.recipe
        assert recipe is not None
        method, tell = replace(recipe, **public).at(self._node), self._observe
        place = Place(facts, self._net, self._curate(facts, stage), (), facts.d)
        watch = [] if tell is None else [lambda k, state: tell(stage.first + k)]
        outcome = engine.run(method, place, len(method.items), observers=watch)
        return outcome, method.outcome(outcome.state, facts) if outcome.stopped == FINISHED else None

    def infer(self) -> tuple[Outcome, Found]:
        """Run the inference."""
        outcome, estimates = self._run(self.plan.stages[0])
        return outcome, Found(estimates)

    def judge(self, model: Array, found: Found, move: Move | None = None) -> tuple[Outcome, Found]:
        """Evaluate a site's last model, or without sums the mean of all; if a site is lost, a note says so.

        With the `move` of its training, held-out rows are as short as the rows of the training.
        """
        from ..answers.evaluation import qualities

        stage, asks, self.move = self.plan.stages[-1], self.plan.asks, move
        assert asks is not None
        if stage.shown:
            try:
                model = self._net.whole_sum(model) / len(self.plan.sites)
            except NetClosed:
                return Outcome(None, 0, NEIGHBOUR), found
        judged = digest_of(model) if move is None else digest_of(model, move.digest)
        outcome, cells = self._run(stage, weights=model, judged=judged)
        if outcome.stopped == FEW:
            return outcome, replace(found, notes=(LOST,))
        if outcome.stopped != FINISHED:
            return outcome, found
        return outcome, replace(found, quality=qualities(cells, asks.threshold, _lists(self.plan).levels)[0])


def _lists(plan: Plan) -> Lists:
    assert plan.lists is not None
    return plan.lists


def at_site(
    plan: Plan, name: str, table: SiteTable, net: Net, noise: Noise, book: Book,
    observe: Callable[[int], None] | None = None,
) -> Asker:  # fmt: skip
    """The recipes of a plan at site `name`, with its table and its part of the noise."""
    from ..answers.evaluation import rows_of

    i, naming = plan.index(name), _lists(plan).naming
    assert plan.asks is not None
    trained, others = (table.at(positions) for positions in plan.asks.split(len(table.y)))

    def rows_at(held: bool, move: Move | None = None) -> Rows:
        part = others if held else trained
        raw = part.X if part.columns is None else part.columns
        if held:
            X = part.X if naming is None else naming.encoded(raw, i)
            return rows_of([(X if move is None else move.shortened(X), part.y)])
        return part.rows() if naming is None else naming.rows([(raw, part.y)], i)

    rows = {stage.held: rows_at(stage.held) for stage in plan.stages}
    for stage in plan.stages:
        if stage.recipe is not None:
            rows[stage.held].check(stage.facts.loss)

    def curate(facts: Facts, stage: Stage) -> RowGuard:
        seed, own = stage.prepared.config.seed, noise
        if stage.before and noise.simulated and seed is not None:  # a row guard numbers its releases: each has its key
            own = KeyedNoise(seed, [0], [i], lead=())
        known = rows[stage.held] if asker.move is None else rows_at(stage.held, asker.move)
        return RowGuard(known, facts, own, book)

    asker = Asker(plan, net, curate, i, observe, rows[False])
    return asker


class ReadNet(Net):
    """Replays at the hub what the sites sent.

    Parameters
    ----------
    attempts : sequence of (Among, array or None)
        With sums: the sites of every attempt and the opened sum, if it was.
    sent : sequence of list of array
        Without sums: what every site sent in every exchange, in the order of the nodes.
    """

    def __init__(
        self, attempts: Sequence[tuple[Among, IntArray | None]] = (), sent: Sequence[Sequence[Array]] = ()
    ) -> None:  # fmt: skip
        self._attempts, self._sent, self._next = attempts, sent, 0
        self.degree = np.zeros(1)

    def among(self, facts: Facts) -> Among:
        return self._attempts[self._next][0]

    def total(self, sealed: IntArray) -> IntArray:
        self._next += 1
        total = self._attempts[self._next - 1][1]
        if total is None:
            raise AttemptLost("a share is missing")
        return total

    def everyones(self, x: Array) -> Array:
        self._next += 1
        return np.stack(self._sent[self._next - 1])

    def neighbour_sum(self, x: Array) -> Array:
        raise TypeError("a hub reads answers only")

    def seal(self, share: IntArray) -> IntArray:
        raise TypeError("a hub has no shares")


@dataclass
class Reader:
    """The hub's stand-in for a row guard: it has no rows, and reads what was opened."""

    facts: Facts
    centring: Centring | None = None

    def centre(self, mean: Array) -> Move:
        """The map by which the sites move their rows."""
        assert self.centring is not None
        return self.centring.map(mean)

    def ask(self, query: Query) -> Array:
        """Zeros for a site's own answer, which the net has."""
        return query.blank(self.facts)

    def ask_sum(self, query: Sum, net: Net) -> Array:
        """The value of an opened sum."""
        among = net.among(self.facts)
        return query.opened(net.total(np.zeros(1, dtype=np.int64)), self.facts, among)


def moved(plan: Plan, net: ReadNet) -> Move | None:
    """The map by which the sites of a plan move their rows, from what they sent in its first exchange."""
    facts = plan.facts.node(0)
    reader = Reader(facts, plan.centre)
    return engine.centred(Place(facts, net, reader, (), plan.d), reader, plan.facts)[0].move


def at_hub(plan: Plan, net: ReadNet) -> Asker:
    """The recipes of a plan at its hub."""
    return Asker(plan, net, lambda facts, _: Reader(facts), 0)


def ahead(
    plan: Plan, releases: Sequence[dict[str, Any]], life: float | None = None, assumed: Assumed | None = None
) -> dict[str, Any]:
    """The cost of a plan with recipes, under the keys of :func:`sottovoce.runs.prepare.outline`; empty for other plans.

    `releases` are those of the training, `life` is the lifetime budget of a ledger, and `assumed` is what a forecast of
    coefficients takes the rows for.
    """
    asks = plan.asks
    if asks is None:
        return {}
    more = list(releases)
    for stage in plan.stages:
        if stage.recipe is None:
            continue
        costs = release_costs(stage.prepared, stage.planned())
        for item, cost in zip(stage.recipe.items, costs, strict=True):
            more.append({"event": cost["event"], "asks": item.name} | cost)
    plain: dict[str, Any] = {
        "method": "inference" if plan.infers else plan.config.method, "graph": plan.config.graph,
        "rounds": plan.attempts, "n": [site.rows for site in plan.sites], "features": plan.last_width,
        "privacy": plan.statement.to_dict(), "releases": more, "config": plan.config.to_dict(), "asks": asks.to_dict(),
        "held": [asks.held(site.rows) for site in plan.sites], "parts": [said.to_dict() for said in plan.statements],
        "life": share_of_life(plan.planned(), plan.config.delta, life),
    }  # fmt: skip
    return plain | ({"algorithm": {}, "forecast": _forecast(plan, assumed or Assumed())} if plan.infers else {})


def _forecast(plan: Plan, assumed: Assumed) -> dict[str, Any]:
    """What the table will be worth (:func:`sottovoce.answers.forecast.forecast`); empty without noise."""
    from ..answers.forecast import LogOdds, forecast_of

    stage, naming = plan.stages[0], _lists(plan).naming
    if naming is None or stage.recipe is None:
        return {}
    return forecast_of(LogOdds(naming, assumed.positives), stage.prepared, assumed)


def record(plan: Plan, found: Found) -> dict[str, Any]:
    """The results as plain data, under the keys of a simulation's report."""
    from ..answers.terms import outcome

    lists, asks, statements = _lists(plan), plan.asks, plan.statements
    assert asks is not None
    held = [asks.held(site.rows) for site in plan.sites]
    asked = [[] if stage.recipe is None else stage.recipe.asked for stage in plan.stages]
    best = None if found.quality is None else found.quality[""]
    plain: dict[str, Any] = {
        "method": "inference" if plan.infers else plan.config.method, "data": plan.run, "nodes": len(plan.sites),
        "n_train": plan.facts.n[:, 0].astype(int).tolist(), "n_test": sum(held), "features": plan.last_width,
        "sites": list(plan.names), "label": outcome(plan.encoding), "asked": asked[0],
        "auc": None if best is None else best.auc.value, "brier": None if best is None else best.brier.value,
        "evaluation": None, "privacy": statements[0].to_dict(), "notes": list(found.notes),
        "config": plan.config.to_dict(),
    }  # fmt: skip
    if found.estimates is not None:
        assert lists.fit is not None
        read = lists.fit.read(found.estimates, plan.config.delta)
        plain |= read.plain | {"forecast": {}}  # after a run its own table tells what it needs
    if found.quality is not None and best is not None:
        plain["evaluation"] = {
            **best.to_dict(), "privacy": statements[-1].to_dict(), "asked": asked[-1],
            "by": {name: one.to_dict() for name, one in found.quality.items() if name},
        }  # fmt: skip
    return plain


def document(plan: Plan, found: Found) -> dict[str, Any]:
    """The results as part of a file: ``record``, and after an inference the ``answers`` for ``sottovoce predict``."""
    plain = record(plan, found)
    if found.estimates is None:
        return {"record": plain}
    fit = _lists(plan).fit
    assert fit is not None
    whole = fit.layout.saved(found.model, plan.encoding, plain).to_dict()
    return {"record": whole.pop("record"), "answers": whole}
