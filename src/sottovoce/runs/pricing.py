"""The privacy loss ("price") of a run, before any row is read.

All that a run will cost is computed here, in four steps, and nothing here reads rows.  The run's
algorithm is run for real, but against a *pricer* in place of the row guard: it notes each query and
answers with placeholders, since privacy loss does not depend on answers.

1. :func:`collect_queries` runs the method itself, against a row guard without data, and returns
   what it asks.
2. :func:`plan_ledger` charges the events of these queries to a ledger: the ledger that the run will
   leave behind.
3. A ledger's totals by an accountant are the prices that :mod:`sottovoce.runs.calibration` brings
   to a target.
4. :class:`Prepared` is the priced run.  :func:`privacy_statement` says what its ledger proves, and
   :func:`cost_report` is the whole price as plain data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from ..algorithms import Algorithm, Recipe
from ..errors import BudgetExceeded, InvalidInput
from ..ledger.life import share_of_lifetime_budget
from ..ledger.memory import Ledger
from ..network.graphs import Graph
from ..network.net import Net
from ..privacy.accountants import Accountant
from ..privacy.events import Event
from ..privacy.statement import Statement, build_statement
from ..privacy.statement_facts import (
    EXACT,
    PUBLIC,
    PUBLIC_OF_PEOPLE,
    Against,
    Caveat,
    Caveats,
    Claim,
    Disclosed,
    Fact,
    Form,
    IfOthersCollude,
    Proved,
    Relation,
    Simulated,
    TakenAsPublic,
    Unit,
)
from ..problem.facts import Facts
from ..problem.trust import Trust
from ..queries import Query, Sum, check_unit
from ..util.plain import canonical_json
from ..util.typing import Any, Array, IntArray
from .centre import DISCLOSED, Centring
from .config import RunConfig
from .engine import FINISHED, Place, run_rounds


@dataclass(frozen=True)
class RunSetting:
    """All that the price of a run depends on, apart from its method.

    Parameters
    ----------
    facts : Facts
        Public facts of all nodes.
    graph : Graph
    rounds : int
    accountant : Accountant
    delta : float
        0 for pure epsilon.
    sites_per_row : int
        At how many sites a person may have a row.
    copies : int
        How many such runs on the same rows are priced together.
    first : Recipe, optional
        A recipe that is asked before the method, at its own noise: the mean of centring.
    """

    facts: Facts
    graph: Graph
    rounds: int
    accountant: Accountant[Any]
    delta: float = 0.0
    sites_per_row: int = 1
    copies: int = 1
    first: Recipe | None = None


@dataclass
class Pricer:
    """A row guard without rows: it notes every query, and answers with placeholders."""

    facts: Facts
    note: Callable[[Query | Sum], None]

    def charge_and_answer(self, query: Query) -> Array:
        return self._note_query(query)

    def charge_and_open_sum(self, query: Sum, net: Net) -> Array:
        return self._note_query(query)

    def _note_query(self, query: Query | Sum) -> Array:
        check_unit(query.proved_of_people(), self.facts)
        self.note(query)
        return query.placeholder_answer(self.facts)


class _Silent(Net):
    """A network whose neighbours send zeros: privacy loss does not depend on messages.

    It refuses messages of a width that separate sites would refuse, once they had paid for them.
    """

    def __init__(self, degree: Array, method: str, d: int) -> None:
        self.degree = degree
        self._method = method
        self._d = d

    def neighbour_sum(self, x: Array) -> Array:
        # In a plan a model has one entry, unless the method makes it from the facts.
        if x.shape[-1] not in (1, self._d):
            rule = f"sends {x.shape[-1]} vectors or numbers in one round; a message is one vector"
            raise InvalidInput(
                "method", self._method, rule, "take a round for each vector, as gradient_tracking"
            )
        return np.zeros_like(x)

    def sum_of_all_nodes(self, x: Array) -> Array:
        return np.zeros_like(x)

    def mask_share(self, share: IntArray) -> IntArray:
        return share

    def total(self, sealed: IntArray) -> IntArray:
        return sealed


class _DryRun(NamedTuple):
    """A run without rows or real messages, which only asks its queries: of all nodes or of one."""

    method: Algorithm[Any]
    first: Recipe | None  # asked before the method
    facts: Facts
    lead: tuple[int, ...]  # leading axes of vectors: (N,), or () for one node
    degree: Array  # numbers of neighbours: (N, 1), or (1,) for one node
    rounds: int

    @classmethod
    def for_all_nodes(cls, method: Algorithm[Any], setting: RunSetting) -> _DryRun:
        """Return the dry run of all nodes."""
        graph = setting.graph
        return cls(
            method, setting.first, setting.facts, (graph.n_nodes,), graph.degree, setting.rounds
        )

    @classmethod
    def for_run(cls, method: Algorithm[Any], setting: RunSetting, node: int | None) -> _DryRun:
        """Return the dry run of one node, or of all.

        Parameters
        ----------
        method : Algorithm
            Whose queries are priced.
        setting : RunSetting
            The run's facts, graph, rounds, and what is asked before the method.
        node : int, optional
            None for all nodes.

        Returns
        -------
        _DryRun
        """
        if node is None:
            return cls.for_all_nodes(method, setting)
        return cls.for_one_node(method, setting, node)

    @classmethod
    def for_one_node(cls, method: Algorithm[Any], setting: RunSetting, node: int) -> _DryRun:
        """Return the dry run of one node, with its facts, degree and part of the schedules.

        Parameters
        ----------
        method, setting
            As for :meth:`for_run`.
        node : int
            Its number in the graph.

        Returns
        -------
        _DryRun
        """
        first = None
        if setting.first is not None:
            first = setting.first.method_of_node(node)
        degree = setting.graph.degree[node]
        return cls(
            method.method_of_node(node),
            first,
            setting.facts.facts_of_node(node),
            (),
            degree,
            setting.rounds,
        )

    def make_place(self, note: Callable[[Query | Sum], None]) -> Place:
        """Return the place at which the method runs: a pricer in place of the row guard."""
        # Events depend on public curvatures and never on vectors, so models have one entry.
        net = _Silent(self.degree, self.method.name, self.facts.d)
        return Place(self.facts, net, Pricer(self.facts, note), self.lead, 1)

    def ask_before_method(self, note: Callable[[Query | Sum], None]) -> bool:
        """Ask what comes before the method; return true if all of it was affordable."""
        if self.first is None:
            return True
        items = len(self.first.items)
        outcome = run_rounds(self.first, self.make_place(note), items, step=self.first.priced_round)
        return outcome.stopped == FINISHED

    def ask_method(
        self,
        note: Callable[[Query | Sum], None],
        observers: Sequence[Callable[[int, Any], None]] = (),
    ) -> None:
        """Run the method's rounds, with blank answers."""
        place = self.make_place(note)
        run_rounds(
            self.method, place, self.rounds, observers=observers, step=self.method.priced_round
        )


class Queries(NamedTuple):
    """All queries of a run in order: those asked before the method, and the method's own."""

    first: list[Query | Sum]
    method: list[Query | Sum]


def collect_queries(method: Algorithm[Any], setting: RunSetting) -> Queries:
    """Collect all queries of a run of all nodes that no budget ends, by a dry run without data.

    Parameters
    ----------
    method : Algorithm
        With its noise.
    setting : RunSetting

    Returns
    -------
    Queries
        Those asked before the method, and the method's own, each in the order of the run.

    Raises
    ------
    InvalidInput
        If the method cannot run on these facts, or its noise would have to be infinite (with
        ``nodes``).
    """
    return _collect_dry_queries(_DryRun.for_all_nodes(method, setting))


def _collect_dry_queries(dry: _DryRun) -> Queries:
    found = Queries([], [])
    dry.ask_before_method(found.first.append)
    dry.ask_method(found.method.append)
    return found


def key_of_plan(method: Algorithm[Any], setting: RunSetting) -> Any:
    """Return a key of all that the events of a run of all nodes depend on.

    Parameters
    ----------
    method : Algorithm
    setting : RunSetting

    Returns
    -------
    hashable or None
        None for a method that has none, such as a recipe of an audit that holds a class: its plan
        is made anew.
    """
    facts = setting.facts
    public = [getattr(facts, field.name) for field in fields(facts)]
    try:
        key = (
            _key_of_method(method),
            *(value.tobytes() if isinstance(value, np.ndarray) else value for value in public),
            setting.graph.degree.tobytes(),
            setting.rounds,
            None if setting.first is None else _key_of_method(setting.first),
        )
        hash(key)
    except TypeError:
        return None
    return key


def _key_of_method(method: Algorithm[Any]) -> Any:
    """Return a method, or what a recipe is known by: it may hold arrays, which have no hash."""
    if isinstance(method, Recipe):
        identity = canonical_json(method.identity_of_run())
        return type(method), identity, method.penalty, method.noise
    return method


# Most events that are kept of all plans: of longer runs, most of the time is the run itself.
_MOST_EVENTS = 10_000
_MOST_PLANS = 16
# A cache: events of the last plans by their keys, the oldest first.  A calibration ends with the
# plan that the run is opened with, one-against-rest classifiers run one plan for each class, and
# replicates of a study, which differ in rows and seed, make the plans of the first one again.
_last_plans: dict[Any, tuple[Event, ...]] = {}


def planned_events(method: Algorithm[Any], setting: RunSetting) -> tuple[Event, ...]:
    """Return the events of a run of all nodes that no budget ends, in order.

    The last plans are kept, so that a run that was priced is not planned again.

    Parameters
    ----------
    method : Algorithm
        With its noise.
    setting : RunSetting

    Returns
    -------
    tuple of Event
        Of one copy of the run.

    Raises
    ------
    InvalidInput
        As :func:`collect_queries`.
    """
    global _last_plans
    # Another thread may replace it meanwhile, and none changes the one that is there.
    known, key = _last_plans, key_of_plan(method, setting)
    if key is not None and key in known:
        return known[key]
    events = _events_of_dry_run(_DryRun.for_all_nodes(method, setting))
    if key is not None:
        _last_plans = _with_plan(known, key, events)
    return events


def _with_plan(
    known: dict[Any, tuple[Event, ...]], key: Any, events: tuple[Event, ...]
) -> dict[Any, tuple[Event, ...]]:
    """Return the plans with a new one, as many of the last as have at most `_MOST_EVENTS`."""
    kept, total = [(key, events)], len(events)
    for one in reversed(known.items()):
        total += len(one[1])
        if total > _MOST_EVENTS or len(kept) == _MOST_PLANS:
            break
        kept.append(one)
    if len(events) > _MOST_EVENTS:
        return known
    return dict(reversed(kept))


def _events_of_dry_run(dry: _DryRun) -> tuple[Event, ...]:
    queries = _collect_dry_queries(dry)
    return tuple(query.event(dry.facts) for query in (*queries.first, *queries.method))


def plan_ledger(
    method: Algorithm[Any],
    setting: RunSetting,
    *,
    node: int | None = None,
    budget: float = math.inf,
    after: Callable[[int, Ledger], None] | None = None,
) -> Ledger:
    """Return the ledger that a run will leave behind: every price of a run comes from here.

    Parameters
    ----------
    method : Algorithm
        With its noise.
    setting : RunSetting
        ``copies`` above 1 are priced for runs without a `budget` only.
    node : int, optional
        Plan the run at this node alone, as its site will; by default of all nodes.
    budget : float
        Epsilon at which the run ends: before the first release that would exceed it, as the run
        will.  The method is not begun unless all that is asked before it is affordable.
    after : callable ``(round, ledger)``, optional
        Called after each round of the method.

    Returns
    -------
    Ledger
        With all events in the order of their charges.

    Raises
    ------
    InvalidInput
        As :func:`collect_queries`.
    UnknownEvent
        If the accountant has no proof for an event.
    """
    dry = _DryRun.for_run(method, setting, node)
    ledger = Ledger(setting.accountant, budget, setting.delta, setting.sites_per_row)
    if math.isinf(budget) and after is None:
        # Without a limit only a total that is no number can end the run early, so all events are
        # charged together, which is faster.
        events = planned_events(method, setting) if node is None else _events_of_dry_run(dry)
        # If one is refused, nothing is charged, and the slow way below finds which.
        with suppress(BudgetExceeded):
            ledger.charge_all(events, setting.copies)
            return ledger

    def charge(query: Query | Sum) -> None:
        ledger.record_event(query.event(dry.facts))

    def observe(completed: int, state: Any) -> None:
        if after is not None:
            after(completed, ledger)

    if dry.ask_before_method(charge):
        dry.ask_method(charge, observers=[observe])
    if setting.copies > 1 and ledger.rows:
        ledger.charge_all(ledger.rows, setting.copies - 1)
    return ledger


@dataclass(frozen=True)
class Prepared:
    """A validated and priced run; nothing has been spent yet.

    Attributes
    ----------
    config : RunConfig
        As it will be recorded, with the digests of its start and of how rows are centred.
    facts : Facts
        Public facts of all nodes.
    graph : Graph
    algorithm : Algorithm
        The method, its noise calibrated.
    ledger : Ledger
        Empty, with the run's accountant and budget: the run charges it.
    centring : Centring or None
        How rows are centred before the method.
    """

    config: RunConfig
    facts: Facts
    graph: Graph
    algorithm: Algorithm[Any]
    ledger: Ledger
    centring: Centring | None = None

    @property
    def recipe_before_method(self) -> Recipe | None:
        """The recipe that is asked before the method; None without centring."""
        if self.centring is None:
            return None
        return self.centring.recipe

    def plan_ledger(
        self,
        rounds: int | None = None,
        *,
        node: int | None = None,
        budget: float = math.inf,
        after: Callable[[int, Ledger], None] | None = None,
    ) -> Ledger:
        """Return the ledger that the run, or its first `rounds`, will leave behind.

        Parameters
        ----------
        rounds : int, optional
            By default all rounds of the configuration.
        node, budget, after
            As for :func:`plan_ledger`.

        Returns
        -------
        Ledger
            Of one copy of the run, with all events in the order of their charges.
        """
        setting = self._setting(self.config.rounds if rounds is None else rounds)
        return plan_ledger(self.algorithm, setting, node=node, budget=budget, after=after)

    def planned_events(self) -> tuple[Event, ...]:
        """Return all events of one copy of the run, in order, if no budget ends it."""
        return planned_events(self.algorithm, self._setting(self.config.rounds))

    def _setting(self, rounds: int) -> RunSetting:
        """Return what the price of the first `rounds` depends on, of one copy of the run."""
        book = self.ledger
        return RunSetting(
            self.facts,
            self.graph,
            rounds,
            book.accountant,
            book.delta,
            first=self.recipe_before_method,
        )

    def affordable_events(self, node: int) -> tuple[Event, ...]:
        """Return the events of one node up to the first that its budget cannot pay, in order."""
        everything = self.plan_ledger(node=node).rows
        book = self.ledger
        budget = np.broadcast_to(book.epsilon, (self.facts.n_nodes,))[node]
        # Totals only grow: if the whole run is within budget, so is each part, and one check is
        # faster than one for each release.
        spent = book.accountant.spending_of_events(everything)
        if np.all(book.accountant.within_budget(spent, book.delta, budget)):
            return everything
        return self.plan_ledger(node=node, budget=float(budget)).rows


def privacy_statement(
    prepared: Prepared, rows: Iterable[Event], *, simulated: bool, caveat: Caveat = None
) -> Statement:
    """Return the privacy statement of a run: what its accountant proves of its ledger's events.

    Parameters
    ----------
    prepared : Prepared
        The run, of all nodes or of one.
    rows : iterable of Event
        Releases that were charged, or will be.
    simulated : bool
        Whether the noise can be repeated, so that the statement must not be relied on.
    caveat : Caveat, optional
        What epsilon does not cover.

    Returns
    -------
    Statement
        Of the facts that :func:`privacy_facts` collects, and of no others.
    """
    return build_statement(privacy_facts(prepared, rows, simulated=simulated, caveat=caveat))


def privacy_facts(
    prepared: Prepared, rows: Iterable[Event], *, simulated: bool, caveat: Caveat = None
) -> list[Fact]:
    """Collect the facts of a prepared run on which its privacy statement rests.

    Parameters
    ----------
    prepared : Prepared
        The run, of all nodes or of one.
    rows : iterable of Event
        What was charged, or will be.
    simulated : bool
        Whether the noise can be repeated.
    caveat : Caveat
        What epsilon does not cover, one or several, e.g. :attr:`sottovoce.data.Schema.caveat`.

    Returns
    -------
    list of Fact
        The proved totals, the trust, neighbouring relation and unit they are for, and their
        caveats.
    """
    facts, config, book = prepared.facts, prepared.config, prepared.ledger
    ledger = Ledger(book.accountant, math.inf, book.delta, book.sites_per_row)
    ledger.charge_all(tuple(rows), config.copies)
    known: list[Fact] = [
        Proved.proved_by_ledger(ledger, facts.n_nodes),
        Against(trust_with_numbers(config, facts)),
        Relation(facts.relation),
        Form(config.form),
        Simulated(simulated),
        Caveats(caveat),
    ]
    if config.rows_per_person is None:
        known += [Unit.of_rows(config.sites_per_row), TakenAsPublic(PUBLIC)]
    else:
        known.append(Unit.of_whole_people(config.rows_per_person, config.sites_per_row))
        known.append(TakenAsPublic(PUBLIC_OF_PEOPLE))
    if config.form != "corrected":
        known.append(Claim(ledger.claimed(), EXACT))
    if prepared.centring is not None:
        known.append(Disclosed(DISCLOSED))
    if facts.participants:
        known.append(IfOthersCollude(epsilon_against_all(ledger, facts.n_nodes)))
    return known


def trust_with_numbers(config: RunConfig, facts: Facts) -> Trust:
    """Return the trust of a run, with its numbers of honest and colluding sites in sums."""
    if not facts.participants:
        return config.trusted
    return Trust.in_sum(facts.participants - facts.colluders, facts.colluders)


def epsilon_against_all(ledger: Ledger, nodes: int) -> float:
    """Return the epsilon of one site's rows in sums if all `nodes` - 1 other sites collude."""
    alone = Ledger(ledger.accountant, math.inf, ledger.delta, ledger.sites_per_row)
    alone.charge_all([row.event_against_colluders(nodes - 1) for row in ledger.rows])
    return alone.total()


def release_costs(prepared: Prepared, events: Iterable[Event]) -> list[dict[str, Any]]:
    """Return the kind, the epsilon and the noise of each release, as plain data.

    Parameters
    ----------
    prepared : Prepared
        The run, whose accountant and delta price a release alone.
    events : iterable of Event

    Returns
    -------
    list of dict
        For each event its class (``event``) and, for each node, the ``epsilon`` of this release
        alone and an upper bound on the noise's standard deviation in a coordinate (``spread``).
    """
    book, nodes = prepared.ledger, (prepared.facts.n_nodes,)
    # Releases of many rounds are often equal, and each price may take a search.
    known: dict[str, dict[str, Any]] = {}
    found = []
    for event in events:
        text = repr(event.to_dict())
        if text not in known:
            alone = book.accountant.epsilon_of_events([event], book.delta)
            known[text] = {
                "event": type(event).__name__,
                "epsilon": np.broadcast_to(alone, nodes).tolist(),
                "spread": np.broadcast_to(event.noise_standard_deviation(), nodes).tolist(),
            }
        found.append(dict(known[text]))
    return found


def cost_report(
    prepared: Prepared, *, caveat: Caveat = None, life: float | None = None
) -> dict[str, Any]:
    """Report the privacy cost and the noise of a planned run, as plain data.

    Parameters
    ----------
    prepared : Prepared
    caveat : Caveat
        What epsilon does not cover.
    life : float, optional
        Lifetime epsilon of a new ledger of a site, of which the report says what the run takes;
        without it, the report has only the smallest one that admits the run.

    Returns
    -------
    dict
        The whole run's statement (``privacy``), the method with its calibrated noise
        (``algorithm``), ``releases`` as of :func:`release_costs`, the run's configuration
        (``config``), and what it takes of a lifetime budget at the run's delta (``life``, as of
        :func:`sottovoce.ledger.life.share_of_lifetime_budget`).
    """
    config = prepared.config
    events = prepared.plan_ledger().rows
    statement = privacy_statement(
        prepared, events, simulated=config.seed is not None, caveat=caveat
    )
    return {
        "privacy": statement.to_dict(),
        "algorithm": prepared.algorithm.to_dict(),
        "releases": release_costs(prepared, events),
        "config": config.to_dict(),
        "life": share_of_lifetime_budget(events, config.delta, life),
    }
