"""Inference and evaluation between sites, run at a site or replayed at the hub.

A plan may ask for coefficients with intervals (*inference*) and for quality on held-out rows
(*evaluation*).  Each is a *recipe*: a fixed list of queries with their noise, and a function of the
answers.  A plan runs as consecutive *stages* (:mod:`sottovoce.deploy.stages`): training or
inference, then the evaluation.

At a site a :class:`sottovoce.runs.row_guard.RowGuard` answers the queries from the rows, after
charging the ledger; :func:`make_site_asker` sets it up for
:class:`sottovoce.deploy.session.SiteSession`.  The hub has no rows: :class:`ReadNet` and
:class:`Reader` replay what the sites sent, for :class:`sottovoce.deploy.results.Results`.  Both
sides run the engine and recipes of a simulation on the same numbers, so their results agree to the
last bit.

A *move* is the public affine map by which a training centred its rows
(:mod:`sottovoce.data.move`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..answers.assumed import Assumed
from ..data.move import Move
from ..data.rows import Rows
from ..errors import AttemptLost, NetClosed
from ..ledger.life import share_of_lifetime_budget
from ..network.net import Net
from ..privacy.noise import KeyedNoise, Noise
from ..problem.facts import Among, Facts
from ..queries import Query, Sum
from ..runs import engine
from ..runs.centre import Centring
from ..runs.engine import FEW, FINISHED, NEIGHBOUR, Observer, Outcome, Place
from ..runs.pricing import release_costs
from ..runs.row_guard import Asked, Book, RowGuard
from ..util.plain import digest_public_values
from ..util.typing import Any, Array, IntArray
from .asks import SiteTable
from .plan import Plan, schema_from_plain
from .recipes import Recipes
from .stages import Stage

if TYPE_CHECKING:
    from ..answers.fits import LogOdds
    from ..answers.inference import Estimates
    from ..answers.metrics import Quality

LOST = "a site was lost during the evaluation, which was charged up to then and not opened"
"""Note of results whose evaluation was cut off."""


@dataclass(frozen=True)
class Found:
    """The results of a plan's recipes, computed from opened numbers only.

    They are the same at every site and at the hub.

    Parameters
    ----------
    estimates : Estimates, optional
        Coefficients with intervals, if there was an inference and it came to its end.
    quality : dict of Quality, optional
        AUC, Brier score and so on, if an evaluation came to its end: of all held-out rows under the
        key ``""``, and of the rows of each level of the plan's column `by` under the level's name.
    notes : tuple of str
        Sentences for the report, such as :data:`LOST`.
    """

    estimates: Estimates | None = None
    quality: dict[str, Quality] | None = None
    notes: tuple[str, ...] = ()

    @property
    def model(self) -> Array:
        """The coefficients of an inference as a model, (d,), in the columns of its encoding."""
        from ..answers.inference import models_for_predictions

        assert self.estimates is not None
        return models_for_predictions(self.estimates)[0]


class Asker:
    """Runs the recipes of a plan: its inference, its evaluation, or both.

    Parameters
    ----------
    plan : Plan
    net : Net
        The site's network, or at the hub a :class:`ReadNet`.
    guard_of : callable ``(facts, stage, move)``
        Makes what answers the queries of a stage: the row guard of a site, or the hub's
        :class:`Reader`.  `move` is the map by which the evaluated model's training centred its
        rows, or None.
    node : int
        The node whose view of the facts is taken; all views give the same results.
    observe : callable ``(k)``, optional
        Called after the k-th exchange of the plan.
    trained : Rows, optional
        At a site: the rows that are not held out, on which a training runs.
    """

    def __init__(
        self,
        plan: Plan,
        net: Net,
        guard_of: Callable[[Facts, Stage, Move | None], Asked],
        node: int,
        observe: Callable[[int], None] | None = None,
        trained: Rows | None = None,
    ) -> None:
        self.plan = plan
        self._net = net
        self._guard_of = guard_of
        self._node = node
        self._observe = observe
        self.trained = trained

    def _run_stage(
        self, stage: Stage, move: Move | None = None, **public: Any
    ) -> tuple[Outcome, Any]:
        """Run the recipe of a stage; returns how it ended, and its result (None for an early end).

        `move` is as for `guard_of`; `public` replaces fields of the recipe that are known only now,
        such as the model to evaluate.
        """
        facts = stage.facts.facts_of_node(self._node)
        recipe = stage.recipe
        assert recipe is not None
        method = replace(recipe, **public).method_of_node(self._node)
        place = Place(facts, self._net, self._guard_of(facts, stage, move), (), facts.d)
        observers: list[Observer] = []
        if self._observe is not None:
            observe = self._observe
            observers.append(lambda k, state: observe(stage.first + k))
        outcome = engine.run_rounds(method, place, len(method.items), observers=observers)
        if outcome.stopped != FINISHED:
            return outcome, None
        return outcome, method.outcome(outcome.state, facts)

    def run_inference(self) -> tuple[Outcome, Found]:
        """Run the inference, which is the plan's first stage; returns how it ended, and results."""
        outcome, estimates = self._run_stage(self.plan.stages[0])
        return outcome, Found(estimates)

    def evaluate_model(
        self, model: Array, found: Found, move: Move | None = None
    ) -> tuple[Outcome, Found]:
        """Evaluate a model on the held-out rows; if a site is lost meanwhile, a note says so.

        Parameters
        ----------
        model : array (d,)
            This site's last model.  Without sums the sites' models differ: they send them to each
            other first, and the mean over all sites is evaluated.
        found : Found
            What the plan's inference found; empty after a training.
        move : Move, optional
            The map by which the training centred its rows: held-out rows are clipped to the same
            norm.

        Returns
        -------
        Outcome
            How the evaluation ended.
        Found
            `found` with the quality, or with a note, or as it was if the evaluation ended early.
        """
        from ..answers.evaluation import qualities

        stage, asks = self.plan.stages[-1], self.plan.asks
        assert asks is not None
        if stage.shown:
            try:
                model = self._net.sum_of_all_nodes(model) / len(self.plan.sites)
            except NetClosed:
                return Outcome(None, 0, NEIGHBOUR), found
        # The digest says which model is judged and how its rows are read: the same weights after
        # another centring are another question (docs/privacy/answers.md).
        if move is None:
            judged = digest_public_values(model)
        else:
            judged = digest_public_values(model, move.digest)
        outcome, cells = self._run_stage(stage, move, weights=model, judged=judged)
        if outcome.stopped == FEW:
            return outcome, replace(found, notes=(LOST,))
        if outcome.stopped != FINISHED:
            return outcome, found
        quality, *_ = qualities(cells, asks.threshold, _required_recipes(self.plan).levels)
        return outcome, replace(found, quality=quality)


def _required_recipes(plan: Plan) -> Recipes:
    """Return the priced recipes of a plan that is known to have some."""
    assert plan.recipes is not None
    return plan.recipes


class SiteRows:
    """A site's rows, split and encoded as the stages of a plan read them.

    An inference encodes the table anew, with a reference level for each category; a training and
    its evaluation read the rows as the plan's schema encoded them.

    Parameters
    ----------
    plan : Plan
        With a request for inference or evaluation, which fixes the held-out rows.
    node : int
        The site's position in the plan.
    table : SiteTable
        All of its rows.
    """

    def __init__(self, plan: Plan, node: int, table: SiteTable) -> None:
        assert plan.asks is not None
        self._node = node
        self._naming = _required_recipes(plan).naming
        trained, held_out = plan.asks.split(len(table.y))
        self._trained = table.at(trained)
        self._held_out = table.at(held_out)

    @cached_property
    def training_rows(self) -> Rows:
        """The rows that are not held out."""
        if self._naming is None:
            return self._trained.rows()
        return self._naming.rows_of_sites([(self._trained.raw, self._trained.y)], self._node)

    @cached_property
    def held_out(self) -> Rows:
        """The held-out rows."""
        return self.held_out_rows_after_move(None)

    def held_out_rows_after_move(self, move: Move | None) -> Rows:
        """Return the held-out rows, clipped as the rows of a training that were moved by `move`."""
        from ..answers.evaluation import build_scored_rows

        X = self._held_out.X
        if self._naming is not None:
            X = self._naming.encode_rows(self._held_out.raw, self._node)
        if move is not None:
            X = move.shorten_rows(X)
        return build_scored_rows([(X, self._held_out.y)])

    def of(self, stage: Stage, move: Move | None = None) -> Rows:
        """Return the rows that a stage reads, centred by the `move` of the evaluated model."""
        if not stage.held:
            return self.training_rows
        if move is None:
            return self.held_out
        return self.held_out_rows_after_move(move)


def make_site_asker(
    plan: Plan,
    name: str,
    table: SiteTable,
    net: Net,
    noise: Noise,
    book: Book,
    observe: Callable[[int], None] | None = None,
) -> Asker:
    """Prepare the recipes of a plan at one site.

    Parameters
    ----------
    plan : Plan
    name : str
        The site.
    table : SiteTable
        All of its rows.
    net : Net
        Its network.
    noise : Noise
        Source of this site's noise.
    book : Book
        Charges every release to the site's ledger before it is drawn.
    observe : callable ``(k)``, optional
        Called after the k-th exchange of the plan.

    Returns
    -------
    Asker

    Raises
    ------
    InvalidInput
        If the rows do not fit the loss of a stage.
    """
    node = plan.index(name)
    rows = SiteRows(plan, node, table)
    # Before the first message: rows that a stage cannot read must not end a run that has begun.
    for stage in plan.stages:
        if stage.recipe is not None:
            rows.of(stage).check_loss_fits(stage.facts.loss)

    def guard_of(facts: Facts, stage: Stage, move: Move | None) -> RowGuard:
        return RowGuard(rows.of(stage, move), facts, _noise_of_stage(stage, noise, node), book)

    return Asker(plan, net, guard_of, node, observe, rows.training_rows)


def _noise_of_stage(stage: Stage, noise: Noise, node: int) -> Noise:
    """Return the noise source of a stage that comes after another; `node` is the site's.

    A row guard numbers its releases from 1 in every stage, and repeatable noise is a function of
    seed and number.  So a later stage has a seed of its own, and never repeats earlier noise.
    """
    seed = stage.prepared.config.seed
    if stage.before and noise.simulated and seed is not None:
        return KeyedNoise(seed, [0], [node], lead=())
    return noise


class ReadNet(Net):
    """Replays at the hub what the sites sent, one exchange a call.

    Parameters
    ----------
    attempts : sequence of (Among, array or None)
        With sums: the sites of every attempt, and the sum of their shares modulo ``2^64`` (int64),
        or None if a share was missing.
    sent : sequence of list of array
        Without sums: for every exchange the vectors that the sites sent, in the order of the nodes.
    """

    def __init__(
        self,
        attempts: Sequence[tuple[Among, IntArray | None]] = (),
        sent: Sequence[Sequence[Array]] = (),
    ) -> None:
        self._attempts = attempts
        self._sent = sent
        # index of the exchange to be read next
        self._next = 0
        self.degree = np.zeros(1)

    def among(self, facts: Facts) -> Among:
        """Return the sites of the next attempt; IndexError if the sites sent no more."""
        return self._attempts[self._next][0]

    def total(self, sealed: IntArray) -> IntArray:
        """Return the sum of the next attempt, whatever is handed over as one's own share."""
        self._next += 1
        total = self._attempts[self._next - 1][1]
        if total is None:
            raise AttemptLost("a share is missing")
        return total

    def gather_from_all_nodes(self, x: Array) -> Array:
        """Return what all sites sent in the next exchange, whatever one's own x is."""
        self._next += 1
        return np.stack(self._sent[self._next - 1])

    def neighbour_sum(self, x: Array) -> Array:
        raise TypeError("a hub reads answers only")

    def mask_share(self, share: IntArray) -> IntArray:
        raise TypeError("a hub has no shares")


@dataclass
class Reader:
    """The hub's stand-in for a row guard: it has no rows, and reads what the sites released.

    Parameters
    ----------
    facts : Facts
        Public facts of the stage.
    centring : Centring, optional
        How the plan centres rows; needed to replay their mean.
    """

    facts: Facts
    centring: Centring | None = None

    def move_rows_by_mean(self, mean: Array) -> Move:
        """Return the map by which the sites move their rows."""
        assert self.centring is not None
        return self.centring.map_for_mean(mean)

    def charge_and_answer(self, query: Query) -> Array:
        """Return zeros in place of a site's own answer: :class:`ReadNet` gives all answers."""
        return query.placeholder_answer(self.facts)

    def charge_and_open_sum(self, query: Sum, net: Net) -> Array:
        """Return the mean that a query asks for, from the opened sum in the net."""
        among = net.among(self.facts)
        # The hub has no share of its own: what it hands over is not looked at.
        return query.attempt(self.facts, among).mean_from_total(
            net.total(np.zeros(1, dtype=np.int64))
        )


def replay_row_move(plan: Plan, net: ReadNet) -> Move | None:
    """Return the map by which the sites of a plan centred their rows.

    It follows from the noisy mean of rows, which is the plan's first exchange in `net`.
    """
    facts = plan.facts.facts_of_node(0)
    reader = Reader(facts, plan.centre)
    return engine.release_mean(Place(facts, net, reader, (), plan.d), reader, plan.facts)[0].move


def make_hub_asker(plan: Plan, net: ReadNet) -> Asker:
    """Prepare the replay of a plan's recipes at its hub, from what `net` has of the sites."""
    return Asker(plan, net, lambda facts, *_: Reader(facts), 0)


def outline_recipes(
    plan: Plan,
    releases: Sequence[dict[str, Any]],
    life: float | None = None,
    assumed: Assumed | None = None,
) -> dict[str, Any]:
    """Describe, before a run, the cost of a plan with recipes and the accuracy of its answers.

    Parameters
    ----------
    plan : Plan
    releases : sequence of dict
        Releases of the training with their costs, as plain data.
    life : float, optional
        Lifetime epsilon of a ledger, of which the run's fraction is computed.
    assumed : Assumed, optional
        Assumptions about the rows from which the widths of intervals are forecast.

    Returns
    -------
    dict
        Under the keys of :func:`sottovoce.runs.prepare.outline_run`; empty for a plan without
        recipes.
    """
    asks, privacy = plan.asks, plan.planned_privacy
    if asks is None:
        return {}
    plain: dict[str, Any] = {
        "method": _method_name(plan),
        "graph": plan.config.graph,
        "rounds": plan.exchange_table.attempts,
        "n": [site.rows for site in plan.sites],
        "features": plan.exchange_table.last_model.width,
        "privacy": privacy.statement.to_dict(),
        "releases": [*releases, *_costs_of_recipes(plan)],
        "config": plan.config.to_dict(),
        "asks": asks.to_dict(),
        "held": [asks.held(site.rows) for site in plan.sites],
        "parts": [statement.to_dict() for statement in privacy.statements_by_rows],
        "life": share_of_lifetime_budget(privacy.planned_events(), plan.config.delta, life),
    }
    if plan.is_inference:
        plain |= {"algorithm": {}, "forecast": _forecast_table(plan, assumed or Assumed())}
    return plain


def _method_name(plan: Plan) -> str:
    """Return the method of a plan; ``inference`` if it trains nothing."""
    if plan.is_inference:
        return "inference"
    return plan.config.method


def _costs_of_recipes(plan: Plan) -> list[dict[str, Any]]:
    """Return the cost of every release of the plan's recipes, in order."""
    found = []
    for stage in plan.stages:
        if stage.recipe is None:
            continue
        costs = release_costs(stage.prepared, stage.planned())
        for item, cost in zip(stage.recipe.items, costs, strict=True):
            found.append({"event": cost["event"], "asks": item.name} | cost)
    return found


def _forecast_table(plan: Plan, assumed: Assumed) -> dict[str, Any]:
    """Forecast the interval widths of the coefficients; empty without noise.

    See :func:`sottovoce.answers.forecast.forecast_coefficients`.
    """
    from ..answers.forecast import LogOdds, forecast_prepared_plan

    stage, naming = plan.stages[0], _required_recipes(plan).naming
    if naming is None or stage.recipe is None:
        return {}
    return forecast_prepared_plan(LogOdds(naming, assumed.positives), stage.prepared, assumed)


def results_to_dict(plan: Plan, found: Found) -> dict[str, Any]:
    """Return the results of a run as plain data, under the keys of a simulation's report."""
    from ..answers.terms import label_in_words

    asks = plan.asks
    assert asks is not None
    auc: float | None = None
    brier: float | None = None
    if found.quality is not None:
        auc = found.quality[""].auc.value
        brier = found.quality[""].brier.value
    plain: dict[str, Any] = {
        "method": _method_name(plan),
        "data": plan.run,
        "nodes": len(plan.sites),
        "n_train": plan.facts.n[:, 0].astype(int).tolist(),
        "n_test": sum(asks.held(site.rows) for site in plan.sites),
        "features": plan.exchange_table.last_model.width,
        "sites": list(plan.names),
        "label": label_in_words(schema_from_plain(plan.schema)),
        "asked": _releases_of_stage(plan.stages[0]),
        "auc": auc,
        "brier": brier,
        "evaluation": None,
        "privacy": plan.planned_privacy.statements_by_rows[0].to_dict(),
        "notes": list(found.notes),
        "config": plan.config.to_dict(),
    }
    if found.estimates is not None:
        read = _required_fit(plan).read_outcome(found.estimates, plan.config.delta)
        # after a run its own table tells what the forecast would
        plain |= read.plain | {"forecast": {}}
    if found.quality is not None:
        plain["evaluation"] = _evaluation_to_dict(plan, found.quality)
    return plain


def _releases_of_stage(stage: Stage) -> Any:
    """Return the releases of a stage with their shares of the budget, as plain data.

    Empty for a training.
    """
    if stage.recipe is None:
        return []
    return stage.recipe.releases_with_noise.to_plain_items()


def _required_fit(plan: Plan) -> LogOdds:
    """Return the fit that reads the estimates of an inference."""
    fit = _required_recipes(plan).fit
    assert fit is not None
    return fit


def _evaluation_to_dict(plan: Plan, quality: dict[str, Quality]) -> dict[str, Any]:
    """Return the quality on the held-out rows, of all and by level, as plain data."""
    return {
        **quality[""].to_dict(),
        "privacy": plan.planned_privacy.statements_by_rows[-1].to_dict(),
        "asked": _releases_of_stage(plan.stages[-1]),
        "by": {name: one.to_dict() for name, one in quality.items() if name},
    }


def results_document(plan: Plan, found: Found) -> dict[str, Any]:
    """Return the results for the file of results.

    Under ``record`` what :func:`results_to_dict` gives, and after an inference under ``answers``
    the saved model for ``sottovoce predict``.
    """
    plain = results_to_dict(plan, found)
    if found.estimates is None:
        return {"record": plain}
    whole = (
        _required_fit(plan)
        .layout.to_saved_model(found.model, schema_from_plain(plan.schema), plain)
        .to_dict()
    )
    return {"record": whole.pop("record"), "answers": whole}
