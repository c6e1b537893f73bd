"""A deployment within one process: a thread for each site, messages through queues, nothing shared.

With keyed noise (a function of the seed) the result equals that of one replicate of the batched
simulation; every transport is tested against it.  :func:`run_sites` takes a configuration as a
simulation does, :func:`train_as_sites` and :func:`answer_as_sites` an agreed plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from ..data.move import Move
from ..data.rows import Rows
from ..data.sweep import one_thread_a_product
from ..errors import AttemptLost, NetClosed
from ..ledger.memory import Ledger
from ..network.graphs import make_graph
from ..network.net import QueueNet
from ..privacy.accountants import make_accountant
from ..privacy.noise import KeyedNoise, Noise, SystemNoise
from ..problem.facts import Among, Facts
from ..runs import engine
from ..runs.centre import Centring, with_centring_digest
from ..runs.config import RunConfig
from ..runs.engine import FINISHED, Outcome, Place
from ..runs.prepare import prepare, rows_on_backend
from ..runs.row_guard import RowGuard
from ..runs.start import Start, vector_of_start, with_start_digest
from ..util.typing import Array, IntArray
from .answering import Found, make_site_asker
from .asks import SiteTable
from .plan import Plan

Attempts = Sequence[tuple[Sequence[int], bool]]
"""Losses of a run of sums: for every attempt, the nodes that take part, and whether their sum was
opened (else a share was missing).
"""

Lost = Mapping[int, int]
"""Losses of a run over a graph: for each lost node, the first round without it."""


class LossyNet(QueueNet):
    """A :class:`sottovoce.network.net.QueueNet` that loses sites as given.

    Parameters
    ----------
    inner : QueueNet
        The net whose queues are used.
    node : int
        This site's node.
    n : array (N,)
        Number of rows of every site.
    attempts : sequence of (nodes, bool)
        The nodes of every attempt, and whether its sum was opened.
    """

    def __init__(self, inner: QueueNet, node: int, n: Array, attempts: Attempts) -> None:
        super().__init__(inner._inbox, inner._outbox, inner._adder)
        self._node = node
        self._n = n
        self._given = attempts

    def among(self, facts: Facts) -> Among:
        """Return sites and rows of the next attempt; raises NetClosed if this site is not in it."""
        members: Sequence[int] = ()
        if self._attempts < len(self._given):
            members = self._given[self._attempts][0]
        if self._node not in members:
            raise NetClosed(f"node {self._node} is not in attempt {self._attempts + 1}")
        return Among(float(self._n[list(members)].sum()), len(members))

    def total(self, sealed: IntArray) -> IntArray:
        """Add this site's share, and return the sum; raises AttemptLost if it is not opened."""
        members, opened = self._given[self._attempts]
        self._attempts += 1
        if not opened:
            raise AttemptLost(f"attempt {self._attempts}: a share is missing")
        return self._adder.add_share_and_wait(self._attempts, sealed, len(members))


def run_sites(
    config: RunConfig,
    rows: Rows,
    replicate: int = 0,
    *,
    start: Start | None = None,
    attempts: Attempts | None = None,
    lost: Lost | None = None,
    centre: Centring | None = None,
) -> list[tuple[Outcome, Ledger]]:
    """Run an algorithm with every node of a set of rows as a site of its own.

    Parameters
    ----------
    config : RunConfig
        ``config.replicates`` is not used: sites run once.
    rows : Rows
        Rows of all nodes.
    replicate : int
        Replicate of the simulation whose noise is repeated.  Without a seed in `config` the noise
        comes from the operating system.
    start : Start, optional
        As for :func:`sottovoce.runs.simulate.simulate`; states are relative to it.
    attempts : sequence of (nodes, bool), optional
        For a run of sums that loses sites (:data:`Attempts`).
    lost : dict of int, optional
        For a run over a graph that loses sites: the first round without each lost node.
    centre : Centring, optional
        As for :func:`sottovoce.runs.simulate.simulate`; states are then models of centred rows.

    Returns
    -------
    list of (Outcome, Ledger)
        One for each site; states hold vectors of shape (d,).
    """
    return [
        (outcome, ledger)
        for outcome, ledger, _ in _run_in_threads(
            config, rows, replicate, start, attempts, centre, lost
        )
    ]


def train_as_sites(
    plan: Plan, rows: Rows, attempts: Attempts | None = None, lost: Lost | None = None
) -> list[tuple[Array, Move | None]]:
    """Run the training of a plan with a seed, with a thread for each site.

    Parameters
    ----------
    plan : Plan
        A demonstration's: with a seed.
    rows : Rows
        Rows of all sites.
    attempts : sequence of (nodes, bool), optional
        For a run of sums that loses sites (:data:`Attempts`).
    lost : mapping of int to int, optional
        For a run over a graph that loses sites: the first round without each lost node.

    Returns
    -------
    list of (array (d,), Move or None)
        Every site's model, of rows that are not centred, and the map by which the training centred
        them.
    """
    found = _run_in_threads(plan.config, rows, 0, plan.start, attempts, plan.centre, lost)
    algorithm = plan.stages[0].prepared.algorithm
    trained = []
    for node, (outcome, _, place) in enumerate(found):
        model = place.fold_to_original_rows(algorithm.method_of_node(node).model(outcome.state))
        trained.append((np.array(np.broadcast_to(model, (plan.d,))), place.move))
    return trained


def _run_in_threads(
    config: RunConfig,
    rows: Rows,
    replicate: int,
    start: Start | None,
    attempts: Attempts | None,
    centre: Centring | None,
    lost: Lost | None,
) -> list[tuple[Outcome, Ledger, Place]]:
    """Run every node as a site; see :func:`run_sites`.

    Returns each site's outcome, ledger and place (:class:`sottovoce.runs.engine.Place`).
    """
    config = with_centring_digest(with_start_digest(config, start, rows.d), centre)
    prepared = prepare(config, rows.n, rows.d, centre=centre)
    rows = rows_on_backend(config, rows)
    nets = QueueNet.connect_all_nodes(prepared.graph)
    # a second net, for exchanges in which all sites hear each other, whatever the graph
    others = QueueNet.connect_all_nodes(make_graph("complete", len(nets)))
    if attempts is not None:
        nets = [LossyNet(net, i, rows.n[:, 0], attempts) for i, net in enumerate(nets)]
    for i, round in (lost or {}).items():
        nets[i].until = round
        for j in prepared.graph.neighbours(i):
            nets[j].leaves[i] = round

    def site(i: int) -> tuple[Outcome, Ledger, Place]:
        """Run node i as a site, in its thread."""
        facts = prepared.facts.facts_of_node(i)
        noise: Noise = SystemNoise()
        if config.seed is not None:
            noise = KeyedNoise(config.seed, [replicate], [i], lead=())
        budget = np.broadcast_to(prepared.ledger.epsilon, (prepared.facts.n_nodes,))[i]
        ledger = Ledger(make_accountant(config.notion), budget, prepared.ledger.delta)
        guard = RowGuard(rows.rows_of_node(i), facts, noise, ledger, centring=centre)
        place = Place(facts, nets[i], guard, (), rows.d, vector_of_start(start))
        stopped = FINISHED
        algorithm = prepared.algorithm.method_of_node(i)
        try:
            if centre is not None:
                # The mean is one of all rows, so all sites hear it, not the neighbours alone.
                whole = others[i]
                if prepared.facts.opens_only_sums:
                    whole = nets[i]
                place, stopped = engine.release_mean(
                    replace(place, net=whole), guard, prepared.facts
                )
                place = replace(place, net=nets[i])
            if stopped != FINISHED:
                return Outcome(algorithm.init(place), 0, stopped), ledger, place
            return engine.run_rounds(algorithm, place, config.rounds), ledger, place
        finally:
            nets[i].close()
            others[i].close()

    # Set here and not in `site`: the limit on the linear algebra library's threads is one of the
    # whole process, and a single thread must set it.
    with one_thread_a_product(), ThreadPoolExecutor(max_workers=prepared.facts.n_nodes) as pool:
        return list(pool.map(site, range(prepared.facts.n_nodes)))


def answer_as_sites(plan: Plan, tables: Sequence[SiteTable]) -> list[tuple[Array, Found]]:
    """Run a plan with inference or evaluation and a seed, with a thread for each site.

    The results equal those of real sites (:class:`sottovoce.deploy.session.SiteSession`) to the
    last bit.

    Parameters
    ----------
    plan : Plan
    tables : sequence of SiteTable
        Tables of all sites, in the order of the plan.

    Returns
    -------
    list of (array (d,), Found)
        Last model and results of every site.
    """
    asks, names, seed = plan.asks, plan.names, plan.config.seed
    assert asks is not None and seed is not None
    models = [np.zeros(plan.exchange_table.last_model.width)] * len(names)
    moves = list[Move | None]([None] * len(names))
    if not plan.is_inference:
        parts = [table.at(asks.split(len(table.y))[0]) for table in tables]
        trained = train_as_sites(plan, Rows.build_from_parts([(part.X, part.y) for part in parts]))
        models = [model for model, _ in trained]
        moves = [move for _, move in trained]
    nets = QueueNet.connect_all_nodes(make_graph("complete", len(names)))

    def site(i: int) -> tuple[Array, Found]:
        """Run the recipes at site i, in its thread."""
        noise = KeyedNoise(seed, [0], [i], lead=())
        book = Ledger(make_accountant(plan.config.notion))
        asker = make_site_asker(plan, names[i], tables[i], nets[i], noise, book)
        found = Found()
        model = models[i]
        try:
            if plan.is_inference:
                _, found = asker.run_inference()
                model = found.model
            if asks.evaluation is not None:
                _, found = asker.evaluate_model(model, found, moves[i])
            return model, found
        finally:
            nets[i].close()

    with one_thread_a_product(), ThreadPoolExecutor(max_workers=len(names)) as pool:
        return list(pool.map(site, range(len(names))))
